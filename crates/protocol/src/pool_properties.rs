//! The table of pool properties: name, column, what it may be set to, and how its value comes about.
//!
//! Order, widths and default values are those that the commands of OpenZFS show, since scripts cut
//! columns by position. Features are properties, too (`feature@NAME`), as are those that users make up
//! (their name has a colon).

use format::feature;
use format::feature::{LARGE_BLOCKS, LARGE_DNODE};

use crate::pool_report::{PoolReport, PropertyValue};
use crate::words::nicenum::{nicebytes, nicenum};

/// A property of the table.
pub struct Property {
    /// Name.
    pub name: &'static str,
    /// Heading in `zpool list`; in small letters it is another name of the property.
    pub column: &'static str,
    /// What it may be, for the list of properties; empty if it is not in that list.
    pub values: &'static str,
    /// Whether nobody can set it.
    pub is_readonly: bool,
    form: ValueForm,
    value: fn(&PoolReport) -> SourcedValue,
}

/// How a value becomes text.
#[derive(Clone, Copy)]
enum ValueForm {
    Text,
    /// A number as it is.
    Number,
    /// Bytes or another large number.
    Size,
    /// Bytes; a dash for none.
    SizeOrDash,
    Percent,
    /// Hundredths, shown as `1.00x`.
    Ratio,
    Health,
    Version,
    Quota,
    /// One of these words.
    Index(&'static [&'static str]),
}

/// A value, and where it was set.
enum SourcedValue {
    Number(u64, PoolPropertySource),
    Text(String, PoolPropertySource),
    /// There is none.
    Nothing(PoolPropertySource),
}

/// Where a value was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolPropertySource {
    /// It cannot be set.
    None,
    /// Nowhere: it is the default.
    Default,
    /// On the pool.
    Local,
}

impl PoolPropertySource {
    /// In the column SOURCE.
    pub fn word(self) -> &'static str {
        match self {
            PoolPropertySource::None => "-",
            PoolPropertySource::Default => "default",
            PoolPropertySource::Local => "local",
        }
    }

    /// In JSON.
    pub fn json_name(self) -> &'static str {
        match self {
            PoolPropertySource::None => "NONE",
            PoolPropertySource::Default => "DEFAULT",
            PoolPropertySource::Local => "LOCAL",
        }
    }
}

const ON_OFF: &[&str] = &["off", "on"];

/// All properties but features, in their order. Those without `values` are shown only when asked for.
#[rustfmt::skip]
pub const PROPERTIES: &[Property] = &[
    prop("name", "NAME", "", ValueForm::Text, |p| SourcedValue::Text(p.name.clone(), PoolPropertySource::None)).fixed(),
    prop("size", "SIZE", "<size>", ValueForm::Size, |p| number(p.space.size_bytes)).fixed(),
    prop("capacity", "CAP", "<percent>", ValueForm::Percent, |p| number(capacity(p))).fixed(),
    prop("altroot", "ALTROOT", "<path>", ValueForm::Text, |p| text(p.altroot.as_deref())),
    prop("health", "HEALTH", "<state>", ValueForm::Health, |p| SourcedValue::Text(p.word().to_owned(), PoolPropertySource::None)).fixed(),
    prop("guid", "GUID", "<guid>", ValueForm::Number, |p| number(p.guid.get())).fixed(),
    prop("version", "VERSION", "<version>", ValueForm::Version, |p| default_or_local(p.version, VERSION)),
    prop("bootfs", "BOOTFS", "<filesystem>", ValueForm::Text, |p| text(p.bootfs.as_deref())),
    prop("delegation", "DELEGATION", "on | off", ValueForm::Index(ON_OFF), |p| stored(p, "delegation", 1)),
    prop("autoreplace", "REPLACE", "on | off", ValueForm::Index(ON_OFF), |p| stored(p, "autoreplace", 0)),
    prop("cachefile", "CACHEFILE", "<file> | none", ValueForm::Text, |p| text(p.cachefile.as_deref())),
    prop("failmode", "FAILMODE", "wait | continue | panic", ValueForm::Index(&["wait", "continue", "panic"]), |p| stored(p, "failmode", 0)),
    prop("listsnapshots", "LISTSNAPS", "on | off", ValueForm::Index(ON_OFF), |p| stored(p, "listsnapshots", 0)),
    prop("autoexpand", "EXPAND", "on | off", ValueForm::Index(ON_OFF), |p| stored(p, "autoexpand", 0)),
    prop("dedupratio", "DEDUP", "<1.00x or higher if deduped>", ValueForm::Ratio, |p| number(p.dedup_ratio_percent)).fixed(),
    prop("free", "FREE", "<size>", ValueForm::Size, |p| number(p.space.size_bytes.saturating_sub(p.space.allocated_bytes))).fixed(),
    prop("allocated", "ALLOC", "<size>", ValueForm::Size, |p| number(p.space.allocated_bytes)).fixed(),
    prop("readonly", "RDONLY", "on | off", ValueForm::Index(ON_OFF), |p| number(u64::from(!p.is_writable))),
    prop("ashift", "ASHIFT", "<ashift, 9-16, or 0=default>", ValueForm::Size, |p| stored(p, "ashift", 0)),
    prop("comment", "COMMENT", "<comment-string>", ValueForm::Text, |p| text(p.comment.as_deref())),
    prop("expandsize", "EXPANDSZ", "<size>", ValueForm::SizeOrDash, |p| number(p.space.expandable_bytes)).fixed(),
    prop("freeing", "FREEING", "<size>", ValueForm::Size, |p| number(p.freeing_bytes)).fixed(),
    prop("fragmentation", "FRAG", "<percent>", ValueForm::Percent, |p| match p.space.fragmentation {
        Some(percent) => number(percent),
        None => SourcedValue::Nothing(PoolPropertySource::None),
    }).fixed(),
    prop("leaked", "LEAKED", "<size>", ValueForm::Size, |p| number(p.leaked_bytes)).fixed(),
    prop("maxblocksize", "MAXBLOCKSIZE", "", ValueForm::Size, |p| number(if has_feature(p, LARGE_BLOCKS) { 16 << 20 } else { 128 << 10 })).fixed(),
    prop("maxdnodesize", "MAXDNODESIZE", "", ValueForm::Size, |p| number(if has_feature(p, LARGE_DNODE) { 16 << 10 } else { 512 })).fixed(),
    prop("multihost", "MULTIHOST", "on | off", ValueForm::Index(ON_OFF), |p| stored(p, "multihost", 0)),
    prop("checkpoint", "CKPOINT", "<size>", ValueForm::SizeOrDash, |p| number(p.space.checkpoint_bytes)).fixed(),
    prop("load_guid", "LOAD_GUID", "<load_guid>", ValueForm::Number, |p| number(p.load_guid.get())).fixed(),
    prop("autotrim", "AUTOTRIM", "on | off", ValueForm::Index(ON_OFF), |p| stored(p, "autotrim", 0)),
    prop("compatibility", "COMPATIBILITY", "<file[,file...]> | off | legacy", ValueForm::Text, |p| match &p.compatibility {
        Some(sets) => SourcedValue::Text(sets.clone(), PoolPropertySource::Local),
        None => SourcedValue::Text("off".to_owned(), PoolPropertySource::Default),
    }),
    prop("bcloneused", "BCLONE_USED", "<size>", ValueForm::Size, |p| number(p.clone_used_bytes)).fixed(),
    prop("bclonesaved", "BCLONE_SAVED", "<size>", ValueForm::Size, |p| number(p.clone_saved_bytes)).fixed(),
    prop("bcloneratio", "BCLONE_RATIO", "<1.00x or higher if cloned>", ValueForm::Ratio, |p| number(p.clone_ratio_percent)).fixed(),
    prop("dedup_table_size", "DDTSIZE", "<size>", ValueForm::Size, |p| number(p.dedup_table_bytes)).fixed(),
    prop("dedup_table_quota", "DDTQUOTA", "<size>", ValueForm::Quota, |p| stored(p, "dedup_table_quota", u64::MAX)),
    prop("dedupcached", "DEDUPCACHED", "", ValueForm::Size, |p| number(p.dedup_cached_bytes)).fixed(),
    prop("last_scrubbed_txg", "LAST_SCRUBBED_TXG", "<txg>", ValueForm::Number, |p| number(p.last_scrubbed_txg.get())).fixed(),
];

/// The version of pools with feature flags.
pub const VERSION: u64 = 5000;

const fn prop(
    name: &'static str,
    column: &'static str,
    values: &'static str,
    form: ValueForm,
    value: fn(&PoolReport) -> SourcedValue,
) -> Property {
    Property { name, column, values, is_readonly: false, form, value }
}

fn number(number: u64) -> SourcedValue {
    SourcedValue::Number(number, PoolPropertySource::None)
}

fn text(text: Option<&str>) -> SourcedValue {
    text.map_or(SourcedValue::Nothing(PoolPropertySource::Default), |text| {
        SourcedValue::Text(text.to_owned(), PoolPropertySource::Local)
    })
}

fn default_or_local(number: u64, default: u64) -> SourcedValue {
    SourcedValue::Number(
        number,
        if number == default { PoolPropertySource::Default } else { PoolPropertySource::Local },
    )
}

fn stored(pool: &PoolReport, name: &str, default: u64) -> SourcedValue {
    let number = pool.stored.iter().find_map(|(n, value)| match value {
        PropertyValue::Number(number) if n == name => Some(*number),
        _ => None,
    });
    default_or_local(number.unwrap_or(default), default)
}

fn capacity(pool: &PoolReport) -> u64 {
    (u128::from(pool.space.allocated_bytes) * 100).checked_div(u128::from(pool.space.size_bytes)).unwrap_or(0) as u64
}

fn has_feature(pool: &PoolReport, guid: &str) -> bool {
    pool.features.iter().any(|(listed, _)| listed == guid)
}

impl Property {
    /// One that nobody can set.
    const fn fixed(self) -> Property {
        Property { is_readonly: true, ..self }
    }

    /// The property of that name, or with that heading in small letters.
    pub fn find(name: &str) -> Option<&'static Property> {
        PROPERTIES.iter().find(|p| p.name == name || p.column.to_ascii_lowercase() == name)
    }

    /// Its value as text: exact if `literal`, otherwise for people; and where it was set.
    pub fn text(&self, pool: &PoolReport, literal: bool) -> (String, PoolPropertySource) {
        match (self.value)(pool) {
            SourcedValue::Text(text, source) => (text, source),
            SourcedValue::Nothing(source) => ("-".to_owned(), source),
            SourcedValue::Number(number, source) => (self.form.text(number, literal), source),
        }
    }

    /// The words that it may be; `None` if it is no choice of words.
    pub fn words(&self) -> Option<&'static [&'static str]> {
        match self.form {
            ValueForm::Index(words) => Some(words),
            _ => None,
        }
    }

    /// Whether columns of it are aligned at the right.
    pub fn is_right_aligned(&self) -> bool {
        !matches!(self.form, ValueForm::Text | ValueForm::Index(_))
    }

    /// Width that its column has at least.
    pub fn width(&self) -> usize {
        let least = match self.form {
            ValueForm::Text => 0,
            ValueForm::Index(words) => words.iter().map(|word| word.len()).max().unwrap_or(0),
            ValueForm::Health => 8,
            _ => 5,
        };
        self.column.len().max(least)
    }

    /// Whether longer values than the usual make its column wider.
    pub fn is_flexible(&self) -> bool {
        matches!(self.form, ValueForm::Text | ValueForm::Index(_)) || matches!(self.name, "guid" | "load_guid")
    }
}

impl ValueForm {
    fn text(self, number: u64, literal: bool) -> String {
        match self {
            ValueForm::Index(words) => {
                usize::try_from(number).ok().and_then(|i| words.get(i)).map_or("-".to_owned(), |w| (*w).to_owned())
            }
            ValueForm::Quota if number == u64::MAX => "auto".to_owned(),
            ValueForm::Quota if number == 0 && !literal => "none".to_owned(),
            ValueForm::SizeOrDash if number == 0 => "-".to_owned(),
            ValueForm::Version if number >= VERSION => "-".to_owned(),
            ValueForm::Ratio => format!("{}.{:02}{}", number / 100, number % 100, if literal { "" } else { "x" }),
            ValueForm::Percent if !literal => format!("{number}%"),
            ValueForm::SizeOrDash if !literal => nicebytes(number),
            ValueForm::Size | ValueForm::Quota if !literal => nicenum(number),
            _ => number.to_string(),
        }
    }
}

/// State of the feature of that name; `None` if there is no such feature.
pub fn feature_text(pool: &PoolReport, name: &str) -> Option<&'static str> {
    let known = feature::FEATURES.iter().find(|feature| feature.name == name)?;
    Some(match pool.features.iter().find(|(guid, _)| guid == known.guid) {
        None => "disabled",
        Some((_, false)) => "enabled",
        Some((_, true)) => "active",
    })
}

/// State of a feature that this program does not know; `None` if the pool does not list it.
pub fn unsupported_text(pool: &PoolReport, guid: &str) -> Option<&'static str> {
    let (_, is_active) = pool.features.iter().find(|(listed, _)| listed == guid)?;
    Some(if *is_active { "readonly" } else { "inactive" })
}

/// Guids of the features of a pool that this program does not know.
pub fn unknown_features(pool: &PoolReport) -> impl Iterator<Item = &str> {
    pool.features.iter().map(|(guid, _)| guid.as_str()).filter(|guid| feature::find(guid).is_none())
}

/// The value of a property that a user made up.
pub fn user_text<'a>(pool: &'a PoolReport, name: &str) -> Option<&'a str> {
    pool.stored.iter().find_map(|(n, value)| match value {
        PropertyValue::Text(text) if n == name => Some(text.as_str()),
        _ => None,
    })
}

/// Whether a name is one that a user may make up: small letters, digits and some signs, with a colon.
pub fn is_user_name(name: &str) -> bool {
    name.contains(':')
        && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b':' | b'+'))
}

/// The list of properties below a usage message.
pub fn help() -> String {
    let mut rows: Vec<&Property> = PROPERTIES.iter().filter(|p| !p.values.is_empty()).collect();
    rows.sort_by_key(|p| (!p.is_readonly, p.name));
    let mut help = "\nthe following properties are supported:\n\n\tPROPERTY             EDIT   VALUES\n\n".to_owned();
    for row in rows {
        let edit = if row.is_readonly { "  NO " } else { " YES " };
        help += &format!("\t{:<19}  {edit}  {}\n", row.name, row.values);
    }
    help += &format!("\t{:<19}   YES   disabled | enabled | active\n", "feature@...");
    help += "\nThe feature@ properties must be appended with a feature name.\nSee zpool-features(7).\n";
    help
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> PoolReport {
        let mut report = PoolReport { name: "tank".into(), version: 5000, ..PoolReport::default() };
        report.space.size_bytes = 48 << 20;
        report.space.allocated_bytes = 1 << 20;
        report.space.fragmentation = Some(3);
        report.dedup_ratio_percent = 266;
        report.stored =
            vec![("ashift".into(), PropertyValue::Number(12)), ("autotrim".into(), PropertyValue::Number(0))];
        report
    }

    #[test]
    fn texts() {
        let pool = report();
        let check = |name: &str, literal: &str, nice: &str, source| {
            let property = Property::find(name).unwrap();
            assert_eq!(property.text(&pool, true), (literal.to_owned(), source), "{name}");
            assert_eq!(property.text(&pool, false), (nice.to_owned(), source), "{name}");
        };
        check("size", "50331648", "48M", PoolPropertySource::None);
        check("cap", "2", "2%", PoolPropertySource::None);
        check("frag", "3", "3%", PoolPropertySource::None);
        check("dedupratio", "2.66", "2.66x", PoolPropertySource::None);
        check("version", "-", "-", PoolPropertySource::Default);
        check("ashift", "12", "12", PoolPropertySource::Local);
        check("autotrim", "off", "off", PoolPropertySource::Default);
        check("dedup_table_quota", "auto", "auto", PoolPropertySource::Default);
        check("expandsize", "-", "-", PoolPropertySource::None);
        check("altroot", "-", "-", PoolPropertySource::Default);
        check("compatibility", "off", "off", PoolPropertySource::Default);
        check("health", "UNAVAIL", "UNAVAIL", PoolPropertySource::None);
    }

    #[test]
    fn the_table_hangs_together() {
        for (i, property) in PROPERTIES.iter().enumerate() {
            assert_eq!(PROPERTIES.iter().position(|p| p.name == property.name), Some(i));
            assert!(property.width() >= property.column.len());
        }
        assert!(Property::find("alloc").is_some() && Property::find("ALLOC").is_none());
        assert!(is_user_name("com.me:x") && !is_user_name("com.me") && !is_user_name("Com:x"));
        assert!(help().contains("\tallocated              NO   <size>\n"));
        assert!(help().contains("\tautotrim              YES   on | off\n"));
    }
}
