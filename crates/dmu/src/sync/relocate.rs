//! Blocks of a set that has been written, and is not committed yet, which cannot be written where they were put: they go
//! elsewhere, and with them all that leads to them.
//!
//! ```text
//!   failed: data of object 7         ─▶ written elsewhere ─▶ its indirect blocks, too ─▶ its dnode
//!           indirect block           ─▶ written elsewhere, with the pointers that it has
//!           block of dnodes, or head ─▶ likewise
//! ```
//!
//! What these blocks hold is in the layers of the group, or in the cache: there is nothing to be read from where they are
//! not. What was in their places is reported as killed.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use base::{Bookmark, Result};
use format::blkptr::BlkPtr;
use format::dnode::Dnode;
use format::ids::ObjectId;
use zio::OnFailure;

use super::tree::ObjectJob;
use super::writer::BlockWriter;
use super::{AgainWritten, Ledger, Synced, write_data};
use crate::node::Node;
use crate::{Object, Objset, Tx};

/// What a ledger is to be told, if all goes well.
#[derive(Default)]
struct Noted {
    born: Vec<BlkPtr>,
    killed: Vec<BlkPtr>,
}

impl Ledger for Noted {
    fn born(&mut self, bp: &BlkPtr) {
        self.born.push(*bp);
    }

    fn killed(&mut self, bp: &BlkPtr) -> Result<()> {
        self.killed.push(*bp);
        Ok(())
    }
}

impl Objset {
    /// Writes blocks of a set elsewhere, by their bookmarks, that [`Objset::sync`] has written in this group or this has,
    /// and what leads to them. `None`, and nothing has changed, if some are not of this set or in pieces, or if there
    /// is no room, or what they held is not in memory any more.
    ///
    /// Errors: those of the ledger, and of freeing what was written for nothing; the group cannot go on then.
    pub fn relocate(
        self: &Arc<Self>,
        tx: &Tx<'_>,
        synced: &Synced,
        failed: &[Bookmark],
        ledger: &mut dyn Ledger,
    ) -> Result<Option<Synced>> {
        let mut noted = Noted::default();
        let moved = self.reading(OnFailure::Fail).write_elsewhere(tx, synced, failed, &mut noted);
        match moved {
            Ok(Some(moved)) => {
                noted.born.iter().for_each(|bp| ledger.born(bp));
                noted.killed.iter().try_for_each(|bp| ledger.killed(bp))?;
                Ok(Some(moved))
            }
            _ => {
                // what was written for nothing
                noted.born.iter().try_for_each(|bp| self.cache().free(tx.txg(), bp).map(drop))?;
                Ok(None)
            }
        }
    }

    fn write_elsewhere(
        self: &Arc<Self>,
        tx: &Tx<'_>,
        synced: &Synced,
        failed: &[Bookmark],
        noted: &mut Noted,
    ) -> Result<Option<Synced>> {
        let Some(mut by_object) = self.sort(failed) else { return Ok(None) };
        self.add_twins(synced, &mut by_object)?;
        let (root, mut nodes, mut dnodes) = (synced.root.clone(), synced.nodes.clone(), BTreeMap::new());
        let of_meta = by_object.remove(&ObjectId::META_DNODE).unwrap_or_default();
        let meta = Object::new(self.clone(), ObjectId::META_DNODE, root.meta.clone());
        let is_head_movable = is_movable(&root.bp) || failed.iter().all(|bookmark| bookmark.level >= 0);
        if !is_head_movable || !are_movable(&of_meta, &meta)? {
            return Ok(None);
        }
        let mut writer = BlockWriter::new(self, tx.txg(), self.live()?.policy(), noted).elsewhere();
        for (id, blocks) in by_object {
            let Some((node, tree)) = nodes.iter_mut().find(|(node, _)| node.id == id) else { return Ok(None) };
            let Some(layer) = node.read().syncing() else { return Ok(None) };
            let is_held = blocks.data.iter().all(|blkid| layer.blocks.contains_key(blkid));
            if !is_held || !are_movable(&blocks, &Object::new(self.clone(), id, tree.clone()))? {
                return Ok(None);
            }
            let layer = layer.only(&blocks.data, tree.clone());
            let mut job = ObjectJob::new(self, id, tree.clone(), Arc::new(layer));
            blocks.indirect.into_iter().try_for_each(|(level, number)| job.touch(level, number))?;
            write_data(std::slice::from_mut(&mut job), &mut writer)?;
            let slots = job.slots();
            let after = job.finish(&mut writer)?.map(Arc::new);
            after.iter().for_each(|after| *tree = after.clone());
            dnodes.insert(id, (slots, after));
        }
        let root = self.sync_head(root, (dnodes, of_meta), None, &mut writer)?;
        let (has_large_dnodes, recounted) = (synced.has_large_dnodes, synced.recounted.clone());
        Ok(Some(Synced { root, has_large_dnodes, nodes, recounted }))
    }

    /// Blocks of this set by object, heads left out; `None` if some are not of this set.
    fn sort(&self, failed: &[Bookmark]) -> Option<BTreeMap<ObjectId, AgainWritten>> {
        let mut by_object: BTreeMap<ObjectId, AgainWritten> = BTreeMap::new();
        for bookmark in failed {
            if bookmark.objset != self.id().get() {
                return None;
            }
            // the head is written in any case
            let Ok(level) = u8::try_from(bookmark.level) else { continue };
            let blocks = by_object.entry(ObjectId::new(bookmark.object)).or_default();
            match level {
                0 => blocks.data.insert(bookmark.blkid),
                _ => blocks.indirect.insert((level, bookmark.blkid)),
            };
        }
        Some(by_object)
    }

    /// Adds the other blocks of data that are the same deduplicated ones: they are not any more, as their entry goes.
    fn add_twins(self: &Arc<Self>, synced: &Synced, by_object: &mut BTreeMap<ObjectId, AgainWritten>) -> Result<()> {
        let pointers_of = |node: &Node, tree: &Arc<Dnode>, blkids: &mut dyn Iterator<Item = u64>| {
            let object = Object::new(self.clone(), node.id, tree.clone());
            let pointer = |blkid| object.pointer_on_disk(0, blkid).map(|bp| (blkid, bp));
            blkids
                .map(pointer)
                .filter(|found| found.as_ref().is_ok_and(|(_, bp)| bp.is_dedup()))
                .collect::<Result<Vec<_>>>()
        };
        let mut shared = HashSet::new();
        for (node, tree) in &synced.nodes {
            let Some(failed) = by_object.get(&node.id) else { continue };
            let found = pointers_of(node, tree, &mut failed.data.iter().copied())?;
            shared.extend(found.into_iter().map(|(_, bp)| bp.dvas()[0]));
        }
        if shared.is_empty() {
            return Ok(());
        }
        for (node, tree) in &synced.nodes {
            let Some(layer) = node.read().syncing() else { continue };
            let twins = pointers_of(node, tree, &mut layer.blocks.keys().copied())?;
            let blocks = by_object.entry(node.id).or_default();
            let is_one = |(_, bp): &(u64, BlkPtr)| shared.contains(&bp.dvas()[0]);
            blocks.data.extend(twins.into_iter().filter(is_one).map(|(blkid, _)| blkid));
        }
        by_object.retain(|_, blocks| !blocks.data.is_empty() || !blocks.indirect.is_empty());
        Ok(())
    }
}

/// Whether all these blocks of an object can be written elsewhere. Errors: those of reading what leads there.
fn are_movable(again: &AgainWritten, object: &Object) -> Result<bool> {
    let data = again.data.iter().map(|blkid| (0, *blkid));
    let mut blocks = data.chain(again.indirect.iter().copied());
    blocks.try_fold(true, |all, (level, blkid)| Ok(all && is_movable(&object.pointer_on_disk(level, blkid)?)))
}

/// Whether a block can be written elsewhere: it is in one piece, and need not be sealed.
fn is_movable(bp: &BlkPtr) -> bool {
    !bp.is_hole() && !bp.is_embedded() && !bp.is_gang() && !bp.uses_crypt()
}
