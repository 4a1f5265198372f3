//! Reading the files of pools.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::{Kstat, STALE, ZFS, folder};

/// Bytes of a file at most.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A table of counters as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KstatTable {
    /// Its file.
    pub name: String,
    /// When it was written, in nanoseconds after its process began.
    pub at_ns: u64,
    /// The dataset that it is of.
    pub dataset: Option<String>,
    /// Names and values.
    pub values: Vec<(String, u64)>,
}

impl KstatTable {
    /// The value of that name; 0 if there is none.
    pub fn get(&self, name: &str) -> u64 {
        self.values.iter().find(|(other, _)| other == name).map_or(0, |(_, value)| *value)
    }
}

/// A table with a line for each of many things, as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KstatRows {
    /// When it was written, in nanoseconds after its process began.
    pub at_ns: u64,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl KstatRows {
    /// The words of each line in these columns, in the order of the lines; empty where there is no such column.
    pub fn columns<const N: usize>(&self, names: [&str; N]) -> impl Iterator<Item = [&str; N]> {
        let places = names.map(|name| self.columns.iter().position(|column| column == name));
        self.rows.iter().map(move |row| places.map(|place| place.map_or("", |at| &*row[at])))
    }
}

/// The tables of all pools whose processes write them, by the pools' names.
pub fn read_all(run: &Path) -> BTreeMap<String, Vec<KstatTable>> {
    let entries = std::fs::read_dir(run.join(ZFS)).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let tables = names.filter_map(|name| {
        let pool = name.trim_end_matches('@');
        // it may go at any moment
        let tables = read(run, pool).ok().filter(|tables| !tables.is_empty())?;
        Some((pool.to_owned(), tables))
    });
    tables.collect()
}

/// The tables of a pool, in the order of their names, as far as its process still writes them. Errors: it has no folder.
pub fn read(run: &Path, pool: &str) -> io::Result<Vec<KstatTable>> {
    read_where(run, pool, |_| true)
}

/// The same of those tables only whose names are meant. Errors: the pool has no folder.
pub fn read_where(run: &Path, pool: &str, is_meant: impl Fn(&str) -> bool) -> io::Result<Vec<KstatTable>> {
    let mut tables = Vec::new();
    for entry in std::fs::read_dir(folder(run, pool))? {
        let entry = entry?;
        // not one that is about to take the place of another
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name.starts_with('.') || !is_meant(&name) {
            continue;
        }
        // it may go at any moment
        if let Some(file) = read_fresh(&entry.path()) {
            tables.extend(parse(name, &file));
        }
    }
    tables.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tables)
}

/// A file that is still written.
fn read_fresh(path: &Path) -> Option<String> {
    let is_fresh = |found: &std::fs::Metadata| {
        let age = found.modified().map(|at| at.elapsed().unwrap_or_default());
        found.len() <= FILE_BYTES_MAX && age.is_ok_and(|age| age < STALE)
    };
    path.symlink_metadata().ok().filter(is_fresh).and_then(|_| std::fs::read_to_string(path).ok())
}

/// A table with a line for each of many things, as far as its process still writes it; `None`: it does not.
pub fn read_rows(run: &Path, pool: &str, table: &str) -> Option<KstatRows> {
    parse_rows(&read_fresh(&folder(run, pool).join(table))?)
}

/// Such a table. Lines that have not a word for each column are left out.
pub fn parse_rows(file: &str) -> Option<KstatRows> {
    let mut lines = file.lines();
    let at_ns = lines.next()?.split_whitespace().nth(6)?.parse().ok()?;
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let columns = words(lines.next()?);
    let rows = lines.map(words).filter(|row| row.len() == columns.len()).collect();
    Some(KstatRows { at_ns, columns, rows })
}

/// A table of names and values, or one of reads and writes; others are none.
pub fn parse(name: String, file: &str) -> Option<KstatTable> {
    let mut lines = file.lines();
    let head: Vec<&str> = lines.next()?.split_whitespace().collect();
    let columns = lines.next()?.split_whitespace();
    let at_ns = head.get(6).and_then(|word| word.parse().ok()).unwrap_or(0);
    if head.get(1) == Some(&"3") {
        let cells = columns.zip(lines.next()?.split_whitespace());
        let values = cells.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect();
        return Some(KstatTable { name, at_ns, dataset: None, values });
    }
    columns.eq(["name", "type", "data"]).then_some(())?;
    let text = file.lines().skip(2).find_map(|line| line.strip_prefix("dataset_name "));
    let dataset = text.and_then(|rest| Some(rest.trim_start().split_once(' ')?.1.trim_start().to_owned()));
    let values = Kstat::numbers(file).map(|(name, value)| (name.to_owned(), value)).collect();
    Some(KstatTable { name, at_ns, dataset, values })
}

#[cfg(test)]
mod tests {
    use super::super::KstatFiles;
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = KstatFiles::new(dir.path(), "zil").unwrap();
        let set =
            Kstat { text: Some(("dataset_name", "zil/a b".into())), ..Kstat::new("objset-0x36", [("n", u64::MAX)]) };
        files.write(&[set], &[Kstat::new("zil", [("zil_commit_count", 5)])], 9).unwrap();
        std::fs::write(folder(dir.path(), "zil").join(".zil.1"), "half").unwrap();
        std::fs::write(folder(dir.path(), "zil").join("io"), Kstat::io(&[("rcnt", 7)]).file(9)).unwrap();
        let table = |name: &str, dataset: Option<&str>, value: (&str, u64)| KstatTable {
            name: name.into(),
            at_ns: 9,
            dataset: dataset.map(str::to_owned),
            values: vec![(value.0.to_owned(), value.1)],
        };
        let expect =
            [table("objset-0x36", Some("zil/a b"), ("n", u64::MAX)), table("zil", None, ("zil_commit_count", 5))];
        let mut found = read(dir.path(), "zil").unwrap();
        assert_eq!(read_all(dir.path()), [("zil".to_owned(), found.clone())].into(), "not the tables of all pools");
        let io = found.remove(0);
        assert_eq!((&*io.name, io.at_ns, io.values.len(), io.get("rcnt"), io.get("none")), ("io", 9, 12, 7, 0));
        assert_eq!(found, expect);
        assert!(read(dir.path(), "other").is_err());
        assert!(read_all(&dir.path().join("none")).is_empty());
    }

    #[test]
    fn rows_are_read_by_their_columns() {
        let rows = [["7".to_owned(), "O".to_owned()], ["8".to_owned(), "C".to_owned()]];
        let file = Kstat::of_rows("txgs", [("txg", 8), ("state", 0)], rows).file(9) + "9\n";
        let table = parse_rows(&file).unwrap();
        assert_eq!(table.at_ns, 9);
        assert_eq!(table.columns(["state", "none", "txg"]).collect::<Vec<_>>(), [["O", "", "7"], ["C", "", "8"]]);
        let dir = tempfile::tempdir().unwrap();
        let mut files = KstatFiles::new(dir.path(), "tank").unwrap();
        files.write(&[Kstat::of_rows("txgs", [("txg", 8)], [["5".to_owned()]])], &[], 0).unwrap();
        assert_eq!(read_rows(dir.path(), "tank", "txgs").unwrap().columns(["txg"]).collect::<Vec<_>>(), [["5"]]);
        assert_eq!(read_rows(dir.path(), "tank", "none"), None);
        for file in ["", "x", "0 0 0 0 0 0 x\ntxg\n", "ONLINE\n"] {
            assert_eq!(parse_rows(file), None, "{file:?}");
        }
    }

    #[test]
    fn nonsense_is_no_table() {
        for file in ["", "a\nb\nc", "\0\n\0", "0 1\nname type\n", "x\nname type data extra\n"] {
            assert_eq!(parse("x".into(), file), None, "{file:?}");
        }
        let table = parse("x".into(), "x\nname type data\ndataset_name 7\nn 4 -1\n").unwrap();
        assert_eq!((table.dataset, table.values), (None, vec![]));
    }
}
