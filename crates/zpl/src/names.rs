//! Names in directories: which can be, and giving and taking them.
//!
//! A directory counts its entries and 2 in its size, and its subdirectories and 2 in its links. An object
//! that loses its last name goes to the queue of unlinked files in the same transaction (see `unlinked`).

use base::{Error, Kind, Result};
use dmu::Object;
use dmu::zap::{Editor, Zap, ZapValue};
use format::ids::ObjectId;
use format::sa::Attr;
use format::znode::{FLAG_APPENDONLY, FLAG_IMMUTABLE, FLAG_NOUNLINK, FLAG_XATTR};
use zil::Intent;

use crate::attr_tables::{AttrChange, time, word};
use crate::create::exists;
use crate::dir::{NAME_MAX, absent, dirent, not_found, too_long};
use crate::nodes::FileNode;
use crate::op::Op;
use crate::{FileKind, Stat, Zpl};

/// Most links that a file can have: what OpenZFS lets it have on Linux.
const LINKS_MAX: u64 = (1 << 31) - 1;
/// Bytes that a changed name takes, roughly.
pub(crate) const NAME_BYTES: u64 = 2 << 10;

/// Flags of a file that may not lose its name.
pub(crate) const KEEPS_NAME: u64 = FLAG_IMMUTABLE | FLAG_NOUNLINK | FLAG_APPENDONLY;

/// An entry that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundName {
    /// The name as it is in the table.
    pub(crate) name: Vec<u8>,
    pub(crate) ino: ObjectId,
}

/// Whether a file can have that name: one that a directory on disk has for it must not lead elsewhere.
pub fn is_possible_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}

impl Zpl {
    /// Refuses names that no new file can have.
    pub(crate) fn check_name(&self, name: &[u8]) -> Result<()> {
        let invalid = |what: &'static str| Err(Error::new(Kind::Invalid, what));
        match name {
            _ if !is_possible_name(name) => invalid("no name for a file"),
            _ if name.len() > NAME_MAX => Err(too_long()),
            _ if self.master().utf8only && std::str::from_utf8(name).is_err() => invalid("a name that is not UTF-8"),
            _ => Ok(()),
        }
    }

    /// The entry of a name, under the rules for case and Unicode.
    pub(crate) fn find_entry(&self, directory: &Object, name: &[u8]) -> Result<Option<FoundName>> {
        let table = Zap::open(directory.fresh()?)?;
        match table.lookup_match(name, self.master().name_match())? {
            Some((name, value)) => {
                let value = dirent(&value).map_err(|e| e.at_block(table.bookmark()))?;
                Ok(Some(FoundName { name, ino: value.object }))
            }
            None => Ok(None),
        }
    }

    /// The same in a directory that is not locked yet; `NotFound` if there is none.
    pub(crate) fn peek(&self, dir: ObjectId, name: &[u8]) -> Result<FoundName> {
        let _held = self.shared(dir);
        let node = self.directory(dir)?;
        self.find_entry(node.object(), name)?.ok_or_else(|| absent(name))
    }

    /// Gives an object that is no directory one more name. Errors: `Exists`, `TooManyLinks`, `OtherProject`,
    /// `Forbidden` for directories; `NotFound` if it has lost its last name; as of [`Zpl::create`].
    pub fn link(&self, ino: ObjectId, dir: ObjectId, name: &[u8]) -> Result<Stat> {
        let linked = self.placed(dir, self.add_link(ino, dir, name));
        self.settled(ObjectId::NONE, linked)
    }

    pub(crate) fn add_link(&self, ino: ObjectId, dir: ObjectId, name: &[u8]) -> Result<Stat> {
        self.check_name(name)?;
        let op = self.begin_naming(NAME_BYTES)?;
        let _held = op.alone(&[ino, dir]);
        op.gives_name(dir, name);
        let parent = op.living_directory(dir)?;
        let node = self.node(ino)?;
        let attrs = self.attributes(&node)?;
        let kind = FileKind::of_mode(attrs.u64(Attr::Mode)?);
        let links = attrs.u64(Attr::Links)?;
        if kind == FileKind::Directory || attrs.u64(Attr::Flags)? & FLAG_XATTR != 0 {
            return Err(Error::new(Kind::Forbidden, "only files have several names"));
        }
        if links >= LINKS_MAX {
            return Err(Error::new(Kind::TooManyLinks, "too many links"));
        }
        drop(attrs);
        self.check_flags(&node, FLAG_IMMUTABLE | FLAG_APPENDONLY)?;
        op.check_project(&parent, &node, kind)?;
        let was_unnamed = links == 0;
        if was_unnamed && !op.live().orphans().is_unnamed(ino) {
            return Err(not_found());
        }
        if self.find_entry(parent.object(), name)?.is_some() {
            return Err(exists());
        }
        op.add_name(parent.object(), name, ino, kind)?;
        if was_unnamed {
            op.live().orphans().remove(op.tx(), ino)?;
            op.live().orphans().remove_unnamed(ino);
        }
        let changes = [word(Attr::Links, links + 1), word(Attr::Parent, dir.get()), time(Attr::Ctime, op.now())];
        op.change(node.object(), &changes)?;
        op.directory_changed(parent.object(), 1, 0)?;
        match was_unnamed {
            true => op.names_unlogged(None),
            false => op.log_names(&Intent::Link { dir, object: ino, name }),
        }
        self.stat_of(&self.node(ino)?)
    }

    /// Removes a name of what is no directory (`IsDirectory`). If it was the last one, the object is
    /// returned: it can be used as before until [`Zpl::reclaim`], or [`Zpl::clean_unlinked`] after a crash.
    pub fn unlink(&self, dir: ObjectId, name: &[u8]) -> Result<Option<ObjectId>> {
        let orphan = self.placed(dir, self.remove_name(dir, name, false));
        self.settled(ObjectId::NONE, orphan)
    }

    /// Removes an empty directory (`NotDirectory`, `NotEmpty`), which is returned and goes on as in
    /// [`Zpl::unlink`]: nothing can be made in it (`NotFound`).
    pub fn rmdir(&self, dir: ObjectId, name: &[u8]) -> Result<ObjectId> {
        let orphan = self.placed(dir, self.remove_name(dir, name, true));
        self.settled(ObjectId::NONE, orphan)?.ok_or_else(|| Error::corrupt("a directory with several names"))
    }

    pub(crate) fn remove_name(&self, dir: ObjectId, name: &[u8], is_rmdir: bool) -> Result<Option<ObjectId>> {
        let op = self.begin(NAME_BYTES, true)?;
        let (found, _held) = loop {
            let found = self.peek(dir, name)?;
            let held = op.alone(&[dir, found.ino]);
            if self.find_entry(self.directory(dir)?.object(), name)?.as_ref() == Some(&found) {
                break (found, held);
            }
        };
        let parent = losing_directory(&op, dir)?;
        let node = self.node(found.ino)?;
        self.check_flags(&node, KEEPS_NAME)?;
        let kind = self.kind_of(&node)?;
        match (is_rmdir, kind == FileKind::Directory) {
            (true, true) => self.check_empty(&node)?,
            (false, false) => {}
            (true, false) => return Err(Error::new(Kind::NotDirectory, "not a directory")),
            (false, true) => return Err(Error::new(Kind::IsDirectory, "is a directory")),
        }
        let orphan = op.drop_link(&node, |op| Editor::new(&parent.object().changing(op.tx())).remove(&found.name))?;
        op.directory_changed(parent.object(), -1, if is_rmdir { -1 } else { 0 })?;
        op.log_removed(orphan);
        op.log_names(&Intent::Remove { dir, name: &found.name, is_rmdir });
        Ok(orphan)
    }

    /// `Forbidden` if a file has one of these flags.
    pub(crate) fn check_flags(&self, node: &FileNode, flags: u64) -> Result<()> {
        self.refuse_flags(self.attributes(node)?.u64(Attr::Flags)?, flags)
    }

    /// The same for flags that are known.
    pub(crate) fn refuse_flags(&self, flags: u64, forbidden: u64) -> Result<()> {
        // when they were set is not known of what a log holds of others
        let is_replaying = self.live().is_ok_and(|live| live.is_replaying());
        match flags & forbidden {
            0 => Ok(()),
            _ if is_replaying => Ok(()),
            _ => Err(Error::new(Kind::Forbidden, "a flag of the file forbids it")),
        }
    }

    /// `NotEmpty` if there is anything in a directory.
    pub(crate) fn check_empty(&self, node: &FileNode) -> Result<()> {
        match Zap::open(node.object().clone())?.is_empty() {
            true => Ok(()),
            false => Err(Error::new(Kind::NotEmpty, "directory not empty")),
        }
    }

    pub(crate) fn kind_of(&self, node: &FileNode) -> Result<FileKind> {
        Ok(FileKind::of_mode(self.attributes(node)?.u64(Attr::Mode)?))
    }
}

impl Op<'_> {
    /// A directory that has not been removed.
    pub(crate) fn living_directory(&self, dir: ObjectId) -> Result<FileNode> {
        let node = self.zpl().node(dir)?;
        let attrs = self.zpl().attributes(&node)?;
        if FileKind::of_mode(attrs.u64(Attr::Mode)?) != FileKind::Directory {
            return Err(Error::new(Kind::NotDirectory, "not a directory"));
        }
        self.zpl().refuse_flags(attrs.u64(Attr::Flags)?, FLAG_IMMUTABLE)?;
        let links = attrs.u64(Attr::Links)?;
        drop(attrs);
        match links {
            0 => Err(Error::new(Kind::NotFound, "the directory has been removed")),
            _ => Ok(node),
        }
    }

    /// Adds an entry to a directory's table, and changes nothing else.
    pub(crate) fn add_name(&self, directory: &Object, name: &[u8], ino: ObjectId, kind: FileKind) -> Result<()> {
        let value = self.zpl().dirent_of(ino, kind);
        Editor::new(&directory.changing(self.tx())).add(name, &ZapValue::one(value.into()))
    }

    /// Changes to which object an entry leads, and nothing else.
    pub(crate) fn set_name(&self, directory: &Object, name: &[u8], ino: ObjectId, kind: FileKind) -> Result<()> {
        let value = self.zpl().dirent_of(ino, kind);
        Editor::new(&directory.changing(self.tx())).set(name, &ZapValue::one(value.into()))
    }

    /// Takes a link from an object, whose name `remove` takes. If it was the last, the object is queued
    /// and returned.
    pub(crate) fn drop_link(
        &self,
        node: &FileNode,
        remove: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<Option<ObjectId>> {
        let ino = node.object().id();
        let attrs = self.zpl().attributes(node)?;
        let is_directory = FileKind::of_mode(attrs.u64(Attr::Mode)?) == FileKind::Directory;
        let links = attrs.u64(Attr::Links)?;
        let left = if is_directory { 0 } else { links.saturating_sub(1) };
        drop(attrs);
        if left == 0 {
            self.live().orphans().add(self.tx(), ino)?;
        }
        if let Err(error) = remove(self) {
            if left == 0 {
                self.live().orphans().remove(self.tx(), ino)?;
            }
            return Err(error);
        }
        self.change(node.object(), &[word(Attr::Links, left), time(Attr::Ctime, self.now())])?;
        Ok((left == 0).then_some(ino))
    }

    /// Counts entries and subdirectories that came or went.
    pub(crate) fn directory_changed(&self, directory: &Object, entries: i64, subdirectories: i64) -> Result<()> {
        let node = self.zpl().node_of(directory.fresh()?)?;
        let attrs = self.zpl().attributes(&node)?;
        let size = attrs.u64(Attr::Size)?.saturating_add_signed(entries);
        let links = attrs.u64(Attr::Links)?.saturating_add_signed(subdirectories);
        drop(attrs);
        let changes: [AttrChange; 4] = [
            word(Attr::Size, size),
            word(Attr::Links, links),
            time(Attr::Mtime, self.now()),
            time(Attr::Ctime, self.now()),
        ];
        self.change(directory, &changes)
    }
}

/// A directory that has not been removed, and may lose a name.
pub(crate) fn losing_directory(op: &Op<'_>, dir: ObjectId) -> Result<FileNode> {
    let node = op.living_directory(dir)?;
    op.zpl().check_flags(&node, FLAG_APPENDONLY)?;
    Ok(node)
}
