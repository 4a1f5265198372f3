//! Node ids: how a number that the kernel remembers says which object of which tree is meant.
//!
//! ```text
//!    63          48 47                                              0
//!   +--------------+-------------------------------------------------+
//!   |     tree     |                     object                      |
//!   +--------------+-------------------------------------------------+
//!   tree    0 the live file system, n the n-th oldest snapshot
//!   object  1 the tree's root directory; else an object number
//! ```
//!
//! Object 1 of any ZFS file system is its master node, never a file, so it is free to stand for the
//! root: FUSE demands that the root of a mount be node 1, and a snapshot's root has to have a number
//! before the snapshot is opened. The directories of `.zfs` have the numbers that OpenZFS gives
//! them, at the very end of the range of objects.
//!
//! `st_ino` is the same number but for roots. In the live tree it is what OpenZFS shows. A snapshot is
//! part of the same mount here, so its files need numbers of their own, or tar and rsync would take
//! them for hard links of the live ones; the low 48 bits are the object number. Its root has the
//! number that it has in OpenZFS, which counts down from the end of the range by dataset.
//!
//! Invariant: a node id means the same file as long as the pool is unchanged, also in the next mount;
//! nothing needs to be remembered until the kernel forgets it, and file handles (NFS,
//! `name_to_handle_at`) stay good.

use std::sync::Arc;

use base::{Error, Result};
use zpl::ObjectId;

use crate::tree::FileTree;

/// Bits of an object number, as the format limits it.
const OBJECT_BITS: u32 = ObjectId::BITS;
const OBJECT_MASK: u64 = (1 << OBJECT_BITS) - 1;
/// What stands for a tree's root.
pub(crate) const ROOT: ObjectId = ObjectId::new(1);
/// `.zfs`, under the number that OpenZFS gives it.
pub(crate) const CONTROL: u64 = (1 << OBJECT_BITS) - 1;
/// `.zfs/shares`, likewise.
pub(crate) const SHARES: u64 = (1 << OBJECT_BITS) - 2;
/// `.zfs/snapshot`, likewise.
pub(crate) const SNAPSHOTS: u64 = (1 << OBJECT_BITS) - 3;
/// The root of snapshot dataset 0, if there were one.
const SNAPSHOT_ROOTS: u64 = (1 << OBJECT_BITS) - 4;
/// Object numbers from here on are left to `.zfs`.
const RESERVED: u64 = (1 << OBJECT_BITS) - 16;
/// Snapshots that can have a number.
pub(crate) const SNAPSHOTS_MAX: usize = u16::MAX as usize;

/// Name of the control directory.
pub(crate) const CONTROL_NAME: &[u8] = b".zfs";
/// Name of the directory in it that OpenZFS has for SMB shares. It is always empty.
pub(crate) const SHARES_NAME: &[u8] = b"shares";
/// Name of the directory of snapshots in it.
pub(crate) const SNAPSHOTS_NAME: &[u8] = b"snapshot";

/// Which node a node id names, before any tree is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeId {
    /// `.zfs`
    Control,
    /// `.zfs/shares`
    Shares,
    /// `.zfs/snapshot`
    Snapshots,
    /// In tree `tree`; `object` may be [`ROOT`].
    InTree {
        /// 0 or the snapshot's place.
        tree: u16,
        /// Object number or [`ROOT`].
        object: ObjectId,
    },
}

impl NodeId {
    pub(crate) fn parse(node: u64) -> NodeId {
        match node {
            CONTROL => NodeId::Control,
            SHARES => NodeId::Shares,
            SNAPSHOTS => NodeId::Snapshots,
            _ => NodeId::InTree { tree: (node >> OBJECT_BITS) as u16, object: ObjectId::new(node & OBJECT_MASK) },
        }
    }
}

/// The object of a file, in the file system or the snapshot that it is in, by its number as stat(2) tells it; `None` for
/// what is in no tree.
pub fn object_of(inode: u64) -> Option<ObjectId> {
    match NodeId::parse(inode) {
        NodeId::InTree { object, .. } => Some(object),
        NodeId::Control | NodeId::Shares | NodeId::Snapshots => None,
    }
}

/// The node id of a tree's root.
pub(crate) fn root_node(tree: u16) -> u64 {
    u64::from(tree) << OBJECT_BITS | ROOT.get()
}

/// An open tree and its place among those of the mount.
pub(crate) struct OpenTree<T> {
    pub(crate) tree: Arc<T>,
    pub(crate) place: u16,
    root_ino: u64,
}

// derive would ask for T: Clone
impl<T> Clone for OpenTree<T> {
    fn clone(&self) -> Self {
        OpenTree { tree: self.tree.clone(), ..*self }
    }
}

impl<T: FileTree> OpenTree<T> {
    /// What the mountpoint shows.
    pub(crate) fn live(tree: Arc<T>) -> OpenTree<T> {
        let root_ino = tree.root().get();
        OpenTree { tree, place: 0, root_ino }
    }

    /// The snapshot of dataset object `dataset`.
    pub(crate) fn snapshot(tree: Arc<T>, place: u16, dataset: ObjectId) -> OpenTree<T> {
        OpenTree { tree, place, root_ino: SNAPSHOT_ROOTS.saturating_sub(dataset.get()) }
    }

    /// Is it what the mountpoint shows?
    pub(crate) fn is_live(&self) -> bool {
        self.place == 0
    }

    /// The object that the low bits of a node id mean.
    pub(crate) fn object(&self, object: ObjectId) -> ObjectId {
        if object == ROOT { self.tree.root() } else { object }
    }

    /// The node id of an object. An error for numbers that no file can have.
    pub(crate) fn node(&self, object: ObjectId) -> Result<u64> {
        if object == self.tree.root() {
            return Ok(root_node(self.place));
        }
        if object <= ROOT || object >= ObjectId::new(RESERVED) {
            return Err(Error::corrupt(format!("object number {object} cannot be a file's")));
        }
        Ok(self.ino(object))
    }

    /// `st_ino` of an object.
    pub(crate) fn ino(&self, object: ObjectId) -> u64 {
        match object == self.tree.root() {
            true => self.root_ino,
            false => u64::from(self.place) << OBJECT_BITS | object.get() & OBJECT_MASK,
        }
    }
}

/// Are two nodes of the same tree? If not, nothing moves from one to the other: a link or a rename from one tree to
/// another is one from device to device.
pub(crate) fn are_together(one: u64, other: u64) -> bool {
    let tree = |node| match NodeId::parse(node) {
        NodeId::InTree { tree, .. } => Some(tree),
        NodeId::Control | NodeId::Shares | NodeId::Snapshots => None,
    };
    tree(one) == tree(other)
}
