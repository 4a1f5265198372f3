//! Single devices, mirrors, and vdevs that are being replaced.

use base::Kind as ErrorKind;
use format::ids::{Guid, Txg};

use super::*;
use crate::{Aux, Health, Lacking, TxgRanges, VdevState};

/// `count` leaves from guid 100 on that all hold `block` at `offset`.
fn images(count: u64, offset: u64, block: &[u8]) -> Images {
    let mut images = Images::default();
    (0..count).for_each(|i| images.write(100 + i, offset, block));
    images
}

fn mirror(count: u64) -> VdevSpec {
    top(vdev(VdevKind::Mirror, 0, 9, disks(100..100 + count)), 9)
}

const OFFSET: u64 = 5 << 20;

#[test]
fn a_single_device() {
    let block = pattern(1, 10_240);
    let images = images(1, OFFSET, &block);
    let spec = vec![top(disk(0, 100), 12)];
    let place = extent(0, OFFSET, block.len());
    let pool = images.open(spec.clone(), &[]);
    assert!(pool.read_fast(place).unwrap() == block);
    assert!(pool.read_slow(place, &block).unwrap() == block);
    assert_eq!(pool.errors(100), (0, 0));

    pool.noise(100);
    let error = pool.read_slow(place, &block).unwrap_err();
    assert_eq!((error.kind(), error.place().vdev.as_deref()), (ErrorKind::Checksum, Some("leaf 100")));
    assert_eq!(pool.errors(100), (0, 1));
    pool.devices[&100].broken(0..DEVICE_BYTES_MIN);
    assert_eq!(pool.read_slow(place, &block).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(pool.errors(100), (1, 1));

    let pool = images.open(spec, &[100]);
    assert_eq!(pool.read_fast(place).unwrap_err().kind(), ErrorKind::Missing);
    assert_eq!(pool.read_slow(place, &block).unwrap_err().kind(), ErrorKind::Missing);
    assert_eq!(pool.tree.health(pool.tree.root().id()), Health::new(VdevState::Unavail, Aux::NoReplicas));
}

#[test]
fn all_sides_of_a_mirror_take_turns() {
    let pool = images(3, 0, &[]).open(vec![mirror(3)], &[]);
    for i in 0..48 {
        pool.read_fast(extent(0, i << 20, 512)).unwrap();
    }
    assert_eq!([100, 101, 102].map(|guid| pool.devices[&guid].reads()), [16; 3]);
}

#[test]
fn any_side_that_is_right_will_do() {
    let block = pattern(2, 4096);
    for offset in [0, 1 << 20, 2 << 20] {
        let images = images(3, offset, &block);
        let place = extent(0, offset, block.len());
        for right in 100..103 {
            let others = (100..103).filter(|&guid| guid != right);
            let pool = images.open(vec![mirror(3)], &others.clone().collect::<Vec<_>>());
            assert!(pool.read_fast(place).unwrap() == block);
            assert_eq!(pool.tree.health(pool.tree.root().id()).state, VdevState::Degraded);

            let pool = images.open(vec![mirror(3)], &[]);
            others.clone().for_each(|guid| pool.noise(guid));
            assert!(pool.read_slow(place, &block).unwrap() == block);
            // those that were asked before the right one
            let charged: u64 = others.clone().map(|guid| pool.errors(guid).1).sum();
            assert_eq!(charged, others.clone().map(|guid| pool.devices[&guid].reads()).sum::<u64>());
            assert_eq!(pool.errors(right), (0, 0));
        }
        let pool = images.open(vec![mirror(3)], &[]);
        (100..103).for_each(|guid| pool.noise(guid));
        assert_eq!(pool.read_slow(place, &block).unwrap_err().kind(), ErrorKind::Checksum);
        assert!((100..103).all(|guid| pool.errors(guid) == (0, 1)));
    }
}

#[test]
fn a_new_side_is_not_asked_for_what_it_has_not_got() {
    let block = pattern(3, 4096);
    let images = images(2, OFFSET, &block);
    let spec = top(vdev(VdevKind::Replacing, 0, 9, disks(100..102)), 9);
    let pool = images.open(vec![spec.clone()], &[]);
    pool.noise(101);
    pool.leaf(101).state().dtl().load([groups(0..8), groups(9..20)].into_iter().collect());
    let old = extent(0, OFFSET, block.len());
    for _ in 0..4 {
        assert!(pool.read_fast(old).unwrap() == block);
    }
    assert_eq!(pool.devices[&101].reads(), 0);
    assert_eq!(pool.leaf(101).state().dtl().missing().iter().count(), 2);
    // born in the gap between what it missed
    let served = |birth_txg| {
        let mut buf = vec![0; block.len()];
        pool.tree.read_batch(&[Extent { birth_txg, ..old }], &mut [&mut buf]).remove(0).unwrap().leaves
    };
    let leaf = |guid| pool.leaf(guid).id();
    assert_eq!((served(Txg::new(10)), served(Txg::new(8))), (vec![leaf(100)], vec![leaf(101)]));

    // when nobody else is left, it is asked after all
    let pool = images.open(vec![spec], &[100]);
    pool.leaf(101).state().dtl().load(TxgRanges::since(Txg::ZERO));
    assert!(pool.read_fast(old).unwrap() == block);
    assert!(pool.read_slow(old, &block).unwrap() == block);
    assert!(pool.tree.leaf(Guid::new(77)).is_none());
}

#[test]
fn a_side_that_was_away_is_given_what_it_lacks() {
    let block = pattern(3, 4096);
    let mut images = images(2, OFFSET, &block);
    images.write(102, 0, &[]);
    let pool = images.open(vec![mirror(3)], &[]);
    let place = extent(0, OFFSET, block.len());
    let dtl = pool.leaf(102).state().dtl();
    dtl.load(std::iter::once(groups(9..12)).collect());
    let heal = |lacking| pool.tree.scrub(place, lacking, &mut |bytes| bytes == block);
    dtl.begin_resilver();
    assert_eq!(heal(Lacking::Leave).unwrap(), 0);
    pool.devices[&102].fail_write(0);
    assert_eq!(heal(Lacking::Fill).unwrap(), 0);
    dtl.end_resilver(Txg::ZERO..Txg::new(12));
    assert_eq!(dtl.missing(), std::iter::once(groups(10..11)).collect(), "what could not be written is still missing");
    dtl.begin_resilver();
    assert_eq!(heal(Lacking::Fill).unwrap(), 4096);
    dtl.end_resilver(Txg::ZERO..Txg::new(12));
    assert!(dtl.is_empty());
    [100, 101].iter().for_each(|&guid| pool.noise(guid));
    assert!(pool.read_slow(place, &block).unwrap() == block);
}

#[test]
fn scrubs_read_ahead_as_they_read() {
    for count in 1..=3 {
        let mut images = Images::default();
        let blocks: Vec<_> = (0..6).map(|i| (extent(0, i * 8192, 5120), pattern(i, 5120))).collect();
        for guid in 100..100 + count {
            blocks.iter().for_each(|(extent, block)| images.write(guid, extent.offset, block));
        }
        scrub_alone_and_together(|| images.open(vec![mirror(count)], &[]), &blocks);
        scrub_alone_and_together(|| images.open(vec![mirror(count)], &[100]), &blocks);
    }
}

#[test]
fn states_of_leaves() {
    let images = images(4, 0, &[]);
    let mut spec = mirror(4);
    let leaf = |spec: &mut VdevSpec, i: usize| spec.children[i].leaf.take().unwrap();
    for (i, change) in [
        |l: LeafSpec| LeafSpec { offline: true, ..l },
        |l: LeafSpec| LeafSpec { faulted: true, ..l },
        |l: LeafSpec| LeafSpec { removed: true, ..l },
    ]
    .into_iter()
    .enumerate()
    {
        spec.children[i].leaf = Some(change(leaf(&mut spec, i)));
    }
    let pool = images.open(vec![spec.clone()], &[102, 103]);
    let health = |guid: u64| pool.tree.health(pool.leaf(guid).id());
    assert_eq!(health(100).name(), "OFFLINE");
    assert_eq!((health(101).name(), health(101).aux.words()), ("FAULTED", "external device fault"));
    assert_eq!(health(102).name(), "REMOVED");
    assert_eq!((health(103).name(), health(103).aux.words()), ("UNAVAIL", "cannot open"));
    assert_eq!(pool.tree.health(pool.tree.root().id()).name(), "UNAVAIL");

    // a device that came back is there
    let pool = images.open(vec![spec], &[]);
    assert_eq!(pool.tree.health(pool.leaf(102).id()), Health::HEALTHY);
    assert_eq!(pool.tree.health(pool.tree.root().id()).name(), "DEGRADED");
    pool.leaf(102).state().set_health(Health::new(VdevState::Unavail, Aux::CorruptData));
    assert_eq!(pool.tree.health(pool.leaf(102).id()).name(), "FAULTED");

    let mut offline = mirror(2);
    offline.children.iter_mut().for_each(|c| c.leaf.as_mut().unwrap().offline = true);
    let pool = images.open(vec![offline], &[]);
    let top = pool.tree.tops().next().unwrap().id();
    assert_eq!(pool.tree.health(top), Health::new(VdevState::Offline, Aux::ChildrenOffline));
}

#[test]
fn a_missing_log_degrades_and_a_missing_top_is_fatal() {
    let images = images(2, 0, &[]);
    let mut tops = vec![top(disk(0, 100), 9), top(disk(1, 101), 9)];
    let state = |tops: &[VdevSpec]| {
        let pool = images.open(tops.to_vec(), &[101]);
        pool.tree.health(pool.tree.root().id()).state
    };
    assert_eq!(state(&tops), VdevState::Unavail);
    tops[1].top.as_mut().unwrap().is_log = true;
    assert_eq!(state(&tops), VdevState::Degraded);
    tops[1] = top(vdev(VdevKind::Hole, 1, 0, vec![]), 9);
    assert_eq!(state(&tops), VdevState::Healthy);
    tops[1] = top(vdev(VdevKind::Missing, 1, 0, vec![]), 9);
    assert_eq!(state(&tops), VdevState::Unavail);
}

#[test]
fn a_device_that_is_too_small_is_not_used() {
    let mut images = images(2, 0, &[]);
    images.0.insert(100, Arc::new(MemDevice::new("small", vec![0; DEVICE_BYTES_MIN as usize - 1])));
    let pool = images.open(vec![mirror(2)], &[]);
    assert_eq!(pool.tree.health(pool.leaf(100).id()).aux, Aux::TooSmall);
    pool.read_fast(extent(0, 0, 512)).unwrap();
    assert_eq!(pool.devices[&100].reads(), 0);
}

#[test]
fn a_device_that_has_shrunk_is_not_used() {
    let metaslabs = |count: u64| {
        let mut spec = mirror(2);
        let top = spec.top.as_mut().unwrap();
        (top.metaslab_shift, top.asize) = (24, (count << 24) + 512);
        spec
    };
    // 64 MiB without labels have room for three of 16 MiB, and for a part of one that nobody uses
    for (count, aux) in [(3, Aux::None), (4, Aux::BadLabel), (1 << 20, Aux::BadLabel)] {
        let mut images = images(2, 0, &[]);
        images.0.insert(100, Arc::new(MemDevice::new("small", vec![0; DEVICE_BYTES_MIN as usize])));
        let pool = images.open(vec![metaslabs(count)], &[]);
        assert_eq!(pool.tree.health(pool.leaf(100).id()).aux, aux, "{count}");
    }
}

#[test]
fn two_leaves_of_one_guid_are_refused() {
    let root = VdevSpec {
        children: vec![top(vdev(VdevKind::Mirror, 0, 9, vec![disk(0, 5), disk(1, 5)]), 9)],
        ..vdev(VdevKind::Root, 0, 1, vec![])
    };
    assert_eq!(Tree::open(root, &HashMap::new()).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn blocks_end_where_their_vdev_ends() {
    let mut spec = top(disk(0, 100), 9);
    spec.top.as_mut().unwrap().asize = 1 << 20;
    let pool = images(1, 0, &[]).open(vec![spec], &[]);
    assert!(pool.read_fast(extent(0, (1 << 20) - 512, 512)).is_ok());
    for (offset, size) in [((1 << 20) - 512, 1024), (1 << 20, 512), (u64::MAX, 512)] {
        assert_eq!(pool.read_fast(extent(0, offset, size)).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
