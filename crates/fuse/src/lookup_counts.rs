//! Which objects of a writable tree the kernel knows, so that one without a name is given back when
//! nobody uses it any more, and not before.
//!
//! The kernel counts how often it was told of a node, and gives that count back when it drops the node
//! from its memory: no file is open there then, nobody stands in that directory, nothing is mapped. So
//! both sides count the same, and no request is needed when a file is opened or closed.
//!
//! ```text
//!   lookup, create, ...   +1        unlink of the last name    marked as an orphan
//!   forget                -n        orphan at 0                Tree::reclaim, by the last one of these
//! ```
//!
//! Invariant: an object is counted before the answer that tells the kernel of it leaves, so its forget
//! cannot come first. If the answer does not arrive, as its caller was killed, the count stays too high,
//! and an orphan waits for the end of the mount.

use std::collections::HashMap;

use base::{Mutex, MutexGuard};

/// Parts that are locked apart from each other: more than threads that take requests.
const N_SHARDS: u64 = 64;

/// Counts of one tree.
pub(crate) struct LookupCounts(Vec<Mutex<HashMap<u64, LookupCount>>>);

#[derive(Clone, Copy, Default)]
struct LookupCount {
    count: u64,
    is_orphan: bool,
}

impl LookupCounts {
    pub(crate) fn new() -> LookupCounts {
        LookupCounts((0..N_SHARDS).map(|_| Mutex::default()).collect())
    }

    /// The kernel is told of an object.
    pub(crate) fn add(&self, object: u64) {
        self.shard(object).entry(object).or_default().count += 1;
    }

    /// The kernel gives `count` back. Is the object an orphan that nobody knows any more?
    #[must_use]
    pub(crate) fn remove(&self, object: u64, count: u64) -> bool {
        let mut shard = self.shard(object);
        let Some(hold) = shard.get_mut(&object) else { return false };
        hold.count = hold.count.saturating_sub(count);
        let gone = *hold;
        if gone.count == 0 {
            shard.remove(&object);
        }
        gone.count == 0 && gone.is_orphan
    }

    /// An object lost its last name. Is it one that nobody knows?
    #[must_use]
    pub(crate) fn orphan(&self, object: u64) -> bool {
        match self.shard(object).get_mut(&object) {
            Some(hold) => {
                hold.is_orphan = true;
                false
            }
            None => true,
        }
    }

    /// Takes all orphans, at the end of the mount.
    pub(crate) fn take_orphans(&self) -> Vec<u64> {
        let shards = self.0.iter().map(|shard| std::mem::take(&mut *shard.lock()));
        shards.flatten().filter(|(_, hold)| hold.is_orphan).map(|(object, _)| object).collect()
    }

    fn shard(&self, object: u64) -> MutexGuard<'_, HashMap<u64, LookupCount>> {
        self.0[(object % N_SHARDS) as usize].lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_orphan_goes_with_its_last_user() {
        let holds = LookupCounts::new();
        holds.add(7);
        holds.add(7);
        assert!(!holds.orphan(7));
        assert!(!holds.remove(7, 1));
        assert!(holds.remove(7, 1));
        // the number was given to another file
        holds.add(7);
        assert!(!holds.remove(7, 1), "that one has names");
        assert!(holds.orphan(7), "nobody knows it");
        assert!(!holds.remove(8, 5), "never heard of");
    }

    #[test]
    fn what_is_left_at_the_end() {
        let holds = LookupCounts::new();
        for object in 0..1000 {
            holds.add(object);
        }
        assert!(!holds.orphan(3) && !holds.orphan(999));
        let mut left = holds.take_orphans();
        left.sort_unstable();
        assert_eq!(left, [3, 999]);
        assert_eq!(holds.take_orphans(), [0; 0]);
    }
}
