//! Known answers of every algorithm, in both byte orders.

use super::*;

#[track_caller]
fn check(kind: Checksum, endian: Endian, data: &[u8], expect: Sum) {
    assert_eq!(compute(kind, endian, &[0; 32], data), expect, "{kind:?} {endian:?}");
}

#[test]
fn kinds_and_numbers() {
    for (n, kind) in Checksum::ALL.into_iter().enumerate() {
        assert_eq!(kind as usize, n);
        assert_eq!(Checksum::from_u8(n as u8), Some(kind));
    }
    assert_eq!(Checksum::from_u8(15), None);
}

#[test]
fn fletcher_by_hand() {
    let words = [1u32, 2, 3, 0xffff_ffff];
    let le: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let be: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
    // a: 1 3 6 6+m; b: 1 4 10 16+m; c: 1 5 15 31+m; d: 1 6 21 52+m
    let m = 0xffff_ffff;
    let expect = [6 + m, 16 + m, 31 + m, 52 + m];
    check(Checksum::Fletcher4, Endian::Little, &le, expect);
    check(Checksum::Fletcher4, Endian::Big, &be, expect);

    let words = [1u64, 2, 3, u64::MAX];
    let le: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let be: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
    check(Checksum::Fletcher2, Endian::Little, &le, [4, 1, 5, 3]);
    check(Checksum::Fletcher2, Endian::Big, &be, [4, 1, 5, 3]);
}

/// SHA-256 of "abc", FIPS 180-2 appendix B.1: the words are the same whoever wrote the block.
#[test]
fn sha256() {
    let expect = [0xba7816bf8f01cfea, 0x414140de5dae2223, 0xb00361a396177a9c, 0xb410ff61f20015ad];
    check(Checksum::Sha256, Endian::Little, b"abc", expect);
    check(Checksum::Sha256, Endian::Big, b"abc", expect);
}

/// SHA-512/256 of "abc", NIST's example: a big-endian machine's words read like the digest.
#[test]
fn sha512() {
    let expect = [0x53048e2681941ef9, 0x9b2e29b76b4c7dab, 0xe4c2d0c634fc6d46, 0xe0e2f13107e7af23u64];
    check(Checksum::Sha512, Endian::Big, b"abc", expect);
    check(Checksum::Sha512, Endian::Little, b"abc", expect.map(u64::swap_bytes));
}

#[test]
fn no_algorithm_is_zero() {
    check(Checksum::Off, Endian::Little, b"abc", [0; 4]);
    check(Checksum::NoParity, Endian::Big, b"abc", [0; 4]);
}
