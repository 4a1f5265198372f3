//! How much of a pool is in use: what `zpool list` shows.
//!
//! Each metaslab's space map tells what it has allocated as of its last flush; changes since then are
//! in the log space maps, if the pool keeps these.

use std::collections::BTreeMap;

use base::{Result, ResultExt};
use format::ids::{Txg, VdevNumber};

use crate::{Pool, metaslabs};

/// Space by top-level vdev, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpaceByVdev {
    /// Top-level vdev id, and bytes allocated on it.
    pub allocated: Vec<(VdevNumber, u64)>,
}

impl Pool {
    /// Bytes in use and free.
    pub fn space(&self) -> Result<SpaceByVdev> {
        SpaceByVdev::read(self).in_pool(self.name())
    }
}

impl SpaceByVdev {
    fn read(pool: &Pool) -> Result<SpaceByVdev> {
        let mut sums: BTreeMap<VdevNumber, i64> = BTreeMap::new();
        let mut flushed: BTreeMap<VdevNumber, (u32, Vec<Option<Txg>>)> = BTreeMap::new();
        for top in pool.tops() {
            let (Some(spec), metaslabs) = (top.top_spec(), metaslabs::read(pool, top)?) else { continue };
            if spec.metaslab_array.is_some() && !metaslabs.is_empty() {
                let allocated = metaslabs.iter().map(|metaslab| metaslab.allocated);
                sums.insert(top.number(), allocated.fold(0, i64::saturating_add));
            }
            let since = metaslabs.iter().map(|metaslab| metaslab.unflushed_since).collect();
            flushed.insert(top.number(), (spec.metaslab_shift, since));
        }
        for (txg, runs) in metaslabs::logs(pool)? {
            for run in runs {
                let vdev = run.vdev.unwrap_or(VdevNumber::new(0));
                let Some((shift, since)) = flushed.get(&vdev) else { continue };
                let metaslab = usize::try_from(run.offset.checked_shr(*shift).unwrap_or(0)).unwrap_or(usize::MAX);
                if since.get(metaslab).copied().flatten().is_some_and(|since| txg >= since) {
                    let bytes = i64::try_from(run.len).unwrap_or(i64::MAX);
                    let sum = sums.entry(vdev).or_default();
                    *sum = if run.allocated { sum.saturating_add(bytes) } else { sum.saturating_sub(bytes) };
                }
            }
        }
        Ok(SpaceByVdev { allocated: sums.into_iter().map(|(top, bytes)| (top, bytes.max(0) as u64)).collect() })
    }

    /// Bytes allocated on the top-level vdevs that `include` accepts.
    pub fn allocated_on(&self, include: impl Fn(VdevNumber) -> bool) -> u64 {
        self.allocated.iter().filter(|(top, _)| include(*top)).map(|(_, bytes)| bytes).sum()
    }
}
