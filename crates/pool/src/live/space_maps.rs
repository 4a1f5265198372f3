//! The space maps of metaslabs as objects of the MOS: read for the allocator, and told what it did.
//!
//! ```text
//!   vdev ─▶ array object: one number a metaslab ─▶ space map object: runs; bonus: length, sum, histogram
//!     └───▶ com.delphix:pool_checkpoint_sm ──────▶ space map object of the whole vdev: what only the checkpoint has
//! ```
//!
//! A map is appended to. When it has grown to twice what it would be written anew, it is written anew. What is kept for
//! a checkpoint is logged as freed in the vdev's map, and stays allocated in that of its metaslab. What no block has any
//! more of a removed vdev is logged as allocated in its map of obsolete bytes.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use base::{Error, Kind, Mutex, RangeTree, Result};
use dmu::{Object, Objset};
use dsl::write::{Change, feature};
use format::dnode::Dnode;
use format::feature::{OBSOLETE_COUNTS, SPACEMAP_HISTOGRAM, SPACEMAP_V2};
use format::ids::{ObjectId, VdevNumber};
use format::object_type::ObjectType;
use format::space_map::{Encoder, HISTOGRAM_BUCKETS, Run, SpaceMapHeader, runs};
use vdev::TopRange;
use zio::alloc::{Allocator, MetaslabChange, SpaceMapSource};

use crate::mos::map_size_max;

/// log2 of the bytes of an indirect block of a space map.
const INDIRECT_SHIFT: u8 = 14;
/// Bytes of a block of a space map: zfs_metaslab_sm_blksz_no_log.
const BLOCK_SIZE: u64 = 16 << 10;
/// Per cent of what it would be written anew that a map may grow to: zfs_condense_pct.
const CONDENSE_PERCENT: u64 = 200;
/// Shorter maps are not written anew.
const CONDENSE_BYTES_MIN: u64 = 4 * BLOCK_SIZE;

/// Entry in the table of a vdev: the map of what only the checkpoint has.
pub(super) const CHECKPOINT_MAP: &str = "com.delphix:pool_checkpoint_sm";
/// Entry in the table of a removed vdev: the map of what no block has any more of it.
pub(super) const OBSOLETE_MAP: &str = "com.delphix:indirect_obsolete_sm";
/// Bytes of such a map that are taken off it at once, in whole blocks.
const KEPT_BYTES: u64 = 256 << 10;

/// Where the maps of one top-level vdev are.
#[derive(Clone, Debug)]
pub(super) struct MapsOfTop {
    /// The table of the vdev; 0 in old pools.
    pub(super) zap: ObjectId,
    /// Object of the map of what only the checkpoint has; 0: there is none.
    pub(super) kept: ObjectId,
    /// Object of the numbers of the space maps.
    pub(super) array: ObjectId,
    /// log2 of the unit of the maps.
    pub(super) ashift: u32,
    /// Objects of the maps, 0 where there is none, and the bytes of the metaslabs.
    pub(super) maps: Vec<(ObjectId, Range<u64>)>,
}

/// Changes of metaslabs, by vdev and number, that their maps do not have yet: in bytes, in order.
pub(super) type PendingRuns = HashMap<(VdevNumber, u64), Vec<Run>>;

/// Where is noted what no block has any more of a removed vdev.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObsoleteMap {
    /// The table of the vdev.
    pub(super) zap: ObjectId,
    /// Object of the map, whose unit is a byte; 0: there is none.
    pub(super) map: ObjectId,
}

/// The space maps of a pool.
pub(super) struct SpaceMaps {
    /// Weak, as what allocates for the MOS holds this.
    mos: Mutex<Weak<Objset>>,
    tops: Mutex<HashMap<VdevNumber, MapsOfTop>>,
    /// Of removed vdevs, by number.
    obsolete: Mutex<HashMap<VdevNumber, ObsoleteMap>>,
    /// More is noted there than when somebody looked last.
    has_more_obsolete: AtomicBool,
    pending: Mutex<PendingRuns>,
}

/// What the allocator gets.
pub(super) struct SpaceMapReader(pub(super) Arc<SpaceMaps>);

impl SpaceMapSource for SpaceMapReader {
    fn runs(&self, top: VdevNumber, metaslab: u64) -> Result<Vec<Run>> {
        self.0.runs(top, metaslab)
    }
}

impl SpaceMaps {
    pub(super) fn new(tops: HashMap<VdevNumber, MapsOfTop>, pending: PendingRuns) -> SpaceMaps {
        let (tops, pending) = (Mutex::new(tops), Mutex::new(pending));
        let has_more_obsolete = AtomicBool::new(true);
        SpaceMaps { mos: Mutex::default(), tops, obsolete: Mutex::default(), has_more_obsolete, pending }
    }

    /// Tells where removed vdevs have their maps.
    pub(super) fn set_obsolete(&self, maps: HashMap<VdevNumber, ObsoleteMap>) {
        *self.obsolete.lock() = maps;
    }

    /// Where removed vdevs, and those that are being removed, have their maps.
    pub(super) fn obsolete_maps(&self) -> Vec<(VdevNumber, ObsoleteMap)> {
        self.obsolete.lock().iter().map(|(top, map)| (*top, *map)).collect()
    }

    /// Whether more has become obsolete since [`SpaceMaps::obsolete_was_looked_at`].
    pub(super) fn has_more_obsolete(&self) -> bool {
        self.has_more_obsolete.load(Ordering::Relaxed) && !self.obsolete.lock().is_empty()
    }

    pub(super) fn obsolete_was_looked_at(&self) {
        self.has_more_obsolete.store(false, Ordering::Relaxed);
    }

    /// Tells that a vdev is being removed.
    pub(super) fn add_obsolete(&self, top: VdevNumber, map: ObsoleteMap) {
        self.obsolete.lock().insert(top, map);
    }

    /// Forgets what no block has any more of a vdev: it is not removed.
    pub(super) fn free_obsolete(&self, change: &Change<'_>, top: VdevNumber) -> Result<()> {
        let Some(ObsoleteMap { zap, map }) = self.obsolete.lock().remove(&top) else { return Ok(()) };
        if map.is_some() {
            change.free_object(map)?;
            feature::count(change, SPACEMAP_HISTOGRAM, -1)?;
            change.remove(zap, OBSOLETE_MAP)?;
            feature::count(change, OBSOLETE_COUNTS, -1)?;
        }
        Ok(())
    }

    /// Tells the set that the maps are in.
    pub(super) fn set_mos(&self, mos: &Arc<Objset>) {
        *self.mos.lock() = Arc::downgrade(mos);
    }

    /// Adds a top-level vdev in which nothing is allocated.
    pub(super) fn add_top(&self, top: VdevNumber, maps: MapsOfTop) {
        self.tops.lock().insert(top, maps);
    }

    /// A top-level vdev has more metaslabs, in which nothing is allocated.
    pub(super) fn grow_top(&self, top: VdevNumber, ranges: &[Range<u64>]) {
        if let Some(maps) = self.tops.lock().get_mut(&top) {
            maps.maps.extend(ranges.iter().map(|range| (ObjectId::NONE, range.clone())));
        }
    }

    /// Whether something has ever been allocated in the metaslab that has a byte of a top-level vdev.
    pub(super) fn has_been_used(&self, top: VdevNumber, byte: u64) -> bool {
        let tops = self.tops.lock();
        let Some(MapsOfTop { maps, .. }) = tops.get(&top) else { return false };
        let after = maps.partition_point(|(_, range)| range.end <= byte);
        let has_map = maps.get(after).is_some_and(|(map, range)| map.is_some() && range.contains(&byte));
        has_map || self.pending.lock().contains_key(&(top, after as u64))
    }

    /// Frees the maps of a top-level vdev, and their array: nothing is on it any more.
    pub(super) fn free_top(&self, change: &Change<'_>, top: VdevNumber) -> Result<()> {
        let Some(MapsOfTop { array, maps, .. }) = self.tops.lock().remove(&top) else { return Ok(()) };
        let maps: Vec<ObjectId> = maps.into_iter().map(|(map, _)| map).filter(|map| map.is_some()).collect();
        maps.iter().try_for_each(|&map| change.free_object(map))?;
        feature::count(change, SPACEMAP_HISTOGRAM, -(maps.len() as i64))?;
        change.free_object(array)
    }

    fn runs(&self, top: VdevNumber, metaslab: u64) -> Result<Vec<Run>> {
        let (map, ashift, range) = self.place(top, metaslab)?;
        let pending = self.pending.lock().get(&(top, metaslab)).cloned().unwrap_or_default();
        if map.is_none() {
            return Ok(pending);
        }
        let gone = || Error::new(Kind::Missing, "the pool is being closed");
        let mos = self.mos.lock().upgrade().ok_or_else(gone)?;
        let object = mos.object(map)?;
        let header = SpaceMapHeader::parse(object.bonus())?;
        let bytes = object.read_whole(header.length, map_size_max(range.end - range.start, ashift))?;
        let in_bytes = |run: Result<Run>| {
            let run = run.map_err(|e| e.at_block(object.bookmark(0, 0)))?;
            let offset = run.offset.checked_shl(ashift).and_then(|offset| offset.checked_add(range.start));
            let too_far = || Error::corrupt("a run of a space map is out of all bounds");
            Ok(Run { offset: offset.ok_or_else(too_far)?, len: run.len << ashift, ..run })
        };
        runs(&bytes).map(in_bytes).chain(pending.into_iter().map(Ok)).collect()
    }

    /// Writes all maps anew that lack something.
    pub(super) fn take_up(&self, change: &Change<'_>) -> Result<()> {
        let allocator = change.mos.cache().zio().allocator()?.clone();
        let places: Vec<(VdevNumber, u64)> = self.pending.lock().keys().copied().collect();
        // what the group has freed so far is part of maps that are written anew
        let mut told = allocator.take_changes(change.tx.txg());
        told.iter_mut().try_for_each(|one| self.write_kept(change, one.top, &std::mem::take(&mut one.kept), 1))?;
        told.retain(|one| !places.contains(&(one.top, one.metaslab)));
        self.write(change, told, 1)?;
        for (top, metaslab) in places {
            let [allocated, freed, kept] = Default::default();
            let one = MetaslabChange { top, metaslab, allocated, freed, kept };
            self.write_one(change, &allocator, &one, (1, true))?;
            self.pending.lock().remove(&(top, metaslab));
        }
        Ok(())
    }

    fn place(&self, top: VdevNumber, metaslab: u64) -> Result<(ObjectId, u32, Range<u64>)> {
        let tops = self.tops.lock();
        let found = tops.get(&top).and_then(|t| Some((t, t.maps.get(metaslab as usize)?)));
        let absent = || Error::corrupt(format!("there is no metaslab {metaslab} on vdev {top}"));
        found.map(|(t, (map, range))| (*map, t.ashift, range.clone())).ok_or_else(absent)
    }

    /// Writes down what was allocated and freed.
    pub(super) fn write(&self, change: &Change<'_>, changes: Vec<MetaslabChange>, pass: u32) -> Result<()> {
        let allocator = change.mos.cache().zio().allocator()?.clone();
        for one in changes {
            if !one.allocated.is_empty() || !one.freed.is_empty() {
                self.write_one(change, &allocator, &one, (pass, false))?;
            }
            self.write_kept(change, one.top, &one.kept, pass)?;
        }
        self.write_obsolete(change, &allocator, pass)
    }

    /// Notes what no block has any more of removed vdevs, if the pool counts that.
    fn write_obsolete(&self, change: &Change<'_>, allocator: &Allocator, pass: u32) -> Result<()> {
        let mut by_top: HashMap<VdevNumber, Vec<Range<u64>>> = HashMap::new();
        for TopRange { top, range } in allocator.take_obsolete() {
            by_top.entry(top).or_default().push(range);
        }
        if by_top.is_empty() || feature::uses(change, OBSOLETE_COUNTS)?.is_none() {
            return Ok(());
        }
        for (top, mut ranges) in by_top {
            let Some(ObsoleteMap { zap, mut map }) = self.obsolete.lock().get(&top).copied() else { continue };
            if map.is_none() {
                map = new_map_object(change)?.id();
                change.add(zap, OBSOLETE_MAP, map.get())?;
                feature::count(change, OBSOLETE_COUNTS, 1)?;
                self.obsolete.lock().insert(top, ObsoleteMap { zap, map });
            }
            ranges.sort_unstable_by_key(|range| range.start);
            self.has_more_obsolete.store(true, Ordering::Relaxed);
            append_runs(change, map, true, (&ranges, 0), pass)?;
        }
        Ok(())
    }

    /// Notes what only the checkpoint has from now on.
    fn write_kept(&self, change: &Change<'_>, top: VdevNumber, kept: &[Range<u64>], pass: u32) -> Result<()> {
        if kept.is_empty() {
            return Ok(());
        }
        let (map, ashift) = {
            let mut tops = self.tops.lock();
            let maps = tops.get_mut(&top).expect("a vdev that has blocks has metaslabs");
            if maps.kept.is_none() {
                maps.kept = new_map_object(change)?.id();
                change.add(maps.zap, CHECKPOINT_MAP, maps.kept.get())?;
            }
            (maps.kept, maps.ashift)
        };
        append_runs(change, map, false, (kept, ashift), pass)
    }

    /// The top-level vdevs that have something for a checkpoint.
    pub(super) fn tops_with_kept(&self) -> Vec<VdevNumber> {
        self.tops.lock().iter().filter(|(_, maps)| maps.kept.is_some()).map(|(top, _)| *top).collect()
    }

    /// Whether the pool can note what only a checkpoint has.
    pub(super) fn can_keep(&self) -> bool {
        self.tops.lock().values().all(|maps| maps.zap.is_some())
    }

    /// Takes the end off the map of what a top-level vdev has for a checkpoint that is discarded: ranges in bytes. The
    /// map goes with the last of them. Errors: `Corrupt` if it makes no sense, with nothing changed.
    pub(super) fn take_kept(&self, change: &Change<'_>, top: VdevNumber) -> Result<Vec<Range<u64>>> {
        let found = self.tops.lock().get(&top).map(|maps| (maps.zap, maps.kept, maps.ashift));
        let Some((zap, map, ashift)) = found.filter(|(_, map, _)| map.is_some()) else { return Ok(Vec::new()) };
        let object = change.mos.object(map)?;
        let before = SpaceMapHeader::parse(object.bonus())?;
        // no entry is in two blocks
        let size = object.dnode().block_size;
        let start = before.length.div_ceil(size).saturating_sub((KEPT_BYTES / size).max(1)) * size;
        let mut bytes = vec![0; (before.length - start) as usize];
        object.read(start, &mut bytes)?;
        let (mut kept, mut taken) = (Vec::new(), 0u64);
        for run in runs(&bytes) {
            let run = run.map_err(|e| e.at_block(object.bookmark(0, 0)))?;
            let begin = run.offset.checked_shl(ashift).filter(|begin| begin >> ashift == run.offset);
            let end = begin.and_then(|begin| begin.checked_add(run.len << ashift));
            let sum = taken.checked_add(run.len << ashift);
            let (Some(begin), Some(end), Some(sum), false) = (begin, end, sum, run.allocated) else {
                return Err(Error::corrupt("the space map of the checkpoint has an impossible run"));
            };
            kept.push(begin..end);
            taken = sum;
        }
        if start == 0 {
            change.free_object(map)?;
            feature::count(change, SPACEMAP_HISTOGRAM, -1)?;
            change.remove(zap, CHECKPOINT_MAP)?;
            self.tops.lock().get_mut(&top).expect("found before").kept = ObjectId::NONE;
            return Ok(kept);
        }
        object.free_range(change.tx, start, before.length - start)?;
        let allocated = before.allocated.saturating_add_unsigned(taken);
        set_header(
            change,
            &object,
            SpaceMapHeader { length: start, allocated },
            object.bonus().len() >= SpaceMapHeader::SIZES[0],
        )?;
        Ok(kept)
    }

    fn write_one(
        &self,
        change: &Change<'_>,
        allocator: &Allocator,
        one: &MetaslabChange,
        (pass, lacks_changes): (u32, bool),
    ) -> Result<()> {
        let (map, ashift, range) = self.place(one.top, one.metaslab)?;
        let object = match map {
            ObjectId::NONE => self.create_map(change, one)?,
            map => change.mos.object(map)?,
        };
        let before = SpaceMapHeader::parse(object.bonus())?;
        let txg = change.tx.txg();
        let allocated = allocator.condensed(one.top, one.metaslab, txg)?;
        let is_long = before.length > CONDENSE_BYTES_MIN
            && before.length > allocated.count() as u64 * 16 * CONDENSE_PERCENT / 100;
        // written anew at most once in a group, or it would not converge
        let anew = lacks_changes || is_long && pass == 2;
        let start = if anew { 0 } else { before.length };
        let two_words = feature::uses(change, SPACEMAP_V2)?.is_some();
        let mut encoder = Encoder::new(start, object.dnode().block_size, two_words);
        let mut push = |is_allocated: bool, ranges: &mut dyn Iterator<Item = Range<u64>>| {
            let mut begun = false;
            for part in ranges {
                if !std::mem::replace(&mut begun, true) {
                    encoder.begin(is_allocated, pass.into(), txg);
                }
                let (offset, len) = ((part.start - range.start) >> ashift, (part.end - part.start) >> ashift);
                encoder.push(&Run { allocated: is_allocated, offset, len, vdev: None });
            }
        };
        if anew {
            push(true, &mut allocated.iter());
        } else {
            push(true, &mut one.allocated.iter().cloned());
            push(false, &mut one.freed.iter().cloned());
        }
        let length = encoder.length();
        if anew {
            object.free_range(change.tx, 0, before.length)?;
        }
        object.write(change.tx, start, &encoder.finish())?;
        let header = SpaceMapHeader { length, allocated: allocated.total() as i64 };
        let has_histogram = object.bonus().len() >= SpaceMapHeader::SIZES[0];
        let histogram = has_histogram.then(|| histogram(&allocated, &range, ashift));
        let bonus = header.bonus(object.id(), histogram.as_ref());
        object.update(change.tx, |dnode| dnode.bonus = bonus)
    }

    /// Makes the map of a metaslab in which something is allocated for the first time.
    fn create_map(&self, change: &Change<'_>, one: &MetaslabChange) -> Result<Object> {
        let object = new_map_object(change)?;
        let mut tops = self.tops.lock();
        let top = tops.get_mut(&one.top).expect("a vdev that is allocated from has metaslabs");
        change.mos.object(top.array)?.write(change.tx, one.metaslab * 8, &object.id().get().to_le_bytes())?;
        top.maps[one.metaslab as usize].0 = object.id();
        object.fresh()
    }
}

/// Adds ranges to a map whose unit is 2^`shift` bytes.
fn append_runs(
    change: &Change<'_>,
    map: ObjectId,
    allocated: bool,
    (ranges, shift): (&[Range<u64>], u32),
    pass: u32,
) -> Result<()> {
    let object = change.mos.object(map)?;
    let before = SpaceMapHeader::parse(object.bonus())?;
    let two_words = feature::uses(change, SPACEMAP_V2)?.is_some();
    let mut encoder = Encoder::new(before.length, object.dnode().block_size, two_words);
    encoder.begin(allocated, pass.into(), change.tx.txg());
    let mut bytes = 0i64;
    for part in ranges {
        bytes = bytes.saturating_add_unsigned(part.end - part.start);
        let (offset, len) = (part.start >> shift, (part.end - part.start) >> shift);
        encoder.push(&Run { allocated, offset, len, vdev: None });
    }
    let length = encoder.length();
    object.write(change.tx, before.length, &encoder.finish())?;
    let bytes = if allocated { bytes } else { -bytes };
    let header = SpaceMapHeader { length, allocated: before.allocated.saturating_add(bytes) };
    set_header(change, &object, header, object.bonus().len() >= SpaceMapHeader::SIZES[0])
}

/// An empty map.
fn new_map_object(change: &Change<'_>) -> Result<Object> {
    let has_histogram = feature::uses(change, SPACEMAP_HISTOGRAM)?.is_some();
    let object = change.mos.allocate(change.tx, new_map(BLOCK_SIZE, has_histogram))?;
    feature::count(change, SPACEMAP_HISTOGRAM, 1)?;
    set_header(change, &object, SpaceMapHeader { length: 0, allocated: 0 }, has_histogram)?;
    object.fresh()
}

/// Sets the header of a map without marks of free runs.
fn set_header(change: &Change<'_>, object: &Object, header: SpaceMapHeader, has_histogram: bool) -> Result<()> {
    let bonus = header.bonus(object.id(), has_histogram.then_some(&[0; HISTOGRAM_BUCKETS]));
    object.update(change.tx, |dnode| dnode.bonus = bonus)
}

/// The dnode of an empty map. OpenZFS goes by the room that it leaves to the bonus buffer when it looks
/// whether a map has a histogram, so one without has no room for one.
pub(super) fn new_map(block_size: u64, has_histogram: bool) -> Dnode {
    let pointers = if has_histogram { 1 } else { 3 };
    let mut dnode = Dnode::new(ObjectType::SPACE_MAP, block_size, INDIRECT_SHIFT, pointers, 1);
    dnode.bonus_type = ObjectType::SPACE_MAP_HEADER;
    dnode
}

/// Numbers of free runs, by the binary logarithm of their lengths.
fn histogram(allocated: &RangeTree, range: &Range<u64>, ashift: u32) -> [u64; HISTOGRAM_BUCKETS] {
    let mut buckets = [0; HISTOGRAM_BUCKETS];
    let mut at = range.start;
    let ends = allocated.iter().chain(std::iter::once(range.end..range.end));
    for part in ends {
        if part.start > at {
            let bucket = ((part.start - at) >> ashift).max(1).ilog2() as usize;
            buckets[bucket.min(HISTOGRAM_BUCKETS - 1)] += 1;
        }
        at = part.end;
    }
    buckets
}
