//! The helper that opens what the process of a pool may not: sockets, disks and images to be written, and cache files.
//!
//! ```text
//!   the pool's process                its helper: the same program, started anew as `listen-helper`
//!     listen ── an address, a path ────▶   binds it, listens        any address; paths in the run folder
//!     open   ── a path ────────────────▶   opens it                 what may be a device (`openable`)
//!     cache  ── a pool's entry ────────▶   writes it                what is a cache file, or was named at the start
//!     block  ── a volume, a socket ────▶   makes it a device        volumes only (`block_helper`)
//!            ◀── the descriptors, or why not
//! ```
//!
//! It does nothing else, connects to nobody, and ends with the pool's process. Each request has a socket of its own for
//! the answer, and a thread: a disk that does not answer holds up nobody else. The helper has closed what it opened
//! before the answer ends, so that the pool's process is the only one that has it open.

use std::collections::BTreeSet;
use std::fs::{File, Permissions};
use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base::{Error, Kind, Mutex, Result};
use device::OpenedDevice;
use format::nvlist::NvList;
use nix::sys::signal::SigSet;
use protocol::beside;
use protocol::rundir::{RunDir, RunDirClaim};
use serde::{Deserialize, Serialize};

use crate::block_helper::{self, BlockWish};
use crate::mount_helper::ENDING;
use crate::{cachefile, openable};

/// Longest message, in bytes: the configuration of a pool is one.
const MESSAGE_BYTES_MAX: u32 = 64 << 20;
/// How long what is asked about a block device may take.
const BLOCK_TIME: Duration = Duration::from_secs(60);
/// The variable of the environment with the cache file that root named when the pool was imported or made.
const CACHE_VARIABLE: &str = "CENOTE_HELPER_CACHEFILE";

/// The helper of this process, once that is confined.
static OF_PROCESS: OnceLock<ListenHelper> = OnceLock::new();

/// A helper, unless none could be started.
#[derive(Clone, Default)]
pub struct ListenHelper(Option<Arc<Mutex<UnixStream>>>);

#[derive(Serialize, Deserialize)]
enum Wish {
    /// A socket of the network.
    Listen(SocketAddr),
    /// A socket in the run folder, with these permissions.
    Bind(PathBuf, u32),
    /// A disk or image, to read and write; also past the page cache, or not.
    Open(PathBuf, bool),
    /// An entry of a cache file, packed; or that it goes.
    Cache { file: PathBuf, pool: String, config: Option<Vec<u8>> },
    /// Something of a block device; a socket may come along.
    Block(BlockWish),
}

#[derive(Serialize, Deserialize)]
enum WishAnswer {
    /// The descriptors come with it; the first one may be the claim on a disk.
    Done { has_claim: bool },
    /// An error of the system.
    Errno(i32),
    /// Another error.
    Refused(String),
}

impl ListenHelper {
    /// Starts one, which may make that cache file; a failure is logged, and told to all that needs one.
    pub fn started(cachefile: Option<&str>) -> ListenHelper {
        let started = start(cachefile).inspect_err(|error| tracing::warn!("there is no helper: {error}"));
        ListenHelper(started.ok().map(|stream| Arc::new(Mutex::new(stream))))
    }

    /// From now on, this process opens by it.
    pub fn serve_process(&self) {
        if OF_PROCESS.set(self.clone()).is_ok() {
            let helper = self.clone();
            device::open_for_writing_by(Box::new(move |path, is_direct| helper.open(path, is_direct)));
        }
    }

    /// A socket that listens at an address. Errors: why that cannot be, as the system says it.
    pub fn listen(&self, address: SocketAddr) -> Result<TcpListener> {
        let listening = self.ask(&Wish::Listen(address)).and_then(|(_, fds)| one(fds));
        let failed = |e| Error::new(Kind::Invalid, format!("cannot listen at {address}: {e}"));
        Ok(TcpListener::from(listening.map_err(failed)?))
    }

    fn open(&self, path: &Path, is_direct: bool) -> io::Result<OpenedDevice> {
        let (has_claim, fds) = self.ask(&Wish::Open(path.to_owned(), is_direct))?;
        let mut files = fds.into_iter().map(File::from);
        let claim = if has_claim { files.next() } else { None };
        let cached = files.next().ok_or_else(gone)?;
        Ok(OpenedDevice { claim, cached, direct: files.next() })
    }

    fn ask(&self, wish: &Wish) -> io::Result<(bool, Vec<OwnedFd>)> {
        self.ask_with(wish, None, None)
    }

    /// The same; a descriptor comes along, and it may take so long at most.
    fn ask_with(
        &self,
        wish: &Wish,
        beside: Option<BorrowedFd<'_>>,
        limit: Option<Duration>,
    ) -> io::Result<(bool, Vec<OwnedFd>)> {
        let (mut ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(limit)?;
        let descriptors: Vec<_> = beside.into_iter().chain([theirs.as_fd()]).collect();
        let sent = beside::send(&self.0.as_ref().ok_or_else(gone)?.lock(), wish, &descriptors);
        sent.map_err(|_| gone())?;
        drop(theirs);
        let answer = beside::receive::<WishAnswer>(&ours, MESSAGE_BYTES_MAX).map_err(|_| gone())?;
        // until the helper has closed its own
        let _ = ours.read(&mut [0]);
        match answer.ok_or_else(gone)? {
            (WishAnswer::Done { has_claim }, fds) => Ok((has_claim, fds)),
            (WishAnswer::Errno(errno), _) => Err(io::Error::from_raw_os_error(errno)),
            (WishAnswer::Refused(why), _) => Err(io::Error::new(ErrorKind::PermissionDenied, why)),
        }
    }
}

fn gone() -> io::Error {
    io::Error::other("the helper that opens files and sockets for the pool's process is gone")
}

fn one(mut fds: Vec<OwnedFd>) -> io::Result<OwnedFd> {
    fds.pop().ok_or_else(gone)
}

/// A socket in the run folder that listens, with these permissions, made by the helper of this process if it has one.
/// Errors: as of bind(2).
pub fn bind(path: &Path, mode: u32) -> io::Result<UnixListener> {
    match OF_PROCESS.get() {
        Some(helper) => {
            let listener = UnixListener::from(one(helper.ask(&Wish::Bind(path.to_owned(), mode))?.1)?);
            // the process that listens last is the one that clients are told of
            rustix::net::listen(&listener, -1)?;
            Ok(listener)
        }
        None => bind_here(path, mode),
    }
}

/// The claim on a pool's name in the run folder, which has room for what its process makes there. Errors: as of
/// [`RunDir::claim`] and [`RunDirClaim::with_room`].
pub fn claim(name: &str, lock: Option<File>) -> Result<RunDirClaim> {
    let dir = RunDir::make()?;
    let claim = match lock {
        Some(lock) => dir.claim_again(name, lock),
        None => dir.claim(name),
    };
    claim?.with_room(bind)
}

/// The pool's socket: that of the process before, if it was `kept` and is found there, or a new one. Errors: as of
/// [`RunDirClaim::listen`].
pub fn listen(claim: &mut RunDirClaim, kept: Option<OwnedFd>) -> Result<UnixListener> {
    let again = kept.and_then(|kept| claim.listen_again(kept));
    again.map_or_else(|| claim.listen(bind), Ok)
}

/// Has the helper of this process do something about a block device. Errors: those of the system; `Unsupported` if there is
/// no helper, or it does not answer.
pub fn block(wish: BlockWish, socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let helper = OF_PROCESS.get().ok_or_else(|| io::Error::from(ErrorKind::Unsupported))?;
    helper.ask_with(&Wish::Block(wish), socket, Some(BLOCK_TIME)).map(drop)
}

/// Gives a pool its entry in a cache file, or takes that out, by the helper of this process if it has one. Errors: as
/// [`cachefile::put`]; the message names the file.
pub fn change_cachefile(file: &Path, pool: &str, config: Option<&NvList>) -> Result<()> {
    let changed = match (OF_PROCESS.get(), config) {
        (Some(helper), config) => {
            let wish = Wish::Cache { file: file.to_owned(), pool: pool.to_owned(), config: config.map(NvList::pack) };
            helper.ask(&wish).map(drop).map_err(Error::from)
        }
        (None, Some(config)) => cachefile::put(file, pool, config),
        (None, None) => cachefile::remove(file, pool),
    };
    changed.map_err(|error| cachefile::unwritten(file, &error))
}

fn start(cachefile: Option<&str>) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("cenote").arg("listen-helper").current_dir("/").stdin(Stdio::from(OwnedFd::from(theirs)));
    match cachefile {
        Some(file) => command.env(CACHE_VARIABLE, file),
        None => command.env_remove(CACHE_VARIABLE),
    };
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok(ours)
}

/// Is such a process.
pub fn run() -> ExitCode {
    // what ends the pool's process in order is not for this one
    let blocked = SigSet::from_iter(ENDING).thread_block().map_err(io::Error::from);
    let asked = blocked.and_then(|()| io::stdin().as_fd().try_clone_to_owned()).map(UnixStream::from);
    let caches = std::env::var_os(CACHE_VARIABLE).map(PathBuf::from);
    match asked.map_err(Error::from).and_then(|asked| serve(&asked, caches)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cenote listen-helper: started by the process of a pool, not by hand: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(asked: &UnixStream, cachefile: Option<PathBuf>) -> Result<()> {
    let caches = Arc::new(Mutex::new(cachefile.into_iter().collect::<BTreeSet<_>>()));
    let wait = || {
        // that may take days
        base::give_program_back();
        beside::receive::<Wish>(asked, MESSAGE_BYTES_MAX)
    };
    while let Some((wish, mut descriptors)) = wait()? {
        let Some(reply) = descriptors.pop().map(UnixStream::from) else { continue };
        let beside = descriptors.pop();
        let caches = caches.clone();
        let fulfil = move || {
            let (outcome, fds) = match fulfilled(wish, beside, &caches) {
                Ok((has_claim, fds)) => (WishAnswer::Done { has_claim }, fds),
                Err(WishFailure::System(error)) => {
                    let text = || WishAnswer::Refused(error.to_string());
                    (error.raw_os_error().map_or_else(text, WishAnswer::Errno), Vec::new())
                }
                Err(WishFailure::Other(why)) => (WishAnswer::Refused(why), Vec::new()),
            };
            let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            // the process may be gone
            let _ = beside::send(&reply, &outcome, &borrowed);
            drop(fds);
            drop(reply);
        };
        // if there is no thread, the end of the reply says so
        drop(std::thread::Builder::new().name("open".to_owned()).spawn(fulfil));
    }
    Ok(())
}

enum WishFailure {
    System(io::Error),
    Other(String),
}

impl From<io::Error> for WishFailure {
    fn from(error: io::Error) -> WishFailure {
        WishFailure::System(error)
    }
}

impl From<Error> for WishFailure {
    fn from(error: Error) -> WishFailure {
        let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<io::Error>());
        match source.and_then(io::Error::raw_os_error) {
            Some(errno) => WishFailure::System(io::Error::from_raw_os_error(errno)),
            None => WishFailure::Other(error.what().to_owned()),
        }
    }
}

/// Does it; what is opened for it, and whether the first of that is a claim.
fn fulfilled(
    wish: Wish,
    beside: Option<OwnedFd>,
    caches: &Mutex<BTreeSet<PathBuf>>,
) -> std::result::Result<(bool, Vec<OwnedFd>), WishFailure> {
    match wish {
        Wish::Block(wish) => {
            block_helper::fulfil(wish, beside)?;
            Ok((false, Vec::new()))
        }
        Wish::Listen(address) => Ok((false, vec![TcpListener::bind(address)?.into()])),
        Wish::Bind(path, mode) => {
            let run = RunDir::find()?.ok_or_else(|| WishFailure::Other("there is no run folder".to_owned()))?;
            let is_plain = |below: &Path| below.components().all(|part| matches!(part, Component::Normal(_)));
            if !path.strip_prefix(run.path()).is_ok_and(is_plain) {
                return Err(WishFailure::Other("sockets are in the run folder only".to_owned()));
            }
            Ok((false, vec![bind_here(&path, mode)?.into()]))
        }
        Wish::Open(path, is_direct) => {
            let opened = openable::open(&path, is_direct)?;
            let has_claim = opened.claim.is_some();
            let files = opened.claim.into_iter().chain([opened.cached]).chain(opened.direct);
            Ok((has_claim, files.map(OwnedFd::from).collect()))
        }
        Wish::Cache { file, pool, config } => {
            // nothing but such a file, unless root has named it; nor is that forgotten when the last pool leaves it
            if !caches.lock().contains(&file) {
                cachefile::read(&file)?;
                caches.lock().insert(file.clone());
            }
            match config {
                Some(config) => cachefile::put(&file, &pool, &NvList::unpack(&config)?)?,
                None => cachefile::remove(&file, &pool)?,
            }
            Ok((false, Vec::new()))
        }
    }
}

/// The address is short, however deep the folder lies.
fn bind_here(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::from(ErrorKind::InvalidInput));
    };
    let folder = File::options().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(folder)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
    let listener = UnixListener::bind(&short)?;
    std::fs::set_permissions(&short, Permissions::from_mode(mode))?;
    Ok(listener)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// One that is a thread of this process.
    pub(crate) fn helper() -> ListenHelper {
        helper_with(None)
    }

    fn helper_with(cachefile: Option<PathBuf>) -> ListenHelper {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || serve(&theirs, cachefile).unwrap());
        ListenHelper(Some(Arc::new(Mutex::new(ours))))
    }

    #[test]
    fn sockets_come_from_the_helper() {
        let helper = helper();
        let listener = helper.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        std::net::TcpStream::connect(address).unwrap();
        let error = helper.listen(address).unwrap_err();
        assert!(error.what().starts_with(&format!("cannot listen at {address}: ")), "{error}");
        assert!(ListenHelper(None).listen(address).is_err());
    }

    #[test]
    fn nothing_else_is_opened_by_the_helper() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let helper = helper();
        let opened = helper.open(&image, true).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&opened.cached, b"x", 0).unwrap();
        assert!(opened.claim.is_none());
        assert_eq!(helper.open(Path::new("/etc/passwd"), false).unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(helper.open(&dir.path().join("no"), false).unwrap_err().kind(), ErrorKind::NotFound);
        for path in [dir.path().join("sock"), PathBuf::from("/run/cenote/../sock"), PathBuf::from("sock")] {
            let refused = helper.ask(&Wish::Bind(path, 0o600)).map(drop).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{refused}");
        }
    }

    #[test]
    fn only_cache_files_are_written_by_the_helper() {
        let dir = tempfile::tempdir().unwrap();
        let (named, offered) = (dir.path().join("named"), dir.path().join("offered"));
        let helper = helper_with(Some(named.clone()));
        let put = |file: &Path, config: Option<NvList>| {
            let config = config.map(|config| config.pack());
            helper.ask(&Wish::Cache { file: file.to_owned(), pool: "tank".to_owned(), config }).map(drop)
        };
        for times in 0..2 {
            put(&named, Some(NvList::new())).unwrap();
            assert!(cachefile::read(&named).unwrap().opt_list("tank").is_some(), "{times}");
            put(&named, None).unwrap();
            assert!(!named.exists());
        }
        put(&offered, Some(NvList::new())).unwrap_err();
        assert!(!offered.exists(), "a file is made that root has not named");
        std::fs::write(&offered, "export PATH\n").unwrap();
        put(&offered, Some(NvList::new())).unwrap_err();
        std::fs::remove_file(&offered).unwrap();
        cachefile::offer(&offered).unwrap();
        put(&offered, Some(NvList::new())).unwrap();
        put(&offered, None).unwrap();
        assert!(!offered.exists());
    }
}
