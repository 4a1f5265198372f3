//! What the states of leaves mean for the vdevs above them: these have no state of their own.
//!
//! ```text
//!   mirror         one side that works is enough
//!   raidz, draid   as many may be gone as there is parity
//!   root           none may be gone, but for vdevs for logs
//! ```

use format::ids::Txg;

use crate::dtl::TxgRanges;
use crate::health::{Aux, Health, VdevState};
use crate::spec::VdevKind;
use crate::tree::Tree;
use crate::vdev::{LeafVdev, Placement, Vdev, VdevId};

impl Tree {
    /// The state of a vdev, which for those with others below follows from theirs: from their states alone, so that a
    /// mirror of which one side is stale ([`Tree::is_stale`]) is healthy, as OpenZFS has it.
    pub fn health(&self, id: VdevId) -> Health {
        let vdev = self.vdev(id);
        if let Some(leaf) = vdev.leaf_state() {
            return leaf.health();
        }
        if vdev.kind() == VdevKind::Missing {
            return Health::new(VdevState::Unavail, Aux::BadGuidSum);
        }
        let (mut gone, mut degraded, mut offline, mut corrupt) = (0, 0, 0, false);
        for &child in vdev.children() {
            let (health, child) = (self.health(child), self.vdev(child));
            // what was removed has no say
            if matches!(child.kind(), VdevKind::Indirect | VdevKind::Hole) {
                continue;
            }
            offline += usize::from(health.state == VdevState::Offline);
            corrupt |= health.aux == Aux::CorruptData;
            match health.state {
                VdevState::Healthy => {}
                VdevState::Degraded => degraded += 1,
                // a pool without its log can be opened, without what is in the log
                _ if vdev.kind() == VdevKind::Root && child.is_log() => degraded += 1,
                _ => gone += 1,
            }
        }
        let count = vdev.children().len();
        match vdev.place() {
            Placement::Copies if offline == count => Health::new(VdevState::Offline, Aux::ChildrenOffline),
            _ if gone > bearable(vdev) && vdev.kind() == VdevKind::Root && corrupt => {
                Health::new(VdevState::Unavail, Aux::CorruptData)
            }
            _ if gone > bearable(vdev) => Health::new(VdevState::Unavail, Aux::NoReplicas),
            _ if gone + degraded > 0 => Health::new(VdevState::Degraded, Aux::None),
            _ => Health::HEALTHY,
        }
    }

    /// Whether a leaf that is used lacks what others beside it have: it awaits a resilver. A leaf that is alone, or
    /// is being replaced, has its own state for that.
    pub fn is_stale(&self, vdev: &Vdev) -> bool {
        let has_others = vdev.parent().is_some_and(|parent| {
            matches!(
                self.vdev(parent).kind(),
                VdevKind::Mirror | VdevKind::Spare | VdevKind::Raidz { .. } | VdevKind::Draid(_)
            )
        });
        has_others && vdev.leaf_state().is_some_and(|leaf| leaf.is_usable() && !leaf.dtl().is_empty())
    }

    /// Whether everything that was ever written to the leaf's top-level vdev can be read from other leaves.
    pub fn can_do_without(&self, leaf: LeafVdev<'_>) -> bool {
        let top = self.top_of(leaf.vdev());
        let missing: Vec<(VdevId, TxgRanges)> =
            self.leaves_of(top.id()).iter().map(|leaf| (leaf.id(), leaf.state().dtl().missing())).collect();
        let starts = missing.iter().flat_map(|(_, txgs)| txgs.iter().map(|range| range.start));
        // what leaves lack changes only where a range begins or ends, and most are lacked where one begins
        starts.chain([Txg::MAX]).all(|txg| {
            let lacks = |vdev: &Vdev| missing.iter().any(|(id, txgs)| *id == vdev.id() && txgs.contains(txg));
            self.survives(top, &|other| other.id() == leaf.id() || lacks(&other))
        })
    }

    /// Whether what is on `vdev` can be read without the leaves that are lost, and those that cannot be used.
    pub(crate) fn survives(&self, vdev: &Vdev, is_lost: &dyn Fn(LeafVdev<'_>) -> bool) -> bool {
        let is_usable = || vdev.leaf_state().is_some_and(|leaf| leaf.is_usable());
        let lost = || vdev.children().iter().filter(|&&child| !self.survives(self.vdev(child), is_lost)).count();
        match vdev.place() {
            Placement::Device => is_usable() && !vdev.as_leaf().is_some_and(is_lost),
            Placement::Copies | Placement::Raidz(_) | Placement::Draid(_) => lost() <= bearable(vdev),
            Placement::DraidSpare { .. } => is_usable(),
            Placement::Indirect(_) | Placement::None => true,
        }
    }
}

/// How many of the vdevs below may be gone.
fn bearable(vdev: &Vdev) -> usize {
    match vdev.place() {
        Placement::Copies => vdev.children().len().saturating_sub(1),
        Placement::Raidz(geometry) => geometry.nparity,
        Placement::Draid(layout) => layout.nparity(),
        _ => 0,
    }
}
