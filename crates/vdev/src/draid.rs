//! Where the pieces of a block are on a draid.
//!
//! A draid cuts its children into chunks of 16 MiB. A *group* is one chunk on each of *d + p*
//! children, like a small raidz whose columns are that many; groups follow each other over the
//! children that are not set aside as spare space, and over rows of chunks, until they come out
//! even. That is a *slice*. In every slice the children take part in another order (see
//! [`permutation`]), so all of them share all the work, of rebuilding too.
//!
//! ```text
//!   7 children, 1 spare, groups of 2 data and 2 parity: 3 groups make a slice of 2 rows
//!
//!    place  0    1    2    3    4    5    6       place n is child (permutation[n])
//!   row 0 | g0 | g0 | g0 | g0 | g1 | g1 | s |
//!   row 1 | g1 | g1 | g2 | g2 | g2 | g2 | s |     the next slice goes on with group 3
//! ```
//!
//! Within a group all blocks are full stripes: the last line is filled up with zero sectors, which
//! are written, and which count in parity. So even the smallest block has *d* data columns, some
//! of them empty.
//!
//! A distributed spare is the last place, the one before it, and so on, of every slice: a disk that
//! is spread over all the others.
//!
//! Format: published descriptions of dRAID, and the behaviour of OpenZFS's vdev_draid.c.

pub mod permutation;

use std::fmt;
use std::ops::Range;

use base::{Error, Kind, Result};
use permutation::Permutations;
use serde::{Deserialize, Serialize};

use crate::raidz::{Column, Row, in_sectors};

/// Height of a row: bytes of a group on each of its children.
pub const ROW_BYTES: u64 = 16 << 20;

/// Most distributed spares.
pub const SPARES_MAX: u64 = 100;

pub use permutation::CHILDREN_MAX as DRAID_CHILDREN_MAX;

/// The numbers in the configuration that shape a draid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraidShape {
    /// Number of children.
    pub children: u64,
    /// Data columns of a group.
    pub ndata: u64,
    /// Parity columns of a group, 1 to 3.
    pub nparity: u64,
    /// Distributed spares.
    pub nspares: u64,
    /// Groups of a slice.
    pub ngroups: u64,
}

impl DraidShape {
    /// The shape with as few groups in a slice as come out even over the children that are not set aside as spares.
    /// Whether there is such a draid, [`DraidLayout::new`] says.
    pub fn new(children: u64, ndata: u64, nparity: u64, nspares: u64) -> DraidShape {
        let disks = children.saturating_sub(nspares).max(1);
        let (mut common, mut rest) = (disks, ndata.saturating_add(nparity));
        while rest != 0 {
            (common, rest) = (rest, common % rest);
        }
        DraidShape { children, ndata, nparity, nspares, ngroups: disks / common }
    }
}

/// As `zpool` calls it: `draid2:4d:11c:1s`.
impl fmt::Display for DraidShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DraidShape { children, ndata, nparity, nspares, .. } = self;
        write!(f, "draid{nparity}:{ndata}d:{children}c:{nspares}s")
    }
}

/// The layout of a draid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraidLayout {
    ashift: u32,
    ndata: usize,
    nparity: usize,
    nspares: usize,
    /// Children that are not spare space.
    ndisks: u64,
    ngroups: u64,
    children: usize,
    permutations: Permutations,
}

impl DraidLayout {
    /// The layout of a draid of that shape; an error of [`Kind::Corrupt`] if there is none.
    pub fn new(ashift: u32, shape: DraidShape) -> Result<DraidLayout> {
        let DraidShape { children, ndata, nparity, nspares, ngroups } = shape;
        let count = (permutation::CHILDREN_MIN as u64..=permutation::CHILDREN_MAX as u64).contains(&children);
        let parity = (1..=3).contains(&nparity);
        let bounded = ndata >= 1 && ndata <= children && nspares <= SPARES_MAX && (1..=255).contains(&ngroups);
        let even = || {
            let group = ndata + nparity;
            group + nspares <= children && (group * ngroups).is_multiple_of(children - nspares)
        };
        if !(count && parity && bounded && even()) {
            return Err(Error::new(Kind::Corrupt, format!("impossible draid: {shape:?}")));
        }
        Ok(DraidLayout {
            ashift,
            ndata: ndata as usize,
            nparity: nparity as usize,
            nspares: nspares as usize,
            ndisks: children - nspares,
            ngroups,
            children: children as usize,
            permutations: Permutations::new(children as usize),
        })
    }

    /// Parity level.
    pub fn nparity(&self) -> usize {
        self.nparity
    }

    /// Number of distributed spares.
    pub fn nspares(&self) -> usize {
        self.nspares
    }

    /// Columns of a group.
    fn group_width(&self) -> u64 {
        (self.ndata + self.nparity) as u64
    }

    /// Bytes of a group, parity included.
    fn group_bytes(&self) -> u64 {
        self.group_width() * ROW_BYTES
    }

    /// Rows of a slice.
    fn slice_rows(&self) -> u64 {
        self.group_width() * self.ngroups / self.ndisks
    }

    /// Bytes that a block of `size` bytes takes up, parity and zero sectors included.
    pub fn asize(&self, size: u64) -> u64 {
        (size.div_ceil((self.ndata as u64) << self.ashift) * self.group_width()) << self.ashift
    }

    /// The stripes that `bytes` of the address space are, parity included: bytes of data that they have room for.
    ///
    /// An error of [`Kind::Corrupt`] if they do not end with a stripe.
    pub fn data_bytes(&self, bytes: u64) -> Result<u64> {
        match bytes.is_multiple_of(self.group_width() << self.ashift) {
            true => Ok(bytes / self.group_width() * self.ndata as u64),
            false => Err(Error::corrupt(format!("{bytes:#x} bytes of a draid do not end with a stripe"))),
        }
    }

    /// Where the `size` bytes at `offset` are. A block that crosses the end of a group has a row in
    /// each.
    ///
    /// An error of [`Kind::Corrupt`] if the block is not made of whole sectors, or does not begin
    /// at a stripe.
    pub fn map(&self, offset: u64, size: usize) -> Result<Vec<Row>> {
        let (first, _) = in_sectors(self.ashift, offset, size)?;
        if !first.is_multiple_of(self.group_width()) {
            return Err(Error::corrupt(format!("block at {offset:#x} does not begin at a stripe of the draid")));
        }
        let mut rows = Vec::with_capacity(1);
        let (mut offset, mut start) = (offset, 0);
        while start < size {
            let left = self.group_bytes() - offset % self.group_bytes();
            let room = (left / self.group_width()) as usize * self.ndata;
            let len = room.min(size - start);
            rows.push(self.row(offset, start, len));
            start += len;
            if start < size {
                offset = offset.checked_add(left).ok_or_else(|| Error::corrupt("block reaches past any device"))?;
            }
        }
        Ok(rows)
    }

    /// The row of `len` bytes at `offset`, which do not reach out of the group.
    fn row(&self, offset: u64, start: usize, len: usize) -> Row {
        let group = offset / self.group_bytes();
        let (slice, group) = (group / self.ngroups, group % self.ngroups);
        // places are counted on from row to row
        let first_place = group * self.group_width();
        let within = offset % self.group_bytes() / self.group_width();
        let sectors = len >> self.ashift;
        let (quotient, remainder) = (sectors / self.ndata, sectors % self.ndata);
        let tall = if remainder == 0 { 0 } else { remainder + self.nparity };
        let column = |c: usize| {
            let place = first_place + c as u64;
            let row = slice * self.slice_rows() + place / self.ndisks;
            Column {
                child: self.permutations.child(slice, (place % self.ndisks) as usize),
                offset: row.saturating_mul(ROW_BYTES).saturating_add(within),
                size: (quotient + usize::from(c < tall)) << self.ashift,
            }
        };
        Row {
            nparity: self.nparity,
            columns: (0..self.ndata + self.nparity).map(column).collect(),
            start,
            also: Vec::new(),
            is_copied: false,
        }
    }

    /// The bytes of a child that have the whole lines in a range of the address space, group by group.
    pub fn ranges_on_child(&self, child: usize, range: &Range<u64>) -> Vec<Range<u64>> {
        let (bytes, line) = (self.group_bytes(), self.group_width() << self.ashift);
        let mut ranges = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let first = at / bytes * bytes;
            let end = range.end.min(first.saturating_add(bytes));
            let lines = (at - first).div_ceil(line)..(end - first) / line;
            let columns = self.row(first, 0, self.ndata << self.ashift).columns;
            if let Some(column) = columns.iter().find(|column| column.child == child)
                && !lines.is_empty()
            {
                let on_child = |lines: u64| column.offset.saturating_add(lines << self.ashift);
                ranges.push(on_child(lines.start)..on_child(lines.end));
            }
            at = end;
        }
        ranges
    }

    /// The offset on every child in front of which there is nothing of the addresses from `address` on.
    pub fn first_offset(&self, address: u64) -> u64 {
        let group = address / self.group_bytes();
        let (slice, group) = (group / self.ngroups, group % self.ngroups);
        (slice * self.slice_rows() + group * self.group_width() / self.ndisks).saturating_mul(ROW_BYTES)
    }

    /// The address up to which everything is in front of `offset` on every child.
    pub fn first_address(&self, offset: u64) -> u64 {
        let row = offset / ROW_BYTES;
        let (slice, row) = (row / self.slice_rows(), row % self.slice_rows());
        (slice * self.ngroups + row * self.ndisks / self.group_width()).saturating_mul(self.group_bytes())
    }

    /// The child that stands in for distributed spare `spare` at `offset`, the same offset that the
    /// spare is asked for. Panics if there is no such spare.
    pub fn spare_child(&self, spare: usize, offset: u64) -> usize {
        assert!(spare < self.nspares, "spare {spare} of {}", self.nspares);
        let slice = offset / (self.slice_rows() * ROW_BYTES);
        self.permutations.child(slice, self.children - 1 - spare)
    }
}

#[cfg(test)]
mod tests;
