//! Properties as they are stored: by whom a value was set, and what is inherited.
//!
//! A directory's ZAP of properties has an entry for each one set, and so has that of a snapshot.
//! Suffixes mark the others:
//!
//! ```text
//!   compression          set here by hand
//!   compression$recvd    came with a receive; counts if there is no entry of the first form
//!   compression$inherit  `zfs inherit`: the received value does not count
//!   compression$iuv      a value that versions before a feature do not know; counts if it is known
//! ```
//!
//! ```text
//!   tank/home@monday ─▶ tank/home ─▶ tank        levels: the nearest that has a value counts
//! ```
//!
//! What a property means, its default and its text are told by [`Property`].

use std::sync::Arc;

use base::{Error, Result, ResultExt};
use dmu::zap::Zap;
use format::ids::ObjectId;
use serde::{Deserialize, Serialize};

use crate::dir::DEPTH_MAX;
use crate::property::is_user_property;
use crate::{Dataset, Dir, Dsl, Property};

/// What the names of received values end in, where properties are stored.
pub const RECEIVED_SUFFIX: &str = "$recvd";
/// What the names of marks end in that hide a received value, where properties are stored.
pub const INHERIT_SUFFIX: &str = "$inherit";
/// What the names of values end in that versions before a feature do not know.
pub(crate) const IF_KNOWN_SUFFIX: &str = "$iuv";
/// Set once a dataset has received properties. Before, nobody can tell received ones from others.
pub(crate) const HAS_RECEIVED: &str = "$hasrecvd";

/// A stored value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PropertyValue {
    /// Numbers, switches, and choices from a list.
    Number(u64),
    /// Texts, and all user properties.
    Text(String),
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropertySource {
    /// From nobody: it can only be read.
    None,
    /// Nobody set it.
    Default,
    /// Set on the dataset itself.
    Local,
    /// Received with the dataset.
    Received,
    /// Set on, or received by, the ancestor of that name.
    Inherited(String),
}

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sourced {
    /// The value.
    pub value: PropertyValue,
    /// Where it was set.
    pub source: PropertySource,
}

/// What is stored for one snapshot or directory, and for all that it inherits from.
#[derive(Debug)]
pub struct Level {
    name: String,
    /// The directory or snapshot, as an object of the MOS.
    object: ObjectId,
    stored: Vec<(String, PropertyValue)>,
    above: Option<Arc<Level>>,
}

impl Dsl {
    /// All properties that are stored for `dir`, by name, suffixes included.
    pub fn stored_props(&self, dir: &Dir) -> Result<Vec<(String, PropertyValue)>> {
        self.props_in(dir.phys.props_zap).in_dataset(&dir.name)
    }

    /// All properties that are stored for a snapshot itself.
    pub fn snapshot_props(&self, snapshot: &Dataset) -> Result<Vec<(String, PropertyValue)>> {
        self.props_in(snapshot.phys.props_zap).in_dataset(&snapshot.name)
    }

    /// The properties of `dir` and of every directory above it.
    pub fn levels(&self, dir: &Dir) -> Result<Arc<Level>> {
        let mut path = vec![dir.clone()];
        while let Some(below) = path.last().filter(|dir| dir.phys.parent.is_some()) {
            if path.len() > DEPTH_MAX {
                return Err(Error::corrupt("dataset tree is no tree").in_dataset(&dir.name));
            }
            let name = below.name.rsplit_once('/').map_or("", |(above, _)| above);
            path.push(self.dir(below.phys.parent, name)?);
        }
        let mut level = None;
        while let Some(dir) = path.pop() {
            let (stored, object) = (self.stored_props(&dir)?, dir.id.object());
            level = Some(Arc::new(Level { stored, object, name: dir.name, above: level }));
        }
        Ok(level.expect("the path has at least one directory"))
    }

    /// The properties of `dir`, whose parent's are known.
    pub fn level_below(&self, above: &Arc<Level>, dir: &Dir) -> Result<Arc<Level>> {
        let stored = self.stored_props(dir)?;
        Ok(Arc::new(Level { name: dir.name.clone(), object: dir.id.object(), stored, above: Some(above.clone()) }))
    }

    /// The properties of a snapshot of the directory with those of `head`.
    pub fn level_of_snapshot(&self, head: &Arc<Level>, snapshot: &Dataset) -> Result<Arc<Level>> {
        let stored = self.snapshot_props(snapshot)?;
        let (name, object) = (snapshot.name.clone(), snapshot.id.object());
        Ok(Arc::new(Level { name, object, stored, above: Some(head.clone()) }))
    }

    fn props_in(&self, zap: ObjectId) -> Result<Vec<(String, PropertyValue)>> {
        if zap.is_none() {
            return Ok(Vec::new());
        }
        let mut props = Vec::new();
        for entry in Zap::open(self.mos().object(zap)?)?.entries()? {
            let value = match entry.value.first_u64() {
                Some(number) if entry.value.width() == 8 => PropertyValue::Number(number),
                _ => PropertyValue::Text(entry.value.text()),
            };
            props.push((entry.name.to_string(), value));
        }
        Ok(props)
    }
}

impl Level {
    /// The value of a native property that counts here; `None` if nobody set it.
    pub fn find(&self, property: Property) -> Option<Sourced> {
        self.find_name(property.name(), property.is_inherited(), &|value| match value {
            PropertyValue::Number(number) => property.name_of(*number).is_some(),
            PropertyValue::Text(_) => false,
        })
    }

    /// The value that counts here of a property that users made up.
    pub fn find_user(&self, name: &str) -> Option<Sourced> {
        self.find_name(name, true, &|_| false)
    }

    /// The value of the nearest level, here or above, that a command has set and that `counts`, which gets the object that
    /// has it; levels with others, and with values that came with a stream, are passed over.
    pub fn find_set(&self, name: &str, counts: &dyn Fn(&Level, &PropertyValue) -> bool) -> Option<Sourced> {
        let is_inherited = Property::find(name).is_none_or(Property::is_inherited);
        let mut level = Some(self);
        while let Some(at) = level {
            let set = at.own(name, &|_| false).filter(|(_, source)| *source == PropertySource::Local);
            if let Some((value, source)) = set.filter(|(value, _)| counts(at, value)) {
                let source = if std::ptr::eq(at, self) { source } else { PropertySource::Inherited(at.name.clone()) };
                return Some(Sourced { value, source });
            }
            level = at.above.as_deref().filter(|_| is_inherited);
        }
        None
    }

    /// What a command has set here, and not above.
    pub fn own_set(&self, name: &str) -> Option<PropertyValue> {
        self.own(name, &|_| false).filter(|(_, source)| *source == PropertySource::Local).map(|(value, _)| value)
    }

    /// Whether the value that counts here came with a stream, here or above.
    pub fn is_received(&self, name: &str) -> bool {
        let is_inherited = Property::find(name).is_none_or(Property::is_inherited);
        let nearest = self.nearest(name, is_inherited, &|_| false);
        nearest.is_some_and(|(_, _, source)| source == PropertySource::Received)
    }

    /// Whether a stream has brought the dataset, or a version of it; of a snapshot, its head.
    pub fn has_received(&self) -> bool {
        let head = if self.name.contains('@') { self.above.as_deref() } else { None };
        [Some(self), head].into_iter().flatten().any(|level| level.get(HAS_RECEIVED, "").is_some())
    }

    /// The directory or snapshot whose properties they are, as an object of the MOS.
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// All properties that users made up and that have a value here, in the order of the tables.
    pub fn user_properties(&self) -> Vec<(String, Sourced)> {
        let mut found: Vec<(String, Sourced)> = Vec::new();
        let mut level = Some(self);
        while let Some(at) = level {
            for (name, _) in &at.stored {
                let name = name.strip_suffix(RECEIVED_SUFFIX).unwrap_or(name);
                let is_new = is_user_property(name) && !found.iter().any(|(known, _)| known == name);
                if let Some(sourced) = is_new.then(|| self.find_user(name)).flatten() {
                    found.push((name.to_owned(), sourced));
                }
            }
            level = at.above.as_deref();
        }
        found
    }

    /// The value of `name` that was received here, whether it counts or not.
    pub fn received(&self, name: &str) -> Option<PropertyValue> {
        self.get(HAS_RECEIVED, "")?;
        self.get(name, RECEIVED_SUFFIX).cloned()
    }

    fn find_name(&self, name: &str, inherited: bool, is_known: &dyn Fn(&PropertyValue) -> bool) -> Option<Sourced> {
        let (at, value, source) = self.nearest(name, inherited, is_known)?;
        let source = if std::ptr::eq(at, self) { source } else { PropertySource::Inherited(at.name.clone()) };
        Some(Sourced { value, source })
    }

    /// The level whose value counts here, with that, and where that level has it from.
    fn nearest(
        &self,
        name: &str,
        inherited: bool,
        is_known: &dyn Fn(&PropertyValue) -> bool,
    ) -> Option<(&Level, PropertyValue, PropertySource)> {
        let mut level = Some(self);
        while let Some(at) = level {
            if let Some((value, source)) = at.own(name, is_known) {
                return Some((at, value, source));
            }
            level = at.above.as_deref().filter(|_| inherited);
        }
        None
    }

    fn own(&self, name: &str, is_known: &dyn Fn(&PropertyValue) -> bool) -> Option<(PropertyValue, PropertySource)> {
        let local = self.get(name, IF_KNOWN_SUFFIX).filter(|value| is_known(value)).or_else(|| self.get(name, ""));
        if let Some(value) = local {
            return Some((value.clone(), PropertySource::Local));
        }
        let received = self.get(name, RECEIVED_SUFFIX).filter(|_| self.get(name, INHERIT_SUFFIX).is_none());
        received.map(|value| (value.clone(), PropertySource::Received))
    }

    fn get(&self, name: &str, suffix: &str) -> Option<&PropertyValue> {
        self.stored.iter().find(|(n, _)| n.strip_suffix(suffix) == Some(name)).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PropertySource::{Inherited, Local, Received};
    use PropertyValue::{Number, Text};

    fn level(name: &str, above: Option<Arc<Level>>, stored: &[(&str, PropertyValue)]) -> Arc<Level> {
        let stored = stored.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
        Arc::new(Level { name: name.to_owned(), object: ObjectId::NONE, stored, above })
    }

    fn found(level: &Level, property: Property) -> Option<(u64, PropertySource)> {
        level.find(property).map(|sourced| match sourced.value {
            Number(number) => (number, sourced.source),
            Text(text) => panic!("{text}"),
        })
    }

    #[test]
    fn the_nearest_value_counts() {
        let top = level("t", None, &[("atime", Number(0)), ("copies", Number(2)), ("quota", Number(7))]);
        let mid = level("t/a", Some(top.clone()), &[("copies", Number(3)), ("exec$recvd", Number(0))]);
        let low = level("t/a/b", Some(mid.clone()), &[]);
        assert_eq!(found(&top, Property::Copies), Some((2, Local)));
        assert_eq!(found(&mid, Property::Copies), Some((3, Local)));
        assert_eq!(found(&low, Property::Copies), Some((3, Inherited("t/a".into()))));
        assert_eq!(found(&low, Property::Atime), Some((0, Inherited("t".into()))));
        assert_eq!(found(&mid, Property::Exec), Some((0, Received)));
        assert_eq!(found(&low, Property::Exec), Some((0, Inherited("t/a".into()))));
        assert_eq!(found(&top, Property::Quota), Some((7, Local)));
        assert_eq!(found(&mid, Property::Quota), None);
    }

    #[test]
    fn received_values_and_those_that_hide_them() {
        let stored = [
            ("copies$recvd", Number(2)),
            ("atime$recvd", Number(0)),
            ("atime$inherit", Text(String::new())),
            ("exec", Number(1)),
            ("exec$recvd", Number(0)),
        ];
        let top = level("t", None, &[("atime", Number(1))]);
        let low = level("t/a", Some(top.clone()), &stored);
        assert_eq!(found(&low, Property::Copies), Some((2, Received)));
        assert_eq!(found(&low, Property::Atime), Some((1, Inherited("t".into()))));
        assert_eq!(found(&low, Property::Exec), Some((1, Local)));
        // as long as nothing says so, the dataset has received nothing
        assert_eq!(low.received("exec"), None);
        let mut marked = stored.to_vec();
        marked.push(("$hasrecvd", Number(0)));
        assert_eq!(level("t/a", Some(top), &marked).received("exec"), Some(Number(0)));
    }

    #[test]
    fn what_a_stream_brought_is_told_from_what_was_set() {
        let text = |text: &str| Text(text.to_owned());
        let top = level("t", None, &[("a:b", text("one"))]);
        let mid = level("t/a", Some(top.clone()), &[("a:b$recvd", text("two"))]);
        let low = level("t/a/b", Some(mid.clone()), &[]);
        let set = |level: &Level| level.find_set("a:b", &|_, _| true).map(|found| found.value);
        // passed over, not taken for nothing: what is set above is not lost
        assert_eq!([set(&top), set(&mid), set(&low)], [const { Some("one") }; 3].map(|value| value.map(text)));
        assert_eq!(low.find_user("a:b").map(|found| found.value), Some(text("two")));
        assert_eq!([&top, &mid, &low].map(|level| level.is_received("a:b")), [false, true, true]);
        let own = level("t/a/b", Some(mid), &[("a:b", text("three"))]);
        assert_eq!(
            (set(&own), own.own_set("a:b"), low.own_set("a:b")),
            (Some(text("three")), Some(text("three")), None)
        );
        let of_top = |level: &Level, _: &PropertyValue| level.name == "t";
        let found = own.find_set("a:b", &of_top).unwrap();
        assert_eq!((found.value, found.source), (text("one"), Inherited("t".into())));
        assert_eq!(own.find_set("a:b", &|_, _| false), None);
        let marked = level("t/m", Some(top.clone()), &[("$hasrecvd", Number(0))]);
        let below = |name: &str| level(name, Some(marked.clone()), &[]).has_received();
        assert!(!top.has_received() && marked.has_received() && below("t/m@s") && !below("t/m/x"));
    }

    #[test]
    fn values_of_later_versions() {
        let stored = |iuv| [("redundant_metadata", Number(1)), ("redundant_metadata$iuv", Number(iuv))];
        assert_eq!(found(&level("t", None, &stored(2)), Property::RedundantMetadata), Some((2, Local)));
        assert_eq!(found(&level("t", None, &stored(77)), Property::RedundantMetadata), Some((1, Local)));
    }

    #[test]
    fn properties_that_users_made_up() {
        let text = |text: &str| Text(text.to_owned());
        let top = level("t", None, &[("a:x", text("1")), ("b:y", text("2")), ("atime", Number(0))]);
        let low = level("t/a", Some(top), &[("b:y", text("3")), ("c:z$recvd", text("4"))]);
        let all = low.user_properties();
        let sourced = |value: &str, source| Sourced { value: text(value), source };
        assert_eq!(
            all,
            [
                ("b:y".to_owned(), sourced("3", Local)),
                ("c:z".to_owned(), sourced("4", Received)),
                ("a:x".to_owned(), sourced("1", Inherited("t".into()))),
            ]
        );
    }
}
