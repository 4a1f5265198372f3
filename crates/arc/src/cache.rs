//! The sharded cache and its eviction.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use base::{Block, Error, Kind, Result};
use format::blkptr::BlkPtr;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::hash::BuildHasher;
use zio::{Mode, ReadRequest, Zio};

const SHARDS: usize = 32;

/// Counters since the cache was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Reads served from RAM, including those that waited for another's read.
    pub hits: u64,
    /// Reads that went to the devices.
    pub misses: u64,
    /// Bytes of the blocks held.
    pub bytes: u64,
}

/// The read cache of one pool.
pub struct Cache {
    zio: Arc<Zio>,
    shards: Vec<Mutex<Shard>>,
    shard_bytes_max: u64,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    dva: [u64; 2],
    birth: u64,
}

#[derive(Default)]
struct Shard {
    slots: FxHashMap<Key, Slot>,
    queue: VecDeque<Key>,
    bytes: u64,
}

enum Slot {
    Ready { block: Block, used: AtomicBool },
    Loading(Arc<Loading>),
}

/// A read under way, which others may wait for.
#[derive(Default)]
struct Loading {
    outcome: Mutex<Option<Option<Block>>>,
    done: Condvar,
}

/// What a request needs: nothing more, a wait, or a read of its own.
enum Found {
    Ready(Block),
    Wait(Arc<Loading>),
    Read(Arc<Loading>),
    Uncached,
}

impl Cache {
    /// A cache over `zio` that holds up to `bytes_max` bytes of block contents.
    pub fn new(zio: Arc<Zio>, bytes_max: u64) -> Cache {
        Cache {
            zio,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            shard_bytes_max: bytes_max / SHARDS as u64,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// The pipeline below.
    pub fn zio(&self) -> &Arc<Zio> {
        &self.zio
    }

    /// The contents of a block; errors as from [`Zio::read`].
    pub fn get(&self, request: ReadRequest) -> Result<Block> {
        if let Some(block) = self.peek(&request) {
            return Ok(block);
        }
        self.get_batch(&[request]).pop().expect("one result a request")
    }

    /// The contents of many blocks, read in one batch as far as they are not there.
    pub fn get_batch(&self, requests: &[ReadRequest]) -> Vec<Result<Block>> {
        let found: Vec<Found> = requests.iter().map(|request| self.find(request)).collect();
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
                    self.fulfil(Key::of(&request.bp), loading, result.as_ref().ok());
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

    /// The contents of a block if they are in RAM already.
    pub fn peek(&self, request: &ReadRequest) -> Option<Block> {
        if !is_cacheable(request) {
            return None;
        }
        let key = Key::of(&request.bp);
        match self.shard(&key).slots.get(&key) {
            Some(Slot::Ready { block, used }) if is_same_size(block, request) => {
                used.store(true, Ordering::Relaxed);
                self.hits.fetch_add(1, Ordering::Relaxed);
                Some(block.clone())
            }
            _ => None,
        }
    }

    /// Keeps the contents of a block that has just been written, in place of what was kept of an earlier
    /// block at that address.
    pub fn insert(&self, bp: &BlkPtr, block: &Block) {
        self.put(bp, block, true);
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
        let key = Key::of(bp);
        let mut shard = self.shard(&key);
        match shard.slots.get_mut(&key) {
            Some(Slot::Ready { block: old, .. }) => {
                let before = old.len() as u64;
                *old = block.clone();
                shard.bytes = shard.bytes - before + block.len() as u64;
            }
            // nobody reads what has not been written
            Some(Slot::Loading(_)) => return,
            None if !keeps_new || block.len() as u64 > self.shard_bytes_max => return,
            None => {
                shard.slots.insert(key, Slot::Ready { block: block.clone(), used: AtomicBool::new(false) });
                shard.queue.push_back(key);
                shard.bytes += block.len() as u64;
            }
        }
        shard.evict(self.shard_bytes_max);
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        Stats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            bytes: self.shards.iter().map(|shard| lock(shard).bytes).sum(),
        }
    }

    fn find(&self, request: &ReadRequest) -> Found {
        if !is_cacheable(request) {
            return Found::Uncached;
        }
        let key = Key::of(&request.bp);
        let mut shard = self.shard(&key);
        let found = match shard.slots.get(&key) {
            Some(Slot::Ready { block, used }) if is_same_size(block, request) => {
                used.store(true, Ordering::Relaxed);
                Found::Ready(block.clone())
            }
            // two pointers to one address that disagree about its size: one of them is damaged
            Some(Slot::Ready { .. }) => Found::Uncached,
            Some(Slot::Loading(loading)) => Found::Wait(loading.clone()),
            None => {
                let loading = Arc::<Loading>::default();
                shard.slots.insert(key, Slot::Loading(loading.clone()));
                Found::Read(loading)
            }
        };
        let counter = if matches!(found, Found::Ready(_) | Found::Wait(_)) { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Makes a block that was read known to those who wait for it, and keeps it.
    fn fulfil(&self, key: Key, loading: &Loading, block: Option<&Block>) {
        let mut shard = self.shard(&key);
        match block {
            Some(block) if (block.len() as u64) <= self.shard_bytes_max => {
                shard.slots.insert(key, Slot::Ready { block: block.clone(), used: AtomicBool::new(false) });
                shard.queue.push_back(key);
                shard.bytes += block.len() as u64;
                shard.evict(self.shard_bytes_max);
            }
            _ => {
                shard.slots.remove(&key);
            }
        }
        drop(shard);
        *lock(&loading.outcome) = Some(block.cloned());
        loading.done.notify_all();
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        let hash = FxBuildHasher.hash_one(key);
        lock(&self.shards[(hash >> 32) as usize % SHARDS])
    }
}

impl Key {
    fn of(bp: &BlkPtr) -> Key {
        Key { dva: bp.dvas()[0].words(), birth: bp.physical_birth() }
    }
}

impl Shard {
    fn evict(&mut self, bytes_max: u64) {
        while self.bytes > bytes_max {
            let Some(key) = self.queue.pop_front() else { return };
            match self.slots.get(&key) {
                Some(Slot::Ready { used, .. }) if used.swap(false, Ordering::Relaxed) => self.queue.push_back(key),
                Some(Slot::Ready { block, .. }) => {
                    self.bytes -= block.len() as u64;
                    self.slots.remove(&key);
                }
                _ => unreachable!("a queued block is ready"),
            }
        }
    }
}

impl Loading {
    /// The block, or `None` if its reader failed.
    fn wait(&self) -> Option<Block> {
        let mut outcome = lock(&self.outcome);
        loop {
            if let Some(block) = &*outcome {
                return block.clone();
            }
            outcome = self.done.wait(outcome).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
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
                self.cache.fulfil(Key::of(&request.bp), loading, None);
            }
        }
    }
}

fn is_cacheable(request: &ReadRequest) -> bool {
    let bp = &request.bp;
    // what an encrypted block holds depends on who asks
    !(bp.is_hole() || bp.is_embedded() || bp.is_encrypted() && request.mode == Mode::Raw)
}

fn is_same_size(block: &Block, request: &ReadRequest) -> bool {
    block.len() as u64 == request.bp.lsize()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
