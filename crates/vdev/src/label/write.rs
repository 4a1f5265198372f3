//! Writing labels: of one device, and of all of a pool.
//!
//! Nothing here flushes. Whoever changes the labels of a pool keeps one pair whole at all times:
//!
//! ```text
//!   write labels 0 and 2, flush │ write uberblocks, flush │ write labels 1 and 3, flush
//! ```
//!
//! A cut in front of the uberblocks leaves labels 1 and 3 as they were, and one behind them leaves
//! labels 0 and 2 as they are to be.

use base::{AlignedBuf, Endian, Error, Kind as ErrorKind, Result};
use codec::checksum::{Checksum, embedded};
use device::meter::Purpose;
use device::{Device, Write, write_batch};
use format::uberblock::Uberblock;

use super::{BOOT_ENV_AT, CONFIG_AT, COUNT, LABEL_BYTES, RING_AT, offset_of, read_label, slot_bytes, slot_count};
use crate::tree::{Tree, Vdev};

/// A part of a label that is to be written.
struct Part {
    label: usize,
    /// Offset on the device, in bytes.
    offset: u64,
    bytes: AlignedBuf,
}

/// Makes empty labels: zeros, but for the boot environment's block, which is empty and carries its
/// checksum. What was in the labels is gone.
///
/// Errors: those of [`Device::write_at`], with the label's number; [`ErrorKind::Corrupt`] if the
/// device is too small for labels. Other labels have been written if they could be.
pub fn initialize(device: &dyn Device) -> Result<()> {
    clear(device)?;
    let part = |label| sealed(device, label, BOOT_ENV_AT, CONFIG_AT - BOOT_ENV_AT, Endian::Little, |_| ());
    put(device, &(0..COUNT).map(part).collect::<Result<Vec<_>>>()?)
}

/// Overwrites all labels with zeros, so that the device belongs to no pool. Errors as of
/// [`initialize`].
pub fn clear(device: &dyn Device) -> Result<()> {
    clear_those(device, 0..COUNT)
}

/// As [`clear`], but leaves alone what is no label: where one has been overwritten, somebody else's data may be.
pub fn clear_sound(device: &dyn Device) -> Result<()> {
    let is_sound = |number: &usize| read_label(device, *number).is_ok_and(|label| label.config().is_ok());
    clear_those(device, (0..COUNT).filter(is_sound))
}

fn clear_those(device: &dyn Device, which: impl Iterator<Item = usize>) -> Result<()> {
    let zeros = |label| {
        let bytes = AlignedBuf::zeroed(LABEL_BYTES as usize);
        Ok(Part { label, offset: offset_of(device, label)?, bytes })
    };
    put(device, &which.map(zeros).collect::<Result<Vec<_>>>()?)
}

/// Writes the configuration, an XDR list, into those labels of `which` (0 to 3).
///
/// Errors: as of [`initialize`], and [`ErrorKind::TooBig`] if the configuration does not fit; no
/// label has been written then. Panics if there is no such label.
pub fn write_config(device: &dyn Device, which: &[usize], packed: &[u8]) -> Result<()> {
    put(device, &config_parts(device, which, packed)?)
}

/// Writes the uberblock into its slot of all four labels of a vdev of that ashift. Errors as of
/// [`initialize`].
pub fn write_uberblock(device: &dyn Device, uberblock: &Uberblock, ashift: u32) -> Result<()> {
    put(device, &uberblock_parts(device, uberblock, ashift)?)
}

/// Writes the uberblock into the slot of label `number` (0 to 3) that is kept for heartbeats. Errors as of
/// [`initialize`].
pub fn write_heartbeat(device: &dyn Device, number: usize, uberblock: &Uberblock, ashift: u32) -> Result<()> {
    put(device, &[heartbeat_part(device, number, uberblock, ashift)?])
}

fn config_parts(device: &dyn Device, which: &[usize], packed: &[u8]) -> Result<Vec<Part>> {
    let room = RING_AT - CONFIG_AT;
    if packed.len() > room - embedded::TAIL_LEN {
        let what = format!("the configuration's {} bytes do not fit into a label", packed.len());
        return Err(Error::new(ErrorKind::TooBig, what).at_vdev(device.path()));
    }
    let fill = |block: &mut [u8]| block[..packed.len()].copy_from_slice(packed);
    which.iter().map(|&label| sealed(device, label, CONFIG_AT, room, Endian::Little, fill)).collect()
}

fn uberblock_parts(device: &dyn Device, uberblock: &Uberblock, ashift: u32) -> Result<Vec<Part>> {
    let size = slot_bytes(ashift);
    // the last one is kept for heartbeats
    let slots = slot_count(ashift) - usize::from(uberblock.is_guarded());
    let at = RING_AT + (uberblock.txg % slots as u64) as usize * size;
    (0..COUNT).map(|label| sealed(device, label, at, size, uberblock.endian, |slot| uberblock.write(slot))).collect()
}

fn heartbeat_part(device: &dyn Device, label: usize, uberblock: &Uberblock, ashift: u32) -> Result<Part> {
    let size = slot_bytes(ashift);
    let at = RING_AT + (slot_count(ashift) - 1) * size;
    sealed(device, label, at, size, uberblock.endian, |slot| uberblock.write(slot))
}

/// `len` bytes that begin `at` bytes into a label, filled by `fill` and with their checksum.
fn sealed(
    device: &dyn Device,
    label: usize,
    at: usize,
    len: usize,
    endian: Endian,
    fill: impl Fn(&mut [u8]),
) -> Result<Part> {
    assert!(label < COUNT, "there is no label {label}");
    let offset = offset_of(device, label)? + at as u64;
    let mut bytes = AlignedBuf::zeroed(len);
    fill(&mut bytes);
    embedded::seal(Checksum::Label, endian, &[offset, 0, 0, 0], &mut bytes)?;
    Ok(Part { label, offset, bytes })
}

/// Writes all `parts`; the first error, if there is one.
fn put(device: &dyn Device, parts: &[Part]) -> Result<()> {
    let mut writes: Vec<Write<'_>> = parts.iter().map(|part| Write::new(device, part.offset, &part.bytes)).collect();
    write_batch(&mut writes);
    writes.into_iter().zip(parts).try_for_each(|(write, part)| write.result.map_err(|e| naming(e, part)))
}

/// Tells which label the error is about.
fn naming(error: Error, part: &Part) -> Error {
    let vdev = error.place().vdev.clone().unwrap_or_default();
    let what = format!("label {} could not be written", part.label);
    Error::new(error.kind(), what).at_vdev(vdev).at_offset(part.offset).with_source(error)
}

impl Tree {
    /// Writes the uberblock into its slot of all labels of all leaves, log devices among them.
    ///
    /// `Ok` if at least one copy was written elsewhere than on a log device. Leaves that fail have their errors counted. Errors:
    /// that of a leaf, or [`ErrorKind::Missing`] if there is none to write to.
    pub fn write_uberblock(&self, uberblock: &Uberblock) -> Result<()> {
        let (good, error) = self.write_parts(&|leaf, ashift| uberblock_parts(device_of(leaf), uberblock, ashift))?;
        if self.tops().zip(good).any(|(top, good)| good > 0 && !top.is_log()) {
            return Ok(());
        }
        Err(error.unwrap_or_else(|| Error::new(ErrorKind::Missing, "no device is there for the uberblock")))
    }

    /// Writes the uberblock into the slot of label `number` (0 to 3) of a leaf that is kept for heartbeats. Its errors
    /// are not counted. Errors: those of the device; [`ErrorKind::Missing`] if the leaf is not there.
    pub fn write_heartbeat(&self, guid: u64, number: usize, uberblock: &Uberblock) -> Result<()> {
        let (device, ashift) = self.heart_of(guid)?;
        write_heartbeat(device, number, uberblock, ashift)
    }

    /// The uberblock in that slot now; `None` if there is none.
    pub fn read_heartbeat(&self, guid: u64, number: usize) -> Result<Option<Uberblock>> {
        let (device, ashift) = self.heart_of(guid)?;
        let label = read_label(device, number)?;
        let last = label.uberblocks(ashift).find(|slot| slot.slot + 1 == slot_count(ashift));
        Ok(last.and_then(|slot| Uberblock::parse(slot.bytes.ok()?).ok().flatten()))
    }

    /// The device of a leaf that takes heartbeats, and the ashift of its labels.
    fn heart_of(&self, guid: u64) -> Result<(&dyn Device, u32)> {
        let leaf = self.leaf(guid);
        let found = leaf.and_then(|leaf| Some((leaf.readable_device()?, self.top_of(leaf).ashift())));
        found.ok_or_else(|| Error::new(ErrorKind::Missing, "the device is not there"))
    }

    /// Guids of the leaves that take heartbeats.
    pub fn hearts(&self) -> Vec<u64> {
        let takes = |vdev: &&Vdev| vdev.is_leaf() && vdev.readable_device().is_some();
        self.iter().filter(takes).map(Vdev::guid).collect()
    }

    /// Writes its configuration, an XDR list that `config_of` makes, into those labels of `which` (0
    /// to 3) on every leaf, log devices among them.
    ///
    /// `Ok` if at least one label of every top-level vdev, those for the log aside, was written.
    /// Leaves that fail have their errors counted. Errors: that of a leaf; [`ErrorKind::Missing`] if
    /// a top-level vdev has no leaf to write to; [`ErrorKind::TooBig`] if a configuration does not
    /// fit, and nothing has been written then.
    pub fn write_labels(&self, which: &[usize], config_of: &dyn Fn(&Vdev) -> Vec<u8>) -> Result<()> {
        let (good, error) = self.write_parts(&|leaf, _| config_parts(device_of(leaf), which, &config_of(leaf)))?;
        let matters = |top: &Vdev| top.kind().is_concrete() && !top.is_log();
        match self.tops().zip(good).find(|(top, good)| matters(top) && *good == 0) {
            None => Ok(()),
            Some((top, _)) => {
                let missing = || Error::new(ErrorKind::Missing, "no device is there for the label").at_vdev(top.name());
                Err(error.unwrap_or_else(missing))
            }
        }
    }

    /// Writes the parts that `parts_of` makes for each leaf that is there, given the ashift of its
    /// top-level vdev, all at once. How many were written on each top-level vdev, and the first error.
    fn write_parts(&self, parts_of: &dyn Fn(&Vdev, u32) -> Result<Vec<Part>>) -> Result<(Vec<usize>, Option<Error>)> {
        let mut all: Vec<(usize, &Vdev, Part)> = Vec::new();
        for (number, top) in self.tops().enumerate() {
            let mut stack = vec![top];
            while let Some(vdev) = stack.pop() {
                stack.extend(vdev.children().iter().map(|&child| self.vdev(child)));
                if vdev.readable_device().is_some() {
                    let parts = parts_of(vdev, top.ashift())?;
                    all.extend(parts.into_iter().map(|part| (number, vdev, part)));
                }
            }
        }
        let writes =
            all.iter().map(|(_, leaf, part)| self.write_of(leaf.id(), part.offset, &part.bytes, Purpose::SyncWrite));
        let mut writes: Vec<Write<'_>> = writes.collect();
        write_batch(&mut writes);
        let (mut good, mut error) = (vec![0; self.tops().len()], None);
        for (write, (number, leaf, part)) in writes.into_iter().zip(&all) {
            match write.result {
                Ok(()) => {
                    good[*number] += 1;
                    leaf.note_written(0..0);
                }
                Err(e) => {
                    leaf.charge_write(&e);
                    error = error.or(Some(naming(e, part)));
                }
            }
        }
        Ok((good, error))
    }
}

fn device_of(leaf: &Vdev) -> &dyn Device {
    leaf.device().expect("only leaves with a device are written")
}

#[cfg(test)]
mod tests;
