//! Devices that fail while a pool is changed: with redundancy it carries on; without, it is suspended, says why,
//! and is found in a state that was acknowledged.

use std::sync::Arc;

use base::{Env, Kind};
use device::{Device, FaultyDevice};
use testkit::workload::{PoolLayout, Workload};

use super::{FAILURES_MAX, blank, guarded, judge, number_from, shared};

/// What fails, and when.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The write of that number, counted from when the pool has been made, and so many after it.
    Writes(u64, u64),
    /// The flush of that number.
    Flush(u64),
    /// From the group of that number on, the device is gone.
    Gone(usize),
}

/// What became of a pool of which a device failed.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The fault would have come later.
    NotReached,
    /// It carried on.
    CarriedOn,
    /// Nothing is written to it any more.
    Suspended,
}

/// Changes a pool while one of its devices fails, and then opens it with devices that work again.
fn fail(layout: PoolLayout, number: usize, fault: Fault, seed: u64) -> Result<Outcome, String> {
    let text = |error: base::Error| format!("{error:#?}");
    let below: Vec<Arc<dyn Device>> = shared(blank(layout));
    let faulty = |device: &Arc<dyn Device>| Arc::new(FaultyDevice::new(device.clone(), 0));
    let faulty: Vec<Arc<FaultyDevice>> = below.iter().map(faulty).collect();
    let disks: Vec<Arc<dyn Device>> = faulty.iter().map(|device| device.clone() as Arc<dyn Device>).collect();
    let mut load = Workload::create(&Env::fixed(1000), layout, &disks, seed).map_err(text)?;
    let mut acknowledged = load.create_fs("live/a", &[]).map_err(text)?;
    let victim = &faulty[number];
    let (writes, flushes) = (victim.writes(), victim.flushes());
    match fault {
        Fault::Writes(at, count) => (at..at + count).for_each(|at| victim.fail_write(writes + at)),
        Fault::Flush(at) => victim.fail_flush(flushes + at),
        Fault::Gone(_) => {}
    }
    let mut error = None;
    for group in 0..4 {
        victim.vanish(matches!(fault, Fault::Gone(at) if at <= group));
        let mut change = || {
            (0..4).try_for_each(|_| load.step())?;
            if group == 2 { load.step_datasets() } else { load.sync() }
        };
        match change() {
            Ok(txg) => acknowledged = txg,
            Err(e) => {
                error = Some(e);
                break;
            }
        }
    }
    let is_reached = match fault {
        Fault::Writes(at, _) => at < victim.writes() - writes,
        Fault::Flush(at) => at < victim.flushes() - flushes,
        Fault::Gone(_) => true,
    };
    faulty.iter().for_each(|device| device.heal());
    let outcome = match &error {
        None if is_reached => Outcome::CarriedOn,
        None => Outcome::NotReached,
        Some(error) => {
            judge_suspended(&load, error)?;
            if layout.is_redundant() {
                return Err(format!("suspended, although it is redundant: {error:#?}"));
            }
            Outcome::Suspended
        }
    };
    // what the device has missed is there on others only
    judge(&below, &load.groups, acknowledged, layout.is_redundant())?;
    Ok(outcome)
}

/// A suspended pool says so and why, whatever it is asked for, and also when its devices work again.
fn judge_suspended(load: &Workload, error: &base::Error) -> Result<(), String> {
    let is_clear = matches!(error.kind(), Kind::Io | Kind::Missing | Kind::Suspended);
    let begun = load.pool.txgs().begin().err().map(|error| error.kind());
    let synced = load.pool.sync().err().map(|error| error.kind());
    match is_clear && begun == Some(Kind::Suspended) && synced == Some(Kind::Suspended) {
        true => Ok(()),
        false => Err(format!("not suspended in a clear way: {begun:?}, {synced:?} after {error:#?}")),
    }
}

/// Lets every write and flush fail in turn, or only every so many of them.
fn fail_each(layout: PoolLayout, stride: u64) {
    let seed = number_from("CENOTE_CRASH_SEED").unwrap_or(1);
    let stride = if number_from("CENOTE_CRASH_CUTS").is_some() { 1 } else { stride };
    let (mut failures, mut counts) = (Vec::new(), [0; 3]);
    for number in 0..layout.devices() {
        let first = seed % stride;
        let kinds: [&dyn Fn(u64) -> Fault; 3] =
            [&|at| Fault::Writes(at, 1), &|at| Fault::Writes(at, 5), &|at| Fault::Flush(at)];
        let mut run = |fault| {
            let outcome = guarded(|| fail(layout, number, fault, seed));
            match outcome {
                Ok(outcome) => {
                    let is_reached = outcome != Outcome::NotReached;
                    counts[outcome as usize] += 1;
                    is_reached
                }
                Err(what) => {
                    failures.push(format!("{layout:?}, device {number}, seed {seed}, {fault:?}: {what}"));
                    failures.len() < FAILURES_MAX
                }
            }
        };
        for (kind, step) in kinds.into_iter().zip([stride, stride * 2, 1]) {
            let mut at = first % step;
            while run(kind(at)) {
                at += step;
            }
        }
        for group in 0..4 {
            run(Fault::Gone(group));
        }
    }
    let [_, carried_on, suspended] = counts;
    println!("{layout:?}: {carried_on} faults carried on from, {suspended} pools suspended");
    assert!(failures.is_empty(), "{} faults went wrong:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn faults_of_a_single_device() {
    fail_each(PoolLayout::Single, 17);
}

#[test]
fn faults_of_a_mirror() {
    fail_each(PoolLayout::Mirror, 41);
}

#[test]
fn faults_of_raidz1() {
    fail_each(PoolLayout::Raidz1, 67);
}

#[test]
fn faults_of_a_pool_with_special_device() {
    fail_each(PoolLayout::Special, 41);
}
