//! `zfs send`: its command line. The pool's process writes the stream to this one's standard output.

mod progress;
mod title;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::fd::AsFd;

use protocol::datasets::{DatasetRequest, Response, Types};
use protocol::streams::{SendOrder, StreamNote};

use super::client::{self, Pools};
use super::command::{Outcome, Stopped, ZfsCommand, lines, parse, usage};
use super::request::pool_for;
use crate::getopt::{Long, Opt, Parsed};
use crate::output::{FAILED, USAGE};
use progress::{SendProgress, SendShown};

const LONG: [Long; 18] = [
    Long { name: "replicate", takes_value: false, code: 'R' },
    Long { name: "skip-missing", takes_value: false, code: 's' },
    Long { name: "redact", takes_value: true, code: 'd' },
    Long { name: "props", takes_value: false, code: 'p' },
    Long { name: "parsable", takes_value: false, code: 'P' },
    Long { name: "dedup", takes_value: false, code: 'D' },
    Long { name: "proctitle", takes_value: false, code: 'V' },
    Long { name: "verbose", takes_value: false, code: 'v' },
    Long { name: "dryrun", takes_value: false, code: 'n' },
    Long { name: "large-block", takes_value: false, code: 'L' },
    Long { name: "embed", takes_value: false, code: 'e' },
    Long { name: "resume", takes_value: true, code: 't' },
    Long { name: "compressed", takes_value: false, code: 'c' },
    Long { name: "raw", takes_value: false, code: 'w' },
    Long { name: "backup", takes_value: false, code: 'b' },
    Long { name: "holds", takes_value: false, code: 'h' },
    Long { name: "saved", takes_value: false, code: 'S' },
    Long { name: "exclude", takes_value: true, code: 'X' },
];

const NO_DEDUP: &str = "WARNING: deduplicated send is no longer supported.  A regular,\n\
                        non-deduplicated stream will be generated.\n\n";
const NO_TYPE: &str = "Warning: incremental source didn't specify type, assuming snapshot. Use '@' or '#' prefix to \
                       avoid ambiguity.\n";
const TO_TERMINAL: &str = "Error: Stream can not be written to a terminal.\nYou must redirect standard output.\n";

/// `zfs send`.
pub(super) fn send(pools: &dyn Pools, command: &ZfsCommand, args: &[OsString]) -> Result<Outcome, Stopped> {
    let parsed = parse(command, args, ":i:I:RsDpVvnPLeht:cwbd:SX:", &LONG)?;
    let (mut order, shown) = order_of(command, &parsed)?;
    let mut early = String::new();
    if parsed.opts.contains(&Opt::Flag('D')) {
        early += NO_DEDUP;
    }
    if !order.dry_run && std::io::stdout().is_terminal() {
        return Ok(Outcome::failed(TO_TERMINAL.to_owned()));
    }
    check_from(command, &mut order, &mut early)?;
    eprint!("{early}");
    let named = match &order.token {
        // the receiver's token names the snapshot
        Some(_) => return send_by_token(pools, &order, shown),
        None => order.to.clone(),
    };
    let types = Types { bookmarks: false, ..Types::DATASETS };
    match pool_for(pools, &named, types)? {
        Ok(pool) => run(pools, &pool, &order, shown),
        Err(line) => Ok(Outcome::failed(line)),
    }
}

/// What the flags say, and what is shown meanwhile.
fn order_of(command: &ZfsCommand, parsed: &Parsed) -> Result<(SendOrder, SendShown), Stopped> {
    let mut order = SendOrder::default();
    let mut shown = SendShown::default();
    for opt in &parsed.opts {
        match opt {
            Opt::Value('i' | 'I', _) if order.from.is_some() => return Err(misuse(command, "")),
            Opt::Value('i', from) => order.from = Some(from.clone()),
            Opt::Value('I', from) => (order.from, order.all) = (Some(from.clone()), true),
            Opt::Value('t', token) => order.token = Some(token.clone()),
            Opt::Value('d', book) => order.redact = Some(book.clone()),
            Opt::Value('X', names) => {
                for name in names.split(',') {
                    if client::check_name(name, Types::DATASETS).is_err() || !name.contains('/') {
                        return Err(misuse(command, &format!("-X {name}: not a valid non-root dataset name.\n")));
                    }
                    order.exclude.push(name.to_owned());
                }
            }
            Opt::Flag('R') => order.replicate = true,
            Opt::Flag('s') => order.skip_missing = true,
            Opt::Flag('p') => order.properties = true,
            Opt::Flag('b') => order.backup = true,
            Opt::Flag('h') => order.holds = true,
            Opt::Flag('P') => (order.parsable, shown.parsable) = (true, true),
            Opt::Flag('V') => (order.sized, shown.title) = (true, true),
            Opt::Flag('v') => (order.verbosity, shown.lines) = (order.verbosity + 1, true),
            Opt::Flag('n') => order.dry_run = true,
            Opt::Flag('L') => order.large_blocks = true,
            Opt::Flag('e') => order.embedded = true,
            Opt::Flag('c') => order.compressed = true,
            Opt::Flag('w') => {
                (order.raw, order.compressed, order.embedded, order.large_blocks) = (true, true, true, true);
            }
            Opt::Flag('S') => order.saved = true,
            _ => {}
        }
    }
    if order.parsable && order.verbosity == 0 {
        order.verbosity = 1;
    }
    if !order.exclude.is_empty() && !order.replicate {
        let line = "Cannot specify dataset exclusion (-X) on a non-recursive send.\n";
        return Err(Outcome::failed(line.to_owned()));
    }
    check_operands(command, parsed, &mut order)?;
    Ok((order, shown))
}

fn check_operands(command: &ZfsCommand, parsed: &Parsed, order: &mut SendOrder) -> Result<(), Stopped> {
    let is_package = order.replicate || order.properties || order.backup || order.holds;
    let is_redacted = order.redact.is_some();
    match &parsed.operands[..] {
        _ if order.token.is_some() && (order.from.is_some() || is_package || order.saved || is_redacted) => {
            return Err(misuse(command, "invalid flags combined with -t\n"));
        }
        [] if order.token.is_some() => return Ok(()),
        [] => return Err(Outcome::misused(command, "missing snapshot argument")),
        [to] if order.token.is_none() => to.clone_into(&mut order.to),
        _ => return Err(Outcome::misused(command, "too many arguments")),
    }
    if order.saved {
        let packed = order.large_blocks || order.embedded || order.compressed;
        if order.from.is_some() || is_package || packed || is_redacted {
            return Err(misuse(command, "incompatible flags combined with saved send flag\n"));
        }
        if order.to.contains('@') {
            let why = "saved send must specify the dataset with partially-received state\n";
            return Err(misuse(command, why));
        }
    }
    if order.raw && is_redacted {
        return Err(Outcome::failed("Error: raw sends may not be redacted.\n".to_owned()));
    }
    if order.skip_missing && !order.replicate {
        return Err(misuse(command, "skip-missing flag can only be used in conjunction with replicate\n"));
    }
    Ok(())
}

/// Completes the name of what the stream begins from.
fn check_from(command: &ZfsCommand, order: &mut SendOrder, early: &mut String) -> Result<(), Stopped> {
    let fs = order.to.split('@').next().unwrap_or_default().to_owned();
    let many = order.replicate || order.all;
    let from_bookmark = order.from.as_ref().is_some_and(|from| from.contains('#'));
    if many && order.redact.is_some() && !from_bookmark {
        return Err(Outcome::failed("Error: multiple snapshots cannot be sent redacted.\n".to_owned()));
    }
    if many && !order.to.contains('@') {
        let line = "Error: Unsupported flag with filesystem or bookmark.\n";
        return Err(Outcome::failed(line.to_owned()));
    }
    let Some(from) = &mut order.from else { return Ok(()) };
    if many && from.contains('#') {
        return Err(Outcome::failed("Error: multiple snapshots cannot be sent from a bookmark.\n".to_owned()));
    }
    if !from.contains(['@', '#']) {
        if !many {
            *early += NO_TYPE;
        }
        *from = format!("@{from}");
    }
    if from.starts_with(['@', '#']) {
        *from = format!("{fs}{from}");
    }
    if from.matches(['@', '#']).count() > 1 {
        return Err(misuse(command, "invalid incremental source\n"));
    }
    Ok(())
}

/// The exit code of `zfs send -t` that fails: clients tell by it that a token is of no use any more.
const RESUME_FAILED: u8 = 255;

/// Sends what is left of a stream.
fn send_by_token(pools: &dyn Pools, order: &SendOrder, shown: SendShown) -> Result<Outcome, Stopped> {
    let mut outcome = resume(pools, order, shown)?;
    if outcome.code == FAILED {
        outcome.code = RESUME_FAILED;
    }
    Ok(outcome)
}

/// Sends what is left of a stream, by the pool that has the snapshot.
fn resume(pools: &dyn Pools, order: &SendOrder, shown: SendShown) -> Result<Outcome, Stopped> {
    let corrupt = |why: &str| Ok(Outcome::failed(format!("cannot resume send: {why}\n")));
    let token = order.token.as_deref().unwrap_or_default();
    let state = match dsl::resume::ResumeState::parse(token) {
        Ok(state) => state,
        Err(error) => return corrupt(error.what()),
    };
    let name = state.to_name.clone();
    if order.verbosity > 0 {
        let text = format!("resume token contents:\n{}", state.text());
        if order.dry_run { print!("{text}") } else { eprint!("{text}") }
    }
    match pool_for(pools, &name, Types::DATASETS)? {
        Ok(pool) => run(pools, &pool, order, shown),
        Err(_) => corrupt(&format!("'{name}' used in the initial send no longer exists")),
    }
}

fn run(pools: &dyn Pools, pool: &str, order: &SendOrder, shown: SendShown) -> Result<Outcome, Stopped> {
    let mut progress = match SendProgress::begin(shown) {
        Ok(progress) => progress,
        Err(error) => return Ok(Outcome::failed(format!("cannot show progress: {error}\n"))),
    };
    let mut note = |told: StreamNote| match told {
        StreamNote::Alive => {}
        StreamNote::Line(line) if order.dry_run => println!("{}", base::ShownLines(line)),
        StreamNote::Line(line) => progress.aside(|| eprintln!("{}", base::ShownLines(line))),
        StreamNote::Progress { snapshot, bytes, size } => progress.tell(&snapshot, bytes, size),
    };
    let request = DatasetRequest::Send(order.clone());
    client::widen(std::io::stdout().as_fd());
    match pools.stream(pool, &request, std::io::stdout().as_fd(), &mut note)? {
        Response::Done { failures, .. } => {
            let code = if failures.is_empty() { 0 } else { FAILED };
            Ok(Outcome { err: lines(&failures), code, ..Outcome::default() })
        }
        _ => Err(client::unexpected(pool).into()),
    }
}

fn misuse(command: &ZfsCommand, why: &str) -> Outcome {
    Outcome { err: format!("{why}{}", usage(command)), code: USAGE, ..Outcome::default() }
}
