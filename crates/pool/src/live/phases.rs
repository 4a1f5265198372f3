//! The order in which a group gets to disk: a table of phases.
//!
//! Each phase says what it may make dirty, and what is closed when it is done: clean, and to stay so until the group is
//! on disk. A change that comes after its part was closed would not be in the group, nor in any other: that ends the
//! process where assertions are on, and stops the groups elsewhere.

use std::cell::RefCell;

use base::{Error, Kind, Result};
use dmu::{OnFailure, dsize};
use dsl::write::Change;
use format::blkptr::BlkPtr;
use format::ids::Txg;

use super::txg_time_log::NoteTime;
use super::{LivePool, SyncContext, Tell};

/// What a phase may make dirty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dirties {
    /// Objects of heads.
    Heads,
    /// References to blocks that dedup and clone tables count.
    References,
    /// Objects of the MOS, space maps among them.
    Mos,
    /// The configuration in labels.
    Labels,
}

use Dirties::{Heads, Labels, Mos, References};
use OnFailure::{Fail, Wait};

const ALL: [Dirties; 4] = [Heads, References, Mos, Labels];

/// A step of a group's way to disk.
struct Phase {
    name: &'static str,
    may_dirty: &'static [Dirties],
    /// What is clean from here on.
    closes: &'static [Dirties],
    /// Its reads wait for devices that fail if what it does cannot be left out, nor begun anew.
    on_failure: OnFailure,
    run: fn(&Syncing<'_>) -> Result<()>,
}

const PHASES: &[Phase] = &[
    Phase {
        name: "mend",
        may_dirty: &[],
        closes: &[],
        on_failure: Fail,
        run: |syncing| {
            syncing.context.pool.mend();
            Ok(())
        },
    },
    Phase {
        // a checkpoint begins and ends between two groups
        name: "first tasks",
        may_dirty: &[Mos],
        closes: &[],
        on_failure: Wait,
        run: |syncing| {
            let told = syncing.context.pool.run_first_tasks(&syncing.context);
            syncing.told.borrow_mut().extend(told);
            Ok(())
        },
    },
    Phase {
        // before anything of the group is freed
        name: "clones",
        may_dirty: &[References],
        closes: &[],
        on_failure: Wait,
        run: |syncing| syncing.context.count_new_clones(),
    },
    Phase {
        name: "put-off frees",
        may_dirty: &[References, Mos],
        closes: &[],
        on_failure: Wait,
        run: |syncing| syncing.context.pool.free_put_off(&syncing.context.change),
    },
    Phase {
        name: "heads",
        may_dirty: &[References, Mos],
        closes: &[],
        on_failure: Wait,
        run: |syncing| syncing.context.pool.sync_heads(&syncing.context.change),
    },
    Phase {
        name: "tasks",
        may_dirty: &[Heads, References, Mos, Labels],
        closes: &[],
        on_failure: Wait,
        run: run_tasks,
    },
    Phase {
        // what tasks made in new heads, and changed in others
        name: "heads of tasks",
        may_dirty: &[References, Mos],
        closes: &[Heads],
        on_failure: Wait,
        run: |syncing| syncing.context.pool.sync_heads(&syncing.context.change),
    },
    Phase {
        // each ends with all heads clean
        name: "snapshots",
        may_dirty: &[References, Mos],
        closes: &[],
        on_failure: Wait,
        run: |syncing| {
            let told = syncing.context.pool.run_last_tasks(&syncing.context)?;
            syncing.told.borrow_mut().extend(told);
            Ok(())
        },
    },
    Phase {
        name: "jobs",
        may_dirty: &[References, Mos, Labels],
        closes: &[],
        on_failure: Fail,
        run: |syncing| {
            syncing.context.step_jobs();
            Ok(())
        },
    },
    Phase {
        name: "tables",
        may_dirty: &[Mos],
        closes: &[References],
        on_failure: Wait,
        run: |syncing| {
            let context = &syncing.context;
            context.write_dedup_tables()?;
            context.write_clone_tables()?;
            context.note_time(NoteTime::IfDue)?;
            context.log_lost()
        },
    },
    Phase {
        name: "MOS",
        may_dirty: &[Labels],
        closes: &[Mos],
        on_failure: Wait,
        run: |syncing| syncing.context.pool.sync_mos(&syncing.context),
    },
    Phase {
        name: "root",
        may_dirty: &[],
        closes: &[Labels],
        on_failure: Wait,
        run: |syncing| syncing.context.pool.write_root(syncing.context.change.tx.txg()),
    },
];

/// A group on its way.
struct Syncing<'a> {
    context: SyncContext<'a>,
    /// What is to be told when it is on disk.
    told: &'a RefCell<Vec<Tell>>,
}

impl LivePool {
    /// Brings a group that was closed to disk.
    pub(super) fn sync_txg(&self, txg: Txg) -> Result<()> {
        let is_idle = !self.has_jobs()
            && !self.has_tasks()
            && !self.has_damage()
            && !self.mos().is_dirty(txg)
            && !self.heads().are_dirty(txg)
            && !self.has_much_to_trim();
        if is_idle {
            return Ok(());
        }
        let tx = self.txgs().in_sync(txg);
        let size_of = |bp: &BlkPtr| dsize(self.cache(), bp);
        let told = RefCell::default();
        let mut closed = Vec::new();
        for phase in PHASES {
            let was_clean = self.clean_parts(txg);
            let mos = self.mos().reading(phase.on_failure);
            let change = Change { mos: &mos, tx: &tx, env: self.env(), size_of: &size_of };
            (phase.run)(&Syncing { context: SyncContext { pool: self, change }, told: &told })?;
            closed.extend(phase.closes);
            let is_clean = self.clean_parts(txg);
            let is_wrong = |part: &Dirties| {
                let was_made_dirty = was_clean.contains(part) && !phase.may_dirty.contains(part);
                !is_clean.contains(part) && (was_made_dirty || closed.contains(part))
            };
            if let Some(part) = ALL.iter().find(|part| is_wrong(part)) {
                let what = format!("group {txg}: {part:?} is dirty after phase '{}'", phase.name);
                debug_assert!(false, "{what}");
                return Err(Error::new(Kind::Io, what));
            }
        }
        self.cache().zio().allocator()?.synced(txg);
        self.renew_view()?;
        told.into_inner().into_iter().for_each(|tell| tell());
        Ok(())
    }

    /// The parts in which nothing waits to be written with group `txg`.
    fn clean_parts(&self, txg: Txg) -> Vec<Dirties> {
        let is_dirty = |part: &Dirties| match part {
            Heads => self.heads().have_changed_objects(txg),
            References => !self.dedup_changes().is_empty() || !self.clone_changes().is_empty(),
            Mos => self.mos().is_dirty(txg),
            Labels => self.config().is_dirty,
        };
        ALL.into_iter().filter(|part| !is_dirty(part)).collect()
    }
}

fn run_tasks(syncing: &Syncing<'_>) -> Result<()> {
    let told = syncing.context.pool.run_tasks(&syncing.context);
    syncing.told.borrow_mut().extend(told);
    syncing.context.pool.env().failpoint("tasks done");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_made_dirty_that_is_closed() {
        let mut closed: Vec<Dirties> = Vec::new();
        for phase in PHASES {
            let late = phase.may_dirty.iter().find(|part| closed.contains(part));
            assert_eq!(late, None, "{}", phase.name);
            closed.extend(phase.closes);
        }
        assert_eq!(closed.len(), ALL.len(), "all is written in the end");
    }
}
