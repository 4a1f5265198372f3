//! Pools whose raidz was expanded are written to: old blocks are as wide as it was, new ones as it is.

use std::sync::atomic::Ordering;

use pool::AttachAs;

use super::{Lifted, check_files, file_systems, live_with, write_files};
use crate::replace::{finish, put_beside};
use crate::scrub::scrub;

#[test]
fn an_expanded_raidz_is_used() {
    live_with(&Lifted::newer("expanded"));
}

/// A new device gets old blocks, too: without another one all is there.
#[test]
fn a_child_of_an_expanded_raidz_is_replaced() {
    let mut lifted = Lifted::newer("expanded");
    let pool = lifted.import_with(crate::scrub::hasty());
    let name = file_systems(&pool).remove(0);
    let expected = write_files(&pool, &name, 1);
    let size = std::fs::metadata(&lifted.paths[0]).unwrap().len();
    let path = lifted.path().join("new");
    put_beside(&pool, &lifted.paths[0], &path, size, AttachAs::Replacement).unwrap();
    finish(&pool);
    assert_eq!(scrub(&pool).errors, 0);
    let wrong = pool.tree().leaves().map(|leaf| leaf.stats().checksum_errors.load(Ordering::Relaxed)).sum::<u64>();
    assert_eq!(wrong, 0, "the new device has all that it should have");
    lifted.paths[0] = path;
    lifted.judge(pool);
    // one more may go now
    std::fs::remove_file(lifted.paths.remove(1)).unwrap();
    let pool = lifted.import();
    check_files(&pool, &expected);
    assert_eq!(scrub(&pool).errors, 0);
}
