//! Snapshots that nobody may destroy now, as they are being sent.

use std::collections::HashMap;
use std::sync::Arc;

use base::Mutex;

/// How often each snapshot is kept, by its object.
#[derive(Default)]
pub(super) struct KeptSnapshots(Arc<Mutex<HashMap<u64, usize>>>);

/// Keeps snapshots from being destroyed, until it is dropped.
pub struct KeepsSnapshots {
    counts: Arc<Mutex<HashMap<u64, usize>>>,
    ids: Vec<u64>,
}

impl KeptSnapshots {
    pub(super) fn keep(&self, ids: &[u64]) -> KeepsSnapshots {
        let mut counts = self.0.lock();
        ids.iter().for_each(|id| *counts.entry(*id).or_default() += 1);
        KeepsSnapshots { counts: self.0.clone(), ids: ids.to_vec() }
    }

    pub(super) fn has(&self, id: u64) -> bool {
        self.0.lock().contains_key(&id)
    }
}

impl Drop for KeepsSnapshots {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        for id in &self.ids {
            match counts.get_mut(id) {
                Some(2..) => *counts.entry(*id).or_default() -= 1,
                _ => drop(counts.remove(id)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_until_the_last_one_ends() {
        let kept = KeptSnapshots::default();
        let (one, two) = (kept.keep(&[7, 8]), kept.keep(&[7]));
        drop(one);
        assert!(kept.has(7) && !kept.has(8));
        drop(two);
        assert!(!kept.has(7));
    }
}
