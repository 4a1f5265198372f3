//! The heads that are open to be changed, each with its intent log, and what all logs have done.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use base::{Env, Mutex, Result};
use dmu::{Objset, Txgs};
use format::ids::{DatasetId, ObjectId, Txg};
use zil::{Log, MemoryLog};

use super::head::{Head, HeadRoom};

/// Of so many groups it is known what was logged.
const MOMENTS_MAX: usize = 64;

/// What the intent logs of a pool have done since it was imported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogTotals {
    /// Bytes of records.
    pub used_bytes: u64,
    /// Bytes of the log blocks that they are in.
    pub block_bytes: u64,
    /// Log blocks.
    pub blocks: u64,
    /// Of these, those of at most 4 KiB, of less than 32 KiB, and larger ones.
    pub by_size: [u64; 3],
    /// Bytes of writes that records lead to.
    pub in_place_bytes: u64,
}

/// The same when a group was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogMoment {
    /// The group.
    pub txg: Txg,
    /// When, by the clock of the environment, in nanoseconds.
    pub at_ns: u64,
    /// What they had done.
    pub totals: LogTotals,
}

/// The open heads of a pool, by the object of the dataset.
pub(super) struct Heads {
    env: Env,
    txgs: Arc<Txgs>,
    open: Mutex<HashMap<DatasetId, Head>>,
    /// What was logged, when the latest groups were closed.
    moments: Mutex<VecDeque<LogMoment>>,
    /// What all logs are told, too, for the process after this one.
    memory: OnceLock<Arc<MemoryLog>>,
}

impl Heads {
    pub(super) fn new(env: &Env, txgs: &Arc<Txgs>) -> Heads {
        Heads {
            env: env.clone(),
            txgs: txgs.clone(),
            open: Mutex::default(),
            moments: Mutex::default(),
            memory: OnceLock::new(),
        }
    }

    /// That of dataset object `id`, if it is open.
    pub(super) fn get(&self, id: DatasetId) -> Option<Head> {
        self.open.lock().get(&id).cloned()
    }

    /// All, in the order of their objects.
    pub(super) fn all(&self) -> Vec<(DatasetId, Head)> {
        let mut heads: Vec<(DatasetId, Head)> = self.open.lock().iter().map(|(&id, head)| (id, head.clone())).collect();
        heads.sort_by_key(|(id, _)| *id);
        heads
    }

    /// Takes up the head of a dataset. Its log calls `sync` to bring everything that has happened to disk.
    pub(super) fn add(
        &self,
        objset: Arc<Objset>,
        room: Arc<dyn HeadRoom>,
        sync: impl Fn() -> Result<()> + Send + Sync + 'static,
    ) -> Result<Head> {
        let log = Log::open(objset.clone(), self.txgs.clone(), sync)?;
        self.memory.get().into_iter().for_each(|memory| log.keep_memory(memory.clone()));
        Ok(self.open.lock().entry(objset.id()).or_insert_with(|| Head::new(objset, log, room)).clone())
    }

    /// Forgets the head of a dataset that is gone, or has another root; returns it.
    pub(super) fn remove(&self, id: DatasetId) -> Option<Head> {
        self.open.lock().remove(&id)
    }

    /// Has all logs told to the log in memory, too, from now on and for good. Nothing has been told to any.
    pub(super) fn keep_memory(&self, memory: &Arc<MemoryLog>) {
        let open = self.open.lock();
        let _ = self.memory.set(memory.clone());
        open.values().for_each(|head| head.log().keep_memory(memory.clone()));
    }

    /// The log in memory, if there is one.
    pub(super) fn memory(&self) -> Option<&MemoryLog> {
        self.memory.get().map(|memory| &**memory)
    }

    /// Whether any has something to be written in a group.
    pub(super) fn are_dirty(&self, txg: Txg) -> bool {
        self.all().iter().any(|(_, head)| head.is_dirty(txg))
    }

    /// Whether objects of any have changes that belong to a group. Logs go their own ways: what they have to do they do
    /// in one group or the next.
    pub(super) fn have_changed_objects(&self, txg: Txg) -> bool {
        self.all().iter().any(|(_, head)| head.objset().is_dirty(txg))
    }

    /// Group `txg` is on disk.
    pub(super) fn synced(&self, txg: Txg) {
        self.all().iter().for_each(|(_, head)| head.log().synced(txg));
    }

    /// Brings what intent logs have in memory to disk.
    pub(super) fn commit_logs(&self) -> Result<()> {
        self.all().iter().try_for_each(|(_, head)| head.log().commit(ObjectId::NONE))
    }

    /// Ends all logs that are written to.
    pub(super) fn close_logs(&self) -> Result<()> {
        self.all().iter().try_for_each(|(_, head)| head.log().close())
    }

    /// What all logs have done.
    pub(super) fn log_totals(&self) -> LogTotals {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut totals = LogTotals::default();
        for (_, head) in self.all() {
            let stats = head.log().stats();
            totals.used_bytes += load(&stats.zil_itx_metaslab_normal_bytes) + load(&stats.zil_itx_metaslab_slog_bytes);
            totals.block_bytes += load(&stats.zil_itx_metaslab_normal_alloc) + load(&stats.zil_itx_metaslab_slog_alloc);
            totals.blocks += load(&stats.zil_itx_metaslab_normal_count) + load(&stats.zil_itx_metaslab_slog_count);
            totals.in_place_bytes += load(&stats.zil_itx_indirect_bytes);
            totals.by_size.iter_mut().zip(stats.blocks_by_size()).for_each(|(sum, count)| *sum += count);
        }
        totals
    }

    /// What all logs had done when each of the latest groups was closed, in the order of groups.
    pub(super) fn log_moments(&self) -> Vec<LogMoment> {
        self.moments.lock().iter().copied().collect()
    }

    /// Group `txg` was closed.
    pub(super) fn note_logged(&self, txg: Txg) {
        let moment = LogMoment { txg, at_ns: self.env.ticks_ns(), totals: self.log_totals() };
        let mut moments = self.moments.lock();
        if moments.len() == MOMENTS_MAX {
            moments.pop_front();
        }
        moments.push_back(moment);
    }
}
