//! How much a file system is used.
//!
//! Every read and write counts, so threads do not share what they count in, as far as there are enough
//! [`CounterShard`]s; sums are made when somebody looks.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A power of two.
const SHARDS: usize = 16;

/// Counters of one file system since it was opened.
#[derive(Debug, Default)]
pub struct Counters {
    shards: [CounterShard; SHARDS],
}

/// What some of the threads count in; its own cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct CounterShard {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    unlinks: AtomicU64,
    unlinked: AtomicU64,
}

/// Sums of [`Counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads of files.
    pub reads: u64,
    /// Bytes that they gave.
    pub read_bytes: u64,
    /// Writes to files.
    pub writes: u64,
    /// Bytes that they took.
    pub written_bytes: u64,
    /// Objects that were queued because they have no name.
    pub unlinks: u64,
    /// Objects that left that queue.
    pub unlinked: u64,
}

impl Counters {
    pub(crate) fn read(&self, bytes: usize) {
        let shard = self.shard();
        add(&shard.reads, 1);
        add(&shard.read_bytes, bytes as u64);
    }

    pub(crate) fn written(&self, bytes: usize) {
        let shard = self.shard();
        add(&shard.writes, 1);
        add(&shard.written_bytes, bytes as u64);
    }

    pub(crate) fn queued(&self) {
        add(&self.shard().unlinks, 1);
    }

    pub(crate) fn unqueued(&self) {
        add(&self.shard().unlinked, 1);
    }

    /// The sums now.
    pub fn sums(&self) -> Counts {
        let sum = |counter: fn(&CounterShard) -> &AtomicU64| {
            self.shards.iter().map(|shard| counter(shard).load(Ordering::Relaxed)).sum()
        };
        Counts {
            reads: sum(|shard| &shard.reads),
            read_bytes: sum(|shard| &shard.read_bytes),
            writes: sum(|shard| &shard.writes),
            written_bytes: sum(|shard| &shard.written_bytes),
            unlinks: sum(|shard| &shard.unlinks),
            unlinked: sum(|shard| &shard.unlinked),
        }
    }

    fn shard(&self) -> &CounterShard {
        &self.shards[thread_number() % SHARDS]
    }
}

/// Threads are numbered as they count for the first time.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
    }
    NUMBER.get().unwrap_or_else(|| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(Some(number));
        number
    })
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}
