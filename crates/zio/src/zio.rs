//! The block pipeline of one pool, and its parts.
//!
//! ```text
//!   reading   sums: are these the bytes?     damage: what was wrong      on_failure: reads that wait for devices
//!   writing   allocator: where?              queue: on its way           refs: do others lead there?
//! ```
//!
//! What it does with them is in the files that are named after that: `read`, `gang`, `verify`, `heal`, `write`, `log`.

use std::sync::{Arc, OnceLock};

use base::{Env, Error, Kind, Result};
use format::blkptr::BlkPtr;
use vdev::Tree;

use crate::alloc::Allocator;
use crate::damage::Damage;
use crate::issue::WriteQueue;
use crate::on_failure::{DeviceWait, ReadWaits};
use crate::refs::{CloneTable, RefTable};
use crate::sums::BlockSums;

/// The block pipeline of one pool.
pub struct Zio {
    tree: Arc<Tree>,
    env: Env,
    sums: BlockSums,
    allocator: OnceLock<Arc<Allocator>>,
    refs: OnceLock<Arc<dyn RefTable>>,
    clones: OnceLock<Arc<dyn CloneTable>>,
    queue: WriteQueue,
    waiting: ReadWaits,
    damage: Damage,
}

impl Zio {
    /// A pipeline over `tree`.
    pub fn new(tree: Arc<Tree>, env: Env) -> Zio {
        tree.set_clock(&env);
        let queue = WriteQueue::new(tree.clone());
        let (sums, allocator, refs, clones, waiting, damage) = Default::default();
        Zio { tree, env, sums, allocator, refs, clones, queue, waiting, damage }
    }

    /// Sets the pool's checksum salt, which skein, edonr and blake3 are keyed with; it is found in the
    /// MOS, so nothing before uses these. A second call changes nothing.
    pub fn set_salt(&self, salt: [u8; 32]) {
        self.sums.set_salt(salt);
    }

    /// The vdevs below.
    pub fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// The environment that the pool runs in.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Gives the pipeline the table that is asked before a block is freed. A second call changes nothing.
    pub fn set_ref_table(&self, refs: Arc<dyn RefTable>) {
        let _ = self.refs.set(refs);
    }

    /// Gives the pipeline the table that is asked of blocks that the other does not count. A second call changes nothing.
    pub fn set_clone_table(&self, clones: Arc<dyn CloneTable>) {
        let _ = self.clones.set(clones);
    }

    /// Whether further pointers to a block may be made, which its dedup table or else the table of clones then counts:
    /// blocks of removed vdevs and gang blocks are not for that, nor are encrypted ones. Embedded ones are copied with the
    /// pointer.
    pub fn can_clone(&self, bp: &BlkPtr) -> bool {
        let is_there = |vdev| self.tree.top(vdev).is_ok_and(|top| top.kind() != vdev::VdevKind::Indirect);
        let is_plain = !bp.is_gang() && !bp.uses_crypt();
        bp.is_embedded() || is_plain && bp.copies().all(|dva| is_there(dva.vdev()))
    }

    /// Gives the pipeline what it allocates from; before that nothing can be written. A second call
    /// changes nothing.
    pub fn set_allocator(&self, allocator: Arc<Allocator>) {
        let _ = self.allocator.set(allocator);
    }

    /// What blocks are allocated from. Errors: `ReadOnly` if there is nothing.
    pub fn allocator(&self) -> Result<&Arc<Allocator>> {
        self.allocator.get().ok_or_else(read_only)
    }

    /// The table of counted pointers, if there is one.
    pub(crate) fn refs(&self) -> Option<&dyn RefTable> {
        self.refs.get().map(|refs| &**refs)
    }

    /// Tells the tables of counted pointers that one to a block is gone. False if none counts those of this block.
    pub(crate) fn release_counted(&self, bp: &BlkPtr) -> bool {
        self.refs.get().is_some_and(|refs| refs.release(bp))
            || self.clones.get().is_some_and(|clones| clones.release(bp))
    }

    /// What readers have found damaged.
    pub fn damage(&self) -> &Damage {
        &self.damage
    }

    /// Tells how reads wait for devices that fail: `wait` is called with the error of one, and tells whether it shall
    /// be tried again. Before, none waits. A second call changes nothing.
    pub fn set_device_wait(&self, wait: DeviceWait) {
        self.waiting.set(wait);
    }

    pub(crate) fn waiting(&self) -> &ReadWaits {
        &self.waiting
    }

    pub(crate) fn sums(&self) -> &BlockSums {
        &self.sums
    }

    pub(crate) fn queue(&self) -> &WriteQueue {
        &self.queue
    }
}

pub(crate) fn read_only() -> Error {
    Error::new(Kind::ReadOnly, "the pool is open for reading")
}
