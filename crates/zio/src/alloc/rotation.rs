//! Which top-level vdevs of a class serve: rotation, and keeping the copies of a block apart.
//!
//! A vdev serves until some 512 KiB for each of its data columns have been allocated, more if it is
//! emptier than the class, less if it is fuller; then comes the next one. The second and third copy
//! of a block go to the vdevs that follow.

use base::Result;
use format::blkptr::Dva;
use format::ids::Txg;
use vdev::{TopRange, Tree};

use super::class::{Class, Space};
use super::top::{FoundRun, Top};

/// Everything behind the allocator's lock.
#[derive(Debug, Default)]
pub(super) struct AllocatorState {
    pub(super) tops: Vec<Top>,
    /// Ranges of removed vdevs that no block has any more, and nobody has been told of.
    pub(super) obsolete: Vec<TopRange>,
    rotors: [Rotor; 4],
}

/// Whose turn it is in a class.
#[derive(Clone, Copy, Debug, Default)]
struct Rotor {
    /// Counts turns.
    turn: usize,
    /// Bytes left in this turn.
    left: u64,
}

/// What came of an attempt to allocate all copies of a block.
pub(super) enum AllocAttempt {
    /// The copies' addresses.
    Done(Vec<Dva>),
    /// That metaslab of that vdev (an index) must be loaded first.
    Load(usize, usize),
    /// The class has no room.
    Full,
}

/// A copy that has been allocated.
struct AllocatedCopy {
    /// Index of the vdev.
    top: usize,
    metaslab: usize,
    offset: u64,
    len: u64,
}

impl AllocatorState {
    /// Allocates all copies of a block, or nothing.
    pub(super) fn allocate(
        &mut self,
        tree: &Tree,
        class: Class,
        size: u64,
        copies: u8,
        txg: Txg,
    ) -> Result<AllocAttempt> {
        let serves = |top: &Top| top.class == class && top.serves(tree, txg);
        let members: Vec<usize> = (0..self.tops.len()).filter(|&i| serves(&self.tops[i])).collect();
        if members.is_empty() {
            return Ok(AllocAttempt::Full);
        }
        let turn = self.rotors[class as usize].turn % members.len();
        let order: Vec<usize> = members[turn..].iter().chain(&members[..turn]).copied().collect();
        let mut placed: Vec<AllocatedCopy> = Vec::with_capacity(copies.into());
        for copy in 0..copies.into() {
            let outcome = self.place(tree, &order, copy, size, txg, &placed);
            match outcome {
                Ok(Ok(copy)) => placed.push(copy),
                Ok(Err(other)) => {
                    self.undo(txg, placed);
                    return Ok(other);
                }
                Err(e) => {
                    self.undo(txg, placed);
                    return Err(e);
                }
            }
        }
        self.turn(class, &members, placed[0].len);
        let dva = |p: &AllocatedCopy| Dva::new(self.tops[p.top].number, p.offset, p.len, false);
        Ok(AllocAttempt::Done(placed.iter().map(dva).collect()))
    }

    /// Allocates a copy as far from those in `placed` as it can be.
    fn place(
        &mut self,
        tree: &Tree,
        order: &[usize],
        copy: usize,
        size: u64,
        txg: Txg,
        placed: &[AllocatedCopy],
    ) -> Result<Result<AllocatedCopy, AllocAttempt>> {
        let is_used = |top: usize| placed.iter().any(|p| p.top == top);
        let fresh = order.iter().filter(|&&top| !is_used(top)).map(|&top| (top, Vec::new()));
        let other_metaslab = order
            .iter()
            .filter(|&&top| is_used(top))
            .map(|&top| (top, placed.iter().filter(|p| p.top == top).map(|p| p.metaslab).collect::<Vec<_>>()));
        let anywhere = order.iter().filter(|&&top| is_used(top)).map(|&top| (top, Vec::new()));
        for (top, but) in fresh.chain(other_metaslab).chain(anywhere) {
            let len = tree.asize_at(self.tops[top].number, size, txg)?;
            match self.tops[top].allocate(copy, len, txg, &but) {
                FoundRun::At(metaslab, offset) => return Ok(Ok(AllocatedCopy { top, metaslab, offset, len })),
                FoundRun::Load(metaslab) => return Ok(Err(AllocAttempt::Load(top, metaslab))),
                FoundRun::None => {}
            }
        }
        Ok(Err(AllocAttempt::Full))
    }

    fn undo(&mut self, txg: Txg, placed: Vec<AllocatedCopy>) {
        for AllocatedCopy { top, metaslab, offset, len } in placed {
            let undone = self.tops[top].metaslabs[metaslab].unallocate(txg, offset..offset + len);
            undone.expect("allocated a moment ago");
        }
    }

    /// Counts `len` bytes, and hands over to the next vdev when this one has had its share.
    fn turn(&mut self, class: Class, members: &[usize], len: u64) {
        let rotor = &mut self.rotors[class as usize];
        rotor.left = rotor.left.saturating_sub(len);
        if rotor.left == 0 {
            rotor.turn = rotor.turn.wrapping_add(1);
            if members.len() > 1 {
                let top = &self.tops[members[rotor.turn % members.len()]];
                let all = members.iter().fold(Space::default(), |sum, &i| sum + self.tops[i].space());
                rotor.left = share(top.aliquot, top.space(), all);
            }
        }
    }
}

/// The aliquot times how much emptier this vdev is than the class, within a quarter and four times.
fn share(aliquot: u64, this: Space, all: Space) -> u64 {
    let fraction = |space: Space| space.free as f64 / space.size.max(1) as f64;
    let bias = fraction(this) / fraction(all).max(f64::MIN_POSITIVE);
    (aliquot as f64 * bias.clamp(0.25, 4.0)) as u64
}
