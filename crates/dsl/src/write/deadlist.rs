//! Dead lists: blocks that died in a dataset after its previous snapshot, and which that, or an older one, has.
//!
//! ```text
//!   table: key ─▶ list of pointers            bonus: used, compressed, uncompressed bytes of all lists
//!            0 ─▶ born after txg 0, up to 15
//!           15 ─▶ born after txg 15, up to 40        keys: txgs of the older snapshots
//!           40 ─▶ born after txg 40
//! ```
//!
//! Lists are empty more often than not, so all empty ones can be one object, if the pool has that feature. In
//! pools before version 26 a dead list is one plain list.

use std::collections::BTreeMap;

use base::{Error, Result};
use dmu::bpobj::{self, Bpobj, Totals};
use dmu::zap::Value;
use format::blkptr::BlkPtr;
use format::object_type::ObjectType;

use super::feature::EMPTY_BPOBJ;
use super::{Change, DIRECTORY};

const DEADLIST: ObjectType = ObjectType(50);
const DEADLIST_HEADER: ObjectType = ObjectType(51);
const HEADER_SIZE: usize = 320;
const EMPTY: &str = "empty_bpobj";

impl Change<'_> {
    /// Makes a dead list without parts.
    pub(super) fn create_deadlist(&self) -> Result<u64> {
        self.create_table_with(DEADLIST, (DEADLIST_HEADER, vec![0; HEADER_SIZE]), 0)
    }

    /// Makes an empty dead list with the parts of `of` whose key is below `end_txg`.
    pub(super) fn clone_deadlist(&self, of: u64, end_txg: u64) -> Result<u64> {
        if self.is_plain(of)? {
            return Err(Error::new(base::Kind::Unsupported, "the pool's version is too old for new snapshots"));
        }
        let list = self.create_deadlist()?;
        for (key, _) in self.by_number(of)?.into_iter().filter(|(key, _)| *key < end_txg) {
            self.add_deadlist_part(list, key)?;
        }
        Ok(list)
    }

    /// Adds a part for blocks born after `key`.
    pub(super) fn add_deadlist_part(&self, list: u64, key: u64) -> Result<()> {
        let part = self.create_empty_list()?;
        self.add(list, &format!("{key:x}"), part)
    }

    /// Frees a dead list, not the blocks in it.
    pub(super) fn free_deadlist(&self, list: u64) -> Result<()> {
        if self.is_plain(list)? {
            return Bpobj::free(self.mos, self.tx, list);
        }
        for (_, part) in self.by_number(list)? {
            if Some(part) == self.number(DIRECTORY, EMPTY)? {
                self.leave_empty_list()?;
            } else {
                Bpobj::free(self.mos, self.tx, part)?;
            }
        }
        self.free_object(list)
    }

    /// Puts blocks on a dead list.
    pub(super) fn insert_dead(&self, list: u64, bps: &[BlkPtr]) -> Result<()> {
        if bps.is_empty() {
            return Ok(());
        }
        if self.is_plain(list)? {
            return Bpobj::open(self.mos, list)?.append(self.tx, bps, self.size_of);
        }
        let parts = self.by_number(list)?;
        let mut by_part: BTreeMap<(u64, u64), Vec<BlkPtr>> = BTreeMap::new();
        let mut sum = Totals::default();
        for bp in bps {
            // the first part has to take what would be in none
            let part = parts.partition_point(|(key, _)| *key < bp.reference_birth()).saturating_sub(1);
            let part = parts.get(part).ok_or_else(|| Error::corrupt("dead list without parts"))?;
            by_part.entry(*part).or_default().push(*bp);
            sum = sum.plus(self.totals(bp));
        }
        for ((key, part), bps) in by_part {
            let mut part = part;
            if Some(part) == self.number(DIRECTORY, EMPTY)? {
                part = Bpobj::create(self.mos, self.tx, bpobj::BLOCK_SIZE, true)?;
                self.leave_empty_list()?;
                self.set(list, &format!("{key:x}"), &Value::one(part))?;
            }
            Bpobj::open(self.mos, part)?.append(self.tx, &bps, self.size_of)?;
        }
        self.mos.object(list)?.update(self.tx, |dnode| {
            for (place, add) in dnode.bonus.chunks_exact_mut(8).zip([sum.used, sum.compressed, sum.uncompressed]) {
                let before = u64::from_le_bytes(place.try_into().expect("chunks are 8 bytes"));
                place.copy_from_slice(&before.wrapping_add(add).to_le_bytes());
            }
        })
    }

    fn is_plain(&self, list: u64) -> Result<bool> {
        Ok(self.mos.object(list)?.dnode().object_type == ObjectType::BPOBJ)
    }

    /// An empty list: one that all share, if the pool has that.
    fn create_empty_list(&self) -> Result<u64> {
        let Some(count) = self.feature(EMPTY_BPOBJ)? else {
            return Bpobj::create(self.mos, self.tx, bpobj::BLOCK_SIZE, true);
        };
        if count == 0 {
            let list = Bpobj::create(self.mos, self.tx, bpobj::BLOCK_SIZE, true)?;
            self.add(DIRECTORY, EMPTY, list)?;
        }
        self.count_feature(EMPTY_BPOBJ, 1)?;
        self.in_directory(EMPTY)
    }

    /// One user less of the empty list.
    fn leave_empty_list(&self) -> Result<()> {
        if self.count_feature(EMPTY_BPOBJ, -1)? == 0 {
            let list = self.in_directory(EMPTY)?;
            self.remove(DIRECTORY, EMPTY)?;
            self.free_object(list)?;
        }
        Ok(())
    }
}
