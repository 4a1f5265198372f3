//! Redaction lists: what a redacted send leaves out of a snapshot, kept in an object beside a redaction bookmark.
//!
//! ```text
//!   head, in the bonus buffer, or in a spill block if it is too long for that:
//!     0 object that was looked at last | 8 its block | 16 ranges | 24 snapshots | 32 a guid each, u64
//!   data: ranges, 32 bytes each, by object and block
//!     0 object | 8 first block | 16 sectors of a block (16 bits) and blocks less one (48 bits) | 24 unused
//! ```
//!
//! A list is complete when the object and the block that were looked at last are the highest numbers.

use base::{Endian, Error, Reader, Result};

use crate::ids::{Guid, ObjectId};

/// Bytes of the head without guids.
const HEAD_SIZE: usize = 32;
/// Bits of the number of blocks of a range.
const COUNT_BITS: u32 = 48;
const SECTOR_SHIFT: u32 = 9;

/// The head of a redaction list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedactionHead {
    /// The object that was looked at last, and its block: from there on a list that is not complete goes on.
    pub last: (ObjectId, u64),
    /// How many ranges the list has.
    pub ranges: u64,
    /// Guids of the snapshots that it was made for.
    pub snapshots: Vec<Guid>,
}

impl RedactionHead {
    /// What [`RedactionHead::last`] is of a complete list.
    pub const COMPLETE: (ObjectId, u64) = (ObjectId::LAST, u64::MAX);

    /// Bytes of the head of a list for so many snapshots.
    pub fn size(snapshots: usize) -> usize {
        HEAD_SIZE + 8 * snapshots
    }

    /// Reads a head. Errors: `Corrupt` if it ends early.
    pub fn parse(bytes: &[u8]) -> Result<RedactionHead> {
        let mut r = Reader::new(bytes, Endian::Little);
        let (last, ranges, count) = ((ObjectId::new(r.u64()?), r.u64()?), r.u64()?, r.u64()?);
        if count > (bytes.len() / 8) as u64 {
            return Err(Error::corrupt(format!("a redaction list of {count} snapshots in {} bytes", bytes.len())));
        }
        let snapshots = (0..count).map(|_| r.u64().map(Guid::new)).collect::<Result<Vec<Guid>>>()?;
        Ok(RedactionHead { last, ranges, snapshots })
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let words = [self.last.0.get(), self.last.1, self.ranges, self.snapshots.len() as u64];
        let snapshots = self.snapshots.iter().map(|guid| guid.get());
        words.into_iter().chain(snapshots).flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Whether all that is to be redacted is in the list.
    pub fn is_complete(&self) -> bool {
        self.last == RedactionHead::COMPLETE
    }

    /// Whether it was made for these snapshots, in any order.
    pub fn is_for(&self, snapshots: &[Guid]) -> bool {
        self.snapshots.len() == snapshots.len() && snapshots.iter().all(|guid| self.snapshots.contains(guid))
    }
}

/// Blocks of an object that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedactedRange {
    /// The object.
    pub object: ObjectId,
    /// Number of the first block.
    pub first: u64,
    /// Number of the last block.
    pub last: u64,
    /// Bytes of a block.
    pub block_size: u64,
}

impl RedactedRange {
    /// Bytes of a range.
    pub const SIZE: usize = 32;
    /// Blocks of a range at most.
    pub const BLOCKS_MAX: u64 = 1 << COUNT_BITS;

    /// Reads a range. Errors: `Corrupt` if it ends early, or reaches beyond the last number.
    pub fn parse(bytes: &[u8]) -> Result<RedactedRange> {
        let mut r = Reader::new(bytes, Endian::Little);
        let (object, first, packed) = (ObjectId::new(r.u64()?), r.u64()?, r.u64()?);
        let more = packed & (RedactedRange::BLOCKS_MAX - 1);
        let last = first.checked_add(more);
        let last = last.ok_or_else(|| Error::corrupt(format!("{more} redacted blocks behind block {first}")))?;
        Ok(RedactedRange { object, first, last, block_size: (packed >> COUNT_BITS) << SECTOR_SHIFT })
    }

    /// Its bytes. A range of more than [`RedactedRange::BLOCKS_MAX`] blocks, or of larger blocks than there are, loses
    /// the upper bits of these numbers.
    pub fn to_bytes(&self) -> [u8; RedactedRange::SIZE] {
        let more = self.last.saturating_sub(self.first) & (RedactedRange::BLOCKS_MAX - 1);
        let packed = (self.block_size >> SECTOR_SHIFT) << COUNT_BITS | more;
        let mut bytes = [0; RedactedRange::SIZE];
        for (place, word) in bytes.chunks_exact_mut(8).zip([self.object.get(), self.first, packed]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let head =
            RedactionHead { last: (ObjectId::new(7), 9), ranges: 3, snapshots: [1, u64::MAX].map(Guid::new).to_vec() };
        assert_eq!(head.to_bytes().len(), RedactionHead::size(2));
        assert_eq!(RedactionHead::parse(&head.to_bytes()).unwrap(), head);
        assert!(
            !head.is_complete()
                && head.is_for(&[Guid::new(u64::MAX), Guid::new(1)])
                && !head.is_for(&[Guid::new(1)])
                && !head.is_for(&[Guid::new(1), Guid::new(2)])
        );
        for range in [
            RedactedRange { object: ObjectId::new(1), first: 0, last: 0, block_size: 512 },
            RedactedRange {
                object: ObjectId::new(9),
                first: 5,
                last: 5 + RedactedRange::BLOCKS_MAX - 1,
                block_size: 16 << 20,
            },
        ] {
            assert_eq!(RedactedRange::parse(&range.to_bytes()).unwrap(), range);
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let mut head = RedactionHead { snapshots: vec![Guid::new(1)], ..RedactionHead::default() }.to_bytes();
        assert!(RedactionHead::parse(&head[..HEAD_SIZE + 7]).is_err());
        head[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(RedactionHead::parse(&head).is_err());
        let mut range =
            RedactedRange { object: ObjectId::new(1), first: u64::MAX, last: u64::MAX, block_size: 512 }.to_bytes();
        assert!(RedactedRange::parse(&range).is_ok());
        range[16] = 1;
        assert!(RedactedRange::parse(&range).is_err());
    }
}
