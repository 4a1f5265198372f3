//! The error log: blocks that were found damaged, as `zpool status -v` lists them.
//!
//! There are two logs, of the last scrub and of the time since, each a ZAP whose keys are text, and whose values say
//! nothing. What is not on disk yet, or never will be as the pool is open for reading, is in memory ([`zio::Damage`]).
//!
//! ```text
//!   as it was first     "objset:object:level:block"                       (hexadecimal)
//!   feature head_errlog "head dataset"  ──▶  ZAP: "object:level:block:birth"
//! ```
//!
//! With `head_errlog` an entry stands for the block wherever it is referenced: in the head if it is
//! still there, and in each snapshot taken since its birth that has it. Which these are is found by
//! looking at the block pointers.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use base::{Bookmark, Error, Result, ResultExt};
use dmu::zap::{Zap, ZapKey};
use dmu::{Mode, Objset};
use format::blkptr::BlkPtr;
use format::feature::HEAD_ERRLOG;

use crate::{FeatureState, Pool, object_directory};

/// The directory's entries for the log of the time since the last scrub, and for that of the scrub.
pub(crate) const LOGS: [&str; 2] = ["errlog_last", "errlog_scrub"];
/// Most entries that are looked at; a pool with more damage than that is past listing.
pub(crate) const ENTRIES_MAX: usize = 100_000;
/// Most datasets that are opened to look for damaged blocks.
const LOOKS_MAX: usize = 100_000;

/// An object with damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DamagedObject {
    /// Dataset, which is also the number of its object set; 0 is the MOS.
    pub dataset: u64,
    /// Object in it.
    pub object: u64,
}

/// A block of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ErrlogEntry {
    dataset: u64,
    object: u64,
    level: u64,
    block: u64,
    /// Txg in which it was written, if the log tells.
    birth: Option<u64>,
}

impl Pool {
    /// Number of blocks in the error log.
    pub fn error_count(&self) -> Result<u64> {
        Ok(self.error_entries()?.len() as u64)
    }

    /// The objects that have damaged blocks by the error log, each once, in order.
    pub fn damaged_objects(&self) -> Result<Vec<DamagedObject>> {
        let mut damaged = BTreeSet::new();
        let mut looks = LOOKS_MAX;
        for entry in self.error_entries()? {
            match entry.birth {
                None | Some(0) => drop(damaged.insert(DamagedObject { dataset: entry.dataset, object: entry.object })),
                Some(birth) => damaged.extend(self.where_is(&entry, birth, &mut looks)),
            }
        }
        Ok(damaged.into_iter().collect())
    }

    fn error_entries(&self) -> Result<Vec<ErrlogEntry>> {
        let mut entries = self.read_entries().in_pool(self.name())?;
        for (Bookmark { objset, object, level, blkid }, _) in self.cache().zio().damage().lost() {
            let new = ErrlogEntry { dataset: objset, object, level: level as u64, block: blkid, birth: None };
            let is_new = |old: &ErrlogEntry| ErrlogEntry { birth: None, ..*old } != new;
            if entries.iter().all(is_new) {
                entries.push(new);
            }
        }
        Ok(entries)
    }

    fn read_entries(&self) -> Result<Vec<ErrlogEntry>> {
        let directory = object_directory(self.mos())?;
        let by_head = self.features().state(HEAD_ERRLOG) != FeatureState::Disabled;
        let mut entries = Vec::new();
        for log in LOGS {
            let Some(id) = directory.u64(log)?.filter(|id| *id != 0) else { continue };
            for row in Zap::open(self.mos().object(id)?)?.entries()? {
                let key = numbers(&row.name)?;
                if !by_head {
                    let [dataset, object, level, block] = *key.as_slice() else { return Err(bad_key(&row.name)) };
                    entries.push(ErrlogEntry { dataset, object, level, block, birth: None });
                    continue;
                }
                let ([head], Some(id)) = (key.as_slice(), row.value.first_u64()) else {
                    return Err(bad_key(&row.name));
                };
                for row in Zap::open(self.mos().object(id)?)?.entries()? {
                    let key = numbers(&row.name)?;
                    let [object, level, block, birth] = *key.as_slice() else { return Err(bad_key(&row.name)) };
                    entries.push(ErrlogEntry { dataset: *head, object, level, block, birth: Some(birth) });
                }
                // many heads may lead to one table
                if entries.len() >= ENTRIES_MAX {
                    break;
                }
            }
            entries.truncate(ENTRIES_MAX);
        }
        Ok(entries)
    }

    /// The datasets in which the block of an entry is, among its head and the snapshots of that. If
    /// none can be told to have it, the head stands for it.
    fn where_is(&self, entry: &ErrlogEntry, birth: u64, looks: &mut usize) -> Vec<DamagedObject> {
        let (mut found, mut places) = (Vec::new(), PointerFinder::of(self));
        let mut next = Some(entry.dataset);
        while *looks > 0 {
            *looks -= 1;
            let Some(dataset) = next.and_then(|id| self.dsl().dataset(id, &format!("object {id}")).ok()) else { break };
            let is_older = dataset.is_snapshot() && dataset.phys.creation_txg < birth;
            if is_older {
                break;
            }
            let ErrlogEntry { object, level, block, .. } = *entry;
            let place = Bookmark { objset: dataset.id, object, level: level as i64, blkid: block };
            if places.pointer(&place).is_ok_and(|bp| [bp.birth(), bp.physical_birth()].contains(&birth)) {
                found.push(DamagedObject { dataset: dataset.id, object });
            }
            next = Some(dataset.phys.prev_snap).filter(|id| *id != 0);
        }
        if found.is_empty() {
            found.push(DamagedObject { dataset: entry.dataset, object: entry.object });
        }
        found
    }
}

/// Finds the pointers to blocks by their places, as they are on disk.
pub(crate) struct PointerFinder<'a> {
    pool: &'a Pool,
    sets: HashMap<u64, Arc<Objset>>,
}

impl PointerFinder<'_> {
    pub(crate) fn of(pool: &Pool) -> PointerFinder<'_> {
        PointerFinder { pool, sets: HashMap::new() }
    }

    /// The pointer to the block at a place; a hole if there is none.
    pub(crate) fn pointer(&mut self, place: &Bookmark) -> Result<BlkPtr> {
        let set = self.set(place.objset)?;
        let level = match place.level {
            -1 => return Ok(set.rootbp()),
            level => u8::try_from(level).map_err(|_| Error::corrupt(format!("a block of level {level}")))?,
        };
        let object = if place.object == 0 { set.meta() } else { set.object(place.object)? };
        object.pointer_on_disk(level, place.blkid)
    }

    /// Whether that block is there.
    pub(crate) fn has(&mut self, place: &Bookmark, bp: &BlkPtr) -> bool {
        self.pointer(place).is_ok_and(|now| now == *bp)
    }

    fn set(&mut self, id: u64) -> Result<Arc<Objset>> {
        if let Some(set) = self.sets.get(&id) {
            return Ok(set.clone());
        }
        let set = match id {
            0 => self.pool.mos().clone(),
            id => {
                let dataset = self.pool.dsl().dataset(id, &format!("object {id}"))?;
                self.pool.dsl().objset(&dataset, Mode::Raw)?
            }
        };
        self.sets.insert(id, set.clone());
        Ok(set)
    }
}

fn numbers(name: &ZapKey) -> Result<Vec<u64>> {
    let text = name.to_string();
    let parts: Result<Vec<u64>, _> = text.split(':').map(|part| u64::from_str_radix(part, 16)).collect();
    parts.map_err(|_| bad_key(name))
}

fn bad_key(name: &ZapKey) -> Error {
    Error::corrupt(format!("error log with the key '{name}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let name = |text: &str| ZapKey::Bytes(text.as_bytes().to_vec());
        assert_eq!(numbers(&name("36:1f:0:a")).unwrap(), [0x36, 0x1f, 0, 10]);
        for text in ["", "36:", "x:1:2:3", "11111111111111111"] {
            assert!(numbers(&name(text)).is_err(), "{text}");
        }
    }
}
