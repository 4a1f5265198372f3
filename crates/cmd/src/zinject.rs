//! `zinject`: lets devices and blocks of imported pools go wrong, to see what becomes of it.
//!
//! The faults are in the processes of the pools; each is known by a number that no other one of any pool has. What
//! OpenZFS's zinject can do and this one cannot is refused by name.

mod line;
mod text;

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

use base::{Error, Kind};
use format::ids::{Guid, ObjectId};
use pool::inject::InjectionTarget;
use protocol::client::{self, Connection};
use protocol::injections::{InjectionPlace, InjectionReport, InjectionRequest};
use protocol::wire::{PoolReply, Request};

use crate::output;
use crate::zfs;
use crate::zpool::command::Stop;
use crate::zpool::leaves;
use line::{FaultLine, Place, ZinjectTask};

/// Runs the command.
pub fn run(args: &[OsString]) -> ExitCode {
    match line::parse(args).map_err(Stop::Usage).and_then(act) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(Stop::Failed(why)) => {
            eprintln!("{why}");
            output::FAILED.into()
        }
        Err(Stop::Usage(why)) => {
            eprint!("{why}\n{}", text::USAGE);
            output::USAGE.into()
        }
    }
}

fn failed(error: Error) -> Stop {
    Stop::Failed(error.what().to_owned())
}

fn act(task: ZinjectTask) -> Result<String, Stop> {
    match task {
        ZinjectTask::Help => Ok(text::USAGE.to_owned()),
        ZinjectTask::List => Ok(text::list(&active()?)),
        ZinjectTask::Cancel(number) => cancel(number),
        ZinjectTask::Forget(pools) => forget(&pools).map(|()| String::new()),
        ZinjectTask::Act { device, pool, is_fault } => set_state(&pool, &device, is_fault),
        ZinjectTask::Inject(fault) => inject(&fault),
    }
}

/// Asks the process of a pool.
fn ask(connection: &mut Connection, request: InjectionRequest) -> base::Result<Vec<InjectionReport>> {
    match connection.ask(&Request::Inject(request))? {
        PoolReply::Injections(reports) => Ok(reports),
        _ => Err(client::off_topic()),
    }
}

/// Asks the processes of all pools; what they answer, each with its pool. Errors: those that do not answer, when all others
/// have been asked.
fn ask_all(request: &InjectionRequest) -> Result<Vec<(String, InjectionReport)>, Stop> {
    let mut found = Vec::new();
    let pools = client::survey().map_err(failed)?;
    for hello in pools.hellos {
        // it may have been exported since
        if let Some(mut connection) = client::connect(&hello.pool).map_err(failed)? {
            let reports = ask(&mut connection, request.clone()).map_err(failed)?;
            found.extend(reports.into_iter().map(|report| (hello.pool.clone(), report)));
        }
    }
    let silent: Vec<&str> = pools.silent.iter().map(|(_, why)| why.what()).collect();
    if silent.is_empty() { Ok(found) } else { Err(Stop::Failed(silent.join("\n"))) }
}

/// The faults of all pools, by number, each with its pool.
fn active() -> Result<Vec<(String, InjectionReport)>, Stop> {
    let mut found = ask_all(&InjectionRequest::List)?;
    found.sort_by_key(|(_, report)| report.number);
    Ok(found)
}

fn cancel(number: Option<u64>) -> Result<String, Stop> {
    let Some(number) = number else {
        ask_all(&InjectionRequest::Cancel(None))?;
        return Ok("removed all registered handlers\n".to_owned());
    };
    let active = active()?;
    let (pool, _) = active
        .iter()
        .find(|(_, report)| report.number == number)
        .ok_or_else(|| Stop::Failed(format!("failed to remove handler {number}: no such handler")))?;
    ask(&mut leaves::connect(pool)?, InjectionRequest::Cancel(Some(number))).map_err(failed)?;
    Ok(format!("removed handler {number}\n"))
}

/// Has the processes of those pools, or of all, keep nothing in memory that is on disk.
fn forget(pools: &[String]) -> Result<(), Stop> {
    if pools.is_empty() {
        return ask_all(&InjectionRequest::ForgetCached).map(drop);
    }
    for pool in pools {
        ask(&mut leaves::connect(pool)?, InjectionRequest::ForgetCached).map_err(failed)?;
    }
    Ok(())
}

/// The guid of a device that somebody calls so.
fn find_device(pool: &str, device: &str) -> Result<Guid, Stop> {
    let PoolReply::Report(report) = leaves::connect(pool)?.ask(&Request::Report).map_err(failed)? else {
        return Err(Stop::Failed(format!("cannot open '{pool}'")));
    };
    leaves::find(&report, device).map_err(|_| Stop::Failed(format!("cannot find device '{device}' in pool '{pool}'")))
}

fn set_state(pool: &str, device: &str, is_fault: bool) -> Result<String, Stop> {
    let vdev = find_device(pool, device)?;
    ask(&mut leaves::connect(pool)?, InjectionRequest::SetState { vdev, is_fault }).map_err(failed)?;
    Ok(String::new())
}

fn inject(fault: &FaultLine) -> Result<String, Stop> {
    let (pool, place) = match &fault.place {
        Place::Device { device, pool, label } => {
            let guid = find_device(pool, device)?;
            (pool.clone(), InjectionPlace::Known(InjectionTarget::Leaf { guid, label: *label }))
        }
        Place::Bookmark { pool, objset, object, level, blocks } => {
            let (objset, object, level, blocks) = (*objset, *object, *level, *blocks);
            let target = InjectionTarget::Blocks { objset, object, level, blocks, copies: fault.copies };
            (pool.clone(), InjectionPlace::Known(target))
        }
        Place::File { path, is_dnode, level, range } => {
            let dataset = zfs::mounted_at(path.as_ref()).map_err(failed)?.map_err(Stop::Failed)?.dataset;
            let file = std::fs::symlink_metadata(path).map_err(|e| Stop::Failed(format!("{path}: {e}")))?;
            let pool = dataset.split('/').next().unwrap_or_default().to_owned();
            let (object, is_dnode, level, range) = (ObjectId::new(file.ino()), *is_dnode, *level, *range);
            (pool, InjectionPlace::File { dataset, object, is_dnode, level, range, copies: fault.copies })
        }
    };
    let mut connection = leaves::connect(&pool)?;
    let mut number = active()?.last().map_or(1, |(_, report)| report.number + 1);
    let added = loop {
        let (place, effect, requests) = (place.clone(), fault.effect, fault.requests);
        let request = InjectionRequest::Add { number, place, effect, requests, per_million: fault.per_million };
        match ask(&mut connection, request) {
            // another command was faster
            Err(error) if error.kind() == Kind::Exists => number += 1,
            Err(error) => return Err(Stop::Failed(format!("failed to add handler: {}", error.what()))),
            Ok(added) => break added,
        }
    };
    if fault.flushes {
        ask(&mut connection, InjectionRequest::ForgetCached).map_err(failed)?;
    }
    let told = |report: &InjectionReport| match fault.is_quiet {
        true => format!("{}\n", report.number),
        false => text::added(&pool, report),
    };
    Ok(added.first().map(told).unwrap_or_default())
}
