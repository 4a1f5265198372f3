//! Devices fail, the pool is suspended; they come back, it is resumed: nothing of what was changed before or meanwhile
//! is lost. While it is suspended it is, on disk, as after the last group.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Env, Error, Kind, Result};
use device::{Device, FaultyDevice};
use dsl::PropertyValue;
use format::ids::{DatasetId, Guid};
use pool::LivePool;
use testkit::sparse::SparseDevice;
use testkit::workload::{PoolLayout, Workload};

use super::{blank, guarded, judge};

/// What fails.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Writes, from that one of the group on.
    Writes(u64),
    /// That flush of the group. The first one loses what was written.
    Flush(u64),
    /// The devices are gone, and the same come back.
    Gone,
    /// The devices are gone for good, and others with their bytes are put in their places.
    Replaced,
}

/// A pool on devices that can fail, all of them or the first ones.
struct Bed {
    below: Vec<Arc<SparseDevice>>,
    faulty: Vec<Arc<FaultyDevice>>,
    victims: usize,
}

impl Bed {
    fn new(layout: PoolLayout, victims: usize) -> Bed {
        let below: Vec<Arc<SparseDevice>> = blank(layout).into_iter().map(Arc::new).collect();
        let faulty = below.iter().map(|device| Arc::new(FaultyDevice::new(device.clone(), 0))).collect();
        Bed { below, faulty, victims }
    }

    fn disks(&self) -> Vec<Arc<dyn Device>> {
        self.faulty.iter().map(|device| device.clone() as Arc<dyn Device>).collect()
    }

    fn inject(&self, fault: Fault) {
        for victim in &self.faulty[..self.victims] {
            match fault {
                Fault::Writes(at) => victim.fail_writes_from(victim.writes() + at),
                Fault::Flush(at) => {
                    if at == 0 {
                        victim.lose_writes(0..victim.size());
                    }
                    (0..2).for_each(|more| victim.fail_flush(victim.flushes() + at + more));
                }
                Fault::Gone | Fault::Replaced => victim.vanish(true),
            }
        }
    }

    fn heal(&self, fault: Fault) {
        if !matches!(fault, Fault::Replaced) {
            self.faulty.iter().for_each(|device| device.heal());
        }
    }

    /// What `zpool clear` opens at the path of a device.
    fn open(&self, path: &str, is_back: bool) -> Result<Arc<dyn Device>> {
        let device = self.below.iter().find(|device| device.path() == path).filter(|_| is_back);
        let device = device.ok_or_else(|| Error::new(Kind::NotFound, "no such file"))?;
        Ok(device.clone())
    }

    /// What a power cut would leave now.
    fn copies(&self) -> Vec<Arc<dyn Device>> {
        self.below.iter().map(|device| Arc::new(device.copy()) as Arc<dyn Device>).collect()
    }
}

/// Waits until the pool is suspended. False if it is not.
fn wait_suspended(pool: &LivePool, has_ended: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    while pool.suspended().is_none() {
        if has_ended() {
            return pool.suspended().is_some();
        }
        assert!(began.elapsed() < Duration::from_secs(60), "it is neither suspended nor done");
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Changes a pool, lets devices fail while that is brought to disk, and resumes it. Whether it was suspended.
fn suspend(layout: PoolLayout, victims: usize, fault: Fault, seed: u64) -> Result<bool, String> {
    let text = |error: Error| format!("{error:#?}");
    let bed = Bed::new(layout, victims);
    let mut load = Workload::create(&Env::real(), layout, &bed.disks(), seed).map_err(text)?;
    let acknowledged = load.create_fs("live/a", &[]).map_err(text)?;
    let pool = load.pool.clone();
    pool.start();
    (0..12).try_for_each(|_| load.step()).map_err(text)?;
    bed.inject(fault);
    // labels are written, too
    let comment = vec![("comment".to_owned(), PropertyValue::Text("changed".into()))];
    load.groups.insert(pool.txgs().open_txg(), load.model.clone());
    let setting = pool.clone();
    let waiter = std::thread::spawn(move || setting.set_pool_properties(comment));
    let was_suspended = wait_suspended(&pool, || waiter.is_finished());
    if was_suspended {
        let begun = pool.txgs().begin().err().map(|error| error.kind());
        let asked = pool.record_history("refused").err().map(|error| error.kind());
        if (begun, asked) != (Some(Kind::Suspended), Some(Kind::Suspended)) {
            return Err(format!("changes are not refused: {begun:?}, {asked:?}"));
        }
        if layout == PoolLayout::Single {
            // an uberblock of the new group may be there: then the group is whole
            judge(&bed.copies(), &load.groups, acknowledged, false).map_err(|what| format!("suspended: {what}"))?;
        }
        if matches!(fault, Fault::Writes(_) | Fault::Gone) {
            let again = pool.clear(None, &|path| bed.open(path, false)).err().map(|error| error.kind());
            if again != Some(Kind::Io) || pool.suspended() != Some(true) {
                return Err(format!("resumed on broken devices: {again:?}"));
            }
        }
        bed.heal(fault);
        pool.clear(None, &|path| bed.open(path, true)).map_err(|error| format!("not resumed: {error:#?}"))?;
    }
    waiter.join().expect("it does not panic").map_err(text)?;
    let is_well = pool.tree().leaves().all(|leaf| leaf.state().dtl().is_empty() && leaf.stats().errors() == [0; 3]);
    if was_suspended && !is_well {
        return Err("what was written again counts as missing".into());
    }
    bed.heal(fault);
    (0..6).try_for_each(|_| load.step()).map_err(text)?;
    let acknowledged = load.sync().map_err(text)?;
    let whole = was_suspended || !layout.is_redundant();
    judge(&bed.copies(), &load.groups, acknowledged, !whole)?;
    Ok(was_suspended)
}

fn suspend_each(layout: PoolLayout, victims: usize, is_expected: bool, stride: u64) {
    let mut counts = [0; 2];
    let mut run = |fault| {
        let outcome = guarded(|| suspend(layout, victims, fault, 1));
        let was_suspended = outcome.unwrap_or_else(|what| panic!("{layout:?}, {victims} devices, {fault:?}: {what}"));
        counts[usize::from(was_suspended)] += 1;
        was_suspended
    };
    for fault in [Fault::Gone, Fault::Replaced, Fault::Writes(0)] {
        assert_eq!(run(fault), is_expected, "{layout:?}, {fault:?}");
    }
    // of blocks; behind labels 0 and 2; behind the uberblock; behind labels 1 and 3
    for at in 0..4 {
        assert_eq!(run(Fault::Flush(at)), is_expected, "{layout:?}, flush {at}");
    }
    if is_expected {
        // until there are no more writes in the group: blocks, labels, uberblocks, labels
        for at in (stride..).step_by(stride as usize) {
            if !run(Fault::Writes(at)) {
                break;
            }
        }
    }
    println!("{layout:?}, {victims} devices: {} times carried on, {} times suspended", counts[0], counts[1]);
}

#[test]
fn a_single_device_comes_back() {
    suspend_each(PoolLayout::Single, 1, true, 7);
}

#[test]
fn both_sides_of_a_mirror_come_back() {
    suspend_each(PoolLayout::Mirror, 2, true, 29);
}

#[test]
fn one_side_of_a_mirror_is_not_needed() {
    suspend_each(PoolLayout::Mirror, 1, false, 29);
}

#[test]
fn two_devices_of_raidz1_come_back() {
    suspend_each(PoolLayout::Raidz1, 2, true, 41);
}

fn set_failmode(pool: &LivePool, mode: u64) {
    pool.set_pool_properties(vec![("failmode".into(), PropertyValue::Number(mode))]).unwrap();
}

/// With failmode=continue those who want something get an error, and what they did is there all the same.
#[test]
fn failmode_continue() {
    let bed = Bed::new(PoolLayout::Single, 1);
    let mut load = Workload::create(&Env::real(), PoolLayout::Single, &bed.disks(), 1).unwrap();
    load.create_fs("live/a", &[]).unwrap();
    load.pool.start();
    set_failmode(&load.pool, 1);
    (0..12).try_for_each(|_| load.step()).unwrap();
    bed.inject(Fault::Gone);
    load.groups.insert(load.pool.txgs().open_txg(), load.model.clone());
    assert_eq!(load.sync().unwrap_err().kind(), Kind::Suspended);
    assert_eq!(load.pool.suspended(), Some(false));
    assert_eq!(load.pool.wait_resumed().unwrap_err().kind(), Kind::Suspended);
    assert!(load.pool.txgs().begin().is_err());
    bed.heal(Fault::Gone);
    load.pool.clear(None, &|path| bed.open(path, true)).unwrap();
    let acknowledged = load.sync().unwrap();
    judge(&bed.copies(), &load.groups, acknowledged, false).unwrap();
    // and it is known when the pool is opened again
    load.pool.close(pool::PoolState::Exported).unwrap();
    let again = Workload::import(&Env::real(), &bed.disks(), &load.model, 2).unwrap();
    again.pool.start();
    bed.inject(Fault::Gone);
    assert_eq!(again.pool.record_history("lost").unwrap_err().kind(), Kind::Suspended);
}

/// Nobody who wants to send a snapshot hangs with the group that is on its way, and cannot be stopped.
#[test]
fn no_snapshot_is_kept_while_it_is_suspended() {
    let bed = Bed::new(PoolLayout::Single, 1);
    let mut load = Workload::create(&Env::real(), PoolLayout::Single, &bed.disks(), 1).unwrap();
    load.create_fs("live/a", &[]).unwrap();
    load.pool.start();
    (0..12).try_for_each(|_| load.step()).unwrap();
    bed.inject(Fault::Gone);
    let pool = load.pool.clone();
    let waiter = std::thread::spawn(move || pool.sync());
    assert!(wait_suspended(&load.pool, || waiter.is_finished()));
    let (pool, (told, tells)) = (load.pool.clone(), std::sync::mpsc::channel());
    std::thread::spawn(move || told.send(pool.keep_snapshots(&[DatasetId::new(7)], &[]).map(drop)));
    let kept = tells.recv_timeout(Duration::from_secs(20)).expect("it hangs");
    assert_eq!(kept.unwrap_err().kind(), Kind::Suspended);
    bed.heal(Fault::Gone);
    load.pool.clear(None, &|path| bed.open(path, true)).unwrap();
    waiter.join().unwrap().unwrap();
    load.pool.keep_snapshots(&[DatasetId::new(7)], &[]).unwrap();
}

/// With failmode=panic the process ends: this test runs itself as another one.
#[test]
fn failmode_panic() {
    const CHILD: &str = "CENOTE_FAILMODE_CHILD";
    if std::env::var_os(CHILD).is_none() {
        let this = std::env::current_exe().unwrap();
        let mut child = Command::new(this);
        child.args(["--exact", "crash::suspended::failmode_panic", "--nocapture"]).env(CHILD, "1");
        let output = child.output().unwrap();
        use std::os::unix::process::ExitStatusExt;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.signal(), Some(6), "it is aborted: {:?}, {said}", output.status);
        return;
    }
    let bed = Bed::new(PoolLayout::Single, 1);
    let load = Workload::create(&Env::real(), PoolLayout::Single, &bed.disks(), 1).unwrap();
    load.pool.start();
    set_failmode(&load.pool, 2);
    bed.inject(Fault::Gone);
    let _ = load.pool.record_history("never");
}

/// Whoever waits goes on when the pool is given up, and nobody can resume it then.
#[test]
fn a_suspended_pool_is_given_up() {
    let bed = Bed::new(PoolLayout::Single, 1);
    let mut load = Workload::create(&Env::real(), PoolLayout::Single, &bed.disks(), 1).unwrap();
    let acknowledged = load.create_fs("live/a", &[]).unwrap();
    let (pool, groups) = (load.pool.clone(), load.groups.clone());
    pool.start();
    (0..12).try_for_each(|_| load.step()).unwrap();
    bed.inject(Fault::Gone);
    let waiter = std::thread::spawn(move || load.sync());
    assert!(wait_suspended(&pool, || waiter.is_finished()));
    pool.abandon();
    assert_eq!(waiter.join().unwrap().unwrap_err().kind(), Kind::Suspended);
    assert_eq!(pool.clear(None, &|path| bed.open(path, true)).unwrap_err().kind(), Kind::Suspended);
    judge(&bed.copies(), &groups, acknowledged, false).unwrap();
}

/// Leaves that fail too often are not used any more, as long as others have everything; then they come back.
#[test]
fn leaves_are_faulted_and_come_back() {
    let bed = Bed::new(PoolLayout::Mirror, 1);
    // what a leaf lacks it lacks until the pool is imported again
    let held = Env::real().with_tunables(|name| (name == "zfs_scan_suspend_progress").then_some(1));
    let mut load = Workload::create(&held, PoolLayout::Mirror, &bed.disks(), 1).unwrap();
    load.create_fs("live/a", &[]).unwrap();
    let pool = load.pool.clone();
    pool.start();
    let leaves: Vec<Guid> = pool.tree().iter().filter(|vdev| vdev.is_leaf()).map(|leaf| leaf.guid()).collect();
    let word = |number: usize| pool.tree().health(pool.tree().leaf(leaves[number]).unwrap().id()).name();
    bed.inject(Fault::Writes(0));
    (0..12).try_for_each(|_| load.step()).unwrap();
    load.sync().unwrap();
    let began = Instant::now();
    while word(0) == "ONLINE" && began.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(
        (word(0), word(1), pool.tree().health(pool.tree().root().id()).name()),
        ("FAULTED", "ONLINE", "DEGRADED")
    );
    let written = bed.faulty[0].writes();
    (0..12).try_for_each(|_| load.step()).unwrap();
    load.sync().unwrap();
    assert_eq!(bed.faulty[0].writes(), written, "a faulted leaf is not written");
    // the other side has what this one has missed
    let off = |number: usize, how, temporary| pool.take_off(leaves[number], how, temporary);
    assert_eq!(off(1, pool::OfflineReason::Offline, false).unwrap_err().kind(), Kind::Busy);
    off(1, pool::OfflineReason::Faulted, true).unwrap();
    assert_eq!(word(1), "DEGRADED");
    bed.heal(Fault::Gone);
    pool.clear(None, &|path| bed.open(path, true)).unwrap();
    assert_eq!((word(0), word(1)), ("ONLINE", "ONLINE"));
    assert!(!pool.tree().leaf(leaves[0]).unwrap().state().dtl().is_empty(), "it lacks what it has missed");
    assert_eq!(off(1, pool::OfflineReason::Offline, false).unwrap_err().kind(), Kind::Busy);
    off(0, pool::OfflineReason::Offline, false).unwrap();
    (0..4).try_for_each(|_| load.step()).unwrap();
    load.sync().unwrap();
    load.pool.close(pool::PoolState::Exported).unwrap();
    // that it is offline is known later, too
    let again = Workload::import(&Env::real(), &bed.disks(), &load.model, 2).unwrap();
    let pool = again.pool.clone();
    pool.start();
    let leaf = pool.tree().leaf(leaves[0]).unwrap();
    assert_eq!(pool.tree().health(leaf.id()).name(), "OFFLINE");
    assert_eq!(pool.online(leaves[0], false, &|path| bed.open(path, true)).unwrap().name(), "ONLINE");
    assert_eq!(pool.take_off(Guid::new(77), pool::OfflineReason::Offline, true).unwrap_err().kind(), Kind::NotFound);
    pool.close(pool::PoolState::Exported).unwrap();
    let acknowledged = again.groups.keys().copied().max().unwrap();
    let mut groups = again.groups.clone();
    let last = pool.view().uberblock().txg;
    acknowledged.until(last.next()).for_each(|txg| drop(groups.insert(txg, again.model.clone())));
    judge(&bed.copies(), &groups, last, true).unwrap();
}
