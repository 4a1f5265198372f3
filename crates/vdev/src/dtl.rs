//! Dirty time log: the transaction groups whose writes a leaf has missed.
//!
//! A leaf that was away, or is new in a mirror, lacks the blocks that were born while it was; the
//! pool records them as ranges of birth transaction groups. Such a leaf is asked for those blocks
//! only when nobody else is left.
//!
//! ```text
//!   a write fails, or the leaf is away ──▶ missing ──▶ with the next group ──▶ its space map in the MOS
//!                                             ▲ │
//!            what it could not be given ──────┘ └── a resilver has read all blocks of those groups
//! ```

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Mutex, RwLock};
use format::ids::{ObjectId, Txg};

/// The dirty time log of a leaf, and what of it is on disk.
#[derive(Debug, Default)]
pub struct Dtl {
    missing: RwLock<TxgRanges>,
    /// Whether `missing` has anything in it: most leaves have missed nothing, and each read asks.
    any: AtomicBool,
    /// Births of blocks that the resilver of now could not give it.
    unfilled: Mutex<TxgRanges>,
    /// A flush has failed, which may have lost anything that the resilver of now gave it.
    lost_fill: AtomicBool,
    on_disk: Mutex<OnDisk>,
}

#[derive(Debug, Default)]
struct OnDisk {
    /// The space map that holds it; 0 if there is none.
    object: ObjectId,
    missing: TxgRanges,
}

impl Dtl {
    /// The log whose space map is `object`, or is to be made if that is 0. It has yet to be read: [`Dtl::load`].
    pub(crate) fn of_object(object: ObjectId) -> Dtl {
        Dtl { on_disk: Mutex::new(OnDisk { object, missing: TxgRanges::new() }), ..Dtl::default() }
    }

    /// Takes up what the space map says.
    pub fn load(&self, missing: TxgRanges) {
        self.on_disk.lock().missing = missing.clone();
        self.change(|now| *now = missing);
    }

    /// The transaction groups that the leaf has missed.
    pub fn missing(&self) -> TxgRanges {
        self.missing.read().clone()
    }

    /// Whether the leaf has missed nothing.
    pub fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Relaxed)
    }

    /// Whether the leaf lacks blocks born in `txg`.
    pub fn contains(&self, txg: Txg) -> bool {
        !self.is_empty() && self.missing.read().contains(txg)
    }

    /// Whether the leaf lacks blocks born in any of `txgs`.
    pub fn intersects(&self, txgs: &Range<Txg>) -> bool {
        !self.is_empty() && self.missing.read().intersects(txgs)
    }

    /// Notes that the leaf has missed `txgs`.
    pub fn insert(&self, txgs: Range<Txg>) {
        if !txgs.is_empty() {
            self.change(|missing| missing.insert(txgs));
        }
    }

    /// Notes that the leaf has everything of `txgs`.
    pub fn remove(&self, txgs: Range<Txg>) {
        self.change(|missing| missing.remove(txgs));
    }

    /// Notes that the leaf could not be given a block that was born in `txg`.
    pub fn note_unfilled(&self, txg: Txg) {
        self.unfilled.lock().insert(txg..txg.next());
    }

    /// Notes that what a resilver gave the leaf, and no flush has made last, may be lost.
    pub(crate) fn note_lost_fill(&self) {
        self.lost_fill.store(true, Ordering::Relaxed);
    }

    /// Whether a flush may have lost something that the resilver of now gave the leaf.
    pub fn has_lost_fill(&self) -> bool {
        self.lost_fill.load(Ordering::Relaxed)
    }

    /// Whether the resilver of now could not give the leaf something, or may have lost it.
    pub fn has_unfilled(&self) -> bool {
        self.has_lost_fill() || !self.unfilled.lock().is_empty()
    }

    /// A resilver begins: nothing has failed yet.
    pub fn begin_resilver(&self) {
        self.lost_fill.store(false, Ordering::Relaxed);
        *self.unfilled.lock() = TxgRanges::new();
    }

    /// A resilver has given the leaf all blocks born in `txgs`, but for those that were noted as unfilled.
    pub fn end_resilver(&self, txgs: Range<Txg>) {
        let unfilled = std::mem::take(&mut *self.unfilled.lock());
        self.change(|missing| {
            missing.remove(txgs);
            unfilled.iter().for_each(|range| missing.insert(range));
        });
    }

    fn change(&self, change: impl FnOnce(&mut TxgRanges)) {
        let mut missing = self.missing.write();
        change(&mut missing);
        self.any.store(!missing.is_empty(), Ordering::Relaxed);
    }

    /// The space map that holds it; 0 if there is none.
    pub fn object(&self) -> ObjectId {
        self.on_disk.lock().object
    }

    /// What the leaf has missed, if the space map says something else.
    pub fn unwritten(&self) -> Option<TxgRanges> {
        let missing = self.missing();
        (self.on_disk.lock().missing != missing).then_some(missing)
    }

    /// Notes that space map `object` says now that the leaf has missed `missing`.
    pub fn has_been_written(&self, object: ObjectId, missing: TxgRanges) {
        *self.on_disk.lock() = OnDisk { object, missing };
    }
}

/// A set of transaction groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxgRanges {
    /// Sorted, apart from each other, none of them empty.
    ranges: Vec<Range<Txg>>,
}

impl TxgRanges {
    /// The empty set.
    pub const fn new() -> TxgRanges {
        TxgRanges { ranges: Vec::new() }
    }

    /// Everything from `txg` on: what a leaf may lack whose own record ends before it.
    pub fn since(txg: Txg) -> TxgRanges {
        std::iter::once(txg..Txg::MAX).collect()
    }

    /// Adds the groups of `range`.
    pub fn insert(&mut self, range: Range<Txg>) {
        if range.is_empty() {
            return;
        }
        let first = self.ranges.partition_point(|r| r.end < range.start);
        let last = self.ranges.partition_point(|r| r.start <= range.end);
        let merged = self.ranges[first..last].iter().fold(range, |a, b| a.start.min(b.start)..a.end.max(b.end));
        self.ranges.splice(first..last, [merged]);
    }

    /// Takes the groups of `range` out.
    pub fn remove(&mut self, range: Range<Txg>) {
        if range.is_empty() {
            return;
        }
        let cut = |r: &Range<Txg>| [r.start..r.end.min(range.start), r.start.max(range.end)..r.end];
        self.ranges = self.ranges.iter().flat_map(cut).filter(|r| !r.is_empty()).collect();
    }

    /// Whether `txg` is in the set.
    pub fn contains(&self, txg: Txg) -> bool {
        let at = self.ranges.partition_point(|r| r.end <= txg);
        self.ranges.get(at).is_some_and(|r| r.start <= txg)
    }

    /// Whether any of `txgs` is in the set.
    pub fn intersects(&self, txgs: &Range<Txg>) -> bool {
        let at = self.ranges.partition_point(|r| r.end <= txgs.start);
        !txgs.is_empty() && self.ranges.get(at).is_some_and(|r| r.start < txgs.end)
    }

    /// From the first group to the last; `None` of the empty set.
    pub fn bounds(&self) -> Option<Range<Txg>> {
        Some(self.ranges.first()?.start..self.ranges.last()?.end)
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges, sorted.
    pub fn iter(&self) -> impl Iterator<Item = Range<Txg>> {
        self.ranges.iter().cloned()
    }
}

impl FromIterator<Range<Txg>> for TxgRanges {
    fn from_iter<I: IntoIterator<Item = Range<Txg>>>(ranges: I) -> TxgRanges {
        let mut set = TxgRanges::new();
        ranges.into_iter().for_each(|range| set.insert(range));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::groups;

    /// Against a plain set of numbers.
    #[test]
    fn behaves_like_a_set() {
        let mut x = 12345u32;
        let mut random = |n: u64| {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            u64::from(x >> 8) % n
        };
        for _ in 0..200 {
            let (mut set, mut model) = (TxgRanges::new(), [false; 64]);
            for _ in 0..20 {
                let start = random(60);
                let end = start + random(5);
                let (range, put) = (groups(start..end), random(3) > 0);
                model[start as usize..end as usize].fill(put);
                if put {
                    set.insert(range)
                } else {
                    set.remove(range)
                }
                assert!((0..64).all(|txg| set.contains(Txg::new(txg)) == model[txg as usize]), "{set:?}");
                let (from, to) = (random(60), 60);
                assert_eq!(
                    set.intersects(&groups(from..to)),
                    model[from as usize..to as usize].contains(&true),
                    "{set:?}"
                );
                assert!(!set.intersects(&groups(from..from)), "{set:?}");
                assert!(set.ranges.windows(2).all(|w| w[0].end < w[1].start), "{set:?}");
            }
        }
        assert!(
            TxgRanges::since(Txg::new(5)).contains(Txg::new(1 << 60))
                && !TxgRanges::since(Txg::new(5)).contains(Txg::new(4))
        );
    }

    #[test]
    fn a_log_knows_what_is_on_disk() {
        let dtl = Dtl::of_object(ObjectId::new(7));
        dtl.load(std::iter::once(groups(3..5)).collect());
        assert_eq!((dtl.object(), dtl.unwritten()), (ObjectId::new(7), None));
        dtl.insert(groups(5..6));
        dtl.insert(groups(9..9));
        assert!(dtl.contains(Txg::new(5)) && !dtl.contains(Txg::new(6)) && dtl.intersects(&groups(0..4)));
        let now: TxgRanges = std::iter::once(groups(3..6)).collect();
        assert_eq!(dtl.unwritten(), Some(now.clone()));
        dtl.has_been_written(ObjectId::new(8), now);
        assert_eq!((dtl.object(), dtl.unwritten()), (ObjectId::new(8), None));
        dtl.insert(groups(9..12));
        dtl.begin_resilver();
        dtl.note_unfilled(Txg::new(4));
        dtl.end_resilver(groups(3..11));
        assert_eq!(dtl.missing(), [groups(4..5), groups(11..12)].into_iter().collect());
        assert_eq!(dtl.missing().bounds(), Some(groups(4..12)));
        dtl.end_resilver(groups(0..12));
        assert!(dtl.is_empty() && !dtl.contains(Txg::new(3)) && dtl.unwritten().is_some());
    }
}
