//! Snapshots are looked for by their guid, which several may have: the nearest counts.

use std::collections::HashSet;

use base::Result;
use dsl::{Dataset, Dir, Dsl};
use format::ids::{DirId, Guid};

/// The snapshot with a guid that is nearest to a dataset, which need not be there: among those of it and of what lies below
/// it, then further and further up. Errors: those of reading datasets.
pub(super) fn nearest_snapshot(dsl: &Dsl, near: &str, guid: Guid) -> Result<Option<Dataset>> {
    let mut searched = HashSet::new();
    let mut around = Some(near);
    while let Some(name) = around {
        if let Ok(top) = dsl.find_dir(name)
            && let Some(found) = at_or_below(dsl, top, &mut searched, guid)?
        {
            return Ok(Some(found));
        }
        around = name.rsplit_once('/').map(|(above, _)| above);
    }
    Ok(None)
}

/// Looks at a dataset and all below it, but for those that were looked at.
fn at_or_below(dsl: &Dsl, top: Dir, searched: &mut HashSet<DirId>, guid: Guid) -> Result<Option<Dataset>> {
    let mut waiting = vec![top];
    while let Some(dir) = waiting.pop() {
        // in a damaged tree, one might come by again and again
        if !searched.insert(dir.id) {
            continue;
        }
        if let Ok(head) = dsl.head(&dir) {
            let found = dsl.snapshots(&head)?.into_iter().find(|one| one.phys.guid == guid);
            if found.is_some() {
                return Ok(found);
            }
        }
        waiting.extend(dsl.children(&dir)?.into_iter().flatten());
    }
    Ok(None)
}
