//! The addresses of the network at which an export takes clients.
//!
//! Properties of the pool's root file system name them, as far as they were set on this host ([`HostRule`]): what a stranger's
//! pool says opens no socket here.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::{Env, Error, Kind, Mutex, Result};
use pool::Pool;
use rustix::net::{Shutdown, shutdown};

use dsl::PropertyValue;

use crate::host_rule::HostRule;
use crate::listen_helper::ListenHelper;

/// What is between tries when a client cannot be taken, as when too many files are open.
const PAUSE: Duration = Duration::from_millis(100);

/// Takes a client.
pub type TakeClient = dyn Fn(TcpStream) + Send + Sync;

/// Whether, and by which helper, the exports of a pool listen at addresses of the network.
pub struct NetworkAccess {
    helper: ListenHelper,
    rule: HostRule,
}

impl NetworkAccess {
    /// Of a pool with that rule.
    pub fn new(helper: ListenHelper, rule: HostRule) -> NetworkAccess {
        NetworkAccess { helper, rule }
    }

    /// What counts as set here.
    pub fn rule(&self) -> &HostRule {
        &self.rule
    }

    /// What a property of the root file system says here, if it counts. Errors: those of reading it.
    pub fn property(&self, view: &Pool, name: &str) -> Result<Option<String>> {
        let root = view.dsl().root_subject()?;
        let text = self.rule.value(root.levels(), name).and_then(|value| match value {
            PropertyValue::Text(text) => Some(text),
            PropertyValue::Number(_) => None,
        });
        if text.is_none() && root.levels().find_user(name).is_some() {
            tracing::warn!(property = name, "not followed, as it was not set on this host: set it anew");
        }
        Ok(text.filter(|text| !is_none(text)))
    }

    /// Looks whether an export may listen at what a property of that dataset is to say, by those of the addresses that
    /// are not open yet. Errors: `Invalid` of other datasets than the root file
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
        let addresses = plan()?;
        let mut new = addresses.iter().filter(|address| !open.contains(address));
        new.try_for_each(|address| self.helper.listen(*address).map(drop))
    }
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
        let access = Arc::new(NetworkAccess::new(helper(), HostRule::plain(true)));
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

    #[test]
    fn properties_are_tried() {
        let access = NetworkAccess::new(helper(), HostRule::plain(false));
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken_at = taken.local_addr().unwrap();
        let set = |dataset, open: &[SocketAddr]| {
            access.try_property("tank", (dataset, "listen"), || Ok(vec![taken_at]), open).is_ok()
        };
        assert!(!set("tank/fs", &[taken_at]) && !set("tank", &[]) && set("tank", &[taken_at]));
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
