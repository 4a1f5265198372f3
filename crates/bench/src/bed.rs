//! What is measured on: a pool of one vdev, with one file system below its root.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Env, Error, Kind, Result};
use device::{Device, FileDevice, OpenMode};
use dmu::{Objset, Tx};
use format::feature::{
    ALLOCATION_CLASSES, ASYNC_DESTROY, EMBEDDED_DATA, EMPTY_BPOBJ, ENABLED_TXG, EXTENSIBLE_DATASET, HOLE_BIRTH,
    LARGE_BLOCKS, LZ4_COMPRESS, SPACEMAP_HISTOGRAM, SPACEMAP_V2, ZSTD_COMPRESS,
};
use pool::{
    Candidate, Discovery, FoundDevice, LivePool, NewDevices, NewLeaf, NewPool, NewVdev, NewVdevShape, OpenOptions,
    Pool, PoolState,
};
use rustix::fs::{Advice, fadvise};
use vdev::spec::Bias;
use zpl::{NewFs, create_fs};

use crate::options::Options;

const POOL: &str = "peerbench";
/// The file system.
pub(crate) const FS: &str = "peerbench/fs";
/// The longest that an exported pool is waited for.
const RELEASE_MAX: Duration = Duration::from_secs(10);
/// Features of OpenZFS 2.1 that what is measured may use.
const FEATURES: [&str; 12] = [
    ASYNC_DESTROY,
    EMPTY_BPOBJ,
    LZ4_COMPRESS,
    SPACEMAP_HISTOGRAM,
    ENABLED_TXG,
    HOLE_BIRTH,
    EXTENSIBLE_DATASET,
    EMBEDDED_DATA,
    LARGE_BLOCKS,
    SPACEMAP_V2,
    ALLOCATION_CLASSES,
    ZSTD_COMPRESS,
];

/// The vdev, and what pools on it need.
pub(crate) struct Bed {
    pub(crate) env: Env,
    path: PathBuf,
    log: Option<PathBuf>,
    /// The device that [`Bed::add_cache`] adds.
    cache: Option<PathBuf>,
    cache_bytes: u64,
}

impl Bed {
    /// With its vdev file written in full, so that no write meets a hole in the file system below.
    pub(crate) fn new(options: &Options) -> Result<Bed> {
        let [log, cache] = [&options.log, &options.cache].map(|path| path.as_ref().map(PathBuf::from));
        let bed = |path| Bed { env: Env::real(), path, log, cache, cache_bytes: options.arc_mib << 20 };
        if let Some(vdev) = &options.vdev {
            return Ok(bed(PathBuf::from(vdev)));
        }
        let path = PathBuf::from(&options.dir).join("main.vdev");
        let mib = options.mib * 2 + 1024;
        if std::fs::metadata(&path).map_or(0, |found| found.len()) != mib << 20 {
            let mut file = File::create(&path)?;
            for _ in 0..mib {
                file.write_all(&vec![0; 1 << 20])?;
            }
            file.sync_all()?;
        }
        Ok(bed(path))
    }

    /// Removes the vdev file, unless it was there before.
    pub(crate) fn remove(&self, options: &Options) -> Result<()> {
        if options.vdev.is_none() {
            std::fs::remove_file(&self.path)?;
        }
        Ok(())
    }

    /// A new pool, with a log device if there is one, and its file system with these properties.
    pub(crate) fn create(&self, properties: &[(&str, &str)]) -> Result<(Arc<LivePool>, Arc<Objset>)> {
        let vdev = |path: &Path, bias| -> Result<NewVdev> {
            Ok(NewVdev { shape: NewVdevShape::Single, bias, leaves: vec![leaf(path)?] })
        };
        let main = std::iter::once(vdev(&self.path, None));
        let new = NewPool {
            name: POOL.into(),
            temporary_name: None,
            vdevs: main.chain(self.log.iter().map(|log| vdev(log, Some(Bias::Log)))).collect::<Result<_>>()?,
            spares: Vec::new(),
            caches: Vec::new(),
            ashift: Some(12),
            features: FEATURES.map(str::to_owned).to_vec(),
            properties: Vec::new(),
            fs_properties: Vec::new(),
            history: "engine-bench".into(),
            host: (1, "bench".into()),
        };
        let paths = std::iter::once(&self.path).chain(&self.log);
        let devices: HashMap<PathBuf, Arc<dyn Device>> =
            paths.map(|path| Ok((path.clone(), open_device(path, OpenMode::ReadWrite)?))).collect::<Result<_>>()?;
        let make = self.empty_fs();
        let pool = LivePool::create(&self.env, &new, &devices, move |set, tx, _| make(set, tx))?;
        pool.start();
        self.create_fs(&pool, FS, properties)?;
        let set = head(&pool, FS)?;
        Ok((pool, set))
    }

    /// Another file system with these properties.
    pub(crate) fn create_fs(&self, pool: &LivePool, name: &str, properties: &[(&str, &str)]) -> Result<()> {
        let make = self.empty_fs();
        let properties = properties.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        pool.create_dataset(name, properties, move |set, tx, _| make(set, tx))
    }

    /// What makes an empty file system.
    fn empty_fs(&self) -> impl Fn(&Arc<Objset>, &Tx<'_>) -> Result<()> + Send + use<> {
        let (now, salt) = (self.env.now(), self.env.random());
        move |set, tx| create_fs(set, tx, &NewFs { now, salt, ..NewFs::default() })
    }

    /// The exported pool, open for reading, with nothing of it in any cache.
    pub(crate) fn open_cold(&self) -> Result<Pool> {
        let file = File::open(&self.path)?;
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed).map_err(std::io::Error::from)?;
        let options = OpenOptions { cache_bytes: Some(self.cache_bytes), ..OpenOptions::default() };
        Pool::open(&self.env, &self.candidate(OpenMode::ReadOnly)?, &options)
    }

    /// The exported pool and its file system, open to be changed.
    pub(crate) fn import(&self) -> Result<(Arc<LivePool>, Arc<Objset>)> {
        self.import_with(&self.env, None)
    }

    /// The same with other tunables, and so much RAM for blocks.
    pub(crate) fn import_with(&self, env: &Env, cache_bytes: Option<u64>) -> Result<(Arc<LivePool>, Arc<Objset>)> {
        let options = OpenOptions { cache_bytes, ..OpenOptions::default() };
        let candidate = self.candidate(OpenMode::ReadWrite)?;
        let pool = LivePool::import(env, &candidate, &options, (1, "bench".into()))?;
        pool.open_caches(&|path| open_device(Path::new(path), OpenMode::ReadWrite));
        pool.start();
        let set = head(&pool, FS)?;
        Ok((pool, set))
    }

    /// Gives the pool its cache device, if there is one; says whether.
    pub(crate) fn add_cache(&self, pool: &LivePool) -> Result<bool> {
        let Some(path) = &self.cache else { return Ok(false) };
        let new = NewDevices { caches: vec![leaf(path)?], ..NewDevices::default() };
        pool.add(&new, &[(path.clone(), open_device(path, OpenMode::ReadWrite)?)].into())?;
        Ok(true)
    }

    fn candidate(&self, mode: OpenMode) -> Result<Candidate> {
        let devices = FoundDevice::examine(name(&self.path)?, open_device(&self.path, mode)?)?;
        Candidate::pick(&Candidate::all(&Discovery { devices, failed: Vec::new() }), POOL)
    }
}

/// Of a disk, waits until the pool before lets go of it: its thread looks only every 5 seconds.
fn open_device(path: &Path, mode: OpenMode) -> Result<Arc<dyn Device>> {
    let start = Instant::now();
    loop {
        match FileDevice::open(name(path)?, mode) {
            Err(e) if e.kind() == Kind::Busy && start.elapsed() < RELEASE_MAX => std::thread::sleep(RELEASE_MAX / 100),
            opened => return Ok(Arc::new(opened?)),
        }
    }
}

fn leaf(path: &Path) -> Result<NewLeaf> {
    Ok(NewLeaf { path: path.display().to_string(), is_file: !is_disk(path)? })
}

fn name(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| Error::new(Kind::Invalid, "path is not UTF-8"))
}

fn is_disk(path: &Path) -> Result<bool> {
    Ok(std::fs::metadata(path)?.file_type().is_block_device())
}

/// How many times smaller than its contents the file system is.
pub(crate) fn compress_ratio(pool: &LivePool) -> Result<f64> {
    let phys = pool.view().dsl().find(FS)?.phys;
    Ok(phys.uncompressed_bytes as f64 / phys.compressed_bytes as f64)
}

/// Exports a pool of which nothing is in use any more.
pub(crate) fn export(pool: Arc<LivePool>) -> Result<()> {
    pool.close(PoolState::Exported)
}

/// A file system that is to be changed.
pub(crate) fn head(pool: &LivePool, name: &str) -> Result<Arc<Objset>> {
    let id = pool.view().dsl().find(name)?.id;
    pool.head(id)
}
