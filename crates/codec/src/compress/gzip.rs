//! gzip-1 to gzip-9: in spite of the name a zlib stream (RFC 1950), whole block at a time.
//!
//! libdeflate does it, which knows only whole buffers and is twice as fast for that. Its contexts
//! are large, so each thread keeps them.

use std::cell::RefCell;

use libdeflater::{CompressionLvl, Compressor, Decompressor};

thread_local! {
    static DECOMPRESSOR: RefCell<Decompressor> = RefCell::new(Decompressor::new());
    /// One compressor a level, made when first needed.
    static COMPRESSORS: RefCell<[Option<Compressor>; 10]> = const { RefCell::new([const { None }; 10]) };
}

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> bool {
    DECOMPRESSOR.with_borrow_mut(|gz| gz.zlib_decompress(src, dst).is_ok_and(|len| len == dst.len()))
}

/// `level` is 1 to 9.
pub(super) fn compress(level: u8, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    COMPRESSORS.with_borrow_mut(|compressors| {
        let gz = compressors[level as usize].get_or_insert_with(|| {
            Compressor::new(CompressionLvl::new(level.into()).expect("libdeflate has levels 1 to 9"))
        });
        gz.zlib_compress(src, dst).ok()
    })
}
