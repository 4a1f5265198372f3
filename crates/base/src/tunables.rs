//! The numbers that an administrator may set, by OpenZFS's names: the one table of them, in the order of their names.
//!
//! Each is looked up where it has its effect, by [`Env::tunable`](crate::Env::tunable); it may be another one at any
//! time. Unless the comment says otherwise, name, unit and default are those of OpenZFS 2.4 (zfs(4)).

/// A number that may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunable {
    /// Its name.
    pub name: &'static str,
    /// What it is unless it is set.
    pub default: u64,
}

macro_rules! tunables {
    ($($(#[$doc:meta])* $tunable:ident = $name:literal, $default:expr;)*) => {
        $($(#[$doc])* pub const $tunable: Tunable = Tunable { name: $name, default: $default };)*

        /// All of them.
        pub const ALL: &[Tunable] = &[$($tunable),*];
    };
}

tunables! {
    /// So many deaths of a pool's process within a minute, and no other one goes on with its mounts: they end. Cenote's own.
    CENOTE_DEATHS_MAX = "cenote_deaths_max", 3;
    /// Bytes of the log in memory, which keeps what programs changed since the last group over the death of a pool's process;
    /// 0: there is none. Read at import. Cenote's own.
    CENOTE_MEMORY_LOG_MAX = "cenote_memory_log_max", 256 << 20;
    /// What OpenZFS's zed does is done by the pool's process: devices that err are degraded or faulted, spares and new
    /// devices step in, scripts are run for events. 0 or 1. Cenote's own.
    CENOTE_ZED = "cenote_zed", 1;
    /// How often a cache device may be written in a day, in hundredths; 0: without limit.
    L2ARC_DWPD_LIMIT = "l2arc_dwpd_limit", 100;
    /// Rounds of the feeder of cache devices follow each other faster while there is much to write: 0 or 1.
    L2ARC_FEED_AGAIN = "l2arc_feed_again", 1;
    /// How fast they follow each other then, in milliseconds.
    L2ARC_FEED_MIN_MS = "l2arc_feed_min_ms", 200;
    /// Seconds between rounds.
    L2ARC_FEED_SECS = "l2arc_feed_secs", 1;
    /// So many times as far as it writes the feeder looks at what is soon to be evicted; 0: at all.
    L2ARC_HEADROOM = "l2arc_headroom", 8;
    /// More of that, in hundredths: blocks become smaller when they are compressed.
    L2ARC_HEADROOM_BOOST = "l2arc_headroom_boost", 200;
    /// Recent blocks stay out while none of those that leave come back: 0 or 1. Cenote's own.
    L2ARC_LEARN = "l2arc_learn", 1;
    /// The part of the cache in RAM that the index of cache devices may take at most, in percent.
    L2ARC_META_PERCENT = "l2arc_meta_percent", 33;
    /// 1: only frequent blocks go to cache devices; 2: only frequent data, but all metadata.
    L2ARC_MFUONLY = "l2arc_mfuonly", 0;
    /// What was prefetched, and nobody has asked for, stays out: 0 or 1.
    L2ARC_NOPREFETCH = "l2arc_noprefetch", 1;
    /// Cache devices that are being written are not read: 0 or 1.
    L2ARC_NORW = "l2arc_norw", 0;
    /// After that time without an answer of a cache device the pool is read, in milliseconds. Cenote's own.
    L2ARC_READ_TIMEOUT_MS = "l2arc_read_timeout_ms", 250;
    /// Cache devices that are smaller, in bytes, have no logs.
    L2ARC_REBUILD_BLOCKS_MIN_L2SIZE = "l2arc_rebuild_blocks_min_l2size", 1 << 30;
    /// What is on a cache device is used when it comes to the pool again: 0 or 1.
    L2ARC_REBUILD_ENABLED = "l2arc_rebuild_enabled", 1;
    /// Bytes that are written to a cache device in a round, beside `l2arc_write_max`, until the cache in RAM is full
    /// for the first time.
    L2ARC_WRITE_BOOST = "l2arc_write_boost", 64 << 20;
    /// Bytes that are written to a cache device in a round at most.
    L2ARC_WRITE_MAX = "l2arc_write_max", 64 << 20;
    /// A pool with `multihost` is claimed without the sides of mirrors that this host does not see: 0 or 1. For when
    /// they are gone for good; with OpenZFS `zhack mmp reclaim` sets it.
    MMP_CLAIM_RELAXED = "mmp_claim_relaxed", 0;
    /// An expansion of a raidz stops when so many bytes were moved; 0: it goes on to its end.
    RAIDZ_EXPAND_MAX_REFLOW_BYTES = "raidz_expand_max_reflow_bytes", 0;
    /// How many bytes on disk a byte that was changed may come to take, by parity, padding, copies and the blocks above
    /// it.
    SPA_ASIZE_INFLATION = "spa_asize_inflation", 24;
    /// Seconds after which records of when groups were written are on disk.
    SPA_FLUSH_TXG_TIME = "spa_flush_txg_time", 600;
    /// Seconds between two records of when a group was written.
    SPA_NOTE_TXG_TIME = "spa_note_txg_time", 600;
    /// Binary logarithm of the sectors that files are said to be able to write.
    VDEV_FILE_LOGICAL_ASHIFT = "vdev_file_logical_ashift", 9;
    /// Binary logarithm of the sectors that are said to be best for files.
    VDEV_FILE_PHYSICAL_ASHIFT = "vdev_file_physical_ashift", 9;
    /// Milliseconds between two looks for slow leaves.
    VDEV_RAIDZ_OUTLIER_CHECK_INTERVAL_MS = "vdev_raidz_outlier_check_interval_ms", 1000;
    /// How far a leaf is above the usual to be slow, in parts of what the others differ by.
    VDEV_RAIDZ_OUTLIER_INSENSITIVITY = "vdev_raidz_outlier_insensitivity", 50;
    /// Seconds for which a slow leaf of a raidz or draid is not read; 0: none is found slow.
    VDEV_READ_SIT_OUT_SECS = "vdev_read_sit_out_secs", 600;
    /// Free runs of so many bytes at most are copied with what is around them when a vdev is removed.
    VDEV_REMOVAL_MAX_SPAN = "vdev_removal_max_span", 32 << 10;
    /// `mkdir`, `rmdir` and `mv` in `.zfs/snapshot` make, destroy and rename snapshots: 0 or 1. OpenZFS has 0.
    ZFS_ADMIN_SNAPSHOT = "zfs_admin_snapshot", 1;
    /// Percent of the cache in RAM that nodes of objects may take which nobody uses at the moment.
    ZFS_ARC_DNODE_LIMIT_PERCENT = "zfs_arc_dnode_limit_percent", 10;
    /// Most bytes of the cache in RAM; 0: half of the memory.
    ZFS_ARC_MAX = "zfs_arc_max", 0;
    /// Bytes of metadata beyond which these leave the cache first; 0: `zfs_arc_meta_limit_percent`. As in OpenZFS 2.1.
    ZFS_ARC_META_LIMIT = "zfs_arc_meta_limit", 0;
    /// The same in percent of the most that the cache may hold. As in OpenZFS 2.1.
    ZFS_ARC_META_LIMIT_PERCENT = "zfs_arc_meta_limit_percent", 75;
    /// Bytes of metadata that stay in the cache; 0: 16 MiB. As in OpenZFS 2.1.
    ZFS_ARC_META_MIN = "zfs_arc_meta_min", 0;
    /// Least bytes that the cache in RAM shrinks to; 0: a 32nd of the memory.
    ZFS_ARC_MIN = "zfs_arc_min", 0;
    /// Bytes of memory that the cache leaves free; 0: as the machine says.
    ZFS_ARC_SYS_FREE = "zfs_arc_sys_free", 0;
    /// Most blocks of destroyed datasets that are freed in a group. Cenote frees fewer if it would take long.
    ZFS_ASYNC_BLOCK_MAX_BLOCKS = "zfs_async_block_max_blocks", u64::MAX;
    /// Copies share blocks in pools with feature block_cloning: 0 or 1.
    ZFS_BCLONE_ENABLED = "zfs_bclone_enabled", 1;
    /// A copy of much that is not on disk yet waits for the group, to share blocks: 0 or 1.
    ZFS_BCLONE_WAIT_DIRTY = "zfs_bclone_wait_dirty", 1;
    /// Events of wrong bytes that are posted in a second at most, of a device.
    ZFS_CHECKSUM_EVENTS_PER_SECOND = "zfs_checksum_events_per_second", 20;
    /// The table of a removed vdev is condensed when so many percent of it are obsolete.
    ZFS_CONDENSE_INDIRECT_OBSOLETE_PCT = "zfs_condense_indirect_obsolete_pct", 25;
    /// Tables of removed vdevs are condensed: 0 or 1.
    ZFS_CONDENSE_INDIRECT_VDEVS_ENABLE = "zfs_condense_indirect_vdevs_enable", 1;
    /// The table of a removed vdev is condensed when its map of obsolete bytes has so many bytes.
    ZFS_CONDENSE_MAX_OBSOLETE_BYTES = "zfs_condense_max_obsolete_bytes", 1 << 30;
    /// Tables of removed vdevs with so many bytes at most are short enough.
    ZFS_CONDENSE_MIN_MAPPING_BYTES = "zfs_condense_min_mapping_bytes", 128 << 10;
    /// Milliseconds between two looks for requests that devices do not answer.
    ZFS_DEADMAN_CHECKTIME_MS = "zfs_deadman_checktime_ms", 60_000;
    /// Whether it is looked for them: 0 or 1.
    ZFS_DEADMAN_ENABLED = "zfs_deadman_enabled", 1;
    /// Milliseconds after which a group that is not on disk is late; then requests that took as long are told.
    ZFS_DEADMAN_SYNCTIME_MS = "zfs_deadman_synctime_ms", 600_000;
    /// Milliseconds after which a request is told that its device does not answer.
    ZFS_DEADMAN_ZIOTIME_MS = "zfs_deadman_ziotime_ms", 300_000;
    /// Most entries of a log of a dedup table that go into the table in a group. OpenZFS has no limit, but keeps the
    /// entries in memory.
    ZFS_DEDUP_LOG_FLUSH_ENTRIES_MAX = "zfs_dedup_log_flush_entries_max", 50_000;
    /// Percent of `zfs_dirty_data_max` from which on operations are delayed.
    ZFS_DELAY_MIN_DIRTY_PERCENT = "zfs_delay_min_dirty_percent", 60;
    /// How fast the delays grow, in nanoseconds.
    ZFS_DELAY_SCALE = "zfs_delay_scale", 500_000;
    /// Bytes of changes that may wait to be written; 0: `zfs_dirty_data_max_percent` of the memory.
    ZFS_DIRTY_DATA_MAX = "zfs_dirty_data_max", 0;
    /// See `zfs_dirty_data_max`.
    ZFS_DIRTY_DATA_MAX_PERCENT = "zfs_dirty_data_max_percent", 10;
    /// Percent of `zfs_dirty_data_max` with which a group is closed early.
    ZFS_DIRTY_DATA_SYNC_PERCENT = "zfs_dirty_data_sync_percent", 20;
    /// Of top-level vdevs with more metaslabs, one is kept for the intent log.
    ZFS_EMBEDDED_SLOG_MIN_MS = "zfs_embedded_slog_min_ms", 64;
    /// fallocate(2) asks for so many percent of its bytes; 0: it is refused.
    ZFS_FALLOCATE_RESERVE_PERCENT = "zfs_fallocate_reserve_percent", 110;
    /// Bytes of a write that initializes a device.
    ZFS_INITIALIZE_CHUNK_SIZE = "zfs_initialize_chunk_size", 1 << 20;
    /// What is written to initialize a device, in each eight bytes.
    ZFS_INITIALIZE_VALUE = "zfs_initialize_value", 0xdead_beef_dead_beee;
    /// Blocks of a part of a clone's list from which on it gets no more.
    ZFS_LIVELIST_MAX_ENTRIES = "zfs_livelist_max_entries", 500_000;
    /// Percent of a clone that it has to share with its origin, at least, for it to keep a list.
    ZFS_LIVELIST_MIN_PERCENT_SHARED = "zfs_livelist_min_percent_shared", 75;
    /// Fewer levels than that a dataset has to be below the pool after a rename by which it becomes deeper.
    ZFS_MAX_DATASET_NESTING = "zfs_max_dataset_nesting", 50;
    /// So many top-level vdevs may be missing of a pool that is imported read-only: what is on the others can be read.
    ZFS_MAX_MISSING_TVDS = "zfs_max_missing_tvds", 0;
    /// Intervals without a heartbeat after which a pool with `multihost` is suspended; 0: it never is.
    ZFS_MULTIHOST_FAIL_INTERVALS = "zfs_multihost_fail_intervals", 10;
    /// Heartbeats of a pool with `multihost` that are kept to be looked at.
    ZFS_MULTIHOST_HISTORY = "zfs_multihost_history", 0;
    /// Intervals for which a pool with `multihost` is watched before it is imported, at least.
    ZFS_MULTIHOST_IMPORT_INTERVALS = "zfs_multihost_import_intervals", 20;
    /// Milliseconds between the heartbeats of a leaf.
    ZFS_MULTIHOST_INTERVAL = "zfs_multihost_interval", 1000;
    /// Nothing is read ahead of readers: 0 or 1.
    ZFS_PREFETCH_DISABLE = "zfs_prefetch_disable", 0;
    /// Bytes that a sequential resilver reads at once, 1 << 16 to 16 << 20.
    ZFS_REBUILD_MAX_SEGMENT = "zfs_rebuild_max_segment", 1 << 20;
    /// A sequential resilver is followed by a scrub: 0 or 1.
    ZFS_REBUILD_SCRUB_ENABLED = "zfs_rebuild_scrub_enabled", 1;
    /// Removal of a vdev goes on although something cannot be read, or the sides of a mirror differ, and loses that: 0 or 1.
    ZFS_REMOVAL_IGNORE_ERRORS = "zfs_removal_ignore_errors", 0;
    /// Removals of vdevs do not go on: 0 or 1.
    ZFS_REMOVAL_SUSPEND_PROGRESS = "zfs_removal_suspend_progress", 0;
    /// Bytes that are copied together at most when a vdev is removed.
    ZFS_REMOVE_MAX_SEGMENT = "zfs_remove_max_segment", 16 << 20;
    /// A resilver of which less is done, in percent, begins anew when more devices lack something; others let them wait.
    ZFS_RESILVER_DEFER_PERCENT = "zfs_resilver_defer_percent", 10;
    /// Milliseconds that a resilver takes of a group while somebody waits for it.
    ZFS_RESILVER_MIN_TIME_MS = "zfs_resilver_min_time_ms", 1500;
    /// Seconds after which a scan notes on disk how far it is.
    ZFS_SCAN_CHECKPOINT_INTVAL = "zfs_scan_checkpoint_intval", 7200;
    /// The blocks that a scan has found, and not read yet, take this part of the memory.
    ZFS_SCAN_MEM_LIM_FACT = "zfs_scan_mem_lim_fact", 20;
    /// Scans do not go on: 0 or 1.
    ZFS_SCAN_SUSPEND_PROGRESS = "zfs_scan_suspend_progress", 0;
    /// A pool is scrubbed when a raidz of it was expanded: 0 or 1.
    ZFS_SCRUB_AFTER_EXPAND = "zfs_scrub_after_expand", 1;
    /// Entries of the error log that its scrub examines in one group; 0: it does not go on.
    ZFS_SCRUB_ERROR_BLOCKS_PER_TXG = "zfs_scrub_error_blocks_per_txg", 4096;
    /// Milliseconds that a scrub takes of a group while somebody waits for it. OpenZFS: 1000 before 2.3.
    ZFS_SCRUB_MIN_TIME_MS = "zfs_scrub_min_time_ms", 750;
    /// Events of slow requests that are posted in a second at most, of a device.
    ZFS_SLOW_IO_EVENTS_PER_SECOND = "zfs_slow_io_events_per_second", 20;
    /// Bytes that a device is told at once at most to be free.
    ZFS_TRIM_EXTENT_BYTES_MAX = "zfs_trim_extent_bytes_max", 128 << 20;
    /// Runs of fewer free bytes are not told to devices.
    ZFS_TRIM_EXTENT_BYTES_MIN = "zfs_trim_extent_bytes_min", 32 << 10;
    /// Trims that begin leave out metaslabs in which nothing has ever been. 0 or 1.
    ZFS_TRIM_METASLAB_SKIP = "zfs_trim_metaslab_skip", 0;
    /// Groups until it is a metaslab's turn again to be trimmed by itself.
    ZFS_TRIM_TXG_BATCH = "zfs_trim_txg_batch", 32;
    /// Groups whose times are kept to be looked at.
    ZFS_TXG_HISTORY = "zfs_txg_history", 100;
    /// Seconds after which a group is closed.
    ZFS_TXG_TIMEOUT = "zfs_txg_timeout", 5;
    /// Bytes of reads next to each other that are asked of a device as one at most, if nobody waits for them; 0: none are
    /// put together. No more than 16 MiB.
    ZFS_VDEV_AGGREGATION_LIMIT = "zfs_vdev_aggregation_limit", 1 << 20;
    /// Has no effect: there is no such cache, as there is none in OpenZFS since 2.2. Tools of 2.1 want to know.
    ZFS_VDEV_CACHE_SIZE = "zfs_vdev_cache_size", 0;
    /// New vdevs with more metaslabs of the default size get that many larger ones.
    ZFS_VDEV_DEFAULT_MS_COUNT = "zfs_vdev_default_ms_count", 200;
    /// Binary logarithm of the default size of metaslabs.
    ZFS_VDEV_DEFAULT_MS_SHIFT = "zfs_vdev_default_ms_shift", 29;
    /// The ashift of new vdevs for which none is asked is no more, if their devices can have it.
    ZFS_VDEV_MAX_AUTO_ASHIFT = "zfs_vdev_max_auto_ashift", 14;
    /// Binary logarithm of the size of metaslabs, at most.
    ZFS_VDEV_MAX_MS_SHIFT = "zfs_vdev_max_ms_shift", 34;
    /// The ashift of new vdevs for which none is asked is no less, if their devices can have it.
    ZFS_VDEV_MIN_AUTO_ASHIFT = "zfs_vdev_min_auto_ashift", 9;
    /// New vdevs with fewer metaslabs of the default size get at least about that many smaller ones.
    ZFS_VDEV_MIN_MS_COUNT = "zfs_vdev_min_ms_count", 16;
    /// Most metaslabs of a new vdev, whatever their size.
    ZFS_VDEV_MS_COUNT_LIMIT = "zfs_vdev_ms_count_limit", 1 << 17;
    /// Bytes between two reads at most that are read along where the two are put together.
    ZFS_VDEV_READ_GAP_LIMIT = "zfs_vdev_read_gap_limit", 32 << 10;
    /// Runs of blocks that a scan reads at once, for each leaf.
    ZFS_VDEV_SCRUB_MAX_ACTIVE = "zfs_vdev_scrub_max_active", 3;
    /// Events that are kept.
    ZFS_ZEVENT_LEN_MAX = "zfs_zevent_len_max", 512;
    /// A read or write that takes longer is slow, in milliseconds.
    ZIO_SLOW_IO_MS = "zio_slow_io_ms", 30_000;
    /// No volume becomes a block device from now on: 0 or 1.
    ZVOL_INHIBIT_DEV = "zvol_inhibit_dev", 0;
    /// How volumes with `volmode=default` are block devices: 1 with partitions, 2 without, 3 not at all.
    ZVOL_VOLMODE = "zvol_volmode", 1;
}

#[cfg(test)]
mod tests {
    use super::ALL;

    #[test]
    fn they_are_in_the_order_of_their_names_and_each_once() {
        assert!(ALL.is_sorted_by(|one, next| one.name < next.name));
    }
}
