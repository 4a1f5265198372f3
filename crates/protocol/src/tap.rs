//! Taps of a pool's process: what happens in it at every moment, noted for one command as long as that asks for it.
//!
//! ```text
//!   open ─▶ session      take session ─▶ entries in parts, then sums      close session
//! ```
//!
//! An entry is so many bytes, as [`Tapped::entries`] has them in hexadecimal digits: of accesses to blocks the 16 that
//! `arc::TappedAccess` says and how many more equal ones follow shortly, of requests what [`encode`] does.

use base::{UserOp, UserRequest};
use serde::{Deserialize, Serialize};

/// What is noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TapSubject {
    /// Accesses to blocks, at the cache.
    Blocks,
    /// Requests of users, at file systems and volumes.
    Requests,
}

/// What is to be done with a tap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TapOrder {
    /// It notes from now on.
    Open,
    /// What was noted is given out.
    Take {
        /// Number of the session.
        session: u64,
        /// Of blocks, the part that is noted from then on is at most a half to the power of this.
        shift: u32,
    },
    /// It notes no more.
    Close {
        /// Number of the session.
        session: u64,
    },
}

/// What a process says of its tap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tapped {
    /// Number of the session.
    pub session: u64,
    /// Now, in nanoseconds by the clock of requests.
    pub now_ns: u64,
    /// Entries, in their order.
    pub entries: String,
    /// Entries for which there was no room.
    pub lost: u64,
    /// What is known of the cache, with the last part of accesses to blocks.
    pub cache: Option<TappedCache>,
}

/// What the cache was asked for, and how it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TappedCache {
    /// The part of all blocks of which accesses are noted is a half to the power of this.
    pub shift: u32,
    /// Reads of all blocks that somebody waited for, since the session began.
    pub reads: u64,
    /// How many of them were not in RAM.
    pub misses: u64,
    /// Bytes that the cache may take.
    pub limit: u64,
    /// Bytes that it takes.
    pub size: u64,
    /// Bytes of its blocks alone.
    pub blocks: u64,
}

/// Bytes of an access to a block: what it is, and how often it was again shortly after.
pub const ACCESS_BYTES: usize = 17;

/// Bytes of a request.
pub const REQUEST_BYTES: usize = 37;

/// A request of a user, as an entry.
pub fn encode(request: &UserRequest) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    let words = [request.time_ns, request.dataset, request.object, request.offset];
    for (at, word) in words.into_iter().enumerate() {
        bytes[8 * at..8 * at + 8].copy_from_slice(&word.to_le_bytes());
    }
    bytes[32..36].copy_from_slice(&request.bytes.to_le_bytes());
    bytes[36] = request.op as u8;
    bytes
}

/// The request of an entry; `None` if it is none.
pub fn decode(bytes: &[u8]) -> Option<UserRequest> {
    let bytes: &[u8; REQUEST_BYTES] = bytes.try_into().ok()?;
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 * at + byte]));
    let op = [UserOp::Read, UserOp::Write, UserOp::Sync].into_iter().find(|op| *op as u8 == bytes[36])?;
    let len = u32::from_le_bytes(std::array::from_fn(|byte| bytes[32 + byte]));
    Some(UserRequest { time_ns: word(0), dataset: word(1), object: word(2), offset: word(3), bytes: len, op })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_back_from_their_bytes() {
        for op in [UserOp::Read, UserOp::Write, UserOp::Sync] {
            let request = UserRequest { time_ns: 1, dataset: 2, object: u64::MAX, offset: 4, bytes: u32::MAX - 5, op };
            assert_eq!(decode(&encode(&request)), Some(request));
        }
        let mut bytes = [0; REQUEST_BYTES];
        assert!(decode(&bytes[1..]).is_none());
        bytes[36] = 3;
        assert!(decode(&bytes).is_none());
    }
}
