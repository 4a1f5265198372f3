//! Snapshots as a user meets them: taken, listed, held, destroyed, cloned, promoted. Then zdb judges the pool, if it is
//! there.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use super::{World, can_mount};

pub(super) struct Fresh {
    pub(super) world: World,
}

impl Fresh {
    pub(super) fn new(name: &str) -> Fresh {
        let world = World::new(name, &[]);
        std::fs::File::create(world.dir.join("a")).unwrap().set_len(256 << 20).unwrap();
        world.check("create -O mountpoint=none -O compression=off fresh DIR/a", 0, "");
        for name in ["fresh/a", "fresh/a/b", "fresh/c"] {
            assert_eq!(world.zfs(&format!("create {name}")), (String::new(), 0));
        }
        Fresh { world }
    }

    /// A command that says nothing and succeeds.
    pub(super) fn does(&self, line: &str) {
        assert_eq!(self.world.zfs(line), (String::new(), 0), "{line}");
    }

    pub(super) fn says(&self, line: &str, text: &str) {
        assert_eq!(self.world.zfs(line), (text.to_owned(), 0), "{line}");
    }

    pub(super) fn fails(&self, line: &str, text: &str) {
        assert_eq!(self.world.zfs(line), (text.to_owned(), 1), "{line}");
    }

    fn names(&self) -> String {
        let (text, _) = self.world.zfs("list -Hr -t snapshot,bookmark -o name fresh");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Exports the pool, and lets zdb look at all of it.
    pub(super) fn judge(self) {
        self.world.check("export fresh", 0, "");
        let zdb = |args: &[&str]| {
            let output = Command::new("zdb").args(["-e", "-p"]).arg(&self.world.dir).args(args).arg("fresh").output();
            let output = output.ok()?;
            let text = [&output.stdout[..], &output.stderr].concat();
            Some((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
        };
        if let Some((is_well, text)) = zdb(&["-bcc"]) {
            assert!(is_well && text.contains("No leaks"), "{text}");
            let (is_well, text) = zdb(&["-dddd"]).unwrap();
            assert!(is_well && !text.contains("ERROR"), "{text}");
        }
    }
}

#[test]
fn snapshots_come_and_go() {
    let fresh = Fresh::new("come");
    fresh.does("snapshot fresh/a@one");
    fresh.does("snap -r -o com.me:why=because fresh@two");
    assert_eq!(fresh.names(), "fresh@two fresh/a@one fresh/a@two fresh/a/b@two fresh/c@two");
    fresh.says("get -Hro value com.me:why fresh/a/b@two", "because\n");
    fresh.says("get -Hpo value written fresh/a", "0\n");
    let (changed, _) = fresh.world.zfs("get -Hpo value snapshots_changed fresh/a");
    assert!(changed.trim().parse::<u64>().unwrap() > 1_000_000_000, "{changed}");

    let twice = "cannot create snapshot 'fresh/a@one': dataset already exists\nno snapshots were created\n";
    fresh.fails("snapshot fresh/c@one fresh/a@one", twice);
    let many = "cannot create snapshots : multiple snapshots of same fs not allowed\nno snapshots were created\n";
    fresh.fails("snapshot fresh/c@x fresh/c@y", many);
    let native = "cannot create snapshots : this property can not be modified for snapshots\n";
    fresh.fails("snapshot -o atime=off fresh/c@x", native);
    assert_eq!(fresh.names(), "fresh@two fresh/a@one fresh/a@two fresh/a/b@two fresh/c@two");

    for name in ["three", "four", "five"] {
        fresh.does(&format!("snapshot -r fresh/a@{name}"));
    }
    let would = "would destroy fresh/a@two\nwould destroy fresh/a@three\nwould reclaim 0B\n";
    fresh.says("destroy -nv fresh/a@two%three", would);
    fresh.says("destroy -np fresh/a@one", "destroy\tfresh/a@one\nreclaim\t0\n");
    fresh.does("destroy -r fresh/a@two%three,five");
    assert_eq!(fresh.names(), "fresh@two fresh/a@one fresh/a@four fresh/a/b@four fresh/c@two");
    fresh.fails("destroy fresh/a@nope", "could not find any snapshots to destroy; check snapshot names.\n");
    fresh.fails(
        "destroy fresh/a/b",
        "cannot destroy 'fresh/a/b': filesystem has children\n\
         use '-r' to destroy the following datasets:\nfresh/a/b@four\n",
    );
    fresh.does("rename -r fresh/a@four fresh/a@4");
    fresh.does("rename fresh/a@one first");
    let other = "cannot rename to 'fresh/c@x': snapshots must be part of same dataset\n";
    fresh.fails("rename fresh/a@4 fresh/c@x", other);
    assert_eq!(fresh.names(), "fresh@two fresh/a@first fresh/a@4 fresh/a/b@4 fresh/c@two");

    let younger = "cannot rollback to 'fresh/a@first': more recent snapshots or bookmarks exist\n\
                   use '-r' to force deletion of the following snapshots and bookmarks:\nfresh/a@4\n";
    fresh.fails("rollback fresh/a@first", younger);
    fresh.does("rollback fresh/a@4");
    fresh.does("rollback -r fresh/a@first");
    assert_eq!(fresh.names(), "fresh@two fresh/a@first fresh/a/b@4 fresh/c@two");
    fresh.does("destroy -r fresh/a");
    assert_eq!(fresh.names(), "fresh@two fresh/c@two");
    let (history, _) = fresh.world.zfs("list -Ho name");
    assert_eq!(history, "fresh\nfresh/c\n");
    fresh.judge();
}

#[test]
fn holds_and_bookmarks() {
    let fresh = Fresh::new("holds");
    fresh.does("snapshot -r fresh@one");
    fresh.does("hold -r keep fresh/a@one");
    let again = "cannot hold snapshot 'fresh/a@one': tag already exists on this dataset\n";
    fresh.fails("hold keep fresh/a@one", again);
    fresh.says("get -Ho value userrefs fresh/a@one", "1\n");
    let held = "cannot destroy snapshot fresh/a@one: it's being held. Run 'zfs holds -r fresh/a@one' to see holders.\n";
    fresh.fails("destroy fresh/a@one", held);
    fresh.does("destroy -d fresh/a@one");
    fresh.says("get -Ho value defer_destroy fresh/a@one", "on\n");
    fresh.does("bookmark fresh/a@one #mark");
    fresh.fails("bookmark fresh/a@one fresh/a#mark", "cannot create bookmark 'fresh/a#mark': bookmark exists\n");
    fresh.does("bookmark fresh/a#mark fresh/a#copy");
    let foreign = "cannot create bookmark 'fresh/c#x': source is not an ancestor of the new bookmark's dataset\n";
    fresh.fails("bookmark fresh/a@one fresh/c#x", foreign);
    assert_eq!(fresh.names(), "fresh@one fresh/a@one fresh/a#copy fresh/a#mark fresh/a/b@one fresh/c@one");
    let absent = "cannot release hold from snapshot 'fresh/a@one': no such tag on this dataset\n";
    fresh.fails("release other fresh/a@one", absent);
    fresh.does("release -r keep fresh/a@one");
    assert_eq!(fresh.names(), "fresh@one fresh/a#copy fresh/a#mark fresh/a/b@one fresh/c@one");
    fresh.does("snapshot fresh/a@two");
    let (written, code) = fresh.world.zfs("get -Hpo value written#mark fresh/a");
    assert!(code == 0 && written.trim().parse::<u64>().is_ok(), "{written}");
    fresh.does("destroy fresh/a#mark");
    fresh.fails("destroy fresh/a#mark", "bookmark 'fresh/a#mark' does not exist.\n");
    fresh.does("destroy fresh/a@two");
    assert_eq!(fresh.names(), "fresh@one fresh/a#copy fresh/a/b@one fresh/c@one");
    fresh.judge();
}

#[test]
fn clones_grow_and_are_promoted() {
    let fresh = Fresh::new("clones");
    fresh.does("snapshot fresh/a@one");
    fresh.does("snapshot fresh/a@two");
    fresh.does("clone -o compression=lz4 fresh/a@two fresh/clone");
    fresh.fails("clone fresh/a@two fresh/clone", "cannot create 'fresh/clone': dataset already exists\n");
    fresh.fails("clone fresh/a@two fresh/no/x", "cannot create 'fresh/no/x': parent does not exist\n");
    fresh.does("clone -p fresh/a@two fresh/new/x");
    fresh.says("get -Ho value origin fresh/clone", "fresh/a@two\n");
    // in no order, as in OpenZFS
    let (clones, _) = fresh.world.zfs("get -Ho value clones fresh/a@two");
    let mut clones: Vec<&str> = clones.trim().split(',').collect();
    let cloned = "cannot destroy 'fresh/a@two': snapshot has dependent clones\n\
                  use '-R' to destroy the following datasets:\n";
    fresh.fails("destroy fresh/a@two", &format!("{cloned}{}\n", clones.join("\n")));
    clones.sort_unstable();
    assert_eq!(clones, ["fresh/clone", "fresh/new/x"]);
    fresh.fails("promote fresh/c", "cannot promote 'fresh/c': not a cloned filesystem\n");
    fresh.does("snapshot fresh/clone@one");
    let conflict = "cannot promote 'fresh/clone': conflicting snapshot 'one' from parent 'fresh/a@two'\n";
    fresh.fails("promote fresh/clone", conflict);
    fresh.does("rename fresh/clone@one @mine");
    fresh.does("promote fresh/clone");
    assert_eq!(fresh.names(), "fresh/clone@one fresh/clone@two fresh/clone@mine");
    fresh.says("get -Ho value origin fresh/a", "fresh/clone@two\n");
    fresh.says("get -Ho value origin fresh/clone", "-\n");
    fresh.says("get -Ho value origin fresh/new/x", "fresh/clone@two\n");
    fresh.does("destroy -r fresh/a");
    fresh.does("destroy -d fresh/clone@two");
    fresh.does("destroy fresh/new/x");
    assert_eq!(fresh.names(), "fresh/clone@one fresh/clone@mine");
    fresh.does("clone fresh/clone@one fresh/again");
    fresh.does("destroy -R fresh/clone@one");
    fresh.says("list -Hro name fresh", "fresh\nfresh/c\nfresh/clone\nfresh/new\n");
    fresh.judge();
}

/// A file system that is a clone of what is below it, and clones of clones, deeper than file systems can be.
#[test]
fn tangled_clones() {
    let fresh = Fresh::new("tangled");
    fresh.does("snapshot fresh/c@one");
    fresh.does("clone fresh/c@one fresh/c/inner");
    fresh.does("promote fresh/c/inner");
    for name in ["fresh/c", "fresh/c/inner"] {
        let (text, code) = fresh.world.zfs(&format!("destroy {name}"));
        assert!(code == 1 && text.contains("filesystem has children"), "{name}: {text}");
    }
    // each would have to go before the other
    assert_eq!(fresh.world.zfs("destroy -R fresh/c/inner").1, 1);
    fresh.does("promote fresh/c");
    fresh.does("destroy -r fresh/c");
    fresh.does("snapshot fresh/a@one");
    fresh.does("clone fresh/a@one fresh/1");
    for n in 1..53 {
        fresh.does(&format!("snapshot fresh/{n}@one"));
        fresh.does(&format!("clone fresh/{n}@one fresh/{}", n + 1));
    }
    fresh.does("destroy -R fresh/a");
    fresh.says("list -Hro name fresh", "fresh\n");
    fresh.judge();
}

/// Files are open and a file system is mounted below, and nothing of what is undone shows afterwards.
#[test]
fn back_while_it_is_mounted() {
    if !can_mount(file!()) {
        return;
    }
    let fresh = Fresh::new("back");
    let top = fresh.world.dir.join("mnt");
    fresh.does(&format!("set mountpoint={} fresh/a", top.display()));
    let (path, read) = (|name: &str| top.join(name), |name: &str| fs::read_to_string(top.join(name)));
    fs::write(path("kept"), "one").unwrap();
    fs::write(path("removed"), "again").unwrap();
    fs::create_dir(path("dir")).unwrap();
    fs::write(path("b/below"), "of another file system").unwrap();
    fresh.does("snapshot fresh/a@then");
    for round in 0..3 {
        fs::write(path("kept"), format!("two, and longer {round}")).unwrap();
        fs::remove_file(path("removed")).unwrap();
        fs::write(path("dir/young"), vec![7; 1 << 20]).unwrap();
        let (kept, young) = (File::open(path("kept")).unwrap(), File::open(path("dir/young")).unwrap());
        kept.sync_all().unwrap();
        assert!(read("kept").unwrap().starts_with("two") && !path("removed").exists());

        fresh.does("rollback fresh/a@then");
        assert_eq!((read("kept").unwrap(), read("removed").unwrap()), ("one".to_owned(), "again".to_owned()));
        assert_eq!(fs::read_dir(path("dir")).unwrap().count(), 0);
        assert_eq!(fs::metadata(path("dir/young")).unwrap_err().raw_os_error(), Some(libc::ENOENT));
        let mut buf = [0; 10];
        assert_eq!((kept.read_at(&mut buf, 0).unwrap(), &buf[..3]), (3, &b"one"[..]));
        assert_eq!(young.metadata().unwrap_err().raw_os_error(), Some(libc::ESTALE));
        assert!(young.read_at(&mut buf, 0).is_err());
        assert_eq!(read("b/below").unwrap(), "of another file system");
    }
    fs::write(path("after"), "it can be written").unwrap();
    fresh.judge();
}

#[test]
fn a_mount_whose_folder_went_in_a_rollback() {
    if !can_mount(file!()) {
        return;
    }
    let fresh = Fresh::new("folder");
    fresh.does(&format!("set mountpoint={} fresh/a", fresh.world.dir.join("mnt").display()));
    fresh.does("snapshot fresh/a@before");
    fresh.does("create fresh/a/late");
    fresh.does("rollback fresh/a@before");
    // the kernel ends the mount when it looks for its folder, which it may have done before it is asked to
    let (told, code) = fresh.world.zfs("unmount fresh/a/late");
    assert!(
        code == 0 || told == "cannot unmount 'fresh/a/late': not currently mounted\n",
        "unmount says '{told}', {code}"
    );
    fresh.says("get -Ho value mounted fresh/a/late", "no\n");
    fresh.does("mount fresh/a/late");
    fresh.says("get -Ho value mounted fresh/a/late", "yes\n");
    fresh.judge();
}

/// Commands that change what is mounted take turns: nothing is mounted twice, or where it does not belong.
#[test]
fn commands_at_once() {
    if !can_mount(file!()) {
        return;
    }
    let fresh = Fresh::new("at_once");
    let (world, top) = (&fresh.world, fresh.world.dir.join("mnt"));
    fresh.does(&format!("set mountpoint={} fresh/a", top.display()));
    let at_once = |lines: &[&str]| -> Vec<i32> {
        std::thread::scope(|scope| {
            let commands: Vec<_> = lines.iter().map(|line| scope.spawn(move || world.zfs(line).1)).collect();
            commands.into_iter().map(|command| command.join().unwrap()).collect()
        })
    };
    let mounts = || -> Vec<String> {
        let all = fs::read_to_string("/proc/self/mounts").unwrap();
        let places = all.lines().filter_map(|line| line.split(' ').nth(1));
        let mut below: Vec<String> =
            places.filter_map(|place| Some(place.strip_prefix(top.to_str()?)?.to_owned())).collect();
        below.sort();
        below
    };
    for round in 0..8 {
        fresh.does("unmount fresh/a/b");
        let codes = at_once(&["mount fresh/a/b"; 3]);
        assert_eq!(codes.iter().filter(|code| **code == 0).count(), 1, "round {round}: {codes:?}");
        assert_eq!(mounts(), ["", "/b"], "round {round}");
        at_once(&["create fresh/a/b/below", "rename fresh/a/b fresh/a/c"]);
        assert!(
            mounts().iter().all(|place| place.is_empty() || place.starts_with("/c")),
            "round {round}: {:?}",
            mounts()
        );
        fresh.does("snapshot fresh/a/c@then");
        at_once(&["rollback fresh/a/c@then", "destroy -r fresh/a/c"]);
        assert_eq!(mounts(), [""], "round {round}");
        fresh.does("create fresh/a/b");
    }
    fresh.judge();
}

#[test]
fn names_of_renamed_datasets() {
    let fresh = Fresh::new("renames");
    fresh.does("snapshot fresh/a@one");
    let why = "cannot open 'fresh/a@one': snapshot delimiter '@' is not expected here\n";
    for flag in ["-p", "-u"] {
        fresh.fails(&format!("rename {flag} fresh/a@one fresh/a@two"), why);
        fresh.fails(&format!("rename {flag} fresh/a@one @two"), why);
    }
    // levels: as many as are made at most, more by a rename if it is wanted, and no more of them afterwards
    let chain = |top: &str, levels: usize| format!("fresh/{top}{}", "/n".repeat(levels));
    fresh.does(&format!("create -p {}", chain("x", 48)));
    fresh.does(&format!("create -p {}", chain("y", 20)));
    let too_long = "cannot rename 'fresh/x/n': name is too long\n";
    fresh.fails(&format!("rename fresh/x/n {}/m", chain("y", 20)), too_long);
    fresh.world.tune("zfs_max_dataset_nesting", 70);
    fresh.does(&format!("rename fresh/x/n {}/m", chain("y", 20)));
    fresh.world.tune("zfs_max_dataset_nesting", 50);
    fresh.does(&format!("rename {0}/m {0}/o", chain("y", 20)));
    let why = format!("cannot rename '{}/o': name is too long\n", chain("y", 20));
    fresh.does(&format!("rename {}/o fresh/y/o", chain("y", 20)));
    fresh.does("create -p fresh/z/1/2/3");
    // all of them are there already, the pool's own as well
    for name in ["fresh/z/1/2/3", "fresh/z", "fresh"] {
        fresh.does(&format!("create -p {name}"));
    }
    fresh.fails("create fresh", "cannot create 'fresh': missing dataset name\n");
    fresh.fails("create -p none", "cannot create 'none': missing dataset name\n");
    fresh.fails("rename fresh/y/o fresh/z/1/2/3/o", &why.replace(&format!("{}/o", chain("y", 20)), "fresh/y/o"));
    fresh.judge();
}

#[test]
fn a_clone_has_the_version_of_its_snapshot_or_a_later_one() {
    let fresh = Fresh::new("versions");
    fresh.does("create -o version=3 fresh/old");
    fresh.does("snapshot fresh/old@one");
    fresh.fails(
        "clone -o version=2 fresh/old@one fresh/2",
        "cannot create 'fresh/2': 'version': the snapshot is of version 3 already\n",
    );
    for version in ["3", "4", "5"] {
        fresh.does(&format!("clone -o version={version} fresh/old@one fresh/{version}"));
        fresh.says(&format!("get -Ho value version fresh/{version}"), &format!("{version}\n"));
    }
    fresh.says(
        "list -Hr -o name,version -t filesystem fresh",
        "fresh\t5\nfresh/3\t3\nfresh/4\t4\nfresh/5\t5\nfresh/a\t5\nfresh/a/b\t5\nfresh/c\t5\nfresh/old\t3\n",
    );
    fresh.judge();
}

/// The folder that something is mounted on is not there under another root: what is mounted there comes back, and nobody
/// writes into the folder below it meanwhile.
#[test]
fn what_is_mounted_below_another_root_stays() {
    if !can_mount(file!()) {
        return;
    }
    let fresh = Fresh::new("below");
    let top = fresh.world.dir.join("top");
    fresh.does(&format!("set mountpoint={} fresh/a", top.display()));
    fresh.does("snapshot fresh/a@one");
    fresh.does("create fresh/a/late");
    fresh.does("create fresh/a/late/r");
    let device = |path: &std::path::Path| std::os::unix::fs::MetadataExt::dev(&fs::metadata(path).unwrap());
    let is_mounted =
        || device(&top.join("late/r")) != device(&top.join("late")) && device(&top.join("late")) != device(&top);
    fs::write(top.join("late/r/file"), "kept").unwrap();
    assert!(is_mounted());
    // it goes back to a state in which the folder was not there
    fresh.does("rollback fresh/a@one");
    assert!(is_mounted() && fs::read_to_string(top.join("late/r/file")).unwrap() == "kept");
    // a receive does so, too
    fresh.does("snapshot fresh/c@one");
    let whole = fresh.world.cenote("zfs send fresh/c@one").stdout;
    fresh.does("destroy fresh/a@one");
    fresh.world.receives("-F fresh/a", &whole);
    assert!(is_mounted() && fs::read_to_string(top.join("late/r/file")).unwrap() == "kept");
    // the sender has renamed a file system
    fresh.does("snapshot -r fresh/a@1");
    let package = fresh.world.cenote("zfs send -R fresh/a@1").stdout;
    fresh.world.receives("-u fresh/copy", &package);
    let copy = fresh.world.dir.join("copy");
    fresh.does(&format!("set mountpoint={} fresh/copy", copy.display()));
    let (text, code) = fresh.world.zfs("mount -a");
    assert_eq!((text.as_str(), code), ("", 0));
    fresh.does("rename fresh/a/late fresh/a/renamed");
    fresh.does("snapshot -r fresh/a@2");
    let package = fresh.world.cenote("zfs send -R -i @1 fresh/a@2").stdout;
    fresh.world.receives("-F fresh/copy", &package);
    assert_eq!(fs::read_to_string(copy.join("renamed/r/file")).unwrap(), "kept");
    assert!(device(&copy.join("renamed")) != device(&copy));
    fresh.judge();
}
