//! Where blocks go: with the set's policy to the pipeline, into the cache, and to the ledger.

use std::sync::Arc;

use arc::Cache;
use base::{Block, Bookmark, Result};
use codec::checksum::Checksum;
use codec::compress::Compress;
use format::blkptr::BlkPtr;
use format::object_type::ObjectType;
use zio::alloc::Class;
use zio::{WritePolicy, WriteRequest, Written};

use super::ledger::Ledger;
use crate::policy::Redundant;
use crate::{Keep, Objset, Policy};

/// Blocks of new data that are so large come in floods, when files are copied.
const FLOOD_BLOCK_SIZE: usize = 64 << 10;
/// Bytes of them that a group leaves in the cache. To fill it with what may never be read would cost fresh
/// memory for each, which is dearer than the copy into it.
const FLOOD_CACHED_BYTES: usize = 16 << 20;

/// With `redundant_metadata=most`, indirect blocks from this level on have an extra copy.
const DITTO_LEVEL: u8 = 2;

/// A block on its way.
pub(super) struct Out {
    pub(super) contents: Block,
    pub(super) object_type: ObjectType,
    pub(super) level: u8,
    pub(super) bookmark: Bookmark,
    pub(super) previous: BlkPtr,
    pub(super) fill: u64,
    /// Numbers of checksum and compression that the object asks for itself; 0 if it does not.
    pub(super) own: (u8, u8),
}

impl Out {
    /// The head of a set.
    pub(super) fn head(objset: u64, contents: Block, previous: BlkPtr) -> Out {
        let bookmark = Bookmark { objset, object: 0, level: Objset::HEAD_LEVEL, blkid: 0 };
        Out { contents, object_type: ObjectType::OBJSET, level: 0, bookmark, previous, fill: 0, own: (0, 0) }
    }
}

pub(super) struct Writer<'a> {
    cache: Arc<Cache>,
    keep: Keep,
    txg: u64,
    policy: Policy,
    ledger: &'a mut dyn Ledger,
    /// Bytes of large new blocks so far.
    flood_bytes: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(objset: &Objset, txg: u64, policy: Policy, ledger: &'a mut dyn Ledger) -> Writer<'a> {
        Writer { cache: objset.cache().clone(), keep: objset.keep(), txg, policy, ledger, flood_bytes: 0 }
    }

    /// The group.
    pub(super) fn txg(&self) -> u64 {
        self.txg
    }

    /// Writes blocks; pointers are in their order, without fill counts.
    pub(super) fn write(&mut self, batch: Vec<Out>) -> Result<Vec<BlkPtr>> {
        let zio = self.cache.zio().clone();
        let mut pointers = Vec::with_capacity(batch.len());
        let mut requests = Vec::with_capacity(batch.len());
        for out in batch {
            let request = self.request(out);
            // In later passes of a group, what it wrote already is written anew in its place: so that
            // passes come to an end.
            let is_new =
                self.policy.is_meta && !request.previous.is_hole() && request.previous.physical_birth() == self.txg;
            let rewritten = if is_new { zio.rewrite(self.txg, &request.previous, &request)? } else { None };
            pointers.push(rewritten);
            requests.push(request);
        }
        let todo: Vec<WriteRequest> = requests
            .iter()
            .zip(&pointers)
            .filter(|(_, done)| done.is_none())
            .map(|(request, _)| request.clone())
            .collect();
        let mut written = zio.write_batch(self.txg, &todo).into_iter();
        let mut results = Vec::with_capacity(requests.len());
        for (request, done) in requests.into_iter().zip(pointers) {
            let written = match done {
                Some(bp) => Written { bp, packed: None },
                None => written.next().expect("a pointer for each request")?,
            };
            results.push(written.bp);
            self.remember(written, request);
        }
        Ok(results)
    }

    /// Takes a block that is written already.
    pub(super) fn adopt(&mut self, out: Out, bp: &BlkPtr) {
        let request = self.request(out);
        self.remember(Written { bp: *bp, packed: None }, request);
    }

    /// Frees blocks that were written early in this group, and are outdated.
    pub(super) fn free_outdated(&self, blocks: &[BlkPtr]) -> Result<()> {
        let zio = self.cache.zio();
        blocks.iter().try_for_each(|bp| zio.free_log_block(self.txg, bp))
    }

    fn request(&self, out: Out) -> WriteRequest {
        WriteRequest {
            policy: write_policy(&self.policy, out.level, out.object_type, out.own),
            data: out.contents,
            object_type: out.object_type,
            level: out.level,
            bookmark: out.bookmark,
            previous: out.previous,
        }
    }

    /// Lets the cache have a block.
    fn remember(&mut self, written: Written, request: WriteRequest) {
        match self.is_flood(&request) {
            true => self.cache.renew(written, request.data),
            false => self.cache.insert(written, request.data, self.keep),
        }
    }

    /// Counts a block. Is it one of too many to be kept?
    fn is_flood(&mut self, request: &WriteRequest) -> bool {
        let is_data = request.level == 0 && !request.object_type.is_metadata() && !self.policy.is_meta;
        if !is_data || !request.previous.is_hole() || request.data.len() < FLOOD_BLOCK_SIZE {
            return false;
        }
        self.flood_bytes += request.data.len();
        self.flood_bytes > FLOOD_CACHED_BYTES
    }

    /// Tells the ledger that one block takes the place of another; bytes that the old one took, and that the
    /// new one takes.
    pub(super) fn replace(&mut self, previous: &BlkPtr, bp: &BlkPtr) -> Result<(u64, u64)> {
        // written anew in its place, or not written because it is the same
        if previous.dvas() == bp.dvas() && previous.birth() == bp.birth() && !bp.is_hole() && !bp.is_embedded() {
            return Ok((0, 0));
        }
        if !bp.is_hole() {
            self.ledger.born(bp);
        }
        if !previous.is_hole() {
            self.ledger.killed(previous)?;
        }
        Ok((dsize(&self.cache, previous), dsize(&self.cache, bp)))
    }

    /// What is left of a block that is gone.
    pub(super) fn hole(&self, previous: &BlkPtr, lsize: u64, object_type: ObjectType, level: u8) -> BlkPtr {
        match self.policy.hole_birth && previous.birth() != 0 {
            true => BlkPtr::new_hole(lsize, object_type, level, self.txg),
            false => BlkPtr::HOLE,
        }
    }
}

/// How a block of a set is written; `own` are the numbers of checksum and compression that its object asks for.
pub(crate) fn write_policy(set: &Policy, level: u8, object_type: ObjectType, own: (u8, u8)) -> WritePolicy {
    let is_meta = set.is_meta || level > 0 || object_type.is_metadata();
    let embed = set.embed;
    if is_meta {
        let copies = match set.is_meta {
            true => 3,
            false => (set.copies + u8::from(has_extra_copy(set.redundant, level, object_type))).min(3),
        };
        let checksum = if set.checksum.is_for_metadata() { set.checksum } else { Checksum::Fletcher4 };
        let compress = Compress::from_u8(own.1).filter(|kind| kind.is_concrete()).unwrap_or(set.compress_meta);
        let class = Class::Special;
        return WritePolicy { checksum, compress, compress_level: 0, copies, class, special_up_to: 0, embed };
    }
    let checksum = Checksum::from_u8(own.0).filter(|kind| kind.is_concrete()).unwrap_or(set.checksum);
    let compress = Compress::from_u8(own.1).filter(|kind| kind.is_concrete()).unwrap_or(set.compress);
    let Policy { compress_level, copies, special_up_to, .. } = *set;
    WritePolicy { checksum, compress, compress_level, copies, class: Class::Normal, special_up_to, embed }
}

/// Whether a block of metadata has a copy more than data has. Source: the behaviour of OpenZFS 2.4.
fn has_extra_copy(redundant: Redundant, level: u8, object_type: ObjectType) -> bool {
    match redundant {
        Redundant::All => true,
        Redundant::Most => level >= DITTO_LEVEL || object_type.is_metadata(),
        Redundant::Some => {
            let is_small = match object_type {
                ObjectType::DNODE => level == 0,
                kind => matches!(kind, ObjectType::DIRECTORY_CONTENTS | ObjectType::SA),
            };
            object_type.is_metadata() && !is_small
        }
        Redundant::None => false,
    }
}

/// Bytes that a block is charged with: what it takes on all its vdevs, less what parity takes.
pub fn dsize(cache: &Cache, bp: &BlkPtr) -> u64 {
    if bp.is_embedded() {
        return 0;
    }
    let tree = cache.zio().tree();
    bp.copies().map(|dva| tree.deflate(dva.vdev(), dva.asize()).unwrap_or(dva.asize())).sum()
}
