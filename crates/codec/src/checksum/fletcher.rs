//! Fletcher's sums: fletcher4, the default checksum, and the old fletcher2.
//!
//! Both are running sums of running sums, modulo 2^64. With f(0..n) the input as numbers:
//!
//! ```text
//!   fletcher4, per 32-bit word f     fletcher2, per pair (f, g) of 64-bit words
//!     a += f                           a += f     b += g
//!     b += a                           c += a     d += b
//!     c += b                         and the sum is (a, b, c, d)
//!     d += c
//! ```
//!
//! Each step needs the one before, but the sums are linear in the input, so the words can be dealt
//! to L lanes (word i goes to lane i mod L), each lane summed alone, and the lanes put together at
//! the end. Lane j's word k stands in for word i = kL + j, and counted from the end (m words a
//! lane, n = mL words in all, K = m - k, I = n - i = KL - j) it goes into
//!
//! ```text
//!   a with weight 1
//!   b with weight I                  = K·L - j
//!   c with weight I(I+1)/2
//!   d with weight I(I+1)(I+2)/6
//! ```
//!
//! while the lane's own sums have the same weights in K. I's polynomials written in terms of K's
//! give the four equations at [`combine4`]. A running sum is carried on by the same weights, see
//! [`advance4`]; so a sum can be had in pieces, which send streams and embedded checksums need.

use base::Endian;

use super::Sum;

/// Carries the fletcher4 sum of the bytes so far on over `data`, written in byte order `endian`.
///
/// Pieces must be whole 32-bit words, save the last; what is missing at the end counts as zero.
pub fn fletcher4(sum: Sum, endian: Endian, data: &[u8]) -> Sum {
    let (words, tail) = data.as_chunks::<4>();
    let mut sum = words.iter().fold(sum, |sum, &word| step4(sum, endian, word));
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
    let (pairs, tail) = data.as_chunks::<16>();
    let mut sum = pairs.iter().fold(sum, |sum, pair| step2(sum, endian, pair));
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
