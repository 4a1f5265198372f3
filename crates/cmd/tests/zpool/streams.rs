//! Streams as a user meets them.

use super::World;
use testkit::corpus;

/// Each stream of OpenZFS that is kept beside a pool, and the command line that makes it.
const STREAMS: [(&str, &str); 10] = [
    ("full", "t_send/fs@1"),
    ("full-compressed", "-c t_send/fs@1"),
    ("full-large-embedded-compressed", "-Lec t_send/fs@1"),
    ("full-props", "-p t_send/fs@1"),
    ("incremental-1-2", "-i @1 t_send/fs@2"),
    ("incremental-1-2-compressed", "-Lc -i @1 t_send/fs@2"),
    ("incremental-bookmark-3", "-i #1 t_send/fs@3"),
    ("incremental-all-1-3", "-I @1 t_send/fs@3"),
    ("clone", "-i t_send/fs@2 t_send/clone@c"),
    ("volume", "t_send/vol@v"),
];

#[test]
fn streams_are_those_of_openzfs() {
    let world = World::new("streams", &["send"]);
    let case = corpus::case("send");
    world.check("import -o readonly=on -N -d DIR/send t_send", 0, "");
    for (name, line) in STREAMS {
        let theirs = case.zstd(&format!("streams/{name}.zst"));
        let output = world.cenote(&format!("zfs send {line}"));
        assert!(output.stderr.is_empty() && output.status.success(), "{line}: {output:?}");
        let differs = output.stdout.iter().zip(&theirs).position(|(a, b)| a != b);
        assert_eq!((output.stdout.len(), differs), (theirs.len(), None), "{line}: where they differ");
        let (size, code) = world.zfs(&format!("send -nP {line}"));
        let bytes: u64 = size.lines().last().and_then(|line| line.strip_prefix("size\t")).unwrap().parse().unwrap();
        assert!(code == 0 && bytes <= theirs.len() as u64 && bytes * 10 >= theirs.len() as u64 * 9, "{size}");
    }
    let refused = |line: &str, why: &str| assert_eq!(world.zfs(&format!("send -n {line}")), (why.to_owned(), 1));
    refused("t_send/none@1", "cannot open 't_send/none@1': dataset does not exist\n");
    let cross = "warning: cannot send 't_send/fs@1': not an earlier snapshot from the same fs\n";
    refused("-i @2 t_send/fs@1", cross);
    refused("-i t_send/vol@v t_send/fs@1", cross);
    world.check("export t_send", 0, "");
}
