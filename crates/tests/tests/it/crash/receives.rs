//! Power cuts while streams are received: what was there before is there, or a part that is gone on with.

use base::Env;
use testkit::recording::Recording;
use testkit::rng::Rng;
use testkit::snapshots;
use testkit::streams::{self, Came};
use testkit::workload::{PoolLayout, Workload};

use super::{FAILURES_MAX, History, Tally, blank, cut_history, devices, number_from};

/// Receives of a history, and cuts of it.
const RECEIVES: usize = 12;
const CUTS: usize = 250;
const CUTS_QUICK: usize = 16;
/// Every so many cuts, the pool is changed further, and receives are gone on with.
const CUTS_A_SEQUEL: usize = 2;

/// Makes a pool, and receives in it what it sends. Counts parts and whole ones.
fn record(layout: PoolLayout, seed: u64) -> (History, [usize; 2]) {
    let recording = Recording::new(blank(layout));
    let mut rng = Rng::new(seed);
    let mut load = Workload::create(&Env::fixed(1000), layout, &devices(&recording), rng.number()).unwrap();
    let mut acknowledged = vec![(recording.len(), load.pool.view().uberblock().txg)];
    let mut came = [0; 2];
    for name in ["live/home", "live/other"] {
        let txg = load.create_fs(name, &[("compression", "lz4")]).unwrap();
        acknowledged.push((recording.len(), txg));
    }
    for round in 0..RECEIVES {
        (0..rng.below(60)).for_each(|_| load.step().unwrap());
        if round % 2 == 0 {
            snapshots::take(&mut load, &mut rng).unwrap();
        }
        let txg = load.sync().unwrap();
        acknowledged.push((recording.len(), txg));
        let (txg, outcome) = streams::step(&mut load, &mut rng).unwrap();
        came[0] += usize::from(outcome == Came::Part);
        came[1] += usize::from(outcome == Came::Whole);
        acknowledged.push((recording.len(), txg));
    }
    (History { recording, acknowledged, groups: load.groups }, came)
}

#[test]
fn cuts_of_receives() {
    let mut left =
        number_from("CENOTE_CRASH_CUTS").map_or(CUTS_QUICK, |cuts| cuts as usize / PoolLayout::ALL.len()).max(1);
    let mut seed = number_from("CENOTE_CRASH_SEED").unwrap_or(1);
    let (mut tally, mut came, mut cuts) = (Tally::default(), [0; 2], 0);
    while left > 0 && tally.failures.len() < FAILURES_MAX {
        let layout = [PoolLayout::Single, PoolLayout::Raidz1, PoolLayout::Mirror][(seed % 3) as usize];
        let (history, counts) = record(layout, seed);
        came = [came[0] + counts[0], came[1] + counts[1]];
        let now = left.min(if left <= CUTS_QUICK { CUTS_QUICK / 3 } else { CUTS });
        cut_history(&history, (layout, seed), (now, CUTS_A_SEQUEL), &mut tally);
        (left, seed, cuts) = (left - now, seed + 1, cuts + now);
    }
    println!("{cuts} cuts of {} receives, {} of a part; {} gone on with", came[1], came[0], tally.resumed);
    assert!(tally.failures.is_empty(), "{} cuts went wrong:\n{}", tally.failures.len(), tally.failures.join("\n"));
    assert!(came[0] > 0 && came[1] > 0 && tally.resumed > 0, "{came:?}, {}", tally.resumed);
}
