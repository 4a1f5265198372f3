//! Replacing the root of a head: what `zfs rollback` and `zfs receive -F` do.
//!
//! ```text
//!   exports   frozen ───────────────────────────────────────────────────────────▶ thawed: they open the new head
//!   group n            head: all that was changed is written
//!                      task: the MOS gets another root for the dataset ─ the new head, with an empty log
//!                      the old log's blocks are freed
//! ```
//!
//! Everything that memory has of the old root belongs to the old [`Head`](super::Head): nobody uses that any more, and it
//! goes with its last user.

use base::{Error, Kind, Result};
use dmu::{Objset, OnFailure};
use format::ids::DatasetId;
use format::objset::ObjsetType;
use zil::ZilHeader;

use super::{LivePool, SyncContext};

impl LivePool {
    /// Runs a task ([`LivePool::run`]) by which the head of a dataset has another root in the MOS, and opens it anew
    /// under that. What serves the head has to be frozen, and opens it again afterwards; `id` is the dataset's object.
    /// Errors: `Busy` if it is changed all the same; those of the task, of reading the new root, and `Suspended`.
    pub fn replace_root<T: Send + 'static>(
        &self,
        id: DatasetId,
        task: impl FnOnce(&SyncContext<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run_without_roots(move |context| {
            // also one that is not open: what it has of a log is to be freed; one that cannot be read has none
            let _ = context.open_head(id);
            context.check_unchanged(id)?;
            let done = task(context)?;
            context.reopen_head(id)?;
            Ok(done)
        })
    }
}

impl SyncContext<'_> {
    /// `Busy` if the group that is open changes a head.
    fn check_unchanged(&self, id: DatasetId) -> Result<()> {
        let open = self.change.tx.txg().next();
        match self.pool.heads().get(id) {
            Some(head) if head.is_dirty(open) => Err(Error::new(Kind::Busy, "dataset is busy")),
            _ => Ok(()),
        }
    }

    /// Opens the head of a dataset under the root that the MOS has for it now, with an empty log. Errors: those of
    /// reading it; there is no open head then.
    fn reopen_head(&self, id: DatasetId) -> Result<()> {
        if let Some(old) = self.pool.heads().remove(id) {
            self.free_log(&old);
        }
        self.pool.rooms().forget_all();
        self.pool.limits().forget(id);
        let dsl = self.dsl()?;
        let name = dsl.name_of(id)?;
        let subject = dsl.subject(&name)?;
        let (root, policy) = (dsl.find(&name)?.phys.bp, self.pool.policy_of(subject.levels()));
        let cache = self.change.mos.cache().clone();
        let objset = Objset::open_live(cache, id, root, ObjsetType::Zfs, &name, policy)?;
        let head = self.pool.add_head(objset.reading(OnFailure::Fail))?;
        self.pool.renew_policy(&head, subject.levels())?;
        // what the root says of a log is of the time when it was written
        head.log().claim(self.change.tx.txg(), ZilHeader::EMPTY);
        Ok(())
    }
}
