//! Clones: file systems and volumes that begin with what a snapshot holds.

use base::{Error, Kind, Result, ResultExt};

use super::create::Created;
use super::receive::note_received;
use super::{Change, counts, create, feature, livelist, props, room};
use crate::Dsl;
use crate::name::{NameKinds, check_new_name};
use crate::property::rules;
use crate::property::{DatasetKind, ValueOrigin, needs};

/// Makes a file system or volume that begins with what a snapshot holds, with properties of its own. Its object set
/// is the snapshot's, whose log is stale: the caller writes the head without it. `None` if the snapshot is of this
/// group: the next one can clone it.
///
/// Errors: `NotFound` for the snapshot or the parent, `Exists`, those of [`check_new_name`], those of wrong properties,
/// `NoSpace` for a reservation, `Encrypted`.
pub fn clone_snapshot(
    change: &Change<'_>,
    dsl: &Dsl,
    snapshot: &str,
    target: &str,
    properties: &[(String, String)],
    usable_bytes: u64,
) -> Result<Option<Created>> {
    check_new_name(target, NameKinds::HEADS)?;
    let source = dsl.subject(snapshot)?;
    let of = source.dataset().filter(|dataset| dataset.is_snapshot());
    let of = of.ok_or_else(|| Error::new(Kind::Invalid, "the source is no snapshot"))?;
    let Some((above, own_name)) = target.rsplit_once('/') else {
        return Err(Error::new(Kind::Invalid, "missing dataset name"));
    };
    let parent = match dsl.subject(above) {
        Err(e) if e.kind() == Kind::NotFound => {
            return Err(Error::new(Kind::NotFound, format!("no such parent '{above}'")));
        }
        parent => parent?,
    };
    if parent.kind() != DatasetKind::FileSystem {
        return Err(Error::new(Kind::Invalid, "parent is not a filesystem"));
    }
    dsl.refuse_encrypted(source.dir())?;
    dsl.refuse_encrypted(parent.dir())?;
    if change.number(parent.dir().phys.child_zap, own_name)?.is_some() {
        return Err(Error::new(Kind::Exists, "dataset already exists"));
    }
    let mut given = Vec::new();
    for (name, text) in properties {
        let one = rules::check(name, text, source.head_kind(), true)?;
        if one.property.is_some_and(|property| property.info().from == ValueOrigin::Contents) {
            let what = format!("'{name}': a clone has it from its origin");
            return Err(Error::new(Kind::Invalid, what));
        }
        given.push(one);
    }
    needs::check(&given, feature::enabled(change)?, true)?;
    room::check_for_new(dsl, &parent, &given, usable_bytes)?;
    if of.phys.creation_txg >= change.tx.txg() {
        return Ok(None);
    }
    let dir = create::create_dir(change, Some((parent.dir().id, own_name)))?;
    let dataset = create::create_head(change, dir, of.id)?;
    livelist::create(change, dir)?;
    counts::count_new(change, parent.dir().id, dir)?;
    if source.levels().has_received() {
        // it has what the stream brought
        note_received(change, dir)?;
    }
    props::store_given(change, dir, dataset, &given).in_dataset(target)?;
    Ok(Some(Created { kind: source.head_kind(), dir, dataset, contents: Vec::new() }))
}
