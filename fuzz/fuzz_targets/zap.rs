//! ZAP blocks, micro and fat, in both byte orders.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    format::zap::fuzz(bytes);
    let mut turned = bytes.to_vec();
    format::zap::swap(&mut turned);
    format::zap::fuzz(&turned);
});
