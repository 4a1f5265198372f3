//! Standing in for the process of a pool that dies again and again: no device is opened, every request of the mounts fails
//! with EIO, and commands are told why, until the pool is cleared or exported.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;

use base::{Env, Error, Kind, Result};
use format::ids::Guid;
use fuse::{Helper, Inheritance, StandIn, Unmount};
use protocol::rundir::RunDir;
use protocol::wire::{Answer, PoolReply, Request};

use super::hello;
use crate::server::{self, AnswersRequests};
use crate::{confine, descriptors, listen_helper, log, revival};

/// Commands are answered by this.
struct AwayPool {
    guid: Guid,
    name: String,
    mounts: StandIn,
    helper: Helper,
}

/// Is the process that stands in for that of a pool, which died too often: `pool` is what that left with its keeper, which is
/// at standard input.
pub fn stand_in(pool: &str) -> ExitCode {
    match serve(pool) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cenote serve --stand-in: started by the keeper of a pool, not by hand: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(pool: &str) -> Result<()> {
    log::start(false);
    descriptors::raise_limit();
    let (name, guid) = revival::named(pool).ok_or_else(|| Error::new(Kind::Invalid, "no pool is named"))?;
    let (helper, inheritance) = Helper::inherited(std::io::stdin().as_fd().try_clone_to_owned()?)?;
    let Inheritance { mounts, claim, listener, .. } = inheritance;
    let missing = || Error::new(Kind::Missing, "the place of the process was not kept");
    let (claim, listener) = claim.zip(listener).ok_or_else(missing)?;
    let mut claim = RunDir::make()?.claim_again(&name, File::from(claim))?;
    let listener = listen_helper::listen(&mut claim, Some(listener))?;
    confine::confine(&[claim.dir().path()]).map_err(|why| Error::new(Kind::Permission, why))?;
    log::begin();
    let mounts = StandIn::begin(mounts, &Env::real())?;
    let greeting = hello(&name, guid);
    tracing::error!(pool = name, "its process died too often: all requests fail until 'zpool clear {name}'");
    server::listen(&listener, &Arc::new(AwayPool { guid, name, mounts, helper }), &greeting);
    Ok(())
}

impl AnswersRequests for AwayPool {
    fn guids(&self) -> (Guid, Vec<Guid>, Vec<Guid>) {
        (self.guid, Vec::new(), Vec::new())
    }

    fn answer(
        &self,
        request: &Request,
        _: Vec<OwnedFd>,
        _: &mut dyn FnMut(PoolReply) -> Result<()>,
    ) -> Result<PoolReply> {
        match request {
            Request::Clear { .. } => self.helper.serve_again().map(|()| PoolReply::HandedOver),
            Request::Export { force, .. } => {
                let how = if *force { Unmount::Force } else { Unmount::IfUnused };
                self.mounts.unmount(&self.helper, how)?;
                self.helper.retire()?;
                Ok(PoolReply::Exported)
            }
            _ => Err(Error::new(
                Kind::Io,
                format!(
                    "the process of pool '{0}' has died too often, and its file systems give errors: \
                     'zpool clear {0}' starts it again, the log is {0}.log.old",
                    self.name
                ),
            )),
        }
    }

    fn answered(&self, last: &Answer) {
        if let Answer::Done(PoolReply::HandedOver | PoolReply::Exported) = last {
            // the next process has the claim, and where it is listened
            std::process::exit(0);
        }
    }
}
