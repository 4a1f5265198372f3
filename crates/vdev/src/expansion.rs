//! Where old blocks are on a raidz that was given more children.
//!
//! An expansion moves every sector of the address space: sector *n* goes from child `n % w`, line `n / w`,
//! to child `n % (w + 1)`, line `n / (w + 1)`. Blocks stay as they were written, in lines as wide as the
//! raidz was then, each with its parity:
//!
//! ```text
//!   raidz1 of 3, a block of 4 data sectors      the same on 4 children
//!
//!   child   0    1    2                         child   0    1    2    3
//!         +----+----+----+                            +----+----+----+----+
//!         | P0 | D0 | D2 |                            | P0 | D0 | D2 | P1 |
//!         | P1 | D1 | D3 |                            | D1 | D3 |    |    |
//!         +----+----+----+                            +----+----+----+----+
//! ```
//!
//! So one line of a block is one [`Row`] of single sectors, wherever they are. A block counts its sectors
//! by columns, rows give them by lines; [`SectorOrder`] leads from one to the other.
//!
//! While sectors are still being moved, the uberblock says how far that is done. A line of which not all
//! has moved is read at the old place.
//!
//! Format: the published description of raidz expansion, and the behaviour of OpenZFS's vdev_raidz.c.

use base::{AlignedBuf, Error, Kind, Result};
use format::ids::Txg;

use crate::raidz::{Column, RaidzGeometry, Row, in_sectors};

/// What a configuration says of the expansions of a raidz.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expansion {
    /// For each that is over, the transaction group from which on blocks are one wider; in order.
    pub txgs: Vec<Txg>,
    /// Whether sectors are being moved to another child, the last one.
    pub is_running: bool,
}

impl Expansion {
    /// How many children the raidz had at first, which now has `width`; `None` if that is impossible.
    pub(crate) fn first_width(&self, width: usize) -> Option<usize> {
        width.checked_sub(self.txgs.len() + usize::from(self.is_running))
    }

    /// How wide blocks were that were born in `txg`.
    pub(crate) fn width_at(&self, width: usize, txg: Txg) -> usize {
        let first = self.first_width(width).expect("checked when the configuration was read");
        first + self.txgs.iter().filter(|&&since| since <= txg).count()
    }
}

/// Bytes of the address space that have moved, by the field of an uberblock.
///
/// An error of [`Kind::Unsupported`] if the expansion was stopped in its first steps, whose sectors are in
/// a place set aside.
pub(crate) fn moved_bytes(reflow: u64) -> Result<u64> {
    const IN_SCRATCH: u64 = 1;
    match (reflow & ((1 << 55) - 1), reflow >> 55) {
        (_, IN_SCRATCH) => {
            let what =
                "the feature org.openzfs:raidz_expansion is at its very beginning, which this version cannot read";
            Err(Error::new(Kind::Unsupported, what))
        }
        (sectors, _) => Ok(sectors << 9),
    }
}

/// The sectors of a block by lines, where it counts them by columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SectorOrder {
    sector: usize,
    sectors: usize,
    ndata: usize,
}

impl SectorOrder {
    /// Puts into `block` what `lines` has by lines; both begin at the same byte, and `block` may be shorter.
    pub(crate) fn restore(&self, lines: &[u8], block: &mut [u8]) {
        for (i, sector) in lines.chunks_exact(self.sector).enumerate() {
            if let Some(left) = block.get_mut(self.place(i)..) {
                let len = left.len().min(self.sector);
                left[..len].copy_from_slice(&sector[..len]);
            }
        }
    }

    /// What [`SectorOrder::restore`] makes `block` from, which is made of whole sectors.
    pub(crate) fn lines(&self, block: &[u8]) -> AlignedBuf {
        let mut lines = AlignedBuf::zeroed(block.len());
        for (i, sector) in lines.chunks_exact_mut(self.sector).enumerate() {
            let at = self.place(i);
            sector.copy_from_slice(&block[at..at + self.sector]);
        }
        lines
    }

    /// Where the sector is in the block that is number `i` by lines.
    fn place(&self, i: usize) -> usize {
        let (height, rest) = (self.sectors.div_ceil(self.ndata), self.sectors % self.ndata);
        let (line, column) = (i / self.ndata, i % self.ndata);
        // the columns of `rest` are those that reach into the last line
        let short = if rest == 0 { 0 } else { column.saturating_sub(rest) };
        (column * height - short + line) * self.sector
    }
}

/// Where the `size` bytes at `offset` are, which were written `then` children wide on what is now of
/// `geometry`; `moved` is how far a running expansion has come, if there is one.
pub(crate) fn map(
    geometry: &RaidzGeometry,
    then: usize,
    moved: Option<u64>,
    offset: u64,
    size: usize,
) -> Result<(Vec<Row>, SectorOrder)> {
    let RaidzGeometry { ashift, width, nparity } = *geometry;
    let (first, sectors) = in_sectors(ashift, offset, size)?;
    let ndata = then - nparity;
    let height = sectors.div_ceil(ndata);
    let count = then.min(sectors + nparity);
    let row = |line: usize| {
        let start = line * ndata;
        let here = ndata.min(sectors - start);
        let at = first + (line * then) as u64;
        let has_moved = moved.is_none_or(|moved| at + count as u64 <= moved >> ashift);
        let wide = (width - usize::from(!has_moved)) as u64;
        let column = |c: usize| {
            let at = at + c as u64;
            let size = if c < nparity + here { 1 << ashift } else { 0 };
            Column { child: (at % wide) as usize, offset: (at / wide) << ashift, size }
        };
        let mut columns: Vec<Column> = (0..count).map(column).collect();
        if nparity == 1 && offset >> 20 & 1 == 1 {
            columns.swap(0, 1);
        }
        Row { nparity, columns, start: start << ashift }
    };
    Ok(((0..height).map(row).collect(), SectorOrder { sector: 1 << ashift, sectors, ndata }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: RaidzGeometry = RaidzGeometry { ashift: 9, width: 4, nparity: 1 };

    #[test]
    fn the_drawing() {
        let (rows, order) = map(&GEOMETRY, 3, None, 0, 4 << 9).unwrap();
        let places: Vec<Vec<(usize, u64)>> =
            rows.iter().map(|row| row.columns.iter().map(|c| (c.child, c.offset >> 9)).collect()).collect();
        assert_eq!(places, [[(0, 0), (1, 0), (2, 0)], [(3, 0), (0, 1), (1, 1)]]);
        let mut block = [0; 4 << 9];
        // by lines: D0 D2 D1 D3
        let lines: Vec<u8> = [0, 2, 1, 3].iter().flat_map(|&d| [d; 512]).collect();
        order.restore(&lines, &mut block);
        assert_eq!(order.lines(&block)[..], lines);
        assert!(block.chunks(512).enumerate().all(|(i, sector)| sector.iter().all(|&byte| usize::from(byte) == i)));
    }

    /// As wide as it is, a block's lines are those of the block in one piece.
    #[test]
    fn lines_are_slices_of_columns() {
        for (nparity, width) in [(1, 3), (1, 5), (2, 5), (3, 8)] {
            let geometry = RaidzGeometry { ashift: 12, width, nparity };
            for sectors in 1..40 {
                for first in [0, 1, 7, 300] {
                    let whole = geometry.map(first << 12, sectors << 12).unwrap();
                    let (rows, order) = map(&geometry, width, None, first << 12, sectors << 12).unwrap();
                    let mut lines = Vec::new();
                    for (line, row) in rows.iter().enumerate() {
                        assert_eq!(row.columns.len(), whole.columns.len());
                        for (column, cell) in whole.columns.iter().zip(&row.columns) {
                            assert_eq!(cell.child, column.child);
                            assert_eq!(cell.offset, column.offset + ((line as u64) << 12));
                            assert_eq!(cell.size > 0, (line << 12) < column.size);
                        }
                        // what the whole block has there: the number of the sector
                        let mut at = 0;
                        for (column, cell) in whole.data().iter().zip(row.data()) {
                            if cell.size > 0 {
                                lines.extend([((at + (line << 12)) >> 12) as u8; 4096]);
                            }
                            at += column.size;
                        }
                    }
                    let mut block = vec![0; sectors << 12];
                    order.restore(&lines, &mut block);
                    let right = block.chunks(4096).enumerate().all(|(i, s)| s.iter().all(|&b| usize::from(b) == i));
                    assert!(right, "raidz{nparity} of {width}, {sectors} sectors at {first}");
                }
            }
        }
    }

    #[test]
    fn what_has_not_moved_is_where_it_was() {
        let (rows, _) = map(&GEOMETRY, 3, Some(8 << 9), 3 << 9, 4 << 9).unwrap();
        // sectors 3, 4, 5 are below 8, of 6, 7, 8 the last is not
        let places = |row: &Row| row.columns.iter().map(|c| (c.child, c.offset >> 9)).collect::<Vec<_>>();
        assert_eq!(places(&rows[0]), [(3, 0), (0, 1), (1, 1)]);
        assert_eq!(places(&rows[1]), [(0, 2), (1, 2), (2, 2)]);
    }

    #[test]
    fn widths_by_birth() {
        let expansion = Expansion { txgs: vec![Txg::new(10), Txg::new(20)], is_running: true };
        let widths = [0, 9, 10, 19, 20, 99].map(|txg| expansion.width_at(6, Txg::new(txg)));
        assert_eq!(widths, [3, 3, 4, 4, 5, 5]);
        assert_eq!(expansion.first_width(2), None);
    }

    #[test]
    fn the_first_steps_are_refused() {
        assert_eq!(moved_bytes(2 << 55 | 7).unwrap(), 7 << 9);
        let error = moved_bytes(1 << 55 | 7).unwrap_err();
        assert!(error.kind() == Kind::Unsupported && error.what().contains("raidz_expansion"));
    }
}
