//! The head of a log, in the head of its object set.
//!
//! ```text
//!   0  claim txg u64 | highest record replayed u64
//!  16  pointer to the first block (128 bytes)
//! 144  last block claimed u64 | flags u64 | last record claimed u64 | 0 ...   (192 bytes)
//! ```
//!
//! A log is *claimed* at the first import after a crash: its blocks, which no synced state refers to,
//! are marked as allocated. From then on it is known where the log ends.
//!
//! Source: the published ZFS on-disk specification, chapter 7.

use base::{Endian, Error, Reader, Result};
use format::blkptr::BlkPtr;
use format::ids::Txg;

/// Bytes of a head.
const SIZE: usize = 192;

/// A log's head. The object set's byte order has been turned already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZilHeader {
    /// Transaction group that claimed the log; 0 if none did.
    pub claim_txg: Txg,
    /// Sequence number of the last record that was replayed.
    pub replay_seq: u64,
    /// The first block; a hole if there is no log.
    pub first: BlkPtr,
    /// Sequence number of the last block that was claimed.
    pub claim_block_seq: u64,
    /// The `FLAG_` bits.
    pub flags: u64,
    /// Sequence number of the last record that was claimed; valid with a flag.
    pub claim_record_seq: u64,
}

impl ZilHeader {
    /// The log has to be replayed.
    pub const FLAG_REPLAY_NEEDED: u64 = 1 << 0;
    /// `claim_record_seq` is valid.
    pub const FLAG_CLAIM_RECORD_SEQ_VALID: u64 = 1 << 1;

    /// No log.
    pub const EMPTY: ZilHeader = ZilHeader {
        claim_txg: Txg::ZERO,
        replay_seq: 0,
        first: BlkPtr::HOLE,
        claim_block_seq: 0,
        flags: 0,
        claim_record_seq: 0,
    };

    /// The 192 bytes in the head of an object set.
    pub fn bytes(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        let mut put = |at: usize, word: u64| bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        put(0, self.claim_txg.get());
        put(8, self.replay_seq);
        put(144, self.claim_block_seq);
        put(152, self.flags);
        put(160, self.claim_record_seq);
        bytes[16..144].copy_from_slice(self.first.raw());
        bytes
    }

    /// From the 192 bytes in the head of an object set.
    pub fn parse(bytes: &[u8]) -> Result<ZilHeader> {
        let mut r = Reader::new(bytes, Endian::Little);
        let (claim_txg, replay_seq) = (r.u64()?, r.u64()?);
        let first = BlkPtr::parse(r.take(BlkPtr::SIZE)?).ok_or_else(|| Error::corrupt("log header ends early"))?;
        let (claim_block_seq, flags, claim_record_seq) = (r.u64()?, r.u64()?, r.u64()?);
        Ok(ZilHeader { claim_txg: Txg::new(claim_txg), replay_seq, first, claim_block_seq, flags, claim_record_seq })
    }

    /// Whether blocks of the log are known to be allocated.
    pub fn is_claimed(&self) -> bool {
        self.claim_txg != Txg::ZERO
    }

    /// The last block and the last record that belong to the log, by their sequence numbers.
    pub(crate) fn last_seqs(&self) -> (u64, u64) {
        let known = self.is_claimed() && self.flags & ZilHeader::FLAG_CLAIM_RECORD_SEQ_VALID != 0;
        (
            if self.is_claimed() { self.claim_block_seq } else { u64::MAX },
            if known { self.claim_record_seq } else { u64::MAX },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_ends() {
        let mut words = [0u64; 24];
        (words[0], words[1], words[2 + 10], words[18], words[19], words[20]) = (7, 3, 99, 12, 2, 40);
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let header = ZilHeader::parse(&bytes).unwrap();
        assert_eq!(header.bytes()[..], bytes);
        assert_eq!((header.claim_txg, header.replay_seq, header.first.birth()), (Txg::new(7), 3, Txg::new(99)));
        assert_eq!(header.last_seqs(), (12, 40));
        assert_eq!(ZilHeader { flags: 0, ..header }.last_seqs(), (12, u64::MAX));
        assert_eq!(ZilHeader { claim_txg: Txg::ZERO, ..header }.last_seqs(), (u64::MAX, u64::MAX));
        assert!(ZilHeader::parse(&bytes[..100]).is_err());
    }
}
