//! lzjb: ZFS's first compression, a small LZ77.
//!
//! ```text
//!   map byte, then 8 items; bit i (from the lowest) of the map tells what item i is
//!     0: one literal byte
//!     1: a copy of what came before   | length - 3: 6 bits | distance: 10 bits |
//! ```
//!
//! Copies are 3 to 66 bytes, overlap what they write if the distance is shorter, and may run over
//! the block's end, where they are cut. The block ends when it is full.

/// Least length of a copy.
const MATCH_MIN: usize = 3;

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> bool {
    let mut src = src.iter().copied();
    let mut at = 0;
    loop {
        let Some(map) = src.next() else { return false };
        for bit in 0..8 {
            if at == dst.len() {
                return true;
            }
            if map >> bit & 1 == 0 {
                let Some(literal) = src.next() else { return false };
                dst[at] = literal;
                at += 1;
                continue;
            }
            let (Some(hi), Some(lo)) = (src.next(), src.next()) else { return false };
            let distance = usize::from(hi & 3) << 8 | usize::from(lo);
            let len = (usize::from(hi >> 2) + MATCH_MIN).min(dst.len() - at);
            if distance == 0 || distance > at {
                return false;
            }
            for i in at..at + len {
                dst[i] = dst[i - distance];
            }
            at += len;
        }
        if at == dst.len() {
            return true;
        }
    }
}
