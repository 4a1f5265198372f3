//! A pool to be made, as `zpool create` hands it to the process that makes it: one JSON text on its
//! standard input.

use serde::{Deserialize, Serialize};

/// A pool to be made, and how it is to be used at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// Its name.
    pub name: String,
    /// Another name, under which it is used for now.
    pub temporary_name: Option<String>,
    /// Its top-level vdevs, in order.
    pub vdevs: Vec<WishedVdev>,
    /// Devices that stand by for others.
    pub spares: Vec<WishedLeaf>,
    /// Cache devices.
    pub caches: Vec<WishedLeaf>,
    /// Binary logarithm of the sector size; `None`: what the devices say.
    pub ashift: Option<u32>,
    /// Guids of its features.
    pub features: Vec<String>,
    /// Properties of the pool.
    pub properties: Vec<(String, String)>,
    /// Properties of its root dataset.
    pub fs_properties: Vec<(String, String)>,
    /// The command line, for its history.
    pub history: String,
    /// Id and name of this machine.
    pub host: (u64, String),
    /// The folder that all mountpoints are below.
    pub altroot: Option<String>,
}

/// Devices to be added to a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WishedDevices {
    /// Top-level vdevs, in order.
    pub vdevs: Vec<WishedVdev>,
    /// Devices that stand by for others.
    pub spares: Vec<WishedLeaf>,
    /// Cache devices.
    pub caches: Vec<WishedLeaf>,
    /// Binary logarithm of the sector size; `None`: what the devices say.
    pub ashift: Option<u32>,
}

/// A top-level vdev to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WishedVdev {
    /// How its leaves hang together.
    pub shape: Shape,
    /// What it is set aside for.
    pub class: Class,
    /// Its leaves.
    pub leaves: Vec<WishedLeaf>,
}

/// How leaves hang together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    /// There is one.
    Single,
    /// The same on each.
    Mirror,
    /// With that many parity columns.
    Raidz(usize),
}

/// What a top-level vdev is set aside for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Class {
    /// Nothing special.
    #[default]
    Normal,
    /// The intent log.
    Log,
    /// Metadata and small blocks.
    Special,
    /// Dedup tables.
    Dedup,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WishedLeaf {
    /// Path of the file or disk.
    pub path: String,
    /// Whether it is a regular file.
    pub is_file: bool,
}

impl WishedDevices {
    /// All of them.
    pub fn leaves(&self) -> impl Iterator<Item = &WishedLeaf> {
        self.vdevs.iter().flat_map(|vdev| &vdev.leaves).chain(&self.spares).chain(&self.caches)
    }
}

impl Wish {
    /// All its devices.
    pub fn leaves(&self) -> impl Iterator<Item = &WishedLeaf> {
        self.vdevs.iter().flat_map(|vdev| &vdev.leaves).chain(&self.spares).chain(&self.caches)
    }
}
