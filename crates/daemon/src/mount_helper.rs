//! The mount helper of a pool process: this program, started anew as `cenote mount-helper`. What it is
//! for, and what it is told, is in [`fuse::Helper`].

use std::os::fd::AsFd;
use std::process::ExitCode;

use fuse::Helper;
use nix::sys::signal::{SigSet, Signal};

/// The signals that end a pool process in order.
pub(crate) const ENDING: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

const PROGRAM: &str = "/proc/self/exe";
const ARGS: &[&str] = &["mount-helper"];

/// Processes that help this one; none is started yet.
pub fn new() -> Helper {
    Helper::new(PROGRAM, ARGS)
}

/// The same for one that will be confined. Errors: no process can be started.
pub fn started() -> base::Result<Helper> {
    Helper::started(PROGRAM, ARGS)
}

/// Is such a process. What ends the pool's process in order must not end this one before: it is needed to
/// unmount everything.
pub fn run() -> ExitCode {
    let blocked =
        SigSet::from_iter(ENDING).thread_block().map_err(|errno| base::Error::from(std::io::Error::from(errno)));
    match blocked.and_then(|()| fuse::help(std::io::stdin().as_fd())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("cenote mount-helper: started by the process of a pool, not by hand: {e}");
            ExitCode::FAILURE
        }
    }
}
