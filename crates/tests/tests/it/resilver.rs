//! Leaves that were away are given what they missed, and are as good as the others then.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Env, Error, Kind};
use device::{Device, FaultyDevice, FileDevice, OpenMode};
use dsl::send::SendFlags;
use format::ids::Guid;
use pool::{LivePool, NewVdevShape, OfflineReason, PoolState, Progress, ScanFunction};
use testkit::streams::{ReceiveFlags, begin, receive, send};
use testkit::workload::{candidate, options};
use vdev::VdevState;
use zpl::{New, NewKind};

use crate::heal::{
    BACK, DEVICE_BYTES, FILE_BYTES, FRONT, contents, file_of, import_with, make, open, read, spoil, sums,
};
use crate::live::judge;
use crate::scrub::{hasty, scrub, status};

fn leaf_at(pool: &LivePool, path: &Path) -> Guid {
    pool.tree().leaves().find(|leaf| leaf.name() == path.to_str().unwrap()).expect("it is in the pool").guid()
}

fn take_off(pool: &LivePool, path: &Path) {
    pool.take_off(leaf_at(pool, path), OfflineReason::Offline, false).unwrap();
}

fn bring_back(pool: &LivePool, path: &Path) {
    let reopen = |path: &str| Ok(Arc::new(FileDevice::open(path, OpenMode::ReadWrite)?) as Arc<dyn Device>);
    pool.online(leaf_at(pool, path), false, &reopen).unwrap();
}

fn is_stale(pool: &LivePool) -> bool {
    pool.tree().leaves().any(|leaf| !leaf.state().dtl().is_empty())
}

/// Lets groups pass until no leaf lacks anything.
fn finish(pool: &LivePool) {
    for _ in 0..100_000 {
        if !is_stale(pool) && status(pool).progress != Progress::Running {
            return;
        }
        pool.sync().unwrap();
    }
    panic!("a leaf lacks something for ever: {:?}", status(pool));
}

fn change(pool: &LivePool, seed: u8) {
    let zpl = open(pool);
    for at in 0..8 {
        file_of(&zpl).write(at * (300 << 10), &vec![seed; 128 << 10]).unwrap();
    }
    pool.sync().unwrap();
}

fn expected(seed: u8) -> Vec<u8> {
    let mut bytes = contents();
    (0..8usize).for_each(|at| bytes[at * (300 << 10)..][..128 << 10].fill(seed));
    bytes
}

#[test]
fn only_what_was_missed_is_copied() {
    for (shape, leaves) in [(NewVdevShape::Mirror, 2), (NewVdevShape::Raidz(1), 3)] {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path(), shape, leaves, "1", &[]);
        let disk = dir.path().join("disk1");
        let pool = import_with(&Env::real(), dir.path(), leaves);
        take_off(&pool, &disk);
        change(&pool, 7);
        bring_back(&pool, &disk);
        finish(&pool);
        let done = status(&pool);
        assert_eq!((done.function, done.errors), (ScanFunction::Resilver, 0), "{shape:?}");
        let most = FILE_BYTES as u64 * 3 / 4;
        assert!(done.processed_bytes > 256 << 10 && done.processed_bytes < most, "{shape:?}: {done:?}");
        assert_eq!(pool.tree().health(pool.tree().root().id()), vdev::Health::HEALTHY);
        let scrubbed = scrub(&pool);
        assert_eq!((scrubbed.processed_bytes, scrubbed.errors, sums(&pool).0), (0, 0, 0), "{shape:?}");
        pool.close(PoolState::Exported).unwrap();
        drop(pool);
        judge(dir.path());
        // it has everything: another one can go
        spoil(&dir.path().join("disk0"), FRONT, (DEVICE_BYTES - FRONT - BACK) as usize);
        let pool = import_with(&Env::real(), dir.path(), leaves);
        assert!(!is_stale(&pool), "{shape:?}: that is on disk");
        assert!(read(&open(&pool)).unwrap() == expected(7), "{shape:?}");
    }
}

/// Exports, power cuts, and the leaf that goes away again in the middle.
#[test]
fn it_goes_on_whatever_happens() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Mirror, 2, "1", &[]);
    let disk = dir.path().join("disk1");
    let mut pool = import_with(&hasty(), dir.path(), 2);
    for round in 0..6u8 {
        take_off(&pool, &disk);
        change(&pool, round);
        bring_back(&pool, &disk);
        pool.sync().unwrap();
        if round % 3 == 0 {
            pool.close(PoolState::Exported).unwrap();
        }
        if round % 3 < 2 {
            drop(pool);
            pool = import_with(&hasty(), dir.path(), 2);
        }
    }
    finish(&pool);
    assert_eq!(scrub(&pool).processed_bytes, 0);
    pool.close(PoolState::Exported).unwrap();
    drop(pool);
    judge(dir.path());
    spoil(&dir.path().join("disk0"), FRONT, (DEVICE_BYTES - FRONT - BACK) as usize);
    let pool = import_with(&Env::real(), dir.path(), 2);
    assert!(read(&open(&pool)).unwrap() == expected(5));
}

/// What nobody has cannot be given to anybody: the leaf goes on lacking it, and the resilver ends all the same.
#[test]
fn what_is_lost_is_lacked() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Mirror, 2, "1", &[]);
    let disk = dir.path().join("disk1");
    let pool = import_with(&Env::real(), dir.path(), 2);
    take_off(&pool, &disk);
    change(&pool, 3);
    let bp = file_of(&open(&pool)).object().data_pointer(0).unwrap();
    spoil(&dir.path().join("disk0"), FRONT + bp.dvas()[0].offset(), 4096);
    bring_back(&pool, &disk);
    for _ in 0..20 {
        pool.sync().unwrap();
    }
    let done = status(&pool);
    assert_eq!((done.function, done.progress, done.errors), (ScanFunction::Resilver, Progress::Finished, 1));
    assert!(is_stale(&pool));
    assert_eq!(pool.view().error_count().unwrap(), 1);
}

/// No data is lost where a leaf cannot be written to: it goes on lacking that, also over an import in the middle.
#[test]
fn what_a_leaf_does_not_take_is_lacked() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Mirror, 2, "1", &[]);
    let paths = [dir.path().join("disk0"), dir.path().join("disk1")];
    let file = |path: &Path| FileDevice::open(path.to_str().unwrap(), OpenMode::ReadWrite).unwrap();
    for seed in 3..8 {
        let faulty = Arc::new(FaultyDevice::new(Arc::new(file(&paths[1])), 1));
        let devices: [Arc<dyn Device>; 2] = [Arc::new(file(&paths[0])), faulty.clone()];
        let pool = LivePool::import(&hasty(), &candidate(&devices).unwrap(), &options(), (7, "here".into())).unwrap();
        let guid = leaf_at(&pool, &paths[1]);
        take_off(&pool, &paths[1]);
        change(&pool, seed);
        faulty.unwritable(FRONT..DEVICE_BYTES - BACK);
        let no_new = &|_: &str| Err(Error::new(Kind::NotFound, "there is no other"));
        let health = pool.online(guid, false, no_new).unwrap();
        assert_eq!(health.state, VdevState::Healthy);
        // the import comes in the middle, or after several were tried
        let (mut groups, mut is_unfilled, enough) = (0, false, if seed == 3 { 60 } else { 3 });
        while groups < enough || !is_unfilled {
            pool.sync().unwrap();
            groups += 1;
            is_unfilled |= pool.tree().leaf(guid).unwrap().state().dtl().has_unfilled();
            let errors = pool.scan_status().map_or(0, |(scan, _)| scan.errors) + pool.view().error_count().unwrap();
            assert!(errors == 0 && groups < 10_000, "{groups} groups: {:?}", status(&pool));
        }
        assert!(is_stale(&pool));
        faulty.heal();
        pool.close(PoolState::Exported).unwrap();
        drop(pool);
        let pool = import_with(&hasty(), dir.path(), 2);
        finish(&pool);
        let scrubbed = scrub(&pool);
        assert_eq!((scrubbed.processed_bytes, scrubbed.errors), (0, 0), "{seed}");
        pool.close(PoolState::Exported).unwrap();
    }
}

/// Over exports, a resilver goes on where it was; but anew if a leaf has missed more meanwhile.
#[test]
fn it_goes_on_after_an_import() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Mirror, 2, "1", &[]);
    let disk = dir.path().join("disk1");
    let mut pool = import_with(&hasty(), dir.path(), 2);
    take_off(&pool, &disk);
    change(&pool, 7);
    bring_back(&pool, &disk);
    let mut resumed = 0;
    for round in 0.. {
        // a step of a millisecond does nothing on a busy machine, and what a few of them found is forgotten
        for _ in 0..3 + round / 4 {
            pool.sync().unwrap();
        }
        if !is_stale(&pool) {
            break;
        }
        assert!(round < 2000, "it comes to an end: {:?}", status(&pool));
        pool.close(PoolState::Exported).unwrap();
        let before = pool.view().status().unwrap().scan.unwrap();
        drop(pool);
        pool = import_with(&hasty(), dir.path(), 2);
        // one that ended in the very last group may begin again, as what the leaf lacks was written before
        let has_ended = before.progress != Progress::Running;
        let after = status(&pool);
        assert!(has_ended || after.examined_bytes >= before.examined_bytes, "{round}: {before:?} {after:?}");
        resumed += u64::from(before.examined_bytes > 0);
    }
    assert!(resumed > 0, "{:?}", status(&pool));
    // while it is away the others change
    take_off(&pool, &disk);
    change(&pool, 9);
    bring_back(&pool, &disk);
    pool.close(PoolState::Exported).unwrap();
    drop(pool);
    let pool = import_with(&Env::real(), dir.path(), 2);
    finish(&pool);
    let scrubbed = scrub(&pool);
    assert_eq!((scrubbed.processed_bytes, scrubbed.errors, sums(&pool).0), (0, 0, 0));
    pool.close(PoolState::Exported).unwrap();
    drop(pool);
    judge(dir.path());
    spoil(&dir.path().join("disk0"), FRONT, (DEVICE_BYTES - FRONT - BACK) as usize);
    let pool = import_with(&Env::real(), dir.path(), 2);
    assert!(read(&open(&pool)).unwrap() == expected(9));
}

/// A block that leads to others cannot be read once, while a resilver looks for what a leaf lacks, but is right when it
/// is looked at again: what it leads to is not forgotten.
#[test]
fn what_cannot_be_read_for_a_moment_is_copied() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Mirror, 2, "1", &[]);
    let paths = [dir.path().join("disk0"), dir.path().join("disk1")];
    let pool = import_with(&Env::real(), dir.path(), 2);
    take_off(&pool, &paths[1]);
    change(&pool, 7);
    pool.close(PoolState::Exported).unwrap();
    drop(pool);
    let files = paths.clone().map(|path| std::fs::read(path).unwrap());
    let mut given = 0;
    for read in (0..).step_by(8) {
        paths.iter().zip(&files).for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
        let file = |path: &Path| FileDevice::open(path.to_str().unwrap(), OpenMode::ReadWrite).unwrap();
        let faulty = Arc::new(FaultyDevice::new(Arc::new(file(&paths[0])), 1));
        let devices: [Arc<dyn Device>; 2] = [faulty.clone(), Arc::new(file(&paths[1]))];
        let pool =
            LivePool::import(&Env::real(), &candidate(&devices).unwrap(), &options(), (7, "here".into())).unwrap();
        let first = faulty.reads();
        (read..read + 8).for_each(|read| faulty.fail_read(first + read));
        bring_back(&pool, &paths[1]);
        for _ in 0..20 {
            pool.sync().unwrap();
        }
        faulty.heal();
        let (is_over, lacks) = (faulty.reads() <= first + read, is_stale(&pool));
        let scrubbed = scrub(&pool);
        assert!(lacks || scrubbed.processed_bytes == 0, "read {read}: {scrubbed:?}");
        given += u64::from(!is_over && !lacks);
        pool.close(PoolState::Exported).unwrap();
        if is_over {
            break;
        }
    }
    // how many, depends on which of several threads reads first
    assert!(given > 0, "{given}");
}

/// What is received while a resilver runs goes to the head that it is for, wherever the resilver is then.
#[test]
fn what_is_received_meanwhile_is_copied() {
    let mut ends = 0;
    // a step looks at some 50 blocks
    let ticks = AtomicU64::new(0);
    let env =
        Env::real().with_ticks(move || ticks.fetch_add(20_000, Ordering::Relaxed)).with_tunables(|name| match name {
            "zfs_resilver_min_time_ms" | "zfs_txg_timeout" => Some(0),
            _ => None,
        });
    for groups in 0.. {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path(), NewVdevShape::Mirror, 2, "1", &[]);
        let disk = dir.path().join("disk1");
        let pool = import_with(&env, dir.path(), 2);
        let take = |name: &str| assert!(pool.snapshot(&[name.to_owned()], &[]).unwrap().is_empty());
        take("live@1");
        change(&pool, 7);
        let zpl = open(&pool);
        for number in 0..500 {
            let new = New { kind: NewKind::File, mode: 0o644, umask: 0, uid: 0, gid: 0 };
            let ino = zpl.create(zpl.root(), format!("{number}").as_bytes(), &new).unwrap().ino;
            zpl.open_file(ino).unwrap().write(0, &[number as u8; 600]).unwrap();
        }
        take("live@2");
        let whole = send(&pool, "live@1", None, SendFlags::default()).unwrap();
        receive(&pool, "live/b@1", &whole, ReceiveFlags::default()).unwrap();
        take_off(&pool, &disk);
        let rest = send(&pool, "live@2", Some("live@1"), SendFlags::default()).unwrap();
        let (receiving, came) = begin(&pool, "live/b@2", &rest, ReceiveFlags::default()).unwrap();
        came.unwrap();
        pool.sync().unwrap();
        bring_back(&pool, &disk);
        (0..groups).for_each(|_| pool.sync().unwrap());
        let is_over = !is_stale(&pool);
        receiving.finish().unwrap();
        finish(&pool);
        let scrubbed = scrub(&pool);
        assert_eq!((scrubbed.processed_bytes, scrubbed.errors), (0, 0), "after {groups} groups");

        if is_over {
            break;
        }
        ends += 1;
    }
    assert!(ends > 2, "{ends}");
}
