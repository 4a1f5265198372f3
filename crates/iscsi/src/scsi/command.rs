//! A command under way, and what comes of it.

use std::sync::Arc;

use base::{AlignedBuf, Block, Piece};

use crate::scsi::sense::ScsiFailure;
use crate::scsi::unit::{LogicalUnit, Nexus};

/// Bytes of the block of a command.
pub(crate) const CDB_BYTES: usize = 16;

/// A command under way.
pub(crate) struct ScsiCommand<'a> {
    pub(crate) unit: &'a LogicalUnit,
    pub(crate) nexus: &'a Arc<Nexus>,
    pub(crate) cdb: [u8; CDB_BYTES],
    /// What came with it.
    pub(crate) data: &'a [u8],
}

/// What comes of a command that succeeds.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) data: Vec<Piece>,
    /// Bytes that it takes from the initiator.
    pub(crate) takes: u64,
    /// Ports whose commands are to be aborted when it is done.
    pub(crate) aborts: Vec<String>,
}

/// What comes of a command.
pub(crate) type ScsiOutcome = std::result::Result<Done, ScsiFailure>;

impl ScsiCommand<'_> {
    pub(crate) fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.cdb[at], self.cdb[at + 1]])
    }

    pub(crate) fn u32(&self, at: usize) -> u32 {
        u32::from(self.u16(at)) << 16 | u32::from(self.u16(at + 2))
    }

    pub(crate) fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) << 32 | u64::from(self.u32(at + 4))
    }

    pub(crate) fn has(&self, at: usize, bits: u8) -> bool {
        self.cdb[at] & bits != 0
    }
}

impl Done {
    /// Bytes for the initiator, of which it wants so many at most.
    pub(crate) fn bytes(bytes: &[u8], most: usize) -> ScsiOutcome {
        let block = Block::from(AlignedBuf::from(bytes));
        Ok(Done { data: vec![Piece::of(block, 0..most.min(bytes.len()))], ..Done::default() })
    }

    /// Nothing but that it took so many bytes.
    pub(crate) fn took(takes: u64) -> ScsiOutcome {
        Ok(Done { takes, ..Done::default() })
    }
}
