//! What was redacted: the lists of redaction bookmarks, and the snapshots that a redacted dataset was made for.

use base::{Error, Result, ResultExt};
use dmu::{Object, Objset};
use format::feature::REDACTED_DATASETS;
use format::ids::{Guid, ObjectId};
use format::redaction::{RedactedRange, RedactionHead};
use std::sync::Arc;

use crate::{Dataset, DatasetBookmark, Dsl};

/// Ranges that are read at once.
const RANGES_AT_ONCE: u64 = 4096;

impl Dsl {
    /// The list of a redaction bookmark. Errors: `NotFound` if it has none; `Corrupt`.
    pub fn redaction_list(&self, bookmark: &DatasetBookmark) -> Result<RedactionList> {
        RedactionList::open(self.mos(), bookmark.redaction_object).in_dataset(&bookmark.name)
    }

    /// Guids of the snapshots for which a dataset was redacted; `None` if it was not. Errors: those of reading.
    pub fn redacted_for(&self, dataset: &Dataset) -> Result<Option<Vec<Guid>>> {
        Ok(self.dataset_field(dataset, REDACTED_DATASETS)?.map(|guids| guids.guids()))
    }
}

/// A list of what is redacted.
#[derive(Clone)]
pub struct RedactionList {
    head: RedactionHead,
    object: Object,
}

impl RedactionList {
    pub(crate) fn open(mos: &Arc<Objset>, id: ObjectId) -> Result<RedactionList> {
        let object = mos.object(id)?;
        // a head that is too long for the bonus buffer is in a spill block (feature redaction_list_spill)
        let spill = object.spill()?;
        let head = RedactionHead::parse(spill.as_deref().unwrap_or(object.bonus()))?;
        Ok(RedactionList { head, object })
    }

    /// Its head.
    pub fn head(&self) -> &RedactionHead {
        &self.head
    }

    /// The object that it is in.
    pub(crate) fn object(&self) -> &Object {
        &self.object
    }

    /// Its ranges, in their order.
    pub fn cursor(&self) -> RedactionCursor {
        RedactionCursor { list: self.clone(), next: 0, read: Vec::new(), before: None }
    }
}

/// A place in a list. Errors of its methods: those of reading; `Corrupt` if ranges are not in their order.
pub struct RedactionCursor {
    list: RedactionList,
    /// Number of the next range that is to be read.
    next: u64,
    /// Ranges that were read, the next one last.
    read: Vec<RedactedRange>,
    /// Where the last range that was read ended.
    before: Option<(ObjectId, u64)>,
}

impl RedactionCursor {
    /// The object of the next range.
    pub fn next_object(&mut self) -> Result<Option<ObjectId>> {
        Ok(self.peek()?.map(|range| range.object))
    }

    /// Passes over all ranges of objects before that one.
    pub fn skip_to(&mut self, object: ObjectId) -> Result<()> {
        while self.peek()?.is_some_and(|range| range.object < object) {
            self.read.pop();
        }
        Ok(())
    }

    /// Whether a block of an object is in the list, and up to which block, not beyond `end`, that is so. Blocks are to be
    /// asked for in their order: what lies before is passed over.
    pub fn covers(&mut self, object: ObjectId, blkid: u64, end: u64) -> Result<(bool, u64)> {
        self.skip_to(object)?;
        while self.peek()?.is_some_and(|range| range.object == object && range.last < blkid) {
            self.read.pop();
        }
        Ok(match self.peek()? {
            Some(range) if range.object == object && range.first <= blkid => {
                (true, range.last.saturating_add(1).min(end))
            }
            Some(range) if range.object == object => (false, range.first.min(end)),
            _ => (false, end),
        })
    }

    fn peek(&mut self) -> Result<Option<RedactedRange>> {
        if self.read.is_empty() {
            self.read_more()?;
        }
        Ok(self.read.last().copied())
    }

    fn read_more(&mut self) -> Result<()> {
        let count = RANGES_AT_ONCE.min(self.list.head.ranges.saturating_sub(self.next));
        let object = &self.list.object;
        let size = RedactedRange::SIZE as u64;
        let end = self.next.checked_add(count).and_then(|end| end.checked_mul(size));
        if count > 0 && end.is_none_or(|end| end > object.dnode().size_max()) {
            let what =
                format!("a list of {} redacted ranges in {} bytes", self.list.head.ranges, object.dnode().size_max());
            return Err(object.placed(Error::corrupt(what), 0, 0));
        }
        let mut bytes = vec![0; (count * size) as usize];
        object.read(self.next * size, &mut bytes)?;
        for bytes in bytes.chunks_exact(RedactedRange::SIZE) {
            let range = RedactedRange::parse(bytes)?;
            if self.before.is_some_and(|before| (range.object, range.first) <= before) || range.object.is_none() {
                return Err(object.placed(Error::corrupt("redacted ranges are not in their order"), 0, 0));
            }
            self.before = Some((range.object, range.last));
            self.read.push(range);
        }
        self.read.reverse();
        self.next += count;
        Ok(())
    }
}
