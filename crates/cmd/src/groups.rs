//! Transaction groups as the table `txgs` of a pool in use tells of them.

use std::path::Path;

use protocol::kstat::{self, KstatRows};
use serde::Serialize;

/// A transaction group on its way. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupSpan {
    /// Its number.
    pub txg: u64,
    /// When it began, by the clock of the reader.
    pub begin_ms: u64,
    /// How long it took changes, waited for operations, and was on its way to disk.
    pub phases_ms: [f32; 3],
    /// Whether it is on disk.
    pub is_done: bool,
    /// Bytes of its changes; bytes that were read and written for it.
    pub bytes: [u64; 3],
}

/// Reads the groups of one pool again and again.
#[derive(Default)]
pub struct GroupReader {
    /// When the process's clock was 0, by the clock of the reader: tables are read some time after they are written, so
    /// the earliest that was found is the best.
    epoch_ms: Option<u64>,
}

impl GroupReader {
    /// The last groups, with times by the clock that says `now_ms`; none if the process has not written any.
    pub fn read(&mut self, run: &Path, pool: &str, now_ms: u64) -> Vec<GroupSpan> {
        let Some(rows) = kstat::read_rows(run, pool, "txgs") else { return Vec::new() };
        let epoch_ms = now_ms.saturating_sub(rows.at_ns / 1_000_000);
        let epoch_ms = self.epoch_ms.map_or(epoch_ms, |known| known.min(epoch_ms));
        self.epoch_ms = Some(epoch_ms);
        groups_of(&rows, epoch_ms)
    }
}

/// The groups of table `txgs`, whose clock was 0 at that time. Lines that make no sense are left out.
fn groups_of(rows: &KstatRows, epoch_ms: u64) -> Vec<GroupSpan> {
    let columns = ["txg", "birth", "state", "otime", "qtime", "stime", "ndirty", "nread", "nwritten"];
    let group = |[txg, birth, state, open, quiesce, sync, dirty, read, written]: [&str; 9]| {
        let ms = |text: &str| text.parse::<u64>().ok().map(|ns| (ns / 1000) as f32 / 1000.0);
        Some(GroupSpan {
            txg: txg.parse().ok()?,
            begin_ms: epoch_ms + birth.parse::<u64>().ok()? / 1_000_000,
            phases_ms: [ms(open)?, ms(quiesce)?, ms(sync)?],
            is_done: state == "C",
            bytes: [dirty.parse().ok()?, read.parse().ok()?, written.parse().ok()?],
        })
    };
    rows.columns(columns).filter_map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_from_their_table() {
        let file = "0 0 0x01 3 99 0 9000000000\n\
                    txg birth state ndirty nread nwritten reads writes otime qtime wtime stime\n\
                    7 1000000000 C 10 20 30 1 1 5000000000 1500000 0 2500\n\
                    8 6000000000 O 0 0 0 0 0 0 0 0 0\n\
                    x 6000000000 O 0 0 0 0 0 0 0 0 0\n\
                    9 18446744073709551615 O 0 0 0 0 0 0 0 0 -1\n";
        let groups = groups_of(&kstat::parse_rows(file).unwrap(), 100_000);
        let first = GroupSpan {
            txg: 7,
            begin_ms: 101_000,
            phases_ms: [5000.0, 1.5, 0.002],
            is_done: true,
            bytes: [10, 20, 30],
        };
        assert_eq!((groups.len(), &groups[0], groups[1].begin_ms), (2, &first, 106_000));
    }
}
