//! `zpool` on the pools of the corpus, compared with what OpenZFS 2.1 printed of them.

use std::collections::BTreeMap;

use base::Env;
use daemon::host_rule::HostRule;
use daemon::mount_plan::MountBounds;
use daemon::report::{self, ProcessFacts};
use format::ids::Guid;
use pool::{Candidate, Discovery, FoundDevice, OpenOptions, Pool};
use protocol::pool_report::PoolReport;
use testkit::corpus::{self, Case};

use super::history_text::{Detail, record_text};
use super::names::NameStyle;
use super::status_options::{PoolStatus, StatusOptions};
use super::{GROUPS, get, usage};

/// Properties that OpenZFS shows otherwise, and why.
const DIFFERENT: [(&str, &str); 5] = [
    ("load_guid", "it is another one each time"),
    ("allocated", "OpenZFS does not count what is allocated in a pool that it opens read-only"),
    ("free", "as above"),
    ("capacity", "as above"),
    ("fragmentation", "as above"),
];
/// Properties that OpenZFS 2.1 did not have.
const LATER: [&str; 7] = [
    "bcloneused",
    "bclonesaved",
    "bcloneratio",
    "dedup_table_size",
    "dedup_table_quota",
    "dedupcached",
    "last_scrubbed_txg",
];
/// The newest feature that OpenZFS 2.1 had.
const LAST_FEATURE: &str = "feature@draid";

fn candidate(case: &Case) -> Candidate {
    let mut discovery = Discovery::default();
    // the devices as they were called on the machine that described them
    let status = case.text("info/zpool-status").unwrap_or_default();
    let first = status.split_whitespace().find(|word| word.starts_with('/') && word.contains("/vda"));
    let (folder, rest) = first.and_then(|path| path.split_once("/vda")).unwrap_or(("/dev", ""));
    for device in corpus::as_devices(&case.load()) {
        let name = device.path().trim_end_matches(".img");
        let path = format!("{folder}/{name}{}", if rest == ".img" { rest } else { "" });
        let found = FoundDevice::examine(&path, device).expect("labels can be read");
        discovery
            .devices
            .extend(found.into_iter().map(|found| FoundDevice { path: found.path.replace(':', ""), ..found }));
    }
    Candidate::pick(&Candidate::all(&discovery), &case.pool).expect("the pool is there")
}

fn open(case: &Case) -> (Pool, PoolReport) {
    protocol::words::time::use_utc();
    let env = Env::fixed(0);
    let pool = Pool::open(&env, &candidate(case), &OpenOptions::default());
    let pool = pool.unwrap_or_else(|e| panic!("{}: {e}", case.name));
    let session = ProcessFacts {
        load_guid: Guid::NONE,
        bounds: MountBounds::new(None, HostRule::plain(true), None),
        is_writable: false,
        opened_s: 0,
    };
    let report = report::pool(&pool, &session).unwrap_or_else(|e| panic!("{}: {e}", case.name));
    // as over the socket
    let report = serde_json::from_slice(&serde_json::to_vec(&report).unwrap()).unwrap();
    (pool, report)
}

#[test]
fn every_pool_is_described_as_by_openzfs() {
    let mut described = 0;
    for case in corpus::cases() {
        let (pool, report) = open(&case);
        let info = |what: &str| case.text(&format!("info/{what}"));
        if let Some(expect) = info("zpool-get") {
            check_properties(&case, &report, &expect);
            described += 1;
        }
        if let Some(expect) = info("zpool-history") {
            check_history(&case, &pool, &expect);
        }
        if let Some(zdb) = info("zdb-bcc") {
            check_allocated(&case, &report, &zdb);
        }
        if let Some(expect) = info("zpool-status") {
            let damaged = report::damaged::damaged(&pool, &[], &|_| None).unwrap();
            let subject = PoolStatus { pool: report, damaged, dedup: None };
            let style = NameStyle { whole_paths: true, ..NameStyle::default() };
            let options = StatusOptions { style, verbose: true, ..StatusOptions::default() };
            assert_eq!(
                without_rates(&super::status_text::text(&subject, &options)),
                without_rates(&expect),
                "{}",
                case.name
            );
        }
    }
    assert!(described > 30, "only {described} pools are described");
}

/// A status without how far an expansion of raidz is: the time of asking counts there, and OpenZFS, which opens the pool
/// read-only, does not know the whole.
fn without_rates(status: &str) -> String {
    let is_rate = |line: &&str| line.starts_with('\t') && line.contains(" copied at ");
    status.lines().filter(|line| !is_rate(line)).map(|line| format!("{line}\n")).collect()
}

fn check_properties(case: &Case, report: &PoolReport, expect: &str) {
    let rows = |text: &str| -> BTreeMap<String, String> {
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let row = |line: &str| line.split_once('\t').and_then(|(_, row)| row.split_once('\t')).map(own);
        text.lines().filter_map(row).collect()
    };
    let text = get::scripted_all(report);
    let ours = rows(&text);
    for (name, value) in rows(expect) {
        if DIFFERENT.iter().all(|(different, _)| *different != name) {
            assert_eq!(ours.get(&name), Some(&value), "{}: {name}", case.name);
        }
    }
    // in the same order, with what is newer left out
    let names = |text: &str| -> Vec<String> {
        let name = |line: &str| line.split('\t').nth(1).unwrap_or_default().to_owned();
        let mut names: Vec<String> = text.lines().map(name).filter(|name| !LATER.contains(&name.as_str())).collect();
        let last = names.iter().position(|name| name == LAST_FEATURE).expect("all features are listed");
        names.truncate(last + 1);
        names
    };
    assert_eq!(names(&text), names(expect), "{}", case.name);
}

/// What the space maps say is allocated is the sum of all blocks, as zdb found them.
fn check_allocated(case: &Case, report: &PoolReport, zdb: &str) {
    let space = &report.space;
    assert!(space.allocated_bytes > 0 && space.allocated_bytes < space.size_bytes, "{}", case.name);
    let number = |label: &str| {
        let line = zdb.lines().find_map(|line| line.trim_start().strip_prefix(label));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
    };
    let (Some(blocks), Some(deduped)) = (number("bp allocated:"), number("bp deduped:")) else { return };
    let cloned = number("bp cloned:").unwrap_or(0);
    // what only the checkpoint has, zdb counts beside the blocks
    let checkpoint = report.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.bytes);
    let tops = report.root.children.iter().flat_map(|top| &top.space);
    let ours: u64 = tops.map(|space| space.allocated_bytes).sum();
    assert_eq!(ours, blocks - deduped - cloned + checkpoint, "{}", case.name);
}

fn check_history(case: &Case, pool: &Pool, expect: &str) {
    let mut text = format!("History for '{}':\n", case.pool);
    for record in pool.history().unwrap() {
        text += &record_text(&record.unwrap(), Detail { long: true, internal: true });
    }
    if expect.lines().count() == 1 {
        // OpenZFS gives up at the first record of some machines, and of the oldest pools
        assert!(text.lines().count() > 1, "{}: {text}", case.name);
    } else {
        assert_eq!(text + "\n", expect, "{}", case.name);
    }
}

#[test]
fn json_names_every_vdev() {
    let case = corpus::case("logcache");
    let (_, report) = open(&case);
    let subject = PoolStatus { pool: report, damaged: Vec::new(), dedup: None };
    let options = StatusOptions { json: true, json_int: true, ..StatusOptions::default() };
    let all = super::status_json::all(&[subject], &options, super::pools::Timestamp::None);
    let pool = &all["pools"]["t_logcache"];
    assert_eq!((&pool["state"], &pool["error_count"]), (&"ONLINE".into(), &0.into()));
    assert_eq!(pool["vdevs"]["t_logcache"]["vdevs"]["vda"]["class"], "normal");
    assert_eq!(pool["logs"]["mirror-2"]["vdevs"]["vdc"]["class"], "log");
    assert_eq!(pool["l2cache"]["vde"]["vdev_type"], "disk");
    let keys: Vec<&String> = pool.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        ["name", "state", "pool_guid", "txg", "spa_version", "zpl_version", "vdevs", "logs", "l2cache", "error_count"]
    );
}

#[test]
fn usage_messages() {
    let text = usage();
    let head = "usage: zpool command args ...\nwhere 'command' is one of the following:\n\n\tversion [-j]\n\n\tcreate ";
    assert!(text.starts_with(head), "{text}");
    assert!(text.contains("\t    [-T d|u] [pool] [interval [count]]\n\tiostat [[-lq]"), "{text}");
    for command in GROUPS.iter().copied().flatten() {
        assert!(command.usage.starts_with(&format!("\t{}", command.name)) && command.usage.ends_with('\n'));
    }
}

/// No text sends anybody to a command that does not exist: every `zpool X` and `zfs X` in a string of the program.
#[test]
fn texts_name_commands_that_exist() {
    let of_zpool: Vec<&str> = super::GROUPS.iter().copied().flatten().map(|command| command.name).collect();
    let of_zfs = crate::zfs::command_names();
    // words behind the names that are no commands
    let plain = ["command", "does", "is", "dataset", "send", "help"];
    let mut files = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))];
    let mut seen = 0;
    while let Some(path) = files.pop() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            let is_ours = !["target", "tests", "testkit", "fuzz", "bench"].contains(&name.as_str());
            files.extend(path.read_dir().unwrap().map(|entry| entry.unwrap().path()).filter(|_| is_ours));
            continue;
        }
        if !name.ends_with(".rs") || name == "tests.rs" {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in lines {
            for (tool, known) in [("zpool", &of_zpool), ("zfs", &of_zfs)] {
                for (at, _) in line.match_indices(&format!("{tool} ")) {
                    let is_word = !line[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
                    let rest = &line[at + tool.len() + 1..];
                    let word: String = rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
                    if !is_word || word.is_empty() || plain.contains(&word.as_str()) {
                        continue;
                    }
                    seen += 1;
                    assert!(known.contains(&word.as_str()), "{}: '{tool} {word}' in {line:?}", path.display());
                }
            }
        }
    }
    assert!(seen > 20, "the texts were looked at: {seen}");
}

#[test]
fn usage_messages_show_the_flags_that_are_taken() {
    for command in GROUPS.iter().copied().flatten() {
        crate::getopt::check_usage(command.name, command.usage, |args| {
            assert!((command.run)(args).is_err(), "{}", command.name);
        });
    }
}
