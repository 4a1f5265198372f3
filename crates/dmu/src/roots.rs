//! Roots of object sets whose blocks others take: none goes while one takes some.
//!
//! ```text
//!   taking     hold ── is the root there? ── begin in group n ── look at pointers, put them ── end ── let go
//!   changing   waits for what is held ── a group, n or later, changes the root ── it is on disk, and seen ── end
//!                                 └─ what is to be held waits until then
//! ```
//!
//! So whatever a root leads to while it is held is freed in the group that takes it, or in a later one.

use std::sync::Arc;
use std::time::Duration;

use base::{Condvar, Mutex, Result};

use crate::Objset;

/// How often what waits looks whether it may go on waiting.
const LOOK_TIME: Duration = Duration::from_millis(100);

/// Keeps roots that are held and roots that change apart.
#[derive(Default)]
pub struct Roots {
    uses: Mutex<RootUses>,
    moved: Condvar,
}

#[derive(Default)]
struct RootUses {
    held: usize,
    changing: usize,
}

/// No root goes, until it is dropped.
pub struct HeldRoots(Arc<Roots>);

/// Roots may go, until it is dropped: nobody holds any.
pub struct ChangingRoots(Arc<Roots>);

/// Tells which roots there are.
pub trait RootHolder: Send + Sync {
    /// Whether the pool counts pointers to a block: only then may there be several.
    fn counts_clones(&self) -> bool;
    /// Holds the root of an object set of the pool, which may be another dataset's; `None` if it is not there any more.
    /// Not from within a transaction. Errors: `Suspended`.
    fn hold_root(&self, of: &Objset) -> Result<Option<HeldRoots>>;
}

impl Roots {
    /// Holds all roots that there are, as soon as none changes. Errors: those of `may_wait`, which is asked now and then.
    pub fn hold(self: &Arc<Self>, may_wait: impl Fn() -> Result<()>) -> Result<HeldRoots> {
        let mut uses = self.uses.lock();
        while uses.changing > 0 {
            may_wait()?;
            uses = self.moved.wait_timeout(uses, LOOK_TIME);
        }
        uses.held += 1;
        Ok(HeldRoots(self.clone()))
    }

    /// Lets roots change, as soon as none is held. What holds one ends without waiting for this.
    pub fn change(self: &Arc<Self>) -> ChangingRoots {
        let mut uses = self.uses.lock();
        uses.changing += 1;
        drop(self.moved.wait_while(uses, |uses| uses.held > 0));
        ChangingRoots(self.clone())
    }
}

impl Drop for HeldRoots {
    fn drop(&mut self) {
        self.0.uses.lock().held -= 1;
        self.0.moved.notify_all();
    }
}

impl Drop for ChangingRoots {
    fn drop(&mut self) {
        self.0.uses.lock().changing -= 1;
        self.0.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use base::{Error, Kind};

    use super::*;

    #[test]
    fn what_is_held_does_not_change() {
        let (roots, ends, changing) = (Arc::<Roots>::default(), AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !ends.load(Ordering::SeqCst) {
                        let _held = roots.hold(|| Ok(())).unwrap();
                        assert!(!changing.load(Ordering::SeqCst));
                        std::thread::yield_now();
                        assert!(!changing.load(Ordering::SeqCst));
                    }
                });
            }
            for _ in 0..200 {
                let _change = roots.change();
                let _another = roots.change();
                changing.store(true, Ordering::SeqCst);
                std::thread::yield_now();
                changing.store(false, Ordering::SeqCst);
            }
            ends.store(true, Ordering::SeqCst);
        });
    }

    #[test]
    fn nobody_waits_for_ever() {
        let roots = Arc::<Roots>::default();
        let change = roots.change();
        let refused = roots.hold(|| Err(Error::new(Kind::Suspended, "no"))).err();
        assert_eq!(refused.map(|error| error.kind()), Some(Kind::Suspended));
        drop(change);
        drop(roots.hold(|| Err(Error::new(Kind::Suspended, "no"))).unwrap());
    }
}
