//! What is mounted where, as `/proc/self/mountinfo` tells it: without touching the file systems, so
//! that a dead one cannot stall the answer.
//!
//! Source of the format: proc_pid_mountinfo(5).

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use base::{Error, Kind, Result};

const MOUNTINFO: &str = "/proc/self/mountinfo";

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountInfo {
    /// Device number, `major:minor`: of a FUSE mount its own, for as long as it is mounted.
    pub dev: String,
    /// Where it is mounted.
    pub point: PathBuf,
    /// Whether nothing can be changed through this mount.
    pub is_read_only: bool,
    /// With the subtype: `fuse.zfs`.
    pub fs_type: String,
    /// What is mounted, as the file system tells: of ours the dataset.
    pub source: String,
}

/// The devices that are mounted, and where, as of one moment.
pub struct MountTable(Option<HashSet<(String, PathBuf)>>);

impl MountTable {
    /// As it is now.
    pub fn now() -> MountTable {
        let places = all().ok().map(|mounts| mounts.into_iter().map(|mount| (mount.dev, mount.point)));
        MountTable(places.map(Iterator::collect))
    }

    /// Whether a device is mounted there; `None` if nothing is known.
    pub(crate) fn has(&self, dev: &str, point: &Path) -> Option<bool> {
        self.0.as_ref().map(|places| places.contains(&(dev.to_owned(), point.to_owned())))
    }
}

/// All mounts, in the order in which they were made. Errors: no /proc.
pub fn all() -> Result<Vec<MountInfo>> {
    let text = std::fs::read(MOUNTINFO).map_err(unreadable)?;
    Ok(parse(&text).collect())
}

/// The mount that covers all others at `point`.
pub(crate) fn at(point: &Path) -> Result<Option<MountInfo>> {
    Ok(all()?.into_iter().rfind(|mount| mount.point == point))
}

/// The mount that `point` lies in, by its path. Errors: no /proc.
pub(crate) fn above(point: &Path) -> Result<MountInfo> {
    let mounts = all()?.into_iter().filter(|mount| point.starts_with(&mount.point));
    // of those at one place the last one is on top
    let nearest = mounts.max_by_key(|mount| mount.point.as_os_str().len());
    nearest.ok_or_else(|| Error::new(Kind::NotFound, "nothing is mounted there"))
}

/// Is device `dev` mounted at `point`, be it under another mount?
pub(crate) fn is_mounted(point: &Path, dev: &str) -> Result<bool> {
    Ok(all()?.iter().any(|mount| mount.dev == dev && mount.point == point))
}

fn unreadable(error: std::io::Error) -> Error {
    Error::new(Kind::Missing, "cannot read /proc/self/mountinfo").with_source(error)
}

fn parse(text: &[u8]) -> impl Iterator<Item = MountInfo> {
    text.split(|&b| b == b'\n').filter_map(parse_line)
}

fn parse_line(line: &[u8]) -> Option<MountInfo> {
    let mut fields = line.split(|&b| b == b' ');
    let dev = String::from_utf8(fields.nth(2)?.to_vec()).ok()?;
    let point = unescape(fields.nth(1)?);
    let is_read_only = fields.next()?.split(|&b| b == b',').any(|option| option == b"ro");
    // any number of optional fields, then a dash
    let mut after = fields.skip_while(|field| *field != b"-").skip(1);
    let (fs_type, source) = (after.next()?, unescape(after.next()?));
    let [fs_type, source] =
        [fs_type, source.as_os_str().as_bytes()].map(|text| String::from_utf8_lossy(text).into_owned());
    Some(MountInfo { dev, point, is_read_only, fs_type, source })
}

/// Space, tab, newline and backslash are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok();
        match (byte, after.get(..3).and_then(octal)) {
            (b'\\', Some(value)) => {
                path.push(value);
                rest = &after[3..];
            }
            _ => {
                path.push(byte);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(path))
}

/// A device number as it is written there: `major:minor`.
pub(crate) fn dev_text(dev: u64) -> String {
    format!("{}:{}", libc::major(dev), libc::minor(dev))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let text = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            23 22 0:40 / /mnt/a\\040b\\134c rw,relatime shared:1 master:2 - fuse.zfs tank/a\\040b rw,user_id=0\n\
            broken\n24 22 0:41 / /mnt ro,nosuid - tmpfs - rw";
        let mounts: Vec<_> = parse(text).collect();
        assert_eq!(mounts.len(), 3);
        let expect = ("0:40", Path::new("/mnt/a b\\c"), "fuse.zfs", "tank/a b");
        let MountInfo { dev, point, is_read_only, fs_type, source } = &mounts[1];
        assert!(!is_read_only && !mounts[0].is_read_only && mounts[2].is_read_only);
        assert_eq!((&**dev, &**point, &**fs_type, &**source), expect);
        assert_eq!(mounts[2].fs_type, "tmpfs");
    }

    #[test]
    fn this_machine() {
        assert!(at(Path::new("/proc")).unwrap().is_some());
        assert!(at(Path::new("/no/such/place")).unwrap().is_none());
    }
}
