//! Making a pool.
//!
//! ```text
//!   devices ─▶ measures, guids ─▶ vdev tree ─▶ first group (4): the pool's own objects
//!                                                                root file system
//!                                              ─▶ labels, uberblock: now it is a pool
//! ```
//!
//! The numbers of the objects that the configuration speaks of are chosen beforehand, so that the vdev tree
//! is complete when it is opened.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc::Cache;
use base::{Env, Error, Kind, Result, tunables};
use codec::compress::Compress;
use device::Device;
use dmu::INDIRECT_SHIFT;
use dmu::zap::ZapValue;
use dmu::{Objset, ObjsetPolicy};
use dsl::Dsl;
use dsl::property::{DatasetKind, needs, rules};
use dsl::write::feature;
use format::blkptr::BlkPtr;
use format::dnode::Dnode;
use format::feature::{
    ALLOCATION_CLASSES, DRAID, EMBEDDED_DATA, FeatureSet, HOLE_BIRTH, LZ4_COMPRESS, PROJECT_QUOTA, USEROBJ_ACCOUNTING,
    VERSION,
};
use format::ids::{DatasetId, Guid, ObjectId, Txg, VdevNumber};
use format::object_type::ObjectType;
use format::objset::ObjsetType;
use vdev::spec::{Bias, LeafSpec, TopSpec};
use vdev::{Tree, VdevSpec, geometry, label};
use zio::Zio;
use zio::alloc::{Allocator, Class, TopShape};

use super::aux_devices::{AuxKind, distributed_spares, label_all};
use super::config::Config;
use super::space_maps::{MapsOfTop, SpaceMapReader, SpaceMaps};
use super::{LivePool, NewLeaf, NewPool, NewVdev, NewVdevShape, SyncContext};
use crate::import::cache_for;
use crate::mos::DIRECTORY;
use crate::{Pool, metaslabs};

/// From that version of pools on blocks have copies.
const VERSION_OF_COPIES: u64 = 2;
/// The table of all tables of vdevs.
const VDEV_TABLES: ObjectId = ObjectId::new(2);
/// Object of the configuration.
const CONFIG: ObjectId = ObjectId::new(3);

/// Devices by guid of the leaf.
pub(super) type DevicesByGuid = HashMap<Guid, Arc<dyn Device>>;

impl LivePool {
    /// Makes a pool on `devices`, by path: those that `new` names, open for writing. Their labels are
    /// overwritten. The root file system has no contents yet: `make_root` makes them.
    ///
    /// Errors: `Invalid`, `Missing` if a device is too small or not there, `Unsupported` if a feature is not wanted
    /// that the vdevs or the properties need, with nothing written; those of devices.
    pub fn create(
        env: &Env,
        new: &NewPool,
        devices: &HashMap<PathBuf, Arc<dyn Device>>,
        make_root: impl FnOnce(&Arc<Objset>, &dmu::Tx<'_>, &dsl::write::Created) -> Result<()> + Send + 'static,
    ) -> Result<Arc<LivePool>> {
        if new.vdevs.iter().any(NewVdev::is_set_aside) && !new.features.iter().any(|guid| guid == ALLOCATION_CLASSES) {
            let what = "special and dedup vdevs need feature@allocation_classes";
            return Err(Error::new(Kind::Unsupported, what));
        }
        if new.vdevs.iter().any(NewVdev::is_draid) && !new.features.iter().any(|guid| guid == DRAID) {
            return Err(Error::new(Kind::Unsupported, "draid vdevs need feature@draid"));
        }
        let enabled = FeatureSet::of(|feature| new.features.iter().any(|guid| guid == feature.guid));
        needs::check(&rules::check_all(&new.fs_properties, DatasetKind::FileSystem)?, enabled, false)?;
        let (spec, by_guid) = plan(env, new, devices)?;
        for device in by_guid.values() {
            label::initialize(&**device)?;
        }
        let guid = || Guid::random(env);
        let mut spares = label_all(AuxKind::Spare, &new.spares, devices, &guid)?;
        spares.extend(spec.children.iter().flat_map(|top| distributed_spares(top, &guid)));
        let caches = label_all(AuxKind::Cache, &new.caches, devices, &guid)?;
        let tree = Arc::new(Tree::open(spec, &by_guid)?);
        let name = new.temporary_name.as_ref().unwrap_or(&new.name);
        let (cache, mos, maps) = open_empty(env, &tree, name, enabled)?;
        let config = Config {
            name: new.name.clone(),
            guid: tree.root().guid(),
            version: VERSION,
            state: 0,
            txg: Txg::INITIAL,
            host: new.host.clone(),
            comment: new.property("comment"),
            compatibility: new.property("compatibility"),
            features_for_read: Vec::new(),
            enabled,
            uberblock: None,
            object: CONFIG,
            imported: None,
            is_dirty: true,
        };
        let view = Pool::unborn(name, config.mos_config(&tree), tree.clone(), cache.clone(), mos.clone());
        let pool = LivePool::over(env, view, mos, maps, config, Txg::INITIAL.previous());
        let new = new.clone();
        let used = caches.clone();
        pool.run(move |context| {
            context.make_pool(&new, make_root)?;
            context.add_aux(AuxKind::Spare, spares)?;
            context.add_aux(AuxKind::Cache, caches)
        })?;
        pool.use_caches(&used, devices);
        pool.notify("pool_create", None);
        pool.notify_of_leaves();
        Ok(pool)
    }
}

impl SyncContext<'_> {
    /// Makes the first objects of a pool: first those whose numbers the configuration has.
    fn make_pool(
        &self,
        new: &NewPool,
        make_root: impl FnOnce(&Arc<Objset>, &dmu::Tx<'_>, &dsl::write::Created) -> Result<()>,
    ) -> Result<()> {
        let change = &self.change;
        change.create_table_at(DIRECTORY, ObjectType::OBJECT_DIRECTORY)?;
        self.make_vdev_objects()?;
        change.add(DIRECTORY, "config", CONFIG.get())?;
        let mut dnode = Dnode::new(ObjectType::PACKED_NVLIST, 16 << 10, INDIRECT_SHIFT, 1, 1);
        dnode.bonus_type = ObjectType::PACKED_NVLIST_SIZE;
        dnode.bonus = vec![0; 8];
        change.mos.allocate_at(change.tx, CONFIG, dnode)?;
        self.make_features(new)?;
        change.add(DIRECTORY, "creation_version", 5000)?;
        change.add(DIRECTORY, "deflate", 1)?;
        self.make_salt()?;
        let (_, created) = dsl::write::create_pool_dsl(change, &new.fs_properties)?;
        self.make_history()?;
        self.make_head(&created, make_root)?;
        self.log_history(&new.history)?;
        self.log_version("create");
        self.write_config()
    }

    /// Makes the object set of a head that has just been created.
    pub fn make_head(
        &self,
        created: &dsl::write::Created,
        make: impl FnOnce(&Arc<Objset>, &dmu::Tx<'_>, &dsl::write::Created) -> Result<()>,
    ) -> Result<()> {
        let change = &self.change;
        let dsl = Dsl::open(change.mos.clone(), self.pool.name())?;
        let name = dsl.name_of(created.dataset)?;
        let subject = dsl.subject(&name)?;
        let policy = dsl::write::write_policy(subject.levels(), self.pool.config().enabled);
        let cache = self.pool.cache().clone();
        let is_volume = created.kind == DatasetKind::Volume;
        let kind = if is_volume { ObjsetType::Zvol } else { ObjsetType::Zfs };
        let objset = Objset::open_live(cache, created.dataset, BlkPtr::HOLE, kind, &name, policy)?;
        // the objects of a volume are nobody's
        if !is_volume && feature::uses(change, USEROBJ_ACCOUNTING)?.is_some() {
            let by_project = feature::uses(change, PROJECT_QUOTA)?.is_some();
            objset.count_objects(by_project);
            feature::use_in(change, created.dataset, USEROBJ_ACCOUNTING)?;
            if by_project {
                feature::use_in(change, created.dataset, PROJECT_QUOTA)?;
            }
        }
        make(&objset, change.tx, created)?;
        self.set_default_limits(&objset, created)?;
        let head = self.pool.add_head(objset)?;
        self.pool.renew_policy(&head, subject.levels())
    }

    /// Tables and arrays of vdevs, under the numbers that the configuration has.
    fn make_vdev_objects(&self) -> Result<()> {
        let change = &self.change;
        change.create_table_at(VDEV_TABLES, ObjectType::ZAP_METADATA)?;
        change.add(DIRECTORY, "com.delphix:vdev_zap_map", VDEV_TABLES.get())?;
        for vdev in self.pool.tree().iter() {
            let tables = [vdev.leaf_spec().map(|leaf| leaf.zap), vdev.top_spec().map(|top| top.zap)];
            for table in tables.into_iter().flatten().filter(|table| table.is_some()) {
                change.create_table_at(table, ObjectType::ZAP_METADATA)?;
                change.add_number(VDEV_TABLES, table)?;
            }
            let Some(top) = vdev.top_spec() else { continue };
            self.note_bias(top)?;
            let count = metaslabs::count(vdev);
            let array = change.mos.allocate_at(change.tx, top.metaslab_array, new_array(count))?;
            array.write(change.tx, 0, &vec![0; count as usize * 8])?;
        }
        Ok(())
    }

    /// Writes down what a top-level vdev is set aside for.
    pub(super) fn note_bias(&self, top: &TopSpec) -> Result<()> {
        let name = match top.bias {
            None => return Ok(()),
            Some(Bias::Log) => "log",
            Some(Bias::Special) => "special",
            Some(Bias::Dedup) => "dedup",
        };
        self.change.set(top.zap, "org.zfsonlinux:allocation_bias", &ZapValue::of_text(name))
    }

    /// The features that the pool has from the start.
    fn make_features(&self, new: &NewPool) -> Result<()> {
        let change = &self.change;
        self.enable_features(&new.features)?;
        let classes = new.vdevs.iter().filter(|vdev| vdev.is_set_aside()).count();
        if classes > 0 {
            feature::count(change, ALLOCATION_CLASSES, classes as i64)?;
        }
        let draids = new.vdevs.iter().filter(|vdev| vdev.is_draid()).count();
        if draids > 0 {
            feature::count(change, DRAID, draids as i64)?;
            self.name_for_read(DRAID)?;
        }
        Ok(())
    }
}

/// The vdev tree of a new pool, and its devices.
fn plan(env: &Env, new: &NewPool, devices: &HashMap<PathBuf, Arc<dyn Device>>) -> Result<(VdevSpec, DevicesByGuid)> {
    let mut last = CONFIG;
    let mut number = || {
        last = last.next();
        last
    };
    let (children, by_guid) = plan_tops(env, &new.vdevs, (0, new.ashift), devices, &mut number)?;
    let guid = Guid::random(env);
    let kind = vdev::VdevKind::Root;
    Ok((VdevSpec { kind, id: 0, guid, create_txg: Txg::INITIAL, top: None, leaf: None, children }, by_guid))
}

/// New top-level vdevs from number `first` on, with that ashift or what their devices say, and their devices.
/// `number` draws a number for each of their objects.
pub(super) fn plan_tops(
    env: &Env,
    vdevs: &[NewVdev],
    (first, ashift): (u64, Option<u32>),
    devices: &HashMap<PathBuf, Arc<dyn Device>>,
    number: &mut dyn FnMut() -> ObjectId,
) -> Result<(Vec<VdevSpec>, DevicesByGuid)> {
    let guid = || Guid::random(env);
    let mut by_guid = DevicesByGuid::new();
    let mut tops = Vec::new();
    for (id, vdev) in (first..).zip(vdevs) {
        let mut leaves = Vec::new();
        for (id, leaf) in (0..).zip(&vdev.leaves) {
            let device = device_of(leaf, devices)?;
            let guid = guid();
            by_guid.insert(guid, device);
            leaves.push(leaf_spec(leaf, id, guid, number()));
        }
        tops.push(top_of((env, id), vdev, leaves, guid(), ashift, &by_guid, number)?);
    }
    Ok((tops, by_guid))
}

/// The device of a new leaf.
fn device_of(leaf: &NewLeaf, devices: &HashMap<PathBuf, Arc<dyn Device>>) -> Result<Arc<dyn Device>> {
    let missing = || Error::new(Kind::Missing, "device is not open").at_vdev(leaf.path.clone());
    devices.get(Path::new(&leaf.path)).cloned().ok_or_else(missing)
}

/// A new leaf. `zap` is the number of its table.
pub(super) fn leaf_spec(leaf: &NewLeaf, id: u64, guid: Guid, zap: ObjectId) -> VdevSpec {
    VdevSpec {
        kind: if leaf.is_file { vdev::VdevKind::File } else { vdev::VdevKind::Disk },
        id,
        guid,
        create_txg: Txg::INITIAL,
        top: None,
        leaf: Some(LeafSpec { path: Some(leaf.path.clone()), zap, ..LeafSpec::default() }),
        children: Vec::new(),
    }
}

/// A top-level vdev over its leaves.
fn top_of(
    (env, id): (&Env, u64),
    vdev: &NewVdev,
    mut leaves: Vec<VdevSpec>,
    guid: Guid,
    ashift: Option<u32>,
    devices: &DevicesByGuid,
    number: &mut dyn FnMut() -> ObjectId,
) -> Result<VdevSpec> {
    let mut spec = match vdev.shape {
        NewVdevShape::Single => leaves.remove(0),
        NewVdevShape::Mirror | NewVdevShape::Raidz(_) | NewVdevShape::Draid(_) => VdevSpec {
            kind: match vdev.shape {
                NewVdevShape::Raidz(nparity) => vdev::VdevKind::Raidz { nparity },
                NewVdevShape::Draid(shape) => vdev::VdevKind::Draid(shape),
                _ => vdev::VdevKind::Mirror,
            },
            id,
            guid,
            create_txg: Txg::INITIAL,
            top: None,
            leaf: None,
            children: leaves,
        },
    };
    spec.id = id;
    let has_files = vdev.leaves.iter().any(|leaf| leaf.is_file);
    let sectors = |sector| geometry::sector_shift(&spec, devices, sector);
    let ashift = ashift.unwrap_or_else(|| auto_ashift(env, sectors(|device| device.sector_bytes()), has_files));
    // smaller ones than its own a device cannot write, whatever is asked for
    let ashift = ashift.max(sectors(|device| device.logical_sector_bytes()));
    let measures = geometry::plan(env, &spec, devices, ashift)?;
    spec.top = Some(TopSpec {
        ashift: measures.ashift,
        asize: measures.asize,
        metaslab_array: number(),
        metaslab_shift: measures.metaslab_shift,
        is_log: vdev.bias == Some(Bias::Log),
        bias: vdev.bias,
        removing: false,
        zap: number(),
        indirect: None,
        expansion: None,
    });
    Ok(spec)
}

/// The ashift of a new vdev that is asked for none, whose devices have sectors of `1 << found` bytes.
fn auto_ashift(env: &Env, found: u32, has_files: bool) -> u32 {
    let tunable = |tunable| env.tunable(tunable).clamp(geometry::ASHIFT_MIN.into(), geometry::ASHIFT_MAX.into()) as u32;
    let of_files = tunable(tunables::VDEV_FILE_PHYSICAL_ASHIFT).max(tunable(tunables::VDEV_FILE_LOGICAL_ASHIFT));
    let found = if has_files { found.max(of_files) } else { found };
    let least = tunable(tunables::ZFS_VDEV_MIN_AUTO_ASHIFT);
    found.min(tunable(tunables::ZFS_VDEV_MAX_AUTO_ASHIFT)).max(least)
}

/// The pipeline and an empty MOS over vdevs in which nothing is allocated.
fn open_empty(
    env: &Env,
    tree: &Arc<Tree>,
    name: &str,
    enabled: FeatureSet,
) -> Result<(Arc<Cache>, Arc<Objset>, Arc<SpaceMaps>)> {
    let (maps, shapes): (Vec<_>, Vec<TopShape>) = tree.tops().filter_map(empty_top).unzip();
    let tops = maps.into_iter().collect();
    let maps = Arc::new(SpaceMaps::new(tops, HashMap::new()));
    let cache = cache_over(env, tree, &maps, shapes, None)?;
    let mos = open_mos(&cache, &maps, (BlkPtr::HOLE, enabled), name)?;
    Ok((cache, mos, maps))
}

/// A top-level vdev in which nothing is allocated: its number and space maps, and how the allocator sees it.
pub(super) fn empty_top(top: &vdev::Vdev) -> Option<((VdevNumber, MapsOfTop), TopShape)> {
    let spec = top.top_spec()?;
    let ranges: Vec<_> = (0..metaslabs::count(top)).map(|n| metaslabs::range(top, n)).collect();
    let maps = ranges.iter().map(|range| (ObjectId::NONE, range.clone())).collect();
    let maps = MapsOfTop { zap: spec.zap, kept: ObjectId::NONE, array: spec.metaslab_array, ashift: spec.ashift, maps };
    let shape = TopShape {
        top: top.number(),
        class: class_of(top),
        metaslab_shift: spec.metaslab_shift,
        metaslabs: ranges.into_iter().map(|range| (range, 0)).collect(),
    };
    Some(((top.number(), maps), shape))
}

/// The dnode of the array of a top-level vdev's space maps.
pub(super) fn new_array(count: u64) -> Dnode {
    let bytes = (count * 8).next_power_of_two().clamp(512, 128 << 10);
    Dnode::new(ObjectType::OBJECT_ARRAY, bytes, INDIRECT_SHIFT, 1, 1)
}

/// The pipeline that allocates from `shapes`, under a cache of so many bytes, or as large as the system allows.
pub(super) fn cache_over(
    env: &Env,
    tree: &Arc<Tree>,
    maps: &Arc<SpaceMaps>,
    shapes: Vec<TopShape>,
    cache_bytes: Option<u64>,
) -> Result<Arc<Cache>> {
    let zio = Arc::new(Zio::new(tree.clone(), env.clone()));
    let allocator = Allocator::new(tree.clone(), Box::new(SpaceMapReader(maps.clone())));
    for shape in shapes {
        allocator.add_top(shape)?;
    }
    zio.set_allocator(Arc::new(allocator));
    Ok(cache_for(zio, cache_bytes))
}

/// The MOS under `rootbp`, to be changed, in a pool with those features.
pub(super) fn open_mos(
    cache: &Arc<Cache>,
    maps: &SpaceMaps,
    (rootbp, enabled): (BlkPtr, FeatureSet),
    name: &str,
) -> Result<Arc<Objset>> {
    let mos = Objset::open_live(cache.clone(), DatasetId::MOS, rootbp, ObjsetType::Meta, name, mos_policy(enabled))?;
    maps.set_mos(&mos);
    Ok(mos)
}

/// What the space of a top-level vdev is for.
pub(super) fn class_of(top: &vdev::Vdev) -> Class {
    match top.top_spec().map(|spec| (spec.is_log, spec.bias)) {
        Some((true, _) | (_, Some(Bias::Log))) => Class::Log,
        Some((_, Some(Bias::Special))) => Class::Special,
        Some((_, Some(Bias::Dedup))) => Class::Dedup,
        _ => Class::Normal,
    }
}

/// How the MOS is written.
pub(super) fn mos_policy(enabled: FeatureSet) -> ObjsetPolicy {
    let compress = if enabled.has(LZ4_COMPRESS) { Compress::Lz4 } else { Compress::Lzjb };
    ObjsetPolicy {
        compress,
        compress_meta: compress,
        copies: if enabled.version() < VERSION_OF_COPIES { 1 } else { 3 },
        is_meta: true,
        embed: enabled.has(EMBEDDED_DATA),
        hole_birth: enabled.has(HOLE_BIRTH),
        pool_version: enabled.version(),
        ..ObjsetPolicy::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ashift_of_new_vdevs() {
        let env = |name: &'static str, number| Env::fixed(7).with_tunables(move |it| (it == name).then_some(number));
        let unset = env("", 0);
        assert_eq!([9, 12, 13, 16, 20].map(|found| auto_ashift(&unset, found, true)), [9, 12, 13, 14, 14]);
        let files = env("vdev_file_physical_ashift", 12);
        assert_eq!([true, false].map(|has_files| auto_ashift(&files, 9, has_files)), [12, 9]);
        assert_eq!(auto_ashift(&env("zfs_vdev_min_auto_ashift", 13), 9, false), 13);
        assert_eq!(auto_ashift(&env("zfs_vdev_max_auto_ashift", 99), 99, false), 16);
    }
}
