//! What a pool asks of a device, and what one is like that has just been opened.

use device::Device;

use crate::geometry::{DEVICE_BYTES_MIN, leaf_asize};
use crate::health::{Aux, Health, VdevState};
use crate::spec::{LeafSpec, TopSpec, VdevKind};

/// What the vdevs above ask of one.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    /// Binary logarithm of the sector size.
    pub ashift: u32,
    /// Bytes of address space that its metaslabs reach to.
    pub bytes: u64,
    /// Children that not everything has been dealt over yet.
    pub new_children: u64,
}

impl Asked {
    /// What a top-level vdev asks of itself.
    pub(crate) fn top(top: &TopSpec) -> Asked {
        let bytes = top.metaslabs() << top.metaslab_shift;
        Asked { ashift: top.ashift, bytes, new_children: u64::from(top.is_expanding()) }
    }

    /// What a vdev of that kind with so many children asks of each of them.
    pub(crate) fn child(self, kind: VdevKind, children: usize) -> Asked {
        let parts = match kind {
            VdevKind::Raidz { .. } => (children as u64).saturating_sub(self.new_children),
            VdevKind::Draid(shape) => shape.children.saturating_sub(shape.nspares),
            _ => 1,
        };
        Asked { bytes: self.bytes.div_ceil(parts.max(1)), ..self }
    }
}

/// What the device of a leaf is like when it has just been opened; `asked` is what the vdev above asks of it.
pub(crate) fn health_of_device(kind: VdevKind, leaf: &LeafSpec, device: Option<&dyn Device>, asked: Asked) -> Health {
    match device {
        // has no device of its own
        _ if matches!(kind, VdevKind::DraidSpare { .. }) => Health::HEALTHY,
        None if leaf.removed => Health::new(VdevState::Removed, Aux::None),
        None => Health::new(VdevState::Unavail, Aux::OpenFailed),
        Some(device) if device.size() < DEVICE_BYTES_MIN => Health::new(VdevState::Unavail, Aux::TooSmall),
        Some(device) if leaf_asize(device.size()).is_ok_and(|room| room < asked.bytes) => {
            Health::new(VdevState::Unavail, Aux::BadLabel)
        }
        Some(device) if !fits_sectors(device, asked.ashift) => Health::new(VdevState::Unavail, Aux::BadAshift),
        Some(_) => Health::HEALTHY,
    }
}

/// Whether the device can write a sector of `1 << ashift` bytes without those beside it. A power cut would tear these.
pub(crate) fn fits_sectors(device: &dyn Device, ashift: u32) -> bool {
    1u64.checked_shl(ashift).is_none_or(|bytes| device.logical_sector_bytes() <= bytes)
}

#[cfg(test)]
mod tests {
    use base::Result;

    use super::*;

    #[derive(Debug)]
    struct Disk(u64);

    impl Device for Disk {
        fn path(&self) -> &str {
            "disk"
        }

        fn size(&self) -> u64 {
            1 << 30
        }

        fn read_at(&self, _: u64, _: &mut [u8]) -> Result<()> {
            unreachable!("it is not read")
        }

        fn logical_sector_bytes(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn sectors_are_not_larger_than_those_of_the_vdev() {
        let health = |sector, ashift| {
            let asked = Asked { ashift, bytes: 1 << 20, new_children: 0 };
            health_of_device(VdevKind::Disk, &LeafSpec::default(), Some(&Disk(sector)), asked)
        };
        let refused = Health::new(VdevState::Unavail, Aux::BadAshift);
        assert_eq!([9, 12, 16].map(|ashift| health(512, ashift)), [Health::HEALTHY; 3]);
        assert_eq!([9, 11, 12].map(|ashift| health(4096, ashift)), [refused, refused, Health::HEALTHY]);
    }
}
