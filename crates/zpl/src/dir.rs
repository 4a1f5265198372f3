//! Directories: finding a name, listing, and paths in both directions.
//!
//! A directory is a table of names; each value is the object number and the type of the file. `.` and
//! `..` are not in it: the latter is an attribute of the directory. Listing gives them the cookies 1
//! and 2, and leaves 3 for a `.zfs` that a mount may show, as OpenZFS does; later cookies are those of
//! the table.

use std::collections::HashMap;
use std::ops::ControlFlow;

use base::{Error, Kind, Result};
use dmu::zap::{Zap, ZapEntry, ZapValue};
use format::ids::ObjectId;
use format::sa::Attr;
use format::znode::{DirentValue, FLAG_XATTR};

use crate::nodes::FileNode;
use crate::{FileKind, Zpl};

const COOKIE_DOT: u64 = 1;
const COOKIE_DOTDOT: u64 = 2;
/// Longest name.
pub(crate) const NAME_MAX: usize = 255;
/// Cookies up to here are not the table's.
const COOKIE_RESERVED_MAX: u64 = 3;
/// Entries that are read before the first of them is handed on.
const BATCH: usize = 64;
/// How deep a path may be; more is a circle in a damaged pool.
const DEPTH_MAX: usize = 4096;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Object number.
    pub ino: ObjectId,
    /// Kind of the file; `None` in file systems of version 1, whose directories do not tell, if the file
    /// itself cannot be read.
    pub kind: Option<FileKind>,
    /// Its name.
    pub name: Vec<u8>,
    /// Listing from here goes on behind this entry.
    pub cookie: u64,
}

impl Zpl {
    /// The object of a name, under the file system's rules for case and Unicode. Errors: `NotFound`, `TooLong`,
    /// `NotDirectory`, those of reading.
    pub fn lookup(&self, dir: ObjectId, name: &[u8]) -> Result<ObjectId> {
        self.placed(dir, self.find_name(dir, name))
    }

    fn find_name(&self, dir: ObjectId, name: &[u8]) -> Result<ObjectId> {
        let _held = self.shared(dir);
        let node = self.directory(dir)?;
        match name {
            b"." => Ok(dir),
            b".." => self.attributes(&node)?.parent(),
            _ => self.entry(node, name)?.ok_or_else(|| absent(name)),
        }
    }

    /// Calls `each` with the entries behind `cookie` (0: all, `.` and `..` first) until it breaks. While
    /// the order has no meaning, it stays the same. Errors: `NotDirectory`, those of reading.
    pub fn readdir(&self, dir: ObjectId, cookie: u64, each: &mut dyn FnMut(DirEntry) -> ControlFlow<()>) -> Result<()> {
        self.placed(dir, self.list(dir, cookie, each))
    }

    fn list(&self, dir: ObjectId, cookie: u64, each: &mut dyn FnMut(DirEntry) -> ControlFlow<()>) -> Result<()> {
        let mut dot = |ino, name: &[u8], at| {
            let entry = DirEntry { ino, kind: Some(FileKind::Directory), name: name.to_vec(), cookie: at };
            if cookie < at { each(entry) } else { ControlFlow::Continue(()) }
        };
        if cookie < COOKIE_DOTDOT {
            let parent = self.attributes(&self.directory(dir)?)?.parent()?;
            if dot(dir, b".", COOKIE_DOT).is_break() || dot(parent, b"..", COOKIE_DOTDOT).is_break() {
                return Ok(());
            }
        }
        let mut from = if cookie <= COOKIE_RESERVED_MAX { 0 } else { cookie };
        // nobody is called while the directory is locked
        loop {
            let held = self.shared(dir);
            let table = Zap::open(self.directory(dir)?.into_object())?;
            if held.is_none() || table.info().fat.is_none() {
                // a small table is whole in memory, one that does not change is always whole
                drop(held);
                return self.list_table(&table, from, each);
            }
            let mut batch = Vec::with_capacity(BATCH);
            let result = self.collect(&table, from, BATCH, &mut batch);
            drop(held);
            let Some(last) = batch.last().map(|entry| entry.cookie) else { return result };
            let is_end = batch.len() < BATCH;
            if self.deliver(&mut batch, each).is_break() || is_end {
                return result;
            }
            from = last;
        }
    }

    /// Puts up to `count` entries behind a cookie into `batch`.
    fn collect(&self, table: &Zap, from: u64, count: usize, batch: &mut Vec<DirEntry>) -> Result<()> {
        let mut result = Ok(());
        table.for_each_from(from, &mut |entry| {
            match self.dir_entry(entry) {
                Ok(entry) => batch.push(entry),
                Err(e) => {
                    result = Err(e.at_block(table.bookmark()));
                    return ControlFlow::Break(());
                }
            }
            if batch.len() == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        result
    }

    fn list_table(&self, table: &Zap, from: u64, each: &mut dyn FnMut(DirEntry) -> ControlFlow<()>) -> Result<()> {
        let mut batch = Vec::with_capacity(BATCH);
        let mut result = Ok(());
        table.for_each_from(from, &mut |entry| {
            match self.dir_entry(entry) {
                Ok(entry) => batch.push(entry),
                Err(e) => {
                    result = Err(e.at_block(table.bookmark()));
                    return ControlFlow::Break(());
                }
            }
            if batch.len() == BATCH { self.deliver(&mut batch, each) } else { ControlFlow::Continue(()) }
        })?;
        // Empty if the caller broke off.
        let _ = self.deliver(&mut batch, each);
        result
    }

    /// Hands on a batch of entries, and has their dnodes read meanwhile: mostly what is listed is looked at
    /// next.
    fn deliver(&self, batch: &mut Vec<DirEntry>, each: &mut dyn FnMut(DirEntry) -> ControlFlow<()>) -> ControlFlow<()> {
        if batch.len() > 1 {
            self.objset().prefetch(batch.iter().map(|entry| entry.ino));
        }
        let flow = batch.drain(..).try_for_each(each);
        batch.clear();
        flow
    }

    /// The object at the end of a path from the root; symbolic links are not followed. Errors: as
    /// [`Zpl::lookup`].
    pub fn resolve(&self, path: &[u8]) -> Result<ObjectId> {
        let names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
        let mut at = self.root();
        for name in names {
            at = self.lookup(at, name)?;
        }
        if path.ends_with(b"/") {
            self.directory(at)?;
        }
        Ok(at)
    }

    /// One path from the root to an object, in the form `/a/b`. Errors: `NotFound` if it is in no
    /// directory (any more), those of reading.
    pub fn path_of(&self, ino: ObjectId) -> Result<Vec<u8>> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut at = ino;
        while at != self.root() {
            if names.len() == DEPTH_MAX {
                return Err(Error::corrupt(format!("object {ino} lies deeper than {DEPTH_MAX} directories")));
            }
            let node = self.node(at)?;
            let attrs = self.attributes(&node)?;
            let parent = attrs.parent()?;
            let is_dir = FileKind::of_mode(attrs.u64(Attr::Mode)?) == FileKind::Directory;
            names.push(match is_dir && attrs.u64(Attr::Flags)? & FLAG_XATTR != 0 {
                true => b"<xattrdir>".to_vec(),
                false => self.name_in(parent, at)?,
            });
            at = parent;
        }
        let path: Vec<u8> = names.iter().rev().flat_map(|name| [b"/", &name[..]].concat()).collect();
        Ok(if path.is_empty() { b"/".to_vec() } else { path })
    }

    /// The object of a name in a directory's table.
    pub(crate) fn entry(&self, dir: FileNode, name: &[u8]) -> Result<Option<ObjectId>> {
        let table = Zap::open(dir.into_object())?;
        match table.lookup_match(name, self.master().name_match())? {
            Some((_, value)) => {
                dirent(&value).map(|value| Some(value.object)).map_err(|e| e.at_block(table.bookmark()))
            }
            None => Ok(None),
        }
    }

    /// Object `dir`, which has to be a directory.
    pub(crate) fn directory(&self, dir: ObjectId) -> Result<FileNode> {
        let node = self.node(dir)?;
        let mode = self.attributes(&node)?.u64(Attr::Mode)?;
        match FileKind::of_mode(mode) {
            FileKind::Directory => Ok(node),
            _ => Err(Error::new(Kind::NotDirectory, "not a directory")),
        }
    }

    fn dir_entry(&self, entry: ZapEntry) -> Result<DirEntry> {
        let value = dirent(&entry.value)?;
        // Version 1 does not tell. That an entry leads nowhere is not for the listing to report.
        let kind = FileKind::from_type_bits(value.type_bits).or_else(|| self.kind(value.object).ok());
        Ok(DirEntry { ino: value.object, kind, name: entry.name.bytes().to_vec(), cookie: entry.cookie })
    }

    fn kind(&self, ino: ObjectId) -> Result<FileKind> {
        let node = self.node(ino)?;
        Ok(FileKind::of_mode(self.attributes(&node)?.u64(Attr::Mode)?))
    }

    /// The names in a directory by their objects, of each object the first; `None` if there are more than `names_max`.
    /// Errors: `NotDirectory`; `NotFound`; those of reading.
    pub(crate) fn names_by_object(
        &self,
        dir: ObjectId,
        names_max: usize,
    ) -> Result<Option<HashMap<ObjectId, Vec<u8>>>> {
        let _held = self.shared(dir);
        let table = Zap::open(self.directory(dir)?.into_object())?;
        let mut names = HashMap::new();
        table.for_each_from(0, &mut |entry| {
            if let Ok(value) = dirent(&entry.value) {
                names.entry(value.object).or_insert_with(|| entry.name.bytes().to_vec());
            }
            if names.len() > names_max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok((names.len() <= names_max).then_some(names))
    }

    fn name_in(&self, dir: ObjectId, ino: ObjectId) -> Result<Vec<u8>> {
        let _held = self.shared(dir);
        let table = Zap::open(self.directory(dir)?.into_object())?;
        let mut found = None;
        table.for_each_from(0, &mut |entry| match dirent(&entry.value) {
            Ok(value) if value.object == ino => {
                found = Some(entry.name.bytes().to_vec());
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        })?;
        found.ok_or_else(|| Error::new(Kind::NotFound, format!("object {ino} is not in its directory {dir}")))
    }
}

/// The first number of a directory's value; more may follow it.
pub(crate) fn dirent(value: &ZapValue) -> Result<DirentValue> {
    match value.first_u64() {
        Some(number) if value.width() == 8 => Ok(DirentValue::from(number)),
        _ => Err(Error::corrupt(format!("directory entry of {} numbers of {} bytes", value.len(), value.width()))),
    }
}

/// Why a name is not in a directory.
pub(crate) fn absent(name: &[u8]) -> Error {
    if name.len() > NAME_MAX { too_long() } else { not_found() }
}

pub(crate) fn too_long() -> Error {
    Error::new(Kind::TooLong, "name too long")
}

pub(crate) fn not_found() -> Error {
    Error::new(Kind::NotFound, "no such file or directory")
}
