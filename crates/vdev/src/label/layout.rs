//! Where the parts of a label are, and the labels of a device.

use std::ops::Range;

use base::{Error, Result};
use device::Device;
use serde::{Deserialize, Serialize};

/// Labels of a device.
pub const COUNT: usize = 4;
/// Size of a label.
pub const LABEL_BYTES: u64 = 256 << 10;

pub(super) const BOOT_ENV_AT: usize = 8 << 10;
pub(super) const CONFIG_AT: usize = 16 << 10;
pub(super) const RING_AT: usize = 128 << 10;

/// A part of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LabelRegion {
    /// What is left blank for the label of a disk.
    Blank,
    /// The environment of boot loaders.
    BootEnv,
    /// The configuration.
    Config,
    /// The ring of uberblocks.
    Uberblocks,
}

impl LabelRegion {
    /// Where it is in a label.
    pub(crate) fn within(self) -> Range<u64> {
        match self {
            LabelRegion::Blank => 0..BOOT_ENV_AT as u64,
            LabelRegion::BootEnv => BOOT_ENV_AT as u64..CONFIG_AT as u64,
            LabelRegion::Config => CONFIG_AT as u64..RING_AT as u64,
            LabelRegion::Uberblocks => RING_AT as u64..LABEL_BYTES,
        }
    }
}

/// Where the last label ends on a device of so many bytes.
pub(crate) fn end_of(size: u64) -> u64 {
    size / LABEL_BYTES * LABEL_BYTES
}

/// Where label `number` of `device` begins.
pub(super) fn offset_of(device: &dyn Device, number: usize) -> Result<u64> {
    let end = end_of(device.size());
    if end < COUNT as u64 * LABEL_BYTES {
        return Err(Error::corrupt("too small for the labels of a pool").at_vdev(device.path()));
    }
    let number = number as u64;
    Ok(match number {
        0 | 1 => number * LABEL_BYTES,
        _ => end - (COUNT as u64 - number) * LABEL_BYTES,
    })
}

/// Size of a slot of the uberblock ring, in bytes.
pub fn slot_bytes(ashift: u32) -> usize {
    1 << ashift.clamp(10, 13)
}

/// Slots of the uberblock ring.
pub fn slot_count(ashift: u32) -> usize {
    (LABEL_BYTES as usize - RING_AT) / slot_bytes(ashift)
}
