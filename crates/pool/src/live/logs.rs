//! Intent logs: one for each head that is open.
//!
//! ```text
//!   import ─▶ find_claims ─▶ first group: allocate, headers say where logs end ─▶ zil::Log::replay, when mounted
//!   group  ─▶ zil::Log::sync ─▶ header in the head of the set, blocks that may go
//!   export ─▶ close_logs: no block is left but those of logs that nobody has replayed
//!   a vdev for logs changes ─▶ empty_log_vdev: nothing is on it
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use base::{Error, Kind, Result, ResultExt};
use dmu::{Mode, Objset, RequestHistograms};
use dsl::write::Change;
use format::blkptr::BlkPtr;
use format::feature::BLOCK_CLONING;
use format::ids::{DatasetId, Txg, VdevNumber};
use format::object_type::ObjectType;
use zil::{COMMIT_BUCKETS, Claim, Log, MemoryLog, Update, ZilHeader};
use zio::alloc::Serving;

use super::head::Head;
use super::heads::{LogMoment, LogTotals};
use super::{LivePool, SyncContext};
use crate::Pool;

/// A chain that has ended is gone after so many groups.
const GROUPS_OF_A_LOG: usize = 4;

impl LivePool {
    /// Has all that changes in file systems and volumes told to a log in memory, too, from now on and for good: before anything
    /// is changed.
    pub fn keep_memory(&self, memory: &Arc<MemoryLog>) {
        self.heads().keep_memory(memory);
    }

    /// Gives back what the log in memory has had for a while, as the pool is not used.
    pub fn trim_memory(&self) {
        self.heads().memory().iter().for_each(|memory| memory.trim());
    }

    /// The intent log of a file system's head, ready to be used. `id` is the dataset's object.
    pub fn log(&self, id: DatasetId) -> Result<Arc<Log>> {
        let log = self.open_head(id)?.log().clone();
        log.reopen();
        Ok(log)
    }

    /// Ends the intent log of a head that is not used any more: nothing is left of it. Errors: `Suspended`.
    pub fn close_log(&self, id: DatasetId) -> Result<()> {
        self.heads().get(id).map_or(Ok(()), |head| head.log().close())
    }

    /// What intent logs have done, by the object of the dataset.
    pub fn log_stats(&self) -> Vec<(DatasetId, Vec<(&'static str, u64)>)> {
        self.heads().all().into_iter().map(|(id, head)| (id, head.log().stats().all())).collect()
    }

    /// How long commits of intent logs took, of those that had any, by the object of the dataset.
    pub fn commit_times(&self) -> Vec<(DatasetId, [u64; COMMIT_BUCKETS])> {
        let times = self.heads().all().into_iter().map(|(id, head)| (id, head.log().stats().commit_times()));
        times.filter(|(_, times)| times.iter().any(|count| *count > 0)).collect()
    }

    /// How long reads and writes of file systems and volumes took, of those that had any while somebody asked, by the
    /// object of the dataset. They are timed for a while from now on.
    pub fn request_times(&self) -> Vec<(DatasetId, RequestHistograms)> {
        self.env().ask_for_times();
        let heads = self.heads().all().into_iter();
        heads.filter_map(|(id, head)| Some((id, head.objset().request_times()?))).collect()
    }

    /// What all logs have done.
    pub fn log_totals(&self) -> LogTotals {
        self.heads().log_totals()
    }

    /// What all logs had done when each of the latest groups was closed, in the order of groups.
    pub fn log_moments(&self) -> Vec<LogMoment> {
        self.heads().log_moments()
    }

    /// Lets no log have anything on a vdev for logs, and nothing new go there until it is opened again. Errors: `Busy`
    /// if there is a log that has yet to be replayed; those of writing, `Suspended`. Logs go there again then.
    pub(super) fn empty_log_vdev(&self, top: VdevNumber) -> Result<()> {
        let allocator = self.cache().zio().allocator()?;
        allocator.set_serving(top, Serving::Closed);
        self.move_logs_from(top).inspect_err(|_| allocator.set_serving(top, Serving::Open))
    }

    fn move_logs_from(&self, top: VdevNumber) -> Result<()> {
        self.heads().all().iter().for_each(|(_, head)| head.log().retire());
        let allocator = self.cache().zio().allocator()?;
        for _ in 0..GROUPS_OF_A_LOG {
            self.sync_now()?;
            if allocator.top_space(top).is_none_or(|space| space.allocated == 0) {
                return Ok(());
            }
        }
        // what is left there then nobody leads to: a part of a log that was given up
        self.refuse_old_logs()
    }

    /// Lets all logs begin anew, where blocks are allocated now; nothing of them is left elsewhere. Errors: as from
    /// [`LivePool::empty_log_vdev`].
    pub(super) fn begin_new_logs(&self) -> Result<()> {
        self.heads().all().iter().for_each(|(_, head)| head.log().retire());
        (0..GROUPS_OF_A_LOG).try_for_each(|_| self.sync_now())?;
        self.refuse_old_logs()
    }

    /// Errors: `Busy` if there is a log that has yet to be replayed.
    fn refuse_old_logs(&self) -> Result<()> {
        let view = self.view();
        let open: HashMap<DatasetId, Head> = self.heads().all().into_iter().collect();
        let is_old = |id: DatasetId| open.get(&id).is_none_or(|head| head.log().is_old());
        match logged_heads(&view)?.iter().find(|(head, _)| is_old(head.id)) {
            None => Ok(()),
            Some((head, _)) => {
                Err(Error::new(Kind::Busy, "a log has yet to be replayed: mount the dataset").in_dataset(&head.name))
            }
        }
    }

    /// Frees what a group does not need any more of a log.
    pub(super) fn free_of_log(&self, change: &Change<'_>, update: &Update) {
        update.blocks.iter().chain(&update.data).for_each(|bp| self.free_logged(change, bp));
    }

    fn free_logged(&self, change: &Change<'_>, bp: &BlkPtr) {
        match bp.object_type() {
            ObjectType::INTENT_LOG => {
                self.scan().freed(bp);
                if let Err(error) = self.cache().zio().free_log_block(change.tx.txg(), bp) {
                    tracing::error!(pool = self.name(), ?bp, "a log block could not be freed: {error}");
                }
            }
            _ => self.free(change, bp),
        }
    }
}

impl SyncContext<'_> {
    /// Claims logs: before anything is allocated in the first group.
    pub(super) fn claim(&self, claims: &[(DatasetId, Claim)]) -> Result<()> {
        let (txg, zio) = (self.change.tx.txg(), self.pool.cache().zio());
        let mut clones = claims.iter().flat_map(|(_, claim)| &claim.clones);
        clones.try_for_each(|bp| self.count_clone(bp))?;
        let blocks: Vec<BlkPtr> = claims.iter().flat_map(|(_, claim)| &claim.blocks).copied().collect();
        zio.claim(txg, &blocks)?;
        for (id, claim) in claims {
            claim.useless.iter().for_each(|bp| self.pool.free_logged(&self.change, bp));
            self.open_head(*id)?.log().claim(txg, claim.header);
        }
        Ok(())
    }

    /// Frees the log of a head that was destroyed in this group.
    pub(super) fn free_log(&self, head: &Head) {
        head.log().take_blocks().iter().for_each(|bp| self.pool.free_logged(&self.change, bp));
    }
}

/// What is to be claimed in a pool that was open when its host went down, by the object of the dataset. Errors:
/// `ReadOnly` for what only others can claim; `Io`, `Missing` if a device keeps it from telling where a log ends,
/// unless what is on devices that are gone `is_given_up`.
pub(super) fn find_claims(pool: &Pool, is_given_up: bool) -> Result<Vec<(DatasetId, Claim)>> {
    let mut claims = Vec::new();
    for (head, objset) in logged_heads(pool)? {
        let header = ZilHeader::parse(&objset.phys().log_header)?;
        let (zio, synced_txg) = (pool.cache().zio(), pool.uberblock().txg);
        let claim = match pool.uberblock().checkpoint_txg {
            // what was written to the log after the checkpoint may have been overwritten
            txg if txg != Txg::ZERO && !header.is_claimed() => Ok(Some(Claim::forget(zio, head.id, &header, txg))),
            _ => Claim::find(zio, head.id, &header, synced_txg, is_given_up),
        };
        let Some(claim) = claim.in_dataset(&head.name)? else { continue };
        if !claim.clones.is_empty() && !pool.features().enabled().has(BLOCK_CLONING) {
            return Err(Error::corrupt("an intent log with clones of blocks, which the pool does not have"))
                .in_dataset(&head.name);
        }
        claims.push((head.id, claim));
    }
    Ok(claims)
}

/// Errors: `ReadOnly` for claims of deduplicated blocks while what their tables say is not complete.
pub(super) fn check_tables(claims: &[(DatasetId, Claim)], are_complete: bool) -> Result<()> {
    match are_complete || !claims.iter().any(|(_, claim)| claim.clones.iter().any(BlkPtr::is_dedup)) {
        true => Ok(()),
        false => {
            let what = "an intent log tells of clones of deduplicated blocks, whose dedup tables have logs, too: import the \
                        pool read-only, or let OpenZFS import and export it";
            Err(Error::new(Kind::ReadOnly, what))
        }
    }
}

/// The heads that have a log on disk.
fn logged_heads(pool: &Pool) -> Result<Vec<(dsl::Dataset, Arc<Objset>)>> {
    let mut heads = Vec::new();
    let dirs = pool.dsl().walk().map_err(|e| match e.kind() {
        // what is there can be looked at
        Kind::Corrupt => Error::new(Kind::ReadOnly, format!("The tree of datasets is damaged: {e}")),
        _ => e,
    })?;
    for dir in dirs {
        if dir.phys.head_dataset.is_none() {
            continue;
        }
        let head = pool.dsl().head(&dir)?;
        if head.phys.bp.is_hole() {
            continue;
        }
        let objset = Objset::open(pool.cache().clone(), head.id, head.phys.bp, Mode::Raw, &head.name)?;
        if !ZilHeader::parse(&objset.phys().log_header)?.first.is_hole() {
            heads.push((head, objset));
        }
    }
    Ok(heads)
}
