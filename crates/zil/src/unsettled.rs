//! Objects with changes that are neither in the log nor in a group on disk: a crash would take back something that
//! programs were told is done.
//!
//! They are noted in a [`FactFile`], which another process keeps, so that the next one of the pool knows what was lost.
//!
//! ```text
//!   operation ─▶ push ─▶ note       its transaction is open yet, and it is not answered
//!   commit    ─▶ begin ─▶ log ─▶ committed     all that was noted before the commit began
//!   group     ─▶ synced
//! ```
//!
//! Invariant: an operation is noted after its entries are pushed. A commit that began before that may not have them, and
//! leaves the note.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use base::{Fact, FactFile, FactSlot, FoundFacts, Mutex, NameFact, NameSlots};
use format::ids::{ObjectId, Txg};

/// The kind of facts that tell of a changed object and, of one that is new, its generation.
const CHANGED: u64 = 1;

/// What brings a change to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SettledBy {
    /// Any commit: names.
    AnyCommit,
    /// A commit of the object, or of everything.
    ItsCommit,
    /// Its group only: the object has no name, so the log is not told of it.
    Group,
}

/// A change of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsettledChange {
    /// The object.
    pub object: ObjectId,
    /// Its generation, if it was just made.
    pub born: Option<u64>,
    /// What brings it to disk.
    pub by: SettledBy,
}

/// An object that lost changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostChanges {
    /// The object.
    pub object: ObjectId,
    /// The generation that it had, if it was made in the time that was lost.
    pub born: Option<u64>,
}

impl LostChanges {
    /// The fact that tells of them.
    pub fn fact(self) -> Fact {
        Fact { kind: CHANGED, numbers: [self.object.get(), self.born.unwrap_or(0)] }
    }
}

/// What lost something, and was not told: each once. With each object something that holds until then.
pub struct UntoldLosses<T> {
    objects: HashMap<ObjectId, Option<T>>,
    /// All may have lost something but these, which were told.
    all_but: Option<HashSet<ObjectId>>,
}

impl<T> UntoldLosses<T> {
    /// Of these objects; with `are_all`, all others may have lost something, too.
    pub fn new(objects: impl IntoIterator<Item = (ObjectId, Option<T>)>, are_all: bool) -> UntoldLosses<T> {
        UntoldLosses { objects: objects.into_iter().collect(), all_but: are_all.then(HashSet::new) }
    }

    /// Whether there are any.
    pub fn are_any(&self) -> bool {
        !self.objects.is_empty() || self.are_all()
    }

    /// Whether all may have lost something that were not told.
    pub fn are_all(&self) -> bool {
        self.all_but.is_some()
    }

    /// Those that are known.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> {
        self.objects.keys().copied()
    }

    /// Whether an object lost something and was not told.
    pub fn contains(&self, object: ObjectId) -> bool {
        self.objects.contains_key(&object) || self.all_but.as_ref().is_some_and(|told| !told.contains(&object))
    }

    /// The same, with what holds until it is told; it is taken to be told then.
    pub fn take(&mut self, object: ObjectId) -> Option<Option<T>> {
        let known = self.objects.remove(&object);
        let is_new = self.all_but.as_mut().is_some_and(|told| told.insert(object));
        (known.is_some() || is_new).then(|| known.flatten())
    }
}

/// The changes of one object set that a crash would take back.
pub struct Unsettled {
    file: Arc<FactFile>,
    noted: Mutex<NotedChanges>,
    on_synced: OnceLock<GroupWatch>,
}

/// Does something when a group is on disk.
type GroupWatch = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct NotedChanges {
    objects: HashMap<(ObjectId, SettledBy), NotedChange<FactSlot>>,
    names: HashMap<(NameFact, SettledBy), NotedChange<NameSlots>>,
    /// Counts notes.
    order: u64,
    /// The last group with a change that there was no room for.
    lost_txg: Option<Txg>,
}

struct NotedChange<S> {
    txg: Txg,
    order: u64,
    slot: S,
}

impl Unsettled {
    /// None yet; they will be noted there.
    pub fn new(file: Arc<FactFile>) -> Unsettled {
        Unsettled { file, noted: Mutex::default(), on_synced: OnceLock::new() }
    }

    /// Has `watch` done each time a group is on disk, which waits for it. The first one to ask has it.
    pub fn on_synced(&self, watch: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_synced.set(Box::new(watch));
    }

    /// Notes changes of group `txg`, whose entries have been pushed.
    pub fn note(&self, txg: Txg, changes: &[UnsettledChange]) {
        let noted = &mut *self.noted.lock();
        noted.order += 1;
        for change in changes {
            let key = (change.object, change.by);
            if let Some(known) = noted.objects.get_mut(&key).filter(|_| change.born.is_none()) {
                (known.txg, known.order) = (txg, noted.order);
                continue;
            }
            match self.file.put(LostChanges { object: change.object, born: change.born }.fact()) {
                Some(slot) => {
                    let change = NotedChange { txg, order: noted.order, slot };
                    noted.objects.insert(key, change).into_iter().for_each(|before| self.file.take(before.slot));
                }
                None => noted.lost_txg = noted.lost_txg.max(Some(txg)),
            }
        }
    }

    /// Notes that names were given in group `txg` to objects that were there before, whose entries have been pushed.
    pub fn note_names(&self, txg: Txg, names: Vec<NameFact>, by: SettledBy) {
        let noted = &mut *self.noted.lock();
        noted.order += 1;
        for name in names {
            let key = (name, by);
            if let Some(known) = noted.names.get_mut(&key) {
                (known.txg, known.order) = (txg, noted.order);
                continue;
            }
            match self.file.put_name(&key.0) {
                Some(slot) => drop(noted.names.insert(key, NotedChange { txg, order: noted.order, slot })),
                None => noted.lost_txg = noted.lost_txg.max(Some(txg)),
            }
        }
    }

    /// Whether a group is to come to disk before more names are given.
    pub fn is_full_of_names(&self) -> bool {
        self.file.is_full_of_names()
    }

    /// A commit begins: what is to be said to [`Unsettled::committed`].
    pub(crate) fn begin(&self) -> u64 {
        self.noted.lock().order
    }

    /// A commit of an object, or with 0 of everything, that began there, has brought its changes to disk.
    pub(crate) fn committed(&self, object: ObjectId, began: u64) {
        self.settle(|noted, by, _, order| {
            let is_of_it = match by {
                SettledBy::AnyCommit => true,
                SettledBy::ItsCommit => object.is_none() || noted == object,
                SettledBy::Group => false,
            };
            is_of_it && order <= began
        });
    }

    /// Group `txg` is on disk.
    pub(crate) fn synced(&self, txg: Txg) {
        self.settle(|_, _, noted, _| noted <= txg);
        let mut noted = self.noted.lock();
        if noted.lost_txg.take_if(|lost| *lost <= txg).is_some() {
            self.file.set_complete();
        }
        drop(noted);
        self.on_synced.get().into_iter().for_each(|watch| watch());
    }

    /// The set has another root: nothing of what was noted is to come to disk.
    pub fn clear(&self) {
        self.settle(|_, _, _, _| true);
    }

    /// Forgets those of which this is said, by object or directory, what brings them to disk, group and order.
    fn settle(&self, is_settled: impl Fn(ObjectId, SettledBy, Txg, u64) -> bool) {
        let noted = &mut *self.noted.lock();
        for (_, change) in noted.objects.extract_if(|key, change| is_settled(key.0, key.1, change.txg, change.order)) {
            self.file.take(change.slot);
        }
        let directory = |name: &NameFact| ObjectId::new(name.directory);
        for (_, change) in
            noted.names.extract_if(|key, change| is_settled(directory(&key.0), key.1, change.txg, change.order))
        {
            self.file.take_name(change.slot);
        }
    }

    /// Nothing of what the facts of a process before tell was lost.
    pub fn none_lost(facts: &mut FoundFacts) {
        facts.settle(CHANGED);
    }

    /// What the facts of a process before tell: the objects, each once. Of several that had the same number, the last one is
    /// told.
    pub fn lost(facts: &FoundFacts) -> Vec<LostChanges> {
        let mut lost: HashMap<ObjectId, Option<u64>> = HashMap::new();
        for [object, born] in facts.of(CHANGED) {
            let known = lost.entry(ObjectId::new(object)).or_default();
            *known = (*known).max((born != 0).then_some(born));
        }
        lost.into_iter().map(|(object, born)| LostChanges { object, born }).collect()
    }
}

impl Drop for Unsettled {
    /// Nothing more is to come of the set: what was noted is of no use, and its room is another's.
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn lost(file: &FactFile) -> Vec<(u64, Option<u64>)> {
        let facts = FoundFacts::read(file.as_fd().try_clone_to_owned().unwrap()).unwrap();
        let mut lost: Vec<_> = Unsettled::lost(&facts).iter().map(|lost| (lost.object.get(), lost.born)).collect();
        lost.sort_unstable();
        lost
    }

    fn changed(object: u64, by: SettledBy) -> UnsettledChange {
        UnsettledChange { object: ObjectId::new(object), born: None, by }
    }

    #[test]
    fn a_change_is_noted_until_it_is_on_disk() {
        let file = Arc::new(FactFile::new().unwrap());
        let unsettled = Unsettled::new(file.clone());
        let txg = Txg::new;
        unsettled.note(
            txg(5),
            &[changed(1, SettledBy::AnyCommit), UnsettledChange { born: Some(77), ..changed(8, SettledBy::AnyCommit) }],
        );
        unsettled.note(txg(5), &[changed(8, SettledBy::ItsCommit)]);
        unsettled.note(txg(6), &[changed(9, SettledBy::ItsCommit), changed(10, SettledBy::Group)]);
        assert_eq!(lost(&file), [(1, None), (8, Some(77)), (9, None), (10, None)]);
        // an fsync of another file has the names
        let began = unsettled.begin();
        unsettled.committed(ObjectId::new(9), began);
        assert_eq!(lost(&file), [(8, None), (10, None)]);
        // a write after the fsync began is not in it
        let began = unsettled.begin();
        unsettled.note(txg(6), &[changed(8, SettledBy::ItsCommit)]);
        unsettled.committed(ObjectId::new(8), began);
        assert_eq!(lost(&file), [(8, None), (10, None)]);
        unsettled.synced(txg(5));
        assert_eq!(lost(&file), [(8, None), (10, None)]);
        unsettled.committed(ObjectId::NONE, unsettled.begin());
        assert_eq!(lost(&file), [(10, None)], "what has no name is in no log");
        unsettled.synced(txg(6));
        assert_eq!(lost(&file), []);
    }
}
