//! Tables of cloned blocks, one for each top-level vdev: their headers.
//!
//! ```text
//!   bonus     entries' ZAP | words of contents | byte order | entries | bytes of a range | used | saved
//!   contents  16 bits for each range of the vdev: entries in it
//!   ZAP       offset ──▶ further pointers: a number, or before feature block_cloning_endian eight bytes
//! ```
//!
//! Source: OpenZFS's behaviour, and its description of the feature block_cloning.

use base::{Endian, Error, Reader, Result};
use dmu::Object;
use dmu::zap::ZapValue;
use format::ids::{ObjectId, VdevNumber};

/// Before the number of a vdev in the name of its table in the object directory.
pub(crate) const CLONES_PREFIX: &str = "com.fudosecurity:brt:vdev:";
/// Words of a header.
const WORDS: usize = 7;

/// The header of a vdev's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CloneHeader {
    /// Object of the entries.
    pub(crate) entries: ObjectId,
    /// Ranges that the contents count entries of.
    pub(crate) ranges: u64,
    /// Byte order of the contents, and of entries that are bytes.
    pub(crate) endian: Endian,
    /// Number of entries.
    pub(crate) count: u64,
    /// Bytes of a range.
    pub(crate) range_bytes: u64,
    /// Bytes of the cloned blocks.
    pub(crate) used_bytes: u64,
    /// Bytes that their further pointers save.
    pub(crate) saved_bytes: u64,
}

/// The name of a vdev's table.
pub(crate) fn header_name(vdev: VdevNumber) -> String {
    format!("{CLONES_PREFIX}{vdev}")
}

impl CloneHeader {
    /// Errors: `Corrupt`.
    pub(crate) fn of(object: &Object) -> Result<CloneHeader> {
        let mut r = Reader::new(object.bonus(), Endian::Little);
        let (entries, ranges) = (ObjectId::new(r.u64()?), r.u64()?);
        let endian = if r.u64()? == 0 { Endian::Little } else { Endian::Big };
        let (count, range_bytes) = (r.u64()?, r.u64()?);
        if entries.is_none() || range_bytes == 0 {
            return Err(Error::corrupt("header of a clone table without entries or ranges"));
        }
        Ok(CloneHeader { entries, ranges, endian, count, range_bytes, used_bytes: r.u64()?, saved_bytes: r.u64()? })
    }

    /// As it is stored.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let order = u64::from(self.endian == Endian::Big);
        let words: [u64; WORDS] =
            [self.entries.get(), self.ranges, order, self.count, self.range_bytes, self.used_bytes, self.saved_bytes];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// The further pointers that an entry tells of. Errors: `Corrupt`.
pub(crate) fn count_of(value: &ZapValue, endian: Endian) -> Result<u64> {
    let count = if value.width() == 1 { endian.u64(value.bytes()) } else { value.first_u64() };
    count.ok_or_else(|| Error::corrupt("entry of a clone table without a count"))
}

/// An entry of the same form as `like`.
pub(crate) fn value_like(like: &ZapValue, count: u64, endian: Endian) -> ZapValue {
    match (like.width(), endian) {
        (1, Endian::Little) => ZapValue::of_bytes(&count.to_le_bytes()),
        (1, Endian::Big) => ZapValue::of_bytes(&count.to_be_bytes()),
        _ => ZapValue::one(count),
    }
}
