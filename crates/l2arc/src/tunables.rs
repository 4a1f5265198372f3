//! What an administrator may set, by OpenZFS's names; looked up each time the feeder begins a round.
//!
//! | tunable | unless set | |
//! |---|---|---|
//! | `l2arc_write_max` | 64 MiB | bytes that are written to a device in a round at most |
//! | `l2arc_write_boost` | 64 MiB | and so many more until the cache in RAM is full for the first time |
//! | `l2arc_headroom` | 8 | so many times as far the feeder looks at what is soon to be evicted; 0: at all |
//! | `l2arc_headroom_boost` | 200 | in hundredths: blocks become smaller when they are compressed |
//! | `l2arc_feed_secs` | 1 | seconds between rounds |
//! | `l2arc_feed_again` | 1 | rounds follow each other faster while there is much to write |
//! | `l2arc_feed_min_ms` | 200 | how fast |
//! | `l2arc_noprefetch` | 1 | what was prefetched, and nobody has asked for, stays out |
//! | `l2arc_mfuonly` | 0 | 1: only frequent blocks; 2: only frequent data, but all metadata |
//! | `l2arc_norw` | 0 | no reads of a device that is being written |
//! | `l2arc_dwpd_limit` | 100 | how often a device may be written in a day, in hundredths; 0: without limit |
//! | `l2arc_meta_percent` | 33 | of the cache in RAM, which the index may take at most |
//! | `l2arc_learn` | 1 | recent blocks stay out while none of those that leave come back |
//! | `l2arc_read_timeout_ms` | 250 | after that time the pool is read |
//! | `l2arc_rebuild_enabled` | 1 | what is on a device is used when it comes to the pool again |
//! | `l2arc_rebuild_blocks_min_l2size` | 1 GiB | smaller devices have no logs |
//!
//! `l2arc_learn` and `l2arc_read_timeout_ms` are Cenote's own; the values are those of OpenZFS 2.4.

use base::Env;

/// The values of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the documentation
pub struct Tunables {
    pub write_max: u64,
    pub write_boost: u64,
    pub headroom: u64,
    pub headroom_boost: u64,
    pub feed_secs: u64,
    pub feed_again: bool,
    pub feed_min_ms: u64,
    pub noprefetch: bool,
    pub mfuonly: u64,
    pub norw: bool,
    pub dwpd_limit: u64,
    pub meta_percent: u64,
    pub learn: bool,
    pub read_timeout_ms: u64,
    pub rebuild_enabled: bool,
    pub rebuild_min_size: u64,
}

impl Tunables {
    /// What is set.
    pub fn of(env: &Env) -> Tunables {
        let number = |name, default| env.tunable(name, default);
        Tunables {
            write_max: Some(number("l2arc_write_max", 64 << 20)).filter(|bytes| *bytes > 0).unwrap_or(64 << 20),
            write_boost: number("l2arc_write_boost", 64 << 20),
            headroom: number("l2arc_headroom", 8),
            headroom_boost: number("l2arc_headroom_boost", 200).max(100),
            feed_secs: number("l2arc_feed_secs", 1).clamp(1, 3600),
            feed_again: number("l2arc_feed_again", 1) != 0,
            feed_min_ms: number("l2arc_feed_min_ms", 200).max(1),
            noprefetch: number("l2arc_noprefetch", 1) != 0,
            mfuonly: number("l2arc_mfuonly", 0),
            norw: number("l2arc_norw", 0) != 0,
            dwpd_limit: number("l2arc_dwpd_limit", 100),
            meta_percent: number("l2arc_meta_percent", 33).min(100),
            learn: number("l2arc_learn", 1) != 0,
            read_timeout_ms: number("l2arc_read_timeout_ms", 250).max(1),
            rebuild_enabled: number("l2arc_rebuild_enabled", 1) != 0,
            rebuild_min_size: number("l2arc_rebuild_blocks_min_l2size", 1 << 30),
        }
    }
}
