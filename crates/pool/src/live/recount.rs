//! Accounts of file systems that are older than the features which keep them; how they are made, see `dmu` `sync/recount`.
//!
//! ```text
//!   mount, zfs set version=  ─▶ count_anew ───────┐
//!   zpool upgrade, feature@ ─▶ all open heads ────┴─▶ a portion with each group ─▶ history: "upgrade"
//! ```
//!
//! A walk that is interrupted begins again when its file system is opened to be written to.

use base::Result;
use dmu::sync::AccountKinds;
use dmu::{Objset, Synced};
use dsl::accounting;
use dsl::write::{Change, feature};
use format::feature::{PROJECT_QUOTA, USEROBJ_ACCOUNTING};
use format::ids::DatasetId;
use format::objset::{ObjsetType, VERSION_OF_ACCOUNTING};

use super::{LivePool, SyncContext};

/// Groups at most that a request for accounts waits for: a small file system has them then.
const GROUPS_WAITED_FOR: usize = 16;

impl LivePool {
    /// Begins to count what a head does not count, though the pool has the features; it has to be known to whom its
    /// objects belong. `id` is the dataset's object. Whether there is something to count. Errors: those of opening it.
    pub fn count_anew(&self, id: DatasetId) -> Result<bool> {
        let (version, enabled) = {
            let config = self.config();
            (config.version, config.enabled)
        };
        let objset = self.head(id)?;
        let is_counted = version >= VERSION_OF_ACCOUNTING && objset.kind() == ObjsetType::Zfs && !objset.is_encrypted();
        if !is_counted || !objset.knows_owners() || self.receives().is_active(id) {
            return Ok(false);
        }
        if !accounting::has_version_of_accounts(&objset)? {
            return Ok(false);
        }
        let objects = enabled.has(USEROBJ_ACCOUNTING);
        let begins = objset.begin_recount(AccountKinds { objects, projects: objects && enabled.has(PROJECT_QUOTA) })?;
        if begins {
            tracing::info!(dataset = objset.name(), "users, groups and projects are counted anew");
        }
        Ok(begins)
    }

    /// As [`LivePool::count_anew`], and waits for some groups, in which a small file system is counted: it goes on in
    /// later ones. Errors: also `Suspended`.
    pub fn count_anew_and_wait(&self, id: DatasetId) -> Result<()> {
        if !self.count_anew(id)? {
            return Ok(());
        }
        let objset = self.head(id)?;
        for _ in 0..GROUPS_WAITED_FOR {
            if !objset.is_recounting(None) {
                break;
            }
            self.sync()?;
        }
        Ok(())
    }

    /// As [`LivePool::count_anew`], of all heads that are open: the pool has features that it had not.
    pub(super) fn count_all_anew(&self) -> Result<()> {
        self.heads().all().into_iter().try_for_each(|(id, _)| self.count_anew(id).map(drop))
    }

    /// Whether objects of a head are being counted.
    pub(super) fn is_counting_anew(&self) -> bool {
        self.heads().all().iter().any(|(_, head)| head.objset().is_recounting(None))
    }

    /// Lets no walk make more steps, or all go on.
    pub(super) fn stall_counting(&self, is_stalled: bool) {
        self.heads().all().iter().for_each(|(_, head)| head.objset().stall_recount(is_stalled));
    }

    /// Notes what a head that was written counts anew, and tells when all is counted.
    pub(super) fn note_counted(&self, change: &Change<'_>, objset: &Objset, synced: &Synced) -> Result<()> {
        let Some(AccountKinds { objects, projects }) = synced.counts_anew() else { return Ok(()) };
        let used = [(objects, USEROBJ_ACCOUNTING), (projects, PROJECT_QUOTA)];
        for (_, guid) in used.into_iter().filter(|(is_used, _)| *is_used) {
            feature::use_in(change, objset.id(), guid)?;
        }
        if synced.is_recounted() {
            tracing::info!(dataset = objset.name(), "users, groups and projects are counted");
            let about = format!("accounts complete: objects={objects} projects={projects}");
            SyncContext { pool: self, change: *change }.log_dataset_event(
                (objset.name(), objset.id()),
                "upgrade",
                &about,
            );
        }
        Ok(())
    }
}
