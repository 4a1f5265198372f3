//! What a log has done since it was opened, with the names of OpenZFS's `zil` kstats.

use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets of [`Stats::commit_times`]: as many as those of devices have.
pub const COMMIT_BUCKETS: usize = 37;

/// How often commits took so long, by the binary logarithm of nanoseconds.
#[derive(Debug)]
struct CommitTimes([AtomicU64; COMMIT_BUCKETS]);

impl Default for CommitTimes {
    fn default() -> CommitTimes {
        CommitTimes([const { AtomicU64::new(0) }; COMMIT_BUCKETS])
    }
}

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters of one log.
        #[derive(Debug, Default)]
        pub struct Stats {
            $($(#[$doc])* pub $name: AtomicU64,)*
            /// Log blocks of at most 4 KiB, of less than 32 KiB, and larger ones.
            blocks_by_size: [AtomicU64; 3],
            commit_times: CommitTimes,
        }

        impl Stats {
            /// All counters with their names.
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Ordering::Relaxed)),)*]
            }
        }
    };
}

stats! {
    /// Commits that were asked for.
    zil_commit_count,
    /// Batches of entries that were written for them.
    zil_commit_writer_count,
    /// Commits that failed.
    zil_commit_error_count,
    /// Batches that could not be written, and waited for a group.
    zil_commit_stall_count,
    /// Entries that were written.
    zil_itx_count,
    /// Writes whose data were written in their place.
    zil_itx_indirect_count,
    /// Their bytes.
    zil_itx_indirect_bytes,
    /// Writes whose data were told with them.
    zil_itx_copied_count,
    /// Their bytes.
    zil_itx_copied_bytes,
    /// Writes whose data were fetched.
    zil_itx_needcopy_count,
    /// Their bytes.
    zil_itx_needcopy_bytes,
    /// Log blocks on vdevs that are for all.
    zil_itx_metaslab_normal_count,
    /// Bytes used in them.
    zil_itx_metaslab_normal_bytes,
    /// Bytes written of them.
    zil_itx_metaslab_normal_write,
    /// Their sizes.
    zil_itx_metaslab_normal_alloc,
    /// Log blocks on log vdevs.
    zil_itx_metaslab_slog_count,
    /// Bytes used in them.
    zil_itx_metaslab_slog_bytes,
    /// Bytes written of them.
    zil_itx_metaslab_slog_write,
    /// Their sizes.
    zil_itx_metaslab_slog_alloc,
}

impl Stats {
    /// Log blocks by their size: of at most 4 KiB, of less than 32 KiB, and larger ones.
    pub fn blocks_by_size(&self) -> [u64; 3] {
        self.blocks_by_size.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// How often a commit that had something to wait for took so long: of each bucket up to twice the time of the one before,
    /// in nanoseconds.
    pub fn commit_times(&self) -> [u64; COMMIT_BUCKETS] {
        self.commit_times.0.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    pub(crate) fn count_commit(&self, time_ns: u64) {
        let bucket = time_ns.checked_ilog2().unwrap_or(0) as usize;
        add(&self.commit_times.0[bucket.min(COMMIT_BUCKETS - 1)], 1);
    }

    pub(crate) fn count_block(&self, size: u64) {
        let class = usize::from(size > 4 << 10) + usize::from(size >= 32 << 10);
        add(&self.blocks_by_size[class], 1);
    }
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_has_its_bucket() {
        let stats = Stats::default();
        [0, 1, 2, 3, 4, 1 << 20, u64::MAX].into_iter().for_each(|time_ns| stats.count_commit(time_ns));
        let times = stats.commit_times();
        assert_eq!((times[0], times[1], times[2], times[20], times[COMMIT_BUCKETS - 1]), (2, 2, 1, 1, 1));
        assert_eq!(times.iter().sum::<u64>(), 7);
    }
}
