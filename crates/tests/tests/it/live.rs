//! Pools that Cenote makes and changes, opened again by Cenote and judged by zdb, if that is there.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use base::Env;
use daemon::FileRoom;
use device::{Device, FileDevice, OpenMode};
use dmu::{Objset, Tx};
use dsl::accounting::{Counted, Owner};
use format::ids::{Guid, ObjectId};
use pool::{Candidate, LivePool, NewLeaf, NewPool, NewVdev, NewVdevShape, OpenOptions, Pool, PoolState, discover};
use testkit::workload::FEATURES;
use zpl::{Allocate, New, NewFs, NewKind, Zpl, create_fs};

/// Features beside those of every test: objects are counted by owner and project.
const ACCOUNTING: [&str; 2] = ["org.zfsonlinux:userobj_accounting", "org.zfsonlinux:project_quota"];

pub(super) fn new_pool(dir: &Path, shape: NewVdevShape, leaves: usize) -> (NewPool, HashMap<PathBuf, Arc<dyn Device>>) {
    let paths: Vec<PathBuf> = (0..leaves).map(|i| dir.join(format!("disk{i}"))).collect();
    let mut devices: HashMap<PathBuf, Arc<dyn Device>> = HashMap::new();
    for path in &paths {
        std::fs::File::create(path).unwrap().set_len(256 << 20).unwrap();
        let device = FileDevice::open(path.to_str().unwrap(), OpenMode::ReadWrite).unwrap();
        devices.insert(path.clone(), Arc::new(device));
    }
    let new = NewPool {
        name: "live".into(),
        temporary_name: None,
        vdevs: vec![NewVdev {
            shape,
            bias: None,
            leaves: paths.into_iter().map(|path| NewLeaf { path: path.display().to_string(), is_file: true }).collect(),
        }],
        spares: Vec::new(),
        caches: Vec::new(),
        ashift: Some(12),
        features: FEATURES.iter().chain(&ACCOUNTING).map(|guid| (*guid).to_owned()).collect(),
        properties: Vec::new(),
        fs_properties: Vec::new(),
        history: "zpool create live".into(),
        host: (7, "here".into()),
    };
    (new, devices)
}

/// What zdb says of the pool; `None` if it is not there.
fn zdb(dir: &Path, args: &[&str]) -> Option<(bool, String)> {
    let output = Command::new("zdb").args(["-e", "-p"]).arg(dir).args(args).arg("live").output().ok()?;
    let text = [output.stdout, output.stderr].map(|raw| String::from_utf8_lossy(&raw).into_owned()).concat();
    Some((output.status.success(), text))
}

/// Lets zdb verify every block of a pool of that name, if it is there.
pub(super) fn judge_called(dir: &Path, name: &str) {
    let Ok(output) = Command::new("zdb").args(["-e", "-p"]).arg(dir).args(["-bcc", name]).output() else { return };
    let text = [output.stdout, output.stderr].map(|raw| String::from_utf8_lossy(&raw).into_owned()).concat();
    let is_well = output.status.success() && text.contains("No leaks") && !text.contains("mismatch");
    assert!(is_well, "{text}");
}

/// The pool that is on the devices now, as a reader finds it.
pub(super) fn reopen(dir: &Path) -> Pool {
    let env = Env::real();
    let found = discover(&env, &[dir.to_path_buf()]).unwrap();
    let candidate = Candidate::pick(&Candidate::all(&found), "live").unwrap();
    Pool::open(&env, &candidate, &OpenOptions::default()).unwrap()
}

/// Whether zdb is that of OpenZFS 2.4, by the environment variable `JUDGE`: pools with newer features can be shown to it.
pub(super) fn is_newer_judge() -> bool {
    std::env::var("JUDGE").is_ok_and(|judge| judge == "2.4")
}

/// Lets zdb verify every block and every object, if it is there.
pub(super) fn judge(dir: &Path) {
    if let Some((is_well, text)) = zdb(dir, &["-bcc"]) {
        assert!(is_well && text.contains("No leaks") && !text.contains("checksum error"), "{text}");
        let (is_well, text) = zdb(dir, &["-dddd"]).unwrap();
        assert!(is_well && !text.contains("ERROR"), "{text}");
    }
}

pub(super) fn make_fs(objset: &Arc<Objset>, tx: &Tx<'_>, now_s: u64) -> base::Result<()> {
    create_fs(objset, tx, &NewFs { now: (now_s, 0), salt: 5, ..NewFs::default() })
}

#[test]
fn files_are_there_after_export() {
    for (shape, leaves) in [(NewVdevShape::Single, 1), (NewVdevShape::Mirror, 2), (NewVdevShape::Raidz(1), 3)] {
        let dir = tempfile::tempdir().unwrap();
        let (new, devices) = new_pool(dir.path(), shape, leaves);
        let env = Env::real();
        let pool = LivePool::create(&env, &new, &devices, |set, tx, _| make_fs(set, tx, 7)).unwrap();
        pool.start();
        pool.create_dataset("live/sub", vec![("compression".into(), "zstd".into())], |set, tx, _| make_fs(set, tx, 8))
            .unwrap();
        let mut expect: Vec<(&str, Vec<u8>, Vec<u8>)> = Vec::new();
        for name in ["live", "live/sub"] {
            let id = pool.view().dsl().find(name).unwrap().id;
            let set = pool.head(id).unwrap();
            let zpl = Zpl::open_writable(set, pool.txgs().clone(), env.clone(), Default::default(), None).unwrap();
            let directory = New { kind: NewKind::Directory, mode: 0o755, umask: 0, uid: 1000, gid: 100 };
            let d = zpl.create(zpl.root(), b"dir", &directory).unwrap().ino;
            for i in 0..500usize {
                let file = New { kind: NewKind::File, mode: 0o644, umask: 0, uid: 1000 + i as u32 % 3, gid: 100 };
                let path = format!("file-{i}");
                let ino = zpl.create(d, path.as_bytes(), &file).unwrap().ino;
                let bytes: Vec<u8> = (0..i * i * 7 % 300_000).map(|n| (n * i / 11) as u8).collect();
                assert_eq!(zpl.open_file(ino).unwrap().write(0, &bytes).unwrap(), bytes.len());
                expect.push((name, format!("/dir/{path}").into_bytes(), bytes));
                if i % 150 == 149 {
                    pool.sync().unwrap();
                }
            }
            for i in (0..500).step_by(7) {
                let name_of = format!("file-{i}");
                let gone = zpl.unlink(d, name_of.as_bytes()).unwrap().unwrap();
                zpl.reclaim(gone).unwrap();
                expect.retain(|(of, path, _)| *of != name || path[..] != *format!("/dir/{name_of}").as_bytes());
            }
        }
        pool.close(PoolState::Exported).unwrap();
        drop((pool, devices));
        let pool = reopen(dir.path());
        for (name, path, bytes) in &expect {
            let dataset = pool.dsl().find(name).unwrap();
            let zpl = Zpl::open(pool.dsl().objset(&dataset, dmu::Mode::Plain).unwrap()).unwrap();
            let file = zpl.open_file(zpl.resolve(path).unwrap()).unwrap();
            let mut got = vec![0; bytes.len() + 1];
            assert_eq!(file.read(0, &mut got).unwrap(), bytes.len());
            assert!(got[..bytes.len()] == bytes[..], "{}", path.escape_ascii());
        }
        drop(pool);
        judge(dir.path());
    }
}

/// A pool without features gets all of them, and another guid, while it is used under another name.
/// Such a thread would look for work all the while, and keep the devices open.
#[test]
fn a_pool_that_is_given_up_leaves_no_thread() {
    let dir = tempfile::tempdir().unwrap();
    let (new, devices) = new_pool(dir.path(), NewVdevShape::Single, 1);
    let pool = LivePool::create(&Env::real(), &new, &devices, |set, tx, _| make_fs(set, tx, 7)).unwrap();
    pool.start();
    pool.sync().unwrap();
    let rest = Arc::downgrade(&pool);
    pool.abandon();
    drop(pool);
    let has_gone = || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        rest.upgrade().is_none()
    };
    assert!((0..400).any(|_| has_gone()), "its threads go on");
}

#[test]
fn features_and_guid_change_while_files_do() {
    let dir = tempfile::tempdir().unwrap();
    let (with_features, devices) = new_pool(dir.path(), NewVdevShape::Mirror, 2);
    let new = NewPool { features: Vec::new(), temporary_name: Some("other".into()), ..with_features.clone() };
    let env = Env::real();
    let pool = LivePool::create(&env, &new, &devices, |set, tx, _| make_fs(set, tx, 7)).unwrap();
    pool.start();
    assert_eq!(pool.view().name(), "other");
    let id = pool.view().dsl().find("other").unwrap().id;
    let zpl =
        Zpl::open_writable(pool.head(id).unwrap(), pool.txgs().clone(), env.clone(), Default::default(), None).unwrap();
    let file = New { kind: NewKind::File, mode: 0o644, umask: 0, uid: 0, gid: 0 };
    let ino = zpl.create(zpl.root(), b"file", &file).unwrap().ino;
    let open = zpl.open_file(ino).unwrap();
    let mut expect = vec![7u8; 8 << 20];
    open.write(0, &expect).unwrap();
    pool.sync().unwrap();
    assert_eq!(pool.view().features().guids().count(), 0);

    pool.enable_features(with_features.features.clone()).unwrap();
    pool.enable_features(with_features.features.clone()).unwrap();
    assert_eq!(pool.view().features().guids().count(), with_features.features.len());
    let state = |guid| pool.view().features().state(guid);
    assert_eq!(state("com.delphix:hole_birth"), pool::FeatureState::Active);
    assert_eq!(state("org.illumos:skein"), pool::FeatureState::Enabled);
    let before = pool.view().guid();
    pool.change_guid(Some(Guid::new(4711))).unwrap();
    assert_eq!(pool.view().guid(), Guid::new(4711));
    pool.change_guid(None).unwrap();
    let guid = pool.view().guid();
    assert!(guid != Guid::new(4711) && guid != before);
    // a hole that knows when it was made, in place of what was there before there were such
    open.allocate(Allocate::PunchHole, 1 << 20, 4 << 20).unwrap();
    expect[1 << 20..5 << 20].fill(0);
    pool.create_dataset("other/sub", vec![("checksum".into(), "skein".into())], |set, tx, _| make_fs(set, tx, 8))
        .unwrap();
    pool.close(PoolState::Exported).unwrap();
    drop((zpl, open, pool, devices));

    let pool = reopen(dir.path());
    assert_eq!((pool.name(), pool.guid()), ("live", guid));
    let dataset = pool.dsl().find("live").unwrap();
    let zpl = Zpl::open(pool.dsl().objset(&dataset, dmu::Mode::Plain).unwrap()).unwrap();
    let mut got = vec![0; expect.len()];
    assert_eq!(zpl.open_file(zpl.resolve(b"/file").unwrap()).unwrap().read(0, &mut got).unwrap(), got.len());
    assert!(got == expect);
    drop((zpl, dataset, pool));
    judge(dir.path());
}

#[test]
fn owners_have_limits() {
    let dir = tempfile::tempdir().unwrap();
    let (new, devices) = new_pool(dir.path(), NewVdevShape::Single, 1);
    let env = Env::real();
    let pool = LivePool::create(&env, &new, &devices, |set, tx, _| make_fs(set, tx, 7)).unwrap();
    pool.start();
    pool.set_property("live", "compression", "off").unwrap();
    let id = pool.view().dsl().find("live").unwrap().id;
    let options =
        zpl::ZplOptions { room: Arc::new(FileRoom(pool.open_head(id).unwrap())), ..zpl::ZplOptions::default() };
    let zpl = Zpl::open_writable(pool.head(id).unwrap(), pool.txgs().clone(), env.clone(), options, None).unwrap();
    let create = |name: &str, uid| {
        let new = New { kind: NewKind::File, mode: 0o644, umask: 0, uid, gid: 100 };
        zpl.create(zpl.root(), name.as_bytes(), &new).map(|stat| stat.ino)
    };
    let write = |ino: ObjectId, offset: u64| zpl.open_file(ino).unwrap().write(offset, &[7; 1 << 20]);
    let limit = |owner, counted, who: u64, limit| {
        pool.set_owner_limit("live", owner, counted, &(String::new(), who), limit).unwrap();
    };
    let is_refused = |error: base::Error| assert_eq!(error.kind(), base::Kind::Quota, "{error}");
    let (mine, other) = (create("mine", 1000).unwrap(), create("other", 1001).unwrap());
    write(mine, 0).unwrap();
    limit(Owner::User, Counted::Bytes, 1000, 512 << 10);
    is_refused(write(mine, 1 << 20).unwrap_err());
    is_refused(zpl.open_file(mine).unwrap().append(&[1; 10]).unwrap_err());
    is_refused(create("more", 1000).unwrap_err());
    let to_me = zpl::SetAttr { uid: Some(1000), ..zpl::SetAttr::default() };
    is_refused(zpl.set_attr(other, &to_me).unwrap_err());
    write(other, 0).unwrap();
    limit(Owner::User, Counted::Bytes, 1000, 16 << 20);
    write(mine, 1 << 20).unwrap();
    zpl.set_attr(other, &to_me).unwrap();
    pool.sync().unwrap();
    // by group, and by number: two files, and the root is another one's
    limit(Owner::Group, Counted::Objects, 100, 2);
    is_refused(create("third", 1002).unwrap_err());
    write(mine, 2 << 20).unwrap();
    limit(Owner::Group, Counted::Objects, 100, 3);
    let third = create("third", 1002).unwrap();
    limit(Owner::Group, Counted::Bytes, 100, 1 << 20);
    is_refused(write(third, 0).unwrap_err());
    limit(Owner::Group, Counted::Bytes, 100, 0);
    write(third, 0).unwrap();
    // what is freed is there for others
    limit(Owner::User, Counted::Bytes, 1002, 1 << 20);
    is_refused(write(third, 0).unwrap_err());
    zpl.set_attr(third, &zpl::SetAttr { size: Some(0), ..zpl::SetAttr::default() }).unwrap();
    pool.sync().unwrap();
    write(third, 0).unwrap();
    pool.close(PoolState::Exported).unwrap();
    drop((zpl, pool, devices));
    judge(dir.path());
}
