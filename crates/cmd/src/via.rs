//! This program on other hosts: by a command that reaches one, as `ssh HOST`, over its standard input and output.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

/// Has the shell run `VIA cenote COMMAND`. Also where its standard input is written: a socket, as a write to a pipe that it
/// does not read any more would end this process. Its standard output is a pipe. Errors: it cannot be run.
pub fn start(via: &str, command: &str) -> Result<(Child, UnixStream), String> {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec {via} cenote {command}")]);
    start_program(shell).map_err(|e| format!("'{via}' cannot be run: {e}"))
}

/// Starts a program in the same way.
pub fn start_program(mut program: Command) -> std::io::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let child = program.stdin(OwnedFd::from(theirs)).stdout(Stdio::piped()).spawn()?;
    Ok((child, ours))
}
