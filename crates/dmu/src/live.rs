//! Object sets that are being changed: their nodes, and numbers for new objects.
//!
//! ```text
//!   Objset ── root on disk (replaced when a group has been synced)
//!      └─ Live ─┬─ nodes: changed objects, and those somebody holds   (see `node`)
//!               ├─ dirty: nodes with changes, for each of the two groups in memory
//!               └─ numbers: dnode slots that are free
//! ```
//!
//! Changes are made through [`Object`] and a [`Tx`]; `sync` brings them to disk.

use std::collections::HashMap;
use std::sync::Arc;

use base::{Error, Kind, Mutex, MutexGuard, Result};
use codec::checksum::Checksum;
use codec::compress::Compress;
use format::blkptr::BlkPtr;
use format::dnode::{Dnode, SLOT_SIZE};
use format::object_type::ObjectType;
use format::objset::{ObjsetPhys, ObjsetType};

use crate::node::Node;
use crate::sync::OwnersOf;
use crate::sync::accounting::{counts_projects, flags_of_new, flags_of_objects};
use crate::{Object, Objset, Tx};

const SHARDS: usize = 16;
/// Nodes without changes that a shard keeps.
const NODES_MAX: usize = 4096;
/// Bits of an object's number.
const OBJECT_BITS: u32 = 48;
/// Bytes of a block of dnodes.
const DNODE_BLOCK_SIZE: u64 = 16 << 10;

/// log2 of the bytes of an indirect block.
pub const INDIRECT_SHIFT: u8 = 17;

/// How the blocks of a set are written: what its properties say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Checksum of data.
    pub checksum: Checksum,
    /// Compression of data, and its level where it has any.
    pub compress: Compress,
    /// Level of compression.
    pub compress_level: i32,
    /// Compression of metadata.
    pub compress_meta: Compress,
    /// Copies of data: 1 to 3.
    pub copies: u8,
    /// Which metadata has one copy more.
    pub redundant: Redundant,
    /// Blocks of data that take up to so many bytes on disk go to vdevs for special contents.
    pub special_up_to: u64,
    /// Whether it is the pool's own set: three copies of everything.
    pub is_meta: bool,
    /// Whether small blocks may be embedded in their pointers.
    pub embed: bool,
    /// Whether holes carry the txg in which they were made.
    pub hole_birth: bool,
}

/// Which metadata of a set has a copy more than its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redundant {
    /// All of it.
    #[default]
    All,
    /// All but the lowest indirect blocks of files.
    Most,
    /// What many files and directories depend on.
    Some,
    /// None.
    None,
}

/// What is in memory of a set that is being changed.
pub(crate) struct Live {
    shards: [Mutex<Shard>; SHARDS],
    dirty: [Mutex<Vec<Arc<Node>>>; 2],
    numbers: Mutex<Numbers>,
    policy: Mutex<Policy>,
    owners_of: Mutex<Option<Arc<OwnersOf>>>,
    /// The head of the log that the next head is to have, if it is another.
    log_header: Mutex<Option<[u8; 192]>>,
}

#[derive(Default)]
struct Shard {
    nodes: HashMap<u64, Arc<Node>>,
    /// How often nodes were dropped: what was read from disk before may be outdated.
    purges: u64,
}

/// Free slots of the block of dnodes that is being filled.
#[derive(Default)]
struct Numbers {
    blkid: u64,
    /// Bit n: slot n is free.
    free: u64,
    is_loaded: bool,
}

/// The head of a set without objects.
pub(crate) fn empty_head(kind: ObjsetType) -> ObjsetPhys {
    let mut meta_dnode = Dnode::new(ObjectType::DNODE, DNODE_BLOCK_SIZE, INDIRECT_SHIFT, 3, 1);
    // that of a file system has from the beginning all levels that it can come to need
    meta_dnode.levels = if kind == ObjsetType::Meta { 1 } else { 6 };

    ObjsetPhys {
        meta_dnode,
        log_header: [0; 192],
        kind,
        flags: if kind == ObjsetType::Zfs { flags_of_new() } else { 0 },
        accounting: [None, None, None],
    }
}

impl Live {
    pub(crate) fn new(policy: Policy) -> Live {
        Live {
            shards: Default::default(),
            dirty: Default::default(),
            numbers: Mutex::default(),
            policy: Mutex::new(policy),
            owners_of: Mutex::default(),
            log_header: Mutex::default(),
        }
    }

    /// The node of object `id`, by `load` if there is none in memory.
    pub(crate) fn node(&self, id: u64, load: impl Fn() -> Result<Node>) -> Result<Arc<Node>> {
        let mut shard = self.shard(id);
        loop {
            if let Some(node) = shard.nodes.get(&id) {
                return Ok(node.clone());
            }
            let purges = shard.purges;
            drop(shard);
            let node = Arc::new(load()?);
            shard = self.shard(id);
            if shard.purges == purges && !shard.nodes.contains_key(&id) {
                shard.purge();
                shard.nodes.insert(id, node.clone());
                return Ok(node);
            }
        }
    }

    /// Adds the node of a new object.
    fn add(&self, node: Arc<Node>) {
        self.shard(node.id).nodes.insert(node.id, node);
    }

    /// Whether a number is taken by an object that is in memory.
    fn has(&self, id: u64) -> bool {
        self.shard(id).nodes.contains_key(&id)
    }

    /// Notes that a node has its first changes in a group.
    pub(crate) fn mark(&self, txg: u64, node: &Arc<Node>) {
        self.dirty[txg as usize & 1].lock().push(node.clone());
    }

    /// The nodes with changes in a group.
    pub(crate) fn take_dirty(&self, txg: u64) -> Vec<Arc<Node>> {
        std::mem::take(&mut self.dirty[txg as usize & 1].lock())
    }

    pub(crate) fn is_dirty(&self, txg: u64) -> bool {
        !self.dirty[txg as usize & 1].lock().is_empty()
    }

    /// Forgets nodes of objects that are gone.
    pub(crate) fn forget(&self, id: u64) {
        let mut shard = self.shard(id);
        let is_gone = |node: &Arc<Node>| {
            let state = node.read();
            state.dnode.is_none() && state.is_clean()
        };
        if shard.nodes.get(&id).is_some_and(is_gone) {
            shard.nodes.remove(&id);
            shard.purges += 1;
        }
    }

    pub(crate) fn owners_of(&self) -> Option<Arc<OwnersOf>> {
        self.owners_of.lock().clone()
    }

    pub(crate) fn take_log_header(&self) -> Option<[u8; 192]> {
        self.log_header.lock().take()
    }

    pub(crate) fn policy(&self) -> Policy {
        *self.policy.lock()
    }

    fn shard(&self, id: u64) -> MutexGuard<'_, Shard> {
        self.shards[id as usize % SHARDS].lock()
    }
}

impl Shard {
    /// Drops nodes that nobody needs, if there are many.
    fn purge(&mut self) {
        if self.nodes.len() < NODES_MAX {
            return;
        }
        let before = self.nodes.len();
        self.nodes.retain(|_, node| Arc::strong_count(node) > 1 || !node.read().is_clean());
        self.purges += u64::from(self.nodes.len() < before);
    }
}

impl Objset {
    /// Allocates an object that looks like `dnode`. Errors: those of reading dnodes.
    pub fn allocate(self: &Arc<Self>, tx: &Tx<'_>, dnode: Dnode) -> Result<Object> {
        let live = self.live()?;
        let mut numbers = live.numbers.lock();
        loop {
            let slots = dnode.slots as u32;
            if let Some(slot) = numbers.find(slots) {
                let id = numbers.blkid * (DNODE_BLOCK_SIZE / SLOT_SIZE as u64) + u64::from(slot);
                numbers.free &= !mask(slot, slots);
                // a number whose object was freed a moment ago is used again when that is on disk
                if (id..id + u64::from(slots)).any(|id| live.has(id)) {
                    continue;
                }
                drop(numbers);
                return self.allocate_at(tx, id, dnode);
            }
            self.next_free(&mut numbers, slots)?;
        }
    }

    /// As [`Objset::allocate`], with a number of the caller's choice, which is free.
    pub fn allocate_at(self: &Arc<Self>, tx: &Tx<'_>, id: u64, dnode: Dnode) -> Result<Object> {
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
    pub fn claim_number(self: &Arc<Self>, tx: &Tx<'_>, id: u64, dnode: Dnode) -> Result<Object> {
        let live = self.live()?;
        let per_block = DNODE_BLOCK_SIZE / SLOT_SIZE as u64;
        let (blkid, slot, slots) = (id / per_block, (id % per_block) as u32, dnode.slots as u32);
        if id == 0 || id >> OBJECT_BITS != 0 || slots == 0 || u64::from(slot + slots) > per_block {
            return Err(Error::corrupt(format!("no object can have number {id} and {slots} slots")));
        }
        let taken = || Error::new(Kind::Exists, format!("the number of object {id} is taken"));
        let mut numbers = live.numbers.lock();
        if self.free_slots(blkid)? & mask(slot, slots) != mask(slot, slots) {
            return Err(taken());
        }
        for other in blkid * per_block..id + u64::from(slots) {
            let node = live.shard(other).nodes.get(&other).cloned();
            let reaches = node.is_some_and(|node| {
                let state = node.read();
                let is_there = state.dnode.is_some() || !state.is_clean();
                is_there && other + state.dnode.as_ref().map_or(1, |dnode| dnode.slots as u64) > id
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

    /// Frees an object and all its blocks. Errors: `NotFound`.
    pub fn free_object(self: &Arc<Self>, tx: &Tx<'_>, id: u64) -> Result<()> {
        let object = self.object(id)?;
        let node = object.node().ok_or_else(read_only)?;
        let mut state = node.write();
        if state.enter(tx) {
            self.live()?.mark(tx.txg(), node);
        }
        state.clear_open();
        state.dnode = None;
        tx.dirty(2 * SLOT_SIZE as u64);
        Ok(())
    }

    /// Whether it has changes in that group.
    pub fn is_dirty(&self, txg: u64) -> bool {
        self.live.as_ref().is_some_and(|live| live.is_dirty(txg))
    }

    /// For a set that is being made: objects are counted by user and group, too, and with `by_project` all
    /// is by project.
    pub fn count_objects(&self, by_project: bool) {
        let mut root = self.root();
        let mut phys = (*root.phys).clone();
        phys.flags |= flags_of_objects(by_project);
        root.phys = Arc::new(phys);
        self.set_root(root);
    }

    /// Is space counted by project?
    pub fn counts_projects(&self) -> bool {
        counts_projects(self.phys().flags)
    }

    /// How its blocks are to be written from now on.
    pub fn set_policy(&self, policy: Policy) -> Result<()> {
        *self.live()?.policy.lock() = policy;
        Ok(())
    }

    /// The head of its intent log: the next [`Objset::sync`] writes it, even if nothing else has changed.
    pub fn set_log_header(&self, header: [u8; 192]) -> Result<()> {
        *self.live()?.log_header.lock() = Some(header);
        Ok(())
    }

    /// Tells how to find out to whom an object belongs, before the first change is made.
    pub fn set_owners_of(&self, owners_of: Arc<OwnersOf>) -> Result<()> {
        *self.live()?.owners_of.lock() = Some(owners_of);
        Ok(())
    }

    pub(crate) fn live(&self) -> Result<&Live> {
        self.live.as_ref().ok_or_else(read_only)
    }

    /// Goes to the next block of dnodes with room.
    fn next_free(self: &Arc<Self>, numbers: &mut Numbers, slots: u32) -> Result<()> {
        let per_block = (DNODE_BLOCK_SIZE / SLOT_SIZE as u64) as u32;
        let meta = self.meta();
        let mut blkid = if numbers.is_loaded { numbers.blkid + 1 } else { 0 };
        // a full block need not be read: its pointer counts its dnodes
        let is_full = |bp: &BlkPtr| !bp.is_hole() && bp.fill() + u64::from(slots) > u64::from(per_block);
        while blkid <= meta.dnode().block_max && is_full(&meta.data_pointer(blkid)?) {
            blkid += 1;
        }
        *numbers = Numbers { blkid, free: self.free_slots(blkid)?, is_loaded: true };
        // objects that were given their numbers, and are not on disk yet
        for slot in 0..per_block {
            let id = blkid * u64::from(per_block) + u64::from(slot);
            if let Some(dnode) = self.live()?.shard(id).nodes.get(&id).and_then(|node| node.read().dnode.clone()) {
                numbers.free &= !mask(slot, dnode.slots as u32);
            }
        }
        Ok(())
    }

    /// The free slots of a block of dnodes on disk, by bits.
    fn free_slots(self: &Arc<Self>, blkid: u64) -> Result<u64> {
        let meta = self.meta();
        let per_block = (DNODE_BLOCK_SIZE / SLOT_SIZE as u64) as u32;
        let mut free = u64::MAX >> (64 - per_block);
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

impl Numbers {
    /// The first of `slots` free slots in a row.
    fn find(&self, slots: u32) -> Option<u32> {
        (0..64 - slots).find(|&slot| self.free & mask(slot, slots) == mask(slot, slots))
    }
}

fn mask(slot: u32, slots: u32) -> u64 {
    (u64::MAX >> (64 - slots)) << slot
}

fn read_only() -> Error {
    Error::new(Kind::ReadOnly, "this object set is open read-only")
}
