//! Changes of the pool's own objects: each waits for a group to be synced, and is made then.

use std::sync::mpsc;

use base::{Error, Kind, Result};
use dsl::write::Change;

use super::{LivePool, lock};

/// What a task works with.
pub struct SyncContext<'a> {
    /// The pool.
    pub pool: &'a LivePool,
    /// Its MOS, the group, time and chance.
    pub change: Change<'a>,
}

type Work = Box<dyn FnOnce(&SyncContext<'_>) -> Result<()> + Send>;

/// A change that waits, and who waits for it.
pub(super) struct Task {
    work: Work,
    done: mpsc::Sender<Result<()>>,
}

impl LivePool {
    /// Makes a change of the pool's own objects, and returns when it is on disk. What `work` may refuse it has
    /// to refuse before it changes anything. Errors: those of `work`; `Suspended`.
    pub fn run(&self, work: impl FnOnce(&SyncContext<'_>) -> Result<()> + Send + 'static) -> Result<()> {
        let (done, outcome) = mpsc::channel();
        lock(&self.tasks).push(Task { work: Box::new(work), done });
        self.sync()?;
        let lost = || Error::new(Kind::Suspended, "the pool is suspended");
        outcome.recv().map_err(|_| lost())?
    }

    /// Makes the changes that wait. Returns whom to tell when they are on disk, and what.
    pub(super) fn run_tasks(&self, context: &SyncContext<'_>) -> Vec<(mpsc::Sender<Result<()>>, Result<()>)> {
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        tasks.into_iter().map(|task| (task.done, (task.work)(context))).collect()
    }

    pub(super) fn has_tasks(&self) -> bool {
        !lock(&self.tasks).is_empty()
    }

    /// Whoever waits for a change waits in vain.
    pub(super) fn fail_tasks(&self) {
        lock(&self.tasks).clear();
    }
}
