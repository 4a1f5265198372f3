//! What advice is asked of: a pool, a dataset or snapshot of it, or a folder on any file system.
//!
//! A pool is read as it is on its devices, also while it is in use: nothing is asked of its process but where the devices
//! are. Groups go on meanwhile, and may write over what this read would have come to: that is told as lost. A snapshot
//! stays as it is.

use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use base::{Error, Result};
use dmu::traverse::{Descend, Range, Visit, Visitor, traverse};
use dsl::Dataset;
use format::ids::ObjectId;
use pool::Pool;
use pool::check::{BlockKind, CheckOptions, Observer, Verify};
use protocol::client;
use protocol::wire::{PoolReply, Request};

use crate::offline::{Opener, PoolArgs, Target};

/// Bytes of cache for a pool of which most is read once.
const CACHE_BYTES: u64 = 16 << 20;

/// What advice is asked of, as it was written down.
#[derive(Clone, Debug, clap::Args)]
pub struct SubjectArgs {
    #[command(flatten)]
    pool: PoolArgs,
    /// A pool, a dataset or snapshot, or a folder on any file system: what exists as a path is one
    #[arg(value_name = "POOL|DATASET|FOLDER")]
    name: OsString,
}

/// What it turned out to be.
pub enum AdviceSubject {
    /// A folder, or a file.
    Folder(PathBuf),
    /// A pool, or a part of one.
    Pool(Box<PoolSubject>),
}

/// A pool that was opened for reading.
pub struct PoolSubject {
    /// The pool.
    pub pool: Arc<Pool>,
    /// Only this one of it.
    pub dataset: Option<Dataset>,
}

impl SubjectArgs {
    /// The name, for people.
    pub fn shown(&self) -> String {
        self.name.to_string_lossy().into_owned()
    }

    /// Opens it. Errors: for the user.
    pub fn open(&self) -> std::result::Result<AdviceSubject, String> {
        let is_path = self.name.as_bytes().starts_with(b"/") || self.name.as_bytes().starts_with(b".");
        let may_be_path = self.pool.search.is_empty() && self.pool.at_txg.is_none();
        let path = PathBuf::from(&self.name);
        if is_path || may_be_path && path.symlink_metadata().is_ok() {
            return Ok(AdviceSubject::Folder(path));
        }
        let opened = PoolSubject::open(&self.name, &self.pool).map(|subject| AdviceSubject::Pool(Box::new(subject)));
        opened.map_err(|error| error.to_string())
    }
}

impl PoolSubject {
    /// Opens a pool, or a dataset of it. Errors: as from opening it; there is none of that name.
    pub fn open(name: &OsStr, args: &PoolArgs) -> Result<PoolSubject> {
        let target = Target::parse(name)?;
        let mut args = args.clone();
        if args.search.is_empty() {
            args.search = devices_in_use(target.pool());
        }
        let (pool, dataset) = Opener::new(&args).with_cache(CACHE_BYTES).pool_of(&target)?;
        let dataset = match dataset == pool.name() {
            true => None,
            false => Some(pool.dsl().find(&dataset)?),
        };
        Ok(PoolSubject { pool, dataset })
    }

    /// Shows every block that it refers to: of a pool each once, of a dataset also those of the snapshots that it has them
    /// from. Errors: as from [`Pool::check`].
    pub fn walk(&self, observer: &mut dyn Observer) -> Result<()> {
        if self.dataset.is_none() {
            return self.pool.check(CheckOptions { verify: Verify::Nothing, space: false }, observer).map(drop);
        }
        self.visit(&mut SubjectWalk { observer });
        Ok(())
    }

    /// Shows every block that its datasets refer to; of a pool also those that lead there, each once.
    pub fn visit(&self, visitor: &mut dyn Visitor) {
        // a visitor that breaks off knows why
        let _ = match &self.dataset {
            Some(dataset) => traverse(self.pool.cache(), dataset.id, &dataset.phys.bp, Range::default(), visitor),
            None => self.pool.traverse(visitor),
        };
    }

    /// Whether pointers may share places: by dedup, or by clones. Errors: the tables cannot be read.
    pub fn shares_places(&self) -> Result<bool> {
        Ok(self.pool.dedup()?.total().blocks > 0 || self.pool.clones()?.used_bytes > 0)
    }

    /// The dataset that was asked about, or the heads of all; and how many of these cannot be opened. Errors: they cannot
    /// be listed.
    pub fn heads(&self) -> Result<(Vec<Dataset>, u64)> {
        if let Some(dataset) = &self.dataset {
            return Ok((vec![dataset.clone()], 0));
        }
        let (mut heads, mut failures) = (Vec::new(), 0);
        for dir in self.pool.dsl().walk()?.iter().filter(|dir| dir.phys.head_dataset.object() != ObjectId::NONE) {
            match self.pool.dsl().head(dir) {
                Ok(head) => heads.push(head),
                Err(_) => failures += 1,
            }
        }
        Ok((heads, failures))
    }

    /// Bytes that it takes, as far as is known.
    pub fn bytes(&self) -> Option<u64> {
        match &self.dataset {
            Some(dataset) => Some(dataset.phys.referenced_bytes),
            None => self.pool.space().ok().map(|space| space.allocated_on(|_| true)),
        }
    }
}

/// Where the devices of a pool are, if it is in use here.
fn devices_in_use(pool: &str) -> Vec<PathBuf> {
    let Ok(Some(mut connection)) = client::connect(pool) else { return Vec::new() };
    match connection.ask(&Request::Report) {
        Ok(PoolReply::Report(report)) => {
            report.root.all().iter().filter_map(|vdev| vdev.path.clone()).map(PathBuf::from).collect()
        }
        _ => Vec::new(),
    }
}

/// Two that see the same walk.
pub struct BothObservers<'a>(pub &'a mut dyn Observer, pub &'a mut dyn Observer);

impl Observer for BothObservers<'_> {
    fn block(&mut self, visit: &Visit<'_>, kind: BlockKind) {
        self.0.block(visit, kind);
        self.1.block(visit, kind);
    }

    fn lost(&mut self, error: &Error) {
        self.0.lost(error);
        self.1.lost(error);
    }

    fn progress(&mut self, bytes: u64) {
        self.0.progress(bytes);
        self.1.progress(bytes);
    }
}

/// Shows the blocks of one dataset.
struct SubjectWalk<'a> {
    observer: &'a mut dyn Observer,
}

impl Visitor for SubjectWalk<'_> {
    fn block(&mut self, visit: &Visit<'_>) -> ControlFlow<(), Descend> {
        self.observer.block(visit, BlockKind::of(visit.bp));
        self.observer.progress(visit.bp.asize());
        ControlFlow::Continue(Descend::Below)
    }

    fn lost(&mut self, error: Error) {
        self.observer.lost(&error);
    }
}
