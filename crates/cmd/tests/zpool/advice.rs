//! `cenote advise` of pools: what it tells is what a full check finds, and no pool of the corpus is too much for it.

use std::collections::HashMap;
use std::path::Path;

use base::Env;
use codec::checksum::Checksum;
use dmu::traverse::Visit;
use dsl::traverse::LOG_LEVEL;
use format::ddt::DdtKey;
use pool::Pool;
use pool::check::{BlockKind, CheckOptions, Observer, Verify};
use serde_json::Value;
use testkit::{corpus, program, survey};

use super::opens::does;
use super::suspended::noise;
use super::{World, can_mount};

/// What a full walk finds.
#[derive(Default)]
struct Walk {
    /// Different blocks of data that have a checksum and no key.
    different: HashMap<(u8, DdtKey), u64>,
    data: u64,
    small: u64,
    metadata_bytes: u64,
}

impl Observer for Walk {
    fn block(&mut self, visit: &Visit<'_>, kind: BlockKind) {
        let bp = visit.bp;
        if kind.is_placed_data(bp) && !bp.uses_crypt() && Checksum::from_u8(bp.checksum_kind()) != Some(Checksum::Off) {
            // the number of copies is no part of a key
            let bytes = bp.copies().map(|dva| dva.asize()).sum();
            self.different.entry((bp.checksum_kind(), DdtKey::of(bp))).or_insert(bytes);
        }
        let is_dead = matches!(kind, BlockKind::DeferredFree | BlockKind::DedupDitto);
        if is_dead || visit.bookmark.level == LOG_LEVEL || bp.is_embedded() || bp.is_hole() {
            return;
        }
        if bp.level() > 0 || bp.object_type().is_metadata() {
            self.metadata_bytes += bp.psize().next_multiple_of(4096) * bp.copies().count() as u64;
        } else {
            self.data += 1;
            self.small += u64::from(bp.psize() <= 16 << 10);
        }
    }
}

fn walk(pool: &Pool) -> Walk {
    let mut walk = Walk::default();
    pool.check(CheckOptions { verify: Verify::Nothing, space: false }, &mut walk).unwrap();
    walk
}

/// What an advice says; nothing where it says that there is nothing.
fn advise(kind: &str, dir: &Path, name: &str) -> Option<Value> {
    let ran = program::run(["advise", kind, "--json", "-d", dir.to_str().unwrap(), name]);
    if ran.complaints().contains("there is no data that can be read") {
        return None;
    }
    assert_eq!(ran.code(), Some(0), "{kind} {name}: {}", ran.complaints());
    assert!(!ran.complaints().contains("panicked"), "{}", ran.complaints());
    Some(serde_json::from_str(&ran.out()).unwrap())
}

/// Pools that differ most in what there is to look at.
const CASES: [&str; 20] = [
    "be-blocks",
    "checksum",
    "cloned",
    "copies",
    "dedup",
    "draid",
    "encrypted",
    "expanded",
    "fastdedup",
    "fuse-v1",
    "gang",
    "mirror",
    "nofeatures",
    "raidz2",
    "recordsize",
    "removal",
    "snapshots",
    "special",
    "v28",
    "zvol",
];

#[test]
fn advice_for_pools_is_what_a_full_check_finds() {
    for case in CASES.map(corpus::case) {
        let dir = tempfile::tempdir().unwrap();
        case.extract(dir.path()).unwrap();
        let found = walk(&survey::open(&corpus::as_devices(&case.load()), &Env::real()).unwrap());
        let name = &case.pool;
        let dedup = advise("dedup", dir.path(), name).unwrap();
        assert_eq!(dedup["table_entries"], found.different.len() as u64, "{}", case.name);
        assert_eq!((&dedup["counted_one_in"], dedup["ratio_low"] == dedup["ratio_high"]), (&1.0.into(), true));
        let unique: u64 = found.different.values().sum();
        let ratio = dedup["bytes"].as_f64().unwrap() / unique.max(1) as f64;
        assert!((dedup["ratio"].as_f64().unwrap() - ratio.max(1.0)).abs() < 1e-6, "{}: {dedup}", case.name);
        let special = advise("special", dir.path(), name).unwrap();
        assert_eq!(special["data_blocks"], found.data, "{}", case.name);
        assert_eq!(special["small"][2]["blocks"], found.small, "{}", case.name);
        assert_eq!(special["metadata_bytes"], found.metadata_bytes, "{}", case.name);
        assert_eq!(special["on_special_bytes"].as_u64() > Some(0), case.name == "special", "{}", case.name);
        if let Some(records) = advise("recordsize", dir.path(), name) {
            let sizes = records["sizes"].as_array().unwrap();
            assert!(sizes.len() == 9 && records["pieces"].as_u64() > Some(0), "{records}");
        }
    }
}

#[test]
fn all_advice_for_a_pool_is_sorted_for_the_money() {
    let (case, dir) = (corpus::case("raidz2"), tempfile::tempdir().unwrap());
    case.extract(dir.path()).unwrap();
    let prices = dir.path().join("prices.json");
    std::fs::write(&prices, r#"{"disk": 0.02, "ssd": 0.08, "ram": 3.5}"#).unwrap();
    let [dir, prices] = [dir.path(), &prices].map(|path| path.to_str().unwrap());
    let all = program::run(["advise", "--json", "--prices", prices, "-d", dir, &case.pool]).well().unwrap();
    let all: Value = serde_json::from_str(&all).unwrap();
    let proposals = all.as_array().unwrap();
    assert!(proposals.len() >= 4, "{all}");
    let key = |proposal: &Value| (proposal["is_advised"].as_bool().unwrap(), proposal["net"].as_f64().unwrap());
    assert!(proposals.iter().map(key).is_sorted_by(|a, b| a >= b), "{all}");
    let text = program::run(["advise", "-d", dir, &case.pool]);
    assert!(text.code() == Some(0) && text.out().contains("Gains are those of each proposal alone"), "{}", text.out());
}

#[test]
fn a_pool_in_use_is_read_from_its_devices() {
    let world = World::new("advice", &["raidz2"]);
    let name = corpus::case("raidz2").pool;
    world.check(&format!("import -N -d DIR/raidz2 {name}"), 0, "");
    let told = |line: &str| -> Value {
        let (text, code) = world.told(line);
        assert_eq!(code, 0, "{line}: {text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line}: {error}: {text}"))
    };
    let dedup = |json: Value| ["blocks", "bytes", "ratio", "table_entries"].map(|key| json[key].clone());
    let in_use = dedup(told(&format!("advise dedup --json {name}")));
    let all = told(&format!("advise --json {name}"));
    let log =
        all.as_array().unwrap().iter().find(|proposal| proposal["proposal"] == "log device of 64M, mirrored").unwrap();
    assert!(log["verdict"].as_str().unwrap().starts_with("Do not buy a log device: it logs 0B a day"), "{log}");
    world.check(&format!("export {name}"), 0, "");
    assert_eq!(dedup(told(&format!("advise dedup --json -d DIR/raidz2 {name}"))), in_use);
    let (text, code) = world.told(&format!("advise dedup {name}"));
    assert!(code == 1 && text.contains(&format!("no pool '{name}' was found")), "{text}");
}

#[test]
fn a_dataset_is_asked_about_alone() {
    let (case, dir) = (corpus::case("snapshots"), tempfile::tempdir().unwrap());
    case.extract(dir.path()).unwrap();
    let dir = dir.path();
    let all = advise("dedup", dir, &case.pool).unwrap()["blocks"].as_u64().unwrap();
    let listed = program::run(["ls", "-d", dir.to_str().unwrap(), &case.pool]).well().unwrap();
    let name =
        listed.lines().find_map(|line| line.split_whitespace().find(|word| word.contains('@'))).unwrap().to_owned();
    let one = advise("dedup", dir, &name).unwrap()["blocks"].as_u64().unwrap();
    assert!(one <= all, "{name}: {one} of {all}");
    for (wrong, why) in [("no such pool", "no pool"), (&format!("{}/no/such", case.pool)[..], "dataset does not exist")]
    {
        let ran = program::run(["advise", "dedup", "-d", dir.to_str().unwrap(), wrong]);
        assert!(ran.code() == Some(1) && ran.complaints().contains(why), "{wrong}: {}", ran.complaints());
    }
}

#[test]
fn folders_that_cannot_be_read_are_told_in_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    std::fs::write(dir.path().join("evil\n\x1b[2J"), vec![7; 5000]).unwrap();
    std::os::unix::fs::symlink("/etc", dir.path().join("elsewhere")).unwrap();
    for kind in ["dedup", "recordsize", "special", "compression"] {
        let ran = program::run(["advise", kind, path]);
        assert_eq!(ran.code(), Some(0), "{kind}: {}", ran.complaints());
        assert!(!ran.out().contains('\x1b') && !ran.complaints().contains('\x1b'));
        let missing = program::run(["advise", kind, &format!("{path}/\x1b[2Jno")]);
        assert_eq!((missing.code(), missing.complaints().lines().count()), (Some(1), 1), "{}", missing.complaints());
        assert!(!missing.complaints().contains('\x1b'), "{}", missing.complaints());
        let device = program::run(["advise", kind, "/dev/null"]);
        assert_eq!((device.code(), device.complaints().lines().count()), (Some(1), 1), "{}", device.complaints());
    }
    let wrong = program::run(["advise", path]);
    assert!(wrong.code() == Some(1) && wrong.complaints().contains("a folder, and no pool"), "{}", wrong.complaints());
}

/// Files of different lengths in records of 512 bytes, of which each third is there twice: each has a block of pointers.
#[test]
fn a_part_of_the_pointers_tells_what_dedup_saves() {
    const FILES: usize = 6000;
    if !can_mount("advice of a part") {
        return;
    }
    let world = World::new("advice-part", &[]);
    std::fs::File::create(world.dir.join("disk")).unwrap().set_len(1 << 30).unwrap();
    world.check("create -o cachefile=none -o ashift=9 -O compression=off -R DIR/mnt fresh DIR/disk", 0, "");
    does(&world, "create -o recordsize=512 fresh/data");
    let folder = world.dir.join("mnt/fresh/data");
    for n in 0..FILES {
        let file = noise(600 + n * 3, n as u64);
        std::fs::write(folder.join(format!("{n}")), &file).unwrap();
        if n % 3 == 0 {
            std::fs::write(folder.join(format!("{n}-again")), &file).unwrap();
        }
    }
    world.check("export fresh", 0, "");
    let dedup = |option: &str| -> Value {
        let (text, code) = world.told(&format!("advise dedup {option} --json -d DIR fresh"));
        assert_eq!(code, 0, "{text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    let (part, all) = (dedup(""), dedup("--exact"));
    let of = |json: &Value, key: &str| json[key].as_f64().unwrap_or_else(|| panic!("{key} of {json}"));
    assert!(of(&part, "read_part") < 0.5 && of(&all, "read_part") == 1.0, "{part} {all}");
    let [low, high] = ["ratio_low", "ratio_high"].map(|key| of(&part, key));
    let ratio = of(&all, "ratio");
    assert!(ratio > 1.2 && low <= ratio && ratio <= high && high - low < 0.1 * ratio, "{part} {all}");
    for key in ["blocks", "bytes", "table_entries"] {
        assert!((of(&part, key) / of(&all, key) - 1.0).abs() < 0.05, "{key}: {part} {all}");
    }
}
