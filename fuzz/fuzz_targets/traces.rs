//! Traces of requests, which others have recorded.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    cmd::fuzzing::traces(bytes);
});
