//! `zfs receive`: its command line. The pool's process reads the stream from this one's standard input.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::fd::AsFd;

use dsl::Property;
use dsl::property::is_user_property;
use protocol::datasets::{DatasetRequest, Response, Types};
use protocol::streams::{ReceiveOrder, StreamNote};

use super::client::{self, Pools};
use super::command::{Outcome, Stopped, ZfsCommand, lines, parse, usage};
use super::request::history_line;
use crate::getopt::{Opt, Parsed};
use crate::output::{FAILED, USAGE};

const FROM_TERMINAL: &str =
    "Error: Backup stream can not be read from a terminal.\nYou must redirect standard input.\n";

/// `zfs receive`.
pub(super) fn receive(pools: &dyn Pools, command: &ZfsCommand, args: &[OsString]) -> Result<Outcome, Stopped> {
    let parsed = parse(command, args, ":o:x:dehMnuvFsAc", &[])?;
    let has = |flag: char| parsed.opts.contains(&Opt::Flag(flag));
    if has('d') && has('e') {
        return Err(misuse(command, "invalid option combination: -d and -e are mutually exclusive\n"));
    }
    let target = match &parsed.operands[..] {
        [] => return Err(Outcome::misused(command, "missing snapshot argument")),
        [target] => target,
        _ => return Err(Outcome::misused(command, "too many arguments")),
    };
    if has('A') {
        if ['d', 'e', 'n', 's', 'u'].into_iter().any(has) {
            return Err(misuse(command, "invalid option\n"));
        }
        return abort(pools, target, args);
    }
    let order = order_of(command, &parsed, target, args)?;
    if let Some(flag) = ['d', 'e'].into_iter().find(|flag| target.contains('@') && has(*flag)) {
        let why = format!("invalid argument - snapshot not allowed with -{flag}");
        return Ok(Outcome::failed(format!("cannot receive: {why}\n")));
    }
    if std::io::stdin().is_terminal() {
        return Ok(Outcome::failed(FROM_TERMINAL.to_owned()));
    }
    let mut changed = order.set.iter().map(|(name, _)| name).chain(&order.exclude);
    if let Some(name) = changed.find(|name| !is_receivable(name)) {
        return Ok(Outcome::failed(format!("cannot receive: cannot receive: invalid property '{name}'\n")));
    }
    if let Err(why) = client::check_name(target, Types::DATASETS) {
        return Ok(Outcome::failed(format!("cannot receive: {why}\n")));
    }
    let pool = client::pool_of(target);
    if !pools.has(pool)? {
        let fs = target.split('@').next().unwrap_or_default();
        return Ok(Outcome::failed(format!("cannot receive: destination '{fs}' does not exist\n")));
    }
    let mut note = |told: StreamNote| {
        if let StreamNote::Line(line) = told {
            println!("{}", base::ShownLines(line));
        }
    };
    let request = DatasetRequest::Receive(order);
    client::widen(std::io::stdin().as_fd());
    match pools.stream(pool, &request, std::io::stdin().as_fd(), &mut note)? {
        Response::Done { failures, notes } => {
            let code = if failures.is_empty() { 0 } else { FAILED };
            let notes = notes.into_iter().map(|note| note + "\n").collect::<String>();
            Ok(Outcome { err: notes + &with_token(pools, &lines(&failures)), code, ..Outcome::default() })
        }
        _ => Err(client::unexpected(pool).into()),
    }
}

/// What the flags say.
fn order_of(command: &ZfsCommand, parsed: &Parsed, target: &str, args: &[OsString]) -> Result<ReceiveOrder, Stopped> {
    let has = |flag: char| parsed.opts.contains(&Opt::Flag(flag));
    let values = |flag: char| {
        parsed.opts.iter().filter_map(move |opt| match opt {
            Opt::Value(own, text) if *own == flag => Some(text.as_str()),
            _ => None,
        })
    };
    let twice = |name: &str| misuse(command, &format!("property '{name}' specified multiple times\n"));
    let mut set: Vec<(String, String)> = Vec::new();
    for text in values('o') {
        let Some((name, value)) = text.split_once('=') else {
            return Err(misuse(command, "missing '=' for property=value argument\n"));
        };
        let full = full_name(name);
        match set.iter().any(|(other, _)| *other == full) {
            true => return Err(twice(name)),
            false => set.push((full, value.to_owned())),
        }
    }
    let origin = set.iter().position(|(name, _)| name == "origin").map(|at| set.remove(at).1);
    let mut exclude: Vec<String> = Vec::new();
    for name in values('x') {
        let full = full_name(name);
        if name.contains('=') {
            return Err(misuse(command, "invalid character '=' in property argument\n"));
        }
        if exclude.contains(&full) || set.iter().any(|(other, _)| *other == full) {
            return Err(twice(name));
        }
        exclude.push(full);
    }
    Ok(ReceiveOrder {
        target: target.to_owned(),
        append_path: has('d'),
        append_name: has('e'),
        force: has('F'),
        resumable: has('s'),
        no_mount: has('u'),
        force_unmount: has('M'),
        skip_holds: has('h'),
        set,
        exclude,
        origin,
        corrective: has('c'),
        dry_run: has('n'),
        verbose: has('v'),
        history: history_line("receive", args),
    })
}

/// The name that a property is stored by; `compress` is `compression`.
fn full_name(name: &str) -> String {
    Property::find(name).map_or_else(|| name.to_owned(), |property| property.name().to_owned())
}

/// Whether a property may be set, or left out, while something is received.
fn is_receivable(name: &str) -> bool {
    match Property::find(name) {
        None => is_user_property(name),
        // those of encryption have to fit the stream
        Some(Property::Encryption | Property::Keyformat | Property::Keylocation | Property::Pbkdf2iters) => true,
        Some(Property::Version | Property::Volsize) => false,
        Some(property) => !property.is_read_only(),
    }
}

fn abort(pools: &dyn Pools, target: &str, args: &[OsString]) -> Result<Outcome, Stopped> {
    let pool = match super::request::pool_for(pools, target, Types::DATASETS)? {
        Ok(pool) => pool,
        Err(line) => return Ok(Outcome::failed(line)),
    };
    let history = history_line("receive", args);
    match pools.ask(&pool, &DatasetRequest::AbortReceive { dataset: target.to_owned(), history })? {
        Response::Done { failures, .. } => {
            let code = if failures.is_empty() { 0 } else { FAILED };
            Ok(Outcome { err: lines(&failures), code, ..Outcome::default() })
        }
        _ => Err(client::unexpected(&pool).into()),
    }
}

/// Where a line asks for the token of an interrupted receive, that takes its place.
fn with_token(pools: &dyn Pools, text: &str) -> String {
    const ASKED: &str = "$(zfs get -H -o value receive_resume_token ";
    let Some((before, rest)) = text.split_once(ASKED) else { return text.to_owned() };
    let Some((name, after)) = rest.split_once(')') else { return text.to_owned() };
    match super::get::value_of(pools, name, "receive_resume_token") {
        Some(token) => format!("{before}{token}{after}"),
        None => text.to_owned(),
    }
}

fn misuse(command: &ZfsCommand, why: &str) -> Outcome {
    Outcome { err: format!("{why}{}", usage(command)), code: USAGE, ..Outcome::default() }
}
