//! Folders of a file system: sorted, and entered once.
//!
//! A damaged file system may hold a folder in itself, or under two names. Each is entered once, so a
//! walk ends; and a name that no file system allows is an error, not a path. So is a name that a folder
//! has twice: the first file of that name is taken, and the others are left out.

use std::collections::HashSet;
use std::ops::ControlFlow;

use base::{Error, Result, Shown};
use format::ids::ObjectId;
use zpl::{DirEntry, FileKind, Stat, Zpl};

/// How deep folders may nest; the longest path that a system takes has 2048.
pub const DEPTH_MAX: usize = 4096;

/// A file met on a walk.
pub struct WalkedFile<'a> {
    /// Path from where the walk began; `.` for that itself.
    pub path: &'a [u8],
    /// Its attributes, or why they cannot be read.
    pub stat: Result<Stat>,
}

/// Walks through the folders below one.
pub struct Walker<'a> {
    zpl: &'a Zpl,
    entered: HashSet<ObjectId>,
}

/// What a walk reports.
pub trait FileVisitor {
    /// A file; before what is in it. Breaking ends the walk.
    fn file(&mut self, found: WalkedFile<'_>) -> ControlFlow<()>;
    /// A folder that cannot be read, or not to its end.
    fn failed(&mut self, path: &[u8], error: Error);
}

impl<'a> Walker<'a> {
    /// A walk through `zpl`.
    pub fn new(zpl: &'a Zpl) -> Walker<'a> {
        Walker { zpl, entered: HashSet::new() }
    }

    /// The names in a folder, in the order of their bytes, without `.` and `..`; and what stopped the
    /// listing, if something did.
    pub fn list(&mut self, dir: ObjectId) -> (Vec<DirEntry>, Option<Error>) {
        if !self.entered.insert(dir) {
            return (Vec::new(), Some(Error::corrupt(format!("folder (object {dir}) is in several places"))));
        }
        let mut entries: Vec<DirEntry> = Vec::new();
        let mut odd = None;
        let mut dots = 0;
        let result = self.zpl.readdir(dir, 0, &mut |entry| {
            let is_dot = entry.name == b"." || entry.name == b"..";
            dots += usize::from(is_dot);
            if is_dot && dots <= 2 {
                // the two that every listing begins with
            } else if !zpl::is_possible_name(&entry.name) {
                odd = Some(Error::corrupt(format!("entry with the impossible name '{}'", Shown(&entry.name))));
            } else {
                entries.push(entry);
            }
            ControlFlow::Continue(())
        });
        // a stable sort, so that of those with one name the first in the folder comes first
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        entries.dedup_by(|later, first| {
            let is_double = later.name == first.name;
            if is_double {
                let (name, kept, left) = (Shown(&first.name), first.ino, later.ino);
                let what = format!("name '{name}' is there twice (objects {kept} and {left}): only the first is taken");
                odd = Some(Error::corrupt(what));
            }
            is_double
        });
        (entries, result.err().or(odd))
    }

    /// Shows `start` and all below it.
    pub fn walk(&mut self, start: ObjectId, visitor: &mut dyn FileVisitor) -> ControlFlow<()> {
        let stat = self.zpl.stat(start);
        let is_dir = stat.as_ref().is_ok_and(|stat| stat.kind == FileKind::Directory);
        visitor.file(WalkedFile { path: b".", stat })?;
        if is_dir { self.below(start, &mut Vec::new(), 0, visitor) } else { ControlFlow::Continue(()) }
    }

    fn below(
        &mut self,
        dir: ObjectId,
        path: &mut Vec<u8>,
        depth: usize,
        visitor: &mut dyn FileVisitor,
    ) -> ControlFlow<()> {
        let at = |path: &[u8]| if path.is_empty() { b".".to_vec() } else { path.to_vec() };
        if depth > DEPTH_MAX {
            visitor.failed(&at(path), Error::corrupt(format!("folders nest deeper than {DEPTH_MAX}")));
            return ControlFlow::Continue(());
        }
        let (entries, error) = self.list(dir);
        if let Some(error) = error {
            visitor.failed(&at(path), error);
        }
        for entry in entries {
            let parent_len = path.len();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&entry.name);
            let stat = self.zpl.stat(entry.ino);
            let is_dir = stat.as_ref().is_ok_and(|stat| stat.kind == FileKind::Directory);
            visitor.file(WalkedFile { path, stat })?;
            if is_dir {
                self.below(entry.ino, path, depth + 1, visitor)?;
            }
            path.truncate(parent_len);
        }
        ControlFlow::Continue(())
    }
}
