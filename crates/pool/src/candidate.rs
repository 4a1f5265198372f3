//! Putting together what labels tell: which pools there are, and of which devices.
//!
//! A label knows the whole tree below its own top-level vdev, and how many of these there are. The
//! newest label of each top-level vdev gives that branch; ids that no label speaks of are missing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use base::{Error, Kind, Result};
use device::Device;
use format::ids::{Guid, Txg};
use format::nvlist::{NvList, Value};
use format::uberblock::Uberblock;

use crate::{Discovery, FoundDevice, LabelKind};

/// More top-level vdevs than any pool has; a label that claims more is damaged.
const TOPS_MAX: u64 = 16_384;

/// A pool that could be imported.
#[derive(Clone)]
pub struct Candidate {
    /// Name that it had last.
    pub name: String,
    /// Guid of the pool.
    pub guid: Guid,
    /// Whether it was exported or destroyed.
    pub state: PoolState,
    /// Pool version.
    pub version: u64,
    /// Txg of the newest label.
    pub txg: Txg,
    /// Host that had it last.
    pub hostid: Option<u64>,
    /// Name of that host.
    pub hostname: Option<String>,
    /// The newest label.
    pub label: NvList,
    /// The vdev tree as far as the labels tell: a root with all top-level vdevs.
    pub vdev_tree: NvList,
    /// Devices with labels of the pool, one for each leaf.
    pub devices: Vec<FoundDevice>,
    /// Devices that have left the pool, or were about to come to it: a state of before may have them.
    pub former_devices: Vec<FoundDevice>,
    /// Spares and cache devices that were found, of any pool.
    pub aux_devices: Vec<FoundDevice>,
}

/// What a pool's label says happened to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolState {
    /// In use, or not exported when its host went down.
    Active,
    /// Exported.
    Exported,
    /// Destroyed.
    Destroyed,
    /// Something else.
    Other(u64),
}

impl PoolState {
    /// As in a label.
    pub fn from_u64(n: u64) -> PoolState {
        match n {
            0 => PoolState::Active,
            1 => PoolState::Exported,
            2 => PoolState::Destroyed,
            n => PoolState::Other(n),
        }
    }
}

impl Candidate {
    /// The pools that the devices found make up, by name and guid. Devices whose labels make no
    /// sense are passed over.
    pub fn all(discovery: &Discovery) -> Vec<Candidate> {
        let mut by_guid: BTreeMap<Guid, Vec<FoundDevice>> = BTreeMap::new();
        let mut former: BTreeMap<Guid, Vec<FoundDevice>> = BTreeMap::new();
        let mut aux_devices = Vec::new();
        for found in &discovery.devices {
            match (found.kind(), found.pool_guid()) {
                (LabelKind::Member, Some(guid)) => {
                    // txg 0: the pool was not made then, or the device not added, or it has left
                    let of = if found.txg() == Txg::ZERO { &mut former } else { &mut by_guid };
                    of.entry(guid).or_default().push(found.clone());
                }
                (LabelKind::Member, None) => {}
                _ => aux_devices.push(found.clone()),
            }
        }
        let candidates = by_guid.into_iter().filter_map(|(guid, devices)| {
            let candidate = Candidate::assemble(guid, devices, aux_devices.clone()).ok()?;
            Some(Candidate { former_devices: former.remove(&guid).unwrap_or_default(), ..candidate })
        });
        let mut candidates: Vec<Candidate> = candidates.collect();
        candidates.sort_by(|a, b| (&a.name, a.guid).cmp(&(&b.name, b.guid)));
        candidates
    }

    /// The one pool called `which`, a name or a guid. Errors: `NotFound`, or `Invalid` if several are
    /// called so.
    pub fn pick(candidates: &[Candidate], which: &str) -> Result<Candidate> {
        let is_it = |c: &&Candidate| c.guid.to_string() == which || c.name == which;
        let mut matching: Vec<&Candidate> = candidates.iter().filter(is_it).collect();
        if matching.iter().any(|c| c.state != PoolState::Destroyed) {
            // destroyed ones are found by their guid only
            matching.retain(|c| c.state != PoolState::Destroyed || c.guid.to_string() == which);
        }
        match matching[..] {
            [one] => Ok(one.clone()),
            [] => Err(Error::new(Kind::NotFound, format!("cannot import '{which}': no such pool available"))),
            _ => {
                let what =
                    format!("cannot import '{which}': more than one matching pool\nimport by numeric ID instead");
                Err(Error::new(Kind::Invalid, what))
            }
        }
    }

    /// As it may have been: devices that are not the pool's any more are looked at, too.
    pub fn with_former_devices(mut self) -> Candidate {
        self.devices.append(&mut self.former_devices);
        self.devices = one_for_each_leaf(self.devices);
        self
    }

    /// The device of each leaf.
    pub(crate) fn devices_by_guid(&self) -> HashMap<Guid, Arc<dyn Device>> {
        let mut devices = HashMap::new();
        let now = self.devices.iter().filter_map(|found| Some((found.guid()?, found)));
        // a leaf that was alone at last has the guid of its mirror; labels of before may be those that count
        let before = self.devices.iter().flat_map(|found| found.guids_before.iter().map(move |&guid| (guid, found)));
        for (guid, found) in now.chain(before) {
            devices.entry(guid).or_insert_with(|| found.device.clone());
        }
        devices
    }

    fn assemble(guid: Guid, devices: Vec<FoundDevice>, aux_devices: Vec<FoundDevice>) -> Result<Candidate> {
        let devices = one_for_each_leaf(devices);
        let label = devices.first().map(|found| found.config.clone()).unwrap_or_default();
        let vdev_tree = tree_from_labels(guid, &label, &devices)?;
        Ok(Candidate {
            name: label.str("name")?.to_owned(),
            guid,
            state: PoolState::from_u64(label.u64("state")?),
            version: label.u64("version")?,
            txg: Txg::new(label.opt_u64("txg").unwrap_or(0)),
            hostid: label.opt_u64("hostid"),
            hostname: label.opt_str("hostname").map(str::to_owned),
            label,
            vdev_tree,
            devices,
            former_devices: Vec::new(),
            aux_devices,
        })
    }
}

/// The newest labels first; of several devices with the guid of one leaf, such as a disk and a copy of it, the first one
/// only. Of equally new ones that is the one at the path where the pool knows the leaf.
fn one_for_each_leaf(mut devices: Vec<FoundDevice>) -> Vec<FoundDevice> {
    let newest_state = |found: &FoundDevice| found.uberblocks.iter().map(Uberblock::rank).max();
    let rank =
        |found: &FoundDevice| (found.txg(), newest_state(found), found.is_where_its_label_says(), found.good_labels);
    devices.sort_by_cached_key(|found| Reverse(rank(found)));
    let mut leaves = HashSet::new();
    devices.retain(|found| found.guid().is_none_or(|guid| leaves.insert(guid)));
    devices
}

/// A root vdev over the newest branch of each top-level vdev. `devices` has the newest labels first.
fn tree_from_labels(guid: Guid, label: &NvList, devices: &[FoundDevice]) -> Result<NvList> {
    let mut tops: BTreeMap<u64, NvList> = BTreeMap::new();
    for found in devices {
        let Some(tree) = found.config.opt_list("vdev_tree") else { continue };
        if let Some(id) = tree.opt_u64("id").filter(|id| *id < TOPS_MAX) {
            tops.entry(id).or_insert_with(|| tree.clone());
        }
    }
    let from_ids = tops.keys().next_back().map_or(0, |last| last + 1);
    // pools before version 21 do not tell how many there are
    let count = label.opt_u64("vdev_children").unwrap_or(from_ids).max(from_ids);
    if count > TOPS_MAX {
        return Err(Error::corrupt(format!("label of a pool with {count} top-level vdevs")));
    }
    let holes = label.opt_u64s("hole_array").unwrap_or_default();
    let children = (0..count).map(|id| match tops.remove(&id) {
        Some(tree) => tree,
        None if holes.contains(&id) => placeholder("hole", id),
        None => placeholder("missing", id),
    });
    let children = Value::Lists(children.collect());
    let mut root = placeholder("root", 0);
    root.set("guid", Value::U64(guid.get()));
    root.set("children", children);
    Ok(root)
}

fn placeholder(kind: &str, id: u64) -> NvList {
    [
        ("type".to_owned(), Value::Str(kind.to_owned())),
        ("id".to_owned(), Value::U64(id)),
        ("guid".to_owned(), Value::U64(0)),
    ]
    .into_iter()
    .collect()
}
