//! What a mount has of the process that served it before, and what it leaves to the next: facts in a [`FactFile`].
//!
//! ```text
//!   kind                        numbers             noted by
//!   1 changed, and not on disk  object, generation  zil::Unsettled, of the tree below
//!   2 open to be stored into    node                write_back
//!   3 begun, and not answered   unique, object      repeats
//!   4 place of a snapshot       place, dataset      snapshots
//! ```

use std::sync::Arc;

use base::{Fact, FactFile, FactSlot, FoundFacts};
use zpl::{LostChanges, Unsettled};

/// Kinds of facts: those above but the first, which is `zil`'s.
pub(crate) const STORED: u64 = 2;
pub(crate) const BEGUN: u64 = 3;
pub(crate) const PLACE: u64 = 4;

/// What one mount has of others, and leaves to them.
#[derive(Clone, Default)]
pub(crate) struct Legacy {
    /// Where facts are noted. `None`: nobody is to serve it after this process.
    file: Option<Arc<FactFile>>,
    /// What was noted before. `None`: it is a new mount.
    before: Option<Arc<FoundFacts>>,
    lost: Arc<LostObjects>,
}

/// What was lost with the process before.
#[derive(Default)]
pub(crate) struct LostObjects {
    pub(crate) objects: Vec<LostChanges>,
    /// All objects may have lost something, as there were too many to be noted.
    pub(crate) are_all: bool,
}

impl Legacy {
    /// A mount whose facts are noted there, and that has those of the process before.
    pub(crate) fn new(file: Arc<FactFile>, before: Option<FoundFacts>) -> Legacy {
        let lost =
            |before: &FoundFacts| LostObjects { objects: Unsettled::lost(before), are_all: before.is_incomplete };
        let lost = Arc::new(before.as_ref().map(lost).unwrap_or_default());
        Legacy { file: Some(file), before: before.map(Arc::new), lost }
    }

    /// Where facts are noted.
    pub(crate) fn file(&self) -> Option<&Arc<FactFile>> {
        self.file.as_ref()
    }

    /// Notes a fact.
    pub(crate) fn note(&self, kind: u64, numbers: [u64; 2]) -> Option<NotedFact> {
        self.note_fact(Fact { kind, numbers })
    }

    /// The same, of a fact that another part of the pool has made.
    pub(crate) fn note_fact(&self, fact: Fact) -> Option<NotedFact> {
        let file = self.file.as_ref()?;
        let slot = file.put(fact)?;
        Some(NotedFact { file: file.clone(), slot: Some(slot) })
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
