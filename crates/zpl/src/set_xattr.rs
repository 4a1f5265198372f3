//! Setting and removing extended attributes.
//!
//! ```text
//!   xattr=sa   packed into the system attribute DXATTR; what is too large for it, as below
//!   xattr=on   a file in the hidden directory that XATTR leads to
//! ```
//!
//! An attribute is in one of the two places only: what is set in one is removed from the other. The hidden
//! directory and its files are locked with the file that they belong to, and change in its transactions.
//!
//! POSIX ACLs are attributes, too. That of access goes together with the mode: each changes the other.

use base::{Error, Kind, Result, ResultExt};
use dmu::Object;
use dmu::zap::Editor;
use format::ids::ObjectId;
use format::sa::Attr;
use format::xattr;
use format::znode::{FLAG_APPENDONLY, FLAG_IMMUTABLE, FLAG_XATTR};
use zil::Intent;

use crate::attr_tables::{AttrChange, AttrValue, time, word};
use crate::contents::Times;
use crate::create::SET_GROUP_ID;
use crate::create::{Birth, acl_flags, acl_of_mode};
use crate::nodes::{Attributes, FileNode};
use crate::op::Op;
use crate::posix_acl::{self, PosixAcl};
use crate::visible::is_linux;
use crate::xattr::VALUE_SIZE_MAX;
use crate::{FileKind, NewKind, XattrMode, Zpl};

/// Longest name.
const NAME_MAX: usize = 255;
/// Largest value that is packed.
const PACKED_VALUE_MAX: usize = 32 << 10;
/// Most bytes of all that are packed.
const PACKED_MAX: usize = u16::MAX as usize;
/// Mode of a hidden directory, and of the files in it.
const DIRECTORY_MODE: u32 = 0o1777;
const FILE_MODE: u32 = 0o644;

impl Zpl {
    /// Sets an extended attribute. Errors: `Exists`, `NoAttribute` as `mode` says; `TooBig` for more than
    /// 64 KiB, `TooLong` for a name, `Unsupported` for what is not shown; `Invalid` for an ACL that makes no
    /// sense; `Permission` for a default ACL of what is no directory. An access ACL changes the mode.
    pub fn set_xattr(&self, ino: ObjectId, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let done = self.placed(ino, self.put_xattr(ino, name, Some(value), mode));
        self.settled(ino, done)
    }

    /// Removes an extended attribute. Errors: `NoAttribute`.
    pub fn remove_xattr(&self, ino: ObjectId, name: &[u8]) -> Result<()> {
        let done = self.placed(ino, self.put_xattr(ino, name, None, XattrMode::Replace));
        self.settled(ino, done)
    }

    fn put_xattr(&self, ino: ObjectId, name: &[u8], value: Option<&[u8]>, mode: XattrMode) -> Result<()> {
        if name.len() > NAME_MAX {
            return Err(Error::new(Kind::TooLong, "name of an extended attribute is too long"));
        }
        if value.is_some_and(|value| value.len() as u64 > VALUE_SIZE_MAX) {
            return Err(Error::new(Kind::TooBig, "extended attributes have at most 64 KiB"));
        }
        if !is_linux(name) || !self.visible().shows(name) {
            return Err(Error::new(Kind::Unsupported, "no such extended attributes here"));
        }
        let bytes = value.map_or(0, |value| value.len() as u64 + 4096);
        let op = self.begin(bytes, value.is_none())?;
        let _held = op.alone(&[ino]);
        let node = self.node(ino)?;
        self.check_flags(&node, FLAG_IMMUTABLE | FLAG_APPENDONLY)?;
        // attributes of other systems are shown under a longer name than that they have
        let mut old = None;
        {
            let attrs = self.attributes(&node)?;
            for stored in self.visible().stored(name) {
                if old.is_none() && self.has_xattr(&node, &attrs, stored)? {
                    old = Some(stored);
                }
            }
        }
        match (mode, old) {
            (XattrMode::Create, Some(_)) => return Err(Error::new(Kind::Exists, "extended attribute exists")),
            (XattrMode::Replace, None) => return Err(Error::new(Kind::NoAttribute, "no such extended attribute")),
            _ => {}
        }
        let kept = match name {
            posix_acl::ACCESS | posix_acl::DEFAULT => {
                op.set_acl(&node, name, value, mode)?;
                None
            }
            _ => {
                let name = old.unwrap_or(name);
                let lies_with_file = op.store_xattr(node.object(), name, value)?;
                // a record without a value removes it
                let can_be_told = lies_with_file && value.is_none_or(|value| !value.is_empty());
                can_be_told.then_some(Intent::SetXattr { object: ino, name, value })
            }
        };
        // OpenZFS replays those that lie with the file since 2.2, and others not with their file
        op.object_unlogged(node.object(), kept.as_ref())
    }

    fn has_xattr(&self, node: &FileNode, attrs: &Attributes<'_>, name: &[u8]) -> Result<bool> {
        if unpacked(node, attrs)?.iter().any(|(stored, _)| stored == name) {
            return Ok(true);
        }
        let Some(dir) = self.xattr_node(attrs)? else { return Ok(false) };
        Ok(self.entry(dir, name)?.is_some())
    }

    /// The ACL that new files in a directory get, if ACLs are shown.
    pub(crate) fn default_acl(&self, node: &FileNode, attrs: &Attributes<'_>) -> Result<Option<PosixAcl>> {
        self.posix_acl(node, attrs, posix_acl::DEFAULT)
    }

    pub(crate) fn posix_acl(&self, node: &FileNode, attrs: &Attributes<'_>, name: &[u8]) -> Result<Option<PosixAcl>> {
        if !self.visible().shows(name) {
            return Ok(None);
        }
        match self.xattr_stored(node, attrs, name)? {
            Some(bytes) => {
                PosixAcl::parse(&bytes).map_err(|e| Error::corrupt("stored access control list").with_source(e))
            }
            None => Ok(None),
        }
    }
}

/// The packed attributes of a file.
pub(crate) fn unpacked(node: &FileNode, attrs: &Attributes<'_>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let Some(packed) = attrs.bytes(Attr::Dxattr)? else { return Ok(Vec::new()) };
    let pairs = xattr::unpack(&packed).at_block(node.object().bookmark(0, 0))?;
    Ok(pairs.into_iter().map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
}

impl Op<'_> {
    /// Sets or removes an ACL, and the mode with it.
    fn set_acl(&self, node: &FileNode, name: &[u8], value: Option<&[u8]>, how: XattrMode) -> Result<()> {
        let acl = value.map(PosixAcl::parse).transpose()?.flatten();
        let attrs = self.zpl().attributes(node)?;
        let mode = attrs.u64(Attr::Mode)? as u32;
        let flags = attrs.u64(Attr::Flags)?;
        drop(attrs);
        if name == posix_acl::DEFAULT {
            if FileKind::of_mode(mode.into()) != FileKind::Directory && acl.is_some() {
                return Err(Error::new(Kind::Permission, "only directories have default ACLs"));
            }
            return self.store_xattr(node.object(), name, acl.map(|acl| acl.bytes()).as_deref()).map(drop);
        }
        let stored = acl.as_ref().filter(|acl| !acl.is_mode()).map(PosixAcl::bytes);
        self.store_xattr(node.object(), name, stored.as_deref())?;
        let replaced = if how == XattrMode::AnyDropSetGid { SET_GROUP_ID | 0o777 } else { 0o777 };
        match acl.map(|acl| mode & !replaced | acl.mode()) {
            Some(new) if new != mode => self.change(node.object(), &mode_changes(new, flags)),
            _ => Ok(()),
        }
    }

    /// Gives a new file the ACLs that it inherits.
    pub(crate) fn inherit_acls(
        &self,
        object: &Object,
        access: Option<&PosixAcl>,
        default: Option<&PosixAcl>,
    ) -> Result<()> {
        for (name, acl) in [(posix_acl::ACCESS, access), (posix_acl::DEFAULT, default)] {
            if let Some(acl) = acl {
                self.store_xattr(object, name, Some(&acl.bytes()))?;
            }
        }
        Ok(())
    }

    /// Stores or removes an attribute of a file that is locked. Whether it lies with the file, before and after.
    pub(crate) fn store_xattr(&self, object: &Object, name: &[u8], value: Option<&[u8]>) -> Result<bool> {
        let node = self.zpl().node_of(object.fresh()?)?;
        let attrs = self.zpl().attributes(&node)?;
        let mut pairs = unpacked(&node, &attrs)?;
        let dir = self.zpl().xattr_node(&attrs)?;
        drop(attrs);
        let packed_at = pairs.iter().position(|(stored, _)| stored == name);
        if let Some(value) = value.filter(|value| self.packs_xattrs() && value.len() <= PACKED_VALUE_MAX) {
            match packed_at {
                Some(at) => pairs[at].1 = value.to_vec(),
                None => pairs.push((name.to_vec(), value.to_vec())),
            }
            if self.store_packed(object, &pairs)? {
                return match dir {
                    Some(dir) => self.remove_xattr_file(&dir, name).map(|_| false),
                    None => Ok(true),
                };
            }
        }
        pairs.retain(|(stored, _)| stored != name);
        let is_all_there = value.is_none() && dir.is_none();
        match (value, dir) {
            (Some(value), Some(dir)) => self.write_xattr_file(&dir, name, value)?,
            (Some(value), None) => self.write_xattr_file(&self.make_xattr_dir(&node)?, name, value)?,
            (None, Some(dir)) => drop(self.remove_xattr_file(&dir, name)?),
            (None, None) => {}
        }
        match packed_at {
            Some(_) => self.store_packed(object, &pairs)?,
            None => self.change(object, &[time(Attr::Ctime, self.now())]).map(|()| false)?,
        };
        Ok(is_all_there && packed_at.is_some())
    }

    /// False if these are too many.
    pub(crate) fn store_packed(&self, object: &Object, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<bool> {
        let packed = xattr::pack(pairs.iter().map(|(name, value)| (&name[..], &value[..])));
        if packed.len() > PACKED_MAX {
            return Ok(false);
        }
        let stored = self.change(object, &[(Attr::Dxattr, AttrValue::Bytes(packed)), time(Attr::Ctime, self.now())]);
        match stored {
            Err(error) if error.kind() == Kind::TooBig => Ok(false),
            stored => stored.map(|()| true),
        }
    }

    /// Whether small attributes lie with the file.
    fn packs_xattrs(&self) -> bool {
        self.live().options().xattr_sa && !self.zpl().has_fixed_znodes()
    }

    /// Makes the hidden directory of a file.
    fn make_xattr_dir(&self, node: &FileNode) -> Result<FileNode> {
        let birth = self.xattr_birth(node, FileKind::Directory, DIRECTORY_MODE)?;
        let dir = self.born(&birth, NewKind::Directory)?;
        self.change(node.object(), &[word(Attr::Xattr, dir.id().get())])?;
        self.zpl().node_of(dir)
    }

    fn xattr_birth(&self, of: &FileNode, kind: FileKind, mode: u32) -> Result<Birth> {
        let attrs = self.zpl().attributes(of)?;
        let is_directory = kind == FileKind::Directory;
        Ok(Birth {
            place: None,
            kind,
            mode,
            uid: attrs.u64(Attr::Uid)?,
            gid: attrs.u64(Attr::Gid)?,
            parent: of.object().id(),
            links: if is_directory { 2 } else { 1 },
            size: if is_directory { 2 } else { 0 },
            flags: FLAG_XATTR,
            rdev: 0,
            projid: attrs.opt_u64(Attr::Projid)?,
            generation: self.tx().txg().get(),
            now: self.now(),
        })
    }

    fn write_xattr_file(&self, dir: &FileNode, name: &[u8], value: &[u8]) -> Result<()> {
        let object = match self.zpl().find_entry(dir.object(), name)? {
            Some(found) => self.zpl().objset().object(found.ino)?,
            None => {
                let object = self.born(&self.xattr_birth(dir, FileKind::File, FILE_MODE)?, NewKind::File)?;
                if let Err(error) = self.add_name(dir.object(), name, object.id(), FileKind::File) {
                    self.zpl().objset().free_object(self.tx(), object.id())?;
                    return Err(error);
                }
                self.directory_changed(dir.object(), 1, 0)?;
                object
            }
        };
        self.set_size(&object, 0, &[])?;
        self.write_bytes(&object, 0, value.into(), Times::Moved).map(drop)
    }

    /// Whether there was one.
    fn remove_xattr_file(&self, dir: &FileNode, name: &[u8]) -> Result<bool> {
        let Some(found) = self.zpl().find_entry(dir.object(), name)? else { return Ok(false) };
        Editor::new(&dir.object().changing(self.tx())).remove(&found.name)?;
        self.zpl().objset().free_object(self.tx(), found.ino)?;
        self.directory_changed(dir.object(), -1, 0)?;
        Ok(true)
    }
}

/// What changes with a file's mode, whose type bits stay, beside the POSIX ACL.
pub(crate) fn mode_changes(mode: u32, flags: u64) -> Vec<AttrChange> {
    let mut changes = vec![word(Attr::Mode, mode.into()), word(Attr::Flags, acl_flags(flags, mode))];
    changes.extend(acl_of_mode(mode));
    changes
}
