use std::path::Path;

use testkit::rng::Rng;

use super::*;
use crate::advise::files::made_folder;

const PLAN: RecordPlan = RecordPlan { ashift: 12, pieces: 200, seed: 1 };
const LZ4: (Compress, i32) = (Compress::Lz4, 0);

/// Bytes of which so many of 100 are random; a cycle of others is longer than short records.
fn mixture(len: usize, random_percent: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len).map(|at| if at % 100 < random_percent { rng.number() as u8 } else { (at / 977 % 7) as u8 }).collect()
}

fn of_folder(path: &Path) -> RecordAnswer {
    RecordAnswer::of_folder(path, &PLAN, LZ4, &mut FoundFiles::default()).unwrap()
}

#[test]
fn what_does_not_shrink_takes_what_it_has() {
    let large = mixture(3 << 20, 100, 1);
    let (_dir, path) = made_folder(&[("large", &large)]);
    let answer = of_folder(&path);
    assert_eq!(answer.bytes, f64::from(3 << 20));
    for trial in &answer.trials.trials {
        assert_eq!(trial.space().value, 1.0, "{}", trial.record);
        assert_eq!(trial.read_bytes(), Some(trial.record as f64));
    }
    let usual = answer.trials.usual();
    assert_eq!(usual.random_write(4096), Some([131_072.0, 131_072.0]));
    assert_eq!(answer.trials.of(4096).random_write(16_384), Some([0.0, 16_384.0]));
    let verdict = answer.verdict();
    assert!(verdict.contains("128K is as good; 1M saves next to no space"), "{verdict}");
    assert!(verdict.contains("Random writes of 8K (PostgreSQL): 8K, 32.0 times less"), "{verdict}");
    assert!(
        verdict.contains("(MySQL): 16K, 16.0 times less to read and write than with 128K; it takes the space of 128K")
    );
    assert!(answer.text().lines().count() == 13 && answer.json()["sizes"][5]["recordsize"] == 131_072);
}

#[test]
fn small_records_of_what_shrinks_take_more() {
    let large = mixture(4 << 20, 30, 1);
    let (_dir, path) = made_folder(&[("large", &large)]);
    let answer = of_folder(&path);
    // a record of one sector cannot shrink, one of two only if it becomes one
    assert_eq!(answer.trials.of(4096).space().value, 1.0);
    let spaces: Vec<f64> = [8192, 32 << 10, 128 << 10].map(|record| answer.trials.of(record).space().value).to_vec();
    assert!(spaces.is_sorted_by(|a, b| a > b) && spaces[2] < 0.6, "{spaces:?}");
    let verdict = answer.verdict();
    assert!(verdict.contains("(virtual machines): 4K") && verdict.contains("  With less room: "), "{verdict}");
}

#[test]
fn small_files_are_one_record_each() {
    let files: Vec<(String, Vec<u8>)> =
        (0..40).map(|n| (n.to_string(), mixture(3000 + n * 100, 100, n as u64))).collect();
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (&name[..], &bytes[..])).collect();
    let (_dir, path) = made_folder(&files);
    let answer = of_folder(&path);
    let [small, large] = [4096, 1 << 20].map(|record| answer.trials.of(record).space().value);
    // those longer than 4,096 bytes take two sectors either way, but for a few bytes that fit into a pointer
    assert!(0.95 * large < small && small < large, "{small} {large}");
    assert!(answer.trials.of(1 << 20).read_bytes().is_none());
    assert_eq!(answer.sizes.within.map(|(files, _)| files), [11, 40, 40, 40, 40, 40, 40, 40, 40]);
    assert!(answer.verdict().starts_with("Leave recordsize alone: 100 %"), "{}", answer.verdict());
}

/// What 20 draws of 60 pieces say of a folder, beside what all of them say.
#[test]
fn intervals_hold_the_truth() {
    let files: Vec<(String, Vec<u8>)> = (0..130)
        .map(|n| (n.to_string(), mixture(if n < 10 { 800_000 } else { 3000 }, 20 + n * 7 % 80, n as u64)))
        .collect();
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (&name[..], &bytes[..])).collect();
    let (_dir, path) = made_folder(&files);
    let truth = of_folder(&path).trials.usual().space().value;
    let mut held = 0;
    for seed in 0..20 {
        let plan = RecordPlan { pieces: 60, seed, ..PLAN };
        let answer = RecordAnswer::of_folder(&path, &plan, LZ4, &mut FoundFiles::default()).unwrap();
        let space = answer.trials.usual().space();
        assert!(answer.trials.pieces == 60 && space.high - space.low < 0.5, "{space:?}");
        held += u32::from(space.low <= truth && truth <= space.high);
    }
    assert!(held >= 17, "{held} of 20");
}

/// On a raidz1 of three with sectors of 4 KiB, blocks of 4 KiB take as much parity as data.
#[test]
fn padding_of_a_layout_counts() {
    let tree_taken = |bytes: u64| {
        let asize = |bytes: u64| {
            let data = bytes.div_ceil(4096);
            (data + data.div_ceil(2)).next_multiple_of(2) * 4096
        };
        asize(bytes) * (128 << 10) / asize(128 << 10)
    };
    let mut trials = RecordTrials::new(LZ4, Box::new(tree_taken), 12);
    trials.add(1.0, &mixture(1 << 20, 100, 3), false);
    let space = |record| trials.of(record).space().value;
    assert!((space(128 << 10) - 1.0).abs() < 1e-9 && (space(4096) - 4.0 / 3.0).abs() < 0.01, "{}", space(4096));
    assert!(space(8192) > 1.3 && space(16 << 10) < 1.1);
}
