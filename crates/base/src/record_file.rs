//! Records that outlive the process that writes them: a ring in a file in memory, of which another process keeps a
//! descriptor.
//!
//! ```text
//!   head      what it is | room | offset and number of the oldest record | a note | a key     4096 bytes
//!   records   number ^ key | length | bytes, filled up to a multiple of 8 | !number ^ key
//! ```
//!
//! A record is reserved in order, with how it begins, and completed by the thread that reserved it. A kill may leave some that
//! are not complete: these are passed over. Numbers go up by one, so the ring ends where the number is another one; bytes of old
//! records, which users may have chosen, cannot be taken for one, as nobody knows the key. All words are little-endian.
//!
//! Records are written through a mapping, which costs no system call: what begins one is there before its number, and what
//! it holds before its end.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{Advice, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};

use crate::env::random_of_system;
use crate::{Data, Error, Mutex, Result};

const MAGIC: u64 = 0x6365_6e6f_7465_7231;
const HEAD_BYTES: u64 = 4096;
const NOTE_AT: u64 = 32;
const KEY_AT: u64 = 40;
/// What a record takes beside its bytes.
const FRAME_BYTES: u64 = 24;
/// In that length, a frame is only the rest of a round.
const REST: u64 = 1 << 63;
/// Most room of a file, and longest record.
const ROOM_MAX: u64 = 1 << 32;
const RECORD_MAX: u64 = 64 << 20;
/// Memory that is not given back.
const EMPTY_BYTES: u64 = 8 << 20;

/// A file that is being written.
pub struct RecordFile {
    file: File,
    map: MmapRaw,
    room: u64,
    key: u64,
    ring: Mutex<RecordRing>,
}

#[derive(Clone, Copy)]
struct RecordRing {
    oldest: RecordSpot,
    next: RecordSpot,
    /// The farthest byte that was written since memory was given back.
    reached: u64,
}

/// A place between two records: bytes since the ring began, and the number of the record behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordSpot {
    offset: u64,
    number: u64,
}

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPlace {
    at: u64,
    len: u64,
    number: u64,
    end: RecordSpot,
}

impl RecordPlace {
    /// Numbers go up in the order in which records were reserved.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Where its number is once more, when it is complete.
    fn tail_at(&self) -> u64 {
        self.at + self.len.next_multiple_of(8)
    }

    /// The place behind it.
    pub fn end(&self) -> RecordSpot {
        self.end
    }
}

impl RecordFile {
    /// An empty one with room for so many bytes, frames included. Errors: those of making a file in memory.
    pub fn new(room: u64) -> Result<RecordFile> {
        let file: File = memfd_create("records", MemfdFlags::CLOEXEC).map_err(std::io::Error::from)?.into();
        let room = (room.min(ROOM_MAX) & !7).max(HEAD_BYTES);
        file.set_len(HEAD_BYTES + room)?;
        let first = RecordSpot { offset: 0, number: 1 };
        let key = random_of_system();
        let made = RecordFile::of(file, room, key, RecordRing { oldest: first, next: first, reached: 0 })?;
        made.write_words(KEY_AT, [key])?;
        made.file.write_all_at(&[MAGIC, room].map(u64::to_le_bytes).concat(), 0)?;
        made.write_oldest(first)?;
        Ok(made)
    }

    /// Errors: those of mapping it.
    fn of(file: File, room: u64, key: u64, ring: RecordRing) -> std::io::Result<RecordFile> {
        let map = MmapRaw::map_raw(&file)?;
        // only larger dumps come of a kernel that cannot
        let _ = map.advise(Advice::DontDump);
        Ok(RecordFile { file, map, room, key, ring: Mutex::new(ring) })
    }

    /// The file of a process before, and its records, the oldest first. Errors: `Corrupt` for one that is none.
    pub fn open(file: OwnedFd) -> Result<(RecordFile, Vec<RecordPlace>)> {
        let file = File::from(file);
        let corrupt = || Error::corrupt("a file of records that makes no sense");
        let len = file.metadata()?.len();
        let [magic, room, offset, number] = words(&file, 0)?;
        let is_whole = magic == MAGIC && (HEAD_BYTES..=ROOM_MAX).contains(&room) && len == HEAD_BYTES + room;
        if !is_whole || !offset.is_multiple_of(8) || offset > u64::MAX / 2 || number > u64::MAX / 2 {
            return Err(corrupt());
        }
        let [key] = words(&file, KEY_AT)?;
        let oldest = RecordSpot { offset, number };
        let mut found = Vec::new();
        let mut next = oldest;
        while next.offset - oldest.offset < room {
            let left = room - next.offset % room;
            if left < FRAME_BYTES {
                next.offset += left;
                continue;
            }
            let [number, len] = words(&file, HEAD_BYTES + next.offset % room)?;
            let number = number ^ key;
            if number != next.number {
                break;
            }
            let is_rest = len & REST != 0;
            let bytes = if is_rest { left } else { frame(len) };
            let is_too_long = !is_rest && len > RECORD_MAX;
            if is_too_long || bytes > left || (next.offset - oldest.offset) + bytes > room {
                return Err(corrupt());
            }
            let at = HEAD_BYTES + next.offset % room + 16;
            next = RecordSpot { offset: next.offset + bytes, number: next.number + 1 };
            if !is_rest {
                found.push(RecordPlace { at, len, number, end: next });
            }
        }
        let ring = RecordRing { oldest, next, reached: room };
        Ok((RecordFile::of(file, room, key, ring)?, found))
    }

    /// The note of its user; 0 at first. Errors: those of reading.
    pub fn note(&self) -> Result<u64> {
        words(&self.file, NOTE_AT).map(|[note]| note)
    }

    /// Changes the note. Errors: those of writing.
    pub fn set_note(&self, note: u64) -> Result<()> {
        Ok(self.write_words(NOTE_AT, [note])?)
    }

    /// Bytes that it has room for, frames included.
    pub fn room(&self) -> u64 {
        self.room
    }

    /// Bytes that are taken, and by how many records, fillers of rounds among them.
    pub fn taken(&self) -> (u64, u64) {
        let ring = self.ring.lock();
        (ring.next.offset - ring.oldest.offset, ring.next.number - ring.oldest.number)
    }

    /// Reserves a record that begins with `head`, in which its number is written at `number_at`, and goes on with so many bytes
    /// of data; without any it is complete. `None` if there is no room.
    pub fn reserve(&self, head: &mut [u8], number_at: usize, data_len: usize) -> Option<RecordPlace> {
        let len = (head.len() as u64).checked_add(data_len as u64).filter(|len| *len <= RECORD_MAX)?;
        let bytes = frame(len);
        let mut ring = self.ring.lock();
        let left = self.room - ring.next.offset % self.room;
        let rest = if bytes > left { left } else { 0 };
        if ring.next.offset - ring.oldest.offset + rest + bytes > self.room {
            return None;
        }
        if rest > 0 {
            if rest >= FRAME_BYTES {
                self.put_word(self.at(ring.next) + 8, REST);
                self.put_word(self.at(ring.next), ring.next.number ^ self.key);
                ring.next.number += 1;
            }
            ring.next.offset += rest;
        }
        let (at, number) = (self.at(ring.next), ring.next.number);
        let end = RecordSpot { offset: ring.next.offset + bytes, number: number + 1 };
        let place = RecordPlace { at: at + 16, len, number, end };
        head[number_at..number_at + 8].copy_from_slice(&number.to_le_bytes());
        self.put_word(at + 8, len);
        self.put(place.at, head);
        if data_len == 0 {
            self.end(&place);
        }
        self.put_word(at, number ^ self.key);
        ring.next = end;
        ring.reached = ring.reached.max(at + bytes - HEAD_BYTES);
        Some(place)
    }

    /// Completes a record with its data; it must not be let go before.
    pub fn complete(&self, place: &RecordPlace, data: Data<'_>) {
        let mut at = place.at + place.len - data.len() as u64;
        for slice in data.slices() {
            self.put(at, slice);
            at += slice.len() as u64;
        }
        self.end(place);
    }

    /// All bytes of a record are there.
    fn end(&self, place: &RecordPlace) {
        self.put_word(place.tail_at(), !place.number ^ self.key);
    }

    /// Writes bytes of a record that this thread has reserved.
    fn put(&self, at: u64, bytes: &[u8]) {
        let at = at as usize;
        assert!(at + bytes.len() <= self.map.len(), "a record of the ring");
        // SAFETY: these bytes are within the mapping; a record is one thread's until it is complete, and no reference to the
        // mapping is ever made: it is read by read(2).
        unsafe { self.map.as_mut_ptr().add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Writes a word at a multiple of 8, behind all that this thread has written before.
    fn put_word(&self, at: u64, word: u64) {
        let at = at as usize;
        assert!(at.is_multiple_of(8) && at + 8 <= self.map.len(), "a word of the ring");
        // SAFETY: it is a word within the mapping, which begins with a page, and all that is written there at once is atomic.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(at).cast()) }.store(word.to_le(), Ordering::Release);
    }

    /// The first bytes of a record, at most so many, or `None` if it is not whole. Errors: those of reading.
    pub fn read(&self, place: &RecordPlace, most: usize) -> Result<Option<Vec<u8>>> {
        let [end] = words(&self.file, place.tail_at())?;
        if end != !place.number ^ self.key {
            return Ok(None);
        }
        let mut bytes = vec![0; most.min(place.len as usize)];
        self.file.read_exact_at(&mut bytes, place.at)?;
        Ok(Some(bytes))
    }

    /// A word of a record, at a multiple of 8. Errors: those of reading.
    pub fn word(&self, place: &RecordPlace, at: u64) -> Result<u64> {
        words(&self.file, place.at + at).map(|[word]| word)
    }

    /// Changes a word of a record, at a multiple of 8, unless it was let go.
    pub fn patch(&self, place: &RecordPlace, at: u64, word: u64) {
        assert!(at.is_multiple_of(8) && at + 8 <= place.len, "a word of the record");
        // held, so that no other record takes its place meanwhile
        let ring = self.ring.lock();
        if place.number < ring.oldest.number {
            return;
        }
        self.put_word(place.at + at, word);
    }

    /// The records before that spot are not needed any more.
    pub fn release(&self, spot: RecordSpot) {
        let mut ring = self.ring.lock();
        if spot <= ring.oldest {
            return;
        }
        ring.oldest = spot;
        if spot == ring.next {
            // begins a round, where memory is used that is there
            let offset = spot.offset.next_multiple_of(self.room);
            (ring.oldest.offset, ring.next.offset) = (offset, offset);
        }
        // what is told to be older than it is has its number yet, and is passed over by the reader, which knows better
        let _ = self.write_oldest(ring.oldest);
    }

    /// Gives back memory, if there is no record, as nothing has been written for a while.
    pub fn trim(&self) {
        let mut ring = self.ring.lock();
        if ring.oldest == ring.next && ring.reached > EMPTY_BYTES {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // memory that stays is only used longer
            let _ = fallocate(&self.file, punch, HEAD_BYTES + EMPTY_BYTES, ring.reached - EMPTY_BYTES);
            ring.reached = 0;
        }
    }

    /// No record is needed any more.
    pub fn clear(&self) {
        let next = self.ring.lock().next;
        self.release(next);
    }

    fn at(&self, spot: RecordSpot) -> u64 {
        HEAD_BYTES + spot.offset % self.room
    }

    fn write_oldest(&self, oldest: RecordSpot) -> std::io::Result<()> {
        self.write_words(16, [oldest.offset, oldest.number])
    }

    fn write_words<const N: usize>(&self, at: u64, words: [u64; N]) -> std::io::Result<()> {
        self.file.write_all_at(words.map(u64::to_le_bytes).as_flattened(), at)
    }
}

impl AsFd for RecordFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn frame(len: u64) -> u64 {
    len.saturating_add(FRAME_BYTES + 7) & !7
}

fn words<const N: usize>(file: &File, at: u64) -> Result<[u64; N]> {
    let mut bytes = [[0; 8]; N];
    file.read_exact_at(bytes.as_flattened_mut(), at)?;
    Ok(bytes.map(u64::from_le_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(file: &RecordFile) -> Vec<Option<Vec<u8>>> {
        let (file, places) = RecordFile::open(file.as_fd().try_clone_to_owned().unwrap()).unwrap();
        places.iter().map(|place| file.read(place, usize::MAX).unwrap()).collect()
    }

    fn put(file: &RecordFile, bytes: &[u8]) -> Option<RecordPlace> {
        let (head, data) = bytes.split_at(bytes.len().min(8 + bytes.len() / 3));
        let mut numbered = head.to_vec();
        let place = match numbered.is_empty() {
            true => return None,
            false => file.reserve(&mut numbered, 0, data.len())?,
        };
        // the tests look for what they wrote
        file.file.write_all_at(head, place.at).unwrap();
        if !data.is_empty() {
            file.complete(&place, data.into());
        }
        Some(place)
    }

    #[test]
    fn records_are_found_again_round_after_round() {
        let file = RecordFile::new(8192).unwrap();
        let mut kept: Vec<(RecordPlace, Vec<u8>)> = Vec::new();
        for step in 0..2000_usize {
            let bytes: Vec<u8> = (0..8 + step * 37 % 700).map(|at| (at + step) as u8).collect();
            while kept.len() > 20 {
                let (place, _) = kept.remove(0);
                file.release(place.end());
            }
            while kept.last().is_none_or(|(_, last)| *last != bytes) {
                match put(&file, &bytes) {
                    Some(place) => kept.push((place, bytes.clone())),
                    None => {
                        let (place, _) = kept.remove(0);
                        file.release(place.end());
                    }
                }
            }
            let found: Vec<Vec<u8>> = again(&file).into_iter().flatten().collect();
            let expected: Vec<Vec<u8>> = kept.iter().map(|(_, bytes)| bytes.clone()).collect();
            assert_eq!(found, expected, "step {step}");
        }
        file.clear();
        file.trim();
        assert!(again(&file).is_empty());
        assert_eq!((file.room(), file.taken()), (8192, (0, 0)));
    }

    #[test]
    fn a_record_that_was_let_go_is_not_changed() {
        let file = RecordFile::new(8192).unwrap();
        let gone = put(&file, &[1; 100]).unwrap();
        file.release(gone.end());
        put(&file, &[2; 100]).unwrap();
        file.patch(&gone, 8, 77);
        assert_eq!(again(&file), [Some(vec![2; 100])]);
    }

    #[test]
    fn memory_is_given_back() {
        let file = RecordFile::new(64 << 20).unwrap();
        let blocks = || std::os::unix::fs::MetadataExt::blocks(&file.file.metadata().unwrap()) * 512;
        let last = (0..40).map(|_| put(&file, &vec![1; 1 << 20]).unwrap()).last().unwrap();
        file.trim();
        assert!(blocks() > 40 << 20, "it is needed");
        file.release(last.end());
        file.trim();
        assert!(blocks() < 10 << 20);
        put(&file, &[5; 100]).unwrap();
        assert_eq!(again(&file), [Some(vec![5; 100])]);
    }

    #[test]
    fn what_was_only_reserved_is_none() {
        let file = RecordFile::new(1 << 20).unwrap();
        put(&file, &[1; 100]).unwrap();
        file.reserve(&mut [7; 30], 8, 20).unwrap();
        let last = put(&file, &vec![3; 20_005]).unwrap();
        file.patch(&last, 8, 0x0303);
        let found = again(&file);
        assert_eq!((found.len(), found[1].is_none()), (3, true));
        assert_eq!(found[2].as_ref().unwrap()[7..17], [3, 3, 3, 0, 0, 0, 0, 0, 0, 3]);
        assert!(file.reserve(&mut [0; 8], 0, 1 << 20).is_none());
        assert!(file.reserve(&mut [0; 8], 0, usize::MAX).is_none());
    }

    #[test]
    fn what_is_no_file_of_records_is_refused() {
        let open = |change: &dyn Fn(&File)| {
            let file = RecordFile::new(8192).unwrap();
            put(&file, &[7; 64]).unwrap();
            change(&file.file);
            RecordFile::open(file.file.into()).map(|(_, places)| places.len())
        };
        assert_eq!(open(&|_| ()).unwrap(), 1);
        for (at, word) in [(0, 1), (8, 1 << 40), (16, 3), (16, u64::MAX - 7), (24, u64::MAX), (HEAD_BYTES + 8, 1 << 20)]
        {
            let changed = open(&|file| file.write_all_at(&u64::to_le_bytes(word), at).unwrap());
            assert!(changed.is_err(), "{at} {word}");
        }
        assert!(open(&|file| file.set_len(5000).unwrap()).is_err());
    }
}
