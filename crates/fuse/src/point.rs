//! What the mount helper does at mountpoints: to look at one, or at the folders above it, may mean to wait
//! for the process that serves the file system they lie in ([`helper`](crate::helper)).

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use base::{Error, Kind, Result};
use nix::errno::Errno;
use nix::sys::statvfs::statvfs;

use crate::device::detach;
use crate::mountinfo;
use crate::options::{MountOptions, Unmount};

/// What an error says if a mountpoint cannot be made.
pub const NO_MOUNTPOINT: &str = "failed to create mountpoint";

/// Makes a folder and those above it; returns how many were not there.
pub(crate) fn make_folders(path: &Path) -> Result<usize> {
    let missing: Vec<&Path> = path.ancestors().take_while(|above| is_absent(above)).collect();
    for (made, folder) in missing.iter().rev().enumerate() {
        if let Err(e) = DirBuilder::new().mode(0o755).create(folder) {
            remove_folders(folder.parent().unwrap_or(folder), made);
            return Err(Error::new(kind(&e), NO_MOUNTPOINT).with_source(e));
        }
    }
    Ok(missing.len())
}

/// Removes a folder and those above it, `count` in all, as far as they are empty.
pub(crate) fn remove_folders(path: &Path, count: usize) {
    for folder in path.ancestors().take(count) {
        if std::fs::remove_dir(folder).is_err() {
            // not empty: then those above are not, either
            break;
        }
    }
}

fn is_absent(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
}

/// The mountpoint's real path, once it is sure that something can be mounted there.
pub(crate) fn find(options: &MountOptions) -> Result<PathBuf> {
    let wanted = &options.mountpoint;
    let point = wanted
        .canonicalize()
        .map_err(|error| Error::new(kind(&error), format!("mountpoint {}", wanted.display())).with_source(error))?;
    if !point.is_dir() {
        return Err(Error::new(Kind::NotDirectory, format!("mountpoint {} is not a directory", point.display())));
    }
    if !options.overlay && point.read_dir()?.next().is_some() {
        return Err(Error::new(Kind::Exists, format!("mountpoint {} is not empty", point.display())));
    }
    Ok(point)
}

fn kind(error: &std::io::Error) -> Kind {
    Error::from(std::io::Error::from(error.kind())).kind()
}

/// Unmounts file systems of our kind that a killed process left there; returns how many.
///
/// Errors: `Busy` if another program's dead mount lies there; those of unmounting, among them that there
/// is no way there through another dead mount.
pub(crate) fn clear_dead(wanted: &Path, subtype: &str) -> Result<usize> {
    // this may work on a dead mount, as the kernel remembers its root; if not, it has no links
    let point = wanted.canonicalize().or_else(|_| std::path::absolute(wanted))?;
    let mut cleared = 0;
    while let Some(mount) = mountinfo::at(&point)?
        && mount.fs_type.starts_with("fuse")
        // the one question that the kernel never answers from memory
        && statvfs(&point) == Err(Errno::ENOTCONN)
    {
        if mount.fs_type != format!("fuse.{subtype}") {
            return Err(Error::new(
                Kind::Busy,
                format!("mountpoint {} is another program's dead mount", point.display()),
            ));
        }
        detach(&point, Unmount::Lazy)?;
        cleared += 1;
    }
    Ok(cleared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_come_and_go() {
        let top = std::env::temp_dir().join(format!("cenote-point-{}", std::process::id()));
        std::fs::create_dir(&top).unwrap();
        assert_eq!(make_folders(&top.join("a/b/c")).unwrap(), 3);
        assert_eq!(make_folders(&top.join("a/b")).unwrap(), 0);
        std::fs::write(top.join("a/file"), "x").unwrap();
        remove_folders(&top.join("a/b/c"), 3);
        assert!(top.join("a/file").exists() && !top.join("a/b").exists());
        // nothing can be made below a file; mounting there will say so
        assert_eq!(make_folders(&top.join("a/file/b")).unwrap(), 0);
        std::fs::remove_dir_all(top).unwrap();
    }
}
