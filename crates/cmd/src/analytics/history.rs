//! The recent history of a pool, in bounded memory.
//!
//! ```text
//!   rows of one second     the last 5 minutes      300 rows of SERIES.len() numbers
//!   means of 5 seconds     the last hour           720 rows
//!   latency, 5 seconds     the last hour           720 columns of cells: vdev, kind, bucket, count
//!   groups                 the last 120
//! ```
//!
//! A busy pool of a few disks takes about 1 MB; the most that any pool takes is 24 MB ([`CELLS_MAX`] in each column).

use std::collections::{HashMap, VecDeque};

use device::meter::Purpose;
use format::ids::{DatasetId, Guid};
use protocol::io_report::{IoCounters, IoReport};
use serde::Serialize;

use super::dataset_times::DatasetHeat;
use super::series::{OpenMean, SeriesRow};
use crate::groups::GroupSpan;

/// Rows of one second.
const FINE_ROWS: usize = 300;
/// Seconds of a column.
pub const COLUMN_S: u64 = 5;
/// Columns that are kept: an hour.
const COLUMNS: usize = 720;
/// Cells of a column at most.
const CELLS_MAX: usize = 4096;
/// Groups that are kept.
const GROUPS: usize = 120;
/// Vdevs and datasets that are known by number, those that have gone too.
const SUBJECTS_MAX: usize = 4096;
/// How many kinds of latency a vdev has: reads, writes, and what synchronous reads and writes waited for their turn.
pub const KINDS: usize = 4;

/// A row, and when it was, in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimedRow(pub u64, pub SeriesRow);

/// What latencies are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeatSubject {
    /// A vdev.
    Vdev(Guid),
    /// A dataset; [`DatasetId::NONE`]: all together. Its kinds are commits, reads, writes, and nothing.
    Dataset(DatasetId),
}

/// Requests of a vdev whose latency was in one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeatCell {
    subject: u16,
    kind: u8,
    bucket: u8,
    count: u32,
}

/// Latencies of all vdevs in one column.
struct HeatColumn {
    /// Which: seconds since 1970, by [`COLUMN_S`].
    number: u64,
    cells: Vec<HeatCell>,
}

/// A column of one vdev or dataset as it is sent: its number, and of each kind pairs of a bucket and a count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VdevColumn(pub u64, pub [Vec<u32>; KINDS]);

/// See the top of the file.
#[derive(Default)]
pub struct RecentHistory {
    fine: VecDeque<TimedRow>,
    coarse: VecDeque<TimedRow>,
    /// The column that is under way.
    open: OpenMean,
    heat: VecDeque<HeatColumn>,
    subjects: HashMap<HeatSubject, u16>,
    groups: VecDeque<GroupSpan>,
}

impl RecentHistory {
    /// Adds the row of a second.
    pub fn add_row(&mut self, at_s: u64, row: SeriesRow) {
        let number = at_s / COLUMN_S;
        if let Some((ended, means)) = self.open.add(number, &row) {
            push(&mut self.coarse, TimedRow(ended * COLUMN_S, means), COLUMNS);
        }
        push(&mut self.fine, TimedRow(at_s, row), FINE_ROWS);
    }

    /// Adds a column of latencies: what vdevs did since `before`, and what file systems and volumes did.
    pub fn add_heat(&mut self, number: u64, [before, now]: [&IoReport; 2], datasets: &DatasetHeat) {
        let mut cells = Vec::new();
        let mut guids: Vec<&Guid> = now.vdevs.keys().collect();
        guids.sort();
        for guid in guids {
            let none = IoCounters::default();
            let since = now.vdevs[guid].since(before.vdevs.get(guid).unwrap_or(&none));
            self.add_cells(&mut cells, HeatSubject::Vdev(*guid), histograms(&since));
        }
        for (dataset, [commits, reads, writes]) in datasets.by_dataset() {
            self.add_cells(&mut cells, HeatSubject::Dataset(dataset), [commits, reads, writes, &[]]);
        }
        cells.shrink_to_fit();
        push(&mut self.heat, HeatColumn { number, cells }, COLUMNS);
    }

    /// Adds what there is in histograms of one subject, as far as there is room.
    fn add_cells(&mut self, cells: &mut Vec<HeatCell>, subject: HeatSubject, histograms: [&[u64]; KINDS]) {
        let next = self.subjects.len();
        if next >= SUBJECTS_MAX && !self.subjects.contains_key(&subject) {
            return;
        }
        let subject = *self.subjects.entry(subject).or_insert(next as u16);
        for (kind, histogram) in histograms.into_iter().enumerate() {
            let counted = histogram.iter().enumerate().filter(|(_, count)| **count > 0);
            let cell = |(bucket, count): (usize, &u64)| HeatCell {
                subject,
                kind: kind as u8,
                bucket: bucket.min(u8::MAX.into()) as u8,
                count: u32::try_from(*count).unwrap_or(u32::MAX),
            };
            cells.extend(counted.map(cell).take(CELLS_MAX - cells.len()));
        }
    }

    /// The columns of a vdev or a dataset behind that number.
    pub fn heat_of(&self, subject: HeatSubject, after: u64) -> Vec<VdevColumn> {
        let known = self.subjects.get(&subject);
        let columns = self.heat.iter().filter(|column| column.number > after);
        columns
            .map(|column| {
                let mut kinds: [Vec<u32>; KINDS] = Default::default();
                for cell in column.cells.iter().filter(|cell| Some(&cell.subject) == known) {
                    kinds[usize::from(cell.kind)].extend([u32::from(cell.bucket), cell.count]);
                }
                VdevColumn(column.number, kinds)
            })
            .collect()
    }

    /// Adds groups, or what is known of them now. When they began stays as it was first known.
    pub fn add_groups(&mut self, groups: Vec<GroupSpan>) {
        for group in groups {
            if let Some(known) = self.groups.iter_mut().rev().find(|known| known.txg == group.txg) {
                *known = GroupSpan { begin_ms: known.begin_ms, ..group };
                continue;
            }
            // those behind it are of a pool that was imported at an earlier group since
            self.groups.retain(|known| known.txg < group.txg);
            push(&mut self.groups, group, GROUPS);
        }
    }

    /// The last groups, as many as are wanted.
    pub fn groups(&self, count: usize) -> Vec<GroupSpan> {
        self.groups.iter().skip(self.groups.len().saturating_sub(count)).cloned().collect()
    }

    /// The last row.
    pub fn last_row(&self) -> Option<&TimedRow> {
        self.fine.back()
    }

    /// All rows: those of one second, and the means.
    pub fn rows(&self) -> [&VecDeque<TimedRow>; 2] {
        [&self.fine, &self.coarse]
    }
}

/// The histograms of each kind.
pub fn histograms(counters: &IoCounters) -> [&[u64]; KINDS] {
    let [reads, writes] = counters.total.each_ref().map(Vec::as_slice);
    let waits = |purpose: Purpose| counters.waits[purpose as usize].as_slice();
    [reads, writes, waits(Purpose::SyncRead), waits(Purpose::SyncWrite)]
}

fn push<T>(to: &mut VecDeque<T>, value: T, max: usize) {
    while to.len() >= max {
        to.pop_front();
    }
    to.push_back(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let mut history = RecentHistory::default();
        for second in 0..10_000u64 {
            history.add_row(second, [second as f32, 1.0].into());
        }
        let [fine, coarse] = history.rows();
        assert_eq!((fine.len(), fine[0].0, fine[299].0), (300, 9700, 9999));
        assert_eq!((coarse.len(), coarse[0].0, coarse[719].0), (720, 9990 - 719 * 5, 9990));
        assert_eq!(&*coarse[719].1, [9992.0, 1.0], "a mean of five");
        assert_eq!(history.last_row().unwrap().0, 9999);
    }

    fn report(guids: &[u64], count: u64) -> IoReport {
        let counters = IoCounters {
            operations: [count, 0],
            total: [vec![0, count, 0, 2 * count], vec![]],
            ..IoCounters::default()
        };
        IoReport { open_ns: count, vdevs: guids.iter().map(|guid| (Guid::new(*guid), counters.clone())).collect() }
    }

    #[test]
    fn latencies_of_a_vdev_are_found_again() {
        let mut history = RecentHistory::default();
        let of = |vdev: u64| HeatSubject::Vdev(Guid::new(vdev));
        let dataset = |dataset: u64| HeatSubject::Dataset(DatasetId::new(dataset));
        history.add_heat(7, [&report(&[1], 0), &report(&[1], 10)], &DatasetHeat::default());
        let commits = vec![(DatasetId::NONE, vec![0, 5]), (DatasetId::new(1), vec![0, 4])];
        let some = DatasetHeat { commits, writes: vec![(DatasetId::new(1), vec![9])], ..DatasetHeat::default() };
        history.add_heat(8, [&report(&[1], 10), &report(&[1, 2], 15)], &some);
        let none = || [vec![], vec![], vec![], vec![]];
        let reads = |pairs: &[u32]| [pairs.to_vec(), vec![], vec![], vec![]];
        assert_eq!(
            history.heat_of(of(1), 0),
            [VdevColumn(7, reads(&[1, 10, 3, 20])), VdevColumn(8, reads(&[1, 5, 3, 10]))]
        );
        assert_eq!(history.heat_of(of(2), 0), [VdevColumn(7, none()), VdevColumn(8, reads(&[1, 15, 3, 30]))]);
        assert_eq!(history.heat_of(of(3), 7), [VdevColumn(8, none())]);
        let found = [0, 1].map(|number| history.heat_of(dataset(number), 7));
        let both = [vec![1, 4], vec![], vec![0, 9], vec![]];
        assert_eq!(found, [[VdevColumn(8, reads(&[1, 5]))], [VdevColumn(8, both)]]);
    }

    #[test]
    fn memory_is_bounded_however_many_vdevs_come() {
        let mut history = RecentHistory::default();
        for column in 0..3 {
            let guids: Vec<u64> = (0..3000).map(|vdev| column * 3000 + vdev).collect();
            history.add_heat(column, [&IoReport::default(), &report(&guids, 1)], &DatasetHeat::default());
        }
        assert!(
            history.heat.iter().all(|column| column.cells.len() <= CELLS_MAX) && history.subjects.len() == SUBJECTS_MAX
        );
    }

    #[test]
    fn groups_are_known_once() {
        let group = |txg: u64, begin_ms: u64| GroupSpan {
            txg,
            begin_ms,
            phases_ms: [1.0, 0.0, begin_ms as f32],
            is_done: true,
            bytes: [0; 3],
        };
        let mut history = RecentHistory::default();
        history.add_groups((0..200).map(|txg| group(txg, txg)).collect());
        history.add_groups(vec![group(199, 500), group(200, 501)]);
        let last = history.groups(2);
        assert_eq!((last[0].begin_ms, last[0].phases_ms[2], last[1].txg), (199, 500.0, 200));
        assert_eq!(history.groups(1000).len(), GROUPS);
        history.add_groups(vec![group(150, 900)]);
        let known = history.groups(1000).into_iter().find(|group| group.txg == 150).unwrap();
        assert_eq!(
            (known.begin_ms, history.groups(1).remove(0).txg),
            (150, 200),
            "one that is known stays in its place"
        );
        history.add_groups(vec![group(20, 901)]);
        assert_eq!(history.groups(1000), [group(20, 901)], "rewound");
    }
}
