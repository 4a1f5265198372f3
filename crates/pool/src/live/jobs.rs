//! Long work, in steps: each group makes one step of every job that has something to do.
//!
//! ```text
//!   state in the MOS ──▶ step(budget) in phase `jobs` of a group ──▶ state in the MOS, with what was done, in one group
//! ```
//!
//! So a job goes on where it was after an export, a crash and an import. A job that has work keeps groups coming; one
//! that cannot go on, as it cannot read something, waits until `zpool clear`, or until the pool is imported again.

use base::{Result, tunables};
use dmu::bpobj::Bpobj;

use super::{LivePool, SyncContext};
use crate::object_directory;

/// Blocks of destroyed datasets that are freed in one group at most, as all else waits.
const FREED_PER_TXG: u64 = 100_000;

/// A kind of long work.
pub(super) struct LongWork {
    /// For the log.
    name: &'static str,
    /// Whether a step would do something.
    has_work: fn(&LivePool) -> bool,
    /// Does some of it, and notes in the MOS how far it is.
    step: fn(&SyncContext<'_>) -> Result<()>,
    /// A step has failed.
    stall: fn(&LivePool),
}

/// All jobs, in the order of their steps: blocks are freed before they would be scrubbed.
const JOBS: &[LongWork] = &[
    LongWork {
        name: "free",
        has_work: |pool| pool.frees().are_waiting() && freed_per_group(pool) > 0,
        step: |context| context.free_destroyed(),
        stall: |pool| pool.frees().stall(),
    },
    LongWork {
        // its steps are made when heads are written
        name: "accounts",
        has_work: |pool| pool.is_counting_anew(),
        step: |_| Ok(()),
        stall: |_| (),
    },
    LongWork {
        name: "discard",
        has_work: |pool| pool.checkpoint_state().is_discarding(),
        step: |context| context.step_discard(),
        stall: |pool| pool.checkpoint_state().stall(),
    },
    LongWork {
        name: "removal",
        has_work: |pool| pool.has_removal_work(),
        step: |context| context.step_removal(),
        stall: |pool| pool.removal().stall(),
    },
    LongWork {
        name: "condense",
        has_work: |pool| pool.has_condensing_work(),
        step: |context| context.step_condensing(),
        stall: |pool| pool.removal().condensing().stall(),
    },
    LongWork {
        name: "expansion",
        has_work: |pool| pool.has_expansion_work(),
        step: |context| context.step_expansion(),
        stall: |pool| pool.expansion().stall(),
    },
    LongWork {
        name: "sweep",
        has_work: |pool| pool.has_sweep_work(),
        step: |context| context.step_sweeps(),
        stall: |pool| pool.sweeps().stall(),
    },
    LongWork {
        name: "rebuild",
        has_work: |pool| pool.has_rebuild_work(),
        step: |context| context.step_rebuilds(),
        stall: |pool| pool.scan().rebuilds().stall(),
    },
    LongWork {
        name: "resilver",
        has_work: |pool| pool.needs_resilver(),
        step: |context| context.begin_resilver(),
        stall: |pool| pool.scan().stall(),
    },
    LongWork {
        name: "scan",
        has_work: |pool| pool.has_scan_work(),
        step: |context| context.step_scan(),
        stall: |pool| pool.scan().stall(),
    },
    LongWork {
        name: "error scrub",
        has_work: |pool| pool.has_error_scrub_work(),
        step: |context| context.step_error_scrub(),
        stall: |pool| pool.error_scrub().stall(),
    },
];

fn freed_per_group(pool: &LivePool) -> u64 {
    pool.env().tunable(tunables::ZFS_ASYNC_BLOCK_MAX_BLOCKS).min(FREED_PER_TXG).min(pool.txgs().frees_max())
}

impl LivePool {
    /// Whether a job has something to do.
    pub(super) fn has_jobs(&self) -> bool {
        JOBS.iter().any(|job| (job.has_work)(self))
    }

    /// Bytes of frees that were put off as a group had no room for them; 0 if they cannot be read.
    pub fn put_off_bytes(&self) -> u64 {
        let bytes = || -> Result<u64> {
            let view = self.view();
            let list = object_directory(view.mos())?.object_id("sync_bplist")?;
            list.map_or(Ok(0), |list| Ok(Bpobj::open(view.mos(), list)?.totals()?.used))
        };
        if self.frees().are_put_off() { bytes().unwrap_or(0) } else { 0 }
    }

    /// Lets those jobs do nothing more that would keep groups coming.
    pub(super) fn stall_jobs(&self) {
        self.scan().stall();
        self.scan().rebuilds().stall();
        self.sweeps().stall();
        self.removal().stall();
        self.expansion().stall();
        self.stall_counting(true);
    }

    /// Lets jobs go on that could not read something.
    pub(super) fn wake_jobs(&self) {
        self.frees().wake();
        self.checkpoint_state().wake();
        self.removal().wake();
        self.expansion().wake();
        self.removal().condensing().wake();
        self.sweeps().wake();
        self.scan().wake();
        self.scan().rebuilds().wake();
        self.error_scrub().wake();
        self.stall_counting(false);
        self.scan().lock().given_up.clear();
    }
}

impl SyncContext<'_> {
    /// Makes one step of each job.
    pub(super) fn step_jobs(&self) {
        if let Err(error) = self.check_scan_places() {
            tracing::warn!(pool = self.pool.name(), "the queue of the scan is not checked: {error}");
        }
        if let Err(error) = self.autotrim() {
            tracing::warn!(pool = self.pool.name(), "what has become free is not trimmed: {error}");
        }
        for job in JOBS.iter().filter(|job| (job.has_work)(self.pool)) {
            if let Err(error) = (job.step)(self) {
                tracing::error!(pool = self.pool.name(), job = job.name, "stalled: {error}");
                (job.stall)(self.pool);
            }
        }
    }

    /// Sees to it that no place of the scan is in a dataset that was destroyed: OpenZFS could not go on there.
    fn check_scan_places(&self) -> Result<()> {
        let places = self.pool.scan().places();
        if places.is_empty() {
            return Ok(());
        }
        let dsl = self.dsl()?;
        let mut gone = Vec::new();
        for id in places {
            if dsl.dataset_phys(id)?.is_none() {
                gone.push(id);
            }
        }
        if !gone.is_empty() {
            let heads = dsl.walk()?.into_iter().map(|dir| dir.phys.head_dataset).filter(|head| head.is_some());
            self.pool.scan().replace_gone(&gone, &Vec::from_iter(heads));
        }
        Ok(())
    }

    /// Frees some of what was destroyed, when nothing is put off for which there was no room.
    fn free_destroyed(&self) -> Result<()> {
        if self.pool.frees().are_put_off() {
            return Ok(());
        }
        let is_left = dsl::write::free_destroyed(&self.change, freed_per_group(self.pool), &mut |bp| {
            self.pool.free(&self.change, bp)
        })?;
        self.pool.frees().went_on(is_left);
        Ok(())
    }
}
