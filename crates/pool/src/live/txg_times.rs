//! Records of when groups were written, and scrubs of what was written in a span of time, which these find.
//!
//! A record is made every `spa_note_txg_time` seconds in which something is written, and when the pool is exported. On
//! disk: [`format::txg_times`].

use base::{Mutex, Result, tunables};
use dmu::zap::ZapValue;
use format::ids::Txg;
use format::txg_times::{TXG_TIME_ENTRIES, TxgTimes};
use serde::{Deserialize, Serialize};

use super::{LivePool, SyncContext};
use crate::mos::DIRECTORY;

/// What a scrub reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScrubRange {
    /// All that is in use.
    All,
    /// What was born since the last scrub that was finished.
    SinceLast,
    /// What was born from the one time on, and up to the other, in seconds since 1970; as well as is known.
    Born {
        /// The first time; none is that of the pool's creation.
        from_s: Option<u64>,
        /// The last time; none is now.
        to_s: Option<u64>,
    },
}

/// The records, and when they were added to.
#[derive(Default)]
pub(super) struct TxgTimeLog {
    state: Mutex<LogState>,
}

#[derive(Default)]
struct LogState {
    times: TxgTimes,
    noted_s: u64,
    flushed_s: u64,
    is_changed: bool,
}

/// When a group is noted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NoteTime {
    /// If the last one is long ago.
    IfDue,
    /// At once, and on disk: there may be none for long.
    Now,
}

impl LivePool {
    /// Takes up the records that are on disk. Ones that make no sense are forgotten, and written over.
    pub(super) fn load_txg_times(&self) -> Result<()> {
        let directory = crate::object_directory(self.mos())?;
        let mut words: [Vec<u64>; 3] = Default::default();
        for (words, entry) in words.iter_mut().zip(TXG_TIME_ENTRIES) {
            *words = directory.lookup(entry.as_bytes())?.map(|value| value.u64s()).unwrap_or_default();
        }
        match TxgTimes::parse(words.each_ref().map(Vec::as_slice)) {
            Ok(times) => self.txg_times.state.lock().times = times,
            Err(error) => tracing::warn!(pool = self.name(), "{error}"),
        }
        Ok(())
    }
}

impl SyncContext<'_> {
    /// Notes when this group is written.
    pub(super) fn note_time(&self, when: NoteTime) -> Result<()> {
        let (env, now_s) = (self.change.env, self.change.env.now_s());
        let words = {
            let mut state = self.pool.txg_times.state.lock();
            let is_due =
                |last_s: u64, interval_s: u64| when == NoteTime::Now || now_s >= last_s.saturating_add(interval_s);
            if is_due(state.noted_s, env.tunable(tunables::SPA_NOTE_TXG_TIME)) {
                state.times.add(now_s, self.change.tx.txg());
                (state.noted_s, state.is_changed) = (now_s, true);
            }
            if !state.is_changed || !is_due(state.flushed_s, env.tunable(tunables::SPA_FLUSH_TXG_TIME)) {
                return Ok(());
            }
            (state.flushed_s, state.is_changed) = (now_s, false);
            state.times.to_words()
        };
        let mut rings = TXG_TIME_ENTRIES.iter().zip(words);
        rings.try_for_each(|(entry, words)| self.change.set(DIRECTORY, entry, &ZapValue::new(8, &words)))
    }

    /// The groups of a scrub: it reads what was born after the first, and up to the last.
    pub(super) fn groups_of(&self, range: ScrubRange) -> Result<(Txg, Txg)> {
        let now = self.change.tx.txg();
        Ok(match range {
            ScrubRange::All => (Txg::ZERO, now),
            ScrubRange::SinceLast => (self.last_scrubbed()?, now),
            ScrubRange::Born { from_s, to_s } => {
                let state = self.pool.txg_times.state.lock();
                let from = from_s.and_then(|from_s| state.times.latest_by(from_s));
                let to = to_s.and_then(|to_s| state.times.first_from(to_s));
                (from.unwrap_or(Txg::ZERO), to.unwrap_or(now))
            }
        })
    }
}
