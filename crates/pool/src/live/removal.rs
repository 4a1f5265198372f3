//! Removal of top-level vdevs that have data: disks and mirrors, which lead on to others afterwards.
//!
//! ```text
//!   begin   nothing more is allocated there ─▶ logs begin anew elsewhere ─▶ task: table, births, counts of obsolete bytes
//!   steps   what is in use is copied (`copy`), a job: how far it is stays in the MOS, as OpenZFS has it
//!   finish  task, in a group without copies: the vdev is its table; space maps, objects of leaves go ─▶ blank labels
//!   cancel  task: copies are freed, with the table; the vdev is allocated from again
//! ```
//!
//! To read the table, nothing may be needed that lies on the vdev: the object directory is written anew when a removal
//! begins, and the configuration with every change of vdevs.
//!
//! Source: the behaviour of OpenZFS, and what its pools have on disk.

mod condense;
mod copy;
mod state;
mod table;

use std::collections::HashMap;

use base::{Error, Kind, Result, tunables};
use dsl::write::feature;
use format::feature::{DEVICE_REMOVAL, OBSOLETE_COUNTS};
use format::ids::{Guid, ObjectId, VdevNumber};
use format::removal::{RemovalPhys, TableHeader};
use format::scan::ScanState;
use vdev::spec::IndirectSpec;
use vdev::{Edit, LeafVdev, TopRange, Vdev, VdevId, VdevKind, VdevSpec};
use zio::alloc::Serving;

use super::space_maps::ObsoleteMap;
use super::{LivePool, SyncContext};
use crate::mos::DIRECTORY;
use crate::{FeatureState, metaslabs};
use state::last_removal;
pub(super) use state::{RemovalState, last_condensing};

/// Entry in the table of a removed vdev: counts of obsolete bytes are exact. It is a use of the feature.
pub(super) const OBSOLETE_PRECISE: &str = "com.delphix:obsolete_counts_are_precise";
/// Most bytes of the object directory, which is written anew.
const DIRECTORY_BYTES_MAX: u64 = 64 << 20;
/// OpenZFS's words.
const NOT_OF_ONE_KIND: &str = "invalid config; all top-level vdevs must have the same sector size and not be raidz.";
const IN_PROGRESS: &str = "Pool busy; removal may already be in progress";

impl LivePool {
    /// Begins to move what is on a top-level vdev to the others. Errors: as from [`LivePool::check_movable`]; `Busy` if a log
    /// has yet to be replayed; those of writing; `Suspended`. Nothing is changed then.
    pub(super) fn begin_removal(&self, top: &Vdev) -> Result<()> {
        let number = top.number();
        self.check_movable(top)?;
        let allocator = self.cache().zio().allocator()?;
        allocator.set_serving(number, Serving::Closed);
        let begun = self.begin_new_logs().and_then(|()| {
            // room may have gone meanwhile
            self.check_movable(top)?;
            self.run(move |context| context.begin_removal(number))
        });
        begun.inspect_err(|_| allocator.set_serving(number, Serving::Open))
    }

    /// Gives up the removal that is under way. Errors: `NotFound` if there is none; those of writing.
    pub fn cancel_removal(&self) -> Result<()> {
        let _alone = self.change_vdevs_alone();
        self.run(|context| context.cancel_removal())
    }

    /// The same, with the next group.
    pub(super) fn cancel_removal_soon(&self) {
        self.removal().lock().is_ending = true;
        self.run_later(|context| {
            context.pool.removal().lock().is_ending = false;
            context.cancel_removal().inspect_err(|_| context.pool.removal().stall())
        });
    }

    /// Ends the removal with the next group: all has been copied.
    pub(super) fn end_removal_soon(&self) {
        let Some(phys) = self.removal().running() else { return };
        let Ok(top) = self.tree().top(phys.vdev) else { return };
        let (id, leaves) = (top.id(), self.tree().leaves_of(top.id()));
        let leaves: Vec<VdevId> = leaves.iter().map(|leaf| leaf.id()).collect();
        self.removal().lock().is_ending = true;
        self.run_later_then(
            |context| {
                context.pool.removal().lock().is_ending = false;
                context.finish_removal().inspect_err(|_| context.pool.removal().stall())
            },
            move |pool| pool.vdev_was_removed(id, &leaves),
        );
    }

    /// The devices of a vdev are nobody's from now on.
    fn vdev_was_removed(&self, id: VdevId, leaves: &[VdevId]) {
        let top = self.tree().vdev(id);
        if self.tree().top(top.number()).is_ok_and(|now| now.kind() != VdevKind::Indirect) {
            return;
        }
        let leaves: Vec<LeafVdev<'_>> = leaves.iter().filter_map(|leaf| self.tree().vdev(*leaf).as_leaf()).collect();
        self.let_go(&leaves);
        self.notify("vdev_remove_dev", Some(top));
        tracing::info!(pool = self.name(), vdev = top.name(), "removed");
        for leaf in leaves {
            if self.tree().leaves().all(|other| other.name() != leaf.name()) {
                self.leaf_watch().tell_gone(leaf.name());
            }
        }
    }

    /// Whether what is on a top-level vdev can be moved to the others. Errors, in OpenZFS's words: `Unsupported` if the
    /// pool lacks the feature, or vdevs are not of one kind; `Busy` if another removal is under way, or the vdev lacks
    /// something; `NoSpace`; `Io`.
    pub(super) fn check_movable(&self, top: &Vdev) -> Result<()> {
        let (view, tree) = (self.view(), self.tree());
        let unsupported = |what: &str| Err(Error::new(Kind::Unsupported, what.to_owned()));
        let spec = top.top_spec().filter(|_| top.kind().is_concrete());
        let Some(spec) = spec.filter(|_| view.features().state(DEVICE_REMOVAL) != FeatureState::Disabled) else {
            return unsupported("operation not supported on this type of pool");
        };
        if self.removal().running().is_some_and(|phys| phys.vdev == top.number()) {
            return Err(Error::new(Kind::Busy, "removal for this vdev is already in progress."));
        }
        self.check_room_without(top)?;
        if self.removal().running().is_some() {
            return Err(Error::new(Kind::Busy, IN_PROGRESS));
        }
        // what those lack that are away is on another side
        let leaves = tree.leaves_of(top.id());
        let is_there = |leaf: &&LeafVdev<'_>| leaf.state().health().is_readable();
        let lacks = |leaf: &LeafVdev<'_>| !leaf.state().dtl().is_empty();
        if leaves.iter().filter(is_there).any(lacks) || !leaves.iter().any(|leaf| is_there(&leaf) || !lacks(leaf)) {
            return Err(Error::new(Kind::Busy, IN_PROGRESS));
        }
        if !tree.health(top.id()).is_readable() {
            return Err(Error::new(Kind::Io, "I/O error"));
        }
        let concrete = || tree.tops().filter(|other| other.kind().is_concrete() && !other.is_log());
        let is_leaf = |id: &VdevId| tree.vdev(*id).is_leaf();
        let is_movable = |other: &Vdev| match other.kind() {
            VdevKind::Disk | VdevKind::File => true,
            VdevKind::Mirror => other.children().iter().all(is_leaf),
            // a replacement of a single disk
            VdevKind::Replacing | VdevKind::Spare => true,
            _ => false,
        };
        let ashift = spec.ashift;
        if !concrete().all(|other| is_movable(other) && other.top_spec().is_some_and(|spec| spec.ashift == ashift)) {
            return unsupported(NOT_OF_ONE_KIND);
        }
        let is_normal = |other: &Vdev| other.top_spec().is_some_and(|spec| spec.bias.is_none());
        if spec.zap.is_none() || !concrete().any(|other| other.number() != top.number() && is_normal(other)) {
            return unsupported(NOT_OF_ONE_KIND);
        }
        Ok(())
    }

    /// Bytes of memory that the table of a device would take that was removed, as OpenZFS estimates it: an entry for each
    /// long free run, and for each so many bytes. Errors: as from [`LivePool::check_removable`]; of reading space maps.
    pub fn removal_table_bytes(&self, guid: Guid) -> Result<u64> {
        self.check_removable(guid)?;
        let view = self.view();
        let top = view.tree().tops().find(|top| top.guid() == guid && !top.is_log());
        let Some((top, spec)) = top.and_then(|top| Some((top, top.top_spec()?))) else { return Ok(0) };
        let gap_max = self.env().tunable(tunables::VDEV_REMOVAL_MAX_SPAN);
        let (mut entries, mut bytes) = (0u64, 0u64);
        for metaslab in metaslabs::read(&view, top)?.iter().filter(|metaslab| metaslab.map.is_some()) {
            bytes = bytes.saturating_add_signed(metaslab.allocated);
            let object = view.mos().object(metaslab.map)?;
            let buckets = format::space_map::histogram(object.bonus()).into_iter().flatten();
            for (shift, runs) in (spec.ashift..).zip(buckets) {
                match 1u64.checked_shl(shift + 1).filter(|len| *len < gap_max) {
                    Some(len) => bytes = bytes.saturating_add(runs.saturating_mul(len)),
                    None => entries = entries.saturating_add(runs),
                }
            }
        }
        entries = entries.saturating_add(bytes / self.env().tunable(tunables::ZFS_REMOVE_MAX_SEGMENT).max(1));
        Ok(entries.saturating_mul(TableHeader::ENTRY_SIZE))
    }

    /// Whether the pool has room without a vdev. Errors: `NoSpace`.
    fn check_room_without(&self, top: &Vdev) -> Result<()> {
        let (view, allocator) = (self.view(), self.cache().zio().allocator()?);
        let is_normal = top.top_spec().is_some_and(|spec| spec.bias.is_none());
        let has_room = if is_normal {
            let bytes = metaslabs::count(top) << top.top_spec().map_or(0, |spec| spec.metaslab_shift);
            let root = view.dsl().root()?;
            let left = view.dsl().available_in_dir(&root, view.usable_bytes()?)?;
            left >= self.tree().deflate(top.number(), bytes)?
        } else {
            let space = allocator.class_space(zio::alloc::Class::Normal);
            space.size.saturating_sub(space.allocated) >= allocator.allocated_from(top.number(), 0)
        };
        if has_room { Ok(()) } else { Err(Error::new(Kind::NoSpace, "out of space")) }
    }

    /// Goes on with a removal that was under way when the pool was open last; its first step is for a group to come.
    /// Errors: `Corrupt` if its vdev cannot be one that is being removed.
    pub(super) fn take_up_removal(&self, obsolete: HashMap<VdevNumber, ObsoleteMap>) -> Result<()> {
        self.maps().set_obsolete(obsolete);
        self.removal().lock().phys = last_removal(&self.view())?;
        self.removal().condensing().set(last_condensing(&self.view())?);
        if let Some(phys) = self.removal().running() {
            let top = self.tree().top(phys.vdev)?;
            let has_table = top.top_spec().is_some_and(|spec| spec.removing && spec.indirect.is_some());
            if !top.kind().is_concrete() || !has_table {
                return Err(Error::corrupt(format!("vdev {} is not one that is being removed", phys.vdev)));
            }
            self.cache().zio().allocator()?.set_serving(phys.vdev, Serving::Closed);
        }
        Ok(())
    }

    /// Whether a vdev can stand beside those that were removed, or are being removed. Errors: `Unsupported`.
    pub(super) fn check_beside_removed(&self, new: &VdevSpec) -> Result<()> {
        let Some(last) = self.removal().lock().phys else { return Ok(()) };
        let is_running = last.state == ScanState::Running;
        let ashift = |number| self.tree().top(number).ok().and_then(|top| Some(top.top_spec()?.ashift));
        let is_of_one_size = new.top.as_ref().is_some_and(|spec| Some(spec.ashift) == ashift(last.vdev));
        let has_parity = new.kind.nparity() > 0;
        if (is_running || last.previous.is_some()) && has_parity || is_running && !is_of_one_size {
            let what =
                "invalid config; a pool with removing/removed vdevs does not support adding raidz or dRAID vdevs";
            return Err(Error::new(Kind::Unsupported, what));
        }
        Ok(())
    }

    /// Refuses what cannot be done while a vdev is being removed. Errors: `Busy`.
    pub(super) fn refuse_with_removal(&self) -> Result<()> {
        match self.removal().running() {
            Some(_) => Err(Error::new(Kind::Busy, "device removal in progress")),
            None => Ok(()),
        }
    }
}

impl SyncContext<'_> {
    fn begin_removal(&self, number: VdevNumber) -> Result<()> {
        let (pool, change) = (self.pool, &self.change);
        pool.refuse_with_checkpoint()?;
        pool.refuse_with_removal()?;
        let top = pool.tree().top(number)?;
        let zap = top.top_spec().map_or(ObjectId::NONE, |spec| spec.zap);
        feature::count(change, DEVICE_REMOVAL, 1)?;
        if feature::uses(change, OBSOLETE_COUNTS)?.is_some() {
            feature::count(change, OBSOLETE_COUNTS, 1)?;
            change.add(zap, OBSOLETE_PRECISE, 1)?;
        }
        let mapping_object = table::create_table(change)?;
        let births_object = table::create_births(change)?;
        let objects = IndirectSpec { mapping_object, births_object, previous: None };
        let path = top.as_leaf().map_or("-", |leaf| leaf.vdev().name()).to_owned();
        pool.tree().edit(Edit::BeginMoving(number, objects), &HashMap::new())?;
        pool.maps().add_obsolete(number, ObsoleteMap { zap, map: ObjectId::NONE });
        let last = pool.removal().lock().phys;
        self.set_removal(RemovalPhys {
            state: ScanState::Running,
            vdev: number,
            previous: last.and_then(|last| last.previous),
            start_s: change.env.now_s(),
            end_s: 0,
            to_copy_bytes: pool.cache().zio().allocator()?.allocated_from(number, 0),
            copied_bytes: 0,
        })?;
        pool.removal().wake();
        self.write_directory_anew()?;
        self.name_for_read(DEVICE_REMOVAL)?;
        self.log_event("vdev remove started", &format!("{} vdev {number} {path}", pool.name()));
        self.write_config()
    }

    /// Writes all blocks of the object directory anew: none is on a vdev from which nothing is allocated any more.
    fn write_directory_anew(&self) -> Result<()> {
        let object = self.change.mos.object(DIRECTORY)?;
        let len = object.dnode().size_max();
        let bytes = object.read_whole(len, DIRECTORY_BYTES_MAX)?;
        object.write(self.change.tx, 0, &bytes)
    }

    /// What is left of the vdev is its table.
    fn finish_removal(&self) -> Result<()> {
        let (pool, change) = (self.pool, &self.change);
        let Some(mut phys) = pool.removal().running() else { return Ok(()) };
        let number = phys.vdev;
        let finish = Edit::FinishMoving { number, guid: Guid::random(change.env), previous: phys.previous };
        let gone = pool.tree().edit(finish, &HashMap::new())?;
        pool.cache().zio().allocator()?.forget_top(number);
        pool.maps().free_top(change, number)?;
        if let Some(mut gone) = gone {
            // the table of the vdev stays
            gone.top = None;
            self.free_objects(&gone)?;
        }
        phys.state = ScanState::Finished;
        phys.previous = Some(number);
        phys.end_s = change.env.now_s();
        phys.copied_bytes = phys.to_copy_bytes;
        self.set_removal(phys)?;
        self.log_event("vdev remove completed", &format!("{} vdev {number}", pool.name()));
        self.write_config()
    }

    /// Frees all copies.
    fn cancel_removal(&self) -> Result<()> {
        let (pool, change) = (self.pool, &self.change);
        let Some(mut phys) = pool.removal().running() else {
            return Err(Error::new(Kind::NotFound, "operation is not in progress"));
        };
        let (number, allocator) = (phys.vdev, pool.cache().zio().allocator()?);
        let top = pool.tree().top(number)?;
        let (name, spec) = (top.as_leaf().map_or("-", |leaf| leaf.vdev().name()).to_owned(), top.top_spec().cloned());
        let spec = spec.ok_or_else(|| Error::corrupt("a vdev without space is being removed"))?;
        let copies = self.copies_in_use(top)?;
        feature::count(change, DEVICE_REMOVAL, -1)?;
        if change.remove(spec.zap, OBSOLETE_PRECISE)? {
            feature::count(change, OBSOLETE_COUNTS, -1)?;
        }
        pool.maps().free_obsolete(change, number)?;
        for TopRange { top, range } in copies {
            if let Err(error) = allocator.free_range(change.tx.txg(), top, range) {
                tracing::error!(pool = pool.name(), %top, "a copy cannot be freed: {error}");
            }
        }
        pool.tree().edit(Edit::CancelMoving(number), &HashMap::new())?;
        if let Some(objects) = spec.indirect {
            table::free_table(change, objects.mapping_object)?;
            change.free_object(objects.births_object)?;
        }
        allocator.set_serving(number, Serving::Open);
        phys.state = ScanState::Canceled;
        phys.end_s = change.env.now_s();
        self.set_removal(phys)?;
        self.name_for_read(DEVICE_REMOVAL)?;
        self.log_event("vdev remove canceled", &format!("{} vdev {number} {name}", pool.name()));
        self.write_config()
    }

    /// Where copies are of what is in use on a vdev.
    fn copies_in_use(&self, top: &Vdev) -> Result<Vec<TopRange>> {
        let (tree, allocator) = (self.pool.tree(), self.pool.cache().zio().allocator()?);
        let (number, end) = (top.number(), tree.moved_end(top.number()).unwrap_or(0));
        let mut copies = Vec::new();
        for metaslab in 0..metaslabs::count(top) {
            let range = metaslabs::range(top, metaslab);
            if range.start >= end {
                break;
            }
            let used = allocator.condensed(number, metaslab, self.change.tx.txg())?;
            for range in used.within(range.start..range.end.min(end)) {
                let copied = tree.moved_so_far(&TopRange { top: number, range })?;
                copies.extend(copied.into_iter().flat_map(|(_, copies)| copies));
            }
        }
        Ok(copies)
    }
}
