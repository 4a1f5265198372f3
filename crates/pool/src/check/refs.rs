//! Blocks that several pointers refer to: how many do, by the dedup and clone tables.
//!
//! ```text
//!   dedup table: ZAP, key and value as in format::ddt
//!   clone table of a vdev: ZAP, key offset  value: further references
//! ```
//!
//! What a log of a dedup table holds ([`crate::dedup::log`]) counts more than the table's word.
//!
//! Source: OpenZFS's behaviour, and its description of the features dedup and block_cloning.

use std::collections::{HashMap, HashSet};

use base::{Endian, Error, Result};
use dmu::zap::{Zap, ZapEntry, ZapKey};
use format::blkptr::{BlkPtr, Dva};
use format::ddt;
use format::ids::VdevNumber;

use crate::clones::{CLONES_PREFIX, CloneHeader, count_of};
use crate::dedup::packed::{blocks_of, unpack};
use crate::dedup::{is_folder, log};
use crate::{Pool, object_directory};

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
    further: HashMap<CopyPlace, (u64, bool)>,
    /// Deduplicated blocks that were found and are in no table.
    unlisted: HashSet<CopyPlace>,
    /// Bytes that dedup saves.
    pub(super) dedup_bytes: u64,
    /// Deduplicated blocks with several pointers.
    pub(super) dedup_blocks: u64,
    /// Extra copies that only the table knows, as pointers made up for them.
    pub(super) ditto: Vec<BlkPtr>,
}

/// Vdev and offset of a block's first copy.
type CopyPlace = (VdevNumber, u64);

impl Refs {
    pub(super) fn read(pool: &Pool) -> Result<Refs> {
        let mut refs = Refs::default();
        let mos = pool.mos();
        for row in object_directory(mos)?.entries()? {
            let (name, Some(id)) = (row.name.to_string(), row.value.first_object()) else { continue };
            if is_shared_table(&name) {
                refs.add_table(&Zap::open(mos.object(id)?)?)?;
            } else if is_folder(&name) {
                let mut logs = Vec::new();
                for row in Zap::open(mos.object(id)?)?.entries()? {
                    let (name, Some(id)) = (row.name.to_string(), row.value.first_object()) else { continue };
                    if is_shared_table(&name) {
                        refs.add_table(&Zap::open(mos.object(id)?)?)?;
                    } else if log::is_log(&name) {
                        logs.push(mos.object(id)?);
                    }
                }
                log::for_each(&logs, pool.cache().zio().env().random(), &mut |key, value| {
                    refs.add_blocks(key, &blocks_of(value, Endian::Little)?);
                    Ok(())
                })?;
            } else if let Some(vdev) = name.strip_prefix(CLONES_PREFIX).and_then(|number| number.parse().ok()) {
                let object = mos.object(id)?;
                let header = CloneHeader::of(&object)?;
                refs.add_clones(vdev, &Zap::open(mos.object(header.entries)?)?, header.endian)?;
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

    fn add_entry(&mut self, entry: &ZapEntry) -> Result<()> {
        let ZapKey::U64s(words) = &entry.name else { return Err(Error::corrupt("dedup table with names")) };
        let Ok(words) = words[..].try_into() else { return Err(Error::corrupt("key of a dedup table is not 5 words")) };
        self.add_blocks(words, &unpack(entry.value.bytes())?);
        Ok(())
    }

    fn add_blocks(&mut self, words: [u64; 5], blocks: &[ddt::DdtPhys]) {
        let block_key = ddt::DdtKey::from_words(words);
        for (which, block) in blocks.iter().enumerate().filter(|(_, block)| !block.is_none()) {
            let asize: u64 = block_key.dvas(block).map(Dva::asize).sum();
            if which == ddt::EXTRA {
                self.ditto.push(block_key.pointer(block));
            } else {
                let further = block.references.saturating_sub(1);
                self.dedup_bytes = self.dedup_bytes.saturating_add(asize.saturating_mul(further));
                self.dedup_blocks += 1;
                if let Some((before, _)) = self.further.insert(key(&block.dvas[0]), (further, false)) {
                    self.dedup_bytes = self.dedup_bytes.saturating_sub(asize.saturating_mul(before));
                    self.dedup_blocks = self.dedup_blocks.saturating_sub(1);
                }
            }
        }
    }

    fn add_clones(&mut self, vdev: VdevNumber, table: &Zap, endian: Endian) -> Result<()> {
        for entry in table.entries()? {
            let ZapKey::U64s(words) = &entry.name else { return Err(Error::corrupt("clone table with names")) };
            let Some(&offset) = words.first() else {
                return Err(Error::corrupt("entry of a clone table without offset"));
            };
            self.further.insert((vdev, offset), (count_of(&entry.value, endian)?, true));
        }
        Ok(())
    }
}

fn key(dva: &Dva) -> CopyPlace {
    (dva.vdev(), dva.offset())
}

/// Whether that is the name of a dedup table of blocks with several pointers.
fn is_shared_table(name: &str) -> bool {
    name.starts_with("DDT-") && (name.ends_with("-zap-ditto") || name.ends_with("-zap-duplicate"))
}

#[cfg(test)]
mod tests {
    use format::ids::Txg;

    use super::*;

    #[test]
    fn the_last_pointer_is_the_owner() {
        let mut refs = Refs::default();
        let block = ddt::DdtPhys {
            dvas: [Dva::new(VdevNumber::new(0), 512, 4096, false), Dva::EMPTY, Dva::EMPTY],
            references: 3,
            birth: Txg::new(9),
        };
        let mut raw = ddt::DdtKey::from_words([1, 2, 3, 4, 7 << 16 | 7]).pointer(&block).raw().to_vec();
        raw[55] |= 0x40;
        let bp = BlkPtr::parse(&raw).unwrap();
        assert!(bp.is_dedup());
        assert_eq!((refs.found(&bp), refs.found(&bp)), (Reference::Last, Reference::Unlisted));
        refs.further.insert(key(&bp.dvas()[0]), (2, false));
        assert_eq!([(); 3].map(|()| refs.found(&bp)), [Reference::Shared, Reference::Shared, Reference::Last]);
    }
}
