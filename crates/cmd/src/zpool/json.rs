//! What the JSON of all commands has in common: the head, the keys of pools and vdevs, and numbers as
//! text for people, as exact text, or as numbers.
//!
//! Keys stand in the order in which OpenZFS 2.3 writes them.

use protocol::pool_properties::PoolPropertySource;
use protocol::pool_report::*;
use protocol::words::nicenum::{nicebytes, nicenum};
use protocol::words::time;
use serde_json::{Map, Value, json};

use super::names::NameStyle;
use super::pools::Timestamp;

/// How numbers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberStyle {
    /// `"1.50K"`.
    Nice,
    /// `"1536"`.
    Exact,
    /// `1536`.
    Int,
}

impl NumberStyle {
    /// From flags `--json-int` and `-p`.
    pub fn of(int: bool, literal: bool) -> NumberStyle {
        match (int, literal) {
            (true, _) => NumberStyle::Int,
            (false, true) => NumberStyle::Exact,
            (false, false) => NumberStyle::Nice,
        }
    }

    /// A number of things.
    pub fn count(self, number: u64) -> Value {
        self.value(number, nicenum)
    }

    /// A number of bytes.
    pub fn bytes(self, number: u64) -> Value {
        self.value(number, nicebytes)
    }

    /// A point in time, in seconds since 1970.
    pub fn time(self, seconds: u64) -> Value {
        self.value(seconds, |seconds| if seconds == 0 { "-".to_owned() } else { time::ctime(seconds) })
    }

    /// A length of time.
    pub fn millis(self, ms: u64) -> Value {
        self.value(ms.saturating_mul(1_000_000), |ns| match ns / 1_000_000 {
            0 => "-".to_owned(),
            ms @ 1..=999 => format!("{ms}ms"),
            ms => format!("{}s", ms / 1000),
        })
    }

    /// A number that is never made nice.
    pub fn exact(self, number: u64) -> Value {
        if self == NumberStyle::Int { number.into() } else { number.to_string().into() }
    }

    fn value(self, number: u64, nice: impl Fn(u64) -> String) -> Value {
        if self == NumberStyle::Nice { nice(number).into() } else { self.exact(number) }
    }
}

/// The outermost object: version of the form, and the time if it is wanted.
pub fn head(command: &str, timestamp: Timestamp, int: bool) -> Map<String, Value> {
    let mut head = Map::new();
    let version = json!({ "command": format!("zpool {command}"), "vers_major": 0, "vers_minor": 1 });
    head.insert("output_version".into(), version);
    if let Some(text) = timestamp.text() {
        head.insert("time".into(), if int { time::now().into() } else { text.into() });
    }
    head
}

/// The first keys of a pool.
pub fn pool(pool: &PoolReport, with_type: bool, int: bool) -> Map<String, Value> {
    let numbers = NumberStyle::of(int, true);
    let mut map = Map::new();
    map.insert("name".into(), pool.name.clone().into());
    if with_type {
        map.insert("type".into(), "POOL".into());
    }
    map.insert("state".into(), pool.word().into());
    for (key, number) in [("pool_guid", pool.guid.get()), ("txg", pool.txg.get())] {
        if number != 0 {
            map.insert(key.into(), numbers.exact(number));
        }
    }
    map.insert("spa_version".into(), numbers.exact(protocol::pool_properties::VERSION));
    map.insert("zpl_version".into(), numbers.exact(ZPL_VERSION));
    map
}

/// The newest version of file systems.
const ZPL_VERSION: u64 = 5;

/// The key of a pool in an object of pools.
pub fn pool_key(pool: &PoolReport, by_guid: bool) -> String {
    if by_guid { pool.guid.to_string() } else { pool.name.clone() }
}

/// The first keys of a vdev; `class` is what it is set aside for.
pub fn vdev(vdev: &VdevReport, pool: &str, style: NameStyle, class: &str, int: bool) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("name".into(), style.name(vdev, pool).into());
    map.insert("vdev_type".into(), vdev.kind.clone().into());
    if vdev.guid.is_some() {
        map.insert("guid".into(), NumberStyle::of(int, true).exact(vdev.guid.get()));
    }
    for (key, text) in [("path", &vdev.path), ("phys_path", &vdev.phys_path), ("devid", &vdev.devid)] {
        if let Some(text) = text {
            map.insert(key.into(), text.clone().into());
        }
    }
    map.insert("class".into(), if vdev.is_hole() { "hole" } else { class }.into());
    map.insert("state".into(), vdev.state.json_name().into());
    map
}

/// What a top-level vdev is set aside for.
pub fn class_of(top: &VdevReport) -> &str {
    match &top.bias {
        _ if top.is_log => "log",
        Some(bias) => bias,
        None => "normal",
    }
}

/// A property.
pub fn property(text: &str, source: PoolPropertySource, int: bool) -> Value {
    let number = text.parse::<u64>().ok().filter(|_| int && text.bytes().all(|b| b.is_ascii_digit()));
    let value = number.map_or_else(|| Value::from(text), Value::from);
    json!({ "value": value, "source": { "type": source.json_name(), "data": "-" } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(NumberStyle::of(false, false).bytes(1536), json!("1.50K"));
        assert_eq!(NumberStyle::of(false, true).bytes(1536), json!("1536"));
        assert_eq!(NumberStyle::of(true, false).bytes(1536), json!(1536));
        assert_eq!(NumberStyle::Nice.time(0), json!("-"));
        let text = property("12", PoolPropertySource::Local, false).to_string();
        assert_eq!(text, r#"{"value":"12","source":{"type":"LOCAL","data":"-"}}"#);
        assert_eq!(property("12", PoolPropertySource::None, true)["value"], json!(12));
        assert_eq!(property("1.00", PoolPropertySource::None, true)["value"], json!("1.00"));
    }

    #[test]
    fn heads() {
        let text = Value::Object(head("list", Timestamp::None, false)).to_string();
        assert_eq!(text, r#"{"output_version":{"command":"zpool list","vers_major":0,"vers_minor":1}}"#);
    }
}
