//! The condition of a vdev, as `zpool status` shows it.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use device::meter::Meter;
use serde::{Deserialize, Serialize};

/// How a vdev is, from worst to best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum VdevState {
    /// Taken offline by the administrator.
    Offline,
    /// Taken out of its slot.
    Removed,
    /// Cannot be opened, or is not what it should be.
    #[default]
    Unavail,
    /// Not used because of what happened before.
    Faulted,
    /// Works, but not all of it.
    Degraded,
    /// Works.
    Healthy,
}

/// Why a vdev is in its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Aux {
    /// Nothing to say.
    #[default]
    None,
    /// The device was not found or could not be opened.
    OpenFailed,
    /// The label is not that of this vdev.
    CorruptData,
    /// Too many children are gone.
    NoReplicas,
    /// A top-level vdev is not in the configuration.
    BadGuidSum,
    /// The device is smaller than ZFS allows.
    TooSmall,
    /// No label is readable.
    BadLabel,
    /// The pool is of a version that is not known.
    VersionNewer,
    /// The pool has features that are not known.
    UnsupFeat,
    /// Another host uses the pool.
    Active,
    /// A spare that is in use.
    Spared,
    /// Too many errors.
    ErrExceeded,
    /// The log cannot be read.
    BadLog,
    /// Faulted by the administrator.
    External,
    /// Now belongs to a pool that was split off.
    SplitPool,
    /// All children are offline.
    ChildrenOffline,
    /// The sectors of the device are larger than those of the vdev.
    BadAshift,
}

/// State, and the reason for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Health {
    /// The state.
    pub state: VdevState,
    /// The reason.
    pub aux: Aux,
}

impl Health {
    /// All is well.
    pub const HEALTHY: Health = Health::new(VdevState::Healthy, Aux::None);

    /// That state, for that reason.
    pub const fn new(state: VdevState, aux: Aux) -> Health {
        Health { state, aux }
    }

    /// Whether reads are worth trying.
    pub fn is_readable(self) -> bool {
        self.state >= VdevState::Degraded
    }

    const STATES: [VdevState; 6] = [
        VdevState::Offline,
        VdevState::Removed,
        VdevState::Unavail,
        VdevState::Faulted,
        VdevState::Degraded,
        VdevState::Healthy,
    ];
    const AUXES: [Aux; 17] = [
        Aux::None,
        Aux::OpenFailed,
        Aux::CorruptData,
        Aux::NoReplicas,
        Aux::BadGuidSum,
        Aux::TooSmall,
        Aux::BadLabel,
        Aux::VersionNewer,
        Aux::UnsupFeat,
        Aux::Active,
        Aux::Spared,
        Aux::ErrExceeded,
        Aux::BadLog,
        Aux::External,
        Aux::SplitPool,
        Aux::ChildrenOffline,
        Aux::BadAshift,
    ];

    /// The word in the STATE column.
    pub fn name(self) -> &'static str {
        self.state.word(self.aux)
    }
}

impl VdevState {
    /// Its number in events. OpenZFS has two states below: unknown, and closed, which is called as offline is.
    pub fn number(self) -> u64 {
        2 + self as u64
    }

    /// The word for a number in an event.
    pub fn word_of(number: u64) -> &'static str {
        let number = if number == 1 { VdevState::Offline.number() } else { number };
        let known = Health::STATES.iter().find(|state| state.number() == number);
        known.map_or("UNKNOWN", |state| state.word(Aux::None))
    }

    /// The word in the STATE column.
    pub fn word(self, aux: Aux) -> &'static str {
        match (self, aux) {
            (VdevState::Offline, _) => "OFFLINE",
            (VdevState::Removed, _) => "REMOVED",
            (VdevState::Unavail, Aux::CorruptData | Aux::BadLog) => "FAULTED",
            (VdevState::Unavail, Aux::SplitPool) => "SPLIT",
            (VdevState::Unavail, _) => "UNAVAIL",
            (VdevState::Faulted, _) => "FAULTED",
            (VdevState::Degraded, _) => "DEGRADED",
            (VdevState::Healthy, _) => "ONLINE",
        }
    }

    /// Its name in JSON.
    pub fn json_name(self) -> &'static str {
        match self {
            VdevState::Offline => "OFFLINE",
            VdevState::Removed => "REMOVED",
            VdevState::Unavail => "CANT_OPEN",
            VdevState::Faulted => "FAULTED",
            VdevState::Degraded => "DEGRADED",
            VdevState::Healthy => "ONLINE",
        }
    }
}

impl Aux {
    /// What is said behind the state; empty if there is nothing to say.
    pub fn words(self) -> &'static str {
        match self {
            Aux::None => "",
            Aux::OpenFailed => "cannot open",
            Aux::CorruptData | Aux::TooSmall => "corrupted data",
            Aux::NoReplicas => "insufficient replicas",
            Aux::BadGuidSum => "missing device",
            Aux::BadLabel => "invalid label",
            Aux::VersionNewer => "newer version",
            Aux::UnsupFeat => "unsupported feature(s)",
            Aux::Active | Aux::Spared => "currently in use",
            Aux::ErrExceeded => "too many errors",
            Aux::BadLog => "bad intent log",
            Aux::External => "external device fault",
            Aux::SplitPool => "split into new pool",
            Aux::ChildrenOffline => "all children offline",
            Aux::BadAshift => "unsupported minimum blocksize",
        }
    }

    /// Its name in JSON.
    pub fn json_name(self) -> &'static str {
        match self {
            Aux::None => "NONE",
            Aux::OpenFailed => "OPEN_FAILED",
            Aux::CorruptData => "CORRUPT_DATA",
            Aux::NoReplicas => "NO_REPLICAS",
            Aux::BadGuidSum => "BAD_GUID_SUM",
            Aux::TooSmall => "TOO_SMALL",
            Aux::BadLabel => "BAD_LABEL",
            Aux::VersionNewer => "VERSION_NEWER",
            Aux::UnsupFeat => "UNSUP_FEAT",
            Aux::Active => "ACTIVE",
            Aux::Spared => "SPARED",
            Aux::ErrExceeded => "ERR_EXCEEDED",
            Aux::BadLog => "BAD_LOG",
            Aux::External => "EXTERNAL",
            Aux::SplitPool => "SPLIT_POOL",
            Aux::ChildrenOffline => "CHILDREN_OFFLINE",
            Aux::BadAshift => "BAD_ASHIFT",
        }
    }
}

/// A [`Health`] that changes while others look.
#[derive(Debug)]
pub(crate) struct HealthCell(AtomicU16);

impl HealthCell {
    pub(crate) fn new(health: Health) -> HealthCell {
        HealthCell(AtomicU16::new(HealthCell::pack(health)))
    }

    pub(crate) fn get(&self) -> Health {
        let [state, aux] = self.0.load(Ordering::Relaxed).to_le_bytes();
        Health::new(Health::STATES[usize::from(state)], Health::AUXES[usize::from(aux)])
    }

    pub(crate) fn set(&self, health: Health) {
        self.0.store(HealthCell::pack(health), Ordering::Relaxed);
    }

    fn pack(health: Health) -> u16 {
        u16::from_le_bytes([health.state as u8, health.aux as u8])
    }
}

/// What a vdev has done and what went wrong since the pool was opened.
///
/// A leaf counts what is asked of its device. Another top-level vdev counts blocks that were read and
/// written, without parity and copies. Vdevs between the two count nothing.
#[derive(Debug, Default)]
pub struct VdevStats {
    /// Reads.
    pub reads: AtomicU64,
    /// Bytes of them.
    pub read_bytes: AtomicU64,
    /// Reads that failed.
    pub read_errors: AtomicU64,
    /// Writes.
    pub writes: AtomicU64,
    /// Bytes of them.
    pub write_bytes: AtomicU64,
    /// Writes and flushes that failed.
    pub write_errors: AtomicU64,
    /// Reads that gave wrong bytes.
    pub checksum_errors: AtomicU64,
    /// Bytes that were wrong, and have been written anew since the last scan began, or the pool was opened.
    pub healed_bytes: AtomicU64,
    /// How long the requests to the device took.
    pub meter: Meter,
}

impl VdevStats {
    /// The numbers of the READ, WRITE and CKSUM columns.
    pub fn errors(&self) -> [u64; 3] {
        [&self.read_errors, &self.write_errors, &self.checksum_errors].map(|n| n.load(Ordering::Relaxed))
    }

    /// Sets the numbers of those columns to 0.
    pub(crate) fn clear_errors(&self) {
        for count in [&self.read_errors, &self.write_errors, &self.checksum_errors] {
            count.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a read of `bytes`.
    pub(crate) fn count_read(&self, bytes: u64) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a write of `bytes`.
    pub(crate) fn count_write(&self, bytes: u64) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.write_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts one more.
    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_number_states_as_openzfs_does() {
        let words = (0..9).map(VdevState::word_of).collect::<Vec<_>>();
        let expected =
            ["UNKNOWN", "OFFLINE", "OFFLINE", "REMOVED", "UNAVAIL", "FAULTED", "DEGRADED", "ONLINE", "UNKNOWN"];
        assert_eq!(words, expected);
        assert_eq!((VdevState::Offline.number(), VdevState::Healthy.number()), (2, 7));
    }

    #[test]
    fn cells_keep_every_state() {
        let cell = HealthCell::new(Health::HEALTHY);
        assert_eq!(cell.get(), Health::HEALTHY);
        for state in Health::STATES {
            for aux in Health::AUXES {
                cell.set(Health::new(state, aux));
                assert_eq!(cell.get(), Health::new(state, aux));
            }
        }
    }
}
