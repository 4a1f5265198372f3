//! The folder of a lab, and what a lab that was killed has left in it: pools, mounts, files.
//!
//! ```text
//!   OUT/journal.jsonl  report.html  report.json  cells.csv      stay
//!   OUT/work/run       sockets of the pool's process
//!   OUT/work/qemu      the socket of an initiator
//!   OUT/work/state     its host's list of pools                 go when the lab ends, or begins again
//!   OUT/work/devices   emulated devices, mounted
//!   OUT/work/pool      the pool, mounted
//!   OUT/work/tree      files to copy
//! ```

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::Pid;

use crate::tools;

/// The name of the pools.
pub const POOL: &str = "cenotelab";
/// The volume of a setting that has one.
pub const VOLUME: &str = "cenotelab/volume";
/// The variable of the environment that tells this program where sockets of pools are.
const RUN_VARIABLE: &str = "CENOTE_RUN";
/// Lines of an error that are told.
const ERROR_LINES: usize = 3;
/// How long a process may take to end that was killed.
const END_TIME: Duration = Duration::from_secs(30);
const POLL_TIME: Duration = Duration::from_millis(20);

/// See the top of the file.
pub struct LabPlace {
    /// Absolute.
    folder: PathBuf,
}

impl LabPlace {
    /// Makes the folder if there is none. Errors, for the user: it cannot be used.
    pub fn make(path: &Path) -> Result<LabPlace, String> {
        let failed = |e: io::Error| format!("{}: {e}", path.display());
        std::fs::create_dir_all(path).map_err(failed)?;
        let folder = path.canonicalize().map_err(failed)?;
        if folder.to_str().is_none_or(|text| text.contains(char::is_control)) {
            return Err(format!("{}: the path is not UTF-8, or has control characters", path.display()));
        }
        Ok(LabPlace { folder })
    }

    /// Which cells are finished.
    pub fn journal(&self) -> PathBuf {
        self.folder.join("journal.jsonl")
    }

    /// The page.
    pub fn report(&self) -> PathBuf {
        self.file("report.html")
    }

    /// A file that stays.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Where emulated devices are.
    pub fn devices(&self) -> PathBuf {
        self.work().join("devices")
    }

    /// Where the pool is mounted.
    pub fn mountpoint(&self) -> PathBuf {
        self.work().join("pool")
    }

    /// Files that are copied into pools.
    pub fn tree(&self) -> PathBuf {
        self.work().join("tree")
    }

    fn work(&self) -> PathBuf {
        self.folder.join("work")
    }

    /// Sockets of the pool's process.
    pub fn run(&self) -> PathBuf {
        self.work().join("run")
    }

    /// The socket of an initiator.
    pub fn initiator(&self) -> PathBuf {
        self.work().join("qemu")
    }

    /// Makes the folders of a lab at work.
    pub fn prepare(&self) -> Result<(), String> {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        for folder in [self.run(), self.work().join("state"), self.devices(), self.mountpoint()] {
            builder.create(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        Ok(())
    }

    /// Runs this program as `zpool`, `zfs` or itself, for the pools of the lab only. Errors, for the user: the first
    /// lines of its standard error, without warnings.
    pub fn cenote(&self, words: &[&str]) -> Result<String, String> {
        let program = std::env::current_exe().map_err(|e| format!("this program: {e}"))?;
        let mut command = Command::new(program);
        command.args(words).env(RUN_VARIABLE, self.run()).env("CENOTE_STATE", self.work().join("state"));
        // programs of this host are not for pools of the lab
        command.env("CENOTE_ZED_DIR", self.work().join("zed.d")).env("CENOTE_PARAMETERS", self.parameters());
        // SIGINT of a terminal is for the lab, which ends its pools in order
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let done = command.stdin(Stdio::null()).output().map_err(|e| format!("{}: {e}", words[0]))?;
        if done.status.success() {
            return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&done.stderr);
        let lines = said.lines().filter(|line| !line.starts_with("Warning: ")).take(ERROR_LINES);
        Err(format!("{}: {}", words.join(" "), lines.collect::<Vec<_>>().join(" ")))
    }

    /// Sets a tunable of pools that are made or imported from now on. Errors, for the user: it cannot be written.
    pub fn set_parameter(&self, name: &str, value: u64) -> Result<(), String> {
        let folder = self.parameters();
        let written =
            std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(folder.join(name), value.to_string()));
        written.map_err(|e| format!("{}: {e}", folder.display()))
    }

    /// Tunables are as by default again. Errors, for the user: one stays.
    pub fn forget_parameters(&self) -> Result<(), String> {
        match std::fs::remove_dir_all(self.parameters()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(format!("{}: {e}", self.parameters().display())),
            _ => Ok(()),
        }
    }

    fn parameters(&self) -> PathBuf {
        self.work().join("parameters")
    }

    /// The process of the pool.
    pub fn pool_process(&self) -> Option<u32> {
        // through the folder, because the names of sockets are short
        let folder = File::open(self.run()).ok()?;
        let socket = UnixStream::connect(format!("/proc/self/fd/{}/{POOL}.sock", folder.as_raw_fd())).ok()?;
        let peer = getsockopt(&socket, PeerCredentials).ok()?;
        u32::try_from(peer.pid()).ok().filter(|pid| *pid > 0)
    }

    /// Ends pools and mounts that are left, and removes files. Errors, for the user: something stays.
    pub fn clear(&self) -> Result<(), String> {
        self.end_pool()?;
        self.kill_left()?;
        let work = self.work();
        for at in mounts_below(&work) {
            unmount(&at);
        }
        if let Some(at) = mounts_below(&work).first() {
            return Err(format!("{}: it is still mounted", at.display()));
        }
        match std::fs::remove_dir_all(&work) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(format!("{}: {e}", work.display())),
            _ => Ok(()),
        }
    }

    /// Destroys the pool, if there is one. Errors, for the user: it stays.
    pub fn end_pool(&self) -> Result<(), String> {
        if self.pool_process().is_none() {
            return Ok(());
        }
        // its devices may have gone
        self.cenote(&["zpool", "destroy", "-f", POOL]).map(drop).or_else(|_| self.kill_left())
    }

    /// Ends commands and pools of this folder by force: those that cannot end, and those that a lab that was killed has begun,
    /// and that have no socket yet: they would take the devices of this one for theirs. Errors, for the user: one does not end.
    fn kill_left(&self) -> Result<(), String> {
        let began = Instant::now();
        loop {
            let left = self.processes();
            let Some(first) = left.first() else { return Ok(()) };
            if began.elapsed() > END_TIME {
                return Err(format!("the process {first} of a lab that was killed does not end"));
            }
            for process in left {
                let _ = kill(process, Signal::SIGKILL);
            }
            std::thread::sleep(POLL_TIME);
        }
    }

    /// The variable in the environment of processes of this folder, by which they are found when a lab was killed.
    pub fn mark(&self) -> (&'static str, PathBuf) {
        (RUN_VARIABLE, self.run())
    }

    /// Processes whose pools are those of this folder, as [`LabPlace::cenote`] has told them.
    fn processes(&self) -> Vec<Pid> {
        let mark = [RUN_VARIABLE.as_bytes(), b"=", self.run().as_os_str().as_bytes()].concat();
        let is_marked = |pid: &Pid| {
            // one that has ended has none
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark)
        };
        let found = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = found.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw));
        pids.filter(|pid| *pid != Pid::this()).filter(is_marked).collect()
    }
}

/// What is mounted below a folder, the last first.
fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    let points = fuse::all_mounts().unwrap_or_default().into_iter().rev().map(|mount| mount.point);
    points.filter(|point| point.starts_with(folder)).collect()
}

/// Takes a mount away, whatever uses it; one that stays is found afterwards.
fn unmount(at: &Path) {
    if umount2(at, MntFlags::MNT_DETACH).is_err() {
        let _ = tools::ask("fusermount3", &["-u", "-z", "--", &at.to_string_lossy()], END_TIME);
    }
}
