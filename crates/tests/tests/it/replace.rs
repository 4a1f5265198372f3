//! Leaves that come beside others, are given everything, and take the place of those that they replace.

use std::path::Path;
use std::sync::Arc;

use base::{Env, Kind, Result};
use device::{Device, FileDevice, OpenMode};
use format::ids::Guid;
use pool::{
    AttachAs, Candidate, LivePool, NewDevices, NewLeaf, NewVdevShape, OfflineReason, PoolState, Progress, ScanFunction,
    discover,
};

use crate::heal::{
    BACK, DEVICE_BYTES, FILE_BYTES, FRONT, contents, file_of, import_paths, import_with, make, open, read, spoil, sums,
};
use crate::live::judge;
use crate::scrub::{hasty, scrub, status};

pub(crate) fn guid_at(pool: &LivePool, path: &Path) -> Guid {
    pool.tree().leaves().find(|leaf| leaf.name() == path.to_str().unwrap()).expect("it is in the pool").guid()
}

pub(crate) fn put_beside(pool: &LivePool, old: &Path, new: &Path, bytes: u64, how: AttachAs) -> Result<()> {
    std::fs::File::create(new).unwrap().set_len(bytes).unwrap();
    let device = Arc::new(FileDevice::open(new.to_str().unwrap(), OpenMode::ReadWrite).unwrap());
    let leaf = NewLeaf { path: new.display().to_string(), is_file: true };
    pool.attach(guid_at(pool, old), &leaf, how, None, device as Arc<dyn Device>)
}

/// Lets groups pass until no leaf lacks anything, and none is being replaced.
pub(crate) fn finish(pool: &LivePool) {
    for _ in 0..100_000 {
        let is_stale = pool.tree().leaves().any(|leaf| !leaf.state().dtl().is_empty());
        let is_replacing = pool.tree().iter().any(|vdev| vdev.kind() == vdev::VdevKind::Replacing);
        if !is_stale && !is_replacing && status(pool).progress != Progress::Running {
            return;
        }
        pool.sync().unwrap();
        pool.diagnose();
    }
    panic!("it does not come to its end: {:?}", status(pool));
}

fn names(pool: &LivePool) -> Vec<String> {
    let name = |path: &str| Path::new(path).file_name().unwrap().to_string_lossy().into_owned();
    pool.tree().leaves().map(|leaf| name(leaf.name())).collect()
}

/// Exports the pool, has it judged, and reads the file with `lost` gone.
fn check_without(pool: Arc<LivePool>, dir: &Path, lost: &str, expect: &[u8]) {
    let disks = names(&pool);
    assert_eq!(pool.tree().health(pool.tree().root().id()), vdev::Health::HEALTHY);
    assert_eq!((scrub(&pool).processed_bytes, sums(&pool).0), (0, 0), "all has been copied");
    pool.close(PoolState::Exported).unwrap();
    drop(pool);
    judge(dir);
    if !lost.is_empty() {
        spoil(&dir.join(lost), FRONT, (DEVICE_BYTES - FRONT - BACK) as usize);
    }
    let pool = import_paths(disks.iter().map(|name| dir.join(name)));
    assert!(read(&open(&pool)).unwrap() == expect);
}

#[test]
fn a_leaf_of_any_vdev_is_replaced() {
    for (shape, leaves, is_there) in [
        (NewVdevShape::Single, 1, true),
        (NewVdevShape::Mirror, 2, false),
        (NewVdevShape::Raidz(1), 3, true),
        (NewVdevShape::Raidz(2), 5, false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let old = format!("disk{}", leaves - 1);
        make(dir.path(), shape, leaves, "1", &[]);
        let pool = import_with(&Env::real(), dir.path(), leaves);
        if !is_there {
            pool.take_off(guid_at(&pool, &path(&old)), OfflineReason::Offline, false).unwrap();
        }
        put_beside(&pool, &path(&old), &path("new"), DEVICE_BYTES, AttachAs::Replacement).unwrap();
        file_of(&open(&pool)).write(5, b"meanwhile").unwrap();
        finish(&pool);
        let mut expect = contents();
        expect[5..14].copy_from_slice(b"meanwhile");
        let done = status(&pool);
        assert_eq!((done.function, done.errors), (ScanFunction::Resilver, 0), "{shape:?}");
        assert!(done.processed_bytes > FILE_BYTES as u64 / leaves as u64, "{shape:?}: {done:?}");
        assert!(names(&pool).contains(&"new".to_owned()) && !names(&pool).contains(&old), "{:?}", names(&pool));
        assert_eq!(pool.tree().leaves().count(), leaves);
        std::fs::remove_file(path(&old)).unwrap();
        check_without(pool, dir.path(), if leaves == 1 { "" } else { "disk0" }, &expect);
    }
}

/// A leaf that fails while a spare steps in for another one has not been tried in vain.
#[test]
fn each_leaf_that_fails_gets_a_spare() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Raidz(2), 5, "1", &[]);
    let pool = import_with(&Env::real(), dir.path(), 5);
    let spares = ["s", "t"].map(|name| dir.path().join(name).display().to_string());
    let leaves = spares.iter().map(|path| NewLeaf { path: path.clone(), is_file: true }).collect();
    let open_file = |path: &str| Ok(Arc::new(FileDevice::open(path, OpenMode::ReadWrite)?) as Arc<dyn Device>);
    let devices = spares.iter().map(|path| {
        std::fs::File::create(path).unwrap().set_len(DEVICE_BYTES).unwrap();
        (path.into(), open_file(path).unwrap())
    });
    let devices = devices.collect();
    pool.add(&NewDevices { spares: leaves, ..NewDevices::default() }, &devices).unwrap();
    let fails = |pool: &LivePool, guid: Guid| pool.take_off(guid, OfflineReason::Faulted, false).unwrap();
    let [first, second] = ["disk0", "disk1"].map(|name| guid_at(&pool, &dir.path().join(name)));
    let weak = Arc::downgrade(&pool);
    pool.let_spares_step_in(move |path| {
        // the other one fails right now
        weak.upgrade().iter().for_each(|pool| fails(pool, second));
        open_file(path)
    });
    fails(&pool, first);
    let began = std::time::Instant::now();
    while !spares.iter().all(|spare| pool.tree().leaves().any(|leaf| leaf.name() == spare)) {
        assert!(began.elapsed().as_secs() < 40, "{:?}", names(&pool));
        pool.sync().unwrap();
        pool.diagnose();
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    pool.close(PoolState::Exported).unwrap();
}

/// Its label says so: a state of before may want it.
#[test]
fn a_leaf_that_has_left_is_found_for_a_state_of_before() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Mirror, 2, "1", &[]);
    let pool = import_with(&Env::real(), dir.path(), 2);
    let guid = guid_at(&pool, &dir.path().join("disk1"));
    pool.detach(guid).unwrap();
    pool.close(PoolState::Exported).unwrap();
    let found = discover(&Env::real(), &[dir.path().to_path_buf()]).unwrap();
    let candidate = Candidate::pick(&Candidate::all(&found), "live").unwrap();
    let has_it = |candidate: &Candidate| candidate.devices.iter().any(|found| found.guid() == Some(guid));
    assert!(!has_it(&candidate));
    assert!(has_it(&candidate.with_former_devices()));
}

#[test]
fn a_disk_becomes_a_mirror() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    make(dir.path(), NewVdevShape::Single, 1, "1", &[]);
    let pool = import_with(&Env::real(), dir.path(), 1);
    let small = put_beside(&pool, &path("disk0"), &path("small"), DEVICE_BYTES / 2, AttachAs::Side).unwrap_err();
    assert_eq!(small.kind(), Kind::TooBig);
    std::fs::remove_file(path("small")).unwrap();
    put_beside(&pool, &path("disk0"), &path("second"), DEVICE_BYTES, AttachAs::Side).unwrap();
    // the only one that has everything cannot go
    let guid = guid_at(&pool, &path("disk0"));
    if pool.tree().leaves().any(|leaf| !leaf.state().dtl().is_empty()) {
        assert_eq!(pool.detach(guid).unwrap_err().kind(), Kind::Busy);
    }
    finish(&pool);
    put_beside(&pool, &path("disk0"), &path("third"), DEVICE_BYTES, AttachAs::Side).unwrap();
    finish(&pool);
    assert_eq!(names(&pool), ["disk0", "second", "third"]);
    pool.detach(guid_at(&pool, &path("disk0"))).unwrap();
    std::fs::remove_file(path("disk0")).unwrap();
    check_without(pool, dir.path(), "second", &contents());
}

/// Exports and power cuts in the middle, and a new leaf that is given up.
#[test]
fn a_replacement_goes_on_whatever_happens() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    make(dir.path(), NewVdevShape::Raidz(1), 3, "1", &[]);
    let mut pool = import_with(&hasty(), dir.path(), 3);
    put_beside(&pool, &path("disk1"), &path("never"), DEVICE_BYTES, AttachAs::Replacement).unwrap();
    pool.detach(guid_at(&pool, &path("never"))).unwrap();
    std::fs::remove_file(path("never")).unwrap();
    assert_eq!(names(&pool), ["disk0", "disk1", "disk2"]);
    put_beside(&pool, &path("disk1"), &path("new"), DEVICE_BYTES, AttachAs::Replacement).unwrap();
    for round in 0..4 {
        pool.sync().unwrap();
        if round % 2 == 0 {
            pool.close(PoolState::Exported).unwrap();
        }
        let disks = names(&pool);
        drop(pool);
        pool = import_paths(disks.iter().map(|name| path(name)));
    }
    finish(&pool);
    assert_eq!(names(&pool), ["disk0", "new", "disk2"]);
    std::fs::remove_file(path("disk1")).unwrap();
    check_without(pool, dir.path(), "disk2", &contents());
}
