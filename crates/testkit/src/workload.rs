//! Pools that tests make, and changes at random beside a [`Model`] of what they hold.

mod bytes;
mod files;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use base::{Env, Error, Mutex, Result};
use device::Device;
use dmu::Tx;
use format::feature::{
    ALLOCATION_CLASSES, ASYNC_DESTROY, BLOCK_CLONING, BOOKMARK_V2, BOOKMARK_WRITTEN, BOOKMARKS, DEVICE_REBUILD,
    DEVICE_REMOVAL, DRAID, EDONR, EMBEDDED_DATA, EMPTY_BPOBJ, ENABLED_TXG, EXTENSIBLE_DATASET, FAST_DEDUP, HOLE_BIRTH,
    LARGE_BLOCKS, LZ4_COMPRESS, OBSOLETE_COUNTS, SHA512, SKEIN, SPACEMAP_HISTOGRAM, SPACEMAP_V2, ZSTD_COMPRESS,
};
use format::ids::{DatasetId, ObjectId, Txg};
use pool::{Candidate, Discovery, FoundDevice, LivePool, NewLeaf, NewPool, NewVdev, NewVdevShape, OpenOptions, Pool};
use vdev::draid::DraidShape;
use vdev::spec::Bias;
use zpl::{NewFs, Zpl, create_fs};

use bytes::bytes;
use files::FileStep;

use crate::files::Files;
use crate::model::{DatasetContents, Model, ObjectModel, Objects, SIZE_MAX};
use crate::rng::Rng;

/// Name of the pools.
pub const NAME: &str = "live";
/// Objects of a dataset.
const OBJECTS_MAX: usize = 16;
/// How datasets deduplicate.
const DEDUP: [&str; 6] = ["off", "on", "verify", "sha512", "skein,verify", "edonr,verify"];
/// How datasets are checksummed; with the last of them, damage is not noticed.
pub const CHECKSUMS: [&str; 4] = ["fletcher4", "sha256", "skein", "off"];
/// Groups that may be brought to disk between two changes: a commit of an intent log may wait for some.
const GROUPS_BETWEEN: u64 = 8;
/// What the pools can do: all that Cenote writes.
pub const FEATURES: [&str; 22] = [
    ASYNC_DESTROY,
    EMPTY_BPOBJ,
    LZ4_COMPRESS,
    SPACEMAP_HISTOGRAM,
    ENABLED_TXG,
    HOLE_BIRTH,
    EXTENSIBLE_DATASET,
    BOOKMARKS,
    BOOKMARK_V2,
    BOOKMARK_WRITTEN,
    EMBEDDED_DATA,
    LARGE_BLOCKS,
    SHA512,
    SKEIN,
    EDONR,
    SPACEMAP_V2,
    ALLOCATION_CLASSES,
    ZSTD_COMPRESS,
    BLOCK_CLONING,
    DEVICE_REBUILD,
    DEVICE_REMOVAL,
    OBSOLETE_COUNTS,
];

/// How a pool is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolLayout {
    /// One device.
    Single,
    /// A mirror of two.
    Mirror,
    /// Three with single parity.
    Raidz1,
    /// One, and one for metadata.
    Special,
    /// A mirror of three beside a single one, with sectors of 512 bytes.
    Uneven,
    /// Five with double parity, with sectors of 512 bytes.
    Raidz2,
    /// One, and one for intent logs.
    Logged,
    /// One, and a mirror of two for intent logs.
    LogMirror,
    /// A mirror of two, with flat dedup tables.
    FastDedup,
    /// One, with sectors of 8 KiB.
    Coarse,
    /// Three with all on each.
    Mirror3,
    /// Six with triple parity.
    Raidz3,
    /// Seven with double parity and a distributed spare.
    Draid,
}

impl PoolLayout {
    /// Those whose power is cut: not `Coarse`, which holds little, nor what are larger kinds of others.
    pub const ALL: [PoolLayout; 9] = [
        PoolLayout::Single,
        PoolLayout::Mirror,
        PoolLayout::Raidz1,
        PoolLayout::Special,
        PoolLayout::Uneven,
        PoolLayout::Raidz2,
        PoolLayout::Logged,
        PoolLayout::LogMirror,
        PoolLayout::FastDedup,
    ];

    /// Number of devices.
    pub fn devices(self) -> usize {
        match self {
            PoolLayout::Single | PoolLayout::Coarse => 1,
            PoolLayout::Mirror | PoolLayout::FastDedup | PoolLayout::Special | PoolLayout::Logged => 2,
            PoolLayout::Raidz1 | PoolLayout::LogMirror | PoolLayout::Mirror3 => 3,
            PoolLayout::Uneven => 4,
            PoolLayout::Raidz2 => 5,
            PoolLayout::Raidz3 => 6,
            PoolLayout::Draid => 7,
        }
    }

    /// Whether it bears the loss of any device.
    pub fn is_redundant(self) -> bool {
        self.expendable() == (0..self.devices())
    }

    /// The devices of which it bears the loss of one.
    pub fn expendable(self) -> Range<usize> {
        match self {
            PoolLayout::LogMirror => 1..3,
            layout if layout.losses() > 0 => 0..self.devices(),
            _ => 0..0,
        }
    }

    /// How many of its devices it bears the loss of, whichever these are.
    pub fn losses(self) -> usize {
        match self {
            PoolLayout::Single | PoolLayout::Special | PoolLayout::Uneven | PoolLayout::Logged => 0,
            PoolLayout::LogMirror | PoolLayout::Coarse => 0,
            PoolLayout::Mirror | PoolLayout::FastDedup | PoolLayout::Raidz1 => 1,
            PoolLayout::Mirror3 | PoolLayout::Raidz2 | PoolLayout::Draid => 2,
            PoolLayout::Raidz3 => 3,
        }
    }

    /// Binary logarithm of its sectors.
    pub fn ashift(self) -> u32 {
        match self {
            PoolLayout::Uneven | PoolLayout::Raidz2 => 9,
            PoolLayout::Coarse => 13,
            _ => 12,
        }
    }

    /// What its pools can do.
    fn features(self) -> impl Iterator<Item = &'static str> {
        let own = match self {
            PoolLayout::Draid => Some(DRAID),
            PoolLayout::FastDedup => Some(FAST_DEDUP),
            _ => None,
        };
        FEATURES.into_iter().chain(own)
    }

    /// Its top-level vdevs, made of these devices.
    pub fn vdevs(self, devices: &[Arc<dyn Device>]) -> Vec<NewVdev> {
        let leaf = |device: &Arc<dyn Device>| NewLeaf { path: device.path().into(), is_file: true };
        let vdev = |shape, bias, devices: &[Arc<dyn Device>]| NewVdev {
            shape,
            bias,
            leaves: devices.iter().map(leaf).collect(),
        };
        match self {
            PoolLayout::Single | PoolLayout::Coarse => vec![vdev(NewVdevShape::Single, None, devices)],
            PoolLayout::Mirror | PoolLayout::Mirror3 | PoolLayout::FastDedup => {
                vec![vdev(NewVdevShape::Mirror, None, devices)]
            }
            PoolLayout::Raidz1 => vec![vdev(NewVdevShape::Raidz(1), None, devices)],
            PoolLayout::Raidz2 => vec![vdev(NewVdevShape::Raidz(2), None, devices)],
            PoolLayout::Raidz3 => vec![vdev(NewVdevShape::Raidz(3), None, devices)],
            PoolLayout::Draid => vec![vdev(NewVdevShape::Draid(DraidShape::new(7, 4, 2, 1)), None, devices)],
            PoolLayout::Uneven => {
                vec![vdev(NewVdevShape::Mirror, None, &devices[..3]), vdev(NewVdevShape::Single, None, &devices[3..])]
            }
            PoolLayout::Special => {
                let special = vdev(NewVdevShape::Single, Some(Bias::Special), &devices[1..]);
                vec![vdev(NewVdevShape::Single, None, &devices[..1]), special]
            }
            PoolLayout::Logged | PoolLayout::LogMirror => {
                let shape = if self == PoolLayout::Logged { NewVdevShape::Single } else { NewVdevShape::Mirror };
                let log = vdev(shape, Some(Bias::Log), &devices[1..]);
                vec![vdev(NewVdevShape::Single, None, &devices[..1]), log]
            }
        }
    }
}

/// A pool that is open, and the model of what it holds.
pub struct Workload {
    /// The pool.
    pub pool: Arc<LivePool>,
    /// What it holds, with the changes of the open group.
    pub model: Model,
    /// The model as of every group that was, or might have been, brought to disk.
    pub groups: BTreeMap<Txg, Model>,
    /// The group of the last change of plain objects.
    pub last_txg: Txg,
    /// How datasets are checksummed.
    pub checksums: &'static [&'static str],
    env: Env,
    /// File systems that are open, by dataset.
    zpls: HashMap<DatasetId, Zpl>,
    rng: Rng,
}

/// The pool on these devices, as their labels tell.
pub fn candidate(devices: &[Arc<dyn Device>]) -> Result<Candidate> {
    let found = devices.iter().filter_map(|device| FoundDevice::examine(device.path(), device.clone()).ok());
    let found = Discovery { devices: found.flatten().collect(), failed: Vec::new() };
    Candidate::all(&found).into_iter().next().ok_or_else(|| Error::corrupt("no pool on these devices"))
}

/// How tests open pools.
pub fn options() -> OpenOptions {
    OpenOptions { cache_bytes: Some(16 << 20), ..OpenOptions::default() }
}

impl Workload {
    /// Makes a pool without anything but an object in its root.
    pub fn create(env: &Env, layout: PoolLayout, devices: &[Arc<dyn Device>], seed: u64) -> Result<Workload> {
        let by_path: HashMap<PathBuf, Arc<dyn Device>> =
            devices.iter().map(|device| (device.path().into(), device.clone())).collect();
        let new = NewPool {
            name: NAME.into(),
            temporary_name: None,
            vdevs: layout.vdevs(devices),
            spares: Vec::new(),
            caches: Vec::new(),
            ashift: Some(layout.ashift()),
            features: layout.features().map(str::to_owned).collect(),
            properties: Vec::new(),
            fs_properties: vec![("compression".into(), "lz4".into())],
            history: "zpool create live".into(),
            host: (7, "here".into()),
        };
        let first = ObjectModel::new(4096, 1, 17);
        let (dnode, id) = (first.dnode(), Arc::new(Mutex::new(ObjectId::NONE)));
        let made = id.clone();
        let pool = LivePool::create(env, &new, &by_path, move |set, tx, _| {
            *made.lock() = set.allocate(tx, dnode)?.id();
            Ok(())
        })?;
        let id = *id.lock();
        let mut model = Model::default();
        model.sets.insert(NAME.into(), DatasetContents::Objects([(id, Arc::new(first))].into()));
        let groups = [(pool.view().uberblock().txg, model.clone())].into();
        Ok(Workload::of(pool, env, model, groups, seed))
    }

    /// Opens a pool that holds what `model` says.
    pub fn import(env: &Env, devices: &[Arc<dyn Device>], model: &Model, seed: u64) -> Result<Workload> {
        let candidate = candidate(devices)?;
        // it may be opened as it is, or with the first group written to it
        let txg = Pool::open(env, &candidate, &options())?.uberblock().txg;
        let pool = LivePool::import(env, &candidate, &options(), (7, "here".into()))?;
        let groups = [(txg, model.clone()), (pool.view().uberblock().txg, model.clone())].into();
        Ok(Workload::of(pool, env, model.clone(), groups, seed))
    }

    fn of(pool: Arc<LivePool>, env: &Env, model: Model, groups: BTreeMap<Txg, Model>, seed: u64) -> Workload {
        let (env, zpls, rng) = (env.clone(), HashMap::new(), Rng::new(seed));
        Workload { pool, model, groups, last_txg: Txg::ZERO, checksums: &CHECKSUMS, env, zpls, rng }
    }

    /// One that changes a dataset of the same pool alone, from another thread. What the model says of others it
    /// does not know.
    pub fn of_dataset(&self, name: &str, seed: u64) -> Workload {
        let own = self.model.sets[name].clone();
        let model = Model { sets: [(name.to_owned(), own)].into() };
        Workload::of(self.pool.clone(), &self.env, model, BTreeMap::new(), seed)
    }

    /// Brings everything to disk. Returns the group that is on disk then.
    pub fn sync(&mut self) -> Result<Txg> {
        self.groups.insert(self.pool.txgs().open_txg(), self.model.clone());
        self.pool.sync()?;
        Ok(self.pool.view().uberblock().txg)
    }

    /// Notes what the groups hold that may be brought to disk before the next change.
    pub fn note_groups(&mut self) -> std::ops::Range<Txg> {
        let open = self.pool.txgs().open_txg();
        let groups = open..open.plus(GROUPS_BETWEEN);
        self.groups.extend(groups.start.until(groups.end).map(|txg| (txg, self.model.clone())));
        groups
    }

    /// Brings a file of a file system to disk, or with number 0 all that was changed in it.
    pub fn sync_file(&mut self, name: &str, ino: ObjectId) -> Result<()> {
        self.note_groups();
        let id = self.pool.view().dsl().find(name)?.id;
        match self.zpls.get(&id) {
            Some(zpl) if ino.is_none() => zpl.sync(),
            Some(zpl) => zpl.sync_object(ino),
            None => Ok(()),
        }
    }

    /// Makes a file system, which is on disk then. Returns the group.
    pub fn create_fs(&mut self, name: &str, properties: &[(&str, &str)]) -> Result<Txg> {
        self.add_dataset(name, properties, DatasetContents::Files(Files::default()), |set, tx| {
            create_fs(set, tx, &NewFs { now: (1000, 0), salt: 5, ..NewFs::default() })
        })
    }

    /// Makes a dataset of plain objects, which is on disk then. Returns the group.
    pub fn create_dataset(&mut self, name: &str, properties: &[(&str, &str)]) -> Result<Txg> {
        let first = ObjectModel::new(512, 1, 17);
        let dnode = first.dnode();
        // the lowest number, as the set is empty
        let contents = DatasetContents::Objects([(ObjectId::new(1), Arc::new(first))].into());
        self.add_dataset(name, properties, contents, |set, tx| {
            assert_eq!(set.allocate(tx, dnode)?.id(), ObjectId::new(1));
            Ok(())
        })
    }

    fn add_dataset(
        &mut self,
        name: &str,
        properties: &[(&str, &str)],
        contents: DatasetContents,
        make: impl FnOnce(&Arc<dmu::Objset>, &Tx<'_>) -> Result<()> + Send + 'static,
    ) -> Result<Txg> {
        // what else would be asked of the parent, which is no real file system
        let own = [("utf8only", "off"), ("normalization", "none"), ("casesensitivity", "sensitive")];
        let properties =
            own.iter().chain(properties).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.model.sets.insert(name.to_owned(), contents);
        self.groups.insert(self.pool.txgs().open_txg(), self.model.clone());
        self.pool.create_dataset(name, properties, |set, tx, _| make(set, tx))?;
        Ok(self.pool.view().uberblock().txg)
    }

    /// Makes, renames or destroys a dataset, or sets a property of one: it is on disk then. Returns the group.
    pub fn step_datasets(&mut self) -> Result<Txg> {
        let is_free = |name: &String| name != NAME && !self.has_dependents(name);
        let names: Vec<String> = self.names().into_iter().filter(is_free).collect();
        let new = format!("{NAME}/{}", self.rng.below(1000));
        if self.has_dataset(&new) {
            return self.sync();
        }
        let choice = if names.is_empty() { 0 } else { self.rng.below(4) };
        if choice == 0 && names.len() < 4 {
            let compression = *self.rng.pick(&["off", "lz4", "zstd", "gzip"]);
            let copies = *self.rng.pick(&["1", "1", "2", "3"]);
            let dedup = *self.rng.pick(&DEDUP);
            let properties = [("compression", compression), ("copies", copies), ("dedup", dedup)];
            return match self.rng.below(2) {
                0 => self.create_dataset(&new, &properties),
                _ => self.create_fs(&new, &properties),
            };
        }
        let name = self.rng.pick(&names).clone();
        if choice < 3 {
            let contents = self.model.sets.remove(&name).expect("it was picked");
            if choice == 2 {
                self.model.sets.insert(new.clone(), contents);
            }
        }
        self.groups.insert(self.pool.txgs().open_txg(), self.model.clone());
        match choice {
            2 => self.pool.rename_dataset(&name, &new)?,
            3 if self.rng.below(2) == 0 => {
                let dedup = *self.rng.pick(&DEDUP);
                self.pool.set_property(&name, "dedup", dedup)?;
            }
            3 => {
                let checksum = *self.rng.pick(self.checksums);
                self.pool.set_property(&name, "checksum", checksum)?;
            }
            _ => {
                self.close(&name)?;
                self.pool.destroy_dataset(&name)?;
            }
        }
        Ok(self.pool.view().uberblock().txg)
    }

    /// Whether a dataset has something that keeps it from being destroyed.
    fn has_dependents(&self, name: &str) -> bool {
        let (snapshots, below) = (format!("{name}@"), format!("{name}/"));
        self.model.sets.keys().any(|other| other.starts_with(&snapshots) || other.starts_with(&below))
            || self.has_dataset(&format!("{name}/%recv"))
    }

    /// Whether the pool has a dataset of that name, also one that takes a stream.
    pub fn has_dataset(&self, name: &str) -> bool {
        self.pool.view().dsl().find_dir(name).is_ok()
    }

    /// Uses a file system no more, until it is asked for again.
    pub fn close(&mut self, name: &str) -> Result<()> {
        let id = self.pool.view().dsl().find(name)?.id;
        self.zpls.remove(&id);
        Ok(())
    }

    /// Names of its datasets.
    pub fn names(&self) -> Vec<String> {
        self.model.sets.keys().filter(|name| !name.contains('@')).cloned().collect()
    }

    /// Makes one change at random, in the open group.
    pub fn step(&mut self) -> Result<()> {
        let names = self.names();
        let name = self.rng.pick(&names).clone();
        let mut contents = self.model.sets.remove(&name).expect("it was picked");
        let done = match &mut contents {
            DatasetContents::Objects(objects) => self.step_objects(&name, objects),
            DatasetContents::Files(files) => self.step_files(&name, files),
        };
        self.model.sets.insert(name, contents);
        done
    }

    fn step_objects(&mut self, name: &str, objects: &mut Objects) -> Result<()> {
        let id = self.pool.view().dsl().find(name)?.id;
        let set = self.pool.head(id)?;
        let pool = self.pool.clone();
        let tx = pool.txgs().begin()?;
        self.last_txg = tx.txg();
        if objects.len() < 4 || objects.len() < OBJECTS_MAX && self.rng.below(100) < 20 {
            return self.allocate(&tx, &set, objects);
        }
        let ids: Vec<ObjectId> = objects.keys().copied().collect();
        let id = *self.rng.pick(&ids);
        let choice = self.rng.below(100);
        if choice < 15 {
            set.free_object(&tx, id)?;
            objects.remove(&id);
            return Ok(());
        }
        let model = Arc::make_mut(objects.get_mut(&id).expect("it was picked"));
        self.change(&tx, &set.object(id)?, model, choice)
    }

    fn allocate(&mut self, tx: &Tx<'_>, set: &Arc<dmu::Objset>, objects: &mut Objects) -> Result<()> {
        let block_size = *self.rng.pick(&[512, 1024, 4096, 4096, 8192, 32 << 10, 128 << 10]);
        let slots = *self.rng.pick(&[1, 1, 1, 2, 4]);
        let indirect_shift = *self.rng.pick(&[17, 17, 12]);
        let mut model = ObjectModel::new(block_size, slots, indirect_shift);
        model.bonus = bytes(&mut self.rng, 64);
        let object = set.allocate(tx, model.dnode())?;
        let len = self.rng.below(20_000) as usize;
        let bytes = bytes(&mut self.rng, len);
        object.write(tx, 0, &bytes)?;
        model.write(0, &bytes);
        objects.insert(object.id(), Arc::new(model));
        Ok(())
    }

    fn change(&mut self, tx: &Tx<'_>, object: &dmu::Object, model: &mut ObjectModel, choice: u64) -> Result<()> {
        let offset = self.rng.below(SIZE_MAX as u64) as usize;
        let len = (self.rng.below(80_000) as usize).min(SIZE_MAX - offset);
        match choice {
            0..30 => {
                object.free_range(tx, offset as u64, len as u64)?;
                model.free_range(offset, len);
            }
            30..40 => {
                let len = self.rng.below(190) as usize;
                let bytes = bytes(&mut self.rng, len);
                object.update(tx, |dnode| dnode.bonus.clone_from(&bytes))?;
                model.bonus = bytes;
            }
            40..45 => {
                let len = self.rng.below(2000) as usize + 1;
                let mut bytes = bytes(&mut self.rng, len);
                // one of zeros only would not be there when it has been written
                bytes[0] = 1;
                object.set_spill(tx, Some(&bytes))?;
                bytes.resize(len.next_multiple_of(512), 0);
                model.spill = Some(bytes);
            }
            45..48 => {
                object.set_spill(tx, None)?;
                model.spill = None;
            }
            _ => {
                let bytes = bytes(&mut self.rng, len);
                object.write(tx, offset as u64, &bytes)?;
                model.write(offset, &bytes);
            }
        }
        Ok(())
    }

    fn step_files(&mut self, name: &str, files: &mut Files) -> Result<()> {
        let zpl = self.zpl(name, files)?;
        let has_files = |(_, contents): &(&String, &DatasetContents)| matches!(contents, DatasetContents::Files(_));
        let others: Vec<String> = self.model.sets.iter().filter(has_files).map(|(name, _)| name.clone()).collect();
        if others.is_empty() || self.rng.below(10) > 0 {
            return FileStep { zpl: &zpl, files, rng: &mut self.rng }.run();
        }
        let other = self.rng.pick(&others).clone();
        let mut contents = self.model.sets.remove(&other).expect("it was picked");
        let done = match &mut contents {
            DatasetContents::Files(theirs) => self
                .source(&other, theirs)
                .and_then(|source| FileStep { zpl: &zpl, files, rng: &mut self.rng }.copy_from(&source, theirs)),
            DatasetContents::Objects(_) => Ok(()),
        };
        self.model.sets.insert(other, contents);
        done
    }

    /// A file system to copy from, or a snapshot of one.
    fn source(&mut self, name: &str, files: &mut Files) -> Result<Zpl> {
        if !name.contains('@') {
            return self.zpl(name, files);
        }
        let view = self.pool.view();
        Zpl::open(view.dsl().objset(&view.dsl().find(name)?, dmu::Mode::Plain)?)
    }

    /// The file system of that dataset, opened as after a crash when it is asked for the first time.
    fn zpl(&mut self, name: &str, files: &mut Files) -> Result<Zpl> {
        let id = self.pool.view().dsl().find(name)?.id;
        if let Some(zpl) = self.zpls.get(&id) {
            return Ok(zpl.clone());
        }
        let txgs = self.pool.txgs().clone();
        let record_bytes = [128 << 10, 32 << 10, 16 << 10][(id.get() % 3) as usize];
        let (xattr_sa, shares) = (id.get() % 2 == 0, Some(self.pool.root_holder()));
        let options = zpl::ZplOptions { xattr_sa, record_bytes, shares, ..zpl::ZplOptions::default() };
        let zpl = Zpl::open_writable(self.pool.head(id)?, txgs, self.env.clone(), options, Some(self.pool.log(id)?))?;
        zpl.replay_log()?;
        let cleaned = zpl.clean_unlinked()?;
        if cleaned != files.orphans.len() as u64 {
            return Err(Error::corrupt(format!("{cleaned} files without a name were freed, not {:?}", files.orphans)));
        }
        files.orphans.clear();
        self.zpls.insert(id, zpl.clone());
        Ok(zpl)
    }
}
