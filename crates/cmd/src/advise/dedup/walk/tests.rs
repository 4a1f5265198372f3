use testkit::rng::Rng;

use super::*;

/// Blocks below one block that leads to data: its group, and which they are. Without a group: in dnodes.
struct MadeLeaf {
    group: Option<u64>,
    blocks: Vec<u64>,
}

/// A pool of such leaves, whose blocks have bytes by their number.
struct MadePool {
    leaves: Vec<MadeLeaf>,
    bytes: fn(u64) -> u64,
}

const LEAVES: u64 = 40_000;
const BELOW: u64 = 8;

fn even(_: u64) -> u64 {
    131_072
}

impl MadePool {
    /// Leaves of [`BELOW`] blocks by their numbers in order, each in a group of its own, in which they are so often.
    fn new(seed: u64, copies: impl Fn(u64) -> u64) -> MadePool {
        let mut leaves = Vec::new();
        for leaf in 0..LEAVES {
            for _ in 0..copies(leaf) {
                leaves.push(MadeLeaf {
                    group: Some(base::split_mix(seed << 40 ^ leaf)),
                    blocks: (leaf * BELOW..(leaf + 1) * BELOW).collect(),
                });
            }
        }
        MadePool { leaves, bytes: even }
    }

    fn truth(&self) -> f64 {
        let all = self.leaves.iter().flat_map(|leaf| &leaf.blocks);
        let unique: std::collections::HashSet<u64> = all.clone().copied().collect();
        let sum = |blocks: &mut dyn Iterator<Item = u64>| blocks.map(self.bytes).sum::<u64>() as f64;
        sum(&mut all.copied()) / sum(&mut unique.into_iter())
    }

    /// The words and the bytes of a block.
    fn block(&self, seed: u64, block: u64) -> ([u64; 6], u64) {
        let mut rng = Rng::new(seed << 40 ^ block);
        ([8, rng.number(), rng.number(), 0, 0, 7], (self.bytes)(block))
    }

    /// What a walk over it comes to, and which part of the leaves it has read.
    fn walked(&self, seed: u64) -> (Interval, f64) {
        let mut walk = SampledWalk::new();
        for leaf in &self.leaves {
            match leaf.group {
                Some(group) => walk.add_leaf(group, leaf.blocks.len() as u64 * 131_072, leaf),
                None => self.count(&mut walk.groups, leaf, seed),
            }
        }
        let mut read = |groups: &mut GroupSurvey, drawn: &mut [(u64, &MadeLeaf)]| {
            drawn.iter().for_each(|(_, leaf)| self.count(groups, leaf, seed));
            Some(())
        };
        if let Some((estimate, part)) = walk.rounds(&mut read) {
            return (estimate.ratio, part);
        }
        let mut survey = DedupSurvey::new(SAMPLE_MAX, None);
        for (place, block) in self.leaves.iter().flat_map(|leaf| &leaf.blocks).enumerate() {
            let (words, bytes) = self.block(seed, *block);
            survey.count(words, [0, place as u64, seed], bytes);
        }
        let found = survey.estimate();
        let [value, low, high] =
            [0.0, found.error_bytes, -found.error_bytes].map(|error| found.ratio(found.unique_bytes + error));
        (Interval { value, low, high }, 1.0)
    }

    fn count(&self, groups: &mut GroupSurvey, leaf: &MadeLeaf, seed: u64) {
        for block in &leaf.blocks {
            let (words, bytes) = self.block(seed, *block);
            groups.add_block(leaf.group, words, bytes);
        }
    }
}

/// Puts a block into this leaf in the place of another.
fn replace(pool: &mut MadePool, leaf: u64, at: u64, block: u64) {
    pool.leaves[leaf as usize].blocks[at as usize] = block;
}

/// Pools that differ most in where their copies are. `u64`: a seed.
fn pools(seed: u64) -> Vec<(&'static str, MadePool)> {
    let mut rng = Rng::new(seed);
    let unique = || MadePool::new(seed, |_| 1);
    // each third leaf is there again at another place of another file
    let mut moved = unique();
    (0..LEAVES).step_by(3).for_each(|leaf| {
        let blocks = moved.leaves[leaf as usize].blocks.clone();
        moved.leaves.push(MadeLeaf { group: Some(base::split_mix(!(seed << 40 ^ leaf))), blocks });
    });
    // each block four times, each time in another group
    let mut scattered = unique();
    for n in 0..LEAVES * BELOW {
        replace(&mut scattered, n % LEAVES, n / LEAVES, n / 4 * 2_654_435_761 % (1 << 40));
    }
    // by a power law, at random
    let mut zipf = unique();
    for n in 0..LEAVES * BELOW {
        let rank = (LEAVES * BELOW) / (1 + rng.below(LEAVES * BELOW));
        replace(&mut zipf, n % LEAVES, n / LEAVES, if n % 2 == 0 { n } else { 1 << 50 | rank });
    }
    // five blocks that are in each second leaf
    let mut few = unique();
    for leaf in 0..LEAVES {
        (0..5).filter(|n| (leaf + n) % 2 == 0).for_each(|n| replace(&mut few, leaf, n, 1 << 50 | n));
    }
    // files of one block, some of which are in larger ones, too
    let mut apart = MadePool::new(seed, |leaf| 1 + leaf % 2);
    let blocks = (0..LEAVES * BELOW / 4).map(|n| if n % 3 == 0 { n * 4 } else { 1 << 50 | n / 2 }).collect();
    apart.leaves.push(MadeLeaf { group: None, blocks });
    // leaves of one to eight blocks of 4 to 128 KiB, of which each second is there twice
    let mut uneven = MadePool::new(seed, |leaf| 1 + leaf % 2);
    uneven.bytes = |block| 4096 * (1 + block % 32);
    for leaf in &mut uneven.leaves {
        let first = leaf.blocks[0];
        leaf.blocks.truncate(1 + (base::split_mix(first) % BELOW) as usize);
    }
    vec![
        ("unique", unique()),
        ("copied", MadePool::new(seed, |leaf| 1 + leaf % 4)),
        ("moved", moved),
        ("scattered", scattered),
        ("zipf", zipf),
        ("few", few),
        ("apart", apart),
        ("uneven", uneven),
    ]
}

#[test]
fn intervals_of_parts_hold_the_truth() {
    let seeds: u64 = std::env::var("CENOTE_ADVICE_SEEDS").map_or(10, |seeds| seeds.parse().unwrap());
    let names: Vec<&str> = pools(0).into_iter().map(|(name, _)| name).collect();
    let (mut held, mut read) = (vec![0; names.len()], vec![0.0; names.len()]);
    for seed in 0..seeds {
        for (at, (name, pool)) in pools(seed).into_iter().enumerate() {
            let truth = pool.truth();
            let (Interval { value, low, high }, part) = pool.walked(seed);
            assert!((high - low) / 2.0 <= HALF_WIDTH * value + 1e-9, "{name}: {low} {value} {high}");
            held[at] += u64::from(low - 1e-9 <= truth && truth <= high + 1e-9);
            read[at] += part / seeds as f64;
        }
    }
    println!("held, read: {:?}", names.iter().zip(held.iter().zip(&read)).collect::<Vec<_>>());
    for (name, held) in names.iter().zip(&held) {
        assert!(seeds - held <= seeds * 7 / 100 + u64::from(seeds < 20), "{name}: {held} of {seeds}");
    }
    // copies that are in one group need no more than what is there once
    let of = |name: &str| read[names.iter().position(|other| *other == name).unwrap()];
    assert!(of("copied") < 0.06 && of("unique") < 0.06, "{read:?}");
    // what is scattered needs more
    assert!(of("scattered") > 0.5 && of("apart") < 0.25, "{read:?}");
}

/// 10 TiB of blocks of 128 KiB, 1024 below each that leads to them; each fifth file, of 256 MiB to 4 GiB, is a copy.
#[test]
fn ten_tebibytes_are_told_from_a_twentieth() {
    const BELOW: u64 = 1024;
    let leaves = (10u64 << 40) / (128 << 10) / BELOW;
    let mut walk = SampledWalk::new();
    let (mut at, mut file) = (0, 0);
    while at < leaves {
        // a copy has the length, and the blocks, of the file before it
        let of = if file % 5 == 4 { file - 1 } else { file };
        let len = 2 + base::split_mix(of) % 31;
        for leaf in 0..len.min(leaves - at) {
            let group = base::split_mix(len << 40 ^ base::split_mix(of) >> 24 ^ leaf << 20);
            walk.add_leaf(group, BELOW * 131_072, of << 32 ^ leaf << 16);
        }
        (at, file) = (at + len, file + 1);
    }
    let (mut read, mut memory) = (0, walk.memory_bytes());
    let mut count = |groups: &mut GroupSurvey, drawn: &mut [(u64, u64)]| {
        for (group, leaf) in drawn.iter() {
            read += 1;
            for block in 0..BELOW {
                let mut rng = Rng::new(leaf ^ block);
                groups.add_block(Some(*group), [8, rng.number(), rng.number(), 0, 0, 7], 131_072);
            }
        }
        memory = memory.max(groups.memory_bytes() + LEAVES_MAX * 200);
        Some(())
    };
    let Some((estimate, part)) = walk.rounds(&mut count) else { panic!("everything was read") };
    let Interval { value, low, high } = estimate.ratio;
    // of the files that are there, one in five is a copy; the last ones may be cut off
    assert!(low <= 1.25 && 1.25 <= high && (high - low) / 2.0 <= HALF_WIDTH * value, "{low} to {high}");
    assert!(part <= 0.05 && read as f64 <= leaves as f64 * 0.06, "{read} of {leaves}");
    assert!(memory <= 64 << 20, "{memory}");
}
