//! `zfs list`.

use std::ffi::OsString;

use base::Shown;
use dsl::Property;
use protocol::datasets::{DatasetRow, Select, Types};

use super::client::Pools;
use super::columns::{self, Columns, DatasetColumn};
use super::command::{JSON, Outcome, Stopped, ZfsCommand, parse};
use super::json;
use super::json::{DatasetJson, Style};
use super::shared::{Fetched, Flags, columns_of, fetch};
use super::sort::SortKey;
use crate::getopt::Opt;
use crate::output::FAILED;

/// The columns that are shown unasked.
const DEFAULT: &str = "name,used,available,referenced,mountpoint";

/// A command line of `zfs list`.
struct DatasetListOptions {
    columns: String,
    keys: Vec<SortKey>,
    flags: Flags,
    roots: Vec<String>,
}

/// Runs the command.
pub(super) fn run(pools: &dyn Pools, command: &ZfsCommand, args: &[OsString]) -> Result<Outcome, Stopped> {
    let options = options(command, args)?;
    let (columns, is_all) = columns_of(command, &options.columns, 0)?;
    let select = select(&options, &columns, is_all);
    let Fetched { columns, natives, rows, failures } = fetch(pools, &select, &options.keys, columns)?;
    let (failed, mut err) = (!failures.is_empty(), failures);
    let table = DatasetTable { columns, natives, rows: &rows, options: &options };
    let out = match options.flags.json {
        true if failed => String::new(),
        true => table.json(),
        false => table.text(),
    };
    if rows.is_empty() && !failed && !options.flags.scripted && !options.flags.json {
        err.push_str("no datasets available\n");
    }
    Ok(Outcome { out, err, code: if failed { FAILED } else { 0 } })
}

fn options(command: &ZfsCommand, args: &[OsString]) -> Result<DatasetListOptions, Stopped> {
    let parsed = parse(command, args, "jHS:d:o:prs:t:", &JSON)?;
    let mut options = DatasetListOptions {
        columns: DEFAULT.to_owned(),
        keys: Vec::new(),
        flags: Flags::default(),
        roots: parsed.operands,
    };
    for opt in parsed.opts {
        let Some(own) = options.flags.take(command, opt)? else { continue };
        match own {
            Opt::Value('o', list) => options.columns = list,
            Opt::Value(c @ ('s' | 'S'), name) => options.keys.push(sort_key(command, &name, c == 'S')?),
            _ => {}
        }
    }
    options.flags.check(command)?;
    Ok(options)
}

fn sort_key(command: &ZfsCommand, name: &str, reverse: bool) -> Result<SortKey, Stopped> {
    match columns::parse(name) {
        Ok(Columns::Named(columns)) if columns.len() == 1 && name != "space" => {
            let column = columns.into_iter().next().expect("there is one");
            if matches!(column, DatasetColumn::Native(_) | DatasetColumn::User(_)) {
                return Ok(SortKey { column, reverse });
            }
        }
        _ => {}
    }
    Err(Outcome::misused(command, format_args!("invalid property '{name}'")))
}

fn select(options: &DatasetListOptions, columns: &[DatasetColumn], is_all: bool) -> Select {
    let mut types = options.flags.types.unwrap_or(Types::DATASETS);
    if options.columns == "space" && options.flags.types.is_none() {
        types.snapshots = false;
    }
    let reach = SearchReach::new(types, options.flags.recursive, options.flags.depth, &options.roots);
    let wanted = columns.iter().chain(options.keys.iter().map(|key| &key.column)).map(DatasetColumn::wanted);
    Select {
        roots: options.roots.clone(),
        root_types: reach.root_types,
        depth: reach.depth,
        types,
        ask_listsnapshots: options.flags.types.is_none(),
        properties: wanted.collect(),
        user_properties: is_all,
        received: false,
    }
}

/// How far below the roots to look, and what the roots may be.
pub(super) struct SearchReach {
    pub depth: Option<u32>,
    pub root_types: Types,
}

impl SearchReach {
    /// As flags `-r` and `-d` and the types say. Without roots, all of each pool is meant; a root that is a
    /// file system, with types that are only snapshots or only bookmarks, means those of it.
    pub(super) fn new(types: Types, recursive: bool, depth: Option<u32>, roots: &[String]) -> SearchReach {
        let is_plain = !recursive && depth.is_none();
        let depth = match depth {
            None if is_plain && !roots.is_empty() => Some(u32::from(types.is_points_only())),
            depth => depth,
        };
        let mut root_types = types;
        if !is_plain || types.is_points_only() {
            root_types.file_systems = true;
            root_types.volumes |= types.snapshots || types.bookmarks;
        }
        SearchReach { depth, root_types }
    }
}

/// What is printed.
struct DatasetTable<'a> {
    columns: Vec<DatasetColumn>,
    /// How many of the columns have a cell in each row; the others are properties that users made up.
    natives: usize,
    rows: &'a [DatasetRow],
    options: &'a DatasetListOptions,
}

impl DatasetTable<'_> {
    fn text(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let cells: Vec<Vec<String>> = self.rows.iter().map(|row| self.texts(row)).collect();
        let widths: Vec<usize> = (0..self.columns.len()).map(|i| self.width(i, &cells)).collect();
        let mut out = String::new();
        if !self.options.flags.scripted {
            let headers: Vec<String> = self.columns.iter().map(DatasetColumn::header).collect();
            self.line(&mut out, &headers, &widths, DatasetColumn::is_header_right);
        }
        for row in &cells {
            if self.options.flags.scripted {
                out.push_str(&row.join("\t"));
                out.push('\n');
            } else {
                self.line(&mut out, row, &widths, DatasetColumn::is_right);
            }
        }
        out
    }

    fn texts(&self, row: &DatasetRow) -> Vec<String> {
        let text = |(i, column): (usize, &DatasetColumn)| {
            let shown = column.shown(self.cell(row, i), self.options.flags.literal);
            match shown {
                None => "-".to_owned(),
                Some((text, _)) if self.options.flags.scripted => text,
                Some((text, _)) => Shown(text).to_string(),
            }
        };
        self.columns.iter().enumerate().map(text).collect()
    }

    fn cell<'r>(&self, row: &'r DatasetRow, index: usize) -> Option<&'r protocol::datasets::Cell> {
        match &self.columns[index] {
            DatasetColumn::User(name) if index >= self.natives => {
                row.user.iter().find(|(n, _)| n == name).map(|(_, cell)| cell)
            }
            _ => row.cells[index].as_ref(),
        }
    }

    fn width(&self, index: usize, cells: &[Vec<String>]) -> usize {
        let column = &self.columns[index];
        let least = column.width_min();
        match column.grows(self.options.flags.literal) {
            true => cells.iter().map(|row| row[index].chars().count()).fold(least, usize::max),
            false => least,
        }
    }

    fn line(&self, out: &mut String, texts: &[String], widths: &[usize], is_right: fn(&DatasetColumn) -> bool) {
        let last = texts.len() - 1;
        for (i, (text, &width)) in texts.iter().zip(widths).enumerate() {
            if i > 0 {
                out.push_str("  ");
            }
            match is_right(&self.columns[i]) {
                true => out.push_str(&format!("{text:>width$}")),
                false if i == last => out.push_str(text),
                false => out.push_str(&format!("{text:<width$}")),
            }
        }
        out.push('\n');
    }

    fn json(&self) -> String {
        let style = Style { literal: self.options.flags.literal, as_int: self.options.flags.json_int };
        let datasets = self.rows.iter().map(|row| {
            let mut dataset = DatasetJson::new(row, style);
            for (i, column) in self.columns.iter().enumerate() {
                if *column != DatasetColumn::Native(Property::Name) {
                    dataset.add(column, self.cell(row, i));
                }
            }
            dataset
        });
        json::datasets("list", datasets)
    }
}
