//! Devices of which some sectors hold something else.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Result;
use device::{Device, MemDevice};

use crate::rng::Rng;
use crate::sparse::SECTOR;

/// A device whose changed sectors lie over those of another.
#[derive(Debug)]
pub struct Patched {
    below: Arc<MemDevice>,
    sectors: BTreeMap<u64, [u8; SECTOR]>,
}

/// The sectors of a device that are not all zeros: those worth damaging.
pub fn written_sectors(device: &MemDevice) -> Vec<u64> {
    let bytes = device.bytes();
    let sectors = bytes.chunks_exact(SECTOR).enumerate();
    sectors.filter(|(_, bytes)| bytes.iter().any(|&byte| byte != 0)).map(|(number, _)| number as u64).collect()
}

impl Patched {
    /// A device like `below`.
    pub fn new(below: Arc<MemDevice>) -> Patched {
        Patched { below, sectors: BTreeMap::new() }
    }

    /// Damages one of `written` in one of the ways in which disks do: flipped bits, zeros, another
    /// sector's contents, two sectors exchanged, noise.
    pub fn damage(&mut self, written: &[u64], rng: &mut Rng) {
        let sector = *rng.pick(written);
        let mut bytes = self.sector(sector);
        match rng.below(5) {
            0 => {
                for _ in 0..=rng.below(8) {
                    let bit = rng.below(SECTOR as u64 * 8);
                    bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
                }
            }
            1 => bytes = [0; SECTOR],
            2 => bytes = self.sector(*rng.pick(written)),
            3 => {
                let other = *rng.pick(written);
                let exchanged = std::mem::replace(&mut bytes, self.sector(other));
                self.sectors.insert(other, exchanged);
            }
            _ => bytes.iter_mut().for_each(|byte| *byte = rng.number() as u8),
        }
        self.sectors.insert(sector, bytes);
    }

    fn sector(&self, number: u64) -> [u8; SECTOR] {
        let below = || *self.below.bytes()[number as usize * SECTOR..].first_chunk().expect("a sector of the device");
        self.sectors.get(&number).copied().unwrap_or_else(below)
    }
}

impl Device for Patched {
    fn path(&self) -> &str {
        self.below.path()
    }

    fn size(&self) -> u64 {
        self.below.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.below.read_at(offset, buf)?;
        let end = offset + buf.len() as u64;
        for (&number, bytes) in self.sectors.range(offset / SECTOR as u64..end.div_ceil(SECTOR as u64)) {
            for (i, &byte) in bytes.iter().enumerate() {
                let at = number * SECTOR as u64 + i as u64;
                if (offset..end).contains(&at) {
                    buf[(at - offset) as usize] = byte;
                }
            }
        }
        Ok(())
    }
}
