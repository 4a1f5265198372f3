//! The variables that scripts get of an event: each pair of it in capitals behind `ZEVENT_`, and some more.

use format::nvlist::{NvList, Value};
use protocol::words::time;
use vdev::VdevState;

/// The variables of an event.
pub(super) fn of(event: &NvList) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    let mut put = |name: &str, value: String| {
        let name = name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' });
        variables.push((format!("ZEVENT_{}", name.collect::<String>()), value));
    };
    for (name, value) in event.iter() {
        if let Some(text) = text_of(name, value) {
            put(name, text);
        }
        match (name, value) {
            ("vdev_state" | "vdev_laststate", Value::U64(state)) => {
                put(&format!("{name}_str"), VdevState::word_of(*state).to_owned())
            }
            ("pool_state", Value::U64(state)) => put("pool_state_str", pool_state_name(*state).to_owned()),
            ("time", Value::I64s(time)) => {
                let [seconds, nanoseconds] = [0, 1].map(|at| time.get(at).copied().unwrap_or(0));
                put("time_secs", seconds.to_string());
                put("time_nsecs", nanoseconds.to_string());
                put("time_string", time::local(seconds.cast_unsigned(), c"%Y-%m-%d %H:%M:%S%z"));
            }
            ("class", Value::Str(class)) => put("subclass", subclass(class).to_owned()),
            _ => {}
        }
    }
    variables
}

/// What is behind `*.fs.zfs.` in a class.
pub(super) fn subclass(class: &str) -> &str {
    class.splitn(4, '.').nth(3).unwrap_or(class)
}

/// A value as text; `None` if it has none. Guids are in hexadecimal digits.
fn text_of(name: &str, value: &Value) -> Option<String> {
    fn list<T: ToString>(items: &[T]) -> String {
        items.iter().map(|item| item.to_string() + " ").collect()
    }
    let number = |number: &u64| match name.ends_with("_guid") || name.ends_with("_guids") {
        true => format!("0x{number:016X}"),
        false => number.to_string(),
    };
    Some(match value {
        Value::Flag => "1".to_owned(),
        Value::Bool(is_set) => u8::from(*is_set).to_string(),
        Value::Byte(number) | Value::U8(number) => number.to_string(),
        Value::I8(number) => number.to_string(),
        Value::I16(number) => number.to_string(),
        Value::U16(number) => number.to_string(),
        Value::I32(number) => number.to_string(),
        Value::U32(number) => number.to_string(),
        Value::I64(number) | Value::Hrtime(number) => number.to_string(),
        Value::Double(number) => number.to_string(),
        Value::U64(n) => number(n),
        // no variable can have it
        Value::Str(text) => text.replace('\0', ""),
        Value::I8s(numbers) => list(numbers),
        Value::U8s(numbers) => list(numbers),
        Value::I16s(numbers) => list(numbers),
        Value::U16s(numbers) => list(numbers),
        Value::I32s(numbers) => list(numbers),
        Value::U32s(numbers) => list(numbers),
        Value::I64s(numbers) => list(numbers),
        Value::U64s(numbers) => numbers.iter().map(|n| number(n) + " ").collect(),
        Value::Strs(texts) => list(texts).replace('\0', ""),
        Value::List(_) | Value::Lists(_) | Value::Bytes(_) | Value::Bools(_) => return None,
    })
}

fn pool_state_name(state: u64) -> &'static str {
    match state {
        0 => "ACTIVE",
        1 => "EXPORTED",
        2 => "DESTROYED",
        _ => "UNKNOWN",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_become_variables() {
        let mut event = NvList::new();
        event.set("class", Value::Str("ereport.fs.zfs.vdev.open_failed".into()));
        event.set("pool", Value::Str("tank".into()));
        event.set("vdev_guid", Value::U64(0xab));
        event.set("vdev_spare_guids", Value::U64s(vec![1, 2]));
        event.set("vdev_state", Value::U64(5));
        event.set("zio_err", Value::I32(-5));
        event.set("time", Value::I64s(vec![0, 7]));
        event.set("detector", Value::List(NvList::new()));
        let variables = of(&event);
        let value = |name: &str| variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        for (name, expect) in [
            ("ZEVENT_SUBCLASS", "vdev.open_failed"),
            ("ZEVENT_POOL", "tank"),
            ("ZEVENT_VDEV_GUID", "0x00000000000000AB"),
            ("ZEVENT_VDEV_SPARE_GUIDS", "0x0000000000000001 0x0000000000000002 "),
            ("ZEVENT_VDEV_STATE", "5"),
            ("ZEVENT_VDEV_STATE_STR", "FAULTED"),
            ("ZEVENT_ZIO_ERR", "-5"),
            ("ZEVENT_TIME", "0 7 "),
            ("ZEVENT_TIME_NSECS", "7"),
        ] {
            assert_eq!(value(name), Some(expect), "{name}");
        }
        assert!(value("ZEVENT_DETECTOR").is_none() && value("ZEVENT_TIME_STRING").unwrap().len() == 24);
        assert_eq!(subclass("odd"), "odd");
    }
}
