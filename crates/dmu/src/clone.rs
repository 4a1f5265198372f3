//! Blocks that an object takes from elsewhere as they are: only a pointer is written.
//!
//! ```text
//!   source, block 5 ─▶ pointer on disk ─▶ open layer of the target, block 9 ─▶ its group puts it into the tree
//!                                                └─ changes again: it is forgotten
//!   group closed ─▶ `Objset::clones_in`: all pointers that it adds, to be counted before it frees anything
//! ```
//!
//! A block can be taken while no group in memory changes it: then whatever frees it later is in the group that takes it,
//! or in one behind that, and finds it counted. The transaction is held from before the pointer is looked at.

use base::{Error, Kind, Result};
use format::blkptr::BlkPtr;
use format::ids::Txg;

use crate::node::BlockSource;
use crate::{Object, Objset, Tx};

/// What can be taken of a block.
#[derive(Clone, Copy, Debug)]
pub enum CloneSource {
    /// Nothing is there.
    Hole,
    /// This block.
    Block(BlkPtr),
    /// A block that can have no further pointers.
    Unfit,
    /// It has been changed in memory, and is not on disk yet.
    Changed,
}

impl Object {
    /// What block `blkid` is at this moment. Errors: those of reading what leads there.
    pub fn clone_source(&self, blkid: u64) -> Result<CloneSource> {
        Ok(match self.find(blkid) {
            BlockSource::Changed(_) => CloneSource::Changed,
            BlockSource::Cloned(bp) => CloneSource::Block(bp),
            BlockSource::Hole => CloneSource::Hole,
            BlockSource::OnDisk(tree) => match self.pointer(&tree, 0, blkid)?.0 {
                bp if bp.is_hole() => CloneSource::Hole,
                bp if !self.objset().cache().zio().can_clone(&bp) => CloneSource::Unfit,
                bp => CloneSource::Block(bp),
            },
        })
    }

    /// Makes block `blkid` that which `bp` leads to, a pointer of the same pool from [`Object::clone_source`], asked for
    /// within `tx`. Errors: `Invalid` if it is of another size; those of reading what leads there.
    pub fn put_clone(&self, tx: &Tx<'_>, blkid: u64, bp: BlkPtr) -> Result<()> {
        if bp.is_hole() || bp.level() != 0 || bp.uses_crypt() {
            return Err(Error::new(Kind::Invalid, "not a block of plain data"));
        }
        let node = self.writable()?;
        if let BlockSource::OnDisk(tree) = self.find(blkid) {
            self.check_path(&tree, blkid)?;
        }
        let mut state = node.write();
        self.enter(tx, node, &mut state)?;
        state.put_clone(tx, blkid, bp.taken_in(tx.txg()).with_fill(1))?;
        self.objset().live()?.note_clones(tx.txg());
        Ok(())
    }
}

impl Objset {
    /// Tells of each pointer that was taken from elsewhere in group `txg`, which is closed, and goes to disk with it.
    /// To be called once, before anything of that group is synced.
    pub fn clones_in(&self, txg: Txg, tell: &mut dyn FnMut(&BlkPtr)) -> Result<()> {
        for node in self.live()?.nodes_with_clones(txg) {
            let layer = node.write().freeze(txg);
            let layer = layer.filter(|layer| layer.txg == txg && layer.dnode.is_some());
            layer.iter().flat_map(|layer| layer.clones.values()).for_each(&mut *tell);
        }
        Ok(())
    }
}
