//! `cenote upgrade`: pools in use get this program in the place of the one that serves them.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use base::{Error, Kind, Result};
use protocol::client;
use protocol::wire::{PoolReply, Request};

use crate::output;

/// How long the next process may take until it answers.
const START_TIME: Duration = Duration::from_secs(120);
const LOOK_PERIOD: Duration = Duration::from_millis(20);

/// Put this program in the place of the one that serves pools, while programs use their mounts
///
/// The process of each pool ends its transaction group and its work; its keeper starts this program, which goes on with the
/// mounts: programs wait meanwhile, and notice nothing else. If this program cannot, the one before goes on. Mounts have to
/// outlive their process for that: property org.cenote:reattach of their file systems is on, and Linux is 6.9 or newer.
#[derive(clap::Parser)]
#[command(name = "cenote upgrade", no_binary_name = true)]
struct UpgradeArgs {
    /// All pools in use
    #[arg(short, long, conflicts_with = "pools")]
    all: bool,
    /// These pools
    #[arg(required_unless_present = "all")]
    pools: Vec<String>,
}

/// Runs the command.
pub fn run(args: &[OsString]) -> ExitCode {
    let args: UpgradeArgs = match output::parse_args(args) {
        Ok(args) => args,
        Err(code) => return code,
    };
    let pools = match args.all {
        false => Ok((args.pools, Vec::new())),
        true => client::survey().map(|all| (all.hellos.into_iter().map(|hello| hello.pool).collect(), all.silent)),
    };
    let upgraded = pools.and_then(|(pools, silent): (Vec<String>, Vec<(String, Error)>)| {
        let program = std::env::current_exe()?;
        silent.iter().for_each(|(_, why)| output::complain("upgrade", why.what()));
        Ok(silent.len() + pools.iter().filter(|pool| !is_upgraded(pool, &program)).count())
    });
    match upgraded {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => output::FAILED.into(),
        Err(error) => {
            output::complain("upgrade", error);
            output::FAILED.into()
        }
    }
}

fn is_upgraded(pool: &str, program: &Path) -> bool {
    match upgrade(pool, program) {
        Ok(pid) => {
            println!("{pool}: process {pid} serves it now");
            true
        }
        Err(error) => {
            output::complain("upgrade", error.what());
            false
        }
    }
}

/// The process that serves the pool now. Errors: the pool goes on as before, or is served by the program before.
fn upgrade(pool: &str, program: &Path) -> Result<u32> {
    let missing = || Error::new(Kind::NotFound, format!("cannot open '{pool}': no such pool"));
    let mut connection = client::connect(pool)?.ok_or_else(missing)?;
    let before = connection.pid();
    match connection.ask(&Request::Upgrade { process: std::process::id() })? {
        PoolReply::HandedOver => {}
        _ => return Err(client::off_topic()),
    }
    let began = Instant::now();
    while began.elapsed() < START_TIME {
        if let Ok(Some(next)) = client::connect(pool)
            && next.pid() != before
        {
            let what =
                format!("cannot upgrade '{pool}': the new program failed, and the one before goes on: see its log");
            return is_same(&program_of(next.pid()), program)
                .then_some(next.pid())
                .ok_or_else(|| Error::new(Kind::Unsupported, what));
        }
        std::thread::sleep(LOOK_PERIOD);
    }
    Err(Error::new(Kind::Missing, format!("'{pool}' was handed over, and nobody serves it yet")))
}

fn program_of(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/exe"))
}

/// Whether both paths lead to the same file.
fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| path.metadata().map(|file| (file.dev(), file.ino())).ok();
    identity(one).is_some() && identity(one) == identity(other)
}
