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
//! While sectors are still being moved ([`crate::reflow`]), the uberblock says how far that is done. A line of which not
//! all has moved is read at the old place. Sectors have two places then, or three: what is written goes to that where
//! the uberblock on disk leads, and to those to which the sector has been copied.
//!
//! The first sectors would overwrite what their own lines still need; they are moved by way of the boot area in front of
//! each child's data, the *scratch* area.
//!
//! Format: the published description of raidz expansion, and the behaviour of OpenZFS's vdev_raidz.c.

use base::{AlignedBuf, Result};
use format::ids::Txg;
use format::nvlist::{NvList, Value};

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

    /// Puts it into the configuration of its vdev, which may say what was before.
    pub fn put_in(&self, config: &mut NvList) {
        config.remove("raidz_expanding");
        if self.is_running {
            config.set("raidz_expanding", Value::Flag);
        }
        if !self.txgs.is_empty() {
            config.set("raidz_expand_txgs", Value::U64s(self.txgs.iter().map(|txg| txg.get()).collect()));
        }
    }

    /// How wide blocks were that were born in `txg`.
    pub(crate) fn width_at(&self, width: usize, txg: Txg) -> usize {
        let first = self.first_width(width).expect("checked when the configuration was read");
        first + self.txgs.iter().filter(|&&since| since <= txg).count()
    }
}

/// Bytes of the boot area of a leaf, right in front of its data.
const SCRATCH_BYTES: u64 = 3584 << 10;

/// How far an expansion that is running has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reflow {
    /// Bytes of the address space whose sectors have moved.
    pub moved: u64,
    /// Whether they are in the scratch area yet.
    pub in_scratch: bool,
}

impl Reflow {
    const IN_SCRATCH: u64 = 1;
    const IN_PLACE: u64 = 4;

    /// From the field of an uberblock.
    pub fn of_field(field: u64) -> Reflow {
        Reflow { moved: (field & ((1 << 55) - 1)) << 9, in_scratch: field >> 55 == Reflow::IN_SCRATCH }
    }

    /// As an uberblock has it; 0 if nothing has moved.
    pub fn field(self) -> u64 {
        match self {
            Reflow { moved: 0, .. } => 0,
            Reflow { moved, in_scratch: true } => moved >> 9 | Reflow::IN_SCRATCH << 55,
            Reflow { moved, in_scratch: false } => moved >> 9 | Reflow::IN_PLACE << 55,
        }
    }

    /// Bytes of the address space that go through the scratch area on a raidz that is so wide by now.
    pub fn scratch_size(ashift: u32, width: usize) -> u64 {
        (SCRATCH_BYTES >> ashift << ashift).saturating_mul(width as u64)
    }

    /// Where sectors are that have moved.
    pub(crate) fn layout(self, width: usize) -> SectorLayout {
        SectorLayout { width, start: if self.in_scratch { 0u64.wrapping_sub(SCRATCH_BYTES) } else { 0 } }
    }
}

/// How far it is for reads, and for writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReflowState {
    /// As the uberblock in force says.
    pub(crate) on_disk: Reflow,
    /// What has been copied; the next uberblock will say so.
    pub(crate) copied: Reflow,
}

/// A way to deal sectors over children: sector *n* is on child `n % width`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SectorLayout {
    pub(crate) width: usize,
    /// Offset of the first line on each child, which wraps around below 0: bytes behind the front labels.
    pub(crate) start: u64,
}

impl SectorLayout {
    /// The lines of a child whose sector on it is before that one.
    pub(crate) fn lines_before(self, sector: u64, child: usize) -> u64 {
        let wide = self.width as u64;
        (sector + wide - 1).saturating_sub(child as u64) / wide
    }

    fn column(self, sector: u64, ashift: u32, size: usize) -> Column {
        let wide = self.width as u64;
        let offset = ((sector / wide) << ashift).wrapping_add(self.start);
        Column { child: (sector % wide) as usize, offset, size }
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
/// `geometry`; `reflow` is how far a running expansion has come, if there is one.
pub(crate) fn map(
    geometry: &RaidzGeometry,
    then: usize,
    reflow: Option<ReflowState>,
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
        let layout = match reflow {
            None => SectorLayout { width, start: 0 },
            Some(ReflowState { on_disk, .. }) if at + count as u64 <= on_disk.moved >> ashift => on_disk.layout(width),
            Some(_) => SectorLayout { width: width - 1, start: 0 },
        };
        let size_of = |c: usize| if c < nparity + here { 1 << ashift } else { 0 };
        let mut columns: Vec<Column> = (0..count).map(|c| layout.column(at + c as u64, ashift, size_of(c))).collect();
        let mut also = reflow.map_or(Vec::new(), |reflow| {
            let places = |c: usize| also_at(reflow, width, (at + c as u64, ashift), columns[c]);
            (0..nparity + here).flat_map(|c| places(c).map(move |place| (c, place))).collect()
        });
        if nparity == 1 && offset >> 20 & 1 == 1 {
            columns.swap(0, 1);
            also.iter_mut().filter(|(c, _)| *c < 2).for_each(|(c, _)| *c = 1 - *c);
        }
        let is_copied = reflow.is_some_and(|reflow| at + count as u64 <= reflow.copied.moved >> ashift);
        Row { nparity, columns, start: start << ashift, also, is_copied }
    };
    Ok(((0..height).map(row).collect(), SectorOrder { sector: 1 << ashift, sectors, ndata }))
}

/// The places of a sector besides that where it is read: of those where it is on disk, and has been copied to.
fn also_at(
    reflow: ReflowState,
    width: usize,
    (sector, ashift): (u64, u32),
    read: Column,
) -> impl Iterator<Item = Column> {
    let of = move |state: Reflow| {
        let has_moved = sector < state.moved >> ashift;
        has_moved.then(|| state.layout(width).column(sector, ashift, read.size)).filter(|place| *place != read)
    };
    let (on_disk, copied) = (of(reflow.on_disk), of(reflow.copied));
    on_disk.into_iter().chain(copied.filter(|_| copied != on_disk))
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
        let on_disk = Reflow { moved: 8 << 9, in_scratch: false };
        let (rows, _) = map(&GEOMETRY, 3, Some(ReflowState { on_disk, copied: on_disk }), 3 << 9, 4 << 9).unwrap();
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
    fn what_is_being_moved_is_written_to_all_its_places() {
        let places = |on_disk: (u64, bool), copied: (u64, bool)| {
            let state = |(moved, in_scratch)| Reflow { moved: moved << 9, in_scratch };
            let reflow = ReflowState { on_disk: state(on_disk), copied: state(copied) };
            let (rows, _) = map(&GEOMETRY, 3, Some(reflow), 3 << 9, 2 << 9).unwrap();
            let place = |column: &Column| (column.child, (column.offset as i64) >> 9);
            let read: Vec<_> = rows[0].columns.iter().map(place).collect();
            (read, rows[0].also.iter().map(|(c, column)| (*c, place(column))).collect::<Vec<_>>())
        };
        let (old, new) = ([(0, 1), (1, 1), (2, 1)], [(3, 0), (0, 1), (1, 1)]);
        let front = SCRATCH_BYTES as i64 >> 9;
        let scratch = new.map(|(child, line)| (child, line - front));
        let all = |places: [(usize, i64); 3]| (0..).zip(places).collect::<Vec<_>>();
        assert_eq!(places((0, false), (0, false)), (old.to_vec(), vec![]));
        assert_eq!(places((0, false), (6, true)), (old.to_vec(), all(scratch)));
        assert_eq!(places((6, true), (6, true)), (scratch.to_vec(), vec![]));
        assert_eq!(places((6, true), (6, false)), (scratch.to_vec(), all(new)));
        assert_eq!(places((6, false), (9, false)), (new.to_vec(), vec![]));
        // its last sector has not moved: it is read where it was
        assert_eq!(places((5, false), (5, false)), (old.to_vec(), all(new)[..2].to_vec()));
        assert_eq!(places((5, false), (9, false)).0, old);
        let (_, also) = places((5, true), (5, false));
        assert_eq!(also, [(0, scratch[0]), (0, new[0]), (1, scratch[1]), (1, new[1])]);
    }

    #[test]
    fn fields_of_uberblocks() {
        for (moved, in_scratch) in [(0, false), (7 << 9, true), (7 << 9, false)] {
            let reflow = Reflow { moved, in_scratch };
            assert_eq!(Reflow::of_field(reflow.field()), reflow);
        }
        // as OpenZFS writes them: in the scratch area; out of it, in three ways
        assert_eq!(Reflow::of_field(1 << 55 | 7), Reflow { moved: 7 << 9, in_scratch: true });
        for state in 2..5 {
            assert_eq!(Reflow::of_field(state << 55 | 7), Reflow { moved: 7 << 9, in_scratch: false });
        }
        assert_eq!(Reflow::scratch_size(12, 4), 14 << 20);
    }
}
