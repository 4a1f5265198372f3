//! The pool's configuration: in the MOS, and in the label of each leaf.

use format::feature::{FeatureSet, VERSION};
use format::ids::{Guid, ObjectId, Txg};
use format::nvlist::{NvList, Value};
use format::uberblock::Uberblock;
use vdev::{OfflineReason, Tree, Vdev};

/// What the configuration says besides the vdevs.
#[derive(Clone, Debug)]
pub(super) struct Config {
    /// As the labels have it; the pool may be open under another one.
    pub(super) name: String,
    pub(super) guid: Guid,
    /// 1 to 28, or 5000.
    pub(super) version: u64,
    /// 0: in use, 1: exported, 2: destroyed.
    pub(super) state: u64,
    /// The group that it was written in.
    pub(super) txg: Txg,
    /// Id and name of the host.
    pub(super) host: (u64, String),
    pub(super) comment: Option<String>,
    pub(super) compatibility: Option<String>,
    /// The active features without which the MOS cannot be read.
    pub(super) features_for_read: Vec<String>,
    /// What its features allow in blocks.
    pub(super) enabled: FeatureSet,
    /// The root in force.
    pub(super) uberblock: Option<Uberblock>,
    /// Object of the configuration in the MOS.
    pub(super) object: ObjectId,
    /// The configuration that the pool was imported with, which may say more of vdevs than is known here.
    pub(super) imported: Option<NvList>,
    /// The labels are to be written.
    pub(super) is_dirty: bool,
}

impl Config {
    /// The configuration in the MOS.
    pub(super) fn mos_config(&self, tree: &Tree) -> NvList {
        let mut list = self.imported.clone().unwrap_or_default();
        for (name, value) in self.head().iter() {
            list.set(name, value.clone());
        }
        if self.imported.is_none() {
            list.set("com.delphix:has_per_vdev_zaps", Value::Flag);
        }
        put_shape(&mut list, tree);
        let known = list.opt_list("vdev_tree").cloned();
        let mut root = known.unwrap_or_else(|| tree.root().spec().to_nvlist());
        // its guid is the pool's
        root.set("guid", Value::U64(self.guid.get()));
        root.set("children", Value::Lists(tree.tops().map(|top| self.top_config(tree, top)).collect()));
        list.set("vdev_tree", Value::List(root));
        if self.imported.is_none() {
            list.set("features_for_read", Value::List(self.features()));
        }
        list
    }

    /// The label of a leaf.
    pub(super) fn label(&self, tree: &Tree, leaf: &Vdev) -> NvList {
        let top = tree.top_of(leaf);
        let mut list = self.head();
        list.set("top_guid", Value::U64(top.guid().get()));
        list.set("guid", Value::U64(leaf.guid().get()));
        put_shape(&mut list, tree);
        list.set("vdev_tree", Value::List(without_tables(&self.top_config(tree, top))));
        if self.version == VERSION {
            list.set("features_for_read", Value::List(self.features()));
        }
        list
    }

    /// The label of a leaf that is in no pool any more, as OpenZFS writes it: of txg 0.
    pub(super) fn label_of_removed(&self, leaf: &Vdev) -> NvList {
        let mut list = self.head();
        list.set("txg", Value::U64(0));
        list.set("top_guid", Value::U64(leaf.guid().get()));
        list.set("guid", Value::U64(leaf.guid().get()));
        list.set("vdev_tree", Value::List(leaf.spec().to_nvlist()));
        list.set("create_txg", Value::U64(0));
        list
    }

    /// The configuration of a top-level vdev. Of one that is as it was imported, it has all that was said of it then.
    fn top_config(&self, tree: &Tree, top: &Vdev) -> NvList {
        let imported =
            self.imported.as_ref().and_then(|imported| imported.opt_list("vdev_tree")?.opt_lists("children"));
        match imported.unwrap_or_default().iter().find(|config| is_of(config, tree, top)) {
            Some(config) => with_space(renewed(config, tree), top),
            None => tree.spec(top).to_nvlist(),
        }
    }

    /// The sum of the guids of the pool and all its vdevs.
    pub(super) fn guid_sum(&self, tree: &Tree) -> u64 {
        let vdevs = tree.iter().filter(|vdev| vdev.parent().is_some());
        vdevs.fold(self.guid.get(), |sum, vdev| sum.wrapping_add(vdev.guid().get()))
    }

    fn head(&self) -> NvList {
        let mut list = NvList::new();
        list.set("version", Value::U64(self.version));
        list.set("name", Value::Str(self.name.clone()));
        list.set("state", Value::U64(self.state));
        list.set("txg", Value::U64(self.txg.get()));
        list.set("pool_guid", Value::U64(self.guid.get()));
        list.set("errata", Value::U64(0));
        if let Some(comment) = &self.comment {
            list.set("comment", Value::Str(comment.clone()));
        }
        if let Some(sets) = &self.compatibility {
            list.set("compatibility", Value::Str(sets.clone()));
        }
        list.set("hostid", Value::U64(self.host.0));
        list.set("hostname", Value::Str(self.host.1.clone()));
        list
    }

    fn features(&self) -> NvList {
        let mut list = NvList::new();
        for guid in &self.features_for_read {
            list.set(guid, Value::Flag);
        }
        list
    }
}

/// A vdev's configuration with what is known of the leaves by now.
fn renewed(config: &NvList, tree: &Tree) -> NvList {
    let mut config = config.clone();
    if let Some(leaf) = config.opt_guid("guid").and_then(|guid| tree.leaf(guid)) {
        if leaf.device().is_some() {
            config.set("path", Value::Str(leaf.name().to_owned()));
        }
        match leaf.state().dtl().object() {
            ObjectId::NONE => {}
            object => config.set("DTL", Value::U64(object.get())),
        }
        for mark in
            ["offline", "faulted", "aux_state", "unspare", "resilver_txg", "rebuild_txg", "com.datto:resilver_defer"]
        {
            config.remove(mark);
        }
        for (name, txg) in [("resilver_txg", leaf.state().resilver_txg()), ("rebuild_txg", leaf.state().rebuild_txg())]
        {
            if txg != Txg::ZERO {
                config.set(name, Value::U64(txg.get()));
            }
        }
        if leaf.state().resilver_deferred() {
            config.set("com.datto:resilver_defer", Value::Flag);
        }
        if leaf.state().unspare() {
            config.set("unspare", Value::U64(1));
        }
        match leaf.state().offline_in_config() {
            None => {}
            Some(OfflineReason::Offline) => config.set("offline", Value::U64(1)),
            Some(OfflineReason::Faulted) => {
                config.set("faulted", Value::U64(1));
                config.set("aux_state", Value::Str("external".to_owned()));
            }
        }
    }
    map_children(config, &|child| renewed(child, tree))
}

/// The configuration of a top-level vdev with what is known of its space by now: how large it is, its removal, its expansions.
fn with_space(mut config: NvList, top: &Vdev) -> NvList {
    let Some(spec) = top.top_spec() else { return config };
    if config.opt_u64("asize").is_some_and(|asize| asize < spec.asize) {
        config.set("asize", Value::U64(spec.asize));
    }
    if let Some(expansion) = &spec.expansion {
        expansion.put_in(&mut config);
    }
    let objects =
        spec.indirect.map_or([0; 2], |objects| [objects.mapping_object, objects.births_object].map(ObjectId::get));
    let names = ["removing", "com.delphix:indirect_object", "com.delphix:indirect_births"];
    for (name, number) in names.into_iter().zip([u64::from(spec.removing), objects[0], objects[1]]) {
        match number {
            0 => config.remove(name),
            number => config.set(name, Value::U64(number)),
        }
    }
    config
}

/// A vdev's configuration as labels have it: the tables of vdevs are only known in the MOS.
fn without_tables(config: &NvList) -> NvList {
    let mut config = config.clone();
    for table in ["com.delphix:vdev_zap_leaf", "com.delphix:vdev_zap_top", "com.klarasystems:vdev_zap_root"] {
        config.remove(table);
    }
    map_children(config, &without_tables)
}

/// How many top-level vdevs there are, and which of them are holes.
fn put_shape(list: &mut NvList, tree: &Tree) {
    let holes = tree.tops().filter(|top| top.kind() == vdev::VdevKind::Hole);
    let holes: Vec<u64> = holes.map(|hole| hole.number().get()).collect();
    list.remove("hole_array");
    if !holes.is_empty() {
        list.set("hole_array", Value::U64s(holes));
    }
    list.set("vdev_children", Value::U64(tree.tops().len() as u64));
}

/// Whether a configuration is of this vdev, with the same ones below it.
fn is_of(config: &NvList, tree: &Tree, vdev: &Vdev) -> bool {
    let below = config.opt_lists("children").unwrap_or_default();
    let children = vdev.children().iter().map(|&child| tree.vdev(child));
    config.opt_guid("guid").unwrap_or(Guid::NONE) == vdev.guid()
        && config.opt_str("type").is_none_or(|kind| kind == vdev.kind().type_name())
        && config.opt_u64("id") == Some(vdev.number().get())
        && below.len() == vdev.children().len()
        && below.iter().zip(children).all(|(config, child)| is_of(config, tree, child))
}

fn map_children(mut config: NvList, f: &dyn Fn(&NvList) -> NvList) -> NvList {
    if let Some(children) = config.opt_lists("children").map(|children| children.iter().map(f).collect()) {
        config.set("children", Value::Lists(children));
    }
    config
}
