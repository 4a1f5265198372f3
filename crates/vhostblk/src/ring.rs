//! One virtqueue: what its driver makes available is taken, and given back as used.

use std::collections::VecDeque;
use std::num::Wrapping;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Condvar, Error, Kind, Mutex, Result};
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress};

use crate::commands::DiskAnswer;
use crate::config::RING_ENTRIES_MAX;
use crate::event::MonitorEvent;
use crate::inflight::{InflightRegion, InflightRing};
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
    /// What is in flight, for the next process.
    inflight: Option<InflightRing>,
    /// Heads of requests that a process before this one has taken, and are to be done again first.
    again: VecDeque<u16>,
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
    /// A ring that goes on if `region` has something of it in flight. Errors: `Invalid` for what no ring can be.
    pub(crate) fn start(
        number: usize,
        setup: &RingSetup,
        (ram, region): (&GuestRam, Option<&Arc<InflightRegion>>),
        has_event_idx: bool,
    ) -> Result<RunningRing> {
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
        queue.set_next_used(next_used);
        let (inflight, again) = region.map(|region| region.ring(number, setup.entries, next_used)).transpose()?.unzip();
        // the monitor of a process that was killed does not know how far it was
        let again = again.flatten();
        let base = again.as_ref().map_or(setup.base, |again| next_used.wrapping_add(again.len() as u16));
        queue.set_next_avail(base);
        if let (Some(_), Some(call)) = (&again, &setup.call) {
            // that process may not have told of its last answer
            call.signal();
        }
        let again = again.unwrap_or_default().into();
        Ok(RunningRing {
            number,
            kick: kick.clone(),
            call: Mutex::new(setup.call.clone()),
            error: Mutex::new(setup.error.clone()),
            state: Mutex::new(RingProgress {
                queue,
                inflight,
                again,
                taken: 0,
                parked: 0,
                is_stopped: false,
                is_broken: false,
            }),
            changed: Condvar::default(),
        })
    }

    /// By what its driver tells of new entries; nothing if nothing of it is taken.
    pub(crate) fn kick(&self) -> Option<&MonitorEvent> {
        let state = self.state.lock();
        (!state.is_stopped && !state.is_broken).then_some(&*self.kick)
    }

    /// The monitor wants to be told in other ways. It is told at once: nobody may have heard what was told until now.
    pub(crate) fn set_call(&self, call: Option<Arc<MonitorEvent>>) {
        self.call.lock().clone_from(&call);
        call.iter().for_each(|call| call.signal());
    }

    pub(crate) fn set_error(&self, error: Option<Arc<MonitorEvent>>) {
        *self.error.lock() = error;
    }

    /// Whether there is an entry that is not taken yet.
    pub(crate) fn has_entry(&self, ram: &GuestRam) -> bool {
        let state = self.state.lock();
        let available = || state.queue.avail_idx(ram.bytes(), Ordering::Acquire).map(|Wrapping(next)| next);
        let is_taken_from = !state.is_stopped && !state.is_broken;
        is_taken_from && (!state.again.is_empty() || available().is_ok_and(|next| next != state.queue.next_avail()))
    }

    /// The next entry.
    pub(crate) fn take(&self, ram: &GuestRam) -> RingEntry {
        let mut state = self.state.lock();
        let next = match state.is_broken {
            true => Ok(None),
            false => state.next(ram),
        };
        drop(state);
        let (head, parsed) = match next {
            Ok(Some(next)) => next,
            Ok(None) => return RingEntry::None,
            Err(error) => {
                self.break_off(&error.to_string());
                return RingEntry::None;
            }
        };
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
        state.inflight.iter().for_each(|inflight| inflight.giving(head));
        let given = state.queue.add_used(memory, head, written);
        if given.is_ok() {
            let used = state.queue.next_used();
            state.inflight.iter().for_each(|inflight| inflight.given(head, used));
        }
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
        let mut state = self.state.lock();
        state.is_broken = true;
        state.again.clear();
        drop(state);
        self.changed.notify_all();
        let error = self.error.lock().clone();
        if let Some(error) = error {
            error.signal();
        }
    }

    /// Stops: when this returns, all that was taken, by this process or one before it, has been given back, or, if
    /// `is_over`, waits for a suspended pool and touches nothing any more. Returns the next entry.
    pub(crate) fn stop(&self, is_over: &AtomicBool) -> u16 {
        let mut state = self.state.lock();
        state.is_stopped = true;
        let waits = |state: &mut RingProgress| match is_over.load(Ordering::SeqCst) {
            true => state.taken > state.parked,
            false => state.taken + state.again.len() > 0,
        };
        self.changed.wait_while(state, waits).queue.next_avail()
    }

    /// Has [`RunningRing::stop`] look again.
    pub(crate) fn nudge(&self) {
        let _state = self.state.lock();
        self.changed.notify_all();
    }
}

impl RingProgress {
    /// The next request: the descriptor that it begins with, and what it says. Errors: the ring makes no sense.
    fn next(&mut self, ram: &GuestRam) -> Result<Option<(u16, Result<DiskRequest>)>> {
        let memory = ram.bytes();
        let next = match self.again.pop_front() {
            Some(head) => (head, self.parse(ram, head)),
            None if self.is_stopped => return Ok(None),
            None => {
                let entry = self.queue.iter(memory).map_err(|error| Error::corrupt(error.to_string()))?.next();
                let Some(chain) = entry else { return Ok(None) };
                let head = chain.head_index();
                self.inflight.iter_mut().for_each(|inflight| inflight.take(head));
                (head, DiskRequest::parse(memory, chain))
            }
        };
        self.taken += 1;
        Ok(Some(next))
    }

    /// The request that begins with a descriptor of which no entry of the ring may tell any more: another ring does, over
    /// the same descriptors. Errors: `Corrupt` for a chain that cannot be answered; there is no memory.
    fn parse(&self, ram: &GuestRam, head: u16) -> Result<DiskRequest> {
        // flags, index, the first entry
        let (memory, place) = ram.with_page(&[0, 1, head].map(u16::to_le_bytes).concat())?;
        let nonsense = |error: virtio_queue::Error| Error::corrupt(error.to_string());
        let mut one = Queue::new(RING_ENTRIES_MAX).map_err(nonsense)?;
        one.try_set_size(self.queue.size()).map_err(nonsense)?;
        one.try_set_desc_table_address(GuestAddress(self.queue.desc_table())).map_err(nonsense)?;
        one.try_set_avail_ring_address(place).map_err(nonsense)?;
        one.set_ready(true);
        let chain = one.iter(&memory).map_err(nonsense)?.next();
        DiskRequest::parse(ram.bytes(), chain.ok_or_else(|| Error::corrupt("a ring without its entry"))?)
    }
}
