//! Open files, and the rule that goes by what was done to them lately: when a read moves the time of
//! the last access. Another one, when a write takes rights away, is in [`set_ids`](crate::set_ids).
//!
//! Both rules need the file's attributes, which would be asked for at each request; so an open file
//! remembers what it found, until something changes it. All changes come through this mount.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Env, Error, Kind, Mutex, Result};

use crate::accesses::Accesses;
use crate::cache::MountCache;
use crate::node::NodeId;
use crate::tree::{FileTree, Source};
use crate::trees::{NodePlace, Trees};

/// Open files that are kept.
const FILES_MAX: usize = 512;

/// With `relatime`, an unchanged file is looked at again after this time.
const RELATIME_CHECK_S: u64 = 60 * 60;

/// An open file.
pub(crate) struct Opened<F> {
    pub(crate) file: F,
    /// It has no set-id bits and no capabilities.
    pub(crate) is_clean: AtomicBool,
    /// The time of the last access need not move before this time, in seconds since 1970.
    atime_checked_s: AtomicU64,
}

impl<F> Opened<F> {
    /// The file's attributes changed in ways that are not known here.
    pub(crate) fn forget(&self) {
        self.is_clean.store(false, Ordering::SeqCst);
        self.atime_checked_s.store(0, Ordering::SeqCst);
    }

    /// Its contents changed.
    pub(crate) fn written(&self) {
        self.atime_checked_s.store(0, Ordering::Relaxed);
    }
}

/// The open file of a tree.
pub(crate) type OpenedIn<T> = Arc<Opened<<T as FileTree>::File>>;

/// The open files of one mount: those used last, as many more may be open than are used.
pub(crate) struct OpenFiles<S: Source> {
    trees: Arc<Trees<S>>,
    accesses: Arc<Accesses<S>>,
    env: Env,
    files: MountCache<u64, OpenedIn<S::Tree>>,
    /// The node whose capability was removed last, and by which task.
    capability_removed: Mutex<Option<(u64, u32)>>,
}

impl<S: Source> OpenFiles<S> {
    pub(crate) fn new(trees: Arc<Trees<S>>, accesses: Arc<Accesses<S>>, env: Env) -> OpenFiles<S> {
        OpenFiles { trees, accesses, env, files: MountCache::new(FILES_MAX), capability_removed: Mutex::default() }
    }

    /// A task removed the capability of a node: before a write the kernel does so.
    pub(crate) fn capability_removed(&self, node: u64, pid: u32) {
        *self.capability_removed.lock() = Some((node, pid));
    }

    /// Did the task remove the capability of the node just now? That is forgotten.
    pub(crate) fn take_capability_removed(&self, node: u64, pid: u32) -> bool {
        self.capability_removed.lock().take_if(|removed| *removed == (node, pid)).is_some()
    }

    /// The open file of a node.
    pub(crate) fn file(&self, node: u64) -> Result<OpenedIn<S::Tree>> {
        self.files.get_or_make(node, || match self.trees.place(node)? {
            NodePlace::Object(branch, object) => {
                let file = branch.tree.open_file(object)?;
                Ok(Arc::new(Opened { file, is_clean: AtomicBool::new(false), atime_checked_s: AtomicU64::new(0) }))
            }
            NodePlace::Control | NodePlace::Shares | NodePlace::Snapshots => {
                Err(Error::new(Kind::IsDirectory, "a directory"))
            }
        })
    }

    /// A program read a file. Pages that the kernel has are read without a request, and do not count. True if the time of
    /// the last access may move by that.
    pub(crate) fn was_read(&self, node: u64, opened: &Opened<<S::Tree as FileTree>::File>) -> bool {
        let NodeId::InTree { tree: 0, object } = NodeId::parse(node) else { return false };
        let remountable = self.trees.remountable();
        if !self.trees.is_writable() || !remountable.moves_atime(false) {
            return false;
        }
        let now_s = self.env.now_s();
        if remountable.is_relatime() {
            if now_s < opened.atime_checked_s.load(Ordering::Relaxed) {
                return false;
            }
            opened.atime_checked_s.store(now_s + RELATIME_CHECK_S, Ordering::Relaxed);
        }
        let live = self.trees.live();
        self.accesses.note(&live, live.object(object), false);
        true
    }

    /// What an open file remembers of its attributes may not be true any more.
    pub(crate) fn attributes_changed(&self, node: u64) {
        if let Some(opened) = self.files.get(node) {
            opened.forget();
        }
    }

    /// What was open is of a root that was replaced.
    pub(crate) fn clear(&self) {
        self.files.clear();
    }

    /// The file is gone.
    pub(crate) fn remove(&self, node: u64) {
        self.files.remove(node);
    }
}
