//! A cache in RAM, scaled down: the policy under a budget and with the target that follows its ghosts.

use super::access::{AccessKind, BlockAccess, is_drawn};
use crate::policy::{AccessPurpose, ArcState, Contents, Limits, Policy, Waiting};

/// A block that is in one, as far as feeders look at it.
#[derive(Clone, Copy)]
pub(crate) struct LeavingBlock {
    pub(crate) key: u64,
    pub(crate) bytes: u64,
    pub(crate) is_prefetched: bool,
    pub(crate) is_touched: bool,
}

/// The blocks of a cache by list, those first that leave first.
pub(crate) struct LeavingBlocks([Vec<LeavingBlock>; 4]);

impl LeavingBlocks {
    /// Those of one list.
    pub(crate) fn of(&self, state: ArcState, contents: Contents) -> &[LeavingBlock] {
        &self.0[2 * state as usize + contents as usize]
    }
}

/// One cache.
pub(crate) struct MiniRam {
    /// Bytes of the cache that is simulated.
    bytes: u64,
    policy: Policy<u64, ()>,
    /// The target of the recent list, and the largest block so far: as they are here.
    target: u64,
    pub(crate) largest: u64,
    /// Recent blocks that left, and that were asked for again: as they would be in the whole cache.
    pub(crate) left_and_back: [u64; 2],
}

impl MiniRam {
    pub(crate) fn new(bytes: u64) -> MiniRam {
        let none = Limits { budget: 0, recent: 0, metadata_max: u64::MAX, metadata_min: 0 };
        MiniRam { bytes, policy: Policy::new(none), target: 0, largest: 0, left_and_back: [0; 2] }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All its blocks.
    pub(crate) fn leaving(&self) -> LeavingBlocks {
        let of =
            |state: ArcState, contents: Contents| -> Vec<LeavingBlock> {
                let waiting = self.policy.leaving(state, contents);
                let one = |&Waiting { key, bytes, is_prefetched, is_touched, .. }: &Waiting<'_, u64, ()>| {
                    LeavingBlock { key: *key, bytes, is_prefetched, is_touched }
                };
                waiting.map(|waiting| one(&waiting)).collect()
            };
        use {ArcState::*, Contents::*};
        LeavingBlocks([of(Recent, Data), of(Recent, Metadata), of(Frequent, Data), of(Frequent, Metadata)])
    }

    fn limits(&self, shift: u32) -> Limits {
        Limits { budget: self.bytes >> shift, recent: self.target, metadata_max: u64::MAX, metadata_min: 0 }
    }

    /// Does what an access does to the cache; whether the block was there.
    pub(crate) fn ask(&mut self, access: &BlockAccess, shift: u32) -> bool {
        let &BlockAccess { block, bytes, contents, kind, .. } = access;
        let purpose = match kind {
            AccessKind::Demand => AccessPurpose::Demand,
            AccessKind::Prefetch => AccessPurpose::Prefetch,
            AccessKind::Written | AccessKind::Freed => {
                self.policy.remove(&block);
                self.policy.forget_ghost(&block);
                AccessPurpose::Demand
            }
        };
        if kind == AccessKind::Freed || self.policy.get(&block, purpose).is_some() {
            return true;
        }
        let limits = self.limits(shift);
        self.policy.set_limits(limits);
        let inserted = self.policy.insert(block, (), bytes, contents, purpose);
        self.largest = self.largest.max(bytes);
        if let Some((state, step)) = inserted.ghost {
            self.target = self.target.saturating_add_signed(step).min(limits.budget);
            self.left_and_back[1] += if state == ArcState::Recent { 1 << shift } else { 0 };
        }
        self.evict(shift);
        false
    }

    fn evict(&mut self, shift: u32) {
        let limits = self.limits(shift);
        let over = self.policy.bytes().saturating_sub(limits.budget);
        if over == 0 {
            return;
        }
        let mut victims = Vec::new();
        self.policy.set_limits(limits);
        self.policy.evict(over, usize::MAX, &mut victims);
        let recent = victims.iter().filter(|victim| victim.state == ArcState::Recent).count() as u64;
        self.left_and_back[0] += recent << shift;
    }

    /// Keeps the blocks that are drawn with that shift, in half the room.
    pub(crate) fn halve(&mut self, shift: u32) {
        self.policy.keep_only(|hash| is_drawn(hash, shift));
        self.target /= 2;
        self.evict(shift);
    }
}
