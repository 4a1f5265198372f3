//! Visiting every block under a root pointer, in the order of objects, and of blocks within one.
//!
//! ```text
//!   root pointer ─ head of the object set
//!     ├─ meta dnode ─ [levels] ─ blocks of dnodes
//!     │                            ├─ dnode 1 ─ [levels] ─ data, spill
//!     │                            └─ dnode 2 ─ ...
//!     └─ space used by projects, groups, users: a dnode each
//! ```
//!
//! A block comes before those below it. What was born up to a given txg is passed over, with all that
//! is below it: nothing below a block can be younger than the block. Blocks that lead to others are
//! read through the cache, siblings in one batch; data are left to the visitor.
//!
//! Invariants: levels fall by one with each step down and dnodes are looked for only in the meta
//! dnode's own data, so that a walk ends; a damaged part is reported and left out, and the walk goes
//! on behind it. Below each block the walk goes once: where pointers of several places lead to one, there may be more
//! ways through a few blocks than anybody can go. Memory is bounded by the depth of the tree times [`BATCH_BYTES`], and
//! the number of blocks that lead to others.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use base::{Bookmark, Error, Kind, Result};
use format::blkptr::{BlkPtr, Dva, Embedded};
use format::dnode::{Dnode, SLOT_SIZE};
use format::ids::{DatasetId, ObjectId, Txg};
use format::object_type::ObjectType;
use format::objset::ObjsetPhys;

use crate::dnodes::Slots;
use crate::node::SPILL_BLKID;
use crate::{Block, Cache, Keep, Mode, Objset, ReadRequest};

/// Bytes of sibling blocks that are read at once.
const BATCH_BYTES: u64 = 4 << 20;

/// A block on the way.
#[derive(Clone, Copy, Debug)]
pub struct Visit<'a> {
    /// The pointer to it; neither a hole nor a redaction marker.
    pub bp: &'a BlkPtr,
    /// Where it belongs.
    pub bookmark: Bookmark,
    /// The dnode of its object; `None` for the head of an object set.
    pub dnode: Option<&'a Dnode>,
    /// What was not born after that txg is passed over below it.
    pub since_txg: Txg,
}

impl Visit<'_> {
    /// The object that it belongs to; the meta dnode for what leads to dnodes.
    pub fn object(&self) -> ObjectId {
        ObjectId::new(self.bookmark.object)
    }
}

/// Whether to go on below a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descend {
    /// With the blocks below it, if it has any.
    Below,
    /// With what comes after those.
    Past,
}

/// Is shown the blocks.
pub trait Visitor {
    /// Called for each block. Breaking ends the walk.
    fn block(&mut self, visit: &Visit<'_>) -> ControlFlow<(), Descend>;

    /// Whether what is below a block is wanted. That is asked before the block is read, once or more, and the block is
    /// visited in any case; what is not wanted is not read.
    fn enters(&self, _visit: &Visit<'_>) -> bool {
        true
    }

    /// Called when what is below a block, or in a dnode, cannot be visited.
    fn lost(&mut self, error: Error);
}

/// A place in the order of visits: a data block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisitPosition {
    /// Its object.
    pub object: ObjectId,
    /// Its number.
    pub blkid: u64,
}

impl VisitPosition {
    /// Before the first object of a block of dnodes, of which each block has so many.
    pub fn of_block(blkid: u64, per_block: u64) -> VisitPosition {
        VisitPosition { object: ObjectId::in_block(blkid, 0, per_block).max(ObjectId::new(1)), blkid: 0 }
    }
}

/// Which blocks are visited.
#[derive(Clone, Copy, Debug, Default)]
pub struct Range {
    /// Only blocks born after that txg.
    pub since_txg: Txg,
    /// Only blocks from there on, and those above them.
    pub from: Option<VisitPosition>,
}

/// Object numbers in bookmarks of the dnodes in an object set's head.
const USER_USED: ObjectId = ObjectId::LAST;
const GROUP_USED: ObjectId = ObjectId::new(u64::MAX - 1);
const PROJECT_USED: ObjectId = ObjectId::new(u64::MAX - 2);

/// Visits the blocks of the object set under `root`, whose number for bookmarks is `objset`.
pub fn traverse(
    cache: &Arc<Cache>,
    objset: DatasetId,
    root: &BlkPtr,
    range: Range,
    visitor: &mut dyn Visitor,
) -> ControlFlow<()> {
    let bookmark = Bookmark { objset: objset.get(), object: 0, level: Objset::HEAD_LEVEL, blkid: 0 };
    Walk { cache, range, visitor, entered: HashSet::new() }.siblings(&[PlacedPointer {
        bp: *root,
        bookmark,
        dnode: None,
    }])
}

struct Walk<'a> {
    cache: &'a Cache,
    range: Range,
    visitor: &'a mut dyn Visitor,
    /// Blocks below which it has been.
    entered: HashSet<Dva>,
}

/// A pointer and its place.
#[derive(Clone, Copy)]
struct PlacedPointer<'d> {
    bp: BlkPtr,
    bookmark: Bookmark,
    dnode: Option<&'d Dnode>,
}

/// What is below a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Below {
    Nothing,
    Pointers,
    Dnodes,
    Objset,
}

impl Walk<'_> {
    /// Visits pointers that stand side by side, each with what is below it.
    fn siblings(&mut self, nodes: &[PlacedPointer<'_>]) -> ControlFlow<()> {
        let mut rest = nodes;
        while !rest.is_empty() {
            let (batch, tail) = rest.split_at(batch_len(rest));
            rest = tail;
            let wanted: Vec<&PlacedPointer<'_>> = batch.iter().filter(|node| self.descends(node)).collect();
            let requests: Vec<ReadRequest> = wanted.iter().map(|node| node.request()).collect();
            let mut blocks = self.cache.get_batch(&requests, Keep::ALL).into_iter();
            for node in batch {
                let block = if self.descends(node) { blocks.next() } else { None };
                self.node(node, block)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn node(&mut self, node: &PlacedPointer<'_>, block: Option<Result<Block>>) -> ControlFlow<()> {
        if !self.is_wanted(node) {
            return ControlFlow::Continue(());
        }
        if self.visitor.block(&node.visit(self.range.since_txg))? == Descend::Past {
            return ControlFlow::Continue(());
        }
        match (node.check_level(), block) {
            (Err(e), _) | (Ok(()), Some(Err(e))) => self.visitor.lost(e.at_block(node.bookmark)),
            (Ok(()), Some(Ok(_))) if !self.entered.insert(node.bp.dvas()[0]) => {
                self.visitor
                    .lost(Error::corrupt("block that leads to others is in two places").at_block(node.bookmark));
            }
            (Ok(()), Some(Ok(block))) => match node.below() {
                Below::Pointers => self.pointers(node, &block)?,
                Below::Dnodes => self.dnodes(node, &block)?,
                Below::Objset => self.objset(node, &block)?,
                Below::Nothing => {}
            },
            (Ok(()), None) => {}
        }
        ControlFlow::Continue(())
    }

    fn pointers(&mut self, node: &PlacedPointer<'_>, block: &[u8]) -> ControlFlow<()> {
        let pointers = BlkPtr::slice(block);
        let first = node.bookmark.blkid.wrapping_mul(pointers.len() as u64);
        let level = node.bookmark.level - 1;
        let children: Vec<PlacedPointer<'_>> = (0..)
            .zip(pointers)
            .filter(|(_, bp)| !is_nothing(bp))
            .map(|(i, bp)| {
                let bookmark = Bookmark { level, blkid: first.wrapping_add(i), ..node.bookmark };
                PlacedPointer { bp: *bp, bookmark, dnode: node.dnode }
            })
            .collect();
        self.siblings(&children)
    }

    fn dnodes(&mut self, node: &PlacedPointer<'_>, block: &[u8]) -> ControlFlow<()> {
        let first = node.bookmark.blkid.wrapping_mul((block.len() / SLOT_SIZE) as u64);
        let mut dnodes = Vec::new();
        for slot in Slots::new(block) {
            match slot {
                Ok((at, dnode)) => dnodes.push((ObjectId::new(first.wrapping_add(at as u64)), dnode)),
                Err(e) => self.visitor.lost(e.at_block(node.bookmark)),
            }
        }
        let nodes: Vec<PlacedPointer<'_>> =
            dnodes.iter().flat_map(|(object, dnode)| roots(node.bookmark.objset, *object, dnode)).collect();
        self.siblings(&nodes)
    }

    fn objset(&mut self, node: &PlacedPointer<'_>, block: &[u8]) -> ControlFlow<()> {
        let phys = match ObjsetPhys::parse(block) {
            Ok(phys) => phys,
            Err(e) => {
                self.visitor.lost(e.at_block(node.bookmark));
                return ControlFlow::Continue(());
            }
        };
        let objset = node.bookmark.objset;
        self.siblings(&roots(objset, ObjectId::META_DNODE, &phys.meta_dnode))?;
        let [user, group, project] = &phys.accounting;
        for (object, dnode) in [(PROJECT_USED, project), (GROUP_USED, group), (USER_USED, user)] {
            if let Some(dnode) = dnode {
                self.siblings(&roots(objset, object, dnode))?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Whether the block must be read to go on.
    fn descends(&self, node: &PlacedPointer<'_>) -> bool {
        node.below() != Below::Nothing
            && self.is_wanted(node)
            && node.check_level().is_ok()
            && !self.range.from.is_some_and(|from| from.is_at(node.bookmark))
            && self.visitor.enters(&node.visit(self.range.since_txg))
    }

    fn is_wanted(&self, node: &PlacedPointer<'_>) -> bool {
        !is_nothing(&node.bp)
            && node.bp.reference_birth() > self.range.since_txg
            && !self.range.from.is_some_and(|from| from.is_behind(node))
    }
}

/// How many of `nodes` to read at once; at least one.
fn batch_len(nodes: &[PlacedPointer<'_>]) -> usize {
    let mut bytes = 0u64;
    let fits = |node: &&PlacedPointer<'_>| {
        let before = bytes;
        if node.below() != Below::Nothing {
            bytes = bytes.saturating_add(node.bp.lsize());
        }
        before == 0 || bytes <= BATCH_BYTES
    };
    nodes.iter().take_while(fits).count()
}

/// The pointers of a dnode.
fn roots(objset: u64, object: ObjectId, dnode: &Dnode) -> Vec<PlacedPointer<'_>> {
    let at = |level, blkid| Bookmark { objset, object: object.get(), level, blkid };
    let top = i64::from(dnode.levels) - 1;
    let data = (0..).zip(&dnode.blkptrs).map(|(blkid, bp)| PlacedPointer {
        bp: *bp,
        bookmark: at(top, blkid),
        dnode: Some(dnode),
    });
    let spill = dnode.spill.map(|bp| PlacedPointer { bp, bookmark: at(0, SPILL_BLKID), dnode: Some(dnode) });
    data.chain(spill).filter(|node| !is_nothing(&node.bp)).collect()
}

fn is_nothing(bp: &BlkPtr) -> bool {
    bp.is_hole() || bp.is_embedded() && bp.embedded() == Embedded::Redacted
}

impl VisitPosition {
    /// Whether a block, and all that is below it, comes before this.
    fn is_behind(self, node: &PlacedPointer<'_>) -> bool {
        let Bookmark { object, level, blkid, .. } = node.bookmark;
        let (Some(dnode), Ok(level)) = (node.dnode, u32::try_from(level)) else { return false };
        let shift = if level == 0 { 0 } else { level * dnode.pointers_shift() };
        // the first data block behind the subtree, if there can be one
        let next = blkid.checked_add(1).filter(|next| next.leading_zeros() >= shift).map(|next| next << shift);
        let Some(next) = next else { return false };
        match (object, self.object.get()) {
            // the data blocks of the meta dnode are ranges of objects
            (0, 1..) => {
                next.checked_mul(dnode.block_size / SLOT_SIZE as u64).is_some_and(|next| next <= self.object.get())
            }
            (object, own) if object == own => next <= self.blkid,
            (_, 0) => false,
            (object, own) => object < own,
        }
    }

    /// Whether this is that very block. Then it is visited, but what is below it has been.
    fn is_at(self, bookmark: Bookmark) -> bool {
        (bookmark.object, bookmark.level, bookmark.blkid) == (self.object.get(), 0, self.blkid)
    }
}

impl PlacedPointer<'_> {
    fn visit(&self, since_txg: Txg) -> Visit<'_> {
        Visit { bp: &self.bp, bookmark: self.bookmark, dnode: self.dnode, since_txg }
    }

    fn request(&self) -> ReadRequest {
        ReadRequest { bp: self.bp, bookmark: self.bookmark, mode: Mode::Raw }
    }

    fn below(&self) -> Below {
        match self.bookmark {
            Bookmark { level: 1.., .. } => Below::Pointers,
            Bookmark { level: 0, object: 0, blkid, .. } if blkid != SPILL_BLKID => Below::Dnodes,
            Bookmark { level: Objset::HEAD_LEVEL, .. } => Below::Objset,
            _ => Below::Nothing,
        }
    }

    /// Refuses to go below a block whose pointer belongs at another place.
    fn check_level(&self) -> Result<()> {
        let level = self.bookmark.level.max(0);
        let is_head = self.bookmark.level == Objset::HEAD_LEVEL;
        if i64::from(self.bp.level()) != level || is_head != (self.bp.object_type() == ObjectType::OBJSET) {
            let what = format!("pointer to a level {} block of {}", self.bp.level(), self.bp.object_type());
            return Err(Error::new(Kind::Corrupt, what));
        }
        if self.bp.is_embedded() && self.below() != Below::Nothing {
            return Err(Error::corrupt("block that leads to others is in its pointer"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
