//! Redaction as a user meets it: lists, streams, and what may be done with what came.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use super::World;
use super::snapshots::Fresh;

/// Bytes that do not compress.
fn noise(seed: u64, len: u64) -> Vec<u8> {
    let words = (0..len / 8).map(|n| (n ^ seed << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.flat_map(|word| (word ^ word >> 29).to_le_bytes()).collect()
}

/// The list that OpenZFS made of a snapshot, and ours, leave out the same.
#[test]
fn lists_are_those_of_openzfs() {
    let world = World::new("redact", &["redaction"]);
    world.check("import -N -d DIR/redaction t_redaction", 0, "");
    let does = |line: &str| assert_eq!(world.zfs(line), (String::new(), 0), "{line}");
    does("redact t_redaction/fs@s mine t_redaction/c1@r t_redaction/c2@r");
    let send = |line: &str| world.cenote(&format!("zfs send {line} t_redaction/fs@s")).stdout;
    let (theirs, ours) = (send("--redact few"), send("--redact mine"));
    assert!(theirs.len() > 100_000 && theirs == ours, "{} {}", theirs.len(), ours.len());
    assert!(send("").len() > theirs.len());
    let value = |of: &str, name: &str| world.zfs(&format!("get -H -o value {of} {name}")).0;
    assert_eq!(value("redact_snaps", "t_redaction/fs#few"), value("redact_snaps", "t_redaction/fs#mine"));
    assert_eq!(value("redact_snaps", "t_redaction/fs#many").split(',').count(), 40);
    // what they made goes, with all that it has
    let active = |feature: &str| world.cenote(&format!("zpool get -H -o value feature@{feature} t_redaction")).stdout;
    assert_eq!(
        (active("redaction_list_spill"), active("redaction_bookmarks")),
        (b"active\n".into(), b"active\n".into())
    );
    for name in ["few", "many", "mine"] {
        does(&format!("destroy t_redaction/fs#{name}"));
    }
    let enabled = || b"enabled\n".to_vec();
    assert_eq!((active("redaction_list_spill"), active("redaction_bookmarks")), (enabled(), enabled()));
    world.check("export t_redaction", 0, "");
    let zdb =
        Command::new("zdb").args(["-bcc", "-e", "-p"]).arg(world.dir.join("redaction")).arg("t_redaction").output();
    if let Ok(output) = zdb {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!output.status.success() && text.is_empty() || text.contains("No leaks"), "{text}");
    }
}

fn write(point: &Path, file: &str, at: u64, bytes: &[u8]) {
    let open = fs::OpenOptions::new().create(true).truncate(false).write(true).open(point.join(file)).unwrap();
    open.write_all_at(bytes, at).unwrap();
}

/// A file system with three files of 1 MiB, and two clones in which parts of them are other ones, or gone.
pub(super) fn with_clones(name: &str) -> Fresh {
    let fresh = Fresh::new(name);
    let mount = |set: &str| {
        let point = fresh.world.dir.join(format!("{set}.mnt"));
        fresh.does(&format!("set mountpoint={} fresh/{set}", point.display()));
        point
    };
    fresh.does("set recordsize=64K fresh/a");
    let point = mount("a");
    for (file, seed) in [("both", 1), ("one", 2), ("gone", 3)] {
        write(&point, file, 0, &noise(seed, 1 << 20));
    }
    fresh.does("snapshot fresh/a@s");
    for (set, seed) in [("k1", 11), ("k2", 12)] {
        fresh.does(&format!("clone fresh/a@s fresh/{set}"));
        let point = mount(set);
        write(&point, "both", 65536, &noise(seed, 131_072));
        write(&point, "one", seed << 16, &noise(seed, 65536));
        fs::remove_file(point.join("gone")).unwrap();
        fresh.does(&format!("snapshot fresh/{set}@r"));
        fresh.does(&format!("unmount fresh/{set}"));
    }
    write(&point, "both", 0, &noise(21, 4096));
    fresh.does("snapshot fresh/a@later");
    fresh.does("unmount fresh/a");
    fresh
}

impl Fresh {
    pub(super) fn sends(&self, line: &str) -> Vec<u8> {
        let output = self.world.cenote(&format!("zfs send {line}"));
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }
}

#[test]
fn what_is_redacted_is_not_sent_and_comes_later() {
    let fresh = with_clones("redacts");
    fresh.does("redact fresh/a@s book fresh/k1@r fresh/k2@r");
    let whole = fresh.sends("fresh/a@s");
    let redacted = fresh.sends("--redact book fresh/a@s");
    // two blocks of one file, and all sixteen of another
    assert_eq!((whole.len() - redacted.len()) / 65_536, 18);
    for range in [65_536..196_608, 0..1 << 20] {
        let hidden = if range.start > 0 { noise(1, 1 << 20)[range].to_vec() } else { noise(3, 1 << 20) };
        let piece = &hidden[..4096];
        assert!(whole.windows(4096).any(|bytes| bytes == piece) && !redacted.windows(4096).any(|bytes| bytes == piece));
    }
    fresh.world.receives("fresh/r", &redacted);
    assert_eq!(
        fresh.world.zfs("get -H -o value redact_snaps fresh/r@s"),
        fresh.world.zfs("get -H -o value redact_snaps fresh/a#book")
    );
    fresh.does(&format!("set mountpoint={} fresh/r", fresh.world.dir.join("r.mnt").display()));
    let mounting =
        "cannot mount 'fresh/r': Dataset is not complete, was created by receiving a redacted zfs send stream.\n";
    fresh.fails("mount fresh/r", mounting);
    // a clone of it is not whole either
    fresh.does("clone fresh/r@s fresh/half");
    assert_ne!(fresh.world.zfs("get -H -o value redact_snaps fresh/half").0, "-\n");
    fresh.does("destroy fresh/half");
    // what it was redacted for is whole
    fresh.world.receives("-u -o origin=fresh/r@s fresh/rk1", &fresh.sends("-i fresh/a@s fresh/k1@r"));
    fresh.says("get -H -o value redact_snaps fresh/rk1", "-\n");
    // a later snapshot is not taken as it is, but from the bookmark
    let (text, code) = fresh.world.zfs_with("receive -u fresh/r", &fresh.sends("-i @s fresh/a@later"));
    assert!(code == 1 && text.contains("invalid backup stream"), "{text}");
    let filling = fresh.sends("-i #book fresh/a@later");
    assert!(filling.len() > 18 * 65_536, "{}", filling.len());
    fresh.world.receives("-u fresh/r", &filling);
    fresh.says("get -H -o value redact_snaps fresh/r fresh/r@later", "-\n-\n");
    fresh.does("mount fresh/r");
    let snapshots = fresh.world.dir.join("r.mnt/.zfs/snapshot");
    assert!(fs::read_dir(snapshots.join("s")).is_err() && fs::read_dir(snapshots.join("later")).is_ok());
    fresh.does("unmount fresh/r");
    // filled up at the same snapshot, as another dataset
    fresh.does("bookmark fresh/r@s fresh/r#copy");
    assert_eq!(
        fresh.world.zfs("get -H -o value redact_snaps fresh/r#copy"),
        fresh.world.zfs("get -H -o value redact_snaps fresh/a#book")
    );
    // what was received redacted is sent on as such
    fresh.world.receives("-u fresh/on", &fresh.sends("fresh/r@s"));
    assert_eq!(
        fresh.world.zfs("get -H -o value redact_snaps fresh/on"),
        fresh.world.zfs("get -H -o value redact_snaps fresh/a#book")
    );
    let parts = ["rk1@r:/both", "rk1@r:/one", "r@later:/both", "r@later:/one", "r@later:/gone"];
    fresh.world.check("export fresh", 0, "");
    let cat = |place: &str| fresh.world.cenote(&format!("cat -d DIR fresh/{place}")).stdout;
    for part in parts {
        let source = part.replace("rk1", "k1").replace("r@later", "a@later");
        let (here, there) = (cat(part), cat(&source));
        assert!(here.len() == 1 << 20 && here == there, "{part}");
    }
    let hole = |place: &str| fresh.world.cenote(&format!("cat --redacted -d DIR fresh/{place}")).stdout;
    let both = hole("r@s:/both");
    let mut expect = noise(1, 1 << 20);
    expect[65_536..196_608].fill(0);
    assert!(both == expect && hole("r@s:/gone") == vec![0; 1 << 20]);
    fresh.world.check("import -N -d DIR fresh", 0, "");
    fresh.judge();
}

/// What is redacted already, and mounted all the same, stays mounted when more comes.
#[test]
fn more_of_what_is_redacted_comes_under_a_mount() {
    let fresh = with_clones("redmount");
    fresh.does("redact fresh/a@s book fresh/k1@r");
    fresh.world.receives("-u fresh/r", &fresh.sends("--redact book fresh/a@s"));
    let point = fresh.world.dir.join("r.mnt");
    fresh.does(&format!("set mountpoint={} fresh/r", point.display()));
    fresh.does("mount -f -o ro fresh/r");
    let before = fs::read_dir(&point).unwrap().count();
    fresh.does("clone -u fresh/a@later fresh/k3");
    fresh.does("snapshot fresh/k3@r");
    fresh.does("redact fresh/a@later more fresh/k3@r");
    fresh.world.receives("-u fresh/r", &fresh.sends("--redact more -i #book fresh/a@later"));
    fresh.says("get -Ho value mounted fresh/r", "yes\n");
    assert!(fs::read_dir(&point).unwrap().count() >= before && before > 0);
    fresh.judge();
}

#[test]
fn what_cannot_be_redacted_is_refused_by_name() {
    let fresh = with_clones("unredacted");
    fresh.does("redact fresh/a@s book fresh/k1@r");
    fresh.does("bookmark fresh/a@s fresh/a#plain");
    let refused = [
        ("redact fresh/a@s book fresh/k1@r", "specified redaction bookmark (book) provided already exists\n"),
        ("redact fresh/a@s plain fresh/k1@r", "specified redaction bookmark (plain) provided already exists\n"),
        ("redact fresh/a@s #b fresh/k1@r", "redaction bookmark name must not contain '#'\n"),
        ("redact fresh/a@s b @r", "potentially invalid redaction snapshot; full dataset names required\n"),
        ("redact fresh/a@no b fresh/k1@r", "provided snapshot fresh/a@no does not exist\n"),
        ("redact fresh/a@s b fresh/k1@no", "provided snapshot fresh/k1@no does not exist\n"),
        ("redact fresh/a@later b fresh/k1@r", "redaction snapshot must be descendent of snapshot being redacted\n"),
        ("redact fresh/k1@r b fresh/a@s", "redaction snapshot must be descendent of snapshot being redacted\n"),
        ("redact fresh/a@s b fresh/a@s", "redaction snapshot must be descendent of snapshot being redacted\n"),
        ("send -w --redact book fresh/a@s", "Error: raw sends may not be redacted.\n"),
        ("send -R --redact book fresh/a@s", "Error: multiple snapshots cannot be sent redacted.\n"),
        ("send -n --redact plain fresh/a@s", "warning: cannot send 'fresh/a@s': not a redaction bookmark\n"),
        (
            "send -n --redact book fresh/a@later",
            "warning: cannot send 'fresh/a@later': the redaction bookmark is of another snapshot\n",
        ),
    ];
    for (line, text) in refused {
        fresh.fails(line, text);
    }
    fresh.world.receives("-u fresh/r", &fresh.sends("--redact book fresh/a@s"));
    let again = "attempted to redact redacted dataset or with respect to redacted dataset\n";
    fresh.does("clone fresh/r@s fresh/rk");
    fresh.does("snapshot fresh/rk@r");
    fresh.fails("redact fresh/r@s b fresh/rk@r", again);
    fresh.judge();
}

#[test]
fn an_interrupted_redacted_receive_goes_on() {
    let fresh = with_clones("redactpart");
    fresh.does("redact fresh/a@s book fresh/k1@r fresh/k2@r");
    let redacted = fresh.sends("--redact book fresh/a@s");
    let (text, code) = fresh.world.zfs_with("receive -s -u fresh/part", &redacted[..redacted.len() / 2]);
    assert!(code == 1 && text.contains("Partially received"), "{text}");
    let token = fresh.world.zfs("get -H -o value receive_resume_token fresh/part").0;
    assert!(fresh.world.zfs(&format!("send -nv -t {}", token.trim())).0.contains("redact_snaps = 0x"));
    fresh.world.receives("-s -u fresh/part", &fresh.sends(&format!("-t {}", token.trim())));
    fresh.world.check("export fresh", 0, "");
    let both = fresh.world.cenote("cat --redacted -d DIR fresh/part@s:/both").stdout;
    let mut expect = noise(1, 1 << 20);
    expect[65_536..196_608].fill(0);
    assert!(both == expect);
    fresh.world.check("import -N -d DIR fresh", 0, "");
    fresh.judge();
}
