//! Changes of the pool's own objects: each waits for a group to be synced, and is made then.

use std::sync::mpsc;

use base::{Error, Kind, Result};
use dsl::write::Change;

use super::LivePool;

/// What a task works with.
pub struct SyncContext<'a> {
    /// The pool.
    pub pool: &'a LivePool,
    /// Its MOS, the group, time and chance.
    pub change: Change<'a>,
}

/// Tells who waits for a task how it went.
type Tell = Box<dyn FnOnce()>;

/// A change that waits.
pub(super) struct Task(Box<dyn FnOnce(&SyncContext<'_>) -> Tell + Send>);

impl LivePool {
    /// Makes a change of the pool's own objects, and returns when it is on disk. What `work` may refuse it has
    /// to refuse before it changes anything. Errors: those of `work`; `Suspended`, at once if the pool is so
    /// already.
    pub fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SyncContext<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.check_running()?;
        let (done, outcome) = mpsc::channel();
        let task = move |context: &SyncContext<'_>| -> Tell {
            let result = work(context);
            Box::new(move || {
                // whoever asked may have gone
                let _ = done.send(result);
            })
        };
        self.tasks.lock().push(Task(Box::new(task)));
        self.sync()?;
        let lost = || Error::new(Kind::Suspended, "the pool is suspended");
        outcome.recv().map_err(|_| lost())?
    }

    /// Makes a change of the pool's own objects some time soon; that it cannot be made is logged.
    pub fn run_later(&self, work: impl FnOnce(&SyncContext<'_>) -> Result<()> + Send + 'static) {
        let task = move |context: &SyncContext<'_>| -> Tell {
            if let Err(error) = work(context) {
                tracing::warn!(pool = context.pool.name(), "a change was not made: {error}");
            }
            Box::new(|| ())
        };
        self.tasks.lock().push(Task(Box::new(task)));
    }

    /// Makes the changes that wait. Returns whom to tell when they are on disk.
    pub(super) fn run_tasks(&self, context: &SyncContext<'_>) -> Vec<Tell> {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.into_iter().map(|Task(work)| work(context)).collect()
    }

    pub(super) fn has_tasks(&self) -> bool {
        !self.tasks.lock().is_empty()
    }

    /// Whoever waits for a change waits in vain.
    pub(super) fn fail_tasks(&self) {
        self.tasks.lock().clear();
    }
}
