//! What all commands of `zfs` that change something have in common: asking the pool's process for a change.

use std::ffi::OsString;

use protocol::datasets::{ChangeRequest, DatasetRequest, Failure, Response, Types};

use super::client::{self, Pools};
use super::command::{Outcome, Stopped, lines};
use crate::output::FAILED;

/// Properties and values from `NAME=VALUE`.
pub(super) fn properties(texts: impl Iterator<Item = impl AsRef<str>>) -> Result<Vec<(String, String)>, Stopped> {
    let mut properties: Vec<(String, String)> = Vec::new();
    for text in texts {
        let text = text.as_ref();
        let Some((name, value)) = text.split_once('=') else {
            return Err(Outcome::failed(format!("missing property=value argument for '{text}'\n")));
        };
        if properties.iter().any(|(before, _)| before == name) {
            return Err(Outcome::failed(format!("property '{name}' specified multiple times\n")));
        }
        properties.push((name.to_owned(), value.to_owned()));
    }
    Ok(properties)
}

/// The line of a command in a pool's history.
pub(super) fn history_line(command: &str, args: &[OsString]) -> String {
    let args = args.iter().map(|arg| format!(" {}", arg.to_string_lossy()));
    format!("zfs {command}{}", args.collect::<String>())
}

/// The pool of a dataset; in its place, a line that says why there is none.
pub(super) fn pool_for(pools: &dyn Pools, name: &str, types: Types) -> Result<Result<String, String>, Stopped> {
    if let Err(why) = client::check_name(name, types) {
        return Ok(Err(format!("cannot open '{name}': {why}\n")));
    }
    Ok(match client::why_not_there(pools, name) {
        None => Ok(client::pool_of(name).to_owned()),
        Some(why) => Err(format!("cannot open '{name}': {why}\n")),
    })
}

/// Asks for a change. `history` is a line for the history of the pool.
pub(super) fn ask(
    pools: &dyn Pools,
    pool: &str,
    change: ChangeRequest,
    history: Option<String>,
) -> Result<Outcome, Stopped> {
    match pools.ask(pool, &DatasetRequest::Change { change, history })? {
        Response::Changed { out, notes, failures } => {
            let mut outcome = outcome(out, &failures);
            outcome.err = notes.concat() + &outcome.err;
            Ok(outcome)
        }
        _ => Err(client::unexpected(pool).into()),
    }
}

fn outcome(out: String, failures: &[Failure]) -> Outcome {
    Outcome { out, err: lines(failures), code: if failures.is_empty() { 0 } else { FAILED } }
}
