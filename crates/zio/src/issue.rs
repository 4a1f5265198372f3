//! The stage that issues writes: blocks on their way to the devices.
//!
//! ```text
//!   write_batch ─▶ waiting (64 MiB at most) ─▶ batch ─▶ vdev::Tree::write_batch
//!                        ▲                                   │       │
//!                        ├──────────── retry ──── failed ◀───┘       │
//!                        └──────────── retry ──── kept ◀─────────────┘
//!                                                  └─▶ flushed: let go
//! ```
//!
//! A device that goes away takes along what it has not flushed. So what was written is kept until the
//! whole transaction group is flushed, and if that fails it is written once more when the device is back.
//!
//! One thread takes what is waiting, in batches, while the callers compress more. Where there are no
//! threads the caller writes at once.
//!
//! Space that is freed and allocated again in one transaction group, or a block that is written anew
//! in its place, gives two writes to the same bytes. Batches go out one after the other, and none has
//! two writes that overlap, so the last one stays; and a write that is kept, or has failed, is forgotten
//! when a later one to the same bytes comes, or the bytes are given back.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Deref, Range};
use std::sync::Arc;

use base::{AlignedBuf, Block, Bookmark, Condvar, Env, Error, Mutex, MutexGuard, Result};
use format::blkptr::Dva;
use format::ids::{Txg, VdevNumber};
use vdev::{Extent, Tree};

/// Bytes that may wait.
const WAITING_MAX: usize = 64 << 20;
/// Bytes of a batch, and writes of it, at most.
const BATCH_BYTES: usize = 16 << 20;
const BATCH_WRITES: usize = 1024;

/// Part of a block that somebody else may have, too.
#[derive(Clone)]
pub(crate) struct BlockSlice {
    block: Block,
    range: Range<usize>,
}

impl BlockSlice {
    pub(crate) fn new(block: Block, range: Range<usize>) -> BlockSlice {
        assert!(range.end <= block.len());
        BlockSlice { block, range }
    }

    /// A block of these bytes alone.
    pub(crate) fn into_block(self) -> Block {
        if self.range == (0..self.block.len()) { self.block } else { AlignedBuf::from(&*self).into() }
    }

    /// Part of these.
    pub(crate) fn part(&self, range: Range<usize>) -> BlockSlice {
        BlockSlice::new(self.block.clone(), self.range.start + range.start..self.range.start + range.end)
    }
}

impl Deref for BlockSlice {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.block[self.range.clone()]
    }
}

/// A write of one copy of a block, or of a piece: what placing has made of a [`crate::BlockWrite`].
pub(crate) struct ExtentWrite {
    pub(crate) extent: Extent,
    /// All that is allocated there, with parity.
    pub(crate) range: Range<u64>,
    pub(crate) bytes: BlockSlice,
    pub(crate) bookmark: Bookmark,
    /// Which of the writes that were ever taken it is.
    number: u64,
}

impl ExtentWrite {
    pub(crate) fn new(dva: &Dva, asize: u64, txg: Txg, bytes: BlockSlice, bookmark: Bookmark) -> ExtentWrite {
        let extent = Extent { top: dva.vdev(), offset: dva.offset(), size: bytes.len() as u64, birth_txg: txg };
        ExtentWrite { extent, range: dva.offset()..dva.offset() + asize, bytes, bookmark, number: 0 }
    }

    fn overlaps(&self, top: VdevNumber, range: &Range<u64>) -> bool {
        self.extent.top == top && self.range.start < range.end && range.start < self.range.end
    }
}

/// A write that has failed: of which block, and where.
pub(crate) type FailedWrite = (Bookmark, VdevNumber, Range<u64>);

/// The writes of a pool.
pub(crate) struct WriteQueue(Arc<WriteQueueShared>);

struct WriteQueueShared {
    tree: Arc<Tree>,
    state: Mutex<WriteQueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct WriteQueueState {
    waiting: VecDeque<ExtentWrite>,
    /// Writes that were ever taken, and how many of them, the oldest, are through.
    taken: u64,
    through: u64,
    /// Bytes of what is waiting or being written.
    held: usize,
    /// Whether a batch is being written.
    writing: bool,
    /// Whether a thread does that.
    has_thread: bool,
    /// Whether that thread is to end.
    closed: bool,
    failed: Vec<(ExtentWrite, Error)>,
    /// What is being written.
    batch: Vec<(VdevNumber, Range<u64>)>,
    /// Written, and perhaps not flushed yet: by vdev and offset, apart from each other.
    kept: BTreeMap<(VdevNumber, u64), ExtentWrite>,
    /// Bytes that were given back while writes to them may have been on their way: vdev, range, and the last
    /// of these writes.
    given_back: Vec<(VdevNumber, Range<u64>, u64)>,
}

impl WriteQueue {
    pub(crate) fn new(tree: Arc<Tree>) -> WriteQueue {
        WriteQueue(Arc::new(WriteQueueShared { tree, state: Mutex::default(), changed: Condvar::new() }))
    }

    /// Takes writes, after waiting for room.
    pub(crate) fn push(&self, env: &Env, writes: Vec<ExtentWrite>) {
        let mut state = self.0.lock();
        for write in writes {
            while state.held > WAITING_MAX && state.has_thread {
                // what this call has added is not known to the thread yet
                self.0.changed.notify_all();
                state = self.0.wait(state);
            }
            state.forget(write.extent.top, &write.range);
            state.add(write);
        }
        self.start(env, state);
    }

    /// Waits until all that was pushed before is through. Errors: that of the first write that has failed and has
    /// not been tried again.
    pub(crate) fn finish(&self) -> Result<()> {
        let mut state = self.0.lock();
        let last = state.taken;
        while state.through < last {
            state = self.0.wait(state);
        }
        match state.failed.first() {
            None => Ok(()),
            Some((write, e)) => {
                let what = match state.failed.len() - 1 {
                    0 => e.what().to_owned(),
                    more => format!("{}, and {more} more writes failed", e.what()),
                };
                let error = Error::new(e.kind(), what).at_block(write.bookmark);
                Err(match &e.place().vdev {
                    Some(vdev) => error.at_vdev(vdev.clone()),
                    None => error,
                })
            }
        }
    }

    /// What has failed, and has not been tried again: of which blocks, and where.
    pub(crate) fn failed(&self) -> Vec<FailedWrite> {
        let state = self.0.lock();
        let failed = state.failed.iter().map(|(write, _)| write);
        failed.map(|ExtentWrite { bookmark, extent, range, .. }| (*bookmark, extent.top, range.clone())).collect()
    }

    /// The bytes that failed to be written to just that place.
    pub(crate) fn failed_at(&self, dva: &Dva) -> Option<AlignedBuf> {
        let state = self.0.lock();
        let is_there = |write: &ExtentWrite| (write.extent.top, write.extent.offset) == (dva.vdev(), dva.offset());
        state.failed.iter().find(|(write, _)| is_there(write)).map(|(write, _)| AlignedBuf::from(&*write.bytes))
    }

    /// Writes again what has failed.
    pub(crate) fn retry_failed(&self, env: &Env) -> Result<()> {
        let mut state = self.0.lock();
        let failed = std::mem::take(&mut state.failed);
        failed.into_iter().for_each(|(write, _)| state.add(write));
        self.start(env, state);
        self.finish()
    }

    /// Writes again what has failed, and what is kept.
    pub(crate) fn retry(&self, env: &Env) -> Result<()> {
        // what is waiting goes first: it may be newer than what is kept of the same bytes until then
        let _ = self.finish();
        let mut state = self.0.lock();
        let kept = std::mem::take(&mut state.kept).into_values();
        let again: Vec<ExtentWrite> =
            kept.chain(std::mem::take(&mut state.failed).into_iter().map(|(w, _)| w)).collect();
        again.into_iter().for_each(|write| state.add(write));
        self.start(env, state);
        self.finish()
    }

    /// Waits until no write to some of these bytes is on its way, and forgets those that failed: for a
    /// writer that goes past the queue.
    pub(crate) fn finish_overlapping(&self, top: VdevNumber, range: Range<u64>) {
        let mut state = self.0.lock();
        while state.is_writing_to(top, &range) {
            state = self.0.wait(state);
        }
        state.forget(top, &range);
    }

    /// Keeps what somebody has written past the queue, until its group is flushed.
    pub(crate) fn keep(&self, writes: impl Iterator<Item = ExtentWrite>) {
        let mut state = self.0.lock();
        writes.for_each(|write| state.keep(write));
    }

    /// All of groups up to `txg` is flushed: it need not be kept.
    pub(crate) fn flushed(&self, txg: Txg) {
        let mut state = self.0.lock();
        let kept = std::mem::take(&mut state.kept);
        let (done, later): (BTreeMap<_, _>, _) = kept.into_iter().partition(|(_, write)| write.extent.birth_txg <= txg);
        state.kept = later;
        drop(state);
        drop(done);
    }

    /// Forgets writes to bytes that were given back.
    pub(crate) fn forget(&self, top: VdevNumber, range: Range<u64>) {
        let mut state = self.0.lock();
        state.forget(top, &range);
        if state.through < state.taken {
            let last = state.taken;
            state.given_back.push((top, range, last));
        }
    }

    /// Sees to it that what is waiting gets written.
    fn start(&self, env: &Env, mut state: MutexGuard<'_, WriteQueueState>) {
        if !state.has_thread {
            let (shared, inner) = (self.0.clone(), env.clone());
            // held while the thread starts, so that no second one does
            state.has_thread = env.spawn("write", move || shared.serve(&inner));
        }
        let inline = !state.has_thread;
        drop(state);
        self.0.changed.notify_all();
        if inline {
            while self.0.write_some(env) {}
        }
    }
}

impl Drop for WriteQueue {
    /// Waits for the batch that is being written; what is waiting is lost, as in a power cut.
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closed = true;
        state.waiting.clear();
        self.0.changed.notify_all();
        while state.has_thread {
            state = self.0.wait(state);
        }
    }
}

impl WriteQueueShared {
    /// The thread: writes until the queue is dropped.
    fn serve(&self, env: &Env) {
        loop {
            let mut state = self.lock();
            while state.waiting.is_empty() && !state.closed {
                state = self.wait(state);
            }
            if state.closed {
                state.has_thread = false;
                drop(state);
                return self.changed.notify_all();
            }
            drop(state);
            self.write_some(env);
        }
    }

    /// Writes a batch. False if there was none.
    fn write_some(&self, env: &Env) -> bool {
        let mut state = self.lock();
        while state.writing {
            state = self.wait(state);
        }
        let batch = state.next_batch();
        if batch.is_empty() {
            return false;
        }
        state.writing = true;
        state.batch = batch.iter().map(|write| (write.extent.top, write.range.clone())).collect();
        drop(state);
        let writes: Vec<(Extent, &[u8])> = batch.iter().map(|write| (write.extent, &*write.bytes)).collect();
        env.failpoint("batch taken");
        // sectors may be about to be moved, or copied to a leaf that lacks them
        let steady = self.tree.hold_shape();
        let results = self.tree.write_batch(&writes);
        drop(steady);
        env.failpoint("batch written");
        let mut state = self.lock();
        state.writing = false;
        state.batch.clear();
        state.through += batch.len() as u64;
        for (write, result) in batch.into_iter().zip(results) {
            state.held -= write.bytes.block.len();
            if state.is_given_back(&write) {
                continue;
            }
            match result {
                Ok(()) => state.keep(write),
                Err(error) => {
                    tracing::warn!(%error, bookmark = %write.bookmark, "write failed");
                    state.fail(write, error);
                }
            }
        }
        let through = state.through;
        state.given_back.retain(|(_, _, last)| *last > through);
        drop(state);
        self.changed.notify_all();
        true
    }

    fn lock(&self) -> MutexGuard<'_, WriteQueueState> {
        self.state.lock()
    }

    fn wait<'a>(&self, state: MutexGuard<'a, WriteQueueState>) -> MutexGuard<'a, WriteQueueState> {
        self.changed.wait(state)
    }
}

impl WriteQueueState {
    fn add(&mut self, mut write: ExtentWrite) {
        self.taken += 1;
        write.number = self.taken;
        self.held += write.bytes.block.len();
        self.waiting.push_back(write);
    }

    fn is_writing_to(&self, top: VdevNumber, range: &Range<u64>) -> bool {
        let is_in = |(t, r): &(VdevNumber, Range<u64>)| *t == top && r.start < range.end && range.start < r.end;
        self.batch.iter().any(is_in) || self.waiting.iter().any(|write| write.overlaps(top, range))
    }

    /// Forgets what is kept or has failed of these bytes.
    fn forget(&mut self, top: VdevNumber, range: &Range<u64>) {
        self.failed.retain(|(failed, _)| !failed.overlaps(top, range));
        // they lie apart, so those that overlap are neighbours
        while let Some((&key, kept)) = self.kept.range(..(top, range.end)).next_back()
            && kept.overlaps(top, range)
        {
            self.kept.remove(&key);
        }
    }

    fn is_given_back(&self, write: &ExtentWrite) -> bool {
        self.given_back.iter().any(|(top, range, last)| write.number <= *last && write.overlaps(*top, range))
    }

    fn keep(&mut self, write: ExtentWrite) {
        self.forget(write.extent.top, &write.range);
        self.kept.insert((write.extent.top, write.range.start), write);
    }

    fn fail(&mut self, write: ExtentWrite, error: Error) {
        // a newer one to the same bytes may have come meanwhile
        if !self.waiting.iter().any(|newer| newer.overlaps(write.extent.top, &write.range)) {
            self.failed.push((write, error));
        }
    }

    /// The oldest writes, up to the first that overlaps with one before it, in the order of their places: copies of
    /// metadata lie far apart, and a disk should not go back and forth between them.
    fn next_batch(&mut self) -> Vec<ExtentWrite> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let mut taken: BTreeMap<(VdevNumber, u64), u64> = BTreeMap::new();
        while let Some(next) = self.waiting.front() {
            let (top, Range { start, end }) = (next.extent.top, next.range.clone());
            let before = taken.range(..(top, end)).next_back();
            let overlaps = before.is_some_and(|((t, _), taken_end)| *t == top && *taken_end > start);
            if overlaps || batch.len() == BATCH_WRITES || bytes >= BATCH_BYTES {
                break;
            }
            taken.insert((top, start), end);
            bytes += next.bytes.len();
            batch.extend(self.waiting.pop_front());
        }
        batch.sort_unstable_by_key(|write| (write.extent.top, write.range.start));
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_no_two_writes_to_the_same_bytes() {
        let mut state = WriteQueueState::default();
        let block = Block::zeroed(1024);
        let mut add = |top, offset, asize| {
            let bytes = BlockSlice::new(block.clone(), 0..1024);
            let dva = Dva::new(VdevNumber::new(top), offset, asize, false);
            state.add(ExtentWrite::new(&dva, asize, Txg::new(1), bytes, Bookmark::default()));
        };
        // the fourth overlaps with the parity of the second, the sixth with the fifth
        for (top, offset, asize) in
            [(0, 0, 1024), (0, 4096, 2048), (1, 4096, 2048), (0, 5120, 1024), (0, 8192, 1024), (0, 7680, 1024)]
        {
            add(top, offset, asize);
        }
        let batches: Vec<usize> =
            std::iter::from_fn(|| Some(state.next_batch().len()).filter(|len| *len > 0)).collect();
        assert_eq!(batches, [3, 2, 1]);
        for _ in 0..BATCH_WRITES {
            let bytes = BlockSlice::new(block.clone(), 0..1024);
            let dva = Dva::new(VdevNumber::new(0), state.taken * 1024, 1024, false);
            state.add(ExtentWrite::new(&dva, 1024, Txg::new(1), bytes, Bookmark::default()));
        }
        assert_eq!(state.next_batch().len(), BATCH_WRITES);
        for offset in [9 << 20, 1 << 20, 8 << 20, 2 << 20] {
            let bytes = BlockSlice::new(block.clone(), 0..1024);
            state.add(ExtentWrite::new(
                &Dva::new(VdevNumber::new(0), offset, 1024, false),
                1024,
                Txg::new(1),
                bytes,
                Bookmark::default(),
            ));
        }
        assert!(state.next_batch().is_sorted_by_key(|write| write.range.start), "one way over the disk");
    }
}
