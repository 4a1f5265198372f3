//! A raidz that is being expanded, while it is written to: whatever the moment of a cut.

use std::collections::BTreeMap;
use std::ops::Range;

use base::Result;
use format::ids::{Guid, Txg, VdevNumber};

use super::{Images, Pool, disk, disks, pattern, subsets, top, vdev};
use crate::expansion::Reflow;
use crate::geometry::{DEVICE_BYTES_MIN, FRONT_BYTES};
use crate::{Aux, Edit, Extent, Health, Lacking, VdevKind, VdevSpec, VdevState};

const FIRST: VdevNumber = VdevNumber::new(0);
/// Bytes of the address space that are used, of a raidz of 3.
const ASIZE: u64 = 150 << 20;

struct Expanding {
    images: Images,
    pool: Pool,
    nparity: usize,
    width: usize,
    /// By their first byte: bytes that they take up, and what they have.
    blocks: BTreeMap<u64, (u64, Extent, Vec<u8>)>,
    seed: u64,
}

impl Expanding {
    fn new(nparity: usize, width: usize, ashift: u32) -> Expanding {
        let mut images = Images::default();
        (0..=width as u64).for_each(|i| images.write(100 + i, 0, &[]));
        let raidz = top(vdev(VdevKind::Raidz { nparity }, 0, 9, disks(100..100 + width as u64)), ashift);
        let pool = images.open(vec![raidz], &[]);
        Expanding { images, pool, nparity, width, blocks: BTreeMap::new(), seed: 1 }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed += 1;
        u64::from_le_bytes(pattern(self.seed, 8).try_into().unwrap()) % below
    }

    /// A new block wherever nothing is, if there is room at the place chosen.
    fn add_block(&mut self, below: u64, txg: Txg) {
        let shift = self.pool.tree.top(FIRST).unwrap().ashift();
        let size = self.random(40 << 10) + 1;
        let asize = self.pool.tree.asize_at(FIRST, size, txg).unwrap();
        let offset = self.random((below - asize) >> shift) << shift;
        self.add_block_of(size, offset, txg);
    }

    /// A new block at that place; where it ends, unless something is there.
    fn add_block_at(&mut self, offset: u64, txg: Txg) -> Option<u64> {
        let size = self.random(40 << 10) + 1;
        self.add_block_of(size, offset, txg)
    }

    fn add_block_of(&mut self, size: u64, offset: u64, txg: Txg) -> Option<u64> {
        let asize = self.pool.tree.asize_at(FIRST, size, txg).unwrap();
        let before = self.blocks.range(..=offset).next_back().is_some_and(|(at, (len, ..))| at + len > offset);
        if before || self.blocks.range(offset..offset + asize).next().is_some() {
            return None;
        }
        let extent = Extent { top: FIRST, offset, size, birth_txg: txg };
        self.blocks.insert(offset, (asize, extent, Vec::new()));
        self.write(offset);
        Some(offset + asize)
    }

    fn write(&mut self, offset: u64) {
        let (_, extent, _) = self.blocks[&offset];
        self.seed += 1;
        let bytes = pattern(self.seed, extent.size as usize);
        self.pool.tree.write_batch(&[(extent, &bytes)]).remove(0).unwrap();
        self.blocks.get_mut(&offset).unwrap().2 = bytes;
    }

    /// Other bytes in some blocks, as those of a log that was allocated long ago.
    fn write_some_again(&mut self) {
        for offset in self.blocks.keys().copied().collect::<Vec<_>>() {
            if self.random(4) == 0 {
                self.write(offset);
            }
        }
    }

    fn used_within(&self, window: Range<u64>) -> Vec<Range<u64>> {
        let ranges = self.blocks.iter().map(|(&at, (len, ..))| at.max(window.start)..(at + len).min(window.end));
        ranges.filter(|range| range.start < range.end).collect()
    }

    fn check(&self, pool: &Pool, what: &str) {
        for (_, extent, bytes) in self.blocks.values() {
            assert!(pool.read_fast(*extent).unwrap() == *bytes, "{what}: {extent:?}");
            assert!(pool.read_slow(*extent, bytes).unwrap() == *bytes, "{what}: {extent:?}");
        }
    }

    /// All is there, also after a cut, after which `uberblocks` may be in force, and without some of the devices.
    fn check_all(&self, uberblocks: &[Reflow], what: &str) {
        self.check(&self.pool, what);
        let root = self.pool.tree.spec(self.pool.tree.root());
        for uberblock in uberblocks {
            let open = |absent: &[u64]| {
                let pool = self.images.open(root.children.clone(), absent);
                pool.tree.set_reflow(Reflow::of_field(uberblock.field()));
                pool
            };
            let what = format!("{what}, {uberblock:?}");
            self.check(&open(&[]), &what);
            let children = self.pool.tree.top(FIRST).unwrap().children().len();
            for lost in subsets(children, self.nparity) {
                let lost: Vec<u64> = lost.iter().map(|&i| 100 + i as u64).collect();
                self.check(&open(&lost), &format!("{what}, without {lost:?}"));
            }
        }
    }

    fn widen(&self) {
        let leaf: VdevSpec = disk(0, 100 + self.width as u64);
        let device = (leaf.guid, self.pool.devices[&leaf.guid.get()].clone() as _);
        let widen = Edit::Widen { number: FIRST, leaf: Box::new(leaf) };
        self.pool.tree.edit(widen, &[device].into_iter().collect()).unwrap();
    }

    fn step(&self) -> Result<u64> {
        let tree = &self.pool.tree;
        let now = tree.reflow();
        if now.moved == 0 || now.in_scratch {
            return tree.reflow_first().map(|()| 0);
        }
        let until = tree.reflow_limit().min(ASIZE);
        tree.reflow_up_to(until, &self.used_within(now.moved..until))
    }
}

fn expand(nparity: usize, width: usize, ashift: u32) {
    let mut model = Expanding::new(nparity, width, ashift);
    for _ in 0..60 {
        model.add_block(ASIZE, Txg::new(10));
        model.add_block(Reflow::scratch_size(ashift, width + 1) * 2, Txg::new(10));
    }
    model.widen();
    model.check_all(&[Reflow::default()], "at first");
    let mut steps = 0;
    while model.pool.tree.reflow().moved < ASIZE {
        model.write_some_again();
        let before = model.pool.tree.reflow();
        model.step().unwrap();
        let copied = model.pool.tree.reflow_to_come();
        assert!(copied.moved > before.moved || before.in_scratch, "{copied:?} after {before:?}");
        model.check_all(&[before, copied], "copied");
        model.write_some_again();
        model.add_block(ASIZE, Txg::new(10));
        model.check_all(&[before, copied], "copied, written");
        model.pool.tree.set_reflow(copied);
        model.write_some_again();
        model.check_all(&[copied], "on disk");
        steps += 1;
    }
    assert!(steps > 5, "{steps} steps");
    model.pool.tree.edit(Edit::FinishWidening { number: FIRST, since: Txg::new(20) }, &Default::default()).unwrap();
    model.pool.tree.set_reflow(Reflow::default());
    for txg in [19, 20, 21] {
        (0..20).for_each(|_| model.add_block(ASIZE, Txg::new(txg)));
    }
    model.write_some_again();
    model.check_all(&[Reflow::default()], "expanded");
}

#[test]
fn a_raidz_becomes_wider_while_it_is_written_to() {
    expand(1, 3, 12);
    expand(2, 4, 12);
}

#[test]
fn small_sectors_move_as_large_ones_do() {
    expand(1, 3, 9);
    expand(3, 5, 14);
}

/// A device that comes in the middle is given what it has now, and what is there already of what it will have.
#[test]
fn a_new_device_is_filled_in_the_middle() {
    // what only the last device will have is in no old place of a line
    for (lost, stage, seed) in (1..9).map(|seed| (103, 4, seed)).chain([(101, 3, 9)]) {
        let mut model = Expanding::new(1, 3, 12);
        model.seed = seed;
        // one behind the other, so that some are where the moving stands still
        let mut at = 12 << 20;
        while at < 36 << 20 {
            at = model.add_block_at(at, Txg::new(10)).unwrap();
        }
        model.widen();
        for number in 0.. {
            if model.pool.tree.reflow().moved >= ASIZE {
                break;
            }
            model.step().unwrap();
            model.pool.tree.set_reflow(model.pool.tree.reflow_to_come());
            if number != stage {
                continue;
            }
            let device = model.pool.devices[&lost].clone();
            device::Device::write_at(&*device, FRONT_BYTES, &vec![0xee; 59 << 20]).unwrap();
            model.pool.leaf(lost).state().dtl().insert(super::groups(0..99));
            for (_, extent, bytes) in model.blocks.values() {
                model.pool.tree.heal(*extent, Lacking::Fill, &mut |found| found == &bytes[..]).unwrap();
            }
            model.pool.leaf(lost).state().dtl().remove(super::groups(0..99));
        }
        model.check(&model.pool, &format!("device {lost} came after step {stage}, seed {seed}"));
    }
}

/// A line that has moved in part has one column on a device now, and another one is to come there: one device may be away.
#[test]
fn blocks_are_written_while_a_device_is_away() {
    let mut model = Expanding::new(1, 3, 12);
    let mut at = 0;
    while at < 36 << 20 {
        at = model.add_block_at(at, Txg::new(10)).unwrap();
    }
    model.widen();
    for step in 0..6 {
        model.step().unwrap();
        for away in 100..=103 {
            let leaf = model.pool.leaf(away);
            leaf.state().set_health(Health::new(VdevState::Unavail, Aux::OpenFailed));
            for (_, extent, bytes) in model.blocks.values() {
                let written = model.pool.tree.write_batch(&[(*extent, bytes)]).remove(0);
                assert!(written.is_ok(), "step {step}, {away} away, {extent:?}: {written:?}");
            }
            // it has these bytes still
            leaf.state().set_health(Health::HEALTHY);
            leaf.state().dtl().remove(super::groups(0..99));
        }
        model.check(&model.pool, &format!("step {step}"));
        model.pool.tree.set_reflow(model.pool.tree.reflow_to_come());
    }
}

/// Nothing goes on while a device lacks something: no sum tells what is right.
#[test]
fn all_devices_have_to_be_whole() {
    let mut model = Expanding::new(1, 3, 12);
    model.add_block(ASIZE, Txg::new(10));
    model.widen();
    let dtl = |guid| model.pool.leaf(guid).state().dtl();
    dtl(101).insert(super::groups(5..6));
    assert!(!model.pool.tree.can_reflow() && model.step().is_err());
    dtl(101).remove(super::groups(0..9));
    assert!(model.pool.tree.can_reflow());
    model.step().unwrap();
    // a device that fails is charged, and nothing has moved
    model.pool.tree.set_reflow(model.pool.tree.reflow_to_come());
    model.pool.devices[&103].unwritable(0..DEVICE_BYTES_MIN);
    let before = model.pool.tree.reflow_to_come();
    assert!(model.step().is_err());
    assert_eq!(model.pool.tree.reflow_to_come(), before);
    assert!(model.pool.leaf(103).stats().errors()[1] > 0);
    model.check_all(&[before], "after a failure");
    assert_eq!(model.pool.tree.expanding().map(|top| top.guid()), Some(Guid::new(9)));
}
