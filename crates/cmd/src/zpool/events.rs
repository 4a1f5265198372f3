//! `zpool events`: what has happened to pools since they were imported, and to those that are no more.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;

use base::ShownLines;
use format::nvlist::{NvList, Value};
use protocol::rundir::RunDir;
use protocol::wire::{PoolReply, Request};
use protocol::words::time;
use protocol::{client, pool_names};
use vdev::VdevState;

use super::command::{CommandResult, Stop};
use super::history::unpack;
use super::pools;
use crate::getopt::{self, Opt};

/// How often pools are asked for new events.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What is shown.
#[derive(Default)]
struct EventOptions {
    verbose: bool,
    scripted: bool,
    follow: bool,
    clear: bool,
}

/// Runs the command.
pub fn run(args: &[OsString]) -> CommandResult {
    let parsed = getopt::parse(args, "vHfc", &[]);
    let mut options = EventOptions::default();
    for opt in &parsed.opts {
        match opt {
            Opt::Flag('v') => options.verbose = true,
            Opt::Flag('H') => options.scripted = true,
            Opt::Flag('f') => options.follow = true,
            Opt::Flag('c') => options.clear = true,
            other => return Err(Stop::bad_option(other)),
        }
    }
    match &parsed.operands[..] {
        [_, _, ..] => return Err(Stop::usage("too many arguments")),
        [name] if pool_names::check(name).is_err() => {
            return Err(Stop::usage(format!("invalid pool name '{name}'")));
        }
        [name] if !options.clear && !pools::is_imported(name)? => {
            return Err(Stop::Failed(format!("cannot open '{name}': no such pool")));
        }
        _ => {}
    }
    let is_more = !parsed.operands.is_empty() || options.verbose || options.scripted || options.follow;
    if options.clear && is_more {
        return Err(Stop::usage("invalid options combined with -c"));
    }
    if options.clear {
        return clear();
    }
    // those that do not answer are told
    let mut failed = false;
    if parsed.operands.is_empty() {
        pools::all(&mut failed)?;
    }
    Ok(show(&parsed.operands, &options)? && !failed)
}

fn clear() -> CommandResult {
    let (mut failed, mut sum) = (false, 0);
    for mut pool in pools::open(&[], &mut failed)? {
        if let PoolReply::Cleared(count) = pool.ask(&Request::ClearEvents)? {
            sum += count;
        }
    }
    sum += folders()?.iter().map(|folder| folder.forget_ended_events() as u64).sum::<u64>();
    println!("cleared {sum} events");
    Ok(!failed)
}

fn show(wanted: &[String], options: &EventOptions) -> CommandResult {
    if !options.scripted {
        println!("{:<30} CLASS", "TIME");
    }
    // by the load of the pool: one that is imported again counts from 1
    let mut last: HashMap<(String, u32), u64> = HashMap::new();
    // what is kept of a pool's events has been shown in part while it was there
    let mut shown: HashSet<EventKey> = HashSet::new();
    let mut processes = None;
    loop {
        let mut new: Vec<NvList> = Vec::new();
        let hellos = client::hellos().map_err(|e| Stop::Failed(e.to_string()))?;
        let now: Vec<u32> = hellos.iter().map(|hello| hello.pid).collect();
        if wanted.is_empty() && processes.as_ref() != Some(&now) {
            processes = Some(now);
            let ended = folders()?.iter().flat_map(RunDir::ended_events).collect::<Vec<_>>();
            new.extend(unpacked(&ended)?.into_iter().filter(|event| !shown.contains(&key_of(event))));
        }
        for hello in hellos.into_iter().filter(|hello| wanted.is_empty() || wanted.contains(&hello.pool)) {
            // exported since it was listed
            let Ok(Some(mut connection)) = client::connect(&hello.pool) else { continue };
            let known = last.entry((hello.pool, hello.pid)).or_default();
            match connection.ask(&Request::Events { after: *known }) {
                Ok(PoolReply::Events { events, last, dropped }) => {
                    if dropped > 0 && *known > 0 {
                        println!("dropped {dropped} events");
                    }
                    *known = last;
                    new.extend(unpacked(&events)?);
                }
                Ok(_) => {}
                Err(e) if options.follow => tracing::debug!("no events: {e}"),
                Err(e) => return Err(Stop::Failed(format!("cannot read events: {}", e.what()))),
            }
        }
        new.sort_by_key(time_of);
        new.iter().for_each(|event| print!("{}", ShownLines(text_of(event, options))));
        if !options.follow {
            return Ok(true);
        }
        shown.extend(new.iter().map(key_of));
        // a pipe wants to see it now
        if std::io::stdout().flush().is_err() {
            return Ok(true);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Where events are kept of pools that are no more.
fn folders() -> Result<Vec<RunDir>, Stop> {
    RunDir::all().map_err(|e| Stop::Failed(e.to_string()))
}

fn unpacked(events: &[String]) -> Result<Vec<NvList>, Stop> {
    let all: base::Result<Vec<NvList>> = events.iter().map(|hex| unpack(hex)).collect();
    all.map_err(|e| Stop::Failed(format!("cannot read events: {}", e.what())))
}

/// What tells events apart: their times, and their numbers.
type EventKey = ((i64, i64), u64);

fn key_of(event: &NvList) -> EventKey {
    (time_of(event), event.opt_u64("eid").unwrap_or(0))
}

/// When it happened, in seconds and nanoseconds since 1970.
pub fn time_of(event: &NvList) -> (i64, i64) {
    let time = event.iter().find_map(|(name, value)| match value {
        Value::I64s(time) if name == "time" => Some((time.first().copied()?, time.get(1).copied()?)),
        _ => None,
    });
    time.unwrap_or_default()
}

fn text_of(event: &NvList, options: &EventOptions) -> String {
    let (seconds, nanoseconds) = time_of(event);
    let when = time::local(seconds.try_into().unwrap_or(0), c"%b %e %Y %H:%M:%S");
    let gap = if options.scripted { '\t' } else { ' ' };
    let mut text = format!("{when}.{nanoseconds:09}{gap}{}\n", event.opt_str("class").unwrap_or_default());
    if options.verbose {
        pairs(event, 8, &mut text);
        text.push('\n');
    }
    text
}

/// The pairs of a list, a line each.
fn pairs(list: &NvList, depth: usize, out: &mut String) {
    fn hexes<T: std::fmt::LowerHex>(numbers: &[T]) -> String {
        numbers.iter().map(|number| format!("{number:#x} ")).collect()
    }
    for (name, value) in list.iter() {
        *out += &format!("{:depth$}{name} = ", "");
        let shown = match value {
            Value::Flag => "1".to_owned(),
            Value::Bool(is_set) => u8::from(*is_set).to_string(),
            Value::Byte(number) | Value::U8(number) => format!("{number:#x}"),
            Value::I8(number) => format!("{number:#x}"),
            Value::I16(number) => format!("{number:#x}"),
            Value::U16(number) => format!("{number:#x}"),
            Value::I32(number) => format!("{number:#x}"),
            Value::U32(number) => format!("{number:#x}"),
            Value::I64(number) | Value::Hrtime(number) => format!("{number:#x}"),
            Value::U64(state) if matches!(name, "vdev_state" | "vdev_laststate") => {
                format!("\"{}\" ({state:#x})", VdevState::word_of(*state))
            }
            Value::U64(number) => format!("{number:#x}"),
            Value::Str(text) => format!("\"{text}\""),
            Value::I8s(numbers) => hexes(numbers),
            Value::U8s(numbers) => hexes(numbers),
            Value::I16s(numbers) => hexes(numbers),
            Value::U16s(numbers) => hexes(numbers),
            Value::I32s(numbers) => hexes(numbers),
            Value::U32s(numbers) => hexes(numbers),
            Value::I64s(numbers) => hexes(numbers),
            Value::U64s(numbers) => hexes(numbers),
            Value::Strs(texts) => texts.iter().map(|text| format!("\"{text}\" ")).collect(),
            Value::List(inner) => {
                *out += "(embedded nvlist)\n";
                pairs(inner, depth + 8, out);
                format!("{:depth$}(end {name})", "")
            }
            Value::Double(_) | Value::Bytes(_) | Value::Bools(_) | Value::Lists(_) => "<unknown>".to_owned(),
        };
        *out += &shown;
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_as_text() {
        let mut event = NvList::new();
        event.set("class", Value::Str("resource.fs.zfs.statechange".into()));
        event.set("vdev_state", Value::U64(5));
        event.set("pool_guid", Value::U64(0x1f));
        event.set("time", Value::I64s(vec![1_000_000_000, 7]));
        time::use_utc();
        let short = "Sep  9 2001 01:46:40.000000007 resource.fs.zfs.statechange\n";
        assert_eq!(text_of(&event, &EventOptions::default()), short);
        let verbose = text_of(&event, &EventOptions { verbose: true, scripted: true, ..EventOptions::default() });
        let expect = short.replace(" res", "\tres")
            + "        class = \"resource.fs.zfs.statechange\"\n        vdev_state = \"FAULTED\" (0x5)\n        \
               pool_guid = 0x1f\n        time = 0x3b9aca00 0x7 \n\n";
        assert_eq!(verbose, expect);
    }
}
