//! Where copies go: files, links, devices and folders of the local system.
//!
//! Every name is made in an open folder, new, and no link in the way is ever followed: the tree that is
//! copied may come from a stranger, and must not lead out of the folder that it is copied to. Only for what
//! the user named himself there is [`TargetFolder::enter`] and [`TargetFolder::open_file`], which take what is there.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use base::{Error, Kind, Result};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use zpl::{FileKind, Stat};

/// How files are opened to be written.
const WRITING: OFlags = OFlags::WRONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// What a copy shall have beside its contents.
pub struct FileMetadata {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access: seconds, nanoseconds.
    pub atime: (i64, u32),
    /// Last modification.
    pub mtime: (i64, u32),
    /// Names and values.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What could not be kept, by kind.
#[derive(Default)]
pub struct LeftOut {
    counts: BTreeMap<&'static str, u64>,
    files: u64,
}

/// An open folder.
pub struct TargetFolder {
    fd: OwnedFd,
    path: PathBuf,
}

/// A file being written.
pub struct Sink {
    fd: OwnedFd,
    path: PathBuf,
    /// Whether unwritten bytes read as zeros by themselves.
    is_regular: bool,
    at: u64,
}

impl LeftOut {
    /// One more.
    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Whether whole files are missing.
    pub fn has_files(&self) -> bool {
        self.files > 0
    }

    /// A sentence, if anything was left out.
    pub fn to_text(&self) -> Option<String> {
        let parts: Vec<String> = self.counts.iter().map(|(what, n)| format!("{what} ({n})")).collect();
        (!parts.is_empty()).then(|| {
            format!(
                "left out, as it was not asked for, or this user or the target file system cannot: {}",
                parts.join(", ")
            )
        })
    }
}

impl TargetFolder {
    /// A folder that the user named.
    pub fn open(path: &Path) -> Result<TargetFolder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = fs::open(path, flags, Mode::empty()).map_err(|e| failed("open", path, e))?;
        Ok(TargetFolder { fd, path: path.to_owned() })
    }

    /// The folder of that name in this one, made if it is not there.
    pub fn enter(&self, name: &[u8]) -> Result<TargetFolder> {
        match fs::mkdirat(&self.fd, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => self.enter_there(name),
            Err(e) => Err(failed("make folder", &self.path(name), e)),
        }
    }

    /// A new folder.
    pub fn create_folder(&self, name: &[u8]) -> Result<TargetFolder> {
        fs::mkdirat(&self.fd, name, Mode::RWXU).map_err(|e| failed("make folder", &self.path(name), e))?;
        self.enter_there(name)
    }

    fn enter_there(&self, name: &[u8]) -> Result<TargetFolder> {
        let path = self.path(name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = fs::openat(&self.fd, name, flags, Mode::empty()).map_err(|e| failed("enter", &path, e))?;
        Ok(TargetFolder { fd, path })
    }

    /// The path of a name in it.
    pub fn path(&self, name: &[u8]) -> PathBuf {
        self.path.join(OsStr::from_bytes(name))
    }

    /// A new file.
    pub fn create_file(&self, name: &[u8]) -> Result<Sink> {
        let path = self.path(name);
        let fd = fs::openat(&self.fd, name, WRITING | OFlags::CREATE | OFlags::EXCL, Mode::RUSR | Mode::WUSR)
            .map_err(|e| failed("make file", &path, e))?;
        Ok(Sink { fd, path, is_regular: true, at: 0 })
    }

    /// A file to be written from its beginning. One that is there is emptied; a disk is overwritten.
    pub fn open_file(&self, name: &[u8]) -> Result<Sink> {
        let path = self.path(name);
        let fd = match fs::openat(&self.fd, name, WRITING, Mode::empty()) {
            Err(Errno::NOENT) => return self.create_file(name),
            opened => opened.map_err(|e| failed("write", &path, e))?,
        };
        let stat = fs::fstat(&fd).map_err(|e| failed("look at", &path, e))?;
        let is_regular = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => true,
            FileType::BlockDevice => false,
            _ => return Err(failed("write", &path, Errno::EXIST)),
        };
        if is_regular {
            fs::ftruncate(&fd, 0).map_err(|e| failed("empty", &path, e))?;
        }
        Ok(Sink { fd, path, is_regular, at: 0 })
    }

    /// Another name of a file copied before, which has that path below that folder.
    pub fn link(&self, (top, first): (&TargetFolder, &[u8]), name: &[u8]) -> Result<()> {
        let at = first.iter().rposition(|&byte| byte == b'/');
        let (above, last) = at.map_or((&b"."[..], first), |at| (&first[..at], &first[at + 1..]));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let way = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let linked = fs::openat2(&top.fd, above, flags, Mode::empty(), way)
            .and_then(|above| fs::linkat(&above, last, &self.fd, name, AtFlags::empty()));
        linked.map_err(|e| failed("link", &self.path(name), e))
    }

    /// A new symbolic link.
    pub fn create_link(&self, name: &[u8], target: &[u8]) -> Result<()> {
        fs::symlinkat(target, &self.fd, name).map_err(|e| failed("make link", &self.path(name), e))
    }

    /// A new fifo or socket, or, if those are wanted, device; false if it is left out.
    pub fn create_special(&self, name: &[u8], stat: &Stat, devices: bool, left_out: &mut LeftOut) -> Result<bool> {
        let (kind, what) = match stat.kind {
            FileKind::Fifo => (FileType::Fifo, "fifos"),
            FileKind::Socket => (FileType::Socket, "sockets"),
            FileKind::CharDevice => (FileType::CharacterDevice, "devices (--dev)"),
            FileKind::BlockDevice => (FileType::BlockDevice, "devices (--dev)"),
            _ => return Err(Error::new(Kind::Invalid, "not a special file")),
        };
        let is_device = matches!(kind, FileType::CharacterDevice | FileType::BlockDevice);
        let made = match is_device && !devices {
            true => Err(Errno::PERM),
            false => fs::mknodat(&self.fd, name, kind, Mode::RUSR | Mode::WUSR, stat.rdev),
        };
        match made {
            Ok(()) => Ok(true),
            Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::INVAL) => {
                left_out.count(what);
                left_out.files += 1;
                Ok(false)
            }
            Err(e) => Err(failed("make", &self.path(name), e)),
        }
    }

    /// Gives a link or special file in it what it shall have.
    pub fn set_attributes(&self, name: &[u8], attributes: &FileMetadata, left_out: &mut LeftOut) -> Result<()> {
        let path = self.path(name);
        let (uid, gid) = owner(attributes);
        let owned = match fs::chownat(&self.fd, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(()) => true,
            Err(e) => note_owner(e, attributes, left_out, &path)?,
        };
        // through the descriptor's own name, as there is no lsetxattrat everywhere
        let by_fd = Path::new("/proc/self/fd").join(self.fd.as_raw_fd().to_string()).join(OsStr::from_bytes(name));
        for (name, value) in &attributes.xattrs {
            note_xattr(fs::lsetxattr(&by_fd, &**name, value, XattrFlags::empty()), left_out, &path)?;
        }
        let stat = fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| failed("look at", &path, e))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            let mode = mode(attributes, owned);
            fs::chmodat(&self.fd, name, mode, AtFlags::empty()).map_err(|e| failed("set mode of", &path, e))?;
        }
        fs::utimensat(&self.fd, name, &times(attributes), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| failed("set times of", &path, e))
    }

    /// Gives the folder itself what it shall have.
    pub fn set_own_attributes(&self, attributes: &FileMetadata, left_out: &mut LeftOut) -> Result<()> {
        set_by_fd(&self.fd, &self.path, attributes, left_out)
    }
}

impl Sink {
    /// Writes bytes, from where the last ones ended or were skipped to.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pwrite(&self.fd, &bytes[done..], offset + done as u64) {
                Ok(0) => return Err(failed("write", &self.path, Errno::NOSPC)),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(e) => return Err(failed("write", &self.path, e)),
            }
        }
        self.at = offset + bytes.len() as u64;
        Ok(())
    }

    /// What is between here and `offset` shall read as zeros.
    pub fn skip_to(&mut self, offset: u64) -> Result<()> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        while !self.is_regular && self.at < offset {
            let len = ZEROS.len().min((offset - self.at) as usize);
            self.write(self.at, &ZEROS[..len])?;
        }
        self.at = offset;
        Ok(())
    }

    /// Ends the file at that size.
    pub fn set_size(&mut self, size: u64) -> Result<()> {
        self.skip_to(size)?;
        match self.is_regular {
            true => fs::ftruncate(&self.fd, size).map_err(|e| failed("set size of", &self.path, e)),
            false => Ok(()),
        }
    }

    /// Gives the file what it shall have.
    pub fn set_attributes(&self, attributes: &FileMetadata, left_out: &mut LeftOut) -> Result<()> {
        if self.is_regular { set_by_fd(&self.fd, &self.path, attributes, left_out) } else { Ok(()) }
    }
}

fn set_by_fd(fd: &OwnedFd, path: &Path, attributes: &FileMetadata, left_out: &mut LeftOut) -> Result<()> {
    // in this order: a change of owner takes away set-id bits and capabilities
    let (uid, gid) = owner(attributes);
    let owned = match fs::fchown(fd, Some(uid), Some(gid)) {
        Ok(()) => true,
        Err(e) => note_owner(e, attributes, left_out, path)?,
    };
    for (name, value) in &attributes.xattrs {
        note_xattr(fs::fsetxattr(fd.as_fd(), &**name, value, XattrFlags::empty()), left_out, path)?;
    }
    fs::fchmod(fd, mode(attributes, owned)).map_err(|e| failed("set mode of", path, e))?;
    fs::futimens(fd, &times(attributes)).map_err(|e| failed("set times of", path, e))
}

fn owner(attributes: &FileMetadata) -> (fs::Uid, fs::Gid) {
    (fs::Uid::from_raw(attributes.uid), fs::Gid::from_raw(attributes.gid))
}

/// Counts an owner that cannot be set, unless the copier's own ids are right anyway.
fn note_owner(e: Errno, attributes: &FileMetadata, left_out: &mut LeftOut, path: &Path) -> Result<bool> {
    if !matches!(e, Errno::PERM | Errno::INVAL | Errno::OPNOTSUPP) {
        return Err(failed("set owner of", path, e));
    }
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if own == (attributes.uid, attributes.gid) {
        return Ok(true);
    }
    left_out.count("owners");
    Ok(false)
}

fn note_xattr(result: rustix::io::Result<()>, left_out: &mut LeftOut, path: &Path) -> Result<()> {
    match result {
        Ok(()) => Ok(()),
        Err(
            Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::NOSPC | Errno::TOOBIG | Errno::RANGE | Errno::INVAL,
        ) => {
            left_out.count("extended attributes");
            Ok(())
        }
        Err(e) => Err(failed("set extended attribute of", path, e)),
    }
}

/// Permission bits; the right to act as the owner only if the owner is right.
fn mode(attributes: &FileMetadata, owned: bool) -> Mode {
    Mode::from_raw_mode(if owned { attributes.mode & 0o7777 } else { attributes.mode & 0o1777 })
}

fn times(attributes: &FileMetadata) -> Timestamps {
    let time = |(s, ns): (i64, u32)| Timespec { tv_sec: s, tv_nsec: i64::from(ns.min(999_999_999)) };
    Timestamps { last_access: time(attributes.atime), last_modification: time(attributes.mtime) }
}

fn failed(what: &str, path: &Path, e: Errno) -> Error {
    Error::new(Kind::Io, format!("cannot {what} {}", path.display())).with_source(std::io::Error::from(e))
}

#[cfg(test)]
mod tests;
