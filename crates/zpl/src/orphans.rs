//! The queue of files without a name, on disk and in memory: see `unlinked`.
//!
//! It is a table: the object's number in hexadecimal digits, and the number itself.

use std::collections::HashSet;
use std::sync::Arc;

use base::{Kind, Mutex, Result};
use dmu::zap::{Editor, Zap, ZapValue};
use dmu::{Objset, Tx};
use format::ids::ObjectId;

use crate::counters::Counters;

/// The queue of one file system.
pub(crate) struct OrphanQueue {
    objset: Arc<Objset>,
    /// The table's object.
    table: ObjectId,
    /// Held while the table is changed.
    changing: Mutex<()>,
    /// Files that were made without a name, and never had one.
    unnamed: Mutex<HashSet<ObjectId>>,
    counters: Arc<Counters>,
}

impl OrphanQueue {
    /// The queue in object `table`.
    pub(crate) fn new(objset: Arc<Objset>, table: ObjectId, counters: Arc<Counters>) -> OrphanQueue {
        OrphanQueue { objset, table, changing: Mutex::default(), unnamed: Mutex::default(), counters }
    }

    /// Puts an object into it.
    pub(crate) fn add(&self, tx: &Tx<'_>, ino: ObjectId) -> Result<()> {
        let _held = self.changing.lock();
        let table = self.objset.object(self.table)?;
        Editor::new(&table.changing(tx)).set(key(ino).as_bytes(), &ZapValue::one(ino.get()))?;
        self.counters.queued();
        Ok(())
    }

    /// Takes an object out of it, if it is in it.
    pub(crate) fn remove(&self, tx: &Tx<'_>, ino: ObjectId) -> Result<()> {
        let _held = self.changing.lock();
        let table = self.objset.object(self.table)?;
        match Editor::new(&table.changing(tx)).remove(key(ino).as_bytes()) {
            Err(error) if error.kind() == Kind::NotFound => Ok(()),
            removed => removed.map(|_| self.counters.unqueued()),
        }
    }

    /// All objects in it.
    pub(crate) fn all(&self) -> Result<Vec<ObjectId>> {
        let table = Zap::open(self.objset.object(self.table)?)?;
        Ok(table.entries()?.iter().filter_map(|entry| entry.value.first_object()).collect())
    }

    /// Whether an object is in it.
    pub(crate) fn contains(&self, ino: ObjectId) -> Result<bool> {
        let table = Zap::open(self.objset.object(self.table)?)?;
        Ok(table.lookup(key(ino).as_bytes())?.is_some())
    }

    /// A file was made without a name.
    pub(crate) fn add_unnamed(&self, ino: ObjectId) {
        self.unnamed.lock().insert(ino);
    }

    /// Whether a file never had a name.
    pub(crate) fn is_unnamed(&self, ino: ObjectId) -> bool {
        self.unnamed.lock().contains(&ino)
    }

    /// A file that never had a name has one now, or is gone.
    pub(crate) fn remove_unnamed(&self, ino: ObjectId) {
        self.unnamed.lock().remove(&ino);
    }
}

pub(crate) fn key(ino: ObjectId) -> String {
    format!("{ino:x}")
}
