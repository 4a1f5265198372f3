//! What requests do to a volume.

use base::{Kind, Result};
use vm_memory::GuestMemoryMmap;
use zvol::{SyncMode, Zvol};

use crate::cache::GuestCache;
use crate::disk::VhostDisk;
use crate::request::{DiskCommand, DiskRequest, GuestSegments, SECTOR_BYTES, byte_of};

/// Bytes that are in memory at a time for one request.
const STEP_BYTES: u64 = 1 << 20;
/// Bytes of a serial number.
const ID_BYTES: usize = 20;
/// The flag of zeroes that may become holes.
const MAY_UNMAP: u32 = 1;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskAnswer {
    pub(crate) status: u8,
    /// Bytes of data that the guest has got.
    pub(crate) given: u32,
}

impl DiskAnswer {
    pub(crate) const OK: u8 = 0;
    pub(crate) const FAILED: u8 = 1;
    pub(crate) const UNSUPPORTED: u8 = 2;

    pub(crate) fn failed() -> DiskAnswer {
        DiskAnswer { status: DiskAnswer::FAILED, given: 0 }
    }
}

/// Does a request; `cache` says whether what it changes is on disk then, and is told of what is not. Errors of the kind
/// `Suspended` alone are errors here: it is to be done again.
pub(crate) fn run(
    (disk, cache): (&dyn VhostDisk, &GuestCache),
    request: &DiskRequest,
    memory: &GuestMemoryMmap,
) -> Result<DiskAnswer> {
    match one((disk, cache), request, memory) {
        Err(error) if error.kind() == Kind::Suspended => Err(error),
        Err(error) => {
            let (command, sector) = (request.command, request.sector);
            match error.kind() {
                // a guest may ask for that as often as it likes
                Kind::Invalid | Kind::Corrupt | Kind::Unsupported | Kind::NoSpace | Kind::ReadOnly => {
                    tracing::debug!(?command, sector, "a request of a guest failed: {error}");
                }
                _ => tracing::warn!(?command, sector, "a request of a guest failed: {error}"),
            }
            let is_known = error.kind() != Kind::Unsupported;
            let status = if is_known { DiskAnswer::FAILED } else { DiskAnswer::UNSUPPORTED };
            Ok(DiskAnswer { status, given: 0 })
        }
        Ok(given) => Ok(DiskAnswer { status: DiskAnswer::OK, given }),
    }
}

fn one((disk, cache): (&dyn VhostDisk, &GuestCache), request: &DiskRequest, memory: &GuestMemoryMmap) -> Result<u32> {
    let volume = disk.volume()?;
    // does what is given, told whether it is to be on disk then
    let change = |what: &dyn Fn(bool) -> Result<()>| {
        let sync = volume.sync();
        let lasts = cache.is_write_through(sync);
        what(lasts)?;
        // nothing is brought to disk if that is disabled, whatever is asked for
        if !lasts || sync == SyncMode::Disabled {
            cache.changed(disk.open_group());
        }
        Ok(0)
    };
    match request.command {
        DiskCommand::Read => read(&volume, request.sector, &request.data, memory),
        DiskCommand::Write => change(&|lasts| write(&volume, request.sector, &request.data, memory, lasts)),
        DiskCommand::Flush => cache.flush(&volume).map(|()| 0),
        DiskCommand::GetId => {
            let mut id = disk.serial().into_bytes();
            id.resize(ID_BYTES, 0);
            request.data.cursor(memory).put(&id)?;
            Ok(ID_BYTES as u32)
        }
        DiskCommand::Discard | DiskCommand::WriteZeroes => {
            let is_discard = request.command == DiskCommand::Discard;
            change(&|lasts| {
                for range in request.ranges(memory)? {
                    if range.flags & !if is_discard { 0 } else { MAY_UNMAP } != 0 {
                        return Err(base::Error::new(Kind::Unsupported, format!("flags {:#x}", range.flags)));
                    }
                    let (offset, len) = range.bytes()?;
                    match is_discard {
                        true => volume.discard(offset, len, lasts)?,
                        false => volume.zero(offset, len, lasts)?,
                    }
                }
                Ok(())
            })
        }
        DiskCommand::Other(number) => Err(base::Error::new(Kind::Unsupported, format!("request {number}"))),
    }
}

/// Where a request begins and ends, in bytes. Errors: `Invalid` for a part of a sector, and behind the end.
fn range_of(volume: &Zvol, sector: u64, len: u64) -> Result<(u64, u64)> {
    let start = byte_of(sector)?;
    let end = start.checked_add(len).filter(|end| len.is_multiple_of(SECTOR_BYTES) && *end <= volume.size());
    let behind = || base::Error::new(Kind::Invalid, format!("{len} bytes from sector {sector} on"));
    end.map(|end| (start, end)).ok_or_else(behind)
}

fn read(volume: &Zvol, sector: u64, to: &GuestSegments, memory: &GuestMemoryMmap) -> Result<u32> {
    let (mut at, end) = range_of(volume, sector, to.len())?;
    let mut cursor = to.cursor(memory);
    while at < end {
        let len = STEP_BYTES.min(end - at);
        for piece in volume.read(at, len as usize, false)? {
            cursor.put(&piece)?;
        }
        at += len;
    }
    // a chain has less than 2^32 bytes
    Ok(u32::try_from(to.len()).unwrap_or(u32::MAX))
}

fn write(volume: &Zvol, sector: u64, from: &GuestSegments, memory: &GuestMemoryMmap, lasts: bool) -> Result<()> {
    let (mut at, end) = range_of(volume, sector, from.len())?;
    let mut cursor = from.cursor(memory);
    let mut bytes = vec![0; STEP_BYTES.min(end - at) as usize];
    while at < end {
        let part = &mut bytes[..STEP_BYTES.min(end - at) as usize];
        cursor.get(part)?;
        let next = at + part.len() as u64;
        volume.write(at, (&*part).into(), lasts && next == end)?;
        at = next;
    }
    Ok(())
}
