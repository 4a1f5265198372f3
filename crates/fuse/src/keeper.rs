//! Keeping what must outlive the process that serves mounts: the first helper has it, and starts another process when
//! that one dies.
//!
//! ```text
//!   the pool's process                      its first helper
//!     mounts     ── Keep, the connection ──▶  has it, too
//!                ── Facts, Memory ───────────▶  what is not on disk yet
//!                ── Plan ──────────────────▶  how another one is started, after Begin
//!     kill -9                                 end of file: waits until it is dead, starts another one
//!     another    ── Take ──────────────────▶
//!                ◀── the connections, the facts, the claim
//!     serves the mounts that programs have used all the time
//!     ends in order ── Retire ─────────────▶  lets go
//! ```
//!
//! The process may be taken over by an enemy, as it reads disks; its helper has all rights. So what the next process is told of
//! this host (`Begin`) is taken once, before the first disk is opened, and the only program that is started beside this one
//! is that of a command `upgrade` of the same user, which runs just then.
//!
//! A connection that nobody keeps is closed by the kernel: programs get ENOTCONN. So whatever goes wrong here ends as it
//! would without a keeper, and nothing waits for ever: in the place of a process that dies too often in a minute one is started
//! that opens no disk, and fails every request, until somebody clears the pool.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Error, FoundFacts, Kind, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, geteuid, getppid, pidfd_open};
use serde::{Deserialize, Serialize};
use zpl::Unsettled;

use crate::device;
use crate::messages::socket_pair;
use crate::options::MountOptions;

/// In that time deaths are counted.
const DEATHS_TIME: Duration = Duration::from_secs(60);
/// How long a process may take to be gone whose socket is closed.
const DYING_TIME: Duration = Duration::from_secs(20);

/// A mount as it is handed over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeptMount {
    /// As it was mounted.
    pub(crate) options: MountOptions,
    /// Absolute, without links.
    pub(crate) point: PathBuf,
    /// Device number, `major:minor`.
    pub(crate) dev: String,
    /// What was agreed on with the kernel: flags of INIT.
    pub(crate) flags: u64,
}

/// How another process is started, beside what was said before the process gave up its rights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevivalPlan {
    /// The last argument of the program.
    pub pool: String,
    /// So many deaths within a minute, and no other one is started.
    pub deaths_max: u64,
}

/// What a keeper is given beside mounts.
#[derive(Debug)]
pub struct KeptFiles {
    /// What the place of the process is claimed with.
    pub claim: OwnedFd,
    /// Where it listens for commands: those that come while there is no process wait for the next one.
    pub listener: OwnedFd,
    /// Where is said what goes wrong.
    pub log: OwnedFd,
}

/// What the process before left to this one.
#[derive(Default)]
pub struct Inheritance {
    /// Its mounts, in the order in which they were made.
    pub mounts: Vec<InheritedMount>,
    /// What it claimed its place with.
    pub claim: Option<OwnedFd>,
    /// Where it listened for commands.
    pub listener: Option<OwnedFd>,
    /// What is noted of its volumes, if it had some. Errors: that cannot be read.
    pub volumes: Option<Result<FoundFacts>>,
    /// Its log in memory.
    pub memory: Option<OwnedFd>,
}

/// A mount that the process before served.
pub struct InheritedMount {
    pub(crate) kept: KeptMount,
    pub(crate) connection: OwnedFd,
    /// Errors: they cannot be read.
    pub(crate) facts: Result<FoundFacts>,
}

impl InheritedMount {
    /// The dataset, and how it is mounted.
    pub fn options(&self) -> &MountOptions {
        &self.kept.options
    }

    /// Whether files may have been lost that the kernel knows, as they were in no group yet, nor in the log.
    pub fn may_have_lost_files(&self) -> bool {
        let has_lost =
            |facts: &FoundFacts| facts.is_incomplete || Unsettled::lost(facts).iter().any(|lost| lost.born.is_some());
        // where nobody knows, it may be so
        self.facts.as_ref().map_or(true, has_lost)
    }
}

/// What is asked of a keeper.
#[derive(Serialize, Deserialize)]
pub(crate) enum KeepRequest {
    /// Its connection comes along.
    Mount(Box<KeptMount>),
    /// That of the mount of this device comes along, in the place of the one before.
    Facts(String),
    /// The mount of this device has these options now.
    Options(String, Box<MountOptions>),
    /// The mount of this device has ended.
    Release(String),
    /// What is noted of volumes comes along, in the place of what did before.
    Volumes,
    /// The log in memory comes along.
    Memory,
    /// It comes along.
    Claim,
    /// It comes along.
    Listener,
    /// The file comes along where is said what goes wrong.
    Log,
    /// What another process is told first: once, by a process that has opened no device yet.
    Begin(String),
    Plan(RevivalPlan),
    /// Whose program is started next: that of a process of the same user that runs the command `upgrade`.
    Next(Option<u32>),
    /// Deaths are forgotten: another process is to serve the mounts, after the one that stands in for it.
    Again,
    /// The process ends in order.
    Retire,
    /// The thing of that number is wanted, for the process after.
    Take(usize),
}

/// One thing that is handed over: a file descriptor comes along.
#[derive(Serialize, Deserialize)]
pub(crate) enum KeptThing {
    Mount(Box<KeptMount>),
    /// Of the mount before.
    Facts,
    Volumes,
    Memory,
    Claim,
    Listener,
}

/// What a helper keeps.
pub(crate) struct Keeper {
    mounts: Vec<KeptByHelper>,
    /// What is noted of volumes, if programs may use some.
    volumes: Option<OwnedFd>,
    /// The log in memory.
    memory: Option<OwnedFd>,
    claim: Option<OwnedFd>,
    listener: Option<OwnedFd>,
    log: Option<File>,
    begin: Option<String>,
    plan: Option<RevivalPlan>,
    /// The program that is started next.
    next: Option<Program>,
    /// The programs of the process that is there, and of the one before, until the former serves the mounts.
    programs: [Program; 2],
    process: ServingProcess,
    deaths: Vec<Instant>,
    /// The process only stands in: every request of the mounts fails.
    stands_in: bool,
}

struct KeptByHelper {
    mount: KeptMount,
    connection: OwnedFd,
    facts: Option<OwnedFd>,
}

/// A program that serves pools.
#[derive(Clone)]
enum Program {
    /// That of this process, whatever has become of its file.
    Own,
    /// One that is held open.
    Held(Arc<File>),
}

/// The process that serves the mounts.
enum ServingProcess {
    /// The one that started this one, if its end can be waited for.
    Parent(Option<OwnedFd>),
    /// One that this one has started.
    Child(Child),
}

impl Keeper {
    /// Of the process that has started this one.
    pub(crate) fn new() -> Keeper {
        let parent = getppid().and_then(|parent| pidfd_open(parent, PidfdFlags::empty()).ok());
        let process = ServingProcess::Parent(parent);
        Keeper {
            mounts: Vec::new(),
            volumes: None,
            memory: None,
            claim: None,
            listener: None,
            log: None,
            begin: None,
            plan: None,
            next: None,
            programs: [Program::Own, Program::Own],
            process,
            deaths: Vec::new(),
            stands_in: false,
        }
    }

    /// Does what is asked for. Errors: a descriptor that has to come along did not.
    pub(crate) fn answer(&mut self, request: KeepRequest, fd: Option<OwnedFd>) -> Result<Option<(KeptThing, OwnedFd)>> {
        let with_fd = || fd.ok_or_else(|| Error::corrupt("no descriptor came along"));
        match request {
            KeepRequest::Mount(mount) => {
                let connection = with_fd()?;
                self.release(&mount.dev);
                self.mounts.push(KeptByHelper { mount: *mount, connection, facts: None });
            }
            KeepRequest::Facts(dev) => {
                let facts = with_fd()?;
                let mount = self.mounts.iter_mut().find(|kept| kept.mount.dev == dev);
                mount.ok_or_else(|| Error::new(Kind::NotFound, "that mount is not kept"))?.facts = Some(facts);
            }
            KeepRequest::Options(dev, options) => {
                let mounts = self.mounts.iter_mut().filter(|kept| kept.mount.dev == dev);
                mounts.for_each(|kept| kept.mount.options = (*options).clone());
            }
            KeepRequest::Release(dev) => self.release(&dev),
            KeepRequest::Volumes => self.volumes = Some(with_fd()?),
            KeepRequest::Memory => self.memory = Some(with_fd()?),
            KeepRequest::Claim => self.claim = Some(with_fd()?),
            KeepRequest::Listener => self.listener = Some(with_fd()?),
            KeepRequest::Plan(plan) => {
                self.plan = Some(plan);
                // it serves the mounts: its program is good
                self.programs[1] = self.programs[0].clone();
            }
            KeepRequest::Log => self.log = Some(with_fd()?.into()),
            KeepRequest::Begin(begin) => {
                self.begin.get_or_insert(begin);
            }
            KeepRequest::Next(process) => self.next = process.map(Program::of_upgrade).transpose()?,
            KeepRequest::Again => {
                self.deaths.clear();
                self.stands_in = false;
                // that the one which stands in ends is no death
                self.next = Some(self.programs[1].clone());
            }
            KeepRequest::Retire => {
                (self.plan, self.claim, self.listener, self.log) = (None, None, None, None);
                (self.volumes, self.memory) = (None, None);
            }
            KeepRequest::Take(number) => {
                let thing = self.thing(number).map(|(thing, fd)| Ok((thing, fd.try_clone_to_owned()?)));
                return thing.transpose();
            }
        }
        Ok(None)
    }

    /// The things that are handed over, by number: a mount, its facts, ..., those of volumes, the log in memory, the claim, where
    /// it is listened.
    fn thing(&self, number: usize) -> Option<(KeptThing, BorrowedFd<'_>)> {
        let whole = self.mounts.iter().filter_map(|kept| Some((kept, kept.facts.as_ref()?)));
        let mounts = whole.flat_map(|(kept, facts)| {
            let mount = KeptThing::Mount(Box::new(kept.mount.clone()));
            [(mount, kept.connection.as_fd()), (KeptThing::Facts, facts.as_fd())]
        });
        let claim = self.claim.iter().map(|claim| (KeptThing::Claim, claim.as_fd()));
        let listener = self.listener.iter().map(|listener| (KeptThing::Listener, listener.as_fd()));
        let volumes = self.volumes.iter().map(|volumes| (KeptThing::Volumes, volumes.as_fd()));
        let memory = self.memory.iter().map(|memory| (KeptThing::Memory, memory.as_fd()));
        mounts.chain(volumes).chain(memory).chain(claim).chain(listener).nth(number)
    }

    fn release(&mut self, dev: &str) {
        self.mounts.retain(|kept| kept.mount.dev != dev);
    }

    /// The socket to the process was closed: starts another one, if that is wanted. The socket to that, or `None` if
    /// everything is let go.
    pub(crate) fn revive(&mut self) -> Option<OwnedFd> {
        let is_wanted = !self.mounts.is_empty() || self.volumes.is_some();
        let (begin, plan) = self.begin.clone().zip(self.plan.clone()).filter(|_| is_wanted)?;
        // it has locks, and may be writing
        if !self.process.wait_for_end() {
            self.say("the pool's process does not end, as the kernel waits for it: its mounts end");
            self.abort();
            return None;
        }
        self.deaths.retain(|death| death.elapsed() < DEATHS_TIME);
        let program = match self.next.take() {
            Some(program) => program,
            None => {
                self.deaths.push(Instant::now());
                self.programs[1].clone()
            }
        };
        self.programs[0] = program.clone();
        let may_not_die = self.deaths.len() as u64 >= plan.deaths_max;
        if may_not_die && (self.stands_in || plan.deaths_max == 0) {
            self.say("the pool's process has died, and its mounts end: the pool is to be imported again");
            return None;
        }
        self.stands_in = may_not_die;
        let how = if may_not_die { "--stand-in" } else { "--revive" };
        let args = ["serve", how, &begin, &plan.pool];
        match self.start(&program, &args).or_else(|_| self.start(&Program::Own, &args)) {
            Ok((child, socket)) => {
                self.process = ServingProcess::Child(child);
                Some(socket)
            }
            Err(error) => {
                self.say(&format!("no other process can be started for the pool, and its mounts end: {error}"));
                None
            }
        }
    }

    fn start(&self, program: &Program, args: &[&str]) -> Result<(Child, OwnedFd)> {
        let (socket, its) = socket_pair()?;
        let mut command = Command::new(program.path());
        command.arg0("cenote").args(args).current_dir("/").stdin(its).stdout(Stdio::null());
        command.stderr(self.log.as_ref().map_or(Ok(Stdio::null()), |log| log.try_clone().map(Stdio::from))?);
        Ok((command.spawn()?, socket))
    }

    /// Has the kernel end the mounts, also if another process has a connection yet.
    fn abort(&self) {
        for kept in &self.mounts {
            // without that folder, they end when the last connection is closed
            let _ = std::fs::write(device::abort_path(&kept.mount.dev), "1");
        }
    }

    fn say(&self, what: &str) {
        // where there is no log, nobody can be told
        let _ = self.log.as_ref().map(|mut log| log.write_all(format!("{what}\n").as_bytes()));
    }
}

impl ServingProcess {
    /// Waits until it is dead, and all that it had open is closed. False if that takes too long.
    fn wait_for_end(&mut self) -> bool {
        match self {
            ServingProcess::Parent(process) => process.as_ref().is_none_or(has_ended),
            ServingProcess::Child(child) => {
                // it may have closed its socket only
                let _ = child.kill();
                let pid = Pid::from_raw(child.id().cast_signed());
                let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
                process.as_ref().is_none_or(has_ended) && child.wait().is_ok()
            }
        }
    }
}

/// Waits until a process is dead; false if that takes too long.
fn has_ended(process: &OwnedFd) -> bool {
    let limit = rustix::event::Timespec { tv_sec: DYING_TIME.as_secs() as i64, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&limit)) != Ok(0)
}

impl Program {
    /// That of a process of the same user that runs the command `upgrade`: what a pool's process may name, which an enemy may
    /// have taken over. Errors: there is no such process.
    fn of_upgrade(process: u32) -> Result<Program> {
        let place = PathBuf::from(format!("/proc/{process}"));
        // it is held before it is looked at: the number may be another process's at any time
        let program = File::options().read(true).custom_flags(libc::O_PATH).open(place.join("exe"))?;
        let args = std::fs::read(place.join("cmdline"))?;
        let is_upgrade = args.split(|byte| *byte == 0).nth(1) == Some(b"upgrade");
        if !is_upgrade || place.metadata()?.uid() != geteuid().as_raw() {
            return Err(Error::new(Kind::Permission, format!("process {process} is not the one that asks for it")));
        }
        Ok(Program::Held(Arc::new(program)))
    }

    fn path(&self) -> PathBuf {
        match self {
            Program::Own => PathBuf::from("/proc/self/exe"),
            Program::Held(file) => PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())),
        }
    }
}
