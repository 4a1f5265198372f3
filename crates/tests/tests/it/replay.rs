//! Intent logs, those of OpenZFS and our own: when they have been replayed, the files are as they were when the
//! power went.

mod acls;
mod in_place;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use base::{Env, Kind};
use daemon::FileRoom;
use device::{Device, FileDevice, OpenMode};
use dsl::accounting::{Counted, Owner};
use format::ids::{ObjectId, Txg};
use pool::{LivePool, PoolState};
use testkit::corpus::{self, Case};
use testkit::files::{Files, ROOT};
use testkit::manifest::Manifest;
use testkit::program;
use testkit::recording::{Loss, Recording};
use testkit::rng::Rng;
use testkit::sparse::SparseDevice;
use testkit::workload::{PoolLayout, Workload, candidate, options};
use zil::{Born, Intent, Itx, ItxBody, Rename, Renamed, Scope};
use zpl::{Allocate, FileKind, New, NewKind, RenameMode, SetAttr, SetTime, SyncMode, Whiteout, XattrMode, Zpl};

/// Opens the pool to be changed, replays the log of a file system, and exports the pool. How many records there were.
fn replay(case: &Case, dir: &Path, file_system: &str) -> u64 {
    let open = |path: std::path::PathBuf| -> Arc<dyn Device> {
        Arc::new(FileDevice::open(path.to_str().unwrap(), OpenMode::ReadWrite).unwrap())
    };
    let devices: Vec<Arc<dyn Device>> = case.images.iter().map(|image| open(dir.join(image.name()))).collect();
    let env = Env::real();
    let pool = LivePool::import(&env, &candidate(&devices).unwrap(), &options(), (7, "here".into())).unwrap();
    let id = pool.view().dsl().find(file_system).unwrap().id;
    let (head, log) = (pool.head(id).unwrap(), pool.log(id).unwrap());
    let zpl = Zpl::open_writable(head, pool.txgs().clone(), env, Default::default(), Some(log)).unwrap();
    let replayed = zpl.replay_log().unwrap().expect("it has a log");
    assert!(replayed.damage.is_none(), "{:?}", replayed.damage);
    zpl.clean_unlinked().unwrap();
    assert_eq!(zpl.replay_log().unwrap().unwrap().records, 0, "it has been replayed");
    pool.close(PoolState::Exported).unwrap();
    replayed.records
}

#[test]
fn logs_of_openzfs_are_replayed() {
    for name in ["zil", "zilslog"] {
        let case = corpus::case(name);
        let dir = tempfile::tempdir().unwrap();
        case.extract(dir.path()).unwrap();
        let (file_system, text) = case.replayed(".jsonl").pop().expect("the case has a manifest of after replay");
        // what a record does not say is of when it was replayed
        let keys = ["atime", "mtime", "ctime"];
        let expect = Manifest::parse(&text).unwrap().on_disk().without(&keys);
        let records = replay(&case, dir.path(), &file_system);
        assert!(records > 50, "{name}: {records} records");
        let path = dir.path().to_str().unwrap();
        let place = format!("{file_system}:/");
        let out = program::run(["stat", "-r", "-j", "--sha256", "-d", path, &place]).well().unwrap();
        let found = Manifest::parse(&out).unwrap();
        assert_eq!(expect.differences(&found), None, "{name}");
        println!("{name}: {records} records replayed, {} files", expect.len());
    }
}

#[test]
fn records_are_told_in_words() {
    for name in ["zil", "zilslog"] {
        let case = corpus::case(name);
        let dir = tempfile::tempdir().unwrap();
        case.extract(dir.path()).unwrap();
        let place = case.pool.clone();
        let [out, same] = ["log", "--zil"]
            .map(|what| program::run(["inspect", what, "-d", dir.path().to_str().unwrap(), &place]).well().unwrap());
        assert_eq!(out, same);
        for what in [
            "create \"new-small\" as object",
            "mkdir \"sub\" as object",
            "symlink \"symlink\" as object",
            "target \"somewhere\"",
            "link object",
            "rename \"old6\" of directory",
            "remove \"old1\" from directory",
            "rmdir \"empty-dir\" from directory",
            "write object",
            "setattr of object",
            "mode 100600",
            "uid 123",
            "size 700000",
        ] {
            assert!(out.contains(what), "{name}: no '{what}' in\n{out}");
        }
    }
}

const FILE_SYSTEM: &str = "live/home";

/// A pool in memory, with a file system whose log has begun.
struct Logged {
    recording: Arc<Recording>,
    load: Workload,
    zpl: Zpl,
}

impl Logged {
    fn new() -> Logged {
        let recording = Recording::new(vec![SparseDevice::new("disk0", 64 << 20)]);
        let devices: Vec<Arc<dyn Device>> =
            recording.devices().into_iter().map(|disk| disk as Arc<dyn Device>).collect();
        let mut load = Workload::create(&Env::fixed(1000), PoolLayout::Single, &devices, 1).unwrap();
        load.create_fs(FILE_SYSTEM, &[]).unwrap();
        let zpl = open(&load.pool, 1000);
        zpl.create(zpl.root(), b"first", &new(NewKind::File)).unwrap();
        zpl.sync().unwrap();
        Logged { recording, load, zpl }
    }

    fn synced_txg(&self) -> Txg {
        self.load.pool.txgs().synced_txg()
    }

    /// What is there after a power cut now, and replay, and how many records that took.
    fn after_cut(&self) -> (Arc<LivePool>, Zpl, u64) {
        let pool = self.cut();
        let zpl = open(&pool, 5000);
        let records = zpl.replay_log().unwrap().unwrap().records;
        zpl.clean_unlinked().unwrap();
        (pool, zpl, records)
    }

    /// The pool after a power cut now.
    fn cut(&self) -> Arc<LivePool> {
        let mut player = self.recording.play();
        player.advance(self.recording.len());
        let left = player.cut(&mut Rng::new(1), Loss::Everything);
        let left: Vec<Arc<dyn Device>> = left.into_iter().map(|disk| Arc::new(disk) as Arc<dyn Device>).collect();
        let found = candidate(&left).unwrap();
        LivePool::import(&Env::fixed(5000), &found, &options(), (7, "here".into())).unwrap()
    }
}

fn open(pool: &Arc<LivePool>, now_s: u64) -> Zpl {
    open_with(pool, now_s, Default::default())
}

fn open_with(pool: &Arc<LivePool>, now_s: u64, options: zpl::ZplOptions) -> Zpl {
    let id = pool.view().dsl().find(FILE_SYSTEM).unwrap().id;
    let (head, log) = (pool.head(id).unwrap(), pool.log(id).unwrap());
    Zpl::open_writable(head, pool.txgs().clone(), Env::fixed(now_s), options, Some(log)).unwrap()
}

fn new(kind: NewKind<'_>) -> New<'_> {
    New { kind, mode: 0o640, umask: 0, uid: 10, gid: 20 }
}

/// What has to be the same of every file after replay.
fn facts(zpl: &Zpl) -> BTreeMap<ObjectId, (Vec<u64>, Option<Vec<u8>>)> {
    let files = Files::read(zpl).unwrap();
    let of = |(&ino, node): (&ObjectId, &Arc<testkit::files::FileModel>)| {
        let stat = zpl.stat(if ino == ROOT { zpl.root() } else { ino }).unwrap();
        let born = [stat.btime.0 as u64, stat.generation, stat.rdev, stat.uid.into(), stat.gid.into()];
        let rest = [stat.mode.into(), stat.nlink, stat.size, stat.kind as u64];
        (ino, ([born.to_vec(), rest.to_vec()].concat(), (stat.kind != FileKind::Directory).then(|| node.bytes.clone())))
    };
    files.nodes.iter().map(of).collect()
}

/// Changes of every kind that OpenZFS 2.1 can replay.
fn change_everything(zpl: &Zpl) {
    let root = zpl.root();
    let make = |dir, name: &[u8], kind| zpl.create(dir, name, &new(kind)).unwrap().ino;
    let dir = make(root, b"dir", NewKind::Directory);
    let setgid = make(root, b"setgid", NewKind::Directory);
    zpl.set_attr(setgid, &SetAttr { mode: Some(0o2775), gid: Some(77), ..SetAttr::default() }).unwrap();
    let inner = make(setgid, b"inner", NewKind::Directory);
    make(inner, b"file of the group", NewKind::File);
    make(dir, b"symlink", NewKind::Symlink(b"/where/it/leads"));
    make(dir, b"fifo", NewKind::Fifo);
    make(dir, b"socket", NewKind::Socket);
    make(dir, b"device", NewKind::CharDevice(0x0506));
    let [small, large, cut] = [&b"small"[..], b"large", b"cut"].map(|name| make(dir, name, NewKind::File));
    let write = |ino, at, bytes: &[u8]| assert_eq!(zpl.open_file(ino).unwrap().write(at, bytes).unwrap(), bytes.len());
    write(small, 0, b"some bytes");
    zpl.open_file(small).unwrap().append(b", and more").unwrap();
    let bytes: Vec<u8> = (0..700_000u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
    write(large, 5000, &bytes);
    write(cut, 0, &bytes);
    let cut = zpl.open_file(cut).unwrap();
    cut.allocate(Allocate::PunchHole, 1000, 200_000).unwrap();
    cut.allocate(Allocate::PunchHole, 690_000, 1 << 30).unwrap();
    cut.allocate(Allocate::ZeroRange { keep_size: false }, 650_000, 100_000).unwrap();
    let reserved = make(dir, b"reserved", NewKind::File);
    zpl.open_file(reserved).unwrap().allocate(Allocate::Reserve { keep_size: false }, 10, 4086).unwrap();
    zpl.open_file(reserved).unwrap().allocate(Allocate::ZeroRange { keep_size: false }, 9000, 1000).unwrap();
    zpl.set_attr(large, &SetAttr { size: Some(600_001), ..SetAttr::default() }).unwrap();
    let owned = SetAttr { uid: Some(5), mode: Some(0o4751), mtime: Some(SetTime::At(77, 5)), ..SetAttr::default() };
    zpl.set_attr(small, &owned).unwrap();
    zpl.link(small, root, b"another name").unwrap();
    zpl.rename((dir, b"fifo"), (root, b"moved"), RenameMode::NoReplace).unwrap();
    zpl.rename((root, b"setgid"), (dir, b"setgid"), RenameMode::Replace).unwrap();
    let gone = zpl.rename((dir, b"socket"), (dir, b"device"), RenameMode::Replace).unwrap();
    zpl.reclaim(gone.unwrap()).unwrap();
    let removed = make(dir, b"removed", NewKind::File);
    write(removed, 0, b"nobody reads this");
    let gone = zpl.unlink(dir, b"removed").unwrap().unwrap();
    write(gone, 0, b"nor this");
    let gone = make(dir, b"removed directory", NewKind::Directory);
    assert_eq!(zpl.rmdir(dir, b"removed directory").unwrap(), gone);
    zpl.reclaim(gone).unwrap();
}

#[test]
fn every_operation_is_replayed() {
    let logged = Logged::new();
    let txg = logged.synced_txg();
    change_everything(&logged.zpl);
    logged.zpl.sync().unwrap();
    assert_eq!(logged.synced_txg(), txg, "the log served it");
    let (pool, zpl, records) = logged.after_cut();
    assert!(records > 30, "{records} records");
    let (expect, found) = (facts(&logged.zpl), facts(&zpl));
    assert_eq!(expect.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>());
    for (ino, expect) in &expect {
        let found = &found[ino];
        assert!(expect == found, "object {ino}: {:?}, not {:?}", found.0, expect.0);
    }
    let small = zpl.lookup(zpl.root(), b"another name").unwrap();
    assert_eq!(zpl.stat(small).unwrap().mtime, (77, 5));
    drop(zpl);
    pool.close(PoolState::Exported).unwrap();
}

/// What no record can say is on disk with its group when somebody asks for it; the rest does not wait.
#[test]
fn what_cannot_be_logged_waits_for_its_group() {
    let logged = Logged::new();
    let (zpl, root) = (&logged.zpl, logged.zpl.root());
    let [a, b] = [&b"a"[..], b"b"].map(|name| zpl.create(root, name, &new(NewKind::File)).unwrap().ino);
    zpl.sync().unwrap();
    let waits = |ino: ObjectId| {
        let before = logged.synced_txg();
        zpl.sync_object(ino).unwrap();
        logged.synced_txg() > before
    };
    zpl.set_xattr(a, b"user.colour", b"blue", XattrMode::Any).unwrap();
    zpl.open_file(b).unwrap().write(0, b"bytes").unwrap();
    assert!(!waits(b), "an attribute of a is nothing to b");
    assert!(waits(a), "an extended attribute");
    zpl.rename((root, b"a"), (root, b"b"), RenameMode::Exchange).unwrap();
    assert!(waits(root), "names that were exchanged");
    let whiteout = RenameMode::Whiteout(Whiteout { replaces: false, uid: 10, gid: 20 });
    zpl.rename((root, b"first"), (root, b"moved"), whiteout).unwrap();
    assert!(waits(root), "a name that a whiteout has now");
    let unnamed = zpl.create_unnamed(root, &new(NewKind::File)).unwrap().ino;
    zpl.open_file(unnamed).unwrap().write(0, b"was there before the name").unwrap();
    assert!(!waits(unnamed), "it is gone after a crash, whatever is in it");
    zpl.link(unnamed, root, b"named").unwrap();
    assert!(waits(unnamed), "the first name of a file");
    let (_pool, again, _) = logged.after_cut();
    assert_eq!(again.xattr(a, b"user.colour").unwrap(), b"blue");
    assert_eq!((again.lookup(root, b"a").unwrap(), again.lookup(root, b"b").unwrap()), (b, a));
    let mut bytes = [0; 25];
    assert_eq!(again.open_file(again.lookup(root, b"named").unwrap()).unwrap().read(0, &mut bytes).unwrap(), 25);
    assert_eq!(&bytes, b"was there before the name");
    let left = again.stat(again.lookup(root, b"first").unwrap()).unwrap();
    assert_eq!((left.kind, left.rdev, again.lookup(root, b"moved").is_ok()), (FileKind::CharDevice, 0, true));
}

/// Records of renames with whiteouts, as OpenZFS writes them since 2.2.
#[test]
fn whiteouts_are_replayed() {
    let logged = Logged::new();
    let (zpl, pool, root) = (&logged.zpl, &logged.load.pool, logged.zpl.root());
    let dir = zpl.create(root, b"dir", &new(NewKind::Directory)).unwrap().ino;
    let [gone, moved] = [&b"gone"[..], b"moved"].map(|name| zpl.create(dir, name, &new(NewKind::File)).unwrap().ino);
    pool.sync().unwrap();
    let log = pool.log(pool.view().dsl().find(FILE_SYSTEM).unwrap().id).unwrap();
    let number = ObjectId::new(moved.get() + 1000);
    let push = |from: (ObjectId, &[u8]), to: (ObjectId, &[u8]), mode| {
        let born = Born { object: number, slots: 1, mode, uid: 3, gid: 4, generation: 9, crtime: [77, 5], rdev: 0 };
        let intent = Intent::Rename(Rename { from, to, how: Renamed::Whiteout(born) });
        let body = ItxBody::Record { kind: intent.kind(), bytes: intent.bytes() };
        log.push(&pool.txgs().begin().unwrap(), Itx { scope: Scope::Names, body });
        zpl.sync().unwrap();
    };
    push((dir, b"moved"), (dir, b"gone"), 0o020000);
    let (again, replayed, records) = logged.after_cut();
    assert_eq!(records, 1);
    assert_eq!((replayed.lookup(dir, b"gone").unwrap(), replayed.stat(gone).is_err()), (moved, true));
    let left = replayed.stat(replayed.lookup(dir, b"moved").unwrap()).unwrap();
    assert_eq!((left.ino, left.kind, left.rdev, left.mode & 0o7777), (number, FileKind::CharDevice, 0, 0));
    assert_eq!((left.uid, left.gid, left.nlink, left.btime, left.generation), (3, 4, 1, (77, 5), 9));
    assert_eq!(replayed.stat(dir).unwrap().size, 4);
    again.sync().unwrap();
    drop((replayed, again));
    // one that is no device
    push((root, b"first"), (root, b"other"), 0o100000);
    let error = open(&logged.cut(), 5000).replay_log().unwrap_err();
    assert!(error.to_string().contains("of type 23 cannot be replayed"), "{error}");
}

#[test]
fn the_property_says_what_syncing_means() {
    let logged = Logged::new();
    let (zpl, root) = (&logged.zpl, logged.zpl.root());
    let with = |sync| zpl.set_options(zpl::ZplOptions { sync, ..zpl::ZplOptions::default() }).unwrap();
    with(SyncMode::Always);
    let txg = logged.synced_txg();
    let ino = zpl.create(root, b"always", &new(NewKind::File)).unwrap().ino;
    zpl.open_file(ino).unwrap().write(0, b"here").unwrap();
    with(SyncMode::Disabled);
    zpl.create(root, b"never", &new(NewKind::File)).unwrap();
    zpl.sync().unwrap();
    assert_eq!(logged.synced_txg(), txg);
    let (_pool, again, _) = logged.after_cut();
    assert_eq!(again.stat(again.lookup(root, b"always").unwrap()).unwrap().size, 4);
    assert!(again.lookup(root, b"never").is_err());
    with(SyncMode::Standard);
    zpl.sync().unwrap();
    let (_pool, again, _) = logged.after_cut();
    again.lookup(root, b"never").unwrap();
}

/// What was promised is done again, also for owners who have used up what they may.
#[test]
fn limits_of_owners_keep_nothing_from_being_replayed() {
    let logged = Logged::new();
    let (zpl, pool) = (&logged.zpl, &logged.load.pool);
    let create = |zpl: &Zpl, name: &[u8], uid| {
        let new = New { uid, ..new(NewKind::File) };
        zpl.create(zpl.root(), name, &new).map(|stat| stat.ino)
    };
    let write = |zpl: &Zpl, ino: ObjectId| zpl.open_file(ino)?.write(128 << 10, &[7; 256 << 10]);
    let (mine, given) = (create(zpl, b"mine", 10).unwrap(), create(zpl, b"given", 11).unwrap());
    write(zpl, mine).unwrap();
    pool.sync().unwrap();
    pool.set_owner_limit(FILE_SYSTEM, Owner::User, Counted::Bytes, &(String::new(), 10), 1).unwrap();
    // this file system asks nobody, so there are records beyond the limit
    let to_me = SetAttr { uid: Some(10), ..SetAttr::default() };
    zpl.set_attr(given, &to_me).unwrap();
    zpl.open_file(mine).unwrap().append(b"more").unwrap();
    zpl.open_file(mine).unwrap().allocate(Allocate::Reserve { keep_size: false }, 0, 900_000).unwrap();
    let late = create(zpl, b"late", 10).unwrap();
    write(zpl, late).unwrap();
    zpl.sync().unwrap();
    let expect = facts(zpl);
    let after = logged.cut();
    let id = after.view().dsl().find(FILE_SYSTEM).unwrap().id;
    let room = Arc::new(FileRoom(after.open_head(id).unwrap()));
    let zpl = open_with(&after, 5000, zpl::ZplOptions { room, ..Default::default() });
    assert!(create(&zpl, b"early", 10).is_err_and(|e| e.kind() == Kind::Quota), "the limit is there before replay");
    assert_eq!(zpl.replay_log().unwrap().unwrap().records, 6);
    assert_eq!(facts(&zpl), expect);
    // and holds again
    let other = create(&zpl, b"other", 11).unwrap();
    let refused = [create(&zpl, b"latest", 10), zpl.set_attr(other, &to_me).map(|stat| stat.ino)];
    let written = [write(&zpl, late), write(&zpl, other)].map(|written| written.map_err(|e| e.kind()));
    assert!(refused.iter().all(|done| done.as_ref().is_err_and(|e| e.kind() == Kind::Quota)), "{refused:?}");
    assert_eq!(written, [Err(Kind::Quota), Ok(256 << 10)]);
}
