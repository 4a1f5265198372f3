//! The volumes of a pool for clients of NBD: one socket, at which those are to be had that ask for it.
//!
//! ```text
//!   RUN/nbd/tank.sock      only for the user of the pool's process
//!     export "tank/vm"     the volume of that name, if its property org.cenote:nbd is on
//! ```
//!
//! By network they are to be had where property org.cenote:nbd_listen of the pool's root file system says: at a loopback
//! address, where every user of this machine may have them, or by TLS, with certificates from the folder
//! org.cenote:nbd_tls; at other addresses only by TLS, and clients have to show a certificate.
//!
//! The socket is there from when the first volume has the property until the pool is exported. What has been connected
//! before the property is taken away stays connected.

use std::fs::{self, DirBuilder};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::{Env, Error, Kind, Mutex, Result};
use export::{Export, ServedClient};
use format::ids::DatasetId;
use nbd::{Disk, Disks, NbdServer, Tls};
use protocol::client_report::ClientReport;
use protocol::volumes::{NBD_LISTEN, NBD_PROPERTY, NBD_TLS, nbd_addresses, nbd_folder, nbd_socket};
use zvol::Zvol;

use crate::disk_listening::DiskListening;
use crate::exports::Exports;
use crate::host_files::in_time;
use crate::host_rule::HostRule;
use crate::listen_helper;
use crate::live::ServedPool;
use crate::network_door::{NetworkAccess, NetworkDoor, addresses_in, is_none};
use crate::report::clients;
use crate::volume_handle::VolumeHandle;
use crate::volume_offers::{check_switch, offered, offers};
use crate::volume_tree::shown_snapshots;
use crate::volumes::OpenVolumes;

/// What is between tries when a client cannot be taken, as when too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// What serves a pool's volumes to clients of NBD, if anything is to.
pub struct NbdExport {
    exports: Arc<Exports>,
    disks: Arc<PoolDisks>,
    network: Arc<NetworkAccess>,
    env: Env,
    /// The folder where the processes of pools are found.
    run: PathBuf,
    /// Of what comes by network.
    tls: Arc<Mutex<Option<Tls>>>,
    listening: Mutex<Weak<DiskListening<NbdServer>>>,
}

/// The volumes that have the property.
struct PoolDisks {
    rule: HostRule,
    pool: Arc<ServedPool>,
    volumes: Arc<OpenVolumes>,
}

impl NbdExport {
    /// Nobody listens yet; the socket will be below `run`, the folder where the processes of pools are found.
    pub fn new(
        exports: Arc<Exports>,
        (pool, volumes): (Arc<ServedPool>, Arc<OpenVolumes>),
        network: Arc<NetworkAccess>,
        env: Env,
        run: PathBuf,
    ) -> NbdExport {
        let disks = Arc::new(PoolDisks { rule: network.rule().clone(), pool, volumes });
        NbdExport { exports, disks, network, env, run, tls: Arc::default(), listening: Mutex::default() }
    }

    /// The property may have been set: listens if there is a volume that has it. This looks through all datasets. That
    /// nobody can listen keeps nobody from using the pool: it is logged.
    pub fn renew(&self) {
        let mut listening = self.listening.lock();
        if let Some(listening) = listening.upgrade().filter(|listening| listening.is_served()) {
            return self.renew_network(&listening);
        }
        match offered(&self.disks.rule, &self.disks.pool.view(), NBD_PROPERTY) {
            Ok(volumes) if volumes.is_empty() => return,
            Ok(_) => {}
            Err(error) => return tracing::warn!("volumes are not served by NBD: {error}"),
        }
        match self.listen() {
            Ok(new) => {
                *listening = Arc::downgrade(&new);
                self.renew_network(&new);
                self.exports.add(new);
            }
            Err(error) => tracing::warn!("volumes are not served by NBD: {error}"),
        }
    }

    /// Its clients.
    pub fn clients(&self) -> Vec<ClientReport> {
        let Some(listening) = self.listening.lock().upgrade() else { return Vec::new() };
        let view = self.disks.pool.view();
        let told = |client: &ServedClient<u64>| {
            // one that was just destroyed has no name any more
            let volume = view.dsl().name_of(DatasetId::new(client.disk)).unwrap_or_default();
            clients::of("nbd", &volume, client)
        };
        listening.server.clients().iter().map(told).collect()
    }

    /// Errors: `Busy` if clients use a dataset.
    pub fn check_unused(&self, dataset: DatasetId) -> Result<()> {
        let Some(listening) = self.listening.lock().upgrade() else { return Ok(()) };
        listening.wait_until(|server| !server.is_in_use(dataset.get()))
    }

    /// Errors: `Invalid` for a value that a property of this export cannot have, or that dataset cannot; why nobody can
    /// listen so.
    pub fn check_property(&self, dataset: &str, property: &str, value: &str) -> Result<()> {
        NbdExport::check_value(property, value)?;
        if ![NBD_LISTEN, NBD_TLS].contains(&property) {
            return Ok(());
        }
        let view = self.disks.pool.view();
        let now = |name: &str| match name == property {
            true => Ok(Some(value.to_owned()).filter(|value| !is_none(value))),
            false => self.network.property(&view, name),
        };
        let plan = || Ok(NetworkPlan::new(now(NBD_LISTEN)?, now(NBD_TLS)?)?.addresses);
        let open = self.listening.lock().upgrade().map(|listening| listening.door.addresses()).unwrap_or_default();
        self.network.try_property(view.name(), (dataset, property), plan, &open)
    }

    /// Looks at the properties of a root file system that is to be made. Errors: `Invalid` for values that they cannot have.
    pub fn check_new(properties: &[(String, String)]) -> Result<()> {
        properties.iter().try_for_each(|(property, value)| NbdExport::check_value(property, value))?;
        let found = |name: &str| {
            let (_, value) = properties.iter().find(|(property, value)| property == name && !is_none(value))?;
            Some(value.clone())
        };
        NetworkPlan::new(found(NBD_LISTEN), found(NBD_TLS)).map(drop)
    }

    fn check_value(property: &str, value: &str) -> Result<()> {
        if property == NBD_PROPERTY { check_switch(property, value) } else { Ok(()) }
    }

    /// Listens where properties say. What cannot be is logged.
    fn renew_network(&self, listening: &DiskListening<NbdServer>) {
        let view = self.disks.pool.view();
        let property = |name| self.network.property(&view, name);
        let plan = property(NBD_LISTEN).and_then(|listen| NetworkPlan::new(listen, property(NBD_TLS)?));
        let plan = plan.unwrap_or_else(|error| {
            tracing::warn!("volumes are not served by NBD by network: {error}");
            NetworkPlan::default()
        });
        if let Err(error) = self.follow(listening, plan) {
            tracing::warn!("volumes are not served by NBD by network: {error}");
        }
    }

    /// Errors: where it cannot listen.
    fn follow(&self, listening: &DiskListening<NbdServer>, plan: NetworkPlan) -> Result<()> {
        for address in plan.open_addresses() {
            tracing::warn!(%address, "volumes are open to every user of this machine by NBD, unless '{NBD_TLS}' is set");
        }
        let scheme = if plan.tls.is_some() { "nbds://" } else { "nbd://" };
        *self.tls.lock() = plan.tls;
        listening.listen_at(&plan.addresses, scheme)
    }

    fn listen(&self) -> Result<Arc<DiskListening<NbdServer>>> {
        let pool = self.disks.pool.view().name().to_owned();
        let path = nbd_socket(&self.run, &pool);
        DirBuilder::new().recursive(true).mode(0o755).create(nbd_folder(&self.run))?;
        // that of a process that was killed: this one has the lock of the pool
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(error.into());
        }
        let listener = listen_helper::bind(&path, 0o600)?;
        let server = NbdServer::new(self.env.clone(), self.disks.clone());
        let (serving, tls) = (server.clone(), self.tls.clone());
        let take = move |client| serving.serve(client, tls.lock().clone());
        let listening = Arc::new(DiskListening {
            protocol: "nbd",
            server,
            door: NetworkDoor::new(self.network.clone(), self.env.clone(), take),
            addresses: nbd_addresses(&self.run, &pool),
            pool,
            socket: Some((path, listener.try_clone()?)),
            env: self.env.clone(),
            has_ended: AtomicBool::new(false),
        });
        let weak = Arc::downgrade(&listening);
        let accept = move || {
            for stream in listener.incoming() {
                let Some(listening) = weak.upgrade().filter(|listening| listening.is_served()) else { return };
                match stream {
                    Ok(stream) => listening.server.serve(stream, None),
                    Err(error) => {
                        tracing::warn!("a client of NBD could not connect: {error}");
                        listening.env.pause(ACCEPT_PAUSE);
                    }
                }
            }
        };
        if !self.env.spawn("nbd-accept", accept) {
            return Err(Error::new(Kind::Io, "the system gives no more threads"));
        }
        tracing::info!(socket = listening.place(), "volumes are served by NBD");
        Ok(listening)
    }
}

/// Where volumes are to be had by network, and how.
#[derive(Default)]
struct NetworkPlan {
    addresses: Vec<SocketAddr>,
    tls: Option<Tls>,
}

impl NetworkPlan {
    /// Where every user of this machine may have the volumes.
    fn open_addresses(&self) -> &[SocketAddr] {
        if self.tls.is_none() { &self.addresses } else { &[] }
    }

    /// What properties say. Errors: `Invalid`, with what is wrong.
    fn new(listen: Option<String>, tls: Option<String>) -> Result<NetworkPlan> {
        let addresses = addresses_in(&listen.unwrap_or_default())?;
        let tls = tls.map(|folder| in_time(Path::new(&folder), Tls::load)).transpose()?;
        let is_safe = tls.as_ref().is_some_and(Tls::is_client_known);
        match addresses.iter().find(|address| !is_safe && !address.ip().is_loopback()) {
            None => Ok(NetworkPlan { addresses, tls }),
            Some(address) => {
                let what = format!(
                    "{address} is no loopback address: '{NBD_TLS}' has to name a folder with certificates, ca-cert.pem \
                     among them"
                );
                Err(Error::new(Kind::Invalid, what))
            }
        }
    }
}

impl Disks for PoolDisks {
    /// Snapshots that are shown are behind their volume.
    fn names(&self) -> Result<Vec<String>> {
        let view = self.pool.view();
        let mut names = Vec::new();
        for volume in offered(&self.rule, &view, NBD_PROPERTY)? {
            names.push(volume.name().to_owned());
            for snapshot in shown_snapshots(&view, &volume)? {
                if offers(&self.rule, &view, &snapshot, NBD_PROPERTY)? {
                    names.push(snapshot.name().to_owned());
                }
            }
        }
        Ok(names)
    }

    fn find(&self, name: &str) -> Result<Option<Arc<dyn Disk>>> {
        let view = self.pool.view();
        let subject = match view.dsl().subject(name) {
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Invalid | Kind::TooLong) => return Ok(None),
            subject => subject?,
        };
        let Some(dataset) =
            subject.dataset().filter(|_| offers(&self.rule, &view, &subject, NBD_PROPERTY).unwrap_or(false))
        else {
            return Ok(None);
        };
        let handle = VolumeHandle::open(self.pool.clone(), self.volumes.clone(), dataset.id)?;
        Ok(Some(Arc::new(handle)))
    }

    fn wait_resumed(&self) -> Result<()> {
        self.pool.wait_resumed()
    }
}

impl Disk for VolumeHandle {
    fn id(&self) -> u64 {
        self.dataset().get()
    }

    fn volume(&self) -> Result<Arc<Zvol>> {
        self.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_without_certificates_are_told_as_open_or_refused() {
        let plan = |listen: &str| NetworkPlan::new(Some(listen.to_owned()), None);
        let near = plan("127.0.0.1:10809,[::1]:10809").unwrap();
        assert_eq!(near.open_addresses(), near.addresses);
        assert_eq!(near.open_addresses().len(), 2);
        for far in
            ["192.0.2.1:10809", "0.0.0.0:10809", "[::]:10809", "127.0.0.1:1,10.0.0.1:10809", "[::ffff:10.0.0.1]:1"]
        {
            let error = plan(far).map(|plan| plan.addresses).unwrap_err();
            assert!(error.what().contains("is no loopback address"), "{far}: {error}");
        }
        assert!(NetworkPlan::default().open_addresses().is_empty());
    }
}
