//! Entries become log blocks, still without the pointers that join them.
//!
//! ```text
//!   entries ─▶ | link | record | record | wri | ─▶ | link | te | record |        |
//!                                         └──── a write is cut to fill a block ────┘ bytes behind what is used
//! ```
//!
//! All records but writes lie in one block. The first block is the tail of the chain, whose size was chosen
//! before; the others are as large as what is left.

use base::{AlignedBuf, CopyKind, Error, Kind, RecordPlace, Result, count_copy};
use format::ids::Txg;

use crate::LoggedContents;
use crate::entry::{ItxBody, PendingItx};
use crate::record::{HEAD_SIZE, TYPE_WRITE};
use crate::stats::{Stats, add};
use crate::walk::LINK_SIZE;

/// The largest log block, bytes.
pub(crate) const BLOCK_SIZE_MAX: usize = 128 << 10;
/// What follows the head in a write, before its data.
const WRITE_SIZE: usize = 4 * 8 + format::blkptr::BlkPtr::SIZE;
/// What machines take to be written as a whole, bytes.
const SECTOR: usize = 512;
/// In a block with less room than this, a write that does not fit is not begun.
const CUT_MIN: usize = 16 << 10;

/// The longest record that is no write, bytes.
pub(crate) const RECORD_SIZE_MAX: usize = BLOCK_SIZE_MAX - LINK_SIZE;

/// A block in the making.
pub(crate) struct Draft {
    pub(crate) bytes: AlignedBuf,
    /// Bytes in use, the link at the beginning included.
    pub(crate) used: usize,
    /// The last group of a record in it.
    pub(crate) last_txg: Txg,
}

/// Puts entries into blocks.
pub(crate) struct Drafts<'a> {
    pub(crate) blocks: Vec<Draft>,
    /// Records of the log in memory, and the sequence numbers that they have in this one.
    pub(crate) kept: Vec<(RecordPlace, u64)>,
    /// Sequence number of the last record.
    pub(crate) seq: u64,
    /// Sizes of blocks are multiples of this.
    unit: usize,
    /// About how many bytes are to come.
    left: usize,
    contents: Option<&'a dyn LoggedContents>,
    stats: &'a Stats,
}

impl<'a> Drafts<'a> {
    /// With a first block of `size`, for `items`. Records are numbered after `seq`.
    pub(crate) fn new(
        (size, unit): (usize, usize),
        seq: u64,
        items: &[PendingItx],
        contents: Option<&'a dyn LoggedContents>,
        stats: &'a Stats,
    ) -> Drafts<'a> {
        let left = items.iter().map(size_of).sum();
        let mut drafts = Drafts { blocks: Vec::new(), kept: Vec::new(), seq, unit, left, contents, stats };
        drafts.add(size);
        drafts
    }

    /// Adds records for an entry. Errors: those of the file's contents.
    pub(crate) fn put(&mut self, item: &PendingItx) -> Result<()> {
        let left = self.left.saturating_sub(size_of(item));
        match &item.body {
            ItxBody::Record { kind, bytes } => {
                self.need(HEAD_SIZE + bytes.len().next_multiple_of(8));
                self.block().space(HEAD_SIZE)[..bytes.len()].copy_from_slice(bytes);
                self.finish(item.txg, *kind, bytes.len());
            }
            ItxBody::Write { .. } => self.put_write(item)?,
            ItxBody::Unloggable => unreachable!("who has such an entry waits"),
        }
        self.left = left;
        self.kept.extend(item.kept.map(|place| (place, self.seq)));
        Ok(())
    }

    /// Bytes in use in all blocks.
    pub(crate) fn used(&self) -> usize {
        self.blocks.iter().map(|block| block.used).sum()
    }

    fn put_write(&mut self, item: &PendingItx) -> Result<()> {
        let ItxBody::Write { object, generation, offset, len, data } = &item.body else { return Ok(()) };
        let contents = self.contents;
        let mut done = 0;
        while done < *len {
            let rest = usize::try_from(len - done).unwrap_or(usize::MAX);
            let now = self.need_for_write(offset.saturating_add(done), rest);
            let space = self.block().space(HEAD_SIZE);
            let words = [object.get(), offset + done, now as u64, 0];
            for (at, word) in words.into_iter().enumerate() {
                space[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
            }
            space[32..WRITE_SIZE].fill(0);
            let out = &mut space[WRITE_SIZE..WRITE_SIZE + now];
            match (data, contents) {
                (Some(data), _) => {
                    count_copy(CopyKind::IntoLog, now);
                    out.copy_from_slice(&data[done as usize..done as usize + now]);
                    self.count([&self.stats.zil_itx_copied_count, &self.stats.zil_itx_copied_bytes], now);
                }
                (None, Some(contents)) => {
                    if !contents.read(*object, *generation, offset + done, out)? {
                        return Ok(());
                    }
                    self.count([&self.stats.zil_itx_needcopy_count, &self.stats.zil_itx_needcopy_bytes], now);
                }
                (None, None) => return Err(Error::new(Kind::Missing, "the file system of the log is not mounted")),
            }
            self.finish(item.txg, TYPE_WRITE, WRITE_SIZE + now);
            done += now as u64;
        }
        Ok(())
    }

    fn count(&self, [count, bytes]: [&std::sync::atomic::AtomicU64; 2], n: usize) {
        add(count, 1);
        add(bytes, n as u64);
    }

    /// Completes the record whose `len` bytes behind the head are in the last block.
    fn finish(&mut self, txg: Txg, kind: u64, len: usize) {
        self.seq += 1;
        let size = HEAD_SIZE + len.next_multiple_of(8);
        let head = [kind, size as u64, txg.get(), self.seq];
        let block = self.block();
        let space = block.space(0);
        for (at, word) in head.into_iter().enumerate() {
            space[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        space[HEAD_SIZE + len..size].fill(0);
        block.used += size;
        block.last_txg = block.last_txg.max(txg);
        self.left = self.left.saturating_sub(size);
        add(&self.stats.zil_itx_count, 1);
    }

    /// Sees to it that so many bytes fit in the last block.
    fn need(&mut self, len: usize) {
        if self.block().room() < len {
            self.add((self.left.max(len) + LINK_SIZE).min(BLOCK_SIZE_MAX));
        }
    }

    /// How many of `len` bytes of data at `offset` go to the last block, which may be a new one then. Sectors are not cut:
    /// power may go between two blocks.
    fn need_for_write(&mut self, offset: u64, len: usize) -> usize {
        let head = HEAD_SIZE + WRITE_SIZE;
        let (room, used) = (self.block().room(), self.block().used);
        if len > room.saturating_sub(head) && used > LINK_SIZE && room < CUT_MIN {
            self.need(room + 1);
        }
        let room = self.block().room() - head;
        if len.next_multiple_of(8) <= room {
            return len;
        }
        let before = (offset % SECTOR as u64) as usize;
        let cut = (before + room) / SECTOR * SECTOR;
        if cut > before { cut - before } else { room & !7 }
    }

    fn add(&mut self, size: usize) {
        let size = size.next_multiple_of(self.unit).min(BLOCK_SIZE_MAX.max(self.unit));
        self.blocks.push(Draft { bytes: AlignedBuf::zeroed(size), used: LINK_SIZE, last_txg: Txg::ZERO });
    }

    fn block(&mut self) -> &mut Draft {
        self.blocks.last_mut().expect("there is one from the beginning")
    }
}

impl Draft {
    fn room(&self) -> usize {
        self.bytes.len() - self.used
    }

    /// What is not used yet, from `skip` on.
    fn space(&mut self, skip: usize) -> &mut [u8] {
        &mut self.bytes[self.used + skip..]
    }
}

/// Bytes that an entry takes in a log, if it is not cut.
pub(crate) fn size_of(item: &PendingItx) -> usize {
    match &item.body {
        ItxBody::Record { bytes, .. } => HEAD_SIZE + bytes.len().next_multiple_of(8),
        ItxBody::Write { len, .. } => (HEAD_SIZE + WRITE_SIZE).saturating_add(*len as usize).next_multiple_of(8),
        ItxBody::Unloggable => 0,
    }
}
