//! Finding data and holes without visiting what lies between.

use std::collections::HashMap;
use std::ops::Range;

use base::{Block, Error, Result};
use format::blkptr::{BlkPtr, Dva};
use format::dnode::Dnode;

use crate::Object;
use crate::node::BlockSource;

impl Object {
    /// The first of these bytes that is in an allocated block; `None` if there is none.
    pub fn next_allocated(&self, bytes: Range<u64>) -> Result<Option<u64>> {
        let size = self.block_size()?;
        let found = self.seek_block(bytes.start / size..bytes.end.div_ceil(size), true)?;
        Ok(found.map(|blkid| blkid.saturating_mul(size).max(bytes.start)).filter(|at| *at < bytes.end))
    }

    /// The first of these bytes that is in a hole, or past the last block; where they end, if there is none.
    pub fn next_hole(&self, bytes: Range<u64>) -> Result<u64> {
        let size = self.block_size()?;
        let found = self.seek_block(bytes.start / size..bytes.end.div_ceil(size), false)?;
        let hole = found.map_or(self.dnode().size_max(), |blkid| blkid.saturating_mul(size));
        Ok(hole.max(bytes.start).min(bytes.end))
    }

    /// The first of these data blocks that is allocated, or that is a hole; none behind the last one.
    pub(crate) fn seek_block(&self, blocks: Range<u64>, allocated: bool) -> Result<Option<u64>> {
        let mut blkid = blocks.start;
        let mut passed = Passed::default();
        while blkid <= self.dnode().block_max && blkid < blocks.end {
            let (is_hole, on_disk) = match self.find(blkid) {
                BlockSource::Changed(_) | BlockSource::Cloned(_) => (false, None),
                BlockSource::Hole => (true, None),
                BlockSource::OnDisk(tree) => {
                    let (bp, level, above) = self.pointer_and_above(&tree, 0, blkid)?;
                    if let Some((above, _)) = &above
                        && !passed.allows(above, level, blkid, &tree)
                    {
                        let what = "an indirect block is in two places of its object";
                        return Err(self.placed(Error::corrupt(what), 0, blkid));
                    }
                    (bp.is_hole(), Some((tree, level, above)))
                }
            };
            if is_hole != allocated {
                return Ok(Some(blkid));
            }
            let next = match on_disk {
                None => blkid.checked_add(1),
                Some((tree, level, above)) => {
                    end_of_alike(&tree, level, above.as_ref().map(|(_, block)| block), blkid, is_hole)
                }
            };
            let changed = self.node().and_then(|node| node.read().next_changed(blkid));
            match [next, changed].into_iter().flatten().min() {
                Some(next) => blkid = next,
                None => return Ok(None),
            }
        }
        Ok(None)
    }
}

/// The first data block behind `blkid` that is not behind a hole, or behind a block, as it is: of those that pointers of that
/// level lead to which are in the same block, `above`; or the first one behind all of these.
fn end_of_alike(tree: &Dnode, level: u8, above: Option<&Block>, blkid: u64, is_hole: bool) -> Option<u64> {
    // a hole may stand for a whole subtree
    let shift = if level == 0 { 0 } else { u32::from(level) * tree.pointers_shift() };
    let number = blkid.checked_shr(shift)?;
    let alike = above.map_or(1, |above| {
        let pointers = BlkPtr::slice(above);
        let own = number as usize & (pointers.len() - 1);
        pointers[own..].iter().take_while(|one| one.is_hole() == is_hole).count().max(1) as u64
    });
    let end = number.checked_add(alike)?;
    end.checked_shl(shift).filter(|shifted| shifted >> shift == end)
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
        let number = blkid.checked_shr(u32::from(level + 1) * tree.pointers_shift()).unwrap_or(0);
        *self.numbers.entry(above.dvas()[0]).or_insert(number) == number
    }
}
