//! Which values a property can be given, and how `zfs` words it when it cannot.
//!
//! ```text
//!   "compression" "gzip-3" ─▶ is it one? applies it? may it be set? ─▶ number, text or choice ─▶ its own limits
//! ```
//!
//! What depends on the dataset (quotas and the space it uses) is checked where the value is set.

use base::{Error, Kind, Result};

use super::{Applies, DatasetKind, NumberForm, Setting, ValueKind, is_user_property};
use crate::{Property, PropertyValue};

/// The number that `refreservation=auto` stands for until it has been reckoned how much that is.
pub const REFRESERVATION_AUTO: u64 = u64::MAX;
/// The newest version of file systems.
pub const ZPL_VERSION: u64 = 5;
/// Bytes of the largest block.
const BLOCK_SIZE_MAX: u64 = 16 << 20;
const BLOCK_SIZE_MIN: u64 = 512;
/// Bytes of the longest name of a property.
const NAME_LEN_MAX: usize = 255;
/// Bytes of the longest value: ZAP_MAXVALUELEN, with the NUL at its end.
const USER_VALUE_LEN_MAX: usize = 8191;
const VALUE_LEN_MAX: usize = 4095;
/// Bytes of the longest component of a path.
const COMPONENT_LEN_MAX: usize = 255;

/// A value that a property can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The property's full name.
    pub name: String,
    /// Which it is; `None` for one that users made up.
    pub property: Option<Property>,
    /// As it is stored.
    pub value: PropertyValue,
}

/// Checks one value for a dataset of `kind`, which is made just now if `is_new`.
///
/// Errors: `Invalid`, `ReadOnly`, `TooLong`, `Unsupported`, each with what `zfs` prints behind "cannot set
/// property for 'tank': ".
pub fn check(name: &str, text: &str, kind: DatasetKind, is_new: bool) -> Result<Given> {
    let Some(property) = Property::find(name) else { return check_user(name, text, kind) };
    let name = property.name();
    let info = property.info();
    if kind == DatasetKind::Snapshot {
        return invalid("this property can not be modified for snapshots");
    }
    if !info.applies.has(kind) {
        return invalid(format!("'{name}' does not apply to datasets of this type"));
    }
    let is_once = matches!(info.setting, Setting::Once | Setting::OnceOwn);
    if property.is_read_only() && !(is_once && is_new) {
        return Err(Error::new(Kind::ReadOnly, format!("'{name}' is readonly")));
    }
    let value = match info.kind {
        ValueKind::Text(_) => check_text(property, text)?,
        ValueKind::Number(..) => PropertyValue::Number(check_number(property, text, kind)?),
        ValueKind::Choice(..) => {
            let number = property.value_of(text);
            let number = number.ok_or_else(|| {
                Error::new(Kind::Invalid, format!("'{name}' must be one of '{}'", info.values.unwrap_or("")))
            })?;
            PropertyValue::Number(number)
        }
    };
    check_supported(property, &value)?;
    Ok(Given { name: name.to_owned(), property: Some(property), value })
}

/// Checks the properties of a new dataset, also against each other, and adds those that follow from them.
pub fn check_all(properties: &[(String, String)], kind: DatasetKind) -> Result<Vec<Given>> {
    let given = properties.iter().map(|(name, text)| check(name, text, kind, true));
    let mut given = given.collect::<Result<Vec<Given>>>()?;
    let chosen = |property| {
        let found = given.iter().find(|given: &&Given| given.property == Some(property));
        found.map(|given| given.value.clone())
    };
    let implied = |property: Property, number| Given {
        name: property.name().to_owned(),
        property: Some(property),
        value: PropertyValue::Number(number),
    };
    let normalizes = chosen(Property::Normalization).map(|value| value != PropertyValue::Number(0));
    let utf8only = chosen(Property::Utf8only).map(|value| value != PropertyValue::Number(0));
    match (normalizes, utf8only) {
        (Some(true), None) => given.push(implied(Property::Utf8only, 1)),
        (Some(true), Some(false)) => return invalid("'utf8only' must be set 'on' if normalization chosen"),
        (None, Some(false)) => given.push(implied(Property::Normalization, 0)),
        _ => {}
    }
    Ok(given)
}

fn invalid<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::new(Kind::Invalid, what.into()))
}

fn check_user(name: &str, text: &str, kind: DatasetKind) -> Result<Given> {
    if is_user_property(name) {
        if name.len() > NAME_LEN_MAX {
            return Err(Error::new(Kind::TooLong, format!("property name '{name}' is too long")));
        }
        if text.len() > USER_VALUE_LEN_MAX {
            return Err(Error::new(Kind::TooLong, "property value too long"));
        }
        return Ok(Given { name: name.to_owned(), property: None, value: PropertyValue::Text(text.to_owned()) });
    }
    if kind == DatasetKind::Snapshot {
        return invalid("this property can not be modified for snapshots");
    }
    if name.starts_with("written@") || name.starts_with("written#") {
        return Err(Error::new(Kind::ReadOnly, format!("'{name}' is readonly")));
    }
    invalid(format!("invalid property '{name}'"))
}

fn check_text(property: Property, text: &str) -> Result<PropertyValue> {
    let name = property.name();
    if text.len() > VALUE_LEN_MAX {
        return Err(Error::new(Kind::TooLong, format!("'{name}' is too long")));
    }
    match property {
        Property::Mountpoint if text != "none" && text != "legacy" => {
            if !text.starts_with('/') {
                return invalid(format!("'{name}' must be an absolute path, 'none', or 'legacy'"));
            }
            if text.split('/').any(|component| component.len() > COMPONENT_LEN_MAX) {
                return invalid(format!("component of '{name}' is too long"));
            }
            if text.split('/').any(|component| component == "..") {
                return invalid(format!("'{name}' cannot have '..' in it"));
            }
        }
        Property::Mlslabel if text != "none" => return invalid("mlslabels are unsupported"),
        Property::Keylocation if text != "none" => {
            return invalid("keylocation must be 'none' for unencrypted datasets");
        }
        _ => {}
    }
    Ok(PropertyValue::Text(text.to_owned()))
}

fn check_number(property: Property, text: &str, kind: DatasetKind) -> Result<u64> {
    let name = property.name();
    let is_limit = matches!(property, Property::FilesystemLimit | Property::SnapshotLimit);
    let number = match text {
        "none" if is_limit => u64::MAX,
        "none" => 0,
        "auto" if property != Property::Refreservation => {
            return invalid(format!("'auto' is invalid value for '{name}'"));
        }
        "auto" if kind != DatasetKind::Volume => return invalid(format!("'{name}=auto' only allowed on volumes")),
        // for what makes the volume, or sets it, to reckon
        "auto" => REFRESERVATION_AUTO,
        text => parse_number(text)?,
    };
    let is_quota = matches!(property, Property::Quota | Property::Refquota);
    if is_quota && number == 0 && text != "none" {
        return invalid("use 'none' to disable quota/refquota");
    }
    match property {
        Property::Recordsize | Property::Volblocksize
            if !(BLOCK_SIZE_MIN..=BLOCK_SIZE_MAX).contains(&number) || !number.is_power_of_two() =>
        {
            invalid(format!("'{name}' must be power of 2 from 512B to 16M"))
        }
        Property::SpecialSmallBlocks if number > BLOCK_SIZE_MAX => {
            invalid(format!("invalid '{name}' property: must be between zero and 16M"))
        }
        _ => Ok(number),
    }
}

/// A stored number as [`check`] takes it. `None`: a choice has no such number.
pub fn text_of(property: Property, number: u64) -> Option<String> {
    Some(match property.info().kind {
        ValueKind::Choice(..) => property.name_of(number)?.to_owned(),
        ValueKind::Number(_, NumberForm::Quota) if number == 0 => "none".to_owned(),
        ValueKind::Number(_, NumberForm::Limit) if number == u64::MAX => "none".to_owned(),
        _ => number.to_string(),
    })
}

/// A number with a suffix, as `zfs` takes it: `10`, `1.5G`, `128k`, `1TiB`. Errors: `Invalid`, worded as by `zfs`.
pub fn parse_number(text: &str) -> Result<u64> {
    let too_large = || Error::new(Kind::Invalid, "numeric value is too large");
    if !text.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return invalid(format!("bad numeric value '{text}'"));
    }
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if text[digits..].starts_with('.') {
        let rest = &text[digits + 1..];
        let end = digits + 1 + rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let shift = shift_of(&text[end..])?;
        let value = text[..end].parse::<f64>().unwrap_or(0.0) * (shift as f64).exp2();
        return if value >= u64::MAX as f64 { Err(too_large()) } else { Ok(value as u64) };
    }
    let number: u64 = text[..digits].parse().map_err(|_| too_large())?;
    let shift = shift_of(&text[digits..])?;
    1u64.checked_shl(shift).and_then(|unit| number.checked_mul(unit)).ok_or_else(too_large)
}

/// The power of two that a suffix stands for.
fn shift_of(suffix: &str) -> Result<u32> {
    let upper = suffix.to_ascii_uppercase();
    let mut letters = upper.chars();
    let Some(first) = letters.next() else { return Ok(0) };
    let power = "BKMGTPEZ".find(first);
    let rest = letters.as_str();
    match power {
        Some(power) if rest.is_empty() || power > 0 && (rest == "B" || rest == "IB") => Ok(10 * power as u32),
        _ => invalid(format!("invalid numeric suffix '{suffix}'")),
    }
}

/// Refuses values that ask for what this version does not do; that which says what it does can be set.
fn check_supported(property: Property, value: &PropertyValue) -> Result<()> {
    let number = if let PropertyValue::Number(number) = value { *number } else { 0 };
    let is = |text: &str| *value == PropertyValue::Text(text.to_owned());
    let is_choice = |name| property.value_of(name) == Some(number);
    let refuse = |what: &str| {
        let what = format!("'{}': {what} is not supported by this version", property.name());
        Err(Error::new(Kind::Unsupported, what))
    };
    match property {
        Property::Encryption if number != 2 => refuse("encryption"),
        Property::Keyformat | Property::Pbkdf2iters | Property::Pbkdf2salt if number != 0 => refuse("encryption"),
        Property::Longname if number != 0 => refuse("names of more than 255 bytes"),
        Property::Sharenfs if !is("off") => refuse("sharing over NFS"),
        Property::Sharesmb if !is("off") => refuse("sharing over SMB"),
        Property::Context | Property::Fscontext | Property::Defcontext | Property::Rootcontext if !is("none") => {
            refuse("mounting with SELinux contexts")
        }
        Property::Volthreading if !is_choice("on") => refuse("a volume without threads"),
        _ => Ok(()),
    }
}

/// Whether a value of a property may be inherited by `zfs inherit`, or with `received` (`-S`) reverted to what
/// was received. Errors: as `zfs` words them.
pub fn check_inherit(name: &str, kind: DatasetKind, received: bool) -> Result<Option<Property>> {
    let Some(property) = Property::find(name) else {
        return if is_user_property(name) { Ok(None) } else { invalid("invalid property") };
    };
    if property.is_read_only() {
        return Err(Error::new(Kind::ReadOnly, "read-only property"));
    }
    if !property.is_inherited() && !received {
        return invalid("property cannot be inherited");
    }
    let info = property.info();
    if !info.applies.has(kind) || kind == DatasetKind::Snapshot && info.applies != Applies::SNAPSHOT {
        return invalid("property does not apply to datasets of this type");
    }
    Ok(Some(property))
}

#[cfg(test)]
mod tests {
    use super::*;
    use DatasetKind::{FileSystem, Snapshot, Volume};

    fn number(name: &str, text: &str) -> u64 {
        match check(name, text, FileSystem, false).unwrap().value {
            PropertyValue::Number(number) => number,
            PropertyValue::Text(text) => panic!("{text}"),
        }
    }

    #[test]
    fn numbers_with_suffixes() {
        for (text, expect) in [
            ("0", 0),
            ("10", 10),
            ("10b", 10),
            ("1k", 1 << 10),
            ("128K", 128 << 10),
            ("1.5G", 3 << 29),
            (".5M", 1 << 19),
            ("2TiB", 2 << 40),
            ("3gB", 3 << 30),
            ("15E", 15 << 60),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_number(text).unwrap(), expect, "{text}");
        }
        for (text, why) in [
            ("x", "bad numeric value 'x'"),
            ("", "bad numeric value ''"),
            ("-1", "bad numeric value '-1'"),
            ("1x", "invalid numeric suffix 'x'"),
            ("1BB", "invalid numeric suffix 'BB'"),
            ("1kk", "invalid numeric suffix 'kk'"),
            ("16E", "numeric value is too large"),
            ("1Z", "numeric value is too large"),
            ("0.5zb", "numeric value is too large"),
            ("16.0E", "numeric value is too large"),
            ("18446744073709551616", "numeric value is too large"),
        ] {
            assert_eq!(parse_number(text).unwrap_err().what(), why, "{text}");
        }
    }

    /// A receiver gets numbers, and gives them to `check` as text.
    #[test]
    fn stored_numbers_can_be_set_again() {
        for (name, text) in [
            ("quota", "none"),
            ("refquota", "none"),
            ("reservation", "none"),
            ("refreservation", "none"),
            ("filesystem_limit", "none"),
            ("snapshot_limit", "7"),
            ("quota", "1234567"),
            ("recordsize", "4096"),
            ("atime", "off"),
            ("compression", "gzip-3"),
        ] {
            let property = Property::find(name).unwrap();
            assert_eq!(text_of(property, number(name, text)).as_deref(), Some(text), "{name}");
        }
        assert_eq!(text_of(Property::Atime, 9), None);
    }

    #[test]
    fn values_that_can_be_set() {
        assert_eq!(number("compression", "gzip-9"), 13);
        assert_eq!(number("compress", "lz4"), 15);
        assert_eq!(number("recordsize", "1M"), 1 << 20);
        assert_eq!(number("recsize", "512"), 512);
        assert_eq!(number("quota", "none"), 0);
        assert_eq!(number("reservation", "0"), 0);
        assert_eq!(number("atime", "off"), 0);
        assert_eq!(number("filesystem_limit", "none"), u64::MAX);
        assert!(check("mountpoint", "/a b", FileSystem, false).is_ok());
        assert!(check("a:b", "c", Snapshot, false).is_ok());
        // what says what is so anyway
        for (name, value) in [
            ("sharenfs", "off"),
            ("sharesmb", "off"),
            ("volmode", "none"),
            ("volmode", "default"),
            ("snapdev", "hidden"),
            ("context", "none"),
            ("encryption", "off"),
            ("keylocation", "none"),
        ] {
            assert!(check(name, value, FileSystem, true).is_ok(), "{name}");
        }
        assert!(check("casesensitivity", "mixed", FileSystem, true).is_ok());
    }

    #[test]
    fn values_that_cannot_and_why() {
        let long = "x".repeat(300);
        for (name, text, kind, why) in [
            ("used", "1", FileSystem, "'used' is readonly"),
            ("casesensitivity", "mixed", FileSystem, "'casesensitivity' is readonly"),
            ("written@x", "1", FileSystem, "'written@x' is readonly"),
            ("nonsense", "1", FileSystem, "invalid property 'nonsense'"),
            ("Upper:x", "1", FileSystem, "invalid property 'Upper:x'"),
            ("volsize", "1G", FileSystem, "'volsize' does not apply to datasets of this type"),
            ("quota", "1G", Volume, "'quota' does not apply to datasets of this type"),
            ("atime", "off", Snapshot, "this property can not be modified for snapshots"),
            ("atime", "maybe", FileSystem, "'atime' must be one of 'on | off'"),
            ("sync", "", FileSystem, "'sync' must be one of 'standard | always | disabled'"),
            ("quota", "0", FileSystem, "use 'none' to disable quota/refquota"),
            ("quota", "lots", FileSystem, "bad numeric value 'lots'"),
            ("quota", "auto", FileSystem, "'auto' is invalid value for 'quota'"),
            ("refreservation", "auto", FileSystem, "'refreservation=auto' only allowed on volumes"),
            ("recordsize", "1000", FileSystem, "'recordsize' must be power of 2 from 512B to 16M"),
            ("recordsize", "32M", FileSystem, "'recordsize' must be power of 2 from 512B to 16M"),
            (
                "special_small_blocks",
                "17M",
                FileSystem,
                "invalid 'special_small_blocks' property: must be between zero and 16M",
            ),
            ("mountpoint", "/a/../b", FileSystem, "'mountpoint' cannot have '..' in it"),
            ("mountpoint", "a/b", FileSystem, "'mountpoint' must be an absolute path, 'none', or 'legacy'"),
            ("mountpoint", &format!("/{long}"), FileSystem, "component of 'mountpoint' is too long"),
            ("keylocation", "prompt", FileSystem, "keylocation must be 'none' for unencrypted datasets"),
            (
                "dedup",
                "edonr",
                FileSystem,
                "'dedup' must be one of 'on | off | verify | sha256[,verify] | sha512[,verify] | skein[,verify] | \
                 edonr,verify | blake3[,verify]'",
            ),
            ("sharenfs", "on", FileSystem, "'sharenfs': sharing over NFS is not supported by this version"),
            ("sharesmb", "on", FileSystem, "'sharesmb': sharing over SMB is not supported by this version"),
            (
                "volthreading",
                "off",
                Volume,
                "'volthreading': a volume without threads is not supported by this version",
            ),
            (
                "context",
                "a:b:c:s0",
                FileSystem,
                "'context': mounting with SELinux contexts is not supported by this version",
            ),
            ("zoned_uid", "0", FileSystem, "invalid property 'zoned_uid'"),
        ] {
            assert_eq!(check(name, text, kind, false).unwrap_err().what(), why, "{name}={text}");
        }
    }

    #[test]
    fn normalization_and_utf8only_go_together() {
        let all = |pairs: &[(&str, &str)]| {
            let pairs: Vec<(String, String)> = pairs.iter().map(|(n, t)| (n.to_string(), t.to_string())).collect();
            check_all(&pairs, FileSystem)
        };
        let implied = |given: &[Given]| given.last().map(|given| (given.name.clone(), given.value.clone()));
        let given = all(&[("normalization", "formD")]).unwrap();
        assert_eq!(implied(&given), Some(("utf8only".into(), PropertyValue::Number(1))));
        let given = all(&[("utf8only", "off")]).unwrap();
        assert_eq!(implied(&given), Some(("normalization".into(), PropertyValue::Number(0))));
        let error = all(&[("normalization", "formD"), ("utf8only", "off")]).unwrap_err();
        assert_eq!(error.what(), "'utf8only' must be set 'on' if normalization chosen");
    }

    #[test]
    fn what_can_be_inherited() {
        assert_eq!(check_inherit("compress", FileSystem, false).unwrap(), Some(Property::Compression));
        assert_eq!(check_inherit("a:b", FileSystem, false).unwrap(), None);
        for (name, kind, received, why) in [
            ("used", FileSystem, false, "read-only property"),
            ("quota", FileSystem, false, "property cannot be inherited"),
            ("atime", Volume, false, "property does not apply to datasets of this type"),
            ("nonsense", FileSystem, false, "invalid property"),
        ] {
            assert_eq!(check_inherit(name, kind, received).unwrap_err().what(), why, "{name}");
        }
        assert!(check_inherit("quota", FileSystem, true).is_ok());
    }

    #[test]
    fn every_default_is_a_value_that_can_be_set() {
        for property in Property::all().filter(|property| !property.is_read_only() && property.is_shown()) {
            let info = property.info();
            if let ValueKind::Choice(default, _) = info.kind
                && let Some(name) = property.name_of(default)
            {
                let kind = if info.applies.has(FileSystem) { FileSystem } else { Volume };
                check(property.name(), name, kind, false).unwrap_or_else(|e| panic!("{}: {e}", property.name()));
            }
        }
    }
}
