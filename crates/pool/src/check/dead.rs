//! Blocks that are dead, but not freed yet.
//!
//! ```text
//!   sync_bplist                   what the last txgs freed: freed with the next one
//!   free_bpobj                    destroyed snapshots
//!   bptree_obj                    destroyed file systems: a queue of their roots, freed in the background
//!   com.delphix:deleted_clones    destroyed clones: lists of what each one wrote, and overwrote
//! ```
//!
//! An entry of the queue tells how far freeing has got: what comes before that place is free already.
//!
//! ```text
//!   pointer (128) | born after txg u64 | object set, object, level, block u64     168 bytes
//! ```

use std::collections::HashMap;
use std::ops::ControlFlow;

use base::{Endian, Error, Reader, Result};
use dmu::bpobj;
use dmu::traverse::{Descend, Range, Visit, VisitPosition, Visitor, traverse};
use dmu::zap::Zap;
use format::blkptr::BlkPtr;
use format::ids::{DatasetId, ObjectId, Txg};

use crate::{Pool, object_directory};

const QUEUE_ENTRY_SIZE: u64 = 168;
/// More destroyed file systems than wait at any time.
const QUEUE_LEN_MAX: u64 = 1 << 20;
/// Object set number of what belongs to none any more.
const DESTROYED: u64 = u64::MAX;

/// Calls `f` with each pointer to a dead block; `lost` with what hides others.
pub(super) fn for_each(pool: &Pool, f: &mut dyn FnMut(&BlkPtr), lost: &mut dyn FnMut(Error)) -> Result<()> {
    let mos = pool.mos();
    let directory = object_directory(mos)?;
    for name in ["sync_bplist", "free_bpobj"] {
        if let Some(list) = directory.object_id(name)? {
            bpobj::for_each(mos, list, &mut |listed| {
                f(&listed.bp);
                Ok(())
            })?;
        }
    }
    if let Some(queue) = directory.object_id("bptree_obj")? {
        destroyed(pool, queue, f, lost)?;
    }
    if let Some(clones) = directory.object_id("com.delphix:deleted_clones")? {
        for clone in Zap::open(mos.object(clones)?)?.entries()? {
            let list = clone.value.first_object().ok_or_else(|| Error::corrupt("destroyed clone without a list"))?;
            for part in Zap::open(mos.object(list)?)?.entries()? {
                let part = part.value.first_object().ok_or_else(|| Error::corrupt("list of a clone without object"))?;
                written(pool, part, f)?;
            }
        }
    }
    Ok(())
}

/// The blocks of destroyed file systems.
fn destroyed(pool: &Pool, queue: ObjectId, f: &mut dyn FnMut(&BlkPtr), lost: &mut dyn FnMut(Error)) -> Result<()> {
    let object = pool.mos().object(queue)?;
    let mut bonus = Reader::new(object.bonus(), Endian::Little);
    let (begin, end) = (bonus.u64()?, bonus.u64()?);
    if end.saturating_sub(begin) > QUEUE_LEN_MAX || end.saturating_mul(QUEUE_ENTRY_SIZE) > object.dnode().size_max() {
        let what = format!("queue of destroyed file systems from {begin} to {end}");
        return Err(Error::corrupt(what).at_block(object.bookmark(0, 0)));
    }
    for i in begin..end {
        let mut entry = [0; QUEUE_ENTRY_SIZE as usize];
        object.read(i * QUEUE_ENTRY_SIZE, &mut entry)?;
        let (root, rest) = entry.split_at(BlkPtr::SIZE);
        let root = BlkPtr::parse(root).expect("split off as a pointer");
        let mut r = Reader::new(rest, Endian::Little);
        let (since_txg, _objset) = (Txg::new(r.u64()?), r.u64()?);
        let (object, _level, blkid) = (ObjectId::new(r.u64()?), r.u64()?, r.u64()?);
        let from = (object, blkid) != (ObjectId::META_DNODE, 0);
        let range = Range { since_txg, from: from.then_some(VisitPosition { object, blkid }) };
        let mut all = EachBlock { f: &mut *f, lost: &mut *lost };
        let _ = traverse(pool.cache(), DatasetId::new(DESTROYED), &root, range, &mut all);
    }
    Ok(())
}

struct EachBlock<'a> {
    f: &'a mut dyn FnMut(&BlkPtr),
    lost: &'a mut dyn FnMut(Error),
}

impl Visitor for EachBlock<'_> {
    fn block(&mut self, visit: &Visit<'_>) -> ControlFlow<(), Descend> {
        (self.f)(visit.bp);
        ControlFlow::Continue(Descend::Below)
    }

    fn lost(&mut self, error: Error) {
        (self.lost)(error);
    }
}

/// What a list of writes and overwrites leaves over.
fn written(pool: &Pool, list: ObjectId, f: &mut dyn FnMut(&BlkPtr)) -> Result<()> {
    let mut left: HashMap<([u64; 2], Txg), Vec<BlkPtr>> = HashMap::new();
    let mut freed: HashMap<([u64; 2], Txg), u64> = HashMap::new();
    let key = |bp: &BlkPtr| (bp.dvas()[0].words(), if bp.is_dedup() { bp.birth() } else { Txg::ZERO });
    bpobj::for_each(pool.mos(), list, &mut |listed| {
        if listed.is_free {
            *freed.entry(key(&listed.bp)).or_default() += 1;
        } else {
            left.entry(key(&listed.bp)).or_default().push(listed.bp);
        }
        Ok(())
    })?;
    for (key, blocks) in left {
        let gone = usize::try_from(freed.get(&key).copied().unwrap_or(0)).unwrap_or(usize::MAX);
        blocks.iter().skip(gone).for_each(&mut *f);
    }
    Ok(())
}
