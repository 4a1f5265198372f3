//! Every file system and snapshot of every pool of the corpus, mounted, and described through the
//! mount by the program that described it for the corpus.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use base::{Env, Kind, Result};
use dmu::Mode;
use dsl::{Property, PropertyValue};
use fuse::{DatasetSpace, MountOptions, SnapDir, Snapshot, Source};
use pool::Pool;
use serde_json::{Map, Value};
use testkit::corpus::{Case, as_devices, cases};
use testkit::manifest::Manifest;
use testkit::survey;
use zpl::Zpl;

use crate::harness::{Dir, mount, require, unmount};

/// Low bits of an inode number that are the object's number.
const OBJECT_MASK: u64 = (1 << 48) - 1;

/// A file system of a pool, as the pool process would hand it to the adapter.
struct FileSystem {
    pool: Arc<Pool>,
    live: Arc<Zpl>,
    snapshots: Vec<dsl::Dataset>,
}

impl FileSystem {
    fn open(pool: &Arc<Pool>, name: &str) -> Result<FileSystem> {
        let dataset = pool.dsl().find(name)?;
        let live = Arc::new(Zpl::open(pool.dsl().objset(&dataset, Mode::Plain)?)?);
        Ok(FileSystem { pool: pool.clone(), live, snapshots: pool.dsl().snapshots(&dataset)? })
    }
}

impl Source for FileSystem {
    type Tree = Zpl;

    fn tree(&self) -> Arc<Zpl> {
        self.live.clone()
    }

    fn space(&self) -> Result<DatasetSpace> {
        Ok(DatasetSpace::default())
    }

    fn snapshots(&self) -> Result<Vec<Snapshot>> {
        let snapshot = |dataset: &dsl::Dataset| Snapshot {
            name: dataset.name.split_once('@').expect("snapshots have a name").1.to_owned(),
            dataset: dataset.id.object(),
            created_s: dataset.phys.creation_time_s,
        };
        Ok(self.snapshots.iter().map(snapshot).collect())
    }

    fn open_snapshot(&self, snapshot: &Snapshot) -> Result<Arc<Zpl>> {
        let dataset =
            self.snapshots.iter().find(|dataset| dataset.id.object() == snapshot.dataset).expect("it was listed");
        Ok(Arc::new(Zpl::open(self.pool.dsl().objset(dataset, Mode::Plain)?)?))
    }
}

/// The name of a property's value, of those that are a choice from a list.
fn choice(pool: &Pool, dataset: &str, property: Property) -> String {
    let subject = pool.dsl().subject(dataset).unwrap();
    match pool.dsl().property(&subject, property, 0).unwrap().map(|sourced| sourced.value) {
        Some(PropertyValue::Number(number)) => property.name_of(number).unwrap_or("unknown").to_owned(),
        Some(PropertyValue::Text(text)) => text,
        None => "none".to_owned(),
    }
}

/// What the corpus's own program says of a folder, one object a line.
fn describe(dir: &Path) -> String {
    let program = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/oracle/manifest.pl");
    let output = Command::new("perl").arg(program).arg(dir).output().expect("perl is there");
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaints.is_empty(), "{}: {complaints}", dir.display());
    String::from_utf8(output.stdout).unwrap()
}

/// Reads a manifest, each file as `adapt` leaves it.
fn manifest(text: &str, adapt: impl Fn(&str, &mut Map<String, Value>)) -> Manifest {
    let adapted = text.lines().map(|line| {
        let mut file: Map<String, Value> = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let path = file["path"].as_str().unwrap().to_owned();
        adapt(&path, &mut file);
        (path, Value::Object(file).to_string() + "\n")
    });
    // where OpenZFS keeps rights to SMB shares
    let lines = adapted.filter(|(path, _)| path != ".zfs/shares").map(|(_, line)| line);
    Manifest::parse(&lines.collect::<String>()).unwrap()
}

/// Is that of a file the same here as in OpenZFS? FUSE has no birth times, and of the directories of
/// `.zfs` only their numbers and modes are.
fn is_compared(path: &str, key: &str) -> bool {
    match path {
        ".zfs" | ".zfs/snapshot" => ["path", "type", "ino", "mode", "uid", "gid"].contains(&key),
        _ => key != "btime",
    }
}

/// Differences between a manifest and what was found.
fn differences(case: &Case, expect: &str, found: &str) -> Option<String> {
    let expect = manifest(expect, |path, file| file.retain(|key, _| is_compared(path, key)));
    let bare: HashSet<String> = match case.maker.as_str() {
        "openzfs" => HashSet::new(),
        // others do not tell of all attributes
        _ => expect.files().filter(|(_, file)| !file.contains_key("xattrs")).map(|(_, file)| name_of(file)).collect(),
    };
    let found = manifest(found, |path, file| {
        // without the snapshot; OpenZFS has each on a device of its own
        let ino = file["ino"].as_u64().unwrap();
        file["ino"] = Value::from(ino & OBJECT_MASK);
        if bare.contains(path) {
            file.remove("xattrs");
        }
    });
    expect.differences(&found)
}

fn name_of(file: &Map<String, Value>) -> String {
    file["path"].as_str().unwrap().to_owned()
}

/// Checks one file system and its snapshots; how many manifests matched.
fn check(case: &Case, pool: &Arc<Pool>, name: &str, manifests: &BTreeMap<String, String>) -> usize {
    let source = match FileSystem::open(pool, name) {
        Ok(source) => source,
        Err(error) => {
            assert_eq!(error.kind(), Kind::Encrypted, "{error}");
            assert!(error.to_string().starts_with(name), "{error}");
            return 0;
        }
    };
    let dir = Dir::new();
    let mut options = MountOptions::new(name, &dir.0);
    options.posix_acl = choice(pool, name, Property::Acltype).starts_with("posix");
    if choice(pool, name, Property::Snapdir) == "visible" {
        options.snapdir = SnapDir::Visible;
    }
    let mount = mount(Arc::new(source), &options).unwrap();
    for (dataset, manifest) in manifests {
        let found = match dataset.split_once('@') {
            None => describe(&dir.0),
            Some((_, snapshot)) => describe(&dir.0.join(".zfs/snapshot").join(snapshot)),
        };
        if let Some(differences) = differences(case, manifest, &found) {
            panic!("{} {dataset}:\n{differences}", case.name);
        }
    }
    unmount(&mount);
    manifests.len()
}

#[test]
fn every_file_of_the_corpus() {
    require!(root);
    let only = std::env::var("CENOTE_TEST_CASE").ok();
    let mut checked = 0;
    for case in cases().iter().filter(|case| only.as_ref().is_none_or(|only| case.name == *only)) {
        let pool = Arc::new(survey::open(&as_devices(&case.load()), &Env::real()).unwrap());
        let mut file_systems: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        for (dataset, manifest) in case.manifests(".jsonl") {
            let file_system = dataset.split('@').next().unwrap().to_owned();
            file_systems.entry(file_system).or_default().insert(dataset, manifest);
        }
        for (name, manifests) in &file_systems {
            checked += check(case, &pool, name, manifests);
        }
    }
    eprintln!("{checked} file systems and snapshots match their manifests");
    assert!(only.is_some() || checked > 200, "{checked}");
}
