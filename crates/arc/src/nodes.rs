//! Nodes of objects, which sets keep in memory beside the blocks: they are counted to the cache, and bounded with it.
//!
//! ```text
//!   set ── has a node more ──▶ add        over the bound: the set lets some go that nobody needs
//!   worker ── is over? ──────▶ let_go of all sets, then memory goes back to the system
//! ```
//!
//! Nodes with changes, and those of files that are open, stay: the bound is for the others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use base::Mutex;

use crate::bell::Bell;

/// Bytes that a node without changes takes: itself, its dnode with pointers and bonus buffer, and its place in a table.
pub const NODE_BYTES: u64 = 1 << 10;
/// Bytes of nodes that have gone, after which it is worth giving memory back to the system.
const GONE_BYTES: u64 = 8 << 20;

/// A set that keeps nodes.
pub trait NodeKeeper: Send + Sync {
    /// Lets about half of those go that nobody needs.
    fn let_go(&self);
}

/// The nodes of all sets of a pool.
#[derive(Default)]
pub struct KeptNodes {
    count: AtomicU64,
    bytes_max: AtomicU64,
    /// Nodes that went since memory was given back.
    gone: AtomicU64,
    /// Wakes the worker.
    bell: Arc<Bell>,
    keepers: Mutex<Vec<Weak<dyn NodeKeeper>>>,
}

impl KeptNodes {
    pub(crate) fn new(bell: Arc<Bell>) -> KeptNodes {
        KeptNodes { bell, ..KeptNodes::default() }
    }

    /// From now on the set is told to let nodes go.
    pub fn register(&self, keeper: Weak<dyn NodeKeeper>) {
        let mut keepers = self.keepers.lock();
        keepers.retain(|keeper| keeper.strong_count() > 0);
        keepers.push(keeper);
    }

    /// A set has one more.
    pub fn add(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// A set has so many less.
    pub fn remove(&self, count: usize) {
        self.count.fetch_sub(count as u64, Ordering::Relaxed);
        self.gone.fetch_add(count as u64, Ordering::Relaxed);
        if self.has_gone() {
            self.bell.ring();
        }
    }

    /// Whether sets should let some go.
    pub fn is_over(&self) -> bool {
        self.bytes() > self.bytes_max()
    }

    /// How many of so many nodes may stay.
    pub fn share_of(&self, count: usize) -> usize {
        let (bytes, bytes_max) = (self.bytes(), self.bytes_max());
        match bytes > bytes_max {
            true => (count as u128 * u128::from(bytes_max) / u128::from(bytes)) as usize,
            false => count,
        }
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> u64 {
        self.count.load(Ordering::Relaxed).saturating_mul(NODE_BYTES)
    }

    /// Bytes that those should take at most that nobody needs.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed)
    }

    pub(crate) fn set_bytes_max(&self, bytes: u64) {
        self.bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// Has sets let nodes go as long as there are too many.
    pub(crate) fn shrink(&self) {
        if !self.is_over() {
            return;
        }
        // not under the lock: the last handle to a set may be this one
        let keepers: Vec<_> = self.keepers.lock().iter().filter_map(Weak::upgrade).collect();
        for keeper in keepers {
            keeper.let_go();
            if !self.is_over() {
                return;
            }
        }
    }

    /// Whether so many have gone that memory should be given back to the system.
    pub(crate) fn has_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed).saturating_mul(NODE_BYTES) >= GONE_BYTES
    }

    /// The same, and it is given back now.
    pub(crate) fn take_gone(&self) -> bool {
        let has_gone = self.has_gone();
        if has_gone {
            self.gone.store(0, Ordering::Relaxed);
        }
        has_gone
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A set that has so many nodes that nobody needs.
    struct Set(Arc<KeptNodes>, AtomicU64);

    impl NodeKeeper for Set {
        fn let_go(&self) {
            let half = self.1.load(Ordering::Relaxed) / 2;
            self.1.fetch_sub(half, Ordering::Relaxed);
            self.0.remove(half as usize);
        }
    }

    #[test]
    fn sets_let_nodes_go_until_there_are_few_enough() {
        let nodes = Arc::new(KeptNodes::default());
        nodes.set_bytes_max(1000 * NODE_BYTES);
        let sets: Vec<Arc<Set>> = (0..4).map(|_| Arc::new(Set(nodes.clone(), AtomicU64::new(4000)))).collect();
        for set in &sets {
            let set: Arc<dyn NodeKeeper> = set.clone();
            nodes.register(Arc::downgrade(&set));
        }
        (0..16_000).for_each(|_| nodes.add());
        nodes.shrink();
        assert_eq!(nodes.bytes(), 8000 * NODE_BYTES, "each one is told once");
        assert_eq!(nodes.share_of(100), 12);
        (0..3).for_each(|_| nodes.shrink());
        assert!(!nodes.is_over() && nodes.bytes() > 500 * NODE_BYTES);
        assert_eq!(nodes.share_of(100), 100);
        assert!(nodes.take_gone() && !nodes.take_gone());
        drop(sets);
        nodes.shrink();
    }
}
