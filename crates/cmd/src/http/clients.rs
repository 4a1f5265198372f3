//! The clients that are served, and which is hung up on when there are too many, or when one takes too long.
//!
//! ```text
//!   connected ──▶ asking ──▶ answered ──▶ taking it ──▶ gone
//!                   │ 1.                      │ 2.
//!                   └──── hung up on, the oldest first ────  when all places are taken
//! ```
//!
//! So a client that sends half a request, or does not take its answer, keeps none out. One that is answered is left in
//! peace: the answer costs something, and comes to an end by itself. An answer without an end is taken event by event, and
//! each that is taken counts as progress.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::Mutex;

/// How long a request, and the way of its answer, may take each.
pub const TIME_MAX: Duration = Duration::from_secs(10);

/// How far a client has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientStage {
    /// Its request is being read.
    Asking,
    /// Its answer is being made.
    Answered,
    /// Its answer is being sent.
    Taking,
}

struct Client {
    number: u64,
    stage: ClientStage,
    /// Since when it makes no progress.
    since: Instant,
    /// Ends its connection.
    hang_up: Option<Box<dyn FnOnce() + Send>>,
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
    /// Room for `max` clients.
    pub fn new(max: usize) -> Clients {
        Clients { all: Arc::default(), max }
    }

    /// Takes one more, in the place of another if need be. `None` if all are being answered.
    pub fn admit(&self) -> Option<ClientSlot> {
        let mut all = self.all.lock();
        let mut lost = None;
        if all.clients.len() >= self.max {
            let oldest = |stage| all.clients.iter().position(|client| client.stage == stage);
            let loser = oldest(ClientStage::Asking).or_else(|| oldest(ClientStage::Taking))?;
            lost = all.clients.remove(loser).hang_up;
        }
        let number = all.next;
        all.next += 1;
        all.clients.push(Client { number, stage: ClientStage::Asking, since: Instant::now(), hang_up: None });
        drop(all);
        // it may come back here, to give its place up
        lost.into_iter().for_each(|hang_up| hang_up());
        Some(ClientSlot { clients: self.clone(), number })
    }

    /// Says how to end the connection of a client.
    pub fn attach(&self, number: u64, hang_up: Box<dyn FnOnce() + Send>) {
        let mut all = self.all.lock();
        if let Some(client) = all.clients.iter_mut().find(|client| client.number == number) {
            client.hang_up = Some(hang_up);
        }
    }

    /// Hangs up on those that have made no progress for [`TIME_MAX`], but for those that wait for their answer.
    pub fn hang_up_late(&self, now: Instant) {
        let is_late = |client: &mut Client| {
            client.stage != ClientStage::Answered && now.saturating_duration_since(client.since) > TIME_MAX
        };
        let late: Vec<Client> = self.all.lock().clients.extract_if(.., is_late).collect();
        late.into_iter().filter_map(|client| client.hang_up).for_each(|hang_up| hang_up());
    }
}

impl ClientSlot {
    /// Which it is.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Notes that it has come to that stage, or makes progress in it.
    pub fn come_to(&self, stage: ClientStage) {
        let mut all = self.clients.all.lock();
        if let Some(own) = all.clients.iter_mut().find(|client| client.number == self.number) {
            (own.stage, own.since) = (stage, Instant::now());
        }
    }
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        let mut all = self.clients.all.lock();
        let own = all.clients.iter().position(|client| client.number == self.number);
        // what ends its connection may own something that is dropped with it
        let own = own.map(|at| all.clients.remove(at));
        drop(all);
        drop(own);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A client, and whether it was hung up on.
    fn admit(clients: &Clients) -> Option<(ClientSlot, Arc<AtomicBool>)> {
        let slot = clients.admit()?;
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = has_ended.clone();
        clients.attach(slot.number(), Box::new(move || ended.store(true, Ordering::Relaxed)));
        Some((slot, has_ended))
    }

    fn has_ended(client: &(ClientSlot, Arc<AtomicBool>)) -> bool {
        client.1.load(Ordering::Relaxed)
    }

    #[test]
    fn the_oldest_that_asks_goes_first_and_one_that_is_answered_stays() {
        let clients = Clients::new(3);
        let [first, second, third] = [0, 1, 2].map(|_| admit(&clients).unwrap());
        first.0.come_to(ClientStage::Taking);
        second.0.come_to(ClientStage::Answered);
        let fourth = admit(&clients).unwrap();
        assert!(has_ended(&third) && !has_ended(&first), "the third asked, the first takes its answer");
        third.0.come_to(ClientStage::Taking);
        fourth.0.come_to(ClientStage::Answered);
        let fifth = admit(&clients).unwrap();
        assert!(has_ended(&first) && !has_ended(&second) && !has_ended(&fourth));
        fifth.0.come_to(ClientStage::Answered);
        assert!(admit(&clients).is_none(), "all are being answered");
        drop(fifth);
        assert!(admit(&clients).is_some() && !has_ended(&second), "one has gone by itself");
    }

    #[test]
    fn one_that_makes_no_progress_goes() {
        let clients = Clients::new(3);
        let [asks, waits, takes] = [0, 1, 2].map(|_| admit(&clients).unwrap());
        waits.0.come_to(ClientStage::Answered);
        takes.0.come_to(ClientStage::Taking);
        clients.hang_up_late(Instant::now() + TIME_MAX / 2);
        assert!([&asks, &waits, &takes].into_iter().all(|client| !has_ended(client)));
        clients.hang_up_late(Instant::now() + TIME_MAX * 2);
        assert!(has_ended(&asks) && has_ended(&takes) && !has_ended(&waits), "an answer may take its time");
        assert!(admit(&clients).is_some() && admit(&clients).is_some());
    }
}
