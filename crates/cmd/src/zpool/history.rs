//! `zpool history`.

use std::ffi::OsString;

use base::{Error, Result, ShownLines};
use format::nvlist::NvList;
use protocol::client;
use protocol::wire::{PoolReply, Request};

use super::command::{CommandResult, Stop};
use super::history_text::{Detail, record_text};
use super::pools;
use crate::getopt::{self, Opt};

/// Runs the command.
pub fn run(args: &[OsString]) -> CommandResult {
    let parsed = getopt::parse(args, "li", &[]);
    let mut detail = Detail::default();
    for opt in &parsed.opts {
        match opt {
            Opt::Flag('l') => detail.long = true,
            Opt::Flag('i') => detail.internal = true,
            other => return Err(Stop::bad_option(other)),
        }
    }
    let mut failed = false;
    let mut shown = 0;
    for open in pools::open(&parsed.operands, &mut failed)? {
        println!("History for '{}':", open.name);
        match show(&open.name, detail) {
            Ok(()) => println!(),
            Err(e) => {
                eprintln!("cannot get history for '{}': {}", open.name, e.what());
                failed = true;
            }
        }
        shown += 1;
    }
    if parsed.operands.is_empty() && shown == 0 && !failed {
        eprintln!("no pools available");
    }
    Ok(!failed)
}

fn show(pool: &str, detail: Detail) -> Result<()> {
    let Some(mut connection) = client::connect(pool)? else {
        return Err(Error::new(base::Kind::NotFound, "no such pool"));
    };
    let mut result = Ok(());
    let mut part = |reply| {
        if let (PoolReply::History(records), Ok(())) = (reply, &result) {
            result = print_records(&records, detail);
        }
    };
    let last = connection.ask_in_parts(&Request::History, &mut part)?;
    part(last);
    result
}

fn print_records(records: &[String], detail: Detail) -> Result<()> {
    for hex in records {
        let record = unpack(hex)?;
        print!("{}", ShownLines(record_text(&record, detail)));
    }
    Ok(())
}

/// A list that was sent in hexadecimal digits.
pub fn unpack(hex: &str) -> Result<NvList> {
    NvList::unpack(&bytes_of(hex)?)
}

fn bytes_of(hex: &str) -> Result<Vec<u8>> {
    let digit = |c: &u8| char::from(*c).to_digit(16).map(|digit| digit as u8);
    let pairs = hex.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    });
    pairs.collect::<Option<Vec<u8>>>().ok_or_else(|| Error::corrupt("record is not in hexadecimal digits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits() {
        assert_eq!(bytes_of("00ff1a").unwrap(), [0, 255, 26]);
        assert!(bytes_of("0").is_err() && bytes_of("0g").is_err() && bytes_of("€0").is_err());
    }
}
