//! A cache device, scaled down: the feeder's rounds, and the ring that forgets what is written over.

use std::collections::VecDeque;

use l2arc::{Allowance, Tunables};
use rustc_hash::FxHashMap;

use super::ram::{LeavingBlock, LeavingBlocks, MiniRam};
use crate::feed::{self, ROUND_PART, Worth};
use crate::policy::{ArcState, Waiting};

/// Bytes of memory that knowing a block takes at most.
const INDEX_BYTES: u64 = 24;
/// The part of a device that one round may take.
const DEVICE_PART: u64 = 4;
/// The bits of a key that say whether it is tried begin here: others say whether it is drawn.
const TRIED_BIT: u32 = 44;
const SECOND_NS: u64 = 1_000_000_000;

/// One device.
#[derive(Default)]
pub(crate) struct MiniDevice {
    /// Bytes of the device that is simulated.
    bytes: u64,
    held: FxHashMap<u64, DeviceBlock>,
    /// What was written and has not been written over, oldest first.
    ring: VecDeque<RingBlock>,
    ring_bytes: u64,
    /// Nothing has been written over yet.
    is_first: bool,
    /// Blocks that were ever written.
    count: u64,
    worth: Worth,
    allowance: Allowance,
    /// Bytes that the feeder may write but has not, as no block was small enough.
    credit: u64,
    next_ns: Option<u64>,
    /// Blocks found that had come from the recent ones, and bytes written: as of the whole device.
    found: u64,
    written: u64,
}

struct DeviceBlock {
    number: u64,
    is_recent: bool,
}

struct RingBlock {
    key: u64,
    number: u64,
    bytes: u64,
}

/// By how much everything is smaller, and what is set.
#[derive(Clone, Copy)]
pub(crate) struct Feeding<'a> {
    pub(crate) shift: u32,
    pub(crate) tunables: &'a Tunables,
}

/// What a round came to.
enum Round {
    /// There is more to be written.
    More,
    Done,
    /// Nothing was written, and nothing will be before something changes.
    Idle,
}

impl MiniDevice {
    pub(crate) fn new(bytes: u64) -> MiniDevice {
        MiniDevice { bytes, is_first: true, ..MiniDevice::default() }
    }

    /// Bytes that were written to it.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Bytes of memory that its index takes.
    pub(crate) fn index_bytes(&self, shift: u32) -> u64 {
        ((self.held.len() as u64) << shift) * INDEX_BYTES
    }

    /// Whether it has a block that stands for so many.
    pub(crate) fn has(&mut self, key: u64, weight: u64) -> bool {
        let block = self.held.get(&key);
        self.found += block.map_or(0, |block| if block.is_recent { weight } else { 0 });
        block.is_some()
    }

    /// A block is freed.
    pub(crate) fn forget(&mut self, key: u64) {
        self.held.remove(&key);
    }

    /// Keeps only these blocks, in half the room.
    pub(crate) fn keep_only(&mut self, keeps: impl Fn(&u64) -> bool) {
        self.held.retain(|key, _| keeps(key));
        self.ring.retain(|block| keeps(&block.key));
        self.ring_bytes = self.ring.iter().map(|block| block.bytes).sum();
        self.credit /= 2;
    }

    /// Whether a round is due.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        self.next_ns.is_none_or(|next_ns| next_ns <= now_ns)
    }

    /// Does the rounds up to now, with the blocks of the cache in RAM.
    pub(crate) fn feed(&mut self, now_ns: u64, (ram, leaving): (&MiniRam, &LeavingBlocks), how: Feeding<'_>) {
        let Feeding { shift, tunables } = how;
        let long_ns = tunables.feed_secs.saturating_mul(SECOND_NS);
        let short_ns = long_ns.min(tunables.feed_min_ms.saturating_mul(SECOND_NS / 1000)).max(1);
        let mut next_ns = self.next_ns.unwrap_or(now_ns);
        while next_ns <= now_ns {
            next_ns = match self.round(next_ns, (ram, leaving), shift, tunables) {
                Round::More if tunables.feed_again => next_ns.saturating_add(short_ns),
                Round::More | Round::Done => next_ns.saturating_add(long_ns),
                Round::Idle => now_ns.saturating_add(long_ns),
            };
            if next_ns == u64::MAX {
                break;
            }
        }
        self.next_ns = Some(next_ns);
    }

    /// How many bytes of the whole device a round may write.
    fn target(&mut self, now_ns: u64, ram: &MiniRam, tunables: &Tunables) -> u64 {
        let is_warming = ram.left_and_back[0] == 0;
        let wanted = tunables.write_max.saturating_add(if is_warming { tunables.write_boost } else { 0 });
        let allowed = match tunables.dwpd_limit == 0 || self.is_first {
            true => u64::MAX,
            false => self.allowance.left(Allowance::a_day(self.bytes, tunables), now_ns),
        };
        wanted.min(allowed).min(self.bytes / DEVICE_PART).min(ram.bytes() / ROUND_PART)
    }

    fn round(
        &mut self,
        now_ns: u64,
        (ram, leaving): (&MiniRam, &LeavingBlocks),
        shift: u32,
        tunables: &Tunables,
    ) -> Round {
        let [left, back] = ram.left_and_back;
        self.worth.look([left, back, self.found]);
        let is_full = self.index_bytes(shift) > ram.bytes() / 100 * tunables.meta_percent;
        let target = self.target(now_ns, ram, tunables);
        if is_full || target == 0 {
            return Round::Idle;
        }
        let (scaled, before) = (target >> shift, self.credit);
        // where a block is larger than what a round may write here, one is written now and then
        self.credit = (self.credit + scaled.max(1)).min(scaled.max(ram.largest));
        let headroom = feed::headroom(tunables, target) >> shift;
        let chosen = self.choose(leaving, headroom, tunables);
        match chosen {
            Chosen { blocks, is_all } if blocks.is_empty() && is_all => {
                self.credit = before.min(scaled);
                Round::Idle
            }
            Chosen { blocks, is_all } => {
                let bytes = blocks.iter().map(|block| block.1).sum();
                blocks.into_iter().for_each(|block| self.write(block, shift));
                self.credit = self.credit.saturating_sub(bytes);
                if !is_all || bytes > scaled / 2 { Round::More } else { Round::Done }
            }
        }
    }

    /// The blocks of a round.
    fn choose(&self, leaving: &LeavingBlocks, headroom: u64, tunables: &Tunables) -> Chosen {
        let takes_recent = self.worth.is_good() || !tunables.learn;
        let (mut blocks, mut bytes) = (Vec::new(), 0);
        for (state, contents) in feed::passes(tunables.mfuonly) {
            let mut passed = 0;
            for &LeavingBlock { key, bytes: more, is_prefetched, is_touched } in leaving.of(state, contents) {
                passed += more;
                if passed > headroom.max(more) {
                    break;
                }
                let waiting = Waiting { key: &key, value: &(), bytes: more, is_prefetched, is_touched };
                let takes_recent = takes_recent || feed::is_tried(key >> TRIED_BIT);
                if !feed::is_wanted(&waiting, state, tunables, takes_recent) || self.held.contains_key(&key) {
                    continue;
                }
                bytes += more;
                if bytes > self.credit {
                    return Chosen { blocks, is_all: false };
                }
                blocks.push((key, more, state == ArcState::Recent && !is_touched));
            }
        }
        Chosen { blocks, is_all: true }
    }

    fn write(&mut self, (key, bytes, is_recent): (u64, u64, bool), shift: u32) {
        while self.ring_bytes + bytes > (self.bytes >> shift).max(bytes) {
            let Some(old) = self.ring.pop_front() else { break };
            self.ring_bytes -= old.bytes;
            self.is_first = false;
            if self.held.get(&old.key).is_some_and(|block| block.number == old.number) {
                self.held.remove(&old.key);
            }
        }
        let number = self.count;
        self.count += 1;
        self.held.insert(key, DeviceBlock { number, is_recent });
        self.ring.push_back(RingBlock { key, number, bytes });
        self.ring_bytes += bytes;
        let whole = bytes.saturating_mul(1 << shift);
        self.written = self.written.saturating_add(whole);
        if !self.is_first {
            self.allowance.spend(whole);
        }
    }
}

/// The blocks of a round: keys, bytes, and whether they are recent ones.
struct Chosen {
    blocks: Vec<(u64, u64, bool)>,
    /// Nothing else was worth it.
    is_all: bool,
}
