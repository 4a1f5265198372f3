//! One top-level vdev: which of its metaslabs serves.
//!
//! Each copy number of a block has an active metaslab of its own, which serves as long as it can; so
//! two copies on one vdev are in different metaslabs where there are several. The next active one is
//! the emptiest, by sixteenths, and of equals the first, as disks are fastest there.

use std::cmp::Reverse;
use std::ops::Range;

use base::{Error, Result};
use format::ids::{Txg, VdevNumber};
use vdev::Tree;

use super::class::{Class, Serving, Space};
use super::metaslab::Metaslab;

/// A top-level vdev.
#[derive(Debug)]
pub(super) struct Top {
    pub(super) number: VdevNumber,
    pub(super) class: Class,
    pub(super) ashift: u32,
    pub(super) metaslab_shift: u32,
    pub(super) metaslabs: Vec<Metaslab>,
    /// Bytes to be allocated here before the next vdev's turn, when all are equally full.
    pub(super) aliquot: u64,
    /// The active metaslab for each copy of a block.
    pub(super) active: [Option<usize>; 3],
    pub(super) serving: Serving,
    /// No log block goes here before this group: one failed.
    pub(super) shunned_until: Txg,
}

/// What came of looking for a run.
pub(super) enum FoundRun {
    /// Allocated in that metaslab at that offset.
    At(usize, u64),
    /// That metaslab must be loaded first.
    Load(usize),
    /// There is none.
    None,
}

impl Top {
    /// Adds metaslabs behind those that it has: their bytes, and how many of them are allocated. Errors: `Corrupt` if they
    /// are impossible, with nothing changed.
    pub(super) fn add_metaslabs(&mut self, new: Vec<(Range<u64>, u64)>, is_trimmed: bool) -> Result<()> {
        let (ashift, shift) = (self.ashift, self.metaslab_shift);
        let possible = |(i, (range, _)): (usize, &(Range<u64>, u64))| {
            let start = (i as u64).checked_mul(1 << shift)?;
            let whole = (range.start | range.end).trailing_zeros() >= ashift;
            let inside = range.start >= start && range.start <= range.end && range.end - start <= 1 << shift;
            (whole && inside).then_some(())
        };
        // a metaslab has fewer than 2^32 sectors, as its set of ranges counts them in 32 bits
        let sane = (ashift..ashift + 32).contains(&shift);
        if !sane || !(self.metaslabs.len()..).zip(&new).all(|metaslab| possible(metaslab).is_some()) {
            let number = self.number;
            return Err(Error::corrupt(format!("vdev {number} has impossible metaslabs of 2^{shift} bytes")));
        }
        self.metaslabs.extend(new.into_iter().map(|(range, allocated)| {
            let mut metaslab = Metaslab::new(range, ashift, allocated);
            metaslab.set_autotrim(is_trimmed);
            metaslab
        }));
        Ok(())
    }

    /// Allocates `len` bytes for copy number `copy`, in none of the metaslabs `but`.
    pub(super) fn allocate(&mut self, copy: usize, len: u64, txg: Txg, but: &[usize]) -> FoundRun {
        if let Some(active) = self.active[copy].filter(|active| !but.contains(active))
            && let Some(offset) = self.metaslabs[active].allocate(len, txg)
        {
            return FoundRun::At(active, offset);
        }
        let others = |i: usize| self.active.iter().enumerate().any(|(c, a)| c != copy && *a == Some(i));
        let candidates = self.metaslabs.iter().enumerate().filter(|(i, m)| !but.contains(i) && m.may_hold(len));
        let best = candidates.map(|(i, _)| i).max_by_key(|&i| {
            let metaslab = &self.metaslabs[i];
            let sixteenths = u128::from(metaslab.room()) * 16 / u128::from(metaslab.size().max(1));
            (!others(i), sixteenths, Reverse(i))
        });
        let Some(best) = best else { return FoundRun::None };
        if self.metaslabs[best].is_unloaded() {
            return FoundRun::Load(best);
        }
        let offset = self.metaslabs[best].allocate(len, txg).expect("a loaded metaslab knows its largest run");
        self.active[copy] = Some(best);
        FoundRun::At(best, offset)
    }

    /// Whether blocks of group `txg` may go here. What is there for logs only has to work.
    pub(super) fn serves(&self, tree: &Tree, txg: Txg) -> bool {
        let works = || tree.top(self.number).is_ok_and(|top| tree.health(top.id()).is_readable());
        self.serving == Serving::Open && (self.class != Class::Log || self.shunned_until <= txg && works())
    }

    pub(super) fn space(&self) -> Space {
        self.metaslabs.iter().fold(Space::default(), |sum, metaslab| {
            sum + Space {
                size: metaslab.size(),
                allocated: metaslab.allocated(),
                deferred: metaslab.deferred(),
                free: metaslab.room(),
            }
        })
    }

    /// Number of the metaslab that `offset` is in.
    pub(super) fn metaslab_at(&self, offset: u64) -> Option<usize> {
        let number = usize::try_from(offset >> self.metaslab_shift).ok()?;
        (number < self.metaslabs.len()).then_some(number)
    }
}
