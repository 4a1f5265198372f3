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

/// SHA-256 of "abc", FIPS 180-2 appendix B.1: the words are the same on every machine.
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

/// The salt and data that the digests below are of.
fn sample(len: usize) -> ([u8; 32], Vec<u8>) {
    (std::array::from_fn(|i| (i * 7 + 1) as u8), (0..len).map(|i| (i * i * 31 + i / 251) as u8).collect())
}

#[track_caller]
fn check_salted(kind: Checksum, len: usize, digest: &str) {
    // the longest takes Miri an hour
    if cfg!(miri) && len > 1000 {
        return;
    }
    let (salt, data) = sample(len);
    let words: Sum = std::array::from_fn(|i| u64::from_str_radix(&digest[i * 16..(i + 1) * 16], 16).unwrap());
    assert_eq!(compute(kind, Endian::Big, &salt, &data), words, "{kind:?} of {len} bytes");
    assert_eq!(compute(kind, Endian::Little, &salt, &data), words.map(u64::swap_bytes));
}

/// Digests computed with OpenZFS's functions.
#[test]
fn skein_keyed() {
    check_salted(Checksum::Skein, 0, "1ded3f49cf8cdd1003f153ee1e96d46e6e2cea7a923b9711324dc9afb651bf92");
    check_salted(Checksum::Skein, 1, "34ef25744789c35fc88557efb4dc8523b17d18815ea38fcf544a4060cf1b8d40");
    check_salted(Checksum::Skein, 64, "ab5992ad6f88bc69d3381a02e746db8d6b6579b945315a7912dd024986638399");
    check_salted(Checksum::Skein, 1000, "df2bffc699e48acca6d2b6112eae25502d5454fa643cf5fe3039c40dc2a2823b");
    check_salted(Checksum::Skein, 131072, "443737663cc70420e9450db6e8b4611b17a37133d304bb72e0032ebb2814b7d1");
}

/// Digests computed with OpenZFS's functions.
#[test]
fn edonr_keyed() {
    check_salted(Checksum::Edonr, 0, "3f50813c5639634964c2f387ac2cfd3c07e96b14eafe77677ef7245aee950d28");
    check_salted(Checksum::Edonr, 119, "f06240a6b260fbc714701c4ec3c037446477f688efee3e4482876a782ecc3a83");
    check_salted(Checksum::Edonr, 120, "fc8a678dd8a2afd5c6e1e0d21a4e72aa5d2f57e429f7f1f2338a695ef1d5cdcc");
    check_salted(Checksum::Edonr, 128, "c9a4b4d12cb8204b3a53bd1f694fd29e6926216af03362970fb2c600a9e176ab");
    check_salted(Checksum::Edonr, 131072, "05eec875adec02468b40a6e57c0a8a34758180e8084233b9f077a10a94819e73");
}

/// From BLAKE3's test vectors, keyed, of the empty input and of one byte 0.
#[test]
fn blake3_keyed() {
    let salt = b"whats the Elvish word for friend";
    let empty = [0x92b2b75604ed3c76, 0x1f9d6f62392c8a92, 0x27ad0ea3f09573e7, 0x83f1498a4ed60d26];
    let one = [0x6d7878dfff2f4856, 0x35d39013278ae14f, 0x1454b8c0a3a2d34b, 0xc1ab38228a80c95b];
    assert_eq!(compute(Checksum::Blake3, Endian::Big, salt, &[]), empty);
    assert_eq!(compute(Checksum::Blake3, Endian::Little, salt, &[]), empty.map(u64::swap_bytes));
    assert_eq!(compute(Checksum::Blake3, Endian::Big, salt, &[0]), one);
}

#[test]
fn cut_for_mac() {
    assert_eq!(Checksum::Sha256.cut_for_mac([1, 2, 4, 8]), [1, 2]);
    assert_eq!(Checksum::Fletcher4.cut_for_mac([1, 2, 4, 8]), [5, 10]);
    assert_eq!(Checksum::Edonr.cut_for_mac([1, 2, 4, 8]), [5, 10]);
}
