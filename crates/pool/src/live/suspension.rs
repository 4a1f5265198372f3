//! What a pool does when devices fail that a group cannot do without.
//!
//! ```text
//!   the thread that syncs           everybody else                   zpool clear
//!     a step fails
//!     suspend ──────────────────▶   changes wait, or fail
//!     waits      ◀───────────────────────────────────────────────── devices again, resume
//!     the same step again ──▶ ... ─▶ group on disk ──▶ changes go on
//!          └── fails ──▶ suspend                                     ──▶ "I/O error"
//! ```
//!
//! Nothing in memory changes meanwhile: the step is made again with what it was made with. What property
//! `failmode` says decides for operations that change something. Without a thread that could wait, what
//! syncs gets the error, and the groups are stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Error, Kind, Result};
use dmu::Txgs;
use dsl::PropertyValue;

/// Values of property `failmode`; the default, 0, is to wait.
const CONTINUE: u64 = 1;
const PANIC: u64 = 2;

/// How a pool is suspended.
pub(super) struct Suspension {
    pool: String,
    txgs: Arc<Txgs>,
    failmode: AtomicU64,
    /// There is a thread that can wait.
    can_wait: AtomicBool,
}

impl Suspension {
    /// For the groups of a pool, with its stored properties.
    pub(super) fn new(pool: &str, txgs: Arc<Txgs>, properties: &[(String, PropertyValue)]) -> Suspension {
        let (failmode, can_wait) = Default::default();
        let suspension = Suspension { pool: pool.to_owned(), txgs, failmode, can_wait };
        properties.iter().for_each(|(name, value)| suspension.note_property(name, value));
        suspension
    }

    /// A property of the pool is set.
    pub(super) fn note_property(&self, name: &str, value: &PropertyValue) {
        match (name, value) {
            ("failmode", PropertyValue::Number(mode)) => self.failmode.store(*mode, Ordering::Relaxed),
            ("failmode", PropertyValue::Text(_)) => self.failmode.store(0, Ordering::Relaxed),
            _ => {}
        }
    }

    /// What property `failmode` says.
    pub(super) fn failmode(&self) -> &'static str {
        match self.failmode.load(Ordering::Relaxed) {
            CONTINUE => "continue",
            PANIC => "panic",
            _ => "wait",
        }
    }

    /// Name of the pool.
    pub(super) fn pool(&self) -> &str {
        &self.pool
    }

    /// From now on the thread that syncs can wait.
    pub(super) fn allow_waiting(&self, can_wait: bool) {
        self.can_wait.store(can_wait, Ordering::Relaxed);
    }

    pub(super) fn can_wait(&self) -> bool {
        self.can_wait.load(Ordering::Relaxed)
    }

    /// Whether the pool is suspended, and if so, whether operations that change something wait.
    pub(super) fn suspended(&self) -> Option<bool> {
        let stopped = self.txgs.stopped().map(|_| false);
        stopped.or_else(|| self.txgs.suspended().map(|suspended| suspended.waits))
    }

    /// Whether the pool is suspended and may be resumed.
    pub(super) fn is_suspended(&self) -> bool {
        self.txgs.suspended().is_some()
    }

    /// Errors: `Suspended` if the pool is.
    pub(super) fn check_running(&self) -> Result<()> {
        match self.is_suspended() {
            false => Ok(()),
            true => Err(Error::new(Kind::Suspended, "pool I/O is currently suspended")),
        }
    }

    /// Makes a step of a group, again and again until no device fails. `step` is told whether it was made before.
    /// Errors: those that are no device's; that of a device if the pool is given up.
    pub(super) fn persist(&self, mut step: impl FnMut(bool) -> Result<()>) -> Result<()> {
        let mut outcome = step(false);
        while let Err(error) = &outcome
            && self.outlasts(error)
        {
            outcome = step(true);
        }
        outcome
    }

    /// Suspends the pool if it is a device that has failed, until somebody resumes it. False of other errors, and if the
    /// pool is given up.
    pub(super) fn outlasts(&self, error: &Error) -> bool {
        matches!(error.kind(), Kind::Io | Kind::Missing) && self.wait(error)
    }

    /// Suspends the pool, for threads that do not sync: the one that does waits before its next step.
    pub(super) fn raise(&self, why: &str) {
        let mode = self.failmode.load(Ordering::Relaxed);
        self.end_if_panic(mode, why);
        tracing::error!(pool = self.pool, "the pool is suspended: {why}");
        self.txgs.alarm(why, mode != CONTINUE);
    }

    fn end_if_panic(&self, mode: u64, why: &str) {
        if mode == PANIC {
            tracing::error!(pool = self.pool, "ends at once, as failmode is panic: {why}");
            std::process::abort();
        }
    }

    /// Suspends the pool until somebody resumes it. False if that will not happen.
    pub(super) fn wait(&self, error: &Error) -> bool {
        if !self.can_wait() {
            return false;
        }
        let mode = self.failmode.load(Ordering::Relaxed);
        self.end_if_panic(mode, &error.to_string());
        tracing::error!(pool = self.pool, "the pool is suspended: {error}");
        let goes_on = self.txgs.suspend(&error.to_string(), mode != CONTINUE);
        if goes_on {
            tracing::info!(pool = self.pool, "the pool is resumed");
        }
        goes_on
    }
}
