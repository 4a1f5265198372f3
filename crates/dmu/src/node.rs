//! The state of an object in a set that is being changed: its changes in memory, over its tree on disk.
//!
//! ```text
//!   reading block 5:   open layer ──▶ layer being synced ──▶ tree on disk
//!                      blocks, holes    blocks, holes         through the cache
//! ```
//!
//! A layer holds the changes of one transaction group. When the group is closed, the open layer becomes
//! the one that is synced, and is not changed any more: a write to one of its blocks in the next group
//! writes to a copy. When the group is on disk, the tree is replaced by the new one, and the layer goes.
//!
//! A node lives as long as it has changes, or somebody holds an [`crate::Object`] of it; a few more are
//! kept because their dnodes may be asked for again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{Block, Error, Kind, Mutex, Result, RwLock, RwLockReadGuard, RwLockWriteGuard};
use format::blkptr::BlkPtr;
use format::dnode::Dnode;
use format::ids::{ObjectId, Txg};
use zio::Compressed;

use crate::Tx;
use crate::prefetch::Streams;

/// The number that bookmarks give a spill block.
pub(crate) const SPILL_BLKID: u64 = u64::MAX - 1;

/// The state of one object, shared by all handles to it.
pub(crate) struct Node {
    pub(crate) id: ObjectId,
    pub(crate) streams: Arc<Mutex<Streams>>,
    state: RwLock<NodeState>,
}

pub(crate) struct NodeState {
    /// What the object looks like now; `None` if it has been freed. Its block pointers, levels and used
    /// bytes are those of the tree on disk.
    pub(crate) dnode: Option<Arc<Dnode>>,
    /// The tree on disk.
    pub(crate) tree: Arc<Dnode>,
    open: Layer,
    syncing: Option<Arc<Layer>>,
}

/// The changes of one group.
#[derive(Default)]
pub(crate) struct Layer {
    /// The group; 0 if there are none.
    pub(crate) txg: Txg,
    /// What the object looked like when the group was closed; `None` if it was freed in it.
    pub(crate) dnode: Option<Arc<Dnode>>,
    /// Contents of changed blocks, the spill block included.
    pub(crate) blocks: BTreeMap<u64, Block>,
    /// Those of `blocks` that came compressed: the contents that they had then, and how these are compressed.
    pub(crate) compressed: BTreeMap<u64, (Block, Compressed)>,
    /// Blocks that were taken from elsewhere as they are, and are not in `blocks`; see [`crate::clone`].
    pub(crate) clones: BTreeMap<u64, BlkPtr>,
    /// Ranges of blocks that were freed: first block, and the one behind the last. They do not overlap.
    pub(crate) holes: BTreeMap<u64, u64>,
    /// Those of `blocks` that are written already, and where; see [`crate::early`].
    pub(crate) early: BTreeMap<u64, BlkPtr>,
    /// What was written of blocks that have changed again since.
    pub(crate) outdated: Vec<BlkPtr>,
}

/// Where a block is.
pub(crate) enum BlockSource {
    /// Here.
    Changed(Block),
    /// Where this pointer leads, which is in no tree yet.
    Cloned(BlkPtr),
    /// Nowhere: it reads as zeros.
    Hole,
    /// Where this tree says.
    OnDisk(Arc<Dnode>),
}

impl Node {
    /// A node for an object as it is on disk.
    pub(crate) fn new(id: ObjectId, dnode: Arc<Dnode>) -> Node {
        let state = NodeState { dnode: Some(dnode.clone()), tree: dnode, open: Layer::default(), syncing: None };
        Node { id, streams: Arc::default(), state: RwLock::new(state) }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, NodeState> {
        self.state.read()
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, NodeState> {
        self.state.write()
    }
}

impl NodeState {
    /// Whether nothing waits to be written.
    pub(crate) fn is_clean(&self) -> bool {
        self.open.txg == Txg::ZERO && self.syncing.is_none()
    }

    /// Where data block `blkid` is, or the spill block.
    pub(crate) fn find(&self, blkid: u64) -> BlockSource {
        for layer in [Some(&self.open), self.syncing.as_deref()].into_iter().flatten() {
            if let Some(block) = layer.blocks.get(&blkid) {
                return BlockSource::Changed(block.clone());
            }
            if let Some(bp) = layer.clones.get(&blkid) {
                return BlockSource::Cloned(*bp);
            }
            if layer.is_hole(blkid) {
                return BlockSource::Hole;
            }
        }
        BlockSource::OnDisk(self.tree.clone())
    }

    /// The lowest block above `blkid` that some layer knows more of than the tree.
    pub(crate) fn next_changed(&self, blkid: u64) -> Option<u64> {
        let layers = [Some(&self.open), self.syncing.as_deref()].into_iter().flatten();
        let after = layers.filter_map(|layer| {
            let block = layer.blocks.range(blkid + 1..SPILL_BLKID).next().map(|(&id, _)| id);
            let clone = layer.clones.range(blkid + 1..).next().map(|(&id, _)| id);
            let hole = layer.holes.range(blkid + 1..).next().map(|(&from, _)| from);
            let end = layer.holes.range(..=blkid).next_back().map(|(_, &to)| to).filter(|&to| to > blkid);
            [block, clone, hole, end].into_iter().flatten().min()
        });
        after.min()
    }

    /// Makes the open layer that of `tx`. Whether these are its first changes in that group.
    pub(crate) fn enter(&mut self, tx: &Tx<'_>) -> bool {
        if self.open.txg == tx.txg() {
            return false;
        }
        assert!(self.open.txg < tx.txg(), "a change of a group that is closed");
        self.freeze(self.open.txg);
        self.open.txg = tx.txg();
        true
    }

    /// The dnode, to be changed in the open layer.
    pub(crate) fn dnode_mut(&mut self) -> Result<&mut Dnode> {
        let gone = || Error::new(Kind::NotFound, "object has been freed");
        self.dnode.as_mut().map(Arc::make_mut).ok_or_else(gone)
    }

    /// A changed block of the open layer, to be changed again.
    pub(crate) fn open_block(&mut self, tx: &Tx<'_>, blkid: u64) -> Option<&mut Block> {
        // it will be written twice: a writer that does that again and again is to be slowed down, too
        self.open.outdate(blkid).iter().for_each(|bp| tx.dirty_block(bp.psize(), 0));
        self.open.blocks.get_mut(&blkid)
    }

    /// A block that has changed in group `txg`, which is open, and where it is written already.
    pub(crate) fn changed_in(&self, txg: Txg, blkid: u64) -> Option<(Block, Option<BlkPtr>)> {
        let block = self.open.blocks.get(&blkid).filter(|_| self.open.txg == txg)?;
        Some((block.clone(), self.open.early.get(&blkid).copied()))
    }

    /// Notes where a block is written, if it still is what was written. False if it is not.
    pub(crate) fn keep_early(&mut self, txg: Txg, blkid: u64, contents: &Block, bp: BlkPtr) -> bool {
        let is_it =
            self.changed_in(txg, blkid).is_some_and(|(block, bp)| block.is_shared_with(contents) && bp.is_none());
        if is_it {
            self.open.early.insert(blkid, bp);
        }
        is_it
    }

    /// Puts a changed block of data into the open layer, which has none of that number.
    pub(crate) fn put_new(&mut self, tx: &Tx<'_>, blkid: u64, block: Block) -> Result<()> {
        let dnode = self.dnode_mut()?;
        dnode.block_max = dnode.block_max.max(blkid);
        tx.dirty_block(block.len() as u64, u64::from(dnode.object_type.is_metadata()));
        self.put(blkid, block);
        Ok(())
    }

    /// Puts a changed block into the open layer.
    pub(crate) fn put(&mut self, blkid: u64, block: Block) {
        self.open.outdate(blkid);
        self.open.clones.remove(&blkid);
        self.open.blocks.insert(blkid, block);
    }

    /// Puts a block of data into the open layer that was taken from elsewhere.
    pub(crate) fn put_clone(&mut self, tx: &Tx<'_>, blkid: u64, bp: BlkPtr) -> Result<()> {
        let dnode = self.dnode_mut()?;
        if bp.lsize() != dnode.block_size {
            return Err(Error::new(Kind::Invalid, "a block of another size cannot be taken"));
        }
        dnode.block_max = dnode.block_max.max(blkid);
        tx.dirty_pointer(bp.lsize());
        self.open.outdate(blkid);
        self.open.blocks.remove(&blkid);
        self.open.clones.insert(blkid, bp);
        Ok(())
    }

    /// Notes how the contents of a block were compressed elsewhere, for as long as it has these.
    pub(crate) fn put_compressed(&mut self, blkid: u64, contents: Block, compressed: Compressed) {
        self.open.compressed.insert(blkid, (contents, compressed));
    }

    /// Frees blocks, in the open layer.
    pub(crate) fn punch(&mut self, from: u64, to: u64) {
        let inside: Vec<u64> = self.open.blocks.range(from..to).map(|(&id, _)| id).collect();
        for id in inside {
            self.open.outdate(id);
            self.open.blocks.remove(&id);
        }
        let inside: Vec<u64> = self.open.clones.range(from..to).map(|(&id, _)| id).collect();
        for id in inside {
            self.open.clones.remove(&id);
        }
        self.open.add_hole(from, to);
    }

    /// Forgets all that was changed in the open layer.
    pub(crate) fn clear_open(&mut self) {
        self.open.outdated.extend(std::mem::take(&mut self.open.early).into_values());
        self.open.blocks.clear();
        self.open.clones.clear();
        self.open.holes.clear();
    }

    /// Makes the changes of `txg` the layer that is synced, if there are any.
    pub(crate) fn freeze(&mut self, txg: Txg) -> Option<Arc<Layer>> {
        if self.open.txg != Txg::ZERO && self.open.txg == txg {
            assert!(self.syncing.is_none(), "two groups are being synced");
            self.open.dnode = self.dnode.clone();
            self.syncing = Some(Arc::new(std::mem::take(&mut self.open)));
        }
        self.syncing.clone()
    }

    /// The changes that were frozen, and are not on disk yet.
    pub(crate) fn syncing(&self) -> Option<Arc<Layer>> {
        self.syncing.clone()
    }

    /// The dnode on disk has other flags.
    pub(crate) fn set_flags(&mut self, flags: u8) {
        Arc::make_mut(&mut self.tree).flags = flags;
        self.dnode.iter_mut().for_each(|dnode| Arc::make_mut(dnode).flags = flags);
    }

    /// The changes that were frozen are on disk, with this tree.
    pub(crate) fn commit(&mut self, tree: Arc<Dnode>) {
        let Some(layer) = self.syncing.take() else { return };
        if self.open.txg == Txg::ZERO && self.dnode.is_some() {
            // nothing has changed since: both are one in memory
            self.dnode = Some(tree.clone());
        } else if let Some(dnode) = self.dnode.as_mut().filter(|_| layer.dnode.is_some()) {
            let dnode = Arc::make_mut(dnode);
            dnode.blkptrs.clone_from(&tree.blkptrs);
            (dnode.levels, dnode.used_bytes, dnode.flags) = (tree.levels, tree.used_bytes, tree.flags);
            if dnode.spill.is_some() {
                dnode.spill = tree.spill.or(dnode.spill);
            }
        }
        self.tree = tree;
    }
}

impl Layer {
    /// The same contents of some blocks alone, of an object that is `dnode` by now.
    pub(crate) fn only(&self, blkids: &BTreeSet<u64>, dnode: Arc<Dnode>) -> Layer {
        let mut only = Layer { dnode: Some(dnode), ..Layer::default() };
        for blkid in blkids {
            only.blocks.extend(self.blocks.get(blkid).map(|block| (*blkid, block.clone())));
            only.compressed.extend(self.compressed.get(blkid).map(|packed| (*blkid, packed.clone())));
        }
        only
    }

    /// A block is about to change. What was written of it.
    fn outdate(&mut self, blkid: u64) -> Option<BlkPtr> {
        let bp = self.early.remove(&blkid);
        self.outdated.extend(bp);
        bp
    }

    /// How the contents of a block were compressed elsewhere.
    pub(crate) fn compressed_as(&self, blkid: u64, contents: &Block) -> Option<Compressed> {
        // a block that was changed is another one, as this one is held
        let (_, compressed) = self.compressed.get(&blkid).filter(|(of, _)| of.is_shared_with(contents))?;
        Some(compressed.clone())
    }

    pub(crate) fn is_hole(&self, blkid: u64) -> bool {
        self.holes.range(..=blkid).next_back().is_some_and(|(_, &to)| blkid < to)
    }

    fn add_hole(&mut self, mut from: u64, mut to: u64) {
        while let Some((&a, &b)) = self.holes.range(..=to).next_back().filter(|&(_, &b)| b >= from) {
            (from, to) = (from.min(a), to.max(b));
            self.holes.remove(&a);
        }
        self.holes.insert(from, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_grow_together() {
        let mut layer = Layer::default();
        for (from, to) in [(10, 20), (30, 40), (50, 60), (20, 30), (5, 8), (0, 1), (7, 55)] {
            layer.add_hole(from, to);
        }
        assert_eq!(layer.holes.into_iter().collect::<Vec<_>>(), [(0, 1), (5, 60)]);
    }
}
