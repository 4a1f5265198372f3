//! What is written reads back: on disks in memory, with space maps that nobody keeps.

use std::collections::HashMap;
use std::sync::Arc;

use base::{AlignedBuf, Bookmark, Env};
use codec::checksum::Checksum;
use codec::compress::Compress;
use device::{Device, FaultyDevice, MemDevice};
use format::ids::{Guid, VdevNumber};
use format::nvlist::{NvList, Value};
use format::object_type::ObjectType;
use format::space_map::Run;
use vdev::{Tree, VdevSpec};

use super::*;
use crate::alloc::{SpaceMapSource, TopShape};
use crate::{DedupMode, Mode, ReadRequest};

const TXG: Txg = Txg::new(9);
const BOOKMARK: Bookmark = Bookmark { objset: 3, object: 5, level: 0, blkid: 9 };
const POLICY: WritePolicy = WritePolicy {
    dedup: DedupMode::Off,
    special_up_to: 0,
    checksum: Checksum::Fletcher4,
    compress: Compress::Off,
    compress_level: 0,
    copies: 1,
    class: Class::Normal,
    embed: true,
    hole_birth: true,
};

/// Nothing was ever allocated.
struct Empty;

impl SpaceMapSource for Empty {
    fn runs(&self, _: VdevNumber, _: u64) -> Result<Vec<Run>> {
        Ok(Vec::new())
    }
}

/// A vdev: its type, leaves, parity.
type Layout = (&'static str, u64, u64);

const DISK: Layout = ("disk", 1, 0);
const MIRROR: Layout = ("mirror", 2, 0);
const RAIDZ1: Layout = ("raidz", 3, 1);
const RAIDZ2: Layout = ("raidz", 5, 2);

struct Pool {
    zio: Zio,
    disks: Vec<Arc<FaultyDevice>>,
}

/// A pool of `tops`, each with `metaslabs` of 1 MiB.
fn pool(tops: &[Layout], ashift: u64, metaslabs: u64, env: Env) -> Pool {
    let mut disks = Vec::new();
    let mut devices: HashMap<Guid, Arc<dyn Device>> = HashMap::new();
    let mut spec = Vec::new();
    for (id, &(kind, leaves, nparity)) in tops.iter().enumerate() {
        let text = |s: &str| Value::Str(s.to_owned());
        let leaf = |i: u64| {
            let mut leaf = NvList::new();
            leaf.set("type", text("disk"));
            leaf.set("path", text("disk"));
            leaf.set("id", Value::U64(i));
            leaf.set("guid", Value::U64(100 * (id as u64 + 1) + i));
            leaf
        };
        for i in 0..leaves {
            let disk = MemDevice::new(format!("disk {id}.{i}"), vec![0; 64 << 20]);
            let disk = Arc::new(FaultyDevice::new(Arc::new(disk), 1));
            devices.insert(Guid::new(100 * (id as u64 + 1) + i), disk.clone());
            disks.push(disk);
        }
        let mut top = leaf(0);
        if leaves > 1 {
            top = NvList::new();
            top.set("type", text(kind));
            top.set("guid", Value::U64(10 + id as u64));
            top.set("nparity", Value::U64(nparity));
            top.set("children", Value::Lists((0..leaves).map(leaf).collect()));
        }
        top.set("id", Value::U64(id as u64));
        top.set("ashift", Value::U64(ashift));
        top.set("asize", Value::U64((32 << 20) * leaves));
        spec.push(top);
    }
    let mut root = NvList::new();
    root.set("type", Value::Str("root".to_owned()));
    root.set("id", Value::U64(0));
    root.set("guid", Value::U64(1));
    root.set("children", Value::Lists(spec));
    let tree = Arc::new(Tree::open(VdevSpec::parse_root(&root).unwrap(), &devices).unwrap());
    let allocator = Allocator::new(tree.clone(), Box::new(Empty));
    for top in (0..tops.len() as u64).map(VdevNumber::new) {
        let metaslabs = (0..metaslabs).map(|i| (i << 20..(i + 1) << 20, 0)).collect();
        allocator.add_top(TopShape { top, class: Class::Normal, metaslab_shift: 20, metaslabs }).unwrap();
    }
    let zio = Zio::new(tree, env);
    zio.set_salt([7; 32]);
    zio.set_allocator(Arc::new(allocator));
    Pool { zio, disks }
}

impl Pool {
    fn write(&self, txg: Txg, data: &[u8], policy: WritePolicy, previous: BlkPtr) -> Result<BlkPtr> {
        self.zio.write_batch(txg, &[request(data, policy, previous)]).pop().unwrap().map(|written| written.bp)
    }

    fn read(&self, bp: BlkPtr) -> Vec<u8> {
        self.zio.read(ReadRequest { bp, bookmark: BOOKMARK, mode: Mode::Plain }).unwrap().to_vec()
    }

    fn free_bytes(&self) -> u64 {
        self.zio.allocator().unwrap().class_space(Class::Normal).free
    }

    fn sync(&self, txg: Txg) {
        self.zio.finish_writes().unwrap();
        self.zio.allocator().unwrap().take_changes(txg);
        self.zio.allocator().unwrap().synced(txg);
    }
}

fn request(data: &[u8], policy: WritePolicy, previous: BlkPtr) -> BlockWrite {
    let data = Block::from(AlignedBuf::from(data));
    let new = BlockWrite::new(data, (ObjectType::PLAIN_FILE_CONTENTS, 0), BOOKMARK, policy);
    BlockWrite { previous, fill: 0, ..new }
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// The first part does not shrink, the rest does.
fn mixed(seed: u64, len: usize, hard: usize) -> Vec<u8> {
    let mut data = noise(seed, hard);
    data.extend((hard..len).map(|i| (i / 64) as u8));
    data
}

#[test]
fn everything_reads_back() {
    let layouts = [(DISK, 9), (MIRROR, 12), (RAIDZ1, 9), (RAIDZ2, 12)];
    for (number, (layout, ashift)) in layouts.into_iter().enumerate() {
        let env = if number % 2 == 0 { Env::real() } else { Env::fixed(0) };
        let pool = pool(&[layout], ashift, 16, env);
        let room = pool.free_bytes();
        let data: Vec<Vec<u8>> = [(512, 100), (4096, 4096), (12_800, 3000), (131_072, 30_000), (262_144, 250_000)]
            .iter()
            .map(|&(len, hard)| mixed(number as u64, len, hard))
            .collect();
        for compress in Compress::ALL.into_iter().filter(|kind| kind.is_concrete()) {
            for checksum in Checksum::ALL.into_iter().filter(|kind| kind.is_concrete() && !kind.is_embedded()) {
                let policy = WritePolicy { compress, checksum, ..POLICY };
                let requests: Vec<_> = data.iter().map(|data| request(data, policy, BlkPtr::HOLE)).collect();
                let written: Vec<WrittenBlock> =
                    pool.zio.write_batch(TXG, &requests).into_iter().map(|written| written.unwrap()).collect();
                pool.zio.finish_writes().unwrap();
                for (WrittenBlock { bp, packed }, data) in written.iter().zip(&data) {
                    let Some(packed) = packed.clone().map(Packed::into_block) else { continue };
                    assert_eq!((packed.len() as u64, bp.is_embedded()), (bp.psize(), false));
                    assert_eq!(&*pool.zio.unpack_plain(bp, &packed).unwrap(), &**data);
                }
                let pointers: Vec<BlkPtr> = written.iter().map(|written| written.bp).collect();
                for (bp, data) in pointers.iter().zip(&data) {
                    assert_eq!(&pool.read(*bp), data, "{compress:?} {checksum:?} {bp:?}");
                    assert!(bp.psize() <= bp.lsize() && bp.birth() == TXG);
                    let states = pool.zio.verify_batch(&[(*bp, BOOKMARK)]);
                    assert!(states[0].iter().all(|copy| copy.is_ok()));
                    pool.zio.free(TXG, bp, OnFailure::Fail).unwrap();
                }
                if !matches!(compress, Compress::Off | Compress::Empty | Compress::Zle) {
                    assert!(written[3].packed.is_some() && written[4].packed.is_none());
                    assert!(pointers[3].psize() < 64 << 10 && pointers[4].psize() == 262_144, "{pointers:?}");
                }
            }
        }
        assert_eq!(pool.free_bytes(), room);
    }
}

#[test]
fn holes_and_embedded_blocks_take_no_room() {
    let pool = pool(&[DISK], 12, 1, Env::fixed(0));
    let lz4 = WritePolicy { compress: Compress::Lz4, ..POLICY };
    let zeros = vec![0; 8192];
    assert_eq!(pool.write(TXG, &zeros, lz4, BlkPtr::HOLE).unwrap(), BlkPtr::HOLE);
    let text = vec![b'x'; 8192];
    let embedded = pool.write(TXG, &text, lz4, BlkPtr::HOLE).unwrap();
    assert!(embedded.is_embedded() && pool.read(embedded) == text);
    let hole = pool.write(TXG.next(), &zeros, lz4, embedded).unwrap();
    assert!(hole.is_hole() && (hole.birth(), hole.lsize()) == (TXG.next(), 8192));
    assert_eq!(pool.free_bytes(), 1 << 20);
    pool.zio.free(TXG, &embedded, OnFailure::Fail).unwrap();
    pool.zio.free(TXG, &hole, OnFailure::Fail).unwrap();
    // without leave, at a level, or as dnodes, they are blocks of a sector; and zeros stay with compression off
    let dnodes = BlockWrite { object_type: ObjectType::DNODE, ..request(&text, lz4, BlkPtr::HOLE) };
    let indirect = BlockWrite { level: 1, ..request(&text, lz4, BlkPtr::HOLE) };
    let plain = request(&text, WritePolicy { embed: false, ..lz4 }, BlkPtr::HOLE);
    for written in pool.zio.write_batch(TXG, &[dnodes, indirect, plain]) {
        let bp = written.unwrap().bp;
        assert!(!bp.is_embedded() && bp.psize() == 4096);
    }
    let stored = pool.write(TXG, &zeros, POLICY, BlkPtr::HOLE).unwrap();
    assert_eq!((stored.psize(), stored.is_hole()), (8192, false));
}

#[test]
fn what_has_not_changed_is_not_written() {
    let pool = pool(&[DISK], 9, 4, Env::fixed(0));
    let data = mixed(1, 16_384, 6000);
    let strong = WritePolicy { compress: Compress::Lz4, checksum: Checksum::Sha256, ..POLICY };
    let bp = pool.write(TXG, &data, strong, BlkPtr::HOLE).unwrap();
    assert_eq!(pool.write(TXG.next(), &data, strong, bp).unwrap(), bp);
    // a log has it elsewhere by now
    let early = pool.zio.place_batch(TXG.next(), &[request(&data, strong, BlkPtr::HOLE)], 0).pop().unwrap().unwrap();
    let adopt = |policy, previous| pool.zio.adopt(TXG.next(), &request(&data, policy, previous), &early.bp()).unwrap();
    assert_ne!(early.bp().dvas(), bp.dvas());
    assert_eq!(adopt(strong, bp), bp);
    let plain = WritePolicy { compress: Compress::Off, ..strong };
    for other in [adopt(strong, BlkPtr::HOLE), adopt(plain, bp), adopt(WritePolicy { copies: 2, ..strong }, bp)] {
        assert_eq!(other.dvas(), early.bp().dvas());
    }
    let others = [
        WritePolicy { copies: 2, ..strong },
        WritePolicy { checksum: Checksum::Sha512, ..strong },
        WritePolicy { compress: Compress::Gzip6, ..strong },
        WritePolicy { checksum: Checksum::Fletcher4, ..strong },
    ];
    for policy in others {
        assert_ne!(pool.write(TXG.next(), &data, policy, bp).unwrap().dvas(), bp.dvas(), "{policy:?}");
    }
    // what would be compressed, but does not shrink
    let dense = noise(2, 16_384);
    let bp = pool.write(TXG, &dense, strong, BlkPtr::HOLE).unwrap();
    assert_eq!((bp.psize(), pool.write(TXG.next(), &dense, strong, bp).unwrap()), (16_384, bp));
    assert_ne!(pool.write(TXG.next(), &dense, plain, bp).unwrap().dvas(), bp.dvas(), "somebody moves it");
    let weak = WritePolicy { checksum: Checksum::Fletcher4, ..strong };
    let bp = pool.write(TXG, &data, weak, BlkPtr::HOLE).unwrap();
    assert_eq!(pool.write(TXG.next(), &data, weak, bp).unwrap().birth(), TXG.next());
}

#[test]
fn copies_are_all_written() {
    let pool = pool(&[DISK, MIRROR], 9, 4, Env::fixed(0));
    let data = noise(3, 8192);
    let bp = pool.write(TXG, &data, WritePolicy { copies: 3, ..POLICY }, BlkPtr::HOLE).unwrap();
    assert_eq!(bp.copies().count(), 3);
    let states = pool.zio.verify_batch(&[(bp, BOOKMARK)]);
    assert!(states[0].len() == 3 && states[0].iter().all(|copy| copy.is_ok()));
}

#[test]
fn a_full_pool_is_full_and_whole() {
    let pool = pool(&[RAIDZ1, DISK], 9, 2, Env::real());
    let mut written: Vec<(BlkPtr, Vec<u8>)> = Vec::new();
    let fill = |txg, sectors: usize, written: &mut Vec<(BlkPtr, Vec<u8>)>| loop {
        let data = noise(written.len() as u64, 512 * (1 + written.len() % sectors));
        match pool.write(txg, &data, POLICY, BlkPtr::HOLE) {
            Ok(bp) => written.push((bp, data)),
            Err(e) => break e,
        }
    };
    let error = fill(TXG, 70, &mut written);
    assert_eq!((error.kind(), error.place().bookmark), (Kind::NoSpace, Some(BOOKMARK)));
    pool.sync(TXG);
    assert!(pool.free_bytes() < 64 << 10, "{} bytes left", pool.free_bytes());
    let mut is_even = false;
    let mut every_second = |_: &mut (BlkPtr, Vec<u8>)| {
        is_even = !is_even;
        is_even
    };
    for (bp, _) in written.extract_if(.., &mut every_second) {
        pool.zio.free(TXG.next(), &bp, OnFailure::Fail).unwrap();
    }
    TXG.next().until(TXG.plus(4)).for_each(|txg| pool.sync(txg));
    assert_eq!(fill(TXG.plus(4), 200, &mut written).kind(), Kind::NoSpace);
    assert!(written.iter().any(|(bp, _)| bp.is_gang()), "the larger ones had to be cut");
    pool.sync(TXG.plus(4));
    for (bp, data) in &written {
        assert_eq!(&pool.read(*bp), data);
    }
    written.iter().for_each(|(bp, _)| {
        pool.zio.free(TXG.plus(5), bp, OnFailure::Fail).unwrap();
    });
    assert_eq!(pool.zio.allocator().unwrap().class_space(Class::Normal).allocated, 0);
}

/// Single sectors in use, as far apart as `gap`, so that no run is longer.
fn fragment(pool: &Pool, gap: u64) {
    let allocator = pool.zio.allocator().unwrap();
    let mut runs = Vec::new();
    while let Ok(dvas) = allocator.allocate(Class::Normal, 512, 1, Txg::new(1)) {
        runs.extend(dvas);
    }
    for dva in runs {
        if dva.offset() / dva.asize() % gap != 0 {
            allocator.unallocate(Txg::new(1), &dva).unwrap();
        }
    }
    pool.sync(Txg::new(1));
}

#[test]
fn gang_blocks_are_written_and_freed() {
    for (layout, gap, copies) in [(DISK, 9, 1), (MIRROR, 5, 2), (RAIDZ1, 9, 3), (DISK, 3, 1)] {
        let pool = pool(&[layout], 9, 3, Env::real());
        fragment(&pool, gap);
        let room = pool.free_bytes();
        let data = noise(gap, 48 << 10);
        let policy = WritePolicy { copies, checksum: Checksum::Blake3, ..POLICY };
        let bp = pool.write(TXG, &data, policy, BlkPtr::HOLE).unwrap();
        assert!(bp.is_gang());
        assert_eq!(bp.copies().count(), usize::from(copies + 1).min(3));
        assert_eq!(pool.free_bytes(), room - bp.asize(), "the pointer tells of all that is allocated");
        pool.zio.finish_writes().unwrap();
        assert_eq!(pool.read(bp), data);
        let states = pool.zio.verify_batch(&[(bp, BOOKMARK)]);
        assert!(states[0].iter().all(|copy| copy.is_ok()));
        // at once in the txg that it was born in
        let other = pool.write(TXG, &data, policy, BlkPtr::HOLE).unwrap();
        pool.zio.free(TXG, &other, OnFailure::Fail).unwrap();
        assert_eq!(pool.free_bytes(), room - bp.asize());
        pool.sync(TXG);
        TXG.next().until(TXG.plus(4)).for_each(|txg| {
            if txg == TXG.next() {
                pool.zio.free(txg, &bp, OnFailure::Fail).unwrap();
                assert_eq!(pool.zio.free(txg, &bp, OnFailure::Fail).unwrap_err().kind(), Kind::Corrupt);
            }
            assert_eq!(pool.free_bytes(), room - bp.asize());
            pool.sync(txg);
        });
        assert_eq!(pool.free_bytes(), room);
        // what does not fit in any way leaves nothing behind
        let huge = vec![1; 4 << 20];
        assert_eq!(pool.write(TXG.plus(4), &huge, POLICY, BlkPtr::HOLE).unwrap_err().kind(), Kind::NoSpace);
        let nearly = vec![1; (room as usize / 2).next_multiple_of(512)];
        let outcome = pool.write(TXG.plus(4), &nearly, WritePolicy { copies: 2, ..POLICY }, BlkPtr::HOLE);
        assert_eq!(outcome.unwrap_err().kind(), Kind::NoSpace);
        assert_eq!(pool.free_bytes(), room);
    }
}

#[test]
fn blocks_are_written_anew_in_their_place() {
    for env in [Env::real(), Env::fixed(0)] {
        let pool = pool(&[RAIDZ1], 9, 4, env);
        let lz4 = WritePolicy { compress: Compress::Lz4, ..POLICY };
        let first = mixed(0, 16_384, 8000);
        let bp = pool.write(TXG, &first, lz4, BlkPtr::HOLE).unwrap();
        let (mut last, room) = (bp, pool.free_bytes());
        for round in 1..50 {
            let smaller = mixed(round, 16_384, 4000 + round as usize * 60);
            last = pool.zio.rewrite(TXG, &last, &request(&smaller, lz4, BlkPtr::HOLE)).unwrap().unwrap();
            if round % 10 == 0 {
                pool.zio.finish_writes().unwrap();
                assert_eq!(pool.read(last), smaller);
            }
        }
        assert_eq!((last.dvas(), last.psize(), pool.free_bytes()), (bp.dvas(), bp.psize(), room));
        for other in [mixed(1, 16_384, 12_000), noise(1, 16_384), vec![0; 16_384], noise(1, 4096)] {
            assert!(pool.zio.rewrite(TXG, &last, &request(&other, lz4, BlkPtr::HOLE)).unwrap().is_none());
        }
        let whole = noise(7, bp.psize() as usize);
        last = pool.zio.rewrite(TXG, &last, &request(&whole, lz4, BlkPtr::HOLE)).unwrap().unwrap();
        pool.zio.finish_writes().unwrap();
        assert_eq!((pool.read(last), last.compress()), (whole.clone(), Compress::Off as u8));
        let late = pool.zio.rewrite(TXG.next(), &last, &request(&whole, lz4, BlkPtr::HOLE));
        assert_eq!(late.unwrap_err().kind(), Kind::Invalid);
    }
}

/// Space that goes round within one txg, while earlier writes to it are still on their way.
#[test]
fn the_last_write_to_a_place_stays() {
    let pool = pool(&[DISK], 9, 1, Env::real());
    let mut live: Vec<(BlkPtr, Vec<u8>)> = Vec::new();
    for round in 0..400 {
        let data = noise(round, 65_536 + (round as usize % 3) * 512);
        live.push((pool.write(TXG, &data, POLICY, BlkPtr::HOLE).unwrap(), data));
        if live.len() > 8 {
            let (bp, _) = live.swap_remove(round as usize * 7 % 8);
            pool.zio.free(TXG, &bp, OnFailure::Fail).unwrap();
        }
    }
    pool.zio.finish_writes().unwrap();
    for (bp, data) in &live {
        assert_eq!(&pool.read(*bp), data);
    }
}

/// More than may wait at once.
#[test]
fn writers_wait_for_the_devices() {
    let pool = pool(&[MIRROR], 9, 1, Env::real());
    let mut data = vec![1; 512 << 10];
    let bp = pool.write(TXG, &data, POLICY, BlkPtr::HOLE).unwrap();
    let mut last = bp;
    for round in 0..300u32 {
        data[..4].copy_from_slice(&round.to_le_bytes());
        last = pool.zio.rewrite(TXG, &last, &request(&data, POLICY, BlkPtr::HOLE)).unwrap().unwrap();
    }
    pool.zio.finish_writes().unwrap();
    assert_eq!((pool.read(last), last.dvas()), (data, bp.dvas()));
}

#[test]
fn failed_writes_are_tried_again() {
    for env in [Env::real(), Env::fixed(0)] {
        let pool = pool(&[MIRROR], 9, 4, env);
        let data = noise(1, 4096);
        pool.disks[0].unwritable(0..64 << 20);
        let first = pool.write(TXG, &data, POLICY, BlkPtr::HOLE).unwrap();
        pool.zio.finish_writes().expect("one side is enough");
        assert_eq!(pool.read(first), data);
        pool.disks[1].unwritable(0..64 << 20);
        let lost = pool.write(TXG, &data, POLICY, BlkPtr::HOLE).unwrap();
        let freed = pool.write(TXG, &data, POLICY, BlkPtr::HOLE).unwrap();
        for _ in 0..2 {
            let error = pool.zio.finish_writes().unwrap_err();
            assert_eq!((error.kind(), error.place().bookmark), (Kind::Io, Some(BOOKMARK)));
        }
        assert!(pool.zio.retry_writes(TXG).is_err());
        pool.zio.free(TXG, &freed, OnFailure::Fail).unwrap();
        let again = pool.zio.rewrite(TXG, &lost, &request(&noise(2, 4096), POLICY, BlkPtr::HOLE)).unwrap().unwrap();
        assert!(pool.zio.finish_writes().is_err());
        pool.disks.iter().for_each(|disk| disk.heal());
        pool.zio.retry_writes(TXG).unwrap();
        pool.zio.flush_writes(TXG).unwrap();
        assert_eq!(pool.read(again), noise(2, 4096));
        // also what one side was enough for is on both now
        assert!(pool.zio.tree().leaves().all(|leaf| !leaf.state().dtl().contains(TXG)));
        pool.disks[1].vanish(true);
        assert_eq!((pool.read(first), pool.read(again)), (data, noise(2, 4096)));
    }
}

/// A device that fails to flush loses what was written.
#[test]
fn what_was_not_flushed_is_written_again() {
    for env in [Env::real(), Env::fixed(0)] {
        let pool = pool(&[DISK], 9, 4, env);
        let disk = &pool.disks[0];
        let flushed = pool.write(TXG, &noise(1, 4096), POLICY, BlkPtr::HOLE).unwrap();
        pool.zio.flush_writes(TXG).unwrap();
        disk.lose_writes(0..64 << 20);
        disk.fail_flush(disk.flushes());
        let first = pool.write(TXG, &noise(2, 4096), POLICY, BlkPtr::HOLE).unwrap();
        let freed = pool.write(TXG, &noise(3, 4096), POLICY, BlkPtr::HOLE).unwrap();
        let second = pool.write(TXG, &noise(4, 4096), POLICY, BlkPtr::HOLE).unwrap();
        pool.zio.finish_writes().unwrap();
        pool.zio.free(TXG, &freed, OnFailure::Fail).unwrap();
        // in its place
        let second = pool.zio.rewrite(TXG, &second, &request(&noise(5, 4096), POLICY, BlkPtr::HOLE)).unwrap().unwrap();
        assert_eq!(pool.zio.flush_writes(TXG).unwrap_err().kind(), Kind::Io);
        disk.heal();
        // flushing alone does not bring it back, although the device says that it has
        assert_eq!(pool.zio.flush_writes(TXG).unwrap_err().kind(), Kind::Io);
        let writes = disk.writes();
        pool.zio.retry_writes(TXG).unwrap();
        assert_eq!(disk.writes() - writes, 2, "what was flushed, and what was freed, is not written again");
        pool.zio.flush_writes(TXG).unwrap();
        for (bp, seed) in [(flushed, 1), (first, 2), (second, 5)] {
            assert_eq!(pool.read(bp), noise(seed, 4096));
        }
    }
}

/// Reads that are to wait do so until a device is back; others fail.
#[test]
fn reads_wait_as_they_are_asked_to() {
    let pool = pool(&[DISK], 9, 4, Env::fixed(0));
    let bp = pool.write(TXG, &noise(1, 4096), POLICY, BlkPtr::HOLE).unwrap();
    pool.disks[0].vanish(true);
    let read = |on_failure| {
        let request = ReadRequest { bp, bookmark: BOOKMARK, mode: Mode::Plain };
        pool.zio.read_whole(&[request], &crate::SetKeys::Plain, on_failure).remove(0).map(|contents| contents.data)
    };
    assert_eq!(read(OnFailure::Wait).err().unwrap().kind(), Kind::Missing, "nobody knows yet how to wait");
    let (disk, tree) = (pool.disks[0].clone(), pool.zio.tree().clone());
    pool.zio.set_device_wait(Arc::new(move |error| {
        assert_eq!(error.kind(), Kind::Missing);
        disk.heal();
        tree.leaves().next().unwrap().state().reopen(None)
    }));
    assert_eq!(read(OnFailure::Fail).err().unwrap().kind(), Kind::Missing);
    assert_eq!(read(OnFailure::Wait).unwrap()[..], noise(1, 4096));
    pool.disks[0].vanish(true);
    assert!(read(OnFailure::Fail).is_err());
    let other = std::thread::scope(|scope| scope.spawn(|| read(OnFailure::Wait).is_ok()).join().unwrap());
    assert!(other, "whichever thread asks");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let pool = pool(&[DISK], 9, 1, Env::fixed(0));
    let good = vec![1; 512];
    let policies = [
        WritePolicy { checksum: Checksum::On, ..POLICY },
        WritePolicy { checksum: Checksum::Zilog2, ..POLICY },
        WritePolicy { compress: Compress::Inherit, ..POLICY },
        WritePolicy { copies: 4, ..POLICY },
        WritePolicy { copies: 0, ..POLICY },
    ];
    for policy in policies {
        assert_eq!(pool.write(TXG, &good, policy, BlkPtr::HOLE).unwrap_err().kind(), Kind::Invalid);
    }
    for len in [0, 100, 513, (16 << 20) + 512] {
        assert_eq!(pool.write(TXG, &vec![1; len], POLICY, BlkPtr::HOLE).unwrap_err().kind(), Kind::Invalid);
    }
    assert_eq!(pool.free_bytes(), 1 << 20);
    let read_only = Zio::new(pool.zio.tree().clone(), Env::fixed(0));
    let refused = read_only.write_batch(TXG, &[request(&good, POLICY, BlkPtr::HOLE)]);
    assert_eq!(refused[0].as_ref().unwrap_err().kind(), Kind::ReadOnly);
    let bp = pool.write(TXG, &good, POLICY, BlkPtr::HOLE).unwrap();
    let mut bytes = zerocopy::IntoBytes::as_bytes(&bp).to_vec();
    bytes[6 * 8 + 7] |= 0x40;
    let dedup = BlkPtr::parse(&bytes).unwrap();
    assert_eq!(pool.zio.free(TXG, &dedup, OnFailure::Fail).unwrap_err().kind(), Kind::Unsupported);
}

/// A block to which clones lead is not free when one pointer goes.
#[test]
fn what_is_counted_is_not_free() {
    struct TwoClones(std::sync::atomic::AtomicU64);
    impl crate::CloneTable for TwoClones {
        fn release(&self, _: &BlkPtr) -> bool {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0
        }
    }
    let pool = pool(&[DISK], 9, 1, Env::fixed(0));
    let bp = pool.write(TXG, &[1; 512], POLICY, BlkPtr::HOLE).unwrap();
    pool.zio.set_clone_table(Arc::new(TwoClones(Default::default())));
    let free = pool.free_bytes();
    assert!(!pool.zio.free(TXG, &bp, OnFailure::Fail).unwrap());
    assert_eq!(pool.free_bytes(), free);
    assert!(pool.zio.free(TXG, &bp, OnFailure::Fail).unwrap());
    assert!(pool.free_bytes() > free);
}
