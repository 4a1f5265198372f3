//! What a log has done since it was opened, with the names of OpenZFS's `zil` kstats.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters of one log.
        #[derive(Debug, Default)]
        pub struct Stats {
            $($(#[$doc])* pub $name: AtomicU64,)*
            /// Log blocks of at most 4 KiB, of less than 32 KiB, and larger ones.
            blocks_by_size: [AtomicU64; 3],
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

    pub(crate) fn count_block(&self, size: u64) {
        let class = usize::from(size > 4 << 10) + usize::from(size >= 32 << 10);
        add(&self.blocks_by_size[class], 1);
    }
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}
