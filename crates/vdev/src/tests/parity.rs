//! Raidz and draid under every loss that they must bear.

use base::Kind as ErrorKind;
use format::ids::{Txg, VdevNumber};

use super::*;
use crate::Lacking;
use crate::expansion::{Expansion, Reflow};
use crate::{Aux, Health, TxgRanges, VdevState};

/// Product in GF(2^8) with 0x11d, one bit at a time.
fn mul(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b > 0 {
        if b & 1 == 1 {
            product ^= a;
        }
        a = a << 1 ^ if a & 0x80 == 0 { 0 } else { 0x1d };
        b >>= 1;
    }
    product
}

/// Parity column `p` of a line of sectors: the sum of power * sector, the last one's power being 1.
pub(super) fn parity_sector(p: usize, line: &[Vec<u8>]) -> Vec<u8> {
    let generator = [1, 2, 4][p];
    let mut sum = vec![0; line[0].len()];
    for sector in line {
        for (sum, &byte) in sum.iter_mut().zip(sector) {
            *sum = mul(*sum, generator) ^ byte;
        }
    }
    sum
}

/// The sectors of a block as lines of columns: data runs down the columns, and lines that are not
/// full end with zero sectors.
pub(super) fn lines(block: &[u8], sector: usize, ndata: usize) -> Vec<Vec<Vec<u8>>> {
    let mut sectors: Vec<Vec<u8>> = block.chunks(sector).map(<[u8]>::to_vec).collect();
    sectors.last_mut().unwrap().resize(sector, 0);
    let height = sectors.len().div_ceil(ndata);
    let full = (sectors.len() - 1) % ndata + 1;
    let mut out = vec![vec![vec![0; sector]; ndata]; height];
    let mut sectors = sectors.into_iter();
    for column in 0..ndata {
        for line in out.iter_mut().take(if column < full { height } else { height - 1 }) {
            line[column] = sectors.next().unwrap();
        }
    }
    assert!(sectors.next().is_none());
    out
}

/// A raidz of leaves 100, 101, ... with blocks on it.
pub(super) struct Raidz {
    width: usize,
    nparity: usize,
    ashift: u32,
    images: Images,
    blocks: Vec<(Extent, Vec<u8>)>,
}

impl Raidz {
    /// One block of each of `sizes`, one behind the other.
    pub(super) fn new(width: usize, nparity: usize, ashift: u32, start: u64, sizes: &[usize]) -> Raidz {
        let mut raidz = Raidz { width, nparity, ashift, images: Images::default(), blocks: vec![] };
        (0..width as u64).for_each(|i| raidz.images.write(100 + i, 0, &[]));
        let mut first = start >> ashift;
        for (i, &size) in sizes.iter().enumerate() {
            let block = pattern(i as u64 + 1, size);
            first += raidz.write(first, &block);
            raidz.blocks.push((extent(0, (first - raidz.sectors(size)) << ashift, size), block));
        }
        raidz
    }

    fn sectors(&self, size: usize) -> u64 {
        let data = size.div_ceil(1 << self.ashift);
        let all = data + data.div_ceil(self.width - self.nparity) * self.nparity;
        all.next_multiple_of(self.nparity + 1) as u64
    }

    /// Writes a block that begins with sector `first`; how many sectors it takes.
    fn write(&mut self, first: u64, block: &[u8]) -> u64 {
        let sector = 1 << self.ashift;
        let data = block.len().div_ceil(sector);
        let ndata = (self.width - self.nparity).min(data);
        let lines = lines(block, sector, ndata);
        let swap = self.nparity == 1 && (first << self.ashift) >> 20 & 1 == 1;
        for (l, line) in lines.iter().enumerate() {
            let parity = (0..self.nparity).map(|p| parity_sector(p, line));
            let all: Vec<Vec<u8>> = parity.chain(line.iter().cloned()).collect();
            for (c, bytes) in all.iter().enumerate() {
                if l > 0 && c >= self.nparity && l * ndata + c - self.nparity >= data {
                    continue; // behind the end of the block: padding, or another block
                }
                let place = first + if swap && c < 2 { 1 - c } else { c } as u64;
                let (child, row) = (place % self.width as u64, place / self.width as u64 + l as u64);
                self.images.write(100 + child, row << self.ashift, bytes);
            }
        }
        self.sectors(block.len())
    }

    fn spec(&self) -> VdevSpec {
        let children = disks(100..100 + self.width as u64);
        top(vdev(VdevKind::Raidz { nparity: self.nparity }, 0, 9, children), self.ashift)
    }

    pub(super) fn open(&self, absent: &[u64]) -> Pool {
        self.images.open(vec![self.spec()], absent)
    }

    /// Leaves that hold a part of block `i`, parity included.
    fn leaves_of(&self, i: usize) -> Vec<u64> {
        let (extent, block) = &self.blocks[i];
        let data = block.len().div_ceil(1 << self.ashift);
        let count = self.width.min(data + self.nparity) as u64;
        let first = extent.offset >> self.ashift;
        (0..count).map(|c| 100 + (first + c) % self.width as u64).collect()
    }
}

const SIZES: [usize; 7] = [512, 1024, 1536, 2560, 4096, 6656, 20_480];

fn raidzs() -> Vec<Raidz> {
    let mut all = vec![];
    for nparity in 1..=3 {
        for width in [nparity + 1, nparity + 3] {
            // in raidz1's region of swapped columns, and not
            for start in [0, 1 << 20] {
                all.push(Raidz::new(width, nparity, 9, start + 7 * 512, &SIZES));
            }
        }
        // blocks that end within a sector
        all.push(Raidz::new(5, nparity, 12, 3 << 12, &SIZES));
    }
    all
}

#[test]
fn a_healthy_raidz_reads_no_parity() {
    for raidz in raidzs() {
        let pool = raidz.open(&[]);
        let extents: Vec<Extent> = raidz.blocks.iter().map(|(extent, _)| *extent).collect();
        let mut bufs: Vec<Vec<u8>> = extents.iter().map(|e| vec![0; e.size as usize]).collect();
        let mut views: Vec<&mut [u8]> = bufs.iter_mut().map(Vec::as_mut_slice).collect();
        let served = pool.tree.read_batch(&extents, &mut views);
        for (((_, block), buf), served) in raidz.blocks.iter().zip(&bufs).zip(served) {
            assert!(buf == block, "raidz{} of {}, {} bytes", raidz.nparity, raidz.width, block.len());
            let served = served.unwrap();
            let columns = block.len().div_ceil(1 << raidz.ashift).min(raidz.width - raidz.nparity);
            assert_eq!((served.leaves.len(), served.rebuilt), (columns, false));
        }
        assert_eq!(pool.tree.health(pool.tree.root().id()), Health::HEALTHY);
    }
}

/// Any leaves absent, up to the parity level, change nothing; one more is an error.
#[test]
fn absent_leaves_are_made_up_for_in_the_first_read() {
    for raidz in raidzs() {
        for count in 1..=raidz.nparity + 1 {
            for set in subsets(raidz.width, count) {
                let absent: Vec<u64> = set.iter().map(|&i| 100 + i as u64).collect();
                let pool = raidz.open(&absent);
                for (i, (extent, block)) in raidz.blocks.iter().enumerate() {
                    let lost = raidz.leaves_of(i).iter().filter(|leaf| absent.contains(leaf)).count();
                    let readable = lost <= raidz.nparity;
                    assert_eq!(pool.read_fast(*extent).ok().as_ref(), readable.then_some(block));
                    let slow = pool.read_slow(*extent, block).map_err(|e| e.kind());
                    assert_eq!(slow, if readable { Ok(block.clone()) } else { Err(ErrorKind::Missing) });
                }
                let expect = if count > raidz.nparity {
                    Health::new(VdevState::Unavail, Aux::NoReplicas)
                } else {
                    Health::new(VdevState::Degraded, Aux::None)
                };
                assert_eq!(pool.tree.health(pool.tree.root().id()), expect);
            }
        }
    }
}

/// Some leaves absent and others returning noise, up to the parity level in all.
#[test]
fn noise_is_found_out_and_charged() {
    for raidz in raidzs() {
        for bad in 1..=raidz.nparity {
            for set in subsets(raidz.width, bad) {
                for absent_count in 0..bad {
                    let (absent, noisy) = set.split_at(absent_count);
                    let absent: Vec<u64> = absent.iter().map(|&i| 100 + i as u64).collect();
                    let noisy: Vec<u64> = noisy.iter().map(|&i| 100 + i as u64).collect();
                    check_noise(&raidz, &absent, &noisy);
                }
            }
        }
    }
}

fn check_noise(raidz: &Raidz, absent: &[u64], noisy: &[u64]) {
    let pool = raidz.open(absent);
    noisy.iter().for_each(|&guid| pool.noise(guid));
    let mut expect: HashMap<u64, u64> = HashMap::new();
    for (i, (extent, block)) in raidz.blocks.iter().enumerate() {
        let got = pool.read_slow(*extent, block).unwrap_or_else(|e| {
            panic!(
                "raidz{} of {}, {absent:?} absent, {noisy:?} noisy, {} bytes: {e}",
                raidz.nparity,
                raidz.width,
                block.len()
            )
        });
        assert!(got == *block);
        for leaf in raidz.leaves_of(i).into_iter().filter(|leaf| noisy.contains(leaf)) {
            *expect.entry(leaf).or_default() += 1;
        }
    }
    for leaf in 100..100 + raidz.width as u64 {
        assert_eq!(pool.errors(leaf), (0, expect.get(&leaf).copied().unwrap_or(0)), "leaf {leaf}");
    }
}

#[test]
fn more_noise_than_parity_is_an_error_that_names_everybody() {
    for raidz in raidzs() {
        let pool = raidz.open(&[]);
        (0..=raidz.nparity as u64).for_each(|i| pool.noise(100 + i));
        for (i, (extent, block)) in raidz.blocks.iter().enumerate() {
            let leaves = raidz.leaves_of(i);
            let noisy = leaves.iter().filter(|&&leaf| leaf <= 100 + raidz.nparity as u64).count();
            let before: Vec<u64> = leaves.iter().map(|&leaf| pool.errors(leaf).1).collect();
            let result = pool.read_slow(*extent, block);
            if noisy <= raidz.nparity {
                assert!(result.unwrap() == *block);
                continue;
            }
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Checksum);
            let names = error.place().vdev.clone().unwrap();
            for (leaf, before) in leaves.iter().zip(before) {
                assert_eq!(pool.errors(*leaf).1, before + 1);
                assert!(names.contains(&leaf.to_string()), "{names}");
            }
        }
    }
}

#[test]
fn failing_reads_are_counted_and_made_up_for() {
    let raidz = Raidz::new(5, 2, 9, 0, &SIZES);
    let pool = raidz.open(&[]);
    pool.devices[&101].broken(0..DEVICE_BYTES_MIN);
    pool.noise(103);
    for (i, (extent, block)) in raidz.blocks.iter().enumerate() {
        let before = pool.errors(101).0;
        let touched = raidz.leaves_of(i).contains(&101);
        assert!(pool.read_slow(*extent, block).unwrap() == *block);
        assert_eq!(pool.errors(101).0 - before, u64::from(touched));
    }
    // a failing read in a batch is an error of its extent alone
    let pool = raidz.open(&[]);
    pool.devices[&101].fail_read(0);
    let extents: Vec<Extent> = raidz.blocks.iter().map(|(extent, _)| *extent).collect();
    let mut bufs: Vec<Vec<u8>> = extents.iter().map(|e| vec![0; e.size as usize]).collect();
    let mut views: Vec<&mut [u8]> = bufs.iter_mut().map(Vec::as_mut_slice).collect();
    let served = pool.tree.read_batch(&extents, &mut views);
    assert_eq!(served.iter().filter(|s| s.is_err()).count(), 1);
    for ((served, buf), (_, block)) in served.iter().zip(&bufs).zip(&raidz.blocks) {
        assert!(served.is_err() || buf == block);
    }
    assert_eq!(pool.errors(101), (0, 0), "counted by the verified read");
}

/// A device that goes away while the pool is open.
#[test]
fn a_device_that_vanishes_degrades_the_pool() {
    let raidz = Raidz::new(4, 1, 9, 0, &SIZES);
    let pool = raidz.open(&[]);
    pool.devices[&102].vanish(true);
    for (extent, block) in &raidz.blocks {
        assert!(pool.read_slow(*extent, block).unwrap() == *block);
    }
    assert_eq!(pool.errors(102).0, 1, "nobody asks it again");
    assert_eq!(pool.tree.health(pool.tree.root().id()).state, VdevState::Degraded);
    for (extent, block) in &raidz.blocks {
        assert!(pool.read_fast(*extent).unwrap() == *block);
    }
}

/// A stale leaf is rebuilt, and not asked, for what it missed; it is asked when parity runs out.
#[test]
fn stale_leaves_come_last() {
    let raidz = Raidz::new(4, 1, 9, 0, &SIZES);
    let pool = raidz.open(&[]);
    pool.noise(101);
    pool.leaf(101).state().dtl().load(TxgRanges::since(Txg::new(10)));
    for (extent, block) in &raidz.blocks {
        assert!(pool.read_fast(*extent).unwrap() == *block);
    }
    assert_eq!(pool.devices[&101].reads(), 0);
    // what was born before is read from it
    let (old, block) = &raidz.blocks[6];
    assert!(pool.read_fast(Extent { birth_txg: Txg::new(9), ..*old }).unwrap() != *block);

    // its word against that of a leaf that is gone: it may still have the block
    let pool = raidz.open(&[100]);
    pool.leaf(101).state().dtl().load(TxgRanges::since(Txg::new(10)));
    for (extent, block) in &raidz.blocks {
        assert!(pool.read_fast(*extent).unwrap() == *block);
        assert!(pool.read_slow(*extent, block).unwrap() == *block);
    }
    pool.noise(101);
    let (extent, block) = &raidz.blocks[6];
    assert_eq!(pool.read_slow(*extent, block).unwrap_err().kind(), ErrorKind::Checksum);
    assert_eq!(pool.errors(101), (0, 0), "it never claimed to have the block");
}

/// A leaf that sits out is not asked where parity makes up for it, and at once where it does not: it has what it says.
#[test]
fn leaves_that_sit_out_are_asked_when_parity_runs_out() {
    let raidz = Raidz::new(4, 1, 9, 0, &SIZES);
    for resting in 101..104 {
        let pool = raidz.open(&[]);
        pool.leaf(resting).state().sit_out(1);
        raidz.blocks.iter().for_each(|(extent, block)| assert!(pool.read_fast(*extent).unwrap() == *block));
        assert_eq!(pool.devices[&resting].reads(), 0);

        // another one is away, or lacks what is asked for
        let pool = raidz.open(&[100]);
        pool.leaf(resting).state().sit_out(1);
        raidz.blocks.iter().for_each(|(extent, block)| assert!(pool.read_fast(*extent).unwrap() == *block));
        let pool = raidz.open(&[]);
        pool.noise(100);
        pool.leaf(100).state().dtl().load(TxgRanges::since(Txg::new(10)));
        pool.leaf(resting).state().sit_out(1);
        raidz.blocks.iter().for_each(|(extent, block)| assert!(pool.read_fast(*extent).unwrap() == *block));
        assert_eq!(pool.devices[&100].reads(), 0);
    }
}

#[test]
fn scrubs_read_ahead_as_they_read() {
    for nparity in 1..=3 {
        let raidz = Raidz::new(5, nparity, 9, 0, &[512, 4096, 10_240, 1536]);
        scrub_alone_and_together(|| raidz.open(&[]), &raidz.blocks);
        scrub_alone_and_together(|| raidz.open(&[102]), &raidz.blocks);
    }
}

/// A new leaf in the place of one that failed is given its columns, parity or data; then it can take the place.
#[test]
fn a_replacement_is_filled() {
    for nparity in 1..=2 {
        let raidz = Raidz::new(4, nparity, 9, 7 * 512, &SIZES);
        let mut images = Images(raidz.images.0.clone());
        images.write(201, 0, &pattern(77, 64 << 10));
        let mut spec = raidz.spec();
        spec.children[1] = vdev(VdevKind::Replacing, 1, 50, vec![disk(0, 101), disk(1, 201)]);
        let pool = images.open(vec![spec], &[101]);
        let dtl = pool.leaf(201).state().dtl();
        dtl.load(std::iter::once(groups(0..11)).collect());
        dtl.begin_resilver();
        for (extent, block) in &raidz.blocks {
            let heal = |lacking| pool.tree.scrub(*extent, lacking, &mut |bytes| bytes == block).unwrap();
            assert_eq!(heal(Lacking::Leave), 0, "it is no wound");
            let filled = heal(Lacking::Fill);
            assert_eq!(heal(Lacking::Fill), filled, "what a leaf lacks is written without reading it");
        }
        dtl.end_resilver(Txg::ZERO..Txg::new(11));
        assert!(dtl.is_empty());
        for (extent, block) in &raidz.blocks {
            assert!(pool.read_fast(*extent).unwrap() == *block);
        }
        assert_eq!(pool.errors(201), (0, 0));
        // and it bears what parity allows
        pool.noise(103);
        for (extent, block) in &raidz.blocks {
            assert!(pool.read_slow(*extent, block).unwrap() == *block);
        }
    }
}

/// Two columns are wrong on raidz1, but one of them has a second copy on a replacement.
#[test]
fn copies_within_columns_help_out() {
    let raidz = Raidz::new(4, 1, 9, 0, &[4096]);
    let mut images = Images(raidz.images.0.clone());
    images.0.insert(201, raidz.images.0[&101].clone());
    let mut spec = raidz.spec();
    spec.children[1] = vdev(VdevKind::Replacing, 1, 50, vec![disk(0, 101), disk(1, 201)]);
    let (extent, block) = &raidz.blocks[0];
    for bad in [[101, 102], [201, 102], [201, 103]] {
        let pool = images.open(vec![spec.clone()], &[]);
        bad.iter().for_each(|&guid| pool.noise(guid));
        assert!(pool.read_slow(*extent, block).unwrap() == *block, "{bad:?}");
    }
    let pool = images.open(vec![spec.clone()], &[101, 100]);
    assert!(pool.read_fast(*extent).unwrap() == *block);
    assert_eq!(pool.tree.health(pool.tree.root().id()).state, VdevState::Degraded);
    let pool = images.open(vec![spec], &[101, 201, 100]);
    assert_eq!(pool.read_fast(*extent).unwrap_err().kind(), ErrorKind::Missing);
}

/// A mirror of two raidz1, as no administrator makes it, but OpenZFS's own tests.
#[test]
fn a_mirror_of_raidz() {
    let raidz = Raidz::new(4, 1, 12, 5 << 12, &SIZES);
    let mut images = Images(raidz.images.0.clone());
    for i in 0..4 {
        images.0.insert(200 + i, raidz.images.0[&(100 + i)].clone());
    }
    let side = |id, first| vdev(VdevKind::Raidz { nparity: 1 }, id, 20 + id, disks(first..first + 4));
    let spec = || vec![top(vdev(VdevKind::Mirror, 0, 9, vec![side(0, 100), side(1, 200)]), 12)];
    let check = |pool: &Pool, fast: bool| {
        for (extent, block) in &raidz.blocks {
            assert!(!fast || pool.read_fast(*extent).unwrap() == *block);
            assert!(pool.read_slow(*extent, block).unwrap() == *block);
            assert_eq!(pool.tree.asize(VdevNumber::new(0), extent.size).unwrap(), raidz.sectors(block.len()) << 12);
        }
    };
    for absent in [vec![], vec![100], vec![100, 200], vec![100, 101, 200], vec![100, 101, 102, 103, 203]] {
        check(&images.open(spec(), &absent), true);
    }
    // one side past its parity, the other at its limit
    let pool = images.open(spec(), &[]);
    [100, 101, 202].iter().for_each(|&guid| pool.noise(guid));
    check(&pool, false);
    for guid in [102, 103, 200, 201, 203] {
        assert_eq!(pool.errors(guid), (0, 0));
    }
    [201, 102].iter().for_each(|&guid| pool.noise(guid));
    let (extent, block) = &raidz.blocks[6];
    assert_eq!(pool.read_slow(*extent, block).unwrap_err().kind(), ErrorKind::Checksum);
}

/// The raidz with a child more: every sector below `moved` has come to where that puts it.
fn expanded(raidz: &Raidz, moved: u64, running: bool) -> (VdevSpec, Images) {
    let (width, sector) = (raidz.width as u64, 1usize << raidz.ashift);
    let last = (raidz.blocks.iter().map(|(extent, _)| extent.offset).max().unwrap() + (64 << 10)) >> raidz.ashift;
    let place = |n: u64, width: u64| (100 + n % width, (n / width) << raidz.ashift);
    let mut images = Images::default();
    (0..=width).for_each(|i| images.write(100 + i, 0, &[]));
    for (until, width_then) in [(last, width), (moved.min(last), width + 1)] {
        for n in 0..until {
            let (from, at) = place(n, width);
            let start = (FRONT_BYTES + at) as usize;
            let bytes = raidz.images.0[&from].bytes()[start..start + sector].to_vec();
            let (to, at) = place(n, width_then);
            images.write(to, at, &bytes);
        }
    }
    let mut spec = Raidz { width: raidz.width + 1, images: Images::default(), blocks: vec![], ..*raidz }.spec();
    let txgs = if running { vec![] } else { vec![Txg::new(20)] };
    spec.top.as_mut().unwrap().expansion = Some(Expansion { txgs, is_running: running });
    (spec, images)
}

/// What was written before an expansion is there afterwards and in the middle of it, whatever is lost within the
/// parity level, or wrong.
#[test]
fn a_raidz_that_became_wider() {
    for nparity in 1..=2 {
        for start in [0, 1 << 20] {
            let raidz = Raidz::new(nparity + 2, nparity, 9, start + 7 * 512, &SIZES);
            let middle = (start >> 9) + 40;
            for (moved, running) in [(u64::MAX, false), (middle, true)] {
                let (spec, images) = expanded(&raidz, moved, running);
                let open = |absent: &[u64]| {
                    let pool = images.open(vec![spec.clone()], absent);
                    pool.tree.set_reflow(Reflow::of_field(2 << 55 | if running { moved } else { 0 }));
                    pool
                };
                for (extent, block) in &raidz.blocks {
                    assert!(open(&[]).read_fast(*extent).unwrap() == *block, "{} bytes", block.len());
                }
                for set in subsets(raidz.width + 1, nparity) {
                    let lost: Vec<u64> = set.iter().map(|&i| 100 + i as u64).collect();
                    let (without, noisy) = (open(&lost), open(&[]));
                    lost.iter().for_each(|&guid| noisy.noise(guid));
                    for (extent, block) in &raidz.blocks {
                        assert!(without.read_fast(*extent).unwrap() == *block, "{} bytes", block.len());
                        assert!(without.read_slow(*extent, block).unwrap() == *block);
                        assert!(noisy.read_slow(*extent, block).unwrap() == *block);
                    }
                }
            }
        }
    }
}
