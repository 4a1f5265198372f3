//! A pool in which OpenZFS 2.4 cloned blocks is changed: its clone tables follow, and no block leaks or is lost.

use std::collections::HashMap;
use std::sync::Arc;

use base::Env;
use device::{Device, FileDevice, OpenMode};
use dmu::traverse::Visit;
use format::blkptr::BlkPtr;
use pool::check::{BlockKind, CheckOptions, Observer, Verify};
use pool::{Clones, LivePool, Pool, PoolState};
use testkit::corpus;
use testkit::recording::{Loss, Recording};
use testkit::rng::Rng;
use testkit::sparse::SparseDevice;
use testkit::workload::{PoolLayout, Workload, candidate, options};
use zil::{Intent, Itx, ItxBody, Scope};
use zpl::{FileKind, Zpl};

use crate::dedup::{empty, names_in, sparse};

/// Pointers to each block of data: its place, and bytes of it.
#[derive(Default)]
struct Pointers {
    found: HashMap<[u64; 2], (u64, u64)>,
    tree: Option<Arc<vdev::Tree>>,
}

impl Observer for Pointers {
    fn block(&mut self, visit: &Visit<'_>, _kind: BlockKind) {
        let (bp, tree) = (visit.bp, self.tree.as_ref().unwrap());
        if bp.level() > 0 || bp.object_type().is_metadata() || bp.is_dedup() || bp.copies().count() == 0 {
            return;
        }
        let bytes: u64 = bp.copies().map(|dva| tree.deflate(dva.vdev(), dva.asize()).unwrap()).sum();
        self.found.entry(bp.dvas()[0].words()).or_insert((bytes, 0)).1 += 1;
    }
}

/// The tables are what a walk through the pool finds, and all that is allocated is some block's.
fn check(view: &Pool) -> Clones {
    let mut pointers = Pointers { tree: Some(view.tree().clone()), ..Pointers::default() };
    let report = view.check(CheckOptions { verify: Verify::All, space: true }, &mut pointers).unwrap();
    assert_eq!((report.leaks, report.unallocated_blocks, report.lost_parts), (Vec::new(), 0, 0));
    assert_eq!((report.found_bytes, report.lost_blocks), (report.allocated_bytes, Vec::new()));
    let cloned = pointers.found.values().filter(|(_, count)| *count > 1);
    let (mut used_bytes, mut saved_bytes) = (0, 0);
    cloned
        .for_each(|(bytes, count)| (used_bytes, saved_bytes) = (used_bytes + bytes, saved_bytes + bytes * (count - 1)));
    let clones = view.clones().unwrap();
    assert_eq!(clones, Clones { used_bytes, saved_bytes });
    clones
}

fn import(device: Arc<dyn Device>) -> Arc<LivePool> {
    LivePool::import(&Env::real(), &candidate(&[device]).unwrap(), &options(), (7, "here".into())).unwrap()
}

fn file_systems(pool: &LivePool) -> Vec<Zpl> {
    let view = pool.view();
    let dirs = view.dsl().walk().unwrap();
    let is_set = |name: &&str| pool.head(view.dsl().find(name).unwrap().id).is_ok();
    let names: Vec<&str> = dirs.iter().map(|dir| dir.name.as_str()).filter(is_set).collect();
    let open = |name: &&str| {
        let id = view.dsl().find(name).unwrap().id;
        let head = pool.head(id).unwrap();
        Zpl::open_writable(head, pool.txgs().clone(), Env::real(), Default::default(), None).ok()
    };
    names.iter().filter_map(open).collect()
}

fn sync(pool: &LivePool) {
    (0..3).for_each(|_| pool.sync().unwrap());
}

#[test]
fn clone_tables_follow_what_is_freed() {
    let dir = tempfile::tempdir().unwrap();
    corpus::case("cloned").extract(dir.path()).unwrap();
    let path = dir.path().join("vda.img");
    let pool = import(Arc::new(FileDevice::open(path.to_str().unwrap(), OpenMode::ReadWrite).unwrap()));
    let begin = check(&pool.view());
    assert!(begin.used_bytes > 0 && begin.saved_bytes > 0, "{begin:?}");
    // parts of files are written over, and cut off; one file after the other goes
    let (mut seen, mut number) = (std::collections::BTreeSet::new(), 0);
    for zpl in file_systems(&pool) {
        for (_, ino) in names_in(&zpl, zpl.root()) {
            let stat = zpl.stat(ino).unwrap();
            if stat.kind == FileKind::File && stat.size > 1000 {
                number += 1;
                let file = zpl.open_file(ino).unwrap();
                match number % 2 {
                    0 => drop(file.write(500, b"other bytes").unwrap()),
                    _ => file.allocate(zpl::Allocate::PunchHole, 0, stat.size / 2).unwrap(),
                }
                sync(&pool);
                seen.insert(check(&pool.view()).saved_bytes);
            }
        }
    }
    for zpl in file_systems(&pool) {
        empty(&zpl, zpl.root());
        sync(&pool);
        seen.insert(check(&pool.view()).saved_bytes);
    }
    assert!(seen.len() > 2, "{seen:?}");
    // the rest is in a snapshot
    drop(pool.destroy_snapshots(&["t_cloned/a@s".to_owned()], false).unwrap());
    for _ in 0..10 {
        sync(&pool);
        check(&pool.view());
    }
    assert_eq!(pool.view().clones().unwrap(), Clones::default());
    let directory = pool::object_directory(pool.view().mos()).unwrap().entries().unwrap();
    assert!(!directory.iter().any(|entry| entry.name.to_string().contains(":brt:")), "the tables are gone");
    pool.close(PoolState::Exported).unwrap();
}

/// Whenever the power is cut, the tables are what the pool has.
#[test]
fn a_power_cut_while_clones_are_freed() {
    let recording = Recording::new(vec![sparse("cloned")]);
    let pool = import(recording.devices()[0].clone());
    let begin = recording.len();
    let all = check(&pool.view());
    for zpl in file_systems(&pool) {
        for (name, ino) in names_in(&zpl, zpl.root()) {
            if zpl.stat(ino).unwrap().kind == FileKind::File {
                zpl.unlink(zpl.root(), &name).unwrap().into_iter().for_each(|ino| zpl.reclaim(ino).unwrap());
                pool.sync().unwrap();
            }
        }
    }
    let (end, mut rng) = (recording.len(), Rng::new(11));
    drop(pool);
    let mut left = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let at = begin + rng.below((end - begin) as u64) as usize;
        let device: Arc<dyn Device> = Arc::new(recording.cut(at, &mut rng, Loss::Some).remove(0));
        let found = candidate(std::slice::from_ref(&device)).unwrap();
        left.insert(check(&Pool::open(&Env::real(), &found, &options()).unwrap()).saved_bytes);
        let pool = import(device);
        file_systems(&pool).iter().for_each(|zpl| empty(zpl, zpl.root()));
        sync(&pool);
        check(&pool.view());
    }
    assert!(left.len() > 1 && left.iter().all(|saved| *saved <= all.saved_bytes), "{left:?}");
}

/// What a log tells of clones is not counted when the log is claimed, so it is for others to claim.
#[test]
fn a_log_that_tells_of_clones() {
    let recording = Recording::new(vec![SparseDevice::new("disk0", 64 << 20)]);
    let disks: Vec<Arc<dyn Device>> = recording.devices().into_iter().map(|disk| disk as Arc<dyn Device>).collect();
    let mut load = Workload::create(&Env::fixed(1000), PoolLayout::Single, &disks, 1).unwrap();
    load.create_fs("live/home", &[]).unwrap();
    let id = load.pool.view().dsl().find("live/home").unwrap().id;
    let (head, log, txgs) = (load.pool.head(id).unwrap(), load.pool.log(id).unwrap(), load.pool.txgs().clone());
    let zpl = Zpl::open_writable(head, txgs.clone(), Env::fixed(5000), Default::default(), Some(log.clone())).unwrap();
    let create = |name: &[u8]| {
        let new = zpl::New { kind: zpl::NewKind::File, mode: 0o644, umask: 0, uid: 0, gid: 0 };
        zpl.create(zpl.root(), name, &new).unwrap();
        zpl.sync().unwrap();
    };
    // the log begins with a group
    create(b"first");
    create(b"second");
    let import = || {
        let device = Arc::new(recording.cut(recording.len(), &mut Rng::new(1), Loss::Everything).remove(0));
        LivePool::import(
            &Env::real(),
            &candidate(&[device as Arc<dyn Device>]).unwrap(),
            &options(),
            (7, "here".into()),
        )
    };
    assert!(import().is_ok());
    let clone = Intent::Clone { object: 2, offset: 0, len: 4096, block_size: 4096, blocks: vec![BlkPtr::HOLE] };
    let body = ItxBody::Record { kind: clone.kind(), bytes: clone.bytes() };
    log.push(&txgs.begin().unwrap(), Itx { scope: Scope::Names, body });
    create(b"third");
    let error = import().err().expect("the pool was imported for writing");
    assert_eq!(error.kind(), base::Kind::ReadOnly, "{error}");
    assert!(error.to_string().contains("clones of blocks"), "{error}");
}
