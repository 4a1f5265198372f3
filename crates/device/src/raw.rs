//! The file below a device.

use std::os::fd::RawFd;

/// The open file that a [`Device`](crate::Device) stands on. The descriptors live as long as the device.
#[derive(Clone, Copy, Debug)]
pub struct Raw {
    /// Reads and writes any range, through the page cache.
    pub cached_fd: RawFd,
    /// Reads and writes aligned ranges past the page cache, where the file system can do that.
    pub direct: Option<DirectFile>,
    /// Offset in the file of the device's first byte.
    pub base: u64,
    /// Whether the descriptors are open for writing.
    pub writable: bool,
}

/// A descriptor opened with `O_DIRECT`, and what it demands. Both alignments are powers of two.
#[derive(Clone, Copy, Debug)]
pub struct DirectFile {
    /// The descriptor.
    pub fd: RawFd,
    /// Offsets and lengths are multiples of this many bytes.
    pub offset_align: u64,
    /// Buffers begin at multiples of this many bytes.
    pub memory_align: usize,
}

impl Raw {
    /// The descriptor for reading or writing `buf` from `file_offset` on.
    pub(crate) fn fd_for(&self, file_offset: u64, buf: &[u8]) -> RawFd {
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
