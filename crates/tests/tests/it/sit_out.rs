//! Leaves of a raidz that sit out are not read, unless there is no other way.

use std::sync::atomic::Ordering;

use base::Kind;
use format::ids::Guid;
use pool::{LivePool, NewVdevShape, OfflineReason, PoolState};

use crate::heal::{contents, import_disks, make, open, read};
use crate::replace::finish;
use crate::scrub::scrub;

fn reads_of(pool: &LivePool, guid: Guid) -> u64 {
    pool.tree().leaf(guid).unwrap().stats().reads.load(Ordering::Relaxed)
}

#[test]
fn who_sits_out_is_read_last() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Raidz(1), 4, "1", &[]);
    let pool = import_disks(dir.path(), 4);
    let guids: Vec<Guid> = pool.tree().leaves().map(|leaf| leaf.guid()).collect();
    pool.set_sit_out(guids[1], true).unwrap();
    let before = reads_of(&pool, guids[1]);
    assert!(read(&open(&pool)).unwrap() == contents());
    assert_eq!(reads_of(&pool, guids[1]), before, "others have what it has");
    assert_eq!(scrub(&pool).errors, 0);
    assert!(reads_of(&pool, guids[1]) > before, "a scrub reads all");
    // now it is needed
    pool.take_off(guids[0], OfflineReason::Offline, true).unwrap();
    pool.close(PoolState::Exported).unwrap();
    drop(pool);
    let pool = import_disks(dir.path(), 4);
    finish(&pool);
    pool.set_sit_out(guids[1], true).unwrap();
    let what = pool.set_sit_out(guids[2], true).unwrap_err();
    assert_eq!(what.what(), "too many disks already sitting out");
    pool.take_off(guids[0], OfflineReason::Offline, true).unwrap();
    let before = reads_of(&pool, guids[1]);
    assert!(read(&open(&pool)).unwrap() == contents());
    assert!(reads_of(&pool, guids[1]) > before);
    pool.set_sit_out(guids[1], false).unwrap();
    assert_eq!(pool.tree().leaf(guids[1]).unwrap().state().sits_out_until_s(), 0);
    pool.close(PoolState::Exported).unwrap();
}

#[test]
fn sides_of_mirrors_do_not_sit_out() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Mirror, 2, "1", &[]);
    let pool = import_disks(dir.path(), 2);
    let guid = pool.tree().leaves().next().unwrap().guid();
    assert_eq!(pool.set_sit_out(guid, true).unwrap_err().kind(), Kind::Unsupported);
    assert_eq!(pool.set_sit_out(Guid::new(7), true).unwrap_err().kind(), Kind::NotFound);
    pool.close(PoolState::Exported).unwrap();
}
