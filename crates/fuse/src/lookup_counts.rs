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
//! They also have what the kernel takes for the size of a file, where it may be wrong: when the root was replaced it asks
//! for other attributes before it uses them, but not for this one.
//!
//! Invariant: an object is counted before the answer that tells the kernel of it leaves, so its forget
//! cannot come first. If the answer does not arrive, as its caller was killed, the count stays too high,
//! and an orphan waits for the end of the mount.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use base::{Mutex, MutexGuard};
use zpl::ObjectId;

use crate::legacy::NotedFact;
use crate::node::ROOT;

/// Parts that are locked apart from each other: more than threads that take requests.
const N_SHARDS: u64 = 64;

/// Counts of one tree.
pub(crate) struct LookupCounts {
    shards: Vec<Mutex<HashMap<ObjectId, LookupCount>>>,
    /// Stale objects.
    n_stale: AtomicUsize,
    /// Objects with a size of the kernel's own.
    n_sizes: AtomicUsize,
    /// The kernel may know objects of which it was told by the process before.
    is_inherited: AtomicBool,
}

/// What the kernel knows of an object.
#[derive(Default)]
struct LookupCount {
    count: u64,
    /// Tells the file from others that have the object's number.
    generation: u64,
    is_orphan: bool,
    /// It is a file of a root that was replaced, or one that was lost with the process before.
    is_stale: bool,
    /// Of a file that was lost: tells the process after this one.
    noted: Option<NotedFact>,
    /// What the kernel takes for its size, where that may not be its size.
    kernel_size: Option<KernelSize>,
}

/// What the kernel takes for the size of a file since the root was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelSize {
    bytes: u64,
    /// It was told the right one since, and may have heard it.
    was_told: bool,
}

impl KernelSize {
    /// Where in a file of `size` bytes that is to go which the kernel, as it appends it, writes at `offset`.
    pub(crate) fn append_at(self, offset: u64, size: u64) -> u64 {
        let knows = offset == size || self.was_told && offset > size && offset != self.bytes;
        if knows { offset } else { size + offset.saturating_sub(self.bytes) }
    }
}

impl LookupCounts {
    pub(crate) fn new() -> LookupCounts {
        let shards = (0..N_SHARDS).map(|_| Mutex::default()).collect();
        LookupCounts {
            shards,
            n_stale: AtomicUsize::new(0),
            n_sizes: AtomicUsize::new(0),
            is_inherited: AtomicBool::new(false),
        }
    }

    /// The kernel may know objects of which another process told it: these have no name, and wait for its forget, and
    /// these are not there any more, which is noted.
    pub(crate) fn inherit(&self, orphans: &[ObjectId], gone: impl Iterator<Item = (ObjectId, Option<NotedFact>)>) {
        self.is_inherited.store(true, Ordering::SeqCst);
        for &object in orphans {
            self.shard(object).entry(object).or_default().is_orphan = true;
        }
        for (object, noted) in gone {
            let mut shard = self.shard(object);
            let known = shard.entry(object).or_default();
            known.noted = noted;
            if !std::mem::replace(&mut known.is_stale, true) {
                self.n_stale.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// Whether the kernel may know objects that are not counted here.
    pub(crate) fn is_inherited(&self) -> bool {
        self.is_inherited.load(Ordering::SeqCst)
    }

    /// The kernel knows this object from the process before, as a file of this generation, unless there is more known of it.
    pub(crate) fn adopt(&self, object: ObjectId, generation: u64) {
        self.shard(object).entry(object).or_insert(LookupCount { generation, ..LookupCount::default() });
    }

    /// All objects are counted that the kernel knows from the process before.
    pub(crate) fn all_adopted(&self) {
        self.is_inherited.store(false, Ordering::SeqCst);
    }

    /// The kernel is told of an object, and that the file has this generation. It is not stale then: if the generation
    /// is another, the kernel makes no use of the old node any more; if not, the file is back with a newer root. The fact that
    /// it was lost holds until the kernel has heard of it.
    pub(crate) fn add(&self, object: ObjectId, generation: u64) -> Option<NotedFact> {
        let mut shard = self.shard(object);
        let known = shard.entry(object).or_default();
        known.count += 1;
        if std::mem::take(&mut known.is_stale) {
            self.n_stale.fetch_sub(1, Ordering::SeqCst);
        }
        if known.generation != generation {
            self.put_size(known, None);
        }
        known.generation = generation;
        known.noted.take()
    }

    /// Is it a file of a root that was replaced, or one that was lost?
    pub(crate) fn is_stale(&self, object: ObjectId) -> bool {
        self.n_stale.load(Ordering::Relaxed) > 0 && self.shard(object).get(&object).is_some_and(|known| known.is_stale)
    }

    /// The root was replaced: objects for which `now`, which is told their generation, has no size are stale. `before`
    /// are the sizes of files in the old root.
    pub(crate) fn renew(&self, before: &HashMap<ObjectId, u64>, now: impl Fn(ObjectId, u64) -> Option<u64>) {
        for shard in &self.shards {
            for (&object, known) in shard.lock().iter_mut() {
                // it may have had its name still, or not have been made yet
                known.is_orphan = false;
                let size = now(object, known.generation);
                if !known.is_stale && object != ROOT && size.is_none() {
                    known.is_stale = true;
                    self.n_stale.fetch_add(1, Ordering::SeqCst);
                }
                let kernels = known.kernel_size.map(|kernels| kernels.bytes).or_else(|| before.get(&object).copied());
                let differs = kernels.filter(|_| kernels != size && size.is_some());
                self.put_size(known, differs.map(|bytes| KernelSize { bytes, was_told: false }));
            }
        }
    }

    /// What the kernel takes for a file's size, if that may be wrong.
    pub(crate) fn kernel_size(&self, object: ObjectId) -> Option<KernelSize> {
        let sized = self.n_sizes.load(Ordering::Relaxed) > 0;
        sized.then(|| self.shard(object).get(&object)?.kernel_size).flatten()
    }

    /// All files of which the kernel takes the size to be less than it is, as `size_of` says.
    pub(crate) fn taken_for_shorter(&self, size_of: impl Fn(ObjectId) -> Option<u64>) -> Vec<(ObjectId, u64)> {
        let mut all = Vec::new();
        for shard in self.shards.iter().filter(|_| self.n_sizes.load(Ordering::Relaxed) > 0) {
            let shard = shard.lock();
            all.extend(shard.iter().filter_map(|(&object, known)| Some((object, known.kernel_size?.bytes))));
        }
        let longer = |(object, kernels)| size_of(object).filter(|size| *size > kernels).map(|size| (object, size));
        all.into_iter().filter_map(longer).collect()
    }

    /// The kernel takes a file to be at least so long, as it knows of what is there.
    pub(crate) fn reaches(&self, object: ObjectId, bytes: u64) {
        self.change_size(object, |kernels| Some(KernelSize { bytes: kernels.bytes.max(bytes), ..kernels }));
    }

    /// The kernel is told a file's size.
    pub(crate) fn size_told(&self, object: ObjectId) {
        self.change_size(object, |kernels| Some(KernelSize { was_told: true, ..kernels }));
    }

    /// The kernel knows a file's size.
    pub(crate) fn size_known(&self, object: ObjectId) {
        self.change_size(object, |_| None);
    }

    fn change_size(&self, object: ObjectId, change: impl FnOnce(KernelSize) -> Option<KernelSize>) {
        if self.n_sizes.load(Ordering::Relaxed) > 0
            && let Some(known) = self.shard(object).get_mut(&object)
            && let Some(kernels) = known.kernel_size
        {
            self.put_size(known, change(kernels));
        }
    }

    fn put_size(&self, known: &mut LookupCount, size: Option<KernelSize>) {
        match (std::mem::replace(&mut known.kernel_size, size), size) {
            (None, Some(_)) => drop(self.n_sizes.fetch_add(1, Ordering::SeqCst)),
            (Some(_), None) => drop(self.n_sizes.fetch_sub(1, Ordering::SeqCst)),
            _ => {}
        }
    }

    /// Does the kernel know the object?
    pub(crate) fn contains(&self, object: ObjectId) -> bool {
        self.shard(object).contains_key(&object)
    }

    /// All objects that the kernel knows.
    pub(crate) fn all(&self) -> Vec<ObjectId> {
        self.objects(|_| true)
    }

    /// All objects without a name that the kernel may know.
    pub(crate) fn orphans(&self) -> Vec<ObjectId> {
        self.objects(|known| known.is_orphan)
    }

    fn objects(&self, is_wanted: impl Fn(&LookupCount) -> bool) -> Vec<ObjectId> {
        let mut objects = Vec::new();
        for shard in &self.shards {
            objects.extend(shard.lock().iter().filter(|(_, known)| is_wanted(known)).map(|(object, _)| *object));
        }
        objects
    }

    /// The kernel gives `count` back. Is the object an orphan that nobody knows any more?
    #[must_use]
    pub(crate) fn remove(&self, object: ObjectId, count: u64) -> bool {
        let mut shard = self.shard(object);
        let Some(hold) = shard.get_mut(&object) else { return false };
        hold.count = hold.count.saturating_sub(count);
        if hold.count > 0 {
            return false;
        }
        let Some(gone) = shard.remove(&object) else { return false };
        self.n_stale.fetch_sub(usize::from(gone.is_stale), Ordering::SeqCst);
        self.n_sizes.fetch_sub(usize::from(gone.kernel_size.is_some()), Ordering::SeqCst);
        gone.is_orphan
    }

    /// An object lost its last name. Is it one that nobody knows?
    #[must_use]
    pub(crate) fn orphan(&self, object: ObjectId) -> bool {
        let mut shard = self.shard(object);
        // the kernel knows what it removes: if not from this process, from the one before
        if !shard.contains_key(&object) && !self.is_inherited() {
            return true;
        }
        shard.entry(object).or_default().is_orphan = true;
        false
    }

    /// The kernel does not know an object. Is it an orphan that it was not told of since?
    #[must_use]
    pub(crate) fn take_unknown(&self, object: ObjectId) -> bool {
        let mut shard = self.shard(object);
        let is_unknown = shard.get(&object).is_some_and(|known| known.is_orphan && known.count == 0);
        is_unknown && shard.remove(&object).is_some()
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
    fn what_another_process_told_of_is_forgotten_too() {
        let counts = LookupCounts::new();
        let [orphan, stale, other] = [7, 8, 9].map(ObjectId::new);
        counts.inherit(&[orphan], [(stale, None)].into_iter());
        assert!(counts.remove(orphan, 3), "it waited for this");
        assert!(counts.is_stale(stale) && !counts.remove(stale, 1) && !counts.is_stale(stale));
        // one that was unlinked since is used by programs that opened it before
        assert!(!counts.orphan(other));
        counts.add(other, 1);
        assert!(counts.remove(other, 5));
        assert!(counts.take_orphans().is_empty());
    }

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
        (2..5).for_each(|object| drop(counts.add(ObjectId::new(object), 10)));
        counts.add(ROOT, 0);
        assert!(!counts.orphan(ObjectId::new(2)) && !counts.orphan(ObjectId::new(3)));
        let none = HashMap::new();
        counts.renew(&none, |object, generation| (generation == 10 && object == ObjectId::new(2)).then_some(0));
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
        counts.renew(&none, |_, _| None);
        assert!(counts.is_stale(ObjectId::new(4)));
        counts.add(ObjectId::new(4), 10);
        assert!(!counts.is_stale(ObjectId::new(4)));
    }

    #[test]
    fn sizes_that_the_kernel_does_not_know() {
        let counts = LookupCounts::new();
        let [shorter, longer, same, gone] = [2, 3, 4, 5].map(ObjectId::new);
        [shorter, longer, same, gone].iter().for_each(|object| drop(counts.add(*object, 10)));
        let before = [(shorter, 100), (longer, 5), (same, 7), (gone, 9)].into();
        let now = |object: ObjectId| [None, None, Some(10), Some(50), Some(7), None][object.get() as usize];
        counts.renew(&before, |object, _| now(object));
        let size = |object| counts.kernel_size(object);
        assert_eq!([same, gone].map(size), [None, None]);
        // the file has 10 bytes, and the kernel appends behind the 100 of which it knows: also in two parts, the second first
        let kernels = size(shorter).unwrap();
        assert_eq!([100, 10, 104].map(|offset| kernels.append_at(offset, 10)), [10, 10, 14]);
        counts.reaches(shorter, 108);
        assert_eq!(size(shorter).unwrap().append_at(100, 18), 18);
        assert_eq!(size(shorter).unwrap().append_at(108, 18), 18);
        // it hears of the size, and appends in parts
        counts.size_told(shorter);
        assert_eq!([108, 18, 20].map(|offset| size(shorter).unwrap().append_at(offset, 18)), [18, 18, 20]);
        assert_eq!(counts.taken_for_shorter(now), [(longer, 50)]);
        assert_eq!(size(longer).unwrap().append_at(5, 50), 50);
        // one more root: what the kernel knows is of the one before
        counts.renew(&[(longer, 50)].into(), |object, _| (object == longer).then_some(60));
        assert_eq!(size(longer), Some(KernelSize { bytes: 5, was_told: false }));
        counts.size_known(longer);
        assert!(size(longer).is_none() && size(shorter).is_none() && counts.n_sizes.load(Ordering::SeqCst) == 0);
    }
}
