//! Which stream goes on with what an interrupted receive has: by its token, or from what it left here.

use std::collections::HashSet;

use base::{Error, Result};
use dsl::resume::{RECEIVE_CHILD, ResumeState};
use dsl::send::{SavedPart, SendFlags};
use dsl::{Dataset, DatasetBookmark, Dir, Dsl};
use format::feature::LARGE_BLOCKS;
use format::ids::Guid;
use pool::Pool;
use protocol::streams::SendOrder;

use super::super::nearest::nearest_snapshot;
use super::plan::{PlanOutcome, PlannedStream, SendPlan, failure, find_from, missing};

/// Plans what is left of a stream.
pub(super) fn plan_resumed(pool: &Pool, order: &SendOrder, token: &str) -> PlanOutcome<SendPlan> {
    let dsl = pool.dsl();
    let cannot = |why: String| failure("", format!("cannot resume send: {why}"));
    let state = match ResumeState::parse(token) {
        Ok(state) => state,
        Err(error) => return Ok(Err(cannot(error.what().to_owned()))),
    };
    let name = state.to_name.as_str();
    let gone = || cannot(format!("'{name}' used in the initial send no longer exists"));
    let found = match order.to.as_str() {
        // it, or its dataset, may have another name by now
        "" => nearest_snapshot(dsl, name.split('@').next().unwrap_or_default(), state.to_guid)?,
        // what a head is sent from
        named => dsl.find(named).ok(),
    };
    let Some(snapshot) = found else {
        let changed = format!("'{name}' is no longer the same snapshot used in the initial send");
        return Ok(Err(if dsl.find(name).is_ok() { cannot(changed) } else { gone() }));
    };
    let dir = dsl.dir(snapshot.phys.dir, snapshot.file_system())?;
    let head = dsl.head(&dir)?;
    let from = match state.from_guid {
        Guid::NONE => None,
        guid => match from_by_guid(pool, &dir, guid, state.redacted_from.as_deref())? {
            Some(name) => Some(name),
            None => return Ok(Err(cannot(format!("incremental source {guid:#x} no longer exists")))),
        },
    };
    let source = match &from {
        None => None,
        Some(from) => match find_from(pool, &snapshot, &dir, from)? {
            Ok(source) => Some(source),
            Err(failed) => return Ok(Err(failed)),
        },
    };
    let flags = SendFlags {
        large_blocks: order.large_blocks || state.large_blocks || state.raw,
        embedded: order.embedded || state.embedded || state.raw,
        compressed: order.compressed || state.compressed || state.raw,
    };
    let was_cut = !state.large_blocks && !state.raw;
    if was_cut && flags.large_blocks && dsl.dataset_field(&snapshot, LARGE_BLOCKS)?.is_some() {
        let what = "it was begun without -L (--large-block) and -w (--raw), and goes on so";
        return Ok(Err(cannot(what.to_owned())));
    }
    let by = match redaction_for(dsl, &head, &snapshot, &state)? {
        Ok(by) => by,
        Err(why) => return Ok(Err(cannot(why.to_owned()))),
    };
    let mut stream = PlannedStream::whole(snapshot, flags);
    stream.resume = Some((state.object, state.offset));
    if let Some(source) = source {
        stream.begin_from(source, from);
    }
    stream.redaction.by = by;
    Ok(Ok(SendPlan { streams: vec![stream], ..SendPlan::default() }))
}

/// Plans what an interrupted receive has left, from its beginning to where that ends: another receiver can go on there.
pub(super) fn plan_saved(pool: &Pool, order: &SendOrder) -> PlanOutcome<SendPlan> {
    let dsl = pool.dsl();
    let name = order.to.as_str();
    let cannot = |why: &str| failure(name, format!("saved send failed: {why}"));
    let Ok(dir) = dsl.find_dir(name) else { return Ok(Err(missing(name))) };
    let head = dsl.head(&dir)?;
    let Some(token) = dsl.resume_token(&dir, &head)? else {
        return Ok(Err(cannot(&format!("'{name}' does not have any resumable receive state"))));
    };
    let Ok(state) = ResumeState::parse(&token) else {
        return Ok(Err(cannot("dataset's resume token is corrupt")));
    };
    let partial = match dsl.find_dir(&format!("{name}/{RECEIVE_CHILD}")) {
        Ok(child) => dsl.head(&child)?,
        Err(_) => head,
    };
    let from = match state.from_guid {
        Guid::NONE => None,
        guid => match from_by_guid(pool, &dir, guid, state.redacted_from.as_deref())? {
            Some(from) => Some(from),
            None => return Ok(Err(cannot(&format!("incremental source {guid:#x} no longer exists")))),
        },
    };
    let source = match &from {
        None => None,
        Some(from) => match find_from(pool, &partial, &dir, from)? {
            Ok(source) => Some(source),
            Err(failed) => return Ok(Err(failed)),
        },
    };
    let flags = SendFlags { large_blocks: state.large_blocks, embedded: state.embedded, compressed: state.compressed };
    let mut stream = PlannedStream::whole(partial, flags);
    stream.saved = Some(SavedPart { name: state.to_name, guid: state.to_guid, until: (state.object, state.offset) });
    if let Some(source) = source {
        stream.begin_from(source, from);
    }
    Ok(Ok(SendPlan { streams: vec![stream], ..SendPlan::default() }))
}

/// The redaction bookmark that a stream was redacted by; in its place, why it cannot be used.
fn redaction_for(
    dsl: &Dsl,
    head: &Dataset,
    snapshot: &Dataset,
    state: &ResumeState,
) -> Result<Result<Option<DatasetBookmark>, &'static str>> {
    let Some(guids) = &state.redacted_for else { return Ok(Ok(None)) };
    // what was received redacted leaves out the same again
    if dsl.redacted_for(snapshot)?.is_some() {
        return Ok(Ok(None));
    }
    for bookmark in dsl.bookmarks(head)?.into_iter().filter(|one| one.redaction_object.is_some()) {
        let list = dsl.redaction_list(&bookmark)?;
        if bookmark.guid == snapshot.phys.guid && list.head().is_for(guids) {
            let is_complete = list.head().is_complete();
            return Ok(if is_complete { Ok(Some(bookmark)) } else { Err("incomplete redaction bookmark provided") });
        }
    }
    Ok(Err("no appropriate redaction bookmark exists"))
}

/// The snapshot or bookmark with a guid, of a dataset or of what it is a clone of. With `redacted`, it is one that was
/// redacted for these snapshots.
fn from_by_guid(pool: &Pool, dir: &Dir, guid: Guid, redacted: Option<&[Guid]>) -> Result<Option<String>> {
    let dsl = pool.dsl();
    let is_same = |guids: &[Guid], of: &[Guid]| guids.len() == of.len() && guids.iter().all(|guid| of.contains(guid));
    let snapshot_fits = |one: &Dataset| match redacted {
        None => Ok::<bool, Error>(true),
        Some(guids) => Ok(dsl.redacted_for(one)?.is_some_and(|of| is_same(guids, &of))),
    };
    let bookmark_fits = |one: &DatasetBookmark| match redacted {
        None => Ok::<bool, Error>(true),
        Some(guids) => Ok(one.redaction_object.is_some() && dsl.redaction_list(one)?.head().is_for(guids)),
    };
    let mut at = dir.clone();
    let mut seen = HashSet::new();
    loop {
        let head = dsl.head(&at)?;
        for found in dsl.snapshots(&head)?.into_iter().filter(|one| one.phys.guid == guid) {
            if snapshot_fits(&found)? {
                return Ok(Some(found.name));
            }
        }
        for found in dsl.bookmarks(&head)?.into_iter().filter(|one| one.guid == guid) {
            if bookmark_fits(&found)? {
                return Ok(Some(found.name));
            }
        }
        if at.phys.origin.is_none() || !seen.insert(at.id) {
            return Ok(None);
        }
        let name = dsl.name_of(at.phys.origin)?;
        at = dsl.dir(dsl.dataset(at.phys.origin, &name)?.phys.dir, name.split('@').next().unwrap_or_default())?;
    }
}
