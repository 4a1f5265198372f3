//! Visiting every block that the pool's datasets refer to, each once.
//!
//! ```text
//!   MOS: all of it
//!   each dataset, by object number: what was born after its previous snapshot (or, in a clone, its
//!   origin), as everything older is that one's; of a head, the blocks of its log too
//! ```
//!
//! Blocks of logs come with the level [`LOG_LEVEL`], in object 0 those of the log itself, in others
//! those that writes in the log point to.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use base::{Bookmark, Error, Result, ResultExt};
use dmu::traverse::{Range, Visit, Visitor, traverse};
use dmu::{Mode, Objset};
use format::blkptr::{BlkPtr, Dva};
use format::dnode::SLOT_SIZE;
use format::dsl::DatasetPhys;
use format::ids::{DatasetId, ObjectId, Txg};
use format::object_type::ObjectType;
use zil::{Record, ZilHeader};

use crate::Dsl;

/// The level that bookmarks give blocks of logs.
pub const LOG_LEVEL: i64 = -2;

impl Dsl {
    /// Visits every block of the pool, the MOS first. `txg` is the one that the pool was opened at:
    /// log blocks that are younger belong to nobody yet.
    pub fn traverse(&self, txg: Txg, visitor: &mut dyn Visitor) -> ControlFlow<()> {
        let mos = self.mos();
        traverse(mos.cache(), DatasetId::MOS, &mos.rootbp(), Range::default(), visitor)?;
        let (mut id, mut blocks) = (ObjectId::META_DNODE, DnodeBlocks::default());
        loop {
            match mos.next_object(id).and_then(|next| blocks.check(mos, next)) {
                Ok(Some(next)) => id = next,
                Ok(None) => return ControlFlow::Continue(()),
                Err(e) => {
                    // what is behind it cannot be listed
                    visitor.lost(e);
                    return ControlFlow::Continue(());
                }
            }
            let dataset = DatasetId::of_object(id);
            match self.dataset_at(dataset) {
                Ok(Some(phys)) => self.traverse_dataset(dataset, &phys, txg, visitor)?,
                Ok(None) => {}
                Err(e) => visitor.lost(e),
            }
        }
    }

    /// The record of dataset `id`, if that is one.
    pub(crate) fn dataset_at(&self, id: DatasetId) -> Result<Option<DatasetPhys>> {
        let object = self.mos().object(id.object())?;
        match object.dnode().bonus_type {
            ObjectType::DSL_DATASET => DatasetPhys::parse(object.bonus()).at_block(object.bookmark(0, 0)).map(Some),
            _ => Ok(None),
        }
    }

    fn traverse_dataset(
        &self,
        id: DatasetId,
        phys: &DatasetPhys,
        txg: Txg,
        visitor: &mut dyn Visitor,
    ) -> ControlFlow<()> {
        let cache = self.mos().cache();
        if !phys.is_snapshot() && !phys.bp.is_hole() {
            let header = Objset::open(cache.clone(), id, phys.bp, Mode::Raw, &format!("dataset {id}"))
                .and_then(|objset| ZilHeader::parse(&objset.phys().log_header));
            match header {
                Ok(header) => self.traverse_log(id, &header, txg, visitor)?,
                // the walk below tells why, if it comes to the head
                Err(_) if phys.bp.reference_birth() > phys.prev_snap_txg => {}
                Err(e) => visitor.lost(e),
            }
        }
        traverse(cache, id, &phys.bp, Range { since_txg: phys.prev_snap_txg, from: None }, visitor)
    }

    pub(crate) fn traverse_log(
        &self,
        objset: DatasetId,
        header: &ZilHeader,
        txg: Txg,
        visitor: &mut dyn Visitor,
    ) -> ControlFlow<()> {
        let mut log =
            LogBlocks { visitor, objset, claim_txg: header.claim_txg, txg, seen: HashSet::new(), stopped: false };
        // that a log ends with a block that is not there is no damage
        zil::walk(self.mos().cache().zio(), &zio::SetKeys::Plain, objset, header, &mut log);
        if log.stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// The blocks of dnodes that a listing of objects has been in, and which number each had. Where one is in many places,
/// all its objects would be listed as often.
#[derive(Default)]
struct DnodeBlocks {
    numbers: HashMap<Dva, u64>,
}

impl DnodeBlocks {
    /// Notes the block of an object. Errors: `Corrupt` if that has been met under another number.
    fn check(&mut self, mos: &Arc<Objset>, object: Option<ObjectId>) -> Result<Option<ObjectId>> {
        let Some(id) = object else { return Ok(None) };
        let meta = mos.meta();
        let (blkid, _) = id.place(meta.dnode().block_size / SLOT_SIZE as u64);
        let block = meta.pointer_on_disk(0, blkid)?;
        if *self.numbers.entry(block.dvas()[0]).or_insert(blkid) != blkid {
            return Err(Error::corrupt("a block of dnodes is in two places").at_block(meta.bookmark(0, blkid)));
        }
        Ok(object)
    }
}

/// Shows the blocks of one log to a visitor.
struct LogBlocks<'a> {
    visitor: &'a mut dyn Visitor,
    objset: DatasetId,
    claim_txg: Txg,
    txg: Txg,
    /// A block that two records point to is one block.
    seen: HashSet<Dva>,
    stopped: bool,
}

impl LogBlocks<'_> {
    fn show(&mut self, bp: &BlkPtr, bookmark: Bookmark) -> ControlFlow<()> {
        if bp.is_hole() || !bp.is_embedded() && !self.seen.insert(bp.dvas()[0]) {
            return ControlFlow::Continue(());
        }
        let flow = self.visitor.block(&Visit { bp, bookmark, dnode: None, since_txg: Txg::ZERO });
        self.stopped = flow.is_break();
        flow.map_continue(|_| ())
    }
}

impl zil::LogVisitor for LogBlocks<'_> {
    fn block(&mut self, bp: &BlkPtr, bookmark: Bookmark) -> ControlFlow<()> {
        // of a log that nobody has claimed, only what was allocated in time is there
        if self.claim_txg == Txg::ZERO && bp.reference_birth() > self.txg {
            return ControlFlow::Break(());
        }
        self.show(bp, Bookmark { level: LOG_LEVEL, ..bookmark })
    }

    fn record(&mut self, record: &Record<'_>) -> ControlFlow<()> {
        if self.claim_txg != Txg::ZERO {
            let object = record.intent().ok().and_then(|intent| intent.object()).unwrap_or_default();
            for bp in record.clones().unwrap_or_default() {
                let bookmark = Bookmark { objset: self.objset.get(), object: object.get(), level: LOG_LEVEL, blkid: 0 };
                let flow = self.visitor.block(&Visit { bp: &bp, bookmark, dnode: None, since_txg: Txg::ZERO });
                self.stopped = flow.is_break();
                flow.map_continue(|_| ())?;
            }
        }
        let Ok(Some(write)) = record.write() else { return ControlFlow::Continue(()) };
        let bp = &write.bp;
        if bp.is_hole() || self.claim_txg == Txg::ZERO || bp.reference_birth() < self.claim_txg {
            return ControlFlow::Continue(());
        }
        let blkid = write.offset / bp.lsize().max(1);
        self.show(bp, Bookmark { objset: self.objset.get(), object: write.object.get(), level: LOG_LEVEL, blkid })
    }
}
