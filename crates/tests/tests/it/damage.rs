//! Random damage to real pools: what is read is right, or an error.
//!
//! `CENOTE_DAMAGE_ROUNDS` sets how often each pool is damaged, `CENOTE_DAMAGE_SEED` where to start.

mod live;

use std::sync::Arc;

use base::Env;
use device::Device;
use testkit::corpus::{self, Case};
use testkit::damage::{Patched, written_sectors};
use testkit::rng::Rng;
use testkit::survey::{self, Survey};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}

/// Tells which round it was if it panics.
struct Round<'a>(&'a str, u64);

impl Drop for Round<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("damage: case {}, CENOTE_DAMAGE_SEED={} CENOTE_DAMAGE_ROUNDS=1", self.0, self.1);
        }
    }
}

#[derive(Default)]
struct Tally {
    rounds: u64,
    unopened: u64,
    older: u64,
    errors: u64,
    read: u64,
}

fn rounds(case: &Case, tally: &mut Tally) {
    let images = case.load();
    let env = Env::fixed(0);
    let pool = survey::open(&corpus::as_devices(&images), &env).unwrap_or_else(|e| panic!("{}: {e}", case.name));
    let truth = Survey::of(&pool);
    let written: Vec<Vec<u64>> = images.iter().map(|image| written_sectors(image)).collect();
    let first = setting("CENOTE_DAMAGE_SEED", 1);
    for seed in first..first + setting("CENOTE_DAMAGE_ROUNDS", 1) {
        let _round = Round(&case.name, seed);
        let mut rng = Rng::new(seed);
        let mut damaged: Vec<Patched> = images.iter().map(|image| Patched::new(image.clone())).collect();
        // from a few sectors to a sixteenth of all
        let total: usize = written.iter().map(Vec::len).sum();
        let magnitude = rng.below((total as u64 / 16).max(2).ilog2().into());
        let count = 1 + rng.below(1 << magnitude);
        for _ in 0..count {
            let device = rng.below(damaged.len() as u64) as usize;
            damaged[device].damage(&written[device], &mut rng);
        }
        let devices: Vec<Arc<dyn Device>> = damaged.into_iter().map(|device| Arc::new(device) as _).collect();
        tally.rounds += 1;
        match survey::open(&devices, &env) {
            Err(_) => tally.unopened += 1,
            // every copy of the newest uberblock is damaged, so an older state is what there is
            Ok(damaged) if damaged.uberblock().txg != pool.uberblock().txg => {
                tally.older += 1;
                Survey::of(&damaged);
            }
            Ok(damaged) => {
                let found = Survey::of(&damaged);
                let mut lies = found.lies(&truth);
                // without checksums nobody can tell
                lies.retain(|what| !what.starts_with("t_checksum/off:"));
                assert!(lies.is_empty(), "{}: wrong without an error: {lies:#?}", case.name);
                let errors = found.errors(&truth);
                assert!(
                    errors.iter().all(|(_, error)| error.starts_with(&case.pool)),
                    "errors without a place: {errors:#?}"
                );
                tally.errors += errors.len() as u64;
                tally.read += found.found.len() as u64;
            }
        }
    }
}

#[test]
fn what_is_read_is_right_or_an_error() {
    let mut tally = Tally::default();
    for case in corpus::cases() {
        rounds(&case, &mut tally);
    }
    let Tally { rounds, unopened, older, errors, read } = tally;
    println!(
        "damage: {rounds} rounds: {unopened} pools not opened, {older} opened at an older state, \
         {errors} errors in {read} reads, nothing wrong without an error"
    );
    assert!(errors > 0, "the damage hit nothing");
}
