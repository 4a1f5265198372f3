//! What commands ask of a pool in use, and how it was used.

use std::collections::BTreeMap;

use base::{Env, Error, Kind, Result};
use format::ids::{DatasetId, ObjectId};
use protocol::client_report::ClientsReport;
use protocol::wire::{PATHS_MAX, PoolReply};
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
