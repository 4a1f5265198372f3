//! How much of an object is freed in one step.
//!
//! ```text
//!   level 2        [ . . . . p p ]       from the end on: each pointer to a block of pointers stands for as many
//!                      ┊     │ │         blocks as that could lead to
//!   level 1      [    ] ┊   [ ] [ ]
//!                       └ here the portion begins
//! ```
//!
//! A block that is freed is in memory with its pointer until its group is on disk, so an object that has very many is
//! freed in several groups: [`crate::Txgs::admit_frees`].

use std::ops::Range;

use base::Result;
use format::blkptr::BlkPtr;
use format::dnode::Dnode;

use crate::Object;

/// Blocks of a portion, at most.
pub const PORTION_BLOCKS: u64 = 1 << 16;

/// The last part of a range of bytes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion {
    /// The byte where it begins: that where the range begins, if the range is no larger than a portion.
    pub from: u64,
    /// Blocks on disk that it has at most.
    pub blocks: u64,
}

impl Object {
    /// The last portion of a range of bytes. Errors: those of reading the blocks that lead there.
    pub fn last_portion(&self, range: Range<u64>) -> Result<Portion> {
        let (tree, size) = (self.tree(), self.block_size()?);
        let blocks = range.start / size..range.end.div_ceil(size).min(tree.block_max.saturating_add(1));
        let mut search =
            BackwardSearch { object: self, tree: &tree, from: blocks.end, range: blocks, left: PORTION_BLOCKS };
        let mut is_whole = true;
        for (number, bp) in tree.blkptrs.iter().enumerate().rev() {
            is_whole = is_whole && search.take(bp, tree.levels - 1, number as u64)?;
        }
        let from = if is_whole { range.start } else { search.from.saturating_mul(size).max(range.start) };
        Ok(Portion { from, blocks: PORTION_BLOCKS - search.left })
    }
}

struct BackwardSearch<'a> {
    object: &'a Object,
    tree: &'a Dnode,
    range: Range<u64>,
    /// Blocks from there on are in the portion.
    from: u64,
    /// Blocks that still go into it.
    left: u64,
}

impl BackwardSearch<'_> {
    /// Takes what is below a pointer into the portion. False if that is not all of it.
    fn take(&mut self, bp: &BlkPtr, level: u8, number: u64) -> Result<bool> {
        let shift = if self.tree.levels == 1 { 0 } else { self.tree.pointers_shift() };
        let span = shift * u32::from(level);
        let first = number.checked_shl(span).filter(|first| first >> span == number).unwrap_or(u64::MAX);
        let end = first.saturating_add(1u64.checked_shl(span).unwrap_or(u64::MAX));
        let (first, end) = (first.max(self.range.start), end.min(self.range.end));
        if bp.is_hole() || first >= end {
            return Ok(true);
        }
        if level <= 1 {
            let taken = self.left.min(end - first);
            (self.left, self.from) = (self.left - taken, end - taken);
            return Ok(self.from == first);
        }
        // so that empty blocks of pointers, in however many places they are, come to an end
        let Some(left) = self.left.checked_sub(1) else { return Ok(false) };
        self.left = left;
        let block = self.object.get(self.tree, *bp, level, number)?;
        for (slot, child) in BlkPtr::slice(&block).iter().enumerate().rev() {
            if !self.take(child, level - 1, (number << shift) + slot as u64)? {
                return Ok(false);
            }
        }
        self.from = first;
        Ok(true)
    }
}
