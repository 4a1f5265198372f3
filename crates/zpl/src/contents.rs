//! Changing what is in files.
//!
//! ```text
//!   one block:      its size grows in steps of 512 bytes with the file, up to the record size
//!   more blocks:    all of the record size that the file had when it got its second one
//! ```
//!
//! Invariant: bytes behind the end of a file are zeros, also in its last block. So a file is made longer by
//! its size alone.

use base::{Data, Error, Kind, Result, UserOp, tunables};
use dmu::Object;
use format::sa::Attr;
use format::znode::{FLAG_APPENDONLY, FLAG_IMMUTABLE, FLAG_READONLY};
use zil::Intent;

use crate::attr_tables::{AttrChange, time, word};
use crate::live::read_only;
use crate::log::LoggedObject;
use crate::op::Op;
use crate::portions::FREE_BYTES;
use crate::{Allocate, File, Zpl};

/// Most bytes of a file.
pub(crate) const SIZE_MAX: u64 = i64::MAX as u64;
/// Bytes that are written in one transaction.
const STEP_BYTES: usize = 4 << 20;
/// Bytes that are copied in one call: the task that asked cannot be killed before it is done.
const COPY_MAX: u64 = 16 << 20;
const SECTOR: u64 = 512;

/// Whether a write is a change of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Times {
    /// The file was changed now.
    Moved,
    /// When the file was changed is told apart from the write.
    Kept,
}

impl File {
    /// Writes `data` from byte `offset` on, making the file longer if need be. How many bytes were written:
    /// fewer than all only if an error kept the rest out. Errors: `TooBig` behind 2^63 - 1 bytes; `NoSpace`,
    /// `Quota`.
    pub fn write<'a>(&self, offset: u64, data: impl Into<Data<'a>>) -> Result<usize> {
        self.write_with(offset, data.into(), Times::Moved)
    }

    /// The same, but the times of the file stay: they are set afterwards. Errors: as of [`File::write`].
    pub fn write_without_times<'a>(&self, offset: u64, data: impl Into<Data<'a>>) -> Result<usize> {
        self.write_with(offset, data.into(), Times::Kept)
    }

    fn write_with(&self, offset: u64, data: Data<'_>, times: Times) -> Result<usize> {
        let zpl = self.writable()?;
        let room = SIZE_MAX.saturating_sub(offset).min(data.len() as u64) as usize;
        if room == 0 && !data.is_empty() {
            return Err(too_big());
        }
        let _timed = self.timed(UserOp::Write);
        self.note(UserOp::Write, offset, room);
        let written = self.write_steps(zpl, offset, data.part(0..room), times)?;
        zpl.counters().written(written);
        zpl.settled(self.ino(), Ok(written))
    }

    fn write_steps(&self, zpl: &Zpl, offset: u64, data: Data<'_>, times: Times) -> Result<usize> {
        let mut written = 0;
        while written < data.len() {
            let step = data.part(written..written + STEP_BYTES);
            match zpl.placed(self.ino(), self.write_step(zpl, offset + written as u64, step, times)) {
                Err(error) if written == 0 => return Err(error),
                Err(_) => return Ok(written),
                Ok(some) => written += some,
            }
        }
        Ok(written)
    }

    /// Writes as much of `data` as there is room for. How many bytes that were.
    fn write_step(&self, zpl: &Zpl, offset: u64, data: Data<'_>, times: Times) -> Result<usize> {
        zpl.check_owners(self.object())?;
        let (op, len) = zpl.begin_some(offset, data.len())?;
        let _held = op.alone(&[self.ino()]);
        let data = data.part(0..len);
        let logged = op.write_bytes(self.object(), offset, data, times)?;
        op.log_write(logged, offset, data);
        Ok(len)
    }

    /// Writes `data` at the end, and returns where that was. Errors: as of [`File::write`].
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        let _timed = self.timed(UserOp::Write);
        let zpl = self.writable()?;
        let append = || {
            zpl.check_owners(self.object())?;
            let op = zpl.begin(data.len() as u64, false)?;
            let _held = op.alone(&[self.ino()]);
            let at = zpl.size_of(&self.object().fresh()?)?;
            let logged = op.write_bytes(self.object(), at, data.into(), Times::Moved)?;
            op.log_write(logged, at, data.into());
            Ok(at)
        };
        let at = zpl.placed(self.ino(), append())?;
        self.note(UserOp::Write, at, data.len());
        zpl.counters().written(data.len());
        zpl.settled(self.ino(), Ok(at))
    }

    /// Does to `len` bytes from `offset` on what `how` says. Errors: `Invalid` for no bytes; `TooBig`,
    /// `NoSpace`, `Quota`.
    pub fn allocate(&self, how: Allocate, offset: u64, len: u64) -> Result<()> {
        let zpl = self.writable()?;
        let done = zpl.placed(self.ino(), self.allocate_range(zpl, how, offset, len));
        zpl.settled(self.ino(), done)
    }

    fn allocate_range(&self, zpl: &Zpl, how: Allocate, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Err(Error::new(Kind::Invalid, "a range of no bytes"));
        }
        let end = offset.checked_add(len).filter(|&end| end <= SIZE_MAX).ok_or_else(too_big)?;
        let op = match how {
            Allocate::Reserve { .. } => self.begin_reserving(zpl, len)?,
            Allocate::PunchHole | Allocate::ZeroRange { .. } => {
                zpl.free_most(self.ino(), offset..end, &|op, object| op.check_writable(object, true))?;
                zpl.begin(FREE_BYTES, true)?
            }
        };
        let _held = op.alone(&[self.ino()]);
        let object = self.object().fresh()?;
        let size = zpl.size_of(&object)?;
        op.check_writable(&object, !matches!(how, Allocate::Reserve { .. }))?;
        let keep_size = match how {
            Allocate::Reserve { keep_size } | Allocate::ZeroRange { keep_size } => keep_size,
            Allocate::PunchHole => true,
        };
        if !matches!(how, Allocate::Reserve { .. }) && offset < size {
            object.free_range(op.tx(), offset, end.min(size) - offset)?;
        }
        let times = [time(Attr::Mtime, op.now()), time(Attr::Ctime, op.now())];
        let grows = !keep_size && end > size;
        match grows {
            true => op.set_size(&object, end, &times)?,
            // nothing has changed
            false if matches!(how, Allocate::Reserve { .. }) => {}
            false => op.change(&object, &times)?,
        }
        let truncated = match how {
            // behind the end of a file, that is where it ends then
            Allocate::Reserve { .. } => grows.then_some((end, 0)),
            _ if grows => Some((offset, len)),
            _ => (offset < size).then(|| (offset, end.min(size) - offset)),
        };
        match truncated {
            Some((offset, len)) => op.log_object(&object, &Intent::Truncate { object: self.ino(), offset, len }),
            None => Ok(()),
        }
    }

    /// Blocks are never overwritten, so room cannot be kept; but it is asked for. Whatever leaves too little is `NoSpace`
    /// here, as in OpenZFS, which asks for no user's or group's limit.
    fn begin_reserving<'z>(&self, zpl: &'z Zpl, len: u64) -> Result<Op<'z>> {
        let percent = zpl.live()?.tunable(tunables::ZFS_FALLOCATE_RESERVE_PERCENT);
        if percent == 0 {
            return Err(Error::new(Kind::Unsupported, "room is not asked for"));
        }
        let no_space = |error: Error| match error.kind() {
            Kind::Quota => Error::new(Kind::NoSpace, "no space left for that"),
            _ => error,
        };
        zpl.check_project(self.object()).map_err(no_space)?;
        let bytes = u128::from(len) * u128::from(percent) / 100;
        zpl.begin(u64::try_from(bytes).unwrap_or(u64::MAX), false).map_err(no_space)
    }

    /// Copies up to `len` bytes of `from`, from `from_offset` on, to `offset`, and returns how many: 0 only
    /// at the end of `from`. The ranges do not overlap if it is the same file. Blocks are shared where they can be;
    /// otherwise at most 16 MiB are copied.
    pub fn copy_from(&self, offset: u64, from: &File, from_offset: u64, len: u64) -> Result<u64> {
        const COPY_STEP: u64 = 1 << 20;
        let shared = self.share(offset, from, from_offset, len)?;
        if shared > 0 {
            return Ok(shared);
        }
        let len = len.min(COPY_MAX);
        let mut buf = vec![0; len.min(COPY_STEP) as usize];
        let mut done = 0;
        while done < len {
            let step = (len - done).min(COPY_STEP) as usize;
            let read = from.read(from_offset + done, &mut buf[..step])?;
            let copied = match self.write(offset + done, &buf[..read]) {
                Err(error) if done == 0 => return Err(error),
                written => written.unwrap_or(0),
            };
            done += copied as u64;
            if copied < step {
                break;
            }
        }
        Ok(done)
    }

    pub(crate) fn writable(&self) -> Result<&Zpl> {
        self.zpl().filter(|zpl| zpl.is_writable()).ok_or_else(read_only)
    }
}

impl Op<'_> {
    /// Writes to a file that is locked, and sets its size, and its times if they move. Returns the file, for the log.
    pub(crate) fn write_bytes(
        &self,
        object: &Object,
        offset: u64,
        data: Data<'_>,
        times: Times,
    ) -> Result<LoggedObject> {
        let object = object.fresh()?;
        let node = self.zpl().node_of(object.clone())?;
        let attrs = self.zpl().attributes(&node)?;
        let (size, logged) = (attrs.u64(Attr::Size)?, LoggedObject::of(object.id(), &attrs)?);
        self.zpl().refuse_flags(attrs.u64(Attr::Flags)?, forbids_writing(offset < size))?;
        drop(attrs);
        let end = offset.checked_add(data.len() as u64).filter(|&end| end <= SIZE_MAX).ok_or_else(too_big)?;
        self.grow_block(&object, size, end)?;
        let object = object.fresh()?;
        if let Err(error) = object.write(self.tx(), offset, data) {
            // some of it may have been written
            if end > size {
                object.free_range(self.tx(), size, end - size)?;
            }
            return Err(error);
        }
        let mut changes = Vec::with_capacity(3);
        if end > size && !data.is_empty() {
            changes.push(word(Attr::Size, end));
        }
        if times == Times::Moved {
            changes.extend([time(Attr::Mtime, self.now()), time(Attr::Ctime, self.now())]);
        }
        if !changes.is_empty() {
            self.change(&object, &changes)?;
        }
        Ok(logged)
    }

    /// `Forbidden` if a flag of the file forbids writing to it, or to what is there already.
    pub(crate) fn check_writable(&self, object: &Object, overwrites: bool) -> Result<()> {
        self.zpl().check_flags(&self.zpl().node_of(object.clone())?, forbids_writing(overwrites))
    }

    /// Cuts a file off, or makes it longer, and changes `others` with its size.
    pub(crate) fn set_size(&self, object: &Object, new: u64, others: &[AttrChange]) -> Result<()> {
        let object = object.fresh()?;
        let old = self.zpl().size_of(&object)?;
        if new < old {
            let end = object.dnode().size_max().max(old);
            object.free_range(self.tx(), new, end - new)?;
        } else if new > old {
            self.grow_block(&object, old, new)?;
        }
        let mut changes = vec![word(Attr::Size, new)];
        changes.extend_from_slice(others);
        self.change(&object, &changes)
    }

    /// Makes the only block of a file larger, if it has not more, so that `end` lies in it if it can.
    pub(crate) fn grow_block(&self, object: &Object, size: u64, end: u64) -> Result<()> {
        let dnode = object.dnode();
        let record = self.live().options().record_bytes;
        if dnode.block_max > 0 || size > dnode.block_size || end <= dnode.block_size {
            return Ok(());
        }
        let most = match dnode.block_size > record && !dnode.block_size.is_power_of_two() {
            // made when records were larger: up to a size that many blocks can have
            true => dnode.block_size.next_power_of_two(),
            false => record,
        };
        let wanted = most.min(end.next_multiple_of(SECTOR)).max(dnode.block_size);
        object.set_block_size(self.tx(), wanted)
    }
}

impl Zpl {
    /// Bytes of a file.
    pub(crate) fn size_of(&self, object: &Object) -> Result<u64> {
        self.attributes(&self.node_of(object.clone())?)?.u64(Attr::Size)
    }
}

/// The flags of a file that forbid writing to it, or to what is there already.
fn forbids_writing(overwrites: bool) -> u64 {
    FLAG_IMMUTABLE | FLAG_READONLY | if overwrites { FLAG_APPENDONLY } else { 0 }
}

fn too_big() -> Error {
    Error::new(Kind::TooBig, "file too large")
}
