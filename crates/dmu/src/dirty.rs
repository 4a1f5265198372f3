//! What has been changed in memory and is not on disk yet, by group.
//!
//! ```text
//!   first change of an object, of a dnode ─▶ bytes, roughly
//!   changed block                         ─▶ its bytes, and how many blocks of its size there are
//! ```
//!
//! Every change of every thread is counted here, so there is no lock. The bytes slow down operations
//! ([`crate::Throttle`]); the sizes tell how much room all of it may come to take ([`Changes::most_bytes`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use format::ids::Txg;

/// log2 of the bytes of the least block.
const SHIFT_MIN: u32 = 9;
/// Sizes of blocks that are told apart: 512 bytes to 16 MiB.
const SIZES: usize = 16;
/// Bytes that a block counts for beside its own: for the pointers to it, each of which may be in a block of its own.
const POINTER_BYTES: u64 = 512;

/// The changes of the two groups in memory.
#[derive(Debug, Default)]
pub(crate) struct Dirty([DirtyGroup; 2]);

#[derive(Debug, Default)]
struct DirtyGroup {
    small_bytes: AtomicU64,
    block_bytes: AtomicU64,
    blocks: [AtomicU64; SIZES],
    /// Somebody was told that there is much.
    is_told: AtomicBool,
}

/// Changes that wait to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Bytes of what is no whole block.
    pub small_bytes: u64,
    /// Blocks, by the binary logarithm of their bytes, rounded up, from 512 on.
    blocks: [u64; SIZES],
}

impl Dirty {
    /// Counts bytes that are no whole block. True if there is much now, and nobody was told so before.
    pub(crate) fn add(&self, txg: Txg, bytes: u64, much: u64) -> bool {
        let group = self.group(txg);
        group.small_bytes.fetch_add(bytes, Ordering::SeqCst);
        group.becomes_much(much)
    }

    /// Counts a block of that many bytes, which is written `copies` times. Otherwise as [`Dirty::add`].
    pub(crate) fn add_block(&self, txg: Txg, bytes: u64, copies: u64, much: u64) -> bool {
        let group = self.group(txg);
        group.blocks[size_of(bytes)].fetch_add(copies, Ordering::Relaxed);
        group.block_bytes.fetch_add(bytes, Ordering::SeqCst);
        group.becomes_much(much)
    }

    /// Counts a block of that many bytes of which only the pointer is written. Otherwise as [`Dirty::add`].
    pub(crate) fn add_pointer(&self, txg: Txg, bytes: u64, much: u64) -> bool {
        self.group(txg).blocks[size_of(bytes)].fetch_add(1, Ordering::Relaxed);
        self.add(txg, POINTER_BYTES, much)
    }

    /// Bytes that were changed in a group.
    pub(crate) fn bytes(&self, txg: Txg) -> u64 {
        self.group(txg).bytes()
    }

    /// Bytes that were changed in both groups.
    pub(crate) fn all_bytes(&self) -> u64 {
        self.0.iter().map(DirtyGroup::bytes).sum()
    }

    /// What was changed in both groups.
    pub(crate) fn changes(&self) -> Changes {
        let mut changes = Changes::default();
        for group in &self.0 {
            changes.small_bytes += group.small_bytes.load(Ordering::SeqCst);
            for (sum, count) in changes.blocks.iter_mut().zip(&group.blocks) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
        changes
    }

    /// A group is on disk.
    pub(crate) fn clear(&self, txg: Txg) {
        let group = self.group(txg);
        group.blocks.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        group.small_bytes.store(0, Ordering::SeqCst);
        group.block_bytes.store(0, Ordering::SeqCst);
        group.is_told.store(false, Ordering::SeqCst);
    }

    fn group(&self, txg: Txg) -> &DirtyGroup {
        &self.0[txg.slot(2)]
    }
}

impl DirtyGroup {
    fn bytes(&self) -> u64 {
        self.small_bytes.load(Ordering::SeqCst) + self.block_bytes.load(Ordering::SeqCst)
    }

    fn becomes_much(&self, much: u64) -> bool {
        self.bytes() >= much && !self.is_told.load(Ordering::Relaxed) && !self.is_told.swap(true, Ordering::SeqCst)
    }
}

impl Changes {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Changes::default()
    }

    /// Bytes on disk that they take at most.
    pub fn most_bytes(&self, growth: &Growth) -> u64 {
        let small = self.small_bytes.saturating_mul(growth.inflation);
        let sizes = self.blocks.iter().zip(&growth.of_block);
        sizes.fold(small, |sum, (count, each)| sum.saturating_add(count.saturating_mul(*each)))
    }
}

/// How much changes may grow on their way to disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    /// Bytes for one that is in no whole block.
    inflation: u64,
    /// Bytes for a block and the pointers to it, by its size.
    of_block: [u64; SIZES],
}

impl Growth {
    /// `of_block` tells how many bytes a block takes at most, by its own; what is small, and the pointers to blocks,
    /// grow by `inflation`.
    pub fn new(inflation: u64, of_block: impl Fn(u64) -> u64) -> Growth {
        let pointers = inflation.saturating_mul(POINTER_BYTES);
        let each = |size: usize| of_block(1 << (SHIFT_MIN + size as u32)).saturating_add(pointers);
        Growth { inflation, of_block: std::array::from_fn(each) }
    }
}

/// What groups may need of the devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    growth: Growth,
    spare: u64,
}

impl Needs {
    /// Changes grow so much, and `spare` bytes are needed beside them.
    pub fn new(growth: Growth, spare: u64) -> Needs {
        Needs { growth, spare }
    }

    /// Bytes that are to be free when changes are written.
    pub fn bytes(&self, changes: &Changes) -> u64 {
        changes.most_bytes(&self.growth).saturating_add(self.spare)
    }

    /// Bytes that what is written ahead of groups leaves to them: as much again is to spare, as operations that begin later
    /// are to find room, too.
    pub(crate) fn left_by_logs(&self, changes: &Changes) -> u64 {
        self.bytes(changes).saturating_add(self.spare)
    }
}

fn size_of(bytes: u64) -> usize {
    let shift = bytes.next_power_of_two().trailing_zeros();
    (shift.saturating_sub(SHIFT_MIN) as usize).min(SIZES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up() {
        let dirty = Dirty::default();
        dirty.add(Txg::new(7), 1000, u64::MAX);
        for bytes in [1, 512, 513, 128 << 10, 16 << 20] {
            dirty.add_block(Txg::new(7), bytes, 1, u64::MAX);
        }
        dirty.add_block(Txg::new(8), 128 << 10, 2, u64::MAX);
        let most = |inflation| dirty.changes().most_bytes(&Growth::new(inflation, |bytes| bytes));
        assert_eq!(most(0), 2 * 512 + 1024 + 3 * (128 << 10) + (16 << 20));
        assert_eq!(most(24) - most(0), 24 * (1000 + 7 * 512));
        assert_eq!(dirty.bytes(Txg::new(8)), 128 << 10);
        dirty.clear(Txg::new(7));
        assert_eq!((dirty.bytes(Txg::new(7)), dirty.all_bytes()), (0, 128 << 10));
        dirty.clear(Txg::new(8));
        assert!(dirty.changes().is_empty());
    }

    #[test]
    fn much_is_told_once_a_group() {
        let dirty = Dirty::default();
        assert!(
            !dirty.add(Txg::new(1), 99, 100)
                && dirty.add_block(Txg::new(1), 1, 1, 100)
                && !dirty.add(Txg::new(1), 500, 100)
        );
        assert!(!dirty.add(Txg::new(2), 1, 100) && dirty.add(Txg::new(2), 99, 100), "the other group for itself");
        dirty.clear(Txg::new(1));
        assert!(dirty.add(Txg::new(3), 100, 100));
    }
}
