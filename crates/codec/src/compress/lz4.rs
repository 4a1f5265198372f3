//! lz4: a big-endian 32-bit length, then a raw block of that many bytes, without frame or checksum.
//!
//! The block itself is liblz4's business. Its decoder is given both exact sizes and checks them.

use std::ffi::c_int;

/// Length of the size in front of the block.
const HEADER_LEN: usize = 4;

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> bool {
    let Some((header, rest)) = src.split_first_chunk::<HEADER_LEN>() else { return false };
    let Some(block) = rest.get(..u32::from_be_bytes(*header) as usize) else { return false };
    let (Ok(block_len), Ok(dst_len)) = (c_int::try_from(block.len()), c_int::try_from(dst.len())) else {
        return false;
    };
    // SAFETY: both regions are valid for the lengths given, which is all that the call touches,
    // whatever the bytes in the block are.
    let len =
        unsafe { lz4_sys::LZ4_decompress_safe(block.as_ptr().cast(), dst.as_mut_ptr().cast(), block_len, dst_len) };
    len == dst_len
}

pub(super) fn compress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let (header, block) = dst.split_first_chunk_mut::<HEADER_LEN>()?;
    let src_len = c_int::try_from(src.len()).ok()?;
    let block_len = c_int::try_from(block.len()).unwrap_or(c_int::MAX);
    // SAFETY: both regions are valid for the lengths given, which is all that the call touches.
    let len =
        unsafe { lz4_sys::LZ4_compress_fast(src.as_ptr().cast(), block.as_mut_ptr().cast(), src_len, block_len, 1) };
    // 0 is lz4's word for "does not fit"; a block is never empty
    let len = u32::try_from(len).ok().filter(|&len| len > 0)?;
    *header = len.to_be_bytes();
    Some(HEADER_LEN + len as usize)
}
