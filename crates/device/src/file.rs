//! A regular file or a disk as a device.
//!
//! It is opened twice where possible: once through the page cache, and once with `O_DIRECT`. Each
//! read takes the direct way if its offset, length and buffer are aligned as the file system wants
//! it, and the cached way otherwise, so callers never need to think of alignment to be right, only
//! to be fast.

use std::fs::{File, Metadata};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};

use base::{AlignedBuf, Error, Kind, Result};

use crate::{Device, Direct, Raw, fits, past_the_end};

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Read, past the page cache where the file system allows.
    ReadOnly,
    /// Read through the page cache, for short-lived programs that others of their kind follow.
    ReadOnlyCached,
}

/// A regular file or a block device.
pub struct FileDevice {
    path: String,
    size: u64,
    cached: File,
    direct: Option<(File, Direct)>,
}

impl FileDevice {
    /// Opens the file or disk at `path`. Errors: those of open(2), and [`Kind::Invalid`] if it is
    /// neither a regular file nor a block device.
    pub fn open(path: &str, mode: OpenMode) -> Result<FileDevice> {
        FileDevice::open_inner(path, mode).map_err(|e| e.at_vdev(path))
    }

    fn open_inner(path: &str, mode: OpenMode) -> Result<FileDevice> {
        // O_NONBLOCK: the open of a named pipe that nobody writes must not wait forever.
        let mut cached = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let meta = cached.metadata()?;
        let kind = meta.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(Error::new(Kind::Invalid, "neither a regular file nor a disk"));
        }
        // the end is where a disk's size shows too
        let size = cached.seek(SeekFrom::End(0))?;
        let direct = match mode {
            OpenMode::ReadOnly => open_direct(path, &meta, size),
            OpenMode::ReadOnlyCached => None,
        };
        Ok(FileDevice { path: path.to_owned(), size, cached, direct })
    }

    /// Takes an advisory lock that ends with this device: many openers may hold a shared one, or
    /// one opener an exclusive one. An error of [`Kind::Busy`] if another's lock is in the way.
    pub fn lock(&self, exclusive: bool) -> Result<()> {
        let operation = if exclusive { libc::LOCK_EX } else { libc::LOCK_SH } | libc::LOCK_NB;
        // SAFETY: the descriptor is open for as long as `self` lives.
        if unsafe { libc::flock(self.cached.as_raw_fd(), operation) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        Err(match error.raw_os_error() {
            Some(libc::EWOULDBLOCK) => Error::new(Kind::Busy, "the device is in use by another process"),
            _ => Error::from(error),
        }
        .at_vdev(&self.path))
    }

    /// Whether aligned reads go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    fn file_for(&self, offset: u64, buf: &[u8]) -> &File {
        match &self.direct {
            Some((file, _)) if self.raw_fds().fd_for(offset, buf) == file.as_raw_fd() => file,
            _ => &self.cached,
        }
    }

    fn raw_fds(&self) -> Raw {
        Raw { cached_fd: self.cached.as_raw_fd(), direct: self.direct.as_ref().map(|(_, d)| *d), base: 0 }
    }
}

impl std::fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileDevice({}, {} bytes)", self.path, self.size)
    }
}

impl Device for FileDevice {
    fn path(&self) -> &str {
        &self.path
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if !fits(offset, buf.len(), self.size) {
            return Err(past_the_end(&self.path, offset, buf.len(), self.size));
        }
        let mut done = 0;
        let mut file = self.file_for(offset, buf);
        while done < buf.len() {
            match file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => return Err(read_error(&self.path, offset, io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) && !std::ptr::eq(file, &self.cached) => {
                    file = &self.cached;
                    continue;
                }
                Err(e) => return Err(read_error(&self.path, offset, e)),
            }
            // a short read may leave a rest that is not aligned
            file = self.file_for(offset + done as u64, &buf[done..]);
        }
        Ok(())
    }

    fn raw(&self) -> Option<Raw> {
        Some(self.raw_fds())
    }
}

/// The error of a read that the operating system refused.
pub(crate) fn read_error(path: &str, offset: u64, source: io::Error) -> Error {
    let kind = match source.raw_os_error() {
        Some(libc::ENXIO | libc::ENODEV) => Kind::Missing,
        _ => Kind::Io,
    };
    Error::new(kind, "read failed").with_source(source).at_vdev(path).at_offset(offset)
}

/// Opens the same file with `O_DIRECT`, and tries whether it works.
fn open_direct(path: &str, meta: &Metadata, size: u64) -> Option<(File, Direct)> {
    let file = File::options().read(true).custom_flags(libc::O_DIRECT | libc::O_NONBLOCK).open(path).ok()?;
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

/// What the file system says it demands of direct reads, or what suits every file system.
fn alignment(fd: RawFd) -> Direct {
    let cautious = Direct { fd, offset_align: 4096, memory_align: 4096 };
    // SAFETY: all-zero bytes are a valid statx structure.
    let mut stx: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, the path is an empty C string, and `stx` outlives the call.
    let status = unsafe { libc::statx(fd, c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, &mut stx) };
    if status != 0 || stx.stx_mask & libc::STATX_DIOALIGN == 0 {
        return cautious;
    }
    let (memory, offset) = (stx.stx_dio_mem_align, stx.stx_dio_offset_align);
    if memory.is_power_of_two() && offset.is_power_of_two() && memory <= 4096 && offset <= 1 << 20 {
        Direct { fd, offset_align: offset.into(), memory_align: memory as usize }
    } else {
        cautious
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use super::*;
    use crate::{Read, Window, read_batch};

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
        drop((a, b));
        c.lock(true).unwrap();
    }

    #[test]
    fn what_is_no_device_is_refused() {
        let open = |path| FileDevice::open(path, OpenMode::ReadOnly).unwrap_err();
        assert_eq!(open("/").kind(), Kind::Invalid);
        assert_eq!(open("/dev/null").kind(), Kind::Invalid);
        assert_eq!(open("/nonexistent/file").kind(), Kind::NotFound);
    }
}
