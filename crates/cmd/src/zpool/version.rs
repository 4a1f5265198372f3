//! `zpool version`.

use std::ffi::OsString;

use serde_json::json;

use super::command::{CommandResult, Stop};
use super::json;
use super::pools::Timestamp;
use crate::getopt::{self, Long, Opt};
use crate::version;

/// Runs the command.
pub fn run(args: &[OsString]) -> CommandResult {
    let parsed = getopt::parse(args, "j", &[Long { name: "json", takes_value: false, code: 'j' }]);
    if let Some(other) = parsed.opts.iter().find(|opt| **opt != Opt::Flag('j')) {
        return Err(Stop::bad_option(other));
    }
    if !parsed.operands.is_empty() {
        return Err(Stop::usage("too many arguments"));
    }
    if parsed.opts.is_empty() {
        print!("{}", version::of_openzfs());
    } else {
        let mut out = json::head("version", Timestamp::None, false);
        out.insert("zfs_version".into(), json!({ "userland": version::USERLAND, "kernel": version::KERNEL }));
        println!("{}", serde_json::Value::from(out));
    }
    Ok(true)
}
