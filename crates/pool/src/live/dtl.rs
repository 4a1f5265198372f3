//! Dirty time logs on disk: what leaves have missed is written down with each group, so that a leaf that comes back
//! is not trusted with what it does not have.
//!
//! ```text
//!   leaf: groups it could not take ─▶ space map that counts groups ─▶ "DTL" in the leaf's configuration
//! ```

use base::Result;
use dmu::Object;
use dsl::write::feature;
use format::feature::SPACEMAP_HISTOGRAM;
use format::ids::{ObjectId, Txg};
use format::space_map::{Encoder, HISTOGRAM_BUCKETS, Run, SpaceMapHeader};
use vdev::TxgRanges;

use super::SyncContext;
use super::space_maps::new_map;

/// Bytes of a block of such a map.
const BLOCK_SIZE: u64 = 4 << 10;

impl SyncContext<'_> {
    /// Writes down what leaves have missed since the last time.
    pub(super) fn write_dtls(&self) -> Result<()> {
        self.clear_dtls_of_logs()?;
        let mut is_new = false;
        for dtl in self.pool.tree().leaves().map(|leaf| leaf.state().dtl()) {
            let Some(missing) = dtl.unwritten() else { continue };
            let object = match dtl.object() {
                ObjectId::NONE => self.make_dtl_map()?,
                id => self.change.mos.object(id)?,
            };
            self.write_dtl_map(&object, &missing)?;
            is_new |= dtl.object().is_none();
            dtl.has_been_written(object.id(), missing);
        }
        if is_new { self.write_config() } else { Ok(()) }
    }

    /// Leaves of a vdev for logs that has nothing on it have missed nothing.
    fn clear_dtls_of_logs(&self) -> Result<()> {
        let tree = self.pool.tree();
        let allocator = self.pool.cache().zio().allocator()?;
        for top in tree.tops().filter(|top| top.is_log()) {
            if allocator.top_space(top.number()).is_some_and(|space| space.allocated > 0) {
                continue;
            }
            let states = tree.leaves_of(top.id()).into_iter().map(|leaf| leaf.state());
            states.filter(|leaf| leaf.health().is_readable()).for_each(|leaf| leaf.dtl().remove(Txg::ZERO..Txg::MAX));
        }
        Ok(())
    }

    fn make_dtl_map(&self) -> Result<Object> {
        let has_histogram = feature::uses(&self.change, SPACEMAP_HISTOGRAM)?.is_some();
        let mut dnode = new_map(BLOCK_SIZE, has_histogram);
        let empty = SpaceMapHeader { length: 0, allocated: 0 };
        dnode.bonus = empty.bonus(ObjectId::NONE, has_histogram.then_some(&[0; HISTOGRAM_BUCKETS]));
        feature::count(&self.change, SPACEMAP_HISTOGRAM, 1)?;
        self.change.mos.allocate(self.change.tx, dnode)
    }

    /// Writes the map anew.
    fn write_dtl_map(&self, object: &Object, missing: &TxgRanges) -> Result<()> {
        let before = SpaceMapHeader::parse(object.bonus())?;
        let mut encoder = Encoder::new(0, BLOCK_SIZE, false);
        let mut sum = 0;
        for range in missing.iter() {
            // what is missed for ever is missed up to now
            let len = range.end.min(self.change.tx.txg().next()).since(range.start);
            if len == 0 {
                continue;
            }
            encoder.push(&Run { allocated: true, offset: range.start.get(), len, vdev: None });
            sum += len;
        }
        let header = SpaceMapHeader { length: encoder.length(), allocated: sum as i64 };
        object.free_range(self.change.tx, 0, before.length)?;
        object.write(self.change.tx, 0, &encoder.finish())?;
        let has_histogram = object.bonus().len() >= SpaceMapHeader::SIZES[0];
        let bonus = header.bonus(object.id(), has_histogram.then_some(&[0; HISTOGRAM_BUCKETS]));
        object.update(self.change.tx, |dnode| dnode.bonus = bonus)
    }
}
