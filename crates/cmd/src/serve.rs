//! `cenote serve`: the process of one pool, in the foreground or as `zpool import` and `zpool create` start it.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::output;
use crate::zpool::command::Stop;
use crate::zpool::import::ImportArgs;

const USAGE: &str = "\
usage:
\tserve [-d dir | -c cachefile] [-D] [-f] [-m] [-N] [-o mntopts] -o readonly=on [-R root]
\t    [-F | -T txg | --at-txg txg] <pool | id> [newpool]

Is the process of one pool, as 'zpool import' starts it, in the foreground.
";

/// Runs the command; `args` are those behind its name.
pub fn run(args: &[OsString]) -> ExitCode {
    if args.first().is_some_and(|arg| arg == "--help" || arg == "-?") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    if let [flag, begin, pool] = args
        && flag == "--revive"
    {
        return daemon::revive(&begin.to_string_lossy(), &pool.to_string_lossy());
    }
    if let [flag, _, pool] = args
        && flag == "--stand-in"
    {
        return daemon::stand_in(&pool.to_string_lossy());
    }
    if args.iter().any(|arg| arg == "--create") {
        return daemon::create(args.iter().any(|arg| arg == "--notify"));
    }
    let args = match ImportArgs::parse(args).and_then(|args| args.check_combination().map(|()| args)) {
        Ok(args) if args.options.pool.is_some() && !args.all => args,
        Ok(_) => return wrong("one pool must be named"),
        Err(Stop::Usage(text) | Stop::Failed(text)) => return wrong(&text),
    };
    daemon::import(&args.options, args.notify)
}

/// Runs `cenote mount-helper`.
pub fn mount_helper(_: &[OsString]) -> ExitCode {
    daemon::mount_helper::run()
}

fn wrong(text: &str) -> ExitCode {
    eprint!("{text}\n{USAGE}");
    output::USAGE.into()
}
