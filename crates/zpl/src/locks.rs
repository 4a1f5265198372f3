//! Locks of objects, so that operations at work on the same ones take turns.
//!
//! There are fewer locks than objects: an object's number says which one is its. An operation takes all
//! the locks that it needs at once, in the order of the locks, whatever objects they are for; so no two
//! operations wait for each other. The order of everything that is waited for:
//!
//! ```text
//!   transaction ──▶ renames of directories ──▶ objects, all at once ──▶ queue of unlinked files
//!                                                                  └──▶ tables of attributes
//! ```
//!
//! The transaction comes first, as to begin one may take long, and nobody else should wait for that. An operation that
//! only reads takes the lock of one object, shared, calls nothing outside while it has it, and does
//! not begin a transaction then.

use base::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use format::ids::ObjectId;

/// How many: far more than threads at work, so that two of them seldom meet by chance.
const COUNT_SHIFT: u32 = 12;

/// The locks of one file system.
pub(crate) struct ObjectLocks(Vec<RwLock<()>>);

/// Locks that are held until this is dropped.
pub(crate) struct HeldLocks<'a>(#[allow(dead_code)] Vec<RwLockWriteGuard<'a, ()>>);

impl ObjectLocks {
    pub(crate) fn new() -> ObjectLocks {
        ObjectLocks((0..1 << COUNT_SHIFT).map(|_| RwLock::default()).collect())
    }

    /// Keeps others from changing an object.
    pub(crate) fn shared(&self, ino: ObjectId) -> RwLockReadGuard<'_, ()> {
        self.0[index(ino)].read()
    }

    /// Keeps others from changing and reading these objects.
    pub(crate) fn alone(&self, inos: &[ObjectId]) -> HeldLocks<'_> {
        let mut indices: Vec<usize> = inos.iter().map(|&ino| index(ino)).collect();
        indices.sort_unstable();
        indices.dedup();
        HeldLocks(indices.into_iter().map(|at| self.0[at].write()).collect())
    }
}

fn index(ino: ObjectId) -> usize {
    (ino.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - COUNT_SHIFT)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_that_share_a_lock_are_locked_together() {
        let same = (2..).map(ObjectId::new).find(|&ino| index(ino) == index(ObjectId::new(1))).unwrap();
        let locks = ObjectLocks::new();
        let held = locks.alone(&[same, ObjectId::new(1), ObjectId::new(7), ObjectId::new(7)]);
        assert_eq!(held.0.len(), 2);
        assert!(locks.0[index(ObjectId::new(1))].try_read().is_none());
        drop(held);
        let _one = locks.shared(ObjectId::new(1));
        assert!(locks.0[index(same)].try_read().is_some());
    }
}
