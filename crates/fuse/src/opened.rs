//! Open files, and the rule that goes by what was done to them lately: when a read moves the time of
//! the last access. Another one, when a write takes rights away, is in [`set_ids`](crate::set_ids).
//!
//! Both rules need the file's attributes, which would be asked for at each request; so an open file
//! remembers what it found, until something changes it. All changes come through this mount.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Error, Kind, Result};

use crate::find::Place;
use crate::node::NodeId;
use crate::session::Session;
use crate::tree::{Source, Tree, TreeFile};

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
pub(crate) type OpenedIn<T> = Arc<Opened<<T as Tree>::File>>;

impl<S: Source> Session<S> {
    /// The next data or hole; `Missing` if there is none.
    pub(crate) fn seek(&self, node: u64, offset: i64, whence: i32) -> Result<i64> {
        let from = u64::try_from(offset).map_err(|_| no_such_offset())?;
        let file = &self.file(node)?.file;
        let found = match whence {
            libc::SEEK_DATA => file.seek_data(from)?,
            libc::SEEK_HOLE => file.seek_hole(from)?,
            _ => return Err(Error::new(Kind::Invalid, "unknown kind of seek")),
        };
        i64::try_from(found.ok_or_else(no_such_offset)?).map_err(|_| no_such_offset())
    }

    /// The open file of a node.
    pub(crate) fn file(&self, node: u64) -> Result<OpenedIn<S::Tree>> {
        self.files.get_or_make(node, || match self.place(node)? {
            Place::Object(branch, object) => {
                let file = branch.tree.open_file(object)?;
                Ok(Arc::new(Opened { file, is_clean: AtomicBool::new(false), atime_checked_s: AtomicU64::new(0) }))
            }
            Place::Control | Place::Shares | Place::Snapshots => Err(Error::new(Kind::IsDirectory, "a directory")),
        })
    }

    /// Somebody read a file. Pages that the kernel has are read without a request, and do not count.
    pub(crate) fn read_from(&self, node: u64, opened: &Opened<<S::Tree as Tree>::File>) {
        let NodeId::InTree { tree: 0, object } = NodeId::parse(node) else { return };
        if !self.writable || !self.remountable.moves_atime(false) {
            return;
        }
        let now_s = self.env.now_s();
        if self.remountable.is_relatime() {
            if now_s < opened.atime_checked_s.load(Ordering::Relaxed) {
                return;
            }
            opened.atime_checked_s.store(now_s + RELATIME_CHECK_S, Ordering::Relaxed);
        }
        self.accessed(&self.live, self.live.object(object), false);
    }
}

fn no_such_offset() -> Error {
    Error::new(Kind::Missing, "nothing of that kind from there on")
}
