//! How many entries of a table of references one group changes because pointers are gone.
//!
//! Each may dirty a block of its table, of which the group writes three copies; what is more is put off to later groups.

use std::sync::atomic::{AtomicU64, Ordering};

/// Entries, however much room there is.
const ENTRIES_MAX: u64 = 20_000;
/// Entries that change with each group, so that it comes to an end.
const ENTRIES_MIN: u64 = 64;
/// Bytes on disk that a changed entry may take: three copies of its block, and of what leads there.
const ENTRY_BYTES: u64 = 16 << 10;

/// The limit of a kind of table.
pub(super) struct EntryLimit(AtomicU64);

impl Default for EntryLimit {
    fn default() -> EntryLimit {
        EntryLimit(AtomicU64::new(ENTRIES_MAX))
    }
}

impl EntryLimit {
    pub(super) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed) as usize
    }

    /// What entries take is to find room in so many bytes.
    pub(super) fn fit(&self, room_bytes: u64) {
        self.0.store((room_bytes / ENTRY_BYTES).clamp(ENTRIES_MIN, ENTRIES_MAX), Ordering::Relaxed);
    }
}
