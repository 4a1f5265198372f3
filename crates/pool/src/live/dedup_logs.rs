//! Logs of dedup tables that came with the pool: they go into the tables before anybody changes these.
//!
//! ```text
//!   import ─▶ first group: a portion of the log that goes into the tables ─▶ entries, in the order of keys
//!             next group:  the next portion, behind its checkpoint          ...
//!             then:        the log that has grown takes its place, and goes the same way
//!             last:        both logs are empty, and are removed
//! ```
//!
//! A portion is what one group may change; so memory is bounded whatever the logs hold. They are read anew for each, but
//! OpenZFS keeps them as small as memory is, and mostly there is one portion. Whenever power is cut, it goes on from the
//! checkpoint, here as in OpenZFS. Until all is done the pool is nobody's: `LivePool::import` does not return, and the
//! frees of its groups are put off ([`super::dedup_changes`]).

use base::tunables::ZFS_DEDUP_LOG_FLUSH_ENTRIES_MAX;
use base::{Endian, Result};
use codec::checksum::Checksum;
use format::ddt::DdtKey;
use format::ids::ObjectId;

use super::dedup::Tables;
use super::{LivePool, SyncContext};
use crate::Pool;
use crate::dedup::directory::{DdtDirectory, checksums};
use crate::dedup::log::{DedupLogHead, LogPortion};
use crate::dedup::packed::{blocks_of, changed_s};

/// Entries of a portion that are in memory at most.
const ENTRIES_MAX: u64 = 200_000;

/// Checksums that have a log with anything in it, or one that is to be removed. Errors: `Unsupported` for tables of a
/// kind that is not known; those of reading.
pub(super) fn logged(pool: &Pool) -> Result<Vec<Checksum>> {
    let mut logged = Vec::new();
    for checksum in checksums() {
        let directory = DdtDirectory::find(pool.mos(), checksum)?;
        if directory.logs.iter().any(Option::is_some) {
            logged.push(checksum);
        }
    }
    Ok(logged)
}

impl LivePool {
    /// Brings what is left in logs into the tables.
    pub(super) fn finish_dedup_logs(&self, logged: &[Checksum]) -> Result<()> {
        while self.dedup_changes().has_logs() {
            let logged = logged.to_vec();
            self.run(move |context| context.flush_dedup_logs(&logged))?;
        }
        if !logged.is_empty() {
            // those that were put off
            self.frees().put_off(true);
        }
        Ok(())
    }
}

impl SyncContext<'_> {
    /// Brings a portion of what is in logs into tables.
    pub(super) fn flush_dedup_logs(&self, logged: &[Checksum]) -> Result<()> {
        // each may dirty a block
        let room = self.change.env.tunable(ZFS_DEDUP_LOG_FLUSH_ENTRIES_MAX).clamp(1, ENTRIES_MAX);
        let mut room = room as usize;
        for checksum in logged {
            let mut tables = Tables::open(self, *checksum as u8, None)?;
            let is_done = self.flush_dedup_log(&mut tables, &mut room);
            tables.finish()?;
            if !is_done? {
                return Ok(());
            }
        }
        self.pool.dedup_changes().set_has_logs(false);
        Ok(())
    }

    /// The same of one checksum, as long as there is room; whether all is done.
    fn flush_dedup_log(&self, tables: &mut Tables<'_>, room: &mut usize) -> Result<bool> {
        let mos = self.change.mos;
        while *room > 0 {
            let mut logs = Vec::new();
            for id in tables.logs() {
                let log = mos.object(id)?;
                logs.push((DedupLogHead::of(&log)?, log));
            }
            // first what goes into the tables: the log that has begun to, or the one that has grown
            logs.sort_by_key(|(head, _)| (head.len == 0, !head.is_flushing));
            let Some((_, log)) = logs.first().filter(|(head, _)| head.len > 0) else {
                tables.remove_logs()?;
                return Ok(true);
            };
            let portion = LogPortion::read(log, logs.get(1).map(|(_, log)| log), *room)?;
            *room = room.saturating_sub(portion.entries.len().max(1));
            let (mut stored, mut last) = (Ok(()), logs[0].0.checkpoint);
            for (key, value) in &portion.entries {
                stored = self.store_logged(tables, &DdtKey::from_words(*key), value);
                if stored.is_err() {
                    break;
                }
                last = Some(*key);
            }
            // what is in the tables is not to be taken from the log again, whatever has failed
            let is_whole = stored.is_ok() && portion.checkpoint.is_none();
            let checkpoint = if stored.is_ok() { portion.checkpoint } else { last };
            for (number, (head, log)) in logs.iter().enumerate() {
                let is_first = number == 0;
                let head = DedupLogHead {
                    is_flushing: is_first != is_whole,
                    len: if is_first && is_whole { 0 } else { head.len },
                    checkpoint: checkpoint.filter(|_| is_first),
                    ..*head
                };
                self.set_log_head(log.id(), head)?;
            }
            stored?;
        }
        Ok(false)
    }

    fn store_logged(&self, tables: &mut Tables<'_>, key: &DdtKey, value: &[u8]) -> Result<()> {
        let blocks = blocks_of(value, Endian::Little)?;
        let freed = tables.store_logged(key, blocks, changed_s(value, Endian::Little))?;
        freed.iter().for_each(|bp| self.pool.free(&self.change, bp));
        Ok(())
    }

    fn set_log_head(&self, id: ObjectId, head: DedupLogHead) -> Result<()> {
        self.change.mos.object(id)?.update(self.change.tx, |dnode| dnode.bonus = head.to_bytes())
    }
}
