//! Skein-512-256 as a keyed hash (Skein-MAC), from "The Skein Hash Function Family", version 1.3.
//!
//! Its block cipher Threefish-512 turns into a hash by chaining: the state is the cipher's key, a
//! block of input is encrypted, and what comes out, xor the block, is the next state. A 128-bit
//! tweak tells the cipher what the block is: a type, whether it is the first or last of its type,
//! and how many bytes of that type there were up to its end.
//!
//! ```text
//!   0 --[salt, type 0]--[config, type 4]--[data, type 48]-- ... --[counter 0, type 63]--> digest
//! ```
//!
//! The state after the config block depends on the salt alone; it is computed for each block anew,
//! which is two encryptions beside the 64 that even 4 KiB take.

/// Words of a state, key or block.
type SkeinWords = [u64; 8];

/// Length of a block in bytes.
const BLOCK_LEN: usize = 64;

const TYPE_KEY: u64 = 0;
const TYPE_CONFIG: u64 = 4;
const TYPE_MESSAGE: u64 = 48;
const TYPE_OUTPUT: u64 = 63;

/// The 256-bit digest of `data` under `key`.
pub(super) fn skein_512_256(key: &[u8], data: &[u8]) -> [u8; 32] {
    let output = hash(key, 256, data);
    let mut digest = [0; 32];
    for (bytes, word) in digest.as_chunks_mut::<8>().0.iter_mut().zip(output) {
        *bytes = word.to_le_bytes();
    }
    digest
}

/// The first 512 bits of output, for a digest declared as `digest_bits` long; no key if it is empty.
fn hash(key: &[u8], digest_bits: u64, data: &[u8]) -> SkeinWords {
    let mut state = [0; 8];
    if !key.is_empty() {
        state = chain(state, TYPE_KEY, key);
    }
    let mut config = [0; 32];
    config[..4].copy_from_slice(b"SHA3");
    config[4] = 1;
    config[8..16].copy_from_slice(&digest_bits.to_le_bytes());
    let state = chain(state, TYPE_CONFIG, &config);
    let state = chain(state, TYPE_MESSAGE, data);
    chain(state, TYPE_OUTPUT, &0u64.to_le_bytes())
}

/// Takes all of `data`, as blocks of type `kind`, into the state. The last block is filled up with
/// zeros; there is one even if `data` is empty.
fn chain(mut state: SkeinWords, kind: u64, data: &[u8]) -> SkeinWords {
    const FIRST: u64 = 1 << 62;
    const LAST: u64 = 1 << 63;
    let split_at = data.len().saturating_sub(1) / BLOCK_LEN * BLOCK_LEN;
    let (whole, last) = data.split_at(split_at);
    let mut flags = FIRST;
    let mut position = 0;
    for block in whole.as_chunks::<BLOCK_LEN>().0 {
        position += BLOCK_LEN as u64;
        state = absorb(state, [position, kind << 56 | flags], block);
        flags = 0;
    }
    let mut block = [0; BLOCK_LEN];
    block[..last.len()].copy_from_slice(last);
    absorb(state, [data.len() as u64, kind << 56 | flags | LAST], &block)
}

#[inline(always)]
fn absorb(state: SkeinWords, tweak: [u64; 2], block: &[u8; BLOCK_LEN]) -> SkeinWords {
    let words = block.as_chunks::<8>().0;
    let block: SkeinWords = std::array::from_fn(|i| u64::from_le_bytes(words[i]));
    let out = threefish_512(&state, tweak, block);
    std::array::from_fn(|i| out[i] ^ block[i])
}

/// Rotations of the four mixes in each of 8 rounds.
const ROTATIONS: [[u32; 4]; 8] = [
    [46, 36, 19, 37],
    [33, 27, 14, 42],
    [17, 49, 36, 39],
    [44, 9, 54, 56],
    [39, 30, 34, 24],
    [13, 50, 10, 17],
    [25, 29, 39, 43],
    [8, 35, 56, 22],
];

/// The words that are mixed in each of four rounds. The specification permutes the words after each
/// round; after four they are back, so each round takes them from where they are instead.
const PAIRS: [[(usize, usize); 4]; 4] = [
    [(0, 1), (2, 3), (4, 5), (6, 7)],
    [(2, 1), (4, 7), (6, 5), (0, 3)],
    [(4, 1), (6, 3), (0, 5), (2, 7)],
    [(6, 1), (0, 7), (2, 5), (4, 3)],
];

/// Encrypts `block`.
#[inline(always)]
fn threefish_512(key: &SkeinWords, tweak: [u64; 2], block: SkeinWords) -> SkeinWords {
    let parity = key.iter().fold(0x1bd1_1bda_a9fc_1a22, |parity, word| parity ^ word);
    let mut keys = [parity; 9];
    keys[..8].copy_from_slice(key);
    let tweaks = [tweak[0], tweak[1], tweak[0] ^ tweak[1]];
    let mut v = block;
    macro_rules! four_rounds_from_subkey {
        ($($s:literal)*) => { $( add_subkey::<$s>(&mut v, &keys, &tweaks); four_rounds::<$s>(&mut v); )* }
    }
    four_rounds_from_subkey!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17);
    add_subkey::<18>(&mut v, &keys, &tweaks);
    v
}

/// Adds subkey `S`. What it is made of is known at compile time, so that the key and the state can
/// stay in registers.
#[inline(always)]
fn add_subkey<const S: usize>(v: &mut SkeinWords, keys: &[u64; 9], tweaks: &[u64; 3]) {
    for (i, word) in v.iter_mut().enumerate() {
        *word = word.wrapping_add(keys[(S + i) % 9]);
    }
    v[5] = v[5].wrapping_add(tweaks[S % 3]);
    v[6] = v[6].wrapping_add(tweaks[(S + 1) % 3]);
    v[7] = v[7].wrapping_add(S as u64);
}

/// The rounds between subkeys `S` and `S + 1`.
#[inline(always)]
fn four_rounds<const S: usize>(v: &mut SkeinWords) {
    for (round, pairs) in PAIRS.into_iter().enumerate() {
        for (mix, (a, b)) in pairs.into_iter().enumerate() {
            v[a] = v[a].wrapping_add(v[b]);
            v[b] = v[b].rotate_left(ROTATIONS[S % 2 * 4 + round][mix]) ^ v[a];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appendix C.1 of the specification, plain Skein-512-512 of 1, 64 and 128 bytes.
    #[test]
    fn published_plain() {
        let message: Vec<u8> = (0..=255).rev().collect();
        let check = |len: usize, expect: [u8; 16]| {
            let words = hash(&[], 512, &message[..len]);
            let got: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).take(16).collect();
            assert_eq!(got, expect, "{len} bytes");
        };
        check(1, 0x71b7bce6fe6452227b9ced6014249e5b_u128.to_be_bytes());
        check(64, 0x45863ba3be0c4dfc27e75d358496f4ac_u128.to_be_bytes());
        check(128, 0x91cca510c263c4ddd010530a33073309_u128.to_be_bytes());
    }
}
