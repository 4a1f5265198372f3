//! The attributes that file systems know, with the numbers and lengths that a new one gives them.

/// Attributes that file systems use. As numbers these are what a new file system
/// gives them; on disk they differ from one file system to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Attr {
    /// Last access: seconds and nanoseconds.
    Atime,
    /// Last modification of the contents: seconds and nanoseconds.
    Mtime,
    /// Last change of anything: seconds and nanoseconds.
    Ctime,
    /// Birth: seconds and nanoseconds.
    Crtime,
    /// Transaction group of birth.
    Gen,
    /// Type and permissions, as in `st_mode`.
    Mode,
    /// Bytes of contents; entries of a directory plus 2.
    Size,
    /// Object number of the parent directory.
    Parent,
    /// Links.
    Links,
    /// Object number of the attribute directory, or 0.
    Xattr,
    /// Device number.
    Rdev,
    /// Flags: see [`crate::znode`].
    Flags,
    /// Owner.
    Uid,
    /// Group.
    Gid,
    /// Room in a fixed znode.
    Pad,
    /// The ACL of a fixed znode.
    ZnodeAcl,
    /// Number of entries in the ACL.
    DaclCount,
    /// Target of a symbolic link.
    Symlink,
    /// Stamp of a virus scanner.
    Scanstamp,
    /// Entries of the ACL.
    DaclAces,
    /// Extended attributes: a packed name-value list.
    Dxattr,
    /// Project.
    Projid,
}

/// How a value is turned to the other byte order: the number is that on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swap {
    /// 64-bit numbers.
    Words = 0,
    /// 32-bit numbers.
    U32 = 1,
    /// 16-bit numbers.
    U16 = 2,
    /// Bytes.
    Bytes = 3,
    /// Entries of an ACL.
    Acl = 4,
}

impl Swap {
    pub(super) fn from_number(number: u8) -> Option<Swap> {
        [Swap::Words, Swap::U32, Swap::U16, Swap::Bytes, Swap::Acl].get(usize::from(number)).copied()
    }
}

/// An attribute as it is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Its name.
    pub name: &'static str,
    /// Bytes of its value; 0 if each buffer says how many.
    pub len: u16,
    /// How its value is turned.
    pub swap: Swap,
}

impl Definition {
    /// Its value in the registry table, under that number.
    pub fn registration(&self, number: u16) -> u64 {
        u64::from(self.len) << 24 | (self.swap as u64) << 16 | u64::from(number)
    }
}

const fn define(name: &'static str, len: u16, swap: Swap) -> Definition {
    Definition { name, len, swap }
}

/// Each [`Attr`], in their order, which is that of the numbers in a new file system.
pub const ZPL_ATTRS: [Definition; 22] = [
    define("ZPL_ATIME", 16, Swap::Words),
    define("ZPL_MTIME", 16, Swap::Words),
    define("ZPL_CTIME", 16, Swap::Words),
    define("ZPL_CRTIME", 16, Swap::Words),
    define("ZPL_GEN", 8, Swap::Words),
    define("ZPL_MODE", 8, Swap::Words),
    define("ZPL_SIZE", 8, Swap::Words),
    define("ZPL_PARENT", 8, Swap::Words),
    define("ZPL_LINKS", 8, Swap::Words),
    define("ZPL_XATTR", 8, Swap::Words),
    define("ZPL_RDEV", 8, Swap::Words),
    define("ZPL_FLAGS", 8, Swap::Words),
    define("ZPL_UID", 8, Swap::Words),
    define("ZPL_GID", 8, Swap::Words),
    define("ZPL_PAD", 32, Swap::Words),
    define("ZPL_ZNODE_ACL", 88, Swap::Bytes),
    define("ZPL_DACL_COUNT", 8, Swap::Words),
    define("ZPL_SYMLINK", 0, Swap::Bytes),
    define("ZPL_SCANSTAMP", 32, Swap::Bytes),
    define("ZPL_DACL_ACES", 0, Swap::Acl),
    define("ZPL_DXATTR", 0, Swap::Bytes),
    define("ZPL_PROJID", 8, Swap::Words),
];

/// How many of the first have these numbers in every file system, and need not be registered.
pub(super) const FIXED_COUNT: usize = 16;
