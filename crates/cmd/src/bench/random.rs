//! Random numbers, and random orders in which nothing comes twice.

use std::sync::atomic::{AtomicU64, Ordering};

use base::{AlignedBuf, MIX_STRIDE, mixed, next_mixed};

/// Rounds of the network: so many mix every bit with every other.
const ROUNDS: u64 = 4;

/// Bytes that do not compress.
pub fn noise(len: usize, mut seed: u64) -> AlignedBuf {
    let mut bytes = AlignedBuf::zeroed(len);
    for word in bytes.chunks_mut(8) {
        word.copy_from_slice(&next_mixed(&mut seed).to_le_bytes()[..word.len()]);
    }
    bytes
}

/// The numbers below `count` in random order, for threads that take one after the other; when all have been taken,
/// they come again in another order.
///
/// It needs no memory: a Feistel network turns the numbers of so many bits into one another, and what comes out too
/// large goes in again.
pub struct RandomOrder {
    count: u64,
    /// Bits of each half of a number.
    half_bits: u32,
    seed: u64,
    taken: AtomicU64,
}

impl RandomOrder {
    /// Of `count` numbers: one at least, and less than 2^62.
    pub fn new(count: u64, seed: u64) -> RandomOrder {
        let bits = (count - 1).checked_ilog2().map_or(1, |log| log + 1);
        RandomOrder { count, half_bits: bits.div_ceil(2), seed, taken: AtomicU64::new(0) }
    }

    /// The next number.
    pub fn take(&self) -> u64 {
        let n = self.taken.fetch_add(1, Ordering::Relaxed);
        let key = mixed(self.seed.wrapping_add(n / self.count));
        let mut number = self.permuted(key, n % self.count);
        while number >= self.count {
            number = self.permuted(key, number);
        }
        number
    }

    /// Whether any number has been taken twice.
    pub fn has_repeated(&self) -> bool {
        self.taken.load(Ordering::Relaxed) > self.count
    }

    fn permuted(&self, key: u64, number: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for round in 1..=ROUNDS {
            let f = mixed(key.wrapping_add(round.wrapping_mul(MIX_STRIDE)) ^ right);
            (left, right) = (right, left ^ (f & mask));
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_does_not_compress() {
        let bytes = noise(100_003, 5);
        let mut counts = [0; 256];
        bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        assert!(counts.iter().all(|count| (200..600).contains(count)), "{counts:?}");
        assert!(bytes[..50_000] != noise(100_003, 6)[..50_000]);
    }

    #[test]
    fn nothing_comes_twice_before_all_have_come() {
        for count in [1, 2, 3, 5, 1000, 4096, 4097] {
            let order = RandomOrder::new(count, 7);
            let round = || -> Vec<u64> { (0..count).map(|_| order.take()).collect() };
            let (one, two) = (round(), round());
            for mut numbers in [one.clone(), two.clone()] {
                numbers.sort_unstable();
                assert!(numbers.into_iter().eq(0..count), "{count}");
            }
            assert!(count < 100 || one != two);
        }
    }

    #[test]
    fn neighbours_are_rare() {
        let order = RandomOrder::new(100_000, 3);
        let numbers: Vec<u64> = (0..10_000).map(|_| order.take()).collect();
        let near = numbers.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 100).count();
        assert!(near < 100, "{near}, where 20 are to be expected");
        let mean = numbers.iter().sum::<u64>() / 10_000;
        assert!((45_000..55_000).contains(&mean), "{mean}");
        assert!(!order.has_repeated());
    }

    #[test]
    fn threads_share_it() {
        let order = RandomOrder::new(10_000, 1);
        let mut all: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| (0..2500).map(|_| order.take()).collect::<Vec<u64>>())).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        all.sort_unstable();
        assert!(all.into_iter().eq(0..10_000) && !order.has_repeated());
        order.take();
        assert!(order.has_repeated());
    }
}
