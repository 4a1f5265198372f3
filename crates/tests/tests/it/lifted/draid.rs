//! Pools with dRAID vdevs are written to.

use std::sync::Arc;

use device::{Device, FileDevice, OpenMode};
use vdev::OfflineReason;

use super::{Lifted, check_files, file_systems, live_with, write_files};
use crate::scrub::scrub;

#[test]
fn a_draid_is_used() {
    live_with(&Lifted::of("draid"));
}

/// A child is away while files are written; it gets what it missed when it is back.
#[test]
fn a_child_of_a_draid_comes_back() {
    let lifted = Lifted::of("draid");
    let pool = lifted.import_with(crate::scrub::hasty());
    let name = file_systems(&pool).remove(0);
    let leaf = pool.tree().leaves().next().unwrap().guid();
    pool.take_off(leaf, OfflineReason::Offline, false).unwrap();
    let expected = write_files(&pool, &name, 1);
    check_files(&pool, &expected);
    let reopen = |path: &str| Ok(Arc::new(FileDevice::open(path, OpenMode::ReadWrite)?) as Arc<dyn Device>);
    pool.online(leaf, false, &reopen).unwrap();
    let is_stale = || pool.tree().leaves().any(|leaf| !leaf.state().dtl().is_empty());
    for _ in 0..1000 {
        pool.sync().unwrap();
    }
    assert!(!is_stale(), "the resilver has ended");
    assert_eq!(scrub(&pool).errors, 0);
    lifted.judge(pool);
    let pool = lifted.import();
    check_files(&pool, &expected);
    assert_eq!(pool.view().error_count().unwrap(), 0);
    lifted.judge(pool);
}
