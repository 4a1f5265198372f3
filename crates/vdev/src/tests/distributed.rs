//! Draids, and their distributed spares.

use super::parity::{Raidz, lines, parity_sector};
use super::*;
use crate::VdevState;
use crate::draid::{DraidLayout, DraidShape};
use base::Kind as ErrorKind;

const SHAPE: DraidShape = DraidShape { children: 7, ndata: 2, nparity: 2, nspares: 1, ngroups: 3 };

/// A draid of leaves 100 to 106, with blocks before and across the end of a group; `spared` is the
/// number of a child whose contents are also on the distributed spare.
fn draid(spared: Option<usize>) -> (Images, Vec<(Extent, Vec<u8>)>) {
    let layout = DraidLayout::new(12, SHAPE).unwrap();
    let (mut images, mut blocks) = (Images::default(), vec![]);
    (100..107).for_each(|guid| images.write(guid, 0, &[]));
    let group = 4 * (16 << 20);
    let mut add = |offset, size| {
        let block = pattern(offset + size as u64, size);
        write_draid(&layout, &mut images, spared, offset, &block);
        blocks.push((extent(0, offset, size), block));
    };
    for (offset, size) in (0..).step_by(1 << 20).zip([512, 4096, 8192, 12_288, 20_480, 50_000]) {
        add(offset, size);
        add(3 * group + offset, size);
    }
    [group - 16_384, 2 * group - 2 * 16_384, 4 * group - 16_384].into_iter().for_each(|offset| add(offset, 50_000));
    (images, blocks)
}

fn write_draid(layout: &DraidLayout, images: &mut Images, spared: Option<usize>, offset: u64, block: &[u8]) {
    let padded = block.len().next_multiple_of(4096);
    let mut block = block.to_vec();
    block.resize(padded, 0);
    for row in layout.map(offset, padded).unwrap() {
        for (l, line) in lines(&block[row.start..row.start + row.len()], 4096, 2).iter().enumerate() {
            let parity = (0..2).map(|p| parity_sector(p, line));
            let all = parity.chain(line.iter().cloned());
            for (column, bytes) in row.columns.iter().zip(all) {
                let at = column.offset + ((l as u64) << 12);
                images.write(100 + column.child as u64, at, &bytes);
                if spared == Some(column.child) {
                    images.write(100 + layout.spare_child(0, at) as u64, at, &bytes);
                }
            }
        }
    }
}

fn draid_spec() -> VdevSpec {
    top(vdev(VdevKind::Draid(SHAPE), 0, 9, disks(100..107)), 12)
}

#[test]
fn draid_bears_what_its_parity_allows() {
    let (images, blocks) = draid(None);
    for count in 0..=2 {
        for set in subsets(7, count) {
            let bad: Vec<u64> = set.iter().map(|&i| 100 + i as u64).collect();
            let absent = images.open(vec![draid_spec()], &bad);
            let noisy = images.open(vec![draid_spec()], &[]);
            bad.iter().for_each(|&guid| noisy.noise(guid));
            for (extent, block) in &blocks {
                assert!(absent.read_fast(*extent).unwrap() == *block, "{bad:?} absent, {extent:?}");
                assert!(noisy.read_slow(*extent, block).unwrap() == *block, "{bad:?} noisy, {extent:?}");
            }
            for guid in (100..107).filter(|guid| !bad.contains(guid)) {
                assert_eq!(noisy.errors(guid), (0, 0));
            }
        }
    }
    let pool = images.open(vec![draid_spec()], &[100, 101, 102]);
    assert_eq!(pool.tree.health(pool.tree.root().id()).state, VdevState::Unavail);
}

/// A leaf is gone, and its contents are on the distributed spare: two more may go.
#[test]
fn a_distributed_spare_stands_in() {
    let (images, blocks) = draid(Some(3));
    let mut spec = draid_spec();
    let spare = vdev(VdevKind::DraidSpare { draid_guid: Guid::new(9), spare: 0 }, 1, 60, vec![]);
    spec.children[3] = vdev(VdevKind::Spare, 3, 50, vec![disk(0, 103), spare]);
    let layout = DraidLayout::new(12, SHAPE).unwrap();
    let pool = images.open(vec![spec.clone()], &[103]);
    let mut spare_used = 0;
    for (extent, block) in &blocks {
        let (mut buf, before) = (vec![0; block.len()], pool.devices.values().map(|d| d.reads()).sum::<u64>());
        let served = pool.tree.read_batch(&[*extent], &mut [&mut buf]).remove(0).unwrap();
        assert!(buf == *block && !served.rebuilt, "{extent:?}");
        assert_eq!(pool.devices.values().map(|d| d.reads()).sum::<u64>() - before, served.leaves.len() as u64);
        let rows = layout.map(extent.offset, block.len().next_multiple_of(4096)).unwrap();
        spare_used += rows.iter().flat_map(|row| row.data()).filter(|c| c.child == 3 && c.size > 0).count();
    }
    assert!(spare_used > 0, "no block of the test was on the lost leaf");
    for set in subsets(7, 2) {
        let also: Vec<u64> = set.iter().map(|&i| 100 + i as u64).collect();
        let pool = images.open(vec![spec.clone()], &[103]);
        also.iter().for_each(|&guid| pool.noise(guid));
        for (extent, block) in &blocks {
            // the spare is on the other leaves: one of them gone may cost two columns
            let rows = layout.map(extent.offset, block.len().next_multiple_of(4096)).unwrap();
            let bearable = rows.iter().all(|row| {
                let leaf = |c: &crate::raidz::Column| match c.child {
                    3 => 100 + layout.spare_child(0, c.offset) as u64,
                    n => 100 + n as u64,
                };
                row.columns.iter().filter(|c| c.size > 0 && also.contains(&leaf(c))).count() <= 2
            });
            assert_eq!(pool.read_slow(*extent, block).is_ok(), bearable, "{also:?} {extent:?}");
        }
    }
}

/// A distributed spare that was given something wrong: the disks that it is spread over are not charged with it.
#[test]
fn wrong_bytes_of_a_distributed_spare_are_its_own() {
    let (images, blocks) = draid(None);
    let mut spec = draid_spec();
    let spare = vdev(VdevKind::DraidSpare { draid_guid: Guid::new(9), spare: 0 }, 1, 60, vec![]);
    spec.children[3] = vdev(VdevKind::Spare, 3, 50, vec![disk(0, 103), spare]);
    let pool = images.open(vec![spec], &[103]);
    for (extent, block) in &blocks {
        assert!(pool.read_slow(*extent, block).unwrap() == *block, "{extent:?}");
    }
    assert!(pool.leaf(60).stats().errors()[2] > 0);
    assert!(pool.tree.leaves().filter(|leaf| leaf.guid().get() != 60).all(|leaf| leaf.stats().errors() == [0; 3]));
}

#[test]
fn scrubs_of_draids_read_ahead_as_they_read() {
    let (images, blocks) = draid(Some(3));
    scrub_alone_and_together(|| images.open(vec![draid_spec()], &[]), &blocks);
    let mut spec = draid_spec();
    let spare = vdev(VdevKind::DraidSpare { draid_guid: Guid::new(9), spare: 0 }, 1, 60, vec![]);
    spec.children[3] = vdev(VdevKind::Spare, 3, 50, vec![disk(0, 103), spare]);
    scrub_alone_and_together(|| images.open(vec![spec.clone()], &[103]), &blocks);
}

/// What a leaf had that is lost is made anew from the others, on the distributed spare or a new leaf, by those that know
/// nothing of blocks.
#[test]
fn a_draid_is_rebuilt_stripe_by_stripe() {
    let layout = DraidLayout::new(12, SHAPE).unwrap();
    for (kind, new) in [
        (VdevKind::Spare, vdev(VdevKind::DraidSpare { draid_guid: Guid::new(9), spare: 0 }, 1, 60, vec![])),
        (VdevKind::Replacing, disk(1, 110)),
    ] {
        let (mut images, blocks) = draid(None);
        images.write(110, 0, &[]);
        let (mut spec, guid) = (draid_spec(), new.guid.get());
        spec.children[3] = vdev(kind, 3, 50, vec![disk(0, 103), new]);
        // another one is lost, too
        let pool = images.open(vec![spec.clone()], &[103, 105]);
        pool.leaf(guid).state().dtl().insert(groups(0..99));
        let ranges: Vec<_> = blocks
            .iter()
            .map(|(extent, block)| extent.offset..extent.offset + layout.asize(block.len() as u64))
            .collect();
        let rebuilt = pool.tree.rebuild(VdevNumber::new(0), &ranges).unwrap();
        assert!(rebuilt.errors == 0 && rebuilt.bytes > 40 << 10, "{rebuilt:?}");
        let half = ranges[0].start..ranges[0].start + 4096;
        assert_eq!(pool.tree.rebuild(VdevNumber::new(0), &[half]).unwrap_err().kind(), ErrorKind::Corrupt);
        let more = if kind == VdevKind::Spare { vec![] } else { vec![100, 101, 102, 104, 106] };
        for lost in [vec![], more.clone()].concat().into_iter().map(Some).chain([None]) {
            let absent: Vec<u64> = [103, 105].into_iter().chain(lost).collect();
            let pool = images.open(vec![spec.clone()], &absent);
            for (extent, block) in &blocks {
                assert!(pool.read_fast(*extent).unwrap() == *block, "without {absent:?}: {extent:?}");
                let healed = pool.tree.scrub(*extent, crate::Lacking::Leave, &mut |found| found == &block[..]).unwrap();
                assert_eq!(healed, 0, "parity, too: {extent:?}");
            }
            assert!(pool.tree.leaves().all(|leaf| leaf.stats().errors()[2] == 0));
        }
        // one too many is lost
        let pool = images.open(vec![spec], &[103, 105, 100, 101]);
        pool.leaf(guid).state().dtl().insert(groups(0..99));
        assert!(pool.tree.rebuild(VdevNumber::new(0), &ranges).unwrap().errors > 0);
    }
}

/// Spares that lead to each other without end cost no more than some visits.
#[test]
fn a_maze_of_spares_has_an_end() {
    let mut spec = draid_spec();
    let spares = |i: u64| {
        (0..20)
            .map(|n| vdev(VdevKind::DraidSpare { draid_guid: Guid::new(9), spare: 0 }, n, 1000 + i * 100 + n, vec![]))
            .collect()
    };
    for i in 0..7 {
        spec.children[i as usize] = vdev(VdevKind::Spare, i, 50 + i, spares(i));
    }
    let pool = Images::default().open(vec![spec], &[]);
    assert_eq!(pool.read_fast(extent(0, 0, 4096)).unwrap_err().kind(), ErrorKind::Missing);
    assert_eq!(pool.read_slow(extent(0, 0, 4096), &[]).unwrap_err().kind(), ErrorKind::Missing);
}

#[test]
fn a_spare_of_no_draid_is_refused() {
    for kind in [
        VdevKind::DraidSpare { draid_guid: Guid::new(8), spare: 0 },
        VdevKind::DraidSpare { draid_guid: Guid::new(9), spare: 1 },
    ] {
        let mut spec = draid_spec();
        spec.children[3] = vdev(VdevKind::Spare, 3, 50, vec![disk(0, 103), vdev(kind, 1, 60, vec![])]);
        let root = VdevSpec { children: vec![spec], ..vdev(VdevKind::Root, 0, 1, vec![]) };
        assert_eq!(Tree::open(root, &HashMap::new()).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

/// No extent that a block pointer can name makes the tree panic.
#[test]
fn absurd_extents_are_errors() {
    let raidz = Raidz::new(4, 1, 12, 0, &[4096]);
    let (draid_images, _) = draid(None);
    for pool in [raidz.open(&[]), draid_images.open(vec![draid_spec()], &[])] {
        for offset in [0, 512, 4096, 1 << 40, 1 << 62, u64::MAX - 511, u64::MAX] {
            for (top, size) in [(0, 512), (0, 1 << 20), (1, 512), (u64::MAX, 512)] {
                let extent = extent(top, offset, size);
                if offset > 1 << 30 || top > 0 || offset == 512 {
                    assert!(pool.read_fast(extent).is_err() && pool.read_slow(extent, &[]).is_err(), "{extent:?}");
                }
            }
        }
    }
}
