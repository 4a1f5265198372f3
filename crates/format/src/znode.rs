//! What file systems keep of a file: the flags, directory entries, device numbers, and the fixed znode
//! that ZPL versions 1 to 4 have in the bonus buffer instead of system attributes.
//!
//! ```text
//!    0  atime | mtime | ctime | birth time: seconds u64 and nanoseconds u64 each
//!   64  generation | mode | size | parent | links | attribute directory | device | flags | owner | group
//!  144  0 ...
//!  176  ACL: external object u64 | size u32 | version u16 | count u16 | 72 bytes of entries
//!  264  target of a short symbolic link, or 32 bytes of a virus scanner
//! ```
//!
//! Source: the published ZFS on-disk specification, chapter 6, and the behaviour of OpenZFS.

use base::{Endian, Error, Reader, Result};

use crate::ids::ObjectId;
use crate::sa::Attr;

/// Where the numbers of a znode begin, and its ACL.
const WORDS_AT: usize = 64;
pub(crate) const ACL_AT: usize = 176;

/// The file is an attribute, or a directory of attributes, of another one.
pub const FLAG_XATTR: u64 = 0x1;
/// The ACL has no more to say than the mode.
pub const FLAG_ACL_TRIVIAL: u64 = 0x4;
/// A virus scanner's stamp is in the bonus buffer.
pub const FLAG_BONUS_SCANSTAMP: u64 = 0x80;
/// Read-only, by the DOS attribute.
pub const FLAG_READONLY: u64 = 0x1_0000_0000;
/// Hidden, by the DOS attribute.
pub const FLAG_HIDDEN: u64 = 0x2_0000_0000;
/// System, by the DOS attribute.
pub const FLAG_SYSTEM: u64 = 0x4_0000_0000;
/// Archive, by the DOS attribute.
pub const FLAG_ARCHIVE: u64 = 0x8_0000_0000;
/// Cannot be changed.
pub const FLAG_IMMUTABLE: u64 = 0x10_0000_0000;
/// Cannot be unlinked.
pub const FLAG_NOUNLINK: u64 = 0x20_0000_0000;
/// Can only be appended to.
pub const FLAG_APPENDONLY: u64 = 0x40_0000_0000;
/// Is not to be dumped.
pub const FLAG_NODUMP: u64 = 0x80_0000_0000;
/// Changed since a virus scanner looked at it.
pub const FLAG_AV_MODIFIED: u64 = 0x400_0000_0000;
/// New files of this directory get its project.
pub const FLAG_PROJINHERIT: u64 = 0x4000_0000_0000;
/// Has a project.
pub const FLAG_PROJID: u64 = 0x8000_0000_0000;

/// The fixed znode.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // as the attributes of the same names: see `sa::Attr`
pub struct Znode {
    pub atime: [u64; 2],
    pub mtime: [u64; 2],
    pub ctime: [u64; 2],
    pub crtime: [u64; 2],
    pub generation: u64,
    pub mode: u64,
    pub size: u64,
    pub parent: ObjectId,
    pub links: u64,
    pub xattr: ObjectId,
    pub rdev: u64,
    pub flags: u64,
    pub uid: u64,
    pub gid: u64,
    pub acl: ZnodeAcl,
}

/// The ACL inside a fixed znode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZnodeAcl {
    /// Object that holds the entries, or 0 if they are in `embedded`.
    pub object: ObjectId,
    /// 0: entries of 12 bytes; 1: entries of 8, 16 or 48 bytes.
    pub version: u16,
    /// Bytes of all entries.
    pub size: u64,
    /// Room for entries; those that are there come first.
    pub embedded: [u8; ZnodeAcl::EMBEDDED_SIZE],
}

impl ZnodeAcl {
    /// Bytes of entries that fit in the znode.
    pub const EMBEDDED_SIZE: usize = 72;
}

impl Znode {
    /// Bytes of the znode; what follows in the bonus buffer is the target of a short symbolic link.
    pub const SIZE: usize = 264;

    /// Reads the znode at the start of a little-endian bonus buffer.
    pub fn parse(bonus: &[u8]) -> Result<Znode> {
        let Some(bytes) = bonus.get(..Znode::SIZE) else {
            return Err(Error::corrupt(format!("znode of {} bytes", bonus.len())));
        };
        let mut r = Reader::new(bytes, Endian::Little);
        let mut time = || Ok::<_, Error>([r.u64()?, r.u64()?]);
        let (atime, mtime, ctime, crtime) = (time()?, time()?, time()?, time()?);
        let [generation, mode, size, parent, links] = [r.u64()?, r.u64()?, r.u64()?, r.u64()?, r.u64()?];
        let [xattr, rdev, flags, uid, gid] = [r.u64()?, r.u64()?, r.u64()?, r.u64()?, r.u64()?];
        r.take(32)?;
        let (object, size_or_count, version) = (r.u64()?, r.u32()?, r.u16()?);
        r.take(2)?;
        // Version 0 has the number of entries where later ones have their bytes.
        let acl_size = u64::from(size_or_count) * if version == 0 { 12 } else { 1 };
        let embedded = *r.rest().first_chunk().ok_or_else(|| Error::corrupt("znode ends inside its ACL"))?;
        let acl = ZnodeAcl { object: ObjectId::new(object), version, size: acl_size, embedded };
        Ok(Znode {
            atime,
            mtime,
            ctime,
            crtime,
            generation,
            mode,
            size,
            parent: ObjectId::new(parent),
            links,
            xattr: ObjectId::new(xattr),
            rdev,
            flags,
            uid,
            gid,
            acl,
        })
    }

    /// Where an attribute lies in the znode: its first byte, and how many there are. `None` for what it has no place for.
    pub fn place_of(attr: Attr) -> Option<(usize, usize)> {
        let times = [Attr::Atime, Attr::Mtime, Attr::Ctime, Attr::Crtime];
        if let Some(at) = times.iter().position(|time| *time == attr) {
            return Some((at * 16, 16));
        }
        let words = [
            Attr::Gen,
            Attr::Mode,
            Attr::Size,
            Attr::Parent,
            Attr::Links,
            Attr::Xattr,
            Attr::Rdev,
            Attr::Flags,
            Attr::Uid,
            Attr::Gid,
        ];
        words.iter().position(|word| *word == attr).map(|at| (WORDS_AT + at * 8, 8))
    }

    /// The target of a short symbolic link of that many bytes; `None` if it is too long to be here.
    pub fn embedded_link(bonus: &[u8], size: u64) -> Option<&[u8]> {
        bonus.get(Znode::SIZE..)?.get(..usize::try_from(size).ok()?)
    }
}

/// A value in a directory's table.
///
/// ```text
///  64     60          48                 0
/// +------+-----------+------------------+
/// | type |  unused   |  object number   |
/// +------+-----------+------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirentValue {
    /// Object number.
    pub object: ObjectId,
    /// The four bits of `st_mode` that tell the type; 0 in directories written by the oldest versions.
    pub type_bits: u8,
}

impl From<u64> for DirentValue {
    fn from(value: u64) -> DirentValue {
        DirentValue { object: ObjectId::new(value & ((1 << 48) - 1)), type_bits: (value >> 60) as u8 }
    }
}

impl From<DirentValue> for u64 {
    fn from(value: DirentValue) -> u64 {
        u64::from(value.type_bits) << 60 | value.object.get() & ((1 << 48) - 1)
    }
}

/// The form in which Linux stores a device: 12 bits of major, 20 bits of minor number. Numbers that are
/// larger get the form of the others.
pub fn device(major: u32, minor: u32) -> u64 {
    match (major, minor) {
        (..=0xfff, ..=0xf_ffff) => u64::from(major) << 20 | u64::from(minor),
        _ => u64::from(major) << 32 | u64::from(minor),
    }
}

/// Major and minor number of a device.
///
/// Linux stores its own 32 bits (12 of major, 20 of minor), the others 32 bits of each.
pub fn device_numbers(rdev: u64) -> (u32, u32) {
    match (rdev >> 32) as u32 {
        0 => ((rdev >> 20) as u32, rdev as u32 & 0xf_ffff),
        major => (major, rdev as u32),
    }
}

/// An owner or group: the id, and behind it the number of its domain (0 for plain ids of Unix).
pub fn split_fuid(fuid: u64) -> (u32, u32) {
    (fuid as u32, (fuid >> 32) as u32)
}

/// Reads a bonus buffer to its end; for tests with hostile bytes.
pub fn fuzz(bonus: &[u8]) {
    if let Ok(znode) = Znode::parse(bonus) {
        let _ = Znode::embedded_link(bonus, znode.size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field() {
        let mut bytes: Vec<u8> = (0..33u64).flat_map(|word| (word + 1).to_le_bytes()).collect();
        bytes.extend(b"target");
        bytes[184..192].copy_from_slice(&[3, 0, 0, 0, 1, 0, 9, 0]);
        let znode = Znode::parse(&bytes).unwrap();
        assert_eq!((znode.atime, znode.crtime), ([1, 2], [7, 8]));
        assert_eq!((znode.generation, znode.size, znode.xattr.get(), znode.gid), (9, 11, 14, 18));
        assert_eq!((znode.acl.object.get(), znode.acl.version, znode.acl.size), (23, 1, 3));
        assert_eq!(znode.acl.embedded[0], 25);
        assert_eq!(Znode::embedded_link(&bytes, 6), Some(&b"target"[..]));
        assert_eq!(Znode::embedded_link(&bytes, 7), None);
        assert_eq!(Znode::embedded_link(&bytes, u64::MAX), None);
        bytes[188] = 0;
        assert_eq!(Znode::parse(&bytes).unwrap().acl.size, 36);
        assert!(Znode::parse(&bytes[..263]).is_err());
    }

    #[test]
    fn packed_numbers() {
        assert_eq!(DirentValue::from(0x4000_0000_0000_0022), DirentValue { object: ObjectId::new(0x22), type_bits: 4 });
        assert_eq!(DirentValue::from(u64::MAX).object.get(), 0xffff_ffff_ffff);
        for value in [0x4000_0000_0000_0022, 0xf000_ffff_ffff_ffff, 0] {
            assert_eq!(u64::from(DirentValue::from(value)), value);
        }
        assert_eq!(device(8, 1), 8 << 20 | 1);
        for (major, minor) in [(0, 0), (0, 7), (8, 1), (0xfff, 0xf_ffff), (8, 0x10_0000), (0x1000, 0)] {
            assert_eq!(device_numbers(device(major, minor)), (major, minor));
        }
        assert_eq!(device_numbers(8 << 20 | 1), (8, 1));
        assert_eq!(device_numbers(8 << 32 | 0x10_0000), (8, 0x10_0000));
        assert_eq!(split_fuid(7 << 32 | 501), (501, 7));
    }
}
