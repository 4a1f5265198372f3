//! Making a [`LogReport`] of an open pool.

use pool::{LivePool, LogMoment, LogTotals};
use protocol::log_report::{GroupEnd, LogReport, LogSums};
use zil::COMMIT_BUCKETS;

/// What the process of `pool` knows, `now_ns` nanoseconds after its import.
pub fn gather(pool: &LivePool, now_ns: u64) -> LogReport {
    let end = |moment: LogMoment| GroupEnd { txg: moment.txg, at_ns: moment.at_ns, sums: sums(moment.totals) };
    let shown = |times: [u64; COMMIT_BUCKETS]| {
        let len = times.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        times[..len].to_vec()
    };
    LogReport {
        now_ns,
        sums: sums(pool.log_totals()),
        groups: pool.log_moments().into_iter().map(end).collect(),
        commits: pool.commit_times().into_iter().map(|(id, times)| (id, shown(times))).collect(),
    }
}

fn sums(totals: LogTotals) -> LogSums {
    let LogTotals { used_bytes, block_bytes, blocks, by_size, in_place_bytes } = totals;
    LogSums { used_bytes, block_bytes, blocks, by_size, in_place_bytes }
}
