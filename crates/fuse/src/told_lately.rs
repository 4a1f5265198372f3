//! Nodes whose attributes the kernel was told before it was known how much room the object takes: that is so when its group
//! is on disk, and then the kernel is told to ask again.
//!
//! ```text
//!   told ─▶ noted, for longer than a group takes ─▶ a group is on disk ─▶ the kernel forgets the attributes of all that are noted
//!        ─▶ no room, or nobody tells of groups: for a second
//! ```
//!
//! An object counts as changed lately if that was after the group before the last one came to disk: changes of the open group
//! may be as old as that.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base::{Env, Mutex};

use crate::legacy::Legacy;
use crate::lifetimes::AttrLifetime;
use crate::notifier::Notifier;

/// Parts that are locked apart from each other.
const N_SHARDS: u64 = 16;
/// Most nodes of a part.
const NODES_MAX: usize = 4096;
/// Where nobody has told of groups yet, how long ago an object must have changed that its group is on disk.
const SETTLED_S: u64 = 60;
/// How long after a group the kernel may yet be given an answer that was made before.
const ANSWER_TIME: Duration = Duration::from_millis(100);

/// The nodes of a mount that were told so.
#[derive(Default)]
pub(crate) struct ToldLately {
    shards: [Mutex<HashSet<u64>>; N_SHARDS as usize],
    /// Groups are told of.
    is_watched: AtomicBool,
    /// When the last group came to disk, in seconds since 1970.
    synced_s: AtomicU64,
    /// All that changed before is on disk.
    settled_s: AtomicU64,
}

impl ToldLately {
    /// How long attributes hold that a node is told now, of an object that changed at `changed_s`.
    pub(crate) fn lifetime(&self, node: u64, changed_s: u64, now_s: u64) -> AttrLifetime {
        let is_watched = self.is_watched.load(Ordering::Relaxed);
        let is_settled = match is_watched {
            true => changed_s < self.settled_s.load(Ordering::Relaxed),
            false => changed_s.saturating_add(SETTLED_S) <= now_s,
        };
        if is_settled {
            return AttrLifetime::FOREVER;
        }
        match self.add(node) && is_watched {
            true => AttrLifetime::UNTIL_GROUP,
            false => AttrLifetime::UNSETTLED,
        }
    }

    /// Notes a node, unless there are too many.
    fn add(&self, node: u64) -> bool {
        let mut nodes = self.shards[(node % N_SHARDS) as usize].lock();
        if nodes.len() < NODES_MAX {
            nodes.insert(node);
        }
        nodes.contains(&node)
    }

    /// It is told of groups from now on.
    fn begin(&self, now_s: u64) {
        let settled_s = now_s.saturating_sub(SETTLED_S);
        self.synced_s.store(settled_s, Ordering::Relaxed);
        self.settled_s.store(settled_s, Ordering::Relaxed);
        self.is_watched.store(true, Ordering::Relaxed);
    }

    /// A group is on disk. Whether nodes are noted.
    fn group_ended(&self, now_s: u64) -> bool {
        let before_s = self.synced_s.swap(now_s, Ordering::Relaxed);
        // a clock may be set back
        self.settled_s.store(before_s.min(now_s), Ordering::Relaxed);
        self.shards.iter().any(|nodes| !nodes.lock().is_empty())
    }

    /// Has the kernel forget the attributes of what is noted after each group, for as long as the mount is there, if somebody
    /// tells of groups.
    pub(crate) fn watch(told: &Arc<ToldLately>, notifier: &Arc<Notifier>, legacy: &Legacy, env: &Env) {
        let Some(unsettled) = legacy.unsettled() else { return };
        told.begin(env.now_s());
        let (told, notifier, env) = (Arc::downgrade(told), Arc::downgrade(notifier), env.clone());
        unsettled.on_synced(move || {
            if told.upgrade().is_none_or(|told| !told.group_ended(env.now_s())) {
                return;
            }
            let (told, notifier) = (told.clone(), notifier.clone());
            // the group does not wait for the kernel; without a thread, they are there after the next group
            env.spawn("fuse-settled", move || {
                std::thread::sleep(ANSWER_TIME);
                let nodes = told.upgrade().map(|told| told.take());
                for node in nodes.into_iter().flatten() {
                    // the connection is not held for longer
                    notifier.upgrade().into_iter().for_each(|notifier| notifier.forget_attributes(node));
                }
            });
        });
    }

    /// Has the kernel forget the attributes of all that are noted.
    pub(crate) fn forget(&self, notifier: &Notifier) {
        for node in self.take() {
            notifier.forget_attributes(node);
        }
    }

    fn take(&self) -> Vec<u64> {
        self.shards.iter().flat_map(|nodes| std::mem::take(&mut *nodes.lock())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_holds_until_its_group_is_on_disk() {
        let told = ToldLately::default();
        // nobody tells of groups
        assert_eq!(told.lifetime(1, 940, 1000), AttrLifetime::FOREVER);
        assert_eq!(told.lifetime(1, 941, 1000), AttrLifetime::UNSETTLED);
        assert_eq!(told.take(), [1]);
        // nor has anybody yet
        told.begin(1000);
        assert_eq!(told.lifetime(1, 939, 1000), AttrLifetime::FOREVER);
        assert_eq!(told.lifetime(1, 940, 1000), AttrLifetime::UNTIL_GROUP);
        assert_eq!(told.take(), [1]);
        assert!(!told.group_ended(1000));
        assert_eq!(told.lifetime(2, 950, 1001), AttrLifetime::UNTIL_GROUP, "it may be of the open group");
        assert!(told.group_ended(1005) && told.take() == [2]);
        // the open group may have changes of 1000, and none of before
        assert_eq!(told.lifetime(3, 999, 1006), AttrLifetime::FOREVER);
        assert!(told.take().is_empty());
        assert_eq!(told.lifetime(4, 1000, 1006), AttrLifetime::UNTIL_GROUP);
        assert_eq!(told.take(), [4]);
        // a clock that is set back
        told.group_ended(300);
        assert_eq!((told.lifetime(5, 301, 301), told.take()), (AttrLifetime::UNTIL_GROUP, vec![5]));
        // too many at once
        let nodes = || (0..N_SHARDS * NODES_MAX as u64 + 1).map(|node| told.lifetime(node, 400, 400));
        assert_eq!(nodes().filter(|lifetime| *lifetime == AttrLifetime::UNSETTLED).count(), 1);
        assert_eq!(nodes().filter(|lifetime| *lifetime == AttrLifetime::UNSETTLED).count(), 1, "known ones are noted");
    }
}
