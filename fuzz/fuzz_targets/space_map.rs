//! Space maps, and headers of tables of removed vdevs.
#![no_main]

use format::space_map::{SpaceMapHeader, runs};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = SpaceMapHeader::parse(bytes);
    let _ = format::removal::TableHeader::parse(bytes).map(|header| assert!(header.bonus().len() >= 24));
    let all: Vec<_> = runs(bytes).collect();
    assert!(all.len() <= bytes.len() / 8);
});
