//! Disks of a raidz or draid that are much slower than the others sit out: what they have is reconstructed from others.
//!
//! ```text
//!   times of reads since the last look ─▶ is one far above most? ─▶ in some looks running ─▶ it sits out for a while
//! ```
//!
//! Property `autosit` of the top-level vdev lets that happen by itself; `sit_out` of a leaf says that it does, or has it
//! do so. At most as many leaves of a vdev as it has parity sit out, or are away.

use base::{Error, Kind, Result, tunables};
use dsl::PropertyValue;
use format::ids::Guid;
use vdev::{LeafVdev, Vdev};

use super::LivePool;
use super::vdevs::not_of_this_type;

/// The property of top-level vdevs.
pub(super) const AUTOSIT: &str = "autosit";

impl LivePool {
    /// Lets a leaf sit out until it is told otherwise. Errors: `NotFound`; `Unsupported` if it is none below a raidz or
    /// draid, or no more of them can do without being read.
    pub fn set_sit_out(&self, guid: Guid, is_on: bool) -> Result<()> {
        let leaf = self.leaf_or(guid, not_of_this_type)?;
        let top = self.tree().top_of(leaf.vdev());
        if top.kind().nparity() == 0 {
            return Err(not_of_this_type());
        }
        if is_on && leaf.state().sits_out_until_s() == 0 && !self.may_sit_out(top) {
            return Err(Error::new(Kind::Unsupported, "too many disks already sitting out"));
        }
        leaf.state().sit_out(if is_on { u64::MAX } else { 0 });
        Ok(())
    }

    /// Refuses `autosit` for what is no raidz or draid. Errors: `Unsupported`.
    pub(super) fn check_autosit(&self, guid: Guid) -> Result<()> {
        match self.tree().tops().any(|top| top.guid() == guid && top.kind().nparity() > 0) {
            true => Ok(()),
            false => Err(not_of_this_type()),
        }
    }

    /// Takes up which top-level vdevs let slow leaves sit out.
    pub(super) fn take_up_autosit(&self) -> Result<()> {
        let view = self.view();
        let mut by_itself = Vec::new();
        for top in self.tree().tops().filter(|top| top.kind().nparity() > 0) {
            let stored = view.vdev_properties(top)?;
            if stored.iter().any(|(name, value)| name == AUTOSIT && *value == PropertyValue::Number(1)) {
                by_itself.push(top.number());
            }
        }
        self.sit_out().take_up(by_itself);
        Ok(())
    }

    /// Looks at how fast leaves are, if it is time for that, and ends what has lasted long enough.
    pub(super) fn look_for_slow_leaves(&self) {
        let (env, now_s) = (self.env(), self.env().now_s());
        let is_over = |leaf: &LeafVdev<'_>| (1..=now_s).contains(&leaf.state().sits_out_until_s());
        self.tree().leaves().filter(is_over).for_each(|leaf| leaf.state().sit_out(0));
        let seconds = env.tunable(tunables::VDEV_READ_SIT_OUT_SECS);
        let every_ns = env.tunable(tunables::VDEV_RAIDZ_OUTLIER_CHECK_INTERVAL_MS).saturating_mul(1_000_000);
        let tops = if seconds == 0 { Vec::new() } else { self.sit_out().due(env.ticks_ns(), every_ns) };
        for top in tops.into_iter().filter_map(|number| self.tree().top(number).ok()) {
            let leaves = self.tree().leaves_of(top.id());
            let reads: Vec<_> = leaves.iter().map(|leaf| (leaf.guid(), leaf.stats().meter.disks()[0])).collect();
            let slow = self.sit_out().slow_leaves(&reads, env.tunable(tunables::VDEV_RAIDZ_OUTLIER_INSENSITIVITY));
            for leaf in leaves.into_iter().filter(|leaf| slow.contains(&leaf.guid())) {
                if self.may_sit_out(top) {
                    tracing::warn!(pool = self.name(), vdev = leaf.name(), seconds, "slow, and not read for a while");
                    leaf.state().sit_out(now_s.saturating_add(seconds));
                    self.report("sitout", leaf, None);
                }
            }
        }
    }

    /// Whether one more leaf of a vdev can do without being read.
    fn may_sit_out(&self, top: &Vdev) -> bool {
        let is_out = |leaf: &&LeafVdev<'_>| {
            let state = leaf.state();
            state.sits_out_until_s() > 0 || !state.health().is_readable() || !state.dtl().is_empty()
        };
        self.tree().leaves_of(top.id()).iter().filter(is_out).count() < top.kind().nparity()
    }
}
