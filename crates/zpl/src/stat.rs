//! What `stat` tells of a file, and the target of a symbolic link.

use base::{Error, Kind, Result};
use format::acl::Acl;
use format::ids::ObjectId;
use format::sa::Attr;
use format::znode::{Znode, device_numbers, split_fuid};

use crate::kind::FileKind;
use crate::nodes::FileNode;
use crate::zpl::Zpl;

/// Block size that is reported for a file that has no blocks yet.
const BLOCK_SIZE_DEFAULT: u64 = 128 << 10;
/// Longest target of a symbolic link that is read; the longest that systems can make is 4095 bytes.
const LINK_SIZE_MAX: u64 = 64 << 10;
/// Largest ACL that is read: 1024 entries of 48 bytes is the most that systems make.
const ACL_SIZE_MAX: u64 = 1 << 20;

/// Attributes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Object number.
    pub ino: ObjectId,
    /// Transaction group of birth: tells the file from others that had the number before.
    pub generation: u64,
    /// Kind of file.
    pub kind: FileKind,
    /// Permission bits, with set-id and sticky bits.
    pub mode: u32,
    /// Links; of a directory, its subdirectories and 2.
    pub nlink: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Project, 0 if it has none.
    pub projid: u64,
    /// Bytes; of a directory, its entries and 2.
    pub size: u64,
    /// Units of 512 bytes on disk, the dnode included.
    pub blocks: u64,
    /// Bytes of a record.
    pub block_size: u64,
    /// Device number as Linux's C libraries pack it; 0 for what is no device.
    pub rdev: u64,
    /// Last access: seconds since 1970, nanoseconds.
    pub atime: (i64, u32),
    /// Last modification of the contents.
    pub mtime: (i64, u32),
    /// Last change of anything.
    pub ctime: (i64, u32),
    /// Birth.
    pub btime: (i64, u32),
    /// Object number of the directory it was created in or moved to last.
    pub parent: ObjectId,
    /// Flags: the `FLAG_` constants of [`format::znode`].
    pub flags: u64,
}

impl Stat {
    /// Attributes of what no pool keeps as a file: with one link, or two of a folder, and without times. `owner`: user and
    /// group.
    pub fn made(ino: ObjectId, kind: FileKind, mode: u32, owner: (u32, u32), size: u64) -> Stat {
        Stat {
            ino,
            generation: 1,
            kind,
            mode,
            nlink: if kind == FileKind::Directory { 2 } else { 1 },
            uid: owner.0,
            gid: owner.1,
            projid: 0,
            size,
            blocks: size / 512,
            block_size: 4096,
            rdev: 0,
            atime: (0, 0),
            mtime: (0, 0),
            ctime: (0, 0),
            btime: (0, 0),
            parent: ObjectId::NONE,
            flags: 0,
        }
    }
}

impl Zpl {
    /// The attributes of a file. Errors: `NotFound` if there is no such object, those of reading.
    pub fn stat(&self, ino: ObjectId) -> Result<Stat> {
        self.placed(ino, self.read_stat(ino))
    }

    pub(crate) fn read_stat(&self, ino: ObjectId) -> Result<Stat> {
        let node = self.node(ino)?;
        if node.object().dnode().spill.is_none() {
            // the dnode, and so all of it, is as it was at one moment
            return self.stat_of(&node);
        }
        let _held = self.shared(ino);
        self.stat_of(&self.node(ino)?)
    }

    /// The same of a node, as it is now.
    pub(crate) fn stat_of(&self, node: &FileNode) -> Result<Stat> {
        let ino = node.object().id();
        let attrs = self.attributes(node)?;
        let dnode = node.object().dnode();
        let (mode, flags) = (attrs.u64(Attr::Mode)?, attrs.u64(Attr::Flags)?);
        let kind = FileKind::of_mode(mode);
        let rdev = match kind {
            FileKind::CharDevice | FileKind::BlockDevice => attrs.opt_u64(Attr::Rdev)?.map_or(0, linux_device),
            _ => 0,
        };
        Ok(Stat {
            ino,
            generation: attrs.u64(Attr::Gen)?,
            kind,
            mode: mode as u32 & 0o7777,
            nlink: attrs.u64(Attr::Links)?,
            uid: split_fuid(attrs.u64(Attr::Uid)?).0,
            gid: split_fuid(attrs.u64(Attr::Gid)?).0,
            projid: attrs.project()?,
            size: attrs.u64(Attr::Size)?,
            blocks: (dnode.used_bytes.saturating_add(256) / 512).saturating_add(dnode.slots as u64),
            block_size: if dnode.block_size == 0 { BLOCK_SIZE_DEFAULT } else { dnode.block_size },
            rdev,
            atime: attrs.time(Attr::Atime)?,
            mtime: attrs.time(Attr::Mtime)?,
            ctime: attrs.time(Attr::Ctime)?,
            btime: attrs.time(Attr::Crtime)?,
            parent: attrs.parent()?,
            flags,
        })
    }

    /// The target of a symbolic link. Errors: `Invalid` if it is none, those of reading.
    pub fn readlink(&self, ino: ObjectId) -> Result<Vec<u8>> {
        let _held = self.shared(ino);
        self.placed(ino, self.node(ino).and_then(|node| self.target_of(&node)))
    }

    pub(crate) fn target_of(&self, node: &FileNode) -> Result<Vec<u8>> {
        let attrs = self.attributes(node)?;
        if FileKind::of_mode(attrs.u64(Attr::Mode)?) != FileKind::Symlink {
            return Err(Error::new(Kind::Invalid, "not a symbolic link"));
        }
        if attrs.fixed().is_none() {
            let target = attrs.bytes(Attr::Symlink)?.map(|target| target.into_owned());
            let lacks = || Error::corrupt("symbolic link without a target").at_block(node.object().bookmark(0, 0));
            return target.ok_or_else(lacks);
        }
        let size = attrs.u64(Attr::Size)?;
        match Znode::embedded_link(node.object().bonus(), size) {
            Some(target) => Ok(target.to_vec()),
            None => node.object().read_whole(size, LINK_SIZE_MAX),
        }
    }

    /// The NFSv4 ACL of a file as it is stored; `None` if there is none.
    pub fn acl(&self, ino: ObjectId) -> Result<Option<Acl>> {
        let _held = self.shared(ino);
        self.placed(ino, self.node(ino).and_then(|node| self.acl_of(&node)))
    }

    pub(crate) fn acl_of(&self, node: &FileNode) -> Result<Option<Acl>> {
        let attrs = self.attributes(node)?;
        let Some(znode) = attrs.fixed() else {
            let aces = attrs.bytes(Attr::DaclAces)?;
            return aces.map(|aces| Acl::parse(1, &aces)).transpose();
        };
        let acl = &znode.acl;
        let external = match acl.object {
            ObjectId::NONE => None,
            object => Some(self.objset().object(object)?.read_whole(acl.size, ACL_SIZE_MAX)?),
        };
        let embedded = usize::try_from(acl.size).ok().and_then(|size| acl.embedded.get(..size));
        let aces = external.as_deref().or(embedded).ok_or_else(|| {
            let what = format!("ACL of {} bytes inside a znode", acl.size);
            Error::corrupt(what).at_block(node.object().bookmark(0, 0))
        })?;
        Acl::parse(acl.version, aces).map(Some)
    }
}

fn linux_device(rdev: u64) -> u64 {
    let (major, minor) = device_numbers(rdev);
    libc::makedev(major, minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_linux_and_of_the_others() {
        assert_eq!(linux_device(4095 << 20 | 0xf_ffff), libc::makedev(4095, 0xf_ffff));
        assert_eq!(linux_device(13 << 32 | 2), libc::makedev(13, 2));
    }
}
