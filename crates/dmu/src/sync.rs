//! Bringing the changes of a group to disk: from changed blocks to a new root pointer.
//!
//! Nothing is overwritten. A changed block gets a new address, so the block that points to it changes,
//! up to the dnode, which changes a block of dnodes, up to the head of the set:
//!
//! ```text
//!   layers of all dirty nodes ──▶ level 0 of all objects, in large batches        (`write_data`)
//!                                 level 1, 2, ... of each object                  (`tree`)
//!                                 dnodes into their blocks, as level 0 of the meta dnode
//!                                 level 1, 2, ... of the meta dnode
//!                                 head of the set ──▶ root pointer
//! ```
//!
//! What was there before is reported as killed, what is new as born: the [`Ledger`] charges datasets, and
//! frees. Readers go on with the layers and the old tree until [`Objset::commit`], which is for when all
//! that was written is on the devices. If anything fails, nothing in memory has changed.

mod accounting;
mod ledger;
mod recount;
mod relocate;
#[cfg(test)]
mod tests;
mod tree;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{Block, Bookmark, Error, Kind, Result, ResultExt};
use codec::compress::Compress;
use format::blkptr::BlkPtr;
use format::dnode::{Dnode, SLOT_SIZE};
use format::ids::ObjectId;
use format::object_type::ObjectType;
use format::objset::ObjsetPhys;
use zio::BlockWrite;

use crate::node::Node;
use crate::objset::Root;
pub use crate::owners::{AccountKinds, Owners, OwnersOf};
use crate::{Object, Objset, Tx};
use accounting::AccountingSums;
pub use ledger::Ledger;
use recount::{RecountStep, Recounted, is_table};
use tree::ObjectJob;
use writer::BlockWriter;
pub use writer::dsize;
pub(crate) use writer::write_policy;

/// A set that has been written, and not committed yet.
pub struct Synced {
    root: Root,
    has_large_dnodes: bool,
    nodes: Vec<(Arc<Node>, Arc<Dnode>)>,
    recounted: Recounted,
}

/// Of objects by number: slots, and the dnode; none if it was freed.
type WrittenDnodes = BTreeMap<ObjectId, (usize, Option<Arc<Dnode>>)>;

/// Blocks of an object that are to be written again as they are: data by number, indirect blocks by level and number.
#[derive(Default)]
struct AgainWritten {
    data: BTreeSet<u64>,
    indirect: BTreeSet<(u8, u64)>,
}

/// Objects that have been written.
#[derive(Default)]
struct WrittenObjects {
    /// Each with the dnode that is on disk then.
    nodes: Vec<(Arc<Node>, Arc<Dnode>)>,
    dnodes: WrittenDnodes,
}

impl Synced {
    /// The pointer to the new head.
    pub fn rootbp(&self) -> BlkPtr {
        self.root.bp
    }

    /// What is counted anew in it, if anything is; see [`Objset::begin_recount`].
    pub fn counts_anew(&self) -> Option<AccountKinds> {
        self.recounted.counts()
    }

    /// Whether all is counted anew with it.
    pub fn is_recounted(&self) -> bool {
        self.recounted.is_done()
    }

    /// Whether a dnode of more than one slot was written.
    pub fn has_large_dnodes(&self) -> bool {
        self.has_large_dnodes
    }
}

impl Objset {
    /// Writes the changes of a group that is closed: `tx` is from [`crate::Txgs::in_sync`]. `None` if there are none.
    ///
    /// Errors: those of reading what is changed, `NoSpace`. Devices may still be writing when this returns;
    /// see `Zio::finish_writes`.
    pub fn sync(self: &Arc<Self>, tx: &Tx<'_>, ledger: &mut dyn Ledger) -> Result<Option<Synced>> {
        self.sync_changes(tx, ledger).in_dataset(self.name())
    }

    fn sync_changes(self: &Arc<Self>, tx: &Tx<'_>, ledger: &mut dyn Ledger) -> Result<Option<Synced>> {
        let (live, txg) = (self.live()?, tx.txg());
        let step = self.recount_step(tx);
        let dirty = live.take_dirty(txg);
        let log_header = live.take_log_header();
        if dirty.is_empty() && log_header.is_none() && step.is_none() {
            return Ok(None);
        }
        if !dirty.is_empty() && self.is_encrypted() {
            return Err(Error::new(Kind::Encrypted, "objects of an encrypted set were changed"));
        }
        let mut writer = BlockWriter::new(self, txg, live.policy(), ledger);
        let mut written = WrittenObjects::default();
        let mut sums = AccountingSums::default();
        let (owners_of, counting) = (live.owners_of(), self.counting(step.as_ref()));
        self.sync_objects(dirty, &mut writer, &mut written, &mut |id, before, after| {
            if let Some(owners_of) = owners_of.as_ref().filter(|_| !is_table(id)) {
                sums.count(&**owners_of, &counting, id, before, after);
            }
        })?;
        let new_flags = step.as_ref().map_or(0, RecountStep::new_flags);
        let recounted = match step.zip(owners_of) {
            Some((step, owners_of)) => step.count(self, (&*owners_of, &counting), &mut sums, &mut written.dnodes)?,
            None => Recounted::default(),
        };
        sums.apply(self, tx)?;
        // the tables of accounts, which count for nobody
        self.sync_objects(live.take_dirty(txg), &mut writer, &mut written, &mut |_, _, _| ())?;
        let has_large_dnodes = written.dnodes.values().flat_map(|(_, dnode)| dnode).any(|dnode| dnode.slots > 1);
        let before = self.root().with_flags(new_flags);
        let root = self.sync_head(before, (written.dnodes, AgainWritten::default()), log_header, &mut writer)?;
        Ok(Some(Synced { root, has_large_dnodes, nodes: written.nodes, recounted }))
    }

    /// Writes the changes of objects; `count` gets each dnode as it was, and as it will be.
    fn sync_objects(
        self: &Arc<Self>,
        dirty: Vec<Arc<Node>>,
        writer: &mut BlockWriter<'_>,
        written: &mut WrittenObjects,
        count: &mut dyn FnMut(ObjectId, &Dnode, Option<&mut Dnode>),
    ) -> Result<()> {
        let mut jobs = Vec::with_capacity(dirty.len());
        for node in &dirty {
            let mut state = node.write();
            let layer = state.freeze(writer.txg()).expect("a node that is dirty has a layer");
            jobs.push(ObjectJob::new(self, node.id, state.tree.clone(), layer));
        }
        write_data(&mut jobs, writer)?;
        for (job, node) in jobs.into_iter().zip(dirty) {
            let (slots, before) = (job.slots(), job.tree().clone());
            let mut after = job.finish(writer)?;
            count(node.id, &before, after.as_mut());
            let after = after.map(Arc::new);
            written.dnodes.insert(node.id, (slots, after.clone()));
            written.nodes.push((node, after.unwrap_or_else(|| Arc::new(empty(slots)))));
        }
        Ok(())
    }

    /// Puts dnodes (or for freed objects, zeros) into their blocks, and writes these, those to be written again, what points
    /// to them, and the head, which was `before`.
    fn sync_head(
        self: &Arc<Self>,
        before: Root,
        (mut dnodes, again): (WrittenDnodes, AgainWritten),
        log_header: Option<[u8; 192]>,
        writer: &mut BlockWriter<'_>,
    ) -> Result<Root> {
        let mut phys = (*before.phys).clone();
        phys.log_header = log_header.unwrap_or(phys.log_header);
        accounting::put_into_head(&mut phys, &mut dnodes);
        let meta = Object::new(self.clone(), ObjectId::META_DNODE, before.meta.clone());
        let per_block = meta.dnode().block_size / SLOT_SIZE as u64;
        let kept = again.data.into_iter().map(|blkid| Ok((blkid, meta.block(blkid)?)));
        let mut blocks = kept.collect::<Result<BTreeMap<u64, Block>>>()?;
        for (id, (slots, dnode)) in dnodes {
            let (blkid, slot) = id.place(per_block);
            let block = match blocks.entry(blkid) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => entry.insert(meta.block(blkid)?),
            };
            let bytes = &mut block.make_mut()[slot as usize * SLOT_SIZE..];
            match dnode {
                Some(dnode) => dnode.write(&mut bytes[..dnode.slots * SLOT_SIZE]),
                None => bytes[..slots * SLOT_SIZE].fill(0),
            }
        }
        let mut job = ObjectJob::of_blocks(meta, blocks);
        again.indirect.into_iter().try_for_each(|(level, number)| job.touch(level, number))?;
        write_data(std::slice::from_mut(&mut job), writer)?;
        let slots = job.slots();
        phys.meta_dnode = job.finish(writer)?.unwrap_or_else(|| empty(slots));
        let mut head = Block::zeroed(ObjsetPhys::size_in(writer.pool_version()));
        phys.write(head.make_mut());
        let fill = phys.meta_dnode.blkptrs.iter().map(BlkPtr::fill).fold(0, u64::saturating_add);
        let is_crypt = self.is_encrypted();
        let mut policy = writer.policy_of(0, ObjectType::OBJSET, (0, 0));
        if is_crypt {
            // others expect to find MACs in what is on disk
            policy.compress = Compress::Off;
        }
        let bookmark = Bookmark { objset: self.id().get(), object: 0, level: Objset::HEAD_LEVEL, blkid: 0 };
        let new = BlockWrite::new(head, (ObjectType::OBJSET, 0), bookmark, policy);
        let write = BlockWrite { is_crypt, previous: before.bp, fill, ..new };
        let bp = writer.write(vec![write])?.remove(0);
        writer.replace(&before.bp, &bp)?;
        Ok(Root::new(bp, phys))
    }

    /// Everything that [`Objset::sync`] wrote is on the devices: readers see it there from now on.
    pub fn commit(&self, synced: Synced) {
        let Ok(live) = self.live() else { return };
        self.set_root(synced.root);
        for (node, tree) in synced.nodes {
            let is_gone = {
                let mut state = node.write();
                state.commit(tree);
                state.dnode.is_none()
            };
            if is_gone {
                live.forget(node.id);
            }
        }
        live.purge_synced();
        synced.recounted.commit(self);
    }
}

/// Bytes of blocks that are compressed and written together.
const BATCH_BYTES: usize = 16 << 20;

/// Writes the changed data blocks of all jobs, and takes note of their new pointers.
fn write_data(jobs: &mut [ObjectJob], writer: &mut BlockWriter<'_>) -> Result<()> {
    let mut batch: Vec<BlockWrite> = Vec::new();
    let mut places: Vec<(usize, u64)> = Vec::new();
    let mut bytes = 0;
    for index in 0..jobs.len() {
        jobs[index].free_first(writer)?;
        jobs[index].put_clones(writer)?;
        for (blkid, block) in jobs[index].changed() {
            let len = block.len();
            let write = jobs[index].data_write(blkid, block, writer)?;
            if let Some(bp) = jobs[index].written_early(blkid) {
                let (previous, bp) = (write.previous, bp.with_fill(write.fill));
                let bp = writer.adopt(write, &bp)?;
                jobs[index].put(0, blkid, &previous, bp, writer)?;
                continue;
            }
            bytes += len;
            batch.push(write);
            places.push((index, blkid));
            if bytes >= BATCH_BYTES {
                take_note(jobs, std::mem::take(&mut batch), std::mem::take(&mut places), writer)?;
                bytes = 0;
            }
        }
    }
    take_note(jobs, batch, places, writer)
}

fn take_note(
    jobs: &mut [ObjectJob],
    batch: Vec<BlockWrite>,
    places: Vec<(usize, u64)>,
    writer: &mut BlockWriter<'_>,
) -> Result<()> {
    let before: Vec<BlkPtr> = batch.iter().map(|write| write.previous).collect();
    let after = writer.write(batch)?;
    for (((index, blkid), previous), bp) in places.into_iter().zip(before).zip(after) {
        jobs[index].put(0, blkid, &previous, bp, writer)?;
    }
    Ok(())
}

/// The dnode of an object that has been freed.
fn empty(slots: usize) -> Dnode {
    Dnode::new(ObjectType::NONE, 512, crate::policy::INDIRECT_SHIFT, 1, slots)
}
