//! Space maps.
#![no_main]

use format::space_map::{Header, runs};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = Header::parse(bytes);
    let all: Vec<_> = runs(bytes).collect();
    assert!(all.len() <= bytes.len() / 8);
});
