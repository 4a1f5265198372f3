//! How large the cache may be: from the machine, its cgroups, and the tunables of OpenZFS by their names.
//!
//! | tunable | unless set |
//! |---|---|
//! | `zfs_arc_max` | half of memory |
//! | `zfs_arc_min` | 1/32 of memory, at least 32 MiB |
//! | `zfs_arc_meta_limit`, `zfs_arc_meta_limit_percent` | 75 % of the maximum |
//! | `zfs_arc_meta_min` | 16 MiB, at most half of the minimum |
//! | `zfs_arc_dnode_limit_percent` | 10 % of what the cache may take now |
//! | `zfs_arc_sys_free` | 1/64 of memory |
//!
//! Memory is the machine's, or what a cgroup leaves of it. As in OpenZFS 0 is as good as unset, and a
//! maximum below 64 MiB or a minimum below 32 MiB is passed over.

use base::{Env, tunables};

use crate::pressure::Gauge;

const MAX_LEAST: u64 = 64 << 20;
const MIN_LEAST: u64 = 32 << 20;
const METADATA_MIN: u64 = 16 << 20;
/// What is taken for the memory of a system that does not tell.
const MEMORY_UNKNOWN: u64 = 1 << 30;

/// Bounds of the cache, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The least that it shrinks to.
    pub c_min: u64,
    /// The most that it grows to.
    pub c_max: u64,
    /// Metadata beyond this leave first.
    pub metadata_max: u64,
    /// Metadata up to this stay.
    pub metadata_min: u64,
    /// Percent of the cache that nodes of objects may take.
    pub nodes_percent: u64,
}

impl Budget {
    /// A cache of a fixed size.
    pub fn fixed(bytes: u64) -> Budget {
        Budget {
            c_min: bytes,
            c_max: bytes,
            metadata_max: bytes,
            metadata_min: 0,
            nodes_percent: tunables::ZFS_ARC_DNODE_LIMIT_PERCENT.default,
        }
    }

    /// What tunables and memory say.
    pub fn of_system(env: &Env, gauge: &Gauge) -> Budget {
        let memory = gauge.limit().unwrap_or(MEMORY_UNKNOWN);
        let set = |tunable| Some(env.tunable(tunable)).filter(|bytes| *bytes > 0);
        let c_max = set(tunables::ZFS_ARC_MAX).filter(|bytes| *bytes >= MAX_LEAST).unwrap_or(memory / 2);
        let c_min =
            set(tunables::ZFS_ARC_MIN).filter(|bytes| *bytes >= MIN_LEAST).unwrap_or((memory / 32).max(MIN_LEAST));
        let c_min = c_min.min(c_max);
        let percent = env.tunable(tunables::ZFS_ARC_META_LIMIT_PERCENT).min(100);
        let metadata_max = set(tunables::ZFS_ARC_META_LIMIT).unwrap_or(c_max / 100 * percent).min(c_max);
        let metadata_min = set(tunables::ZFS_ARC_META_MIN).unwrap_or(METADATA_MIN).min(c_min / 2);
        let nodes_percent = env.tunable(tunables::ZFS_ARC_DNODE_LIMIT_PERCENT).min(100);
        Budget { c_min, c_max, metadata_max, metadata_min, nodes_percent }
    }
}
