//! Name-value lists as JSON.

use format::nvlist::{NvList, Value};
use serde_json::{Map, Value as Json, json};

/// A list as an object, in its own order.
pub fn of_list(list: &NvList) -> Json {
    let pairs = list.iter().map(|(name, value)| (name.to_owned(), of_value(value)));
    Json::Object(pairs.collect::<Map<String, Json>>())
}

fn of_value(value: &Value) -> Json {
    match value {
        Value::Flag => Json::Null,
        Value::Bool(v) => json!(v),
        Value::Byte(v) | Value::U8(v) => json!(v),
        Value::I8(v) => json!(v),
        Value::I16(v) => json!(v),
        Value::U16(v) => json!(v),
        Value::I32(v) => json!(v),
        Value::U32(v) => json!(v),
        Value::I64(v) | Value::Hrtime(v) => json!(v),
        Value::U64(v) => json!(v),
        Value::Double(v) => json!(v),
        Value::Str(v) => json!(v),
        Value::List(list) => of_list(list),
        Value::Lists(lists) => Json::Array(lists.iter().map(of_list).collect()),
        Value::Bytes(v) | Value::U8s(v) => json!(v),
        Value::Bools(v) => json!(v),
        Value::I8s(v) => json!(v),
        Value::I16s(v) => json!(v),
        Value::U16s(v) => json!(v),
        Value::I32s(v) => json!(v),
        Value::U32s(v) => json!(v),
        Value::I64s(v) => json!(v),
        Value::U64s(v) => json!(v),
        Value::Strs(v) => json!(v),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_lists() {
        let inner: NvList = [("type".to_owned(), Value::Str("disk".into()))].into_iter().collect();
        let list: NvList = [
            ("txg".to_owned(), Value::U64(u64::MAX)),
            ("flag".to_owned(), Value::Flag),
            ("children".to_owned(), Value::Lists(vec![inner])),
        ]
        .into_iter()
        .collect();
        let expect = json!({"txg": u64::MAX, "flag": null, "children": [{"type": "disk"}]});
        assert_eq!(of_list(&list), expect);
    }
}
