//! Locks on a pool's devices, against a second opener.
//!
//! A pool that is open for reading has shared locks on its devices: others may read them, too, but
//! nobody can open it for writing. One that is open for writing has exclusive ones. They are common to all names of the
//! same storage ([`FileDevice::lock`]), and so to processes with other folders for their sockets. Disks may also be in
//! use by the kernel itself, which opens them exclusively; that shows when they are opened so for a moment. Files that
//! OpenZFS's module has open do not show: what pools it has, it tells.

use std::collections::{HashMap, HashSet};
use std::fs::{DirEntry, File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use base::{Error, Kind, Mutex, Result};
use device::{Device, FileDevice, OpenMode};
use format::ids::Guid;
use pool::{Candidate, FoundDevice, LabelKind};

/// Locks on devices, until dropped.
pub struct DeviceLocks {
    held: Vec<Arc<FileDevice>>,
}

/// Devices that this process, which has one pool, has opened for writing.
static OPEN: Mutex<Vec<Weak<FileDevice>>> = Mutex::new(Vec::new());
/// Devices that were added to it.
static ADDED: Mutex<Vec<Arc<FileDevice>>> = Mutex::new(Vec::new());

/// Devices by the paths that they were asked for.
type DevicesByPath = HashMap<PathBuf, Arc<dyn Device>>;

impl DeviceLocks {
    /// Gives all back at once: a process with much memory takes a while to end.
    pub fn release(&self) {
        self.all().iter().for_each(|device| device.unlock());
    }

    /// Gives those at `paths` back, which the pool has no more.
    pub fn let_go(&self, paths: &[String]) {
        let gone = |device: &&Arc<FileDevice>| paths.iter().any(|path| path == device.path());
        self.all().iter().filter(gone).for_each(|device| device.unlock());
    }

    /// Gives those devices of a candidate back that none of its leaves has, by their guids: what came after the checkpoint
    /// that a pool has gone back to is nobody's.
    pub fn let_unused_go(&self, candidate: &Candidate, leaves: &HashSet<Guid>) {
        let is_used = |found: &&FoundDevice| found.guid().is_none_or(|guid| leaves.contains(&guid));
        let is_of_before = |found: &&FoundDevice| found.guids_before.iter().any(|guid| leaves.contains(guid));
        let used: Vec<&str> = candidate
            .devices
            .iter()
            .filter(|found| is_used(found) || is_of_before(found))
            .map(|found| file_of(&found.path))
            .collect();
        self.held.iter().filter(|device| !used.contains(&device.path())).for_each(|device| device.unlock());
    }

    /// These are devices of the pool from now on.
    pub fn keep(self) {
        ADDED.lock().extend(self.held);
    }

    fn all(&self) -> Vec<Arc<FileDevice>> {
        let reopened = OPEN.lock();
        let added = ADDED.lock();
        let reopened = reopened.iter().filter_map(Weak::upgrade);
        self.held.iter().cloned().chain(reopened).chain(added.iter().cloned()).collect()
    }

    /// Locks all devices of a pool that were found. Errors: `Busy` if one is in use.
    pub fn of(candidate: &Candidate) -> Result<DeviceLocks> {
        let mut held = Vec::new();
        for found in &candidate.devices {
            let path = file_of(&found.path);
            refuse_if_used_by_kernel(path)?;
            let device = FileDevice::open(path, OpenMode::ReadOnlyCached)?;
            device.lock(false)?;
            held.push(Arc::new(device));
        }
        Ok(DeviceLocks { held })
    }

    /// Opens files and disks for writing, and locks them. Errors: `Busy` if one is in use, or named twice.
    pub fn for_writing(paths: &[PathBuf]) -> Result<(DeviceLocks, DevicesByPath)> {
        let (mut held, mut devices) = (Vec::new(), DevicesByPath::new());
        for path in paths {
            let device = Arc::new(open_for_writing(&path.to_string_lossy())?);
            note_open(&device);
            held.push(device.clone());
            devices.insert(path.clone(), device);
        }
        Ok((DeviceLocks { held }, devices))
    }

    /// Opens the devices of a pool that were found for writing, and locks them; the candidate has them then.
    /// Errors: `Busy` if one is in use; `Missing` if another one is there now.
    pub fn with_writable(candidate: &Candidate) -> Result<(DeviceLocks, Candidate)> {
        let mut candidate = candidate.clone();
        let mut files: HashMap<String, Arc<FileDevice>> = HashMap::new();
        for found in &mut candidate.devices {
            let path = file_of(&found.path).to_owned();
            let file = match files.get(&path) {
                Some(file) => file.clone(),
                None => {
                    let file = Arc::new(open_for_writing(&path)?);
                    note_open(&file);
                    file
                }
            };
            let mut now = FoundDevice::examine(&path, file.clone())?.into_iter();
            let changed = || Error::new(Kind::Missing, "the device has another label now").at_vdev(&path);
            *found = now.find(|now| now.guid() == found.guid()).ok_or_else(changed)?;
            files.insert(path, file);
        }
        Ok((DeviceLocks { held: files.into_values().collect() }, candidate))
    }
}

/// Opens the device of a pool again, as it may be another one by now. Errors: as from [`DeviceLocks::for_writing`].
pub fn reopen(path: &str) -> Result<Arc<dyn Device>> {
    let opened = match open_for_writing(file_of(path)) {
        Err(error) if error.kind() == Kind::Busy && let_dead_go(file_of(path)) => open_for_writing(file_of(path)),
        opened => opened,
    };
    let device = Arc::new(opened?);
    note_open(&device);
    Ok(device)
}

/// Devices that this process opens are found by their paths from now on.
fn note_open(device: &Arc<FileDevice>) {
    let mut open = OPEN.lock();
    open.retain(|known| known.strong_count() > 0);
    open.push(Arc::downgrade(device));
}

/// Gives the locks of devices back that were opened at `path` by this process, and of which no label can be read any
/// more: a disk that was pulled would keep its own storage from being used under another name. Whether there was one.
fn let_dead_go(path: &str) -> bool {
    let mut own: Vec<Arc<FileDevice>> = OPEN.lock().iter().filter_map(Weak::upgrade).collect();
    own.retain(|device| device.path() == path && is_dead(device));
    own.iter().for_each(|device| device.unlock());
    !own.is_empty()
}

/// Whether no label of a device can be read.
fn is_dead(device: &Arc<FileDevice>) -> bool {
    let device: Arc<dyn Device> = device.clone();
    FoundDevice::examine(device.path(), device.clone()).map_or(true, |found| found.is_empty())
}

/// As [`reopen`], if the device has a label: others are let alone. Errors: `Missing` if it has none.
pub fn reopen_labelled(path: &str) -> Result<Arc<dyn Device>> {
    let looked: Arc<dyn Device> = Arc::new(FileDevice::open(file_of(path), OpenMode::ReadOnlyCached)?);
    match FoundDevice::examine(path, looked)?.is_empty() {
        true => Err(Error::new(Kind::Missing, "it has no label").at_vdev(path)),
        false => reopen(path),
    }
}

/// Bytes at each end of a device in which file systems, partitions, volume managers and pools tell of themselves.
const TOLD_BYTES: u64 = 4 << 20;

/// Opens a device for the pool if there is nothing but zeros where things tell of themselves; whether it is a file.
/// Errors: `Missing` if there is something; those of opening.
pub fn open_blank(path: &str) -> Result<(Arc<dyn Device>, bool)> {
    let looked = FileDevice::open(path, OpenMode::ReadOnlyCached)?;
    let size = looked.size();
    let told = TOLD_BYTES.min(size);
    let mut bytes = vec![0; told as usize];
    for offset in [0, size - told] {
        looked.read_at(offset, &mut bytes)?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Err(Error::new(Kind::Missing, "there is something on it").at_vdev(path));
        }
    }
    Ok((reopen(path)?, std::fs::metadata(path)?.is_file()))
}

/// Makes a spare or cache device that has just left the pool nobody's, if it still has the label with that guid. That
/// this fails is logged: the pool does not know the device any more.
pub fn clear_label(path: &str, guid: Guid) {
    let clear = || -> Result<()> {
        let device = open_for_writing(path)?;
        let device: Arc<dyn Device> = Arc::new(device);
        let is_it = |found: &FoundDevice| found.kind() != LabelKind::Member && found.guid() == Some(guid);
        if FoundDevice::examine(path, device.clone())?.iter().any(is_it) {
            vdev::label::clear(&*device)?;
            device.flush()?;
        }
        Ok(())
    };
    if let Err(error) = clear() {
        tracing::warn!(path, "its label is left: {error}");
    }
}

fn open_for_writing(path: &str) -> Result<FileDevice> {
    refuse_if_used_by_kernel(path)?;
    let device = FileDevice::open(path, OpenMode::ReadWrite)?;
    device.lock(true)?;
    Ok(device)
}

/// The file that a device is in: a partition found inside it has its number behind a colon.
pub(crate) fn file_of(path: &str) -> &str {
    match path.rsplit_once(':') {
        Some((file, number)) if number.bytes().all(|b| b.is_ascii_digit()) && !Path::new(path).exists() => file,
        _ => path,
    }
}

fn refuse_if_used_by_kernel(path: &str) -> Result<()> {
    let metadata = std::fs::metadata(path)?;
    let is_claimed = |disk: &Path| {
        let opened = File::options().read(true).custom_flags(libc::O_EXCL | libc::O_NONBLOCK).open(disk);
        opened.is_err_and(|e| e.raw_os_error() == Some(libc::EBUSY))
    };
    let disk = match metadata.file_type().is_block_device() {
        true => is_claimed(path.as_ref()).then(|| path.to_owned()),
        false => loops_over(&metadata).into_iter().find(|disk| is_claimed(disk)).map(|disk| disk.display().to_string()),
    };
    match disk {
        Some(disk) if disk == path => Err(Error::new(Kind::Busy, "the device is in use by the kernel").at_vdev(path)),
        Some(disk) => Err(Error::new(Kind::Busy, format!("the file is in use as {disk}")).at_vdev(path)),
        None => Ok(()),
    }
}

/// The loop devices over a file.
fn loops_over(file: &Metadata) -> Vec<PathBuf> {
    let is_it = |disk: &DirEntry| {
        let backing = std::fs::read_to_string(disk.path().join("loop/backing_file")).ok()?;
        let backing = std::fs::metadata(backing.trim_end_matches('\n')).ok()?;
        Some((backing.dev(), backing.ino()) == (file.dev(), file.ino()))
    };
    let disks = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    disks.filter(|disk| is_it(disk) == Some(true)).map(|disk| Path::new("/dev").join(disk.file_name())).collect()
}

/// Where OpenZFS's module tells of its pools.
const MODULE_POOLS: &str = "/proc/spl/kstat/zfs";

/// Refuses a pool that OpenZFS's module has imported. Errors: `Busy`, naming it.
pub fn refuse_pool_of_module(name: &str, guid: Guid) -> Result<()> {
    match pool_of_module(Path::new(MODULE_POOLS), name, guid) {
        Some(there) => {
            let what = format!("pool '{there}' is imported by the ZFS kernel module of this machine");
            Err(Error::new(Kind::Busy, what))
        }
        None => Ok(()),
    }
}

/// The name by which the module has the pool. A module before 2.2 does not tell guids: then it is known by its name.
fn pool_of_module(folder: &Path, name: &str, guid: Guid) -> Option<String> {
    let is_it = |pool: &DirEntry| {
        let told = std::fs::read_to_string(pool.path().join("guid")).ok().and_then(|text| text.trim().parse().ok());
        pool.path().is_dir() && told.map_or(pool.file_name() == name, |told: Guid| told == guid)
    };
    let pools = folder.read_dir().into_iter().flatten().flatten();
    pools.filter(is_it).map(|pool| pool.file_name().to_string_lossy().into_owned()).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_of_the_kernel_module() {
        let folder = tempfile::tempdir().unwrap();
        for (pool, guid) in [("new", Some("7\n")), ("old", None)] {
            std::fs::create_dir(folder.path().join(pool)).unwrap();
            guid.into_iter().for_each(|guid| std::fs::write(folder.path().join(pool).join("guid"), guid).unwrap());
        }
        std::fs::write(folder.path().join("arcstats"), "").unwrap();
        let find = |name, guid| pool_of_module(folder.path(), name, guid);
        assert_eq!(find("tank", Guid::new(7)).as_deref(), Some("new"), "by its guid, whatever it is called");
        assert_eq!((find("new", Guid::new(8)), find("arcstats", Guid::new(9))), (None, None));
        assert_eq!(find("old", Guid::new(9)).as_deref(), Some("old"), "it does not tell its guid");
        assert_eq!(pool_of_module(Path::new("/no/such"), "old", Guid::new(9)), None);
    }

    #[test]
    fn partitions_are_in_files() {
        assert_eq!(file_of("/img/disk.img:1"), "/img/disk.img");
        assert_eq!(file_of("/img/disk.img"), "/img/disk.img");
        assert_eq!(file_of("/img/a:b"), "/img/a:b");
    }
}
