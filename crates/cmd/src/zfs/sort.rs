//! The order of lists: by properties, and then by name.
//!
//! A property that does not apply to a dataset, or a text that it does not have, puts it at the end,
//! whichever way round the order is.

use std::cmp::Ordering;

use dsl::property::ValueKind;
use protocol::datasets::{Cell, CellValue, DatasetRow};

use super::client::by_name;
use super::columns::DatasetColumn;

/// A property to sort by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SortKey {
    /// The property.
    pub column: DatasetColumn,
    /// Greatest first.
    pub reverse: bool,
}

/// What one row is sorted by.
enum Rank {
    Number(u64),
    Text(String),
}

/// Sorts rows; the cells of `keys` are those from index `first` on.
pub(super) fn sort(rows: &mut [DatasetRow], keys: &[SortKey], first: usize) {
    rows.sort_by(|a, b| compare(a, b, keys, first));
}

fn compare(a: &DatasetRow, b: &DatasetRow, keys: &[SortKey], first: usize) -> Ordering {
    for (i, key) in keys.iter().enumerate() {
        let order = match (rank(a, key, first + i), rank(b, key, first + i)) {
            (None, None) => continue,
            (None, Some(_)) => return Ordering::Greater,
            (Some(_), None) => return Ordering::Less,
            (Some(Rank::Number(a)), Some(Rank::Number(b))) => a.cmp(&b),
            (Some(a), Some(b)) => a.into_text().cmp(&b.into_text()),
        };
        match order {
            Ordering::Equal => {}
            order if key.reverse => return order.reverse(),
            order => return order,
        }
    }
    by_name(a, b)
}

impl Rank {
    fn into_text(self) -> String {
        match self {
            Rank::Number(number) => number.to_string(),
            Rank::Text(text) => text,
        }
    }
}

fn rank(row: &DatasetRow, key: &SortKey, index: usize) -> Option<Rank> {
    let cell: Option<&Cell> = row.cells.get(index).and_then(Option::as_ref);
    let is_text = match &key.column {
        DatasetColumn::Native(property) => matches!(property.info().kind, ValueKind::Text(_)),
        DatasetColumn::User(_) => true,
        DatasetColumn::Account(_) | DatasetColumn::Written(_) => false,
    };
    if is_text {
        return Some(Rank::Text(key.column.text(&cell?.value, true)?));
    }
    if !key.column.applies_to(row.kind) {
        return None;
    }
    Some(Rank::Number(match cell.map(|cell| &cell.value) {
        Some(CellValue::Number(number)) => *number,
        _ => 0,
    }))
}

#[cfg(test)]
mod tests {
    use format::ids::Txg;

    use super::*;
    use dsl::Property;
    use protocol::datasets::{DatasetType, ValueSource};

    fn row(name: &str, createtxg: Txg, value: Option<CellValue>) -> DatasetRow {
        let kind = match name.contains('@') {
            true => DatasetType::Snapshot,
            false if name.contains('#') => DatasetType::Bookmark,
            false => DatasetType::FileSystem,
        };
        let cell = value.map(|value| Cell { value, source: ValueSource::None, received: None });
        DatasetRow { name: name.to_owned(), kind, createtxg, cells: vec![cell], user: Vec::new() }
    }

    fn check(mut rows: Vec<DatasetRow>, keys: &[SortKey], expect: &[&str]) {
        sort(&mut rows, keys, 0);
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, expect);
    }

    #[test]
    fn by_name_with_snapshots_by_age() {
        let rows = ["t/a@x", "t/a@y", "t#b", "t/a-b", "t/a/c", "t@z", "t/a", "t"];
        let rows =
            rows.iter().zip([9, 3, 1, 1, 1, 1, 1, 1]).map(|(name, txg)| row(name, Txg::new(txg), None)).collect();
        check(rows, &[], &["t", "t@z", "t#b", "t/a", "t/a@y", "t/a@x", "t/a-b", "t/a/c"]);
    }

    #[test]
    fn by_numbers_and_texts() {
        let key = |property, reverse| [SortKey { column: DatasetColumn::Native(property), reverse }];
        let number = |n| Some(CellValue::Number(n));
        let rows = || {
            vec![
                row("b", Txg::new(1), number(10)),
                row("a", Txg::new(1), number(9)),
                row("b@s", Txg::new(1), None),
                row("c", Txg::new(1), number(9)),
            ]
        };
        check(rows(), &key(Property::Available, false), &["a", "c", "b", "b@s"]);
        check(rows(), &key(Property::Available, true), &["b", "a", "c", "b@s"]);
        let text = |t: &str| Some(CellValue::Text(t.to_owned()));
        let rows =
            || vec![row("b", Txg::new(1), text("x")), row("a", Txg::new(1), None), row("c", Txg::new(1), text("w"))];
        check(rows(), &key(Property::Origin, false), &["c", "b", "a"]);
        check(rows(), &key(Property::Origin, true), &["b", "c", "a"]);
    }
}
