//! Changes of the vdevs of a tree, as values: each leads from one shape to the next.
//!
//! ```text
//!   attach   leaf ──▶ mirror ─┬─ leaf         detach   mirror ─┬─ leaf   ──▶  leaf, with the mirror's guid
//!                             └─ new leaf                      └─ leaf
//!   replace  leaf ──▶ replacing ─┬─ leaf      detach   replacing ─┬─ old   ──▶  new
//!            of any vdev         └─ new leaf                      └─ new
//!   spare    leaf ──▶ spare ─┬─ leaf          detach   spare ─┬─ leaf  ──▶  the other one, for good
//!            of any vdev     └─ spare leaf                    └─ spare leaf
//! ```
//!
//! Vdevs that stay take their records along, wherever they are then and whatever their guid is.

use std::collections::HashMap;
use std::sync::Arc;

use base::{Error, Kind as ErrorKind, Result};
use device::Device;
use format::ids::{Guid, ObjectId, Txg, VdevNumber};

use crate::builder::{self, PlannedVdev};
use crate::expansion::Expansion;
use crate::spec::{IndirectSpec, TopSpec, VdevKind, VdevSpec};
use crate::tree::Tree;
use crate::vdev::{Placement, Vdev};

/// A change of the vdevs of a tree.
#[derive(Clone, Debug)]
pub enum Edit {
    /// New top-level vdevs come behind the others.
    Add(Vec<VdevSpec>),
    /// A new leaf comes beside another one: into the vdev of that kind that it is in, or that is made in its place.
    Attach {
        /// Guid of the leaf that is there.
        beside: Guid,
        /// The new one.
        leaf: Box<VdevSpec>,
        /// What the vdev above is that holds both: a mirror, which is a top-level vdev, or one for replacing, or of
        /// a spare.
        above: VdevKind,
        /// Guid of the vdev above if it is to be made.
        above_guid: Guid,
    },
    /// The leaf with that guid leaves the mirror, or the replacing vdev or spare, that it is in. The last one takes the
    /// place of that vdev; if it is a top-level vdev, the leaf has its guid from then on, so that it is found by it.
    Detach(Guid),
    /// The top-level vdev of that number goes, and leaves a hole.
    Remove(VdevNumber),
    /// The address space of the top-level vdev of that number has so many bytes from now on, more than before.
    Grow {
        /// The vdev.
        number: VdevNumber,
        /// Bytes.
        asize: u64,
    },
    /// A raidz gets another child, behind the others: the top-level vdev of that number. Its sectors are to be moved.
    Widen {
        /// The vdev.
        number: VdevNumber,
        /// The new child.
        leaf: Box<VdevSpec>,
    },
    /// They have: from group `since` on blocks are wider.
    FinishWidening {
        /// The vdev.
        number: VdevNumber,
        /// The group.
        since: Txg,
    },
    /// What is on a top-level vdev is about to be copied to others: its number, and the objects of its table.
    BeginMoving(VdevNumber, IndirectSpec),
    /// The table of the removed vdev of that number is in another object.
    SetTable(VdevNumber, ObjectId),
    /// The copying is given up.
    CancelMoving(VdevNumber),
    /// It is done: the vdev of that number is a table from now on.
    FinishMoving {
        /// The vdev.
        number: VdevNumber,
        /// Guid of the vdev that is a table.
        guid: Guid,
        /// The number of the vdev that was removed before this one.
        previous: Option<VdevNumber>,
    },
}

impl Tree {
    /// Makes a change. New leaves have their devices in `devices`, by guid. What went, as it was configured at last,
    /// is returned.
    ///
    /// One caller at a time. Errors: `NotFound` if there is no such vdev; `Invalid` if a leaf is in no mirror; `Busy`
    /// if one that is to go has something that no other leaf has; as from [`Tree::open`]. Nothing has changed then.
    pub fn edit(&self, edit: Edit, devices: &HashMap<Guid, Arc<dyn Device>>) -> Result<Option<VdevSpec>> {
        let leaving = match edit {
            Edit::Detach(guid) => Some(self.leaf(guid).ok_or_else(no_such_vdev)?),
            _ => None,
        };
        let mut root = self.plan_of(self.root());
        let gone = change(&mut root, edit)?;
        let number = self.shapes().latest() + 1;
        let vdevs = builder::build(number, root, devices)?;
        // a writer that relies on the old shape has to be done
        let _alone = self.shapes().alone();
        if leaving.is_some_and(|leaf| !self.can_do_without(leaf)) {
            return Err(Error::new(ErrorKind::Busy, "no valid replicas"));
        }
        self.shapes().put(number, vdevs);
        Ok(gone.map(PlannedVdev::into_spec))
    }

    /// What the configuration says of a vdev and all below it, as they are now.
    pub fn spec(&self, vdev: &Vdev) -> VdevSpec {
        self.plan_of(vdev).into_spec()
    }

    fn plan_of(&self, vdev: &Vdev) -> PlannedVdev {
        let mut spec = vdev.spec().clone();
        if let Some(leaf) = spec.leaf.as_mut().filter(|leaf| vdev.device().is_some() && !leaf.has_yielded_path()) {
            leaf.path = Some(vdev.name().to_owned());
        }
        let children = vdev.children().iter().map(|&child| self.plan_of(self.vdev(child)));
        let table = match vdev.place() {
            Placement::Indirect(table) => Some(table.clone()),
            _ => vdev.moving().cloned(),
        };
        PlannedVdev { spec, state: Some(vdev.state().clone()), table, children: children.collect() }
    }
}

/// Changes what is to be the root. Returns what went.
fn change(root: &mut PlannedVdev, edit: Edit) -> Result<Option<PlannedVdev>> {
    match edit {
        Edit::Add(tops) => {
            root.children.extend(tops.into_iter().map(PlannedVdev::new));
            Ok(None)
        }
        Edit::Attach { beside, leaf, above, above_guid } => {
            let both = vdev_for_both(root, beside, above, above_guid)?;
            if let Some(old) = both.children.iter_mut().find(|child| child.spec.guid == beside)
                && let (Some(old), Some(new)) = (&mut old.spec.leaf, &leaf.leaf)
            {
                old.yield_path(new);
            }
            both.children.push(PlannedVdev::new(*leaf));
            both.number_children();
            Ok(None)
        }
        Edit::Detach(guid) => detach(root, guid).map(Some),
        Edit::Remove(number) => {
            let top = top_of_id(root, number)?;
            Ok(Some(std::mem::replace(top, PlannedVdev::new(VdevSpec::hole(number)))))
        }
        Edit::Grow { number, asize } => {
            space_of(root, number)?.asize = asize;
            Ok(None)
        }
        Edit::Widen { number, leaf } => {
            let expansion = &mut space_of(root, number)?.expansion;
            expansion.get_or_insert(Expansion { txgs: Vec::new(), is_running: false }).is_running = true;
            let top = top_of_id(root, number)?;
            top.children.push(PlannedVdev::new(*leaf));
            top.number_children();
            Ok(None)
        }
        Edit::FinishWidening { number, since } => {
            let expansion = space_of(root, number)?.expansion.as_mut().ok_or_else(no_such_vdev)?;
            expansion.txgs.push(since);
            expansion.is_running = false;
            Ok(None)
        }
        Edit::BeginMoving(number, indirect) => {
            let top = space_of(root, number)?;
            (top.removing, top.indirect) = (true, Some(indirect));
            Ok(None)
        }
        Edit::SetTable(number, object) => {
            let indirect = &mut space_of(root, number)?.indirect;
            indirect.as_mut().ok_or_else(no_such_vdev)?.mapping_object = object;
            Ok(None)
        }
        Edit::CancelMoving(number) => {
            let top = space_of(root, number)?;
            (top.removing, top.indirect) = (false, None);
            top_of_id(root, number)?.table = None;
            Ok(None)
        }
        Edit::FinishMoving { number, guid, previous } => {
            let mut left = space_of(root, number)?.clone();
            (left.removing, left.metaslab_array) = (false, ObjectId::NONE);
            left.indirect.iter_mut().for_each(|indirect| indirect.previous = previous);
            let top = top_of_id(root, number)?;
            let table = top.table.take();
            let create_txg = top.spec.create_txg;
            let kind = VdevKind::Indirect;
            let (leaf, children) = (None, Vec::new());
            let spec = VdevSpec { kind, id: number.get(), guid, create_txg, top: Some(left), leaf, children };
            Ok(Some(std::mem::replace(top, PlannedVdev { table, ..PlannedVdev::new(spec) })))
        }
    }
}

/// Takes a leaf out of the mirror, replacing vdev or spare that it is in.
fn detach(root: &mut PlannedVdev, guid: Guid) -> Result<PlannedVdev> {
    root.find(&|vdev| vdev.spec.guid == guid).ok_or_else(no_such_vdev)?;
    let is_above = |vdev: &PlannedVdev| vdev.spec.kind.is_copies() && vdev.has_child(guid);
    let above = root.find(&is_above).ok_or_else(in_no_mirror)?;
    let at = above.children.iter().position(|child| child.spec.guid == guid).ok_or_else(in_no_mirror)?;
    let gone = above.children.remove(at);
    above.number_children();
    for left in above.children.iter_mut().filter_map(|left| left.spec.leaf.as_mut()) {
        gone.spec.leaf.iter().for_each(|gone| left.reclaim_path(gone));
    }
    // a distributed spare is one for as long as there is the draid
    let heir = above.children.last_mut().filter(|last| !matches!(last.spec.kind, VdevKind::DraidSpare { .. }));
    if let Some(leaf) = heir.filter(|_| at == 0).and_then(|heir| heir.spec.leaf.as_mut())
        && above.spec.kind == VdevKind::Spare
    {
        leaf.is_spare = false;
    }
    if above.children.len() == 1
        && let Some(mut last) = above.children.pop()
    {
        last.spec.id = above.spec.id;
        last.table = above.table.take();
        if above.spec.top.is_some() {
            last.spec = VdevSpec { guid: above.spec.guid, top: above.spec.top.take(), ..last.spec };
        }
        *above = last;
    }
    Ok(gone)
}

/// What the top-level vdev of that number says of its space.
fn space_of(root: &mut PlannedVdev, number: VdevNumber) -> Result<&mut TopSpec> {
    top_of_id(root, number)?.spec.top.as_mut().ok_or_else(no_such_vdev)
}

/// The vdev of that kind that a leaf is in, or that is made in its place.
fn vdev_for_both(root: &mut PlannedVdev, leaf: Guid, kind: VdevKind, guid: Guid) -> Result<&mut PlannedVdev> {
    let is_there = |vdev: &PlannedVdev| vdev.spec.kind == kind && vdev.has_child(leaf);
    if root.find(&is_there).is_some() {
        return root.find(&is_there).ok_or_else(no_such_vdev);
    }
    let place = root.find(&|vdev| vdev.spec.guid == leaf && vdev.spec.kind.is_leaf()).ok_or_else(no_such_vdev)?;
    if kind == VdevKind::Mirror && place.spec.top.is_none() {
        return Err(in_no_mirror());
    }
    let above = VdevSpec { kind, guid, top: place.spec.top.take(), leaf: None, ..place.spec.clone() };
    let table = place.table.take();
    let alone = std::mem::replace(place, PlannedVdev { table, ..PlannedVdev::new(above) });
    place.children.push(alone);
    Ok(place)
}

fn top_of_id(root: &mut PlannedVdev, number: VdevNumber) -> Result<&mut PlannedVdev> {
    root.children.iter_mut().find(|top| top.spec.id == number.get()).ok_or_else(no_such_vdev)
}

fn no_such_vdev() -> Error {
    Error::new(ErrorKind::NotFound, "no such device in pool")
}

fn in_no_mirror() -> Error {
    Error::new(ErrorKind::Invalid, "the device is in no mirror")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use format::ids::Guid;

    use super::*;
    use crate::health::{Aux, Health, VdevState};
    use crate::leaf_state::OfflineReason;
    use crate::spec::LeafSpec;
    use crate::vdev::LeafVdev;

    fn vdev(kind: VdevKind, id: u64, guid: u64, children: Vec<VdevSpec>) -> VdevSpec {
        let leaf = kind.is_leaf().then(LeafSpec::default);
        VdevSpec { kind, id, guid: Guid::new(guid), create_txg: Txg::new(4), top: None, leaf, children }
    }

    fn top(mut spec: VdevSpec) -> VdevSpec {
        spec.top = VdevSpec::hole(VdevNumber::new(0)).top.map(|measures| TopSpec { ashift: 9, ..measures });
        spec
    }

    fn open(top_vdev: VdevSpec) -> Tree {
        Tree::open(vdev(VdevKind::Root, 0, 99, vec![top(top_vdev)]), &HashMap::new()).unwrap()
    }

    fn leaf(tree: &Tree, guid: u64) -> LeafVdev<'_> {
        tree.leaf(Guid::new(guid)).unwrap()
    }

    fn detach(leaf: u64) -> Edit {
        Edit::Detach(Guid::new(leaf))
    }

    fn guids(tree: &Tree) -> Vec<(VdevKind, u64, u64)> {
        tree.iter().skip(1).map(|vdev| (vdev.kind(), vdev.number().get(), vdev.guid().get())).collect()
    }

    #[test]
    fn a_leaf_keeps_its_record_under_another_guid() {
        let sides = vec![vdev(VdevKind::File, 0, 1, Vec::new()), vdev(VdevKind::File, 1, 2, Vec::new())];
        let tree = open(vdev(VdevKind::Mirror, 0, 7, sides));
        let no_devices = HashMap::new();
        let (one, two) = (leaf(&tree, 1), leaf(&tree, 2));
        two.state().set_health(Health::HEALTHY);
        one.stats().read_errors.store(5, Ordering::Relaxed);
        one.state().dtl().insert(Txg::new(10)..Txg::new(12));
        one.state().dtl().has_been_written(ObjectId::new(33), one.state().dtl().missing());
        one.state().take_offline(OfflineReason::Faulted, false);
        let before = guids(&tree);
        assert_eq!(tree.edit(detach(2), &no_devices).unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(guids(&tree), before, "nothing has changed");
        one.state().put_online();
        one.state().dtl().remove(Txg::ZERO..Txg::new(99));
        one.state().set_health(Health::HEALTHY);
        two.state().dtl().has_been_written(ObjectId::new(44), two.state().dtl().missing());
        let gone = tree.edit(detach(2), &no_devices).unwrap().unwrap();
        assert_eq!((gone.guid.get(), gone.leaf.unwrap().dtl_object), (2, ObjectId::new(44)));
        assert_eq!(guids(&tree), [(VdevKind::File, 0, 7)]);
        assert!(tree.leaf(Guid::new(1)).is_none() && tree.leaf(Guid::new(2)).is_none());
        let last = leaf(&tree, 7);
        assert_eq!((last.stats().errors(), last.state().dtl().object()), ([5, 0, 0], ObjectId::new(33)));
        assert_eq!(tree.spec(last.vdev()).leaf.unwrap().dtl_object, ObjectId::new(33));
        // what has begun with the old shape goes on with it, and both see what happens to the leaf
        assert_eq!(tree.vdev(one.parent().unwrap()).guid(), Guid::new(7));
        assert_eq!(tree.vdev(one.parent().unwrap()).children().len(), 2);
        last.state().set_health(Health::new(VdevState::Faulted, Aux::ErrExceeded));
        assert_eq!(tree.health(one.id()).state, VdevState::Faulted);
    }

    /// A new leaf on the path of the one that it replaces has the path for itself, until it goes.
    #[test]
    fn one_path_is_one_leafs() {
        let at = |guid, path: &str| {
            let mut new = vdev(VdevKind::File, guid - 1, guid, Vec::new());
            new.leaf = Some(LeafSpec { path: Some(path.to_owned()), ..LeafSpec::default() });
            Box::new(new)
        };
        let sides = vec![vdev(VdevKind::File, 0, 1, Vec::new()), *at(2, "disk")];
        let tree = open(vdev(VdevKind::Mirror, 0, 7, sides));
        let no_devices = HashMap::new();
        let path = |guid| leaf(&tree, guid).name().to_owned();
        let (above, above_guid) = (VdevKind::Replacing, Guid::new(50));
        let replace = |leaf| Edit::Attach { beside: Guid::new(2), leaf, above, above_guid };
        leaf(&tree, 1).state().set_health(Health::HEALTHY);
        tree.edit(replace(at(3, "disk")), &no_devices).unwrap();
        assert_eq!([path(2), path(3)], ["disk/old", "disk"]);
        tree.edit(detach(3), &no_devices).unwrap();
        assert_eq!(path(2), "disk");
        tree.edit(replace(at(4, "elsewhere")), &no_devices).unwrap();
        assert_eq!([path(2), path(4)], ["disk", "elsewhere"]);
    }

    #[test]
    fn leaves_and_vdevs_come_and_go() {
        let tree = open(vdev(VdevKind::File, 0, 1, Vec::new()));
        let no_devices = HashMap::new();
        let edit = |edit| tree.edit(edit, &no_devices).map(|gone| gone.map(|gone| gone.guid.get()));
        let attach = |beside, guid| Edit::Attach {
            beside: Guid::new(beside),
            leaf: Box::new(vdev(VdevKind::File, 0, guid, Vec::new())),
            above: VdevKind::Mirror,
            above_guid: Guid::new(50),
        };
        leaf(&tree, 1).state().set_health(Health::HEALTHY);
        leaf(&tree, 1).stats().read_errors.store(3, Ordering::Relaxed);
        assert_eq!(edit(attach(1, 2)).unwrap(), None);
        assert_eq!(edit(attach(2, 3)).unwrap(), None);
        let sides = [(VdevKind::File, 0, 1), (VdevKind::File, 1, 2), (VdevKind::File, 2, 3)];
        assert_eq!(guids(&tree), [&[(VdevKind::Mirror, 0, 50)], &sides[..]].concat());
        assert!(tree.tops().all(|top| top.top_spec().is_some()) && leaf(&tree, 1).top_spec().is_none());
        assert_eq!(leaf(&tree, 1).stats().errors(), [3, 0, 0]);
        assert_eq!(edit(detach(2)).unwrap(), Some(2));
        assert_eq!(guids(&tree), [(VdevKind::Mirror, 0, 50), (VdevKind::File, 0, 1), (VdevKind::File, 1, 3)]);
        let parity = vdev(
            VdevKind::Raidz { nparity: 1 },
            1,
            60,
            (0..2).map(|i| vdev(VdevKind::File, i, 61 + i, vec![])).collect(),
        );
        assert_eq!(edit(Edit::Add(vec![top(parity)])).unwrap(), None);
        for refused in [attach(61, 9), detach(61)] {
            assert_eq!(edit(refused).unwrap_err().kind(), ErrorKind::Invalid);
        }
        for unknown in [attach(77, 9), detach(77), Edit::Remove(VdevNumber::new(7))] {
            assert_eq!(edit(unknown).unwrap_err().kind(), ErrorKind::NotFound);
        }
        assert_eq!(edit(Edit::Remove(VdevNumber::new(0))).unwrap(), Some(50));
        assert_eq!(guids(&tree)[..2], [(VdevKind::Hole, 0, 0), (VdevKind::Raidz { nparity: 1 }, 1, 60)]);
    }

    #[test]
    fn a_leaf_is_replaced_wherever_it_is() {
        let no_devices = HashMap::new();
        let columns = (1..4).map(|guid| vdev(VdevKind::File, guid - 1, guid, Vec::new())).collect();
        let tree = open(vdev(VdevKind::Raidz { nparity: 1 }, 0, 7, columns));
        let replace = |beside, guid| Edit::Attach {
            beside: Guid::new(beside),
            leaf: Box::new(vdev(VdevKind::File, 0, guid, Vec::new())),
            above: VdevKind::Replacing,
            above_guid: Guid::new(50 + guid),
        };
        tree.leaves().for_each(|leaf| leaf.state().set_health(Health::HEALTHY));
        tree.edit(replace(2, 12), &no_devices).unwrap();
        // the new one fails, and is to be replaced in its turn
        tree.edit(replace(12, 22), &no_devices).unwrap();
        let raidz = (VdevKind::Raidz { nparity: 1 }, 0, 7);
        let file = |number, guid| (VdevKind::File, number, guid);
        let all = [raidz, file(0, 1), (VdevKind::Replacing, 1, 62), file(0, 2), file(1, 12), file(2, 22), file(2, 3)];
        assert_eq!(guids(&tree), all);
        for new in [12, 22] {
            leaf(&tree, new).state().set_health(Health::HEALTHY);
            leaf(&tree, new).state().dtl().insert(Txg::new(4)..Txg::new(9));
        }
        tree.edit(detach(12), &no_devices).unwrap();
        let alone = tree.edit(detach(2), &no_devices).unwrap();
        assert_eq!(alone.map(|gone| gone.guid.get()), Some(2), "raidz bears that a column lacks something");
        assert_eq!(guids(&tree), [raidz, file(0, 1), file(1, 22), file(2, 3)]);
        assert_eq!(tree.edit(detach(22), &no_devices).unwrap_err().kind(), ErrorKind::Invalid);
        // a top-level vdev keeps its guid, and so its number is found
        let tree = open(vdev(VdevKind::File, 0, 1, Vec::new()));
        leaf(&tree, 1).state().set_health(Health::HEALTHY);
        tree.edit(replace(1, 12), &no_devices).unwrap();
        leaf(&tree, 12).state().set_health(Health::HEALTHY);
        leaf(&tree, 12).state().dtl().insert(Txg::new(4)..Txg::new(9));
        assert_eq!(tree.edit(detach(1), &no_devices).unwrap_err().kind(), ErrorKind::Busy);
        leaf(&tree, 12).state().dtl().end_resilver(Txg::ZERO..Txg::new(9));
        tree.edit(detach(1), &no_devices).unwrap();
        assert_eq!(guids(&tree), [(VdevKind::File, 0, 62)]);
    }
}
