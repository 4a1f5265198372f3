//! `cenote zpool`.

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the command; `args` are those behind its name.
pub fn run(_args: &[OsString]) -> ExitCode {
    eprintln!("cenote zpool: not part of this build");
    ExitCode::FAILURE
}
