//! Vdevs that come, go and fail while the log is written: nothing that was promised is lost, and nobody waits for
//! a device that is there for the log alone.
//!
//! ```text
//!   data │ + log │ + its mirror │ - its first side │ - log │ + data        a cut at any time
//!        │ fails │ errors are counted │ faulted │ cleared, removed
//! ```

use device::FaultyDevice;
use format::ids::Guid;
use pool::{AttachAs, NewDevices, OfflineReason};
use vdev::VdevState;

use super::*;

fn leaf(device: &Arc<dyn Device>) -> NewLeaf {
    NewLeaf { path: device.path().into(), is_file: true }
}

pub(super) fn same(disks: &[Arc<SparseDevice>]) -> Vec<Arc<dyn Device>> {
    disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect()
}

/// The disks as they are now.
pub(super) fn copies(disks: &[Arc<SparseDevice>]) -> Vec<SparseDevice> {
    disks.iter().map(|disk| disk.copy()).collect()
}

fn by_path(devices: &[Arc<dyn Device>]) -> HashMap<PathBuf, Arc<dyn Device>> {
    devices.iter().map(|device| (device.path().into(), device.clone())).collect()
}

/// A top-level vdev of those devices: a mirror if there are two.
fn one_vdev(bias: Option<Bias>, devices: &[Arc<dyn Device>]) -> NewDevices {
    let shape = if devices.len() > 1 { NewVdevShape::Mirror } else { NewVdevShape::Single };
    let vdev = NewVdev { shape, bias, leaves: devices.iter().map(leaf).collect() };
    NewDevices { vdevs: vec![vdev], ashift: Some(12), ..NewDevices::default() }
}

impl Bed {
    pub(super) fn add(&self, bias: Option<Bias>, devices: &[Arc<dyn Device>]) {
        self.pool.add(&one_vdev(bias, devices), &by_path(devices)).unwrap();
    }

    /// Guid of the leaf on a device.
    fn leaf(&self, device: &Arc<dyn Device>) -> Guid {
        let tree = self.pool.tree();
        tree.iter().find(|vdev| vdev.is_leaf() && vdev.name() == device.path()).expect("it is in the pool").guid()
    }

    /// Guid of the vdev for logs.
    fn log_vdev(&self) -> Option<Guid> {
        self.pool.tree().tops().find(|top| top.is_log()).map(|top| top.guid())
    }

    fn state(&self, guid: Guid) -> VdevState {
        let tree = self.pool.tree();
        tree.health(tree.iter().find(|vdev| vdev.guid() == guid).unwrap().id()).state
    }

    fn stat(&self, name: &str) -> u64 {
        self.log.stats().all().iter().find(|(of, _)| *of == name).unwrap().1
    }

    /// Log blocks on a vdev for logs, and elsewhere.
    pub(super) fn blocks(&self) -> (u64, u64) {
        (self.stat("zil_itx_metaslab_slog_count"), self.stat("zil_itx_metaslab_normal_count"))
    }

    /// Writes of those numbers, each committed.
    pub(super) fn commit_all(&self, writes: std::ops::Range<u64>) {
        for n in writes {
            self.write(n).unwrap();
            self.log.commit(if n.is_multiple_of(2) { ObjectId::NONE } else { OBJECT }).unwrap();
        }
    }
}

/// A log device is added, mirrored, loses its first side and is removed; a data vdev comes; with cuts everywhere.
#[test]
fn vdevs_come_and_go_under_load() {
    let blank = || (0..4).map(|number| SparseDevice::new(format!("disk{number}"), 128 << 20)).collect();
    let recording = Recording::new(blank());
    let disks = recorded(&recording);
    let bed = Bed::create(&Env::fixed(1000), Layout::Single, &disks);
    let first = recording.len();
    let mut promised = Vec::new();
    let mut written = 0;
    let mut go_on = |bed: &Bed| {
        for n in written..written + 7 {
            bed.write(n).unwrap();
            bed.log.commit(ObjectId::NONE).unwrap();
            promised.push((recording.len(), n + 1));
        }
        written += 7;
    };
    go_on(&bed);
    bed.add(Some(Bias::Log), &disks[1..2]);
    go_on(&bed);
    assert!(bed.blocks().0 > 0, "a new log device is used as soon as a chain begins");
    bed.pool.attach(bed.leaf(&disks[1]), &leaf(&disks[2]), AttachAs::Side, None, disks[2].clone()).unwrap();
    go_on(&bed);
    let mirror = bed.log_vdev().unwrap();
    bed.pool.detach(bed.leaf(&disks[1])).unwrap();
    assert_eq!(bed.log_vdev(), Some(mirror), "the last side has the guid of the mirror");
    assert_eq!(bed.pool.detach(bed.leaf(&disks[2])).unwrap_err().kind(), base::Kind::Unsupported);
    go_on(&bed);
    assert_eq!(bed.pool.remove(bed.leaf(&disks[0])).unwrap_err().kind(), base::Kind::NoSpace);
    bed.pool.remove(mirror).unwrap();
    assert_eq!(bed.log_vdev(), None);
    let before = bed.blocks();
    go_on(&bed);
    assert_eq!(bed.blocks().0, before.0, "nothing goes to a device that was removed");
    bed.add(None, &disks[3..]);
    go_on(&bed);
    assert!(bed.pool.tree().tops().last().unwrap().stats().errors() == [0; 3]);
    bed.pool.sync().unwrap();
    let view = bed.pool.view();
    assert_eq!(view.config().opt_u64s("hole_array"), Some(&[1][..]));

    let mut rng = Rng::new(77);
    let mut flushes: Vec<usize> = recording.flushes().into_iter().filter(|at| *at > first).collect();
    flushes.retain(|_| rng.below(3) == 0);
    for at in flushes {
        let loss = *rng.pick(&Loss::ALL);
        let what = format!("cut at {at}, {loss:?}");
        let least = promised.iter().filter(|(event, _)| *event <= at).map(|(_, n)| *n).max().unwrap_or(0);
        let left = recording.cut(at, &mut rng, loss);
        check(&shared(left.iter().map(SparseDevice::copy).collect()));
        judge_cut(left, least, &mut rng, &what);
    }
    drop(bed);
    zdb_agrees(&recording.cut(recording.len(), &mut rng, Loss::Nothing));
}

/// zdb, if it is there, finds no leak on disks.
fn zdb_agrees(disks: &[SparseDevice]) {
    let dir = tempfile::tempdir().unwrap();
    disks.iter().enumerate().for_each(|(i, disk)| disk.save(&dir.path().join(format!("disk{i}"))).unwrap());
    let Ok(output) = Command::new("zdb").args(["-e", "-p"]).arg(dir.path()).args(["-bcc", "live"]).output() else {
        return;
    };
    let text = [output.stdout, output.stderr].map(|raw| String::from_utf8_lossy(&raw).into_owned()).concat();
    assert!(output.status.success() && text.contains("No leaks"), "{text}");
}

/// How a log device fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    Writes,
    Flushes,
    /// Every third write.
    SomeWrites,
    Gone,
}

impl Failure {
    fn begin(self, device: &FaultyDevice) {
        let (writes, flushes) = (device.writes(), device.flushes());
        match self {
            Failure::Writes => device.unwritable(0..u64::MAX),
            Failure::Flushes => (0..5000).for_each(|n| device.fail_flush(flushes + n)),
            Failure::SomeWrites => (0..5000).for_each(|n| device.fail_write(writes + 3 * n)),
            Failure::Gone => device.vanish(true),
        }
    }
}

/// A pool with one log device, or a mirror of two, of which the first fails under load.
fn fail_under_load(failure: Failure, is_mirror: bool) {
    let what = format!("{failure:?}, mirror: {is_mirror}");
    let disks: Vec<Arc<SparseDevice>> = blank().into_iter().map(Arc::new).collect();
    let faulty: Vec<Arc<FaultyDevice>> =
        disks.iter().map(|disk| Arc::new(FaultyDevice::new(disk.clone(), 3))).collect();
    let devices: Vec<Arc<dyn Device>> = faulty.iter().map(|device| device.clone() as Arc<dyn Device>).collect();
    let bed = Bed::create(&Env::real(), Layout::Single, &devices);
    bed.add(Some(Bias::Log), if is_mirror { &devices[1..] } else { &devices[1..2] });
    bed.pool.start();
    bed.commit_all(0..10);
    assert!(bed.blocks().0 > 0, "{what}");
    failure.begin(&faulty[1]);
    bed.commit_all(10..30);
    // many threads at once
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let bed = &bed;
            scope.spawn(move || {
                for n in (30 + thread..WRITES).step_by(4) {
                    bed.write(n).unwrap();
                    bed.log.commit(ObjectId::NONE).unwrap();
                }
            });
        }
    });
    assert_eq!(bed.pool.suspended(), None, "{what}");
    assert!(bed.pool.tree().leaf(bed.leaf(&devices[1])).unwrap().stats().errors()[1] > 0, "{what}");
    // the power fails, too: the devices as they are
    let left = shared(copies(&disks));
    check(&left);
    let after = Bed::import(&Env::fixed(2000), &left).unwrap();
    after.replay().unwrap();
    assert_eq!(after.writes(), WRITES, "{what}");
    // it can be removed as it is
    bed.pool.remove(bed.log_vdev().unwrap()).unwrap();
    bed.pool.sync().unwrap();
    assert_eq!(bed.log_vdev(), None);
    let left = shared(copies(&disks));
    check(&left);
    bed.pool.close(PoolState::Exported).unwrap();
    check(&shared(copies(&disks)));
}

#[test]
fn a_log_device_that_fails_stops_nobody() {
    for failure in [Failure::Writes, Failure::Flushes, Failure::SomeWrites, Failure::Gone] {
        fail_under_load(failure, false);
        fail_under_load(failure, true);
    }
}

/// Both fail, the pool and its log: commits wait until the pool is back, and need no log for that.
#[test]
fn a_suspended_pool_needs_its_log_no_more() {
    let disks: Vec<Arc<SparseDevice>> = blank().into_iter().map(Arc::new).collect();
    let faulty: Vec<Arc<FaultyDevice>> =
        disks.iter().map(|disk| Arc::new(FaultyDevice::new(disk.clone(), 3))).collect();
    let devices: Vec<Arc<dyn Device>> = faulty.iter().map(|device| device.clone() as Arc<dyn Device>).collect();
    let bed = Bed::create(&Env::real(), Layout::LogVdev, &devices);
    bed.pool.start();
    bed.commit_all(0..5);
    faulty[..2].iter().for_each(|device| device.vanish(true));
    let commit = |n: u64| -> Result<()> {
        bed.write(n)?;
        bed.log.commit(ObjectId::NONE).or_else(|error| match error.kind() {
            // as whoever serves a request does
            base::Kind::Suspended => bed.pool.wait_resumed().and_then(|()| bed.log.commit(ObjectId::NONE)),
            _ => Err(error),
        })
    };
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (5..20).try_for_each(commit));
        let began = std::time::Instant::now();
        while bed.pool.suspended().is_none() {
            assert!(began.elapsed().as_secs() < 60 && !writer.is_finished(), "the pool does not miss its device");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        faulty[0].vanish(false);
        bed.pool.clear(None, &|_| Err(base::Error::new(base::Kind::NotFound, "nothing else"))).unwrap();
        writer.join().unwrap().unwrap();
    });
    assert_eq!(bed.state(bed.log_vdev().unwrap()), VdevState::Unavail);
    let left = shared(copies(&disks));
    check(&left);
    let after = Bed::import(&Env::fixed(2000), &left).unwrap();
    after.replay().unwrap();
    assert_eq!(after.writes(), 20);
}

/// One side of a log mirror returns noise: the other one has what was promised.
#[test]
fn noise_on_one_side_of_a_log_mirror_loses_nothing() {
    let disks: Vec<Arc<SparseDevice>> = blank().into_iter().map(Arc::new).collect();
    let bed = Bed::create(&Env::fixed(1000), Layout::Single, &same(&disks));
    bed.add(Some(Bias::Log), &same(&disks)[1..]);
    bed.commit_all(0..20);
    assert!(bed.blocks().0 > 10);
    for side in [1, 2] {
        let mut left = shared(copies(&disks));
        let noisy = FaultyDevice::new(left[side].clone(), 9);
        // its labels are as they should be
        noisy.noise(4 << 20..127 << 20);
        left[side] = Arc::new(noisy);
        let after = Bed::import(&Env::fixed(2000), &left).unwrap();
        assert!(!after.replay().unwrap().is_empty());
        assert_eq!(after.writes(), 20, "side {side}");
    }
}

/// With its only log device broken for good, a pool does without it, until it is cleared.
#[test]
fn a_log_device_is_faulted_offlined_and_cleared() {
    let disks: Vec<Arc<SparseDevice>> = blank().into_iter().map(Arc::new).collect();
    let faulty = Arc::new(FaultyDevice::new(disks[1].clone(), 3));
    let mut devices = same(&disks);
    devices[1] = faulty.clone();
    let bed = Bed::create(&Env::fixed(1000), Layout::LogVdev, &devices);
    let log = bed.log_vdev().unwrap();
    bed.commit_all(0..5);
    let no_other = |_: &str| Err(base::Error::new(base::Kind::NotFound, "nothing else"));
    // taken off and brought back, a log device without any other
    bed.pool.take_off(log, OfflineReason::Offline, false).unwrap();
    assert_eq!(bed.state(log), VdevState::Offline);
    let before = bed.blocks();
    bed.commit_all(5..10);
    assert_eq!(bed.blocks().0, before.0, "it is not used");
    assert!(bed.blocks().1 > before.1, "the log is in the pool");
    assert_eq!(bed.pool.online(log, false, &no_other).unwrap().state, VdevState::Healthy);
    assert!(bed.pool.tree().leaf(log).unwrap().state().dtl().is_empty(), "it lacks nothing of a log that was nowhere");
    bed.log.retire();
    bed.commit_all(10..15);
    assert!(bed.blocks().0 > before.0);
    // every write fails: ten errors, and it is faulted, though there is no other
    Failure::Writes.begin(&faulty);
    for n in 15..45 {
        bed.commit_all(n..n + 1);
        bed.pool.sync().unwrap();
    }
    bed.pool.diagnose();
    assert_eq!(bed.state(log), VdevState::Faulted);
    let errors = bed.pool.tree().leaf(log).unwrap().stats().errors()[1];
    bed.commit_all(45..50);
    assert_eq!(bed.pool.tree().leaf(log).unwrap().stats().errors()[1], errors, "nobody writes to it any more");
    faulty.heal();
    bed.pool.clear(Some(log), &no_other).unwrap();
    bed.pool.sync().unwrap();
    assert_eq!(bed.state(log), VdevState::Healthy);
    let before = bed.blocks();
    bed.log.retire();
    bed.commit_all(50..55);
    assert!(bed.blocks().0 > before.0, "it is used again");
    check(&shared(copies(&disks)));
}

/// Without its log device a pool is imported only if what is there is given up; then it is like any other.
#[test]
fn a_log_that_is_gone_is_given_up() {
    let disks: Vec<Arc<SparseDevice>> = blank().into_iter().map(Arc::new).collect();
    let devices = same(&disks);
    let bed = Bed::create(&Env::fixed(1000), Layout::LogVdev, &devices);
    bed.commit_all(0..3);
    bed.pool.sync().unwrap();
    bed.commit_all(3..9);
    // as it is now, once claimed and once not
    for is_claimed in [false, true] {
        let left = shared(copies(&disks));
        if is_claimed {
            drop(Bed::import(&Env::fixed(1500), &left).unwrap());
        }
        let without = [left[0].clone(), left[2].clone()];
        let host = || (7, "here".to_owned());
        let import = |options| LivePool::import(&Env::fixed(2000), &candidate(&without).unwrap(), &options, host());
        if !is_claimed {
            assert_eq!(import(options()).map(drop).unwrap_err().kind(), base::Kind::Missing);
        }
        let again = Bed::over(import(pool::OpenOptions { without_log: true, ..options() }).unwrap());
        again.replay().unwrap();
        let found = again.writes();
        assert!((3..9).contains(&found), "{found} writes");
        let log = again.log_vdev().unwrap();
        assert_eq!(again.state(log), VdevState::Unavail);
        again.commit_all(found..found + 5);
        again.pool.remove(log).unwrap();
        again.pool.sync().unwrap();
        again.pool.close(PoolState::Exported).unwrap();
        drop(again);
        check(&without);
        assert_eq!(Bed::over(import(options()).unwrap()).writes(), found + 5);
    }
}

/// Whoever looks while vdevs come and go sees the pool as of a group.
#[test]
fn half_a_vdev_is_never_seen() {
    let devices = shared(blank());
    let bed = Bed::create(&Env::real(), Layout::Single, &devices);
    bed.pool.start();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let began = std::time::Instant::now();
            while !done.load(Ordering::Relaxed) && began.elapsed().as_secs() < 60 {
                let view = bed.pool.view();
                view.space().unwrap();
                view.top_spaces().unwrap();
                view.status().unwrap();
            }
        });
        for n in 0..4 {
            bed.add(Some(Bias::Log), &devices[1..2]);
            bed.commit_all(n * 3..n * 3 + 3);
            bed.pool.remove(bed.log_vdev().unwrap()).unwrap();
        }
        bed.add(None, &devices[2..]);
        done.store(true, Ordering::Relaxed);
    });
    bed.pool.close(PoolState::Exported).unwrap();
    check(&devices);
}

/// Spares and cache devices are listed, and taken off the list.
#[test]
fn spares_and_cache_devices_come_and_go() {
    let devices = shared(blank());
    let bed = Bed::create(&Env::fixed(1000), Layout::Single, &devices);
    let new = NewDevices { spares: vec![leaf(&devices[1])], caches: vec![leaf(&devices[2])], ..NewDevices::default() };
    bed.pool.add(&new, &by_path(&devices)).unwrap();
    let guid =
        |list: &[format::nvlist::NvList]| list.iter().map(|one| one.opt_guid("guid").unwrap()).collect::<Vec<_>>();
    let (spares, caches) = (guid(bed.pool.view().spares()), guid(bed.pool.view().caches()));
    assert_eq!((spares.len(), caches.len()), (1, 1));
    assert_eq!(bed.pool.remove(spares[0]).unwrap(), [devices[1].path()]);
    assert_eq!(bed.pool.remove(caches[0]).unwrap(), [devices[2].path()]);
    assert_eq!(bed.pool.remove(caches[0]).unwrap_err().kind(), base::Kind::NotFound);
    assert!(bed.pool.view().spares().is_empty() && bed.pool.view().caches().is_empty());
    check(&devices);
}

/// A data mirror loses a side, but not the last one that has everything.
#[test]
fn no_side_goes_that_is_needed() {
    let disks: Vec<Arc<SparseDevice>> = blank().into_iter().map(Arc::new).collect();
    let devices = same(&disks);
    // what was away stays without what it missed
    let held = Env::fixed(1000).with_tunables(|name| (name == "zfs_scan_suspend_progress").then_some(1));
    let bed = Bed::create(&held, Layout::Mirror, &devices);
    bed.commit_all(0..5);
    let (one, other) = (bed.leaf(&devices[0]), bed.leaf(&devices[1]));
    bed.pool.take_off(other, OfflineReason::Offline, false).unwrap();
    bed.commit_all(5..10);
    bed.pool.sync().unwrap();
    bed.pool.online(other, false, &|_| Err(base::Error::new(base::Kind::NotFound, "nothing else"))).unwrap();
    assert_eq!(bed.pool.detach(one).unwrap_err().kind(), base::Kind::Busy, "the other one was away");
    bed.pool.detach(other).unwrap();
    bed.commit_all(10..15);
    bed.pool.sync().unwrap();
    let left = copies(&disks);
    check(&shared(left.iter().map(SparseDevice::copy).collect()));
    let again = Bed::import(&Env::fixed(2000), &shared(left)).unwrap();
    again.replay().unwrap();
    assert_eq!(again.writes(), 15);
}
