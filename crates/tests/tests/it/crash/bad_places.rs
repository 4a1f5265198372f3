//! Devices with places to which nothing can be written: what was to be there goes elsewhere, and nobody is told.

use std::sync::Arc;

use base::Env;
use device::{Device, FaultyDevice};
use testkit::rng::Rng;
use testkit::workload::{PoolLayout, Workload};

use super::{DEVICE_BYTES, FAILURES_MAX, blank, guarded, judge, number_from, shared};

/// Places of a device that are bad.
const PLACES: usize = 24;
/// Bytes at the ends of a device that are good: labels, which are written where they are.
const ENDS: u64 = 5 << 20;

/// Changes a pool on such devices; it carries on, and holds what it should.
fn live(layout: PoolLayout, seed: u64) -> Result<(), String> {
    let text = |error: base::Error| format!("{error:#?}");
    let below: Vec<Arc<dyn Device>> = shared(blank(layout));
    let faulty: Vec<Arc<FaultyDevice>> = below.iter().map(|one| Arc::new(FaultyDevice::new(one.clone(), 0))).collect();
    let disks: Vec<Arc<dyn Device>> = faulty.iter().map(|device| device.clone() as Arc<dyn Device>).collect();
    let rng = &mut Rng::new(seed);
    for device in &faulty {
        for _ in 0..PLACES {
            let at = ENDS + rng.below((DEVICE_BYTES - 2 * ENDS) >> 12 << 12);
            device.unwritable(at..at + *rng.pick(&[512, 4096, 32 << 10, 128 << 10]));
        }
    }
    let mut load = Workload::create(&Env::fixed(1000), layout, &disks, rng.number()).map_err(text)?;
    let mut acknowledged = load.create_fs("live/a", &[("compression", "lz4")]).map_err(text)?;
    load.create_fs("live/twins", &[("dedup", "on"), ("recordsize", "4k")]).map_err(text)?;
    for _ in 0..12 {
        (0..rng.below(60)).try_for_each(|_| load.step()).map_err(text)?;
        acknowledged = match rng.below(3) {
            0 => load.step_datasets(),
            1 => testkit::snapshots::step(&mut load, rng),
            _ => load.sync(),
        }
        .map_err(text)?;
    }
    judge(&below, &load.groups, acknowledged, false).map(drop)
}

fn live_with(layout: PoolLayout) {
    let first = number_from("CENOTE_CRASH_SEED").unwrap_or(1);
    let rounds = number_from("CENOTE_CRASH_CUTS").map_or(4, |cuts| (cuts / 200).max(1));
    let mut failures = Vec::new();
    for seed in first..first + rounds {
        if let Err(what) = guarded(|| live(layout, seed)) {
            failures.push(format!("{layout:?}, seed {seed}: {what}"));
        }
        if failures.len() == FAILURES_MAX {
            break;
        }
    }
    assert!(failures.is_empty(), "{} pools went wrong:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn bad_places_of_a_single_device() {
    live_with(PoolLayout::Single);
}

#[test]
fn bad_places_of_a_pool_with_special_device() {
    live_with(PoolLayout::Special);
}

#[test]
fn bad_places_of_a_pool_with_fast_dedup() {
    live_with(PoolLayout::FastDedup);
}
