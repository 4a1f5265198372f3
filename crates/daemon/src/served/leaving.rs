//! How a pool leaves its process: exported, destroyed, or given up.
//!
//! ```text
//!   export, destroy ──▶ exports stop ──▶ the last line of the history ──▶ the last group, labels ──▶ the process ends
//!       suspended meanwhile: an error; what is being unmounted is when the pool goes on, all else stays
//!   by force        ──▶ the same; if the pool is suspended, before or meanwhile, what is not on disk is given up
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use base::{Error, Kind, Result};
use pool::PoolState;

use crate::exports::Exports;
use crate::host_rule::HostRule;
use crate::live::ServedPool;
use crate::mounts::Mounts;
use crate::streams::RunningStreams;

/// How often is looked whether a pool has been suspended that is being exported.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A pool that is about to leave its process, and what uses it.
pub(super) struct Leaving<'a> {
    pub(super) pool: &'a ServedPool,
    pub(super) streams: &'a RunningStreams,
    pub(super) exports: &'a Arc<Exports>,
    pub(super) mounts: &'a Mounts,
    pub(super) rule: &'a HostRule,
}

impl Leaving<'_> {
    /// Ends all use of the pool, and leaves it in that state. Errors: it is in use, or suspended, and may not be forced.
    pub(super) fn export(&self, force: bool, state: PoolState, history: &str) -> Result<()> {
        let name = self.pool.view().name().to_owned();
        let failed = |e: Error| Error::new(e.kind(), format!("cannot export '{name}': {}", e.what()));
        if let Err(error) = self.pool.check_running() {
            if !force {
                return Err(failed(error));
            }
            self.pool.abandon();
            return self.stop_exports(force, "export");
        }
        self.streams.check_none(force, "export", &name)?;
        let close = || {
            self.stop_exports(force, "export").map_err(|e| if e.kind() == Kind::Suspended { failed(e) } else { e })?;
            if self.pool.is_writable() {
                self.record_last(history);
            }
            self.close(state).map_err(failed)
        };
        match if force { self.unless_suspended(close) } else { close() } {
            Err(error) if force && error.kind() == Kind::Suspended => {
                self.pool.abandon();
                self.stop_exports(force, "export")
            }
            closed => closed,
        }
    }

    /// Does something that is to come to an end also if the pool is suspended meanwhile: what is not on disk is given up
    /// then.
    fn unless_suspended<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let (ended, has_ended) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let watch = move || {
                while has_ended.recv_timeout(LOOK_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                    if self.pool.suspended().is_some() {
                        return self.pool.abandon();
                    }
                }
            };
            // without a thread that looks, it may have to be asked for again
            let _ = std::thread::Builder::new().name("export".to_owned()).spawn_scoped(scope, watch);
            let outcome = work();
            drop(ended);
            outcome
        })
    }

    /// Tells the history what the pool is left with: a history that is damaged keeps nobody from that.
    fn record_last(&self, history: &str) {
        if let Err(error) = self.pool.record(history) {
            tracing::warn!("the history does not have that: {error}");
        }
    }

    /// Ends all use of the pool, and marks it as destroyed. Errors: it is in use, or suspended.
    pub(super) fn destroy(&self, force: bool, history: &str) -> Result<()> {
        let name = self.pool.view().name().to_owned();
        self.pool.check_running()?;
        self.streams.check_none(force, "destroy", &name)?;
        self.stop_exports(force, "destroy")?;
        if self.pool.is_writable() {
            self.record_last(history);
            self.close(PoolState::Destroyed)?;
        }
        Ok(())
    }

    /// Brings the last changes to disk; the host remembers how the pool is left. Errors: as of [`ServedPool::close`].
    pub(super) fn close(&self, state: PoolState) -> Result<()> {
        self.pool.close(state)?;
        if self.pool.is_writable()
            && let Err(error) = self.rule.leave(&self.pool.view())
        {
            tracing::warn!("whether another host has the pool meanwhile, only its label will tell: {error}");
        }
        Ok(())
    }

    /// Ends all exports. Errors: `Busy`, and that it keeps the pool from what `verb` says; without force, `Suspended` if
    /// the pool is suspended before they have ended.
    fn stop_exports(&self, force: bool, verb: &str) -> Result<()> {
        let outcome = if force { self.exports.stop_all(true) } else { self.stop_unless_suspended()? };
        outcome.map_err(|(place, e)| {
            let is_mount = self.mounts.list().iter().any(|mounted| mounted.path == place);
            let what = match e.kind() {
                Kind::Busy if is_mount => format!("cannot unmount '{place}': pool or dataset is busy"),
                Kind::Busy => format!("cannot {verb} '{}': pool is busy (clients of {place})", self.pool.view().name()),
                _ => format!("cannot unmount '{place}': {e}"),
            };
            Error::new(e.kind(), what)
        })
    }

    /// Ends all exports by a thread of their own: what is unmounted has to be written, which a pool that is suspended
    /// makes wait. Errors: `Suspended`; then that thread ends no more than the one that it has begun with.
    fn stop_unless_suspended(&self) -> Result<std::result::Result<(), (String, Error)>> {
        let (tell, told) = mpsc::sync_channel(1);
        let is_given_up = Arc::new(AtomicBool::new(false));
        let (exports, gives_up) = (self.exports.clone(), is_given_up.clone());
        let stop = move || {
            // the export may have been given up
            let _ = tell.send(exports.stop_all_while(false, &|| !gives_up.load(Ordering::Relaxed)));
        };
        if std::thread::Builder::new().name("unmount".to_owned()).spawn(stop).is_err() {
            // by this one then, which a pool that is suspended keeps in the one that it has begun with
            return Ok(self.exports.stop_all_while(false, &|| self.pool.suspended().is_none()));
        }
        loop {
            match told.recv_timeout(LOOK_EVERY) {
                Ok(outcome) => return Ok(outcome),
                Err(mpsc::RecvTimeoutError::Timeout) if self.pool.suspended().is_none() => {}
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    is_given_up.store(true, Ordering::Relaxed);
                    return Err(Error::new(Kind::Suspended, "pool I/O is currently suspended"));
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(Error::new(Kind::Io, "the thread that unmounts has panicked"));
                }
            }
        }
    }
}
