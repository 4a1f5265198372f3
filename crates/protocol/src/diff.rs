//! What `zfs diff` asks the process of a pool: what differs goes as text to a descriptor that comes beside the request.

use serde::{Deserialize, Serialize};

/// Two states of a file system, as a command line names them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffOrder {
    /// The earlier one.
    pub from: String,
    /// The later one, a snapshot or a file system as it is now; without it, the file system of `from`.
    pub to: Option<String>,
    /// The kind of each file is told.
    pub classify: bool,
    /// Rows are for programs.
    pub scripted: bool,
    /// When each file changed is told.
    pub timestamps: bool,
    /// Names are told as they are, instead of with escapes for all that is not printable ASCII.
    pub raw_names: bool,
}
