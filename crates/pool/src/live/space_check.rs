//! How far changes of datasets may go into what ZFS keeps for itself: it is there so that a full pool can be worked on,
//! and what was destroyed can be freed.
//!
//! ```text
//!   | used by datasets                    |           slop            |
//!                                         ▲            ▲       ▲
//!                              create, snapshot    set, rename   release
//! ```
//!
//! What only frees is never refused. Of each block that is changed, three copies of 16 KiB are reckoned. Source: the
//! behaviour of OpenZFS's dsl_synctask.

use base::{Error, Kind, Result};

use super::LivePool;

/// Bytes of a block of the pool's own objects, with its copies, as it is reckoned.
const BLOCK_BYTES: u64 = 3 * (16 << 10);

/// How much of the slop a change may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpaceCheck {
    /// Nothing: it makes something.
    Normal,
    /// Half of it: it changes what is there.
    Reserved,
    /// Three quarters: more is freed by it.
    ExtraReserved,
}

impl LivePool {
    /// Whether there is room for a change of some `blocks` blocks. Errors: `NoSpace`.
    pub(super) fn check_space(&self, check: SpaceCheck, blocks: usize) -> Result<()> {
        if !self.has_space(check, blocks)? {
            // what was destroyed a moment ago may be room by now
            self.sync()?;
            if !self.has_space(check, blocks)? {
                return Err(Error::new(Kind::NoSpace, "out of space"));
            }
        }
        Ok(())
    }

    fn has_space(&self, check: SpaceCheck, blocks: usize) -> Result<bool> {
        let view = self.view();
        let (usable, slop) = view.usable_and_slop()?;
        let limit = usable.saturating_add(match check {
            SpaceCheck::Normal => 0,
            SpaceCheck::Reserved => slop / 2,
            SpaceCheck::ExtraReserved => slop / 4 * 3,
        });
        let used = view.dsl().root()?.phys.used_bytes;
        Ok(used.saturating_add(BLOCK_BYTES.saturating_mul(blocks as u64)) <= limit)
    }
}
