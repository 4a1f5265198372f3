//! Snapshots that nobody may destroy now, as they are being sent, and redaction lists that are being made.

use std::collections::HashMap;
use std::sync::Arc;

use base::Mutex;
use format::ids::{DatasetId, ObjectId};

/// How often each snapshot or list is kept, by its object in the MOS.
#[derive(Default)]
pub(super) struct KeptSnapshots(Arc<Mutex<HashMap<ObjectId, usize>>>);

/// Keeps snapshots from being destroyed, until it is dropped.
pub struct KeepsSnapshots {
    counts: Arc<Mutex<HashMap<ObjectId, usize>>>,
    objects: Vec<ObjectId>,
}

impl KeptSnapshots {
    pub(super) fn keep(&self, ids: &[DatasetId], lists: &[ObjectId]) -> KeepsSnapshots {
        let objects: Vec<ObjectId> = ids.iter().map(|id| id.object()).chain(lists.iter().copied()).collect();
        let mut counts = self.0.lock();
        objects.iter().for_each(|object| *counts.entry(*object).or_default() += 1);
        KeepsSnapshots { counts: self.0.clone(), objects }
    }

    pub(super) fn has(&self, id: DatasetId) -> bool {
        self.has_list(id.object())
    }

    pub(super) fn has_list(&self, list: ObjectId) -> bool {
        self.0.lock().contains_key(&list)
    }
}

impl Drop for KeepsSnapshots {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        for object in &self.objects {
            match counts.get_mut(object) {
                Some(2..) => *counts.entry(*object).or_default() -= 1,
                _ => drop(counts.remove(object)),
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
        let (one, two) =
            (kept.keep(&[DatasetId::new(7), DatasetId::new(8)], &[]), kept.keep(&[DatasetId::new(7)], &[]));
        drop(one);
        assert!(kept.has(DatasetId::new(7)) && !kept.has(DatasetId::new(8)));
        drop(two);
        assert!(!kept.has(DatasetId::new(7)));
    }
}
