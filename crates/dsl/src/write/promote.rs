//! Promoting clones: which of two is the other's origin.
//!
//! ```text
//!   before promotion                        after
//!   older ◀── origin ◀── later ◀── head     older ◀── origin ◀── clone        snapshots up to the origin are the
//!                ▲                                        ▲                    clone's now, and with them the space
//!                └── clone                                └── later ◀── head   that was charged for them
//! ```

use base::{Error, Kind, Result};
use dmu::bpobj::Totals;
use format::dsl::{DatasetPhys, DirPhys};
use format::ids::{DatasetId, DirId, Txg};

use super::bookmark::Bookmarks;
use super::deadlist::Deadlist;
use super::rollback::sizes;
use super::space::{Delta, UsedColumn};
use super::{Change, counts, create, livelist, snapshot, space};
use crate::Dsl;
use crate::name::{LEN_MAX, refuse_internal};

/// Datasets of one directory, each with its object, the latest first.
type SnapshotChain = Vec<(DatasetId, DatasetPhys)>;

/// What a promotion moves.
struct Promotion<'a> {
    change: &'a Change<'a>,
    clone_dir: (DirId, DirPhys),
    origin_dir: (DirId, DirPhys),
    clone: DatasetId,
    origin: DatasetId,
    origin_head: DatasetId,
    /// The origin, and the snapshots before it.
    shared: SnapshotChain,
    /// The clone, and its snapshots.
    of_clone: SnapshotChain,
    /// The origin's head, and its snapshots after the origin.
    of_origin: SnapshotChain,
}

/// Makes a clone the origin of what it was cloned from, whose snapshots up to there become the clone's. Returns those
/// of them, and bookmarks, whose names it has already; then nothing is changed.
///
/// Errors: `NotFound`, `Invalid` if it is no clone, `TooLong`, `NoSpace` for a quota, `Encrypted`.
pub fn promote(change: &Change<'_>, dsl: &Dsl, name: &str) -> Result<Vec<String>> {
    refuse_internal(name)?;
    let dir = dsl.find_dir(name)?;
    dsl.refuse_encrypted(&dir)?;
    let head = dsl.head(&dir)?;
    let no_clone = || Error::new(Kind::Invalid, "not a cloned filesystem");
    if dir.phys.origin.is_none() || change.dataset(dir.phys.origin)?.creation_txg < Txg::INITIAL {
        return Err(no_clone());
    }
    let origin = change.dataset(dir.phys.origin)?;
    let origin_dir = change.dir(origin.dir)?;
    let promotion = Promotion {
        change,
        clone: head.id,
        origin: dir.phys.origin,
        origin_head: origin_dir.head_dataset,
        shared: chain(change, dir.phys.origin, origin_dir.origin)?,
        of_clone: chain(change, head.id, dir.phys.origin)?,
        of_origin: chain(change, origin_dir.head_dataset, dir.phys.origin)?,
        clone_dir: (dir.id, dir.phys.clone()),
        origin_dir: (origin.dir, origin_dir),
    };
    let names = promotion.names_to_move(dsl)?;
    let mut conflicts = promotion.conflicts(&names)?;
    if names.iter().any(|(own, _)| name.len() + 1 + own.len() > LEN_MAX) {
        return Err(Error::new(Kind::TooLong, "name is too long"));
    }
    if !conflicts.is_empty() {
        conflicts.sort();
        return Ok(conflicts);
    }
    let moved = promotion.moved_space()?;
    promotion.check_quotas_for(moved.used)?;
    promotion.move_origin()?;
    promotion.move_snapshots(&names)?;
    promotion.move_charges(moved)?;
    livelist::drop_of(change, promotion.clone_dir.0)?;
    livelist::drop_of(change, promotion.origin_dir.0)?;
    Ok(Vec::new())
}

impl Promotion<'_> {
    /// Names and objects of the snapshots that change sides.
    fn names_to_move(&self, dsl: &Dsl) -> Result<Vec<(String, DatasetId)>> {
        let head = self.change.dataset(self.origin_head)?;
        let mut names = dsl.snapshot_ids(&head)?;
        names.retain(|(_, id)| self.shared.iter().any(|(shared, _)| shared == id));
        if names.len() != self.shared.len() {
            return Err(Error::corrupt("snapshots without names"));
        }
        Ok(names)
    }

    fn conflicts(&self, names: &[(String, DatasetId)]) -> Result<Vec<String>> {
        let clone = self.change.dataset(self.clone)?;
        let mut conflicts = Vec::new();
        for (name, _) in names {
            if snapshot::find_named(self.change, &clone, name)?.is_some() {
                conflicts.push(name.clone());
            }
        }
        let origin_txg = self.change.dataset(self.origin)?.creation_txg;
        let own = Bookmarks::open(self.change, self.clone)?.names_up_to(Txg::MAX)?;
        let moving = Bookmarks::open(self.change, self.origin_head)?.names_up_to(origin_txg)?;
        conflicts.extend(moving.into_iter().filter(|name| own.contains(name)));
        Ok(conflicts)
    }

    /// What all snapshots that change sides use: what the origin refers to, and what has died before it.
    fn moved_space(&self) -> Result<Totals> {
        let mut moved = sizes(&self.change.dataset(self.origin)?);
        for (_, phys) in self.shared.iter().filter(|(_, phys)| phys.prev_snap.is_some()) {
            moved = moved.plus(Deadlist::open(self.change, phys.deadlist)?.totals()?);
        }
        match self.origin_dir.1.origin {
            DatasetId::NONE => Ok(moved),
            older => Ok(moved.minus(sizes(&self.change.dataset(older)?))),
        }
    }

    fn check_quotas_for(&self, bytes: u64) -> Result<()> {
        let before = self.change.path_up(self.origin_dir.0)?;
        for above in self.change.path_up(self.clone_dir.0)?.into_iter().filter(|above| !before.contains(above)) {
            let phys = self.change.dir(above)?;
            if phys.quota != 0 && phys.used_bytes.saturating_add(bytes) > phys.quota {
                return Err(Error::new(Kind::NoSpace, "out of space"));
            }
        }
        Ok(())
    }

    fn move_origin(&self) -> Result<()> {
        let Promotion { clone_dir: (clone_dir, _), origin_dir: (origin_dir, origin_phys), .. } = self;
        let origin = self.change.dataset(self.origin)?;
        let oldest = self.of_clone.last().map_or(self.clone, |(id, _)| *id);
        let older = origin_phys.origin;
        self.change.update_dataset(self.origin, |phys| phys.next_snap = oldest)?;
        snapshot::replace_next_clone(self.change, &origin, oldest, Some(origin.next_snap))?;
        self.change.update_dir(*clone_dir, |phys| phys.origin = older)?;
        self.change.update_dir(*origin_dir, |phys| phys.origin = self.origin)?;
        if origin_phys.clones_zap.is_some() {
            let key = |id: DatasetId| format!("{id:x}");
            self.change.remove(origin_phys.clones_zap, &key(self.clone))?;
            if older.is_some() {
                let clones = self.change.dir(self.change.dataset(older)?.dir)?.clones_zap;
                self.change.remove(clones, &key(self.origin_head))?;
                self.change.add_number(clones, self.clone.object())?;
            }
            create::note_clone(self.change, *clone_dir, self.origin_head)?;
        }
        let mut to = Bookmarks::open(self.change, self.clone)?;
        Bookmarks::open(self.change, self.origin_head)?.move_up_to(origin.creation_txg, &mut to)?;
        let next = Deadlist::open(self.change, self.change.dataset(oldest)?.deadlist)?;
        to.next_changed(origin.creation_txg, &next)
    }

    fn move_snapshots(&self, names: &[(String, DatasetId)]) -> Result<()> {
        let (clone_dir, origin_dir) = (self.clone_dir.0, self.origin_dir.0);
        let from = self.change.dataset(self.origin_head)?.snapnames_zap;
        let to = self.change.dataset(self.clone)?.snapnames_zap;
        for (name, id) in names {
            self.change.remove(from, name)?;
            self.change.add(to, name, id.get())?;
            self.change.update_dataset(*id, |phys| phys.dir = clone_dir)?;
            let clones = self.change.dataset(*id)?.next_clones_zap;
            let (left, new) = (self.change.dir(origin_dir)?.clones_zap, self.change.dir(clone_dir)?.clones_zap);
            if clones.is_none() || left.is_none() || new.is_none() {
                continue;
            }
            for (_, clone) in self.change.by_number(clones)? {
                let dir = self.change.dataset(DatasetId::new(clone))?.dir;
                // the former head is in the clone's table already
                if dir != origin_dir {
                    let head = self.change.dir(dir)?.head_dataset;
                    self.change.remove(left, &format!("{head:x}"))?;
                    self.change.add_number(new, head.object())?;
                }
            }
        }
        let count = names.len() as i64;
        counts::adjust(self.change, origin_dir, 0, -count)?;
        counts::adjust(self.change, clone_dir, 0, count)?;
        snapshot::note_snapshots_changed(self.change, origin_dir)?;
        snapshot::note_snapshots_changed(self.change, clone_dir)
    }

    fn move_charges(&self, moved: Totals) -> Result<()> {
        let Promotion { clone_dir: (clone_dir, clone_phys), origin_dir: (origin_dir, origin_phys), .. } = self;
        let origin = self.change.dataset(self.origin)?;
        let older_txg = match origin_phys.origin {
            DatasetId::NONE => Txg::ZERO,
            older => self.change.dataset(older)?.creation_txg,
        };
        let in_snapshots = |phys: &DirPhys| phys.used_breakdown[UsedColumn::Snapshots as usize] as i64;
        let has_columns = |phys: &DirPhys| phys.flags & DirPhys::FLAG_USED_BREAKDOWN != 0;
        let (mut to_clone, mut to_origin) = (0, 0);
        if has_columns(clone_phys) {
            let dead = dead_in(self.change, &self.shared, older_txg)?;
            let dead = dead.wrapping_add(dead_in(self.change, &self.of_clone, older_txg)?);
            to_clone = dead.wrapping_sub(in_snapshots(clone_phys));
        }
        if has_columns(origin_phys) {
            let dead = dead_in(self.change, &self.of_origin, origin.creation_txg)?;
            to_origin = dead.wrapping_sub(in_snapshots(origin_phys));
        }
        let all = Delta::between(Totals::default(), moved);
        space::charge(self.change, *clone_dir, UsedColumn::Snapshots, Delta::used(to_clone))?;
        space::charge(
            self.change,
            *clone_dir,
            UsedColumn::Head,
            Delta { used: all.used.wrapping_sub(to_clone), ..all },
        )?;
        space::charge(self.change, *origin_dir, UsedColumn::Snapshots, Delta::used(to_origin))?;
        let less = all.negative();
        space::charge(
            self.change,
            *origin_dir,
            UsedColumn::Head,
            Delta { used: less.used.wrapping_sub(to_origin), ..less },
        )?;
        let next = self.of_clone.last().map_or(self.clone, |(id, _)| *id);
        let next = Deadlist::open(self.change, self.change.dataset(next)?.deadlist)?;
        let unique = next.totals_born(origin.prev_snap_txg, Txg::MAX)?.used;
        self.change.update_dataset(self.origin, |phys| phys.unique_bytes = unique)
    }
}

/// Dataset `from` and those before it, without `until`.
fn chain(change: &Change<'_>, from: DatasetId, until: DatasetId) -> Result<SnapshotChain> {
    let mut chain = SnapshotChain::new();
    let mut at = from;
    let mut txg = Txg::MAX;
    while at != until {
        if at.is_none() {
            return Err(Error::corrupt("a chain of snapshots does not lead to its origin"));
        }
        let phys = change.dataset(at)?;
        if phys.prev_snap_txg >= txg {
            return Err(Error::corrupt("chain of snapshots does not go back in time"));
        }
        let before = phys.prev_snap;
        txg = phys.prev_snap_txg;
        chain.push((at, phys));
        at = before;
    }
    Ok(chain)
}

/// What is dead in datasets, of blocks born after `txg`.
fn dead_in(change: &Change<'_>, chain: &SnapshotChain, txg: Txg) -> Result<i64> {
    let mut sum = 0u64;
    for (_, phys) in chain {
        sum = sum.wrapping_add(Deadlist::open(change, phys.deadlist)?.totals_born(txg, Txg::MAX)?.used);
    }
    Ok(sum as i64)
}
