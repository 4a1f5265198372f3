//! Caches of other sizes, foretold: the policy and the feeder themselves, on a sample of the accesses, without any blocks.
//!
//! ```text
//!   access ─▶ drawn by its block's hash? ──no──▶ counted
//!                     │ yes
//!                     ├─▶ ram: the policy, scaled down, at each size ──┐
//!                     ├─▶ device: a feeder and a ring at each size ────┼─▶ estimate: hits, with the interval of 95 %
//!                     └─▶ lru: distances in a stack, for comparison ───┘
//! ```
//!
//! A block is in a sample with all its accesses, or not at all; caches are smaller by the same part. When there are too
//! many blocks, half of them leave, and all caches halve.
//!
//! ```text
//!   one sample      all sizes on the same blocks: what the largest needs is little for the smallest    a pool in use
//!   one for each    sizes that are near each other, on as many blocks as they need                     a trace
//! ```
//!
//! A simulated cache of n blocks is one part in the root of n too large or too small. A small cache on the sample of a large
//! one has few blocks, and where hits go up steeply with the size, it is far off.
//!
//! Sources: Waldspurger, Saemundsson, Ahmad and Park, "Cache Modeling and Optimization using Miniature Simulations",
//! USENIX ATC 2017; Waldspurger, Park, Garthwaite and Ahmad, "Efficient MRC Construction with SHARDS", FAST 2015.

mod access;
mod device;
mod estimate;
mod lru;
mod plan;
mod ram;
mod sample;
#[cfg(test)]
mod tests;

use l2arc::Tunables;

use access::key_of;
pub use access::{AccessKind, BlockAccess, is_in_sample};
pub use estimate::HitShare;
pub use plan::{MiniaturePlan, SAMPLE_BLOCKS, SHIFT_MAX};
use sample::{MiniSample, SampleMark, SampleShares};

/// The part of the largest size beyond which nothing has to be known of a block: where all sizes are on one sample, which
/// also tells how much is touched; and where only the sizes have to be told.
const FAR: f64 = 2.0;
const FAR_SPLIT: f64 = 1.25;

impl MiniaturePlan {
    /// How far off hits are by one standard deviation, as a simulated cache is too large or too small: by how much more is
    /// hit with each part that it is larger.
    fn unsure(sizes: &[u64], hits: &[HitShare], at: usize, sample: &SampleShares) -> f64 {
        let blocks = (sizes[at] as f64 * sample.part / sample.mean_bytes).max(1.0);
        estimate::slope(sizes, hits, at) * ((1.0 - sample.part) / blocks).sqrt()
    }

    fn foretold_rams(&self, samples: &[SampleShares]) -> Vec<ForetoldRam> {
        let all: Vec<(&SampleShares, [HitShare; 2])> =
            samples.iter().flat_map(|sample| sample.rams.iter().map(move |hits| (sample, *hits))).collect();
        let hits: Vec<HitShare> = all.iter().map(|(_, [policy, _])| *policy).collect();
        let one = |(at, (sample, [policy, lru])): (usize, &(&SampleShares, [HitShare; 2]))| ForetoldRam {
            bytes: self.rams[at],
            hits: policy.widened(MiniaturePlan::unsure(&self.rams, &hits, at, sample)),
            lru_hits: *lru,
        };
        all.iter().enumerate().map(one).collect()
    }

    fn foretold_devices(&self, samples: &[SampleShares]) -> Vec<ForetoldDevice> {
        let all: Vec<(&SampleShares, (HitShare, [u64; 2]))> =
            samples.iter().flat_map(|sample| sample.devices.iter().map(move |one| (sample, *one))).collect();
        let hits: Vec<HitShare> = all.iter().map(|(_, (hits, _))| *hits).collect();
        let of_rams: Vec<HitShare> =
            samples.iter().flat_map(|sample| sample.rams.iter().map(|[policy, _]| *policy)).collect();
        let base = (0..of_rams.len()).min_by_key(|at| self.rams[*at].abs_diff(self.ram));
        let one = |(at, (sample, (own, [written, index]))): (usize, &(&SampleShares, (HitShare, [u64; 2])))| {
            // what the cache in RAM before it is off, on its own sample
            let of_base = base.map_or(0.0, |base| MiniaturePlan::unsure(&self.rams, &of_rams, base, sample));
            let unsure = MiniaturePlan::unsure(&self.devices, &hits, at, sample);
            let (bytes, hits) = (self.devices[at], own.widened(unsure.hypot(of_base)));
            ForetoldDevice { bytes, hits, written: *written, index: *index }
        };
        all.iter().enumerate().map(one).collect()
    }
}

/// Caches that are simulated side by side.
pub struct Miniature {
    plan: MiniaturePlan,
    tunables: Tunables,
    /// By size, those in RAM first.
    samples: Vec<MiniSample>,
    /// Demands of all blocks, drawn or not.
    reads: u64,
    times_ns: Option<(u64, u64)>,
}

/// What came of accesses while the simulated caches became full; by default nothing.
#[derive(Clone, Default)]
pub struct WarmUp {
    samples: Vec<SampleMark>,
    reads: u64,
    end_ns: Option<u64>,
}

/// What was foretold of one size of RAM.
#[derive(Clone, Debug)]
pub struct ForetoldRam {
    /// Its bytes.
    pub bytes: u64,
    /// Reads that it serves.
    pub hits: HitShare,
    /// The same, if it were an LRU cache.
    pub lru_hits: HitShare,
}

/// What was foretold of one size of a cache device.
#[derive(Clone, Debug)]
pub struct ForetoldDevice {
    /// Its bytes.
    pub bytes: u64,
    /// Reads that RAM or the device serves.
    pub hits: HitShare,
    /// Bytes that were written to it meanwhile.
    pub written: u64,
    /// Bytes of memory that its index takes.
    pub index: u64,
}

/// What came of the accesses.
#[derive(Clone, Debug)]
pub struct Foretold {
    /// Reads that somebody waited for.
    pub reads: u64,
    /// How many of them were of blocks in the sample.
    pub drawn_reads: u64,
    /// How many blocks the sample has now.
    pub drawn_blocks: u64,
    /// The part of all blocks that it is now.
    pub drawn_part: f64,
    /// From the first access to the last.
    pub elapsed_ns: u64,
    /// Reads that a cache without end would serve: all but the first ones of each block.
    pub endless: HitShare,
    /// By size.
    pub rams: Vec<ForetoldRam>,
    /// By size.
    pub devices: Vec<ForetoldDevice>,
}

impl Miniature {
    /// Empty caches, all on one sample.
    pub fn new(plan: MiniaturePlan, tunables: Tunables) -> Miniature {
        let samples = vec![MiniSample::new(&plan, plan.far(FAR))];
        Miniature { samples, reads: 0, times_ns: None, plan, tunables }
    }

    /// Empty caches, with a sample for sizes that are near each other: each has as many blocks as the plan allows.
    pub fn split(plan: MiniaturePlan, tunables: Tunables) -> Miniature {
        let samples = plan.split().iter().map(|plan| MiniSample::new(plan, plan.far(FAR_SPLIT))).collect();
        Miniature { samples, reads: 0, times_ns: None, plan, tunables }
    }

    /// The sample that knows most blocks.
    fn widest(&self) -> Option<&MiniSample> {
        self.samples.iter().max_by_key(|sample| sample.far())
    }

    /// The part of all blocks that is drawn for the largest size is a half to the power of this.
    pub fn shift(&self) -> u32 {
        self.widest().map_or(0, MiniSample::shift)
    }

    /// One access more.
    pub fn access(&mut self, access: &BlockAccess) {
        let (key, hash) = key_of(access.block);
        self.reads += u64::from(access.kind == AccessKind::Demand);
        self.pass(access.time_ns);
        let access = BlockAccess { block: key, ..*access };
        let tunables = &self.tunables;
        self.samples.iter_mut().for_each(|sample| sample.access(&access, hash, tunables));
    }

    fn pass(&mut self, now_ns: u64) {
        let first_ns = self.times_ns.map_or(now_ns, |(first_ns, _)| first_ns);
        self.times_ns = Some((first_ns, now_ns));
    }

    /// So many reads more were of blocks that are not in the sample, up to then.
    pub fn pass_others(&mut self, reads: u64, now_ns: u64) {
        self.reads += reads;
        self.pass(now_ns);
    }

    /// Bytes of all blocks that are known, in the sample or not.
    pub fn touched(&self) -> u64 {
        self.widest().map_or(0, MiniSample::touched)
    }

    /// Makes samples a half to the power of `shift`, where they are larger.
    pub fn thin_to(&mut self, shift: u32) {
        self.samples.iter_mut().for_each(|sample| sample.thin_to(shift));
    }

    /// What came of the accesses so far, to be left out later: the caches were not full yet.
    pub fn mark(&self) -> WarmUp {
        WarmUp {
            samples: self.samples.iter().map(MiniSample::mark).collect(),
            reads: self.reads,
            end_ns: self.times_ns.map(|(_, last_ns)| last_ns),
        }
    }

    /// What came of the accesses so far.
    pub fn foretold(&self) -> Foretold {
        self.foretold_after(&WarmUp::default())
    }

    /// The same, without what came of accesses before.
    pub fn foretold_after(&self, before: &WarmUp) -> Foretold {
        let reads = self.reads - before.reads;
        let of_sample = |(at, sample): (usize, &MiniSample)| sample.shares(reads, before.samples.get(at));
        let shares: Vec<SampleShares> = self.samples.iter().enumerate().map(of_sample).collect();
        let widest = (0..shares.len()).max_by_key(|at| self.samples[*at].far());
        let begin_ns = |first_ns| before.end_ns.unwrap_or(first_ns);
        Foretold {
            reads,
            drawn_reads: widest.map_or(0, |at| shares[at].drawn_reads),
            drawn_blocks: widest.map_or(0, |at| self.samples[at].blocks()),
            drawn_part: widest.map_or(1.0, |at| shares[at].part),
            elapsed_ns: self.times_ns.map_or(0, |(first, last)| last.saturating_sub(begin_ns(first))),
            endless: widest.map_or(HitShare::default(), |at| shares[at].endless),
            rams: self.plan.foretold_rams(&shares),
            devices: self.plan.foretold_devices(&shares),
        }
    }
}
