//! Changes of file systems at random, beside the model.

use std::sync::Arc;

use base::{Error, Result};
use zpl::{Allocate, FileKind, New, NewKind, RenameMode, SetAttr, XattrMode, Zpl};

use super::Workload;
use crate::files::{FileModel, Files, ROOT};

/// Bytes of the longest file.
const SIZE_MAX: u64 = 300_000;
/// Files of a file system.
const FILES_MAX: usize = 40;

/// A file system and its model, to be changed.
struct Pair<'a> {
    zpl: &'a Zpl,
    files: &'a mut Files,
}

impl Pair<'_> {
    fn number(&self, ino: u64) -> u64 {
        if ino == ROOT { self.zpl.root() } else { ino }
    }

    /// A file may have lost a name: both have to say the same of whether it was the last.
    fn check_lost(&self, said: Option<u64>, before: usize) -> Result<()> {
        match said.is_some() == (self.files.orphans.len() > before) {
            true => Ok(()),
            false => Err(Error::corrupt(format!("{said:?} is said to have lost its last name"))),
        }
    }
}

impl Workload {
    /// The file system of that dataset, opened as after a crash when it is asked for the first time.
    fn zpl(&mut self, name: &str, files: &mut Files) -> Result<Zpl> {
        let id = self.pool.view().dsl().find(name)?.id;
        if let Some(zpl) = self.zpls.get(&id) {
            return Ok(zpl.clone());
        }
        let txgs = self.pool.txgs().clone();
        let record_bytes = [128 << 10, 32 << 10, 16 << 10][(id % 3) as usize];
        let options = zpl::ZplOptions { xattr_sa: id % 2 == 0, record_bytes, ..zpl::ZplOptions::default() };
        let zpl = Zpl::open_writable(self.pool.head(id)?, txgs, self.env.clone(), options, Some(self.pool.log(id)?))?;
        zpl.replay_log()?;
        let cleaned = zpl.clean_unlinked()?;
        if cleaned != files.orphans.len() as u64 {
            return Err(Error::corrupt(format!("{cleaned} files without a name were freed, not {:?}", files.orphans)));
        }
        files.orphans.clear();
        self.zpls.insert(id, zpl.clone());
        Ok(zpl)
    }

    /// Makes one change at random.
    pub(super) fn step_files(&mut self, name: &str, files: &mut Files) -> Result<()> {
        let zpl = self.zpl(name, files)?;
        let pair = &mut Pair { zpl: &zpl, files };
        let choice = self.rng.below(100);
        match choice {
            _ if pair.files.nodes.len() < 8 => self.create_file(pair),
            0..20 if pair.files.nodes.len() < FILES_MAX => self.create_file(pair),
            0..25 => self.link(pair),
            25..40 => self.unlink(pair),
            40..55 => self.rename(pair),
            55..60 => reclaim(pair),
            60..70 => self.set_attributes(pair),
            _ => self.change_bytes(pair, choice),
        }
    }

    fn create_file(&mut self, pair: &mut Pair<'_>) -> Result<()> {
        let dir = *self.rng.pick(&pair.files.all(FileKind::Directory));
        let name = self.name();
        if pair.files.nodes[&dir].entries.contains_key(&name) {
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
        let stat = pair.zpl.create(pair.number(dir), &name, &new)?;
        let mut model = FileModel::new(kind, stat.mode);
        if kind == FileKind::Symlink {
            model.bytes = target;
        }
        pair.files.nodes.insert(stat.ino, Arc::new(model));
        pair.files.add_name(dir, &name, stat.ino);
        Ok(())
    }

    fn link(&mut self, pair: &mut Pair<'_>) -> Result<()> {
        let (files, dirs) = (pair.files.all(FileKind::File), pair.files.all(FileKind::Directory));
        let (dir, name) = (*self.rng.pick(&dirs), self.name());
        if files.is_empty() || pair.files.nodes[&dir].entries.contains_key(&name) {
            return Ok(());
        }
        let ino = *self.rng.pick(&files);
        pair.zpl.link(ino, pair.number(dir), &name)?;
        pair.files.node(ino).links += 1;
        pair.files.add_name(dir, &name, ino);
        Ok(())
    }

    fn unlink(&mut self, pair: &mut Pair<'_>) -> Result<()> {
        let names = pair.files.names();
        if names.is_empty() {
            return Ok(());
        }
        let (dir, name, ino) = self.rng.pick(&names).clone();
        let before = pair.files.orphans.len();
        let lost = match pair.files.nodes[&ino].kind {
            FileKind::Directory if !pair.files.nodes[&ino].entries.is_empty() => return Ok(()),
            FileKind::Directory => Some(pair.zpl.rmdir(pair.number(dir), &name)?),
            _ => pair.zpl.unlink(pair.number(dir), &name)?,
        };
        pair.files.remove_name(dir, &name);
        pair.files.drop_link(ino);
        pair.check_lost(lost, before)?;
        // the others are in use still, until they are reclaimed or the power goes
        if self.rng.below(2) == 0 { reclaim(pair) } else { Ok(()) }
    }

    fn rename(&mut self, pair: &mut Pair<'_>) -> Result<()> {
        let names = pair.files.names();
        if names.is_empty() {
            return Ok(());
        }
        let (from, old, ino) = self.rng.pick(&names).clone();
        let to = *self.rng.pick(&pair.files.all(FileKind::Directory));
        let new = self.name();
        let is_dir = |pair: &Pair<'_>, ino: u64| pair.files.nodes[&ino].kind == FileKind::Directory;
        let target = pair.files.nodes[&to].entries.get(&new).copied();
        let is_refused = target == Some(ino)
            || is_dir(pair, ino) && pair.files.is_below(to, ino)
            || target.is_some_and(|target| is_dir(pair, target) || is_dir(pair, ino));
        if is_refused {
            return Ok(());
        }
        let mode = match target {
            Some(_) if self.rng.below(2) == 0 => RenameMode::Exchange,
            None if self.rng.below(2) == 0 => RenameMode::NoReplace,
            _ => RenameMode::Replace,
        };
        let before = pair.files.orphans.len();
        let lost = pair.zpl.rename((pair.number(from), &old), (pair.number(to), &new), mode)?;
        pair.files.remove_name(from, &old);
        if let Some(target) = target {
            pair.files.remove_name(to, &new);
            match mode {
                RenameMode::Exchange => pair.files.add_name(from, &old, target),
                _ => drop(pair.files.drop_link(target)),
            }
        }
        pair.files.add_name(to, &new, ino);
        pair.check_lost(lost, before)
    }

    fn set_attributes(&mut self, pair: &mut Pair<'_>) -> Result<()> {
        let all: Vec<u64> = pair.files.nodes.keys().copied().filter(|&ino| ino != ROOT).collect();
        let ino = *self.rng.pick(&all);
        if self.rng.below(4) == 0 {
            let mode = self.rng.below(0o1000) as u32;
            pair.zpl.set_attr(ino, &SetAttr { mode: Some(mode), ..SetAttr::default() })?;
            pair.files.node(ino).mode = mode;
            return Ok(());
        }
        let name = format!("user.{}", self.rng.below(4)).into_bytes();
        if pair.files.nodes[&ino].xattrs.contains_key(&name) && self.rng.below(2) == 0 {
            pair.zpl.remove_xattr(ino, &name)?;
            pair.files.node(ino).xattrs.remove(&name);
            return Ok(());
        }
        let len = *self.rng.pick(&[1, 50, 400, 3000]);
        let value = self.bytes(len);
        pair.zpl.set_xattr(ino, &name, &value, XattrMode::Any)?;
        pair.files.node(ino).xattrs.insert(name, value);
        Ok(())
    }

    fn change_bytes(&mut self, pair: &mut Pair<'_>, choice: u64) -> Result<()> {
        let all = pair.files.all(FileKind::File);
        if all.is_empty() {
            return Ok(());
        }
        let ino = *self.rng.pick(&all);
        let offset_max = *self.rng.pick(&[1, 5000, SIZE_MAX]);
        let (offset, len) = (self.rng.below(offset_max), self.rng.below(60_000) + 1);
        let (file, model) = (pair.zpl.open_file(ino)?, pair.files.node(ino));
        match choice {
            70..75 => {
                pair.zpl.set_attr(ino, &SetAttr { size: Some(offset), ..SetAttr::default() })?;
                model.bytes.resize(offset as usize, 0);
            }
            75..80 => {
                file.allocate(Allocate::PunchHole, offset, len)?;
                let size = model.bytes.len();
                model.bytes[size.min(offset as usize)..size.min((offset + len) as usize)].fill(0);
            }
            80..85 => {
                let bytes = self.bytes(len as usize / 20);
                file.append(&bytes)?;
                model.bytes.extend(bytes);
            }
            _ => {
                let bytes = self.bytes(len as usize);
                file.write(offset, &bytes)?;
                let end = (offset + len) as usize;
                model.bytes.resize(model.bytes.len().max(end), 0);
                model.bytes[offset as usize..end].copy_from_slice(&bytes);
            }
        }
        Ok(())
    }

    fn name(&mut self) -> Vec<u8> {
        match self.rng.below(12) {
            0 => b"long".repeat(50),
            n => format!("n{n}").into_bytes(),
        }
    }
}

/// Gives back a file that has lost its names.
fn reclaim(pair: &mut Pair<'_>) -> Result<()> {
    match pair.files.orphans.pop_first() {
        Some(ino) => pair.zpl.reclaim(ino),
        None => Ok(()),
    }
}
