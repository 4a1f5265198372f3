//! Names of vdevs, as the commands show them.

use protocol::pool_report::VdevReport;

use crate::patience::real_path;

/// What flags `-g`, `-L` and `-P` ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameStyle {
    /// Guids in place of names.
    pub guids: bool,
    /// Real paths in place of links.
    pub real_paths: bool,
    /// Whole paths.
    pub whole_paths: bool,
}

/// Folders whose name says nothing that the user does not know, the more special first.
pub(super) const DEVICE_FOLDERS: [&str; 9] = [
    "/dev/disk/by-vdev/",
    "/dev/mapper/",
    "/dev/disk/by-partlabel/",
    "/dev/disk/by-partuuid/",
    "/dev/disk/by-label/",
    "/dev/disk/by-uuid/",
    "/dev/disk/by-id/",
    "/dev/disk/by-path/",
    "/dev/",
];

impl NameStyle {
    /// What the environment asks for: variables `ZPOOL_VDEV_NAME_GUID` and the like.
    pub fn from_env() -> NameStyle {
        let is_set = |name: &str| {
            let value = std::env::var(name).unwrap_or_default().to_ascii_lowercase();
            matches!(value.as_str(), "yes" | "on" | "true") || value.parse::<i64>().is_ok_and(|n| n != 0)
        };
        NameStyle {
            guids: is_set("ZPOOL_VDEV_NAME_GUID"),
            real_paths: is_set("ZPOOL_VDEV_NAME_FOLLOW_LINKS"),
            whole_paths: is_set("ZPOOL_VDEV_NAME_PATH"),
        }
    }

    /// The name of a vdev.
    pub fn name(self, vdev: &VdevReport, pool: &str) -> String {
        if vdev.kind == "root" {
            return pool.to_owned();
        }
        if self.guids || vdev.is_not_present {
            return vdev.guid.to_string();
        }
        match &vdev.path {
            Some(path) => self.path_name(vdev, path),
            None => format!("{}-{}", type_name(vdev), vdev.id),
        }
    }

    fn path_name(self, vdev: &VdevReport, path: &str) -> String {
        let real = self.real_paths.then(|| real_path(path).ok()).flatten();
        let path = real.as_deref().and_then(|path| path.to_str()).unwrap_or(path);
        if self.whole_paths || vdev.kind != "disk" {
            return path.to_owned();
        }
        let stripped = DEVICE_FOLDERS.iter().find_map(|folder| path.strip_prefix(folder));
        match stripped {
            Some(name) if vdev.is_whole_disk => strip_partition(name).to_owned(),
            Some(name) => name.to_owned(),
            None => path.to_owned(),
        }
    }

    /// Width of the name column: the longest name, each indented by 2 for each level.
    pub fn width(self, roots: &[&VdevReport], pool: &str, indent: usize) -> usize {
        let one = |vdev: &&VdevReport| {
            let children: Vec<&VdevReport> = vdev.children.iter().collect();
            (self.name(vdev, pool).len() + indent).max(self.width(&children, pool, indent + 2))
        };
        roots.iter().map(one).max().unwrap_or(0)
    }
}

/// The type, with the parity level where there is one: `raidz2`, `draid1:4d:11c:1s`.
pub(super) fn type_name(vdev: &VdevReport) -> String {
    match (vdev.kind.as_str(), vdev.draid) {
        ("raidz", _) => format!("raidz{}", vdev.nparity),
        ("draid", Some((ndata, nspares))) => {
            format!("draid{}:{ndata}d:{}c:{nspares}s", vdev.nparity, vdev.children.len())
        }
        (kind, _) => kind.to_owned(),
    }
}

/// Takes the number of the partition off a device's name: `sda1`, `nvme0n1p1`, `wwn-0x5-part1`.
fn strip_partition(name: &str) -> &str {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let cut = |at: usize, number_at: usize| is_number(&name[number_at..]).then(|| &name[..at]);
    let stripped = if let Some(at) = name.find("-part").filter(|at| *at > 0) {
        cut(at, at + 5)
    } else if let Some(at) = name.rfind('p').filter(|at| *at > 1 && name.as_bytes()[at - 1].is_ascii_digit()) {
        cut(at, at + 1)
    } else if ["hd", "sd", "vd", "xvd"].iter().any(|prefix| name.starts_with(prefix)) {
        let digits = name.trim_end_matches(|c: char| c.is_ascii_digit());
        cut(digits.len(), digits.len()).filter(|_| digits.bytes().all(|b| b.is_ascii_alphabetic()))
    } else {
        None
    };
    stripped.unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use format::ids::Guid;

    use super::*;

    #[test]
    fn partitions() {
        for (name, stripped) in [
            ("sda1", "sda"),
            ("sda", "sda"),
            ("xvdb12", "xvdb"),
            ("nvme0n1p1", "nvme0n1"),
            ("mmcblk0p2", "mmcblk0"),
            ("wwn-0x5000-part9", "wwn-0x5000"),
            ("loop0", "loop0"),
            ("dm-1", "dm-1"),
            ("p", "p"),
        ] {
            assert_eq!(strip_partition(name), stripped);
        }
    }

    #[test]
    fn styles() {
        let style = NameStyle::default();
        let leaf = |kind: &str, path: &str, is_whole_disk| VdevReport {
            kind: kind.into(),
            path: Some(path.into()),
            is_whole_disk,
            guid: Guid::new(7),
            ..VdevReport::default()
        };
        let name = |vdev: &VdevReport, style: NameStyle| style.name(vdev, "tank");
        assert_eq!(name(&leaf("disk", "/dev/disk/by-id/x-part1", true), style), "x");
        assert_eq!(name(&leaf("disk", "/dev/sda1", false), style), "sda1");
        assert_eq!(name(&leaf("disk", "/img/sda1", true), style), "/img/sda1");
        assert_eq!(name(&leaf("file", "/dev/x", false), style), "/dev/x");
        assert_eq!(name(&leaf("disk", "/dev/sda1", true), NameStyle { whole_paths: true, ..style }), "/dev/sda1");
        assert_eq!(name(&leaf("disk", "/dev/sda1", true), NameStyle { guids: true, ..style }), "7");
        let raidz = VdevReport { kind: "raidz".into(), nparity: 2, id: 3, ..VdevReport::default() };
        assert_eq!(name(&raidz, style), "raidz2-3");
        let root = VdevReport {
            kind: "root".into(),
            children: vec![VdevReport { children: vec![leaf("disk", "/dev/sdaaaaaa", false)], ..raidz }],
            ..VdevReport::default()
        };
        assert_eq!(style.width(&[&root], "tank", 0), 4 + "sdaaaaaa".len());
    }
}
