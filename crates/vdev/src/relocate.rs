//! Copying of what is on a vdev that is being removed, to another one.
//!
//! ```text
//!   mirror 1    side a  [bytes]  ──▶  side a of mirror 0     while the sides differ
//!               side b  [bytes]  ──▶  side b of mirror 0
//!   the same on all sides        ──▶  whatever vdev there is
//! ```
//!
//! Where blocks begin and end nobody knows here, so nothing can be verified: of a block that is damaged on one side, and
//! right on the other, both versions have to be kept. What one side cannot read is taken from another.

use std::ops::Range;

use base::{AlignedBuf, Error, Kind as ErrorKind, Result};
use device::meter::Purpose;
use format::ids::Txg;

use crate::geometry::FRONT_BYTES;
use crate::health::VdevStats;
use crate::indirect::TopRange;
use crate::locate::{Choice, Extent, nothing_left};
use crate::tree::Tree;
use crate::vdev::{LeafVdev, Placement, VdevId};

/// Bytes of a read.
const PART_BYTES: u64 = 1 << 20;

/// What came of copying a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relocated {
    /// It is there, but lasts only with the next [`Tree::flush`].
    Copied,
    /// Something could be lost by it, which is why nothing was copied: words for people.
    Unsafe(String),
}

/// A range to be copied.
#[derive(Clone, Copy, Debug)]
pub struct Relocation<'a> {
    /// Where it is.
    pub from: &'a TopRange,
    /// The bytes of it that are of any use, counted from its beginning.
    pub used: &'a [Range<u64>],
    /// Where it is to be: as many bytes.
    pub to: &'a TopRange,
    /// The group that is being written.
    pub txg: Txg,
    /// Whether bytes that cannot be read, and all but the first of several versions, may be lost.
    pub is_lossy: bool,
}

/// All that a side of the source has of a range.
struct SideBytes {
    leaf: VdevId,
    bytes: AlignedBuf,
    /// Of each part, whether it could be read.
    read: Vec<bool>,
}

impl Tree {
    /// Copies a range to another vdev, neither of which has parity.
    ///
    /// Leaves of the target that fail are charged, and lack the group from then on. Errors: those of leaves of the
    /// target, if its redundancy does not make up for it; `Missing` if nothing of the source can be read; `Corrupt` if
    /// there is no such place.
    pub fn relocate(&self, range: &Relocation<'_>) -> Result<Relocated> {
        let size = (range.from.range.end - range.from.range.start) as usize;
        let sector = 1u64 << self.top(range.from.top)?.ashift();
        let parts: Vec<Range<u64>> = range.used.iter().flat_map(|used| cut(used, PART_BYTES)).collect();
        let mut sides = self.read_sides(range.from, size, &parts)?;
        for (number, part) in parts.iter().enumerate() {
            if sides.iter().any(|side| side.read[number]) {
                fill_from_others(&mut sides, number, part);
                continue;
            }
            if let Some(offset) = self.read_by_sectors(range.from, &mut sides, part, sector)
                && !range.is_lossy
            {
                let name = self.top(range.from.top)?.name();
                return Ok(Relocated::Unsafe(format!("{name} cannot be read at {offset:#x}")));
            }
        }
        let of_version = versions(&sides, &parts);
        let count = of_version.iter().max().map_or(0, |last| last + 1);
        let to = self.top(range.to.top)?;
        if count > 1 && !range.is_lossy {
            if !matches!(to.place(), Placement::Copies) || self.leaves_of(to.id()).len() < count {
                let name = self.top(range.from.top)?.name();
                let what = format!("the sides of {name} are not the same, and {} cannot have all of them", to.name());
                return Ok(Relocated::Unsafe(what));
            }
            let first_of = |version| of_version.iter().position(|known| *known == version).unwrap_or(0);
            let versions: Vec<&[u8]> = (0..count).map(|version| &*sides[first_of(version)].bytes).collect();
            self.write_versions(range, &versions)?;
            return Ok(Relocated::Copied);
        }
        let extent =
            Extent { top: range.to.top, offset: range.to.range.start, size: size as u64, birth_txg: range.txg };
        self.write_batch(&[(extent, &sides[0].bytes)]).into_iter().collect::<Result<()>>()?;
        Ok(Relocated::Copied)
    }

    /// Reads what each side has.
    fn read_sides(&self, from: &TopRange, size: usize, parts: &[Range<u64>]) -> Result<Vec<SideBytes>> {
        let leaves = self.leaves_of(self.top(from.top)?.id());
        let usable: Vec<LeafVdev<'_>> = leaves.into_iter().filter(|leaf| leaf.usable_device().is_some()).collect();
        let has_whole = usable.iter().any(|leaf| leaf.state().dtl().is_empty());
        let trusted = usable.iter().filter(|leaf| !has_whole || leaf.state().dtl().is_empty());
        let new = |leaf: &LeafVdev<'_>| SideBytes {
            leaf: leaf.id(),
            bytes: AlignedBuf::zeroed(size),
            read: vec![false; parts.len()],
        };
        let mut sides: Vec<SideBytes> = trusted.map(new).collect();
        if sides.is_empty() {
            return Err(nothing_left("no copy").at_vdev(self.top(from.top)?.name()));
        }
        for side in &mut sides {
            let mut reads = Vec::with_capacity(parts.len());
            let mut rest = &mut side.bytes[..];
            let mut at = 0;
            for part in parts {
                let (start, end) = (part.start as usize, part.end as usize);
                let (bytes, behind) = rest[start - at..].split_at_mut(end - start);
                (rest, at) = (behind, end);
                let offset = from.range.start.saturating_add(part.start).saturating_add(FRONT_BYTES);
                reads.push(self.read_of(Choice { leaf: side.leaf, offset, trusted: true, spare: None }, bytes));
            }
            device::read_batch(&mut reads);
            for (read, result) in side.read.iter_mut().zip(reads.into_iter().map(|read| read.result)) {
                match result {
                    Ok(()) => *read = true,
                    Err(_) => VdevStats::count(&self.state_of(side.leaf).stats().read_errors),
                }
            }
        }
        Ok(sides)
    }

    /// Reads a part that no side could read as a whole, sector by sector, from any side. Returns where the first one is
    /// that nobody can read, on the vdev; it is full of zeros.
    fn read_by_sectors(&self, from: &TopRange, sides: &mut [SideBytes], part: &Range<u64>, sector: u64) -> Option<u64> {
        let mut lost = None;
        let mut bytes = AlignedBuf::zeroed(sector as usize);
        for at in cut(part, sector) {
            let offset = from.range.start.saturating_add(at.start);
            let len = (at.end - at.start) as usize;
            let is_read = sides.iter().any(|side| {
                let offset = offset.saturating_add(FRONT_BYTES);
                let choice = Choice { leaf: side.leaf, offset, trusted: true, spare: None };
                let mut read = [self.read_of(choice, &mut bytes[..len])];
                device::read_batch(&mut read);
                read[0].result.is_ok()
            });
            if !is_read {
                bytes.fill(0);
                lost = lost.or(Some(offset));
            }
            sides.iter_mut().for_each(|side| {
                side.bytes[at.start as usize..at.end as usize].copy_from_slice(&bytes[..len]);
            });
        }
        lost
    }

    /// Writes the versions to the leaves of the target in turn.
    fn write_versions(&self, range: &Relocation<'_>, versions: &[&[u8]]) -> Result<()> {
        let to = self.top(range.to.top)?;
        let txgs = range.txg..range.txg.next();
        let offset = range.to.range.start.saturating_add(FRONT_BYTES);
        let (away, there): (Vec<_>, Vec<_>) =
            self.leaves_of(to.id()).into_iter().enumerate().partition(|(_, leaf)| leaf.usable_device().is_none());
        away.iter().for_each(|(_, leaf)| leaf.state().dtl().insert(txgs.clone()));
        let version_of = |number: usize| number % versions.len();
        let mut writes: Vec<_> = there
            .iter()
            .map(|(number, leaf)| self.write_of(leaf.id(), offset, versions[version_of(*number)], Purpose::AsyncWrite))
            .collect();
        device::write_batch(&mut writes);
        let results: Vec<Result<()>> = writes.into_iter().map(|write| write.result).collect();
        let (mut done, mut error) = (vec![false; versions.len()], None);
        for ((number, leaf), result) in there.iter().zip(results) {
            match result {
                Ok(()) => {
                    leaf.state().note_written(txgs.clone());
                    done[version_of(*number)] = true;
                }
                Err(e) => {
                    leaf.state().dtl().insert(txgs.clone());
                    leaf.state().charge_write(&e);
                    error = error.or(Some(e));
                }
            }
        }
        if done.iter().all(|done| *done) {
            return Ok(());
        }
        let missing = || Error::new(ErrorKind::Missing, "a side that is to be written is away");
        Err(error.unwrap_or_else(missing).at_vdev(to.name()))
    }
}

/// Pieces of a range, of so many bytes at most.
pub(crate) fn cut(range: &Range<u64>, bytes: u64) -> impl Iterator<Item = Range<u64>> + use<> {
    let end = range.end;
    (range.start..end).step_by(bytes as usize).map(move |start| start..end.min(start + bytes))
}

/// Gives a part, which some sides could read, to those that could not.
fn fill_from_others(sides: &mut [SideBytes], number: usize, part: &Range<u64>) {
    let part = part.start as usize..part.end as usize;
    let Some(good) = sides.iter().position(|side| side.read[number]) else { return };
    for at in (0..sides.len()).filter(|&at| at != good) {
        if !sides[at].read[number] {
            let [from, to] = sides.get_disjoint_mut([good, at]).expect("two sides");
            to.bytes[part.clone()].copy_from_slice(&from.bytes[part.clone()]);
        }
    }
}

/// The version that each side has: sides of the same number have the same in all parts.
fn versions(sides: &[SideBytes], parts: &[Range<u64>]) -> Vec<usize> {
    let same = |one: &SideBytes, other: &SideBytes| {
        parts.iter().all(|part| {
            let part = part.start as usize..part.end as usize;
            one.bytes[part.clone()] == other.bytes[part]
        })
    };
    let (mut of_version, mut count) = (Vec::with_capacity(sides.len()), 0);
    for (at, side) in sides.iter().enumerate() {
        let known = sides[..at].iter().position(|before| same(before, side));
        let version = known.map_or(count, |before| of_version[before]);
        count = count.max(version + 1);
        of_version.push(version);
    }
    of_version
}
