//! The hash of a key, and the cursor made of it.
//!
//! The hash is a reflected CRC-64 (ECMA-182 polynomial) that starts from the table's random salt. Only
//! its upper 28 bits count, or 48 in tables with the wide hash; the rest is zero.

use super::fat::{ZapHeader, hash_bits};

/// ECMA-182, reflected.
const POLYNOMIAL: u64 = 0xc96c_5795_d787_0f42;

const TABLE: [u64; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (POLYNOMIAL & (crc & 1).wrapping_neg());
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};

/// The hash of a name in its normalized form, without a terminating NUL.
pub fn hash_name(salt: u64, flags: u64, name: &[u8]) -> u64 {
    crc(salt, name) & mask(flags)
}

/// The hash of an integer key.
pub fn hash_u64s(salt: u64, flags: u64, key: &[u64]) -> u64 {
    let hash = if flags & ZapHeader::FLAG_PRE_HASHED_KEY != 0 {
        key.first().copied().unwrap_or(0)
    } else {
        key.iter().fold(salt, |hash, word| crc(hash, &word.to_le_bytes()))
    };
    hash & mask(flags)
}

/// What a byte does to the CRC once so many more bytes have followed it.
static BEHIND: [[u64; 256]; 8] = {
    let mut tables = [TABLE; 8];
    let mut behind = 1;
    while behind < 8 {
        let mut i = 0;
        while i < 256 {
            let crc = tables[behind - 1][i];
            tables[behind][i] = (crc >> 8) ^ TABLE[(crc & 0xff) as usize];
            i += 1;
        }
        behind += 1;
    }
    tables
};

fn crc(start: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let crc = words.iter().fold(start, |crc, word| {
        let bytes = (crc ^ u64::from_le_bytes(*word)).to_le_bytes();
        bytes.iter().rev().zip(&BEHIND).fold(0, |crc, (&byte, table)| crc ^ table[usize::from(byte)])
    });
    rest.iter().fold(crc, |crc, &byte| (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ byte)])
}

pub(super) fn mask(flags: u64) -> u64 {
    !(u64::MAX >> hash_bits(flags))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crc_is_the_ecma_one() {
        // The check value of CRC-64/XZ, which starts from ones and is inverted at the end.
        assert_eq!(!crc(u64::MAX, b"123456789"), 0x995d_c9bb_df19_39fa);
        assert_eq!(TABLE[128], POLYNOMIAL);
        let bytes: Vec<u8> = (0..40u8).map(|i| i.wrapping_mul(37)).collect();
        for len in 0..bytes.len() {
            let by_byte = bytes[..len].iter().fold(99, |start, byte| crc(start, &[*byte]));
            assert_eq!(crc(99, &bytes[..len]), by_byte, "{len}");
        }
    }

    #[test]
    fn only_the_upper_bits_count() {
        assert_eq!(hash_name(0x1234_5678_9abc_def1, 0, b"name").trailing_zeros() / 36, 1);
        assert_eq!(hash_u64s(5, ZapHeader::FLAG_HASH64 | ZapHeader::FLAG_PRE_HASHED_KEY, &[u64::MAX, 1]), !0xffff);
        let whole = hash_u64s(5, ZapHeader::FLAG_HASH64, &[0x0102_0304_0506_0708]);
        assert_eq!(whole, hash_name(5, ZapHeader::FLAG_HASH64, &[8, 7, 6, 5, 4, 3, 2, 1]));
    }
}
