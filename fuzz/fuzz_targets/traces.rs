//! Traces of requests, which others have recorded: the first byte says in which format, unless `CENOTE_TRACE_FORMAT` has its
//! number, for a run that is about one format only.
#![no_main]

use std::sync::LazyLock;

static FORMAT: LazyLock<Option<u8>> = LazyLock::new(|| std::env::var("CENOTE_TRACE_FORMAT").ok()?.parse().ok());

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    match *FORMAT {
        Some(format) => cmd::fuzzing::traces(&[&[format], bytes].concat()),
        None => cmd::fuzzing::traces(bytes),
    }
});
