//! zstd: an 8-byte header, then one frame without its magic number, size and checksum.
//!
//! ```text
//!   0        4       5           8
//!   | size   | level | version   | frame ...      big-endian: size of the frame; the library's
//!                                                 version as 10,000·major + 100·minor + patch
//! ```
//!
//! Old big-endian machines wrote level and version the other way round. A version's upper byte is
//! 0 for long to come and a level is never 0, so where the 0 is tells which it was.
//!
//! The frame's content is never larger than the block, so it is decoded straight into it; no window
//! is allocated by what the frame says. Contexts are large, so each thread keeps one of each.

use std::cell::RefCell;

use zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat};

/// The level that the property value `zstd` means.
pub const LEVEL_DEFAULT: i32 = 3;

/// Length of size, level and version.
const HEADER_LEN: usize = 8;

thread_local! {
    static DECOMPRESSOR: RefCell<DCtx<'static>> = RefCell::new(decompressor());
    static COMPRESSOR: RefCell<CCtx<'static>> = RefCell::new(compressor());
}

/// The levels that zstd and zstd-fast can be set to, and their numbers on disk.
const LEVELS: [(i32, u8); 40] = levels();

const fn levels() -> [(i32, u8); 40] {
    let mut levels = [(0, 0); 40];
    let mut n = 0;
    while n < 19 {
        levels[n] = (n as i32 + 1, n as u8 + 1);
        n += 1;
    }
    // zstd-fast-1 to -10, then in tens to -100, -500, -1000
    while n < 40 {
        let fast = n as i32 - 18;
        let level = match fast {
            ..=10 => fast,
            11..=19 => (fast - 9) * 10,
            20 => 500,
            _ => 1000,
        };
        levels[n] = (-level, 102 + fast as u8);
        n += 1;
    }
    levels
}

/// The number on disk of a level, which is 1 to 19, or negative for zstd-fast; `None` if a property
/// cannot be set to it.
pub fn level_to_phys(level: i32) -> Option<u8> {
    LEVELS.iter().find(|entry| entry.0 == level).map(|entry| entry.1)
}

/// The level that has this number on disk.
pub fn level_from_phys(phys: u8) -> Option<i32> {
    LEVELS.iter().find(|entry| entry.1 == phys).map(|entry| entry.0)
}

/// The level that a compressed block was made with, if it says.
pub fn level_of(src: &[u8]) -> Option<i32> {
    let (header, _) = src.split_first_chunk::<HEADER_LEN>()?;
    let [.., first, second, _, last] = *header;
    level_from_phys(if second == 0 { first } else { last })
}

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> bool {
    let Some((header, rest)) = src.split_first_chunk::<HEADER_LEN>() else { return false };
    let [s0, s1, s2, s3, ..] = *header;
    let Some(frame) = rest.get(..u32::from_be_bytes([s0, s1, s2, s3]) as usize) else { return false };
    DECOMPRESSOR.with_borrow_mut(|zstd| zstd.decompress(dst, frame) == Ok(dst.len()))
}

/// From level 3 on, large blocks are first tried with lz4, then with level 1, and given up if
/// neither makes them fit: that is far quicker on data that cannot be compressed, and rarely wrong.
pub(super) fn compress(level: i32, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    const TRY_FIRST_LEN_MIN: usize = 128 << 10;
    const TRY_FIRST_LEVEL_MIN: i32 = 3;
    let level = if level == 0 { LEVEL_DEFAULT } else { level };
    let phys = level_to_phys(level).unwrap_or_else(|| panic!("zstd has no level {level}"));
    let try_first = level >= TRY_FIRST_LEVEL_MIN && src.len() >= TRY_FIRST_LEN_MIN;
    if try_first && super::lz4::compress(src, dst).is_none() {
        compress_frame(1, src, dst.get_mut(HEADER_LEN..)?)?;
    }
    let (header, frame) = dst.split_first_chunk_mut::<HEADER_LEN>()?;
    let len = compress_frame(level, src, frame)?;
    let size = u32::try_from(len).ok()?.to_be_bytes();
    let [_, version @ ..] = zstd_safe::version_number().to_be_bytes();
    header[..4].copy_from_slice(&size);
    header[4] = phys;
    header[5..].copy_from_slice(&version);
    Some(HEADER_LEN + len)
}

fn compress_frame(level: i32, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    COMPRESSOR.with_borrow_mut(|zstd| {
        zstd.set_parameter(CParameter::CompressionLevel(level)).expect("zstd has the level");
        zstd.compress2(dst, src).ok()
    })
}

fn decompressor() -> DCtx<'static> {
    let mut zstd = DCtx::create();
    zstd.set_parameter(DParameter::Format(FrameFormat::Magicless)).expect("zstd knows the format");
    zstd
}

fn compressor() -> CCtx<'static> {
    let mut zstd = CCtx::create();
    for parameter in [
        CParameter::Format(FrameFormat::Magicless),
        CParameter::ChecksumFlag(false),
        CParameter::ContentSizeFlag(false),
    ] {
        zstd.set_parameter(parameter).expect("zstd knows the parameter");
    }
    zstd
}
