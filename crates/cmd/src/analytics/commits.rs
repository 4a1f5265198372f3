//! How long commits of intent logs took between two looks.

use std::collections::HashMap;

use format::ids::DatasetId;

/// Histograms of times, by dataset: those of [`DatasetId::NONE`] are of all together.
pub type CommitHistograms = Vec<(DatasetId, Vec<u64>)>;

/// The commits of a pool, as they were seen last.
#[derive(Default)]
pub struct CommitWatch {
    seen: HashMap<DatasetId, Vec<u64>>,
}

impl CommitWatch {
    /// What was added since the last time; of a log that was opened anew, all that it has.
    pub fn since(&mut self, now: CommitHistograms) -> CommitHistograms {
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
    fn commits_of_each_and_of_all() {
        let id = DatasetId::new;
        let mut watch = CommitWatch::default();
        assert_eq!(watch.since(vec![(id(5), vec![1, 2])])[0], (DatasetId::NONE, vec![1, 2]));
        let since = watch.since(vec![(id(5), vec![1, 4, 1]), (id(6), vec![0, 0, 0, 7])]);
        let all = (DatasetId::NONE, vec![0, 2, 1, 7]);
        assert_eq!(since, [all, (id(5), vec![0, 2, 1]), (id(6), vec![0, 0, 0, 7])]);
        // nothing of one, and the other counts from zero again
        let since = watch.since(vec![(id(5), vec![1, 4, 1]), (id(6), vec![3])]);
        assert_eq!(since, [(DatasetId::NONE, vec![3, 0, 0]), (id(6), vec![3])]);
    }
}
