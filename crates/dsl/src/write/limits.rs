//! The limits of datasets, which are in force elsewhere than in their tables of properties.
//!
//! ```text
//!   quota, reservation     the record of the directory
//!   refreservation         a column of what the directory uses
//!   refquota               only the table: it is looked up when a head is written
//! ```

use base::{Error, Kind, Result};
use format::ids::DirId;

use super::space::{Delta, UsedColumn};
use super::{Change, room, space};
use crate::property::DatasetKind;
use crate::property::rules::Given;
use crate::{Dsl, Property, PropertyValue, Subject};

/// The limits that a dataset can have; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DatasetLimits {
    quota: u64,
    reservation: u64,
    refquota: u64,
    refreservation: u64,
}

impl DatasetLimits {
    fn of(change: &Change<'_>, dsl: &Dsl, subject: &Subject) -> Result<DatasetLimits> {
        let dir = &subject.dir().phys;
        let (refquota, _) = dsl.own_limits(subject.dir())?;
        let refreservation = room::refreservation_of(change, subject.dir().id)?;
        Ok(DatasetLimits { quota: dir.quota, reservation: dir.reserved, refquota, refreservation })
    }

    /// These, with what is given.
    pub(super) fn with(mut self, given: &Given) -> DatasetLimits {
        if let (Some(property), PropertyValue::Number(number)) = (given.property, &given.value) {
            match property {
                Property::Quota => self.quota = *number,
                Property::Reservation => self.reservation = *number,
                Property::Refquota => self.refquota = *number,
                Property::Refreservation => self.refreservation = *number,
                _ => {}
            }
        }
        self
    }

    /// Puts the limits of a new directory in force.
    pub(super) fn put_on_new(self, change: &Change<'_>, dir: DirId) -> Result<()> {
        change.update_dir(dir, |phys| phys.quota = self.quota)?;
        if self.refreservation > 0 {
            space::charge(change, dir, UsedColumn::Refreservation, Delta::used(self.refreservation as i64))?;
        }
        space::reserve(change, dir, self.reservation)
    }
}

/// A change of a dataset's limits that is possible.
pub(super) struct LimitChange<'a> {
    subject: &'a Subject,
    before: DatasetLimits,
    after: DatasetLimits,
}

impl<'a> LimitChange<'a> {
    /// What a given value changes of a dataset's limits. Errors: `NoSpace` for a limit that cannot be kept.
    pub(super) fn plan(
        change: &Change<'_>,
        dsl: &Dsl,
        subject: &'a Subject,
        given: &Given,
        usable_bytes: u64,
    ) -> Result<LimitChange<'a>> {
        let before = DatasetLimits::of(change, dsl, subject)?;
        let planned = LimitChange { subject, before, after: before.with(given) };
        planned.check(dsl, usable_bytes)?;
        Ok(planned)
    }

    /// The refreservation of a dataset, which was stored already, was `before`, and is `after`. Errors: `NoSpace` if it
    /// cannot be kept.
    pub(super) fn of_refreservation(
        change: &Change<'_>,
        dsl: &Dsl,
        subject: &'a Subject,
        (before, after): (u64, u64),
        usable_bytes: u64,
    ) -> Result<LimitChange<'a>> {
        let limits = DatasetLimits::of(change, dsl, subject)?;
        let with = |refreservation| DatasetLimits { refreservation, ..limits };
        let planned = LimitChange { subject, before: with(before), after: with(after) };
        planned.check(dsl, usable_bytes)?;
        Ok(planned)
    }

    fn check(&self, dsl: &Dsl, usable_bytes: u64) -> Result<()> {
        let LimitChange { subject, before, after } = *self;
        let Some(head) = subject.dataset().filter(|_| before != after && subject.kind() != DatasetKind::Snapshot)
        else {
            return Ok(());
        };
        let dir = &subject.dir().phys;
        let too_small = || Error::new(Kind::NoSpace, "size is less than current used or reserved space");
        let too_large = || Error::new(Kind::NoSpace, "size is greater than available space");
        if after.quota != before.quota && after.quota != 0 && after.quota < dir.used_bytes.max(dir.reserved) {
            return Err(too_small());
        }
        let referenced = head.phys.referenced_bytes;
        if after.refquota != before.refquota
            && after.refquota != 0
            && after.refquota < referenced.max(before.refreservation)
        {
            return Err(too_small());
        }
        let more = |used: u64, before: u64, after: u64| used.max(after).saturating_sub(used.max(before));
        let reserved = more(dir.used_bytes, before.reservation, after.reservation);
        if reserved > 0 {
            let available = match dir.parent {
                DirId::NONE => usable_bytes.saturating_sub(dir.used_bytes),
                parent => dsl.available_in_dir(&dsl.dir(parent, subject.name())?, usable_bytes)?,
            };
            if reserved > available || dir.quota > 0 && after.reservation > dir.quota {
                return Err(too_large());
            }
        }
        let reserved = more(head.phys.unique_bytes, before.refreservation, after.refreservation);
        if reserved > 0
            && (reserved > dsl.available_in_dir(subject.dir(), usable_bytes)?
                || after.refquota > 0 && after.refreservation > after.refquota)
        {
            return Err(too_large());
        }
        Ok(())
    }

    /// Puts the new limits in force.
    pub(super) fn put(&self, change: &Change<'_>) -> Result<()> {
        let LimitChange { subject, before, after } = *self;
        let dir = subject.dir().id;
        if after.quota != before.quota {
            change.update_dir(dir, |phys| phys.quota = after.quota)?;
        }
        if after.reservation != before.reservation {
            space::reserve(change, dir, after.reservation)?;
        }
        if after.refreservation != before.refreservation {
            let unique = subject.dataset().map_or(0, |head| head.phys.unique_bytes);
            let delta = unique.max(after.refreservation).wrapping_sub(unique.max(before.refreservation)) as i64;
            space::charge(change, dir, UsedColumn::Refreservation, Delta::used(delta))?;
        }
        Ok(())
    }
}
