//! Doing again what the intent log holds, after a crash.
//!
//! ```text
//!   record ─▶ the operation, with the number, owners and times that the record says ─▶ one transaction
//!                                                                  └▶ told to the log: this record is done
//! ```
//!
//! Each record is one transaction, which also says that it was done; so after another crash it is done wholly or
//! not at all, and the next one follows. What stays open while it is replayed is the file system alone: nobody
//! else changes it.
//!
//! Records about one object may come when it is gone, as they may be out of order: they are passed over. Any
//! other record that cannot be done ends the replay.

mod acl;
mod attrs;
mod create;

use std::collections::HashSet;

use base::{Bookmark, Error, Kind, Result, ResultExt};
use dmu::{Mode, Object, ReadRequest};
use format::blkptr::BlkPtr;
use format::ids::ObjectId;
use format::sa::Attr;
use zil::{Intent, LeftOperation, Log, Record, Rename, Renamed, Replayed, WrittenData};

use crate::attr_tables::{time, word};
use crate::contents::{SIZE_MAX, Times};
use crate::op::Op;
use crate::{Allocate, FileKind, RenameMode, Zpl};

/// Longest block.
const BLOCK_MAX: u64 = 16 << 20;
/// Bytes that a replayed operation takes, roughly, beside data.
const RECORD_BYTES: u64 = 4 << 10;

/// What is needed from one record to the next.
struct Replay<'a> {
    zpl: &'a Zpl,
    /// Files that may have something behind their end, as whole blocks were written.
    tails: HashSet<ObjectId>,
}

impl Zpl {
    /// Does again what the intent log holds: for a file system that has just been opened, before anything
    /// else. The log is empty then. Without a log nothing is to be done. Errors: those of reading the log;
    /// of a record that cannot be done, with its number; everything before it has been done then.
    pub fn replay_log(&self) -> Result<Option<Replayed>> {
        let live = self.live()?;
        let Some(log) = live.log() else { return Ok(None) };
        let mut replay = Replay { zpl: self, tails: HashSet::new() };
        live.set_replaying(true);
        let replayed = log.replay(&mut |record| {
            live.set_replay_time(log.time_of(record.seq));
            replay.record(record)
        });
        live.set_replay_time(None);
        let cut = replay.cut_tails();
        let left = if replayed.is_ok() && cut.is_ok() { self.replay_left(log) } else { Ok(0) };
        live.set_replaying(false);
        let replayed = replayed.in_dataset(self.objset().name())?;
        cut?;
        Ok(Some(replayed.with_left(left)))
    }

    /// Does again what the log in memory has and the intent log had not, each at the time when it was done. How many operations
    /// these were. Errors: as of [`Log::replay_left`].
    fn replay_left(&self, log: &Log) -> Result<u64> {
        let live = self.live()?;
        let mut replay = Replay { zpl: self, tails: HashSet::new() };
        let mut apply = |left: &LeftOperation<'_>| {
            live.set_replay_time(Some(left.time));
            let is_others = |generation| self.is_another(&left.record, generation);
            match left.generation.map_or(Ok(false), is_others)? {
                true => Ok(()),
                false => replay.record(&left.record),
            }
        };
        let done = log.replay_left(&mut apply);
        live.set_replay_time(None);
        done
    }

    /// Whether the object that a record is about is not there, or another one than that of this generation.
    fn is_another(&self, record: &Record<'_>, generation: u64) -> Result<bool> {
        let Some(object) = record.intent()?.object() else { return Ok(false) };
        match self.stat(object) {
            Err(error) if error.kind() == Kind::NotFound => Ok(true),
            found => Ok(found?.generation != generation),
        }
    }
}

impl Replay<'_> {
    fn record(&mut self, record: &Record<'_>) -> Result<()> {
        let done = record.intent().and_then(|intent| self.intent(&intent, record));
        let what = || format!("record {} of the intent log, of type {}", record.seq, record.kind);
        done.map_err(|e| Error::new(e.kind(), format!("{} cannot be replayed", what())).with_source(e))
    }

    fn intent(&mut self, intent: &Intent<'_>, record: &Record<'_>) -> Result<()> {
        if let Some(object) = intent.object() {
            match self.zpl.objset().object(object) {
                Err(error) if error.kind() == Kind::NotFound => return Ok(()),
                found => drop(found?),
            }
        } else if record.ignores_case && self.zpl.master().case == crate::CaseMode::Mixed {
            return Err(Error::new(Kind::Unsupported, "a name of which case does not count"));
        }
        match intent {
            Intent::Create(create) => {
                self.free_number(create.born.object)?;
                self.zpl.replay_create(create)
            }
            Intent::Remove { dir, name, is_rmdir } => self.zpl.remove_name(*dir, name, *is_rmdir).map(drop),
            Intent::Link { dir, object, name } => self.zpl.add_link(*object, *dir, name).map(drop),
            Intent::Rename(rename) => self.rename(rename),
            Intent::Write { object, offset, data: WrittenData::Here(data), .. } => {
                self.zpl.replay_bytes(*object, *offset, data)
            }
            Intent::Write { object, offset, len, data: WrittenData::Block(bp) } => {
                self.block(*object, *offset, *len, bp)
            }
            Intent::Extend { object, offset, len } => self.zpl.replay_extend(*object, offset + len),
            Intent::Truncate { object, offset, len } => self.truncate(*object, *offset, *len),
            Intent::SetAttr(set) => self.zpl.replay_attributes(set),
            Intent::SetXattr { object, name, value } => self.zpl.replay_xattr(*object, name, *value),
            Intent::SetAcl { object, acl, domains } => self.zpl.replay_acl(*object, acl, domains),
            Intent::Clone { object, offset, len, block_size, blocks } => {
                self.clones(*object, (*offset, *len), *block_size, blocks)
            }
        }
    }

    /// Blocks that were taken from elsewhere: taken again, or copied where the file's blocks are of another size by now,
    /// as they are made by the `recordsize` of today.
    fn clones(
        &mut self,
        object: ObjectId,
        (offset, len): (u64, u64),
        block_size: u64,
        blocks: &[BlkPtr],
    ) -> Result<()> {
        if self.zpl.replay_clone(object, (offset, len), block_size, blocks)? {
            return Ok(());
        }
        let mut at = offset;
        for bp in blocks {
            let bytes = block_size.min(offset + len - at);
            self.block(object, at, bytes, bp)?;
            at += bytes;
        }
        Ok(())
    }

    fn rename(&self, rename: &Rename<'_>) -> Result<()> {
        let (mode, whiteout) = match &rename.how {
            Renamed::Replaced => (RenameMode::Replace, None),
            Renamed::Exchanged => (RenameMode::Exchange, None),
            Renamed::Whiteout(born) => (RenameMode::Replace, Some(born)),
        };
        whiteout.map_or(Ok(()), |born| self.free_number(born.object))?;
        self.zpl.move_name(rename.from, rename.to, mode, whiteout).map(drop)
    }

    /// A record gives a number to a new file. A file without a name stays, as a program may have it open over the death of a
    /// process; one that has this number was not in use any more.
    fn free_number(&self, number: ObjectId) -> Result<()> {
        if self.zpl.live()?.orphans().contains(number)? { self.zpl.reclaim(number) } else { Ok(()) }
    }

    /// A write of a whole block, of which `len` bytes from `offset` on were written. Later records may say that
    /// the file reaches further into it.
    fn block(&mut self, object: ObjectId, offset: u64, len: u64, bp: &BlkPtr) -> Result<()> {
        let size = bp.lsize().max(if bp.is_hole() { len } else { 0 });
        if size > BLOCK_MAX || len > size {
            return Err(Error::corrupt(format!("a write of {len} bytes in a block of {size}")));
        }
        let data = match bp.is_hole() {
            true => vec![0; size as usize],
            false => {
                let bookmark = Bookmark {
                    objset: self.zpl.objset().id().get(),
                    object: object.get(),
                    level: 0,
                    blkid: offset / size,
                };
                let block =
                    self.zpl.objset().cache().zio().read(ReadRequest { bp: *bp, bookmark, mode: Mode::Plain })?;
                block.to_vec()
            }
        };
        let at = if len < size { offset - offset % size } else { offset };
        at.checked_add(size)
            .filter(|&end| end <= SIZE_MAX)
            .ok_or_else(|| Error::corrupt("a block behind all blocks"))?;
        self.tails.insert(object);
        self.zpl.replay_block(object, at, &data, offset + len)
    }

    fn truncate(&self, object: ObjectId, offset: u64, len: u64) -> Result<()> {
        let file = self.zpl.open_file(object)?;
        let end = offset.checked_add(len).filter(|&end| end <= SIZE_MAX);
        let end = end.ok_or_else(|| Error::corrupt("bytes behind all bytes are truncated"))?;
        if len == 0 || offset > file.size() {
            return self.zpl.replay_size(object, end);
        }
        file.allocate(Allocate::ZeroRange { keep_size: false }, offset, len)
    }

    /// Makes what is behind the ends of files zeros again.
    fn cut_tails(&mut self) -> Result<()> {
        for ino in self.tails.drain() {
            match self.zpl.replay_tail(ino) {
                Err(error) if error.kind() == Kind::NotFound => {}
                cut => cut?,
            }
        }
        Ok(())
    }
}

impl Zpl {
    /// The regular file that a record says was written to.
    fn logged_file(&self, ino: ObjectId) -> Result<Object> {
        let node = self.node(ino)?;
        match self.kind_of(&node)? {
            FileKind::File => Ok(node.into_object()),
            kind => Err(Error::corrupt(format!("bytes of object {ino}, which is a {kind:?}"))),
        }
    }

    fn replay_bytes(&self, ino: ObjectId, offset: u64, data: &[u8]) -> Result<()> {
        let op = self.begin(data.len() as u64 + RECORD_BYTES, true)?;
        let _held = op.alone(&[ino]);
        let object = self.logged_file(ino)?;
        let logged = op.write_bytes(&object, offset, data.into(), Times::Moved)?;
        op.log_write(logged, offset, data.into());
        Ok(())
    }

    /// Writes a block, and makes the file reach `end` if it is shorter.
    fn replay_block(&self, ino: ObjectId, at: u64, data: &[u8], end: u64) -> Result<()> {
        let op = self.begin(data.len() as u64 + RECORD_BYTES, true)?;
        let _held = op.alone(&[ino]);
        let object = self.logged_file(ino)?;
        let size = self.size_of(&object)?;
        op.grow_block(&object, size, at + data.len() as u64)?;
        let object = object.fresh()?;
        object.write(op.tx(), at, data)?;
        op.reach(&object, end)?;
        op.log_write(op.as_logged(&object)?, at, data.into());
        Ok(())
    }

    /// False if the blocks do not fit into the file, of which nothing is changed then.
    fn replay_clone(
        &self,
        ino: ObjectId,
        (offset, len): (u64, u64),
        block_size: u64,
        blocks: &[BlkPtr],
    ) -> Result<bool> {
        let op = self.begin(RECORD_BYTES, true)?;
        let _held = op.alone(&[ino]);
        let object = self.logged_file(ino)?;
        if !op.take_logged(&object, (offset, len), block_size, blocks)? {
            return Ok(false);
        }
        op.reach(&object, offset + len)?;
        op.object_unlogged(&object, None)?;
        Ok(true)
    }

    fn replay_extend(&self, ino: ObjectId, end: u64) -> Result<()> {
        let op = self.begin(RECORD_BYTES, true)?;
        let _held = op.alone(&[ino]);
        let object = self.logged_file(ino)?;
        op.reach(&object, end)?;
        op.object_unlogged(&object, None)?;
        Ok(())
    }

    fn replay_size(&self, ino: ObjectId, size: u64) -> Result<()> {
        self.free_most(ino, size..u64::MAX, &|_, _| Ok(()))?;
        let op = self.begin(RECORD_BYTES, true)?;
        let _held = op.alone(&[ino]);
        let object = self.logged_file(ino)?;
        op.set_size(&object, size, &[time(Attr::Mtime, op.now()), time(Attr::Ctime, op.now())])?;
        op.object_unlogged(&object, None)
    }

    fn replay_tail(&self, ino: ObjectId) -> Result<()> {
        let size = self.size_of(&self.logged_file(ino)?)?;
        self.free_most(ino, size..u64::MAX, &|_, _| Ok(()))?;
        let op = self.begin(RECORD_BYTES, true)?;
        let _held = op.alone(&[ino]);
        let object = self.logged_file(ino)?;
        let (size, most) = (self.size_of(&object)?, object.dnode().size_max());
        if size < most { object.free_range(op.tx(), size, most - size) } else { Ok(()) }
    }
}

impl Op<'_> {
    /// Makes a file longer, whatever is there.
    fn reach(&self, object: &Object, end: u64) -> Result<()> {
        let object = object.fresh()?;
        let size = self.zpl().size_of(&object)?.max(end);
        if size > SIZE_MAX {
            return Err(Error::corrupt("a file longer than any"));
        }
        self.change(&object, &[word(Attr::Size, size), time(Attr::Mtime, self.now()), time(Attr::Ctime, self.now())])
    }
}
