//! Making a [`ProfileReport`] of this process.

use protocol::profile_report::{LockWaitsReport, ProfileReport};

/// What is known now; waits for locks are counted on for a while.
pub fn gather() -> ProfileReport {
    let lock_waits = base::lock_waits().into_iter().map(|waits| LockWaitsReport {
        guarded: waits.guarded.to_owned(),
        how: waits.how.to_owned(),
        place: format!("{}:{}", waits.file, waits.line),
        count: waits.count,
        total_ns: waits.total_ns,
        longest_ns: waits.longest_ns,
    });
    let copied = base::copied_bytes().into_iter().map(|(kind, bytes)| (kind.to_owned(), bytes)).collect();
    ProfileReport { lock_waits: lock_waits.collect(), requests: fuse::request_counts(), copied }
}
