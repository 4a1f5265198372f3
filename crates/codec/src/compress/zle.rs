//! zle: runs of zeros are counted, everything else is copied.
//!
//! ```text
//!   0..=63    followed by that many literals, and one more
//!   64..=255  stands for that many zeros, less 63
//! ```

/// Control bytes below it introduce literals, the others are zeros.
const LITERALS_MAX: usize = 64;
/// Most zeros in a run.
const ZEROS_MAX: usize = 256 - LITERALS_MAX;

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

pub(super) fn compress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let (mut src, mut at) = (src, 0);
    while !src.is_empty() {
        let zeros = leading_zeros(&src[..src.len().min(ZEROS_MAX)]);
        if zeros > 0 {
            *dst.get_mut(at)? = (LITERALS_MAX + zeros - 1) as u8;
            at += 1;
            src = &src[zeros..];
        } else {
            let len = literals(&src[..src.len().min(LITERALS_MAX)]);
            let out = dst.get_mut(at..at + 1 + len)?;
            out[0] = (len - 1) as u8;
            out[1..].copy_from_slice(&src[..len]);
            at += 1 + len;
            src = &src[len..];
        }
    }
    Some(at)
}

fn leading_zeros(run: &[u8]) -> usize {
    let words = run.as_chunks::<8>().0.iter().take_while(|word| **word == [0; 8]).count();
    words * 8 + run[words * 8..].iter().take_while(|byte| **byte == 0).count()
}

/// How many bytes, at least the first, are literals: up to two zeros, or one at the end. A lone
/// zero is cheaper as a literal.
fn literals(run: &[u8]) -> usize {
    let mut len = 1;
    while len < run.len() {
        // eight bytes without a zero are skipped at once
        if let Some(word) = run[len..].first_chunk() {
            let word = u64::from_le_bytes(*word);
            let ones = u64::from_ne_bytes([1; 8]);
            if word.wrapping_sub(ones) & !word & (ones << 7) == 0 {
                len += 8;
                continue;
            }
        }
        if run[len] == 0 && run.get(len + 1).is_none_or(|next| *next == 0) {
            break;
        }
        len += 1;
    }
    len
}
