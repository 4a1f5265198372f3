//! Bonus buffers of dataset directories and datasets, and redaction lists.
#![no_main]

use format::dsl::{DatasetPhys, DirPhys};
use format::redaction::{RedactedRange, RedactionHead};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = DirPhys::parse(bytes);
    if let Ok(head) = RedactionHead::parse(bytes) {
        assert_eq!(RedactionHead::parse(&head.to_bytes()).unwrap(), head);
    }
    if let Ok(range) = RedactedRange::parse(bytes) {
        assert_eq!(RedactedRange::parse(&range.to_bytes()).unwrap(), range);
    }
    if let Ok(dataset) = DatasetPhys::parse(bytes) {
        let _ = format!("{:?}", dataset.bp);
    }
});
