//! Spares and cache devices: outside of the vdev tree, in lists of their own, with labels of their own. Several pools
//! may share a spare: it keeps its guid.
//!
//! ```text
//!   object directory ─ spares, l2cache ─▶ packed list ─▶ a leaf's configuration for each
//!   label            ─ version, state (3 spare, 4 cache), guid
//! ```

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Error, Kind, Result};
use device::Device;
use dmu::INDIRECT_SHIFT;
use dmu::zap::ZapValue;
use format::dnode::Dnode;
use format::ids::Guid;
use format::nvlist::{NvList, Value};
use format::object_type::ObjectType;
use vdev::{VdevKind, VdevSpec, label};

use super::{NewLeaf, SyncContext};
use crate::mos::DIRECTORY;
use crate::{FoundDevice, LabelKind};

/// Block size of a packed list.
const BLOCK_SIZE: u64 = 16 << 10;

/// What an auxiliary device is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AuxKind {
    Spare,
    Cache,
}

impl AuxKind {
    fn state(self) -> u64 {
        match self {
            AuxKind::Spare => 3,
            AuxKind::Cache => 4,
        }
    }

    /// The name of the list.
    fn list(self) -> &'static str {
        match self {
            AuxKind::Spare => "spares",
            AuxKind::Cache => "l2cache",
        }
    }
}

/// Labels devices, and returns the configuration of each. `guid` draws one.
pub(super) fn label_all(
    aux: AuxKind,
    leaves: &[NewLeaf],
    devices: &HashMap<PathBuf, Arc<dyn Device>>,
    guid: &dyn Fn() -> Guid,
) -> Result<Vec<NvList>> {
    let mut configs = Vec::new();
    for leaf in leaves {
        let path = leaf.path.clone();
        let missing = || Error::new(Kind::Missing, "device is not open").at_vdev(path.clone());
        let device = devices.get(Path::new(&leaf.path)).ok_or_else(missing)?;
        let shared = if aux == AuxKind::Spare { spare_guid(device)? } else { None };
        let guid = shared.unwrap_or_else(guid);
        if shared.is_none() {
            label_as(aux, guid, &**device)?;
        }
        let mut config = NvList::new();
        config.set("type", Value::Str(if leaf.is_file { "file" } else { "disk" }.to_owned()));
        config.set("guid", Value::U64(guid.get()));
        config.set("path", Value::Str(path));
        if aux == AuxKind::Spare {
            config.set("is_spare", Value::U64(1));
        }
        config.set("whole_disk", Value::U64(0));
        configs.push(config);
    }
    Ok(configs)
}

/// The configurations of the spares that are spread over the children of a new top-level vdev, if it is a draid. They
/// are no devices, and have no labels. `guid` draws one.
pub(super) fn distributed_spares(top: &VdevSpec, guid: &dyn Fn() -> Guid) -> Vec<NvList> {
    let VdevKind::Draid(shape) = top.kind else { return Vec::new() };
    let config = |spare| {
        let mut config = NvList::new();
        config.set("type", Value::Str("dspare".to_owned()));
        config.set("guid", Value::U64(guid().get()));
        config.set("path", Value::Str(format!("draid{}-{}-{spare}", shape.nparity, top.id)));
        config.set("top_guid", Value::U64(top.guid.get()));
        config.set("spareid", Value::U64(spare));
        config.set("is_spare", Value::U64(1));
        config.set("whole_disk", Value::U64(1));
        config
    };
    (0..shape.nspares).map(config).collect()
}

/// Writes the label of an auxiliary device.
pub(super) fn label_as(aux: AuxKind, guid: Guid, device: &dyn Device) -> Result<()> {
    let mut mark = NvList::new();
    mark.set("version", Value::U64(5000));
    mark.set("state", Value::U64(aux.state()));
    mark.set("guid", Value::U64(guid.get()));
    label::initialize(device)?;
    label::write_config(device, &[0, 1, 2, 3], &mark.pack())?;
    device.flush()
}

/// The guid of a device that is a spare already, of whatever pool. A device with a damaged partition table is none, and
/// may be taken: the caller has asked about what is on it.
fn spare_guid(device: &Arc<dyn Device>) -> Result<Option<Guid>> {
    let found = match FoundDevice::examine(device.path(), device.clone()) {
        Err(error) if error.kind() == Kind::Corrupt => return Ok(None),
        found => found?,
    };
    Ok(found.iter().find(|found| found.kind() == LabelKind::Spare).and_then(FoundDevice::guid))
}

impl SyncContext<'_> {
    /// Puts devices into the list in the MOS, which is made if there is none.
    pub(super) fn add_aux(&self, aux: AuxKind, configs: Vec<NvList>) -> Result<()> {
        if configs.is_empty() {
            return Ok(());
        }
        let mut all = self.aux_list(aux)?;
        all.extend(configs);
        self.write_aux_list(aux, all)
    }

    /// Takes the device with that guid off the list. False if it is not there.
    pub(super) fn remove_aux(&self, aux: AuxKind, guid: Guid) -> Result<bool> {
        let mut all = self.aux_list(aux)?;
        let count = all.len();
        all.retain(|config| config.opt_guid("guid") != Some(guid));
        if all.len() == count {
            return Ok(false);
        }
        self.write_aux_list(aux, all).map(|()| true)
    }

    /// Changes the configuration of a device on the list, if it is there.
    pub(super) fn change_aux(&self, aux: AuxKind, guid: Guid, change: impl Fn(&mut NvList)) -> Result<()> {
        let mut all = self.aux_list(aux)?;
        all.iter_mut().filter(|config| config.opt_guid("guid") == Some(guid)).for_each(change);
        self.write_aux_list(aux, all)
    }

    fn aux_list(&self, aux: AuxKind) -> Result<Vec<NvList>> {
        let Some(object) = self.change.object_id(DIRECTORY, aux.list())? else { return Ok(Vec::new()) };
        let list = crate::packed_nvlist(self.change.mos, object)?;
        Ok(list.opt_lists(aux.list()).unwrap_or_default().to_vec())
    }

    fn write_aux_list(&self, aux: AuxKind, configs: Vec<NvList>) -> Result<()> {
        let mut list = NvList::new();
        list.set(aux.list(), Value::Lists(configs));
        let packed = list.pack();
        let change = &self.change;
        let object = match change.object_id(DIRECTORY, aux.list())? {
            Some(id) => change.mos.object(id)?,
            None => {
                let mut dnode = Dnode::new(ObjectType::PACKED_NVLIST, BLOCK_SIZE, INDIRECT_SHIFT, 1, 1);
                dnode.bonus_type = ObjectType::PACKED_NVLIST_SIZE;
                dnode.bonus = vec![0; 8];
                let object = change.mos.allocate(change.tx, dnode)?;
                change.set(DIRECTORY, aux.list(), &ZapValue::one(object.id().get()))?;
                object
            }
        };
        object.write(change.tx, 0, &packed)?;
        object.update(change.tx, |dnode| dnode.bonus = (packed.len() as u64).to_le_bytes().to_vec())
    }
}
