//! The cache over a pipeline: who needs a block gets it from RAM, or reads it for all who need it.

use std::sync::Arc;

use base::{Block, Error, Kind, Result};
use format::blkptr::BlkPtr;
use zio::{Mode, ReadRequest, Zio};

use crate::budget::Budget;
use crate::policy::{Contents, Purpose};
use crate::pressure::Gauge;
use crate::shard::{Ask, Found, Key};
use crate::stats::{self, Stats};
use crate::store::Store;
use crate::worker::Worker;

/// What may be kept of a dataset's blocks: its property `primarycache`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Keep {
    /// `all`
    #[default]
    All,
    /// `metadata`
    Metadata,
    /// `none`
    Nothing,
}

impl Keep {
    /// The value of the property by its name; unknown ones keep all.
    pub fn of_property(value: &str) -> Keep {
        match value {
            "metadata" => Keep::Metadata,
            "none" => Keep::Nothing,
            _ => Keep::All,
        }
    }

    /// The reverse of `as u8`.
    pub fn of_u8(n: u8) -> Keep {
        [Keep::All, Keep::Metadata, Keep::Nothing].into_iter().find(|keep| *keep as u8 == n).unwrap_or_default()
    }

    fn allows(self, contents: Contents) -> bool {
        self == Keep::All || self == Keep::Metadata && contents == Contents::Metadata
    }
}

/// The part of memory that buffers may take that nobody uses.
const FREE_PART: u64 = 16;

/// The read cache of one pool.
pub struct Cache {
    zio: Arc<Zio>,
    store: Arc<Store>,
}

impl Cache {
    /// A cache over `zio` that holds up to `bytes_max` bytes.
    pub fn new(zio: Arc<Zio>, bytes_max: u64) -> Cache {
        Cache { zio, store: Arc::new(Store::new(Budget::fixed(bytes_max))) }
    }

    /// A cache that takes what memory and tunables allow, and a worker that keeps it so.
    pub fn of_system(zio: Arc<Zio>, gauge: Gauge) -> (Cache, Worker) {
        let env = zio.env().clone();
        let store = Arc::new(Store::new(Budget::of_system(&env, &gauge)));
        base::keep_free_at_most(gauge.limit().unwrap_or(u64::MAX) / FREE_PART);
        let worker = Worker::new(&store, &env, gauge);
        (Cache { zio, store }, worker)
    }

    /// The pipeline below.
    pub fn zio(&self) -> &Arc<Zio> {
        &self.zio
    }

    /// The contents of a block; errors as from [`Zio::read`].
    pub fn get(&self, request: ReadRequest, keep: Keep) -> Result<Block> {
        if is_cacheable(&request)
            && let Some(Found::Ready(block)) = self.store.hit(&ask(&request, Purpose::Demand, keep))
        {
            return Ok(block);
        }
        self.get_batch(&[request], keep).pop().expect("one result a request")
    }

    /// The contents of many blocks, read in one batch as far as they are not there.
    pub fn get_batch(&self, requests: &[ReadRequest], keep: Keep) -> Vec<Result<Block>> {
        let found: Vec<Found> = requests.iter().map(|request| self.find(request, Purpose::Demand, keep)).collect();
        self.complete(requests, found, Purpose::Demand)
    }

    /// Brings blocks into the cache that will be asked for soon. Errors are for who asks for them.
    pub fn prefetch(&self, requests: &[ReadRequest], keep: Keep) {
        let found = requests.iter().map(|request| (*request, self.find_ahead(request, keep)));
        let (requests, found): (Vec<_>, Vec<_>) = found.filter(|(_, found)| matches!(found, Found::Read(_))).unzip();
        drop(self.complete(&requests, found, Purpose::Prefetch));
    }

    /// Reads what is to be read, and waits for what others read.
    fn complete(&self, requests: &[ReadRequest], found: Vec<Found>, purpose: Purpose) -> Vec<Result<Block>> {
        let absent = |found: &Found| matches!(found, Found::Read(_) | Found::Uncached);
        let to_read: Vec<ReadRequest> =
            requests.iter().zip(&found).filter(|(_, found)| absent(found)).map(|(request, _)| *request).collect();
        // If the read panics, waiters must not wait for ever.
        let guard = Abandon { cache: self, requests, found: &found };
        let mut read = self.zio.read_batch(&to_read).into_iter();
        // First fulfil what others wait for, then wait: two batches may need each other's blocks.
        let mut results: Vec<Option<Result<Block>>> = Vec::with_capacity(requests.len());
        for (request, found) in requests.iter().zip(&found) {
            results.push(match found {
                Found::Ready(block) => Some(Ok(block.clone())),
                Found::Wait(_) => None,
                Found::Uncached => Some(read.next().expect("one result a request").map(Block::from)),
                Found::Read(loading) => {
                    let result = read.next().expect("one result a request").map(Block::from);
                    self.store.fulfil(&ask(request, purpose, Keep::All), loading, result.as_ref().ok());
                    Some(result)
                }
            });
        }
        std::mem::forget(guard);
        let finished =
            requests.iter().zip(found).zip(results).map(|((request, found), result)| match (found, result) {
                (_, Some(result)) => result,
                // the other reader's error names its own block's place, so read again for this one's
                (Found::Wait(loading), None) => {
                    loading.wait().map_or_else(|| self.zio.read(*request).map(Block::from), Ok)
                }
                (_, None) => Err(Error::new(Kind::Io, "block was not read").at_block(request.bookmark)),
            });
        finished.collect()
    }

    /// Keeps the contents of a block that has just been written, in place of what was kept of an earlier
    /// block at that address.
    pub fn insert(&self, bp: &BlkPtr, block: &Block, keep: Keep) {
        self.put(bp, block, keep.allows(contents(bp)));
    }

    /// As [`Cache::insert`], but only if something was kept of an earlier block: for one that is not worth
    /// the memory.
    pub fn renew(&self, bp: &BlkPtr, block: &Block) {
        self.put(bp, block, false);
    }

    fn put(&self, bp: &BlkPtr, block: &Block, keeps_new: bool) {
        if bp.is_hole() || bp.is_embedded() || bp.is_encrypted() {
            return;
        }
        let (key, len) = (Key::of(bp), bp.lsize());
        let ask = Ask { key, len, contents: contents(bp), purpose: Purpose::Demand, keeps: keeps_new };
        self.store.keep(&ask, block, keeps_new);
    }

    /// Counters in short.
    pub fn stats(&self) -> Stats {
        Stats::of(&self.store)
    }

    /// The table of OpenZFS's kstat `arcstats`: names and values.
    pub fn arcstats(&self) -> Vec<(&'static str, u64)> {
        stats::arcstats(&self.store)
    }

    fn find(&self, request: &ReadRequest, purpose: Purpose, keep: Keep) -> Found {
        if is_cacheable(request) { self.store.find(&ask(request, purpose, keep)) } else { Found::Uncached }
    }

    /// As [`Cache::find`], for nobody who waits: what needs no device, or may not be kept, is not read.
    fn find_ahead(&self, request: &ReadRequest, keep: Keep) -> Found {
        if keep.allows(contents(&request.bp)) { self.find(request, Purpose::Prefetch, keep) } else { Found::Uncached }
    }
}

/// Fails the reads that a panicking reader had promised.
struct Abandon<'a> {
    cache: &'a Cache,
    requests: &'a [ReadRequest],
    found: &'a [Found],
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        for (request, found) in self.requests.iter().zip(self.found) {
            if let Found::Read(loading) = found {
                self.cache.store.fulfil(&ask(request, Purpose::Demand, Keep::All), loading, None);
            }
        }
    }
}

fn ask(request: &ReadRequest, purpose: Purpose, keep: Keep) -> Ask {
    let contents = contents(&request.bp);
    Ask { key: Key::of(&request.bp), len: request.bp.lsize(), contents, purpose, keeps: keep.allows(contents) }
}

fn contents(bp: &BlkPtr) -> Contents {
    match bp.level() > 0 || bp.object_type().is_metadata() {
        true => Contents::Metadata,
        false => Contents::Data,
    }
}

fn is_cacheable(request: &ReadRequest) -> bool {
    let bp = &request.bp;
    // what an encrypted block holds depends on who asks
    !(bp.is_hole() || bp.is_embedded() || bp.is_encrypted() && request.mode == Mode::Raw)
}

#[cfg(test)]
mod tests;
