//! Streams of what is no snapshot, and of those that were raw.

use super::World;
use super::snapshots::Fresh;
use testkit::corpus;

/// A file system as it is now; also what a receiver has lost of it, and from a pool that can only be read.
#[test]
fn what_is_not_mounted_is_sent_as_it_is() {
    let fresh = Fresh::new("heads");
    let point = fresh.world.dir.join("mnt");
    fresh.does(&format!("set mountpoint={} fresh/a", point.display()));
    std::fs::write(point.join("one"), vec![1; 700_000]).unwrap();
    fresh.does("snapshot fresh/a@early");
    std::fs::write(point.join("two"), vec![2; 900_000]).unwrap();
    let busy = "warning: cannot send 'fresh/a': target is busy; if a filesystem, it must not be mounted\n";
    fresh.fails("send fresh/a", busy);
    fresh.does("unmount fresh/a");
    for flags in ["-p", "-h", "-b"] {
        let why = "warning: cannot send 'fresh/a': only a snapshot is sent with properties, with holds, or redacted\n";
        fresh.fails(&format!("send {flags} fresh/a"), why);
    }
    let send = |line: &str| {
        let output = fresh.world.cenote(&format!("zfs send {line}"));
        assert!(output.status.success() && output.stderr.is_empty(), "{line}: {output:?}");
        output.stdout
    };
    let (head, later) = (send("fresh/a"), send("-i @early fresh/a"));
    assert!(head.len() > 1_600_000 && (900_000..1_000_000).contains(&later.len()), "{} {}", head.len(), later.len());
    fresh.says("list -Ho name -t snapshot -r fresh", "fresh/a@early\n");

    // its receiver loses the connection, and goes on
    let (text, code) = fresh.world.zfs_with("receive -s -u fresh/b", &head[..head.len() / 2]);
    assert!(code == 1 && text.contains("Partially received snapshot is saved"), "{text}");
    let token = fresh.world.zfs("get -H -o value receive_resume_token fresh/b").0;
    fresh.world.receives("-s -u fresh/b", &send(&format!("-t {}", token.trim())));
    fresh.world.receives("-u fresh/b2", &head);
    fresh.world.receives("-u fresh/c2", &send("fresh/a@early"));
    fresh.world.receives("-u fresh/c2", &later);
    let guid = |name: &str| fresh.world.zfs(&format!("get -Hpo value guid {name}")).0;
    for name in ["fresh/b", "fresh/b2", "fresh/c2"] {
        assert_eq!(guid(&format!("{name}@--head--")), guid("fresh/a"), "{name}");
    }
    // a stream of another state is none that it can go on with
    fresh.world.zfs_with("receive -s -u fresh/d", &head[..head.len() / 2]);
    let token = fresh.world.zfs("get -H -o value receive_resume_token fresh/d").0;
    fresh.does("destroy -r fresh/a/b");
    fresh.does("rename fresh/a fresh/other");
    fresh.does("create -u fresh/a");
    let (text, code) = fresh.world.zfs(&format!("send -t {}", token.trim()));
    let why = "cannot resume send: 'fresh/a@--head--' is no longer the same snapshot used in the initial send\n";
    assert_eq!((text.as_str(), code), (why, 255));
    fresh.does("receive -A fresh/d");

    fresh.world.check("export fresh", 0, "");
    fresh.world.check("import -N -o readonly=on -d DIR fresh", 0, "");
    assert_eq!(send("fresh/other").len(), head.len());
    fresh.world.check("export fresh", 0, "");
    let cat = |name: &str| fresh.world.cenote(&format!("cat -d DIR fresh/{name}")).stdout;
    for copy in ["b", "b2", "c2"] {
        assert!(cat(&format!("{copy}:/one")) == vec![1; 700_000] && cat(&format!("{copy}:/two")) == vec![2; 900_000]);
    }
    fresh.world.check("import -N -d DIR fresh", 0, "");
    fresh.judge();
}

/// A raw stream of what is not encrypted goes on as a raw one: its token says so, as OpenZFS's does.
#[test]
fn raw_streams_go_on() {
    let world = World::with_pool("raws");
    world.receives("-u fresh/from", &corpus::case("send").zstd("streams/full-large-embedded-compressed.zst"));
    let send = |line: &str| {
        let output = world.cenote(&format!("zfs send {line}"));
        assert!(output.status.success() && output.stderr.is_empty(), "{line}: {output:?}");
        output.stdout
    };
    let raw = send("-w fresh/from@1");
    assert_eq!(raw, send("-Lec fresh/from@1"));
    let (text, code) = world.zfs_with("receive -s -u fresh/to", &raw[..raw.len() / 2]);
    assert!(code == 1 && text.contains("Partially received snapshot is saved"), "{text}");
    let token = world.zfs("get -H -o value receive_resume_token fresh/to").0;
    let (text, code) = world.zfs(&format!("send -nvt {}", token.trim()));
    let flags = ["embedok = 1", "compressok = 1", "largeblockok = 1", "toname = fresh/from@1"];
    assert!(code == 0 && flags.iter().all(|flag| text.contains(flag)), "{text}");
    let rest = send(&format!("-t {}", token.trim()));
    assert!(rest.len() < raw.len() * 3 / 4);
    assert_eq!(send(&format!("-w -t {}", token.trim())), rest);
    world.receives("-s -u fresh/to", &rest);
    let sizes = |name: &str| world.zfs(&format!("get -Hp -o value guid,logicalreferenced {name}@1")).0;
    assert_eq!(sizes("fresh/to"), sizes("fresh/from"));
    world.judged();
}

/// Limits that came with a stream are out of force when a later one has none.
#[test]
fn limits_go_with_the_stream_that_had_them() {
    let fresh = Fresh::new("limits");
    fresh.does("set quota=40M fresh/a");
    fresh.does("set reservation=30M fresh/a");
    let send = |line: &str| fresh.world.cenote(&format!("zfs send {line}")).stdout;
    fresh.does("snapshot fresh/a@one");
    fresh.world.receives("-u fresh/b", &send("-p fresh/a@one"));
    fresh.says("get -Hpo value,source quota,reservation fresh/b", "41943040\treceived\n31457280\treceived\n");
    for name in ["quota", "reservation"] {
        fresh.does(&format!("inherit -S {name} fresh/a"));
    }
    fresh.does("snapshot fresh/a@two");
    let before: u64 = fresh.world.zfs("get -Hpo value used fresh").0.trim().parse().unwrap();
    fresh.world.receives("-u fresh/b", &send("-p -i @one fresh/a@two"));
    fresh.says("get -Hpo value,source quota,reservation fresh/b", "0\tdefault\n0\tdefault\n");
    let after: u64 = fresh.world.zfs("get -Hpo value used fresh").0.trim().parse().unwrap();
    assert!(after + (25 << 20) < before, "{before} {after}");
    // one that was set here stays
    fresh.does("set quota=50M fresh/b");
    fresh.does("snapshot fresh/a@three");
    fresh.world.receives("-u fresh/b", &send("-p -i @two fresh/a@three"));
    fresh.says("get -Hpo value,source quota fresh/b", "52428800\tlocal\n");
    fresh.judge();
}

/// Options of mounts that come with a stream count at once, and where they are inherited.
#[test]
fn options_come_with_a_stream() {
    let fresh = Fresh::new("optional");
    let point = fresh.world.dir.join("mnt");
    fresh.does("snapshot fresh/a@one");
    let send = |line: &str| fresh.world.cenote(&format!("zfs send {line}")).stdout;
    fresh.world.receives("fresh/r", &send("fresh/a@one"));
    fresh.does(&format!("set mountpoint={} fresh/r", point.display()));
    let below = fresh.world.dir.join("below");
    fresh.does(&format!("create -o mountpoint={} fresh/r/below", below.display()));
    for line in ["xattr=off", "devices=off", "exec=off", "atime=off"] {
        fresh.does(&format!("set {line} fresh/a"));
    }
    fresh.does("snapshot fresh/a@two");
    fresh.world.receives("fresh/r", &send("-p -i @one fresh/a@two"));
    fresh.says("get -Ho value,source xattr,devices,exec,atime fresh/r", &"off\treceived\n".repeat(4));
    fresh.says("get -Ho value,source devices fresh/r/below", "off\tinherited from fresh/r\n");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let options = |at: &std::path::Path| {
        let line = mounts.lines().find(|line| line.split(' ').nth(4) == at.to_str()).unwrap().to_owned();
        ["nodev", "noexec", "noatime"].iter().all(|word| line.contains(word))
    };
    assert!(options(&point) && options(&below), "{mounts}");
    let set = |name: &str| rustix::fs::setxattr(&point, name, b"value", rustix::fs::XattrFlags::empty());
    assert_eq!(set("user.one"), Err(rustix::io::Errno::OPNOTSUPP));
    fresh.does("unmount fresh/r");
    fresh.does("mount fresh/r");
    assert_eq!(set("user.one"), Err(rustix::io::Errno::OPNOTSUPP));
    fresh.does("set xattr=sa fresh/r");
    set("user.one").unwrap();
    // and that makes it another than it was
    fresh.does("snapshot fresh/a@three");
    let modified =
        "cannot receive incremental stream: destination fresh/r has been modified\nsince most recent snapshot\n";
    assert_eq!(fresh.world.zfs_with("receive fresh/r", &send("-p -i @two fresh/a@three")), (modified.to_owned(), 1));
}

#[test]
fn a_wait_ends_when_files_are_freed() {
    let fresh = Fresh::new("waits");
    let point = fresh.world.dir.join("mnt");
    fresh.does(&format!("set mountpoint={} fresh/a", point.display()));
    std::fs::write(point.join("file"), vec![7; 1 << 20]).unwrap();
    fresh.does("wait fresh/a");
    fresh.does("wait -t deleteq fresh/c");
    let file = std::fs::File::open(point.join("file")).unwrap();
    std::fs::remove_file(point.join("file")).unwrap();
    let has_ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            fresh.does("wait -t deleteq fresh/a");
            has_ended.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        std::thread::sleep(std::time::Duration::from_millis(700));
        assert!(!has_ended.load(std::sync::atomic::Ordering::SeqCst));
        drop(file);
        waits.join().unwrap();
    });
    let (text, code) = fresh.world.zfs("wait -t nothing fresh/a");
    assert!(code == 2 && text.starts_with("invalid activity 'nothing'\n"), "{text}");
    fresh.fails("wait fresh/none", "cannot open 'fresh/none': dataset does not exist\n");
}

#[test]
fn file_systems_wait_for_their_pool_to_be_upgraded() {
    let world = World::new("poolfirst", &["fuse-v9"]);
    world.check("import -N -d DIR/fuse-v9 fuse_v9", 0, "");
    let names = world.zfs("list -Ho name -t filesystem").0;
    let first = |name: &str, version: u32| {
        let why = "can not be upgraded; the pool version needs to first be upgraded";
        format!("{name}: {why}\nto version {version}\n\n")
    };
    let all: String = names.lines().map(|name| first(name, 24)).collect();
    assert_eq!(world.zfs("upgrade -r fuse_v9"), (all + "0 filesystems upgraded\n", 1));
    let one = first("fuse_v9", 15) + "0 filesystems upgraded\n";
    assert_eq!(world.zfs("upgrade -V 4 fuse_v9"), (one, 1));
    world.check("export fuse_v9", 0, "");
}
