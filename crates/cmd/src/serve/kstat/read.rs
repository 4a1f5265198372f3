//! Reading the files of a pool.

use std::io;
use std::path::Path;

use super::{Kstat, STALE, folder};

/// Bytes of a file at most.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A table of counters as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its file.
    pub name: String,
    /// The dataset that it is of.
    pub dataset: Option<String>,
    /// Names and values.
    pub values: Vec<(String, u64)>,
}

/// The tables of a pool, in the order of their names, as far as its process still writes them.
pub fn read(run: &Path, pool: &str) -> io::Result<Vec<Table>> {
    let mut tables = Vec::new();
    for entry in std::fs::read_dir(folder(run, pool))? {
        let entry = entry?;
        // not one that is about to take the place of another
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name.starts_with('.') {
            continue;
        }
        let is_fresh = |found: &std::fs::Metadata| {
            let age = found.modified().map(|at| at.elapsed().unwrap_or_default());
            found.len() <= FILE_BYTES_MAX && age.is_ok_and(|age| age < STALE)
        };
        // it may go at any moment
        if let Some(file) =
            entry.metadata().ok().filter(is_fresh).and_then(|_| std::fs::read_to_string(entry.path()).ok())
        {
            tables.extend(parse(name, &file));
        }
    }
    tables.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tables)
}

/// A table of names and values; others are none.
fn parse(name: String, file: &str) -> Option<Table> {
    file.lines().nth(1).filter(|head| head.split_whitespace().eq(["name", "type", "data"]))?;
    let text = file.lines().skip(2).find_map(|line| line.strip_prefix("dataset_name "));
    let dataset = text.and_then(|rest| Some(rest.trim_start().split_once(' ')?.1.trim_start().to_owned()));
    let values = Kstat::numbers(file).map(|(name, value)| (name.to_owned(), value)).collect();
    Some(Table { name, dataset, values })
}

#[cfg(test)]
mod tests {
    use super::super::Files;
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::new(dir.path(), "zil").unwrap();
        let set =
            Kstat { text: Some(("dataset_name", "zil/a b".into())), ..Kstat::new("objset-0x36", [("n", u64::MAX)]) };
        files.write(&[set], &[Kstat::new("zil", [("zil_commit_count", 5)])], 0).unwrap();
        std::fs::write(folder(dir.path(), "zil").join(".zil.1"), "half").unwrap();
        std::fs::write(folder(dir.path(), "zil").join("io"), "0 3 0x00 1 80 0 9\nreads writes\n1 2\n").unwrap();
        let table = |name: &str, dataset: Option<&str>, value: (&str, u64)| Table {
            name: name.into(),
            dataset: dataset.map(str::to_owned),
            values: vec![(value.0.to_owned(), value.1)],
        };
        let expect =
            [table("objset-0x36", Some("zil/a b"), ("n", u64::MAX)), table("zil", None, ("zil_commit_count", 5))];
        assert_eq!(read(dir.path(), "zil").unwrap(), expect);
        assert!(read(dir.path(), "other").is_err());
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
