//! What a device says of itself: by sysfs, by smartctl and nvme where they are installed, and an emulated one by an
//! extended attribute.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use device::emulated::{DeviceSays, SAYS_ATTRIBUTE};
use serde_json::Value;

use crate::tools;

/// How long a program may ask a device.
const TOOL_TIME: Duration = Duration::from_secs(20);
/// Longest attribute that is read.
const ATTRIBUTE_BYTES: usize = 4096;
/// Bytes of a data unit of NVMe.
const DATA_UNIT_BYTES: u64 = 512_000;

/// What was found out without measuring.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Identity {
    pub(super) says: DeviceSays,
    pub(super) model: Option<String>,
    pub(super) serial: Option<String>,
    /// Bytes that were written to it, and the percent of its life that is used by its own count.
    pub(super) written_bytes: Option<u64>,
    pub(super) used_percent: Option<u64>,
    /// Programs that could have told more, and their packages.
    pub(super) missing: Vec<&'static str>,
    pub(super) is_emulated: bool,
}

impl Identity {
    /// Asks about the file or disk at `path`.
    pub fn of(path: &Path) -> Identity {
        let Ok(metadata) = std::fs::metadata(path) else { return Identity::default() };
        if !metadata.file_type().is_block_device() {
            return emulated(path).unwrap_or_default();
        }
        let mut identity = Identity::default();
        identity.add_sysfs(metadata.rdev());
        let name = path.to_string_lossy();
        identity.ask("smartctl", "smartctl (package smartmontools)", &["-j", "-x", "--", &name]);
        if name.starts_with("/dev/nvme") {
            identity.ask("nvme", "nvme (package nvme-cli)", &["id-ctrl", "-o", "json", &name]);
        }
        identity
    }

    fn add_sysfs(&mut self, rdev: u64) {
        let (major, minor) = (nix::sys::stat::major(rdev), nix::sys::stat::minor(rdev));
        let mut folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        if folder.join("partition").exists() {
            folder = folder.join("..");
        }
        let read = |name: &str| {
            let text = std::fs::read_to_string(folder.join(name)).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        self.says.is_rotational = read("queue/rotational").map(|text| text == "1");
        self.says.has_volatile_cache = read("queue/write_cache").map(|text| text == "write back");
        self.model = read("device/model");
        self.serial = read("device/serial").or_else(|| serial_of_udev(major, minor));
    }

    fn ask(&mut self, name: &str, missing: &'static str, args: &[&str]) {
        match tools::ask(name, args, TOOL_TIME) {
            // its exit code tells of the device's health, too
            Ok(answer) => {
                if let Ok(answer) = serde_json::from_str(&answer.text) {
                    self.add_answer(&answer);
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => self.missing.push(missing),
            Err(_) => {}
        }
    }

    /// Takes what smartctl or nvme tells.
    fn add_answer(&mut self, answer: &Value) {
        let text = |value: &Value| value.as_str().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        self.model = self.model.take().or_else(|| text(&answer["model_name"])).or_else(|| text(&answer["mn"]));
        self.serial = self.serial.take().or_else(|| text(&answer["serial_number"])).or_else(|| text(&answer["sn"]));
        // bit 0: there is a volatile write cache
        if let Some(vwc) = answer["vwc"].as_u64() {
            self.says.has_volatile_cache = Some(vwc & 1 == 1);
        }
        let attributes = answer["ata_smart_attributes"]["table"].as_array();
        let is_of_power_loss = |attribute: &Value| {
            let name = attribute["name"].as_str().unwrap_or_default().to_ascii_lowercase().replace('-', "_");
            ["power_loss_cap", "power_loss_protection", "plp_"].iter().any(|word| name.contains(word))
        };
        if attributes.is_some_and(|table| table.iter().any(is_of_power_loss)) {
            self.says.is_protected = Some(true);
        }
        let health = &answer["nvme_smart_health_information_log"];
        let written = health["data_units_written"].as_u64();
        self.written_bytes = written.map(|units| units.saturating_mul(DATA_UNIT_BYTES)).or(self.written_bytes);
        self.used_percent = health["percentage_used"].as_u64().or(self.used_percent);
        if let (Some(written), Some(used @ 1..)) = (self.written_bytes, self.used_percent) {
            self.says.rated_bytes = Some((u128::from(written) * 100 / u128::from(used)).min(u64::MAX.into()) as u64);
        }
    }
}

/// What an emulated device says; `None` if the file is none.
fn emulated(path: &Path) -> Option<Identity> {
    let mut value = [0; ATTRIBUTE_BYTES];
    let len = rustix::fs::getxattr(path, SAYS_ATTRIBUTE, &mut value).ok()?;
    let says = DeviceSays::parse(&String::from_utf8_lossy(value.get(..len)?));
    Some(Identity { says, is_emulated: true, ..Identity::default() })
}

/// What udev has noted of a disk's serial number.
fn serial_of_udev(major: u64, minor: u64) -> Option<String> {
    let text = std::fs::read_to_string(format!("/run/udev/data/b{major}:{minor}")).ok()?;
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix("E:")?.strip_prefix(key)?.strip_prefix('='));
    value("ID_SERIAL_SHORT").or_else(|| value("ID_SERIAL")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Identity {
        let mut identity = Identity::default();
        identity.add_answer(&serde_json::from_str(text).unwrap());
        identity
    }

    #[test]
    fn answers_of_smartctl_and_nvme() {
        let sata = told(
            r#"{"model_name": "INTEL SSDSC2BB480G6", "serial_number": "PHWA1",
                "ata_smart_attributes": {"table": [{"id": 175, "name": "Power_Loss_Cap_Test"}]}}"#,
        );
        assert_eq!((sata.model.as_deref(), sata.serial.as_deref()), (Some("INTEL SSDSC2BB480G6"), Some("PHWA1")));
        assert_eq!((sata.says.is_protected, sata.says.has_volatile_cache), (Some(true), None));
        let desktop = told(r#"{"ata_smart_attributes": {"table": [{"name": "Wear_Leveling_Count"}, {"name": 5}]}}"#);
        assert_eq!(desktop.says.is_protected, None, "not to say it is not to deny it");
        let nvme = told(
            r#"{"vwc": 7, "mn": "Samsung SSD 990 PRO ", "sn": "S1",
                "nvme_smart_health_information_log": {"data_units_written": 2000000, "percentage_used": 4}}"#,
        );
        assert_eq!(nvme.model.as_deref(), Some("Samsung SSD 990 PRO"));
        assert_eq!((nvme.says.has_volatile_cache, nvme.written_bytes), (Some(true), Some(1_024_000_000_000)));
        assert_eq!(nvme.says.rated_bytes, Some(25_600_000_000_000), "4 % of its life");
        assert_eq!(told(r#"{"vwc": 6}"#).says.has_volatile_cache, Some(false));
        let odd = r#"{"vwc": -1, "nvme_smart_health_information_log":
            {"data_units_written": 18446744073709551615, "percentage_used": 1}}"#;
        assert_eq!(told(odd).says.rated_bytes, Some(u64::MAX));
        assert_eq!(told("[]"), Identity::default());
    }
}
