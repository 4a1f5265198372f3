//! What goes over a pool process's socket.
//!
//! ```text
//!   process: | hello |                  | part | part | ... | done or failed |
//!   client:            | request |                                             | request | ...
//!
//!   each:    | length u32, little-endian | JSON |
//! ```
//!
//! A message longer than its bound, or one that makes no sense, ends the connection. Both ends are
//! usually one program; the hello tells if they are not of one version.

use std::io::{Read, Write};

use base::{Error, Kind, Result};
use format::ids::{DatasetId, Guid, ObjectId};
use pool::{NewDevices, NewLeaf, PoolTables, PruneAmount, ScrubRange, SweepAction, SweepKind};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::client_report::ClientsReport;
use crate::datasets;
use crate::injections::{InjectionReport, InjectionRequest};
use crate::io_report::IoReport;
use crate::log_report::{DatasetTimes, LogReport};
use crate::pool_report::{DedupReport, PoolReport, PropertyValue, VdevState};
use crate::profile_report::ProfileReport;
use crate::share::ShareOrder;
use crate::tap::{TapOrder, TapSubject, Tapped};

/// Version of all this.
pub const PROTOCOL: u32 = 22;
/// Longest request, in bytes.
pub const REQUEST_BYTES_MAX: u32 = 4 << 20;
/// Longest request of a user that may only ask, in bytes: many of them may be asking.
pub const STRANGER_BYTES_MAX: u32 = 64 << 10;
/// Longest answer, in bytes: all properties of very many datasets.
pub const REPLY_BYTES_MAX: u32 = 1 << 30;

/// Paths that may be asked for at once.
pub const PATHS_MAX: usize = 1024;

/// How a process greets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Must be [`PROTOCOL`].
    pub protocol: u32,
    /// Name of the pool.
    pub pool: String,
    /// Its guid.
    pub guid: Guid,
    /// Guids of the vdevs of its tree.
    pub vdevs: Vec<Guid>,
    /// Guids of its spares and cache devices.
    pub aux: Vec<Guid>,
    /// Id of the process.
    pub pid: u32,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// For everything that `zpool list`, `status` and `get` show.
    Report,
    /// For what `zpool iostat` shows.
    Io,
    /// For what `cenote zilstat` shows.
    Logs,
    /// For what `cenote where` shows of the inside of the process; waits for locks are counted on for a while.
    Profile,
    /// For how long reads and writes of file systems and volumes took; they are timed for a while from then on.
    Times,
    /// For the clients of volumes.
    Clients,
    /// For the paths of files of a dataset, in the order of their objects.
    Paths {
        /// The dataset.
        dataset: DatasetId,
        /// At most [`PATHS_MAX`].
        objects: Vec<ObjectId>,
    },
    /// For the names of damaged files.
    Damaged,
    /// For the dedup tables.
    Dedup,
    /// For the history, in parts.
    History,
    /// For the events behind that number.
    Events {
        /// It; 0: all.
        after: u64,
    },
    /// To forget all events.
    ClearEvents,
    /// To unmount everything and end.
    Export {
        /// The line of the command in the pool's history.
        history: String,
        /// Also what is in use.
        force: bool,
        /// The labels go on saying that the pool is in use, as if the process had been killed.
        stays_active: bool,
    },
    /// To unmount everything, mark the pool as destroyed, and end. One that is read-only is only exported.
    Destroy {
        /// Also what is in use.
        force: bool,
        /// A line for the history.
        history: String,
    },
    /// To clear error counts, and to go on if the pool is suspended.
    Clear {
        /// Guid of the vdev; all if there is none.
        vdev: Option<Guid>,
        /// A line for the history.
        history: String,
    },
    /// To use a device again.
    Online {
        /// Its guid.
        vdev: Guid,
        /// All of it, however large it is by now.
        expand: bool,
        /// A line for the history.
        history: String,
    },
    /// Not to use a device any more.
    Offline {
        /// Its guid.
        vdev: Guid,
        /// As if it were broken.
        fault: bool,
        /// Until the pool is imported.
        temporary: bool,
        /// A line for the history.
        history: String,
    },
    /// To add devices.
    Add {
        /// Which.
        devices: NewDevices,
        /// A line for the history.
        history: String,
    },
    /// Whether a device could be taken off, and how much memory it would take to know where what it has is then.
    MayRemove {
        /// Its guid.
        vdev: Guid,
    },
    /// To take off a log device, spare or cache device, or to begin to move what is on a top-level vdev.
    Remove {
        /// Its guid.
        vdev: Guid,
        /// A line for the history.
        history: String,
    },
    /// To give up the removal that is under way.
    CancelRemoval {
        /// A line for the history.
        history: String,
    },
    /// To let a device come beside another one: as a side of its mirror, or to take its place.
    Attach {
        /// Guid of the other one.
        vdev: Guid,
        /// The device.
        new: NewLeaf,
        /// Whether it is to take the place.
        replaces: bool,
        /// Whether it is given everything sequentially.
        sequentially: bool,
        /// Binary logarithm of the sector size; `None`: what the device says.
        ashift: Option<u32>,
        /// A line for the history.
        history: String,
    },
    /// To take a device off a mirror.
    Detach {
        /// Its guid.
        vdev: Guid,
        /// A line for the history.
        history: String,
    },
    /// To keep the state that the pool has now, or to give such a checkpoint up.
    Checkpoint {
        /// The latter.
        discard: bool,
        /// A line for the history.
        history: String,
    },
    /// To make a pool of one device of each mirror.
    Split {
        /// Its name.
        name: String,
        /// Guids of the devices.
        vdevs: Vec<Guid>,
        /// Properties that it has, and their values.
        properties: Vec<(String, String)>,
        /// A line for the history of both.
        history: String,
    },
    /// To write to all that is free on devices, or to tell them that nobody needs it.
    Sweep {
        /// Which of these.
        kind: SweepKind,
        /// Whether it begins, halts or ends.
        action: SweepAction,
        /// Guids of the devices.
        vdevs: Vec<Guid>,
        /// A line for the history.
        history: String,
    },
    /// To begin, halt or end a scrub.
    Scrub {
        /// Which of these.
        action: ScrubAction,
        /// A line for the history.
        history: String,
    },
    /// To look at all devices again.
    Reopen {
        /// Whether a resilver that is under way begins anew.
        restart: bool,
    },
    /// To begin a resilver anew.
    Resilver {
        /// A line for the history.
        history: String,
    },
    /// To bring all changes to disk.
    Sync {
        /// Write the labels of all devices even if nothing has changed.
        force: bool,
    },
    /// To bring all changes to disk, and nothing more but what intent logs write.
    Freeze,
    /// To set a property of the pool, whose value has been checked.
    Set {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
        /// A line for the history.
        history: String,
    },
    /// To set a property of a vdev, or to take it away.
    SetVdev {
        /// Guid of the vdev.
        vdev: Guid,
        /// Its name.
        name: String,
        /// Its value, which has been checked.
        value: Option<PropertyValue>,
        /// A line for the history.
        history: String,
    },
    /// To enable features of the pool, and all that they need.
    Enable {
        /// Their names.
        features: Vec<String>,
        /// A line for the history.
        history: String,
    },
    /// To give the pool another guid.
    Reguid {
        /// Which; or one that nobody has.
        guid: Option<Guid>,
        /// A line for the history.
        history: String,
    },
    /// To take the oldest entries of blocks with one pointer out of dedup tables.
    Prune {
        /// Which.
        amount: PruneAmount,
        /// A line for the history.
        history: String,
    },
    /// To read tables, so that they are in memory.
    Prefetch {
        /// Which.
        tables: PoolTables,
    },
    /// To let a file take blocks of another one.
    Share(ShareOrder),
    /// About faults that are asked for.
    Inject(InjectionRequest),
    /// About what happens at every moment.
    Tap {
        /// Of what.
        subject: TapSubject,
        /// What is to be done.
        order: TapOrder,
    },
    /// To hand the pool over to another program, and end.
    Upgrade {
        /// The process that has it: the one that asks.
        process: u32,
    },
    /// About datasets.
    Zfs(datasets::DatasetRequest),
}

/// What is to be done with a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScrubAction {
    /// It begins, or goes on if it is paused.
    Start(ScrubRange),
    /// Blocks of the error log are scrubbed, or go on to be.
    Errors,
    /// It halts.
    Pause,
    /// It ends.
    Stop,
}

/// See [`Request::cost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// One thing for each device, mount or table that the pool has, whatever is asked.
    OfPool,
    /// The answer goes out in parts while it is made. The lists of the request are [`crate::lists`].
    InParts,
    /// Only root and the owner of the process may ask.
    OfOwner,
}

impl Request {
    /// How many descriptors come beside it ([`crate::beside`]).
    pub fn descriptors(&self) -> usize {
        use datasets::DatasetRequest as Zfs;
        usize::from(matches!(self, Request::Zfs(Zfs::Send(_) | Zfs::Receive(_) | Zfs::Diff(_) | Zfs::Cut(_))))
    }

    /// Whether every user may ask for it, as with OpenZFS: what pools and datasets there are, and how they are.
    pub fn is_for_everybody(&self) -> bool {
        self.cost() != Cost::OfOwner
    }

    /// Whether it waits for a group to be on disk, or for requests of users, so that a pool that is suspended refuses it
    /// at once. Requests about datasets are judged where the change is made.
    pub fn needs_group(&self) -> bool {
        match self {
            Request::Online { .. }
            | Request::Offline { .. }
            | Request::Add { .. }
            | Request::Remove { .. }
            | Request::CancelRemoval { .. }
            | Request::Attach { .. }
            | Request::Detach { .. }
            | Request::Checkpoint { .. }
            | Request::Split { .. }
            | Request::Sweep { .. }
            | Request::Scrub { .. }
            | Request::Resilver { .. }
            | Request::Sync { .. }
            | Request::Freeze
            | Request::Set { .. }
            | Request::SetVdev { .. }
            | Request::Enable { .. }
            | Request::Reguid { .. }
            | Request::Prune { .. }
            | Request::Upgrade { .. }
            | Request::Paths { .. }
            | Request::Tap { .. } => true,
            Request::Report
            | Request::Io
            | Request::Logs
            | Request::Profile
            | Request::Times
            | Request::Clients
            | Request::Damaged
            | Request::Dedup
            | Request::History
            | Request::Events { .. }
            | Request::ClearEvents
            | Request::Export { .. }
            | Request::Destroy { .. }
            | Request::Clear { .. }
            | Request::MayRemove { .. }
            | Request::Reopen { .. }
            | Request::Prefetch { .. }
            | Request::Share(_)
            | Request::Inject(_)
            | Request::Zfs(_) => false,
        }
    }

    /// How much an answer can take. Every kind of request is judged here: one that every user may send has an answer
    /// that is bounded by itself, or that comes in parts.
    pub fn cost(&self) -> Cost {
        use datasets::DatasetRequest as Zfs;
        match self {
            Request::Report | Request::Io | Request::Logs | Request::Times | Request::Dedup => Cost::OfPool,
            Request::Zfs(Zfs::Mounts) => Cost::OfPool,
            Request::Zfs(Zfs::Datasets(_) | Zfs::Holds { .. }) => Cost::InParts,
            Request::Zfs(
                Zfs::Space { .. }
                | Zfs::Mount(_)
                | Zfs::Mountable(_)
                | Zfs::MountAt(_)
                | Zfs::Unmount(_)
                | Zfs::Change { .. }
                | Zfs::Send(_)
                | Zfs::Receive(_)
                | Zfs::Diff(_)
                | Zfs::Cut(_)
                | Zfs::Unlinked { .. }
                | Zfs::AbortReceive { .. },
            ) => Cost::OfOwner,
            Request::Damaged
            | Request::Profile
            | Request::Clients
            | Request::Paths { .. }
            | Request::History
            | Request::Events { .. }
            | Request::ClearEvents
            | Request::Export { .. }
            | Request::Destroy { .. }
            | Request::Clear { .. }
            | Request::Online { .. }
            | Request::Offline { .. }
            | Request::Add { .. }
            | Request::MayRemove { .. }
            | Request::Remove { .. }
            | Request::CancelRemoval { .. }
            | Request::Attach { .. }
            | Request::Detach { .. }
            | Request::Checkpoint { .. }
            | Request::Split { .. }
            | Request::Sweep { .. }
            | Request::Scrub { .. }
            | Request::Reopen { .. }
            | Request::Resilver { .. }
            | Request::Sync { .. }
            | Request::Freeze
            | Request::Set { .. }
            | Request::SetVdev { .. }
            | Request::Enable { .. }
            | Request::Reguid { .. }
            | Request::Prune { .. }
            | Request::Prefetch { .. }
            | Request::Share(_)
            | Request::Inject(_)
            | Request::Upgrade { .. }
            | Request::Tap { .. } => Cost::OfOwner,
        }
    }
}

/// What is answered, in the order of the requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // see `Request`
pub enum PoolReply {
    Report(Box<PoolReport>),
    Io(IoReport),
    Logs(LogReport),
    Profile(ProfileReport),
    Times(Vec<DatasetTimes>),
    Clients(ClientsReport),
    /// `None` of what has no path, or in directories with too many entries.
    Paths(Vec<Option<String>>),
    Damaged(Vec<String>),
    Dedup(DedupReport),
    /// Some records, each a packed list in hexadecimal digits.
    History(Vec<String>),
    /// Events, as records of the history; the number of the last one, and how many were forgotten.
    Events {
        events: Vec<String>,
        last: u64,
        dropped: u64,
    },
    /// How many events there were.
    Cleared(u64),
    /// Devices for which something was refused, by their guids, and why.
    RefusedVdevs(Vec<(Guid, String)>),
    Exported,
    /// The process ends, and another one goes on.
    HandedOver,
    /// State of a device.
    Onlined(VdevState),
    /// Bytes of memory that the table of a device would take that was removed.
    TableBytes(u64),
    Done,
    /// Bytes that are shared from then on; 0 if the first ones cannot be.
    Shared(u64),
    /// Faults that there are, or that one was about.
    Injections(Vec<InjectionReport>),
    /// What a tap had, also in parts.
    Tapped(Tapped),
    Zfs(datasets::Response),
}

/// A message of the process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// More follows.
    Part(PoolReply),
    /// The last one.
    Done(PoolReply),
    /// What was asked could not be done.
    Failed {
        /// Errno.
        errno: i32,
        /// Why.
        why: String,
    },
}

/// Sends a message.
pub fn send<T: Serialize>(to: &mut impl Write, message: &T) -> Result<()> {
    let json = serde_json::to_vec(message).map_err(|e| Error::corrupt(format!("message cannot be sent: {e}")))?;
    let len = u32::try_from(json.len()).map_err(|_| Error::new(Kind::TooBig, "message is too long"))?;
    let mut bytes = len.to_le_bytes().to_vec();
    bytes.extend(json);
    Ok(to.write_all(&bytes)?)
}

/// Receives a message of at most `bytes_max`; `None` if the other side is done.
pub fn receive<T: DeserializeOwned>(from: &mut impl Read, bytes_max: u32) -> Result<Option<T>> {
    let mut head = [0; 4];
    let mut got = 0;
    while got < head.len() {
        match from.read(&mut head[got..]) {
            Ok(0) if got == 0 => return Ok(None),
            Ok(0) => return Err(Error::corrupt("message ends early")),
            Ok(n) => got += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    let len = u32::from_le_bytes(head);
    if len > bytes_max {
        return Err(Error::new(Kind::TooBig, format!("message of {len} bytes, where {bytes_max} are the most")));
    }
    // grows with what really comes, whatever the length says
    let mut json = Vec::new();
    from.take(len.into()).read_to_end(&mut json)?;
    if json.len() != len as usize {
        return Err(Error::corrupt("message ends early"));
    }
    serde_json::from_slice(&json).map(Some).map_err(|e| Error::corrupt(format!("message makes no sense: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_through() {
        let mut bytes = Vec::new();
        send(&mut bytes, &Request::Export { force: true, stays_active: false, history: "x".to_owned() }).unwrap();
        send(&mut bytes, &Answer::Failed { errno: 16, why: "busy".into() }).unwrap();
        let mut rest = bytes.as_slice();
        let request: Option<Request> = receive(&mut rest, REQUEST_BYTES_MAX).unwrap();
        assert_eq!(request, Some(Request::Export { force: true, stays_active: false, history: "x".to_owned() }));
        let answer: Option<Answer> = receive(&mut rest, REPLY_BYTES_MAX).unwrap();
        assert_eq!(answer, Some(Answer::Failed { errno: 16, why: "busy".into() }));
        assert_eq!(receive::<Request>(&mut rest, 10).unwrap(), None);
    }

    #[test]
    fn taps_are_of_the_owner() {
        let order = TapOrder::Take { session: 1, shift: 0 };
        for subject in [TapSubject::Blocks, TapSubject::Requests] {
            let request = Request::Tap { subject, order };
            assert!(!request.is_for_everybody() && request.needs_group() && request.descriptors() == 0);
        }
    }

    #[test]
    fn nonsense_is_an_error() {
        let check = |bytes: &[u8]| receive::<Request>(&mut &*bytes, 1000).unwrap_err().kind();
        assert_eq!(check(&[1, 0]), Kind::Corrupt);
        assert_eq!(check(&[2, 0, 0, 0, b'{']), Kind::Corrupt);
        assert_eq!(check(&[2, 0, 0, 0, b'{', b'}']), Kind::Corrupt);
        assert_eq!(check(&[0xff; 4]), Kind::TooBig);
        let mut deep = 900u32.to_le_bytes().to_vec();
        deep.extend([b'['; 900]);
        assert_eq!(check(&deep), Kind::Corrupt);
    }
}
