use std::io::Cursor;

use proptest::prelude::*;

use super::*;

type Read = Result<Vec<TraceRequest>, TraceError>;

fn read(bytes: &[u8], format: Option<TraceFormat>) -> (Option<TraceFormat>, Read) {
    match TraceReader::new(Box::new(Cursor::new(bytes.to_vec())), format) {
        Ok(reader) => (Some(reader.format()), reader.collect()),
        Err(error) => (None, Err(error)),
    }
}

/// A request as time in µs, `R`, `W` or `-`, stream, offset and bytes.
type Row = (u64, char, u64, u64, u64);

/// The format that is found, and the requests.
fn found(bytes: &[u8]) -> (TraceFormat, Vec<Row>) {
    let (format, requests) = read(bytes, None);
    let one = |request: TraceRequest| {
        let op = match request.op {
            TraceOp::Read => 'R',
            TraceOp::Write => 'W',
            TraceOp::Sync => 'S',
            TraceOp::Other => '-',
        };
        (request.time_ns.unwrap_or(0) / 1000, op, request.stream, request.offset, request.bytes)
    };
    (format.expect("a known format"), requests.expect("a sound trace").into_iter().map(one).collect())
}

fn complaint(bytes: &[u8], format: TraceFormat) -> String {
    read(bytes, Some(format)).1.expect_err("a bad trace").to_string()
}

fn oracle(records: &[(u32, u64, u32, i64)]) -> Vec<u8> {
    let one = |&(time, key, bytes, next): &(u32, u64, u32, i64)| {
        [&time.to_le_bytes()[..], &key.to_le_bytes(), &bytes.to_le_bytes(), &next.to_le_bytes()].concat()
    };
    records.iter().flat_map(one).collect()
}

fn vscsi(version: u8, code: u16, bytes: u32, sector: u64, us: u64) -> Vec<u8> {
    let (code, version) = (code.to_le_bytes(), [7, version]);
    let (bytes, sector, us) = (bytes.to_le_bytes(), sector.to_le_bytes(), us.to_le_bytes());
    match version[1] {
        1 => [&[9; 4][..], &bytes, &[1; 4], &code, &version, &sector, &us].concat(),
        _ => [&code[..], &version, &[9; 4], &bytes, &[1; 4], &sector, &us, &[5; 8]].concat(),
    }
}

/// A record of blktrace, and so many bytes behind it.
fn blk(action: u32, time: u64, sector: u64, bytes: u32, behind: u16) -> Vec<u8> {
    let (magic, sequence) = (0x6561_7407u32.to_le_bytes(), [0; 4]);
    let words = [bytes.to_le_bytes(), action.to_le_bytes(), [1; 4], 0x0080_0010u32.to_le_bytes(), [0; 4]];
    let (time, sector, behind_bytes) = (time.to_le_bytes(), sector.to_le_bytes(), behind.to_le_bytes());
    let head = [&magic[..], &sequence, &time, &sector, &words.concat(), &[0; 2], &behind_bytes].concat();
    [head, vec![b'x'; behind.into()]].concat()
}

#[test]
fn text_formats_are_found_and_read() {
    let arc = found(b"1 1 0 0\n793041 16 0 1\n");
    assert_eq!(arc, (TraceFormat::Arc, vec![(0, 'R', 0, 4096, 4096), (0, 'R', 0, 793_041 * 4096, 65_536)]));
    let lines = found(b"17\n18 512\r\n\n19");
    assert_eq!(lines, (TraceFormat::Lines, vec![(0, 'R', 0, 17, 4096), (0, 'R', 0, 18, 512), (0, 'R', 0, 19, 4096)]));
    let msr = found(
        b"Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n\
          128166372003061629,usr,0,Read,7014609920,24576,41286\n128166372016382155,usr,1,Write,2657792,4096,8\n\
          128166372026382245,usr,0,Read,3221225472,4096,9\n",
    );
    let expect = vec![
        (0, 'R', 0, 7_014_609_920, 24_576),
        (1_332_052, 'W', 1, 2_657_792, 4096),
        (2_332_061, 'R', 0, 3_221_225_472, 4096),
    ];
    assert_eq!(msr, (TraceFormat::Msr, expect));
    let vscsi = found(b"version,time,op,bytes,block\n1,5633898611441,42,4096,42932745\n1,5633898612441,40,512,1\n");
    let expect = vec![(0, 'W', 0, 42_932_745 * 512, 4096), (1000, 'R', 0, 512, 512)];
    assert_eq!(vscsi, (TraceFormat::VscsiCsv, expect));
    let alibaba = found(b"419,W,8792731648,16384,1577808144360767\n725,R,59110326272,360448,1577808144360813\n");
    let expect = vec![(0, 'W', 419, 8_792_731_648, 16_384), (46, 'R', 725, 59_110_326_272, 360_448)];
    assert_eq!(alibaba, (TraceFormat::Alibaba, expect));
    let tencent = found(b"1538323200,12910952,128,0,1063\n1538323202,6338688,8,1,1627\n");
    let expect = vec![(0, 'R', 1063, 12_910_952 * 512, 65_536), (2_000_000, 'W', 1627, 6_338_688 * 512, 4096)];
    assert_eq!(tencent, (TraceFormat::Tencent, expect));
}

#[test]
fn binary_formats_are_found_and_read() {
    let oracle = found(&oracle(&[(5, 77, 100, 3), (7, u64::MAX, 4096, -1), (7, 77, 100, i64::MAX)]));
    let expect = vec![(0, 'R', 0, 77, 100), (2_000_000, 'R', 0, u64::MAX, 4096), (2_000_000, 'R', 0, 77, 100)];
    assert_eq!(oracle, (TraceFormat::OracleGeneral, expect));
    for (version, format) in [(1, TraceFormat::Vscsi1), (2, TraceFormat::Vscsi2)] {
        let bytes = [vscsi(version, 0x28, 4096, 8, 100), vscsi(version, 0x8a, 512, 9, 150)].concat();
        assert_eq!(found(&bytes), (format, vec![(0, 'R', 0, 4096, 4096), (50, 'W', 0, 9 * 512, 512)]));
    }
    let queued = |kind: u32| kind << 16 | 1;
    let records = [
        blk(1 << 26 | 1, 1, 0, 16, 12),
        blk(queued(1 << 4 | 1), 1000, 100, 4096, 3),
        blk(1 << 16 | 6, 2000, 100, 4096, 0),
        blk(queued(1 << 4 | 2), 3000, 200, 512, 0),
        blk(queued(1 << 13 | 2), 4000, 0, 1 << 31, 0),
    ];
    let expect = vec![
        (0, 'R', 0x0080_0010, 51_200, 4096),
        (2, 'W', 0x0080_0010, 102_400, 512),
        (3, '-', 0x0080_0010, 0, 1 << 31),
    ];
    assert_eq!(found(&records.concat()), (TraceFormat::Blktrace, expect));
    // of a machine of the other byte order: every number is turned
    let mut turned = records[3].clone();
    for (at, bytes) in [(0, 4), (4, 4), (8, 8), (16, 8), (24, 4), (28, 4), (36, 4), (46, 2)] {
        turned[at..at + bytes].reverse();
    }
    assert_eq!(found(&turned), (TraceFormat::Blktrace, vec![(0, 'W', 0x0080_0010, 102_400, 512)]));
    let keys = read(&[1, 0, 0, 0, 255, 255, 255, 255], Some(TraceFormat::U32)).1.unwrap();
    assert_eq!(keys.iter().map(|request| request.offset).collect::<Vec<_>>(), [1, u64::from(u32::MAX)]);
}

#[test]
fn own_records_come_back() {
    let request = |n: u64, op| TraceRequest {
        time_ns: Some(n * 1000),
        op,
        stream: 54,
        object: n,
        offset: n << 40,
        bytes: if op == TraceOp::Sync { 0 } else { 4096 },
    };
    let requests: Vec<TraceRequest> =
        (0..40).map(|n| request(n, TraceOp::ALL[n as usize % TraceOp::ALL.len()])).collect();
    let mut bytes = Vec::new();
    let mut writer = TraceWriter::new(TraceFormat::Cenote, TraceFormat::Cenote, &mut bytes).unwrap();
    requests.iter().for_each(|request| writer.write(request).unwrap());
    assert_eq!(writer.finish(), Ok(0));
    assert_eq!(read(&bytes, None), (Some(TraceFormat::Cenote), Ok(requests.clone())));
    // files of one number in different datasets, and different files, share no block
    let block = |request: &TraceRequest| request.blocks(4096).next().unwrap().0;
    let (one, other) = (request(1, TraceOp::Read), request(2, TraceOp::Read));
    let other = TraceRequest { offset: one.offset, ..other };
    assert!(block(&one) != block(&other) && block(&one) != block(&TraceRequest { stream: 55, ..one }));
    let mut bad = bytes.clone();
    bad[43] = 9;
    assert_eq!(complaint(&bad, TraceFormat::Cenote), "record 2 at byte 40: an unknown operation: 9");
    bad[40] = b'x';
    assert_eq!(complaint(&bad, TraceFormat::Cenote), "record 2 at byte 40: not a record of cenote trace record");
    assert!(complaint(&bytes[..bytes.len() - 1], TraceFormat::Cenote).contains("the trace is cut off: 39 bytes"));
    let long = TraceRequest { offset: u64::MAX - 5, ..one };
    assert!(complaint(&crate::binary::own(&long), TraceFormat::Cenote).contains("beyond 2^64"));
}

#[test]
fn compressed_traces_are_read() {
    let text: String = (0..100_000).map(|n| format!("{n} 1 0 0\n")).collect();
    let packed = zstd::encode_all(text.as_bytes(), 3).unwrap();
    let (format, requests) = read(&packed, None);
    assert_eq!((format, requests.unwrap().len()), (Some(TraceFormat::Arc), 100_000));
    // cut off: all that is whole is read, then there is an error with a place
    let cut = Cursor::new(packed[..packed.len() / 2].to_vec());
    let read: Vec<_> = TraceReader::new(Box::new(cut), Some(TraceFormat::Arc)).unwrap().collect();
    let error = read.last().unwrap().as_ref().unwrap_err();
    assert!(matches!(error.place, Some(TracePlace::Line(line)) if line as usize == read.len()), "{error}");
}

#[test]
fn bad_input_is_told_with_its_place() {
    let empty = read(b"", None).1.unwrap_err();
    assert_eq!(empty.to_string(), "the trace is empty");
    assert!(read(&zstd::encode_all(&[][..], 1).unwrap(), None).1.unwrap_err().to_string().contains("empty"));
    assert!(read(b"what is this, then", None).1.unwrap_err().to_string().contains("--format"));
    let cases: [(&[u8], TraceFormat, &str); 11] = [
        (b"1 1 0 0\nx 1 0 0\n", TraceFormat::Arc, "line 2: the block is no number below 2^64: x"),
        (b"1 1 0 0\n18446744073709551616 1 0 0\n", TraceFormat::Arc, "line 2: the block is no number below 2^64"),
        (b"18446744073709551615 1 0 0\n", TraceFormat::Arc, "line 1: the block is too large"),
        (b"1\n", TraceFormat::Arc, "line 1: there is no field for the blocks"),
        (b"1,R,18446744073709551615,4096,5\n", TraceFormat::Alibaba, "line 1: the request ends beyond 2^64 bytes"),
        (b"1,R,0,18446744073709551615,5\n", TraceFormat::Alibaba, "line 1: a request of 18446744073709551615 bytes"),
        (b"1,X,0,512,5\n", TraceFormat::Alibaba, "line 1: the operation is neither"),
        (b"1,R,0,512,5\n1,R,0,5", TraceFormat::Alibaba, "line 2: there is no field for the timestamp"),
        (b"18446744073709551615,h,0,Read,0,1,0\n", TraceFormat::Msr, "line 1: the timestamp is too large"),
        (b"\xff\xfe\n", TraceFormat::Lines, "line 1: not text"),
        (&[b'1'; 5000], TraceFormat::Lines, "line 1: the line has more than 4096 bytes"),
    ];
    for (bytes, format, expect) in cases {
        let told = complaint(bytes, format);
        assert!(told.starts_with(expect), "{told}");
    }
    let whole = oracle(&[(1, 1, 1, -1), (1, 2, 1, -1)]);
    let told = complaint(&whole[..40], TraceFormat::OracleGeneral);
    assert_eq!(told, "record 2 at byte 24: the trace is cut off: 16 bytes of a record of 24");
    let record = blk(1 << 16 | 1, 1, 1, 512, 9);
    let told = complaint(&[&record[..], &record[..52]].concat(), TraceFormat::Blktrace);
    assert_eq!(told, "record 2 at byte 57: the trace is cut off behind a record");
    let told = complaint(&[&record[..], &[0; 48]].concat(), TraceFormat::Blktrace);
    assert_eq!(told, "record 2 at byte 57: not a record of blktrace");
    let far = complaint(&vscsi(2, 0x28, 512, u64::MAX, 0), TraceFormat::Vscsi2);
    assert_eq!(far, format!("record 1 at byte 0: the block is too large: {}", u64::MAX));
    let late = complaint(&vscsi(2, 0x28, 512, 0, u64::MAX), TraceFormat::Vscsi2);
    assert!(late.contains("the time is too large"), "{late}");
}

#[test]
fn time_that_goes_backwards_stands_still() {
    let text = "0,R,0,512,5000000\n0,R,0,512,9000000\n0,R,0,512,2000000\n0,R,0,512,8000000\n0,R,0,512,10000000\n";
    let mut reader = TraceReader::new(Box::new(Cursor::new(text)), None).unwrap();
    let times: Vec<u64> = reader.by_ref().map(|request| request.unwrap().time_ns.unwrap() / 1_000_000_000).collect();
    assert_eq!(times, [0, 4, 4, 4, 5]);
    let expect = Backwards { count: 2, first: TracePlace::Line(3), most_ns: 7_000_000_000 };
    assert_eq!(reader.backwards(), Some(expect));
}

#[test]
fn disks_are_bounded() {
    let text: String = (0..70_000).map(|n| format!("5,host,{n},Read,0,512,1\n")).collect();
    assert_eq!(complaint(text.as_bytes(), TraceFormat::Msr), "line 65537: more than 65536 disks");
}

#[test]
fn blocks_of_a_request() {
    let request = |offset: u64, bytes: u64| {
        let request = TraceRequest { time_ns: None, op: TraceOp::Read, stream: 0, object: 0, offset, bytes };
        request.blocks(4096).map(|(block, _)| block).collect::<Vec<u64>>()
    };
    assert_eq!(request(0, 4096), [0]);
    assert_eq!(request(4095, 2), [0, 1]);
    assert_eq!(request(8192, 0), [2]);
    assert_eq!(request(u64::MAX - 4096, 4096), [(1 << 52) - 2, (1 << 52) - 1]);
    let key = TraceRequest { time_ns: None, op: TraceOp::Read, stream: 0, object: 0, offset: 9, bytes: 70_000 };
    assert_eq!(key.blocks(0).collect::<Vec<_>>(), [(9, 70_000)]);
    let other = TraceRequest { stream: 1, ..key };
    assert_ne!(other.blocks(4096).next(), key.blocks(4096).next());
}

#[test]
fn what_is_written_reads_the_same() {
    let text = b"3,W,8192,16384,1000000\n4,R,40960,4096,3000000\n3,R,0,8192,9000000\n";
    let requests = read(text, None).1.unwrap();
    for format in
        [TraceFormat::Alibaba, TraceFormat::Tencent, TraceFormat::Msr, TraceFormat::VscsiCsv, TraceFormat::Arc]
    {
        let mut out = Vec::new();
        let mut writer = TraceWriter::new(TraceFormat::Alibaba, format, &mut out).unwrap();
        requests.iter().for_each(|request| writer.write(request).unwrap());
        let other = TraceRequest { op: TraceOp::Other, ..requests[0] };
        writer.write(&other).unwrap();
        assert_eq!(writer.finish(), Ok(1));
        let again = read(&out, Some(format)).1.unwrap();
        for (one, two) in requests.iter().zip(&again) {
            assert_eq!((one.offset, one.bytes), (two.offset, two.bytes), "{}", format.name());
            if format != TraceFormat::Arc {
                assert_eq!((one.op, one.time_ns), (two.op, two.time_ns), "{}", format.name());
            }
        }
        assert_eq!(again.len(), 3);
    }
    assert!(TraceWriter::new(TraceFormat::Alibaba, TraceFormat::Lines, Vec::new()).is_err());
    assert!(TraceWriter::new(TraceFormat::Alibaba, TraceFormat::Blktrace, Vec::new()).is_err());
}

#[test]
fn names_of_formats() {
    for format in TraceFormat::ALL {
        assert_eq!(TraceFormat::named(format.name()), Some(format));
    }
    assert_eq!(TraceFormat::named("tape"), None);
}

/// Reads any bytes as each format; nothing but requests and one error may come of it.
fn read_as_all(bytes: &[u8]) {
    for format in TraceFormat::ALL.map(Some).into_iter().chain([None]) {
        let Ok(reader) = TraceReader::new(Box::new(Cursor::new(bytes.to_vec())), format) else { continue };
        let mut latest = 0;
        for request in reader {
            let Ok(request) = request else { continue };
            assert!(request.time_ns.is_none_or(|now| now >= latest));
            latest = request.time_ns.unwrap_or(0);
            assert!(request.op == TraceOp::Other || request.blocks(512).take(3).count() > 0);
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        read_as_all(&bytes);
    }

    #[test]
    fn no_lines_panic(text in "([0-9]{1,22}[, ]|[RWx,\n-]){0,80}") {
        read_as_all(text.as_bytes());
    }

    #[test]
    fn damaged_records_do_not_panic(at in 0usize..200, byte in any::<u8>(), cut in 0usize..200) {
        let sound = [
            [vscsi(2, 0x28, 4096, 8, 100), vscsi(2, 0x8a, 512, 9, 150)].concat(),
            [vscsi(1, 0x28, 4096, 8, 100), vscsi(1, 0x8a, 512, 9, 150)].concat(),
            [blk(1 << 16 | 1, 5, 8, 512, 7), blk(1 << 16 | 1, 6, 9, 512, 0)].concat(),
            oracle(&[(1, 2, 3, -1), (2, 3, 4, -1)]),
            zstd::encode_all(&b"1 1 0 0\n2 1 0 0\n"[..], 3).unwrap(),
        ];
        for mut bytes in sound {
            let len = bytes.len();
            bytes[at % len] = byte;
            bytes.truncate(len - cut % len);
            read_as_all(&bytes);
        }
    }
}
