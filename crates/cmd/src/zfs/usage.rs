//! The table of commands, and usage texts.

use super::client::Pools;
use super::command::{HINT, JSON, Outcome, Stopped, ZfsCommand, parse, usage};
use super::{change, diff, get, holds, list, mount, project, receive, send, snapshots, upgrade, userspace, wait};
use crate::output::USAGE;

/// The commands that there are, in the order of the usage text.
pub(super) const COMMANDS: &[ZfsCommand] = &[
    ZfsCommand { name: "version", run: json_version, usage: "\tversion [-j]\n", shows_properties: false },
    ZfsCommand { name: "create", run: change::create, usage: CREATE, shows_properties: true },
    ZfsCommand { name: "destroy", run: change::destroy, usage: DESTROY, shows_properties: false },
    ZfsCommand { name: "snapshot", run: snapshots::snapshot, usage: SNAPSHOT, shows_properties: true },
    ZfsCommand { name: "rollback", run: snapshots::rollback, usage: ROLLBACK, shows_properties: false },
    ZfsCommand { name: "clone", run: snapshots::clone, usage: CLONE, shows_properties: true },
    ZfsCommand { name: "promote", run: snapshots::promote, usage: PROMOTE, shows_properties: false },
    ZfsCommand { name: "rename", run: change::rename, usage: RENAME, shows_properties: false },
    ZfsCommand { name: "list", run: list::run, usage: LIST, shows_properties: true },
    ZfsCommand { name: "set", run: change::set, usage: SET, shows_properties: true },
    ZfsCommand { name: "get", run: get::run, usage: GET, shows_properties: true },
    ZfsCommand { name: "inherit", run: change::inherit, usage: INHERIT, shows_properties: true },
    ZfsCommand { name: "upgrade", run: upgrade::run, usage: UPGRADE, shows_properties: false },
    ZfsCommand { name: "userspace", run: userspace::run, usage: USERSPACE, shows_properties: false },
    ZfsCommand { name: "groupspace", run: userspace::run, usage: GROUPSPACE, shows_properties: false },
    ZfsCommand { name: "projectspace", run: userspace::run, usage: PROJECTSPACE, shows_properties: false },
    ZfsCommand { name: "project", run: project::run, usage: PROJECT, shows_properties: false },
    ZfsCommand { name: "mount", run: mount::mount, usage: MOUNT, shows_properties: false },
    ZfsCommand { name: "unmount", run: mount::unmount, usage: UNMOUNT, shows_properties: false },
    ZfsCommand { name: "bookmark", run: snapshots::bookmark, usage: BOOKMARK, shows_properties: false },
    ZfsCommand { name: "redact", run: snapshots::redact, usage: REDACT, shows_properties: false },
    ZfsCommand { name: "receive", run: receive::receive, usage: RECEIVE, shows_properties: false },
    ZfsCommand { name: "send", run: send::send, usage: SEND, shows_properties: false },
    ZfsCommand { name: "hold", run: snapshots::hold, usage: HOLD, shows_properties: false },
    ZfsCommand { name: "release", run: snapshots::hold, usage: RELEASE, shows_properties: false },
    ZfsCommand { name: "holds", run: holds::run, usage: "\tholds [-rHp] <snapshot> ...\n", shows_properties: false },
    ZfsCommand {
        name: "wait",
        run: wait::run,
        usage: "\twait [-t <activity>] <filesystem>\n",
        shows_properties: false,
    },
    ZfsCommand { name: "diff", run: diff::run, usage: DIFF, shows_properties: false },
];

/// Commands of OpenZFS that need what is not there yet.
pub(super) const WRITING: [&str; 12] = [
    "allow",
    "change-key",
    "jail",
    "load-key",
    "program",
    "rewrite",
    "share",
    "unallow",
    "unjail",
    "unload-key",
    "unshare",
    "unzone",
];

const CREATE: &str = "\tcreate [-Pnpuv] [-o property=value] ... <filesystem>\n\
                      \tcreate [-Pnpsv] [-b blocksize] [-o property=value] ... -V <size> <volume>\n";
const DESTROY: &str = "\tdestroy [-fnpRrv] <filesystem|volume>\n\
                       \tdestroy [-dnpRrv] <filesystem|volume>@<snap>[%<snap>][,...]\n\
                       \tdestroy <filesystem|volume>#<bookmark>\n";
const SNAPSHOT: &str = "\tsnapshot [-r] [-o property=value] ... <filesystem|volume>@<snap> ...\n";
const ROLLBACK: &str = "\trollback [-rRf] <snapshot>\n";
const CLONE: &str = "\tclone [-pu] [-o property=value] ... <snapshot> <filesystem|volume>\n";
const PROMOTE: &str = "\tpromote <clone-filesystem>\n";
const BOOKMARK: &str = "\tbookmark [-r] <snapshot|bookmark> <newbookmark>\n";
const REDACT: &str = "\tredact <snapshot> <bookmark> <redaction_snapshot> ...\n";
const RECEIVE: &str = "\treceive [-vMnsFhu] [-o <property>=<value>] ... [-x <property>] ...\n\
                       \t    <filesystem|volume|snapshot>\n\
                       \treceive [-vMnsFhu] [-o <property>=<value>] ... [-x <property>] ... \n\
                       \t    [-d | -e] <filesystem>\n\
                       \treceive -c [-vn] <filesystem|snapshot>\n\
                       \treceive -A <filesystem|volume>\n";
const SEND: &str = "\tsend [-DLPVbcehnpsvw] [-i|-I snapshot]\n\
                    \t     [-R [-X dataset[,dataset]...]]     <snapshot>\n\
                    \tsend [-DnvPLecw] [-i snapshot|bookmark] <filesystem|volume|snapshot>\n\
                    \tsend [-DnvPLec] [-i bookmark|snapshot] -d|--redact <bookmark> <snapshot>\n\
                    \tsend [-nvPe] -t <receive_resume_token>\n\
                    \tsend [-Pnv] -S|--saved filesystem\n";
const HOLD: &str = "\thold [-r] <tag> <snapshot> ...\n";
const RELEASE: &str = "\trelease [-r] <tag> <snapshot> ...\n";
const DIFF: &str = "\tdiff [-FHth] <snapshot> [snapshot|filesystem]\n";
const UPGRADE: &str = "\tupgrade [-v]\n\tupgrade [-r] [-V version] <-a | filesystem ...>\n";
const RENAME: &str = "\trename [-f] <filesystem|volume|snapshot> <filesystem|volume|snapshot>\n\
                      \trename -p [-f] <filesystem|volume> <filesystem|volume>\n\
                      \trename -u [-f] <filesystem> <filesystem>\n\
                      \trename -r <snapshot> <snapshot>\n";
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
const PROJECT: &str = "\tproject [-d|-r] <directory|file ...>\n\
                       \tproject -c [-0] [-d|-r] [-p id] <directory|file ...>\n\
                       \tproject -C [-k] [-r] <directory ...>\n\
                       \tproject [-p id] [-r] [-s] <directory ...>\n";
const MOUNT: &str = "\tmount [-j]\n\
                     \tmount [-flvO] [-o opts] <-a|-R filesystem|filesystem>\n";
const UNMOUNT: &str = "\tunmount [-fu] <-a | filesystem|mountpoint>\n";

/// Somebody asked how to use `zfs`.
pub(super) fn requested() -> Outcome {
    Outcome { out: all_commands(), ..Outcome::default() }
}

/// `zfs help [COMMAND]`.
pub(super) fn help(args: &[std::ffi::OsString]) -> Outcome {
    let named = args.first().and_then(|name| COMMANDS.iter().find(|command| command.name == *name));
    named.map_or_else(requested, |command| Outcome { out: usage(command), ..Outcome::default() })
}

/// The command line of `zfs` makes no sense: why, and what there is.
pub(super) fn of_all(why: &str) -> Outcome {
    Outcome { err: format!("{why}{}", all_commands()), code: USAGE, ..Outcome::default() }
}

fn all_commands() -> String {
    let mut text = "usage: zfs command args ...\nwhere 'command' is one of the following:\n\n".to_owned();
    text.extend(COMMANDS.iter().map(|command| command.usage));
    text + "\nEach dataset is of the form: pool/[dataset/]*dataset[@name]\n" + HINT
}

/// `zfs version`.
fn json_version(_: &dyn Pools, command: &ZfsCommand, args: &[std::ffi::OsString]) -> Result<Outcome, Stopped> {
    let parsed = parse(command, args, "j", &JSON[..1])?;
    if !parsed.operands.is_empty() {
        return Err(Outcome::misused(command, "too many arguments"));
    }
    let out = match parsed.opts.is_empty() {
        true => crate::version::of_openzfs(),
        false => super::json::version(),
    };
    Ok(Outcome { out, ..Outcome::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_messages_show_the_flags_that_are_taken() {
        for command in COMMANDS {
            crate::getopt::check_usage(command.name, command.usage, |args| {
                let ended =
                    (command.run)(&super::super::client::Sockets, command, args).unwrap_or_else(|stopped| stopped);
                assert_eq!(ended.code, USAGE, "{}", command.name);
            });
        }
    }
}
