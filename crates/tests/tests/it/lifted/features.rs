//! Features that Cenote does not use itself are kept up where others have used them.

use super::{Lifted, live_with};

#[test]
fn large_microzaps() {
    live_with(&Lifted::newer("largemicrozap"));
}

#[test]
fn names_of_more_than_255_bytes() {
    live_with(&Lifted::newer("longnames"));
}

#[test]
fn lists_of_what_was_redacted() {
    live_with(&Lifted::newer("redaction"));
}

#[test]
fn blocks_that_were_rewritten() {
    live_with(&Lifted::newer("rewritten"));
}

#[test]
fn long_gang_headers() {
    live_with(&Lifted::newer("dynamicgang"));
}

#[test]
fn flat_dedup_tables() {
    live_with(&Lifted::newer("fastdedup"));
}
