//! What is put into a log, and where it waits to be written.
//!
//! ```text
//!   push ─▶ names:    1 4 5 ...           in order for all
//!           object 8: 2 3                 needed when object 8 is committed, or everything
//!           object 9: 6                        │
//!                                              ▼
//!   commit of object 8 takes            1 2 3 4 5
//! ```
//!
//! Entries of groups that are on disk are not needed any more. Operations of a group end before those of
//! the next begin, so the oldest entries come first everywhere.

use std::collections::{HashMap, VecDeque};

use base::{RecordPlace, Result};
use dmu::{OpenBlock, Tx};
use format::ids::{ObjectId, Txg};

/// Writes in a row become one entry up to about so many bytes.
const JOINED_MAX: u64 = 1 << 20;

/// One operation. It is told when it happens, within its transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Itx {
    /// When it is needed.
    pub scope: Scope,
    /// What it says.
    pub body: ItxBody,
}

/// Whose commit needs an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Everybody's: names, and whatever must stay in order for all.
    Names,
    /// Only that of this object, and one of everything: writes, truncations, attributes.
    Object(ObjectId),
}

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItxBody {
    /// A record that is complete but for its head.
    Record {
        /// Type of the record, with the bit about case where it applies.
        kind: u64,
        /// What follows the head of 32 bytes.
        bytes: Vec<u8>,
    },
    /// Bytes were written to a file.
    Write {
        /// Number of the object.
        object: ObjectId,
        /// Generation of the object: that of its znode.
        generation: u64,
        /// Offset of the first byte.
        offset: u64,
        /// How many bytes.
        len: u64,
        /// The bytes; without them they are taken from the file when the log is written ([`LoggedContents`]).
        data: Option<Vec<u8>>,
    },
    /// Something that a log cannot say: a commit that needs it waits for its transaction group.
    Unloggable,
}

/// The files that a log is about.
pub trait LoggedContents: Send + Sync {
    /// The bytes of a file from `offset` on, as they are now. False if it has another generation, is gone
    /// or does not reach so far: then nothing needs to be logged of them.
    fn read(&self, object: ObjectId, generation: u64, offset: u64, buf: &mut [u8]) -> Result<bool>;

    /// The block around byte `offset`, if it was changed in the group of `tx`; `None` also where
    /// [`LoggedContents::read`] says false.
    fn open_block(&self, tx: &Tx<'_>, object: ObjectId, generation: u64, offset: u64) -> Result<Option<OpenBlock>>;
}

/// An entry that waits.
#[derive(Debug)]
pub(crate) struct PendingItx {
    /// Counts entries.
    pub(crate) order: u64,
    /// The group that the operation is part of.
    pub(crate) txg: Txg,
    /// Its record in the log in memory, the first one if writes were joined; that of a write that is cut is its last part's.
    pub(crate) kept: Option<RecordPlace>,
    pub(crate) body: ItxBody,
}

/// Entries that wait.
#[derive(Debug, Default)]
pub(crate) struct PendingItxs {
    names: VecDeque<PendingItx>,
    objects: HashMap<ObjectId, Vec<PendingItx>>,
    pushed: u64,
}

impl PendingItxs {
    /// Takes an entry that has that record in the log in memory.
    pub(crate) fn push(&mut self, txg: Txg, entry: Itx, kept: Option<RecordPlace>) {
        self.pushed += 1;
        let item = PendingItx { order: self.pushed, txg, kept, body: entry.body };
        match entry.scope {
            Scope::Names => self.names.push_back(item),
            Scope::Object(id) => {
                let items = self.objects.entry(id).or_default();
                if !items.last_mut().is_some_and(|last| last.goes_on_with(&item)) {
                    items.push(item);
                }
            }
        }
    }

    /// Whether there is anything for a commit of `object`, or with 0 of everything.
    pub(crate) fn has_any(&self, object: ObjectId) -> bool {
        !self.names.is_empty()
            || if object.is_none() { !self.objects.is_empty() } else { self.objects.contains_key(&object) }
    }

    /// Takes what commits of `objects` need, in order; 0 stands for everything.
    pub(crate) fn take(&mut self, objects: &[ObjectId]) -> Vec<PendingItx> {
        let mut items: Vec<PendingItx> = self.names.drain(..).collect();
        if objects.contains(&ObjectId::NONE) {
            items.extend(self.objects.drain().flat_map(|(_, items)| items));
        } else {
            items.extend(objects.iter().filter_map(|id| self.objects.remove(id)).flatten());
        }
        items.sort_unstable_by_key(|item| item.order);
        items
    }

    /// Forgets entries about one object.
    pub(crate) fn forget(&mut self, object: ObjectId) {
        self.objects.remove(&object);
    }

    /// Forgets what is on disk with its group.
    pub(crate) fn synced(&mut self, txg: Txg) {
        while self.names.front().is_some_and(|item| item.txg <= txg) {
            self.names.pop_front();
        }
        self.objects.retain(|_, items| {
            items.retain(|item| item.txg > txg);
            !items.is_empty()
        });
    }
}

impl PendingItx {
    /// Takes up a write that goes on where this one ends, in the same group, if none carries its data.
    fn goes_on_with(&mut self, next: &PendingItx) -> bool {
        let (ItxBody::Write { object, generation, offset, len, data: None }, true) =
            (&mut self.body, self.txg == next.txg)
        else {
            return false;
        };
        match next.body {
            ItxBody::Write { object: o, generation: g, offset: at, len: more, data: None }
                if (o, g, Some(at)) == (*object, *generation, offset.checked_add(*len)) && *len < JOINED_MAX =>
            {
                *len += more;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u64) -> ItxBody {
        ItxBody::Record { kind, bytes: Vec::new() }
    }

    fn write(object: ObjectId, offset: u64, len: u64) -> Itx {
        let body = ItxBody::Write { object, generation: 7, offset, len, data: None };
        Itx { scope: Scope::Object(object), body }
    }

    fn kinds(items: &[PendingItx]) -> Vec<u64> {
        let kind = |item: &PendingItx| match item.body {
            ItxBody::Record { kind, .. } => kind,
            ItxBody::Write { object, .. } => 100 + object.get(),
            ItxBody::Unloggable => 0,
        };
        items.iter().map(kind).collect()
    }

    #[test]
    fn commits_take_what_they_need_in_order() {
        let mut pending = PendingItxs::default();
        assert!(!pending.has_any(ObjectId::NONE));
        for (scope, kind) in [
            (Scope::Names, 1),
            (Scope::Object(ObjectId::new(8)), 2),
            (Scope::Object(ObjectId::new(9)), 3),
            (Scope::Names, 4),
            (Scope::Object(ObjectId::new(8)), 5),
            (Scope::Object(ObjectId::new(10)), 6),
        ] {
            pending.push(Txg::new(20 + kind / 4), Itx { scope, body: record(kind) }, None);
        }
        assert_eq!(kinds(&pending.take(&[ObjectId::new(8)])), [1, 2, 4, 5]);
        assert!(
            !pending.has_any(ObjectId::new(8)) && pending.has_any(ObjectId::new(9)) && pending.has_any(ObjectId::NONE)
        );
        pending.forget(ObjectId::new(10));
        pending.push(Txg::new(22), Itx { scope: Scope::Object(ObjectId::new(9)), body: record(7) }, None);
        pending.synced(Txg::new(20));
        assert_eq!(kinds(&pending.take(&[ObjectId::NONE])), [7]);
        assert!(!pending.has_any(ObjectId::NONE));
    }

    #[test]
    fn writes_in_a_row_are_one() {
        let mut pending = PendingItxs::default();
        for (txg, offset, len) in [(5, 0, 10), (5, 10, 5), (6, 15, 5), (6, 30, 5)] {
            pending.push(Txg::new(txg), write(ObjectId::new(8), offset, len), None);
        }
        let lens: Vec<u64> = pending
            .take(&[ObjectId::new(8)])
            .iter()
            .map(|item| match item.body {
                ItxBody::Write { len, .. } => len,
                _ => 0,
            })
            .collect();
        assert_eq!(lens, [15, 5, 5]);
    }
}
