//! How long commits, reads and writes of file systems and volumes took between two looks.

use std::collections::{BTreeMap, HashMap};

use format::ids::DatasetId;

/// Histograms of times, by dataset: those of [`DatasetId::NONE`] are of all together.
pub type DatasetHistograms = Vec<(DatasetId, Vec<u64>)>;

/// What was added since the last look, of each kind.
#[derive(Clone, Debug, Default)]
pub struct DatasetHeat {
    pub commits: DatasetHistograms,
    pub reads: DatasetHistograms,
    pub writes: DatasetHistograms,
}

impl DatasetHeat {
    /// The datasets that have any, each once, with the histograms of its commits, reads and writes.
    pub fn by_dataset(&self) -> BTreeMap<DatasetId, [&[u64]; 3]> {
        let mut all: BTreeMap<DatasetId, [&[u64]; 3]> = BTreeMap::new();
        for (kind, histograms) in [&self.commits, &self.reads, &self.writes].into_iter().enumerate() {
            for (dataset, times) in histograms {
                all.entry(*dataset).or_default()[kind] = times;
            }
        }
        all
    }
}

/// Histograms of one kind of a pool, as they were seen last.
#[derive(Default)]
pub struct TimesWatch {
    seen: HashMap<DatasetId, Vec<u64>>,
}

impl TimesWatch {
    /// What was added since the last time; of a dataset that was opened anew, all that it has.
    pub fn since(&mut self, now: DatasetHistograms) -> DatasetHistograms {
        let mut all = Vec::new();
        let mut since = vec![(DatasetId::NONE, Vec::new())];
        for (dataset, times) in &now {
            let before = self.seen.get(dataset).map_or(&[][..], Vec::as_slice);
            let at = |bucket: usize| before.get(bucket).copied().unwrap_or(0);
            let is_new = times.iter().enumerate().any(|(bucket, count)| *count < at(bucket));
            let grown = |(bucket, count): (usize, &u64)| if is_new { *count } else { count - at(bucket) };
            let grown: Vec<u64> = times.iter().enumerate().map(grown).collect();
            all.resize(grown.len().max(all.len()), 0);
            all.iter_mut().zip(&grown).for_each(|(all, one)| *all += one);
            if grown.iter().any(|count| *count > 0) {
                since.push((*dataset, grown));
            }
        }
        since[0].1 = all;
        self.seen = now.into_iter().collect();
        since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_each_and_of_all() {
        let id = DatasetId::new;
        let mut watch = TimesWatch::default();
        assert_eq!(watch.since(vec![(id(5), vec![1, 2])])[0], (DatasetId::NONE, vec![1, 2]));
        let since = watch.since(vec![(id(5), vec![1, 4, 1]), (id(6), vec![0, 0, 0, 7])]);
        let all = (DatasetId::NONE, vec![0, 2, 1, 7]);
        assert_eq!(since, [all, (id(5), vec![0, 2, 1]), (id(6), vec![0, 0, 0, 7])]);
        // nothing of one, and the other counts from zero again
        let since = watch.since(vec![(id(5), vec![1, 4, 1]), (id(6), vec![3])]);
        assert_eq!(since, [(DatasetId::NONE, vec![3, 0, 0]), (id(6), vec![3])]);
    }

    #[test]
    fn kinds_of_a_dataset_come_together() {
        let id = DatasetId::new;
        let heat = DatasetHeat {
            commits: vec![(id(5), vec![1])],
            reads: vec![(id(6), vec![2])],
            writes: vec![(id(5), vec![3])],
        };
        let found = heat.by_dataset();
        assert_eq!((found[&id(5)], found[&id(6)]), ([&[1][..], &[], &[3]], [&[][..], &[2], &[]]));
    }
}
