#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| zrfs_fuzz::header_table_schema::target(data));
