//! Packages of whole trees that come again and again, as those that keep copies of a tree receive them.

use super::snapshots::Fresh;

impl Fresh {
    fn package(&self, line: &str) -> Vec<u8> {
        let output = self.world.cenote(&format!("zfs send {line}"));
        assert!(output.status.success(), "{line}: {output:?}");
        output.stdout
    }

    /// Names below a dataset, without it.
    fn tree(&self, top: &str) -> String {
        let (text, _) = self.world.zfs(&format!("list -Hr -t all -o name {top}"));
        text.lines().map(|name| &name[top.len()..]).filter(|name| !name.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

/// What the command line says of properties goes to all datasets of a package, and what was received is kept.
#[test]
fn properties_of_a_package_are_overridden() {
    let fresh = Fresh::new("overridden");
    fresh.does("snapshot -r fresh/a@one");
    fresh.world.receives("-u fresh/r", &fresh.package("-R fresh/a@one"));
    fresh.does("set compression=gzip fresh/r");
    fresh.does("set u:local=here fresh/r");
    for line in ["copies=3", "compression=lz4", "u:top=new", "u:local=there", "quota=30M"] {
        fresh.does(&format!("set {line} fresh/a"));
    }
    fresh.does("set u:top=below fresh/a/b");
    fresh.does("set atime=on fresh/a/b");
    fresh.does("set u:snap=first fresh/a@one");
    fresh.does("snapshot -r fresh/a@two");
    fresh.does("set u:snap=second fresh/a/b@two");
    let package = fresh.package("-R -I fresh/a@one fresh/a@two");
    let options = "-x copies -x compression -x u:top -x u:local -x quota -o atime=off -o u:set=given";
    fresh.world.receives(&format!("-F {options} fresh/r"), &package);
    for (dataset, list) in [
        (
            "fresh/r",
            "copies 1 3 default, compression gzip lz4 local, u:top - new -, u:local here there local, quota 0 - default, \
             atime off - local, u:set given - local",
        ),
        (
            "fresh/r/b",
            "copies 1 - default, compression gzip - inherited from fresh/r, u:top - below -, \
             atime off on inherited from fresh/r, u:set given - inherited from fresh/r",
        ),
        ("fresh/r@one", "u:snap first first received"),
        ("fresh/r/b@two", "u:snap second second received"),
        ("fresh/r/b@one", "u:snap - - -"),
    ] {
        for one in list.split(", ") {
            let (name, rest) = one.split_once(' ').unwrap();
            let said = fresh.world.zfs(&format!("get -Hpo value,received,source {name} {dataset}")).0;
            assert_eq!(said.trim_end().split('\t').collect::<Vec<_>>().join(" "), rest, "{name} of {dataset}");
        }
    }
    // a volume has no atime: a stream of one is refused, in a package that does not count
    fresh.does("create -V 1M fresh/c/vol");
    fresh.does("snapshot -r fresh/c@one");
    let volume = fresh.package("fresh/c/vol@one");
    let misplaced = "cannot receive new filesystem stream: property 'atime' does not apply to datasets of this type\n";
    assert_eq!(fresh.world.zfs_with("receive -o atime=off fresh/v", &volume), (misplaced.to_owned(), 1));
    let warning = "Warning: fresh/v: property 'atime' does not apply to datasets of this type\n";
    assert_eq!(fresh.world.zfs_with("receive -x atime fresh/v", &volume), (warning.to_owned(), 0));
    // as much as the volume asks for, as a new one has it
    fresh.world.receives("-o refreservation=auto fresh/reserved", &volume);
    let reserved = |name: &str| fresh.world.zfs(&format!("get -Hpo value refreservation {name}")).0;
    assert!(reserved("fresh/v") == "0\n" && reserved("fresh/reserved") == reserved("fresh/c/vol"));
    fresh.world.receives("-o atime=off fresh/w", &fresh.package("-R fresh/c@one"));
    fresh.says("get -Ho value,source atime fresh/w", "off\tlocal\n");
    fresh.judge();
}

/// What the sender has renamed, promoted and destroyed.
#[test]
fn trees_follow_their_sender() {
    let fresh = Fresh::new("followed");
    for name in ["x", "y", "deep", "deep/er", "gone"] {
        fresh.does(&format!("create fresh/a/{name}"));
    }
    fresh.does("snapshot fresh/a/gone@origin");
    fresh.does("clone fresh/a/gone@origin fresh/a/clone");
    fresh.does("snapshot fresh/a/b@early");
    fresh.does("snapshot fresh/a/b@origin");
    fresh.does("clone fresh/a/b@origin fresh/a/late");
    fresh.does("snapshot -r fresh/a@one");
    fresh.world.receives("-u fresh/r", &fresh.package("-R fresh/a@one"));
    assert_eq!(fresh.tree("fresh/r"), fresh.tree("fresh/a"));
    fresh.does("create fresh/r/here-only");

    // two change their names; one goes below what is new; a snapshot goes with its clone; a clone becomes the origin
    fresh.does("create fresh/a/above");
    for (from, to) in [("x", "z"), ("y", "x"), ("z", "y"), ("deep", "above/deep")] {
        fresh.does(&format!("rename fresh/a/{from} fresh/a/{to}"));
    }
    fresh.does("rename fresh/a/b@early fresh/a/b@earlier");
    fresh.does("destroy -R fresh/a/gone@origin");
    fresh.does("destroy -r fresh/a/gone");
    fresh.does("promote fresh/a/late");
    fresh.does("snapshot -r fresh/a@two");
    let package = fresh.package("-R -I fresh/a@one fresh/a@two");
    fresh.world.receives("-uF fresh/r", &package);
    assert_eq!(fresh.tree("fresh/r"), fresh.tree("fresh/a"));
    fresh.says("get -Ho value origin fresh/r/b", "fresh/r/late@origin\n");
    let guids = |top: &str| fresh.world.zfs(&format!("get -Hpr -t snapshot -o value guid {top}")).0;
    assert_eq!(guids("fresh/r"), guids("fresh/a"));

    // what is held here stays, which is said; all else comes
    fresh.does("hold keep fresh/r@one");
    fresh.does("destroy fresh/a@one");
    fresh.does("snapshot -r fresh/a@three");
    let package = fresh.package("-R -I fresh/a@two fresh/a@three");
    let held = "cannot receive: cannot destroy 'fresh/r@one': dataset is busy\n";
    assert_eq!(fresh.world.zfs_with("receive -uF fresh/r", &package), (held.to_owned(), 1));
    fresh.says("list -Ho name fresh/r/above/deep/er@three", "fresh/r/above/deep/er@three\n");
    fresh.judge();
}

impl Fresh {
    /// Snapshots and origins below a dataset, as its copy must have them, too.
    fn origins(&self, top: &str) -> String {
        let (text, _) = self.world.zfs(&format!("get -Hpr -t all -o name,value guid,origin {top}"));
        let is_telling = |line: &&str| line.contains(['@', '-']);
        let mut lines: Vec<String> = text.lines().filter(is_telling).map(|line| line.replace(top, "")).collect();
        lines.sort();
        lines.join("\n")
    }

    /// Sends all that has come since a snapshot, and compares what there is then.
    fn follows(&self, flags: &str, from: &str, to: &str) {
        self.does(&format!("snapshot -r fresh/a@{to}"));
        let package = self.package(&format!("-R -I @{from} fresh/a@{to}"));
        self.world.receives(&format!("{flags} fresh/r"), &package);
        assert_eq!(self.origins("fresh/r"), self.origins("fresh/a"));
    }
}

/// Snapshots that a promoted clone has taken along are looked for there, and what they were taken of stays.
#[test]
fn what_was_promoted_is_destroyed_nowhere() {
    let fresh = Fresh::new("promoted");
    fresh.does("snapshot fresh/a/b@1");
    fresh.does("snapshot fresh/a/b@2");
    fresh.does("clone fresh/a/b@1 fresh/a/aclone");
    fresh.does("snapshot fresh/a/aclone@own");
    fresh.does("clone fresh/a/aclone@own fresh/a/second");
    fresh.does("snapshot -r fresh/a@3");
    fresh.world.receives("-u fresh/r", &fresh.package("-R fresh/a@3"));
    fresh.does("promote fresh/a/aclone");
    fresh.follows("-uF", "3", "4");
    // a clone of a clone is promoted as often as the sender did it, and then its first origin is destroyed
    fresh.does("promote fresh/a/b");
    fresh.does("promote fresh/a/second");
    fresh.does("promote fresh/a/second");
    fresh.follows("-u", "4", "5");
    fresh.does("rename fresh/a/b fresh/a/z");
    fresh.does("rename fresh/a/second fresh/a/b");
    fresh.does("promote fresh/a/z");
    fresh.follows("-uF", "5", "6");
    fresh.judge();
}

/// Datasets that take each other's places, also below what is new, end where the sender has them.
#[test]
fn places_are_taken_in_turn() {
    let fresh = Fresh::new("turn");
    for name in ["x", "x/below", "y", "y/below", "p", "p/q"] {
        fresh.does(&format!("create fresh/a/{name}"));
    }
    fresh.does("snapshot fresh/a/x@origin");
    fresh.does("clone fresh/a/x@origin fresh/a/p/clone");
    fresh.does("snapshot -r fresh/a@1");
    fresh.world.receives("-u fresh/r", &fresh.package("-R fresh/a@1"));
    let renames = |list: &str| {
        for (from, to) in list.split(", ").filter_map(|one| one.split_once(' ')) {
            fresh.does(&format!("rename fresh/a/{from} fresh/a/{to}"));
        }
    };
    // one goes below what is new, and another one comes after it
    fresh.does("create fresh/a/new");
    renames("y new/z, x y");
    fresh.follows("-u", "1", "2");
    // a clone changes places with one that has others below it
    renames("p/clone t, y p/clone, t y");
    fresh.follows("-uF", "2", "3");
    // a child is where its parent was, with what was beside it; another parent goes below its child
    renames("p/q t, p/clone t/p, p old, t p");
    fresh.does("create fresh/a/new/below");
    renames("new/z/below t, new/z t/z, new/below t/new");
    fresh.does("destroy -r fresh/a/new");
    renames("t new");
    fresh.follows("-uF", "3", "4");
    // what is new is where its own child was, and the child is in it
    renames("p t");
    fresh.does("create fresh/a/p");
    renames("t p/p");
    fresh.follows("-uF", "4", "5");
    // that is destroyed and made anew around what was in it
    renames("p/p t");
    fresh.does("destroy -r fresh/a/p");
    fresh.does("create fresh/a/p");
    renames("t p/p");
    fresh.follows("-uF", "5", "6");
    fresh.judge();
}

/// What goes below what is new is mounted in it, and a whole tree is mounted from above.
#[test]
fn mounts_go_along_with_a_tree() {
    let fresh = Fresh::new("along");
    let (point, copy) = (fresh.world.dir.join("mnt"), fresh.world.dir.join("copy"));
    let flags = format!("-F -o mountpoint={}", copy.display());
    fresh.does(&format!("set mountpoint={} fresh/a", point.display()));
    std::fs::write(point.join("b/file"), "below").unwrap();
    fresh.does("snapshot -r fresh/a@1");
    fresh.world.receives(&format!("-u {flags} fresh/r"), &fresh.package("-R fresh/a@1"));
    assert!(!copy.exists());
    let read = |name: &str| std::fs::read_to_string(copy.join(name)).unwrap_or_default();
    // what was not mounted is, before what is new in it
    fresh.does("create fresh/a/x");
    std::fs::write(point.join("x/file"), "new").unwrap();
    fresh.follows(&flags, "1", "2");
    assert_eq!((read("b/file"), read("x/file")), ("below".to_owned(), "new".to_owned()));
    fresh.does("create fresh/a/new");
    fresh.does("rename fresh/a/b fresh/a/new/b");
    fresh.follows(&flags, "2", "3");
    assert_eq!((read("new/b/file"), read("b/file")), ("below".to_owned(), String::new()));
    // what was mounted is again, what was not is not
    fresh.does("unmount fresh/r/x");
    fresh.does("rename fresh/a/new/b fresh/a/b");
    fresh.does("rename fresh/a/x fresh/a/new/x");
    fresh.follows(&format!("-u {flags}"), "3", "4");
    assert_eq!((read("b/file"), read("new/x/file")), ("below".to_owned(), String::new()));
    fresh.judge();
}

/// What is mounted where another one is mounted then goes on top of it; what is in use cannot, and is not lost for that.
#[test]
fn mounts_that_are_hidden_are_mounted() {
    let fresh = Fresh::new("hidden");
    let point = fresh.world.dir.join("mnt");
    fresh.does(&format!("set mountpoint={} fresh/a", point.display()));
    std::fs::write(point.join("b/file"), "below").unwrap();
    let read = || std::fs::read_to_string(point.join("b/file")).unwrap_or_default();
    let is_mounted = |name: &str| fresh.world.zfs(&format!("get -Ho value mounted {name}")).0 == "yes\n";
    fresh.does("unmount fresh/a");
    fresh.does("mount fresh/a/b");
    fresh.does("mount fresh/a");
    assert_eq!(read(), "below");
    fresh.does("unmount fresh/a");
    fresh.does("mount fresh/a/b");
    let file = std::fs::File::open(point.join("b/file")).unwrap();
    fresh.does("mount -a");
    assert!(read().is_empty() && is_mounted("fresh/a") && is_mounted("fresh/a/b"));
    drop(file);
    fresh.fails("rename fresh/a/b fresh/a/c", "cannot unmount 'DIR/mnt/b': pool or dataset is busy\n");
    // it does not keep a receive from being done
    fresh.does("snapshot -r fresh/a@1");
    fresh.world.receives("-u fresh/a/r", &fresh.package("fresh/a/b@1"));
    assert!(read().is_empty() && is_mounted("fresh/a/b"));
    fresh.does("unmount fresh/a");
    assert!(!is_mounted("fresh/a/b"));
    fresh.does("mount -a");
    fresh.does("rename fresh/a/b fresh/a/c");
    assert_eq!(std::fs::read_to_string(point.join("c/file")).unwrap(), "below");
    fresh.judge();
}

/// A snapshot that is there already is passed over, in a package and by itself; a whole dataset is not.
#[test]
fn what_came_already_is_passed_over() {
    let fresh = Fresh::new("passed");
    ["1", "2", "3"].iter().for_each(|own| fresh.does(&format!("snapshot fresh/a@{own}")));
    let (whole, next) = (fresh.package("fresh/a@1"), fresh.package("-i @1 fresh/a@2"));
    fresh.world.receives("-u fresh/r", &whole);
    fresh.world.receives("-u fresh/r", &next);
    fresh.world.receives("-u fresh/r", &next);
    let (text, code) = fresh.world.zfs_with("receive -uv fresh/r", &fresh.package("-I @1 fresh/a@3"));
    let (rates, told): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with("received "));
    let lines = [
        "receiving incremental stream of fresh/a@2 into fresh/r@2",
        "snap fresh/r@2 already exists; ignoring",
        "receiving incremental stream of fresh/a@3 into fresh/r@3",
    ];
    assert!(code == 0 && told == lines && rates.len() == 2 && rates[0].starts_with("received 0B stream"), "{text}");
    let there = "cannot receive new filesystem stream: destination 'fresh/r' exists\nmust specify -F to overwrite it\n";
    for stream in [whole, fresh.package("-p fresh/a@1")] {
        assert_eq!(fresh.world.zfs_with("receive -u fresh/r", &stream), (there.to_owned(), 1));
    }
    fresh.judge();
}

/// File systems that are mounted below each other are mounted by an import that cannot make their folders.
#[test]
fn folders_are_there_for_the_next_import() {
    let fresh = Fresh::new("folders");
    let (point, other) = (fresh.world.dir.join("mnt"), fresh.world.dir.join("other"));
    fresh.does(&format!("set mountpoint={} fresh/a", point.display()));
    fresh.does(&format!("set mountpoint={} fresh/c", other.display()));
    std::fs::write(point.join("b/file"), "below").unwrap();
    fresh.world.check("export fresh", 0, "");
    assert!(!point.exists() && !other.exists());
    fresh.world.check("import -o readonly=on -d DIR fresh", 0, "");
    assert_eq!(std::fs::read_to_string(point.join("b/file")).unwrap(), "below");
    fresh.world.check("export fresh", 0, "");
    fresh.world.check("import -d DIR fresh", 0, "");
    fresh.does("destroy fresh/a/b");
    fresh.judge();
}

/// A stream of many batches has all of its blocks in order, and one that nobody reads any more says so.
#[test]
fn streams_are_read_ahead() {
    let fresh = Fresh::new("ahead");
    let (point, copy) = (fresh.world.dir.join("mnt"), fresh.world.dir.join("copy"));
    fresh.does(&format!("set mountpoint={} fresh/a", point.display()));
    let mut file = Vec::new();
    while file.len() < 40 << 20 {
        file.extend((file.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
    std::fs::write(point.join("large"), &file).unwrap();
    for n in 0..600 {
        std::fs::write(point.join(format!("small{n}")), &file[n..n + 5000]).unwrap();
    }
    fresh.does("snapshot fresh/a@one");
    fresh.world.receives(&format!("-o mountpoint={} fresh/r", copy.display()), &fresh.package("fresh/a@one"));
    assert!(std::fs::read(copy.join("large")).unwrap() == file);
    for n in 0..600 {
        assert!(std::fs::read(copy.join(format!("small{n}"))).unwrap() == file[n..n + 5000], "{n}");
    }
    let line = format!("{} zfs send fresh/a@one | head -c 1", env!("CARGO_BIN_EXE_cenote"));
    let shell =
        std::process::Command::new("sh").arg("-c").arg(line).env("CENOTE_RUN", fresh.world.dir.join("run")).output();
    let said = String::from_utf8(shell.unwrap().stderr).unwrap();
    assert_eq!(said, "warning: cannot send 'fresh/a@one': Broken pipe\n");
    fresh.judge();
}
