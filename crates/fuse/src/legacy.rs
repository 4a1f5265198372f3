//! What a mount has of the process that served it before, and what it leaves to the next: facts in a [`FactFile`].
//!
//! ```text
//!   kind                        numbers             noted by
//!   1 changed, and not on disk  object, generation  zil::Unsettled, of the tree below
//!   2 open to be stored into    node                write_back
//!   3 begun, and not answered   unique, object      repeats
//!   4 place of a snapshot       place, dataset      snapshots
//!   5 lost with its names       object, generation  lookup_counts, until the kernel knows another file of that number
//!     name that was given       directory, name     zil::Unsettled, of the tree below
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use base::{Fact, FactFile, FactSlot, FoundFacts, NameFact, NameSlots};
use zpl::{LostChanges, ObjectId, Unsettled};

/// Kinds of facts: those above but the first, which `zil` makes.
pub(crate) const STORED: u64 = 2;
pub(crate) const BEGUN: u64 = 3;
pub(crate) const PLACE: u64 = 4;
const GONE: u64 = 5;

/// What one mount has of others, and leaves to them.
#[derive(Clone, Default)]
pub(crate) struct Legacy {
    /// Where facts are noted. `None`: nobody is to serve it after this process.
    file: Option<Arc<FactFile>>,
    /// The changes of its tree that are noted there.
    unsettled: Option<Arc<Unsettled>>,
    /// What was noted before. `None`: it is a new mount.
    before: Option<Arc<FoundFacts>>,
    lost: Arc<LostObjects>,
}

/// What was lost with the process before.
#[derive(Default)]
pub struct LostObjects {
    /// Those that are there: the next fsync of each fails.
    pub changed: Vec<ObjectId>,
    /// Those that are not, with their generation: made in the time that was lost.
    pub gone: HashMap<ObjectId, u64>,
    /// Names that were given, in the time that was lost, to objects that are there: the kernel may have them yet.
    pub names: Vec<NameFact>,
    /// All objects may have lost something, as there were too many to be noted.
    pub are_all: bool,
}

impl LostObjects {
    /// Of what was noted; `generation` is that of the object that has a number now.
    fn of(before: &FoundFacts, generation: impl Fn(ObjectId) -> Option<u64>) -> LostObjects {
        let names = before.names.clone();
        let mut lost = LostObjects { are_all: before.is_incomplete, names, ..LostObjects::default() };
        let earlier = before.of(GONE).map(|[object, born]| (ObjectId::new(object), Some(born)));
        let noted = Unsettled::lost(before).into_iter().map(|LostChanges { object, born }| (object, born));
        for (object, born) in earlier.chain(noted) {
            match born.filter(|&born| generation(object) != Some(born)) {
                Some(born) => drop(lost.gone.insert(object, born)),
                None => lost.changed.push(object),
            }
        }
        lost
    }

    /// Whether nothing was lost.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.gone.is_empty() && self.names.is_empty() && !self.are_all
    }

    /// All that are known.
    pub(crate) fn objects(&self) -> impl Iterator<Item = ObjectId> {
        self.changed.iter().chain(self.gone.keys()).copied()
    }
}

impl Legacy {
    /// A mount whose facts are noted there, and that has those of the process before; `generation` is that of the object that
    /// has a number now.
    pub(crate) fn new(
        file: Arc<FactFile>,
        unsettled: Option<Arc<Unsettled>>,
        before: Option<FoundFacts>,
        generation: impl Fn(ObjectId) -> Option<u64>,
    ) -> Legacy {
        let lost = Arc::new(before.as_ref().map(|before| LostObjects::of(before, generation)).unwrap_or_default());
        Legacy { file: Some(file), unsettled, before: before.map(Arc::new), lost }
    }

    /// Where facts are noted.
    pub(crate) fn file(&self) -> Option<&Arc<FactFile>> {
        self.file.as_ref()
    }

    /// The changes of its tree that are noted there; they tell of groups, too.
    pub(crate) fn unsettled(&self) -> Option<&Unsettled> {
        self.unsettled.as_deref()
    }

    /// Notes a fact.
    pub(crate) fn note(&self, kind: u64, numbers: [u64; 2]) -> Option<NotedFact> {
        self.note_fact(Fact { kind, numbers })
    }

    /// Notes that an object lost changes.
    pub(crate) fn note_changed(&self, object: ObjectId) -> Option<NotedFact> {
        self.note_fact(LostChanges { object, born: None }.fact())
    }

    /// Notes that an object is not there any more which the kernel may know.
    pub(crate) fn note_gone(&self, object: ObjectId, generation: u64) -> Option<NotedFact> {
        self.note(GONE, [object.get(), generation])
    }

    fn note_fact(&self, fact: Fact) -> Option<NotedFact> {
        let file = self.file.as_ref()?;
        let slot = file.put(fact)?;
        Some(NotedFact { file: file.clone(), slot: Some(slot) })
    }

    /// Notes the names that were lost, for the process after this one.
    pub(crate) fn note_lost_names(&self) -> Option<NotedNames> {
        let file = self.file.clone()?;
        let slots = self.lost.names.iter().filter_map(|name| file.put_name(name)).collect();
        Some(NotedNames { file, slots })
    }

    /// Whether another process served this mount before.
    pub(crate) fn is_inherited(&self) -> bool {
        self.before.is_some()
    }

    /// What was lost with that process.
    pub(crate) fn lost(&self) -> Arc<LostObjects> {
        self.lost.clone()
    }

    /// The numbers of all its facts of a kind.
    pub(crate) fn inherited(&self, kind: u64) -> impl Iterator<Item = [u64; 2]> {
        self.before.iter().flat_map(move |facts| facts.of(kind))
    }
}

/// A fact that holds until this is dropped.
pub(crate) struct NotedFact {
    file: Arc<FactFile>,
    slot: Option<FactSlot>,
}

impl NotedFact {
    /// It holds for as long as the mount does.
    pub(crate) fn stays(mut self) {
        self.slot = None;
    }
}

impl Drop for NotedFact {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.file.take(slot);
        }
    }
}

/// Names that are noted until this is dropped.
pub(crate) struct NotedNames {
    file: Arc<FactFile>,
    slots: Vec<NameSlots>,
}

impl Drop for NotedNames {
    fn drop(&mut self) {
        self.slots.drain(..).for_each(|slots| self.file.take_name(slots));
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn what_is_gone_is_told_until_its_number_is_anothers() {
        let [changed, gone, logged] = [7, 8, 9].map(ObjectId::new);
        // generations, as the process after the death finds them
        let there =
            |object: ObjectId| [(7, 1), (9, 5)].into_iter().find(|known| known.0 == object.get()).map(|known| known.1);
        let next = |file: &Arc<FactFile>, there: &dyn Fn(ObjectId) -> Option<u64>| {
            let before = FoundFacts::read(file.as_fd().try_clone_to_owned().unwrap()).unwrap();
            Legacy::new(Arc::new(FactFile::new().unwrap()), None, Some(before), there)
        };
        let file = Arc::new(FactFile::new().unwrap());
        let first = Legacy::new(file.clone(), None, None, |_| None);
        assert!(first.lost().is_empty());
        for (object, born) in [(changed, None), (gone, Some(3)), (gone, Some(4)), (logged, Some(5))] {
            first.note_fact(LostChanges { object, born }.fact()).unwrap().stays();
        }
        let second = next(&file, &there);
        let lost = second.lost();
        let mut found = lost.changed.clone();
        found.sort_unstable();
        assert_eq!((found, lost.gone.clone()), (vec![changed, logged], [(gone, 4)].into()));
        // nobody was told: neither of the change nor, with another file of that number, that the first one is gone
        let told = second.note_changed(changed);
        let noted = second.note_gone(gone, 4);
        let is_another = |object: ObjectId| if object == gone { Some(6) } else { there(object) };
        let third = next(second.file().unwrap(), &is_another);
        assert_eq!((&third.lost().changed, &third.lost().gone), (&vec![changed], &[(gone, 4)].into()));
        drop((told, noted));
        assert!(next(second.file().unwrap(), &is_another).lost().is_empty());
    }
}
