//! The logical unit, and the nexuses of initiators with it.

use std::sync::{Arc, Weak};

use base::{Mutex, MutexGuard, Result, RwLock};

use crate::scsi::reservations::Reservations;
use crate::scsi::sense::Sense;
use crate::target::Lun;

/// Bytes of a logical block.
pub(crate) const BLOCK_BYTES: u64 = 512;
/// Attentions that wait for an initiator, at most.
const ATTENTIONS_MAX: usize = 8;

/// Ends the commands of a nexus.
pub(crate) trait AbortTasks: Send + Sync {
    /// Returns when none of them changes anything any more.
    fn abort_all(&self);

    /// The same, and does nothing any more: the session is over.
    fn end(&self);
}

/// A disk that initiators use.
pub(crate) struct LogicalUnit {
    pub(crate) lun: Arc<dyn Lun>,
    /// What was kept, once it has been read.
    reservations: Mutex<Option<Reservations>>,
    /// Held alone by what reads and writes as one.
    pub(crate) changing: RwLock<()>,
    nexuses: Mutex<Vec<EnteredNexus>>,
}

/// A nexus, and what ends its commands.
type EnteredNexus = (Weak<Nexus>, Weak<dyn AbortTasks>);

/// What there is between the port of an initiator and a unit, for one session.
pub(crate) struct Nexus {
    /// The port of the initiator: its name and the number of its session.
    pub(crate) port: String,
    attentions: Mutex<Attentions>,
}

#[derive(Default)]
struct Attentions {
    waiting: Vec<(u8, u8)>,
    /// What the initiator knows of the unit: its bytes, and whether it may not be changed.
    known: Option<(u64, bool)>,
}

impl LogicalUnit {
    pub(crate) fn new(lun: Arc<dyn Lun>) -> LogicalUnit {
        LogicalUnit { lun, reservations: Mutex::default(), changing: RwLock::default(), nexuses: Mutex::default() }
    }

    /// An initiator uses it from now on; `aborts` ends its commands.
    pub(crate) fn enter(&self, nexus: &Arc<Nexus>, aborts: Weak<dyn AbortTasks>) {
        let mut nexuses = self.nexuses.lock();
        nexuses.retain(|(nexus, _)| nexus.strong_count() > 0);
        nexuses.push((Arc::downgrade(nexus), aborts));
    }

    /// Aborts all commands of all initiators, and tells those that did not ask for it.
    pub(crate) fn reset(&self, by: &Arc<Nexus>) {
        // without the lock: what is aborted may need it
        let all = self.nexuses.lock().clone();
        for (nexus, aborts) in all {
            if let Some(aborts) = aborts.upgrade() {
                aborts.abort_all();
            }
            if let Some(nexus) = nexus.upgrade().filter(|nexus| !Arc::ptr_eq(nexus, by)) {
                nexus.attend(Sense::RESET);
            }
        }
    }

    /// Aborts all commands of the sessions of some ports.
    pub(crate) fn abort(&self, is_meant: impl Fn(&str) -> bool) {
        // without the lock, as above
        for (nexus, aborts) in self.nexuses.lock().clone() {
            if let (Some(nexus), Some(aborts)) = (nexus.upgrade(), aborts.upgrade())
                && is_meant(&nexus.port)
            {
                aborts.abort_all();
            }
        }
    }

    /// Ends the sessions of a port.
    pub(crate) fn end(&self, port: &str) {
        for (nexus, aborts) in self.nexuses.lock().clone() {
            if let (Some(nexus), Some(aborts)) = (nexus.upgrade(), aborts.upgrade())
                && nexus.port == port
            {
                aborts.end();
            }
        }
    }

    /// Tells the sessions of some ports of something.
    pub(crate) fn tell(&self, attention: (u8, u8), is_meant: impl Fn(&str) -> bool) {
        for (nexus, _) in self.nexuses.lock().iter() {
            if let Some(nexus) = nexus.upgrade().filter(|nexus| is_meant(&nexus.port)) {
                nexus.attend(attention);
            }
        }
    }

    /// The reservations, as they are now. Errors: those of reading what was kept.
    pub(crate) fn reservations(&self) -> Result<ReservationsGuard<'_>> {
        let mut guard = self.reservations.lock();
        if guard.is_none() {
            let kept = self.lun.reservations()?;
            *guard = Some(kept.and_then(|text| Reservations::parse(&text)).unwrap_or_default());
        }
        Ok(ReservationsGuard(guard))
    }

    /// Blocks of the unit. Errors: as of [`Lun::sizes`].
    pub(crate) fn blocks(&self) -> Result<u64> {
        Ok(self.lun.sizes()?.0 / BLOCK_BYTES)
    }
}

/// The reservations of a unit, which nobody else changes meanwhile.
pub(crate) struct ReservationsGuard<'a>(MutexGuard<'a, Option<Reservations>>);

impl std::ops::Deref for ReservationsGuard<'_> {
    type Target = Reservations;

    fn deref(&self) -> &Reservations {
        static NONE: Reservations = Reservations::NONE;
        self.0.as_ref().unwrap_or(&NONE)
    }
}

impl ReservationsGuard<'_> {
    /// Replaces them.
    pub(crate) fn set(&mut self, reservations: Reservations) {
        *self.0 = Some(reservations);
    }
}

impl Nexus {
    pub(crate) fn new(port: String) -> Nexus {
        Nexus { port, attentions: Mutex::default() }
    }

    /// Something has happened that the initiator is to know.
    pub(crate) fn attend(&self, attention: (u8, u8)) {
        let waiting = &mut self.attentions.lock().waiting;
        if !waiting.contains(&attention) && waiting.len() < ATTENTIONS_MAX {
            waiting.push(attention);
        }
    }

    /// The next that it has not been told. Errors: those of looking at the unit.
    pub(crate) fn attention(&self, unit: &LogicalUnit) -> Result<Option<Sense>> {
        let now = (unit.lun.sizes()?.0, unit.lun.is_read_only()?);
        let known = self.attentions.lock().known.replace(now).unwrap_or(now);
        if known.0 != now.0 {
            self.attend(Sense::CAPACITY_CHANGED);
        }
        if known.1 != now.1 {
            self.attend(Sense::MODE_CHANGED);
        }
        let waiting = &mut self.attentions.lock().waiting;
        Ok((!waiting.is_empty()).then(|| Sense::attention(waiting.remove(0))))
    }
}
