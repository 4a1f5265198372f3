//! What an administrator may set, by OpenZFS's names; looked up each time the feeder begins a round.

use base::{Env, tunables};

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
        let number = |tunable| env.tunable(tunable);
        Tunables {
            write_max: Some(number(tunables::L2ARC_WRITE_MAX)).filter(|bytes| *bytes > 0).unwrap_or(64 << 20),
            write_boost: number(tunables::L2ARC_WRITE_BOOST),
            headroom: number(tunables::L2ARC_HEADROOM),
            headroom_boost: number(tunables::L2ARC_HEADROOM_BOOST).max(100),
            feed_secs: number(tunables::L2ARC_FEED_SECS).clamp(1, 3600),
            feed_again: number(tunables::L2ARC_FEED_AGAIN) != 0,
            feed_min_ms: number(tunables::L2ARC_FEED_MIN_MS).max(1),
            noprefetch: number(tunables::L2ARC_NOPREFETCH) != 0,
            mfuonly: number(tunables::L2ARC_MFUONLY),
            norw: number(tunables::L2ARC_NORW) != 0,
            dwpd_limit: number(tunables::L2ARC_DWPD_LIMIT),
            meta_percent: number(tunables::L2ARC_META_PERCENT).min(100),
            learn: number(tunables::L2ARC_LEARN) != 0,
            read_timeout_ms: number(tunables::L2ARC_READ_TIMEOUT_MS).max(1),
            rebuild_enabled: number(tunables::L2ARC_REBUILD_ENABLED) != 0,
            rebuild_min_size: number(tunables::L2ARC_REBUILD_BLOCKS_MIN_L2SIZE),
        }
    }
}
