//! `zpool destroy`, `sync`, `set` and `reguid`: short commands that the process of the pool carries out.

use std::ffi::OsString;
use std::path::Path;

use base::Kind;
use daemon::cachefile;
use daemon::compat::Allowed;
use daemon::pool_props::{self, When};
use format::ids::Guid;
use protocol::wire::{PoolReply, Request};
use protocol::{client, pool_names};

use super::command::{CommandResult, Stop, history_line};
use super::get_vdev;
use super::leaves::connect;
use super::pools;
use crate::getopt::{self, Opt};

/// `zpool destroy`.
pub fn destroy(args: &[OsString]) -> CommandResult {
    let parsed = getopt::parse(args, "f", &[]);
    let force = flags(&parsed, 'f')?;
    let name = one_pool(&parsed.operands, "missing pool argument")?;
    if let Err(why) = pool_names::check(name) {
        let hint = if name.contains('/') { "\nuse 'zfs destroy' to destroy a dataset" } else { "" };
        return Err(Stop::Failed(format!("cannot open '{name}': {why}{hint}")));
    }
    let mut connection = connect(name)?;
    // a pool that cannot be asked is no reason
    let report = connection.ask(&Request::Report);
    let is_read_only = matches!(&report, Ok(PoolReply::Report(report)) if !report.is_writable);
    match connection.ask(&Request::Destroy { force, history: history_line("destroy", args) }) {
        Ok(_) => {
            if is_read_only {
                eprintln!("'{name}' is imported read-only: it is exported, and not destroyed");
            }
            connection.wait_for_end();
            Ok(true)
        }
        // it says itself what is busy
        Err(e) if e.kind() == Kind::Busy => {
            let is_mount = e.what().starts_with("cannot unmount ");
            let end = if is_mount {
                format!("\ncould not destroy '{name}': could not unmount datasets")
            } else {
                String::new()
            };
            Err(Stop::Failed(format!("{}{end}", e.what())))
        }
        Err(e) => Err(Stop::Failed(format!("cannot destroy '{name}': {}", e.what()))),
    }
}

/// `zpool sync`.
pub fn sync(args: &[OsString]) -> CommandResult {
    let parsed = getopt::parse(args, "f", &[]);
    let force = flags(&parsed, 'f')?;
    let mut failed = false;
    for mut pool in pools::open(&parsed.operands, &mut failed)? {
        if let Err(Stop::Failed(why) | Stop::Usage(why)) = pool.ask(&Request::Sync { force }) {
            let why = why.rsplit(": ").next().unwrap_or(&why).to_owned();
            eprintln!("sync '{}' failed: {why}", pool.name);
            failed = true;
        }
    }
    Ok(!failed)
}

/// `zpool freeze`: for tests of intent logs. OpenZFS lists it nowhere either.
pub fn freeze(args: &[OsString]) -> CommandResult {
    let parsed = getopt::parse(args, "", &[]);
    if let Some(opt) = parsed.opts.first() {
        return Err(Stop::bad_option(opt));
    }
    let name = one_pool(&parsed.operands, "missing pool name")?;
    match connect(name)?.ask(&Request::Freeze) {
        Ok(_) => Ok(true),
        Err(e) => Err(Stop::Failed(format!("cannot freeze '{name}': {}", e.what()))),
    }
}

/// `zpool set`.
pub fn set(args: &[OsString]) -> CommandResult {
    let words: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    if let Some(flag) = words.first().and_then(|word| word.strip_prefix('-')) {
        return Err(Stop::usage(format!("invalid option '{}'", flag.chars().take(1).collect::<String>())));
    }
    let (setting, name, vdev) = match &words[..] {
        [] => return Err(Stop::usage("missing property=value argument")),
        [_] => return Err(Stop::usage("missing pool name")),
        [setting, name] => (setting, name, None),
        [setting, name, vdev] => (setting, name, Some(vdev)),
        _ => return Err(Stop::usage("too many pool names")),
    };
    let Some((property, value)) = setting.split_once('=') else {
        return Err(Stop::usage("missing value in property=value argument"));
    };
    pool_names::check(name).map_err(|why| Stop::Failed(format!("cannot open '{name}': {why}")))?;
    if let Some(vdev) = vdev {
        return get_vdev::set(name, vdev, (property, value), args);
    }
    let mut connection = connect(name)?;
    let failed = |why: &str| Stop::Failed(format!("cannot set property for '{name}': {why}"));
    if property == "compatibility"
        && let Some(warning) = Allowed::load(value).map_err(|why| Stop::Failed(format!("Error: {why}")))?.warning
    {
        eprintln!("Warning: {warning}");
    }
    pool_props::check(property, value, When::Set).map_err(|why| failed(&why))?;
    if property == pool_props::NO_EFFECT {
        println!("Note: property '{property}' no longer has any effect");
        return Ok(true);
    }
    let request =
        Request::Set { name: property.to_owned(), value: value.to_owned(), history: history_line("set", args) };
    // the pool's process may make no file there
    let file = Some(Path::new(value)).filter(|file| property == "cachefile" && file.is_absolute());
    file.map_or(Ok(()), cachefile::offer).map_err(|e| failed(e.what()))?;
    let answer = connection.ask(&request);
    if let (Some(file), false) = (file, matches!(answer, Ok(PoolReply::Done))) {
        // if it is still without pools
        drop(cachefile::remove(file, ""));
    }
    match answer {
        Ok(PoolReply::Done) => Ok(true),
        Ok(_) => Err(failed("its process answers another question")),
        Err(e) => Err(failed(e.what())),
    }
}

/// `zpool reguid`.
pub fn reguid(args: &[OsString]) -> CommandResult {
    let parsed = getopt::parse(args, "g:", &[]);
    let mut guid = None;
    for opt in &parsed.opts {
        match opt {
            Opt::Value('g', text) => {
                // as C reads numbers: -1 is the greatest
                let number = text.parse().or_else(|_| text.parse::<i64>().map(|n| n as u64));
                guid = Some(Guid::new(number.map_err(|_| Stop::usage(format!("invalid GUID: {text}")))?));
            }
            other => return Err(Stop::bad_option(other)),
        }
    }
    let name = one_pool(&parsed.operands, "missing pool name")?;
    let mut connection = connect(name)?;
    let failed = |why: &str| Stop::Failed(format!("cannot reguid '{name}': {why}"));
    if let Some(guid) = guid {
        let pools = client::survey().map_err(|e| failed(e.what()))?;
        if pools.hellos.iter().any(|hello| hello.guid == guid) {
            return Err(failed("pool already exists"));
        }
        // it may have that guid
        if let Some((_, why)) = pools.silent.first() {
            return Err(failed(why.what()));
        }
    }
    match connection.ask(&Request::Reguid { guid, history: history_line("reguid", args) }) {
        Ok(_) => Ok(true),
        Err(e) => Err(failed(e.what())),
    }
}

/// Whether the only flag is given.
fn flags(parsed: &getopt::Parsed, known: char) -> Result<bool, Stop> {
    for opt in &parsed.opts {
        if *opt != Opt::Flag(known) {
            return Err(Stop::bad_option(opt));
        }
    }
    Ok(!parsed.opts.is_empty())
}

pub(super) fn one_pool<'a>(operands: &'a [String], missing: &str) -> Result<&'a String, Stop> {
    match operands {
        [] => Err(Stop::usage(missing)),
        [name] => Ok(name),
        _ => Err(Stop::usage("too many arguments")),
    }
}
