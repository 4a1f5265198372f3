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
//! still there, in each snapshot taken since its birth that has it, and in clones of these. Which these are is found
//! by looking at the block pointers.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use base::{Bookmark, Error, Kind, Result, ResultExt};
use dmu::zap::{Zap, ZapKey};
use dmu::{Mode, Object, Objset};
use dsl::Dataset;
use format::blkptr::BlkPtr;
use format::feature::HEAD_ERRLOG;
use format::ids::{DatasetId, ObjectId, Txg};

use crate::{FeatureState, Pool, object_directory};

/// The directory's entries for the log of the time since the last scrub, and for that of the scrub.
pub(crate) const LOGS: [&str; 2] = ["errlog_last", "errlog_scrub"];
/// Most entries that are looked at; a pool with more damage than that is past listing.
pub(crate) const ENTRIES_MAX: usize = 100_000;
/// Most entries of which it is looked whether their blocks are there, only to count them.
const LOOKED_FOR_MAX: usize = 1000;
/// Most datasets that are opened to look for damaged blocks.
pub(crate) const LOOKS_MAX: usize = 100_000;

/// An object with damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DamagedObject {
    /// Dataset, which is also the number of its object set; 0 is the MOS.
    pub dataset: DatasetId,
    /// Object in it.
    pub object: ObjectId,
}

/// A block of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ErrlogEntry {
    dataset: DatasetId,
    object: ObjectId,
    level: u64,
    block: u64,
    /// Txg in which it was written, if the log tells.
    birth: Option<Txg>,
}

/// Where the block of an entry is.
pub(crate) struct FoundBlocks {
    pub(crate) blocks: Vec<(Bookmark, BlkPtr)>,
    /// It is nowhere else: all could be looked at.
    pub(crate) are_all: bool,
}

impl ErrlogEntry {
    /// The keys by which it is in a log: of the head in it, if the log has tables of heads, and its own.
    pub(crate) fn keys(&self) -> (Option<String>, String) {
        let ErrlogEntry { dataset, object, level, block, birth } = *self;
        match birth {
            Some(birth) => (Some(format!("{dataset:x}")), format!("{object:x}:{level:x}:{block:x}:{birth:x}")),
            None => (None, format!("{dataset:x}:{object:x}:{level:x}:{block:x}")),
        }
    }

    /// The dataset that it names.
    pub(crate) fn dataset(&self) -> DatasetId {
        self.dataset
    }

    /// As a log has it that has tables of heads.
    pub(crate) fn of_head(&self, head: DatasetId, birth: Txg) -> ErrlogEntry {
        ErrlogEntry { dataset: head, birth: Some(birth), ..*self }
    }

    /// When the block was written that is at its place: `None` if none is, 0 if that cannot be told.
    pub(crate) fn look_for_birth(&self, places: &mut PointerFinder<'_>) -> Option<Txg> {
        match places.pointer(&self.place_in(self.dataset)) {
            Ok(bp) if bp.is_hole() || bp.is_embedded() => None,
            Ok(bp) => Some(bp.physical_birth()),
            Err(error) if error.kind() == Kind::NotFound => None,
            Err(_) => Some(Txg::ZERO),
        }
    }

    fn place_in(&self, dataset: DatasetId) -> Bookmark {
        let ErrlogEntry { object, level, block, .. } = *self;
        Bookmark { objset: dataset.get(), object: object.get(), level: level as i64, blkid: block }
    }

    /// The datasets in which the block is, among its head and the snapshots of that, and its pointers there. `looks` is
    /// how many datasets may be looked at.
    pub(crate) fn find(&self, pool: &Pool, looks: &mut usize) -> FoundBlocks {
        let mut places = PointerFinder::of(pool);
        let mut found = FoundBlocks { blocks: Vec::new(), are_all: true };
        let birth = self.birth.filter(|birth| *birth != Txg::ZERO);
        let mut look = |id: DatasetId| match places.pointer(&self.place_in(id)) {
            Ok(bp) if bp.is_hole() || bp.is_embedded() => {}
            Ok(bp) if birth.is_none_or(|birth| [bp.birth(), bp.physical_birth()].contains(&birth)) => {
                found.blocks.push((self.place_in(id), bp));
            }
            Ok(_) => {}
            Err(error) => found.are_all &= error.kind() == Kind::NotFound,
        };
        let Some(birth) = birth.filter(|_| self.dataset != DatasetId::MOS) else {
            look(self.dataset);
            return found;
        };
        // the first is the head; clones of snapshots, and what these have, follow
        let (mut heads, mut seen, mut is_cut) = (vec![self.dataset], BTreeSet::new(), false);
        while let Some(head) = heads.pop() {
            let mut next = Some(head);
            while let Some(id) = next.filter(|id| seen.insert(*id)) {
                let dataset = if *looks == 0 { None } else { pool.dsl().dataset(id, &format!("object {id}")).ok() };
                let Some(dataset) = dataset else {
                    is_cut |= *looks == 0 || !is_gone(pool, id);
                    break;
                };
                *looks -= 1;
                if dataset.is_snapshot() && dataset.phys.creation_txg < birth {
                    break;
                }
                look(id);
                match related_heads(pool, &dataset) {
                    Ok(clones) => heads.extend(clones),
                    Err(_) => is_cut = true,
                }
                next = Some(dataset.phys.prev_snap).filter(|id| id.is_some());
            }
        }
        found.are_all &= !is_cut;
        found
    }
}

impl Pool {
    /// Number of blocks in the error log. Blocks that are no more are not counted, where the log says which they were, and
    /// it is no long one.
    pub fn error_count(&self) -> Result<u64> {
        let entries = self.error_entries()?;
        if entries.len() > LOOKED_FOR_MAX {
            return Ok(entries.len() as u64);
        }
        let mut looks = LOOKS_MAX;
        let is_there = |entry: &&ErrlogEntry| match entry.birth {
            None | Some(Txg::ZERO) => true,
            Some(_) => {
                let found = entry.find(self, &mut looks);
                !found.blocks.is_empty() || !found.are_all
            }
        };
        Ok(entries.iter().filter(is_there).count() as u64)
    }

    /// The objects that have damaged blocks by the error log, each once, in order.
    pub fn damaged_objects(&self) -> Result<Vec<DamagedObject>> {
        let mut damaged = BTreeSet::new();
        let mut looks = LOOKS_MAX;
        for entry in self.error_entries()? {
            match entry.birth {
                None | Some(Txg::ZERO) => {
                    damaged.insert(DamagedObject { dataset: entry.dataset, object: entry.object });
                }
                Some(_) => {
                    let FoundBlocks { blocks, are_all } = entry.find(self, &mut looks);
                    // if it cannot be told which have it, the head stands for it
                    let ids = blocks.iter().map(|(place, _)| DatasetId::new(place.objset));
                    let ids = ids.chain((blocks.is_empty() && !are_all).then_some(entry.dataset));
                    damaged.extend(ids.map(|dataset| DamagedObject { dataset, object: entry.object }));
                }
            }
        }
        Ok(damaged.into_iter().collect())
    }

    fn error_entries(&self) -> Result<Vec<ErrlogEntry>> {
        let mut entries = self.read_entries().in_pool(self.name())?;
        for (Bookmark { objset, object, level, blkid }, _) in self.cache().zio().damage().lost() {
            let dataset = DatasetId::new(objset);
            let new =
                ErrlogEntry { dataset, object: ObjectId::new(object), level: level as u64, block: blkid, birth: None };
            let is_new = |old: &ErrlogEntry| ErrlogEntry { birth: None, ..*old } != new;
            if entries.iter().all(is_new) {
                entries.push(new);
            }
        }
        Ok(entries)
    }

    /// What is in the logs on disk. Errors: of reading them; `Corrupt` for a key that is none.
    pub(crate) fn read_entries(&self) -> Result<Vec<ErrlogEntry>> {
        let directory = object_directory(self.mos())?;
        let by_head = self.features().state(HEAD_ERRLOG) != FeatureState::Disabled;
        let mut entries = Vec::new();
        for log in LOGS {
            let Some(id) = directory.object_id(log)?.filter(|id| id.is_some()) else { continue };
            if !by_head {
                entries.extend(self.entries_of_blocks(id)?);
                continue;
            }
            for row in Zap::open(self.mos().object(id)?)?.entries()? {
                let key = numbers(&row.name)?;
                let ([head], Some(id)) = (key.as_slice(), row.value.first_object()) else {
                    return Err(bad_key(&row.name));
                };
                let dataset = DatasetId::new(*head);
                for row in Zap::open(self.mos().object(id)?)?.entries()? {
                    let key = numbers(&row.name)?;
                    let [object, level, block, birth] = *key.as_slice() else { return Err(bad_key(&row.name)) };
                    let (object, birth) = (ObjectId::new(object), Some(Txg::new(birth)));
                    entries.push(ErrlogEntry { dataset, object, level, block, birth });
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

    /// What is in a log as it was first. Errors: as [`Pool::read_entries`].
    pub(crate) fn entries_of_blocks(&self, log: ObjectId) -> Result<Vec<ErrlogEntry>> {
        let rows = Zap::open(self.mos().object(log)?)?.entries()?;
        let entry = |name: &ZapKey| {
            let [dataset, object, level, block] = *numbers(name)?.as_slice() else { return Err(bad_key(name)) };
            let (dataset, object) = (DatasetId::new(dataset), ObjectId::new(object));
            Ok(ErrlogEntry { dataset, object, level, block, birth: None })
        };
        rows.iter().take(ENTRIES_MAX).map(|row| entry(&row.name)).collect()
    }
}

/// Finds the pointers to blocks by their places, as they are on disk.
pub(crate) struct PointerFinder<'a> {
    pool: &'a Pool,
    sets: HashMap<DatasetId, Arc<Objset>>,
}

impl PointerFinder<'_> {
    pub(crate) fn of(pool: &Pool) -> PointerFinder<'_> {
        PointerFinder { pool, sets: HashMap::new() }
    }

    /// The number of the last block of a level that an object can have.
    pub(crate) fn last_block(&mut self, objset: DatasetId, object: ObjectId, level: u8) -> Result<u64> {
        Ok(open_any(&self.set(objset)?, object)?.last_block(level))
    }

    /// The pointer to the block at a place; a hole if there is none.
    pub(crate) fn pointer(&mut self, place: &Bookmark) -> Result<BlkPtr> {
        let set = self.set(DatasetId::new(place.objset))?;
        let level = match place.level {
            -1 => return Ok(set.rootbp()),
            level => u8::try_from(level).map_err(|_| Error::corrupt(format!("a block of level {level}")))?,
        };
        open_any(&set, ObjectId::new(place.object))?.pointer_on_disk(level, place.blkid)
    }

    /// Whether that block is there.
    pub(crate) fn has(&mut self, place: &Bookmark, bp: &BlkPtr) -> bool {
        self.pointer(place).is_ok_and(|now| now == *bp)
    }

    fn set(&mut self, id: DatasetId) -> Result<Arc<Objset>> {
        if let Some(set) = self.sets.get(&id) {
            return Ok(set.clone());
        }
        let set = match id {
            DatasetId::MOS => self.pool.mos().clone(),
            id => {
                let dataset = self.pool.dsl().dataset(id, &format!("object {id}"))?;
                self.pool.dsl().objset(&dataset, Mode::Raw)?
            }
        };
        self.sets.insert(id, set.clone());
        Ok(set)
    }
}

/// Whether there is no such dataset any more.
fn is_gone(pool: &Pool, id: DatasetId) -> bool {
    pool.mos().object(id.object()).is_err_and(|error| error.kind() == Kind::NotFound)
}

/// The heads of a snapshot's clones, and that of its own file system, which may be a clone that was promoted.
fn related_heads(pool: &Pool, dataset: &Dataset) -> Result<Vec<DatasetId>> {
    if !dataset.is_snapshot() {
        return Ok(Vec::new());
    }
    let name = pool.dsl().name_of(dataset.id)?;
    let own = name.split('@').next().unwrap_or_default().to_owned();
    let clones = if dataset.phys.num_children > 1 { pool.dsl().clones(dataset)? } else { Vec::new() };
    clones.into_iter().chain([own]).map(|name| pool.dsl().find(&name).map(|head| head.id)).collect()
}

/// An object, or that of all dnodes.
fn open_any(set: &Arc<Objset>, id: ObjectId) -> Result<Object> {
    if id == ObjectId::META_DNODE { Ok(set.meta()) } else { set.object(id) }
}

fn numbers(name: &ZapKey) -> Result<Vec<u64>> {
    let text = name.to_string();
    let parts: Result<Vec<u64>, _> = text.split(':').map(|part| u64::from_str_radix(part, 16)).collect();
    parts.map_err(|_| bad_key(name))
}

/// When the block was born that is called so in the table of a head. Errors: `Corrupt`.
pub(crate) fn birth_in(key: &str) -> Result<Txg> {
    let name = ZapKey::Bytes(key.as_bytes().to_vec());
    match *numbers(&name)?.as_slice() {
        [.., birth] => Ok(Txg::new(birth)),
        _ => Err(bad_key(&name)),
    }
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
