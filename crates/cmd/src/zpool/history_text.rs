//! Records of the history as text.
//!
//! A record is a list of names and values. Which names there are tells its kind: a command, an event
//! (by a number in old pools, by a name since), or a request to the kernel with what went in and out.

use base::Shown;
use format::nvlist::{NvList, Value};
use protocol::words::time;

/// How much is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// The user and the host.
    pub long: bool,
    /// Events beside commands.
    pub internal: bool,
}

/// Events by their old numbers.
const EVENTS: [&str; 41] = [
    "invalid event",
    "pool create",
    "vdev add",
    "pool remove",
    "pool destroy",
    "pool export",
    "pool import",
    "vdev attach",
    "vdev replace",
    "vdev detach",
    "vdev online",
    "vdev offline",
    "vdev upgrade",
    "pool clear",
    "pool scrub",
    "pool property set",
    "create",
    "clone",
    "destroy",
    "destroy_begin_sync",
    "inherit",
    "property set",
    "quota set",
    "permission update",
    "permission remove",
    "permission who remove",
    "promote",
    "receive",
    "rename",
    "reservation set",
    "replay_inc_sync",
    "replay_full_sync",
    "rollback",
    "snapshot",
    "filesystem version upgrade",
    "refquota set",
    "refreservation set",
    "pool scrub done",
    "user hold",
    "user release",
    "pool split",
];

/// The lines of a record; empty if it is not to be shown.
pub fn record_text(record: &NvList, detail: Detail) -> String {
    let mut when = record.opt_u64("history time").map_or(String::new(), |s| time::local(s, c"%F.%T"));
    if let Some(ns) = signed(record, "elapsed_ns") {
        when += &format!(" ({}ms)", ns / 1_000_000);
    }
    let mut text = match body(record, &when, detail) {
        Some(text) => text,
        None => return String::new(),
    };
    if detail.long {
        text += &who(record);
    }
    text + "\n"
}

fn body(record: &NvList, when: &str, detail: Detail) -> Option<String> {
    if let Some(command) = record.opt_str("history command") {
        return Some(format!("{when} {}", Shown(command)));
    }
    if !detail.internal {
        return None;
    }
    let txg = record.opt_u64("history txg").unwrap_or(0);
    let about = record.opt_str("history internal str").unwrap_or("");
    if let Some(number) = record.opt_u64("history internal event") {
        let event = usize::try_from(number).ok().and_then(|number| EVENTS.get(number));
        return Some(match event {
            Some(event) => format!("{when} [internal {event} txg:{txg}] {about}"),
            None => unrecognized(record, when),
        });
    }
    if let Some(name) = record.opt_str("internal_name") {
        let dataset = record.opt_str("dsname").map(|dataset| {
            let id = record.opt_u64("dsid").unwrap_or(0);
            format!(" {dataset} ({id})")
        });
        return Some(format!("{when} [txg:{txg}] {name}{} {about}", dataset.unwrap_or_default()));
    }
    let Some(request) = record.opt_str("ioctl") else { return Some(unrecognized(record, when)) };
    let mut text = format!("{when} ioctl {request}\n");
    for (name, title) in [("in_nvl", "input"), ("out_nvl", "output")] {
        if let Some(list) = record.opt_list(name) {
            text += &format!("    {title}:\n");
            dump(list, 8, &mut text);
        }
    }
    if let Some(bytes) = signed(record, "out_size") {
        text += &format!("    output nvlist omitted; original size: {}KB\n", bytes / 1024);
    }
    if let Some(errno) = signed(record, "errno") {
        text += &format!("    errno: {errno}\n");
    }
    Some(text)
}

fn unrecognized(record: &NvList, when: &str) -> String {
    let mut text = format!("{when} unrecognized record:\n");
    dump(record, 4, &mut text);
    text
}

fn who(record: &NvList) -> String {
    let mut text = " [".to_owned();
    if let Some(uid) = record.opt_u64("history who") {
        text += &format!("user {} ", uid as u32 as i32);
        let user = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid as u32)).ok().flatten();
        text += &user.map_or(String::new(), |user| format!("({}) ", user.name));
    }
    if let Some(host) = record.opt_str("history hostname") {
        text += &format!("on {host}");
    }
    if let Some(zone) = record.opt_str("history zone") {
        text += &format!(":{zone}");
    }
    text + "]"
}

fn signed(record: &NvList, name: &str) -> Option<i64> {
    match record.get(name)? {
        Value::I64(number) => Some(*number),
        Value::I32(number) => Some((*number).into()),
        _ => record.opt_u64(name).map(|number| number as i64),
    }
}

/// A list in lines, each `indent` deep; lists in it are deeper.
fn dump(list: &NvList, indent: usize, out: &mut String) {
    let line = |out: &mut String, name: &str, value: &str| *out += &format!("{:indent$}{name}{value}\n", "");
    for (name, value) in list.iter() {
        match value {
            Value::Flag => line(out, name, ""),
            Value::List(list) => {
                line(out, name, ":");
                dump(list, indent + 4, out);
            }
            Value::Lists(lists) => {
                for (i, list) in lists.iter().enumerate() {
                    line(out, name, &format!("[{i}]:"));
                    dump(list, indent + 4, out);
                }
            }
            value => match array(value) {
                Some(items) => {
                    items.iter().enumerate().for_each(|(i, item)| line(out, name, &format!("[{i}]: {item}")));
                }
                None => line(out, name, &format!(": {}", scalar(value))),
            },
        }
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::Bool(value) => value.to_string(),
        Value::Byte(n) | Value::U8(n) => n.to_string(),
        Value::I8(n) => n.to_string(),
        Value::I16(n) => n.to_string(),
        Value::U16(n) => n.to_string(),
        Value::I32(n) => n.to_string(),
        Value::U32(n) => n.to_string(),
        Value::I64(n) | Value::Hrtime(n) => n.to_string(),
        Value::U64(n) => n.to_string(),
        Value::Double(n) => n.to_string(),
        Value::Str(text) => format!("'{text}'"),
        _ => String::new(),
    }
}

fn array(value: &Value) -> Option<Vec<String>> {
    fn texts<T: ToString>(items: &[T]) -> Vec<String> {
        items.iter().map(T::to_string).collect()
    }
    Some(match value {
        Value::Bytes(items) | Value::U8s(items) => texts(items),
        Value::Bools(items) => texts(items),
        Value::I8s(items) => texts(items),
        Value::I16s(items) => texts(items),
        Value::U16s(items) => texts(items),
        Value::I32s(items) => texts(items),
        Value::U32s(items) => texts(items),
        Value::I64s(items) => texts(items),
        Value::U64s(items) => texts(items),
        Value::Strs(items) => items.iter().map(|text| format!("'{text}'")).collect(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(pairs: &[(&str, Value)]) -> NvList {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    }

    fn check(pairs: &[(&str, Value)], detail: Detail, expect: &str) {
        assert_eq!(record_text(&list(pairs), detail), expect);
    }

    const ALL: Detail = Detail { long: true, internal: true };

    #[test]
    fn kinds_of_records() {
        let text = |text: &str| Value::Str(text.to_owned());
        let command = [("history command", text("zpool create tank")), ("history hostname", text("host"))];
        check(&command, Detail::default(), " zpool create tank\n");
        check(&command, ALL, " zpool create tank [on host]\n");
        let event = [
            ("internal_name", text("set")),
            ("history txg", Value::U64(4)),
            ("dsname", text("tank")),
            ("dsid", Value::U64(54)),
            ("history internal str", text("atime=0")),
        ];
        check(&event, Detail::default(), "");
        check(&event, Detail { internal: true, long: false }, " [txg:4] set tank (54) atime=0\n");
        let old = [("history internal event", Value::U64(21)), ("history internal str", text("x=1"))];
        check(&old, Detail { internal: true, long: false }, " [internal property set txg:0] x=1\n");
        check(
            &[("history internal event", Value::U64(99))],
            ALL,
            " unrecognized record:\n    history internal event: 99\n []\n",
        );
    }

    #[test]
    fn requests() {
        let input = list(&[
            ("type", Value::I32(2)),
            ("snaps", Value::List(list(&[("tank@a", Value::Flag)]))),
            ("names", Value::Strs(vec!["a".into(), "b".into()])),
            ("lists", Value::Lists(vec![list(&[("on", Value::Bool(true))])])),
        ]);
        let record = [
            ("elapsed_ns", Value::I64(84_999_999)),
            ("ioctl", Value::Str("create".into())),
            ("in_nvl", Value::List(input)),
            ("errno", Value::I64(-1)),
        ];
        let expect = " (84ms) ioctl create
    input:
        type: 2
        snaps:
            tank@a
        names[0]: 'a'
        names[1]: 'b'
        lists[0]:
            on: true
    errno: -1
 []
";
        check(&record, ALL, expect);
    }
}
