//! A pool of one disk in memory, with blocks written by hand.

use std::collections::HashMap;
use std::sync::Arc;

use base::{Block, Bookmark, Endian, Env, Kind};
use codec::checksum::{self, Checksum, embedded};
use codec::compress::{self, Compress};
use device::{Device, MemDevice};
use format::blkptr::{BlkPtr, Dva};
use format::ids::{Guid, Txg, VdevNumber};
use format::nvlist::{NvList, Value};
use format::object_type::ObjectType;
use vdev::{Tree, VdevSpec};

use super::*;
use crate::issue::{BlockSlice, ExtentWrite};

const FRONT: usize = 4 << 20;
const DISK_SIZE: usize = 64 << 20;
const BIRTH: u64 = 7;

/// What a block pointer says, before it is one.
#[derive(Clone, Copy)]
struct Draft {
    offsets: [Option<u64>; 3],
    gang: bool,
    lsize: u64,
    psize: u64,
    compress: Compress,
    checksum: Checksum,
    sum: [u64; 4],
    kind: ObjectType,
    level: u64,
    crypt: bool,
    endian: Endian,
}

impl Draft {
    fn pointer(self) -> BlkPtr {
        let mut words = [0u64; 16];
        for (i, offset) in self.offsets.iter().enumerate() {
            if let Some(offset) = offset {
                words[2 * i] = self.psize >> 9;
                words[2 * i + 1] = offset >> 9 | u64::from(self.gang) << 63;
            }
        }
        words[6] = (self.lsize >> 9) - 1
            | ((self.psize >> 9) - 1) << 16
            | (self.compress as u64) << 32
            | (self.checksum as u64) << 40
            | u64::from(self.kind.0) << 48
            | self.level << 56
            | u64::from(self.crypt) << 61
            | u64::from(self.endian == Endian::Little) << 63;
        words[10] = BIRTH;
        words[11] = 1;
        words[12..].copy_from_slice(&self.sum);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        BlkPtr::parse(&bytes).unwrap()
    }
}

struct Disk {
    bytes: Vec<u8>,
    ashift: u64,
}

impl Disk {
    fn new() -> Disk {
        Disk { bytes: vec![0; DISK_SIZE], ashift: 9 }
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) {
        let at = FRONT + offset as usize;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Writes a block of file data as it is at all of `offsets`.
    fn write(&mut self, offsets: [Option<u64>; 3], bytes: &[u8]) -> Draft {
        for offset in offsets.into_iter().flatten() {
            self.put(offset, bytes);
        }
        Draft {
            offsets,
            gang: false,
            lsize: bytes.len() as u64,
            psize: bytes.len() as u64,
            compress: Compress::Off,
            checksum: Checksum::Fletcher4,
            sum: checksum::compute(Checksum::Fletcher4, Endian::Little, &[0; 32], bytes),
            kind: ObjectType::PLAIN_FILE_CONTENTS,
            level: 0,
            crypt: false,
            endian: Endian::Little,
        }
    }

    /// Writes a gang header with these members for a block of `size` bytes.
    fn write_gang(&mut self, offset: u64, members: &[BlkPtr], size: u64) -> Draft {
        self.write_gang_header(512, offset, members, size)
    }

    fn write_gang_header(&mut self, len: usize, offset: u64, members: &[BlkPtr], size: u64) -> Draft {
        let mut header = vec![0; len];
        for (i, member) in members.iter().enumerate() {
            header[i * 128..(i + 1) * 128].copy_from_slice(zerocopy_bytes(member));
        }
        let verifier = [0, offset, BIRTH, 0];
        embedded::seal(Checksum::GangHeader, Endian::Little, &verifier, &mut header).unwrap();
        let mut draft = self.write([None; 3], &vec![0; size as usize]);
        self.put(offset, &header);
        draft.offsets[0] = Some(offset);
        draft.gang = true;
        draft
    }

    fn zio(self) -> Zio {
        let text = |s: &str| Value::Str(s.to_owned());
        let mut leaf = NvList::new();
        leaf.set("type", text("disk"));
        leaf.set("path", text("disk"));
        leaf.set("id", Value::U64(0));
        leaf.set("guid", Value::U64(11));
        leaf.set("ashift", Value::U64(self.ashift));
        leaf.set("asize", Value::U64((DISK_SIZE - FRONT - (512 << 10)) as u64));
        let mut root = NvList::new();
        root.set("type", text("root"));
        root.set("id", Value::U64(0));
        root.set("guid", Value::U64(1));
        root.set("children", Value::Lists(vec![leaf]));
        let device: Arc<dyn Device> = Arc::new(MemDevice::new("disk", self.bytes));
        let tree = Tree::open(VdevSpec::parse_root(&root).unwrap(), &HashMap::from([(Guid::new(11), device)])).unwrap();
        Zio::new(Arc::new(tree), Env::fixed(0))
    }
}

fn zerocopy_bytes(bp: &BlkPtr) -> &[u8] {
    zerocopy::IntoBytes::as_bytes(bp)
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 32) as u8
        })
        .collect()
}

fn request(bp: BlkPtr) -> ReadRequest {
    ReadRequest { bp, bookmark: Bookmark { objset: 3, object: 5, level: 0, blkid: 9 }, mode: Mode::Plain }
}

fn read(zio: &Zio, bp: BlkPtr) -> Result<Vec<u8>, base::Error> {
    zio.read(request(bp)).map(|buf| buf.to_vec())
}

#[test]
fn a_batch_of_everything() {
    let mut disk = Disk::new();
    let plain = noise(1, 4096);
    let text = vec![b'x'; 131_072];
    let mut packed = vec![0; text.len()];
    let n = compress::compress(Compress::Lz4, 0, &text, &mut packed).unwrap().next_multiple_of(512);
    let one = disk.write([Some(0), None, None], &plain);
    let mut two = disk.write([Some(8192), None, None], &packed[..n]);
    two.lsize = text.len() as u64;
    two.compress = Compress::Lz4;
    let zio = disk.zio();
    let results = zio.read_batch(&[one.pointer(), two.pointer(), BlkPtr::HOLE, one.pointer()].map(request));
    let bytes: Vec<&[u8]> = results.iter().map(|result| &**result.as_ref().unwrap()).collect();
    assert_eq!(bytes, [&plain[..], &text, &[0; 512], &plain]);
}

#[test]
fn the_second_copy_serves_when_the_first_is_wrong() {
    let mut disk = Disk::new();
    let data = noise(2, 8192);
    let draft = disk.write([Some(0), Some(65_536), None], &data);
    disk.put(100, b"rot");
    let zio = disk.zio();
    assert_eq!(read(&zio, draft.pointer()).unwrap(), data);
    assert_eq!(zio.tree().root().children().len(), 1);
}

#[test]
fn rot_everywhere_is_a_checksum_error_with_its_place() {
    let mut disk = Disk::new();
    let draft = disk.write([Some(0), Some(65_536), None], &noise(3, 8192));
    disk.put(100, b"rot");
    disk.put(65_536 + 8000, b"rot");
    let e = read(&disk.zio(), draft.pointer()).unwrap_err();
    assert_eq!(e.kind(), Kind::Checksum);
    assert!(e.to_string().contains("objset 3 object 5 level 0 block 9"), "{e}");
}

#[test]
fn gang_blocks_nest() {
    let mut disk = Disk::new();
    let data = noise(4, 5 * 1024);
    let parts: Vec<BlkPtr> = data
        .chunks(1024)
        .enumerate()
        .map(|(i, part)| disk.write([Some(i as u64 * 4096), None, None], part).pointer())
        .collect();
    let inner = disk.write_gang(1 << 20, &parts[2..], 3 * 1024).pointer();
    let mut outer = disk.write_gang(2 << 20, &[parts[0], parts[1], inner], 5 * 1024);
    outer.sum = checksum::compute(Checksum::Fletcher4, Endian::Little, &[0; 32], &data);
    assert_eq!(read(&disk.zio(), outer.pointer()).unwrap(), data);
}

/// On sectors of 4 KiB, headers of both lengths.
#[test]
fn gang_headers_as_long_as_a_sector() {
    let mut disk = Disk { ashift: 12, ..Disk::new() };
    let data = noise(5, 31 * 4096);
    let parts: Vec<BlkPtr> = (8u64..)
        .zip(data.chunks(4096))
        .map(|(i, part)| disk.write([Some(i * 4096), None, None], part).pointer())
        .collect();
    let short = disk.write_gang(1 << 20, &parts[28..], 3 * 4096).pointer();
    let members: Vec<BlkPtr> = parts[..28].iter().copied().chain([short]).collect();
    let mut long = disk.write_gang_header(4096, 2 << 20, &members, data.len() as u64);
    long.sum = checksum::compute(Checksum::Fletcher4, Endian::Little, &[0; 32], &data);
    assert_eq!(read(&disk.zio(), long.pointer()).unwrap(), data);
}

/// As OpenZFS writes them: the header's sum folded into two words, the members not encrypted once more.
#[test]
fn gang_blocks_of_encrypted_data() {
    let mut disk = Disk::new();
    let data = noise(8, 2048);
    let parts: Vec<BlkPtr> = (0..2)
        .map(|i| disk.write([Some(i * 4096), None, None], &data[i as usize * 1024..][..1024]).pointer())
        .collect();
    let at = 1 << 20;
    let mut draft = disk.write_gang(at, &parts, 2048);
    let header = &mut disk.bytes[FRONT + at as usize..][..512];
    let sum = embedded::inspect(Checksum::GangHeader, &[0, at, BIRTH, 0], header).unwrap().computed;
    for (bytes, word) in header[480..].chunks_mut(8).zip([sum[0] ^ sum[2], sum[1] ^ sum[3], 0, 0]) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    draft.crypt = true;
    let cut = Checksum::Fletcher4.cut_for_mac(checksum::compute(Checksum::Fletcher4, Endian::Little, &[0; 32], &data));
    draft.sum = [cut[0], cut[1], 0xaaaa, 0xbbbb];
    let raw = ReadRequest { mode: Mode::Raw, ..request(draft.pointer()) };
    assert_eq!(&*disk.zio().read(raw).unwrap(), &data[..]);
}

#[test]
fn a_gang_that_contains_itself_ends() {
    let mut disk = Disk::new();
    let me = disk.write_gang(0, &[], 1024).pointer();
    let again = disk.write_gang(0, &[me], 1024).pointer();
    assert_eq!(read(&disk.zio(), again).unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn members_that_do_not_add_up_are_refused() {
    let mut disk = Disk::new();
    let part = disk.write([Some(0), None, None], &noise(5, 1024)).pointer();
    for (count, size) in [(1, 2048), (3, 2048)] {
        let gang = disk.write_gang(1 << 20, &vec![part; count], size).pointer();
        let mut other = Disk { bytes: disk.bytes.clone(), ..disk };
        other.put(4 << 20, &[0]);
        assert_eq!(read(&other.zio(), gang).unwrap_err().kind(), Kind::Corrupt);
    }
}

#[test]
fn indirect_blocks_of_foreign_order_are_turned() {
    let mut disk = Disk::new();
    let words: Vec<u64> = (0..128).collect();
    let be: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    let mut draft = disk.write([Some(0), None, None], &be);
    draft.level = 1;
    draft.endian = Endian::Big;
    draft.sum = checksum::compute(Checksum::Fletcher4, Endian::Big, &[0; 32], &be);
    let le: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(read(&disk.zio(), draft.pointer()).unwrap(), le);
}

#[test]
fn what_is_encrypted_is_not_contents() {
    let mut disk = Disk::new();
    let data = noise(6, 4096);
    let mut draft = disk.write([Some(0), None, None], &data);
    draft.crypt = true;
    let cut = Checksum::Fletcher4.cut_for_mac(draft.sum);
    draft.sum = [cut[0], cut[1], 0xaaaa, 0xbbbb];
    let zio = disk.zio();
    assert_eq!(read(&zio, draft.pointer()).unwrap_err().kind(), Kind::Encrypted);
    let raw = ReadRequest { mode: Mode::Raw, ..request(draft.pointer()) };
    assert_eq!(&*zio.read(raw).unwrap(), &data[..]);
}

#[test]
fn pointers_that_make_no_sense_are_errors() {
    let mut disk = Disk::new();
    let good = disk.write([Some(0), None, None], &noise(7, 4096));
    let zio = disk.zio();
    let beyond = Draft { offsets: [Some(1 << 40), None, None], ..good };
    let nowhere = Draft { offsets: [None, None, None], ..good };
    let smaller = Draft { lsize: 512, ..good };
    for draft in [beyond, smaller] {
        let result = read(&zio, draft.pointer());
        assert!(result.is_err(), "{:?}", draft.pointer());
    }
    assert_eq!(read(&zio, nowhere.pointer()).unwrap().len(), 4096, "no address is a hole");
    let mut bytes = zerocopy_bytes(&good.pointer()).to_vec();
    for at in 0..128 {
        for bit in 0..8 {
            bytes[at] ^= 1 << bit;
            let _ = read(&zio, BlkPtr::parse(&bytes).unwrap());
            bytes[at] ^= 1 << bit;
        }
    }
}

#[test]
fn a_check_looks_at_every_copy() {
    let mut disk = Disk::new();
    let data = noise(8, 4096);
    let whole = disk.write([Some(0), Some(65_536), None], &data).pointer();
    let torn = disk.write([Some(8192), Some(131_072), Some(1 << 20)], &noise(9, 2048)).pointer();
    disk.put(131_072 + 77, b"rot");
    let parts: Vec<BlkPtr> = data
        .chunks(2048)
        .zip([2, 3])
        .map(|(part, i)| disk.write([Some(i << 20), None, None], part).pointer())
        .collect();
    let mut gang = disk.write_gang(4 << 20, &parts, 4096);
    let wrong_sum = gang.pointer();
    gang.sum = checksum::compute(Checksum::Fletcher4, Endian::Little, &[0; 32], &data);
    let beyond = Draft { offsets: [Some(1 << 40), None, None], ..gang }.pointer();
    let bookmark = Bookmark { objset: 3, object: 5, level: 0, blkid: 9 };
    let blocks = [whole, torn, gang.pointer(), wrong_sum, beyond, BlkPtr::HOLE].map(|bp| (bp, bookmark));
    let results = disk.zio().verify_batch(&blocks);
    let good: Vec<Vec<bool>> = results.iter().map(|copies| copies.iter().map(|copy| copy.is_ok()).collect()).collect();
    let expect = [&[true, true][..], &[true, false, true], &[true], &[false], &[false], &[]];
    assert_eq!(good, expect);
    let e = results[1][1].as_ref().unwrap_err();
    assert_eq!((e.kind(), e.place().bookmark), (Kind::Checksum, Some(bookmark)));
}

/// The thread that writes sleeps when a call comes with more than may wait.
#[test]
fn much_at_once_is_written() {
    let zio = Disk::new().zio();
    let (env, block) = (Env::real(), Block::zeroed(1 << 20));
    let write = |n: u64| {
        let dva = Dva::new(VdevNumber::new(0), (n % 32) << 20, 1 << 20, false);
        let bytes = BlockSlice::new(block.clone(), 0..1 << 20);
        ExtentWrite::new(&dva, 1 << 20, Txg::new(1), bytes, Bookmark::default())
    };
    zio.queue().push(&env, vec![write(0)]);
    zio.queue().finish().unwrap();
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            zio.queue().push(&env, (0..200).map(write).collect());
            done.send(zio.queue().finish()).unwrap();
        });
        // one that is stuck would never end
        let outcome = is_done.recv_timeout(std::time::Duration::from_secs(120));
        outcome.unwrap_or_else(|_| std::process::abort()).unwrap();
    });
}
