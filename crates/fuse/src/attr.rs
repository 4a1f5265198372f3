//! A `Stat` of the tree as the attributes that FUSE carries.

use zpl::{FileKind, Stat};

use crate::lifetimes::AttrLifetime;

/// What the kernel is told of a name or a node: of a name, `attr.ino` is the node id, else `st_ino`.
pub(crate) struct FuseEntry {
    pub(crate) attr: FuseAttr,
    /// How long the attributes hold. Of a root they do not hold at all, as its node id is not its
    /// `st_ino`, and an entry has room for only one number: the kernel then asks for them.
    pub(crate) attr_ttl: AttrLifetime,
    pub(crate) generation: u64,
}

/// The attributes of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FuseAttr {
    /// `st_ino`; in an entry, the node id.
    pub(crate) ino: u64,
    pub(crate) size: u64,
    /// Sectors of 512 bytes.
    pub(crate) blocks: u64,
    /// Seconds since 1970 and nanoseconds.
    pub(crate) atime: (i64, u32),
    pub(crate) mtime: (i64, u32),
    pub(crate) ctime: (i64, u32),
    /// Birth.
    pub(crate) btime: (i64, u32),
    /// With the bits of its kind.
    pub(crate) mode: u32,
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// As the kernel packs it.
    pub(crate) rdev: u32,
    pub(crate) block_bytes: u32,
}

/// The attributes of `stat`, under inode number `ino`.
pub(crate) fn file_attr(ino: u64, stat: &Stat) -> FuseAttr {
    FuseAttr {
        ino,
        size: stat.size,
        blocks: stat.blocks,
        atime: stat.atime,
        mtime: stat.mtime,
        ctime: stat.ctime,
        btime: stat.btime,
        mode: kind_bits(stat.kind) | stat.mode & 0o7777,
        nlink: u32::try_from(stat.nlink).unwrap_or(u32::MAX),
        uid: stat.uid,
        gid: stat.gid,
        rdev: kernel_dev(stat.rdev),
        block_bytes: u32::try_from(stat.block_size).unwrap_or(0),
    }
}

/// A directory that is in no tree: `.zfs`, or one that is not opened yet. The mode is OpenZFS's.
pub(crate) fn made_up_directory(ino: u64, time_s: u64) -> FuseAttr {
    let time = (i64::try_from(time_s).unwrap_or(0), 0);
    let mode = libc::S_IFDIR | 0o777;
    FuseAttr {
        ino,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        mode,
        nlink: 2,
        block_bytes: 512,
        ..FuseAttr::default()
    }
}

/// `S_IFMT` of a mode.
pub(crate) fn kind_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::Fifo => libc::S_IFIFO,
        FileKind::CharDevice => libc::S_IFCHR,
        FileKind::Directory => libc::S_IFDIR,
        FileKind::BlockDevice => libc::S_IFBLK,
        FileKind::File => libc::S_IFREG,
        FileKind::Symlink => libc::S_IFLNK,
        FileKind::Socket => libc::S_IFSOCK,
    }
}

/// A device number as the C library packs it, packed into 32 bits as the kernel does: 12 bits of
/// major amid 20 of minor.
fn kernel_dev(dev: u64) -> u32 {
    let (major, minor) = (libc::major(dev), libc::minor(dev));
    minor & 0xff | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
}

/// The reverse of [`kernel_dev`].
pub(crate) fn library_dev(dev: u32) -> u64 {
    let (major, minor) = major_minor(dev);
    libc::makedev(major, minor)
}

/// A device number as the kernel packs it, taken apart.
pub(crate) fn major_minor(dev: u32) -> (u32, u32) {
    (dev >> 8 & 0xfff, dev & 0xff | dev >> 12 & 0xf_ff00)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers() {
        for (major, minor) in [(1, 3), (8, 0), (259, 0xf_ffff), (0xfff, 0x100)] {
            let packed = kernel_dev(libc::makedev(major, minor));
            // as the kernel takes it apart
            assert_eq!((packed & 0xf_ff00) >> 8, major);
            assert_eq!(packed & 0xff | (packed >> 12) & 0xf_ff00, minor);
            assert_eq!(library_dev(packed), libc::makedev(major, minor));
        }
    }
}
