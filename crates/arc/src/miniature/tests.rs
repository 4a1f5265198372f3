use base::{Env, split_mix};
use proptest::prelude::*;

use super::access::is_drawn;
use super::estimate::MissTally;
use super::lru::LruStack;
use super::*;
use crate::policy::{Contents, Policy};

/// Numbers from a seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        split_mix(self.0)
    }

    /// Blocks of which small numbers are asked for more often: about a Zipf distribution with exponent 1.
    fn skewed(&mut self, count: u64) -> u64 {
        let part = self.next() as f64 / u64::MAX as f64;
        ((count as f64).powf(part) as u64).min(count - 1)
    }
}

fn tunables() -> Tunables {
    Tunables::of(&Env::fixed(0))
}

fn read(time_ns: u64, block: u64, bytes: u64) -> BlockAccess {
    BlockAccess { time_ns, block, bytes, contents: Contents::Data, kind: AccessKind::Demand }
}

/// A made load of so many reads: one each 200 µs.
fn load(name: &str, count: u64) -> Vec<BlockAccess> {
    let mut numbers = Numbers(7);
    let mut one = |n: u64| -> (u64, u64) {
        match name {
            "zipf" => (numbers.skewed(60_000), 4096),
            "loop" => (n % 20_000, 4096),
            // hot blocks, a scan that never comes back, a loop, of blocks from 512 bytes to 64 KiB
            _ => {
                let block = match numbers.next() % 8 {
                    0..5 => numbers.skewed(40_000),
                    5 => (1 << 40) + n,
                    _ => (1 << 50) + n % 30_000,
                };
                (block, 512 << (split_mix(block) % 8))
            }
        }
    };
    (0..count)
        .map(|n| {
            let (block, bytes) = one(n);
            read(n * 200_000, block, bytes)
        })
        .collect()
}

fn footprint(load: &[BlockAccess]) -> u64 {
    let blocks: std::collections::HashMap<u64, u64> = load.iter().map(|one| (one.block, one.bytes)).collect();
    blocks.values().sum()
}

fn foretell(load: &[BlockAccess], ram: u64, blocks_max: usize) -> Foretold {
    let plan = MiniaturePlan { blocks_max, ..MiniaturePlan::around(ram) };
    let mut miniature = Miniature::new(plan, tunables());
    load.iter().for_each(|access| miniature.access(access));
    miniature.foretold()
}

/// Errors of all sizes: the mean and the worst.
fn errors(one: &Foretold, other: &Foretold) -> (f64, f64) {
    let rams = one.rams.iter().zip(&other.rams).map(|(a, b)| (a.hits.value - b.hits.value).abs());
    let devices = one.devices.iter().zip(&other.devices).map(|(a, b)| (a.hits.value - b.hits.value).abs());
    let all: Vec<f64> = rams.chain(devices).collect();
    (all.iter().sum::<f64>() / all.len() as f64, all.iter().copied().fold(0.0, f64::max))
}

#[test]
fn a_sample_foretells_what_the_whole_does() {
    for name in ["zipf", "loop", "mixed"] {
        let load = load(name, 200_000);
        // no size is as large as the whole loop, where a block more or less decides
        let ram = footprint(&load) / 13;
        let (whole, sample) = (foretell(&load, ram, usize::MAX), foretell(&load, ram, 1 << 14));
        assert_eq!((whole.drawn_part, whole.drawn_reads, whole.reads), (1.0, 200_000, 200_000));
        assert!(sample.drawn_part <= 0.5 && sample.drawn_blocks <= 1 << 14, "{name}: {sample:?}");
        let (mean, worst) = errors(&whole, &sample);
        assert!(mean < 0.01 && worst < 0.04, "{name}: {mean} {worst}");
        let within = |a: &HitShare, b: &HitShare| b.low <= a.value && a.value <= b.high;
        let held = whole.rams.iter().zip(&sample.rams).filter(|(a, b)| within(&a.hits, &b.hits)).count();
        assert!(held >= 8, "{name}: {held} of 12");
        for (a, b) in whole.devices.iter().zip(&sample.devices) {
            let far = (a.written as f64 / b.written.max(1) as f64 - 1.0).abs();
            assert!(far < 0.15, "{name}: written {} and {}", a.written, b.written);
        }
    }
}

/// While no block has been left out, the simulation is the policy itself.
#[test]
fn the_whole_is_the_policy_itself() {
    let load = load("mixed", 100_000);
    let bytes = footprint(&load) / 10;
    let foretold = foretell(&load, bytes, usize::MAX);
    let limits = |recent| crate::policy::Limits { budget: bytes, recent, metadata_max: u64::MAX, metadata_min: 0 };
    let (mut policy, mut target, mut hits) = (Policy::<u64, ()>::new(limits(0)), 0u64, 0);
    for access in &load {
        let purpose = crate::policy::AccessPurpose::Demand;
        if policy.get(&split_mix(access.block), purpose).is_some() {
            hits += 1;
            continue;
        }
        let inserted = policy.insert(split_mix(access.block), (), access.bytes, access.contents, purpose);
        target = inserted.ghost.map_or(target, |(_, step)| target.saturating_add_signed(step).min(bytes));
        policy.set_limits(limits(target));
        let mut victims = Vec::new();
        policy.evict(policy.bytes().saturating_sub(bytes), usize::MAX, &mut victims);
    }
    let at_ram = &foretold.rams[4];
    assert_eq!(at_ram.bytes, bytes / 8 * 8);
    let share = f64::from(hits) / load.len() as f64;
    assert!((at_ram.hits.value - share).abs() < 0.002, "{} {share}", at_ram.hits.value);
    assert!(at_ram.hits.low == at_ram.hits.value && at_ram.hits.high == at_ram.hits.value, "nothing is unsure");
}

#[test]
fn a_loop_wants_all_of_it() {
    let load = load("loop", 200_000);
    let foretold = foretell(&load, 20_000 * 4096 / 16 * 2, 4096);
    // LRU keeps nothing of a loop until all of it fits
    let small = foretold.rams.iter().filter(|ram| ram.bytes < 15_000 * 4096);
    assert!(small.clone().count() > 4 && small.clone().all(|ram| ram.lru_hits.value < 0.02));
    let largest = foretold.rams.last().unwrap();
    assert!(largest.lru_hits.value > 0.85 && largest.hits.value > 0.85, "{largest:?}");
    assert!((foretold.endless.value - 0.9).abs() < 0.02, "{:?}", foretold.endless);
    // a device keeps what RAM cannot, and is not written without end
    let device = foretold.devices.last().unwrap();
    assert!(device.hits.value > largest.hits.value - 0.3 && device.written >= 20_000 * 4096 / 2, "{device:?}");
    assert!(device.index > 0 && device.index <= 20_000 * 2 * 24);
}

#[test]
fn what_never_comes_back_is_served_by_nothing() {
    let load: Vec<BlockAccess> = (0..200_000).map(|n| read(n * 1_000_000, n, 4096)).collect();
    let foretold = foretell(&load, 4 << 20, 2048);
    assert_eq!(foretold.endless.value, 0.0);
    assert!(foretold.rams.iter().all(|ram| ram.hits.value == 0.0 && ram.lru_hits.value == 0.0));
    assert!(foretold.devices.iter().all(|device| device.hits.value == 0.0));
    // the feeder learns that: most of it is not written
    let written = foretold.devices.last().unwrap().written;
    assert!(written < 200_000 * 4096 / 8, "{written}");
}

#[test]
fn what_is_written_or_freed_is_another_block() {
    let plan = || MiniaturePlan::around(1 << 20);
    let mut miniature = Miniature::new(plan(), tunables());
    let of = |time_ns, kind| BlockAccess { kind, ..read(time_ns, 5, 4096) };
    // read twice, written, read: a hit of what was written; freed, read: a miss
    let kinds = [AccessKind::Demand, AccessKind::Demand, AccessKind::Written, AccessKind::Demand, AccessKind::Freed];
    for (time, kind) in kinds.into_iter().chain([AccessKind::Demand]).enumerate() {
        miniature.access(&of(time as u64 * 10_000_000_000, kind));
    }
    let foretold = miniature.foretold();
    assert_eq!((foretold.reads, foretold.drawn_reads), (4, 4));
    assert!(foretold.rams.iter().all(|ram| ram.hits.value == 0.5), "{foretold:?}");
    assert_eq!(foretold.endless.value, 0.5);
    let mut prefetched = Miniature::new(plan(), tunables());
    prefetched.access(&of(0, AccessKind::Prefetch));
    prefetched.access(&of(1, AccessKind::Demand));
    let foretold = prefetched.foretold();
    assert!(foretold.rams.iter().all(|ram| ram.hits.value == 1.0));
    let none = Miniature::new(plan(), tunables()).foretold();
    assert_eq!((none.reads, none.rams[3].hits, none.elapsed_ns), (0, HitShare::default(), 0));
}

/// What is older than all caches together can remember does not make the sample smaller.
#[test]
fn a_stream_without_end_does_not_thin_the_sample() {
    let plan = MiniaturePlan { rams: vec![1 << 20], devices: vec![1 << 20], ram: 1 << 20, blocks_max: 4096 };
    let mut miniature = Miniature::new(plan, tunables());
    (0..500_000).for_each(|n| miniature.access(&read(n * 1000, n, 4096)));
    assert_eq!((miniature.shift(), miniature.foretold().drawn_blocks), (0, 4096));
}

#[test]
fn the_interval_holds_the_truth() {
    let (mut held, rounds) = (0, 200);
    for round in 0..rounds {
        // 20,000 blocks with 1 to 16 reads; each block misses a third of them or so
        let mut numbers = Numbers(round * 1_000_000);
        let (mut tally, mut reads, mut missed) = (MissTally::new(1), 0u64, 0u64);
        for _ in 0..20_000 {
            let hash = numbers.next();
            let count = 1 + numbers.next() % 16;
            for _ in 0..count {
                let is_miss = numbers.next().is_multiple_of(3);
                (reads, missed) = (reads + 1, missed + u64::from(is_miss));
                if is_drawn(hash, 3) {
                    tally.read(hash, 8).count(is_miss);
                }
            }
        }
        let [share] = tally.hits(reads, 0.125)[..] else { panic!("one series") };
        let truth = 1.0 - missed as f64 / reads as f64;
        assert!(share.high - share.low < 0.04, "{share:?}");
        held += u32::from(share.low <= truth && truth <= share.high);
    }
    assert!(held >= 180, "{held} of {rounds}");
}

proptest! {
    #[test]
    fn a_stack_as_a_plain_list(ops in prop::collection::vec((0u8..6, 0u64..40, 1u64..100), 0..600)) {
        let (mut stack, mut model) = (LruStack::default(), Vec::<(u64, u64)>::new());
        for (op, block, bytes) in ops {
            let at = model.iter().position(|(other, _)| *other == block);
            match op {
                0 => {
                    stack.forget(block);
                    at.map(|at| model.remove(at));
                }
                1 => {
                    stack.forget_oldest();
                    if !model.is_empty() { model.remove(0); }
                }
                2 => {
                    stack.keep_only(|kept| kept % 7 != block % 7);
                    model.retain(|(kept, _)| kept % 7 != block % 7);
                }
                _ => {
                    let expect = at.map(|at| model[at..].iter().map(|(_, bytes)| bytes).sum::<u64>());
                    prop_assert_eq!(stack.access(block, bytes), expect);
                    at.map(|at| model.remove(at));
                    model.push((block, bytes));
                }
            }
            prop_assert_eq!(stack.len(), model.len());
            prop_assert_eq!(stack.bytes(), model.iter().map(|(_, bytes)| bytes).sum::<u64>());
        }
    }

    /// Any accesses: shares stay shares, and the sample stays bounded.
    #[test]
    fn no_accesses_panic(ops in prop::collection::vec((0u8..5, 0u64..3000, 0u32..40, any::<u64>()), 0..500)) {
        let plan = MiniaturePlan { blocks_max: 64, ..MiniaturePlan::around(1 << 16) };
        let mut miniature = Miniature::new(plan, tunables());
        let mut now = 0u64;
        for (op, block, log, step) in ops {
            now = now.saturating_add(step >> 8);
            let kind = match op {
                0 => AccessKind::Written,
                1 => AccessKind::Freed,
                2 => AccessKind::Prefetch,
                _ => AccessKind::Demand,
            };
            let contents = if block % 3 == 0 { Contents::Metadata } else { Contents::Data };
            miniature.access(&BlockAccess { time_ns: now, block, bytes: 1 << (log % 24), contents, kind });
        }
        let foretold = miniature.foretold();
        prop_assert!(foretold.drawn_blocks <= 64);
        for hits in foretold.rams.iter().map(|ram| ram.hits).chain(foretold.devices.iter().map(|one| one.hits)) {
            prop_assert!(0.0 <= hits.low && hits.low <= hits.value && hits.value <= hits.high && hits.high <= 1.0);
        }
    }
}

#[test]
fn a_warm_up_is_left_out() {
    let load = |loops: u64| (0..loops * 2000).map(|n| read(n * 200_000, n % 2000, 4096)).collect::<Vec<_>>();
    let plan = MiniaturePlan::around(4000 * 4096);
    let mut miniature = Miniature::new(plan.clone(), tunables());
    load(5)[..2000].iter().for_each(|access| miniature.access(access));
    let (warm, cold) = (miniature.mark(), miniature.foretold());
    assert_eq!((cold.reads, cold.endless.value, miniature.touched()), (2000, 0.0, 2000 * 4096));
    load(5)[2000..].iter().for_each(|access| miniature.access(access));
    let (all, since) = (miniature.foretold(), miniature.foretold_after(&warm));
    let now = |foretold: &Foretold| foretold.rams.iter().find(|ram| ram.bytes == plan.ram).unwrap().hits.value;
    assert_eq!((now(&all), now(&since)), (0.8, 1.0));
    assert_eq!((all.reads, since.reads, since.drawn_reads), (10_000, 8000, 8000));
    assert_eq!((all.elapsed_ns, since.elapsed_ns), (9999 * 200_000, 8000 * 200_000));
    // reads that only were counted are as those of the sample
    miniature.thin_to(1);
    assert_eq!((miniature.shift(), miniature.foretold().drawn_part), (1, 0.5));
    let before = miniature.mark();
    let (drawn, others): (Vec<_>, Vec<_>) =
        load(8)[10_000..].iter().copied().partition(|access| is_in_sample(access.block, 1));
    drawn.iter().for_each(|access| miniature.access(access));
    miniature.pass_others(others.len() as u64, load(8)[15_999].time_ns);
    let thin = miniature.foretold_after(&before);
    assert_eq!((thin.reads, thin.drawn_reads as usize, now(&thin)), (6000, drawn.len(), 1.0));
    assert_eq!(thin.elapsed_ns, 6000 * 200_000);
    assert!((2000..4000).contains(&drawn.len()), "{}", drawn.len());
}
