//! Blocks that are written before their group is: those that an intent log leads to.
//!
//! ```text
//!   open layer, block 5 ─▶ OpenBlock ─▶ placed ─▶ written by the log ─▶ kept: the group takes it as it is
//!        └─ changes again, or is freed: what was written is outdated ─▶ freed by the group
//! ```
//!
//! So nothing is written twice. The transaction is held from before the block is looked at until it is kept: the
//! group cannot be closed meanwhile. A writer that changes the block meanwhile gets a copy, and then it is not kept.
//!
//! Until its group is on disk a record of the log may lead to a block that is outdated. So it is freed as what is
//! older is: its place is not used again before that.
//!
//! Whether the block is as it was before is seen by the group, as the one before may be another one until then. Small
//! blocks are not embedded, which would take away the place that a log needs to lead to.

use std::sync::Arc;

use base::{Block, Result};
use format::blkptr::BlkPtr;
use format::ids::ObjectId;
use zio::{BlockWrite, DedupMode, PlacedBlock, WritePolicy};

use crate::sync::write_policy;
use crate::{Object, Objset, Tx};

/// A block that was changed in the open group.
pub struct OpenBlock {
    object: Object,
    blkid: u64,
    contents: Block,
    written: Option<BlkPtr>,
}

impl Object {
    /// The block around byte `offset`, if it was changed in the group of `tx`.
    pub fn open_block(&self, tx: &Tx<'_>, offset: u64) -> Result<Option<OpenBlock>> {
        let object = self.fresh()?;
        let blkid = offset / object.block_size()?;
        let found = object.node().and_then(|node| node.read().changed_in(tx.txg(), blkid));
        Ok(found.map(|(contents, written)| OpenBlock { object, blkid, contents, written }))
    }
}

impl OpenBlock {
    /// Number of the object, and of the block in it.
    pub fn id(&self) -> (ObjectId, u64) {
        (self.object.id(), self.blkid)
    }

    /// The bytes of the object that it holds.
    pub fn range(&self) -> std::ops::Range<u64> {
        let len = self.contents.len() as u64;
        self.blkid.saturating_mul(len)..self.blkid.saturating_add(1).saturating_mul(len)
    }

    /// Where it is written already, as it is now.
    pub fn written(&self) -> Option<BlkPtr> {
        self.written
    }

    /// It is written there: its group is to take it so. False if it has changed since it was looked at; then what
    /// was written is the caller's to free.
    pub fn keep(&self, tx: &Tx<'_>, bp: BlkPtr) -> bool {
        let keep = |node: &Arc<crate::node::Node>| node.write().keep_early(tx.txg(), self.blkid, &self.contents, bp);
        self.object.node().is_some_and(keep)
    }
}

impl Objset {
    /// Gives blocks addresses, and makes them ready to be written. Errors: `NoSpace`, each for itself.
    pub fn place_early(&self, tx: &Tx<'_>, blocks: &[&OpenBlock]) -> Result<Vec<Result<PlacedBlock>>> {
        let policy = self.live()?.policy();
        let request = |block: &&OpenBlock| {
            let dnode = block.object.dnode();
            let own = write_policy(&policy, 0, dnode.object_type, (dnode.checksum, dnode.compress));
            let policy = WritePolicy { embed: false, dedup: DedupMode::Off, ..own };
            let bookmark = block.object.bookmark(0, block.blkid);
            BlockWrite::new(block.contents.clone(), (dnode.object_type, 0), bookmark, policy)
        };
        let requests: Vec<BlockWrite> = blocks.iter().map(request).collect();
        Ok(self.cache().zio().place_batch(tx.txg(), &requests, tx.left_by_logs()))
    }
}
