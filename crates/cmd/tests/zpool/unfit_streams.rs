//! Streams that do not fit what is there: refused before anything is changed.

use std::sync::atomic::AtomicU64;

use super::World;
use super::redaction::with_clones;
use super::snapshots::Fresh;
use dsl::receive::StreamReader;
use dsl::send::StreamWriter;
use format::ids::Guid;
use format::nvlist::{NvList, Value};
use format::stream::{RecordFields, StreamBegin, StreamRecord};

/// How a stream begins, and the list behind that.
pub(super) struct Beginning<'a> {
    pub(super) begin: &'a mut StreamBegin,
    pub(super) list: &'a mut NvList,
}

/// A stream that begins in another way, with those records that are to be kept.
pub(super) fn edited(
    stream: &[u8],
    change: impl FnOnce(Beginning<'_>),
    keeps: impl Fn(&RecordFields) -> bool,
) -> Vec<u8> {
    let mut from = stream;
    let mut reader = StreamReader::new(&mut from);
    let (mut begin, to_guid, list) = reader.begin().unwrap().unwrap();
    let mut list = if list.is_empty() { NvList::new() } else { NvList::unpack(&list).unwrap() };
    change(Beginning { begin: &mut begin, list: &mut list });
    let mut packed = if list.is_empty() { Vec::new() } else { list.pack() };
    packed.resize(packed.len().next_multiple_of(8), 0);
    begin.list_len = packed.len() as u32;
    let (mut out, bytes) = (Vec::new(), AtomicU64::new(0));
    let mut writer = StreamWriter::new(&mut out, &bytes);
    let put = |writer: &mut StreamWriter<'_>, fields, payload: &[u8]| {
        writer.record(StreamRecord { fields, to_guid, sum: [0; 4] }, payload).unwrap();
    };
    put(&mut writer, RecordFields::Begin(begin), &packed);
    loop {
        let part = reader.record().unwrap();
        match part.record.fields {
            RecordFields::End { .. } => break,
            fields if keeps(&fields) => put(&mut writer, fields, &part.payload),
            _ => {}
        }
    }
    writer.finish(to_guid).unwrap();
    out
}

impl World {
    /// A stream is refused, and all is as it was.
    pub(super) fn refuses(&self, line: &str, stream: &[u8], why: &str) {
        let all = || self.zfs("list -Hpr -t all -o name,guid,used,refer,createtxg fresh").0;
        let leftovers = || self.zfs("get -Hr -t filesystem,volume -o name,value receive_resume_token fresh").0;
        let before = (all(), leftovers());
        assert_eq!(self.zfs_with(&format!("receive {line}"), stream), (why.to_owned(), 1), "{line}");
        assert_eq!((all(), leftovers()), before, "{line}");
    }
}

/// A volume does not go on as a file system, nor the other way.
#[test]
fn a_stream_is_of_what_it_begins_from() {
    let fresh = Fresh::new("unlike");
    for line in ["create -sV 1M fresh/v", "snapshot fresh/v@s", "snapshot fresh/v@t", "snapshot fresh/c@s"] {
        fresh.does(line);
    }
    fresh.does("snapshot fresh/c@t");
    let send = |line: &str| fresh.world.cenote(&format!("zfs send {line}")).stdout;
    let of_volume = "invalid backup stream: it is of a volume, and 'fresh/c@s' of a file system\n";
    let of_files = "invalid backup stream: it is of a file system, and 'fresh/v@s' of a volume\n";
    let new = "cannot receive new filesystem stream: ";
    let (files, volume) = (send("fresh/c@s"), send("fresh/v@s"));
    fresh.world.refuses("-u -o origin=fresh/c@s fresh/n", &volume, &format!("{new}{of_volume}"));
    fresh.world.refuses("-u -o origin=fresh/v@s fresh/n", &files, &format!("{new}{of_files}"));
    fresh.world.refuses("-us -o origin=fresh/v@s fresh/n", &files, &format!("{new}{of_files}"));
    // by the guid
    let guid = |name: &str| {
        let text = fresh.world.zfs(&format!("get -Hpo value guid {name}")).0;
        Guid::new(text.trim().parse().unwrap())
    };
    let since = |stream: &[u8], from: Guid, flags: u32| {
        let change = |beginning: Beginning<'_>| {
            beginning.begin.from_guid = from;
            beginning.begin.flags |= flags;
        };
        edited(stream, change, |_| true)
    };
    let next = since(&send("-i @s fresh/v@t"), guid("fresh/c@s"), 0);
    fresh.world.refuses("-uF fresh/c@u", &next, &format!("cannot receive incremental stream: {of_volume}"));
    let clone = since(&send("-i @s fresh/c@t"), guid("fresh/v@s"), StreamBegin::FLAG_CLONE);
    fresh.world.refuses("-u fresh/n", &clone, &format!("{new}{of_files}"));
    let strange = edited(&files, |beginning| beginning.begin.objset_type = 1, |_| true);
    fresh.world.refuses("-u fresh/n", &strange, &format!("{new}invalid record type: 0x1\n"));
    // and what fits is received
    fresh.world.receives("-u -o origin=fresh/c@s fresh/n", &files);
    fresh.world.receives("-u fresh/n", &send("-i @s fresh/c@t"));
    fresh.judge();
}

/// A stream that leaves something out says so, and fits what was left out before.
#[test]
fn what_is_left_out_of_a_stream_fits() {
    let fresh = with_clones("leftout");
    for line in ["clone -u fresh/a@later fresh/k3", "snapshot fresh/k3@r", "redact fresh/a@later more fresh/k3@r"] {
        fresh.does(line);
    }
    fresh.does("redact fresh/a@s one fresh/k1@r");
    fresh.does("redact fresh/a@s two fresh/k1@r fresh/k2@r");
    let redacted = fresh.sends("--redact one fresh/a@s");
    let without = edited(&redacted, |beginning| *beginning.list = NvList::new(), |_| true);
    let why = "invalid backup stream: it is redacted, and does not say for which snapshots\n";
    for line in ["-u fresh/n", "-us fresh/n", "-uF fresh/c"] {
        fresh.world.refuses(line, &without, &format!("cannot receive new filesystem stream: {why}"));
    }
    fresh.world.receives("-u fresh/r", &redacted);
    let reasons = [
        ("-i @s", "it does not have what was left out of"),
        ("--redact more -i @s", "it is redacted for other snapshots than"),
        ("-i #two", "it begins from what was redacted for other snapshots than"),
    ];
    for (how, why) in reasons {
        let stream = fresh.sends(&format!("{how} fresh/a@later"));
        let why = format!("cannot receive incremental stream: invalid backup stream: {why} 'fresh/r@s'\n");
        fresh.world.refuses("-u fresh/r", &stream, &why);
        fresh.world.refuses("-usF fresh/r", &stream, &why);
    }
    // what goes on with a part of it leaves out the same
    assert_eq!(fresh.world.zfs_with("receive -us fresh/part", &redacted[..redacted.len() / 2]).1, 1);
    let token = fresh.world.zfs("get -Ho value receive_resume_token fresh/part").0;
    let rest = fresh.sends(&format!("-t {}", token.trim()));
    let others = |beginning: Beginning<'_>| beginning.list.set("redact_snaps", Value::U64s(vec![1]));
    let why =
        "cannot receive resume stream: invalid backup stream: what came before was redacted for other snapshots\n";
    fresh.world.refuses("-us fresh/part", &edited(&rest, others, |_| true), why);
    fresh.world.receives("-us fresh/part", &rest);
    fresh.world.receives("-u fresh/r", &fresh.sends("-i #one fresh/a@later"));
    fresh.judge();
}

/// Nothing is encrypted, so what says so is silent, and what says else is refused; a stream that goes on with what is there
/// changes nothing of it.
#[test]
fn what_is_said_of_encryption_is_true() {
    let fresh = Fresh::new("cleartext");
    fresh.does("snapshot -r fresh/a@s");
    fresh.does("snapshot -r fresh/a@t");
    let [whole, next, tree, later] =
        ["fresh/a@s", "-i @s fresh/a@t", "-R fresh/a@s", "-R -i @s fresh/a@t"].map(|line| fresh.sends(line));
    let new = "cannot receive new filesystem stream: ";
    let unsupported = "encryption is not supported by this version\n";
    fresh.world.refuses("-u -o encryption=on fresh/n", &whole, &format!("{new}'encryption': {unsupported}"));
    fresh.world.refuses("-u -o keyformat=hex fresh/n", &whole, &format!("{new}'keyformat': {unsupported}"));
    fresh.world.refuses("-u -o pbkdf2iters=400000 fresh/n", &tree, &format!("{new}'pbkdf2iters': {unsupported}"));
    let unlocated = "keylocation must be 'none' for unencrypted datasets\n";
    fresh.world.refuses("-u -o keylocation=prompt fresh/n", &whole, &format!("{new}{unlocated}"));
    let silent = [
        "-x encryption",
        "-o encryption=off",
        "-x encryption -x keyformat -x keylocation -x pbkdf2iters",
        "-o encryption=off -o keyformat=none -o keylocation=none -o pbkdf2iters=0",
    ];
    for flags in silent {
        fresh.world.receives(&format!("-u {flags} fresh/n"), &whole);
        if flags.starts_with("-x") {
            fresh.world.receives(&format!("-u {flags} fresh/n"), &next);
        }
        fresh.does("destroy -r fresh/n");
        fresh.world.receives(&format!("-u {flags} fresh/n"), &tree);
        fresh.world.receives(&format!("-u {flags} fresh/n"), &later);
        fresh.says("get -Hr -t filesystem -o value,source encryption fresh/n", "off\tdefault\noff\tdefault\n");
        fresh.does("destroy -r fresh/n");
    }
    fresh.world.receives("-u fresh/n", &whole);
    for value in ["encryption=off", "encryption=on", "keyformat=none", "keylocation=none", "pbkdf2iters=0"] {
        let name = value.split('=').next().unwrap();
        let why = format!("encryption property '{name}' cannot be set for incremental streams.\n");
        let line = format!("-u -o {value} fresh/n");
        fresh.world.refuses(&line, &next, &format!("cannot receive incremental stream: {why}"));
    }
    fresh.world.receives("-u fresh/n", &next);
    fresh.judge();
}
