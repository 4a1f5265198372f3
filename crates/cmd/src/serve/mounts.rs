//! The mounted file systems of an imported pool.
//!
//! A mountpoint that is not there is made, with the folders above it; what was made is removed again
//! when the file system is unmounted, unless somebody has put something there.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::{Env, Error, Kind, Result};
use fuse::{Mount, MountOptions, Unmount};

use super::live::ServedPool;
use super::source::FileSystem;
use crate::zfs::request::Mounted;

/// The mounts, in the order in which they were made.
#[derive(Default)]
pub struct Mounts {
    list: Mutex<Vec<One>>,
}

struct One {
    mount: Mount,
    source: Arc<FileSystem>,
    options: MountOptions,
    /// Folders that were made for it, the outermost first.
    made: Vec<PathBuf>,
}

impl Mounts {
    /// Mounts a file system of `pool` as `options` say. Errors: those of making the mountpoint, reading
    /// the file system and mounting.
    pub fn mount(&self, pool: &Arc<ServedPool>, options: &MountOptions, env: &Env) -> Result<()> {
        let source = Arc::new(FileSystem::open(pool, &options.fs_name, env)?);
        let made = make_folders(&options.mountpoint)?;
        match fuse::mount(source.clone(), options, env) {
            Ok(mount) => {
                tracing::info!(dataset = options.fs_name, point = %options.mountpoint.display(), "mounted");
                let mut options = options.clone();
                options.read_only |= !pool.is_writable();
                self.lock().push(One { mount, source, options, made });
                Ok(())
            }
            Err(e) => {
                remove_folders(&made);
                Err(e)
            }
        }
    }

    /// Gives a file system other options, in place; false if it has to be mounted anew for that. Errors: `Busy`
    /// if it cannot be read-only now; `NotFound`.
    pub fn remount(&self, options: &MountOptions) -> Result<bool> {
        let mut list = self.lock();
        let one = list.iter_mut().rfind(|one| one.mount.fs_name() == options.fs_name && one.mount.is_mounted());
        let one =
            one.ok_or_else(|| Error::new(Kind::NotFound, "not currently mounted").in_dataset(&options.fs_name))?;
        // where it is mounted, and over what, is as it was
        let here = MountOptions {
            mountpoint: one.options.mountpoint.clone(),
            overlay: one.options.overlay,
            read_only: options.read_only || !one.source.is_writable(),
            ..options.clone()
        };
        let changed = one.options.remounted(&here);
        if changed != here {
            return Ok(false);
        }
        match one.mount.remount(&changed) {
            Ok(()) => one.options = changed,
            Err(e) if e.kind() == Kind::Unsupported => return Ok(false),
            Err(e) => return Err(e),
        }
        Ok(true)
    }

    /// Lets files be written as the properties of their file systems say now.
    pub fn renew(&self) {
        for one in self.lock().iter() {
            if let Err(error) = one.source.renew() {
                tracing::warn!(dataset = one.mount.fs_name(), "files are written as before: {error}");
            }
        }
    }

    /// Unmounts a file system wherever it is mounted. Errors: `NotFound`, `Busy`.
    pub fn unmount(&self, dataset: &str, how: Unmount) -> Result<()> {
        let mut list = self.lock();
        let at = list.iter().rposition(|one| one.mount.fs_name() == dataset && one.mount.is_mounted());
        let at = at.ok_or_else(|| Error::new(Kind::NotFound, "not currently mounted").in_dataset(dataset))?;
        list[at].unmount(how)?;
        drop(list.remove(at));
        Ok(())
    }

    /// Unmounts all, the last one first; ends with the first that cannot be. Errors: `Busy`, and which.
    pub fn unmount_all(&self, how: Unmount) -> Result<(), (PathBuf, Error)> {
        let mut list = self.lock();
        while let Some(one) = list.last() {
            one.unmount(how).map_err(|e| (one.mount.point().to_owned(), e))?;
            list.pop();
        }
        Ok(())
    }

    /// What is mounted now, sorted by path.
    pub fn list(&self) -> Vec<Mounted> {
        let mut list = self.lock();
        // somebody may have called umount
        list.retain(|one| one.mount.is_mounted());
        let mut mounted: Vec<Mounted> = list.iter().map(One::describe).collect();
        mounted.sort_by(|a, b| a.path.cmp(&b.path));
        mounted
    }

    fn lock(&self) -> MutexGuard<'_, Vec<One>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl One {
    fn unmount(&self, how: Unmount) -> Result<()> {
        self.mount.unmount(how)?;
        remove_folders(&self.made);
        Ok(())
    }

    fn describe(&self) -> Mounted {
        let options = &self.options;
        let words = [
            (if options.read_only { "ro" } else { "rw" }, true),
            (if options.setuid { "suid" } else { "nosuid" }, true),
            (if options.devices { "dev" } else { "nodev" }, true),
            (if options.exec { "exec" } else { "noexec" }, true),
            ("noatime", !options.atime),
            ("relatime", options.atime && options.relatime),
            (if options.xattrs { "xattr" } else { "noxattr" }, true),
            ("posixacl", options.posix_acl),
        ];
        Mounted {
            dataset: self.mount.fs_name().to_owned(),
            path: self.mount.point().to_string_lossy().into_owned(),
            options: words.iter().filter(|(_, is_on)| *is_on).map(|(word, _)| (*word).to_owned()).collect(),
        }
    }
}

/// Makes a folder and those above it; returns those that were not there, the outermost first.
fn make_folders(path: &Path) -> Result<Vec<PathBuf>> {
    let mut missing: Vec<&Path> = path.ancestors().take_while(|above| is_absent(above)).collect();
    missing.reverse();
    let mut made = Vec::new();
    for folder in missing {
        if let Err(e) = DirBuilder::new().mode(0o755).create(folder) {
            remove_folders(&made);
            let kind = Error::from(std::io::Error::from(e.kind())).kind();
            return Err(Error::new(kind, "failed to create mountpoint").with_source(e));
        }
        made.push(folder.to_owned());
    }
    Ok(made)
}

fn is_absent(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
}

fn remove_folders(made: &[PathBuf]) {
    for folder in made.iter().rev() {
        if std::fs::remove_dir(folder).is_err() {
            // not empty: then those above are not, either
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_come_and_go() {
        let top = std::env::temp_dir().join(format!("cenote-mounts-{}", std::process::id()));
        std::fs::create_dir(&top).unwrap();
        let made = make_folders(&top.join("a/b/c")).unwrap();
        assert_eq!(made, [top.join("a"), top.join("a/b"), top.join("a/b/c")]);
        assert!(make_folders(&top.join("a/b")).unwrap().is_empty());
        std::fs::write(top.join("a/file"), "x").unwrap();
        remove_folders(&made);
        assert!(top.join("a/file").exists() && !top.join("a/b").exists());
        // nothing can be made below a file; mounting there will say so
        assert!(make_folders(&top.join("a/file/b")).unwrap().is_empty());
        std::fs::remove_dir_all(top).unwrap();
    }
}
