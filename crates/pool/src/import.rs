//! Opening a pool.

use std::sync::{Arc, OnceLock};

use arc::Gauge;
use base::tunables::ZFS_MAX_MISSING_TVDS;
use base::{Env, Error, Kind, Result, ResultExt};
use dmu::{Cache, Mode, Objset, OnFailure};
use dsl::Dsl;
use format::ids::{DatasetId, Guid, ObjectId, Txg, VdevNumber};
use format::nvlist::{NvList, Value};
use format::uberblock::Uberblock;
use vdev::{Aux, Reflow, Tree, TxgRanges, VdevSpec};
use zio::Zio;

use crate::dedup::sums::Dedup;
use crate::features::{check_readable, unreadable_by_label};
use crate::mos;
use crate::{Candidate, Features, object_directory, packed_nvlist};

/// Which state of the pool to open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rewind {
    /// The latest, or nothing.
    #[default]
    Newest,
    /// The latest that can be opened.
    Recover,
    /// The latest up to that txg.
    AtMost(Txg),
    /// That of exactly that txg.
    Exactly(Txg),
    /// The checkpoint.
    Checkpoint,
}

/// How to open a pool.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Name to open it under; its own if `None`.
    pub name: Option<String>,
    /// Whether its labels keep its own name all the same.
    pub is_temporary: bool,
    /// Guid that it gets, if it is to be another pool from now on.
    pub new_guid: Option<Guid>,
    /// Which state to open.
    pub rewind: Rewind,
    /// What [`Candidate::watch`] found, if it was called.
    pub watched: Option<Uberblock>,
    /// Whether what intent logs have on devices that are gone is given up.
    pub without_log: bool,
    /// A line for the history.
    pub history: Option<String>,
    /// Bytes of blocks to keep in RAM; as many as memory and tunables allow if `None`.
    pub cache_bytes: Option<u64>,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            name: None,
            is_temporary: false,
            new_guid: None,
            rewind: Rewind::Newest,
            watched: None,
            without_log: false,
            history: None,
            cache_bytes: Some(256 << 20),
        }
    }
}

/// The cache over a pipeline: of so many bytes, or as large as memory and tunables allow.
pub(crate) fn cache_for(zio: Arc<Zio>, bytes: Option<u64>) -> Arc<Cache> {
    let Some(bytes) = bytes else {
        let env = zio.env().clone();
        let (cache, worker) = Cache::of_system(zio, Gauge::new("/"));
        // without threads, the thread that keeps a block makes all the room for it
        env.spawn("arc_reclaim", move || worker.run());
        return Arc::new(cache);
    };
    Arc::new(Cache::new(zio, bytes))
}

/// How far an attempt to open a pool got.
pub struct ImportAttempt {
    /// The vdevs as far as they are known: by the pool's configuration, or else by the labels.
    pub tree: Option<Arc<Tree>>,
    /// The pool, or why it cannot be opened.
    pub pool: Result<Pool>,
}

/// A pool, open for reading.
pub struct Pool {
    name: String,
    candidate: Candidate,
    config: NvList,
    uberblock: Uberblock,
    tree: Arc<Tree>,
    cache: Arc<Cache>,
    mos: Arc<Objset>,
    dsl: Dsl,
    features: Features,
    spares: Vec<NvList>,
    caches: Vec<NvList>,
    known_dedup: OnceLock<Dedup>,
    /// Whether it has keys of an old version. New ones do not come.
    old_keys: Arc<OnceLock<bool>>,
}

impl Pool {
    /// What is known of its dedup tables.
    pub(crate) fn known_dedup(&self) -> &OnceLock<Dedup> {
        &self.known_dedup
    }

    pub(crate) fn old_keys(&self) -> &OnceLock<bool> {
        &self.old_keys
    }

    /// Opens a pool from the devices that were found.
    ///
    /// Errors: `Unsupported` naming the features that forbid it; `Missing` if devices are missing beyond
    /// redundancy; `NotFound` if no uberblock is of the txg asked for; `Corrupt`, `Checksum`, `Io` if the
    /// pool's own objects cannot be read.
    pub fn open(env: &Env, candidate: &Candidate, options: &OpenOptions) -> Result<Pool> {
        Pool::attempt(env, candidate, options).pool
    }

    /// As [`Pool::open`], to show what is there of a pool that cannot be opened.
    pub fn attempt(env: &Env, candidate: &Candidate, options: &OpenOptions) -> ImportAttempt {
        let name = options.name.clone().unwrap_or_else(|| candidate.name.clone());
        let mut tree = None;
        let pool = Pool::open_any(env, candidate, options, &name, &mut tree);
        let pool = pool.map_err(|error| blame_missing(error, tree.as_deref())).in_pool(&name);
        ImportAttempt { tree, pool }
    }

    fn open_any(
        env: &Env,
        candidate: &Candidate,
        options: &OpenOptions,
        name: &str,
        reached: &mut Option<Arc<Tree>>,
    ) -> Result<Pool> {
        let unreadable = unreadable_by_label(&candidate.label);
        if !unreadable.is_empty() {
            let what = "This pool uses the following feature(s) not supported by this system:\n\t";
            return Err(Error::new(Kind::Unsupported, format!("{what}{}", unreadable.join("\n\t"))));
        }
        let ring = candidate.uberblocks();
        let chosen: Vec<&Uberblock> = match options.rewind {
            Rewind::Newest | Rewind::Checkpoint => ring.iter().take(1).collect(),
            Rewind::Recover => ring.iter().collect(),
            Rewind::AtMost(txg) => ring.iter().find(|ub| ub.txg <= txg).into_iter().collect(),
            Rewind::Exactly(txg) => ring.iter().find(|ub| ub.txg == txg).into_iter().collect(),
        };
        let mut error = match ring[..] {
            [] => Error::corrupt("no valid uberblock on any device"),
            [ref newest, .., ref oldest] => {
                let what = format!("no such state: the uberblocks are of txg {} to {}", oldest.txg, newest.txg);
                Error::new(Kind::NotFound, what)
            }
            [ref one] => Error::new(Kind::NotFound, format!("no such state: the only uberblock is of txg {}", one.txg)),
        };
        for uberblock in chosen {
            match Pool::open_at(env, candidate, options, name, uberblock, reached) {
                Ok(pool) if options.rewind == Rewind::Checkpoint => {
                    let uberblock = rewound(env, &pool)?;
                    return Pool::open_at(env, candidate, options, name, &uberblock, reached);
                }
                Ok(pool) => return Ok(pool),
                Err(e) => error = e,
            }
        }
        Err(error)
    }

    fn open_at(
        env: &Env,
        candidate: &Candidate,
        options: &OpenOptions,
        name: &str,
        uberblock: &Uberblock,
        reached: &mut Option<Arc<Tree>>,
    ) -> Result<Pool> {
        let devices = candidate.devices_by_guid();
        let mut open_mos = |tree: &NvList| {
            let tree = Arc::new(Tree::open(VdevSpec::parse_root(tree)?, &devices)?);
            tree.set_reflow(Reflow::of_field(uberblock.raidz_reflow));
            *reached = Some(tree.clone());
            let zio = Arc::new(Zio::new(tree.clone(), env.clone()));
            let cache = cache_for(zio, options.cache_bytes);
            let mos = Objset::open(cache.clone(), DatasetId::MOS, uberblock.rootbp, Mode::Plain, name)?;
            Ok::<_, Error>((tree, cache, mos))
        };
        // Labels know enough of the tree to read the MOS, which knows all of it.
        let (_, _, mos) = open_mos(&candidate.vdev_tree)?;
        let config_object = object_directory(&mos)?.require_object_id("config")?;
        let config = packed_nvlist(&mos, config_object)?;
        let (mut tree, mut cache, mut mos) = open_mos(config.list("vdev_tree")?)?;
        // what tells the classes of vdevs may be on removed ones, and so may all that follows
        load_indirect(&tree, &mos)?;
        let classified = with_classes(config.list("vdev_tree")?, &mos);
        if classified != *config.list("vdev_tree")? {
            (tree, cache, mos) = open_mos(&classified)?;
            load_indirect(&tree, &mos)?;
        }
        let features = Features::read(&mos, uberblock.version)?;
        check_readable(&features, name)?;
        if let Some(salt) = mos::checksum_salt(&mos)? {
            cache.zio().set_salt(salt);
        }
        load_dirty_times(&tree, &mos)?;
        check_devices(&tree, env.tunable(ZFS_MAX_MISSING_TVDS))?;
        let dsl = Dsl::open(mos.clone(), name)?;
        Ok(Pool {
            name: name.to_owned(),
            candidate: candidate.clone(),
            uberblock: uberblock.clone(),
            spares: aux_list(&mos, "spares")?,
            caches: aux_list(&mos, "l2cache")?,
            config,
            tree,
            cache,
            mos,
            dsl,
            features,
            known_dedup: OnceLock::new(),
            old_keys: Arc::default(),
        })
    }

    /// The pool that is being made: nothing can be read of it yet.
    pub(crate) fn unborn(name: &str, config: NvList, tree: Arc<Tree>, cache: Arc<Cache>, mos: Arc<Objset>) -> Pool {
        let vdev_tree = config.list("vdev_tree").cloned().unwrap_or_default();
        let candidate = Candidate {
            name: name.to_owned(),
            guid: tree.root().guid(),
            state: crate::PoolState::Active,
            version: 5000,
            txg: Txg::new(config.opt_u64("txg").unwrap_or(0)),
            hostid: config.opt_u64("hostid"),
            hostname: config.opt_str("hostname").map(str::to_owned),
            label: config.clone(),
            vdev_tree,
            devices: Vec::new(),
            former_devices: Vec::new(),
            aux_devices: Vec::new(),
        };
        let uberblock = Uberblock {
            endian: base::Endian::Little,
            version: 5000,
            txg: Txg::ZERO,
            guid_sum: 0,
            timestamp_s: 0,
            rootbp: format::blkptr::BlkPtr::HOLE,
            software_version: 5000,
            mmp: None,
            checkpoint_txg: Txg::ZERO,
            raidz_reflow: 0,
        };
        let dsl = Dsl::unborn(mos.clone(), name);
        let (name, spares, caches, features) = (name.to_owned(), Vec::new(), Vec::new(), Features::default());
        Pool {
            name,
            candidate,
            config,
            uberblock,
            tree,
            cache,
            mos,
            dsl,
            features,
            spares,
            caches,
            known_dedup: OnceLock::new(),
            old_keys: Arc::default(),
        }
    }

    /// The same pool as of another group.
    pub(crate) fn renewed(&self, config: NvList, uberblock: Uberblock, mos: Arc<Objset>) -> Result<Pool> {
        let features = Features::read(&mos, uberblock.version)?;
        Ok(Pool {
            name: self.name.clone(),
            candidate: self.candidate.clone(),
            config,
            uberblock,
            tree: self.tree.clone(),
            cache: mos.cache().clone(),
            dsl: Dsl::open(mos.clone(), &self.name)?,
            features,
            spares: aux_list(&mos, "spares")?,
            caches: aux_list(&mos, "l2cache")?,
            mos,
            known_dedup: OnceLock::new(),
            old_keys: self.old_keys.clone(),
        })
    }

    /// The same pool, whose reads wait for devices that fail, or fail with them. Errors: those of reading it.
    pub(crate) fn reading(&self, on_failure: OnFailure) -> Result<Pool> {
        self.renewed(self.config.clone(), self.uberblock.clone(), self.mos.reading(on_failure))
    }

    /// Name that it was opened under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Guid of the pool.
    pub fn guid(&self) -> Guid {
        self.config.opt_guid("pool_guid").unwrap_or(self.candidate.guid)
    }

    /// The devices and labels that it was opened from.
    pub fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    /// The configuration in the MOS.
    pub fn config(&self) -> &NvList {
        &self.config
    }

    /// The root that it was opened at.
    pub fn uberblock(&self) -> &Uberblock {
        &self.uberblock
    }

    /// The vdevs, with their states and error counts.
    pub fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// The top-level vdevs of this group: while a later one adds some, the tree has more.
    pub(crate) fn tops(&self) -> impl Iterator<Item = &vdev::Vdev> {
        self.tree.tops().filter(|top| top.spec().create_txg <= self.uberblock.txg)
    }

    /// The read cache.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// The pool's own objects.
    pub fn mos(&self) -> &Arc<Objset> {
        &self.mos
    }

    /// The datasets.
    pub fn dsl(&self) -> &Dsl {
        &self.dsl
    }

    /// The features that it uses.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// The configurations of its spares.
    pub fn spares(&self) -> &[NvList] {
        &self.spares
    }

    /// The configurations of its cache devices.
    pub fn caches(&self) -> &[NvList] {
        &self.caches
    }
}

impl Candidate {
    /// The uberblocks on all devices, each once, the one in force first.
    pub fn uberblocks(&self) -> Vec<Uberblock> {
        let mut all: Vec<Uberblock> = Vec::new();
        for uberblock in self.devices.iter().flat_map(|found| &found.uberblocks) {
            if !all.contains(uberblock) {
                all.push(uberblock.clone());
            }
        }
        all.sort_by_key(|uberblock| std::cmp::Reverse(uberblock.rank()));
        all
    }
}

/// Hands the tables of removed devices to the tree. The table of one may lie on another that was
/// removed later, so they are read in rounds, until all are there or none can be read.
fn load_indirect(tree: &Tree, mos: &Arc<Objset>) -> Result<()> {
    let indirect = |top: &vdev::Vdev| Some((top.number(), top.top_spec()?.indirect?.mapping_object));
    let mut left: Vec<(VdevNumber, ObjectId)> = tree.tops().filter_map(indirect).collect();
    while !left.is_empty() {
        let mut failed = Vec::new();
        let mut error = None;
        for &(top, mapping_object) in &left {
            match mos::indirect_mapping(mos, mapping_object) {
                Ok(entries) => tree.set_indirect(top, entries)?,
                Err(e) => {
                    failed.push((top, mapping_object));
                    error = Some(e);
                }
            }
        }
        match error {
            Some(e) if failed.len() == left.len() => return Err(e),
            _ => left = failed,
        }
    }
    Ok(())
}

/// Refuses a pool that lacks more devices than its redundancy bears, unless so many top-level vdevs may be missing.
fn check_devices(tree: &Tree, may_miss: u64) -> Result<()> {
    if tree.health(tree.root().id()).is_readable() {
        return Ok(());
    }
    let gone: Vec<&str> =
        tree.tops().filter(|top| !tree.health(top.id()).is_readable()).map(vdev::Vdev::name).collect();
    if gone.len() as u64 <= may_miss {
        return Ok(());
    }
    let what = format!("one or more devices is currently unavailable: {}", gone.join(", "));
    Err(Error::new(Kind::Missing, what))
}

/// What could not be read of a pool that lacks devices may be on those, and nowhere else: a device that was away and
/// came back lacks what was written meanwhile.
pub(crate) fn blame_missing(error: Error, tree: Option<&Tree>) -> Error {
    let large = tree.into_iter().flat_map(Tree::leaves).filter(|leaf| leaf.state().health().aux == Aux::BadAshift);
    let large: Vec<&str> = large.map(|leaf| leaf.vdev().name()).collect();
    if !large.is_empty() && matches!(error.kind(), Kind::Checksum | Kind::Io | Kind::Corrupt | Kind::Missing) {
        let what = "devices have larger sectors than their vdev was made for (property 'ashift'), and are not used";
        return Error::new(Kind::Missing, format!("{what}: {}", large.join(", ")));
    }
    let gone = tree.into_iter().flat_map(Tree::leaves).filter(|leaf| !leaf.state().health().is_readable());
    let gone: Vec<&str> = gone.map(|leaf| leaf.vdev().name()).collect();
    if gone.is_empty() || !matches!(error.kind(), Kind::Checksum | Kind::Io | Kind::Corrupt) {
        return error;
    }
    let what = "a part of the pool without which it cannot be opened is not on the devices that are there";
    Error::new(Kind::Missing, format!("{what}; missing: {}", gone.join(", "))).with_source(error.to_string())
}

/// Most bytes of the map of transaction groups that a leaf has missed: it is a few ranges.
const DIRTY_TIMES_SIZE_MAX: u64 = 4 << 20;

/// Tells the tree which txgs each leaf has missed.
fn load_dirty_times(tree: &Tree, mos: &Arc<Objset>) -> Result<()> {
    for dtl in tree.leaves().map(|leaf| leaf.state().dtl()) {
        if dtl.object().is_none() {
            continue;
        }
        let runs = match mos::space_map(mos, dtl.object(), DIRTY_TIMES_SIZE_MAX) {
            Ok(runs) => runs,
            Err(e) if mos::is_absent(&e) => continue,
            Err(e) => return Err(e),
        };
        let mut missed = TxgRanges::new();
        for run in runs {
            let from = Txg::new(run.offset);
            let range = from..from.plus(run.len);
            if run.allocated { missed.insert(range) } else { missed.remove(range) }
        }
        dtl.load(missed);
    }
    Ok(())
}

/// The state of the checkpoint, as if it were the newest. Errors: `NotFound` if there is none.
fn rewound(env: &Env, pool: &Pool) -> Result<Uberblock> {
    let uberblock = mos::checkpointed(&pool.mos, pool.uberblock.txg)?;
    let uberblock = uberblock.ok_or_else(|| Error::new(Kind::NotFound, "checkpoint does not exist"))?;
    Ok(Uberblock { txg: pool.uberblock.txg.next(), timestamp_s: env.now_s(), ..uberblock })
}

/// The tree of a configuration with the allocation class of each top-level vdev, which is kept in a
/// ZAP of the vdev. One that cannot be read changes nothing for a reader.
fn with_classes(tree: &NvList, mos: &Arc<Objset>) -> NvList {
    let class_of = |top: &NvList| {
        let zap = top.opt_u64("com.delphix:vdev_zap_top").map(ObjectId::new).filter(|zap| zap.is_some())?;
        let zap = dmu::zap::Zap::open(mos.object(zap).ok()?).ok()?;
        let class = zap.lookup(b"org.zfsonlinux:allocation_bias").ok()??.text();
        ["log", "special", "dedup"].contains(&class.as_str()).then_some(class)
    };
    let mut tops = tree.opt_lists("children").unwrap_or_default().to_vec();
    for top in &mut tops {
        if let Some(class) = class_of(top) {
            top.set("alloc_bias", Value::Str(class));
        }
    }
    let mut tree = tree.clone();
    tree.set("children", Value::Lists(tops));
    tree
}

/// The spares or cache devices: a packed list in an object of its own.
fn aux_list(mos: &Arc<Objset>, name: &str) -> Result<Vec<NvList>> {
    let Some(object) = object_directory(mos)?.object_id(name)? else { return Ok(Vec::new()) };
    Ok(packed_nvlist(mos, object)?.opt_lists(name).unwrap_or_default().to_vec())
}
