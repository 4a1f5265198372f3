//! What all commands of `zpool` have in common: how they end, and what they tell of themselves.

use std::ffi::OsString;

use crate::getopt::{Long, Opt};

/// Whether all went well; a command that says no has complained already.
pub type CommandResult = Result<bool, Stop>;

/// Why a command ends early.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    /// The command line makes no sense; the text goes before the usage message.
    Usage(String),
    /// Something went wrong: the whole line.
    Failed(String),
}

/// The flag that has the slot of a disk switched.
pub const POWER: Long = Long { name: "power", takes_value: false, code: '4' };

impl Stop {
    /// What is said to [`POWER`].
    pub fn no_power() -> Stop {
        Stop::Failed("--power is not supported: this version of Cenote switches no slots of disks".to_owned())
    }

    /// The command line makes no sense.
    pub fn usage(text: impl Into<String>) -> Stop {
        Stop::Usage(text.into())
    }

    /// A flag that the command does not know, or whose value is missing.
    pub fn bad_option(opt: &Opt) -> Stop {
        Stop::Usage(match opt {
            Opt::Missing(name) => format!("missing argument for '{name}' option"),
            Opt::Unknown(name) => format!("invalid option '{name}'"),
            Opt::Flag(c) | Opt::Value(c, _) => format!("invalid option '{c}'"),
        })
    }
}

/// The line of a command in a pool's history.
pub fn history_line(command: &str, args: &[OsString]) -> String {
    let args = args.iter().map(|arg| format!(" {}", arg.to_string_lossy()));
    format!("zpool {command}{}", args.collect::<String>())
}
