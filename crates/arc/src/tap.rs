//! The tap of the cache: the accesses to blocks that are in a sample, noted for a command that simulates other caches.
//!
//! A block is drawn by its hash as [`crate::miniature`] draws it. All are, until there is no room for more: then half of
//! the blocks leave the sample, with all that is noted of them. Reads of other blocks are only counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use base::{Env, Result, Tap};
use format::blkptr::BlkPtr;
use l2arc::L2Key;

use crate::miniature::{AccessKind, BlockAccess, SHIFT_MAX, is_in_sample};
use crate::policy::Contents;

/// Bytes of memory that it takes at most.
const BYTES_MAX: usize = 8 << 20;
/// Counters of reads, so that threads do not meet in one.
const STRIPES: usize = 16;
/// Bits of a noted access that are not its bytes.
const BYTES_SHIFT: u32 = 8;
const KIND_BITS: u64 = 3;
const METADATA: u64 = 1 << 2;

/// An access, as it is noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TappedAccess {
    block: u64,
    /// `bytes << 8 | is metadata << 2 | kind`.
    what: u64,
}

/// What was noted since the last time.
#[derive(Debug)]
pub struct TappedAccesses {
    /// In their order.
    pub accesses: Vec<TappedAccess>,
    /// Accesses for which there was no room.
    pub lost: u64,
    /// The part of all blocks that is drawn is a half to the power of this.
    pub shift: u32,
    /// Reads of all blocks that somebody waited for, since the session began.
    pub reads: u64,
    /// How many of them were not in RAM.
    pub misses: u64,
}

#[derive(Default)]
#[repr(align(128))]
struct Stripe {
    reads: AtomicU64,
    misses: AtomicU64,
}

/// See the top of the file.
pub(crate) struct AccessTap {
    tap: Arc<Tap<TappedAccess>>,
    shift: AtomicU32,
    stripes: [Stripe; STRIPES],
}

impl Default for AccessTap {
    fn default() -> AccessTap {
        AccessTap { tap: Arc::new(Tap::new(BYTES_MAX)), shift: AtomicU32::new(0), stripes: Default::default() }
    }
}

impl TappedAccess {
    /// Bytes of its encoding.
    pub const ENCODED: usize = 16;

    fn new(block: u64, bytes: u64, contents: Contents, kind: AccessKind) -> TappedAccess {
        let is_metadata = if contents == Contents::Metadata { METADATA } else { 0 };
        TappedAccess { block, what: bytes << BYTES_SHIFT | is_metadata | kind as u64 }
    }

    /// As it goes to another process.
    pub fn encode(&self) -> [u8; TappedAccess::ENCODED] {
        (u128::from(self.what) << 64 | u128::from(self.block)).to_le_bytes()
    }

    /// The access of an encoding, at that time; `None` if it is none.
    pub fn decode(bytes: &[u8], time_ns: u64) -> Option<BlockAccess> {
        let whole = u128::from_le_bytes(bytes.try_into().ok()?);
        let (block, what) = (whole as u64, (whole >> 64) as u64);
        let kind = match what & KIND_BITS {
            0 => AccessKind::Demand,
            1 => AccessKind::Prefetch,
            2 => AccessKind::Written,
            _ => AccessKind::Freed,
        };
        let contents = if what & METADATA == 0 { Contents::Data } else { Contents::Metadata };
        Some(BlockAccess { time_ns, block, bytes: what >> BYTES_SHIFT, contents, kind })
    }
}

impl AccessTap {
    /// Whether accesses are wanted.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.tap.is_open()
    }

    /// Opens it. Errors: as of [`Env::open_tap`].
    pub(crate) fn open(&self, env: &Env) -> Result<u64> {
        let session = env.open_tap(&self.tap)?;
        self.shift.store(0, Ordering::Relaxed);
        for stripe in &self.stripes {
            stripe.reads.store(0, Ordering::Relaxed);
            stripe.misses.store(0, Ordering::Relaxed);
        }
        Ok(session)
    }

    pub(crate) fn close(&self, session: u64) {
        self.tap.close(session);
    }

    /// What was noted, of a sample that is a half to the power of `shift` from now on, if it was larger. Errors: as of
    /// [`Tap::take`].
    pub(crate) fn take(&self, session: u64, shift: u32, now_ns: u64) -> Result<TappedAccesses> {
        self.shift.fetch_max(shift.min(SHIFT_MAX), Ordering::Relaxed);
        let taken = self.tap.take(session, now_ns)?;
        let sum = |counter: fn(&Stripe) -> &AtomicU64| {
            self.stripes.iter().map(|stripe| counter(stripe).load(Ordering::Relaxed)).sum()
        };
        Ok(TappedAccesses {
            accesses: taken.entries,
            lost: taken.lost,
            shift: self.shift.load(Ordering::Relaxed),
            reads: sum(|stripe| &stripe.reads),
            misses: sum(|stripe| &stripe.misses),
        })
    }

    /// Notes an access to a block that takes so many bytes in RAM.
    pub(crate) fn note(&self, bp: &BlkPtr, bytes: impl FnOnce() -> u64, contents: Contents, access: CacheAccess) {
        let block = L2Key::of(bp).hash();
        if let CacheAccess::Read { is_miss } = access {
            let stripe = &self.stripes[(block >> 60) as usize % STRIPES];
            stripe.reads.fetch_add(1, Ordering::Relaxed);
            if is_miss {
                stripe.misses.fetch_add(1, Ordering::Relaxed);
            }
        }
        if is_in_sample(block, self.shift.load(Ordering::Relaxed)) {
            self.tap.note(TappedAccess::new(block, bytes(), contents, access.kind()), |entries| self.thin(entries));
        }
    }

    /// Makes the sample half as large.
    fn thin(&self, entries: &mut Vec<TappedAccess>) {
        let shift = self.shift.load(Ordering::Relaxed);
        if shift < SHIFT_MAX && !is_of_few_blocks(entries) {
            self.shift.store(shift + 1, Ordering::Relaxed);
            entries.retain(|entry| is_in_sample(entry.block, shift + 1));
        }
    }
}

/// Whether all entries are of so few blocks that half of them would say nothing.
fn is_of_few_blocks(entries: &[TappedAccess]) -> bool {
    let mut blocks = rustc_hash::FxHashSet::default();
    !entries.iter().any(|entry| {
        blocks.insert(entry.block);
        blocks.len() > crate::miniature::SAMPLE_BLOCKS / 4
    })
}

/// What happens to a block.
#[derive(Clone, Copy)]
pub(crate) enum CacheAccess {
    /// A read that somebody waits for.
    Read { is_miss: bool },
    /// A read that somebody may wait for later.
    Ahead,
    /// It is new.
    Written,
    /// It is no more.
    Freed,
}

impl CacheAccess {
    fn kind(self) -> AccessKind {
        match self {
            CacheAccess::Read { .. } => AccessKind::Demand,
            CacheAccess::Ahead => AccessKind::Prefetch,
            CacheAccess::Written => AccessKind::Written,
            CacheAccess::Freed => AccessKind::Freed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_come_back_from_their_bytes() {
        for (number, kind) in
            [AccessKind::Demand, AccessKind::Prefetch, AccessKind::Written, AccessKind::Freed].into_iter().enumerate()
        {
            for contents in [Contents::Data, Contents::Metadata] {
                let bytes = 16 << 20;
                let noted = TappedAccess::new(number as u64 + u64::MAX / 2, bytes, contents, kind);
                let back = TappedAccess::decode(&noted.encode(), 7).unwrap();
                assert_eq!((back.block, back.bytes, back.time_ns), (number as u64 + u64::MAX / 2, bytes, 7));
                assert_eq!((back.contents, back.kind), (contents, kind));
            }
        }
        assert!(TappedAccess::decode(&[0; 15], 0).is_none());
    }

    #[test]
    fn a_full_tap_halves_its_sample() {
        let tap = AccessTap::default();
        let session = tap.open(&Env::fixed(0)).unwrap();
        let most = BYTES_MAX as u64 / 2 / 16;
        let note = |block: u64| {
            let block = base::split_mix(block);
            if is_in_sample(block, tap.shift.load(Ordering::Relaxed)) {
                let entry = TappedAccess::new(block, 4096, Contents::Data, AccessKind::Demand);
                tap.tap.note(entry, |entries| tap.thin(entries));
            }
        };
        (0..3 * most).for_each(note);
        let taken = tap.take(session, 0, 0).unwrap();
        assert_eq!((taken.shift, taken.lost), (2, 0));
        // those for which it was halved had been drawn before
        let drawn = taken.accesses.iter().filter(|one| is_in_sample(one.block, 2)).count();
        assert!(drawn as u64 > most / 2 && taken.accesses.len() <= drawn + 2, "{drawn} of {}", taken.accesses.len());
        // a few blocks that are read again and again stay, and what there is no room for is counted
        let hot: Vec<u64> = (0..).filter(|n| is_in_sample(base::split_mix(*n), 2)).take(100).collect();
        (0..most + 50).for_each(|n| note(hot[n as usize % hot.len()]));
        let taken = tap.take(session, 5, 0).unwrap();
        assert_eq!((taken.shift, taken.lost, taken.accesses.len() as u64), (5, 50, most));
        tap.close(session);
        assert!(!tap.is_open());
    }
}
