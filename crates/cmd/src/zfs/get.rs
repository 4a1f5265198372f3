//! `zfs get`.

use std::ffi::OsString;

use base::Shown;
use protocol::datasets::{Cell, DatasetRow, Select, Types, ValueSource};

use super::client::Pools;
use super::columns::DatasetColumn;
use super::command::{JSON, Outcome, Stopped, ZfsCommand, parse};
use super::json;
use super::json::{DatasetJson, Style};
use super::list::SearchReach;
use super::shared::{Fetched, Flags, columns_of, fetch};
use crate::getopt::Opt;
use crate::output::FAILED;

/// A column of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DatasetField {
    Name,
    Property,
    Value,
    Received,
    Source,
}

/// The fields that there are: name, header.
const FIELDS: [(DatasetField, &str, &str); 5] = [
    (DatasetField::Name, "name", "NAME"),
    (DatasetField::Property, "property", "PROPERTY"),
    (DatasetField::Value, "value", "VALUE"),
    (DatasetField::Received, "received", "RECEIVED"),
    (DatasetField::Source, "source", "SOURCE"),
];
const DEFAULT: [DatasetField; 4] =
    [DatasetField::Name, DatasetField::Property, DatasetField::Value, DatasetField::Source];
/// Of all properties the name is left out: it comes with each.
const NEWS: usize = 1;
const SOURCES: [&str; 6] = ["local", "default", "inherited", "received", "temporary", "none"];

/// A command line of `zfs get`.
struct DatasetGetOptions {
    fields: Vec<DatasetField>,
    /// Names of the sources that are shown.
    sources: Vec<String>,
    flags: Flags,
    properties: String,
    roots: Vec<String>,
}

/// Runs the command.
pub(super) fn run(pools: &dyn Pools, command: &ZfsCommand, args: &[OsString]) -> Result<Outcome, Stopped> {
    let options = options(command, args)?;
    let (columns, is_all) = columns_of(command, &options.properties, NEWS)?;
    let flags = &options.flags;
    let types = flags.types.unwrap_or(Types::ALL);
    let reach = SearchReach::new(types, flags.recursive, flags.depth, &options.roots);
    let select = Select {
        roots: options.roots.clone(),
        root_types: reach.root_types,
        depth: reach.depth,
        types,
        ask_listsnapshots: false,
        properties: columns.iter().map(DatasetColumn::wanted).collect(),
        user_properties: is_all,
        received: options.fields.contains(&DatasetField::Received) || flags.json,
    };
    let Fetched { columns, natives, rows, failures } = fetch(pools, &select, &[], columns)?;
    let report = GetReport { columns, natives, is_all, rows: &rows, options: &options };
    let failed = !failures.is_empty();
    let out = match flags.json {
        true if failed => String::new(),
        true => report.json(),
        false => report.text(),
    };
    Ok(Outcome { out, err: failures, code: if failed { FAILED } else { 0 } })
}

/// The text of one property of a dataset; `None` if it has none.
pub(super) fn value_of(pools: &dyn Pools, name: &str, property: &str) -> Option<String> {
    let select = Select {
        roots: vec![name.to_owned()],
        root_types: Types::DATASETS,
        depth: Some(0),
        types: Types::DATASETS,
        properties: vec![protocol::datasets::WantedProperty::Native(property.to_owned())],
        ..Select::default()
    };
    let found = super::client::datasets(pools, &select).ok()?;
    match found.rows.into_iter().next()?.cells.into_iter().next()?? {
        Cell { value: protocol::datasets::CellValue::Text(text), .. } => Some(text),
        _ => None,
    }
}

fn options(command: &ZfsCommand, args: &[OsString]) -> Result<DatasetGetOptions, Stopped> {
    let parsed = parse(command, args, ":d:o:s:jrt:Hp", &JSON)?;
    let mut options = DatasetGetOptions {
        fields: DEFAULT.to_vec(),
        sources: SOURCES.map(str::to_owned).to_vec(),
        flags: Flags::default(),
        properties: String::new(),
        roots: Vec::new(),
    };
    for opt in parsed.opts {
        let Some(own) = options.flags.take(command, opt)? else { continue };
        match own {
            Opt::Value('o', list) => options.fields = fields(command, &list)?,
            Opt::Value('s', list) => options.sources = sources(command, &list)?,
            _ => {}
        }
    }
    let mut operands = parsed.operands.into_iter();
    options.properties = operands.next().ok_or_else(|| Outcome::misused(command, "missing property argument"))?;
    options.roots = operands.collect();
    options.flags.check(command)?;
    Ok(options)
}

fn fields(command: &ZfsCommand, list: &str) -> Result<Vec<DatasetField>, Stopped> {
    let mut fields = Vec::new();
    for name in list.split(',') {
        if fields.len() == FIELDS.len() {
            return Err(Outcome::misused(command, "too many fields given to -o option"));
        }
        if name == "all" {
            if !fields.is_empty() {
                return Err(Outcome::misused(command, "\"all\" conflicts with specific fields given to -o option"));
            }
            fields = FIELDS.map(|(field, ..)| field).to_vec();
        } else if let Some((field, ..)) = FIELDS.iter().find(|(_, n, _)| *n == name) {
            fields.push(*field);
        } else {
            return Err(Outcome::misused(command, format_args!("invalid column name '{name}'")));
        }
    }
    Ok(fields)
}

fn sources(command: &ZfsCommand, list: &str) -> Result<Vec<String>, Stopped> {
    match list.split(',').find(|name| !SOURCES.contains(name)) {
        Some(name) => Err(Outcome::misused(command, format_args!("invalid source '{name}'"))),
        None => Ok(list.split(',').map(str::to_owned).collect()),
    }
}

/// What is printed.
struct GetReport<'a> {
    columns: Vec<DatasetColumn>,
    /// How many of the columns have a cell in each row; the others are properties that users made up.
    natives: usize,
    is_all: bool,
    rows: &'a [DatasetRow],
    options: &'a DatasetGetOptions,
}

/// One property of one dataset, as text.
struct GetLine<'a> {
    row: &'a DatasetRow,
    column: &'a DatasetColumn,
    value: String,
    received: Option<String>,
    source: &'a ValueSource,
}

impl GetReport<'_> {
    fn text(&self) -> String {
        let lines: Vec<GetLine> = self.rows.iter().flat_map(|row| self.lines(row)).collect();
        if lines.is_empty() {
            return String::new();
        }
        let widths: Vec<usize> = self.options.fields.iter().map(|&field| self.width(field)).collect();
        let mut out = String::new();
        if !self.options.flags.scripted {
            let headers = self.options.fields.iter().map(|field| header(*field).to_owned()).collect();
            self.print(&mut out, headers, &widths);
        }
        for line in &lines {
            let texts = self.options.fields.iter().map(|&field| line.text(field)).collect();
            self.print(&mut out, texts, &widths);
        }
        out
    }

    /// The properties of a dataset, as far as their sources are shown.
    fn lines<'r>(&'r self, row: &'r DatasetRow) -> Vec<GetLine<'r>> {
        let line = |(i, column): (usize, &'r DatasetColumn)| {
            let cell = self.cell(row, i);
            let (value, source) = match column.shown(cell, self.options.flags.literal) {
                Some(shown) => shown,
                None if self.is_all => return None,
                None => ("-".to_owned(), &ValueSource::None),
            };
            let received = cell.and_then(|cell| cell.received.as_ref());
            let received = received.and_then(|value| column.text(value, self.options.flags.literal));
            let is_shown = self.options.sources.iter().any(|name| name == name_of(source));
            is_shown.then_some(GetLine { row, column, value, received, source })
        };
        self.columns.iter().enumerate().filter_map(line).collect()
    }

    fn cell<'r>(&self, row: &'r DatasetRow, index: usize) -> Option<&'r Cell> {
        match &self.columns[index] {
            DatasetColumn::User(name) if index >= self.natives => {
                row.user.iter().find(|(n, _)| n == name).map(|(_, cell)| cell)
            }
            _ => row.cells[index].as_ref(),
        }
    }

    /// The width of a field: of whatever could be in it, shown or not.
    fn width(&self, field: DatasetField) -> usize {
        let header = header(field).len();
        let names = || self.rows.iter().map(|row| row.name.chars().count()).fold("NAME".len(), usize::max);
        let widest = |texts: &dyn Fn(&DatasetColumn, Option<&Cell>) -> usize| {
            let cells = self.rows.iter().flat_map(|row| (0..self.columns.len()).map(move |i| (row, i)));
            cells.map(|(row, i)| texts(&self.columns[i], self.cell(row, i))).fold(header, usize::max)
        };
        let literal = self.options.flags.literal;
        match field {
            DatasetField::Name => names(),
            DatasetField::Source => names() + "inherited from".len(),
            DatasetField::Property => self.columns.iter().map(|c| c.name().chars().count()).fold(header, usize::max),
            DatasetField::Value => widest(&|column, cell| {
                let shown = column.grows(false).then(|| column.shown(cell, literal)).flatten();
                column.width_min().max(shown.map_or(0, |(text, _)| text.chars().count()))
            }),
            DatasetField::Received => widest(&|column, cell| {
                let value = cell.and_then(|cell| cell.received.as_ref()).filter(|_| column.grows(false));
                value.and_then(|value| column.text(value, literal)).map_or(0, |text| text.chars().count())
            }),
        }
    }

    fn print(&self, out: &mut String, texts: Vec<String>, widths: &[usize]) {
        if self.options.flags.scripted {
            out.push_str(&texts.join("\t"));
        } else {
            let (last, others) = texts.split_last().expect("there is at least one field");
            for (text, &width) in others.iter().zip(widths) {
                out.push_str(&format!("{:<width$}  ", Shown(text).to_string()));
            }
            out.push_str(&Shown(last).to_string());
        }
        out.push('\n');
    }

    fn json(&self) -> String {
        let style = Style { literal: self.options.flags.literal, as_int: self.options.flags.json_int };
        let datasets = self.rows.iter().map(|row| {
            let mut dataset = DatasetJson::new(row, style);
            for line in self.lines(row) {
                let index = self.columns.iter().position(|column| column == line.column);
                dataset.add(line.column, index.and_then(|i| self.cell(row, i)));
            }
            dataset
        });
        json::datasets("get", datasets.filter(|dataset| !dataset.is_empty()))
    }
}

impl GetLine<'_> {
    fn text(&self, field: DatasetField) -> String {
        match field {
            DatasetField::Name => self.row.name.clone(),
            DatasetField::Property => self.column.name().to_owned(),
            DatasetField::Value => self.value.clone(),
            DatasetField::Received => self.received.clone().unwrap_or_else(|| "-".to_owned()),
            DatasetField::Source => match self.source {
                ValueSource::None => "-".to_owned(),
                ValueSource::Inherited(from) => format!("inherited from {from}"),
                source => name_of(source).to_owned(),
            },
        }
    }
}

fn header(field: DatasetField) -> &'static str {
    FIELDS.iter().find(|(f, ..)| *f == field).map_or("", |(_, _, header)| header)
}

fn name_of(source: &ValueSource) -> &'static str {
    match source {
        ValueSource::Local => "local",
        ValueSource::Default => "default",
        ValueSource::Inherited(_) => "inherited",
        ValueSource::Received => "received",
        ValueSource::Temporary => "temporary",
        ValueSource::None => "none",
    }
}
