//! Blocks on vdevs that have been removed.

use base::Kind as ErrorKind;
use format::ids::{Txg, VdevNumber};

use super::*;
use crate::{MapEntry, Relocated, Relocation, TopRange};

fn entry(src_offset: u64, dst_top: u64, dst_offset: u64, asize: u64) -> MapEntry {
    MapEntry { src_offset, dst_top: VdevNumber::new(dst_top), dst_offset, asize }
}

/// Vdev 0 is a mirror of 100 and 101, vdev 1 one of 102 and 103; 2 and 3 have been removed.
fn tops() -> Vec<VdevSpec> {
    vec![
        top(vdev(VdevKind::Mirror, 0, 8, disks(100..102)), 9),
        top(vdev(VdevKind::Mirror, 1, 9, disks(102..104)), 9),
        top(vdev(VdevKind::Indirect, 2, 10, vec![]), 9),
        top(vdev(VdevKind::Indirect, 3, 11, vec![]), 9),
    ]
}

/// A block on vdev 3, which went to vdevs 2 and 0; vdev 2 then went to 1 and 0. The pieces lie in
/// different regions, so that mirrors take turns within the block.
fn split_block() -> (Images, Extent, Vec<u8>, [Vec<MapEntry>; 2]) {
    let block = pattern(4, 8192);
    let mut images = Images::default();
    let mut write = |guids: [u64; 2], offset, range: std::ops::Range<usize>| {
        guids.iter().for_each(|&guid| images.write(guid, offset, &block[range.clone()]));
    };
    write([102, 103], 3 << 20, 0..1024);
    write([100, 101], 6 << 20, 1024..3072);
    write([100, 101], 9 << 20, 3072..8192);
    let of_3 = vec![entry(0, 2, 1 << 20, 4096), entry(4096, 0, 9 << 20, 1 << 20)];
    let of_2 = vec![entry(1 << 20, 1, (3 << 20) - 1024, 2048), entry((1 << 20) + 2048, 0, 6 << 20, 2048)];
    (images, extent(3, 1024, 8192), block, [of_2, of_3])
}

#[test]
fn tables_are_followed_through_other_removed_vdevs() {
    let (images, place, block, [of_2, of_3]) = split_block();
    let pool = images.open(tops(), &[]);
    assert_eq!(pool.read_fast(place).unwrap_err().kind(), ErrorKind::Missing);
    pool.tree.set_indirect(VdevNumber::new(2), of_2.clone()).unwrap();
    pool.tree.set_indirect(VdevNumber::new(3), of_3).unwrap();
    assert!(pool.read_fast(place).unwrap() == block);
    assert!(pool.read_slow(place, &block).unwrap() == block);
    assert_eq!(pool.tree.set_indirect(VdevNumber::new(2), of_2).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(pool.tree.set_indirect(VdevNumber::new(0), vec![]).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(pool.tree.set_indirect(VdevNumber::new(9), vec![]).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(pool.tree.health(pool.tree.root().id()), crate::Health::HEALTHY);
}

/// Of each piece one side is bad, not the same one everywhere.
#[test]
fn split_blocks_are_put_together_from_any_sides() {
    let (images, place, block, [of_2, of_3]) = split_block();
    for bad in 0..8u64 {
        let pool = images.open(tops(), &[]);
        pool.tree.set_indirect(VdevNumber::new(2), of_2.clone()).unwrap();
        pool.tree.set_indirect(VdevNumber::new(3), of_3.clone()).unwrap();
        let pieces = [(102, 3u64 << 20), (100, 6 << 20), (100, 9 << 20)];
        let guilty: Vec<u64> = pieces.iter().enumerate().map(|(i, (guid, _))| guid + (bad >> i & 1)).collect();
        for (guid, (_, offset)) in guilty.iter().zip(pieces) {
            pool.devices[guid].noise(FRONT_BYTES + offset..FRONT_BYTES + offset + 8192);
        }
        assert!(pool.read_slow(place, &block).unwrap() == block, "{bad}");
        for guid in 100..104 {
            let wrong = guilty.iter().filter(|&&g| g == guid).count() as u64;
            assert!(pool.errors(guid).1 <= wrong);
        }
    }
    // all sides of one piece
    let pool = images.open(tops(), &[]);
    pool.tree.set_indirect(VdevNumber::new(2), of_2).unwrap();
    pool.tree.set_indirect(VdevNumber::new(3), of_3).unwrap();
    pool.noise(102);
    pool.noise(103);
    let error = pool.read_slow(place, &block).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Checksum);
}

/// Many pieces, and one disk bad throughout: found without trying all combinations.
#[test]
fn one_bad_disk_under_many_pieces() {
    let block = pattern(5, 128 * 512);
    let mut images = Images::default();
    let table: Vec<MapEntry> = (0..128)
        .map(|i| {
            let offset = ((i * 7 % 50) << 20) + i * 4096;
            for guid in [100, 101] {
                images.write(guid, offset, &block[i as usize * 512..][..512]);
            }
            entry(i * 512, 0, offset, 512)
        })
        .collect();
    images.write(102, 0, &[]);
    images.write(103, 0, &[]);
    for bad in [100, 101] {
        let pool = images.open(tops(), &[]);
        pool.tree.set_indirect(VdevNumber::new(2), table.clone()).unwrap();
        pool.noise(bad);
        let mut calls = 0;
        let mut buf = vec![0; block.len()];
        let good = &mut |bytes: &[u8]| {
            calls += 1;
            bytes == block
        };
        pool.tree.read_verified(extent(2, 0, block.len()), &mut buf, good).unwrap();
        assert!(buf == block && calls < 5, "{calls} tries");
    }
    // and when both are bad, the search ends
    let pool = images.open(tops(), &[]);
    pool.tree.set_indirect(VdevNumber::new(2), table).unwrap();
    pool.noise(100);
    pool.noise(101);
    assert_eq!(pool.read_slow(extent(2, 0, block.len()), &block).unwrap_err().kind(), ErrorKind::Checksum);
}

#[test]
fn circles_and_gaps_are_errors() {
    let (images, place, _, _) = split_block();
    let pool = images.open(tops(), &[]);
    pool.tree.set_indirect(VdevNumber::new(2), vec![entry(0, 3, 0, 1 << 20)]).unwrap();
    pool.tree.set_indirect(VdevNumber::new(3), vec![entry(0, 2, 0, 1 << 20)]).unwrap();
    assert_eq!(pool.read_fast(place).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(pool.read_fast(extent(3, (1 << 20) - 512, 1024)).unwrap_err().kind(), ErrorKind::Corrupt);
}

/// A block that is damaged on one side of a mirror is damaged on one side of the next, too, where there is one.
#[test]
fn sides_that_differ_are_kept_apart() {
    let tops = || {
        vec![
            top(vdev(VdevKind::Mirror, 0, 8, disks(100..102)), 9),
            top(vdev(VdevKind::Mirror, 1, 9, disks(102..104)), 9),
            top(disk(2, 104), 9),
        ]
    };
    let block = pattern(4, 8192);
    let mut damaged = block.clone();
    damaged[5000] ^= 1;
    let mut images = Images::default();
    images.write(100, 1 << 20, &block);
    images.write(101, 1 << 20, &damaged);
    (102..105).for_each(|guid| images.write(guid, 0, &[0]));
    let pool = images.open(tops(), &[]);
    let from = TopRange { top: VdevNumber::new(0), range: 1 << 20..(1 << 20) + 8192 };
    let relocate = |used: &[std::ops::Range<u64>], to: u64, is_lossy: bool| {
        let to = TopRange { top: VdevNumber::new(to), range: 3 << 20..(3 << 20) + 8192 };
        pool.tree.relocate(&Relocation { from: &from, used, to: &to, txg: Txg::new(10), is_lossy }).unwrap()
    };
    let (whole, without) = (0..8192, [0..4608, 5120..8192]);
    assert_eq!(relocate(std::slice::from_ref(&whole), 1, false), Relocated::Copied);
    let place = extent(1, 3 << 20, 8192);
    assert!(pool.read_slow(place, &block).unwrap() == block);
    assert!(pool.read_slow(place, &damaged).unwrap() == damaged);
    // a disk cannot have both, which is no matter if nobody needs where they differ
    assert!(matches!(relocate(std::slice::from_ref(&whole), 2, false), Relocated::Unsafe(_)));
    assert_eq!(relocate(&without, 2, false), Relocated::Copied);
    assert_eq!(pool.read_fast(extent(2, 3 << 20, 4608)).unwrap(), block[..4608]);
    assert_eq!(relocate(std::slice::from_ref(&whole), 2, true), Relocated::Copied);
    assert!(pool.read_fast(extent(2, 3 << 20, 8192)).unwrap() == block);
}

/// What one side cannot read comes from another; what none can read is not left behind.
#[test]
fn what_cannot_be_read_is_not_copied() {
    let tops = || vec![top(vdev(VdevKind::Mirror, 0, 8, disks(100..102)), 9), top(disk(1, 104), 9)];
    let block = pattern(4, 8192);
    let mut images = Images::default();
    (100..102).for_each(|guid| images.write(guid, 1 << 20, &block));
    images.write(104, 0, &[0]);
    let pool = images.open(tops(), &[]);
    let (from, to) = (
        TopRange { top: VdevNumber::new(0), range: 1 << 20..(1 << 20) + 8192 },
        TopRange { top: VdevNumber::new(1), range: 0..8192 },
    );
    let whole = 0..8192;
    let used = std::slice::from_ref(&whole);
    let relocate =
        |is_lossy| pool.tree.relocate(&Relocation { from: &from, used, to: &to, txg: Txg::new(10), is_lossy }).unwrap();
    let place = FRONT_BYTES + (1 << 20);
    pool.devices[&100].broken(place..place + 512);
    pool.devices[&101].broken(place + 4096..place + 4608);
    assert_eq!(relocate(false), Relocated::Copied);
    assert!(pool.read_fast(extent(1, 0, 8192)).unwrap() == block);
    pool.devices[&101].broken(place..place + 512);
    assert!(matches!(relocate(false), Relocated::Unsafe(_)));
    assert_eq!(relocate(true), Relocated::Copied);
    assert_eq!(pool.read_fast(extent(1, 512, 7680)).unwrap(), block[512..]);
}
