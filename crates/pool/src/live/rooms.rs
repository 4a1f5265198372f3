//! What is known of the room that heads have, as of the latest group on disk.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};

use base::Mutex;
use dmu::{Growth, Needs};
use dsl::write::RoomLeft;
use format::ids::{DatasetId, Txg};
use zio::alloc::{Allocator, Class};

/// What was known of a head's room, and as of which group.
#[derive(Clone, Copy)]
pub(super) struct KnownRoom {
    pub(super) txg: Txg,
    pub(super) room: RoomLeft,
    /// How many bytes on disk changes may come to take.
    pub(super) growth: Growth,
    pub(super) free: FreeSpace,
    /// What groups may need of that.
    pub(super) needs: Needs,
}

/// What was free on the devices of the normal class after a group.
#[derive(Clone, Copy)]
pub(super) struct FreeSpace {
    /// Bytes that may be allocated.
    pub(super) room_bytes: u64,
    /// Bytes that may be some groups later.
    pub(super) deferred_bytes: u64,
    /// What [`Allocator::ahead_bytes`] was.
    pub(super) ahead_bytes: u64,
}

impl FreeSpace {
    pub(super) fn of(allocator: &Allocator) -> FreeSpace {
        FreeSpace {
            ahead_bytes: allocator.ahead_bytes(),
            room_bytes: allocator.room(Class::Normal),
            deferred_bytes: allocator.class_space(Class::Normal).deferred,
        }
    }

    /// Whether there is less than `needed` now, and will be more when groups have been synced.
    pub(super) fn is_short(&self, allocator: &Allocator, needed: u64) -> bool {
        let ahead = allocator.ahead_bytes().saturating_sub(self.ahead_bytes);
        self.room_bytes.saturating_sub(ahead) < needed && (ahead > 0 || self.deferred_bytes > 0)
    }
}

/// The rooms of a pool's heads, by the object of the dataset.
#[derive(Default)]
pub(super) struct Rooms {
    known: Mutex<HashMap<DatasetId, KnownRoom>>,
    copies_max: AtomicU8,
}

impl Rooms {
    /// What is known as of group `txg`.
    pub(super) fn get(&self, id: DatasetId, txg: Txg) -> Option<KnownRoom> {
        self.known.lock().get(&id).copied().filter(|known| known.txg == txg)
    }

    pub(super) fn note(&self, id: DatasetId, known: KnownRoom) {
        self.known.lock().insert(id, known);
    }

    /// Quotas or other limits have changed.
    pub(super) fn forget_all(&self) {
        self.known.lock().clear();
    }

    /// A head's data have so many copies.
    pub(super) fn note_copies(&self, copies: u8) {
        self.copies_max.fetch_max(copies, Ordering::Relaxed);
    }

    /// The most copies that an open head's data have had.
    pub(super) fn copies_max(&self) -> u8 {
        self.copies_max.load(Ordering::Relaxed).max(1)
    }
}
