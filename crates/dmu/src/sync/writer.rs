//! Where blocks go: with the set's policy to the pipeline, into the cache, and to the ledger.

use std::sync::Arc;

use arc::Cache;
use base::Result;
use codec::checksum::Checksum;
use codec::compress::Compress;
use format::blkptr::{BlkPtr, BlkPtrBuilder, BlockShape};
use format::ids::Txg;
use format::object_type::ObjectType;
use zio::alloc::Class;
use zio::{BlockWrite, DedupMode, WritePolicy, WrittenBlock};

use super::ledger::Ledger;
use crate::policy::Redundant;
use crate::{Keep, Objset, ObjsetPolicy};

/// Blocks of new data that are so large come in floods, when files are copied.
const FLOOD_BLOCK_SIZE: usize = 64 << 10;
/// Bytes of them that a group leaves in the cache. To fill it with what may never be read would cost fresh
/// memory for each, which is dearer than the copy into it.
const FLOOD_CACHED_BYTES: usize = 16 << 20;

/// With `redundant_metadata=most`, indirect blocks from this level on have an extra copy.
const DITTO_LEVEL: u8 = 2;

pub(super) struct BlockWriter<'a> {
    cache: Arc<Cache>,
    keep: Keep,
    txg: Txg,
    policy: ObjsetPolicy,
    ledger: &'a mut dyn Ledger,
    /// Bytes of large new blocks so far.
    flood_bytes: usize,
    /// No block is written in the place of the one before it.
    elsewhere: bool,
}

impl<'a> BlockWriter<'a> {
    pub(super) fn new(objset: &Objset, txg: Txg, policy: ObjsetPolicy, ledger: &'a mut dyn Ledger) -> BlockWriter<'a> {
        let (cache, keep) = (objset.cache().clone(), objset.keep());
        BlockWriter { cache, keep, txg, policy, ledger, flood_bytes: 0, elsewhere: false }
    }

    /// The same, which writes no block where the one before it is, nor leaves it there or where a twin is.
    pub(super) fn elsewhere(self) -> BlockWriter<'a> {
        let policy = ObjsetPolicy { dedup: DedupMode::Off, ..self.policy };
        BlockWriter { elsewhere: true, policy, ..self }
    }

    /// Version of the pool.
    pub(super) fn pool_version(&self) -> u64 {
        self.policy.pool_version
    }

    /// The group.
    pub(super) fn txg(&self) -> Txg {
        self.txg
    }

    /// How a block is written whose object asks for checksum and compression by the numbers `own`; 0 if it does not.
    pub(super) fn policy_of(&self, level: u8, object_type: ObjectType, own: (u8, u8)) -> WritePolicy {
        write_policy(&self.policy, level, object_type, own)
    }

    /// Writes blocks; pointers are in their order.
    pub(super) fn write(&mut self, mut batch: Vec<BlockWrite>) -> Result<Vec<BlkPtr>> {
        if self.elsewhere {
            batch.iter_mut().for_each(|write| write.previous = BlkPtr::HOLE);
        }
        let zio = self.cache.zio().clone();
        let mut pointers = Vec::with_capacity(batch.len());
        for write in &batch {
            // In later passes of a group, what it wrote already is written anew in its place: so that
            // passes come to an end.
            let is_new =
                self.policy.is_meta && !write.previous.is_hole() && write.previous.physical_birth() == self.txg;
            pointers.push(if is_new { zio.rewrite(self.txg, &write.previous, write)? } else { None });
        }
        if pointers.iter().all(Option::is_none) {
            let written = zio.write_batch(self.txg, &batch);
            if self.elsewhere && written.iter().any(Result::is_err) {
                // the group goes on without them
                let mut done = written.iter().flatten();
                done.try_for_each(|written| self.cache.free(self.txg, &written.bp).map(drop))?;
            }
            return batch.into_iter().zip(written).map(|(write, written)| Ok(self.remember(written?, write))).collect();
        }
        let todo: Vec<BlockWrite> =
            batch.iter().zip(&pointers).filter(|(_, done)| done.is_none()).map(|(write, _)| write.clone()).collect();
        let mut written = zio.write_batch(self.txg, &todo).into_iter();
        let mut results = Vec::with_capacity(batch.len());
        for (write, done) in batch.into_iter().zip(pointers) {
            let written = match done {
                Some(bp) => WrittenBlock { bp, packed: None },
                None => written.next().expect("a pointer for each request")?,
            };
            results.push(self.remember(written, write));
        }
        Ok(results)
    }

    /// Takes a block that is written already; its pointer.
    pub(super) fn adopt(&mut self, write: BlockWrite, bp: &BlkPtr) -> Result<BlkPtr> {
        let zio = self.cache.zio();
        let adopted = zio.adopt(self.txg, &write, bp)?;
        if adopted.dvas() != bp.dvas() {
            // the log may lead to it yet
            zio.free_log_block(self.txg, bp)?;
        }
        Ok(self.remember(WrittenBlock { bp: adopted, packed: None }, write))
    }

    /// Frees blocks that were written early in this group, and are outdated.
    pub(super) fn free_outdated(&self, blocks: &[BlkPtr]) -> Result<()> {
        let zio = self.cache.zio();
        blocks.iter().try_for_each(|bp| zio.free_log_block(self.txg, bp))
    }

    /// Lets the cache have a block; its pointer.
    fn remember(&mut self, written: WrittenBlock, write: BlockWrite) -> BlkPtr {
        let bp = written.bp;
        match self.is_flood(&write) {
            true => self.cache.renew(written, write.data),
            false => self.cache.insert(written, write.data, self.keep),
        }
        bp
    }

    /// Counts a block. Is it one of too many to be kept?
    fn is_flood(&mut self, request: &BlockWrite) -> bool {
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
        let is_counted = bp.is_hole() || bp.is_embedded() || bp.is_dedup();
        if previous.dvas() == bp.dvas() && previous.birth() == bp.birth() && !is_counted {
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
        match self.policy.hole_birth && previous.birth() != Txg::ZERO {
            true => BlkPtrBuilder::new(BlockShape::of_hole(lsize, object_type, level), self.txg).hole(),
            false => BlkPtr::HOLE,
        }
    }
}

/// How a block of a set is written; `own` are the numbers of checksum and compression that its object asks for.
pub(crate) fn write_policy(set: &ObjsetPolicy, level: u8, object_type: ObjectType, own: (u8, u8)) -> WritePolicy {
    let is_meta = set.is_meta || level > 0 || object_type.is_metadata();
    let (embed, hole_birth) = (set.embed, set.hole_birth);
    if is_meta {
        let copies = match set.is_meta {
            true => 3,
            false => (set.copies + u8::from(has_extra_copy(set.redundant, level, object_type))).min(3),
        };
        let checksum = if set.checksum.is_for_metadata() { set.checksum } else { Checksum::Fletcher4 };
        let compress = Compress::from_u8(own.1).filter(|kind| kind.is_concrete()).unwrap_or(set.compress_meta);
        let class = if object_type == ObjectType::DDT_ZAP { Class::Dedup } else { Class::Special };
        let dedup = DedupMode::Off;
        return WritePolicy {
            checksum,
            dedup,
            compress,
            compress_level: 0,
            copies,
            class,
            special_up_to: 0,
            embed,
            hole_birth,
        };
    }
    let checksum = match set.dedup {
        DedupMode::Off => Checksum::from_u8(own.0).filter(|kind| kind.is_concrete()).unwrap_or(set.checksum),
        _ => set.dedup_checksum,
    };
    let compress = Compress::from_u8(own.1).filter(|kind| kind.is_concrete()).unwrap_or(set.compress);
    let ObjsetPolicy { compress_level, copies, special_up_to, dedup, .. } = *set;
    let class = Class::Normal;
    WritePolicy { checksum, dedup, compress, compress_level, copies, class, special_up_to, embed, hole_birth }
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
