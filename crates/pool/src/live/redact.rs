//! `zfs redact`: the blocks of a snapshot that some later ones have not any more are found, and listed beside a bookmark.
//!
//! ```text
//!   a task: the bookmark, its list not complete ─▶ looking, without a lock ─▶ a task for each portion ─▶ complete
//! ```
//!
//! What ends in between goes on where the last portion ended, when it is asked for again.

use base::{Error, Kind, Result};
use dsl::Dataset;
use format::ids::{DatasetId, ObjectId};
use format::redaction::{RedactedRange, RedactionHead};

use super::LivePool;

/// Ranges that go to disk together.
const PORTION: usize = 16 << 10;

impl LivePool {
    /// Makes redaction bookmark `own` of a snapshot, for some later snapshots. Errors: `NotFound`; as from
    /// [`dsl::write::begin_redaction`] and [`dsl::Dsl::find_redacted`]; `Busy` if that goes on already.
    pub fn redact(&self, snapshot: &str, own: &str, later: &[String]) -> Result<()> {
        let view = self.view();
        let find = |name: &str| match view.dsl().find(name) {
            Ok(found) if found.is_snapshot() => Ok(found),
            _ => Err(Error::new(Kind::NotFound, format!("provided snapshot {name} does not exist"))),
        };
        let base = find(snapshot)?;
        let later = later.iter().map(|name| find(name)).collect::<Result<Vec<Dataset>>>()?;
        let ids: Vec<DatasetId> = later.iter().chain([&base]).map(|one| one.id).collect();
        let _kept = self.keep_snapshots(&ids, &[])?;
        let (of, with, name) = (base.clone(), later.clone(), own.to_owned());
        let (begun, _kept_list) = self.run_last(move |context| {
            let begun = dsl::write::begin_redaction(&context.change, &context.dsl()?, &of, &name, &with)?;
            let kept = context.pool.kept_snapshots();
            if kept.has_list(begun.list) {
                return Err(Error::new(Kind::Busy, "dataset is busy"));
            }
            context.log_event("redact", &format!("{} bookmark={name}", of.name));
            // the list, too, is not destroyed meanwhile
            Ok((begun, kept.keep(&[], &[begun.list])))
        })?;
        let mut portion: Vec<RedactedRange> = Vec::new();
        let put = |portion: &mut Vec<RedactedRange>, last: (ObjectId, u64)| {
            let (ranges, list) = (std::mem::take(portion), begun.list);
            self.run_last(move |context| dsl::write::append_redacted(&context.change, list, &ranges, last))
        };
        view.dsl().find_redacted(&base, &later, begun.from, &mut |range| {
            portion.push(range);
            match portion.len() {
                PORTION.. => put(&mut portion, (range.object, range.last.saturating_add(1))),
                _ => Ok(()),
            }
        })?;
        put(&mut portion, RedactionHead::COMPLETE)
    }
}
