//! What of an object set goes into a stream, in the order of objects and of offsets.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

use base::{Block, Bookmark, Error, Kind, Result};
use dmu::{ChangedPart, Keep, Mode, Object, Objset, ReadRequest};
use format::blkptr::{BlkPtr, Embedded};
use format::dnode::{Dnode, SLOT_SIZE};
use format::ids::{Guid, ObjectId, Txg};
use format::stream::{
    RecordFields, StreamEmbedded, StreamFeatures, StreamObject, StreamRecord, StreamSpill, StreamWrite,
};
use zio::{BlockContents, OnFailure, Physical};

use super::StreamWriter;
use crate::redaction::RedactionCursor;

/// Blocks without the feature have no more bytes.
const OLD_BLOCK_SIZE_MAX: u64 = 128 << 10;
/// Bytes, and blocks, that are read at once.
const BATCH_BYTES: u64 = 8 << 20;
const BATCH_BLOCKS: usize = 256;
/// Batches that are being read while another one is written.
const BATCHES_AHEAD: usize = 3;
/// The number that bookmarks give a spill block.
const SPILL_BLKID: u64 = u64::MAX - 1;
/// From this compression on, they need a feature.
const LZ4: u8 = 15;
const ZSTD: u8 = 16;
const OFF: u8 = 2;

/// A record whose contents are to be read.
struct WantedBlock {
    fields: RecordFields,
    request: ReadRequest,
    /// As it is on disk.
    physical: bool,
}

enum SendItem {
    Ready(RecordFields, Vec<u8>),
    Read(WantedBlock),
}

/// Items whose contents are on their way.
struct SendBatch {
    items: Vec<SendItem>,
    contents: Receiver<BatchContents>,
}

/// What was read for a batch: blocks as they are on disk, and others.
struct BatchContents {
    packed: Vec<Result<BlockContents>>,
    plain: Vec<Result<Block>>,
}

/// What of an object set is sent.
#[derive(Clone, Copy)]
pub(super) struct SendRange {
    /// What was born after that group.
    pub(super) since_txg: Txg,
    /// From that object and offset on.
    pub(super) resume: Option<(ObjectId, u64)>,
    /// Up to that object, and what of it begins at that offset.
    pub(super) until: Option<(ObjectId, u64)>,
}

impl SendRange {
    /// The object that it begins with.
    fn first(&self) -> ObjectId {
        self.resume.map_or(ObjectId::new(1), |(object, _)| object)
    }

    fn object_end(&self) -> ObjectId {
        self.until.map_or(ObjectId::LAST, |(object, _)| object.next())
    }

    fn is_behind(&self, object: ObjectId, offset: u64) -> bool {
        self.until.is_some_and(|until| (object, offset) > until)
    }
}

/// What is left out, and what was left out of that which the stream begins from.
pub(super) struct RedactionLists {
    pub(super) by: Option<RedactionCursor>,
    pub(super) from: Option<RedactionCursor>,
}

impl RedactionLists {
    /// The next object that one of them has something of.
    fn next_object(&mut self) -> Result<Option<ObjectId>> {
        let mut next: Option<ObjectId> = None;
        for cursor in [&mut self.by, &mut self.from].into_iter().flatten() {
            let object = cursor.next_object()?;
            next = next.into_iter().chain(object).min();
        }
        Ok(next)
    }

    fn skip_to(&mut self, object: ObjectId) -> Result<()> {
        [&mut self.by, &mut self.from].into_iter().flatten().try_for_each(|cursor| cursor.skip_to(object))
    }

    /// Whether a block is left out, whether it was, and up to where both are so.
    fn of(&mut self, object: ObjectId, blkid: u64, end: u64) -> Result<(bool, bool, u64)> {
        let ask = |cursor: &mut Option<RedactionCursor>| match cursor {
            Some(cursor) => cursor.covers(object, blkid, end),
            None => Ok((false, end)),
        };
        let ((by, end_by), (from, end_from)) = (ask(&mut self.by)?, ask(&mut self.from)?);
        Ok((by, from, end_by.min(end_from)))
    }
}

/// The walk over one object set.
pub(super) struct SendWalk<'a, 'b> {
    objset: &'a Arc<Objset>,
    features: StreamFeatures,
    to_guid: Guid,
    range: SendRange,
    lists: RedactionLists,
    /// The block of the object at hand from which on its lists are to be looked at.
    at: u64,
    out: &'a mut StreamWriter<'b>,
    items: Vec<SendItem>,
    bytes: u64,
    /// In the order in which they are written.
    reading: VecDeque<SendBatch>,
}

impl<'a, 'b> SendWalk<'a, 'b> {
    pub(super) fn new(
        objset: &'a Arc<Objset>,
        (features, to_guid): (StreamFeatures, Guid),
        range: SendRange,
        lists: RedactionLists,
        out: &'a mut StreamWriter<'b>,
    ) -> SendWalk<'a, 'b> {
        SendWalk {
            objset,
            features,
            to_guid,
            range,
            lists,
            at: 0,
            out,
            items: Vec::new(),
            bytes: 0,
            reading: VecDeque::new(),
        }
    }

    /// Sends all objects.
    pub(super) fn run(mut self) -> Result<()> {
        let meta = self.objset.meta();
        let per_block = meta.dnode().block_size / SLOT_SIZE as u64;
        let from = self.range.resume.map_or(0, |(object, _)| object.place(per_block).0);
        self.lists.skip_to(self.range.first())?;
        meta.changed_since(self.range.since_txg, from, &mut |part| match part {
            ChangedPart::Hole { first, count } => {
                let last = meta.dnode().block_max.saturating_add(1);
                let end = first.saturating_add(count).min(last);
                if first >= end {
                    return Ok(());
                }
                let number = |blkid: u64| ObjectId::in_block(blkid, 0, per_block).min(self.range.object_end());
                let (first, end) = (number(first), number(end));
                self.unchanged_objects(first)?;
                self.lists.skip_to(end)?;
                if first >= end { Ok(()) } else { self.push(SendItem::Ready(free_objects(first, end), Vec::new())) }
            }
            ChangedPart::Data { blkid, .. } => self.dnodes(&meta, blkid, per_block),
        })?;
        self.unchanged_objects(ObjectId::LAST)?;
        self.read()?;
        while let Some(batch) = self.reading.pop_front() {
            self.write_batch(batch)?;
        }
        self.out.flush()
    }

    /// Sends what the lists say of objects before `end` whose dnodes have not changed.
    fn unchanged_objects(&mut self, end: ObjectId) -> Result<()> {
        let end = end.min(self.range.object_end());
        while let Some(id) = self.lists.next_object()?.filter(|id| *id < end) {
            match self.objset.object(id) {
                Ok(object) => {
                    self.at = self.first_block(id, object.dnode());
                    self.unchanged(&object, u64::MAX)?;
                }
                Err(error) if error.kind() == Kind::NotFound => {}
                Err(error) => return Err(error),
            }
            self.lists.skip_to(id.next())?;
        }
        Ok(())
    }

    /// The block that an object is sent from on.
    fn first_block(&self, id: ObjectId, dnode: &Dnode) -> u64 {
        match self.range.resume {
            Some((object, offset)) if object == id => offset / dnode.block_size.max(1),
            _ => 0,
        }
    }

    /// Sends the objects of a block of dnodes, and that the numbers between them are free.
    fn dnodes(&mut self, meta: &Object, blkid: u64, per_block: u64) -> Result<()> {
        let block = meta.block(blkid)?;
        let (first, end) = (ObjectId::in_block(blkid, 0, per_block), ObjectId::in_block(blkid, per_block, per_block));
        self.unchanged_objects(first)?;
        let mut next = first;
        let dnodes = self.objset.dnodes_in_block(blkid, &block).into_iter().collect::<Result<Vec<_>>>()?;
        self.objset.read_pointers_ahead(&dnodes, self.range.since_txg);
        for (id, dnode) in dnodes {
            if id >= self.range.object_end() {
                break;
            }
            self.free_numbers(next, id)?;
            next = id.plus(dnode.slots as u64);
            if self.range.resume.is_none_or(|(object, _)| id >= object) {
                self.lists.skip_to(id)?;
                self.object(id, dnode)?;
            }
        }
        self.lists.skip_to(end.min(self.range.object_end()))?;
        self.free_numbers(next, end)
    }

    fn free_numbers(&mut self, from: ObjectId, end: ObjectId) -> Result<()> {
        let from = from.max(self.range.first());
        let end = end.min(self.range.object_end());
        if from >= end { Ok(()) } else { self.push(SendItem::Ready(free_objects(from, end), Vec::new())) }
    }

    fn object(&mut self, id: ObjectId, dnode: Dnode) -> Result<()> {
        let has_large = self.features.has(StreamFeatures::LARGE_BLOCKS);
        let record = StreamObject {
            object: id,
            object_type: dnode.object_type,
            bonus_type: dnode.bonus_type,
            block_size: if has_large { dnode.block_size } else { dnode.block_size.min(OLD_BLOCK_SIZE_MAX) },
            bonus_len: dnode.bonus.len(),
            checksum: dnode.checksum,
            compress: dnode.compress,
            slots: dnode.slots,
            has_spill: dnode.spill.is_some(),
            raw_bonus_len: 0,
        };
        let mut bonus = dnode.bonus.clone();
        bonus.resize(bonus.len().next_multiple_of(8), 0);
        self.push(SendItem::Ready(RecordFields::Object(record), bonus))?;
        let end = dnode.size_max();
        self.push(SendItem::Ready(RecordFields::Free { object: id, offset: end, len: u64::MAX }, Vec::new()))?;
        if let Some(spill) = dnode.spill.filter(|bp| !bp.is_hole() && bp.reference_birth() <= self.range.since_txg) {
            self.spill(id, spill, true)?;
        }
        let from = self.first_block(id, &dnode);
        let spill = dnode.spill;
        let object = Object::outside(self.objset.clone(), id, dnode);
        self.at = from;
        object.changed_since(self.range.since_txg, from, &mut |part| self.changed(&object, part))?;
        self.unchanged(&object, u64::MAX)?;
        match spill.filter(|bp| !bp.is_hole() && bp.reference_birth() > self.range.since_txg) {
            Some(spill) => self.spill(id, spill, false),
            None => Ok(()),
        }
    }

    fn spill(&mut self, object: ObjectId, bp: BlkPtr, is_unmodified: bool) -> Result<()> {
        let fields = RecordFields::Spill(StreamSpill { object, len: bp.lsize(), is_unmodified, compressed_len: 0 });
        self.push_read(fields, object, SPILL_BLKID, bp, false)
    }

    /// Sends a part of an object that has changed, but for what is left out, and what the lists say of blocks before it.
    fn changed(&mut self, object: &Object, part: ChangedPart) -> Result<()> {
        let (first, count) = match part {
            ChangedPart::Data { blkid, .. } => (blkid, 1),
            ChangedPart::Hole { first, count } => (first, count),
        };
        self.unchanged(object, first)?;
        let end = first.saturating_add(count);
        let mut at = first;
        while at < end {
            let (is_out, was_out, to) = self.lists.of(object.id(), at, end)?;
            match part {
                // the receiver has left it out already
                _ if is_out && was_out => {}
                _ if is_out => self.redacted(object, at, to)?,
                ChangedPart::Data { .. } => self.part(object, part)?,
                ChangedPart::Hole { .. } => self.part(object, ChangedPart::Hole { first: at, count: to - at })?,
            }
            at = to;
        }
        self.at = end;
        Ok(())
    }

    /// Sends what the lists say of the blocks from [`SendWalk::at`] on, before `end`, which have not changed.
    fn unchanged(&mut self, object: &Object, end: u64) -> Result<()> {
        while self.at < end {
            let (is_out, was_out, to) = self.lists.of(object.id(), self.at, end)?;
            let there = to.min(object.dnode().block_max.saturating_add(1));
            match (is_out, was_out) {
                (true, false) => self.redacted(object, self.at, to)?,
                (false, true) if self.at < there => {
                    object.changed_within(Txg::ZERO, self.at..there, &mut |part| self.part(object, part))?;
                }
                _ => {}
            }
            self.at = to;
        }
        Ok(())
    }

    /// Tells that blocks are left out.
    fn redacted(&mut self, object: &Object, first: u64, end: u64) -> Result<()> {
        let size = object.dnode().block_size;
        let Some(offset) = first.checked_mul(size) else { return Ok(()) };
        let len = end.checked_mul(size).map_or(u64::MAX - offset, |end| end - offset);
        self.push(SendItem::Ready(RecordFields::Redact { object: object.id(), offset, len }, Vec::new()))
    }

    fn part(&mut self, object: &Object, part: ChangedPart) -> Result<()> {
        let (id, size) = (object.id(), object.dnode().block_size);
        let (blkid, bp) = match part {
            ChangedPart::Hole { first, count } => {
                // what begins beyond the last offset can never be there
                let Some(offset) = first.checked_mul(size) else { return Ok(()) };
                if self.range.is_behind(id, offset) {
                    return Ok(());
                }
                let len = first.saturating_add(count).checked_mul(size).map_or(u64::MAX, |end| end - offset);
                return self.push(SendItem::Ready(RecordFields::Free { object: id, offset, len }, Vec::new()));
            }
            ChangedPart::Data { blkid, bp } => (blkid, bp),
        };
        let offset = blkid.checked_mul(size).filter(|offset| offset.checked_add(size).is_some());
        let offset = offset.ok_or_else(|| object.placed(Error::corrupt("block beyond the last offset"), 0, blkid))?;
        if self.range.is_behind(id, offset) {
            return Ok(());
        }
        if bp.lsize() != size {
            let what = format!("block of {} bytes in an object of blocks of {size}", bp.lsize());
            return Err(object.placed(Error::corrupt(what), 0, blkid));
        }
        if self.sends_embedded(&bp) {
            let mut payload = bp.payload();
            let psize = payload.len() as u32;
            payload.resize(payload.len().next_multiple_of(8), 0);
            let fields = RecordFields::Embedded(StreamEmbedded {
                object: id,
                offset,
                len: size,
                compress: bp.compress(),
                kind: 0,
                lsize: bp.lsize() as u32,
                psize,
            });
            return self.push(SendItem::Ready(fields, payload));
        }
        let object_type = object.dnode().object_type;
        let is_split = size > OLD_BLOCK_SIZE_MAX && !self.features.has(StreamFeatures::LARGE_BLOCKS);
        let is_packed = self.features.has(StreamFeatures::COMPRESSED)
            && !is_split
            && !bp.is_embedded()
            && bp.compress() != OFF
            && bp.endian() == base::Endian::Little
            && !bp.object_type().is_metadata();
        let mut write = StreamWrite { object: id, object_type, offset, len: size, checksum: OFF, ..Default::default() };
        if !is_split && !bp.is_embedded() {
            write.checksum = bp.checksum_kind();
            write.has_dedup_sum = has_dedup_sum(bp.checksum_kind());
            let [a, b, c, d] = bp.checksum();
            let sectors = |bytes: u64| (bytes >> 9).saturating_sub(1) & 0xffff;
            let props = sectors(bp.lsize()) | sectors(bp.psize()) << 16 | u64::from(bp.compress()) << 32;
            write.key = [a, b, c, d, props];
        }
        if is_packed {
            (write.compress, write.compressed_len) = (bp.compress(), bp.psize());
        }
        self.push_read(RecordFields::Write(write), id, blkid, bp, is_packed)
    }

    fn sends_embedded(&self, bp: &BlkPtr) -> bool {
        let may = |least: u8, feature| bp.compress() < least || self.features.has(feature);
        bp.is_embedded()
            && bp.embedded() == Embedded::Data
            && self.features.has(StreamFeatures::EMBED_DATA)
            && may(LZ4, StreamFeatures::LZ4)
            && may(ZSTD, StreamFeatures::ZSTD)
    }

    fn push_read(
        &mut self,
        fields: RecordFields,
        object: ObjectId,
        blkid: u64,
        bp: BlkPtr,
        physical: bool,
    ) -> Result<()> {
        let bookmark = Bookmark { objset: self.objset.id().get(), object: object.get(), level: 0, blkid };
        self.bytes = self.bytes.saturating_add(bp.lsize());
        let request = ReadRequest { bp, bookmark, mode: Mode::Plain };
        self.push(SendItem::Read(WantedBlock { fields, request, physical }))?;
        if self.bytes >= BATCH_BYTES { self.read() } else { Ok(()) }
    }

    fn push(&mut self, item: SendItem) -> Result<()> {
        self.items.push(item);
        if self.items.len() >= BATCH_BLOCKS { self.read() } else { Ok(()) }
    }

    /// Begins to read what is to be read, and writes the batches that are due.
    fn read(&mut self) -> Result<()> {
        let items = std::mem::take(&mut self.items);
        self.bytes = 0;
        if self.out.only_counts() {
            return items.into_iter().try_for_each(|item| self.count(&item));
        }
        let (mut packed, mut plain) = (Vec::new(), Vec::new());
        for item in &items {
            if let SendItem::Read(WantedBlock { request, physical, .. }) = item {
                if *physical { packed.push(*request) } else { plain.push(*request) }
            }
        }
        let cache = self.objset.cache().clone();
        let (tell, contents) = mpsc::channel();
        self.objset.cache().zio().env().background(move || {
            let packed = cache.zio().read_whole(&packed, cache.keys(), OnFailure::Fail);
            let plain = cache.get_batch(&plain, Keep::NOTHING);
            // the stream may have come to an end meanwhile
            let _ = tell.send(BatchContents { packed, plain });
        });
        self.reading.push_back(SendBatch { items, contents });
        match self.reading.len() > BATCHES_AHEAD {
            true => self.reading.pop_front().map_or(Ok(()), |batch| self.write_batch(batch)),
            false => Ok(()),
        }
    }

    /// Writes all records of a batch, once it was read.
    fn write_batch(&mut self, SendBatch { items, contents }: SendBatch) -> Result<()> {
        let missing = || Error::corrupt("a batch of blocks was read in part");
        let BatchContents { packed, plain } = contents.recv().map_err(|_| missing())?;
        let (mut packed, mut plain) = (packed.into_iter(), plain.into_iter());
        for item in items {
            match item {
                SendItem::Ready(fields, payload) => self.write(fields, &payload)?,
                SendItem::Read(WantedBlock { fields, physical: false, .. }) => {
                    let block = plain.next().ok_or_else(missing)??;
                    self.write_block(fields, &block)?;
                }
                SendItem::Read(WantedBlock { fields, request, .. }) => {
                    let contents = packed.next().ok_or_else(missing)??;
                    match (contents.physical, request.bp.unsealed()) {
                        (Physical::Apart(bytes), Some(_)) => self.write(fields, bytes.block())?,
                        _ => {
                            let what = "a compressed block is not compressed on disk";
                            return Err(Error::corrupt(what));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// A block of data, if need be in parts of the size that blocks without the feature have at most.
    fn write_block(&mut self, fields: RecordFields, block: &Block) -> Result<()> {
        match fields {
            RecordFields::Write(write) if self.is_split(&write) => {
                for (part, at) in block.chunks(OLD_BLOCK_SIZE_MAX as usize).zip(0..) {
                    let offset = write.offset + at * OLD_BLOCK_SIZE_MAX;
                    let fields = RecordFields::Write(StreamWrite { offset, len: part.len() as u64, ..write });
                    self.write(fields, part)?;
                }
                Ok(())
            }
            fields => self.write(fields, block),
        }
    }

    fn is_split(&self, write: &StreamWrite) -> bool {
        write.len > OLD_BLOCK_SIZE_MAX && !self.features.has(StreamFeatures::LARGE_BLOCKS)
    }

    fn count(&mut self, item: &SendItem) -> Result<()> {
        match item {
            SendItem::Read(WantedBlock { fields: RecordFields::Write(write), .. }) if self.is_split(write) => {
                let mut rest = write.len;
                while rest > 0 {
                    let part = rest.min(OLD_BLOCK_SIZE_MAX);
                    self.out.count(part)?;
                    rest -= part;
                }
                Ok(())
            }
            SendItem::Read(WantedBlock { fields, .. }) => {
                let record = StreamRecord { fields: fields.clone(), to_guid: self.to_guid, sum: [0; 4] };
                self.out.count(record.payload_len() as u64)
            }
            SendItem::Ready(fields, payload) => self.write(fields.clone(), payload),
        }
    }

    fn write(&mut self, fields: RecordFields, payload: &[u8]) -> Result<()> {
        self.out.record(StreamRecord { fields, to_guid: self.to_guid, sum: [0; 4] }, payload)
    }
}

fn free_objects(first: ObjectId, end: ObjectId) -> RecordFields {
    RecordFields::FreeObjects { first, count: end.behind(first) }
}

/// Checksums by which blocks may be deduplicated: sha256, sha512, skein, edonr, blake3.
fn has_dedup_sum(checksum: u8) -> bool {
    matches!(checksum, 8 | 11 | 12 | 13 | 14)
}
