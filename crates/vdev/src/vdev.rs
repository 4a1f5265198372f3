//! One vdev, in one shape of a tree.
//!
//! Where it is in the tree, and what the configuration said of it, belong to the shape and never change. What does
//! change goes with it from shape to shape: a leaf's record, another vdev's counters.

use std::ops::Deref;
use std::sync::Arc;

use device::{Device, DeviceSlot};
use format::ids::{Guid, VdevNumber};

use crate::draid::DraidLayout;
use crate::health::VdevStats;
use crate::indirect::MappingTable;
use crate::leaf_state::LeafState;
use crate::raidz::RaidzGeometry;
use crate::spec::{LeafSpec, TopSpec, VdevKind, VdevSpec};

/// A vdev of a [`crate::Tree`]: its shape, and the index in that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VdevId {
    pub(crate) shape: usize,
    pub(crate) index: usize,
}

/// One vdev of a [`crate::Tree`].
#[derive(Debug)]
pub struct Vdev {
    id: VdevId,
    parent: Option<VdevId>,
    children: Vec<VdevId>,
    /// As configured, without what is below it.
    spec: VdevSpec,
    name: String,
    place: Placement,
    /// Where copies are of what is on it, while it is being removed.
    moving: Option<MappingTable>,
    /// Whether it is a raidz or draid, or one is below it.
    has_parity: bool,
    state: VdevRecord,
}

/// What a vdev keeps from one shape to the next.
#[derive(Clone, Debug)]
pub(crate) enum VdevRecord {
    /// Of a leaf.
    Leaf(Arc<LeafState>),
    /// Of another one.
    Inner(Arc<VdevStats>),
}

/// How a vdev finds bytes.
#[derive(Debug)]
pub(crate) enum Placement {
    /// On its device.
    Device,
    /// The same on each child.
    Copies,
    /// Dealt over the children.
    Raidz(RaidzGeometry),
    /// Permuted over the children.
    Draid(DraidLayout),
    /// On the children of that draid.
    DraidSpare {
        /// The draid.
        draid: VdevId,
        /// Which of its spares.
        spare: usize,
    },
    /// On other top-level vdevs; empty until the table has been read.
    Indirect(MappingTable),
    /// Nowhere.
    None,
}

impl Vdev {
    /// A vdev that has no others below it yet. A leaf that has been found is called by the path of its device.
    pub(crate) fn new(id: VdevId, parent: Option<VdevId>, spec: VdevSpec, place: Placement, state: VdevRecord) -> Vdev {
        let has_parity = matches!(place, Placement::Raidz(_) | Placement::Draid(_));
        let name = spec.name();
        let (children, moving) = (Vec::new(), None);
        let mut vdev = Vdev { id, parent, children, name, spec, place, moving, has_parity, state };
        let has_yielded = vdev.spec.leaf.as_ref().is_some_and(LeafSpec::has_yielded_path);
        if let Some(device) = vdev.device().filter(|_| !has_yielded) {
            vdev.name = device.path().to_owned();
        }
        vdev
    }

    /// Another vdev is below it, behind those that are.
    pub(crate) fn add_child(&mut self, id: VdevId, has_parity: bool) {
        self.children.push(id);
        self.has_parity |= has_parity;
    }

    /// Says that it is being removed, and where copies are of what is on it.
    pub(crate) fn set_moving(&mut self, table: MappingTable) {
        self.moving = Some(table);
    }

    /// Where copies are of what is on it, if it is being removed.
    pub(crate) fn moving(&self) -> Option<&MappingTable> {
        self.moving.as_ref()
    }

    /// Says how a vdev finds bytes whose place depends on others.
    pub(crate) fn set_place(&mut self, place: Placement) {
        self.place = place;
    }

    /// Its id in the tree.
    pub fn id(&self) -> VdevId {
        self.id
    }

    /// What it is.
    pub fn kind(&self) -> VdevKind {
        self.spec.kind
    }

    /// Unique id.
    pub fn guid(&self) -> Guid {
        self.spec.guid
    }

    /// Of a top-level vdev, its number; of others, which of the children above it is.
    pub fn number(&self) -> VdevNumber {
        VdevNumber::new(self.spec.id)
    }

    /// The vdev above; none above the root.
    pub fn parent(&self) -> Option<VdevId> {
        self.parent
    }

    /// The vdevs below, in order.
    pub fn children(&self) -> &[VdevId] {
        &self.children
    }

    /// What the configuration said of it; its list of children is empty, and what a leaf's record has is not set.
    pub fn spec(&self) -> &VdevSpec {
        &self.spec
    }

    /// What a top-level vdev says of its space.
    pub fn top_spec(&self) -> Option<&TopSpec> {
        self.spec.top.as_ref()
    }

    /// What a leaf says of its device, but for what its record has.
    pub fn leaf_spec(&self) -> Option<&LeafSpec> {
        self.spec.leaf.as_ref()
    }

    /// Name for messages: of a leaf the path where it was found, or where it was last if it was not
    /// found; type and number of others (`raidz1-0`).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is a top-level vdev for the intent log only.
    pub fn is_log(&self) -> bool {
        self.spec.top.as_ref().is_some_and(|top| top.is_log)
    }

    /// Whether it is a leaf.
    pub fn is_leaf(&self) -> bool {
        self.spec.kind.is_leaf()
    }

    /// Itself as a leaf, if it is one.
    pub fn as_leaf(&self) -> Option<LeafVdev<'_>> {
        self.leaf_state().map(|state| LeafVdev { vdev: self, state })
    }

    /// The record of a leaf.
    pub(crate) fn leaf_state(&self) -> Option<&LeafState> {
        match &self.state {
            VdevRecord::Leaf(state) => Some(state),
            VdevRecord::Inner(_) => None,
        }
    }

    /// Counters.
    pub fn stats(&self) -> &VdevStats {
        match &self.state {
            VdevRecord::Leaf(state) => state.stats(),
            VdevRecord::Inner(stats) => stats,
        }
    }

    /// The device of a leaf, if it has ever been found.
    pub fn device(&self) -> Option<&DeviceSlot> {
        self.leaf_state()?.device()
    }

    /// The device of a leaf that may be read.
    pub(crate) fn usable_device(&self) -> Option<&dyn Device> {
        self.leaf_state()?.usable_device()
    }

    /// Binary logarithm of a top-level vdev's sector size.
    pub(crate) fn ashift(&self) -> u32 {
        self.spec.top.as_ref().map_or(9, |top| top.ashift)
    }

    pub(crate) fn place(&self) -> &Placement {
        &self.place
    }

    pub(crate) fn has_parity(&self) -> bool {
        self.has_parity
    }

    pub(crate) fn state(&self) -> &VdevRecord {
        &self.state
    }
}

/// A leaf: the vdev, and its record.
#[derive(Clone, Copy, Debug)]
pub struct LeafVdev<'a> {
    vdev: &'a Vdev,
    state: &'a LeafState,
}

impl<'a> LeafVdev<'a> {
    /// The vdev.
    pub fn vdev(self) -> &'a Vdev {
        self.vdev
    }

    /// Whether it is a spare that stands in for another leaf.
    pub fn is_spare(self) -> bool {
        self.vdev.spec.leaf.as_ref().is_some_and(|leaf| leaf.is_spare)
    }

    /// The record.
    pub fn state(self) -> &'a LeafState {
        self.state
    }
}

impl Deref for LeafVdev<'_> {
    type Target = Vdev;

    fn deref(&self) -> &Vdev {
        self.vdev
    }
}
