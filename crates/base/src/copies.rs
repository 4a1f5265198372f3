//! Bytes that the process copies from one place in memory to another, by what they are, counted while somebody asks.
//!
//! Counted is where data go through, in whole blocks or requests; records of metadata, labels and the like are not.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::lock_waits::is_asked_for;

/// What is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyKind {
    /// Requests of FUSE, from the kernel into blocks, by the kernel.
    FromKernel,
    /// Answers of FUSE, from blocks to the kernel, by the kernel.
    ToKernel,
    /// Writes of users, into the blocks that they change.
    IntoBlocks,
    /// Blocks, into the buffer of a reader.
    IntoBuffers,
    /// Writes of users, into blocks of an intent log.
    IntoLog,
    /// Reads of neighbours that were made as one, to each its own.
    JoinedReads,
    /// Blocks that are put together from columns or copies of disks, or rebuilt, verified and mended.
    FromColumns,
    /// Buffers that are made of others, of blocks that do not compress among them.
    IntoNew,
}

/// All kinds with their names, in the order of their numbers.
const KINDS: [(CopyKind, &str); 8] = [
    (CopyKind::FromKernel, "requests, by the kernel"),
    (CopyKind::ToKernel, "answers, by the kernel"),
    (CopyKind::IntoBlocks, "writes into blocks"),
    (CopyKind::IntoBuffers, "blocks into buffers of readers"),
    (CopyKind::IntoLog, "writes into the log"),
    (CopyKind::JoinedReads, "reads that were made as one"),
    (CopyKind::FromColumns, "blocks from disks, rebuilt or mended"),
    (CopyKind::IntoNew, "new buffers of others"),
];

static BYTES: [AtomicU64; KINDS.len()] = [const { AtomicU64::new(0) }; KINDS.len()];

/// Counts bytes that are copied, if somebody asks.
#[inline]
pub fn count_copy(kind: CopyKind, bytes: usize) {
    if is_asked_for() {
        add(kind, bytes);
    }
}

fn add(kind: CopyKind, bytes: usize) {
    BYTES[kind as usize].fetch_add(bytes as u64, Ordering::Relaxed);
}

/// Bytes that were copied while somebody asked, by name of the kind.
pub fn copied_bytes() -> Vec<(&'static str, u64)> {
    KINDS.iter().map(|(kind, name)| (*name, BYTES[*kind as usize].load(Ordering::Relaxed))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_counted_by_kind() {
        assert!(KINDS.iter().enumerate().all(|(at, (kind, _))| *kind as usize == at));
        let of = |name: &str| copied_bytes().into_iter().find(|(kind, _)| *kind == name).unwrap().1;
        // no other test of this program copies this
        add(CopyKind::IntoLog, 4096);
        add(CopyKind::IntoLog, 512);
        assert_eq!(of("writes into the log"), 4608);
    }
}
