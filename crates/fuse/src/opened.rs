//! Open files, and the rules that go by what was done to them lately: when a read moves the time of
//! the last access, and when a write takes set-id bits and capabilities away.
//!
//! Both rules need the file's attributes, which would be asked for at each request; so an open file
//! remembers what it found, until something changes it. All changes come through this mount.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Error, Kind, Result};
use zpl::{FileKind, Stat};

use crate::find::Place;
use crate::node::NodeId;
use crate::session::Session;
use crate::tree::{Source, Tree, TreeFile};

/// With `relatime`, an unchanged file is looked at again after this time.
const RELATIME_CHECK_S: u64 = 60 * 60;
/// What lets a program do more than its user may.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

/// An open file.
pub(crate) struct Opened<F> {
    pub(crate) file: F,
    /// It has no set-id bits and no capabilities.
    is_clean: AtomicBool,
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
            Place::Control | Place::Snapshots => Err(Error::new(Kind::IsDirectory, "a directory")),
        })
    }

    /// Somebody read a file. Pages that the kernel has are read without a request, and do not count.
    pub(crate) fn read_from(&self, node: u64, opened: &Opened<<S::Tree as Tree>::File>) {
        let NodeId::InTree { tree: 0, object } = NodeId::parse(node) else { return };
        if !self.writable || !self.remountable.moves_atime() {
            return;
        }
        let now_s = self.env.now_s();
        if self.remountable.is_relatime() {
            if now_s < opened.atime_checked_s.load(Ordering::Relaxed) {
                return;
            }
            opened.atime_checked_s.store(now_s + RELATIME_CHECK_S, Ordering::Relaxed);
        }
        self.accessed(&self.live, self.live.object(object));
    }

    /// What a write does to set-id bits (`set_ids`: of a user who may not keep them) and capabilities.
    pub(crate) fn drop_privileges(
        &self,
        object: u64,
        opened: &Opened<<S::Tree as Tree>::File>,
        set_ids: bool,
    ) -> Result<()> {
        // marked first: if somebody sets them meanwhile, the mark is taken away after this
        if opened.is_clean.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let tree = &self.live.tree;
        let dropped = (|| {
            let mode = tree.stat(object)?.mode;
            if set_ids && set_id_bits(mode) != 0 {
                let mode = Some(mode & !set_id_bits(mode));
                tree.set_attr(object, &crate::SetAttr { mode, ..Default::default() })?;
            }
            self.drop_capability(object)?;
            Ok(set_ids || set_id_bits(mode) == 0)
        })();
        if !matches!(dropped, Ok(true)) {
            opened.is_clean.store(false, Ordering::SeqCst);
        }
        dropped.map(|_| ())
    }

    pub(crate) fn drop_capability(&self, object: u64) -> Result<()> {
        match self.live.tree.xattr(object, CAPABILITY) {
            Ok(_) => self.live.tree.remove_xattr(object, CAPABILITY),
            Err(error) if error.kind() == Kind::NoAttribute => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The bits of a file's mode that a write or a new owner takes away: set-group-id without the group's
/// right to execute is no such thing, but an old sign for mandatory locks.
pub(crate) fn set_id_bits(mode: u32) -> u32 {
    let group = if mode & libc::S_IXGRP != 0 { libc::S_ISGID } else { 0 };
    mode & (libc::S_ISUID | group)
}

/// Does `stat` have set-id bits that count?
pub(crate) fn has_set_ids(stat: &Stat) -> bool {
    stat.kind != FileKind::Directory && set_id_bits(stat.mode) != 0
}

fn no_such_offset() -> Error {
    Error::new(Kind::Missing, "nothing of that kind from there on")
}
