//! A file, and what must be in it.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate};
use testkit::rng::Rng;

use super::super::opens::Mapped;

/// Files are about so long at most.
const LEN: u64 = 400_000;
/// What a transfer past the kernel's cache begins at, and ends at.
const ALIGNED: u64 = 4096;
/// As many changes may wait for a sync: each is a copy of the file.
const UNSYNCED_MAX: usize = 40;

/// What may be found in a file.
pub(super) struct Contents {
    now: Vec<u8>,
    /// When it was last brought to disk, and after each change since.
    since: Vec<Vec<u8>>,
}

impl Contents {
    fn change(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.now);
        self.since.push(self.now.clone());
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        let at = at as usize;
        self.change(|now| {
            now.resize(now.len().max(at + bytes.len()), 0);
            now[at..at + bytes.len()].copy_from_slice(bytes);
        });
    }

    fn synced(&mut self) {
        self.since = vec![self.now.clone()];
    }

    /// Panics unless each byte, and the length, is one that was there since the last sync.
    fn may_be(&self, found: &[u8], told: &str) {
        let lens = || self.since.iter().map(Vec::len);
        let (least, most) = (lens().min().unwrap_or(0), lens().max().unwrap_or(0));
        assert!((least..=most).contains(&found.len()), "{told}: {} bytes, not {least} to {most}", found.len());
        for (number, piece) in found.chunks(4096).enumerate() {
            let at = number * 4096;
            let whole = |bytes: &Vec<u8>| bytes.get(at..at + piece.len()) == Some(piece);
            if self.since.iter().any(whole) {
                continue;
            }
            let was = |at: usize, byte: u8| self.since.iter().any(|bytes| bytes.get(at).copied().unwrap_or(0) == byte);
            let wrong = piece.iter().enumerate().find(|&(place, &byte)| !was(at + place, byte));
            assert_eq!(wrong, None, "{told}: in the bytes from {at} on, with {} changes", self.since.len());
        }
    }
}

/// Panics with the first difference.
pub(super) fn is_same(found: &[u8], expect: &[u8], told: &str) {
    assert_eq!(found.len(), expect.len(), "{told}: length");
    let differs = found.iter().zip(expect).position(|(found, expect)| found != expect);
    if let Some(at) = differs {
        let [found, expect] = [found, expect].map(|bytes| &bytes[at..bytes.len().min(at + 16)]);
        panic!("{told}: at {at}: {found:?}, not {expect:?}");
    }
}

/// Memory for a transfer past the kernel's cache.
fn aligned(len: usize) -> (Vec<u8>, usize) {
    let room = vec![0; len + ALIGNED as usize];
    let at = room.as_ptr().align_offset(ALIGNED as usize);
    (room, at)
}

/// A file that is written, and beside it what must be in it.
pub(super) struct Written {
    path: PathBuf,
    mode: String,
    contents: Contents,
    opened: Option<File>,
    mapped: Option<Mapped>,
}

impl Written {
    /// Makes it, empty and on disk.
    pub(super) fn create(path: PathBuf, mode: &str) -> Written {
        let contents = Contents { now: Vec::new(), since: vec![Vec::new()] };
        File::create_new(&path).unwrap().sync_all().unwrap();
        Written { path, mode: mode.to_owned(), contents, opened: None, mapped: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn contents(&self) -> &[u8] {
        &self.contents.now
    }

    /// The file, open.
    pub(super) fn open(&mut self) -> &File {
        let Written { opened, path, .. } = self;
        opened.get_or_insert_with(|| OpenOptions::new().read(true).write(true).open(path).unwrap())
    }

    pub(super) fn close(&mut self) {
        self.mapped = None;
        self.opened = None;
    }

    /// All of it has been replaced, and may have been nothing meanwhile.
    pub(super) fn replaced(&mut self, bytes: Vec<u8>) {
        self.contents.change(Vec::clear);
        self.contents.change(|now| *now = bytes);
    }

    /// It was rolled back to this, which is on disk.
    pub(super) fn is_again(&mut self, bytes: Vec<u8>) {
        self.contents.now = bytes;
        self.contents.synced();
    }

    /// After a crash: nothing that was brought to disk is lost, and nothing is there that never was.
    pub(super) fn is_what_was_promised(&mut self, told: &str) {
        let found = fs::read(&self.path).unwrap();
        self.contents.may_be(&found, &format!("{told}: {}", self.path.display()));
        self.is_again(found);
    }

    /// Takes a part of another file.
    pub(super) fn copied(&mut self, from: &File, (offset, len): (u64, u64), at: u64, source: &[u8]) {
        let end = source.len().min((offset + len) as usize);
        let bytes = source.get(offset as usize..end).unwrap_or_default();
        let (mut from_at, mut to_at) = (offset, at);
        while to_at < at + bytes.len() as u64 {
            let left = at + bytes.len() as u64 - to_at;
            let done = copy_file_range(from, Some(&mut from_at), self.open(), Some(&mut to_at), left as usize);
            assert!(done.unwrap() > 0, "it ended early at {to_at}");
        }
        if !bytes.is_empty() {
            self.contents.put(at, bytes);
        }
    }

    /// Changes the file in one way or another, which is told.
    pub(super) fn change(&mut self, rng: &mut Rng) -> String {
        if self.contents.since.len() > UNSYNCED_MAX {
            return self.sync(true);
        }
        let longest = if rng.below(3) == 0 { LEN / 2 } else { 9000 };
        let (at, len) = (rng.below(LEN), 1 + rng.below(longest));
        let bytes = filled(rng, len);
        match rng.below(16) {
            0..3 => {
                self.open().write_all_at(&bytes, at).unwrap();
                self.contents.put(at, &bytes);
                format!("write {len} at {at}")
            }
            3 => {
                let end = self.contents.now.len() as u64;
                let mut file = OpenOptions::new().append(true).open(&self.path).unwrap();
                std::io::Write::write_all(&mut file, &bytes[..bytes.len().min(9000)]).unwrap();
                self.contents.put(end, &bytes[..bytes.len().min(9000)]);
                format!("append at {end}")
            }
            4..7 => self.store(rng, &bytes),
            7..9 => self.write_direct(at, &bytes),
            9..12 => self.allocate(rng, at, len),
            12 => {
                self.open().set_len(at).unwrap();
                self.contents.change(|now| now.resize(at as usize, 0));
                format!("truncate to {at}")
            }
            13 => match rng.below(3) {
                0 => {
                    OpenOptions::new().write(true).truncate(true).open(&self.path).unwrap();
                    self.contents.change(Vec::clear);
                    "open with O_TRUNC".to_owned()
                }
                _ => {
                    self.close();
                    "close".to_owned()
                }
            },
            _ => self.sync(rng.below(2) == 0),
        }
    }

    fn sync(&mut self, data_only: bool) -> String {
        let file = self.open();
        if data_only { file.sync_data() } else { file.sync_all() }.unwrap();
        self.contents.synced();
        "sync".to_owned()
    }

    /// Stores into a mapping, which may stay.
    fn store(&mut self, rng: &mut Rng, bytes: &[u8]) -> String {
        let size = self.contents.now.len() as u64;
        let keeps = rng.below(2) == 0;
        if size == 0 {
            return "nothing to map".to_owned();
        }
        let mapped = match self.mapped.take() {
            Some(mapped) => Some(mapped),
            None => Mapped::new(self.open(), size as usize),
        };
        // some kernels give none without the page cache
        let Some(mapped) = mapped else { return "no mapping".to_owned() };
        let room = size.min(mapped.len());
        let at = rng.below(room);
        let bytes = &bytes[..bytes.len().min((room - at) as usize)];
        mapped.store(at as usize, bytes);
        self.contents.put(at, bytes);
        self.mapped = keeps.then_some(mapped);
        format!("store {} at {at}, {}", bytes.len(), if keeps { "kept" } else { "unmapped" })
    }

    fn write_direct(&mut self, at: u64, bytes: &[u8]) -> String {
        let (at, len) = (at / ALIGNED * ALIGNED, (bytes.len() as u64).next_multiple_of(ALIGNED) as usize);
        let (mut room, start) = aligned(len);
        let room = &mut room[start..start + len];
        room.fill(0x5a);
        room[..bytes.len()].copy_from_slice(bytes);
        let file = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&self.path).unwrap();
        file.write_all_at(room, at).unwrap();
        self.contents.put(at, room);
        format!("write {len} at {at} with O_DIRECT")
    }

    fn allocate(&mut self, rng: &mut Rng, at: u64, len: u64) -> String {
        let keep = FallocateFlags::KEEP_SIZE;
        let (how, grows, clears) = *rng.pick(&[
            (FallocateFlags::empty(), true, false),
            (keep, false, false),
            (keep | FallocateFlags::PUNCH_HOLE, false, true),
            (FallocateFlags::ZERO_RANGE, true, true),
            (FallocateFlags::ZERO_RANGE | keep, false, true),
            (FallocateFlags::COLLAPSE_RANGE, false, false),
        ]);
        if how == FallocateFlags::COLLAPSE_RANGE {
            assert_eq!(fallocate(self.open(), how, 0, ALIGNED), Err(rustix::io::Errno::OPNOTSUPP));
            return "no collapse".to_owned();
        }
        fallocate(self.open(), how, at, len).unwrap();
        let (at, end) = (at as usize, (at + len) as usize);
        self.contents.change(|now| {
            if grows && now.len() < end {
                now.resize(end, 0);
            }
            let end = end.min(now.len());
            if clears && at < end {
                now[at..end].fill(0);
            }
        });
        format!("fallocate {how:?} of {at}..{end}")
    }

    /// Reads it in one way or another, and looks for its holes.
    pub(super) fn check(&mut self, rng: &mut Rng, told: &str) {
        let told = format!("{told}: {}", self.path.display());
        let expect = self.contents.now.clone();
        assert_eq!(fs::metadata(&self.path).unwrap().len(), expect.len() as u64, "{told}");
        let way = rng.below(4);
        let found = match way {
            0 => fs::read(&self.path).unwrap(),
            1 => read_direct(&self.path, expect.len()),
            2 => match Mapped::new(self.open(), expect.len()).filter(|_| !expect.is_empty()) {
                Some(mapped) => mapped.load(expect.len()),
                None => fs::read(&self.path).unwrap(),
            },
            _ => {
                let mut found = vec![0; expect.len()];
                self.open().read_exact_at(&mut found, 0).unwrap();
                found
            }
        };
        is_same(&found, &expect, &format!("{told}, read in way {way}"));
        self.check_holes(&told);
    }

    /// Holes are where zeros are.
    fn check_holes(&mut self, told: &str) {
        let size = self.contents.now.len() as u64;
        let file = File::open(&self.path).unwrap();
        let mut at = 0;
        while at < size {
            let data = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
                Err(rustix::io::Errno::NXIO) => size,
                found => found.unwrap(),
            };
            assert!((at..=size).contains(&data), "{told}: data at {data} from {at} on of {size}");
            let hole = &self.contents.now[at as usize..data as usize];
            let stored = hole.iter().position(|&byte| byte != 0);
            assert_eq!(stored, None, "{told}: a hole from {at} to {data} has data, {}", self.mode);
            if data == size {
                return;
            }
            let hole = rustix::fs::seek(&file, SeekFrom::Hole(data)).unwrap();
            assert!(hole > data && hole <= size, "{told}: a hole at {hole} from {data} on of {size}");
            at = hole;
        }
    }
}

/// Bytes to be written: some of them zeros.
fn filled(rng: &mut Rng, len: u64) -> Vec<u8> {
    match rng.below(6) {
        0 => vec![0; len as usize],
        _ => (0..len.div_ceil(8)).flat_map(|_| rng.number().to_le_bytes()).take(len as usize).collect(),
    }
}

fn read_direct(path: &Path, len: usize) -> Vec<u8> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
    let whole = (len as u64 + 1).next_multiple_of(ALIGNED) as usize;
    let (mut room, start) = aligned(whole);
    let room = &mut room[start..start + whole];
    let mut done = 0;
    loop {
        match file.read_at(&mut room[done..], done as u64).unwrap() {
            0 => return room[..done].to_vec(),
            read => done += read,
        }
    }
}
