//! What is known of the removal of a vdev while the pool is open; see [`super`].

use std::collections::BTreeSet;

use base::{Mutex, MutexGuard, Result};
use format::ids::{Txg, VdevNumber};
use format::removal::{CONDENSING, CondensingPhys, REMOVING, RemovalPhys};
use format::scan::ScanState;

use crate::{Pool, object_directory};

/// The last removal of a vdev, which may be under way.
#[derive(Default)]
pub(crate) struct RemovalState {
    memory: Mutex<RemovalInMemory>,
    condensing: CondensingState,
}

/// See [`RemovalState`].
#[derive(Default)]
pub(crate) struct RemovalInMemory {
    /// As the MOS has it.
    pub(crate) phys: Option<RemovalPhys>,
    /// Something failed, and may work by now only if somebody says so.
    pub(crate) is_stalled: bool,
    /// The task that ends it waits for its group.
    pub(crate) is_ending: bool,
    /// The last group in which something was copied, and the vdevs that it was copied to.
    pub(crate) last: Option<(Txg, BTreeSet<VdevNumber>)>,
}

impl RemovalState {
    pub(crate) fn lock(&self) -> MutexGuard<'_, RemovalInMemory> {
        self.memory.lock()
    }

    /// The table that is being condensed.
    pub(crate) fn condensing(&self) -> &CondensingState {
        &self.condensing
    }

    /// The removal that is under way.
    pub(crate) fn running(&self) -> Option<RemovalPhys> {
        self.lock().phys.filter(|phys| phys.state == ScanState::Running)
    }

    pub(crate) fn stall(&self) {
        self.lock().is_stalled = true;
    }

    pub(crate) fn wake(&self) {
        self.lock().is_stalled = false;
    }
}

/// What a pool that is being opened says of its last removal.
pub(crate) fn last_removal(pool: &Pool) -> Result<Option<RemovalPhys>> {
    let words = object_directory(pool.mos())?.lookup(REMOVING.as_bytes())?;
    Ok(words.and_then(|words| RemovalPhys::parse(&words.u64s())))
}

/// The table that is being condensed.
#[derive(Default)]
pub(crate) struct CondensingState(Mutex<CondensingInMemory>);

#[derive(Default)]
struct CondensingInMemory {
    phys: Option<CondensingPhys>,
    is_stalled: bool,
}

impl CondensingState {
    pub(crate) fn phys(&self) -> Option<CondensingPhys> {
        self.0.lock().phys
    }

    pub(crate) fn set(&self, phys: Option<CondensingPhys>) {
        self.0.lock().phys = phys;
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.0.lock().is_stalled
    }

    pub(crate) fn stall(&self) {
        self.0.lock().is_stalled = true;
    }

    pub(crate) fn wake(&self) {
        self.0.lock().is_stalled = false;
    }
}

/// What a pool that is being opened says of a table that is being condensed.
pub(crate) fn last_condensing(pool: &Pool) -> Result<Option<CondensingPhys>> {
    let words = object_directory(pool.mos())?.lookup(CONDENSING.as_bytes())?;
    words.map(|words| CondensingPhys::parse(&words.u64s())).transpose()
}
