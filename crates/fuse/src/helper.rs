//! The mount helper: a process that goes where the process that serves the mounts must not.
//!
//! ```text
//!   the pool's process                        its helper: the same program, started anew
//!     Helper::attach ─── Attach ───────────▶    looks at the mountpoint; /dev/fuse, mount(2)
//!     serves it      ◀── Attached, its fd ──    closes its own
//!     Helper::detach ─── Detach ───────────▶    umount2(2)
//!       ⋮                                         ⋮  waits for the process that serves the folder above
//!     kill -9: its files are closed ───────▶    ENOTCONN instead of an answer; end of file: it ends
//! ```
//!
//! A mountpoint may lie in another mount of the same process. A thread that waits there in the kernel for
//! the answer of another thread of its process cannot be killed, and the connection, which the dying
//! process would close, stays open for as long as one of its threads lives: both would wait for ever.
//!
//! The pool's process may give up its right to start programs ([`Helper::started`]): then one helper, which
//! never goes to any mountpoint, starts the others, and nothing but others like itself. If somebody kills that one, there
//! are no more; what is mounted can then be unmounted by any other process ([`unmount_all`](crate::unmount_all)).
//!
//! Invariant: nobody but the pool's process has a connection open while it waits for another's answer: a
//! helper has one only from mount(2) until it is sent.
//!
//! A message is one JSON text in one packet, with at most one file descriptor. A helper does one thing at
//! a time; if none is idle another is started, so that a mountpoint that does not answer holds up nobody
//! else.

mod help;

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::{Error, FoundFacts, Kind, Mutex, MutexGuard, Result};
use nix::sys::socket;
use nix::sys::time::TimeVal;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

pub use help::help;

use crate::keeper::{Inheritance, InheritedMount, KeepRequest, KeptFiles, KeptMount, KeptThing, RevivalPlan};
use crate::messages::{makes_no_sense, receive, send, socket_pair};
use crate::options::{MountOptions, Unmount};
use crate::point;
use crate::visit::MountVisit;

/// What an error says if there is no helper any more, nor can there be: somebody killed it.
pub const NO_HELPER: &str = "the mount helper of the pool's process was killed, and that process may start no other: \
    export the pool, and import it again";

/// So many messages for the kernel are in one of ours: of each at most three hundred bytes or, with long names, a thousand,
/// which become up to four times as many.
const MESSAGES_AT_ONCE: usize = 12;
/// How long it may take to find out what is at a path.
const LOOK_MAX: Duration = Duration::from_secs(10);

/// Does for a process what it must not do itself: see above. Processes are started when they are needed;
/// dropping the last clone ends them.
#[derive(Clone)]
pub struct Helper(Arc<HelperInner>);

struct HelperInner {
    origin: Origin,
    idle: Mutex<Option<Running>>,
    revival: Mutex<PlannedRevival>,
}

/// What the first helper is told once there is a mount or a volume that it keeps: until then, it is to keep nothing.
#[derive(Default)]
struct PlannedRevival {
    plan: Option<(RevivalPlan, KeptFiles)>,
    keeps_any: bool,
}

/// Where helpers come from.
enum Origin {
    /// This process starts them.
    Program(PathBuf, Vec<OsString>),
    /// Another one does; the lock is held until the new one cannot be mistaken for a later one.
    Process(Arc<Mutex<Running>>),
}

/// A helper's process.
struct Running {
    process: Process,
    socket: OwnedFd,
}

enum Process {
    Own(Child),
    /// A child of the first one, which this process may not end itself.
    Elsewhere(i32, Weak<Mutex<Running>>),
    /// The one that has started this process.
    Parent,
}

/// A mounted file system that nobody serves yet.
pub(crate) struct Attached {
    pub(crate) connection: OwnedFd,
    /// Absolute, without links.
    pub(crate) point: PathBuf,
    /// Device number, `major:minor`.
    pub(crate) dev: String,
}

#[derive(Serialize, Deserialize)]
enum HelperRequest {
    MakeFolders(MountOptions),
    RemoveFolders(MountOptions, usize),
    ClearDead {
        point: OsString,
        subtype: String,
    },
    Attach(MountOptions),
    SetFlags {
        point: OsString,
        options: MountOptions,
    },
    Detach {
        point: OsString,
        dev: String,
        how: Unmount,
    },
    /// Tell which device is there.
    Look(OsString),
    /// Tell whether you may go to files by their handles.
    MayVisit,
    /// Go into the mount of a device, as a program does.
    Visit {
        point: OsString,
        dev: String,
        visit: MountVisit,
    },
    /// Start another one like yourself.
    Another,
    /// End one that you have started.
    End(i32),
    /// Of what outlives this process: only the first one is asked.
    Keep(KeepRequest),
    /// Send these messages to the kernel; the connection comes along.
    Tell(Vec<Vec<u8>>),
}

#[derive(Serialize, Deserialize)]
enum HelperAnswer {
    Done,
    Count(usize),
    /// A device number, `major:minor`.
    Device(String),
    /// Its socket comes with it.
    Started {
        pid: i32,
    },
    /// The connection comes with it.
    Attached {
        point: OsString,
        dev: String,
    },
    /// It comes along.
    Kept(KeptThing),
    Failed {
        errno: i32,
        what: String,
        /// The errno of the cause.
        cause: Option<i32>,
    },
}

impl Helper {
    /// `program` with `args` has to call [`help()`] with its standard input.
    pub fn new(program: impl Into<PathBuf>, args: &[&str]) -> Helper {
        let args = args.iter().map(Into::into).collect();
        Helper::from(Origin::Program(program.into(), args))
    }

    /// The same, for a process that will not be able to start programs any more. Errors: it cannot even now.
    pub fn started(program: impl Into<PathBuf>, args: &[&str]) -> Result<Helper> {
        let args: Vec<OsString> = args.iter().map(Into::into).collect();
        let first = Running::start(&program.into(), &args)?;
        Ok(Helper::from(Origin::Process(Arc::new(Mutex::new(first)))))
    }

    /// The one that has started this process, as the one before died, at the other end of `socket`; and what it kept. Errors:
    /// it makes no sense.
    pub fn inherited(socket: OwnedFd) -> Result<(Helper, Inheritance)> {
        let first = Running { process: Process::Parent, socket };
        let helper = Helper::from(Origin::Process(Arc::new(Mutex::new(first))));
        let mut inheritance = Inheritance::default();
        let mut mount: Option<(KeptMount, OwnedFd)> = None;
        for number in 0.. {
            match helper.ask_first(KeepRequest::Take(number), None)? {
                (HelperAnswer::Kept(KeptThing::Mount(kept)), Some(connection)) => mount = Some((*kept, connection)),
                (HelperAnswer::Kept(KeptThing::Facts), Some(facts)) => {
                    let (kept, connection) = mount.take().ok_or_else(makes_no_sense)?;
                    let facts = FoundFacts::read(facts);
                    inheritance.mounts.push(InheritedMount { kept, connection, facts });
                }
                (HelperAnswer::Kept(KeptThing::Volumes), Some(facts)) => {
                    inheritance.volumes = Some(FoundFacts::read(facts));
                }
                (HelperAnswer::Kept(KeptThing::Memory), Some(memory)) => inheritance.memory = Some(memory),
                (HelperAnswer::Kept(KeptThing::Claim), Some(claim)) => inheritance.claim = Some(claim),
                (HelperAnswer::Kept(KeptThing::Listener), Some(listener)) => inheritance.listener = Some(listener),
                (HelperAnswer::Done, _) => break,
                _ => return Err(makes_no_sense()),
            }
        }
        helper.0.revival.lock().keeps_any = !inheritance.mounts.is_empty() || inheritance.volumes.is_some();
        Ok((helper, inheritance))
    }

    fn from(origin: Origin) -> Helper {
        Helper(Arc::new(HelperInner { origin, idle: Mutex::default(), revival: Mutex::default() }))
    }

    /// Makes the mountpoint and the folders above it; returns how many were not there. Errors:
    /// [`NO_MOUNTPOINT`](crate::NO_MOUNTPOINT), and why.
    pub fn make_folders(&self, options: &MountOptions) -> Result<usize> {
        self.count(&HelperRequest::MakeFolders(options.clone()), None)
    }

    /// Removes the mountpoint and folders above it, `count` in all, as far as they are empty.
    pub fn remove_folders(&self, options: &MountOptions, count: usize) {
        if count > 0
            && let Err(error) = self.ask(&HelperRequest::RemoveFolders(options.clone(), count), None)
        {
            tracing::warn!(point = %options.mountpoint.display(), "the mountpoint stays: {error}");
        }
    }

    /// Unmounts file systems of type `fuse.SUBTYPE` that a killed process left at `point`; returns how many.
    ///
    /// Errors: `Busy` if what is mounted there is another program's, or does not say within `limit` whether it
    /// lives.
    pub fn clear_dead(&self, point: &Path, subtype: &str, limit: Duration) -> Result<usize> {
        let request = HelperRequest::ClearDead { point: point.into(), subtype: subtype.to_owned() };
        let cleared = self.count(&request, Some(limit)).map_err(|error| match error.kind() {
            Kind::Interrupted => Error::new(Kind::Busy, format!("mountpoint {} does not answer", point.display())),
            _ => error,
        })?;
        if cleared > 0 {
            tracing::info!(point = %point.display(), "unmounted what a dead process left there");
        }
        Ok(cleared)
    }

    /// Has its place kept, and how another process is started when this one dies: it serves the mounts that are kept.
    /// Errors: there is no helper.
    pub fn plan_revival(&self, plan: RevivalPlan, files: &KeptFiles) -> Result<()> {
        let mut revival = self.0.revival.lock();
        if revival.plan.as_ref().is_some_and(|(told, _)| *told == plan) {
            return Ok(());
        }
        let KeptFiles { claim, listener, log } = files;
        let files = KeptFiles { claim: claim.try_clone()?, listener: listener.try_clone()?, log: log.try_clone()? };
        revival.plan = Some((plan, files));
        self.tell_revival(&revival)
    }

    /// Says what another process is told first when this one dies: once, before this one gives up its rights. Errors: there
    /// is no helper.
    pub fn begin_revival(&self, begin: &str) -> Result<()> {
        self.ask_first(KeepRequest::Begin(begin.to_owned()), None).map(drop)
    }

    fn tell_revival(&self, revival: &PlannedRevival) -> Result<()> {
        let Some((plan, files)) = revival.plan.as_ref().filter(|_| revival.keeps_any) else { return Ok(()) };
        self.ask_first(KeepRequest::Claim, Some(files.claim.as_fd()))?;
        self.ask_first(KeepRequest::Listener, Some(files.listener.as_fd()))?;
        self.ask_first(KeepRequest::Log, Some(files.log.as_fd()))?;
        self.ask_first(KeepRequest::Plan(plan.clone()), None).map(drop)
    }

    /// Whose program is started next, instead of this one: that of a process of the same user that runs the command
    /// `upgrade`. Errors: it does not; there is no helper; it keeps nothing.
    pub fn start_next(&self, process: Option<u32>) -> Result<()> {
        if !self.0.revival.lock().keeps_any {
            return Err(Error::new(
                Kind::Unsupported,
                "nothing is mounted that outlives its process, nor is a volume used",
            ));
        }
        self.ask_first(KeepRequest::Next(process), None).map(drop)
    }

    /// Another process serves the mounts when this one, which stands in for it, has ended. Errors: there is no helper.
    pub fn serve_again(&self) -> Result<()> {
        self.ask_first(KeepRequest::Again, None).map(drop)
    }

    /// No other process is started from now on. Errors: there is no helper, which comes to the same.
    pub fn retire(&self) -> Result<()> {
        self.ask_first(KeepRequest::Retire, None).map(drop)
    }

    /// Has a mount kept: what is noted in its file, and its connection. Errors: it is not kept.
    pub(crate) fn keep(&self, mount: &KeptMount, connection: BorrowedFd<'_>, facts: BorrowedFd<'_>) -> Result<()> {
        self.ask_first(KeepRequest::Mount(Box::new(mount.clone())), Some(connection))?;
        self.keep_facts(&mount.dev, facts)?;
        self.begin_keeping()
    }

    /// Has what is noted of volumes kept, for the next process. Errors: it is not kept.
    pub fn keep_volumes(&self, facts: BorrowedFd<'_>) -> Result<()> {
        self.ask_first(KeepRequest::Volumes, Some(facts))?;
        self.begin_keeping()
    }

    /// Has the log in memory kept, for the next process. Errors: it is not kept.
    pub fn keep_memory(&self, memory: BorrowedFd<'_>) -> Result<()> {
        self.ask_first(KeepRequest::Memory, Some(memory)).map(drop)
    }

    /// There is something to be kept from now on.
    fn begin_keeping(&self) -> Result<()> {
        let mut revival = self.0.revival.lock();
        match std::mem::replace(&mut revival.keeps_any, true) {
            true => Ok(()),
            false => self.tell_revival(&revival),
        }
    }

    /// Has other facts kept in the place of the one before. Errors: it is not kept.
    pub(crate) fn keep_facts(&self, dev: &str, facts: BorrowedFd<'_>) -> Result<()> {
        self.ask_first(KeepRequest::Facts(dev.to_owned()), Some(facts)).map(drop)
    }

    /// A mount has these options now, and is kept with them.
    pub(crate) fn keep_options(&self, dev: &str, options: &MountOptions) {
        let request = KeepRequest::Options(dev.to_owned(), Box::new(options.clone()));
        if let Err(error) = self.ask_first(request, None) {
            tracing::debug!("it is not kept: {error}");
        }
    }

    /// A mount has ended, and is kept no more.
    pub(crate) fn release(&self, dev: &str) {
        if !self.0.revival.lock().keeps_any {
            return;
        }
        // without a helper, nothing is kept
        let _ = self.ask_first(KeepRequest::Release(dev.to_owned()), None);
    }

    /// Asks the first one. Errors: its own; `Missing` if there is none.
    fn ask_first(&self, request: KeepRequest, fd: Option<BorrowedFd<'_>>) -> Result<(HelperAnswer, Option<OwnedFd>)> {
        let Origin::Process(first) = &self.0.origin else {
            return Err(Error::new(Kind::Missing, "there is no keeper"));
        };
        let asked = first.lock().ask_with(&HelperRequest::Keep(request), fd, None)?;
        match asked.ok_or_else(ended_early)? {
            (HelperAnswer::Failed { errno, what, cause }, _) => Err(failure(errno, what, cause)),
            answer => Ok(answer),
        }
    }

    pub(crate) fn attach(&self, options: &MountOptions) -> Result<Attached> {
        match self.ask(&HelperRequest::Attach(options.clone()), None)? {
            (HelperAnswer::Attached { point, dev }, Some(connection)) => {
                Ok(Attached { connection, point: point.into(), dev })
            }
            (HelperAnswer::Attached { point, dev }, None) => {
                self.detach(Path::new(&point), &dev, Unmount::Lazy)?;
                Err(Error::new(Kind::Io, "no more files can be opened (ulimit -n)"))
            }
            _ => Err(makes_no_sense()),
        }
    }

    pub(crate) fn set_flags(&self, point: &Path, options: &MountOptions) -> Result<()> {
        self.ask(&HelperRequest::SetFlags { point: point.into(), options: options.clone() }, None).map(drop)
    }

    /// Unmounts device `dev` from `point`. That it is not mounted there any more is no error; `Busy` if it is in use,
    /// or covered.
    pub(crate) fn detach(&self, point: &Path, dev: &str, how: Unmount) -> Result<()> {
        self.ask(&HelperRequest::Detach { point: point.into(), dev: dev.to_owned(), how }, None).map(drop)
    }

    /// The device number of what is found at a path. Errors: nothing is, or it does not answer.
    pub(crate) fn device_at(&self, point: &Path) -> Result<String> {
        match self.ask(&HelperRequest::Look(point.into()), Some(LOOK_MAX))? {
            (HelperAnswer::Device(dev), _) => Ok(dev),
            _ => Err(makes_no_sense()),
        }
    }

    /// Has a helper go into the mount of device `dev` at `point`; returns how many files it could not reach. Errors: its own;
    /// `Interrupted` if it takes longer than `limit`.
    pub(crate) fn visit(&self, point: &Path, dev: &str, visit: MountVisit, limit: Duration) -> Result<usize> {
        self.count(&HelperRequest::Visit { point: point.into(), dev: dev.to_owned(), visit }, Some(limit))
    }

    /// Whether a helper may go to files of a mount: this process may have fewer rights.
    pub(crate) fn may_visit(&self) -> bool {
        self.count(&HelperRequest::MayVisit, Some(LOOK_MAX)).is_ok_and(|may| may > 0)
    }

    fn count(&self, request: &HelperRequest, limit: Option<Duration>) -> Result<usize> {
        match self.ask(request, limit)? {
            (HelperAnswer::Count(count), _) => Ok(count),
            _ => Err(makes_no_sense()),
        }
    }

    /// Sends messages to the kernel, on this connection of a mount. Errors: there is no helper.
    pub(crate) fn tell_kernel(&self, connection: BorrowedFd<'_>, messages: &[Vec<u8>]) -> Result<()> {
        for some in messages.chunks(MESSAGES_AT_ONCE) {
            self.ask_with(&HelperRequest::Tell(some.to_vec()), Some(connection), None)?;
        }
        Ok(())
    }

    /// Has a helper do it. Errors: its own; `Interrupted` if it takes longer than `limit`.
    fn ask(&self, request: &HelperRequest, limit: Option<Duration>) -> Result<(HelperAnswer, Option<OwnedFd>)> {
        self.ask_with(request, None, limit)
    }

    /// The same; a descriptor comes along.
    fn ask_with(
        &self,
        request: &HelperRequest,
        fd: Option<BorrowedFd<'_>>,
        limit: Option<Duration>,
    ) -> Result<(HelperAnswer, Option<OwnedFd>)> {
        let idle = self.idle().take();
        let asked = idle.map(|running| running.ask_with(request, fd, limit).map(|answer| answer.zip(Some(running))));
        let ((answer, fd), running) = match asked.transpose()?.flatten() {
            Some(answered) => answered,
            None => {
                let running = self.0.origin.start()?;
                (running.ask_with(request, fd, limit)?.ok_or_else(ended_early)?, running)
            }
        };
        self.idle().get_or_insert(running);
        match answer {
            HelperAnswer::Failed { errno, what, cause } => Err(failure(errno, what, cause)),
            answer => Ok((answer, fd)),
        }
    }

    fn idle(&self) -> MutexGuard<'_, Option<Running>> {
        self.0.idle.lock()
    }
}

impl Origin {
    fn start(&self) -> Result<Running> {
        match self {
            Origin::Program(program, args) => Running::start(program, args),
            Origin::Process(first) => Running::another(first).map_err(|error| match error.kind() {
                Kind::Missing => Error::new(Kind::Missing, NO_HELPER).with_source(error),
                _ => error,
            }),
        }
    }
}

impl Running {
    fn start(program: &Path, args: &[OsString]) -> Result<Running> {
        let (process, socket) = spawn(program, args)?;
        Ok(Running { process: Process::Own(process), socket })
    }

    /// Has it start another one.
    fn another(first: &Arc<Mutex<Running>>) -> Result<Running> {
        match first.lock().ask(&HelperRequest::Another, None)?.ok_or_else(ended_early)? {
            (HelperAnswer::Started { pid }, Some(socket)) => {
                Ok(Running { process: Process::Elsewhere(pid, Arc::downgrade(first)), socket })
            }
            (HelperAnswer::Failed { errno, what, cause }, _) => Err(failure(errno, what, cause)),
            _ => Err(makes_no_sense()),
        }
    }

    /// Has it do it; `None` if it was killed before it looked at the request, so that another may be asked.
    fn ask(&self, request: &HelperRequest, limit: Option<Duration>) -> Result<Option<(HelperAnswer, Option<OwnedFd>)>> {
        self.ask_with(request, None, limit)
    }

    /// The same; a descriptor comes along.
    fn ask_with(
        &self,
        request: &HelperRequest,
        fd: Option<BorrowedFd<'_>>,
        limit: Option<Duration>,
    ) -> Result<Option<(HelperAnswer, Option<OwnedFd>)>> {
        let seconds = limit.unwrap_or_default().as_secs().try_into().unwrap_or(i64::MAX);
        socket::setsockopt(&self.socket, socket::sockopt::ReceiveTimeout, &TimeVal::new(seconds, 0))
            .map_err(std::io::Error::from)?;
        let sent = send(self.socket.as_fd(), request, fd);
        let received: Result<Option<_>> = sent.and_then(|()| receive(self.socket.as_fd()));
        match received {
            // it takes no message, or its end was closed with this one unread
            Err(error) if matches!(point::os_error(&error), Some(libc::EPIPE | libc::ECONNRESET)) => Ok(None),
            received => received?.ok_or_else(ended_early).map(Some),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // it is idle, or not wanted any more; it may be where not even this ends it at once
        let process = match &mut self.process {
            Process::Own(process) => process,
            Process::Parent => return,
            Process::Elsewhere(pid, first) => {
                // without the first one, it ends when its socket does
                if let Some(Err(error)) = first.upgrade().map(|first| first.lock().ask(&HelperRequest::End(*pid), None))
                {
                    tracing::debug!("the mount helper: {error}");
                }
                return;
            }
        };
        let killed = process.kill();
        let id = Pid::from_raw(process.id().cast_signed());
        let waiting = std::thread::Builder::new().name("reaper".to_owned()).spawn(move || waitpid(id, None));
        if let Err(error) = killed.and(waiting.map(drop)) {
            tracing::debug!("the mount helper: {error}");
        }
    }
}

/// Starts a helper's process; with it comes our end of its socket.
fn spawn(program: &Path, args: &[OsString]) -> Result<(Child, OwnedFd)> {
    let (socket, its) = socket_pair()?;
    let mut command = Command::new(program);
    // it must keep nobody waiting for the end of our output, nor stand in a mount
    command.arg0("cenote").args(args).current_dir("/");
    let process = command.stdin(its).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let process = process.map_err(|e| Error::new(Kind::Missing, "cannot start the mount helper").with_source(e))?;
    Ok((process, socket))
}

impl HelperAnswer {
    fn failed(error: &Error) -> HelperAnswer {
        HelperAnswer::Failed { errno: error.errno(), what: error.what().to_owned(), cause: point::os_error(error) }
    }
}

/// The error that a helper told of.
fn failure(errno: i32, what: String, cause: Option<i32>) -> Error {
    let kind = if errno == libc::ENOTDIR { Kind::NotDirectory } else { Kind::of_errno(errno) };
    let error = Error::new(kind, what);
    match cause {
        Some(cause) => error.with_source(std::io::Error::from_raw_os_error(cause)),
        None => error,
    }
}

fn ended_early() -> Error {
    Error::new(Kind::Missing, "the mount helper ended early")
}
