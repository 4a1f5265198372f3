//! Deduplicated blocks that a group releases: their entries are changed when all else of the group is known.

use std::collections::BTreeMap;

use base::Mutex;
use format::blkptr::BlkPtr;
use format::ddt::Key;
use zio::RefTable;

/// Entries that are changed in one group: each may dirty a block of its table.
const ENTRIES_MAX: usize = 20_000;
/// Pointers that one group takes at least off the list of frees that were put off.
const PUT_OFF_MIN: u64 = 4096;

/// What the open group releases.
#[derive(Default)]
pub(super) struct DedupFrees(Mutex<Releases>);

#[derive(Default)]
pub(super) struct Releases {
    /// By number of the checksum, and key: pointers, and how many of each.
    pub(super) by_entry: BTreeMap<(u8, Key), Vec<(BlkPtr, u64)>>,
    /// Those that are more than a group takes.
    pub(super) put_off: Vec<BlkPtr>,
}

impl RefTable for DedupFrees {
    fn release(&self, bp: &BlkPtr) -> bool {
        if !bp.is_dedup() {
            return false;
        }
        let releases = &mut *self.0.lock();
        let key = (bp.checksum_kind(), Key::of(bp));
        if releases.by_entry.len() >= ENTRIES_MAX && !releases.by_entry.contains_key(&key) {
            releases.put_off.push(*bp);
            return true;
        }
        let of_entry = releases.by_entry.entry(key).or_default();
        let is_same = |known: &BlkPtr| known.dvas()[0] == bp.dvas()[0] && known.physical_birth() == bp.physical_birth();
        match of_entry.iter_mut().find(|(known, _)| is_same(known)) {
            Some((_, count)) => *count += 1,
            None => of_entry.push((*bp, 1)),
        }
        true
    }
}

impl DedupFrees {
    /// How many pointers that were put off the group has room for.
    pub(super) fn room(&self) -> u64 {
        (ENTRIES_MAX.saturating_sub(self.0.lock().by_entry.len()) as u64).max(PUT_OFF_MIN)
    }

    /// Whether nothing was released since the last time.
    pub(super) fn is_empty(&self) -> bool {
        let releases = self.0.lock();
        releases.by_entry.is_empty() && releases.put_off.is_empty()
    }

    /// What was released since the last time.
    pub(super) fn take(&self) -> Releases {
        std::mem::take(&mut *self.0.lock())
    }
}
