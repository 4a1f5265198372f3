//! What the process of a pool knows of its own work: the numbers behind `cenote where` that nobody sees from outside.

use serde::{Deserialize, Serialize};

/// Counts since the process began, or since somebody began to ask.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileReport {
    /// Waits for locks since somebody began to ask: see [`base::lock_waits`].
    pub lock_waits: Vec<LockWaitsReport>,
    /// Requests of FUSE that were taken since the process began, by kind.
    pub requests: Vec<(String, u64)>,
    /// Bytes that were copied while somebody asked, by what they are: see [`base::copied_bytes`].
    pub copied: Vec<(String, u64)>,
}

/// Waits for a lock at one place of the source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockWaitsReport {
    /// The type that the lock guards.
    pub guarded: String,
    /// How it is taken: `lock`, `read` or `write`.
    pub how: String,
    /// Source file and line.
    pub place: String,
    /// How often somebody waited.
    pub count: u64,
    /// Nanoseconds of all waits, and of the longest.
    pub total_ns: u64,
    #[allow(missing_docs)] // see above
    pub longest_ns: u64,
}
