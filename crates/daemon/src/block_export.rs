//! The volumes of a pool as block devices, where the kernel has the module `nbd`: `/dev/zvol/tank/vm`.
//!
//! ```text
//!   programs ──▶ /dev/nbd3 ──▶ one end of a pair of sockets ═══ the other end: a server of NBD, for this volume alone
//! ```
//!
//! The kernel has its end by [`listen_helper`]. When the process dies, the device stays, and the next process gives it
//! another socket; the kernel asks again what was not answered.
//!
//! The kernel looks for partitions on a device by itself, and udev for file systems. So only volumes of this host's own
//! pools are devices by default, if no stream has brought them; `org.cenote:block`, set here, says otherwise.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::tunables::{ZVOL_INHIBIT_DEV, ZVOL_VOLMODE};
use base::{Env, Error, Kind, Mutex, Result};
use dsl::{Property, PropertyValue, Subject};
use export::{DiskServer, Export};
use format::ids::{DatasetId, Guid};
use nbd::{Disk, Disks, NbdServer};
use pool::Pool;
use protocol::client_report::ClientReport;
use protocol::volumes::{
    BLOCK_PROPERTY, SNAPDEV_HIDDEN, VOLMODE_DEFAULT, VOLMODE_DEV, VOLMODE_NONE, block_path, is_on,
};

use crate::block_helper::{BlockId, BlockPlan, BlockWish};
use crate::disk_listening::wait_until;
use crate::exports::Exports;
use crate::host_rule::HostRule;
use crate::listen_helper;
use crate::live::ServedPool;
use crate::report::clients;
use crate::volume_handle::VolumeHandle;
use crate::volume_offers::{check_switch, volumes_where};
use crate::volume_tree::{is_shown, number, shown_snapshots};
use crate::volumes::OpenVolumes;

/// Makes a pool's volumes block devices.
pub struct BlockExport {
    rule: HostRule,
    exports: Arc<Exports>,
    pool: Arc<ServedPool>,
    volumes: Arc<OpenVolumes>,
    env: Env,
    devices: Mutex<Vec<Arc<BlockVolume>>>,
    /// What was there of processes before this one has been looked through.
    is_swept: AtomicBool,
    /// Snapshots of some volume are shown.
    shows_snapshots: AtomicBool,
}

/// A volume, or a snapshot of one, that is a device.
struct BlockVolume {
    pool: Arc<ServedPool>,
    env: Env,
    dataset: DatasetId,
    server: Arc<NbdServer>,
    disk: Arc<VolumeHandle>,
    /// As the kernel has it.
    plan: Mutex<BlockPlan>,
    has_ended: AtomicBool,
}

/// What a server for the kernel alone has for others: nothing.
struct NoDisks(Arc<ServedPool>);

impl BlockExport {
    /// Nothing is a device yet.
    pub fn new(
        exports: Arc<Exports>,
        (pool, volumes): (Arc<ServedPool>, Arc<OpenVolumes>),
        rule: HostRule,
        env: Env,
    ) -> BlockExport {
        let (is_swept, shows_snapshots) = (AtomicBool::new(false), AtomicBool::new(false));
        BlockExport { rule, exports, pool, volumes, env, devices: Mutex::default(), is_swept, shows_snapshots }
    }

    /// Volumes and properties may be others: makes devices of those that are to be, and takes the others away. This looks
    /// through all datasets. That there can be none keeps nobody from using the pool: it is logged.
    pub fn renew(&self) {
        if self.env.tunable(ZVOL_INHIBIT_DEV) != 0 {
            return;
        }
        let view = self.pool.view();
        let wanted = match self.wanted(&view) {
            Ok(wanted) => wanted,
            Err(error) => return tracing::warn!("volumes are no block devices: {error}"),
        };
        let mut devices = self.devices.lock();
        for device in &*devices {
            if !wanted.iter().any(|subject| subject.dataset().is_some_and(|dataset| dataset.id == device.dataset))
                && let Err(error) = device.stop(false)
            {
                tracing::warn!(device = device.place(), "it stays as long as it is in use: {error}");
            }
        }
        self.drop_ended(&mut devices);
        for subject in &wanted {
            let Some(dataset) = subject.dataset() else { continue };
            if devices.iter().any(|device| device.dataset == dataset.id) {
                continue;
            }
            match self.attach(&view, subject, (dataset.id, dataset.phys.guid)) {
                Ok(device) => {
                    devices.push(device.clone());
                    self.exports.add(device);
                }
                Err(error) if matches!(error.kind(), Kind::Unsupported | Kind::Permission) => {
                    return tracing::debug!("volumes are no block devices here: {error}");
                }
                Err(error) => tracing::warn!(volume = subject.name(), "it is no block device: {error}"),
            }
        }
        if !self.is_swept.swap(true, Ordering::SeqCst) {
            let but = wanted.iter().filter_map(|subject| Some(subject.dataset()?.phys.guid)).collect();
            // without such devices, nothing was left
            let _ = listen_helper::block(BlockWish::Sweep { pool: view.guid(), but }, None);
        }
    }

    /// There may be other snapshots.
    pub fn changed(&self) {
        if self.shows_snapshots.load(Ordering::SeqCst) {
            self.renew();
        }
    }

    /// Those in use, with what was asked of them.
    pub fn clients(&self) -> Vec<ClientReport> {
        let devices = self.devices.lock().clone();
        let of = |device: &Arc<BlockVolume>| {
            let name = device.plan.lock().name.clone();
            device.server.clients().iter().map(|client| clients::of("block", &name, client)).collect::<Vec<_>>()
        };
        devices.iter().filter(|device| device.is_served()).flat_map(of).collect()
    }

    /// The device of a dataset goes, as the dataset will. Errors: `Busy` if it is in use.
    pub fn check_unused(&self, dataset: DatasetId) -> Result<()> {
        let mut devices = self.devices.lock();
        let device = devices.iter().find(|device| device.dataset == dataset && device.is_served());
        device.map_or(Ok(()), |device| device.stop(false))?;
        self.drop_ended(&mut devices);
        Ok(())
    }

    /// What is no device any more keeps its volume open no longer.
    fn drop_ended(&self, devices: &mut Vec<Arc<BlockVolume>>) {
        for ended in devices.extract_if(.., |device| !device.is_served()) {
            let ended: Arc<dyn Export> = ended;
            self.exports.remove(&ended);
        }
    }

    /// Errors: `Invalid` for a value that the property of this export cannot have.
    pub fn check_value(property: &str, value: &str) -> Result<()> {
        if property == BLOCK_PROPERTY { check_switch(property, value) } else { Ok(()) }
    }

    /// All that are to be devices.
    fn wanted(&self, view: &Pool) -> Result<Vec<Subject>> {
        let (mut wanted, mut shows_snapshots) = (Vec::new(), false);
        for volume in volumes_where(view, |volume| Ok(self.is_wanted(volume) && is_shown(view, volume)?))? {
            if volmode(&self.env, view, &volume)? == VOLMODE_NONE {
                continue;
            }
            let snapshots = shown_snapshots(view, &volume)?;
            shows_snapshots |= number(view, &volume, Property::Snapdev)? != SNAPDEV_HIDDEN;
            wanted.push(volume);
            wanted.extend(snapshots);
        }
        self.shows_snapshots.store(shows_snapshots, Ordering::SeqCst);
        Ok(wanted)
    }

    fn is_wanted(&self, volume: &Subject) -> bool {
        let levels = volume.levels();
        match self.rule.value(levels, BLOCK_PROPERTY) {
            Some(PropertyValue::Text(text)) => is_on(&text),
            _ => self.rule.is_own() && !levels.has_received(),
        }
    }

    fn attach(&self, view: &Pool, subject: &Subject, (dataset, guid): (DatasetId, Guid)) -> Result<Arc<BlockVolume>> {
        let disk = Arc::new(VolumeHandle::open(self.pool.clone(), self.volumes.clone(), dataset)?);
        let plan = plan_of(&self.env, (view, subject), guid, &disk)?;
        let server = NbdServer::new(self.env.clone(), Arc::new(NoDisks(self.pool.clone())));
        let (ours, theirs) = UnixStream::pair()?;
        // the kernel may ask at once
        if !server.serve_agreed(ours, disk.clone()) {
            return Err(Error::new(Kind::Io, "the system gives no more threads"));
        }
        let told = listen_helper::block(BlockWish::Attach(plan.clone()), Some(theirs.as_fd()));
        told.inspect_err(|_| server.disconnect_all()).map_err(failed)?;
        tracing::info!(volume = plan.name, device = %block_path(&plan.name).display(), "it is a block device");
        let (plan, has_ended) = (Mutex::new(plan), AtomicBool::new(false));
        let (pool, env) = (self.pool.clone(), self.env.clone());
        Ok(Arc::new(BlockVolume { pool, env, dataset, server, disk, plan, has_ended }))
    }
}

impl BlockVolume {
    /// Has the kernel send what programs have written, and keep nothing. Errors: it does not come to an end.
    fn forget(&self) -> Result<()> {
        let id = self.plan.lock().id;
        listen_helper::block(BlockWish::Forget(id), None).map_err(failed)
    }
}

impl Export for BlockVolume {
    fn dataset(&self) -> String {
        // no dataset can be called so
        format!("{}/@block", self.plan.lock().name)
    }

    fn serves(&self, dataset: &str) -> bool {
        self.plan.lock().name == dataset
    }

    fn place(&self) -> String {
        block_path(&self.plan.lock().name).display().to_string()
    }

    fn is_served(&self) -> bool {
        !self.has_ended.load(Ordering::SeqCst)
    }

    fn stop(&self, force: bool) -> Result<()> {
        let id = self.plan.lock().id;
        listen_helper::block(BlockWish::Detach { id, is_forced: force }, None).map_err(failed)?;
        self.has_ended.store(true, Ordering::SeqCst);
        self.server.disconnect_all();
        // its threads have the volume open
        wait_until(&self.env, || !self.server.has_clients())
    }

    fn renamed(&self, _: &str) {
        if let Err(error) = self.property_changed() {
            tracing::warn!(device = self.place(), "it does not follow its volume: {error}");
        }
    }

    /// It follows the name, size and mode of its volume.
    fn property_changed(&self) -> Result<()> {
        let view = self.pool.view();
        let subject = match view.dsl().name_of(self.dataset).and_then(|name| view.dsl().subject(&name)) {
            Ok(subject) => subject,
            // it goes with the next look at all
            Err(error) if error.kind() == Kind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut plan = self.plan.lock();
        let now = plan_of(&self.env, (&view, &subject), plan.id.dataset, &self.disk)?;
        if now != *plan {
            listen_helper::block(BlockWish::Change(now.clone()), None).map_err(failed)?;
            *plan = now;
        }
        Ok(())
    }

    fn freeze(&self) -> Result<()> {
        // what was written before is in the root that goes
        let forgotten = self.forget();
        self.server.freeze();
        forgotten
    }

    fn thaw(&self) -> Result<()> {
        self.server.thaw();
        // programs that use it see what is there by now, if not all of it
        if let Err(error) = self.property_changed().and_then(|()| self.forget()) {
            tracing::warn!(device = self.place(), "the kernel may show what was there before: {error}");
        }
        Ok(())
    }

    /// The device stays, and so does what the kernel keeps.
    fn hold(&self) -> Result<()> {
        self.server.freeze();
        Ok(())
    }

    fn go_on(&self) {
        self.server.thaw();
    }
}

impl Disks for NoDisks {
    fn names(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn find(&self, _: &str) -> Result<Option<Arc<dyn Disk>>> {
        Ok(None)
    }

    fn wait_resumed(&self) -> Result<()> {
        self.0.wait_resumed()
    }
}

fn plan_of(env: &Env, (view, subject): (&Pool, &Subject), dataset: Guid, disk: &VolumeHandle) -> Result<BlockPlan> {
    let volume = disk.now()?;
    let head = match subject.name().split_once('@') {
        Some((head, _)) => &view.dsl().subject(head)?,
        None => subject,
    };
    Ok(BlockPlan {
        id: BlockId { pool: view.guid(), dataset },
        name: subject.name().to_owned(),
        bytes: volume.size(),
        is_read_only: volume.is_read_only() || !volume.is_writable(),
        has_partitions: volmode(env, view, head)? != VOLMODE_DEV,
    })
}

/// How a volume is a block device. Errors: those of reading its properties.
fn volmode(env: &Env, view: &Pool, volume: &Subject) -> Result<u64> {
    let set = number(view, volume, Property::Volmode)?;
    Ok(if set == VOLMODE_DEFAULT { env.tunable(ZVOL_VOLMODE) } else { set })
}

fn failed(error: std::io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EBUSY) => Error::new(Kind::Busy, "dataset is busy"),
        Some(libc::ENODEV) => Error::new(Kind::Unsupported, "this kernel has no module nbd"),
        _ if error.kind() == std::io::ErrorKind::Unsupported => Error::new(Kind::Unsupported, "there is no helper"),
        _ => error.into(),
    }
}
