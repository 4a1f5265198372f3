//! The receives that are on their way, and how far they are.

use std::collections::{HashMap, HashSet};

use base::{Mutex, Result};
use dsl::write::{Change, ReceivePoint};
use format::ids::{DatasetId, Txg};

/// Where receives are, as of each of the two groups in memory.
type Points = [Option<(Txg, ReceivePoint)>; 2];

/// The receives of a pool that are on their way, by the dataset that takes what comes.
#[derive(Default)]
pub(super) struct Receives {
    active: Mutex<HashSet<DatasetId>>,
    points: Mutex<HashMap<DatasetId, Points>>,
}

impl Receives {
    pub(super) fn begin(&self, id: DatasetId) {
        self.active.lock().insert(id);
    }

    pub(super) fn is_active(&self, id: DatasetId) -> bool {
        self.active.lock().contains(&id)
    }

    pub(super) fn note(&self, id: DatasetId, txg: Txg, point: ReceivePoint) {
        self.points.lock().entry(id).or_default()[txg.slot(2)] = Some((txg, point));
    }

    /// Writes how far a receive has come with a group.
    pub(super) fn save(&self, change: &Change<'_>, id: DatasetId) -> Result<()> {
        let txg = change.tx.txg();
        let point = self.points.lock().get_mut(&id).and_then(|points| points[txg.slot(2)].take());
        match point {
            Some((of, point)) if of == txg => dsl::write::save_receive_point(change, id, point),
            _ => Ok(()),
        }
    }

    pub(super) fn end(&self, id: DatasetId) {
        self.active.lock().remove(&id);
        self.points.lock().remove(&id);
    }
}
