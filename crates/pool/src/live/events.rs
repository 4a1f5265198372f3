//! What has happened to a pool, for `zpool events` and for programs: the newest events, as name-value lists.
//!
//! ```text
//!   post ─▶ ring of zfs_zevent_len_max ─▶ since ─▶ commands, scripts
//! ```
//!
//! Classes and the names of pairs are those of zpool-events(8). Events are numbered from 1 in each process.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use base::{Condvar, Env, Mutex, tunables};
use format::ids::Guid;
use format::nvlist::{NvList, Value};
use vdev::Health;

/// The number of the error of a device that fails, as events and histories tell it: EIO.
pub(super) const EIO: i32 = 5;
/// More events are never kept, whatever zfs_zevent_len_max says.
const EVENTS_MAX_EVER: u64 = 65_536;

/// See the top of the file.
pub struct Events {
    env: Env,
    ring: Mutex<EventRing>,
    arrived: Condvar,
    /// What leaves were like when they were last looked at, by guid.
    leaves: Mutex<HashMap<Guid, LeafSeen>>,
}

#[derive(Default)]
struct EventRing {
    events: VecDeque<NvList>,
    /// Number of the last one.
    last: u64,
}

/// What a leaf was like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeafSeen {
    pub(super) health: Health,
    /// Reads that failed, writes, checksums, slow requests.
    pub(super) errors: [u64; 4],
    /// When that was, in seconds since 1970.
    pub(super) seen_s: u64,
}

/// Some events, oldest first.
#[derive(Debug, Default)]
pub struct EventsSince {
    /// The events.
    pub events: Vec<NvList>,
    /// Number of the last one, or of the one before.
    pub last: u64,
    /// How many were forgotten before they were asked for.
    pub dropped: u64,
}

impl Events {
    pub(super) fn new(env: &Env) -> Events {
        Events { env: env.clone(), ring: Mutex::default(), arrived: Condvar::default(), leaves: Mutex::default() }
    }

    /// Adds an event of that class.
    pub(super) fn post(&self, class: &str, payload: NvList) {
        let (seconds, nanoseconds) = self.env.now();
        let mut event = NvList::new();
        event.set("version", Value::U8(0));
        event.set("class", Value::Str(class.to_owned()));
        payload.iter().for_each(|(name, value)| event.set(name, value.clone()));
        event.set("time", Value::I64s(vec![seconds.cast_signed(), nanoseconds.into()]));
        let most = self.most();
        let mut ring = self.ring.lock();
        ring.last += 1;
        event.set("eid", Value::U64(ring.last));
        ring.events.push_back(event);
        while ring.events.len() > most {
            ring.events.pop_front();
        }
        self.arrived.notify_all();
    }

    /// The events behind that number. If there are none, waits for one, so long at most.
    pub fn since(&self, eid: u64, most: Duration) -> EventsSince {
        let ring = self.arrived.wait_timeout_while(self.ring.lock(), most, |ring| ring.last <= eid);
        let first = ring.last + 1 - ring.events.len() as u64;
        let skipped = usize::try_from((eid + 1).saturating_sub(first)).unwrap_or(usize::MAX);
        EventsSince {
            events: ring.events.iter().skip(skipped).cloned().collect(),
            last: ring.last,
            dropped: first.saturating_sub(eid + 1),
        }
    }

    /// How many are kept.
    pub fn most(&self) -> usize {
        self.env.tunable(tunables::ZFS_ZEVENT_LEN_MAX).clamp(1, EVENTS_MAX_EVER) as usize
    }

    /// Whether scripts are to be run for them.
    pub fn are_for_scripts(&self) -> bool {
        self.env.tunable(tunables::CENOTE_ZED) != 0
    }

    /// Forgets all events; how many there were.
    pub fn clear(&self) -> u64 {
        let mut ring = self.ring.lock();
        std::mem::take(&mut ring.events).len() as u64
    }

    /// A leaf is like that now; what it was like before, if it is not new.
    pub(super) fn see_leaf(&self, guid: Guid, now: LeafSeen) -> Option<LeafSeen> {
        self.leaves.lock().insert(guid, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept() {
        let events = Events::new(&Env::fixed(77).with_tunables(|name| (name == "zfs_zevent_len_max").then_some(3)));
        let numbers = |eid| {
            let since = events.since(eid, Duration::ZERO);
            let of = |event: &NvList| event.opt_u64("eid").unwrap();
            (since.events.iter().map(of).collect::<Vec<_>>(), since.last, since.dropped)
        };
        assert_eq!(numbers(0), (vec![], 0, 0));
        let mut payload = NvList::new();
        payload.set("pool", Value::Str("tank".into()));
        (0..2).for_each(|_| events.post("sysevent.fs.zfs.config_sync", payload.clone()));
        assert_eq!(numbers(0), (vec![1, 2], 2, 0));
        (0..3).for_each(|_| events.post("sysevent.fs.zfs.config_sync", payload.clone()));
        assert_eq!((numbers(0), numbers(4)), ((vec![3, 4, 5], 5, 2), (vec![5], 5, 0)));
        assert_eq!((numbers(5), numbers(99)), ((vec![], 5, 0), (vec![], 5, 0)));
        let event = events.since(4, Duration::ZERO).events.remove(0);
        assert_eq!(event.opt_str("class"), Some("sysevent.fs.zfs.config_sync"));
        assert_eq!(event.opt_str("pool"), Some("tank"));
        assert_eq!((events.clear(), events.clear(), numbers(5).0.len()), (3, 0, 0));
    }
}
