//! What all commands of `zfs` have in common: how they read their command lines, and how they end.

use std::ffi::OsString;
use std::fmt::Write;

use dsl::Property;
use protocol::datasets::{Failure, Types};

use super::client::Pools;
use crate::getopt::{Long, Opt, Parsed};
use crate::output::{FAILED, USAGE};

/// What a command says, and how it ends.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(super) out: String,
    pub(super) err: String,
    pub(super) code: u8,
}

/// Stops a command: what it says then.
pub(super) type Stopped = Outcome;

/// A command of `zfs`.
pub(super) struct ZfsCommand {
    pub(super) name: &'static str,
    pub(super) run: fn(&dyn Pools, &ZfsCommand, &[OsString]) -> Result<Outcome, Stopped>,
    pub(super) usage: &'static str,
    /// Whether the usage text ends with the table of properties.
    pub(super) shows_properties: bool,
}

impl Outcome {
    pub(super) fn failed(err: String) -> Outcome {
        Outcome { err, code: FAILED, ..Outcome::default() }
    }

    /// Takes along what another part of the command says, and how it ends.
    pub(super) fn join(&mut self, part: Outcome) {
        self.out += &part.out;
        self.err += &part.err;
        self.code = self.code.max(part.code);
    }

    /// The command line makes no sense: why, and how to do it right.
    pub(super) fn misused(command: &ZfsCommand, why: impl std::fmt::Display) -> Outcome {
        Outcome { err: format!("{why}\n{}", usage(command)), code: USAGE, ..Outcome::default() }
    }
}

/// A pool process could not be asked, or could not answer.
impl From<base::Error> for Outcome {
    fn from(error: base::Error) -> Outcome {
        Outcome::failed(format!("{error}\n"))
    }
}

/// The flags `-j` and `--json-int`.
pub(super) const JSON: [Long; 2] = [
    Long { name: "json", takes_value: false, code: 'j' },
    Long { name: "json-int", takes_value: false, code: JSON_INT },
];
pub(super) const JSON_INT: char = 'J';

/// Takes a command line apart; what is no flag of the command ends it. As with getopt(3), a colon before
/// the short flags tells a missing value apart from an unknown flag.
pub(super) fn parse(command: &ZfsCommand, args: &[OsString], short: &str, long: &[Long]) -> Result<Parsed, Stopped> {
    let (short, tells_missing) = short.strip_prefix(':').map_or((short, false), |short| (short, true));
    let parsed = crate::getopt::parse(args, short, long);
    for opt in &parsed.opts {
        match opt {
            Opt::Flag(_) | Opt::Value(..) => {}
            Opt::Missing(flag) if tells_missing => {
                return Err(Outcome::misused(command, format_args!("missing argument for '{flag}' option")));
            }
            Opt::Missing(flag) | Opt::Unknown(flag) => {
                return Err(Outcome::misused(command, format_args!("invalid option '{flag}'")));
            }
        }
    }
    Ok(parsed)
}

/// The value of `-d`.
pub(super) fn parse_depth(command: &ZfsCommand, text: &str) -> Result<u32, Stopped> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    match i64::from_str_radix(digits, radix) {
        Ok(depth) if depth < 0 => Err(Outcome::misused(command, "Depth can not be negative.")),
        Ok(depth) => Ok(depth.try_into().unwrap_or(u32::MAX)),
        Err(_) => Err(Outcome::misused(command, format_args!("{text} is not an integer"))),
    }
}

/// The value of `-t`.
pub(super) fn parse_types(command: &ZfsCommand, text: &str) -> Result<Types, Stopped> {
    let mut types = Types::NONE;
    for name in text.split(',') {
        types = types.and(match name {
            "filesystem" | "fs" => Types::FILE_SYSTEMS,
            "volume" | "vol" => Types::VOLUMES,
            "snapshot" | "snap" => Types::SNAPSHOTS,
            "bookmark" => Types::BOOKMARKS,
            "all" => Types::ALL,
            _ => return Err(Outcome::misused(command, format_args!("invalid type '{name}'"))),
        });
    }
    Ok(types)
}

/// The lines of failures, for standard error.
pub(super) fn lines(failures: &[Failure]) -> String {
    failures.iter().map(|failure| format!("{}\n", failure.line)).collect()
}

/// Properties that are families: name, whether they can be set, values.
const FAMILIES: [(&str, bool, &str); 14] = [
    ("userused@...", false, "<size>"),
    ("groupused@...", false, "<size>"),
    ("projectused@...", false, "<size>"),
    ("userobjused@...", false, "<size>"),
    ("groupobjused@...", false, "<size>"),
    ("projectobjused@...", false, "<size>"),
    ("userquota@...", true, "<size> | none"),
    ("groupquota@...", true, "<size> | none"),
    ("projectquota@...", true, "<size> | none"),
    ("userobjquota@...", true, "<size> | none"),
    ("groupobjquota@...", true, "<size> | none"),
    ("projectobjquota@...", true, "<size> | none"),
    ("written@<snap>", false, "<size>"),
    ("written#<bookmark>", false, "<size>"),
];

/// How to use one command.
pub(super) fn usage(command: &ZfsCommand) -> String {
    let mut text = format!("usage:\n{}", command.usage);
    if command.shows_properties {
        text.push_str(&properties());
    } else {
        text.push_str(HINT);
    }
    text
}

pub(super) const HINT: &str = "\nFor the property list, run: zfs get\n";

fn properties() -> String {
    let mut text = "\nThe following properties are supported:\n".to_owned();
    let mut line = |name: &str, edit: bool, inherit: bool, values: &str| {
        let (edit, inherit) = (if edit { "YES" } else { " NO" }, if inherit { "  YES" } else { "   NO" });
        writeln!(text, "\t{name:<15} {edit}    {inherit}   {values}").expect("writing to a string does not fail");
    };
    let mut shown: Vec<Property> = Property::all().filter(|property| property.is_shown()).collect();
    let is_plainly_read_only = |property: &Property| property.info().setting == dsl::property::Setting::ReadOnly;
    shown.sort_by_key(|property| (!is_plainly_read_only(property), property.name()));
    for property in shown {
        let values = property.info().values.unwrap_or("-");
        line(property.name(), !property.is_read_only(), property.is_inherited(), values);
    }
    for (name, edit, values) in FAMILIES {
        line(name, edit, false, values);
    }
    text.insert_str(
        text.find(":\n").map_or(0, |at| at + 2),
        &format!("\n\t{:<14} EDIT  INHERIT   VALUES\n\n", "PROPERTY"),
    );
    text + "\nSizes are specified in bytes with standard units such as K, M, G, etc.\n\
            \nUser-defined properties can be specified by using a name containing a colon (:).\n\
            \nThe {user|group|project}[obj]{used|quota}@ properties must be appended with\n\
            a user|group|project specifier of one of these forms:\n    \
            POSIX name      (eg: \"matt\")\n    \
            POSIX id        (eg: \"126829\")\n    \
            SMB name@domain (eg: \"matt@sun\")\n    \
            SMB SID         (eg: \"S-1-234-567-89\")\n"
}
