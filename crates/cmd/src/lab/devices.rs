//! Devices by names: `disk-1`, `ssd-2`. Those of the user are disks and SSDs; emulated ones have other kinds, too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use device::emulated::EmulatedKind;
use device::{Device, FileDevice, OpenMode};

use super::emulator::LabEmulator;
use super::peer;
use super::place::{LabPlace, POOL};
use crate::advise::slog::guard::{self, Overwrite};
use crate::advise::slog::says::Identity;
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
    emulator: Option<LabEmulator>,
}

impl LabDevices {
    /// Mounts emulated devices. Errors, for the user: they cannot be mounted.
    pub fn emulated(place: &LabPlace) -> Result<LabDevices, String> {
        place.prepare()?;
        let devices: Vec<(String, EmulatedKind)> = EMULATED
            .into_iter()
            .flat_map(|(role, kind, count)| (1..=count).map(move |n| (format!("{role}-{n}"), kind)))
            .collect();
        let emulator = LabEmulator::start(place, &devices, EMULATED_BYTES)?;
        let by_name = devices.into_iter().map(|(name, _)| (name.clone(), place.devices().join(name))).collect();
        Ok(LabDevices { by_name, emulator: Some(emulator) })
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
        Ok(LabDevices { by_name, emulator: None })
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
        match &self.emulator {
            Some(_) => self.by_name.values().try_for_each(|path| make_blank(path)),
            None => Ok(()),
        }
    }

    /// Ends those that are emulated, and makes others blank where they can be. Errors, for the user: one stays as it is.
    pub fn end(&mut self) -> Result<(), String> {
        match &mut self.emulator {
            Some(emulator) => emulator.end(),
            None => self.by_name.values().try_for_each(|path| make_blank(path)),
        }
    }
}

/// Whether there is an emulated device of that name.
#[cfg(test)]
pub fn is_emulated_name(name: &str) -> bool {
    let is_of = |role: &str, count: usize| (1..=count).any(|n| name == format!("{role}-{n}"));
    EMULATED.iter().any(|(role, _, count)| is_of(role, *count))
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
    peer::wipe_left(&real)?;
    let complaints = create::device_complaints(text, false)?;
    if complaints.is_empty() { Ok(real) } else { Err(failed(&complaints.join("; "))) }
}

fn make_blank(path: &Path) -> Result<(), String> {
    let text = path.to_str().ok_or_else(|| format!("{}: the path is not UTF-8", path.display()))?;
    let emptied =
        FileDevice::open(text, OpenMode::ReadWrite).and_then(|device| device.discard(0, device.size(), false));
    emptied.map_err(|e| format!("{text}: it has data of the lab still, because it cannot be discarded: {e}"))
}
