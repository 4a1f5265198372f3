//! What one leaf returns for a range, and what it is charged with.

use base::{AlignedBuf, Error, Kind as ErrorKind, Result};
use device::Read;

use crate::health::Stats;
use crate::locate::Choice;
use crate::tree::Tree;

/// What a leaf returned, or will.
pub(super) struct Copy {
    pub(super) from: Choice,
    pub(super) bytes: Bytes,
}

pub(super) enum Bytes {
    Unread,
    Failed(Error),
    Read(AlignedBuf),
}

impl Copy {
    pub(super) fn get(&self) -> Option<&[u8]> {
        match &self.bytes {
            Bytes::Read(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The error, if it was read and that failed; leaves it unread no more.
    pub(super) fn error(&self) -> Option<&Error> {
        match &self.bytes {
            Bytes::Failed(e) => Some(e),
            _ => None,
        }
    }

    /// Whether the leaf should have the right bytes, and has not.
    pub(super) fn is_wounded(&self, right: &[u8]) -> bool {
        self.from.trusted
            && match &self.bytes {
                Bytes::Read(bytes) => bytes[..] != *right,
                Bytes::Failed(error) => error.kind() == ErrorKind::Io,
                Bytes::Unread => false,
            }
    }

    /// Whether the leaf is known to lack the block, and can be given it.
    pub(super) fn is_to_be_filled(&self, right: &[u8]) -> bool {
        !self.from.trusted
            && match &self.bytes {
                Bytes::Read(bytes) => bytes[..] != *right,
                // what it lacks it need not be able to read
                Bytes::Failed(error) => error.kind() != ErrorKind::Missing,
                Bytes::Unread => false,
            }
    }

    /// Counts a read error if the read failed.
    pub(super) fn charge_failure(&self, tree: &Tree) {
        if self.error().is_some() {
            Stats::count(&tree.vdev(self.from.leaf).stats().read_errors);
        }
    }

    /// Counts a checksum error if the bytes differ from the right ones, or if there are none.
    pub(super) fn charge(&self, tree: &Tree, right: Option<&[u8]>) {
        let wrong = self.get().is_some_and(|bytes| right.is_none_or(|right| bytes != right));
        if wrong && self.from.trusted {
            tracing::warn!(vdev = tree.vdev(self.from.leaf).name(), offset = self.from.offset, "wrong bytes");
            Stats::count(&tree.vdev(self.from.leaf).stats().checksum_errors);
        }
    }
}

/// Reads those of `copies` that have not been read, `len` bytes each, all at once.
pub(super) fn load<'a>(tree: &Tree, copies: impl Iterator<Item = &'a mut Copy>, len: impl Fn(usize) -> usize) {
    let mut unread: Vec<(&mut Copy, AlignedBuf)> = copies
        .enumerate()
        .filter(|(_, copy)| matches!(copy.bytes, Bytes::Unread))
        .map(|(i, copy)| (copy, AlignedBuf::for_overwrite(len(i))))
        .collect();
    let mut reads: Vec<Read<'_>> = unread.iter_mut().map(|(copy, buf)| tree.read_of(copy.from, buf)).collect();
    device::read_batch(&mut reads);
    let results: Vec<Result<()>> = reads.into_iter().map(|read| read.result).collect();
    for ((copy, buf), result) in unread.into_iter().zip(results) {
        copy.bytes = match result {
            Ok(()) => Bytes::Read(buf),
            Err(e) => {
                let leaf = tree.vdev(copy.from.leaf);
                tracing::warn!(vdev = leaf.name(), error = %e, "read failed");
                tree.state_of(copy.from.leaf).note_failure(&e);
                Bytes::Failed(e)
            }
        };
    }
}
