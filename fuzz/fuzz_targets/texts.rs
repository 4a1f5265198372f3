//! What people, programs and the kernel send: requests, messages, properties, names, access control lists.
#![no_main]

use dsl::property::DatasetKind;
use dsl::property::rules::check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    cmd::fuzzing::texts(bytes);
    fuse::fuzz(bytes);
    zpl::fuzz(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = dsl::check_new_name(text, dsl::NameKinds { heads: true, snapshots: true, bookmarks: true });
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    for kind in [DatasetKind::FileSystem, DatasetKind::Volume, DatasetKind::Snapshot] {
        let _ = check(name, value, kind, true);
    }
});
