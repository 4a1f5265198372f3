//! The program on every pool of the corpus: what it tells is what the makers recorded.
//!
//! `CENOTE_TEST_CASE` restricts these tests to one case.

use std::sync::atomic::{AtomicUsize, Ordering};

use base::Mutex;
use testkit::corpus::{self, Case};
use testkit::manifest::Manifest;
use testkit::{copy, program, totals};

/// Programs that run at the same time.
const WORKERS: usize = 2;

/// A case, extracted into a folder.
struct Extracted<'a> {
    case: &'a Case,
    dir: tempfile::TempDir,
}

impl Extracted<'_> {
    /// `-d DIR` and a place in the pool.
    fn args(&self, command: &[&str], place: &str) -> Vec<String> {
        let dir = self.dir.path().to_str().expect("temporary folders are ASCII").to_owned();
        command.iter().map(|arg| (*arg).to_owned()).chain(["-d".to_owned(), dir, place.to_owned()]).collect()
    }

    /// The same with all keys of the case, for a dataset that is encrypted.
    fn args_with_keys(&self, command: &[&str], dataset: &str, place: &str) -> Vec<String> {
        let mut args = self.args(command, place);
        if self.case.is_encrypted(dataset) {
            let keys = self
                .case
                .key_files()
                .into_iter()
                .flat_map(|key| ["-K".to_owned(), format!("file://{}", key.display())]);
            args.splice(1..1, keys);
        }
        args
    }

    /// Without a key, an encrypted dataset is not read, and that is told.
    fn check_locked(&self, args: Vec<String>, dataset: &str, wrong: &mut Vec<String>) {
        let ran = program::run(args);
        let is_told = ran.code() == Some(1) && ran.complaints().contains(dataset);
        if self.case.is_encrypted(dataset) && !(is_told && ran.out().is_empty()) {
            wrong.push(format!("{dataset} is encrypted, but: {:?} {}", ran.code(), ran.complaints()));
        }
    }
}

/// What is looked at in a case: returns how much was, and notes what is wrong.
type Check = fn(&Extracted<'_>, &mut Vec<String>) -> usize;

/// All that is looked at, each with what it is told as. A case is extracted once for all.
const CHECKS: [(&str, Check); 5] = [
    ("file systems and snapshots as `cenote stat` tells them", stats_of_files),
    ("file systems and snapshots as `cenote cp` copies them", copies),
    ("volumes as `cenote stat` tells them", stats_of_volumes),
    ("pools whose totals are zdb's", totals_of_zdb),
    ("listings of dedup tables that are zdb's", dedup_of_zdb),
];

#[test]
fn the_program_tells_what_the_makers_recorded() {
    let only = std::env::var("CENOTE_TEST_CASE").ok();
    let cases = corpus::cases();
    let cases: Vec<&Case> = cases.iter().filter(|case| only.as_ref().is_none_or(|only| case.name == *only)).collect();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let checked = CHECKS.map(|_| AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let dir = tempfile::tempdir().expect("a temporary folder can be made");
                    case.extract(dir.path()).expect("the images can be written");
                    let extracted = Extracted { case, dir };
                    for ((what, check), checked) in CHECKS.iter().zip(&checked) {
                        let mut wrongs = Vec::new();
                        checked.fetch_add(check(&extracted, &mut wrongs), Ordering::Relaxed);
                        wrong.lock().extend(wrongs.iter().map(|why| format!("{}: {what}: {why}", case.name)));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner();
    assert!(wrong.is_empty(), "{} of the comparisons differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(!cases.is_empty(), "no case {only:?}");
    for ((what, _), checked) in CHECKS.iter().zip(checked) {
        let checked = checked.into_inner();
        assert!(checked > 0 || only.is_some(), "no {what}");
        println!("golden: {checked} {what}");
    }
}

/// What `cenote stat` tells of every file.
fn stats_of_files(extracted: &Extracted<'_>, wrong: &mut Vec<String>) -> usize {
    let manifests = extracted.case.manifests(".jsonl");
    for (dataset, text) in &manifests {
        let place = format!("{dataset}:/");
        let command = ["stat", "-r", "-j", "--sha256"];
        if extracted.case.is_encrypted(dataset) {
            extracted.check_locked(extracted.args(&command, &place), dataset, wrong);
        }
        let ran = program::run(extracted.args_with_keys(&command, dataset, &place));
        let expect = Manifest::parse(text).expect("the corpus is well formed").on_disk();
        match ran.well().and_then(|out| Manifest::parse(&out)) {
            Ok(found) => wrong.extend(expect.differences(&found).map(|text| format!("{dataset}:\n{text}"))),
            Err(e) => wrong.push(format!("{dataset}: {e}")),
        }
    }
    manifests.len()
}

/// What `cenote cp` makes of every file.
fn copies(extracted: &Extracted<'_>, wrong: &mut Vec<String>) -> usize {
    let manifests = extracted.case.manifests(".jsonl");
    let mut checked = 0;
    for (dataset, text) in &manifests {
        let to = tempfile::tempdir().expect("a temporary folder can be made");
        let copy = to.path().join("copy");
        let mut args = extracted.args_with_keys(&["cp", "-r", "--dev", "--suid"], dataset, &format!("{dataset}:/"));
        args.push(copy.to_str().expect("temporary folders are ASCII").to_owned());
        let ran = program::run(args);
        let all = Manifest::parse(text).expect("the corpus is well formed").on_disk();
        // the feature longname has names that other file systems have no room for
        let expect = all.clone().with_names_up_to(255);
        if expect.files().count() < all.files().count() && !ran.complaints().contains("name too long") {
            wrong.push(format!("{dataset}: nothing is said of names that are too long:\n{}", ran.complaints()));
        }
        let differences = copy::differences(&expect, &copy);
        wrong.extend(differences.map(|text| format!("{dataset}:\n{text}{}", ran.complaints())));
        checked += 1;
    }
    checked
}

/// Volumes have no files, but contents.
fn stats_of_volumes(extracted: &Extracted<'_>, wrong: &mut Vec<String>) -> usize {
    let volumes = extracted.case.manifests(".zvol");
    for (volume, expect) in &volumes {
        let place = format!("{volume}:");
        if extracted.case.is_encrypted(volume) {
            extracted.check_locked(extracted.args(&["stat", "--sha256"], &place), volume, wrong);
        }
        match program::run(extracted.args_with_keys(&["stat", "--sha256"], volume, &place)).well() {
            Ok(out) if out == *expect => {}
            Ok(out) => wrong.push(format!("{volume}: {out} instead of {expect}")),
            Err(e) => wrong.push(format!("{volume}: {e}")),
        }
    }
    volumes.len()
}

/// Every block has its checksum, and their number and bytes are those that zdb counted.
fn totals_of_zdb(extracted: &Extracted<'_>, wrong: &mut Vec<String>) -> usize {
    let expect = extracted.case.text("info/zdb-bcc").expect("every case has zdb's totals");
    let dir = extracted.dir.path().to_str().expect("temporary folders are ASCII");
    let ran = program::run(["zdb", "-e", "-p", dir, "-c", &extracted.case.pool]);
    match ran.code() {
        Some(0) => wrong.extend(totals::differences(&expect, &ran.out())),
        code => wrong.push(format!("zdb: {code:?}: {}{}", ran.complaints(), ran.out())),
    }
    1
}

/// Dedup tables with their entries, and what they would be if everything were deduplicated, as zdb 2.4 lists them.
fn dedup_of_zdb(extracted: &Extracted<'_>, wrong: &mut Vec<String>) -> usize {
    let dir = extracted.dir.path().to_str().expect("temporary folders are ASCII");
    // zdb forgets how far a log has gone
    let lines =
        |text: &str| text.lines().filter(|l| !l.contains("checkpoint: ")).map(str::to_owned).collect::<Vec<_>>();
    let mut checked = 0;
    for flags in ["-DDDDD", "-S"] {
        let Some(expect) = extracted.case.text(&format!("info/zdb{flags}")) else { continue };
        checked += 1;
        match program::run(["zdb", "-e", "-p", dir, flags, &extracted.case.pool]).well() {
            Ok(out) => {
                let (found, expect) = (lines(&out), lines(&expect));
                let other = found.iter().zip(&expect).find(|(found, expect)| found != expect);
                wrong.extend(other.map(|(found, expect)| format!("zdb {flags}: {found}\ninstead of: {expect}")));
                if found.len() != expect.len() {
                    wrong.push(format!("zdb {flags}: {} lines instead of {}", found.len(), expect.len()));
                }
            }
            Err(e) => wrong.push(format!("zdb {flags}: {e}")),
        }
    }
    checked
}
