//! Which volumes properties offer to programs.

use std::collections::HashSet;

use base::{Error, Kind, Result};
use dsl::property::DatasetKind;
use dsl::{PropertyValue, Subject};
use pool::Pool;
use protocol::volumes::is_on;

use crate::host_rule::HostRule;
use crate::volume_tree::is_shown;

/// The volumes that a property offers to programs, by name. This looks through all datasets. Errors: those of reading
/// the pool.
pub fn offered(rule: &HostRule, view: &Pool, property: &str) -> Result<Vec<Subject>> {
    volumes_where(view, |volume| offers(rule, view, volume, property))
}

/// The volumes of which something is so, by name. This looks through all datasets. Errors: those of reading the pool, and
/// of looking.
pub fn volumes_where(view: &Pool, is_so: impl Fn(&Subject) -> Result<bool>) -> Result<Vec<Subject>> {
    let (mut found, mut entered) = (Vec::new(), HashSet::new());
    let mut waiting = vec![view.dsl().root_subject()?];
    while let Some(subject) = waiting.pop() {
        // in a damaged tree, one might come by again and again
        if !entered.insert(subject.dir().id) {
            continue;
        }
        if subject.kind() == DatasetKind::FileSystem {
            waiting.extend(view.dsl().subjects_below(&subject)?.into_iter().flatten());
        } else if is_so(&subject)? {
            found.push(subject);
        }
    }
    found.sort_by(|a, b| a.name().cmp(b.name()));
    Ok(found)
}

/// Looks at what a property is to say that offers volumes. Errors: `Invalid` unless it is "on" or "off".
pub fn check_switch(property: &str, value: &str) -> Result<()> {
    match value {
        "on" | "off" => Ok(()),
        _ => Err(Error::new(Kind::Invalid, format!("'{property}' must be one of 'on | off'"))),
    }
}

/// Whether a property offers a volume, or a snapshot of one, to programs: one that was set on this host, as what a stream
/// brought would give out a backup wherever it is received. What a stream says can only keep it from being offered.
/// Errors: those of reading its properties.
pub fn offers(rule: &HostRule, view: &Pool, subject: &Subject, property: &str) -> Result<bool> {
    let says_on = |value: PropertyValue| matches!(value, PropertyValue::Text(text) if is_on(&text));
    let levels = subject.levels();
    let is_off = levels.is_received(property) && !levels.find_user(property).is_some_and(|found| says_on(found.value));
    Ok(!is_off && rule.value(levels, property).is_some_and(says_on) && is_shown(view, subject)?)
}
