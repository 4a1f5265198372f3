//! What is in memory of an object set that is being changed: its nodes, and numbers for new objects.
//!
//! ```text
//!   Objset ── root on disk (replaced when a group has been synced)
//!      └─ Live ─┬─ nodes: changed objects, and those somebody holds   (see `node`)
//!               ├─ dirty: nodes with changes, for each of the two groups in memory
//!               └─ numbers: dnode slots that are free
//! ```
//!
//! Changes are made through [`crate::Object`] and a [`crate::Tx`]; `sync` brings them to disk.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Error, Mutex, MutexGuard, Result};
use format::dnode::Dnode;
use format::ids::{ObjectId, Txg};
use format::object_type::ObjectType;
use format::objset::{ObjsetPhys, ObjsetType, VERSION_OF_ACCOUNTING};

use crate::node::Node;
use crate::owners::{OwnersOf, flags_of_new};
use crate::policy::{INDIRECT_SHIFT, ObjsetPolicy};
use crate::recount::Recount;

const SHARDS: usize = 16;
/// Nodes without changes that a shard keeps.
const NODES_MAX: usize = 4096;
/// Bytes of a block of dnodes.
pub(crate) const DNODE_BLOCK_SIZE: u64 = 16 << 10;

/// What is in memory of a set that is being changed.
pub(crate) struct LiveObjset {
    shards: [Mutex<NodeShard>; SHARDS],
    dirty: [Mutex<Vec<Arc<Node>>>; 2],
    /// Whether blocks were taken from elsewhere, in each of these groups.
    has_clones: [AtomicBool; 2],
    numbers: Mutex<FreeSlots>,
    policy: Mutex<ObjsetPolicy>,
    owners_of: Mutex<Option<Arc<OwnersOf>>>,
    /// Accounts that are being made.
    recount: Mutex<Option<Recount>>,
    recount_failure: Mutex<Option<Error>>,
    /// The head of the log that the next head is to have, if it is another.
    log_header: Mutex<Option<[u8; 192]>>,
}

#[derive(Default)]
struct NodeShard {
    nodes: HashMap<ObjectId, Arc<Node>>,
    /// How often nodes were dropped: what was read from disk before may be outdated.
    purges: u64,
}

/// Free slots of the block of dnodes that is being filled.
#[derive(Default)]
pub(crate) struct FreeSlots {
    pub(crate) blkid: u64,
    /// Bit n: slot n is free.
    pub(crate) free: u64,
    pub(crate) is_loaded: bool,
}

/// The head of a set without objects.
pub(crate) fn empty_head(kind: ObjsetType, pool_version: u64) -> ObjsetPhys {
    let mut meta_dnode = Dnode::new(ObjectType::DNODE, DNODE_BLOCK_SIZE, INDIRECT_SHIFT, 3, 1);
    // that of a file system has from the beginning all levels that it can come to need
    meta_dnode.levels = if kind == ObjsetType::Meta { 1 } else { 6 };

    ObjsetPhys {
        meta_dnode,
        log_header: [0; 192],
        macs: [0; 64],
        kind,
        flags: if kind == ObjsetType::Zfs && pool_version >= VERSION_OF_ACCOUNTING { flags_of_new() } else { 0 },
        accounting: [None, None, None],
    }
}

impl LiveObjset {
    pub(crate) fn new(policy: ObjsetPolicy) -> LiveObjset {
        LiveObjset {
            shards: Default::default(),
            dirty: Default::default(),
            has_clones: Default::default(),
            numbers: Mutex::default(),
            policy: Mutex::new(policy),
            owners_of: Mutex::default(),
            recount: Mutex::default(),
            recount_failure: Mutex::default(),
            log_header: Mutex::default(),
        }
    }

    /// The node of object `id`, by `load` if there is none in memory.
    pub(crate) fn node(&self, id: ObjectId, load: impl Fn() -> Result<Node>) -> Result<Arc<Node>> {
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
    pub(crate) fn add(&self, node: Arc<Node>) {
        self.shard(node.id).nodes.insert(node.id, node);
    }

    /// Whether a number is taken by an object that is in memory.
    pub(crate) fn has(&self, id: ObjectId) -> bool {
        self.shard(id).nodes.contains_key(&id)
    }

    /// Notes that a node has its first changes in a group.
    pub(crate) fn mark(&self, txg: Txg, node: &Arc<Node>) {
        self.dirty[txg.slot(2)].lock().push(node.clone());
    }

    /// The nodes with changes in a group.
    pub(crate) fn take_dirty(&self, txg: Txg) -> Vec<Arc<Node>> {
        std::mem::take(&mut self.dirty[txg.slot(2)].lock())
    }

    /// Notes that blocks were taken from elsewhere in a group.
    pub(crate) fn note_clones(&self, txg: Txg) {
        self.has_clones[txg.slot(2)].store(true, Ordering::Relaxed);
    }

    /// The nodes with changes in a group, which is closed, if blocks were taken from elsewhere in it.
    pub(crate) fn nodes_with_clones(&self, txg: Txg) -> Vec<Arc<Node>> {
        match self.has_clones[txg.slot(2)].swap(false, Ordering::Relaxed) {
            true => self.dirty[txg.slot(2)].lock().clone(),
            false => Vec::new(),
        }
    }

    pub(crate) fn is_dirty(&self, txg: Txg) -> bool {
        !self.dirty[txg.slot(2)].lock().is_empty()
    }

    /// Forgets nodes of objects that are gone.
    pub(crate) fn forget(&self, id: ObjectId) {
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

    /// An object that did not change has other flags on disk now.
    pub(crate) fn set_flags(&self, id: ObjectId, flags: u8) {
        let mut shard = self.shard(id);
        // another thread may have read it before
        shard.purges += 1;
        if let Some(node) = shard.nodes.get(&id) {
            node.write().set_flags(flags);
        }
    }

    pub(crate) fn recount(&self) -> Option<Recount> {
        *self.recount.lock()
    }

    pub(crate) fn fail_recount(&self, error: Error) {
        *self.recount_failure.lock() = Some(error);
    }

    pub(crate) fn take_recount_failure(&self) -> Option<Error> {
        self.recount_failure.lock().take()
    }

    pub(crate) fn change_recount(&self, change: impl FnOnce(&mut Option<Recount>)) {
        change(&mut self.recount.lock());
    }

    pub(crate) fn owners_of(&self) -> Option<Arc<OwnersOf>> {
        self.owners_of.lock().clone()
    }

    pub(crate) fn take_log_header(&self) -> Option<[u8; 192]> {
        self.log_header.lock().take()
    }

    pub(crate) fn set_policy(&self, policy: ObjsetPolicy) {
        *self.policy.lock() = policy;
    }

    pub(crate) fn set_owners_of(&self, owners_of: Arc<OwnersOf>) {
        *self.owners_of.lock() = Some(owners_of);
    }

    pub(crate) fn set_log_header(&self, header: [u8; 192]) {
        *self.log_header.lock() = Some(header);
    }

    pub(crate) fn numbers(&self) -> MutexGuard<'_, FreeSlots> {
        self.numbers.lock()
    }

    /// The node of an object that is in memory.
    pub(crate) fn known(&self, id: ObjectId) -> Option<Arc<Node>> {
        self.shard(id).nodes.get(&id).cloned()
    }

    pub(crate) fn policy(&self) -> ObjsetPolicy {
        *self.policy.lock()
    }

    fn shard(&self, id: ObjectId) -> MutexGuard<'_, NodeShard> {
        self.shards[id.get() as usize % SHARDS].lock()
    }
}

impl NodeShard {
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

impl FreeSlots {
    /// The first of `slots` free slots in a row.
    pub(crate) fn find(&self, slots: u32) -> Option<u32> {
        (0..64 - slots).find(|&slot| self.free & mask(slot, slots) == mask(slot, slots))
    }
}

/// The bits of `slots` slots from `slot` on.
pub(crate) fn mask(slot: u32, slots: u32) -> u64 {
    (u64::MAX >> (64 - slots)) << slot
}
