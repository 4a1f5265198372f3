//! From misses of a sample to hits of all reads, with the interval that holds the truth 95 times of 100.
//!
//! Misses of the sample stand for those of all blocks. How many reads there were is known, and by how much the sample has
//! too many of them, or too few, is taken into account as far as misses go with reads: the regression estimator. Its error
//! comes from how groups of the sample differ, to which blocks belong by their hashes.
//!
//! Source: Cochran, "Sampling Techniques", chapters 4 (random groups) and 7 (regression estimators).

/// Groups of blocks.
const GROUPS: usize = 64;
/// The bits of a hash that say which group.
const GROUP_BIT: u32 = 57;
/// Standard deviations within which 95 of 100 samples are.
const DEVIATIONS: f64 = 1.96;

/// A share of reads, and the interval that holds the truth 95 times of 100.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HitShare {
    /// The likeliest, from 0 to 1.
    pub value: f64,
    /// The ends of the interval.
    pub low: f64,
    /// The same.
    pub high: f64,
}

impl HitShare {
    fn around(value: f64, half: f64) -> HitShare {
        let value = value.clamp(0.0, 1.0);
        HitShare { value, low: (value - half).max(0.0), high: (value + half).min(1.0) }
    }

    /// With a further standard deviation, which has nothing to do with the others.
    pub(crate) fn widened(self, deviation: f64) -> HitShare {
        let half = (self.high - self.value).max(self.value - self.low);
        HitShare::around(self.value, half.hypot(DEVIATIONS * deviation))
    }
}

/// Reads and misses of the sample, by group.
#[derive(Clone)]
pub(crate) struct MissTally {
    series: usize,
    reads: [f64; GROUPS],
    /// By group, then series.
    misses: Vec<f64>,
}

/// Takes what one read came to, series by series.
pub(crate) struct Misses<'a> {
    rest: std::slice::IterMut<'a, f64>,
    weight: f64,
}

impl Misses<'_> {
    /// The next series hit, or missed.
    pub(crate) fn count(&mut self, is_miss: bool) {
        if let Some(sum) = self.rest.next()
            && is_miss
        {
            *sum += self.weight;
        }
    }
}

impl MissTally {
    /// For so many series.
    pub(crate) fn new(series: usize) -> MissTally {
        MissTally { series, reads: [0.0; GROUPS], misses: vec![0.0; GROUPS * series] }
    }

    /// A read of a block of that hash, which stands for so many.
    pub(crate) fn read(&mut self, hash: u64, weight: u64) -> Misses<'_> {
        let (group, weight) = ((hash >> GROUP_BIT) as usize % GROUPS, weight as f64);
        self.reads[group] += weight;
        Misses { rest: self.misses[group * self.series..][..self.series].iter_mut(), weight }
    }

    /// The same as [`MissTally::hits`], without what was counted before.
    pub(crate) fn hits_after(&self, before: Option<&MissTally>, reads: u64, part: f64) -> Vec<HitShare> {
        let Some(before) = before else { return self.hits(reads, part) };
        let mut since = self.clone();
        since.reads.iter_mut().zip(&before.reads).for_each(|(now, before)| *now -= before);
        since.misses.iter_mut().zip(&before.misses).for_each(|(now, before)| *now -= before);
        since.hits(reads, part)
    }

    /// The hits of each series, of so many reads of all blocks, of which the sample is this part.
    pub(crate) fn hits(&self, reads: u64, part: f64) -> Vec<HitShare> {
        (0..self.series).map(|series| self.hits_of(series, reads as f64, part)).collect()
    }

    fn hits_of(&self, series: usize, reads: f64, part: f64) -> HitShare {
        if reads == 0.0 {
            return HitShare::default();
        }
        let misses = || (0..GROUPS).map(|group| self.misses[group * self.series + series]);
        let count = GROUPS as f64;
        let (missed, read): (f64, f64) = (misses().sum(), self.reads.iter().sum());
        let apart = || misses().zip(self.reads).map(|(m, r)| (m - missed / count, r - read / count));
        let (products, squares) = apart().fold((0.0, 0.0), |(xy, xx), (m, r)| (xy + m * r, xx + r * r));
        let slope = if squares > 0.0 { (products / squares).clamp(0.0, 1.0) } else { 0.0 };
        let all_missed = missed + slope * (reads - read);
        let rest: f64 = apart().map(|(m, r)| (m - slope * r).powi(2)).sum();
        let deviation = (rest * count / (count - 2.0) * (1.0 - part)).sqrt();
        HitShare::around(1.0 - all_missed / reads, DEVIATIONS * deviation / reads)
    }
}

/// How much more is hit for each part that a cache is larger, around one of the sizes.
pub(crate) fn slope(sizes: &[u64], shares: &[HitShare], at: usize) -> f64 {
    let (before, after) = (at.saturating_sub(1), (at + 1).min(shares.len().saturating_sub(1)));
    let larger = (sizes[after] as f64 / sizes[before].max(1) as f64).ln();
    if larger > 0.0 { (shares[after].value - shares[before].value).max(0.0) / larger } else { 0.0 }
}
