//! JSON output, as OpenZFS 2.3 has it.
//!
//! ```text
//!   {"output_version":{"command":"zfs list","vers_major":0,"vers_minor":1},
//!    "datasets":{"tank/a":{"name":"tank/a","type":"FILESYSTEM","pool":"tank","createtxg":"7",
//!                          "properties":{"used":{"value":"24K","source":{"type":"NONE","data":"-"}}}}}}
//! ```

use protocol::datasets::{Cell, DatasetRow, DatasetType, Mounted, ValueSource};
use serde_json::{Map, Value, json};

use super::client::pool_of;
use super::columns::DatasetColumn;
use crate::version;

/// How values are written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Style {
    /// Exact numbers.
    pub literal: bool,
    /// Numbers as numbers, and not as text.
    pub as_int: bool,
}

/// The properties of one dataset, to be filled.
pub(super) struct DatasetJson<'a> {
    row: &'a DatasetRow,
    properties: Map<String, Value>,
    style: Style,
}

impl<'a> DatasetJson<'a> {
    /// Without properties.
    pub(super) fn new(row: &'a DatasetRow, style: Style) -> DatasetJson<'a> {
        DatasetJson { row, properties: Map::new(), style }
    }

    /// Adds a property; one without a value is `-`.
    pub(super) fn add(&mut self, column: &DatasetColumn, cell: Option<&Cell>) {
        let shown = column.shown(cell, self.style.literal);
        let (text, source) = shown.unwrap_or_else(|| ("-".to_owned(), &ValueSource::None));
        let received = || {
            let value = cell.and_then(|cell| cell.received.as_ref())?;
            column.text(value, self.style.literal)
        };
        let (kind, data) = match source {
            ValueSource::None => ("NONE", "-".to_owned()),
            ValueSource::Default => ("DEFAULT", "-".to_owned()),
            ValueSource::Local => ("LOCAL", "-".to_owned()),
            ValueSource::Temporary => ("TEMPORARY", "-".to_owned()),
            ValueSource::Inherited(from) => ("INHERITED", from.clone()),
            ValueSource::Received => ("RECEIVED", received().unwrap_or_else(|| "-".to_owned())),
        };
        let value = json!({ "value": self.value(text), "source": { "type": kind, "data": data } });
        self.properties.insert(column.name().to_owned(), value);
    }

    /// Whether there is no property.
    pub(super) fn is_empty(&self) -> bool {
        self.properties.is_empty()
    }

    fn value(&self, text: String) -> Value {
        match text.parse::<u64>() {
            Ok(number) if self.style.as_int => number.into(),
            _ => text.into(),
        }
    }

    fn finish(self) -> Value {
        let row = self.row;
        let kind = match row.kind {
            DatasetType::FileSystem => "FILESYSTEM",
            DatasetType::Volume => "VOLUME",
            DatasetType::Snapshot => "SNAPSHOT",
            DatasetType::Bookmark => "BOOKMARK",
        };
        let mut item = Map::new();
        item.insert("name".to_owned(), row.name.clone().into());
        item.insert("type".to_owned(), kind.into());
        item.insert("pool".to_owned(), pool_of(&row.name).into());
        item.insert("createtxg".to_owned(), self.value(row.createtxg.to_string()));
        if let (DatasetType::Snapshot, Some((dataset, snapshot))) = (row.kind, row.name.split_once('@')) {
            item.insert("dataset".to_owned(), dataset.into());
            item.insert("snapshot_name".to_owned(), snapshot.into());
        }
        item.insert("properties".to_owned(), self.properties.into());
        item.into()
    }
}

/// The whole output of `zfs COMMAND`, with its newline.
pub(super) fn datasets<'a>(command: &str, datasets: impl IntoIterator<Item = DatasetJson<'a>>) -> String {
    let datasets: Map<String, Value> =
        datasets.into_iter().map(|dataset| (dataset.row.name.clone(), dataset.finish())).collect();
    whole(command, "datasets", datasets.into())
}

/// The output of `zfs mount -j`: nothing, if nothing is mounted.
pub(super) fn mounts(mounts: &[Mounted]) -> String {
    let item = |mounted: &Mounted| json!({ "filesystem": mounted.dataset, "mountpoint": mounted.path });
    let datasets: Map<String, Value> = mounts.iter().map(|mounted| (mounted.dataset.clone(), item(mounted))).collect();
    if datasets.is_empty() { String::new() } else { whole("mount", "datasets", datasets.into()) }
}

/// The output of `zfs version -j`.
pub(super) fn version() -> String {
    whole("version", "zfs_version", json!({ "userland": version::USERLAND, "kernel": version::KERNEL }))
}

fn whole(command: &str, name: &str, value: Value) -> String {
    let version = json!({ "command": format!("zfs {command}"), "vers_major": 0, "vers_minor": 1 });
    let mut whole = Map::new();
    whole.insert("output_version".to_owned(), version);
    whole.insert(name.to_owned(), value);
    format!("{}\n", Value::from(whole))
}

#[cfg(test)]
mod tests {
    use format::ids::Txg;

    use super::*;
    use dsl::Property;
    use protocol::datasets::CellValue;

    #[test]
    fn a_snapshot() {
        let cell = Cell { value: CellValue::Number(512), source: ValueSource::Inherited("t".into()), received: None };
        let row = DatasetRow {
            name: "t/a@s".into(),
            kind: DatasetType::Snapshot,
            createtxg: Txg::new(7),
            cells: vec![Some(cell)],
            user: Vec::new(),
        };
        let text = |style| {
            let mut dataset = DatasetJson::new(&row, style);
            dataset.add(&DatasetColumn::Native(Property::Used), row.cells[0].as_ref());
            dataset.add(&DatasetColumn::User("a:b".into()), None);
            datasets("list", [dataset])
        };
        let head = r#"{"output_version":{"command":"zfs list","vers_major":0,"vers_minor":1},"datasets":{"t/a@s":{"#;
        let tail =
            r#","source":{"type":"INHERITED","data":"t"}},"a:b":{"value":"-","source":{"type":"NONE","data":"-"}}}}}}"#;
        let middle =
            r#""name":"t/a@s","type":"SNAPSHOT","pool":"t","createtxg":"7","dataset":"t/a","snapshot_name":"s","#;
        let expect = format!("{head}{middle}\"properties\":{{\"used\":{{\"value\":\"512B\"{tail}\n");
        assert_eq!(text(Style::default()), expect);
        let exact = text(Style { literal: true, as_int: true });
        assert!(exact.contains(r#""createtxg":7,"#) && exact.contains(r#""used":{"value":512,"#), "{exact}");
    }
}
