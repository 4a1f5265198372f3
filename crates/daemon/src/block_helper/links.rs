//! Names of block devices, as OpenZFS's udev rules have them: `/dev/zvol/tank/vm`, and `/dev/zvol/tank/vm-part1` for a
//! partition. Each is a link to the device, relative, and the helper's own: it also is where no udev runs.
//!
//! The kernel tells of partitions that come and go (`NETLINK_KOBJECT_UEVENT`); the links follow.

use std::collections::HashMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::sync::{LazyLock, Once};

use base::Mutex;
use nbd::KernelDevice;
use nix::sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket};

/// Longest message of the kernel, in bytes.
const EVENT_BYTES_MAX: usize = 8 << 10;
/// The group of the kernel's own messages.
const KERNEL_GROUP: u32 = 1;

/// The volumes of the devices that this process has set up, by the names of these: only those have links.
static VOLUMES: LazyLock<Mutex<HashMap<String, LinkedVolume>>> = LazyLock::new(Mutex::default);

/// A volume that is a device.
struct LinkedVolume {
    name: String,
    /// The partitions on it are devices, too.
    has_partitions: bool,
}

/// Where links are.
pub(super) struct DeviceLinks {
    folder: PathBuf,
    sysfs: PathBuf,
}

impl DeviceLinks {
    /// Those of this machine.
    pub(super) fn host() -> DeviceLinks {
        DeviceLinks { folder: "/dev/zvol".into(), sysfs: "/sys/block".into() }
    }

    /// A volume is that device: its links are there, and those of another name are not. Errors: the name is none; those
    /// of the file system.
    pub(super) fn set(&self, device: KernelDevice, name: &str, has_partitions: bool) -> io::Result<()> {
        let is_plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
        if !is_plain || name.is_empty() || name.contains("//") || name.ends_with('/') {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let mut volumes = VOLUMES.lock();
        if volumes.get(&device.name()).is_some_and(|before| before.name != name) {
            self.take_from(&mut volumes, device);
        }
        volumes.insert(device.name(), LinkedVolume { name: name.to_owned(), has_partitions });
        self.link(name, &device.name())?;
        self.link_partitions(name, &device.name(), has_partitions);
        Ok(())
    }

    /// The links of a device go.
    pub(super) fn take(&self, device: KernelDevice) {
        self.take_from(&mut VOLUMES.lock(), device);
    }

    /// Its partitions may have come or gone. Whether there are some, and are to be none.
    pub(super) fn renew_partitions(&self, device: KernelDevice) -> bool {
        // held, so that no link comes behind a device that goes
        let volumes = VOLUMES.lock();
        let Some(volume) = volumes.get(&device.name()) else { return false };
        self.link_partitions(&volume.name, &device.name(), volume.has_partitions);
        !volume.has_partitions && !self.partitions(&device.name()).is_empty()
    }

    fn take_from(&self, volumes: &mut HashMap<String, LinkedVolume>, device: KernelDevice) {
        let Some(LinkedVolume { name, .. }) = volumes.remove(&device.name()) else { return };
        self.remove(&name, &device.name());
        for (part, target) in self.partition_links(&name, &device.name()) {
            self.remove(&part, &target);
        }
        for folder in self.folder.join(&name).ancestors().skip(1).take_while(|folder| *folder != self.folder) {
            if fs::remove_dir(folder).is_err() {
                break;
            }
        }
    }

    /// The partitions that a device has.
    pub(super) fn partitions(&self, device: &str) -> Vec<String> {
        let entries = fs::read_dir(self.sysfs.join(device)).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|part| partition_of(part).is_some_and(|(of, _)| of == device)).collect()
    }

    fn link_partitions(&self, name: &str, device: &str, has_partitions: bool) {
        let there = if has_partitions { self.partitions(device) } else { Vec::new() };
        for (link, target) in self.partition_links(name, device) {
            if !there.contains(&target) {
                self.remove(&link, &target);
            }
        }
        for part in there {
            let number = partition_of(&part).map_or(0, |(_, number)| number);
            if let Err(error) = self.link(&format!("{name}-part{number}"), &part) {
                tracing::debug!("the link of {part}: {error}");
            }
        }
    }

    /// The links of a device's partitions that are there, and their targets.
    fn partition_links(&self, name: &str, device: &str) -> Vec<(String, String)> {
        let (above, base) = name.rsplit_once('/').map_or((None, name), |(above, base)| (Some(above), base));
        let prefix = format!("{base}-part");
        let folder = above.map_or_else(|| self.folder.clone(), |above| self.folder.join(above));
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let links = entries.filter_map(|entry| {
            let link = entry.file_name().into_string().ok().filter(|link| link.starts_with(&prefix))?;
            let target = fs::read_link(entry.path()).ok()?.file_name()?.to_str()?.to_owned();
            let link = above.map_or_else(|| link.clone(), |above| format!("{above}/{link}"));
            partition_of(&target).filter(|(of, _)| *of == device)?;
            Some((link, target))
        });
        links.collect()
    }

    /// Errors: something else is there that is no such link.
    fn link(&self, name: &str, target: &str) -> io::Result<()> {
        let path = self.folder.join(name);
        let target = PathBuf::from("../".repeat(name.split('/').count())).join(target);
        match fs::read_link(&path) {
            Ok(found) if found == target => return Ok(()),
            // one of a device that is no more, or of another kind of them
            Ok(_) => fs::remove_file(&path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => return Err(io::Error::from(io::ErrorKind::AlreadyExists)),
        }
        DirBuilder::new().recursive(true).mode(0o755).create(path.parent().unwrap_or(&path))?;
        symlink(target, path)
    }

    /// Removes a link, if it is one to that device.
    fn remove(&self, name: &str, target: &str) {
        let path = self.folder.join(name);
        if fs::read_link(&path).is_ok_and(|found| found.file_name().is_some_and(|found| found == target)) {
            let _ = fs::remove_file(path);
        }
    }
}

/// Of which device that is a partition, and which: `nbd0p1` is the first of `nbd0`.
fn partition_of(name: &str) -> Option<(&str, u32)> {
    let (device, number) = name.rsplit_once('p')?;
    let index = device.strip_prefix("nbd")?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number(index) && is_number(number) { Some((device, number.parse().ok()?)) } else { None }
}

/// From now on, links of partitions come and go with these. Where the kernel does not tell of them, only those are seen
/// that are there when a device is set up. `unwanted` is told of a device that has some and is to have none.
pub(super) fn follow_partitions(unwanted: fn(KernelDevice)) {
    static BEGUN: Once = Once::new();
    let follow = move || follow(unwanted);
    BEGUN.call_once(|| drop(std::thread::Builder::new().name("partitions".to_owned()).spawn(follow)));
}

fn follow(unwanted: fn(KernelDevice)) {
    let opened =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkKObjectUEvent);
    let Ok(events) = opened else { return };
    if bind(events.as_raw_fd(), &NetlinkAddr::new(0, KERNEL_GROUP)).is_err() {
        return;
    }
    let mut event = vec![0; EVENT_BYTES_MAX];
    loop {
        match recv(events.as_raw_fd(), &mut event, MsgFlags::empty()) {
            Ok(len) => {
                if let Some(device) = changed_device(&event[..len])
                    && DeviceLinks::host().renew_partitions(device)
                {
                    unwanted(device);
                }
            }
            // some were lost: nothing says of which device
            Err(nix::errno::Errno::ENOBUFS | nix::errno::Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

/// The device of which the kernel tells: `add@/devices/virtual/block/nbd0/nbd0p1`, and a zero.
fn changed_device(event: &[u8]) -> Option<KernelDevice> {
    let head = std::str::from_utf8(event.split(|byte| *byte == 0).next()?).ok()?;
    let (_, below) = head.split_once("/block/nbd")?;
    below.split('/').next()?.parse().ok().map(KernelDevice::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(folder: &Path) -> Vec<String> {
        let mut found = Vec::new();
        let mut waiting = vec![folder.to_owned()];
        while let Some(path) = waiting.pop() {
            for entry in fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()) {
                match fs::read_link(&entry) {
                    Ok(to) => {
                        found.push(format!("{} {}", entry.strip_prefix(folder).unwrap().display(), to.display()));
                    }
                    Err(_) => waiting.push(entry),
                }
            }
        }
        found.sort();
        found
    }

    #[test]
    fn links_follow_names_and_partitions() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, sysfs) = (dir.path().join("zvol"), dir.path().join("block"));
        let part = |name: &str| fs::create_dir_all(sysfs.join("nbd7").join(name)).unwrap();
        part("queue");
        let (links, device) = (DeviceLinks { folder: folder.clone(), sysfs: sysfs.clone() }, KernelDevice::new(7));
        links.set(device, "tank/vm", true).unwrap();
        assert_eq!(all(&folder), ["tank/vm ../../nbd7"]);
        part("nbd7p1");
        part("nbd7p12");
        links.renew_partitions(device);
        assert_eq!(all(&folder), ["tank/vm ../../nbd7", "tank/vm-part1 ../../nbd7p1", "tank/vm-part12 ../../nbd7p12"]);
        fs::remove_dir(sysfs.join("nbd7/nbd7p1")).unwrap();
        links.set(device, "tank/a/vm@s", true).unwrap();
        assert_eq!(all(&folder), ["tank/a/vm@s ../../../nbd7", "tank/a/vm@s-part12 ../../../nbd7p12"]);
        // what a dead device has left gives way, and a file does not
        symlink("../../nbd3", folder.join("tank/vm")).unwrap();
        links.set(device, "tank/vm", true).unwrap();
        assert!(!folder.join("tank/a").exists());
        fs::write(folder.join("tank/file"), "").unwrap();
        assert_eq!(links.set(device, "tank/file", true).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        links.set(device, "tank/vm", true).unwrap();
        assert!(!links.renew_partitions(device));
        links.set(device, "tank/vm", false).unwrap();
        assert!(links.renew_partitions(device), "there is one, and is to be none");
        links.take(device);
        assert_eq!(fs::read_dir(folder.join("tank")).unwrap().count(), 1);
        for name in ["", "/etc", "../x", "tank/../../x", "tank//vm", "tank/"] {
            assert!(links.set(device, name, true).is_err(), "{name}");
        }
    }

    #[test]
    fn devices_in_messages_of_the_kernel() {
        let device = |event: &str| changed_device(event.as_bytes());
        let first = device("add@/devices/virtual/block/nbd12/nbd12p1\0ACTION=add\0");
        assert_eq!(first, Some(KernelDevice::new(12)));
        assert_eq!(device("change@/devices/virtual/block/nbd3\0"), Some(KernelDevice::new(3)));
        for other in ["add@/devices/virtual/block/loop0\0", "", "x@/block/nbd", "add@/block/nbdx/nbd1"] {
            assert_eq!(device(other), None, "{other}");
        }
        assert_eq!(partition_of("nbd0p1"), Some(("nbd0", 1)));
        for other in ["nbd0", "nbd0p", "sdp1", "nbdp1", "nbd0px"] {
            assert_eq!(partition_of(other), None, "{other}");
        }
    }
}
