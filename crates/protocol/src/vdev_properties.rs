//! The table of properties of vdevs: name, and how its value comes about; as OpenZFS has them (vdevprops(7)).

use crate::pool_properties::{PoolPropertySource, is_user_name};
use crate::pool_report::{PoolReport, PropertyValue, VdevReport};
use crate::words::nicenum::{nicebytes, nicenum};

/// Longest comment, or value of a property that users make up, in bytes.
const TEXT_BYTES_MAX: usize = 8192;
/// Longest name of such a property.
const NAME_BYTES_MAX: usize = 256;

/// A property of the table.
pub struct VdevProperty {
    /// Name.
    pub name: &'static str,
    value: VdevValue,
}

/// How vdevs are called.
type NameOf<'a> = &'a dyn Fn(&VdevReport) -> String;

/// How its value comes about.
enum VdevValue {
    /// A number, as it is.
    Number(fn(&VdevReport) -> u64),
    /// A count.
    Count(fn(&VdevReport) -> u64),
    /// Bytes; `None` is 0.
    Bytes(fn(&VdevReport) -> Option<u64>),
    /// Of a hundred; `None` is a dash.
    Percent(fn(&VdevReport) -> Option<u64>),
    /// A word.
    Text(fn(&VdevReport) -> Option<String>),
    /// The vdev above, or those below; by the name of each.
    Family(fn(&VdevReport, &PoolReport, NameOf<'_>) -> String),
    /// What is set; a number.
    Set,
    /// What is set; a text.
    SetText,
    /// What is set, on or off; of raidz and draid.
    SetSwitch,
    /// The same, of devices, and on unless it is set off.
    SetOff,
    /// On or off, and not stored.
    Switch(fn(&VdevReport) -> Option<bool>),
}

use VdevValue::{Bytes, Count, Family, Number, Percent, Set, SetOff, SetSwitch, SetText, Switch, Text};

/// All properties that are known, in OpenZFS's order.
#[rustfmt::skip]
pub const VDEV_PROPERTIES: &[VdevProperty] = &[
    row("capacity", Percent(|v| v.space.as_ref().map(|space| space.allocated_bytes * 100 / space.size_bytes.max(1)))),
    row("state", Text(|v| Some(v.word().into()))),
    row("guid", Number(|v| v.guid.get())),
    row("asize", Bytes(|v| v.space.as_ref().map(|space| space.size_bytes))),
    row("psize", Bytes(|v| (v.device_bytes > 0).then_some(v.device_bytes))),
    row("ashift", Number(|v| v.ashift)),
    row("size", Bytes(|v| v.space.as_ref().map(|space| space.size_bytes))),
    row("free", Bytes(|v| v.space.as_ref().map(|space| space.size_bytes.saturating_sub(space.allocated_bytes)))),
    row("allocated", Bytes(|v| v.space.as_ref().map(|space| space.allocated_bytes))),
    row("expandsize", Bytes(|v| v.space.as_ref().map(|space| space.expandable_bytes).filter(|bytes| *bytes > 0))),
    row("fragmentation", Percent(|v| v.space.as_ref().and_then(|space| space.fragmentation))),
    row("parity", Number(|v| v.nparity)),
    row("path", Text(|v| v.path.clone())),
    row("devid", Text(|v| v.devid.clone())),
    row("physpath", Text(|v| v.phys_path.clone())),
    row("parent", Family(parent)),
    row("children", Family(|v, _, name| v.children.iter().map(name).collect::<Vec<_>>().join(","))),
    row("numchildren", Number(|v| v.children.len() as u64)),
    row("read_errors", Count(|v| v.errors[0])),
    row("write_errors", Count(|v| v.errors[1])),
    row("checksum_errors", Count(|v| v.errors[2])),
    row("slow_ios", Count(|v| v.slow_ios)),
    row("read_ops", Count(|v| v.operations[0])),
    row("write_ops", Count(|v| v.operations[1])),
    row("read_bytes", Bytes(|v| Some(v.bytes[0]))),
    row("write_bytes", Bytes(|v| Some(v.bytes[1]))),
    row("removing", Text(|v| Some(on_or_off(v.is_removing).to_owned()))),
    row("comment", SetText),
    row("checksum_n", Set),
    row("checksum_t", Set),
    row("io_n", Set),
    row("io_t", Set),
    row("slow_io_n", Set),
    row("slow_io_t", Set),
    row("slow_io_events", SetOff),
    row("sit_out", Switch(|v| v.sits_out)),
    row("autosit", SetSwitch),
];

const fn row(name: &'static str, value: VdevValue) -> VdevProperty {
    VdevProperty { name, value }
}

fn parent(vdev: &VdevReport, pool: &PoolReport, name: NameOf<'_>) -> String {
    let is_above = |above: &&VdevReport| above.children.iter().any(|child| child.guid == vdev.guid);
    pool.root.all().into_iter().find(is_above).map_or("-".to_owned(), name)
}

impl VdevProperty {
    /// The property of that name.
    pub fn find(name: &str) -> Option<&'static VdevProperty> {
        VDEV_PROPERTIES.iter().find(|property| property.name == name)
    }

    /// Its value for a vdev of a pool, and its source; `name` says how vdevs are called. Numbers are as they are if
    /// `literal`.
    pub fn text(
        &self,
        vdev: &VdevReport,
        pool: &PoolReport,
        name: NameOf<'_>,
        literal: bool,
    ) -> (String, PoolPropertySource) {
        let dash = || "-".to_owned();
        let number = |number: u64| if literal { number.to_string() } else { nicenum(number) };
        let bytes = |number: u64| if literal { number.to_string() } else { nicebytes(number) };
        let shown = match self.value {
            Number(of) => of(vdev).to_string(),
            Count(of) => number(of(vdev)),
            Bytes(of) => of(vdev).map_or_else(dash, bytes),
            Percent(of) => of(vdev).map_or_else(dash, |percent| match literal {
                true => percent.to_string(),
                false => format!("{percent}%"),
            }),
            Text(of) => of(vdev).unwrap_or_else(dash),
            Family(of) => Some(of(vdev, pool, name)).filter(|text| !text.is_empty()).unwrap_or_else(dash),
            Switch(of) => of(vdev).map_or_else(dash, |is_on| on_or_off(is_on).to_owned()),
            SetSwitch if !matches!(vdev.kind.as_str(), "raidz" | "draid") => dash(),
            SetSwitch => {
                let (number, source) = stored(vdev, self.name);
                return (on_or_off(number == "1").to_owned(), source);
            }
            SetOff if !vdev.children.is_empty() => dash(),
            SetOff => {
                let (number, source) = stored(vdev, self.name);
                return (on_or_off(number != "0").to_owned(), source);
            }
            Set | SetText => return stored(vdev, self.name),
        };
        (shown, PoolPropertySource::None)
    }
}

fn on_or_off(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

/// What is stored under a name: a property of the table, or one that a user made up.
pub fn stored(vdev: &VdevReport, name: &str) -> (String, PoolPropertySource) {
    match vdev.stored.iter().find(|(stored, _)| stored == name) {
        Some((_, PropertyValue::Number(number))) => (number.to_string(), PoolPropertySource::Local),
        Some((_, PropertyValue::Text(text))) => (text.clone(), PoolPropertySource::Local),
        None => ("-".to_owned(), PoolPropertySource::Default),
    }
}

/// What a property is to be stored as; `None` takes it away. Errors: why it cannot have that value.
pub fn to_store(name: &str, value: &str) -> Result<Option<PropertyValue>, String> {
    let Some(property) = VdevProperty::find(name) else {
        return match is_user_name(name) {
            true if name.len() > NAME_BYTES_MAX => Err(format!("property name '{name}' is too long")),
            true if value.len() >= TEXT_BYTES_MAX => Err(format!("property value '{value}' is too long")),
            true => Ok((!value.is_empty()).then(|| PropertyValue::Text(value.to_owned()))),
            false => Err(format!("invalid property '{name}'")),
        };
    };
    match property.value {
        Set if value == "none" => Ok(None),
        Set => match value.parse() {
            // the value that stands for none
            Ok(u64::MAX) => Ok(None),
            Ok(number) => Ok(Some(PropertyValue::Number(number))),
            Err(_) => Err(format!("bad numeric value '{value}'")),
        },
        SetSwitch | SetOff | Switch(_) => match value {
            "on" => Ok(Some(PropertyValue::Number(1))),
            "off" => Ok(Some(PropertyValue::Number(0))),
            _ => Err(format!("'{name}' must be one of 'on | off'")),
        },
        SetText if value.len() >= TEXT_BYTES_MAX => Err(format!("'{name}' is too long")),
        SetText => Ok((!value.is_empty()).then(|| PropertyValue::Text(value.to_owned()))),
        _ if name == "path" => Err("this version of Cenote does not change paths".to_owned()),
        _ => Err(format!("'{name}' is readonly")),
    }
}

#[cfg(test)]
mod tests {
    use format::ids::Guid;

    use super::*;

    #[test]
    fn values() {
        let number = |number| Ok(Some(PropertyValue::Number(number)));
        assert_eq!(to_store("io_n", "3"), number(3));
        assert_eq!(to_store("checksum_t", "0"), number(0));
        assert_eq!((to_store("io_n", "none"), to_store("io_n", "18446744073709551615")), (Ok(None), Ok(None)));
        assert_eq!(to_store("my:note", "a"), Ok(Some(PropertyValue::Text("a".into()))));
        assert_eq!(to_store("my:note", ""), Ok(None));
        for (name, value, why) in [
            ("io_n", "x", "bad numeric value 'x'"),
            ("io_n", "-1", "bad numeric value '-1'"),
            ("state", "online", "'state' is readonly"),
            ("nope", "1", "invalid property 'nope'"),
        ] {
            assert_eq!(to_store(name, value), Err(why.to_owned()));
        }
    }

    #[test]
    fn texts() {
        let leaf = VdevReport {
            kind: "disk".into(),
            guid: Guid::new(3),
            errors: [1, 0, 2048],
            stored: vec![("io_n".into(), PropertyValue::Number(5))],
            ..VdevReport::default()
        };
        let root = VdevReport { guid: Guid::new(1), children: vec![leaf.clone()], ..VdevReport::default() };
        let pool = PoolReport { root, ..PoolReport::default() };
        let name = |vdev: &VdevReport| vdev.guid.to_string();
        let text = |property, literal| VdevProperty::find(property).unwrap().text(&leaf, &pool, &name, literal);
        assert_eq!(text("io_n", false), ("5".into(), PoolPropertySource::Local));
        assert_eq!(text("io_t", false), ("-".into(), PoolPropertySource::Default));
        assert_eq!(text("checksum_errors", false).0, "2K");
        assert_eq!(text("checksum_errors", true).0, "2048");
        assert_eq!((text("parent", true).0, text("children", true).0), ("1".into(), "-".into()));
    }
}
