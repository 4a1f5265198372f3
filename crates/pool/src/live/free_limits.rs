//! How much is freed with one group: freeing takes room, too, and gives back none before some groups later.
//!
//! ```text
//!   a block that is freed        ─▶ its pointer in a list of what a snapshot has, or of what is put off
//!   one that dedup, clones count ─▶ a block of their table: `entry_limit`
//! ```
//!
//! On a small pool, or one that is nearly full, groups free less at a time.

use base::Result;
use format::ids::DatasetId;
use zio::alloc::{Allocator, Class};

use super::LivePool;
use super::datasets::GROUPS_UNTIL_FREE;
use super::rooms::KnownRoom;

/// Bytes on disk that the free of a block may take beside the tables: three copies of its pointer, and of what leads
/// there, in a list that is written anew.
const FREE_BYTES: u64 = 1 << 10;
/// Blocks that may be freed with each group, so that it comes to an end.
const FREES_MIN: u64 = 256;
/// Which part of what is free the frees of a group may take, and the entries of each kind of table: what one group
/// takes is there again only two groups later.
const PART: u64 = 8;

impl LivePool {
    /// Limits the frees of groups by what is free now.
    pub(super) fn limit_frees(&self, allocator: &Allocator) {
        // nobody would sync the group that a limit waits for
        if !self.groups().has_thread() {
            return;
        }
        let room_bytes = allocator.room(Class::Normal) / PART;
        self.txgs().set_frees_max((room_bytes / FREE_BYTES).max(FREES_MIN));
        self.dedup_changes().entry_limit().fit(room_bytes);
        self.clone_changes().entry_limit().fit(room_bytes);
    }

    /// Waits while the groups in memory may need more than is free, and more will be: what frees takes room until its
    /// group is on disk. Errors: `Suspended`, as from [`dmu::Txgs::begin`].
    pub(super) fn wait_for_frees(&self, id: DatasetId) -> Result<()> {
        let allocator = self.cache().zio().allocator()?;
        for _ in 0..=GROUPS_UNTIL_FREE {
            let changes = self.txgs().dirty_changes();
            if changes.is_empty() {
                break;
            }
            // one that is not there any more is no reason to keep what it has
            let Ok(KnownRoom { free, needs, .. }) = self.room_of(id) else { break };
            if !free.is_short(allocator, needs.bytes(&changes)) {
                break;
            }
            self.sync_now()?;
        }
        Ok(())
    }
}
