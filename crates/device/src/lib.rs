//! Where bytes come from: the [`Device`] trait and its makers.
//!
//! Above is `vdev`, which turns a place in the pool into places on devices; below is only `base`
//! and the operating system.
//!
//! A device answers one request at a time through [`Device::read_at`], [`Device::write_at`] and
//! [`Device::flush`], and many at once through [`read_batch`], [`write_batch`] and [`flush_batch`],
//! which keep the queue of a disk filled without a thread per request:
//!
//! ```text
//!   batch ──┬── device with a file below ([`Device::raw`]) ──> a restricted io_uring ──> kernel
//!           └── any other device ──────────> read_at, write_at, flush, one after the other
//! ```
//!
//! Reads that nobody waits for become one request where they lie next to each other. What a batch is given a ticket for,
//! a [`meter`] counts and times. Within a batch there is no order. What has been written is there for every reader at
//! once, but lasts through a power cut only when a flush that began after the write has returned.
//!
//! Makers: [`FileDevice`] (regular file or disk), [`Window`] (a part of another device, such as a
//! partition of a disk image found by [`gpt`]), [`DeviceSlot`] (a place that devices take one after the
//! other, where `zinject` lets them do wrong: [`InjectedFault`]), [`MemDevice`] (bytes in memory), [`ThinDevice`]
//! (those that were written), and beside them
//! [`FaultyDevice`], the wrapper that lies, fails and vanishes on request in tests, and [`emulated`], one that is as slow as
//! a disk or an SSD.

mod batch;
mod beneath;
pub mod emulated;
mod faulty;
mod file;
pub mod gpt;
mod injected;
mod item;
mod join;
mod mem;
pub mod meter;
mod opener;
mod raw;
mod ring;
mod rings;
mod scatter;
mod slot;
mod thin;
mod window;

use std::fmt::Debug;
use std::io;

use base::{Error, Kind, Result};

use crate::ring::IoTask;

pub use batch::{Read, Write, flush_batch, read_batch, write_batch};
pub use faulty::FaultyDevice;
pub use file::{FileDevice, OpenMode, check_writable};
pub use injected::{ALWAYS, DeviceOp, FaultEffect, InjectedFault, InjectedFaults, SlowLanes};
pub use join::JoinLimits;
pub use mem::MemDevice;
pub use opener::{OpenedDevice, WriteOpener, open_for_writing_by, open_here};
pub use raw::{DirectFile, Raw};
pub use rings::{close_rings, try_free_ring};
pub use slot::DeviceSlot;
pub use thin::ThinDevice;
pub use window::Window;

/// A random-access array of bytes: a disk, a file, a part of either, or memory.
pub trait Device: Send + Sync + Debug {
    /// Name for messages; the path where there is one.
    fn path(&self) -> &str;

    /// Size in bytes.
    fn size(&self) -> u64;

    /// The bytes that there are by now, if what is below has become larger; they are used as of [`Device::grow`].
    fn look_for_growth(&self) -> u64 {
        self.size()
    }

    /// From now on all is used that [`Device::look_for_growth`] finds.
    fn grow(&self) {}

    /// Whether it is a disk that was pulled: all of it that was opened is not there any more. Whatever requests fail with
    /// then, the device has gone.
    fn is_gone(&self) -> bool {
        false
    }

    /// Fills `buf` with the bytes from `offset` on.
    ///
    /// All of `buf` is filled, or the result is an error of [`base::Kind::Io`], or of
    /// [`base::Kind::Missing`] if the device has gone, that names the device and the offset; what
    /// `buf` holds is then unspecified.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Writes `buf` to `offset` and the bytes after it. No write makes a device grow.
    ///
    /// The bytes are on the device for every reader from then on, and last through a power cut once
    /// [`Device::flush`] has returned. Errors are those of [`Device::read_at`], and
    /// [`base::Kind::ReadOnly`] if the device cannot be written, as by default; of a write that
    /// failed, any part may be on the device.
    fn write_at(&self, offset: u64, _buf: &[u8]) -> Result<()> {
        Err(read_only(self.path(), offset))
    }

    /// Makes all that has been written last through a power cut.
    ///
    /// Errors are those of [`Device::write_at`]. After an error, any write since the last flush may
    /// be lost, and flushing again does not bring it back.
    fn flush(&self) -> Result<()> {
        Err(read_only(self.path(), 0))
    }

    /// Tells the device that nobody needs the `len` bytes from `offset` on; what they are then is unspecified. With
    /// `secure`, no copy of them may be left.
    ///
    /// Errors: [`base::Kind::Unsupported`] if it cannot use that, as by default; those of [`Device::write_at`].
    fn discard(&self, offset: u64, _len: u64, _secure: bool) -> Result<()> {
        Err(cannot_discard(self.path(), offset))
    }

    /// The smallest write that the device does without reading first, in bytes: a power of two,
    /// at least 512.
    fn sector_bytes(&self) -> u64 {
        512
    }

    /// The unit in which the device itself is read and written, in bytes: a power of two, at least 512. Smaller requests
    /// may work, as a file's page cache reads and writes what is around them, but are more than what was asked for.
    fn logical_sector_bytes(&self) -> u64 {
        512
    }

    /// Whether reads that lie next to each other may be asked for as one.
    fn may_join_reads(&self) -> bool {
        true
    }

    /// The file below, through which batches may go without calling [`Device::read_at`] and the
    /// like.
    fn raw(&self) -> Option<Raw> {
        None
    }
}

/// Whether `len` bytes from `offset` on lie within `size` bytes.
fn fits(offset: u64, len: usize, size: u64) -> bool {
    offset.checked_add(len as u64).is_some_and(|end| end <= size)
}

/// Errors: `what` does not lie within a device.
fn check_bounds(device: &dyn Device, what: &str, offset: u64, len: usize) -> Result<()> {
    let size = device.size();
    match fits(offset, len, size) {
        true => Ok(()),
        false => Err(past_the_end(device.path(), what, offset, len, size)),
    }
}

/// The error of something that does not fit.
fn past_the_end(path: &str, what: &str, offset: u64, len: usize, size: u64) -> Error {
    Error::new(Kind::Io, format!("{what} of {len} bytes ends behind the device's {size} bytes"))
        .at_vdev(path)
        .at_offset(offset)
}

/// The error of a write to a device that is open for reading.
fn read_only(path: &str, offset: u64) -> Error {
    Error::new(Kind::ReadOnly, "the device is not open for writing").at_vdev(path).at_offset(offset)
}

/// The error of a device that cannot use it that something is not needed.
fn cannot_discard(path: &str, offset: u64) -> Error {
    Error::new(Kind::Unsupported, "trim operations are not supported by this device").at_vdev(path).at_offset(offset)
}

/// Why `task` cannot be asked of the file below `device`.
fn refusal(device: &dyn Device, raw: Raw, offset: u64, task: &IoTask<'_>) -> Option<Error> {
    if !raw.writable && !matches!(task, IoTask::Fill(_)) {
        return Some(read_only(device.path(), offset));
    }
    check_bounds(device, task.name(), offset, task.len()).err()
}

/// The error when the operating system refused to read, write or flush. A descriptor of a disk that was pulled has any
/// error: EIO, ENOSPC of a write, no bytes of a read.
fn io_error(device: &dyn Device, offset: u64, what: &str, source: io::Error) -> Error {
    let kind = match source.raw_os_error() {
        Some(libc::ENXIO | libc::ENODEV) => Kind::Missing,
        _ if device.is_gone() => Kind::Missing,
        _ => Kind::Io,
    };
    Error::new(kind, format!("{what} failed")).with_source(source).at_vdev(device.path()).at_offset(offset)
}
