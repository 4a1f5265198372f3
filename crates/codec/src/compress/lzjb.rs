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
/// Greatest length of a copy.
const MATCH_MAX: usize = 66;
/// Greatest distance of a copy, and the bits of one.
const DISTANCE_MAX: usize = 1023;
/// Most bytes that a map byte and its items take.
const GROUP_MAX: usize = 1 + 8 * 2;
/// How much is copied at once, where that is more than needed but there is room.
const STRIDE: usize = 8;

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> bool {
    let (mut from, mut at) = (0, 0);
    // whole groups, as long as nothing can reach the end of either side
    while src.len() - from >= GROUP_MAX && dst.len() - at >= 8 * MATCH_MAX + STRIDE {
        let items: &[u8; GROUP_MAX] = src[from..].first_chunk().expect("there is a group");
        let Some((read, written)) = group(items, dst, at) else { return false };
        from += read;
        at += written;
    }
    let mut src = src[from..].iter().copied();
    while at < dst.len() {
        let Some(map) = src.next() else { return false };
        for bit in 0..8 {
            if at == dst.len() {
                break;
            }
            let Some(first) = src.next() else { return false };
            if map >> bit & 1 == 0 {
                dst[at] = first;
                at += 1;
                continue;
            }
            let Some(second) = src.next() else { return false };
            let (len, distance) = copy_of(first, second);
            if distance == 0 || distance > at {
                return false;
            }
            let end = (at + len).min(dst.len());
            for i in at..end {
                dst[i] = dst[i - distance];
            }
            at = end;
        }
    }
    true
}

/// Length and distance.
#[inline(always)]
fn copy_of(first: u8, second: u8) -> (usize, usize) {
    (usize::from(first >> 2) + MATCH_MIN, usize::from(first & 3) << 8 | usize::from(second))
}

/// One map byte and its items, written to `dst` from `at` on; there is room for the longest such
/// and a stride. Returns how much was read and written.
#[inline(always)]
fn group(items: &[u8; GROUP_MAX], dst: &mut [u8], at: usize) -> Option<(usize, usize)> {
    let start = at;
    let (map, mut at, mut from) = (items[0], at, 1);
    if map == 0 {
        dst[at..at + 8].copy_from_slice(&items[1..9]);
        return Some((9, 8));
    }
    for bit in 0..8 {
        if map >> bit & 1 == 0 {
            dst[at] = items[from];
            at += 1;
            from += 1;
            continue;
        }
        let (len, distance) = copy_of(items[from], items[from + 1]);
        from += 2;
        if distance == 0 || distance > at {
            return None;
        }
        if distance >= STRIDE {
            for offset in (0..len).step_by(STRIDE) {
                let old: [u8; STRIDE] = *dst[at + offset - distance..].first_chunk()?;
                *dst[at + offset..].first_chunk_mut()? = old;
            }
        } else {
            for i in at..at + len {
                dst[i] = dst[i - distance];
            }
        }
        at += len;
    }
    Some((from, at - start))
}

/// Number of places that are remembered.
const TABLE_LEN: usize = 1024;

pub(super) fn compress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    // where the three bytes of each hash were last, modulo 64 Ki
    let mut table = [0u16; TABLE_LEN];
    let (mut from, mut at) = (0, 0);
    while from < src.len() {
        // a group has all the room it could need, or the block counts as too long
        let items: &mut [u8; GROUP_MAX] = dst.get_mut(at..)?.first_chunk_mut()?;
        let (mut map, mut len) = (0, 1);
        for bit in 0..8 {
            if from == src.len() {
                break;
            }
            if let Some((copied, distance)) = find(src, from, &mut table) {
                let copy = ((copied - MATCH_MIN) << 10 | distance) as u16;
                map |= 1 << bit;
                items[len..len + 2].copy_from_slice(&copy.to_be_bytes());
                len += 2;
                from += copied;
            } else {
                items[len] = src[from];
                len += 1;
                from += 1;
            }
        }
        items[0] = map;
        at += len;
    }
    Some(at)
}

/// Length and distance of something before `from` that is like what is there; remembers `from`.
/// The end of the block is left to literals, as the longest match must be within.
#[inline(always)]
fn find(src: &[u8], from: usize, table: &mut [u16; TABLE_LEN]) -> Option<(usize, usize)> {
    let new: &[u8; MATCH_MAX] = src[from..].first_chunk()?;
    let three = first_three(new);
    let entry = &mut table[(three.wrapping_mul(0x9e37_79b1) >> (32 - TABLE_LEN.ilog2())) as usize];
    // an old place becomes a wrong one that is near enough: what tells is whether the bytes are the
    // same, and processors guess badly if that is two questions
    let distance = from.wrapping_sub(usize::from(*entry)) & DISTANCE_MAX;
    *entry = from as u16;
    if distance == 0 || distance > from {
        return None;
    }
    let old: &[u8; MATCH_MAX] = src[from - distance..].first_chunk()?;
    (first_three(old) == three).then(|| (common_prefix(old, new), distance))
}

/// The first three bytes, in the upper part of a word.
#[inline(always)]
fn first_three(bytes: &[u8; MATCH_MAX]) -> u32 {
    u32::from_le_bytes(*bytes.first_chunk().expect("there are four")) << 8
}

/// How many bytes are the same at the start of both.
#[inline(always)]
fn common_prefix(old: &[u8; MATCH_MAX], new: &[u8; MATCH_MAX]) -> usize {
    let (old, old_tail) = old.as_chunks::<8>();
    let (new, new_tail) = new.as_chunks::<8>();
    for (i, (old, new)) in old.iter().zip(new).enumerate() {
        let differs = u64::from_le_bytes(*old) ^ u64::from_le_bytes(*new);
        if differs != 0 {
            return i * 8 + differs.trailing_zeros() as usize / 8;
        }
    }
    old.len() * 8 + old_tail.iter().zip(new_tail).take_while(|(old, new)| old == new).count()
}
