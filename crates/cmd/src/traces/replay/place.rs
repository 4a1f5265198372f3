//! Where a trace is replayed: new files of a folder, or a blank device.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{AlignedBuf, Error, Kind, Mutex, Result};
use device::{Device, FileDevice};

use super::plan::{FileKey, ReplayPlan};
use crate::advise::slog::guard::{self, Overwrite};
use crate::advise::slog::says::Identity;
use crate::bench::random::noise;

/// Files that are open at once.
const OPEN_MAX: usize = 512;
/// Bytes that are read or written at once; those that are written come from here.
const STEP_BYTES: usize = 1 << 20;
/// A device is read and written by these, and each file begins at a multiple of the other.
const SECTOR: u64 = 4096;
const BEGIN: u64 = 1 << 20;

/// See the top of the file.
pub(super) struct ReplayPlace {
    target: ReplayTarget,
    bytes: AlignedBuf,
}

enum ReplayTarget {
    Folder { path: PathBuf, open: Mutex<HashMap<FileKey, Arc<File>>> },
    Device { device: FileDevice, begins: HashMap<FileKey, u64> },
}

impl ReplayPlace {
    /// Makes the files, or looks at the device; fills what will be read. Errors, for the user: what is there already is
    /// not touched; there is too little room; interrupted.
    pub(super) fn prepare(
        at: &Path,
        plan: &ReplayPlan,
        is_interrupted: &AtomicBool,
    ) -> std::result::Result<ReplayPlace, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", at.display());
        let target = match at.is_dir() {
            true => folder(at, plan)?,
            false => device(at, plan)?,
        };
        let place = ReplayPlace { target, bytes: noise(STEP_BYTES, 1) };
        for (key, from, len) in plan.parts() {
            if is_interrupted.load(Ordering::SeqCst) {
                return Err("interrupted".to_owned());
            }
            place.write(key, from, len).map_err(|error| failed(&error))?;
        }
        plan.ends.keys().try_for_each(|key| place.sync(*key)).map_err(|error| failed(&error))?;
        Ok(place)
    }

    /// Reads bytes, which are forgotten. Errors: of the place.
    pub(super) fn read(&self, key: FileKey, offset: u64, len: u64, buf: &mut AlignedBuf) -> Result<()> {
        match &self.target {
            ReplayTarget::Folder { .. } => {
                let file = self.file(key)?;
                in_steps(offset, len, |at, step| {
                    // fewer bytes where the file ends
                    file.read_at(&mut buf[..step], at)?;
                    Ok(())
                })
            }
            ReplayTarget::Device { device, begins } => {
                let (from, len) = on_device(begins, key, offset, len)?;
                in_steps(from, len, |at, step| device.read_at(at, &mut buf[..step]))
            }
        }
    }

    /// Writes bytes that cannot be compressed. Errors: of the place.
    pub(super) fn write(&self, key: FileKey, offset: u64, len: u64) -> Result<()> {
        match &self.target {
            ReplayTarget::Folder { .. } => {
                let file = self.file(key)?;
                in_steps(offset, len, |at, step| Ok(file.write_all_at(&self.bytes[..step], at)?))
            }
            ReplayTarget::Device { device, begins } => {
                let (from, len) = on_device(begins, key, offset, len)?;
                in_steps(from, len, |at, step| device.write_at(at, &self.bytes[..step]))
            }
        }
    }

    /// Brings what was written to disk. Errors: of the place.
    pub(super) fn sync(&self, key: FileKey) -> Result<()> {
        match &self.target {
            ReplayTarget::Folder { path, .. } => match self.file(key) {
                Ok(file) => Ok(file.sync_data()?),
                // a sync of all, or of a file of which nothing else is in the trace
                Err(error) if error.kind() == Kind::NotFound => Ok(File::open(path)?.sync_all()?),
                Err(error) => Err(error),
            },
            ReplayTarget::Device { device, .. } => device.flush(),
        }
    }

    /// Room for a read.
    pub(super) fn buffer() -> AlignedBuf {
        AlignedBuf::zeroed(STEP_BYTES)
    }

    /// A file of a folder.
    fn file(&self, key: FileKey) -> Result<Arc<File>> {
        let ReplayTarget::Folder { path, open } = &self.target else {
            return Err(Error::new(Kind::Invalid, "a device has no files"));
        };
        if let Some(file) = open.lock().get(&key) {
            return Ok(file.clone());
        }
        let file = Arc::new(File::options().read(true).write(true).open(path.join(name_of(key)))?);
        let mut open = open.lock();
        if open.len() >= OPEN_MAX {
            open.clear();
        }
        open.insert(key, file.clone());
        Ok(file)
    }
}

fn name_of((stream, object): FileKey) -> String {
    format!("{stream}-{object}")
}

fn in_steps(offset: u64, len: u64, mut step: impl FnMut(u64, usize) -> Result<()>) -> Result<()> {
    let mut at = offset;
    while at < offset + len {
        let bytes = (offset + len - at).min(STEP_BYTES as u64);
        step(at, bytes as usize)?;
        at += bytes;
    }
    Ok(())
}

/// Whole sectors of a device. Errors: the plan does not have that file.
fn on_device(begins: &HashMap<FileKey, u64>, key: FileKey, offset: u64, len: u64) -> Result<(u64, u64)> {
    let begin = begins.get(&key).ok_or_else(|| Error::new(Kind::NotFound, "not in the trace before"))?;
    let from = begin + offset / SECTOR * SECTOR;
    Ok((from, (begin + offset + len).next_multiple_of(SECTOR) - from))
}

/// New files, as long as the trace needs them. Errors, for the user.
fn folder(path: &Path, plan: &ReplayPlan) -> std::result::Result<ReplayTarget, String> {
    let failed = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let statistics = rustix::fs::statvfs(path).map_err(|error| failed(&error))?;
    let (room, needed) = (statistics.f_bavail.saturating_mul(statistics.f_frsize), plan.parts().len() as u64);
    let needed = needed.saturating_mul(super::plan::PART_BYTES);
    if needed > room {
        return Err(failed(&format!("{needed} bytes are read, for which there is no room: {room} bytes are free")));
    }
    let names: Vec<String> = plan.ends.keys().map(|key| name_of(*key)).collect();
    if let Some(name) = names.iter().find(|name| path.join(name).symlink_metadata().is_ok()) {
        return Err(failed(&format!("there is a file {name} already, which is not touched")));
    }
    for (name, end) in names.iter().zip(plan.ends.values()) {
        let file = File::options().write(true).create_new(true).open(path.join(name));
        file.and_then(|file| file.set_len(*end)).map_err(|error| failed(&error))?;
    }
    Ok(ReplayTarget::Folder { path: path.to_owned(), open: Mutex::default() })
}

/// A device that may be overwritten, and where each file begins there. Errors, for the user.
fn device(path: &Path, plan: &ReplayPlan) -> std::result::Result<ReplayTarget, String> {
    let (device, _) = guard::open(path, &Identity::default(), Overwrite::default())?;
    let (mut begins, mut next) = (HashMap::new(), 0u64);
    for (key, end) in &plan.ends {
        begins.insert(*key, next);
        next = end.checked_next_multiple_of(BEGIN).and_then(|bytes| next.checked_add(bytes)).unwrap_or(u64::MAX);
    }
    match next <= device.size() {
        true => Ok(ReplayTarget::Device { device, begins }),
        false => Err(format!("{}: the trace needs {next} bytes, and there are {}", path.display(), device.size())),
    }
}
