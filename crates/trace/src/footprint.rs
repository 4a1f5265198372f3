//! How much a trace touches: blocks are counted by a sample of their hashes, in bounded memory.
//!
//! Source: Flajolet, "On adaptive sampling", Computing 43, 1990.

use std::collections::HashMap;

/// Hashes that are kept at most: the count is then within about a percent of the truth.
const KEPT_MAX: usize = 1 << 14;

/// Counts different blocks, and their bytes.
#[derive(Debug, Default)]
pub struct Footprint {
    /// Of blocks whose hashes begin with `shift` zeros, the bytes.
    kept: HashMap<u64, u64>,
    shift: u32,
}

impl Footprint {
    /// A block is touched.
    pub fn add(&mut self, block: u64, bytes: u64) {
        let hash = base::split_mix(block);
        if hash.leading_zeros() < self.shift {
            return;
        }
        self.kept.entry(hash).or_insert(bytes);
        while self.kept.len() > KEPT_MAX && self.shift < u64::BITS {
            self.shift += 1;
            self.kept.retain(|hash, _| hash.leading_zeros() >= self.shift);
        }
    }

    /// Different blocks so far; exact while there are few.
    pub fn blocks(&self) -> u64 {
        self.whole(self.kept.len() as u64)
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.whole(self.kept.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes)))
    }

    fn whole(&self, part: u64) -> u64 {
        u64::try_from(u128::from(part) << self.shift.min(63)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_near() {
        let mut footprint = Footprint::default();
        for round in 0..2 {
            (0..10_000).for_each(|block| footprint.add(block, 512));
            assert_eq!((footprint.blocks(), footprint.bytes()), (10_000, 5_120_000), "round {round}");
        }
        (0..3_000_000).for_each(|block| footprint.add(block, 512));
        assert!((2_900_000..3_100_000).contains(&footprint.blocks()), "{}", footprint.blocks());
        assert!(footprint.kept.len() <= KEPT_MAX);
    }
}
