//! `zfs diff` as a user meets it.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::process::Command;

use super::snapshots::Fresh;

fn run(line: &str, folder: &Path) {
    let done = Command::new("sh").args(["-ec", line]).current_dir(folder).output().unwrap();
    assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
}

/// What a command says; the folder of the test is left out.
fn said(fresh: &Fresh, line: &str) -> (String, i32) {
    let (text, code) = fresh.world.zfs(line);
    (text.replace(fresh.world.dir.to_str().unwrap(), "DIR"), code)
}

#[test]
fn what_differs_is_told_by_path() {
    let fresh = Fresh::new("diff");
    let point = fresh.world.dir.join("mnt");
    fresh.does(&format!("set mountpoint={} fresh/a", point.display()));
    run("mkdir dir gone; echo 1 >same; echo 1 >dir/changed; echo 1 >old; echo 1 >linked; echo 1 >gone/file", &point);
    run("echo 1 >two; ln two dir/two; echo 1 >dir/moved; echo 1 >open", &point);
    fresh.does("snapshot fresh/a@one");
    assert_eq!(said(&fresh, "diff fresh/a@one"), (String::new(), 0));

    run("echo 2 >>dir/changed; mv old new; ln linked 'dir/another one'; rm -r gone; rm dir/two", &point);
    run("mv dir/moved .; echo 1 >created; ln -s to link; mkfifo pipe; mkdir -p deep/down", &point);
    let rows = "M\t/\tDIR/mnt/\n\
                M\t/\tDIR/mnt/dir\n\
                -\t/\tDIR/mnt/gone\n\
                M\tF\tDIR/mnt/dir/changed\n\
                R\tF\tDIR/mnt/old -> DIR/mnt/new\n\
                M\tF\tDIR/mnt/linked\t(+1)\n\
                -\tF\tDIR/mnt/gone/file\n\
                M\tF\tDIR/mnt/dir/two\t(-1)\n\
                R\tF\tDIR/mnt/dir/moved -> DIR/mnt/moved\n\
                +\tF\tDIR/mnt/created\n\
                +\t@\tDIR/mnt/link\n\
                +\t|\tDIR/mnt/pipe\n\
                +\t/\tDIR/mnt/deep\n\
                +\t/\tDIR/mnt/deep/down\n";
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let (text, code) = said(&fresh, "diff -F fresh/a@one");
    assert_eq!((sorted(&text), code), (sorted(rows), 0), "{text}");
    // what was taken for it is gone, and another time it is the same
    fresh.says("list -Hr -t snapshot -o name fresh", "fresh/a@one\n");
    assert_eq!(said(&fresh, "diff -F @one fresh/a"), (text.clone(), 0));
    fresh.does("snapshot fresh/a@two");
    assert_eq!(said(&fresh, "diff -F fresh/a@one fresh/a@two"), (text.clone(), 0));
    assert_eq!(said(&fresh, "diff -F fresh/a@one @two"), (text, 0));
    assert_eq!(said(&fresh, "diff fresh/a@two"), (String::new(), 0));

    let (text, _) = said(&fresh, "diff -H fresh/a@one @two");
    assert!(text.contains("R\tDIR/mnt/old\tDIR/mnt/new\n"), "{text}");
    let (text, _) = said(&fresh, "diff -t fresh/a@one @two");
    for line in text.lines() {
        let (seconds, rest) = line.trim_start().split_once('.').unwrap();
        assert!(seconds.parse::<u64>().unwrap() > 1_500_000_000 && rest.as_bytes()[9] == b'\t', "{line}");
    }

    fs::write(point.join("a b\\\u{e4}"), "").unwrap();
    let (text, _) = said(&fresh, "diff fresh/a@two");
    assert!(text.contains("+\tDIR/mnt/a\\0040b\\0134\\0303\\0244\n"), "{text}");
    let (text, _) = said(&fresh, "diff -h fresh/a@two");
    assert!(text.contains("+\tDIR/mnt/a b\\\u{e4}\n"), "{text}");
    assert!(fs::metadata(point.join("pipe")).unwrap().file_type().is_fifo());
    fresh.judge();
}

/// Many files of one directory, whose names are read once and not for each of them.
#[test]
fn many_files_of_a_directory() {
    let fresh = Fresh::new("diffmany");
    let point = fresh.world.dir.join("mnt");
    fresh.does(&format!("set mountpoint={} fresh/a", point.display()));
    fs::create_dir(point.join("dir")).unwrap();
    let files: Vec<_> = (0..8000).map(|i| point.join(format!("dir/file{i}"))).collect();
    files.iter().for_each(|file| fs::write(file, "").unwrap());
    fresh.does("snapshot fresh/a@one");
    files.iter().for_each(|file| fs::write(file, "changed").unwrap());
    let began = std::time::Instant::now();
    let (text, code) = said(&fresh, "diff fresh/a@one");
    let took = began.elapsed();
    let mut changed: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("M\tDIR/mnt/dir/file")).collect();
    changed.sort_unstable();
    changed.dedup();
    assert_eq!((changed.len(), code), (files.len(), 0));
    assert!(took.as_secs() < 20, "{took:?}");
}

#[test]
fn what_cannot_be_compared() {
    let fresh = Fresh::new("diffs");
    let point = fresh.world.dir.join("mnt");
    fresh.does("snapshot fresh/c@x");
    fresh.does("snapshot fresh/a@one");
    let unmounted = "Cannot diff an unmounted snapshot: operation not applicable to datasets of this type\n";
    fresh.fails("diff fresh/a@one", unmounted);
    fresh.does(&format!("set mountpoint={} fresh/a", point.display()));
    fresh.does("snapshot fresh/a@two");
    let earlier = "Unable to obtain diffs: \n   Not an earlier snapshot from the same fs\n";
    fresh.fails("diff fresh/a@two fresh/a@one", earlier);
    fresh.fails("diff fresh/a@one fresh/a@one", earlier);
    fresh.fails("diff fresh/c@x fresh/a", "Not an earlier snapshot from the same fs: invalid name\n");
    fresh.fails("diff fresh/a@none", "Unable to obtain diffs: No such file or directory\n");
    fresh.fails("diff fresh/a", "Badly formed snapshot name fresh/a: missing '@' delimiter in snapshot name\n");
    fresh.fails("diff fresh/a fresh/a@one", "Unable to determine which snapshots to compare: invalid name\n");
    fresh.fails("diff fresh/none@one", "cannot open 'fresh/none': dataset does not exist\n");
    assert_eq!(fresh.world.zfs("diff").1, 2);
    assert_eq!(fresh.world.zfs("diff @one").1, 2);

    // a clone, with what it was made of
    fresh.does(&format!("clone -o mountpoint={}2 fresh/a@one fresh/clone", point.display()));
    symlink("to", fresh.world.dir.join("mnt2/link")).unwrap();
    let (text, code) = said(&fresh, "diff -H fresh/a@one fresh/clone");
    assert_eq!((text.as_str(), code), ("M\tDIR/mnt2/\n+\tDIR/mnt2/link\n", 0));
    fresh.fails("diff fresh/a@two fresh/clone", earlier);
    fresh.judge();
}
