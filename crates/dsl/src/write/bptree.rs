//! The queue of destroyed heads, whose blocks are freed some in each group, after those of the list of what is left
//! of destroyed snapshots.
//!
//! ```text
//!   bonus: first entry, end, bytes, compressed, uncompressed
//!   entry (168 bytes): root pointer | only blocks born after this txg | object set, object, level 0, block: go on there
//! ```
//!
//! A block may be freed only after those below it, as a walk that goes on later needs it to find the rest. A walk
//! shows a block before those below it, so [`Freeing`] keeps the path to where it is, and frees a block when the
//! walk has left it. It stops at data blocks only: what it says of the place is then clear, and that all before
//! it has been freed.

use std::ops::ControlFlow;

use base::{Bookmark, Endian, Error, Reader, Result};
use dmu::INDIRECT_SHIFT;
use dmu::Object;
use dmu::bpobj::{Bpobj, Totals};
use dmu::traverse::{Descend, Range, Visit, VisitPosition, Visitor, traverse};
use format::blkptr::BlkPtr;
use format::dnode::{Dnode, SLOT_SIZE};
use format::feature::ASYNC_DESTROY;
use format::ids::{DatasetId, ObjectId, Txg};
use format::object_type::ObjectType;

use super::space::{Delta, UsedColumn};
use super::{Change, DIRECTORY, feature, livelist, space};

const QUEUE: &str = "bptree_obj";
const LIST: &str = "free_bpobj";
const QUEUE_BLOCK_SIZE: u64 = 128 << 10;
const ENTRY_SIZE: u64 = 168;
/// More entries than any queue has.
const ENTRIES_MAX: u64 = 1 << 32;
/// Object set number of what belongs to none any more.
const DESTROYED: u64 = u64::MAX;
const SPILL: u64 = u64::MAX - 1;
/// Object numbers from there on are those of space accounting, in the head.
const ACCOUNTING_MIN: u64 = u64::MAX - 2;

/// What is to be done with the blocks of a head that was destroyed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Destroyed {
    /// It had none of its own.
    Nothing,
    /// They are in the queue: [`free_destroyed`] frees them bit by bit.
    Queued,
    /// The caller frees them now, with [`free_tree`].
    Blocks {
        /// The root pointer.
        root: BlkPtr,
        /// Only blocks born after that txg are its own.
        since_txg: Txg,
    },
}

/// The head of the queue.
#[derive(Clone, Copy, Default)]
struct BptreeHead {
    begin: u64,
    end: u64,
    totals: Totals,
}

impl BptreeHead {
    fn of(object: &Object) -> Result<BptreeHead> {
        let mut r = Reader::new(object.bonus(), Endian::Little);
        let (begin, end) = (r.u64()?, r.u64()?);
        let totals = Totals { used: r.u64()?, compressed: r.u64()?, uncompressed: r.u64()? };
        if begin > end || end > ENTRIES_MAX {
            let what = format!("queue of destroyed file systems from {begin} to {end}");
            return Err(Error::corrupt(what).at_block(object.bookmark(0, 0)));
        }
        Ok(BptreeHead { begin, end, totals })
    }

    fn bonus(self) -> Vec<u8> {
        let Totals { used, compressed, uncompressed } = self.totals;
        [self.begin, self.end, used, compressed, uncompressed].iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// Puts a head's blocks into the queue.
pub(super) fn queue(change: &Change<'_>, root: &BlkPtr, since_txg: Txg, totals: Totals) -> Result<()> {
    let id = match change.object_id(DIRECTORY, QUEUE)? {
        Some(id) => id,
        None => {
            let mut dnode = Dnode::new(ObjectType::U64_METADATA, QUEUE_BLOCK_SIZE, INDIRECT_SHIFT, 1, 1);
            (dnode.bonus_type, dnode.bonus) = (ObjectType::U64_METADATA, BptreeHead::default().bonus());
            let id = change.mos.allocate(change.tx, dnode)?.id();
            change.add(DIRECTORY, QUEUE, id.get())?;
            feature::count(change, ASYNC_DESTROY, 1)?;
            id
        }
    };
    let object = change.mos.object(id)?;
    let mut queue = BptreeHead::of(&object)?;
    put_entry(change, &object, queue.end, root, since_txg, None)?;
    queue.end += 1;
    queue.totals = queue.totals.plus(totals);
    object.update(change.tx, |dnode| dnode.bonus = queue.bonus())
}

fn put_entry(
    change: &Change<'_>,
    object: &Object,
    index: u64,
    root: &BlkPtr,
    since_txg: Txg,
    from: Option<VisitPosition>,
) -> Result<()> {
    let place = match from {
        Some(VisitPosition { object, blkid }) => [since_txg.get(), DESTROYED, object.get(), 0, blkid],
        None => [since_txg.get(), 0, 0, 0, 0],
    };
    let mut bytes = root.raw().to_vec();
    bytes.extend(place.iter().flat_map(|word| word.to_le_bytes()));
    object.write(change.tx, index * ENTRY_SIZE, &bytes)
}

/// Whether blocks of what was destroyed wait to be freed.
pub(super) fn has_destroyed(change: &Change<'_>) -> Result<bool> {
    if change.object_id(DIRECTORY, QUEUE)?.is_some() || livelist::has_clones(change)? {
        return Ok(true);
    }
    match change.object_id(DIRECTORY, LIST)? {
        Some(list) => Ok(!Bpobj::open(change.mos, list)?.is_empty()?),
        None => Ok(false),
    }
}

/// Frees up to about `count` blocks of what was destroyed: calls `free` with each. False if there are none left.
///
/// Errors: those of reading the blocks; what was freed before is noted, and the rest stays where it is.
pub fn free_destroyed(change: &Change<'_>, count: u64, free: &mut dyn FnMut(&BlkPtr)) -> Result<bool> {
    let mut freed = free_listed(change, count, free)?;
    if freed < count {
        freed += livelist::free_clones(change, count - freed, free)?;
    }
    if freed < count { free_queued(change, count - freed, free) } else { has_destroyed(change) }
}

/// Frees up to `count` blocks of the list of what is left of snapshots. Returns how many.
fn free_listed(change: &Change<'_>, count: u64, free: &mut dyn FnMut(&BlkPtr)) -> Result<u64> {
    let Some(id) = change.object_id(DIRECTORY, LIST)? else { return Ok(0) };
    let list = Bpobj::open(change.mos, id)?;
    let before = list.totals()?;
    let done = list.drain(change.tx, count, change.size_of, &mut |bp| {
        if !bp.is_embedded() {
            free(bp);
        }
        Ok(())
    })?;
    if done > 0 {
        space::charge(change, change.own_dir("$FREE")?, UsedColumn::Head, Delta::between(before, list.totals()?))?;
    }
    Ok(done)
}

/// Frees up to about `count` blocks of heads in the queue. False if there are none left.
fn free_queued(change: &Change<'_>, count: u64, free: &mut dyn FnMut(&BlkPtr)) -> Result<bool> {
    let Some(id) = change.object_id(DIRECTORY, QUEUE)? else { return Ok(false) };
    let object = change.mos.object(id)?;
    let mut queue = BptreeHead::of(&object)?;
    let mut left = count;
    while queue.begin < queue.end {
        let mut entry = [0; ENTRY_SIZE as usize];
        object.read(queue.begin * ENTRY_SIZE, &mut entry)?;
        let (root, rest) = entry.split_at(BlkPtr::SIZE);
        let root = BlkPtr::parse(root).expect("split off as a pointer");
        let mut r = Reader::new(rest, Endian::Little);
        let (since_txg, _objset) = (Txg::new(r.u64()?), r.u64()?);
        let (number, _level, blkid) = (ObjectId::new(r.u64()?), r.u64()?, r.u64()?);
        let from = (number, blkid) != (ObjectId::META_DNODE, 0);
        let range = Range { since_txg, from: from.then_some(VisitPosition { object: number, blkid }) };
        let freed = walk_tree(change, &root, range, left, free);
        left = left.saturating_sub(freed.count);
        queue.totals = queue.totals.minus(freed.totals);
        let delta = Delta::between(freed.totals, Totals::default());
        space::charge(change, change.own_dir("$FREE")?, UsedColumn::Head, delta)?;
        match freed.stopped {
            None => {
                object.free_range(change.tx, queue.begin * ENTRY_SIZE, ENTRY_SIZE)?;
                queue.begin += 1;
            }
            Some(at) => put_entry(change, &object, queue.begin, &root, since_txg, at.or(range.from))?,
        }
        object.update(change.tx, |dnode| dnode.bonus = queue.bonus())?;
        match freed.error {
            Some(e) => return Err(e),
            None if freed.stopped.is_some() => return Ok(true),
            None => {}
        }
    }
    change.remove(DIRECTORY, QUEUE)?;
    change.free_object(id)?;
    feature::count(change, ASYNC_DESTROY, -1)?;
    Ok(false)
}

/// Frees all blocks of a destroyed head at once. Errors: those of reading them.
pub fn free_tree(change: &Change<'_>, root: &BlkPtr, since_txg: Txg, free: &mut dyn FnMut(&BlkPtr)) -> Result<()> {
    let freed = walk_tree(change, root, Range { since_txg, from: None }, u64::MAX, free);
    freed.error.map_or(Ok(()), Err)
}

fn walk_tree(change: &Change<'_>, root: &BlkPtr, range: Range, count: u64, free: &mut dyn FnMut(&BlkPtr)) -> Freed {
    let mut freeing = Freeing { change, free, left: count, path: Vec::new(), freed: Freed::default() };
    let _ = traverse(change.mos.cache(), DatasetId::new(DESTROYED), root, range, &mut freeing);
    if freeing.freed.stopped.is_none() {
        freeing.leave(0);
    }
    freeing.freed
}

/// What a walk has freed.
#[derive(Default)]
struct Freed {
    count: u64,
    totals: Totals,
    /// It stopped before the end: there, or if that is not known, before anything was freed.
    stopped: Option<Option<VisitPosition>>,
    error: Option<Error>,
}

/// A block on the path to where a walk is.
struct Above {
    bp: BlkPtr,
    bookmark: Bookmark,
    /// The first place below it.
    first: Option<VisitPosition>,
}

/// Frees blocks in the order in which a walk leaves them.
struct Freeing<'a> {
    change: &'a Change<'a>,
    free: &'a mut dyn FnMut(&BlkPtr),
    left: u64,
    path: Vec<Above>,
    freed: Freed,
}

impl Freeing<'_> {
    /// Frees the path down to its first `len` blocks.
    fn leave(&mut self, len: usize) {
        while self.path.len() > len {
            let above = self.path.pop().expect("the path is longer");
            self.free(&above.bp);
        }
    }

    fn free(&mut self, bp: &BlkPtr) {
        self.freed.count += 1;
        self.freed.totals = self.freed.totals.plus(self.change.totals(bp));
        self.left = self.left.saturating_sub(1);
        if !bp.is_embedded() {
            (self.free)(bp);
        }
    }
}

impl Visitor for Freeing<'_> {
    fn block(&mut self, visit: &Visit<'_>) -> ControlFlow<(), Descend> {
        if self.freed.stopped.is_some() {
            return ControlFlow::Break(());
        }
        let len = self.path.iter().take_while(|above| is_above(&above.bookmark, &visit.bookmark)).count();
        self.leave(len);
        let Bookmark { object, level, blkid, .. } = visit.bookmark;
        let is_leaf = level == 0 && object != 0;
        if !is_leaf {
            let first = first_below(visit);
            self.path.push(Above { bp: *visit.bp, bookmark: visit.bookmark, first });
            return ControlFlow::Continue(Descend::Below);
        }
        if self.left == 0 {
            self.freed.stopped = Some(Some(VisitPosition { object: visit.object(), blkid }));
            return ControlFlow::Break(());
        }
        self.free(visit.bp);
        ControlFlow::Continue(Descend::Below)
    }

    /// What is below the last block of the path cannot be found. It stays, and all behind it.
    fn lost(&mut self, error: Error) {
        if self.freed.stopped.is_none() {
            self.freed.stopped = Some(self.path.last().and_then(|above| above.first));
            self.freed.error = Some(error);
        }
    }
}

/// Whether block `b`, which comes after `a` in a walk, is below it, if all that is between has been left.
fn is_above(a: &Bookmark, b: &Bookmark) -> bool {
    let is_accounting = b.object >= ACCOUNTING_MIN;
    a.level < 0
        || a.object == 0 && b.object != 0 && !is_accounting
        || a.object == b.object && b.level < a.level && b.blkid != SPILL
}

/// The first place below a block.
fn first_below(visit: &Visit<'_>) -> Option<VisitPosition> {
    let dnode = visit.dnode?;
    let Bookmark { level, blkid, .. } = visit.bookmark;
    let level = u32::try_from(level).ok()?;
    let shift = if level == 0 { 0 } else { level * dnode.pointers_shift() };
    let blkid = blkid.checked_shl(shift)?;
    match visit.object() {
        // of the blocks of dnodes, the first object in it
        ObjectId::META_DNODE => Some(VisitPosition::of_block(blkid, dnode.block_size / SLOT_SIZE as u64)),
        object => Some(VisitPosition { object, blkid }),
    }
}
