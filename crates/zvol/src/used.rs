//! How much a volume was used since it was opened.

use std::sync::atomic::{AtomicU64, Ordering};

use base::UserOp;

/// Counters of an open volume, which can be held without the volume: reads and writes, and the bytes of each.
#[derive(Debug, Default)]
pub struct VolumeCounters([[AtomicU64; 2]; 2]);

/// Requests and bytes of a volume since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeUse {
    /// Reads.
    pub reads: u64,
    /// Bytes that they asked for.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes that they brought.
    pub written_bytes: u64,
}

impl VolumeCounters {
    pub(crate) fn note(&self, op: UserOp, bytes: u64) {
        let way = match op {
            UserOp::Read => 0,
            UserOp::Write => 1,
            UserOp::Sync => return,
        };
        let [count, sum] = &self.0[way];
        count.fetch_add(1, Ordering::Relaxed);
        sum.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The sums now.
    pub fn sums(&self) -> VolumeUse {
        let [[reads, read_bytes], [writes, written_bytes]] =
            [0, 1].map(|way| [0, 1].map(|what| self.0[way][what].load(Ordering::Relaxed)));
        VolumeUse { reads, read_bytes, writes, written_bytes }
    }
}
