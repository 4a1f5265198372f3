//! What all commands print with: exit codes, error lines, and quiet ends.

use std::fmt;

/// Exit code: something that was asked for could not be done.
pub const FAILED: u8 = 1;
/// Exit code: the command line makes no sense.
pub const USAGE: u8 = 2;

/// From now on, writing to a pipe that nobody reads ends the program quietly, as it ends `cat`.
pub fn end_with_reader() {
    // SAFETY: the default action replaces Rust's choice to ignore the signal; no handler is involved.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// One line on standard error, in the name of a command.
pub fn complain(command: &str, what: impl fmt::Display) {
    eprintln!("cenote {command}: {what}");
}
