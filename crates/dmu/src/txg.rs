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

use std::time::Duration;

use base::{Condvar, Error, Kind, Mutex, MutexGuard, Result, RwLock, RwLockReadGuard};

use crate::Throttle;

/// The transaction groups of a pool.
pub struct Txgs {
    /// The open group. Operations hold it shared, closing holds it alone.
    open: RwLock<u64>,
    progress: Mutex<Progress>,
    moved: Condvar,
}

#[derive(Debug)]
struct Progress {
    /// The latest group that is on disk.
    synced: u64,
    /// Somebody waits for this group.
    wanted: u64,
    /// Bytes that were changed, by the lowest bit of the group.
    dirty: [u64; 2],
    throttle: Throttle,
    /// Why nothing is written any more.
    stopped: Option<String>,
    suspended: Option<Suspended>,
    begun: Begun,
}

/// How many operations were begun, and what kept them.
#[derive(Debug, Default)]
struct Begun {
    all: u64,
    refused: u64,
    suspended: u64,
    delayed: u64,
    /// Waits while as much as may be was dirty.
    over_max: u64,
}

/// How it is with groups that are suspended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspended {
    /// What failed.
    pub why: String,
    /// Whether those who want to change something are to wait; otherwise they have failed.
    pub waits: bool,
    /// Somebody resumed them, and the group is tried again.
    is_trying: bool,
}

/// The right to change things in one group; an operation's changes all use the same.
///
/// Not to be held while another is begun by the same thread.
pub struct Tx<'a> {
    txg: u64,
    txgs: &'a Txgs,
    _hold: Option<RwLockReadGuard<'a, u64>>,
}

impl Txgs {
    /// Groups of a pool whose latest group on disk is `synced`.
    pub fn new(synced: u64, throttle: Throttle) -> Txgs {
        Txgs {
            open: RwLock::new(synced + 1),
            progress: Mutex::new(Progress {
                synced,
                wanted: 0,
                dirty: [0; 2],
                throttle,
                stopped: None,
                suspended: None,
                begun: Begun::default(),
            }),
            moved: Condvar::new(),
        }
    }

    /// How fast changes may be made from now on.
    pub fn set_throttle(&self, throttle: Throttle) {
        self.progress().throttle = throttle;
    }

    /// Begins an operation, in the open group. Waits while too much is dirty. Errors: `Suspended`, also if
    /// those who want to change something are to wait: they may hold locks ([`Txgs::wait_resumed`]).
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

    /// For who syncs a group: changes that belong to it still.
    pub fn in_sync(&self, txg: u64) -> Tx<'_> {
        Tx { txg, txgs: self, _hold: None }
    }

    /// The open group.
    pub fn open_txg(&self) -> u64 {
        *self.open.read()
    }

    /// The latest group on disk.
    pub fn synced_txg(&self) -> u64 {
        self.progress().synced
    }

    /// Waits until everything that has happened so far is on disk. Errors: `Suspended`, as from
    /// [`Txgs::begin`].
    pub fn wait_synced(&self) -> Result<()> {
        let txg = self.open_txg();
        let mut progress = self.progress();
        progress.wanted = progress.wanted.max(txg);
        self.moved.notify_all();
        while progress.synced < txg {
            progress.check()?;
            progress = self.wait(progress, None);
        }
        Ok(())
    }

    /// Whether somebody waits for a group that is not on disk.
    pub fn is_wanted(&self) -> bool {
        let progress = self.progress();
        progress.wanted > progress.synced
    }

    /// Waits until the open group should be synced: somebody waits for it, much is dirty, or its time is
    /// over. False if it is over and nothing was changed.
    pub fn wait_for_work(&self) -> bool {
        let txg = self.open_txg();
        let mut progress = self.progress();
        let Throttle { timeout, sync_at, .. } = progress.throttle;
        if progress.wanted < txg && progress.dirty[txg as usize & 1] < sync_at {
            let enough = |p: &mut Progress| {
                let goes_on = p.stopped.is_none() && p.suspended.is_none();
                goes_on && p.wanted < txg && p.dirty[txg as usize & 1] < sync_at
            };
            progress = self.moved.wait_timeout_while(progress, timeout, enough);
        }
        progress.wanted >= txg || progress.dirty[txg as usize & 1] > 0
    }

    /// Closes the open group, when all that runs in it has ended, and opens the next. Returns the one
    /// that was closed, for it to be synced.
    pub fn close(&self) -> u64 {
        let mut open = self.open.write();
        *open += 1;
        *open - 1
    }

    /// Tells that the group is on disk.
    pub fn synced(&self, txg: u64) {
        let mut progress = self.progress();
        progress.synced = txg;
        progress.suspended = None;
        progress.dirty[txg as usize & 1] = 0;
        self.moved.notify_all();
    }

    /// From now on nothing is written: all who wait for a group, and all who begin, get an error.
    pub fn stop(&self, why: &str) {
        self.progress().stopped = Some(why.to_owned());
        self.moved.notify_all();
    }

    /// Whether [`Txgs::stop`] was called, and why.
    pub fn stopped(&self) -> Option<String> {
        self.progress().stopped.clone()
    }

    /// For who syncs a group and cannot go on: waits until it is to be tried again. False if it never is.
    pub fn suspend(&self, why: &str, waits: bool) -> bool {
        self.alarm(why, waits);
        let mut progress = self.progress();
        while progress.stopped.is_none() && progress.suspended.as_ref().is_some_and(|suspended| !suspended.is_trying) {
            progress = self.wait(progress, None);
        }
        progress.stopped.is_none()
    }

    /// Suspends them, for who does not sync: who does finds out at its next step.
    pub fn alarm(&self, why: &str, waits: bool) {
        self.progress().suspended = Some(Suspended { why: why.to_owned(), waits, is_trying: false });
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
                Some(Suspended { why, is_trying: false, .. }) => return Err(Error::new(Kind::Io, why.clone())),
                Some(_) => progress = self.wait(progress, None),
            }
        }
    }

    /// How it is with them if they are suspended.
    pub fn suspended(&self) -> Option<Suspended> {
        self.progress().suspended.clone()
    }

    /// Waits until changes can be made. Errors: `Suspended` if those who want to make some are not to wait.
    pub fn wait_resumed(&self) -> Result<()> {
        let mut progress = self.progress();
        while progress.suspended.as_ref().is_some_and(|suspended| suspended.waits) && progress.stopped.is_none() {
            progress = self.wait(progress, None);
        }
        progress.check()
    }

    /// Bytes that wait to be written.
    pub fn dirty_bytes(&self) -> u64 {
        self.progress().dirty.iter().sum()
    }

    /// Counters of operations that were begun, with the names of OpenZFS's dmu_tx; what has no counterpart is 0.
    pub fn counters(&self) -> [(&'static str, u64); 13] {
        let begun = &self.progress().begun;
        [
            ("dmu_tx_assigned", begun.all),
            ("dmu_tx_delay", 0),
            ("dmu_tx_error", begun.refused),
            ("dmu_tx_suspended", begun.suspended),
            ("dmu_tx_group", 0),
            ("dmu_tx_memory_reserve", 0),
            ("dmu_tx_memory_reclaim", 0),
            ("dmu_tx_dirty_throttle", 0),
            ("dmu_tx_dirty_delay", begun.delayed),
            ("dmu_tx_dirty_over_max", begun.over_max),
            ("dmu_tx_wrlog_over_max", 0),
            ("dmu_tx_dirty_frees_delay", 0),
            ("dmu_tx_quota", 0),
        ]
    }

    fn throttle(&self) -> Result<()> {
        let mut progress = self.progress();
        progress.begun.all += 1;
        loop {
            if let Err(e) = progress.check() {
                progress.begun.all -= 1;
                progress.begun.refused += 1;
                progress.begun.suspended += u64::from(e.kind() == Kind::Suspended);
                return Err(e);
            }
            let dirty: u64 = progress.dirty.iter().sum();
            match progress.throttle.delay(dirty) {
                Some(Duration::ZERO) => return Ok(()),
                Some(delay) => {
                    progress.begun.delayed += 1;
                    drop(self.wait(progress, Some(delay)));
                    return Ok(());
                }
                None => {
                    progress.begun.over_max += 1;
                    progress = self.wait(progress, None);
                }
            }
        }
    }

    fn wait<'a>(&self, progress: MutexGuard<'a, Progress>, timeout: Option<Duration>) -> MutexGuard<'a, Progress> {
        match timeout {
            None => self.moved.wait(progress),
            Some(timeout) => self.moved.wait_timeout(progress, timeout),
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock()
    }
}

impl Progress {
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
    pub fn txg(&self) -> u64 {
        self.txg
    }

    /// Counts bytes that were changed.
    pub(crate) fn dirty(&self, bytes: u64) {
        if self._hold.is_some() {
            let mut progress = self.txgs.progress();
            let before = progress.dirty[self.txg as usize & 1];
            progress.dirty[self.txg as usize & 1] = before + bytes;
            let limit = progress.throttle.sync_at;
            if before < limit && before + bytes >= limit {
                self.txgs.moved.notify_all();
            }
        }
    }
}
