//! `zfs` on the pools of the corpus, compared with what OpenZFS printed of them.

mod local;

use std::collections::BTreeMap;
use std::fs;

use base::{Error, Kind, Result};
use protocol::datasets::{DatasetRequest, Response};
use testkit::corpus::{self, Case};

use super::client::Pools;
use super::command::Outcome;
use super::execute;
use local::Local;

/// Properties that OpenZFS 2.1 did not have.
const LATER: [&str; 11] = [
    "prefetch",
    "volthreading",
    "direct",
    "longname",
    "defaultuserquota",
    "defaultgroupquota",
    "defaultprojectquota",
    "defaultuserobjquota",
    "defaultgroupobjquota",
    "defaultprojectobjquota",
    "snapshots_changed",
];

/// Whether 2.1 did not have a property, or had it not for volumes.
fn is_later(property: &str) -> bool {
    LATER.contains(&property) || property == "special_small_blocks"
}

/// What OpenZFS printed, if it did.
fn info(case: &Case, name: &str) -> Option<String> {
    case.text(&format!("info/{name}"))
}

/// Values of properties by dataset and name: value and source.
fn properties(text: &str) -> BTreeMap<(String, String), (String, String)> {
    let lines = text.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    lines.map(|f| ((f[0].to_owned(), f[1].to_owned()), (f[2].to_owned(), f[3].to_owned()))).collect()
}

/// What is in a resume token; another implementation of zlib packs the same in other bytes.
fn token(text: &str) -> Vec<(String, format::nvlist::Value)> {
    let parts: Vec<&str> = text.split('-').collect();
    let [_, _, len, hex] = parts[..] else { panic!("no token: {text}") };
    let compressed: Vec<u8> =
        (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect();
    let mut packed = vec![0; usize::from_str_radix(len, 16).unwrap()];
    codec::compress::decompress(codec::compress::Compress::Gzip6, &compressed, &mut packed).unwrap();
    let state = format::nvlist::NvList::unpack(&packed).unwrap();
    let mut pairs: Vec<_> = state.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect();
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    pairs
}

/// The number that means that there is no limit.
const UNLIMITED: &str = "18446744073709551615";

/// Values and sources that 2.1 showed, and what 2.4 shows in their place: other defaults, and `xattr=on` is `sa`.
const OTHER_DEFAULTS: [(&str, [&str; 2], [&str; 2]); 11] = [
    ("compression", ["off", "default"], ["on", "default"]),
    ("relatime", ["off", "default"], ["on", "default"]),
    ("xattr", ["on", "default"], ["sa", "default"]),
    ("xattr", ["on", "local"], ["dir", "local"]),
    ("volblocksize", ["8192", "default"], ["8192", "-"]),
    ("volblocksize", ["8K", "default"], ["8K", "-"]),
    ("volblocksize", ["16384", "-"], ["16384", "default"]),
    ("filesystem_limit", [UNLIMITED, "default"], ["none", "default"]),
    ("filesystem_count", [UNLIMITED, "default"], ["none", "default"]),
    ("snapshot_limit", [UNLIMITED, "default"], ["none", "default"]),
    ("snapshot_count", [UNLIMITED, "default"], ["none", "default"]),
];

fn is_same(property: &str, is: &(String, String), should: &(String, String)) -> bool {
    let other = OTHER_DEFAULTS.iter().find(|(name, was, _)| *name == property && *was == [&should.0, &should.1]);
    if let Some((_, _, now)) = other {
        return *now == [&is.0, &is.1];
    }
    is == should || property == "receive_resume_token" && is.1 == should.1 && token(&is.0) == token(&should.0)
}

#[test]
fn properties_of_every_pool_are_those_that_openzfs_told() {
    let mut wrong = Vec::new();
    let mut compared = 0;
    for case in corpus::cases() {
        // cases with a log not replayed were not asked
        let (Some(list), Some(get)) = (info(&case, "zfs-list"), info(&case, "zfs-get")) else { continue };
        let local = Local::open(&case);
        let columns = "name,type,guid,createtxg,objsetid,used,refer,origin";
        let listed = local.zfs(&format!("list -Hp -t all -o {columns} -r {}", case.pool));
        if listed.out.replace('\t', " ") != list.replace('\t', " ") || listed.code != 0 {
            wrong.push(format!("{}: list\n{}\nis not\n{list}\n{}", case.name, listed.out, listed.err));
        }
        let got = local.zfs(&format!("get -Hp -t all -r all {}", case.pool));
        let (is, should) = (properties(&got.out), properties(&get));
        for (key, value) in &should {
            compared += 1;
            if !is.get(key).is_some_and(|is| is_same(&key.1, is, value)) {
                wrong.push(format!("{}: {key:?} is {:?}, not {value:?}", case.name, is.get(key)));
            }
        }
        for key in is.keys().filter(|key| !should.contains_key(key) && !is_later(&key.1)) {
            wrong.push(format!("{}: {key:?} is {:?}, and should not be there", case.name, is[key]));
        }
        let order = |text: &str| -> Vec<String> {
            let lines = text.lines().map(|line| line.splitn(3, '\t').take(2).collect::<Vec<_>>().join(" "));
            lines.filter(|line| !line.rsplit(' ').next().is_some_and(is_later)).collect()
        };
        if order(&got.out) != order(&get) {
            wrong.push(format!("{}: properties are in another order", case.name));
        }
    }
    assert!(wrong.is_empty(), "{} of {compared}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 20_000, "{compared}");
}

#[test]
fn space_by_owner_is_as_openzfs_told() {
    let mut compared = 0;
    for case in corpus::cases() {
        let mut files: Vec<String> = fs::read_dir(case.dir().join("info"))
            .map(|dir| dir.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect())
            .unwrap_or_default();
        files.retain(|name| name.contains("space"));
        if files.is_empty() {
            continue;
        }
        let local = Local::open(&case);
        for file in files {
            let name = file.trim_end_matches(".zst");
            let (dataset, command) = name.rsplit_once('.').unwrap();
            let flags = if command == "projectspace" { "-Hp" } else { "-Hnp" };
            let outcome = local.zfs(&format!("{command} {flags} {}", dataset.replace('+', "/")));
            assert_eq!(outcome.out, info(&case, name).unwrap(), "{}: {file}: {}", case.name, outcome.err);
            compared += 1;
        }
    }
    assert!(compared > 200, "{compared}");
}

/// Several pools, imported below `/mnt`.
struct Machine(Vec<Local>);

impl Machine {
    fn new(cases: &[&str]) -> Machine {
        let mut pools: Vec<Local> = cases.iter().map(|case| Local::case(case).below("/mnt")).collect();
        pools.sort_by(|a, b| a.pool.name().cmp(b.pool.name()));
        Machine(pools)
    }

    fn zfs(&self, line: &str) -> Outcome {
        local::run(self, line)
    }
}

impl Pools for Machine {
    fn names(&self) -> Result<Vec<String>> {
        Ok(self.0.iter().map(|local| local.pool.name().to_owned()).collect())
    }

    fn ask(&self, pool: &str, request: &DatasetRequest) -> Result<Response> {
        self.0.iter().find(|local| local.pool.name() == pool).expect("the pool is imported").ask(pool, request)
    }
}

/// A command of a transcript and what OpenZFS said: `$ command`, output, `! errors`, `? exit code`.
struct Step<'a> {
    command: &'a str,
    out: String,
    err: String,
    code: u8,
}

fn steps(transcript: &str) -> Vec<Step<'_>> {
    let mut steps: Vec<Step> = Vec::new();
    for line in transcript.lines() {
        if let Some(command) = line.strip_prefix("$ zfs") {
            steps.push(Step { command, out: String::new(), err: String::new(), code: 0 });
            continue;
        }
        let Some(step) = steps.last_mut() else { continue };
        if let Some(code) = line.strip_prefix("? ") {
            step.code = code.parse().unwrap();
        } else if let Some(err) = line.strip_prefix("! ") {
            step.err += &format!("{err}\n");
        } else {
            step.out += &format!("{line}\n");
        }
    }
    steps
}

/// Output as it is compared: without what depends on the zone of the machine, and where all properties
/// are listed, without those that came later, which also make columns wider.
fn comparable(command: &str, text: &str) -> String {
    let is_all = command.contains(" all");
    let is_later = |line: &str| line.split_whitespace().any(|word| LATER.contains(&word));
    let lines = text.lines().filter(|line| !(line.contains(" creation ") || is_all && is_later(line)));
    let squeezed = |line: &str| match is_all {
        true => line.split_whitespace().collect::<Vec<_>>().join(" "),
        false => line.to_owned(),
    };
    let mut lines: Vec<String> = lines.map(|line| squeezed(line) + "\n").collect();
    if command == " mount" {
        // the kernel lists in the order in which threads mounted
        lines.sort();
    }
    lines.concat()
}

/// What 2.1 printed, with the defaults of 2.4.
fn with_other_defaults(text: &str) -> String {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_it = |property: &str, [value, source]: [&str; 2]| {
            words.windows(2).any(|pair| pair == [property, value]) && words.last() == Some(&source)
        };
        let Some((_, was, now)) = OTHER_DEFAULTS.iter().find(|(property, was, _)| is_it(property, *was)) else {
            return format!("{line}\n");
        };
        let width = was[0].len().max(now[0].len());
        let line = line.replace(&format!(" {:width$} ", was[0]), &format!(" {:width$} ", now[0]));
        format!("{}{}\n", line.strip_suffix(was[1]).unwrap_or(&line), now[1])
    };
    text.lines().map(line).collect()
}

#[test]
fn output_is_that_of_openzfs() {
    let machine = Machine::new(&["datasets", "snapshots", "send", "encrypted", "zvol"]);
    let mut wrong = Vec::new();
    let steps = steps(include_str!("tests/openzfs-2.1.11.txt"));
    assert!(steps.len() > 100, "{}", steps.len());
    for step in &steps {
        let outcome = machine.zfs(step.command);
        // usage texts tell of more than those of 2.1 did: only what is wrong is compared
        let err = match outcome.code {
            2 => outcome.err.split_inclusive('\n').next().unwrap_or_default(),
            _ => &outcome.err,
        };
        let is = format!("{}! {err}? {}", comparable(step.command, &outcome.out), outcome.code);
        // there is no such link to a test
        let legacy = "use mount(8) to mount this filesystem, once /sbin/mount.zfs is a link to cenote";
        let err = step.err.replace("use mount(8) to mount this filesystem", legacy);
        let should = format!("{}! {err}? {}", comparable(step.command, &with_other_defaults(&step.out)), step.code);
        if is != should {
            wrong.push(format!("$ zfs{}\n--- is\n{is}\n--- should be\n{should}", step.command));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), steps.len(), wrong.join("\n"));
}

#[test]
fn paths_stand_for_what_is_mounted_there() {
    let top = std::env::temp_dir().join(format!("cenote-zfs-{}", std::process::id()));
    let at = top.join("t_datasets/a/b");
    fs::create_dir_all(&at).unwrap();
    fs::write(at.join("file"), "").unwrap();
    let top_text = top.to_str().unwrap();
    let local = Local::case("datasets").below(top_text);
    assert_eq!(local.zfs("mount -a"), Outcome::default());
    let name = |path: &str| local.zfs(&format!("get -Ho name type {top_text}/{path}"));
    assert_eq!(name("t_datasets/a/b/file").out, "t_datasets/a/b\n");
    assert_eq!(name("t_datasets").out, "t_datasets\n");
    let outcome = name("none");
    assert_eq!((outcome.err, outcome.code), (format!("cannot open '{top_text}/none': No such file or directory\n"), 1));
    assert_eq!(local.zfs("list /").err, "'/': not a ZFS filesystem\n");
    let unmount = |path: &str| local.zfs(&format!("unmount {path}"));
    assert_eq!(unmount(&format!("{top_text}/t_datasets/a/b")), Outcome::default());
    assert!(!local.zfs("mount").out.contains("t_datasets/a/b "));
    assert_eq!(unmount("/").err, "cannot unmount '/': not a ZFS filesystem\n");
    let inside = format!("{top_text}/t_datasets/a/b");
    assert_eq!(unmount(&inside).err, format!("cannot unmount '{inside}': not a mountpoint\n"));
    fs::remove_dir_all(top).unwrap();
}

#[test]
fn what_is_in_use_stays_mounted() {
    let local = Local { is_busy: true, ..Local::case("snapshots") };
    assert_eq!(local.zfs("mount -R t_snapshots"), Outcome::default());
    let outcome = local.zfs("unmount t_snapshots/fs");
    assert_eq!((&*outcome.err, outcome.code), ("cannot unmount '/t_snapshots/fs': pool or dataset is busy\n", 1));
    assert!(local.zfs("mount").out.contains("t_snapshots/fs "));
    assert_eq!(local.zfs("unmount -f t_snapshots/fs"), Outcome::default());
    assert!(!local.zfs("mount").out.contains("t_snapshots/fs "));
    let json: serde_json::Value = serde_json::from_str(&local.zfs("mount -j").out).unwrap();
    assert_eq!(json["datasets"]["t_snapshots/clone"]["mountpoint"], "/t_snapshots/clone");
}

#[test]
fn options_of_mounts_show_as_temporary_values() {
    let local = Local::case("datasets");
    assert_eq!(local.zfs("mount -o noexec t_datasets/a"), Outcome::default());
    let got = local.zfs("get -Ho property,value,source readonly,exec,devices,mounted t_datasets/a");
    assert_eq!(got.out, "readonly\ton\ttemporary\nexec\toff\ttemporary\ndevices\ton\tdefault\nmounted\tyes\t-\n");
    let outcome = local.zfs("mount -o fast t_datasets/limits");
    assert_eq!(outcome.err, "cannot mount 't_datasets/limits': invalid mount option 'fast'\n");
    let got = local.zfs("get -H -s temporary -o property all t_datasets/a");
    assert_eq!(got.out, "exec\nreadonly\n");
}

#[test]
fn json_of_lists_and_properties() {
    let local = Local::case("snapshots");
    let json = |line: &str| -> serde_json::Value { serde_json::from_str(&local.zfs(line).out).unwrap() };
    let list = json("list -j --json-int -t all -o name,used,origin t_snapshots/fs t_snapshots/fs@four");
    let text = |value: &serde_json::Value| value.to_string();
    assert_eq!(text(&list["output_version"]), r#"{"command":"zfs list","vers_major":0,"vers_minor":1}"#);
    assert_eq!(list["datasets"]["t_snapshots/fs"]["properties"]["used"]["value"], 57_856);
    assert_eq!(list["datasets"]["t_snapshots/fs"]["createtxg"], 7);
    assert_eq!(list["datasets"]["t_snapshots/fs"]["properties"]["origin"]["value"], "t_snapshots/promoted@two");
    let snapshot = &list["datasets"]["t_snapshots/fs@four"];
    assert_eq!((&snapshot["type"], &snapshot["snapshot_name"]), (&"SNAPSHOT".into(), &"four".into()));
    let got = json("get -j atime,quota t_snapshots/fs");
    let properties = &got["datasets"]["t_snapshots/fs"]["properties"];
    assert_eq!(text(&properties["atime"]), r#"{"value":"off","source":{"type":"INHERITED","data":"t_snapshots"}}"#);
    assert_eq!(text(&properties["quota"]), r#"{"value":"none","source":{"type":"DEFAULT","data":"-"}}"#);
    assert_eq!(local.zfs("list -j t_snapshots/none").out, "");
    assert_eq!(local.zfs("get --json-int used").code, 2);
}

#[test]
fn a_pool_that_is_gone_is_an_error() {
    struct Gone;
    impl Pools for Gone {
        fn names(&self) -> Result<Vec<String>> {
            Ok(vec!["tank".to_owned()])
        }
        fn ask(&self, pool: &str, _: &DatasetRequest) -> Result<Response> {
            Err(Error::new(Kind::NotFound, "the pool is not imported").in_pool(pool))
        }
    }
    let outcome = execute(&Gone, &["list".into()]);
    assert_eq!((&*outcome.err, outcome.code), ("tank: the pool is not imported\n", 1));
}

/// What a command says, and what it asks the pool to change.
fn changes(host: &Local, line: &str) -> (String, Vec<String>) {
    host.changes.lock().clear();
    let outcome = host.zfs(line);
    let first = outcome.err.lines().take(3).collect::<Vec<_>>().join("\n");
    (format!("{}{first}", outcome.out), host.changes.lock().clone())
}

#[test]
fn file_systems_are_created() {
    let host = Local::case("ashift12");
    let pool = host.pool.name().to_owned();
    let check = |line: &str, says: &str, asks: &[&str]| {
        let fill = |text: &str| text.replace('%', &pool);
        let (said, asked) = changes(&host, &fill(line));
        assert_eq!((said, asked), (fill(says), asks.iter().map(|text| fill(text)).collect()), "{line}");
    };
    let create = |name: &str| format!("Create {{ name: \"{name}\", properties: [] }}");
    check("create %", "cannot create '%': missing dataset name", &[]);
    check("create nope/x", "cannot create 'nope/x': no such pool 'nope'", &[]);
    check("create %/no/x", "cannot create '%/no/x': parent does not exist", &[]);
    check("create %/a*", "cannot create '%/a*': invalid character '*' in name", &[]);
    let volume = "CreateVolume { name: \"%/v\", properties: [(\"volsize\", \"1073741824\"), (\"refreservation\", \"1092616192\")] }";
    check("create -V 1G %/v", "", &[volume, "zfs create -V 1G %/v"]);
    check("create -o atime=maybe %/x", "cannot create '%/x': 'atime' must be one of 'on | off'", &[]);
    check("create -o atime %/x", "missing property=value argument for 'atime'", &[]);
    check("create -o a:b=1 -o a:b=1 %/x", "property 'a:b' specified multiple times", &[]);
    check("create -nvp %/y/x", "would create ancestors of %/y/x\nwould create %/y/x\n", &[]);
    check(
        "create -P -u -o atime=off %/x",
        "create\t%/x\nproperty\tatime\toff\n",
        &["Create { name: \"%/x\", properties: [(\"atime\", \"off\")] }", "zfs create -P -u -o atime=off %/x"],
    );
    check("create -u %/x", "", &[&create("%/x"), "zfs create -u %/x"]);
    check("create", "missing filesystem argument\nusage:\n\tcreate [-Pnpuv] [-o property=value] ... <filesystem>", &[]);
}

#[test]
fn changes_are_checked_before_they_are_made() {
    let mut host = Local::case("ashift12");
    let pool = host.pool.name().to_owned();
    let check = |host: &Local, line: &str, says: &str, asks: &[&str]| {
        let fill = |text: &str| text.replace('%', &pool);
        let (said, asked) = changes(host, &fill(line));
        assert_eq!((said, asked), (fill(says), asks.iter().map(|text| fill(text)).collect()), "{line}");
    };
    let set = "Set { name: \"%\", property: \"compression\", value: \"lz4\" }";
    check(&host, "set compression=lz4 %", "", &[set, "zfs set compression=lz4 %"]);
    let set = "Set { name: \"%\", property: \"mountpoint\", value: \"/x\" }";
    check(&host, "set -u mountpoint=/x %", "", &[set, "zfs set -u mountpoint=/x %"]);
    check(&host, "set compression=x1 nope", "cannot open 'nope': dataset does not exist", &[]);
    check(&host, "set used=1 %", "cannot set property for '%': 'used' is readonly", &[]);
    check(
        &host,
        "set % a=b",
        "invalid argument order\nusage:\n\tset [-u] <property=value> ... <filesystem|volume|snapshot> ...",
        &[],
    );
    check(&host, "inherit used %", "used property is read-only", &[]);
    check(
        &host,
        "inherit quota %",
        "'quota' property cannot be inherited\nuse 'zfs set quota=none' to clear\n\
         use 'zfs inherit -S quota' to revert to received value",
        &[],
    );
    let inherit = "Inherit { name: \"%\", property: \"atime\", received: false }";
    check(&host, "inherit atime %", "", &[inherit, "zfs inherit atime %"]);
    check(
        &host,
        "destroy %",
        "cannot destroy '%': operation does not apply to pools\n\
         use 'zfs destroy -r %' to destroy all datasets in the pool\nuse 'zpool destroy %' to destroy the pool itself",
        &[],
    );
    let none = "could not find any snapshots to destroy; check snapshot names.";
    check(&host, "destroy %@nosuch,%no%such", none, &[]);
    check(&host, "destroy -d %#b", "defer destroy is not supported with bookmark", &[]);
    check(&host, "rollback %@nosuch", "cannot open '%@nosuch': dataset does not exist", &[]);
    check(&host, "rename %@a other@b", "cannot rename to 'other@b': snapshots must be part of same dataset", &[]);
    let take = "Take { names: [\"%@new\"], properties: [(\"a:b\", \"c\")] }";
    check(&host, "snap -o a:b=c %@new", "", &[take, "zfs snapshot -o a:b=c %@new"]);
    let usage = "usage:\n\tsnapshot [-r] [-o property=value] ... <filesystem|volume>@<snap> ...\n";
    check(&host, "snapshot %", usage, &[]);
    check(&host, "hold keep %", "'%' is not a snapshot", &[]);
    check(&host, "promote %", "cannot promote '%': not a cloned filesystem", &[]);
    let bad = "cannot create snapshot '%@a/b': invalid character '/' in name";
    check(&host, "snapshot %@a/b", bad, &[]);
    check(&host, "rename %/x %/y", "cannot open '%/x': dataset does not exist", &[]);
    check(
        &host,
        "rename -pu %/x %/y",
        "-u and -p options are mutually exclusive\nusage:\n\
         \trename [-f] <filesystem|volume|snapshot> <filesystem|volume|snapshot>",
        &[],
    );
    host.refusal = Some(Kind::ReadOnly);
    check(&host, "set atime=on %", "cannot set property for '%': pool is read-only", &[]);
    check(&host, "create %/x", "cannot create '%/x': pool is read-only", &[]);
}
