//! What is written to: files in a folder, or parts of a device.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use base::{AlignedBuf, Error, Kind, Result};
use device::{Device, FileDevice, OpenMode};
use protocol::words::nicenum::nicebytes;

use crate::zpool::create;

/// Bytes of a thread's file, from the end of which it goes on at the beginning.
const FILE_BYTES: u64 = 64 << 20;
/// Bytes of a device that are written to.
const DEVICE_BYTES: u64 = 512 << 20;
/// The binary logarithms of sizes: the least, and the first that is too large.
const FILE_SIZES: [u32; 2] = [0, 21];
const DEVICE_SIZES: [u32; 2] = [9, 24];

/// See the top of the file.
pub enum WriteTarget {
    Folder { path: String },
    Device { device: FileDevice, is_file: bool },
}

/// Where one thread writes.
pub enum ThreadTarget<'a> {
    File { file: File, path: PathBuf },
    Part { device: &'a FileDevice, start: u64, len: u64 },
}

impl WriteTarget {
    /// Finds out what it is. A device is not touched yet, but its use refused if somebody needs it, or would lose
    /// what is in it without having said `force`.
    pub fn open(path: &Path, as_device: bool, force: bool) -> std::result::Result<WriteTarget, String> {
        let failed = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
        let path_of = path.canonicalize().map_err(|e| failed(&e))?;
        let text = path_of.to_str().ok_or_else(|| failed(&"the path is not UTF-8"))?.to_owned();
        let metadata = std::fs::metadata(&path_of).map_err(|e| failed(&e))?;
        if metadata.is_dir() {
            return Ok(WriteTarget::Folder { path: text });
        }
        if metadata.is_file() && !as_device {
            return Err(failed(&"neither a folder nor a disk; with --as-device a file is measured as one"));
        }
        create::check_device(&text, force)?;
        if !force {
            return Err(failed(&"what is in it will be lost; use -f to do that"));
        }
        let device = FileDevice::open(&text, OpenMode::ReadWrite).map_err(|e| failed(&e))?;
        device.lock(true).map_err(|e| failed(&e))?;
        Ok(WriteTarget::Device { device, is_file: metadata.is_file() })
    }

    pub fn path(&self) -> &str {
        match self {
            WriteTarget::Folder { path } => path,
            WriteTarget::Device { device, .. } => device.path(),
        }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            WriteTarget::Folder { .. } => "folder",
            WriteTarget::Device { .. } => "device",
        }
    }

    /// What is to be measured: powers of two that the device takes without help of the page cache.
    pub fn sizes(&self) -> Vec<u64> {
        let ([from, to], unit) = match self {
            WriteTarget::Folder { .. } => (FILE_SIZES, 1),
            WriteTarget::Device { device, .. } => {
                (DEVICE_SIZES, device.raw().and_then(|raw| raw.direct).map_or(1, |direct| direct.offset_align))
            }
        };
        (from..to).map(|power| 1 << power).filter(|size| *size >= unit).collect()
    }

    /// Errors, for the user: the folder has no room for the files of so many threads.
    pub fn check_room(&self, threads: u32) -> std::result::Result<(), String> {
        let WriteTarget::Folder { path } = self else { return Ok(()) };
        let statistics = rustix::fs::statvfs(path.as_str()).map_err(|e| format!("{path}: {e}"))?;
        let room = statistics.f_bavail.saturating_mul(statistics.f_frsize);
        let needed = u64::from(threads) * FILE_BYTES;
        if needed <= room {
            return Ok(());
        }
        let [needed, each, room] = [needed, FILE_BYTES, room].map(nicebytes);
        let many = if threads == 1 { "thread writes" } else { "threads write" };
        Err(format!("{path}: {threads} {many} {each} each: {needed} are needed, and {room} are free"))
    }

    /// Sees to it that a file has all its blocks, as a disk has.
    pub fn prepare(&self) -> Result<()> {
        let WriteTarget::Device { device, is_file: true } = self else { return Ok(()) };
        let bytes = AlignedBuf::zeroed(1 << 20);
        for at in (0..device.size().min(DEVICE_BYTES)).step_by(bytes.len()) {
            let len = (device.size() - at).min(bytes.len() as u64) as usize;
            device.write_at(at, &bytes[..len])?;
        }
        device.flush()
    }

    /// The place of one of so many threads that write `size` bytes at a time.
    pub fn lane(&self, thread: u32, threads: u32, size: u64) -> Result<ThreadTarget<'_>> {
        match self {
            WriteTarget::Folder { path } => {
                let name = format!("cenote-bench-sync-{}-{thread}", std::process::id());
                let path = Path::new(path).join(name);
                let file = File::options().write(true).create_new(true).open(&path);
                Ok(ThreadTarget::File { file: file?, path })
            }
            WriteTarget::Device { device, .. } => {
                let len = device.size().min(DEVICE_BYTES) / u64::from(threads);
                let len = len - len % size;
                if len == 0 {
                    let what = format!("too small for {threads} threads that write {size} bytes each");
                    return Err(Error::new(Kind::Invalid, what));
                }
                Ok(ThreadTarget::Part { device, start: u64::from(thread) * len, len })
            }
        }
    }
}

impl ThreadTarget<'_> {
    /// Makes write number `n` last.
    pub fn put(&self, n: u64, bytes: &[u8]) -> Result<()> {
        let at = |len: u64| n * bytes.len() as u64 % len;
        match self {
            ThreadTarget::File { file, .. } => {
                file.write_all_at(bytes, at(FILE_BYTES))?;
                Ok(file.sync_all()?)
            }
            ThreadTarget::Part { device, start, len } => {
                device.write_at(start + at(*len), bytes)?;
                device.flush()
            }
        }
    }
}

impl Drop for ThreadTarget<'_> {
    fn drop(&mut self) {
        if let ThreadTarget::File { file, path } = self {
            remove_own(file, path);
        }
    }
}

/// Removes a file that this program made, if it is still that.
fn remove_own(file: &File, path: &Path) {
    let is_same = std::fs::metadata(path).ok().zip(file.metadata().ok());
    if is_same.is_some_and(|(one, other)| (one.dev(), one.ino()) == (other.dev(), other.ino())) {
        // a file that cannot be removed costs only its room
        let _ = std::fs::remove_file(path);
    }
}

/// A file that is written to, and one in which nothing changes, which is made to last.
pub struct RequestPair {
    written: File,
    unchanged: File,
    paths: [PathBuf; 2],
}

impl RequestPair {
    /// Makes both in a folder. Errors: of the folder.
    pub fn new(folder: &Path, thread: u32) -> Result<RequestPair> {
        let path = |what: &str| folder.join(format!("cenote-bench-{what}-{}-{thread}", std::process::id()));
        let paths = [path("written"), path("unchanged")];
        let unchanged = File::options().write(true).create_new(true).open(&paths[1])?;
        let written = File::options().write(true).create_new(true).open(&paths[0]);
        let written = written.inspect_err(|_| remove_own(&unchanged, &paths[1]))?;
        Ok(RequestPair { written, unchanged, paths })
    }

    /// Writes, and has the kernel send it on: whenever a descriptor is closed, FUSE sends what the page cache has.
    pub fn write(&self, n: u64, bytes: &[u8]) -> Result<()> {
        self.written.write_all_at(bytes, n * bytes.len() as u64 % FILE_BYTES)?;
        drop(self.written.try_clone()?);
        Ok(())
    }

    /// An fsync(2) that has nothing to wait for.
    pub fn sync(&self) -> Result<()> {
        Ok(self.unchanged.sync_all()?)
    }
}

impl Drop for RequestPair {
    fn drop(&mut self) {
        remove_own(&self.written, &self.paths[0]);
        remove_own(&self.unchanged, &self.paths[1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path, as_device: bool, force: bool) -> std::result::Result<WriteTarget, String> {
        WriteTarget::open(path, as_device, force)
    }

    #[test]
    fn what_is_in_a_device_is_not_lost_by_mistake() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let why = |outcome: std::result::Result<WriteTarget, String>| outcome.err().unwrap();
        assert!(why(open(&path, false, true)).contains("--as-device"));
        assert!(why(open(&path, true, false)).contains("-f"));
        assert!(why(open(&dir.path().join("none"), true, true)).contains("none"));
        assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 7));
        let target = open(&path, true, true).unwrap();
        assert!(why(open(&path, true, true)).contains("in use"), "by the other one");
        assert!(target.sizes().first().is_some_and(|size| *size >= 512));
        assert!(target.lane(0, 16, 1 << 20).is_err(), "no room for 16 threads");
    }

    #[test]
    fn pairs_write_and_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let pair = RequestPair::new(dir.path(), 3).unwrap();
        let bytes = AlignedBuf::zeroed(8192);
        (0..3).for_each(|n| pair.write(n, &bytes).unwrap());
        pair.sync().unwrap();
        assert_eq!(pair.written.metadata().unwrap().len(), 3 * 8192);
        // the names are taken, and what has them stays
        assert!(RequestPair::new(dir.path(), 3).is_err());
        drop(pair);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn room_is_looked_for_beforehand() {
        let dir = tempfile::tempdir().unwrap();
        let target = open(dir.path(), false, false).unwrap();
        assert_eq!(target.check_room(1), Ok(()));
        let why = target.check_room(u32::MAX).unwrap_err();
        assert!(why.contains("4294967295 threads write 64M each: 256P are needed, and "), "{why}");
        assert!(why.ends_with(" are free") && why.starts_with(target.path()), "{why}");
        // a device's parts become smaller instead
        let path = dir.path().join("disk");
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        assert_eq!(open(&path, true, true).unwrap().check_room(u32::MAX), Ok(()));
    }

    #[test]
    fn lanes_do_not_overlap_and_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        let target = open(&path, true, true).unwrap();
        target.prepare().unwrap();
        let size = 4096;
        for thread in 0..3 {
            let lane = target.lane(thread, 3, size).unwrap();
            (0..200).for_each(|n| lane.put(n, &vec![thread as u8 + 1; size as usize]).unwrap());
        }
        drop(target);
        let bytes = std::fs::read(&path).unwrap();
        let part = (1 << 20) / 3 / 4096 * 4096;
        (0..3).for_each(|i| assert!(bytes[i * part..(i + 1) * part].iter().all(|byte| *byte == i as u8 + 1)));
        let folder = open(dir.path(), false, false).unwrap();
        let lane = folder.lane(0, 1, 1).unwrap();
        lane.put(0, b"a").unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
        drop(lane);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
