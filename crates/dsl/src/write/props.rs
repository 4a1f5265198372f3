//! Setting properties, and going back to inherited or received values.
//!
//! ```text
//!   set            name = value, no name$inherit
//!   inherit        no name; name$inherit, where something was received
//!   inherit -S     no name, no name$inherit: what was received counts again
//! ```
//!
//! Some values are also elsewhere: `quota` and `reservation` in the directory's record, where they are in force.
//! Others only there: default quotas are inside of the object set, for whose owner they are returned as [`ObjsetProperty`].

use std::cmp::Ordering;

use base::{Error, Kind, Result, ResultExt};
use dmu::zap::ZapValue;
use format::feature::ZSTD_COMPRESS;
use format::ids::{DatasetId, DirId, ObjectId};
use format::object_type::ObjectType;

use super::limits::{DatasetLimits, LimitChange};
use super::{Change, counts, feature};
use crate::property::rules::{self, Given};
use crate::property::{DatasetKind, ValueOrigin, needs};
use crate::props::{HAS_RECEIVED, IF_KNOWN_SUFFIX, INHERIT_SUFFIX};
use crate::{Dsl, Property, PropertyValue, Subject};

/// A property that belongs inside of the object set, and is not stored anywhere yet.
pub type ObjsetProperty = (Property, u64);

/// Sets a property of a file system, volume or snapshot, as `zfs set` does. `dsl` is that of the MOS that is
/// being changed; `usable_bytes` is the size of the pool without parity and without what ZFS keeps for itself.
/// What belongs inside of the object set is returned: it is for the caller to store there.
///
/// Errors: `NotFound`; those of [`rules::check`]; `NoSpace` for a limit that cannot be kept; `Unsupported` for
/// values that need a feature which is not enabled.
pub fn set_property(
    change: &Change<'_>,
    dsl: &Dsl,
    dataset: &str,
    name: &str,
    text: &str,
    usable_bytes: u64,
) -> Result<Option<ObjsetProperty>> {
    let subject = dsl.subject(dataset)?;
    let given = rules::check(name, text, subject.kind(), false)?;
    needs::check(std::slice::from_ref(&given), feature::enabled(change)?, false)?;
    let head = subject.dataset().ok_or_else(not_for_bookmarks)?.id;
    if let Given { property: Some(property), value: PropertyValue::Number(number), .. } = given
        && property.info().from == ValueOrigin::Contents
    {
        return in_contents(dsl, &subject, property, number);
    }
    if given.property == Some(Property::Keylocation) {
        dsl.refuse_encrypted(subject.dir())?;
        return Ok(None);
    }
    let limits = LimitChange::plan(change, dsl, &subject, &given, usable_bytes)?;
    put(change, &subject, head, &given)?;
    use_feature(change, head, &given)?;
    counts::begin_if_limited(change, subject.dir().id, &given)?;
    limits.put(change)?;
    Ok(None)
}

/// Makes a property of a file system, volume or snapshot inherited, as `zfs inherit` does; with `received`
/// (`-S`) what was received with it counts, if anything was.
///
/// Errors: `NotFound`; those of [`rules::check_inherit`]; `NoSpace` for a received limit that cannot be kept.
pub fn inherit_property(
    change: &Change<'_>,
    dsl: &Dsl,
    dataset: &str,
    name: &str,
    received: bool,
    usable_bytes: u64,
) -> Result<()> {
    let subject = dsl.subject(dataset)?;
    let property = rules::check_inherit(name, subject.kind(), received)?;
    let name = property.map_or(name, |property| property.name());
    let head = subject.dataset().ok_or_else(not_for_bookmarks)?;
    let table = match subject.kind() {
        DatasetKind::Snapshot => head.phys.props_zap,
        _ => subject.dir().phys.props_zap,
    };
    if table.is_none() {
        return Ok(());
    }
    let reverted = if received { subject.levels().received(name) } else { None };
    let is_reverted = reverted.is_some();
    let value = reverted.unwrap_or(PropertyValue::Number(0));
    let given = Given { name: name.to_owned(), property, value };
    if is_reverted {
        needs::check(std::slice::from_ref(&given), feature::enabled(change)?, false)?;
    }
    let limits = LimitChange::plan(change, dsl, &subject, &given, usable_bytes)?;

    if is_reverted {
        use_feature(change, head.id, &given)?;
        counts::begin_if_limited(change, subject.dir().id, &given)?;
    }
    change.remove(table, name)?;
    if received {
        change.remove(table, &format!("{name}{INHERIT_SUFFIX}"))?;
    } else {
        change.remove(table, &format!("{name}{IF_KNOWN_SUFFIX}"))?;
        if change.number(table, HAS_RECEIVED)?.is_some() {
            change.set(table, &format!("{name}{INHERIT_SUFFIX}"), &ZapValue::one(0))?;
        }
    }
    if subject.kind() == DatasetKind::Snapshot && change.entries_of(table)? == 0 {
        change.free_object(table)?;
        change.update_dataset(head.id, |phys| phys.props_zap = ObjectId::NONE)?;
    }
    limits.put(change)
}

/// Notes that a dataset uses zstd as soon as it is set: versions without it do not know the value. Other
/// features are in use when the first block is written with them.
fn use_feature(change: &Change<'_>, head: DatasetId, given: &Given) -> Result<()> {
    match needs::feature_for(given) {
        Some(ZSTD_COMPRESS) => feature::use_in(change, head, ZSTD_COMPRESS),
        _ => Ok(()),
    }
}

/// Stores the properties of a new dataset, whose head is `head`.
pub(super) fn store_given(change: &Change<'_>, dir: DirId, head: DatasetId, given: &[Given]) -> Result<()> {
    let table = change.dir(dir)?.props_zap;
    let mut limits = DatasetLimits::default();
    for given in given {
        // of what belongs to keys, only "none" is possible
        let is_elsewhere =
            |property: Property| matches!(property.info().from, ValueOrigin::Contents | ValueOrigin::Key);
        if given.property.is_some_and(|p| is_elsewhere(p) || p == Property::Keylocation) {
            continue;
        }
        put_value(change, table, given)?;
        use_feature(change, head, given)?;
        counts::begin_if_limited(change, dir, given)?;
        limits = limits.with(given);
    }
    limits.put_on_new(change, dir)
}

pub(super) fn put(change: &Change<'_>, subject: &Subject, id: DatasetId, given: &Given) -> Result<()> {
    if subject.kind() != DatasetKind::Snapshot {
        return put_value(change, subject.dir().phys.props_zap, given);
    }
    let table = match change.dataset(id)?.props_zap {
        ObjectId::NONE => change.create_table(ObjectType::DSL_PROPS)?,
        table => table,
    };
    change.update_dataset(id, |phys| phys.props_zap = table)?;
    put_value(change, table, given)
}

pub(super) fn put_value(change: &Change<'_>, table: ObjectId, given: &Given) -> Result<()> {
    let value = match &given.value {
        PropertyValue::Number(number) => ZapValue::one(*number),
        PropertyValue::Text(text) => ZapValue::of_text(text),
    };
    change.remove(table, &format!("{}{INHERIT_SUFFIX}", given.name))?;
    change.remove(table, &format!("{}{IF_KNOWN_SUFFIX}", given.name))?;
    change.set(table, &given.name, &value)
}

/// A property of the object set's own. A file system's version is only ever raised.
fn in_contents(dsl: &Dsl, subject: &Subject, property: Property, number: u64) -> Result<Option<ObjsetProperty>> {
    if property != Property::Version {
        return Ok(Some((property, number)));
    }
    let version = match dsl.property(subject, property, 0).in_dataset(subject.name())? {
        Some(crate::Sourced { value: PropertyValue::Number(version), .. }) => version,
        _ => 0,
    };
    match number.cmp(&version) {
        Ordering::Equal => Ok(None),
        Ordering::Less => Err(Error::new(Kind::Invalid, format!("Can not downgrade; already at version {version}"))),
        Ordering::Greater => Ok(Some((property, number))),
    }
}

fn not_for_bookmarks() -> Error {
    Error::new(Kind::Invalid, "bookmarks have no properties of their own")
}
