//! Counters as files, where tools of ZFS on Linux find those of the kernel module: what they know as
//! `/proc/spl/kstat`: the folder of all processes, RUN, can stand in for `/proc`.
//!
//! ```text
//!   RUN/spl/kstat/zfs/zil, arcstats, dbufstats,  all imported pools together
//!     zfetchstats, dmu_tx, vdev_cache_stats
//!   RUN/spl/kstat/zfs/POOL/zil                   what the process of this pool adds to it
//!   RUN/spl/kstat/zfs/POOL/io                    reads and writes of its vdevs
//!   RUN/spl/kstat/zfs/POOL/state                 ONLINE, DEGRADED, SUSPENDED, ...
//!   RUN/spl/kstat/zfs/POOL/txgs                  its last groups, and how long they took on their way to disk
//!   RUN/spl/kstat/zfs/POOL/multihost             its last heartbeats
//!   RUN/spl/kstat/zfs/POOL/objset-0x36           of one mounted file system or open volume
//!   RUN/module/zfs/parameters/zfs_arc_max, ...   what tunables are, to be read; RUN/module stands in for /sys/module
//! ```
//!
//! The process of each pool writes its own files every second, or while nothing is done, every five, and adds up what
//! those of all pools say. What no process has written for [`STALE`] is of one that was killed, and does not count. Each
//! file is replaced as a whole, so that nobody reads half of one.
//!
//! Format: a line about the table, one with the names of the columns, and a line for each value
//! (`KSTAT_TYPE_NAMED`), or one with all values (`KSTAT_TYPE_IO`), or a line for each thing
//! (`KSTAT_TYPE_RAW`). Source: kstat(9) as OpenZFS shows it on Linux.

mod read;

use std::collections::{BTreeMap, HashMap};
use std::fs::{DirBuilder, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use format::ids::DatasetId;

pub use read::{KstatRows, KstatTable, parse, parse_rows, read, read_all, read_rows, read_where};

/// The tables of all pools together. A pool with the name of one has a folder with an `@` behind it, which no pool's
/// name can have.
const SHARED: [&str; 6] = ["zil", "arcstats", "dbufstats", "zfetchstats", "vdev_cache_stats", "dmu_tx"];
/// Where the files are, below the folder of all processes.
const ZFS: &str = "spl/kstat/zfs";
/// And those of what the kernel knows as modules.
const MODULE: &str = "module";
/// How often files are written.
pub const PERIOD: Duration = Duration::from_secs(1);
/// How often, while nothing is done: no more often than groups end.
pub const QUIET_PERIOD: Duration = Duration::from_secs(5);
/// The age of files that nobody writes any more.
const STALE: Duration = Duration::from_secs(10);
/// Tables of what goes on although nothing is done: groups and heartbeats.
const HISTORIES: [&str; 2] = ["txgs", "multihost"];
/// Columns of a table of reads and writes: their counts, times that they waited and took in nanoseconds, how many
/// do so now.
const IO_COLUMNS: [&str; 12] = [
    "nread", "nwritten", "reads", "writes", "wtime", "wlentime", "wupdate", "rtime", "rlentime", "rupdate", "wcnt",
    "rcnt",
];
/// Levels of the blocks of an object that `dbufstats` knows.
const LEVELS: usize = 12;
/// Numbers of the types of values: KSTAT_DATA_UINT64 and KSTAT_DATA_STRING.
const TYPE_U64: u8 = 4;
const TYPE_STRING: u8 = 7;

/// A table of counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kstat {
    /// Its file.
    name: String,
    /// A text at its beginning: a name and a value.
    text: Option<(&'static str, String)>,
    /// Names and values.
    values: Vec<(String, u64)>,
    /// How they are written.
    form: KstatForm,
}

/// How a table is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum KstatForm {
    /// A line for each value.
    #[default]
    Named,
    /// All values in one line.
    Io,
    /// Nothing but the text.
    Raw,
    /// A line for each of so many rows, which are the text.
    Rows(usize),
}

impl Kstat {
    /// A table of numbers.
    pub fn new(name: impl Into<String>, values: impl IntoIterator<Item = (impl Into<String>, u64)>) -> Kstat {
        let values = values.into_iter().map(|(name, value)| (name.into(), value)).collect();
        Kstat { name: name.into(), text: None, values, form: KstatForm::Named }
    }

    /// The table of a dataset, by the number of its object.
    pub fn of_dataset(id: DatasetId, name: String, values: impl IntoIterator<Item = (&'static str, u64)>) -> Kstat {
        Kstat { text: Some(("dataset_name", name)), ..Kstat::new(format!("objset-{id:#x}"), values) }
    }

    /// The table `io`. The columns that `values` lacks are 0: how long all requests together waited and took is not
    /// known.
    pub fn io(values: &[(&str, u64)]) -> Kstat {
        let value = |column: &str| values.iter().find(|(name, _)| *name == column).map_or(0, |(_, value)| *value);
        Kstat { form: KstatForm::Io, ..Kstat::new("io", IO_COLUMNS.map(|column| (column, value(column)))) }
    }

    /// The file `state`: a word for how the pool is.
    pub fn state(word: &str) -> Kstat {
        let nothing: [(&str, u64); 0] = [];
        Kstat { text: Some(("state", word.to_owned())), form: KstatForm::Raw, ..Kstat::new("state", nothing) }
    }

    /// A table with a line of so many words for each of many things. Words are made as wide as their columns.
    pub fn of_rows<const N: usize>(
        name: &'static str,
        columns: [(&str, usize); N],
        rows: impl IntoIterator<Item = [String; N]>,
    ) -> Kstat {
        let nothing: [(&str, u64); 0] = [];
        let line = |words: [&str; N]| {
            let cells = words.into_iter().zip(columns).map(|(word, (_, width))| format!("{word:<width$}"));
            cells.collect::<Vec<_>>().join(" ").trim_end().to_owned() + "\n"
        };
        let lines: Vec<String> = rows.into_iter().map(|row| line(row.each_ref().map(String::as_str))).collect();
        let text = line(columns.map(|(name, _)| name)) + &lines.concat();
        Kstat { text: Some((name, text)), form: KstatForm::Rows(lines.len()), ..Kstat::new(name, nothing) }
    }

    /// The table `dbufstats`, all 0: there is no cache of buffers above that of blocks, which keeps them
    /// decompressed. Programs that read it expect every name.
    pub fn dbufs() -> Kstat {
        let cache = ["count", "size_bytes", "size_bytes_max", "target_bytes", "lowater_bytes", "hiwater_bytes"];
        let levels = (0..LEVELS).flat_map(|level| ["", "_bytes"].map(|unit| format!("cache_level_{level}{unit}")));
        let hash = ["hits", "misses", "collisions", "elements", "elements_max", "chains", "chain_max", "insert_race"];
        let metadata = ["count", "size_bytes", "size_bytes_max", "overflow"];
        let names = (cache.iter().map(|name| format!("cache_{name}")))
            .chain(["cache_total_evicts".to_owned()])
            .chain(levels)
            .chain(hash.iter().map(|name| format!("hash_{name}")))
            .chain(metadata.iter().map(|name| format!("metadata_cache_{name}")));
        Kstat::new("dbufstats", names.map(|name| (name, 0)))
    }

    /// As it is in the file, `now_ns` after the process began.
    fn file(&self, now_ns: u64) -> String {
        if let (KstatForm::Raw, Some((_, text))) = (self.form, &self.text) {
            return format!("{text}\n");
        }
        if let (KstatForm::Rows(count), Some((_, text))) = (self.form, &self.text) {
            return format!("0 0 0x01 {count} {} 0 {now_ns}\n{text}", text.len());
        }
        if self.form == KstatForm::Io {
            let line = |cells: &mut dyn Iterator<Item = String>| {
                cells.map(|cell| format!("{cell:<8}")).collect::<Vec<_>>().join(" ") + "\n"
            };
            let names = line(&mut self.values.iter().map(|(name, _)| name.clone()));
            let values = line(&mut self.values.iter().map(|(_, value)| value.to_string()));
            return format!("0 3 0x00 1 80 0 {now_ns}\n{names}{values}");
        }
        let count = self.values.len() + usize::from(self.text.is_some());
        // each value takes 48 bytes in the kernel
        let mut out = format!("0 1 0x01 {count} {} 0 {now_ns}\n", count * 48);
        out += &format!("{:<31} {:<4} data\n", "name", "type");
        if let Some((name, value)) = &self.text {
            out += &format!("{name:<31} {TYPE_STRING:<4} {value}\n");
        }
        for (name, value) in &self.values {
            out += &format!("{name:<31} {TYPE_U64:<4} {value}\n");
        }
        out
    }

    /// A number that is another one if something was done since; `None` if the table does not tell.
    fn print(&self) -> Option<u64> {
        // others take memory, and to tell names of datasets they are looked up
        let changes_by_itself = |name: &str| name.starts_with("memory_") || name.ends_with("hits");
        let mut hasher = DefaultHasher::new();
        self.text.hash(&mut hasher);
        self.values.iter().filter(|(name, _)| !changes_by_itself(name)).for_each(|value| value.hash(&mut hasher));
        (!HISTORIES.contains(&&*self.name)).then(|| hasher.finish())
    }

    /// The numbers in a file; lines that make no sense are none.
    fn numbers(file: &str) -> impl Iterator<Item = (&str, u64)> {
        file.lines().skip(2).filter_map(|line| {
            let mut words = line.split_whitespace();
            let (name, kind, value) = (words.next()?, words.next()?, words.next()?);
            Some((name, value.parse().ok().filter(|_| kind == "4")?))
        })
    }
}

/// The files of one pool; dropping it removes them.
pub struct KstatFiles {
    zfs: PathBuf,
    own: PathBuf,
    module: PathBuf,
    /// As they were written last.
    tunables: Vec<(&'static str, u64)>,
    /// What each file told last of what was done.
    written: HashMap<String, Option<u64>>,
}

/// The folder of a pool, below that of all processes.
fn folder(run: &Path, pool: &str) -> PathBuf {
    let zfs = run.join(ZFS);
    if SHARED.contains(&pool) { zfs.join(format!("{pool}@")) } else { zfs.join(pool) }
}

impl KstatFiles {
    /// Those of a pool, below the folder of all processes. What one before has left is removed.
    pub fn new(run: &Path, pool: &str) -> io::Result<KstatFiles> {
        let module = run.join(MODULE);
        let (zfs, own) = (run.join(ZFS), folder(run, pool));
        let files = KstatFiles { zfs, own, module, tunables: Vec::new(), written: HashMap::new() };
        files.remove();
        let make = |folder: &Path| DirBuilder::new().recursive(true).mode(0o755).create(folder);
        make(&files.own)?;
        for name in ["spl", "zfs"] {
            make(&files.module.join(name).join("parameters"))?;
            replace(&files.module.join(name).join("version"), concat!(env!("CARGO_PKG_VERSION"), "\n"))?;
        }
        Ok(files)
    }

    /// Writes what tunables are, if they are others than before: whether they are. The processes of other pools write the
    /// same files.
    pub fn write_tunables(&mut self, tunables: Vec<(&'static str, u64)>) -> io::Result<bool> {
        let folder = self.module.join("zfs/parameters");
        for (name, value) in tunables.iter().filter(|tunable| !self.tunables.contains(tunable)) {
            // they are set elsewhere: what is written here would do nothing
            replace_with(&folder.join(name), &format!("{value}\n"), 0o444)?;
        }
        let are_new = self.tunables != tunables;
        self.tunables = tunables;
        Ok(are_new)
    }

    fn remove(&self) {
        // there may be none
        let _ = std::fs::remove_dir_all(&self.own);
    }

    /// Writes the tables: `own` those of the pool, `shared` what it adds to those of all pools. Tables that it has
    /// no more are removed. Whether something was done since the last time, as far as they tell.
    pub fn write(&mut self, own: &[Kstat], shared: &[Kstat], now_ns: u64) -> io::Result<bool> {
        let mut was_used = false;
        for kstat in own.iter().chain(shared) {
            let print = kstat.print();
            let before = self.written.insert(kstat.name.clone(), print);
            was_used |= print.is_some() && before != Some(print);
            replace(&self.own.join(&kstat.name), &kstat.file(now_ns))?;
        }
        let is_known = |name: &str| own.iter().chain(shared).any(|kstat| kstat.name == name);
        for entry in std::fs::read_dir(&self.own)? {
            let entry = entry?;
            if !entry.file_name().to_str().is_some_and(is_known) {
                std::fs::remove_file(entry.path())?;
            }
        }
        self.written.retain(|name, _| is_known(name));
        for kstat in shared {
            let all = Kstat::new(&*kstat.name, self.sum(&kstat.name, &kstat.values)?);
            replace(&self.zfs.join(&kstat.name), &all.file(now_ns))?;
        }
        Ok(was_used)
    }

    /// What all pools say, in the order of `values`.
    fn sum(&self, name: &str, values: &[(String, u64)]) -> io::Result<Vec<(String, u64)>> {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for entry in std::fs::read_dir(&self.zfs)? {
            let path = entry?.path().join(name);
            let age = path.metadata().and_then(|found| found.modified()).map(|at| at.elapsed().unwrap_or_default());
            // it may go at any moment, and so may its pool
            let Some(file) = age.ok().filter(|age| *age < STALE).and_then(|_| std::fs::read_to_string(&path).ok())
            else {
                continue;
            };
            for (name, value) in Kstat::numbers(&file) {
                let sum = sums.entry(name.to_owned()).or_default();
                *sum = sum.saturating_add(value);
            }
        }
        Ok(values.iter().map(|(name, own)| (name.clone(), sums.get(name).copied().unwrap_or(*own))).collect())
    }
}

impl Drop for KstatFiles {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Replaces a file as a whole. A search for names like its own does not find the one that takes its place.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    replace_with(path, text, 0o644)
}

fn replace_with(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{name}.{}", std::process::id()));
    // a killed process left it
    let _ = std::fs::remove_file(&new);
    let written = File::options().write(true).create_new(true).mode(mode).open(&new);
    let done = written.and_then(|mut file| file.write_all(text.as_bytes())).and_then(|()| std::fs::rename(&new, path));
    if done.is_err() {
        // a full file system has a part of it, which would take room for nothing
        let _ = std::fs::remove_file(&new);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_one_line_and_of_many_levels() {
        let file = Kstat::io(&[("reads", 7), ("nread", 123_456_789), ("rcnt", 1)]).file(99);
        let lines: Vec<&str> = file.lines().collect();
        let [names, values] = [1, 2].map(|at| lines[at].split_whitespace().collect::<Vec<_>>());
        assert_eq!((lines[0], lines.len(), names.len(), values.len()), ("0 3 0x00 1 80 0 99", 3, 12, 12));
        let value = |name: &str| values[names.iter().position(|column| *column == name).unwrap()];
        assert_eq!(["reads", "nread", "rcnt", "writes"].map(value), ["7", "123456789", "1", "0"]);
        assert_eq!(Kstat::state("ONLINE").file(99), "ONLINE\n");
        assert_eq!(parse("state".into(), "ONLINE\n"), None);
        let dbufs = Kstat::dbufs();
        assert_eq!(dbufs.values.len(), 7 + 24 + 8 + 4);
        assert!(dbufs.values.iter().any(|(name, _)| name == "cache_level_11_bytes"));
    }

    fn zil(commits: u64) -> Kstat {
        Kstat::new("zil", [("zil_commit_count", commits), ("zil_itx_count", 2)])
    }

    #[test]
    fn files_are_as_tools_expect_them() {
        let mut kstat = zil(12);
        kstat.text = Some(("dataset_name", "tank/a b".into()));
        let file = kstat.file(99);
        let lines: Vec<&str> = file.lines().collect();
        assert_eq!(lines[0], "0 1 0x01 3 144 0 99");
        assert_eq!(lines[1], "name                            type data");
        assert_eq!(lines[2], "dataset_name                    7    tank/a b");
        assert_eq!(lines[3], "zil_commit_count                4    12");
        // a text is no number, whatever it looks like
        assert_eq!(Kstat::numbers(&file).collect::<Vec<_>>(), [("zil_commit_count", 12), ("zil_itx_count", 2)]);
        assert_eq!(Kstat::numbers("x\ny\nname 4\nother 4 -1\n").count(), 0);
    }

    #[test]
    fn tunables_are_files() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = KstatFiles::new(dir.path(), "one").unwrap();
        let path = dir.path().join("module/zfs/parameters/zfs_arc_max");
        files.write_tunables(vec![("zfs_arc_max", 7), ("zfs_arc_min", 0)]).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "7\n");
        std::fs::remove_file(&path).unwrap();
        files.write_tunables(vec![("zfs_arc_max", 7), ("zfs_arc_min", 1)]).unwrap();
        assert!(!path.exists(), "it has not changed");
        assert!(!files.write_tunables(vec![("zfs_arc_max", 7), ("zfs_arc_min", 1)]).unwrap());
        assert!(files.write_tunables(vec![("zfs_arc_max", 8)]).unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "8\n");
        assert!(dir.path().join("module/spl/version").exists());
    }

    #[test]
    fn pools_add_up_until_they_go() {
        let dir = tempfile::tempdir().unwrap();
        let mut one = KstatFiles::new(dir.path(), "one").unwrap();
        let mut two = KstatFiles::new(dir.path(), "two").unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.path().join("spl/kstat/zfs").join(name)).unwrap();
        let commits = |name: &str| Kstat::numbers(&read(name)).next().unwrap().1;
        one.write(&[Kstat::new("objset-0x36", [("zil_commit_count", 5)])], &[zil(5)], 0).unwrap();
        two.write(&[], &[zil(7)], 0).unwrap();
        assert_eq!([commits("zil"), commits("one/zil"), commits("one/objset-0x36")], [12, 5, 5]);
        one.write(&[], &[zil(6)], 0).unwrap();
        assert_eq!(commits("zil"), 13);
        assert!(!dir.path().join("spl/kstat/zfs/one/objset-0x36").exists(), "it has gone");
        drop(two);
        one.write(&[], &[zil(6)], 0).unwrap();
        assert_eq!(commits("zil"), 6);
        assert!(!dir.path().join("spl/kstat/zfs/two").exists());
        let mut same = KstatFiles::new(dir.path(), "zil").unwrap();
        same.write(&[], &[zil(3)], 0).unwrap();
        assert_eq!([commits("zil"), commits("zil@/zil")], [9, 3], "a pool that is named as a table is");
    }

    #[test]
    fn a_pool_is_quiet_until_something_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = KstatFiles::new(dir.path(), "one").unwrap();
        let mut was_used = |misses: u64, free: u64, groups: usize, word: &str| {
            let groups = (0..groups).map(|group| [group.to_string()]);
            let own = [Kstat::of_rows("txgs", [("txg", 8)], groups), Kstat::state(word)];
            let shared =
                [Kstat::new("arcstats", [("misses", misses), ("mru_hits", free), ("memory_free_bytes", free)])];
            files.write(&own, &shared, 0).unwrap()
        };
        assert!(was_used(5, 100, 1, "ONLINE"), "the first time");
        assert!(!was_used(5, 100, 1, "ONLINE"));
        assert!(!was_used(5, 90, 2, "ONLINE"), "others take memory, and groups end");
        assert!(was_used(6, 90, 2, "ONLINE"));
        assert!(was_used(6, 90, 2, "DEGRADED"));
        assert!(!was_used(6, 90, 2, "DEGRADED"));
    }
}
