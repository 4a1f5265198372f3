//! One record of a stream: its fields by kind, checked.
//!
//! ```text
//!   BEGIN        magic u64 | version u64 | creation time u64 | object set type u32 | flags u32 | to guid u64 |
//!                from guid u64 | name 256           version: 2 bits (1 one snapshot, 2 package), 30 bits of features
//!   OBJECT       object u64 | type u32 | bonus type u32 | block size u32 | bonus length u32 | checksum u8 |
//!                compression u8 | slots u8 | flags u8 | raw bonus length u32 | to guid u64 | indirect shift u8 |
//!                levels u8 | pointers u8 | 0 5 | last block u64                         and the bonus buffer
//!   FREEOBJECTS  first u64 | count u64 | to guid u64
//!   WRITE        object u64 | type u32 | 0 u32 | offset u64 | size u64 | to guid u64 | checksum u8 | flags u8 |
//!                compression u8 | 0 5 | key 40 | compressed size u64 | salt 8 | iv 12 | mac 16    and the data
//!   FREE         object u64 | offset u64 | length u64 | to guid u64
//!   END          sum of all before 32 | to guid u64
//!   WRITE_BYREF  object u64 | offset u64 | length u64 | to guid u64 | guid of a snapshot u64 | its object u64 |
//!                offset there u64 | checksum u8 | flags u8 | 0 6 | key 40
//!   SPILL        object u64 | length u64 | to guid u64 | flags u8 | compression u8 | 0 6 | compressed size u64 |
//!                salt 8 | iv 12 | mac 16 | type u32                                     and the block
//!   WRITE_EMBEDDED  object u64 | offset u64 | length u64 | to guid u64 | compression u8 | type u8 | 0 6 |
//!                size u32 | compressed size u32                               and the data, to 8 bytes
//!   REDACT       as FREE
//! ```

use base::{Endian, Error, Kind, Reader, Result};

use super::fields::{StreamBegin, StreamEmbedded, StreamObject, StreamReference, StreamSpill, StreamWrite};
use super::{LIST_BYTES_MAX, MAGIC, StreamFeatures};
use crate::blkptr::{BLOCK_SIZE_MAX, BLOCK_SIZE_MIN, BlkPtr};
use crate::dnode::{DNODE_SIZE_MAX, SLOT_SIZE};
use crate::ids::{Guid, ObjectId};
use crate::object_type::ObjectType;

/// Bytes of a record.
pub const RECORD_SIZE: usize = 312;
/// Where the sum is.
pub const SUM_OFFSET: usize = RECORD_SIZE - 32;
/// Bytes of the name in BEGIN.
const NAME_SIZE: usize = 256;
/// Object numbers are smaller.
const OBJECT_END: u64 = 1 << 48;
/// Numbers of checksums and compressions are smaller.
const CHECKSUMS: u8 = 15;
const COMPRESSIONS: u8 = 17;
/// Bytes before the block pointers of a dnode, with the one that each has.
const DNODE_HEAD: usize = 64 + BlkPtr::SIZE;
/// Bytes of a block before there were large ones.
const OLD_BLOCK_SIZE_MAX: u64 = 128 << 10;

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRecord {
    /// What it says.
    pub fields: RecordFields,
    /// Guid of the snapshot that is sent; 0 at the end of a package.
    pub to_guid: Guid,
    /// The sum of the stream up to it; 0 in BEGIN, and in END of a package.
    pub sum: [u64; 4],
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // see the drawing
pub enum RecordFields {
    Begin(StreamBegin),
    Object(StreamObject),
    FreeObjects {
        first: ObjectId,
        count: u64,
    },
    Write(StreamWrite),
    /// Up to the end of the object if `len` is the largest number.
    Free {
        object: ObjectId,
        offset: u64,
        len: u64,
    },
    End {
        sum: [u64; 4],
    },
    WriteByReference(StreamReference),
    Spill(StreamSpill),
    Embedded(StreamEmbedded),
    /// Of raw streams.
    ObjectRange,
    Redact {
        object: ObjectId,
        offset: u64,
        len: u64,
    },
}

impl StreamRecord {
    /// Checks a record. Errors: `Corrupt`.
    pub fn parse(bytes: &[u8; RECORD_SIZE], endian: Endian) -> Result<StreamRecord> {
        let mut r = Reader::new(bytes, endian);
        let (kind, list_len) = (r.u32()?, r.u32()?);
        let (fields, to_guid) = match kind {
            0 => begin(&mut r, list_len)?,
            1 => object(&mut r)?,
            2 => {
                let (first, count) = (r.u64()?, r.u64()?);
                check(first.checked_add(count).is_some(), "objects beyond the last number")?;
                (RecordFields::FreeObjects { first: ObjectId::new(first), count }, guid(&mut r)?)
            }
            3 => write(&mut r)?,
            4 | 10 => {
                let (object, offset, len) = (number_of(r.u64()?)?, r.u64()?, r.u64()?);
                check(len == u64::MAX || offset.checked_add(len).is_some(), "a range beyond the last offset")?;
                let of = |kind| match kind {
                    4 => RecordFields::Free { object, offset, len },
                    _ => RecordFields::Redact { object, offset, len },
                };
                (of(kind), guid(&mut r)?)
            }
            5 => (RecordFields::End { sum: sum(&mut r)? }, guid(&mut r)?),
            6 => reference(&mut r)?,
            7 => spill(&mut r)?,
            8 => embedded(&mut r)?,
            9 => (RecordFields::ObjectRange, Guid::NONE),
            _ => return Err(wrong("a record of no known kind")),
        };
        let sum = match fields {
            RecordFields::Begin(_) => [0; 4],
            _ => sum(&mut Reader::new(&bytes[SUM_OFFSET..], endian))?,
        };
        Ok(StreamRecord { fields, to_guid, sum })
    }

    /// Bytes that follow it.
    pub fn payload_len(&self) -> usize {
        match &self.fields {
            RecordFields::Begin(begin) => begin.list_len as usize,
            RecordFields::Object(object) if object.raw_bonus_len > 0 => object.raw_bonus_len as usize,
            RecordFields::Object(object) => object.bonus_len.next_multiple_of(8),
            RecordFields::Write(write) if write.compress != 0 => write.compressed_len as usize,
            RecordFields::Write(write) => write.len as usize,
            RecordFields::Spill(spill) if spill.compressed_len > 0 => spill.compressed_len as usize,
            RecordFields::Spill(spill) => spill.len as usize,
            RecordFields::Embedded(embedded) => embedded.psize.next_multiple_of(8) as usize,
            _ => 0,
        }
    }

    /// The record, little-endian.
    pub fn to_bytes(&self) -> [u8; RECORD_SIZE] {
        let mut out = RecordBytes(Vec::with_capacity(RECORD_SIZE));
        let list_len = if let RecordFields::Begin(begin) = &self.fields { begin.list_len } else { 0 };
        out.u32(kind_of(&self.fields)).u32(list_len);
        match &self.fields {
            RecordFields::Begin(begin) => put_begin(&mut out, begin, self.to_guid),
            RecordFields::Object(object) => put_object(&mut out, object, self.to_guid),
            RecordFields::FreeObjects { first, count } => out.object(*first).u64(*count).guid(self.to_guid).end(),
            RecordFields::Write(write) => put_write(&mut out, write, self.to_guid),
            RecordFields::Free { object, offset, len } | RecordFields::Redact { object, offset, len } => {
                out.object(*object).u64(*offset).u64(*len).guid(self.to_guid).end();
            }
            RecordFields::End { sum } => out.u64s(sum).guid(self.to_guid).end(),
            RecordFields::Spill(spill) => {
                let flags = if spill.is_unmodified { SPILL_UNMODIFIED } else { 0 };
                out.object(spill.object).u64(spill.len).guid(self.to_guid).bytes(&[flags, 0, 0, 0, 0, 0, 0, 0]).end();
            }
            RecordFields::Embedded(one) => {
                out.object(one.object).u64(one.offset).u64(one.len).guid(self.to_guid);
                out.bytes(&[one.compress, one.kind, 0, 0, 0, 0, 0, 0]).u32(one.lsize).u32(one.psize).end();
            }
            RecordFields::WriteByReference(one) => {
                out.object(one.object).u64(one.offset).u64(one.len).guid(self.to_guid);
                out.guid(one.from_guid).object(one.from_object).u64(one.from_offset).end();
            }
            RecordFields::ObjectRange => {}
        }
        out.0.resize(RECORD_SIZE, 0);
        let mut bytes = [0; RECORD_SIZE];
        bytes.copy_from_slice(&out.0);
        if !matches!(self.fields, RecordFields::Begin(_)) {
            for (word, at) in self.sum.iter().zip((SUM_OFFSET..).step_by(8)) {
                bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
        }
        bytes
    }
}

const OBJECT_SPILL: u8 = 1 << 2;
const SPILL_UNMODIFIED: u8 = 1 << 2;
const WRITE_DEDUP_SUM: u8 = 1 << 0;

fn kind_of(fields: &RecordFields) -> u32 {
    match fields {
        RecordFields::Begin(_) => 0,
        RecordFields::Object(_) => 1,
        RecordFields::FreeObjects { .. } => 2,
        RecordFields::Write(_) => 3,
        RecordFields::Free { .. } => 4,
        RecordFields::End { .. } => 5,
        RecordFields::WriteByReference(_) => 6,
        RecordFields::Spill(_) => 7,
        RecordFields::Embedded(_) => 8,
        RecordFields::ObjectRange => 9,
        RecordFields::Redact { .. } => 10,
    }
}

fn wrong(what: &'static str) -> Error {
    Error::new(Kind::Corrupt, format!("invalid stream: {what}"))
}

fn check(is_right: bool, what: &'static str) -> Result<()> {
    if is_right { Ok(()) } else { Err(wrong(what)) }
}

fn number_of(object: u64) -> Result<ObjectId> {
    check((1..OBJECT_END).contains(&object), "an object of an impossible number").map(|()| ObjectId::new(object))
}

fn type_of(number: u32) -> Result<ObjectType> {
    let object_type = u8::try_from(number).ok().map(ObjectType).filter(|kind| kind.is_valid());
    object_type.ok_or_else(|| wrong("an object of no known type"))
}

fn guid(r: &mut Reader<'_>) -> Result<Guid> {
    r.u64().map(Guid::new)
}

fn sum(r: &mut Reader<'_>) -> Result<[u64; 4]> {
    Ok([r.u64()?, r.u64()?, r.u64()?, r.u64()?])
}

fn begin(r: &mut Reader<'_>, list_len: u32) -> Result<(RecordFields, Guid)> {
    check(r.u64()? == MAGIC, "bad magic number")?;
    let version = r.u64()?;
    let (creation_time_s, objset_type, flags) = (r.u64()?, r.u32()?, r.u32()?);
    let (to_guid, from_guid) = (guid(r)?, guid(r)?);
    let name = r.take(NAME_SIZE)?;
    let end = name.iter().position(|byte| *byte == 0);
    let name = end.and_then(|end| std::str::from_utf8(&name[..end]).ok());
    let name = name.ok_or_else(|| wrong("a name without an end"))?.to_owned();
    check(matches!(version & 3, 1 | 2), "neither a stream nor a package")?;
    check(list_len <= LIST_BYTES_MAX, "a list that is too long")?;
    let features = StreamFeatures((version >> 2) as u32 & ((1 << 30) - 1));
    let is_package = version & 3 == 2;
    let begin = StreamBegin { is_package, features, creation_time_s, objset_type, flags, from_guid, name, list_len };
    Ok((RecordFields::Begin(begin), to_guid))
}

fn object(r: &mut Reader<'_>) -> Result<(RecordFields, Guid)> {
    let object = number_of(r.u64()?)?;
    let (object_type, bonus_type) = (type_of(r.u32()?)?, type_of(r.u32()?)?);
    let (block_size, bonus_len) = (u64::from(r.u32()?), r.u32()? as usize);
    let (checksum, compress, slots, flags) = (r.u8()?, r.u8()?, usize::from(r.u8()?).max(1), r.u8()?);
    let raw_bonus_len = r.u32()?;
    let to_guid = guid(r)?;
    check(object_type != ObjectType::NONE, "an object of no type")?;
    check(is_block_size(block_size), "an object with blocks of an impossible size")?;
    check(checksum < CHECKSUMS && compress < COMPRESSIONS, "an object with unknown checksum or compression")?;
    check(slots * SLOT_SIZE <= DNODE_SIZE_MAX, "an object of too many slots")?;
    let room = slots * SLOT_SIZE - DNODE_HEAD;
    check(bonus_len <= room && raw_bonus_len as usize <= room, "a bonus buffer that is too long")?;
    let has_spill = flags & OBJECT_SPILL != 0;
    let object = StreamObject {
        object,
        object_type,
        bonus_type,
        block_size,
        bonus_len,
        checksum,
        compress,
        slots,
        has_spill,
        raw_bonus_len,
    };
    Ok((RecordFields::Object(object), to_guid))
}

fn is_block_size(bytes: u64) -> bool {
    (BLOCK_SIZE_MIN..=BLOCK_SIZE_MAX).contains(&bytes) && bytes.is_multiple_of(BLOCK_SIZE_MIN)
}

fn write(r: &mut Reader<'_>) -> Result<(RecordFields, Guid)> {
    let object = number_of(r.u64()?)?;
    let object_type = type_of(r.u32()?)?;
    r.u32()?;
    let (offset, len, to_guid) = (r.u64()?, r.u64()?, guid(r)?);
    let (checksum, flags, compress) = (r.u8()?, r.u8()?, r.u8()?);
    r.take(5)?;
    let key = [r.u64()?, r.u64()?, r.u64()?, r.u64()?, r.u64()?];
    let compressed_len = r.u64()?;
    check(is_block_size(len), "data of an impossible size")?;
    check(offset.checked_add(len).is_some(), "data beyond the last offset")?;
    check(compress < COMPRESSIONS, "data of unknown compression")?;
    check(compress == 0 || (1..=len).contains(&compressed_len), "compressed data of an impossible size")?;
    let has_dedup_sum = flags & WRITE_DEDUP_SUM != 0;
    let write =
        StreamWrite { object, object_type, offset, len, checksum, has_dedup_sum, compress, key, compressed_len };
    Ok((RecordFields::Write(write), to_guid))
}

fn reference(r: &mut Reader<'_>) -> Result<(RecordFields, Guid)> {
    let (object, offset, len, to_guid) = (number_of(r.u64()?)?, r.u64()?, r.u64()?, guid(r)?);
    let (from_guid, from_object, from_offset) = (guid(r)?, number_of(r.u64()?)?, r.u64()?);
    check(is_block_size(len), "data of an impossible size")?;
    check(offset.max(from_offset).checked_add(len).is_some(), "data beyond the last offset")?;
    let one = StreamReference { object, offset, len, from_guid, from_object, from_offset };
    Ok((RecordFields::WriteByReference(one), to_guid))
}

fn spill(r: &mut Reader<'_>) -> Result<(RecordFields, Guid)> {
    let (object, len, to_guid) = (number_of(r.u64()?)?, r.u64()?, guid(r)?);
    let (flags, _compress) = (r.u8()?, r.u8()?);
    r.take(6)?;
    let compressed_len = r.u64()?;
    check(is_block_size(len) && len <= OLD_BLOCK_SIZE_MAX, "a spill block of an impossible size")?;
    check(compressed_len <= len, "a compressed spill block of an impossible size")?;
    let is_unmodified = flags & SPILL_UNMODIFIED != 0;
    Ok((RecordFields::Spill(StreamSpill { object, len, is_unmodified, compressed_len }), to_guid))
}

fn embedded(r: &mut Reader<'_>) -> Result<(RecordFields, Guid)> {
    let (object, offset, len, to_guid) = (number_of(r.u64()?)?, r.u64()?, r.u64()?, guid(r)?);
    let (compress, kind) = (r.u8()?, r.u8()?);
    r.take(6)?;
    let (lsize, psize) = (r.u32()?, r.u32()?);
    check(psize as usize <= BlkPtr::EMBEDDED_SIZE_MAX, "embedded data that is too long")?;
    check(kind == 0, "embedded data of an unknown kind")?;
    check(compress < COMPRESSIONS, "embedded data of unknown compression")?;
    check(is_block_size(len) && u64::from(lsize) <= len, "an embedded block of an impossible size")?;
    check(offset.checked_add(len).is_some(), "data beyond the last offset")?;
    Ok((RecordFields::Embedded(StreamEmbedded { object, offset, len, compress, kind, lsize, psize }), to_guid))
}

/// A record that grows.
struct RecordBytes(Vec<u8>);

impl RecordBytes {
    fn u32(&mut self, number: u32) -> &mut RecordBytes {
        self.bytes(&number.to_le_bytes())
    }

    fn u64(&mut self, number: u64) -> &mut RecordBytes {
        self.bytes(&number.to_le_bytes())
    }

    fn object(&mut self, object: ObjectId) -> &mut RecordBytes {
        self.u64(object.get())
    }

    fn guid(&mut self, guid: Guid) -> &mut RecordBytes {
        self.u64(guid.get())
    }

    fn u64s(&mut self, numbers: &[u64]) -> &mut RecordBytes {
        numbers.iter().fold(self, |out, number| out.u64(*number))
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut RecordBytes {
        self.0.extend_from_slice(bytes);
        self
    }

    fn end(&mut self) {}
}

fn put_begin(out: &mut RecordBytes, begin: &StreamBegin, to_guid: Guid) {
    let version = u64::from(begin.features.0) << 2 | if begin.is_package { 2 } else { 1 };
    out.u64(MAGIC).u64(version).u64(begin.creation_time_s).u32(begin.objset_type).u32(begin.flags);
    out.guid(to_guid).guid(begin.from_guid);
    // it ends with a zero
    let name = &begin.name.as_bytes()[..begin.name.len().min(NAME_SIZE - 1)];
    out.bytes(name);
}

fn put_object(out: &mut RecordBytes, one: &StreamObject, to_guid: Guid) {
    out.object(one.object).u32(one.object_type.0.into()).u32(one.bonus_type.0.into());
    out.u32(one.block_size as u32).u32(one.bonus_len as u32);
    let flags = if one.has_spill { OBJECT_SPILL } else { 0 };
    out.bytes(&[one.checksum, one.compress, one.slots as u8, flags]).u32(one.raw_bonus_len).guid(to_guid);
}

fn put_write(out: &mut RecordBytes, one: &StreamWrite, to_guid: Guid) {
    let flags = if one.has_dedup_sum { WRITE_DEDUP_SUM } else { 0 };
    out.object(one.object).u32(one.object_type.0.into()).u32(0).u64(one.offset).u64(one.len).guid(to_guid);
    out.bytes(&[one.checksum, flags, one.compress, 0, 0, 0, 0, 0]).u64s(&one.key).u64(one.compressed_len);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<StreamRecord> {
        let begin = StreamBegin {
            is_package: false,
            features: StreamFeatures::SA_SPILL,
            creation_time_s: 7,
            objset_type: 2,
            flags: 12,
            from_guid: Guid::new(5),
            name: "tank/fs@s".to_owned(),
            list_len: 40,
        };
        let file = ObjectType::PLAIN_FILE_CONTENTS;
        let object = StreamObject {
            object: ObjectId::new(9),
            object_type: file,
            bonus_type: ObjectType::SA,
            block_size: 4096,
            bonus_len: 171,
            slots: 2,
            has_spill: true,
            ..StreamObject::default()
        };
        let write = StreamWrite {
            object: ObjectId::new(9),
            object_type: file,
            offset: 4096,
            len: 4096,
            checksum: 7,
            has_dedup_sum: true,
            compress: 15,
            key: [1, 2, 3, 4, 5],
            compressed_len: 512,
        };
        let spill = StreamSpill { object: ObjectId::new(9), len: 512, is_unmodified: true, compressed_len: 0 };
        let embedded = StreamEmbedded {
            object: ObjectId::new(9),
            offset: 0,
            len: 4096,
            compress: 15,
            kind: 0,
            lsize: 4096,
            psize: 77,
        };
        let all = [
            RecordFields::Begin(begin),
            RecordFields::Object(object),
            RecordFields::FreeObjects { first: ObjectId::new(10), count: 22 },
            RecordFields::Write(write),
            RecordFields::Free { object: ObjectId::new(9), offset: 8192, len: u64::MAX },
            RecordFields::End { sum: [9, 8, 7, 6] },
            RecordFields::Spill(spill),
            RecordFields::Embedded(embedded),
            RecordFields::Redact { object: ObjectId::new(9), offset: 0, len: 512 },
            RecordFields::WriteByReference(StreamReference {
                object: ObjectId::new(9),
                len: 512,
                from_object: ObjectId::new(8),
                ..Default::default()
            }),
        ];
        let sum_of =
            |fields: &RecordFields| if matches!(fields, RecordFields::Begin(_)) { [0; 4] } else { [1, 2, 3, 4] };
        all.into_iter().map(|fields| StreamRecord { sum: sum_of(&fields), fields, to_guid: Guid::new(0xabc) }).collect()
    }

    #[test]
    fn records_come_back() {
        for record in records() {
            assert_eq!(StreamRecord::parse(&record.to_bytes(), Endian::Little).unwrap(), record);
        }
        let lens: Vec<usize> = records().iter().map(StreamRecord::payload_len).collect();
        assert_eq!(lens, [40, 176, 0, 512, 0, 0, 512, 80, 0, 0]);
    }

    #[test]
    fn impossible_fields_are_refused() {
        let [begin, object, _, write, ..] = &records()[..] else { panic!() };
        let cases: [(&StreamRecord, usize, u8); 12] = [
            (begin, 0, 11),
            (begin, 8, 0),
            (begin, 16, 3),
            (begin, 7, 0xff),
            (object, 15, 1),
            (object, 16, 60),
            (object, 24, 1),
            (object, 29, 0xff),
            (object, 34, 33),
            (object, 33, 17),
            (write, 32, 1),
            (write, 50, 17),
        ];
        for (record, at, byte) in cases {
            let mut bytes = record.to_bytes();
            bytes[at] = byte;
            assert!(StreamRecord::parse(&bytes, Endian::Little).is_err(), "byte {at} = {byte} of {record:?}");
        }
    }

    /// Whatever byte is changed, nothing panics, and what follows is bounded.
    #[test]
    fn any_bytes_are_parsed_or_refused() {
        for record in records() {
            for at in 0..RECORD_SIZE {
                for byte in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut bytes = record.to_bytes();
                    bytes[at] = byte;
                    for endian in [Endian::Little, Endian::Big] {
                        if let Ok(record) = StreamRecord::parse(&bytes, endian) {
                            assert!(record.payload_len() <= LIST_BYTES_MAX as usize);
                        }
                    }
                }
            }
        }
    }
}
