//! Metaslabs: the pieces that a top-level vdev's space is cut into, each with a space map of its own.
//!
//! ```text
//!   vdev   | metaslab 0 | metaslab 1 | ...        2^shift bytes each; on a draid, the whole groups in them
//!               └ space map: what is allocated as of its last flush
//!   logs of all metaslabs, one a txg: what changed since
//! ```

use std::ops::Range;

use base::{Endian, Result};
use dmu::zap::Zap;
use format::ids::{ObjectId, Txg};
use format::space_map::Run;
use vdev::spec::TopSpec;
use vdev::{Vdev, VdevKind};

use crate::{Pool, mos, object_directory};

/// Most bytes of all logs of changes: those of OpenZFS are taken up before they fill so much of its memory.
const LOGS_SIZE_MAX: u64 = 256 << 20;

/// What is on disk of a metaslab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MetaslabRecord {
    /// Its bytes on the vdev.
    pub range: Range<u64>,
    /// Object of its space map; 0 if nothing was ever allocated.
    pub map: ObjectId,
    /// Bytes allocated by its space map.
    pub allocated: i64,
    /// Its space map has everything before this txg; later changes are in the logs.
    pub unflushed_since: Option<Txg>,
}

/// Number of metaslabs of a top-level vdev.
pub(crate) fn count(top: &Vdev) -> u64 {
    top.top_spec().filter(|_| top.kind().is_concrete()).map_or(0, TopSpec::metaslabs)
}

/// The bytes of metaslab `number`.
pub(crate) fn range(top: &Vdev, number: u64) -> Range<u64> {
    let Some(spec) = top.top_spec() else { return 0..0 };
    let (start, end) = (number << spec.metaslab_shift, (number + 1) << spec.metaslab_shift);
    match top.kind() {
        VdevKind::Draid(shape) => {
            let group = (shape.ndata + shape.nparity) << spec.ashift;
            let first = start.checked_next_multiple_of(group).unwrap_or(end).min(end);
            first..first + (end - first) / group * group
        }
        _ => start..end,
    }
}

/// The metaslabs of a top-level vdev; none if it is not of the kind that has any.
pub(crate) fn read(pool: &Pool, top: &Vdev) -> Result<Vec<MetaslabRecord>> {
    let mos = pool.mos();
    let (Some(spec), count) = (top.top_spec(), count(top)) else { return Ok(Vec::new()) };
    let maps = numbers(pool, spec.metaslab_array, count)?;
    let unflushed = match spec.zap {
        ObjectId::NONE => None,
        zap => Zap::open(mos.object(zap)?)?.object_id("com.delphix:ms_unflushed_phys_txgs")?,
    };
    let since = numbers(pool, unflushed.unwrap_or_default(), count)?;
    let mut metaslabs = Vec::with_capacity(count as usize);
    for (i, number) in (0..count).enumerate() {
        let map = maps.get(i).copied().map_or(ObjectId::NONE, ObjectId::new);
        let allocated = if map.is_none() { 0 } else { mos::space_map_header(mos, map)?.allocated };
        metaslabs.push(MetaslabRecord {
            range: range(top, number),
            map,
            allocated,
            unflushed_since: since.get(i).copied().map(Txg::new),
        });
    }
    Ok(metaslabs)
}

/// The first `count` numbers in object `id`; none if that is 0.
fn numbers(pool: &Pool, id: ObjectId, count: u64) -> Result<Vec<u64>> {
    if id.is_none() {
        return Ok(Vec::new());
    }
    let object = pool.mos().object(id)?;
    let bytes = object.read_whole((count * 8).min(object.dnode().size_max()), count * 8)?;
    Ok(bytes.chunks_exact(8).filter_map(|raw| Endian::Little.u64(raw)).collect())
}

/// The logs of changes that no metaslab has taken up yet, by txg; offsets and lengths in bytes.
pub(crate) fn logs(pool: &Pool) -> Result<Vec<(Txg, Vec<Run>)>> {
    let mos = pool.mos();
    let Some(zap) = object_directory(mos)?.object_id("com.delphix:log_spacemap_zap")? else { return Ok(Vec::new()) };
    let mut logs = Vec::new();
    // all together, as many logs may be one object
    let sizes = pool.tree().tops().filter_map(|top| top.top_spec());
    let sizes = sizes.map(|spec| mos::map_size_max(spec.metaslabs() << spec.metaslab_shift, spec.ashift));
    let mut left = sizes.fold(0, u64::saturating_add).min(LOGS_SIZE_MAX);
    for entry in Zap::open(mos.object(zap)?)?.entries()? {
        // keys are txgs as hex text
        let txg = u64::from_str_radix(&entry.name.to_string(), 16).ok();
        let (Some(txg), Some(object)) = (txg, entry.value.first_object()) else { continue };
        let runs = mos::space_map(mos, object, left)?;
        left -= mos::space_map_header(mos, object)?.length;
        let runs = runs.into_iter().map(|run| Run {
            offset: run.offset.saturating_mul(512),
            len: run.len.saturating_mul(512),
            ..run
        });
        logs.push((Txg::new(txg), runs.collect()));
    }
    logs.sort_by_key(|(txg, _)| *txg);
    Ok(logs)
}
