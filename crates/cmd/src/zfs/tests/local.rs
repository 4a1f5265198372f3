//! A pool of the corpus that is asked as its process would be, without one.

use std::ffi::OsString;
use std::sync::Arc;

use base::{Env, Error, Kind, Mutex, MutexGuard, Result};
use daemon::host_rule::HostRule;
use daemon::mount_plan::{MountBounds, PlannedMount};
use daemon::verbs::{DatasetChange, Folders, Host, SnapshotChange, SnapshotGuard, StillPool, answer};
use dsl::receive::StreamReader;
use dsl::write::NewReceive;
use format::ids::{DatasetId, Guid, ObjectId};
use fuse::{MountOptions, NO_MOUNTPOINT};
use pool::{Candidate, Discovery, FoundDevice, HealedSnapshot, OpenOptions, Pool, Receiving, RefusedChanges};
use protocol::datasets::{DatasetRequest, Mounted, Response};
use testkit::corpus::{self, Case};

use super::super::client::Pools;
use super::super::command::Outcome;
use super::super::execute;

/// A pool process without a process.
pub(super) struct Local {
    pub(super) pool: Arc<Pool>,
    pub(super) bounds: MountBounds,
    pub(super) mounts: Mutex<Vec<Mounted>>,
    pub(super) is_busy: bool,
    /// Why it refuses changes.
    pub(super) refusal: Option<Kind>,
    /// The changes that it was asked for, and lines for the history.
    pub(super) changes: Mutex<Vec<String>>,
}

impl Local {
    pub(super) fn open(case: &Case) -> Local {
        let mut found = Discovery::default();
        for device in corpus::as_devices(&case.load()) {
            let path = device.path().to_owned();
            found.devices.extend(FoundDevice::examine(&path, device).expect("labels can be read"));
        }
        let candidates = Candidate::all(&found);
        let candidate = Candidate::pick(&candidates, &case.pool).expect("the pool is there");
        let env = Env::fixed(0);
        let pool =
            Pool::open(&env, &candidate, &OpenOptions::default()).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        Local {
            pool: Arc::new(pool),
            bounds: MountBounds::new(None, HostRule::plain(true), None),
            mounts: Mutex::default(),
            is_busy: false,
            refusal: None,
            changes: Mutex::default(),
        }
    }

    pub(super) fn below(self, altroot: &str) -> Local {
        Local { bounds: MountBounds::new(Some(altroot), HostRule::plain(true), None), ..self }
    }

    pub(super) fn case(name: &str) -> Local {
        Local::open(&corpus::case(name))
    }

    /// Runs a command line on this one pool.
    pub(super) fn zfs(&self, line: &str) -> Outcome {
        run(self, line)
    }
}

/// Runs a command line.
pub(super) fn run(pools: &dyn Pools, line: &str) -> Outcome {
    let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    execute(pools, &args)
}

impl Host for Local {
    fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        None
    }
    fn pool(&self) -> Arc<Pool> {
        self.pool.clone()
    }
    fn bounds(&self) -> &MountBounds {
        &self.bounds
    }

    fn mounts(&self) -> Vec<Mounted> {
        self.mounts.lock().clone()
    }
    fn is_at_its_place(&self, dataset: &str) -> bool {
        self.mounts().iter().any(|mounted| mounted.dataset == dataset)
    }
    fn unlinked(&self, _: &str) -> u64 {
        0
    }
    fn mount(&self, plan: &PlannedMount) -> Result<()> {
        if plan.dataset == "t_send/received" {
            // its mountpoint would have to be made in a file system that is mounted read-only
            let cause = std::io::Error::from_raw_os_error(libc::EROFS);
            return Err(Error::new(Kind::ReadOnly, NO_MOUNTPOINT).with_source(cause));
        }
        let path = plan.options.mountpoint.to_string_lossy().into_owned();
        let options = vec!["ro".to_owned(), if plan.options.exec { "exec" } else { "noexec" }.to_owned()];
        self.mounts.lock().push(Mounted { dataset: plan.dataset.clone(), path, options });
        Ok(())
    }
    fn options_of(&self, dataset: &str) -> Option<MountOptions> {
        let mounted = self.mounts().into_iter().find(|mounted| mounted.dataset == dataset)?;
        Some(MountOptions::new(mounted.dataset, mounted.path))
    }
    fn remount(&self, _: &MountOptions) -> Result<bool> {
        Ok(false)
    }
    fn unmount(&self, dataset: &str, force: bool, _: Folders) -> Result<()> {
        if self.is_busy && !force {
            return Err(Error::new(Kind::Busy, "in use"));
        }
        let mut mounts = self.mounts.lock();
        mounts.retain(|mounted| mounted.dataset != dataset);
        Ok(())
    }
    fn remove_folder(&self, _: &MountOptions) {}

    fn change(&self, change: &DatasetChange) -> Result<()> {
        if let Some(kind) = self.refusal {
            return Err(Error::new(kind, "pool is read-only"));
        }
        self.changes.lock().push(format!("{change:?}"));
        Ok(())
    }

    fn change_snapshots(&self, change: &SnapshotChange) -> Result<RefusedChanges> {
        if let Some(kind) = self.refusal {
            return Err(Error::new(kind, "pool is read-only"));
        }
        self.changes.lock().push(format!("{change:?}"));
        Ok(RefusedChanges::new())
    }
    fn keep_snapshots(&self, _: &[DatasetId], _: &[ObjectId]) -> Result<SnapshotGuard> {
        Ok(Box::new(()))
    }
    fn still(&self) -> Box<dyn StillPool + '_> {
        unreachable!("no command of zfs cuts")
    }
    fn now_ns(&self) -> u64 {
        0
    }
    fn begin_receive(&self, _: &NewReceive) -> Result<Receiving> {
        Err(Error::new(Kind::ReadOnly, "pool is read-only"))
    }
    fn finish_receive(&self, _: Receiving) -> Result<()> {
        Err(Error::new(Kind::ReadOnly, "pool is read-only"))
    }
    fn heal_snapshot(&self, _: &str, _: Guid, _: &mut StreamReader<'_>) -> Result<HealedSnapshot> {
        Err(Error::new(Kind::ReadOnly, "pool is read-only"))
    }
    fn abort_receive(&self, _: &str) -> Result<()> {
        Err(Error::new(Kind::ReadOnly, "pool is read-only"))
    }
    fn set_received(&self, _: &str, _: Vec<(String, format::nvlist::Value)>) -> Result<RefusedChanges> {
        Err(Error::new(Kind::ReadOnly, "pool is read-only"))
    }
    fn record(&self, line: &str) -> Result<()> {
        self.changes.lock().push(line.to_owned());
        Ok(())
    }
}

/// Requests and answers go through JSON, as over the socket.
impl Pools for Local {
    fn names(&self) -> Result<Vec<String>> {
        Ok(vec![self.pool.name().to_owned()])
    }

    fn ask(&self, pool: &str, request: &DatasetRequest) -> Result<Response> {
        assert_eq!(pool, self.pool.name());
        let request: DatasetRequest = serde_json::from_slice(&serde_json::to_vec(request).unwrap()).unwrap();
        let response = Response::joined(|part| answer(self, &request, Vec::new(), part))?;
        Ok(serde_json::from_slice(&serde_json::to_vec(&response).unwrap()).unwrap())
    }
}
