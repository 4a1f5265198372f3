//! Snapshots are looked for by their guid, which several may have: the nearest counts.

use base::Result;
use dsl::{Dataset, Dsl, Subject};
use format::ids::Guid;

/// The snapshot with a guid that is nearest to a dataset, which need not be there: among those of it and of what lies below
/// it, then further and further up. Errors: those of reading datasets.
pub(super) fn nearest_snapshot(dsl: &Dsl, near: &str, guid: Guid) -> Result<Option<Dataset>> {
    let mut searched: Option<&str> = None;
    let mut around = Some(near);
    while let Some(name) = around {
        if let Ok(top) = dsl.subject(name) {
            if let Some(found) = at_or_below(dsl, top, searched, guid)? {
                return Ok(Some(found));
            }
            searched = Some(name);
        }
        around = name.rsplit_once('/').map(|(above, _)| above);
    }
    Ok(None)
}

/// Looks at a dataset and all below it, but for one that was looked at.
fn at_or_below(dsl: &Dsl, top: Subject, searched: Option<&str>, guid: Guid) -> Result<Option<Dataset>> {
    let mut waiting = vec![top];
    while let Some(subject) = waiting.pop() {
        if searched == Some(subject.name()) {
            continue;
        }
        if let Some(head) = subject.dataset() {
            let found = dsl.snapshots(head)?.into_iter().find(|one| one.phys.guid == guid);
            if found.is_some() {
                return Ok(found);
            }
        }
        waiting.extend(dsl.subjects_below(&subject)?.into_iter().flatten());
    }
    Ok(None)
}
