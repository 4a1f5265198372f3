//! What the mount helper does at mountpoints: to look at one, or at the folders above it, may mean to wait
//! for the process that serves the file system they lie in.
//!
//! Where a mountpoint is, a stranger's pool may say, and what lies on the way there may be a stranger's, too.
//! So a path is never left to the kernel: it is gone from folder to folder, each opened in the one above it,
//! and what was found is mounted on, unmounted or removed by that descriptor.
//!
//! ```text
//!   -R /mnt   /mnt ─▶ srv ─▶ a      below /mnt no symbolic link is followed
//!   without   /  ─▶ srv ─▶ a        links are, but none that lies on a file system of the same pool
//! ```

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use base::{Error, Kind, Result};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, readlinkat};
use nix::libc;
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::mountinfo;
use crate::options::MountOptions;

/// What an error says if a mountpoint cannot be made.
pub const NO_MOUNTPOINT: &str = "failed to create mountpoint";
/// Symbolic links that are followed on one way.
const LINKS_MAX: usize = 40;

/// A folder, whatever happens to its path.
pub(crate) struct Folder(OwnedFd);

/// Which symbolic links are followed.
#[derive(Clone, Copy)]
enum Links<'a> {
    None,
    /// Those that are on no file system of that pool.
    NotOfPool(&'a str),
}

/// A way through folders.
struct FolderWalk<'a> {
    at: Folder,
    links: Links<'a>,
    followed: usize,
    /// Whether what is missing is made, and what was.
    makes: bool,
    made: Vec<(Folder, OsString)>,
}

impl Folder {
    fn root() -> Result<Folder> {
        open("/", FLAGS, Mode::empty()).map(Folder).map_err(|errno| failed(errno, "cannot open /".to_owned()))
    }

    /// The folder at a path that has no links in it, as that of a mount in `/proc/self/mountinfo`.
    pub(crate) fn at_real(path: &Path) -> Result<Folder> {
        let mut walk = FolderWalk::new(Folder::root()?, Links::None, false);
        walk.follow(names(path, false)).map_err(|e| in_mountpoint(e, path))?;
        Ok(walk.at)
    }

    fn copy(&self) -> Result<Folder> {
        Ok(Folder(self.0.try_clone()?))
    }

    fn stat(&self) -> Result<FileStat> {
        fstat(&self.0).map_err(|errno| std::io::Error::from(errno).into())
    }

    /// A path by which the kernel comes to just this folder.
    pub(crate) fn proc_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// Where it is now.
    pub(crate) fn real_path(&self) -> Result<PathBuf> {
        Ok(std::fs::read_link(self.proc_path())?)
    }

    /// Mode bits, with those of its kind.
    pub(crate) fn mode(&self) -> Result<u32> {
        Ok(self.stat()?.st_mode)
    }
}

impl<'a> FolderWalk<'a> {
    fn new(at: Folder, links: Links<'a>, makes: bool) -> FolderWalk<'a> {
        FolderWalk { at, links, followed: 0, makes, made: Vec::new() }
    }

    /// Goes to the mountpoint of `options`, or a folder above it.
    fn to(options: &'a MountOptions, path: &Path, makes: bool) -> Result<FolderWalk<'a>> {
        let pool = options.fs_name.split('/').next().unwrap_or_default();
        let mut walk = FolderWalk::new(Folder::root()?, Links::NotOfPool(pool), makes);
        let walked = match &options.beneath {
            // the user named it, and it may have to be made
            Some(root) if root.starts_with(path) => walk.follow(names(path, true)),
            Some(root) => walk.follow(names(root, true)).and_then(|()| {
                walk.links = Links::None;
                let below = path.strip_prefix(root);
                walk.follow(
                    below.map_or_else(|_| Err(Error::new(Kind::Invalid, "not below")), |path| names(path, false)),
                )
            }),
            None => walk.follow(names(path, false)),
        };
        match walked {
            Ok(()) => Ok(walk),
            Err(error) => {
                walk.unmake();
                Err(in_mountpoint(error, path))
            }
        }
    }

    fn follow(&mut self, way: Result<Vec<OsString>>) -> Result<()> {
        let mut ahead: VecDeque<OsString> = way?.into();
        while let Some(name) = ahead.pop_front() {
            let next = match self.step(&name) {
                Err(Errno::ENOENT) if self.makes => {
                    self.make(&name)?;
                    self.step(&name)
                }
                next => next,
            };
            let next = Folder(next.map_err(std::io::Error::from)?);
            match SFlag::from_bits_truncate(next.stat()?.st_mode & libc::S_IFMT) {
                SFlag::S_IFDIR => self.at = next,
                SFlag::S_IFLNK => {
                    let target = PathBuf::from(self.target(&next, &name)?);
                    if target.is_absolute() {
                        self.at = Folder::root()?;
                    }
                    names(&target, true)?.into_iter().rev().for_each(|name| ahead.push_front(name));
                }
                _ => return Err(Error::new(Kind::NotDirectory, "not a directory")),
            }
        }
        Ok(())
    }

    fn step(&self, name: &OsStr) -> nix::Result<OwnedFd> {
        openat(&self.at.0, name, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())
    }

    /// What a link says, if it is one to be followed.
    fn target(&mut self, link: &Folder, name: &OsStr) -> Result<OsString> {
        let refused = |what: &str| {
            let what =
                format!("symbolic link '{}' on the way to a mountpoint {what}", base::Shown(name.as_encoded_bytes()));
            Err(Error::new(Kind::Invalid, what))
        };
        self.followed += 1;
        match self.links {
            Links::None => return refused("is not followed below an alternate root"),
            Links::NotOfPool(pool) if is_of_pool(link, pool)? => {
                return refused("is on a file system of the same pool, and not followed");
            }
            Links::NotOfPool(_) if self.followed > LINKS_MAX => return refused("is one too many"),
            Links::NotOfPool(_) => {}
        }
        Ok(readlinkat(&link.0, "").map_err(std::io::Error::from)?)
    }

    fn make(&mut self, name: &OsStr) -> Result<()> {
        mkdirat(&self.at.0, name, Mode::from_bits_truncate(0o755))
            .map_err(|errno| failed(errno, NO_MOUNTPOINT.to_owned()))?;
        self.made.push((self.at.copy()?, name.to_owned()));
        Ok(())
    }

    /// Removes what was made.
    fn unmake(&mut self) {
        while let Some((above, name)) = self.made.pop() {
            // somebody may have put something there
            let _ = unlinkat(&above.0, &*name, UnlinkatFlags::RemoveDir);
        }
    }
}

/// How folders are opened.
const FLAGS: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// The names on a path. `..` is no part of a mountpoint, but may be of a link's target.
fn names(path: &Path, of_link: bool) -> Result<Vec<OsString>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name.to_owned()),
            Component::ParentDir if of_link => names.push("..".into()),
            Component::ParentDir => return Err(Error::new(Kind::Invalid, "a mountpoint with '..' in it")),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Ok(names)
}

/// Whether a file is on a mounted file system of that pool.
fn is_of_pool(file: &Folder, pool: &str) -> Result<bool> {
    let dev = mountinfo::dev_text(file.stat()?.st_dev);
    let of_pool = |mount: &mountinfo::MountInfo| {
        mount.fs_type.starts_with("fuse.") && mount.source.split('/').next() == Some(pool)
    };
    Ok(mountinfo::all()?.iter().any(|mount| mount.dev == dev && of_pool(mount)))
}

/// Makes the mountpoint and the folders above it; returns how many were not there.
pub(crate) fn make_folders(options: &MountOptions) -> Result<usize> {
    FolderWalk::to(options, &options.mountpoint, true).map(|walk| walk.made.len())
}

/// Removes the mountpoint and folders above it, `count` in all, as far as they are empty.
pub(crate) fn remove_folders(options: &MountOptions, count: usize) {
    for folder in options.mountpoint.ancestors().take(count) {
        let (Some(above), Some(name)) = (folder.parent(), folder.file_name()) else { break };
        let Ok(above) = FolderWalk::to(options, above, false) else { break };
        if unlinkat(&above.at.0, name, UnlinkatFlags::RemoveDir).is_err() {
            // not empty: then those above are not, either
            break;
        }
    }
}

/// The path of the mountpoint that [`find`] finds.
pub fn folder_to_mount_at(options: &MountOptions) -> Result<PathBuf> {
    find(options)?.real_path()
}

/// The mountpoint, once it is sure that something can be mounted there.
pub(crate) fn find(options: &MountOptions) -> Result<Folder> {
    let point = FolderWalk::to(options, &options.mountpoint, false)?.at;
    if !options.overlay && point.proc_path().read_dir()?.next().is_some() {
        return Err(Error::new(Kind::Exists, format!("mountpoint {} is not empty", options.mountpoint.display())));
    }
    Ok(point)
}

fn in_mountpoint(error: Error, point: &Path) -> Error {
    if error.what() == NO_MOUNTPOINT {
        return error;
    }
    let what = format!("mountpoint {}", point.display());
    // a helper tells of a system error, or of a text
    match os_error(&error) {
        Some(errno) => Error::new(error.kind(), what).with_source(std::io::Error::from_raw_os_error(errno)),
        None => Error::new(error.kind(), format!("{what}: {error}")),
    }
}

fn failed(errno: Errno, what: String) -> Error {
    let source = std::io::Error::from(errno);
    Error::new(Error::from(std::io::Error::from(errno)).kind(), what).with_source(source)
}

/// The errno of an error's cause.
pub(crate) fn os_error(error: &Error) -> Option<i32> {
    let cause = std::error::Error::source(error)?.downcast_ref::<std::io::Error>()?;
    cause.raw_os_error()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn options(point: &Path, beneath: Option<&Path>) -> MountOptions {
        let mut options = MountOptions::new("tank/a", point);
        options.beneath = beneath.map(Path::to_owned);
        options
    }

    #[test]
    fn folders_come_and_go() {
        let top = tempfile::tempdir().unwrap();
        let at = |path: &str| options(&top.path().join(path), None);
        assert_eq!(make_folders(&at("a/b/c")).unwrap(), 3);
        assert_eq!(make_folders(&at("a/b")).unwrap(), 0);
        std::fs::write(top.path().join("a/file"), "x").unwrap();
        remove_folders(&at("a/b/c"), 3);
        assert!(top.path().join("a/file").exists() && !top.path().join("a/b").exists());
        assert_eq!(make_folders(&at("a/file/b")).unwrap_err().kind(), Kind::NotDirectory);
    }

    #[test]
    fn links_are_an_administrators_or_none() {
        let top = tempfile::tempdir().unwrap();
        let top = &top.path().canonicalize().unwrap();
        std::fs::create_dir_all(top.join("real/deep")).unwrap();
        std::fs::create_dir(top.join("root")).unwrap();
        symlink("../real/./deep", top.join("root/relative")).unwrap();
        symlink(top.join("real"), top.join("root/absolute")).unwrap();
        symlink("loop", top.join("root/loop")).unwrap();
        let root = top.join("root");
        let found = |name: &str, beneath| find(&options(&root.join(name), beneath)).and_then(|at| at.real_path());
        assert_eq!(found("relative", None).unwrap(), top.join("real/deep"));
        assert_eq!(found("absolute/deep", None).unwrap(), top.join("real/deep"));
        assert!(found("loop", None).is_err());
        for name in ["relative", "absolute/deep", "../real", "absolute/new"] {
            let kind = found(name, Some(&root)).unwrap_err().kind();
            assert_eq!(kind, Kind::Invalid, "{name}");
            assert!(make_folders(&options(&root.join(name), Some(&root))).is_err(), "{name}");
        }
        assert!(!top.join("real/new").exists());
        assert!(found("../real", None).is_err());
        assert_eq!(make_folders(&options(&root.join("x/y"), Some(&root))).unwrap(), 2);
        assert_eq!(found("x/y", Some(&root)).unwrap(), root.join("x/y"));
        assert!(find(&options(&top.join("real"), Some(&root))).is_err());
    }
}
