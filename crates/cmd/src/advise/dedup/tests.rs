use std::io;

use testkit::rng::Rng;

use super::*;

/// Copies that there are of each different block, and their bytes.
type Population = Vec<(u64, u64)>;

/// Populations that differ most: none twice, all the same, a few with very many copies, copies by a power law, and a
/// mixture with sizes from one sector to 32.
fn populations() -> Vec<(&'static str, Population)> {
    let of = |copies: &dyn Fn(u64) -> u64, count: u64| (0..count).map(|n| (copies(n), 131_072)).collect::<Population>();
    vec![
        ("unique", of(&|_| 1, 30_000)),
        ("equal", vec![(30_000, 131_072)]),
        ("uniform", of(&|n| 1 + n % 4, 12_000)),
        ("few huge", of(&|n| if n < 5 { 4000 } else { 1 }, 12_000)),
        ("zipf", of(&|n| 1 + 8000 / (n + 1), 12_000)),
        ("sizes", (0..12_000).map(|n| (1 + n % 3, 4096 * (1 + n * 7 % 32))).collect()),
    ]
}

fn truth(population: &Population) -> f64 {
    let all: u64 = population.iter().map(|(copies, bytes)| copies * bytes).sum();
    all as f64 / population.iter().map(|(_, bytes)| bytes).sum::<u64>() as f64
}

/// All pointers of a population in an order in which copies are far from each other, or not.
fn pointers(population: &Population, seed: u64) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
    let most = population.iter().map(|(copies, _)| *copies).max().unwrap_or(0);
    let shuffled = seed & 1 == 1;
    let outer = if shuffled { most } else { 1 };
    (0..outer).flat_map(move |round| {
        population.iter().enumerate().flat_map(move |(n, &(copies, bytes))| {
            let rounds = if shuffled { round..(round + 1).min(copies).max(round) } else { 0..copies };
            rounds.map(move |copy| (n as u64, copy, bytes))
        })
    })
}

/// How many samples of each population are drawn: 100 are the long form, in which at least 93 hold the truth.
fn seeds() -> u64 {
    std::env::var("CENOTE_ADVICE_SEEDS").map_or(25, |seeds| seeds.parse().unwrap())
}

fn survey_of(max: usize, population: &Population, seed: u64) -> DedupSurvey {
    let mut survey = DedupSurvey::new(max, None);
    for (place, (n, _, bytes)) in pointers(population, seed).enumerate() {
        let mut rng = Rng::new(seed << 32 ^ n);
        survey.count([8, rng.number(), rng.number(), 0, 0, bytes], [0, place as u64, seed], bytes);
    }
    survey
}

#[test]
fn intervals_of_pools_hold_the_truth() {
    for (name, population) in populations() {
        let (truth, mut held) = (truth(&population), 0);
        for seed in 0..seeds() {
            let Interval { value, low, high } = DedupAnswer::of_survey(&survey_of(4000, &population, seed)).ratio;
            held += u64::from(low - 1e-9 <= truth && truth <= high + 1e-9);
            assert!((high - low) / 2.0 <= 0.05 * value, "{name}: {low} to {high}");
        }
        assert!(seeds() - held <= (seeds() * 7 / 100).max(2), "{name}: {held} of {}", seeds());
    }
}

/// 10 TiB of 512 KiB blocks, of which each fifth is that before it again.
#[test]
fn ten_tebibytes_need_no_more_memory() {
    let (count, mut survey) = ((10u64 << 40) / 524_288, DedupSurvey::new(SAMPLE_MAX, None));
    for place in 0..count {
        let n = if place % 5 == 4 { place - 4 } else { place };
        survey.count([8, n.wrapping_mul(0x9e37_79b9_7f4a_7c15), n, 0, 0, 1], [0, place, 1], 524_288);
    }
    let answer = DedupAnswer::of_survey(&survey);
    assert!(survey.memory_bytes() <= 64 << 20, "{}", survey.memory_bytes());
    let Interval { low, high, .. } = answer.ratio;
    assert!(low <= 1.25 && 1.25 <= high && high - low < 0.02, "{low} to {high}");
    assert!(answer.verdict(Some(8 << 30)).words.starts_with("Do not turn dedup on here"));
}

/// A block of 32 KiB of number `n`; of each tenth, the middle is that of the one before, and the rest is not.
fn contents(n: u64, seed: u64, from: u64, into: &mut [u8]) -> io::Result<usize> {
    for (at, word) in into.chunks_mut(8).enumerate() {
        let at = from / 8 + at as u64;
        let is_middle = (2048..2560).contains(&at);
        let of = if is_middle && n % 10 == 9 { n - 1 } else { n };
        word.copy_from_slice(&base::split_mix(seed << 48 ^ of << 16 ^ at).to_le_bytes());
    }
    Ok(into.len())
}

fn folder_of(population: &Population, seed: u64) -> DedupAnswer {
    let mut survey = FolderSurvey::new(6000, 500);
    let mut block = vec![0; 32 << 10];
    for (n, _, _) in pointers(population, seed) {
        survey.block(32 << 10, &mut block, &mut |from, into| contents(n, seed, from, into)).unwrap();
    }
    DedupAnswer::of_folder(&survey, &FoundFiles::default())
}

#[test]
fn intervals_of_folders_hold_the_truth() {
    let of = |copies: &dyn Fn(u64) -> u64, count: u64| (0..count).map(|n| (copies(n), 32_768)).collect::<Population>();
    let all = [
        ("unique", of(&|_| 1, 2000)),
        ("equal", vec![(2000, 32_768)]),
        ("uniform", of(&|n| 1 + n % 4, 800)),
        ("few huge", of(&|n| if n < 3 { 400 } else { 1 }, 800)),
        ("zipf", of(&|n| 1 + 200 / (n + 1), 1500)),
    ];
    for (name, population) in all {
        let (truth, mut held) = (truth(&population), 0);
        for seed in 0..seeds() {
            let answer = folder_of(&population, seed);
            let Interval { value, low, high } = answer.ratio;
            held += u64::from(low - 1e-9 <= truth && truth <= high + 1e-9);
            assert!((high - low) / 2.0 <= 0.05 * value, "{name}: {low} to {high}");
        }
        assert!(seeds() - held <= (seeds() * 7 / 100).max(2), "{name}: {held} of {}", seeds());
    }
}

#[test]
fn files_are_counted_by_blocks() {
    let mut rng = Rng::new(7);
    let mut bytes = |len: usize| (0..len).map(|_| rng.number() as u8).collect::<Vec<u8>>();
    let (one, two, small) = (bytes(512 << 10), bytes(256 << 10), bytes(700));
    let mut changed = one.clone();
    // not in the middle of its block
    changed[3] ^= 1;
    let zeros = vec![0; 1 << 20];
    let files: [(&str, &[u8]); 7] = [
        ("a/one", &one),
        ("a/again", &one),
        ("b/changed", &changed),
        ("b/two", &two),
        ("b/small", &small),
        ("b/small too", &small),
        ("b/zeros", &zeros),
    ];
    let (_dir, path) = super::super::files::made_folder(&files);
    let mut found = FoundFiles::default();
    let survey = FolderSurvey::of(&path, 128 << 10, &mut found).unwrap();
    let answer = DedupAnswer::of_folder(&survey, &found);
    let unit = 131_072.0;
    assert_eq!((answer.blocks, answer.bytes), (16.0, 14.0 * unit + 8192.0));
    let unique = 7.0 * unit + 4096.0;
    let ratio = (14.0 * unit + 8192.0) / unique;
    assert!((answer.entries - 8.0).abs() < 1e-9 && (answer.ratio.value - ratio).abs() < 1e-9, "{answer:?}");
    assert_eq!((answer.ratio.low, answer.ratio.high), (answer.ratio.value, answer.ratio.value));
    assert!(answer.verdict(None).words.starts_with("Dedup would pay: it saves 50 %"), "{}", answer.verdict(None).words);
}

#[test]
fn verdicts() {
    let of = |ratio: f64, entries: f64| DedupAnswer {
        blocks: entries * ratio,
        bytes: entries * ratio * 131_072.0,
        shared_bytes: 0.0,
        ratio: Interval { value: ratio, low: ratio * 0.99, high: ratio * 1.01 },
        entries,
        counted: 1000,
        scale: entries / 1000.0,
        left_out: 0,
        is_weak: true,
        read_bytes: None,
        read_part: None,
    };
    let memory = Some(8 << 30);
    for (ratio, entries, begins) in [
        (1.02, 1e5, "Do not turn dedup on: it would save 3 % at most"),
        (3.0, 1e8, "Do not turn dedup on here: it would save 66 % to 67 %"),
        (3.0, 1e6, "Dedup would pay: it saves 66 % to 67 %"),
        (1.3, 1e6, "Rather leave dedup off: it would save 22 % to 24 %"),
        (1.0, 0.0, "There is nothing to deduplicate."),
    ] {
        let verdict = of(ratio, entries).verdict(memory).words;
        assert!(verdict.starts_with(begins), "{verdict}");
    }
    let (answer, cost) = (of(1.3, 1e6), ChecksumCost { checksum: Checksum::Sha256, seconds_a_gib: 0.5 });
    let text = answer.text("");
    assert!(text.contains("ratio       1.300x, 95 % between 1.287x and 1.313x"), "{text}");
    let json = answer.json(&[cost], "words");
    assert_eq!(
        (&json["table_memory_bytes"], &json["checksums"][0]["checksum"]),
        (&json!(256_000_000), &json!("sha256"))
    );
}
