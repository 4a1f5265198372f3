//! Changes of the pool's own objects that wait for a group, and are made in the thread that syncs it.
//!
//! ```text
//!   first      before anything of the group is freed: a checkpoint begins and ends between two groups
//!   others     when heads have been written once
//!   endings    what one of these has begun, when all heads are written
//!   last       behind: no head that is open is written after that in this group
//! ```

use std::sync::mpsc;

use base::{Error, Kind, Mutex, Result};

use super::{Ending, LivePool, SyncContext, Task, Tell};

impl LivePool {
    /// Makes a change of the pool's own objects, and returns when it is on disk. What `work` may refuse it has
    /// to refuse before it changes anything. Errors: those of `work`; `Suspended`, at once if the pool is so
    /// already.
    pub fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SyncContext<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run_in(&self.tasks().others, (), work)
    }

    /// As [`LivePool::run`]; the change may free what the root of a dataset leads to.
    pub(super) fn run_without_roots<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SyncContext<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run_in(&self.tasks().others, self.roots().change(), work)
    }

    /// As [`LivePool::run`], before anything is freed in the group.
    pub(super) fn run_first<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SyncContext<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run_in(&self.tasks().first, (), work)
    }

    /// As [`LivePool::run`], when all heads have been written: no head that is open is written after that in this group.
    pub(super) fn run_last<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SyncContext<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run_in(&self.tasks().last, (), work)
    }

    /// As [`LivePool::run_last`]; the change may free what the root of a dataset leads to.
    pub(super) fn run_last_without_roots<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SyncContext<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run_in(&self.tasks().last, self.roots().change(), work)
    }

    /// Keeps `kept` until the change is on disk and seen, or given up.
    fn run_in<T: Send + 'static>(
        &self,
        tasks: &Mutex<Vec<Task>>,
        kept: impl Send + 'static,
        work: impl FnOnce(&SyncContext<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let outcome = self.begin_in(tasks, kept, work)?;
        self.sync()?;
        outcome_of(&outcome)
    }

    /// As [`LivePool::run`], but does not wait until a pool that is suspended goes on: the change is made then. Errors:
    /// `Suspended`, in which case the change is still to come.
    pub(super) fn run_unless_suspended<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SyncContext<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let outcome = self.begin_in(&self.tasks().others, (), work)?;
        self.sync_now()?;
        outcome_of(&outcome)
    }

    /// Lets a change come in the next group; its outcome is told when that is on disk.
    fn begin_in<T: Send + 'static>(
        &self,
        tasks: &Mutex<Vec<Task>>,
        kept: impl Send + 'static,
        work: impl FnOnce(&SyncContext<'_>) -> Result<T> + Send + 'static,
    ) -> Result<mpsc::Receiver<Result<T>>> {
        self.suspension().check_running()?;
        if self.txgs().is_frozen() {
            return Err(Error::new(Kind::ReadOnly, "the pool is frozen"));
        }
        let (done, outcome) = mpsc::channel();
        let task = move |context: &SyncContext<'_>| -> Tell {
            let result = work(context);
            Box::new(move || {
                drop(kept);
                // the thread that asked may have gone
                let _ = done.send(result);
            })
        };
        tasks.lock().push(Task(Box::new(task)));
        Ok(outcome)
    }

    /// Ends what a task has begun in the group that is being synced, when all heads have been written, and before any
    /// other change that comes then. An error keeps the group from disk, and with it what the task has done.
    pub(super) fn end_in_group(&self, work: impl FnOnce(&SyncContext<'_>) -> Result<()> + Send + 'static) {
        self.tasks().endings.lock().push(Ending(Box::new(work)));
    }

    /// Makes a change of the pool's own objects some time soon; that it cannot be made is logged.
    pub fn run_later(&self, work: impl FnOnce(&SyncContext<'_>) -> Result<()> + Send + 'static) {
        self.run_later_then(work, |_| ());
    }

    /// As [`LivePool::run_later`]; `then` is called when the change is on disk.
    pub(super) fn run_later_then(
        &self,
        work: impl FnOnce(&SyncContext<'_>) -> Result<()> + Send + 'static,
        then: impl FnOnce(&LivePool) + Send + 'static,
    ) {
        let pool = self.weak();
        let task = move |context: &SyncContext<'_>| -> Tell {
            match work(context) {
                Ok(()) => Box::new(move || {
                    if let Some(pool) = pool.upgrade() {
                        then(&pool)
                    }
                }),
                Err(error) => {
                    tracing::warn!(pool = context.pool.name(), "a change was not made: {error}");
                    Box::new(|| ())
                }
            }
        };
        self.tasks().others.lock().push(Task(Box::new(task)));
    }

    /// Makes the changes that wait. Returns what is to be told when they are on disk.
    pub(super) fn run_tasks(&self, context: &SyncContext<'_>) -> Vec<Tell> {
        let tasks = std::mem::take(&mut *self.tasks().others.lock());
        tasks.into_iter().map(|Task(work)| work(context)).collect()
    }

    /// As [`LivePool::run_tasks`], those that come first.
    pub(super) fn run_first_tasks(&self, context: &SyncContext<'_>) -> Vec<Tell> {
        let tasks = std::mem::take(&mut *self.tasks().first.lock());
        tasks.into_iter().map(|Task(work)| work(context)).collect()
    }

    /// As [`LivePool::run_tasks`], those that come last, behind what tasks have begun. Errors: those of the latter.
    pub(super) fn run_last_tasks(&self, context: &SyncContext<'_>) -> Result<Vec<Tell>> {
        let endings = std::mem::take(&mut *self.tasks().endings.lock());
        endings.into_iter().try_for_each(|Ending(work)| work(context))?;
        let tasks = std::mem::take(&mut *self.tasks().last.lock());
        Ok(tasks.into_iter().map(|Task(work)| work(context)).collect())
    }

    pub(super) fn has_tasks(&self) -> bool {
        [&self.tasks().first, &self.tasks().others, &self.tasks().last].iter().any(|tasks| !tasks.lock().is_empty())
    }
}

/// The outcome of a change whose group is on disk.
fn outcome_of<T>(outcome: &mpsc::Receiver<Result<T>>) -> Result<T> {
    let lost = || Error::new(Kind::Suspended, "the pool is suspended");
    outcome.recv().map_err(|_| lost())?
}
