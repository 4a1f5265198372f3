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
use format::object_type::ObjectType;

use super::Change;
use super::create::refuse_encrypted;
use super::space::{Delta, UsedColumn};
use crate::property::rules::{self, Given};
use crate::property::{DatasetKind, ValueOrigin, needs};
use crate::{Dsl, Property, PropertyValue, Subject};

const HAS_RECEIVED: &str = "$hasrecvd";

/// A property that belongs inside of the object set, and is not stored anywhere yet.
pub type ObjsetProperty = (Property, u64);

impl Change<'_> {
    /// Sets a property of a file system, volume or snapshot, as `zfs set` does. `dsl` is that of the MOS that is
    /// being changed; `usable_bytes` is the size of the pool without parity and without what ZFS keeps for itself.
    /// What belongs inside of the object set is returned: it is for the caller to store there.
    ///
    /// Errors: `NotFound`; those of [`rules::check`]; `NoSpace` for a limit that cannot be kept; `Unsupported` for
    /// values that need a feature which is not enabled.
    pub fn set_property(
        &self,
        dsl: &Dsl,
        dataset: &str,
        name: &str,
        text: &str,
        usable_bytes: u64,
    ) -> Result<Option<ObjsetProperty>> {
        let subject = dsl.subject(dataset)?;
        let given = rules::check(name, text, subject.kind(), false)?;
        needs::check(std::slice::from_ref(&given), self.features()?, false)?;
        let head = subject.dataset().ok_or_else(not_for_bookmarks)?.id;
        if let Given { property: Some(property), value: PropertyValue::Number(number), .. } = given
            && property.info().from == ValueOrigin::Contents
        {
            return self.in_contents(dsl, &subject, property, number);
        }
        if given.property == Some(Property::Keylocation) {
            refuse_encrypted(dsl, subject.dir())?;
            return Ok(None);
        }
        let before = self.limits(&subject)?;
        let after = before.with(&given);
        self.check_limits(dsl, &subject, before, after, usable_bytes)?;
        self.put(&subject, head, &given)?;
        self.count_if_limited(subject.dir().id, &given)?;
        self.put_limits(&subject, before, after)?;
        Ok(None)
    }

    /// Makes a property of a file system, volume or snapshot inherited, as `zfs inherit` does; with `received`
    /// (`-S`) what was received with it counts, if anything was.
    ///
    /// Errors: `NotFound`; those of [`rules::check_inherit`]; `NoSpace` for a received limit that cannot be kept.
    pub fn inherit_property(
        &self,
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
        if table == 0 {
            return Ok(());
        }
        let before = self.limits(&subject)?;
        let reverted = if received { subject.levels().received(name) } else { None };
        let is_reverted = reverted.is_some();
        let value = reverted.unwrap_or(PropertyValue::Number(0));
        let given = Given { name: name.to_owned(), property, value };
        if is_reverted {
            needs::check(std::slice::from_ref(&given), self.features()?, false)?;
            self.count_if_limited(subject.dir().id, &given)?;
        }
        let after = before.with(&given);
        self.check_limits(dsl, &subject, before, after, usable_bytes)?;

        self.remove(table, name)?;
        if received {
            self.remove(table, &format!("{name}$inherit"))?;
        } else {
            self.remove(table, &format!("{name}$iuv"))?;
            if self.number(table, HAS_RECEIVED)?.is_some() {
                self.set(table, &format!("{name}$inherit"), &ZapValue::one(0))?;
            }
        }
        if subject.kind() == DatasetKind::Snapshot && self.entries_of(table)? == 0 {
            self.free_object(table)?;
            self.update_dataset(head.id, |phys| phys.props_zap = 0)?;
        }
        self.put_limits(&subject, before, after)
    }

    /// Stores the properties of a new dataset.
    pub(super) fn store_given(&self, dir: u64, given: &[Given]) -> Result<()> {
        let table = self.dir(dir)?.props_zap;
        let mut limits = DatasetLimits::default();
        for given in given {
            // of what belongs to keys, only "none" is possible
            let is_elsewhere =
                |property: Property| matches!(property.info().from, ValueOrigin::Contents | ValueOrigin::Key);
            if given.property.is_some_and(|p| is_elsewhere(p) || p == Property::Keylocation) {
                continue;
            }
            self.put_value(table, given)?;
            self.count_if_limited(dir, given)?;
            limits = limits.with(given);
        }
        self.update_dir(dir, |phys| phys.quota = limits.quota)?;
        if limits.refreservation > 0 {
            self.charge(dir, UsedColumn::Refreservation, Delta::used(limits.refreservation as i64))?;
        }
        self.reserve(dir, limits.reservation)
    }

    fn put(&self, subject: &Subject, id: u64, given: &Given) -> Result<()> {
        if subject.kind() != DatasetKind::Snapshot {
            return self.put_value(subject.dir().phys.props_zap, given);
        }
        let table = match self.dataset(id)?.props_zap {
            0 => self.create_table(ObjectType::DSL_PROPS)?,
            table => table,
        };
        self.update_dataset(id, |phys| phys.props_zap = table)?;
        self.put_value(table, given)
    }

    pub(super) fn put_value(&self, table: u64, given: &Given) -> Result<()> {
        let value = match &given.value {
            PropertyValue::Number(number) => ZapValue::one(*number),
            PropertyValue::Text(text) => ZapValue::of_text(text),
        };
        self.remove(table, &format!("{}$inherit", given.name))?;
        self.remove(table, &format!("{}$iuv", given.name))?;
        self.set(table, &given.name, &value)
    }

    /// A property of the object set's own. The version of a file system stays as it is.
    fn in_contents(
        &self,
        dsl: &Dsl,
        subject: &Subject,
        property: Property,
        number: u64,
    ) -> Result<Option<ObjsetProperty>> {
        if property != Property::Version {
            return Ok(Some((property, number)));
        }
        let version = match dsl.property(subject, property, 0).in_dataset(subject.name())? {
            Some(crate::Sourced { value: PropertyValue::Number(version), .. }) => version,
            _ => 0,
        };
        match number.cmp(&version) {
            Ordering::Equal => Ok(None),
            Ordering::Less => {
                Err(Error::new(Kind::Invalid, format!("Can not downgrade; already at version {version}")))
            }
            Ordering::Greater => {
                let what = "'version': upgrading file systems is not supported by this version";
                Err(Error::new(Kind::Unsupported, what))
            }
        }
    }

    fn limits(&self, subject: &Subject) -> Result<DatasetLimits> {
        let dir = &subject.dir().phys;
        let refquota = match subject.levels().find(Property::Refquota).map(|sourced| sourced.value) {
            Some(PropertyValue::Number(number)) => number,
            _ => 0,
        };
        let refreservation = self.refreservation_of(subject.dir().id)?;
        Ok(DatasetLimits { quota: dir.quota, reservation: dir.reserved, refquota, refreservation })
    }

    fn check_limits(
        &self,
        dsl: &Dsl,
        subject: &Subject,
        before: DatasetLimits,
        after: DatasetLimits,
        usable_bytes: u64,
    ) -> Result<()> {
        if before == after || subject.kind() == DatasetKind::Snapshot {
            return Ok(());
        }
        let dir = &subject.dir().phys;
        let head = subject.dataset().ok_or_else(not_for_bookmarks)?;
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
                0 => usable_bytes.saturating_sub(dir.used_bytes),
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

    /// Puts limits in force.
    fn put_limits(&self, subject: &Subject, before: DatasetLimits, after: DatasetLimits) -> Result<()> {
        let dir = subject.dir().id;
        if after.quota != before.quota {
            self.update_dir(dir, |phys| phys.quota = after.quota)?;
        }
        if after.reservation != before.reservation {
            self.reserve(dir, after.reservation)?;
        }
        if after.refreservation != before.refreservation {
            let unique = subject.dataset().map_or(0, |head| head.phys.unique_bytes);
            let delta = unique.max(after.refreservation).wrapping_sub(unique.max(before.refreservation)) as i64;
            self.charge(dir, UsedColumn::Refreservation, Delta::used(delta))?;
        }
        Ok(())
    }
}

/// The limits that a dataset can have; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct DatasetLimits {
    quota: u64,
    reservation: u64,
    refquota: u64,
    refreservation: u64,
}

impl DatasetLimits {
    fn with(mut self, given: &Given) -> DatasetLimits {
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
}

fn not_for_bookmarks() -> Error {
    Error::new(Kind::Invalid, "bookmarks have no properties of their own")
}
