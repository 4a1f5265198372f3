//! The objects of a set: their dnodes, in the blocks of the meta dnode.

use std::sync::Arc;

use base::{Error, Kind, Result};
use format::dnode::{Dnode, SLOT_SIZE};
use format::ids::ObjectId;
use format::object_type::ObjectType;

use crate::node::Node;
use crate::{Object, Objset};

impl Objset {
    /// The object of all dnodes, as on disk.
    pub fn meta(self: &Arc<Self>) -> Object {
        Object::new(self.clone(), ObjectId::META_DNODE, self.root().meta)
    }

    /// Object number `id`. Errors: `NotFound` if it is not allocated, and for the numbers of the tables of accounts,
    /// which lie outside the meta dnode.
    pub fn object(self: &Arc<Self>, id: ObjectId) -> Result<Object> {
        let Ok(live) = self.live() else {
            return self.dnode_on_disk(id).map(|dnode| Object::new(self.clone(), id, Arc::new(dnode)));
        };
        let absent = || Error::new(Kind::NotFound, format!("object {id} is not allocated"));
        if id.get() >> ObjectId::BITS != 0 {
            return Err(absent());
        }
        let node = live.node(id, || self.dnode_on_disk(id).map(|dnode| Node::new(id, Arc::new(dnode))))?;
        Object::of_node(self.clone(), node).ok_or_else(absent)
    }

    /// The dnode of object `id` in what is on disk. Errors: `NotFound` if there is none.
    pub(crate) fn dnode_on_disk(self: &Arc<Self>, id: ObjectId) -> Result<Dnode> {
        let absent = || Error::new(Kind::NotFound, format!("object {id} is not allocated"));
        let meta = self.meta();
        let per_block = meta.dnode().block_size / SLOT_SIZE as u64;
        let (blkid, slot) = id.place(per_block);
        let slot = slot as usize;
        if id == ObjectId::META_DNODE || blkid > meta.dnode().block_max {
            return Err(absent());
        }
        let block = meta.block(blkid)?;
        // The dnodes before it are only stepped over: reading them all would take most of the time.
        let mut at = 0;
        while at < slot {
            at += Dnode::slots_at(&block[at * SLOT_SIZE..]).map_err(|e| meta.placed(e, 0, blkid))?;
        }
        let bytes = block.get(slot * SLOT_SIZE..).filter(|_| at == slot).ok_or_else(absent)?;
        Dnode::parse(bytes).map_err(|e| meta.placed(e, 0, blkid))?.ok_or_else(absent)
    }

    /// Starts reading the dnodes of objects that will be opened soon.
    pub fn prefetch(self: &Arc<Self>, ids: impl IntoIterator<Item = ObjectId>) {
        let meta = self.meta();
        let per_block = meta.dnode().block_size / SLOT_SIZE as u64;
        let mut blkids: Vec<u64> = ids.into_iter().map(|id| id.place(per_block).0).collect();
        blkids.sort_unstable();
        blkids.dedup();
        meta.prefetch(blkids);
    }

    /// The lowest object number above `after` that is allocated.
    pub fn next_object(self: &Arc<Self>, after: ObjectId) -> Result<Option<ObjectId>> {
        let meta = self.meta();
        let per_block = meta.dnode().block_size / SLOT_SIZE as u64;
        let first = after.next();
        let (mut from, _) = first.place(per_block);
        while let Some(blkid) = meta.seek_block(from..u64::MAX, true)? {
            let block = meta.block(blkid)?;
            let mut at = 0;
            while let Some(slot) = block.get(at * SLOT_SIZE..).filter(|rest| rest.len() >= SLOT_SIZE) {
                let id = ObjectId::in_block(blkid, at as u64, per_block);
                if id >= first && slot[0] != ObjectType::NONE.0 {
                    Dnode::parse(slot).map_err(|e| meta.placed(e, 0, blkid))?;
                    return Ok(Some(id));
                }
                at += Dnode::slots_at(slot).map_err(|e| meta.placed(e, 0, blkid))?;
            }
            from = blkid + 1;
        }
        Ok(None)
    }

    /// All dnodes in one block of the meta dnode, each with its object number; one that makes no sense
    /// ends the list with an error.
    pub fn dnodes_in_block(self: &Arc<Self>, blkid: u64, block: &[u8]) -> Vec<Result<(ObjectId, Dnode)>> {
        let meta = self.meta();
        let per_block = meta.dnode().block_size / SLOT_SIZE as u64;
        Slots::new(block)
            .map(|dnode| match dnode {
                Ok((at, dnode)) => Ok((ObjectId::in_block(blkid, at as u64, per_block), dnode)),
                Err(e) => Err(meta.placed(e, 0, blkid)),
            })
            .collect()
    }
}

/// The allocated dnodes of a block and the slots where they begin; ends after the first error.
pub(crate) struct Slots<'a> {
    block: &'a [u8],
    next: usize,
}

impl Slots<'_> {
    pub(crate) fn new(block: &[u8]) -> Slots<'_> {
        Slots { block, next: 0 }
    }
}

impl Iterator for Slots<'_> {
    type Item = Result<(usize, Dnode)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let slot = self.next;
            let rest = self.block.get(slot * SLOT_SIZE..).filter(|rest| rest.len() >= SLOT_SIZE)?;
            match Dnode::parse(rest) {
                Ok(None) => self.next += 1,
                Ok(Some(dnode)) => {
                    self.next += dnode.slots;
                    return Some(Ok((slot, dnode)));
                }
                Err(e) => {
                    self.next = usize::MAX / SLOT_SIZE;
                    return Some(Err(e));
                }
            }
        }
    }
}
