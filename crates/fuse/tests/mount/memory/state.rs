//! The objects of a tree in memory, and what POSIX has changes do to them: the model of a file system.

use std::collections::{HashMap, HashSet};
use std::time::{SystemTime, UNIX_EPOCH};

use base::{Error, Kind, Result};
use format::ids::ObjectId;
use fuse::{New, NewKind, RenameMode, SetAttr, SetTime, Whiteout, XattrMode};
use zpl::{FileKind, Stat};

use super::data::Data;
use super::{Body, Node, acl, fresh_stat};

#[derive(Clone, Default)]
pub struct State {
    pub nodes: HashMap<ObjectId, Node>,
    pub next: ObjectId,
    /// Without a name, but used.
    pub orphans: HashSet<ObjectId>,
    /// Those of the orphans that never had a name, and may get one.
    unnamed: HashSet<ObjectId>,
    /// Names are the same if they differ only in case.
    pub ignore_case: bool,
    /// Numbers of objects that are gone: the next ones are called so.
    free: Vec<ObjectId>,
    pub generation: u64,
}

/// Where a name was taken away, so that cookies stay.
const NO_ENTRY: (Vec<u8>, ObjectId) = (Vec::new(), ObjectId::NONE);

fn error(kind: Kind) -> Error {
    Error::new(kind, "says the model")
}

fn now() -> (i64, u32) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    (now.as_secs() as i64, now.subsec_nanos())
}

impl State {
    pub fn get(&self, object: ObjectId) -> Result<&Node> {
        match self.nodes.get(&object) {
            None => Err(Error::new(Kind::NotFound, format!("no object {object}"))),
            Some(Node { body: Body::Broken(kind), .. }) => Err(Error::new(*kind, format!("object {object} is broken"))),
            Some(node) => Ok(node),
        }
    }

    pub fn get_mut(&mut self, object: ObjectId) -> Result<&mut Node> {
        self.get(object)?;
        Ok(self.nodes.get_mut(&object).expect("just seen"))
    }

    pub fn entries(&self, dir: ObjectId) -> Result<&[(Vec<u8>, ObjectId)]> {
        match &self.get(dir)?.body {
            Body::Dir(entries) => Ok(entries),
            _ => Err(error(Kind::NotDirectory)),
        }
    }

    fn entries_mut(&mut self, dir: ObjectId) -> Result<&mut Vec<(Vec<u8>, ObjectId)>> {
        match &mut self.get_mut(dir)?.body {
            Body::Dir(entries) => Ok(entries),
            _ => Err(error(Kind::NotDirectory)),
        }
    }

    pub fn is_entry(entry: &(Vec<u8>, ObjectId)) -> bool {
        *entry != NO_ENTRY
    }

    fn place(&self, dir: ObjectId, name: &[u8]) -> Result<usize> {
        if name.len() > 255 {
            return Err(error(Kind::TooLong));
        }
        let is_it = |have: &[u8]| if self.ignore_case { have.eq_ignore_ascii_case(name) } else { have == name };
        let place = self.entries(dir)?.iter().position(|entry| State::is_entry(entry) && is_it(&entry.0));
        place.ok_or_else(|| error(Kind::NotFound))
    }

    pub fn lookup(&self, dir: ObjectId, name: &[u8]) -> Result<ObjectId> {
        Ok(self.entries(dir)?[self.place(dir, name)?].1)
    }

    fn is_dir(&self, object: ObjectId) -> Result<bool> {
        Ok(matches!(self.get(object)?.body, Body::Dir(_)))
    }

    fn is_empty(&self, dir: ObjectId) -> Result<bool> {
        Ok(!self.entries(dir)?.iter().any(State::is_entry))
    }

    /// The times and size of a directory whose names changed.
    fn dir_changed(&mut self, dir: ObjectId, names: i64, subdirs: i64) -> Result<()> {
        let stat = &mut self.get_mut(dir)?.stat;
        stat.size = stat.size.checked_add_signed(names).expect("counted right");
        stat.nlink = stat.nlink.checked_add_signed(subdirs).expect("counted right");
        (stat.mtime, stat.ctime) = (now(), now());
        Ok(())
    }

    fn add_name(&mut self, dir: ObjectId, name: &[u8], object: ObjectId) -> Result<()> {
        match self.place(dir, name) {
            Ok(_) => return Err(error(Kind::Exists)),
            Err(error) if error.kind() != Kind::NotFound => return Err(error),
            Err(_) => {}
        }
        if self.orphans.contains(&dir) {
            return Err(error(Kind::NotFound));
        }
        self.entries_mut(dir)?.push((name.to_vec(), object));
        let is_dir = self.is_dir(object)?;
        self.get_mut(object)?.stat.parent = dir;
        self.dir_changed(dir, 1, is_dir.into())
    }

    fn remove_name(&mut self, dir: ObjectId, name: &[u8]) -> Result<ObjectId> {
        let place = self.place(dir, name)?;
        let (_, object) = std::mem::replace(&mut self.entries_mut(dir)?[place], NO_ENTRY);
        let is_dir = self.is_dir(object)?;
        self.dir_changed(dir, -1, -i64::from(is_dir))?;
        Ok(object)
    }

    /// Counts a name less of an object.
    fn drop_link(&mut self, object: ObjectId) -> Result<Option<ObjectId>> {
        let is_dir = self.is_dir(object)?;
        let stat = &mut self.get_mut(object)?.stat;
        stat.nlink = if is_dir { 0 } else { stat.nlink - 1 };
        stat.ctime = now();
        let gone = stat.nlink == 0;
        if gone {
            self.orphans.insert(object);
        }
        Ok(gone.then_some(object))
    }

    pub fn create(&mut self, dir: ObjectId, name: &[u8], new: &New<'_>) -> Result<Stat> {
        let (kind, body) = match new.kind {
            NewKind::File => (FileKind::File, Body::Data(Data::default())),
            NewKind::Directory => (FileKind::Directory, Body::Dir(vec![])),
            NewKind::Symlink(target) => (FileKind::Symlink, Body::Link(target.to_vec())),
            NewKind::Fifo => (FileKind::Fifo, Body::Special),
            NewKind::Socket => (FileKind::Socket, Body::Special),
            NewKind::CharDevice(_) => (FileKind::CharDevice, Body::Special),
            NewKind::BlockDevice(_) => (FileKind::BlockDevice, Body::Special),
        };
        let parent = self.get(dir)?.clone();
        let object = self.free.pop().unwrap_or(self.next);
        let mut stat = fresh_stat(object, kind, new.masked_mode());
        (stat.uid, stat.gid, stat.nlink) = (new.uid, new.gid, if kind == FileKind::Directory { 2 } else { 1 });
        (stat.atime, stat.mtime, stat.ctime, stat.btime) = (now(), now(), now(), now());
        match new.kind {
            NewKind::Directory => stat.size = 2,
            NewKind::Symlink(target) => stat.size = target.len() as u64,
            NewKind::CharDevice(rdev) | NewKind::BlockDevice(rdev) => stat.rdev = rdev,
            _ => {}
        }
        if parent.stat.mode & libc::S_ISGID != 0 {
            stat.gid = parent.stat.gid;
            stat.mode |= if kind == FileKind::Directory { libc::S_ISGID } else { 0 };
        }
        let mut xattrs = vec![];
        if kind != FileKind::Symlink
            && let Some((_, default)) = parent.xattrs.iter().find(|(name, _)| name == acl::DEFAULT)
        {
            stat.mode = new.mode & (acl::mode_of(default) | !0o777) | stat.mode & libc::S_ISGID;
            xattrs.push((acl::ACCESS.to_vec(), acl::with_mode(default, stat.mode)));
            if kind == FileKind::Directory {
                xattrs.push((acl::DEFAULT.to_vec(), default.clone()));
            }
        }
        self.generation += 1;
        stat.generation = 100 + self.generation;
        self.nodes.insert(object, Node { stat, body, xattrs });
        match self.add_name(dir, name, object) {
            Ok(()) => self.next = self.next.plus((object == self.next).into()),
            Err(error) => {
                self.nodes.remove(&object);
                if object != self.next {
                    self.free.push(object);
                }
                return Err(error);
            }
        }
        Ok(self.get(object)?.stat.clone())
    }

    pub fn create_unnamed(&mut self, dir: ObjectId, new: &New<'_>) -> Result<Stat> {
        let object = self.create(dir, b"to be taken away", new)?.ino;
        self.unlink(dir, b"to be taken away")?;
        self.unnamed.insert(object);
        Ok(self.get(object)?.stat.clone())
    }

    pub fn link(&mut self, object: ObjectId, dir: ObjectId, name: &[u8]) -> Result<Stat> {
        if self.orphans.contains(&object) && !self.unnamed.remove(&object) {
            return Err(error(Kind::NotFound));
        }
        self.orphans.remove(&object);
        self.add_name(dir, name, object)?;
        let stat = &mut self.get_mut(object)?.stat;
        stat.nlink += 1;
        stat.ctime = now();
        Ok(stat.clone())
    }

    pub fn unlink(&mut self, dir: ObjectId, name: &[u8]) -> Result<Option<ObjectId>> {
        if self.is_dir(self.lookup(dir, name)?)? {
            return Err(error(Kind::IsDirectory));
        }
        let object = self.remove_name(dir, name)?;
        self.drop_link(object)
    }

    pub fn rmdir(&mut self, dir: ObjectId, name: &[u8]) -> Result<ObjectId> {
        if !self.is_empty(self.lookup(dir, name)?)? {
            return Err(error(Kind::NotEmpty));
        }
        let object = self.remove_name(dir, name)?;
        Ok(self.drop_link(object)?.expect("a directory has one name"))
    }

    pub fn rename(
        &mut self,
        from: (ObjectId, &[u8]),
        to: (ObjectId, &[u8]),
        mode: RenameMode,
    ) -> Result<Option<ObjectId>> {
        let object = self.lookup(from.0, from.1)?;
        let target = match self.lookup(to.0, to.1) {
            Err(error) if error.kind() == Kind::NotFound && mode != RenameMode::Exchange => None,
            target => Some(target?),
        };
        let mut orphan = None;
        if let Some(target) = target {
            match mode {
                RenameMode::NoReplace | RenameMode::Whiteout(Whiteout { replaces: false, .. }) => {
                    return Err(error(Kind::Exists));
                }
                RenameMode::Exchange => {
                    self.remove_name(from.0, from.1)?;
                    self.remove_name(to.0, to.1)?;
                    self.add_name(from.0, from.1, target)?;
                    self.add_name(to.0, to.1, object)?;
                    return Ok(None);
                }
                RenameMode::Replace | RenameMode::Whiteout(_) if target == object => return Ok(None),
                RenameMode::Replace | RenameMode::Whiteout(_) => {}
            }
            match (self.is_dir(object)?, self.is_dir(target)?) {
                (true, false) => return Err(error(Kind::NotDirectory)),
                (false, true) => return Err(error(Kind::IsDirectory)),
                (true, true) if !self.is_empty(target)? => return Err(error(Kind::NotEmpty)),
                _ => {}
            }
            self.remove_name(to.0, to.1)?;
            orphan = self.drop_link(target)?;
        }
        self.remove_name(from.0, from.1)?;
        self.add_name(to.0, to.1, object)?;
        self.get_mut(object)?.stat.ctime = now();
        if let RenameMode::Whiteout(Whiteout { uid, gid, .. }) = mode {
            self.create(from.0, from.1, &New { kind: NewKind::CharDevice(0), mode: 0, umask: 0, uid, gid })?;
        }
        Ok(orphan)
    }

    pub fn reclaim(&mut self, object: ObjectId) -> Result<()> {
        if !self.orphans.remove(&object) {
            assert!(self.get(object)?.stat.nlink > 0, "{object} has neither names nor is it an orphan");
            return Ok(());
        }
        self.nodes.remove(&object);
        self.free.push(object);
        Ok(())
    }

    pub fn set_attr(&mut self, object: ObjectId, set: &SetAttr) -> Result<Stat> {
        if let Some(size) = set.size {
            self.data(object)?.resize(size);
            self.written(object)?;
        }
        let Node { stat, xattrs, .. } = self.get_mut(object)?;
        let time = |set: SetTime| match set {
            SetTime::Now => now(),
            SetTime::At(secs, nanos) => (secs, nanos),
        };
        if let Some(mode) = set.mode {
            stat.mode = mode;
            if let Some((_, access)) = xattrs.iter_mut().find(|(name, _)| name == acl::ACCESS) {
                *access = acl::with_mode(access, mode);
            }
        }
        stat.uid = set.uid.unwrap_or(stat.uid);
        stat.gid = set.gid.unwrap_or(stat.gid);
        stat.atime = set.atime.map_or(stat.atime, time);
        stat.mtime = set.mtime.map_or(stat.mtime, time);
        stat.ctime = set.ctime.unwrap_or_else(now);
        Ok(stat.clone())
    }

    pub fn touch_atime(&mut self, object: ObjectId, at: (i64, u32)) -> Result<()> {
        self.get_mut(object)?.stat.atime = at;
        Ok(())
    }

    pub fn set_xattr(&mut self, object: ObjectId, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let Node { stat, xattrs, .. } = self.get_mut(object)?;
        let place = xattrs.iter().position(|(have, _)| have == name);
        match (place, mode) {
            (Some(_), XattrMode::Create) => return Err(error(Kind::Exists)),
            (None, XattrMode::Replace) => return Err(error(Kind::NoAttribute)),
            (Some(place), _) => xattrs[place].1 = value.to_vec(),
            (None, _) => xattrs.push((name.to_vec(), value.to_vec())),
        }
        if name == acl::ACCESS {
            let replaced = if mode == XattrMode::AnyDropSetGid { 0o2777 } else { 0o777 };
            stat.mode = stat.mode & !replaced | acl::mode_of(value);
        }
        stat.ctime = now();
        Ok(())
    }

    pub fn remove_xattr(&mut self, object: ObjectId, name: &[u8]) -> Result<()> {
        let Node { stat, xattrs, .. } = self.get_mut(object)?;
        let place = xattrs.iter().position(|(have, _)| have == name).ok_or_else(|| error(Kind::NoAttribute))?;
        xattrs.remove(place);
        stat.ctime = now();
        Ok(())
    }

    /// The bytes of a file, to be changed.
    pub fn data(&mut self, object: ObjectId) -> Result<&mut Data> {
        let body = &mut self.get_mut(object)?.body;
        if let Body::File(content) = body {
            *body = Body::Data(content.to_data());
        }
        match body {
            Body::Data(data) => Ok(data),
            Body::Dir(_) => Err(error(Kind::IsDirectory)),
            _ => Err(error(Kind::Invalid)),
        }
    }

    /// The attributes of a file whose bytes changed.
    pub fn written(&mut self, object: ObjectId) -> Result<()> {
        let (size, n_blocks) = (self.data(object)?.size, self.data(object)?.n_blocks());
        let stat = &mut self.get_mut(object)?.stat;
        (stat.size, stat.blocks) = (size, 1 + n_blocks * 8);
        (stat.mtime, stat.ctime) = (now(), now());
        Ok(())
    }
}
