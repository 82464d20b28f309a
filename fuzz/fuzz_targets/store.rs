#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| zrfs_fuzz::store::target(data));
