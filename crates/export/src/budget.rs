//! How much memory the data of a client's requests may take.

use std::sync::Arc;

use base::{Condvar, Mutex};

/// Bytes of data of one client's requests that are in memory at a time.
const DATA_BYTES: u64 = 64 << 20;

/// Memory for the data of requests of one client: 64 MiB at a time.
#[derive(Default)]
pub struct DataBudget {
    state: Mutex<BudgetState>,
    changed: Condvar,
}

#[derive(Default)]
struct BudgetState {
    taken: u64,
    /// Threads that wait for memory.
    waiting: usize,
}

/// Memory that a request has, until this is dropped.
pub struct DataGrant {
    budget: Arc<DataBudget>,
    bytes: u64,
}

impl DataBudget {
    /// Waits until so many bytes can be had; what asks for more than there ever are gets them alone.
    pub fn take(self: &Arc<Self>, bytes: u64) -> DataGrant {
        let bytes = bytes.min(DATA_BYTES);
        let mut state = self.state.lock();
        if state.taken + bytes > DATA_BYTES {
            state.waiting += 1;
            state = self.changed.wait_while(state, |state| state.taken + bytes > DATA_BYTES);
            state.waiting -= 1;
        }
        state.taken += bytes;
        DataGrant { budget: self.clone(), bytes }
    }
}

impl Drop for DataGrant {
    fn drop(&mut self) {
        let mut state = self.budget.state.lock();
        state.taken -= self.bytes;
        // a call of the system, which requests that are over in microseconds are better without
        if state.waiting > 0 {
            self.budget.changed.notify_all();
        }
    }
}
