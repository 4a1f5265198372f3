//! Beginning to redact: the bookmark is made first, with a list that is not complete, so that it can go on after a crash.

use base::{Error, Kind, Result};
use format::feature::REDACTED_DATASETS;
use format::ids::{Guid, ObjectId};
use format::redaction::RedactionHead;

use super::{Change, bookmark, feature, redaction_list};
use crate::redaction::RedactionList;
use crate::{Dataset, Dsl};

/// A redaction that has begun, or goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BegunRedaction {
    /// The object of the list.
    pub list: ObjectId,
    /// The object and block from which on blocks are to be found.
    pub from: (ObjectId, u64),
}

/// Makes the bookmark `own` of a snapshot, with a list that is to be filled, or finds one that was begun for the same later
/// snapshots. Errors, as `zfs redact` words them: `Exists`, `Invalid` for names and for snapshots that do not come from the
/// first, `Unsupported`, `TooBig`, `Encrypted`.
pub fn begin_redaction(
    change: &Change<'_>,
    dsl: &Dsl,
    snapshot: &Dataset,
    own: &str,
    later: &[Dataset],
) -> Result<BegunRedaction> {
    let is_redacted = |one: &Dataset| {
        Ok::<bool, Error>(feature::used_by(change, one.id)?.iter().any(|(guid, _)| guid == REDACTED_DATASETS))
    };
    for one in std::iter::once(snapshot).chain(later) {
        if is_redacted(one)? {
            let what = "attempted to redact redacted dataset or with respect to redacted dataset";
            return Err(Error::new(Kind::Invalid, what));
        }
        dsl.refuse_encrypted(&dsl.find_dir(one.file_system())?)?;
    }
    for one in later {
        if !one.is_snapshot() || !dsl.is_before(snapshot, one)? {
            let what = "redaction snapshot must be descendent of snapshot being redacted";
            return Err(Error::new(Kind::Invalid, what));
        }
    }
    let guids: Vec<Guid> = later.iter().map(|one| one.phys.guid).collect();
    let name = format!("{}#{own}", snapshot.file_system());
    let Some(there) = bookmark::list_of(change, dsl, &name)? else {
        let head = RedactionHead { snapshots: guids, ..RedactionHead::default() };
        let list = redaction_list::create(change, &head)?;
        bookmark::create_with_list(change, dsl, &name, &snapshot.name, list)?;
        return Ok(BegunRedaction { list, from: (ObjectId::NONE, 0) });
    };
    let exists = || Error::new(Kind::Exists, format!("specified redaction bookmark ({own}) provided already exists"));
    if there.is_none() {
        return Err(exists());
    }
    let head = RedactionList::open(change.mos, there)?.head().clone();
    if !head.is_for(&guids) {
        let what = "attempted to resume redaction  with a mismatched redaction list";
        return Err(Error::new(Kind::Exists, what));
    }
    match head.is_complete() {
        true => Err(exists()),
        false => Ok(BegunRedaction { list: there, from: head.last }),
    }
}
