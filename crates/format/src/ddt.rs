//! Entries of dedup tables: blocks that several pointers may refer to, by their checksums.
//!
//! ```text
//!   key     checksum (4 words) | 0 .. |X|comp (7)| psize (16) | lsize (16) |     sizes in sectors, less one
//!   value   4 x (3 DVAs | references | birth)         of extra copies, and of blocks with 1, 2 and 3 copies
//! ```
//!
//! X: encrypted; then the third DVA is none. The value is packed in its table. Tables of the feature fast_dedup have
//! values of another form, with one block.
//!
//! Source: OpenZFS's behaviour, and zdb's listing of tables.

use base::{Reader, Result};

use crate::blkptr::{BlkPtr, BlkPtrBuilder, BlockShape, Dva, SECTOR_SHIFT, Seal};
use crate::ids::Txg;
use crate::object_type::ObjectType;

/// Blocks in a value: that of extra copies, which only old versions made, and one for each number of copies.
pub const BLOCKS: usize = 4;
/// The block of extra copies.
pub const EXTRA: usize = 0;
/// Bytes of a value that is not packed.
pub const VALUE_SIZE: usize = BLOCKS * DdtPhys::SIZE;

const DVAS: usize = 3;
const CRYPT_SHIFT: u32 = 39;

/// The key of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DdtKey {
    /// Checksum of the block.
    pub checksum: [u64; 4],
    prop: u64,
}

impl DdtKey {
    /// That of the block that a pointer refers to.
    pub fn of(bp: &BlkPtr) -> DdtKey {
        let sectors = |bytes: u64| (bytes >> SECTOR_SHIFT).wrapping_sub(1) & 0xffff;
        let kinds = u64::from(bp.uses_crypt()) << CRYPT_SHIFT | u64::from(bp.compress() & 0x7f) << 32;
        DdtKey { checksum: bp.checksum(), prop: kinds | sectors(bp.psize()) << 16 | sectors(bp.lsize()) }
    }

    /// From the words of a table.
    pub fn from_words(words: [u64; 5]) -> DdtKey {
        let [a, b, c, d, prop] = words;
        DdtKey { checksum: [a, b, c, d], prop }
    }

    /// The words of a table.
    pub fn words(&self) -> [u64; 5] {
        let [a, b, c, d] = self.checksum;
        [a, b, c, d, self.prop]
    }

    /// Bytes of the block after decompression.
    pub fn lsize(&self) -> u64 {
        ((self.prop & 0xffff) + 1) << SECTOR_SHIFT
    }

    /// Bytes of the block before.
    pub fn psize(&self) -> u64 {
        ((self.prop >> 16 & 0xffff) + 1) << SECTOR_SHIFT
    }

    /// The addresses of a block in use.
    pub fn dvas<'a>(&self, block: &'a DdtPhys) -> impl Iterator<Item = &'a Dva> {
        let count = if self.prop >> CRYPT_SHIFT & 1 == 1 { DVAS - 1 } else { DVAS };
        block.dvas[..count].iter().filter(|dva| dva.asize() != 0)
    }

    /// A pointer to a block of which only its entry is known; it says nothing of the dedup table.
    pub fn pointer(&self, block: &DdtPhys) -> BlkPtr {
        self.builder(block, 0).build()
    }

    /// A pointer to a block as its table, that of a checksum by number, lets one be made. Of an encrypted block, what it
    /// was sealed with is where its third address would be.
    pub fn listed(&self, block: &DdtPhys, checksum: u8) -> BlkPtr {
        let builder = self.builder(block, checksum).fill(1).dedup();
        if self.prop >> CRYPT_SHIFT & 1 == 0 {
            return builder.build();
        }
        let ([salt, iv1], [.., a, b]) = (block.dvas[DVAS - 1].words(), self.checksum);
        builder.sealed(Seal { salt, iv1, iv2: 0, mac: [a, b] }).build()
    }

    fn builder(&self, block: &DdtPhys, checksum: u8) -> BlkPtrBuilder {
        let shape = BlockShape {
            lsize: self.lsize(),
            psize: self.psize(),
            compress: (self.prop >> 32 & 0x7f) as u8,
            checksum,
            object_type: ObjectType::DEDUP,
            level: 0,
        };
        let dvas: Vec<Dva> = self.dvas(block).copied().collect();
        let builder = BlkPtrBuilder::new(shape, block.birth).at(&dvas).checksum(self.checksum);
        if self.prop >> CRYPT_SHIFT & 1 == 1 { builder.crypt() } else { builder }
    }
}

/// A block of an entry; one that was never born is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DdtPhys {
    /// Where it is.
    pub dvas: [Dva; DVAS],
    /// Number of pointers that refer to it.
    pub references: u64,
    /// Transaction group in which it was written.
    pub birth: Txg,
}

impl DdtPhys {
    /// Bytes of it in a value.
    pub const SIZE: usize = 64;
    /// No block.
    pub const NONE: DdtPhys = DdtPhys { dvas: [Dva::EMPTY; DVAS], references: 0, birth: Txg::ZERO };

    /// From a value.
    pub fn read(r: &mut Reader<'_>) -> Result<DdtPhys> {
        let mut block = DdtPhys::NONE;
        for dva in &mut block.dvas {
            *dva = Dva::from_words([r.u64()?, r.u64()?]);
        }
        block.references = r.u64()?;
        block.birth = Txg::new(r.u64()?);
        Ok(block)
    }

    /// The bytes of it in a little-endian value.
    pub fn to_bytes(&self) -> [u8; DdtPhys::SIZE] {
        let words = self.dvas.iter().flat_map(Dva::words).chain([self.references, self.birth.get()]);
        let mut out = [0; DdtPhys::SIZE];
        out.chunks_exact_mut(8).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
        out
    }

    /// Whether there is no block.
    pub fn is_none(&self) -> bool {
        self.birth == Txg::ZERO
    }

    /// Whether a pointer refers to this block.
    pub fn is_that_of(&self, bp: &BlkPtr) -> bool {
        !self.is_none() && self.dvas[0] == bp.dvas()[0] && self.birth == bp.physical_birth()
    }
}

#[cfg(test)]
mod tests {
    use base::Endian;

    use super::*;
    use crate::ids::VdevNumber;

    #[test]
    fn a_pointer_and_its_key() {
        let words = [1, 2, 3, 4, 15 << 32 | 7 << 16 | 31];
        let key = DdtKey::from_words(words);
        assert_eq!((key.lsize(), key.psize(), key.words()), (16 << 10, 4 << 10, words));
        let dva = Dva::new(VdevNumber::new(3), 77 << 9, 4096, false);
        let block = DdtPhys { dvas: [dva, dva, DdtPhys::NONE.dvas[2]], references: 5, birth: Txg::new(9) };
        let bp = key.pointer(&block);
        assert_eq!((bp.psize(), bp.lsize(), bp.birth(), bp.checksum()), (4096, 16 << 10, Txg::new(9), [1, 2, 3, 4]));
        assert_eq!((DdtKey::of(&bp), bp.copies().count(), bp.is_dedup()), (key, 2, false));
        let listed = key.listed(&block, 8);
        assert_eq!((DdtKey::of(&listed), listed.checksum_kind(), listed.is_dedup()), (key, 8, true));
        assert!(block.is_that_of(&bp) && !DdtPhys::NONE.is_that_of(&BlkPtr::HOLE));
        let bytes = block.to_bytes();
        assert_eq!(DdtPhys::read(&mut Reader::new(&bytes, Endian::Little)).unwrap(), block);
        // an encrypted block's third address is none
        let key = DdtKey::from_words([0, 0, 0, 0, 1 << CRYPT_SHIFT]);
        assert_eq!(key.dvas(&DdtPhys { dvas: [dva; 3], ..block }).count(), 2);
        assert!(key.pointer(&block).uses_crypt());
        let sealed = key.listed(&DdtPhys { dvas: [dva; 3], ..block }, 8);
        assert_eq!((sealed.copies().count(), sealed.dvas()[2], DdtKey::of(&sealed)), (2, dva, key));
    }
}
