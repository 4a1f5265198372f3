//! SplitMix64: numbers that look random, from numbers that do not.
//!
//! Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014.

/// What the state of the generator grows by.
pub const MIX_STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer: each bit of the answer depends on all of `z`; 0 stays 0.
pub fn mixed(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// The number of the generator that is in state `n`.
pub fn split_mix(n: u64) -> u64 {
    mixed(n.wrapping_add(MIX_STRIDE))
}

/// The next number of a generator.
pub fn next_mixed(state: &mut u64) -> u64 {
    let number = split_mix(*state);
    *state = state.wrapping_add(MIX_STRIDE);
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_splitmix64() {
        let mut state = 0;
        let numbers: [u64; 3] = std::array::from_fn(|_| next_mixed(&mut state));
        assert_eq!(numbers, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
    }
}
