//! The server: connections of clients, and which disks they use.

use std::collections::HashMap;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Env, Mutex};
use export::{
    ClientCounters, ClientSocket, ConnectedClient, DataBudget, DiskServer, Gate, Parking, ServedClient, make_room,
};

use crate::connection::NbdConnection;
use crate::disk::{Disk, Disks};
use crate::handshake::{self, Agreed};
use crate::stream::ClientStream;
use crate::tls::Tls;
use crate::wire::Framing;

/// Serves disks to clients.
pub struct NbdServer {
    env: Env,
    disks: Arc<dyn Disks>,
    gate: Arc<Gate>,
    parking: Arc<Parking>,
    clients: Mutex<HashMap<u64, NbdClient>>,
    next: AtomicU64,
}

/// A client that is connected.
struct NbdClient {
    socket: ClientSocket,
    /// The disk that it uses, once it has chosen one.
    disk: Option<u64>,
    counters: Arc<ClientCounters>,
}

impl ConnectedClient for NbdClient {
    fn is_served(&self) -> bool {
        self.disk.is_some()
    }

    fn socket(&self) -> &ClientSocket {
        &self.socket
    }
}

impl NbdServer {
    /// Nobody is connected yet.
    pub fn new(env: Env, disks: Arc<dyn Disks>) -> Arc<NbdServer> {
        let gate = Arc::<Gate>::default();
        let waits = disks.clone();
        let parking = Parking::new(env.clone(), gate.clone(), move || waits.wait_resumed());
        let (clients, next) = (Mutex::default(), AtomicU64::new(0));
        Arc::new(NbdServer { env, disks, gate, parking, clients, next })
    }

    /// Serves a client on a thread of its own, until it leaves. It has to use TLS if there is any. One too many is turned
    /// away, or another that has not chosen a disk.
    pub fn serve(self: &Arc<Self>, socket: impl Into<ClientSocket>, tls: Option<Tls>) {
        let _ = self.begin(socket.into(), move |server, number, stream| server.agree(number, stream, tls.as_ref()));
    }

    /// Serves a client that has nothing to choose, as the kernel: its disk and all else are agreed on. False if it cannot
    /// be served.
    pub fn serve_agreed(self: &Arc<Self>, socket: impl Into<ClientSocket>, disk: Arc<dyn Disk>) -> bool {
        let agreed = Agreed { disk, framing: Framing::Simple, has_states: false };
        self.begin(socket.into(), move |server, number, stream| server.attend(number, stream, agreed, Arc::default()))
    }

    fn begin(
        self: &Arc<Self>,
        socket: ClientSocket,
        attend: impl FnOnce(&NbdServer, u64, ClientStream) + Send + 'static,
    ) -> bool {
        let Ok(kept) = socket.try_clone() else { return false };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        {
            let mut clients = self.clients.lock();
            if !make_room(&mut clients) {
                tracing::warn!("a client of NBD too many");
                return false;
            }
            clients.insert(number, NbdClient { socket: kept, disk: None, counters: Arc::default() });
        }
        let server = self.clone();
        let work = move || {
            match ClientStream::new(socket) {
                Ok(stream) => attend(&server, number, stream),
                Err(error) => tracing::debug!("a client of NBD has left: {error}"),
            }
            server.clients.lock().remove(&number);
        };
        let has_begun = self.env.spawn("nbd", work);
        if !has_begun {
            self.clients.lock().remove(&number);
        }
        has_begun
    }

    fn agree(&self, number: u64, stream: ClientStream, tls: Option<&Tls>) {
        // each has its own, so that one that does not go on holds up no other
        let budget = Arc::<DataBudget>::default();
        match handshake::shake_hands(&self.env, &stream, &*self.disks, tls, &budget) {
            Ok(Some(agreed)) => self.attend(number, stream, agreed, budget),
            Ok(None) => {}
            Err(error) => tracing::debug!("a client of NBD did not agree on anything: {error}"),
        }
    }

    fn attend(&self, number: u64, stream: ClientStream, agreed: Agreed, budget: Arc<DataBudget>) {
        let mut counters = Arc::<ClientCounters>::default();
        if let Some(client) = self.clients.lock().get_mut(&number) {
            client.disk = Some(agreed.disk.id());
            counters = client.counters.clone();
        }
        let parts = (self.gate.clone(), self.parking.clone(), budget, counters);
        match NbdConnection::new(self.env.clone(), stream, agreed, parts) {
            Ok(connection) => connection.run(),
            Err(error) => tracing::warn!("a client of NBD cannot be served: {error}"),
        }
    }

    /// The clients that use a disk, by its number.
    pub fn clients(&self) -> Vec<ServedClient<u64>> {
        let served = |(number, client): (&u64, &NbdClient)| {
            let (name, sums) = (client.socket.peer_name(), client.counters.sums());
            Some(ServedClient { number: *number, name, disk: client.disk?, sums })
        };
        self.clients.lock().iter().filter_map(served).collect()
    }

    /// Whether clients use a disk.
    pub fn is_in_use(&self, disk: u64) -> bool {
        self.clients.lock().values().any(|client| client.disk == Some(disk))
    }
}

impl DiskServer for NbdServer {
    fn has_clients(&self) -> bool {
        self.clients.lock().values().any(NbdClient::is_served)
    }

    fn disconnect_all(&self) {
        for client in self.clients.lock().values() {
            // it may have left already
            let _ = client.socket.shutdown(Shutdown::Both);
        }
    }

    fn freeze(&self) {
        self.gate.close();
    }

    fn thaw(&self) {
        self.gate.open();
    }
}
