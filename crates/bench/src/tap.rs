//! Reads from RAM while the accesses to blocks are noted for a command, beside the same without.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::Result;
use dmu::Mode;

use crate::bed::{Bed, FS};
use crate::data::RECORD;
use crate::options::{Options, parse_numbers};
use crate::rand::{anywhere, make, measure};
use crate::seq;

/// Records of the file, and bytes that are read at a time.
const LOADS: [(u64, u64); 4] = [(4096, 4096), (16_384, 16_384), (RECORD as u64, 4096), (RECORD as u64, RECORD as u64)];
/// Pairs of measurements, one behind the other.
const ROUNDS: usize = 9;
/// How often a command takes what was noted.
const TAKE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(10);

pub(crate) fn run_tap(options: &Options, bed: &Bed) -> Result<()> {
    let bytes = options.mib << 20;
    for (block, size) in LOADS {
        let id = make(options, bed, block)?;
        let pool = bed.open_cold()?;
        let file = pool.dsl().objset(&pool.dsl().find(FS)?, Mode::Plain)?.object(id)?;
        seq::read(&file, bytes / RECORD as u64, |_, _| ())?;
        for threads in parse_numbers(&options.threads)? {
            let rate = || measure(options, &file, threads, size, u64::MAX, &anywhere(bytes, size));
            let mut costs = Vec::new();
            let (mut last, mut shift) = (0.0, 0);
            for _ in 0..ROUNDS {
                let without = rate()?;
                let (with, now) = tapped(pool.cache(), rate)?;
                costs.push((without / with - 1.0) * 100.0);
                (last, shift) = (without, now);
            }
            costs.sort_by(f64::total_cmp);
            let params = format!("\"size\":{size},\"recordsize\":{block},\"threads\":{threads},\"shift\":{shift}");
            options.emit("randread-warm", &params, last, "reads/s");
            options.emit("tap-cost", &params, costs[ROUNDS / 2], "%");
        }
    }
    Ok(())
}

/// Measures while the tap is open, and taken from. What was measured, and the part of the blocks that was noted last, as a
/// power of a half.
fn tapped(cache: &arc::Cache, rate: impl Fn() -> Result<f64>) -> Result<(f64, u32)> {
    let session = cache.open_tap()?;
    let is_over = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        let taking = scope.spawn(|| -> Result<u32> {
            let (mut taken_at, mut shift) = (Instant::now(), 0);
            while !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK);
                if taken_at.elapsed() >= TAKE {
                    shift = cache.tapped(session, shift)?.shift;
                    taken_at = Instant::now();
                }
            }
            Ok(shift)
        });
        let rate = rate();
        is_over.store(true, Ordering::Relaxed);
        let shift = taking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((rate?, shift?))
    });
    cache.close_tap(session);
    outcome
}
