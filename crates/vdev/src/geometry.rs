//! How large a new top-level vdev is, and what it is cut into.
//!
//! ```text
//!   device       | L0 L1 | boot area | what the pool may use          | L2 L3 | rest |
//!                                    └────────── asize ──────────────┘       └ up to 256 KiB
//!   mirror       the smallest child
//!   raidz        the smallest child, times their number
//!   draid        whole rows of the smallest child, two rows kept back; whole groups of what is left
//!
//!   top-level    | metaslab 0 | metaslab 1 | ...    | less than one: unused
//! ```
//!
//! These numbers are chosen once, when a vdev is added, and then stand in its configuration. The
//! rules are those of OpenZFS, so that a pool looks the same whichever program made it.

use std::collections::HashMap;
use std::sync::Arc;

use base::{Env, Error, Kind as ErrorKind, Result, tunables};
use device::Device;
use format::ids::Guid;

use crate::draid;
use crate::label::LABEL_BYTES;
use crate::spec::{VdevKind, VdevSpec};

/// Bytes in front of a leaf's data: two labels and the boot area.
pub const FRONT_BYTES: u64 = 4 << 20;
/// Bytes behind a leaf's data: two labels.
pub const BACK_BYTES: u64 = 512 << 10;
/// The smallest device that ZFS takes.
pub const DEVICE_BYTES_MIN: u64 = 64 << 20;

/// The least and the most that a sector's binary logarithm may be.
pub const ASHIFT_MIN: u32 = 9;
/// See [`ASHIFT_MIN`].
pub const ASHIFT_MAX: u32 = 16;

/// Binary logarithm of the smallest metaslab.
const SLAB_SHIFT_MIN: u64 = 24;

/// The measures of a new top-level vdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopGeometry {
    /// Binary logarithm of the sector size.
    pub ashift: u32,
    /// Bytes of the address space.
    pub asize: u64,
    /// Binary logarithm of the size of a metaslab.
    pub metaslab_shift: u32,
    /// Number of metaslabs.
    pub metaslab_count: u64,
}

/// The measures of `spec`, a top-level vdev that is to be made of `devices` (by guid of the leaf), with that ashift.
///
/// Errors: [`ErrorKind::Missing`] if a leaf has no device; [`ErrorKind::Invalid`] if a device is
/// smaller than [`DEVICE_BYTES_MIN`], the ashift is impossible, or the vdev is of a kind that is not
/// made anew.
pub fn plan(env: &Env, spec: &VdevSpec, devices: &HashMap<Guid, Arc<dyn Device>>, ashift: u32) -> Result<TopGeometry> {
    if !(ASHIFT_MIN..=ASHIFT_MAX).contains(&ashift) {
        return Err(Error::new(ErrorKind::Invalid, format!("the ashift {ashift} is not between 9 and 16")));
    }
    let leaf_bytes = |guid| {
        let device: Option<&Arc<dyn Device>> = devices.get(&guid);
        let device = device.ok_or_else(|| Error::new(ErrorKind::Missing, "a leaf of the new vdev has no device"))?;
        leaf_asize(device.size()).map_err(|e| e.at_vdev(device.path()))
    };
    let asize = asize(spec, &leaf_bytes)?;
    let metaslab_shift = metaslab_shift(env, asize);
    Ok(TopGeometry { ashift, asize, metaslab_shift, metaslab_count: asize >> metaslab_shift })
}

/// Bytes of a device of `size` bytes that are not labels.
///
/// An error of [`ErrorKind::Invalid`] if it is too small for a pool.
pub fn leaf_asize(size: u64) -> Result<u64> {
    let whole = size / LABEL_BYTES * LABEL_BYTES;
    if whole < DEVICE_BYTES_MIN {
        let what = format!("device of {size} bytes, where a pool takes none below {DEVICE_BYTES_MIN}");
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    Ok(whole - FRONT_BYTES - BACK_BYTES)
}

/// Where on its device something is that is `offset` bytes behind a leaf's front labels, or in the boot area: that is in
/// front of offset 0, and offsets wrap around. `None` of what cannot be on any device, or is in a label.
pub(crate) fn on_device(offset: u64) -> Option<u64> {
    match offset.overflowing_add(FRONT_BYTES) {
        (at, false) => Some(at),
        (at, true) => (at >= 2 * LABEL_BYTES).then_some(at),
    }
}

/// Binary logarithm of the size of the metaslabs that a new vdev of `asize` bytes is cut into.
pub fn metaslab_shift(env: &Env, asize: u64) -> u32 {
    let number = |tunable| env.tunable(tunable).max(1);
    let shift = |tunable| env.tunable(tunable).clamp(SLAB_SHIFT_MIN, 62);
    let (default, most) = (shift(tunables::ZFS_VDEV_DEFAULT_MS_SHIFT), shift(tunables::ZFS_VDEV_MAX_MS_SHIFT));
    let count_max = number(tunables::ZFS_VDEV_MS_COUNT_LIMIT);
    // the logarithm, rounded up, of a `count`th
    let shift_for = |count: u64| u64::from(u64::BITS - (asize / count).leading_zeros());
    let (least_count, default_count) =
        (number(tunables::ZFS_VDEV_MIN_MS_COUNT), number(tunables::ZFS_VDEV_DEFAULT_MS_COUNT));
    let wanted = match asize >> default {
        count if count < least_count => shift_for(least_count),
        count if count > default_count => shift_for(default_count),
        _ => default,
    };
    let shift = match wanted.max(SLAB_SHIFT_MIN) {
        wanted if wanted <= most => wanted,
        _ if asize >> most > count_max => shift_for(count_max),
        _ => most,
    };
    shift as u32
}

/// Bytes of the address space of a vdev; `leaf_bytes` says how many a leaf has that are not labels, by its guid.
pub(crate) fn asize(spec: &VdevSpec, leaf_bytes: &dyn Fn(Guid) -> Result<u64>) -> Result<u64> {
    let mut smallest = u64::MAX;
    for child in &spec.children {
        smallest = smallest.min(asize(child, leaf_bytes)?);
    }
    let count = spec.children.len() as u64;
    match spec.kind {
        VdevKind::Disk | VdevKind::File => leaf_bytes(spec.guid),
        VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare if count > 0 => Ok(smallest),
        VdevKind::Raidz { nparity } if count > nparity as u64 => Ok(smallest.saturating_mul(count)),
        VdevKind::Draid(shape) if count > 0 && count == shape.children => {
            draid::DraidLayout::new(ASHIFT_MIN, shape)?;
            // room for work on rows that are being moved is kept back
            let rows = (smallest / draid::ROW_BYTES).saturating_sub(2);
            let group = shape.ndata.saturating_add(shape.nparity).saturating_mul(draid::ROW_BYTES);
            let all = rows.saturating_mul(draid::ROW_BYTES).saturating_mul(count - shape.nspares);
            match all / group * group {
                0 => Err(Error::new(ErrorKind::Invalid, "the devices are too small for a draid")),
                asize => Ok(asize),
            }
        }
        _ => Err(Error::new(ErrorKind::Invalid, format!("a vdev of kind {:?} cannot be made", spec.kind))),
    }
}

/// Binary logarithm of the largest sector of the devices below, where `sector` says how large one's is.
pub fn sector_shift(spec: &VdevSpec, devices: &HashMap<Guid, Arc<dyn Device>>, sector: fn(&dyn Device) -> u64) -> u32 {
    let own = devices.get(&spec.guid).map_or(0, |device| sector(&**device).max(1).ilog2());
    spec.children.iter().map(|child| sector_shift(child, devices, sector)).fold(own, u32::max)
}

#[cfg(test)]
mod tests;
