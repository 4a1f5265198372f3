//! Receives that were interrupted, and what may go on with them.

use super::World;
use super::snapshots::Fresh;
use super::unfit_streams::{Beginning, edited};
use dsl::resume::ResumeState;
use format::nvlist::Value;
use format::stream::{RecordFields, StreamFeatures};
use testkit::corpus;

/// Bytes of a file with large blocks: more than one.
const FILE_BYTES: u32 = 5 << 20;

/// File systems `fresh/a`, whose snapshot has a file with blocks of 1 MiB, and `fresh/b`, into which its stream without
/// large blocks came in part; the token.
fn cut_in_a_large_file(name: &str) -> (Fresh, String) {
    let fresh = Fresh::new(name);
    let point = fresh.world.dir.join("mnt");
    fresh.does(&format!("set mountpoint={} fresh/a", point.display()));
    fresh.does("set recordsize=1M fresh/a");
    let bytes: Vec<u8> = (0..FILE_BYTES / 4).flat_map(|n| (n.wrapping_mul(2_654_435_761) >> 3).to_le_bytes()).collect();
    std::fs::write(point.join("large"), &bytes).unwrap();
    std::fs::write(point.join("small"), "behind it").unwrap();
    fresh.does("snapshot fresh/a@s");
    let stream = fresh.world.cenote("zfs send fresh/a@s").stdout;
    // in the midst of the third block
    let (_, code) = fresh.world.zfs_with("receive -us fresh/b", &stream[..(5 << 20) / 2 + 300_000]);
    assert_eq!(code, 1);
    let token = fresh.world.zfs("get -Ho value receive_resume_token fresh/b").0.trim().to_owned();
    let state = ResumeState::parse(&token).unwrap();
    assert!(!state.large_blocks && state.offset > 2 << 20 && !state.offset.is_multiple_of(1 << 20), "{state:?}");
    (fresh, token)
}

impl Fresh {
    /// Exports the pool, and compares the file of both file systems; then zdb judges it.
    fn both_have_the_file(self) {
        self.does("unmount fresh/a");
        self.world.check("export fresh", 0, "");
        let cat = |place: &str| self.world.cenote(&format!("cat -d DIR fresh/{place}")).stdout;
        assert_eq!(cat("a@s:/large").len(), FILE_BYTES as usize);
        for file in ["large", "small"] {
            assert!(cat(&format!("a@s:/{file}")) == cat(&format!("b@s:/{file}")), "{file}");
        }
        self.world.check("import -d DIR fresh", 0, "");
        self.judge();
    }
}

/// What was begun without large blocks goes on without them.
#[test]
fn a_stream_goes_on_as_it_was_begun() {
    let (fresh, token) = cut_in_a_large_file("as_begun");
    let why = "cannot resume send: it was begun without -L (--large-block) and -w (--raw), and goes on so\n";
    for flag in ["-L", "-w", "-nL", "-Lec"] {
        assert_eq!(fresh.world.zfs(&format!("send {flag} -t {token}")), (why.to_owned(), 255), "{flag}");
    }
    let rest = fresh.world.cenote(&format!("zfs send -ec -t {token}")).stdout;
    fresh.world.receives("-us fresh/b", &rest);
    fresh.both_have_the_file();
}

/// What of a stream with large blocks is behind a place, as OpenZFS sends it by `-t TOKEN -L`.
fn rest_with_large_blocks(stream: &[u8], state: &ResumeState) -> Vec<u8> {
    let to_end = |beginning: Beginning<'_>| {
        assert!(beginning.begin.features.has(StreamFeatures::LARGE_BLOCKS));
        beginning.begin.features = beginning.begin.features.with(StreamFeatures::RESUMING);
        beginning.list.set("resume_object", Value::U64(state.object.get()));
        beginning.list.set("resume_offset", Value::U64(state.offset));
    };
    edited(stream, to_end, |record| match record {
        RecordFields::Object(object) => object.object >= state.object,
        RecordFields::Write(write) => {
            (write.object, write.offset.saturating_add(write.len)) > (state.object, state.offset)
        }
        RecordFields::Free { object, .. } => *object >= state.object,
        RecordFields::FreeObjects { first, .. } => *first > state.object,
        _ => panic!("a record of this file system's stream: {record:?}"),
    })
}

/// A sender may not know better: what has been received of a file stays, in blocks as it came.
#[test]
fn a_file_that_goes_on_in_large_blocks_keeps_what_came() {
    let (fresh, token) = cut_in_a_large_file("in_large");
    let whole = fresh.world.cenote("zfs send -L fresh/a@s").stdout;
    let rest = rest_with_large_blocks(&whole, &ResumeState::parse(&token).unwrap());
    assert!(rest.len() < 4 << 20 && rest.len() > 3 << 20, "{}", rest.len());
    fresh.world.receives("-us fresh/b", &rest);
    fresh.both_have_the_file();
}

/// What cannot be resumed is not begun so.
#[test]
fn a_pool_without_the_feature_resumes_nothing() {
    let world = World::new("unresumed", &[]);
    std::fs::File::create(world.dir.join("a")).unwrap().set_len(256 << 20).unwrap();
    world.check("create -d -O mountpoint=none fresh DIR/a", 0, "");
    let whole = corpus::case("send").zstd("streams/full.zst");
    let refused = |line: &str, kind: &str, stream: &[u8]| {
        let why = format!("cannot receive {kind} stream: pool must be upgraded to receive this stream.\n");
        assert_eq!(world.zfs_with(line, stream), (why, 1), "{line}");
    };
    refused("receive -us fresh/fs", "new filesystem", &whole);
    assert_eq!(world.zfs("list -Ho name").0, "fresh\n");
    world.receives("-u fresh/fs", &whole);
    let next = corpus::case("send").zstd("streams/incremental-1-2.zst");
    refused("receive -us fresh/fs", "incremental", &next);
    world.receives("-u fresh/fs", &next);
    world.check("set feature@extensible_dataset=enabled fresh", 0, "");
    world.receives("-us fresh/again", &whole);
    world.judged();
}
