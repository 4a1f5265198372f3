//! What the vdevs of an imported pool have read and written: the counters behind `zpool iostat`.
//!
//! The process sends sums since the pool was imported; the command takes differences.
//!
//! ```text
//!   root      sum of the top-level vdevs     blocks
//!   top       its own                        blocks; if it is a leaf, requests to the device
//!   between   reads: sum of those below; writes: the most of one of them
//!   leaf      its own                        requests to the device, labels too
//! ```
//!
//! Times and sizes are those of the leaves, summed. They say how long requests took from when they
//! were handed to the devices' queue; what a block waited for before, such as the transaction group
//! that it is written with, has no leaf yet and is not in them. See [`device::meter`].

use std::collections::HashMap;

use device::meter::{Purpose, SIZE_BUCKETS, TIME_BUCKETS};
use format::ids::Guid;
use serde::{Deserialize, Serialize};

/// How many purposes there are.
const PURPOSES: usize = Purpose::ALL.len();

/// Counters of all vdevs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoReport {
    /// Nanoseconds since the pool was imported.
    pub open_ns: u64,
    /// By guid.
    pub vdevs: HashMap<Guid, IoCounters>,
}

/// Counters of one vdev. Pairs are reads and writes; others are by [`Purpose`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoCounters {
    /// Requests, or blocks.
    pub operations: [u64; 2],
    /// Their bytes.
    pub bytes: [u64; 2],
    /// Requests that wait, now.
    pub pending: [u64; PURPOSES],
    /// Requests that the devices work on, now.
    pub active: [u64; PURPOSES],
    /// Requests by the time that they took in all.
    pub total: [Vec<u64>; 2],
    /// Requests by the time that the device took.
    pub disk: [Vec<u64>; 2],
    /// Requests by the time that they waited.
    pub waits: [Vec<u64>; PURPOSES],
    /// Requests that were made by themselves, by their size.
    pub sizes: [Vec<u64>; PURPOSES],
    /// Those that several were put together to.
    pub joined_sizes: [Vec<u64>; PURPOSES],
}

impl IoCounters {
    /// Adds the counters of another vdev, but for operations and bytes.
    pub fn add_times(&mut self, other: &IoCounters) {
        let gauges =
            |own: &mut [u64; PURPOSES], other: &[u64; PURPOSES]| own.iter_mut().zip(other).for_each(|(a, b)| *a += b);
        gauges(&mut self.pending, &other.pending);
        gauges(&mut self.active, &other.active);
        self.each_histogram(other, |own, other| own + other);
    }

    /// What has been counted since `before`; gauges are as they are. If less was counted than before,
    /// it is another import of the pool, and nothing is taken off.
    pub fn since(&self, before: &IoCounters) -> IoCounters {
        let mut since = self.clone();
        let is_less = |side: usize| self.operations[side] < before.operations[side];
        if !is_less(0) && !is_less(1) {
            for side in 0..2 {
                since.operations[side] -= before.operations[side];
                since.bytes[side] = since.bytes[side].saturating_sub(before.bytes[side]);
            }
            since.each_histogram(before, u64::saturating_sub);
        }
        since
    }

    fn each_histogram(&mut self, other: &IoCounters, f: fn(u64, u64) -> u64) {
        let times = [(&mut self.total, &other.total), (&mut self.disk, &other.disk)];
        let times = times.into_iter().flat_map(|(own, other)| own.iter_mut().zip(other));
        let queues = [
            (&mut self.waits, &other.waits),
            (&mut self.sizes, &other.sizes),
            (&mut self.joined_sizes, &other.joined_sizes),
        ];
        let queues = queues.into_iter().flat_map(|(own, other)| own.iter_mut().zip(other));
        for (own, other) in times.chain(queues) {
            own.resize(own.len().max(other.len()), 0);
            own.iter_mut().zip(other).for_each(|(a, b)| *a = f(*a, *b));
        }
    }

    /// A histogram with all its buckets, also where nothing was counted.
    pub fn times(histogram: &[u64]) -> [u64; TIME_BUCKETS] {
        std::array::from_fn(|bucket| histogram.get(bucket).copied().unwrap_or(0))
    }

    /// As [`IoCounters::times`], of sizes.
    pub fn sizes_of(histogram: &[u64]) -> [u64; SIZE_BUCKETS] {
        std::array::from_fn(|bucket| histogram.get(bucket).copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences() {
        let before = IoCounters {
            operations: [5, 1],
            bytes: [500, 100],
            pending: [9; PURPOSES],
            total: [vec![1, 2], vec![]],
            ..IoCounters::default()
        };
        let now = IoCounters {
            operations: [7, 1],
            bytes: [800, 100],
            pending: [3; PURPOSES],
            total: [vec![1, 4, 1], vec![1]],
            ..IoCounters::default()
        };
        let since = now.since(&before);
        assert_eq!((since.operations, since.bytes, since.pending), ([2, 0], [300, 0], [3; PURPOSES]));
        assert_eq!(since.total, [vec![0, 2, 1], vec![1]]);
        // imported anew
        assert_eq!(before.since(&now), before);
        let mut sum = now.clone();
        sum.add_times(&before);
        assert_eq!((sum.operations, sum.pending), ([7, 1], [12; PURPOSES]));
        assert_eq!(sum.total, [vec![2, 6, 1], vec![1]]);
    }
}
