//! What is known of the limits of users, groups and projects, as of the latest group on disk.

use std::collections::HashMap;

use base::{Mutex, Result};
use dsl::accounting::{Counted, Owner};
use format::ids::{DatasetId, Txg};

/// What a limit is for: users, groups or projects, what is counted of them, and the number of one of them.
type Limited = (Owner, Counted, u64);

/// What is known of the limits in a head.
#[derive(Default)]
struct KnownLimits {
    /// Whether there are any; `None` if that was not looked up since they were changed.
    any: Option<bool>,
    /// Limits that are reached, or not, as of that group.
    txg: Txg,
    used_up: HashMap<Limited, bool>,
}

/// The limits in a pool's heads, by the object of the dataset.
#[derive(Default)]
pub(super) struct OwnerLimits(Mutex<HashMap<DatasetId, KnownLimits>>);

impl OwnerLimits {
    /// Whether there are any in a head; `find` looks them up if that is not known.
    pub(super) fn has_any(&self, id: DatasetId, find: impl FnOnce() -> Result<bool>) -> Result<bool> {
        if let Some(any) = self.0.lock().get(&id).and_then(|known| known.any) {
            return Ok(any);
        }
        let any = find()?;
        self.0.lock().entry(id).or_default().any = Some(any);
        Ok(any)
    }

    /// Whether one is reached as of group `txg`; `find` looks it up if that is not known.
    pub(super) fn is_used_up(
        &self,
        id: DatasetId,
        txg: Txg,
        what: Limited,
        find: impl FnOnce() -> Result<bool>,
    ) -> Result<bool> {
        let known = self.0.lock().get(&id).filter(|known| known.txg == txg).and_then(|k| k.used_up.get(&what).copied());
        if let Some(used_up) = known {
            return Ok(used_up);
        }
        let used_up = find()?;
        let mut limits = self.0.lock();
        let known = limits.entry(id).or_default();
        if known.txg != txg {
            known.txg = txg;
            known.used_up.clear();
        }
        known.used_up.insert(what, used_up);
        Ok(used_up)
    }

    /// Changes limits of a head, one thread at a time: so a table is made once.
    pub(super) fn change(&self, id: DatasetId, change: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut limits = self.0.lock();
        change()?;
        limits.remove(&id);
        Ok(())
    }

    /// Forgets what is known of a head.
    pub(super) fn forget(&self, id: DatasetId) {
        self.0.lock().remove(&id);
    }
}
