//! Power cuts while a vdev is being removed, while that is given up, and afterwards.

use std::sync::Arc;

use base::Env;
use format::ids::{Txg, VdevNumber};
use testkit::recording::Recording;
use testkit::rng::Rng;
use testkit::sparse::SparseDevice;
use testkit::workload::{PoolLayout, Workload};

use super::cuts::each_cut;
use super::{CUTS_QUICK, History, devices, judge, number_from};

/// Large enough that a pool has room for all that is on one of two vdevs.
const DEVICE_BYTES: u64 = 256 << 20;
/// Groups before the removal begins, and after it has ended.
const GROUPS_AROUND: usize = 4;

/// Groups that copy little, so that there are many of them.
fn env() -> Env {
    Env::fixed(1000).with_tunables(|name| match name {
        "zfs_remove_max_segment" => Some(64 << 10),
        "vdev_removal_max_span" => Some(8 << 10),
        "zfs_condense_min_mapping_bytes" => Some(256),
        _ => None,
    })
}

/// Makes a pool, changes it, and takes a top-level vdev off while it is changed further; or gives that up.
fn record(layout: PoolLayout, top: usize, seed: u64, is_given_up: bool) -> History {
    let blank = (0..layout.devices()).map(|number| SparseDevice::new(format!("disk{number}"), DEVICE_BYTES));
    let recording = Recording::new(blank.collect());
    let mut rng = Rng::new(seed);
    let mut load = Workload::create(&env(), layout, &devices(&recording), rng.number()).unwrap();
    let mut acknowledged = vec![(recording.len(), load.pool.view().uberblock().txg)];
    let mut note = |txg| acknowledged.push((recording.len(), txg));
    note(load.create_fs("live/home", &[("compression", "lz4")]).unwrap());
    note(load.create_dataset("live/twins", &[("dedup", "on"), ("copies", "2")]).unwrap());
    let mut step = |load: &mut Workload, rng: &mut Rng| {
        (0..*rng.pick(&[1, 20, 100])).for_each(|_| load.step().unwrap());
        let txg = if rng.below(4) == 0 { load.step_datasets() } else { load.sync() };
        note(txg.unwrap());
    };
    (0..GROUPS_AROUND).for_each(|_| step(&mut load, &mut rng));
    let guid = load.pool.tree().top(VdevNumber::new(top as u64)).unwrap().guid();
    load.note_groups();
    load.pool.remove(guid).unwrap();
    let is_running = |load: &Workload| {
        let removal = load.pool.view().status().unwrap().removal.unwrap();
        removal.progress == pool::Progress::Running
    };
    let mut rounds = 0;
    while is_running(&load) {
        if is_given_up && rounds == 0 {
            load.note_groups();
            load.pool.cancel_removal().unwrap();
        }
        step(&mut load, &mut rng);
        rounds += 1;
        assert!(rounds < 1000, "a removal comes to its end");
    }
    let is_there = load.pool.tree().top(VdevNumber::new(top as u64)).unwrap().kind() != vdev::VdevKind::Indirect;
    assert_eq!(is_there, is_given_up);
    (0..GROUPS_AROUND).for_each(|_| step(&mut load, &mut rng));
    History { recording: recording.clone(), acknowledged, groups: load.groups }
}

fn cut(layout: PoolLayout, top: usize, is_given_up: bool) {
    let seed = number_from("CENOTE_CRASH_SEED").unwrap_or(1);
    let cuts = number_from("CENOTE_CRASH_CUTS").map_or(CUTS_QUICK, |cuts| cuts as usize / 8);
    let history = record(layout, top, seed, is_given_up);
    each_cut(&history, (seed, cuts), &format!("{layout:?} without {top}"), &|cut, rng| {
        cut.judge_by_zdb()?;
        go_on(&cut.disks, &history, cut.txg, rng.number())
    });
}

/// Goes on from a cut until no vdev is being removed, and a little further.
fn go_on(disks: &[Arc<dyn device::Device>], history: &History, txg: Txg, seed: u64) -> Result<(), String> {
    let text = |error: base::Error| format!("going on: {error:#?}");
    let mut rng = Rng::new(seed);
    let mut load = Workload::import(&env(), disks, &history.groups[&txg], rng.number()).map_err(text)?;
    let mut oldest = Txg::ZERO;
    for _ in 0..40 {
        (0..=rng.below(8)).try_for_each(|_| load.step()).map_err(text)?;
        oldest = load.sync().map_err(text)?;
        let removal = load.pool.view().status().map_err(text)?.removal;
        if removal.is_none_or(|removal| removal.progress != pool::Progress::Running) {
            break;
        }
    }
    judge(disks, &load.groups, oldest, false).map(drop).map_err(|what| format!("going on: {what}"))
}

#[test]
fn cuts_while_a_disk_is_removed() {
    cut(PoolLayout::Uneven, 1, false);
}

#[test]
fn cuts_while_a_mirror_is_removed() {
    cut(PoolLayout::Uneven, 0, false);
}

#[test]
fn cuts_while_a_special_vdev_is_removed() {
    cut(PoolLayout::Special, 1, false);
}

#[test]
fn cuts_while_a_removal_is_given_up() {
    cut(PoolLayout::Uneven, 1, true);
}
