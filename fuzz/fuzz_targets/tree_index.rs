#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| zrfs_fuzz::tree_index::target(data));
