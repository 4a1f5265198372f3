//! What is reckoned for volumes that are made or set: sizes of blocks, and what is reserved.
//!
//! ```text
//!   create -V 10G      volblocksize that suits the pool, volsize up to a multiple of it, refreservation, unless sparse
//!   set volsize        refreservation follows, if it was what the old size asks for
//!   rollback           the same, if the snapshot has another size
//!   refreservation=auto   what the size asks for: `Pool::volume_reservation`
//! ```

use base::{Error, Kind, Result};
use dsl::property::DatasetKind;
use dsl::property::rules::{self, REFRESERVATION_AUTO};
use dsl::{Property, PropertyValue, Subject};
use iscsi::ANY_INITIATOR;
use pool::Pool;
use protocol::datasets::{ChangeRequest, Failure, NewVolumeSpace};
use protocol::volumes::{ISCSI_CHAP, ISCSI_INITIATORS, NBD_LISTEN, NBD_PROPERTY, NBD_TLS};
use protocol::words::nicenum::nicebytes;

use super::around::{failure, words};
use super::host::{DatasetChange, Host};
use crate::iscsi_access::initiators_in;
use crate::network_door::is_none;

type Properties = Vec<(String, String)>;

/// What a new volume is to have, of which `given` was asked for and has been checked.
pub(super) fn completed(pool: &Pool, given: &Properties, space: NewVolumeSpace) -> Result<Properties> {
    let mut properties = given.clone();
    let Some(size) = number(&properties, Property::Volsize)? else { return Ok(properties) };
    let block_size = match number(&properties, Property::Volblocksize)? {
        Some(block_size) => block_size,
        None => {
            let suits = pool.volume_block_size();
            if suits != Property::Volblocksize.default_number() {
                put(&mut properties, Property::Volblocksize, suits);
            }
            suits
        }
    };
    let whole = size.checked_next_multiple_of(block_size);
    let whole = whole.ok_or_else(|| Error::new(Kind::Invalid, "volume size is too large"))?;
    if whole != size {
        put(&mut properties, Property::Volsize, whole);
    }
    if space == NewVolumeSpace::Reserved && find(&properties, Property::Refreservation).is_none() {
        let reserved = pool.volume_reservation(whole, block_size, copies(&properties));
        put(&mut properties, Property::Refreservation, reserved);
    }
    Ok(properties)
}

/// The same properties with a number for `refreservation=auto`.
pub(super) fn reckoned(pool: &Pool, properties: Properties) -> Result<Properties> {
    let size = number(&properties, Property::Volsize)?.unwrap_or(0);
    let block_size = number(&properties, Property::Volblocksize)?;
    let block_size = block_size.unwrap_or(Property::Volblocksize.default_number());
    let reserved = pool.volume_reservation(size, block_size, copies(&properties));
    with_reserved(properties, reserved)
}

/// The same of properties that a volume, or a clone of one, is to have.
pub(super) fn reckoned_for(pool: &Pool, subject: &Subject, properties: Properties) -> Result<Properties> {
    if subject.head_kind() != DatasetKind::Volume {
        return Ok(properties);
    }
    let size = match number(&properties, Property::Volsize)? {
        Some(size) => size,
        None => value(pool, subject, Property::Volsize)?,
    };
    // a snapshot does not show that of its volume
    let head = subject.name().split('@').next().unwrap_or_default();
    let block_size = value(pool, &pool.dsl().subject(head)?, Property::Volblocksize)?;
    with_reserved(properties, pool.volume_reservation(size, block_size, 1))
}

/// What a volume is to be set to, step by step, so that what cannot be reserved changes nothing. Errors: `Invalid` for
/// a size that it cannot have.
pub(super) fn settings(pool: &Pool, subject: &Subject, properties: &[(String, String)]) -> Result<Properties> {
    let properties = properties.to_vec();
    if subject.kind() != DatasetKind::Volume {
        return Ok(properties);
    }
    let mut properties = reckoned_for(pool, subject, properties)?;
    let Some(size) = number(&properties, Property::Volsize)? else { return Ok(properties) };
    let block_size = value(pool, subject, Property::Volblocksize)?;
    if size == 0 {
        return Err(Error::new(Kind::Invalid, "'volsize' cannot be zero"));
    }
    if !size.is_multiple_of(block_size) {
        let what = format!("'volsize' must be a multiple of volume block size ({})", nicebytes(block_size));
        return Err(Error::new(Kind::Invalid, what));
    }
    let before = value(pool, subject, Property::Volsize)?;
    if find(&properties, Property::Refreservation).is_none() && is_reckoned(pool, subject)? {
        let reserved = pool.volume_reservation(size, block_size, 1).to_string();
        let at = if size > before { 0 } else { properties.len() };
        properties.insert(at, (Property::Refreservation.name().to_owned(), reserved));
    }
    Ok(properties)
}

/// Whether what is reserved for a volume is what its size asks for.
pub(super) fn is_reckoned(pool: &Pool, subject: &Subject) -> Result<bool> {
    Ok(subject.kind() == DatasetKind::Volume
        && value(pool, subject, Property::Refreservation)? == reservation_of(pool, subject)?)
}

/// Reserves what the size of a volume asks for after a rollback: it may have had another size.
pub(super) fn reckon_again(host: &dyn Host, name: &str) -> Result<Vec<Failure>> {
    let pool = host.pool();
    let subject = pool.dsl().subject(name)?;
    let reserved = reservation_of(&pool, &subject)?;
    if reserved == value(&pool, &subject, Property::Refreservation)? {
        return Ok(Vec::new());
    }
    let property = Property::Refreservation.name().to_owned();
    let set = DatasetChange::Set { name: name.to_owned(), property, value: reserved.to_string() };
    let why = |error: Error| format!("cannot set property for '{name}': {}", words(&error));
    Ok(host.change(&set).err().map(|error| failure(name, why(error))).into_iter().collect())
}

fn reservation_of(pool: &Pool, subject: &Subject) -> Result<u64> {
    let (size, block_size) = (value(pool, subject, Property::Volsize)?, value(pool, subject, Property::Volblocksize)?);
    Ok(pool.volume_reservation(size, block_size, 1))
}

/// What there is to say of a new volume that wastes room.
pub(super) fn warnings(host: &dyn Host, change: &ChangeRequest) -> Vec<String> {
    let ChangeRequest::Create(create) = change else { return Vec::new() };
    let Ok(Some(block_size)) = number(&create.properties, Property::Volblocksize) else { return Vec::new() };
    if create.volume.is_none() || !block_size.is_power_of_two() {
        return Vec::new();
    }
    let (pool, usual) = (host.pool(), Property::Volblocksize.default_number());
    let (suits, least) = (pool.volume_block_size(), pool.volume_allocation_bytes());
    if block_size < usual {
        return vec![format!(
            "Warning: volblocksize ({block_size}) is less than the default minimum block size ({usual}).\n\
             To reduce wasted space a volblocksize of {suits} is recommended.\n"
        )];
    }
    if block_size < suits {
        let wasted = 100 * (least - block_size) / least;
        return vec![format!(
            "Warning: volblocksize ({block_size}) is much less than the minimum allocation\n\
             unit ({least}), which wastes at least {wasted}% of space. To reduce wasted space,\n\
             use a larger volblocksize ({suits} is recommended), fewer dRAID data disks\n\
             per group, or smaller sector size (ashift).\n"
        )];
    }
    Vec::new()
}

/// What a change that was done leaves open to every user of this machine.
pub(super) fn open_to_all(host: &dyn Host, change: &ChangeRequest) -> Vec<String> {
    let ChangeRequest::Set { dataset, properties, .. } = change else { return Vec::new() };
    let Ok(subject) = host.pool().dsl().subject(dataset) else { return Vec::new() };
    let sets = |names: [&str; 2]| properties.iter().any(|(name, _)| names.contains(&name.as_str()));
    let rule = &host.bounds().rule;
    let value = |name: &str| match rule.value(subject.levels(), name) {
        Some(PropertyValue::Text(text)) if !is_none(&text) => Some(text),
        _ => None,
    };
    let mut notes = Vec::new();
    if sets([NBD_LISTEN, NBD_TLS])
        && let (Some(addresses), None) = (value(NBD_LISTEN), value(NBD_TLS))
    {
        notes.push(format!(
            "Warning: at {addresses}, volumes with '{NBD_PROPERTY}' are open to every user of this machine,\n\
             unless '{NBD_TLS}' is set. The socket that 'cenote volumes' shows has rights.\n"
        ));
    }
    let names_all = || initiators_in(&value(ISCSI_INITIATORS).unwrap_or_default()).any(|name| name == ANY_INITIATOR);
    if sets([ISCSI_INITIATORS, ISCSI_CHAP]) && value(ISCSI_CHAP).is_none() && names_all() {
        notes.push(format!(
            "Warning: '{dataset}' is open to every user of this machine by iSCSI at addresses of loopback, and\n\
             to nobody at others, unless '{ISCSI_CHAP}' is set.\n"
        ));
    }
    notes
}

fn with_reserved(mut properties: Properties, reserved: u64) -> Result<Properties> {
    let name = Property::Refreservation.name();
    for (property, text) in &mut properties {
        let is_it = Property::find(property) == Some(Property::Refreservation);
        if is_it
            && rules::check(name, text, DatasetKind::Volume, true)?.value == PropertyValue::Number(REFRESERVATION_AUTO)
        {
            *text = reserved.to_string();
        }
    }
    Ok(properties)
}

fn find(properties: &Properties, property: Property) -> Option<&str> {
    let found = properties.iter().find(|(name, _)| Property::find(name) == Some(property));
    found.map(|(_, text)| text.as_str())
}

fn number(properties: &Properties, property: Property) -> Result<Option<u64>> {
    find(properties, property).map(rules::parse_number).transpose()
}

fn copies(properties: &Properties) -> u64 {
    find(properties, Property::Copies).and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn put(properties: &mut Properties, property: Property, number: u64) {
    properties.retain(|(name, _)| Property::find(name) != Some(property));
    properties.push((property.name().to_owned(), number.to_string()));
}

fn value(pool: &Pool, subject: &Subject, property: Property) -> Result<u64> {
    Ok(match pool.dsl().property(subject, property, 0)?.map(|sourced| sourced.value) {
        Some(PropertyValue::Number(number)) => number,
        _ => property.default_number(),
    })
}
