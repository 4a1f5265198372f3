//! Counts on disk that ask for memory.

use std::fs;

use format::ids::ObjectId;
use format::zap::{LeafMut, NewLeafEntry, ZapHeader, ZapPosition, hash_name};

use testkit::seal::{AtlasPlace, MOS};

use super::world::{World, object_of};

/// Most memory of a pool's process, KiB: its caches, and a good deal more.
const MEMORY_KIB_MAX: u64 = 700 << 10;

/// A directory says that it has 2^62 leaves, and all its names have the hash of the next one.
#[test]
fn a_directory_does_not_grow_without_end() {
    let Some(world) = World::of("growth::a_directory_does_not_grow_without_end") else { return };
    world.create();
    let dir = world.dir.join("in/ev/dir");
    fs::create_dir(&dir).unwrap();
    // a long name makes it a large table
    fs::write(dir.join("n".repeat(200)), "").unwrap();
    world.forge(|forge, pool, atlas| {
        let (set, object) = object_of(pool, "/dir");
        let first = atlas.block(set, object, 0, 0).unwrap();
        let mut header = ZapHeader::parse(forge.contents(first)).unwrap();
        header.leaves = 1 << 62;
        header.store(forge.contents_mut(first));
        let leaf = forge.contents_mut(atlas.block(set, object, 0, 1).unwrap());
        let hash = hash_name(header.salt, header.flags, b"next");
        LeafMut::init(leaf, 0, 0, false);
        for cd in 0.. {
            let key = format!("{cd}\0");
            let position = ZapPosition { hash, cd };
            let value = (object.get() | 4 << 60).to_be_bytes();
            let record =
                NewLeafEntry { position, key: key.as_bytes(), key_len: key.len() as u16, width: 8, value: &value };
            if !LeafMut::parse(leaf).unwrap().insert(&record).unwrap() {
                break;
            }
        }
    });
    world.done("zpool import -f -d DIR/img -R DIR/in ev");
    let made = fs::write(dir.join("next"), "");
    assert_eq!(made.unwrap_err().raw_os_error(), Some(nix::errno::Errno::ENOSPC as i32));
    assert!(memory_kib(&world) < MEMORY_KIB_MAX);
    world.done("zpool sync ev");
    // 2^13 pointers are 64 KiB
    assert!(fs::metadata(&dir).unwrap().len() < 1 << 20);
    world.check();
}

/// A history that never ends, and lists of dead blocks with more pointers than there are.
#[test]
fn what_is_appended_to_has_an_end() {
    let Some(world) = World::of("growth::what_is_appended_to_has_an_end") else { return };
    world.create();
    for (offset, word) in [(24, 1 << 61), (0, u64::MAX), (16, u64::MAX), (24, u64::MAX)] {
        world.forge(|forge, pool, atlas| {
            let directory = dmu::zap::Zap::open(pool.dsl().mos().object(ObjectId::new(1)).unwrap()).unwrap();
            let history = atlas.bonus_place(MOS, directory.require_object_id("history").unwrap()).unwrap();
            forge.put_u64(AtlasPlace { at: history.at + offset, ..history }, word);
        });
        let imported = world.run("zpool import -f -d DIR/img -R DIR/in ev");
        assert_eq!(imported.code, Some(0), "{}", imported.err);
        // whether or not it can be told, it is done
        world.run(&format!("zfs set a:b=c{offset} ev"));
        assert_eq!(world.done("zfs get -Ho value a:b ev").trim(), format!("c{offset}"));
        world.check();
    }
    fs::write(world.dir.join("in/ev/file"), vec![7; 1 << 20]).unwrap();
    world.done("zpool sync ev");
    world.forge(|forge, pool, atlas| {
        let directory = dmu::zap::Zap::open(pool.dsl().mos().object(ObjectId::new(1)).unwrap()).unwrap();
        for name in ["free_bpobj", "sync_bplist"] {
            let list = directory.object_id(name).unwrap().and_then(|list| atlas.bonus_place(MOS, list));
            list.into_iter().for_each(|list| forge.put_u64(list, 1 << 62));
        }
    });
    for line in ["zpool import -f -d DIR/img -R DIR/in ev", "zfs set a:b=d ev", "zpool export -f ev"] {
        let done = world.run(line);
        assert!(!done.err.contains("bug of cenote"), "{line}: {}", done.err);
    }
    world.check();
}

/// The most memory that the pool's process ever had.
fn memory_kib(world: &World) -> u64 {
    let mark = format!("CENOTE_RUN={}", world.dir.join("run").display());
    let peak = |pid: &u32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
        environ.split(|&byte| byte == 0).find(|one| *one == mark.as_bytes())?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    let names = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name());
    let pids: Vec<u32> = names.filter_map(|name| name.to_str()?.parse().ok()).collect();
    pids.iter().filter_map(peak).max().expect("the pool's process runs")
}
