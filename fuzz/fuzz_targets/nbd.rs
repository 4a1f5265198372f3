//! What clients of NBD send.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nbd::fuzz(bytes));
