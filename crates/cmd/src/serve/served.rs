//! The state of a pool process, and its answers.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use base::{Env, Error, Kind, Result};
use fuse::Unmount;
use pool::{Pool, PoolState};

use super::live::ServedPool;
use super::locks::Locks;
use super::mounts::Mounts;
use super::wire::{Reply, Request};
use crate::zfs;
use crate::zfs::host::{DatasetChange, Host};
use crate::zfs::mount_plan::PlannedMount;
use crate::zfs::request::Mounted;
use crate::zpool::report::PoolReport;
use crate::zpool::{errors, gather};

/// Packed lists in one part of the history's answer, in bytes.
const HISTORY_PART_BYTES: usize = 256 << 10;

/// An imported pool.
pub struct Served {
    env: Env,
    pool: Arc<ServedPool>,
    session: gather::Session,
    mounts: Mounts,
    _locks: Locks,
    /// What does not change within a transaction group: all but states and error counts.
    report: Mutex<Option<PoolReport>>,
    end: Mutex<mpsc::Sender<End>>,
}

/// Why a pool process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The pool was exported: nothing is mounted any more.
    Exported,
    /// A signal.
    Signal,
}

impl Served {
    /// A pool that is open, with locks on its devices; `end` is told when it has been exported.
    pub fn new(env: Env, pool: ServedPool, locks: Locks, session: gather::Session, end: mpsc::Sender<End>) -> Served {
        Served {
            env,
            pool: Arc::new(pool),
            session,
            mounts: Mounts::default(),
            _locks: locks,
            report: Mutex::default(),
            end: Mutex::new(end),
        }
    }

    /// The mounts.
    pub fn mounts(&self) -> &Mounts {
        &self.mounts
    }

    /// Tells the main thread to end.
    pub fn end(&self) {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        // it may have ended already
        let _ = end.send(End::Exported);
    }

    /// Answers a request; all but the last part of the answer go to `part`.
    pub fn answer(&self, request: &Request, part: &mut dyn FnMut(Reply) -> Result<()>) -> Result<Reply> {
        match request {
            Request::Report => self.report().map(|report| Reply::Report(Box::new(report))),
            Request::Damaged => errors::damaged(&self.pool.view(), &self.mounts.list()).map(Reply::Damaged),
            Request::Dedup => gather::dedup(&self.pool.view()).map(Reply::Dedup),
            Request::History => self.history(part),
            Request::Export { force } => self.export(*force),
            Request::Destroy { force, history } => self.destroy(*force, history),
            Request::Sync => self.pool.sync().map(|()| Reply::Done),
            Request::Set { name, value, history } => {
                self.pool.set_property(name, value)?;
                self.pool.record(history).map(|()| Reply::Done)
            }
            Request::Zfs(request) => zfs::host::answer(self, request).map(Reply::Zfs),
        }
    }

    fn report(&self) -> Result<PoolReport> {
        let pool = self.pool.view();
        let txg = pool.uberblock().txg;
        let known = self.report.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut report = match known.filter(|known| known.txg == txg) {
            Some(report) => report,
            None => {
                let report = gather::pool(&pool, &self.session)?;
                *self.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(report.clone());
                report
            }
        };
        gather::refresh(&mut report.root, pool.tree());
        Ok(report)
    }

    fn history(&self, part: &mut dyn FnMut(Reply) -> Result<()>) -> Result<Reply> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        for record in self.pool.view().history()? {
            let hex = hex(&record?.pack());
            bytes += hex.len();
            records.push(hex);
            if bytes >= HISTORY_PART_BYTES {
                part(Reply::History(std::mem::take(&mut records)))?;
                bytes = 0;
            }
        }
        Ok(Reply::History(records))
    }

    fn export(&self, force: bool) -> Result<Reply> {
        let how = if force { Unmount::Force } else { Unmount::IfUnused };
        self.unmount_all(how)?;
        let name = self.pool.view().name().to_owned();
        let failed = |e: Error| Error::new(e.kind(), format!("cannot export '{name}': {}", e.what()));
        self.pool.close(PoolState::Exported).map_err(failed)?;
        Ok(Reply::Exported)
    }

    fn destroy(&self, force: bool, history: &str) -> Result<Reply> {
        if !self.pool.is_writable() {
            return Err(Error::new(Kind::ReadOnly, "pool is read-only"));
        }
        let how = if force { Unmount::Force } else { Unmount::IfUnused };
        let name = self.pool.view().name().to_owned();
        self.unmount_all(how).map_err(|e| {
            let what = format!("{}\ncould not destroy '{name}': could not unmount datasets", e.what());
            Error::new(Kind::Busy, what)
        })?;
        self.pool.record(history)?;
        self.pool.close(PoolState::Destroyed)?;
        Ok(Reply::Exported)
    }

    /// Ends in order, though nobody exported the pool: all that was changed is on disk then.
    pub fn close(&self) -> Result<()> {
        self.pool.close(PoolState::Active)
    }

    fn unmount_all(&self, how: Unmount) -> Result<()> {
        self.mounts.unmount_all(how).map_err(|(point, e)| {
            let why = match e.kind() {
                Kind::Busy => "pool or dataset is busy".to_owned(),
                _ => e.to_string(),
            };
            Error::new(e.kind(), format!("cannot unmount '{}': {why}", point.display()))
        })
    }
}

impl Host for Served {
    fn pool(&self) -> Arc<Pool> {
        self.pool.view()
    }

    fn altroot(&self) -> Option<&str> {
        self.session.altroot.as_deref()
    }

    fn mounts(&self) -> Vec<Mounted> {
        self.mounts.list()
    }

    fn mount(&self, plan: &PlannedMount) -> Result<()> {
        self.mounts.mount(&self.pool, &plan.options, &self.env)
    }

    fn remount(&self, plan: &PlannedMount) -> Result<bool> {
        self.mounts.remount(&plan.options)
    }

    fn unmount(&self, dataset: &str, force: bool) -> Result<()> {
        self.mounts.unmount(dataset, if force { Unmount::Force } else { Unmount::IfUnused })
    }

    fn change(&self, change: &DatasetChange) -> Result<()> {
        self.pool.change(&self.env, change.clone())?;
        self.mounts.renew();
        Ok(())
    }

    fn record(&self, line: &str) -> Result<()> {
        self.pool.record(line)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut hex, byte| {
        // writing to a string does not fail
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
