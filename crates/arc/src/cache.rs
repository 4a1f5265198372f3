//! The cache over a pipeline: a reader gets a block from RAM, or reads it for all readers that need it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Block, Error, Kind, Result, ResultExt};
use device::Device;
use format::blkptr::BlkPtr;
use format::ids::{Guid, Txg};
use format::sealing::StoredBytes;
use l2arc::{CacheLookup, L2Key, L2arc};
use zio::{Mode, OnFailure, ReadRequest, SetKeys, WrittenBlock, Zio, effort};

use crate::ahead::Ahead;
use crate::budget::Budget;
use crate::feed::Feeder;
use crate::held::Held;
use crate::keep::Keep;
use crate::kept::{Kept, Unpacking, Use};
use crate::nodes::KeptNodes;
use crate::policy::{AccessPurpose, Contents};
use crate::pressure::Gauge;
use crate::seal_id::SealId;
use crate::shard::{Ask, Lookup};
use crate::stats::{self, ArcStats};
use crate::store::Store;
use crate::tap::{AccessTap, CacheAccess, TappedAccesses};
use crate::worker::ArcWorker;

/// The part of memory that buffers may take that nobody uses.
const FREE_PART: u64 = 16;
const NOT_READ: &str = "block was not read";

/// The read cache of one pool. All handles to it share what it holds.
#[derive(Clone)]
pub struct Cache {
    zio: Arc<Zio>,
    store: Arc<Store>,
    l2arc: Arc<L2arc>,
    held: Arc<Held>,
    tap: Arc<AccessTap>,
    /// A thread feeds the cache devices.
    is_fed: Arc<AtomicBool>,
    on_failure: OnFailure,
    keys: SetKeys,
}

/// How large a cache is, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct CacheFootprint {
    /// What it may take.
    pub limit: u64,
    /// What it takes.
    pub size: u64,
    /// Its blocks alone, each counted once.
    pub blocks: u64,
}

impl Cache {
    /// A cache over `zio` that holds up to `bytes_max` bytes.
    pub fn new(zio: Arc<Zio>, bytes_max: u64) -> Cache {
        Cache::over(zio, Arc::new(Store::new(Budget::fixed(bytes_max))))
    }

    /// A cache that takes what memory and tunables allow, and a worker that keeps it so.
    pub fn of_system(zio: Arc<Zio>, gauge: Gauge) -> (Cache, ArcWorker) {
        let env = zio.env().clone();
        let store = Arc::new(Store::new(Budget::of_system(&env, &gauge)));
        base::keep_free_at_most(gauge.limit().unwrap_or(u64::MAX) / FREE_PART);
        let worker = ArcWorker::new(&store, &env, gauge);
        (Cache::over(zio, store), worker)
    }

    fn over(zio: Arc<Zio>, store: Arc<Store>) -> Cache {
        let l2arc = Arc::new(L2arc::new(zio.env()));
        Cache {
            zio,
            store,
            l2arc,
            held: Arc::default(),
            tap: Arc::default(),
            is_fed: Arc::default(),
            on_failure: OnFailure::Fail,
            keys: SetKeys::Plain,
        }
    }

    /// A handle to it for the blocks of a set, of which that is known; others read the set by another handle.
    pub fn of_set(&self, keys: SetKeys) -> Cache {
        Cache { keys, ..self.clone() }
    }

    /// What is known of the set that is read by this handle.
    pub fn keys(&self) -> &SetKeys {
        &self.keys
    }

    /// A handle to it whose reads wait for devices that fail, or fail with them.
    pub fn reading(&self, on_failure: OnFailure) -> Cache {
        Cache { on_failure, ..self.clone() }
    }

    /// What becomes of its reads when devices fail.
    pub fn on_failure(&self) -> OnFailure {
        self.on_failure
    }

    /// The cache devices.
    pub fn l2arc(&self) -> &Arc<L2arc> {
        &self.l2arc
    }

    /// Uses a cache device of a pool from now on. Errors: as from [`L2arc::add`].
    pub fn add_device(&self, pool_guid: Guid, guid: Guid, device: Arc<dyn Device>) -> Result<()> {
        self.l2arc.set_ram(self.store.c());
        self.l2arc.add(pool_guid, guid, device)?;
        if !self.is_fed.swap(true, Ordering::Relaxed) {
            let feeder = self.feeder();
            self.zio.env().spawn("l2arc_feed", move || feeder.run());
        }
        Ok(())
    }

    /// What feeds the cache devices; one is at work already if there are devices and threads.
    pub fn feeder(&self) -> Feeder {
        Feeder::new(&self.store, &self.l2arc)
    }

    /// What reading ahead of readers has done.
    pub fn ahead(&self) -> &Ahead {
        &self.store.ahead
    }

    /// Has the worker look again at tunables and memory.
    pub fn look_again(&self) {
        self.store.bell.ring();
    }

    /// The nodes of objects, which are counted to it.
    pub fn nodes(&self) -> &Arc<KeptNodes> {
        &self.store.nodes
    }

    /// The pipeline below.
    pub fn zio(&self) -> &Arc<Zio> {
        &self.zio
    }

    /// The contents of a block; errors as from [`Zio::read`].
    pub fn get(&self, request: ReadRequest, keep: Keep) -> Result<Block> {
        if self.is_cacheable(&request) {
            match self.store.hit(&self.ask(&request, AccessPurpose::Demand, keep)) {
                Some(Lookup::Ready(block)) => {
                    self.note(&request.bp, CacheAccess::Read { is_miss: false });
                    return Ok(block);
                }
                Some(Lookup::Packed(bytes)) => {
                    self.note(&request.bp, CacheAccess::Read { is_miss: false });
                    return self.unpack(&request, &bytes);
                }
                _ => {}
            }
        }
        let read = || self.get_batch(&[request], keep).pop().expect("one result a request");
        if !self.is_held(&request, keep) {
            return read();
        }
        let seal = SealId::of(&request.bp, &self.keys);
        if let Some(block) = self.held.get(&request.bp, seal) {
            return Ok(block);
        }
        read().inspect(|block| self.held.put(request.bp, seal, block.clone()))
    }

    /// The contents of a block if they are in memory: nothing is read for that.
    pub fn peek(&self, request: &ReadRequest, keep: Keep) -> Option<Block> {
        if self.is_held(request, keep) {
            return self.held.get(&request.bp, SealId::of(&request.bp, &self.keys));
        }
        match self.found(request, keep)? {
            Lookup::Ready(block) => Some(block),
            Lookup::Packed(bytes) => self.unpack(request, &bytes).ok(),
            Lookup::Wait(_) | Lookup::Read(_) | Lookup::Uncached => None,
        }
    }

    /// Whether the contents of a block are in memory, packed or not.
    pub fn holds(&self, request: &ReadRequest, keep: Keep) -> bool {
        if self.is_held(request, keep) {
            return self.held.get(&request.bp, SealId::of(&request.bp, &self.keys)).is_some();
        }
        matches!(self.found(request, keep), Some(Lookup::Ready(_) | Lookup::Packed(_)))
    }

    /// A block that is in memory.
    fn found(&self, request: &ReadRequest, keep: Keep) -> Option<Lookup> {
        self.store.hit(&self.ask(request, AccessPurpose::Prefetch, keep)).filter(|_| self.is_cacheable(request))
    }

    /// The contents of many blocks, read in one batch as far as they are not there.
    pub fn get_batch(&self, requests: &[ReadRequest], keep: Keep) -> Vec<Result<Block>> {
        let found: Vec<Lookup> =
            requests.iter().map(|request| self.find(request, AccessPurpose::Demand, keep)).collect();
        for (request, found) in requests.iter().zip(&found) {
            // what may not be kept is no matter of the cache's size
            if !matches!(found, Lookup::Uncached) {
                self.note(&request.bp, CacheAccess::Read { is_miss: matches!(found, Lookup::Read(_)) });
            }
        }
        self.complete(requests, found, AccessPurpose::Demand, keep)
    }

    /// Brings blocks into the cache that will be asked for soon; waits for no device that fails. Errors are for the
    /// reader that asks for them.
    pub fn prefetch(&self, requests: &[ReadRequest], keep: Keep) {
        let found = requests.iter().map(|request| {
            let found = self.find_ahead(request, keep);
            // a smaller cache might have to read it
            if !matches!(found, Lookup::Uncached) {
                self.note(&request.bp, CacheAccess::Ahead);
            }
            (*request, found)
        });
        let (requests, found): (Vec<_>, Vec<_>) = found.filter(|(_, found)| matches!(found, Lookup::Read(_))).unzip();
        drop(self.reading(OnFailure::Fail).complete(&requests, found, AccessPurpose::Prefetch, keep));
    }

    /// Reads what is to be read, and waits for what others read.
    fn complete(
        &self,
        requests: &[ReadRequest],
        found: Vec<Lookup>,
        purpose: AccessPurpose,
        keep: Keep,
    ) -> Vec<Result<Block>> {
        let absent = |found: &Lookup| matches!(found, Lookup::Read(_) | Lookup::Uncached);
        let to_read: Vec<ReadRequest> =
            requests.iter().zip(&found).filter(|(_, found)| absent(found)).map(|(request, _)| *request).collect();
        let bring = || self.bring(&to_read, keep);
        let mut read = match purpose {
            AccessPurpose::Demand => self.store.price.learn(self.zio.env(), to_read.len() as u64, bring),
            AccessPurpose::Prefetch => bring(),
        }
        .into_iter();
        // First fulfil what others wait for, then wait: two batches may need each other's blocks.
        let uncached = |kept: Kept| kept.contents().cloned().ok_or_else(|| Error::new(Kind::Io, NOT_READ));
        let mut results: Vec<Option<Result<Block>>> = Vec::with_capacity(requests.len());
        for (request, found) in requests.iter().zip(&found) {
            results.push(match found {
                Lookup::Ready(block) => Some(Ok(block.clone())),
                Lookup::Wait(_) | Lookup::Packed(_) => None,
                Lookup::Uncached => Some(read.next().expect("one result a request").and_then(uncached)),
                Lookup::Read(loading) => {
                    let result = read.next().expect("one result a request");
                    let block = result.as_ref().ok().and_then(|kept| kept.contents().cloned());
                    let (kept, error) = result.map_or_else(|error| (None, Some(error)), |kept| (Some(kept), None));
                    self.store.fulfil(&self.ask(request, purpose, Keep::ALL), loading, kept);
                    block.map(Ok).or(error.map(Err))
                }
            });
        }
        let packed = (0..found.len()).filter_map(|at| match &found[at] {
            Lookup::Packed(bytes) => Some((at, bytes)),
            _ => None,
        });
        let packed: Vec<_> = packed.collect();
        let work_ns = packed.iter().map(|(at, _)| effort::of_unpacking(&requests[*at].bp)).sum();
        let unpack = |(at, bytes): (usize, &StoredBytes)| (at, self.unpack(&requests[at], bytes));
        for (at, result) in self.zio.env().map(packed, work_ns, unpack) {
            results[at] = Some(result);
        }
        let finished =
            requests.iter().zip(found).zip(results).map(|((request, found), result)| match (found, result) {
                (_, Some(result)) => result,
                // the other reader's error names its own block's place, so read again for this one's
                (Lookup::Wait(loading), None) => loading.wait().map_or_else(|| self.read_alone(request), Ok),
                (_, None) => Err(Error::new(Kind::Io, NOT_READ).at_block(request.bookmark)),
            });
        finished.collect()
    }

    /// Reads a block for one reader only.
    fn read_alone(&self, request: &ReadRequest) -> Result<Block> {
        let read = self.zio.read_whole(std::slice::from_ref(request), &self.keys, self.on_failure).pop();
        read.expect("one result a request").map(|contents| contents.data.into())
    }

    /// The contents of a block that is held packed; they are kept, as long as they are used.
    fn unpack(&self, request: &ReadRequest, bytes: &StoredBytes) -> Result<Block> {
        let contents = Block::from(self.zio.unpack(request, &self.keys, bytes).at_block(request.bookmark)?);
        self.store.unpack(&L2Key::of(&request.bp), &contents, self.packed_for(&request.bp));
        Ok(contents)
    }

    /// For what the compressed bytes of a block are kept.
    fn packed_for(&self, bp: &BlkPtr) -> Use {
        if self.store.packs(bp.lsize()) {
            Use::Packing
        } else if self.l2arc.has_devices() && !self.l2arc.contains(&L2Key::of(bp)) {
            Use::Device
        } else {
            Use::Nothing
        }
    }

    /// Reads blocks that are not in RAM: from cache devices, or from the pool.
    fn bring(&self, requests: &[ReadRequest], keep: Keep) -> Vec<Result<Kept>> {
        let is_admitted = |request: &ReadRequest| keep.on_ssd.allows(contents(&request.bp));
        let kept_of = |contents, request: &ReadRequest| {
            let seal = SealId::of(&request.bp, &self.keys);
            Kept::of(contents, request, seal, self.packed_for(&request.bp), is_admitted(request))
        };
        if !self.l2arc.has_devices() {
            let read = requests.iter().zip(self.zio.read_whole(requests, &self.keys, self.on_failure));
            return read.map(|(request, read)| read.map(|read| kept_of(read, request))).collect();
        }
        let mut results: Vec<Option<Result<Kept>>> = self.bring_from_ssd(requests, &kept_of);
        let rest: Vec<ReadRequest> =
            requests.iter().zip(&results).filter(|(_, result)| result.is_none()).map(|(request, _)| *request).collect();
        let mut read = rest
            .iter()
            .zip(self.zio.read_whole(&rest, &self.keys, self.on_failure))
            .map(|(request, read)| read.map(|read| kept_of(read, request)));
        results.iter_mut().filter(|result| result.is_none()).for_each(|result| *result = read.next());
        let missing = || Err(Error::new(Kind::Io, NOT_READ));
        results.into_iter().map(|result| result.unwrap_or_else(missing)).collect()
    }

    /// Those blocks that cache devices have.
    fn bring_from_ssd(
        &self,
        requests: &[ReadRequest],
        kept_of: &(dyn Fn(zio::BlockContents, &ReadRequest) -> Kept + Sync),
    ) -> Vec<Option<Result<Kept>>> {
        let l2arc = &self.l2arc;
        let mut results: Vec<Option<Result<Kept>>> = requests.iter().map(|_| None).collect();
        let of_use =
            (0..requests.len()).filter(|at| zio::is_verifiable(&requests[*at].bp) && self.keys.admits(&requests[*at]));
        let (places, all): (Vec<usize>, Vec<CacheLookup>) = of_use.map(|at| (at, wanted(&requests[at].bp))).unzip();
        let work_ns = places.iter().map(|at| effort::of_read(&requests[*at].bp)).sum();
        let found: Vec<_> = places.into_iter().zip(l2arc.read(&all)).collect();
        let kept = self.zio.env().map(found, work_ns, |(at, found)| {
            let Some(found) = found else {
                l2arc.count(None);
                return (at, None);
            };
            let (bytes, place) = found.split();
            match self.zio.contents_of(&requests[at], &self.keys, bytes) {
                Some(contents) => {
                    l2arc.count(Some(&place));
                    let mut kept = kept_of(contents, &requests[at]);
                    kept.was_fed();
                    (at, Some(kept))
                }
                None => {
                    l2arc.is_bad(&wanted(&requests[at].bp), &place);
                    l2arc.count(None);
                    (at, None)
                }
            }
        });
        kept.into_iter().for_each(|(at, kept)| results[at] = kept.map(Ok));
        results
    }

    /// Keeps the contents of a block that has just been written, in place of what was kept of an earlier
    /// block at that address.
    pub fn insert(&self, written: WrittenBlock, block: Block, keep: Keep) {
        let contents = contents(&written.bp);
        self.put(written, block, keep.in_ram.allows(contents), keep.on_ssd.allows(contents));
    }

    /// As [`Cache::insert`], but only if something was kept of an earlier block: for one that is not worth
    /// the memory.
    pub fn renew(&self, written: WrittenBlock, block: Block) {
        self.put(written, block, false, false);
    }

    fn put(&self, written: WrittenBlock, block: Block, keeps_new: bool, on_ssd: bool) {
        let bp = &written.bp;
        if bp.is_hole() || bp.is_embedded() || bp.is_encrypted() {
            return;
        }
        let (key, len, seal) = (L2Key::of(bp), bp.lsize(), SealId::of(bp, &self.keys));
        let ask = Ask {
            key,
            len,
            how: Unpacking::of(bp),
            seal,
            contents: contents(bp),
            purpose: AccessPurpose::Demand,
            keeps: keeps_new,
        };
        if keeps_new {
            self.note(bp, CacheAccess::Written);
        }
        let packed = self.packed_for(bp);
        self.store.keep(&ask, Kept::written(written, block, seal, packed, on_ssd), keeps_new);
    }

    /// Frees a block, as [`Zio::free`], and keeps nothing of it: it would take the room of others until its turn to
    /// leave comes.
    pub fn free(&self, txg: Txg, bp: &BlkPtr) -> Result<bool> {
        if !bp.is_hole() && !bp.is_embedded() {
            self.note(bp, CacheAccess::Freed);
            self.store.forget(&L2Key::of(bp));
            self.l2arc.forget(&wanted(bp));
        }
        self.zio.free(txg, bp, self.on_failure)
    }

    /// Lets all blocks in memory go.
    pub fn empty(&self) {
        self.store.empty();
        self.held.empty();
    }

    /// Counters in short.
    pub fn stats(&self) -> ArcStats {
        ArcStats::of(&self.store)
    }

    /// The table of OpenZFS's kstat `arcstats`: names and values.
    pub fn arcstats(&self) -> Vec<(&'static str, u64)> {
        let mut table = stats::arcstats(&self.store);
        table.extend(self.l2arc.table());
        table
    }

    /// Notes accesses from now on, for [`Cache::tapped`] with the number of the session. Errors: as from [`base::Env::open_tap`].
    pub fn open_tap(&self) -> Result<u64> {
        self.tap.open(self.zio.env())
    }

    /// What was noted since the last time, of a sample that is a half to the power of `shift` at most from now on. Errors:
    /// as from [`base::Tap::take`].
    pub fn tapped(&self, session: u64, shift: u32) -> Result<TappedAccesses> {
        self.tap.take(session, shift, self.zio.env().ticks_ns())
    }

    /// How large it is.
    pub fn footprint(&self) -> CacheFootprint {
        let sums = self.store.sums();
        let blocks = sums.held.as_flattened().iter().sum::<u64>().saturating_sub(sums.open);
        CacheFootprint { limit: self.store.c(), size: self.store.size(), blocks }
    }

    /// Ends that.
    pub fn close_tap(&self, session: u64) {
        self.tap.close(session);
    }

    #[inline]
    fn note(&self, bp: &BlkPtr, access: CacheAccess) {
        if self.tap.is_open() {
            let bytes =
                || if bp.psize() < bp.lsize() && self.store.packs(bp.lsize()) { bp.psize() } else { bp.lsize() };
            self.tap.note(bp, bytes, contents(bp), access);
        }
    }

    fn find(&self, request: &ReadRequest, purpose: AccessPurpose, keep: Keep) -> Lookup {
        if self.is_cacheable(request) { self.store.find(&self.ask(request, purpose, keep)) } else { Lookup::Uncached }
    }

    /// As [`Cache::find`], for what nobody waits for: what needs no device, or may not be kept, is not read.
    fn find_ahead(&self, request: &ReadRequest, keep: Keep) -> Lookup {
        if keep.in_ram.allows(contents(&request.bp)) {
            self.find(request, AccessPurpose::Prefetch, keep)
        } else {
            Lookup::Uncached
        }
    }

    fn ask(&self, request: &ReadRequest, purpose: AccessPurpose, keep: Keep) -> Ask {
        let (bp, contents) = (&request.bp, contents(&request.bp));
        let keeps = keep.in_ram.allows(contents);
        let (how, seal) = (Unpacking::of(bp), SealId::of(bp, &self.keys));
        Ask { key: L2Key::of(bp), len: bp.lsize(), how, seal, contents, purpose, keeps }
    }

    fn is_cacheable(&self, request: &ReadRequest) -> bool {
        let bp = &request.bp;
        // sealed bytes are no contents
        let is_raw = bp.is_encrypted() && request.mode == Mode::Raw;
        !(bp.is_hole() || bp.is_embedded() || is_raw) && self.keys.admits(request)
    }

    /// See [`Held`].
    fn is_held(&self, request: &ReadRequest, keep: Keep) -> bool {
        let is_metadata = contents(&request.bp) == Contents::Metadata;
        is_metadata && !keep.in_ram.allows(Contents::Metadata) && self.is_cacheable(request)
    }
}

fn wanted(bp: &BlkPtr) -> CacheLookup {
    let is_metadata = contents(bp) == Contents::Metadata;
    CacheLookup { key: L2Key::of(bp), psize: bp.psize() as usize, lsize: bp.lsize(), is_metadata }
}

fn contents(bp: &BlkPtr) -> Contents {
    match bp.level() > 0 || bp.object_type().is_metadata() {
        true => Contents::Metadata,
        false => Contents::Data,
    }
}

#[cfg(test)]
pub(crate) mod tests;
