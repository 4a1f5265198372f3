//! The clients that are served, and which is hung up on when there are too many.
//!
//! ```text
//!   connected ──▶ asking ──▶ answered ──▶ taking it ──▶ gone
//!                   │ 1.                      │ 2.
//!                   └──── hung up on, the oldest first ────  when all places are taken
//! ```
//!
//! So a client that sends half a request, or does not take its answer, keeps none out. One that is answered is left in
//! peace: the answer costs something, and comes to an end by itself.

use std::sync::Arc;

use base::{Mutex, MutexGuard};

use super::http::Conn;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientStage {
    Asking,
    Answered,
    Taking,
}

struct Client {
    number: u64,
    stage: ClientStage,
    /// Another handle of his connection.
    conn: Box<dyn Conn>,
}

/// All clients, in the order in which they came.
#[derive(Default)]
struct ClientList {
    clients: Vec<Client>,
    next: u64,
}

/// The clients there are at a time, up to a bound.
#[derive(Clone)]
pub struct Clients {
    all: Arc<Mutex<ClientList>>,
    max: usize,
}

/// One of them; dropping it makes room.
pub struct ClientSlot {
    clients: Clients,
    number: u64,
}

impl Clients {
    pub fn new(max: usize) -> Clients {
        Clients { all: Arc::default(), max }
    }

    /// Takes one more, in the place of another if need be. `None` if all are being answered.
    pub fn admit(&self, conn: &dyn Conn) -> Option<ClientSlot> {
        // two handles, or none: a client that cannot be hung up on is not served
        let conn = conn.another().ok()?;
        let mut all = self.lock();
        if all.clients.len() >= self.max {
            let oldest = |stage| all.clients.iter().position(|client| client.stage == stage);
            let loser = oldest(ClientStage::Asking).or_else(|| oldest(ClientStage::Taking))?;
            // it may be gone already
            drop(all.clients.remove(loser).conn.hang_up());
        }
        let number = all.next;
        all.next += 1;
        all.clients.push(Client { number, stage: ClientStage::Asking, conn });
        Some(ClientSlot { clients: self.clone(), number })
    }

    fn lock(&self) -> MutexGuard<'_, ClientList> {
        self.all.lock()
    }
}

impl ClientSlot {
    /// Finds an answer, undisturbed. `None` if it has been hung up on.
    pub fn answer<T>(&self, find: impl FnOnce() -> T) -> Option<T> {
        self.come_to(ClientStage::Answered).then(|| {
            let answer = find();
            self.come_to(ClientStage::Taking);
            answer
        })
    }

    /// False if it is not there any more.
    fn come_to(&self, stage: ClientStage) -> bool {
        let mut all = self.clients.lock();
        let own = all.clients.iter_mut().find(|client| client.number == self.number);
        own.map(|client| client.stage = stage).is_some()
    }
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        self.clients.lock().clients.retain(|client| client.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_oldest_who_asks_goes_first_and_who_is_answered_stays() {
        let clients = Clients::new(3);
        let pairs: Vec<_> = (0..6).map(|_| UnixStream::pair().unwrap()).collect();
        let admit = |at: usize| clients.admit(&pairs[at].1);
        let has_ended = |at: usize| {
            let mut conn = &pairs[at].0;
            conn.set_nonblocking(true).unwrap();
            matches!(conn.read(&mut [0]), Ok(0))
        };
        let (first, second, third) = (admit(0).unwrap(), admit(1).unwrap(), admit(2).unwrap());
        first.answer(|| ()).unwrap();
        second.answer(|| {
            let fourth = admit(3).unwrap();
            assert!(has_ended(2) && !has_ended(0), "the third asked, the first takes his answer");
            assert!(third.answer(|| ()).is_none());
            fourth.answer(|| {
                let fifth = admit(4).unwrap();
                assert!(has_ended(0) && !has_ended(1) && !has_ended(3));
                fifth.answer(|| assert!(admit(5).is_none(), "all are being answered"));
            });
        });
        assert!(admit(5).is_some() && !has_ended(1), "some have gone by themselves");
    }
}
