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
//! A block is in the sample with all its accesses, or not at all; caches are smaller by the same part. When there are too
//! many blocks, half of them leave, and all caches halve.
//!
//! Sources: Waldspurger, Saemundsson, Ahmad and Park, "Cache Modeling and Optimization using Miniature Simulations",
//! USENIX ATC 2017; Waldspurger, Park, Garthwaite and Ahmad, "Efficient MRC Construction with SHARDS", FAST 2015.

mod access;
mod device;
mod estimate;
mod lru;
mod ram;
#[cfg(test)]
mod tests;

use l2arc::Tunables;

use crate::policy::Policy;
pub use access::{AccessKind, BlockAccess, is_in_sample};
use access::{is_drawn, key_of};
use device::{Feeding, MiniDevice};
pub use estimate::HitShare;
use estimate::MissTally;
use lru::LruStack;
use ram::MiniRam;

/// Blocks that a sample has at most; it has half of them after it was halved.
pub const SAMPLE_BLOCKS: usize = 1 << 16;
/// Halvings of a sample at most.
pub const SHIFT_MAX: u32 = 32;
/// The part of the largest size beyond which nothing has to be known of a block.
const FAR: u64 = 2;

/// The sizes that are tried.
#[derive(Clone, Debug)]
pub struct MiniaturePlan {
    /// Bytes of the cache in RAM, to which cache devices are added.
    pub ram: u64,
    /// Bytes of other caches in RAM, without a device.
    pub rams: Vec<u64>,
    /// Bytes of cache devices.
    pub devices: Vec<u64>,
    /// Blocks of the sample at most.
    pub blocks_max: usize,
}

impl MiniaturePlan {
    /// Twelve sizes of each, around the size of the cache in RAM.
    pub fn around(ram: u64) -> MiniaturePlan {
        let times = |eighths: [u64; 12]| eighths.map(|part| (ram / 8).saturating_mul(part).max(1)).to_vec();
        MiniaturePlan {
            ram,
            rams: times([1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128]),
            devices: times([4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256]),
            blocks_max: SAMPLE_BLOCKS,
        }
    }
}

/// Caches that are simulated side by side.
pub struct Miniature {
    plan: MiniaturePlan,
    tunables: Tunables,
    /// The part of all blocks that is drawn is a half to the power of this.
    shift: u32,
    rams: Vec<MiniRam>,
    devices: Vec<MiniDevice>,
    /// The cache in RAM that has the devices.
    base: MiniRam,
    stack: LruStack,
    tally: MissTally,
    /// Demands of all blocks, drawn or not, and of those drawn.
    reads: u64,
    drawn_reads: u64,
    times_ns: Option<(u64, u64)>,
}

/// What came of accesses while the simulated caches became full; by default nothing.
#[derive(Clone, Default)]
pub struct WarmUp {
    tally: Option<MissTally>,
    reads: u64,
    drawn_reads: u64,
    end_ns: Option<u64>,
    written: Vec<u64>,
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
    /// Empty caches.
    pub fn new(plan: MiniaturePlan, tunables: Tunables) -> Miniature {
        let series = 2 * plan.rams.len() + plan.devices.len() + 1;
        Miniature {
            shift: 0,
            rams: plan.rams.iter().map(|bytes| MiniRam::new(*bytes)).collect(),
            devices: plan.devices.iter().map(|bytes| MiniDevice::new(*bytes)).collect(),
            base: MiniRam::new(plan.ram),
            stack: LruStack::default(),
            tally: MissTally::new(series),
            reads: 0,
            drawn_reads: 0,
            times_ns: None,
            plan,
            tunables,
        }
    }

    /// The part of all blocks that is drawn is a half to the power of this.
    pub fn shift(&self) -> u32 {
        self.shift
    }

    /// One access more.
    pub fn access(&mut self, access: &BlockAccess) {
        let (key, hash) = key_of(access.block);
        let is_demand = access.kind == AccessKind::Demand;
        self.reads += u64::from(is_demand);
        self.pass(access.time_ns);
        if !is_drawn(hash, self.shift) {
            return;
        }
        self.drawn_reads += u64::from(is_demand);
        self.feed(access.time_ns);
        let access = BlockAccess { block: key, ..*access };
        match is_demand {
            true => self.demand(&access, hash),
            false => self.other(&access),
        }
        if self.stack.len() > self.plan.blocks_max {
            self.shrink();
        }
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
        self.stack.bytes().saturating_mul(1 << self.shift)
    }

    /// Makes the sample a half to the power of `shift`, if it is larger.
    pub fn thin_to(&mut self, shift: u32) {
        while self.shift < shift.min(SHIFT_MAX) {
            self.halve();
        }
    }

    /// Does the rounds of the feeders that are due.
    fn feed(&mut self, now_ns: u64) {
        if !self.devices.iter().any(|device| device.is_due(now_ns)) {
            return;
        }
        let (leaving, how) = (self.base.leaving(), Feeding { shift: self.shift, tunables: &self.tunables });
        for device in self.devices.iter_mut().filter(|device| device.is_due(now_ns)) {
            device.feed(now_ns, (&self.base, &leaving), how);
        }
    }

    fn demand(&mut self, access: &BlockAccess, hash: u64) {
        let (shift, weight) = (self.shift, 1 << self.shift);
        let distance = self.stack.access(access.block, access.bytes).map(|bytes| bytes.saturating_mul(weight));
        let mut misses = self.tally.read(hash, weight);
        misses.count(distance.is_none());
        for ram in &mut self.rams {
            misses.count(!ram.ask(access, shift));
        }
        for ram in &self.rams {
            misses.count(distance.is_none_or(|bytes| bytes > ram.bytes()));
        }
        let is_in_ram = self.base.ask(access, shift);
        for device in &mut self.devices {
            misses.count(!is_in_ram && !device.has(access.block, weight));
        }
    }

    /// What is no read that somebody waits for.
    fn other(&mut self, access: &BlockAccess) {
        let block = access.block;
        match access.kind {
            AccessKind::Demand | AccessKind::Prefetch => {}
            AccessKind::Written => drop(self.stack.access(block, access.bytes)),
            AccessKind::Freed => self.stack.forget(block),
        }
        if access.kind != AccessKind::Prefetch {
            self.devices.iter_mut().for_each(|device| device.forget(block));
        }
        for ram in self.rams.iter_mut().chain([&mut self.base]) {
            ram.ask(access, self.shift);
        }
    }

    /// Makes the sample smaller: what is too old to matter leaves, or half of all blocks.
    fn shrink(&mut self) {
        let sizes = self.plan.rams.iter().chain(&self.plan.devices).chain([&self.plan.ram]);
        let far = sizes.max().copied().unwrap_or(0).saturating_mul(FAR);
        let is_far = self.stack.bytes().saturating_mul(1 << self.shift) > far;
        if is_far || self.shift >= SHIFT_MAX {
            self.stack.forget_oldest();
            return;
        }
        self.halve();
    }

    fn halve(&mut self) {
        self.shift += 1;
        let shift = self.shift;
        let keeps = move |key: &u64| is_drawn(Policy::<u64, ()>::hash_of(key), shift);
        self.stack.keep_only(keeps);
        self.devices.iter_mut().for_each(|device| device.keep_only(keeps));
        self.rams.iter_mut().chain([&mut self.base]).for_each(|ram| ram.halve(shift));
    }

    /// What came of the accesses so far, to be left out later: the caches were not full yet.
    pub fn mark(&self) -> WarmUp {
        WarmUp {
            tally: Some(self.tally.clone()),
            reads: self.reads,
            drawn_reads: self.drawn_reads,
            end_ns: self.times_ns.map(|(_, last_ns)| last_ns),
            written: self.devices.iter().map(MiniDevice::written).collect(),
        }
    }

    /// What came of the accesses so far.
    pub fn foretold(&self) -> Foretold {
        self.foretold_after(&WarmUp::default())
    }

    /// The same, without what came of accesses before.
    pub fn foretold_after(&self, before: &WarmUp) -> Foretold {
        let part = 1.0 / (1u64 << self.shift) as f64;
        let (reads, drawn_reads) = (self.reads - before.reads, self.drawn_reads - before.drawn_reads);
        let shares = self.tally.hits_after(before.tally.as_ref(), reads, part);
        let begin_ns = |first_ns| before.end_ns.unwrap_or(first_ns);
        let written_before = |at: usize| before.written.get(at).copied().unwrap_or(0);
        let (endless, shares) = shares.split_first().map_or((HitShare::default(), &[][..]), |(one, rest)| (*one, rest));
        let (policy, shares) = shares.split_at(self.rams.len());
        let (lru, devices) = shares.split_at(self.rams.len());
        let mean = (self.stack.bytes() / self.stack.len().max(1) as u64).max(1) as f64;
        // a simulated cache of n blocks is as much as the part of one over the root of n too large or too small
        let unsure = |sizes: &[u64], shares: &[HitShare], at: usize| match self.shift {
            0 => 0.0,
            _ => estimate::slope(sizes, shares, at) / (sizes[at] as f64 * part / mean).max(1.0).sqrt(),
        };
        let base = (0..policy.len()).min_by_key(|at| self.plan.rams[*at].abs_diff(self.plan.ram));
        let of_base = base.map_or(0.0, |at| unsure(&self.plan.rams, policy, at));
        let rams = (0..policy.len()).map(|at| ForetoldRam {
            bytes: self.plan.rams[at],
            hits: policy[at].widened(unsure(&self.plan.rams, policy, at)),
            lru_hits: lru[at],
        });
        let devices = self.devices.iter().enumerate().map(|(at, device)| ForetoldDevice {
            bytes: device.bytes(),
            hits: devices[at].widened(unsure(&self.plan.devices, devices, at).hypot(of_base)),
            written: device.written() - written_before(at),
            index: device.index_bytes(self.shift),
        });
        Foretold {
            reads,
            drawn_reads,
            drawn_blocks: self.stack.len() as u64,
            drawn_part: part,
            elapsed_ns: self.times_ns.map_or(0, |(first, last)| last.saturating_sub(begin_ns(first))),
            endless,
            rams: rams.collect(),
            devices: devices.collect(),
        }
    }
}
