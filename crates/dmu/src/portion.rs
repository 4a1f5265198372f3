//! How much of an object is freed in one step, and whether it can be.
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
//!
//! A group that has to read a block of pointers to change or to free it, and cannot, is never on disk. So these are read
//! before a change is taken into a group: it is refused then.

use std::collections::HashSet;
use std::ops::Range;

use base::{Error, Result};
use format::blkptr::BlkPtr;
use format::dnode::Dnode;

use crate::Object;

/// Blocks of pointers that are read at once.
const AT_ONCE: usize = 32;

/// The last part of a range of bytes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion {
    /// The byte where it begins: that where the range begins, if the range is no larger than a portion.
    pub from: u64,
    /// Blocks on disk that it has at most.
    pub blocks: u64,
}

impl Object {
    /// The last portion of a range of bytes, of some `blocks_max` blocks. Errors: those of reading the blocks that lead
    /// there.
    pub fn last_portion(&self, range: Range<u64>, blocks_max: u64) -> Result<Portion> {
        let (tree, size) = (self.tree(), self.block_size()?);
        let blocks = range.start / size..range.end.div_ceil(size).min(tree.block_max.saturating_add(1));
        let mut search =
            BackwardSearch { object: self, tree: &tree, from: blocks.end, range: blocks, left: blocks_max };
        let mut is_whole = true;
        for (number, bp) in tree.blkptrs.iter().enumerate().rev() {
            is_whole = is_whole && search.take(bp, tree.levels - 1, number as u64)?;
        }
        let from = if is_whole { range.start } else { search.from.saturating_mul(size).max(range.start) };
        Ok(Portion { from, blocks: blocks_max - search.left })
    }
}

impl Object {
    /// Reads the blocks of pointers on disk that lead to a data block: those that change when it does. Errors: those of
    /// reading.
    pub(crate) fn check_path(&self, tree: &Dnode, blkid: u64) -> Result<()> {
        // the last block of pointers takes what comes behind it
        self.pointer(tree, 0, blkid.min(tree.block_max)).map(drop)
    }

    /// Whether [`crate::Objset::free_object`] can free it. Errors: those of reading blocks of pointers; `Corrupt` if
    /// one is in two places.
    pub fn check_freeable(&self) -> Result<()> {
        self.check_pointers(0..u64::MAX)
    }

    /// As [`Object::check_path`], of data blocks that are to be freed. Errors: also `Corrupt` if a block of pointers is in
    /// two places.
    pub(crate) fn check_pointers(&self, blocks: Range<u64>) -> Result<()> {
        let tree = self.tree();
        let (top, cache, keep) = (tree.levels - 1, self.objset().cache(), self.objset().keep());
        let shift = if top == 0 { 0 } else { tree.pointers_shift() };
        let (first, last) = (blocks.start.min(tree.block_max), blocks.end.saturating_sub(1).min(tree.block_max));
        let is_within = |level: u8, number: u64| {
            let at = |block: u64| block.checked_shr(u32::from(level) * shift).unwrap_or(0);
            at(first) <= number && number <= at(last)
        };
        let mut seen = HashSet::new();
        let wanted = |pointers: &[BlkPtr], level: u8, from: u64| {
            let numbered = pointers.iter().copied().zip(from..);
            Vec::from_iter(numbered.filter(|(bp, number)| !bp.is_hole() && is_within(level, *number)))
        };
        let mut found = if top == 0 { Vec::new() } else { wanted(&tree.blkptrs, top, 0) };
        for level in (1..=top).rev() {
            let mut below = Vec::new();
            for some in found.chunks(AT_ONCE) {
                if let [_, _, ..] = some {
                    let requests: Vec<_> = some.iter().map(|(bp, number)| self.request(*bp, level, *number)).collect();
                    cache.prefetch(&requests, keep);
                }
                for &(bp, number) in some {
                    let block = self.get(&tree, bp, level, number)?;
                    if !seen.insert(bp.dvas()[0]) {
                        let what = "an indirect block is in two places of its object";
                        return Err(self.placed(Error::corrupt(what), level, number));
                    }
                    if level > 1 {
                        below.extend(wanted(BlkPtr::slice(&block), level - 1, number << shift));
                    }
                }
            }
            found = below;
        }
        Ok(())
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
