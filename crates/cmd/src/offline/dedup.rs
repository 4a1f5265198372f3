//! `cenote dedup`: what deduplication would save, and what its table would cost, before it is switched on.
//!
//! ```text
//!   pointers to all blocks of data ─▶ sums and sizes ─▶ of these one in 2^n, chosen by the sum ─▶ how many are there twice
//! ```
//!
//! Pointers tell the sums of blocks, so no data is read, only what leads to it. All pointers to a block are in the
//! sample, or none: what the sample saves is what the pool would, but for chance. When it outgrows its memory, half of
//! the sums leave it. How far off it may be follows from how unequal the blocks in it are.

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

/// Different blocks that a sample has at most; each takes about 100 bytes of memory.
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
        Ok(sample) => written("dedup", sample.print(&mut stdout())),
        Err(e) => {
            complain("dedup", format_args!("{shown}: {e}"));
            false
        }
    }
}

fn look(pool: &Pool) -> Result<Sample> {
    let total = pool.space().ok().map(|space| space.allocated_on(|_| true));
    let mut sample = Sample::new(SAMPLE_MAX, Some(ProgressDisplay::new(total)));
    pool.check(CheckOptions { verify: Verify::Nothing, space: false }, &mut sample)?;
    Ok(sample)
}

/// A block in the sample: bytes that it takes, and pointers to it.
#[derive(Clone, Copy)]
struct SampledBlock {
    bytes: u64,
    pointers: u64,
}

/// What has been seen of a pool.
struct Sample {
    /// Blocks of which the sum ends in so many zeros, by number of the checksum and key.
    blocks: HashMap<(u8, DdtKey), SampledBlock>,
    zeros: u32,
    max: usize,
    /// Pointers to blocks of data, and bytes of them.
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
    /// Bytes of them, and how far off that may be.
    unique_bytes: f64,
    error_bytes: f64,
}

impl Sample {
    fn new(max: usize, progress: Option<ProgressDisplay>) -> Sample {
        Sample { blocks: HashMap::new(), zeros: 0, max, pointers: 0, bytes: 0, left_out: 0, progress }
    }

    fn add(&mut self, bp: &BlkPtr) {
        let is_summed = Checksum::from_u8(bp.checksum_kind()).is_some_and(|checksum| checksum != Checksum::Off);
        if !is_summed || bp.uses_crypt() {
            self.left_out += 1;
            return;
        }
        let bytes = bp.copies().fold(0, |sum: u64, dva| sum.saturating_add(dva.asize()));
        self.count((bp.checksum_kind(), DdtKey::of(bp)), bytes);
    }

    fn count(&mut self, key: (u8, DdtKey), bytes: u64) {
        self.pointers += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if !self.has(&key.1) {
            return;
        }
        self.blocks.entry(key).or_insert(SampledBlock { bytes, pointers: 0 }).pointers += 1;
        while self.blocks.len() > self.max {
            self.zeros += 1;
            let mut blocks = std::mem::take(&mut self.blocks);
            blocks.retain(|key, _| self.has(&key.1));
            self.blocks = blocks;
        }
    }

    /// Whether a block is one of the sample. Weak sums have little chance in their low bits, so all are mixed.
    fn has(&self, key: &DdtKey) -> bool {
        let mixed = key.words().iter().fold(0u64, |mixed, word| {
            let sum = (mixed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            sum ^ sum >> 29
        });
        mixed.trailing_zeros() >= self.zeros
    }

    fn estimate(&self) -> Estimate {
        let scale = (f64::from(self.zeros)).exp2();
        let sum = |f: &dyn Fn(f64) -> f64| self.blocks.values().map(|block| f(block.bytes as f64)).sum::<f64>();
        // each block is in the sample with a chance of 1 in `scale`
        let variance = (scale - 1.0) * scale * sum(&|bytes| bytes * bytes);
        Estimate {
            entries: self.blocks.len() as f64 * scale,
            unique_bytes: sum(&|bytes| bytes) * scale,
            error_bytes: DEVIATIONS * variance.sqrt(),
        }
    }

    fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let Estimate { entries, unique_bytes, error_bytes } = self.estimate();
        let total = self.bytes as f64;
        writeln!(out, "{} blocks of data, which take {}", nicenum(self.pointers), nicebytes(self.bytes))?;
        if self.left_out > 0 {
            writeln!(out, "{} blocks without checksum, or encrypted, are not among them", nicenum(self.left_out))?;
        }
        if self.blocks.is_empty() {
            return writeln!(out, "nothing to deduplicate");
        }
        match self.zeros {
            0 => writeln!(out, "all of them were counted")?,
            n => writeln!(
                out,
                "1 in {} checksums was counted: {} blocks",
                nicenum(1 << n),
                nicenum(self.blocks.len() as u64)
            )?,
        }
        let ratio = |unique: f64| (total / unique.max(1.0)).max(1.0);
        let saved = |unique: f64| nicebytes((total - unique).max(0.0) as u64);
        writeln!(out, "\ndedup = {:.2}, saves {}", ratio(unique_bytes), saved(unique_bytes))?;
        if self.zeros > 0 {
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

impl Observer for Sample {
    fn block(&mut self, visit: &Visit<'_>, kind: BlockKind) {
        let bp = visit.bp;
        let is_alive = !matches!(kind, BlockKind::DeferredFree | BlockKind::DedupDitto);
        let is_data = bp.level() == 0 && !bp.object_type().is_metadata() && !bp.is_hole() && !bp.is_embedded();
        if is_alive && is_data {
            self.add(bp);
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

    /// A pool of blocks of which each third is there five times.
    fn sample(max: usize, count: u64, seed: u64) -> (Sample, u64) {
        let mut sample = Sample::new(max, None);
        let mut unique = 0;
        for n in 0..count {
            let sum = mix(n ^ seed << 40);
            let bytes = 4096 << (sum >> 60 & 3);
            unique += bytes;
            // fletcher sums of short blocks differ in few bits
            let key = DdtKey::from_words([n * 512, sum, 0, 0, 7]);
            (0..if n % 3 == 0 { 5 } else { 1 }).for_each(|_| sample.count((7, key), bytes));
        }
        (sample, unique)
    }

    #[test]
    fn a_sample_that_holds_all_is_exact() {
        let (sample, unique) = sample(1 << 20, 3000, 1);
        let found = sample.estimate();
        assert_eq!(found, Estimate { entries: 3000.0, unique_bytes: unique as f64, error_bytes: 0.0 });
        assert_eq!(sample.pointers, 7000);
    }

    #[test]
    fn the_bound_holds() {
        let mut within = 0;
        for seed in 0..100 {
            let (sample, unique) = sample(500, 20_000, seed);
            assert!(sample.blocks.len() <= 500 && sample.zeros >= 5);
            let found = sample.estimate();
            assert!(found.error_bytes < unique as f64 * 0.3, "{found:?}");
            within += u32::from((found.unique_bytes - unique as f64).abs() <= found.error_bytes);
        }
        assert!((88..=100).contains(&within), "{within} of 100 samples are within the bound");
    }
}
