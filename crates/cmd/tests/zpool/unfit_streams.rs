//! Streams that do not fit what is there: refused before anything is changed.

use std::sync::atomic::AtomicU64;

use super::World;
use super::snapshots::Fresh;
use dsl::receive::StreamReader;
use dsl::send::StreamWriter;
use format::ids::Guid;
use format::nvlist::NvList;
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
