//! Bytes, sizes, holes, times.

use super::*;

use base::{AlignedBuf, Block, Data};

fn set_size(fs: &Fs, ino: ObjectId, size: u64) -> Result<Stat> {
    fs.zpl.set_attr(ino, &SetAttr { size: Some(size), ..SetAttr::default() })
}

#[test]
fn blocks_of_small_files_grow() {
    let fs = fs();
    let ino = fs.file(fs.root, "f");
    let file = fs.zpl.open_file(ino).unwrap();
    let sizes = [(1, 512), (600, 1024), (70_000, 70_144), (131_000, 131_072), (131_072, 131_072), (900_000, 131_072)];
    let mut expect = Vec::new();
    for (len, block_size) in sizes {
        let more = vec![len as u8; len - expect.len()];
        assert_eq!(file.append(&more).unwrap(), expect.len() as u64);
        expect.extend(more);
        let stat = fs.stat(ino);
        assert_eq!((stat.size, stat.block_size), (len as u64, block_size), "{len}");
        assert_eq!(fs.contents(ino), expect);
    }
    let other = fs.file(fs.root, "g");
    fs.zpl.open_file(other).unwrap().write(0, &[3; 1 << 20]).unwrap();
    assert_eq!(fs.stat(other).block_size, 128 << 10);
    // made when records were larger, and not of a size that many blocks can have
    let third = fs.file(fs.root, "h");
    fs.zpl.open_file(third).unwrap().write(0, &[3; 70_000]).unwrap();
    fs.zpl.set_options(ZplOptions { record_bytes: 4096, ..ZplOptions::default() }).unwrap();
    fs.zpl.open_file(third).unwrap().append(&[4; 200_000]).unwrap();
    assert_eq!((fs.stat(third).block_size, fs.contents(third)[70_000]), (128 << 10, 4));
    let fourth = fs.file(fs.root, "i");
    fs.zpl.open_file(fourth).unwrap().write(10_000, &[3; 10]).unwrap();
    assert_eq!((fs.stat(fourth).block_size, fs.stat(fourth).size), (4096, 10_010));
}

#[test]
fn data_that_come_in_blocks() {
    const RECORD: usize = 128 << 10;
    let fs = fs();
    let ino = fs.file(fs.root, "f");
    let file = fs.zpl.open_file(ino).unwrap();
    let mut blocks: Vec<Block> = (1..=4u8).map(|n| AlignedBuf::from(&vec![n; RECORD][..]).into()).collect();
    let mut model = vec![0; 9 * RECORD];
    // whole records, parts of some, a new end
    for (at, len) in [(0, 2 * RECORD), (4 * RECORD, 3 * RECORD + 7), (100, RECORD), (8 * RECORD, 5)] {
        assert_eq!(file.write(at as u64, Data::in_blocks(&blocks, len)).unwrap(), len);
        model[at..at + len].copy_from_slice(&Data::in_blocks(&blocks, len).to_vec());
    }
    model.truncate(8 * RECORD + 5);
    assert!(fs.contents(ino) == model);
    let shares =
        |n: usize| file.read_pieces((4 + n as u64) << 17, RECORD, false).unwrap()[0].as_ptr() == blocks[n].as_ptr();
    assert_eq!([0, 1, 2, 3].map(shares), [true, true, true, false], "only whole records are taken as they are");
    // what is shared by now belongs to the file, and its next change to a copy
    file.write(4 * RECORD as u64 + 9, b"x").unwrap();
    model[4 * RECORD + 9] = b'x';
    assert!(blocks[0].iter().all(|&b| b == 1) && blocks[1].get_mut().is_none());
    drop(blocks);
    assert!(fs.contents(ino) == model);
    fs.sync(|| {});
    assert!(fs.contents(ino) == model);
}

#[test]
fn cut_off_and_made_longer() {
    let fs = fs();
    let ino = fs.file(fs.root, "f");
    let file = fs.zpl.open_file(ino).unwrap();
    file.write(0, &vec![7; 300_000]).unwrap();
    assert_eq!(set_size(&fs, ino, 150_000).unwrap().size, 150_000);
    set_size(&fs, ino, 300_000).unwrap();
    let bytes = fs.contents(ino);
    assert!(bytes[..150_000].iter().all(|&b| b == 7) && bytes[150_000..].iter().all(|&b| b == 0));
    set_size(&fs, ino, 0).unwrap();
    assert_eq!(fs.contents(ino), b"");
    assert_eq!(file.read(0, &mut [0; 9]).unwrap(), 0);
    set_size(&fs, ino, i64::MAX as u64).unwrap();
    assert_eq!(file.size(), i64::MAX as u64);
    assert_eq!(kind(set_size(&fs, ino, 1 << 63)), Kind::TooBig);
    assert_eq!(file.write(i64::MAX as u64 - 2, b"abc").unwrap(), 2);
    assert_eq!(kind(file.write(i64::MAX as u64, b"c")), Kind::TooBig);
    let mut end = [0; 4];
    assert_eq!((file.read(i64::MAX as u64 - 3, &mut end).unwrap(), &end[..3]), (3, &b"\0ab"[..]));
    assert_eq!(kind(set_size(&fs, fs.root, 0)), Kind::IsDirectory);
    let pipe = fs.zpl.create(fs.root, b"p", &new(NewKind::Fifo, 0o600)).unwrap().ino;
    assert_eq!(kind(set_size(&fs, pipe, 0)), Kind::Invalid);
    assert_eq!(kind(fs.zpl.open_file(fs.root).map(drop)), Kind::IsDirectory);
}

#[test]
fn what_is_done_is_counted() {
    let fs = fs();
    let (ino, other) = (fs.file(fs.root, "f"), fs.file(fs.root, "g"));
    let file = fs.zpl.open_file(ino).unwrap();
    assert_eq!(fs.zpl.counters().sums(), Counts::default(), "names alone do not count");
    file.write(0, &vec![7; 300_000]).unwrap();
    file.append(b"abc").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| file.read(0, &mut [0; 1000]).unwrap());
        }
    });
    file.read_pieces(300_000, 1000, false).unwrap();
    let used = Counts { reads: 41, read_bytes: 40_003, writes: 2, written_bytes: 300_003, ..Counts::default() };
    assert_eq!(fs.zpl.counters().sums(), used);
    assert_eq!(kind(file.write(u64::MAX, b"c")), Kind::TooBig);
    assert_eq!(fs.zpl.counters().sums(), used, "what failed does not count");

    assert_eq!(fs.zpl.unlink(fs.root, b"f").unwrap(), Some(ino));
    fs.zpl.unlink(fs.root, b"g").unwrap();
    assert_eq!(fs.zpl.counters().sums(), Counts { unlinks: 2, ..used });
    fs.zpl.reclaim(other).unwrap();
    assert_eq!(fs.zpl.counters().sums(), Counts { unlinks: 2, unlinked: 1, ..used });
    fs.sync(|| {});
    assert_eq!(fs.reopened().zpl.counters().sums(), Counts::default());
}

#[test]
fn holes() {
    let fs = fs();
    let ino = fs.file(fs.root, "f");
    let file = fs.zpl.open_file(ino).unwrap();
    let record = 128 << 10;
    file.write(0, &vec![1; 3 * record as usize]).unwrap();
    file.write(10 * record, &[2; 100]).unwrap();
    assert_eq!(file.seek_hole(0).unwrap(), Some(3 * record));
    assert_eq!(file.seek_data(3 * record + 5).unwrap(), Some(10 * record));
    assert_eq!(file.seek_hole(10 * record).unwrap(), Some(10 * record + 100));
    assert_eq!((file.seek_data(10 * record + 100).unwrap(), file.seek_hole(11 * record).unwrap()), (None, None));

    file.allocate(Allocate::PunchHole, record - 10, record + 20).unwrap();
    assert_eq!(file.seek_hole(0).unwrap(), Some(record));
    assert_eq!(file.seek_data(record).unwrap(), Some(2 * record));
    let bytes = fs.contents(ino);
    let (from, to) = (record as usize - 10, 2 * record as usize + 10);
    assert!(bytes[..from].iter().all(|&b| b == 1) && bytes[from..to].iter().all(|&b| b == 0) && bytes[to] == 1);

    let size = 10 * record + 100;
    file.allocate(Allocate::PunchHole, size - 50, 10 * record).unwrap();
    assert_eq!(file.size(), size);
    file.allocate(Allocate::ZeroRange { keep_size: true }, size - 60, 1000).unwrap();
    assert_eq!(file.size(), size);
    file.allocate(Allocate::ZeroRange { keep_size: false }, size, 1000).unwrap();
    assert_eq!(file.size(), size + 1000);
    file.allocate(Allocate::Reserve { keep_size: true }, 0, 1 << 40).unwrap();
    file.allocate(Allocate::Reserve { keep_size: false }, size, 2000).unwrap();
    assert_eq!(file.size(), size + 2000);
    assert_eq!(fs.contents(ino)[size as usize - 61], 2);
    assert_eq!(kind(file.allocate(Allocate::PunchHole, 0, 0)), Kind::Invalid);
    assert_eq!(kind(file.allocate(Allocate::Reserve { keep_size: false }, 1, u64::MAX)), Kind::TooBig);
}

#[test]
fn copies() {
    let fs = fs();
    let (one, two) = (fs.file(fs.root, "1"), fs.file(fs.root, "2"));
    let (from, to) = (fs.zpl.open_file(one).unwrap(), fs.zpl.open_file(two).unwrap());
    let bytes: Vec<u8> = (0..2_500_000u32).map(|n| (n / 7) as u8).collect();
    from.write(0, &bytes).unwrap();
    assert_eq!(to.copy_from(5, &from, 3, u64::MAX).unwrap(), bytes.len() as u64 - 3);
    assert_eq!(fs.contents(two)[5..], bytes[3..]);
    assert_eq!(to.copy_from(0, &from, 1 << 40, 10).unwrap(), 0);
}

#[test]
fn times_and_owners() {
    let fs = fs();
    let ino = fs.file(fs.root, "f");
    let set = SetAttr {
        uid: Some(1),
        gid: Some(2),
        atime: Some(SetTime::At(-5, 999)),
        mtime: Some(SetTime::At(6, 7)),
        ctime: Some((8, 9)),
        ..SetAttr::default()
    };
    let stat = fs.zpl.set_attr(ino, &set).unwrap();
    assert_eq!((stat.uid, stat.gid), (1, 2));
    assert_eq!((stat.atime, stat.mtime, stat.ctime), ((-5, 999), (6, 7), (8, 9)));
    assert_eq!(stat.btime, (NOW_S as i64, 0));
    fs.zpl.touch_atime(ino, (10, 11)).unwrap();
    assert_eq!((fs.stat(ino).atime, fs.stat(ino).ctime), ((10, 11), (8, 9)));
    fs.zpl.open_file(ino).unwrap().write(0, b"x").unwrap();
    assert_eq!((fs.stat(ino).mtime, fs.stat(ino).ctime), ((NOW_S as i64, 0), (NOW_S as i64, 0)));
    // room that is asked for changes nothing, unless the file grows
    fs.zpl.set_attr(ino, &SetAttr { mtime: Some(SetTime::At(6, 7)), ..SetAttr::default() }).unwrap();
    let file = fs.zpl.open_file(ino).unwrap();
    file.allocate(Allocate::Reserve { keep_size: true }, 0, 1 << 20).unwrap();
    assert_eq!(fs.stat(ino).mtime, (6, 7));
    file.allocate(Allocate::Reserve { keep_size: false }, 0, 1 << 20).unwrap();
    assert_eq!(fs.stat(ino).mtime, (NOW_S as i64, 0));
    let stat = |atime, mtime| Stat { atime: (atime, 0), mtime: (mtime, 0), ctime: (0, 0), ..fs.stat(ino) };
    assert!(is_atime_due(&stat(5, 5), 6) && !is_atime_due(&stat(6, 5), 7) && is_atime_due(&stat(6, 5), 90_000));
}

#[test]
fn modes_change_the_acl() {
    let fs = fs();
    let ino = fs.file(fs.root, "f");
    for mode in [0o000, 0o644, 0o4755, 0o070, 0o777] {
        let stat = fs.zpl.set_attr(ino, &SetAttr { mode: Some(mode), ..SetAttr::default() }).unwrap();
        assert_eq!((stat.mode, stat.kind), (mode, FileKind::File));
        assert_eq!(stat.flags & 0x100 != 0, mode & 0o111 == 0o111);
        assert_eq!(fs.zpl.acl(ino).unwrap().unwrap(), format::acl::Acl::trivial(0o100000 | mode, false));
    }
}

/// A room in which some more bytes may be written, or a portion if it is larger.
struct SomeRoom(u64);

impl Room for SomeRoom {
    fn admit(&self, _bytes: u64, _frees: bool) -> Result<()> {
        Ok(())
    }

    fn admit_some(&self, bytes: u64, portion: u64) -> Result<u64> {
        match self.0 {
            0 => Err(base::Error::new(Kind::NoSpace, "full")),
            room => Ok(room.max(portion).min(bytes)),
        }
    }
}

#[test]
fn a_write_takes_the_room_that_there_is_in_records() {
    let fs = fs();
    let file = fs.zpl.open_file(fs.file(fs.root, "f")).unwrap();
    let room = |bytes, record_bytes| {
        let room = Arc::new(SomeRoom(bytes));
        fs.zpl.set_options(ZplOptions { room, record_bytes, ..ZplOptions::default() }).unwrap();
    };
    room(9000, 4096);
    let data: Vec<u8> = (0..20_000u32).map(|n| n as u8).collect();
    let op = |offset, len| fs.zpl.begin_some(offset, len).unwrap().1;
    // up to the end of a record, if there is one in what fits
    assert_eq!((op(0, 20_000), op(4096, 20_000), op(100, 20_000), op(0, 9000)), (8192, 8192, 8092, 9000));
    room(1000, 4096);
    assert_eq!((op(0, 20_000), op(1, 20_000), op(4095, 20_000), op(5, 7)), (4096, 4095, 1, 7));
    // the room is the same for each step here: all is written
    assert_eq!((file.write(0, &data[..]).unwrap(), file.size()), (20_000, 20_000));
    room(0, 4096);
    assert_eq!(kind(file.write(0, &data[..])), Kind::NoSpace);
    let mut read = vec![0; 20_000];
    assert_eq!((file.read(0, &mut read).unwrap(), read), (20_000, data));
}
