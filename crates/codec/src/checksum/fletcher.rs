//! Fletcher's sums: fletcher4, the default checksum, and the old fletcher2.
//!
//! Both are running sums of running sums, modulo 2^64. With the input as numbers:
//!
//! ```text
//!   fletcher4, per 32-bit word f     fletcher2, per pair (f, g) of 64-bit words
//!     a += f                           a += f     b += g
//!     b += a                           c += a     d += b
//!     c += b
//!     d += c                         and the sum is (a, b, c, d)
//! ```
//!
//! Each step needs the one before. But a sum is linear in the input: a word that is I-th from the
//! end (the last one is first) goes into
//!
//! ```text
//!   a with weight 1        c with weight I(I+1)/2
//!   b with weight I        d with weight I(I+1)(I+2)/6
//! ```
//!
//! so the words can be dealt to L lanes as cards are, the lanes summed side by side in vector
//! registers, and put together at the end. In lane j (0..L), the word K-th from the lane's end is
//! I = KL - j from the end of all; writing I's weights in terms of K's gives the equations in
//! `join4`. Likewise a sum can be carried on over a second piece of data by its length alone
//! (`append4`), so it can be had in pieces, as send streams and checksums inside blocks need.
//!
//! fletcher4's lanes work on 64-bit words w = low + 2^32 high, and beside them on the high halves.
//! The sums of the low halves are what remains of w's by linearity, which saves masking them out.

use base::Endian;

use super::sum::Sum;
use join::join4;

mod join;
#[cfg(target_arch = "x86_64")]
mod x86;

/// Carries the fletcher4 sum of the bytes so far on over `data`, written in byte order `endian`.
///
/// Pieces must be whole 32-bit words, save the last; what is missing at the end counts as zero.
pub fn fletcher4(sum: Sum, endian: Endian, data: &[u8]) -> Sum {
    let (lanes, rest) = lanes4(endian, data);
    let n = ((data.len() - rest.len()) / 4) as u64;
    let mut sum = append4(sum, lanes, n);
    let (words, tail) = rest.as_chunks::<4>();
    for &word in words {
        sum = step4(sum, endian, word);
    }
    if !tail.is_empty() {
        let mut word = [0; 4];
        word[..tail.len()].copy_from_slice(tail);
        sum = step4(sum, endian, word);
    }
    sum
}

/// Carries the fletcher2 sum of the bytes so far on over `data`, written in byte order `endian`.
///
/// Pieces must be a multiple of 16 bytes, save the last; what is missing at the end counts as zero.
pub fn fletcher2(sum: Sum, endian: Endian, data: &[u8]) -> Sum {
    let ([a, b, c, d], rest) = lanes2(endian, data);
    let n = ((data.len() - rest.len()) / 16) as u64;
    let carry = |old: u64, new: u64| new.wrapping_add(old);
    let carry_twice = |old: u64, first: u64, new: u64| new.wrapping_add(old).wrapping_add(first.wrapping_mul(n));
    let mut sum = [carry(sum[0], a), carry(sum[1], b), carry_twice(sum[2], sum[0], c), carry_twice(sum[3], sum[1], d)];
    let (pairs, tail) = rest.as_chunks::<16>();
    for pair in pairs {
        sum = step2(sum, endian, pair);
    }
    if !tail.is_empty() {
        let mut pair = [0; 16];
        pair[..tail.len()].copy_from_slice(tail);
        sum = step2(sum, endian, &pair);
    }
    sum
}

#[inline(always)]
fn step4([a, b, c, d]: Sum, endian: Endian, word: [u8; 4]) -> Sum {
    let word = match endian {
        Endian::Little => u32::from_le_bytes(word),
        Endian::Big => u32::from_be_bytes(word),
    };
    let a = a.wrapping_add(word.into());
    let b = b.wrapping_add(a);
    let c = c.wrapping_add(b);
    [a, b, c, d.wrapping_add(c)]
}

#[inline(always)]
fn step2([a, b, c, d]: Sum, endian: Endian, pair: &[u8; 16]) -> Sum {
    let half = |at: usize| endian.u64(&pair[at..]).expect("a pair is two words");
    let a = a.wrapping_add(half(0));
    let b = b.wrapping_add(half(8));
    [a, b, c.wrapping_add(a), d.wrapping_add(b)]
}

/// The fletcher4 sum of as much of `data` as the lanes can take, and the rest.
fn lanes4(endian: Endian, data: &[u8]) -> (Sum, &[u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512bw") {
            // SAFETY: the instructions are there.
            return unsafe { x86::lanes4_avx512(endian, data) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the instructions are there.
            return unsafe { x86::lanes4_avx2(endian, data) };
        }
    }
    lanes4_any(endian, data)
}

fn lanes4_any(endian: Endian, data: &[u8]) -> (Sum, &[u8]) {
    match endian {
        Endian::Little => lanes4_of::<false>(data),
        Endian::Big => lanes4_of::<true>(data),
    }
}

/// 2 lanes: 64 bits a step.
#[inline(always)]
fn lanes4_of<const BIG: bool>(data: &[u8]) -> (Sum, &[u8]) {
    let (steps, rest) = data.as_chunks::<8>();
    let (mut all, mut high) = ([[0u64]; 4], [[0u64]; 4]);
    for &step in steps {
        // in a big-endian pair the bytes of each word are swapped, but not the words
        let w = u64::from_le_bytes(step);
        let w = if BIG { w.swap_bytes().rotate_left(32) } else { w };
        let (mut add, mut add_high) = (w, w >> 32);
        for i in 0..4 {
            all[i][0] = all[i][0].wrapping_add(add);
            high[i][0] = high[i][0].wrapping_add(add_high);
            (add, add_high) = (all[i][0], high[i][0]);
        }
    }
    (join4(&all, &high), rest)
}

/// The sum of two pieces, of which the second has `n` words.
fn append4(first: Sum, second: Sum, n: u64) -> Sum {
    let n128 = u128::from(n);
    let n2 = (n128 * (n128 + 1) / 2) as u64;
    let n3 = (n128 * (n128 + 1) / 2 * (n128 + 2) / 3) as u64;
    let weights = [[1, 0, 0, 0], [n, 1, 0, 0], [n2, n, 1, 0], [n3, n2, n, 1]];
    std::array::from_fn(|i| {
        first.iter().zip(weights[i]).fold(second[i], |sum, (old, weight)| sum.wrapping_add(old.wrapping_mul(weight)))
    })
}

/// The fletcher2 sum of as much of `data` as the lanes can take, and the rest.
fn lanes2(endian: Endian, data: &[u8]) -> (Sum, &[u8]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the instructions are there.
        return unsafe { lanes2_avx2(endian, data) };
    }
    lanes2_any(endian, data)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn lanes2_avx2(endian: Endian, data: &[u8]) -> (Sum, &[u8]) {
    lanes2_any(endian, data)
}

#[inline(always)]
fn lanes2_any(endian: Endian, data: &[u8]) -> (Sum, &[u8]) {
    match endian {
        Endian::Little => lanes2_of::<false>(data),
        Endian::Big => lanes2_of::<true>(data),
    }
}

/// 4 pairs a step, each to its lane.
#[inline(always)]
fn lanes2_of<const BIG: bool>(data: &[u8]) -> (Sum, &[u8]) {
    const PAIRS: usize = 4;
    let (words, _) = data.as_chunks::<8>();
    let (steps, _) = words.as_chunks::<{ 2 * PAIRS }>();
    let mut once = [0u64; 2 * PAIRS];
    let mut twice = [0u64; 2 * PAIRS];
    for step in steps {
        for j in 0..2 * PAIRS {
            let w = if BIG { u64::from_be_bytes(step[j]) } else { u64::from_le_bytes(step[j]) };
            once[j] = once[j].wrapping_add(w);
            twice[j] = twice[j].wrapping_add(once[j]);
        }
    }
    let mut sum = [0u64; 4];
    for j in 0..2 * PAIRS {
        let (lane, half) = ((j / 2) as u64, j % 2);
        let late = twice[j].wrapping_mul(PAIRS as u64).wrapping_sub(once[j].wrapping_mul(lane));
        sum[half] = sum[half].wrapping_add(once[j]);
        sum[2 + half] = sum[2 + half].wrapping_add(late);
    }
    (sum, &data[steps.len() * 16 * PAIRS..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition.
    fn plain4(sum: Sum, endian: Endian, data: &[u8]) -> Sum {
        data.chunks(4).fold(sum, |sum, bytes| {
            let mut word = [0; 4];
            word[..bytes.len()].copy_from_slice(bytes);
            step4(sum, endian, word)
        })
    }

    /// The definition.
    fn plain2(sum: Sum, endian: Endian, data: &[u8]) -> Sum {
        data.chunks(16).fold(sum, |sum, bytes| {
            let mut pair = [0; 16];
            pair[..bytes.len()].copy_from_slice(bytes);
            step2(sum, endian, &pair)
        })
    }

    type Lanes = fn(Endian, &[u8]) -> (Sum, &[u8]);

    /// Every way to compute fletcher4's lanes that this machine has.
    fn all_lanes4() -> Vec<(&'static str, Lanes)> {
        #[allow(unused_mut)]
        let mut all: Vec<(&'static str, Lanes)> = vec![("portable", lanes4_any)];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the instructions are there.
                all.push(("avx2", |endian, data| unsafe { x86::lanes4_avx2(endian, data) }));
            }
            if is_x86_feature_detected!("avx512bw") {
                // SAFETY: the instructions are there.
                all.push(("avx512", |endian, data| unsafe { x86::lanes4_avx512(endian, data) }));
            }
        }
        all
    }

    fn noise(len: usize) -> Vec<u8> {
        let mut x = 0x9e37_79b9_7f4a_7c15u64;
        (0..len)
            .map(|_| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                (x >> 32) as u8
            })
            .collect()
    }

    #[test]
    fn every_length_and_alignment() {
        let data = noise(700);
        let (starts, lens) = if cfg!(miri) { (8, 37) } else { (1, 1) };
        for endian in [Endian::Little, Endian::Big] {
            for start in (0..33).step_by(starts) {
                for end in (start..start + 300).step_by(lens) {
                    let data = &data[start..end];
                    assert_eq!(fletcher4([1, 2, 3, 4], endian, data), plain4([1, 2, 3, 4], endian, data));
                    assert_eq!(fletcher2([1, 2, 3, 4], endian, data), plain2([1, 2, 3, 4], endian, data));
                }
            }
        }
    }

    #[test]
    fn every_instruction_set() {
        let len = if cfg!(miri) { 1 << 11 } else { 1 << 17 };
        // all ones: the sums wrap early
        for data in [noise(len), vec![0xff; len]] {
            for endian in [Endian::Little, Endian::Big] {
                let expect = plain4([0; 4], endian, &data);
                for (name, lanes) in all_lanes4() {
                    let (sum, rest) = lanes(endian, &data);
                    assert!(rest.is_empty());
                    assert_eq!(sum, expect, "{name}");
                }
                assert_eq!(lanes2_any(endian, &data).0, plain2([0; 4], endian, &data));
                assert_eq!(fletcher2([0; 4], endian, &data), plain2([0; 4], endian, &data));
            }
        }
    }

    proptest! {
        #[test]
        fn in_pieces(data in proptest::collection::vec(any::<u8>(), 0..4000), cut in 0usize..250) {
            let (first, second) = data.split_at((cut * 16).min(data.len() / 16 * 16));
            for endian in [Endian::Little, Endian::Big] {
                let whole = fletcher4([0; 4], endian, &data);
                prop_assert_eq!(fletcher4(fletcher4([0; 4], endian, first), endian, second), whole);
                let whole = fletcher2([0; 4], endian, &data);
                prop_assert_eq!(fletcher2(fletcher2([0; 4], endian, first), endian, second), whole);
            }
        }
    }
}
