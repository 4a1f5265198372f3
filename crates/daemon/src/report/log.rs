//! Making a [`LogReport`] of an open pool.

use pool::{LivePool, LogMoment, LogTotals};
use protocol::log_report::{DatasetTimes, GroupEnd, LogReport, LogSums};

/// What the process of `pool` knows, `now_ns` nanoseconds after its import.
pub fn gather(pool: &LivePool, now_ns: u64) -> LogReport {
    let end = |moment: LogMoment| GroupEnd { txg: moment.txg, at_ns: moment.at_ns, sums: sums(moment.totals) };
    LogReport {
        now_ns,
        sums: sums(pool.log_totals()),
        groups: pool.log_moments().into_iter().map(end).collect(),
        commits: pool.commit_times().into_iter().map(|(id, times)| (id, shown(&times))).collect(),
    }
}

/// How long reads and writes of file systems and volumes took; they are timed for a while from now on.
pub fn request_times(pool: &LivePool) -> Vec<DatasetTimes> {
    let times = pool.request_times().into_iter();
    times
        .map(|(dataset, [reads, writes])| DatasetTimes { dataset, reads: shown(&reads), writes: shown(&writes) })
        .collect()
}

/// A histogram up to its last bucket that has any.
fn shown(times: &[u64]) -> Vec<u64> {
    let len = times.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
    times[..len].to_vec()
}

fn sums(totals: LogTotals) -> LogSums {
    let LogTotals { used_bytes, block_bytes, blocks, by_size, in_place_bytes } = totals;
    LogSums { used_bytes, block_bytes, blocks, by_size, in_place_bytes }
}
