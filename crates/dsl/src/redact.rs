//! Which blocks of a snapshot are to be redacted: those that none of some later snapshots has any more.
//!
//! ```text
//!   snapshot         block 0  1  2  3  4  5
//!   first clone              w  w     -         written, or gone, since the snapshot
//!   second clone          w  w        w  w
//!   redacted                 x        x         in all of them
//! ```
//!
//! Only blocks of users' data count. What was not changed in the first clone is passed over with all below, so this takes
//! as long as what has changed there.

use std::sync::Arc;

use base::{Kind, Result, ResultExt};
use dmu::zap::Zap;
use dmu::{ChangedPart, Mode, Object, Objset};
use format::dnode::SLOT_SIZE;
use format::ids::{ObjectId, Txg};
use format::objset::ObjsetType;
use format::redaction::RedactedRange;

use crate::contents::MASTER_NODE;
use crate::{Dataset, Dsl};

/// Blocks of an object that are looked at together: what was found of them is in memory.
const WINDOW: u64 = 1 << 20;

/// First and last number of blocks that follow each other.
type Span = (u64, u64);

/// What is to be told of each range that is found.
type FoundRange<'a> = &'a mut dyn FnMut(RedactedRange) -> Result<()>;

/// One of the later snapshots.
struct Redactor {
    objset: Arc<Objset>,
    /// The names of objects that are unlinked, and open still.
    unlinked: Option<Zap>,
}

impl Dsl {
    /// Calls `f` with the blocks of `snapshot`, from an object and block of it on, that none of `later` has any more, in
    /// their order. `later` come from it, and are not empty. Errors: those of reading, and of `f`; `Encrypted`.
    pub fn find_redacted(
        &self,
        snapshot: &Dataset,
        later: &[Dataset],
        from: (ObjectId, u64),
        f: FoundRange<'_>,
    ) -> Result<()> {
        let base = self.objset(snapshot, Mode::Plain)?;
        let redactors = later.iter().map(|one| Redactor::open(self, one)).collect::<Result<Vec<Redactor>>>()?;
        let Some(first) = redactors.first() else { return Ok(()) };
        let search =
            RedactionSearch { base: &base, redactors: &redactors, since_txg: snapshot.phys.creation_txg, from };
        let meta = first.objset.meta();
        let per_block = meta.dnode().block_size / SLOT_SIZE as u64;
        meta.changed_since(search.since_txg, from.0.place(per_block.max(1)).0, &mut |part| {
            let (first, count) = match part {
                ChangedPart::Data { blkid, .. } => (blkid, 1),
                ChangedPart::Hole { first, count } => (first, count),
            };
            let number = |blkid: u64| ObjectId::in_block(blkid, 0, per_block);
            search.objects(number(first).max(from.0), number(first.saturating_add(count)), f)
        })
        .in_dataset(&snapshot.name)
    }
}

impl Redactor {
    fn open(dsl: &Dsl, snapshot: &Dataset) -> Result<Redactor> {
        let objset = dsl.objset(snapshot, Mode::Plain)?;
        let unlinked = match objset.kind() {
            ObjsetType::Zfs => Zap::open(objset.object(MASTER_NODE)?)?.object_id("DELETE_QUEUE")?,
            _ => None,
        };
        let unlinked = unlinked.map(|id| Zap::open(objset.object(id)?)).transpose()?;
        Ok(Redactor { objset, unlinked })
    }

    /// The object that was `old`, if blocks of that can be there still.
    fn object(&self, old: &Object) -> Result<Option<Object>> {
        if let Some(unlinked) = &self.unlinked
            && unlinked.u64(&format!("{:x}", old.id()))?.is_some()
        {
            return Ok(None);
        }
        match self.objset.object(old.id()) {
            Ok(object) => {
                let (new, old) = (object.dnode(), old.dnode());
                let is_like = new.object_type == old.object_type && new.block_size == old.block_size;
                Ok(is_like.then_some(object))
            }
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

struct RedactionSearch<'a> {
    base: &'a Arc<Objset>,
    redactors: &'a [Redactor],
    since_txg: Txg,
    from: (ObjectId, u64),
}

impl RedactionSearch<'_> {
    /// Looks at the objects from `first` on, before `end`.
    fn objects(&self, first: ObjectId, end: ObjectId, f: FoundRange<'_>) -> Result<()> {
        let mut next = self.base.next_object(first.previous())?;
        while let Some(id) = next.filter(|id| *id < end) {
            self.object(&self.base.object(id)?, f)?;
            next = self.base.next_object(id)?;
        }
        Ok(())
    }

    fn object(&self, old: &Object, f: FoundRange<'_>) -> Result<()> {
        if old.dnode().object_type.is_metadata() {
            return Ok(());
        }
        let now = self.redactors.iter().map(|one| one.object(old)).collect::<Result<Vec<Option<Object>>>>()?;
        let end = old.dnode().block_max.saturating_add(1);
        let mut at = if old.id() == self.from.0 { self.from.1 } else { 0 };
        let mut found = JoinedRanges { object: old.id(), block_size: old.dnode().block_size, pending: None, f };
        while at < end {
            // a hole of any length is looked at as one
            let allocated = old.next_allocated(at.saturating_mul(found.block_size)..u64::MAX)?;
            let allocated = allocated.map_or(end, |offset| offset / found.block_size);
            let to = at.saturating_add(WINDOW).max(allocated).min(end);
            let mut spans = vec![(at, to - 1)];
            for object in now.iter().flatten() {
                spans = common(&spans, &self.changed(object, at, to)?);
            }
            spans.into_iter().try_for_each(|span| found.add(span))?;
            at = to;
        }
        found.end()
    }

    /// What of an object has changed since the snapshot, of the blocks from `at` on, before `to`.
    fn changed(&self, object: &Object, at: u64, to: u64) -> Result<Vec<Span>> {
        let mut spans: Vec<Span> = Vec::new();
        object.changed_within(self.since_txg, at..to, &mut |part| {
            let (first, last) = match part {
                ChangedPart::Data { blkid, .. } => (blkid, blkid),
                ChangedPart::Hole { first, count } => (first, first + (count - 1)),
            };
            match spans.last_mut() {
                Some((_, end)) if *end + 1 == first => *end = last,
                _ => spans.push((first, last)),
            }
            Ok(())
        })?;
        // what is behind the last block is gone
        let gone = object.dnode().block_max.saturating_add(1).max(at);
        if gone < to {
            spans.retain(|(first, _)| *first < gone);
            if let Some((_, last)) = spans.last_mut() {
                *last = (*last).min(gone - 1);
            }
            spans.push((gone, to - 1));
        }
        Ok(spans)
    }
}

/// Blocks of an object that were found, and holes among them, joined to ranges.
struct JoinedRanges<'a> {
    object: ObjectId,
    block_size: u64,
    pending: Option<Span>,
    f: FoundRange<'a>,
}

impl JoinedRanges<'_> {
    fn add(&mut self, span: Span) -> Result<()> {
        match &mut self.pending {
            Some((_, last)) if *last + 1 == span.0 => *last = span.1,
            _ => {
                self.end()?;
                self.pending = Some(span);
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let Some((mut first, last)) = self.pending.take() else { return Ok(()) };
        let range = |first, last| RedactedRange { object: self.object, first, last, block_size: self.block_size };
        while last - first >= RedactedRange::BLOCKS_MAX {
            (self.f)(range(first, first + (RedactedRange::BLOCKS_MAX - 1)))?;
            first += RedactedRange::BLOCKS_MAX;
        }
        (self.f)(range(first, last))
    }
}

/// What two lists of spans, each in its order, have in common.
fn common(one: &[Span], other: &[Span]) -> Vec<Span> {
    let (mut spans, mut i, mut k) = (Vec::new(), 0, 0);
    while let (Some(a), Some(b)) = (one.get(i), other.get(k)) {
        let (first, last) = (a.0.max(b.0), a.1.min(b.1));
        if first <= last {
            spans.push((first, last));
        }
        if a.1 <= b.1 { i += 1 } else { k += 1 }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_spans_have_in_common() {
        assert_eq!(common(&[(0, 9)], &[(2, 3), (5, 20)]), [(2, 3), (5, 9)]);
        assert_eq!(common(&[(1, 1), (4, 6), (8, 8)], &[(0, 1), (5, 5), (6, 7)]), [(1, 1), (5, 5), (6, 6)]);
        assert!(common(&[(1, 2)], &[(3, 4)]).is_empty() && common(&[], &[(0, 1)]).is_empty());
    }
}
