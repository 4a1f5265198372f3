use base::Env;
use codec::checksum::Checksum;
use codec::compress::Compress;
use device::{Device, FaultyDevice, MemDevice};
use format::ids::Guid;
use format::object_type::ObjectType;
use zio::{ReadRequest, Zio};

use super::*;
use crate::cache::tests::{bytes_of, named, pipeline, write, written_as};
use crate::{Cache, Keep, Which};

const MIB: u64 = 1 << 20;
const DATA: ObjectType = ObjectType::PLAIN_FILE_CONTENTS;

fn env() -> Env {
    Env::fixed(0).with_tunables(|name| (name == "l2arc_rebuild_blocks_min_l2size").then_some(1))
}

fn device() -> Arc<FaultyDevice> {
    Arc::new(FaultyDevice::new(Arc::new(MemDevice::new("cache", vec![0; 72 << 20])), 1))
}

/// A cache with room for 8 MiB, and a cache device.
fn cache(zio: &Arc<Zio>, device: &Arc<FaultyDevice>) -> (Cache, Feeder) {
    let cache = Cache::new(zio.clone(), 8 * MIB);
    cache.add_device(Guid::new(1), Guid::new(2), device.clone()).unwrap();
    let feeder = cache.feeder();
    (cache, feeder)
}

/// So many rounds that all that is worth it was taken.
fn rounds(feeder: &mut Feeder) {
    (0..8).for_each(|_| assert!(feeder.step().is_some()));
}

fn read(cache: &Cache, blocks: &[ReadRequest]) {
    for (n, block) in blocks.iter().enumerate() {
        let got = cache.get(*block, Keep::ALL).unwrap();
        assert!(*got == *bytes_of(n), "block {n}");
    }
}

#[test]
fn what_leaves_ram_is_on_the_device() {
    for compress in [Compress::Off, Compress::Lz4, Compress::Zstd] {
        let (zio, device) = (pipeline(env()), device());
        let blocks = written_as(&zio, 200, DATA, (Checksum::Fletcher4, compress));
        let (cache, mut feeder) = cache(&zio, &device);
        for chunk in 0..20 {
            let part = &blocks[chunk * 10..chunk * 10 + 10];
            cache.get_batch(part, Keep::ALL).into_iter().for_each(|block| drop(block.unwrap()));
            rounds(&mut feeder);
        }
        let (reads, misses) = (device.reads(), named(&cache, "l2_misses"));
        assert_eq!(misses, 200);
        read(&cache, &blocks);
        assert_eq!(named(&cache, "l2_misses"), 200, "{compress:?}: all are in RAM, or on the device");
        assert!(named(&cache, "l2_hits") > 100 && device.reads() >= reads + 100);
        assert_eq!(named(&cache, "l2_size"), 200 * (128 << 10));
        assert!(named(&cache, "l2_asize") <= named(&cache, "l2_size") + MIB);
        assert!(named(&cache, "evict_l2_cached") > 0 && named(&cache, "size") <= 8 * MIB);
    }
}

#[test]
fn what_was_written_need_not_be_read_first() {
    for compress in [Compress::Off, Compress::Lz4] {
        let (zio, device) = (pipeline(env()), device());
        let written = write(&zio, 16, DATA, (Checksum::Fletcher4, compress));
        let (cache, mut feeder) = cache(&zio, &device);
        for (request, written) in &written {
            cache.insert(written.clone(), request.data.clone(), Keep::ALL);
        }
        rounds(&mut feeder);
        assert_eq!(named(&cache, "l2_size"), 16 * (128 << 10), "{compress:?}");
        assert_eq!(named(&cache, "data_size"), 16 * (128 << 10), "no bytes but the contents");
    }
}

#[test]
fn bytes_on_disk_are_kept_until_a_device_has_them() {
    let (zio, device) = (pipeline(env()), device());
    // so few that the cache does not pack them
    let blocks = written_as(&zio, 16, DATA, (Checksum::Fletcher4, Compress::Lz4));
    let (cache, mut feeder) = cache(&zio, &device);
    read(&cache, &blocks);
    let before = named(&cache, "size");
    rounds(&mut feeder);
    assert!(named(&cache, "size") < before);
    let alone = Cache::new(zio, 8 * MIB);
    read(&alone, &blocks);
    assert_eq!(named(&alone, "size"), named(&cache, "size"), "no bytes but the contents");
}

#[test]
fn not_what_must_not_be_there() {
    let (zio, device) = (pipeline(env()), device());
    let data = written_as(&zio, 10, DATA, (Checksum::Fletcher4, Compress::Off));
    let metadata = written_as(&zio, 10, ObjectType::DNODE, (Checksum::Fletcher4, Compress::Lz4));
    let unsummed = written_as(&zio, 10, DATA, (Checksum::Off, Compress::Off));
    for (on_ssd, count) in [(Which::Nothing, 0), (Which::Metadata, 10), (Which::All, 20)] {
        let (cache, mut feeder) = cache(&zio, &device);
        for block in data.iter().chain(&metadata).chain(&unsummed) {
            cache.get(*block, Keep { on_ssd, ..Keep::ALL }).unwrap();
        }
        rounds(&mut feeder);
        assert_eq!(named(&cache, "l2_size"), count * (128 << 10), "{on_ssd:?}");
    }
}

#[test]
fn what_was_prefetched_waits_for_somebody() {
    let (zio, device) = (pipeline(env()), device());
    let blocks = written_as(&zio, 10, DATA, (Checksum::Fletcher4, Compress::Off));
    let (cache, mut feeder) = cache(&zio, &device);
    cache.prefetch(&blocks, Keep::ALL);
    rounds(&mut feeder);
    assert_eq!(named(&cache, "l2_size"), 0);
    read(&cache, &blocks[..5]);
    rounds(&mut feeder);
    assert_eq!(named(&cache, "l2_size"), 5 * (128 << 10));
}

/// A large file is read once, again and again another one; and some blocks all the time.
#[test]
fn a_scan_is_not_worth_it() {
    let mut worth = Worth::default();
    assert!(worth.is_good(), "nothing is known");
    worth.look([500, 0, 0]);
    assert!(worth.is_good(), "little is known");
    worth.look([5000, 10, 0]);
    assert!(!worth.is_good());
    worth.look([10_000, 10, 300]);
    assert!(worth.is_good(), "those that were tried came back");
    (0..50).for_each(|i| worth.look([10_000 + i * 100_000, 10, 300]));
    assert!(!worth.is_good());
    (0..50).for_each(|i| worth.look([10_000_000 + i * 1000, 10 + i * 100, 300]));
    assert!(worth.is_good());
}

/// Whatever a cache device does, what is read is right.
#[test]
fn bad_devices_harm_nobody() {
    type Harm = fn(&FaultyDevice);
    let harms: [(Harm, &str); 4] = [
        (|device| device.noise(0..72 << 20), "l2_cksum_bad"),
        (|device| device.zero(0..72 << 20), "l2_cksum_bad"),
        (|device| device.broken(0..72 << 20), "l2_io_error"),
        (|device| device.vanish(true), "l2_io_error"),
    ];
    for (harm, counter) in harms {
        let (zio, device) = (pipeline(env()), device());
        let blocks = written_as(&zio, 200, DATA, (Checksum::Fletcher4, Compress::Lz4));
        let (cache, mut feeder) = cache(&zio, &device);
        for part in blocks.chunks(10) {
            cache.get_batch(part, Keep::ALL).into_iter().for_each(|block| drop(block.unwrap()));
            rounds(&mut feeder);
        }
        harm(&device);
        read(&cache, &blocks);
        assert!(named(&cache, counter) > 0, "{counter}");
        rounds(&mut feeder);
        device.heal();
        read(&cache, &blocks);
    }
}

/// Readers beside a device that stops to answer, goes and comes.
#[test]
fn a_stalled_device_stops_nobody() {
    let env = Env::real().with_tunables(|name| match name {
        "l2arc_rebuild_blocks_min_l2size" => Some(1),
        "l2arc_read_timeout_ms" => Some(20),
        _ => None,
    });
    let zio = pipeline(env);
    let device = device();
    let blocks = written_as(&zio, 200, DATA, (Checksum::Fletcher4, Compress::Lz4));
    let cache = Cache::new(zio.clone(), 8 * MIB);
    cache.add_device(Guid::new(1), Guid::new(2), device.clone() as Arc<dyn Device>).unwrap();
    let mut feeder = cache.feeder();
    for part in blocks.chunks(10) {
        cache.get_batch(part, Keep::ALL).into_iter().for_each(|block| drop(block.unwrap()));
        rounds(&mut feeder);
    }
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..4).for_each(|_| read(&cache, &blocks)));
        }
        std::thread::sleep(Duration::from_millis(5));
        device.stall(true);
    });
    read(&cache, &blocks);
    device.stall(false);
    assert!(named(&cache, "l2_io_error") > 0);
    while cache.l2arc().turn(&Tunables::of(zio.env()), false).is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let hits = named(&cache, "l2_hits");
    read(&cache, &blocks);
    assert!(named(&cache, "l2_hits") > hits, "it is used again");
}
