//! Scrubs mend what can be mended, tell what cannot, and go on where they were.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::{Env, Kind};
use device::meter::{Meter, Purpose};
use device::{FileDevice, OpenMode};
use format::ids::Txg;
use format::nvlist::NvList;
use pool::{DamagedObject, LivePool, NewVdevShape, PoolState, Progress, ScanStatus, ScrubRange};
use vdev::VdevStats;

use crate::heal::{BACK, DEVICE_BYTES, FILE_BYTES, FRONT, contents, file_of, import_disks, import_with, make, open};
use crate::heal::{read, spoil, sums};
use crate::live::{is_newer_judge, judge};

pub(crate) fn status(pool: &LivePool) -> ScanStatus {
    pool.scan_status().expect("there was a scrub").0
}

/// Scrubs a pool to the end.
pub(crate) fn scrub(pool: &LivePool) -> ScanStatus {
    pool.scrub(ScrubRange::All).unwrap();
    end_scrub(pool)
}

fn end_scrub(pool: &LivePool) -> ScanStatus {
    for _ in 0..100_000 {
        if status(pool).progress != Progress::Running {
            break;
        }
        pool.sync().unwrap();
    }
    let status = status(pool);
    assert_eq!(status.progress, Progress::Finished);
    assert_eq!(pool.view().status().unwrap().scan, Some(status.clone()), "what is on disk");
    status
}

/// An environment in which each group scrubs very little, and says on disk how far it is.
pub(crate) fn hasty() -> Env {
    Env::real().with_tunables(|name| match name {
        "zfs_scrub_min_time_ms" | "zfs_txg_timeout" | "zfs_scan_checkpoint_intval" => Some(0),
        // block by block
        "zfs_vdev_aggregation_limit" => Some(0),
        "zfs_vdev_scrub_max_active" => Some(1),
        _ => None,
    })
}

#[test]
fn rot_is_mended_on_all_sides() {
    for (shape, leaves) in [(NewVdevShape::Mirror, 3), (NewVdevShape::Raidz(1), 3), (NewVdevShape::Raidz(2), 5)] {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path(), shape, leaves, "1", &[]);
        spoil(&dir.path().join("disk1"), FRONT, (DEVICE_BYTES - FRONT - BACK) as usize);
        let pool = import_disks(dir.path(), leaves);
        let first = scrub(&pool);
        let (errors, healed) = sums(&pool);
        assert_eq!(first.errors, 0, "{shape:?}");
        assert!(errors > 5 && healed > FILE_BYTES as u64 / 8, "{shape:?}: {errors} errors, {healed} bytes mended");
        assert!(first.processed_bytes > FILE_BYTES as u64 / 8 && first.processed_bytes <= healed);
        assert!(first.examined_bytes > FILE_BYTES as u64);
        let second = scrub(&pool);
        assert_eq!((second.processed_bytes, second.errors), (0, 0), "{shape:?}: nothing is left to be mended");
        assert_eq!(pool.view().error_count().unwrap(), 0);
        assert!(pool.view().last_scrubbed_txg().unwrap() > Txg::ZERO);
        pool.close(PoolState::Exported).unwrap();
        drop(pool);
        judge(dir.path());
        // what was mended is right: another one can go
        spoil(&dir.path().join("disk0"), FRONT, (DEVICE_BYTES - FRONT - BACK) as usize);
        let pool = import_disks(dir.path(), leaves);
        assert!(read(&open(&pool)).unwrap() == contents());
    }
}

/// Blocks that lie next to each other are read together, and verified each by itself.
#[test]
fn neighbours_are_read_as_one() {
    for (shape, leaves) in [(NewVdevShape::Single, 1), (NewVdevShape::Mirror, 2), (NewVdevShape::Raidz(1), 3)] {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path(), shape, leaves, "1", &[]);
        let requests = |limit: Option<u64>| {
            let env = Env::real().with_tunables(move |name| match name {
                "zfs_vdev_aggregation_limit" => limit,
                _ => None,
            });
            let pool = import_with(&env, dir.path(), leaves);
            assert_eq!(scrub(&pool).errors, 0);
            let [alone, together] = [Meter::sizes, Meter::joined_sizes].map(|sizes| {
                let of_leaf = |stats: &VdevStats| sizes(&stats.meter, Purpose::Scrub).iter().sum::<u64>();
                pool.tree().leaves().map(|leaf| of_leaf(leaf.stats())).max().unwrap()
            });
            pool.close(PoolState::Exported).unwrap();
            (alone, together)
        };
        let (blocks, (alone, together)) = (FILE_BYTES as u64 >> 17, requests(Some(0)));
        assert!(alone > blocks && together == 0, "{shape:?}: {alone} requests for {blocks} blocks, {together} joined");
        let (alone, together) = requests(None);
        assert!(together > 0 && alone + together < blocks, "{shape:?}: {alone} requests, {together} joined");
        if leaves == 1 {
            continue;
        }
        let pool = import_disks(dir.path(), leaves);
        let file = file_of(&open(&pool));
        let bp = file.object().data_pointer(11).unwrap();
        let place = FRONT + bp.dvas()[0].offset() / if leaves == 3 { 3 } else { 1 } / 4096 * 4096;
        spoil(&dir.path().join("disk1"), place, 512);
        let status = scrub(&pool);
        let (errors, healed) = sums(&pool);
        assert_eq!((errors, status.errors), (1, 0), "{shape:?}");
        assert!(healed == status.processed_bytes && healed > 0 && healed <= 128 << 10, "{shape:?}: {healed} bytes");
        assert_eq!(scrub(&pool).processed_bytes, 0, "{shape:?}");
        assert!(read(&open(&pool)).unwrap() == contents());
        pool.close(PoolState::Exported).unwrap();
        drop((file, pool));
        judge(dir.path());
    }
}

/// A disk of which three labels have rotted is found still, and has all four after a scrub.
#[test]
fn labels_are_mended() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Mirror, 2, "1", &[]);
    let disk = dir.path().join("disk1");
    let label_bytes = vdev::label::LABEL_BYTES;
    [0, label_bytes, DEVICE_BYTES - label_bytes].into_iter().for_each(|at| spoil(&disk, at, label_bytes as usize));
    let good_labels = || {
        let device = FileDevice::open(disk.to_str().unwrap(), OpenMode::ReadOnly).unwrap();
        let labels = vdev::label::read_labels(&device).labels;
        labels.iter().filter(|label| label.as_ref().is_ok_and(|label| label.config().is_ok())).count()
    };
    assert_eq!(good_labels(), 1);
    let pool = import_disks(dir.path(), 2);
    // the import may write all of them
    spoil(&disk, 0, label_bytes as usize);
    scrub(&pool);
    pool.sync().unwrap();
    assert_eq!(good_labels(), 4);
    pool.close(PoolState::Exported).unwrap();
    drop(pool);
    judge(dir.path());
}

#[test]
fn what_cannot_be_mended_is_listed_until_it_is_gone() {
    for features in [&[][..], &["com.delphix:head_errlog"]] {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path(), NewVdevShape::Mirror, 2, "1", features);
        let pool = import_disks(dir.path(), 2);
        let file = file_of(&open(&pool));
        let (bp, ino) = (file.object().data_pointer(3).unwrap(), file.object().id());
        for disk in ["disk0", "disk1"] {
            spoil(&dir.path().join(disk), FRONT + bp.dvas()[0].offset(), 4096);
        }
        let dataset = pool.view().dsl().find("live").unwrap().id;
        let expect = [DamagedObject { dataset, object: ino }];
        for _ in 0..2 {
            assert_eq!(scrub(&pool).errors, 1, "{features:?}");
            assert_eq!(pool.view().error_count().unwrap(), 1, "{features:?}");
            assert_eq!(pool.view().damaged_objects().unwrap(), expect, "{features:?}");
        }
        pool.close(PoolState::Exported).unwrap();
        drop((file, pool));
        judge_leaks_of(features, dir.path());
        let pool = import_disks(dir.path(), 2);
        assert_eq!(pool.view().damaged_objects().unwrap(), expect, "{features:?}: still after an import");
        if features.is_empty() {
            pool.snapshot(&["live@with".to_owned()], &[]).unwrap();
            pool.enable_features(vec!["com.delphix:head_errlog".into()]).unwrap();
            pool.clone_snapshot("live@with", "live/clone", &[]).unwrap();
            let more = ["live@with", "live/clone"].map(|name| pool.view().dsl().find(name).unwrap().id);
            let [with, clone] = more.map(|dataset| DamagedObject { dataset, object: ino });
            let mut all = [expect[0], with, clone];
            all.sort();
            assert_eq!(pool.view().damaged_objects().unwrap(), all, "the log tells of all that have the block");
            assert_eq!(scrub(&pool).errors, 1);
            assert_eq!(pool.view().damaged_objects().unwrap(), all);
            pool.promote("live/clone").unwrap();
            assert_eq!(pool.view().damaged_objects().unwrap(), all, "the head is a clone now");
            file_of(&open(&pool)).write(3 * (128 << 10), &contents()[..128 << 10]).unwrap();
            pool.sync().unwrap();
            let rest = Vec::from_iter(all.into_iter().filter(|damaged| *damaged != expect[0]));
            assert_eq!(pool.view().damaged_objects().unwrap(), rest);
            pool.promote("live").unwrap();
            pool.destroy_dataset("live/clone").unwrap();
            pool.destroy_snapshots(&["live@with".to_owned()], false).unwrap();
            pool.sync().unwrap();
            assert_eq!(pool.view().error_count().unwrap(), 0, "nobody has it any more");
        }
        file_of(&open(&pool)).write(0, &contents()).unwrap();
        assert_eq!(scrub(&pool).errors, 0);
        assert_eq!(pool.view().error_count().unwrap(), 0, "{features:?}: a scrub forgets what is no more");
        pool.close(PoolState::Exported).unwrap();
        drop(pool);
        if is_newer_judge() {
            judge(dir.path());
        }
    }
}

/// As [`judge_leaks`], by a judge that knows the features.
fn judge_leaks_of(features: &[&str], dir: &Path) {
    if features.is_empty() || is_newer_judge() {
        judge_leaks(dir);
    }
}

/// With damage that is known, only space is judged.
fn judge_leaks(dir: &Path) {
    let Ok(output) = Command::new("zdb").args(["-e", "-p"]).arg(dir).args(["-b", "live"]).output() else { return };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("No leaks"), "zdb: {text}");
}

/// Only what is in the log is read, and leaves it when it is right, or is no more.
#[test]
fn the_error_log_is_scrubbed() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Single, 1, "1", &[]);
    assert_eq!(import_disks(dir.path(), 1).scrub_errors().unwrap_err().kind(), Kind::Unsupported);
    let features = &["com.delphix:head_errlog"];
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Mirror, 2, "1", features);
    let pool = import_disks(dir.path(), 2);
    pool.scrub_errors().unwrap();
    assert_eq!(error_scrub(&pool), None, "there are no errors");
    let file = file_of(&open(&pool));
    let at = |blkid: u64| FRONT + file.object().data_pointer(blkid).unwrap().dvas()[0].offset();
    let places = [at(3), at(5), at(7)];
    let (one, other) = (dir.path().join("disk0"), dir.path().join("disk1"));
    let before = std::fs::read(&one).unwrap();
    for (disk, place) in [&one, &other].into_iter().flat_map(|disk| places.map(|place| (disk, place))) {
        spoil(disk, place, 4096);
    }
    assert_eq!(scrub(&pool).errors, 3);
    assert_eq!(errors_left(&pool), (3, 3), "nothing has changed");
    // one is right again on one disk, one is written anew
    let bytes = &before[places[0] as usize..][..4096];
    let device = std::fs::OpenOptions::new().write(true).open(&one).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&device, bytes, places[0]).unwrap();
    file.write(5 * (128 << 10), &contents()[5 * (128 << 10)..][..128 << 10]).unwrap();
    pool.sync().unwrap();
    assert_eq!(errors_left(&pool), (1, 1));
    assert_eq!(&std::fs::read(&other).unwrap()[places[0] as usize..][..4096], bytes, "the other disk has it");
    pool.close(PoolState::Exported).unwrap();
    drop((file, pool));
    judge_leaks_of(features, dir.path());
    // paused, it stays so
    let held = Env::real().with_tunables(|name| (name == "zfs_scrub_error_blocks_per_txg").then_some(0));
    let pool = import_with(&held, dir.path(), 2);
    pool.scrub_errors().unwrap();
    assert!(pool.scrub_errors().is_err() && pool.scrub(ScrubRange::All).is_err(), "it is under way");
    pool.pause_error_scrub().unwrap();
    assert!(pool.pause_error_scrub().is_err() && pool.scrub(ScrubRange::All).is_err(), "it is paused");
    pool.close(PoolState::Exported).unwrap();
    drop(pool);
    let pool = import_disks(dir.path(), 2);
    let paused = error_scrub(&pool).unwrap();
    assert!(paused.is_paused && (paused.progress, paused.examined_blocks) == (Progress::Running, 0));
    assert_eq!(errors_left(&pool), (1, 1), "it goes on");
    assert!(pool.cancel_error_scrub().is_err(), "it is over");
    assert_eq!(scrub(&pool).errors, 1);
    assert_eq!(error_scrub(&pool), None, "a scrub of all makes it forgotten");
    pool.close(PoolState::Exported).unwrap();
    drop(pool);
    judge_leaks_of(features, dir.path());
}

fn error_scrub(pool: &LivePool) -> Option<pool::ErrorScrub> {
    pool.view().status().unwrap().error_scrub
}

/// Scrubs the error log; blocks that are in it then, and blocks of which no copy was right.
fn errors_left(pool: &LivePool) -> (u64, u64) {
    let before = pool.view().error_count().unwrap();
    pool.scrub_errors().unwrap();
    for _ in 0..1000 {
        if !pool.is_scrubbing_errors() {
            break;
        }
        pool.sync().unwrap();
    }
    let now = error_scrub(pool).unwrap();
    // entries of blocks that are no more are examined, but not counted
    assert!(now.examined_blocks >= before, "{now:?}");
    assert_eq!((now.progress, now.to_examine_blocks), (Progress::Finished, 0));
    let left = pool.view().error_count().unwrap();
    pool.sync().unwrap();
    (left, pool.view().error_count().unwrap())
}

fn places(pool: &LivePool) -> (u64, u64) {
    let status = status(pool);
    (status.examined_bytes, status.to_examine_bytes)
}

/// Each block that was wrong is told, but not too many a second.
#[test]
fn wrong_bytes_are_events() {
    const FIRST: u64 = 20;
    for (per_second, expect) in [(1000, FIRST), (3, 3)] {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path(), NewVdevShape::Mirror, 2, "1", &[]);
        let limit = move |name: &str| (name == "zfs_checksum_events_per_second").then_some(per_second);
        let pool = import_with(&Env::real().with_tunables(limit).with_time(|| 2_000_000_000), dir.path(), 2);
        let file = file_of(&open(&pool));
        for blkid in 0..FIRST {
            let place = FRONT + file.object().data_pointer(blkid).unwrap().dvas()[0].offset();
            spoil(&dir.path().join("disk0"), place, 4096);
        }
        pool.diagnose();
        scrub(&pool);
        pool.diagnose();
        let wrong = pool.tree().leaves().next().unwrap().stats().errors()[2];
        let told = pool.events().since(0, Duration::ZERO).events;
        let is_told = |event: &&NvList| event.opt_str("class") == Some("ereport.fs.zfs.checksum");
        assert_eq!((wrong, told.iter().filter(is_told).count() as u64), (FIRST, expect));
        pool.close(PoolState::Exported).unwrap();
    }
}

/// What was born in a span of time is found by records of when groups were written, which outlast an export.
#[test]
fn what_was_born_in_a_span_of_time_is_scrubbed() {
    const HOUR_S: u64 = 3600;
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Mirror, 2, "1", &[]);
    let start_s = Env::real().now_s() + 100 * 24 * HOUR_S;
    let hour = Arc::new(AtomicU64::new(0));
    let clock = hour.clone();
    let env = Env::real().with_time(move || start_s + clock.load(Ordering::Relaxed) * HOUR_S);
    let pool = import_with(&env, dir.path(), 2);
    let file = file_of(&open(&pool));
    // block n is written in hour n
    for n in 1..=5 {
        hour.store(n, Ordering::Relaxed);
        file.write(n * (128 << 10), &contents()[n as usize * (128 << 10)..][..128 << 10]).unwrap();
        pool.sync().unwrap();
    }
    for n in [0, 2, 5] {
        let place = FRONT + file.object().data_pointer(n).unwrap().dvas()[0].offset();
        [0, 1].iter().for_each(|disk| spoil(&dir.path().join(format!("disk{disk}")), place, 4096));
    }
    let errors = |pool: &Arc<LivePool>, from: Option<u64>, to: Option<u64>| {
        let second = |hour: u64| start_s + hour * HOUR_S;
        pool.scrub(ScrubRange::Born { from_s: from.map(second), to_s: to.map(second) }).unwrap();
        end_scrub(pool).errors
    };
    assert_eq!(errors(&pool, Some(1), Some(2)), 1);
    assert_eq!(errors(&pool, None, Some(1)), 1);
    pool.close(PoolState::Exported).unwrap();
    drop((file, pool));
    let pool = import_with(&env, dir.path(), 2);
    assert_eq!(errors(&pool, Some(2), None), 1);
    assert_eq!(errors(&pool, Some(1), None), 2);
    assert_eq!(errors(&pool, Some(2), Some(4)), 0);
    assert_eq!(scrub(&pool).errors, 3);
    pool.close(PoolState::Exported).unwrap();
    drop(pool);
    judge_leaks(dir.path());
}

#[test]
fn it_pauses_goes_on_and_is_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Mirror, 2, "1", &[]);
    let pool = import_with(&hasty(), dir.path(), 2);
    let kind = |outcome: base::Result<()>| outcome.unwrap_err().kind();
    assert_eq!(kind(pool.pause_scrub()), Kind::NotFound);
    assert_eq!(kind(pool.cancel_scrub()), Kind::NotFound);
    pool.scrub(ScrubRange::All).unwrap();
    assert_eq!(kind(pool.scrub(ScrubRange::All)), Kind::Busy);
    pool.pause_scrub().unwrap();
    assert_eq!(kind(pool.pause_scrub()), Kind::Busy);
    assert!(status(&pool).is_paused);
    let before = places(&pool);
    for _ in 0..20 {
        pool.record_history("something").unwrap();
    }
    assert_eq!(places(&pool), before, "nothing is done while it is paused");
    pool.close(PoolState::Exported).unwrap();
    drop(pool);
    let pool = import_with(&hasty(), dir.path(), 2);
    assert!(status(&pool).is_paused, "still after an import");
    pool.scrub(ScrubRange::All).unwrap();
    assert!(!status(&pool).is_paused);
    pool.sync().unwrap();
    pool.cancel_scrub().unwrap();
    assert_eq!(status(&pool).progress, Progress::Canceled);
    assert_eq!(pool.view().status().unwrap().scan.unwrap().progress, Progress::Canceled);
    scrub(&pool);
    pool.close(PoolState::Exported).unwrap();
    drop(pool);
    judge(dir.path());
}

/// Exports and power cuts in the middle: all is scrubbed in the end, and most of it once.
#[test]
fn it_goes_on_after_exports_and_power_cuts() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Mirror, 2, "1", &[]);
    spoil(&dir.path().join("disk1"), FRONT, (DEVICE_BYTES - FRONT - BACK) as usize);
    let mut pool = import_with(&hasty(), dir.path(), 2);
    pool.scrub(ScrubRange::All).unwrap();
    let (mut times, mut begun) = (0, status(&pool).start_s);
    for round in 0.. {
        for _ in 0..5 {
            pool.sync().unwrap();
        }
        let now = status(&pool);
        assert_eq!((now.start_s, now.errors), (begun, 0), "it is the same scrub");
        if now.progress == Progress::Finished {
            break;
        }
        begun = now.start_s;
        times += 1;
        assert!(times < 2000, "it comes to an end");
        if round % 2 == 0 {
            pool.close(PoolState::Exported).unwrap();
        }
        // otherwise what was not synced is lost
        drop(pool);
        pool = import_with(&hasty(), dir.path(), 2);
    }
    assert!(times > 1, "it was interrupted");
    assert_eq!(scrub(&pool).processed_bytes, 0, "all was mended");
    pool.close(PoolState::Exported).unwrap();
    drop(pool);
    judge(dir.path());
}

/// Blocks that are freed while they wait are forgotten, and what takes their place is not damaged.
#[test]
fn it_runs_beside_changes() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), NewVdevShape::Raidz(1), 3, "1", &[]);
    let pool: Arc<LivePool> = import_with(&hasty(), dir.path(), 3);
    let zpl = open(&pool);
    pool.scrub(ScrubRange::All).unwrap();
    let mut rounds = 0u8;
    while status(&pool).progress == Progress::Running {
        rounds = rounds.wrapping_add(1);
        let file = file_of(&zpl);
        file.write(u64::from(rounds % 23) * (128 << 10), &vec![rounds; 128 << 10]).unwrap();
        pool.sync().unwrap();
    }
    assert_eq!((status(&pool).errors, sums(&pool)), (0, (0, 0)));
    drop(zpl);
    pool.close(PoolState::Exported).unwrap();
    drop(pool);
    judge(dir.path());
}
