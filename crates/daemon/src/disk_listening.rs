//! A server of a pool's volumes that listens: one export for all of them.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::{Env, Error, Kind, Result};
use export::{DiskServer, Export};
use rustix::net::{Shutdown, shutdown};

use crate::network_door::NetworkDoor;

/// How long a client may take to be gone, after it has left, and between looks.
const LEAVE_TIME: Duration = Duration::from_millis(500);
const LEAVE_PAUSE: Duration = Duration::from_millis(10);

/// Volumes of a pool that clients of one protocol can have.
pub(crate) struct DiskListening<S> {
    /// Of the protocol, as it is in URIs.
    pub(crate) protocol: &'static str,
    pub(crate) pool: String,
    pub(crate) server: Arc<S>,
    pub(crate) door: NetworkDoor,
    /// Where clients read which addresses of the network there are.
    pub(crate) addresses: PathBuf,
    /// A socket of this machine, and where it is, if there is one beside them.
    pub(crate) socket: Option<(PathBuf, UnixListener)>,
    pub(crate) env: Env,
    pub(crate) has_ended: AtomicBool,
}

impl<S: DiskServer> DiskListening<S> {
    /// Listens at these addresses and no others; clients read them with `prefix` before each. Errors: where it cannot.
    pub(crate) fn listen_at(&self, addresses: &[SocketAddr], prefix: &str) -> Result<()> {
        let renewed = self.door.renew(addresses);
        let mut lines = String::new();
        for address in self.door.addresses() {
            // writing to a string does not fail
            let _ = writeln!(lines, "{prefix}{address}");
        }
        match lines.is_empty() {
            true => drop(fs::remove_file(&self.addresses)),
            false => fs::write(&self.addresses, lines)?,
        }
        renewed
    }

    /// Errors: `Busy` if it is not so within a short time.
    pub(crate) fn wait_until(&self, is_so: impl Fn(&S) -> bool) -> Result<()> {
        wait_until(&self.env, || is_so(&self.server))
    }
}

/// Errors: `Busy` if it is not so within a short time.
pub(crate) fn wait_until(env: &Env, is_so: impl Fn() -> bool) -> Result<()> {
    let began = env.ticks_ns();
    while !is_so() {
        if env.ticks_ns().saturating_sub(began) > LEAVE_TIME.as_nanos() as u64 {
            return Err(Error::new(Kind::Busy, "dataset is busy"));
        }
        env.pause(LEAVE_PAUSE);
    }
    Ok(())
}

impl<S: DiskServer> Export for DiskListening<S> {
    fn dataset(&self) -> String {
        // no dataset can be called so
        format!("{}/@{}", self.pool, self.protocol)
    }

    fn place(&self) -> String {
        match (&self.socket, self.door.addresses().first()) {
            (Some((path, _)), _) => path.display().to_string(),
            (None, Some(address)) => format!("{}://{address}", self.protocol),
            (None, None) => self.protocol.to_owned(),
        }
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
        // those that have come, and use nothing
        self.server.disconnect_all();
        if let Some((path, listener)) = &self.socket {
            // wakes the thread that waits for clients
            let _ = shutdown(listener, Shutdown::Both);
            let _ = fs::remove_file(path);
        }
        self.listen_at(&[], "")
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
