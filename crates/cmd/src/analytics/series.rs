//! The numbers of a pool that are kept second by second: a table of their names and where each comes from.

use crate::device_rates::DeviceRates;
use crate::top::watch::Watch;
use device::meter::TIME_BUCKETS;

/// One value of each series, in the order of [`SERIES`].
pub type SeriesRow = Box<[f32]>;

/// Sources of the values of a row.
pub struct RowSource<'a> {
    /// Tables of the pool.
    pub counters: &'a Watch,
    /// Tables of its mounted file systems and open volumes.
    pub datasets: &'a Watch,
    /// Rates of its devices since the last row.
    pub devices: &'a DeviceRates,
    /// Bytes that are taken on its devices.
    pub allocated_bytes: u64,
}

impl RowSource<'_> {
    fn rate(&self, table: &str, name: &str) -> f64 {
        self.counters.count(table, name).per_s
    }

    fn size(&self, table: &str, name: &str) -> f64 {
        self.counters.size(table, name) as f64
    }

    fn files(&self, name: &str) -> f64 {
        self.datasets.count_datasets(name).per_s
    }
}

/// Where a value comes from.
type SeriesReader = fn(&RowSource) -> f64;

/// Names, as the page knows them, and sources. Rates are a second; sizes are bytes.
pub const SERIES: &[(&str, SeriesReader)] = &[
    ("arc_mru", |s| s.rate("arcstats", "mru_hits")),
    ("arc_mfu", |s| s.rate("arcstats", "mfu_hits")),
    ("l2arc", |s| s.rate("arcstats", "l2_hits")),
    ("disks", |s| (s.rate("arcstats", "misses") - s.rate("arcstats", "l2_hits")).max(0.0)),
    ("files_read", |s| s.files("nread")),
    ("files_written", |s| s.files("nwritten")),
    ("file_reads", |s| s.files("reads")),
    ("file_writes", |s| s.files("writes")),
    ("disk_read", |s| s.devices.bytes[0]),
    ("disk_written", |s| s.devices.bytes[1]),
    ("disk_reads", |s| s.devices.operations[0]),
    ("disk_writes", |s| s.devices.operations[1]),
    ("arc_size", |s| s.size("arcstats", "size")),
    ("arc_target", |s| s.size("arcstats", "c")),
    ("arc_max", |s| s.size("arcstats", "c_max")),
    ("mru_size", |s| s.size("arcstats", "mru_size")),
    ("mfu_size", |s| s.size("arcstats", "mfu_size")),
    ("mru_ghost_hits", |s| s.rate("arcstats", "mru_ghost_hits")),
    ("mfu_ghost_hits", |s| s.rate("arcstats", "mfu_ghost_hits")),
    ("demand_misses", |s| s.rate("arcstats", "demand_data_misses") + s.rate("arcstats", "demand_metadata_misses")),
    ("ahead_misses", |s| s.rate("arcstats", "prefetch_data_misses") + s.rate("arcstats", "prefetch_metadata_misses")),
    ("l2_read", |s| s.rate("arcstats", "l2_read_bytes")),
    ("l2_written", |s| s.rate("arcstats", "l2_write_bytes")),
    ("l2_size", |s| s.size("arcstats", "l2_asize")),
    ("log_commits", |s| s.rate("zil", "zil_commit_count")),
    ("log_batches", |s| s.rate("zil", "zil_commit_writer_count")),
    ("log_slog", |s| s.rate("zil", "zil_itx_metaslab_slog_write")),
    ("log_normal", |s| s.rate("zil", "zil_itx_metaslab_normal_write")),
    ("log_in_place", |s| s.rate("zil", "zil_itx_indirect_bytes")),
    ("delayed", |s| s.rate("dmu_tx", "dmu_tx_dirty_delay")),
    ("over_max", |s| s.rate("dmu_tx", "dmu_tx_dirty_over_max")),
    ("allocated", |s| s.allocated_bytes as f64),
];

/// A row of what is known now.
pub fn row(source: &RowSource) -> SeriesRow {
    SERIES.iter().map(|(_, read)| rounded(read(source))).collect()
}

/// The mean of rows, as they come: those of one part of time after those of another.
#[derive(Default)]
pub struct OpenMean {
    /// The part that is under way: its number, sums of rows, and how many.
    open: Option<(u64, Vec<f64>, u32)>,
}

impl OpenMean {
    /// Adds a row of that part. The number and the mean of the part before, if that has ended.
    pub fn add(&mut self, number: u64, row: &[f32]) -> Option<(u64, SeriesRow)> {
        let ended = self.open.take_if(|(open, ..)| *open != number);
        let (_, sums, count) = self.open.get_or_insert_with(|| (number, vec![0.0; row.len()], 0));
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value));
        *count += 1;
        let (number, sums, count) = ended?;
        Some((number, sums.iter().map(|sum| rounded(sum / f64::from(count))).collect()))
    }
}

/// Four digits of a number: no chart shows more, and each costs a byte on its way.
pub fn rounded(value: f64) -> f32 {
    if !value.is_finite() || value == 0.0 {
        return 0.0;
    }
    let scale = 10f64.powi(3 - value.abs().log10().floor() as i32);
    ((value * scale).round() / scale) as f32
}

/// The time in nanoseconds that at least 99 of 100 requests of a histogram took at most, as its buckets tell it; 0 of none.
pub fn p99_ns(histogram: &[u64; TIME_BUCKETS]) -> u64 {
    let all: u64 = histogram.iter().sum();
    // so many may have taken longer
    let mut spare = all / 100;
    let bucket = histogram.iter().rposition(|&count| {
        let is_spare = count <= spare;
        spare -= count.min(spare);
        !is_spare
    });
    bucket.map_or(0, |bucket| 2 << bucket)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use protocol::kstat::KstatTable;

    use super::*;

    fn table(name: &str, at_ns: u64, dataset: Option<&str>, values: &[(&str, u64)]) -> KstatTable {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        KstatTable { name: name.into(), at_ns, dataset: dataset.map(str::to_owned), values }
    }

    #[test]
    fn a_row_has_what_tables_and_devices_say() {
        let (mut counters, mut datasets) = (Watch::default(), Watch::default());
        for (at_s, times) in [(1, 1), (3, 3)] {
            let at_ns = at_s * 1_000_000_000;
            let arc = [("mru_hits", 100 * times), ("misses", 50 * times), ("l2_hits", 20 * times), ("size", 4096)];
            counters.see(BTreeMap::from([("p".to_owned(), vec![table("arcstats", at_ns, None, &arc)])]));
            let files = [("nread", 1000 * times)];
            datasets.see(BTreeMap::from([("p".to_owned(), vec![table("objset-0x1", at_ns, Some("p"), &files)])]));
        }
        let devices = DeviceRates { operations: [7.0, 8.0], bytes: [9.0, 10.0] };
        let row = row(&RowSource { counters: &counters, datasets: &datasets, devices: &devices, allocated_bytes: 5 });
        let value = |name: &str| row[SERIES.iter().position(|(known, _)| *known == name).unwrap()];
        let found = ["arc_mru", "l2arc", "disks", "files_read", "arc_size", "disk_reads", "disk_written", "allocated"];
        assert_eq!(found.map(value), [100.0, 20.0, 30.0, 1000.0, 4096.0, 7.0, 10.0, 5.0]);
    }

    #[test]
    fn four_digits_are_left() {
        assert_eq!(
            [123_456.0, 0.123_456, 0.0, f64::NAN, -98_765.0].map(rounded),
            [123_500.0, 0.1235, 0.0, 0.0, -98_770.0]
        );
    }

    #[test]
    fn one_of_a_hundred_may_take_longer() {
        let of = |counts: &[(usize, u64)]| {
            let mut histogram = [0; TIME_BUCKETS];
            counts.iter().for_each(|&(bucket, count)| histogram[bucket] = count);
            p99_ns(&histogram)
        };
        assert_eq!(of(&[]), 0);
        assert_eq!(of(&[(10, 1)]), 2048);
        assert_eq!(of(&[(10, 99), (20, 1)]), 2048);
        assert_eq!(of(&[(10, 98), (20, 1)]), 2 << 20, "one of 99 is more than one of 100");
        assert_eq!(of(&[(10, 297), (11, 2), (20, 1)]), 2048);
        assert_eq!(of(&[(10, 296), (11, 3), (20, 1)]), 4096);
        assert_eq!(of(&[(0, 5), (TIME_BUCKETS - 1, 1)]), 2 << (TIME_BUCKETS - 1));
    }
}
