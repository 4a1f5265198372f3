//! What is in memory of an object set that is being changed: its nodes, and numbers for new objects.
//!
//! ```text
//!   Objset ── root on disk (replaced when a group has been synced)
//!      └─ Live ─┬─ nodes: changed objects, those somebody holds, and some more   (see `node`)
//!               ├─ dirty: nodes with changes, for each of the two groups in memory
//!               └─ numbers: dnode slots that are free
//! ```
//!
//! How many nodes more: up to [`NODES_MAX`] in a shard, and of all sets together what the cache has room for
//! ([`arc::KeptNodes`]).
//!
//! Changes are made through [`crate::Object`] and a [`crate::Tx`]; `sync` brings them to disk.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc::{KeptNodes, NodeKeeper};
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
/// Nodes that a shard keeps, other than those with changes and those somebody holds.
const NODES_MAX: usize = 4096;
/// The same where all sets together have too many: fewer are not worth looking for.
const NODES_FEW: usize = 16;
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
    /// Where nodes are counted.
    counted: Arc<KeptNodes>,
}

#[derive(Default)]
struct NodeShard {
    nodes: HashMap<ObjectId, Arc<Node>>,
    /// How often nodes were dropped: what was read from disk before may be outdated.
    purges: u64,
    /// There were so few that nobody needs that it is not worth looking again before there are so many in all.
    purge_at: usize,
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
    pub(crate) fn new(policy: ObjsetPolicy, counted: Arc<KeptNodes>) -> LiveObjset {
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
            counted,
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
                self.insert(&mut shard, node.clone());
                return Ok(node);
            }
        }
    }

    /// Adds the node of a new object.
    pub(crate) fn add(&self, node: Arc<Node>) {
        self.insert(&mut self.shard(node.id), node);
    }

    fn insert(&self, shard: &mut NodeShard, node: Arc<Node>) {
        if shard.nodes.len() >= shard.purge_at {
            self.purge(shard);
        }
        if shard.nodes.insert(node.id, node).is_none() {
            self.counted.add();
        }
    }

    /// Drops nodes that nobody needs, if there are many.
    fn purge(&self, shard: &mut NodeShard) {
        let before = shard.nodes.len();
        if before >= NODES_MAX || before >= NODES_FEW && self.counted.is_over() {
            shard.shrink(self.counted.share_of(before.min(NODES_MAX)) / 2);
            self.counted.remove(before - shard.nodes.len());
        }
    }

    /// Drops nodes that nobody needs any more, as a group is on disk, if there are many.
    pub(crate) fn purge_synced(&self) {
        self.shards.iter().for_each(|shard| self.purge(&mut shard.lock()));
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
            self.counted.remove(1);
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
    /// Drops nodes that nobody needs, any of them, as long as there are more than so many.
    fn shrink(&mut self, most: usize) {
        let before = self.nodes.len();
        let mut surplus = before.saturating_sub(most);
        self.nodes.retain(|_, node| {
            let goes = surplus > 0 && Arc::strong_count(node) == 1 && node.read().is_clean();
            surplus -= usize::from(goes);
            !goes
        });
        self.purges += u64::from(self.nodes.len() < before);
        self.purge_at = self.nodes.len() + self.nodes.len() / 4;
        if self.nodes.capacity() / 4 > self.purge_at {
            self.nodes.shrink_to(self.purge_at);
        }
    }
}

impl NodeKeeper for LiveObjset {
    fn let_go(&self) {
        self.purge_synced();
    }
}

impl Drop for LiveObjset {
    fn drop(&mut self) {
        self.counted.remove(self.shards.iter().map(|shard| shard.lock().nodes.len()).sum());
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
