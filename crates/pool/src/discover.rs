//! Looking for devices that belong to pools.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Env, Error, Kind, Result, WORK_THAT_WAITS};
use device::{Device, FileDevice, OpenMode, Window};
use format::ids::{Guid, Txg};
use format::nvlist::NvList;
use format::uberblock::Uberblock;
use vdev::label::{self, Label};

/// Bytes of the smallest file that is looked at: no ZFS makes a vdev of less than 64 MiB, but a file may
/// have been cut off.
const DEVICE_SIZE_MIN: u64 = label::COUNT as u64 * label::LABEL_BYTES;

/// A device with at least one good label.
#[derive(Clone)]
pub struct FoundDevice {
    /// Path that it was found under; for a partition inside an image, with its number behind a colon.
    pub path: String,
    /// The device, read-only.
    pub device: Arc<dyn Device>,
    /// The newest good label.
    pub config: NvList,
    /// Guids of the leaf by older labels, if they have others.
    pub guids_before: Vec<Guid>,
    /// How many of the four labels are good.
    pub good_labels: usize,
    /// The uberblocks of all labels, each slot once, in no order.
    pub uberblocks: Vec<Uberblock>,
}

/// What a device is to its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelKind {
    /// Part of the pool's tree.
    Member,
    /// A hot spare.
    Spare,
    /// A cache device.
    Cache,
}

/// Everything found under the paths that were searched.
#[derive(Default)]
pub struct Discovery {
    /// Devices of pools.
    pub devices: Vec<FoundDevice>,
    /// Files and devices that could not be opened or read, each with why.
    pub failed: Vec<(String, Error)>,
}

impl FoundDevice {
    /// The pool devices that `whole` is, or has in its partitions; it was found under `path`.
    pub fn examine(path: &str, whole: Arc<dyn Device>) -> Result<Vec<FoundDevice>> {
        if let Some(found) = read_labels(path, whole.clone()) {
            return Ok(vec![found]);
        }
        let mut found = Vec::new();
        for (i, partition) in device::gpt::read(&*whole)?.unwrap_or_default().iter().enumerate() {
            let name = format!("{path}:{}", i + 1);
            let part: Arc<dyn Device> = Arc::new(Window::new(whole.clone(), &name, partition.start, partition.size)?);
            found.extend(read_labels(&name, part));
        }
        Ok(found)
    }

    /// Guid of the leaf.
    pub fn guid(&self) -> Option<Guid> {
        self.config.opt_guid("guid")
    }

    /// Guid of its pool; spares and cache devices may not tell.
    pub fn pool_guid(&self) -> Option<Guid> {
        self.config.opt_guid("pool_guid")
    }

    /// Txg of the label.
    pub fn txg(&self) -> Txg {
        Txg::new(self.config.opt_u64("txg").unwrap_or(0))
    }

    /// The path at which the pool knows the leaf, as its label says.
    fn known_path(&self) -> Option<&str> {
        path_of_leaf(self.config.opt_list("vdev_tree")?, self.guid()?)
    }

    /// Whether it was found where the pool knows the leaf.
    pub(crate) fn is_where_its_label_says(&self) -> bool {
        self.known_path() == Some(&self.path)
    }

    /// What it is to its pool.
    pub fn kind(&self) -> LabelKind {
        match self.config.opt_u64("state") {
            Some(3) => LabelKind::Spare,
            Some(4) => LabelKind::Cache,
            _ => LabelKind::Member,
        }
    }
}

/// Reads the labels of every file and block device in `paths`: a folder stands for what is in it. What has several
/// names is found once, where its pool knows it, if that is among them.
///
/// Errors: `NotFound` or the like for a path that is named but cannot be looked at. What is in a
/// folder and is no pool device is passed over.
pub fn discover(env: &Env, paths: &[PathBuf]) -> Result<Discovery> {
    let mut files = Vec::new();
    for path in paths {
        let named = |e: std::io::Error| Error::from(e).at_vdev(path.display().to_string());
        if path.metadata().map_err(named)?.is_dir() {
            let mut inside: Vec<PathBuf> =
                path.read_dir().map_err(named)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
            inside.sort();
            files.extend(inside.into_iter().filter(|file| may_be_device(file)));
        } else {
            files.push(path.clone());
        }
    }
    let mut found = Discovery::default();
    let examine = |names: Vec<PathBuf>| examine(&names).map_err(|e| (names[0].display().to_string(), e));
    for result in env.map(by_identity(files), WORK_THAT_WAITS, examine) {
        match result {
            Ok(devices) => found.devices.extend(devices),
            Err(failed) => found.failed.push(failed),
        }
    }
    Ok(found)
}

/// The names of each thing: links, and mounts of one file system at several places, lead to the same.
fn by_identity(files: Vec<PathBuf>) -> Vec<Vec<PathBuf>> {
    let mut things: Vec<Vec<PathBuf>> = Vec::new();
    let mut known = HashMap::new();
    for file in files {
        // what cannot be looked at has no other name
        let identity = file.metadata().ok().map(|metadata| identity(&metadata));
        let new = things.len();
        match identity.map_or(new, |identity| *known.entry(identity).or_insert(new)) {
            at if at == new => things.push(vec![file]),
            at => things[at].push(file),
        }
    }
    things
}

/// What a thing has in common under all its names: a disk its number, a file its file system and its number there.
fn identity(metadata: &Metadata) -> (Option<u64>, u64) {
    match metadata.file_type().is_block_device() {
        true => (None, metadata.rdev()),
        false => (Some(metadata.dev()), metadata.ino()),
    }
}

/// The path that a tree has for a leaf.
fn path_of_leaf(vdev: &NvList, guid: Guid) -> Option<&str> {
    let own = || vdev.opt_str("path").filter(|_| vdev.opt_guid("guid") == Some(guid));
    let below = || vdev.opt_lists("children").unwrap_or_default().iter().find_map(|child| path_of_leaf(child, guid));
    own().or_else(below)
}

/// Regular files and block devices of at least the size of a vdev.
fn may_be_device(path: &Path) -> bool {
    let Ok(metadata) = path.metadata() else { return false };
    let kind = metadata.file_type();
    kind.is_block_device() || kind.is_file() && metadata.len() >= DEVICE_SIZE_MIN
}

/// The pool devices that a file or disk is, or has in its partitions, by the name that its pool knows, or else the first.
fn examine(names: &[PathBuf]) -> Result<Vec<FoundDevice>> {
    let found = examine_one(&names[0])?;
    let is_at = |name: &str| found.iter().any(|found| found.known_path() == Some(name));
    let is_known = |name: &&PathBuf| name.to_str().is_some_and(is_at);
    names[1..].iter().find(is_known).map_or(Ok(found.clone()), |known| examine_one(known))
}

fn examine_one(path: &Path) -> Result<Vec<FoundDevice>> {
    let name = path.to_str().ok_or_else(|| Error::new(Kind::Invalid, "path is not UTF-8"))?;
    FoundDevice::examine(name, Arc::new(FileDevice::open(name, OpenMode::ReadOnly)?))
}

/// The uberblocks of all labels of a device as they are now.
pub(crate) fn uberblocks_of(device: &dyn Device) -> Vec<Uberblock> {
    let labels: Vec<Label> = label::read_labels(device).labels.into_iter().flatten().collect();
    let config = labels.iter().find_map(|label| NvList::unpack(label.config().ok()?).ok());
    config.map_or(Vec::new(), |config| uberblocks(&labels, &config))
}

/// The uberblocks of all labels, each slot once; a configuration tells how large they are.
fn uberblocks(labels: &[Label], config: &NvList) -> Vec<Uberblock> {
    let ashift = config.opt_list("vdev_tree").and_then(|tree| tree.opt_u64("ashift")).unwrap_or(0);
    let mut all: Vec<Uberblock> = Vec::new();
    for slot in labels.iter().flat_map(|label| label.uberblocks(ashift.min(16) as u32)) {
        if let Some(uberblock) = slot.bytes.ok().and_then(|bytes| Uberblock::parse(bytes).ok().flatten())
            && !all.contains(&uberblock)
        {
            all.push(uberblock);
        }
    }
    all
}

/// The device, if any of its four labels is good.
fn read_labels(path: &str, device: Arc<dyn Device>) -> Option<FoundDevice> {
    let labels: Vec<Label> = label::read_labels(&*device).labels.into_iter().flatten().collect();
    let config_of = |label: &Label| NvList::unpack(label.config().ok()?).ok();
    let configs: Vec<NvList> = labels.iter().filter_map(config_of).collect();
    let good_labels = configs.len();
    let guids: Vec<Guid> = configs.iter().filter_map(|config| config.opt_guid("guid")).collect();
    let config = configs.into_iter().max_by_key(|config| config.opt_u64("txg").unwrap_or(0))?;
    let uberblocks = uberblocks(&labels, &config);
    let guids_before = guids.into_iter().filter(|guid| Some(*guid) != config.opt_guid("guid")).collect();
    Some(FoundDevice { path: path.to_owned(), device, config, guids_before, good_labels, uberblocks })
}
