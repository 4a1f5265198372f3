//! Dnodes: the head of an object, 512 bytes to 16 KiB.
//!
//! ```text
//!    0  type u8 | indirect shift u8 | levels u8 | block pointers u8 | bonus type u8 | checksum u8 | compress u8 | flags u8
//!    8  data block sectors u16 | bonus length u16 | extra slots u8 | 0 ...
//!   16  last block id u64
//!   24  used u64 (bytes with flag USED_BYTES, else sectors)
//!   64  block pointers (1 to 3), then the bonus buffer; with flag SPILL the last 128 bytes are the
//!       pointer to the spill block
//! ```
//!
//! Source: the published ZFS on-disk specification, chapter 3; large dnodes by OpenZFS's feature of that name.

use base::{Endian, Error, Reader, Result};
use zerocopy::IntoBytes;

use crate::blkptr::{BLOCK_SIZE_MAX, BlkPtr, SECTOR_SHIFT};
use crate::object_type::ObjectType;

/// Bytes of a slot, and of the smallest dnode.
pub const SLOT_SIZE: usize = 512;
/// Bytes of the largest dnode.
pub const DNODE_SIZE_MAX: usize = 16 << 10;
/// Bytes before the block pointers.
const CORE_SIZE: usize = 64;
/// Most levels a dnode can have: 2^64 bytes of 512-byte blocks, 8 pointers (1 KiB) an indirect block.
const LEVELS_MAX: u8 = 20;
const INDIRECT_SHIFT_MIN: u8 = 10;
const INDIRECT_SHIFT_MAX: u8 = 24;
const INDIRECT_SHIFT_USUAL: u8 = 17;

/// A dnode whose fields have been checked.
#[derive(Clone, Debug)]
pub struct Dnode {
    /// Type of the object.
    pub object_type: ObjectType,
    /// Type of what is in `bonus`.
    pub bonus_type: ObjectType,
    /// log2 of the size of an indirect block in bytes.
    pub indirect_shift: u8,
    /// Levels of blocks; 1 means that the dnode points to data.
    pub levels: u8,
    /// Checksum number that new blocks would get.
    pub checksum: u8,
    /// Compression number that new blocks would get.
    pub compress: u8,
    /// The `FLAG_` bits.
    pub flags: u8,
    /// Bytes of a data block.
    pub block_size: u64,
    /// Number of the last data block; 0 also if there is none.
    pub block_max: u64,
    /// Bytes that the object takes on disk.
    pub used_bytes: u64,
    /// Slots of 512 bytes that the dnode takes.
    pub slots: usize,
    /// Pointers to the blocks of the highest level, 1 to 3.
    pub blkptrs: Vec<BlkPtr>,
    /// Contents of the bonus buffer.
    pub bonus: Vec<u8>,
    /// Pointer to the spill block, which continues the bonus buffer.
    pub spill: Option<BlkPtr>,
}

impl Dnode {
    /// `used` counts bytes, not sectors.
    pub const FLAG_USED_BYTES: u8 = 1 << 0;
    /// Space is charged to users.
    pub const FLAG_USERUSED_ACCOUNTED: u8 = 1 << 1;
    /// The last 128 bytes point to a spill block.
    pub const FLAG_SPILL: u8 = 1 << 2;
    /// Objects are charged to users.
    pub const FLAG_USEROBJUSED_ACCOUNTED: u8 = 1 << 3;

    /// The dnode at the start of `bytes`, which may go on behind it; `None` if the slot is free.
    pub fn parse(bytes: &[u8]) -> Result<Option<Dnode>> {
        let mut r = Reader::new(bytes, Endian::Little);
        let object_type = ObjectType(r.u8()?);
        if object_type == ObjectType::NONE {
            return Ok(None);
        }
        let (indirect_shift, levels, pointers) = (r.u8()?, r.u8()?, usize::from(r.u8()?));
        let (bonus_type, checksum, compress, flags) = (ObjectType(r.u8()?), r.u8()?, r.u8()?, r.u8()?);
        let (block_size, bonus_size) = (u64::from(r.u16()?) << SECTOR_SHIFT, usize::from(r.u16()?));
        let slots = usize::from(r.u8()?) + 1;
        r.take(3)?;
        let (block_max, used) = (r.u64()?, r.u64()?);

        let bad = |what: String| Err(Error::corrupt(format!("dnode: {what}")));
        if !object_type.is_valid() {
            return bad(format!("object type {} is unknown", object_type.0));
        }
        if !(1..=3).contains(&pointers) {
            return bad(format!("{pointers} block pointers"));
        }
        if !(1..=LEVELS_MAX).contains(&levels) {
            return bad(format!("{levels} levels"));
        }
        let is_possible = (INDIRECT_SHIFT_MIN..=INDIRECT_SHIFT_MAX).contains(&indirect_shift);
        if levels > 1 && !is_possible {
            return bad(format!("indirect blocks of 2^{indirect_shift} bytes"));
        }
        // those that it has not got yet will be as others are
        let indirect_shift = if is_possible { indirect_shift } else { INDIRECT_SHIFT_USUAL };
        if block_size > BLOCK_SIZE_MAX {
            return bad(format!("data blocks of {block_size} bytes"));
        }
        let size = slots * SLOT_SIZE;
        let Some(bytes) = bytes.get(..size).filter(|_| size <= DNODE_SIZE_MAX) else {
            return bad(format!("{slots} slots, {} bytes there", bytes.len()));
        };
        let has_spill = flags & Dnode::FLAG_SPILL != 0;
        let room = size - if has_spill { BlkPtr::SIZE } else { 0 };
        // Long redaction lists are objects with three pointers and, over the last of them, that to a spill block.
        let pointers_shift = u32::from(indirect_shift).saturating_sub(BlkPtr::SIZE.trailing_zeros());
        let reach = block_max.checked_shr(u32::from(levels - 1) * pointers_shift).unwrap_or(0);
        let fitting = (room - CORE_SIZE) / BlkPtr::SIZE;
        let pointers = if bonus_size == 0 && reach < fitting as u64 { pointers.min(fitting) } else { pointers };
        let pointers_end = CORE_SIZE + pointers * BlkPtr::SIZE;
        let bonus_end = pointers_end + bonus_size;
        if bonus_end > room {
            return bad(format!("a bonus buffer of {bonus_size} bytes does not fit in {slots} slots"));
        }
        Ok(Some(Dnode {
            object_type,
            bonus_type,
            indirect_shift,
            levels,
            checksum,
            compress,
            flags,
            block_size,
            block_max,
            used_bytes: if flags & Dnode::FLAG_USED_BYTES != 0 { used } else { used.saturating_mul(512) },
            slots,
            blkptrs: BlkPtr::slice(&bytes[CORE_SIZE..pointers_end]).to_vec(),
            bonus: bytes[pointers_end..bonus_end].to_vec(),
            spill: if has_spill { BlkPtr::parse(&bytes[size - BlkPtr::SIZE..]) } else { None },
        }))
    }

    /// A dnode of `slots` slots for an object without blocks, with an empty bonus buffer.
    ///
    /// `pointers` says how many block pointers it has; the bonus buffer is what they leave.
    pub fn new(object_type: ObjectType, block_size: u64, indirect_shift: u8, pointers: usize, slots: usize) -> Dnode {
        Dnode {
            object_type,
            bonus_type: ObjectType::NONE,
            indirect_shift,
            levels: 1,
            checksum: 0,
            compress: 0,
            flags: Dnode::FLAG_USED_BYTES,
            block_size,
            block_max: 0,
            used_bytes: 0,
            slots,
            blkptrs: vec![BlkPtr::HOLE; pointers],
            bonus: Vec::new(),
            spill: None,
        }
    }

    /// Bytes that the bonus buffer may have, with a spill block's pointer behind it or without.
    pub fn bonus_size_max(&self, with_spill: bool) -> usize {
        let taken = CORE_SIZE + self.blkptrs.len() * BlkPtr::SIZE + if with_spill { BlkPtr::SIZE } else { 0 };
        self.slots * SLOT_SIZE - taken
    }

    /// Writes the dnode to its slots: `out` is exactly as long as these. Panics if it does not fit.
    pub fn write(&self, out: &mut [u8]) {
        assert_eq!(out.len(), self.slots * SLOT_SIZE, "room for a dnode of {} slots", self.slots);
        assert!(self.bonus.len() <= self.bonus_size_max(self.spill.is_some()), "bonus of {} bytes", self.bonus.len());
        out.fill(0);
        let flags = (self.flags & !Dnode::FLAG_SPILL) | if self.spill.is_some() { Dnode::FLAG_SPILL } else { 0 };
        let (kind, bonus_kind, pointers) = (self.object_type.0, self.bonus_type.0, self.blkptrs.len() as u8);
        out[..8].copy_from_slice(&[
            kind,
            self.indirect_shift,
            self.levels,
            pointers,
            bonus_kind,
            self.checksum,
            self.compress,
            flags,
        ]);
        out[8..10].copy_from_slice(&((self.block_size >> SECTOR_SHIFT) as u16).to_le_bytes());
        out[10..12].copy_from_slice(&(self.bonus.len() as u16).to_le_bytes());
        out[12] = (self.slots - 1) as u8;
        out[16..24].copy_from_slice(&self.block_max.to_le_bytes());
        let used = match self.flags & Dnode::FLAG_USED_BYTES {
            0 => self.used_bytes >> SECTOR_SHIFT,
            _ => self.used_bytes,
        };
        out[24..32].copy_from_slice(&used.to_le_bytes());
        let mut at = CORE_SIZE;
        for bp in &self.blkptrs {
            out[at..at + BlkPtr::SIZE].copy_from_slice(bp.as_bytes());
            at += BlkPtr::SIZE;
        }
        out[at..at + self.bonus.len()].copy_from_slice(&self.bonus);
        if let Some(spill) = &self.spill {
            let end = out.len();
            out[end - BlkPtr::SIZE..].copy_from_slice(spill.as_bytes());
        }
    }

    /// How many slots the dnode at the start of `bytes` takes, or 1 if that slot is free, without looking
    /// at anything else in it.
    pub fn slots_at(bytes: &[u8]) -> Result<usize> {
        match (bytes.first(), bytes.get(12)) {
            (Some(0), _) => Ok(1),
            (Some(_), Some(&extra)) if (usize::from(extra) + 1) * SLOT_SIZE <= DNODE_SIZE_MAX => {
                Ok(usize::from(extra) + 1)
            }
            (_, extra) => Err(Error::corrupt(format!("dnode: {extra:?} extra slots"))),
        }
    }

    /// log2 of the number of block pointers in an indirect block.
    pub fn pointers_shift(&self) -> u32 {
        u32::from(self.indirect_shift) - BlkPtr::SIZE.trailing_zeros()
    }

    /// Bytes up to the end of the last data block.
    pub fn size_max(&self) -> u64 {
        self.block_size.saturating_mul(self.block_max.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use crate::ids::Txg;

    use super::*;

    fn sample() -> Vec<u8> {
        let mut bytes = vec![0; 1024];
        bytes[..12].copy_from_slice(&[19, 17, 2, 1, 44, 7, 2, 1 | 4, 0, 1, 200, 0]);
        bytes[12] = 1;
        bytes[16] = 9;
        bytes[24..26].copy_from_slice(&[0, 2]);
        bytes[64 + 128] = 0xab;
        bytes[1024 - 128 + 80] = 5;
        bytes
    }

    #[test]
    fn reads_every_field() {
        let d = Dnode::parse(&sample()).unwrap().unwrap();
        assert_eq!((d.object_type, d.bonus_type), (ObjectType::PLAIN_FILE_CONTENTS, ObjectType::SA));
        assert_eq!((d.levels, d.block_size, d.block_max, d.used_bytes, d.slots), (2, 128 << 10, 9, 512, 2));
        assert_eq!((d.bonus.len(), d.bonus[0], d.blkptrs.len()), (200, 0xab, 1));
        assert_eq!(d.spill.unwrap().birth(), Txg::new(5));
        assert_eq!(d.pointers_shift(), 10);
        assert_eq!(Dnode::slots_at(&sample()).unwrap(), 2);
    }

    #[test]
    fn a_spill_block_over_the_last_pointer() {
        let mut bytes = vec![0; 512];
        bytes[..8].copy_from_slice(&[0xc4, 17, 1, 3, 0xc4, 0, 0, 1 | 4]);
        bytes[8] = 1;
        bytes[512 - 128 + 80] = 5;
        let dnode = Dnode::parse(&bytes).unwrap().unwrap();
        assert_eq!((dnode.blkptrs.len(), dnode.bonus.len(), dnode.spill.unwrap().birth()), (2, 0, Txg::new(5)));
        // with blocks that need the third pointer, or a bonus buffer, it is nonsense
        for (at, byte) in [(16, 2), (10, 1)] {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            assert!(Dnode::parse(&bytes).is_err());
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let mut bytes = sample();
        let parsed = Dnode::parse(&bytes).unwrap().unwrap();
        let expect = bytes.clone();
        bytes.fill(0xee);
        parsed.write(&mut bytes);
        assert_eq!(bytes, expect);
        let new = Dnode::new(ObjectType::SA, 512, 17, 1, 1);
        assert_eq!((new.bonus_size_max(false), new.bonus_size_max(true)), (320, 192));
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(Dnode::parse(&[0; 512]).unwrap().is_none());
        assert_eq!(Dnode::slots_at(&[0; 512]).unwrap(), 1);
        assert!(Dnode::slots_at(&[1; 12]).is_err() && Dnode::slots_at(&[32; 13]).is_err());
        assert!(Dnode::parse(&sample()[..512]).is_err());
        for (at, byte) in [(0, 70), (1, 9), (1, 64), (2, 0), (2, 40), (3, 0), (3, 4), (11, 0xff), (9, 0xff), (12, 200)]
        {
            let mut bytes = sample();
            bytes[at] = byte;
            assert!(Dnode::parse(&bytes).is_err(), "byte {at} = {byte}");
        }
    }
}
