//! Where the pieces of a block are on a raidz.
//!
//! A raidz of *w* children numbers the sectors of its address space row by row over them. A block
//! occupies consecutive sectors, beginning on any child; seen as a rectangle, its first columns are
//! parity and the others data. Data runs *down* each column, so what one child holds of a block is
//! one piece of the child and one piece of the block:
//!
//! ```text
//!   raidz1, 5 children, a block of 9 data sectors that begins on child 2
//!
//!   child    0    1    2    3    4        column  0   1   2   3   4
//!          +----+----+----+----+----+     child   2   3   4   0   1
//!   row n  |    |    | P0 | D0 | D3 |
//!   row n+1| D5 | D7 | P1 | D1 | D4 |     P0 = D0 ^ D3 ^ D5 ^ D7
//!   row n+2| D6 | D8 | P2 | D2 |    |     P1 = D1 ^ D4 ^ D6 ^ D8
//!          +----+----+----+----+----+     P2 = D2, shorter columns count as zeros
//! ```
//!
//! What is allocated is rounded up to a multiple of the parity level plus one, so that no gap is
//! ever too small to hold a block. A block with fewer data sectors than a row has data columns has
//! that many columns only. On raidz1, in every second MiB of the address space, the first two
//! columns swap places.
//!
//! Format: published descriptions of raidz, and the behaviour of OpenZFS's vdev_raidz.c.

use base::{Error, Result};

/// A piece of a block on one child, or its parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Which child of the raidz.
    pub child: usize,
    /// Offset on the child, in bytes, counted from behind its front labels.
    pub offset: u64,
    /// Size in bytes; may be 0 on a draid.
    pub size: usize,
}

/// Columns that are protected together: first the parity columns, then the data, which follow
/// each other in the block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// How many columns are parity.
    pub nparity: usize,
    /// All columns; parity columns are as long as the first data column, others at most as long.
    pub columns: Vec<Column>,
    /// Offset in the block of the first data column, in bytes.
    pub start: usize,
    /// Further places of columns, by their numbers: what is written goes there, too, while a raidz is being expanded.
    pub also: Vec<(usize, Column)>,
    /// While an expansion runs: all of the row has been copied, and is read at the last of these places when the next
    /// uberblock is on disk.
    pub is_copied: bool,
}

impl Row {
    /// The columns that hold the block, in the block's order.
    pub fn data(&self) -> &[Column] {
        &self.columns[self.nparity..]
    }

    /// The parity columns.
    pub fn parity(&self) -> &[Column] {
        &self.columns[..self.nparity]
    }

    /// Bytes of the block in this row.
    pub fn len(&self) -> usize {
        self.data().iter().map(|c| c.size).sum()
    }

    /// Whether no byte of the block is in this row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The shape of a raidz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaidzGeometry {
    /// Binary logarithm of the sector size.
    pub ashift: u32,
    /// Number of children.
    pub width: usize,
    /// Parity level, 1 to 3.
    pub nparity: usize,
}

impl RaidzGeometry {
    /// Where the `size` bytes at `offset` are; both are multiples of the sector size.
    ///
    /// An error of [`base::Kind::Corrupt`] if they are not.
    pub fn map(&self, offset: u64, size: usize) -> Result<Row> {
        let RaidzGeometry { ashift, width, nparity } = *self;
        let (first, sectors) = in_sectors(ashift, offset, size)?;
        let (wide, ndata) = (width as u64, width - nparity);
        let (quotient, remainder) = (sectors / ndata, sectors % ndata);
        // the first `tall` columns have one sector more
        let tall = if remainder == 0 { 0 } else { remainder + nparity };
        let count = if quotient == 0 { tall } else { width };
        let mut columns: Vec<Column> = (0..count)
            .map(|c| {
                let at = first % wide + c as u64;
                Column {
                    child: (at % wide) as usize,
                    offset: (first / wide + at / wide) << ashift,
                    size: (quotient + usize::from(c < tall)) << ashift,
                }
            })
            .collect();
        if nparity == 1 && offset >> 20 & 1 == 1 {
            columns.swap(0, 1);
        }
        Ok(Row { nparity, columns, start: 0, also: Vec::new(), is_copied: false })
    }

    /// Bytes that a block of `size` bytes takes up, parity and padding included.
    pub fn asize(&self, size: u64) -> u64 {
        let ndata = (self.width - self.nparity) as u64;
        let nparity = self.nparity as u64;
        let data = size.div_ceil(1 << self.ashift);
        (data + nparity * data.div_ceil(ndata)).next_multiple_of(nparity + 1) << self.ashift
    }
}

/// `offset` and `size` in sectors, or an error if they are not whole ones.
pub(crate) fn in_sectors(ashift: u32, offset: u64, size: usize) -> Result<(u64, usize)> {
    let mask = (1 << ashift) - 1;
    if size == 0 || (offset | size as u64) & mask != 0 {
        return Err(Error::corrupt(format!("block of {size} bytes at {offset:#x} is not made of whole sectors")));
    }
    Ok((offset >> ashift, size >> ashift))
}

/// The data columns of `row` in `block`, which begins with the first of them.
pub(crate) fn split_columns<'a>(row: &Row, block: &'a mut [u8]) -> Vec<&'a mut [u8]> {
    let mut rest = block;
    let take = |column: &Column| {
        let (piece, tail) = std::mem::take(&mut rest).split_at_mut(column.size);
        rest = tail;
        piece
    };
    row.data().iter().map(take).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drawing() {
        let raidz = RaidzGeometry { ashift: 9, width: 5, nparity: 1 };
        let row = raidz.map((7 * 5 + 2) << 9, 9 << 9).unwrap();
        let got: Vec<(usize, u64, usize)> = row.columns.iter().map(|c| (c.child, c.offset >> 9, c.size >> 9)).collect();
        assert_eq!(got, [(2, 7, 3), (3, 7, 3), (4, 7, 2), (0, 8, 2), (1, 8, 2)]);
        assert_eq!((row.len(), raidz.asize(9 << 9)), (9 << 9, 12 << 9));
    }

    #[test]
    fn parity_and_data_swap_in_every_second_mebibyte_of_raidz1() {
        let child = |nparity, offset| {
            let row = RaidzGeometry { ashift: 12, width: 4, nparity }.map(offset, 8192).unwrap();
            (row.columns[0].child, row.columns[1].child)
        };
        assert_eq!([0, 1, 2, 3].map(|mib| child(1, mib << 20)), [(0, 1), (1, 0), (0, 1), (1, 0)]);
        assert_eq!([0, 1, 2, 3].map(|mib| child(2, mib << 20)), [(0, 1); 4]);
    }

    /// Deals the sectors of a block out one by one, and compares.
    fn check(geometry: RaidzGeometry, first: u64, sectors: usize) {
        let RaidzGeometry { ashift, width, nparity } = geometry;
        let row = geometry.map(first << ashift, sectors << ashift).unwrap();
        let lines = sectors.div_ceil(width - nparity);
        // how tall each column is, filling line after line
        let mut heights = vec![0; width];
        for i in 0..sectors {
            heights[nparity + i % (width - nparity)] += 1;
        }
        heights[..nparity].fill(lines);
        heights.retain(|&h| h > 0);
        let swap = nparity == 1 && (first << ashift) / (1 << 20) % 2 == 1;
        for (c, &height) in heights.iter().enumerate() {
            let at = first + c as u64;
            let c = if swap && c < 2 { 1 - c } else { c };
            let expect = Column {
                child: (at % width as u64) as usize,
                offset: (at / width as u64) << ashift,
                size: height << ashift,
            };
            assert_eq!(row.columns[c], expect, "{geometry:?} {first} {sectors} column {c}");
        }
        assert_eq!(row.columns.len(), heights.len());
        assert_eq!(row.len(), sectors << ashift);
        let used: usize = heights.iter().sum();
        let gap = (geometry.asize((sectors << ashift) as u64) >> ashift) as usize - used;
        assert!(gap <= nparity && (used + gap).is_multiple_of(nparity + 1));
        assert_eq!(geometry.asize((sectors << ashift) as u64 - 511), ((used + gap) as u64) << ashift);
    }

    #[test]
    fn as_if_dealt_sector_by_sector() {
        for nparity in 1..=3 {
            for width in [nparity + 1, nparity + 2, 7, 12, 255] {
                for ashift in [9, 12, 16] {
                    for first in [0, 1, 5, 4000, (1 << 20 >> ashift) + 3, 1 << 40] {
                        for sectors in [1, 2, 3, 4, 5, 6, 7, 16, 31, 32, 256] {
                            check(RaidzGeometry { ashift, width, nparity }, first, sectors);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn only_whole_sectors() {
        let raidz = RaidzGeometry { ashift: 12, width: 3, nparity: 1 };
        assert!(raidz.map(0, 0).is_err() && raidz.map(512, 4096).is_err() && raidz.map(4096, 512).is_err());
    }
}
