//! The volumes of a pool for clients of NBD: one socket, at which those are to be had that ask for it.
//!
//! ```text
//!   RUN/nbd/tank.sock      only for the user of the pool's process
//!     export "tank/vm"     the volume of that name, if its property org.cenote:nbd is on
//! ```
//!
//! The socket is there from when the first volume has the property until the pool is exported. What has been connected
//! before the property is taken away stays connected.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::{Env, Error, Kind, Mutex, Result};
use dsl::Subject;
use dsl::property::DatasetKind;
use export::Export;
use nbd::{Disk, Disks, Server};
use pool::Pool;
use protocol::volumes::{NBD_PROPERTY, is_on, nbd_folder, nbd_socket};
use zvol::Zvol;

use crate::exports::Exports;
use crate::live::ServedPool;
use crate::volume_handle::VolumeHandle;
use crate::volume_tree::is_shown;
use crate::volumes::OpenVolumes;

/// How long a client may take to be gone, after it has left, and between looks.
const LEAVE_TIME: Duration = Duration::from_millis(500);
const LEAVE_PAUSE: Duration = Duration::from_millis(10);

/// What serves a pool's volumes to clients of NBD, if anything is to.
pub struct NbdExport {
    exports: Arc<Exports>,
    disks: Arc<PoolDisks>,
    env: Env,
    /// The folder where the processes of pools are found.
    run: PathBuf,
    listening: Mutex<Weak<Listening>>,
}

/// The volumes that have the property.
struct PoolDisks {
    pool: Arc<ServedPool>,
    volumes: Arc<OpenVolumes>,
}

struct Listening {
    pool: String,
    path: PathBuf,
    server: Arc<Server>,
    env: Env,
    has_ended: AtomicBool,
}

impl NbdExport {
    /// Nobody listens yet; the socket will be below `run`, the folder where the processes of pools are found.
    pub fn new(
        exports: Arc<Exports>,
        (pool, volumes): (Arc<ServedPool>, Arc<OpenVolumes>),
        env: Env,
        run: PathBuf,
    ) -> NbdExport {
        let disks = Arc::new(PoolDisks { pool, volumes });
        NbdExport { exports, disks, env, run, listening: Mutex::default() }
    }

    /// The property may have been set: listens if there is a volume that has it. This looks through all datasets. That
    /// nobody can listen keeps nobody from using the pool: it is logged.
    pub fn renew(&self) {
        let mut listening = self.listening.lock();
        if listening.upgrade().is_some_and(|listening| listening.is_served()) {
            return;
        }
        match self.disks.names() {
            Ok(names) if names.is_empty() => return,
            Ok(_) => {}
            Err(error) => return tracing::warn!("volumes are not served by NBD: {error}"),
        }
        match self.listen() {
            Ok(new) => {
                *listening = Arc::downgrade(&new);
                self.exports.add(new);
            }
            Err(error) => tracing::warn!("volumes are not served by NBD: {error}"),
        }
    }

    /// Errors: `Busy` if clients use a dataset.
    pub fn check_unused(&self, dataset: u64) -> Result<()> {
        let Some(listening) = self.listening.lock().upgrade() else { return Ok(()) };
        listening.wait_until(|server| !server.is_in_use(dataset))
    }

    fn listen(&self) -> Result<Arc<Listening>> {
        let pool = self.disks.pool.view().name().to_owned();
        let path = nbd_socket(&self.run, &pool);
        DirBuilder::new().recursive(true).mode(0o755).create(nbd_folder(&self.run))?;
        // that of a process that was killed: this one has the lock of the pool
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(error.into());
        }
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        let server = Server::new(self.env.clone(), self.disks.clone());
        let (env, has_ended) = (self.env.clone(), AtomicBool::new(false));
        let listening = Arc::new(Listening { pool, path, server, env, has_ended });
        let weak = Arc::downgrade(&listening);
        let accept = move || {
            for stream in listener.incoming() {
                let Some(listening) = weak.upgrade().filter(|listening| listening.is_served()) else { return };
                match stream {
                    Ok(stream) => listening.server.serve(stream),
                    Err(error) => {
                        tracing::warn!("a client of NBD could not connect: {error}");
                        listening.env.pause(LEAVE_PAUSE);
                    }
                }
            }
        };
        if !self.env.spawn("nbd-accept", accept) {
            return Err(Error::new(Kind::Io, "the system gives no more threads"));
        }
        tracing::info!(socket = %listening.path.display(), "volumes are served by NBD");
        Ok(listening)
    }
}

impl Listening {
    /// Errors: `Busy` if it is not so within a short time.
    fn wait_until(&self, is_so: impl Fn(&Server) -> bool) -> Result<()> {
        let began = self.env.ticks_ns();
        while !is_so(&self.server) {
            if self.env.ticks_ns().saturating_sub(began) > LEAVE_TIME.as_nanos() as u64 {
                return Err(Error::new(Kind::Busy, "dataset is busy"));
            }
            self.env.pause(LEAVE_PAUSE);
        }
        Ok(())
    }
}

impl Export for Listening {
    fn dataset(&self) -> String {
        // no dataset can be called so
        format!("{}/@nbd", self.pool)
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn is_served(&self) -> bool {
        !self.has_ended.load(Ordering::SeqCst)
    }

    fn serves(&self, dataset: &str) -> bool {
        dataset.split('/').next() == Some(&self.pool)
    }

    fn stop(&self, force: bool) -> Result<()> {
        if force {
            self.server.disconnect_all();
        }
        self.wait_until(|server| !server.has_clients())?;
        self.has_ended.store(true, Ordering::SeqCst);
        // for the thread that waits for clients to see it
        let _ = std::os::unix::net::UnixStream::connect(&self.path);
        let _ = fs::remove_file(&self.path);
        Ok(())
    }

    fn renamed(&self, _: &str) {}

    fn property_changed(&self) -> Result<()> {
        Ok(())
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

impl Disks for PoolDisks {
    fn names(&self) -> Result<Vec<String>> {
        let view = self.pool.view();
        let (mut names, mut entered) = (Vec::new(), HashSet::new());
        let mut waiting = vec![view.dsl().root_subject()?];
        while let Some(subject) = waiting.pop() {
            // in a damaged tree, one might come by again and again
            if !entered.insert(subject.dir().id) {
                continue;
            }
            if subject.kind() == DatasetKind::FileSystem {
                waiting.extend(view.dsl().subjects_below(&subject)?.into_iter().flatten());
            } else if is_offered(&view, &subject)? {
                names.push(subject.name().to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn find(&self, name: &str) -> Result<Option<Arc<dyn Disk>>> {
        let view = self.pool.view();
        let subject = match view.dsl().subject(name) {
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Invalid | Kind::TooLong) => return Ok(None),
            subject => subject?,
        };
        let Some(dataset) = subject.dataset().filter(|_| is_offered(&view, &subject).unwrap_or(false)) else {
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
        self.dataset()
    }

    fn volume(&self) -> Result<Arc<Zvol>> {
        self.now()
    }
}

/// Whether a volume, or a snapshot of one, is to be had by NBD.
fn is_offered(view: &Pool, subject: &Subject) -> Result<bool> {
    let property = subject.levels().find_user(NBD_PROPERTY).map(|sourced| sourced.value);
    let is_on = match property {
        Some(dsl::PropertyValue::Text(text)) => is_on(&text),
        _ => false,
    };
    Ok(is_on && is_shown(view, subject)?)
}
