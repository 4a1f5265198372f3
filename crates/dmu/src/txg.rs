//! Transaction groups: which changes reach the disk together.
//!
//! Every change belongs to the group that is open when it begins. Operations hold the open group for as
//! long as they run; closing it waits for them, so all changes of an operation are in one group, and no
//! operation of a group runs beside one of the next.
//!
//! ```text
//!    group 7   │ open ........ │ close │ syncing ..................... │ synced
//!    group 8                   │       │ open .................................. │ close │ syncing
//!    operation     begin──end    begin ─┘ waits here, for what runs in 7 to end
//! ```
//!
//! So two groups have changes in memory: the open one and the one that is being synced. `Node` keeps the
//! changes of both apart.
//!
//! What is changed faster than the devices take it is slowed down: first by delays that grow with the
//! bytes that wait to be written, then by waiting until some are.
//!
//! When devices fail that are needed, the groups are suspended: nothing begins, nobody waits, until they
//! are resumed and the group that was on its way is on disk, or it fails again.
//!
//! ```text
//!   running ──▶ suspended ── resume ──▶ trying again ──▶ running
//!                    ▲                      │
//!                    └──────────────────────┘                    stopped: for good
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::{Condvar, Error, Kind, Mutex, MutexGuard, Result, RwLock, RwLockReadGuard};
use format::ids::Txg;

use crate::Throttle;
use crate::dirty::{Changes, Dirty, Needs};

/// Blocks that a group may free, however large the pool is: each is in memory with its pointer until its group is on disk.
const FREES_MAX: u64 = 1 << 18;
/// Blocks that one operation frees at most.
const PORTION_BLOCKS: u64 = 1 << 16;

/// The transaction groups of a pool.
pub struct Txgs {
    /// The open group. Operations hold it shared, closing holds it alone.
    open: RwLock<Txg>,
    dirty: Dirty,
    /// What groups may need; nothing until somebody says.
    needs: Mutex<Needs>,
    /// Blocks that the open group may free; to free more waits for the next group.
    frees_max: AtomicU64,
    /// Operations begin at once as long as fewer bytes than that are dirty; 0: all look at `progress` first.
    free_pass: AtomicU64,
    /// Bytes of a group that are much: [`Throttle::sync_at`].
    much: AtomicU64,
    /// Operations that were begun.
    begun: AtomicU64,
    progress: Mutex<TxgProgress>,
    moved: Condvar,
}

#[derive(Debug)]
struct TxgProgress {
    /// The latest group that is on disk.
    synced: Txg,
    /// Somebody waits for this group.
    wanted: Txg,
    /// The group that is open.
    open: Txg,
    /// Blocks that it frees, as far as was told.
    frees: u64,
    throttle: Throttle,
    /// Why nothing is written any more.
    stopped: Option<String>,
    /// No group is written any more, and nobody waits for one; intent logs are.
    is_frozen: bool,
    suspended: Option<SuspendedGroups>,
    hindered: Hindered,
}

/// What kept operations from beginning, and how many.
#[derive(Debug, Default)]
struct Hindered {
    refused: u64,
    suspended: u64,
    delayed: u64,
    /// Waits while as much as may be was dirty.
    over_max: u64,
}

/// How it is with groups that are suspended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuspendedGroups {
    /// What failed.
    pub why: String,
    /// Whether operations that are to begin wait; otherwise they fail.
    pub waits: bool,
    /// Somebody resumed them, and the group is tried again.
    is_trying: bool,
}

/// The right to change things in one group; an operation's changes all use the same.
///
/// Not to be held while another is begun by the same thread.
pub struct Tx<'a> {
    txg: Txg,
    txgs: &'a Txgs,
    _hold: Option<RwLockReadGuard<'a, Txg>>,
}

impl Txgs {
    /// Groups of a pool whose latest group on disk is `synced`.
    pub fn new(synced: Txg, throttle: Throttle) -> Txgs {
        let txgs = Txgs {
            open: RwLock::new(synced.next()),
            dirty: Dirty::default(),
            needs: Mutex::default(),
            frees_max: AtomicU64::new(FREES_MAX),
            free_pass: AtomicU64::new(0),
            much: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            progress: Mutex::new(TxgProgress {
                synced,
                wanted: Txg::ZERO,
                open: synced.next(),
                frees: 0,
                throttle,
                stopped: None,
                is_frozen: false,
                suspended: None,
                hindered: Hindered::default(),
            }),
            moved: Condvar::new(),
        };
        txgs.set_throttle(throttle);
        txgs
    }

    /// How fast changes may be made from now on.
    pub fn set_throttle(&self, throttle: Throttle) {
        let mut progress = self.progress();
        progress.throttle = throttle;
        self.much.store(throttle.sync_at, Ordering::Relaxed);
        self.renew_pass(&progress);
    }

    /// Says until when operations begin without a look at how it is with the groups.
    fn renew_pass(&self, progress: &TxgProgress) {
        let below = if progress.check().is_ok() { progress.throttle.undelayed_below() } else { 0 };
        self.free_pass.store(below, Ordering::SeqCst);
    }

    /// Begins an operation, in the open group. Waits while too much is dirty. Errors: `Suspended`, also if
    /// operations are to wait: their threads may hold locks ([`Txgs::wait_resumed`]).
    pub fn begin(&self) -> Result<Tx<'_>> {
        self.throttle()?;
        let hold = self.open.read();
        Ok(Tx { txg: *hold, txgs: self, _hold: Some(hold) })
    }

    /// As [`Txgs::begin`], but not slowed down: for intent logs, which change little, and whom others wait for.
    pub fn begin_for_log(&self) -> Result<Tx<'_>> {
        self.progress().check()?;
        let hold = self.open.read();
        Ok(Tx { txg: *hold, txgs: self, _hold: Some(hold) })
    }

    /// Changes that belong to a group still while it is synced.
    pub fn in_sync(&self, txg: Txg) -> Tx<'_> {
        Tx { txg, txgs: self, _hold: None }
    }

    /// The open group.
    pub fn open_txg(&self) -> Txg {
        *self.open.read()
    }

    /// The latest group on disk.
    pub fn synced_txg(&self) -> Txg {
        self.progress().synced
    }

    /// Waits until everything that has happened so far is on disk. Errors: `Suspended`, as from
    /// [`Txgs::begin`].
    pub fn wait_synced(&self) -> Result<()> {
        let txg = self.open_txg();
        let mut progress = self.progress();
        progress.wanted = progress.wanted.max(txg);
        self.moved.notify_all();
        while progress.synced < txg && !progress.is_frozen {
            progress.check()?;
            progress = self.wait(progress, None);
        }
        Ok(())
    }

    /// The open group is due at once; nobody waits for it.
    pub fn hasten(&self) {
        let mut progress = self.progress();
        if progress.wanted < progress.open {
            progress.wanted = progress.open;
            self.moved.notify_all();
        }
    }

    /// From now on no group is due, and waiting for one is over at once.
    pub fn freeze(&self) {
        self.progress().is_frozen = true;
        self.moved.notify_all();
    }

    /// Whether [`Txgs::freeze`] was called.
    pub fn is_frozen(&self) -> bool {
        self.progress().is_frozen
    }

    /// Waits until the groups that are closed now are on disk, or never will be. Errors: `Suspended` if operations are
    /// refused that begin.
    pub fn wait_closed(&self) -> Result<()> {
        let mut progress = self.progress();
        let closed = progress.open.previous();
        while progress.stopped.is_none() {
            progress.check()?;
            if progress.synced >= closed || progress.is_frozen {
                break;
            }
            progress = self.wait(progress, None);
        }
        Ok(())
    }

    /// Whether somebody waits for a group that is not on disk.
    pub fn is_wanted(&self) -> bool {
        let progress = self.progress();
        progress.wanted > progress.synced && !progress.is_frozen
    }

    /// Waits until the open group should be synced: somebody waits for it, much is dirty, or its time is
    /// over. False if it is over and nothing was changed.
    pub fn wait_for_work(&self) -> bool {
        let txg = self.open_txg();
        let mut progress = self.progress();
        let Throttle { timeout, sync_at, .. } = progress.throttle;
        let is_due = |p: &TxgProgress| !p.is_frozen && (p.wanted >= txg || self.dirty.bytes(txg) >= sync_at);
        if !is_due(&progress) {
            let waits = |p: &mut TxgProgress| p.stopped.is_none() && p.suspended.is_none() && !is_due(p);
            progress = self.moved.wait_timeout_while(progress, timeout, waits);
        }
        !progress.is_frozen && (progress.wanted >= txg || self.dirty.bytes(txg) > 0)
    }

    /// Closes the open group, when all that runs in it has ended, and opens the next. Returns the one
    /// that was closed, for it to be synced.
    pub fn close(&self) -> Txg {
        let mut open = self.open.write();
        *open = open.next();
        let mut progress = self.progress();
        (progress.open, progress.frees) = (*open, 0);
        self.moved.notify_all();
        open.previous()
    }

    /// Counts blocks that are about to be freed, and waits for the next group before if this one frees many already.
    /// Errors: `Suspended`, as from [`Txgs::begin`].
    pub fn admit_frees(&self, blocks: u64) -> Result<()> {
        let mut progress = self.progress();
        while progress.frees >= self.frees_max() && !progress.is_frozen {
            progress.check()?;
            progress.wanted = progress.wanted.max(progress.open);
            self.moved.notify_all();
            progress = self.wait(progress, None);
        }
        progress.frees += blocks;
        Ok(())
    }

    /// Blocks that a group may free.
    pub fn frees_max(&self) -> u64 {
        self.frees_max.load(Ordering::Relaxed)
    }

    /// Says how many blocks a group may free, if that is fewer than there may be anywhere.
    pub fn set_frees_max(&self, blocks: u64) {
        self.frees_max.store(blocks.clamp(1, FREES_MAX), Ordering::Relaxed);
    }

    /// Blocks that one operation frees at most.
    pub fn portion_blocks(&self) -> u64 {
        self.frees_max().min(PORTION_BLOCKS)
    }

    /// Tells that the group is on disk.
    pub fn synced(&self, txg: Txg) {
        let mut progress = self.progress();
        progress.synced = txg;
        progress.suspended = None;
        self.dirty.clear(txg);
        self.renew_pass(&progress);
        self.moved.notify_all();
    }

    /// From now on nothing is written: waiting for a group and beginning an operation are errors.
    pub fn stop(&self, why: &str) {
        let mut progress = self.progress();
        progress.stopped = Some(why.to_owned());
        self.renew_pass(&progress);
        self.moved.notify_all();
    }

    /// Whether [`Txgs::stop`] was called, and why.
    pub fn stopped(&self) -> Option<String> {
        self.progress().stopped.clone()
    }

    /// Waits until [`Txgs::stop`] was called, for so long at most; whether it was.
    pub fn wait_stopped(&self, most: Duration) -> bool {
        self.moved.wait_timeout_while(self.progress(), most, |progress| progress.stopped.is_none()).stopped.is_some()
    }

    /// A group that is synced cannot go on: waits until it is to be tried again. False if it never is.
    pub fn suspend(&self, why: &str, waits: bool) -> bool {
        self.alarm(why, waits);
        let mut progress = self.progress();
        while progress.stopped.is_none() && progress.suspended.as_ref().is_some_and(|suspended| !suspended.is_trying) {
            progress = self.wait(progress, None);
        }
        progress.stopped.is_none()
    }

    /// Suspends them, outside of the thread that syncs, which finds out at its next step.
    pub fn alarm(&self, why: &str, waits: bool) {
        let mut progress = self.progress();
        progress.suspended = Some(SuspendedGroups { why: why.to_owned(), waits, is_trying: false });
        self.renew_pass(&progress);
        self.moved.notify_all();
    }

    /// Lets suspended groups go on, and waits until they do. Errors: `Io` if they are suspended again;
    /// `Suspended` if they are stopped.
    pub fn resume(&self) -> Result<()> {
        let mut progress = self.progress();
        if let Some(suspended) = &mut progress.suspended {
            suspended.is_trying = true;
            self.moved.notify_all();
        }
        loop {
            progress.check_stopped()?;
            match &progress.suspended {
                None => return Ok(()),
                Some(SuspendedGroups { why, is_trying: false, .. }) => return Err(Error::new(Kind::Io, why.clone())),
                Some(_) => progress = self.wait(progress, None),
            }
        }
    }

    /// How it is with them if they are suspended.
    pub fn suspended(&self) -> Option<SuspendedGroups> {
        self.progress().suspended.clone()
    }

    /// Waits until changes can be made. Errors: `Suspended` if operations are not to wait.
    pub fn wait_resumed(&self) -> Result<()> {
        let mut progress = self.progress();
        progress.hindered.suspended += u64::from(progress.suspended.is_some());
        while progress.suspended.as_ref().is_some_and(|suspended| suspended.waits) && progress.stopped.is_none() {
            progress = self.wait(progress, None);
        }
        progress.check()
    }

    /// Bytes that wait to be written.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty.all_bytes()
    }

    /// What waits to be written.
    pub fn dirty_changes(&self) -> Changes {
        self.dirty.changes()
    }

    /// What groups may need from now on.
    pub fn set_needs(&self, needs: Needs) {
        *self.needs.lock() = needs;
    }

    /// What groups may need.
    pub fn needs(&self) -> Needs {
        *self.needs.lock()
    }

    /// Counters of operations that were begun, with the names of OpenZFS's dmu_tx; what has no counterpart is 0.
    pub fn counters(&self) -> [(&'static str, u64); 13] {
        let hindered = &self.progress().hindered;
        [
            ("dmu_tx_assigned", self.begun.load(Ordering::Relaxed)),
            ("dmu_tx_delay", 0),
            ("dmu_tx_error", hindered.refused),
            ("dmu_tx_suspended", hindered.suspended),
            ("dmu_tx_group", 0),
            ("dmu_tx_memory_reserve", 0),
            ("dmu_tx_memory_reclaim", 0),
            ("dmu_tx_dirty_throttle", 0),
            ("dmu_tx_dirty_delay", hindered.delayed),
            ("dmu_tx_dirty_over_max", hindered.over_max),
            ("dmu_tx_wrlog_over_max", 0),
            ("dmu_tx_dirty_frees_delay", 0),
            ("dmu_tx_quota", 0),
        ]
    }

    fn throttle(&self) -> Result<()> {
        if self.dirty.all_bytes() >= self.free_pass.load(Ordering::SeqCst) {
            self.wait_for_room()?;
        }
        self.begun.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn wait_for_room(&self) -> Result<()> {
        let mut progress = self.progress();
        loop {
            if let Err(e) = progress.check() {
                progress.hindered.refused += 1;
                return Err(e);
            }
            if progress.is_frozen {
                return Ok(());
            }
            match progress.throttle.delay(self.dirty.all_bytes()) {
                Some(Duration::ZERO) => return Ok(()),
                Some(delay) => {
                    progress.hindered.delayed += 1;
                    drop(self.wait(progress, Some(delay)));
                    return Ok(());
                }
                None => {
                    progress.hindered.over_max += 1;
                    progress = self.wait(progress, None);
                }
            }
        }
    }

    fn wait<'a>(
        &self,
        progress: MutexGuard<'a, TxgProgress>,
        timeout: Option<Duration>,
    ) -> MutexGuard<'a, TxgProgress> {
        match timeout {
            None => self.moved.wait(progress),
            Some(timeout) => self.moved.wait_timeout(progress, timeout),
        }
    }

    fn progress(&self) -> MutexGuard<'_, TxgProgress> {
        self.progress.lock()
    }
}

impl TxgProgress {
    fn check(&self) -> Result<()> {
        match &self.suspended {
            Some(_) if self.stopped.is_none() => Err(Error::new(Kind::Suspended, "pool I/O is currently suspended")),
            _ => self.check_stopped(),
        }
    }

    fn check_stopped(&self) -> Result<()> {
        match &self.stopped {
            None => Ok(()),
            Some(why) => Err(Error::new(Kind::Suspended, format!("the pool is suspended: {why}"))),
        }
    }
}

impl Tx<'_> {
    /// The group.
    pub fn txg(&self) -> Txg {
        self.txg
    }

    /// Bytes on the devices that what is written ahead of groups leaves to them.
    pub fn left_by_logs(&self) -> u64 {
        self.txgs.needs().left_by_logs(&self.txgs.dirty_changes())
    }

    /// Counts bytes that were changed, and are no whole block.
    pub(crate) fn dirty(&self, bytes: u64) {
        if self._hold.is_some() && self.txgs.dirty.add(self.txg, bytes, self.much()) {
            self.tell();
        }
    }

    /// Counts a block that was changed, and how many copies more than data it has at most.
    pub(crate) fn dirty_block(&self, bytes: u64, more_copies: u64) {
        if self._hold.is_some() && self.txgs.dirty.add_block(self.txg, bytes, 1 + more_copies, self.much()) {
            self.tell();
        }
    }

    /// Counts a block that was taken from elsewhere as it is.
    pub(crate) fn dirty_pointer(&self, bytes: u64) {
        if self._hold.is_some() && self.txgs.dirty.add_pointer(self.txg, bytes, self.much()) {
            self.tell();
        }
    }

    fn much(&self) -> u64 {
        self.txgs.much.load(Ordering::Relaxed)
    }

    /// Wakes the thread that syncs groups: much is dirty.
    fn tell(&self) {
        // a thread that is about to wait holds this, and has not looked or waits already
        drop(self.txgs.progress());
        self.txgs.moved.notify_all();
    }
}
