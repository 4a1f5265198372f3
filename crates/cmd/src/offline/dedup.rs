//! `cenote dedup`: what deduplication would save, and what its table would cost, before it is switched on.
//!
//! ```text
//!   pointers to all blocks of data ─┬▶ sums and sizes ─▶ of these one in 2^n, chosen by the sum ─▶ how many are there twice
//!                                   └▶ places ─▶ of these one in 2^m, chosen by the place ─▶ how many are shared already
//! ```
//!
//! Pointers tell the sums of blocks, so no data is read, only what leads to it. All pointers to a block are in a
//! sample, or none: what the sample saves is what the pool would, but for chance. When it outgrows its memory, half of
//! the keys leave it. How far off it may be follows from how unequal the blocks in it are.
//!
//! Several pointers may lead to one place: by clones of blocks, or where dedup is on. That takes no room, and nothing more
//! can be saved there.

use std::collections::HashMap;
use std::io::Write;

use base::Result;
use codec::checksum::Checksum;
use dmu::traverse::Visit;
use format::blkptr::BlkPtr;
use format::ddt::DdtKey;
use pool::Pool;
use pool::check::{BlockKind, CheckOptions, Observer, Verify};
use protocol::words::nicenum::{nicebytes, nicenum};

use super::target::{Opener, PoolArgs, Target};
use crate::output::{complain, stdout, written};
use crate::progress::ProgressDisplay;

/// Different blocks that a sample has at most, and different places; each takes about 100 bytes of memory.
const SAMPLE_MAX: usize = 1 << 20;
/// Bytes of memory that an entry of a table takes with its share of free room: blocks of 4 KiB of 22 entries at most
/// are three quarters full.
const ENTRY_BYTES: u64 = 256;
/// Standard deviations within which 95 of 100 samples are.
const DEVIATIONS: f64 = 1.96;

/// Say what dedup would save in a pool, and what its table would take
///
/// Reads what leads to data, not the data: blocks are told apart by the checksums that they have. Blocks of datasets
/// with different checksums or compression are different; those without checksum, and encrypted ones, are left out.
#[derive(clap::Parser)]
#[command(name = "cenote dedup", no_binary_name = true)]
pub struct DedupArgs {
    #[command(flatten)]
    pool: PoolArgs,
    /// The pool
    #[arg(value_name = "POOL")]
    name: std::ffi::OsString,
}

pub fn run(args: DedupArgs) -> bool {
    let shown = args.name.to_string_lossy().into_owned();
    let mut opener = Opener::new(&args.pool);
    let opened = Target::parse(&args.name).and_then(|target| opener.pool(target.pool()));
    match opened.and_then(|pool| look(&pool)) {
        Ok(survey) => written("dedup", survey.print(&mut stdout())),
        Err(e) => {
            complain("dedup", format_args!("{shown}: {e}"));
            false
        }
    }
}

fn look(pool: &Pool) -> Result<DedupSurvey> {
    let total = pool.space().ok().map(|space| space.allocated_on(|_| true));
    let mut survey = DedupSurvey::new(SAMPLE_MAX, Some(ProgressDisplay::new(total)));
    pool.check(CheckOptions { verify: Verify::Nothing, space: false }, &mut survey)?;
    Ok(survey)
}

/// A block in a sample: bytes that it takes, and pointers to it.
#[derive(Clone, Copy)]
struct SampledBlock {
    bytes: u64,
    pointers: u64,
}

/// Blocks of which the mixed words of the key end in so many zeros.
struct Sample<const N: usize> {
    blocks: HashMap<[u64; N], SampledBlock>,
    zeros: u32,
    max: usize,
}

/// What has been seen of a pool.
struct DedupSurvey {
    /// By number of the checksum and key.
    by_sum: Sample<6>,
    /// By the address of the first copy, and when it was written.
    by_place: Sample<3>,
    /// Pointers to blocks of data, and bytes of them, shared ones with each pointer.
    pointers: u64,
    bytes: u64,
    /// Blocks that nothing tells apart, or that could not be reached.
    left_out: u64,
    progress: Option<ProgressDisplay>,
}

/// What dedup would come to.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Estimate {
    /// Different blocks.
    entries: f64,
    /// Bytes of them.
    unique_bytes: f64,
    /// Pointers that lead where others do, and bytes of them.
    shared: f64,
    shared_bytes: f64,
    /// How far off the difference of both may be.
    error_bytes: f64,
}

impl<const N: usize> Sample<N> {
    fn new(max: usize) -> Sample<N> {
        Sample { blocks: HashMap::new(), zeros: 0, max }
    }

    fn count(&mut self, key: [u64; N], bytes: u64) {
        if !self.has(&key) {
            return;
        }
        self.blocks.entry(key).or_insert(SampledBlock { bytes, pointers: 0 }).pointers += 1;
        while self.blocks.len() > self.max {
            self.zeros += 1;
            let mut blocks = std::mem::take(&mut self.blocks);
            blocks.retain(|key, _| self.has(key));
            self.blocks = blocks;
        }
    }

    /// Whether a block is one of the sample. Weak sums have little chance in their low bits, so all are mixed.
    fn has(&self, key: &[u64; N]) -> bool {
        let mixed = key.iter().fold(0u64, |mixed, word| {
            let sum = (mixed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            sum ^ sum >> 29
        });
        mixed.trailing_zeros() >= self.zeros
    }

    /// How many are in the pool for one in the sample.
    fn scale(&self) -> f64 {
        f64::from(self.zeros).exp2()
    }

    /// The sum of `f` over all blocks of the pool.
    fn sum(&self, f: &dyn Fn(&SampledBlock) -> f64) -> f64 {
        self.blocks.values().map(f).sum::<f64>() * self.scale()
    }

    /// How far off that is, squared: each block is in the sample with a chance of 1 in `scale`.
    fn variance(&self, f: &dyn Fn(&SampledBlock) -> f64) -> f64 {
        (self.scale() - 1.0) * self.sum(&|block| f(block) * f(block))
    }
}

impl DedupSurvey {
    fn new(max: usize, progress: Option<ProgressDisplay>) -> DedupSurvey {
        let (by_sum, by_place) = (Sample::new(max), Sample::new(max));
        DedupSurvey { by_sum, by_place, pointers: 0, bytes: 0, left_out: 0, progress }
    }

    fn add(&mut self, bp: &BlkPtr) {
        let is_summed = Checksum::from_u8(bp.checksum_kind()).is_some_and(|checksum| checksum != Checksum::Off);
        if !is_summed || bp.uses_crypt() {
            self.left_out += 1;
            return;
        }
        let bytes = bp.copies().fold(0, |sum: u64, dva| sum.saturating_add(dva.asize()));
        let [vdev, offset] = bp.dvas()[0].words();
        self.count((bp.checksum_kind(), DdtKey::of(bp)), [vdev, offset, bp.physical_birth().get()], bytes);
    }

    fn count(&mut self, (checksum, key): (u8, DdtKey), place: [u64; 3], bytes: u64) {
        self.pointers += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        let [a, b, c, d, sizes] = key.words();
        self.by_sum.count([u64::from(checksum), a, b, c, d, sizes], bytes);
        self.by_place.count(place, bytes);
    }

    fn estimate(&self) -> Estimate {
        let bytes = |block: &SampledBlock| block.bytes as f64;
        let further = |block: &SampledBlock| block.pointers as f64 - 1.0;
        let further_bytes = |block: &SampledBlock| bytes(block) * further(block);
        let variance = self.by_sum.variance(&bytes) + self.by_place.variance(&further_bytes);
        Estimate {
            entries: self.by_sum.blocks.len() as f64 * self.by_sum.scale(),
            unique_bytes: self.by_sum.sum(&bytes),
            shared: self.by_place.sum(&further),
            shared_bytes: self.by_place.sum(&further_bytes),
            error_bytes: DEVIATIONS * variance.sqrt(),
        }
    }

    fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let Estimate { entries, unique_bytes, shared, shared_bytes, error_bytes } = self.estimate();
        // a place takes its room once
        let total = (self.bytes as f64 - shared_bytes).max(0.0);
        let blocks = (self.pointers as f64 - shared).max(0.0);
        writeln!(out, "{} blocks of data, which take {}", nicenum(blocks as u64), nicebytes(total as u64))?;
        if shared > 0.0 {
            writeln!(out, "already shared: {}", nicebytes(shared_bytes as u64))?;
        }
        if self.left_out > 0 {
            writeln!(out, "{} blocks without checksum, or encrypted, are not among them", nicenum(self.left_out))?;
        }
        if self.by_sum.blocks.is_empty() {
            return writeln!(out, "nothing to deduplicate");
        }
        match self.by_sum.zeros {
            0 => writeln!(out, "all of them were counted")?,
            n => writeln!(
                out,
                "1 in {} checksums was counted: {} blocks",
                nicenum(1 << n),
                nicenum(self.by_sum.blocks.len() as u64)
            )?,
        }
        let ratio = |unique: f64| (total / unique.max(1.0)).max(1.0);
        let saved = |unique: f64| nicebytes((total - unique).max(0.0) as u64);
        writeln!(out, "\ndedup = {:.2}, saves {}", ratio(unique_bytes), saved(unique_bytes))?;
        if error_bytes > 0.0 {
            let (low, high) = (unique_bytes + error_bytes, unique_bytes - error_bytes);
            writeln!(
                out,
                "95 of 100 such samples are within {:.2} and {:.2}, {} and {}",
                ratio(low),
                ratio(high),
                saved(low),
                saved(high)
            )?;
        }
        let memory = nicebytes((entries * ENTRY_BYTES as f64) as u64);
        writeln!(out, "its table has {} entries, about {memory} in memory", nicenum(entries as u64))
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
    use super::*;

    /// Numbers that look like chance.
    fn mix(n: u64) -> u64 {
        let x = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb)
    }

    /// A pool of blocks of which each third is there five times, and each fifth of these places has seven pointers.
    /// Bytes of different blocks, and of pointers to places that have others.
    fn survey(max: usize, count: u64, seed: u64) -> (DedupSurvey, u64, u64) {
        let mut survey = DedupSurvey::new(max, None);
        let (mut unique, mut shared) = (0, 0);
        for n in 0..count {
            let sum = mix(n ^ seed << 40);
            let bytes = 4096 << (sum >> 60 & 3);
            unique += bytes;
            // fletcher sums of short blocks differ in few bits
            let key = DdtKey::from_words([n * 512, sum, 0, 0, 7]);
            for copy in 0..if n % 3 == 0 { 5 } else { 1 } {
                let pointers = if (n + copy) % 5 == 0 { 7 } else { 1 };
                shared += bytes * (pointers - 1);
                (0..pointers).for_each(|_| survey.count((7, key), [1, n << 16 | copy << 8, seed], bytes));
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
            (0..2).for_each(|_| survey.count((7, DdtKey::from_words([n; 5])), [1, n, 9], 2 << 20));
        }
        // the same place in another group is another block
        survey.count((7, DdtKey::from_words([3; 5])), [1, 3, 10], 2 << 20);
        let mut out = Vec::new();
        survey.print(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("51 blocks of data, which take 102M\nalready shared: 100M\n"), "{text}");
        assert!(text.contains("\ndedup = 1.02, saves 2M\n"), "{text}");
    }

    #[test]
    fn the_bound_holds() {
        let mut within = 0;
        for seed in 0..100 {
            let (survey, unique, shared) = survey(500, 20_000, seed);
            assert!(survey.by_sum.blocks.len() <= 500 && survey.by_sum.zeros >= 5);
            assert!(survey.by_place.blocks.len() <= 500 && survey.by_place.zeros >= 6);
            let found = survey.estimate();
            let (is, should) = (found.unique_bytes + found.shared_bytes, (unique + shared) as f64);
            assert!(found.error_bytes < should * 0.5, "{found:?}");
            within += u32::from((is - should).abs() <= found.error_bytes);
        }
        assert!((88..=100).contains(&within), "{within} of 100 samples are within the bound");
    }
}
