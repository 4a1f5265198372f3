//! Properties that came with a stream.
//!
//! They count where nothing was set by hand; `zfs inherit -S` goes back to them.

use base::{Error, Kind, Result};
use dmu::zap::{Zap, ZapValue};
use format::ids::ObjectId;
use format::nvlist;
use format::object_type::ObjectType;

use super::limits::LimitChange;
use super::{Change, RefusedChanges, counts, feature, props, room};
use crate::property::rules::{self, Given};
use crate::property::{DatasetKind, ValueOrigin, needs};
use crate::props::{HAS_RECEIVED, RECEIVED_SUFFIX};
use crate::{Dsl, Property, PropertyValue, Subject};

/// Properties of one dataset at most.
const COUNT_MAX: usize = 4096;

/// Stores the properties of a dataset that a stream says, instead of those of earlier streams. They are checked as
/// those that people give: what was refused, and why. Errors: `NotFound`; those of reading.
pub fn set_received(
    change: &Change<'_>,
    dsl: &Dsl,
    dataset: &str,
    values: &[(String, nvlist::Value)],
    usable_bytes: u64,
) -> Result<RefusedChanges> {
    let subject = dsl.subject(dataset)?;
    let table = table_of(change, &subject)?;
    let reserved = room::refreservation_of(change, subject.dir().id)?;
    forget_received(change, table)?;
    if subject.kind() != DatasetKind::Snapshot {
        free_limits(change, dsl, &subject, table, usable_bytes)?;
    }
    change.set(table, HAS_RECEIVED, &ZapValue::one(0))?;
    let mut refused = RefusedChanges::new();
    for (name, value) in values.iter().take(COUNT_MAX) {
        match check_received(change, &subject, name, value) {
            Err(error) => refused.push((name.clone(), error)),
            Ok(None) => {}
            Ok(Some(given)) => {
                if let Err(error) = put_received(change, dsl, dataset, table, &given, usable_bytes) {
                    refused.push((name.clone(), error));
                }
            }
        }
    }
    if let Some(error) = settle_refreservation(change, dsl, &subject, reserved, usable_bytes)? {
        refused.push((Property::Refreservation.name().to_owned(), error));
    }
    let too_many =
        |(name, _): &(String, nvlist::Value)| (name.clone(), Error::new(Kind::TooBig, "too many properties"));
    refused.extend(values.iter().skip(COUNT_MAX).map(too_many));
    Ok(refused)
}

/// Charges what the refreservation is now, instead of what it was `before`. Returns why it is refused, if it is.
fn settle_refreservation(
    change: &Change<'_>,
    dsl: &Dsl,
    subject: &Subject,
    before: u64,
    usable_bytes: u64,
) -> Result<Option<Error>> {
    let dir = subject.dir();
    let settle = || {
        let after = room::refreservation_of(change, dir.id)?;
        LimitChange::of_refreservation(change, dsl, subject, (before, after), usable_bytes)?.put(change)
    };
    match settle() {
        Err(e) if e.kind() == Kind::NoSpace => {
            change.remove(dir.phys.props_zap, &format!("{}{RECEIVED_SUFFIX}", Property::Refreservation.name()))?;
            settle().map(|()| Some(e))
        }
        settled => settled.map(|()| None),
    }
}

fn table_of(change: &Change<'_>, subject: &Subject) -> Result<ObjectId> {
    let Some(dataset) = subject.dataset().filter(|_| subject.kind() == DatasetKind::Snapshot) else {
        return Ok(subject.dir().phys.props_zap);
    };
    match change.dataset(dataset.id)?.props_zap {
        ObjectId::NONE => {
            let table = change.create_table(ObjectType::DSL_PROPS)?;
            change.update_dataset(dataset.id, |phys| phys.props_zap = table)?;
            Ok(table)
        }
        table => Ok(table),
    }
}

fn forget_received(change: &Change<'_>, table: ObjectId) -> Result<()> {
    for entry in Zap::open(change.mos.object(table)?)?.entries()? {
        let name = entry.name.to_string();
        if name.ends_with(RECEIVED_SUFFIX) {
            change.remove(table, &name)?;
        }
    }
    Ok(())
}

/// Takes limits that are not set any more out of force.
fn free_limits(change: &Change<'_>, dsl: &Dsl, subject: &Subject, table: ObjectId, usable_bytes: u64) -> Result<()> {
    for property in [Property::Quota, Property::Reservation] {
        let name = property.name();
        if change.number(table, name)?.is_none() {
            let none = PropertyValue::Number(0);
            let given = Given { name: name.to_owned(), property: Some(property), value: none };
            LimitChange::plan(change, dsl, subject, &given, usable_bytes)?.put(change)?;
        }
    }
    Ok(())
}

/// A value as it is stored; `None` for what is known from elsewhere.
fn check_received(change: &Change<'_>, subject: &Subject, name: &str, value: &nvlist::Value) -> Result<Option<Given>> {
    let property = Property::find(name);
    if property.is_some_and(|property| property.is_read_only() || property.info().from == ValueOrigin::Contents) {
        return Ok(None);
    }
    let text = match (value, property) {
        (nvlist::Value::Str(text), _) => text.clone(),
        (nvlist::Value::U64(number), Some(property)) => {
            let unknown = || Error::new(Kind::Invalid, format!("'{name}': {number} is no choice"));
            rules::text_of(property, *number).ok_or_else(unknown)?
        }
        (nvlist::Value::U64(number), None) => number.to_string(),
        _ => return Err(Error::new(Kind::Invalid, format!("'{name}' is neither a number nor a text"))),
    };
    let given = rules::check(name, &text, subject.kind(), false)?;
    needs::check(std::slice::from_ref(&given), feature::enabled(change)?, false)?;
    Ok(Some(given))
}

fn put_received(
    change: &Change<'_>,
    dsl: &Dsl,
    dataset: &str,
    table: ObjectId,
    given: &Given,
    usable_bytes: u64,
) -> Result<()> {
    let value = match &given.value {
        PropertyValue::Number(number) => ZapValue::one(*number),
        PropertyValue::Text(text) => ZapValue::of_text(text),
    };
    change.set(table, &format!("{}{RECEIVED_SUFFIX}", given.name), &value)?;
    counts::begin_if_limited(change, dsl.find_dir(dataset.split('@').next().unwrap_or(dataset))?.id, given)?;
    let is_limit = matches!(given.property, Some(Property::Quota | Property::Reservation));
    // limits are in force elsewhere, too
    if is_limit && change.number(table, &given.name)?.is_none() {
        props::inherit_property(change, dsl, dataset, &given.name, true, usable_bytes)?;
    }
    Ok(())
}
