//! The new tree of one object, built from its old one and its changed blocks.
//!
//! ```text
//!   level 2            [ . . p . ]          for each level, the pointers that change are collected;
//!                           │               a block of the next level is read once, gets all of its
//!   level 1      [ . a . . b . ]            new pointers, and is written
//!                    │       │
//!   level 0         [ ]     hole            a subtree that was freed as a whole is a change at its
//!                                           top's level; what is written below starts from nothing
//! ```

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use base::{Block, Error, Result};
use format::blkptr::{BlkPtr, Dva};
use format::dnode::{Dnode, SLOT_SIZE};
use format::ids::ObjectId;
use format::object_type::ObjectType;
use zio::BlockWrite;

use super::writer::BlockWriter;
use crate::node::{Layer, SPILL_BLKID};
use crate::{Object, Objset};

/// From that version of pools on dnodes say how many bytes they use, before how many sectors.
const VERSION_OF_USED_BYTES: u64 = 3;

/// One object on its way to disk.
pub(super) struct ObjectJob {
    object: Object,
    object_type: ObjectType,
    tree: Arc<Dnode>,
    /// What the dnode will be; `None` if the object has been freed.
    after: Option<Dnode>,
    layer: Arc<Layer>,
    /// By level: new pointers by number.
    changes: Vec<BTreeMap<u64, BlkPtr>>,
    /// By level: blocks whose old contents are void.
    void: Vec<BTreeSet<u64>>,
    /// Indirect blocks below which all was freed.
    killed: HashSet<Dva>,
    spill: Option<BlkPtr>,
    used_bytes: u64,
}

impl ObjectJob {
    pub(super) fn new(objset: &Arc<Objset>, id: ObjectId, tree: Arc<Dnode>, layer: Arc<Layer>) -> ObjectJob {
        let object = Object::new(objset.clone(), id, tree.clone());
        ObjectJob::start(object, tree, layer.dnode.as_deref().cloned(), layer)
    }

    /// The job of replacing some blocks of an object.
    pub(super) fn of_blocks(object: Object, blocks: BTreeMap<u64, Block>) -> ObjectJob {
        let tree = Arc::new(object.dnode().clone());
        let mut after = object.dnode().clone();
        after.block_max = after.block_max.max(blocks.keys().next_back().copied().unwrap_or(0));
        ObjectJob::start(object, tree, Some(after), Arc::new(Layer { blocks, ..Layer::default() }))
    }

    fn start(object: Object, tree: Arc<Dnode>, after: Option<Dnode>, layer: Arc<Layer>) -> ObjectJob {
        let levels = after.as_ref().map_or(1, levels_for).max(tree.levels).into();
        ObjectJob {
            object,
            object_type: after.as_ref().map_or(tree.object_type, |dnode| dnode.object_type),
            spill: tree.spill,
            used_bytes: tree.used_bytes,
            tree,
            after,
            layer,
            changes: vec![BTreeMap::new(); levels],
            void: vec![BTreeSet::new(); levels],
            killed: HashSet::new(),
        }
    }

    /// The dnode on disk.
    pub(super) fn tree(&self) -> &Arc<Dnode> {
        &self.tree
    }

    /// Slots that the dnode takes, or took.
    pub(super) fn slots(&self) -> usize {
        self.after.as_ref().map_or(self.tree.slots, |dnode| dnode.slots)
    }

    /// Changed blocks to be written.
    pub(super) fn changed(&self) -> Vec<(u64, Block)> {
        match self.after {
            Some(_) => self.layer.blocks.iter().map(|(&blkid, block)| (blkid, block.clone())).collect(),
            None => Vec::new(),
        }
    }

    /// Takes the blocks that were taken from elsewhere.
    pub(super) fn put_clones(&mut self, writer: &mut BlockWriter<'_>) -> Result<()> {
        if self.after.is_none() {
            return Ok(());
        }
        for (&blkid, bp) in &self.layer.clone().clones {
            let previous = self.previous(blkid)?;
            self.put(0, blkid, &previous, *bp, writer)?;
        }
        Ok(())
    }

    /// The pointer to a data block before the group.
    fn previous(&self, blkid: u64) -> Result<BlkPtr> {
        match self.layer.is_hole(blkid) {
            true => Ok(BlkPtr::HOLE),
            false => Ok(self.object.pointer(&self.tree, 0, blkid)?.0),
        }
    }

    /// Where a changed block is written already.
    pub(super) fn written_early(&self, blkid: u64) -> Option<BlkPtr> {
        self.layer.early.get(&blkid).copied()
    }

    /// Has an indirect block written again, with the pointers that it has. Errors: those of reading it.
    pub(super) fn touch(&mut self, level: u8, number: u64) -> Result<()> {
        let first = number << self.tree.pointers_shift();
        let (bp, _) = self.object.pointer(&self.tree, level - 1, first)?;
        self.changes[usize::from(level - 1)].insert(first, bp);
        Ok(())
    }

    /// Frees what was freed, before anything is written.
    pub(super) fn free_first(&mut self, writer: &mut BlockWriter<'_>) -> Result<()> {
        writer.free_outdated(&self.layer.outdated)?;
        if self.after.is_none() {
            for (index, bp) in self.tree.clone().blkptrs.iter().enumerate() {
                self.kill_tree(bp, self.tree.levels - 1, index as u64, writer)?;
            }
        } else {
            for (&from, &to) in self.layer.clone().holes.iter().filter(|&(&from, _)| from != SPILL_BLKID) {
                for (index, bp) in self.tree.clone().blkptrs.iter().enumerate() {
                    self.punch(bp, self.tree.levels - 1, index as u64, (from, to), writer)?;
                }
            }
        }
        let keeps_spill = self.after.as_ref().is_some_and(|dnode| dnode.spill.is_some());
        if let Some(spill) = self.spill.filter(|_| !keeps_spill) {
            self.forget(&spill, writer)?;
            self.spill = None;
        }
        Ok(())
    }

    /// The request to write a changed block.
    pub(super) fn data_write(&self, blkid: u64, block: Block, writer: &BlockWriter<'_>) -> Result<BlockWrite> {
        let dnode = self.after.as_ref().unwrap_or(&self.tree);
        let (previous, object_type) = match blkid {
            SPILL_BLKID => (self.spill.unwrap_or(BlkPtr::HOLE), dnode.bonus_type),
            _ => (self.previous(blkid)?, dnode.object_type),
        };
        let fill = if object_type == ObjectType::DNODE { dnodes_in(&block) } else { 1 };
        let bookmark = self.object.bookmark(0, blkid);
        let policy = writer.policy_of(0, object_type, (dnode.checksum, dnode.compress));
        let compressed = self.layer.compressed_as(blkid, &block);
        let new = BlockWrite::new(block, (object_type, 0), bookmark, policy);
        Ok(BlockWrite { compressed, previous, fill, ..new })
    }

    /// Notes that a block has been written.
    pub(super) fn put(
        &mut self,
        level: u8,
        blkid: u64,
        previous: &BlkPtr,
        bp: BlkPtr,
        writer: &mut BlockWriter<'_>,
    ) -> Result<()> {
        let (gone, new) = writer.replace(previous, &bp)?;
        self.used_bytes = self.used_bytes.saturating_add(new).saturating_sub(gone);
        if blkid == SPILL_BLKID {
            self.spill = Some(bp);
        } else {
            self.changes[usize::from(level)].insert(blkid, bp);
        }
        Ok(())
    }

    /// Writes the indirect blocks, and returns the new dnode.
    pub(super) fn finish(mut self, writer: &mut BlockWriter<'_>) -> Result<Option<Dnode>> {
        let Some(mut dnode) = self.after.take() else { return Ok(None) };
        let levels = self.changes.len() as u8;
        if levels > self.tree.levels {
            // what the dnode pointed to goes below the new levels
            let below = &mut self.changes[usize::from(self.tree.levels - 1)];
            for (index, bp) in self.tree.blkptrs.iter().enumerate().filter(|(_, bp)| **bp != BlkPtr::HOLE) {
                below.entry(index as u64).or_insert(*bp);
            }
            dnode.blkptrs.fill(BlkPtr::HOLE);
        } else {
            dnode.blkptrs.clone_from(&self.tree.blkptrs);
        }
        for level in 1..levels {
            self.write_level(level, dnode.indirect_shift, writer)?;
        }
        for (index, bp) in &self.changes[usize::from(levels - 1)] {
            dnode.blkptrs[*index as usize] = *bp;
        }
        dnode.levels = levels;
        dnode.used_bytes = self.used_bytes;
        match writer.pool_version() {
            ..VERSION_OF_USED_BYTES => dnode.flags &= !Dnode::FLAG_USED_BYTES,
            _ => dnode.flags |= Dnode::FLAG_USED_BYTES,
        }
        dnode.spill = self.spill.filter(|_| dnode.spill.is_some());
        Ok(Some(dnode))
    }

    /// Writes the blocks of `level` below which something has changed.
    fn write_level(&mut self, level: u8, indirect_shift: u8, writer: &mut BlockWriter<'_>) -> Result<()> {
        let shift = u32::from(indirect_shift) - BlkPtr::SIZE.trailing_zeros();
        let mut parents: BTreeMap<u64, Vec<(usize, BlkPtr)>> = BTreeMap::new();
        for (&index, bp) in &self.changes[usize::from(level - 1)] {
            let slot = (index & ((1 << shift) - 1)) as usize;
            parents.entry(index >> shift).or_default().push((slot, *bp));
        }
        let (mut batch, mut numbers) = (Vec::new(), Vec::new());
        for (number, children) in parents {
            let previous = match self.is_void(level, number, shift) {
                true => BlkPtr::HOLE,
                false => self.object.pointer(&self.tree, level, number)?.0,
            };
            let mut block = match previous.is_hole() {
                true => Block::zeroed(1 << indirect_shift),
                false => self.object.get(&self.tree, previous, level, number)?,
            };
            let bytes = block.make_mut();
            for (slot, bp) in children {
                bytes[slot * BlkPtr::SIZE..(slot + 1) * BlkPtr::SIZE].copy_from_slice(bp.raw());
            }
            // a count from disk may be anything; nothing here trusts it
            let fill = BlkPtr::slice(bytes).iter().map(BlkPtr::fill).fold(0, u64::saturating_add);
            if BlkPtr::slice(bytes).iter().all(BlkPtr::is_hole) {
                let hole = writer.hole(&previous, 1 << indirect_shift, self.object_type, level);
                self.put(level, number, &previous, hole, writer)?;
                continue;
            }
            let (object_type, bookmark) = (self.object_type, self.object.bookmark(level, number));
            let policy = writer.policy_of(level, object_type, (0, 0));
            let new = BlockWrite::new(block, (object_type, level), bookmark, policy);
            batch.push(BlockWrite { previous, fill, ..new });
            numbers.push(number);
        }
        let before: Vec<BlkPtr> = batch.iter().map(|write| write.previous).collect();
        let after = writer.write(batch)?;
        for ((number, previous), bp) in numbers.into_iter().zip(before).zip(after) {
            self.put(level, number, &previous, bp, writer)?;
        }
        Ok(())
    }

    /// Whether the old contents of a block, or of one above it, are void.
    fn is_void(&self, level: u8, number: u64, shift: u32) -> bool {
        (level..self.void.len() as u8).any(|above| {
            let number = number.checked_shr(shift * u32::from(above - level)).unwrap_or(0);
            self.void[usize::from(above)].contains(&number)
        })
    }

    /// Frees the part of a subtree that lies in a range of data blocks.
    fn punch(
        &mut self,
        bp: &BlkPtr,
        level: u8,
        number: u64,
        range: (u64, u64),
        writer: &mut BlockWriter<'_>,
    ) -> Result<()> {
        let shift = if self.tree.levels == 1 { 0 } else { self.tree.pointers_shift() };
        let span = shift * u32::from(level);
        let first = number.checked_shl(span).unwrap_or(u64::MAX);
        let end = first.saturating_add(1u64.checked_shl(span).unwrap_or(u64::MAX));
        if bp.is_hole() || end <= range.0 || range.1 <= first {
            return Ok(());
        }
        if range.0 <= first && end <= range.1 {
            self.kill_tree(bp, level, number, writer)?;
            let lsize = if level == 0 { self.tree.block_size } else { 1 << self.tree.indirect_shift };
            let hole = writer.hole(bp, lsize, self.object_type, level);
            self.changes[usize::from(level)].insert(number, hole);
            self.void[usize::from(level)].insert(number);
            return Ok(());
        }
        let block = self.object.get(&self.tree, *bp, level, number)?;
        for (slot, child) in BlkPtr::slice(&block).iter().enumerate() {
            self.punch(child, level - 1, (number << shift) + slot as u64, range, writer)?;
        }
        Ok(())
    }

    /// Frees a block and all below it.
    fn kill_tree(&mut self, bp: &BlkPtr, level: u8, number: u64, writer: &mut BlockWriter<'_>) -> Result<()> {
        if bp.is_hole() {
            return Ok(());
        }
        if level > 0 {
            let shift = self.tree.pointers_shift();
            let block = self.object.get(&self.tree, *bp, level, number)?;
            // what is in several places could be freed for ever
            if !self.killed.insert(bp.dvas()[0]) {
                let what = "an indirect block is in two places of its object";
                return Err(self.object.placed(Error::corrupt(what), level, number));
            }
            for (slot, child) in BlkPtr::slice(&block).iter().enumerate() {
                self.kill_tree(child, level - 1, (number << shift) + slot as u64, writer)?;
            }
        }
        self.forget(bp, writer)
    }

    fn forget(&mut self, bp: &BlkPtr, writer: &mut BlockWriter<'_>) -> Result<()> {
        let (gone, _) = writer.replace(bp, &BlkPtr::HOLE)?;
        self.used_bytes = self.used_bytes.saturating_sub(gone);
        Ok(())
    }
}

/// Levels that a dnode needs to reach its last block.
fn levels_for(dnode: &Dnode) -> u8 {
    let shift = u32::from(dnode.indirect_shift) - BlkPtr::SIZE.trailing_zeros();
    let mut levels = 1;
    while dnode.block_max.checked_shr(shift * u32::from(levels - 1)).unwrap_or(0) >= dnode.blkptrs.len() as u64 {
        levels += 1;
    }
    levels
}

/// How many dnodes begin in a block of them.
fn dnodes_in(block: &[u8]) -> u64 {
    let (mut at, mut count) = (0, 0);
    while let Some(slot) = block.get(at * SLOT_SIZE..).filter(|rest| rest.len() >= SLOT_SIZE) {
        count += u64::from(slot[0] != ObjectType::NONE.0);
        at += Dnode::slots_at(slot).unwrap_or(1);
    }
    count
}
