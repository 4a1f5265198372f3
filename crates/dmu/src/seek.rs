//! Finding data and holes without visiting what lies between.

use std::collections::HashMap;

use base::{Error, Result};
use format::blkptr::{BlkPtr, Dva};
use format::dnode::Dnode;

use crate::Object;
use crate::node::BlockSource;

impl Object {
    /// The first byte at or after `offset` that is in an allocated block; `None` if there is none.
    pub fn next_allocated(&self, offset: u64) -> Result<Option<u64>> {
        let size = self.block_size()?;
        let found = self.seek_block(offset / size, true)?;
        Ok(found.map(|blkid| blkid.saturating_mul(size).max(offset)))
    }

    /// The first byte at or after `offset` that is in a hole, or past the last block.
    pub fn next_hole(&self, offset: u64) -> Result<u64> {
        let size = self.block_size()?;
        let found = self.seek_block(offset / size, false)?;
        Ok(found.map_or(self.dnode().size_max(), |blkid| blkid.saturating_mul(size)).max(offset))
    }

    /// The first data block from `from` on that is allocated, or that is a hole.
    pub(crate) fn seek_block(&self, from: u64, allocated: bool) -> Result<Option<u64>> {
        let mut blkid = from;
        let mut passed = Passed::default();
        while blkid <= self.dnode().block_max {
            // how many levels above the block the pointers say the same
            let (is_hole, level) = match self.find(blkid) {
                BlockSource::Changed(_) | BlockSource::Cloned(_) => (false, 0),
                BlockSource::Hole => (true, 0),
                BlockSource::OnDisk(tree) => {
                    let (bp, level, above) = self.pointer_and_above(&tree, 0, blkid)?;
                    if !passed.allows(&above, level, blkid, &tree) {
                        let what = "an indirect block is in two places of its object";
                        return Err(self.placed(Error::corrupt(what), 0, blkid));
                    }
                    (bp.is_hole(), level)
                }
            };
            if is_hole != allocated {
                return Ok(Some(blkid));
            }
            // a hole may stand for a whole subtree
            let shift = if level == 0 { 0 } else { u32::from(level) * self.dnode().pointers_shift() };
            let next = blkid
                .checked_shr(shift)
                .and_then(|n| n.checked_add(1))
                .and_then(|n| n.checked_shl(shift).filter(|shifted| shifted >> shift == n));
            let changed = self.node().and_then(|node| node.read().next_changed(blkid));
            match [next, changed].into_iter().flatten().min() {
                Some(next) => blkid = next,
                None => return Ok(None),
            }
        }
        Ok(None)
    }
}

/// The indirect blocks that a search has been in, and which number each had. Where one is in many places there is more
/// to search than would ever end.
#[derive(Default)]
struct Passed {
    numbers: HashMap<Dva, u64>,
}

impl Passed {
    /// Notes that the pointer of some level for a data block is in block `above`. False if that has been met elsewhere.
    fn allows(&mut self, above: &BlkPtr, level: u8, blkid: u64, tree: &Dnode) -> bool {
        if above.is_hole() {
            return true;
        }
        let number = blkid.checked_shr(u32::from(level + 1) * tree.pointers_shift()).unwrap_or(0);
        *self.numbers.entry(above.dvas()[0]).or_insert(number) == number
    }
}
