//! What a guest's rings have in flight, in memory that outlives this process: the monitor keeps it, and gives it to the
//! next process when one was killed.
//!
//! ```text
//!   ring 0   features u64 | version u16 | entries u16 | last head u16 | used u16
//!            of each descriptor: in flight u8 | 5 bytes | next u16 | counter u64
//!   ring 1   ...                                                                   each at a multiple of 64 bytes
//!   marks    "cenote-1" | life u64 | group u64                                     behind the last ring
//! ```
//!
//! Rings are as vhost-user has them ("Inflight I/O tracking"), so that any other server can go on with them; numbers are
//! the machine's own. A request gets its counter and is in flight then; before it is given back it is noted as the last
//! head, and after that it is in flight no more, and `used` is where the used ring is. So the process can be killed between
//! any two of these: where `used` is behind the used ring, the last heads have been given back.
//!
//! The marks are Cenote's own: what the disk's cache has that is not on disk ([`crate::cache`]).
//!
//! Another one may write to this memory at any time, so nothing in it is believed: it leads to no place outside of it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Error, Kind, Result};
use format::ids::Txg;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, memfd_create};
use vm_memory::{AtomicAccess, Bytes, MmapRegion, VolatileMemory};

use crate::config::{RING_ENTRIES_MAX, RINGS_MAX};
use crate::memory::map_sealed;
use crate::message::InflightPlace;

/// Rings, and marks, begin at multiples of that.
const ALIGNMENT: usize = 64;
/// Bytes of what is told of a ring, and of a descriptor.
const RING_BYTES: usize = 16;
const STATE_BYTES: usize = 16;
/// Bytes that marks have.
const MARKS_BYTES: usize = 64;
const VERSION: u16 = 1;
const MARKS: u64 = u64::from_le_bytes(*b"cenote-1");

/// Where numbers are, from the beginning of a ring on, of a descriptor, and of the marks.
const RING_VERSION: usize = 8;
const RING_ENTRIES: usize = 10;
const RING_LAST: usize = 12;
const RING_USED: usize = 14;
const STATE_NEXT: usize = 6;
const STATE_COUNTER: usize = 8;
const MARKS_LIFE: usize = 8;
const MARKS_GROUP: usize = 16;

/// What rings have in flight.
pub(crate) struct InflightRegion {
    map: MmapRegion,
    shape: InflightShape,
    has_marks: bool,
}

/// How many rings, of how many entries.
#[derive(Clone, Copy)]
struct InflightShape {
    rings: usize,
    entries: u16,
}

/// What one ring has in flight.
pub(crate) struct InflightRing {
    region: Arc<InflightRegion>,
    /// Where it is.
    at: usize,
    entries: u16,
    /// Of the next request that is taken.
    counter: u64,
}

impl InflightShape {
    /// Errors: `Invalid` for what there cannot be.
    fn of(place: &InflightPlace) -> Result<InflightShape> {
        let (rings, entries) = (usize::from(place.rings), place.entries);
        if rings == 0 || rings > RINGS_MAX || entries == 0 || entries > RING_ENTRIES_MAX {
            return Err(invalid(format!("{rings} rings of {entries} entries")));
        }
        Ok(InflightShape { rings, entries })
    }

    fn ring_bytes(self) -> usize {
        (RING_BYTES + STATE_BYTES * usize::from(self.entries)).next_multiple_of(ALIGNMENT)
    }

    /// Where the marks are: behind all rings.
    fn marks_at(self) -> usize {
        self.rings * self.ring_bytes()
    }
}

impl InflightRegion {
    /// A new one for so many rings of so many entries: where it is, and its file. Errors: `Invalid` for what there cannot
    /// be; there is no memory.
    pub(crate) fn create(place: &InflightPlace) -> Result<(InflightPlace, OwnedFd)> {
        let bytes = (InflightShape::of(place)?.marks_at() + MARKS_BYTES) as u64;
        let create = || {
            let file = memfd_create("vhost-inflight", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            // its memory is there when it is touched
            fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
            fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
            Ok(file)
        };
        let file = create().map_err(|errno: rustix::io::Errno| std::io::Error::from(errno))?;
        Ok((InflightPlace { bytes, offset: 0, ..*place }, file))
    }

    /// The one in a file that a monitor gives. Errors: `Invalid` for what cannot be mapped, or is not to be.
    pub(crate) fn map(place: &InflightPlace, file: OwnedFd) -> Result<InflightRegion> {
        let shape = InflightShape::of(place)?;
        let (least, whole) = (shape.marks_at() as u64, (shape.marks_at() + MARKS_BYTES) as u64);
        if place.bytes < least {
            return Err(invalid(format!("{} bytes for what takes {least}", place.bytes)));
        }
        Ok(InflightRegion::over(map_sealed(file, place.offset, place.bytes.min(whole))?, shape))
    }

    fn over(map: MmapRegion, shape: InflightShape) -> InflightRegion {
        let has_marks = map.size() >= shape.marks_at() + MARKS_BYTES;
        InflightRegion { map, shape, has_marks }
    }

    /// Whether there is room for marks.
    pub(crate) fn has_marks(&self) -> bool {
        self.has_marks
    }

    /// The life that has written the last marks, and the group in which the last change is that is not on disk; zeros if
    /// there are none.
    pub(crate) fn marks(&self) -> (u64, Txg) {
        let at = self.shape.marks_at();
        match self.has_marks && self.get::<u64>(at) == MARKS {
            true => (self.get(at + MARKS_LIFE), Txg::new(self.get(at + MARKS_GROUP))),
            false => (0, Txg::ZERO),
        }
    }

    /// From now on, marks are those of this life.
    pub(crate) fn begin_marks(&self, life: u64, group: Txg) {
        if self.has_marks {
            let at = self.shape.marks_at();
            self.put(at + MARKS_GROUP, 0u64);
            self.put(at + MARKS_LIFE, life);
            self.put(at, MARKS);
            self.mark(group);
        }
    }

    /// The last change that is not on disk is in that group, or before; zero: all is.
    pub(crate) fn mark(&self, group: Txg) {
        if self.has_marks {
            self.put(self.shape.marks_at() + MARKS_GROUP, group.get());
        }
    }

    /// What ring `number` has in flight, which has so many entries, and whose used ring is at `used`; and, if it goes on, the
    /// heads of requests that were taken and not given back, in the order in which they were taken. Errors: `Invalid` for
    /// a ring that has no place here, and for one of another version.
    pub(crate) fn ring(
        self: &Arc<Self>,
        number: usize,
        entries: u16,
        used: u16,
    ) -> Result<(InflightRing, Option<Vec<u16>>)> {
        if number >= self.shape.rings || entries > self.shape.entries {
            return Err(invalid(format!("no room for ring {number} of {entries} entries")));
        }
        let at = number * self.shape.ring_bytes();
        let mut ring = InflightRing { region: self.clone(), at, entries, counter: 0 };
        match self.get(at + RING_VERSION) {
            0u16 => {
                ring.begin(used);
                Ok((ring, None))
            }
            VERSION => {
                let heads = ring.recover(used);
                Ok((ring, Some(heads)))
            }
            other => Err(invalid(format!("version {other}"))),
        }
    }

    fn get<T: AtomicAccess + Default>(&self, at: usize) -> T {
        let slice = self.map.as_volatile_slice();
        // within the mapping and aligned: its size was checked
        slice.load(at, Ordering::Acquire).unwrap_or_default()
    }

    /// What is put later is seen later.
    fn put<T: AtomicAccess>(&self, at: usize, value: T) {
        let stored = self.map.as_volatile_slice().store(value, at, Ordering::SeqCst);
        debug_assert!(stored.is_ok(), "{at} is within {} bytes", self.map.size());
    }
}

impl InflightRing {
    /// A request is taken.
    pub(crate) fn take(&mut self, head: u16) {
        // what no ring has is not given back, either
        if head < self.entries {
            self.region.put(self.state(head) + STATE_COUNTER, self.counter);
            self.counter = self.counter.wrapping_add(1);
            self.region.put(self.state(head), 1u8);
        }
    }

    /// It is about to be given back.
    pub(crate) fn giving(&self, head: u16) {
        if head < self.entries {
            let last: u16 = self.region.get(self.at + RING_LAST);
            self.region.put(self.state(head) + STATE_NEXT, last);
            self.region.put(self.at + RING_LAST, head);
        }
    }

    /// It has been given back, and the used ring is at `used`.
    pub(crate) fn given(&self, head: u16, used: u16) {
        if head < self.entries {
            self.region.put(self.state(head), 0u8);
        }
        self.region.put(self.at + RING_USED, used);
    }

    fn begin(&self, used: u16) {
        self.region.put(self.at, 0u64);
        (0..self.entries).for_each(|head| self.region.put(self.state(head), 0u8));
        // as many as have a place, whatever the ring has
        self.region.put(self.at + RING_ENTRIES, self.region.shape.entries);
        self.region.put(self.at + RING_LAST, 0u16);
        self.region.put(self.at + RING_USED, used);
        self.region.put(self.at + RING_VERSION, VERSION);
    }

    fn recover(&mut self, used: u16) -> Vec<u16> {
        let known: u16 = self.region.get(self.at + RING_USED);
        let mut head: u16 = self.region.get(self.at + RING_LAST);
        for _ in 0..used.wrapping_sub(known).min(self.entries) {
            if head >= self.entries {
                break;
            }
            self.region.put(self.state(head), 0u8);
            head = self.region.get(self.state(head) + STATE_NEXT);
        }
        self.region.put(self.at + RING_USED, used);
        let is_taken = |head: &u16| self.region.get::<u8>(self.state(*head)) != 0;
        let counted = |head: u16| (self.region.get::<u64>(self.state(head) + STATE_COUNTER), head);
        let mut heads: Vec<_> = (0..self.entries).filter(is_taken).map(counted).collect();
        heads.sort_unstable();
        self.counter = heads.last().map_or(0, |(counter, _)| counter.wrapping_add(1));
        heads.into_iter().map(|(_, head)| head).collect()
    }

    fn state(&self, head: u16) -> usize {
        self.at + RING_BYTES + STATE_BYTES * usize::from(head)
    }
}

fn invalid(what: String) -> Error {
    Error::new(Kind::Invalid, format!("what is in flight: {what}"))
}

/// Takes any bytes for what rings have in flight, and goes on with each.
pub(crate) fn fuzz(bytes: &[u8]) {
    let place = InflightPlace { bytes: 0, offset: 0, rings: 2, entries: 16, is_padded: false };
    let Ok(shape) = InflightShape::of(&place) else { return };
    let Ok(map) = MmapRegion::new(shape.marks_at() + MARKS_BYTES) else { return };
    let _ = map.as_volatile_slice().write(&bytes[..bytes.len().min(map.size())], 0);
    let region = Arc::new(InflightRegion::over(map, shape));
    let used = bytes.first().map_or(0, |byte| u16::from(*byte));
    region.begin_marks(7, region.marks().1);
    for number in 0..3 {
        let Ok((mut ring, heads)) = region.ring(number, 16, used) else { continue };
        let heads = heads.unwrap_or_default();
        assert!(heads.len() <= 16 && heads.iter().all(|head| *head < 16), "{heads:?}");
        for (given, head) in heads.iter().enumerate() {
            ring.giving(*head);
            ring.given(*head, used.wrapping_add(given as u16 + 1));
        }
        ring.take(u16::from(bytes.last().copied().unwrap_or_default()));
        let again = region.ring(number, 16, used.wrapping_add(heads.len() as u16));
        assert!(
            again.is_ok_and(|(_, heads)| heads.is_some_and(|heads| heads.len() <= 1)),
            "what was given back is gone"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: InflightPlace = InflightPlace { bytes: 0, offset: 0, rings: 3, entries: 8, is_padded: true };

    fn region() -> Arc<InflightRegion> {
        let (place, file) = InflightRegion::create(&PLACE).unwrap();
        Arc::new(InflightRegion::map(&place, file).unwrap())
    }

    /// A ring that goes on, and what is to be done again.
    fn again(region: &Arc<InflightRegion>, used: u16) -> (InflightRing, Vec<u16>) {
        let (ring, heads) = region.ring(1, 8, used).unwrap();
        (ring, heads.expect("it goes on"))
    }

    #[test]
    fn what_is_mapped_has_its_size_and_keeps_it() {
        let (place, file) = InflightRegion::create(&PLACE).unwrap();
        assert_eq!((place.bytes, place.is_padded), (3 * 192 + 64, true));
        // a monitor gives it back as often as it likes, and a server that knows no marks has none
        for bytes in [place.bytes, place.bytes - 64, place.bytes + 4096] {
            let region = InflightRegion::map(&InflightPlace { bytes, ..place }, file.try_clone().unwrap()).unwrap();
            assert_eq!(region.has_marks(), bytes >= place.bytes, "{bytes}");
            region.begin_marks(1, Txg::new(7));
            assert_eq!(region.marks(), if region.has_marks() { (1, Txg::new(7)) } else { (0, Txg::ZERO) });
        }
        for wrong in [
            InflightPlace { bytes: 3 * 192 - 1, ..place },
            InflightPlace { bytes: 0, ..place },
            InflightPlace { offset: 4096, ..place },
            InflightPlace { offset: 8, ..place },
            InflightPlace { offset: u64::MAX - 8, ..place },
            InflightPlace { rings: 0, ..place },
            InflightPlace { rings: 4, ..place },
            InflightPlace { rings: u16::MAX, bytes: u64::MAX, ..place },
            InflightPlace { entries: 0, ..place },
            InflightPlace { entries: 1025, bytes: 1 << 20, ..place },
            InflightPlace { entries: u16::MAX, bytes: u64::MAX, ..place },
        ] {
            let refused = InflightRegion::map(&wrong, file.try_clone().unwrap());
            assert_eq!(refused.err().map(|error| error.kind()), Some(Kind::Invalid), "{wrong:?}");
        }
        assert!(InflightRegion::create(&InflightPlace { rings: 129, ..PLACE }).is_err());
        assert!(InflightRegion::create(&InflightPlace { entries: 0, ..PLACE }).is_err());
        // a file that could shrink, one that is no memory, and one that shall be made smaller
        let loose = std::fs::File::from(memfd_create("loose", MemfdFlags::ALLOW_SEALING).unwrap());
        loose.set_len(place.bytes).unwrap();
        assert!(InflightRegion::map(&place, loose.into()).is_err());
        assert!(InflightRegion::map(&place, std::fs::File::open("/dev/zero").unwrap().into()).is_err());
        assert!(std::fs::File::from(file).set_len(0).is_err());
        let region = region();
        assert!(region.ring(3, 8, 0).is_err() && region.ring(0, 16, 0).is_err(), "rings that have no place");
    }

    #[test]
    fn what_was_taken_is_done_again_in_its_order() {
        let region = region();
        let (mut ring, heads) = region.ring(1, 8, 65534).unwrap();
        assert!(heads.is_none(), "a new one");
        [5, 2, 7, 0].iter().for_each(|head| ring.take(*head));
        assert_eq!(again(&region, 65534).1, [5, 2, 7, 0]);
        ring.giving(2);
        ring.given(2, 65535);
        ring.take(2);
        ring.giving(5);
        ring.given(5, 0);
        let (mut ring, heads) = again(&region, 0);
        assert_eq!(heads, [7, 0, 2]);
        // and what is taken after that comes after that
        ring.take(1);
        assert_eq!(again(&region, 0).1, [7, 0, 2, 1]);
        // heads that no ring has are nowhere
        ring.take(8);
        ring.giving(u16::MAX);
        ring.given(8, 0);
        assert_eq!(again(&region, 0).1, [7, 0, 2, 1]);
        assert!(
            region.ring(0, 8, 9).unwrap().1.is_none() && region.ring(2, 8, 9).unwrap().1.is_none(),
            "others are new"
        );
    }

    #[test]
    fn a_process_may_be_killed_between_any_two_steps() {
        let fresh = || {
            let region = region();
            let (mut ring, _) = region.ring(1, 8, 40).unwrap();
            [3, 4, 6].iter().for_each(|head| ring.take(*head));
            (region, ring)
        };
        let (region, ring) = fresh();
        ring.giving(4);
        assert_eq!(again(&region, 40).1, [3, 4, 6], "the used ring does not have it");
        // what was noted then is noted again
        ring.giving(3);
        assert_eq!(again(&region, 41).1, [4, 6], "the used ring has it");
        let (region, ring) = fresh();
        ring.giving(4);
        region.put(ring.state(4), 0u8);
        assert_eq!(again(&region, 41).1, [3, 6], "it is not in flight, and `used` was not told");
        assert_eq!(region.get::<u16>(ring.at + RING_USED), 41);
        // another server gives back several at once
        let (region, ring) = fresh();
        ring.giving(6);
        ring.giving(3);
        assert_eq!(again(&region, 42).1, [4]);
        // before the counter is told, and before it counts
        let (region, mut ring) = fresh();
        region.put(ring.state(1) + STATE_COUNTER, ring.counter);
        assert_eq!(again(&region, 40).1, [3, 4, 6]);
        ring.take(1);
        assert_eq!(again(&region, 40).1, [3, 4, 6, 1]);
    }

    #[test]
    fn wrong_numbers_lead_nowhere() {
        let region = region();
        let (ring, _) = region.ring(1, 8, 0).unwrap();
        region.put(ring.at + RING_LAST, u16::MAX);
        assert!(again(&region, 3).1.is_empty());
        // a circle, and more steps than there are entries
        region.put(ring.at + RING_LAST, 1u16);
        region.put(ring.state(1) + STATE_NEXT, 1u16);
        assert!(again(&region, u16::MAX).1.is_empty());
        // all are in flight, whatever that number is, of one counter, the last of all
        for head in 0..8 {
            region.put(ring.state(head), 77u8);
            region.put(ring.state(head) + STATE_COUNTER, u64::MAX);
        }
        region.put(ring.at + RING_ENTRIES, u16::MAX);
        let (mut ring, heads) = again(&region, u16::MAX);
        assert_eq!(heads, [0, 1, 2, 3, 4, 5, 6, 7]);
        ring.take(7);
        region.put(ring.at + RING_VERSION, 2u16);
        assert_eq!(region.ring(1, 8, 0).err().unwrap().kind(), Kind::Invalid);
    }
}
