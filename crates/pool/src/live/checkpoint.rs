//! The checkpoint of a pool: a group that it can return to, whatever happens after it.
//!
//! ```text
//!   checkpoint ─▶ first task of a group: the uberblock of the last one goes into the object directory
//!   from then on: what is freed, and was born up to that group, stays allocated; the vdev's map tells of it as freed
//!                 (`zio::alloc::Allocator::release`, `space_maps`)
//!   discard ────▶ first task: the uberblock goes ─▶ job: what the vdevs' maps tell is freed, from their ends on
//!   rewind  ────▶ import writes the uberblock again, as that of the newest group (`import`)
//! ```
//!
//! So that nothing that the checkpoint has is on a device that left, none leaves while there is one, and the pool keeps
//! its guid.
//!
//! Source: the behaviour of OpenZFS, and what its pools have on disk.

use base::{Error, Kind, Result};
use dmu::zap::ZapValue;
use dsl::write::feature;
use format::feature::{RAIDZ_EXPANSION, SPACEMAP_V2, ZPOOL_CHECKPOINT};
use format::space_map;
use format::uberblock::Uberblock;
use vdev::spec::TopSpec;

use super::checkpoint_stage::CheckpointStage;
use super::{LivePool, SyncContext};
use crate::FeatureState;
use crate::mos::{CHECKPOINT, DIRECTORY};

/// Maps of a discarded checkpoint are cut so many times in one group at most.
const CUTS_PER_TXG: usize = 4;

impl LivePool {
    /// Keeps the state that the pool has now. Errors: `Exists` if there is a checkpoint, or one is being
    /// discarded; `Unsupported` if the pool lacks the feature; `TooBig` if it would need one more for its maps; those of
    /// writing.
    pub fn checkpoint(&self) -> Result<()> {
        let _alone = self.change_vdevs_alone();
        self.refuse_with_checkpoint()?;
        self.refuse_with_removal()?;
        self.refuse_with_expansion()?;
        if self.view().features().state(ZPOOL_CHECKPOINT) == FeatureState::Disabled || !self.maps().can_keep() {
            return Err(Error::new(Kind::Unsupported, "operation not supported on this type of pool"));
        }
        if self.view().features().state(SPACEMAP_V2) == FeatureState::Disabled {
            let is_too_large = |spec: &TopSpec| !space_map::has_short_offsets(spec.asize, spec.ashift);
            if self.tree().tops().filter_map(|top| top.top_spec()).any(is_too_large) {
                return Err(Error::new(Kind::TooBig, "device exceeds supported size"));
            }
        }
        // what waits now shall be in it
        self.sync()?;
        self.run_first(|context| context.begin_checkpoint())
    }

    /// Gives the checkpoint up; what only it has is freed in groups to come. Errors: `NotFound` if there is none,
    /// `Exists` if it is being discarded; those of writing.
    pub fn discard_checkpoint(&self) -> Result<()> {
        self.run_first(|context| {
            let pool = context.pool;
            match pool.checkpoint_state().get() {
                CheckpointStage::None => return Err(Error::new(Kind::NotFound, "checkpoint does not exist")),
                CheckpointStage::Discarded => return Err(being_discarded()),
                CheckpointStage::Of(_) => {}
            }
            context.change.remove(DIRECTORY, CHECKPOINT)?;
            pool.cache().zio().allocator()?.set_checkpoint(None);
            pool.checkpoint_state().replace(CheckpointStage::Discarded);
            context.log_event("spa discard checkpoint", "started discarding checkpointed state from the pool");
            Ok(())
        })
    }

    /// Refuses what a pool could not return from. Errors: `Exists` if there is a checkpoint, or one is being discarded.
    pub(super) fn refuse_with_checkpoint(&self) -> Result<()> {
        match self.checkpoint_state().get() {
            CheckpointStage::None => Ok(()),
            CheckpointStage::Of(_) => Err(Error::new(Kind::Exists, "checkpoint exists")),
            CheckpointStage::Discarded => Err(being_discarded()),
        }
    }
}

impl SyncContext<'_> {
    fn begin_checkpoint(&self) -> Result<()> {
        let pool = self.pool;
        pool.refuse_with_checkpoint()?;
        pool.refuse_with_removal()?;
        pool.refuse_with_expansion()?;
        let newest = pool.config().uberblock.clone();
        let newest = newest.ok_or_else(|| Error::new(Kind::Invalid, "the pool has no state yet"))?;
        let txg = newest.txg;
        let mut words = Uberblock { checkpoint_txg: txg, ..newest }.words();
        if feature::uses(&self.change, RAIDZ_EXPANSION)?.is_none() {
            words.truncate(Uberblock::WORDS_BEFORE_EXPANSION);
        }
        self.change.set(DIRECTORY, CHECKPOINT, &ZapValue::new(8, &words))?;
        feature::count(&self.change, ZPOOL_CHECKPOINT, 1)?;
        pool.cache().zio().allocator()?.set_checkpoint(Some(txg));
        pool.checkpoint_state().replace(CheckpointStage::Of(txg));
        self.log_event("spa checkpoint", &format!("checkpointed uberblock txg={txg}"));
        Ok(())
    }

    /// Frees some of what a checkpoint had that is being discarded.
    pub(super) fn step_discard(&self) -> Result<()> {
        let (maps, allocator) = (self.pool.maps(), self.pool.cache().zio().allocator()?);
        for _ in 0..CUTS_PER_TXG {
            let Some(top) = maps.tops_with_kept().first().copied() else {
                feature::count(&self.change, ZPOOL_CHECKPOINT, -1)?;
                self.pool.checkpoint_state().replace(CheckpointStage::None);
                self.log_event("spa discard checkpoint", "finished discarding checkpointed state from the pool");
                return Ok(());
            };
            for range in maps.take_kept(&self.change, top)? {
                if let Err(error) = allocator.free_range(self.change.tx.txg(), top, range) {
                    tracing::error!(pool = self.pool.name(), %top, "of the checkpoint something stays: {error}");
                }
            }
        }
        Ok(())
    }
}

fn being_discarded() -> Error {
    Error::new(Kind::Exists, "currently discarding checkpoint")
}
