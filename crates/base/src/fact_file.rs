//! Facts that outlive the process that notes them: a file in memory, of which another process keeps a descriptor.
//!
//! ```text
//!   file   slot 0: whether a fact was lost | slot 1 | slot 2 | ...      24 bytes each: kind, two numbers; kind 0: empty
//! ```
//!
//! A fact is written by one pwrite(2) of its slot, which a kill does not cut short. Where there is no slot left, the file
//! says so: it does not have all facts.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};

use crate::{Endian, Error, Mutex, Reader, Result};

/// Bytes of a slot.
const SLOT_BYTES: usize = 24;
/// Slots of a file.
const SLOTS_MAX: u32 = 1 << 16;

/// One fact: a kind, which is not 0, and two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fact {
    /// What it is about.
    pub kind: u64,
    /// What that kind has.
    pub numbers: [u64; 2],
}

/// Where a fact stands in its file.
#[derive(Debug, PartialEq, Eq)]
pub struct FactSlot(u32);

/// A file that is being written.
pub struct FactFile {
    file: File,
    slots: Mutex<FactSlots>,
}

#[derive(Default)]
struct FactSlots {
    /// Slots that were used, and are empty.
    free: Vec<u32>,
    /// Slots that were ever used.
    used: u32,
    is_incomplete: bool,
}

/// The facts that a process before left.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FoundFacts {
    /// Those that are there, in no order.
    pub facts: Vec<Fact>,
    /// Some were lost, as there were too many at once.
    pub is_incomplete: bool,
}

impl FactFile {
    /// An empty one. Errors: those of making a file in memory.
    pub fn new() -> Result<FactFile> {
        let file = memfd_create("facts", MemfdFlags::CLOEXEC).map_err(std::io::Error::from)?;
        Ok(FactFile { file: file.into(), slots: Mutex::default() })
    }

    /// Notes a fact. `None` if there are too many: the file is incomplete from then on.
    pub fn put(&self, fact: Fact) -> Option<FactSlot> {
        let number = {
            let mut slots = self.slots.lock();
            match slots.free.pop() {
                Some(number) => number,
                None if slots.used < SLOTS_MAX => {
                    slots.used += 1;
                    slots.used
                }
                None => return self.lose(&mut slots),
            }
        };
        match self.write(number, fact.kind, fact.numbers) {
            Ok(()) => Some(FactSlot(number)),
            Err(_) => self.lose(&mut self.slots.lock()),
        }
    }

    /// A fact is none any more.
    pub fn take(&self, slot: FactSlot) {
        // one that stays there says too much, and never too little
        if self.write(slot.0, 0, [0; 2]).is_ok() {
            self.slots.lock().free.push(slot.0);
        }
    }

    /// What was lost is none any more.
    pub fn set_complete(&self) {
        let mut slots = self.slots.lock();
        if slots.is_incomplete && self.write(0, 0, [0; 2]).is_ok() {
            slots.is_incomplete = false;
        }
    }

    fn lose(&self, slots: &mut FactSlots) -> Option<FactSlot> {
        // where not even this can be written, there is no memory at all
        slots.is_incomplete |= self.write(0, 1, [0; 2]).is_ok();
        None
    }

    fn write(&self, number: u32, kind: u64, numbers: [u64; 2]) -> std::io::Result<()> {
        let bytes = [kind, numbers[0], numbers[1]].map(u64::to_le_bytes).concat();
        self.file.write_all_at(&bytes, u64::from(number) * SLOT_BYTES as u64)
    }
}

impl AsFd for FactFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl FoundFacts {
    /// Reads the file of another process. Errors: those of reading; `Corrupt` for a file that is none.
    pub fn read(file: OwnedFd) -> Result<FoundFacts> {
        let file = File::from(file);
        let len = file.metadata()?.len();
        if len > (u64::from(SLOTS_MAX) + 1) * SLOT_BYTES as u64 {
            return Err(Error::corrupt(format!("a file of facts of {len} bytes")));
        }
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let mut all = FoundFacts::default();
        for (number, slot) in bytes.chunks_exact(SLOT_BYTES).enumerate() {
            let mut words = Reader::new(slot, Endian::Little);
            let fact = Fact { kind: words.u64()?, numbers: [words.u64()?, words.u64()?] };
            match number {
                0 => all.is_incomplete = fact.kind != 0,
                _ if fact.kind != 0 => all.facts.push(fact),
                _ => {}
            }
        }
        Ok(all)
    }

    /// The numbers of all facts of a kind.
    pub fn of(&self, kind: u64) -> impl Iterator<Item = [u64; 2]> {
        self.facts.iter().filter(move |fact| fact.kind == kind).map(|fact| fact.numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &FactFile) -> FoundFacts {
        FoundFacts::read(file.as_fd().try_clone_to_owned().unwrap()).unwrap()
    }

    #[test]
    fn facts_are_there_until_they_are_taken() {
        let file = FactFile::new().unwrap();
        assert_eq!(read(&file), FoundFacts::default());
        let fact = |kind, first| Fact { kind, numbers: [first, 7] };
        let slots: Vec<FactSlot> = (1..=3).map(|kind| file.put(fact(kind, kind * 10)).unwrap()).collect();
        let [_, second, _] = slots.try_into().unwrap();
        file.take(second);
        assert_eq!(read(&file).facts, [fact(1, 10), fact(3, 30)]);
        file.put(fact(3, 31)).unwrap();
        assert_eq!(read(&file).of(3).collect::<Vec<_>>(), [[31, 7], [30, 7]], "the slot is used again");
        assert!(!file.slots.lock().is_incomplete && !read(&file).is_incomplete);
    }

    #[test]
    fn too_many_facts_are_told() {
        let file = FactFile::new().unwrap();
        let fact = Fact { kind: 1, numbers: [0; 2] };
        let slots: Vec<FactSlot> = (0..SLOTS_MAX).map(|_| file.put(fact).unwrap()).collect();
        assert!(!file.slots.lock().is_incomplete);
        assert_eq!(file.put(fact), None);
        assert!(file.slots.lock().is_incomplete && read(&file).is_incomplete);
        slots.into_iter().for_each(|slot| file.take(slot));
        file.set_complete();
        assert_eq!(read(&file), FoundFacts::default());
    }

    #[test]
    fn what_is_no_file_of_facts_is_refused() {
        let file = File::from(memfd_create("none", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(1 << 30).unwrap();
        assert!(FoundFacts::read(file.into()).is_err());
        let file = File::from(memfd_create("cut", MemfdFlags::CLOEXEC).unwrap());
        file.write_all_at(&[1; 30], 0).unwrap();
        assert!(FoundFacts::read(file.into()).unwrap().is_incomplete);
    }
}
