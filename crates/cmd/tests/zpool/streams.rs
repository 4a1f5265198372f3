//! Streams as a user meets them.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use super::World;
use super::snapshots::Fresh;
use dsl::receive::StreamReader;
use dsl::send::StreamWriter;
use format::ids::{Guid, ObjectId};
use format::stream::{RecordFields, StreamBegin, StreamFeatures, StreamRecord, StreamReference, StreamWrite};
use testkit::corpus;
use testkit::manifest::Manifest;

/// Bytes of a record.
const RECORD: usize = 312;

/// Each stream of OpenZFS that is kept beside a pool, and the command line that makes it.
const STREAMS: [(&str, &str); 11] = [
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
    ("full-large-embedded-compressed", "-w t_send/fs@1"),
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
    // their list behind BEGIN is packed in another way, and all sums are other ones for that
    let redacted = world.cenote("zfs send --redact book t_send/fs@redact").stdout;
    let (ours, theirs) = (records(&redacted), records(&case.zstd("streams/redacted.zst")));
    assert!(ours.len() > 100 && ours == theirs, "{} {}", ours.len(), theirs.len());
    let refused = |line: &str, why: &str| assert_eq!(world.zfs(&format!("send -n {line}")), (why.to_owned(), 1));
    refused("t_send/none@1", "cannot open 't_send/none@1': dataset does not exist\n");
    let cross = "warning: cannot send 't_send/fs@1': not an earlier snapshot from the same fs\n";
    refused("-i @2 t_send/fs@1", cross);
    refused("-i t_send/vol@v t_send/fs@1", cross);
    refused(
        "-v -w t_send/enc@e1",
        "warning: cannot send 't_send/enc@e1': dataset is encrypted, and is read only by commands that take its key (-K)\n",
    );
    world.check("export t_send", 0, "");
}

/// The records of a stream, without sums, with what follows each.
fn records(mut stream: &[u8]) -> Vec<(RecordFields, Vec<u8>)> {
    let mut reader = StreamReader::new(&mut stream);
    let (begin, ..) = reader.begin().unwrap().unwrap();
    let mut all = vec![(RecordFields::Begin(StreamBegin { list_len: 0, ..begin }), Vec::new())];
    loop {
        let part = reader.record().unwrap();
        if matches!(part.record.fields, RecordFields::End { .. }) {
            return all;
        }
        all.push((part.record.fields, part.payload.to_vec()));
    }
}

/// A stream in which data that came before, in it or in `before`, are references, as `zfs send -D` made them once.
/// `before` knows where data are: guid, object, offset.
fn deduplicated(stream: &[u8], before: &mut HashMap<Vec<u8>, (Guid, ObjectId, u64)>) -> (Vec<u8>, usize) {
    let mut from = stream;
    let mut reader = StreamReader::new(&mut from);
    let (mut begin, to_guid, list) = reader.begin().unwrap().unwrap();
    begin.features = begin.features.with(StreamFeatures::DEDUP);
    let (mut out, bytes, mut references) = (Vec::new(), AtomicU64::new(0), 0);
    let mut writer = StreamWriter::new(&mut out, &bytes);
    let put = |writer: &mut StreamWriter<'_>, fields, payload: &[u8]| {
        writer.record(StreamRecord { fields, to_guid, sum: [0; 4] }, payload).unwrap();
    };
    put(&mut writer, RecordFields::Begin(begin), &list);
    loop {
        let part = reader.record().unwrap();
        match part.record.fields {
            RecordFields::End { .. } => break,
            RecordFields::Write(write) => match before.get(&part.payload[..]) {
                Some(&(from_guid, from_object, from_offset)) => {
                    let StreamWrite { object, offset, len, .. } = write;
                    let one = StreamReference { object, offset, len, from_guid, from_object, from_offset };
                    put(&mut writer, RecordFields::WriteByReference(one), &[]);
                    references += 1;
                }
                None => {
                    before.insert(part.payload.to_vec(), (to_guid, write.object, write.offset));
                    put(&mut writer, RecordFields::Write(write), &part.payload);
                }
            },
            fields => put(&mut writer, fields, &part.payload),
        }
    }
    writer.finish(to_guid).unwrap();
    (out, references)
}

#[test]
fn deduplicated_streams_are_received() {
    let fresh = Fresh::new("redup");
    let point = fresh.world.dir.join("mnt");
    fresh.does(&format!("set mountpoint={} fresh/a", point.display()));
    let block: Vec<u8> = (0..400_000u32).flat_map(|n| (n.wrapping_mul(2_654_435_761) >> 7).to_le_bytes()).collect();
    std::fs::write(point.join("one"), &block).unwrap();
    std::fs::write(point.join("two"), &block).unwrap();
    fresh.does("snapshot fresh/a@one");
    std::fs::write(point.join("three"), &block).unwrap();
    fresh.does("snapshot fresh/a@two");
    let send = |line: &str| fresh.world.cenote(&format!("zfs send {line}")).stdout;
    let (whole, next) = (send("fresh/a@one"), send("-i @one fresh/a@two"));
    let mut before = HashMap::new();
    let ((short, some), (short_next, more)) = (deduplicated(&whole, &mut before), deduplicated(&next, &mut before));
    assert!(some >= 12 && more >= 12 && short.len() < whole.len() * 2 / 3, "{some} {more}");
    let cut = fresh.world.zfs_with("receive -u fresh/none", &short_next);
    assert!(cut.1 == 1 && cut.0.contains("does not exist"), "{}", cut.0);
    fresh.world.receives("-u fresh/again", &short);
    fresh.world.receives("-u fresh/again", &short_next);
    // but for the name, all is as it was
    assert_eq!(send("fresh/again@one")[RECORD..].len(), whole[RECORD..].len());
    let stat = |name: &str| fresh.world.cenote(&format!("zfs get -Hp -o value logicalreferenced {name}")).stdout;
    assert_eq!(stat("fresh/again@two"), stat("fresh/a@two"));
    fresh.does("unmount fresh/a");
    fresh.world.check("export fresh", 0, "");
    let cat = |place: &str| fresh.world.cenote(&format!("cat -d DIR fresh/again@{place}")).stdout;
    for place in ["one:/one", "one:/two", "two:/three"] {
        assert!(cat(place) == block, "{place}");
    }
    fresh.world.check("import -d DIR fresh", 0, "");
    fresh.judge();
}

impl World {
    /// Output and errors of `zfs` with a stream as its input, and its exit code.
    pub(super) fn zfs_with(&self, line: &str, stream: &[u8]) -> (String, i32) {
        let mut command = self.command(env!("CARGO_BIN_EXE_cenote"));
        command.arg("zfs").args(line.split_whitespace());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // a receiver that has seen enough reads no more
        let _ = child.stdin.take().unwrap().write_all(stream);
        let output = child.wait_with_output().unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        (text, output.status.code().unwrap())
    }

    pub(super) fn receives(&self, line: &str, stream: &[u8]) {
        assert_eq!(self.zfs_with(&format!("receive {line}"), stream), (String::new(), 0), "{line}");
    }

    /// Pool `fresh` with nothing in it.
    pub(super) fn with_pool(name: &str) -> World {
        let world = World::new(name, &[]);
        std::fs::File::create(world.dir.join("a")).unwrap().set_len(256 << 20).unwrap();
        world.check("create -O mountpoint=none fresh DIR/a", 0, "");
        world
    }

    /// Exports the pool, and lets zdb look at all of it, if it is there.
    pub(super) fn judged(&self) {
        self.check("export fresh", 0, "");
        let zdb = Command::new("zdb").args(["-bcc", "-e", "-p"]).arg(&self.dir).arg("fresh").output();
        if let Ok(output) = zdb {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success() && text.contains("No leaks"), "{text}");
        }
    }
}

/// What replication programs go by: syncoid by the text, zfs_autobackup by the exit code.
#[test]
fn clients_can_tell_why_a_stream_is_refused() {
    let world = World::with_pool("refused");
    for line in ["create fresh/a", "snapshot fresh/a@one"] {
        assert_eq!(world.zfs(line), (String::new(), 0));
    }
    let whole = world.cenote("zfs send fresh/a@one").stdout;
    world.receives("-u fresh/b", &whole);
    for line in ["snapshot fresh/a@two", "snapshot fresh/b@two"] {
        assert_eq!(world.zfs(line), (String::new(), 0));
    }
    let next = world.cenote("zfs send -i @one fresh/a@two").stdout;
    let there = "cannot restore to fresh/b@two: destination already exists\n";
    assert_eq!(world.zfs_with("receive -uF fresh/b", &next), (there.to_owned(), 1));
    assert_eq!(world.zfs_with("receive -us fresh/c", &whole[..whole.len() - 8]).1, 1);
    let (token, _) = world.zfs("get -Ho value receive_resume_token fresh/c");
    // the one that was received of it would do
    assert_eq!(world.zfs("destroy fresh/b@one"), (String::new(), 0));
    assert_eq!(world.zfs("destroy fresh/a@one"), (String::new(), 0));
    let gone = "cannot resume send: 'fresh/a@one' used in the initial send no longer exists\n";
    assert_eq!(world.zfs(&format!("send -nt {token}")), (gone.to_owned(), 255));
    // not from a snapshot of the same name of another dataset
    assert_eq!(world.zfs("create fresh/a/below"), (String::new(), 0));
    assert_eq!(world.zfs("snapshot -r fresh/a@three"), (String::new(), 0));
    assert_eq!(world.zfs("snapshot -r fresh/a@four"), (String::new(), 0));
    for how in ["-nI", "-nRi", "-nRI"] {
        let other = "incremental source must be in same filesystem\n";
        assert_eq!(world.zfs(&format!("send {how} fresh/a/below@three fresh/a@four")), (other.to_owned(), 1), "{how}");
    }
    let corrupt = "cannot resume send: resume token is corrupt (incorrect checksum)\n";
    assert_eq!(world.zfs(&format!("send -nt {}", token.trim().replacen("1-", "1-f", 1))), (corrupt.to_owned(), 255));
    world.judged();
}

/// What names say may have changed, and several snapshots may have one guid.
#[test]
fn snapshots_are_found_by_their_guids() {
    let world = World::with_pool("guids");
    for line in ["create fresh/w", "create fresh/w/s", "snapshot fresh/w/s@1", "clone fresh/w/s@1 fresh/w/c"] {
        assert_eq!(world.zfs(line), (String::new(), 0));
    }
    assert_eq!(world.zfs("snapshot -r fresh/w@2"), (String::new(), 0));
    let package = world.cenote("zfs send -R fresh/w@2").stdout;
    for to in ["z", "b", "c"] {
        world.receives(&format!("-u fresh/{to}"), &package);
        let origin = world.zfs(&format!("get -Ho value origin fresh/{to}/c")).0;
        assert_eq!(origin.trim(), format!("fresh/{to}/s@1"), "the nearest");
    }
    // a sender that goes on with it has renamed the dataset and the snapshot
    let whole = world.cenote("zfs send fresh/w/s@2").stdout;
    assert_eq!(world.zfs_with("receive -us fresh/part", &whole[..whole.len() - 8]).1, 1);
    let (token, _) = world.zfs("get -Ho value receive_resume_token fresh/part");
    for line in ["rename fresh/w/s fresh/w/other", "rename fresh/w/other@2 new", "rename fresh/w fresh/v"] {
        assert_eq!(world.zfs(line), (String::new(), 0));
    }
    for line in ["destroy -R fresh/z", "destroy -R fresh/b", "destroy -R fresh/c"] {
        assert_eq!(world.zfs(line), (String::new(), 0));
    }
    let rest = world.cenote(&format!("zfs send -t {}", token.trim())).stdout;
    world.receives("-us fresh/part", &rest);
    assert_eq!(world.zfs("get -Ho value receive_resume_token fresh/part").0, "-\n");
    world.judged();
}

#[test]
fn streams_of_openzfs_are_received() {
    let world = World::with_pool("received");
    let case = corpus::case("send");
    let stream = |name: &str| case.zstd(&format!("streams/{name}.zst"));
    for name in ["full", "full-compressed", "full-large-embedded-compressed", "full-props"] {
        world.receives(&format!("-u fresh/{name}"), &stream(name));
    }
    world.receives("-u fresh/full", &stream("incremental-1-2"));
    world.receives("-u fresh/full-props", &stream("incremental-all-1-3"));
    world.receives("-u -F fresh/full-compressed", &stream("incremental-bookmark-3"));
    world.receives("-u fresh/clone", &stream("clone"));
    world.receives("-u fresh/replicate", &stream("replicate"));
    world.receives("-u fresh/volume", &stream("volume"));
    let refused = |line: &str, name: &str, why: &str| {
        let (text, code) = world.zfs_with(&format!("receive {line}"), &stream(name));
        assert!(code == 1 && text.contains(why), "{name}: {text}");
    };
    refused("-u fresh/raw", "raw-full", "unsupported feature: raw");
    world.receives("-u fresh/redacted", &stream("redacted"));
    let redacted = world.zfs("get -H -o value redact_snaps fresh/redacted").0;
    assert!(redacted.trim().parse::<u64>().is_ok_and(|guid| guid != 0), "{redacted}");
    assert_eq!(world.zfs("set mountpoint=DIR/mnt fresh/redacted"), (String::new(), 0));
    let (text, code) = world.zfs("mount fresh/redacted");
    assert!(code == 1 && text.contains("created by receiving a redacted zfs send stream"), "{text}");
    refused("-u fresh/full", "full", "must specify -F to overwrite it");
    refused("-u fresh/none", "incremental-1-2", "destination 'fresh/none' does not exist");
    refused("-u fresh/volume", "incremental-1-2", "does not\nmatch incremental source");
    let guid = |name: &str| world.zfs(&format!("get -H -o value guid {name}")).0;
    assert_eq!(guid("fresh/full@1"), guid("fresh/replicate@1"));
    assert_eq!(guid("fresh/full@2"), guid("fresh/full-props@2"));
    world.judged();
    let pairs = [
        ("full@1", "t_send+fs@1"),
        ("full@2", "t_send+fs@2"),
        ("full-compressed@3", "t_send+fs@3"),
        ("full-large-embedded-compressed@1", "t_send+fs@1"),
        ("full-props@3", "t_send+fs@3"),
        ("clone@c", "t_send+clone@c"),
        ("replicate@2", "t_send+fs@2"),
    ];
    for (ours, theirs) in pairs {
        let expect = Manifest::parse(&case.text(&format!("manifest/{theirs}.jsonl")).unwrap()).unwrap().on_disk();
        let output = world.cenote(&format!("stat -r -j --sha256 -d DIR fresh/{ours}:/"));
        let found = Manifest::parse(&String::from_utf8(output.stdout).unwrap()).unwrap();
        assert_eq!(expect.differences(&found), None, "{ours}");
    }
}

/// What comes compressed stays as it is, whatever the target's own compression is.
#[test]
fn compressed_blocks_stay_as_they_came() {
    let world = World::with_pool("as_they_came");
    let theirs = corpus::case("send").zstd("streams/full-large-embedded-compressed.zst");
    let compressed = |stream: &[u8]| -> Vec<(RecordFields, Vec<u8>)> {
        let is_compressed = |fields: &RecordFields| matches!(fields, RecordFields::Write(write) if write.compress > 2);
        records(stream).into_iter().filter(|(fields, _)| is_compressed(fields)).collect()
    };
    let sent = compressed(&theirs);
    assert!(!sent.is_empty());
    for compression in ["off", "gzip-9"] {
        world.receives(&format!("-u -o compression={compression} fresh/{compression}"), &theirs);
        let again = compressed(&world.cenote(&format!("zfs send -Lec fresh/{compression}@1")).stdout);
        assert!(sent.iter().all(|record| again.contains(record)), "{compression}");
    }
    world.judged();
}

#[test]
fn an_interrupted_receive_goes_on() {
    let world = World::with_pool("resumed");
    let whole = corpus::case("send").zstd("streams/full.zst");
    world.receives("-u fresh/from", &whole);
    let stream = world.cenote("zfs send fresh/from@1").stdout;
    let (text, code) = world.zfs_with("receive -s -u fresh/to", &stream[..stream.len() / 2]);
    assert!(code == 1 && text.contains("Partially received snapshot is saved"), "{text}");
    let token = world.zfs("get -H -o value receive_resume_token fresh/to").0;
    assert!(text.contains(&format!("zfs send -t {token}")), "{text}");
    // the process of the pool is killed, and what can be resumed is there still
    world.kill("fresh");
    world.check("import -d DIR fresh", 0, "");
    assert_eq!(world.zfs("get -H -o value receive_resume_token fresh/to").0, token);
    let rest = world.cenote(&format!("zfs send -t {}", token.trim())).stdout;
    assert!(rest.len() < stream.len() * 3 / 4);
    let (text, code) = world.zfs_with("receive -u fresh/to", &whole);
    assert!(code == 1, "{text}");
    world.receives("-s -u fresh/to", &rest);
    assert_eq!(world.zfs("get -H -o value receive_resume_token fresh/to").0, "-\n");
    // a new one is mounted once all of it is there
    let point = world.dir.join("fourth");
    let line = format!("receive -s -o mountpoint={} fresh/fourth", point.display());
    world.zfs_with(&line, &stream[..stream.len() / 2]);
    let token = world.zfs("get -H -o value receive_resume_token fresh/fourth").0;
    let rest = world.cenote(&format!("zfs send -t {}", token.trim())).stdout;
    assert_eq!(world.zfs("get -H -o value mounted fresh/fourth").0, "no\n");
    world.receives("-s fresh/fourth", &rest);
    assert_eq!(world.zfs("get -H -o value mounted fresh/fourth").0, "yes\n");
    // and one that is given up
    world.zfs_with("receive -s -u fresh/third", &stream[..stream.len() / 2]);
    assert_eq!(world.zfs("receive -A fresh/third"), (String::new(), 0));
    assert_eq!(world.zfs("list -H -o name fresh/third").1, 1);
    let sums = |name: &str| {
        let output = world.cenote(&format!("stat -r -j --sha256 -d DIR fresh/{name}@1:/"));
        String::from_utf8(output.stdout).unwrap()
    };
    world.judged();
    let (from, to) = (Manifest::parse(&sums("from")).unwrap(), Manifest::parse(&sums("to")).unwrap());
    assert_eq!(from.differences(&to), None);
}

/// What a stream says of properties counts when it has come to its end.
#[test]
fn properties_of_a_stream_that_was_cut_short_do_not_count() {
    let world = World::with_pool("cut_short");
    let done = |line: &str| assert_eq!(world.zfs(line), (String::new(), 0), "{line}");
    world.receives("-u fresh/from", &corpus::case("send").zstd("streams/full.zst"));
    done("set compression=gzip-1 fresh/from");
    done("set a:note=first fresh/from");
    done("snapshot fresh/from@one");
    world.receives("-u -o copies=2 fresh/to", &world.cenote("zfs send -p fresh/from@one").stdout);
    done("set compression=gzip-2 fresh/from");
    done("inherit a:note fresh/from");
    done("snapshot fresh/from@two");
    let next = world.cenote("zfs send -p -i @one fresh/from@two").stdout;
    let properties = || world.zfs("get -H -o property,value,source compression,a:note,copies,atime fresh/to").0;
    let first = "compression\tgzip-1\treceived\na:note\tfirst\treceived\ncopies\t2\tlocal\natime\ton\tdefault\n";
    assert_eq!(properties(), first);
    let cut = &next[..next.len() - 500];
    let (text, code) = world.zfs_with("receive -u -o copies=3 -o atime=off fresh/to", cut);
    assert!(code == 1 && text.starts_with("cannot receive incremental stream"), "{text}");
    assert_eq!(properties(), first, "after {text}");
    world.receives("-u fresh/to", &next);
    let second = "compression\tgzip-2\treceived\na:note\t-\t-\ncopies\t2\tlocal\natime\ton\tdefault\n";
    assert_eq!(properties(), second);
}

/// Names that do not fit the options, and what an interrupted receive keeps to itself.
#[test]
fn what_cannot_be_received_to() {
    let world = World::with_pool("targets");
    let whole = corpus::case("send").zstd("streams/full.zst");
    let refuses = |line: &str, why: &str| {
        let (text, code) = world.zfs_with(&format!("receive -u {line}"), &whole);
        assert!(code != 0 && text.starts_with(why), "{line}: {code} {text}");
    };
    refuses("-e fresh@one", "cannot receive: invalid argument - snapshot not allowed with -e\n");
    refuses("-d fresh@one", "cannot receive: invalid argument - snapshot not allowed with -d\n");
    refuses("-d fresh/none", "cannot receive: specified fs (fresh/none) does not exist\n");
    assert_eq!(world.zfs("list -H -o name -r fresh").0, "fresh\n");
    refuses("-x compress -x compression fresh/a", "property 'compression' specified multiple times\n");
    refuses("-x atime -o atime=on fresh/a", "property 'atime' specified multiple times\n");
    let twice = world.zfs_with("receive -o atime=on -o atime=off fresh/a", &whole);
    assert!(twice.1 == 2 && twice.0.starts_with("property 'atime' specified multiple times\nusage:\n"), "{}", twice.0);
    refuses("-o atime fresh/a", "missing '=' for property=value argument\nusage:\n");
    refuses("-x atime=on fresh/a", "invalid character '=' in property argument\nusage:\n");
    refuses("-o compress=on -o compression=off fresh/a", "property 'compression' specified multiple times\n");

    // nothing is stored in the clear that is to be encrypted
    let in_clear = "cannot receive new filesystem stream: 'encryption': encryption is not supported by this version\n";
    refuses("-o encryption=on -o keyformat=passphrase fresh/a", in_clear);
    let in_clear = in_clear.replace("'encryption':", "'keyformat':");
    refuses("-o keyformat=passphrase fresh/a", &in_clear);
    refuses("-o compression=most fresh/a", "cannot receive new filesystem stream: 'compression' must be one of ");
    assert_eq!(world.zfs("list -H -o name -r fresh").0, "fresh\n");

    assert_eq!(world.zfs("create -o refquota=64K fresh/tight"), (String::new(), 0));
    let exceeded = "cannot receive new filesystem stream: destination fresh/tight space quota exceeded.\n";
    // a stream may bring as much more as one operation may
    world.tune("spa_asize_inflation", 0);
    refuses("-F fresh/tight", exceeded);
    assert_eq!(world.zfs("list -H -o name -r -t all fresh").0, "fresh\nfresh/tight\n");
    world.tune("spa_asize_inflation", 24);
    world.receives("-u -F fresh/tight", &whole);
    assert_eq!(world.zfs("destroy -r fresh/tight"), (String::new(), 0));

    world.receives("-u -o encryption=off fresh/fs", &whole);
    assert_eq!(world.zfs_with("receive -s -u fresh/part", &whole[..whole.len() / 2]).1, 1);
    let next = corpus::case("send").zstd("streams/incremental-1-2.zst");
    assert_eq!(world.zfs_with("receive -s -u fresh/fs", &next[..next.len() / 2]).1, 1);
    let internal = "invalid character % in name\n";
    for line in ["promote fresh/fs/%recv", "rename fresh/fs/%recv fresh/other"] {
        let (text, code) = world.zfs(line);
        assert!(code == 1 && text.ends_with(internal), "{line}: {text}");
    }
    assert_eq!(world.zfs("destroy -r fresh/fs"), (String::new(), 0));
    assert_eq!(world.zfs("list -H -o name -r fresh").0, "fresh\nfresh/part\n");
}

#[test]
fn what_a_receive_may_not_change() {
    let fresh = Fresh::new("mayset");
    fresh.does("snapshot fresh/a@one");
    let stream = fresh.world.cenote("zfs send fresh/a@one").stdout;
    let refused = |line: &str, why: &str| {
        assert_eq!(fresh.world.zfs_with(&format!("receive {line}"), &stream), (format!("cannot receive: {why}\n"), 1));
    };
    for (flags, name) in [
        ("-o version=1", "version"),
        ("-x version", "version"),
        ("-o volsize=32K", "volsize"),
        ("-x volblock", "volblocksize"),
        ("-x normalization", "normalization"),
        ("-o used=1", "used"),
        ("-o nonsense=1", "nonsense"),
    ] {
        refused(&format!("{flags} fresh/b"), &format!("cannot receive: invalid property '{name}'"));
    }
    refused("-d fresh/none", "specified fs (fresh/none) does not exist");
    refused("-e fresh/a/none", "specified fs (fresh/a/none) does not exist");
    refused("-o origin=fresh/a@none fresh/b", "specified origin fs (fresh/a@none) does not exist");
    fresh.says("list -Hr -o name fresh", "fresh\nfresh/a\nfresh/a/b\nfresh/c\n");
}

#[test]
fn damaged_streams_cost_nothing_but_themselves() {
    let world = World::with_pool("damaged");
    let full = corpus::case("send").zstd("streams/full.zst");
    world.receives("-u fresh/fs", &full);
    let good = corpus::case("send").zstd("streams/incremental-1-2-compressed.zst");
    let before = world.zfs("list -Hp -t all -o name,guid,used,refer -r fresh");
    let check = |stream: &[u8], what: &str| {
        let (text, code) = world.zfs_with("receive -u fresh/fs", stream);
        assert!(code == 1 && text.starts_with("cannot receive"), "{what}: {code} {text}");
    };
    for at in (0..good.len()).step_by(good.len() / 80).chain(0..40) {
        let mut bad = good.clone();
        bad[at] ^= 0x41;
        // the name is checked by the sum only
        check(&bad, &format!("byte {at}"));
    }
    for len in (0..good.len()).step_by(good.len() / 40) {
        check(&good[..len], &format!("cut at {len}"));
    }
    // the first records have no contents behind them
    let (begin, rest) = good.split_at(RECORD);
    let (one, rest) = rest.split_at(RECORD);
    check(&[begin, rest].concat(), "dropped");
    check(&[begin, one, one, rest].concat(), "repeated");
    check(&[one, begin, rest].concat(), "swapped");
    let after = world.zfs("list -Hp -t all -o name,guid,used,refer -r fresh");
    let names = |text: &str| text.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(names(&before.0), names(&after.0));
    world.receives("-u fresh/fs", &good);
    world.judged();
}

#[test]
fn a_stream_asks_only_for_what_the_pool_has() {
    let world = World::new("upgrade", &[]);
    std::fs::File::create(world.dir.join("a")).unwrap().set_len(256 << 20).unwrap();
    world.check("create -d -o feature@lz4_compress=enabled -O mountpoint=none fresh DIR/a", 0, "");
    let stream = |name: &str| corpus::case("send").zstd(&format!("streams/{name}.zst"));
    let refused = "cannot receive new filesystem stream: pool must be upgraded to receive this stream.\n";
    let large = stream("full-large-embedded-compressed");
    assert_eq!(world.zfs_with("receive -u fresh/fs", &large), (refused.to_owned(), 1));
    assert_eq!(world.zfs("list -Ho name").0, "fresh\n");
    world.check("set feature@embedded_data=enabled fresh", 0, "");
    assert_eq!(world.zfs_with("receive -u fresh/fs", &large), (refused.to_owned(), 1));
    world.check("set feature@large_blocks=enabled fresh", 0, "");
    world.receives("-u fresh/fs", &large);
    world.judged();
}

#[test]
fn a_healing_receive_is_for_a_snapshot_that_is_there() {
    let world = World::with_pool("corrective");
    for line in ["create fresh/a", "snapshot fresh/a@one", "snapshot fresh/a@two"] {
        assert_eq!(world.zfs(line), (String::new(), 0));
    }
    let one = world.cenote("zfs send fresh/a@one").stdout;
    let refused = |line: &str, why: &str| {
        let why = format!("cannot receive: {why}\n");
        assert_eq!(world.zfs_with(&format!("receive {line}"), &one), (why, 1), "{line}");
    };
    refused("-c fresh/a@none", "corrective recv must specify an existing snapshot to heal");
    refused("-c fresh/none@one", "corrective recv must specify an existing snapshot to heal");
    refused("-c fresh/a@two", "local snapshot doesn't match the snapshot in the provided stream");
    for flag in ["-F", "-s", "-u", "-h", "-o atime=off", "-x atime"] {
        let why = "corrective recv can not be used when combined with this flag";
        refused(&format!("-c {flag} fresh/a@one"), why);
    }
    let would = "would receive corrective full stream of fresh/a@one into fresh/a@one\n";
    assert_eq!(world.zfs_with("receive -cn fresh/a@one", &one), (would.to_owned(), 0));
    world.receives("-c fresh/a@one", &one);
    let (told, code) = world.zfs_with("receive -cv fresh/a", &one);
    assert!(code == 0 && told.contains("receiving corrective full stream of fresh/a@one"), "{told}");
    assert!(told.contains("healed 0 blocks of fresh/a@one\n") && told.contains("\nreceived "), "{told}");
    let cut = &one[..one.len() - 100];
    let why = "cannot receive: corrective receive was not able to reconstruct the data needed for healing.\n";
    assert_eq!(world.zfs_with("receive -c fresh/a@one", cut), (why.to_owned(), 1));
    world.judged();
}

#[test]
fn a_send_tells_how_far_it_is() {
    let world = World::with_pool("told");
    world.receives("-u fresh/v", &corpus::case("send").zstd("streams/full.zst"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
    command.args(["zfs", "send", "-V", "fresh/v@1"]).env("CENOTE_RUN", world.dir.join("run"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut stream = command.spawn().unwrap();
    let mut out = stream.stdout.take().unwrap();
    let read_some = |out: &mut std::process::ChildStdout| {
        let mut some = vec![0; 40 << 10];
        out.read_exact(&mut some).unwrap();
        std::thread::sleep(Duration::from_millis(300));
    };
    let pid = stream.id();
    let signal = || Command::new("kill").args(["-USR1", &pid.to_string()]).status().unwrap();
    let title = || std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    let begun = Instant::now();
    while !title().starts_with("zfs: sending fresh/v@1 (") && begun.elapsed() < Duration::from_secs(9) {
        read_some(&mut out);
    }
    assert!(title().contains("%: ") && title().trim_end_matches('\0').ends_with("M)"), "{}", title());
    assert!(signal().success());
    for _ in 0..6 {
        read_some(&mut out);
    }
    std::io::copy(&mut out, &mut std::io::sink()).unwrap();
    let output = stream.wait_with_output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && told.ends_with("   fresh/v@1\n") && told.lines().count() == 1, "{told}");
    world.judged();
}

#[test]
fn a_pool_is_in_use_by_a_stream() {
    let world = World::with_pool("streaming");
    world.receives("-u fresh/v", &corpus::case("send").zstd("streams/full.zst"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
    command.args(["zfs", "send", "fresh/v@1"]).env("CENOTE_RUN", world.dir.join("run"));
    let mut stream = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut some = [0; 4096];
    stream.stdout.as_mut().unwrap().read_exact(&mut some).unwrap();
    world.check("export fresh", 1, "cannot export 'fresh': pool is busy\n");
    world.check("destroy fresh", 1, "cannot destroy 'fresh': pool is busy\n");
    stream.kill().unwrap();
    stream.wait().unwrap();
    world.judged();
}
