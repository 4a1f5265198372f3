//! How often the blocks of files are there: by the middle of each, and by all of some.
//!
//! ```text
//!   each block ─▶ its middle 4 KiB ─▶ its group: equal middles ─┬▶ DistinctSample: how many groups there are
//!                                                               └▶ of 3,000 groups, by hash: blocks are read whole ─▶
//!                                                                  how many different ones a group has
//! ```
//!
//! Blocks with different middles are different, and those with equal ones are nearly always equal: so the number of groups
//! is known to less than a percent from a sample by hash, and the number of different blocks in a group needs few blocks
//! that are read whole. All blocks of a group are in a sample, or none. Where the middle is one byte over and over, it says
//! nothing, and the whole block decides. In a group with many blocks, the n-th one is read with the odds of 8 in n, and
//! stands for as many as it had odds against it; that counts too many rather than too few.
//!
//! Sources: [`DistinctSample`]; Harnik et al., "Estimating deduplication ratios in large data sets", MSST 2012, for what
//! cannot be known without looking at every block.

use std::fs::File;
use std::io;
use std::path::Path;

use base::Endian;
use codec::checksum::{Checksum, compute};
use codec::compress::is_zero;

use crate::advise::files::{FoundFiles, file_blocks, open_file, read_from, walk_files};
use crate::advise::priority::next_unit;
use crate::advise::ratio::{DEVIATIONS, RatioSum};
use crate::distinct::{ChanceTable, DistinctSample, SampledBlock, chance_of};
use crate::progress::ProgressDisplay;

/// Bytes in the middle of a block that are read of each.
const MIDDLE_BYTES: u64 = 4096;
/// Blocks up to that size are read whole.
const WHOLE_BYTES: u64 = 4 * MIDDLE_BYTES;
/// Groups that are counted; each takes about 80 bytes of memory.
const GROUPS_MAX: usize = 100_000;
/// Groups of which blocks are read whole.
const READ_GROUPS_MAX: usize = 3000;
/// Blocks of a group that are read in any case.
const READ_ALWAYS: f64 = 8.0;
/// Sectors that blocks take.
const SECTOR_BYTES: usize = 4096;

/// What tells groups apart: the middle of their blocks, and their length.
type GroupKey = [u64; 2];

/// What has been seen of a folder.
pub struct FolderSurvey {
    groups: DistinctSample<2>,
    read: ReadGroups,
    /// Blocks with contents, and the bytes that they take.
    pub blocks: u64,
    pub bytes: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
}

/// Groups of which blocks are read whole.
struct ReadGroups {
    groups: ChanceTable<GroupKey, ReadGroup>,
    numbers: u64,
}

/// One of them.
struct ReadGroup {
    /// Bytes of the first block of it.
    bytes: f64,
    members: u64,
    /// Sums of the different blocks that were read.
    seen: Vec<[u64; 2]>,
    /// How many different blocks it has, by those.
    different: f64,
}

/// How many different blocks a folder has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FolderEstimate {
    pub entries: f64,
    pub unique_bytes: f64,
    pub error_bytes: f64,
    /// Groups that were counted, and for how many each stands.
    pub counted: u64,
    pub scale: f64,
}

impl ReadGroups {
    /// A block more of a group, if that is among these. Whether it has to be read, and for how many it stands then.
    fn wants(&mut self, key: GroupKey, chance: u64, bytes: f64) -> Option<f64> {
        let numbers = &mut self.numbers;
        let make = || ReadGroup { bytes, members: 0, seen: Vec::new(), different: 0.0 };
        let is_read = self.groups.change(chance, key, make, |group| {
            group.members += 1;
            let odds = (READ_ALWAYS / group.members as f64).min(1.0);
            (next_unit(numbers) <= odds).then_some(1.0 / odds)
        });
        is_read.flatten().filter(|_| self.groups.has(chance))
    }

    fn seen(&mut self, key: GroupKey, sum: [u64; 2], stands_for: f64) {
        let Some(group) = self.groups.get_mut(&key).filter(|group| !group.seen.contains(&sum)) else { return };
        group.seen.push(sum);
        group.different += stands_for;
    }

    /// Different blocks of a group on average, by bytes; and the same by number.
    fn different(&self) -> (f64, f64, f64) {
        let (mut bytes, mut number) = (RatioSum::default(), RatioSum::default());
        // of what could not be read, nothing is known
        for group in self.groups.things().filter(|group| group.different > 0.0) {
            bytes.add(group.different * group.bytes, group.bytes);
            number.add(group.different, 1.0);
        }
        let interval = bytes.interval();
        // all groups are there, and of each all blocks were read, or all that were are equal
        let is_known = |group: &ReadGroup| group.members as f64 <= READ_ALWAYS || group.different <= 1.0;
        let is_exact = self.groups.scale() == 1.0 && self.groups.things().all(is_known);
        let deviation = if is_exact { 0.0 } else { (interval.high - interval.value) / DEVIATIONS };
        (interval.value, deviation, number.interval().value)
    }
}

impl FolderSurvey {
    pub(super) fn new(groups_max: usize, read_max: usize) -> FolderSurvey {
        let read = ReadGroups { groups: ChanceTable::new(read_max), numbers: 0 };
        FolderSurvey { groups: DistinctSample::new(groups_max), read, blocks: 0, bytes: 0, read_bytes: 0 }
    }

    /// Looks at all files of a folder. Errors: the folder cannot be read.
    pub fn of(folder: &Path, record_bytes: u64, found: &mut FoundFiles) -> io::Result<FolderSurvey> {
        let mut survey = FolderSurvey::new(GROUPS_MAX, READ_GROUPS_MAX);
        let mut progress = ProgressDisplay::new(None);
        let mut buffer = vec![0; record_bytes as usize];
        walk_files(folder, found, &mut |found, path, about| {
            progress.now(|| path.display().to_string());
            let mut file = None;
            let looked = file_blocks(path, about, record_bytes, &mut |run, len| {
                let file = match &file {
                    Some(file) => file,
                    None => file.insert(open_file(path)?),
                };
                run.into_iter()
                    .try_for_each(|at| survey.file_block(file, about.len(), at * len, &mut buffer[..len as usize]))
            });
            progress.add(about.len());
            if let Err(error) = looked {
                found.failed(path, &error);
            }
        })?;
        Ok(survey)
    }

    fn file_block(&mut self, file: &File, size: u64, offset: u64, block: &mut [u8]) -> io::Result<()> {
        let bytes = size.saturating_sub(offset).min(block.len() as u64) as usize;
        self.block(bytes, block, &mut |from, into| {
            into.fill(0);
            read_from(file, offset + from, into)
        })
    }

    /// One block of which so many bytes are the file's; `read` reads a part of it.
    pub(super) fn block(
        &mut self,
        bytes: usize,
        block: &mut [u8],
        read: &mut dyn FnMut(u64, &mut [u8]) -> io::Result<usize>,
    ) -> io::Result<()> {
        let len = block.len() as u64;
        let (middle, is_whole) = match len {
            0..=WHOLE_BYTES => (0..block.len(), true),
            _ => {
                let from = (len / 2).next_multiple_of(MIDDLE_BYTES);
                (from as usize..(from + MIDDLE_BYTES).min(len) as usize, false)
            }
        };
        self.read_bytes += read(middle.start as u64, &mut block[middle.clone()])? as u64;
        let says_nothing = block[middle.clone()].iter().all(|byte| *byte == block[middle.start]);
        let is_whole = match is_whole || !says_nothing {
            true => is_whole,
            false => {
                self.read_bytes += read(0, block)? as u64;
                true
            }
        };
        if is_whole && is_zero(block) {
            return Ok(());
        }
        self.blocks += 1;
        let taken = bytes.next_multiple_of(SECTOR_BYTES) as u64;
        self.bytes += taken;
        let [first, ..] = sum_of(if is_whole { block } else { &block[middle] });
        let key = [first, len];
        let chance = chance_of(&key);
        self.groups.count(chance, key, taken);
        let Some(stands_for) = self.read.wants(key, chance, taken as f64) else { return Ok(()) };
        if !is_whole {
            self.read_bytes += read(0, block)? as u64;
        }
        self.read.seen(key, sum_of(block), stands_for);
        Ok(())
    }

    /// What the blocks until now come to.
    pub fn estimate(&self) -> FolderEstimate {
        let bytes = |block: &SampledBlock| block.bytes as f64;
        let (groups, group_bytes) = (self.groups.sum(&|_| 1.0), self.groups.sum(&bytes));
        let (by_bytes, deviation, by_number) = self.read.different();
        let relative =
            self.groups.variance(&bytes) / (group_bytes * group_bytes).max(1.0) + (deviation / by_bytes).powi(2);
        FolderEstimate {
            entries: groups * by_number,
            unique_bytes: group_bytes * by_bytes,
            error_bytes: DEVIATIONS * relative.sqrt() * group_bytes * by_bytes,
            counted: self.groups.len() as u64,
            scale: self.groups.scale(),
        }
    }
}

fn sum_of(bytes: &[u8]) -> [u64; 2] {
    let [a, b, ..] = compute(Checksum::Blake3, Endian::Little, &[0; 32], bytes);
    [a, b]
}
