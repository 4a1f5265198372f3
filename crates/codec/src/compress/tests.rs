//! Blocks written by hand, by the reference formats, and garbage.

use super::*;

#[track_caller]
fn unpacks(kind: Compress, src: &[u8], expect: &[u8]) {
    for padding in [0, 1, 511] {
        let mut padded = src.to_vec();
        padded.resize(src.len() + padding, 0);
        let mut dst = vec![0xaa; expect.len()];
        decompress(kind, &padded, &mut dst).unwrap();
        assert_eq!(dst, expect);
    }
}

#[track_caller]
fn refuses(kind: Compress, src: &[u8], lsize: usize) {
    let error = decompress(kind, src, &mut vec![0; lsize]).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
}

#[test]
fn kinds_and_numbers() {
    for (n, kind) in Compress::ALL.into_iter().enumerate() {
        assert_eq!(kind as usize, n);
        assert_eq!(Compress::from_u8(n as u8), Some(kind));
    }
    assert_eq!(Compress::from_u8(17), None);
    assert_eq!(Compress::Gzip9.gzip_level(), Some(9));
    assert_eq!(Compress::Zle.gzip_level(), None);
}

#[test]
fn zle_by_hand() {
    unpacks(Compress::Zle, &[1, b'a', b'b', 66, 0, b'c'], b"ab\0\0\0c");
    refuses(Compress::Zle, &[1, b'a'], 2);
    refuses(Compress::Zle, &[1, b'a', b'b'], 1);
    refuses(Compress::Zle, &[66], 2);
    refuses(Compress::Zle, &[64], 2);
}

#[test]
fn lzjb_by_hand() {
    // "ab", then 6 bytes from 2 back, then "c"
    unpacks(Compress::Lzjb, &[0b0100, b'a', b'b', 3 << 2, 2, b'c'], b"abababab" as &[u8]);
    unpacks(Compress::Lzjb, &[0b0100, b'a', b'b', 3 << 2, 2, b'c'], b"ababababc");
    // the last copy may run over the end
    unpacks(Compress::Lzjb, &[0b0010, b'a', 63 << 2, 1], b"aaaa");
    refuses(Compress::Lzjb, &[0b0001, 0, 1], 3);
    refuses(Compress::Lzjb, &[0b0010, b'a', 0, 0], 4);
    refuses(Compress::Lzjb, &[0b0010, b'a', 0], 4);
    refuses(Compress::Lzjb, &[0], 1);
}

#[test]
fn lz4_by_hand() {
    // 1 literal, a copy of 4 + 4 from 1 back, then 5 literals
    let block = [0x14, b'x', 1, 0, 0x50, b'1', b'2', b'3', b'4', b'5'];
    let mut src = 10u32.to_be_bytes().to_vec();
    src.extend(block);
    unpacks(Compress::Lz4, &src, b"xxxxxxxxx12345");
    refuses(Compress::Lz4, &src, 13);
    refuses(Compress::Lz4, &src, 15);
    refuses(Compress::Lz4, &src[..13], 14);
    refuses(Compress::Lz4, &[0xff; 9], 14);
}

#[test]
fn gzip_is_zlib() {
    // zlib stream with one stored block
    let mut src = vec![0x78, 0x01, 1, 3, 0, 0xfc, 0xff];
    src.extend(b"abc");
    src.extend(0x024d_0127u32.to_be_bytes());
    unpacks(Compress::Gzip6, &src, b"abc");
    refuses(Compress::Gzip6, &src, 2);
    refuses(Compress::Gzip6, &src, 4);
    src[13] ^= 1;
    refuses(Compress::Gzip6, &src, 3);
}

#[test]
fn zstd_by_hand() {
    // frame header: no flags, window 1 KiB; one last raw block of 3 bytes
    let frame = [0x00, 0x00, 3 << 3 | 1, 0, 0, b'a', b'b', b'c'];
    let mut src = 8u32.to_be_bytes().to_vec();
    src.extend([3, 0, 0x28, 0xa5]);
    src.extend(frame);
    unpacks(Compress::Zstd, &src, b"abc");
    refuses(Compress::Zstd, &src, 2);
    refuses(Compress::Zstd, &src, 4);
    refuses(Compress::Zstd, &src[..15], 3);
}

#[test]
fn nothing_and_everything() {
    unpacks(Compress::Empty, &[], &[0; 100]);
    unpacks(Compress::Off, b"abc", b"abc");
    refuses(Compress::Off, b"abc", 4);
    refuses(Compress::On, b"abc", 3);
}
