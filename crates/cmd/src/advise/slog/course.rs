//! What is measured of a device, in which order; of a real one, or of a model in virtual time.
//!
//! ```text
//!   reads 4 KiB at random        does it turn?
//!   writes, each with a flush    4 to 128 KiB, one and several at a time: what a log does
//!   bursts, then one flush       does a flush take longer if more is to be flushed?
//!   writes without a flush       until the cache is full: is there a cliff?          not for disks
//! ```

use crate::bench::measure::Measured;

/// Sizes of synchronous writes.
pub(super) const SYNC_SIZES: [u64; 6] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];
/// How many of them at a time.
pub(super) const QUEUES: [u32; 2] = [1, 8];
/// The size by which devices are judged.
pub(super) const SMALL_BYTES: u64 = SYNC_SIZES[0];
/// The size of writes that fill the cache, and how many at a time.
pub(super) const FILL_WRITE_BYTES: u64 = 1 << 20;
pub(super) const FILL_QUEUE: u32 = 4;
/// Random reads that take longer come from a disk that turns.
pub(super) const TURNING_READ_S: f64 = 2.0e-3;

const READ_S: f64 = 1.0;
const SYNC_S: f64 = 0.5;
/// So many runs of small synchronous writes one at a time, of which the best counts: others may use the machine.
const SMALL_RUNS: usize = 5;
const BURSTS: usize = 5;
const BURST_BYTES: u64 = 32 << 20;
/// One look at the rate while the cache fills.
const FILL_STEP_S: f64 = 0.25;
/// Looks that tell the rate at the beginning, and at the end; so many that are slow end it.
const EARLY_STEPS: usize = 8;
const LATE_STEPS: usize = 12;
/// The rate behind a cliff is at most this part of that before it.
const CLIFF_PART: f64 = 0.4;
/// Seconds of everything but filling the cache.
pub(super) const COURSE_S: f64 =
    READ_S + (QUEUES.len() * SYNC_SIZES.len() + SMALL_RUNS - 1) as f64 * SYNC_S + BURSTS as f64 * 0.2;

/// What the hands of a measurement do, one request after the other each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlogLoad {
    /// Reads of that size at random places.
    Reads(u64),
    /// Writes of that size one behind the other, a flush after each.
    Syncs(u64),
    /// The same without a flush.
    Writes(u64),
}

impl SlogLoad {
    /// Bytes of a request.
    pub(super) fn bytes(self) -> u64 {
        match self {
            SlogLoad::Reads(bytes) | SlogLoad::Syncs(bytes) | SlogLoad::Writes(bytes) => bytes,
        }
    }
}

/// What is measured on. Errors, for the user: of the device; that somebody interrupted it.
pub(super) trait SlogBench {
    /// So many hands do that for so many seconds.
    fn load(&mut self, load: SlogLoad, queue: u32, seconds: f64) -> Result<Measured, String>;
    /// One hand writes so many bytes, then flushes: the seconds of the flush.
    fn burst(&mut self, bytes: u64) -> Result<f64, String>;
}

/// How far the cache is filled.
#[derive(Clone, Copy, Debug)]
pub(super) struct FillLimit {
    pub(super) bytes: u64,
    /// Without a limit: as long as it takes.
    pub(super) seconds: Option<f64>,
}

/// Everything that was measured.
#[derive(Clone, Debug)]
pub(super) struct SlogMeasures {
    pub(super) reads: Measured,
    /// By size, one and several at a time.
    pub(super) syncs: Vec<Measured>,
    /// Bytes of a burst, and the flush behind it: the fastest and the usual one.
    pub(super) burst_bytes: u64,
    pub(super) burst_flush_min_s: f64,
    pub(super) burst_flush_s: f64,
    /// Not of disks.
    pub(super) fill: Option<FillMeasures>,
}

/// How the rate went while the cache was filled.
#[derive(Clone, Debug)]
pub(super) struct FillMeasures {
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// Bytes a second: of the best look, of the first ones, and of the last ones.
    pub(super) peak: f64,
    pub(super) early: f64,
    pub(super) late: f64,
    /// Bytes after which the rate fell, and stayed there.
    pub(super) cliff_at: Option<u64>,
}

impl SlogMeasures {
    /// Writes of that size with a flush each, so many at a time.
    pub(super) fn sync(&self, size: u64, queue: u32) -> Option<&Measured> {
        self.syncs.iter().find(|row| row.size == size && row.threads == queue)
    }

    /// Seconds of a write of so many bytes and its flush, one at a time, between the sizes that were measured.
    pub(super) fn sync_s(&self, bytes: u64) -> f64 {
        let took = |size: u64| self.sync(size, 1).map_or(f64::INFINITY, |row| 1.0 / row.rate());
        let above = SYNC_SIZES.iter().position(|size| *size >= bytes).unwrap_or(SYNC_SIZES.len() - 1).max(1);
        let [low, high] = [SYNC_SIZES[above - 1], SYNC_SIZES[above]];
        let part = (bytes as f64 - low as f64) / (high - low) as f64;
        took(low) + part.clamp(0.0, 1.0) * (took(high) - took(low))
    }

    /// The usual time of a small synchronous write, one at a time, in seconds.
    pub(super) fn small_sync_s(&self) -> f64 {
        self.sync(SMALL_BYTES, 1).map_or(f64::INFINITY, median_s)
    }

    /// Whether it turns.
    pub(super) fn turns(&self) -> bool {
        is_turning(&self.reads)
    }
}

fn is_turning(reads: &Measured) -> bool {
    median_s(reads) > TURNING_READ_S
}

pub(super) fn median_s(measured: &Measured) -> f64 {
    measured.percentiles_ns[0] as f64 / 1e9
}

/// Measures everything; `say` is told how far it is. Errors: those of the bench.
pub(super) fn measure_all(
    bench: &mut dyn SlogBench,
    limit: FillLimit,
    say: &mut dyn FnMut(&str),
) -> Result<SlogMeasures, String> {
    say("random reads");
    let reads = bench.load(SlogLoad::Reads(SMALL_BYTES), 1, READ_S)?;
    say("writes with a flush each");
    let mut syncs = Vec::new();
    for size in SYNC_SIZES {
        for queue in QUEUES {
            let runs = if (size, queue) == (SMALL_BYTES, 1) { SMALL_RUNS } else { 1 };
            syncs.push(best_run(bench, SlogLoad::Syncs(size), queue, runs)?);
        }
    }
    say("bursts and their flush");
    let mut times = Vec::new();
    for _ in 0..BURSTS {
        times.push(bench.burst(BURST_BYTES)?);
    }
    times.sort_by(f64::total_cmp);
    let fill = match is_turning(&reads) {
        true => None,
        false => {
            say("writes that fill the cache");
            Some(fill(bench, limit)?)
        }
    };
    Ok(SlogMeasures {
        reads,
        syncs,
        burst_bytes: BURST_BYTES,
        burst_flush_min_s: times[0],
        burst_flush_s: times[BURSTS / 2],
        fill,
    })
}

/// Of some runs, the one with the least median.
fn best_run(bench: &mut dyn SlogBench, load: SlogLoad, queue: u32, runs: usize) -> Result<Measured, String> {
    let mut best = bench.load(load, queue, SYNC_S)?;
    for _ in 1..runs {
        let next = bench.load(load, queue, SYNC_S)?;
        if next.percentiles_ns[0] < best.percentiles_ns[0] {
            best = next;
        }
    }
    Ok(best)
}

/// Writes until the limit, or until the rate has fallen and stays there.
fn fill(bench: &mut dyn SlogBench, limit: FillLimit) -> Result<FillMeasures, String> {
    let (mut rates, mut ends): (Vec<f64>, Vec<u64>) = (Vec::new(), Vec::new());
    let (mut bytes, mut seconds) = (0, 0.0);
    let enough = |rates: &[f64]| rates.len() >= EARLY_STEPS + LATE_STEPS && cliff_step(rates).is_some();
    while rates.is_empty() || bytes < limit.bytes && limit.seconds.is_none_or(|most| seconds < most) && !enough(&rates)
    {
        let step = bench.load(SlogLoad::Writes(FILL_WRITE_BYTES), FILL_QUEUE, FILL_STEP_S)?;
        bytes += step.count * step.size;
        seconds += step.seconds;
        rates.push(step.bytes_rate());
        ends.push(bytes);
    }
    let cliff_at = cliff_step(&rates).map(|at| ends[at]);
    let peak = rates.iter().copied().fold(0.0, f64::max);
    Ok(FillMeasures { bytes, seconds, peak, early: early(&rates), late: late(&rates), cliff_at })
}

fn early(rates: &[f64]) -> f64 {
    median(&rates[..rates.len().min(EARLY_STEPS)])
}

fn late(rates: &[f64]) -> f64 {
    median(&rates[rates.len().saturating_sub(LATE_STEPS)..])
}

/// The last look before the rate fell for good.
fn cliff_step(rates: &[f64]) -> Option<usize> {
    let slow = CLIFF_PART * early(rates);
    let from = rates.iter().rposition(|rate| *rate >= slow).map_or(0, |last| last + 1);
    (rates.len() - from >= LATE_STEPS).then(|| from.saturating_sub(1))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}
