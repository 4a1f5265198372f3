//! Blocks of the MOS: configuration, history, error logs, tables of dedup and of removed vdevs, datasets, properties, bookmarks: changed as the bytes say, and
//! sealed; the pool is then used.
#![no_main]

use std::sync::LazyLock;

use testkit::seal::MOS;
use tests::pools::{self, BasePool};

static BASES: LazyLock<Vec<BasePool>> = LazyLock::new(|| pools::bases(false));

// pools are made first, which would be too long for an input
libfuzzer_sys::fuzz_target!(init: { LazyLock::force(&BASES); }, |bytes: &[u8]| {
    let outcome = pools::run_patched(&BASES, &|block| block.objset == MOS, bytes);
    assert!(outcome.findings.is_empty(), "{}: {:#?}", outcome.story, outcome.findings);
});
