//! Copies that share blocks with what they are copies of: only pointers are written.
//!
//! ```text
//!   blocks of the source on disk   ─▶ taken as they are           (`dmu` `clone`); if it is in another object set, a
//!                                     snapshot for instance, its root is held meanwhile (`dmu` `roots`)
//!   holes                          ─▶ holes
//!   changed in memory              ─▶ the next group is waited for, once, if there is much to take
//!   anything else                  ─▶ the rest is copied
//! ```
//!
//! Whole blocks are taken, at the places of blocks of the same size, and what is in the last one of the source if it
//! becomes the last one of the copy. A record of the log has the pointers, if what they lead to is in the last group on
//! disk; else an fsync waits for the group.

use base::{Error, Result, tunables};
use dmu::{CloneSource, Object, RootHolder};
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
    /// As [`File::copy_from`], as far as blocks can be shared; `from` may be of another file system or snapshot of the same
    /// pool. How many bytes: 0 if the first of them have to be copied.
    pub fn share(&self, offset: u64, from: &File, from_offset: u64, len: u64) -> Result<u64> {
        let zpl = self.writable()?;
        let shared = zpl.placed(self.ino(), self.share_from(zpl, offset, from, from_offset, len))?;
        if shared > 0 { zpl.settled(self.ino(), Ok(shared)) } else { Ok(0) }
    }

    /// Takes blocks of `from` where that can be done, from `from_offset` on, to `offset`. How many bytes: 0 if the first
    /// of them have to be copied. Errors: as of [`File::write`].
    fn share_from(&self, zpl: &Zpl, offset: u64, from: &File, from_offset: u64, len: u64) -> Result<u64> {
        let live = zpl.live()?;
        let is_wanted = live.tunable(tunables::ZFS_BCLONE_ENABLED) != 0;
        let roots = live.options().shares.filter(|roots| is_wanted && roots.counts_clones());
        let Some(roots) = roots else { return Ok(0) };
        let waits = || live.tunable(tunables::ZFS_BCLONE_WAIT_DIRTY) != 0;
        let (mut done, mut has_waited) = (0, false);
        while done < len {
            match self.share_step(zpl, &*roots, offset + done, from, from_offset + done, len - done) {
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

    fn share_step(
        &self,
        zpl: &Zpl,
        roots: &dyn RootHolder,
        offset: u64,
        from: &File,
        from_offset: u64,
        len: u64,
    ) -> Result<Shared> {
        let source_set = from.object().objset();
        let other_root = if source_set.is_same(zpl.objset()) { None } else { Some(roots.hold_root(source_set)?) };
        if let Some(None) = other_root {
            return Ok(Shared::Nothing);
        }
        let block_bytes = from.now()?.0.dnode().block_size;
        zpl.check_owners(self.object())?;
        let step = len.min(block_bytes.saturating_mul(STEP_BLOCKS));
        let (op, room) = zpl.begin_some(offset, step as usize)?;
        let len = if (room as u64) < step { room as u64 } else { len };
        // nothing of another set that changes before this ends is in an earlier group
        let _alone = match other_root {
            None => op.alone(&[self.ino(), from.ino()]),
            Some(_) => op.alone(&[self.ino()]),
        };
        let ((source, from_size), (object, size)) = (from.now()?, self.now()?);
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
        op.log_clone(&object, intent.as_ref())?;
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
