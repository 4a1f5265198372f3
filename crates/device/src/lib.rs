//! Where bytes come from: the [`Device`] trait and its makers.
//!
//! Above is `vdev`, which turns a place in the pool into places on devices; below is only `base`
//! and the operating system.
//!
//! A device answers one read at a time through [`Device::read_at`], and many at once through
//! [`read_batch`], which keeps the queue of a disk filled without a thread per request:
//!
//! ```text
//!   reads ──┬── device with a file below ([`Device::raw`]) ──> one io_uring per thread ──> kernel
//!           └── any other device ─────────────────────────> read_at, one after the other
//! ```
//!
//! Makers: [`FileDevice`] (regular file or disk), [`Window`] (a part of another device, such as a
//! partition of a disk image found by [`gpt`]), [`MemDevice`] (bytes in memory), and beside them
//! [`FaultyDevice`], the wrapper that lies, fails and vanishes on request in tests.

mod batch;
mod faulty;
mod file;
pub mod gpt;
mod mem;
mod ring;
mod window;

use std::fmt::Debug;
use std::os::fd::RawFd;

use base::Result;

pub use batch::{Read, read_batch};
pub use faulty::FaultyDevice;
pub use file::{FileDevice, OpenMode};
pub use mem::MemDevice;
pub use window::Window;

/// A random-access array of bytes: a disk, a file, a part of either, or memory.
pub trait Device: Send + Sync + Debug {
    /// Name for messages; the path where there is one.
    fn path(&self) -> &str;

    /// Size in bytes.
    fn size(&self) -> u64;

    /// Fills `buf` with the bytes from `offset` on.
    ///
    /// All of `buf` is filled, or the result is an error of [`base::Kind::Io`], or of
    /// [`base::Kind::Missing`] if the device has gone, that names the device and the offset; what
    /// `buf` holds is then unspecified.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// The file below, through which [`read_batch`] may read without calling [`Device::read_at`].
    fn raw(&self) -> Option<Raw> {
        None
    }
}

/// The open file that a [`Device`] stands on. The descriptors live as long as the device.
#[derive(Clone, Copy, Debug)]
pub struct Raw {
    /// Reads any range, through the page cache.
    pub cached_fd: RawFd,
    /// Reads aligned ranges past the page cache, where the file system can do that.
    pub direct: Option<Direct>,
    /// Offset in the file of the device's first byte.
    pub base: u64,
}

/// A descriptor opened with `O_DIRECT`, and what it demands. Both alignments are powers of two.
#[derive(Clone, Copy, Debug)]
pub struct Direct {
    /// The descriptor.
    pub fd: RawFd,
    /// Offsets and lengths are multiples of this many bytes.
    pub offset_align: u64,
    /// Buffers begin at multiples of this many bytes.
    pub memory_align: usize,
}

impl Raw {
    /// The descriptor for reading `buf` from `file_offset` on.
    fn fd_for(&self, file_offset: u64, buf: &[u8]) -> RawFd {
        match self.direct {
            Some(d)
                if (file_offset | buf.len() as u64) & (d.offset_align - 1) == 0
                    && buf.as_ptr() as usize & (d.memory_align - 1) == 0 =>
            {
                d.fd
            }
            _ => self.cached_fd,
        }
    }
}

/// Whether `len` bytes from `offset` on lie within `size` bytes.
fn fits(offset: u64, len: usize, size: u64) -> bool {
    offset.checked_add(len as u64).is_some_and(|end| end <= size)
}

/// The error of a read that does not fit.
fn past_the_end(path: &str, offset: u64, len: usize, size: u64) -> base::Error {
    base::Error::new(base::Kind::Io, format!("read of {len} bytes ends behind the device's {size} bytes"))
        .at_vdev(path)
        .at_offset(offset)
}
