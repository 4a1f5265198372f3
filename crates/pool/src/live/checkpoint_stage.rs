//! What there is of a pool's checkpoint; see [`super::checkpoint`].

use base::{Mutex, Result};
use format::feature::ZPOOL_CHECKPOINT;
use format::ids::Txg;

use crate::mos::checkpointed;
use crate::{FeatureState, Pool};

/// What there is of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CheckpointStage {
    /// Nothing.
    #[default]
    None,
    /// One of that group.
    Of(Txg),
    /// One that is being discarded.
    Discarded,
}

/// The same, while the pool is open.
#[derive(Default)]
pub(super) struct CheckpointState(Mutex<(CheckpointStage, bool)>);

impl CheckpointStage {
    /// That of a pool that is being opened.
    pub(super) fn of(pool: &Pool) -> Result<CheckpointStage> {
        if pool.features().state(ZPOOL_CHECKPOINT) != FeatureState::Active {
            return Ok(CheckpointStage::None);
        }
        Ok(match checkpointed(pool.mos(), pool.uberblock().txg)? {
            Some(uberblock) => CheckpointStage::Of(uberblock.txg),
            None => CheckpointStage::Discarded,
        })
    }

    /// Its group, if it is kept.
    pub(super) fn txg(self) -> Option<Txg> {
        if let CheckpointStage::Of(txg) = self { Some(txg) } else { None }
    }
}

impl CheckpointState {
    pub(super) fn get(&self) -> CheckpointStage {
        self.0.lock().0
    }

    pub(super) fn replace(&self, checkpoint: CheckpointStage) {
        *self.0.lock() = (checkpoint, false);
    }

    /// Whether there is something to be freed that can be found.
    pub(super) fn is_discarding(&self) -> bool {
        *self.0.lock() == (CheckpointStage::Discarded, false)
    }

    /// It cannot be found.
    pub(super) fn stall(&self) {
        self.0.lock().1 = true;
    }

    /// It may be found by now.
    pub(super) fn wake(&self) {
        self.0.lock().1 = false;
    }
}
