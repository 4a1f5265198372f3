//! What counts as set on this host: [`HostRule`]. All that says something of the host goes through it.
//!
//! ```text
//!   the table says     Inside: of the dataset only   counts, wherever it was set
//!   (`HostReach`)      Place: where it is mounted    counts, unless it came with a stream
//!                      Door: opens something, or     counts where a command of this host has set it: in a pool of this
//!                      names something of the host   host's own, or with a mark of it beside the value
//! ```
//!
//! A value that does not count is passed over, and what is set above it counts. So a stream, or the pool of a stranger, can
//! neither give a volume out nor take a password off. The mark is a sum by the key of the host ([`HostState`]) over the
//! pool, the dataset, the property and the value: one that was set here lets no other count.
//!
//! `org.cenote:received=follow`, set here, has streams say where their datasets are mounted, and that their set-id bits and
//! devices count, as in OpenZFS.

use std::fmt;
use std::sync::Arc;

use base::{Error, Kind, Result};
use dsl::property::{HostReach, ValueKind, reach_of};
use dsl::{Level, Property, PropertySource, PropertyValue, Sourced, Subject};
use format::uberblock::Uberblock;
use pool::Pool;

use crate::host_state::{HostState, PoolIdentity};

/// The property of datasets that says whether what streams say of mounts counts.
const RECEIVED: &str = "org.cenote:received";
/// Its value if it does.
const FOLLOW: &str = "follow";
/// Its value if not.
const IGNORE: &str = "ignore";

/// What counts as set on this host, of one pool.
#[derive(Clone)]
pub struct HostRule {
    is_own: bool,
    /// The key for marks, and numbers of the pool that go into them.
    marks: Option<(Arc<HostState>, [u64; 4])>,
}

/// What a pool consists of: its last group, and the pointer to all that it has, with a checksum.
pub(crate) fn root_of(uberblock: &Uberblock) -> Vec<u8> {
    [&uberblock.txg.get().to_le_bytes()[..], uberblock.rootbp.raw()].concat()
}

impl HostRule {
    /// Of a pool of this host's own, or of a stranger's without marks.
    pub fn plain(is_own: bool) -> HostRule {
        HostRule { is_own, marks: None }
    }

    /// The same with what marks values that are set here, and remembers pools.
    pub(crate) fn of(is_own: bool, state: Arc<HostState>, pool: &PoolIdentity) -> HostRule {
        HostRule { is_own, marks: Some((state, pool.hidden)) }
    }

    /// Has the host remember the pool anew, or one that is made of it, if it is the host's own. Errors: those of writing it
    /// down.
    pub(crate) fn take_in(&self, pool: &PoolIdentity) -> Result<()> {
        match &self.marks {
            Some((state, _)) if self.is_own => state.take_in(pool),
            _ => Ok(()),
        }
    }

    /// Has the host remember with which root the pool is left, if it is the host's own. Errors: those of writing it down.
    pub(crate) fn leave(&self, view: &Pool) -> Result<()> {
        match &self.marks {
            Some((state, hidden)) if self.is_own => {
                state.leave(&PoolIdentity { guid: view.guid(), hidden: *hidden }, &root_of(view.uberblock()))
            }
            _ => Ok(()),
        }
    }

    /// Whether the pool is this host's own.
    pub fn is_own(&self) -> bool {
        self.is_own
    }

    /// The value of a property that counts here.
    pub fn value(&self, levels: &Level, name: &str) -> Option<PropertyValue> {
        let found = match (reach_of(name), Property::find(name)) {
            (HostReach::Inside, Some(property)) => levels.find(property),
            (HostReach::Inside, None) => levels.find_user(name),
            (HostReach::Place, _) => levels.find_set(name, &|_, _| true),
            (HostReach::Door, _) => levels.find_set(name, &|level, value| self.counts(level, name, value)),
        };
        found.map(|sourced| sourced.value)
    }

    /// Where a file system is mounted. That a stream says it is mounted nowhere counts. Errors: those of reading it.
    pub fn mountpoint(&self, pool: &Pool, subject: &Subject) -> Result<Option<Sourced>> {
        let found = pool.dsl().property(subject, Property::Mountpoint, 0)?;
        let is_place = |sourced: &Sourced| matches!(&sourced.value, PropertyValue::Text(text) if text.starts_with('/'));
        if !found.as_ref().is_some_and(is_place) || !self.passes_over_mountpoint(subject) {
            return Ok(found);
        }
        let set = subject.levels().find_set(Property::Mountpoint.name(), &|_, _| true);
        let by_default = || match Property::Mountpoint.info().kind {
            ValueKind::Text(Some(text)) => {
                Some(Sourced { value: PropertyValue::Text(text.to_owned()), source: PropertySource::Default })
            }
            _ => None,
        };
        Ok(set.or_else(by_default))
    }

    /// Whether a mountpoint came with a stream, and does not count.
    pub fn passes_over_mountpoint(&self, subject: &Subject) -> bool {
        subject.levels().is_received(Property::Mountpoint.name()) && !self.follows(subject.levels())
    }

    /// Whether a switch that gives rights on the host is on: by a value that was set here, or, where a stream has not brought
    /// the dataset, by default. Errors: those of reading it.
    pub fn gives(&self, pool: &Pool, subject: &Subject, property: Property) -> Result<bool> {
        let number = |value: PropertyValue| match value {
            PropertyValue::Number(number) => number,
            PropertyValue::Text(_) => 0,
        };
        let found = pool.dsl().property(subject, property, 0)?;
        if found.map_or(property.default_number(), |sourced| number(sourced.value)) == 0 {
            return Ok(false);
        }
        let levels = subject.levels();
        Ok(self.follows(levels)
            || self.value(levels, property.name()).map_or_else(|| !levels.has_received(), |value| number(value) != 0))
    }

    /// The mark of what is set on a dataset itself, as a property and its value; none where it needs none.
    pub fn mark(&self, levels: &Level, name: &str) -> Option<(String, String)> {
        let value = levels.own_set(name).filter(|_| !self.is_own && reach_of(name) == HostReach::Door)?;
        Some((mark_name(name), self.sum(levels, name, &value)?))
    }

    fn follows(&self, levels: &Level) -> bool {
        matches!(self.value(levels, RECEIVED), Some(PropertyValue::Text(text)) if text == FOLLOW)
    }

    /// Whether a value that a command has set at a level was set here.
    fn counts(&self, level: &Level, name: &str, value: &PropertyValue) -> bool {
        let mark = || match level.own_set(&mark_name(name)) {
            Some(PropertyValue::Text(mark)) => Some(mark),
            _ => None,
        };
        self.is_own || mark().is_some_and(|mark| self.sum(level, name, value).is_some_and(|sum| sum == mark))
    }

    fn sum(&self, level: &Level, name: &str, value: &PropertyValue) -> Option<String> {
        let (state, hidden) = self.marks.as_ref()?;
        let value = match value {
            PropertyValue::Number(number) => format!("number {number}"),
            PropertyValue::Text(text) => format!("text {text}"),
        };
        Some(state.sum(&["set here", &format!("{hidden:?}"), &level.object().to_string(), name, &value]))
    }
}

impl fmt::Debug for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostRule").field("is_own", &self.is_own).finish_non_exhaustive()
    }
}

/// The property that has the mark of another.
pub fn mark_name(name: &str) -> String {
    format!("org.cenote:{}_mark", name.strip_prefix("org.cenote:").unwrap_or(name))
}

/// Looks at what [`RECEIVED`] is to say. Errors: `Invalid` for a value that it cannot have.
pub fn check_received(property: &str, value: &str) -> Result<()> {
    match property != RECEIVED || [FOLLOW, IGNORE].contains(&value) {
        true => Ok(()),
        false => Err(Error::new(Kind::Invalid, format!("'{property}' must be one of '{FOLLOW} | {IGNORE}'"))),
    }
}
