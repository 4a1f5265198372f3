//! How much memory the data of a client's requests may take.

use std::sync::Arc;

use base::{Condvar, Mutex};

/// Bytes of data of one client's requests that are in memory at a time.
const DATA_BYTES: u64 = 64 << 20;

/// Memory for the data of requests of one client: 64 MiB at a time.
#[derive(Default)]
pub struct DataBudget {
    taken: Mutex<u64>,
    changed: Condvar,
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
        let taken = self.taken.lock();
        *self.changed.wait_while(taken, |taken| *taken + bytes > DATA_BYTES) += bytes;
        DataGrant { budget: self.clone(), bytes }
    }
}

impl Drop for DataGrant {
    fn drop(&mut self) {
        *self.budget.taken.lock() -= self.bytes;
        self.budget.changed.notify_all();
    }
}
