//! A small map that forgets what was not used lately.
//!
//! Two generations: new and used entries are in the young one; when that is full it becomes the old
//! one, and what was old is dropped. An entry therefore survives at least `capacity` insertions
//! after its last use, at most twice as many are held, and no operation is more than a hash lookup.

use std::collections::HashMap;

use base::Mutex;

/// Shared by all threads of a mount.
pub(crate) struct MountCache<K, V> {
    generations: Mutex<Generations<K, V>>,
    capacity: usize,
}

struct Generations<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: std::hash::Hash + Eq + Copy, V: Clone> MountCache<K, V> {
    /// Keeps at least the `capacity` entries used last.
    pub(crate) fn new(capacity: usize) -> MountCache<K, V> {
        let generations = Generations { young: HashMap::new(), old: HashMap::new() };
        MountCache { generations: Mutex::new(generations), capacity }
    }

    /// The value of `key`, which `make` makes if there is none. No lock is held meanwhile, so two
    /// threads may both make it; both then get the same one.
    pub(crate) fn get_or_make<E>(&self, key: K, make: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        if let Some(value) = self.with(|g| g.get(key, self.capacity)) {
            return Ok(value);
        }
        let made = make()?;
        Ok(self.with(|g| match g.get(key, self.capacity) {
            Some(value) => value,
            None => {
                g.put(key, made.clone(), self.capacity);
                made
            }
        }))
    }

    /// The value of `key`, if it is there.
    pub(crate) fn get(&self, key: K) -> Option<V> {
        self.with(|g| g.get(key, self.capacity))
    }

    /// Drops the value of `key`.
    pub(crate) fn remove(&self, key: K) {
        self.with(|g| {
            g.young.remove(&key);
            g.old.remove(&key);
        });
    }

    /// Drops all.
    pub(crate) fn clear(&self) {
        self.with(|g| {
            g.young.clear();
            g.old.clear();
        });
    }

    fn with<R>(&self, f: impl FnOnce(&mut Generations<K, V>) -> R) -> R {
        f(&mut self.generations.lock())
    }
}

impl<K: std::hash::Hash + Eq + Copy, V: Clone> Generations<K, V> {
    fn get(&mut self, key: K, capacity: usize) -> Option<V> {
        if let Some(value) = self.young.get(&key) {
            return Some(value.clone());
        }
        let value = self.old.remove(&key)?;
        self.put(key, value.clone(), capacity);
        Some(value)
    }

    fn put(&mut self, key: K, value: V, capacity: usize) {
        if self.young.len() >= capacity {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(cache: &MountCache<u32, u32>, key: u32) -> bool {
        let mut made = false;
        let value = cache.get_or_make(key, || {
            made = true;
            Ok::<_, ()>(key * 10)
        });
        assert_eq!(value, Ok(key * 10));
        made
    }

    #[test]
    fn keeps_what_is_used() {
        let cache = MountCache::new(4);
        assert!(made(&cache, 0));
        for key in 1..100 {
            assert!(made(&cache, key));
            assert!(!made(&cache, 0), "0 is used all the time");
        }
        assert!(made(&cache, 1), "1 was used long ago");
        let held = cache.with(|g| g.young.len() + g.old.len());
        assert!(held <= 8, "{held}");
    }

    #[test]
    fn drops_what_it_shall() {
        let cache = MountCache::new(2);
        for key in 0..3 {
            assert!(made(&cache, key));
        }
        assert_eq!((cache.get(0), cache.get(2), cache.get(7)), (Some(0), Some(20), None));
        cache.remove(0);
        cache.remove(2);
        assert_eq!((cache.get(0), cache.get(2)), (None, None));
        assert!(made(&cache, 2) && made(&cache, 0));
    }

    #[test]
    fn keeps_no_errors() {
        let cache = MountCache::<u32, u32>::new(4);
        assert_eq!(cache.get_or_make(1, || Err("no")), Err("no"));
        assert!(made(&cache, 1));
    }
}
