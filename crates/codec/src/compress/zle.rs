//! zle: runs of zeros are counted, everything else is copied.
//!
//! ```text
//!   0..=63    followed by that many literals, and one more
//!   64..=255  stands for that many zeros, less 63
//! ```

/// Control bytes below it introduce literals, the others are zeros.
const LITERALS_MAX: usize = 64;

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> bool {
    let (mut src, mut dst) = (src, dst);
    while !dst.is_empty() {
        let Some((&control, rest)) = src.split_first() else { return false };
        let len = control as usize + 1;
        if len <= LITERALS_MAX {
            let Some((literals, rest)) = rest.split_at_checked(len) else { return false };
            let Some((out, left)) = dst.split_at_mut_checked(len) else { return false };
            out.copy_from_slice(literals);
            (src, dst) = (rest, left);
        } else {
            let Some((out, left)) = dst.split_at_mut_checked(len - LITERALS_MAX) else { return false };
            out.fill(0);
            (src, dst) = (rest, left);
        }
    }
    true
}
