//! A regular file or a disk as a device.
//!
//! It is opened twice where possible: once through the page cache, and once with `O_DIRECT`. Each
//! read or write takes the direct way if its offset, length and buffer are aligned as the file
//! system wants it, and the cached way otherwise, so callers never need to think of alignment to be
//! right, only to be fast. Linux keeps the two ways in step: a direct read first writes back what
//! the cache holds of its range, and a direct write throws it out.

use std::fs::{File, FileType, Metadata};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::sync::atomic::{AtomicU64, Ordering};

use base::{AlignedBuf, Error, Kind, Mutex, Result};
use rustix::fs::{Access, FallocateFlags, FlockOperation, access, fallocate, flock};
use rustix::io::Errno;

use crate::ring::{IoTask, RingJob};
use crate::{Device, DirectFile, Raw, beneath, cannot_discard, io_error, opener, past_the_end, read_only, refusal};

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Read, past the page cache where the file system allows.
    ReadOnly,
    /// Read through the page cache, for short-lived programs that others of their kind follow.
    ReadOnlyCached,
    /// Read and write, past the page cache where the file system allows. Of a disk, the kernel
    /// allows that to one opener at a time, and not while it is mounted.
    ReadWrite,
    /// The same, through the page cache.
    ReadWriteCached,
}

/// A regular file or a block device.
pub struct FileDevice {
    path: String,
    size: AtomicU64,
    cached: File,
    direct: Option<(File, DirectFile)>,
    sector: u64,
    logical_sector: u64,
    is_disk: bool,
    writable: bool,
    /// A disk that is to be written, opened so that the kernel gives it to nobody else.
    claim: Mutex<Option<File>>,
    /// The files that a disk lies in, locked.
    beneath: Mutex<Vec<File>>,
}

impl FileDevice {
    /// Opens the file or disk at `path`. Errors: those of open(2), [`Kind::Invalid`] if it is
    /// neither a regular file nor a block device, and [`Kind::Busy`] if it is a disk in use that is
    /// to be written.
    pub fn open(path: &str, mode: OpenMode) -> Result<FileDevice> {
        FileDevice::open_inner(path, mode).map_err(|e| e.at_vdev(path))
    }

    fn open_inner(path: &str, mode: OpenMode) -> Result<FileDevice> {
        let writable = matches!(mode, OpenMode::ReadWrite | OpenMode::ReadWriteCached);
        // a path may come from a pool: what does something when it is opened, as a watchdog or a tape, is let alone
        let refuse_others = |kind: FileType| match kind.is_file() || kind.is_block_device() {
            true => Ok(()),
            false => Err(Error::new(Kind::Invalid, "neither a regular file nor a disk")),
        };
        let kind = std::fs::metadata(path)?.file_type();
        refuse_others(kind)?;
        let is_disk = kind.is_block_device();
        let (claim, mut cached, opened_direct) = if writable {
            check_writable(path)?;
            let opened = opener::open(path.as_ref(), true).map_err(opener::busy)?;
            (opened.claim, opened.cached, opened.direct)
        } else {
            (None, opener::open_to_read(path, 0).map_err(opener::busy)?, None)
        };
        let meta = cached.metadata()?;
        let kind = meta.file_type();
        refuse_others(kind)?;
        // the end is where a disk's size shows too
        let size = cached.seek(SeekFrom::End(0))?;
        let direct = match mode {
            OpenMode::ReadWrite => opened_direct.and_then(|file| tried_direct(file, &meta, size)),
            OpenMode::ReadOnly => {
                opener::open_to_read(path, libc::O_DIRECT).ok().and_then(|file| tried_direct(file, &meta, size))
            }
            OpenMode::ReadOnlyCached | OpenMode::ReadWriteCached => None,
        };
        let sector_of = |question| if kind.is_block_device() { sector(&cached, question) } else { 512 };
        let (sector, logical_sector) = (sector_of(BLKPBSZGET), sector_of(BLKSSZGET));
        let (path, claim, beneath) = (path.to_owned(), Mutex::new(claim), Mutex::default());
        let size = AtomicU64::new(size);
        Ok(FileDevice { path, size, cached, direct, sector, logical_sector, is_disk, writable, claim, beneath })
    }

    /// Takes an advisory lock that ends with this device: many openers may hold a shared one, or
    /// one opener an exclusive one. What a disk lies in is locked, too, so that nobody gets it by another name. An
    /// error of [`Kind::Busy`] if another's lock is in the way.
    pub fn lock(&self, exclusive: bool) -> Result<()> {
        let operation = match exclusive {
            true => FlockOperation::NonBlockingLockExclusive,
            false => FlockOperation::NonBlockingLockShared,
        };
        match flock(&self.cached, operation) {
            Ok(()) => self.lock_storage(exclusive),
            Err(Errno::WOULDBLOCK) => Err(self.in_use()),
            Err(error) => Err(Error::from(io::Error::from(error)).at_vdev(&self.path)),
        }
    }

    fn lock_storage(&self, exclusive: bool) -> Result<()> {
        let bottoms = beneath::bottoms(&self.cached)?;
        if bottoms.is_empty() {
            return if beneath::lock_range(&self.cached, &(0..u64::MAX), exclusive) {
                Ok(())
            } else {
                Err(self.in_use())
            };
        }
        for bottom in bottoms {
            // what cannot be opened cannot be written either, and needs no lock
            let opened = match exclusive {
                true => opener::open(&bottom.file, false).map(|opened| opened.cached),
                false => File::open(&bottom.file),
            };
            let Ok(file) = opened else { continue };
            if !beneath::lock_range(&file, &bottom.bytes, exclusive) {
                return Err(self.in_use());
            }
            self.beneath.lock().push(file);
        }
        Ok(())
    }

    fn in_use(&self) -> Error {
        Error::new(Kind::Busy, "the device is in use by another process").at_vdev(&self.path)
    }

    /// Gives the lock back, and the claim on a disk, before the device is closed.
    pub fn unlock(&self) {
        drop(self.claim.lock().take());
        self.beneath.lock().clear();
        beneath::unlock(&self.cached);
        // of a descriptor that is open, this does not fail
        let _ = flock(&self.cached, FlockOperation::Unlock);
    }

    /// Whether aligned reads go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    fn raw_fds(&self) -> Raw {
        Raw {
            cached_fd: self.cached.as_raw_fd(),
            direct: self.direct.as_ref().map(|(_, d)| *d),
            base: 0,
            writable: self.writable,
        }
    }

    fn run(&self, offset: u64, task: IoTask<'_>) -> Result<()> {
        let raw = self.raw_fds();
        if let Some(error) = refusal(self, raw, offset, &task) {
            return Err(error);
        }
        let what = task.name();
        let mut job = RingJob::new(raw, offset, task, None);
        job.run_alone();
        job.result.map_err(|e| io_error(self, offset, what, e))
    }
}

impl std::fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileDevice({}, {} bytes)", self.path, self.size())
    }
}

impl Device for FileDevice {
    fn path(&self) -> &str {
        &self.path
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn look_for_growth(&self) -> u64 {
        // nothing is read or written where the file's own offset is
        let found = (&self.cached).seek(SeekFrom::End(0));
        found.map_or(self.size(), |found| found.max(self.size()))
    }

    fn grow(&self) {
        self.size.fetch_max(self.look_for_growth(), Ordering::AcqRel);
    }

    fn is_gone(&self) -> bool {
        // the kernel takes all bytes from a disk that was pulled; older ones only forget the disk
        let has_all = || (&self.cached).seek(SeekFrom::End(0)).is_ok_and(|found| found >= self.size());
        self.is_disk && (!has_all() || beneath::is_forgotten(&self.cached))
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.run(offset, IoTask::Fill(buf))
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.run(offset, IoTask::Store(buf))
    }

    fn flush(&self) -> Result<()> {
        self.run(0, IoTask::Flush)
    }

    fn discard(&self, offset: u64, len: u64, secure: bool) -> Result<()> {
        if !self.writable {
            return Err(read_only(&self.path, offset));
        }
        if offset.checked_add(len).is_none_or(|end| end > self.size()) {
            return Err(past_the_end(&self.path, "discard", offset, len as usize, self.size()));
        }
        let done = match (self.is_disk, secure) {
            (true, _) => discard_on_disk(&self.cached, offset, len, secure),
            // a hole is all that a file can have; what was there may be found yet
            (false, true) => return Err(cannot_discard(&self.path, offset)),
            (false, false) => {
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&self.cached, hole, offset, len).map_err(io::Error::from)
            }
        };
        done.map_err(|e| match e.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::ENOTTY) => cannot_discard(&self.path, offset),
            _ => io_error(self, offset, "discard", e),
        })
    }

    fn sector_bytes(&self) -> u64 {
        self.sector
    }

    fn logical_sector_bytes(&self) -> u64 {
        self.logical_sector
    }

    fn raw(&self) -> Option<Raw> {
        Some(self.raw_fds())
    }
}

/// Errors: why nothing can be written to a file or disk, `ReadOnly` or `Permission`. It is not opened for that, which others
/// could notice. What else is wrong with it, opening it tells.
pub fn check_writable(path: &str) -> Result<()> {
    let refuse = |kind, what: &'static str| Err(Error::new(kind, what).at_vdev(path));
    match access(path, Access::WRITE_OK) {
        Err(Errno::ROFS) => return refuse(Kind::ReadOnly, "the file system is read-only"),
        Err(Errno::ACCESS | Errno::PERM) => return refuse(Kind::Permission, "it may not be written to"),
        Ok(()) | Err(_) => {}
    }
    let is_disk = std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device());
    let disk = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok().filter(|_| is_disk);
    match disk.and_then(|disk| ask_disk(&disk, BLKROGET)) {
        Some(is_read_only) if is_read_only != 0 => refuse(Kind::ReadOnly, "the disk is read-only"),
        _ => Ok(()),
    }
}

/// Tries whether the same file, opened with `O_DIRECT`, works.
fn tried_direct(file: File, meta: &Metadata, size: u64) -> Option<(File, DirectFile)> {
    let again = file.metadata().ok()?;
    if (again.dev(), again.ino()) != (meta.dev(), meta.ino()) {
        return None;
    }
    let direct = alignment(file.as_raw_fd());
    let mut probe = AlignedBuf::zeroed(direct.offset_align.try_into().ok()?);
    if size >= direct.offset_align {
        file.read_exact_at(&mut probe, 0).ok()?;
    }
    Some((file, direct))
}

/// A sector of a disk, physical or logical as the question is, or 512 if the kernel says something impossible.
fn sector(disk: &File, question: libc::Ioctl) -> u64 {
    let bytes = ask_disk(disk, question).filter(|bytes| bytes.is_power_of_two());
    bytes.map_or(512, |bytes| u64::from(bytes).max(512))
}

/// Asks a disk for its physical sector.
const BLKPBSZGET: libc::Ioctl = 0x127b;
/// Asks a disk for its logical sector.
const BLKSSZGET: libc::Ioctl = 0x1268;
/// Asks a disk whether it can only be read.
const BLKROGET: libc::Ioctl = 0x125e;

/// What a disk answers to one of the questions above.
fn ask_disk(disk: &File, question: libc::Ioctl) -> Option<libc::c_uint> {
    let mut answer: libc::c_uint = 0;
    // SAFETY: the descriptor is open, and these calls write one int.
    let status = unsafe { libc::ioctl(disk.as_raw_fd(), question, &raw mut answer) };
    (status == 0).then_some(answer)
}

/// Tells a disk that nobody needs some of its bytes.
fn discard_on_disk(disk: &File, offset: u64, len: u64, secure: bool) -> io::Result<()> {
    const BLKDISCARD: libc::Ioctl = 0x1277;
    const BLKSECDISCARD: libc::Ioctl = 0x127d;
    let range: [u64; 2] = [offset, len];
    let request = if secure { BLKSECDISCARD } else { BLKDISCARD };
    // SAFETY: the descriptor is open, and this call reads two numbers of 64 bits.
    let status = unsafe { libc::ioctl(disk.as_raw_fd(), request, range.as_ptr()) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What the file system says it demands of direct reads, or what suits every file system.
fn alignment(fd: RawFd) -> DirectFile {
    let cautious = DirectFile { fd, offset_align: 4096, memory_align: 4096 };
    // SAFETY: all-zero bytes are a valid statx structure.
    let mut stx: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, the path is an empty C string, and `stx` outlives the call.
    let status = unsafe { libc::statx(fd, c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, &mut stx) };
    if status != 0 || stx.stx_mask & libc::STATX_DIOALIGN == 0 {
        return cautious;
    }
    let (memory, offset) = (stx.stx_dio_mem_align, stx.stx_dio_offset_align);
    if memory.is_power_of_two() && offset.is_power_of_two() && memory <= 4096 && offset <= 1 << 20 {
        DirectFile { fd, offset_align: offset.into(), memory_align: memory as usize }
    } else {
        cautious
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::Command;
    use std::sync::Arc;

    use testkit::loops::LoopDevice;

    use super::*;
    use crate::{Read, Window, Write, flush_batch, read_batch, write_batch};

    struct TempFile(PathBuf);

    impl TempFile {
        fn new(name: &str, bytes: &[u8]) -> TempFile {
            let path = std::env::temp_dir().join(format!("cenote-device-{}-{name}", std::process::id()));
            std::fs::write(&path, bytes).unwrap();
            TempFile(path)
        }

        fn open(&self, mode: OpenMode) -> FileDevice {
            FileDevice::open(self.0.to_str().unwrap(), mode).unwrap()
        }
    }

    impl Drop for TempFile {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn what_nobody_needs_becomes_a_hole() {
        let bytes = pattern(64 * 4096);
        let file = TempFile::new("discard", &bytes);
        let device = file.open(OpenMode::ReadWrite);
        device.discard(8 * 4096, 32 * 4096, false).unwrap();
        let mut now = vec![1; bytes.len()];
        device.read_at(0, &mut now).unwrap();
        let hole = 8 * 4096..40 * 4096;
        assert!(now[hole.clone()].iter().all(|&byte| byte == 0));
        assert!(now[..hole.start] == bytes[..hole.start] && now[hole.end..] == bytes[hole.end..]);
        let blocks = std::fs::metadata(&file.0).unwrap().blocks();
        assert!(blocks * 512 <= 40 * 4096, "{blocks} blocks");
        assert_eq!(device.discard(0, 4096, true).unwrap_err().kind(), Kind::Unsupported);
        assert_eq!(device.discard(64 * 4096, 1, false).unwrap_err().kind(), Kind::Io);
        let reader = file.open(OpenMode::ReadOnly);
        assert_eq!(reader.discard(0, 4096, false).unwrap_err().kind(), Kind::ReadOnly);
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
    }

    /// Reads that are aligned, and reads that are not, alone, in a batch and through a window.
    #[test]
    fn every_alignment_reads_the_right_bytes() {
        let bytes = pattern(210 * 4096 + 1234);
        let file = TempFile::new("align", &bytes);
        for mode in [OpenMode::ReadOnly, OpenMode::ReadOnlyCached] {
            let dev: Arc<dyn Device> = Arc::new(file.open(mode));
            assert_eq!(dev.size(), bytes.len() as u64);
            let part = Window::new(dev.clone(), "part", 4096, dev.size() - 4096).unwrap();
            let place = |i: u64| match i % 2 {
                0 => (i * 4096, 4096 * (1 + i as usize % 3)),
                _ => (i * 3000 + 1, 5 + i as usize),
            };
            let mut bufs: Vec<AlignedBuf> = (0..200).map(|i| AlignedBuf::zeroed(place(i).1)).collect();
            let mut reads: Vec<Read> = (0..)
                .zip(&mut bufs)
                .map(|(i, buf)| Read::new(if i % 3 == 0 { &part } else { &*dev }, place(i).0, buf))
                .collect();
            read_batch(&mut reads);
            for (i, read) in (0..).zip(&reads) {
                read.result.as_ref().unwrap();
                let start = if i % 3 == 0 { 4096 } else { 0 } + place(i).0 as usize;
                assert!(*read.buf == bytes[start..start + read.buf.len()], "read {i}");
            }
            for (at, len) in (0..200).map(place) {
                let mut buf = vec![0; len];
                dev.read_at(at, &mut buf).unwrap();
                assert!(buf == bytes[at as usize..][..len]);
            }
        }
    }

    /// Writes that are aligned, and writes that are not, read back in every way.
    #[test]
    fn every_alignment_writes_the_right_bytes() {
        let mut model = pattern(200 * 4096 + 777);
        let file = TempFile::new("write", &model);
        let dev: Arc<dyn Device> = Arc::new(file.open(OpenMode::ReadWrite));
        let part = Window::new(dev.clone(), "part", 4096, dev.size() - 4096).unwrap();
        let bytes = pattern(5 * 4096);
        let mut source = AlignedBuf::zeroed(bytes.len());
        source.copy_from_slice(&bytes);
        // apart from each other, as a batch has no order
        let place = |i: u64| match i % 4 {
            0 => (i * 8192, 4096),
            2 => (i * 8192, 17 + i as usize),
            _ => (i * 8192 + 123, 17 + i as usize),
        };
        let mut writes: Vec<Write> = (0..98)
            .map(|i| {
                let ((at, len), from) = (place(i), i as usize % 3 * 4096);
                let (device, base): (&dyn Device, u64) = if i % 3 == 0 { (&part, 4096) } else { (&*dev, 0) };
                model[(at + base) as usize..][..len].copy_from_slice(&source[from..from + len]);
                Write::new(device, at, &source[from..from + len])
            })
            .collect();
        write_batch(&mut writes);
        writes.iter().for_each(|write| assert!(write.result.is_ok(), "{write:?}"));
        dev.write_at(99, b"alone").unwrap();
        model[99..104].copy_from_slice(b"alone");
        let mut direct = AlignedBuf::zeroed(4096);
        direct.fill(7);
        part.write_at(dev.size() / 4096 * 4096 - 8192, &direct).unwrap();
        model[dev.size() as usize / 4096 * 4096 - 4096..][..4096].fill(7);
        assert!(flush_batch(&[&*dev, &part, &*dev]).into_iter().all(|result| result.is_ok()));
        let mut all = AlignedBuf::zeroed(model.len());
        dev.read_at(0, &mut all).unwrap();
        assert!(all[..] == model[..]);
        assert!(std::fs::read(&file.0).unwrap() == model);
    }

    #[test]
    fn nothing_grows_and_nothing_is_written_that_is_open_for_reading() {
        let file = TempFile::new("readonly", &pattern(10_000));
        let dev = file.open(OpenMode::ReadWrite);
        assert_eq!(dev.write_at(9_999, b"ab").unwrap_err().kind(), Kind::Io);
        assert_eq!(dev.write_at(u64::MAX, b"ab").unwrap_err().kind(), Kind::Io);
        let (a, b) = ([1; 5], [2; 5]);
        let mut writes = [Write::new(&dev, 9_996, &a), Write::new(&dev, 9_995, &b)];
        write_batch(&mut writes);
        assert_eq!((writes[0].result.is_err(), writes[1].result.is_ok()), (true, true));
        for mode in [OpenMode::ReadOnly, OpenMode::ReadOnlyCached] {
            let dev = file.open(mode);
            let mut writes = [Write::new(&dev, 0, &a), Write::new(&dev, 5, &b)];
            write_batch(&mut writes);
            let flushes = flush_batch(&[&dev, &dev]);
            let batch = writes.map(|write| write.result).into_iter().chain(flushes);
            for result in batch.chain([dev.write_at(0, &a), dev.flush()]) {
                assert_eq!(result.unwrap_err().kind(), Kind::ReadOnly);
            }
        }
        let now = std::fs::read(&file.0).unwrap();
        assert!(now.len() == 10_000 && now[..9_995] == pattern(10_000)[..9_995] && now[9_995..] == [2; 5]);
        assert_eq!(dev.sector_bytes(), 512);
    }

    #[test]
    fn the_end_is_an_error_and_so_is_a_file_that_shrank() {
        let file = TempFile::new("end", &pattern(100_000));
        let dev = file.open(OpenMode::ReadOnly);
        let mut buf = vec![0; 1000];
        dev.read_at(99_000, &mut buf).unwrap();
        assert_eq!(dev.read_at(99_001, &mut buf).unwrap_err().kind(), Kind::Io);
        std::fs::write(&file.0, pattern(50_000)).unwrap();
        assert_eq!(dev.read_at(49_500, &mut buf).unwrap_err().kind(), Kind::Io);
        let (mut a, mut b) = ([0; 1000], [0; 1000]);
        let mut reads = [Read::new(&dev, 49_000, &mut a), Read::new(&dev, 49_001, &mut b)];
        read_batch(&mut reads);
        assert!(reads[0].result.is_ok());
        let error = reads[1].result.as_ref().unwrap_err();
        assert_eq!((error.kind(), error.place().offset), (Kind::Io, Some(49_001)));
    }

    #[test]
    fn locks_exclude_each_other() {
        let file = TempFile::new("lock", &[0; 100]);
        let [a, b, c] = [(); 3].map(|()| file.open(OpenMode::ReadOnly));
        a.lock(false).unwrap();
        b.lock(false).unwrap();
        assert_eq!(c.lock(true).unwrap_err().kind(), Kind::Busy);
        drop(a);
        b.unlock();
        c.lock(true).unwrap();
    }

    /// A file that is also a disk, and a disk in that disk.
    #[test]
    fn a_file_is_locked_by_all_its_names() {
        let file = TempFile::new("names", &vec![0; 4 << 20]);
        let Some(disk) = LoopDevice::over(&file.0, &[]) else { return };
        let Some(inner) = LoopDevice::over(disk.path(), &[]) else { return };
        let open = |path: &str| FileDevice::open(path, OpenMode::ReadWrite).unwrap();
        let whole = open(file.0.to_str().unwrap());
        whole.lock(true).unwrap();
        for name in [disk.name(), inner.name()] {
            assert_eq!(open(name).lock(true).unwrap_err().kind(), Kind::Busy, "{name}");
            let reader = FileDevice::open(name, OpenMode::ReadOnly).unwrap();
            assert_eq!(reader.lock(false).unwrap_err().kind(), Kind::Busy, "{name}");
        }
        whole.unlock();
        let inside = open(inner.name());
        inside.lock(true).unwrap();
        assert_eq!(whole.lock(true).unwrap_err().kind(), Kind::Busy);
        inside.unlock();
        whole.lock(true).unwrap();
    }

    #[test]
    fn a_disk_has_one_writer() {
        let file = TempFile::new("claim", &[0; 64 << 10]);
        let Some(disk) = LoopDevice::over(&file.0, &[]) else {
            return eprintln!("SKIPPED claim: there are no loop devices here");
        };
        let open = |mode| FileDevice::open(disk.name(), mode);
        let first = open(OpenMode::ReadWrite).unwrap();
        assert_eq!(open(OpenMode::ReadWrite).unwrap_err().kind(), Kind::Busy);
        open(OpenMode::ReadOnly).unwrap();
        // it can be another's while this one is still open
        first.unlock();
        open(OpenMode::ReadWrite).unwrap();
        first.write_at(512, &[1; 512]).unwrap();
        let mut bytes = [0; 512];
        first.read_at(512, &mut bytes).unwrap();
        assert_eq!(bytes, [1; 512]);
    }

    #[test]
    fn what_is_no_device_is_refused() {
        let open = |path| FileDevice::open(path, OpenMode::ReadOnly).unwrap_err();
        assert_eq!(open("/").kind(), Kind::Invalid);
        assert_eq!(open("/dev/null").kind(), Kind::Invalid);
        assert_eq!(open("/nonexistent/file").kind(), Kind::NotFound);
    }

    /// Whatever waits at the other end of a pipe still waits when it has been refused.
    #[test]
    fn what_is_no_disk_is_not_even_opened() {
        let path = std::env::temp_dir().join(format!("cenote-fifo-{}", std::process::id()));
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let fifo = path.clone();
        let writer = std::thread::spawn(move || File::options().write(true).open(fifo).unwrap());
        for mode in [OpenMode::ReadOnly, OpenMode::ReadOnlyCached, OpenMode::ReadWrite] {
            for _ in 0..20 {
                assert_eq!(FileDevice::open(path.to_str().unwrap(), mode).err().unwrap().kind(), Kind::Invalid);
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        }
        assert!(!writer.is_finished(), "the pipe was opened");
        drop(File::open(&path).unwrap());
        writer.join().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}
