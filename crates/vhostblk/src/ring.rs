//! One virtqueue: what its driver makes available is taken, and given back as used.

use std::num::Wrapping;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Condvar, Error, Kind, Mutex, Result};
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress};

use crate::commands::DiskAnswer;
use crate::config::RING_ENTRIES_MAX;
use crate::event::MonitorEvent;
use crate::memory::GuestRam;
use crate::request::DiskRequest;

/// What a monitor said of a ring.
#[derive(Default)]
pub(crate) struct RingSetup {
    pub(crate) entries: u16,
    /// In the guest's memory: descriptors, used, available.
    pub(crate) places: Option<[u64; 3]>,
    /// The next entry that is taken.
    pub(crate) base: u16,
    pub(crate) kick: Option<Arc<MonitorEvent>>,
    pub(crate) call: Option<Arc<MonitorEvent>>,
    pub(crate) error: Option<Arc<MonitorEvent>>,
    pub(crate) is_enabled: bool,
}

/// A ring that runs.
pub(crate) struct RunningRing {
    number: usize,
    kick: Arc<MonitorEvent>,
    call: Mutex<Option<Arc<MonitorEvent>>>,
    error: Mutex<Option<Arc<MonitorEvent>>>,
    state: Mutex<RingProgress>,
    /// A request has been given back, or is parked.
    changed: Condvar,
}

struct RingProgress {
    queue: Queue,
    /// Requests that were taken and not given back; of these, those that wait for a suspended pool.
    taken: usize,
    parked: usize,
    is_stopped: bool,
    /// Its driver makes no sense.
    is_broken: bool,
}

/// What a ring has.
pub(crate) enum RingEntry {
    None,
    /// A request, and the descriptor that it begins with.
    Request(u16, DiskRequest),
    /// One that made no sense, and was given back.
    Refused,
}

impl RunningRing {
    /// Errors: `Invalid` for what no ring can be.
    pub(crate) fn start(number: usize, setup: &RingSetup, ram: &GuestRam, has_event_idx: bool) -> Result<RunningRing> {
        let invalid = |what: String| Error::new(Kind::Invalid, format!("ring {number}: {what}"));
        let (Some(kick), Some([descriptors, used, available])) = (&setup.kick, setup.places) else {
            return Err(invalid("it has no kick, or no place".to_owned()));
        };
        let mut queue = Queue::new(RING_ENTRIES_MAX).map_err(|error| invalid(error.to_string()))?;
        let set = queue
            .try_set_size(setup.entries)
            .and_then(|()| queue.try_set_desc_table_address(GuestAddress(descriptors)))
            .and_then(|()| queue.try_set_avail_ring_address(GuestAddress(available)))
            .and_then(|()| queue.try_set_used_ring_address(GuestAddress(used)));
        set.map_err(|error| invalid(error.to_string()))?;
        queue.set_ready(true);
        if !queue.is_valid(ram.bytes()) {
            return Err(invalid("it is not in the guest's memory".to_owned()));
        }
        let Wrapping(next_used) =
            queue.used_idx(ram.bytes(), Ordering::Acquire).map_err(|error| invalid(error.to_string()))?;
        queue.set_event_idx(has_event_idx);
        queue.set_next_avail(setup.base);
        queue.set_next_used(next_used);
        Ok(RunningRing {
            number,
            kick: kick.clone(),
            call: Mutex::new(setup.call.clone()),
            error: Mutex::new(setup.error.clone()),
            state: Mutex::new(RingProgress { queue, taken: 0, parked: 0, is_stopped: false, is_broken: false }),
            changed: Condvar::default(),
        })
    }

    /// By what its driver tells of new entries; nothing if nothing of it is taken.
    pub(crate) fn kick(&self) -> Option<&MonitorEvent> {
        let state = self.state.lock();
        (!state.is_stopped && !state.is_broken).then_some(&*self.kick)
    }

    /// The monitor wants to be told in other ways.
    pub(crate) fn set_call(&self, call: Option<Arc<MonitorEvent>>) {
        *self.call.lock() = call;
    }

    pub(crate) fn set_error(&self, error: Option<Arc<MonitorEvent>>) {
        *self.error.lock() = error;
    }

    /// The next entry.
    pub(crate) fn take(&self, ram: &GuestRam) -> RingEntry {
        let mut state = self.state.lock();
        if state.is_stopped || state.is_broken {
            return RingEntry::None;
        }
        let memory = ram.bytes();
        let chain = match state.queue.iter(memory) {
            Ok(mut entries) => entries.next(),
            Err(error) => {
                drop(state);
                self.break_off(&error.to_string());
                return RingEntry::None;
            }
        };
        let Some(chain) = chain else { return RingEntry::None };
        let head = chain.head_index();
        let parsed = DiskRequest::parse(memory, chain);
        state.taken += 1;
        drop(state);
        match parsed {
            Ok(request) => RingEntry::Request(head, request),
            Err(error) => {
                tracing::debug!(ring = self.number, "a request of a guest makes no sense: {error}");
                self.give_back(ram, head, 0);
                RingEntry::Refused
            }
        }
    }

    /// Has its driver tell of the next entry. True if there is one already.
    pub(crate) fn listen(&self, ram: &GuestRam) -> bool {
        let mut state = self.state.lock();
        !state.is_stopped && !state.is_broken && state.queue.enable_notification(ram.bytes()).unwrap_or(false)
    }

    /// Gives an answer.
    pub(crate) fn answer(&self, ram: &GuestRam, head: u16, request: &DiskRequest, answer: DiskAnswer) {
        let written = ram.bytes().write_obj(answer.status, GuestAddress(request.status));
        if let Err(error) = written {
            // the monitor has given another memory meanwhile
            tracing::debug!(ring = self.number, "a status cannot be written: {error}");
        }
        self.give_back(ram, head, answer.given.saturating_add(1));
    }

    fn give_back(&self, ram: &GuestRam, head: u16, written: u32) {
        let mut state = self.state.lock();
        let memory = ram.bytes();
        let given = state.queue.add_used(memory, head, written);
        let is_told = given.and_then(|()| state.queue.needs_notification(memory));
        drop(state);
        match is_told {
            Ok(true) => {
                let call = self.call.lock().clone();
                if let Some(call) = call {
                    call.signal();
                }
            }
            Ok(false) => {}
            Err(error) => self.break_off(&error.to_string()),
        }
        self.let_go();
    }

    /// What was taken has been given back, or is forgotten.
    pub(crate) fn let_go(&self) {
        self.state.lock().taken -= 1;
        self.changed.notify_all();
    }

    /// A request waits for a suspended pool.
    pub(crate) fn park(&self) {
        self.state.lock().parked += 1;
        self.changed.notify_all();
    }

    /// It does not wait any more.
    pub(crate) fn unpark(&self) {
        self.state.lock().parked -= 1;
    }

    /// Nothing is taken any more, until it is set up again.
    fn break_off(&self, why: &str) {
        tracing::warn!(ring = self.number, "a guest's ring makes no sense: {why}");
        self.state.lock().is_broken = true;
        let error = self.error.lock().clone();
        if let Some(error) = error {
            error.signal();
        }
    }

    /// Stops: when this returns, all that was taken has been given back, or, if `is_over`, waits for a suspended pool and
    /// touches nothing any more. Returns the next entry.
    pub(crate) fn stop(&self, is_over: &AtomicBool) -> u16 {
        let mut state = self.state.lock();
        state.is_stopped = true;
        let waits = |state: &mut RingProgress| {
            let parked = if is_over.load(Ordering::SeqCst) { state.parked } else { 0 };
            state.taken > parked
        };
        self.changed.wait_while(state, waits).queue.next_avail()
    }

    /// Has [`RunningRing::stop`] look again.
    pub(crate) fn nudge(&self) {
        let _state = self.state.lock();
        self.changed.notify_all();
    }
}
