//! Blocks that carry their own checksum: labels, uberblocks, gang headers, log blocks.
//!
//! Nothing points at a label, and a log block is pointed at before it is written; so these blocks
//! hold a magic number and a checksum themselves, 40 bytes at the end, or for zilog2 in the head:
//!
//! ```text
//!   label, gang header, zilog          zilog2
//!   0                len-40    len     0           136    144              184      nused   len
//!   | content ...    | tail |          | pad, next | used | tail           | records | junk |
//!
//!   tail, at +0 magic 0x0210da7ab10c7a11, at +8 four words
//! ```
//!
//! When the sum is taken, the four words hold a *verifier*, which is what the reader expects of
//! the block: its offset for a label, its address and birth for a gang header, for a log block the
//! words in the pointer of the block before. Then the sum takes its place. So a block that is
//! right in itself but not at its place, or not of this log, fails. The magic number's byte order
//! is that of the machine that wrote the block, and everything in the tail is in it.
//!
//! zilog2 sums only what is used, rounded up to 4 KiB: the rest of a log block may be junk.

use base::{Endian, Error, Kind, Result};
use sha2::{Digest, Sha256};

use super::{Checksum, Sum, fletcher, words};

/// The number that tells that a block carries its checksum, and the byte order it is in.
pub const MAGIC: u64 = 0x0210_da7a_b10c_7a11;
/// Length of magic number and checksum.
pub const TAIL_LEN: usize = 40;

/// Where the length that is used stands in a zilog2 block.
const ZILOG2_USED_AT: usize = 136;
/// Where magic number and checksum stand in a zilog2 block.
const ZILOG2_TAIL_AT: usize = 144;
/// The length used in a zilog2 block is rounded up to this.
const ZILOG2_UNIT: u64 = 4096;

/// What [`inspect`] finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbeddedSums {
    /// The byte order of the machine that wrote the block.
    pub endian: Endian,
    /// The sum in the block.
    pub stored: Sum,
    /// The sum that it should be, if block and verifier belong together.
    pub computed: Sum,
}

/// Checks that `block` is what was written for `verifier`, and returns its byte order.
///
/// Errors: `Checksum` if it is not. Panics if `kind` is not embedded.
pub fn verify(kind: Checksum, verifier: &Sum, block: &[u8]) -> Result<Endian> {
    let sums = inspect(kind, verifier, block)?;
    if sums.stored == sums.computed { Ok(sums.endian) } else { Err(mismatch(kind, "does not match")) }
}

/// The sum in `block` and the one that should be there, for callers that compare only some words
/// (an encrypted log block's last two are its MAC, see [`Checksum::cut_for_mac`]).
///
/// Errors: `Checksum` if there is no sum to be found. Panics if `kind` is not embedded.
pub fn inspect(kind: Checksum, verifier: &Sum, block: &[u8]) -> Result<EmbeddedSums> {
    let EmbeddedLayout { endian, tail_at, len } = EmbeddedLayout::of(kind, None, block)?;
    let (head, rest) = block[..len].split_at(tail_at + 8);
    let (stored, rest) = rest.split_at(32);
    let stored = words(endian, stored.first_chunk().expect("split off as 32 bytes"));
    let computed = sum(kind, endian, [head, &to_bytes(endian, verifier), rest]);
    Ok(EmbeddedSums { endian, stored, computed })
}

/// Completes `block` as a machine of byte order `endian` would: writes the magic number and the sum
/// for `verifier`, which it returns too.
///
/// A zilog2 block's used length must be in its place. Errors: `Invalid` if the block is too short
/// for its kind or for that length. Panics if `kind` is not embedded.
pub fn seal(kind: Checksum, endian: Endian, verifier: &Sum, block: &mut [u8]) -> Result<Sum> {
    let EmbeddedLayout { tail_at, len, .. } = EmbeddedLayout::of(kind, Some(endian), block)
        .map_err(|e| Error::new(Kind::Invalid, "no room").with_source(e))?;
    let tail = &mut block[tail_at..tail_at + TAIL_LEN];
    tail[..8].copy_from_slice(&match endian {
        Endian::Little => MAGIC.to_le_bytes(),
        Endian::Big => MAGIC.to_be_bytes(),
    });
    tail[8..].copy_from_slice(&to_bytes(endian, verifier));
    let sum = sum(kind, endian, [&block[..len], &[], &[]]);
    block[tail_at + 8..tail_at + TAIL_LEN].copy_from_slice(&to_bytes(endian, &sum));
    Ok(sum)
}

/// Where things are in a block.
struct EmbeddedLayout {
    endian: Endian,
    tail_at: usize,
    /// How much is summed; the tail is within.
    len: usize,
}

impl EmbeddedLayout {
    /// The shape of a block that is in byte order `endian`, or else tells its byte order.
    fn of(kind: Checksum, endian: Option<Endian>, block: &[u8]) -> Result<EmbeddedLayout> {
        assert!(kind.is_embedded(), "{} is not in the block", kind.name());
        let too_short = || mismatch(kind, "has no room in the block");
        let tail_at = match kind {
            Checksum::Zilog2 => ZILOG2_TAIL_AT,
            _ => block.len().checked_sub(TAIL_LEN).ok_or_else(too_short)?,
        };
        let magic = block.get(tail_at..).ok_or_else(too_short)?;
        let found = || [Endian::Little, Endian::Big].into_iter().find(|e| e.u64(magic) == Some(MAGIC));
        let endian = endian.or_else(found).ok_or_else(|| mismatch(kind, "is not there"))?;
        let len = match kind {
            Checksum::Zilog2 => zilog2_len(endian, block).ok_or_else(too_short)?,
            _ => block.len(),
        };
        Ok(EmbeddedLayout { endian, tail_at, len })
    }
}

/// How much of a zilog2 block is summed.
fn zilog2_len(endian: Endian, block: &[u8]) -> Option<usize> {
    let used = endian.u64(block.get(ZILOG2_USED_AT..)?)?;
    let len = usize::try_from(used.checked_next_multiple_of(ZILOG2_UNIT)?).ok()?;
    (used >= (ZILOG2_TAIL_AT + TAIL_LEN) as u64 && len <= block.len()).then_some(len)
}

/// The sum over three pieces, of which all but the last are multiples of 16 bytes for fletcher2, of
/// 4 for fletcher4.
fn sum(kind: Checksum, endian: Endian, pieces: [&[u8]; 3]) -> Sum {
    match kind {
        Checksum::Zilog => pieces.into_iter().fold([0; 4], |sum, data| fletcher::fletcher2(sum, endian, data)),
        Checksum::Zilog2 => pieces.into_iter().fold([0; 4], |sum, data| fletcher::fletcher4(sum, endian, data)),
        _ => {
            let mut sha = Sha256::new();
            pieces.into_iter().for_each(|data| sha.update(data));
            words(Endian::Big, &sha.finalize().into())
        }
    }
}

fn to_bytes(endian: Endian, words: &Sum) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *bytes = match endian {
            Endian::Little => word.to_le_bytes(),
            Endian::Big => word.to_be_bytes(),
        };
    }
    bytes
}

#[cold]
fn mismatch(kind: Checksum, how: &'static str) -> Error {
    Error::new(Kind::Checksum, format!("{} checksum {how}", kind.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::compute;

    const VERIFIER: Sum = [0x1234_5678_9abc_def0, 2, 3, 4];
    const KINDS: [Checksum; 4] = [Checksum::Label, Checksum::GangHeader, Checksum::Zilog, Checksum::Zilog2];
    const ENDIANS: [Endian; 2] = [Endian::Little, Endian::Big];

    /// A block as its content would be; of a zilog2 block `used` bytes are used.
    fn block(kind: Checksum, endian: Endian, len: usize, used: u64) -> Vec<u8> {
        let mut block: Vec<u8> = (0..len).map(|i| (i * 7 + i / 256) as u8).collect();
        if kind == Checksum::Zilog2 {
            block[ZILOG2_USED_AT..ZILOG2_USED_AT + 8].copy_from_slice(&to_bytes(endian, &[used; 4])[..8]);
        }
        block
    }

    #[test]
    fn sealed_verifies_and_nothing_else() {
        for (kind, endian) in KINDS.into_iter().flat_map(|kind| ENDIANS.map(|endian| (kind, endian))) {
            let mut block = block(kind, endian, 8192, 4000);
            let sum = seal(kind, endian, &VERIFIER, &mut block).unwrap();
            assert_eq!(verify(kind, &VERIFIER, &block).unwrap(), endian);
            assert_eq!(inspect(kind, &VERIFIER, &block).unwrap(), EmbeddedSums { endian, stored: sum, computed: sum });
            assert_eq!(verify(kind, &[0; 4], &block).unwrap_err().kind(), Kind::Checksum);
            let summed = if kind == Checksum::Zilog2 { 4096 } else { 8192 };
            let everywhere = (0..summed).step_by(61).chain([143, 144, 151, 152, 183, 184, summed - 41, summed - 1]);
            for at in everywhere.step_by(if cfg!(miri) { 47 } else { 1 }) {
                block[at] ^= 0x10;
                assert!(verify(kind, &VERIFIER, &block).is_err(), "{kind:?} {endian:?} changed at {at}");
                block[at] ^= 0x10;
            }
            assert!(verify(kind, &VERIFIER, &block).is_ok());
        }
    }

    /// The definition: the plain algorithm over the block with the verifier in place of the sum.
    #[test]
    fn by_definition() {
        for (kind, endian) in KINDS.into_iter().flat_map(|kind| ENDIANS.map(|endian| (kind, endian))) {
            let (at, len) = if kind == Checksum::Zilog2 { (152, 4096) } else { (8192 - 32, 8192) };
            let mut block = block(kind, endian, 8192, 185);
            let sum = seal(kind, endian, &VERIFIER, &mut block).unwrap();
            assert_eq!(endian.u64(&block[at - 8..]), Some(MAGIC));
            let stored: Sum = std::array::from_fn(|i| endian.u64(&block[at + i * 8..]).unwrap());
            assert_eq!(stored, sum);
            for (i, word) in VERIFIER.iter().enumerate() {
                let word = if endian == Endian::Big { word.to_be_bytes() } else { word.to_le_bytes() };
                block[at + i * 8..at + i * 8 + 8].copy_from_slice(&word);
            }
            assert_eq!(compute(kind, endian, &[0; 32], &block[..len]), sum);
        }
    }

    #[test]
    fn junk_behind_a_log_block() {
        let mut block = block(Checksum::Zilog2, Endian::Little, 12288, 4097);
        seal(Checksum::Zilog2, Endian::Little, &VERIFIER, &mut block).unwrap();
        block[8192..].fill(0);
        verify(Checksum::Zilog2, &VERIFIER, &block).unwrap();
        block[8191] ^= 1;
        verify(Checksum::Zilog2, &VERIFIER, &block).unwrap_err();
    }

    #[test]
    fn absurd_lengths() {
        for used in [0, 1, 183, 4097, 1 << 32, u64::MAX - 4095, u64::MAX] {
            let mut block = block(Checksum::Zilog2, Endian::Little, 4096, used);
            assert_eq!(
                seal(Checksum::Zilog2, Endian::Little, &VERIFIER, &mut block).unwrap_err().kind(),
                Kind::Invalid
            );
            block[ZILOG2_TAIL_AT..ZILOG2_TAIL_AT + 8].copy_from_slice(&MAGIC.to_le_bytes());
            assert_eq!(verify(Checksum::Zilog2, &VERIFIER, &block).unwrap_err().kind(), Kind::Checksum);
        }
        for kind in KINDS {
            for len in [0, 1, 39, 40, 143, 144, 151, 152, 183, 184, 200] {
                assert_eq!(verify(kind, &VERIFIER, &vec![0; len]).unwrap_err().kind(), Kind::Checksum);
                let mut block: Vec<u8> = std::iter::repeat_n(MAGIC.to_le_bytes(), 26).flatten().take(len).collect();
                assert!(verify(kind, &VERIFIER, &block).is_err());
                let _ = seal(kind, Endian::Big, &VERIFIER, &mut block);
            }
        }
    }
}
