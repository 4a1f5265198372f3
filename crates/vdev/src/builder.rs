//! How a shape of the tree is made: from what the configuration says, and what is known of the vdevs that were there
//! before.

use std::collections::HashMap;
use std::sync::Arc;

use base::{Error, Result};
use device::Device;
use format::ids::Guid;

use crate::draid::DraidLayout;
use crate::indirect::MappingTable;
use crate::leaf_state::LeafState;
use crate::opened::{Asked, health_of_device};
use crate::raidz::RaidzGeometry;
use crate::spec::{VdevKind, VdevSpec};
use crate::vdev::{Placement, Vdev, VdevId, VdevRecord};

/// A vdev of a shape that is to be made, and those below it.
pub(crate) struct PlannedVdev {
    /// Its list of children is empty.
    pub(crate) spec: VdevSpec,
    /// Of a vdev that was there before.
    pub(crate) state: Option<VdevRecord>,
    /// The same of one that was removed, or is being removed: its table.
    pub(crate) table: Option<MappingTable>,
    pub(crate) children: Vec<PlannedVdev>,
}

impl PlannedVdev {
    /// A vdev that is new, as all below it.
    pub(crate) fn new(mut spec: VdevSpec) -> PlannedVdev {
        let children = std::mem::take(&mut spec.children).into_iter().map(PlannedVdev::new).collect();
        PlannedVdev { spec, state: None, table: None, children }
    }

    /// What the configuration says of it, and of all below it.
    pub(crate) fn into_spec(self) -> VdevSpec {
        let PlannedVdev { mut spec, state, children, .. } = self;
        if let (Some(leaf), Some(VdevRecord::Leaf(state))) = (&mut spec.leaf, state) {
            state.note_in(leaf);
        }
        spec.children = children.into_iter().map(PlannedVdev::into_spec).collect();
        spec
    }

    /// The first vdev, itself or below it, that passes `test`.
    pub(crate) fn find(&mut self, test: &dyn Fn(&PlannedVdev) -> bool) -> Option<&mut PlannedVdev> {
        match test(self) {
            true => Some(self),
            false => self.children.iter_mut().find_map(|child| child.find(test)),
        }
    }

    /// Whether the vdev with that guid is right below it.
    pub(crate) fn has_child(&self, guid: Guid) -> bool {
        self.children.iter().any(|child| child.spec.guid == guid)
    }

    /// Numbers the children anew, when some have come or gone.
    pub(crate) fn number_children(&mut self) {
        (0..).zip(&mut self.children).for_each(|(id, child)| child.spec.id = id);
    }
}

/// The vdevs of shape number `shape`, each before those below it; `devices` are those of new leaves by guid.
///
/// Errors: `Corrupt` if two leaves have one guid, or a draid or its spare is impossible.
pub(crate) fn build(shape: usize, root: PlannedVdev, devices: &HashMap<Guid, Arc<dyn Device>>) -> Result<Vec<Vdev>> {
    let mut builder = Builder { shape, vdevs: Vec::new(), devices };
    builder.add(root, None, Asked { ashift: 9, bytes: 0, new_children: 0 })?;
    builder.connect_draid_spares()?;
    builder.check_guids()?;
    Ok(builder.vdevs)
}

struct Builder<'a> {
    shape: usize,
    vdevs: Vec<Vdev>,
    devices: &'a HashMap<Guid, Arc<dyn Device>>,
}

impl Builder<'_> {
    fn add(&mut self, planned: PlannedVdev, parent: Option<VdevId>, above: Asked) -> Result<VdevId> {
        let PlannedVdev { mut spec, state, table, children } = planned;
        let above = spec.top.as_ref().map_or(above, Asked::top);
        let (ashift, asked) = (above.ashift, above.child(spec.kind, children.len()));
        let place = match spec.kind {
            VdevKind::Disk | VdevKind::File => Placement::Device,
            VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare => Placement::Copies,
            VdevKind::Raidz { nparity } => Placement::Raidz(RaidzGeometry { ashift, width: children.len(), nparity }),
            VdevKind::Draid(shape) => Placement::Draid(DraidLayout::new(ashift, shape)?),
            VdevKind::Indirect => Placement::Indirect(table.clone().unwrap_or_default()),
            VdevKind::Root | VdevKind::Hole | VdevKind::Missing | VdevKind::DraidSpare { .. } => Placement::None,
        };
        let state = state.unwrap_or_else(|| self.new_state(&mut spec, above));
        let id = VdevId { shape: self.shape, index: self.vdevs.len() };
        let is_moving = spec.kind != VdevKind::Indirect && spec.top.as_ref().is_some_and(|top| top.indirect.is_some());
        let mut vdev = Vdev::new(id, parent, spec, place, state);
        if is_moving {
            vdev.set_moving(table.unwrap_or_default());
        }
        self.vdevs.push(vdev);
        for child in children {
            let child = self.add(child, Some(id), asked)?;
            let has_parity = self.vdevs[child.index].has_parity();
            self.vdevs[id.index].add_child(child, has_parity);
        }
        Ok(id)
    }

    /// The record of a vdev that was not there before, of which that is asked.
    fn new_state(&self, spec: &mut VdevSpec, asked: Asked) -> VdevRecord {
        let device =
            self.devices.get(&spec.guid).filter(|_| matches!(spec.kind, VdevKind::Disk | VdevKind::File)).cloned();
        match &mut spec.leaf {
            Some(leaf) => {
                let health = health_of_device(spec.kind, leaf, device.as_deref(), asked);
                VdevRecord::Leaf(Arc::new(LeafState::new(leaf, device, (health, asked.ashift))))
            }
            None => VdevRecord::Inner(Arc::default()),
        }
    }

    /// Finds the draid of each distributed spare.
    fn connect_draid_spares(&mut self) -> Result<()> {
        for i in 0..self.vdevs.len() {
            let VdevKind::DraidSpare { draid_guid, spare } = self.vdevs[i].kind() else { continue };
            let draid = self.vdevs.iter().find(|v| v.guid() == draid_guid).map(|v| (v.id(), v.place()));
            let Some((draid, Placement::Draid(layout))) = draid else {
                return Err(Error::corrupt(format!(
                    "distributed spare of a draid with guid {draid_guid}, which is not there"
                )));
            };
            if spare >= layout.nspares() as u64 {
                return Err(Error::corrupt(format!(
                    "distributed spare {spare} of a draid that has {}",
                    layout.nspares()
                )));
            }
            self.vdevs[i].set_place(Placement::DraidSpare { draid, spare: spare as usize });
        }
        Ok(())
    }

    fn check_guids(&self) -> Result<()> {
        let mut seen = HashMap::new();
        for leaf in self.vdevs.iter().filter(|v| v.is_leaf()) {
            if let Some(other) = seen.insert(leaf.guid(), leaf.name()) {
                return Err(Error::corrupt(format!("{other} and {} have the same guid", leaf.name())));
            }
        }
        Ok(())
    }
}
