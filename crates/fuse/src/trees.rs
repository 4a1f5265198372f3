//! The trees of a mount: the live one and those of its snapshots, and where in them a node is.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Env, Error, Kind, Result, ResultExt, RwLock};
use zpl::{FLAG_APPENDONLY, FLAG_IMMUTABLE, FLAG_READONLY, FileKind, ObjectId, Stat};

use crate::legacy::Legacy;
use crate::lookup_counts::LookupCounts;
use crate::node::{CONTROL_NAME, NodeId, OpenTree};
use crate::options::{MountOptions, Remountable, SnapDir};
use crate::snapshots::Snapshots;
use crate::tree::{FileTree, Source, read_only};
use crate::visit::VisitedFile;
use crate::wire::opens_for_writing;

/// A node that a request names.
pub(crate) enum NodePlace<T> {
    /// `.zfs`
    Control,
    /// `.zfs/shares`
    Shares,
    /// `.zfs/snapshot`
    Snapshots,
    /// An object of a tree.
    Object(OpenTree<T>, ObjectId),
}

/// Where an open file may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WritePlace {
    /// Wherever a program likes, also by way of a mapping.
    Anywhere,
    /// At its end: it has the flag for that.
    AtEnd,
}

/// What one mount shows.
pub(crate) struct Trees<S: Source> {
    source: Arc<S>,
    /// Replaced with the root of the dataset.
    live: RwLock<OpenTree<S::Tree>>,
    /// Nodes of the live tree that the kernel knows; counted only if it is writable.
    known: LookupCounts,
    /// The root is about to be replaced: the kernel is to keep nothing that it is told.
    is_freezing: AtomicBool,
    /// What the root was replaced with cannot be read.
    is_lost: AtomicBool,
    snapshots: Snapshots<S>,
    options: MountOptions,
    remountable: Arc<Remountable>,
    born_s: u64,
    is_writable: bool,
}

impl<S: Source> Trees<S> {
    /// Errors: those of reading the root directory.
    pub(crate) fn new(source: Arc<S>, env: &Env, options: MountOptions, legacy: &Legacy) -> Result<Trees<S>> {
        let live = OpenTree::live(source.tree());
        let root = live.tree.stat(live.tree.root()).in_dataset(&options.fs_name)?;
        let known = LookupCounts::new();
        if legacy.is_inherited() {
            // programs may have files without a name open
            let note = |(&object, &born): (&ObjectId, &u64)| (object, legacy.note_gone(object, born));
            known.inherit(&live.tree.unlinked()?, legacy.lost().gone.iter().map(note));
        }
        Ok(Trees {
            snapshots: Snapshots::new(source.clone(), env.clone(), &options.fs_name, legacy),
            born_s: u64::try_from(root.mtime.0).unwrap_or(0),
            is_writable: live.tree.is_writable(),
            remountable: Arc::new(Remountable::new(&options)),
            options,
            live: RwLock::new(live),
            known,
            is_freezing: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            source,
        })
    }

    /// The dataset.
    pub(crate) fn source(&self) -> &S {
        &self.source
    }

    /// What the mountpoint shows.
    pub(crate) fn live(&self) -> OpenTree<S::Tree> {
        self.live.read().clone()
    }

    /// The nodes of the live tree that the kernel knows.
    pub(crate) fn known(&self) -> &LookupCounts {
        &self.known
    }

    /// Says whether the root is about to be replaced.
    pub(crate) fn set_freezing(&self, is_freezing: bool) {
        self.is_freezing.store(is_freezing, Ordering::SeqCst);
    }

    /// May the kernel keep what it is told of the live tree?
    pub(crate) fn may_be_kept(&self) -> bool {
        !self.is_freezing.load(Ordering::SeqCst)
    }

    /// Takes another tree in the place of the live one. What the kernel knows stays the same where it is the same file
    /// there; the other nodes are stale until it forgets them. `sizes` are those of files until now.
    pub(crate) fn replace_live(&self, tree: Arc<S::Tree>, sizes: &HashMap<ObjectId, u64>) {
        self.known.renew(sizes, |object, generation| {
            tree.stat(object).ok().filter(|stat| stat.generation == generation).map(|stat| stat.size)
        });
        *self.live.write() = OpenTree::live(tree);
    }

    /// There is no live tree any more.
    pub(crate) fn lose_live(&self) {
        self.is_lost.store(true, Ordering::SeqCst);
    }

    /// The object that a node of the live tree stands for. Errors: `Stale` if it is of a root that was replaced, and not
    /// in this one.
    pub(crate) fn live_object(&self, object: ObjectId) -> Result<ObjectId> {
        if self.is_lost.load(Ordering::Relaxed) || self.known.is_stale(object) {
            return Err(Error::new(Kind::Stale, "the file is not there any more"));
        }
        Ok(self.live.read().object(object))
    }

    pub(crate) fn snapshots(&self) -> &Snapshots<S> {
        &self.snapshots
    }

    /// As it was mounted.
    pub(crate) fn options(&self) -> &MountOptions {
        &self.options
    }

    /// Those of the options that may be others by now.
    pub(crate) fn remountable(&self) -> &Arc<Remountable> {
        &self.remountable
    }

    /// When `.zfs` was made, in seconds since 1970: as its directory, the root, changed last.
    pub(crate) fn born_s(&self) -> u64 {
        self.born_s
    }

    /// The live tree may be changed: by this mount, if it is not read-only, or after a remount.
    pub(crate) fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Goes to a node, opening its snapshot if need be.
    pub(crate) fn place(&self, node: u64) -> Result<NodePlace<S::Tree>> {
        match NodeId::parse(node) {
            NodeId::InTree { tree: 0, object } => Ok(NodePlace::Object(self.live(), self.live_object(object)?)),
            // a file handle from a mount that had one
            _ if self.remountable.snapdir() == SnapDir::Disabled => Err(Error::new(Kind::NotFound, "there is no .zfs")),
            NodeId::Control => Ok(NodePlace::Control),
            NodeId::Shares => Ok(NodePlace::Shares),
            NodeId::Snapshots => Ok(NodePlace::Snapshots),
            NodeId::InTree { tree, object } => {
                let branch = self.snapshots.branch(tree)?;
                let object = branch.object(object);
                Ok(NodePlace::Object(branch, object))
            }
        }
    }

    /// The object of a node that may change. Snapshots and `.zfs` do not, and say so.
    pub(crate) fn changeable(&self, node: u64) -> Result<ObjectId> {
        match NodeId::parse(node) {
            _ if !self.is_writable || self.remountable.is_read_only() => Err(read_only()),
            NodeId::InTree { tree: 0, object } => self.live_object(object),
            NodeId::InTree { .. } => Err(read_only()),
            NodeId::Control | NodeId::Shares | NodeId::Snapshots => {
                Err(Error::new(Kind::Permission, "files are not made in .zfs"))
            }
        }
    }

    /// May a file be opened with these flags? Only here can be refused what a program stores into a mapping. Errors:
    /// for writing `ReadOnly`, `Stale`, and `Forbidden` if a flag of the file forbids it.
    pub(crate) fn check_open(&self, node: u64, flags: i32) -> Result<WritePlace> {
        if !opens_for_writing(flags) {
            return Ok(WritePlace::Anywhere);
        }
        let stat = self.live().tree.stat(self.changeable(node)?)?;
        let appends = stat.flags & FLAG_APPENDONLY != 0;
        match stat.flags & (FLAG_IMMUTABLE | FLAG_READONLY) != 0 || appends && flags & libc::O_APPEND == 0 {
            true => Err(Error::new(Kind::Forbidden, "a flag of the file forbids it")),
            false => Ok(if appends { WritePlace::AtEnd } else { WritePlace::Anywhere }),
        }
    }

    /// The attributes of an object of the live tree, as its node names it, if it is a plain file.
    pub(crate) fn live_file(&self, object: ObjectId) -> Option<Stat> {
        let stat = self.live().tree.stat(self.live_object(object).ok()?).ok()?;
        (stat.kind == FileKind::File).then_some(stat)
    }

    /// A file of the live tree, as a helper finds it; `None` if there is none.
    pub(crate) fn visited(&self, node: u64) -> Option<VisitedFile> {
        let NodeId::InTree { tree: 0, object } = NodeId::parse(node) else { return None };
        let stat = self.live_file(object)?;
        // the kernel has so many bits of a generation
        Some(VisitedFile { node, generation: stat.generation as u32, mtime: stat.mtime })
    }

    /// The directory of a node, in which `name` may change.
    pub(crate) fn changeable_name(&self, node: u64, name: &[u8]) -> Result<ObjectId> {
        let directory = self.changeable(node)?;
        match name == CONTROL_NAME && self.has_control(&self.live(), directory) {
            true => Err(Error::new(Kind::Permission, "the name .zfs is taken")),
            false => Ok(directory),
        }
    }

    /// The same for a name that is to be new. Nothing is called `.zfs` in the root, also while that is disabled: it would
    /// hide the one that comes back.
    pub(crate) fn new_name(&self, node: u64, name: &[u8]) -> Result<ObjectId> {
        let directory = self.changeable_name(node, name)?;
        match name == CONTROL_NAME && directory == self.live().tree.root() {
            true => Err(Error::new(Kind::Exists, "the name .zfs is taken")),
            false => Ok(directory),
        }
    }

    /// Does this directory have a `.zfs`? Snapshots have none.
    pub(crate) fn has_control(&self, branch: &OpenTree<S::Tree>, object: ObjectId) -> bool {
        self.remountable.snapdir() != SnapDir::Disabled && branch.is_live() && object == branch.tree.root()
    }

    /// And is it listed?
    pub(crate) fn lists_control(&self, branch: &OpenTree<S::Tree>, object: ObjectId) -> bool {
        self.remountable.snapdir() == SnapDir::Visible && self.has_control(branch, object)
    }
}
