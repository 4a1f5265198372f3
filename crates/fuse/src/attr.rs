//! A `Stat` of the tree as the attributes that FUSE carries.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo};
use zpl::{FileKind, Stat};

/// The attributes of `stat`, under inode number `ino`.
pub(crate) fn file_attr(ino: u64, stat: &Stat) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: stat.size,
        blocks: stat.blocks,
        atime: time(stat.atime),
        mtime: time(stat.mtime),
        ctime: time(stat.ctime),
        crtime: time(stat.btime),
        kind: file_type(stat.kind),
        perm: (stat.mode & 0o7777) as u16,
        nlink: u32::try_from(stat.nlink).unwrap_or(u32::MAX),
        uid: stat.uid,
        gid: stat.gid,
        rdev: kernel_dev(stat.rdev),
        blksize: u32::try_from(stat.block_size).unwrap_or(0),
        flags: 0,
    }
}

/// A directory that is in no tree: `.zfs`, or one that is not opened yet. The mode is OpenZFS's.
pub(crate) fn made_up_directory(ino: u64, time_s: u64) -> FileAttr {
    let time = time((i64::try_from(time_s).unwrap_or(0), 0));
    FileAttr {
        ino: INodeNo(ino),
        size: 0,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: FileType::Directory,
        perm: 0o777,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 512,
        flags: 0,
    }
}

pub(crate) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::Directory => FileType::Directory,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::File => FileType::RegularFile,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Socket => FileType::Socket,
    }
}

/// Seconds and nanoseconds since 1970; nanoseconds out of range, which only a damaged file has,
/// count as the last one of their second.
fn time((secs, nanos): (i64, u32)) -> SystemTime {
    let whole = Duration::from_secs(secs.unsigned_abs());
    let at = if secs < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    at.and_then(|at| at.checked_add(Duration::from_nanos(nanos.min(999_999_999).into()))).unwrap_or(UNIX_EPOCH)
}

/// A device number as the C library packs it, packed into 32 bits as the kernel does: 12 bits of
/// major amid 20 of minor.
fn kernel_dev(dev: u64) -> u32 {
    let (major, minor) = (libc::major(dev), libc::minor(dev));
    minor & 0xff | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
}

/// The reverse of [`kernel_dev`].
pub(crate) fn library_dev(dev: u32) -> u64 {
    libc::makedev(dev >> 8 & 0xfff, dev & 0xff | dev >> 12 & 0xf_ff00)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_every_kind() {
        assert_eq!(time((0, 5)), UNIX_EPOCH + Duration::from_nanos(5));
        assert_eq!(time((-1, 250_000_000)), UNIX_EPOCH - Duration::from_millis(750));
        assert_eq!(time((1, u32::MAX)), UNIX_EPOCH + Duration::from_nanos(1_999_999_999));
        // damaged beyond what a clock can say: any answer, but an answer
        time((i64::MIN, 0));
        time((i64::MAX, u32::MAX));
    }

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
