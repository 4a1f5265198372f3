//! Every decompressor: the first byte picks it, the next two the size of the block.
#![no_main]

use codec::compress::{Compress, decompress};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [kind, a, b, src @ ..] = bytes else { return };
    let Some(kind) = Compress::from_u8(*kind).filter(|kind| kind.is_concrete()) else { return };
    let len = (usize::from(u16::from_le_bytes([*a, *b])) + 1) * 16;
    let mut dst = vec![0; len];
    let _ = decompress(kind, src, &mut dst);
});
