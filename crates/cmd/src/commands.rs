//! The table of commands, and how one is chosen: by the first argument, or by the name that the
//! program was called by.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use crate::{
    advise, analytics, bench, cut, emulate, exporter, inspect, lab, mount_zfs, offline, output, profile, reflink,
    serve, top, traces, upgrade, version, volumes, zdb, zfs, zgenhostid, zilstat, zinject, zpool,
};

/// One command of the program.
struct Command {
    name: &'static str,
    /// What it does, for the list of commands; empty for what is not for people.
    about: &'static str,
    /// What runs it; gets the arguments behind the command's name.
    run: fn(&[OsString]) -> ExitCode,
    /// Whether the program is this command when it is called by this name.
    is_link: bool,
    /// Whether it ends quietly when the reader of its output has gone.
    ends_with_reader: bool,
}

const COMMANDS: &[Command] = &[
    plain("ls", "list files, offline and without root", offline::ls),
    plain("cat", "print files, offline", offline::cat),
    plain("cp", "copy files out of a pool, offline", offline::cp),
    plain("stat", "show what is known of files, offline", offline::stat),
    plain("dedup", "say what deduplication would save in a pool, and cost, offline", offline::dedup),
    plain("inspect", "show labels, uberblocks, configuration, objects and blocks", inspect::run),
    plain("zilstat", "show what goes through intent logs, and the log device that it needs", zilstat::run),
    Command {
        ends_with_reader: false,
        ..plain("analytics", "show what pools do as a page for a browser, live", analytics::run)
    },
    plain("where", "show where the time of pools in use goes: processors, disks, locks, requests", profile::run),
    plain("top", "show where reads are served from, live", top::run),
    plain(
        "volumes",
        "show how programs get at volumes: as files, disks of networks and virtual machines",
        volumes::run,
    ),
    plain("reflink", "copy a file within a pool so that both share blocks", reflink::run),
    plain("advise", "say what would pay: a layout, compression, dedup, records, a log device, a cache", advise::run),
    plain("trace", "show and convert traces of requests, in the formats of public ones", traces::run),
    plain(
        "bench",
        "measure file systems and devices: synchronous writes, random reads, loads of many hosts",
        bench::run,
    ),
    Command {
        ends_with_reader: false,
        ..plain("lab", "run the studies of disks, SSDs and settings, and write a report", lab::run)
    },
    Command {
        ends_with_reader: false,
        ..plain("emulate", "serve files that are as slow as disks and SSDs", emulate::run)
    },
    link("zdb", "look into a pool, and verify every block of it, as zdb does", zdb::run),
    link("zpool", "import pools and ask about them, as zpool does", zpool::run),
    link("zfs", "list, mount and ask about datasets, as zfs does", zfs::run),
    link("mount.zfs", "mount a legacy file system or a snapshot, as mount(8) has it done", mount_zfs::run),
    // what mount(8) runs to change options of what is mounted
    Command { is_link: true, ..plain("mount.fuse.zfs", "", mount_zfs::run) },
    link("zgenhostid", "give this machine the id that pools know it by", zgenhostid::run),
    link("zinject", "let devices and blocks of imported pools go wrong, as zinject does", zinject::run),
    Command {
        ends_with_reader: false,
        ..plain("exporter", "serve counters of all pools in use to Prometheus", exporter::run)
    },
    plain("upgrade", "put this program in the place of the one that serves pools in use", upgrade::run),
    Command { ends_with_reader: false, ..plain("serve", "be the process of one imported pool", serve::run) },
    Command { ends_with_reader: false, ..plain("cut", "take snapshots of many pools at one moment", cut::run) },
    Command { ends_with_reader: false, ..plain("cut-hold", "", cut::hold) },
    plain("mount-helper", "", serve::mount_helper),
    plain("listen-helper", "", |_| daemon::listen_helper::run()),
    plain("zedlets", "", |_| daemon::zedlets::run()),
    plain("help", "show this list", help),
    plain("version", "show the version, and the commit it is built from", version::run),
];

const fn plain(name: &'static str, about: &'static str, run: fn(&[OsString]) -> ExitCode) -> Command {
    Command { name, about, run, is_link: false, ends_with_reader: true }
}

const fn link(name: &'static str, about: &'static str, run: fn(&[OsString]) -> ExitCode) -> Command {
    Command { is_link: true, ..plain(name, about, run) }
}

/// Runs the command that `args` ask for; the first is the name that the program was called by.
pub fn run(args: &[OsString]) -> ExitCode {
    let Some((program, args)) = args.split_first() else { return usage() };
    let called_as = Path::new(program).file_name().unwrap_or(OsStr::new(""));
    if let Some(command) = COMMANDS.iter().find(|command| command.is_link && command.name == called_as) {
        return start(command, args);
    }
    let Some((name, args)) = args.split_first() else { return usage() };
    let name = match name.to_str() {
        Some("-h" | "--help" | "-?") => "help",
        Some("-V" | "--version") => "version",
        Some(name) => name,
        None => return unknown(name),
    };
    match COMMANDS.iter().find(|command| command.name == name) {
        Some(command) => start(command, args),
        None => unknown(name.as_ref()),
    }
}

fn start(command: &Command, args: &[OsString]) -> ExitCode {
    if command.ends_with_reader {
        output::end_with_reader();
    }
    (command.run)(args)
}

fn unknown(name: &OsStr) -> ExitCode {
    eprintln!("cenote: no such command: {}\nSee 'cenote help'.", name.display());
    output::USAGE.into()
}

fn usage() -> ExitCode {
    eprint!("{}", list());
    output::USAGE.into()
}

/// `cenote help [COMMAND]`.
fn help(args: &[OsString]) -> ExitCode {
    match args.first().and_then(|name| COMMANDS.iter().find(|command| command.name == *name)) {
        Some(command) if command.name != "help" => (command.run)(&["--help".into()]),
        None if !args.is_empty() => unknown(&args[0]),
        _ => {
            print!("{}", list());
            ExitCode::SUCCESS
        }
    }
}

fn list() -> String {
    let mut text = "Cenote: ZFS pools in user space\n\nusage: cenote COMMAND [ARGUMENT]...\n\n".to_owned();
    for command in COMMANDS.iter().filter(|command| !command.about.is_empty()) {
        text += &format!("  {:10} {}\n", command.name, command.about);
    }
    text += "\n'cenote help COMMAND' tells more. A link to this program that is named ";
    text += "zpool, zfs, zdb, zgenhostid or mount.zfs is that command.\n";
    text
}
