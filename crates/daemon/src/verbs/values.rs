//! The value of one property of one dataset, on the pool process's side: [`Values`].
//!
//! What the dataset layer tells is completed with what only the process knows: what is mounted and
//! how, and the folder that all mountpoints are below.

use std::collections::HashMap;
use std::sync::Arc;

use base::Result;
use dsl::accounting::Accounts;
use dsl::property::{DatasetKind, ValueOrigin};
use dsl::{Property, PropertySource, PropertyValue, Sourced, Subject};
use pool::Pool;
use protocol::datasets::{Cell, CellValue, Mounted, ValueSource, WantedProperty};
use protocol::volumes::ISCSI_PROPERTY;

use super::host::Host;
use super::limits::account_of;
use crate::iscsi_access::why_closed;
use crate::mount_plan;
use crate::volume_offers::offers;

/// Tells properties of the datasets of one pool.
pub(super) struct Values<'a> {
    host: &'a dyn Host,
    pool: Arc<Pool>,
    usable_bytes: u64,
    mounts: HashMap<String, Mounted>,
    received: bool,
}

/// Properties that options of a mount can override: with the first option the value is on, with the
/// second it is off.
const MOUNT_OPTIONS: [(Property, &str, &str); 8] = [
    (Property::Atime, "atime", "noatime"),
    (Property::Relatime, "relatime", "norelatime"),
    (Property::Devices, "dev", "nodev"),
    (Property::Exec, "exec", "noexec"),
    (Property::Readonly, "ro", "rw"),
    (Property::Setuid, "suid", "nosuid"),
    (Property::Xattr, "xattr", "noxattr"),
    (Property::Nbmand, "mand", "nomand"),
];

impl<'a> Values<'a> {
    /// With `received`, cells also tell what was received.
    pub(super) fn new(host: &'a dyn Host, received: bool) -> Result<Values<'a>> {
        let mounts = host.mounts().into_iter().map(|mounted| (mounted.dataset.clone(), mounted));
        let pool = host.pool();
        Ok(Values { host, usable_bytes: pool.usable_bytes()?, pool, mounts: mounts.collect(), received })
    }

    /// A property. One that cannot be read, as its block is damaged, has no value; that is logged.
    pub(super) fn cell(&self, subject: &Subject, wanted: &WantedProperty) -> Option<Cell> {
        let cell = match wanted {
            WantedProperty::Native(name) => match Property::find(name) {
                Some(property) => self.native(subject, property),
                None => Ok(None),
            },
            WantedProperty::User(name) => Ok(self.user(subject, name)),
            WantedProperty::Offered(name) => self.offered(subject, name),
            WantedProperty::Account { property, id, domain } => self.account(subject, property, &(domain.clone(), *id)),
            WantedProperty::Written(since) => self.written(subject, since),
            WantedProperty::Nothing => Ok(None),
        };
        cell.unwrap_or_else(|error| {
            tracing::warn!(dataset = subject.name(), ?wanted, "{error}");
            None
        })
    }

    /// All properties that users made up.
    pub(super) fn all_user(&self, subject: &Subject) -> Vec<(String, Cell)> {
        if subject.kind() == DatasetKind::Bookmark {
            return Vec::new();
        }
        let found = subject.levels().user_properties();
        found.into_iter().map(|(name, sourced)| (name.clone(), self.with_received(subject, &name, sourced))).collect()
    }

    fn native(&self, subject: &Subject, property: Property) -> Result<Option<Cell>> {
        if property.info().from == ValueOrigin::System {
            return Ok(self.mounted(subject, property));
        }
        let found = match property {
            Property::Mountpoint => self.host.bounds().mountpoint(&self.pool, subject)?,
            _ => self.pool.dsl().property(subject, property, self.usable_bytes)?,
        };
        let Some(sourced) = found else { return Ok(None) };
        let mut cell = match property {
            Property::Mountpoint => Cell {
                value: CellValue::Text(mount_plan::mountpoint_text(subject.name(), &sourced, self.host.altroot())),
                source: source_of(sourced.source),
                received: None,
            },
            _ => cell_of(sourced),
        };
        if self.received && !property.is_read_only() {
            let received = subject.levels().received(property.name());
            cell.received = received.map(|value| self.received_value(subject, property, value));
        }
        self.apply_mount_options(subject, property, &mut cell);
        Ok(Some(cell))
    }

    fn received_value(&self, subject: &Subject, property: Property, value: PropertyValue) -> CellValue {
        match property {
            Property::Mountpoint => {
                let sourced = Sourced { value, source: PropertySource::Received };
                CellValue::Text(mount_plan::mountpoint_text(subject.name(), &sourced, self.host.altroot()))
            }
            _ => value_of(value),
        }
    }

    fn mounted(&self, subject: &Subject, property: Property) -> Option<Cell> {
        let is_mounted = self.mounts.contains_key(subject.name());
        let applies = property == Property::Mounted && subject.kind() == DatasetKind::FileSystem;
        applies.then(|| Cell { value: CellValue::Number(is_mounted.into()), source: ValueSource::None, received: None })
    }

    fn apply_mount_options(&self, subject: &Subject, property: Property, cell: &mut Cell) {
        let Some((_, on, off)) = MOUNT_OPTIONS.iter().find(|(p, ..)| *p == property) else { return };
        let Some(mounted) = self.mounts.get(subject.name()) else { return };
        let has = |option: &str| mounted.options.iter().any(|o| o == option);
        let overridden = match cell.value {
            CellValue::Number(0) if has(on) => Some(1),
            CellValue::Number(1..) if has(off) => Some(0),
            _ => None,
        };
        if let Some(number) = overridden {
            cell.value = CellValue::Number(number);
            cell.source = ValueSource::Temporary;
        }
    }

    fn user(&self, subject: &Subject, name: &str) -> Option<Cell> {
        if subject.kind() == DatasetKind::Bookmark {
            return None;
        }
        match subject.levels().find_user(name) {
            Some(sourced) => Some(self.with_received(subject, name, sourced)),
            // what is inherited from where it is not set may have been received all the same
            None => self.received.then(|| subject.levels().received(name)).flatten().map(|received| Cell {
                value: CellValue::Text("-".to_owned()),
                source: ValueSource::None,
                received: Some(value_of(received)),
            }),
        }
    }

    fn offered(&self, subject: &Subject, name: &str) -> Result<Option<Cell>> {
        if !offers(&self.host.bounds().rule, &self.pool, subject, name)? {
            return Ok(None);
        }
        let closed = if name == ISCSI_PROPERTY { why_closed(&self.host.bounds().rule, subject) } else { None };
        let value = closed.map_or(CellValue::Number(1), CellValue::Text);
        Ok(Some(Cell { value, source: ValueSource::None, received: None }))
    }

    fn with_received(&self, subject: &Subject, name: &str, sourced: Sourced) -> Cell {
        let received = self.received.then(|| subject.levels().received(name)).flatten().map(value_of);
        Cell { received, ..cell_of(sourced) }
    }

    fn account(&self, subject: &Subject, property: &str, id: &(String, u64)) -> Result<Option<Cell>> {
        let Some((owner, counted, is_quota)) = account_of(property) else { return Ok(None) };
        let Some(dataset) = subject.dataset().filter(|_| subject.head_kind() == DatasetKind::FileSystem) else {
            return Ok(None);
        };
        let accounts = Accounts::open(self.pool.dsl().raw_objset(dataset)?)?;
        let number = match is_quota {
            true => accounts.quota_of(owner, counted, id)?,
            false => accounts.used_by(owner, counted, id)?,
        };
        Ok(number.map(local))
    }

    /// `since` begins with `@` or `#`; behind that is the name of a snapshot or bookmark of the same
    /// file system, or the full name of one.
    fn written(&self, subject: &Subject, since: &str) -> Result<Option<Cell>> {
        let dsl = self.pool.dsl();
        let Some(new) = subject.dataset() else { return Ok(None) };
        let full_name = match &since[since.len().min(1)..] {
            name if name.contains(['@', '#']) => name.to_owned(),
            _ => format!("{}{since}", new.file_system()),
        };
        let number = if full_name.contains('#') {
            let head = dsl.find(full_name.split('#').next().unwrap_or_default())?;
            match dsl.bookmarks(&head)?.into_iter().find(|bookmark| bookmark.name == full_name) {
                Some(bookmark) => dsl.written_since_bookmark(new, &head, &bookmark)?,
                None => return Ok(None),
            }
        } else {
            dsl.written_since_snapshot(new, &dsl.find(&full_name)?)?
        };
        Ok(Some(local(number)))
    }
}

fn local(number: u64) -> Cell {
    Cell { value: CellValue::Number(number), source: ValueSource::Local, received: None }
}

fn cell_of(sourced: Sourced) -> Cell {
    Cell { value: value_of(sourced.value), source: source_of(sourced.source), received: None }
}

fn value_of(value: PropertyValue) -> CellValue {
    match value {
        PropertyValue::Number(number) => CellValue::Number(number),
        PropertyValue::Text(text) => CellValue::Text(text),
    }
}

fn source_of(source: PropertySource) -> ValueSource {
    match source {
        PropertySource::None => ValueSource::None,
        PropertySource::Default => ValueSource::Default,
        PropertySource::Local => ValueSource::Local,
        PropertySource::Received => ValueSource::Received,
        PropertySource::Inherited(from) => ValueSource::Inherited(from),
    }
}
