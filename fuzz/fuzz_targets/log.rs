//! Headers and records of the intent log.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = zil::ZilHeader::parse(bytes);
    zil::fuzz(bytes);
});
