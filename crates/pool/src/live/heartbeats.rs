//! The last heartbeats of a pool with `multihost`, for people to look at.

use std::collections::VecDeque;

use base::{Env, tunables};
use format::ids::{Guid, Txg};

/// Why a heartbeat is left out, as [`HeartbeatRecord::error`]: no leaf can be written to.
pub(super) const SKIPPED_NO_LEAF: i32 = 1;
/// All leaves are still busy with their last one.
pub(super) const SKIPPED_ALL_BUSY: i32 = 2;

/// A heartbeat, or that there was none when it was time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatRecord {
    /// Its number, in the order in which they begin.
    pub id: u64,
    /// The group whose uberblock it repeats.
    pub txg: Txg,
    /// When it began, seconds since 1970.
    pub time_s: u64,
    /// 0, or the number of the system's error; of one that was left out, why.
    pub error: i32,
    /// How long it took, nanoseconds; 0 while it is under way.
    pub duration_ns: u64,
    /// About how far heartbeats are apart, nanoseconds.
    pub delay_ns: u64,
    /// Where it was written; `None` if it was left out.
    pub place: Option<HeartbeatPlace>,
}

/// Where a heartbeat is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatPlace {
    /// The leaf.
    pub leaf: Guid,
    /// Which of its labels: 0 to 3.
    pub label: usize,
    /// Path of its device.
    pub path: String,
}

/// As many as tunable `zfs_multihost_history` says.
#[derive(Default)]
pub(super) struct HeartbeatHistory {
    records: VecDeque<HeartbeatRecord>,
    next_id: u64,
}

impl HeartbeatHistory {
    /// Notes that one begins, or is left out; its number.
    pub(super) fn add(&mut self, env: &Env, record: HeartbeatRecord) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.records.push_back(HeartbeatRecord { id, ..record });
        self.shorten(env);
        id
    }

    /// Notes what came of one.
    pub(super) fn finish(&mut self, id: u64, duration_ns: u64, error: i32) {
        if let Some(record) = self.records.iter_mut().rev().find(|record| record.id == id) {
            (record.duration_ns, record.error) = (duration_ns, error);
        }
    }

    /// All that are kept, the oldest first.
    pub(super) fn all(&mut self, env: &Env) -> Vec<HeartbeatRecord> {
        self.shorten(env);
        self.records.iter().cloned().collect()
    }

    fn shorten(&mut self, env: &Env) {
        let keep = usize::try_from(env.tunable(tunables::ZFS_MULTIHOST_HISTORY)).unwrap_or(usize::MAX);
        self.records.drain(..self.records.len().saturating_sub(keep));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_are_wanted() {
        let keep = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(3));
        let wanted = keep.clone();
        let env = Env::real().with_tunables(move |name| {
            (name == "zfs_multihost_history").then(|| wanted.load(std::sync::atomic::Ordering::Relaxed))
        });
        let record =
            HeartbeatRecord { id: 0, txg: Txg::ZERO, time_s: 0, error: 0, duration_ns: 0, delay_ns: 0, place: None };
        let mut history = HeartbeatHistory::default();
        for _ in 0..5 {
            history.add(&env, record.clone());
        }
        // one that is not kept any more, and one that is
        history.finish(1, 7, 5);
        history.finish(4, 7, 5);
        let all = history.all(&env);
        assert_eq!(all.iter().map(|r| (r.id, r.error)).collect::<Vec<_>>(), [(2, 0), (3, 0), (4, 5)]);
        keep.store(0, std::sync::atomic::Ordering::Relaxed);
        assert!(history.all(&env).is_empty());
    }
}
