//! What pool properties may be set to.

use dsl::PropertyValue;
use dsl::property::rules;
use format::feature::FEATURES;
use protocol::pool_properties::{self, Property};

use crate::compat::{self, Allowed};
use crate::hostid;

/// Longest comment, in bytes.
const COMMENT_BYTES_MAX: usize = 32;
/// Longest value, in bytes.
const VALUE_BYTES_MAX: usize = 1024;
/// The names that users make up are no longer, and their values shorter: a table entry holds no more.
const USER_NAME_BYTES_MAX: usize = 255;
const USER_VALUE_BYTES_MAX: usize = 8192;

/// A property of old pools, which is taken and means nothing.
pub const NO_EFFECT: &str = "dedupditto";

/// When a property is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At creation.
    Create,
    /// Later.
    Set,
    /// When a pool is split from another, which has that version.
    Split(u64),
}

/// Whether a property may have that value, or why not: what stands behind "cannot create 'tank': ".
pub fn check(name: &str, value: &str, when: When) -> Result<(), String> {
    if let Some(feature) = name.strip_prefix("feature@") {
        return check_feature(name, feature, value, when);
    }
    let Some(property) = Property::find(name) else {
        return match pool_properties::is_user_name(name) || name == NO_EFFECT {
            true if name.len() > USER_NAME_BYTES_MAX => Err(format!("property name '{name}' is too long")),
            true if value.len() >= USER_VALUE_BYTES_MAX => Err(format!("property value '{value}' is too long")),
            true => Ok(()),
            false => Err(format!("invalid property '{name}'")),
        };
    };
    let name = property.name;
    if property.is_readonly {
        return Err(format!("'{name}' is readonly"));
    }
    if let Some(words) = property.words()
        && !words.contains(&value)
    {
        return Err(format!("'{name}' must be one of '{}'", property.values));
    }
    if value.len() >= VALUE_BYTES_MAX {
        return Err(format!("'{name}' is too long"));
    }
    check_one(name, value, when)
}

fn check_one(name: &str, value: &str, when: When) -> Result<(), String> {
    let is_create = when == When::Create;
    match name {
        "readonly" => Err(format!("property '{name}' can only be set at import time")),
        "altroot" if !is_create => Err(format!("property '{name}' can only be set during pool creation or import")),
        "altroot" if !value.starts_with('/') => Err(format!("bad alternate root '{value}'")),
        "bootfs" if matches!(when, When::Split(_)) => Err(format!("'{value}' is an invalid name")),
        "bootfs" if is_create => Err(format!("property '{name}' cannot be set at creation or import time")),
        "ashift" => {
            let ashift: u64 = value.parse().map_err(|_| format!("bad numeric value '{value}'"))?;
            let why = "is invalid, only values between 9 and 16 are allowed.";
            let is_good = ashift == 0 || (9..=16).contains(&ashift);
            if is_good { Ok(()) } else { Err(format!("property '{name}' number {ashift} {why}")) }
        }
        "version" => {
            let version: u64 = value.parse().map_err(|_| format!("bad numeric value '{value}'"))?;
            let least = if let When::Split(of_other) = when { of_other } else { 1 };
            match version == pool_properties::VERSION {
                true => Ok(()),
                false if (least..=28).contains(&version) && !is_create => Ok(()),
                false if (1..=28).contains(&version) && is_create => {
                    Err(format!("this version of Cenote makes only pools of version {}", pool_properties::VERSION))
                }
                false => Err(format!("property '{name}' number {version} is invalid.")),
            }
        }
        "cachefile" => check_cachefile(name, value),
        "compatibility" => Allowed::load(value).map(drop),
        "comment" if value.chars().any(|c| !matches!(c, ' '..='~')) => {
            Err("comment may only have printable characters".to_owned())
        }
        "comment" if value.len() > COMMENT_BYTES_MAX => {
            Err(format!("comment must not exceed {COMMENT_BYTES_MAX} characters"))
        }
        "multihost" if value == "on" && hostid::system() == 0 => Err("requires a non-zero system hostid".to_owned()),
        _ => Ok(()),
    }
}

fn check_cachefile(name: &str, value: &str) -> Result<(), String> {
    if value.is_empty() || value == "none" {
        return Ok(());
    }
    if !value.starts_with('/') {
        return Err(format!("property '{name}' must be empty, an absolute path, or 'none'"));
    }
    let (folder, file) = value.rsplit_once('/').unwrap_or_default();
    if matches!(file, "" | "." | "..") {
        return Err(format!("'{value}' is not a valid file"));
    }
    match folder.is_empty() || std::path::Path::new(folder).is_dir() {
        true => Ok(()),
        false => Err(format!("'{folder}' is not a valid directory")),
    }
}

fn check_feature(name: &str, feature: &str, value: &str, when: When) -> Result<(), String> {
    if !FEATURES.iter().any(|known| known.name == feature) {
        return Err(format!("feature '{feature}' unsupported by kernel"));
    }
    match value {
        "disabled" if when == When::Create => Ok(()),
        "disabled" => Err(format!("property '{name}' can only be set to 'disabled' at creation time")),
        "enabled" if compat::is_given(feature) => Ok(()),
        "enabled" => Err(format!("this version of Cenote cannot write feature '{feature}'")),
        _ => Err(format!("property '{name}' can only be set to 'enabled' or 'disabled'")),
    }
}

/// The name that a property is stored under.
pub fn real_name(name: &str) -> String {
    Property::find(name).map_or(name, |property| property.name).to_owned()
}

/// What a property is stored as in the pool; its value has been checked. `None` if it is not stored there.
/// Errors: that it cannot be set.
pub fn stored(name: &str, value: &str) -> Result<Option<PropertyValue>, String> {
    if name.starts_with("feature@") {
        return Ok(None);
    }
    let Some(property) = Property::find(name) else {
        return Ok((name != NO_EFFECT).then(|| PropertyValue::Text(value.to_owned())));
    };
    let number = |value: &str| rules::parse_number(value).map_err(|e| e.what().to_owned());
    let stored = match property.name {
        "altroot" | "cachefile" | "readonly" | "version" => return Ok(None),
        "ashift" => PropertyValue::Number(number(value)?),
        "dedup_table_quota" => PropertyValue::Number(match value {
            "auto" => u64::MAX,
            "none" => 0,
            _ => number(value)?,
        }),
        _ => match property.words().and_then(|words| words.iter().position(|word| *word == value)) {
            Some(index) => PropertyValue::Number(index as u64),
            None => PropertyValue::Text(value.to_owned()),
        },
    };
    Ok(Some(stored))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_what_is_wrong_with_them() {
        let good = [
            ("ashift", "12"),
            ("ashift", "0"),
            ("autotrim", "off"),
            ("delegation", "off"),
            ("dedup_table_quota", "10M"),
            ("failmode", "continue"),
            ("comment", "a pool, of mine"),
            ("cachefile", "none"),
            ("cachefile", "/tmp/zpool.cache"),
            ("compatibility", "legacy"),
            ("feature@skein", "disabled"),
            ("org.me:note", "anything"),
            ("altroot", "/mnt"),
            ("version", "5000"),
            ("dedupditto", "100"),
        ];
        for (name, value) in good {
            assert_eq!(check(name, value, When::Create), Ok(()), "{name}={value}");
        }
        let (long_name, long_value) = (format!("x:{}", "a".repeat(254)), "A".repeat(8192));
        assert_eq!(check(&long_name[1..], &long_value[1..], When::Set), Ok(()));
        for (name, value, why) in [
            ("ashift", "8", "property 'ashift' number 8 is invalid, only values between 9 and 16 are allowed."),
            ("ashift", "x", "bad numeric value 'x'"),
            ("autotrim", "1", "'autotrim' must be one of 'on | off'"),
            ("failmode", "stop", "'failmode' must be one of 'wait | continue | panic'"),
            ("size", "1", "'size' is readonly"),
            ("comment", "a\nb", "comment may only have printable characters"),
            ("comment", &"x".repeat(33), "comment must not exceed 32 characters"),
            ("cachefile", "x", "property 'cachefile' must be empty, an absolute path, or 'none'"),
            ("cachefile", "/tmp/.", "'/tmp/.' is not a valid file"),
            ("cachefile", "/no/such/x", "'/no/such' is not a valid directory"),
            ("bootfs", "tank", "property 'bootfs' cannot be set at creation or import time"),
            ("readonly", "on", "property 'readonly' can only be set at import time"),
            ("altroot", "mnt", "bad alternate root 'mnt'"),
            ("compatibility", "no-such", "could not read/parse feature file(s): no-such "),
            ("feature@nope", "enabled", "feature 'nope' unsupported by kernel"),
            ("feature@skein", "on", "property 'feature@skein' can only be set to 'enabled' or 'disabled'"),
            ("feature@encryption", "enabled", "this version of Cenote cannot write feature 'encryption'"),
            ("version", "28", "this version of Cenote makes only pools of version 5000"),
            ("version", "29", "property 'version' number 29 is invalid."),
            ("nope", "1", "invalid property 'nope'"),
            (&long_name, "1", &format!("property name '{long_name}' is too long")),
            ("a:b", &long_value, &format!("property value '{long_value}' is too long")),
        ] {
            assert_eq!(check(name, value, When::Create), Err(why.to_owned()), "{name}={value}");
        }
        let later = "property 'feature@skein' can only be set to 'disabled' at creation time";
        assert_eq!(check("feature@skein", "disabled", When::Set), Err(later.into()));
        let altroot = "property 'altroot' can only be set during pool creation or import";
        assert_eq!(check("altroot", "/mnt", When::Set), Err(altroot.into()));
    }

    #[test]
    fn what_is_stored() {
        use PropertyValue::{Number, Text};
        for (name, value, expect) in [
            ("autotrim", "on", Some(Number(1))),
            ("failmode", "panic", Some(Number(2))),
            ("delegation", "off", Some(Number(0))),
            ("ashift", "13", Some(Number(13))),
            ("dedup_table_quota", "auto", Some(Number(u64::MAX))),
            ("dedup_table_quota", "none", Some(Number(0))),
            ("dedup_table_quota", "10M", Some(Number(10 << 20))),
            ("comment", "12", Some(Text("12".into()))),
            ("org.me:note", "on", Some(Text("on".into()))),
            ("cachefile", "none", None),
        ] {
            assert_eq!(stored(name, value), Ok(expect), "{name}={value}");
        }
        assert_eq!(stored("feature@skein", "enabled"), Ok(None));
        assert_eq!(real_name("listsnaps"), "listsnapshots");
    }
}
