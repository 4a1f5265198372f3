//! `zpool checkpoint`: the state of a pool is kept, or given up again.

use std::ffi::OsString;

use protocol::client;
use protocol::wire::Request;

use super::command::{CommandResult, Stop, history_line};
use super::scan;
use crate::getopt::{self, Long, Opt};

const LONG: [Long; 2] =
    [Long { name: "discard", takes_value: false, code: 'd' }, Long { name: "wait", takes_value: false, code: 'w' }];

/// Runs the command.
pub fn run(args: &[OsString]) -> CommandResult {
    let parsed = getopt::parse(args, "dw", &LONG);
    let (mut discard, mut wait) = (false, false);
    for opt in &parsed.opts {
        match opt {
            Opt::Flag('d') => discard = true,
            Opt::Flag('w') => wait = true,
            other => return Err(Stop::bad_option(other)),
        }
    }
    if wait && !discard {
        return Err(Stop::usage("--wait only valid when --discard also specified"));
    }
    let name = match &parsed.operands[..] {
        [] => return Err(Stop::usage("missing pool argument")),
        [name] => name,
        _ => return Err(Stop::usage("too many arguments")),
    };
    if name.contains('/') {
        let what = "invalid character '/' in pool name";
        let advice = "'zpool checkpoint' doesn't work on datasets. To save the state of a dataset from a specific point in \
                      time please use 'zfs snapshot'";
        return Err(Stop::Failed(format!("cannot open '{name}': {what}\n{advice}")));
    }
    let failed = |why: &str| {
        let what = if discard { "discard checkpoint in" } else { "checkpoint" };
        Stop::Failed(format!("cannot {what} '{name}': {why}"))
    };
    let missing = |why: &str| Stop::Failed(format!("cannot open '{name}': {why}"));
    let connection = client::connect(name).map_err(|e| missing(e.what()))?;
    let mut connection = connection.ok_or_else(|| missing("no such pool"))?;
    let request = Request::Checkpoint { discard, history: history_line("checkpoint", args) };
    connection.ask(&request).map_err(|e| failed(e.what()))?;
    if wait { scan::wait_for_activity(name, "discard") } else { Ok(true) }
}
