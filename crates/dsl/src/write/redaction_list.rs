//! Lists of what is redacted: made, added to, and freed.

use base::{Error, Kind, Result};
use dmu::INDIRECT_SHIFT;
use format::dnode::Dnode;
use format::feature::{REDACTION_BOOKMARKS, REDACTION_LIST_SPILL};
use format::ids::ObjectId;
use format::object_type::ObjectType;
use format::redaction::{RedactedRange, RedactionHead};

use super::{Change, feature};
use crate::redaction::RedactionList;

/// The type of a list and of its bonus buffer: 64-bit words, metadata.
const WORDS: ObjectType = ObjectType(0xc3);
/// Bytes of a block of a list.
const BLOCK_SIZE: u64 = 128 << 10;
/// Bytes of a head in a bonus buffer.
const BONUS_SIZE_MAX: usize = 320;
/// Bytes of a head in a spill block, whose size is a whole number of sectors.
const SPILL_SIZE_MAX: usize = 128 << 10;
const SECTOR: usize = 512;

/// Makes an empty list. Errors: `Unsupported` without the features; `TooBig` if it is for too many snapshots.
pub(super) fn create(change: &Change<'_>, head: &RedactionHead) -> Result<ObjectId> {
    if !feature::is_enabled(change, REDACTION_BOOKMARKS)? {
        return Err(Error::new(Kind::Unsupported, "redaction bookmarks feature not enabled"));
    }
    let bytes = head.to_bytes();
    let is_spilled = bytes.len() > BONUS_SIZE_MAX;
    let may_spill = feature::is_enabled(change, REDACTION_LIST_SPILL)?;
    if is_spilled && !(may_spill && bytes.len() <= SPILL_SIZE_MAX) {
        return Err(Error::new(Kind::TooBig, "too many redaction snapshots specified"));
    }
    let mut dnode = Dnode::new(WORDS, BLOCK_SIZE, INDIRECT_SHIFT, 1, 1);
    dnode.bonus_type = WORDS;
    dnode.bonus = if is_spilled { Vec::new() } else { bytes.clone() };
    let object = change.mos.allocate(change.tx, dnode)?;
    feature::count(change, REDACTION_BOOKMARKS, 1)?;
    if is_spilled {
        put_spill(change, object.id(), bytes)?;
        feature::count(change, REDACTION_LIST_SPILL, 1)?;
    }
    Ok(object.id())
}

/// Frees a list.
pub(super) fn free(change: &Change<'_>, id: ObjectId) -> Result<()> {
    let is_spilled = change.mos.object(id)?.spill()?.is_some();
    change.free_object(id)?;
    if is_spilled {
        feature::count(change, REDACTION_LIST_SPILL, -1)?;
    }
    feature::count(change, REDACTION_BOOKMARKS, -1).map(drop)
}

/// Adds ranges, behind those that are there; `last` says up to where all has been looked at. Errors: those of reading.
pub fn append_redacted(
    change: &Change<'_>,
    id: ObjectId,
    ranges: &[RedactedRange],
    last: (ObjectId, u64),
) -> Result<()> {
    let list = RedactionList::open(change.mos, id)?;
    let mut head = list.head().clone();
    if !ranges.is_empty() {
        let bytes: Vec<u8> = ranges.iter().flat_map(RedactedRange::to_bytes).collect();
        let at = head.ranges.checked_mul(RedactedRange::SIZE as u64);
        let at = at.ok_or_else(|| Error::corrupt(format!("a list of {} redacted ranges", head.ranges)))?;
        list.object().write(change.tx, at, &bytes)?;
        head.ranges += ranges.len() as u64;
    }
    head.last = last;
    match list.object().spill()? {
        Some(_) => put_spill(change, id, head.to_bytes()),
        None => change.mos.object(id)?.update(change.tx, |dnode| {
            let bytes = head.to_bytes();
            let len = bytes.len().min(dnode.bonus.len());
            dnode.bonus[..len].copy_from_slice(&bytes[..len]);
        }),
    }
}

fn put_spill(change: &Change<'_>, id: ObjectId, mut bytes: Vec<u8>) -> Result<()> {
    bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
    change.mos.object(id)?.set_spill(change.tx, Some(&bytes))
}
