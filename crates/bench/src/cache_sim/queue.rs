//! A queue of keys with sizes, from which any key can be taken: what the textbook policies are made of.

use std::collections::{BTreeMap, HashMap};

/// Keys, oldest first.
#[derive(Default)]
pub(crate) struct KeyQueue {
    turns: HashMap<u64, (u64, u64)>,
    order: BTreeMap<u64, u64>,
    next: u64,
    bytes: u64,
}

impl KeyQueue {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn contains(&self, key: u64) -> bool {
        self.turns.contains_key(&key)
    }

    /// Adds a key that is not there as the youngest.
    pub(crate) fn push(&mut self, key: u64, bytes: u64) {
        self.turns.insert(key, (self.next, bytes));
        self.order.insert(self.next, key);
        self.next += 1;
        self.bytes += bytes;
    }

    /// Takes a key away; its size.
    pub(crate) fn take(&mut self, key: u64) -> Option<u64> {
        let (turn, bytes) = self.turns.remove(&key)?;
        self.order.remove(&turn);
        self.bytes -= bytes;
        Some(bytes)
    }

    /// Takes the oldest key away; it and its size.
    pub(crate) fn pop(&mut self) -> Option<(u64, u64)> {
        let (_, &key) = self.order.first_key_value()?;
        self.take(key).map(|bytes| (key, bytes))
    }

    /// Takes the oldest away until there are no more than so many bytes.
    pub(crate) fn trim(&mut self, bytes_max: u64) {
        while self.bytes > bytes_max && self.pop().is_some() {}
    }
}
