//! How much space a dataset may still use, and how much it has written since a snapshot.
//!
//! ```text
//!   available(tank/a/b): on the way from the root to it, each directory leaves the lesser of
//!       what its parent leaves, and its reservation beyond what it uses already
//!       its quota less what it uses
//!
//!   written(head, snapshot): referenced(head) - referenced(snapshot) + died since then
//!       older ◀── snapshot ◀── next ◀── ... ◀── head
//!                             dead list of each: what was born up to the snapshot
//!                                                and died before the next one
//! ```
//!
//! Source: the behaviour of OpenZFS's dsl_dir and dsl_dataset.

use base::{Endian, Error, Kind, Reader, Result, ResultExt};
use dmu::zap::Zap;
use format::ids::{DirId, ObjectId, Txg};
use format::object_type::ObjectType;

use crate::{Dataset, DatasetBookmark, Dir, Dsl};

impl Dsl {
    /// Bytes that may still be written to `dir`, by the limits of directories.
    ///
    /// `usable_bytes` is the size of the pool without parity, and without what ZFS keeps for itself.
    pub fn available_in_dir(&self, dir: &Dir, usable_bytes: u64) -> Result<u64> {
        let mut path = vec![dir.clone()];
        let mut depth = 0;
        while let Some(parent) = path.last().map(|dir| dir.phys.parent).filter(|parent| parent.is_some()) {
            depth += 1;
            if depth > 256 {
                return Err(Error::corrupt("dataset tree is no tree").in_dataset(&dir.name));
            }
            path.push(self.dir(parent, &dir.name)?);
        }
        let mut left = u64::MAX;
        for (above, dir) in path.iter().rev().enumerate() {
            let phys = &dir.phys;
            let mut limit = if phys.quota == 0 { u64::MAX } else { phys.quota };
            if above == 0 {
                limit = limit.min(usable_bytes);
            } else {
                left = left.saturating_add(phys.reserved.saturating_sub(phys.used_bytes));
            }
            left = left.min(limit.saturating_sub(phys.used_bytes));
        }
        Ok(left)
    }

    /// Bytes that may still be written to a head: as [`Dsl::available_in_dir`], with the limits of the
    /// head itself, which are the properties `refquota` (0: none) and `refreservation`.
    pub fn available(
        &self,
        dir: &Dir,
        head: &Dataset,
        refquota: u64,
        refreservation: u64,
        usable_bytes: u64,
    ) -> Result<u64> {
        let left = self.available_in_dir(dir, usable_bytes)?;
        let left = left.saturating_add(refreservation.saturating_sub(head.phys.unique_bytes));
        let limit = if refquota == 0 { u64::MAX } else { refquota.saturating_sub(head.phys.referenced_bytes) };
        Ok(left.min(limit))
    }

    /// Bytes written to `new` since its previous snapshot; `None` if it has none, not even the empty
    /// one that all datasets begin with since version 11 of the pool.
    pub fn written(&self, new: &Dataset) -> Result<Option<u64>> {
        if new.phys.prev_snap.is_none() {
            return Ok(None);
        }
        let prev = self.dataset(new.phys.prev_snap, "previous snapshot")?;
        self.written_since(new, &Since::of(&prev)).map(Some).in_dataset(&new.name)
    }

    /// Bytes written to `new` since the snapshot `old`, which is an earlier one of the same file system,
    /// or of those that it was cloned from. Errors: `Invalid` if it is no such one.
    pub fn written_since_snapshot(&self, new: &Dataset, old: &Dataset) -> Result<u64> {
        if !self.comes_before(new, old.phys.dir, old.phys.creation_txg)? {
            return Err(not_earlier(&old.name)).in_dataset(&new.name);
        }
        self.written_since(new, &Since::of(old)).in_dataset(&new.name)
    }

    /// Bytes written to `new` since a bookmark of `head`. Errors: `Unsupported` if the bookmark does not
    /// know, `Invalid` if it is not earlier.
    pub fn written_since_bookmark(&self, new: &Dataset, head: &Dataset, old: &DatasetBookmark) -> Result<u64> {
        if !self.comes_before(new, head.phys.dir, old.creation_txg)? {
            return Err(not_earlier(&old.name)).in_dataset(&new.name);
        }
        let since = Since {
            txg: old.creation_txg,
            referenced: old.referenced_bytes.unwrap_or(0),
            freed_before_next: old.freed_before_next_bytes,
        };
        if since.freed_before_next.is_none() {
            return Err(Error::new(Kind::Unsupported, "the bookmark tells nothing of space")).in_dataset(&old.name);
        }
        self.written_since(new, &since).in_dataset(&new.name)
    }

    fn written_since(&self, new: &Dataset, old: &Since) -> Result<u64> {
        let mut used = new.phys.referenced_bytes.wrapping_sub(old.referenced);
        let mut at = new.clone();
        while at.phys.prev_snap_txg > old.txg {
            used = used.wrapping_add(self.dead_bytes_born_before(at.phys.deadlist, old.txg)?);
            let prev = self.dataset(at.phys.prev_snap, "previous snapshot")?;
            // without this, a damaged chain might never end
            if prev.phys.prev_snap_txg >= at.phys.prev_snap_txg {
                return Err(Error::corrupt("chain of snapshots does not go back in time"));
            }
            at = prev;
        }
        let last = match old.freed_before_next {
            Some(bytes) => bytes,
            None if at.phys.prev_snap_txg == old.txg => self.dead_bytes(at.phys.deadlist)?,
            None => return Err(Error::new(Kind::Invalid, "no such snapshot among those before it")),
        };
        Ok(used.wrapping_add(last))
    }

    /// Bytes that come back if snapshots of one file system go: `first`, `last`, and all between them.
    pub fn freed_by_range(&self, first: &Dataset, last: &Dataset) -> Result<u64> {
        let (mut sum, mut at) = (0u64, last.phys.next_snap);
        let mut before = Txg::MAX;
        while at != first.id {
            let dataset = self.dataset(at, "next snapshot")?;
            if dataset.phys.prev_snap_txg >= before {
                return Err(Error::corrupt("chain of snapshots does not go back in time"));
            }
            before = dataset.phys.prev_snap_txg;
            let all = self.dead_bytes(dataset.phys.deadlist)?;
            let old = self.dead_bytes_born_before(dataset.phys.deadlist, first.phys.prev_snap_txg)?;
            sum = sum.wrapping_add(all.wrapping_sub(old));
            at = dataset.phys.prev_snap;
        }
        Ok(sum)
    }

    /// Whether a snapshot that was taken in `txg` of the directory `dir` is among those that led to `later`.
    pub(crate) fn comes_before(&self, later: &Dataset, dir: DirId, txg: Txg) -> Result<bool> {
        let mut later = later.clone();
        for _ in 0..10_000 {
            if later.is_snapshot() && txg >= later.phys.creation_txg {
                return Ok(false);
            }
            if later.phys.dir == dir {
                return Ok(true);
            }
            let origin = self.dir(later.phys.dir, &later.name)?.phys.origin;
            if origin.is_none() {
                return Ok(false);
            }
            later = self.dataset(origin, "origin")?;
            if later.phys.creation_txg == txg && later.phys.dir == dir {
                return Ok(true);
            }
        }
        Err(Error::corrupt("chain of origins does not end"))
    }

    /// Bytes in a dead list.
    fn dead_bytes(&self, deadlist: ObjectId) -> Result<u64> {
        let object = self.mos().object(deadlist)?;
        let mut bonus = Reader::new(object.bonus(), Endian::Little);
        if object.dnode().object_type == ObjectType::BPOBJ {
            bonus.u64()?;
        }
        bonus.u64()
    }

    /// Bytes in a dead list of blocks born up to `txg`. Errors: `Unsupported` for the lists of before
    /// version 26 of the pool, which do not keep that apart.
    fn dead_bytes_born_before(&self, deadlist: ObjectId, txg: Txg) -> Result<u64> {
        let object = self.mos().object(deadlist)?;
        if object.dnode().object_type == ObjectType::BPOBJ {
            return Err(Error::new(Kind::Unsupported, "dead list without parts by age"));
        }
        let mut sum = 0u64;
        for entry in Zap::open(object)?.entries()? {
            // a key is the txg after which the blocks of the part were born, as hex text
            let key = u64::from_str_radix(&entry.name.to_string(), 16);
            let (Ok(born_after), Some(part)) = (key, entry.value.first_object()) else {
                return Err(Error::corrupt("dead list with an entry that is no part"));
            };
            if Txg::new(born_after) < txg {
                sum = sum.wrapping_add(self.dead_bytes(part)?);
            }
        }
        Ok(sum)
    }
}

fn not_earlier(name: &str) -> Error {
    Error::new(Kind::Invalid, format!("{name} is not earlier"))
}

/// The point from which on writes count.
struct Since {
    txg: Txg,
    referenced: u64,
    freed_before_next: Option<u64>,
}

impl Since {
    fn of(snapshot: &Dataset) -> Since {
        let phys = &snapshot.phys;
        Since { txg: phys.creation_txg, referenced: phys.referenced_bytes, freed_before_next: None }
    }
}
