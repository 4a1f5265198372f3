//! A guest's disk at work: threads take requests from all of its rings, do them and answer.
//!
//! ```text
//!   thread 1   looks through the rings, or waits for kicks ─▶ takes a request ─▶ does it ─▶ used ring, call
//!   thread 2                                                     takes the next ─▶ ...
//! ```
//!
//! What fails as the pool is suspended is parked, and keeps no thread. When the monitor has left, what is parked is
//! forgotten: another guest may have the disk by then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Env, Kind, Mutex, Result, RwLock};
use export::{ClientCounters, ClientSums, DataBudget, DataGrant, Gate, Parking, ServedConnection};

use crate::cache::GuestCache;
use crate::commands::{self, DiskAnswer};
use crate::disk::VhostDisk;
use crate::event::WakeEvent;
use crate::memory::GuestRam;
use crate::request::{DESCRIPTORS_MAX, DiskCommand, DiskRequest};
use crate::ring::{RingEntry, RunningRing};

/// Memory that each request counts for: a description of its descriptors, and what is around it.
const REQUEST_BYTES: u64 = 16 * DESCRIPTORS_MAX as u64 + 1024;

/// The disk of a guest.
pub(crate) struct GuestDevice {
    env: Env,
    disk: Arc<dyn VhostDisk>,
    gate: Arc<Gate>,
    parking: Arc<Parking>,
    budget: Arc<DataBudget>,
    ram: RwLock<Arc<GuestRam>>,
    rings: Mutex<Arc<Vec<Arc<RunningRing>>>>,
    /// Held by what takes a request: the ring that is looked at first.
    incoming: Mutex<usize>,
    /// Rings have come or gone, or it is over.
    changed: Arc<WakeEvent>,
    is_over: AtomicBool,
    cache: GuestCache,
    counters: ClientCounters,
}

/// A request that was taken.
pub(crate) struct TakenEntry {
    ring: Arc<RunningRing>,
    ram: Arc<GuestRam>,
    head: u16,
    request: DiskRequest,
    _grant: DataGrant,
}

impl GuestDevice {
    /// `life` is a number that no other process has, nor another disk. Errors: there are too many open files.
    pub(crate) fn new(
        (env, life): (Env, u64),
        disk: Arc<dyn VhostDisk>,
        (gate, parking): (Arc<Gate>, Arc<Parking>),
    ) -> Result<Arc<GuestDevice>> {
        let changed = Arc::new(WakeEvent::new()?);
        Ok(Arc::new(GuestDevice {
            env,
            disk,
            gate,
            parking,
            budget: Arc::default(),
            ram: RwLock::new(Arc::new(GuestRam::none())),
            rings: Mutex::default(),
            incoming: Mutex::default(),
            changed: changed.clone(),
            is_over: AtomicBool::new(false),
            cache: GuestCache::new(life, changed),
            counters: ClientCounters::default(),
        }))
    }

    /// Takes requests, on threads of its own, until it is over. False if the system gives no more threads.
    pub(crate) fn start(self: &Arc<Self>) -> bool {
        let device = self.clone();
        self.env.spawn("vhost-rings", move || export::serve(&device.env, "vhost-request", &device))
    }

    pub(crate) fn disk(&self) -> &dyn VhostDisk {
        &*self.disk
    }

    pub(crate) fn ram(&self) -> Arc<GuestRam> {
        self.ram.read().clone()
    }

    /// Requests that are taken from now on are in that memory.
    pub(crate) fn set_ram(&self, ram: GuestRam) {
        *self.ram.write() = Arc::new(ram);
    }

    pub(crate) fn cache(&self) -> &GuestCache {
        &self.cache
    }

    /// What the guest has asked for.
    pub(crate) fn sums(&self) -> ClientSums {
        self.counters.sums()
    }

    pub(crate) fn add_ring(&self, ring: Arc<RunningRing>) {
        let mut rings = self.rings.lock();
        *rings = Arc::new(rings.iter().cloned().chain([ring]).collect());
        self.changed.signal();
    }

    /// Stops a ring: as of [`RunningRing::stop`].
    pub(crate) fn stop_ring(&self, ring: &Arc<RunningRing>) -> u16 {
        let next = ring.stop(&self.is_over);
        let mut rings = self.rings.lock();
        *rings = Arc::new(rings.iter().filter(|other| !Arc::ptr_eq(other, ring)).cloned().collect());
        self.changed.signal();
        next
    }

    /// No request is taken any more; what is parked is forgotten.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.changed.signal();
        self.rings.lock().iter().for_each(|ring| ring.nudge());
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// The next request of any ring, if there is one now.
    fn look(&self, rings: &[Arc<RunningRing>], first: &mut usize, grant: &mut Option<DataGrant>) -> Option<TakenEntry> {
        let ram = self.ram();
        for step in 0..rings.len() {
            let at = (*first + step) % rings.len();
            let ring = &rings[at];
            loop {
                match ring.take(&ram) {
                    RingEntry::None => break,
                    RingEntry::Refused if self.is_over() => return None,
                    RingEntry::Refused => {}
                    RingEntry::Request(head, request) => {
                        *first = at + 1;
                        let grant = grant.take().unwrap_or_else(|| self.budget.take(REQUEST_BYTES));
                        return Some(TakenEntry { ring: ring.clone(), ram, head, request, _grant: grant });
                    }
                }
            }
        }
        None
    }

    /// Errors: `Suspended`: it is to be done again.
    fn perform(&self, taken: &TakenEntry) -> Result<DiskAnswer> {
        if self.cache.is_lost() {
            return Ok(DiskAnswer::failed());
        }
        commands::run((self.disk(), &self.cache), &taken.request, taken.ram.bytes())
    }

    fn park(self: &Arc<Self>, taken: TakenEntry) {
        let taken = Arc::new(taken);
        taken.ring.park();
        let again = taken.clone();
        // not parked while it is at work: what stops the ring waits for it then
        let work = move |device: &GuestDevice| {
            again.ring.unpark();
            match device.is_over() {
                true => Ok(None),
                false => device.perform(&again).map(Some).inspect_err(|_| again.ring.park()),
            }
        };
        self.parking.park(self, work, move |_, done| match done {
            Ok(None) => taken.ring.let_go(),
            Ok(Some(answer)) => taken.answer(answer),
            // nobody is to wait
            Err(_) => {
                taken.ring.unpark();
                taken.answer(DiskAnswer::failed());
            }
        });
    }
}

impl TakenEntry {
    fn answer(&self, answer: DiskAnswer) {
        self.ring.answer(&self.ram, self.head, &self.request, answer);
    }
}

impl ServedConnection for GuestDevice {
    type Request = TakenEntry;

    fn take(&self) -> Option<TakenEntry> {
        let mut first = self.incoming.lock();
        // before anything is taken: nothing that was taken waits for memory
        let mut grant = Some(self.budget.take(REQUEST_BYTES));
        while !self.is_over() {
            let rings = self.rings.lock().clone();
            if let Some(taken) = self.look(&rings, &mut first, &mut grant) {
                return Some(taken);
            }
            let ram = self.ram();
            if rings.iter().any(|ring| ring.listen(&ram)) {
                continue;
            }
            let patience = self.cache.look_after(self.disk());
            self.changed.wait(rings.iter().filter_map(|ring| ring.kick()), patience);
        }
        None
    }

    fn has_more(&self) -> bool {
        let ram = self.ram();
        self.rings.lock().iter().any(|ring| ring.has_entry(&ram))
    }

    fn act(self: &Arc<Self>, taken: TakenEntry) -> bool {
        match taken.request.command {
            DiskCommand::Read => self.counters.read(taken.request.data.len()),
            DiskCommand::Write => self.counters.write(taken.request.data.len()),
            _ => self.counters.other(),
        }
        let passage = self.gate.pass();
        match self.perform(&taken) {
            Err(error) if error.kind() == Kind::Suspended => self.park(taken),
            done => {
                drop(passage);
                taken.answer(done.unwrap_or(DiskAnswer::failed()));
            }
        }
        true
    }
}
