//! Which clients use the volumes of a pool, and what they ask for.

use serde::{Deserialize, Serialize};

/// The clients of a pool's volumes at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientsReport {
    /// When, in nanoseconds since the process began.
    pub now_ns: u64,
    /// Those that use a volume. What the kernel has mounted is none.
    pub clients: Vec<ClientReport>,
}

/// A client of a volume: a connection of NBD or iSCSI, or a virtual machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientReport {
    /// `nbd`, `iscsi` or `vhost`.
    pub protocol: String,
    /// Another one for each connection of that protocol and volume.
    pub number: u64,
    /// Its address, and how it calls itself; of this machine, its process.
    pub name: String,
    /// The volume, or snapshot of one.
    pub volume: String,
    /// Reads, writes and other requests since it came.
    pub operations: [u64; 3],
    /// Bytes of reads and writes.
    pub bytes: [u64; 2],
}
