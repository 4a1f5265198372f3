//! Pools of all ages and states are written to: files, snapshots, clones come and go, and zdb finds nothing wrong.
//!
//! `./x lifted` lives with all of them, and asks zdb at each stage; without `CENOTE_LIFTED`, it is one of each kind, and zdb
//! looks at the end.

mod accounts;
mod byte_order;
mod draid;
mod encrypted;
mod expanded;
mod features;
mod recovery;
mod versions;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::Env;
use device::{Device, FileDevice, OpenMode};
use dmu::traverse::Visit;
use dmu::{Objset, Tx};
use dsl::Property;
use dsl::write::Created;
use format::ids::ObjectId;
use pool::check::{BlockKind, CheckOptions, Observer, Verify};
use pool::{LivePool, Pool, PoolState};
use testkit::corpus;
use testkit::rng::Rng;
use testkit::workload::{candidate, options};
use zpl::{FileKind, New, NewFs, NewKind, Zpl, create_fs};

use crate::dedup::{empty, names_in};
use crate::live::{is_newer_judge, judge_called};

/// A pool of the corpus, in a folder of its own.
struct Lifted {
    dir: tempfile::TempDir,
    paths: Vec<PathBuf>,
    name: String,
    /// zdb of OpenZFS 2.1 does not know all of its features.
    is_new: bool,
}

/// Looks at nothing.
struct Blind;

impl Observer for Blind {
    fn block(&mut self, _visit: &Visit<'_>, _kind: BlockKind) {}
}

/// What is to be in a file system: path and contents of each file.
type Expected = Vec<(String, Vec<u8>, Vec<u8>)>;

fn is_long() -> bool {
    std::env::var_os("CENOTE_LIFTED").is_some()
}

/// Lives with these pools, or with the first of them if it has to be short.
fn live_with_all(cases: &[&str]) {
    for case in &cases[..if is_long() { cases.len() } else { 1 }] {
        println!("{case}");
        live_with(&Lifted::of(case));
    }
}

impl Lifted {
    fn of(case: &str) -> Lifted {
        let dir = tempfile::tempdir().unwrap();
        let case = corpus::case(case);
        let paths = case.extract(dir.path()).unwrap();
        Lifted { dir, paths, name: case.pool, is_new: false }
    }

    /// One that OpenZFS 2.4 made.
    fn newer(case: &str) -> Lifted {
        Lifted { is_new: true, ..Lifted::of(case) }
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        let open = |path: &PathBuf| -> Arc<dyn Device> {
            Arc::new(FileDevice::open(path.to_str().unwrap(), OpenMode::ReadWrite).unwrap())
        };
        self.paths.iter().map(open).collect()
    }

    fn try_import(&self, env: &Env) -> base::Result<Arc<LivePool>> {
        LivePool::import(env, &candidate(&self.devices()).unwrap(), &options(), (7, "here".into()))
    }

    fn import(&self) -> Arc<LivePool> {
        self.import_with(Env::real())
    }

    fn import_with(&self, env: Env) -> Arc<LivePool> {
        self.try_import(&env).unwrap()
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Exports the pool, and lets zdb look for what is lost or leaks. Of a newer pool that is only zdb of OpenZFS 2.4, if
    /// `JUDGE` says that it is that one; Cenote looks itself.
    fn judge(&self, pool: Arc<LivePool>) {
        pool.close(PoolState::Exported).unwrap();
        drop(pool);
        let pool = Pool::open(&Env::real(), &candidate(&self.devices()).unwrap(), &options()).unwrap();
        let report = pool.check(CheckOptions { verify: Verify::All, space: true }, &mut Blind).unwrap();
        assert_eq!((report.leaks, report.unallocated_blocks, report.lost_parts), (Vec::new(), 0, 0));
        assert_eq!((report.found_bytes, report.lost_blocks), (report.allocated_bytes, Vec::new()));
        if !self.is_new || is_newer_judge() {
            judge_called(self.path(), &self.name);
        }
    }
}

/// A stage has come to its end.
fn end_stage(lifted: &Lifted, pool: Arc<LivePool>) {
    match is_long() {
        true => lifted.judge(pool),
        false => pool.close(PoolState::Exported).unwrap(),
    }
}

/// Makes an empty file system of the version that the pool gives it.
fn make_files(set: &Arc<Objset>, tx: &Tx<'_>, created: &Created) -> base::Result<()> {
    let version = created.contents.iter().find(|(property, _)| *property == Property::Version);
    let version = version.map_or(0, |(_, version)| *version);
    create_fs(set, tx, &NewFs { now: (7, 0), salt: 5, version, ..NewFs::default() })
}

fn zpl_of(pool: &LivePool, name: &str) -> base::Result<Zpl> {
    let id = pool.view().dsl().find(name)?.id;
    Zpl::open_writable(pool.head(id)?, pool.txgs().clone(), Env::real(), Default::default(), None)
}

/// The names of all that can be mounted.
fn file_systems(pool: &LivePool) -> Vec<String> {
    let dirs = pool.view().dsl().walk().unwrap();
    dirs.into_iter().map(|dir| dir.name).filter(|name| zpl_of(pool, name).is_ok()).collect()
}

fn sync(pool: &LivePool) {
    (0..3).for_each(|_| pool.sync().unwrap());
}

fn make(zpl: &Zpl, dir: ObjectId, name: &str, kind: NewKind) -> ObjectId {
    let mode = if kind == NewKind::File { 0o644 } else { 0o755 };
    zpl.create(dir, name.as_bytes(), &New { kind, mode, umask: 0, uid: 1000, gid: 100 }).unwrap().ino
}

/// Writes to each file system of a pool as its users might: small files and large ones, some of which go again, and
/// changes of what was there.
fn write_files(pool: &LivePool, name: &str, seed: u64) -> Expected {
    let zpl = zpl_of(pool, name).unwrap();
    let mut rng = Rng::new(seed);
    let folder = format!("cenote-{seed}");
    let dir = make(&zpl, zpl.root(), &folder, NewKind::Directory);
    let mut expected = Expected::new();
    for i in 0..60usize {
        let file = format!("file number {i}");
        let ino = make(&zpl, dir, &file, NewKind::File);
        let len = if i % 20 == 7 { 700_000 } else { rng.below(9000) as usize };
        let mut bytes: Vec<u8> = (0..len).map(|at| (at / 3 * (i + 1)) as u8).collect();
        let open = zpl.open_file(ino).unwrap();
        assert_eq!(open.write(0, &bytes).unwrap(), len);
        if i % 7 == 3 {
            pool.sync().unwrap();
            open.write(len as u64 / 2, b"changed later").unwrap();
            bytes.resize(len.max(len / 2 + 13), 0);
            bytes[len / 2..len / 2 + 13].copy_from_slice(b"changed later");
        }
        expected.push((name.to_owned(), format!("/{folder}/{file}").into_bytes(), bytes));
    }
    pool.sync().unwrap();
    for i in (0..60).step_by(3) {
        let file = format!("file number {i}");
        zpl.reclaim(zpl.unlink(dir, file.as_bytes()).unwrap().unwrap()).unwrap();
        expected.retain(|(_, path, _)| *path != format!("/{folder}/{file}").into_bytes());
    }
    // what others wrote is changed, and goes
    for (i, (name, ino)) in names_in(&zpl, zpl.root()).into_iter().enumerate() {
        if ino != dir && zpl.stat(ino).unwrap().kind == FileKind::File {
            zpl.open_file(ino).unwrap().write(100, b"new bytes").unwrap();
            if i % 2 == 1 {
                zpl.unlink(zpl.root(), &name).unwrap().into_iter().for_each(|ino| zpl.reclaim(ino).unwrap());
            }
        }
    }
    pool.sync().unwrap();
    expected
}

fn check_files(pool: &LivePool, expected: &Expected) {
    for (name, path, bytes) in expected {
        let zpl = zpl_of(pool, name).unwrap();
        let file = zpl.open_file(zpl.resolve(path).unwrap()).unwrap();
        let mut got = vec![0; bytes.len() + 1];
        assert_eq!(file.read(0, &mut got).unwrap(), bytes.len(), "{name}: {}", path.escape_ascii());
        assert!(got[..bytes.len()] == bytes[..], "{name}: {}", path.escape_ascii());
    }
}

fn snapshot(pool: &LivePool, name: &str) {
    let refused = pool.snapshot(&[name.to_owned()], &[]).unwrap();
    assert!(refused.is_empty(), "{refused:?}");
}

fn destroy_snapshot(pool: &LivePool, name: &str) {
    let refused = pool.destroy_snapshots(&[name.to_owned()], false).unwrap();
    assert!(refused.is_empty(), "{refused:?}");
}

/// Does to a pool, which is exported, what an administrator may do in its life, with a look of zdb in between.
fn live_with(lifted: &Lifted) {
    let pool = lifted.import();
    let (root, all) = (pool.name().to_owned(), file_systems(&pool));
    assert!(!all.is_empty(), "there is something to be mounted");
    let mut expected = Expected::new();
    all.iter().for_each(|name| expected.extend(write_files(&pool, name, 1)));
    end_stage(lifted, pool);

    let pool = lifted.import();
    check_files(&pool, &expected);
    let new = format!("{root}/new to cenote");
    pool.create_dataset(&new, Vec::new(), make_files).unwrap();
    expected.extend(write_files(&pool, &new, 2));
    let of_new = expected.clone();
    all.iter().chain([&new]).for_each(|name| snapshot(&pool, &format!("{name}@cenote-first")));
    all.iter().chain([&new]).for_each(|name| expected.extend(write_files(&pool, name, 3)));
    snapshot(&pool, &format!("{new}@cenote-second"));
    expected.extend(write_files(&pool, &new, 4));
    end_stage(lifted, pool);

    let pool = lifted.import();
    check_files(&pool, &expected);
    let clone = format!("{root}/clone of cenote");
    pool.clone_snapshot(&format!("{new}@cenote-second"), &clone, &[]).unwrap();
    let of_clone = write_files(&pool, &clone, 5);
    pool.promote(&clone).unwrap();
    sync(&pool);
    end_stage(lifted, pool);

    let pool = lifted.import();
    check_files(&pool, &expected);
    check_files(&pool, &of_clone);
    pool.destroy_dataset(&new).unwrap();
    destroy_snapshot(&pool, &format!("{clone}@cenote-first"));
    pool.rollback(&format!("{clone}@cenote-second")).unwrap();
    let rolled_back = of_new.into_iter().filter(|(name, ..)| *name == new);
    check_files(&pool, &rolled_back.map(|(_, path, bytes)| (clone.clone(), path, bytes)).collect());
    all.iter().for_each(|name| destroy_snapshot(&pool, &format!("{name}@cenote-first")));
    sync(&pool);
    lifted.judge(pool);

    let pool = lifted.import();
    expected.retain(|(name, ..)| *name != new);
    check_files(&pool, &expected);
    for name in &all {
        let zpl = zpl_of(&pool, name).unwrap();
        empty(&zpl, zpl.root());
    }
    sync(&pool);
    lifted.judge(pool);
}
