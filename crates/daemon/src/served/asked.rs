//! What commands ask of a pool in use, and how it was used.

use std::collections::BTreeMap;

use base::{Env, Error, Kind, Result};
use format::ids::{DatasetId, Guid, ObjectId};
use pool::{SweepAction, SweepKind};
use protocol::client_report::ClientsReport;
use protocol::datasets::{DatasetRequest, WantedProperty};
use protocol::wire::{PATHS_MAX, PoolReply, Request};
use zpl::Counts;

use crate::live::{ServedPool, Used};
use crate::mounts::Mounts;
use crate::report;
use crate::volume_exports::VolumeExports;
use crate::volumes::OpenVolumes;

/// A pool, and what uses it.
pub(super) struct AskedPool<'a> {
    pub(super) env: &'a Env,
    pub(super) pool: &'a ServedPool,
    pub(super) mounts: &'a Mounts,
    pub(super) volumes: &'a OpenVolumes,
    pub(super) given_out: &'a VolumeExports,
}

impl AskedPool<'_> {
    /// How mounted file systems and open volumes were used.
    pub(super) fn used(&self) -> BTreeMap<DatasetId, Used> {
        let volume = |(id, used): (DatasetId, zvol::VolumeUse)| {
            let zvol::VolumeUse { reads, read_bytes, writes, written_bytes } = used;
            let counts = Counts { reads, read_bytes, writes, written_bytes, ..Counts::default() };
            (id, Used { counts, page_cache: false })
        };
        let mut used: BTreeMap<DatasetId, Used> = self.volumes.used().into_iter().map(volume).collect();
        used.extend(self.mounts.used());
        used
    }

    /// Before a request is answered, the kernel sends what programs wrote, if it keeps that and the answer depends on it.
    /// Errors: `Suspended`, for a request that could not be answered then.
    pub(super) fn prepare(&self, request: &Request) -> Result<()> {
        if request.needs_group() {
            self.pool.check_running()?;
        }
        // while the pool is suspended, it could not
        if depends_on_contents(request) && self.pool.suspended().is_none() {
            self.mounts.send_all_pages();
        }
        Ok(())
    }

    /// Begins, halts or ends sweeps of devices.
    pub(super) fn sweep(
        &self,
        (kind, action): (SweepKind, SweepAction),
        vdevs: &[Guid],
        history: &str,
    ) -> Result<PoolReply> {
        let refused = self.pool.live()?.sweep(kind, action, vdevs.to_vec())?;
        self.pool.record(history)?;
        Ok(PoolReply::RefusedVdevs(refused.into_iter().map(|(vdev, why)| (vdev, why.what().to_owned())).collect()))
    }

    /// The names of damaged files.
    pub(super) fn damaged(&self) -> Result<PoolReply> {
        let now = |dataset| self.mounts.contents_of(dataset);
        report::damaged::damaged(&self.pool.view(), &self.mounts.list(), &now).map(PoolReply::Damaged)
    }

    /// The clients of volumes.
    pub(super) fn clients(&self) -> PoolReply {
        PoolReply::Clients(ClientsReport { now_ns: self.env.ticks_ns(), clients: self.given_out.clients() })
    }

    /// The paths of files. Errors: `Invalid` for too many.
    pub(super) fn paths(&self, dataset: DatasetId, objects: &[ObjectId]) -> Result<PoolReply> {
        if objects.len() > PATHS_MAX {
            return Err(Error::new(Kind::Invalid, format!("{} paths at once", objects.len())));
        }
        let now = |dataset| self.mounts.contents_of(dataset);
        Ok(PoolReply::Paths(report::paths::paths(&self.pool.view(), &now, dataset, objects)))
    }
}

/// Whether the answer depends on what is in files: how much room they take, and what is kept of them.
fn depends_on_contents(request: &Request) -> bool {
    match request {
        Request::Sync { .. } | Request::Checkpoint { discard: false, .. } | Request::Split { .. } => true,
        Request::Zfs(DatasetRequest::Space { .. } | DatasetRequest::Diff(_)) => true,
        Request::Zfs(DatasetRequest::Datasets(select)) => select.properties.iter().any(is_of_room),
        _ => false,
    }
}

/// Whether a property tells how much room files take.
fn is_of_room(property: &WantedProperty) -> bool {
    const NAMES: [&str; 10] = [
        "used",
        "usedbydataset",
        "usedbychildren",
        "referenced",
        "available",
        "written",
        "logicalused",
        "logicalreferenced",
        "compressratio",
        "refcompressratio",
    ];
    matches!(property, WantedProperty::Native(name) if NAMES.contains(&&**name))
}
