//! Columns: which properties were named, what they are called, and their values as text.
//!
//! ```text
//!   "name,used,refer,user:note,written@a" ──▶ Column, Column, ... ──▶ Wanted (asked for)
//!                                                                 ──▶ header, width, text (shown)
//! ```
//!
//! A column is as wide as its header, its widest value, and any value that it could have if that is a
//! number or a choice, so that lists of different datasets look alike.

use dsl::Property;
use dsl::property::{NumberForm, ValueKind, is_user_property};
use protocol::datasets::{Cell, CellValue, DatasetRow, DatasetType, ValueSource, WantedProperty};
use protocol::words::nicenum::{nicebytes, nicenum};
use protocol::words::time;

/// A property that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DatasetColumn {
    /// One of the table.
    Native(Property),
    /// One that users made up.
    User(String),
    /// What a user, group or project uses or may use: `userused@alice`.
    Account(String),
    /// `written@SNAPSHOT` or `written#BOOKMARK`.
    Written(String),
}

/// Which properties were named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Columns {
    /// All there are.
    All,
    /// These.
    Named(Vec<DatasetColumn>),
}

const ACCOUNTS: [&str; 12] = [
    "userused@",
    "userquota@",
    "groupused@",
    "groupquota@",
    "userobjused@",
    "userobjquota@",
    "groupobjused@",
    "groupobjquota@",
    "projectused@",
    "projectquota@",
    "projectobjused@",
    "projectobjquota@",
];

/// What the word `space` stands for.
const SPACE: [Property; 7] = [
    Property::Name,
    Property::Available,
    Property::Used,
    Property::Usedbysnapshots,
    Property::Usedbydataset,
    Property::Usedbyrefreservation,
    Property::Usedbychildren,
];

/// The columns that a list with commas names. Errors: what is wrong with it, for the user.
pub(super) fn parse(list: &str) -> Result<Columns, String> {
    let bad = |why: String| Err(format!("bad property list: {why}"));
    if list == "all" {
        return Ok(Columns::All);
    }
    if list.is_empty() {
        return bad("no properties specified".to_owned());
    }
    // a comma at the end is no error
    let list = list.strip_suffix(',').unwrap_or(list);
    let mut columns = Vec::new();
    for name in list.split(',') {
        match name {
            "" => return bad("empty property name".to_owned()),
            "space" => columns.extend(SPACE.map(DatasetColumn::Native)),
            name => match column(name) {
                Some(column) => columns.push(column),
                None => return bad(format!("invalid property '{name}'")),
            },
        }
    }
    Ok(Columns::Named(columns))
}

fn column(name: &str) -> Option<DatasetColumn> {
    let account =
        || ACCOUNTS.iter().any(|prefix| name.starts_with(prefix)).then(|| DatasetColumn::Account(name.to_owned()));
    let is_written = name.starts_with("written@") || name.starts_with("written#");
    let native = Property::find(name).map(DatasetColumn::Native);
    let user = || is_user_property(name).then(|| DatasetColumn::User(name.to_owned()));
    native.or_else(account).or_else(|| is_written.then(|| DatasetColumn::Written(name.to_owned()))).or_else(user)
}

/// All native properties that are shown unasked, the name of the dataset before them.
pub(super) fn all_native() -> Vec<DatasetColumn> {
    let shown = Property::all().filter(|property| property.is_shown());
    std::iter::once(Property::Name).chain(shown).map(DatasetColumn::Native).collect()
}

/// The properties that users made up and that any of the rows has, in the order in which they come.
pub(super) fn all_user<'a>(rows: impl IntoIterator<Item = &'a DatasetRow>) -> Vec<DatasetColumn> {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in rows.into_iter().flat_map(|row| &row.user) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names.into_iter().map(|name| DatasetColumn::User(name.to_owned())).collect()
}

impl DatasetColumn {
    /// What to ask the pool process for.
    pub(super) fn wanted(&self) -> WantedProperty {
        match self {
            DatasetColumn::Native(property) => WantedProperty::Native(property.name().to_owned()),
            DatasetColumn::User(name) => WantedProperty::User(name.clone()),
            DatasetColumn::Account(name) => protocol::owners::wanted(name),
            DatasetColumn::Written(name) => WantedProperty::Written(name["written".len()..].to_owned()),
        }
    }

    /// Its name, as it was given.
    pub(super) fn name(&self) -> &str {
        match self {
            DatasetColumn::Native(property) => property.name(),
            DatasetColumn::User(name) | DatasetColumn::Account(name) | DatasetColumn::Written(name) => name,
        }
    }

    /// Its header in a list.
    pub(super) fn header(&self) -> String {
        match self {
            DatasetColumn::Native(property) => property.info().column.to_owned(),
            other => other.name().to_uppercase(),
        }
    }

    /// Whether values stand at the right.
    pub(super) fn is_right(&self) -> bool {
        match self {
            DatasetColumn::Native(property) => match property.info().kind {
                ValueKind::Number(_, form) => !matches!(form, NumberForm::Date | NumberForm::DateOrNothing),
                ValueKind::Choice(..) | ValueKind::Text(_) => false,
            },
            DatasetColumn::User(_) => false,
            DatasetColumn::Account(_) | DatasetColumn::Written(_) => true,
        }
    }

    /// Whether the header stands at the right.
    pub(super) fn is_header_right(&self) -> bool {
        matches!(self, DatasetColumn::Native(_)) && self.is_right()
    }

    /// How wide it is before any value is known.
    pub(super) fn width_min(&self) -> usize {
        let DatasetColumn::Native(property) = self else { return self.name().chars().count() };
        let header = property.info().column.len();
        match property.info().kind {
            ValueKind::Number(..) if *property == Property::Referenced => REFERENCED_WIDTH,
            ValueKind::Number(..) => header.max(NUMBER_WIDTH),
            ValueKind::Choice(_, names) => names.iter().map(|(name, _)| name.len()).fold(header, usize::max),
            ValueKind::Text(_) => header,
        }
    }

    /// Whether values can make it wider; with exact numbers most can.
    pub(super) fn grows(&self, literal: bool) -> bool {
        match self {
            DatasetColumn::Native(property) => match property.info().kind {
                ValueKind::Number(_, NumberForm::Date | NumberForm::DateOrNothing) => true,
                ValueKind::Number(..) | ValueKind::Choice(..) => literal,
                ValueKind::Text(_) => true,
            },
            DatasetColumn::User(_) => true,
            // OpenZFS knows these only when it prints them
            DatasetColumn::Account(_) | DatasetColumn::Written(_) => false,
        }
    }

    /// A value as text; `None` if it is none.
    pub(super) fn text(&self, value: &CellValue, literal: bool) -> Option<String> {
        match (self, value) {
            (_, CellValue::Text(text)) => Some(text.clone()),
            (DatasetColumn::Native(property), CellValue::Number(number)) => native_text(*property, *number, literal),
            (DatasetColumn::User(_), CellValue::Number(number)) => Some(number.to_string()),
            (DatasetColumn::Written(_), CellValue::Number(bytes)) => Some(sized(*bytes, literal, nicebytes)),
            (DatasetColumn::Account(name), CellValue::Number(number)) => Some(account_text(name, *number, literal)),
        }
    }

    /// The text of a cell, and where it comes from.
    pub(super) fn shown<'a>(&self, cell: Option<&'a Cell>, literal: bool) -> Option<(String, &'a ValueSource)> {
        let cell = cell?;
        Some((self.text(&cell.value, literal)?, &cell.source))
    }

    /// Whether it has a meaning for datasets of a type.
    pub(super) fn applies_to(&self, kind: DatasetType) -> bool {
        let DatasetColumn::Native(property) = self else { return true };
        property.info().applies.has(match kind {
            DatasetType::FileSystem => dsl::property::DatasetKind::FileSystem,
            DatasetType::Volume => dsl::property::DatasetKind::Volume,
            DatasetType::Snapshot => dsl::property::DatasetKind::Snapshot,
            DatasetType::Bookmark => dsl::property::DatasetKind::Bookmark,
        })
    }
}

/// `1023M`: numbers take up no more when they are not exact.
const NUMBER_WIDTH: usize = 5;
/// OpenZFS makes this column wider, as its number is that of a pool's health.
const REFERENCED_WIDTH: usize = 8;

fn native_text(property: Property, number: u64, literal: bool) -> Option<String> {
    let form = match property.info().kind {
        ValueKind::Number(_, form) => form,
        ValueKind::Choice(..) if property == Property::Mounted => {
            return Some(if number == 0 { "no" } else { "yes" }.to_owned());
        }
        _ => return property.name_of(number).map(str::to_owned),
    };
    match form {
        NumberForm::Exact => Some(number.to_string()),
        NumberForm::Count => Some(sized(number, literal, nicenum)),
        NumberForm::Bytes => Some(sized(number, literal, nicebytes)),
        NumberForm::Quota if number == 0 && !literal => Some("none".to_owned()),
        NumberForm::Quota => Some(sized(number, literal, nicebytes)),
        NumberForm::Limit if number == u64::MAX => Some("none".to_owned()),
        NumberForm::Limit => Some(sized(number, literal, nicenum)),
        NumberForm::Ratio => Some(format!("{}.{:02}{}", number / 100, number % 100, if literal { "" } else { "x" })),
        NumberForm::DateOrNothing if number == 0 => None,
        NumberForm::Date if !literal => Some(time::local(number, c"%a %b %e %k:%M %Y")),
        NumberForm::DateOrNothing if !literal => Some(time::local(number, c"%a %b %e %k:%M:%S %Y")),
        NumberForm::Date | NumberForm::DateOrNothing => Some(number.to_string()),
    }
}

fn account_text(name: &str, number: u64, literal: bool) -> String {
    let property = name.split('@').next().unwrap_or(name);
    if literal {
        number.to_string()
    } else if number == 0 && property.ends_with("quota") {
        "none".to_owned()
    } else if property.contains("obj") {
        nicenum(number)
    } else {
        nicebytes(number)
    }
}

fn sized(number: u64, literal: bool, nice: fn(u64) -> String) -> String {
    if literal { number.to_string() } else { nice(number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(property: Property, number: u64) -> [String; 2] {
        let column = DatasetColumn::Native(property);
        [false, true].map(|literal| column.text(&CellValue::Number(number), literal).unwrap_or_else(|| "-".to_owned()))
    }

    #[test]
    fn numbers_as_text() {
        for (property, number, expect) in [
            (Property::Used, 1_603_584, ["1.53M", "1603584"]),
            (Property::Used, 0, ["0B", "0"]),
            (Property::Recordsize, 131_072, ["128K", "131072"]),
            (Property::Written, 0, ["0", "0"]),
            (Property::Quota, 0, ["none", "0"]),
            (Property::Quota, 512, ["512B", "512"]),
            (Property::SnapshotLimit, u64::MAX, ["none", "none"]),
            (Property::SnapshotLimit, 3, ["3", "3"]),
            (Property::CompressRatio, 539, ["5.39x", "5.39"]),
            (Property::CompressRatio, 100, ["1.00x", "1.00"]),
            (Property::Guid, 1_712_458_339_362_108_151, ["1712458339362108151", "1712458339362108151"]),
            (Property::Mounted, 1, ["yes", "yes"]),
            (Property::DeferDestroy, 0, ["off", "off"]),
            (Property::Compression, 15, ["lz4", "lz4"]),
            (Property::Compression, 999, ["-", "-"]),
            (Property::SnapshotsChanged, 0, ["-", "-"]),
        ] {
            assert_eq!(native(property, number), expect, "{}", property.name());
        }
    }

    #[test]
    fn accounts_as_text() {
        let text = |name: &str, number| account_text(name, number, false);
        assert_eq!((text("userused@a", 0), text("userquota@a", 0)), ("0B".into(), "none".into()));
        assert_eq!((text("userobjused@a", 2048), text("groupobjquota@a", 0)), ("2K".into(), "none".into()));
        assert_eq!(account_text("userquota@a", 0, true), "0");
    }

    #[test]
    fn lists_of_properties() {
        let names = |list: &str| match parse(list) {
            Ok(Columns::Named(columns)) => columns.iter().map(|c| c.name().to_owned()).collect::<Vec<_>>().join(" "),
            Ok(Columns::All) => "*".to_owned(),
            Err(why) => why,
        };
        assert_eq!(names("name,refer,a:b,userused@x,written@s"), "name referenced a:b userused@x written@s");
        assert_eq!(
            names("space"),
            "name available used usedbysnapshots usedbydataset usedbyrefreservation usedbychildren"
        );
        assert_eq!(names("all"), "*");
        assert_eq!(names("name,"), "name");
        assert_eq!(names("name,,used"), "bad property list: empty property name");
        assert_eq!(names(""), "bad property list: no properties specified");
        assert_eq!(names("name,x"), "bad property list: invalid property 'x'");
        assert_eq!(names("all,name"), "bad property list: invalid property 'all'");
    }

    #[test]
    fn headers_and_widths() {
        let column = |property| DatasetColumn::Native(property);
        assert_eq!(
            (column(Property::Available).header(), column(Property::Available).width_min()),
            ("AVAIL".into(), 5)
        );
        assert_eq!(column(Property::Compression).width_min(), "zstd-fast-1000".len());
        assert_eq!(DatasetColumn::User("a:b".into()).header(), "A:B");
        assert!(column(Property::Used).is_header_right() && !column(Property::Creation).is_right());
        let written = DatasetColumn::Written("written@s".into());
        assert!(written.is_right() && !written.is_header_right());
        assert!(column(Property::Name).grows(false) && !column(Property::Used).grows(false));
        assert!(column(Property::Used).grows(true) && !written.grows(true));
    }
}
