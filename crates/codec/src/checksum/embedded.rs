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
pub struct Sums {
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
pub fn inspect(kind: Checksum, verifier: &Sum, block: &[u8]) -> Result<Sums> {
    let Shape { endian, tail_at, len } = Shape::of(kind, None, block)?;
    let (head, rest) = block[..len].split_at(tail_at + 8);
    let (stored, rest) = rest.split_at(32);
    let stored = words(endian, stored.first_chunk().expect("split off as 32 bytes"));
    let computed = sum(kind, endian, [head, &to_bytes(endian, verifier), rest]);
    Ok(Sums { endian, stored, computed })
}

/// Completes `block` as a machine of byte order `endian` would: writes the magic number and the sum
/// for `verifier`, which it returns too.
///
/// A zilog2 block's used length must be in its place. Errors: `Invalid` if the block is too short
/// for its kind or for that length. Panics if `kind` is not embedded.
pub fn seal(kind: Checksum, endian: Endian, verifier: &Sum, block: &mut [u8]) -> Result<Sum> {
    let Shape { tail_at, len, .. } =
        Shape::of(kind, Some(endian), block).map_err(|e| Error::new(Kind::Invalid, "no room").with_source(e))?;
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
struct Shape {
    endian: Endian,
    tail_at: usize,
    /// How much is summed; the tail is within.
    len: usize,
}

impl Shape {
    /// The shape of a block that is in byte order `endian`, or else tells its byte order.
    fn of(kind: Checksum, endian: Option<Endian>, block: &[u8]) -> Result<Shape> {
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
        Ok(Shape { endian, tail_at, len })
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
