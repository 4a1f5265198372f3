//! Clones, and which of two is the other's origin.
//!
//! ```text
//!   before promotion                        after
//!   older ◀── origin ◀── later ◀── head     older ◀── origin ◀── clone        snapshots up to the origin are the
//!                ▲                                        ▲                    clone's now, and with them the space
//!                └── clone                                └── later ◀── head   that was charged for them
//! ```

use base::{Error, Kind, Result, ResultExt};
use dmu::bpobj::Totals;
use format::dsl::{DatasetPhys, DirPhys};
use format::object_type::ObjectType;

use super::bookmark::Bookmarks;
use super::create::{Created, refuse_encrypted};
use super::deadlist::Deadlist;
use super::name::{LEN_MAX, refuse_internal};
use super::rollback::{TXG_INITIAL, sizes};
use super::space::{Delta, UsedColumn};
use super::{Change, check_name};
use crate::Dsl;
use crate::property::rules;
use crate::property::{DatasetKind, ValueOrigin, needs};

/// Datasets of one directory, each with its object, the latest first.
type SnapshotChain = Vec<(u64, DatasetPhys)>;

/// What a promotion moves.
struct Promotion {
    clone_dir: (u64, DirPhys),
    origin_dir: (u64, DirPhys),
    clone: u64,
    origin: u64,
    origin_head: u64,
    /// The origin, and the snapshots before it.
    shared: SnapshotChain,
    /// The clone, and its snapshots.
    of_clone: SnapshotChain,
    /// The origin's head, and its snapshots after the origin.
    of_origin: SnapshotChain,
}

impl Change<'_> {
    /// Makes a file system or volume that begins with what a snapshot holds, with properties of its own. Its object set
    /// is the snapshot's, whose log is stale: the caller writes the head without it. `None` if the snapshot is of this
    /// group: the next one can clone it.
    ///
    /// Errors: `NotFound` for the snapshot or the parent, `Exists`, those of [`check_name`], those of wrong properties,
    /// `NoSpace` for a reservation, `Encrypted`.
    pub fn clone_snapshot(
        &self,
        dsl: &Dsl,
        snapshot: &str,
        target: &str,
        properties: &[(String, String)],
        usable_bytes: u64,
    ) -> Result<Option<Created>> {
        check_name(target)?;
        let source = dsl.subject(snapshot)?;
        let of = source.dataset().filter(|dataset| dataset.is_snapshot());
        let of = of.ok_or_else(|| Error::new(Kind::Invalid, "the source is no snapshot"))?;
        let Some((above, own_name)) = target.rsplit_once('/') else {
            return Err(Error::new(Kind::Invalid, "missing dataset name"));
        };
        let parent = match dsl.subject(above) {
            Err(e) if e.kind() == Kind::NotFound => {
                return Err(Error::new(Kind::NotFound, format!("no such parent '{above}'")));
            }
            parent => parent?,
        };
        if parent.kind() != DatasetKind::FileSystem {
            return Err(Error::new(Kind::Invalid, "parent is not a filesystem"));
        }
        refuse_encrypted(dsl, source.dir())?;
        refuse_encrypted(dsl, parent.dir())?;
        if self.number(parent.dir().phys.child_zap, own_name)?.is_some() {
            return Err(Error::new(Kind::Exists, "dataset already exists"));
        }
        let mut given = Vec::new();
        for (name, text) in properties {
            let one = rules::check(name, text, source.head_kind(), true)?;
            if one.property.is_some_and(|property| property.info().from == ValueOrigin::Contents) {
                let what = format!("'{name}': a clone has it from its origin");
                return Err(Error::new(Kind::Invalid, what));
            }
            given.push(one);
        }
        needs::check(&given, self.features()?, true)?;
        self.check_room_for(dsl, &parent, &given, usable_bytes)?;
        let origin_head = self.dataset(self.dir(of.phys.dir)?.head_dataset)?;
        Deadlist::open(self, origin_head.deadlist)?.check_parts()?;
        if of.phys.creation_txg >= self.tx.txg() {
            return Ok(None);
        }
        let dir = self.create_dir(Some((parent.dir().id, own_name)))?;
        let dataset = self.create_head(dir, of.id)?;
        self.count_file_systems(parent.dir().id, dir)?;
        self.store_given(dir, &given).in_dataset(target)?;
        Ok(Some(Created { kind: source.head_kind(), dir, dataset, contents: Vec::new() }))
    }

    /// Makes a clone the origin of what it was cloned from, whose snapshots up to there become the clone's. Returns those
    /// of them, and bookmarks, whose names it has already; then nothing is changed.
    ///
    /// Errors: `NotFound`, `Invalid` if it is no clone, `TooLong`, `NoSpace` for a quota, `Encrypted`.
    pub fn promote(&self, dsl: &Dsl, name: &str) -> Result<Vec<String>> {
        refuse_internal(name)?;
        let dir = dsl.find_dir(name)?;
        refuse_encrypted(dsl, &dir)?;
        let head = dsl.head(&dir)?;
        let no_clone = || Error::new(Kind::Invalid, "not a cloned filesystem");
        if dir.phys.origin == 0 || self.dataset(dir.phys.origin)?.creation_txg < TXG_INITIAL {
            return Err(no_clone());
        }
        let origin = self.dataset(dir.phys.origin)?;
        let origin_dir = self.dir(origin.dir)?;
        let promotion = Promotion {
            clone: head.id,
            origin: dir.phys.origin,
            origin_head: origin_dir.head_dataset,
            shared: self.chain(dir.phys.origin, origin_dir.origin)?,
            of_clone: self.chain(head.id, dir.phys.origin)?,
            of_origin: self.chain(origin_dir.head_dataset, dir.phys.origin)?,
            clone_dir: (dir.id, dir.phys.clone()),
            origin_dir: (origin.dir, origin_dir),
        };
        for (_, phys) in promotion.shared.iter().chain(&promotion.of_clone).chain(&promotion.of_origin) {
            Deadlist::open(self, phys.deadlist)?.check_parts()?;
        }
        let names = self.names_to_move(dsl, &promotion)?;
        let mut conflicts = self.conflicts(&promotion, &names)?;
        if names.iter().any(|(own, _)| name.len() + 1 + own.len() > LEN_MAX) {
            return Err(Error::new(Kind::TooLong, "name is too long"));
        }
        if !conflicts.is_empty() {
            conflicts.sort();
            return Ok(conflicts);
        }
        let moved = self.moved_space(&promotion)?;
        self.check_quotas_for(moved.used, &promotion)?;
        self.move_origin(&promotion)?;
        self.move_snapshots(&promotion, &names)?;
        self.move_charges(&promotion, moved)?;
        self.drop_livelist(promotion.clone_dir.0)?;
        self.drop_livelist(promotion.origin_dir.0)?;
        Ok(Vec::new())
    }

    /// Dataset `from` and those before it, without `until`.
    fn chain(&self, from: u64, until: u64) -> Result<SnapshotChain> {
        let mut chain = SnapshotChain::new();
        let mut at = from;
        let mut txg = u64::MAX;
        while at != until {
            if at == 0 {
                return Err(Error::corrupt("a chain of snapshots does not lead to its origin"));
            }
            let phys = self.dataset(at)?;
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

    /// Names and objects of the snapshots that change sides.
    fn names_to_move(&self, dsl: &Dsl, promotion: &Promotion) -> Result<Vec<(String, u64)>> {
        let head = self.dataset(promotion.origin_head)?;
        let mut names = dsl.names(head.snapnames_zap)?;
        names.retain(|(_, id)| promotion.shared.iter().any(|(shared, _)| shared == id));
        if names.len() != promotion.shared.len() {
            return Err(Error::corrupt("snapshots without names"));
        }
        Ok(names)
    }

    fn conflicts(&self, promotion: &Promotion, names: &[(String, u64)]) -> Result<Vec<String>> {
        let clone = self.dataset(promotion.clone)?;
        let mut conflicts = Vec::new();
        for (name, _) in names {
            if self.snapshot_named(&clone, name)?.is_some() {
                conflicts.push(name.clone());
            }
        }
        let origin_txg = self.dataset(promotion.origin)?.creation_txg;
        let own = Bookmarks::open(self, promotion.clone)?.names_up_to(u64::MAX)?;
        let moving = Bookmarks::open(self, promotion.origin_head)?.names_up_to(origin_txg)?;
        conflicts.extend(moving.into_iter().filter(|name| own.contains(name)));
        Ok(conflicts)
    }

    /// What all snapshots that change sides use: what the origin refers to, and what has died before it.
    fn moved_space(&self, promotion: &Promotion) -> Result<Totals> {
        let mut moved = sizes(&self.dataset(promotion.origin)?);
        for (_, phys) in promotion.shared.iter().filter(|(_, phys)| phys.prev_snap != 0) {
            moved = moved.plus(Deadlist::open(self, phys.deadlist)?.totals()?);
        }
        match promotion.origin_dir.1.origin {
            0 => Ok(moved),
            older => Ok(moved.minus(sizes(&self.dataset(older)?))),
        }
    }

    fn check_quotas_for(&self, bytes: u64, promotion: &Promotion) -> Result<()> {
        let before = self.path_up(promotion.origin_dir.0)?;
        for above in self.path_up(promotion.clone_dir.0)?.into_iter().filter(|above| !before.contains(above)) {
            let phys = self.dir(above)?;
            if phys.quota != 0 && phys.used_bytes.saturating_add(bytes) > phys.quota {
                return Err(Error::new(Kind::NoSpace, "out of space"));
            }
        }
        Ok(())
    }

    /// What is dead in datasets, of blocks born after `txg`.
    fn dead_in(&self, chain: &SnapshotChain, txg: u64) -> Result<i64> {
        let mut sum = 0u64;
        for (_, phys) in chain {
            sum = sum.wrapping_add(Deadlist::open(self, phys.deadlist)?.totals_born(txg, u64::MAX)?.used);
        }
        Ok(sum as i64)
    }

    fn move_origin(&self, promotion: &Promotion) -> Result<()> {
        let Promotion { clone_dir: (clone_dir, clone_phys), origin_dir: (origin_dir, origin_phys), .. } = promotion;
        let origin = self.dataset(promotion.origin)?;
        let oldest = promotion.of_clone.last().map_or(promotion.clone, |(id, _)| *id);
        let older = origin_phys.origin;
        self.update_dataset(promotion.origin, |phys| phys.next_snap = oldest)?;
        self.replace_next_clone(&origin, oldest, Some(origin.next_snap))?;
        self.update_dir(*clone_dir, |phys| phys.origin = older)?;
        self.update_dir(*origin_dir, |phys| phys.origin = promotion.origin)?;
        let key = |id: u64| format!("{id:x}");
        self.remove(origin_phys.clones_zap, &key(promotion.clone))?;
        if older != 0 {
            let clones = self.dir(self.dataset(older)?.dir)?.clones_zap;
            self.remove(clones, &key(promotion.origin_head))?;
            self.add_number(clones, promotion.clone)?;
        }
        let own = match clone_phys.clones_zap {
            0 => {
                let table = self.create_table(ObjectType::DSL_CLONES)?;
                self.update_dir(*clone_dir, |phys| phys.clones_zap = table)?;
                table
            }
            table => table,
        };
        self.add_number(own, promotion.origin_head)?;
        let mut to = Bookmarks::open(self, promotion.clone)?;
        Bookmarks::open(self, promotion.origin_head)?.move_up_to(origin.creation_txg, &mut to)?;
        let next = Deadlist::open(self, self.dataset(oldest)?.deadlist)?;
        to.next_changed(origin.creation_txg, &next)
    }

    fn move_snapshots(&self, promotion: &Promotion, names: &[(String, u64)]) -> Result<()> {
        let (clone_dir, origin_dir) = (promotion.clone_dir.0, promotion.origin_dir.0);
        let from = self.dataset(promotion.origin_head)?.snapnames_zap;
        let to = self.dataset(promotion.clone)?.snapnames_zap;
        for (name, id) in names {
            self.remove(from, name)?;
            self.add(to, name, *id)?;
            self.update_dataset(*id, |phys| phys.dir = clone_dir)?;
            let clones = self.dataset(*id)?.next_clones_zap;
            if clones == 0 {
                continue;
            }
            let (left, new) = (self.dir(origin_dir)?.clones_zap, self.dir(clone_dir)?.clones_zap);
            for (_, clone) in self.by_number(clones)? {
                let dir = self.dataset(clone)?.dir;
                // the former head is in the clone's table already
                if dir != origin_dir {
                    let head = self.dir(dir)?.head_dataset;
                    self.remove(left, &format!("{head:x}"))?;
                    self.add_number(new, head)?;
                }
            }
        }
        let count = names.len() as i64;
        self.adjust_counts(origin_dir, 0, -count)?;
        self.adjust_counts(clone_dir, 0, count)?;
        self.note_snapshots_changed(origin_dir)?;
        self.note_snapshots_changed(clone_dir)
    }

    fn move_charges(&self, promotion: &Promotion, moved: Totals) -> Result<()> {
        let Promotion { clone_dir: (clone_dir, clone_phys), origin_dir: (origin_dir, origin_phys), .. } = promotion;
        let origin = self.dataset(promotion.origin)?;
        let older_txg = match origin_phys.origin {
            0 => 0,
            older => self.dataset(older)?.creation_txg,
        };
        let in_snapshots = |phys: &DirPhys| phys.used_breakdown[UsedColumn::Snapshots as usize] as i64;
        let has_columns = |phys: &DirPhys| phys.flags & DirPhys::FLAG_USED_BREAKDOWN != 0;
        let (mut to_clone, mut to_origin) = (0, 0);
        if has_columns(clone_phys) {
            let dead = self.dead_in(&promotion.shared, older_txg)?;
            let dead = dead.wrapping_add(self.dead_in(&promotion.of_clone, older_txg)?);
            to_clone = dead.wrapping_sub(in_snapshots(clone_phys));
        }
        if has_columns(origin_phys) {
            let dead = self.dead_in(&promotion.of_origin, origin.creation_txg)?;
            to_origin = dead.wrapping_sub(in_snapshots(origin_phys));
        }
        let all = Delta::between(Totals::default(), moved);
        self.charge(*clone_dir, UsedColumn::Snapshots, Delta::used(to_clone))?;
        self.charge(*clone_dir, UsedColumn::Head, Delta { used: all.used.wrapping_sub(to_clone), ..all })?;
        self.charge(*origin_dir, UsedColumn::Snapshots, Delta::used(to_origin))?;
        let less = all.negative();
        self.charge(*origin_dir, UsedColumn::Head, Delta { used: less.used.wrapping_sub(to_origin), ..less })?;
        let next = promotion.of_clone.last().map_or(promotion.clone, |(id, _)| *id);
        let next = Deadlist::open(self, self.dataset(next)?.deadlist)?;
        let unique = next.totals_born(origin.prev_snap_txg, u64::MAX)?.used;
        self.update_dataset(promotion.origin, |phys| phys.unique_bytes = unique)
    }
}
