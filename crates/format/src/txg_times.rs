//! When groups were written: three rings in the pool's object directory, from which a date leads to a group.
//!
//! ```text
//!   entry "com.klarasystems:txg_log_time:minutes", ":days", ":months", each 515 words:
//!   word 0  place of the oldest record    3, 4  seconds since 1970, txg: record 0
//!        1  place of the next one         5, 6  the same of record 1, ...
//!        2  number of records
//! ```
//!
//! Each ring has 256 records, the oldest of which are overwritten. A record goes to one ring: to that of months if the
//! latest there is 30 days old, else to that of days if the latest there is a day old, else to that of minutes. Records
//! that are older than the latest (the clock was set back) go nowhere.
//!
//! Source: `zfs_crrd` of OpenZFS 2.4.

use base::{Error, Result};

use crate::ids::Txg;

/// Names of the rings' entries, in the order of [`TxgTimes`]: minutes, days, months.
pub const TXG_TIME_ENTRIES: [&str; 3] = [
    "com.klarasystems:txg_log_time:minutes",
    "com.klarasystems:txg_log_time:days",
    "com.klarasystems:txg_log_time:months",
];
/// Records of a ring.
const RECORDS_MAX: usize = 256;
const HEADER_WORDS: usize = 3;
/// Words of a ring's entry.
const WORDS: usize = HEADER_WORDS + 2 * RECORDS_MAX;
/// How old the latest record of a ring is when the next comes, in seconds: that of minutes takes all others.
const INTERVALS_S: [u64; 3] = [0, 24 * 3600, 30 * 24 * 3600];

/// The rings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxgTimes {
    rings: [Vec<TxgTime>; 3],
}

/// A group was written then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TxgTime {
    /// Seconds since 1970.
    time_s: u64,
    txg: Txg,
}

impl TxgTimes {
    /// From the words of the three entries; one without words is empty. Errors: `Corrupt` for places outside of a ring.
    pub fn parse(entries: [&[u64]; 3]) -> Result<TxgTimes> {
        let mut times = TxgTimes::default();
        for (ring, words) in times.rings.iter_mut().zip(entries) {
            if words.is_empty() {
                continue;
            }
            let bad = || Error::corrupt("a table of the times of groups that is no ring");
            let (header, records) = words.split_at_checked(HEADER_WORDS).ok_or_else(bad)?;
            let [first, _, count] = *header else { return Err(bad()) };
            let (first, count) = (usize::try_from(first), usize::try_from(count));
            let (Ok(first), Ok(count)) = (first, count) else { return Err(bad()) };
            if records.len() != WORDS - HEADER_WORDS || first >= RECORDS_MAX || count > RECORDS_MAX {
                return Err(bad());
            }
            let at = |index: usize| (first + index) % RECORDS_MAX * 2;
            let record = |index| TxgTime { time_s: records[at(index)], txg: Txg::new(records[at(index) + 1]) };
            ring.extend((0..count).map(record));
        }
        Ok(times)
    }

    /// The words of the three entries.
    pub fn to_words(&self) -> [Vec<u64>; 3] {
        self.rings.each_ref().map(|ring| {
            let count = ring.len();
            let mut words = vec![0, (count % RECORDS_MAX) as u64, count as u64];
            words.extend(ring.iter().flat_map(|record| [record.time_s, record.txg.get()]));
            words.resize(WORDS, 0);
            words
        })
    }

    /// A group was written at `time_s`, in seconds since 1970.
    pub fn add(&mut self, time_s: u64, txg: Txg) {
        let is_due = |ring: &Vec<TxgTime>, interval_s: u64| {
            ring.last().is_none_or(|last| last.time_s.checked_add(interval_s).is_some_and(|due_s| time_s >= due_s))
        };
        let ring = (0..3).rev().find(|&at| is_due(&self.rings[at], INTERVALS_S[at]));
        let Some(ring) = ring.map(|at| &mut self.rings[at]) else { return };
        match ring.last_mut() {
            Some(last) if last.time_s == time_s => last.txg = last.txg.max(txg),
            _ => {
                if ring.len() == RECORDS_MAX {
                    ring.remove(0);
                }
                ring.push(TxgTime { time_s, txg });
            }
        }
    }

    /// The latest group that is known to have been written by then; `None` if none is.
    pub fn latest_by(&self, time_s: u64) -> Option<Txg> {
        let records = self.rings.iter().flatten().filter(|record| record.time_s <= time_s);
        records.max_by_key(|record| (record.time_s, record.txg)).map(|record| record.txg)
    }

    /// The first group that is known to have been written then or later; `None` if none is.
    pub fn first_from(&self, time_s: u64) -> Option<Txg> {
        let records = self.rings.iter().flatten().filter(|record| record.time_s >= time_s);
        records.min_by_key(|record| (record.time_s, record.txg)).map(|record| record.txg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: u64 = 24 * 3600;

    fn txg(number: u64) -> Option<Txg> {
        Some(Txg::new(number))
    }

    #[test]
    fn dates_lead_to_groups() {
        let mut times = TxgTimes::default();
        assert_eq!((times.latest_by(u64::MAX), times.first_from(0)), (None, None));
        // the first goes to the ring of months, the second to that of days
        for (time_s, number) in [(1000, 10), (1100, 20), (1200, 30), (1200, 31), (1150, 99), (1300, 40)] {
            times.add(time_s, Txg::new(number));
        }
        assert_eq!(times.rings.each_ref().map(Vec::len), [2, 1, 1]);
        assert_eq!((times.latest_by(999), times.first_from(999)), (None, txg(10)));
        assert_eq!((times.latest_by(1150), times.first_from(1150)), (txg(20), txg(31)));
        assert_eq!((times.latest_by(1200), times.first_from(1200)), (txg(31), txg(31)));
        assert_eq!((times.latest_by(u64::MAX), times.first_from(1301)), (txg(40), None));
        times.add(1100 + DAY_S, Txg::new(50));
        times.add(1000 + 30 * DAY_S, Txg::new(60));
        assert_eq!(times.rings.each_ref().map(Vec::len), [2, 2, 2]);
        let words = times.to_words();
        assert_eq!(TxgTimes::parse(words.each_ref().map(Vec::as_slice)).unwrap(), times);
    }

    #[test]
    fn rings_turn_and_are_checked() {
        let mut times = TxgTimes::default();
        (0..300).for_each(|i| times.add(i, Txg::new(i)));
        let [minutes, days, months] = times.to_words();
        assert_eq!((minutes[..3].to_vec(), minutes[3..5].to_vec()), (vec![0, 0, 256], vec![44, 44]));
        // one that OpenZFS wrote begins anywhere
        let mut turned = minutes.clone();
        turned[HEADER_WORDS..].rotate_right(2 * 7);
        (turned[0], turned[1]) = (7, 7);
        assert_eq!(TxgTimes::parse([&turned, &days, &months]).unwrap(), times);
        assert_eq!(TxgTimes::parse([&[], &[], &[]]).unwrap(), TxgTimes::default());
        for (word, value) in [(0, 256), (0, u64::MAX), (2, 257), (2, u64::MAX)] {
            let mut bad = minutes.clone();
            bad[word] = value;
            assert!(TxgTimes::parse([&bad, &days, &months]).is_err(), "{word} {value}");
        }
        for words in [1, 2, 3, WORDS - 1] {
            assert!(TxgTimes::parse([&minutes[..words], &days, &months]).is_err(), "{words}");
        }
    }
}
