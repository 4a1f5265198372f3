//! Records of when groups were written, and scrubs of what was written in a span of time, which these find.
//!
//! A record is made every `spa_note_txg_time` seconds in which something is written, and when the pool is exported. On
//! disk: [`format::txg_times`].

use base::Result;
use dmu::zap::ZapValue;
use format::ids::Txg;
use format::txg_times::{TXG_TIME_ENTRIES, TxgTimes};

use super::txg_time_log::{NoteTime, ScrubRange};
use super::{LivePool, SyncContext};
use crate::mos::DIRECTORY;

impl LivePool {
    /// Takes up the records that are on disk. Ones that make no sense are forgotten, and written over.
    pub(super) fn load_txg_times(&self) -> Result<()> {
        let directory = crate::object_directory(self.mos())?;
        let mut words: [Vec<u64>; 3] = Default::default();
        for (words, entry) in words.iter_mut().zip(TXG_TIME_ENTRIES) {
            *words = directory.lookup(entry.as_bytes())?.map(|value| value.u64s()).unwrap_or_default();
        }
        match TxgTimes::parse(words.each_ref().map(Vec::as_slice)) {
            Ok(times) => self.txg_times().load(times),
            Err(error) => tracing::warn!(pool = self.name(), "{error}"),
        }
        Ok(())
    }
}

impl SyncContext<'_> {
    /// Notes when this group is written.
    pub(super) fn note_time(&self, when: NoteTime) -> Result<()> {
        let words = self.pool.txg_times().note(self.change.env, self.change.tx.txg(), when);
        let mut rings = words.into_iter().flat_map(|words| TXG_TIME_ENTRIES.into_iter().zip(words));
        rings.try_for_each(|(entry, words)| self.change.set(DIRECTORY, entry, &ZapValue::new(8, &words)))
    }

    /// The groups of a scrub: it reads what was born after the first, and up to the last.
    pub(super) fn groups_of(&self, range: ScrubRange) -> Result<(Txg, Txg)> {
        let now = self.change.tx.txg();
        Ok(match range {
            ScrubRange::All => (Txg::ZERO, now),
            ScrubRange::SinceLast => (self.last_scrubbed()?, now),
            ScrubRange::Born { from_s, to_s } => {
                let (from, to) = self.pool.txg_times().around(from_s, to_s);
                (from.unwrap_or(Txg::ZERO), to.unwrap_or(now))
            }
        })
    }
}
