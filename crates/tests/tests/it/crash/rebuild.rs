//! Power cuts while a device of a mirror or draid is replaced sequentially.

use std::sync::Arc;

use base::{Env, Error};
use device::Device;
use format::ids::Txg;
use pool::{AttachAs, LivePool, NewLeaf, Progress};
use testkit::recording::{Loss, Recording};
use testkit::rng::Rng;
use testkit::sparse::SparseDevice;
use testkit::workload::{PoolLayout, Workload};
use vdev::VdevKind;

use super::{CUTS_QUICK, DEVICE_BYTES, History, devices, guarded, judge, judge_by_zdb, number_from, shared};

/// Groups before the replacement begins, and after it has ended.
const GROUPS_AROUND: usize = 4;
/// Every so many cuts zdb looks at what is left, if it is there.
const CUTS_A_ZDB: usize = 20;

/// Little is read at once.
fn env() -> Env {
    Env::fixed(1000).with_tunables(|name| (name == "zfs_rebuild_max_segment").then_some(64 << 10))
}

/// Whether something is being replaced, stood in for, resilvered, scrubbed or expanded.
pub(crate) fn is_busy(pool: &LivePool) -> bool {
    let status = pool.view().status().unwrap();
    let runs = |progress: Option<Progress>| progress == Some(Progress::Running);
    pool.tree().expanding().is_some()
        || runs(status.scan.map(|scan| scan.progress))
        || status.rebuilds.iter().any(|(_, rebuild)| rebuild.progress == Progress::Running)
        || pool.tree().iter().any(|vdev| matches!(vdev.kind(), VdevKind::Replacing | VdevKind::Spare))
        || pool.tree().leaves().any(|leaf| !leaf.state().dtl().is_empty())
}

/// Makes a pool, changes it, and replaces one of its devices by another while it is changed further.
fn record(layout: PoolLayout, seed: u64) -> (History, Arc<Recording>) {
    let width = layout.devices();
    // a draid keeps much back
    let bytes = if layout == PoolLayout::Draid { 2 * DEVICE_BYTES } else { DEVICE_BYTES };
    let blank = (0..=width).map(|number| SparseDevice::new(format!("disk{number}"), bytes));
    let recording = Recording::new(blank.collect());
    let disks = devices(&recording);
    let mut rng = Rng::new(seed);
    let mut load = Workload::create(&env(), layout, &disks[..width], rng.number()).unwrap();
    let mut acknowledged = vec![(recording.len(), load.pool.view().uberblock().txg)];
    let mut note = |txg| acknowledged.push((recording.len(), txg));
    note(load.create_fs("live/home", &[("compression", "off")]).unwrap());
    let mut step = |load: &mut Workload, rng: &mut Rng| {
        (0..*rng.pick(&[1, 20, 100, 200])).for_each(|_| load.step().unwrap());
        let txg = if rng.below(4) == 0 { load.step_datasets() } else { load.sync() };
        note(txg.unwrap());
    };
    (0..GROUPS_AROUND).for_each(|_| step(&mut load, &mut rng));
    let guid = load.pool.tree().leaves().next().expect("a device").guid();
    let new = NewLeaf { path: format!("disk{width}"), is_file: true };
    load.note_groups();
    load.pool.attach_sequentially(guid, &new, AttachAs::Replacement, None, disks[width].clone()).unwrap();
    let mut rounds = 0;
    while is_busy(&load.pool) {
        step(&mut load, &mut rng);
        load.pool.diagnose();
        rounds += 1;
        assert!(rounds < 1000, "it comes to its end");
    }
    let status = load.pool.view().status().unwrap();
    let done = &status.rebuilds[0].1;
    assert_eq!((done.progress, done.errors), (Progress::Finished, 0));
    // of a draid, one column of each stripe
    let is_all = layout == PoolLayout::Draid || done.rebuilt_bytes == done.issued_bytes;
    assert!(done.rebuilt_bytes > 0 && is_all, "{done:?}");
    assert_eq!(status.scan.map(|scan| (scan.errors, scan.processed_bytes)), Some((0, 0)), "all was copied");
    assert!(load.pool.tree().leaf(guid).is_none());
    (0..GROUPS_AROUND).for_each(|_| step(&mut load, &mut rng));
    (History { recording: recording.clone(), acknowledged, groups: load.groups }, recording)
}

/// Goes on from a cut until nothing is under way, and a little further.
fn go_on(disks: &[Arc<dyn Device>], history: &History, txg: Txg, seed: u64) -> Result<(), String> {
    let text = |error: Error| format!("going on: {error:#?}");
    let mut rng = Rng::new(seed);
    let mut load = Workload::import(&env(), disks, &history.groups[&txg], rng.number()).map_err(text)?;
    for rounds in 0.. {
        (0..=rng.below(8)).try_for_each(|_| load.step()).map_err(text)?;
        let oldest = load.sync().map_err(text)?;
        load.pool.diagnose();
        if rounds > 2 && !is_busy(&load.pool) {
            let sound = load.pool.view().status().map_err(text)?.scan.is_none_or(|scan| scan.processed_bytes == 0);
            return match sound {
                true => judge(disks, &load.groups, oldest, false).map(drop),
                false => Err("a scrub had to mend what was copied".into()),
            };
        }
        if rounds > 500 {
            break;
        }
    }
    Err(format!("it does not end: {:?}", load.pool.view().status()))
}

#[test]
fn cuts_while_a_side_is_replaced_sequentially() {
    cut_rebuild(PoolLayout::Mirror);
}

#[test]
fn cuts_while_a_device_of_a_draid_is_replaced_sequentially() {
    cut_rebuild(PoolLayout::Draid);
}

fn cut_rebuild(layout: PoolLayout) {
    let seed = number_from("CENOTE_CRASH_SEED").unwrap_or(1);
    let cuts = number_from("CENOTE_CRASH_CUTS").map_or(CUTS_QUICK, |cuts| cuts as usize / 16);
    let (history, recording) = record(layout, seed);
    let mut rng = Rng::new(seed ^ 0x5eed);
    let mut player = recording.play();
    for (number, at) in history.moments(cuts, &mut rng).into_iter().chain([recording.len()]).enumerate() {
        player.advance(at);
        let loss = *rng.pick(&Loss::ALL);
        let left = player.cut(&mut rng, loss);
        let outcome = guarded(|| {
            let copies = shared(left.iter().map(SparseDevice::copy).collect());
            let txg = judge(&copies, &history.groups, history.oldest(at), false)?;
            if number % CUTS_A_ZDB == 0 || at == recording.len() {
                judge_by_zdb(&left)?;
            }
            go_on(&copies, &history, txg, rng.number())
        });
        outcome.unwrap_or_else(|what| panic!("{layout:?}, seed {seed}, cut at {at}, losing {loss:?}: {what}"));
    }
}
