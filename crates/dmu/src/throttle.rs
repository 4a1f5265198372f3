//! How fast changes may be made, and how long they wait for more of them: what an administrator may set, by OpenZFS's
//! names.
//!
//! | tunable | unless set | |
//! |---|---|---|
//! | `zfs_txg_timeout` | 5 | seconds that changes wait for more of them before their group is closed |
//! | `zfs_dirty_data_max` | a part of memory, 512 MiB at most | bytes of changes that may wait to be written |
//! | `zfs_dirty_data_max_percent` | 10 | which part, in per cent |
//! | `zfs_dirty_data_sync_percent` | 20 | of `zfs_dirty_data_max`, at which a group is closed early |
//! | `zfs_delay_min_dirty_percent` | 60 | of `zfs_dirty_data_max`, at which operations begin to be delayed |
//! | `zfs_delay_scale` | 500000 | nanoseconds of delay half way between that and the most |
//!
//! Source: zfs(4); the curve of delays is its "ZFS TRANSACTION DELAY".

use std::time::Duration;

use base::{Env, tunables};

/// Bytes of changes that may wait to be written, however much memory there is.
const DIRTY_BYTES_MAX: u64 = 512 << 20;
/// Fewer would not do: operations change so much at once.
const DIRTY_BYTES_MIN: u64 = 8 << 20;
/// The longest delay, nanoseconds.
const DELAY_MAX_NS: u64 = 100_000_000;

/// The values of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// How long changes wait for more of them.
    pub timeout: Duration,
    /// Bytes of changes that may wait to be written.
    dirty_max: u64,
    /// With so many a group is closed early.
    pub(crate) sync_at: u64,
    /// With more, operations are delayed.
    delay_from: u64,
    delay_scale_ns: u64,
}

impl Throttle {
    /// What is set, where there are so many bytes of memory.
    pub fn of(env: &Env, memory: u64) -> Throttle {
        let percent = |tunable| env.tunable(tunable).min(100);
        let part = |of: u64, percent: u64| of / 100 * percent;
        let usual = part(memory, percent(tunables::ZFS_DIRTY_DATA_MAX_PERCENT)).min(DIRTY_BYTES_MAX);
        let dirty_max = env.tunable_or(tunables::ZFS_DIRTY_DATA_MAX, usual);
        let dirty_max = if dirty_max == 0 { usual } else { dirty_max };
        let dirty_max = dirty_max.clamp(DIRTY_BYTES_MIN, (memory / 2).max(DIRTY_BYTES_MIN));
        Throttle {
            timeout: Duration::from_secs(env.tunable(tunables::ZFS_TXG_TIMEOUT).clamp(1, 3600)),
            dirty_max,
            sync_at: part(dirty_max, percent(tunables::ZFS_DIRTY_DATA_SYNC_PERCENT)),
            delay_from: part(dirty_max, percent(tunables::ZFS_DELAY_MIN_DIRTY_PERCENT)),
            delay_scale_ns: env.tunable(tunables::ZFS_DELAY_SCALE),
        }
    }

    /// No operation is delayed while fewer bytes wait.
    pub(crate) fn undelayed_below(&self) -> u64 {
        self.dirty_max.min(self.delay_from.saturating_add(1))
    }

    /// How long an operation is delayed while so many bytes wait; `None`: until there are fewer.
    pub(crate) fn delay(&self, dirty: u64) -> Option<Duration> {
        let left = self.dirty_max.checked_sub(dirty).filter(|left| *left > 0)?;
        let delay_ns = self.delay_scale_ns.saturating_mul(dirty.saturating_sub(self.delay_from)) / left;
        Some(Duration::from_nanos(delay_ns.min(DELAY_MAX_NS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttle(memory: u64, set: &'static [(&str, u64)]) -> Throttle {
        let env = Env::fixed(0).with_tunables(|name| set.iter().find(|(of, _)| *of == name).map(|(_, value)| *value));
        Throttle::of(&env, memory)
    }

    #[test]
    fn delays_grow_with_what_waits() {
        let throttle = throttle(1000 << 20, &[]);
        let max = 100 << 20;
        let delay_ns = |dirty| throttle.delay(dirty).map(|delay| delay.as_nanos() as u64);
        assert_eq!((throttle.timeout, throttle.sync_at), (Duration::from_secs(5), max / 5));
        assert_eq!([delay_ns(0), delay_ns(max / 10 * 6)], [Some(0); 2]);
        assert_eq!(delay_ns(max / 10 * 8), Some(500_000));
        assert_eq!(throttle.undelayed_below(), max / 10 * 6 + 1);
        assert_eq!(delay_ns(max - 1), Some(DELAY_MAX_NS));
        assert_eq!([delay_ns(max), delay_ns(max + 1), delay_ns(u64::MAX)], [None; 3]);
    }

    #[test]
    fn what_is_set_is_kept_within_reason() {
        assert_eq!(throttle(1 << 40, &[]).dirty_max, DIRTY_BYTES_MAX);
        assert_eq!(throttle(u64::MAX, &[("zfs_dirty_data_max", 2 << 30)]).dirty_max, 2 << 30);
        assert_eq!(throttle(1 << 30, &[("zfs_dirty_data_max", 2 << 30)]).dirty_max, 512 << 20);
        assert_eq!(throttle(1 << 30, &[("zfs_dirty_data_max", 0)]), throttle(1 << 30, &[]));
        assert_eq!(throttle(1000 << 20, &[("zfs_dirty_data_max_percent", 20)]).dirty_max, 200 << 20);
        assert_eq!(throttle(0, &[("zfs_dirty_data_max_percent", 0)]).dirty_max, DIRTY_BYTES_MIN);
        let odd = throttle(
            1 << 30,
            &[
                ("zfs_txg_timeout", 0),
                ("zfs_dirty_data_sync_percent", 1000),
                ("zfs_delay_min_dirty_percent", 1000),
                ("zfs_delay_scale", u64::MAX),
            ],
        );
        assert_eq!((odd.timeout, odd.sync_at <= odd.dirty_max), (Duration::from_secs(1), true));
        assert_eq!(odd.delay(odd.dirty_max - 1).map(|delay| delay.as_nanos() <= u128::from(DELAY_MAX_NS)), Some(true));
    }
}
