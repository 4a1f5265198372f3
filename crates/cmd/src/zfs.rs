//! `cenote zfs`: what datasets there are, their properties, mounting and changing them.
//!
//! ```text
//!   command line ─▶ list, get, ... ─▶ client ──request──▶ process of each pool: daemon::verbs
//!                        ▼
//!                 columns, sort, json ─▶ Outcome: output, errors, exit code
//! ```
//!
//! Flags, output and exit codes are those of OpenZFS's manual pages.

mod change;
mod client;
mod columns;
mod command;
mod diff;
mod get;
mod holds;
mod json;
mod list;
mod mount;
mod project;
mod receive;
mod request;
mod send;
mod shared;
mod snapshots;
mod sort;
#[cfg(test)]
mod tests;
mod upgrade;
mod usage;
mod userspace;
mod wait;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use protocol::datasets::Mounted;

use crate::output::USAGE;
use client::{Pools, Sockets};
use command::Outcome;

/// Runs the command; `args` are those behind its name.
pub fn run(args: &[OsString]) -> ExitCode {
    let outcome = execute(&Sockets, args);
    eprint!("{}", base::ShownLines(outcome.err));
    print!("{}", outcome.out);
    outcome.code.into()
}

/// The file system that a file or directory is in; in its place, a line that says why none. Errors: of asking pools.
pub(crate) fn mounted_at(path: &Path) -> base::Result<Result<Mounted, String>> {
    client::mounted_at(&Sockets, path)
}

/// Names of the commands that there are.
#[cfg(test)]
pub(crate) fn command_names() -> Vec<&'static str> {
    usage::COMMANDS.iter().map(|command| command.name).collect()
}

/// Runs a command line of `zfs` on pools.
pub(crate) fn execute(pools: &dyn Pools, args: &[OsString]) -> Outcome {
    let Some((name, rest)) = args.split_first() else { return usage::of_all("missing command\n") };
    let name = match &*name.to_string_lossy() {
        "umount" => "unmount".to_owned(),
        "snap" => "snapshot".to_owned(),
        "recv" => "receive".to_owned(),
        "-V" | "--version" => "version".to_owned(),
        "-?" | "-h" | "--help" => return usage::requested(),
        "help" => return usage::help(rest),
        name => name.to_owned(),
    };
    match usage::COMMANDS.iter().find(|command| command.name == name) {
        Some(command) => (command.run)(pools, command, rest).unwrap_or_else(|stopped| stopped),
        None if usage::WRITING.contains(&name.as_str()) => {
            Outcome::failed(format!("cannot {name}: this version of Cenote does not have that command\n"))
        }
        None => Outcome { code: USAGE, ..Outcome::failed(format!("unrecognized command '{name}'\n")) },
    }
}
