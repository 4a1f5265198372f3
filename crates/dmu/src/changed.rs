//! What of an object has changed since a group: the blocks that were born after it, and the holes that may be younger.
//!
//! A block is at least as young as all below it, so what is old is passed over with all below.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use base::{Error, Result};
use format::blkptr::{BlkPtr, Dva};
use format::dnode::Dnode;
use format::ids::{ObjectId, Txg};

use crate::{Object, Objset, ReadRequest, Which};

/// Blocks of pointers are read ahead so many at a time, and as many are under way or read before they are asked for.
const AHEAD: usize = 4;

/// A part of an object.
#[derive(Clone, Copy, Debug)]
pub enum ChangedPart {
    /// A data block, and the pointer to it.
    Data {
        /// Its number.
        blkid: u64,
        /// The pointer.
        bp: BlkPtr,
    },
    /// Data blocks that are not there. Not all tell when they went: it may have been earlier.
    Hole {
        /// Number of the first.
        first: u64,
        /// How many.
        count: u64,
    },
}

impl Object {
    /// Shows `f` all data blocks on disk from number `from` on that were born after group `since_txg`, and the holes
    /// beside them, in their order. Errors: those of reading indirect blocks, and of `f`.
    pub fn changed_since(&self, since_txg: Txg, from: u64, f: &mut dyn FnMut(ChangedPart) -> Result<()>) -> Result<()> {
        self.changed_within(since_txg, from..u64::MAX, f)
    }

    /// As [`Object::changed_since`], of the blocks whose numbers are in `blocks`; holes are cut at its ends.
    pub fn changed_within(
        &self,
        since_txg: Txg,
        blocks: Range<u64>,
        f: &mut dyn FnMut(ChangedPart) -> Result<()>,
    ) -> Result<()> {
        let tree = self.tree();
        let top = tree.levels - 1;
        let mut walk = ChangedWalk { object: self, since_txg, blocks, entered: HashSet::new(), f };
        walk.visit_all(&tree.blkptrs, top, 0)
    }
}

impl Objset {
    /// Starts reading the topmost blocks of pointers of objects that will be walked over soon, as far as they were born
    /// after group `since_txg`.
    pub fn read_pointers_ahead(self: &Arc<Self>, objects: &[(ObjectId, Dnode)], since_txg: Txg) {
        let mut requests = Vec::new();
        for (id, dnode) in objects.iter().filter(|(_, dnode)| dnode.levels > 1) {
            let object = Object::outside(self.clone(), *id, dnode.clone());
            requests.extend(object.younger_pointers(&dnode.blkptrs, dnode.levels - 1, 0, since_txg));
        }
        self.read_ahead(requests);
    }

    /// Starts reading blocks of pointers; errors come again when one is asked for.
    fn read_ahead(self: &Arc<Self>, requests: Vec<ReadRequest>) {
        if requests.is_empty() || self.ahead() == Which::Nothing {
            return;
        }
        let (cache, keep) = (self.cache().clone(), self.keep());
        self.cache().zio().env().background(move || cache.prefetch(&requests, keep));
    }
}

impl Object {
    /// What is to be read of blocks of pointers, the first of which has the number `first`.
    fn younger_pointers(&self, bps: &[BlkPtr], level: u8, first: u64, since_txg: Txg) -> Vec<ReadRequest> {
        let is_younger = |bp: &BlkPtr| !bp.is_hole() && bp.reference_birth() > since_txg;
        let numbered = bps.iter().zip(first..).filter(|(bp, _)| is_younger(bp));
        numbered.map(|(bp, number)| self.request(*bp, level, number)).collect()
    }
}

struct ChangedWalk<'a> {
    object: &'a Object,
    since_txg: Txg,
    blocks: Range<u64>,
    /// Indirect blocks that it has been in: what is in two places could be walked for ever.
    entered: HashSet<Dva>,
    f: &'a mut dyn FnMut(ChangedPart) -> Result<()>,
}

impl ChangedWalk<'_> {
    /// Visits neighbours, the first of which has the number `first`.
    fn visit_all(&mut self, bps: &[BlkPtr], level: u8, first: u64) -> Result<()> {
        for (at, (bp, number)) in bps.iter().zip(first..).enumerate() {
            if level > 0 && at % AHEAD == 0 {
                let from = if at == 0 { 1 } else { at + AHEAD };
                let ahead = &bps[from.min(bps.len())..(at + 2 * AHEAD).min(bps.len())];
                let wanted = self.object.younger_pointers(ahead, level, first + from as u64, self.since_txg);
                self.object.objset().read_ahead(wanted);
            }
            self.visit(bp, level, number)?;
        }
        Ok(())
    }

    fn visit(&mut self, bp: &BlkPtr, level: u8, number: u64) -> Result<()> {
        let tree = self.object.tree();
        let shift = if tree.levels == 1 { 0 } else { tree.pointers_shift() };
        let span_shift = u32::from(level) * shift;
        let first = number.checked_shl(span_shift).filter(|first| first >> span_shift == number);
        // beyond the last block there is nothing; of metadata, whose last block may have gone back, holes are told
        let is_metadata = tree.object_type.is_metadata();
        let Some(first) = first.filter(|first| is_metadata || *first <= tree.block_max) else { return Ok(()) };
        let span = 1u64.checked_shl(span_shift).unwrap_or(u64::MAX);
        let end = first.saturating_add(span);
        if end <= self.blocks.start || first >= self.blocks.end {
            return Ok(());
        }
        let is_old = bp.reference_birth() <= self.since_txg;
        if bp.is_hole() {
            // some holes do not tell when they were made
            if bp.birth() != Txg::ZERO && is_old {
                return Ok(());
            }
            let (first, end) = (first.max(self.blocks.start), end.min(self.blocks.end));
            return (self.f)(ChangedPart::Hole { first, count: end - first });
        }
        if is_old {
            return Ok(());
        }
        if level == 0 {
            return (self.f)(ChangedPart::Data { blkid: number, bp: *bp });
        }
        let block = self.object.get(&tree, *bp, level, number)?;
        if !self.entered.insert(bp.dvas()[0]) {
            let what = "an indirect block is in two places of its object";
            return Err(self.object.placed(Error::corrupt(what), level, number));
        }
        self.visit_all(BlkPtr::slice(&block), level - 1, number << shift)
    }
}
