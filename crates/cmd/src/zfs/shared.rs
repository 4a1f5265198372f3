//! What `zfs get` and `zfs list` have in common: the flags that say which datasets are meant and what the output
//! looks like, and the way to the rows.

use protocol::datasets::{DatasetRow, Select, Types};

use super::client;
use super::client::Pools;
use super::columns::{self, Columns, DatasetColumn};
use super::command::{JSON_INT, Outcome, Stopped, ZfsCommand, lines, parse_depth, parse_types};
use super::sort::{SortKey, sort};
use crate::getopt::Opt;

/// The flags of both.
#[derive(Default)]
pub(super) struct Flags {
    pub types: Option<Types>,
    pub recursive: bool,
    pub depth: Option<u32>,
    pub scripted: bool,
    pub literal: bool,
    pub json: bool,
    pub json_int: bool,
}

impl Flags {
    /// Takes a flag up, or gives it back as one of the command's own.
    pub fn take(&mut self, command: &ZfsCommand, opt: Opt) -> Result<Option<Opt>, Stopped> {
        match opt {
            Opt::Value('d', text) => self.depth = Some(parse_depth(command, &text)?),
            Opt::Value('t', text) => self.types = Some(parse_types(command, &text)?),
            Opt::Flag('r') => self.recursive = true,
            Opt::Flag('H') => self.scripted = true,
            Opt::Flag('p') => self.literal = true,
            Opt::Flag('j') => self.json = true,
            Opt::Flag(JSON_INT) => (self.json_int, self.literal) = (true, true),
            own => return Ok(Some(own)),
        }
        Ok(None)
    }

    /// Refuses what does not go together.
    pub fn check(&self, command: &ZfsCommand) -> Result<(), Stopped> {
        match self.json_int && !self.json {
            true => Err(Outcome::misused(command, "'--json-int' only works with '-j' option")),
            false => Ok(()),
        }
    }
}

/// Datasets, with the cells of some columns.
pub(super) struct Fetched {
    pub columns: Vec<DatasetColumn>,
    /// How many of the columns have a cell in each row; the others are properties that users made up.
    pub natives: usize,
    pub rows: Vec<DatasetRow>,
    /// What went wrong, as lines; empty if nothing did.
    pub failures: String,
}

/// The columns that a list of properties stands for; all but the first `skipped` of all. Whether it was all.
pub(super) fn columns_of(
    command: &ZfsCommand,
    list: &str,
    skipped: usize,
) -> Result<(Vec<DatasetColumn>, bool), Stopped> {
    match columns::parse(list).map_err(|why| Outcome::misused(command, why))? {
        Columns::All => Ok((columns::all_native().split_off(skipped), true)),
        Columns::Named(columns) => Ok((columns, false)),
    }
}

/// Asks the pools, and sorts what they say.
pub(super) fn fetch(
    pools: &dyn Pools,
    select: &Select,
    keys: &[SortKey],
    mut columns: Vec<DatasetColumn>,
) -> Result<Fetched, Stopped> {
    let found = client::datasets(pools, select)?;
    let (mut rows, natives) = (found.rows, columns.len());
    sort(&mut rows, keys, natives);
    if select.user_properties {
        columns.extend(columns::all_user(&rows));
    }
    Ok(Fetched { columns, natives, rows, failures: lines(&found.failures) })
}
