//! Room for the connections of clients: those that say nothing keep no others out.

use std::collections::HashMap;
use std::net::Shutdown;

use crate::ClientSocket;

/// Clients at a time that are served.
const SERVED_MAX: usize = 128;
/// Others, which have not agreed on anything yet.
const UNDECIDED_MAX: usize = 32;

/// A client that is connected.
pub trait ConnectedClient {
    /// Whether it has agreed on what it is served.
    fn is_served(&self) -> bool;
    /// Its connection.
    fn socket(&self) -> &ClientSocket;
}

/// Makes room for one more client among those that are connected, by numbers in the order in which they came: the one that
/// has been there for longest without having agreed on anything goes if need be. False if too many are served.
#[must_use]
pub fn make_room<C: ConnectedClient>(clients: &mut HashMap<u64, C>) -> bool {
    let undecided: Vec<u64> =
        clients.iter().filter(|(_, client)| !client.is_served()).map(|(number, _)| *number).collect();
    if clients.len() - undecided.len() >= SERVED_MAX {
        return false;
    }
    if undecided.len() >= UNDECIDED_MAX
        && let Some(oldest) = undecided.iter().min().and_then(|oldest| clients.remove(oldest))
    {
        tracing::debug!("a client that has not agreed on anything makes room for another one");
        // it may have left already
        let _ = oldest.socket().shutdown(Shutdown::Both);
    }
    true
}
