//! All that can be seen of a mount.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{ioctl_getflags, lgetxattr, llistxattr};

use super::steps::{DIRECTORIES, NAMES};

const MTIME: &str = "mtime";
const CTIME: &str = "ctime";

/// What is seen, by path and what it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen(BTreeMap<(String, &'static str), String>);

impl Seen {
    /// Looks at every name that steps use, also those that are not there.
    pub(super) fn of(mount: &Path) -> Seen {
        let mut seen = Seen(BTreeMap::new());
        let mut paths = vec![String::new(), ".zfs/snapshot".to_owned()];
        for directory in DIRECTORIES {
            paths.extend(NAMES.iter().map(|name| Path::new(directory).join(name).to_str().unwrap().to_owned()));
        }
        for path in paths {
            seen.look_at(mount, &path);
        }
        seen
    }

    fn look_at(&mut self, mount: &Path, path: &str) {
        let place = mount.join(path);
        let mut add = |what, value: String| drop(self.0.insert((path.to_owned(), what), value));
        let stat = match fs::symlink_metadata(&place) {
            Ok(stat) => stat,
            Err(error) => return add("stat", error.to_string()),
        };
        let kind = stat.file_type();
        add("stat", shown(&stat));
        let object = times_of(stat.ino());
        add(MTIME, object.clone() + &time(stat.mtime(), stat.mtime_nsec()));
        add(CTIME, object + &time(stat.ctime(), stat.ctime_nsec()));
        if !path.starts_with(".zfs") {
            add("room", stat.blocks().to_string());
        }
        add("attributes", attributes(&place));
        if kind.is_symlink() {
            add("target", format!("{:?}", fs::read_link(&place)));
        } else if kind.is_dir() {
            // a reader of a directory moves its time, and is no step
            add("names", names(&place));
            add("flags", flags(&place));
        } else if kind.is_file() {
            add("contents", contents(&place));
            add("flags", flags(&place));
        }
    }

    /// The same without what is settled only when all is on disk: how much room files take, and when those objects were
    /// changed that programs stored into.
    pub(super) fn settled(&self, stored: &BTreeSet<u64>) -> Seen {
        let stored: Vec<String> = stored.iter().map(|object| times_of(*object)).collect();
        let is_settled = |what, value: &String| match what {
            "room" => false,
            MTIME | CTIME => !stored.iter().any(|object| value.starts_with(object)),
            _ => true,
        };
        let settled = self.0.iter().filter(|((_, what), value)| is_settled(*what, value));
        Seen(settled.map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    /// The same with the times of `other`, where these are later.
    pub(super) fn with_later_times(mut self, other: &Seen) -> Seen {
        for (key, time) in self.0.iter_mut().filter(|((_, what), _)| matches!(*what, MTIME | CTIME)) {
            if let Some(later) = other.0.get(key).filter(|later| *later > time) {
                time.clone_from(later);
            }
        }
        self
    }

    /// The same with the times of change of `other`.
    pub(super) fn with_changes_of(mut self, other: &Seen) -> Seen {
        for (key, time) in self.0.iter_mut().filter(|((_, what), _)| *what == CTIME) {
            other.0.get(key).into_iter().for_each(|others| time.clone_from(others));
        }
        self
    }

    /// Panics with all that differs, and `told`.
    pub(super) fn is_that_of(&self, other: &Seen, told: &str) {
        let keys: BTreeSet<_> = self.0.keys().chain(other.0.keys()).collect();
        let differ = keys.into_iter().filter(|key| self.0.get(*key) != other.0.get(*key));
        let lines: Vec<String> =
            differ.map(|key| format!("{key:?}:\n  {:?}\n  {:?}", self.0.get(key), other.0.get(key))).collect();
        assert!(lines.is_empty(), "{told}\n{}", lines.join("\n"));
    }
}

/// How the times of an object begin.
fn times_of(object: u64) -> String {
    format!("object {object}, ")
}

/// Later ones come after earlier ones.
fn time(secs: i64, nanos: i64) -> String {
    format!("{secs:010}.{nanos:09}")
}

fn shown(stat: &Metadata) -> String {
    // where links lead is read by those that look here
    let atime = match stat.file_type() {
        kind if kind.is_symlink() || kind.is_dir() => String::new(),
        _ => time(stat.atime(), stat.atime_nsec()),
    };
    let born = stat.created().ok().and_then(|born| born.duration_since(std::time::UNIX_EPOCH).ok());
    let is_device = stat.file_type().is_char_device();
    format!(
        "object {}, mode {:o}, {} links, {}:{}, {} bytes, device {} {is_device}, atime {atime}, born {born:?}",
        stat.ino(),
        stat.mode(),
        stat.nlink(),
        stat.uid(),
        stat.gid(),
        stat.size(),
        stat.rdev(),
    )
}

fn attributes(place: &Path) -> String {
    let mut list = vec![0; 64 << 10];
    let len = match llistxattr(place, &mut list[..]) {
        Ok(len) => len,
        Err(error) => return error.to_string(),
    };
    let mut found: Vec<String> = Vec::new();
    for name in list[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 64 << 10];
        let read = lgetxattr(place, name, &mut value[..]).map(|len| value[..len].to_vec());
        found.push(format!("{}={read:?}", String::from_utf8_lossy(name)));
    }
    found.sort();
    found.join(" ")
}

fn names(place: &Path) -> String {
    let listed = fs::read_dir(place).and_then(|entries| {
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry?;
            let ino = std::os::unix::fs::DirEntryExt::ino(&entry);
            found.push(format!("{:?} {ino} {:?}", entry.file_name(), entry.file_type()?));
        }
        found.sort();
        Ok(found.join(", "))
    });
    format!("{listed:?}")
}

/// Opens a file or directory to be read, which moves no time.
fn open(place: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOATIME).open(place)
}

fn flags(place: &Path) -> String {
    match open(place) {
        Ok(file) => format!("{:?}", ioctl_getflags(file)),
        Err(error) => error.to_string(),
    }
}

fn contents(place: &Path) -> String {
    let mut bytes = Vec::new();
    match open(place).and_then(|mut file| file.read_to_end(&mut bytes)) {
        Ok(len) => {
            let sum = bytes
                .iter()
                .fold(0xcbf2_9ce4_8422_2325u64, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
            format!("{len} bytes of sum {sum:x}, {} are 0", bytes.iter().filter(|&&byte| byte == 0).count())
        }
        Err(error) => error.to_string(),
    }
}
