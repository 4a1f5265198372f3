//! What the counters of pools have done between two looks at them.

use std::collections::BTreeMap;

use protocol::kstat::KstatTable;

use crate::device_rates::rate;

/// The pools in use, as they were seen last.
#[derive(Default)]
pub struct Watch {
    pools: BTreeMap<String, BTreeMap<String, Seen>>,
}

/// A table as it is, and as it was before that; what is new has had only zeros when its process began.
struct Seen {
    before: KstatTable,
    now: KstatTable,
}

/// A counter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Count {
    /// Its rate since it was looked at before.
    pub per_s: f64,
    /// What it says.
    pub all: u64,
}

/// What is done to a mounted file system.
#[derive(Clone, Debug, PartialEq)]
pub struct DatasetCounts {
    /// Its name.
    pub name: String,
    /// Its number: that of its object.
    pub id: u64,
    /// Reads.
    pub reads: Count,
    /// Bytes read.
    pub read_bytes: Count,
    /// Writes.
    pub writes: Count,
    /// Bytes written.
    pub written_bytes: Count,
}

impl Watch {
    /// These are the pools in use now. A table that was not written since is as it was seen before.
    pub fn see(&mut self, pools: BTreeMap<String, Vec<KstatTable>>) {
        let mut known = std::mem::take(&mut self.pools);
        for (pool, tables) in pools {
            let mut known = known.remove(&pool).unwrap_or_default();
            let seen = tables.into_iter().map(|now| {
                let name = now.name.clone();
                let seen = match known.remove(&name) {
                    Some(seen) if seen.now.at_ns == now.at_ns => seen,
                    Some(seen) if seen.now.at_ns < now.at_ns => Seen { before: seen.now, now },
                    // its process is another one than before
                    _ => Seen { before: KstatTable::default(), now },
                };
                (name, seen)
            });
            self.pools.insert(pool, seen.collect());
        }
    }

    /// Names of the pools.
    pub fn pools(&self) -> impl Iterator<Item = &str> {
        self.pools.keys().map(String::as_str)
    }

    /// The longest time that rates are of, in seconds.
    pub fn seconds(&self) -> f64 {
        self.of("arcstats").map(Seen::seconds).fold(0.0, f64::max)
    }

    /// A counter of a table, all pools together.
    pub fn count(&self, table: &str, name: &str) -> Count {
        self.of(table).map(|seen| seen.count(name)).fold(Count::default(), Count::plus)
    }

    /// A size in a table, all pools together.
    pub fn size(&self, table: &str, name: &str) -> u64 {
        self.count(table, name).all
    }

    /// A counter of the mounted file systems, all together.
    pub fn count_datasets(&self, name: &str) -> Count {
        self.of_datasets().map(|seen| seen.count(name)).fold(Count::default(), Count::plus)
    }

    /// The mounted file systems, those that most bytes go through first.
    pub fn datasets(&self) -> Vec<DatasetCounts> {
        let mut datasets: Vec<DatasetCounts> = self.of_datasets().filter_map(Seen::dataset).collect();
        let rates = |dataset: &DatasetCounts| {
            let bytes = dataset.read_bytes.per_s + dataset.written_bytes.per_s;
            [bytes, dataset.reads.per_s + dataset.writes.per_s]
        };
        datasets.sort_by(|a, b| {
            let [[a_bytes, a_calls], [b_bytes, b_calls]] = [rates(a), rates(b)];
            b_bytes.total_cmp(&a_bytes).then(b_calls.total_cmp(&a_calls)).then(a.name.cmp(&b.name))
        });
        datasets
    }

    fn of_datasets(&self) -> impl Iterator<Item = &Seen> {
        let tables = self.pools.values().flatten();
        tables.filter(|(name, _)| name.starts_with("objset-")).map(|(_, seen)| seen)
    }

    fn of(&self, table: &str) -> impl Iterator<Item = &Seen> {
        self.pools.values().filter_map(move |tables| tables.get(table))
    }
}

impl Seen {
    fn seconds(&self) -> f64 {
        self.now.at_ns.saturating_sub(self.before.at_ns) as f64 / 1e9
    }

    fn count(&self, name: &str) -> Count {
        let [before, all] = [&self.before, &self.now].map(|table| table.get(name));
        Count { per_s: rate(before, all, self.seconds()), all }
    }

    fn dataset(&self) -> Option<DatasetCounts> {
        Some(DatasetCounts {
            name: self.now.dataset.clone()?,
            id: self.now.name.strip_prefix("objset-0x").and_then(|id| u64::from_str_radix(id, 16).ok()).unwrap_or(0),
            reads: self.count("reads"),
            read_bytes: self.count("nread"),
            writes: self.count("writes"),
            written_bytes: self.count("nwritten"),
        })
    }
}

impl Count {
    /// Both together.
    pub fn plus(self, other: Count) -> Count {
        Count { per_s: self.per_s + other.per_s, all: self.all.saturating_add(other.all) }
    }

    /// What is left without those of `other`.
    pub fn less(self, other: Count) -> Count {
        Count { per_s: (self.per_s - other.per_s).max(0.0), all: self.all.saturating_sub(other.all) }
    }

    /// The part of `whole` that it is, of late and in all; `None` of nothing.
    pub fn of(self, whole: Count) -> [Option<f64>; 2] {
        let part = |own: f64, whole: f64| (whole > 0.0).then_some(own / whole);
        [part(self.per_s, whole.per_s), part(self.all as f64, whole.all as f64)]
    }
}
