//! Power cuts while a device of a mirror or draid is replaced sequentially.

use base::Env;
use pool::{AttachAs, LivePool, NewLeaf, Progress};
use testkit::workload::PoolLayout;
use vdev::VdevKind;

use super::cuts::{ChangingPool, each_cut};
use super::{CUTS_QUICK, DEVICE_BYTES, History, number_from};

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
fn record(layout: PoolLayout, seed: u64) -> History {
    // a draid keeps much back
    let bytes = if layout == PoolLayout::Draid { 2 * DEVICE_BYTES } else { DEVICE_BYTES };
    let mut changing = ChangingPool::new(&env(), layout, bytes, seed);
    let (pool, device) = (changing.load.pool.clone(), changing.spare.clone());
    let guid = pool.tree().leaves().next().expect("a device").guid();
    let new = NewLeaf { path: device.path().into(), is_file: true };
    changing.load.note_groups();
    pool.attach_sequentially(guid, &new, AttachAs::Replacement, None, device).unwrap();
    changing.change_until_idle();
    let status = pool.view().status().unwrap();
    let done = &status.rebuilds[0].1;
    assert_eq!((done.progress, done.errors), (Progress::Finished, 0));
    // of a draid, one column of each stripe
    let is_all = layout == PoolLayout::Draid || done.rebuilt_bytes == done.issued_bytes;
    assert!(done.rebuilt_bytes > 0 && is_all, "{done:?}");
    assert_eq!(status.scan.map(|scan| (scan.errors, scan.processed_bytes)), Some((0, 0)), "all was copied");
    assert!(pool.tree().leaf(guid).is_none());
    changing.into_history()
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
    each_cut(&record(layout, seed), (seed, cuts), &format!("{layout:?}"), &|cut, rng| {
        cut.judge_by_zdb()?;
        cut.go_on_until_idle(&env(), rng.number())
    });
}
