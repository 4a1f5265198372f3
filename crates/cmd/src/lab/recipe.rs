//! How a setting is made: the commands for it, and what of this machine is missing for them.

use std::path::Path;

use super::devices::LabDevices;
use super::initiator::{self, INITIATOR};
use super::peer::Peer;
use super::place::{POOL, VOLUME};

/// How a setting is made. Devices are names of [`super::devices`].
pub enum LabRecipe {
    /// A device as it is.
    Device(&'static str),
    /// `zpool create`: words for vdevs, and properties of the root file system.
    Pool { vdevs: &'static str, properties: Vec<String> },
    /// A pool with a volume beside.
    Volume { vdevs: &'static str, properties: Vec<String>, volume: LabVolume },
    /// A file system of Linux.
    Peer { device: &'static str, peer: Peer },
}

/// A volume.
#[derive(Clone, Copy, Debug)]
pub struct LabVolume {
    pub bytes: u64,
    /// Of each of its blocks, as `volblocksize` has it.
    pub block: &'static str,
    pub door: VolumeDoor,
}

/// How programs reach a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeDoor {
    Nbd,
    Iscsi,
}

impl VolumeDoor {
    /// Properties of a volume for it.
    fn properties(self) -> Vec<String> {
        match self {
            VolumeDoor::Nbd => vec!["org.cenote:nbd=on".to_owned()],
            VolumeDoor::Iscsi => {
                vec!["org.cenote:iscsi=on".to_owned(), format!("org.cenote:iscsi_initiators={INITIATOR}")]
            }
        }
    }

    /// The command by which the pool listens at a port, if it has to.
    fn listen(self, port: u16) -> Option<[String; 4]> {
        let property = format!("org.cenote:iscsi_listen=127.0.0.1:{port}");
        (self == VolumeDoor::Iscsi).then(|| ["zfs".to_owned(), "set".to_owned(), property, POOL.to_owned()])
    }
}

impl LabRecipe {
    /// A pool with properties that were written as `compression=lz4 atime=off`; of a property that comes twice, the last
    /// counts.
    pub fn pool(vdevs: &'static str, properties: &str) -> LabRecipe {
        let key = |word: &str| word.split('=').next().map(str::to_owned);
        let mut kept: Vec<String> = Vec::new();
        for word in properties.split_whitespace() {
            kept.retain(|other| key(other) != key(word));
            kept.push(word.to_owned());
        }
        LabRecipe::Pool { vdevs, properties: kept }
    }

    /// The words for vdevs.
    pub fn vdevs(&self) -> &'static str {
        match self {
            LabRecipe::Device(device) | LabRecipe::Peer { device, .. } => device,
            LabRecipe::Pool { vdevs, .. } | LabRecipe::Volume { vdevs, .. } => vdevs,
        }
    }

    /// Errors, for the user: what is missing for it here.
    pub fn check(&self, devices: &LabDevices) -> Result<(), String> {
        devices.vdevs(self.vdevs())?;
        match self {
            LabRecipe::Peer { device, peer } => peer.check(devices.path(device)?),
            LabRecipe::Volume { volume: LabVolume { door: VolumeDoor::Iscsi, .. }, .. } => initiator::check(),
            _ => Ok(()),
        }
    }

    /// The commands that make it, for a folder of its mount and a free port of this machine. Errors, for the user: there is
    /// no such device.
    pub fn commands(&self, devices: &LabDevices, mountpoint: &Path, port: u16) -> Result<Vec<Vec<String>>, String> {
        let (vdevs, properties, volume) = match self {
            LabRecipe::Device(name) => return devices.path(name).map(|_| Vec::new()),
            LabRecipe::Peer { device, peer } => return Ok(peer.commands(devices.path(device)?, mountpoint).to_vec()),
            LabRecipe::Pool { vdevs, properties } => (vdevs, properties, None),
            LabRecipe::Volume { vdevs, properties, volume } => (vdevs, properties, Some(*volume)),
        };
        let mountpoint = mountpoint.to_string_lossy().into_owned();
        // a device that fails ends the cell, and not the lab
        let mut create: Vec<String> =
            ["zpool", "create", "-o", "failmode=continue", "-m", &mountpoint].map(str::to_owned).into();
        create.extend(properties.iter().flat_map(|property| ["-O".to_owned(), property.clone()]));
        create.push(POOL.to_owned());
        create.extend(devices.vdevs(vdevs)?);
        let mut commands = vec![create];
        if let Some(LabVolume { bytes, block, door }) = volume {
            let properties = std::iter::once(format!("volblocksize={block}")).chain(door.properties());
            let properties = properties.flat_map(|property| ["-o".to_owned(), property]);
            let words = ["zfs", "create", "-V"].map(str::to_owned).into_iter().chain([bytes.to_string()]);
            commands.push(words.chain(properties).chain([VOLUME.to_owned()]).collect());
            commands.extend(door.listen(port).map(Vec::from));
        }
        Ok(commands)
    }
}
