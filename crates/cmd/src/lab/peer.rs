//! File systems of Linux, and zfs-fuse, beside ours: made on the same device, and mounted at the same place.
//!
//! A file becomes a loop device of its mount alone, which goes with the mount. So a lab that was killed leaves a mount below
//! its own folder, and nothing else, and the next one takes it away.

use std::fs::{File, read_to_string};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};

use super::place::POOL;
use super::zfs_fuse::{self, ZfsFuseDaemon};
use crate::tools;

/// What makes loop devices.
const LOOP_CONTROL: &str = "/dev/loop-control";
/// How long a mount may be busy, with requests that nobody waits for.
const BUSY_TIME: Duration = Duration::from_secs(10);
/// How long programs may take that answer at once.
const ANSWER_TIME: Duration = Duration::from_secs(30);
const POLL_TIME: Duration = Duration::from_millis(20);

/// A file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerKind {
    Ext4,
    Xfs,
    Btrfs,
    ZfsFuse,
}

impl PeerKind {
    /// As mount(8) calls it.
    fn name(self) -> &'static str {
        match self {
            PeerKind::Ext4 => "ext4",
            PeerKind::Xfs => "xfs",
            PeerKind::Btrfs => "btrfs",
            PeerKind::ZfsFuse => "zfs-fuse",
        }
    }

    /// The program that makes it, how it does so on whatever there is, and its package.
    fn mkfs(self) -> (&'static str, &'static str, &'static str) {
        match self {
            PeerKind::Ext4 => ("mkfs.ext4", "-F", "e2fsprogs"),
            PeerKind::Xfs => ("mkfs.xfs", "-f", "xfsprogs"),
            PeerKind::Btrfs => ("mkfs.btrfs", "-f", "btrfs-progs"),
            PeerKind::ZfsFuse => ("zfs-fuse", "-f", "zfs-fuse"),
        }
    }
}

/// A file system, and options of its mount.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub kind: PeerKind,
    /// With a comma before each.
    pub options: &'static str,
}

impl Peer {
    /// The commands that make it of a device, and mount it.
    pub fn commands(&self, device: &Path, at: &Path) -> [Vec<String>; 2] {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        if self.kind == PeerKind::ZfsFuse {
            return zfs_fuse_commands(&text(device), &text(device.parent().unwrap_or(device)), &text(at));
        }
        let (mkfs, force, _) = self.kind.mkfs();
        let make = [mkfs, "-q", force, "-L", POOL].map(str::to_owned).into_iter().chain([text(device)]).collect();
        let shared = if is_file(device) { "loop," } else { "" };
        let options = format!("{shared}noatime,nosuid,nodev{}", self.options);
        let mount = ["mount", "-t", self.kind.name(), "-o", &options].map(str::to_owned);
        [make, mount.into_iter().chain([text(device), text(at)]).collect()]
    }

    /// Errors, for the user: what is missing here for it on a device.
    pub fn check(&self, device: &Path) -> Result<(), String> {
        if self.kind == PeerKind::ZfsFuse {
            return zfs_fuse::check();
        }
        let (mkfs, _, package) = self.kind.mkfs();
        for (program, package) in [(mkfs, package), ("mount", "mount"), ("losetup", "mount"), ("wipefs", "util-linux")]
        {
            if !tools::is_installed(program) {
                return Err(format!("{program} is not installed (package {package})"));
            }
        }
        let name = self.kind.name();
        if !kernel_knows(name) {
            return Err(format!("this kernel has no {name}"));
        }
        if !nix::unistd::geteuid().is_root() {
            return Err("it is mounted by root only".to_owned());
        }
        if is_file(device) && !Path::new(LOOP_CONTROL).exists() {
            return Err(format!("there are no loop devices here: no {LOOP_CONTROL}"));
        }
        Ok(())
    }
}

/// The commands that make a pool of zfs-fuse, which is mounted then, and that import it.
fn zfs_fuse_commands(device: &str, folder: &str, at: &str) -> [Vec<String>; 2] {
    let zpool = zfs_fuse::zpool().to_string_lossy().into_owned();
    let words = |words: &[&str]| [&zpool[..]].iter().chain(words).map(|word| (*word).to_owned()).collect();
    let make = ["create", "-f", "-o", "cachefile=none", "-O", "atime=off", "-m", at, POOL, device];
    [words(&make), words(&["import", "-o", "cachefile=none", "-d", folder, POOL])]
}

/// Whether a file system is in the kernel, or in a module of it.
fn kernel_knows(name: &str) -> bool {
    let known = read_to_string("/proc/filesystems").unwrap_or_default();
    let release = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let modules = read_to_string(Path::new("/lib/modules").join(release.trim()).join("modules.dep"));
    known.lines().any(|line| line.split('\t').next_back() == Some(name))
        || modules.is_ok_and(|modules| modules.contains(&format!("/{name}.ko")))
}

fn is_file(device: &Path) -> bool {
    std::fs::metadata(device).is_ok_and(|found| found.is_file())
}

/// A file system that is mounted. It stays so until it is ended.
pub struct PeerMount {
    kind: PeerKind,
    /// Of mount(8), or an import.
    mount: Vec<String>,
    /// That of zfs-fuse.
    daemon: Option<ZfsFuseDaemon>,
    device: PathBuf,
    at: PathBuf,
}

impl PeerMount {
    /// Makes the file system and mounts it, as long as `goes_on` says so; a daemon of it has `mark` in its environment.
    /// Errors, for the user: it cannot be made; then nothing of it stays.
    pub fn make(
        peer: Peer,
        device: &Path,
        at: &Path,
        mark: (&str, PathBuf),
        goes_on: &dyn Fn() -> bool,
    ) -> Result<PeerMount, String> {
        let [make, mount] = peer.commands(device, at);
        let is_pool = peer.kind == PeerKind::ZfsFuse;
        let daemon = if is_pool { Some(ZfsFuseDaemon::start(mark, goes_on)?) } else { None };
        let made = PeerMount { kind: peer.kind, mount, daemon, device: device.to_owned(), at: at.to_owned() };
        // a pool is mounted when it is made
        match run(&make, goes_on).and_then(|_| if is_pool { Ok(()) } else { made.mount(goes_on) }) {
            Ok(()) => Ok(made),
            Err(why) => {
                let _ = made.end();
                Err(why)
            }
        }
    }

    fn mount(&self, goes_on: &dyn Fn() -> bool) -> Result<(), String> {
        run(&self.mount, goes_on)?;
        if !is_file(&self.device) || self.daemon.is_some() {
            return Ok(());
        }
        let file = self.device.to_string_lossy();
        let found = run(&["losetup", "-n", "-O", "NAME", "-j", &file].map(str::to_owned), goes_on)?;
        // requests go to the file as they come, several at a time, and nothing of it is kept in memory
        for name in found.lines().map(str::trim) {
            run(&["losetup", "--direct-io=on", name].map(str::to_owned), goes_on)?;
        }
        Ok(())
    }

    /// All that was written is on the device. Errors, for the user: of the file system.
    pub fn sync(&self) -> Result<(), String> {
        let synced = File::open(&self.at).and_then(|folder| Ok(rustix::fs::syncfs(folder)?));
        synced.map_err(|e| format!("{}: {e}", self.at.display()))
    }

    /// Nothing of it is cached any more. Errors, for the user: of the file system.
    pub fn cool(&self, goes_on: &dyn Fn() -> bool) -> Result<(), String> {
        match &self.daemon {
            Some(_) => zpool(&["export", POOL])?,
            None => self.unmount()?,
        }
        self.mount(goes_on)
    }

    fn unmount(&self) -> Result<(), String> {
        let began = Instant::now();
        loop {
            match umount2(&self.at, MntFlags::empty()) {
                Err(Errno::EBUSY) if began.elapsed() < BUSY_TIME => std::thread::sleep(POLL_TIME),
                // it was not mounted
                Ok(()) | Err(Errno::EINVAL) => return Ok(()),
                Err(e) => return Err(format!("{}: {e}", self.at.display())),
            }
        }
    }

    /// Unmounts it; a disk has no file system then. Errors, for the user: it stays.
    pub fn end(&self) -> Result<(), String> {
        if self.kind == PeerKind::ZfsFuse {
            // there may be none; what is mounted still is told below
            let _ = zpool(&["destroy", "-f", POOL]);
        }
        self.unmount()?;
        if is_file(&self.device) { Ok(()) } else { wipe(&self.device) }
    }
}

/// Takes away a file system that a lab has left on a device. Errors, for the user: it stays.
pub fn wipe_left(device: &Path) -> Result<(), String> {
    let path = device.to_string_lossy();
    match tools::ask("blkid", &["-p", "-o", "value", "-s", "LABEL", "--", &path], ANSWER_TIME) {
        Ok(answer) if answer.text.trim() == POOL => wipe(device),
        _ => Ok(()),
    }
}

/// A command of the `zpool` of zfs-fuse. Errors, for the user: how it failed.
fn zpool(words: &[&str]) -> Result<(), String> {
    let began = Instant::now();
    let program = zfs_fuse::zpool().to_string_lossy().into_owned();
    let words: Vec<String> = [&program[..]].iter().chain(words).map(|word| (*word).to_owned()).collect();
    run(&words, &|| began.elapsed() < ANSWER_TIME).map(drop)
}

/// A device that is mounted keeps it.
fn wipe(device: &Path) -> Result<(), String> {
    let began = Instant::now();
    let words = ["wipefs", "-a", "-q", &device.to_string_lossy()].map(str::to_owned);
    run(&words, &|| began.elapsed() < ANSWER_TIME).map(drop)
}

/// Runs a program as long as `goes_on` says so, and tells what it printed. Errors, for the user: how it failed.
fn run(words: &[String], goes_on: &dyn Fn() -> bool) -> Result<String, String> {
    let line = || words.join(" ");
    let args: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
    let answer = tools::ask_while(&words[0], &args, goes_on).map_err(|e| format!("{}: {e}", line()))?;
    match answer.code {
        Some(0) => Ok(answer.text),
        _ => Err(format!("{}: it failed", line())),
    }
}
