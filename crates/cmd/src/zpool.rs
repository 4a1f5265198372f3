//! `zpool`: finding and importing pools, and asking about those that are imported.
//!
//! ```text
//!   list, status, iostat, get, history ──▶ pools ──▶ the socket of each pool's process ──▶ PoolReport ──▶ text, JSON
//!   import ──▶ labels of devices ──▶ what could be imported          (no pool named)
//!          └─▶ starts `cenote serve`, waits until it is ready        (a pool named)
//!   create ──▶ starts `cenote serve --create`, which makes the pool, and is its process then
//!   export ──▶ the pool's process unmounts and ends
//! ```
//!
//! Flags, output, error texts and exit codes are those of OpenZFS's manual pages: scripts rely on them.
//! What this version cannot do has no command.

mod checkpoint;
pub mod command;
pub mod create;
pub mod events;
mod export;
mod get;
mod get_rows;
mod get_vdev;
pub mod history;
mod history_text;
pub mod import;
mod iostat;
mod json;
mod labelclear;
pub mod leaves;
mod list;
mod manage;
pub mod names;
pub mod pools;
pub mod reason;
mod scan;
pub mod scan_text;
mod split;
mod status;
mod status_json;
mod status_options;
mod status_text;
mod sweep;
mod tables;
#[cfg(test)]
mod tests;
mod upgrade;
mod vdevs;
mod version;

use std::ffi::OsString;
use std::process::ExitCode;

use base::ShownLines;

use crate::output;
use command::{CommandResult, Stop};

struct ZpoolCommand {
    name: &'static str,
    usage: &'static str,
    run: fn(&[OsString]) -> CommandResult,
    /// Whether its usage message lists the properties.
    lists_properties: bool,
}

/// The commands in groups, as the usage message shows them.
const GROUPS: &[&[ZpoolCommand]] = &[
    &[plain("version", "\tversion [-j]\n", version::run)],
    &[
        plain(
            "create",
            "\tcreate [-Bfnd] [-o property=value] ... \n\
             \t    [-O file-system-property=value] ... \n\
             \t    [-m mountpoint] [-R root] [-t tempname] <pool> <vdev> ...\n",
            create::run,
        ),
        plain("destroy", "\tdestroy [-f] <pool>\n", manage::destroy),
    ],
    &[
        plain("checkpoint", "\tcheckpoint [-d [-w]] <pool> ...\n", checkpoint::run),
        plain("prefetch", "\tprefetch [-t <type>] <pool>\n", tables::prefetch),
    ],
    &[
        plain(
            "add",
            "\tadd [-fgLnP] [-o property=value]\n\
             \t    [--allow-in-use] [--allow-replication-mismatch] [--allow-ashift-mismatch] <pool> <vdev> ...\n",
            vdevs::add,
        ),
        plain("remove", "\tremove [-npsw] <pool> <device> ...\n", vdevs::remove),
    ],
    &[
        ZpoolCommand {
            lists_properties: true,
            ..plain(
                "list",
                "\tlist [-gHLpPv] [-o property[,...]] [-j [--json-int, --json-pool-key-guid]] ...\n\
                 \t    [-T d|u] [pool] [interval [count]]\n",
                list::run,
            )
        },
        plain(
            "iostat",
            "\tiostat [[-lq]|[-rw]] [-T d | u] [-ghHLpPvy]\n\
             \t    [[pool ...]|[pool vdev ...]|[vdev ...]] [[-n] interval [count]]\n",
            iostat::run,
        ),
        plain(
            "status",
            "\tstatus [-DdegiLPpstvx] ...\n\
             \t    [-j|--json [--json-flat-vdevs] [--json-int] [--json-pool-key-guid]] ...\n\
             \t    [-T d|u] [pool] [interval [count]]\n",
            status::run,
        ),
    ],
    &[
        plain("initialize", "\tinitialize [-c | -s | -u] [-w] <-a | <pool> [<device> ...]>\n", sweep::initialize),
        plain("scrub", "\tscrub [-e | -s | -p | -C | -E | -S] [-w] <-a | <pool> [<pool> ...]>\n", scan::scrub),
        plain("resilver", "\tresilver <pool> ...\n", scan::resilver),
        plain("trim", "\ttrim [-dw] [-r <rate>] [-c | -s] <-a | <pool> [<device> ...]>\n", sweep::trim),
        plain("wait", "\twait [-Hp] [-T d|u] [-t <activity>[,...]] <pool> [interval]\n", scan::wait),
    ],
    &[
        plain("online", "\tonline [-e] <pool> <device> ...\n", leaves::online),
        plain("offline", "\toffline [-f] [-t] <pool> <device> ...\n", leaves::offline),
        plain("reopen", "\treopen [-n] <pool>\n", leaves::reopen),
        plain("clear", "\tclear <pool> [device]\n", leaves::clear),
    ],
    &[
        plain("attach", "\tattach [-fsw] [-o property=value] <pool> <vdev> <new-device>\n", vdevs::attach),
        plain("detach", "\tdetach <pool> <device>\n", vdevs::detach),
        plain("replace", "\treplace [-fsw] [-o property=value] <pool> <device> [new-device]\n", vdevs::replace),
        plain(
            "split",
            "\tsplit [-gLnPl] [-R altroot] [-o mntopts]\n\
             \t    [-o property=value] <pool> <newpool> [<device> ...]\n",
            split::run,
        ),
    ],
    &[
        plain(
            "import",
            "\timport [-d dir] [-D] [-s]\n\
             \timport [-o mntopts] [-o property=value] ... \n\
             \t    [-d dir | -c cachefile] [-D] [-f] [-m] [-N] [-R root] [-s] [-F [-nX]] -a\n\
             \timport [-o mntopts] [-o property=value] ... \n\
             \t    [-d dir | -c cachefile] [-D] [-f] [-m] [-N] [-R root] [-s] [-t] [-F [-nX]]\n\
             \t    [--adopt] [--rewind-to-checkpoint] [-T txg | --at-txg txg]\n\
             \t    <pool | id> [newpool]\n",
            import::run,
        ),
        plain("export", "\texport [-afF] <pool> ...\n", export::run),
        plain("labelclear", "\tlabelclear [-f] <vdev>\n", labelclear::run),
    ],
    &[
        plain("upgrade", "\tupgrade\n\tupgrade -v\n\tupgrade [-V version] <-a | pool ...>\n", upgrade::run),
        plain("reguid", "\treguid [-g guid] <pool>\n", manage::reguid),
    ],
    &[
        plain("history", "\thistory [-il] [<pool>] ...\n", history::run),
        plain("events", "\tevents [-vHf [pool] | -c]\n", events::run),
    ],
    &[
        ZpoolCommand {
            lists_properties: true,
            ..plain(
                "get",
                "\tget [-Hp] [-j [--json-int, --json-pool-key-guid]] ...\n\
             \t    [-o \"all\" | field[,...]] <\"all\" | property[,...]> <pool> ...\n",
                get::run,
            )
        },
        ZpoolCommand {
            lists_properties: true,
            ..plain("set", "\tset <property=value> <pool>\n\tset <vdev_property=value> <pool> <vdev>\n", manage::set)
        },
    ],
    &[plain("sync", "\tsync [-f] [pool] ...\n", manage::sync)],
    &[plain("ddtprune", "\tddtprune -d|-p <amount> <pool>\n", tables::ddtprune)],
];

/// Commands of OpenZFS that this version does not have.
const NOT_YET: [&str; 1] = ["condense"];

const fn plain(name: &'static str, usage: &'static str, run: fn(&[OsString]) -> CommandResult) -> ZpoolCommand {
    ZpoolCommand { name, usage, run, lists_properties: false }
}

/// Runs the command; `args` are those behind its name.
pub fn run(args: &[OsString]) -> ExitCode {
    let Some((name, rest)) = args.split_first() else {
        eprint!("missing command\n{}", usage());
        return output::USAGE.into();
    };
    let name = name.to_string_lossy();
    match &*name {
        "-?" | "--help" => {
            print!("{}", usage());
            return ExitCode::SUCCESS;
        }
        "-V" | "--version" => return finish(None, version::run(&[])),
        "help" => return help(rest),
        "freeze" => return finish(None, manage::freeze(rest)),
        _ => {}
    }
    match GROUPS.iter().copied().flatten().find(|command| command.name == name) {
        Some(command) => finish(Some(command), (command.run)(rest)),
        None if NOT_YET.contains(&&*name) => {
            eprintln!("cannot {name}: this version of Cenote does not have that command");
            output::FAILED.into()
        }
        None => {
            eprintln!("unrecognized command '{name}'");
            output::USAGE.into()
        }
    }
}

fn finish(command: Option<&ZpoolCommand>, done: CommandResult) -> ExitCode {
    match (done, command) {
        (Ok(true), _) => ExitCode::SUCCESS,
        (Ok(false), _) => output::FAILED.into(),
        (Err(Stop::Failed(text)), _) => {
            eprintln!("{}", ShownLines(text));
            output::FAILED.into()
        }
        (Err(Stop::Usage(text)), command) => {
            if !text.is_empty() {
                eprintln!("{}", ShownLines(text));
            }
            match command {
                Some(command) => eprint!("{}", command_usage(command)),
                None => eprint!("{}", usage()),
            }
            output::USAGE.into()
        }
    }
}

fn usage() -> String {
    let mut text = "usage: zpool command args ...\nwhere 'command' is one of the following:\n\n".to_owned();
    let groups: Vec<String> = GROUPS.iter().map(|group| group.iter().map(|c| c.usage).collect()).collect();
    text += &groups.join("\n");
    text + "\nFor further help on a command or topic, run: zpool help [<topic>]\n"
}

fn command_usage(command: &ZpoolCommand) -> String {
    let properties = if command.lists_properties { protocol::pool_properties::help() } else { String::new() };
    format!("usage:\n{}{properties}", command.usage)
}

/// `zpool help [COMMAND]`: its usage message.
fn help(args: &[OsString]) -> ExitCode {
    let named = args.first().and_then(|name| GROUPS.iter().copied().flatten().find(|command| command.name == *name));
    match named {
        Some(command) => print!("{}", command_usage(command)),
        None => print!("{}", usage()),
    }
    ExitCode::SUCCESS
}
