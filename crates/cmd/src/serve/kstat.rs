//! Counters as files, where tools of ZFS on Linux find those of the kernel module: what they know as
//! `/proc/spl/kstat`: the folder of all processes, RUN, can stand in for `/proc`.
//!
//! ```text
//!   RUN/spl/kstat/zfs/zil, arcstats,         all imported pools together
//!     zfetchstats, dmu_tx, vdev_cache_stats
//!   RUN/spl/kstat/zfs/POOL/zil               what the process of this pool adds to it
//!   RUN/spl/kstat/zfs/POOL/objset-0x36       of one dataset
//! ```
//!
//! The process of each pool writes its own files every second, and adds up what those of all pools say. What no
//! process has written for [`STALE`] is of one that was killed, and does not count. Each file is replaced as a
//! whole, so that nobody reads half of one.
//!
//! Format: a line about the table, one with the names of the columns, and a line for each value. Source: kstat(9)
//! as OpenZFS shows it on Linux, `KSTAT_TYPE_NAMED`.

mod read;

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use read::{Table, read};

/// The tables of all pools together. A pool with the name of one has a folder with an `@` behind it, which no pool's
/// name can have.
const SHARED: [&str; 5] = ["zil", "arcstats", "zfetchstats", "vdev_cache_stats", "dmu_tx"];
/// Where the files are, below the folder of all processes.
const ZFS: &str = "spl/kstat/zfs";
/// How often files are written.
pub const PERIOD: Duration = Duration::from_secs(1);
/// The age of files that nobody writes any more.
const STALE: Duration = Duration::from_secs(10);
/// Numbers of the types of values: KSTAT_DATA_UINT64 and KSTAT_DATA_STRING.
const TYPE_U64: u8 = 4;
const TYPE_STRING: u8 = 7;

/// A table of counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kstat {
    /// Its file.
    pub name: String,
    /// A text at its beginning: a name and a value.
    pub text: Option<(&'static str, String)>,
    /// Names and values.
    pub values: Vec<(String, u64)>,
}

impl Kstat {
    /// A table of numbers.
    pub fn new(name: impl Into<String>, values: impl IntoIterator<Item = (impl Into<String>, u64)>) -> Kstat {
        let values = values.into_iter().map(|(name, value)| (name.into(), value)).collect();
        Kstat { name: name.into(), text: None, values }
    }

    /// As it is in the file, `now_ns` after the process began.
    fn file(&self, now_ns: u64) -> String {
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
pub struct Files {
    zfs: PathBuf,
    own: PathBuf,
}

/// The folder of a pool, below that of all processes.
fn folder(run: &Path, pool: &str) -> PathBuf {
    let zfs = run.join(ZFS);
    if SHARED.contains(&pool) { zfs.join(format!("{pool}@")) } else { zfs.join(pool) }
}

impl Files {
    /// Those of a pool, below the folder of all processes. What one before has left is removed.
    pub fn new(run: &Path, pool: &str) -> io::Result<Files> {
        let files = Files { zfs: run.join(ZFS), own: folder(run, pool) };
        files.remove();
        DirBuilder::new().recursive(true).mode(0o755).create(&files.own)?;
        Ok(files)
    }

    fn remove(&self) {
        // there may be none
        let _ = std::fs::remove_dir_all(&self.own);
    }

    /// Writes the tables: `own` those of the pool, `shared` what it adds to those of all pools. Tables that it has
    /// no more are removed.
    pub fn write(&self, own: &[Kstat], shared: &[Kstat], now_ns: u64) -> io::Result<()> {
        for kstat in own.iter().chain(shared) {
            replace(&self.own.join(&kstat.name), &kstat.file(now_ns))?;
        }
        let is_known = |name: &str| own.iter().chain(shared).any(|kstat| kstat.name == name);
        for entry in std::fs::read_dir(&self.own)? {
            let entry = entry?;
            if !entry.file_name().to_str().is_some_and(is_known) {
                std::fs::remove_file(entry.path())?;
            }
        }
        for kstat in shared {
            let all = Kstat::new(&*kstat.name, self.sum(&kstat.name, &kstat.values)?);
            replace(&self.zfs.join(&kstat.name), &all.file(now_ns))?;
        }
        Ok(())
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

impl Drop for Files {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Replaces a file as a whole.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension(format!("{}.new", std::process::id()));
    std::fs::write(&new, text)?;
    std::fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn pools_add_up_until_they_go() {
        let dir = tempfile::tempdir().unwrap();
        let one = Files::new(dir.path(), "one").unwrap();
        let two = Files::new(dir.path(), "two").unwrap();
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
        let same = Files::new(dir.path(), "zil").unwrap();
        same.write(&[], &[zil(3)], 0).unwrap();
        assert_eq!([commits("zil"), commits("zil@/zil")], [9, 3], "a pool that is named as a table is");
    }
}
