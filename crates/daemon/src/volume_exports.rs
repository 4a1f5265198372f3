//! All ways by which programs get at the volumes of a pool.

use std::path::Path;
use std::sync::Arc;

use base::{Env, Result};
use dsl::Dataset;
use fuse::Helper;
use pool::{Pool, RefusedChanges};
use protocol::client_report::ClientReport;
use protocol::volumes::{BLOCK_PROPERTY, ISCSI_PROPERTY, ISCSI_RESERVATIONS, NBD_PROPERTY, VHOST_PROPERTY, folder};

use crate::block_export::BlockExport;
use crate::exports::Exports;
use crate::host_rule::check_received;
use crate::iscsi_export::IscsiExport;
use crate::live::ServedPool;
use crate::nbd_export::NbdExport;
use crate::network_door::NetworkAccess;
use crate::verbs::{DatasetChange, SnapshotChange};
use crate::vhost_export::VhostExport;
use crate::volume_mount::VolumeMount;
use crate::volumes::OpenVolumes;

/// What gives a pool's volumes out.
pub struct VolumeExports {
    open: Arc<OpenVolumes>,
    files: VolumeMount,
    nbd: NbdExport,
    iscsi: IscsiExport,
    vhost: VhostExport,
    block: BlockExport,
}

impl VolumeExports {
    /// Nothing is given out yet; what is will be below `run`, the folder where the processes of pools are found.
    pub fn new(
        exports: &Arc<Exports>,
        given_out: &(Arc<ServedPool>, Arc<OpenVolumes>),
        (helper, network): (&Helper, &Arc<NetworkAccess>),
        env: &Env,
        run: &Path,
    ) -> VolumeExports {
        let parts = || (exports.clone(), given_out.clone());
        let ((exports, pool), run_of) = (parts(), || run.to_owned());
        VolumeExports {
            open: given_out.1.clone(),
            nbd: NbdExport::new(exports.clone(), pool.clone(), network.clone(), env.clone(), run_of()),
            iscsi: IscsiExport::new(exports.clone(), pool.clone(), network.clone(), env.clone(), run_of()),
            block: BlockExport::new(exports.clone(), pool.clone(), network.rule().clone(), env.clone()),
            vhost: VhostExport::new(exports.clone(), pool.clone(), network.rule().clone(), env.clone(), run_of()),
            files: VolumeMount::new(helper.clone(), exports, pool, env.clone(), folder(run)),
        }
    }

    /// Gives out what properties say.
    pub fn renew(&self) {
        self.files.renew();
        self.nbd.renew();
        self.iscsi.renew();
        self.vhost.renew();
        self.block.renew();
    }

    /// The clients that use volumes.
    pub fn clients(&self) -> Vec<ClientReport> {
        [self.nbd.clients(), self.iscsi.clients(), self.vhost.clients(), self.block.clients()].concat()
    }

    /// There may be other volumes, or snapshots of them.
    pub fn changed(&self) {
        self.files.changed();
        self.block.changed();
    }

    /// Looks at a change before it is made. Errors: `Busy` if it destroys what programs use; `Invalid` for a property that
    /// cannot be.
    pub fn check_change(&self, view: &Pool, change: &DatasetChange) -> Result<()> {
        match change {
            DatasetChange::Destroy { name } => self.check_unused(&view.dsl().find(name)?),
            DatasetChange::Set { name, property, value } => self.check_property(name, property, value),
            DatasetChange::Inherit { name, property, .. } if property == ISCSI_RESERVATIONS => {
                self.check_property(name, property, "")
            }
            DatasetChange::Create { name, properties } | DatasetChange::CreateVolume { name, properties } => {
                self.check_properties(name, properties)
            }
            _ => Ok(()),
        }
    }

    /// The same of a change of snapshots: what is refused of it.
    pub fn refused(&self, view: &Pool, change: &SnapshotChange) -> Result<RefusedChanges> {
        let mut refused = RefusedChanges::new();
        match change {
            SnapshotChange::Clone { target, properties, .. } => self.check_properties(target, properties)?,
            SnapshotChange::Destroy { names, .. } if self.open.are_any() => {
                // one that is not there is refused by others
                for (name, found) in names.iter().filter_map(|name| Some((name, view.dsl().find(name).ok()?))) {
                    refused.extend(self.check_unused(&found).err().map(|error| (name.clone(), error)));
                }
            }
            _ => {}
        }
        Ok(refused)
    }

    /// Errors: `Busy` if programs use a volume.
    pub fn check_unused(&self, dataset: &Dataset) -> Result<()> {
        self.files.check_unused(dataset.id)?;
        self.nbd.check_unused(dataset.id)?;
        self.iscsi.check_unused(dataset.phys.guid)?;
        self.vhost.check_unused(dataset.id)?;
        // the last, as it takes the device away
        self.block.check_unused(dataset.id)
    }

    /// Errors: `Invalid` for a value that one of these properties cannot have, or that dataset cannot, which need not be
    /// there yet; why nobody can listen so.
    pub fn check_property(&self, dataset: &str, property: &str, value: &str) -> Result<()> {
        check_received(property, value)?;
        self.nbd.check_property(dataset, property, value)?;
        self.iscsi.check_property(dataset, property, value)?;
        BlockExport::check_value(property, value)?;
        self.vhost.check_property(dataset, property, value)
    }

    /// The same for several.
    pub fn check_properties(&self, dataset: &str, properties: &[(String, String)]) -> Result<()> {
        properties.iter().try_for_each(|(property, value)| self.check_property(dataset, property, value))
    }

    /// The same for the root file system of a pool that is to be made.
    pub fn check_new(properties: &[(String, String)]) -> Result<()> {
        NbdExport::check_new(properties)?;
        for (property, value) in properties {
            check_received(property, value)?;
            IscsiExport::check_value(property, value)?;
            VhostExport::check_value(property, value)?;
            BlockExport::check_value(property, value)?;
        }
        Ok(())
    }

    /// Whether a property says what is given out, and how.
    pub fn is_about(property: &str) -> bool {
        property == "volmode"
            || property == "snapdev"
            || [NBD_PROPERTY, ISCSI_PROPERTY, VHOST_PROPERTY, BLOCK_PROPERTY]
                .iter()
                .any(|name| property.starts_with(name))
    }
}
