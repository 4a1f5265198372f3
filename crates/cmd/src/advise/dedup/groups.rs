//! What deduplication would come to, by the blocks below some of the pointers that lead to blocks of data.
//!
//! ```text
//!   file of one block          its pointer is in the dnode: all of these are read       apart
//!   file of more blocks        up to 1024 pointers in each block that leads to data     a group, which is drawn or not
//!     its length, block size, and which 1024 ─▶ hash ─▶ below `part`?  ─▶ drawn
//! ```
//!
//! Copies of a file have the same length, so the same hash: their pointers are in one group, and what is there twice is
//! counted exactly. What is there twice elsewhere (at other places of longer or shorter files) is met only where both groups
//! were drawn; what such meetings allow is a matter of [`super::unseen`]. Nothing depends on copies being in one group but
//! how wide the interval becomes.
//!
//! How far off a count may be is bounded by what each group of the sample adds to it (Efron and Stein, "The jackknife
//! estimate of variance", 1981), and by one group that was not met at all.

use std::collections::HashMap;

use super::unseen::{COUNTS, DistinctShare, SeenCounts, SeenShare};
use crate::advise::ratio::Interval;
use crate::distinct::{ChanceTable, chance_of};

/// Standard deviations that a count may be off, all counts together.
const DEVIATIONS: f64 = 2.24;
/// What was not met once may have been expected up to 3.7 times (Poisson, 97.5 of 100): the sum of this, and of the square
/// root of the other with the deviations above, which also suits what was met more often.
const UNMET: f64 = 1.92;
const UNMET_SQUARE: f64 = 0.63;
/// What a count may be off because not each number of groups has a variable of its own.
const GRID_ERROR: f64 = 5e-4;
/// Groups of equal size that there have to be in the sample.
const GROUPS_MIN: f64 = 150.0;
/// The largest group has to be a part of the sample that is smaller than this.
const LARGEST_PART: f64 = 1.0 / 30.0;
/// Places by which the largest group is found.
const BUCKETS: usize = 1 << 14;
/// Groups of a block that are told apart.
const GROUPS_OF_BLOCK_MAX: usize = 64;

/// What was found; see the top of the file.
pub(super) struct GroupSurvey {
    classes: ChanceTable<[u64; 6], GroupedBlock>,
    /// Numbers of the groups that were drawn, by their hash.
    numbers: HashMap<u64, u32>,
    groups: Vec<GroupSize>,
    apart: GroupSize,
    /// Bytes of blocks below all groups before compression, of which the groups of each bucket have so many.
    bytes: u64,
    buckets: Vec<u64>,
}

/// A block, and where it was.
#[derive(Clone, Debug)]
struct GroupedBlock {
    bytes: u64,
    is_apart: bool,
    groups: Vec<u32>,
}

/// Blocks of data, by their pointers.
#[derive(Clone, Copy, Debug, Default)]
struct GroupSize {
    blocks: u64,
    /// On disks.
    bytes: u64,
    /// Before compression, by what says how many blocks there are below.
    told_bytes: u64,
}

/// What deduplication would come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct GroupEstimate {
    pub(super) blocks: f64,
    pub(super) bytes: f64,
    pub(super) entries: f64,
    pub(super) ratio: Interval,
    /// Different blocks that were counted, and for how many each stands.
    pub(super) counted: u64,
    pub(super) scale: f64,
}

/// Sums over what was seen so often: once, ..., [`COUNTS`] times, once more than that, more often.
type CountSums = [f64; COUNTS + 2];

impl GroupSurvey {
    /// Has so many different blocks in memory at most.
    pub(super) fn new(max: usize) -> GroupSurvey {
        GroupSurvey {
            classes: ChanceTable::new(max),
            numbers: HashMap::new(),
            groups: Vec::new(),
            apart: GroupSize::default(),
            bytes: 0,
            buckets: vec![0; BUCKETS],
        }
    }

    /// Counts a group, or a part of one, below which are so many bytes before compression.
    pub(super) fn add_group(&mut self, group: u64, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        let bucket = &mut self.buckets[group as usize % BUCKETS];
        *bucket = bucket.saturating_add(bytes);
    }

    /// A group, or a part of one, was drawn.
    pub(super) fn draw_group(&mut self, group: u64, bytes: u64) {
        let number = self.number(group);
        let told = &mut self.groups[number as usize].told_bytes;
        *told = told.saturating_add(bytes);
    }

    fn number(&mut self, group: u64) -> u32 {
        let next = self.groups.len() as u32;
        let number = *self.numbers.entry(group).or_insert(next);
        if number == next {
            self.groups.push(GroupSize::default());
        }
        number
    }

    /// Counts a pointer to a block, in a group that was drawn or apart from all groups.
    pub(super) fn add_block(&mut self, group: Option<u64>, words: [u64; 6], bytes: u64) {
        let number = group.map(|group| self.number(group));
        let size = match number {
            Some(number) => &mut self.groups[number as usize],
            None => &mut self.apart,
        };
        size.blocks += 1;
        size.bytes = size.bytes.saturating_add(bytes);
        let make = || GroupedBlock { bytes, is_apart: false, groups: Vec::new() };
        self.classes.change(chance_of(&words), words, make, |block| match number {
            None => block.is_apart = true,
            Some(number) if block.groups.len() < GROUPS_OF_BLOCK_MAX && !block.groups.contains(&number) => {
                block.groups.push(number);
            }
            Some(_) => {}
        });
    }

    /// Bytes of memory that different blocks and groups take at most.
    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        let lists: usize = self.classes.things().map(|block| 16 + block.groups.capacity() * 4).sum();
        let groups = self.groups.capacity() * size_of::<GroupSize>() + self.numbers.capacity() * 2 * 17;
        self.classes.memory_bytes() + lists + groups + BUCKETS * 8
    }

    /// What it comes to when groups were drawn with odds of `part`. `None` if that is too little to tell.
    pub(super) fn estimate(&self, part: f64) -> Option<GroupEstimate> {
        let sums = self.sampled();
        if !self.is_enough(part, sums) {
            return None;
        }
        let counts =
            SeenCounts { shares: self.shares(part, sums), part, groups: (self.groups.len() as f64 / part).max(1.0) };
        Some(self.put_together(part, sums, counts.distinct()?))
    }

    /// Sums over the groups that were drawn.
    fn sampled(&self) -> GroupSize {
        let mut sums = GroupSize::default();
        for group in &self.groups {
            sums.blocks += group.blocks;
            sums.bytes = sums.bytes.saturating_add(group.bytes);
            sums.told_bytes = sums.told_bytes.saturating_add(group.told_bytes);
        }
        sums
    }

    /// Whether there are so many groups, none of which decides, that their differences tell how far off they may be.
    fn is_enough(&self, part: f64, sums: GroupSize) -> bool {
        let squares: f64 = self.groups.iter().map(|group| (group.bytes as f64).powi(2)).sum();
        let equal = (sums.bytes as f64).powi(2) / squares.max(1.0);
        let largest = self.buckets.iter().copied().max().unwrap_or(0) as f64;
        equal >= GROUPS_MIN && largest <= self.bytes as f64 * part * LARGEST_PART
    }

    /// The shares of what was seen once, twice and so on, with their errors.
    fn shares(&self, part: f64, sums: GroupSize) -> [SeenShare; COUNTS + 1] {
        let scale = self.classes.scale();
        let mut by_group = vec![[0.0; COUNTS + 2]; self.groups.len()];
        let (mut all, mut squares): (CountSums, CountSums) = ([0.0; COUNTS + 2], [0.0; COUNTS + 2]);
        for block in self.classes.things().filter(|block| !block.is_apart && !block.groups.is_empty()) {
            let (at, bytes) = ((block.groups.len() - 1).min(COUNTS + 1), block.bytes as f64);
            all[at] += bytes * scale;
            squares[at] += bytes * bytes * scale * (scale - 1.0);
            block.groups.iter().for_each(|group| by_group[*group as usize][at] += bytes * scale);
        }
        let total = sums.bytes as f64;
        let largest = self.largest(&by_group) / total;
        let mut shares = [SeenShare::default(); COUNTS + 1];
        for (at, share) in shares.iter_mut().enumerate() {
            let is_rest = at == COUNTS;
            let sum = if is_rest { all[at] + all[at + 1] } else { all[at] };
            let is = sum / total;
            // without the group, these would have been seen once less; and what was seen once more would be of these
            let adds = |sums: &CountSums| if is_rest { sums[at] } else { sums[at] - sums[at + 1] };
            let of_groups: f64 = by_group
                .iter()
                .zip(&self.groups)
                .map(|(sums, group)| (adds(sums) - is * group.bytes as f64).powi(2))
                .sum();
            let of_blocks = if is_rest { squares[at] + squares[at + 1] } else { squares[at] };
            let variance = ((1.0 - part) * of_groups + of_blocks) / (total * total);
            let variance = variance + UNMET_SQUARE * largest * largest;
            let error = DEVIATIONS * variance.sqrt() + UNMET * largest + GRID_ERROR * is;
            *share = SeenShare { is, error };
        }
        shares
    }

    /// The most bytes of different blocks that a group has, about: what is known of one group by a sample of its blocks is
    /// uneven, so its bytes times what is different of all does as well.
    fn largest(&self, by_group: &[CountSums]) -> f64 {
        let different = by_group.iter().map(|sums| sums.iter().sum::<f64>());
        let bytes = self.groups.iter().map(|group| group.bytes as f64);
        let share = different.clone().sum::<f64>() / bytes.clone().sum::<f64>().max(1.0);
        different.fold(0.0, f64::max).min(bytes.fold(0.0, f64::max) * share)
    }

    /// Groups, and what is apart from them.
    fn put_together(&self, part: f64, sums: GroupSize, distinct: DistinctShare) -> GroupEstimate {
        let DistinctShare { least, fit, most } = distinct;
        let scale = self.classes.scale();
        let apart = |power: i32| -> f64 {
            self.classes.things().filter(|block| block.is_apart).map(|block| (block.bytes as f64).powi(power)).sum()
        };
        let (unique, unique_error) = (apart(1) * scale, 2.0 * (apart(2) * scale * (scale - 1.0)).sqrt());
        // what all groups take on disks, by what those in the sample do
        let packed = sums.bytes as f64 / (sums.told_bytes as f64).max(1.0);
        let off = |group: &GroupSize| (group.bytes as f64 - packed * group.told_bytes as f64).powi(2);
        let variance: f64 = self.groups.iter().map(off).sum::<f64>() * (1.0 - part);
        let grouped = self.bytes as f64 * packed;
        let grouped_error = 2.0 * grouped * variance.sqrt() / sums.bytes as f64;
        let ratio = |grouped: f64, unique: f64, share: f64| {
            let grouped = grouped.max(0.0);
            ((self.apart.bytes as f64 + grouped) / (unique + grouped * share).max(1.0)).max(1.0)
        };
        let of = |share: f64, unique: f64| {
            let ends = [grouped - grouped_error, grouped + grouped_error].map(|grouped| ratio(grouped, unique, share));
            (ends[0].min(ends[1]), ends[0].max(ends[1]))
        };
        let (low, _) = of(most, unique + unique_error);
        let (_, high) = of(least, (unique - unique_error).max(0.0));
        let value = ratio(grouped, unique, fit);
        let blocks = self.apart.blocks as f64 + grouped * sums.blocks as f64 / sums.bytes as f64;
        GroupEstimate {
            blocks,
            bytes: self.apart.bytes as f64 + grouped,
            entries: blocks / value,
            ratio: Interval { value: value.clamp(low, high), low, high },
            counted: self.classes.things().count() as u64,
            scale,
        }
    }
}
