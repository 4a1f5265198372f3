//! Blocks of intent logs.
//!
//! ```text
//!   allocate ─▶ pointer, which the block before tells ─▶ sealed by the log ─▶ write ─▶ flush
//! ```
//!
//! Nobody waits here for what groups write: log blocks go past the queue, and only the vdevs that they are on
//! are flushed. A log block goes back to the allocator as what is older does, even in the group that it was
//! allocated in, since the latest uberblock on disk may lead to it until the group is there. So does a block of
//! data that a log leads to.

use std::collections::BTreeSet;

use base::{Block, Bookmark, Error, Kind, Result};
use codec::checksum::{Checksum, Sum};
use codec::compress::Compress;
use format::blkptr::{BlkPtr, BlkPtrBuilder, BlockShape, Dva};
use format::ids::{Txg, VdevNumber};
use format::object_type::ObjectType;
use vdev::{Extent, Purpose};

use crate::alloc::Class;
use crate::issue::{BlockSlice, ExtentWrite};
use crate::write::PlacedBlock;
use crate::zio::Zio;

/// A vdev for logs that failed with a block gets none for so many groups.
const SHUN_TXGS: u64 = 10;
/// What is written of a log block is a multiple of this, in bytes: what a zilog2 sum is of.
const LOG_BLOCK_UNIT: u64 = 4096;

impl Zio {
    /// Allocates a log block of at least `size` bytes in `txg`: of class `Log`, or `Normal` to spare vdevs for logs.
    /// `name` is what stands in place of its checksum, `left` what stays free for groups. Errors: `NoSpace`; `ReadOnly`.
    pub fn allocate_log_block(&self, txg: Txg, class: Class, size: u64, name: Sum, left: u64) -> Result<BlkPtr> {
        let allocator = self.allocator()?;
        let size = size.next_multiple_of(self.log_block_unit());
        let dvas = allocator.allocate_ahead(class, size, 1, txg, left)?;
        let shape = BlockShape {
            lsize: size,
            psize: size,
            compress: Compress::Off as u8,
            checksum: Checksum::Zilog2 as u8,
            object_type: ObjectType::INTENT_LOG,
            level: 0,
        };
        Ok(BlkPtrBuilder::new(shape, txg).at(&dvas).checksum(name).build())
    }

    /// The size of a log block is a multiple of this many bytes.
    pub fn log_block_unit(&self) -> u64 {
        let sector = |class| self.allocator().map_or(0, |allocator| allocator.sector(class));
        LOG_BLOCK_UNIT.max(sector(Class::Log)).max(sector(Class::Normal))
    }

    /// Whether a log block is on a vdev that is set aside for logs.
    pub fn is_on_log_vdev(&self, bp: &BlkPtr) -> bool {
        let top = self.tree().top(bp.dvas()[0].vdev()).ok();
        top.and_then(vdev::Vdev::top_spec).is_some_and(|spec| spec.is_log)
    }

    /// How many bytes of a log block must be written if `used` are used. Where there is parity, it is that of
    /// the whole block.
    pub fn log_block_len(&self, bp: &BlkPtr, used: usize) -> usize {
        let size = bp.psize() as usize;
        let kind = self.tree().top(bp.dvas()[0].vdev()).map(vdev::Vdev::kind);
        match kind {
            Ok(vdev::VdevKind::Raidz { .. } | vdev::VdevKind::Draid(_)) | Err(_) => size,
            Ok(_) => used.next_multiple_of(LOG_BLOCK_UNIT as usize).min(size),
        }
    }

    /// Writes log blocks, of each as many bytes as [`Zio::log_block_len`] says, and blocks that they lead to. They last
    /// when their vdevs are flushed. Errors: those of the first that could not be written. A vdev for logs that fails
    /// gets no log blocks for a while.
    pub fn write_log_blocks(&self, blocks: Vec<(BlkPtr, Block, usize)>, data: Vec<PlacedBlock>) -> Result<()> {
        let mut writes: Vec<ExtentWrite> = data.into_iter().flat_map(PlacedBlock::into_writes).collect();
        let data = writes.len();
        writes.extend(blocks.into_iter().map(|(bp, block, len)| {
            let dva = bp.dvas()[0];
            let bytes = BlockSlice::new(block, 0..len);
            ExtentWrite::new(&dva, dva.asize(), bp.physical_birth(), bytes, Bookmark::default())
        }));
        self.issue_now(&writes)?;
        // groups lead to data: a flush that fails may lose them
        self.queue().keep(writes.into_iter().take(data));
        Ok(())
    }

    /// Issues writes past those that wait, and returns when they are on the devices.
    fn issue_now(&self, writes: &[ExtentWrite]) -> Result<()> {
        writes.iter().for_each(|write| self.queue().finish_overlapping(write.extent.top, write.range.clone()));
        let parts: Vec<(Extent, &[u8])> = writes.iter().map(|write| (write.extent, &*write.bytes)).collect();
        // what a leaf has alone must not be taken off with it before that is noted
        let _steady = self.tree().hold_shape();
        let results = self.tree().write_batch_for(Purpose::SyncWrite, &parts);
        for (write, _) in writes.iter().zip(&results).filter(|(_, result)| result.is_err()) {
            self.shun(write.extent.top, write.extent.birth_txg);
        }
        results.into_iter().collect()
    }

    /// Flushes top-level vdevs that log blocks of groups up to about `txg` were written to. Errors: as from
    /// [`Tree::flush_tops`]; then vdevs for logs get no log blocks for a while.
    ///
    /// [`Tree::flush_tops`]: vdev::Tree::flush_tops
    pub fn flush_log_blocks(&self, tops: &BTreeSet<VdevNumber>, txg: Txg) -> Result<()> {
        let _steady = self.tree().hold_shape();
        let flushed = self.tree().flush_tops(&Vec::from_iter(tops.iter().copied()));
        if flushed.is_err() {
            tops.iter().for_each(|top| self.shun(*top, txg));
        }
        flushed
    }

    fn shun(&self, top: VdevNumber, txg: Txg) {
        let until = txg.plus(SHUN_TXGS);
        self.allocator().into_iter().for_each(|allocator| allocator.shun(top, until));
    }

    /// Frees a log block in `txg`, in which it may have been allocated. Errors: as from [`Zio::free`].
    pub fn free_log_block(&self, txg: Txg, bp: &BlkPtr) -> Result<()> {
        let allocator = self.allocator()?;
        let free = |dva: &Dva| match dva.is_gang() {
            true => Err(gang()),
            false => allocator.release(txg, dva, bp.physical_birth()),
        };
        bp.copies().map(free).fold(Ok(()), Result::and)
    }

    /// Allocates in `txg` the blocks that a log left by a crash leads to, its own or those of data: all or,
    /// after an error, none. Errors: `Corrupt` if one is not free.
    pub fn claim(&self, txg: Txg, blocks: &[BlkPtr]) -> Result<()> {
        let allocator = self.allocator()?;
        let mut claimed: Vec<Dva> = Vec::new();
        let mut claim_all = || -> Result<()> {
            for bp in blocks {
                for dva in self.addresses_of(bp)? {
                    allocator.claim(txg, &dva)?;
                    claimed.push(dva);
                }
            }
            Ok(())
        };
        claim_all().inspect_err(|_| {
            claimed.iter().for_each(|dva| allocator.unallocate(txg, dva).expect("allocated a moment ago"));
        })
    }
}

fn gang() -> Error {
    Error::new(Kind::Unsupported, "a log block in pieces")
}
