//! What a new pool, or what is added to one, is to be.

use serde::{Deserialize, Serialize};
use vdev::draid::DraidShape;
use vdev::spec::Bias;

/// A pool to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewPool {
    /// Its name.
    pub name: String,
    /// Another name that it goes by until it is exported.
    pub temporary_name: Option<String>,
    /// Its top-level vdevs, in order.
    pub vdevs: Vec<NewVdev>,
    /// Devices that stand by for others.
    pub spares: Vec<NewLeaf>,
    /// Cache devices.
    pub caches: Vec<NewLeaf>,
    /// Binary logarithm of the sector size; `None`: what the devices say.
    pub ashift: Option<u32>,
    /// Guids of the features that it has; they need not be in an order.
    pub features: Vec<String>,
    /// Properties of the pool, as text that has been checked. Only `comment` and `compatibility` count here:
    /// the others are set afterwards.
    pub properties: Vec<(String, String)>,
    /// Properties of its root dataset, as text that has been checked.
    pub fs_properties: Vec<(String, String)>,
    /// The first record of its history: the command line.
    pub history: String,
    /// Id and name of the host.
    pub host: (u64, String),
}

impl NewPool {
    /// All its devices.
    pub fn leaves(&self) -> impl Iterator<Item = &NewLeaf> {
        self.vdevs.iter().flat_map(|vdev| &vdev.leaves).chain(&self.spares).chain(&self.caches)
    }

    /// The text of a property; an empty one is none.
    pub(super) fn property(&self, name: &str) -> Option<String> {
        let set = self.properties.iter().find(|(set, _)| set == name);
        set.map(|(_, text)| text.clone()).filter(|text| !text.is_empty())
    }
}

/// Devices to be added to a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewDevices {
    /// Top-level vdevs, in order.
    pub vdevs: Vec<NewVdev>,
    /// Devices that stand by for others.
    pub spares: Vec<NewLeaf>,
    /// Cache devices.
    pub caches: Vec<NewLeaf>,
    /// Binary logarithm of the sector size; `None`: what the devices say.
    pub ashift: Option<u32>,
    /// Whether a vdev is refused whose sectors are of another size than those of all the pool's.
    pub one_ashift: bool,
}

impl NewDevices {
    /// All of them.
    pub fn leaves(&self) -> impl Iterator<Item = &NewLeaf> {
        self.vdevs.iter().flat_map(|vdev| &vdev.leaves).chain(&self.spares).chain(&self.caches)
    }
}

/// A top-level vdev to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewVdev {
    /// How its leaves hang together.
    pub shape: NewVdevShape,
    /// What it is set aside for.
    pub bias: Option<Bias>,
    /// Its leaves; one, if it is single.
    pub leaves: Vec<NewLeaf>,
}

impl NewVdev {
    /// Whether it is a draid, for which the pool needs a feature.
    pub(crate) fn is_draid(&self) -> bool {
        matches!(self.shape, NewVdevShape::Draid(_))
    }

    /// Whether it is for some contents only, for which the pool needs a feature.
    pub(crate) fn is_set_aside(&self) -> bool {
        matches!(self.bias, Some(Bias::Special | Bias::Dedup))
    }
}

/// How the leaves of a new vdev hang together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NewVdevShape {
    /// One leaf.
    Single,
    /// The same on each.
    Mirror,
    /// With that many parity columns, 1 to 3.
    Raidz(usize),
    /// In groups that are spread over all of them, with distributed spares.
    Draid(DraidShape),
}

/// A device of a new pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewLeaf {
    /// Path of the file or disk.
    pub path: String,
    /// Whether it is a regular file.
    pub is_file: bool,
}
