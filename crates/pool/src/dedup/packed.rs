//! Values of dedup tables as they are stored: a byte that tells how, and the packed value.
//!
//! ```text
//!   | little-endian (1) compression (7) | 4 blocks of an entry, or of feature fast_dedup: one, and when it changed |
//! ```
//!
//! When: in seconds since 1970; it is what `zpool ddtprune` goes by.
//!
//! Source: OpenZFS's behaviour, and its description of fast dedup.

use base::{Endian, Error, Reader, Result};
use codec::compress::{self, Compress};
use format::ddt::{BLOCKS, DdtPhys, VALUE_SIZE};

/// Bytes of a value of feature fast_dedup.
const FLAT_SIZE: usize = 72;
const LITTLE_ENDIAN: u8 = 0x80;
/// Which of the blocks of an entry the one of feature fast_dedup stands for.
pub(crate) const FLAT_BLOCK: usize = 1;

/// The form of a table's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DdtForm {
    /// A block for each number of copies.
    Traditional,
    /// One block, and when the entry changed.
    Flat,
}

impl DdtForm {
    /// Which of an entry's blocks is that of so many copies.
    pub(crate) fn block_of(self, copies: u8) -> usize {
        match self {
            DdtForm::Traditional => usize::from(copies),
            DdtForm::Flat => FLAT_BLOCK,
        }
    }
}

/// The blocks of a stored value. One of feature fast_dedup has one block, whose number of copies it does not tell: it
/// stands for one with a single copy.
pub(crate) fn unpack(stored: &[u8]) -> Result<[DdtPhys; BLOCKS]> {
    let (value, endian) = open(stored)?;
    blocks_of(&value, endian)
}

/// A stored value that is not packed any more, and its byte order.
fn open(stored: &[u8]) -> Result<(Vec<u8>, Endian)> {
    let (&form, packed) = stored.split_first().ok_or_else(|| Error::corrupt("empty entry of a dedup table"))?;
    let endian = if form & LITTLE_ENDIAN != 0 { Endian::Little } else { Endian::Big };
    let kind = Compress::from_u8(form & !LITTLE_ENDIAN).filter(|kind| kind.is_concrete());
    let kind = kind.ok_or_else(|| Error::corrupt(format!("entry of a dedup table with compression {form:#x}")))?;
    let mut bytes = vec![0; VALUE_SIZE];
    // Nothing tells which of the two forms it is but how much there is.
    let is_flat = compress::decompress(kind, packed, &mut bytes).is_err();
    if is_flat {
        bytes.truncate(FLAT_SIZE);
        compress::decompress(kind, packed, &mut bytes)?;
    }
    Ok((bytes, endian))
}

/// The blocks of a value of either form that is not packed.
pub(crate) fn blocks_of(value: &[u8], endian: Endian) -> Result<[DdtPhys; BLOCKS]> {
    let mut blocks = [DdtPhys::NONE; BLOCKS];
    let mut reader = Reader::new(value, endian);
    match value.len() {
        FLAT_SIZE => blocks[FLAT_BLOCK] = DdtPhys::read(&mut reader)?,
        VALUE_SIZE => {
            for block in &mut blocks {
                *block = DdtPhys::read(&mut reader)?;
            }
        }
        len => return Err(Error::corrupt(format!("value of a dedup table of {len} bytes"))),
    }
    Ok(blocks)
}

/// When the entry last changed that has this value, which is not packed; 0 if that is not known.
pub(crate) fn changed_s(value: &[u8], endian: Endian) -> u64 {
    let word = value.get(DdtPhys::SIZE..FLAT_SIZE).filter(|_| value.len() == FLAT_SIZE);
    word.and_then(|word| endian.u64(word)).unwrap_or(0)
}

/// When the entry last changed that has this stored value of feature fast_dedup.
pub(crate) fn changed_s_of_stored(stored: &[u8]) -> Result<u64> {
    let (value, endian) = open(stored)?;
    Ok(changed_s(&value, endian))
}

/// A value to be stored: `changed_s` is when the entry has changed.
pub(crate) fn pack(blocks: &[DdtPhys; BLOCKS], form: DdtForm, changed_s: u64) -> Vec<u8> {
    let bytes: Vec<u8> = match form {
        DdtForm::Traditional => blocks.iter().flat_map(DdtPhys::to_bytes).collect(),
        DdtForm::Flat => [&blocks[FLAT_BLOCK].to_bytes()[..], &changed_s.to_le_bytes()].concat(),
    };
    let mut stored = vec![0; 1 + bytes.len()];
    let (kind, len) = match compress::compress(Compress::Zle, 0, &bytes, &mut stored[1..]) {
        Some(len) if len < bytes.len() => (Compress::Zle, len),
        _ => {
            stored[1..].copy_from_slice(&bytes);
            (Compress::Off, bytes.len())
        }
    };
    stored[0] = LITTLE_ENDIAN | kind as u8;
    stored.truncate(1 + len);
    stored
}

#[cfg(test)]
mod tests {
    use format::blkptr::Dva;

    use format::ids::{Txg, VdevNumber};

    use super::*;

    fn stored(endian: Endian, words: &[u64]) -> Vec<u8> {
        let (form, to_bytes): (u8, fn(u64) -> [u8; 8]) = match endian {
            Endian::Little => (LITTLE_ENDIAN, u64::to_le_bytes),
            Endian::Big => (0, u64::to_be_bytes),
        };
        [vec![form | Compress::Off as u8], words.iter().flat_map(|&word| to_bytes(word)).collect()].concat()
    }

    #[test]
    fn both_forms_and_both_byte_orders() {
        for endian in [Endian::Little, Endian::Big] {
            let mut words = [0u64; 32];
            words[8..16].copy_from_slice(&[3 << 32 | 8, 77, 0, 0, 0, 0, 5, 9]);
            let four = unpack(&stored(endian, &words)).unwrap();
            let one = DdtPhys {
                dvas: [Dva::new(VdevNumber::new(3), 77 << 9, 4096, false), Dva::EMPTY, Dva::EMPTY],
                references: 5,
                birth: Txg::new(9),
            };
            assert_eq!(four, [DdtPhys::NONE, one, DdtPhys::NONE, DdtPhys::NONE]);
            assert_eq!(unpack(&stored(endian, &words[8..17])).unwrap(), four);
            for form in [DdtForm::Traditional, DdtForm::Flat] {
                let stored = pack(&four, form, 77);
                assert_eq!(unpack(&stored).unwrap(), four);
                assert_eq!(changed_s_of_stored(&stored).unwrap(), if form == DdtForm::Flat { 77 } else { 0 });
            }
        }
        assert!(unpack(&[]).is_err() && unpack(&[0x82]).is_err() && unpack(&[0xff, 1, 2]).is_err());
    }

    #[test]
    fn what_zle_makes_no_smaller_is_stored_as_it_is() {
        let full = DdtPhys { dvas: [Dva::from_words([u64::MAX; 2]); 3], references: u64::MAX, birth: Txg::MAX };
        let stored = pack(&[full; BLOCKS], DdtForm::Traditional, 0);
        assert_eq!((stored.len(), stored[0]), (1 + VALUE_SIZE, LITTLE_ENDIAN | Compress::Off as u8));
        assert_eq!(unpack(&stored).unwrap(), [full; BLOCKS]);
    }
}
