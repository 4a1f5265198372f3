//! Records of when groups were written, in memory.

use base::{Env, Mutex, tunables};
use format::ids::Txg;
use format::txg_times::TxgTimes;
use serde::{Deserialize, Serialize};

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

/// When a group is noted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NoteTime {
    /// If the last one is long ago.
    IfDue,
    /// At once, and on disk: there may be none for long.
    Now,
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

impl TxgTimeLog {
    /// Takes up what is on disk.
    pub(super) fn load(&self, times: TxgTimes) {
        self.state.lock().times = times;
    }

    /// Notes when a group is written. Returns what is to be on disk now, if anything is.
    pub(super) fn note(&self, env: &Env, txg: Txg, when: NoteTime) -> Option<[Vec<u64>; 3]> {
        let now_s = env.now_s();
        let is_due = |last_s: u64, interval_s: u64| when == NoteTime::Now || now_s >= last_s.saturating_add(interval_s);
        let mut state = self.state.lock();
        if is_due(state.noted_s, env.tunable(tunables::SPA_NOTE_TXG_TIME)) {
            state.times.add(now_s, txg);
            (state.noted_s, state.is_changed) = (now_s, true);
        }
        if !state.is_changed || !is_due(state.flushed_s, env.tunable(tunables::SPA_FLUSH_TXG_TIME)) {
            return None;
        }
        (state.flushed_s, state.is_changed) = (now_s, false);
        Some(state.times.to_words())
    }

    /// The latest group that was written by the one time, and the first from the other on, where that is known.
    pub(super) fn around(&self, from_s: Option<u64>, to_s: Option<u64>) -> (Option<Txg>, Option<Txg>) {
        let times = &self.state.lock().times;
        (from_s.and_then(|from_s| times.latest_by(from_s)), to_s.and_then(|to_s| times.first_from(to_s)))
    }
}
