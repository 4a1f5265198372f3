//! What is on the cache devices, in 24 bytes of memory a block at most, however large the block.
//!
//! ```text
//!   slot, 16 bytes   hash of address and birth txg (64) | sector (40) | device (8) | sweep (8) | flags (8)
//!
//!   table  [ slot | slot |  -  | slot | ... ]    looked for from hash * slots / 2^64 on, up to an empty one
//! ```
//!
//! The hash stands for the block: one that is mistaken for another is read in vain, as the reader verifies the
//! checksum. Nothing is taken out when the write hand passes over blocks: a slot tells the sweep that it is of, and
//! [`Hands`] whether what was written there then is still there. Slots that are over are used again, and left behind
//! when a table becomes full: it grows only if it is full of what is there.
//!
//! There are many tables, each under a lock of its own, so that one that is copied is a small part of all.

use std::sync::atomic::{AtomicU64, Ordering};

use base::RwLock;
use format::blkptr::BlkPtr;
use format::ids::Txg;

/// Cache devices that there may be.
pub(crate) const DEVICES_MAX: usize = 256;
/// Sectors in which offsets are counted.
const SECTOR_SHIFT: u32 = 9;
const SECTOR_BITS: u32 = 40;
/// Offsets on a device that can be told.
pub(crate) const OFFSET_MAX: u64 = 1 << (SECTOR_BITS + SECTOR_SHIFT);

const TABLES: usize = 256;
const SLOTS_MIN: usize = 16;
/// Of how many hundred slots how many may be used, and how many are when a table has just been copied. 16 bytes a
/// slot are 20 a block when it is full, and 23.5 when it is new.
const FULL_PERCENT: usize = 80;
const NEW_PERCENT: usize = 68;

/// What a block is known by: where it is, and the group that it was allocated in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct L2Key {
    /// The first address, as in the block pointer.
    pub dva: [u64; 2],
    /// The group that it was allocated in.
    pub birth: Txg,
}

impl L2Key {
    /// That of the block that it leads to.
    pub fn of(bp: &BlkPtr) -> L2Key {
        L2Key { dva: bp.dvas()[0].words(), birth: bp.physical_birth() }
    }

    /// A number that looks random; never 0.
    pub fn hash(&self) -> u64 {
        let words = [self.dva[0], self.dva[1], self.birth.get()];
        let mixed = words.into_iter().fold(base::MIX_STRIDE, |hash, word| base::split_mix(hash ^ word));
        mixed.max(1)
    }
}

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) device: u8,
    pub(crate) sweep: u8,
    /// Offset on the device: a multiple of 512.
    pub(crate) offset: u64,
    /// It came from the recent blocks.
    pub(crate) is_recent: bool,
    /// It was prefetched, and nobody had asked for it.
    pub(crate) is_prefetched: bool,
}

const RECENT: u64 = 1;
const PREFETCHED: u64 = 2;

impl Spot {
    fn pack(self) -> u64 {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(self.is_recent, RECENT) | flag(self.is_prefetched, PREFETCHED);
        self.offset >> SECTOR_SHIFT << 24 | u64::from(self.device) << 16 | u64::from(self.sweep) << 8 | flags
    }

    fn unpack(word: u64) -> Spot {
        Spot {
            device: (word >> 16) as u8,
            sweep: (word >> 8) as u8,
            offset: word >> 24 << SECTOR_SHIFT,
            is_recent: word & RECENT != 0,
            is_prefetched: word & PREFETCHED != 0,
        }
    }
}

/// Where the hands of all devices are: which places hold what was written to them last.
pub(crate) struct Hands(Vec<[AtomicU64; 2]>);

/// In the place of the write hand: there is no device.
const NO_DEVICE: u64 = u64::MAX;

impl Hands {
    pub(crate) fn new() -> Hands {
        Hands((0..DEVICES_MAX).map(|_| [AtomicU64::new(NO_DEVICE), AtomicU64::new(0)]).collect())
    }

    /// The device is in that sweep, and writes at `hand`; what lies up to `evict` is lost.
    pub(crate) fn set(&self, device: u8, sweep: u8, hand: u64, evict: u64) {
        let [first, second] = &self.0[usize::from(device)];
        second.store(evict, Ordering::Relaxed);
        first.store(hand >> SECTOR_SHIFT << 8 | u64::from(sweep), Ordering::Relaxed);
    }

    /// There is no such device any more.
    pub(crate) fn clear(&self, device: u8) {
        self.0[usize::from(device)][0].store(NO_DEVICE, Ordering::Relaxed);
    }

    /// Whether a block is still where it was written. While the hands move it may not be; but then its checksum
    /// tells.
    fn holds(&self, spot: Spot) -> bool {
        let [first, second] = self.0[usize::from(spot.device)].each_ref().map(|word| word.load(Ordering::Relaxed));
        let (hand, sweep) = (first >> 8 << SECTOR_SHIFT, first as u8);
        first != NO_DEVICE
            && match sweep.wrapping_sub(spot.sweep) {
                0 => spot.offset < hand,
                1 => spot.offset >= second,
                _ => false,
            }
    }
}

/// All tables.
pub(crate) struct Index {
    tables: Vec<RwLock<IndexTable>>,
    pub(crate) hands: Hands,
}

#[derive(Default)]
struct IndexTable {
    slots: Box<[[u64; 2]]>,
    used: usize,
}

impl Index {
    pub(crate) fn new() -> Index {
        Index { tables: (0..TABLES).map(|_| RwLock::default()).collect(), hands: Hands::new() }
    }

    fn table(&self, hash: u64) -> &RwLock<IndexTable> {
        // the high bits choose the slot
        &self.tables[hash as usize % TABLES]
    }

    /// Where a block is, as far as known.
    pub(crate) fn find(&self, key: &L2Key) -> Option<Spot> {
        let hash = key.hash();
        let table = self.table(hash).read();
        let spot = Spot::unpack(table.slots.get(table.place(hash)?)?[1]);
        drop(table);
        self.hands.holds(spot).then_some(spot)
    }

    /// A block is there from now on; unless `replaces`, only if nothing else is known of it. Whether it is.
    pub(crate) fn insert(&self, key: &L2Key, spot: Spot, replaces: bool) -> bool {
        let hash = key.hash();
        let mut table = self.table(hash).write();
        if let Some(slot) = table.place(hash).and_then(|at| table.slots.get_mut(at)) {
            let takes = replaces || !self.hands.holds(Spot::unpack(slot[1]));
            if takes {
                slot[1] = spot.pack();
            }
            return takes;
        }
        if (table.used + 1) * 100 > table.slots.len() * FULL_PERCENT {
            table.copy(&self.hands);
        }
        table.put([hash, spot.pack()], &self.hands);
        true
    }

    /// A block that is not there, or is not what it should be: it is not looked for any more. Whether it was.
    pub(crate) fn forget(&self, key: &L2Key, spot: Spot) -> bool {
        let hash = key.hash();
        let mut table = self.table(hash).write();
        if let Some(slot) = table.place(hash).and_then(|at| table.slots.get_mut(at))
            && slot[1] == spot.pack()
        {
            // of a sweep that is long over
            slot[1] = Spot { sweep: spot.sweep.wrapping_sub(128), ..spot }.pack();
            return true;
        }
        false
    }

    /// Leaves behind all that is over, for when a device has gone.
    pub(crate) fn clean(&self) {
        for table in &self.tables {
            table.write().copy(&self.hands);
        }
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        let tables = self.tables.iter().map(|table| table.read().slots.len());
        (tables.sum::<usize>() * size_of::<[u64; 2]>() + TABLES * size_of::<RwLock<IndexTable>>()) as u64
    }
}

impl IndexTable {
    fn first(&self, hash: u64) -> usize {
        (u128::from(hash) * self.slots.len() as u128 >> 64) as usize
    }

    /// The slot that has this hash.
    fn place(&self, hash: u64) -> Option<usize> {
        let (first, count) = (self.first(hash), self.slots.len());
        let order = (first..count).chain(0..first);
        order.take_while(|at| self.slots[*at][0] != 0).find(|at| self.slots[*at][0] == hash)
    }

    /// Takes the first slot that is empty or over; one of them there is.
    fn put(&mut self, slot: [u64; 2], hands: &Hands) {
        let (first, count) = (self.first(slot[0]), self.slots.len());
        let mut order = (first..count).chain(0..first);
        let is_free = |slot: &[u64; 2]| slot[0] == 0 || !hands.holds(Spot::unpack(slot[1]));
        if let Some(at) = order.find(|at| is_free(&self.slots[*at])) {
            self.used += usize::from(self.slots[at][0] == 0);
            self.slots[at] = slot;
        }
    }

    /// Makes a table of what is there, with room for more of it.
    fn copy(&mut self, hands: &Hands) {
        let live = |slot: &&[u64; 2]| slot[0] != 0 && hands.holds(Spot::unpack(slot[1]));
        let count = self.slots.iter().filter(live).count();
        let slots = (count * 100 / NEW_PERCENT + 1).max(SLOTS_MIN);
        let old = std::mem::replace(&mut self.slots, vec![[0; 2]; slots].into());
        self.used = 0;
        old.iter().filter(live).for_each(|slot| self.put(*slot, hands));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn key(n: u64) -> L2Key {
        L2Key { dva: [n % 3 << 32 | 16, n * 256], birth: Txg::new(1000 + n / 100) }
    }

    fn spot(n: u64, sweep: u8) -> Spot {
        Spot {
            device: (n % 2) as u8,
            sweep,
            offset: n * 512,
            is_recent: n.is_multiple_of(3),
            is_prefetched: n % 5 == 1,
        }
    }

    #[test]
    fn finds_what_is_there() {
        let index = Index::new();
        index.hands.set(0, 0, MIB, 0);
        index.hands.set(1, 0, MIB, 0);
        (0..2048).for_each(|n| assert!(index.insert(&key(n), spot(n, 0), true)));
        (0..2048).for_each(|n| assert_eq!(index.find(&key(n)), Some(spot(n, 0))));
        assert_eq!((2048..9999).find_map(|n| index.find(&key(n))), None);
        assert!(!index.insert(&key(7), spot(9, 0), false) && index.find(&key(7)) == Some(spot(7, 0)));
        assert!(index.insert(&key(7), spot(9, 0), true) && index.find(&key(7)) == Some(spot(9, 0)));
        assert!(!index.forget(&key(7), spot(7, 0)));
        assert!(index.find(&key(7)).is_some(), "it is elsewhere now");
        assert!(index.forget(&key(7), spot(9, 0)));
        assert_eq!(index.find(&key(7)), None);
        index.hands.clear(0);
        index.clean();
        let left: Vec<u64> = (0..2048).filter(|n| index.find(&key(*n)).is_some()).collect();
        assert!(left.iter().all(|n| n % 2 == 1) && left.len() == 1023);
    }

    #[test]
    fn what_the_hand_has_passed_is_over() {
        let index = Index::new();
        index.hands.set(0, 255, MIB, 0);
        let at = |offset| Spot { device: 0, sweep: 255, offset, is_recent: false, is_prefetched: false };
        [0, 4096, 8192].into_iter().for_each(|offset| assert!(index.insert(&key(offset), at(offset), true)));
        index.hands.set(0, 0, 0, 4096);
        assert_eq!([0, 4096, 8192].map(|offset| index.find(&key(offset)).is_some()), [false, true, true]);
        let new = Spot { sweep: 0, ..at(0) };
        index.insert(&key(1), new, true);
        assert_eq!(index.find(&key(1)), None, "not written yet");
        index.hands.set(0, 0, 4096, 8192);
        assert_eq!(index.find(&key(1)), Some(new));
        assert_eq!([4096, 8192].map(|offset| index.find(&key(offset)).is_some()), [false, true]);
        index.hands.set(0, 1, 0, 0);
        assert_eq!(index.find(&key(8192)), None, "two sweeps ago");
    }

    /// A million blocks on a device that is written over and over.
    #[test]
    fn twenty_four_bytes_a_block() {
        let index = Index::new();
        const COUNT: u64 = 1 << 20;
        let per_block = |live: u64| index.bytes() as f64 / live as f64;
        let mut most = 0f64;
        for n in 0..5 * COUNT / 2 {
            let (sweep, at) = ((n / COUNT) as u8, n % COUNT * 512);
            index.hands.set(0, sweep, at + 512, at + 512);
            let spot = Spot { device: 0, sweep, offset: at, is_recent: false, is_prefetched: false };
            index.insert(&key(n), spot, true);
            if n >= COUNT / 2 && n.is_multiple_of(100_003) {
                most = most.max(per_block(COUNT.min(n + 1)));
            }
        }
        assert!(most <= 24.0 && per_block(COUNT) <= 24.0, "{most} bytes a block");
        let found = (3 * COUNT / 2..5 * COUNT / 2).filter(|n| index.find(&key(*n)).is_some()).count();
        assert_eq!(found as u64, COUNT);
        assert_eq!((0..3 * COUNT / 2).find_map(|n| index.find(&key(n))), None);
    }
}
