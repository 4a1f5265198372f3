//! From a [`VdevSpec`] to the name-value list that [`VdevSpec::parse_root`] and its like take it from.
//!
//! Names, order and presence of the pairs are those of OpenZFS: a label that it writes over one of
//! ours differs in nothing that both know of.
//!
//! ```text
//!   type id guid │ leaf: path devid phys_path │ raidz, draid: shape │ disk: whole_disk │
//!   top-level: metaslab_array ... is_log │ DTL, objects │ create_txg │ ZAPs │ children, or leaf: states
//! ```

use format::nvlist::{NvList, Value};

use super::{LeafSpec, TopSpec, VdevKind, VdevSpec};

impl VdevSpec {
    /// The list that stands for it in labels and in the MOS configuration, with all below it.
    ///
    /// What a top-level vdev was set aside for is not in it but in the vdev's ZAP.
    pub fn to_nvlist(&self) -> NvList {
        let mut nv = NvList::new();
        nv.set("type", Value::Str(self.kind.type_name().to_owned()));
        number(&mut nv, "id", self.id);
        number(&mut nv, "guid", self.guid.get());
        if let Some(leaf) = &self.leaf {
            leaf.put_paths(&mut nv);
        }
        self.put_shape(&mut nv);
        match (&self.leaf, self.kind) {
            (Some(leaf), VdevKind::Disk) => number(&mut nv, "whole_disk", leaf.whole_disk.into()),
            (Some(_), VdevKind::DraidSpare { .. }) => number(&mut nv, "whole_disk", 1),
            _ => {}
        }
        some_number(&mut nv, "not_present", self.leaf.as_ref().map_or(0, |leaf| leaf.not_present.into()));
        if let Some(top) = &self.top {
            top.put_space(&mut nv);
        }
        some_number(&mut nv, "DTL", self.leaf.as_ref().map_or(0, |leaf| leaf.dtl_object.get()));
        if let Some(indirect) = self.top.as_ref().and_then(|top| top.indirect) {
            some_number(&mut nv, "com.delphix:indirect_object", indirect.mapping_object.get());
            some_number(&mut nv, "com.delphix:indirect_births", indirect.births_object.get());
            if let Some(previous) = indirect.previous {
                number(&mut nv, "com.delphix:prev_indirect_vdev", previous.get());
            }
        }
        some_number(&mut nv, "create_txg", self.create_txg.get());
        some_number(&mut nv, "com.delphix:vdev_zap_leaf", self.leaf.as_ref().map_or(0, |leaf| leaf.zap.get()));
        some_number(&mut nv, "com.delphix:vdev_zap_top", self.top.as_ref().map_or(0, |top| top.zap.get()));
        if let Some(leaf) = &self.leaf {
            leaf.put_states(&mut nv);
        } else if self.kind == VdevKind::Hole {
            number(&mut nv, "is_hole", 1);
        } else if !self.children.is_empty() {
            nv.set("children", Value::Lists(self.children.iter().map(VdevSpec::to_nvlist).collect()));
        }
        nv
    }

    fn put_shape(&self, nv: &mut NvList) {
        match self.kind {
            VdevKind::Raidz { nparity } => {
                number(nv, "nparity", nparity as u64);
                if let Some(expansion) = self.top.as_ref().and_then(|top| top.expansion.as_ref()) {
                    expansion.put_in(nv);
                }
            }
            VdevKind::Draid(shape) => {
                number(nv, "nparity", shape.nparity);
                number(nv, "draid_ndata", shape.ndata);
                number(nv, "draid_nspares", shape.nspares);
                number(nv, "draid_ngroups", shape.ngroups);
            }
            VdevKind::DraidSpare { draid_guid, spare } => {
                number(nv, "top_guid", draid_guid.get());
                number(nv, "spareid", spare);
            }
            _ => {}
        }
    }
}

impl TopSpec {
    fn put_space(&self, nv: &mut NvList) {
        number(nv, "metaslab_array", self.metaslab_array.get());
        number(nv, "metaslab_shift", self.metaslab_shift.into());
        number(nv, "ashift", self.ashift.into());
        number(nv, "asize", self.asize);
        number(nv, "is_log", self.is_log.into());
        some_number(nv, "removing", u64::from(self.removing && !self.is_log));
    }
}

impl LeafSpec {
    fn put_paths(&self, nv: &mut NvList) {
        for (name, text) in [("path", &self.path), ("devid", &self.devid), ("phys_path", &self.phys_path)] {
            if let Some(text) = text {
                nv.set(name, Value::Str(text.clone()));
            }
        }
    }

    fn put_states(&self, nv: &mut NvList) {
        some_number(nv, "offline", self.offline.into());
        some_number(nv, "resilver_txg", self.resilver_txg.get());
        some_number(nv, "rebuild_txg", self.rebuild_txg.get());
        if self.resilver_deferred {
            nv.set("com.datto:resilver_defer", Value::Flag);
        }
        some_number(nv, "faulted", self.faulted.into());
        some_number(nv, "removed", self.removed.into());
        some_number(nv, "is_spare", self.is_spare.into());
        some_number(nv, "unspare", self.unspare.into());
        if self.faulted {
            nv.set("aux_state", Value::Str("external".to_owned()));
        }
    }
}

fn number(nv: &mut NvList, name: &str, value: u64) {
    nv.set(name, Value::U64(value));
}

/// A number that is left out if it is 0.
fn some_number(nv: &mut NvList, name: &str, value: u64) {
    if value != 0 {
        number(nv, name, value);
    }
}
