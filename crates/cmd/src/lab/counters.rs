//! Counters of ARC and cache devices: where reads were served from.

use protocol::kstat;

/// Reads of data that programs waited for, since the pool was imported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    arc_hits: u64,
    arc_misses: u64,
    device_hits: u64,
    device_misses: u64,
}

impl CacheCounters {
    /// Those of table `arcstats`; `None` if one is missing.
    pub fn parse(text: &str) -> Option<CacheCounters> {
        let table = kstat::parse(String::new(), text)?;
        let value = |name: &str| table.values.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
        Some(CacheCounters {
            arc_hits: value("demand_data_hits")?,
            arc_misses: value("demand_data_misses")?,
            device_hits: value("l2_hits")?,
            device_misses: value("l2_misses")?,
        })
    }

    /// Parts in a hundred since an earlier moment: of reads from ARC, and of the others from cache devices; 0 of none.
    pub fn hits_since(self, earlier: CacheCounters) -> [f64; 2] {
        let part = |hits: u64, misses: u64| 100.0 * hits as f64 / (hits + misses).max(1) as f64;
        let of = |now: u64, then: u64| now.saturating_sub(then);
        [
            part(of(self.arc_hits, earlier.arc_hits), of(self.arc_misses, earlier.arc_misses)),
            part(of(self.device_hits, earlier.device_hits), of(self.device_misses, earlier.device_misses)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_reads_are_those_of_the_time_between() {
        let table = |hits: u64| {
            format!(
                "1 1 0x01 2 3 4 5\nname type data\ndemand_data_hits 4 {hits}\ndemand_data_misses 4 70\nl2_hits 4 6\nl2_misses 4 64\n"
            )
        };
        let [before, after] = [10, 80].map(|hits| CacheCounters::parse(&table(hits)).unwrap());
        assert_eq!(after.hits_since(before), [100.0, 0.0]);
        assert_eq!(before.hits_since(CacheCounters::default()), [12.5, 600.0 / 70.0]);
        assert!(CacheCounters::parse("demand_data_hits 4 1\n").is_none());
    }
}
