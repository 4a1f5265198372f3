//! What the cache devices have done, by the names of OpenZFS's arcstats.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident $name:literal)*) => {
        /// Counters of all devices of a pool.
        #[derive(Default)]
        pub(crate) struct Stats {
            $($(#[$doc])* pub(crate) $field: AtomicU64,)*
        }

        impl Stats {
            /// The rows of those that are counted.
            pub(crate) fn table(&self) -> Vec<(&'static str, u64)> {
                vec![$(($name, self.$field.load(Ordering::Relaxed)),)*]
            }
        }
    };
}

counters! {
    hits "l2_hits"
    misses "l2_misses"
    feeds "l2_feeds"
    rw_clash "l2_rw_clash"
    read_bytes "l2_read_bytes"
    write_bytes "l2_write_bytes"
    writes_sent "l2_writes_sent"
    writes_done "l2_writes_done"
    writes_error "l2_writes_error"
    cksum_bad "l2_cksum_bad"
    io_error "l2_io_error"
    abort_lowmem "l2_abort_lowmem"
    rebuild_lowmem "l2_rebuild_lowmem"
    log_blk_writes "l2_log_blk_writes"
    rebuild_success "l2_rebuild_success"
    rebuild_unsupported "l2_rebuild_unsupported"
    rebuild_io_errors "l2_rebuild_io_errors"
    rebuild_dh_errors "l2_rebuild_dh_errors"
    rebuild_cksum_lb_errors "l2_rebuild_cksum_lb_errors"
    rebuild_size "l2_rebuild_size"
    rebuild_asize "l2_rebuild_asize"
    rebuild_bufs "l2_rebuild_bufs"
    rebuild_bufs_precached "l2_rebuild_bufs_precached"
    rebuild_log_blks "l2_rebuild_log_blks"
}

/// What Cenote's has not: waits for locks, and lists of what is on a device.
pub(crate) const ABSENT: &[&str] =
    &["l2_writes_lock_retry", "l2_evict_lock_retry", "l2_evict_reading", "l2_evict_l1cached", "l2_free_on_write"];

/// One more, or `n`.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}
