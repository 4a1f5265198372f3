//! A sample of blocks, and caches of some of the sizes on it.

use l2arc::Tunables;

use super::access::{AccessKind, BlockAccess, is_drawn};
use super::device::{Feeding, MiniDevice};
use super::estimate::{HitShare, MissTally};
use super::lru::LruStack;
use super::plan::{MiniaturePlan, SHIFT_MAX};
use super::ram::MiniRam;
use crate::policy::Policy;

/// Caches of some sizes side by side, each on the same blocks.
pub(crate) struct MiniSample {
    blocks_max: usize,
    /// Bytes of younger blocks beyond which nothing has to be known of one.
    far: u64,
    /// The part of all blocks that is drawn is a half to the power of this.
    shift: u32,
    rams: Vec<MiniRam>,
    devices: Vec<MiniDevice>,
    /// The cache in RAM that has the devices.
    base: MiniRam,
    stack: LruStack,
    tally: MissTally,
    /// Demands of blocks that were drawn.
    drawn_reads: u64,
}

/// What came of accesses while the simulated caches became full.
#[derive(Clone)]
pub(crate) struct SampleMark {
    tally: MissTally,
    drawn_reads: u64,
    written: Vec<u64>,
}

/// What a sample says of its sizes.
pub(crate) struct SampleShares {
    pub(crate) part: f64,
    /// Bytes of a block, in the mean.
    pub(crate) mean_bytes: f64,
    pub(crate) drawn_reads: u64,
    /// What a cache without end has.
    pub(crate) endless: HitShare,
    /// In RAM, by the policy and by LRU.
    pub(crate) rams: Vec<[HitShare; 2]>,
    /// With devices; bytes written to each, and bytes of its index.
    pub(crate) devices: Vec<(HitShare, [u64; 2])>,
}

impl MiniSample {
    /// Empty caches of the sizes of a plan; `far`: bytes beyond which nothing has to be known of a block.
    pub(crate) fn new(plan: &MiniaturePlan, far: u64) -> MiniSample {
        MiniSample {
            blocks_max: plan.blocks_max,
            far,
            shift: 0,
            rams: plan.rams.iter().map(|bytes| MiniRam::new(*bytes)).collect(),
            devices: plan.devices.iter().map(|bytes| MiniDevice::new(*bytes)).collect(),
            base: MiniRam::new(plan.ram),
            stack: LruStack::default(),
            tally: MissTally::new(2 * plan.rams.len() + plan.devices.len() + 1),
            drawn_reads: 0,
        }
    }

    pub(crate) fn shift(&self) -> u32 {
        self.shift
    }

    pub(crate) fn far(&self) -> u64 {
        self.far
    }

    /// How many blocks it has now.
    pub(crate) fn blocks(&self) -> u64 {
        self.stack.len() as u64
    }

    /// Bytes of all blocks that are known, in the sample or not.
    pub(crate) fn touched(&self) -> u64 {
        self.stack.bytes().saturating_mul(1 << self.shift)
    }

    /// Makes the sample a half to the power of `shift`, if it is larger.
    pub(crate) fn thin_to(&mut self, shift: u32) {
        while self.shift < shift.min(SHIFT_MAX) {
            self.halve();
        }
    }

    /// One access more, to the block of that key and hash.
    pub(crate) fn access(&mut self, access: &BlockAccess, hash: u64, tunables: &Tunables) {
        if !is_drawn(hash, self.shift) {
            return;
        }
        self.feed(access.time_ns, tunables);
        match access.kind {
            AccessKind::Demand => {
                self.drawn_reads += 1;
                self.demand(access, hash);
            }
            _ => self.other(access),
        }
        if self.stack.len() > self.blocks_max {
            self.shrink();
        }
    }

    /// Does the rounds of the feeders that are due.
    fn feed(&mut self, now_ns: u64, tunables: &Tunables) {
        if !self.devices.iter().any(|device| device.is_due(now_ns)) {
            return;
        }
        let (leaving, how) = (self.base.leaving(), Feeding { shift: self.shift, tunables });
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
        let is_in_ram = !self.devices.is_empty() && self.base.ask(access, shift);
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
        let base = (!self.devices.is_empty()).then_some(&mut self.base);
        for ram in self.rams.iter_mut().chain(base) {
            ram.ask(access, self.shift);
        }
    }

    /// Makes the sample smaller: what is too old to matter leaves, or half of all blocks.
    fn shrink(&mut self) {
        if self.touched() > self.far || self.shift >= SHIFT_MAX {
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

    /// What came of the accesses so far.
    pub(crate) fn mark(&self) -> SampleMark {
        SampleMark {
            tally: self.tally.clone(),
            drawn_reads: self.drawn_reads,
            written: self.devices.iter().map(MiniDevice::written).collect(),
        }
    }

    /// What came of so many reads, without what came of accesses before.
    pub(crate) fn shares(&self, reads: u64, before: Option<&SampleMark>) -> SampleShares {
        let part = 1.0 / (1u64 << self.shift) as f64;
        let shares = self.tally.hits_after(before.map(|before| &before.tally), reads, part);
        let (endless, shares) = shares.split_first().map_or((HitShare::default(), &[][..]), |(one, rest)| (*one, rest));
        let (policy, shares) = shares.split_at(self.rams.len());
        let (lru, devices) = shares.split_at(self.rams.len());
        let written_before = |at: usize| before.and_then(|before| before.written.get(at)).copied().unwrap_or(0);
        let devices = self.devices.iter().zip(devices).enumerate().map(|(at, (device, hits))| {
            (*hits, [device.written() - written_before(at), device.index_bytes(self.shift)])
        });
        SampleShares {
            part,
            mean_bytes: (self.stack.bytes() / self.stack.len().max(1) as u64).max(1) as f64,
            drawn_reads: self.drawn_reads - before.map_or(0, |before| before.drawn_reads),
            endless,
            rams: policy.iter().zip(lru).map(|(policy, lru)| [*policy, *lru]).collect(),
            devices: devices.collect(),
        }
    }
}
