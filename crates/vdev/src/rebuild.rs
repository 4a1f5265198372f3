//! Sequential resilvers: what is in use on a mirror or draid is given to leaves that lack something, wherever blocks begin
//! and end there.
//!
//! ```text
//!   mirror   side that lacks nothing ─▶ ranges, in the order of places ─▶ all sides that lack something
//!   draid    columns that lack nothing ─▶ the others, by parity ─▶ all leaves, and distributed spares, that lack something
//! ```
//!
//! On a draid each line of a group has its own parity, whatever the blocks are, as the last line of a block is filled up.
//!
//! No sum tells whether the bytes are right. So they are read only from leaves that have missed nothing.

use std::ops::Range;

use base::{AlignedBuf, Env, Error, Kind as ErrorKind, Result, WorkKind};
use device::meter::Purpose;
use format::ids::{Txg, VdevNumber};

use crate::geometry::FRONT_BYTES;
use crate::locate::Choice;
use crate::spec::VdevKind;
use crate::tree::Tree;
use crate::vdev::{LeafVdev, Placement, Vdev};

/// So many bytes are read at a time, while those before them are written.
const PIECE_BYTES: u64 = 1 << 20;

/// What came of copying ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Bytes that were written.
    pub bytes: u64,
    /// Sectors that no side could be read for.
    pub errors: u64,
    /// Writes to a draid that failed.
    pub unwritten: u64,
}

impl Rebuilt {
    /// Counts what came of others, too.
    fn add(&mut self, other: Rebuilt) {
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.unwritten += other.unwritten;
    }
}

/// A range of the vdev that was read.
struct ReadRange {
    start: u64,
    bytes: AlignedBuf,
}

impl Tree {
    /// Whether all below a top-level vdev have the same bytes at the same places, or it is a draid.
    pub fn is_rebuildable(&self, top: &Vdev) -> bool {
        if matches!(top.place(), Placement::Draid(_)) {
            return true;
        }
        let is_plain = |vdev: &Vdev| {
            matches!(vdev.kind(), VdevKind::Disk | VdevKind::File) || vdev.kind().is_copies() && !vdev.has_parity()
        };
        is_plain(top) && self.leaves_of(top.id()).iter().all(|leaf| is_plain(leaf.vdev()))
    }

    /// Gives ranges of a top-level vdev, all that is written to it otherwise at that time, to those leaves that lack
    /// something. Ranges of a draid are made of whole stripes. It lasts with the next [`Tree::flush`]. What cannot be
    /// written is charged to the leaf, which then has unfilled blocks ([`crate::Dtl::has_unfilled`]), or on a draid is
    /// counted.
    ///
    /// Errors: [`ErrorKind::Missing`] if no side of a mirror is there that lacks nothing; [`ErrorKind::Corrupt`] for a
    /// range of a draid that is not made of stripes.
    pub fn rebuild(&self, number: VdevNumber, ranges: &[Range<u64>]) -> Result<Rebuilt> {
        // blocks of logs are written at any time, to places that were allocated long ago
        let _alone = self.shapes().alone();
        let top = self.top(number)?;
        if let Placement::Draid(layout) = top.place() {
            return self.rebuild_stripes(top, layout, ranges);
        }
        let usable = self.leaves_of(top.id()).into_iter().filter(|leaf| leaf.usable_device().is_some());
        let (mut whole, lacking): (Vec<_>, Vec<_>) = usable.partition(|leaf| leaf.state().dtl().is_empty());
        if lacking.is_empty() {
            return Ok(Rebuilt::default());
        }
        if whole.is_empty() {
            return Err(Error::new(ErrorKind::Missing, "no side has everything").at_vdev(top.name()));
        }
        // that which is to be replaced is read first: then each side has its own version of what is damaged
        let is_beside = |leaf: &LeafVdev<'_>| {
            let above = leaf.parent().filter(|&above| above != top.id() || top.kind() != VdevKind::Mirror);
            above.is_some() && lacking.iter().any(|other| other.parent() == above)
        };
        whole.sort_by_key(|leaf| !is_beside(leaf));
        let sector = 1u64 << top.ashift();
        let read = |piece: &[Range<u64>]| self.read_all(&whole, piece, sector);
        let write = |read: &Vec<ReadRange>| Rebuilt { bytes: self.write_ranges(&lacking, read), ..Rebuilt::default() };
        Ok(self.copy_pieces(pieces(ranges, PIECE_BYTES, |range| range.end - range.start), read, write))
    }

    /// Reads pieces, and writes each while the next is read. `read` also tells how many sectors could not be.
    pub(crate) fn copy_pieces<P, R: Sync>(
        &self,
        pieces: impl Iterator<Item = P>,
        read: impl Fn(P) -> (R, u64),
        write: impl Fn(&R) -> Rebuilt + Sync,
    ) -> Rebuilt {
        let (mut rebuilt, mut last) = (Rebuilt::default(), None);
        for piece in pieces {
            let reads = || read(piece);
            let writes = || last.as_ref().map_or_else(Rebuilt::default, &write);
            let ((next, errors), written) = match self.env() {
                Some(env) => env.both(reads, writes),
                None => (reads(), writes()),
            };
            rebuilt.errors += errors;
            rebuilt.add(written);
            last = Some(next);
        }
        rebuilt.add(last.as_ref().map_or_else(Rebuilt::default, &write));
        rebuilt
    }

    /// Reads ranges, sector by sector what cannot be read as a whole. Also how many sectors none of the leaves can read.
    fn read_all(&self, leaves: &[LeafVdev<'_>], ranges: &[Range<u64>], sector: u64) -> (Vec<ReadRange>, u64) {
        let (mut read, mut errors) = (Vec::with_capacity(ranges.len()), 0);
        for (range, bytes) in ranges.iter().zip(self.read_ranges(leaves, ranges)) {
            match bytes {
                Some(bytes) => read.push(ReadRange { start: range.start, bytes }),
                None => {
                    let sectors: Vec<Range<u64>> =
                        (range.start..range.end).step_by(sector as usize).map(|at| at..at + sector).collect();
                    let found = self.read_ranges(leaves, &sectors);
                    errors += found.iter().filter(|bytes| bytes.is_none()).count() as u64;
                    let found = sectors.iter().zip(found);
                    read.extend(found.filter_map(|(at, bytes)| Some(ReadRange { start: at.start, bytes: bytes? })));
                }
            }
        }
        (read, errors)
    }

    /// Reads ranges, each from the first of the leaves that can; `None` of one that none can.
    fn read_ranges(&self, leaves: &[LeafVdev<'_>], ranges: &[Range<u64>]) -> Vec<Option<AlignedBuf>> {
        let mut bytes: Vec<Option<AlignedBuf>> = ranges.iter().map(|_| None).collect();
        for leaf in leaves {
            let left: Vec<usize> = (0..ranges.len()).filter(|&at| bytes[at].is_none()).collect();
            let len = |at: usize| (ranges[at].end - ranges[at].start) as usize;
            let mut buffers: Vec<AlignedBuf> = left.iter().map(|&at| AlignedBuf::for_overwrite(len(at))).collect();
            let mut reads: Vec<_> = left
                .iter()
                .zip(&mut buffers)
                .map(|(&at, buffer)| {
                    let offset = ranges[at].start.saturating_add(FRONT_BYTES);
                    Env::doing(WorkKind::Rebuild, || {
                        self.read_of(Choice { leaf: leaf.id(), offset, trusted: true, spare: None }, buffer)
                    })
                })
                .collect();
            device::read_batch(&mut reads);
            let results: Vec<Result<()>> = reads.into_iter().map(|read| read.result).collect();
            for ((at, buffer), result) in left.into_iter().zip(buffers).zip(results) {
                match result {
                    Ok(()) => bytes[at] = Some(buffer),
                    Err(error) => leaf.state().charge_read(&error),
                }
            }
        }
        bytes
    }

    /// Writes to all of the leaves; how many bytes.
    fn write_ranges(&self, leaves: &[LeafVdev<'_>], read: &[ReadRange]) -> u64 {
        let all: Vec<(&LeafVdev<'_>, &ReadRange)> =
            leaves.iter().flat_map(|leaf| read.iter().map(move |range| (leaf, range))).collect();
        let mut writes: Vec<_> = all
            .iter()
            .map(|(leaf, range)| {
                let offset = range.start.saturating_add(FRONT_BYTES);
                self.write_of(leaf.id(), offset, &range.bytes, Purpose::AsyncWrite)
            })
            .collect();
        device::write_batch(&mut writes);
        let results: Vec<Result<()>> = writes.into_iter().map(|write| write.result).collect();
        let mut written = 0;
        for ((leaf, range), result) in all.into_iter().zip(results) {
            match result {
                Ok(()) => {
                    leaf.state().note_written(Txg::ZERO..Txg::ZERO);
                    written += range.bytes.len() as u64;
                }
                Err(error) => {
                    leaf.state().charge_write(&error);
                    leaf.state().dtl().note_lost_fill();
                }
            }
        }
        written
    }
}

/// What has these lengths, in pieces of so many bytes or a little more.
pub(crate) fn pieces<T>(all: &[T], most: u64, len: impl Fn(&T) -> u64) -> impl Iterator<Item = &[T]> {
    let mut bytes = 0;
    all.chunk_by(move |one, _| {
        bytes += len(one);
        let goes_on = bytes < most;
        if !goes_on {
            bytes = 0;
        }
        goes_on
    })
}
