//! Properties that come with a stream, and what the command line of `zfs receive` says of them.
//!
//! ```text
//!   -o   set on the first dataset of a package; those below inherit it, whatever they received
//!   -x   inherited, unless it was set here by hand; what was received is kept beside that (`zfs get -o received`).
//!        One that cannot be inherited is not received at all
//! ```

use base::{Error, Kind, Result};
use dsl::property::{DatasetKind, rules};
use dsl::write::NewReceive;
use dsl::{INHERIT_SUFFIX, Property, PropertyValue, RECEIVED_SUFFIX};
use format::nvlist::{NvList, Value};
use format::objset::ObjsetType;
use protocol::streams::ReceiveOrder;

use super::host::{DatasetChange, Host};
use super::volumes;

/// What the command line changes of the properties of one dataset.
pub(super) struct CommandProperties<'a> {
    host: &'a dyn Host,
    target: &'a str,
    order: &'a ReceiveOrder,
    kind: DatasetKind,
    /// Whether it is the first dataset of the package.
    is_top: bool,
    /// What the list of the package says was received with an earlier stream of it.
    is_later: bool,
    before: &'a PropertiesBefore,
}

impl<'a> CommandProperties<'a> {
    pub(super) fn new(
        (host, order): (&'a dyn Host, &'a ReceiveOrder),
        new: &'a NewReceive,
        (is_top, is_later): (bool, bool),
        before: &'a PropertiesBefore,
    ) -> CommandProperties<'a> {
        CommandProperties { host, target: &new.target, order, kind: kind_of(new), is_top, is_later, before }
    }

    /// Stores what the list of the package says, and then what the command line says; what could not be.
    pub(super) fn set(&self, received: Option<&NvList>) -> Vec<String> {
        let mut notes = Vec::new();
        if self.is_later {
            return notes;
        }
        let target = self.target;
        if let Some(list) = received {
            let pairs = values_of(list).filter(|(name, _)| !self.leaves_out(name)).collect();
            let refused = store_received(self.host, target, pairs);
            // a value of the command line counts anyway
            let refused = refused.iter().filter(|(name, _)| !self.order.set.iter().any(|(one, _)| one == name));
            notes.extend(refused.map(|(name, error)| cannot_receive(target, name, error)));
        }
        let is_due = |name: &str, value: &str| !is_of_encryption(name) && !is_reckoned(name, value, self.kind);
        for (property, value) in self.order.set.iter().filter(|(name, value)| self.is_top && is_due(name, value)) {
            if applies(property, self.kind) && !self.before.is_set_to(property, value) {
                let (name, property, value) = (target.to_owned(), property.clone(), value.clone());
                let change = DatasetChange::Set { name, property: property.clone(), value };
                notes.extend(self.host.change(&change).err().map(|error| cannot_receive(target, &property, &error)));
            }
        }
        for property in self.order.exclude.iter().filter(|name| !applies(name, self.kind)) {
            notes.push(format!("Warning: {target}: property '{property}' does not apply to datasets of this type"));
        }
        for property in self.inherited() {
            let (name, received) = (target.to_owned(), false);
            let change = DatasetChange::Inherit { name, property: property.to_owned(), received };
            notes.extend(self.host.change(&change).err().map(|error| cannot_receive(target, property, &error)));
        }
        notes
    }

    /// Reserves as much as a volume asks for, once its size has come; why that cannot be.
    pub(super) fn reserve(&self) -> Option<String> {
        let auto = self.order.set.iter().find(|(name, value)| self.is_top && is_reckoned(name, value, self.kind))?;
        let reserve = || {
            let pool = self.host.pool();
            let reckoned = volumes::reckoned_for(&pool, &pool.dsl().subject(self.target)?, vec![auto.clone()])?;
            reckoned.into_iter().try_for_each(|(property, value)| {
                self.host.change(&DatasetChange::Set { name: self.target.to_owned(), property, value })
            })
        };
        reserve().err().map(|error| cannot_receive(self.target, &auto.0, &error))
    }

    /// The properties that the command line changes.
    pub(super) fn names(&self) -> Vec<String> {
        let set = self.order.set.iter().map(|(name, _)| name.as_str()).filter(|_| self.is_top);
        let set = set.filter(|name| applies(name, self.kind));
        set.chain(self.inherited()).filter(|_| !self.is_later).map(str::to_owned).collect()
    }

    /// What is inherited from now on.
    fn inherited(&self) -> impl Iterator<Item = &'a str> {
        let set = self.order.set.iter().map(|(name, _)| name.as_str()).filter(|_| !self.is_top);
        let excluded = self.order.exclude.iter().map(String::as_str).filter(|name| self.before.get(name).is_none());
        let can_be = |name: &str| {
            let is_possible = Property::find(name).is_none_or(Property::is_inherited) && !is_of_encryption(name);
            is_possible && applies(name, self.kind)
        };
        let is_already = |name: &str| {
            self.before.get(name).is_none() && self.before.get(&format!("{name}{INHERIT_SUFFIX}")).is_some()
        };
        set.chain(excluded).filter(move |name| can_be(name) && !is_already(name))
    }

    /// Whether a value of the list is not received.
    fn leaves_out(&self, name: &str) -> bool {
        Property::find(name).is_some_and(|property| !property.is_inherited())
            && self.order.exclude.iter().any(|one| one == name)
            && self.before.get(name).is_none()
    }
}

/// A property of the command line that such a dataset cannot have.
pub(super) fn misplaced<'a>(order: &'a ReceiveOrder, new: &NewReceive) -> Option<&'a str> {
    order.set.iter().map(|(name, _)| name.as_str()).find(|name| !applies(name, kind_of(new)))
}

/// Why a value of the command line cannot be. One that could not be set afterwards is not to be found out when the data are
/// there, in the clear perhaps. With a whole tree, what is said of encryption is of what is new in it.
pub(super) fn refused(order: &ReceiveOrder, new: &NewReceive, is_recursive: bool) -> Option<String> {
    let kind = kind_of(new);
    if !is_recursive
        && !new.makes_dataset()
        && let Some((name, _)) = order.set.iter().find(|(name, _)| is_of_encryption(name))
    {
        return Some(format!("encryption property '{name}' cannot be set for incremental streams."));
    }
    let given = order.set.iter().filter(|(name, _)| applies(name, kind));
    let checked = given.map(|(name, value)| rules::check(name, value, kind, true));
    checked.filter_map(Result::err).map(|error| error.what().to_owned()).next()
}

/// Whether a property says how what is stored is encrypted: what it may say has been checked.
fn is_of_encryption(name: &str) -> bool {
    use Property::{Encryption, Keyformat, Keylocation, Pbkdf2iters};
    matches!(Property::find(name), Some(Encryption | Keyformat | Keylocation | Pbkdf2iters))
}

/// Whether a value is what the size of a volume asks for.
fn is_reckoned(name: &str, value: &str, kind: DatasetKind) -> bool {
    kind == DatasetKind::Volume && value == "auto" && Property::find(name) == Some(Property::Refreservation)
}

/// Stores what a list says of a snapshot, if that is not there already; what could not be.
pub(super) fn receive_of_snapshot(host: &dyn Host, name: &str, list: &NvList) -> Vec<String> {
    let before = match PropertiesBefore::of_snapshot(host, name) {
        Ok(before) => before,
        Err(error) => return vec![cannot_receive(name, "any", &error)],
    };
    let mut pairs: Vec<(String, Value)> = values_of(list).collect();
    let mut stored: Vec<(String, Value)> = before.received().collect();
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    stored.sort_by(|a, b| a.0.cmp(&b.0));
    if pairs == stored {
        return Vec::new();
    }
    let refused = store_received(host, name, pairs);
    refused.iter().map(|(property, error)| cannot_receive(name, property, error)).collect()
}

/// Stores received values of a dataset or snapshot; which could not be, and why.
fn store_received(host: &dyn Host, name: &str, pairs: Vec<(String, Value)>) -> Vec<(String, Error)> {
    host.set_received(name, pairs).unwrap_or_else(|error| vec![("any".to_owned(), error)])
}

fn cannot_receive(name: &str, property: &str, error: &Error) -> String {
    format!("cannot receive {property} property on {name}: {}", error.what())
}

/// What was stored of properties before a stream.
pub(super) struct PropertiesBefore(Vec<(String, PropertyValue)>);

impl PropertiesBefore {
    /// Of a dataset; of one that is not there, nothing.
    pub(super) fn of(host: &dyn Host, dataset: &str) -> Result<PropertiesBefore> {
        let pool = host.pool();
        match pool.dsl().subject(dataset) {
            Ok(subject) => pool.dsl().stored_props(subject.dir()).map(PropertiesBefore),
            Err(e) if e.kind() == Kind::NotFound => Ok(PropertiesBefore(Vec::new())),
            Err(e) => Err(e),
        }
    }

    fn of_snapshot(host: &dyn Host, name: &str) -> Result<PropertiesBefore> {
        let pool = host.pool();
        pool.dsl().snapshot_props(&pool.dsl().find(name)?).map(PropertiesBefore)
    }

    fn get(&self, name: &str) -> Option<&PropertyValue> {
        self.0.iter().find(|(one, _)| one == name).map(|(_, value)| value)
    }

    fn is_set_to(&self, property: &str, value: &str) -> bool {
        self.get(property).is_some_and(|stored| text_of(property, stored) == value)
    }

    /// What had been received.
    fn received(&self) -> impl Iterator<Item = (String, Value)> + '_ {
        self.0.iter().filter_map(|(name, value)| {
            let value = match value {
                PropertyValue::Number(number) => Value::U64(*number),
                PropertyValue::Text(text) => Value::Str(text.clone()),
            };
            Some((name.strip_suffix(RECEIVED_SUFFIX)?.to_owned(), value))
        })
    }

    /// Stores again what was received before, if that has changed, and what the command line has changed. What cannot
    /// be is logged: the receive has failed anyway.
    pub(super) fn restore(&self, host: &dyn Host, dataset: &str, received: bool, by_hand: Vec<String>) {
        let name = dataset.to_owned();
        let log = |error: Error| tracing::warn!(dataset, "a property is not as it was before the receive: {error}");
        if received {
            match host.set_received(dataset, self.received().collect()) {
                Ok(refused) => refused.into_iter().for_each(|(_, error)| log(error)),
                Err(error) => log(error),
            }
        }
        for property in by_hand {
            let change = match self.get(&property) {
                Some(value) => {
                    let value = text_of(&property, value);
                    DatasetChange::Set { name: name.clone(), property, value }
                }
                None => {
                    let received = self.get(&format!("{property}{INHERIT_SUFFIX}")).is_none();
                    DatasetChange::Inherit { name: name.clone(), property, received }
                }
            };
            host.change(&change).unwrap_or_else(log);
        }
    }
}

/// What a stream makes.
fn kind_of(new: &NewReceive) -> DatasetKind {
    match new.kind() {
        ObjsetType::Zvol => DatasetKind::Volume,
        _ => DatasetKind::FileSystem,
    }
}

/// Whether such a dataset can have a property.
fn applies(name: &str, kind: DatasetKind) -> bool {
    Property::find(name).is_none_or(|property| property.info().applies.has(kind))
}

/// A stored value as people give it.
fn text_of(property: &str, value: &PropertyValue) -> String {
    match value {
        PropertyValue::Text(text) => text.clone(),
        PropertyValue::Number(number) => {
            let text = Property::find(property).and_then(|property| rules::text_of(property, *number));
            text.unwrap_or_else(|| number.to_string())
        }
    }
}

fn values_of(list: &NvList) -> impl Iterator<Item = (String, Value)> + '_ {
    list.iter().map(|(name, value)| (name.to_owned(), value.clone()))
}
