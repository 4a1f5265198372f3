//! A stack of blocks, the last used on top: how deep a block lies says which LRU caches have it.
//!
//! ```text
//!   slot       0   1   2   3   4   5          each use takes the next slot; a tree sums bytes of slots up to one
//!   block      a   -   c   -   b   a' ◀ next
//! ```
//!
//! Source of the tree: Fenwick, "A New Data Structure for Cumulative Frequency Tables", 1994.

use rustc_hash::FxHashMap;

/// Slots at first.
const SLOTS_MIN: usize = 1 << 10;

/// Blocks in the order of their last uses.
#[derive(Default)]
pub(crate) struct LruStack {
    places: FxHashMap<u64, (u32, u64)>,
    /// The block in each slot that was given out, as far as it has not moved on.
    slots: Vec<Option<u64>>,
    /// Nothing is in slots below.
    oldest: usize,
    tree: Vec<u64>,
    bytes: u64,
}

impl LruStack {
    /// How many blocks there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Their bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A block is used: the bytes of all that were used since its last use, and its own; `None` if it was not known.
    pub(crate) fn access(&mut self, block: u64, bytes: u64) -> Option<u64> {
        let before = self.take(block);
        if self.slots.len() + 1 >= self.tree.len() {
            self.renumber();
        }
        let slot = self.slots.len();
        self.slots.push(Some(block));
        self.places.insert(block, (slot as u32, bytes));
        self.add(slot, bytes as i64);
        self.bytes += bytes;
        before
    }

    /// A block is known no more.
    pub(crate) fn forget(&mut self, block: u64) {
        self.take(block);
    }

    /// The block at the bottom is known no more.
    pub(crate) fn forget_oldest(&mut self) {
        while let Some(slot) = self.slots.get(self.oldest) {
            self.oldest += 1;
            if let Some(block) = *slot {
                self.take(block);
                return;
            }
        }
    }

    /// Keeps only these blocks.
    pub(crate) fn keep_only(&mut self, keeps: impl Fn(&u64) -> bool) {
        let unwanted: Vec<u64> = self.places.keys().filter(|block| !keeps(block)).copied().collect();
        unwanted.into_iter().for_each(|block| self.forget(block));
    }

    fn take(&mut self, block: u64) -> Option<u64> {
        let (slot, bytes) = self.places.remove(&block)?;
        let younger = self.bytes - self.up_to(slot as usize);
        self.slots[slot as usize] = None;
        self.add(slot as usize, -(bytes as i64));
        self.bytes -= bytes;
        Some(younger + bytes)
    }

    /// Gives all blocks the first slots, in their order.
    fn renumber(&mut self) {
        let blocks: Vec<u64> = self.slots.drain(..).flatten().collect();
        self.tree = vec![0; (4 * blocks.len()).max(SLOTS_MIN)];
        self.oldest = 0;
        for (slot, block) in blocks.iter().enumerate() {
            let bytes = self.places.get_mut(block).map_or(0, |place| {
                place.0 = slot as u32;
                place.1
            });
            self.add(slot, bytes as i64);
        }
        self.slots.extend(blocks.into_iter().map(Some));
    }

    fn add(&mut self, slot: usize, bytes: i64) {
        let mut at = slot + 1;
        while let Some(sum) = self.tree.get_mut(at) {
            *sum = sum.wrapping_add_signed(bytes);
            at += at & at.wrapping_neg();
        }
    }

    /// Bytes of the blocks in slots up to this one.
    fn up_to(&self, slot: usize) -> u64 {
        let (mut at, mut sum) = (slot + 1, 0u64);
        while at > 0 {
            sum = sum.wrapping_add(self.tree[at]);
            at &= at - 1;
        }
        sum
    }
}
