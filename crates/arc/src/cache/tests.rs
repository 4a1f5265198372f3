use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Bookmark, Env};
use codec::checksum::Checksum;
use codec::compress::Compress;
use device::{Device, MemDevice};
use format::ids::{Guid, VdevNumber};
use format::object_type::ObjectType;
use format::space_map::Run;
use vdev::{Tree, VdevSpec};
use zio::alloc::{Allocator, Class, SpaceMapSource, TopShape};
use zio::{BlockWrite, DedupMode, WritePolicy};

use super::*;
use crate::keep::Which;

const GUID: Guid = Guid::new(5);
const SIZE: u64 = 64 << 20;
const BLOCK: usize = 128 << 10;
const MIB: u64 = 1 << 20;

struct Nothing;

impl SpaceMapSource for Nothing {
    fn runs(&self, _top: VdevNumber, _metaslab: u64) -> Result<Vec<Run>> {
        Ok(Vec::new())
    }
}

pub(crate) fn pipeline(env: Env) -> Arc<Zio> {
    let device: Arc<dyn Device> = Arc::new(MemDevice::new("disk", vec![0; SIZE as usize]));
    let tree = Arc::new(Tree::open(VdevSpec::of_file(GUID, SIZE - (5 << 20), 24), &[(GUID, device)].into()).unwrap());
    let zio = Arc::new(Zio::new(tree.clone(), env));
    let allocator = Arc::new(Allocator::new(tree, Box::new(Nothing)));
    let metaslabs = (0..3).map(|i| (i << 24..(i + 1) << 24, 0)).collect();
    allocator
        .add_top(TopShape { top: VdevNumber::new(0), class: Class::Normal, metaslab_shift: 24, metaslabs })
        .unwrap();
    zio.set_allocator(allocator);
    zio
}

/// Block n: half of it is noise, so that it compresses to half.
pub(crate) fn bytes_of(n: usize) -> Vec<u8> {
    let mut x = n as u64 + 1;
    let mut noise = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) as u8
    };
    (0..BLOCK).map(|at| if at < BLOCK / 2 { noise() } else { n as u8 }).collect()
}

/// Writes so many blocks.
fn written(zio: &Arc<Zio>, count: usize, object_type: ObjectType) -> Vec<ReadRequest> {
    written_as(zio, count, object_type, (Checksum::Fletcher4, Compress::Off))
}

pub(crate) fn written_as(
    zio: &Arc<Zio>,
    count: usize,
    object_type: ObjectType,
    how: (Checksum, Compress),
) -> Vec<ReadRequest> {
    let written = write(zio, count, object_type, how);
    let read = |(request, written): (BlockWrite, WrittenBlock)| ReadRequest {
        bp: written.bp,
        bookmark: request.bookmark,
        mode: Mode::Plain,
    };
    written.into_iter().map(read).collect()
}

/// The same, with what was written.
pub(crate) fn write(
    zio: &Arc<Zio>,
    count: usize,
    object_type: ObjectType,
    (checksum, compress): (Checksum, Compress),
) -> Vec<(BlockWrite, WrittenBlock)> {
    let policy = WritePolicy {
        checksum,
        dedup: DedupMode::Off,
        compress,
        compress_level: 0,
        copies: 1,
        class: Class::Normal,
        special_up_to: 0,
        embed: false,
        hole_birth: true,
    };
    let requests: Vec<BlockWrite> = (0..count)
        .map(|n| {
            let mut data = Block::zeroed(BLOCK);
            data.make_mut().copy_from_slice(&bytes_of(n));
            let bookmark = Bookmark { objset: 1, object: 2, level: 0, blkid: n as u64 };
            BlockWrite::new(data, (object_type, 0), bookmark, policy)
        })
        .collect();
    let written = zio.write_batch(Txg::new(1), &requests);
    zio.finish_writes().unwrap();
    requests.into_iter().zip(written).map(|(request, written)| (request, written.unwrap())).collect()
}

pub(crate) fn named(cache: &Cache, name: &str) -> u64 {
    let table = cache.arcstats();
    table.iter().find(|(other, _)| *other == name).unwrap_or_else(|| panic!("no {name}")).1
}

#[test]
fn readers_share_a_budget() {
    for compress in [Compress::Off, Compress::Lz4] {
        let zio = pipeline(Env::fixed(0));
        let blocks = written_as(&zio, 200, ObjectType::PLAIN_FILE_CONTENTS, (Checksum::Fletcher4, compress));
        let expect: Vec<Vec<u8>> = (0..blocks.len()).map(bytes_of).collect();
        let cache = Cache::new(zio, 8 * MIB);
        let most = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                let (cache, blocks, expect, most) = (&cache, &blocks, &expect, &most);
                scope.spawn(move || {
                    for round in 0..300usize {
                        let first = (round * 7 + thread * 50) % 190;
                        let got = cache.get_batch(&blocks[first..first + 3], Keep::ALL);
                        for (i, block) in got.into_iter().enumerate() {
                            assert!(*block.unwrap() == *expect[first + i], "block {}", first + i);
                        }
                        most.fetch_max(named(cache, "data_size"), Ordering::Relaxed);
                    }
                });
            }
        });
        assert!(most.into_inner() <= 8 * MIB, "the budget is never exceeded");
        assert!(cache.stats().bytes > 6 * MIB, "and it is used");
        let (hits, misses) = (named(&cache, "hits"), named(&cache, "misses"));
        assert_eq!(hits + misses, 4 * 300 * 3);
        assert_eq!(named(&cache, "demand_data_hits"), hits);
        let held = named(&cache, "hash_elements");
        assert_eq!(named(&cache, "deleted") + held, misses, "what was read is held, or was let go");
        assert_eq!(named(&cache, "uncompressed_size"), held * BLOCK as u64);
        let sizes = named(&cache, "compressed_size") + named(&cache, "overhead_size");
        assert_eq!(sizes, named(&cache, "data_size"));
    }
}

#[test]
fn compressed_blocks_are_packed_when_room_is_needed() {
    let zio = pipeline(Env::fixed(0));
    let blocks = written_as(&zio, 120, ObjectType::PLAIN_FILE_CONTENTS, (Checksum::Fletcher4, Compress::Lz4));
    let read = |cache: &Cache, n: usize| {
        let block = cache.get(blocks[n], Keep::ALL).unwrap();
        assert!(*block == *bytes_of(n), "block {n}");
        block
    };
    // as long as there is room, nothing is
    let cache = Cache::new(zio.clone(), 64 * MIB);
    let first: Vec<Block> = (0..120).map(|n| read(&cache, n)).collect();
    assert!((0..120).all(|n| read(&cache, n).is_shared_with(&first[n])));
    assert_eq!(named(&cache, "size") - named(&cache, "hdr_size"), 120 * BLOCK as u64);

    // 63 blocks as they are; 32 of these, and half of the room for packed ones
    let cache = Cache::new(zio, 8 * MIB);
    let hot = read(&cache, 0);
    for n in 1..67 {
        read(&cache, n);
        assert!(read(&cache, 0).is_shared_with(&hot), "what is used stays open");
    }
    assert_eq!(named(&cache, "hash_elements"), 67);
    assert!(named(&cache, "size") <= 8 * MIB);
    (0..67).for_each(|n| drop(read(&cache, n)));
    let all = cache.get_batch(&blocks[..67], Keep::ALL);
    assert!(all.into_iter().enumerate().all(|(n, block)| *block.unwrap() == *bytes_of(n)));
    assert_eq!((named(&cache, "misses"), named(&cache, "deleted")), (67, 0));
    assert!(named(&cache, "size") <= 8 * MIB);
    // and others let them go
    (67..120).for_each(|n| drop(read(&cache, n)));
    assert!(named(&cache, "deleted") > 20);
    assert!(named(&cache, "size") <= 8 * MIB + BLOCK as u64, "room is made with the next block");
    assert!(named(&cache, "overhead_size") <= MIB + BLOCK as u64, "all that is not used is packed before");
}

#[test]
fn what_was_written_is_packed_as_well() {
    for (compress, expect) in [(Compress::Lz4, 75..100), (Compress::Off, 50..64)] {
        let zio = pipeline(Env::fixed(0));
        let written = write(&zio, 100, ObjectType::PLAIN_FILE_CONTENTS, (Checksum::Fletcher4, compress));
        let cache = Cache::new(zio, 8 * MIB);
        for (request, written) in &written {
            cache.insert(written.clone(), request.data.clone(), Keep::ALL);
        }
        let held = named(&cache, "hash_elements");
        assert!(expect.contains(&held), "{compress:?}: {held}");
        assert!(named(&cache, "data_size") <= 8 * MIB);
        for (n, (request, written)) in written.iter().enumerate().rev().take(20) {
            let read = ReadRequest { bp: written.bp, bookmark: request.bookmark, mode: Mode::Plain };
            assert!(*cache.get(read, Keep::ALL).unwrap() == *bytes_of(n), "block {n}");
        }
        assert_eq!(named(&cache, "misses"), 0);
    }
}

#[test]
fn freed_blocks_leave() {
    let zio = pipeline(Env::fixed(0));
    let blocks = written(&zio, 8, ObjectType::PLAIN_FILE_CONTENTS);
    let cache = Cache::new(zio, 8 * MIB);
    blocks[..6].iter().for_each(|block| drop(cache.get(*block, Keep::ALL).unwrap()));
    for block in &blocks[4..] {
        cache.free(Txg::new(2), &block.bp).unwrap();
    }
    cache.free(Txg::new(2), &BlkPtr::HOLE).unwrap();
    assert!(cache.free(Txg::new(2), &blocks[4].bp).is_err(), "it is free already");
    assert_eq!((named(&cache, "hash_elements"), named(&cache, "data_size")), (4, 4 * BLOCK as u64));
    assert!(cache.stats().bytes < 5 * BLOCK as u64);
    blocks[..4].iter().for_each(|block| drop(cache.get(*block, Keep::ALL).unwrap()));
    assert_eq!((named(&cache, "hits"), named(&cache, "misses")), (4, 6));
}

#[test]
fn what_prefetch_brought_is_counted_as_such() {
    let zio = pipeline(Env::fixed(0));
    let blocks = written(&zio, 10, ObjectType::PLAIN_FILE_CONTENTS);
    let cache = Cache::new(zio, 8 * MIB);
    cache.prefetch(&blocks, Keep::ALL);
    cache.prefetch(&blocks[..2], Keep::ALL);
    assert_eq!((named(&cache, "prefetch_data_misses"), named(&cache, "prefetch_data_hits")), (10, 2));
    for _ in 0..2 {
        blocks[..4].iter().for_each(|block| drop(cache.get(*block, Keep::ALL).unwrap()));
    }
    assert_eq!((named(&cache, "demand_data_hits"), named(&cache, "demand_data_misses")), (8, 0));
    assert_eq!(named(&cache, "demand_hit_predictive_prefetch"), 4);
    assert_eq!((named(&cache, "mru_hits"), named(&cache, "mfu_hits")), (10, 0));
}

#[test]
fn primarycache_is_kept() {
    let zio = pipeline(Env::fixed(0));
    let data = written(&zio, 4, ObjectType::PLAIN_FILE_CONTENTS);
    let metadata = written(&zio, 4, ObjectType::DNODE);
    let cache = Cache::new(zio, 8 * MIB);
    for (in_ram, held) in [(Which::Nothing, 0), (Which::Metadata, 4), (Which::All, 8)] {
        let keep = Keep { in_ram, ..Keep::ALL };
        for block in data.iter().chain(&metadata) {
            assert!(cache.get(*block, keep).is_ok());
        }
        cache.prefetch(&data, keep);
        assert_eq!(named(&cache, "hash_elements"), held, "{keep:?}");
    }
    let [metadata_bytes, data_bytes] = ["metadata_size", "data_size"].map(|name| named(&cache, name));
    assert!((data_bytes / 2..=data_bytes).contains(&metadata_bytes), "pages of zeros take nothing: {metadata_bytes}");
    assert_eq!(named(&cache, "prefetch_data_misses"), 0);
    // what is there is used all the same
    cache.get(data[0], Keep { in_ram: Which::Nothing, ..Keep::ALL }).unwrap();
    assert_eq!(named(&cache, "demand_data_misses"), 12);
    let all = [Which::All, Which::Metadata, Which::Nothing];
    for keep in all.into_iter().flat_map(|in_ram| all.map(|on_ssd| Keep { in_ram, on_ssd })) {
        assert_eq!(Keep::of_u8(keep.as_u8()), keep);
    }
}

#[test]
fn metadata_in_use_is_held_if_none_is_kept() {
    let zio = pipeline(Env::fixed(0));
    let blocks = written(&zio, 70, ObjectType::DNODE);
    let cache = Cache::new(zio, 8 * MIB);
    let misses = || named(&cache, "demand_metadata_misses");
    let read = |at: usize| cache.get(blocks[at], Keep::NOTHING).unwrap();
    (0..64).for_each(|at| drop(read(at)));
    (0..64).for_each(|at| drop(read(at)));
    assert_eq!(misses(), 64);
    // the one that has not been used for longest goes
    read(0);
    read(64);
    read(0);
    assert_eq!(misses(), 65);
    read(1);
    assert_eq!(misses(), 66);
    // another pointer to the same address, as of a block that was written again in its place
    let mut other = blocks[1];
    let mut raw = other.bp.raw().to_vec();
    raw[96] ^= 1;
    other.bp = format::blkptr::BlkPtr::parse(&raw).unwrap();
    assert!(cache.get(other, Keep::NOTHING).is_err(), "its checksum is another");
    cache.empty();
    read(0);
    assert_eq!(named(&cache, "hash_elements"), 0);
}

#[test]
fn every_name_is_there_once() {
    let cache = Cache::new(pipeline(Env::fixed(0)), 8 * MIB);
    let mut names: Vec<&str> = cache.arcstats().into_iter().map(|(name, _)| name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    for name in ["hits", "p", "c", "c_min", "c_max", "size", "mru_ghost_hits", "l2_hits", "memory_all_bytes"] {
        assert!(names.contains(&name), "{name}");
    }
}

/// What a machine of 8 GiB tells, where this process is in a cgroup.
fn machine(root: &Path, limit: &str, current: u64, stalled_us: u64) {
    let write = |name: &str, text: String| {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("proc/meminfo", format!("MemTotal: {} kB\nMemAvailable: {} kB\n", 8 << 20, 6 << 20));
    write("proc/self/cgroup", "0::/outer/inner\n".to_owned());
    let group = "sys/fs/cgroup/outer/inner/";
    write(&format!("{group}memory.max"), "max\n".to_owned());
    write(&format!("{group}memory.current"), format!("{current}\n"));
    write(&format!("{group}memory.pressure"), format!("some avg10=0.00 avg60=0.00 total={stalled_us}\n"));
    write("sys/fs/cgroup/outer/memory.max", format!("{limit}\n"));
    write("sys/fs/cgroup/outer/memory.current", format!("{current}\n"));
    write("sys/fs/cgroup/outer/memory.stat", format!("anon 5\ninactive_file {}\nactive_file 0\n", 10 * MIB));
}

#[test]
fn memory_is_given_back_and_taken_again() {
    let folder = tempfile::tempdir().unwrap();
    let limit = 256 * MIB;
    let now = |current: u64, stalled_us: u64| machine(folder.path(), &limit.to_string(), current, stalled_us);
    now(20 * MIB, 0);
    let zio = pipeline(Env::fixed(0));
    let blocks = written(&zio, 300, ObjectType::PLAIN_FILE_CONTENTS);
    let (cache, mut worker) = Cache::of_system(zio, Gauge::new(folder.path()));
    assert_eq!((named(&cache, "c_max"), named(&cache, "c_min")), (limit / 2, 32 * MIB), "the cgroup above counts");
    cache.get_batch(&blocks, Keep::ALL);
    assert!(cache.stats().bytes > 37 * MIB);

    now(100 * MIB, 0);
    worker.look_now(200_000);
    assert_eq!(named(&cache, "c"), limit / 2, "nobody is in need");
    now(100 * MIB, 100_000);
    worker.look_now(200_000);
    assert_eq!(named(&cache, "c"), limit / 2, "tasks wait, but not for want of memory");
    // 5 MiB short of the reserve: 10 MiB are files, of which the kernel takes what it needs
    now(limit - 32 * MIB + 15 * MIB, 100_000);
    let before = cache.stats().bytes;
    worker.look_now(200_000);
    assert!(cache.stats().bytes <= before - 5 * MIB && cache.stats().bytes <= named(&cache, "c"));
    assert_eq!((named(&cache, "arc_need_free"), named(&cache, "memory_indirect_count")), (5 * MIB, 1));
    // tasks wait a quarter of the time
    now(limit - 32 * MIB, 150_000);
    let before = named(&cache, "c");
    worker.look_now(200_000);
    assert!(named(&cache, "c") < before);
    // never below the minimum
    (0..50).for_each(|_| {
        now(limit, 150_000);
        worker.look_now(200_000);
    });
    assert_eq!(named(&cache, "c"), 32 * MIB);
    // and back
    now(100 * MIB, 150_000);
    (0..100).for_each(|_| {
        cache.get_batch(&blocks, Keep::ALL);
        worker.look_now(200_000);
    });
    assert!(named(&cache, "c") >= 40 * MIB, "{}", named(&cache, "c"));
    drop(cache);
    assert!(!worker.step(), "no cache, no work");
}

#[test]
fn tunables_bound_it() {
    let folder = tempfile::tempdir().unwrap();
    machine(folder.path(), "max", 20 * MIB, 0);
    let set = Arc::new(AtomicU64::new(0));
    let zio = {
        let set = set.clone();
        let tunable = move |name: &str| match name {
            "zfs_arc_max" => Some(set.load(Ordering::Relaxed)),
            "zfs_arc_meta_limit_percent" => Some(50),
            _ => None,
        };
        pipeline(Env::fixed(0).with_tunables(tunable))
    };
    let blocks = written(&zio, 300, ObjectType::PLAIN_FILE_CONTENTS);
    let (cache, mut worker) = Cache::of_system(zio, Gauge::new(folder.path()));
    assert_eq!(named(&cache, "c_max"), 4096 * MIB, "half of the machine");
    cache.get_batch(&blocks, Keep::ALL);
    set.store(64 * MIB, Ordering::Relaxed);
    worker.look_now(200_000);
    assert_eq!((named(&cache, "c_max"), named(&cache, "c")), (64 * MIB, 64 * MIB));
    assert_eq!(named(&cache, "arc_meta_limit"), 64 * MIB / 100 * 50);
    set.store(1000, Ordering::Relaxed);
    worker.look_now(200_000);
    assert_eq!(named(&cache, "c_max"), 4096 * MIB, "too little to be meant");
}

#[test]
fn an_open_tap_tells_of_every_access() {
    use crate::miniature::AccessKind::{self, Demand, Freed, Prefetch, Written};
    let zio = pipeline(Env::fixed(0));
    let written = write(&zio, 5, ObjectType::PLAIN_FILE_CONTENTS, (Checksum::Fletcher4, Compress::Off));
    let request = |n: usize| {
        let (request, written): &(BlockWrite, WrittenBlock) = &written[n];
        ReadRequest { bp: written.bp, bookmark: request.bookmark, mode: Mode::Plain }
    };
    let cache = Cache::new(zio, 8 * MIB);
    cache.get(request(0), Keep::ALL).unwrap();
    let session = cache.open_tap().unwrap();
    assert_eq!(cache.open_tap().unwrap_err().kind(), Kind::Busy);
    cache.get(request(0), Keep::ALL).unwrap();
    cache.get_batch(&[request(0), request(1)], Keep::ALL).into_iter().for_each(|read| drop(read.unwrap()));
    cache.prefetch(&[request(2), request(1)], Keep::ALL);
    cache.get(request(2), Keep::ALL).unwrap();
    let (new, block) = &written[3];
    cache.insert(block.clone(), new.data.clone(), Keep::ALL);
    cache.free(Txg::new(2), &block.bp).unwrap();
    // what may not be kept is no matter of the cache's size
    let nothing = Keep { in_ram: Which::Nothing, ..Keep::ALL };
    cache.get(request(4), nothing).unwrap();
    let taken = cache.tapped(session, 0).unwrap();
    let key = |n: usize| L2Key::of(&request(n).bp).hash();
    let number = |block: u64| (0..5).find(|n| key(*n) == block).unwrap();
    let told: Vec<(usize, AccessKind)> = taken
        .accesses
        .iter()
        .map(|access| crate::TappedAccess::decode(&access.encode(), 0).unwrap())
        .inspect(|access| assert_eq!((access.bytes, access.contents), (BLOCK as u64, Contents::Data)))
        .map(|access| (number(access.block), access.kind))
        .collect();
    let expect =
        [(0, Demand), (0, Demand), (1, Demand), (2, Prefetch), (1, Prefetch), (2, Demand), (3, Written), (3, Freed)];
    assert_eq!(told, expect);
    assert_eq!((taken.reads, taken.misses, taken.lost), (4, 1, 0));
    let CacheFootprint { limit, size, blocks } = cache.footprint();
    assert!(limit == 8 * MIB && blocks == 3 * BLOCK as u64 && size >= blocks, "{size} {blocks}");
    cache.close_tap(session);
    cache.get(request(0), Keep::ALL).unwrap();
    assert!(cache.tapped(session, 0).is_err(), "nothing is noted any more");
}
