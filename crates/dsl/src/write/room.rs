//! How much may still be written to a head, and what refuses more.

use base::{Error, Kind, Result};
use format::ids::DirId;

use super::Change;
use crate::property::rules::Given;
use crate::{Dataset, Dir, Dsl, INHERIT_SUFFIX, Property, PropertyValue, RECEIVED_SUFFIX, Subject};

/// What may still be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoomLeft {
    /// Bytes.
    pub bytes: u64,
    /// What more is refused with: `Quota` if a quota is the tightest limit, else `NoSpace`.
    pub refusal: Kind,
}

impl Dsl {
    /// What may still be written to a head, by all limits: the pool, quotas and reservations of all directories on
    /// the way, and the head's own. `usable_bytes` is the size of the pool without parity, and without what ZFS
    /// keeps for itself.
    pub fn room(&self, dir: &Dir, head: &Dataset, usable_bytes: u64) -> Result<RoomLeft> {
        let own = self.own_limits(dir)?;
        let bytes = self.available(dir, head, own.0, own.1, usable_bytes)?;
        let by_refquota = own.0 != 0 && own.0.saturating_sub(head.phys.referenced_bytes) <= bytes;
        let by_quota = by_refquota || self.is_at_quota(dir, bytes, own.1.saturating_sub(head.phys.unique_bytes))?;
        Ok(RoomLeft { bytes, refusal: if by_quota { Kind::Quota } else { Kind::NoSpace } })
    }

    /// `refquota` and `refreservation`, 0 if there is none.
    pub(super) fn own_limits(&self, dir: &Dir) -> Result<(u64, u64)> {
        let levels = self.levels(dir)?;
        let number = |property| match levels.find(property).map(|sourced| sourced.value) {
            Some(PropertyValue::Number(number)) => number,
            _ => 0,
        };
        Ok((number(Property::Refquota), number(Property::Refreservation)))
    }

    /// Whether some directory's quota leaves no more than `bytes`, of which `reserved` are the head's own.
    fn is_at_quota(&self, dir: &Dir, bytes: u64, reserved: u64) -> Result<bool> {
        let mut at = dir.clone();
        for _ in 0..crate::dir::DEPTH_MAX + 2 {
            let phys = &at.phys;
            let left = phys.quota.saturating_sub(phys.used_bytes).saturating_add(reserved);
            if phys.quota != 0 && left <= bytes {
                return Ok(true);
            }
            if phys.parent.is_none() {
                return Ok(false);
            }
            at = self.dir(phys.parent, &dir.name)?;
        }
        Err(Error::corrupt("dataset tree is no tree").in_dataset(&dir.name))
    }
}

/// What is reserved for a directory's head: the property `refreservation`.
pub(super) fn refreservation_of(change: &Change<'_>, dir: DirId) -> Result<u64> {
    let props = change.dir(dir)?.props_zap;
    let name = Property::Refreservation.name();
    if let Some(number) = change.number(props, name)? {
        return Ok(number);
    }
    let is_hidden = change.number(props, &format!("{name}{INHERIT_SUFFIX}"))?.is_some();
    Ok(if is_hidden { 0 } else { change.number(props, &format!("{name}{RECEIVED_SUFFIX}"))?.unwrap_or(0) })
}

/// Whether the limits given for a new dataset are possible.
pub(super) fn check_for_new(dsl: &Dsl, parent: &Subject, given: &[Given], usable_bytes: u64) -> Result<()> {
    let number = |property| {
        let found = given.iter().find(|given| given.property == Some(property));
        found.map_or(0, |given| if let PropertyValue::Number(number) = given.value { number } else { 0 })
    };
    let reserved = number(Property::Reservation).max(number(Property::Refreservation));
    let quota = number(Property::Quota);
    let refquota = number(Property::Refquota);
    let is_too_much = reserved > 0 && reserved > dsl.available_in_dir(parent.dir(), usable_bytes)?
        || quota != 0 && reserved > quota
        || refquota != 0 && number(Property::Refreservation) > refquota;
    if is_too_much {
        return Err(Error::new(Kind::NoSpace, "out of space"));
    }
    Ok(())
}
