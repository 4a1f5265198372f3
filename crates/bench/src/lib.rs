//! What the benchmarks share: numbers that are the same each time.

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The next number after `seed`: SplitMix64.
pub fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(GOLDEN);
    let mut z = *seed;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
