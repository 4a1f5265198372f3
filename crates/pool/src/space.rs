//! How much of a pool is in use: what `zpool list` shows.
//!
//! Each metaslab's space map tells what it has allocated as of its last flush; changes since then are
//! in the log space maps, if the pool keeps these.

use std::collections::BTreeMap;

use base::Result;

use crate::{Pool, slabs};

/// Space by top-level vdev, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Top-level vdev id, and bytes allocated on it.
    pub allocated: Vec<(u64, u64)>,
}

impl Space {
    pub(crate) fn read(pool: &Pool) -> Result<Space> {
        let mut sums: BTreeMap<u64, i64> = BTreeMap::new();
        let mut flushed: BTreeMap<u64, (u32, Vec<Option<u64>>)> = BTreeMap::new();
        for top in pool.tops() {
            let (Some(spec), slabs) = (top.top_spec(), slabs::read(pool, top)?) else { continue };
            if spec.metaslab_array != 0 && !slabs.is_empty() {
                sums.insert(top.number(), slabs.iter().fold(0, |sum, slab| slab.allocated.saturating_add(sum)));
            }
            let since = slabs.iter().map(|slab| slab.unflushed_since).collect();
            flushed.insert(top.number(), (spec.metaslab_shift, since));
        }
        for (txg, runs) in slabs::logs(pool)? {
            for run in runs {
                let vdev = run.vdev.unwrap_or(0);
                let Some((shift, since)) = flushed.get(&vdev) else { continue };
                let slab = usize::try_from(run.offset.checked_shr(*shift).unwrap_or(0)).unwrap_or(usize::MAX);
                if since.get(slab).copied().flatten().is_some_and(|since| txg >= since) {
                    let bytes = i64::try_from(run.len).unwrap_or(i64::MAX);
                    let sum = sums.entry(vdev).or_default();
                    *sum = if run.allocated { sum.saturating_add(bytes) } else { sum.saturating_sub(bytes) };
                }
            }
        }
        Ok(Space { allocated: sums.into_iter().map(|(top, bytes)| (top, bytes.max(0) as u64)).collect() })
    }

    /// Bytes allocated on the top-level vdevs that `include` accepts.
    pub fn allocated_on(&self, include: impl Fn(u64) -> bool) -> u64 {
        self.allocated.iter().filter(|(top, _)| include(*top)).map(|(_, bytes)| bytes).sum()
    }
}
