//! A chain of descriptors as a request of a guest.
//!
//! ```text
//!   for the device to read    type u32 | reserved u32 | sector u64 | data of a write, or ranges
//!   for it to write           data of a read, or the serial number | status u8
//! ```
//!
//! Where descriptors begin and end says nothing: each part may be in one, or in many.

use base::{Error, Kind, Result};
use virtio_queue::DescriptorChain;
use vm_memory::{Bytes, GuestAddress, GuestMemory, GuestMemoryMmap, Permissions};

/// Bytes of a sector, in which virtio counts.
pub(crate) const SECTOR_BYTES: u64 = 512;
/// Ranges of one discard.
pub(crate) const SEGMENTS_MAX: u32 = 64;
/// Descriptors of one request.
pub(crate) const DESCRIPTORS_MAX: usize = 1024;

const HEAD_BYTES: u64 = 16;
const RANGE_BYTES: usize = 16;

/// What a guest asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskCommand {
    Read,
    Write,
    Flush,
    GetId,
    Discard,
    WriteZeroes,
    /// One that is not known, or not offered.
    Other(u32),
}

/// Bytes in the memory of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GuestSegment {
    address: u64,
    len: u64,
}

/// Bytes in the memory of a guest, here and there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GuestSegments(Vec<GuestSegment>);

/// A request.
#[derive(Debug)]
pub(crate) struct DiskRequest {
    pub(crate) command: DiskCommand,
    pub(crate) sector: u64,
    /// Where its data are, or go to.
    pub(crate) data: GuestSegments,
    /// Where its status goes to.
    pub(crate) status: u64,
}

/// A range of a discard, or of zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SectorRange {
    pub(crate) sector: u64,
    pub(crate) sectors: u32,
    pub(crate) flags: u32,
}

impl DiskRequest {
    /// Errors: `Corrupt` for a chain that cannot be answered.
    pub(crate) fn parse(memory: &GuestMemoryMmap, chain: DescriptorChain<&GuestMemoryMmap>) -> Result<DiskRequest> {
        let (mut readable, mut writable, mut goes_on) = (GuestSegments::default(), GuestSegments::default(), true);
        for descriptor in chain {
            goes_on = descriptor.has_next();
            let (address, len, is_written) = (descriptor.addr(), descriptor.len(), descriptor.is_write_only());
            if readable.0.len() + writable.0.len() >= DESCRIPTORS_MAX {
                return Err(Error::corrupt("a request of too many descriptors"));
            }
            if !is_written && !writable.0.is_empty() {
                return Err(Error::corrupt("a descriptor to be read behind one to be written"));
            }
            let how = if is_written { Permissions::Write } else { Permissions::Read };
            if len > 0 && !memory.check_range(address, len as usize, how) {
                return Err(Error::corrupt(format!("a descriptor of {len} bytes at {:#x}", address.0)));
            }
            let part = if is_written { &mut writable } else { &mut readable };
            part.0.push(GuestSegment { address: address.0, len: len.into() });
        }
        // what it leads to is not there, or it goes in a circle
        if goes_on {
            return Err(Error::corrupt("a chain of descriptors without an end"));
        }
        let status = writable.take_last().ok_or_else(|| Error::corrupt("a request without room for its status"))?;
        let head = readable.split_off_first(HEAD_BYTES);
        let mut bytes = [0; HEAD_BYTES as usize];
        head.cursor(memory).get(&mut bytes)?;
        let [a, b, c, d, _, _, _, _, sector @ ..] = bytes;
        let command = DiskCommand::of(u32::from_le_bytes([a, b, c, d]));
        let data = if matches!(command, DiskCommand::Read | DiskCommand::GetId) { writable } else { readable };
        Ok(DiskRequest { command, sector: u64::from_le_bytes(sector), data, status })
    }

    /// The ranges that its data are. Errors: `Invalid` for too many, or a part of one.
    pub(crate) fn ranges(&self, memory: &GuestMemoryMmap) -> Result<Vec<SectorRange>> {
        let len = self.data.len();
        if len == 0 || !len.is_multiple_of(RANGE_BYTES as u64) || len > u64::from(SEGMENTS_MAX) * RANGE_BYTES as u64 {
            return Err(Error::new(Kind::Invalid, format!("ranges in {len} bytes")));
        }
        let mut bytes = vec![0; len as usize];
        self.data.cursor(memory).get(&mut bytes)?;
        Ok(bytes.as_chunks().0.iter().map(SectorRange::parse).collect())
    }
}

impl DiskCommand {
    fn of(number: u32) -> DiskCommand {
        match number {
            0 => DiskCommand::Read,
            1 => DiskCommand::Write,
            4 => DiskCommand::Flush,
            8 => DiskCommand::GetId,
            11 => DiskCommand::Discard,
            13 => DiskCommand::WriteZeroes,
            other => DiskCommand::Other(other),
        }
    }
}

impl SectorRange {
    fn parse(bytes: &[u8; RANGE_BYTES]) -> SectorRange {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *bytes;
        SectorRange {
            sector: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            sectors: u32::from_le_bytes([i, j, k, l]),
            flags: u32::from_le_bytes([m, n, o, p]),
        }
    }

    /// Where it is, and how long, in bytes. Errors: `Invalid` for what no disk has.
    pub(crate) fn bytes(&self) -> Result<(u64, u64)> {
        Ok((byte_of(self.sector)?, u64::from(self.sectors) * SECTOR_BYTES))
    }
}

/// Errors: `Invalid` for a sector that no disk has.
pub(crate) fn byte_of(sector: u64) -> Result<u64> {
    sector.checked_mul(SECTOR_BYTES).ok_or_else(|| Error::new(Kind::Invalid, format!("sector {sector}")))
}

impl GuestSegments {
    /// How many bytes.
    pub(crate) fn len(&self) -> u64 {
        self.0.iter().map(|segment| segment.len).sum()
    }

    /// Goes through them from the first byte on.
    pub(crate) fn cursor<'a>(&'a self, memory: &'a GuestMemoryMmap) -> GuestCursor<'a> {
        GuestCursor { memory, rest: &self.0, at: 0 }
    }

    /// Takes off the last byte, and says where it is.
    fn take_last(&mut self) -> Option<u64> {
        self.0.iter().rposition(|segment| segment.len > 0).map(|at| {
            self.0.truncate(at + 1);
            self.0[at].len -= 1;
            self.0[at].address + self.0[at].len
        })
    }

    /// Takes off the first bytes, or as many as there are.
    fn split_off_first(&mut self, mut bytes: u64) -> GuestSegments {
        let mut first = Vec::new();
        for segment in &mut self.0 {
            let len = segment.len.min(bytes);
            first.push(GuestSegment { address: segment.address, len });
            // within memory: it was checked
            segment.address += len;
            segment.len -= len;
            bytes -= len;
        }
        GuestSegments(first)
    }
}

/// A place in segments.
pub(crate) struct GuestCursor<'a> {
    memory: &'a GuestMemoryMmap,
    rest: &'a [GuestSegment],
    /// In the first of them.
    at: u64,
}

impl GuestCursor<'_> {
    /// The next bytes, copied out. Errors: `Corrupt` if there are fewer.
    pub(crate) fn get(&mut self, mut to: &mut [u8]) -> Result<()> {
        while !to.is_empty() {
            let (address, len) = self.next(to.len())?;
            let (part, rest) = to.split_at_mut(len);
            self.memory.read_slice(part, address).map_err(gone)?;
            to = rest;
        }
        Ok(())
    }

    /// Copies bytes in. Errors: `Corrupt` if there is no room for all.
    pub(crate) fn put(&mut self, mut from: &[u8]) -> Result<()> {
        while !from.is_empty() {
            let (address, len) = self.next(from.len())?;
            let (part, rest) = from.split_at(len);
            self.memory.write_slice(part, address).map_err(gone)?;
            from = rest;
        }
        Ok(())
    }

    /// Where the next bytes are, and how many of them, one at least.
    fn next(&mut self, wanted: usize) -> Result<(GuestAddress, usize)> {
        loop {
            let first = self.rest.first().ok_or_else(|| Error::corrupt("fewer bytes than a request needs"))?;
            let len = usize::try_from(first.len - self.at).unwrap_or(usize::MAX).min(wanted);
            if len == 0 {
                (self.rest, self.at) = (&self.rest[1..], 0);
                continue;
            }
            let address = GuestAddress(first.address + self.at);
            self.at += len as u64;
            return Ok((address, len));
        }
    }
}

/// The monitor has given another memory meanwhile.
fn gone(error: vm_memory::GuestMemoryError) -> Error {
    Error::corrupt(format!("memory of a guest: {error}"))
}
