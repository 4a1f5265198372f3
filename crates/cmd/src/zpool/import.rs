//! `zpool import`: without a pool, what could be imported; with one, its process is started.
//!
//! ```text
//!   args  ──▶ find ──▶ candidates ──▶ show               no pool named
//!     └─────▶ protocol::startup::start ──▶ acquire           in the process of the pool: checks, opens
//! ```
//!
//! `cenote serve` has the same command line, and is that process in the foreground.

mod args;
mod show;

use std::ffi::OsString;

use base::{Env, Error, Kind, ShownLines};
use daemon::import::{ImportOptions, find};
use daemon::{hostid, leftovers};
use pool::{Candidate, PoolState};
use protocol::{client, startup};

use super::command::{CommandResult, Stop, history_line};
use super::pools;

pub use args::ImportArgs;

/// Runs the command.
pub fn run(args: &[OsString]) -> CommandResult {
    let history = history_line("import", args);
    let mut args = ImportArgs::parse(args)?;
    args.check_combination()?;
    args.options.history = Some(history);
    if let Some(pool) = &args.options.pool {
        refuse_second(pool, args.options.new_name.as_deref())?;
        return start(&args);
    }
    let env = Env::real();
    let found = find::find(&env, &args.options).map_err(Stop::Failed)?;
    // one whose process does not answer is not free, and is told
    let mut failed = false;
    pools::all(&mut failed)?;
    let silent = client::survey().map_err(|e| Stop::Failed(e.to_string()))?.silent;
    let is_silent = |name: &str| silent.iter().any(|(stem, _)| *stem == protocol::rundir::stem(name));
    let is_wanted = |candidate: &&Candidate| {
        (candidate.state == PoolState::Destroyed) == args.options.destroyed && !is_silent(&candidate.name)
    };
    let wanted: Vec<&Candidate> = found.iter().filter(is_wanted).collect();
    let watched = if args.all { Vec::new() } else { watch(&env, &wanted) };
    let mut all_well = !failed;
    let mut is_first = true;
    for (number, candidate) in wanted.into_iter().enumerate() {
        if args.all {
            let one = ImportArgs {
                options: ImportOptions { pool: Some(candidate.guid.to_string()), ..args.options.clone() },
                ..ImportArgs::default()
            };
            all_well &= start(&one)?;
        } else {
            print!(
                "{}{}",
                if is_first { "" } else { "\n" },
                ShownLines(show::text(&env, candidate, &args.options, &watched[number]))
            );
        }
        is_first = false;
    }
    if is_first {
        eprintln!("no pools available to import");
    }
    Ok(all_well)
}

/// Watches those that are guarded, all at the same time, as each may take half a minute.
fn watch(env: &Env, candidates: &[&Candidate]) -> Vec<show::Watched> {
    let hostid = hostid::system();
    let lost = || Err(Error::new(Kind::Io, "the thread that watches has panicked"));
    std::thread::scope(|scope| {
        let watch = |candidate: &&Candidate| {
            let candidate = (*candidate).clone();
            scope.spawn(move || candidate.watch(env, hostid))
        };
        let threads: Vec<_> = candidates.iter().map(watch).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| lost())).collect()
    })
}

fn start(args: &ImportArgs) -> CommandResult {
    let name = args.options.new_name.as_ref().or(args.options.pool.as_ref()).cloned().unwrap_or_default();
    startup::start(&args.to_command_line()).map_err(|e| {
        // what a process has mounted that ended meanwhile leads nowhere
        if let Err(e) = leftovers::clear_all() {
            eprintln!("cannot clear away what the pool's process left: {e}");
        }
        Stop::Failed(format!("cannot import '{name}': {e}"))
    })
}

/// Refuses a pool that is imported already, unless it gets another name.
fn refuse_second(pool: &str, new_name: Option<&str>) -> Result<(), Stop> {
    let imported = pools::imported()?;
    let is_there = imported.iter().any(|hello| hello.pool == pool || hello.guid.to_string() == pool);
    match new_name {
        None => {}
        Some(name) if name == pool => {}
        Some(_) => return Ok(()),
    }
    match is_there {
        true => Err(Stop::Failed(format!(
            "cannot import '{pool}': a pool with that name already exists\n\
             use the form 'zpool import <pool | id> <newpool>' to give it a new name"
        ))),
        false => Ok(()),
    }
}
