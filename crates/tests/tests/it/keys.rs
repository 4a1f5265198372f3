//! `-K` of the commands that read pools without import.

use std::io::Write;
use std::process::{Command, Stdio};

use testkit::{corpus, program};

const DATASET: &str = "t_encrypted/aes-256-gcm";

/// A case, extracted, and its keys.
struct Keyed {
    dir: tempfile::TempDir,
    case: corpus::Case,
}

/// Exit code, output, complaints.
type Told = (Option<i32>, String, String);

impl Keyed {
    fn of(case: &str) -> Keyed {
        let (case, dir) = (corpus::case(case), tempfile::tempdir().unwrap());
        case.extract(dir.path()).unwrap();
        Keyed { dir, case }
    }

    fn key(&self, root: &str) -> String {
        format!("file://{}", self.case.dir().join("keys").join(format!("{}.key", root.replace('/', "+"))).display())
    }

    /// What a command tells, `%` of whose words stands for the folder of devices.
    fn run(&self, words: &[&str], stdin: &str) -> Told {
        let dir = self.dir.path().to_str().unwrap();
        let args = words.iter().map(|word| if *word == "%" { dir } else { word });
        let mut command = Command::new(program::path());
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // one that needs no key does not read it
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        let output = child.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }
}

#[test]
fn keys_come_from_files_and_standard_input() {
    let world = Keyed::of("encrypted");
    let root = format!("{DATASET}:/");
    let line = std::fs::read_to_string(world.key(DATASET).trim_start_matches("file://")).unwrap();
    let (code, expect, complaints) = world.run(&["ls", "-K", &world.key(DATASET), "-d", "%", &root], "");
    assert_eq!((code, &*complaints), (Some(0), ""));
    assert!(expect.lines().count() > 20);
    for place in ["-", "prompt"] {
        let (code, out, complaints) = world.run(&["ls", "-K", place, "-d", "%", &root], &line);
        assert_eq!((code, &out, &*complaints), (Some(0), &expect, ""), "{place}");
    }
    // one root, asked for once
    let child = format!("{DATASET}/child:/");
    let (code, out, complaints) = world.run(&["ls", "-K", "-", "-d", "%", &root, &child], &line);
    assert_eq!((code, &*complaints), (Some(0), ""));
    assert!(out.contains(&child) && out.len() > expect.len());
    // as it was before there was anything in it but folders
    let (code, then, _) = world.run(&["ls", "-K", "-", "-d", "%", "--at-txg", "44", &root], &line);
    assert_eq!(code, Some(0));
    assert!(then.lines().count() < expect.lines().count(), "{then}");
}

#[test]
fn wrong_keys_open_nothing() {
    let world = Keyed::of("encrypted");
    let root = format!("{DATASET}:/");
    let other = world.key("t_encrypted/aes-128-ccm");
    for (place, stdin, why) in [
        ("-", "not this passphrase\n", "incorrect key"),
        ("-", "", "there is no key"),
        (&other, "", "incorrect key"),
        ("file:///nowhere/key", "", "/nowhere/key"),
        ("https://host/key", "", "not fetched"),
        ("http://host/key", "", "not fetched"),
        ("/a/path", "", "neither"),
    ] {
        for command in ["ls", "cat", "stat"] {
            let (code, out, complaints) = world.run(&[command, "-K", place, "-d", "%", &root], stdin);
            assert!(code.is_some_and(|code| code != 0) && out.is_empty(), "{command} {place}: {code:?} {out}");
            assert!(complaints.contains(why), "{command} {place}: {complaints}");
            assert!(!complaints.contains("not this"), "{complaints}");
        }
    }
    // the right one beside wrong ones
    let (code, _, complaints) = world.run(&["ls", "-K", &other, "-K", &world.key(DATASET), "-d", "%", &root], "");
    assert_eq!((code, &*complaints), (Some(0), ""));
}

#[test]
fn zdb_and_inspect_take_keys() {
    let world = Keyed::of("encrypted");
    let line = std::fs::read_to_string(world.key(DATASET).trim_start_matches("file://")).unwrap();
    for key in [line.trim_end(), &world.key(DATASET)] {
        let (code, out, _) = world.run(&["zdb", "-e", "-p", "%", "-K", key, "-dddd", DATASET, "34"], "");
        assert!(code == Some(0) && out.contains("microzap") && !out.contains("encrypted)"), "{out}");
    }
    let (code, out, _) = world.run(&["zdb", "-e", "-p", "%", "-dddd", DATASET, "34"], "");
    assert!(code == Some(0) && out.contains("(object encrypted)"), "{out}");
    let (code, _, complaints) = world.run(&["zdb", "-e", "-p", "%", "-K", "not this one", "-dddd", DATASET, "34"], "");
    assert!(code == Some(1) && complaints.contains("incorrect key"), "{complaints}");
    let (code, out, _) = world.run(&["inspect", "objects", "-K", &world.key(DATASET), "-d", "%", DATASET, "34"], "");
    assert!(code == Some(0) && out.contains("microzap"), "{out}");

    let world = Keyed::of("zilcrypt");
    let key = world.key("t_zilcrypt");
    let (code, out, _) = world.run(&["inspect", "log", "-K", &key, "-d", "%", "t_zilcrypt/fs"], "");
    assert!(code == Some(0) && out.contains("write object") && !out.contains(", encrypted"), "{out}");
    let (code, out, _) = world.run(&["inspect", "log", "-d", "%", "t_zilcrypt/fs"], "");
    assert!(code == Some(0) && out.contains(", encrypted"), "{out}");
}
