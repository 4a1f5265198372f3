//! What one leaf returns for a range, and what it is charged with.

use base::{AlignedBuf, Error, Kind as ErrorKind, Result};
use device::Read;

use super::lacking::Lacking;
use crate::health::VdevStats;
use crate::locate::Choice;
use crate::tree::Tree;

/// What a leaf returned, or will.
pub(super) struct LeafCopy {
    pub(super) from: Choice,
    pub(super) bytes: CopyState,
}

pub(super) enum CopyState {
    Unread,
    /// What came of reading it, before anybody called for it: it is as if unread until then.
    Ahead(Result<AlignedBuf>),
    Failed(Error),
    Read(AlignedBuf),
}

impl LeafCopy {
    /// Whether nobody has called for it.
    pub(super) fn is_unread(&self) -> bool {
        matches!(self.bytes, CopyState::Unread | CopyState::Ahead(_))
    }

    /// Whether it was read ahead, and the device turned out to be gone.
    pub(super) fn is_gone(&self) -> bool {
        matches!(&self.bytes, CopyState::Ahead(Err(error)) if error.kind() == ErrorKind::Missing)
    }

    pub(super) fn get(&self) -> Option<&[u8]> {
        match &self.bytes {
            CopyState::Read(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The error, if it was read and that failed; leaves it unread no more.
    pub(super) fn error(&self) -> Option<&Error> {
        match &self.bytes {
            CopyState::Failed(e) => Some(e),
            _ => None,
        }
    }

    /// Whether the leaf should have the right bytes, and has not.
    pub(super) fn is_wounded(&self, right: &[u8]) -> bool {
        self.from.trusted
            && match &self.bytes {
                CopyState::Read(bytes) => bytes[..] != *right,
                CopyState::Failed(error) => error.kind() == ErrorKind::Io,
                CopyState::Unread | CopyState::Ahead(_) => false,
            }
    }

    /// Whether the leaf is known to lack the block, and can be given it.
    pub(super) fn is_to_be_filled(&self, right: &[u8]) -> bool {
        !self.from.trusted
            && match &self.bytes {
                CopyState::Read(bytes) => bytes[..] != *right,
                // what it lacks it need not be able to read
                CopyState::Failed(error) => error.kind() != ErrorKind::Missing,
                // a row may have no bytes on a disk
                CopyState::Unread | CopyState::Ahead(_) => !right.is_empty(),
            }
    }

    /// Whether its leaf is read for a scrub or a resilver. A resilver does not read leaves that lack the block: it writes
    /// to them, and a disk that has to do both at the same place waits for a revolution in between.
    pub(super) fn is_worth_reading(&self, lacking: Lacking) -> bool {
        self.from.trusted || lacking == Lacking::Leave
    }

    /// Counts a read error if the read failed.
    pub(super) fn charge_failure(&self, tree: &Tree) {
        if self.error().is_some() {
            VdevStats::count(&tree.vdev(self.from.leaf).stats().read_errors);
        }
    }

    /// Counts a checksum error if the bytes differ from the right ones, or if there are none.
    pub(super) fn charge(&self, tree: &Tree, right: Option<&[u8]>) {
        let wrong = self.get().is_some_and(|bytes| right.is_none_or(|right| bytes != right));
        if wrong && self.from.trusted {
            tracing::warn!(vdev = tree.vdev(self.from.leaf).name(), offset = self.from.offset, "wrong bytes");
            VdevStats::count(&tree.vdev(self.from.charged()).stats().checksum_errors);
        }
    }
}

/// Calls for those of `copies` that nobody has called for, each with its size: those that have not been read are, all
/// at once.
pub(super) fn load<'a>(tree: &Tree, copies: impl Iterator<Item = (&'a mut LeafCopy, usize)>) {
    let mut called: Vec<(&mut LeafCopy, usize)> = copies.filter(|(copy, _)| copy.is_unread()).collect();
    read_ahead(tree, called.iter_mut().map(|(copy, len)| (&mut **copy, *len)));
    for (copy, _) in called {
        let CopyState::Ahead(result) = std::mem::replace(&mut copy.bytes, CopyState::Unread) else { continue };
        copy.bytes = match result {
            Ok(buf) => CopyState::Read(buf),
            Err(e) => {
                let leaf = tree.vdev(copy.from.leaf);
                tracing::warn!(vdev = leaf.name(), error = %e, "read failed");
                tree.state_of(copy.from.leaf).note_failure(&e);
                CopyState::Failed(e)
            }
        };
    }
}

/// Reads those of `copies` that have not been read, each with its size, all at once.
pub(super) fn read_ahead<'a>(tree: &Tree, copies: impl Iterator<Item = (&'a mut LeafCopy, usize)>) {
    let mut unread: Vec<(&mut LeafCopy, AlignedBuf)> = copies
        .filter(|(copy, _)| matches!(copy.bytes, CopyState::Unread))
        .map(|(copy, len)| (copy, AlignedBuf::for_overwrite(len)))
        .collect();
    let mut reads: Vec<Read<'_>> = unread.iter_mut().map(|(copy, buf)| tree.read_of(copy.from, buf)).collect();
    device::read_batch(&mut reads);
    let results: Vec<Result<()>> = reads.into_iter().map(|read| read.result).collect();
    for ((copy, buf), result) in unread.into_iter().zip(results) {
        copy.bytes = CopyState::Ahead(result.map(|()| buf));
    }
}
