//! What the intent logs of an imported pool have done: what its process tells `cenote zilstat`.

use format::ids::{DatasetId, Txg};
use serde::{Deserialize, Serialize};

/// Sums since the pool was imported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogSums {
    /// Bytes of records.
    pub used_bytes: u64,
    /// Bytes of the log blocks that they are in.
    pub block_bytes: u64,
    /// Log blocks.
    pub blocks: u64,
    /// Of these, those of at most 4 KiB, of less than 32 KiB, and larger ones.
    pub by_size: [u64; 3],
    /// Bytes of writes that the log leads to: a log device would have them, too.
    pub in_place_bytes: u64,
}

/// The sums when a transaction group was closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupEnd {
    /// The group.
    pub txg: Txg,
    /// When, in nanoseconds since the pool was imported.
    pub at_ns: u64,
    /// The sums.
    pub sums: LogSums,
}

/// See the top of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogReport {
    /// Now, in nanoseconds since the pool was imported.
    pub now_ns: u64,
    /// The sums now.
    pub sums: LogSums,
    /// The ends of the latest groups, in their order.
    pub groups: Vec<GroupEnd>,
    /// How often commits took so long, by dataset: buckets of the binary logarithm of nanoseconds, up to the last that has any.
    pub commits: Vec<(DatasetId, Vec<u64>)>,
}

/// How often reads and writes of a file system or volume took so long while somebody asked: buckets of the binary
/// logarithm of nanoseconds, up to the last that has any.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetTimes {
    /// Object of the dataset.
    pub dataset: DatasetId,
    /// Of reads.
    pub reads: Vec<u64>,
    /// Of writes.
    pub writes: Vec<u64>,
}

impl LogSums {
    /// What was added since `before`. A log that is destroyed takes what it has done with it.
    pub fn since(&self, before: &LogSums) -> LogSums {
        let size = |at: usize| self.by_size[at].saturating_sub(before.by_size[at]);
        LogSums {
            used_bytes: self.used_bytes.saturating_sub(before.used_bytes),
            block_bytes: self.block_bytes.saturating_sub(before.block_bytes),
            blocks: self.blocks.saturating_sub(before.blocks),
            by_size: [size(0), size(1), size(2)],
            in_place_bytes: self.in_place_bytes.saturating_sub(before.in_place_bytes),
        }
    }

    /// Both together.
    pub fn plus(&self, other: &LogSums) -> LogSums {
        LogSums {
            used_bytes: self.used_bytes + other.used_bytes,
            block_bytes: self.block_bytes + other.block_bytes,
            blocks: self.blocks + other.blocks,
            by_size: [0, 1, 2].map(|at| self.by_size[at] + other.by_size[at]),
            in_place_bytes: self.in_place_bytes + other.in_place_bytes,
        }
    }
}

impl LogReport {
    /// The most bytes that a log device would have had for one group: of those of which both ends are known, and of
    /// the one that is open.
    pub fn heaviest_group(&self) -> Option<u64> {
        let open = self.groups.last().map(|last| (&last.sums, &self.sums));
        let ended = self.groups.windows(2).map(|pair| (&pair[0].sums, &pair[1].sums));
        let logged = |(from, to): (&LogSums, &LogSums)| {
            let group = to.since(from);
            group.block_bytes + group.in_place_bytes
        };
        ended.chain(open).map(logged).max()
    }
}
