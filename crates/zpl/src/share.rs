//! Copies that share blocks with what they are copies of: only pointers are written.
//!
//! ```text
//!   blocks of the source on disk   ─▶ taken as they are           (`dmu` `clone`)
//!   holes                          ─▶ holes
//!   changed in memory              ─▶ the next group is waited for, once, if there is much to take
//!   anything else                  ─▶ the rest is copied
//! ```
//!
//! Whole blocks are taken, at the places of blocks of the same size, and what is in the last one of the source if it
//! becomes the last one of the copy. A record of the log has the pointers, if what they lead to is in the last group on
//! disk; else an fsync waits for the group.

use std::sync::Arc;

use base::{Error, Result, tunables};
use dmu::{CloneSource, Object};
use format::blkptr::BlkPtr;
use format::sa::Attr;
use zil::Intent;

use crate::attr_tables::{time, word};
use crate::contents::SIZE_MAX;
use crate::op::Op;
use crate::{File, Zpl};

/// Longest block.
const BLOCK_BYTES_MAX: u64 = 16 << 20;
/// Blocks that are taken in one transaction.
const STEP_BLOCKS: u64 = 256;
/// For so many bytes, what has been changed in memory is worth waiting for.
const WAIT_BYTES: u64 = 1 << 20;

/// What a step has come to.
enum Shared {
    /// So many bytes were taken; there may be more.
    Some(u64),
    /// Nothing can be taken here.
    Nothing,
    /// Nothing can be taken before the next group is on disk.
    NotYet,
}

/// Blocks to be taken, and where they come to lie.
struct ShareRange {
    block_bytes: u64,
    from_blkid: u64,
    blkid: u64,
    blocks: u64,
    /// Bytes, less than all blocks have if the last one is that of the file.
    bytes: u64,
}

impl File {
    /// Takes blocks of `from` where that can be done, from `from_offset` on, to `offset`. How many bytes: 0 if the first
    /// of them have to be copied. Errors: as of [`File::write`].
    pub(crate) fn share_from(&self, zpl: &Zpl, offset: u64, from: &File, from_offset: u64, len: u64) -> Result<u64> {
        let is_same_set = from.zpl().is_some_and(|of| Arc::ptr_eq(of.objset(), zpl.objset()));
        let live = zpl.live()?;
        let is_wanted = || live.tunable(tunables::ZFS_BCLONE_ENABLED) != 0;
        if !is_same_set || !live.options().shares_blocks || !is_wanted() {
            return Ok(0);
        }
        let waits = || live.tunable(tunables::ZFS_BCLONE_WAIT_DIRTY) != 0;
        let (mut done, mut has_waited) = (0, false);
        while done < len {
            match self.share_step(zpl, offset + done, from, from_offset + done, len - done) {
                Ok(Shared::Some(bytes)) => done += bytes,
                Ok(Shared::NotYet) if !has_waited && len - done >= WAIT_BYTES && waits() => {
                    has_waited = true;
                    live.txgs().wait_synced()?;
                }
                Ok(Shared::Nothing | Shared::NotYet) => break,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    fn share_step(&self, zpl: &Zpl, offset: u64, from: &File, from_offset: u64, len: u64) -> Result<Shared> {
        let block_bytes = from.object().fresh()?.dnode().block_size;
        zpl.check_owners(self.object())?;
        let step = len.min(block_bytes.saturating_mul(STEP_BLOCKS));
        let (op, room) = zpl.begin_some(offset, step as usize)?;
        let len = if (room as u64) < step { room as u64 } else { len };
        let _held = op.alone(&[self.ino(), from.ino()]);
        let (source, object) = (from.object().fresh()?, self.object().fresh()?);
        let (from_size, size) = (zpl.size_of(&source)?, zpl.size_of(&object)?);
        let wanted = ShareRange::plan(&source, from_size, (from_offset, offset), len, size);
        let Some(mut range) = wanted.filter(|range| range.fits(&object, size)) else { return Ok(Shared::Nothing) };
        let mut taken = Vec::new();
        for blkid in range.from_blkid..range.from_blkid + range.blocks {
            match source.clone_source(blkid)? {
                CloneSource::Changed if taken.is_empty() => return Ok(Shared::NotYet),
                CloneSource::Changed | CloneSource::Unfit => break,
                CloneSource::Block(bp) => taken.push(Some(bp)),
                CloneSource::Hole => taken.push(None),
            }
        }
        if taken.is_empty() {
            return Ok(Shared::Nothing);
        }
        range.shorten(taken.len() as u64);
        op.check_writable(&object, offset < size)?;
        op.take_blocks(&object, &range, &taken)?;
        let object = object.fresh()?;
        let times = [time(Attr::Mtime, op.now()), time(Attr::Ctime, op.now())];
        match offset + range.bytes > size {
            true => {
                op.change(&object, &[word(Attr::Size, offset + range.bytes), times[0].clone(), times[1].clone()])?
            }
            false => op.change(&object, &times)?,
        }
        // what is not in the last group on disk could not be claimed after a crash
        let synced = zpl.live()?.txgs().synced_txg();
        let can_be_claimed = taken.iter().flatten().all(|bp| bp.physical_birth() <= synced);
        let intent = can_be_claimed.then(|| Intent::Clone {
            object: object.id(),
            offset,
            len: range.bytes,
            block_size: range.block_bytes,
            blocks: taken.iter().map(|taken| taken.unwrap_or(BlkPtr::HOLE)).collect(),
        });
        op.log_object(&object, intent.as_ref())?;
        Ok(Shared::Some(range.bytes))
    }
}

impl ShareRange {
    /// The blocks that lie wholly in a range of the source, and in the same way at the target; with the last one of the
    /// file if nothing of the target is behind it. `None` if there are none.
    fn plan(source: &Object, from_size: u64, (from, to): (u64, u64), len: u64, size: u64) -> Option<ShareRange> {
        let block_bytes = source.dnode().block_size;
        if block_bytes == 0 || from % block_bytes != 0 || to % block_bytes != 0 || from >= from_size {
            return None;
        }
        let bytes = len.min(from_size - from).min(block_bytes.saturating_mul(STEP_BLOCKS));
        to.checked_add(bytes).filter(|&end| end <= SIZE_MAX)?;
        let is_last = from + bytes == from_size && to + bytes >= size;
        let blocks = if is_last { bytes.div_ceil(block_bytes) } else { bytes / block_bytes };
        let bytes = bytes.min(blocks * block_bytes);
        let (from_blkid, blkid) = (from / block_bytes, to / block_bytes);
        (blocks > 0).then_some(ShareRange { block_bytes, from_blkid, blkid, blocks, bytes })
    }

    /// Whether the target has blocks of that size, or can have them.
    fn fits(&self, object: &Object, size: u64) -> bool {
        let dnode = object.dnode();
        let has_one = dnode.block_max == 0 && size <= dnode.block_size.max(self.block_bytes);
        match self.block_bytes.is_power_of_two() {
            true => dnode.block_size == self.block_bytes || has_one && dnode.block_size < self.block_bytes,
            // a file with blocks of another size has only one
            false => has_one && (self.blkid, self.blocks) == (0, 1) && dnode.block_size <= self.block_bytes,
        }
    }

    /// Leaves only the first blocks.
    fn shorten(&mut self, blocks: u64) {
        self.blocks = blocks;
        self.bytes = self.bytes.min(blocks * self.block_bytes);
    }
}

impl Op<'_> {
    /// Takes the blocks of an object that a record of the log tells of. False if the object has blocks of another size.
    /// Errors: `Corrupt` if they can be in no file.
    pub(crate) fn take_logged(
        &self,
        object: &Object,
        (offset, bytes): (u64, u64),
        block_bytes: u64,
        blocks: &[BlkPtr],
    ) -> Result<bool> {
        let makes_sense = (1..=BLOCK_BYTES_MAX).contains(&block_bytes)
            && offset.is_multiple_of(block_bytes)
            && bytes.div_ceil(block_bytes) == blocks.len() as u64
            && blocks.iter().all(|bp| bp.is_hole() || bp.lsize() == block_bytes)
            && offset.checked_add(bytes).is_some_and(|end| bytes > 0 && end <= SIZE_MAX);
        if !makes_sense {
            let what = format!("clones of {} blocks of {block_bytes} bytes at {offset}", blocks.len());
            return Err(Error::corrupt(what));
        }
        let blkid = offset / block_bytes;
        let range = ShareRange { block_bytes, from_blkid: 0, blkid, blocks: blocks.len() as u64, bytes };
        if !range.fits(object, self.zpl().size_of(object)?) {
            return Ok(false);
        }
        let taken: Vec<Option<BlkPtr>> = blocks.iter().map(|bp| Some(*bp).filter(|bp| !bp.is_hole())).collect();
        self.take_blocks(object, &range, &taken).map(|()| true)
    }

    fn take_blocks(&self, object: &Object, range: &ShareRange, taken: &[Option<BlkPtr>]) -> Result<()> {
        if object.dnode().block_size != range.block_bytes {
            object.set_block_size(self.tx(), range.block_bytes)?;
        }
        for (blkid, taken) in (range.blkid..).zip(taken) {
            match taken {
                Some(bp) => object.put_clone(self.tx(), blkid, *bp)?,
                None => object.free_range(self.tx(), blkid * range.block_bytes, range.block_bytes)?,
            }
        }
        Ok(())
    }
}
