//! What properties of datasets do on disk: where blocks lie, how many copies they have, how large dnodes are, which
//! features count them, who is refused. zdb judges the pools, if it is there.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Env, Error, Kind};
use daemon::FileRoom;
use device::{Device, FileDevice, OpenMode};
use dmu::Which;
use dmu::traverse::{Descend, Range, Visit, Visitor, traverse};
use dsl::accounting::{Counted, Owner, OwnerId};
use dsl::write::file_system_options;
use format::dnode::SLOT_SIZE;
use format::ids::{DatasetId, ObjectId, VdevNumber};
use format::object_type::ObjectType;
use pool::{LivePool, NewLeaf, NewVdev, NewVdevShape, PoolState};
use vdev::spec::Bias;
use zpl::{New, NewKind, Zpl};

use crate::live::{judge, make_fs, new_pool};

const LARGE_DNODE: &str = "org.zfsonlinux:large_dnode";

struct World {
    dir: tempfile::TempDir,
    env: Env,
    pool: Arc<LivePool>,
    _devices: HashMap<PathBuf, Arc<dyn Device>>,
}

impl World {
    /// A pool on one disk, and on one for special contents.
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let (mut new, mut devices) = new_pool(dir.path(), NewVdevShape::Single, 1);
        let path = dir.path().join("special");
        std::fs::File::create(&path).unwrap().set_len(128 << 20).unwrap();
        let device = FileDevice::open(path.to_str().unwrap(), OpenMode::ReadWrite).unwrap();
        devices.insert(path.clone(), Arc::new(device));
        let leaves = vec![NewLeaf { path: path.display().to_string(), is_file: true }];
        new.vdevs.push(NewVdev { shape: NewVdevShape::Single, bias: Some(Bias::Special), leaves });
        new.features.push(LARGE_DNODE.to_owned());
        let env = Env::real();
        let pool = LivePool::create(&env, &new, &devices, |set, tx, _| make_fs(set, tx, 7)).unwrap();
        pool.start();
        World { dir, env, pool, _devices: devices }
    }

    fn create(&self, name: &str, properties: &[(&str, &str)]) {
        let properties = properties.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        self.pool.create_dataset(name, properties, |set, tx, _| make_fs(set, tx, 8)).unwrap();
    }

    fn id(&self, name: &str) -> DatasetId {
        self.pool.view().dsl().find(name).unwrap().id
    }

    /// The file system, as its properties say.
    fn open(&self, name: &str) -> Zpl {
        let (view, id) = (self.pool.view(), self.id(name));
        let settings = file_system_options(view.dsl().subject(name).unwrap().levels(), view.features().enabled());
        let options = zpl::ZplOptions {
            record_bytes: settings.record_size,
            dnode_slots: settings.dnode_size as usize / SLOT_SIZE,
            room: Arc::new(FileRoom(self.pool.open_head(id).unwrap())),
            ..zpl::ZplOptions::default()
        };
        let set = self.pool.head(id).unwrap();
        Zpl::open_writable(set, self.pool.txgs().clone(), self.env.clone(), options, None).unwrap()
    }

    fn uses(&self, feature: &str) -> u64 {
        self.pool.view().features().uses(feature)
    }

    /// All blocks of a dataset on disk.
    fn blocks(&self, name: &str) -> Vec<Seen> {
        self.pool.sync().unwrap();
        let dataset = self.pool.view().dsl().find(name).unwrap();
        let mut all = All(Vec::new());
        let cache = self.pool.view().cache().clone();
        assert!(traverse(&cache, dataset.id, &dataset.phys.bp, Range::default(), &mut all).is_continue());
        all.0
    }

    /// Ends the pool, and lets zdb have a look.
    fn end(self) {
        self.pool.close(PoolState::Exported).unwrap();
        judge(self.dir.path());
    }
}

/// A block: number of its object, type, level, bytes of it and of those on disk, numbers of compression and
/// checksum, vdevs of its copies.
struct Seen {
    object: ObjectId,
    kind: ObjectType,
    level: u8,
    lsize: u64,
    psize: u64,
    how: (u8, u8),
    vdevs: Vec<VdevNumber>,
}

struct All(Vec<Seen>);

impl Visitor for All {
    fn block(&mut self, visit: &Visit<'_>) -> ControlFlow<(), Descend> {
        let bp = visit.bp;
        if !bp.is_embedded() {
            self.0.push(Seen {
                object: visit.object(),
                kind: bp.object_type(),
                level: bp.level(),
                lsize: bp.lsize(),
                psize: bp.psize(),
                how: (bp.compress(), bp.checksum_kind()),
                vdevs: bp.copies().map(|dva| dva.vdev()).collect(),
            });
        }
        ControlFlow::Continue(Descend::Below)
    }

    fn lost(&mut self, error: Error) {
        panic!("{error}");
    }
}

fn file(zpl: &Zpl, name: &str, uid: u32, contents: &[u8]) -> base::Result<ObjectId> {
    let new = New { kind: NewKind::File, mode: 0o644, umask: 0, uid, gid: 100 };
    let ino = zpl.create(zpl.root(), name.as_bytes(), &new)?.ino;
    zpl.open_file(ino)?.write(0, contents)?;
    Ok(ino)
}

/// Bytes that no compression makes smaller.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len).map(|_| byte()).collect()
}

#[test]
fn blocks_are_as_properties_say() {
    let world = World::new();
    world.create("live/a", &[]);
    // each compression makes it smaller, and none so small that the pointer could hold it
    let text: Vec<u8> = noise(220_096).chunks(16).flat_map(|part| [part, &[0; 16]].concat()).collect();
    let mut number = 0;
    let mut written = |name: &str, value: &str| {
        world.pool.set_property("live/a", name, value).unwrap();
        number += 1;
        let ino = file(&world.open("live/a"), &format!("f{number}"), 0, &text).unwrap();
        let seen = world.blocks("live/a").into_iter().find(|seen| seen.object == ino && seen.level == 0);
        seen.expect("a block of the file")
    };
    // numbers of OpenZFS: 15 is lz4, which is the default; 7 is fletcher4
    assert_eq!(written("atime", "off").how, (15, 7));
    for (value, compress) in [("lzjb", 3), ("gzip", 10), ("gzip-9", 13), ("zle", 14), ("zstd", 16), ("on", 15)] {
        let seen = written("compression", value);
        assert_eq!((seen.how.0, seen.psize < seen.lsize), (compress, true), "{value}");
    }
    let off = written("compression", "off");
    assert_eq!((off.how.0, off.psize), (2, 128 << 10));
    for (value, checksum) in [("fletcher2", 6), ("sha256", 8), ("sha512", 11), ("skein", 12), ("edonr", 13), ("on", 7)]
    {
        assert_eq!(written("checksum", value).how.1, checksum, "{value}");
    }
    for (value, copies) in [("2", 2), ("3", 3), ("1", 1)] {
        assert_eq!(written("copies", value).vdevs.len(), copies);
    }
    for (value, bytes) in [("512", 512), ("8K", 8 << 10), ("1M", 440_320)] {
        assert_eq!(written("recordsize", value).lsize, bytes, "{value}");
    }
    world.end();
}

#[test]
fn what_the_cache_keeps() {
    let world = World::new();
    world.create("live/a", &[("compression", "off")]);
    let zpl = world.open("live/a");
    // more than a group leaves in the cache
    let ino = file(&zpl, "f", 0, &noise(24 << 20)).unwrap();
    world.pool.sync().unwrap();
    let (cache, open) = (world.pool.view().cache().clone(), zpl.open_file(ino).unwrap());
    let misses = || cache.arcstats().iter().find(|(name, _)| *name == "demand_data_misses").unwrap().1;
    let mut at = 24 << 20;
    for (value, again) in [("none", 1), ("metadata", 1), ("all", 0)] {
        world.pool.set_property("live/a", "primarycache", value).unwrap();
        at -= 1 << 20;
        let read = || {
            let before = misses();
            open.read(at, &mut [0; 4096]).unwrap();
            misses() - before
        };
        assert_eq!((read(), read()), (1, again), "{value}");
    }
    for (value, which) in [("none", Which::Nothing), ("metadata", Which::Metadata), ("all", Which::All)] {
        world.pool.set_property("live/a", "secondarycache", value).unwrap();
        assert_eq!(world.pool.head(world.id("live/a")).unwrap().keep().on_ssd, which);
    }
    world.end();
}

#[test]
fn small_blocks_lie_on_special_vdevs() {
    let world = World::new();
    world.create("live/a", &[("special_small_blocks", "8K"), ("compression", "lz4")]);
    let zpl = world.open("live/a");
    let small = file(&zpl, "small", 0, &noise(8 << 10)).unwrap();
    let large = file(&zpl, "large", 0, &noise(16 << 10)).unwrap();
    // what counts is what is left of it
    let mut text = vec![7; 128 << 10];
    text[..4096].copy_from_slice(&noise(4096));
    let packed = file(&zpl, "packed", 0, &text).unwrap();
    let (normal, special) = (VdevNumber::new(0), VdevNumber::new(1));
    let vdev_of = |ino: ObjectId| {
        let blocks = world.blocks("live/a");
        let data: Vec<&Seen> = blocks.iter().filter(|seen| seen.object == ino && seen.level == 0).collect();
        assert_eq!(data.len(), 1);
        data[0].vdevs.clone()
    };
    assert_eq!([small, large, packed].map(vdev_of), [[special], [normal], [special]]);
    assert!(world.blocks("live/a").iter().any(|seen| seen.object == packed && seen.psize <= 8 << 10));
    // from now on
    world.pool.set_property("live/a", "special_small_blocks", "0").unwrap();
    let later = file(&zpl, "later", 0, &noise(4096)).unwrap();
    assert_eq!([small, later].map(vdev_of), [[special], [normal]]);
    // the last quarter is for metadata
    world.pool.set_property("live/a", "special_small_blocks", "128K").unwrap();
    file(&zpl, "flood", 0, &noise(110 << 20)).unwrap();
    world.pool.sync().unwrap();
    let on = |vdev| world.blocks("live/a").iter().filter(|seen| seen.level == 0 && seen.vdevs == [vdev]).count();
    assert!(on(special) > 500 && on(normal) > 100, "{} {}", on(special), on(normal));
    drop(zpl);
    world.end();
}

#[test]
fn metadata_has_the_copies_that_are_asked_for() {
    let world = World::new();
    let mut found = BTreeMap::new();
    for value in ["all", "most", "some", "none"] {
        let name = format!("live/{value}");
        world.create(&name, &[("redundant_metadata", value), ("recordsize", "512"), ("compression", "off")]);
        let zpl = world.open(&name);
        // two indirect blocks of level 1, and one above
        file(&zpl, "f", 0, &noise(600 << 10)).unwrap();
        for i in 0..40 {
            file(&zpl, &format!("a long name of a file with a number {i}"), 0, b"x").unwrap();
        }
        let mut copies: BTreeMap<(&str, u8), usize> = BTreeMap::new();
        for seen in world.blocks(&name) {
            let kind = match seen.kind {
                ObjectType::PLAIN_FILE_CONTENTS => "file",
                ObjectType::DIRECTORY_CONTENTS => "directory",
                ObjectType::DNODE => "dnodes",
                ObjectType::MASTER_NODE => "master",
                _ => continue,
            };
            let before = copies.insert((kind, seen.level), seen.vdevs.len());
            assert!(before.is_none_or(|before| before == seen.vdevs.len()), "{value} {kind} {}", seen.level);
        }
        let of = |kind, level| copies[&(kind, level)];
        let file = [of("file", 0), of("file", 1), of("file", 2)];
        found.insert(value, (file, of("directory", 0), [of("dnodes", 0), of("dnodes", 1)], of("master", 0)));
    }
    assert_eq!(found["all"], ([1, 2, 2], 2, [2, 2], 2));
    assert_eq!(found["most"], ([1, 1, 2], 2, [2, 2], 2));
    assert_eq!(found["some"], ([1, 1, 1], 1, [1, 2], 2));
    assert_eq!(found["none"], ([1, 1, 1], 1, [1, 1], 1));
    world.end();
}

#[test]
fn dnodes_are_as_large_as_they_should_be() {
    let world = World::new();
    let mut sizes = Vec::new();
    for value in ["legacy", "auto", "1k", "2k", "4k", "8k", "16k"] {
        let name = format!("live/{value}");
        world.create(&name, &[("dnodesize", value)]);
        let zpl = world.open(&name);
        for i in 0..100 {
            let ino = file(&zpl, &format!("f{i}"), 0, &noise(i * 50)).unwrap();
            zpl.set_xattr(ino, b"user.note", &noise(300), zpl::XattrMode::Create).unwrap();
        }
        world.pool.sync().unwrap();
        let set = world.pool.head(world.id(&name)).unwrap();
        let ino = zpl.resolve(b"/f0").unwrap();
        let dnode = set.object(ino).unwrap().dnode().clone();
        // what has room for it keeps the attribute with the file
        assert_eq!(dnode.spill.is_some(), value == "legacy", "{value}");
        sizes.push(dnode.slots * SLOT_SIZE);
        if value == "2k" {
            // small and large ones side by side, in the numbers that others leave
            for i in (0..100).step_by(3) {
                let gone = zpl.unlink(zpl.root(), format!("f{i}").as_bytes()).unwrap().unwrap();
                zpl.reclaim(gone).unwrap();
            }
            world.pool.set_property(&name, "dnodesize", "legacy").unwrap();
            let zpl = world.open(&name);
            for i in 0..100 {
                file(&zpl, &format!("g{i}"), 0, b"x").unwrap();
            }
        }
    }
    assert_eq!(sizes, [512, 1024, 1024, 2048, 4096, 8192, 16384]);
    assert_eq!(world.uses(LARGE_DNODE), 6);
    world.pool.destroy_dataset("live/16k").unwrap();
    assert_eq!(world.uses(LARGE_DNODE), 5);
    world.end();
}

#[test]
fn features_count_the_datasets_that_use_them() {
    let world = World::new();
    let features = ["org.open-zfs:large_blocks", "org.freebsd:zstd_compress", "org.illumos:skein"];
    let uses = || features.map(|feature| world.uses(feature));
    world.create("live/a", &[("recordsize", "1M"), ("compression", "zstd"), ("checksum", "skein")]);
    world.create("live/b", &[("compression", "zstd")]);
    let text: Vec<u8> = b"so much of it ".repeat(200_000);
    // zstd from when it is set, the others from the first block that needs them
    assert_eq!(uses(), [0, 2, 1]);
    for name in ["live/a", "live/b"] {
        file(&world.open(name), "f", 0, &text).unwrap();
        world.pool.sync().unwrap();
        assert_eq!(uses(), [1, 2, 1]);
    }
    world.pool.destroy_dataset("live/a").unwrap();
    assert_eq!(uses(), [0, 1, 0]);
    world.end();
}

#[test]
fn who_has_no_limit_has_that_of_all() {
    let world = World::new();
    let zpl = world.open("live");
    let set = |property: &str, value: &str| world.pool.set_property("live", property, value).unwrap();
    let own = |owner, counted, who: u64, limit| {
        let who: OwnerId = (String::new(), who);
        world.pool.set_owner_limit("live", owner, counted, &who, limit).unwrap();
    };
    let is_refused = |error: Error| assert_eq!(error.kind(), Kind::Quota, "{error}");
    let more = |ino: ObjectId| zpl.open_file(ino).unwrap().append(&[7; 1 << 20]);
    let (a, b) = (file(&zpl, "a", 1000, &noise(1 << 20)).unwrap(), file(&zpl, "b", 1001, &noise(1 << 20)).unwrap());
    set("defaultuserquota", "512K");
    for ino in [a, b] {
        is_refused(more(ino).unwrap_err());
    }
    own(Owner::User, Counted::Bytes, 1000, 16 << 20);
    more(a).unwrap();
    is_refused(more(b).unwrap_err());
    let shown = |id: u64| {
        let dataset = world.pool.view().dsl().find("live").unwrap();
        let accounts = dsl::accounting::Accounts::open(world.pool.view().dsl().raw_objset(&dataset).unwrap()).unwrap();
        accounts.all(Owner::User).unwrap()[&(String::new(), id)].quota_bytes
    };
    assert_eq!((shown(1000), shown(1001)), (Some(16 << 20), Some(512 << 10)));
    set("defaultuserquota", "none");
    more(b).unwrap();
    assert_eq!(shown(1001), None);
    // by number, and by group
    set("defaultuserobjquota", "1");
    is_refused(file(&zpl, "c", 1001, b"").unwrap_err());
    set("defaultuserobjquota", "0");
    set("defaultgroupquota", "1M");
    is_refused(more(b).unwrap_err());
    set("defaultgroupquota", "none");
    set("defaultgroupobjquota", "2");
    is_refused(file(&zpl, "c", 1002, b"").unwrap_err());
    set("defaultgroupobjquota", "none");
    file(&zpl, "c", 1002, b"").unwrap();
    // from the beginning
    world.create("live/b", &[("defaultuserquota", "512K"), ("defaultuserobjquota", "1")]);
    let other = world.open("live/b");
    let ino = file(&other, "a", 1000, &noise(1 << 20)).unwrap();
    world.pool.sync().unwrap();
    is_refused(other.open_file(ino).unwrap().append(b"x").unwrap_err());
    is_refused(file(&other, "b", 1000, b"").unwrap_err());
    drop(other);
    // what is in no project has no limit of one
    set("defaultprojectquota", "1");
    set("defaultprojectobjquota", "1");
    more(b).unwrap();
    drop(zpl);
    world.end();
}

#[test]
fn a_dataset_without_contents_is_none() {
    let world = World::new();
    let failing = world.pool.create_dataset("live/x", Vec::new(), |_, _, _| Err(Error::new(Kind::Io, "no luck")));
    assert_eq!(failing.unwrap_err().what(), "no luck");
    assert!(world.pool.view().dsl().find("live/x").is_err());
    world.create("live/x", &[]);
    world.end();
}

#[test]
fn what_is_read_ahead() {
    let world = World::new();
    let cache = world.pool.view().cache().clone();
    let sum = |values: &[(&str, u64)], names: [&str; 2]| -> u64 {
        values.iter().filter(|(name, _)| names.contains(name)).map(|(_, value)| value).sum()
    };
    // reads that readers ahead have looked at, and blocks of data that they asked for
    let seen = || sum(&cache.ahead().values(), ["hits", "misses"]);
    let asked = || sum(&cache.arcstats(), ["prefetch_data_hits", "prefetch_data_misses"]);
    for (value, data) in [("none", false), ("metadata", false), ("all", true)] {
        let name = format!("live/{value}");
        world.create(&name, &[("prefetch", value), ("compression", "off")]);
        let zpl = world.open(&name);
        let ino = file(&zpl, "f", 0, &noise(8 << 20)).unwrap();
        world.pool.sync().unwrap();
        let (seen_before, asked_before) = (seen(), asked());
        let open = zpl.open_file(ino).unwrap();
        let mut buf = vec![0; 64 << 10];
        for i in 0..128 {
            open.read((i * 64) << 10, &mut buf).unwrap();
        }
        assert_eq!(seen() > seen_before, value != "none", "{value}");
        let began = Instant::now();
        while data && asked() == asked_before && began.elapsed() < Duration::from_secs(60) {
            std::thread::yield_now();
        }
        assert_eq!(asked() > asked_before, data, "{value}");
    }
    world.end();
}

#[test]
fn direct_reads_leave_nothing_in_the_cache() {
    let world = World::new();
    world.create("live/a", &[("compression", "off")]);
    let zpl = world.open("live/a");
    // more than a group leaves in the cache
    let contents = noise(24 << 20);
    let ino = file(&zpl, "f", 0, &contents).unwrap();
    world.pool.sync().unwrap();
    let open = zpl.open_file(ino).unwrap();
    let cache = world.pool.view().cache().clone();
    let misses = || cache.arcstats().iter().find(|(name, _)| *name == "demand_data_misses").unwrap().1;
    let read = |direct| {
        let before = misses();
        let pieces = open.read_pieces(23 << 20, 1 << 20, direct).unwrap();
        assert!(pieces.iter().flat_map(|piece| piece.to_vec()).eq(contents[23 << 20..].iter().copied()));
        misses() - before
    };
    assert_eq!([true, true, false, false, true].map(read), [8, 8, 8, 0, 0]);
    world.end();
}
