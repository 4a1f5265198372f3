//! SHA-256 (FIPS 180-4) of two messages side by side.
//!
//! A round needs the one before it, so one message keeps a processor that has instructions for SHA about half busy. Two
//! messages of one length, with a round of the one between two of the other, take little longer than one of them.

use sha2::{Digest, Sha256};

/// The digests of two messages.
pub(super) fn sha256_pair(messages: [&[u8]; 2]) -> [[u8; 32]; 2] {
    #[cfg(target_arch = "x86_64")]
    if messages[0].len() == messages[1].len() && x86::has_instructions() {
        // SAFETY: the processor has the instructions.
        return unsafe { x86::sha256_pair(messages) };
    }
    messages.map(|message| Sha256::digest(message).into())
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::mem::transmute;

    /// Bytes that are taken up at a time.
    const BLOCK_BYTES: usize = 64;
    /// What a message begins with: a to h.
    const START: [u32; 8] =
        [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];
    /// What is added in each round.
    #[rustfmt::skip]
    const ROUNDS: [u32; 64] = [
        0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5, 0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5,
        0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3, 0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174,
        0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc, 0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da,
        0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7, 0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967,
        0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13, 0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85,
        0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3, 0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070,
        0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5, 0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
        0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208, 0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2,
    ];

    /// Whether [`sha256_pair`] may be called.
    pub(super) fn has_instructions() -> bool {
        is_x86_feature_detected!("sha") && is_x86_feature_detected!("sse4.1") && is_x86_feature_detected!("ssse3")
    }

    /// The digests of two messages of one length.
    #[target_feature(enable = "sha,sse4.1,ssse3")]
    pub(super) fn sha256_pair(messages: [&[u8]; 2]) -> [[u8; 32]; 2] {
        let [a, b, c, d, e, f, g, h] = START.map(u32::cast_signed);
        let mut states = [[_mm_set_epi32(a, b, e, f), _mm_set_epi32(c, d, g, h)]; 2];
        let [(first, first_rest), (second, second_rest)] = messages.map(<[u8]>::as_chunks::<BLOCK_BYTES>);
        first.iter().zip(second).for_each(|blocks| take_up(&mut states, blocks.into()));
        let n_blocks = (first_rest.len() + 9).div_ceil(BLOCK_BYTES);
        let [first, second] = [first_rest, second_rest].map(|rest| end_of(messages[0].len(), rest, n_blocks));
        first.iter().zip(&second).take(n_blocks).for_each(|blocks| take_up(&mut states, blocks.into()));
        states.map(digest)
    }

    /// What follows the whole blocks of a message: the rest of it, a bit, zeros, its length. That takes so many blocks.
    fn end_of(len: usize, rest: &[u8], n_blocks: usize) -> [[u8; BLOCK_BYTES]; 2] {
        let mut bytes = [0; 2 * BLOCK_BYTES];
        bytes[..rest.len()].copy_from_slice(rest);
        bytes[rest.len()] = 0x80;
        let end = n_blocks * BLOCK_BYTES;
        bytes[end - 8..end].copy_from_slice(&(len as u64 * 8).to_be_bytes());
        let (blocks, _) = bytes.as_chunks();
        [blocks[0], blocks[1]]
    }

    /// Takes a block of each message into its state: words a, b, e, f and c, d, g, h, the first of them in the highest lane.
    #[target_feature(enable = "sha,sse4.1,ssse3")]
    #[inline]
    fn take_up(states: &mut [[__m128i; 2]; 2], blocks: [&[u8; BLOCK_BYTES]; 2]) {
        // numbers are big-endian in messages
        let swap = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
        let mut words = blocks.map(|block| {
            // SAFETY: a block is as long as four registers, and the load needs no alignment.
            let load = |n: usize| unsafe { _mm_loadu_si128(block.as_ptr().cast::<__m128i>().add(n)) };
            [0, 1, 2, 3].map(|n| _mm_shuffle_epi8(load(n), swap))
        });
        let before = *states;
        let (rounds, _) = ROUNDS.as_chunks::<4>();
        for (n, add) in rounds.iter().enumerate() {
            let [k0, k1, k2, k3] = add.map(u32::cast_signed);
            let add = _mm_set_epi32(k3, k2, k1, k0);
            for (state, words) in states.iter_mut().zip(&mut words) {
                let [w0, w1, w2, w3] = *words;
                let sum = _mm_add_epi32(w0, add);
                let [abef, cdgh] = *state;
                let middle = _mm_sha256rnds2_epu32(cdgh, abef, sum);
                *state = [_mm_sha256rnds2_epu32(abef, middle, _mm_shuffle_epi32::<0x0e>(sum)), middle];
                let next = _mm_add_epi32(_mm_sha256msg1_epu32(w0, w1), _mm_alignr_epi8::<4>(w3, w2));
                // those of the last rounds are there already
                *words = [w1, w2, w3, if n < 12 { _mm_sha256msg2_epu32(next, w3) } else { w0 }];
            }
        }
        for (state, before) in states.iter_mut().zip(before) {
            *state = [_mm_add_epi32(state[0], before[0]), _mm_add_epi32(state[1], before[1])];
        }
    }

    fn digest(state: [__m128i; 2]) -> [u8; 32] {
        // SAFETY: a register is four words.
        let [[f, e, b, a], [h, g, d, c]] = state.map(|words| unsafe { transmute::<__m128i, [u32; 4]>(words) });
        let mut digest = [0; 32];
        for (bytes, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *bytes = word.to_be_bytes();
        }
        digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_at_once_are_as_one_after_the_other() {
        let bytes: Vec<u8> = (0..2000u32).map(|n| (n * n >> 3) as u8).collect();
        // every place of the end in a block; other lengths; none
        let lens = (0..130).chain([1000, 1024]);
        for (a, b) in lens.clone().map(|len| (len, len)).chain([(64, 65), (0, 512)]) {
            let messages = [&bytes[..a], &bytes[700..700 + b]];
            assert_eq!(
                sha256_pair(messages),
                messages.map(|message| <[u8; 32]>::from(Sha256::digest(message))),
                "{a}, {b} bytes"
            );
        }
    }
}
