//! What `zfs` asks of a pool's process: [`answer`] does what a request asks.
//!
//! - [`host`]: what the answers need of the process; `cut`: snapshots of many pools at one moment; [`change`], [`destroy`], [`snapshots`], [`mount`], [`query`], `diff`: the answers; `around`: what changes have in common; `limits`, `values`:
//!   what properties say; `parts`: answers that are sent while they are made; `volumes`: what is reckoned for volumes; `mount_options`: what words behind `-o` say; `now`: a snapshot for as long as a command takes.

mod around;
mod change;
mod cut;
mod destroy;
mod diff;
mod host;
mod input;
mod limits;
mod mount;
mod mount_options;
mod nearest;
mod now;
mod parts;
mod query;
mod receive;
mod received;
mod replicate;
mod send;
mod snapshots;
mod values;
mod volumes;

use std::fs::File;
use std::os::fd::OwnedFd;

use base::{Error, Kind, Result};
use protocol::datasets::{ChangeRequest, DatasetRequest, Response, SnapshotRequest, Types};

pub use host::{DatasetChange, Folders, Host, SnapshotChange, SnapshotGuard, StillPool};
pub use limits::Limit;
pub use mount::is_at_or_below_name;

/// Answers a request; `descriptors` came beside it, and `part` gets what is told before the end of the answer: notes, and
/// the beginning of a long list ([`Response::joined`]). Errors: of reading the
/// pool. What only concerns one of the datasets that were asked for is part of the answer.
pub fn answer(
    host: &dyn Host,
    request: &DatasetRequest,
    descriptors: Vec<OwnedFd>,
    part: &mut dyn FnMut(Response) -> Result<()>,
) -> Result<Response> {
    let descriptor = descriptors.into_iter().next();
    let descriptor = || descriptor.ok_or_else(|| Error::new(Kind::Invalid, "a stream without a descriptor"));
    let stream = |descriptor: Result<OwnedFd>| descriptor.map(File::from);
    let _turn = needs_turn(request).then(|| host.turn());
    match request {
        DatasetRequest::Send(order) => {
            send::send(host, order, stream(descriptor())?, &mut |told| part(Response::Note(told)))
        }
        DatasetRequest::Receive(order) => {
            receive::receive(host, order, stream(descriptor())?, &mut |told| part(Response::Note(told)))
        }
        DatasetRequest::Diff(order) => diff::diff(host, order, stream(descriptor())?),
        DatasetRequest::Cut(order) => {
            let steps = descriptor()?.into();
            cut::cut(host, order, steps, &mut |stage| part(Response::Cut(stage))).map(Response::Cut)
        }
        DatasetRequest::AbortReceive { dataset, history } => receive::abort(host, dataset, history),
        DatasetRequest::Datasets(select) => query::datasets(host, select, part).map(Response::Datasets),
        DatasetRequest::Space { dataset, owner } => query::space(host, dataset, *owner).map(Response::Space),
        DatasetRequest::Holds { snapshots, recursive } => {
            let (holds, failures) = query::holds(host, snapshots, *recursive, part)?;
            Ok(Response::Holds(holds, failures))
        }
        DatasetRequest::Unlinked { dataset } => {
            let found = query::open(host, dataset, Types::FILE_SYSTEMS);
            Ok(Response::Unlinked(found.map(|_| host.unlinked(dataset))))
        }
        DatasetRequest::Mounts => Ok(Response::Mounts(host.mounts())),
        DatasetRequest::Mount(request) => mount::mount(host, request),
        DatasetRequest::Mountable(request) => mount::mountable(host, request),
        DatasetRequest::MountAt(request) => mount::mount_at(host, request),
        DatasetRequest::Change { change, history } => {
            let mut notes = volumes::warnings(host, change);
            let (out, failures) = change::change(host, change, history.as_deref())?;
            if failures.is_empty() {
                notes.extend(volumes::open_to_all(host, change));
            }
            Ok(Response::Changed { out, notes, failures })
        }
        DatasetRequest::Unmount(request) => {
            let failures = mount::unmount(host, request)?;
            Ok(Response::Done { failures, notes: Vec::new() })
        }
    }
}

/// Whether a request looks at what is mounted, and changes it or the names of datasets in several steps, which none other
/// may come between. A receive takes its turn for such steps.
fn needs_turn(request: &DatasetRequest) -> bool {
    match request {
        DatasetRequest::Mount(_) | DatasetRequest::MountAt(_) | DatasetRequest::Unmount(_) | DatasetRequest::Cut(_) => {
            true
        }
        DatasetRequest::Change { change: ChangeRequest::Snapshots(request), .. } => match request {
            SnapshotRequest::Destroy(gone) => gone.clones,
            SnapshotRequest::Clone { .. } | SnapshotRequest::Rollback { .. } | SnapshotRequest::Promote { .. } => true,
            _ => false,
        },
        DatasetRequest::Change { .. } => true,
        _ => false,
    }
}
