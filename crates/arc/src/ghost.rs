//! Ghosts: what a list has lately let go of, remembered by hash and size, without contents.
//!
//! A block that is asked for again soon after it left shows that its list is too short; see `policy`.
//! A hash of 64 bits stands for the key: two keys that share one cost a wrong guess, never wrong contents.
//!
//! Invariants: an entry of `queue` whose number is that of its hash in `known` is the only one of that hash;
//! all others are leftovers, and never the majority. The sizes in `known` sum to `bytes`.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

/// The ghosts of one list, oldest first.
#[derive(Default)]
pub(crate) struct Ghosts {
    known: FxHashMap<u64, Ghost>,
    queue: VecDeque<(u64, u64)>,
    next: u64,
    bytes: u64,
}

#[derive(Clone, Copy)]
struct Ghost {
    number: u64,
    bytes: u64,
}

impl Ghosts {
    /// Bytes that these blocks took when they were held.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of memory that the list itself takes, about.
    pub(crate) fn overhead(&self) -> u64 {
        (self.known.capacity() * (size_of::<(u64, Ghost)>() + 1) + self.queue.capacity() * size_of::<(u64, u64)>())
            as u64
    }

    /// Remembers a block as the youngest.
    pub(crate) fn push(&mut self, hash: u64, bytes: u64) {
        self.take(hash);
        self.known.insert(hash, Ghost { number: self.next, bytes });
        self.queue.push_back((hash, self.next));
        self.next += 1;
        self.bytes += bytes;
    }

    /// Forgets a block; its bytes, if it was known.
    pub(crate) fn take(&mut self, hash: u64) -> Option<u64> {
        let ghost = self.known.remove(&hash)?;
        self.bytes -= ghost.bytes;
        if self.queue.len() > 2 * self.known.len() + 16 {
            self.queue.retain(|(hash, number)| self.known.get(hash).is_some_and(|ghost| ghost.number == *number));
        }
        Some(ghost.bytes)
    }

    /// Forgets those whose hashes `keeps` does not want.
    pub(crate) fn keep_only(&mut self, keeps: impl Fn(u64) -> bool) {
        self.known.retain(|hash, _| keeps(*hash));
        self.queue.retain(|(hash, number)| self.known.get(hash).is_some_and(|ghost| ghost.number == *number));
        self.bytes = self.known.values().map(|ghost| ghost.bytes).sum();
    }

    /// Forgets the oldest until no more than `bytes_max` are left.
    pub(crate) fn trim(&mut self, bytes_max: u64) {
        while self.bytes > bytes_max {
            let Some((hash, number)) = self.queue.pop_front() else { return };
            if self.known.get(&hash).is_some_and(|ghost| ghost.number == number)
                && let Some(ghost) = self.known.remove(&hash)
            {
                self.bytes -= ghost.bytes;
            }
        }
    }
}

#[cfg(test)]
impl Ghosts {
    pub(crate) fn contains(&self, hash: u64) -> bool {
        self.known.contains_key(&hash)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn as_a_plain_list(ops in prop::collection::vec((0u8..3, 0u64..20, 1u64..100), 0..300)) {
            let mut ghosts = Ghosts::default();
            let mut model: Vec<(u64, u64)> = Vec::new();
            for (op, hash, bytes) in ops {
                let at = model.iter().position(|(other, _)| *other == hash);
                match op {
                    0 => {
                        at.map(|at| model.remove(at));
                        model.push((hash, bytes));
                        ghosts.push(hash, bytes);
                    }
                    1 => prop_assert_eq!(ghosts.take(hash), at.map(|at| model.remove(at).1)),
                    _ => {
                        while model.iter().map(|(_, bytes)| bytes).sum::<u64>() > bytes * 5 {
                            model.remove(0);
                        }
                        ghosts.trim(bytes * 5);
                    }
                }
                prop_assert_eq!(ghosts.bytes(), model.iter().map(|(_, bytes)| bytes).sum::<u64>());
                prop_assert_eq!(ghosts.known.len(), model.len());
                prop_assert!(model.iter().all(|(hash, _)| ghosts.contains(*hash)));
                prop_assert!(ghosts.queue.len() <= 2 * ghosts.known.len() + 18);
            }
        }
    }
}
