//! Blocks that several pointers refer to: how many do, by the dedup and clone tables.
//!
//! ```text
//!   dedup table: ZAP, key 5 words           value: packed, first byte | 0x80 little-endian | compression |
//!     checksum (4) | 0 .. X comp psize lsize        as it was first: 4 x (3 DVAs, references, birth), for
//!                                                     extra copies and blocks with 1, 2, 3 copies
//!                                                   later: 3 DVAs, references, birth, when it came
//!   clone table of a vdev: ZAP, key offset  value: further references
//! ```
//!
//! Source: OpenZFS's behaviour, and its description of the features dedup and block_cloning.

use std::collections::{HashMap, HashSet};

use base::{Endian, Error, Reader, Result};
use codec::compress::{self, Compress};
use dmu::zap::{Entry, Name, Zap};
use format::blkptr::{BlkPtr, Dva};
use format::object_type::ObjectType;

use crate::{Pool, object_directory};

/// Bytes of a value as it was first.
const TRADITIONAL_SIZE: usize = 256;
/// Bytes of a later value.
const FLAT_SIZE: usize = 72;
const DVAS: usize = 3;
const CRYPT_BIT: u64 = 1 << 39;
/// Before the name of a vdev's clone table.
const CLONES_PREFIX: &str = "com.fudosecurity:brt:vdev:";

/// Whether a pointer is the last of those that refer to its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reference {
    /// The only one, or the last: the block's bytes are its own.
    Last,
    /// One of several of a deduplicated block, whose tables told of it.
    Shared,
    /// One of several of a cloned block.
    Cloned,
    /// One of several of a deduplicated block that is in no table, or was written since.
    Unlisted,
}

/// What the tables tell, less the pointers found so far.
#[derive(Default)]
pub(super) struct Refs {
    /// Further pointers that are expected, and whether that is the clone table's word.
    further: HashMap<Key, (u64, bool)>,
    /// Deduplicated blocks that were found and are in no table.
    unlisted: HashSet<Key>,
    /// Bytes that dedup saves.
    pub(super) dedup_bytes: u64,
    /// Deduplicated blocks with several pointers.
    pub(super) dedup_blocks: u64,
    /// Extra copies that only the table knows, as pointers made up for them.
    pub(super) ditto: Vec<BlkPtr>,
}

/// Vdev and offset of a block's first copy.
type Key = (u64, u64);

/// One value of a dedup table: addresses and references.
struct Phys {
    dvas: [Dva; DVAS],
    references: u64,
    birth: u64,
}

impl Refs {
    pub(super) fn read(pool: &Pool) -> Result<Refs> {
        let mut refs = Refs::default();
        let mos = pool.mos();
        for row in object_directory(mos)?.entries()? {
            let (name, Some(id)) = (row.name.to_string(), row.value.first_u64()) else { continue };
            if is_shared_table(&name) {
                refs.add_table(&Zap::open(mos.object(id)?)?)?;
            } else if is_folder(&name) {
                for row in Zap::open(mos.object(id)?)?.entries()? {
                    if let (true, Some(id)) = (is_shared_table(&row.name.to_string()), row.value.first_u64()) {
                        refs.add_table(&Zap::open(mos.object(id)?)?)?;
                    }
                }
            } else if let Some(vdev) = name.strip_prefix(CLONES_PREFIX).and_then(|number| number.parse().ok()) {
                let object = mos.object(id)?;
                let mut bonus = Reader::new(object.bonus(), Endian::Little);
                let (table, _size, byte_order) = (bonus.u64()?, bonus.u64()?, bonus.u64()?);
                if table != 0 {
                    let endian = if byte_order == 0 { Endian::Little } else { Endian::Big };
                    refs.add_clones(vdev, &Zap::open(mos.object(table)?)?, endian)?;
                }
            }
        }
        Ok(refs)
    }

    /// Notes a pointer that was found.
    pub(super) fn found(&mut self, bp: &BlkPtr) -> Reference {
        let key = key(&bp.dvas()[0]);
        match self.further.get_mut(&key) {
            Some((0, _)) => Reference::Last,
            Some((further, is_clone)) => {
                *further -= 1;
                if *is_clone { Reference::Cloned } else { Reference::Shared }
            }
            None if bp.is_dedup() && !self.unlisted.insert(key) => Reference::Unlisted,
            None => Reference::Last,
        }
    }

    fn add_table(&mut self, table: &Zap) -> Result<()> {
        let mut result = Ok(());
        table.for_each_from(0, &mut |entry| match self.add_entry(&entry) {
            Ok(()) => std::ops::ControlFlow::Continue(()),
            Err(e) => {
                result = Err(e.at_block(table.bookmark()));
                std::ops::ControlFlow::Break(())
            }
        })?;
        result
    }

    fn add_entry(&mut self, entry: &Entry) -> Result<()> {
        let Name::U64s(words) = &entry.name else { return Err(Error::corrupt("dedup table with names")) };
        let &[a, b, c, d, prop] = &words[..] else { return Err(Error::corrupt("key of a dedup table is not 5 words")) };
        let copies = if prop & CRYPT_BIT != 0 { DVAS - 1 } else { DVAS };
        for (which, phys) in unpack(entry.value.bytes())?.into_iter().enumerate().filter(|(_, phys)| phys.birth != 0) {
            let asize: u64 = phys.dvas[..copies].iter().map(Dva::asize).sum();
            if which == 0 {
                self.ditto.push(pointer(&phys, prop, [a, b, c, d]));
            } else {
                let further = phys.references.saturating_sub(1);
                self.dedup_bytes = self.dedup_bytes.saturating_add(asize.saturating_mul(further));
                self.dedup_blocks += 1;
                self.further.insert(key(&phys.dvas[0]), (further, false));
            }
        }
        Ok(())
    }

    fn add_clones(&mut self, vdev: u64, table: &Zap, endian: Endian) -> Result<()> {
        for entry in table.entries()? {
            let Name::U64s(words) = &entry.name else { return Err(Error::corrupt("clone table with names")) };
            let count = match entry.value.width() {
                1 => endian.u64(entry.value.bytes()),
                _ => entry.value.first_u64(),
            };
            let (Some(&offset), Some(count)) = (words.first(), count) else {
                return Err(Error::corrupt("entry of a clone table without offset or count"));
            };
            self.further.insert((vdev, offset), (count, true));
        }
        Ok(())
    }
}

fn key(dva: &Dva) -> Key {
    (dva.vdev(), dva.offset())
}

/// The values in a packed entry; the first of four is that of extra copies, and of a later, single one
/// there is none.
fn unpack(packed: &[u8]) -> Result<Vec<Phys>> {
    let (&version, packed) = packed.split_first().ok_or_else(|| Error::corrupt("empty entry of a dedup table"))?;
    let endian = if version & 0x80 != 0 { Endian::Little } else { Endian::Big };
    let kind = Compress::from_u8(version & 0x7f).filter(|kind| kind.is_concrete());
    let kind = kind.ok_or_else(|| Error::corrupt(format!("entry of a dedup table with compression {version:#x}")))?;
    let mut bytes = vec![0; TRADITIONAL_SIZE];
    // Nothing tells which of the two forms it is but how much there is.
    let is_flat = compress::decompress(kind, packed, &mut bytes).is_err();
    if is_flat {
        bytes.truncate(FLAT_SIZE);
        compress::decompress(kind, packed, &mut bytes)?;
        return Ok(vec![Phys::empty(), Phys::read(&bytes, endian)?]);
    }
    bytes.chunks_exact(TRADITIONAL_SIZE / 4).map(|raw| Phys::read(raw, endian)).collect()
}

impl Phys {
    fn empty() -> Phys {
        Phys { dvas: [BlkPtr::HOLE.dvas()[0]; DVAS], references: 0, birth: 0 }
    }

    fn read(bytes: &[u8], endian: Endian) -> Result<Phys> {
        let mut r = Reader::new(bytes, endian);
        let mut phys = Phys::empty();
        for dva in &mut phys.dvas {
            *dva = Dva::from_words([r.u64()?, r.u64()?]);
        }
        phys.references = r.u64()?;
        phys.birth = r.u64()?;
        Ok(phys)
    }
}

/// A pointer to a block of which only its entry is known.
fn pointer(phys: &Phys, prop: u64, checksum: [u64; 4]) -> BlkPtr {
    let mut words = [0u64; 16];
    for (i, dva) in phys.dvas.iter().enumerate() {
        words[2 * i..2 * i + 2].copy_from_slice(&dva.words());
    }
    let sizes = prop & 0xffff_ffff | (prop >> 32 & 0x7f) << 32 | (prop >> 39 & 1) << 61;
    words[6] = sizes | u64::from(ObjectType::DEDUP.0) << 48 | 1 << 62 | 1 << 63;
    words[10] = phys.birth;
    words[12..].copy_from_slice(&checksum);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    BlkPtr::parse(&bytes).expect("16 words are a pointer")
}

/// Whether that is the name of a dedup table of blocks with several pointers.
fn is_shared_table(name: &str) -> bool {
    name.starts_with("DDT-") && (name.ends_with("-zap-ditto") || name.ends_with("-zap-duplicate"))
}

/// Whether that is the name of the folder of one checksum's dedup tables: `DDT-sha256`.
fn is_folder(name: &str) -> bool {
    name.strip_prefix("DDT-").is_some_and(|checksum| checksum != "statistics" && !checksum.contains('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(endian: Endian, words: &[u64]) -> Vec<u8> {
        let (version, to_bytes): (u8, fn(u64) -> [u8; 8]) = match endian {
            Endian::Little => (0x80, u64::to_le_bytes),
            Endian::Big => (0, u64::to_be_bytes),
        };
        // 2: not compressed
        [vec![version | 2], words.iter().flat_map(|&word| to_bytes(word)).collect()].concat()
    }

    #[test]
    fn both_forms_and_both_byte_orders() {
        for endian in [Endian::Little, Endian::Big] {
            let mut words = [0u64; 32];
            words[8..16].copy_from_slice(&[3 << 32 | 8, 77, 0, 0, 0, 0, 5, 9]);
            let four = unpack(&entry(endian, &words)).unwrap();
            assert_eq!(four.iter().map(|phys| phys.birth).collect::<Vec<_>>(), [0, 9, 0, 0]);
            assert_eq!((four[1].references, key(&four[1].dvas[0]), four[1].dvas[0].asize()), (5, (3, 77 << 9), 4096));
            let flat = unpack(&entry(endian, &words[8..17])).unwrap();
            assert_eq!((flat.len(), flat[1].references, flat[1].birth), (2, 5, 9));
        }
        assert!(unpack(&[]).is_err() && unpack(&[0x82]).is_err() && unpack(&[0xff, 1, 2]).is_err());
    }

    #[test]
    fn the_last_pointer_is_the_owner() {
        let mut refs = Refs::default();
        let phys = Phys::read(&[8u64, 1, 0, 0, 0, 0, 3, 9].map(u64::to_le_bytes).concat(), Endian::Little).unwrap();
        let bp = pointer(&phys, 7 << 16 | 7, [1, 2, 3, 4]);
        assert!(bp.is_dedup() && bp.psize() == 4096 && bp.birth() == 9 && bp.checksum() == [1, 2, 3, 4]);
        assert_eq!((refs.found(&bp), refs.found(&bp)), (Reference::Last, Reference::Unlisted));
        refs.further.insert(key(&bp.dvas()[0]), (2, false));
        assert_eq!([(); 3].map(|()| refs.found(&bp)), [Reference::Shared, Reference::Shared, Reference::Last]);
    }
}
