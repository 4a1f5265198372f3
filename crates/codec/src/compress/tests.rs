//! Blocks written by hand, by the reference formats, and garbage.

use proptest::prelude::*;

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

#[test]
fn levels() {
    let phys: Vec<u8> = (0..=255).filter(|&phys| zstd::level_from_phys(phys).is_some()).collect();
    assert_eq!(phys, (1..=19).chain(103..=123).collect::<Vec<u8>>());
    for phys in phys {
        assert_eq!(zstd::level_to_phys(zstd::level_from_phys(phys).unwrap()), Some(phys));
    }
    assert_eq!(zstd::level_to_phys(19), Some(19));
    assert_eq!(zstd::level_to_phys(-1), Some(103));
    assert_eq!(zstd::level_to_phys(-10), Some(112));
    assert_eq!(zstd::level_to_phys(-20), Some(113));
    assert_eq!(zstd::level_to_phys(-1000), Some(123));
    assert_eq!(zstd::level_to_phys(-11), None);
    // as little-endian and as big-endian machines write version 1.4.5, level 3
    assert_eq!(zstd::level_of(&[0, 0, 0, 0, 3, 0, 0x28, 0xa5]), Some(3));
    assert_eq!(zstd::level_of(&[0, 0, 0, 0, 0, 0x28, 0xa5, 3]), Some(3));
}

/// Bytes before a page that cannot be touched.
struct Fenced {
    page: *mut u8,
    mapped: usize,
    len: usize,
}

impl Fenced {
    fn new(bytes: &[u8]) -> Fenced {
        const PAGE: usize = 4096;
        let room = bytes.len().next_multiple_of(PAGE);
        let mapped = room + PAGE;
        // SAFETY: a fresh mapping, which nothing else knows of.
        let page = unsafe {
            let page = libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(page, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(page.byte_add(room), PAGE, libc::PROT_NONE), 0);
            page.cast::<u8>().add(room - bytes.len())
        };
        let mut fenced = Fenced { page, mapped, len: bytes.len() };
        fenced.bytes().copy_from_slice(bytes);
        fenced
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: that many bytes are mapped from there to the fence.
        unsafe { std::slice::from_raw_parts_mut(self.page, self.len) }
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        let start = self.page as usize + self.len + 4096 - self.mapped;
        // SAFETY: it was mapped so.
        unsafe { libc::munmap(start as *mut _, self.mapped) };
    }
}

/// Decompresses between fences. A panic or a touch outside ends the test.
fn survives(kind: Compress, src: &[u8], lsize: usize) -> Result<Vec<u8>> {
    let mut src = Fenced::new(src);
    let mut dst = Fenced::new(&vec![0; lsize]);
    decompress(kind, src.bytes(), dst.bytes())?;
    Ok(dst.bytes().to_vec())
}

fn compressors() -> impl Strategy<Value = (Compress, i32)> {
    let gzips = (5u8..=13).prop_map(|n| (Compress::from_u8(n).unwrap(), 0));
    let zstds = prop_oneof![Just(0), 1..=6, Just(-1), Just(-10), Just(-1000)].prop_map(|level| (Compress::Zstd, level));
    let others = proptest::sample::select(vec![Compress::Lzjb, Compress::Zle, Compress::Lz4, Compress::Off]);
    prop_oneof![gzips, zstds, others.prop_map(|kind| (kind, 0))]
}

/// Runs of noise, zeros, text and repetition.
fn blocks() -> impl Strategy<Value = Vec<u8>> {
    let run = (0u8..5, 1usize..400, any::<u64>()).prop_map(|(what, len, seed)| {
        let mut x = seed | 1;
        let mut next = move || {
            x = x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (x >> 56) as u8
        };
        match what {
            0 => (0..len).map(|_| next()).collect(),
            1 => vec![0; len],
            2 => vec![seed as u8; len],
            3 => (0..len).map(|_| if next() < 128 { 0 } else { next() }).collect(),
            _ => (0..len).map(|i| b"what was will be"[(i + usize::from(next() < 4)) % 16]).collect::<Vec<u8>>(),
        }
    });
    proptest::collection::vec(run, 1..40).prop_map(|runs| runs.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn round_trip((kind, level) in compressors(), data in blocks(), padding in 0usize..600) {
        let mut packed = vec![0xaa; data.len() * 2 + 64];
        let len = compress(kind, level, &data, &mut packed).unwrap();
        packed.truncate(len);
        // it fits where it says it fits, and never writes beyond
        let mut tight = Fenced::new(&vec![0; len]);
        if let Some(again) = compress(kind, level, &data, tight.bytes()) {
            prop_assert_eq!(&tight.bytes()[..again], &packed);
        }
        for less in [0, len / 2, len - 1] {
            prop_assert_eq!(compress(kind, level, &data, Fenced::new(&vec![0; less]).bytes()), None);
        }
        packed.resize(len + padding, 0);
        prop_assert_eq!(survives(kind, &packed, data.len()).unwrap(), data);
    }

    #[test]
    fn cut_or_flipped((kind, level) in compressors(), data in blocks(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut packed = vec![0; data.len() * 2 + 64];
        let len = compress(kind, level, &data, &mut packed).unwrap();
        packed.truncate(len);
        let at = at.index(len);
        if let Ok(unpacked) = survives(kind, &packed[..at], data.len()) {
            // only what the block did not need was cut
            prop_assert_eq!(&unpacked, &data);
        }
        packed[at] ^= 1 << bit;
        let _ = survives(kind, &packed, data.len());
        let _ = survives(kind, &packed, data.len() + 1);
        let _ = survives(kind, &packed, data.len() / 2);
    }

    #[test]
    fn garbage(kind in 0u8..17, src in proptest::collection::vec(any::<u8>(), 0..2000), lsize in 1usize..5000, framed: bool) {
        let kind = Compress::from_u8(kind).unwrap();
        let mut src = src;
        if framed && src.len() >= 8 {
            // garbage of a plausible length gets further
            let len = (src.len() - if kind == Compress::Zstd { 8 } else { 4 }) as u32;
            src[..4].copy_from_slice(&len.to_be_bytes());
        }
        let _ = survives(kind, &src, lsize);
    }

    #[test]
    fn zeros(len in 0usize..2000, at in any::<prop::sample::Index>()) {
        let mut data = vec![0; len];
        prop_assert!(is_zero(&data));
        if len > 0 {
            data[at.index(len)] = 1;
            prop_assert!(!is_zero(&data));
        }
    }
}
