//! Dirty time log: the transaction groups whose writes a leaf has missed.
//!
//! A leaf that was away, or is new in a mirror, lacks the blocks that were born while it was; the
//! pool records them as ranges of birth transaction groups. Such a leaf is asked for those blocks
//! only when nobody else is left.

use std::ops::Range;

/// A set of transaction groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxgRanges {
    /// Sorted, apart from each other, none of them empty.
    ranges: Vec<Range<u64>>,
}

impl TxgRanges {
    /// The empty set.
    pub const fn new() -> TxgRanges {
        TxgRanges { ranges: Vec::new() }
    }

    /// Everything from `txg` on: what a leaf may lack whose own record ends before it.
    pub fn since(txg: u64) -> TxgRanges {
        std::iter::once(txg..u64::MAX).collect()
    }

    /// Adds the groups of `range`.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.ranges.partition_point(|r| r.end < range.start);
        let last = self.ranges.partition_point(|r| r.start <= range.end);
        let merged = self.ranges[first..last].iter().fold(range, |a, b| a.start.min(b.start)..a.end.max(b.end));
        self.ranges.splice(first..last, [merged]);
    }

    /// Takes the groups of `range` out.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let cut = |r: &Range<u64>| [r.start..r.end.min(range.start), r.start.max(range.end)..r.end];
        self.ranges = self.ranges.iter().flat_map(cut).filter(|r| !r.is_empty()).collect();
    }

    /// Whether `txg` is in the set.
    pub fn contains(&self, txg: u64) -> bool {
        let at = self.ranges.partition_point(|r| r.end <= txg);
        self.ranges.get(at).is_some_and(|r| r.start <= txg)
    }

    /// Whether any of `txgs` is in the set.
    pub fn intersects(&self, txgs: &Range<u64>) -> bool {
        let at = self.ranges.partition_point(|r| r.end <= txgs.start);
        !txgs.is_empty() && self.ranges.get(at).is_some_and(|r| r.start < txgs.end)
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges, sorted.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.ranges.iter().cloned()
    }
}

impl FromIterator<Range<u64>> for TxgRanges {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> TxgRanges {
        let mut set = TxgRanges::new();
        ranges.into_iter().for_each(|range| set.insert(range));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a plain set of numbers.
    #[test]
    fn behaves_like_a_set() {
        let mut x = 12345u32;
        let mut random = |n: u64| {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            u64::from(x >> 8) % n
        };
        for _ in 0..200 {
            let (mut set, mut model) = (TxgRanges::new(), [false; 64]);
            for _ in 0..20 {
                let start = random(60);
                let range = start..start + random(5);
                let put = random(3) > 0;
                model[range.start as usize..range.end as usize].fill(put);
                if put {
                    set.insert(range)
                } else {
                    set.remove(range)
                }
                assert!((0..64).all(|txg| set.contains(txg) == model[txg as usize]), "{set:?}");
                let (from, to) = (random(60), 60);
                assert_eq!(set.intersects(&(from..to)), model[from as usize..to as usize].contains(&true), "{set:?}");
                assert!(!set.intersects(&(from..from)), "{set:?}");
                assert!(set.ranges.windows(2).all(|w| w[0].end < w[1].start), "{set:?}");
            }
        }
        assert!(TxgRanges::since(5).contains(1 << 60) && !TxgRanges::since(5).contains(4));
    }
}
