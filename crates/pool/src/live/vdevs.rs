//! Changes of the top-level vdevs of a pool that is in use: more of them, and fewer. Leaves that come and go within one
//! are in `attach`.
//!
//! ```text
//!   add     devices ─▶ blank labels ─▶ task: objects, shape of the tree, allocator, configuration
//!   remove  log is emptied ─▶ task: objects freed, a hole in the shape ─▶ blank label
//! ```
//!
//! The label of a new device says nothing until the group that has it writes all labels: a cut before that leaves
//! the pool as it was, and the device nobody's. A device that goes is the pool's until the group without it is on
//! disk.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use base::{Error, Kind, Result};
use device::Device;
use dsl::write::feature;
use format::feature::{ALLOCATION_CLASSES, DRAID, SPACEMAP_HISTOGRAM};
use format::ids::{Guid, ObjectId, VdevNumber};
use format::object_type::ObjectType;
use vdev::spec::TopSpec;
use vdev::{Edit, LeafVdev, VdevSpec, label};
use zio::alloc::Serving;

use super::aux_devices::{AuxKind, distributed_spares, label_all};
use super::create::{DevicesByGuid, empty_top, new_array, plan_tops};
use super::{LivePool, NewDevices, SyncContext};
use crate::mos::DIRECTORY;

/// The configuration of a top-level vdev may not be longer, or it would not fit into a label with the rest.
const TOP_CONFIG_BYTES_MAX: usize = 100 << 10;
/// The directory's entry for the table of all tables of vdevs.
const VDEV_TABLES: &str = "com.delphix:vdev_zap_map";

impl LivePool {
    /// Adds devices, which are in `devices` by path, open for writing; what is in their labels is lost.
    ///
    /// Errors: `Invalid`, `Missing` if a device is too small or not there, `Unsupported` if the pool lacks a feature,
    /// `TooBig` if there are too many leaves in a vdev: nothing is changed then. Those of writing; `Suspended`.
    pub fn add(&self, new: &NewDevices, devices: &HashMap<PathBuf, Arc<dyn Device>>) -> Result<()> {
        let _alone = self.change_vdevs_alone();
        self.suspension().check_running()?;
        let first = self.tree().tops().len() as u64;
        let (tops, by_guid) = plan_tops(self.env(), &new.vdevs, (first, new.ashift), devices, &mut || ObjectId::NONE)?;
        tops.iter().try_for_each(|top| check_config(top).and_then(|()| self.check_beside_removed(top)))?;
        if new.one_ashift {
            tops.iter().try_for_each(|top| self.check_ashift(top))?;
        }
        let set_aside = new.vdevs.iter().filter(|vdev| vdev.is_set_aside()).count();
        if set_aside > 0 && self.view().features().state(ALLOCATION_CLASSES) == crate::FeatureState::Disabled {
            return Err(Error::new(Kind::Unsupported, "pool must be upgraded to add these vdevs"));
        }
        let draids = new.vdevs.iter().filter(|vdev| vdev.is_draid()).count();
        if draids > 0 && self.view().features().state(DRAID) == crate::FeatureState::Disabled {
            return Err(Error::new(Kind::Unsupported, "pool must be upgraded to add these vdevs"));
        }
        for device in by_guid.values() {
            label::initialize(&**device)?;
            device.flush()?;
        }
        let guid = || Guid::random(self.env());
        let mut spares = label_all(AuxKind::Spare, &new.spares, devices, &guid)?;
        spares.extend(tops.iter().flat_map(|top| distributed_spares(top, &guid)));
        let caches = label_all(AuxKind::Cache, &new.caches, devices, &guid)?;
        let used = caches.clone();
        self.run(move |context| {
            if !tops.is_empty() {
                context.add_tops(tops, &by_guid)?;
                feature::count(&context.change, ALLOCATION_CLASSES, set_aside as i64)?;
                feature::count(&context.change, DRAID, draids as i64)?;
                context.name_for_read(DRAID)?;
            }
            context.add_aux(AuxKind::Spare, spares)?;
            context.add_aux(AuxKind::Cache, caches)?;
            context.write_config()
        })?;
        self.use_caches(&used, devices);
        self.notify("vdev_add", None);
        Ok(())
    }

    /// Whether a new vdev, whatever it is for, has the sectors of all others: of a pool with several sizes nothing can be
    /// removed. Logs and what is set aside do not count among the others, as with OpenZFS. Errors: `Unsupported`.
    fn check_ashift(&self, new: &VdevSpec) -> Result<()> {
        let counted = |spec: &&TopSpec| !spec.is_log && spec.bias.is_none() && spec.ashift != 0;
        let Some(ashift) = new.top.as_ref().map(|spec| spec.ashift) else { return Ok(()) };
        let tree = self.tree();
        let concrete = tree.tops().filter(|top| top.kind().is_concrete());
        let known: Vec<u32> =
            concrete.filter_map(|top| top.top_spec().filter(counted)).map(|spec| spec.ashift).collect();
        let is_of_one = known.iter().all(|&other| Some(&other) == known.first());
        if is_of_one && known.first().is_some_and(|&first| first != ashift) {
            let why = "adding devices with different physical sector sizes is not allowed";
            return Err(Error::new(Kind::Unsupported, why));
        }
        Ok(())
    }

    /// Takes a vdev for logs, a spare or a cache device off; the paths of its devices, which are nobody's any more. Of
    /// another top-level vdev this begins to move what it has: none, yet.
    ///
    /// Errors: `NotFound`; as from [`LivePool::check_removable`]; `Busy` if a log that is there has yet to be replayed; those
    /// of writing; `Suspended`. Nothing is changed then.
    pub fn remove(&self, guid: Guid) -> Result<Vec<String>> {
        let _alone = self.change_vdevs_alone();
        self.suspension().check_running()?;
        self.check_removable(guid)?;
        for (aux, known) in [(AuxKind::Spare, self.view().spares()), (AuxKind::Cache, self.view().caches())] {
            let Some(config) = known.iter().find(|config| config.opt_guid("guid") == Some(guid)) else { continue };
            self.run(move |context| context.remove_aux(aux, guid))?;
            self.cache().l2arc().remove(guid);
            self.notify("vdev_remove_aux", None);
            return Ok(config.opt_str("path").map(str::to_owned).into_iter().collect());
        }
        let top = self.tree().tops().find(|top| top.guid() == guid).ok_or_else(no_such_device)?;
        if !top.is_log() {
            return self.begin_removal(top).map(|()| Vec::new());
        }
        let (number, leaves) = (top.number(), self.tree().leaves_of(top.id()));
        self.empty_log_vdev(number)?;
        let allocator = self.cache().zio().allocator()?;
        let about = format!("{} vdev (log) {}", self.name(), top.name());
        let remove = move |context: &SyncContext<'_>| {
            context.remove_log(number)?;
            context.log_event("vdev remove", &about);
            context.write_config()
        };
        self.run(remove).inspect_err(|_| allocator.set_serving(number, Serving::Open))?;
        self.let_go(&leaves);
        self.notify("vdev_remove_dev", Some(top));
        Ok(leaves.iter().map(|leaf| leaf.name().to_owned()).collect())
    }

    /// Whether a device can be removed. Errors: `NotFound`; `Exists` if there is a checkpoint; `Busy` if it is a spare that is in use; `Unsupported`,
    /// saying why not.
    pub fn check_removable(&self, guid: Guid) -> Result<()> {
        self.refuse_with_checkpoint()?;
        let view = self.view();
        let is_it = |config: &format::nvlist::NvList| config.opt_guid("guid") == Some(guid);
        if self.tree().leaf(guid).is_some_and(LeafVdev::is_spare) {
            return Err(Error::new(Kind::Busy, "pool is busy"));
        }
        if view.spares().iter().chain(view.caches()).any(is_it) {
            return Ok(());
        }
        let why = match self.tree().tops().find(|top| top.guid() == guid && top.kind().is_concrete()) {
            Some(top) if top.is_log() => return Ok(()),
            Some(top) => return self.check_movable(top),
            None if self.tree().iter().any(|vdev| vdev.guid() == guid) => {
                "operation not supported on this type of pool"
            }
            None => return Err(no_such_device()),
        };
        Err(Error::new(Kind::Unsupported, why))
    }

    /// Lets leaves that are not in the pool any more be nobody's: labels of txg 0 say where they were, which counts
    /// for nothing. That this fails harms nobody: their labels are older than those of the pool.
    pub(super) fn let_go(&self, leaves: &[LeafVdev<'_>]) {
        for leaf in leaves {
            let Some(device) = leaf.device() else { continue };
            // it is that of the leaf that replaced it
            if self.tree().leaves().any(|other| other.guid() != leaf.guid() && other.state().is_on(&device.now())) {
                continue;
            }
            let told = self.config().label_of_removed(leaf.vdev()).pack();
            let cleared = label::initialize(device);
            let told = cleared.and_then(|()| label::write_config(device, &[0, 1, 2, 3], &told));
            if let Err(error) = told.and_then(|()| device.flush()) {
                tracing::warn!(pool = self.name(), vdev = leaf.name(), "its label is left: {error}");
            }
        }
    }
}

impl SyncContext<'_> {
    /// Adds top-level vdevs, whose objects have no numbers yet.
    fn add_tops(&self, mut tops: Vec<VdevSpec>, devices: &DevicesByGuid) -> Result<()> {
        let pool = self.pool;
        tops.iter_mut().try_for_each(|top| self.make_objects(top))?;
        let numbers: Vec<VdevNumber> = tops.iter().map(|top| VdevNumber::new(top.id)).collect();
        pool.tree().edit(Edit::Add(tops), devices)?;
        for number in numbers {
            let Some(((top, maps), shape)) = empty_top(pool.tree().top(number)?) else { continue };
            pool.maps().add_top(top, maps);
            pool.cache().zio().allocator()?.add_top(shape)?;
        }
        Ok(())
    }

    /// Makes the objects of a vdev that is new in this group, and of those below it.
    pub(super) fn make_objects(&self, spec: &mut VdevSpec) -> Result<()> {
        let change = &self.change;
        spec.create_txg = change.tx.txg();
        if let Some(leaf) = &mut spec.leaf {
            leaf.zap = self.make_vdev_table()?;
        }
        if let Some(top) = &mut spec.top {
            top.zap = self.make_vdev_table()?;
            if top.zap.is_some() {
                self.note_bias(top)?;
            }
            let count = top.metaslabs();
            let array = change.mos.allocate(change.tx, new_array(count))?;
            array.write(change.tx, 0, &vec![0; count as usize * 8])?;
            top.metaslab_array = array.id();
        }
        spec.children.iter_mut().try_for_each(|child| self.make_objects(child))
    }

    /// Makes a table of a vdev; 0 in a pool that has none.
    fn make_vdev_table(&self) -> Result<ObjectId> {
        let Some(tables) = self.change.object_id(DIRECTORY, VDEV_TABLES)? else { return Ok(ObjectId::NONE) };
        let table = self.change.create_table(ObjectType::ZAP_METADATA)?;
        self.change.add_number(tables, table)?;
        Ok(table)
    }

    /// Frees the objects of a vdev that goes, but for its space maps.
    pub(super) fn free_objects(&self, spec: &VdevSpec) -> Result<()> {
        let change = &self.change;
        let zaps = [spec.leaf.as_ref().map(|leaf| leaf.zap), spec.top.as_ref().map(|top| top.zap)];
        for zap in zaps.into_iter().flatten().filter(|zap| zap.is_some()) {
            if let Some(tables) = change.object_id(DIRECTORY, VDEV_TABLES)? {
                change.remove(tables, &format!("{zap:x}"))?;
            }
            change.free_object(zap)?;
        }
        let missed = spec.leaf.as_ref().map_or(ObjectId::NONE, |leaf| leaf.dtl_object);
        if missed.is_some() {
            change.free_object(missed)?;
            feature::count(change, SPACEMAP_HISTOGRAM, -1)?;
        }
        spec.children.iter().try_for_each(|child| self.free_objects(child))
    }

    /// Nothing is on the vdev.
    fn remove_log(&self, number: VdevNumber) -> Result<()> {
        let pool = self.pool;
        let gone = pool.tree().edit(Edit::Remove(number), &HashMap::new())?;
        pool.cache().zio().allocator()?.set_serving(number, Serving::Gone);
        pool.maps().free_top(&self.change, number)?;
        gone.map_or(Ok(()), |top| self.free_objects(&top))
    }
}

fn check_config(top: &VdevSpec) -> Result<()> {
    match top.to_nvlist().pack().len() {
        0..=TOP_CONFIG_BYTES_MAX => Ok(()),
        _ => Err(Error::new(Kind::TooBig, "too many devices in one vdev")),
    }
}

pub(super) fn no_such_device() -> Error {
    Error::new(Kind::NotFound, "no such device in pool")
}

pub(super) fn not_of_this_type() -> Error {
    Error::new(Kind::Unsupported, "operation not supported on this type of vdev")
}

impl LivePool {
    /// The leaf with that guid. Errors: `NotFound`; what `no_leaf` says if it is that of another vdev.
    pub(super) fn leaf_or(&self, guid: Guid, no_leaf: impl FnOnce() -> Error) -> Result<LeafVdev<'_>> {
        let tree = self.tree();
        let is_above = || tree.iter().any(|vdev| vdev.guid() == guid);
        tree.leaf(guid).ok_or_else(|| if is_above() { no_leaf() } else { no_such_device() })
    }
}
