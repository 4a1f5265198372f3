//! Changing attributes on request: mode, owners, times, size.

use base::{Error, Kind, Result};
use format::ids::ObjectId;
use format::sa::Attr;
use format::znode::{FLAG_APPENDONLY, FLAG_IMMUTABLE};
use zil::Intent;

use crate::attr_tables::{AttrChange, time, word};
use crate::contents::SIZE_MAX;
use crate::nodes::FileNode;
use crate::op::Op;
use crate::posix_acl;
use crate::set_xattr::mode_changes;
use crate::{FileKind, SetAttr, SetTime, Stat, Zpl};
use format::objset::Owner;

/// Bytes that changed attributes take, roughly.
const ATTR_BYTES: u64 = 1 << 10;
/// With `relatime`, the time of the last access is at most so old.
const RELATIME_S: i64 = 24 * 60 * 60;

impl Zpl {
    /// Changes attributes, all in one step. Errors: `IsDirectory`, `Invalid` for the size of what has none;
    /// `TooBig` for a size beyond 2^63 - 1; `NoSpace`, `Quota`.
    pub fn set_attr(&self, ino: ObjectId, set: &SetAttr) -> Result<Stat> {
        let done = self.placed(ino, self.change_attrs(ino, set));
        self.settled(ino, done)
    }

    fn change_attrs(&self, ino: ObjectId, set: &SetAttr) -> Result<Stat> {
        let frees = match set.size {
            Some(size) => {
                let old = self.read_stat(ino)?.size;
                if size < old {
                    self.free_most(ino, size..u64::MAX, &|op, object| {
                        op.check_size(&self.node_of(object.clone())?, set)
                    })?;
                }
                size <= old
            }
            None => true,
        };
        let op = self.begin(ATTR_BYTES, frees)?;
        let _held = op.alone(&[ino]);
        let node = self.node(ino)?;
        let changes = op.wanted(&node, set)?;
        op.share_owners(&node, &changes)?;
        match set.size {
            Some(size) => op.set_size(node.object(), size, &changes)?,
            None => op.change(node.object(), &changes)?,
        }
        op.log_attributes(ino, set, &changes)?;
        self.stat_of(&self.node(ino)?)
    }

    /// Sets the time of the last access, in seconds since 1970 and nanoseconds, and changes no other time.
    pub fn touch_atime(&self, ino: ObjectId, at: (i64, u32)) -> Result<()> {
        self.placed(ino, self.touch(ino, at))
    }

    fn touch(&self, ino: ObjectId, at: (i64, u32)) -> Result<()> {
        let op = self.begin(ATTR_BYTES, true)?;
        let _held = op.alone(&[ino]);
        op.change(self.node(ino)?.object(), &[time(Attr::Atime, [at.0.cast_unsigned(), at.1.into()])])
    }
}

/// Whether an access at `now_s` (seconds since 1970) moves the time of the last one, by the rule of
/// `relatime`: it may be a day old, but not older than the last change.
pub fn is_atime_due(stat: &Stat, now_s: i64) -> bool {
    stat.atime <= stat.mtime || stat.atime <= stat.ctime || now_s.saturating_sub(stat.atime.0) >= RELATIME_S
}

impl SetAttr {
    /// Is it only what may change of a file that can only be appended to? With the kernel's write-back cache its times
    /// come so.
    fn is_of_appended(&self) -> bool {
        let is_given = |time: Option<SetTime>| matches!(time, Some(SetTime::At(..))) && self.ctime.is_none();
        let is_owner = self.uid.is_some() || self.gid.is_some();
        !(self.mode.is_some() || is_owner || is_given(self.atime) || is_given(self.mtime))
    }
}

impl Op<'_> {
    /// What is to be changed, beside the size; the access ACL is changed here.
    pub(crate) fn wanted(&self, node: &FileNode, set: &SetAttr) -> Result<Vec<AttrChange>> {
        self.check_size(node, set)?;
        let attrs = self.zpl().attributes(node)?;
        let old_mode = attrs.u64(Attr::Mode)? as u32;
        let flags = attrs.u64(Attr::Flags)?;
        let (uid, gid) = (attrs.u64(Attr::Uid)?, attrs.u64(Attr::Gid)?);
        self.check_new_owners(set, uid, gid)?;
        let acl = match set.mode {
            Some(_) => self.zpl().posix_acl(node, &attrs, posix_acl::ACCESS)?,
            None => None,
        };
        drop(attrs);
        let mut changes = Vec::with_capacity(8);
        if let Some(bits) = set.mode {
            let mode = old_mode & !0o7777 | bits & 0o7777;
            if let Some(acl) = acl {
                self.store_xattr(node.object(), posix_acl::ACCESS, Some(&acl.with_mode(mode).bytes()))?;
            }
            changes.extend(mode_changes(mode, flags));
        }
        changes.extend(set.uid.map(|uid| word(Attr::Uid, uid.into())));
        changes.extend(set.gid.map(|gid| word(Attr::Gid, gid.into())));
        changes.extend(set.atime.map(|at| time(Attr::Atime, self.time_of(at))));
        match set.mtime {
            Some(at) => changes.push(time(Attr::Mtime, self.time_of(at))),
            None => changes.extend(set.size.map(|_| time(Attr::Mtime, self.now()))),
        }
        let ctime = set.ctime.map_or(self.now(), |(secs, nanos)| [secs as u64, nanos.into()]);
        changes.push(time(Attr::Ctime, ctime));
        Ok(changes)
    }

    /// Refuses what flags of a file forbid, and a size to what has none.
    fn check_size(&self, node: &FileNode, set: &SetAttr) -> Result<()> {
        self.zpl().check_flags(node, FLAG_IMMUTABLE | if set.is_of_appended() { 0 } else { FLAG_APPENDONLY })?;
        if set.size.is_some() {
            self.check_writable(node.object(), true)?;
        }
        let kind = FileKind::of_mode(self.zpl().attributes(node)?.u64(Attr::Mode)?);
        match (set.size, kind) {
            (None, _) | (Some(0..=SIZE_MAX), FileKind::File) => Ok(()),
            (Some(_), FileKind::File) => Err(Error::new(Kind::TooBig, "file too large")),
            (Some(_), FileKind::Directory) => Err(Error::new(Kind::IsDirectory, "is a directory")),
            (Some(_), _) => Err(Error::new(Kind::Invalid, "not a regular file")),
        }
    }

    /// Tells the log of attributes that were changed.
    fn log_attributes(&self, ino: ObjectId, set: &SetAttr, changes: &[AttrChange]) -> Result<()> {
        let node = self.zpl().node(ino)?;
        let attrs = self.zpl().attributes(&node)?;
        // the ACL changes with the mode, and is an extended attribute
        let has_acl = set.mode.is_some() && self.zpl().posix_acl(&node, &attrs, posix_acl::ACCESS)?.is_some();
        drop(attrs);
        if has_acl {
            return self.object_unlogged(node.object(), None);
        }
        let time_of = |wanted: Attr| -> Option<[u64; 2]> {
            let (_, value) = changes.iter().find(|(attr, _)| *attr == wanted)?;
            let words = value.bytes().as_chunks().0;
            Some([u64::from_le_bytes(*words.first()?), u64::from_le_bytes(*words.get(1)?)])
        };
        let logged = zil::LoggedSetAttr {
            object: ino,
            mode: set.mode.map(|mode| (mode & 0o7777).into()),
            uid: set.uid.map(u64::from),
            gid: set.gid.map(u64::from),
            size: set.size,
            atime: time_of(Attr::Atime),
            mtime: time_of(Attr::Mtime),
            ..zil::LoggedSetAttr::default()
        };
        self.log_object(node.object(), &Intent::SetAttr(logged))
    }

    /// Refuses to give a file to an owner that has used up what it may.
    fn check_new_owners(&self, set: &SetAttr, uid: u64, gid: u64) -> Result<()> {
        let Some(room) = self.live().owner_limits() else { return Ok(()) };
        for (owner, new, old) in [(Owner::User, set.uid, uid), (Owner::Group, set.gid, gid)] {
            if let Some(new) = new.map(u64::from).filter(|new| *new != old) {
                room.admit_owner(owner, new, true)?;
            }
        }
        Ok(())
    }

    fn time_of(&self, at: SetTime) -> [u64; 2] {
        match at {
            SetTime::Now => self.now(),
            SetTime::At(secs, nanos) => [secs as u64, nanos.into()],
        }
    }
}
