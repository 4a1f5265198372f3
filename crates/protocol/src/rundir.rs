//! The folder where the processes of imported pools are found.
//!
//! ```text
//!   /run/cenote                 root's
//!   $XDG_RUNTIME_DIR/cenote     an ordinary user's, or
//!   /run/user/UID/cenote        if the variable is lost, or
//!   /tmp/cenote-UID             where there is no such folder
//!   $CENOTE_RUN                 if it is set
//!     tank.sock                 the control socket of pool "tank"
//!     tank.lock                 locked for as long as that process lives
//!     tank.log                  what it has to tell
//!     tank.events               what had happened to pools of that name when they ended (`ended`)
//!     kstat/                    counters of all of them (`kstat`)
//! ```
//!
//! Everybody may connect to root's sockets, to ask: what others may do, the process decides (`server`).
//!
//! Invariants: the folder belongs to the user, or to root, and nobody else can write in it; an ordinary user's nobody
//! else can enter. The process that holds the lock may remove the socket.

use std::fs::{DirBuilder, File, Permissions};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use base::{Error, Kind, Result};
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::words::of_system;

/// Longest part of a pool's name in a file name: socket addresses are short.
const NAME_BYTES_MAX: usize = 60;

const OF_ROOT: &str = "/run/cenote";
/// Room that a log has to have at first.
const LOG_ROOM_BYTES: usize = 4096;

/// The folder, open.
pub struct RunDir {
    path: PathBuf,
    /// The folder itself: addresses relative to it are short, however deep it lies.
    folder: File,
}

impl RunDir {
    /// The folder; `None` if there is none, which means that no pool is imported.
    pub fn find() -> Result<Option<RunDir>> {
        let (path, mode_forbidden) = place();
        RunDir::open(path, mode_forbidden)
    }

    /// The folders with pools that this user may ask about: the own one, and root's.
    pub fn all() -> Result<Vec<RunDir>> {
        let own = RunDir::find()?;
        let of_root = match std::env::var_os("CENOTE_RUN") {
            None if !geteuid().is_root() => RunDir::open(PathBuf::from(OF_ROOT), 0o022)?,
            _ => None,
        };
        Ok(own.into_iter().chain(of_root).collect())
    }

    fn open(path: PathBuf, mode_forbidden: u32) -> Result<Option<RunDir>> {
        match File::options().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(&path) {
            Ok(folder) => RunDir::checked(path, folder, mode_forbidden).map(Some),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(unusable(&path, &of_system(&e))),
        }
    }

    /// The folder, which is made if there is none.
    pub fn make() -> Result<RunDir> {
        let (path, _) = place();
        let mode = if geteuid().is_root() { 0o755 } else { 0o700 };
        if !path.exists() {
            let made = DirBuilder::new().recursive(true).mode(mode).create(&path);
            made.map_err(|e| unusable(&path, &of_system(&e)))?;
        }
        let found = RunDir::find()?.ok_or_else(|| unusable(&path, "it was removed"))?;
        if path == Path::new(OF_ROOT) && found.folder.metadata()?.mode() & 0o777 != mode {
            // an older one let nobody else in
            found.folder.set_permissions(Permissions::from_mode(mode))?;
        }
        Ok(found)
    }

    fn checked(path: PathBuf, folder: File, mode_forbidden: u32) -> Result<RunDir> {
        let metadata = folder.metadata()?;
        if ![geteuid().as_raw(), 0].contains(&metadata.uid()) {
            return Err(unusable(&path, "it belongs to another user; CENOTE_RUN names another folder"));
        }
        if metadata.mode() & mode_forbidden != 0 {
            return Err(unusable(&path, "other users have access to it"));
        }
        Ok(RunDir { path, folder })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names in the file names of all sockets of pools that there are, in no order. In a folder that others use, too,
    /// there may be more sockets: a pool's has its lock beside it.
    pub fn sockets(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in self.path.read_dir().map_err(|e| unusable(&self.path, &of_system(&e)))? {
            let entry = entry?;
            let name = entry.file_name();
            let stem = name.to_str().and_then(|name| name.strip_suffix(".sock"));
            let is_pools =
                |stem: &&str| entry.file_type().is_ok_and(|kind| kind.is_socket()) && self.long(stem, "lock").exists();
            names.extend(stem.filter(is_pools).map(str::to_owned));
        }
        Ok(names)
    }

    /// Connects to a socket; `None` if nobody listens there. `stem` is of [`RunDir::sockets`] or [`stem`]. Errors: `Busy`
    /// if so many others wait there that this one would have to wait, too.
    pub fn connect(&self, stem: &str) -> Result<Option<UnixStream>> {
        let address = SocketAddrUnix::new(self.short(stem, "sock")).map_err(std::io::Error::from)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(std::io::Error::from)?;
        match connect(&socket, &address) {
            Ok(()) => {
                let stream = UnixStream::from(socket);
                stream.set_nonblocking(false)?;
                Ok(Some(stream))
            }
            Err(Errno::NOENT | Errno::CONNREFUSED) => Ok(None),
            Err(Errno::AGAIN) => Err(Error::new(Kind::Busy, "too many others wait for the pool's process")),
            Err(e) => Err(Error::from(std::io::Error::from(e))),
        }
    }

    /// Takes the place of the pool `name`. Errors: `Exists` if a living process has it.
    pub fn claim(&self, name: &str) -> Result<RunDirClaim> {
        let stem = stem(name);
        let lock = self.lock(&stem)?;
        self.claimed(stem, lock)
    }

    /// The same with the lock of a process that has died, which others had open, too. Errors: likewise.
    pub fn claim_again(&self, name: &str, lock: File) -> Result<RunDirClaim> {
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock)
            .map_err(|_| Error::new(Kind::Exists, "pool already exists"))?;
        self.claimed(stem(name), lock)
    }

    fn claimed(&self, stem: String, lock: Flock<File>) -> Result<RunDirClaim> {
        let dir = RunDir { path: self.path.clone(), folder: self.folder.try_clone()? };
        Ok(RunDirClaim { dir, stem, is_listening: false, lock })
    }

    /// The log of the pool `name`, empty.
    pub fn log(&self, name: &str) -> Result<File> {
        let path = self.log_of(name);
        // what the process before had to say, if that was its last
        if let Err(e) = std::fs::rename(&path, self.long(&stem(name), "log.old"))
            && e.kind() != std::io::ErrorKind::NotFound
        {
            return Err(unusable(&path, &of_system(&e)));
        }
        let options = File::options()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path);
        options.map_err(|e| unusable(&path, &of_system(&e)))
    }

    /// Where a pool's log is.
    pub fn log_of(&self, name: &str) -> PathBuf {
        self.long(&stem(name), "log")
    }

    fn lock(&self, stem: &str) -> Result<Flock<File>> {
        let path = self.long(stem, "lock");
        loop {
            let mut options = File::options();
            options.create(true).truncate(false).write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
            let file = options.open(&path).map_err(|e| unusable(&path, &of_system(&e)))?;
            let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock)
                .map_err(|_| Error::new(Kind::Exists, "pool already exists"))?;
            // the process that had it before may have removed it after it was opened here
            let is_same = |there: std::fs::Metadata| lock.metadata().is_ok_and(|ours| ours.ino() == there.ino());
            if path.metadata().is_ok_and(is_same) {
                return Ok(lock);
            }
        }
    }

    fn long(&self, stem: &str, extension: &str) -> PathBuf {
        self.path.join(format!("{stem}.{extension}"))
    }

    fn short(&self, stem: &str, extension: &str) -> PathBuf {
        self.in_folder(&format!("{stem}.{extension}"))
    }

    fn in_folder(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.folder.as_raw_fd()))
    }
}

/// A pool's place in the folder; dropping it gives it up. A socket that a dead process left stays until somebody
/// listens in its place, or clears it away: it tells that there may be mounts of that process.
pub struct RunDirClaim {
    dir: RunDir,
    stem: String,
    is_listening: bool,
    lock: Flock<File>,
}

impl RunDirClaim {
    /// The folder.
    pub fn dir(&self) -> &RunDir {
        &self.dir
    }

    pub(crate) fn place_of(&self, extension: &str) -> PathBuf {
        self.dir.long(&self.stem, extension)
    }

    /// What it is claimed with, for another process. Errors: there are too many open files.
    pub fn lock(&self) -> Result<OwnedFd> {
        Ok(self.lock.as_fd().try_clone_to_owned()?)
    }

    /// The claim, if the folder takes what the process of a pool needs there, a socket and a log: asked before anything of
    /// the pool is changed; `bind` as of [`RunDirClaim::listen`]. Errors: it does not, as where its file system is full; the
    /// message names the folder.
    pub fn with_room(self, bind: impl FnOnce(&Path, u32) -> std::io::Result<UnixListener>) -> Result<RunDirClaim> {
        let pid = std::process::id();
        let [log, socket] = ["log", "sock"].map(|what| format!(".{}.{what}.{pid}", self.stem));
        let try_both = || -> std::io::Result<()> {
            let options = &mut File::options();
            let mut file = options.create_new(true).write(true).mode(0o600).open(self.dir.path.join(&log))?;
            file.write_all(&[b'\n'; LOG_ROOM_BYTES])?;
            drop(bind(&self.dir.path.join(&socket), 0o600)?);
            Ok(())
        };
        let outcome = try_both();
        // what could not be made is not there
        [log, socket].iter().for_each(|name| drop(std::fs::remove_file(self.dir.path.join(name))));
        match outcome {
            Ok(()) => Ok(self),
            Err(e) => Err(unusable(&self.dir.path, &of_system(&e))),
        }
    }

    /// Removes the socket that a dead process left.
    pub fn clear(&self) -> Result<()> {
        match std::fs::remove_file(self.dir.long(&self.stem, "sock")) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::from(e)),
            _ => Ok(()),
        }
    }

    /// The pool's socket, where others find it from now on, made by `bind`: a path, and its permissions. Errors: those
    /// of `bind`; the socket of a dead process cannot be removed.
    pub fn listen(&mut self, bind: impl FnOnce(&Path, u32) -> std::io::Result<UnixListener>) -> Result<UnixListener> {
        self.clear()?;
        // a user that may enter the folder may ask
        let listener =
            bind(&self.dir.long(&self.stem, "sock"), 0o666).map_err(|e| unusable(&self.dir.path, &of_system(&e)))?;
        self.is_listening = true;
        Ok(listener)
    }

    /// The pool's socket as the process before had it, with all that wait there. `None`: it is not found there any more.
    pub fn listen_again(&mut self, listener: OwnedFd) -> Option<UnixListener> {
        let listener = UnixListener::from(listener);
        self.dir.connect(&self.stem).ok().flatten()?;
        // the process that listens last is the one that clients are told of
        rustix::net::listen(&listener, -1).ok()?;
        self.is_listening = true;
        Some(listener)
    }
}

impl Drop for RunDirClaim {
    fn drop(&mut self) {
        if self.is_listening {
            drop(self.clear());
        }
        // a socket without a lock beside it is not a pool's
        if !self.dir.long(&self.stem, "sock").exists() {
            drop(std::fs::remove_file(self.dir.long(&self.stem, "lock")));
        }
    }
}

/// The file name, without extension, of a pool's files. Long names are cut, and told apart by a hash;
/// the sign before that is in no pool's name.
pub fn stem(name: &str) -> String {
    match name.get(..NAME_BYTES_MAX) {
        Some(head) if head.len() < name.len() => {
            // FNV-1a
            let hash = name
                .bytes()
                .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
            format!("{}~{hash:016x}", &head[..NAME_BYTES_MAX - 17])
        }
        _ => name.to_owned(),
    }
}

/// Where the folder is, and which permissions it may not have.
fn place() -> (PathBuf, u32) {
    let set = |name: &str| std::env::var_os(name).filter(|value| Path::new(value).is_absolute()).map(PathBuf::from);
    if let Some(path) = set("CENOTE_RUN") {
        return (path, 0o022);
    }
    let uid = geteuid();
    if uid.is_root() {
        return (PathBuf::from(OF_ROOT), 0o022);
    }
    let of_session = PathBuf::from(format!("/run/user/{uid}"));
    let is_own = |path: &PathBuf| path.metadata().is_ok_and(|there| there.is_dir() && there.uid() == uid.as_raw());
    match set("XDG_RUNTIME_DIR").or_else(|| Some(of_session).filter(is_own)) {
        Some(path) => (path.join("cenote"), 0o077),
        None => (PathBuf::from(format!("/tmp/cenote-{uid}")), 0o077),
    }
}

fn unusable(path: &Path, why: &str) -> Error {
    Error::new(Kind::Permission, format!("cannot use {}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(path: &Path, mode: u32) -> std::io::Result<UnixListener> {
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, Permissions::from_mode(mode)).map(|()| listener)
    }

    #[test]
    fn stems_fit_in_addresses() {
        assert_eq!(stem("tank"), "tank");
        let (a, b) = (stem(&"x".repeat(200)), stem(&format!("{}y", "x".repeat(199))));
        assert!(a != b && a.len() == NAME_BYTES_MAX && a.contains('~'));
        assert_eq!(stem(&"x".repeat(NAME_BYTES_MAX)).len(), NAME_BYTES_MAX);
    }

    #[test]
    fn one_owner_at_a_time() {
        let path = std::env::temp_dir().join(format!("cenote-rundir-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&path).unwrap();
        let dir = RunDir::checked(path.clone(), File::open(&path).unwrap(), 0o077).unwrap();
        let mut claim = dir.claim("tank").unwrap();
        assert!(dir.sockets().unwrap().is_empty());
        let _listener = claim.listen(bind).unwrap();
        assert_eq!(dir.claim("tank").err().unwrap().kind(), Kind::Exists);
        assert_eq!(dir.sockets().unwrap(), ["tank"]);
        assert!(dir.connect("tank").unwrap().is_some() && dir.connect("none").unwrap().is_none());
        // others' sockets, and what is none
        let _other = UnixListener::bind(dir.short("other", "sock")).unwrap();
        File::create(dir.long("file", "sock")).unwrap();
        File::create(dir.long("file", "lock")).unwrap();
        assert_eq!(dir.sockets().unwrap(), ["tank"]);
        drop(claim);
        assert!(dir.sockets().unwrap().is_empty());
        // a socket that a dead process left
        drop(UnixListener::bind(dir.short("tank", "sock")).unwrap());
        assert!(dir.connect("tank").unwrap().is_none());
        drop(dir.claim("tank").unwrap());
        assert_eq!(dir.sockets().unwrap(), ["tank"], "not everybody who has the place clears it");
        dir.claim("tank").unwrap().clear().unwrap();
        assert!(dir.sockets().unwrap().is_empty() && !dir.long("tank", "lock").exists());
        drop(UnixListener::bind(dir.short("tank", "sock")).unwrap());
        let claim = dir.claim("tank").unwrap().with_room(bind);
        drop(claim.unwrap().listen(bind).unwrap());
        assert!(dir.sockets().unwrap().is_empty());
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert!(RunDir::checked(path.clone(), File::open(&path).unwrap(), 0o077).is_err());
        let link = path.with_extension("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(RunDir::open(link.clone(), 0o022).is_err());
        std::fs::remove_file(link).unwrap();
        if geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            let error = RunDir::open(path.clone(), 0o022).err().unwrap();
            assert!(error.what().contains("it belongs to another user"), "{error}");
        }
        std::fs::remove_dir_all(path).unwrap();
    }
}
