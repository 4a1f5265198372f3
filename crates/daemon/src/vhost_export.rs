//! The volumes of a pool for virtual machines, by vhost-user: a socket for each volume that asks for it.
//!
//! ```text
//!   RUN/vhost/tank/vm+sock    the volume tank/vm, if its property org.cenote:vhost is on;
//!                             only for the user of the pool's process
//! ```
//!
//! A socket is there as long as its volume has the property, and goes with the volume's name. The machine that has been
//! connected before the property is taken away stays connected.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base::{Env, Error, Kind, Mutex, Result};
use export::{DiskServer, Export};
use format::ids::{DatasetId, Guid, Txg};
use protocol::client_report::ClientReport;
use protocol::volumes::{VHOST_PROPERTY, vhost_folder, vhost_socket};
use rustix::net::{Shutdown, shutdown};
use vhostblk::{VhostDisk, VhostServer, VhostSource};
use zvol::Zvol;

use crate::disk_listening::wait_until;
use crate::exports::Exports;
use crate::host_rule::HostRule;
use crate::listen_helper;
use crate::live::ServedPool;
use crate::report::clients;
use crate::volume_handle::VolumeHandle;
use crate::volume_offers::{check_switch, offered, offers};
use crate::volumes::OpenVolumes;

/// Longest path of a socket, in bytes.
const PATH_BYTES_MAX: usize = 107;
/// What is between tries when a machine cannot be taken, as when too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// What serves a pool's volumes to virtual machines, if anything is to.
pub struct VhostExport {
    rule: HostRule,
    exports: Arc<Exports>,
    pool: Arc<ServedPool>,
    volumes: Arc<OpenVolumes>,
    env: Env,
    /// The folder where the processes of pools are found.
    run: PathBuf,
    volumes_served: Mutex<Vec<Arc<VhostVolume>>>,
}

/// A volume that has a socket, or still has a machine.
struct VhostVolume {
    rule: HostRule,
    pool: Arc<ServedPool>,
    dataset: DatasetId,
    env: Env,
    run: PathBuf,
    server: Arc<VhostServer>,
    /// Its name, and the socket that is there, if any, and where.
    door: Mutex<(String, Option<(PathBuf, UnixListener)>)>,
    /// Counts up when the socket goes: the thread that waits there ends.
    turn: AtomicU64,
    has_ended: AtomicBool,
}

/// Opens the volume when a machine comes.
struct MachineSource {
    pool: Arc<ServedPool>,
    volumes: Arc<OpenVolumes>,
    dataset: DatasetId,
}

/// A volume that a machine has.
struct MachineVolume {
    pool: Arc<ServedPool>,
    handle: VolumeHandle,
    guid: Guid,
}

impl VhostExport {
    /// No socket is there yet; they will be below `run`, the folder where the processes of pools are found.
    pub fn new(
        exports: Arc<Exports>,
        (pool, volumes): (Arc<ServedPool>, Arc<OpenVolumes>),
        rule: HostRule,
        env: Env,
        run: PathBuf,
    ) -> VhostExport {
        VhostExport { rule, exports, pool, volumes, env, run, volumes_served: Mutex::default() }
    }

    /// The property may have been set: makes sockets for volumes that have it. This looks through all datasets. That
    /// there can be none keeps nobody from using the pool: it is logged.
    pub fn renew(&self) {
        let view = self.pool.view();
        let offered = match offered(&self.rule, &view, VHOST_PROPERTY) {
            Ok(offered) => offered,
            Err(error) => return tracing::warn!("volumes are not served by vhost-user: {error}"),
        };
        let mut served = self.volumes_served.lock();
        served.retain(|volume| volume.is_served());
        for subject in offered {
            let Some(dataset) = subject.dataset().map(|dataset| dataset.id) else { continue };
            let known = served.iter().find(|volume| volume.dataset == dataset).cloned();
            let volume = known.clone().unwrap_or_else(|| Arc::new(self.volume(dataset)));
            match volume.listen_as(subject.name()) {
                Ok(()) if known.is_some() => {}
                Ok(()) => {
                    served.push(volume.clone());
                    self.exports.add(volume);
                }
                Err(error) => {
                    tracing::warn!(volume = subject.name(), "it is not served by vhost-user: {error}");
                }
            }
        }
    }

    /// Its machines.
    pub fn clients(&self) -> Vec<ClientReport> {
        let served = self.volumes_served.lock().clone();
        let told = |volume: &Arc<VhostVolume>| {
            let client = volume.server.client()?;
            let name = volume.door.lock().0.clone();
            Some(clients::of("vhost", &name, &client))
        };
        served.iter().filter_map(told).collect()
    }

    /// Errors: `Busy` if a machine has a dataset.
    pub fn check_unused(&self, dataset: DatasetId) -> Result<()> {
        let served = self.volumes_served.lock().iter().find(|volume| volume.dataset == dataset).cloned();
        served.map_or(Ok(()), |volume| wait_until(&volume.env, || !volume.server.has_clients()))
    }

    /// Errors: `Invalid` for a value that the property of this export cannot have, or that dataset cannot.
    pub fn check_property(&self, dataset: &str, property: &str, value: &str) -> Result<()> {
        VhostExport::check_value(property, value)?;
        let path = vhost_socket(&self.run, dataset);
        let bytes = path.as_os_str().len();
        if (property, value) == (VHOST_PROPERTY, "on") && bytes > PATH_BYTES_MAX {
            let path = path.display();
            let what = format!("its socket {path} would have {bytes} bytes, and may have {PATH_BYTES_MAX}");
            return Err(Error::new(Kind::Invalid, what));
        }
        Ok(())
    }

    /// Errors: `Invalid` for a value that the property of this export cannot have, on whatever dataset.
    pub fn check_value(property: &str, value: &str) -> Result<()> {
        if property == VHOST_PROPERTY { check_switch(property, value) } else { Ok(()) }
    }

    fn volume(&self, dataset: DatasetId) -> VhostVolume {
        let source = MachineSource { pool: self.pool.clone(), volumes: self.volumes.clone(), dataset };
        VhostVolume {
            rule: self.rule.clone(),
            pool: self.pool.clone(),
            dataset,
            env: self.env.clone(),
            run: self.run.clone(),
            server: VhostServer::new(self.env.clone(), Arc::new(source)),
            door: Mutex::default(),
            turn: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
        }
    }
}

impl VhostVolume {
    /// Has a socket for a volume of that name. Errors: why there is none.
    fn listen_as(self: &Arc<Self>, name: &str) -> Result<()> {
        self.follow(name)?;
        let mut door = self.door.lock();
        if door.1.is_some() {
            return Ok(());
        }
        let path = vhost_socket(&self.run, name);
        make_folder_of(&path)?;
        // that of a process that was killed: this one has the lock of the pool
        let _ = fs::remove_file(&path);
        let listener = listen_helper::bind(&path, 0o600)?;
        let opened = listener.try_clone()?;
        let (turn, weak) = (self.turn.load(Ordering::SeqCst), Arc::downgrade(self));
        let accept = move || {
            for stream in listener.incoming() {
                let Some(volume) = weak.upgrade().filter(|volume| volume.turn.load(Ordering::SeqCst) == turn) else {
                    return;
                };
                match stream {
                    Ok(stream) => volume.server.serve(stream),
                    Err(error) => {
                        tracing::warn!("a virtual machine could not connect: {error}");
                        volume.env.pause(ACCEPT_PAUSE);
                    }
                }
            }
        };
        if !self.env.spawn("vhost-accept", accept) {
            let _ = fs::remove_file(&path);
            return Err(Error::new(Kind::Io, "the system gives no more threads"));
        }
        tracing::info!(volume = name, socket = %path.display(), "it is served by vhost-user");
        door.1 = Some((path, opened));
        Ok(())
    }

    /// Takes no machine any more; the one that is connected stays.
    fn close(&self) {
        self.turn.fetch_add(1, Ordering::SeqCst);
        if let Some((path, listener)) = self.door.lock().1.take() {
            // wakes the thread that waits there
            let _ = shutdown(&listener, Shutdown::Both);
            let _ = fs::remove_file(&path);
            remove_folders_of(&self.run, &path);
        }
    }
}

impl Export for VhostVolume {
    fn dataset(&self) -> String {
        // no dataset can be called so
        format!("{}/@vhost", self.door.lock().0)
    }

    fn serves(&self, dataset: &str) -> bool {
        self.door.lock().0 == dataset
    }

    fn place(&self) -> String {
        let door = self.door.lock();
        door.1.as_ref().map_or_else(|| "vhost".to_owned(), |(path, _)| path.display().to_string())
    }

    fn is_served(&self) -> bool {
        !self.has_ended.load(Ordering::SeqCst) && (self.door.lock().1.is_some() || self.server.has_clients())
    }

    fn stop(&self, force: bool) -> Result<()> {
        if force {
            self.server.disconnect_all();
        }
        wait_until(&self.env, || !self.server.has_clients())?;
        self.close();
        self.has_ended.store(true, Ordering::SeqCst);
        // one that has just come
        self.server.disconnect_all();
        Ok(())
    }

    fn renamed(&self, _: &str) {}

    fn property_changed(&self) -> Result<()> {
        let view = self.pool.view();
        let subject = match view.dsl().name_of(self.dataset).and_then(|name| view.dsl().subject(&name)) {
            Ok(subject) => {
                Some(subject).filter(|subject| offers(&self.rule, &view, subject, VHOST_PROPERTY).unwrap_or(true))
            }
            Err(error) if error.kind() == Kind::NotFound => None,
            Err(error) => return Err(error),
        };
        let Some(subject) = subject else {
            self.close();
            return Ok(());
        };
        self.follow(subject.name())?;
        self.server.changed()
    }

    fn freeze(&self) -> Result<()> {
        self.server.freeze();
        Ok(())
    }

    fn thaw(&self) -> Result<()> {
        self.server.thaw();
        Ok(())
    }
}

impl VhostVolume {
    /// The volume has that name now. Errors: its socket cannot follow.
    fn follow(&self, name: &str) -> Result<()> {
        let mut door = self.door.lock();
        if door.0 == name {
            return Ok(());
        }
        name.clone_into(&mut door.0);
        let Some((old, listener)) = door.1.take() else { return Ok(()) };
        let path = vhost_socket(&self.run, name);
        make_folder_of(&path)?;
        fs::rename(&old, &path)?;
        remove_folders_of(&self.run, &old);
        door.1 = Some((path, listener));
        Ok(())
    }
}

fn make_folder_of(path: &Path) -> Result<()> {
    Ok(DirBuilder::new().recursive(true).mode(0o755).create(path.parent().unwrap_or(path))?)
}

/// Removes the folders of a socket that are empty now.
fn remove_folders_of(run: &Path, path: &Path) {
    let all = vhost_folder(run);
    for folder in path.ancestors().skip(1).take_while(|folder| *folder != all) {
        if fs::remove_dir(folder).is_err() {
            return;
        }
    }
}

impl VhostSource for MachineSource {
    fn open(&self) -> Result<Arc<dyn VhostDisk>> {
        let view = self.pool.view();
        let guid = view.dsl().find(&view.dsl().name_of(self.dataset)?)?.phys.guid;
        let handle = VolumeHandle::open(self.pool.clone(), self.volumes.clone(), self.dataset)?;
        Ok(Arc::new(MachineVolume { pool: self.pool.clone(), handle, guid }))
    }

    fn wait_resumed(&self) -> Result<()> {
        self.pool.wait_resumed()
    }
}

impl VhostDisk for MachineVolume {
    fn serial(&self) -> String {
        format!("{:016x}", self.guid)
    }

    fn volume(&self) -> Result<Arc<Zvol>> {
        self.handle.now()
    }

    fn open_group(&self) -> Txg {
        self.pool.live().map_or(Txg::ZERO, |live| live.txgs().open_txg())
    }

    fn synced_group(&self) -> Txg {
        self.pool.live().map_or(Txg::ZERO, |live| live.txgs().synced_txg())
    }
}
