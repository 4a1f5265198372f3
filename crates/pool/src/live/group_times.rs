//! How long the last groups took on their way to disk, for people to look at.

use std::collections::VecDeque;

use base::{Env, tunables};
use format::ids::Txg;

/// How far a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupStage {
    /// It takes changes.
    Open,
    /// It is on its way to disk.
    Syncing,
    /// It is on disk.
    Committed,
}

/// What all devices of a pool have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTotals {
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

impl DeviceTotals {
    fn since(self, before: DeviceTotals) -> DeviceTotals {
        DeviceTotals {
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            reads: self.reads.saturating_sub(before.reads),
            writes: self.writes.saturating_sub(before.writes),
        }
    }
}

/// A group, and how long it took. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRecord {
    /// The group.
    pub txg: Txg,
    /// How far it is.
    pub stage: GroupStage,
    /// When it began to take changes, by [`Env::ticks_ns`].
    pub birth_ns: u64,
    /// Bytes of its changes, when it was closed.
    pub dirty_bytes: u64,
    /// What devices did while it was on its way to disk.
    pub io: DeviceTotals,
    /// How long it took changes.
    pub open_ns: u64,
    /// How long the operations went on that it waited for.
    pub quiesce_ns: u64,
    /// How long it was on its way to disk.
    pub sync_ns: u64,
}

/// As many as tunable `zfs_txg_history` says, and the one that is on its way.
#[derive(Default)]
pub(super) struct GroupTimes {
    records: VecDeque<GroupRecord>,
    /// When the open group began.
    birth_ns: u64,
    /// The last one that was closed is on its way since then, and what devices had done before.
    syncing: Option<(u64, DeviceTotals)>,
}

impl GroupTimes {
    /// The first group begins.
    pub(super) fn begin(env: &Env) -> GroupTimes {
        GroupTimes { birth_ns: env.ticks_ns(), ..GroupTimes::default() }
    }

    /// The open group was closed, which began at `since_ns`, and is on its way now.
    pub(super) fn closed(&mut self, env: &Env, txg: Txg, since_ns: u64, (dirty_bytes, before): (u64, DeviceTotals)) {
        let now_ns = env.ticks_ns();
        self.records.push_back(GroupRecord {
            txg,
            stage: GroupStage::Syncing,
            birth_ns: self.birth_ns,
            dirty_bytes,
            io: DeviceTotals::default(),
            open_ns: since_ns.saturating_sub(self.birth_ns),
            quiesce_ns: now_ns.saturating_sub(since_ns),
            sync_ns: 0,
        });
        (self.birth_ns, self.syncing) = (now_ns, Some((now_ns, before)));
    }

    /// It is on disk.
    pub(super) fn synced(&mut self, env: &Env, now: DeviceTotals) {
        if let (Some(record), Some((since_ns, before))) = (self.records.back_mut(), self.syncing.take()) {
            record.stage = GroupStage::Committed;
            record.sync_ns = env.ticks_ns().saturating_sub(since_ns);
            record.io = now.since(before);
        }
        self.shorten(env);
    }

    /// How long a group has been on its way; `None` if none is.
    pub(super) fn syncing_ns(&self, env: &Env) -> Option<u64> {
        self.syncing.map(|(since_ns, _)| env.ticks_ns().saturating_sub(since_ns))
    }

    /// Those that are kept, the oldest first, and the open one.
    pub(super) fn all(&mut self, env: &Env, open: Txg) -> Vec<GroupRecord> {
        self.shorten(env);
        let (birth_ns, stage) = (self.birth_ns, GroupStage::Open);
        let open = GroupRecord {
            txg: open,
            stage,
            birth_ns,
            dirty_bytes: 0,
            io: DeviceTotals::default(),
            open_ns: 0,
            quiesce_ns: 0,
            sync_ns: 0,
        };
        self.records.iter().copied().chain([open]).collect()
    }

    fn shorten(&mut self, env: &Env) {
        let keep = usize::try_from(env.tunable(tunables::ZFS_TXG_HISTORY)).unwrap_or(usize::MAX);
        let keep = keep.max(usize::from(self.syncing.is_some()));
        self.records.drain(..self.records.len().saturating_sub(keep));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_on_its_way() {
        let env = Env::real().with_tunables(|name| (name == "zfs_txg_history").then_some(2));
        let mut times = GroupTimes::begin(&env);
        let totals = |writes| DeviceTotals { writes, ..DeviceTotals::default() };
        for txg in 4..8 {
            assert_eq!(times.syncing_ns(&env), None);
            times.closed(&env, Txg::new(txg), env.ticks_ns(), (txg * 100, totals(txg)));
            assert!(times.syncing_ns(&env).is_some());
            if txg < 7 {
                times.synced(&env, totals(txg + 3));
            }
        }
        let all = times.all(&env, Txg::new(8));
        let seen: Vec<_> = all.iter().map(|r| (r.txg.get(), r.stage, r.dirty_bytes, r.io.writes)).collect();
        let expected =
            [(6, GroupStage::Committed, 600, 3), (7, GroupStage::Syncing, 700, 0), (8, GroupStage::Open, 0, 0)];
        assert_eq!(seen, expected);
        assert!(all[0].birth_ns <= all[1].birth_ns);
    }
}
