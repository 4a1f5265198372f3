//! `zpool status`.

use std::ffi::OsString;

use base::ShownLines;

use super::command::{CommandResult, POWER, Stop};
use super::names::NameStyle;
use super::pools::{self, Repeat, Timestamp};
use super::status_options::{PoolStatus, StatusOptions};
use super::status_text::text;
use super::{reason, status_json};
use crate::getopt::{self, Long, Opt};

/// Runs the command.
pub fn run(args: &[OsString]) -> CommandResult {
    const LONG: [Long; 5] = [
        POWER,
        Long { name: "json", takes_value: false, code: 'j' },
        Long { name: "json-int", takes_value: false, code: '1' },
        Long { name: "json-flat-vdevs", takes_value: false, code: '2' },
        Long { name: "json-pool-key-guid", takes_value: false, code: '3' },
    ];
    let parsed = getopt::parse(args, "jdDegiLpPstT:vx", &LONG);
    let mut options = StatusOptions { style: NameStyle::from_env(), ..StatusOptions::default() };
    let mut timestamp = Timestamp::None;
    for opt in &parsed.opts {
        match opt {
            Opt::Flag('d') => options.direct = true,
            Opt::Flag('D') => options.dedup = true,
            Opt::Flag('e') => options.only_unhealthy = true,
            Opt::Flag('g') => options.style.guids = true,
            Opt::Flag('i') => options.initialize = true,
            Opt::Flag('L') => options.style.real_paths = true,
            Opt::Flag('P') => options.style.whole_paths = true,
            Opt::Flag('p') => options.literal = true,
            Opt::Flag('s') => options.slow = true,
            Opt::Flag('t') => options.trim = true,
            Opt::Flag('v') => options.verbose = true,
            Opt::Flag('x') => options.only_problems = true,
            Opt::Flag('j') => options.json = true,
            Opt::Flag('1') => (options.json_int, options.literal) = (true, true),
            Opt::Flag('2') => options.json_flat = true,
            Opt::Flag('3') => options.json_guid_keys = true,
            Opt::Flag('4') => return Err(Stop::no_power()),
            Opt::Value('T', form) => timestamp = Timestamp::parse(form)?,
            other => return Err(Stop::bad_option(other)),
        }
    }
    for (is_wrong, flag) in [
        (options.json_flat, "'--json-flat-vdevs' only works with '-j' option"),
        (options.json_int, "'--json-int' only works with '-j' option"),
        (options.json_guid_keys, "'json-pool-key-guid' only works with '-j' option"),
    ] {
        if is_wrong && !options.json {
            return Err(Stop::usage(flag));
        }
    }
    let (names, repeat) = Repeat::parse(parsed.operands)?;
    repeat.run(|| once(&names, &options, timestamp))
}

fn once(names: &[String], options: &StatusOptions, timestamp: Timestamp) -> CommandResult {
    let mut failed = false;
    let subjects = pools::ask_each(names, &mut failed, |mut open| {
        let pool = open.report()?;
        let damaged = if options.verbose && pool.error_count > 0 { open.damaged()? } else { Vec::new() };
        let dedup = if options.dedup { Some(open.dedup()?) } else { None };
        Ok(PoolStatus { pool, damaged, dedup })
    })?;
    if options.json {
        if !failed {
            println!("{}", status_json::all(&subjects, options, timestamp));
        }
        return Ok(!failed);
    }
    print!("{}", timestamp.line());
    let is_problem = |subject: &&PoolStatus| !reason::of(&subject.pool, None).is_healthy();
    let texts: Vec<String> = match options.only_problems {
        false => subjects.iter().map(|subject| text(subject, options)).collect(),
        true if names.is_empty() => subjects.iter().filter(is_problem).map(|s| text(s, options)).collect(),
        true => {
            // healthy ones take one line, and no empty one before it
            let mut out = String::new();
            let mut is_first = true;
            for subject in &subjects {
                if !is_problem(&subject) {
                    out += &format!("pool '{}' is healthy\n", subject.pool.name);
                } else {
                    out += if is_first { "" } else { "\n" };
                    out += &text(subject, options);
                }
                is_first = false;
            }
            vec![out]
        }
    };
    print!("{}", ShownLines(texts.join("\n")));
    if names.is_empty() && subjects.is_empty() && !failed {
        eprintln!("no pools available");
    } else if names.is_empty() && options.only_problems && texts.is_empty() && !failed {
        println!("all pools are healthy");
    }
    Ok(!failed)
}
