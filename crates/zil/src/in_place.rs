//! Large writes: their blocks are written where they stay, and the log leads to them.
//!
//! ```text
//!   write of 200 KiB:   | 40 KiB |    128 KiB    | 32 KiB |
//!   blocks of 128 KiB:  ... 128 KiB|    128 KiB    |   128 KiB ...
//!   records:               bytes      pointer        bytes
//! ```
//!
//! What is written so is not written again by its group ([`dmu::OpenBlock`]). Small writes take less as bytes. A
//! vdev for logs is there to take bytes: nothing is written past it, unless `logbias=throughput` asks to spare it,
//! as OpenZFS does it (`logbias` in zfsprops(7), and `zfs_immediate_write_sz` in zfs(4)).
//!
//! Invariant: a record with a pointer is of a whole block. OpenZFS replays a lesser one as a write of the block, and
//! where that is the last of a file already, the file gets as long as its block.
//!
//! A block is of the group that its record is of. When that is on disk, nobody needs the record, and the block may
//! be freed as any other; before that, a change of it leaves it where it is (`dmu` `early`).

use std::collections::{BTreeSet, HashMap};

use base::Result;
use dmu::{Objset, OpenBlock, Tx};
use format::blkptr::{BlkPtr, BlkPtrBuilder, BlockShape};
use format::ids::{ObjectId, Txg, VdevNumber};
use format::object_type::ObjectType;
use zio::PlacedBlock;

use crate::LoggedContents;
use crate::entry::{ItxBody, PendingItx};
use crate::intent::{Intent, WrittenData};
use crate::record::TYPE_WRITE;
use crate::stats::{Stats, add};

/// Writes of fewer bytes are told with their bytes: zfs_immediate_write_sz.
const LARGE_MIN: u64 = 32 << 10;

/// Whose blocks are written in their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Nobody's.
    Never,
    /// Those that large writes fill.
    Large,
    /// Those that any write fills.
    Always,
}

impl Rule {
    /// Whether `part` bytes of a write of `len` in a block of `block` bytes go by it.
    fn takes(self, len: u64, part: u64, block: u64) -> bool {
        match self {
            Rule::Never => false,
            Rule::Large => len >= LARGE_MIN && part == block,
            Rule::Always => part == block,
        }
    }
}

/// Part of a write, in one block.
struct WritePart {
    item: usize,
    offset: u64,
    len: u64,
    /// Which of the blocks; `None` if its bytes are told.
    block: Option<usize>,
}

/// Blocks that have their places, and the entries that lead to them.
#[derive(Default)]
pub(crate) struct InPlace {
    blocks: Vec<OpenBlock>,
    /// Of each block: where it is, or `None`. What has that from before need not be written.
    pointers: Vec<Option<BlkPtr>>,
    /// Which block of the list is which block of an object.
    known: HashMap<(ObjectId, u64), usize>,
    placed: Vec<PlacedBlock>,
}

impl InPlace {
    /// Gives blocks of writes places, and has the entries lead to them.
    pub(crate) fn place(
        (objset, stats): (&Objset, &Stats),
        tx: &Tx<'_>,
        rule: Rule,
        contents: Option<&dyn LoggedContents>,
        items: Vec<PendingItx>,
    ) -> Result<(InPlace, Vec<PendingItx>)> {
        let mut found = InPlace::default();
        let mut parts = Vec::new();
        if let Some(contents) = contents.filter(|_| rule != Rule::Never) {
            for (at, item) in items.iter().enumerate() {
                found.find(tx, rule, contents, (at, item), &mut parts)?;
            }
        }
        if found.blocks.is_empty() {
            return Ok((found, items));
        }
        found.pointers = found.blocks.iter().map(OpenBlock::written).collect();
        let new: Vec<usize> = (0..found.blocks.len()).filter(|&at| found.pointers[at].is_none()).collect();
        let blocks: Vec<&OpenBlock> = new.iter().map(|&at| &found.blocks[at]).collect();
        let placed = objset.place_early(tx, &blocks)?;
        for (at, placed) in new.into_iter().zip(placed) {
            // one that finds no place is told with its bytes
            let Ok(placed) = placed else { continue };
            found.pointers[at] = Some(match placed.bp() {
                hole if hole.is_hole() => {
                    let size = found.blocks[at].range();
                    BlkPtrBuilder::new(BlockShape::of_hole(size.end - size.start, ObjectType::NONE, 0), Txg::ZERO)
                        .hole()
                }
                bp => bp,
            });
            found.placed.push(placed);
        }
        let items = found.tell(stats, items, parts);
        Ok((found, items))
    }

    /// The parts of a write, and its blocks.
    fn find(
        &mut self,
        tx: &Tx<'_>,
        rule: Rule,
        contents: &dyn LoggedContents,
        (at, item): (usize, &PendingItx),
        parts: &mut Vec<WritePart>,
    ) -> Result<()> {
        let ItxBody::Write { object, generation, offset, len, data: None } = item.body else { return Ok(()) };
        if item.txg != tx.txg() || rule == Rule::Large && len < LARGE_MIN {
            return Ok(());
        }
        let (mut from, end) = (offset, offset.saturating_add(len));
        while from < end {
            let Some(block) = contents.open_block(tx, object, generation, from)? else {
                // it is freed again, or all is gone
                parts.push(WritePart { item: at, offset: from, len: end - from, block: None });
                break;
            };
            let range = block.range();
            let part = range.end.min(end) - from;
            let takes = rule.takes(len, part, range.end - range.start);
            let index = takes.then(|| {
                *self.known.entry(block.id()).or_insert_with(|| {
                    self.blocks.push(block);
                    self.blocks.len() - 1
                })
            });
            parts.push(WritePart { item: at, offset: from, len: part, block: index });
            from += part;
        }
        Ok(())
    }

    /// The entries, with those of parts in the place of writes.
    fn tell(&self, stats: &Stats, items: Vec<PendingItx>, parts: Vec<WritePart>) -> Vec<PendingItx> {
        let mut by_item: HashMap<usize, Vec<WritePart>> = HashMap::new();
        parts.into_iter().for_each(|part| by_item.entry(part.item).or_default().push(part));
        let mut told = Vec::with_capacity(items.len());
        for (at, item) in items.into_iter().enumerate() {
            let (Some(parts), ItxBody::Write { object, generation, .. }) = (by_item.remove(&at), &item.body) else {
                told.push(item);
                continue;
            };
            let mut left = parts.len();
            for WritePart { offset, len, block, .. } in parts {
                left -= 1;
                let kept = item.kept.filter(|_| left == 0);
                let body = match block.and_then(|block| self.pointers[block]) {
                    Some(bp) => {
                        add(&stats.zil_itx_indirect_count, 1);
                        add(&stats.zil_itx_indirect_bytes, len);
                        let write = Intent::Write { object: *object, offset, len, data: WrittenData::Block(bp) };
                        ItxBody::Record { kind: TYPE_WRITE, bytes: write.bytes() }
                    }
                    None => ItxBody::Write { object: *object, generation: *generation, offset, len, data: None },
                };
                told.push(PendingItx { body, kept, ..item });
            }
        }
        told
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// What is to be written.
    pub(crate) fn take_placed(&mut self) -> Vec<PlacedBlock> {
        std::mem::take(&mut self.placed)
    }

    /// The top-level vdevs that the blocks are on.
    pub(crate) fn tops(&self) -> BTreeSet<VdevNumber> {
        self.pointers
            .iter()
            .flatten()
            .flat_map(|bp| bp.copies().map(|dva| dva.vdev()).collect::<Vec<VdevNumber>>())
            .collect()
    }

    /// All is written: groups take it as it is.
    pub(crate) fn keep(self, objset: &Objset, tx: &Tx<'_>) {
        self.leave(objset, tx, |block, bp| block.keep(tx, bp));
    }

    /// Some of it is not written, or nobody will be led to it.
    pub(crate) fn give_back(self, objset: &Objset, tx: &Tx<'_>) {
        self.leave(objset, tx, |_, _| false);
    }

    fn leave(self, objset: &Objset, tx: &Tx<'_>, keeps: impl Fn(&OpenBlock, BlkPtr) -> bool) {
        for (block, bp) in self.blocks.iter().zip(self.pointers) {
            if let Some(bp) = bp.filter(|bp| block.written().is_none() && !bp.is_hole())
                && !keeps(block, bp)
            {
                // that it could not be freed only costs its room
                let _ = objset.cache().zio().free_log_block(tx.txg(), &bp);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_blocks_of_large_writes() {
        let takes = |rule: Rule, len: u64, part: u64, block: u64| rule.takes(len << 10, part << 10, block << 10);
        assert!(takes(Rule::Large, 1024, 128, 128) && !takes(Rule::Large, 200, 72, 128));
        assert!(takes(Rule::Large, 32, 32, 32) && takes(Rule::Large, 32, 8, 8) && !takes(Rule::Large, 31, 31, 31));
        assert!(takes(Rule::Always, 1, 1, 1) && !takes(Rule::Always, 1023, 1023, 1024));
        assert!(!takes(Rule::Never, 1024, 128, 128));
    }
}
