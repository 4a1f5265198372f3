//! Which thread commits, when, and for which others.
//!
//! ```text
//!   commit ─▶ asked ─▶ batch: all that have asked ─▶ written ─▶ flushed ─▶ told
//!                       │ one at a time builds and writes │      │ one at a time, of all that is written
//!   batch 1      | gathers | writes                       | flushes            |
//!   batch 2                                               | gathers | writes   | flushes
//! ```
//!
//! The thread that asked first does it for its batch; the others sleep until they are told how it went. A thread
//! that is alone does all itself, without waiting for anybody.
//!
//! Batches are flushed in the order in which they were written. One is told when it is flushed and all before
//! it are; so when a flush has failed, what was written meanwhile does not count either.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base::{Condvar, Env, Error, Mutex, Result};
use dmu::Txgs;
use format::ids::{ObjectId, Txg, VdevNumber};

use crate::draft::BLOCK_SIZE_MAX;
use crate::pace::{Pace, Verdict};

/// Takes turns for one log.
pub(crate) struct CommitTurns {
    state: Mutex<TurnState>,
    /// For the thread that gathers.
    gathering: Condvar,
    env: Env,
    txgs: Arc<Txgs>,
}

struct TurnState {
    /// Which threads want what to be committed, and are in no batch yet. Somebody is at writing if there are any.
    asked: Vec<(ObjectId, Arc<CommitWaiter>)>,
    is_writing: bool,
    /// Whether that one sleeps until others have come.
    is_gathering: bool,
    is_flushing: bool,
    written: Vec<Batch>,
    /// How many are in batches, and have not been told.
    in_batches: usize,
    /// Flushes that have failed.
    failures: u64,
    /// Entries up to this group may have been taken without lasting: this group must be on disk.
    owed_txg: Txg,
    writer: WriterState,
    pace: Pace,
}

/// What goes from one writer to the next.
#[derive(Debug, Default)]
pub(crate) struct WriterState {
    /// Sequence number of the last record.
    pub(crate) seq: u64,
    /// The last group of all entries that were taken.
    pub(crate) taken_txg: Txg,
    /// Bytes of the latest batches.
    recent: [usize; RECENT],
    batches: usize,
}

/// The size of the next block is that of the largest of so many batches before.
const RECENT: usize = 8;

impl WriterState {
    /// Takes note of a batch.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.batches += 1;
        self.recent[self.batches % RECENT] = bytes;
    }

    /// Bytes that the next batch probably takes in its first block.
    pub(crate) fn next_size(&self) -> usize {
        self.recent.iter().copied().max().unwrap_or(0).min(BLOCK_SIZE_MAX)
    }
}

/// What was written of a batch, and is to be flushed.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    /// The top-level vdevs.
    pub(crate) tops: BTreeSet<VdevNumber>,
    /// The blocks, as their chain numbers them.
    pub(crate) blocks: Vec<u64>,
}

struct Batch {
    seats: Vec<Arc<CommitWaiter>>,
    sent: Sent,
    /// If flushing fails, this group must be on disk.
    owed_txg: Txg,
    failures: u64,
}

/// Where a thread that has asked waits.
#[derive(Default)]
pub(crate) struct CommitWaiter {
    place: Mutex<WaiterState>,
    called: Condvar,
}

#[derive(Default)]
struct WaiterState {
    call: Option<Call>,
    /// Somebody has to be woken: to wake nobody is a system call, too.
    sleeps: bool,
}

/// What a thread that waits has to do.
#[derive(Debug)]
pub(crate) enum Call {
    /// Build a batch and write it.
    Write,
    /// Flush what is written.
    Flush,
    /// Nothing: this came of it.
    Done(Result<()>),
}

impl CommitWaiter {
    pub(crate) fn wait(&self) -> Call {
        let mut place = self.place.lock();
        loop {
            if let Some(call) = place.call.take() {
                place.sleeps = false;
                return call;
            }
            place.sleeps = true;
            place = self.called.wait(place);
        }
    }

    fn tell(&self, call: Call) {
        let mut place = self.place.lock();
        place.call = Some(call);
        let sleeps = place.sleeps;
        drop(place);
        if sleeps {
            self.called.notify_one();
        }
    }
}

impl CommitTurns {
    pub(crate) fn new(env: Env, txgs: Arc<Txgs>) -> CommitTurns {
        let state = TurnState {
            asked: Vec::new(),
            is_writing: false,
            is_gathering: false,
            is_flushing: false,
            written: Vec::new(),
            in_batches: 0,
            failures: 0,
            owed_txg: Txg::ZERO,
            writer: WriterState::default(),
            pace: Pace::default(),
        };
        CommitTurns { state: Mutex::new(state), gathering: Condvar::new(), env, txgs }
    }

    /// Asks for a commit of `object`. `None` if nothing is on its way, and no group is waited for, and
    /// there is nothing to be taken.
    pub(crate) fn ask(&self, object: ObjectId, has_any: impl FnOnce() -> bool) -> Option<Arc<CommitWaiter>> {
        let mut state = self.state.lock();
        let is_busy = state.is_writing || state.in_batches > 0 || state.owed_txg > self.txgs.synced_txg();
        if !is_busy && !has_any() {
            return None;
        }
        let seat = Arc::new(CommitWaiter::default());
        state.asked.push((object, seat.clone()));
        state.pace.came(|| self.env.ticks_ns());
        match state.is_writing {
            false => {
                state.is_writing = true;
                seat.tell(Call::Write);
            }
            true if state.is_gathering && state.asked.len() >= state.pace.expected() => self.gathering.notify_one(),
            true => {}
        }
        Some(seat)
    }

    /// For the thread that was called to write: waits a little for others, and takes all that have asked.
    pub(crate) fn write(&self) -> Writing<'_> {
        let mut state = self.state.lock();
        let begun_ns = self.env.ticks_ns();
        loop {
            let (asked, in_batches, is_flushing) = (state.asked.len(), state.in_batches, state.is_flushing);
            state.is_gathering = true;
            match state.pace.verdict(asked, in_batches, is_flushing, begun_ns, || self.env.ticks_ns()) {
                Verdict::Go => break,
                Verdict::Wait => state = self.gathering.wait(state),
                Verdict::WaitNs(ns) => {
                    state = self.gathering.wait_timeout(state, Duration::from_nanos(ns));
                }
            }
        }
        state.is_gathering = false;
        let (objects, seats): (Vec<ObjectId>, Vec<Arc<CommitWaiter>>) =
            std::mem::take(&mut state.asked).into_iter().unzip();
        state.in_batches += seats.len();
        Writing {
            turns: self,
            begun_ns: self.env.ticks_ns(),
            objects,
            seats,
            failures: state.failures,
            owed_txg: state.owed_txg,
            writer: std::mem::take(&mut state.writer),
        }
    }

    /// For the thread that was called to flush: takes all that is written.
    pub(crate) fn flush(&self) -> Flushing<'_> {
        let mut state = self.state.lock();
        let batches = std::mem::take(&mut state.written);
        Flushing { turns: self, begun_ns: self.env.ticks_ns(), batches }
    }
}

/// A turn at writing.
pub(crate) struct Writing<'a> {
    turns: &'a CommitTurns,
    begun_ns: u64,
    pub(crate) objects: Vec<ObjectId>,
    seats: Vec<Arc<CommitWaiter>>,
    failures: u64,
    /// This group must be on disk.
    pub(crate) owed_txg: Txg,
    pub(crate) writer: WriterState,
}

impl Writing<'_> {
    /// All has come to its end without the log, or failed.
    pub(crate) fn done(mut self, outcome: Result<()>) {
        let owed_txg = if outcome.is_ok() { Txg::ZERO } else { self.writer.taken_txg };
        self.leave(None, owed_txg, &outcome);
    }

    /// This is to be flushed.
    pub(crate) fn sent(mut self, sent: Sent) {
        let batch = Batch {
            seats: std::mem::take(&mut self.seats),
            sent,
            owed_txg: self.writer.taken_txg,
            failures: self.failures,
        };
        self.leave(Some(batch), Txg::ZERO, &Ok(()));
    }

    fn leave(&mut self, batch: Option<Batch>, owed_txg: Txg, outcome: &Result<()>) {
        let mut state = self.turns.state.lock();
        state.writer = std::mem::take(&mut self.writer);
        state.owed_txg = state.owed_txg.max(owed_txg);
        state.in_batches -= self.seats.len();
        let next = state.asked.first().map(|(_, seat)| seat.clone());
        state.is_writing = next.is_some();
        let mut flushes = None;
        if let Some(batch) = batch {
            if !batch.sent.tops.is_empty() {
                state.pace.wrote(self.turns.env.ticks_ns().saturating_sub(self.begun_ns));
            }
            if !state.is_flushing {
                state.is_flushing = true;
                flushes = Some(batch.seats[0].clone());
            }
            state.written.push(batch);
        }
        drop(state);
        flushes.iter().for_each(|seat| seat.tell(Call::Flush));
        next.iter().for_each(|seat| seat.tell(Call::Write));
        tell_all(std::mem::take(&mut self.seats), outcome);
    }
}

/// A turn at flushing.
pub(crate) struct Flushing<'a> {
    turns: &'a CommitTurns,
    begun_ns: u64,
    batches: Vec<Batch>,
}

impl Flushing<'_> {
    /// What is to be flushed.
    pub(crate) fn tops(&self) -> BTreeSet<VdevNumber> {
        self.batches.iter().flat_map(|batch| &batch.sent.tops).copied().collect()
    }

    /// The blocks that are, as their chain numbers them.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = u64> + '_ {
        self.batches.iter().flat_map(|batch| &batch.sent.blocks).copied()
    }

    /// It has failed: whatever is written after this has to begin a new chain.
    pub(crate) fn failed(&self) {
        self.turns.state.lock().failures += 1;
    }

    /// The group that must be on disk, as a flush has failed that these rely on.
    pub(crate) fn owed_txg(&self) -> Option<Txg> {
        let state = self.turns.state.lock();
        let relying = self.batches.iter().filter(|batch| batch.failures != state.failures);
        let owed_txg = relying.map(|batch| batch.owed_txg).fold(state.owed_txg, Txg::max);
        (owed_txg > self.turns.txgs.synced_txg()).then_some(owed_txg)
    }

    pub(crate) fn done(mut self, outcome: Result<()>) {
        let owed_txg = self.batches.iter().map(|batch| batch.owed_txg).max().filter(|_| outcome.is_err());
        self.leave(owed_txg.unwrap_or(Txg::ZERO), &outcome);
    }

    fn leave(&mut self, owed_txg: Txg, outcome: &Result<()>) {
        let is_timed = self.batches.iter().any(|batch| !batch.sent.tops.is_empty());
        let seats: Vec<Arc<CommitWaiter>> =
            std::mem::take(&mut self.batches).into_iter().flat_map(|batch| batch.seats).collect();
        let now_ns = self.turns.env.ticks_ns();
        let mut state = self.turns.state.lock();
        state.owed_txg = state.owed_txg.max(owed_txg);
        state.in_batches -= seats.len();
        state.pace.flushed(now_ns, now_ns.saturating_sub(self.begun_ns), seats.len(), is_timed);
        let next = state.written.first().map(|batch| batch.seats[0].clone());
        state.is_flushing = next.is_some();
        let is_gathering = state.is_gathering;
        drop(state);
        next.iter().for_each(|seat| seat.tell(Call::Flush));
        if is_gathering {
            self.turns.gathering.notify_one();
        }
        tell_all(seats, outcome);
    }
}

fn tell_all(seats: Vec<Arc<CommitWaiter>>, outcome: &Result<()>) {
    for seat in seats {
        seat.tell(Call::Done(outcome.as_ref().copied().map_err(|e| Error::new(e.kind(), e.what().to_owned()))));
    }
}
