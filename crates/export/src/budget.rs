//! How much memory the data of clients' requests may take.
//!
//! Invariants: a client has `CLIENT_BYTES` at most, and all clients of the process together have `ALL_BYTES`, but for
//! `SHARE_BYTES` of each, so that a client which does not take its answers keeps no small request of another one waiting.

use std::sync::{Arc, LazyLock};

use base::{Condvar, Mutex};

/// Bytes of data of one client's requests that are in memory at a time, beside its share.
const CLIENT_BYTES: u64 = 64 << 20;
/// Bytes that each client has for itself: as much as usual clients ask for at a time.
const SHARE_BYTES: u64 = 4 << 20;
/// Bytes of all clients' requests together, beside their shares.
const ALL_BYTES: u64 = 512 << 20;

/// For all clients of the process, by whatever protocol they come.
static ALL_CLIENTS: LazyLock<Arc<ByteAllowance>> = LazyLock::new(|| Arc::new(ByteAllowance::new(ALL_BYTES)));

/// Memory for the data of requests of one client.
pub struct DataBudget {
    share: ByteAllowance,
    client: ByteAllowance,
    all: Arc<ByteAllowance>,
}

/// Memory that a request has, until this is dropped.
pub struct DataGrant {
    budget: Arc<DataBudget>,
    bytes: u64,
    is_of_share: bool,
}

/// Bytes that can be taken and are given back.
struct ByteAllowance {
    bytes: u64,
    state: Mutex<ByteAllowanceState>,
    changed: Condvar,
}

#[derive(Default)]
struct ByteAllowanceState {
    taken: u64,
    /// Threads that wait for memory.
    waiting: usize,
}

impl Default for DataBudget {
    fn default() -> DataBudget {
        DataBudget::within(ALL_CLIENTS.clone())
    }
}

impl DataBudget {
    fn within(all: Arc<ByteAllowance>) -> DataBudget {
        DataBudget { share: ByteAllowance::new(SHARE_BYTES), client: ByteAllowance::new(CLIENT_BYTES), all }
    }

    /// Waits until so many bytes can be had; a request for more than a client may have gets all of it, alone.
    pub fn take(self: &Arc<Self>, bytes: u64) -> DataGrant {
        let bytes = bytes.min(CLIENT_BYTES);
        let is_of_share = self.share.try_take(bytes);
        if !is_of_share {
            self.client.take(bytes);
            self.all.take(bytes);
        }
        DataGrant { budget: self.clone(), bytes, is_of_share }
    }
}

impl Drop for DataGrant {
    fn drop(&mut self) {
        if self.is_of_share {
            self.budget.share.give_back(self.bytes);
        } else {
            self.budget.all.give_back(self.bytes);
            self.budget.client.give_back(self.bytes);
        }
    }
}

impl ByteAllowance {
    fn new(bytes: u64) -> ByteAllowance {
        ByteAllowance { bytes, state: Mutex::default(), changed: Condvar::default() }
    }

    fn try_take(&self, bytes: u64) -> bool {
        let mut state = self.state.lock();
        let has_room = state.taken + bytes <= self.bytes;
        if has_room {
            state.taken += bytes;
        }
        has_room
    }

    fn take(&self, bytes: u64) {
        let mut state = self.state.lock();
        if state.taken + bytes > self.bytes {
            state.waiting += 1;
            state = self.changed.wait_while(state, |state| state.taken + bytes > self.bytes);
            state.waiting -= 1;
        }
        state.taken += bytes;
    }

    fn give_back(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.taken -= bytes;
        // a call of the system, which requests that are over in microseconds are better without
        if state.waiting > 0 {
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn clients_that_keep_their_answers_keep_no_small_request_waiting() {
        let all = Arc::new(ByteAllowance::new(96 << 20));
        let client = || Arc::new(DataBudget::within(all.clone()));
        let stuck = [client(), client()];
        let kept: Vec<DataGrant> = [64, 32].iter().zip(&stuck).map(|(mib, stuck)| stuck.take(mib << 20)).collect();
        let other = client();
        let small: Vec<DataGrant> = (0..4).map(|_| other.take(1 << 20)).collect();
        assert!(small.iter().all(|grant| grant.is_of_share));
        assert_eq!(all.state.lock().taken, 96 << 20);

        // the fifth waits until there is room for it: of its own share, or of all
        let (sender, receiver) = mpsc::channel();
        let fifth = thread::spawn({
            let other = other.clone();
            move || {
                let grant = other.take(1 << 20);
                sender.send(()).unwrap();
                grant
            }
        });
        while all.state.lock().waiting == 0 {
            thread::yield_now();
        }
        assert!(receiver.try_recv().is_err());
        drop(kept);
        receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        let grant = fifth.join().unwrap();
        assert!(!grant.is_of_share);
        assert_eq!(all.state.lock().taken, 1 << 20);
        drop((grant, small));
        assert_eq!((all.state.lock().taken, other.share.state.lock().taken), (0, 0));
        assert_eq!(other.client.state.lock().taken, 0);
    }

    #[test]
    fn a_client_has_no_more_than_its_part() {
        let budget = Arc::new(DataBudget::within(Arc::new(ByteAllowance::new(1 << 40))));
        let whole = budget.take(u64::MAX);
        assert_eq!(whole.bytes, CLIENT_BYTES);
        assert!(!budget.client.try_take(1));
    }
}
