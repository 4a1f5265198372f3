//! The addresses of the network at which an export takes clients.
//!
//! Properties of the pool's root file system name them, as far as they are set there, and not received. A pool may be a
//! stranger's: what another host set last opens no socket here, until somebody sets it anew. A host is known by its id,
//! or, as many have none, by a mark that it leaves beside such a property: a sum over what it says and machine-id(5), which is secret.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::{Env, Error, Kind, Mutex, Result};
use pool::Pool;
use rustix::net::{Shutdown, shutdown};
use sha2::{Digest, Sha256};

use dsl::{PropertySource, PropertyValue, Subject};

use crate::listen_helper::ListenHelper;

/// What is between tries when a client cannot be taken, as when too many files are open.
const PAUSE: Duration = Duration::from_millis(100);

/// What only this machine knows.
const MACHINE_ID: &str = "/etc/machine-id";

/// Takes a client.
pub type TakeClient = dyn Fn(TcpStream) + Send + Sync;

/// Whether, and by which helper, the exports of a pool listen at addresses of the network.
pub struct NetworkAccess {
    helper: ListenHelper,
    /// Whether properties were set on this machine.
    is_trusted: AtomicBool,
}

impl NetworkAccess {
    /// Of a pool that this machine made, or had last, if `is_trusted`.
    pub fn new(helper: ListenHelper, is_trusted: bool) -> NetworkAccess {
        NetworkAccess { helper, is_trusted: AtomicBool::new(is_trusted) }
    }

    fn is_trusted(&self, view: &Pool, root: &Subject, (name, text): (&str, &str)) -> bool {
        let is_marked = || {
            let Some((property, mark)) = mark_for(view, name, text) else { return false };
            root.levels().find_user(&property).is_some_and(|sourced| sourced.value == PropertyValue::Text(mark))
        };
        self.is_trusted.load(Ordering::SeqCst) || is_marked()
    }

    /// What a property of the root file system says here, if it counts. Errors: those of reading it.
    pub fn property(&self, view: &Pool, name: &str) -> Result<Option<String>> {
        let root = view.dsl().root_subject()?;
        let sourced = root.levels().find_user(name);
        let text = sourced.and_then(|sourced| match (sourced.value, sourced.source) {
            (PropertyValue::Text(text), PropertySource::Local) => Some(text),
            _ => None,
        });
        if text.as_ref().is_some_and(|text| !self.is_trusted(view, &root, (name, text))) {
            tracing::warn!(property = name, "not followed, as another host had this pool last: set it anew");
            return Ok(None);
        }
        Ok(text.filter(|text| !is_none(text)))
    }

    /// Looks whether an export may listen at what a property of that dataset is to say, by those of the addresses that
    /// are not open yet; from now on such properties count here. Errors: `Invalid` of other datasets than the root file
    /// system; those of `plan`; as of [`ListenHelper::listen`].
    pub fn try_property(
        &self,
        root: &str,
        (dataset, property): (&str, &str),
        plan: impl FnOnce() -> Result<Vec<SocketAddr>>,
        open: &[SocketAddr],
    ) -> Result<()> {
        if dataset != root {
            return Err(Error::new(Kind::Invalid, format!("'{property}' is set on the pool's root file system only")));
        }
        let was_trusted = self.is_trusted.swap(true, Ordering::SeqCst);
        let tried = plan().and_then(|addresses| {
            let mut new = addresses.iter().filter(|address| !open.contains(address));
            new.try_for_each(|address| self.helper.listen(*address).map(drop))
        });
        if tried.is_err() {
            self.is_trusted.store(was_trusted, Ordering::SeqCst);
        }
        tried
    }
}

/// The property that tells which machine has set another to that text, and what it says; none without a machine-id.
pub fn mark_for(view: &Pool, name: &str, text: &str) -> Option<(String, String)> {
    Some((format!("{name}_mark"), mark_of(MACHINE_ID, &format!("{:016x} {name} {text}", view.guid()))?))
}

/// The mark of a machine under something.
fn mark_of(file: &str, under: &str) -> Option<String> {
    let id = std::fs::read_to_string(file).ok().filter(|id| id.trim().len() >= 32)?;
    let sum = Sha256::digest(format!("cenote listens {} {under}", id.trim()));
    Some(sum.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")))
}

/// Whether a property says that there is nothing.
pub fn is_none(text: &str) -> bool {
    text.is_empty() || text == "none"
}

/// Addresses with ports, with commas between. Errors: `Invalid`, with the one that is none.
pub fn addresses_in(text: &str) -> Result<Vec<SocketAddr>> {
    if is_none(text) {
        return Ok(Vec::new());
    }
    let one = |text: &str| {
        let address = text.trim().parse::<SocketAddr>().ok().filter(|address| address.port() != 0);
        address
            .ok_or_else(|| Error::new(Kind::Invalid, format!("'{text}' is no address with a port, as 127.0.0.1:10809")))
    };
    text.split(',').map(one).collect()
}

/// Listens at addresses that come and go.
pub struct NetworkDoor {
    access: Arc<NetworkAccess>,
    env: Env,
    take: Arc<TakeClient>,
    open: Mutex<BTreeMap<SocketAddr, Arc<OpenAddress>>>,
}

struct OpenAddress {
    listener: TcpListener,
    has_ended: AtomicBool,
}

impl NetworkDoor {
    /// Listens nowhere yet; clients will be given to `take`.
    pub fn new(access: Arc<NetworkAccess>, env: Env, take: impl Fn(TcpStream) + Send + Sync + 'static) -> NetworkDoor {
        NetworkDoor { access, env, take: Arc::new(take), open: Mutex::default() }
    }

    /// Listens at these addresses, and at no other. Errors: of the first at which that cannot be; the others are as is
    /// said.
    pub fn renew(&self, addresses: &[SocketAddr]) -> Result<()> {
        let mut open = self.open.lock();
        open.retain(|address, opened| {
            let stays = addresses.contains(address);
            if !stays {
                opened.close();
            }
            stays
        });
        let mut failed = Ok(());
        for address in addresses {
            if open.contains_key(address) {
                continue;
            }
            match self.open(*address) {
                Ok(opened) => drop(open.insert(*address, opened)),
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        failed
    }

    /// Where it listens.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.open.lock().keys().copied().collect()
    }

    fn open(&self, address: SocketAddr) -> Result<Arc<OpenAddress>> {
        let listener = self.access.helper.listen(address)?;
        let opened = Arc::new(OpenAddress { listener, has_ended: AtomicBool::new(false) });
        let (accepting, take, env) = (opened.clone(), self.take.clone(), self.env.clone());
        let accept = move || {
            while !accepting.has_ended.load(Ordering::SeqCst) {
                match accepting.listener.accept() {
                    Ok((client, from)) if !accepting.has_ended.load(Ordering::SeqCst) => {
                        tracing::debug!(%from, "a client by network");
                        take(client);
                    }
                    Ok(_) => {}
                    Err(error) if !accepting.has_ended.load(Ordering::SeqCst) => {
                        tracing::warn!(%address, "a client could not connect: {error}");
                        env.pause(PAUSE);
                    }
                    Err(_) => {}
                }
            }
        };
        match self.env.spawn("accept-network", accept) {
            true => Ok(opened),
            false => Err(Error::new(Kind::Io, "the system gives no more threads")),
        }
    }
}

impl Drop for NetworkDoor {
    fn drop(&mut self) {
        self.open.lock().values().for_each(|opened| opened.close());
    }
}

impl OpenAddress {
    fn close(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
        // wakes the thread that waits for clients
        let _ = shutdown(&self.listener, Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::listen_helper::tests::helper;

    #[test]
    fn addresses_come_and_go() {
        let (clients, came) = mpsc::channel();
        let access = Arc::new(NetworkAccess::new(helper(), true));
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (first, second) = (free(), free());
        let door = NetworkDoor::new(access, Env::real(), move |client| drop(clients.send(client)));
        door.renew(&[first]).unwrap();
        TcpStream::connect(first).unwrap();
        came.recv().unwrap();
        door.renew(&[second]).unwrap();
        assert_eq!(door.addresses(), [second]);
        assert!(TcpStream::connect(first).is_err());
        TcpStream::connect(second).unwrap();
        came.recv().unwrap();
        drop(door);
        assert!(TcpStream::connect(second).is_err());
    }

    /// An attempt that fails makes nothing count that another host has set.
    #[test]
    fn properties_are_tried() {
        let access = NetworkAccess::new(helper(), false);
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken_at = taken.local_addr().unwrap();
        let set = |dataset, open: &[SocketAddr]| {
            let done = access.try_property("tank", (dataset, "listen"), || Ok(vec![taken_at]), open);
            (done.is_ok(), access.is_trusted.load(Ordering::SeqCst))
        };
        assert_eq!(set("tank/fs", &[taken_at]), (false, false));
        assert_eq!(set("tank", &[]), (false, false));
        assert_eq!(set("tank", &[taken_at]), (true, true));
        assert_eq!(set("tank", &[]), (false, true));
    }

    #[test]
    fn marks_are_of_a_machine() {
        let dir = tempfile::tempdir().unwrap();
        let id = |name: &str, text: &str| {
            let file = dir.path().join(name);
            std::fs::write(&file, text).unwrap();
            file.to_str().unwrap().to_owned()
        };
        let (a, b) = (id("a", &"3".repeat(32)), id("b", &format!("{}\n", "4".repeat(32))));
        assert_eq!(mark_of(&a, "x").unwrap().len(), 64);
        assert!(mark_of(&a, "x") == mark_of(&a, "x") && mark_of(&a, "x") != mark_of(&a, "y"));
        assert!(mark_of(&a, "x") != mark_of(&b, "x"));
        assert_eq!((mark_of(&id("none", "uninitialized\n"), "x"), mark_of("/none", "x")), (None, None));
    }

    #[test]
    fn addresses_are_written_with_ports() {
        assert_eq!(addresses_in("127.0.0.1:1, [::1]:2").unwrap().len(), 2);
        assert!(addresses_in("none").unwrap().is_empty());
        for wrong in ["localhost:1", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:1,", "on"] {
            assert!(addresses_in(wrong).is_err(), "{wrong}");
        }
    }
}
