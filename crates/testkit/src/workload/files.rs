//! Changes of file systems at random, beside the model.

use std::sync::Arc;

use base::{Error, Result};
use format::ids::ObjectId;
use zpl::{Allocate, FileKind, New, NewKind, RenameMode, SetAttr, XattrMode, Zpl};

use super::bytes::bytes;
use crate::files::{FileModel, Files, ROOT};
use crate::rng::Rng;

/// Bytes of the longest file.
const SIZE_MAX: u64 = 300_000;
/// Files of a file system.
const FILES_MAX: usize = 40;

/// A file system and its model, to be changed.
pub(super) struct FileStep<'a> {
    pub(super) zpl: &'a Zpl,
    pub(super) files: &'a mut Files,
    pub(super) rng: &'a mut Rng,
}

impl FileStep<'_> {
    /// Makes one change at random.
    pub(super) fn run(mut self) -> Result<()> {
        let choice = self.rng.below(100);
        match choice {
            _ if self.files.nodes.len() < 8 => self.create_file(),
            0..20 if self.files.nodes.len() < FILES_MAX => self.create_file(),
            0..25 => self.link(),
            25..40 => self.unlink(),
            40..55 => self.rename(),
            55..60 => self.reclaim(),
            60..70 => self.set_attributes(),
            _ => self.change_bytes(choice),
        }
    }

    fn create_file(&mut self) -> Result<()> {
        let dir = *self.rng.pick(&self.files.all(FileKind::Directory));
        let name = self.name();
        if self.files.nodes[&dir].entries.contains_key(&name) {
            return Ok(());
        }
        let target = b"/where/it/leads/".repeat(self.rng.below(30) as usize + 1);
        let (kind, new) = match self.rng.below(6) {
            0 => (FileKind::Directory, NewKind::Directory),
            1 => (FileKind::Symlink, NewKind::Symlink(&target)),
            _ => (FileKind::File, NewKind::File),
        };
        let mode = self.rng.below(0o1000) as u32;
        let new = New { kind: new, mode, umask: 0, uid: 1000 + self.rng.below(3) as u32, gid: 100 };
        let stat = self.zpl.create(self.number(dir), &name, &new)?;
        let mut model = FileModel::new(kind, stat.mode);
        if kind == FileKind::Symlink {
            model.bytes = target;
        }
        self.files.nodes.insert(stat.ino, Arc::new(model));
        self.files.add_name(dir, &name, stat.ino);
        Ok(())
    }

    fn link(&mut self) -> Result<()> {
        let (files, dirs) = (self.files.all(FileKind::File), self.files.all(FileKind::Directory));
        let (dir, name) = (*self.rng.pick(&dirs), self.name());
        if files.is_empty() || self.files.nodes[&dir].entries.contains_key(&name) {
            return Ok(());
        }
        let ino = *self.rng.pick(&files);
        self.zpl.link(ino, self.number(dir), &name)?;
        self.files.node(ino).links += 1;
        self.files.add_name(dir, &name, ino);
        Ok(())
    }

    fn unlink(&mut self) -> Result<()> {
        let names = self.files.names();
        if names.is_empty() {
            return Ok(());
        }
        let (dir, name, ino) = self.rng.pick(&names).clone();
        let before = self.files.orphans.len();
        let lost = match self.files.nodes[&ino].kind {
            FileKind::Directory if !self.files.nodes[&ino].entries.is_empty() => return Ok(()),
            FileKind::Directory => Some(self.zpl.rmdir(self.number(dir), &name)?),
            _ => self.zpl.unlink(self.number(dir), &name)?,
        };
        self.files.remove_name(dir, &name);
        self.files.drop_link(ino);
        self.check_lost(lost, before)?;
        // the others are in use still, until they are reclaimed or the power goes
        if self.rng.below(2) == 0 { self.reclaim() } else { Ok(()) }
    }

    fn rename(&mut self) -> Result<()> {
        let names = self.files.names();
        if names.is_empty() {
            return Ok(());
        }
        let (from, old, ino) = self.rng.pick(&names).clone();
        let to = *self.rng.pick(&self.files.all(FileKind::Directory));
        let new = self.name();
        let is_dir = |files: &Files, ino: ObjectId| files.nodes[&ino].kind == FileKind::Directory;
        let target = self.files.nodes[&to].entries.get(&new).copied();
        let is_refused = target == Some(ino)
            || is_dir(self.files, ino) && self.files.is_below(to, ino)
            || target.is_some_and(|target| is_dir(self.files, target) || is_dir(self.files, ino));
        if is_refused {
            return Ok(());
        }
        let mode = match target {
            Some(_) if self.rng.below(2) == 0 => RenameMode::Exchange,
            None if self.rng.below(2) == 0 => RenameMode::NoReplace,
            _ => RenameMode::Replace,
        };
        let before = self.files.orphans.len();
        let lost = self.zpl.rename((self.number(from), &old), (self.number(to), &new), mode)?;
        self.files.remove_name(from, &old);
        if let Some(target) = target {
            self.files.remove_name(to, &new);
            match mode {
                RenameMode::Exchange => self.files.add_name(from, &old, target),
                _ => drop(self.files.drop_link(target)),
            }
        }
        self.files.add_name(to, &new, ino);
        self.check_lost(lost, before)
    }

    fn set_attributes(&mut self) -> Result<()> {
        let all: Vec<ObjectId> = self.files.nodes.keys().copied().filter(|&ino| ino != ROOT).collect();
        let ino = *self.rng.pick(&all);
        if self.rng.below(4) == 0 {
            let mode = self.rng.below(0o1000) as u32;
            self.zpl.set_attr(ino, &SetAttr { mode: Some(mode), ..SetAttr::default() })?;
            self.files.node(ino).mode = mode;
            return Ok(());
        }
        let name = format!("user.{}", self.rng.below(4)).into_bytes();
        if self.files.nodes[&ino].xattrs.contains_key(&name) && self.rng.below(2) == 0 {
            self.zpl.remove_xattr(ino, &name)?;
            self.files.node(ino).xattrs.remove(&name);
            return Ok(());
        }
        let len = *self.rng.pick(&[1, 50, 400, 3000]);
        let value = bytes(self.rng, len);
        self.zpl.set_xattr(ino, &name, &value, XattrMode::Any)?;
        self.files.node(ino).xattrs.insert(name, value);
        Ok(())
    }

    fn change_bytes(&mut self, choice: u64) -> Result<()> {
        let all = self.files.all(FileKind::File);
        if all.is_empty() {
            return Ok(());
        }
        let ino = *self.rng.pick(&all);
        let other = *self.rng.pick(&all);
        if choice >= 88 && other != ino {
            let (zpl, model) = (self.zpl, self.files.nodes[&other].clone());
            return self.copy((zpl, other, &model), ino);
        }
        let offset_max = *self.rng.pick(&[1, 5000, SIZE_MAX]);
        let (offset, len) = (self.rng.below(offset_max), self.rng.below(60_000) + 1);
        let (file, model) = (self.zpl.open_file(ino)?, self.files.node(ino));
        match choice {
            70..75 => {
                self.zpl.set_attr(ino, &SetAttr { size: Some(offset), ..SetAttr::default() })?;
                model.bytes.resize(offset as usize, 0);
            }
            75..80 => {
                file.allocate(Allocate::PunchHole, offset, len)?;
                let size = model.bytes.len();
                model.bytes[size.min(offset as usize)..size.min((offset + len) as usize)].fill(0);
            }
            80..85 => {
                let bytes = bytes(self.rng, len as usize / 20);
                file.append(&bytes)?;
                model.bytes.extend(bytes);
            }
            _ => {
                let bytes = bytes(self.rng, len as usize);
                file.write(offset, &bytes)?;
                let end = (offset + len) as usize;
                model.bytes.resize(model.bytes.len().max(end), 0);
                model.bytes[offset as usize..end].copy_from_slice(&bytes);
            }
        }
        Ok(())
    }

    /// Copies a part of a file of another file system or snapshot to one of this.
    pub(super) fn copy_from(mut self, zpl: &Zpl, files: &Files) -> Result<()> {
        let (theirs, own) = (files.all(FileKind::File), self.files.all(FileKind::File));
        if theirs.is_empty() || own.is_empty() {
            return Ok(());
        }
        let (from, to) = (*self.rng.pick(&theirs), *self.rng.pick(&own));
        self.copy((zpl, from, &files.nodes[&from]), to)
    }

    /// Copies a part of a file to another one: often whole blocks, which they share then.
    fn copy(&mut self, (zpl, from, model): (&Zpl, ObjectId, &FileModel), to: ObjectId) -> Result<()> {
        let (source, target) = (zpl.open_file(from)?, self.zpl.open_file(to)?);
        let step = *self.rng.pick(&[1, 16 << 10, 32 << 10, 128 << 10]);
        let mut place = || self.rng.below(2) * self.rng.below(SIZE_MAX / step) * step;
        let (mut from_offset, mut offset) = (place(), place());
        let mut len = *self.rng.pick(&[SIZE_MAX, 70_000, 16 << 10]);
        if self.rng.below(2) == 0 {
            // all of it, as cp does
            self.zpl.set_attr(to, &SetAttr { size: Some(0), ..SetAttr::default() })?;
            self.files.node(to).bytes.clear();
            (from_offset, offset, len) = (0, 0, SIZE_MAX);
        }
        let copied = target.copy_from(offset, &source, from_offset, len)? as usize;
        let bytes = model.bytes.get(from_offset as usize..).unwrap_or_default();
        let bytes =
            bytes.get(..copied).map(<[u8]>::to_vec).ok_or_else(|| Error::corrupt("more was copied than there is"))?;
        if copied > 0 {
            let (model, offset) = (&mut self.files.node(to).bytes, offset as usize);
            model.resize(model.len().max(offset + copied), 0);
            model[offset..offset + copied].copy_from_slice(&bytes);
        }
        Ok(())
    }

    fn name(&mut self) -> Vec<u8> {
        match self.rng.below(12) {
            0 => b"long".repeat(50),
            n => format!("n{n}").into_bytes(),
        }
    }

    /// Gives back a file that has lost its names.
    fn reclaim(&mut self) -> Result<()> {
        match self.files.orphans.pop_first() {
            Some(ino) => self.zpl.reclaim(ino),
            None => Ok(()),
        }
    }

    fn number(&self, ino: ObjectId) -> ObjectId {
        if ino == ROOT { self.zpl.root() } else { ino }
    }

    /// A file may have lost a name: both have to say the same of whether it was the last.
    fn check_lost(&self, said: Option<ObjectId>, before: usize) -> Result<()> {
        match said.is_some() == (self.files.orphans.len() > before) {
            true => Ok(()),
            false => Err(Error::corrupt(format!("{said:?} is said to have lost its last name"))),
        }
    }
}
