//! `zfs diff`: its command line. The pool's process writes what differs to this one's standard output.

use std::ffi::OsString;
use std::os::fd::AsFd;

use protocol::datasets::{DatasetRequest, Response, Types};
use protocol::diff::DiffOrder;

use super::client::{self, Pools};
use super::command::{Outcome, Stopped, ZfsCommand, lines, parse, usage};
use super::request::pool_for;
use crate::getopt::Opt;
use crate::output::{FAILED, USAGE};

/// Runs the command.
pub(super) fn run(pools: &dyn Pools, command: &ZfsCommand, args: &[OsString]) -> Result<Outcome, Stopped> {
    let parsed = parse(command, args, "FHth", &[])?;
    let has = |flag| parsed.opts.contains(&Opt::Flag(flag));
    let (from, to) = match &parsed.operands[..] {
        [] => return Err(Outcome::misused(command, "must provide at least one snapshot name")),
        [from] => (from, None),
        [from, to] => (from, Some(to)),
        _ => return Err(Outcome::misused(command, "too many arguments")),
    };
    // the one of them that names a file system
    let named = match (from.starts_with('@'), to) {
        (false, _) => from,
        (true, Some(to)) => to,
        (true, None) => return Err(Outcome { err: usage(command), code: USAGE, ..Outcome::default() }),
    };
    let fs = named.split('@').next().unwrap_or_default();
    let pool = match pool_for(pools, fs, Types::FILE_SYSTEMS)? {
        Ok(pool) => pool,
        Err(line) => return Ok(Outcome::failed(line)),
    };
    if to.is_none()
        && let Err(why) = client::check_name(from, Types::SNAPSHOTS)
    {
        return Ok(Outcome::failed(format!("Badly formed snapshot name {from}: {why}\n")));
    }
    let order = DiffOrder {
        from: from.clone(),
        to: to.cloned(),
        classify: has('F'),
        scripted: has('H'),
        timestamps: has('t'),
        raw_names: has('h'),
    };
    match pools.stream(&pool, &DatasetRequest::Diff(order), std::io::stdout().as_fd(), &mut |_| ())? {
        Response::Done { failures, notes } => {
            let code = if failures.is_empty() { 0 } else { FAILED };
            Ok(Outcome { err: notes.concat() + &lines(&failures), code, ..Outcome::default() })
        }
        _ => Err(client::unexpected(&pool).into()),
    }
}
