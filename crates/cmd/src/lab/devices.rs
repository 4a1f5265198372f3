//! Devices by names: `disk-1`, `ssd-2`. Those of the user are disks and SSDs; emulated ones have other kinds, too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::Env;
use device::emulated::{EmulatedDevice, EmulatedKind};
use device::{Device, FileDevice, OpenMode};
use fuse::Unmount;
use rustix::fs::{MemfdFlags, memfd_create};

use super::place::{LabPlace, POOL};
use crate::advise::slog::guard::{self, Overwrite};
use crate::advise::slog::says::Identity;
use crate::emulate::{self, EmulatedFile};
use crate::zpool::create;

/// Names of emulated devices, their kinds, and how many there are.
const EMULATED: [(&str, EmulatedKind, usize); 5] = [
    ("disk", EmulatedKind::Hdd7200, 10),
    ("disk10k", EmulatedKind::Hdd10k, 2),
    ("disk15k", EmulatedKind::Hdd15k, 2),
    ("ssd", EmulatedKind::SsdPlp, 2),
    ("cheap", EmulatedKind::Ssd, 1),
];
/// Bytes of each emulated device. Memory is taken for what is written only.
const EMULATED_BYTES: u64 = 4 << 30;

/// See the top of the file.
pub struct LabDevices {
    by_name: BTreeMap<String, PathBuf>,
    emulated: Option<(fuse::Mount, Vec<Arc<EmulatedDevice>>)>,
}

impl LabDevices {
    /// Mounts emulated devices. Errors, for the user: they cannot be mounted.
    pub fn emulated(place: &LabPlace) -> Result<LabDevices, String> {
        place.prepare()?;
        let env = Env::real();
        let at = place.devices();
        let (mut by_name, mut files, mut devices) = (BTreeMap::new(), Vec::new(), Vec::new());
        for (role, kind, count) in EMULATED {
            for n in 1..=count {
                let name = format!("{role}-{n}");
                let below = Arc::new(in_memory(&name)?);
                // the same in each lab, so that labs agree
                let device = Arc::new(EmulatedDevice::new(below, kind, files.len() as u64, env.clone()));
                by_name.insert(name.clone(), at.join(&name));
                devices.push(device.clone());
                files.push(EmulatedFile { name, kind, device });
            }
        }
        let mount = emulate::mount(&at, files, &env)?;
        Ok(LabDevices { by_name, emulated: Some((mount, devices)) })
    }

    /// Disks and SSDs of the user. `is_new`: no lab has written to them before, so that they have to be blank. Errors, for the
    /// user: one may not be overwritten.
    pub fn real(place: &LabPlace, devices: [&[PathBuf]; 2], is_new: bool) -> Result<LabDevices, String> {
        let mut by_name = BTreeMap::new();
        for (role, paths) in ["disk", "ssd"].iter().zip(devices) {
            for (n, path) in paths.iter().enumerate() {
                let real = if is_new { blank(path)? } else { left_by_lab(place, path)? };
                if by_name.values().any(|other| *other == real) {
                    return Err(format!("{}: it was given twice", path.display()));
                }
                by_name.insert(format!("{role}-{}", n + 1), real);
            }
        }
        Ok(LabDevices { by_name, emulated: None })
    }

    /// A device by its name. Errors, for the user: there is none.
    pub fn path(&self, name: &str) -> Result<&Path, String> {
        self.by_name.get(name).map(PathBuf::as_path).ok_or_else(|| format!("there is no device {name}"))
    }

    /// Words of `zpool create` for words with names of devices. Errors, for the user: there is no such device.
    pub fn vdevs(&self, words: &str) -> Result<Vec<String>, String> {
        let resolved = words.split(' ').map(|word| match word.contains('-') {
            true => self.path(word).map(|path| path.to_string_lossy().into_owned()),
            false => Ok(word.to_owned()),
        });
        resolved.collect()
    }

    /// The folders that have devices.
    pub fn folders(&self) -> BTreeSet<String> {
        self.by_name.values().filter_map(|path| Some(path.parent()?.to_string_lossy().into_owned())).collect()
    }

    /// Forgets what is on emulated devices. Errors, for the user: of a device.
    pub fn forget(&self) -> Result<(), String> {
        for device in self.emulated.iter().flat_map(|(_, devices)| devices) {
            device.below().discard(0, device.below().size(), false).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Unmounts what is emulated, and makes devices blank where they can. Errors, for the user: one stays as it is.
    pub fn end(&self) -> Result<(), String> {
        let Some((mount, _)) = &self.emulated else {
            return self.by_name.values().try_for_each(|path| make_blank(path));
        };
        // somebody may still look at it
        mount.unmount(Unmount::IfUnused).or_else(|_| mount.unmount(Unmount::Force)).map_err(|e| e.to_string())
    }
}

/// Whether there is an emulated device of that name.
#[cfg(test)]
pub fn is_emulated_name(name: &str) -> bool {
    let is_of = |role: &str, count: usize| (1..=count).any(|n| name == format!("{role}-{n}"));
    EMULATED.iter().any(|(role, _, count)| is_of(role, *count))
}

/// A device of zeros in memory, which goes with the process.
fn in_memory(name: &str) -> Result<FileDevice, String> {
    let failed = |what: &dyn std::fmt::Display| format!("memory for {name}: {what}");
    let file = File::from(memfd_create(name, MemfdFlags::CLOEXEC).map_err(|e| failed(&e))?);
    file.set_len(EMULATED_BYTES).map_err(|e| failed(&e))?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    FileDevice::open(&path, OpenMode::ReadWriteCached).map_err(|e| failed(&e))
}

/// A device that may be overwritten because there is nothing on it.
fn blank(path: &Path) -> Result<PathBuf, String> {
    let real = path.canonicalize().map_err(|e| format!("{}: {e}", path.display()))?;
    guard::open(path, &Identity::of(path), Overwrite::default())?;
    Ok(real)
}

/// A device that a lab has written to, as its journal says, and that nobody has taken since.
fn left_by_lab(place: &LabPlace, path: &Path) -> Result<PathBuf, String> {
    let failed = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let real = path.canonicalize().map_err(|e| failed(&e))?;
    let text = real.to_str().ok_or_else(|| failed(&"the path is not UTF-8"))?;
    let label = create::label_of(text);
    if label.is_some_and(|label| label.opt_str("name") == Some(POOL)) {
        place.cenote(&["zpool", "labelclear", "-f", text])?;
    }
    let complaints = create::device_complaints(text, false)?;
    if complaints.is_empty() { Ok(real) } else { Err(failed(&complaints.join("; "))) }
}

fn make_blank(path: &Path) -> Result<(), String> {
    let text = path.to_str().ok_or_else(|| format!("{}: the path is not UTF-8", path.display()))?;
    let emptied =
        FileDevice::open(text, OpenMode::ReadWrite).and_then(|device| device.discard(0, device.size(), false));
    emptied.map_err(|e| format!("{text}: it has data of the lab still, because it cannot be discarded: {e}"))
}
