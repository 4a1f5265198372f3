//! What `zfs send` and `zfs receive` ask the process of a pool: the stream itself goes through a descriptor that comes
//! beside the request.

use serde::{Deserialize, Serialize};

/// A stream to be sent; names are full ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendOrder {
    /// The snapshot; with `saved`, the dataset of an interrupted receive. Empty with a token.
    pub to: String,
    /// The snapshot or bookmark that it begins from.
    pub from: Option<String>,
    /// Also all snapshots in between.
    pub all: bool,
    /// All datasets below, with properties, snapshots and clones.
    pub replicate: bool,
    /// With `replicate`: datasets without the snapshot are left out.
    pub skip_missing: bool,
    /// With `replicate`: datasets that are left out, with all below them.
    pub exclude: Vec<String>,
    /// With properties.
    pub properties: bool,
    /// With received properties only.
    pub backup: bool,
    /// With holds.
    pub holds: bool,
    /// Blocks may have more than 128 KiB.
    pub large_blocks: bool,
    /// Data may come as it is embedded in block pointers.
    pub embedded: bool,
    /// Data may come as it is compressed on disk.
    pub compressed: bool,
    /// Encrypted data come as they are.
    pub raw: bool,
    /// Blocks in the list of that redaction bookmark of the snapshot are left out.
    pub redact: Option<String>,
    /// Goes on where the receiver with that token stopped.
    pub token: Option<String>,
    /// Sends what an interrupted receive has brought.
    pub saved: bool,
    /// Only say what would be sent.
    pub dry_run: bool,
    /// Tell what is sent, and how large it is; from 1 on.
    pub verbosity: u32,
    /// Find out beforehand how large each stream is: `StreamNote::Progress` tells it.
    pub sized: bool,
    /// Tell it for programs.
    pub parsable: bool,
}

/// A stream to be received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiveOrder {
    /// The file system, volume or snapshot that it is to become.
    pub target: String,
    /// Append all of the sender's name but the pool's.
    pub append_path: bool,
    /// Append the last part of the sender's name.
    pub append_name: bool,
    /// Give up what has changed since the snapshot that it begins from.
    pub force: bool,
    /// Keep a part of the stream, so that it can be resumed.
    pub resumable: bool,
    /// Mount nothing.
    pub no_mount: bool,
    /// Unmount by force.
    pub force_unmount: bool,
    /// Leave out holds.
    pub skip_holds: bool,
    /// Properties that are set, instead of what the stream says.
    pub set: Vec<(String, String)>,
    /// Properties that are inherited, instead of what the stream says.
    pub exclude: Vec<String>,
    /// Make a clone of that snapshot.
    pub origin: Option<String>,
    /// Mend what is damaged of the snapshot.
    pub corrective: bool,
    /// Only say what would be done.
    pub dry_run: bool,
    /// Say what is done.
    pub verbose: bool,
    /// A line for the history of the pool.
    pub history: String,
}

/// What is told while a stream is on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamNote {
    /// A line for people or programs, on standard output, or of a stream that goes there on standard error.
    Line(String),
    /// How much has been sent.
    Progress {
        /// Name of the snapshot.
        snapshot: String,
        /// Bytes of its stream.
        bytes: u64,
        /// How many there will be, if that was asked for.
        size: u64,
    },
    /// Nothing: it cannot be told when the command has gone.
    Alive,
}
