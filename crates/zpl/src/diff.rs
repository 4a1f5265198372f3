//! What differs between two states of a file system, as `zfs diff` tells it.
//!
//! ```text
//!   blocks of dnodes that were born since ─▶ objects ─┬─ there: attributes and paths of both states ─▶ - + M R, links
//!                                                     └─ not there: what the older state has ─▶ -
//! ```
//!
//! Whatever happens to a file changes its dnode, so that nothing else is read. Which rows there are, and their order, is as
//! with OpenZFS (source: zfs-diff(8), and what it prints).

use std::collections::HashMap;

use base::{Error, Kind, Result};
use dmu::ChangedPart;
use dmu::zap::Zap;
use format::dnode::SLOT_SIZE;
use format::ids::{ObjectId, Txg};
use format::object_type::ObjectType;

use crate::kind::FileKind;
use crate::orphans;
use crate::stat::Stat;
use crate::zpl::Zpl;

/// Names of a directory that are kept at most.
const NAMES_MAX: usize = 1 << 16;
/// The object of the master node.
const MASTER: ObjectId = ObjectId::new(1);
/// What stands for the path of a file that has no name any more, and was open when the state was kept.
const NAMELESS: &[u8] = b"(on_delete_queue)";

/// A file that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffRow {
    /// How.
    pub what: DiffKind,
    /// Its path from the root of the file system.
    pub path: Vec<u8>,
    /// What kind of file it is, in the state that has it.
    pub kind: FileKind,
    /// When its attributes changed last: seconds since 1970, nanoseconds.
    pub ctime: (i64, u32),
}

/// How a file differs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the documentation
pub enum DiffKind {
    Removed,
    Created,
    Modified,
    /// It has this path now.
    Renamed(Vec<u8>),
    /// It has so many names more.
    Links(i64),
}

/// An object in one of the states.
struct FileState {
    kind: FileKind,
    generation: u64,
    nlink: u64,
    ctime: (i64, u32),
    /// `None` if no directory has it where it says that it is.
    path: Option<Vec<u8>>,
}

impl FileState {
    fn row(&self, what: DiffKind, path: &[u8]) -> DiffRow {
        DiffRow { what, path: path.to_vec(), kind: self.kind, ctime: self.ctime }
    }

    /// How many names more it has than before; of directories they are not told.
    fn more_links(&self, before: &FileState) -> i64 {
        let is_directory = self.kind == FileKind::Directory || before.kind == FileKind::Directory;
        match is_directory || self.nlink == 0 || before.nlink == 0 {
            true => 0,
            false => self.nlink.wrapping_sub(before.nlink).cast_signed(),
        }
    }
}

impl Zpl {
    /// Tells `each` what differs from `before`, an earlier state of the same file system that was kept in group `txg`.
    /// What cannot be told of an object is told to `unknown`, and the rest goes on. Errors: those of reading dnodes, and
    /// of `each`.
    pub fn diff(
        &self,
        (before, txg): (&Zpl, Txg),
        each: &mut dyn FnMut(DiffRow) -> Result<()>,
        unknown: &mut dyn FnMut(ObjectId, &Error),
    ) -> Result<()> {
        let shares = Zap::open(self.objset().object(MASTER)?)?.object_id("SHARES")?;
        let meta = self.objset().meta();
        let per_block = (meta.dnode().block_size / SLOT_SIZE as u64).max(1);
        let (now, before) = (StateReader::new(self), StateReader::new(before));
        let mut diff = Diff { now, before, shares, each, unknown };
        meta.changed_since(txg, 0, &mut |part| match part {
            ChangedPart::Hole { first, count } => {
                let end = first.saturating_add(count);
                diff.gone(ObjectId::in_block(first, 0, per_block), ObjectId::in_block(end, 0, per_block))
            }
            ChangedPart::Data { blkid, .. } => {
                let mut next = ObjectId::in_block(blkid, 0, per_block);
                for found in self.objset().dnodes_in_block(blkid, &meta.block(blkid)?) {
                    let (ino, dnode) = found?;
                    diff.gone(next, ino)?;
                    diff.there(ino)?;
                    next = ino.plus(dnode.slots as u64);
                }
                diff.gone(next, ObjectId::in_block(blkid, per_block, per_block))
            }
        })
    }
}

/// Two states, and where to tell what differs.
struct Diff<'a> {
    now: StateReader<'a>,
    before: StateReader<'a>,
    /// The directory of shares, which nobody sees.
    shares: Option<ObjectId>,
    each: &'a mut dyn FnMut(DiffRow) -> Result<()>,
    unknown: &'a mut dyn FnMut(ObjectId, &Error),
}

impl Diff<'_> {
    /// Objects from `first` up to `end` are not there now.
    fn gone(&mut self, first: ObjectId, end: ObjectId) -> Result<()> {
        let mut after = first.previous();
        while after.next() < end
            && let Some(ino) = self.before.zpl.objset().next_object(after)?.filter(|&ino| ino < end)
        {
            after = ino;
            let Some(state) = self.state_before(ino) else { continue };
            match &state.path {
                Some(path) if path != NAMELESS => (self.each)(state.row(DiffKind::Removed, path))?,
                _ => {}
            }
        }
        Ok(())
    }

    /// An object that is there now.
    fn there(&mut self, ino: ObjectId) -> Result<()> {
        let before = self.state_before(ino);
        let now = self.now.state(ino);
        let now = self.known(ino, now);
        let more_links = match (&before, &now) {
            (Some(before), Some(now)) => now.more_links(before),
            _ => 0,
        };
        let old = before.as_ref().and_then(|state| Some((state, state.path.as_deref()?)));
        let new = now.as_ref().and_then(|state| Some((state, state.path.as_deref()?)));
        match (old, new) {
            (None, None) => Ok(()),
            (None, Some((state, path))) if more_links != 0 => (self.each)(state.row(DiffKind::Links(more_links), path)),
            (None, Some((state, path))) => (self.each)(state.row(DiffKind::Created, path)),
            (Some((state, path)), None) if more_links != 0 => (self.each)(state.row(DiffKind::Links(more_links), path)),
            (Some((state, path)), None) => (self.each)(state.row(DiffKind::Removed, path)),
            (Some(old), Some(new)) => self.both(old, new, more_links),
        }
    }

    /// An object that has a path in both states.
    fn both(
        &mut self,
        (old, old_path): (&FileState, &[u8]),
        (new, new_path): (&FileState, &[u8]),
        links: i64,
    ) -> Result<()> {
        if old.generation != new.generation || old.kind != new.kind {
            // the number was given to another file
            (self.each)(old.row(DiffKind::Removed, old_path))?;
            return (self.each)(new.row(DiffKind::Created, new_path));
        }
        if old.ctime == new.ctime {
            return Ok(());
        }
        (self.each)(match links {
            0 if old_path == new_path => new.row(DiffKind::Modified, old_path),
            0 => new.row(DiffKind::Renamed(new_path.to_vec()), old_path),
            more if more > 0 => new.row(DiffKind::Links(more), old_path),
            fewer => new.row(DiffKind::Links(fewer), new_path),
        })
    }

    fn state_before(&mut self, ino: ObjectId) -> Option<FileState> {
        let state = self.before.state(ino);
        self.known(ino, state)
    }

    /// What is known of an object, if it may be seen.
    fn known(&mut self, ino: ObjectId, state: Result<Option<FileState>>) -> Option<FileState> {
        if self.shares == Some(ino) {
            return None;
        }
        state.unwrap_or_else(|error| {
            (self.unknown)(ino, &error);
            None
        })
    }
}

/// Reads files of one state. Names of the directory where it looked last are kept: files that were made together mostly
/// lie together, and a directory tells of an object what its name is only by being read to that name.
struct StateReader<'a> {
    zpl: &'a Zpl,
    directory: ObjectId,
    path: Vec<u8>,
    /// By object, if there are not too many.
    names: Option<HashMap<ObjectId, Vec<u8>>>,
}

impl<'a> StateReader<'a> {
    fn new(zpl: &'a Zpl) -> StateReader<'a> {
        StateReader { zpl, directory: ObjectId::NONE, path: Vec::new(), names: None }
    }

    /// A file and its path; `None` if there is no such object, or it is no file.
    fn state(&mut self, ino: ObjectId) -> Result<Option<FileState>> {
        let object = match self.zpl.objset().object(ino) {
            Ok(object) => object,
            Err(error) if error.kind() == Kind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if !matches!(object.dnode().bonus_type, ObjectType::SA | ObjectType::ZNODE) {
            return Ok(None);
        }
        let stat = self.zpl.stat(ino)?;
        let path = match self.is_nameless(ino)? {
            true => Some(NAMELESS.to_vec()),
            false => match self.path_of(&stat) {
                Ok(path) => Some(path),
                // its directory has lost the name, or is gone: there is another name somewhere
                Err(error) if matches!(error.kind(), Kind::NotFound | Kind::NotDirectory) => None,
                Err(error) => return Err(error),
            },
        };
        let (kind, generation, nlink, ctime) = (stat.kind, stat.generation, stat.nlink, stat.ctime);
        Ok(Some(FileState { kind, generation, nlink, ctime, path }))
    }

    fn is_nameless(&self, ino: ObjectId) -> Result<bool> {
        match self.zpl.master().delete_queue {
            ObjectId::NONE => Ok(false),
            queue => Ok(Zap::open(self.zpl.objset().object(queue)?)?.u64(&orphans::key(ino))?.is_some()),
        }
    }

    fn path_of(&mut self, stat: &Stat) -> Result<Vec<u8>> {
        if stat.kind == FileKind::Directory {
            return self.zpl.path_of(stat.ino);
        }
        if self.directory != stat.parent || self.path.is_empty() {
            self.path.clear();
            self.names = self.zpl.names_by_object(stat.parent, NAMES_MAX)?;
            self.path = self.zpl.path_of(stat.parent)?;
            self.directory = stat.parent;
        }
        let Some(names) = &self.names else { return self.zpl.path_of(stat.ino) };
        let missing = || Error::new(Kind::NotFound, "the file is not in its directory");
        let name = names.get(&stat.ino).ok_or_else(missing)?;
        let above = self.path.strip_suffix(b"/").unwrap_or(&self.path);
        Ok([above, b"/", name].concat())
    }
}
