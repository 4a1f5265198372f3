//! Space maps.
#![no_main]

use format::space_map::{SpaceMapHeader, runs};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = SpaceMapHeader::parse(bytes);
    let all: Vec<_> = runs(bytes).collect();
    assert!(all.len() <= bytes.len() / 8);
});
