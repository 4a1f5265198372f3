//! Making block pointers.

use zerocopy::little_endian::U64;

use super::{BLOCK_SIZE_MIN, BlkPtr, BlockShape, Dva, LITTLE_ENDIAN};

use crate::ids::Txg;

/// That of blocks in the dedup table.
const DEDUP: u64 = 1 << 62;
/// That of blocks that are encrypted, or have such below them.
const CRYPT: u64 = 1 << 61;

/// What an encrypted block was sealed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// From this and the set's key comes the key of the block.
    pub salt: u64,
    /// The initialisation vector: its first 8 bytes.
    pub iv1: u64,
    /// Its last 4 bytes.
    pub iv2: u32,
    /// What the encrypted bytes authenticate to.
    pub mac: [u64; 2],
}

/// Makes block pointers: nothing else does.
#[derive(Clone, Copy, Debug)]
pub struct BlkPtrBuilder {
    shape: BlockShape,
    birth: Txg,
    dvas: [Dva; 3],
    checksum: [u64; 4],
    physical_birth: Txg,
    fill: u64,
    flags: u64,
    seal: Option<Seal>,
}

impl BlkPtrBuilder {
    /// For a block that is written in group `txg`.
    pub fn new(shape: BlockShape, txg: Txg) -> BlkPtrBuilder {
        BlkPtrBuilder {
            shape,
            birth: txg,
            dvas: [Dva::EMPTY; 3],
            checksum: [0; 4],
            physical_birth: Txg::ZERO,
            fill: 0,
            flags: 0,
            seal: None,
        }
    }

    /// It is at these addresses: one to three copies.
    pub fn at(mut self, dvas: &[Dva]) -> BlkPtrBuilder {
        self.dvas[..dvas.len()].copy_from_slice(dvas);
        self
    }

    /// Its bytes sum to that.
    pub fn checksum(self, checksum: [u64; 4]) -> BlkPtrBuilder {
        BlkPtrBuilder { checksum, ..self }
    }

    /// So many blocks, or dnodes, are below it.
    pub fn fill(self, fill: u64) -> BlkPtrBuilder {
        BlkPtrBuilder { fill, ..self }
    }

    /// Its bytes were allocated in another group than the pointer was made in.
    pub fn allocated_in(self, txg: Txg) -> BlkPtrBuilder {
        BlkPtrBuilder { physical_birth: if txg == self.birth { Txg::ZERO } else { txg }, ..self }
    }

    /// It is in the dedup table.
    pub fn dedup(self) -> BlkPtrBuilder {
        BlkPtrBuilder { flags: self.flags | DEDUP, ..self }
    }

    /// It is encrypted or authenticated, or blocks below it are.
    pub fn crypt(self) -> BlkPtrBuilder {
        BlkPtrBuilder { flags: self.flags | CRYPT, ..self }
    }

    /// Its contents are encrypted. It has no third copy then, and half of its checksum.
    pub fn sealed(self, seal: Seal) -> BlkPtrBuilder {
        BlkPtrBuilder { seal: Some(seal), ..self.crypt() }
    }

    /// The pointer to the block. Panics if a size is no multiple of 512 bytes or too large.
    pub fn build(self) -> BlkPtr {
        let mut bp = BlkPtr {
            dvas: self.dvas,
            prop: (self.shape.prop() | self.flags).into(),
            physical_birth: self.physical_birth.get().into(),
            birth: self.birth.get().into(),
            fill: self.fill.into(),
            checksum: self.checksum.map(U64::new),
            ..BlkPtr::HOLE
        };
        if let Some(seal) = self.seal {
            bp.dvas[2] = Dva::from_words([seal.salt, seal.iv1]);
            bp.fill = (u64::from(seal.iv2) << 32 | self.fill & 0xffff_ffff).into();
            bp.checksum[2..].copy_from_slice(&seal.mac.map(U64::new));
        }
        bp
    }

    /// A pointer that carries the block: `payload` is at most 112 bytes that decompress to `lsize`.
    pub fn embed(self, payload: &[u8]) -> BlkPtr {
        assert!((1..=BlkPtr::EMBEDDED_SIZE_MAX).contains(&payload.len()), "{} bytes embedded", payload.len());
        let BlockShape { lsize, compress, .. } = self.shape;
        let sizes = (payload.len() as u64 - 1) << 25 | (lsize - 1);
        let prop = LITTLE_ENDIAN | self.shape.type_and_level() | 1 << 39 | u64::from(compress) << 32 | sizes;
        let mut bytes = [0; BlkPtr::SIZE];
        let mut rest = payload;
        for range in [0..48, 56..80, 88..BlkPtr::SIZE] {
            let (part, tail) = rest.split_at(rest.len().min(range.len()));
            bytes[range.start..range.start + part.len()].copy_from_slice(part);
            rest = tail;
        }
        let mut bp = BlkPtr::parse(&bytes).expect("128 bytes");
        (bp.prop, bp.birth) = (prop.into(), self.birth.get().into());
        bp
    }

    /// A hole where the block was until its group, so that an incremental send knows since when.
    pub fn hole(self) -> BlkPtr {
        let shape = BlockShape { psize: BLOCK_SIZE_MIN, compress: 0, checksum: 0, ..self.shape };
        BlkPtr { prop: (shape.prop() & !LITTLE_ENDIAN).into(), birth: self.birth.get().into(), ..BlkPtr::HOLE }
    }
}

#[cfg(test)]
mod tests {
    use base::Endian;

    use crate::object_type::ObjectType;

    use super::*;
    use crate::ids::VdevNumber;

    #[test]
    fn what_is_built_reads_back() {
        let object_type = ObjectType::PLAIN_FILE_CONTENTS;
        let shape = BlockShape { lsize: 128 << 10, psize: 4096, compress: 15, checksum: 7, object_type, level: 0 };
        let dvas =
            [Dva::new(VdevNumber::new(1), 1 << 20, 4096, false), Dva::new(VdevNumber::new(2), 1 << 21, 8192, false)];
        let builder = BlkPtrBuilder::new(shape, Txg::new(77)).at(&dvas).checksum([1, 2, 3, 4]);
        let bp = builder.build().with_fill(9);
        assert_eq!(bp, builder.fill(9).allocated_in(Txg::new(77)).build());
        assert_eq!((bp.lsize(), bp.psize(), bp.asize(), bp.copies().count()), (128 << 10, 4096, 12288, 2));
        assert_eq!((bp.compress(), bp.checksum_kind(), bp.object_type(), bp.level()), (15, 7, object_type, 0));
        assert_eq!(
            (bp.birth(), bp.physical_birth(), bp.fill(), bp.checksum()),
            (Txg::new(77), Txg::new(77), 9, [1, 2, 3, 4])
        );
        assert_eq!(bp.endian(), Endian::Little);
        for len in [1, 47, 48, 49, 72, 73, 112] {
            let payload: Vec<u8> = (1..=len).collect();
            let bp = BlkPtrBuilder::new(BlockShape { psize: 512, ..shape }, Txg::new(5)).embed(&payload);
            assert_eq!((bp.payload(), bp.lsize(), bp.birth(), bp.compress()), (payload, 128 << 10, Txg::new(5), 15));
            assert!(bp.is_embedded() && !bp.is_hole() && bp.object_type() == object_type);
        }
        let hole = BlkPtrBuilder::new(BlockShape::of_hole(16 << 10, object_type, 1), Txg::new(6)).hole();
        assert!(hole.is_hole() && (hole.lsize(), hole.birth(), hole.level()) == (16 << 10, Txg::new(6), 1));
        let old = builder.allocated_in(Txg::new(70)).dedup().build();
        assert_eq!(
            (old.birth(), old.physical_birth(), old.is_dedup(), bp.is_dedup()),
            (Txg::new(77), Txg::new(70), true, false)
        );
        assert_eq!(
            (old.reference_birth(), bp.uses_crypt(), builder.crypt().build().is_encrypted()),
            (Txg::new(77), false, true)
        );
        let seal = Seal { salt: 5, iv1: 6, iv2: 7, mac: [8, 9] };
        let sealed = builder.fill(3).sealed(seal).build();
        assert_eq!((sealed.is_encrypted(), sealed.copies().count(), sealed.asize()), (true, 2, 12288));
        assert_eq!((sealed.dvas()[2].words(), sealed.iv2(), sealed.fill()), ([5, 6], 7, 3));
        assert_eq!((sealed.with_fill(4).fill(), sealed.with_fill(4).iv2()), (4, 7));
        assert_eq!(sealed.checksum(), [1, 2, 8, 9]);
    }
}
