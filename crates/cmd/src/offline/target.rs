//! What the offline commands are pointed at: `POOL[/DS][@SNAP]:/PATH`.
//!
//! The path begins at the first `:/`, or is empty if the text ends with `:`. A dataset's name may hold
//! colons itself, but none that is followed by a slash unless it was chosen to confuse.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use base::{Env, Error, Kind, Result, ResultExt};
use dmu::zap::Zap;
use dmu::{Mode, Object, Objset};
use dsl::Dataset;
use format::ids::{ObjectId, Txg};
use format::objset::ObjsetType;
use format::volume;
use pool::{Candidate, Discovery, OpenOptions, Pool, Rewind};
use zpl::Zpl;

use crate::keys::{KeyArgs, KeyRing};

/// Arguments of every command that opens pools.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct PoolArgs {
    /// Look for devices in this folder, or take this file or disk; may be given several times
    /// [default: /dev]
    #[arg(short = 'd', value_name = "DIR|FILE")]
    pub search: Vec<PathBuf>,
    /// Open the pool as it was at this transaction group, if its uberblock is still there
    #[arg(short = 'T', long, value_name = "TXG")]
    pub at_txg: Option<Txg>,
}

/// How files of pools are read.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct FileArgs {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    keys: KeyArgs,
    /// Read also file systems that were received without what their sender redacted: that reads as zeros
    #[arg(long)]
    redacted: bool,
}

/// A place in a pool, as it was written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Pool, dataset, snapshot.
    pub dataset: String,
    /// Path within it; `None` if the dataset itself is meant.
    pub path: Option<Vec<u8>>,
}

/// Opens pools by name, each once.
pub struct Opener {
    env: Env,
    args: PoolArgs,
    /// Also what is not complete.
    redacted: bool,
    cache_bytes: Option<u64>,
    discovery: Option<Discovery>,
    pools: HashMap<String, Arc<Pool>>,
    keys: KeyRing,
}

/// What a dataset has that was received without what its sender redacted.
const REDACTED: &str = "com.delphix:redacted_datasets";

/// What a target turned out to be.
pub enum OpenTarget {
    /// Something in a file system.
    File(Arc<Zpl>, ObjectId),
    /// A volume.
    Volume(Volume),
}

/// A volume, which reads as one large file.
#[derive(Clone)]
pub struct Volume {
    object: Object,
    size: u64,
}

/// Something with bytes.
pub enum Content {
    /// A regular file.
    File(zpl::File),
    /// A volume.
    Volume(Volume),
}

impl Target {
    /// Takes the text apart. Errors: `Invalid`.
    pub fn parse(text: &OsStr) -> Result<Target> {
        let bytes = text.as_bytes();
        let colon = bytes
            .windows(2)
            .position(|two| two == b":/")
            .or_else(|| bytes.len().checked_sub(1).filter(|&at| bytes[at] == b':'));
        let (dataset, path) = match colon {
            Some(at) => (&bytes[..at], Some(bytes[at + 1..].to_vec())),
            None => (bytes, None),
        };
        let dataset = std::str::from_utf8(dataset).ok().filter(|name| !name.is_empty());
        let invalid =
            || Error::new(Kind::Invalid, format!("'{}' is not POOL[/DATASET][@SNAPSHOT]:/PATH", text.display()));
        Ok(Target { dataset: dataset.ok_or_else(invalid)?.to_owned(), path })
    }

    /// The pool's part of the dataset's name.
    pub fn pool(&self) -> &str {
        self.dataset.split(['/', '@']).next().unwrap_or_default()
    }

    /// The path, if there is one. Errors: `Invalid`.
    pub fn need_path(&self) -> Result<&[u8]> {
        let lacks = || Error::new(Kind::Invalid, format!("'{0}' has no path; '{0}:/' is its root", self.dataset));
        self.path.as_deref().ok_or_else(lacks)
    }

    /// Name of what is at the end of the path, or of the dataset if that is its root.
    pub fn last_name(&self) -> Vec<u8> {
        let path = self.path.as_deref().unwrap_or_default();
        let name = path.split(|&b| b == b'/').rfind(|name| !name.is_empty()).map(<[u8]>::to_vec);
        name.unwrap_or_else(|| self.dataset.rsplit('/').next().unwrap_or_default().as_bytes().to_vec())
    }
}

impl Opener {
    /// Nothing is looked for until a pool is needed.
    pub fn new(args: &PoolArgs) -> Opener {
        Opener {
            env: Env::real(),
            args: args.clone(),
            redacted: false,
            cache_bytes: None,
            discovery: None,
            pools: HashMap::new(),
            keys: KeyRing::default(),
        }
    }

    /// With so many bytes of cache for each pool: for what is read once, and in order.
    pub fn with_cache(self, bytes: u64) -> Opener {
        Opener { cache_bytes: Some(bytes), ..self }
    }

    /// With those keys for encrypted datasets.
    pub fn with_keys(self, args: &KeyArgs) -> Opener {
        Opener { keys: KeyRing::new(&args.keys), ..self }
    }

    /// The same for files.
    pub fn of_files(args: &FileArgs) -> Opener {
        Opener { redacted: args.redacted, ..Opener::new(&args.pool).with_keys(&args.keys) }
    }

    /// The devices found.
    pub fn discover(&mut self) -> Result<&Discovery> {
        if self.discovery.is_none() {
            let dev = [PathBuf::from("/dev")];
            let search = if self.args.search.is_empty() { &dev[..] } else { &self.args.search };
            self.discovery = Some(pool::discover(&self.env, search)?);
        }
        Ok(self.discovery.as_ref().expect("set just above"))
    }

    /// The pool of that name or guid as far as its labels tell.
    pub fn candidate(&mut self, name: &str) -> Result<Candidate> {
        let candidates = Candidate::all(self.discover()?);
        Candidate::pick(&candidates, name).map_err(|e| match e.kind() {
            Kind::NotFound => Error::new(Kind::NotFound, format!("no pool '{name}' was found")),
            Kind::Invalid => Error::new(Kind::Invalid, format!("there are several pools '{name}'; their guids differ")),
            _ => e,
        })
    }

    /// The pool of that name or guid, opened.
    pub fn pool(&mut self, name: &str) -> Result<Arc<Pool>> {
        if let Some(pool) = self.pools.get(name) {
            return Ok(pool.clone());
        }
        let candidate = self.candidate(name)?;
        let rewind = self.args.at_txg.map_or(Rewind::Newest, Rewind::Exactly);
        let usual = OpenOptions::default();
        let options = OpenOptions { rewind, cache_bytes: self.cache_bytes.or(usual.cache_bytes), ..usual };
        let pool = Arc::new(Pool::open(&self.env, &candidate, &options)?);
        self.pools.insert(name.to_owned(), pool.clone());
        Ok(pool)
    }

    /// The pool of a target, and the name of its dataset there (a pool may have been given by guid).
    pub fn pool_of(&mut self, target: &Target) -> Result<(Arc<Pool>, String)> {
        let pool = self.pool(target.pool())?;
        let name = format!("{}{}", pool.name(), &target.dataset[target.pool().len()..]);
        Ok((pool, name))
    }

    /// The object set of a target.
    fn objset(&mut self, target: &Target) -> Result<Arc<Objset>> {
        let (pool, name) = self.pool_of(target)?;
        let dataset = pool.dsl().find(&name)?;
        if !self.redacted && pool.dsl().dataset_field(&dataset, REDACTED)?.is_some() {
            let what = "its sender redacted some of it, which would read as zeros: --redacted reads it all the same";
            return Err(Error::new(Kind::Unsupported, what).in_dataset(&name));
        }
        self.keys.objset(&pool, &dataset, Mode::Plain)
    }

    /// The object set of a dataset: with its keys, if those of encrypted ones were given; else what can be told without.
    pub fn looked_into(&mut self, pool: &Pool, dataset: &Dataset) -> Result<Arc<Objset>> {
        self.keys.objset(pool, dataset, Mode::Raw)
    }

    /// What is at a target, which has a path.
    pub fn open(&mut self, target: &Target) -> Result<OpenTarget> {
        let path = target.need_path()?;
        let objset = self.objset(target)?;
        match objset.kind() {
            ObjsetType::Zvol if path.iter().all(|&b| b == b'/') => {
                Volume::open(&objset).map(OpenTarget::Volume).in_dataset(&target.dataset)
            }
            ObjsetType::Zvol => {
                let what = format!("{} is a volume, and has no files; '{0}:' reads it whole", target.dataset);
                Err(Error::new(Kind::NotDirectory, what))
            }
            _ => {
                let zpl = Arc::new(Zpl::open(objset).in_dataset(&target.dataset)?);
                let ino = zpl.resolve(path).in_dataset(&target.dataset)?;
                Ok(OpenTarget::File(zpl, ino))
            }
        }
    }
}

impl Volume {
    fn open(objset: &Arc<Objset>) -> Result<Volume> {
        let size = Zap::open(objset.object(volume::PROPERTIES)?)?.require_u64(volume::SIZE)?;
        Ok(Volume { object: objset.object(volume::DATA)?, size })
    }

    /// Bytes of it.
    pub fn size(&self) -> u64 {
        self.size
    }
}

impl Content {
    /// Bytes in it.
    pub fn size(&self) -> u64 {
        match self {
            Content::File(file) => file.size(),
            Content::Volume(volume) => volume.size,
        }
    }

    /// Fills `buf` from `offset` on, and returns how many bytes that were: fewer only at the end.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match self {
            Content::File(file) => file.read(offset, buf),
            Content::Volume(volume) => {
                let left = usize::try_from(volume.size.saturating_sub(offset)).unwrap_or(usize::MAX);
                let len = buf.len().min(left);
                volume.object.read(offset, &mut buf[..len])?;
                Ok(len)
            }
        }
    }

    /// Bytes of a block, the smallest that can be unreadable by itself.
    pub fn block_size(&self) -> u64 {
        self.object().dnode().block_size.max(512)
    }

    /// The next run of data from `offset` on: its first byte and the one behind it.
    pub fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        let size = self.size();
        if offset >= size {
            return Ok(None);
        }
        let Some(start) = self.object().next_allocated(offset..size)? else { return Ok(None) };
        Ok(Some((start, self.object().next_hole(start..size)?)))
    }

    fn object(&self) -> &Object {
        match self {
            Content::File(file) => file.object(),
            Content::Volume(volume) => &volume.object,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let parse = |text: &str| Target::parse(OsStr::new(text)).map(|t| (t.dataset, t.path));
        let with = |dataset: &str, path: &str| (dataset.to_owned(), Some(path.as_bytes().to_vec()));
        assert_eq!(parse("tank:/a:/b").unwrap(), with("tank", "/a:/b"));
        assert_eq!(parse("tank/a:b@s:/").unwrap(), with("tank/a:b@s", "/"));
        assert_eq!(parse("tank/vol:").unwrap(), with("tank/vol", ""));
        assert_eq!(parse("tank/x:y").unwrap(), ("tank/x:y".to_owned(), None));
        assert!(parse(":/a").is_err() && parse("").is_err() && parse(":").is_err());
    }

    #[test]
    fn names_of_targets() {
        let last = |text: &str| String::from_utf8(Target::parse(OsStr::new(text)).unwrap().last_name()).unwrap();
        assert_eq!(
            (last("tank/a@s:/x/y/"), last("tank/a@s:/"), last("tank:")),
            ("y".into(), "a@s".into(), "tank".into())
        );
        assert_eq!(Target::parse(OsStr::new("tank@s:/")).unwrap().pool(), "tank");
    }
}
