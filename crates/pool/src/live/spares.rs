//! Spares: they stand in for leaves that fail, and go home when these are back.
//!
//! ```text
//!   leaf faulted, away, or degraded by errors ─▶ first spare on the list that is free and large enough ─▶ resilver
//!   leaf online again, cleared, or replaced   ─▶ resilver ─▶ the spare is detached, and has a spare's label again
//! ```
//!
//! What is to be done is seen after each group, and done by a thread of its own, which waits for groups. Several pools
//! may have a spare: its label tells which of them uses it, and a pool that uses it has its lock.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{Error, Kind, Result, tunables};
use device::Device;
use format::ids::Guid;
use format::nvlist::NvList;
use vdev::{Aux, LeafVdev, VdevState};

use super::aux_devices::{self, label_as};
use super::device_watch::SpareNeed;
use super::{AttachAs, LivePool, NewLeaf};
use crate::{FoundDevice, LabelKind};

impl LivePool {
    /// From now on spares are used by themselves; `open` opens a device for writing, for nobody else's use. Once only.
    pub fn let_spares_step_in(&self, open: impl Fn(&str) -> Result<Arc<dyn Device>> + Send + Sync + 'static) {
        self.spares().begin(Box::new(open));
    }

    /// Begins what is to be done about spares, if there is something, on another thread.
    pub(super) fn look_after_spares(&self) {
        let has_work = || self.idle_spare().is_some() || self.spares().may_help(&self.in_need(), self.env().now_s());
        if !self.spares().has_begun() || self.suspended().is_some() || !has_work() || !self.spares().begin_work() {
            return;
        }
        let pool = self.weak();
        let work = move || {
            if let Some(pool) = pool.upgrade() {
                pool.use_spares();
                pool.spares().end_work();
            }
        };
        if !self.env().spawn("spares", work) {
            self.spares().end_work();
        }
    }

    /// Leaves that need a spare, and spares that are free.
    fn in_need(&self) -> SpareNeed {
        let is_wanted = self.env().tunable(tunables::CENOTE_ZED) != 0;
        let state_of = |guid: Guid| self.tree().leaf(guid).map(|leaf| leaf.state().health().state);
        let declined = self.spares().declined(&|guid| state_of(guid).is_some_and(|state| state != VdevState::Healthy));
        let in_need = self.tree().leaves().filter(|leaf| is_wanted && self.needs_spare(*leaf));
        let leaves = in_need.map(|leaf| leaf.guid()).filter(|guid| !declined.contains(guid)).collect();
        let spares = self.free_spares().iter().filter_map(|config| config.opt_guid("guid")).collect();
        SpareNeed { leaves, spares }
    }

    /// As [`LivePool::detach`], because somebody wants it: if it is a spare, none steps in again for that leaf until it has
    /// been used again.
    pub fn detach_as_asked(&self, guid: Guid) -> Result<String> {
        let spared = self.spared_by(guid);
        // before it is gone: another thread looks for leaves that need one
        spared.into_iter().for_each(|leaf| self.spares().decline(leaf));
        self.detach(guid).inspect_err(|_| spared.into_iter().for_each(|leaf| self.spares().may_have_one(leaf)))
    }

    /// The leaf that a spare stands in for.
    fn spared_by(&self, spare: Guid) -> Option<Guid> {
        let tree = self.tree();
        let above = tree.vdev(tree.leaf(spare).filter(|leaf| leaf.is_spare())?.parent()?);
        let first = tree.vdev(*above.children().first()?).as_leaf()?;
        (above.kind() == vdev::VdevKind::Spare).then(|| first.guid())
    }

    /// Lets spares stand in for leaves that need one, and sends those home that nobody needs any more. Returns when
    /// groups with that are on disk. What cannot be done is logged.
    pub fn use_spares(&self) {
        let mut tried = BTreeSet::new();
        loop {
            // leaves may fail, and spares come free, at any time
            let need = self.in_need();
            let Some((guid, config)) = self.pair_to_try(&need, &mut tried) else {
                self.spares().note_in_vain(need, self.env().now_s());
                break;
            };
            let path = config.opt_str("path").unwrap_or_default();
            match self.stand_in(guid, &config) {
                Ok(()) => tracing::warn!(pool = self.name(), vdev = %guid, spare = path, "a spare stands in"),
                Err(error) => tracing::warn!(pool = self.name(), vdev = %guid, spare = path, "not used: {error}"),
            }
        }
        while let Some(guid) = self.idle_spare() {
            match self.detach(guid) {
                Ok(path) => {
                    tracing::info!(pool = self.name(), spare = path, "the spare is not needed any more");
                    self.leaf_watch().tell_gone(&path);
                }
                Err(error) => {
                    tracing::warn!(pool = self.name(), vdev = %guid, "the spare stays: {error}");
                    return;
                }
            }
        }
    }

    /// The next leaf and spare that have not been tried with each other.
    fn pair_to_try(&self, need: &SpareNeed, tried: &mut BTreeSet<(Guid, Guid)>) -> Option<(Guid, NvList)> {
        let spares = self.free_spares();
        let listed = |config: &&NvList| config.opt_guid("guid").is_some_and(|guid| need.spares.contains(&guid));
        let spares: Vec<&NvList> = spares.iter().filter(listed).collect();
        let pairs = need.leaves.iter().flat_map(|leaf| spares.iter().map(|spare| (*leaf, *spare)));
        let (leaf, spare) = pairs
            .filter(|(leaf, spare)| self.may_stand_in(*leaf, spare))
            .find(|(leaf, spare)| spare.opt_guid("guid").is_some_and(|spare| tried.insert((*leaf, spare))))?;
        Some((leaf, spare.clone()))
    }

    /// A distributed spare is for the leaves of its draid.
    fn may_stand_in(&self, guid: Guid, config: &NvList) -> bool {
        let leaf = self.tree().leaf(guid);
        let draid = leaf.map(|leaf| self.tree().top_of(leaf.vdev()).guid());
        !is_distributed(config) || draid.is_some() && config.opt_guid("top_guid") == draid
    }

    /// Lets a spare stand in for the leaf with that guid; a distributed one is given everything sequentially, if it can
    /// be.
    fn stand_in(&self, guid: Guid, config: &NvList) -> Result<()> {
        let (spare, path) = (config.guid("guid")?, config.str("path")?);
        if is_distributed(config) {
            let sequentially = self.attach_distributed(guid, config, true);
            return sequentially.or_else(|_| self.attach_distributed(guid, config, false));
        }
        let device = self.spare_device(spare, self.spares().open(path)?)?;
        let new = NewLeaf { path: path.to_owned(), is_file: config.opt_str("type") == Some("file") };
        self.attach(guid, &new, AttachAs::Spare(spare), None, device.clone()).inspect_err(|_| {
            // another pool may want it
            self.leaf_watch().tell_gone(path);
        })
    }

    /// Lets the distributed spare of that name stand in for the leaf with `guid`, which may be given everything
    /// sequentially. `None` if there is none of that name.
    pub fn use_distributed_spare(&self, guid: Guid, name: &str, is_sequential: bool) -> Option<Result<()>> {
        let view = self.view();
        let is_it = |config: &&NvList| is_distributed(config) && config.opt_str("path") == Some(name);
        let config = view.spares().iter().find(is_it)?;
        Some(self.attach_distributed(guid, config, is_sequential))
    }

    /// Whether the spare that is called `name` stands in for the leaf with `guid` already.
    pub fn stands_in(&self, guid: Guid, name: &str) -> bool {
        let above = self.tree().leaf(guid).and_then(|leaf| leaf.parent()).map(|id| self.tree().vdev(id));
        above.filter(|above| above.kind() == vdev::VdevKind::Spare).is_some_and(|above| {
            let leaves = self.tree().leaves_of(above.id());
            leaves.iter().any(|leaf| leaf.is_spare() && leaf.guid() != guid && leaf.name() == name)
        })
    }

    /// The guid of the spare at `path`, if there is one.
    pub fn spare_at(&self, path: &str) -> Option<Guid> {
        let view = self.view();
        view.spares().iter().find(|config| config.opt_str("path") == Some(path))?.opt_guid("guid")
    }

    /// The device, or the partition in it, that has the label of a spare. Errors: `Missing` if it has not; `Busy` if
    /// another pool has it.
    pub fn spare_device(&self, guid: Guid, device: Arc<dyn Device>) -> Result<Arc<dyn Device>> {
        let own_guid = self.config().guid;
        let found = FoundDevice::examine(device.path(), device.clone())?;
        let found = found.into_iter().find(|found| found.guid() == Some(guid));
        let found = found.ok_or_else(|| Error::new(Kind::Missing, "it has not the label of this spare"))?;
        match found.kind() {
            LabelKind::Spare => Ok(found.device),
            LabelKind::Member if found.pool_guid() == Some(own_guid) => Ok(found.device),
            LabelKind::Member | LabelKind::Cache => Err(Error::new(Kind::Busy, "another pool uses the spare")),
        }
    }

    /// The configurations of spares that stand in for no leaf, in the order of the list.
    fn free_spares(&self) -> Vec<NvList> {
        let is_free = |config: &&NvList| config.opt_guid("guid").is_some_and(|guid| self.tree().leaf(guid).is_none());
        self.view().spares().iter().filter(is_free).cloned().collect()
    }

    /// Whether a spare should stand in for a leaf.
    fn needs_spare(&self, leaf: LeafVdev<'_>) -> bool {
        let health = leaf.state().health();
        let has_failed = match health.state {
            VdevState::Faulted | VdevState::Unavail | VdevState::Removed => true,
            VdevState::Degraded => matches!(health.aux, Aux::ErrExceeded | Aux::External),
            VdevState::Healthy | VdevState::Offline => false,
        };
        let tree = self.tree();
        let above = leaf.parent().map(|id| tree.vdev(id));
        let may_have_one = match above {
            Some(above) if above.kind() == vdev::VdevKind::Replacing => false,
            // the spare itself has failed, and nothing else is there
            Some(above) if above.kind() == vdev::VdevKind::Spare => {
                let others = tree.leaves_of(above.id());
                leaf.is_spare() && others.iter().all(|other| !other.state().health().is_readable())
            }
            _ => true,
        };
        has_failed && may_have_one && !tree.top_of(leaf.vdev()).is_log()
    }

    /// A spare that is not needed any more: what it stands in for is back and has everything, or another spare stands
    /// in, too.
    fn idle_spare(&self) -> Option<Guid> {
        let tree = self.tree();
        let is_whole =
            |leaf: LeafVdev<'_>| leaf.state().health().state == VdevState::Healthy && leaf.state().dtl().is_empty();
        tree.iter().filter(|vdev| vdev.kind() == vdev::VdevKind::Spare).find_map(|above| {
            let children: Vec<LeafVdev<'_>> =
                above.children().iter().filter_map(|&id| tree.vdev(id).as_leaf()).collect();
            let (first, last) = (*children.first()?, *children.last()?);
            let is_original = first.id() == tree.vdev(*above.children().first()?).id() && !first.is_spare();
            let idle = match children.len() {
                0 | 1 => return None,
                _ if is_original && first.state().unspare() && is_whole(first) => last,
                2 => return None,
                _ if is_whole(last) => children[1],
                _ => return None,
            };
            (idle.is_spare() && tree.can_do_without(idle)).then(|| idle.guid())
        })
    }

    /// Refuses what is not to be attached beside a leaf that a spare stands in for, or is.
    pub(super) fn check_spares(&self, leaf: LeafVdev<'_>, how: AttachAs) -> Result<()> {
        let new_is_spare = matches!(how, AttachAs::Spare(_));
        let kind_above = leaf.parent().map(|id| self.tree().vdev(id).kind());
        let has_spare = kind_above == Some(vdev::VdevKind::Spare);
        if new_is_spare && self.tree().top_of(leaf.vdev()).is_log() {
            return Err(Error::new(Kind::Unsupported, "cannot replace a log with a spare"));
        }
        // one that replaces another, for which a spare stands in, would have two
        let above = std::iter::successors(leaf.parent(), |id| self.tree().vdev(*id).parent());
        let is_spared = above.skip(1).any(|id| self.tree().vdev(id).kind() == vdev::VdevKind::Spare);
        // below a replacing vdev a spare would have to wait for what nobody brings back
        let is_replaced = kind_above == Some(vdev::VdevKind::Replacing);
        if has_spare && new_is_spare != leaf.is_spare() || (is_spared || is_replaced) && new_is_spare {
            let what = "already in replacing/spare config; wait for completion or use 'zpool detach'";
            return Err(Error::new(Kind::Unsupported, what));
        }
        match how {
            AttachAs::Spare(guid) if self.tree().leaf(guid).is_some() => Err(Error::new(Kind::Busy, "it is in use")),
            _ => Ok(()),
        }
    }

    /// The spare that takes the place of a leaf for good if this is detached.
    pub(super) fn spare_for_good(&self, leaf: LeafVdev<'_>) -> Option<Guid> {
        let above = self.tree().vdev(leaf.parent()?);
        let is_first = above.kind() == vdev::VdevKind::Spare && above.children().first() == Some(&leaf.id());
        let last = self.tree().vdev(*above.children().last()?).as_leaf()?;
        // a distributed spare stays on the list
        let may_leave_list = !matches!(last.vdev().kind(), vdev::VdevKind::DraidSpare { .. });
        (is_first && last.is_spare() && may_leave_list).then(|| last.guid())
    }

    /// The leaf that is to replace another one, for which a spare stands in: it is what the spare waits for.
    pub(super) fn heir_of_spared(&self, guid: Guid) -> Option<Guid> {
        let tree = self.tree();
        let replacing = tree.vdev(tree.leaf(guid)?.parent()?);
        let above = tree.vdev(replacing.parent()?);
        let is_spared = replacing.kind() == vdev::VdevKind::Replacing
            && above.kind() == vdev::VdevKind::Spare
            && above.children().first() == Some(&replacing.id());
        let heir = tree.vdev(*replacing.children().last()?);
        (is_spared && heir.guid() != guid).then(|| heir.guid())
    }

    /// A spare has left the tree: its label is that of a spare again. That this fails harms no pool.
    pub(super) fn send_home(&self, leaf: LeafVdev<'_>) {
        let Some(device) = leaf.device() else { return };
        if let Err(error) = label_as(aux_devices::AuxKind::Spare, leaf.guid(), device) {
            tracing::warn!(pool = self.name(), vdev = leaf.name(), "it is not labelled as a spare: {error}");
        }
    }

    /// A leaf is used again: a spare that stands in for it is to go, sooner or later.
    pub(super) fn expect_spare_home(&self, leaf: LeafVdev<'_>) {
        let is_first =
            |above: &vdev::Vdev| above.kind() == vdev::VdevKind::Spare && above.children().first() == Some(&leaf.id());
        if leaf.state().health().is_readable() && leaf.parent().is_some_and(|id| is_first(self.tree().vdev(id))) {
            leaf.state().set_unspare(true);
        }
    }
}

/// Whether a spare is spread over the leaves of a draid.
fn is_distributed(config: &NvList) -> bool {
    config.opt_str("type") == Some("dspare")
}
