//! The messages of vhost-user.
//!
//! ```text
//!   request u32 | flags u32 (version, reply, a reply is wanted) | size u32 | payload
//! ```
//!
//! All numbers are little-endian here, as guests of other byte orders are not served. Addresses of rings are those of the
//! monitor's own memory; regions say how they become addresses of the guest.

use base::{Endian, Error, Reader, Result};

/// Bytes of the head of a message.
pub(crate) const HEAD_BYTES: usize = 12;
/// Longest payload that is taken.
pub(crate) const PAYLOAD_BYTES_MAX: u32 = 4096;
/// Regions of memory that a monitor may have.
pub(crate) const REGIONS_MAX: usize = 8;
/// Bytes of the configuration of a device.
pub(crate) const CONFIG_BYTES_MAX: u32 = 256;

const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;
/// Of the numbers of rings beside descriptors: there is none.
const NO_DESCRIPTOR: u64 = 1 << 8;
const RING_MASK: u64 = 0xff;
/// The message by which a device says that its configuration is another.
const CONFIG_CHANGED: u32 = 2;

/// Features of the protocol itself.
pub(crate) mod protocol_feature {
    pub(crate) const MQ: u64 = 1;
    pub(crate) const REPLY_ACK: u64 = 1 << 3;
    pub(crate) const BACKEND_REQ: u64 = 1 << 5;
    pub(crate) const CONFIG: u64 = 1 << 9;
    pub(crate) const INFLIGHT_SHMFD: u64 = 1 << 12;
}

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VhostHead {
    pub(crate) request: u32,
    pub(crate) wants_reply: bool,
    pub(crate) size: u32,
}

/// A region of a guest's memory; its file comes beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegionPlace {
    /// Where the guest sees it.
    pub(crate) guest: u64,
    pub(crate) size: u64,
    /// Where the monitor has it.
    pub(crate) monitor: u64,
    /// Where it is in its file.
    pub(crate) offset: u64,
}

/// Where a ring's three parts are, in the monitor's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingPlaces {
    pub(crate) descriptors: u64,
    pub(crate) used: u64,
    pub(crate) available: u64,
}

/// Where it is told what is in flight; its file comes beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InflightPlace {
    pub(crate) bytes: u64,
    /// Where it is in its file.
    pub(crate) offset: u64,
    pub(crate) rings: u16,
    pub(crate) entries: u16,
    /// Whether the monitor has it in whole words.
    pub(crate) is_padded: bool,
}

/// What the monitor says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum VhostMessage {
    GetFeatures,
    SetFeatures(u64),
    SetOwner,
    /// The rings stop; the device is as new.
    Reset,
    SetMemTable(Vec<RegionPlace>),
    SetRingSize(u32, u32),
    SetRingPlaces(u32, RingPlaces),
    SetRingBase(u32, u32),
    GetRingBase(u32),
    /// By what the guest tells of new requests; false: there is no descriptor.
    SetRingKick(u32, bool),
    /// By what the guest is told of answers.
    SetRingCall(u32, bool),
    /// By what the monitor is told that a ring makes no sense.
    SetRingError(u32, bool),
    GetProtocolFeatures,
    SetProtocolFeatures(u64),
    GetQueueNum,
    EnableRing(u32, bool),
    SetBackendChannel,
    GetConfig(ConfigRange),
    SetConfig(ConfigRange, Vec<u8>),
    /// A new place for what is in flight.
    GetInflight(InflightPlace),
    /// What is in flight.
    SetInflight(InflightPlace),
}

/// A part of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConfigRange {
    pub(crate) offset: u32,
    pub(crate) size: u32,
    pub(crate) flags: u32,
}

impl VhostHead {
    /// Errors: `Corrupt`: nothing that follows makes sense then.
    pub(crate) fn parse(bytes: &[u8; HEAD_BYTES]) -> Result<VhostHead> {
        let mut r = Reader::new(bytes, Endian::Little);
        let (request, flags, size) = (r.u32()?, r.u32()?, r.u32()?);
        if flags & VERSION_MASK != VERSION || flags & REPLY != 0 {
            return Err(Error::corrupt(format!("a message of vhost-user with flags {flags:#x}")));
        }
        if size > PAYLOAD_BYTES_MAX {
            return Err(Error::corrupt(format!("a message of vhost-user of {size} bytes")));
        }
        Ok(VhostHead { request, wants_reply: flags & NEED_REPLY != 0, size })
    }
}

impl VhostMessage {
    /// Errors: `Unsupported` for one that is not known, `Corrupt` for a payload that makes no sense.
    pub(crate) fn parse(request: u32, payload: &[u8]) -> Result<VhostMessage> {
        let mut r = Reader::new(payload, Endian::Little);
        let message = match request {
            1 => VhostMessage::GetFeatures,
            2 => VhostMessage::SetFeatures(r.u64()?),
            3 => VhostMessage::SetOwner,
            4 | 34 => VhostMessage::Reset,
            5 => VhostMessage::SetMemTable(regions(&mut r)?),
            8 => VhostMessage::SetRingSize(r.u32()?, r.u32()?),
            9 => {
                // flags are of logs, of which there are none
                let (ring, _) = (r.u32()?, r.u32()?);
                let places = RingPlaces { descriptors: r.u64()?, used: r.u64()?, available: r.u64()? };
                r.u64()?;
                VhostMessage::SetRingPlaces(ring, places)
            }
            10 => VhostMessage::SetRingBase(r.u32()?, r.u32()?),
            11 => {
                let ring = r.u32()?;
                r.u32()?;
                VhostMessage::GetRingBase(ring)
            }
            12..=14 => {
                let number = r.u64()?;
                let (ring, has) = ((number & RING_MASK) as u32, number & NO_DESCRIPTOR == 0);
                match request {
                    12 => VhostMessage::SetRingKick(ring, has),
                    13 => VhostMessage::SetRingCall(ring, has),
                    _ => VhostMessage::SetRingError(ring, has),
                }
            }
            15 => VhostMessage::GetProtocolFeatures,
            16 => VhostMessage::SetProtocolFeatures(r.u64()?),
            17 => VhostMessage::GetQueueNum,
            18 => VhostMessage::EnableRing(r.u32()?, r.u32()? != 0),
            21 => VhostMessage::SetBackendChannel,
            24 | 25 => {
                let range = ConfigRange { offset: r.u32()?, size: r.u32()?, flags: r.u32()? };
                let bytes = r.take(r.rest().len())?;
                let is_within = range.offset.checked_add(range.size).is_some_and(|end| end <= CONFIG_BYTES_MAX);
                if !is_within || bytes.len() != range.size as usize {
                    return Err(Error::corrupt(format!(
                        "configuration from {} on, {} bytes",
                        range.offset, range.size
                    )));
                }
                match request {
                    24 => VhostMessage::GetConfig(range),
                    _ => VhostMessage::SetConfig(range, bytes.to_vec()),
                }
            }
            31 => VhostMessage::GetInflight(InflightPlace::parse(&mut r)?),
            32 => VhostMessage::SetInflight(InflightPlace::parse(&mut r)?),
            other => return Err(Error::new(base::Kind::Unsupported, format!("message {other} of vhost-user"))),
        };
        if r.rest().is_empty() { Ok(message) } else { Err(Error::corrupt("bytes behind the end of a message")) }
    }
}

fn regions(r: &mut Reader<'_>) -> Result<Vec<RegionPlace>> {
    let (count, _) = (r.u32()? as usize, r.u32()?);
    if count == 0 || count > REGIONS_MAX {
        return Err(Error::corrupt(format!("{count} regions of memory")));
    }
    (0..count)
        .map(|_| Ok(RegionPlace { guest: r.u64()?, size: r.u64()?, monitor: r.u64()?, offset: r.u64()? }))
        .collect()
}

impl InflightPlace {
    fn parse(r: &mut Reader<'_>) -> Result<InflightPlace> {
        let (bytes, offset, rings, entries) = (r.u64()?, r.u64()?, r.u16()?, r.u16()?);
        let is_padded = !r.rest().is_empty();
        if is_padded {
            r.u32()?;
        }
        Ok(InflightPlace { bytes, offset, rings, entries, is_padded })
    }

    /// As a monitor reads it.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = [self.bytes, self.offset].map(u64::to_le_bytes).concat();
        bytes.extend([self.rings, self.entries].iter().flat_map(|number| number.to_le_bytes()));
        bytes.resize(bytes.len() + if self.is_padded { 4 } else { 0 }, 0);
        bytes
    }
}

/// A reply to a message.
pub(crate) fn reply(request: u32, payload: &[u8]) -> Vec<u8> {
    bytes_of(request, VERSION | REPLY, payload)
}

/// Says that the configuration is another.
pub(crate) fn config_changed() -> Vec<u8> {
    bytes_of(CONFIG_CHANGED, VERSION, &[])
}

fn bytes_of(request: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + payload.len());
    [request, flags, payload.len() as u32].iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    bytes.extend(payload);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(request: u32, flags: u32, size: u32) -> Result<VhostHead> {
        VhostHead::parse([request, flags, size].map(u32::to_le_bytes).concat()[..].try_into().unwrap())
    }

    #[test]
    fn heads_are_what_they_say() {
        assert_eq!(head(5, 1, 9).unwrap(), VhostHead { request: 5, wants_reply: false, size: 9 });
        assert!(head(5, 9, 0).unwrap().wants_reply);
        for (flags, size) in [(0, 0), (2, 0), (5, 0), (1, PAYLOAD_BYTES_MAX + 1), (1, u32::MAX)] {
            assert!(head(1, flags, size).is_err(), "{flags} {size}");
        }
    }

    #[test]
    fn payloads_are_what_they_say() {
        let numbers = |numbers: &[u64]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
        let table = numbers(&[1, 0, 4096, 0x7f00_0000, 8192]);
        let region = RegionPlace { guest: 0, size: 4096, monitor: 0x7f00_0000, offset: 8192 };
        assert_eq!(VhostMessage::parse(5, &table).unwrap(), VhostMessage::SetMemTable(vec![region]));
        for len in 0..table.len() {
            assert!(VhostMessage::parse(5, &table[..len]).is_err(), "{len}");
        }
        assert!(VhostMessage::parse(5, &numbers(&[9])).is_err() && VhostMessage::parse(5, &numbers(&[0])).is_err());
        assert!(VhostMessage::parse(5, &[&table[..], &[0]].concat()).is_err(), "more than it says");

        assert_eq!(VhostMessage::parse(12, &numbers(&[0x102])).unwrap(), VhostMessage::SetRingKick(2, false));
        assert_eq!(VhostMessage::parse(13, &numbers(&[2])).unwrap(), VhostMessage::SetRingCall(2, true));
        let config = |offset: u32, size: u32, len: usize| {
            let head = [offset, size, 0].map(u32::to_le_bytes).concat();
            VhostMessage::parse(24, &[&head[..], &vec![0; len]].concat())
        };
        assert!(config(0, 60, 60).is_ok() && config(196, 60, 60).is_ok());
        for (offset, size, len) in [(0, 60, 59), (197, 60, 60), (u32::MAX, 60, 60), (0, 300, 300)] {
            assert!(config(offset, size, len).is_err(), "{offset} {size} {len}");
        }
        assert_eq!(VhostMessage::parse(26, &[]).unwrap_err().kind(), base::Kind::Unsupported);

        let place = InflightPlace { bytes: 4096, offset: 8192, rings: 2, entries: 128, is_padded: true };
        for place in [place, InflightPlace { is_padded: false, ..place }] {
            let bytes = place.to_bytes();
            assert_eq!(bytes.len(), if place.is_padded { 24 } else { 20 });
            assert_eq!(VhostMessage::parse(31, &bytes).unwrap(), VhostMessage::GetInflight(place));
            assert_eq!(VhostMessage::parse(32, &bytes).unwrap(), VhostMessage::SetInflight(place));
        }
        for len in (0..30).filter(|len| ![20, 24].contains(len)) {
            assert!(VhostMessage::parse(31, &vec![1; len]).is_err(), "{len}");
        }
    }
}
