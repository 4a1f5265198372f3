//! A volume by iSCSI: QEMU's storage daemon is the initiator, and gives it out by NBD, which fio speaks.
//!
//! ```text
//!   fio ── NBD, unix socket ──▶ qemu-storage-daemon ── iSCSI, TCP of this machine ──▶ target of the pool
//! ```
//!
//! The daemon ends with the lab, however that ends.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use protocol::volumes::{nbd_socket, nbd_uri};

use super::place::{POOL, VOLUME};
use crate::tools;

/// The only initiator that the volume is for.
pub const INITIATOR: &str = "iqn.2025-11.org.cenote:lab";
const DAEMON: &str = "qemu-storage-daemon";
const PID_FILE: &str = "pid";
/// How long a log-in may take.
const LOGIN_TIME: Duration = Duration::from_secs(10);
const POLL_TIME: Duration = Duration::from_millis(20);
/// Bytes of what it says that are read.
const SAYS_BYTES_MAX: u64 = 4096;

/// Errors, for the user: what is missing for it here.
pub fn check() -> Result<(), String> {
    for (program, package) in [(DAEMON, "qemu-system-common"), ("setpriv", "util-linux")] {
        if !tools::is_installed(program) {
            return Err(format!("{program} is not installed (package {package})"));
        }
    }
    // it looks for its driver when it has all parameters; nobody listens there
    let mut asked = Command::new(DAEMON);
    asked
        .args(["--blockdev", "driver=iscsi,node-name=look,transport=tcp,portal=127.0.0.1:1,target=none"])
        .stdin(Stdio::null());
    let said = asked.output().map_err(|e| format!("{DAEMON}: {e}"))?;
    let said = String::from_utf8_lossy(&said.stderr);
    match ["Unknown driver", "module block-block-iscsi not found"].iter().any(|what| said.contains(what)) {
        true => Err("QEMU's driver of iSCSI is not installed (package qemu-block-extra)".to_owned()),
        false => Ok(()),
    }
}

/// See the top of the file.
pub struct LabInitiator {
    process: Child,
    /// Has the socket, as a folder of a pool's process has one.
    run: PathBuf,
}

impl LabInitiator {
    /// Logs in to a target, `iscsi://ADDRESS/TARGET/LUN`. `run` is a folder for its socket. Errors, for the user: it cannot.
    pub fn start(uri: &str, run: &Path) -> Result<LabInitiator, String> {
        let parts = uri.strip_prefix("iscsi://").and_then(|rest| {
            let (portal, rest) = rest.split_once('/')?;
            rest.rsplit_once('/').map(|(target, lun)| (portal, target, lun))
        });
        let (portal, target, lun) = parts.ok_or_else(|| format!("{uri}: it is no address of a target"))?;
        let socket = nbd_socket(run, POOL);
        let folder = socket.parent().unwrap_or(run);
        std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let pid = run.join(PID_FILE);
        let socket_text = socket.to_string_lossy().replace(',', ",,");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", DAEMON, "--blockdev"]);
        let at = format!("transport=tcp,portal={portal},target={target},lun={lun}");
        command.arg(format!("driver=iscsi,node-name=volume,{at},initiator-name={INITIATOR}"));
        command.arg("--nbd-server").arg(format!("addr.type=unix,addr.path={socket_text}"));
        command.arg("--export").arg(format!("type=nbd,id=volume,node-name=volume,name={VOLUME},writable=on"));
        command.arg("--pidfile").arg(&pid);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // SIGINT of a terminal is for the lab, which ends it in order
        let process = command.process_group(0).spawn().map_err(|e| format!("setpriv: {e}"))?;
        let mut initiator = LabInitiator { process, run: run.to_owned() };
        let began = Instant::now();
        // it is written when the volume is given out
        while !pid.exists() {
            let is_ended = initiator.process.try_wait().map_err(|e| format!("{DAEMON}: {e}"))?.is_some();
            if is_ended || began.elapsed() > LOGIN_TIME {
                return Err(format!("{DAEMON}: {}", initiator.said()));
            }
            std::thread::sleep(POLL_TIME);
        }
        Ok(initiator)
    }

    /// What it has complained about.
    fn said(&mut self) -> String {
        let _ = self.process.kill();
        let mut text = String::new();
        // what cannot be read is missing in what the user is told
        let _ = self.process.stderr.take().map(|stderr| stderr.take(SAYS_BYTES_MAX).read_to_string(&mut text));
        text.lines().next().unwrap_or("it does not answer").to_owned()
    }

    /// Where the volume is by NBD.
    pub fn uri(&self) -> String {
        nbd_uri(&self.run, VOLUME)
    }
}

impl Drop for LabInitiator {
    fn drop(&mut self) {
        // it may have ended by itself
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(nbd_socket(&self.run, POOL));
        let _ = std::fs::remove_file(self.run.join(PID_FILE));
    }
}
