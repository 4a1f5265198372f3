//! How much of a pool is in use: what `zpool list` shows.
//!
//! Each metaslab's space map tells what it has allocated as of its last flush; changes since then are
//! in the log space maps, if the pool keeps these.

use std::collections::HashMap;

use base::Result;
use dmu::zap::Zap;
use format::space_map::Run;

use crate::{Pool, mos, object_directory};

/// Space by top-level vdev, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Top-level vdev id, and bytes allocated on it.
    pub allocated: Vec<(u64, u64)>,
}

/// A metaslab: its vdev and its number there.
type Slab = (u64, u64);

impl Space {
    pub(crate) fn read(pool: &Pool) -> Result<Space> {
        let mos = pool.mos();
        let mut allocated: HashMap<u64, i64> = HashMap::new();
        let mut unflushed_since: HashMap<Slab, u64> = HashMap::new();
        let mut shifts: HashMap<u64, u32> = HashMap::new();
        for top in pool.tree().tops() {
            let (Some(spec), true) = (top.top_spec(), top.kind().is_concrete()) else { continue };
            shifts.insert(top.number(), spec.metaslab_shift);
            if spec.metaslab_array == 0 {
                continue;
            }
            let array = mos.object(spec.metaslab_array)?;
            let count = spec.asize.checked_shr(spec.metaslab_shift).unwrap_or(0);
            let bytes = array.read_whole((count * 8).min(array.dnode().size_max()), 64 << 20)?;
            for raw in bytes.chunks_exact(8) {
                let object = u64::from_le_bytes(*raw.first_chunk().expect("chunks of 8"));
                if object != 0 {
                    *allocated.entry(top.number()).or_default() += mos::space_map_header(mos, object)?.allocated;
                }
            }
            if spec.zap != 0
                && let Some(object) = Zap::open(mos.object(spec.zap)?)?.u64("com.delphix:ms_unflushed_phys_txgs")?
            {
                let array = mos.object(object)?;
                let bytes = array.read_whole((count * 8).min(array.dnode().size_max()), 64 << 20)?;
                for (slab, raw) in bytes.chunks_exact(8).enumerate() {
                    let txg = u64::from_le_bytes(*raw.first_chunk().expect("chunks of 8"));
                    unflushed_since.insert((top.number(), slab as u64), txg);
                }
            }
        }
        for (txg, runs) in log_space_maps(pool)? {
            for run in runs {
                let vdev = run.vdev.unwrap_or(0);
                let Some(shift) = shifts.get(&vdev) else { continue };
                let slab = (vdev, run.offset.checked_shr(*shift).unwrap_or(0));
                if unflushed_since.get(&slab).is_some_and(|since| txg >= *since) {
                    let bytes = i64::try_from(run.len).unwrap_or(i64::MAX);
                    let sum = allocated.entry(vdev).or_default();
                    *sum = if run.allocated { sum.saturating_add(bytes) } else { sum.saturating_sub(bytes) };
                }
            }
        }
        let mut allocated: Vec<(u64, u64)> =
            allocated.into_iter().map(|(top, bytes)| (top, bytes.max(0) as u64)).collect();
        allocated.sort_unstable();
        Ok(Space { allocated })
    }

    /// Bytes allocated on the top-level vdevs that `include` accepts.
    pub fn allocated_on(&self, include: impl Fn(u64) -> bool) -> u64 {
        self.allocated.iter().filter(|(top, _)| include(*top)).map(|(_, bytes)| bytes).sum()
    }
}

/// The logs of changes that no metaslab has taken up yet, by txg; offsets and lengths in bytes.
fn log_space_maps(pool: &Pool) -> Result<Vec<(u64, Vec<Run>)>> {
    let mos = pool.mos();
    let Some(zap) = object_directory(mos)?.u64("com.delphix:log_spacemap_zap")? else { return Ok(Vec::new()) };
    let mut logs = Vec::new();
    for entry in Zap::open(mos.object(zap)?)?.entries()? {
        // keys are txgs as hex text
        let txg = u64::from_str_radix(&entry.name.to_string(), 16).ok();
        let (Some(txg), Some(object)) = (txg, entry.value.first_u64()) else { continue };
        let runs = mos::space_map(mos, object)?.into_iter().map(|run| Run {
            offset: run.offset.saturating_mul(512),
            len: run.len.saturating_mul(512),
            ..run
        });
        logs.push((txg, runs.collect()));
    }
    logs.sort_by_key(|(txg, _)| *txg);
    Ok(logs)
}
