//! Files that come to share blocks: what `cenote reflink` asks for.

use serde::{Deserialize, Serialize};

/// A regular file of a file system or snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedFile {
    /// The file system that is mounted, or a snapshot of it.
    pub dataset: String,
    /// Its number as stat(2) tells it.
    pub inode: u64,
}

/// To let a file take blocks of another one, as far as that can be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareOrder {
    /// What has them.
    pub source: SharedFile,
    /// Where in it, in bytes.
    pub source_offset: u64,
    /// What takes them.
    pub target: SharedFile,
    /// Where in it, in bytes.
    pub offset: u64,
    /// Most bytes.
    pub len: u64,
}
