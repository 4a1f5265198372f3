//! Facts that outlive the process that notes them: a file in memory, of which another process keeps a descriptor.
//!
//! ```text
//!   file   slot 0: whether a fact was lost | slot 1 | slot 2 | ...      24 bytes each: kind, two numbers; kind 0: empty
//! ```
//!
//! A fact is written by one pwrite(2) of its slot, which a kill does not cut short. Where there is no slot left, the file
//! says so: it does not have all facts.
//!
//! A name of a directory takes several slots, which say whose parts they are. One that a kill cut short is none:
//!
//! ```text
//!   kind: 255 | part, 16 bits | number of the name, 40 bits     numbers: directory, bytes of the name | 16 bytes of it | ...
//! ```

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};

use crate::{Endian, Error, Mutex, Reader, Result};

/// Bytes of a slot.
const SLOT_BYTES: usize = 24;
/// Slots of a file for facts, and for names.
const SLOTS_MAX: u32 = 1 << 16;
const NAME_SLOTS_MAX: u32 = 1 << 16;

/// The kind of a part of a name, in its lowest byte.
const NAME_PART: u64 = 255;
/// Bytes of a name in one part.
const PART_BYTES: usize = 16;
/// Longest name, in bytes: longer ones are no names of files.
const NAME_BYTES_MAX: usize = 1 << 10;

/// One fact: a kind, which is neither 0 nor ends with the byte 255, and two numbers.
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

/// Where a name stands in its file.
#[derive(Debug, PartialEq, Eq)]
pub struct NameSlots(Vec<u32>);

/// A name of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameFact {
    /// Number of the directory.
    pub directory: u64,
    /// The name.
    pub name: Vec<u8>,
}

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
    /// Slots that have facts, and that have names.
    facts: u32,
    of_names: u32,
    /// Names that were ever noted.
    names: u64,
    is_incomplete: bool,
}

/// The facts that a process before left.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FoundFacts {
    /// Those that are there, in no order.
    pub facts: Vec<Fact>,
    /// Names that are there, in no order.
    pub names: Vec<NameFact>,
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
            if slots.facts == SLOTS_MAX {
                return self.lose(&mut slots);
            }
            slots.facts += 1;
            slots.take()
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
            let mut slots = self.slots.lock();
            slots.free.push(slot.0);
            slots.facts -= 1;
        }
    }

    /// Notes a name. `None` as of [`FactFile::put`].
    pub fn put_name(&self, fact: &NameFact) -> Option<NameSlots> {
        let parts = 1 + fact.name.len().div_ceil(PART_BYTES) as u32;
        let (numbers, name) = {
            let mut slots = self.slots.lock();
            if fact.name.len() > NAME_BYTES_MAX || slots.of_names + parts > NAME_SLOTS_MAX {
                self.lose(&mut slots);
                return None;
            }
            slots.of_names += parts;
            slots.names += 1;
            ((0..parts).map(|_| slots.take()).collect::<Vec<u32>>(), slots.names)
        };
        let head = [fact.directory, fact.name.len() as u64];
        let words = |part: &[u8]| {
            let mut bytes = [0; PART_BYTES];
            bytes[..part.len()].copy_from_slice(part);
            let (first, second) = bytes.split_at(8);
            [first, second].map(|word| u64::from_le_bytes(word.try_into().expect("half of a part")))
        };
        let parts = std::iter::once(head).chain(fact.name.chunks(PART_BYTES).map(words));
        for (part, (number, words)) in numbers.iter().zip(parts).enumerate() {
            if self.write(*number, NAME_PART | (part as u64) << 8 | name << 24, words).is_err() {
                self.lose(&mut self.slots.lock());
                return None;
            }
        }
        Some(NameSlots(numbers))
    }

    /// A name is noted no more.
    pub fn take_name(&self, name: NameSlots) {
        for number in name.0 {
            if self.write(number, 0, [0; 2]).is_ok() {
                let mut slots = self.slots.lock();
                slots.free.push(number);
                slots.of_names -= 1;
            }
        }
    }

    /// Whether most of the room for names is taken.
    pub fn is_full_of_names(&self) -> bool {
        self.slots.lock().of_names > NAME_SLOTS_MAX / 4 * 3
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

impl FactSlots {
    /// The number of an empty slot, of which there is one.
    fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.used += 1;
            self.used
        })
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
        if len > u64::from(SLOTS_MAX + NAME_SLOTS_MAX + 1) * SLOT_BYTES as u64 {
            return Err(Error::corrupt(format!("a file of facts of {len} bytes")));
        }
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let mut all = FoundFacts::default();
        let mut parts: BTreeMap<(u64, u64), [u64; 2]> = BTreeMap::new();
        for (number, slot) in bytes.chunks_exact(SLOT_BYTES).enumerate() {
            let mut words = Reader::new(slot, Endian::Little);
            let fact = Fact { kind: words.u64()?, numbers: [words.u64()?, words.u64()?] };
            match (number, fact.kind & 0xff) {
                (0, _) => all.is_incomplete = fact.kind != 0,
                (_, NAME_PART) => drop(parts.insert((fact.kind >> 24, fact.kind >> 8 & 0xffff), fact.numbers)),
                _ if fact.kind != 0 => all.facts.push(fact),
                _ => {}
            }
        }
        let heads = parts.iter().filter(|((_, part), _)| *part == 0);
        all.names = heads.filter_map(|(&(name, _), &[directory, len])| name_of(&parts, name, directory, len)).collect();
        Ok(all)
    }

    /// Nothing was lost of what facts of that kind and names tell.
    pub fn settle(&mut self, kind: u64) {
        self.facts.retain(|fact| fact.kind != kind);
        self.names.clear();
        self.is_incomplete = false;
    }

    /// The numbers of all facts of a kind.
    pub fn of(&self, kind: u64) -> impl Iterator<Item = [u64; 2]> {
        self.facts.iter().filter(move |fact| fact.kind == kind).map(|fact| fact.numbers)
    }
}

/// The name of that number; `None` if it is not whole.
fn name_of(parts: &BTreeMap<(u64, u64), [u64; 2]>, name: u64, directory: u64, len: u64) -> Option<NameFact> {
    let len = usize::try_from(len).ok().filter(|len| *len <= NAME_BYTES_MAX)?;
    let bytes = |part: usize| parts.get(&(name, part as u64)).map(|words| words.map(u64::to_le_bytes).concat());
    let mut all: Vec<u8> = (1..=len.div_ceil(PART_BYTES)).map(bytes).collect::<Option<Vec<_>>>()?.concat();
    all.truncate(len);
    Some(NameFact { directory, name: all })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_there_whole_or_not_at_all() {
        let file = FactFile::new().unwrap();
        let name = |directory, len: usize| NameFact { directory, name: (0..len).map(|at| at as u8).collect() };
        let all: Vec<NameFact> = [0, 1, 15, 16, 17, 255].map(|len| name(len as u64 + 1, len)).into();
        let mut slots: Vec<NameSlots> = all.iter().map(|name| file.put_name(name).unwrap()).collect();
        let fact = Fact { kind: 3, numbers: [1, 2] };
        file.put(fact).unwrap();
        let mut found = read(&file);
        found.names.sort_unstable();
        assert_eq!((&found.names, found.facts), (&all, vec![fact]));
        // one that was cut short
        file.write(slots[5].0[3], 0, [0; 2]).unwrap();
        assert_eq!(read(&file).names.len(), 5);
        slots.drain(..).for_each(|slots| file.take_name(slots));
        assert_eq!(read(&file), FoundFacts { facts: vec![fact], ..FoundFacts::default() });
        // there is room for many, and an end
        let most = NAME_SLOTS_MAX / 17;
        slots.extend((0..most).map(|_| file.put_name(&name(7, 255)).unwrap()));
        assert!(file.is_full_of_names() && !read(&file).is_incomplete);
        assert_eq!(file.put_name(&name(7, 255)), None);
        let found = read(&file);
        assert!(found.is_incomplete && found.names.len() == most as usize);
        assert_eq!(file.put_name(&name(7, 1 << 11)), None);
        file.put(fact).expect("facts have their own room");
    }

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
