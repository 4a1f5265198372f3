//! The removal of top-level vdevs: how far one is, where what was there is now, and the condensing of such tables.
//!
//! ```text
//!   com.delphix:removing             state vdev previous start end to-copy copied       previous: all ones if there is none
//!   com.delphix:condensing_indirect  vdev, object of the map of obsolete bytes, object of the next table
//!
//!   table   entries of 24 bytes: | offset / 512 (63 bits) | a DVA: where that is now |
//!           bonus: end of the last entry | bytes in all | number of entries | object of counts
//!   counts  of each entry u32: bytes that nobody needs
//!   births  entries of 16 bytes: | end of what was copied | in which group |     bonus: number of entries
//! ```
//!
//! Words of entries of the directory may be missing at the end: they are 0. Source: `spa_removing_phys_t`,
//! `vdev_indirect_mapping_phys_t`, `vdev_indirect_birth_entry_phys_t` and `spa_condensing_indirect_phys_t` of OpenZFS.

use base::{Endian, Error, Reader, Result};

use crate::blkptr::Dva;
use crate::ids::{ObjectId, VdevNumber};
use crate::object_type::ObjectType;
use crate::scan::ScanState;

/// Entry of the object directory that tells of the last removal.
pub const REMOVING: &str = "com.delphix:removing";
/// Entry of the object directory while a table is being condensed.
pub const CONDENSING: &str = "com.delphix:condensing_indirect";
/// The type of tables, and of births.
pub const TABLE_TYPE: ObjectType = ObjectType(0xc3);
/// The type of objects of counts.
pub const COUNTS_TYPE: ObjectType = ObjectType(0xc2);

/// The last removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // see the drawing
pub struct RemovalPhys {
    pub state: ScanState,
    /// Number of the vdev.
    pub vdev: VdevNumber,
    /// The vdev that was removed last.
    pub previous: Option<VdevNumber>,
    pub start_s: u64,
    pub end_s: u64,
    pub to_copy_bytes: u64,
    pub copied_bytes: u64,
}

impl RemovalPhys {
    /// From the words of the entry; `None` if there has been no removal.
    pub fn parse(words: &[u64]) -> Option<RemovalPhys> {
        let word = |at: usize| words.get(at).copied().unwrap_or(0);
        let state = match word(0) {
            1 => ScanState::Running,
            2 => ScanState::Finished,
            3 => ScanState::Canceled,
            _ => return None,
        };
        Some(RemovalPhys {
            state,
            vdev: VdevNumber::new(word(1)),
            previous: Some(word(2)).filter(|&previous| previous != u64::MAX).map(VdevNumber::new),
            start_s: word(3),
            end_s: word(4),
            to_copy_bytes: word(5),
            copied_bytes: word(6),
        })
    }

    /// The words.
    pub fn words(&self) -> [u64; 7] {
        let state = match self.state {
            ScanState::Running => 1,
            ScanState::Finished => 2,
            ScanState::Canceled => 3,
        };
        let previous = self.previous.map_or(u64::MAX, VdevNumber::get);
        [state, self.vdev.get(), previous, self.start_s, self.end_s, self.to_copy_bytes, self.copied_bytes]
    }
}

/// A table that is being condensed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CondensingPhys {
    /// Number of the vdev.
    pub vdev: VdevNumber,
    /// The map of obsolete bytes that the next table does without.
    pub obsolete_map: ObjectId,
    /// The next table.
    pub next_table: ObjectId,
}

impl CondensingPhys {
    /// From the words of the entry. Errors: an object is missing.
    pub fn parse(words: &[u64]) -> Result<CondensingPhys> {
        match *words {
            [vdev, obsolete_map, next_table, ..] if obsolete_map != 0 && next_table != 0 => {
                let [obsolete_map, next_table] = [obsolete_map, next_table].map(ObjectId::new);
                Ok(CondensingPhys { vdev: VdevNumber::new(vdev), obsolete_map, next_table })
            }
            _ => Err(Error::corrupt("the condensing of a table of a removed device lacks an object")),
        }
    }

    /// The words.
    pub fn words(&self) -> [u64; 3] {
        [self.vdev.get(), self.obsolete_map.get(), self.next_table.get()]
    }
}

/// The bonus buffer of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableHeader {
    /// Where the last entry ends, bytes of the vdev.
    pub end: u64,
    /// The sum of all entries, bytes.
    pub mapped_bytes: u64,
    /// Number of entries.
    pub count: u64,
    /// The object of counts; 0: there are none.
    pub counts_object: ObjectId,
}

impl TableHeader {
    /// Bytes of an entry of a table.
    pub const ENTRY_SIZE: u64 = 24;
    /// Bytes of a count.
    pub const COUNT_SIZE: u64 = 4;
    /// Most entries, so that what is added has room.
    const COUNT_MAX: u64 = 1 << 40;

    /// From a bonus buffer. Errors: it is too short, or tells of more entries than there can be.
    pub fn parse(bonus: &[u8]) -> Result<TableHeader> {
        let mut r = Reader::new(bonus, Endian::Little);
        let (end, mapped_bytes, count) = (r.u64()?, r.u64()?, r.u64()?);
        if count > TableHeader::COUNT_MAX {
            return Err(Error::corrupt(format!("a table of a removed device with {count} entries")));
        }
        Ok(TableHeader { end, mapped_bytes, count, counts_object: ObjectId::new(r.u64().unwrap_or(0)) })
    }

    /// The bonus buffer: shorter if there are no counts.
    pub fn bonus(&self) -> Vec<u8> {
        let words = [self.end, self.mapped_bytes, self.count, self.counts_object.get()];
        let words = if self.counts_object.is_none() { &words[..3] } else { &words[..] };
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// An entry of a table: from `offset` bytes on, as many as `to` has, are at `to`.
pub fn table_entry(offset: u64, to: &Dva) -> [u8; TableHeader::ENTRY_SIZE as usize] {
    let [first, second] = to.words();
    let mut entry = [0; TableHeader::ENTRY_SIZE as usize];
    for (bytes, word) in entry.chunks_exact_mut(8).zip([offset >> 9, first, second]) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let phys = RemovalPhys {
            state: ScanState::Running,
            vdev: VdevNumber::new(1),
            previous: None,
            start_s: 2,
            end_s: 3,
            to_copy_bytes: 4,
            copied_bytes: 5,
        };
        assert_eq!(RemovalPhys::parse(&phys.words()), Some(phys));
        assert_eq!(RemovalPhys::parse(&[0; 7]), None);
        let again = RemovalPhys { state: ScanState::Canceled, previous: Some(VdevNumber::new(0)), ..phys };
        assert_eq!(RemovalPhys::parse(&again.words()), Some(again));
        let condensing =
            CondensingPhys { vdev: VdevNumber::new(0), obsolete_map: ObjectId::new(7), next_table: ObjectId::new(8) };
        assert_eq!(CondensingPhys::parse(&condensing.words()).unwrap(), condensing);
        assert!(CondensingPhys::parse(&[1, 0, 2]).is_err());
        for counts_object in [ObjectId::NONE, ObjectId::new(9)] {
            let header = TableHeader { end: 1, mapped_bytes: 2, count: 3, counts_object };
            assert_eq!(TableHeader::parse(&header.bonus()).unwrap(), header);
        }
        assert!(TableHeader::parse(&TableHeader { count: u64::MAX, ..TableHeader::default() }.bonus()).is_err());
        assert!(TableHeader::parse(&[0; 23]).is_err());
    }

    #[test]
    fn entries() {
        let entry = table_entry(0x1200, &Dva::new(VdevNumber::new(3), 0x4000, 0x2000, false));
        let word = |at: usize| u64::from_le_bytes(*entry[at * 8..].first_chunk().unwrap());
        assert_eq!([word(0), word(1), word(2)], [9, 3 << 32 | 0x10, 0x20]);
    }
}
