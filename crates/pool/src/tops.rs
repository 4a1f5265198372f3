//! Size, use and fragmentation of each top-level vdev, as `zpool list -v` shows them.
//!
//! A top-level vdev is cut into metaslabs, and only whole ones count; those of a draid begin and end at
//! the borders of its groups. The space map of each metaslab carries a histogram of its free runs by
//! their binary logarithm; fragmentation is a mark between 0 (long runs) and 100 (single sectors) that
//! each run earns by its length, weighted by bytes.

use std::collections::HashMap;

use base::{Result, ResultExt, tunables};
use device::Device;
use format::feature::SPACEMAP_HISTOGRAM;
use format::ids::{ObjectId, VdevNumber};
use format::space_map::{HISTOGRAM_BUCKETS, histogram};
use serde::{Deserialize, Serialize};
use vdev::geometry::{BACK_BYTES, FRONT_BYTES};
use vdev::spec::TopSpec;
use vdev::{Vdev, VdevKind};

use crate::{FeatureState, Pool, metaslabs, mos};

/// Space of a top-level vdev, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopSpace {
    /// Number of the vdev.
    pub number: VdevNumber,
    /// Bytes of all its metaslabs.
    pub size_bytes: u64,
    /// Bytes allocated.
    pub allocated_bytes: u64,
    /// Bytes that are only there for the checkpoint.
    pub checkpoint_bytes: u64,
    /// Bytes of whole metaslabs by which it could grow, as its devices have grown.
    pub expandable_bytes: u64,
    /// Fragmentation of its free space, in percent; `None` if the pool does not keep the histograms.
    pub fragmentation: Option<u64>,
    /// Bytes of data that `size_bytes` can hold, parity and padding not counted.
    pub deflated_bytes: u64,
}

/// The mark of a free run, by the binary logarithm of its length, from 512 bytes on.
const MARKS: [u64; 21] = [100, 99, 97, 93, 88, 83, 77, 71, 64, 57, 50, 43, 36, 29, 23, 17, 12, 7, 3, 1, 0];

/// A metaslab as far as its marks go.
struct Slab {
    free_bytes: u64,
    allocated_bytes: u64,
    fragmentation: Option<u64>,
}

impl Pool {
    /// The space of all top-level vdevs that have any, log devices among them.
    pub fn top_spaces(&self) -> Result<Vec<TopSpace>> {
        self.read_top_spaces().in_pool(self.name())
    }

    fn read_top_spaces(&self) -> Result<Vec<TopSpace>> {
        let allocated: HashMap<VdevNumber, u64> = self.space()?.allocated.into_iter().collect();
        let mut spaces = Vec::new();
        for top in self.tops().filter(|top| top.kind().is_concrete()) {
            let Some(spec) = top.top_spec() else { continue };
            let count = metaslabs::count(top);
            let size_bytes = metaslab_bytes(top, count);
            spaces.push(TopSpace {
                number: top.number(),
                size_bytes,
                allocated_bytes: allocated.get(&top.number()).copied().unwrap_or(0),
                checkpoint_bytes: self.checkpoint_bytes(spec.zap)?,
                expandable_bytes: self.expandable_bytes(top),
                fragmentation: self.top_fragmentation(top, count)?,
                deflated_bytes: self.tree().deflate(top.number(), size_bytes)?,
            });
        }
        Ok(spaces)
    }

    /// Bytes of the metaslabs of top-level vdevs, all and allocated, as far as that is in memory: nothing is read, and
    /// nothing is waited for. Of a pool that is open for reading only, nothing is.
    pub fn space_in_memory(&self) -> Vec<(VdevNumber, [u64; 2])> {
        let Ok(allocator) = self.cache().zio().allocator() else { return Vec::new() };
        let tops = self.tops().filter(|top| top.kind().is_concrete()).map(Vdev::number);
        let known = tops.filter_map(|number| Some((number, allocator.top_space(number)?)));
        known.map(|(number, space)| (number, [space.size, space.allocated])).collect()
    }

    fn checkpoint_bytes(&self, top_zap: ObjectId) -> Result<u64> {
        if top_zap.is_none() {
            return Ok(0);
        }
        let zap = dmu::zap::Zap::open(self.mos().object(top_zap)?)?;
        match zap.object_id("com.delphix:pool_checkpoint_sm")? {
            Some(map) => Ok(mos::space_map_header(self.mos(), map)?.allocated.unsigned_abs()),
            None => Ok(0),
        }
    }

    fn top_fragmentation(&self, top: &Vdev, count: u64) -> Result<Option<u64>> {
        if self.features().state(SPACEMAP_HISTOGRAM) == FeatureState::Disabled {
            return Ok(None);
        }
        let Some(spec) = top.top_spec().filter(|spec| spec.metaslab_array.is_some()) else { return Ok(None) };
        let array = self.mos().object(spec.metaslab_array)?;
        let bytes = array.read_whole((count * 8).min(array.dnode().size_max()), 64 << 20)?;
        let mut slabs = Vec::new();
        for raw in bytes.chunks_exact(8) {
            slabs.push(self.slab(spec, ObjectId::new(u64::from_le_bytes(*raw.first_chunk().expect("chunks of 8"))))?);
        }
        let is_normal = !spec.is_log && spec.bias.is_none();
        if is_normal && self.keeps_log_slab(slabs.len() as u64) {
            // the emptiest one is set aside for the intent log
            let emptiest = (0..slabs.len()).min_by_key(|&i| slabs[i].allocated_bytes);
            emptiest.map(|i| slabs.remove(i));
        }
        Ok(fragmentation(&slabs))
    }

    /// Whether one of so many metaslabs of a vdev for all is kept for the intent log.
    pub(crate) fn keeps_log_slab(&self, slabs: u64) -> bool {
        slabs > self.cache().zio().env().tunable(tunables::ZFS_EMBEDDED_SLOG_MIN_MS)
    }

    fn slab(&self, spec: &vdev::spec::TopSpec, map: ObjectId) -> Result<Slab> {
        let size = 1u64 << spec.metaslab_shift;
        if map.is_none() {
            return Ok(Slab { free_bytes: size, allocated_bytes: 0, fragmentation: Some(0) });
        }
        let object = self.mos().object(map)?;
        let allocated = format::space_map::SpaceMapHeader::parse(object.bonus())?.allocated.max(0) as u64;
        Ok(Slab {
            free_bytes: size.saturating_sub(allocated),
            allocated_bytes: allocated,
            fragmentation: histogram(object.bonus()).map(|buckets| mark_of(&buckets, spec.ashift)),
        })
    }

    /// Bytes of whole metaslabs by which a top-level vdev could grow, as its devices are now.
    pub fn expandable_bytes(&self, top: &Vdev) -> u64 {
        let Some(spec) = top.top_spec() else { return 0 };
        let grown = self.capacity_of(top).unwrap_or(0).saturating_sub(spec.asize);
        grown >> spec.metaslab_shift << spec.metaslab_shift
    }

    /// Bytes of address space that the devices below a vdev have room for; `None` if one is missing, or
    /// it is of a kind that cannot grow.
    fn capacity_of(&self, vdev: &Vdev) -> Option<u64> {
        let below = || vdev.children().iter().map(|&child| self.capacity_of(self.tree().vdev(child)));
        match vdev.kind() {
            VdevKind::Disk | VdevKind::File => {
                let whole_labels = vdev.device()?.look_for_growth() >> 18 << 18;
                whole_labels.checked_sub(FRONT_BYTES + BACK_BYTES)
            }
            VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare => below().flatten().min(),
            VdevKind::Raidz { .. } => {
                // a child that is being moved to gives its room at the end
                let is_expanding = vdev.top_spec().is_some_and(TopSpec::is_expanding);
                let children = vdev.children().len() - usize::from(is_expanding);
                below().min()?.map(|smallest| smallest * children as u64)
            }
            _ => None,
        }
    }
}

/// Fragmentation of a class of vdevs, each weighted by its size; `None` if one of them does not tell.
pub fn class_fragmentation<'a>(tops: impl IntoIterator<Item = &'a TopSpace>) -> Option<u64> {
    let (mut sum, mut size) = (0u128, 0u128);
    for top in tops {
        sum += u128::from(top.fragmentation?) * u128::from(top.size_bytes);
        size += u128::from(top.size_bytes);
    }
    sum.checked_div(size).map(|percent| percent as u64)
}

/// Bytes of the first `count` metaslabs.
fn metaslab_bytes(top: &Vdev, count: u64) -> u64 {
    match top.kind() {
        VdevKind::Draid(_) => {
            (0..count).map(|number| metaslabs::range(top, number)).map(|range| range.end - range.start).sum()
        }
        _ => top.top_spec().map_or(0, |spec| count << spec.metaslab_shift),
    }
}

fn mark_of(buckets: &[u64; HISTOGRAM_BUCKETS], ashift: u32) -> u64 {
    let (mut marks, mut total) = (0u128, 0u128);
    for (i, &runs) in (0u32..).zip(buckets) {
        let bytes = u128::from(runs) << (i + ashift);
        let mark = MARKS[((ashift.saturating_sub(9) + i) as usize).min(MARKS.len() - 1)];
        marks += bytes * u128::from(mark);
        total += bytes;
    }
    marks.checked_div(total).unwrap_or(0) as u64
}

fn fragmentation(slabs: &[Slab]) -> Option<u64> {
    let known = slabs.iter().filter_map(|slab| Some((slab.fragmentation?, slab.free_bytes)));
    let (mut sum, mut free, mut count) = (0u128, 0u128, 0);
    for (mark, free_bytes) in known {
        sum += u128::from(mark) * u128::from(free_bytes);
        free += u128::from(free_bytes);
        count += 1;
    }
    if count < slabs.len().div_ceil(2) {
        return None;
    }
    sum.checked_div(free).map(|percent| percent as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks() {
        let mut buckets = [0; HISTOGRAM_BUCKETS];
        assert_eq!(mark_of(&buckets, 9), 0);
        buckets[0] = 7;
        assert_eq!((mark_of(&buckets, 9), mark_of(&buckets, 12)), (100, 93));
        // one run of 16 MiB beside 7 sectors
        buckets[15] = 1;
        assert_eq!(mark_of(&buckets, 9), 17);
        assert_eq!(mark_of(&[u64::MAX; HISTOGRAM_BUCKETS], 16), 0);
    }

    #[test]
    fn half_of_the_metaslabs_must_know() {
        let slab = |fragmentation| Slab { free_bytes: 1 << 20, allocated_bytes: 0, fragmentation };
        assert_eq!(fragmentation(&[slab(Some(10)), slab(Some(20)), slab(None)]), Some(15));
        assert_eq!(fragmentation(&[slab(Some(10)), slab(None), slab(None)]), None);
        let top = |fragmentation, size_bytes| TopSpace { fragmentation, size_bytes, ..TopSpace::default() };
        assert_eq!(class_fragmentation(&[top(Some(10), 100), top(Some(50), 300)]), Some(40));
        assert_eq!(class_fragmentation(&[top(Some(10), 100), top(None, 300)]), None);
        assert_eq!(class_fragmentation(&[]), None);
    }
}
