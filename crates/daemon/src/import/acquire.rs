//! Opening the pool that a command line names, with all checks that come before it. This is done by
//! the process of the pool.

use std::fs::File;
use std::sync::Arc;

use base::{Env, Error, Kind, Shown};
use format::ids::Txg;
use format::uberblock::Uberblock;
use pool::{CLAIM_FAILED, CLAIM_MISSING, Candidate, OpenOptions, Pool, PoolState, PoolStatePreview, Rewind};
use protocol::rundir::RunDirClaim;
use protocol::startup::Notify;
use protocol::words::time;
use protocol::{pool_names, pool_properties};

use super::unwritable::Unwritable;
use super::{ImportOptions, features, find};
use crate::live::{self, ServedPool};
use crate::locks::{DeviceLocks, refuse_pool_of_module};
use crate::{hostid, listen_helper};

/// Why a pool is not gone back with.
const TOO_OLD: &str = "no state of the last groups can be opened\n\
    \tBlocks of older ones may have been used again: 'zpool import -FXn' lists them,\n\
    \tand 'zpool import -FX' returns to the newest that is whole.";

/// A pool that is open, and nobody else's.
pub struct Acquired {
    /// The pool.
    pub pool: ServedPool,
    /// Locks on its devices.
    pub locks: DeviceLocks,
    /// Its place among the processes of pools.
    pub claim: RunDirClaim,
    /// No other host had it since this one, as far as its labels and its root tell.
    pub was_here_last: bool,
}

/// Finds and opens the pool. Errors: the whole text for the user. `None`: that was only to see whether
/// it would work, and the user has been told. `lock` is that of the pool's place, if the process before left it; `begin_use` is
/// told of the pool and its newest root before it is written, and says whether it is as this host left it.
pub fn acquire(
    env: &Env,
    args: &ImportOptions,
    notify: &Notify,
    lock: Option<File>,
    begin_use: &dyn Fn(&Pool, &Uberblock) -> bool,
) -> Result<Option<Acquired>, String> {
    let which = args.pool.as_deref().unwrap_or_default();
    let mut candidate = pick(env, args, which)?;
    check(&candidate, args)?;
    let is_read_only = args.prop("readonly") == Some("on");
    let left_out = if is_read_only { Ok(Unwritable::default()) } else { Unwritable::of(&mut candidate) };
    let was_here_last = candidate.hostid.unwrap_or(0) == hostid::system();
    let name = args.new_name.clone().unwrap_or_else(|| candidate.name.clone());
    let failed = |why: &str| match &args.new_name {
        None => format!("cannot import '{name}': {why}"),
        Some(new) => format!("cannot import '{}' as '{new}': {why}", candidate.name),
    };
    // before anything is written: the pool may get a name that another has
    let claim = listen_helper::claim(&name, lock).map_err(|e| failed(e.what()))?;
    let mut options = options_of(args, &name);
    let left_out = left_out.map_err(|left_out| failed(&left_out.refusal()))?;
    // looks, even if the pool is to be written: nothing is changed if something is wrong
    let read_only = {
        refuse_pool_of_module(&candidate.name, candidate.guid).map_err(|e| failed(e.what()))?;
        let locks = DeviceLocks::of(&candidate).map_err(|e| match e.kind() {
            Kind::Busy => failed(&format!("one or more devices are already in use\n\t{e}")),
            _ => failed(&e.to_string()),
        })?;
        options.watched = watch(env, &candidate, notify).map_err(|e| failed(&in_use(&e, &candidate)))?;
        check_host(&candidate, args).map_err(|why| failed(&why))?;
        if options.rewind == Rewind::Recover {
            let newest = pool::newest_whole(env, &candidate, &options, args.extreme);
            options.rewind = newest.map(Rewind::Exactly).ok_or_else(|| failed(TOO_OLD))?;
        }
        if args.dry_run && args.extreme {
            tell_states(&pool::preview(env, &candidate, &options), notify);
        }
        let pool = Pool::open(env, &candidate, &options).map_err(|e| match e.kind() {
            Kind::Missing if !left_out.is_empty() => failed(&left_out.refusal()),
            _ => refusal(&e, &|| advice(env, &candidate, &options, which), notify, &failed),
        })?;
        check_logs(&pool, args, notify, &failed)?;
        (pool, locks)
    };
    tell_rewind(&read_only.0, &candidate, args, notify);
    if args.dry_run {
        return Ok(None);
    }
    if is_read_only {
        let (pool, locks) = read_only;
        return Ok(Some(Acquired { pool: ServedPool::ReadOnly(Arc::new(pool)), locks, claim, was_here_last }));
    }
    if !left_out.is_empty() {
        notify.out(&left_out.notice());
    }
    // before it has another root; that this import goes back to an earlier one is no sign of another host
    let is_as_left = candidate.uberblocks().first().is_none_or(|newest| begin_use(&read_only.0, newest));
    drop(read_only);
    let opened = live::import(env, &candidate, &options, hostid::host());
    let (pool, locks) = opened.map_err(|e| match e.kind() {
        Kind::ReadOnly => refuse_writing(&e, notify, &failed),
        Kind::Busy => failed(&format!("one or more devices are already in use\n\t{e}")),
        Kind::Elsewhere => failed(&in_use(&e, &candidate)),
        _ if [CLAIM_MISSING, CLAIM_FAILED].contains(&e.what()) => failed(e.what()),
        _ => refusal(&e, &|| advice(env, &candidate, &options, which), notify, &failed),
    })?;
    set_properties(&pool, args).map_err(|e| failed(&e))?;
    Ok(Some(Acquired { pool, locks, claim, was_here_last: was_here_last && is_as_left }))
}

/// The pool that is named. Errors: the text for the user.
fn pick(env: &Env, args: &ImportOptions, which: &str) -> Result<Candidate, String> {
    let mut candidates = find::find(env, args)?;
    candidates.retain(|candidate| (candidate.state == PoolState::Destroyed) == args.destroyed);
    let candidate = Candidate::pick(&candidates, which).map_err(|e| e.what().to_owned())?;
    let wants_older = matches!(args.wanted_state(), Rewind::Exactly(_) | Rewind::AtMost(_));
    Ok(if wants_older { candidate.with_former_devices() } else { candidate })
}

fn options_of(args: &ImportOptions, name: &str) -> OpenOptions {
    OpenOptions {
        name: Some(name.to_owned()),
        is_temporary: args.temporary,
        new_guid: None,
        rewind: args.wanted_state(),
        watched: None,
        without_log: args.missing_log,
        history: args.history.clone(),
        cache_bytes: None,
    }
}

/// Sets what the user asked for with the import; a pool that refuses is let go.
fn set_properties(pool: &ServedPool, args: &ImportOptions) -> Result<(), String> {
    for (name, value) in args.to_set() {
        if let Err(e) = pool.set_property(name, value) {
            // it is as after a crash, at worst
            let _ = pool.close(PoolState::Active);
            return Err(format!("property '{name}' cannot be set: {e}"));
        }
    }
    Ok(())
}

/// Why the pool can only be read, in the words for the user.
fn refuse_writing(error: &Error, notify: &Notify, failed: &dyn Fn(&str) -> String) -> String {
    let what = match error.what().split_once('\n') {
        Some((_, features)) => format!(
            "This pool uses the following feature(s) not supported by this system:\n{features}\n\
             All unsupported features are only required for writing to the pool."
        ),
        None => error.what().to_owned(),
    };
    notify.out(&format!("{what}\nThe pool can be imported using '-o readonly=on'.\n"));
    failed("unsupported version or feature")
}

/// See [`Candidate::watch`]. What came of it is told in OpenZFS's numbers, if that variable is set.
fn watch(env: &Env, candidate: &Candidate, notify: &Notify) -> base::Result<Option<Uberblock>> {
    let watched = candidate.watch(env, hostid::system());
    let result = match &watched {
        Ok(Some(_)) => 0,
        Ok(None) => libc::ESRCH,
        Err(e) if e.kind() == Kind::Elsewhere && hostid::system() == 0 => libc::ENXIO,
        Err(e) if e.kind() == Kind::Elsewhere => libc::EREMOTEIO,
        Err(_) => libc::EIO,
    };
    if std::env::var_os("ZFS_LOAD_INFO_DEBUG").is_some() {
        notify.out(&format!("mmp_result: {result}\n"));
    }
    watched
}

/// Why a guarded pool cannot be had.
fn in_use(error: &Error, candidate: &Candidate) -> String {
    match error.kind() {
        Kind::Elsewhere if hostid::system() == 0 => "pool has the multihost property on and the\n\
             system's hostid is not set. Set a unique system hostid with the zgenhostid(8) command."
            .to_owned(),
        Kind::Elsewhere => format!(
            "pool is imported on host '{}' (hostid={:x}).\n\
             Export the pool on the other system, then run 'zpool import'.",
            Shown(candidate.hostname.as_deref().unwrap_or("<unknown>")),
            candidate.hostid.unwrap_or(0)
        ),
        _ => error.to_string(),
    }
}

/// What can be said before the pool is opened.
fn check(candidate: &Candidate, args: &ImportOptions) -> Result<(), String> {
    let name = &candidate.name;
    let is_known = (1..=28).contains(&candidate.version) || candidate.version == pool_properties::VERSION;
    if !is_known {
        return Err(format!("cannot import '{name}': pool is formatted using an unsupported ZFS version"));
    }
    match &args.new_name {
        Some(new) => pool_names::check_new(new).map_err(|why| format!("cannot import '{new}': {why}"))?,
        None => pool_names::check(name).map_err(|why| format!("cannot import '{name}': {why}"))?,
    }
    args.check_values(name)
}

/// A pool that another host had last is taken only if the user says so.
fn check_host(candidate: &Candidate, args: &ImportOptions) -> Result<(), String> {
    let hostid = candidate.hostid.unwrap_or(0);
    if candidate.state == PoolState::Exported || hostid == hostid::system() || args.force {
        return Ok(());
    }
    let host = candidate.hostname.as_deref().unwrap_or("<unknown>");
    let when = candidate.uberblocks().first().map_or(0, |uberblock| uberblock.timestamp_s);
    Err(format!(
        "pool was previously in use from another system.\n\
         Last accessed by {host} (hostid={hostid:x}) at {}\n\
         The pool can be imported, use 'zpool import -f' to import the pool.",
        time::ctime(when)
    ))
}

/// Why the pool cannot be opened, in the words for the user, and what may help if its own objects cannot be read.
fn refusal(error: &Error, advice: &dyn Fn() -> String, notify: &Notify, failed: &dyn Fn(&str) -> String) -> String {
    match error.kind() {
        Kind::Unsupported => {
            let unknown = features::in_error(error);
            if unknown.is_empty() {
                return failed(&error.to_string());
            }
            let list = features::lines(&unknown);
            notify.out(&format!("This pool uses the following feature(s) not supported by this system:\n{list}"));
            failed("unsupported version or feature")
        }
        Kind::Missing => failed(&format!("one or more devices is currently unavailable\n\t{error}")),
        // a state that is not in the ring
        Kind::NotFound => failed(error.what()),
        _ => failed(&format!("I/O error\n\t{error}\n{}", advice())),
    }
}

/// To go back to a state of before, if one can be opened, or else to give the pool up. `which` is what it was called.
fn advice(env: &Env, candidate: &Candidate, options: &OpenOptions, which: &str) -> String {
    let before = (options.rewind == Rewind::Newest).then(|| pool::newest_before(env, candidate, options)).flatten();
    let Some(before) = before else { return "\tDestroy and re-create the pool from\n\ta backup source.".to_owned() };
    let newest_s = candidate.uberblocks().first().map_or(0, |uberblock| uberblock.timestamp_s);
    let loss = match loss(newest_s.saturating_sub(before.timestamp_s)) {
        Some(loss) => format!("Approximately {loss} of data\n\tmust be discarded, irreversibly.  "),
        None => String::new(),
    };
    format!(
        "\tRecovery is possible, but will result in some data loss.\n\
         \tReturning the pool to its state as of {}\n\tshould correct the problem.  {loss}Recovery can be attempted\n\
         \tby executing 'zpool import -F {which}'.  A scrub of the pool\n\tis strongly recommended after recovery.",
        time::ctime(before.timestamp_s)
    )
}

/// So much time in words, if it is any.
fn loss(seconds: u64) -> Option<String> {
    match seconds {
        0 => None,
        1..=120 => Some(format!("{seconds} seconds")),
        _ => Some(format!("{} minutes", (seconds + 30) / 60)),
    }
}

/// Without its log device, what was not yet in the pool proper is lost: that is for the user to say.
fn check_logs(
    pool: &Pool,
    args: &ImportOptions,
    notify: &Notify,
    failed: &dyn Fn(&str) -> String,
) -> Result<(), String> {
    let tree = pool.tree();
    let is_log = |top: &&vdev::Vdev| top.top_spec().is_some_and(|spec| spec.is_log);
    let gone: Vec<String> = tree
        .tops()
        .filter(is_log)
        .filter(|top| !tree.health(top.id()).is_readable())
        .map(|top| format!("\t    {} [log]\n", top.name()))
        .collect();
    if gone.is_empty() || args.missing_log {
        return Ok(());
    }
    let what = "The devices below are missing or corrupted, use '-m' to import the pool anyway:\n";
    notify.out(&format!("{what}{}\n", gone.concat()));
    Err(failed("one or more devices is currently unavailable"))
}

/// So many names are told of what a state lacks.
const LACKED_MAX: usize = 8;

/// Lists the states that can be had, for `-T` or `--at-txg` to choose one.
fn tell_states(states: &[PoolStatePreview], notify: &Notify) {
    let newest_s = states.first().map_or(0, |state| state.timestamp_s);
    let newest = states.iter().find_map(|state| state.found.as_ref().ok());
    let mut text = format!("{:>12}  {:<24}  {:>8}  FOUND\n", "TXG", "TIME", "LOSS");
    for state in states {
        let loss = format!("{}s", newest_s.saturating_sub(state.timestamp_s));
        let found = match &state.found {
            Ok(found) if found.is_whole() => format!("metadata whole: {} datasets and snapshots", found.names.len()),
            Ok(found) => {
                format!("{} blocks of metadata are lost, {} parts with them", found.lost_blocks, found.lost_parts)
            }
            Err(error) => format!("cannot be opened: {}", error.what().lines().next().unwrap_or_default()),
        };
        text += &format!("{:>12}  {:<24}  {loss:>8}  {found}\n", state.txg, time::ctime(state.timestamp_s));
        if let (Ok(found), Some(newest)) = (&state.found, newest) {
            let lacked: Vec<&str> = found.lacks(newest).collect();
            let more = lacked.len().saturating_sub(LACKED_MAX);
            let names = lacked.iter().take(LACKED_MAX).map(|name| base::Shown(name).to_string());
            let names = names.collect::<Vec<String>>().join(", ");
            text += &match more {
                _ if lacked.is_empty() => String::new(),
                0 => format!("{:>12}  without {names}\n", ""),
                more => format!("{:>12}  without {names} and {more} more\n", ""),
            };
        }
    }
    notify.out(&text);
}

/// Says how far back the state is that was, or would be, opened, if that was asked for.
fn tell_rewind(pool: &Pool, candidate: &Candidate, args: &ImportOptions, notify: &Notify) {
    let newest = candidate.uberblocks().first().map_or(Txg::ZERO, |uberblock| uberblock.txg);
    if !args.rewind || pool.uberblock().txg >= newest {
        return;
    }
    let dry_run = args.dry_run;
    let (name, then_s) = (&candidate.name, pool.uberblock().timestamp_s);
    let newest_s = candidate.uberblocks().first().map_or(then_s, |uberblock| uberblock.timestamp_s);
    let when = time::ctime(then_s);
    let mut text = match dry_run {
        true => format!("Would be able to return {name} to its state as of {when}.\n"),
        false => format!("Pool {name} returned to its state as of {when}.\n"),
    };
    let verb = if dry_run { "Would discard" } else { "Discarded" };
    if let Some(loss) = loss(newest_s.saturating_sub(then_s)) {
        text += &format!("{verb} approximately {loss} of transactions.\n");
    }
    notify.out(&text);
}
