//! Bonus buffers of dataset directories and datasets.
#![no_main]

use format::dsl::{DatasetPhys, DirPhys};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = DirPhys::parse(bytes);
    if let Ok(dataset) = DatasetPhys::parse(bytes) {
        let _ = format!("{:?}", dataset.bp);
    }
});
