//! Reading labels: what a device has of them, whole or not.

use base::{AlignedBuf, Endian, Result};
use codec::checksum::{Checksum, embedded};
use device::{Device, Read, read_batch};

use super::layout::{BOOT_ENV_AT, CONFIG_AT, COUNT, LABEL_BYTES, RING_AT, offset_of, slot_bytes};

const UBERBLOCK_MAGIC: u64 = 0x00ba_b10c;

/// What could be read of a device's labels.
#[derive(Debug)]
pub struct Labels {
    /// Labels 0 to 3, or why they could not be read.
    pub labels: [Result<Label>; COUNT],
}

/// The bytes of one label, not yet checked.
#[derive(Debug)]
pub struct Label {
    number: usize,
    offset: u64,
    bytes: AlignedBuf,
}

/// A slot of the uberblock ring that holds one.
#[derive(Debug)]
pub struct UberblockSlot<'a> {
    /// Number of the label.
    pub label: usize,
    /// Number of the slot.
    pub slot: usize,
    /// Offset on the device, in bytes.
    pub offset: u64,
    /// The slot's bytes, or what is wrong with them.
    pub bytes: Result<&'a [u8]>,
}

/// Reads all four labels of `device`.
pub fn read_labels(device: &dyn Device) -> Labels {
    let mut bufs: [AlignedBuf; COUNT] = std::array::from_fn(|_| AlignedBuf::zeroed(LABEL_BYTES as usize));
    let places: [Result<u64>; COUNT] = std::array::from_fn(|number| offset_of(device, number));
    let results: Vec<Result<u64>> = if places.iter().all(Result::is_ok) {
        let offsets = places.into_iter().flatten();
        let mut reads: Vec<Read<'_>> = offsets.zip(&mut bufs).map(|(at, buf)| Read::new(device, at, buf)).collect();
        read_batch(&mut reads);
        reads.into_iter().map(|read| read.result.map(|()| read.offset)).collect()
    } else {
        places.into()
    };
    let labels = results.into_iter().zip(bufs).enumerate();
    let mut labels = labels.map(|(number, (offset, bytes))| Ok(Label { number, offset: offset?, bytes }));
    Labels { labels: std::array::from_fn(|_| labels.next().expect("one for each")) }
}

/// Reads label `number` (0 to 3) of `device`.
pub fn read_label(device: &dyn Device, number: usize) -> Result<Label> {
    let offset = offset_of(device, number)?;
    let mut bytes = AlignedBuf::zeroed(LABEL_BYTES as usize);
    device.read_at(offset, &mut bytes)?;
    Ok(Label { number, offset, bytes })
}

impl Label {
    /// Its number, 0 to 3.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Offset of the label on the device, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// All bytes of the label.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The packed configuration, and what follows it up to its checksum.
    ///
    /// Errors: [`base::Kind::Checksum`] if the sum is wrong, or is not there.
    pub fn config(&self) -> Result<&[u8]> {
        let block = &self.bytes[CONFIG_AT..RING_AT];
        self.verify(block, CONFIG_AT)?;
        Ok(&block[..block.len() - embedded::TAIL_LEN])
    }

    /// The boot environment, up to its checksum. Errors: as of [`Label::config`].
    pub(super) fn boot_env(&self) -> Result<&[u8]> {
        let block = &self.bytes[BOOT_ENV_AT..CONFIG_AT];
        self.verify(block, BOOT_ENV_AT)?;
        Ok(&block[..block.len() - embedded::TAIL_LEN])
    }

    /// The uberblocks of the ring on a vdev of that ashift; slots that were never written are left
    /// out.
    pub fn uberblocks(&self, ashift: u32) -> impl Iterator<Item = UberblockSlot<'_>> {
        let size = slot_bytes(ashift);
        self.bytes[RING_AT..].chunks_exact(size).enumerate().filter_map(move |(slot, bytes)| {
            let at = RING_AT + slot * size;
            let checked = self.verify(bytes, at);
            let written = [Endian::Little, Endian::Big].iter().any(|e| e.u64(bytes) == Some(UBERBLOCK_MAGIC));
            (written || checked.is_ok()).then(|| UberblockSlot {
                label: self.number,
                slot,
                offset: self.offset + at as u64,
                bytes: checked.map(|_| bytes),
            })
        })
    }

    /// Checks a part of the label that begins `at` bytes into it.
    fn verify(&self, block: &[u8], at: usize) -> Result<Endian> {
        let offset = self.offset + at as u64;
        embedded::verify(Checksum::Label, &[offset, 0, 0, 0], block).map_err(|e| e.at_offset(offset))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::Kind;
    use device::{FaultyDevice, MemDevice};

    use super::*;

    const SIZE: usize = (4 << 20) + 12_345;

    /// A device with a configuration in every label, and two uberblocks in each ring.
    fn disk() -> Vec<u8> {
        let mut disk = vec![0; SIZE];
        let end = SIZE / (256 << 10) * (256 << 10);
        for start in [0, 256 << 10, end - (512 << 10), end - (256 << 10)] {
            let mut seal = |at: usize, len: usize, content: &[u8], endian| {
                let block = &mut disk[start + at..][..len];
                block[..content.len()].copy_from_slice(content);
                let verifier = [(start + at) as u64, 0, 0, 0];
                embedded::seal(Checksum::Label, endian, &verifier, block).unwrap();
            };
            seal(16 << 10, 112 << 10, b"the configuration", Endian::Little);
            seal(128 << 10, 4096, &UBERBLOCK_MAGIC.to_le_bytes(), Endian::Little);
            seal((128 + 12) << 10, 4096, &UBERBLOCK_MAGIC.to_be_bytes(), Endian::Big);
        }
        disk
    }

    #[test]
    fn reads_all_four() {
        let device = MemDevice::new("disk", disk());
        for (number, label) in read_labels(&device).labels.into_iter().enumerate() {
            let label = label.unwrap();
            assert_eq!(label.number(), number);
            assert!(label.config().unwrap().starts_with(b"the configuration\0"));
            let slots: Vec<(usize, bool)> = label.uberblocks(12).map(|s| (s.slot, s.bytes.is_ok())).collect();
            assert_eq!(slots, [(0, true), (3, true)]);
            assert_eq!(read_label(&device, number).unwrap().bytes(), label.bytes());
        }
    }

    #[test]
    fn damage_is_told_from_emptiness() {
        let mut bytes = disk();
        bytes[(16 << 10) + 5] ^= 1;
        bytes[(128 << 10) + 100] ^= 1;
        bytes[(128 + 12) << 10] ^= 1;
        let label = read_label(&MemDevice::new("disk", bytes), 0).unwrap();
        assert_eq!(label.config().unwrap_err().kind(), Kind::Checksum);
        // the magic number of the second one is damaged, but it does not pass for one
        let slots: Vec<(usize, bool)> = label.uberblocks(12).map(|s| (s.slot, s.bytes.is_ok())).collect();
        assert_eq!(slots, [(0, false)]);
    }

    #[test]
    fn a_label_at_another_place_does_not_pass() {
        let mut bytes = disk();
        bytes.copy_within(0..256 << 10, 256 << 10);
        let labels = read_labels(&MemDevice::new("disk", bytes)).labels;
        let good = labels.each_ref().map(|l| l.as_ref().unwrap().config().is_ok());
        assert_eq!(good, [true, false, true, true]);
    }

    #[test]
    fn what_cannot_be_read_leaves_the_others() {
        let device = FaultyDevice::new(Arc::new(MemDevice::new("disk", disk())), 0);
        device.broken(300 << 10..301 << 10);
        let read = read_labels(&device).labels.map(|label| label.is_ok());
        assert_eq!(read, [true, false, true, true]);
        let small = MemDevice::new("small", vec![0; 1 << 19]);
        assert!(read_labels(&small).labels.iter().all(Result::is_err));
    }

    #[test]
    fn slots_grow_with_the_sector_up_to_a_limit() {
        assert_eq!([9, 10, 12, 13, 16].map(slot_bytes), [1024, 1024, 4096, 8192, 8192]);
    }
}
