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
mod get;
mod holds;
mod json;
mod list;
mod mount;
mod shared;
mod sort;
#[cfg(test)]
mod tests;
mod usage;
mod userspace;

use std::ffi::OsString;
use std::process::ExitCode;

use protocol::datasets::{Failure, Types};

use crate::getopt::{Long, Opt, Parsed};
use crate::output::{FAILED, USAGE};
use client::{Pools, Sockets};

/// What a command says, and how it ends.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    out: String,
    err: String,
    code: u8,
}

/// Stops a command: what it says then.
type Stopped = Outcome;

/// A command of `zfs`.
struct Command {
    name: &'static str,
    run: fn(&dyn Pools, &Command, &[OsString]) -> Result<Outcome, Stopped>,
    usage: &'static str,
    /// Whether the usage text ends with the table of properties.
    shows_properties: bool,
}

/// Runs the command; `args` are those behind its name.
pub fn run(args: &[OsString]) -> ExitCode {
    let outcome = execute(&Sockets, args);
    eprint!("{}", base::ShownLines(outcome.err));
    print!("{}", outcome.out);
    outcome.code.into()
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

impl Outcome {
    fn failed(err: String) -> Outcome {
        Outcome { err, code: FAILED, ..Outcome::default() }
    }

    /// The command line makes no sense: why, and how to do it right.
    fn misused(command: &Command, why: impl std::fmt::Display) -> Outcome {
        Outcome { err: format!("{why}\n{}", usage::text(command)), code: USAGE, ..Outcome::default() }
    }
}

/// A pool process could not be asked, or could not answer.
impl From<base::Error> for Outcome {
    fn from(error: base::Error) -> Outcome {
        Outcome::failed(format!("{error}\n"))
    }
}

/// The flags `-j` and `--json-int`.
const JSON: [Long; 2] = [
    Long { name: "json", takes_value: false, code: 'j' },
    Long { name: "json-int", takes_value: false, code: JSON_INT },
];
const JSON_INT: char = 'J';

/// Takes a command line apart; what is no flag of the command ends it. As with getopt(3), a colon before
/// the short flags tells a missing value apart from an unknown flag.
fn parse(command: &Command, args: &[OsString], short: &str, long: &[Long]) -> Result<Parsed, Stopped> {
    let (short, tells_missing) = short.strip_prefix(':').map_or((short, false), |short| (short, true));
    let parsed = crate::getopt::parse(args, short, long);
    for opt in &parsed.opts {
        match opt {
            Opt::Flag(_) | Opt::Value(..) => {}
            Opt::Missing(flag) if tells_missing => {
                return Err(Outcome::misused(command, format_args!("missing argument for '{flag}' option")));
            }
            Opt::Missing(flag) | Opt::Unknown(flag) => {
                return Err(Outcome::misused(command, format_args!("invalid option '{flag}'")));
            }
        }
    }
    Ok(parsed)
}

/// The value of `-d`.
fn parse_depth(command: &Command, text: &str) -> Result<u32, Stopped> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    match i64::from_str_radix(digits, radix) {
        Ok(depth) if depth < 0 => Err(Outcome::misused(command, "Depth can not be negative.")),
        Ok(depth) => Ok(depth.try_into().unwrap_or(u32::MAX)),
        Err(_) => Err(Outcome::misused(command, format_args!("{text} is not an integer"))),
    }
}

/// The value of `-t`.
fn parse_types(command: &Command, text: &str) -> Result<Types, Stopped> {
    let mut types = Types::NONE;
    for name in text.split(',') {
        types = types.and(match name {
            "filesystem" | "fs" => Types::FILE_SYSTEMS,
            "volume" | "vol" => Types::VOLUMES,
            "snapshot" | "snap" => Types::SNAPSHOTS,
            "bookmark" => Types::BOOKMARKS,
            "all" => Types::ALL,
            _ => return Err(Outcome::misused(command, format_args!("invalid type '{name}'"))),
        });
    }
    Ok(types)
}

/// The lines of failures, for standard error.
fn lines(failures: &[Failure]) -> String {
    failures.iter().map(|failure| format!("{}\n", failure.line)).collect()
}
