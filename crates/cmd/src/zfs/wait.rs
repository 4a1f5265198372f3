//! `zfs wait`: until what goes on in a file system has ended.

use std::ffi::OsString;
use std::time::Duration;

use protocol::datasets::{DatasetRequest, Response, Types};

use super::client::{self, Pools};
use super::command::{Outcome, Stopped, ZfsCommand, parse};
use super::request::pool_for;
use crate::getopt::Opt;

/// How often it is asked for.
const INTERVAL: Duration = Duration::from_millis(50);
/// What can be waited for: the queue of files without a name.
const ACTIVITIES: [&str; 1] = ["deleteq"];

/// Runs the command.
pub(super) fn run(pools: &dyn Pools, command: &ZfsCommand, args: &[OsString]) -> Result<Outcome, Stopped> {
    let parsed = parse(command, args, "t:", &[])?;
    for opt in &parsed.opts {
        if let Opt::Value('t', names) = opt
            && let Some(unknown) = names.split(',').find(|name| !ACTIVITIES.contains(name))
        {
            return Err(Outcome::misused(command, format_args!("invalid activity '{unknown}'")));
        }
    }
    let name = match &parsed.operands[..] {
        [name] => name,
        [] => return Err(Outcome::misused(command, "missing 'filesystem' argument")),
        _ => return Err(Outcome::misused(command, "too many arguments")),
    };
    let pool = match pool_for(pools, name, Types::FILE_SYSTEMS)? {
        Ok(pool) => pool,
        Err(line) => return Ok(Outcome::failed(line)),
    };
    let mut has_waited = false;
    loop {
        match pools.ask(&pool, &DatasetRequest::Unlinked { dataset: name.clone() })? {
            Response::Unlinked(Ok(0)) => return Ok(Outcome::default()),
            Response::Unlinked(Ok(_)) => std::thread::sleep(INTERVAL),
            // what is gone has nothing to wait for
            Response::Unlinked(Err(_)) if has_waited => return Ok(Outcome::default()),
            Response::Unlinked(Err(failure)) => return Ok(Outcome::failed(format!("{}\n", failure.line))),
            _ => return Err(client::unexpected(&pool).into()),
        }
        has_waited = true;
    }
}
