//! `zpool ddtprune` and `prefetch`: about dedup tables, and clone tables.

use std::ffi::OsString;

use base::Kind;
use pool::{PoolTables, PruneAmount};
use protocol::wire::Request;

use super::command::{CommandResult, Stop, history_line};
use super::leaves::connect;
use super::manage::one_pool;
use crate::getopt::{self, Opt};

const DAY_S: u64 = 86_400;

/// `zpool ddtprune`.
pub fn ddtprune(args: &[OsString]) -> CommandResult {
    let parsed = getopt::parse(args, "d:p:", &[]);
    let mut amount = None;
    for opt in &parsed.opts {
        amount = Some(match (opt, amount) {
            (Opt::Value('d', _), Some(PruneAmount::Percent(_))) => {
                return Err(Stop::usage("-d cannot be combined with -p option"));
            }
            (Opt::Value('p', _), Some(PruneAmount::Seconds(_))) => {
                return Err(Stop::usage("-p cannot be combined with -d option"));
            }
            (Opt::Value('d', text), _) => {
                let seconds = text.parse().ok().filter(|days| *days > 0).and_then(|days: u64| days.checked_mul(DAY_S));
                PruneAmount::Seconds(seconds.ok_or_else(|| Stop::usage("invalid days value"))?)
            }
            (Opt::Value('p', text), _) => {
                let percent = text.parse().ok().filter(|percent| (1..=100).contains(percent));
                PruneAmount::Percent(percent.ok_or_else(|| Stop::usage("invalid percentage value"))?)
            }
            (other, _) => return Err(Stop::bad_option(other)),
        });
    }
    let amount = amount.ok_or_else(|| Stop::usage("missing amount option (-d|-p <value>)"))?;
    let name = one_pool(&parsed.operands, "missing pool argument")?;
    let request = Request::Prune { amount, history: history_line("ddtprune", args) };
    match connect(name)?.ask(&request) {
        Ok(_) => Ok(true),
        Err(error) => {
            let why = match error.kind() {
                Kind::Busy => "a prune operation is already in progress",
                Kind::Invalid => "invalid argument for this pool operation",
                _ => error.what(),
            };
            Err(Stop::Failed(format!("cannot prune dedup table on '{name}': {why}")))
        }
    }
}

/// `zpool prefetch`.
pub fn prefetch(args: &[OsString]) -> CommandResult {
    let parsed = getopt::parse(args, "t:", &[]);
    const ALL: [(&str, PoolTables); 2] = [("ddt", PoolTables::Dedup), ("brt", PoolTables::Clones)];
    let mut wanted = ALL.to_vec();
    for opt in &parsed.opts {
        match opt {
            Opt::Value('t', kind) => wanted = ALL.into_iter().filter(|(name, _)| name == kind).collect(),
            other => return Err(Stop::bad_option(other)),
        }
    }
    let name = one_pool(&parsed.operands, "missing pool name argument")?;
    let mut connection = connect(name)?;
    if wanted.is_empty() {
        return Err(Stop::usage("unsupported prefetch type"));
    }
    for (kind, tables) in wanted {
        let failed = |why: &str| Stop::Failed(format!("cannot prefetch {kind} in '{name}': {why}"));
        connection.ask(&Request::Prefetch { tables }).map_err(|error| failed(error.what()))?;
    }
    Ok(true)
}
