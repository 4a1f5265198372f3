//! Locks on a pool's devices, against a second opener.
//!
//! A pool that is open for reading has shared locks on its devices: others may read them, too, but
//! nobody can open it for writing. Disks may also be in use by the kernel itself, which opens them
//! exclusively; that shows when they are opened so for a moment.

use std::fs::File;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

use base::{Error, Kind, Result};
use device::{FileDevice, OpenMode};
use pool::Candidate;

/// Locks on devices, until dropped.
pub struct Locks {
    _held: Vec<FileDevice>,
}

impl Locks {
    /// Locks all devices of a pool that were found. Errors: `Busy` if one is in use.
    pub fn of(candidate: &Candidate) -> Result<Locks> {
        let mut held = Vec::new();
        for found in &candidate.devices {
            let path = file_of(&found.path);
            refuse_if_used_by_kernel(path)?;
            let device = FileDevice::open(path, OpenMode::ReadOnlyCached)?;
            device.lock(false)?;
            held.push(device);
        }
        Ok(Locks { _held: held })
    }
}

/// The file that a device is in: a partition found inside it has its number behind a colon.
fn file_of(path: &str) -> &str {
    match path.rsplit_once(':') {
        Some((file, number)) if number.bytes().all(|b| b.is_ascii_digit()) && !std::path::Path::new(path).exists() => {
            file
        }
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
