//! Making a [`LogReport`] of an open pool.

use pool::{LivePool, LogMoment, LogTotals};
use protocol::log_report::{GroupEnd, LogReport, LogSums};

/// What the process of `pool` knows, `now_ns` nanoseconds after its import.
pub fn gather(pool: &LivePool, now_ns: u64) -> LogReport {
    let end = |moment: LogMoment| GroupEnd { txg: moment.txg, at_ns: moment.at_ns, sums: sums(moment.totals) };
    LogReport { now_ns, sums: sums(pool.log_totals()), groups: pool.log_moments().into_iter().map(end).collect() }
}

fn sums(totals: LogTotals) -> LogSums {
    let LogTotals { used_bytes, block_bytes, blocks, by_size, in_place_bytes } = totals;
    LogSums { used_bytes, block_bytes, blocks, by_size, in_place_bytes }
}
