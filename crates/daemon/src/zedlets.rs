//! Scripts that are run when something happens to a pool: those of OpenZFS's event daemon, unchanged (zed(8)).
//!
//! ```text
//!   the pool's process                               its helper: the same program, started anew as `zedlets`
//!     events ─▶ class, ZEVENT_* variables, a line ──▶  /etc/zfs/zed.d/CLASS-*, SUBCLASS-*, all-*: each is run
//!     ends: end of file ───────────────────────────▶   waits for its scripts, ends
//! ```
//!
//! The pool's process may start no programs, so the helper does. Scripts that root, or the user of the process, has not
//! made, or that others may change, are not run. What a script does, and how it ends, nobody here looks at.

mod environment;
mod run;

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

use nix::unistd::geteuid;
use pool::Events;

pub use run::run;

/// Where scripts are, unless `CENOTE_ZED_DIR` names another folder; one without a name is none.
const FOLDER: &str = "/etc/zfs/zed.d";

/// How often it is looked whether scripts are to be run again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// An event as the helper gets it, in a line: its class, and names and values of variables.
type Message = (String, Vec<(String, String)>);

/// The folder with scripts. Those of root are for root's pools only.
fn folder() -> Option<PathBuf> {
    let folder = match std::env::var_os("CENOTE_ZED_DIR") {
        Some(folder) => PathBuf::from(folder),
        None if geteuid().is_root() => PathBuf::from(FOLDER),
        None => return None,
    };
    folder.is_dir().then_some(folder)
}

/// Starts the helper; `None` if there is no folder with scripts, or it cannot be started, which is logged.
pub fn started() -> Option<ChildStdin> {
    folder()?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("cenote").arg("zedlets").current_dir("/").stdin(Stdio::piped());
    let started = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let started = started.inspect_err(|error| tracing::warn!("no scripts are run for events: {error}"));
    started.ok().and_then(|mut child| child.stdin.take())
}

/// Sends events to the helper, for as long as it is there.
pub fn feed(events: &Events, mut helper: ChildStdin) {
    let mut last = 0;
    loop {
        // what happens meanwhile is for them later, as it is with a daemon that is started again
        while !events.are_for_scripts() {
            std::thread::sleep(LOOK_EVERY);
        }
        let since = events.since(last, Duration::from_secs(3600));
        if !events.are_for_scripts() {
            continue;
        }
        last = since.last;
        if since.dropped > 0 {
            tracing::warn!(events = since.dropped, "no scripts were run for events: there were too many");
        }
        for event in &since.events {
            let class = event.opt_str("class").unwrap_or_default().to_owned();
            let message: Message = (class, environment::of(event));
            let sent = serde_json::to_vec(&message).map_err(std::io::Error::from).and_then(|mut line| {
                line.push(b'\n');
                helper.write_all(&line)
            });
            if let Err(error) = sent {
                tracing::warn!("no scripts are run for events any more: {error}");
                return;
            }
        }
    }
}
