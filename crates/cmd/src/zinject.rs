//! `zinject`: lets devices and blocks of imported pools go wrong, to see what becomes of it.
//!
//! The faults are in the processes of the pools; each is known by a number that no other one of any pool has. What
//! OpenZFS's zinject can do and this one cannot is refused by name.

mod line;
mod text;

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

use base::Result;
use format::ids::ObjectId;
use pool::inject::{InjectedEffect, InjectedRequests, Injection, InjectionTarget};
use protocol::client::{self, Connection};
use protocol::injections::{FileInjection, InjectionReport, InjectionRequest};
use protocol::wire::{PoolReply, Request};

use crate::output;
use crate::zfs;
use crate::zpool::leaves;
use line::{FaultLine, Place, ZinjectTask};

/// Why a command ends early.
enum Refused {
    /// The command line makes no sense.
    Usage(String),
    /// Something went wrong.
    Failed(String),
}

impl From<base::Error> for Refused {
    fn from(error: base::Error) -> Refused {
        Refused::Failed(error.what().to_owned())
    }
}

/// Runs the command.
pub fn run(args: &[OsString]) -> ExitCode {
    match line::parse(args).map_err(Refused::Usage).and_then(act) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(Refused::Failed(why)) => {
            eprintln!("{why}");
            output::FAILED.into()
        }
        Err(Refused::Usage(why)) => {
            eprint!("{why}\n{}", text::USAGE);
            output::USAGE.into()
        }
    }
}

fn act(task: ZinjectTask) -> std::result::Result<String, Refused> {
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
fn ask(connection: &mut Connection, request: InjectionRequest) -> Result<Vec<InjectionReport>> {
    match connection.ask(&Request::Inject(request))? {
        PoolReply::Injections(reports) => Ok(reports),
        _ => Err(base::Error::new(base::Kind::Unsupported, "the pool's process answers another question")),
    }
}

fn connect(pool: &str) -> std::result::Result<Connection, Refused> {
    client::connect(pool)?.ok_or_else(|| Refused::Failed(format!("cannot open '{pool}': no such pool")))
}

/// The faults of all pools, by number, each with its pool.
fn active() -> Result<Vec<(String, InjectionReport)>> {
    let mut found = Vec::new();
    for hello in client::hellos()? {
        if let Some(mut connection) = client::connect(&hello.pool)? {
            let reports = ask(&mut connection, InjectionRequest::List)?;
            found.extend(reports.into_iter().map(|report| (hello.pool.clone(), report)));
        }
    }
    found.sort_by_key(|(_, report)| report.number);
    Ok(found)
}

fn cancel(number: Option<u64>) -> std::result::Result<String, Refused> {
    let active = active()?;
    let Some(number) = number else {
        for hello in client::hellos()? {
            ask(&mut connect(&hello.pool)?, InjectionRequest::Cancel(None))?;
        }
        return Ok("removed all registered handlers\n".to_owned());
    };
    let (pool, _) = active
        .iter()
        .find(|(_, report)| report.number == number)
        .ok_or_else(|| Refused::Failed(format!("failed to remove handler {number}: no such handler")))?;
    ask(&mut connect(pool)?, InjectionRequest::Cancel(Some(number)))?;
    Ok(format!("removed handler {number}\n"))
}

/// Has the processes of those pools, or of all, keep nothing in memory that is on disk.
fn forget(pools: &[String]) -> std::result::Result<(), Refused> {
    let all = client::hellos()?.into_iter().map(|hello| hello.pool);
    for pool in if pools.is_empty() { all.collect() } else { pools.to_vec() } {
        ask(&mut connect(&pool)?, InjectionRequest::ForgetCached)?;
    }
    Ok(())
}

/// The guid of a device that somebody calls so.
fn find_device(
    connection: &mut Connection,
    pool: &str,
    device: &str,
) -> std::result::Result<format::ids::Guid, Refused> {
    let PoolReply::Report(report) = connection.ask(&Request::Report)? else {
        return Err(Refused::Failed(format!("cannot open '{pool}'")));
    };
    leaves::find(&report, device)
        .map_err(|_| Refused::Failed(format!("cannot find device '{device}' in pool '{pool}'")))
}

fn set_state(pool: &str, device: &str, is_fault: bool) -> std::result::Result<String, Refused> {
    let mut connection = connect(pool)?;
    let vdev = find_device(&mut connection, pool, device)?;
    connection.ask(&Request::Inject(InjectionRequest::SetState { vdev, is_fault }))?;
    Ok(String::new())
}

fn inject(fault: &FaultLine) -> std::result::Result<String, Refused> {
    let (pool, mut request) = match &fault.place {
        Place::Device { device, pool, label } => {
            let guid = find_device(&mut connect(pool)?, pool, device)?;
            (pool.clone(), add(fault, InjectionTarget::Leaf { guid, label: *label }))
        }
        Place::Bookmark { pool, objset, object, level, blocks } => {
            let (objset, object, level, blocks) = (*objset, *object, *level, *blocks);
            let copies = fault.copies;
            (pool.clone(), add(fault, InjectionTarget::Blocks { objset, object, level, blocks, copies }))
        }
        Place::File { path, is_dnode, level, range } => {
            let dataset = zfs::dataset_at(path)?.map_err(Refused::Failed)?;
            let file = std::fs::symlink_metadata(path).map_err(|e| Refused::Failed(format!("{path}: {e}")))?;
            let pool = dataset.split('/').next().unwrap_or_default().to_owned();
            let file = FileInjection {
                dataset,
                object: ObjectId::new(file.ino()),
                is_dnode: *is_dnode,
                level: *level,
                range: *range,
                copies: fault.copies,
                effect: fault.effect,
                requests: fault.requests,
                per_million: fault.per_million,
                number: 0,
            };
            (pool, InjectionRequest::AddToFile(file))
        }
    };
    let mut connection = connect(&pool)?;
    let mut wanted = active()?.iter().map(|(_, report)| report.number).max().map_or(1, |last| last + 1);
    let added = loop {
        if let InjectionRequest::Add { number, .. } | InjectionRequest::AddToFile(FileInjection { number, .. }) =
            &mut request
        {
            *number = wanted;
        }
        match ask(&mut connection, request.clone()) {
            // another command was faster
            Err(error) if error.kind() == base::Kind::Exists => wanted += 1,
            Err(error) => return Err(Refused::Failed(format!("failed to add handler: {}", error.what()))),
            Ok(added) => break added,
        }
    };
    if fault.flushes {
        ask(&mut connection, InjectionRequest::ForgetCached)?;
    }
    let told = |report: &InjectionReport| match fault.is_quiet {
        true => format!("{}\n", report.number),
        false => text::added(&pool, report),
    };
    Ok(added.first().map(told).unwrap_or_default())
}

/// A request without a number yet.
fn add(fault: &FaultLine, target: InjectionTarget) -> InjectionRequest {
    let (effect, requests, per_million): (InjectedEffect, InjectedRequests, u32) =
        (fault.effect, fault.requests, fault.per_million);
    InjectionRequest::Add { injection: Injection { target, effect, requests, per_million }, number: 0 }
}
