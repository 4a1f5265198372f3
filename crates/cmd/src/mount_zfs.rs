//! `mount.zfs`, which mount(8) runs for `mount -t zfs SOURCE DIR` and for such lines in fstab(5).
//!
//! The process of the pool mounts; this only asks it. So both must be in the same mount namespace.

use std::ffi::OsString;
use std::process::ExitCode;

use base::ShownLines;
use protocol::client;
use protocol::datasets::{DatasetRequest, MountAt, Response};

use crate::getopt::{self, Opt};
use crate::patience::real_path;

/// Exit codes of mount(8).
const USAGE: u8 = 1;
const SYSTEM: u8 = 2;
const FAILED: u8 = 32;

const HELP: &str = "usage: mount.zfs [-sfnvh] [-t zfs] [-o options] <dataset> <mountpoint>\n";

/// Runs the command; `args` are those behind its name.
pub fn run(args: &[OsString]) -> ExitCode {
    match mount(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, why)) => {
            eprint!("{}", ShownLines(why));
            code.into()
        }
    }
}

fn mount(args: &[OsString]) -> Result<(), (u8, String)> {
    let usage = |why: String| (USAGE, format!("{why}\n{HELP}"));
    let parsed = getopt::parse(args, "sfnvho:t:N:", &[]);
    let (mut request, mut verbose) = (MountAt::default(), false);
    for opt in &parsed.opts {
        match opt {
            Opt::Flag('s') => request.sloppy = true,
            Opt::Flag('f') => request.fake = true,
            // nobody writes /etc/mtab
            Opt::Flag('n') => {}
            Opt::Flag('v') => verbose = true,
            Opt::Value('o', list) => request.options.extend(list.split(',').map(str::to_owned)),
            Opt::Value('t', kind) if ["zfs", "fuse.zfs"].contains(&kind.as_str()) => {}
            Opt::Value('t', kind) => return Err(usage(format!("unknown filesystem type '{kind}'"))),
            Opt::Value('N', _) => {
                return Err((FAILED, "option -N: file systems are mounted where the pool was imported\n".into()));
            }
            Opt::Flag(_) | Opt::Value(..) => {
                print!("{HELP}");
                return Ok(());
            }
            Opt::Missing(flag) | Opt::Unknown(flag) => return Err(usage(format!("invalid option '{flag}'"))),
        }
    }
    let [dataset, point] = &parsed.operands[..] else {
        let why = ["missing dataset argument", "missing mountpoint argument", "too many arguments"];
        return Err(usage(why[parsed.operands.len().min(2)].to_owned()));
    };
    let failed = |why: String| (SYSTEM, format!("filesystem '{dataset}' cannot be mounted at '{point}': {why}\n"));
    let real = real_path(point).map_err(|e| failed(format!("canonicalization error: {e}")))?;
    request.point = real.to_str().ok_or_else(|| failed("its path is not UTF-8".to_owned()))?.to_owned();
    request.dataset.clone_from(dataset);
    if verbose {
        println!("mount.zfs:\n  dataset:    \"{dataset}\"\n  mountpoint: \"{}\"", request.point);
        println!("  mountopts:  \"{}\"", request.options.join(","));
    }
    let pool = dataset.split(['/', '@']).next().unwrap_or_default();
    let connection = client::connect(pool).map_err(|e| failed(e.to_string()))?;
    let mut connection = connection.ok_or_else(|| failed(format!("pool '{pool}' is not imported")))?;
    if !is_in_our_namespace(connection.pid()) {
        return Err(failed(format!("pool '{pool}' was imported in another mount namespace")));
    }
    match connection.zfs(&DatasetRequest::MountAt(request)).map_err(|e| failed(e.to_string()))? {
        Response::Done { failures, notes } => {
            notes.iter().for_each(|note| eprintln!("{}", ShownLines(note)));
            match failures.is_empty() {
                true => Ok(()),
                false => Err((FAILED, failures.iter().map(|failure| format!("{}\n", failure.line)).collect())),
            }
        }
        _ => Err(failed("the pool's process answers another question".to_owned())),
    }
}

/// Whether a process sees the same mounts; one that may not be looked at is taken to.
fn is_in_our_namespace(pid: u32) -> bool {
    let namespace = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/mnt")).ok();
    match (namespace("self"), namespace(&pid.to_string())) {
        (Some(ours), Some(its)) => ours == its,
        _ => true,
    }
}
