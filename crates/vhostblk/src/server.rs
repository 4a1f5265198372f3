//! The server of one volume: the monitor that is connected.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use base::{Condvar, Env, Error, Kind, Mutex, Result};
use export::{DiskServer, Gate, Parking, ServedClient};

use crate::disk::VhostSource;
use crate::session::VhostSession;

/// How long a monitor waits for the one before it to be gone, as when a machine starts again.
const PATIENCE: Duration = Duration::from_secs(5);
/// Monitors that wait so.
const WAITING_MAX: usize = 4;

/// Serves a volume to one monitor at a time.
pub struct VhostServer {
    env: Env,
    /// A number that no other process has, nor another volume.
    life: u64,
    source: Arc<dyn VhostSource>,
    gate: Arc<Gate>,
    parking: Arc<Parking>,
    current: Mutex<Option<Arc<VhostSession>>>,
    left: Condvar,
    waiting: AtomicUsize,
    next: AtomicU64,
}

impl VhostServer {
    /// Nobody is connected yet.
    pub fn new(env: Env, source: Arc<dyn VhostSource>) -> Arc<VhostServer> {
        let gate = Arc::<Gate>::default();
        let waits = source.clone();
        let parking = Parking::new(env.clone(), gate.clone(), move || waits.wait_resumed());
        let (current, left, waiting) = (Mutex::default(), Condvar::default(), AtomicUsize::new(0));
        let next = AtomicU64::new(0);
        let life = env.random();
        Arc::new(VhostServer { env, life, source, gate, parking, current, left, waiting, next })
    }

    /// Serves a monitor on a thread of its own, until it leaves. One is turned away if another stays.
    pub fn serve(self: &Arc<Self>, socket: UnixStream) {
        if self.waiting.fetch_add(1, Ordering::SeqCst) >= WAITING_MAX {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return tracing::warn!("a virtual machine too many for one volume");
        }
        let server = self.clone();
        let work = move || {
            let begun = server.begin(socket);
            server.waiting.fetch_sub(1, Ordering::SeqCst);
            let ended = begun.and_then(|session| {
                let ended = session.run();
                *server.current.lock() = None;
                server.left.notify_all();
                ended
            });
            if let Err(error) = ended {
                tracing::warn!("a virtual machine is not served: {error}");
            }
        };
        if !self.env.spawn("vhost", work) {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Errors: `Busy` if another monitor stays; those of opening the volume.
    fn begin(&self, socket: UnixStream) -> Result<Arc<VhostSession>> {
        let current = self.current.lock();
        let mut current = self.left.wait_timeout_while(current, PATIENCE, |current| current.is_some());
        if current.is_some() {
            return Err(Error::new(Kind::Busy, "another one has the volume"));
        }
        let parts = (self.gate.clone(), self.parking.clone());
        let (life, number) = ((self.env.clone(), self.life), self.next.fetch_add(1, Ordering::Relaxed));
        let session = VhostSession::new(life, socket, self.source.open()?, parts, number)?;
        *current = Some(session.clone());
        Ok(session)
    }

    /// The monitor that is connected.
    pub fn client(&self) -> Option<ServedClient<()>> {
        self.current.lock().as_ref().map(|session| session.client())
    }

    /// The volume may have another size. Errors: those of reading it.
    pub fn changed(&self) -> Result<()> {
        let current = self.current.lock().clone();
        current.map_or(Ok(()), |session| session.changed())
    }
}

impl DiskServer for VhostServer {
    fn has_clients(&self) -> bool {
        self.current.lock().is_some()
    }

    fn disconnect_all(&self) {
        if let Some(session) = &*self.current.lock() {
            session.cut_off();
        }
    }

    fn freeze(&self) {
        self.gate.close();
    }

    fn thaw(&self) {
        self.gate.open();
    }
}
