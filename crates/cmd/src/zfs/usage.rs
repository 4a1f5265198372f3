//! The table of commands, and usage texts.

use std::fmt::Write;

use dsl::Property;

use super::{Command, Outcome, change, get, holds, list, mount, userspace};
use crate::output::USAGE;

/// The commands that there are, in the order of the usage text.
pub(super) const COMMANDS: &[Command] = &[
    Command { name: "version", run: json_version, usage: "\tversion [-j]\n", shows_properties: false },
    Command { name: "create", run: change::create, usage: CREATE, shows_properties: true },
    Command { name: "destroy", run: change::destroy, usage: DESTROY, shows_properties: false },
    Command { name: "rename", run: change::rename, usage: RENAME, shows_properties: false },
    Command { name: "list", run: list::run, usage: LIST, shows_properties: true },
    Command { name: "set", run: change::set, usage: SET, shows_properties: true },
    Command { name: "get", run: get::run, usage: GET, shows_properties: true },
    Command { name: "inherit", run: change::inherit, usage: INHERIT, shows_properties: true },
    Command { name: "userspace", run: userspace::run, usage: USERSPACE, shows_properties: false },
    Command { name: "groupspace", run: userspace::run, usage: GROUPSPACE, shows_properties: false },
    Command { name: "projectspace", run: userspace::run, usage: PROJECTSPACE, shows_properties: false },
    Command { name: "mount", run: mount::mount, usage: MOUNT, shows_properties: false },
    Command { name: "unmount", run: mount::unmount, usage: UNMOUNT, shows_properties: false },
    Command { name: "holds", run: holds::run, usage: "\tholds [-rHp] <snapshot> ...\n", shows_properties: false },
];

/// Commands of OpenZFS that need what is not there yet.
pub(super) const WRITING: [&str; 28] = [
    "allow",
    "bookmark",
    "change-key",
    "clone",
    "diff",
    "hold",
    "jail",
    "load-key",
    "program",
    "project",
    "promote",
    "receive",
    "recv",
    "redact",
    "release",
    "rewrite",
    "rollback",
    "send",
    "share",
    "snap",
    "snapshot",
    "unallow",
    "unjail",
    "unload-key",
    "unshare",
    "unzone",
    "upgrade",
    "wait",
];

const CREATE: &str = "\tcreate [-Pnpuv] [-o property=value] ... <filesystem>\n";
const DESTROY: &str = "\tdestroy [-fnpRrv] <filesystem|volume>\n";
const RENAME: &str = "\trename [-f] <filesystem|volume> <filesystem|volume>\n\
                      \trename -p [-f] <filesystem|volume> <filesystem|volume>\n\
                      \trename -u [-f] <filesystem> <filesystem>\n";
const SET: &str = "\tset [-u] <property=value> ... <filesystem|volume|snapshot> ...\n";
const INHERIT: &str = "\tinherit [-rS] <property> <filesystem|volume|snapshot> ...\n";
const LIST: &str = "\tlist [-Hp] [-j [--json-int]] [-r|-d max] [-o property[,...]] [-s property]...\n\
                    \t    [-S property]... [-t type[,...]] [filesystem|volume|snapshot] ...\n";
const GET: &str = "\tget [-rHp] [-j [--json-int]] [-d max] [-o \"all\" | field[,...]]\n\
                   \t    [-t type[,...]] [-s source[,...]]\n\
                   \t    <\"all\" | property[,...]> [filesystem|volume|snapshot|bookmark] ...\n";
const USERSPACE: &str = "\tuserspace [-Hinp] [-o field[,...]] [-s field] ...\n\
                         \t    [-S field] ... [-t type[,...]] <filesystem|snapshot|path>\n";
const GROUPSPACE: &str = "\tgroupspace [-Hinp] [-o field[,...]] [-s field] ...\n\
                          \t    [-S field] ... [-t type[,...]] <filesystem|snapshot|path>\n";
const PROJECTSPACE: &str = "\tprojectspace [-Hp] [-o field[,...]] [-s field] ... \n\
                            \t    [-S field] ... <filesystem|snapshot|path>\n";
const MOUNT: &str = "\tmount [-j]\n\
                     \tmount [-flvO] [-o opts] <-a|-R filesystem|filesystem>\n";
const UNMOUNT: &str = "\tunmount [-fu] <-a | filesystem|mountpoint>\n";

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

/// Somebody asked how to use `zfs`.
pub(super) fn requested() -> Outcome {
    Outcome { out: all_commands(), ..Outcome::default() }
}

/// `zfs help [COMMAND]`.
pub(super) fn help(args: &[std::ffi::OsString]) -> Outcome {
    let named = args.first().and_then(|name| COMMANDS.iter().find(|command| command.name == *name));
    named.map_or_else(requested, |command| Outcome { out: text(command), ..Outcome::default() })
}

/// The command line of `zfs` makes no sense: why, and what there is.
pub(super) fn of_all(why: &str) -> Outcome {
    Outcome { err: format!("{why}{}", all_commands()), code: USAGE, ..Outcome::default() }
}

/// How to use one command.
pub(super) fn text(command: &Command) -> String {
    let mut text = format!("usage:\n{}", command.usage);
    if command.shows_properties {
        text.push_str(&properties());
    } else {
        text.push_str(HINT);
    }
    text
}

const HINT: &str = "\nFor the property list, run: zfs get\n";

fn all_commands() -> String {
    let mut text = "usage: zfs command args ...\nwhere 'command' is one of the following:\n\n".to_owned();
    text.extend(COMMANDS.iter().map(|command| command.usage));
    text + "\nEach dataset is of the form: pool/[dataset/]*dataset[@name]\n" + HINT
}

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

/// `zfs version`.
fn json_version(
    _: &dyn super::Pools,
    command: &Command,
    args: &[std::ffi::OsString],
) -> Result<Outcome, super::Stopped> {
    let parsed = super::parse(command, args, "j", &super::JSON[..1])?;
    if !parsed.operands.is_empty() {
        return Err(Outcome::misused(command, "too many arguments"));
    }
    let version = concat!("cenote-", env!("CARGO_PKG_VERSION"));
    let out = match parsed.opts.is_empty() {
        true => format!("{version}\n"),
        false => super::json::version(version),
    };
    Ok(Outcome { out, ..Outcome::default() })
}
