//! A set of bytes of a vdev, as runs.

use std::collections::BTreeMap;
use std::ops::Range;

/// Runs of bytes, apart from each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Segments {
    /// The end of each run by its start.
    runs: BTreeMap<u64, u64>,
}

impl Segments {
    /// Adds a run; false if a part of it is there already, and then nothing is added.
    pub(super) fn add(&mut self, range: Range<u64>) -> bool {
        if range.is_empty() {
            return true;
        }
        let before = self.runs.range(..=range.start).next_back().map(|(start, end)| (*start, *end));
        let after = self.runs.range(range.start..).next().map(|(start, end)| (*start, *end));
        if before.is_some_and(|(_, end)| end > range.start) || after.is_some_and(|(start, _)| start < range.end) {
            return false;
        }
        let start = match before {
            Some((start, end)) if end == range.start => start,
            _ => range.start,
        };
        let end = match after {
            Some((next, end)) if next == range.end => {
                self.runs.remove(&next);
                end
            }
            _ => range.end,
        };
        self.runs.insert(start, end);
        true
    }

    /// Takes a run out; false if a part of it is not there, and then nothing is taken.
    pub(super) fn take(&mut self, range: Range<u64>) -> bool {
        if range.is_empty() {
            return true;
        }
        let found = self.runs.range(..=range.start).next_back().map(|(start, end)| (*start, *end));
        let Some((start, end)) = found.filter(|(_, end)| *end >= range.end) else { return false };
        if start < range.start {
            self.runs.insert(start, range.start);
        } else {
            self.runs.remove(&start);
        }
        if range.end < end {
            self.runs.insert(range.end, end);
        }
        true
    }

    /// The runs, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.runs.iter().map(|(start, end)| *start..*end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a plain array.
    #[test]
    fn behaves_like_a_set() {
        let mut x = 99u32;
        let mut random = |n: u64| {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            u64::from(x >> 8) % n
        };
        for _ in 0..300 {
            let (mut set, mut model) = (Segments::default(), [false; 48]);
            for _ in 0..30 {
                let start = random(40);
                let range = start..start + random(8);
                let at = range.start as usize..range.end as usize;
                match random(2) {
                    0 => {
                        let fits = model[at.clone()].iter().all(|there| !there);
                        assert_eq!(set.add(range), fits);
                        model[at].iter_mut().for_each(|there| *there |= fits);
                    }
                    _ => {
                        let fits = model[at.clone()].iter().all(|there| *there);
                        assert_eq!(set.take(range), fits);
                        model[at].iter_mut().for_each(|there| *there &= !fits);
                    }
                }
                let there: Vec<u64> = set.iter().flatten().collect();
                assert_eq!(there, (0..48).filter(|&i| model[i as usize]).collect::<Vec<_>>());
                assert!(set.iter().zip(set.iter().skip(1)).all(|(a, b)| a.end < b.start), "runs that touch are one");
            }
        }
    }
}
