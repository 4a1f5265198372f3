//! Whether a stream fits the pool, and what it begins from here: asked before anything is changed.

use base::{Kind, Result};
use format::feature::{
    EMBEDDED_DATA, EXTENSIBLE_DATASET, LARGE_BLOCKS, LARGE_DNODE, LARGE_MICROZAP, LONGNAME, LZ4_COMPRESS,
    REDACTED_DATASETS, ZSTD_COMPRESS,
};
use format::ids::{DatasetId, Guid};
use format::objset::ObjsetType;
use format::stream::StreamFeatures;

use super::new_receive::{NewReceive, refused};
use crate::write::{Change, feature};
use crate::{Dataset, Dsl};

/// Features that the pool has to have for a stream's.
const NEEDED: [(StreamFeatures, &str); 8] = [
    (StreamFeatures::EMBED_DATA, EMBEDDED_DATA),
    (StreamFeatures::LZ4, LZ4_COMPRESS),
    (StreamFeatures::ZSTD, ZSTD_COMPRESS),
    (StreamFeatures::LARGE_BLOCKS, LARGE_BLOCKS),
    (StreamFeatures::LARGE_DNODE, LARGE_DNODE),
    (StreamFeatures::LONGNAME, LONGNAME),
    (StreamFeatures::LARGE_MICROZAP, LARGE_MICROZAP),
    (StreamFeatures::REDACTED, REDACTED_DATASETS),
];
const UPGRADE_POOL: &str = "pool must be upgraded to receive this stream.";

/// Refuses a stream that the pool lacks a feature for, that is of neither a file system nor a volume, or that does not say
/// for which snapshots it is redacted.
pub(super) fn check_stream(change: &Change<'_>, new: &NewReceive) -> Result<()> {
    let enabled = feature::enabled(change)?;
    if NEEDED.iter().any(|(one, guid)| new.begin.features.has(*one) && !enabled.has(guid)) {
        return refused(Kind::Unsupported, UPGRADE_POOL);
    }
    if new.begin.features.has(StreamFeatures::REDACTED) && new.redacted_for().is_none() {
        let what = "invalid backup stream: it is redacted, and does not say for which snapshots";
        return refused(Kind::Corrupt, what);
    }
    match new.kind() {
        ObjsetType::Zfs | ObjsetType::Zvol => Ok(()),
        _ => refused(Kind::Corrupt, format!("invalid record type: {:#x}", new.begin.objset_type)),
    }
}

/// Refuses what is to be resumed where there is no place for how far it is.
pub(super) fn check_resumable(change: &Change<'_>) -> Result<()> {
    let can_be = feature::is_enabled(change, EXTENSIBLE_DATASET)?;
    if can_be { Ok(()) } else { refused(Kind::Unsupported, UPGRADE_POOL) }
}

/// Refuses a stream that cannot go on from a snapshot.
pub(super) fn check_from(change: &Change<'_>, dsl: &Dsl, from: &Dataset, new: &NewReceive) -> Result<()> {
    if dsl.raw_objset(from)?.kind() != new.kind() {
        let [of, here] = match new.kind() {
            ObjsetType::Zvol => ["volume", "file system"],
            _ => ["file system", "volume"],
        };
        let what = format!("invalid backup stream: it is of a {of}, and '{}' of a {here}", from.name);
        return refused(Kind::Invalid, what);
    }
    if new.begin.from_guid.is_some() {
        check_large_blocks(change, from.id, new)?;
    }
    check_redaction(change, from, new)
}

/// Refuses a stream whose large blocks were cut, if those that are there are not.
pub(super) fn check_large_blocks(change: &Change<'_>, there: DatasetId, new: &NewReceive) -> Result<()> {
    let has_large = feature::used_by(change, there)?.iter().any(|(guid, _)| guid == LARGE_BLOCKS);
    if has_large && !new.begin.features.has(StreamFeatures::LARGE_BLOCKS) {
        let what = "incremental send stream requires -L (--large-block), to match previous receive.";
        return refused(Kind::Invalid, what);
    }
    Ok(())
}

/// Refuses a stream that does not fill all that was left out of the redacted snapshot that it begins from, nor leaves that
/// out itself.
fn check_redaction(change: &Change<'_>, from: &Dataset, new: &NewReceive) -> Result<()> {
    let redacted = feature::used_by(change, from.id)?.into_iter().find(|(guid, _)| guid == REDACTED_DATASETS);
    let Some((_, here)) = redacted.filter(|_| new.begin.from_guid.is_some()) else { return Ok(()) };
    let here = here.guids();
    let is_among = |guids: &[Guid]| guids.iter().all(|guid| here.contains(guid));
    let why = match (&new.redaction.from_snapshots, new.redacted_for()) {
        (Some(guids), _) if is_among(guids) => return Ok(()),
        (Some(_), _) => "it begins from what was redacted for other snapshots than",
        (None, Some(guids)) if is_among(guids) => return Ok(()),
        (None, Some(_)) => "it is redacted for other snapshots than",
        (None, None) if here.contains(&new.to_guid) => return Ok(()),
        (None, None) => "it does not have what was left out of",
    };
    refused(Kind::Invalid, format!("invalid backup stream: {why} '{}'", from.name))
}
