//! The rules of POSIX, by example: a file system of the kernel and a pool of Cenote are asked the same
//! things at random, by seven kinds of users, and have to answer the same and to look the same afterwards.
//!
//! ```text
//!   step: mkdir, open, rename, chmod, ... of names that are there, or not, or cannot be
//!     ├─▶ an actor in a directory of the kernel's ─▶ answer ─┐
//!     └─▶ an actor in a mount of ours ─────────────▶ answer ─┴─ equal?  both trees equal?
//! ```
//!
//! It is the ground that pjdfstest covers, without a list of cases: who may do what, set-id and sticky
//! bits, what each call says of each kind of file, which times change.

mod actor;
mod ext4;
mod marks;
mod steps;

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use base::{Env, Error, Kind, Result};
use device::Device;
use format::feature::{PROJECT_QUOTA, USEROBJ_ACCOUNTING};
use fuse::{DatasetSpace, Mount, MountOptions, Snapshot, Source};
use pool::{LivePool, NewLeaf, NewPool, NewVdev, NewVdevShape};
use testkit::rng::Rng;
use testkit::sparse::SparseDevice;
use testkit::workload::FEATURES;
use zpl::{NewFs, Zpl, create_fs};

use crate::harness::{Dir, mount, require};
use actor::{Actors, Answer};
use ext4::Ext4;
use steps::Step;

const DEVICE_SIZE: u64 = 4 << 30;
/// The time that files are given before a step, to see whether it changes: seconds since 1970.
const LONG_AGO_S: i64 = 1_000_000;

/// The file system of a fresh pool in memory.
pub struct FileSystem {
    pool: Arc<LivePool>,
    pub zpl: Arc<Zpl>,
}

/// A fresh pool in memory, `rules`, with a file system.
pub fn new_pool() -> Arc<LivePool> {
    pool_of(&NewFs::default())
}

/// The same with a file system of some kind.
fn pool_of(new_fs: &NewFs) -> Arc<LivePool> {
    let device: Arc<dyn Device> = Arc::new(SparseDevice::new("disk", DEVICE_SIZE));
    let leaf = NewLeaf { path: "disk".into(), is_file: true };
    let new = NewPool {
        name: "rules".into(),
        temporary_name: None,
        vdevs: vec![NewVdev { shape: NewVdevShape::Single, bias: None, leaves: vec![leaf] }],
        spares: Vec::new(),
        caches: Vec::new(),
        ashift: Some(12),
        features: FEATURES.into_iter().chain([USEROBJ_ACCOUNTING, PROJECT_QUOTA]).map(str::to_owned).collect(),
        properties: Vec::new(),
        fs_properties: Vec::new(),
        history: "zpool create rules".into(),
        host: (7, "here".into()),
    };
    let env = Env::real();
    let new_fs = NewFs { now: (1, 0), salt: 5, ..*new_fs };
    let devices = HashMap::from([("disk".into(), device)]);
    let pool = LivePool::create(&env, &new, &devices, move |set, tx, _| create_fs(set, tx, &new_fs)).unwrap();
    pool.start();
    pool
}

impl FileSystem {
    fn new() -> FileSystem {
        FileSystem::of(&NewFs::default())
    }

    /// One of some kind.
    pub fn of(new_fs: &NewFs) -> FileSystem {
        let pool = pool_of(new_fs);
        let id = pool.view().dsl().find("rules").unwrap().id;
        let zpl =
            Zpl::open_writable(pool.head(id).unwrap(), pool.txgs().clone(), Env::real(), Default::default(), None)
                .unwrap();
        FileSystem { pool, zpl: Arc::new(zpl) }
    }
}

impl Source for FileSystem {
    type Tree = Zpl;

    fn tree(&self) -> Arc<Zpl> {
        self.zpl.clone()
    }

    fn space(&self) -> Result<DatasetSpace> {
        Ok(DatasetSpace {
            available_bytes: DEVICE_SIZE,
            record_bytes: 128 << 10,
            name_bytes_max: 255,
            ..DatasetSpace::default()
        })
    }

    fn snapshots(&self) -> Result<Vec<Snapshot>> {
        Ok(Vec::new())
    }

    fn open_snapshot(&self, _: &Snapshot) -> Result<Arc<Zpl>> {
        Err(Error::new(Kind::NotFound, "there are no snapshots"))
    }

    fn sync(&self) -> Result<()> {
        self.pool.sync()
    }
}

/// The two that are compared. The fields are dropped in this order.
struct Pair {
    actors: [Actors; 2],
    mount: Mount,
    dir: Dir,
    kernels: Kernels,
}

/// A directory of the kernel's.
enum Kernels {
    Any(tempfile::TempDir),
    Ext4(Ext4),
}

impl Kernels {
    fn path(&self) -> &Path {
        match self {
            Kernels::Any(dir) => dir.path(),
            Kernels::Ext4(ext4) => &ext4.root,
        }
    }
}

impl Pair {
    fn new() -> Pair {
        Pair::beside(Kernels::Any(tempfile::tempdir().unwrap()))
    }

    fn beside(kernels: Kernels) -> Pair {
        let dir = Dir::new();
        let mut options = MountOptions::new("rules", &dir.0);
        options.allow_other = true;
        let mount = mount(Arc::new(FileSystem::new()), &options).unwrap();
        let actors = [Actors::new(kernels.path()), Actors::new(&dir.0)];
        Pair { actors, mount, dir, kernels }
    }

    fn answers(&mut self, step: &Step) -> [Answer; 2] {
        self.actors.each_mut().map(|actors| actors.run(step))
    }

    fn trees(&self) -> [BTreeMap<String, String>; 2] {
        let has_marks = matches!(self.kernels, Kernels::Ext4(_));
        [self.kernels.path(), &self.dir.0].map(|root| {
            let mut found = BTreeMap::new();
            describe(root, ".", &mut found).unwrap();
            for (path, text) in found.iter_mut().filter(|_| has_marks) {
                let place = root.join(path);
                let kind = fs::symlink_metadata(&place).unwrap().file_type();
                *text += &marks::describe(&place, kind);
            }
            found
        })
    }
}

/// What is to be equal of a file and all below it, by path.
fn describe(root: &Path, path: &str, found: &mut BTreeMap<String, String>) -> io::Result<()> {
    let full = root.join(path);
    let stat = fs::symlink_metadata(&full)?;
    let kind = stat.file_type();
    let mut text = format!("mode {:o} owner {}:{}", stat.mode(), stat.uid(), stat.gid());
    // those that a step has set; and looking at a directory or a link moves the time of the last access
    for (name, secs, is_kept) in [("atime", stat.atime(), kind.is_file()), ("mtime", stat.mtime(), true)] {
        if is_kept && secs.unsigned_abs() < 1 << 30 && path != "." {
            text += &format!(" {name} {secs}");
        }
    }
    if kind.is_dir() {
        found.insert(path.to_owned(), text);
        for entry in fs::read_dir(&full)? {
            let name = entry?.file_name();
            describe(root, &format!("{path}/{}", name.to_string_lossy()), found)?;
        }
        return Ok(());
    }
    text += &format!(" links {} size {}", stat.nlink(), stat.size());
    if kind.is_symlink() {
        text += &format!(" to {:?}", fs::read_link(&full)?);
    } else if kind.is_char_device() || kind.is_block_device() {
        text += &format!(" rdev {:x}", stat.rdev());
    } else if kind.is_file() && stat.size() < 1 << 20 {
        let mut bytes = Vec::new();
        fs::File::options().read(true).custom_flags(libc::O_NOATIME).open(&full)?.read_to_end(&mut bytes)?;
        text += &format!(" holds {} bytes, sum {}", bytes.len(), bytes.iter().map(|b| u64::from(*b)).sum::<u64>());
    }
    found.insert(path.to_owned(), text);
    Ok(())
}

/// Takes `count` steps from `seed`.
fn compare(pair: &mut Pair, seed: u64, count: usize) {
    let mut rng = Rng::new(seed);
    let has_marks = matches!(pair.kernels, Kernels::Ext4(_));
    for number in 0..count {
        let step = match &pair.kernels {
            Kernels::Ext4(ext4) => actor::random_marked_step(ext4.has_projects, &mut rng),
            Kernels::Any(_) => actor::random_step(&mut rng),
        };
        // others than the owner are refused that by the kernel's; here it is what comes before a write
        if has_marks && step.asks_for_writing() || step.changes_no_owner() && step.user != 0 {
            continue;
        }
        let [kernels, ours] = pair.answers(&step);
        let is_same = kernels == ours
            || has_marks && is_refused_as(kernels, ours)
            || step.changes_no_owner() && (kernels, ours) == (Err(libc::EPERM), Ok(0));
        assert!(is_same, "seed {seed}, step {number}: {step:?}\n the kernel's: {kernels:?}\n ours: {ours:?}");
        let [kernels, ours] = pair.trees();
        let differs = kernels.iter().find(|(path, text)| ours.get(*path) != Some(text));
        assert!(
            kernels == ours,
            "seed {seed}, step {number}: {step:?}\n the kernel's: {differs:?}\n ours: {:?}",
            differs.and_then(|(path, _)| ours.get(path))
        );
    }
}

/// Both refuse, one of them for want of rights: a flag of a file forbids more than one thing, and the kernel asks for it in
/// another order than for others.
fn is_refused_as(kernels: Answer, ours: Answer) -> bool {
    let is_for_rights = |answer: Answer| matches!(answer, Err(libc::EPERM | libc::EACCES));
    kernels.is_err() && ours.is_err() && (is_for_rights(kernels) || is_for_rights(ours))
}

fn seeds(quick: u64) -> u64 {
    std::env::var("CENOTE_RULES_SEEDS").map_or(quick, |text| text.parse().unwrap())
}

#[test]
fn answers_are_the_kernels() {
    require!(root);
    for seed in 0..seeds(14) {
        compare(&mut Pair::new(), seed, 1500);
    }
}

#[test]
fn flags_projects_and_attributes_are_as_in_ext4() {
    require!(root);
    for seed in 0..seeds(4) {
        let Some(ext4) = Ext4::new() else { return };
        compare(&mut Pair::beside(Kernels::Ext4(ext4)), seed, 1500);
    }
}

/// Which times a step changes: of all files and directories, whether they are new.
fn new_times(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    describe(root, ".", &mut found).unwrap();
    let stat_of = |path: &String| fs::symlink_metadata(root.join(path)).unwrap();
    let times = |path: &String| {
        let stat = stat_of(path);
        format!("mtime {}, ctime {}.{}", stat.mtime() != LONG_AGO_S, stat.ctime(), stat.ctime_nsec())
    };
    found.keys().map(|path| (path.clone(), times(path))).collect()
}

#[test]
fn times_change_as_the_kernels() {
    require!(root);
    let mut pair = Pair::new();
    let mut rng = Rng::new(77);
    let roots = [pair.kernels.path().to_owned(), pair.dir.0.clone()];
    for number in 0..400 {
        let step = actor::random_step(&mut rng);
        if step.changes_no_owner() {
            continue;
        }
        let before = roots.each_ref().map(|root| {
            steps::age(root, LONG_AGO_S);
            new_times(root)
        });
        // the kernel's clock for files goes in ticks
        std::thread::sleep(std::time::Duration::from_millis(11));
        let _ = pair.answers(&step);
        let [kernels, ours] = [0, 1].map(|i| -> Vec<String> {
            let after = new_times(&roots[i]);
            after.into_iter().filter(|(path, times)| before[i].get(path) != Some(times)).map(|(path, _)| path).collect()
        });
        assert_eq!(kernels, ours, "step {number} changes times, the kernel's and ours: {step:?}");
    }
    assert!(pair.mount.is_mounted());
}
