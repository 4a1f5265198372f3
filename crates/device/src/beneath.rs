//! Locks on what a device lies in: files below loop devices, however deep.
//!
//! ```text
//!   /dev/mapper/x ─▶ /dev/loop1p2 ─▶ /dev/loop1 ─▶ /img/outer (a file) ── range lock of the bytes that are used
//!                                                   /img/inner ─▶ ...      a file in a file system goes no deeper
//! ```
//!
//! flock(2) is a lock on one name of the storage: those of a file, and of a loop device over it, do not meet.
//! Locks of ranges of the file at the bottom are common to both, and to partitions of one image that do not overlap.
//! Whole disks need none: the kernel lets one opener claim a disk, or what lies on it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// How deep devices may lie in each other.
const DEPTH_MAX: usize = 16;
const SECTOR_BYTES: u64 = 512;
/// What the kernel tells of block devices, by their numbers.
const OF_DISKS: &str = "/sys/dev/block";

/// A part of a file that a device lies in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bottom {
    pub(crate) file: PathBuf,
    /// Bytes; up to `u64::MAX` if it goes to the end, wherever that is.
    pub(crate) bytes: Range<u64>,
}

/// The files that the block device lies in.
pub(crate) fn bottoms(device: &File) -> io::Result<Vec<Bottom>> {
    let metadata = device.metadata()?;
    if !metadata.file_type().is_block_device() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    go_down(&folder_of(metadata.rdev()), 0..u64::MAX, 0, &mut found);
    Ok(found)
}

/// Whether it is a block device that the kernel has no more, though it is open.
pub(crate) fn is_forgotten(device: &File) -> bool {
    let number = device.metadata().ok().filter(|metadata| metadata.file_type().is_block_device());
    let is_missing = |folder: &Path| folder.symlink_metadata().is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
    Path::new(OF_DISKS).is_dir() && number.is_some_and(|metadata| is_missing(&folder_of(metadata.rdev())))
}

/// The folder of `/sys` about a block device.
fn folder_of(number: libc::dev_t) -> PathBuf {
    Path::new(OF_DISKS).join(format!("{}:{}", libc::major(number), libc::minor(number)))
}

/// Follows a folder of `/sys` about a block device; `bytes` are those of it that count. What cannot be followed is no
/// file, or none that this process can see.
fn go_down(folder: &Path, bytes: Range<u64>, depth: usize, found: &mut Vec<Bottom>) {
    let Some(folder) = folder.canonicalize().ok().filter(|_| depth < DEPTH_MAX) else { return };
    let number = |name: &str| text(&folder.join(name))?.parse::<u64>().ok();
    if folder.join("partition").exists() {
        let (Some(parent), Some(start)) = (folder.parent(), number("start")) else { return };
        let start = start.saturating_mul(SECTOR_BYTES);
        let end = number("size").map_or(u64::MAX, |size| start.saturating_add(size.saturating_mul(SECTOR_BYTES)));
        return go_down(parent, shifted(&bytes, start, end), depth + 1, found);
    }
    if let Some(file) = text(&folder.join("loop/backing_file")) {
        let start = number("loop/offset").unwrap_or(0);
        let limit = number("loop/sizelimit").filter(|limit| *limit != 0);
        let bytes = shifted(&bytes, start, limit.map_or(u64::MAX, |limit| start.saturating_add(limit)));
        match std::fs::metadata(&file) {
            Ok(below) if below.file_type().is_block_device() => {
                go_down(&folder_of(below.rdev()), bytes, depth + 1, found);
            }
            Ok(_) => found.push(Bottom { file: file.into(), bytes }),
            Err(_) => {}
        }
        return;
    }
    // of what is mapped how, only the mapper knows: all below counts
    for below in folder.join("slaves").read_dir().into_iter().flatten().flatten() {
        go_down(&below.path(), 0..u64::MAX, depth + 1, found);
    }
}

/// A range of a device that lies in the range from `start` to `end` of another one.
fn shifted(bytes: &Range<u64>, start: u64, end: u64) -> Range<u64> {
    let shift = |at: u64| start.saturating_add(at).min(end);
    shift(bytes.start)..shift(bytes.end)
}

fn text(file: &Path) -> Option<String> {
    std::fs::read_to_string(file).ok().map(|text| text.trim_end_matches('\n').to_owned())
}

/// Takes a lock on a range of a file, until that file is closed: a shared one, or an exclusive one, for which the file
/// must be open for writing. False if another's lock is in the way. A file system without such locks has none.
pub(crate) fn lock_range(file: &impl AsFd, bytes: &Range<u64>, exclusive: bool) -> bool {
    let kind = if exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
    // 0: to the end of the file
    let len = if bytes.end > i64::MAX as u64 { 0 } else { bytes.end - bytes.start };
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: bytes.start.min(i64::MAX as u64) as i64,
        l_len: len as i64,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and the struct is whole.
    let done = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_SETLK, &lock) };
    done == 0 || !matches!(io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN | libc::EACCES))
}

/// Gives back the locks on ranges of a file.
pub(crate) fn unlock(file: &impl AsFd) {
    let lock = libc::flock {
        l_type: libc::F_UNLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: as above. There is nobody to tell that it failed.
    unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_SETLK, &lock) };
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::{AlignedBuf, Kind};
    use testkit::loops::LoopDevice;

    use super::*;
    use crate::{Device, FileDevice, OpenMode, Read, Window, read_batch};

    /// A partition of a loop device over a file, as `/sys` shows it.
    #[test]
    fn down_to_the_file() {
        let sys = std::env::temp_dir().join(format!("cenote-beneath-{}", std::process::id()));
        let put = |name: &str, text: &str| {
            let file = sys.join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        let image = sys.join("image");
        put("image", "");
        put("loop7/loop/backing_file", &format!("{}\n", image.display()));
        put("loop7/loop/offset", "4096\n");
        put("loop7/loop/sizelimit", "0\n");
        put("loop7/loop7p2/partition", "2\n");
        put("loop7/loop7p2/start", "16\n");
        put("loop7/loop7p2/size", "8\n");
        std::fs::create_dir_all(sys.join("dm-0/slaves")).unwrap();
        std::os::unix::fs::symlink("../../loop7/loop7p2", sys.join("dm-0/slaves/loop7p2")).unwrap();
        let below = |name: &str| {
            let mut found = Vec::new();
            go_down(&sys.join(name), 0..u64::MAX, 0, &mut found);
            found
        };
        let bottom = |bytes| vec![Bottom { file: image.clone(), bytes }];
        assert_eq!(below("loop7"), bottom(4096..u64::MAX));
        assert_eq!(below("loop7/loop7p2"), bottom(4096 + 8192..4096 + 8192 + 4096));
        assert_eq!(below("dm-0"), below("loop7/loop7p2"));
        assert_eq!(below("nothing"), []);
        std::fs::remove_dir_all(sys).unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no locks of open files")]
    fn ranges_that_meet_exclude_each_other() {
        let path = std::env::temp_dir().join(format!("cenote-ranges-{}", std::process::id()));
        std::fs::write(&path, [0; 100]).unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let (a, b, c) = (open(), open(), open());
        assert!(lock_range(&a, &(0..50), true) && lock_range(&b, &(50..100), true));
        assert!(!lock_range(&c, &(0..u64::MAX), true) && !lock_range(&c, &(99..100), false));
        unlock(&b);
        assert!(lock_range(&c, &(99..100), false) && lock_range(&b, &(60..u64::MAX), false));
        std::fs::remove_file(path).unwrap();
    }

    /// A disk that was pulled has other errors than that it is not there.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no disks")]
    fn a_disk_that_was_pulled_is_gone() {
        let path = std::env::temp_dir().join(format!("cenote-pulled-{}", std::process::id()));
        std::fs::write(&path, vec![1; 1 << 20]).unwrap();
        let Some(disk) = LoopDevice::over(&path, &[]) else {
            return eprintln!("SKIPPED pulled: there are no loop devices here");
        };
        let device: Arc<dyn Device> = Arc::new(FileDevice::open(disk.name(), OpenMode::ReadWrite).unwrap());
        let part = Window::new(device.clone(), "part", 65536, 65536).unwrap();
        assert!(!device.is_gone() && !part.is_gone());
        disk.resize(4096);
        assert!(device.is_gone() && part.is_gone());
        let (mut some, mut others) = (AlignedBuf::zeroed(4096), AlignedBuf::zeroed(4096));
        let kinds = |device: &dyn Device, buf: &mut [u8]| {
            [device.read_at(16384, buf), device.write_at(16384, buf)].map(|done| done.unwrap_err().kind())
        };
        assert_eq!(kinds(&*device, &mut some), [Kind::Missing; 2]);
        assert_eq!(kinds(&part, &mut some[1..100]), [Kind::Missing; 2]);
        let mut reads = [Read::new(&part, 0, &mut some), Read::new(&*device, 32768, &mut others)];
        read_batch(&mut reads);
        assert_eq!(reads.map(|read| read.result.unwrap_err().kind()), [Kind::Missing; 2]);
        disk.resize(0);
        assert!(!device.is_gone());
        device.read_at(16384, &mut some).unwrap();
        std::fs::remove_file(path).unwrap();
    }
}
