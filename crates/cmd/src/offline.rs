//! Commands that read files out of a pool's devices directly: no pool process, no mount, no root.

use std::ffi::OsString;
use std::process::ExitCode;

/// `cenote ls`.
pub fn ls(_args: &[OsString]) -> ExitCode {
    ExitCode::FAILURE
}

/// `cenote cat`.
pub fn cat(_args: &[OsString]) -> ExitCode {
    ExitCode::FAILURE
}

/// `cenote cp`.
pub fn cp(_args: &[OsString]) -> ExitCode {
    ExitCode::FAILURE
}

/// `cenote stat`.
pub fn stat(_args: &[OsString]) -> ExitCode {
    ExitCode::FAILURE
}
