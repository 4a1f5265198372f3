//! `zgenhostid`: gives this machine the id by which pools know where they are in use.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::ExitCode;

use daemon::hostid;

use crate::getopt::{self, Opt};
use crate::output;

const USAGE: &str = "usage:\n\tzgenhostid [-fh] [-o path] [value]\n\n\
                     Creates /etc/hostid, or the file 'path', with the id 'value' (hexadecimal digits)\n\
                     or one by chance. With -f, a file that exists is overwritten.\n";

/// Runs the command.
pub fn run(args: &[OsString]) -> ExitCode {
    if args.first().is_some_and(|arg| arg == "--help") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let parsed = getopt::parse(args, "fho:", &[]);
    let (mut force, mut path) = (false, PathBuf::from(hostid::FILE));
    for opt in &parsed.opts {
        match opt {
            Opt::Flag('f') => force = true,
            Opt::Value('o', file) => path = PathBuf::from(file),
            Opt::Flag('h') => {
                print!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            _ => return wrong("invalid option"),
        }
    }
    let id = match &parsed.operands[..] {
        [] => 0,
        [value] => match u32::from_str_radix(value.strip_prefix("0x").unwrap_or(value), 16) {
            Ok(id) => id,
            Err(_) => return wrong("the value is no number of at most eight hexadecimal digits"),
        },
        _ => return wrong("too many arguments"),
    };
    match write(&path, if id == 0 { by_chance() } else { id }, force) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            eprintln!("zgenhostid: {} exists already; -f overwrites it", path.display());
            output::FAILED.into()
        }
        Err(e) => {
            eprintln!("zgenhostid: {}: {e}", path.display());
            output::FAILED.into()
        }
    }
}

fn write(path: &PathBuf, id: u32, force: bool) -> std::io::Result<()> {
    let mut options = File::options();
    options.write(true).create(true).create_new(!force).truncate(true).mode(0o644);
    let mut file = options.open(path)?;
    file.write_all(&id.to_ne_bytes())?;
    file.sync_all()
}

fn by_chance() -> u32 {
    let env = base::Env::real();
    std::iter::repeat_with(|| env.random() as u32).find(|id| *id != 0).expect("not all numbers are 0")
}

fn wrong(text: &str) -> ExitCode {
    eprint!("{text}\n{USAGE}");
    output::USAGE.into()
}
