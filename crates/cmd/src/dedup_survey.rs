//! What deduplication would come to, by the pointers to all blocks of data.
//!
//! ```text
//!   pointers to all blocks of data ─┬▶ sums and sizes ─▶ of these one in 2^n, chosen by the sum ─▶ how many are there twice
//!                                   └▶ places ─▶ of these one in 2^m, chosen by the place ─▶ how many are shared already
//! ```
//!
//! Pointers tell the sums of blocks, so no data is read, only what leads to it. All pointers to a block are in a
//! sample, or none: what the sample saves is what the pool would, but for chance ([`DistinctSample`]).
//!
//! Several pointers may lead to one place: by clones of blocks, or where dedup is on. That takes no room, and nothing more
//! can be saved there.

use codec::checksum::Checksum;
use dmu::traverse::Visit;
use format::blkptr::BlkPtr;
use format::ddt::DdtKey;
use pool::check::{BlockKind, Observer};

use crate::advise::ratio::DEVIATIONS;
use crate::distinct::{DistinctSample, SampledBlock, chance_of};
use crate::progress::ProgressDisplay;

/// Bytes of memory that an entry of a table takes with its share of free room: blocks of 4 KiB of 22 entries at most
/// are three quarters full.
pub const ENTRY_BYTES: u64 = 256;

/// What has been seen of a pool.
pub struct DedupSurvey {
    /// By number of the checksum and key.
    by_sum: DistinctSample<6>,
    /// By the address of the first copy, and when it was written.
    by_place: DistinctSample<3>,
    /// Pointers to blocks of data, and bytes of them, shared ones with each pointer.
    pointers: u64,
    bytes: u64,
    /// Blocks that nothing tells apart, or that could not be reached.
    pub left_out: u64,
    /// Whether some have checksums that are no proof that blocks are equal.
    pub is_weak: bool,
    progress: Option<ProgressDisplay>,
}

/// What tells a block from others: number of the checksum, checksum, and what dedup goes by beside it.
#[derive(Clone, Copy, Debug)]
pub struct TellingSum {
    /// See above.
    pub words: [u64; 6],
    /// Bytes that the block takes, all its copies.
    pub bytes: u64,
    /// That checksum is no proof that blocks are equal.
    pub is_weak: bool,
}

/// What dedup would come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DedupEstimate {
    /// Different places, and the bytes that they take.
    pub blocks: f64,
    /// See `blocks`.
    pub bytes: f64,
    /// Different blocks.
    pub entries: f64,
    /// Bytes of them.
    pub unique_bytes: f64,
    /// Pointers that lead where others do, and bytes of them.
    pub shared: f64,
    /// See `shared`.
    pub shared_bytes: f64,
    /// How far off the difference of both may be.
    pub error_bytes: f64,
}

impl DedupEstimate {
    /// The ratio if there are so many different bytes.
    pub fn ratio(&self, unique_bytes: f64) -> f64 {
        (self.bytes / unique_bytes.max(1.0)).max(1.0)
    }
}

impl TellingSum {
    /// That of a block; `None` if it has no checksum, or one that its key has made.
    pub fn of(bp: &BlkPtr) -> Option<TellingSum> {
        let checksum = Checksum::from_u8(bp.checksum_kind()).filter(|checksum| *checksum != Checksum::Off)?;
        if bp.uses_crypt() {
            return None;
        }
        let [a, b, c, d, sizes] = DdtKey::of(bp).words();
        Some(TellingSum {
            words: [u64::from(bp.checksum_kind()), a, b, c, d, sizes],
            bytes: bp.copies().fold(0, |sum: u64, dva| sum.saturating_add(dva.asize())),
            is_weak: !checksum.is_nopwrite_strong(),
        })
    }
}

impl DedupSurvey {
    /// Has so many blocks in each sample at most; one takes about 100 bytes of memory.
    pub fn new(max: usize, progress: Option<ProgressDisplay>) -> DedupSurvey {
        let (by_sum, by_place) = (DistinctSample::new(max), DistinctSample::new(max));
        DedupSurvey { by_sum, by_place, pointers: 0, bytes: 0, left_out: 0, is_weak: false, progress }
    }

    /// Different blocks that were counted.
    pub fn counted(&self) -> u64 {
        self.by_sum.len() as u64
    }

    /// Bytes of memory that the samples take.
    #[cfg(test)]
    pub fn memory_bytes(&self) -> usize {
        self.by_sum.memory_bytes() + self.by_place.memory_bytes()
    }

    /// Different blocks for one that was counted.
    pub fn scale(&self) -> f64 {
        self.by_sum.scale()
    }

    /// Counts a pointer to a block of data.
    pub fn add(&mut self, bp: &BlkPtr) {
        let Some(TellingSum { words, bytes, is_weak }) = TellingSum::of(bp) else {
            self.left_out += 1;
            return;
        };
        self.is_weak |= is_weak;
        let [vdev, offset] = bp.dvas()[0].words();
        self.count(words, [vdev, offset, bp.physical_birth().get()], bytes);
    }

    /// Counts a pointer to a block that these words tell from others, and that is in this place.
    pub fn count(&mut self, words: [u64; 6], place: [u64; 3], bytes: u64) {
        self.pointers += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.by_sum.count(chance_of(&words), words, bytes);
        self.by_place.count(chance_of(&place), place, bytes);
    }

    /// What the pointers until now come to.
    pub fn estimate(&self) -> DedupEstimate {
        let bytes = |block: &SampledBlock| block.bytes as f64;
        let further = |block: &SampledBlock| block.pointers as f64 - 1.0;
        let further_bytes = |block: &SampledBlock| bytes(block) * further(block);
        let variance = self.by_sum.variance(&bytes) + self.by_place.variance(&further_bytes);
        let (shared, shared_bytes) = (self.by_place.sum(&further), self.by_place.sum(&further_bytes));
        DedupEstimate {
            // a place takes its room once
            blocks: (self.pointers as f64 - shared).max(0.0),
            bytes: (self.bytes as f64 - shared_bytes).max(0.0),
            entries: self.by_sum.len() as f64 * self.by_sum.scale(),
            unique_bytes: self.by_sum.sum(&bytes),
            shared,
            shared_bytes,
            error_bytes: DEVIATIONS * variance.sqrt(),
        }
    }
}

impl Observer for DedupSurvey {
    fn block(&mut self, visit: &Visit<'_>, kind: BlockKind) {
        if kind.is_placed_data(visit.bp) {
            self.add(visit.bp);
        }
    }

    fn lost(&mut self, _error: &base::Error) {
        self.left_out += 1;
    }

    fn progress(&mut self, bytes: u64) {
        self.progress.iter_mut().for_each(|progress| progress.add(bytes));
    }
}

#[cfg(test)]
mod tests {
    use base::split_mix;

    use super::*;

    /// A pool of blocks of which each third is there five times, and each fifth of these places has seven pointers.
    /// Bytes of different blocks, and of pointers to places that have others.
    fn survey(max: usize, count: u64, seed: u64) -> (DedupSurvey, u64, u64) {
        let mut survey = DedupSurvey::new(max, None);
        let (mut unique, mut shared) = (0, 0);
        for n in 0..count {
            let sum = split_mix(n ^ seed << 40);
            let bytes = 4096 << (sum >> 60 & 3);
            unique += bytes;
            // fletcher sums of short blocks differ in few bits
            let words = [7, n * 512, sum, 0, 0, 7];
            for copy in 0..if n % 3 == 0 { 5 } else { 1 } {
                let pointers = if (n + copy) % 5 == 0 { 7 } else { 1 };
                shared += bytes * (pointers - 1);
                (0..pointers).for_each(|_| survey.count(words, [1, n << 16 | copy << 8, seed], bytes));
            }
        }
        (survey, unique, shared)
    }

    #[test]
    fn a_sample_that_holds_all_is_exact() {
        let (survey, unique, shared) = survey(1 << 20, 3000, 1);
        let found = survey.estimate();
        // of the thousand blocks that are there five times one place, of the others one in five
        let pointers = 1400.0 * 6.0;
        assert_eq!((found.entries, found.unique_bytes, found.error_bytes), (3000.0, unique as f64, 0.0));
        assert_eq!((found.shared, found.shared_bytes), (pointers, shared as f64));
        assert_eq!(survey.pointers, 7000 + 1400 * 6);
    }

    #[test]
    fn what_is_shared_already_is_not_saved() {
        let mut survey = DedupSurvey::new(100, None);
        for n in 0..50 {
            (0..2).for_each(|_| survey.count([7, n, n, n, n, n], [1, n, 9], 2 << 20));
        }
        // the same place in another group is another block
        survey.count([7, 3, 3, 3, 3, 3], [1, 3, 10], 2 << 20);
        let found = survey.estimate();
        assert_eq!(
            (found.blocks, found.bytes, found.shared_bytes),
            (51.0, 102.0 * f64::from(1 << 20), 50.0 * 2_097_152.0)
        );
        assert_eq!((found.ratio(found.unique_bytes), found.error_bytes), (1.02, 0.0));
    }

    #[test]
    fn the_bound_holds() {
        let mut within = 0;
        for seed in 0..100 {
            let (survey, unique, shared) = survey(500, 20_000, seed);
            assert!(survey.by_sum.len() <= 500 && survey.by_sum.scale() >= 32.0);
            assert!(survey.by_place.len() <= 500 && survey.by_place.scale() >= 64.0);
            let found = survey.estimate();
            let (is, should) = (found.unique_bytes + found.shared_bytes, (unique + shared) as f64);
            assert!(found.error_bytes < should * 0.5, "{found:?}");
            within += u32::from((is - should).abs() <= found.error_bytes);
        }
        assert!((88..=100).contains(&within), "{within} of 100 samples are within the bound");
    }
}
