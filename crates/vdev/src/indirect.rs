//! Where the contents of a removed vdev are now.
//!
//! Block pointers cannot be rewritten, so a vdev that was removed lives on as a table, from ranges
//! of its address space to places on other vdevs. Ranges were copied without regard to blocks, so
//! a block may lie in several:
//!
//! ```text
//!   removed vdev 2    |----- range a -----|--- range b ---|
//!   a block                        [============]
//!   is now at          vdev 0 ...[===]            [=======]... vdev 1
//! ```
//!
//! If one of those vdevs is removed later, its own table leads on.

use std::ops::Range;
use std::sync::Arc;

use base::{Error, Result, RwLock};
use format::ids::VdevNumber;

/// Bytes of the address space of a top-level vdev, as DVAs count them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopRange {
    /// Number of the vdev.
    pub top: VdevNumber,
    /// The bytes.
    pub range: Range<u64>,
}

/// A range of a removed vdev, and where it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapEntry {
    /// Offset on the removed vdev, in bytes.
    pub src_offset: u64,
    /// Top-level vdev that holds it now.
    pub dst_top: VdevNumber,
    /// Offset there, in bytes.
    pub dst_offset: u64,
    /// Length of the range, in bytes.
    pub asize: u64,
}

/// The table of one removed vdev.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mapping {
    entries: Vec<MapEntry>,
}

/// The same, empty until it has been read; all shapes of the tree share it. It grows while a vdev is being removed, and
/// another takes its place when it is condensed.
#[derive(Clone, Debug, Default)]
pub(crate) struct MappingTable(Arc<RwLock<Option<Arc<Mapping>>>>);

impl MappingTable {
    /// The table, if it has been read.
    pub(crate) fn get(&self) -> Option<Arc<Mapping>> {
        self.0.read().clone()
    }

    pub(crate) fn replace(&self, mapping: Mapping) {
        *self.0.write() = Some(Arc::new(mapping));
    }

    /// Adds entries behind the others. Errors: `Corrupt` if they are impossible, with nothing changed.
    pub(crate) fn extend(&self, own: VdevNumber, count: usize, entries: &[MapEntry]) -> Result<()> {
        let mut table = self.0.write();
        let end = table.as_ref().map_or(0, |mapping| mapping.end());
        if entries.first().is_some_and(|first| first.src_offset < end) {
            return Err(Error::corrupt(format!("the table of vdev {own} would not be in order")));
        }
        let more = Mapping::new(own, count, entries.to_vec())?;
        // nobody else holds it for long
        let mapping = table.get_or_insert_default();
        Arc::make_mut(mapping).entries.extend(more.entries);
        Ok(())
    }
}

impl Mapping {
    /// A table of vdev `own`, in a pool of `count` vdevs, from its entries sorted by `src_offset`.
    pub(crate) fn new(own: VdevNumber, count: usize, entries: Vec<MapEntry>) -> Result<Mapping> {
        let mut end = 0;
        for entry in &entries {
            let fits = entry.src_offset >= end
                && entry.asize > 0
                && (entry.src_offset | entry.dst_offset | entry.asize).is_multiple_of(512)
                && entry.dst_offset.checked_add(entry.asize).is_some()
                && entry.dst_top.index() < count
                && entry.dst_top != own;
            end = entry.src_offset.checked_add(entry.asize).filter(|_| fits).ok_or_else(|| {
                let MapEntry { src_offset, dst_top, dst_offset, asize } = entry;
                let place = format!("{asize} bytes at {src_offset:#x} are at {dst_offset:#x} of vdev {dst_top}");
                Error::corrupt(format!("table of the removed vdev {own} has the impossible entry: {place}"))
            })?;
        }
        Ok(Mapping { entries })
    }

    /// Where the last entry ends, on the vdev that was removed.
    pub(crate) fn end(&self) -> u64 {
        self.entries.last().map_or(0, |last| last.src_offset + last.asize)
    }

    /// The pieces that `len` bytes at `offset` are in now, in order: vdev, offset there, length.
    ///
    /// An error if some of them are in no range.
    pub(crate) fn lookup(&self, offset: u64, len: u64) -> Result<impl Iterator<Item = (VdevNumber, u64, u64)>> {
        let lost = || Error::corrupt(format!("{len} bytes at {offset:#x} are not in the table of the removed vdev"));
        let end = offset.checked_add(len).ok_or_else(lost)?;
        let first = self.entries.partition_point(|e| e.src_offset + e.asize <= offset);
        let last = self.entries.partition_point(|e| e.src_offset < end);
        let pieces = self.entries.get(first..last).unwrap_or_default().iter().map(move |e| {
            let (from, to) = (offset.max(e.src_offset), end.min(e.src_offset + e.asize));
            (e.dst_top, e.dst_offset + (from - e.src_offset), to - from)
        });
        if pieces.clone().map(|(_, _, len)| len).sum::<u64>() != len {
            return Err(lost());
        }
        Ok(pieces)
    }
}

impl Mapping {
    /// Where a range is now, in order. Errors: as from [`Mapping::lookup`].
    pub(crate) fn places(&self, range: Range<u64>) -> Result<Vec<TopRange>> {
        let pieces = self.lookup(range.start, range.end.saturating_sub(range.start))?;
        Ok(pieces.map(|(top, offset, size)| TopRange { top, range: offset..offset + size }).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(src_offset: u64, dst_top: u64, dst_offset: u64, asize: u64) -> MapEntry {
        MapEntry { src_offset, dst_top: VdevNumber::new(dst_top), dst_offset, asize }
    }

    #[test]
    fn splits_where_ranges_meet() {
        let entries = vec![entry(512, 0, 8192, 1024), entry(1536, 1, 512, 512), entry(4096, 0, 0, 512)];
        let map = Mapping::new(VdevNumber::new(2), 3, entries).unwrap();
        let plain = |(top, offset, len): (VdevNumber, u64, u64)| (top.get(), offset, len);
        let find = |offset, len| map.lookup(offset, len).map(|pieces| pieces.map(plain).collect::<Vec<_>>()).ok();
        assert_eq!(find(512, 1024), Some(vec![(0, 8192, 1024)]));
        assert_eq!(find(1024, 1024), Some(vec![(0, 8704, 512), (1, 512, 512)]));
        assert_eq!(find(4096, 512), Some(vec![(0, 0, 512)]));
        for (offset, len) in [(0, 512), (0, 1024), (1536, 1024), (2048, 512), (4096, 1024), (u64::MAX - 511, 512)] {
            assert_eq!(find(offset, len), None, "{offset} {len}");
        }
        assert_eq!(find(1 << 40, 512), None);
    }

    #[test]
    fn impossible_tables() {
        let bad = [
            entry(0, 2, 0, 512),
            entry(0, 3, 0, 512),
            entry(0, 0, 0, 0),
            entry(0, 0, 0, 511),
            entry(1, 0, 0, 512),
            entry(0, 0, u64::MAX - 511, 512),
            entry(u64::MAX - 511, 0, 0, 512),
        ];
        for entry in bad {
            assert!(Mapping::new(VdevNumber::new(2), 3, vec![entry]).is_err(), "{entry:?}");
        }
        assert!(Mapping::new(VdevNumber::new(2), 3, vec![entry(0, 0, 0, 1024), entry(512, 1, 0, 512)]).is_err());
        assert!(Mapping::new(VdevNumber::new(2), 3, vec![entry(512, 0, 0, 512), entry(0, 1, 0, 512)]).is_err());
    }
}
