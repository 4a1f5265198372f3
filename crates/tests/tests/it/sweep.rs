//! All that is free on leaves is written to, or discarded, and nothing else.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use base::{Env, Kind};
use device::meter::{Meter, Purpose};
use dmu::zap::Zap;
use format::ids::{Guid, ObjectId};
use pool::{LivePool, NewVdevShape, OfflineReason, PoolState, SweepAction, SweepKind};
use vdev::draid::DraidShape;
use zpl::{New, NewKind, Zpl};

use crate::heal::{self, DEVICE_BYTES, FILE_BYTES, import_with, make, open, read, sums};
use crate::live::judge;
use crate::scrub::{hasty, scrub};

const START: SweepAction = SweepAction::Start { rate: 0, secure: false };
const STATES: [&str; 2] = ["com.delphix:vdev_initialize_state", "org.zfsonlinux:vdev_trim_state"];
const ACTIVE: u64 = 1;
const SUSPENDED: u64 = 3;
const COMPLETE: u64 = 4;

fn guids(pool: &LivePool) -> Vec<Guid> {
    pool.tree().leaves().map(|leaf| leaf.guid()).collect()
}

/// A number in the tables of all leaves, as it is on disk.
fn numbers(pool: &LivePool, name: &str) -> Vec<Option<u64>> {
    let table = |zap: ObjectId| Zap::open(pool.view().mos().object(zap).unwrap()).unwrap();
    pool.tree().leaves().map(|leaf| table(leaf.vdev().leaf_spec().unwrap().zap).u64(name).unwrap()).collect()
}

fn finish(pool: &LivePool, state: &str) -> usize {
    for round in 0..1000 {
        if numbers(pool, state).iter().all(|number| *number == Some(COMPLETE)) {
            return round;
        }
        pool.sync().unwrap();
    }
    panic!("it does not come to its end: {:?}", numbers(pool, state));
}

/// Words of a disk that have the pattern.
fn filled(disk: &Path) -> u64 {
    let pattern = 0xdead_beef_dead_beeeu64.to_le_bytes();
    let bytes = std::fs::read(disk).unwrap();
    bytes.chunks_exact(8).filter(|word| **word == pattern).count() as u64 * 8
}

fn allocated(disk: &Path) -> u64 {
    std::fs::metadata(disk).unwrap().blocks() * 512
}

#[test]
fn leaves_are_initialized_and_trimmed() {
    let draid = NewVdevShape::Draid(DraidShape::new(4, 2, 1, 0));
    let shapes = [(NewVdevShape::Single, 1), (NewVdevShape::Mirror, 2), (NewVdevShape::Raidz(1), 3), (draid, 4)];
    for (shape, leaves) in shapes {
        // a draid keeps rows back
        let tenths = if shape == draid { 7 } else { 9 };
        let dir = tempfile::tempdir().unwrap();
        let disk = |number: usize| dir.path().join(format!("disk{number}"));
        make(dir.path(), shape, leaves, "1", if shape == draid { &["org.openzfs:draid"] } else { &[] });
        let pool = import_with(&hasty(), dir.path(), leaves);
        let all = guids(&pool);
        let refused = |kind, action, leaves: &[Guid]| {
            let refused = pool.sweep(kind, action, leaves.to_vec()).unwrap();
            refused.into_iter().map(|(_, error)| error.what().to_owned()).collect::<Vec<_>>()
        };
        let none = "there is no active initialization";
        assert_eq!(refused(SweepKind::Initialize, SweepAction::Suspend, &all[..1]), [none]);
        assert_eq!(refused(SweepKind::Trim, SweepAction::Cancel, &all[..1]), ["there is no active trim"]);
        assert_eq!(refused(SweepKind::Initialize, START, &[Guid::new(7)]), ["no such device in pool"]);
        let secure = SweepAction::Start { rate: 0, secure: true };
        let what = "trim operations are not supported by this device";
        assert_eq!(refused(SweepKind::Trim, secure, &all[..1]), [what]);
        assert!(refused(SweepKind::Initialize, START, &all).is_empty());
        // it begins when all is free that was freed before
        (0..4).for_each(|_| pool.sync().unwrap());
        assert_eq!(refused(SweepKind::Initialize, START, &all[..1]), ["currently initializing"]);
        assert_eq!(numbers(&pool, STATES[0]), vec![Some(ACTIVE); leaves]);
        assert!(refused(SweepKind::Initialize, SweepAction::Suspend, &all[..1]).is_empty());
        let at = numbers(&pool, "com.delphix:next_offset_to_initialize");
        assert!(at.iter().all(|at| (4 << 20..DEVICE_BYTES).contains(&at.unwrap())), "{at:?}");
        // what goes on does so after an export, and what was suspended does when it is begun again
        pool.close(PoolState::Exported).unwrap();
        drop(pool);
        let pool = import_with(&hasty(), dir.path(), leaves);
        (0..3).for_each(|_| pool.sync().unwrap());
        let later = numbers(&pool, "com.delphix:next_offset_to_initialize");
        assert_eq!((numbers(&pool, STATES[0])[0], later[0]), (Some(SUSPENDED), at[0]));
        // on a draid it is told row by row
        let goes_on = |(before, now): (&_, &_)| if shape == draid { now >= before } else { now > before };
        assert!(at[1..].iter().zip(&later[1..]).all(goes_on), "{at:?}, {later:?}");
        assert!(pool.sweep(SweepKind::Initialize, START, all[..1].to_vec()).unwrap().is_empty());
        finish(&pool, STATES[0]);
        for number in 0..leaves {
            let filled = filled(&disk(number));
            assert!(filled > DEVICE_BYTES / 10 * tenths, "{shape:?}: {filled} bytes of {number}");
        }
        assert!(read(&open(&pool)).unwrap() == heal::contents());
        scrub(&pool);
        assert_eq!(sums(&pool), (0, 0), "{shape:?}: what is in use is as it was");
        assert!(pool.sweep(SweepKind::Initialize, SweepAction::Forget, all.clone()).unwrap().is_empty());
        assert_eq!(numbers(&pool, STATES[0]), vec![None; leaves]);

        assert!(pool.sweep(SweepKind::Trim, START, all.clone()).unwrap().is_empty());
        finish(&pool, STATES[1]);
        for number in 0..leaves {
            assert!(allocated(&disk(number)) < DEVICE_BYTES / 4, "{} bytes are left", allocated(&disk(number)));
        }
        scrub(&pool);
        assert_eq!(sums(&pool), (0, 0), "{shape:?}: what is in use is as it was");
        assert!(read(&open(&pool)).unwrap() == heal::contents());
        pool.close(PoolState::Exported).unwrap();
        drop(pool);
        judge(dir.path());
    }
}

/// `zfs_trim_metaslab_skip`: what has never been used needs no trim.
#[test]
fn a_partial_trim_leaves_out_what_was_never_used() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Single, 1, "1", &[]);
    let disk = dir.path().join("disk0");
    let partial = |name: &str| (name == "zfs_trim_metaslab_skip").then_some(1);
    let pool = import_with(&hasty().with_tunables(partial), dir.path(), 1);
    pool.sweep(SweepKind::Initialize, START, guids(&pool)).unwrap();
    finish(&pool, STATES[0]);
    let before = allocated(&disk);
    assert!(pool.sweep(SweepKind::Trim, START, guids(&pool)).unwrap().is_empty());
    finish(&pool, STATES[1]);
    assert_eq!(numbers(&pool, "org.zfsonlinux:vdev_trim_partial"), [Some(1)]);
    let half = allocated(&disk);
    pool.close(PoolState::Exported).unwrap();
    drop(pool);
    let pool = import_with(&hasty(), dir.path(), 1);
    pool.sweep(SweepKind::Trim, START, guids(&pool)).unwrap();
    finish(&pool, STATES[1]);
    assert_eq!(numbers(&pool, "org.zfsonlinux:vdev_trim_partial"), [Some(0)]);
    let after = allocated(&disk);
    // some metaslabs have been used, and some not
    let metaslab = before / 16;
    assert!(before > half + metaslab && half > after + metaslab, "{before} {half} {after}");
    pool.close(PoolState::Exported).unwrap();
}

#[test]
fn a_slow_trim_takes_its_time() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Single, 1, "1", &[]);
    let pool = import_with(&hasty(), dir.path(), 1);
    let slow = SweepAction::Start { rate: 1 << 20, secure: false };
    assert!(pool.sweep(SweepKind::Trim, slow, guids(&pool)).unwrap().is_empty());
    (0..20).for_each(|_| pool.sync().unwrap());
    assert_eq!(numbers(&pool, "org.zfsonlinux:vdev_trim_rate"), [Some(1 << 20)]);
    assert_eq!(numbers(&pool, STATES[1]), [Some(ACTIVE)], "256 MiB at 1 MiB a second");
    assert!(pool.sweep(SweepKind::Trim, SweepAction::Cancel, guids(&pool)).unwrap().is_empty());
    assert_eq!(pool.sweep(SweepKind::Trim, SweepAction::Cancel, guids(&pool)).unwrap()[0].1.kind(), Kind::NotFound);
}

/// Writes a large file and removes it; what was allocated on a disk before it went.
fn with_large_file_gone(pool: &LivePool, zpl: &Zpl, disk: &Path) -> u64 {
    let file = New { kind: NewKind::File, mode: 0o644, umask: 0, uid: 0, gid: 0 };
    let ino = zpl.create(zpl.root(), b"large", &file).unwrap().ino;
    zpl.open_file(ino).unwrap().write(0, &heal::contents().repeat(8)).unwrap();
    pool.sync().unwrap();
    let before = allocated(disk);
    let gone = zpl.unlink(zpl.root(), b"large").unwrap().unwrap();
    zpl.reclaim(gone).unwrap();
    before
}

#[test]
fn what_becomes_free_is_trimmed_by_itself() {
    for is_on in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path(), NewVdevShape::Mirror, 2, "1", &[]);
        let pool = import_with(&Env::real(), dir.path(), 2);
        if is_on {
            pool.set_pool_properties(vec![("autotrim".into(), pool_number(1))]).unwrap();
        }
        let zpl = open(&pool);
        let before = with_large_file_gone(&pool, &zpl, &dir.path().join("disk1"));
        for round in 0..100u8 {
            heal::file_of(&zpl).write(0, &[round]).unwrap();
            pool.sync().unwrap();
        }
        let after = allocated(&dir.path().join("disk1"));
        assert_eq!(after + 7 * (FILE_BYTES as u64) < before, is_on, "{before} before, {after} after");
        pool.close(PoolState::Exported).unwrap();
        drop((zpl, pool));
        judge(dir.path());
    }
}

/// Groups are made for it, though nothing changes; but not for ever.
#[test]
fn what_has_become_free_is_trimmed_while_the_pool_is_idle() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Single, 1, "1", &[]);
    let env = Env::real().with_tunables(|name| match name {
        "zfs_txg_timeout" => Some(1),
        "zfs_trim_txg_batch" => Some(2),
        _ => None,
    });
    let pool = import_with(&env, dir.path(), 1);
    pool.set_pool_properties(vec![("autotrim".into(), pool_number(1))]).unwrap();
    let zpl = open(&pool);
    let before = with_large_file_gone(&pool, &zpl, &dir.path().join("disk0"));
    pool.start();
    pool.sync().unwrap();
    let began = std::time::Instant::now();
    while allocated(&dir.path().join("disk0")) + 7 * (FILE_BYTES as u64) > before {
        assert!(began.elapsed().as_secs() < 60, "{} of {before}", allocated(&dir.path().join("disk0")));
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let mut last = pool.txgs().synced_txg();
    loop {
        assert!(began.elapsed().as_secs() < 120, "groups go on being made");
        std::thread::sleep(std::time::Duration::from_secs(3));
        match pool.txgs().synced_txg() {
            txg if txg == last => break,
            txg => last = txg,
        }
    }
    pool.close(PoolState::Exported).unwrap();
}

fn pool_number(number: u64) -> dsl::PropertyValue {
    dsl::PropertyValue::Number(number)
}

/// What scrubs read, and what devices are told to be free, is counted apart.
#[test]
fn scrubs_and_trims_are_counted_apart() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Mirror, 2, "1", &[]);
    let pool = import_with(&Env::real(), dir.path(), 2);
    let counts = || -> Vec<[u64; 2]> {
        let requests =
            |meter: &Meter, purpose| [meter.sizes(purpose), meter.joined_sizes(purpose)].concat().iter().sum::<u64>();
        let of = |purpose| pool.tree().leaves().map(move |leaf| requests(&leaf.stats().meter, purpose));
        of(Purpose::Scrub).zip(of(Purpose::Trim)).map(|(scrubbed, trimmed)| [scrubbed, trimmed]).collect()
    };
    assert_eq!(counts(), [[0, 0], [0, 0]]);
    scrub(&pool);
    let scrubbed = counts();
    assert!(scrubbed.iter().all(|[scrubbed, trimmed]| *scrubbed > 0 && *trimmed == 0), "{scrubbed:?}");
    assert!(pool.sweep(SweepKind::Trim, START, guids(&pool)[..1].to_vec()).unwrap().is_empty());
    for _ in 0..100 {
        pool.sync().unwrap();
    }
    let trimmed = counts();
    assert!(trimmed[0][1] > 0 && trimmed[1][1] == 0, "{trimmed:?}");
    pool.close(PoolState::Exported).unwrap();
}

/// A device that is given up is not gone on with when it is back.
#[test]
fn what_is_faulted_is_swept_no_more() {
    const CANCELED: u64 = 2;
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Mirror, 2, "1", &[]);
    // nothing is due but the first step
    let env = hasty().with_ticks(|| 0);
    let pool = import_with(&env, dir.path(), 2);
    let first = guids(&pool)[0];
    for kind in [SweepKind::Initialize, SweepKind::Trim] {
        assert!(pool.sweep(kind, SweepAction::Start { rate: 1, secure: false }, vec![first]).unwrap().is_empty());
        assert!(pool.sweep(kind, SweepAction::Suspend, vec![first]).unwrap().is_empty());
    }
    pool.take_off(first, OfflineReason::Faulted, false).unwrap();
    for state in STATES {
        assert_eq!(numbers(&pool, state)[0], Some(CANCELED), "{state}");
    }
    pool.close(PoolState::Exported).unwrap();
}
