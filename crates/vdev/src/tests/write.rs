//! Blocks written by the tree, read back through every loss that they must bear.

use base::Kind as ErrorKind;
use format::ids::{Guid, Txg, VdevNumber};

use super::*;
use crate::draid::DraidShape;
use crate::{Aux, Health, TxgRanges, VdevState};

const WHOLE: std::ops::Range<u64> = 0..DEVICE_BYTES_MIN;
const SIZES: [usize; 8] = [512, 1024, 1536, 2560, 4096, 6656, 20_480, 131_072];

/// Empty leaves, and a tree on them.
fn pool(tops: Vec<VdevSpec>) -> Pool {
    images_of(&tops).open(tops, &[])
}

fn images_of(tops: &[VdevSpec]) -> Images {
    fn visit(spec: &VdevSpec, images: &mut Images) {
        if matches!(spec.kind, VdevKind::Disk) {
            images.write(spec.guid.get(), 0, &[]);
        }
        spec.children.iter().for_each(|child| visit(child, images));
    }
    let mut images = Images::default();
    tops.iter().for_each(|top| visit(top, &mut images));
    images
}

fn mirror(count: u64, ashift: u32) -> VdevSpec {
    top(vdev(VdevKind::Mirror, 0, 9, disks(100..100 + count)), ashift)
}

fn raidz(nparity: usize, width: u64, ashift: u32) -> VdevSpec {
    top(vdev(VdevKind::Raidz { nparity }, 0, 9, disks(100..100 + width)), ashift)
}

/// 7 children, 1 spare, 3 groups of 2 data columns and as many of parity.
fn draid(nparity: u64, ashift: u32) -> VdevSpec {
    let shape = DraidShape { children: 7, ndata: 4 - nparity, nparity, nspares: 1, ngroups: 3 };
    top(vdev(VdevKind::Draid(shape), 0, 9, disks(100..107)), ashift)
}

/// Extents of blocks of all sizes, one behind the other from `start` on, and the blocks.
fn blocks(tree: &Tree, start: u64) -> Vec<(Extent, Vec<u8>)> {
    let mut at = start;
    let place = |(i, &size): (usize, &usize)| {
        let place = extent(0, at, size);
        at += tree.asize(VdevNumber::new(0), size as u64).unwrap();
        (place, pattern(i as u64 + 1, size))
    };
    SIZES.iter().enumerate().map(place).collect()
}

fn write(tree: &Tree, blocks: &[(Extent, Vec<u8>)]) -> Vec<Result<()>> {
    let writes: Vec<(Extent, &[u8])> = blocks.iter().map(|(extent, block)| (*extent, &block[..])).collect();
    tree.write_batch(&writes)
}

/// Writes blocks, and reads them with any `losses` leaves of `width` gone.
fn bears(spec: VdevSpec, start: u64, width: usize, losses: usize) {
    let images = images_of(std::slice::from_ref(&spec));
    let pool = images.open(vec![spec.clone()], &[]);
    let blocks = blocks(&pool.tree, start);
    write(&pool.tree, &blocks).into_iter().for_each(|result| result.unwrap());
    pool.tree.flush().unwrap();
    assert!(pool.tree.leaves().all(|leaf| leaf.state().dtl().is_empty() && leaf.stats().errors() == [0; 3]));
    drop(pool);
    for lost in subsets(width, losses).into_iter().chain([vec![]]) {
        let absent: Vec<u64> = lost.iter().map(|&i| 100 + i as u64).collect();
        let pool = images.open(vec![spec.clone()], &absent);
        for (place, block) in &blocks {
            assert!(pool.read_fast(*place).unwrap() == *block, "{:?} {place:?} without {lost:?}", spec.kind);
        }
        let noisy = images.open(vec![spec.clone()], &[]);
        absent.iter().for_each(|&guid| noisy.noise(guid));
        let (place, block) = &blocks[lost.len() % blocks.len()];
        assert!(noisy.read_slow(*place, block).unwrap() == *block, "{:?} {place:?} noise {lost:?}", spec.kind);
        // what the others hold, parity too, is right
        let others = (100..100 + width as u64).filter(|guid| !absent.contains(guid));
        others.for_each(|guid| assert_eq!(noisy.errors(guid), (0, 0), "{:?} {place:?} noise {lost:?}", spec.kind));
    }
}

#[test]
fn every_layout_bears_its_losses() {
    for ashift in [9, 12] {
        bears(top(disk(0, 100), ashift), 1 << 20, 1, 0);
        bears(mirror(3, ashift), 1 << 20, 3, 2);
        for nparity in 1..=3 {
            for width in [nparity as u64 + 1, nparity as u64 + 3] {
                bears(raidz(nparity, width, ashift), 7 << 12, width as usize, nparity);
                bears(raidz(nparity, width, ashift), (1 << 20) + (3 << 12), width as usize, nparity);
            }
            bears(draid(nparity as u64, ashift), 0, 7, nparity);
            // a block that crosses the border of a group
            bears(draid(nparity as u64, ashift), (64 << 20) - (8 << 12), 7, nparity);
        }
    }
}

/// What is written is what the tests of reading have written by hand, parity included, and nothing
/// else: no leaf changes outside its columns.
#[test]
fn sectors_that_are_not_the_blocks_stay() {
    let spec = raidz(2, 5, 9);
    let mut images = images_of(std::slice::from_ref(&spec));
    (100..105).for_each(|guid| images.write(guid, 0, &[0xee; 1 << 20]));
    let pool = images.open(vec![spec], &[]);
    let block = pattern(1, 2 * 512);
    let place = extent(0, 5 * 512, block.len());
    write(&pool.tree, &[(place, block.clone())])[0].as_ref().unwrap();
    let on = |guid: u64| images.0[&guid].bytes()[FRONT_BYTES as usize..][..1 << 20].to_vec();
    for (guid, row) in [(102, Some(&block[..512])), (103, Some(&block[512..])), (100, None), (101, None)] {
        let bytes = on(guid);
        assert!(row.is_none_or(|row| bytes[512..1024] == *row), "{guid}");
        assert!(bytes[..512] == [0xee; 512] && bytes[1024..].iter().all(|&byte| byte == 0xee), "{guid}");
        assert!(bytes[512..1024] != [0xee; 512], "{guid}");
    }
    // 4 sectors are rounded up to 6; padding is not written
    assert!(on(104).iter().all(|&byte| byte == 0xee));
    assert_eq!(pool.devices[&104].writes(), 0);
}

/// The zero sectors behind a block on a draid are written over what was there.
#[test]
fn lines_of_a_draid_are_filled_up() {
    let spec = draid(2, 9);
    let mut images = images_of(std::slice::from_ref(&spec));
    (100..107).for_each(|guid| images.write(guid, 0, &[0xee; 4096]));
    let pool = images.open(vec![spec], &[]);
    let block = pattern(1, 3 * 512);
    write(&pool.tree, &[(extent(0, 0, block.len()), block.clone())])[0].as_ref().unwrap();
    let heads: Vec<Vec<u8>> =
        (100..107).map(|guid| images.0[&guid].bytes()[FRONT_BYTES as usize..][..4096].to_vec()).collect();
    let holding = |expect: [&[u8]; 2]| heads.iter().filter(|head| head[..1024] == expect.concat()).count();
    assert_eq!((holding([&block[..512], &block[512..1024]]), holding([&block[1024..], &[0; 512]])), (1, 1));
    assert_eq!(heads.iter().filter(|head| head[..512] != [0xee; 512]).count(), 4);
    assert!(heads.iter().all(|head| head[1024..] == [0xee; 3072]));
}

#[test]
fn the_end_of_a_block_is_filled_with_zeros_and_never_more() {
    for spec in [top(disk(0, 100), 12), mirror(2, 12), raidz(1, 3, 12)] {
        let mut images = images_of(std::slice::from_ref(&spec));
        (100..103).for_each(|guid| images.write(guid, 0, &[0xee; 1 << 16]));
        let pool = images.open(vec![spec], &[]);
        let block = pattern(3, 512);
        write(&pool.tree, &[(extent(0, 0, 512), block.clone())])[0].as_ref().unwrap();
        let leaf = if pool.tree.top(VdevNumber::new(0)).unwrap().has_parity() { 101 } else { 100 };
        let bytes = images.0[&leaf].bytes()[FRONT_BYTES as usize..][..1 << 16].to_vec();
        assert!(bytes[..512] == block && bytes[512..4096] == [0; 3584] && bytes[4096..] == [0xee; (1 << 16) - 4096]);
    }
}

/// Leaves that fail are charged and noted, and the write is good while the redundancy lasts.
#[test]
fn failures_within_the_redundancy() {
    for (spec, width, bearable) in [
        (mirror(3, 9), 3, 2),
        (raidz(1, 4, 9), 4, 1),
        (raidz(2, 5, 12), 5, 2),
        (raidz(3, 6, 9), 6, 3),
        (draid(2, 9), 7, 2),
    ] {
        for losses in 0..=bearable + 1 {
            let pool = pool(vec![spec.clone()]);
            let big = vec![(extent(0, 0, 131_072), pattern(1, 131_072))];
            let broken: Vec<u64> = (100..100 + width).collect();
            broken[..losses].iter().for_each(|guid| pool.devices[guid].unwritable(WHOLE));
            let result = write(&pool.tree, &big).remove(0);
            let leaf = |guid: u64| pool.leaf(guid);
            for &guid in &broken {
                let failed = broken[..losses].contains(&guid) && pool.devices[&guid].writes() > 0;
                assert_eq!(leaf(guid).stats().errors()[1] > 0, failed);
                assert_eq!(leaf(guid).state().dtl().contains(Txg::new(10)), failed);
                assert!(
                    !leaf(guid).state().dtl().contains(Txg::new(9)) && !leaf(guid).state().dtl().contains(Txg::new(11))
                );
            }
            // a draid's block is not on every leaf
            let hit = broken[..losses].iter().filter(|guid| pool.devices[guid].writes() > 0).count();
            assert_eq!(result.is_ok(), hit <= bearable, "{:?} {losses}", spec.kind);
            match result {
                Ok(()) => assert!(pool.read_fast(big[0].0).unwrap() == big[0].1),
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Io);
                    assert!(e.place().vdev.as_deref().unwrap().starts_with("leaf 10"), "{e:?}");
                }
            }
        }
    }
}

#[test]
fn one_write_that_fails_is_one_block() {
    let pool = pool(vec![top(disk(0, 100), 9), VdevSpec { id: 1, ..top(disk(1, 101), 9) }]);
    pool.devices[&101].fail_write(1);
    let blocks: Vec<_> = (0..6).map(|i| (extent(i % 2, i << 20, 4096), pattern(i, 4096))).collect();
    let good: Vec<bool> = write(&pool.tree, &blocks).iter().map(Result::is_ok).collect();
    assert_eq!(good, [true, true, true, false, true, true]);
    let stats = pool.leaf(101).state().stats();
    assert_eq!(stats.errors(), [0, 1, 0]);
    use std::sync::atomic::Ordering::Relaxed;
    assert_eq!((stats.writes.load(Relaxed), stats.write_bytes.load(Relaxed)), (3, 3 * 4096));
}

#[test]
fn a_leaf_that_is_away_misses_what_is_written() {
    let spec = mirror(2, 9);
    let pool = images_of(std::slice::from_ref(&spec)).open(vec![spec], &[101]);
    let blocks = [(extent(0, 0, 512), pattern(1, 512))];
    write(&pool.tree, &blocks)[0].as_ref().unwrap();
    let leaf = |guid| pool.leaf(guid);
    assert_eq!(leaf(101).state().dtl().missing(), std::iter::once(groups(10..11)).collect::<TxgRanges>());
    assert_eq!((leaf(101).stats().errors(), leaf(100).state().dtl().is_empty()), ([0; 3], true));

    // the other vanishes: it is charged, and not asked again
    pool.devices[&100].vanish(true);
    for expect in [1, 1] {
        let error = write(&pool.tree, &blocks).remove(0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Missing);
        assert!(error.place().vdev.is_some());
        assert_eq!(leaf(100).stats().errors()[1], expect);
        assert_eq!(pool.tree.health(leaf(100).id()).state, VdevState::Unavail);
    }
    assert!(leaf(100).state().dtl().contains(Txg::new(10)));
}

#[test]
fn both_sides_of_a_replacement_and_a_distributed_spare() {
    let shape = DraidShape { children: 5, ndata: 2, nparity: 1, nspares: 2, ngroups: 1 };
    let stand_in = vdev(VdevKind::DraidSpare { draid_guid: Guid::new(9), spare: 0 }, 1, 50, vec![]);
    let mut children = disks(100..105);
    children[0] = vdev(VdevKind::Spare, 0, 60, vec![disk(0, 100), stand_in]);
    let specs = [
        top(vdev(VdevKind::Draid(shape), 0, 9, children), 9),
        top(vdev(VdevKind::Replacing, 0, 9, disks(100..102)), 9),
    ];
    for spec in specs {
        let images = images_of(std::slice::from_ref(&spec));
        let pool = images.open(vec![spec.clone()], &[]);
        // spread over many slices, so that the spare lies everywhere
        let blocks: Vec<_> = (0..40).map(|i| (extent(0, i * 3 << 20, 3072), pattern(i + 1, 3072))).collect();
        let fits = |(place, _): &&(Extent, Vec<u8>)| place.offset < DEVICE_BYTES_MIN - (8 << 20);
        let blocks: Vec<_> = blocks.iter().filter(fits).cloned().collect();
        write(&pool.tree, &blocks).into_iter().for_each(|result| result.unwrap());
        drop(pool);
        for absent in [100, 101] {
            let pool = images.open(vec![spec.clone()], &[absent]);
            blocks.iter().for_each(|(place, block)| assert!(pool.read_fast(*place).unwrap() == *block));
        }
    }
}

/// A configuration in which distributed spares stand in for each other ends in an error, not never.
#[test]
fn spares_that_lead_in_a_circle() {
    let shape = DraidShape { children: 3, ndata: 1, nparity: 1, nspares: 1, ngroups: 1 };
    let child = |id: u64| {
        let stand_in = vdev(VdevKind::DraidSpare { draid_guid: Guid::new(9), spare: 0 }, 1, 50 + id, vec![]);
        vdev(VdevKind::Spare, id, 60 + id, vec![disk(0, 100 + id), stand_in])
    };
    let pool = pool(vec![top(vdev(VdevKind::Draid(shape), 0, 9, (0..3).map(child).collect()), 9)]);
    let _ = write(&pool.tree, &[(extent(0, 0, 512), pattern(1, 512))]);
}

#[test]
fn flushes_go_where_something_was_written() {
    let pool = pool(vec![mirror(2, 9), VdevSpec { id: 1, ..top(disk(1, 102), 9) }]);
    let flushes = || [100, 101, 102].map(|guid| pool.devices[&guid].flushes());
    let leaf = |guid| pool.leaf(guid);
    pool.tree.flush().unwrap();
    assert_eq!(flushes(), [0; 3]);
    let put = |top, txg| {
        let place = Extent { birth_txg: txg, ..extent(top, 0, 512) };
        write(&pool.tree, &[(place, pattern(1, 512))]).remove(0).unwrap();
    };
    put(0, Txg::new(5));
    put(0, Txg::new(7));
    pool.tree.flush().unwrap();
    pool.tree.flush().unwrap();
    assert_eq!(flushes(), [1, 1, 0]);

    // one side fails: what it was written for is missed, and the other side has it
    put(0, Txg::new(8));
    put(0, Txg::new(9));
    pool.devices[&100].fail_flush(1);
    pool.tree.flush().unwrap();
    assert_eq!(leaf(100).state().dtl().missing(), std::iter::once(groups(8..10)).collect::<TxgRanges>());
    assert_eq!((leaf(100).stats().errors(), leaf(101).stats().errors()), ([0, 1, 0], [0; 3]));

    // the other side fails too, for other groups: still nothing is lost
    put(0, Txg::new(12));
    pool.devices[&101].fail_flush(2);
    pool.tree.flush().unwrap();
    // but here the side that flushes well lacks the group
    pool.devices[&100].fail_write(pool.devices[&100].writes());
    put(0, Txg::new(13));
    pool.devices[&101].fail_flush(3);
    assert_eq!(pool.tree.flush().unwrap_err().kind(), ErrorKind::Io);
    // what is lost does not come back by flushing again, but by writing it again
    assert_eq!(pool.tree.flush().unwrap_err().kind(), ErrorKind::Io);
    pool.tree.begin_again(Some(Txg::new(13)));
    assert!(
        !leaf(100).state().dtl().contains(Txg::new(13))
            && leaf(100).state().dtl().contains(Txg::new(8))
            && leaf(101).state().dtl().contains(Txg::new(12))
    );
    // a single device has nobody to make up for it
    put(1, Txg::new(14));
    pool.devices[&102].fail_flush(0);
    assert_eq!(pool.tree.flush().unwrap_err().kind(), ErrorKind::Io);
    pool.tree.begin_again(None);
    pool.tree.flush().unwrap();
}

#[test]
fn what_a_pool_can_do_without() {
    let single = VdevSpec { id: 1, ..top(disk(1, 110), 9) };
    let pool = pool(vec![raidz(1, 3, 12), single]);
    let can = |guid| pool.tree.can_do_without(pool.leaf(guid));
    assert_eq!([100, 101, 102, 110].map(can), [true, true, true, false]);
    // a leaf that has missed something needs all others, and is not needed
    pool.leaf(101).state().dtl().insert(Txg::new(5)..Txg::new(9));
    assert_eq!([100, 101, 102].map(can), [false, true, false]);
    pool.leaf(102).state().dtl().insert(Txg::new(20)..Txg::new(21));
    assert_eq!([100, 101, 102].map(can), [false, false, false]);
    pool.leaf(101).state().dtl().load(TxgRanges::new());
    pool.leaf(102).state().dtl().load(TxgRanges::new());
    pool.leaf(100).state().set_health(Health::new(VdevState::Faulted, Aux::ErrExceeded));
    assert_eq!([100, 101, 102].map(can), [true, false, false]);
    assert!(pool.leaf(100).state().reopen(None));
    assert_eq!([100, 101, 102].map(can), [true, true, true]);
    // another device takes its place, and is used from then on
    let other = Arc::new(MemDevice::new("other", vec![7; pool.devices[&110].size() as usize]));
    assert!(pool.leaf(110).state().reopen(Some(other)));
    let mut got = vec![0; 512];
    pool.tree.read_batch(&[extent(1, 0, 512)], &mut [&mut got]).remove(0).unwrap();
    assert_eq!(got, [7; 512]);
}

#[test]
fn what_cannot_be_written() {
    let mut small = top(disk(0, 100), 12);
    small.top.as_mut().unwrap().asize = 1 << 20;
    let pool =
        pool(vec![small, top(vdev(VdevKind::Indirect, 1, 7, vec![]), 9), top(vdev(VdevKind::Hole, 2, 0, vec![]), 9)]);
    let kind = |top, offset, size| {
        let result = write(&pool.tree, &[(extent(top, offset, size), vec![1; size])]).remove(0);
        result.map_err(|e| e.kind())
    };
    assert_eq!(kind(0, (1 << 20) - 4096, 4096), Ok(()));
    assert_eq!(kind(0, (1 << 20) - 4096, 4608), Err(ErrorKind::Corrupt));
    assert_eq!(kind(0, 512, 512), Err(ErrorKind::Invalid));
    assert_eq!(kind(1, 0, 512), Err(ErrorKind::Invalid));
    assert_eq!(kind(2, 0, 512), Err(ErrorKind::Missing));
    assert_eq!(kind(3, 0, 512), Err(ErrorKind::Corrupt));
    assert!(write(&pool.tree, &[]).is_empty());
}

#[test]
fn accounts_leave_parity_out() {
    let pool = pool(vec![raidz(1, 3, 12), VdevSpec { id: 1, ..top(disk(1, 110), 9) }]);
    // 128 KiB take 192 KiB: 341 of 512 bytes are data
    assert_eq!(pool.tree.deflate(VdevNumber::new(0), 192 << 10).unwrap(), 384 * 341);
    assert_eq!(pool.tree.deflate(VdevNumber::new(1), 192 << 10).unwrap(), 192 << 10);
    assert!(pool.tree.deflate(VdevNumber::new(2), 512).is_err());
}

/// Top-level vdevs count blocks, leaves count requests; and all requests are timed.
#[test]
fn what_is_done_is_counted() {
    use std::sync::atomic::Ordering::Relaxed;

    use device::meter::Purpose;

    let pool = pool(vec![raidz(1, 3, 9)]);
    pool.tree.set_clock(&base::Env::real());
    let (place, block) = (extent(0, 0, 4096), pattern(1, 4096));
    write(&pool.tree, &[(place, block.clone())]).remove(0).unwrap();
    let sync = [(extent(0, 1 << 20, 512), &block[..512])];
    pool.tree.write_batch_for(Purpose::SyncWrite, &sync).remove(0).unwrap();
    assert!(pool.read_fast(place).unwrap() == block && pool.read_slow(place, &block).unwrap() == block);
    pool.devices[&101].vanish(true);
    assert!(pool.read_fast(place).is_err());
    let counts = |stats: &crate::VdevStats| {
        [&stats.reads, &stats.read_bytes, &stats.writes, &stats.write_bytes].map(|n| n.load(Relaxed))
    };
    assert_eq!(counts(pool.tree.top(VdevNumber::new(0)).unwrap().stats()), [2, 8192, 2, 4608]);
    let leaf = |guid| pool.leaf(guid).state().stats();
    // parity of both, read when every way was tried
    assert_eq!(counts(leaf(100)), [1, 2048, 2, 2560]);
    // the small block lies on the two others
    assert_eq!(counts(leaf(101))[2..], [1, 2048]);
    let sum = |times: &[u64]| times.iter().sum::<u64>();
    assert_eq!(leaf(100).meter.totals().map(|times| sum(&times)), [1, 2]);
    assert_eq!((leaf(100).meter.sizes(Purpose::AsyncWrite)[11], leaf(100).meter.sizes(Purpose::SyncWrite)[9]), (1, 1));
}
