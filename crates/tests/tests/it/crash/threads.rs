//! Power cuts of pools that several threads change while groups are brought to disk.
//!
//! Each thread changes a dataset of its own and notes what that held in each group. What the threads do when is not
//! a function of the seed; a failure is told with what is needed to look at it, but may not come again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::Env;
use format::ids::Txg;
use testkit::model::{DatasetContents, Model};
use testkit::recording::{Loss, Recording};
use testkit::rng::Rng;
use testkit::workload::{PoolLayout, Workload};

use super::{FAILURES_MAX, History, blank, devices, guarded, judge, number_from, shared};

/// Datasets, and threads.
const THREADS: u64 = 3;
/// Groups that are waited for.
const SYNCS: usize = 40;
/// Changes that a thread makes in one group.
const STEPS_A_GROUP: u64 = 25;
const CUTS: usize = 25;

/// Changes one dataset until it `ends`. What it held as of each group.
fn change(mut load: Workload, seed: u64, ends: &AtomicBool) -> BTreeMap<Txg, DatasetContents> {
    let (mut groups, mut rng) = (BTreeMap::new(), Rng::new(seed));
    while !ends.load(Ordering::Relaxed) {
        for _ in 0..rng.below(STEPS_A_GROUP) {
            load.step().unwrap();
            let contents = load.model.sets.values().next().expect("its dataset").clone();
            groups.insert(load.last_txg, contents);
        }
        let txg = load.pool.txgs().open_txg();
        while load.pool.txgs().open_txg() == txg && !ends.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    groups
}

/// Makes a pool and changes it with several threads.
fn record(layout: PoolLayout, seed: u64) -> History {
    let recording = Recording::new(blank(layout));
    let mut load = Workload::create(&Env::real(), layout, &devices(&recording), seed).unwrap();
    let mut acknowledged = vec![(recording.len(), load.pool.view().uberblock().txg)];
    let names: Vec<String> = (0..THREADS).map(|number| format!("live/{number}")).collect();
    for name in &names {
        let txg = load.create_dataset(name, &[]).unwrap();
        acknowledged.push((recording.len(), txg));
    }
    load.pool.start();
    let (first, ends) = (load.pool.txgs().open_txg(), AtomicBool::new(false));
    let changed: Vec<BTreeMap<Txg, DatasetContents>> = std::thread::scope(|scope| {
        let ends = &ends;
        let start = |(number, name): (usize, &String)| {
            let seed = seed.wrapping_mul(100) + number as u64;
            let own = load.of_dataset(name, seed);
            scope.spawn(move || change(own, seed, ends))
        };
        let threads: Vec<_> = names.iter().enumerate().map(start).collect();
        let mut last = first;
        for _ in 0..SYNCS {
            // those in which nothing was changed do not count
            while load.pool.view().uberblock().txg == last {
                load.pool.sync().unwrap();
            }
            last = load.pool.view().uberblock().txg;
            acknowledged.push((recording.len(), last));
        }
        ends.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let busy: Vec<usize> = changed.iter().map(BTreeMap::len).collect();
    assert!(busy.iter().sum::<usize>() > SYNCS, "the threads changed something in few groups only: {busy:?}");
    load.pool.close(pool::PoolState::Exported).unwrap();
    for txg in first.until(load.pool.view().uberblock().txg.next()) {
        let mut model: Model = load.model.clone();
        for (name, changed) in names.iter().zip(&changed) {
            if let Some((_, contents)) = changed.range(..=txg).next_back() {
                model.sets.insert(name.clone(), contents.clone());
            }
        }
        load.groups.insert(txg, model);
    }
    History { recording, acknowledged, groups: load.groups }
}

#[test]
fn cuts_while_threads_write() {
    let first = number_from("CENOTE_CRASH_SEED").unwrap_or(1);
    let rounds = number_from("CENOTE_CRASH_CUTS").map_or(1, |cuts| cuts.div_ceil(500));
    let mut failures = Vec::new();
    for seed in first..first + rounds {
        let layout = PoolLayout::ALL[seed as usize % PoolLayout::ALL.len()];
        let history = record(layout, seed);
        let (mut rng, mut player) = (Rng::new(seed), history.recording.play());
        for at in history.moments(CUTS, &mut rng) {
            player.advance(at);
            let loss = *rng.pick(&Loss::ALL);
            let left = shared(player.cut(&mut rng, loss));
            if let Err(what) = guarded(|| judge(&left, &history.groups, history.oldest(at), false)) {
                failures.push(format!("{layout:?}, seed {seed}, cut at {at}, losing {loss:?}: {what}"));
            }
        }
        if failures.len() >= FAILURES_MAX {
            break;
        }
    }
    println!("threads: {} cuts", rounds * CUTS as u64);
    assert!(failures.is_empty(), "{} cuts went wrong:\n{}", failures.len(), failures.join("\n"));
}
