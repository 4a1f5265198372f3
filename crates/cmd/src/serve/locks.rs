//! Locks on a pool's devices, against a second opener.
//!
//! A pool that is open for reading has shared locks on its devices: others may read them, too, but
//! nobody can open it for writing. One that is open for writing has exclusive ones. Disks may also be in use by the kernel itself, which opens them
//! exclusively; that shows when they are opened so for a moment.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use base::{Error, Kind, Mutex, Result};
use device::{Device, FileDevice, OpenMode};
use pool::{Candidate, FoundDevice};

/// Locks on devices, until dropped.
pub struct Locks {
    held: Vec<Arc<FileDevice>>,
}

/// Devices that this process, which has one pool, has opened again.
static REOPENED: Mutex<Vec<Weak<FileDevice>>> = Mutex::new(Vec::new());
/// Devices that were added to it.
static ADDED: Mutex<Vec<Arc<FileDevice>>> = Mutex::new(Vec::new());

/// Devices by the paths that they were asked for.
type Devices = HashMap<PathBuf, Arc<dyn Device>>;

impl Locks {
    /// Gives all back at once: a process with much memory takes a while to end.
    pub fn release(&self) {
        self.all().iter().for_each(|device| device.unlock());
    }

    /// Gives those at `paths` back, which the pool has no more.
    pub fn let_go(&self, paths: &[String]) {
        let gone = |device: &&Arc<FileDevice>| paths.iter().any(|path| path == device.path());
        self.all().iter().filter(gone).for_each(|device| device.unlock());
    }

    /// These are devices of the pool from now on.
    pub fn keep(self) {
        ADDED.lock().extend(self.held);
    }

    fn all(&self) -> Vec<Arc<FileDevice>> {
        let reopened = REOPENED.lock();
        let added = ADDED.lock();
        let reopened = reopened.iter().filter_map(Weak::upgrade);
        self.held.iter().cloned().chain(reopened).chain(added.iter().cloned()).collect()
    }

    /// Locks all devices of a pool that were found. Errors: `Busy` if one is in use.
    pub fn of(candidate: &Candidate) -> Result<Locks> {
        let mut held = Vec::new();
        for found in &candidate.devices {
            let path = file_of(&found.path);
            refuse_if_used_by_kernel(path)?;
            let device = FileDevice::open(path, OpenMode::ReadOnlyCached)?;
            device.lock(false)?;
            held.push(Arc::new(device));
        }
        Ok(Locks { held })
    }

    /// Opens files and disks for writing, and locks them. Errors: `Busy` if one is in use, or named twice.
    pub fn for_writing(paths: &[PathBuf]) -> Result<(Locks, Devices)> {
        let (mut held, mut devices) = (Vec::new(), Devices::new());
        for path in paths {
            let device = Arc::new(open_for_writing(&path.to_string_lossy())?);
            held.push(device.clone());
            devices.insert(path.clone(), device);
        }
        Ok((Locks { held }, devices))
    }

    /// Opens the devices of a pool that were found for writing, and locks them; the candidate has them then.
    /// Errors: `Busy` if one is in use; `Missing` if another one is there now.
    pub fn with_writable(candidate: &Candidate) -> Result<(Locks, Candidate)> {
        let mut candidate = candidate.clone();
        let mut files: HashMap<String, Arc<FileDevice>> = HashMap::new();
        for found in &mut candidate.devices {
            let path = file_of(&found.path).to_owned();
            let file = match files.get(&path) {
                Some(file) => file.clone(),
                None => Arc::new(open_for_writing(&path)?),
            };
            let mut now = FoundDevice::examine(&path, file.clone())?.into_iter();
            let changed = || Error::new(Kind::Missing, "the device has another label now").at_vdev(&path);
            *found = now.find(|now| now.guid() == found.guid()).ok_or_else(changed)?;
            files.insert(path, file);
        }
        Ok((Locks { held: files.into_values().collect() }, candidate))
    }
}

/// Opens the device of a pool again, as it may be another one by now. Errors: as from [`Locks::for_writing`].
pub fn reopen(path: &str) -> Result<Arc<dyn Device>> {
    let device = Arc::new(open_for_writing(file_of(path))?);
    REOPENED.lock().push(Arc::downgrade(&device));
    Ok(device)
}

/// Makes a device that has just left the pool nobody's, if it still has the label with that guid. That this fails is
/// logged: the pool does not know the device any more.
pub fn clear_label(path: &str, guid: u64) {
    let clear = || -> Result<()> {
        let device = open_for_writing(path)?;
        let device: Arc<dyn Device> = Arc::new(device);
        if FoundDevice::examine(path, device.clone())?.iter().any(|found| found.guid() == Some(guid)) {
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
fn file_of(path: &str) -> &str {
    match path.rsplit_once(':') {
        Some((file, number)) if number.bytes().all(|b| b.is_ascii_digit()) && !Path::new(path).exists() => file,
        _ => path,
    }
}

fn refuse_if_used_by_kernel(path: &str) -> Result<()> {
    let is_disk = std::fs::metadata(path)?.file_type().is_block_device();
    if !is_disk {
        return Ok(());
    }
    match File::options().read(true).custom_flags(libc::O_EXCL | libc::O_NONBLOCK).open(path) {
        Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
            Err(Error::new(Kind::Busy, "the device is in use by the kernel").at_vdev(path))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_in_files() {
        assert_eq!(file_of("/img/disk.img:1"), "/img/disk.img");
        assert_eq!(file_of("/img/disk.img"), "/img/disk.img");
        assert_eq!(file_of("/img/a:b"), "/img/a:b");
    }
}
