//! A sample of different things, of a stream in which each may come many times: all of one, or nothing of it.
//!
//! ```text
//!   thing ─▶ its chance: a hash of what it is ─▶ ends in so many zeros? ─▶ kept, and counted each time that it comes
//! ```
//!
//! When the sample outgrows its memory, one zero more is asked for, and half of the things leave it. How far off a sum
//! over the sample may be follows from how unequal the things in it are; those of one chance come and go together.
//!
//! Source: Gibbons, "Distinct sampling for highly-accurate answers to distinct values queries and event reports",
//! VLDB 2001.

use std::collections::HashMap;
use std::hash::Hash;

use base::MIX_STRIDE;

/// Things of which those with some chances are kept, and no others: so many at most; see the top of the file.
pub struct ChanceTable<K, V> {
    /// Each with its chance.
    things: HashMap<K, (u64, V)>,
    zeros: u32,
    max: usize,
}

/// A block in a sample.
#[derive(Clone, Copy, Debug)]
pub struct SampledBlock {
    /// Bytes that it takes.
    pub bytes: u64,
    /// Pointers to it.
    pub pointers: u64,
}

/// Blocks by keys of `N` words.
pub struct DistinctSample<const N: usize>(ChanceTable<[u64; N], SampledBlock>);

/// The chance of what these words tell from everything else. Weak checksums have little chance in their low bits, so all
/// are mixed.
pub fn chance_of(words: &[u64]) -> u64 {
    words.iter().fold(0u64, |mixed, word| {
        let sum = (mixed ^ word).wrapping_mul(MIX_STRIDE);
        sum ^ sum >> 29
    })
}

impl<K: Eq + Hash, V> ChanceTable<K, V> {
    /// Keeps so many things at most.
    pub fn new(max: usize) -> ChanceTable<K, V> {
        ChanceTable { things: HashMap::new(), zeros: 0, max }
    }

    /// Whether things of that chance are kept.
    pub fn has(&self, chance: u64) -> bool {
        chance.trailing_zeros() >= self.zeros
    }

    /// Changes a thing of that chance, which is made if it is not there. Afterwards, it may have had to go: see
    /// [`ChanceTable::has`]. `None` if it is not kept anyway.
    pub fn change<T>(
        &mut self,
        chance: u64,
        key: K,
        make: impl FnOnce() -> V,
        change: impl FnOnce(&mut V) -> T,
    ) -> Option<T> {
        if !self.has(chance) {
            return None;
        }
        let (_, thing) = self.things.entry(key).or_insert_with(|| (chance, make()));
        let changed = change(thing);
        while self.things.len() > self.max {
            self.zeros += 1;
            let zeros = self.zeros;
            self.things.retain(|_, (chance, _)| chance.trailing_zeros() >= zeros);
        }
        Some(changed)
    }

    /// A thing that is kept.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.things.get_mut(key).map(|(_, thing)| thing)
    }

    /// Those that are kept.
    pub fn things(&self) -> impl Iterator<Item = &V> {
        self.things.values().map(|(_, thing)| thing)
    }

    /// Bytes of memory that it takes: of the table, each place with a byte for itself, and at most seven of eight in use.
    #[cfg(test)]
    pub fn memory_bytes(&self) -> usize {
        let places = (self.things.capacity() * 8).div_ceil(7);
        places * (size_of::<(K, (u64, V))>() + 1)
    }

    /// How many there are for one that is kept.
    pub fn scale(&self) -> f64 {
        f64::from(self.zeros).exp2()
    }
}

impl<const N: usize> DistinctSample<N> {
    /// Keeps so many blocks at most.
    pub fn new(max: usize) -> DistinctSample<N> {
        DistinctSample(ChanceTable::new(max))
    }

    /// Counts a pointer to a block, if that is in the sample.
    pub fn count(&mut self, chance: u64, key: [u64; N], bytes: u64) {
        self.0.change(chance, key, || SampledBlock { bytes, pointers: 0 }, |block| block.pointers += 1);
    }

    /// Different blocks in it.
    pub fn len(&self) -> usize {
        self.0.things.len()
    }

    /// Bytes of memory that it takes.
    #[cfg(test)]
    pub fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }

    /// How many there are for one in the sample.
    pub fn scale(&self) -> f64 {
        self.0.scale()
    }

    /// The sum of `f` over all different blocks, those that are not in the sample included.
    pub fn sum(&self, f: &dyn Fn(&SampledBlock) -> f64) -> f64 {
        self.0.things().map(f).sum::<f64>() * self.scale()
    }

    /// How far off that is, squared: all blocks of a chance are in the sample in one case of `scale`.
    pub fn variance(&self, f: &dyn Fn(&SampledBlock) -> f64) -> f64 {
        if self.scale() == 1.0 {
            return 0.0;
        }
        let mut groups: HashMap<u64, f64> = HashMap::with_capacity(self.len());
        self.0.things.values().for_each(|(chance, block)| *groups.entry(*chance).or_default() += f(block));
        let squares: f64 = groups.values().map(|sum| sum * sum).sum();
        (self.scale() - 1.0) * self.scale() * squares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_block_or_nothing() {
        let mut sample = DistinctSample::<1>::new(100);
        for round in 1..=3 {
            (0..5000u64).for_each(|n| sample.count(chance_of(&[n, 7]), [n], 4096));
            assert!(sample.len() <= 100 && sample.0.zeros >= 5, "{} {}", sample.len(), sample.0.zeros);
            assert!(sample.0.things().all(|block| block.pointers == round));
        }
        let blocks = sample.sum(&|_| 1.0);
        assert!((blocks - 5000.0).abs() < 3.0 * sample.variance(&|_| 1.0).sqrt(), "{blocks}");
    }

    #[test]
    fn blocks_of_one_chance_go_together() {
        let mut sample = DistinctSample::<1>::new(1000);
        (0..3000u64).for_each(|n| sample.count(chance_of(&[n / 3]), [n], 1));
        assert!((2..5).contains(&sample.0.zeros) && sample.len().is_multiple_of(3));
        let (alone, groups) = (sample.len() as f64, sample.len() as f64 / 3.0);
        let scale = sample.scale();
        assert_eq!(sample.variance(&|_| 1.0), (scale - 1.0) * scale * groups * 9.0);
        assert_eq!(sample.sum(&|_| 1.0), alone * scale);
        // more of one chance than there is room for leave all at once
        let mut crowd = DistinctSample::<1>::new(10);
        (0..20).for_each(|n| crowd.count(1 << 40, [n], 1));
        assert!(crowd.0.zeros > 40 && crowd.len() == 0);
    }
}
