//! zfs-fuse beside ours: its daemon, which a lab starts for itself, and the `zpool` beside that.
//!
//! One daemon at a time has the socket of zfs-fuse, so one that runs here already is left alone with its pools. The lab's own has
//! the mark of its folder in its environment, by which the next lab finds what was left of one that was killed.

use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::tools;

const DAEMON: &str = "zfs-fuse";
const PACKAGE: &str = "zfs-fuse";
/// Where its programs find it.
const SOCKET: &str = "/var/run/zfs/zfs_socket";
/// How long it may take until it answers, and until it has ended.
const START_TIME: Duration = Duration::from_secs(10);
const POLL_TIME: Duration = Duration::from_millis(20);

/// Errors, for the user: what is missing here for it.
pub fn check() -> Result<(), String> {
    if tools::find(DAEMON).is_none() {
        return Err(format!("{DAEMON} is not installed (package {PACKAGE})"));
    }
    if !zpool().is_file() {
        return Err(format!("{DAEMON} is here without the program for its pools (package {PACKAGE})"));
    }
    if !nix::unistd::geteuid().is_root() {
        return Err("it is mounted by root only".to_owned());
    }
    match UnixStream::connect(SOCKET) {
        Ok(_) => Err(format!("{DAEMON} runs here already, and is left alone")),
        Err(_) => Ok(()),
    }
}

/// Its own `zpool`, which is another than ours.
pub fn zpool() -> PathBuf {
    tools::find(DAEMON).unwrap_or_default().with_file_name("zpool")
}

/// The daemon of a lab.
pub struct ZfsFuseDaemon {
    process: Child,
}

impl ZfsFuseDaemon {
    /// Starts it, with a variable in its environment that marks it. Errors, for the user: it does not start.
    pub fn start((name, value): (&str, PathBuf), goes_on: &dyn Fn() -> bool) -> Result<ZfsFuseDaemon, String> {
        check()?;
        let failed = |e: std::io::Error| format!("{DAEMON}: {e}");
        if let Some(folder) = Path::new(SOCKET).parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let mut command = Command::new(tools::find(DAEMON).unwrap_or_default());
        command.args(["--no-daemon", "--no-kstat-mount"]).env(name, value).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut daemon = ZfsFuseDaemon { process: command.spawn().map_err(failed)? };
        let began = Instant::now();
        while UnixStream::connect(SOCKET).is_err() {
            let has_ended = daemon.process.try_wait().map_err(failed)?.is_some();
            if has_ended || began.elapsed() > START_TIME || !goes_on() {
                return Err(format!("{DAEMON} does not answer"));
            }
            std::thread::sleep(POLL_TIME);
        }
        Ok(daemon)
    }
}

impl Drop for ZfsFuseDaemon {
    fn drop(&mut self) {
        if tools::end(&mut self.process, START_TIME).is_ok() {
            // it leaves its socket behind
            let _ = std::fs::remove_file(SOCKET);
        }
    }
}
