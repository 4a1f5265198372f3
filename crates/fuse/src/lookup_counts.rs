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
use std::sync::atomic::{AtomicUsize, Ordering};

use base::{Mutex, MutexGuard};
use zpl::ObjectId;

use crate::node::ROOT;

/// Parts that are locked apart from each other: more than threads that take requests.
const N_SHARDS: u64 = 64;

/// Counts of one tree.
pub(crate) struct LookupCounts {
    shards: Vec<Mutex<HashMap<ObjectId, LookupCount>>>,
    /// Stale objects.
    n_stale: AtomicUsize,
}

/// What the kernel knows of an object.
#[derive(Clone, Copy, Default)]
struct LookupCount {
    count: u64,
    /// Tells the file from others that have the object's number.
    generation: u64,
    is_orphan: bool,
    /// It is a file of a root that was replaced.
    is_stale: bool,
}

impl LookupCounts {
    pub(crate) fn new() -> LookupCounts {
        LookupCounts { shards: (0..N_SHARDS).map(|_| Mutex::default()).collect(), n_stale: AtomicUsize::new(0) }
    }

    /// The kernel is told of an object, and that the file has this generation. It is not stale then: if the generation
    /// is another, the kernel makes no use of the old node any more; if not, the file is back with a newer root.
    pub(crate) fn add(&self, object: ObjectId, generation: u64) {
        let mut shard = self.shard(object);
        let known = shard.entry(object).or_default();
        known.count += 1;
        if std::mem::take(&mut known.is_stale) {
            self.n_stale.fetch_sub(1, Ordering::SeqCst);
        }
        known.generation = generation;
    }

    /// Is it a file of a root that was replaced?
    pub(crate) fn is_stale(&self, object: ObjectId) -> bool {
        self.n_stale.load(Ordering::Relaxed) > 0 && self.shard(object).get(&object).is_some_and(|known| known.is_stale)
    }

    /// The root was replaced: objects for which `is_same` says no (it is told their generation) are stale.
    pub(crate) fn renew(&self, is_same: impl Fn(ObjectId, u64) -> bool) {
        for shard in &self.shards {
            for (&object, known) in shard.lock().iter_mut() {
                // it may have had its name still, or not have been made yet
                known.is_orphan = false;
                if !known.is_stale && object != ROOT && !is_same(object, known.generation) {
                    known.is_stale = true;
                    self.n_stale.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
    }

    /// Does the kernel know the object?
    pub(crate) fn contains(&self, object: ObjectId) -> bool {
        self.shard(object).contains_key(&object)
    }

    /// All objects that the kernel knows.
    pub(crate) fn all(&self) -> Vec<ObjectId> {
        self.shards.iter().flat_map(|shard| shard.lock().keys().copied().collect::<Vec<ObjectId>>()).collect()
    }

    /// The kernel gives `count` back. Is the object an orphan that nobody knows any more?
    #[must_use]
    pub(crate) fn remove(&self, object: ObjectId, count: u64) -> bool {
        let mut shard = self.shard(object);
        let Some(hold) = shard.get_mut(&object) else { return false };
        hold.count = hold.count.saturating_sub(count);
        let gone = *hold;
        if gone.count == 0 {
            shard.remove(&object);
            self.n_stale.fetch_sub(usize::from(gone.is_stale), Ordering::SeqCst);
        }
        gone.count == 0 && gone.is_orphan
    }

    /// An object lost its last name. Is it one that nobody knows?
    #[must_use]
    pub(crate) fn orphan(&self, object: ObjectId) -> bool {
        match self.shard(object).get_mut(&object) {
            Some(hold) => {
                hold.is_orphan = true;
                false
            }
            None => true,
        }
    }

    /// Takes all orphans, at the end of the mount.
    pub(crate) fn take_orphans(&self) -> Vec<ObjectId> {
        let shards = self.shards.iter().map(|shard| std::mem::take(&mut *shard.lock()));
        shards.flatten().filter(|(_, hold)| hold.is_orphan).map(|(object, _)| object).collect()
    }

    fn shard(&self, object: ObjectId) -> MutexGuard<'_, HashMap<ObjectId, LookupCount>> {
        self.shards[(object.get() % N_SHARDS) as usize].lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_orphan_goes_with_its_last_user() {
        let holds = LookupCounts::new();
        holds.add(ObjectId::new(7), 1);
        holds.add(ObjectId::new(7), 1);
        assert!(!holds.orphan(ObjectId::new(7)));
        assert!(!holds.remove(ObjectId::new(7), 1));
        assert!(holds.remove(ObjectId::new(7), 1));
        // the number was given to another file
        holds.add(ObjectId::new(7), 1);
        assert!(!holds.remove(ObjectId::new(7), 1), "that one has names");
        assert!(holds.orphan(ObjectId::new(7)), "nobody knows it");
        assert!(!holds.remove(ObjectId::new(8), 5), "never heard of");
    }

    #[test]
    fn what_is_left_at_the_end() {
        let holds = LookupCounts::new();
        for object in (0..1000).map(ObjectId::new) {
            holds.add(object, 1);
        }
        assert!(!holds.orphan(ObjectId::new(3)) && !holds.orphan(ObjectId::new(999)));
        let mut left = holds.take_orphans();
        left.sort_unstable();
        assert_eq!(left, [3, 999].map(ObjectId::new));
        assert_eq!(holds.take_orphans(), []);
    }

    #[test]
    fn what_is_not_the_same_is_stale_until_it_is_forgotten() {
        let counts = LookupCounts::new();
        (2..5).for_each(|object| counts.add(ObjectId::new(object), 10));
        counts.add(ROOT, 0);
        assert!(!counts.orphan(ObjectId::new(2)) && !counts.orphan(ObjectId::new(3)));
        counts.renew(|object, generation| generation == 10 && object == ObjectId::new(2));
        assert_eq!(
            [ROOT, ObjectId::new(2), ObjectId::new(3), ObjectId::new(4)].map(|object| counts.is_stale(object)),
            [false, false, true, true]
        );
        assert_eq!([2, 4, 5].map(|object| counts.contains(ObjectId::new(object))), [true, true, false]);
        assert!(!counts.remove(ObjectId::new(2), 1), "it has its name again");
        // the number is another file's
        counts.add(ObjectId::new(3), 11);
        assert!(!counts.is_stale(ObjectId::new(3)));
        assert!(!counts.remove(ObjectId::new(3), 2) && !counts.remove(ObjectId::new(4), 1));
        counts.add(ObjectId::new(4), 10);
        assert!(!counts.is_stale(ObjectId::new(4)) && counts.n_stale.load(Ordering::SeqCst) == 0);
        // it is in the root after the next
        counts.renew(|_, _| false);
        assert!(counts.is_stale(ObjectId::new(4)));
        counts.add(ObjectId::new(4), 10);
        assert!(!counts.is_stale(ObjectId::new(4)));
    }
}
