//! How many bytes of a pool its datasets can share: what `available` of the root begins with.
//!
//! ```text
//!   metaslabs of the normal class, parity and padding not counted
//!   - one metaslab of each vdev that has many, which is kept for the intent log
//!   - what a vdev that is being removed provides
//!   + what dedup and clones save
//!   - what only the checkpoint needs, and what is still to be freed
//!   - slop: a 32nd of the pool, but at most 128 GiB, and at least 128 MiB or half of the pool
//! ```
//!
//! Source: the behaviour of OpenZFS's spa_misc and dsl_pool.

use base::{Endian, Reader, Result, ResultExt};
use format::ids::ObjectId;
use format::object_type::ObjectType;

use crate::status::Progress;
use crate::{Pool, TopSpace, object_directory};

const SLOP_SHIFT: u32 = 5;
const SLOP_BYTES_MIN: u64 = 128 << 20;
const SLOP_BYTES_MAX: u64 = 128 << 30;

impl Pool {
    /// Bytes that all datasets together may use, before reservations and quotas.
    pub fn usable_bytes(&self) -> Result<u64> {
        self.usable_and_slop().map(|(usable, _)| usable)
    }

    /// The same, and bytes that are kept from datasets, so that the pool can always be worked on.
    pub(crate) fn usable_and_slop(&self) -> Result<(u64, u64)> {
        self.read_usable_and_slop().in_pool(self.name())
    }

    fn read_usable_and_slop(&self) -> Result<(u64, u64)> {
        let directory = object_directory(self.mos())?;
        let deflates = directory.u64("deflate")?.unwrap_or(0) != 0;
        let status = self.status()?;
        let removing = status.removal.filter(|removal| removal.progress == Progress::Running);
        let (mut space, mut log) = (0u64, 0u64);
        for top in self.top_spaces()? {
            let vdev = self.tree().top(top.number)?;
            let Some(spec) = vdev.top_spec().filter(|spec| !spec.is_log && spec.bias.is_none()) else { continue };
            if removing.as_ref().is_some_and(|removal| removal.vdev == top.number) {
                continue;
            }
            let slabs = spec.metaslabs();
            let kept = if self.keeps_log_slab(slabs) { slab_bytes(&top, slabs, deflates) } else { 0 };
            log = log.saturating_add(kept);
            space = space.saturating_add(size(&top, deflates).saturating_sub(kept));
        }
        let dedup = self.dedup()?.total();
        let shared = dedup.ref_dsize_bytes.saturating_sub(dedup.dsize_bytes);
        let shared = shared.saturating_add(self.clones()?.saved_bytes);
        let deferred = match directory.object_id("sync_bplist")? {
            Some(object) => self.bytes_in_list(object)?,
            None => 0,
        };
        let taken = status.checkpoint.map_or(0, |checkpoint| checkpoint.bytes).saturating_add(deferred);
        let slop = slop(space, log);
        Ok((space.saturating_add(shared).saturating_sub(taken).saturating_sub(slop), slop))
    }

    /// Bytes of the blocks in a list of block pointers.
    fn bytes_in_list(&self, object: ObjectId) -> Result<u64> {
        let object = self.mos().object(object)?;
        if object.dnode().object_type != ObjectType::BPOBJ {
            return Ok(0);
        }
        let mut bonus = Reader::new(object.bonus(), Endian::Little);
        let _count = bonus.u64()?;
        bonus.u64()
    }
}

fn size(top: &TopSpace, deflates: bool) -> u64 {
    if deflates { top.deflated_bytes } else { top.size_bytes }
}

/// Bytes of a metaslab. Those of a draid are not all of one size; this is the mean.
fn slab_bytes(top: &TopSpace, slabs: u64, deflates: bool) -> u64 {
    size(top, deflates) / slabs.max(1)
}

/// What ZFS does not let datasets use, so that the pool can always be worked on.
pub(crate) fn slop(space: u64, log: u64) -> u64 {
    let slop = (space >> SLOP_SHIFT).min(SLOP_BYTES_MAX);
    let slop = slop - log.min(slop / 2);
    slop.max((space / 2).min(SLOP_BYTES_MIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slop_of_small_and_large_pools() {
        const MIB: u64 = 1 << 20;
        assert_eq!(slop(50 * MIB, 0), 25 * MIB);
        assert_eq!(slop(100 * MIB, 0), 50 * MIB);
        assert_eq!(slop(32 << 30, 0), 1 << 30);
        assert_eq!(slop(1 << 30, 0), 128 * MIB);
        assert_eq!(slop(1 << 40, 0), 32 << 30);
        assert_eq!(slop(1 << 50, 0), 128 << 30);
        // what is kept for the log counts as slop, up to half of it
        assert_eq!(slop(1 << 40, 8 << 30), 24 << 30);
        assert_eq!(slop(1 << 40, 100 << 30), 16 << 30);
        assert_eq!(slop(u64::MAX, u64::MAX), 64 << 30);
    }

    #[test]
    fn a_metaslab_for_the_log() {
        let top = TopSpace { size_bytes: 100 << 20, deflated_bytes: 80 << 20, ..TopSpace::default() };
        assert_eq!(slab_bytes(&top, 100, true), 838_860);
        assert_eq!(slab_bytes(&top, 100, false), 1 << 20);
    }
}
