//! What the records of a stream do to an object set.

use std::sync::Arc;

use base::{AlignedBuf, Block, Data, Endian, Error, Kind, Result};
use codec::compress::{Compress, decompress};
use dmu::{INDIRECT_SHIFT, Object, Objset, Tx, Txgs};
use format::blkptr::BlkPtr;
use format::dnode::{Dnode, SLOT_SIZE};
use format::feature::FeatureSet;
use format::ids::{Guid, ObjectId, Txg};
use format::object_type::ObjectType;
use format::stream::{
    RecordFields, StreamBegin, StreamEmbedded, StreamFeatures, StreamObject, StreamReference, StreamSpill, StreamWrite,
};
use format::swap;
use zio::Compressed;

use super::StreamPart;
use crate::property::needs;
use crate::write::ReceivePoint;

/// Bytes of a block before there were large ones.
const OLD_BLOCK_SIZE_MAX: u64 = 128 << 10;
/// The number that bookmarks give a spill block.
const SPILL_BLKID: u64 = u64::MAX - 1;
/// Where a file's generation is, behind the header of its attributes.
const GENERATION_OFFSET: usize = 16;

/// What is asked of the pool while a stream is applied.
pub trait ApplyHost {
    /// Brings all that was changed to disk.
    fn sync(&self) -> Result<()>;
    /// May so many bytes be written?
    fn admit(&self, bytes: u64) -> Result<()>;
    /// What was received of the snapshot with that guid. Errors: `Corrupt` if there is none.
    fn received_before(&self, guid: Guid) -> Result<Arc<Objset>>;
    /// The stream has been applied up to there in that group.
    fn note(&self, txg: Txg, point: ReceivePoint);
}

/// Applies the records of one stream.
pub struct Applier<'a> {
    objset: Arc<Objset>,
    txgs: Arc<Txgs>,
    host: &'a dyn ApplyHost,
    endian: Endian,
    is_whole: bool,
    tells_spill: bool,
    features: StreamFeatures,
    enabled: FeatureSet,
    to_guid: Guid,
    /// Where an interrupted receive goes on.
    resume: Option<ReceivePoint>,
    /// What was received before of a snapshot, by its guid, that was referred to last.
    before: Option<(Guid, Arc<Objset>)>,
}

impl<'a> Applier<'a> {
    /// For a stream that begins so, into a pool with these features. With `resume`, it goes on there.
    pub fn new(
        (objset, txgs): (Arc<Objset>, Arc<Txgs>),
        host: &'a dyn ApplyHost,
        (begin, to_guid, endian): (&StreamBegin, Guid, Endian),
        (enabled, resume): (FeatureSet, Option<ReceivePoint>),
    ) -> Applier<'a> {
        Applier {
            objset,
            txgs,
            host,
            endian,
            is_whole: begin.from_guid.is_none(),
            tells_spill: begin.flags & StreamBegin::FLAG_SPILL_BLOCK != 0,
            features: begin.features,
            enabled,
            to_guid,
            resume,
            before: None,
        }
    }

    /// Applies a record; `bytes` of the stream were read up to its end. False if it was the last one. Errors: `Corrupt`
    /// if it makes no sense here, `Unsupported`; `NoSpace`, `Quota`; those of reading what is there.
    pub fn apply(&mut self, part: StreamPart, bytes: u64) -> Result<bool> {
        let StreamPart { record, payload } = part;
        let is_foreign = record.to_guid != self.to_guid;
        match record.fields {
            RecordFields::End { .. } => return Ok(false),
            RecordFields::ObjectRange => return Err(Error::new(Kind::Unsupported, "raw streams are not supported")),
            _ if is_foreign => return Err(wrong("a record of another stream")),
            _ => {}
        }
        let bytes = self.resume.map_or(0, |point| point.bytes).saturating_add(bytes);
        match record.fields {
            RecordFields::Object(object) => self.object(&object, payload, bytes)?,
            RecordFields::FreeObjects { first, count } => self.free_objects(first, count)?,
            RecordFields::Write(write) => self.write(&write, payload, bytes)?,
            RecordFields::WriteByReference(reference) => self.write_again(&reference, bytes)?,
            // what is left out is a hole, as OpenZFS keeps it: that the dataset is redacted says what holes may be
            RecordFields::Free { object, offset, len } | RecordFields::Redact { object, offset, len } => {
                self.free(object, offset, len)?;
            }
            RecordFields::Spill(spill) => self.spill(&spill, payload)?,
            RecordFields::Embedded(embedded) => self.embedded(&embedded, &payload, bytes)?,
            _ => {}
        }
        Ok(true)
    }

    fn begin(&self, bytes: u64) -> Result<Tx<'_>> {
        self.host.admit(bytes)?;
        loop {
            match self.txgs.begin() {
                Err(error) if error.kind() == Kind::Suspended => self.txgs.wait_resumed()?,
                tx => return tx,
            }
        }
    }

    fn note(&self, tx: &Tx<'_>, object: ObjectId, offset: u64, bytes: u64) {
        self.host.note(tx.txg(), ReceivePoint { object, offset, bytes });
    }

    fn existing(&self, id: ObjectId) -> Result<Option<Object>> {
        match self.objset.object(id) {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn required(&self, id: ObjectId) -> Result<Object> {
        self.existing(id)?.ok_or_else(|| wrong("a record for an object that is not there"))
    }

    fn object(&mut self, record: &StreamObject, mut bonus: AlignedBuf, bytes: u64) -> Result<()> {
        if record.raw_bonus_len > 0 {
            return Err(Error::new(Kind::Unsupported, "raw streams are not supported"));
        }
        if !self.features.has(StreamFeatures::LARGE_BLOCKS) && record.block_size > OLD_BLOCK_SIZE_MAX {
            return Err(wrong("large blocks in a stream without them"));
        }
        if !self.features.has(StreamFeatures::LARGE_DNODE) && record.slots > 1 {
            return Err(wrong("large dnodes in a stream without them"));
        }
        let needed = [
            needs::feature_for_checksum(record.checksum.into()),
            needs::feature_for_compression(record.compress.into()),
        ];
        if needed.iter().flatten().any(|feature| !self.enabled.has(feature)) {
            let what = "the stream asks for a checksum or compression that the pool does not have";
            return Err(Error::new(Kind::Unsupported, what));
        }
        if self.endian == Endian::Big {
            swap::block(record.bonus_type, &mut bonus);
        }
        let mut dnode =
            Dnode::new(record.object_type, record.block_size, INDIRECT_SHIFT, pointers_of(record), record.slots);
        (dnode.bonus_type, dnode.checksum, dnode.compress) = (record.bonus_type, record.checksum, record.compress);
        dnode.bonus = bonus[..record.bonus_len].to_vec();
        if dnode.bonus.len() > dnode.bonus_size_max(record.has_spill) {
            return Err(wrong("a bonus buffer that is too long"));
        }
        if let Some(object) = self.existing(record.object)? {
            if self.renew(record, &object, &dnode, bytes)? {
                return Ok(());
            }
            let tx = self.begin(0)?;
            self.objset.free_object(&tx, record.object)?;
        }
        self.claim(record, dnode, bytes)
    }

    /// Makes an object that is there what the record says. False if it has to be another one.
    fn renew(&self, record: &StreamObject, object: &Object, new: &Dnode, bytes: u64) -> Result<bool> {
        let old = object.dnode();
        if old.slots != new.slots || old.blkptrs.len() != new.blkptrs.len() {
            return Ok(false);
        }
        let mut block_size = new.block_size;
        let mut drops_contents = false;
        if new.block_size != old.block_size {
            if self.keeps_contents(record.object, old, new) {
                if new.block_size < old.block_size {
                    return Err(wrong("blocks of a file become smaller"));
                }
                // what was sent in cut blocks stays so
                block_size = old.block_size;
            } else if old.block_max > 0 {
                return Ok(false);
            } else {
                drops_contents = true;
            }
        }
        let is_other = old.object_type != new.object_type
            || block_size != old.block_size
            || old.bonus_type != new.bonus_type
            || old.bonus.len() != new.bonus.len();
        let keeps_spill = if self.tells_spill { record.has_spill } else { !is_other };
        let tx = self.begin(0)?;
        if drops_contents {
            object.free_range(&tx, 0, u64::MAX)?;
            object.set_block_size(&tx, block_size)?;
        }
        if !keeps_spill && old.spill.is_some() {
            object.set_spill(&tx, None)?;
        }
        let with_spill = keeps_spill && old.spill.is_some();
        if new.bonus.len() > old.bonus_size_max(with_spill) {
            return Err(wrong("a bonus buffer that is too long"));
        }
        object.update(&tx, |dnode| {
            (dnode.object_type, dnode.bonus_type) = (new.object_type, new.bonus_type);
            (dnode.checksum, dnode.compress) = (new.checksum, new.compress);
            dnode.bonus.clone_from(&new.bonus);
        })?;
        self.note(&tx, record.object, 0, bytes);
        Ok(true)
    }

    /// Whether what is there of an object is part of what the stream has, though its blocks have another size there: the
    /// object came in part before the receive was interrupted, or it is the same file in an incremental stream.
    fn keeps_contents(&self, id: ObjectId, old: &Dnode, new: &Dnode) -> bool {
        let is_file = |dnode: &Dnode| dnode.object_type == ObjectType::PLAIN_FILE_CONTENTS;
        let came_in_part = self.resume.is_some_and(|point| point.object == id && point.offset > 0);
        let is_same = !self.is_whole && old.block_max > 0 && is_same_file(old, new);
        is_file(old) && is_file(new) && (came_in_part || is_same)
    }

    /// Makes a new object. What is in the way of its slots was freed by the sender, too.
    fn claim(&self, record: &StreamObject, dnode: Dnode, bytes: u64) -> Result<()> {
        let mut is_clear = true;
        for slot in record.object.next().until(record.object.plus(record.slots as u64)) {
            if self.existing(slot)?.is_some() {
                let tx = self.begin(0)?;
                self.objset.free_object(&tx, slot)?;
                is_clear = false;
            }
        }
        if is_clear {
            let tx = self.begin(SLOT_SIZE as u64)?;
            match self.objset.claim_number(&tx, record.object, dnode.clone()) {
                Ok(_) => {
                    self.note(&tx, record.object, 0, bytes);
                    return Ok(());
                }
                // the object that had it is gone only in memory
                Err(error) if error.kind() == Kind::Exists => {}
                Err(error) => return Err(error),
            }
        }
        self.host.sync()?;
        let tx = self.begin(SLOT_SIZE as u64)?;
        match self.objset.claim_number(&tx, record.object, dnode) {
            Ok(_) => {
                self.note(&tx, record.object, 0, bytes);
                Ok(())
            }
            Err(error) if error.kind() == Kind::Exists => Err(wrong("an object whose number is taken")),
            Err(error) => Err(error),
        }
    }

    fn free_objects(&self, first: ObjectId, count: u64) -> Result<()> {
        let end = first.plus(count);
        let mut next = self.objset.next_object(first.previous())?;
        while let Some(id) = next.filter(|id| *id < end) {
            if self.existing(id)?.is_some() {
                let tx = self.begin(0)?;
                self.objset.free_object(&tx, id)?;
            }
            next = self.objset.next_object(id)?;
        }
        Ok(())
    }

    fn write(&mut self, record: &StreamWrite, payload: AlignedBuf, bytes: u64) -> Result<()> {
        if !self.features.has(StreamFeatures::LARGE_BLOCKS) && record.len > OLD_BLOCK_SIZE_MAX {
            return Err(wrong("large blocks in a stream without them"));
        }
        let (contents, compressed) = match record.compress {
            0 => {
                let mut contents = payload;
                if self.endian == Endian::Big {
                    swap::block(record.object_type, &mut contents);
                }
                (contents, None)
            }
            number => {
                let (kind, contents) = unpacked(number, &payload, record.len)?;
                let is_enabled = |feature| self.enabled.has(feature);
                let stays = needs::feature_for_compression(number.into()).is_none_or(is_enabled)
                    && !matches!(kind, Compress::Off | Compress::Empty);
                (contents, stays.then(|| Compressed { kind, bytes: payload.into() }))
            }
        };
        let object = self.required(record.object)?;
        let tx = self.begin(record.len)?;
        let block = Block::from(contents);
        match compressed {
            Some(compressed) => object.write_compressed(&tx, record.offset, &block, compressed)?,
            None => object.write(&tx, record.offset, Data::in_blocks(&[block], record.len as usize))?,
        }
        self.note(&tx, record.object, record.offset, bytes);
        Ok(())
    }

    /// Writes what has been received before, once more.
    fn write_again(&mut self, record: &StreamReference, bytes: u64) -> Result<()> {
        if !self.features.has(StreamFeatures::DEDUP) {
            return Err(wrong("references in a stream without them"));
        }
        if !self.features.has(StreamFeatures::LARGE_BLOCKS) && record.len > OLD_BLOCK_SIZE_MAX {
            return Err(wrong("large blocks in a stream without them"));
        }
        let source = if record.from_guid == self.to_guid {
            self.required(record.from_object)?
        } else {
            let objset = match &self.before {
                Some((guid, objset)) if *guid == record.from_guid => objset.clone(),
                _ => self.host.received_before(record.from_guid)?,
            };
            self.before = Some((record.from_guid, objset.clone()));
            objset.object(record.from_object)?
        };
        let mut contents = AlignedBuf::zeroed(record.len as usize);
        source.read(record.from_offset, &mut contents)?;
        let object = self.required(record.object)?;
        let tx = self.begin(record.len)?;
        let block = [Block::from(contents)];
        object.write(&tx, record.offset, Data::in_blocks(&block, record.len as usize))?;
        self.note(&tx, record.object, record.offset, bytes);
        Ok(())
    }

    fn embedded(&mut self, record: &StreamEmbedded, payload: &[u8], bytes: u64) -> Result<()> {
        if !self.features.has(StreamFeatures::EMBED_DATA) {
            return Err(wrong("embedded data in a stream without them"));
        }
        let packed = payload.get(..record.psize as usize).ok_or_else(|| wrong("embedded data that end early"))?;
        let mut contents = AlignedBuf::zeroed(record.len as usize);
        let kind = Compress::from_u8(record.compress).filter(|kind| kind.is_concrete());
        let kind = kind.ok_or_else(|| wrong("embedded data of unknown compression"))?;
        decompress(kind, packed, &mut contents[..record.lsize as usize])?;
        // OpenZFS sends a spill block so that is embedded in its pointer: at the offset that its number makes
        if record.offset == SPILL_BLKID.wrapping_mul(record.len) {
            return self.put_spill(record.object, contents);
        }
        let object = self.required(record.object)?;
        if self.endian == Endian::Big {
            swap::block(object.dnode().object_type, &mut contents);
        }
        let tx = self.begin(record.len)?;
        let block = [Block::from(contents)];
        object.write(&tx, record.offset, Data::in_blocks(&block, record.len as usize))?;
        self.note(&tx, record.object, record.offset, bytes);
        Ok(())
    }

    fn free(&self, object: ObjectId, offset: u64, len: u64) -> Result<()> {
        let object = self.required(object)?;
        let tx = self.begin(0)?;
        object.free_range(&tx, offset, len.min(u64::MAX - offset))
    }

    fn spill(&self, record: &StreamSpill, payload: AlignedBuf) -> Result<()> {
        if self.tells_spill && record.is_unmodified {
            return Ok(());
        }
        if record.compressed_len > 0 {
            return Err(Error::new(Kind::Unsupported, "raw streams are not supported"));
        }
        self.put_spill(record.object, payload)
    }

    fn put_spill(&self, id: ObjectId, mut contents: AlignedBuf) -> Result<()> {
        if contents.len() as u64 > OLD_BLOCK_SIZE_MAX {
            return Err(wrong("a spill block of an impossible size"));
        }
        let object = self.required(id)?;
        if object.dnode().bonus.len() > object.dnode().bonus_size_max(true) {
            return Err(wrong("a spill block where there is no room for its pointer"));
        }
        if self.endian == Endian::Big {
            swap::block(ObjectType::SA, &mut contents);
        }
        let tx = self.begin(contents.len() as u64)?;
        object.set_spill(&tx, Some(&contents))
    }
}

fn wrong(what: &'static str) -> Error {
    Error::new(Kind::Corrupt, format!("invalid stream: {what}"))
}

/// How many block pointers an object has: those of attributes have one, others as many as fit beside the bonus buffer.
fn pointers_of(record: &StreamObject) -> usize {
    if record.bonus_type == ObjectType::SA {
        return 1;
    }
    let room = record.slots * SLOT_SIZE - 64 - BlkPtr::SIZE;
    (1 + room.saturating_sub(record.bonus_len) / BlkPtr::SIZE).min(3)
}

fn unpacked(number: u8, packed: &[u8], len: u64) -> Result<(Compress, AlignedBuf)> {
    let kind = Compress::from_u8(number).filter(|kind| kind.is_concrete());
    let kind = kind.ok_or_else(|| wrong("data of unknown compression"))?;
    let mut contents = AlignedBuf::for_overwrite(len as usize);
    decompress(kind, packed, &mut contents)?;
    Ok((kind, contents))
}

/// Whether two states of an object number are those of one file: their generations are the same.
fn is_same_file(old: &Dnode, new: &Dnode) -> bool {
    let generation = |dnode: &Dnode| {
        if dnode.bonus_type != ObjectType::SA {
            return None;
        }
        // magic u32, then layout and header size in u16: the upper six bits count 8 bytes each
        let info = u16::from_le_bytes(*dnode.bonus.get(4..)?.first_chunk()?);
        let at = usize::from(info >> 10) * 8 + GENERATION_OFFSET;
        Some(u64::from_le_bytes(*dnode.bonus.get(at..)?.first_chunk()?))
    };
    generation(old).is_some() && generation(old) == generation(new)
}
