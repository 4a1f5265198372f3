//! What `zpool status` is asked for, and what its two outputs share.

use protocol::pool_report::*;

use super::names::NameStyle;

/// What is to be shown.
#[derive(Clone, Debug, Default)]
pub struct StatusOptions {
    /// How vdevs are named.
    pub style: NameStyle,
    /// `-p`: exact numbers.
    pub literal: bool,
    /// `-v`: names of damaged files.
    pub verbose: bool,
    /// `-x`: only pools with problems.
    pub only_problems: bool,
    /// `-e`: only vdevs with problems.
    pub only_unhealthy: bool,
    /// `-s`: how many requests were slow.
    pub slow: bool,
    /// `-d`: how many direct writes were wrong.
    pub direct: bool,
    /// `-i`: whether devices are initialized.
    pub initialize: bool,
    /// `-t`: whether devices are trimmed.
    pub trim: bool,
    /// `-D`: dedup tables.
    pub dedup: bool,
    /// `-j`.
    pub json: bool,
    /// `--json-int`.
    pub json_int: bool,
    /// `--json-flat-vdevs`.
    pub json_flat: bool,
    /// `--json-pool-key-guid`.
    pub json_guid_keys: bool,
}

impl StatusOptions {
    /// Whether a vdev, so many levels below the pool, is not listed.
    pub fn hides(&self, vdev: &VdevReport, depth: usize) -> bool {
        let is_well = |vdev: &&VdevReport| {
            vdev.state == VdevState::Healthy
                && vdev.errors == [0; 3]
                && !(self.slow && vdev.slow_ios > 0)
                && !vdev.is_removing
                && !vdev.awaits_resilver
        };
        vdev.is_indirect() || self.only_unhealthy && depth > 0 && vdev.all().iter().all(is_well)
    }
}

/// A pool, and what else `-v` and `-D` ask for.
pub struct PoolStatus {
    /// The pool.
    pub pool: PoolReport,
    /// Names of damaged files; empty if they are not wanted.
    pub damaged: Vec<String>,
    /// The dedup tables, if wanted.
    pub dedup: Option<DedupReport>,
}

/// Address of an article.
pub fn article(id: &str) -> String {
    format!("https://openzfs.github.io/openzfs-docs/msg/{id}")
}
