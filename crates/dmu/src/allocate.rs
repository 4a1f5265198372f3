//! Numbers for new objects, and objects that go.

use std::sync::Arc;

use base::{Error, Kind, Result};
use format::blkptr::BlkPtr;
use format::dnode::{Dnode, SLOT_SIZE};
use format::ids::ObjectId;
use format::object_type::ObjectType;

use crate::live::{DNODE_BLOCK_SIZE, FreeSlots, mask};
use crate::node::Node;
use crate::objset::read_only;
use crate::{Object, Objset, Tx};

/// Dnodes of one slot in a block of them.
const PER_BLOCK: u64 = DNODE_BLOCK_SIZE / SLOT_SIZE as u64;

impl Objset {
    /// Allocates an object that looks like `dnode`. Errors: those of reading dnodes.
    pub fn allocate(self: &Arc<Self>, tx: &Tx<'_>, dnode: Dnode) -> Result<Object> {
        let live = self.live()?;
        let mut numbers = live.numbers();
        loop {
            let slots = dnode.slots as u32;
            if let Some(slot) = numbers.find(slots) {
                let id = ObjectId::in_block(numbers.blkid, slot.into(), PER_BLOCK);
                numbers.free &= !mask(slot, slots);
                // a number whose object was freed a moment ago is used again when that is on disk
                if id.until(id.plus(slots.into())).any(|id| live.has(id)) {
                    continue;
                }
                drop(numbers);
                return self.allocate_at(tx, id, dnode);
            }
            self.next_free(&mut numbers, slots)?;
        }
    }

    /// As [`Objset::allocate`], with a number of the caller's choice, which is free.
    pub fn allocate_at(self: &Arc<Self>, tx: &Tx<'_>, id: ObjectId, dnode: Dnode) -> Result<Object> {
        let live = self.live()?;
        let mut blank = Dnode::new(dnode.object_type, dnode.block_size, dnode.indirect_shift, 1, dnode.slots);
        blank.blkptrs.clone_from(&dnode.blkptrs);
        let node = Node::new(id, Arc::new(blank));
        {
            let mut state = node.write();
            state.enter(tx);
            state.dnode = Some(Arc::new(dnode));
        }
        let node = Arc::new(node);
        live.mark(tx.txg(), &node);
        live.add(node.clone());
        tx.dirty(2 * SLOT_SIZE as u64);
        Object::of_node(self.clone(), node).ok_or_else(|| Error::new(Kind::NotFound, "object has been freed"))
    }

    /// As [`Objset::allocate_at`], after a look whether the number and its slots are free on disk and in memory.
    /// Errors: `Exists` if they are not; also as long as the object that had them is gone only in memory.
    pub fn claim_number(self: &Arc<Self>, tx: &Tx<'_>, id: ObjectId, dnode: Dnode) -> Result<Object> {
        let live = self.live()?;
        let ((blkid, slot), slots) = (id.place(PER_BLOCK), dnode.slots as u32);
        let slot = slot as u32;
        if !id.is_possible() || slots == 0 || u64::from(slot + slots) > PER_BLOCK {
            return Err(Error::corrupt(format!("no object can have number {id} and {slots} slots")));
        }
        let taken = || Error::new(Kind::Exists, format!("the number of object {id} is taken"));
        let mut numbers = live.numbers();
        if self.free_slots(blkid)? & mask(slot, slots) != mask(slot, slots) {
            return Err(taken());
        }
        for other in ObjectId::in_block(blkid, 0, PER_BLOCK).until(id.plus(slots.into())) {
            let node = live.known(other);
            let reaches = node.is_some_and(|node| {
                let state = node.read();
                let is_there = state.dnode.is_some() || !state.is_clean();
                is_there && other.plus(state.dnode.as_ref().map_or(1, |dnode| dnode.slots as u64)) > id
            });
            if reaches {
                return Err(taken());
            }
        }
        if numbers.is_loaded && numbers.blkid == blkid {
            numbers.free &= !mask(slot, slots);
        }
        drop(numbers);
        self.allocate_at(tx, id, dnode)
    }

    /// Frees an object and all its blocks. Errors: `NotFound`; as from [`Object::check_freeable`].
    pub fn free_object(self: &Arc<Self>, tx: &Tx<'_>, id: ObjectId) -> Result<()> {
        self.free(tx, &self.object(id)?)
    }

    /// Frees an object that is at hand. Errors: as from [`Objset::free_object`].
    pub(crate) fn free(&self, tx: &Tx<'_>, object: &Object) -> Result<()> {
        let node = object.node().ok_or_else(read_only)?;
        object.check_freeable()?;
        let mut state = node.write();
        if state.enter(tx) {
            self.live()?.mark(tx.txg(), node);
        }
        state.clear_open();
        state.dnode = None;
        tx.dirty(2 * SLOT_SIZE as u64);
        Ok(())
    }

    /// Goes to the next block of dnodes with room.
    fn next_free(self: &Arc<Self>, numbers: &mut FreeSlots, slots: u32) -> Result<()> {
        let (live, meta) = (self.live()?, self.meta());
        let mut blkid = if numbers.is_loaded { numbers.blkid + 1 } else { 0 };
        // a full block need not be read
        while blkid <= meta.dnode().block_max && is_full(&meta.data_pointer(blkid)?, slots) {
            blkid += 1;
        }
        *numbers = FreeSlots { blkid, free: self.free_slots(blkid)?, is_loaded: true };
        // objects that were given their numbers, and are not on disk yet
        for slot in 0..PER_BLOCK {
            let id = ObjectId::in_block(blkid, slot, PER_BLOCK);
            if let Some(dnode) = live.known(id).and_then(|node| node.read().dnode.clone()) {
                numbers.free &= !mask(slot as u32, dnode.slots as u32);
            }
        }
        Ok(())
    }

    /// The free slots of a block of dnodes on disk, by bits.
    fn free_slots(self: &Arc<Self>, blkid: u64) -> Result<u64> {
        let meta = self.meta();
        let mut free = u64::MAX >> (64 - PER_BLOCK);
        if blkid <= meta.dnode().block_max {
            let block = meta.block(blkid)?;
            let mut at = 0;
            while at < block.len() / SLOT_SIZE {
                let slot = &block[at * SLOT_SIZE..];
                let taken = Dnode::slots_at(slot).map_err(|e| meta.placed(e, 0, blkid))?;
                if slot[0] != ObjectType::NONE.0 {
                    free &= !mask(at as u32, taken as u32);
                }
                at += taken;
            }
        }
        // number 0 is the meta dnode's
        Ok(if blkid == 0 { free & !1 } else { free })
    }
}

/// Whether a block of dnodes has too little room for one of so many slots: its pointer counts its dnodes.
fn is_full(bp: &BlkPtr, slots: u32) -> bool {
    let room = PER_BLOCK.saturating_sub(u64::from(slots));
    !bp.is_hole() && bp.fill() > room
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_with_room() {
        assert!(!is_full(&BlkPtr::HOLE, 32));
        let mut raw = [0; BlkPtr::SIZE];
        raw[0] = 1;
        let bp = BlkPtr::parse(&raw).unwrap();
        assert!(!is_full(&bp.with_fill(31), 1) && is_full(&bp.with_fill(32), 1));
        assert!(is_full(&bp.with_fill(u64::MAX), 1));
    }
}
