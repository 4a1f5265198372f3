//! Waits for locks, counted by lock and place while somebody asks for them.
//!
//! ```text
//!   Mutex::lock, RwLock::read, write ─▶ free: taken, nothing is counted
//!                                    └▶ not free: [`waited`] ─▶ nobody asks: waits
//!                                                            └▶ waits, and adds the time to its row
//! ```
//!
//! A lock that is free costs the same instructions as without this. Counting ends by itself when nobody has asked for
//! [`ASK_AGAIN_NS`].

#![allow(clippy::disallowed_types, reason = "locks of base would count themselves")]

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// Nanoseconds for which waits are counted after somebody has asked for them.
pub const ASK_AGAIN_NS: u64 = 10_000_000_000;

/// Until when waits are counted, in nanoseconds since the first question; 0 if they are not.
static UNTIL_NS: AtomicU64 = AtomicU64::new(0);
static ROWS: Mutex<BTreeMap<WaitPlace, WaitSums>> = Mutex::new(BTreeMap::new());

/// Which lock, where, and how it was taken.
type WaitPlace = (&'static str, u32, &'static str, &'static str);

/// Number, sum and longest of some times.
type WaitSums = [u64; 3];

/// Waits for a lock at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockWaits {
    /// The type that the lock guards.
    pub guarded: &'static str,
    /// How it is taken: `lock`, `read` or `write`.
    pub how: &'static str,
    /// The source file and line where it is taken.
    pub file: &'static str,
    #[allow(missing_docs)] // see above
    pub line: u32,
    /// How often somebody waited there.
    pub count: u64,
    /// Nanoseconds of all waits, and of the longest.
    pub total_ns: u64,
    #[allow(missing_docs)] // see above
    pub longest_ns: u64,
}

/// Waits since counting began; asking for them keeps counting on for [`ASK_AGAIN_NS`].
pub fn lock_waits() -> Vec<LockWaits> {
    let now_ns = since_first_ns();
    let was_off = UNTIL_NS.swap(now_ns + ASK_AGAIN_NS, Ordering::Relaxed) < now_ns;
    let mut rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
    if was_off {
        rows.clear();
    }
    let row = |(&(file, line, how, guarded), &[count, total_ns, longest_ns]): (&WaitPlace, &WaitSums)| LockWaits {
        guarded,
        how,
        file,
        line,
        count,
        total_ns,
        longest_ns,
    };
    rows.iter().map(row).collect()
}

/// Whether somebody has asked for what is counted, and it did not end since.
#[inline]
pub(crate) fn is_asked_for() -> bool {
    UNTIL_NS.load(Ordering::Relaxed) != 0
}

/// Takes a lock that is not free.
#[cold]
#[inline(never)]
pub(crate) fn waited<G>(
    how: &'static str,
    guarded: &'static str,
    place: &'static Location<'static>,
    take: impl FnOnce() -> G,
) -> G {
    let until_ns = UNTIL_NS.load(Ordering::Relaxed);
    if until_ns == 0 {
        return take();
    }
    let began = Instant::now();
    let guard = take();
    let waited_ns = began.elapsed().as_nanos() as u64;
    if since_first_ns() > until_ns {
        UNTIL_NS.store(0, Ordering::Relaxed);
        return guard;
    }
    let mut rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
    let [count, total_ns, longest_ns] = rows.entry((place.file(), place.line(), how, guarded)).or_default();
    *count += 1;
    *total_ns += waited_ns;
    *longest_ns = waited_ns.max(*longest_ns);
    guard
}

/// Nanoseconds since this was asked for first, and one more.
fn since_first_ns() -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    struct Guarded(u32);

    fn rows() -> Vec<LockWaits> {
        lock_waits().into_iter().filter(|row| row.guarded.ends_with("Guarded")).collect()
    }

    #[test]
    fn waits_are_counted_by_place_while_somebody_asks() {
        let lock = crate::RwLock::new(Guarded(0));
        let wait = |write: bool| {
            std::thread::scope(|scope| {
                let held = lock.write();
                let waiter = scope.spawn(|| if write { lock.write().0 += 1 } else { assert!(lock.read().0 < 9) });
                std::thread::sleep(Duration::from_millis(20));
                drop(held);
                waiter.join().unwrap();
            });
        };
        wait(true);
        assert_eq!(rows(), []);
        (0..2).for_each(|_| wait(true));
        wait(false);
        let mut found = rows();
        found.sort_by_key(|row| row.how);
        let place = |row: &LockWaits| (row.how, row.count, row.file);
        assert_eq!(found.iter().map(place).collect::<Vec<_>>(), [("read", 1, file!()), ("write", 2, file!())]);
        assert!(found.iter().all(|row| row.longest_ns > 1_000_000 && row.total_ns >= row.longest_ns), "{found:?}");
        // one that is free is not waited for
        lock.write().0 += 1;
        let mut after = rows();
        after.sort_by_key(|row| row.how);
        assert_eq!(after, found);
    }
}
