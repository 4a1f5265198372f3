//! The server: connections of initiators, and the units that they use.

use std::collections::HashMap;
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use base::{Env, Mutex};
use export::{ClientCounters, ClientSocket, ConnectedClient, DiskServer, Gate, Parking, ServedClient, make_room};

use crate::connection::IscsiConnection;
use crate::discovery;
use crate::login::{Sessions, log_in};
use crate::parts::ServerParts;
use crate::scsi::LogicalUnit;
use crate::target::{Lun, Targets};

/// Serves disks to initiators.
pub struct IscsiServer {
    shared: ServerParts,
    sessions: Arc<SessionTable>,
    next: AtomicU64,
}

/// Which initiators are connected, and with what.
#[derive(Default)]
struct SessionTable(Mutex<SessionTableState>);

#[derive(Default)]
struct SessionTableState {
    connected: HashMap<u64, ConnectedInitiator>,
    /// Units in use, by the guids of their disks.
    units: HashMap<u64, Weak<LogicalUnit>>,
    last_session: u16,
}

/// An initiator that is connected.
struct ConnectedInitiator {
    socket: ClientSocket,
    session: Option<ConnectedSession>,
    counters: Arc<ClientCounters>,
}

/// Its session, once it has logged in.
struct ConnectedSession {
    number: u16,
    port: String,
    /// The guid of its disk; none for discovery.
    unit: Option<u64>,
}

/// The sessions, for the login of one connection.
struct LoginOf<'a> {
    table: &'a SessionTable,
    number: u64,
}

impl ConnectedClient for ConnectedInitiator {
    /// Discovery, which is for everybody, makes room as those do that have not logged in.
    fn is_served(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.unit.is_some())
    }

    fn socket(&self) -> &ClientSocket {
        &self.socket
    }
}

impl IscsiServer {
    /// Nobody is connected yet.
    pub fn new(env: Env, targets: Arc<dyn Targets>) -> Arc<IscsiServer> {
        let gate = Arc::<Gate>::default();
        let waits = targets.clone();
        let parking = Parking::new(env.clone(), gate.clone(), move || waits.wait_resumed());
        let shared = ServerParts { env, targets, gate, parking, looking: Arc::default(), asked: Arc::default() };
        Arc::new(IscsiServer { shared, sessions: Arc::default(), next: AtomicU64::new(0) })
    }

    /// Serves an initiator on a thread of its own, until it leaves. One too many is turned away, or
    /// another that has not logged in.
    pub fn serve(self: &Arc<Self>, socket: impl Into<ClientSocket>) {
        let socket = socket.into();
        let Ok(kept) = socket.try_clone() else { return };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        {
            let connected = &mut self.sessions.0.lock().connected;
            if !make_room(connected) {
                return tracing::warn!("an initiator of iSCSI too many");
            }
            connected.insert(number, ConnectedInitiator { socket: kept, session: None, counters: Arc::default() });
        }
        let server = self.clone();
        let work = move || {
            server.attend(number, socket);
            server.sessions.0.lock().connected.remove(&number);
        };
        if !self.shared.env.spawn("iscsi", work) {
            self.sessions.0.lock().connected.remove(&number);
        }
    }

    fn attend(&self, number: u64, socket: ClientSocket) {
        let login = LoginOf { table: &self.sessions, number };
        let agreed = socket
            .send_at_once()
            .and_then(|()| socket.notice_silence())
            .map_err(Into::into)
            .and_then(|()| log_in(&self.shared, &socket, &login));
        let agreed = match agreed {
            Ok(Some(agreed)) => agreed,
            Ok(None) => return,
            Err(error) => return tracing::debug!("an initiator of iSCSI did not log in: {error}"),
        };
        let Some(unit) = agreed.unit.clone() else {
            if let Err(error) = discovery::serve(&self.shared, &socket, agreed) {
                tracing::debug!("an initiator of iSCSI is cut off in discovery: {error}");
            }
            // other handles of the socket keep it open
            let _ = socket.shutdown(Shutdown::Both);
            return;
        };
        let counters = self.sessions.0.lock().connected.get(&number).map(|one| one.counters.clone());
        match IscsiConnection::new(self.shared.clone(), socket, agreed, unit, counters.unwrap_or_default()) {
            Ok(connection) => connection.run(),
            Err(error) => tracing::warn!("an initiator of iSCSI cannot be served: {error}"),
        }
    }

    /// The initiators that use a disk, by its name: each by its own name and its address.
    pub fn clients(&self) -> Vec<ServedClient<String>> {
        let table = self.sessions.0.lock();
        let served = |(number, initiator): (&u64, &ConnectedInitiator)| {
            let session = initiator.session.as_ref()?;
            let unit = table.units.get(&session.unit?).and_then(Weak::upgrade)?;
            // a port is the name of the initiator, and the number of its session
            let own = session.port.rsplit_once(",i,").map_or("", |(name, _)| name);
            let (name, sums) = (format!("{own} {}", initiator.socket.peer_name()), initiator.counters.sums());
            Some((ServedClient { number: *number, name, disk: (), sums }, unit))
        };
        let found: Vec<_> = table.connected.iter().filter_map(served).collect();
        // names are looked up in the pool, whose locks are none of these
        drop(table);
        let named = |(ServedClient { number, name, sums, .. }, unit): (ServedClient<()>, Arc<LogicalUnit>)| {
            ServedClient { number, name, disk: unit.lun.volume_name(), sums }
        };
        found.into_iter().map(named).collect()
    }

    /// Whether initiators use the disk of that guid.
    pub fn is_in_use(&self, guid: u64) -> bool {
        self.sessions.has_session(|session| session.unit == Some(guid))
    }
}

impl DiskServer for IscsiServer {
    fn has_clients(&self) -> bool {
        self.sessions.has_session(|session| session.unit.is_some())
    }

    fn disconnect_all(&self) {
        for initiator in self.sessions.0.lock().connected.values() {
            // it may have left already
            let _ = initiator.socket.shutdown(Shutdown::Both);
        }
    }

    fn freeze(&self) {
        self.shared.gate.close();
    }

    fn thaw(&self) {
        self.shared.gate.open();
    }
}

impl SessionTable {
    fn has_session(&self, is_meant: impl Fn(&ConnectedSession) -> bool) -> bool {
        self.0.lock().connected.values().filter_map(|initiator| initiator.session.as_ref()).any(is_meant)
    }
}

impl Sessions for LoginOf<'_> {
    fn unit_of(&self, lun: Arc<dyn Lun>) -> Arc<LogicalUnit> {
        let units = &mut self.table.0.lock().units;
        units.retain(|_, unit| unit.strong_count() > 0);
        let guid = lun.guid();
        if let Some(unit) = units.get(&guid).and_then(Weak::upgrade) {
            return unit;
        }
        let unit = Arc::new(LogicalUnit::new(lun));
        units.insert(guid, Arc::downgrade(&unit));
        unit
    }

    fn begin(&self, port: &str, unit: Option<&LogicalUnit>) -> u16 {
        // nothing that it left is done behind what its successor does
        if let Some(unit) = unit {
            unit.end(port);
        }
        let unit = unit.map(|unit| unit.lun.guid());
        let mut table = self.table.0.lock();
        // not of discovery, where everybody may give any name
        let is_same = |session: &ConnectedSession| session.port == port && session.unit == unit && unit.is_some();
        for initiator in table.connected.values() {
            if initiator.session.as_ref().is_some_and(is_same) {
                // it may have left already
                let _ = initiator.socket.shutdown(Shutdown::Both);
            }
        }
        loop {
            table.last_session = table.last_session.wrapping_add(1);
            let number = table.last_session;
            let is_used =
                |one: &ConnectedInitiator| one.session.as_ref().is_some_and(|session| session.number == number);
            if number != 0 && !table.connected.values().any(is_used) {
                if let Some(initiator) = table.connected.get_mut(&self.number) {
                    initiator.session = Some(ConnectedSession { number, port: port.to_owned(), unit });
                }
                return number;
            }
        }
    }

    fn has(&self, session: u16) -> bool {
        self.table.has_session(|one| one.number == session)
    }
}
