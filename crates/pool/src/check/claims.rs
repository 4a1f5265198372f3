//! What the space maps say is allocated, and what of that blocks lay claim to.
//!
//! At first every metaslab holds all that its space map, and the logs of later changes, say is
//! allocated. Each block that is found takes its bytes out. What is left at the end is leaked; a block
//! whose bytes are not there is one of two on the same place, or in free space.
//!
//! A removed vdev has no space maps. The bytes that its table has an entry for are what can be claimed
//! there, and each claim is also one of the places where they are now.

use std::ops::Range;
use std::sync::Arc;

use base::{Error, Result};
use dmu::zap::Zap;
use format::blkptr::Dva;
use format::ids::{Txg, VdevNumber};
use vdev::spec::Bias;
use vdev::{MapEntry, Vdev, VdevKind};

use super::segments::Segments;
use crate::metaslabs::{self, MetaslabRecord};
use crate::{Pool, mos};

/// How often a removed vdev may lead to another one.
const HOPS_MAX: usize = 64;

/// What vdevs are set aside for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpaceClass {
    /// Everything that has no class of its own.
    Normal,
    /// The intent log, on vdevs of its own.
    Log,
    /// The intent log, on one metaslab of each normal vdev.
    EmbeddedLog,
    /// Metadata and small blocks.
    Special,
    /// Dedup tables.
    Dedup,
}

/// Space of a class, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassSpace {
    /// Whether the pool has such vdevs.
    pub exists: bool,
    /// Bytes that the space maps say are allocated, without the logs.
    pub allocated: u64,
    /// Bytes in all.
    pub space: u64,
}

/// Bytes that are allocated, but belong to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leak {
    /// Top-level vdev.
    pub vdev: VdevNumber,
    /// Bytes there.
    pub range: Range<u64>,
}

/// A removed vdev.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Its number.
    pub vdev: VdevNumber,
    /// Entries of its table.
    pub entries: u64,
}

pub(super) struct Claims {
    tops: Vec<ClaimedTop>,
    classes: [ClassSpace; 5],
    /// What the logs add to the space maps.
    unflushed: i64,
    checkpoint: u64,
    removing: u64,
}

#[derive(Default)]
struct ClaimedTop {
    shift: u32,
    /// Whether it has metaslabs of its own.
    is_concrete: bool,
    parts: Vec<SpacePart>,
    table: Option<Arc<Vec<MapEntry>>>,
}

/// A metaslab, or all of a removed vdev.
struct SpacePart {
    unflushed_since: Option<Txg>,
    left: Segments,
}

impl Claims {
    /// What is allocated, as of now. With `whole` false only the sums of the classes are read, and
    /// every claim is granted.
    pub(super) fn read(pool: &Pool, whole: bool) -> Result<Claims> {
        let mut claims =
            Claims { tops: Vec::new(), classes: [ClassSpace::default(); 5], unflushed: 0, checkpoint: 0, removing: 0 };
        for top in pool.tree().tops() {
            let metaslabs = metaslabs::read(pool, top)?;
            claims.add_to_classes((top, &metaslabs), pool.keeps_log_slab(metaslabs.len() as u64), whole);
            let entry = if whole { load(pool, top, metaslabs)? } else { ClaimedTop::default() };
            claims.tops.push(entry);
        }
        if whole {
            claims.apply_logs(pool)?;
            claims.exclude_checkpoint(pool)?;
        }
        Ok(claims)
    }

    fn add_to_classes(&mut self, (top, metaslabs): (&Vdev, &[MetaslabRecord]), keeps_log_slab: bool, whole: bool) {
        let Some(spec) = top.top_spec() else { return };
        if whole && top.kind() == VdevKind::Indirect {
            // zdb counts the addresses of removed vdevs as space if it looks for leaks, and so do we, to
            // be comparable
            let sum = &mut self.classes[SpaceClass::Normal as usize];
            sum.space = sum.space.saturating_add(spec.metaslabs() << spec.metaslab_shift);
        }
        if metaslabs.is_empty() {
            return;
        }
        let class = match spec.bias {
            _ if spec.is_log => SpaceClass::Log,
            Some(Bias::Log) => SpaceClass::Log,
            Some(Bias::Special) => SpaceClass::Special,
            Some(Bias::Dedup) => SpaceClass::Dedup,
            None => SpaceClass::Normal,
        };
        // of a vdev with many, the emptiest metaslab is kept for the log
        let kept = match class {
            SpaceClass::Normal if keeps_log_slab => (0..metaslabs.len()).min_by_key(|&i| metaslabs[i].allocated),
            _ => None,
        };
        for (i, metaslab) in metaslabs.iter().enumerate() {
            let class = if kept == Some(i) { SpaceClass::EmbeddedLog } else { class };
            let sum = &mut self.classes[class as usize];
            sum.allocated = sum.allocated.saturating_add_signed(metaslab.allocated);
            sum.space = sum.space.saturating_add(metaslab.range.end - metaslab.range.start);
        }
        if !spec.removing {
            self.classes[class as usize].exists = true;
            self.classes[SpaceClass::EmbeddedLog as usize].exists |= class != SpaceClass::Log;
        }
    }

    /// Takes up the changes that no metaslab has.
    fn apply_logs(&mut self, pool: &Pool) -> Result<()> {
        for (txg, runs) in metaslabs::logs(pool)? {
            for run in runs {
                let vdev = run.vdev.unwrap_or(VdevNumber::new(0));
                let range = run.offset..run.offset.saturating_add(run.len);
                let Some(part) = self.part(vdev, run.offset).filter(|part| part.unflushed_since.is_some()) else {
                    continue;
                };
                if part.unflushed_since.is_some_and(|since| txg < since) {
                    continue;
                }
                let fits = if run.allocated { part.left.add(range.clone()) } else { part.left.take(range.clone()) };
                if !fits {
                    return Err(contradiction(vdev, &range, run.allocated));
                }
                let bytes = i64::try_from(run.len).unwrap_or(i64::MAX);
                self.unflushed = self.unflushed.saturating_add(if run.allocated { bytes } else { -bytes });
            }
        }
        Ok(())
    }

    /// Takes out what only the checkpoint refers to, which is allocated, but not visited.
    fn exclude_checkpoint(&mut self, pool: &Pool) -> Result<()> {
        for top in pool.tree().tops() {
            let Some(spec) = top.top_spec().filter(|spec| spec.zap.is_some()) else { continue };
            let zap = Zap::open(pool.mos().object(spec.zap)?)?;
            let Some(map) = zap.object_id("com.delphix:pool_checkpoint_sm")? else { continue };
            let size_max = mos::map_size_max(spec.metaslabs() << spec.metaslab_shift, spec.ashift);
            for run in mos::space_map(pool.mos(), map, size_max)? {
                let start = run.offset.saturating_mul(1 << spec.ashift);
                let range = start..start.saturating_add(run.len.saturating_mul(1 << spec.ashift));
                let fits = self.part(top.number(), start).is_some_and(|part| part.left.take(range.clone()));
                if !fits {
                    return Err(contradiction(top.number(), &range, false));
                }
                self.checkpoint = self.checkpoint.saturating_add(range.end - range.start);
            }
        }
        Ok(())
    }

    /// Claims, for a vdev that is being removed, the places that its contents have been copied to: no
    /// block refers to them yet. `copied_to` is where copying has got.
    pub(super) fn claim_removal(&mut self, vdev: VdevNumber, table: Vec<MapEntry>, copied_to: u64) -> Result<(), Leak> {
        let Some(top) = self.tops.get(vdev.index()) else { return Ok(()) };
        let mut allocated: Vec<Range<u64>> = top.parts.iter().flat_map(|part| part.left.iter()).collect();
        allocated.iter_mut().for_each(|run| run.end = run.end.min(copied_to));
        for run in allocated.into_iter().filter(|run| run.start < run.end) {
            self.removing = self.removing.saturating_add(run.end - run.start);
            for (to, range) in moved(&table, &run) {
                self.claim(to, range, HOPS_MAX)?;
            }
        }
        Ok(())
    }

    /// Claims the bytes at an address; `size` of them, on a gang block its header.
    pub(super) fn claim_dva(&mut self, dva: &Dva, size: u64) -> Result<(), Leak> {
        self.claim(dva.vdev(), dva.offset()..dva.offset().saturating_add(size), HOPS_MAX)
    }

    /// Fails with the bytes that are not there to be claimed.
    fn claim(&mut self, vdev: VdevNumber, range: Range<u64>, hops: usize) -> Result<(), Leak> {
        let missing = Leak { vdev, range: range.clone() };
        let Some(hops) = hops.checked_sub(1) else { return Err(missing) };
        let table = self.tops.get(vdev.index()).and_then(|top| top.table.clone());
        if let Some(table) = table {
            let moved = moved(&table, &range);
            if moved.iter().map(|(_, to)| to.end - to.start).sum::<u64>() != range.end - range.start {
                return Err(missing);
            }
            for (to, range) in moved {
                self.claim(to, range, hops)?;
            }
        }
        match self.part(vdev, range.start).is_some_and(|part| part.left.take(range)) {
            true => Ok(()),
            false => Err(missing),
        }
    }

    /// The metaslab that an offset is in.
    fn part(&mut self, vdev: VdevNumber, offset: u64) -> Option<&mut SpacePart> {
        let top = self.tops.get_mut(vdev.index())?;
        let metaslab = if top.is_concrete { offset.checked_shr(top.shift)? } else { 0 };
        top.parts.get_mut(usize::try_from(metaslab).ok()?)
    }

    /// Number of the metaslab that an offset is in.
    pub(super) fn slab_number(pool: &Pool, vdev: VdevNumber, offset: u64) -> u64 {
        let shift = pool.tree().top(vdev).ok().and_then(|top| top.top_spec()).map_or(63, |spec| spec.metaslab_shift);
        offset.checked_shr(shift).unwrap_or(0)
    }

    /// The space of a class.
    pub(super) fn classes(&self) -> [ClassSpace; 5] {
        self.classes
    }

    /// What nobody has claimed. What is left of a removed vdev is no longer needed, but no leak.
    pub(super) fn leaks(&self) -> Vec<Leak> {
        let concrete = (0..).map(VdevNumber::new).zip(&self.tops).filter(|(_, top)| top.is_concrete);
        let left = concrete.flat_map(|(vdev, top)| {
            top.parts.iter().flat_map(|part| part.left.iter()).map(move |range| Leak { vdev, range })
        });
        left.collect()
    }

    /// Bytes that all space maps and logs say are allocated.
    pub(super) fn allocated(&self) -> u64 {
        let flushed: u64 = self.classes.iter().fold(0, |sum, class| class.allocated.saturating_add(sum));
        flushed.saturating_add_signed(self.unflushed)
    }

    /// Bytes that only the checkpoint refers to.
    pub(super) fn checkpoint(&self) -> u64 {
        self.checkpoint
    }

    /// Bytes of copies that a removal has made, and no block refers to yet.
    pub(super) fn removing(&self) -> u64 {
        self.removing
    }

    /// The removed vdevs.
    pub(super) fn removed(pool: &Pool) -> Result<Vec<Removed>> {
        let tops = pool.tree().tops().filter(|top| top.kind() == VdevKind::Indirect);
        let tops = tops.filter_map(|top| Some((top, top.top_spec()?.indirect?)));
        let entries = tops.map(|(top, spec)| {
            let entries = mos::indirect_mapping(pool.mos(), spec.mapping_object)?.len() as u64;
            Ok(Removed { vdev: top.number(), entries })
        });
        entries.collect()
    }
}

fn load(pool: &Pool, top: &Vdev, metaslabs: Vec<MetaslabRecord>) -> Result<ClaimedTop> {
    let Some(spec) = top.top_spec() else { return Ok(ClaimedTop::default()) };
    if let (VdevKind::Indirect, Some(indirect)) = (top.kind(), spec.indirect) {
        let table = mos::indirect_mapping(pool.mos(), indirect.mapping_object)?;
        let mut left = Segments::default();
        for entry in &table {
            left.add(entry.src_offset..entry.src_offset.saturating_add(entry.asize));
        }
        let whole = SpacePart { unflushed_since: None, left };
        return Ok(ClaimedTop { shift: 0, is_concrete: false, parts: vec![whole], table: Some(Arc::new(table)) });
    }
    let mut parts = Vec::new();
    for metaslab in metaslabs {
        let mut left = Segments::default();
        let size_max = mos::map_size_max(metaslab.range.end - metaslab.range.start, spec.ashift);
        for run in if metaslab.map.is_none() { Vec::new() } else { mos::space_map(pool.mos(), metaslab.map, size_max)? }
        {
            let start = metaslab.range.start.saturating_add(run.offset.saturating_mul(1 << spec.ashift));
            let range = start..start.saturating_add(run.len.saturating_mul(1 << spec.ashift));
            let fits = if run.allocated { left.add(range.clone()) } else { left.take(range.clone()) };
            if !fits || range.end > metaslab.range.end {
                return Err(contradiction(top.number(), &range, run.allocated));
            }
        }
        parts.push(SpacePart { unflushed_since: metaslab.unflushed_since, left });
    }
    Ok(ClaimedTop { shift: spec.metaslab_shift, is_concrete: true, parts, table: None })
}

/// Where the parts of a range of a removed vdev are now; those that no entry has are left out.
fn moved(table: &[MapEntry], range: &Range<u64>) -> Vec<(VdevNumber, Range<u64>)> {
    let first = table.partition_point(|entry| entry.src_offset.saturating_add(entry.asize) <= range.start);
    let inside = table[first..].iter().take_while(|entry| entry.src_offset < range.end);
    let place = |entry: &MapEntry| {
        let (from, to) =
            (range.start.max(entry.src_offset), range.end.min(entry.src_offset.saturating_add(entry.asize)));
        let shift = |at: u64| entry.dst_offset.saturating_add(at - entry.src_offset);
        (entry.dst_top, shift(from)..shift(to))
    };
    inside.map(place).collect()
}

fn contradiction(vdev: VdevNumber, range: &Range<u64>, allocated: bool) -> Error {
    let what = if allocated { "allocates what is allocated" } else { "frees what is not allocated" };
    let len = range.end.saturating_sub(range.start);
    Error::corrupt(format!("space map of vdev {vdev} {what}: {len} bytes at {:#x}", range.start))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vdev 0 with two metaslabs of 64 KiB, of which 4 KiB at 0 and 8 KiB at 64 KiB are allocated; vdev 1
    /// was removed, and its first 8 KiB are now at 64 KiB.
    fn claims() -> Claims {
        let part = |range: Range<u64>| {
            let mut left = Segments::default();
            assert!(left.add(range));
            SpacePart { unflushed_since: None, left }
        };
        let parts = vec![part(0..4096), part(0x1_0000..0x1_2000)];
        let kept = ClaimedTop { shift: 16, is_concrete: true, parts, table: None };
        let entry = MapEntry { src_offset: 0, dst_top: VdevNumber::new(0), dst_offset: 0x1_0000, asize: 8192 };
        let table = Some(Arc::new(vec![entry]));
        let removed = ClaimedTop { shift: 0, is_concrete: false, parts: vec![part(0..8192)], table };
        Claims {
            tops: vec![kept, removed],
            classes: [ClassSpace::default(); 5],
            unflushed: 0,
            checkpoint: 0,
            removing: 0,
        }
    }

    fn dva(vdev: u64, offset: u64, size: u64) -> Dva {
        Dva::new(VdevNumber::new(vdev), offset, size, false)
    }

    #[test]
    fn what_is_not_claimed_is_leaked() {
        let mut claims = claims();
        claims.claim_dva(&dva(0, 1024, 2048), 2048).unwrap();
        let leaks: Vec<Range<u64>> = claims.leaks().into_iter().map(|leak| leak.range).collect();
        assert_eq!(leaks, [0..1024, 3072..4096, 0x1_0000..0x1_2000]);
    }

    #[test]
    fn nothing_is_claimed_twice_or_from_free_space() {
        let mut claims = claims();
        claims.claim_dva(&dva(0, 0, 4096), 4096).unwrap();
        for (vdev, offset, size) in [(0, 512, 512), (0, 8192, 512), (0, 0xffff_0000, 512), (7, 0, 512), (1, 4096, 8192)]
        {
            let missing = claims.claim_dva(&dva(vdev, offset, size), size).unwrap_err();
            assert_eq!(missing, Leak { vdev: VdevNumber::new(vdev), range: offset..offset + size });
        }
    }

    #[test]
    fn claims_on_a_removed_vdev_are_claims_where_it_went() {
        let mut claims = claims();
        claims.claim_dva(&dva(1, 4096, 4096), 4096).unwrap();
        assert_eq!(claims.leaks().last().unwrap().range, 0x1_0000..0x1_1000);
        // the place is taken, by whatever name
        assert!(claims.claim_dva(&dva(0, 0x1_1000, 512), 512).is_err());
        assert!(claims.claim_dva(&dva(1, 4096, 512), 512).is_err());
    }

    #[test]
    fn a_removal_under_way_has_copied_up_to_somewhere() {
        let mut claims = claims();
        let table = vec![MapEntry { src_offset: 0, dst_top: VdevNumber::new(0), dst_offset: 0x1_0000, asize: 4096 }];
        claims.claim_removal(VdevNumber::new(0), table, 2048).unwrap();
        assert_eq!(claims.removing(), 2048);
        assert_eq!(claims.leaks()[1].range, 0x1_0800..0x1_2000);
    }
}
