//! Leaves that come beside others, and leave them.
//!
//! ```text
//!   attach  a log is emptied ─▶ blank label ─▶ task: mirror, or replacing vdev, in the shape ─▶ it lacks everything yet
//!   a resilver has given it all ─▶ task: what it replaces leaves ─▶ blank label
//!   detach  task: do the others have everything? the vdev without it, or its last leaf alone ─▶ blank label, or
//!           that of a spare
//! ```
//!
//! What is written from the task on is written to the new leaf, too. What was begun before, it may lack: all blocks that
//! are born in the groups that were open then.

use std::collections::HashMap;
use std::sync::Arc;

use base::{Error, Kind, Result, tunables};
use device::Device;
use format::ids::{Guid, ObjectId, Txg};
use format::nvlist::NvList;
use vdev::{Aux, Edit, Health, LeafVdev, VdevId, VdevKind, VdevSpec, VdevState, geometry, label};
use zio::alloc::Serving;

use super::aux_devices::AuxKind;
use super::create::leaf_spec;
use super::leaf_watch::recognize;
use super::vdevs::no_such_device;
use super::{LivePool, NewLeaf, SyncContext};

/// Groups that may have begun to write at a time: the one that is synced, the one that is open, and the next.
pub const GROUPS_UNDER_WAY: u64 = 3;

/// OpenZFS's words.
pub(super) const LARGE_SECTORS: &str =
    "The new device cannot have a higher alignment requirement than the top-level vdev.";

/// How a new leaf comes beside one that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachAs {
    /// As another side of its mirror.
    Side,
    /// To take its place when it has everything.
    Replacement,
    /// The spare with that guid, to stand in for it.
    Spare(Guid),
}

impl AttachAs {
    /// The kind of the vdev above both.
    fn above(self) -> vdev::VdevKind {
        match self {
            AttachAs::Side => vdev::VdevKind::Mirror,
            AttachAs::Replacement => vdev::VdevKind::Replacing,
            AttachAs::Spare(_) => vdev::VdevKind::Spare,
        }
    }

    /// As the history calls it.
    fn words(self) -> [&'static str; 2] {
        match self {
            AttachAs::Side => ["attach", "to"],
            AttachAs::Replacement => ["replace", "for"],
            AttachAs::Spare(_) => ["spare in", "for"],
        }
    }
}

impl LivePool {
    /// Lets a new leaf come beside the one with `guid`, or on its own device ([`LivePool::overwritten_device`]). Its
    /// sectors are what `ashift` says, or the device if these are larger. It lacks everything yet, and the next resilver
    /// brings it; but a vdev for logs is emptied before.
    ///
    /// Errors: `NotFound`; `Unsupported` if that leaf can have no mirror, a spare stands in for it, or nothing has what
    /// was on its own device; `TooBig` if the device is too small for the place; `Unsupported` also if its sectors are too
    /// large; those of writing; `Suspended`.
    pub fn attach(
        &self,
        guid: Guid,
        new: &NewLeaf,
        how: AttachAs,
        ashift: Option<u32>,
        device: Arc<dyn Device>,
    ) -> Result<()> {
        self.attach_in(guid, new, (how, false), ashift, device)
    }

    /// As [`LivePool::attach`]; the leaf is given everything sequentially. Errors: `Exists` if leaves are given what they
    /// lack otherwise; `Unsupported` also if the pool lacks the feature, or the vdev above is of another kind.
    pub fn attach_sequentially(
        &self,
        guid: Guid,
        new: &NewLeaf,
        how: AttachAs,
        ashift: Option<u32>,
        device: Arc<dyn Device>,
    ) -> Result<()> {
        self.attach_in(guid, new, (how, true), ashift, device)
    }

    fn attach_in(
        &self,
        guid: Guid,
        new: &NewLeaf,
        (how, is_sequential): (AttachAs, bool),
        ashift: Option<u32>,
        device: Arc<dyn Device>,
    ) -> Result<()> {
        let _alone = self.change_vdevs_alone();
        self.suspension().check_running()?;
        self.refuse_with_checkpoint()?;
        self.refuse_with_removal()?;
        let leaf = self.tree().leaf(guid).ok_or_else(no_such_device)?;
        let top = self.tree().top_of(leaf.vdev());
        let is_alone = leaf.id() == top.id();
        let is_in_mirror = top.kind() == vdev::VdevKind::Mirror && leaf.parent() == Some(top.id());
        if how == AttachAs::Side && !is_alone && !is_in_mirror {
            return Err(Error::new(Kind::Unsupported, "can only attach to mirrors and top-level disks"));
        }
        self.check_spares(leaf, how)?;
        self.check_rebuild(top, is_sequential, how == AttachAs::Replacement)?;
        let is_its_own = leaf.state().is_on(&device);
        if is_its_own && !self.tree().can_do_without(leaf) {
            return Err(Error::new(Kind::Unsupported, "no valid replicas"));
        }
        let spec = top.top_spec().ok_or_else(no_such_device)?;
        if geometry::leaf_asize(device.size()).map_or(true, |asize| asize < self.tree().least_asize(leaf)) {
            return Err(Error::new(Kind::TooBig, "device is too small"));
        }
        if self.asked_sector(new, ashift, &*device) > spec.ashift {
            return Err(Error::new(Kind::Unsupported, LARGE_SECTORS));
        }
        let log = top.is_log().then_some(top.number());
        log.map_or(Ok(()), |number| self.empty_log_vdev(number))?;
        let guid_of_new = match how {
            AttachAs::Spare(spare) => spare,
            AttachAs::Side | AttachAs::Replacement => Guid::random(self.env()),
        };
        let mut new_leaf = leaf_spec(new, 0, guid_of_new, ObjectId::NONE);
        new_leaf.leaf.iter_mut().for_each(|leaf| leaf.is_spare = matches!(how, AttachAs::Spare(_)));
        let blank = || match how {
            // it is a spare still if the group does not get to disk
            AttachAs::Spare(_) => Ok(()),
            AttachAs::Side | AttachAs::Replacement => label::initialize(&*device).and_then(|()| device.flush()),
        };
        let attached = blank().and_then(|()| self.put_beside(leaf, new_leaf, (how, is_sequential), Some(device)));
        if let Some(number) = log {
            self.cache().zio().allocator()?.set_serving(number, Serving::Open);
        }
        attached
    }

    /// Binary logarithm of the sectors that a new leaf asks of the vdev above: those that `ashift` says, or that the device
    /// can write, if these are larger. Physical sectors of a disk that takes smaller ones, too, are no demand.
    pub(super) fn asked_sector(&self, new: &NewLeaf, ashift: Option<u32>, device: &dyn Device) -> u32 {
        let of_files = || self.env().tunable(tunables::VDEV_FILE_LOGICAL_ASHIFT).min(63) as u32;
        let own = device.logical_sector_bytes().max(1).ilog2();
        let own = if new.is_file { own.max(of_files()) } else { own };
        ashift.unwrap_or(0).max(own)
    }

    /// The device of the leaf with `guid` if it is at `path` and has lost the leaf's label: somebody has overwritten it
    /// while the pool has it open, and it may come again as a new one.
    pub fn overwritten_device(&self, guid: Guid, path: &str) -> Option<Arc<dyn Device>> {
        let leaf = self.tree().leaf(guid).filter(|leaf| leaf.name() == path)?;
        let device = leaf.state().device()?.now();
        // a label that cannot be read is not gone
        let is_readable = label::read_labels(&*device).labels.iter().all(Result::is_ok);
        (is_readable && recognize(leaf, self.config().guid, device.clone()).is_err()).then_some(device)
    }

    /// Lets the distributed spare with that configuration stand in for the leaf with `guid`, which is in its draid.
    ///
    /// Errors: `NotFound`; `Unsupported` if it is not, or a spare stands in for it; `Exists` if leaves are given what they
    /// lack the other way; `Busy` if the spare is in use; those of writing; `Suspended`.
    pub(super) fn attach_distributed(&self, guid: Guid, config: &NvList, is_sequential: bool) -> Result<()> {
        let _alone = self.change_vdevs_alone();
        self.suspension().check_running()?;
        self.refuse_with_checkpoint()?;
        self.refuse_with_removal()?;
        let leaf = self.tree().leaf(guid).ok_or_else(no_such_device)?;
        let mut spare = VdevSpec::parse_leaf(config)?;
        spare.leaf.iter_mut().for_each(|leaf| leaf.is_spare = true);
        let how = AttachAs::Spare(spare.guid);
        match spare.kind {
            VdevKind::DraidSpare { draid_guid, .. } if self.tree().top_of(leaf.vdev()).guid() == draid_guid => {}
            _ => return Err(Error::new(Kind::Unsupported, "a distributed spare is for devices of its own dRAID vdev")),
        }
        self.check_spares(leaf, how)?;
        self.check_rebuild(self.tree().top_of(leaf.vdev()), is_sequential, true)?;
        self.put_beside(leaf, spare, (how, is_sequential), None)
    }

    fn put_beside(
        &self,
        leaf: LeafVdev<'_>,
        new: VdevSpec,
        (how, is_sequential): (AttachAs, bool),
        device: Option<Arc<dyn Device>>,
    ) -> Result<()> {
        let (guid, guid_of_new, above_guid) = (leaf.guid(), new.guid, Guid::random(self.env()));
        let [verb, preposition] = how.words();
        let about = format!("{verb} vdev={} {preposition} vdev={}", new.name(), leaf.name());
        self.run(move |context| {
            let old = context.pool.tree().leaf(guid);
            if let Some(old) = old.filter(|old| device.as_ref().is_some_and(|device| old.state().is_on(device))) {
                // it has lost its label, and the device is that of the new leaf from now on
                old.state().set_health(Health::new(VdevState::Unavail, Aux::CorruptData));
            }
            context.attach(guid, new, how, device, above_guid)?;
            if is_sequential && let Some(leaf) = context.pool.tree().leaf(guid_of_new) {
                context.begin_rebuild(leaf)?;
            }
            context.log_event("vdev attach", &about);
            context.write_config()
        })?;
        let name = if matches!(how, AttachAs::Spare(_)) { "vdev_spare" } else { "vdev_attach" };
        self.notify(name, self.tree().leaf(guid_of_new).map(LeafVdev::vdev));
        self.take_up_rates()
    }

    /// Takes a leaf off its mirror, or ends its replacement; the path of its device, which is nobody's any more.
    ///
    /// Errors: `NotFound`; `Unsupported` if it is in no mirror; `Busy` if it has something that no other leaf has;
    /// those of writing; `Suspended`.
    pub fn detach(&self, guid: Guid) -> Result<String> {
        let _alone = self.change_vdevs_alone();
        self.suspension().check_running()?;
        self.refuse_with_checkpoint()?;
        let not_so = || Error::new(Kind::Unsupported, "only applicable to mirror and replacing vdevs");
        let leaf = self.leaf_or(guid, not_so)?;
        let parent = leaf.parent().map(|id| self.tree().vdev(id));
        if !parent.is_some_and(|parent| parent.kind().is_copies()) {
            return Err(not_so());
        }
        let permanent = self.spare_for_good(leaf);
        let top = self.tree().top_of(leaf.vdev());
        let log = top.is_log().then_some(top.number());
        if let Some(top) = log {
            self.empty_log_vdev(top)?;
            // a leaf of it that came back lacks nothing now
            self.run(|context| context.write_dtls())?;
        }
        let outcome = match self.tree().can_do_without(leaf) {
            true => {
                let about = format!("vdev={}", leaf.name());
                self.run(move |context| {
                    context.detach(guid)?;
                    permanent.map_or(Ok(true), |spare| context.remove_aux(AuxKind::Spare, spare))?;
                    context.log_event("detach", &about);
                    context.write_config()
                })
            }
            false => Err(Error::new(Kind::Busy, "no valid replicas")),
        };
        if let Some(top) = log {
            self.cache().zio().allocator()?.set_serving(top, Serving::Open);
        }
        outcome?;
        self.notify("vdev_remove", Some(leaf.vdev()));
        match leaf.is_spare() {
            true => self.send_home(leaf),
            false => self.let_go(&[leaf]),
        }
        Ok(leaf.name().to_owned())
    }

    /// Takes leaves off, with the next group, whose replacements have everything by now.
    pub(super) fn end_replacements(&self) {
        // while another thread changes vdevs, it is for the next time
        let Some(_alone) = self.try_change_vdevs_alone() else { return };
        let Some(old) = self.replaced_leaf() else { return };
        let (id, guid) = (old.id(), old.guid());
        self.run_later_then(
            move |context| {
                let tree = context.pool.tree();
                // it may have gone, or be needed again
                if context.pool.replaced_leaf().is_none_or(|leaf| leaf.guid() != guid) {
                    return Ok(());
                }
                context.detach(guid)?;
                context.log_event("vdev detach", &format!("vdev={}", tree.vdev(id).name()));
                context.write_config()
            },
            move |pool| pool.leaf_has_gone(id, guid),
        );
    }

    /// A leaf whose replacement lacks nothing any more.
    fn replaced_leaf(&self) -> Option<LeafVdev<'_>> {
        let tree = self.tree();
        self.refuse_with_checkpoint().ok()?;
        tree.iter().filter(|vdev| vdev.kind() == vdev::VdevKind::Replacing).find_map(|vdev| {
            let leaf = |id: Option<&VdevId>| tree.vdev(*id?).as_leaf();
            let (old, new) = (leaf(vdev.children().first())?, leaf(vdev.children().last())?);
            let has_everything = new.state().health().is_readable() && new.state().dtl().is_empty();
            (old.id() != new.id() && has_everything && tree.can_do_without(old)).then_some(old)
        })
    }

    fn leaf_has_gone(&self, id: VdevId, guid: Guid) {
        if self.tree().leaf(guid).is_none()
            && let Some(leaf) = self.tree().vdev(id).as_leaf()
        {
            self.let_go(&[leaf]);
            self.notify("vdev_remove", Some(leaf.vdev()));
            tracing::info!(pool = self.name(), vdev = leaf.name(), "replaced");
            // a new device may be where the old one was
            if self.tree().leaves().all(|other| other.name() != leaf.name()) {
                self.leaf_watch().tell_gone(leaf.name());
            }
        }
    }
}

impl SyncContext<'_> {
    /// Adds a leaf; `above_guid` is that of the vdev above, if it is to be made. A distributed spare has no device.
    fn attach(
        &self,
        beside: Guid,
        mut leaf: VdevSpec,
        how: AttachAs,
        device: Option<Arc<dyn Device>>,
        above_guid: Guid,
    ) -> Result<()> {
        self.make_objects(&mut leaf)?;
        let (tree, guid) = (self.pool.tree(), leaf.guid);
        let attach = Edit::Attach { beside, leaf: Box::new(leaf), above: how.above(), above_guid };
        tree.edit(attach, &device.into_iter().map(|device| (guid, device)).collect())?;
        let new = tree.leaf(guid).ok_or_else(no_such_device)?;
        new.state().dtl().insert(Txg::INITIAL..self.change.tx.txg().plus(GROUPS_UNDER_WAY).next());
        Ok(())
    }

    pub(super) fn detach(&self, guid: Guid) -> Result<()> {
        let heir = self.pool.heir_of_spared(guid);
        let gone = self.pool.tree().edit(Edit::Detach(guid), &HashMap::new())?;
        self.pool.leaf_watch().look_for_growth_soon();
        if let Some(heir) = heir.and_then(|guid| self.pool.tree().leaf(guid)) {
            heir.state().set_unspare(true);
        }
        gone.map_or(Ok(()), |leaf| self.free_objects(&leaf))
    }
}
