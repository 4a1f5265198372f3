//! What is free, on one leaf: it is written to once, or the device is told that nobody needs it.
//!
//! ```text
//!   mirror   address space = bytes of each leaf, behind the front labels
//!   raidz    sectors 0 1 2 3 4 5 6 ... row by row over the children: of a range each child has the rows whose sector
//!            of its own is in it
//!   draid    the lines of each group that are whole in the range, on the children of that group
//! ```

use std::ops::Range;

use base::{AlignedBuf, Error, Kind as ErrorKind, Result};
use device::meter::{Purpose, Ticket};

use crate::expansion::SectorLayout;
use crate::geometry::FRONT_BYTES;
use crate::spec::TopSpec;
use crate::tree::Tree;
use crate::vdev::{LeafVdev, Placement, Vdev, VdevId};

impl Tree {
    /// The bytes of a leaf's device that have a range of its top-level vdev's address space: none if it has nothing of
    /// it. Errors: `Unsupported` on a vdev of a kind for which that is not known.
    pub fn ranges_on_leaf(&self, leaf: LeafVdev<'_>, range: &Range<u64>) -> Result<Vec<Range<u64>>> {
        let top = self.top_of(leaf.vdev());
        let ranges = match top.place() {
            Placement::Device | Placement::Copies => vec![range.clone()],
            // sectors are on the move
            Placement::Raidz(_) if top.top_spec().is_some_and(TopSpec::is_expanding) => Vec::new(),
            Placement::Raidz(_) => {
                let of_leaf = self.raidz_offset(top, leaf, range.start)..self.raidz_offset(top, leaf, range.end);
                vec![of_leaf]
            }
            Placement::Draid(layout) => layout.ranges_on_child(self.number_below(top, leaf), range),
            _ => {
                let what = "operation not supported on this type of vdev";
                return Err(Error::new(ErrorKind::Unsupported, what).at_vdev(top.name()));
            }
        };
        let behind_labels = |at: u64| at.saturating_add(FRONT_BYTES);
        let there = ranges.into_iter().filter(|range| range.start < range.end);
        Ok(there.map(|range| behind_labels(range.start)..behind_labels(range.end)).collect())
    }

    /// The offset on a leaf's device in front of which there is nothing of the addresses behind `address` of its
    /// top-level vdev.
    pub fn offset_on_leaf(&self, leaf: LeafVdev<'_>, address: u64) -> u64 {
        let top = self.top_of(leaf.vdev());
        let offset = match top.place() {
            Placement::Raidz(_) => self.raidz_offset(top, leaf, address),
            Placement::Draid(layout) => layout.first_offset(address),
            _ => address,
        };
        offset.saturating_add(FRONT_BYTES)
    }

    /// The address in a leaf's top-level vdev up to which everything is in front of byte `offset` of its device.
    pub fn address_on_top(&self, leaf: LeafVdev<'_>, offset: u64) -> u64 {
        let top = self.top_of(leaf.vdev());
        let offset = offset.saturating_sub(FRONT_BYTES);
        match top.place() {
            Placement::Raidz(_) => {
                let (rows, width) = (offset >> top.ashift(), top.children().len() as u64);
                rows.saturating_sub(1).saturating_mul(width) << top.ashift()
            }
            Placement::Draid(layout) => layout.first_address(offset),
            _ => offset,
        }
    }

    /// Bytes of a leaf, behind the front labels, that are in front of an address of its raidz.
    fn raidz_offset(&self, top: &Vdev, leaf: LeafVdev<'_>, address: u64) -> u64 {
        let (layout, shift) = (SectorLayout { width: top.children().len(), start: 0 }, top.ashift());
        layout.lines_before(address >> shift, self.number_below(top, leaf)) << shift
    }

    /// Which child of a top-level vdev a leaf is below.
    fn number_below(&self, top: &Vdev, leaf: LeafVdev<'_>) -> usize {
        let is_below = |child: &VdevId| self.leaves_of(*child).iter().any(|known| known.id() == leaf.id());
        top.children().iter().position(is_below).unwrap_or(0)
    }

    /// Writes `pattern` all over some bytes of a leaf's device, so many in a write. Errors: `Missing` if the leaf is not
    /// used; that of the device, which the leaf is charged with.
    pub fn fill_on_leaf(
        &self,
        leaf: LeafVdev<'_>,
        range: Range<u64>,
        (pattern, chunk_bytes): (u64, u64),
    ) -> Result<()> {
        if leaf.usable_device().is_none() {
            return Err(not_there(leaf));
        }
        let chunk_bytes = chunk_bytes.next_multiple_of(1 << self.top_of(leaf.vdev()).ashift());
        let mut chunk = AlignedBuf::zeroed((range.end - range.start).min(chunk_bytes) as usize);
        chunk.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&pattern.to_le_bytes()));
        let offsets = (range.start..range.end).step_by(chunk_bytes as usize);
        let parts = offsets.map(|at| (at, (range.end - at).min(chunk_bytes) as usize));
        let write = |(at, len): (u64, usize)| self.write_of(leaf.id(), at, &chunk[..len], Purpose::AsyncWrite);
        let mut writes: Vec<_> = parts.map(write).collect();
        device::write_batch(&mut writes);
        let results = writes.into_iter().map(|write| write.result.inspect_err(|e| leaf.state().charge_write(e)));
        results.collect::<Vec<_>>().into_iter().collect()
    }

    /// Tells a leaf's device that nobody needs some of its bytes. Errors: `Missing` if the leaf is not used; as from
    /// [`device::Device::discard`], with which nobody is charged.
    pub fn discard_on_leaf(&self, leaf: LeafVdev<'_>, range: Range<u64>, secure: bool) -> Result<()> {
        let device = leaf.usable_device().ok_or_else(|| not_there(leaf))?;
        let bytes = range.end - range.start;
        let mut ticket = self.ticket(leaf.state(), Purpose::Trim, usize::try_from(bytes).unwrap_or(usize::MAX));
        ticket.iter_mut().for_each(Ticket::issued);
        device.discard(range.start, bytes, secure)?;
        ticket.into_iter().for_each(Ticket::done);
        Ok(())
    }
}

fn not_there(leaf: LeafVdev<'_>) -> Error {
    Error::new(ErrorKind::Missing, "the device is not used").at_vdev(leaf.name())
}
