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

/// Length of size, level and version.
const HEADER_LEN: usize = 8;

thread_local! {
    static DECOMPRESSOR: RefCell<DCtx<'static>> = RefCell::new(decompressor());
    static COMPRESSOR: RefCell<CCtx<'static>> = RefCell::new(compressor());
}

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> bool {
    let Some((header, rest)) = src.split_first_chunk::<HEADER_LEN>() else { return false };
    let [s0, s1, s2, s3, ..] = *header;
    let Some(frame) = rest.get(..u32::from_be_bytes([s0, s1, s2, s3]) as usize) else { return false };
    DECOMPRESSOR.with_borrow_mut(|zstd| zstd.decompress(dst, frame) == Ok(dst.len()))
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
