//! Requests that devices do not answer: what hangs is told, and nothing else is done about it, as OpenZFS does with its
//! failmode `wait` of the deadman.
//!
//! A request has hung if its device has had it for `zfs_deadman_ziotime_ms`, or, while a group has been on its way to
//! disk for `zfs_deadman_synctime_ms`, for as long as that. Each device with one gets an event `ereport.fs.zfs.deadman`
//! at each look.

use std::time::Duration;

use base::tunables;

use super::LivePool;

/// How often it is seen at least whether it is time to look: the time may be another one by then.
const STEP: Duration = Duration::from_secs(60);

impl LivePool {
    /// Looks for what hangs every `zfs_deadman_checktime_ms`, until the pool is closed. For a thread of its own.
    pub fn watch_for_hangs(&self) {
        let mut waited = Duration::ZERO;
        let every = || Duration::from_millis(self.env().tunable(tunables::ZFS_DEADMAN_CHECKTIME_MS));
        loop {
            let step = every().saturating_sub(waited).clamp(Duration::from_millis(1), STEP);
            if self.txgs().wait_stopped(step) {
                return;
            }
            waited += step;
            if waited >= every() {
                waited = Duration::ZERO;
                self.tell_of_hangs();
            }
        }
    }

    /// Tells what hangs at this moment; how many devices have such requests.
    pub fn tell_of_hangs(&self) -> usize {
        let env = self.env();
        if env.tunable(tunables::ZFS_DEADMAN_ENABLED) == 0 {
            return 0;
        }
        let ns = |ms: u64| ms.saturating_mul(1_000_000);
        let late_ns = ns(env.tunable(tunables::ZFS_DEADMAN_SYNCTIME_MS));
        let is_late = !self.suspension().is_suspended() && self.groups().syncing_ns(env).is_some_and(|ns| ns > late_ns);
        let request_ns = ns(env.tunable(tunables::ZFS_DEADMAN_ZIOTIME_MS));
        let limit_ns = if is_late { request_ns.min(late_ns) } else { request_ns };
        let hangs = |stats: &vdev::VdevStats| stats.meter.oldest_ns(env).filter(|ns| *ns > limit_ns);
        let hung: Vec<_> = self.tree().leaves().filter_map(|leaf| Some((leaf, hangs(leaf.stats())?))).collect();
        for (leaf, ns) in &hung {
            let (pool, device, seconds) = (self.name(), leaf.name(), ns / 1_000_000_000);
            tracing::warn!(pool, device, seconds, "a device does not answer");
            self.report("deadman", *leaf, None);
        }
        hung.len()
    }
}
