//! The volumes of a pool for initiators of iSCSI: a target for each volume that asks for it.
//!
//! ```text
//!   org.cenote:iscsi               on: the volume is a target
//!   org.cenote:iscsi_initiators    names of those that may use it, with commas between, or any; else nobody may
//!   org.cenote:iscsi_chap          a file with what they have to prove that they know, which nobody else may read
//!   org.cenote:iscsi_listen        of the pool's root file system: addresses of the network
//!   org.cenote:iscsi_reservations  what initiators asked to be kept, as `iscsi` writes it
//! ```
//!
//! It listens from when the first volume is a target, and there is an address. What has been connected before a property
//! is taken away stays connected.

use std::fs;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use base::{Data, Env, Error, Kind, Mutex, Piece, Result};
use dsl::Subject;
use export::{Export, ServedClient};
use format::ids::Guid;
use iscsi::{IscsiServer, Lun, TargetAccess, Targets};
use pool::Pool;
use protocol::client_report::ClientReport;
use protocol::volumes::{
    ISCSI_CHAP, ISCSI_INITIATORS, ISCSI_LISTEN, ISCSI_PROPERTY, ISCSI_RESERVATIONS, iscsi_addresses, iscsi_folder,
    iscsi_target,
};

use crate::disk_listening::DiskListening;
use crate::exports::Exports;
use crate::host_rule::HostRule;
use crate::iscsi_access::{access_to, initiators_in, is_initiator, secrets_in, text};
use crate::live::ServedPool;
use crate::network_door::{NetworkAccess, NetworkDoor, addresses_in, is_none};
use crate::report::clients;
use crate::verbs::DatasetChange;
use crate::volume_handle::VolumeHandle;
use crate::volume_offers::{check_switch, offered};
use crate::volumes::OpenVolumes;

/// What serves a pool's volumes to initiators of iSCSI, if anything is to.
pub struct IscsiExport {
    exports: Arc<Exports>,
    targets: Arc<PoolTargets>,
    network: Arc<NetworkAccess>,
    env: Env,
    /// The folder where the processes of pools are found.
    run: PathBuf,
    listening: Mutex<Weak<DiskListening<IscsiServer>>>,
}

/// The volumes that are targets.
struct PoolTargets {
    rule: HostRule,
    pool: Arc<ServedPool>,
    volumes: Arc<OpenVolumes>,
    env: Env,
}

/// A volume that is one.
struct TargetVolume {
    handle: VolumeHandle,
    guid: Guid,
    pool: Arc<ServedPool>,
    env: Env,
}

impl IscsiExport {
    /// Nobody listens yet; the addresses will be told in a file below `run`, the folder where the processes of pools are
    /// found.
    pub fn new(
        exports: Arc<Exports>,
        (pool, volumes): (Arc<ServedPool>, Arc<OpenVolumes>),
        network: Arc<NetworkAccess>,
        env: Env,
        run: PathBuf,
    ) -> IscsiExport {
        let targets = Arc::new(PoolTargets { rule: network.rule().clone(), pool, volumes, env: env.clone() });
        IscsiExport { exports, targets, network, env, run, listening: Mutex::default() }
    }

    /// Properties may have been set: listens where they say, if there is a target. That nobody can listen keeps nobody
    /// from using the pool: it is logged.
    pub fn renew(&self) {
        if let Err(error) = self.try_renew() {
            tracing::warn!("volumes are not served by iSCSI: {error}");
        }
    }

    fn try_renew(&self) -> Result<()> {
        let mut listening = self.listening.lock();
        let view = self.targets.pool.view();
        let now = listening.upgrade().filter(|listening| listening.is_served());
        let addresses = addresses_in(&self.network.property(&view, ISCSI_LISTEN)?.unwrap_or_default())?;
        let now = match now {
            Some(now) => now,
            None if addresses.is_empty() || offered(self.network.rule(), &view, ISCSI_PROPERTY)?.is_empty() => {
                return Ok(());
            }
            None => {
                let new = self.listen(view.name())?;
                *listening = Arc::downgrade(&new);
                self.exports.add(new.clone());
                new
            }
        };
        now.listen_at(&addresses, "")
    }

    fn listen(&self, pool: &str) -> Result<Arc<DiskListening<IscsiServer>>> {
        fs::create_dir_all(iscsi_folder(&self.run))?;
        let server = IscsiServer::new(self.env.clone(), self.targets.clone());
        let serving = server.clone();
        let door = NetworkDoor::new(self.network.clone(), self.env.clone(), move |client| serving.serve(client));
        Ok(Arc::new(DiskListening {
            protocol: "iscsi",
            pool: pool.to_owned(),
            server,
            door,
            addresses: iscsi_addresses(&self.run, pool),
            socket: None,
            env: self.env.clone(),
            has_ended: AtomicBool::new(false),
        }))
    }

    /// Errors: `Invalid` for a value that a property of this export cannot have, or that dataset cannot; why nobody can
    /// listen so.
    pub fn check_property(&self, dataset: &str, property: &str, value: &str) -> Result<()> {
        if property != ISCSI_LISTEN {
            return IscsiExport::check_value(property, value);
        }
        let open = self.listening.lock().upgrade().map(|now| now.door.addresses()).unwrap_or_default();
        let view = self.targets.pool.view();
        let plan = || {
            let addresses = addresses_in(value)?;
            check_kept(self.network.rule(), &view, &addresses)?;
            Ok(addresses)
        };
        self.network.try_property(view.name(), (dataset, property), plan, &open)
    }

    /// Errors: `Invalid` for a value that a property of this export cannot have, on whatever dataset.
    pub fn check_value(property: &str, value: &str) -> Result<()> {
        let invalid = |what: String| Err(Error::new(Kind::Invalid, what));
        match property {
            ISCSI_PROPERTY => check_switch(property, value),
            ISCSI_CHAP if !is_none(value) => secrets_in(Path::new(value)).map(drop),
            ISCSI_INITIATORS if !is_none(value) => match initiators_in(value).find(|name| !is_initiator(name)) {
                Some(name) => {
                    invalid(format!("'{property}': '{name}' is no name of an initiator (iqn., eui. or naa.)"))
                }
                None => Ok(()),
            },
            ISCSI_RESERVATIONS => invalid(format!("'{property}' is set by initiators only")),
            ISCSI_LISTEN => addresses_in(value).map(drop),
            _ => Ok(()),
        }
    }

    /// Its initiators.
    pub fn clients(&self) -> Vec<ClientReport> {
        let Some(listening) = self.listening.lock().upgrade() else { return Vec::new() };
        let told = |client: &ServedClient<String>| clients::of("iscsi", &client.disk, client);
        listening.server.clients().iter().map(told).collect()
    }

    /// Errors: `Busy` if initiators use the volume of that guid.
    pub fn check_unused(&self, guid: Guid) -> Result<()> {
        let Some(listening) = self.listening.lock().upgrade() else { return Ok(()) };
        listening.wait_until(|server| !server.is_in_use(guid.get()))
    }
}

/// Looks whether volumes may be given out at these addresses. Errors: `Invalid` at an address that is not loopback if
/// there is one for all initiators, and without a secret.
fn check_kept(rule: &HostRule, view: &Pool, addresses: &[SocketAddr]) -> Result<()> {
    let Some(address) = addresses.iter().find(|address| !address.ip().to_canonical().is_loopback()) else {
        return Ok(());
    };
    for subject in offered(rule, view, ISCSI_PROPERTY)? {
        // one whose secrets cannot be read is for nobody
        if access_to(rule, &subject).is_ok_and(|access| access.is_for_all()) {
            let what = format!(
                "{address} is no loopback address, and '{}' is for all initiators: it needs '{ISCSI_CHAP}', or names in \
                 '{ISCSI_INITIATORS}'",
                subject.name()
            );
            return Err(Error::new(Kind::Invalid, what));
        }
    }
    Ok(())
}

impl PoolTargets {
    fn open(&self, subject: &Subject) -> Result<Arc<dyn Lun>> {
        let gone = || Error::new(Kind::NotFound, "dataset does not exist").in_dataset(subject.name());
        let dataset = subject.dataset().ok_or_else(gone)?;
        let handle = VolumeHandle::open(self.pool.clone(), self.volumes.clone(), dataset.id)?;
        let (pool, env) = (self.pool.clone(), self.env.clone());
        Ok(Arc::new(TargetVolume { handle, guid: dataset.phys.guid, pool, env }))
    }
}

impl Targets for PoolTargets {
    fn all(&self) -> Result<Vec<Arc<dyn Lun>>> {
        let opened = |subject: &Subject| {
            let opened = self.open(subject);
            opened.inspect_err(|error| tracing::warn!(volume = subject.name(), "it is no target: {error}")).ok()
        };
        Ok(offered(&self.rule, &self.pool.view(), ISCSI_PROPERTY)?.iter().filter_map(opened).collect())
    }

    fn find(&self, target_name: &str) -> Result<Option<Arc<dyn Lun>>> {
        // whatever it was called when the initiator learned of it
        let guid = |name: &str| name.rsplit_once(':').map(|(_, guid)| guid.to_owned());
        let wanted = guid(target_name);
        let all = offered(&self.rule, &self.pool.view(), ISCSI_PROPERTY)?;
        let found = all.iter().find(|subject| {
            let own = subject.dataset().map(|dataset| iscsi_target(subject.name(), dataset.phys.guid));
            own.and_then(|own| guid(&own)) == wanted
        });
        found.map(|subject| self.open(subject)).transpose()
    }

    fn access(&self, lun: &dyn Lun) -> Result<TargetAccess> {
        let view = self.pool.view();
        let all = offered(&self.rule, &view, ISCSI_PROPERTY)?;
        let found = all
            .into_iter()
            .find(|subject| subject.dataset().is_some_and(|dataset| dataset.phys.guid.get() == lun.guid()));
        let Some(subject) = found else { return Ok(TargetAccess::default()) };
        access_to(&self.rule, &subject)
    }

    fn wait_resumed(&self) -> Result<()> {
        self.pool.wait_resumed()
    }
}

impl TargetVolume {
    fn subject(&self) -> Result<Subject> {
        let view = self.pool.view();
        view.dsl().subject(&view.dsl().name_of(self.handle.dataset())?)
    }
}

impl Lun for TargetVolume {
    fn guid(&self) -> u64 {
        self.guid.get()
    }

    fn target_name(&self) -> String {
        iscsi_target(&self.volume_name(), self.guid)
    }

    fn volume_name(&self) -> String {
        self.pool.view().dsl().name_of(self.handle.dataset()).unwrap_or_default()
    }

    fn sizes(&self) -> Result<(u64, u64)> {
        let volume = self.handle.now()?;
        Ok((volume.size(), volume.block_size()))
    }

    fn is_read_only(&self) -> Result<bool> {
        Ok(self.handle.now()?.is_read_only())
    }

    fn read(&self, offset: u64, len: usize) -> Result<Vec<Piece>> {
        self.handle.now()?.read(offset, len, false)
    }

    fn write(&self, offset: u64, data: Data<'_>, lasts: bool) -> Result<()> {
        self.handle.now()?.write(offset, data, lasts)
    }

    fn zero(&self, offset: u64, len: u64) -> Result<()> {
        self.handle.now()?.zero(offset, len, false)
    }

    fn flush(&self) -> Result<()> {
        self.handle.now()?.flush()
    }

    fn prefetch(&self, offset: u64, len: u64) -> Result<()> {
        self.handle.now()?.prefetch(offset, len)
    }

    fn next_data(&self, bytes: Range<u64>) -> Result<Option<u64>> {
        self.handle.now()?.next_data(bytes)
    }

    fn next_hole(&self, bytes: Range<u64>) -> Result<u64> {
        self.handle.now()?.next_hole(bytes)
    }

    fn reservations(&self) -> Result<Option<String>> {
        // those of a volume that it was received from, or is below of, are not its own
        Ok(self.subject()?.levels().own_set(ISCSI_RESERVATIONS).and_then(text))
    }

    fn keep_reservations(&self, text: &str) -> Result<()> {
        let name = self.pool.view().dsl().name_of(self.handle.dataset())?;
        let (property, value) = (ISCSI_RESERVATIONS.to_owned(), text.to_owned());
        self.pool.change(&self.env, DatasetChange::Set { name, property, value })
    }
}
