//! Promises to several threads: each changes and syncs the files of a file system of its own, while groups are
//! brought to disk beside them. What happens when is not a function of the seed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;

/// Changes that each thread makes.
const STEPS: usize = 150;
/// Between two groups, at least.
const PAUSE: Duration = Duration::from_millis(3);

fn change(mut load: Workload, name: &'static str, seed: u64, recording: &Recording) -> Told {
    let (mut told, mut rng) = (Told::new(&load, name), Rng::new(seed));
    for step in 1..=STEPS {
        let before = load.pool.txgs().open_txg();
        load.step().unwrap();
        told.step(&load, name, before);
        if rng.below(4) == 0 {
            told.promise(&mut load, name, step, recording, &mut rng);
        }
    }
    told
}

fn record(layout: PoolLayout, seed: u64) -> Story {
    let (load, mut history) = begin(&Env::real(), layout, seed);
    load.pool.start();
    let (recording, running) = (history.recording.clone(), AtomicUsize::new(FILE_SYSTEMS.len()));
    let told = std::thread::scope(|scope| {
        let (recording, running) = (&recording, &running);
        let mut seeds = Rng::new(seed);
        let threads = FILE_SYSTEMS.map(|name| {
            let seed = seeds.number();
            let own = load.of_dataset(name, seed);
            let work = move || {
                let told = guarded(|| Ok(change(own, name, seed, recording)));
                running.fetch_sub(1, Ordering::Relaxed);
                told
            };
            (name, scope.spawn(work))
        });
        while running.load(Ordering::Relaxed) > 0 {
            std::thread::sleep(PAUSE);
            load.pool.sync().unwrap();
            history.acknowledged.push((recording.len(), load.pool.view().uberblock().txg));
        }
        threads.map(|(name, thread)| (name, thread.join().unwrap().unwrap())).into()
    });
    load.pool.close(PoolState::Exported).unwrap();
    Story { history, told }
}

#[test]
fn promises_to_threads() {
    cut(PoolLayout::Mirror, KINDS, record);
}

#[test]
fn promises_to_threads_with_a_log_device() {
    cut(PoolLayout::Logged, KINDS, record);
}

#[test]
fn promises_to_threads_with_a_mirror_of_log_devices() {
    cut(PoolLayout::LogMirror, KINDS, record);
}
