//! What the benchmarks share: numbers that are the same each time.

/// The next number after `seed`: SplitMix64.
pub fn random(seed: &mut u64) -> u64 {
    base::next_mixed(seed)
}
