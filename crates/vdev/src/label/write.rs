//! Writing the labels of a device.
//!
//! Nothing here flushes. What the order of writes of a whole pool is, `tree_labels` says.

use base::{AlignedBuf, Endian, Error, Kind as ErrorKind, Result};
use codec::checksum::{Checksum, embedded};
use device::{Device, Write, write_batch};
use format::uberblock::Uberblock;

use super::layout::{BOOT_ENV_AT, CONFIG_AT, COUNT, LABEL_BYTES, RING_AT, offset_of, slot_bytes, slot_count};
use super::read::read_label;

/// A part of a label that is to be written.
pub(crate) struct LabelPart {
    label: usize,
    /// Offset on the device, in bytes.
    pub(crate) offset: u64,
    pub(crate) bytes: AlignedBuf,
}

/// Makes empty labels: zeros, but for the boot environment's block, which is empty and carries its
/// checksum. What was in the labels is gone.
///
/// Errors: those of [`Device::write_at`], with the label's number, and of [`Device::flush`];
/// [`ErrorKind::Corrupt`] if the device is too small for labels. Other labels have been written if they could be.
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

/// Makes the last two labels empty, but for the boot environment of the first: the device has a new end.
///
/// Errors: as of [`initialize`].
pub(crate) fn initialize_end(device: &dyn Device) -> Result<()> {
    clear_those(device, 2..COUNT)?;
    let first = read_label(device, 0).ok();
    let text = first.as_ref().and_then(|label| label.boot_env().ok());
    let fill = |block: &mut [u8]| text.into_iter().for_each(|text| block[..text.len()].copy_from_slice(text));
    let part = |label| sealed(device, label, BOOT_ENV_AT, CONFIG_AT - BOOT_ENV_AT, Endian::Little, fill);
    put(device, &(2..COUNT).map(part).collect::<Result<Vec<_>>>()?)
}

/// The sector in which a configuration begins is gone before any other: one that ends in zeros is a list too, and
/// `zpool import` of OpenZFS, which looks at no checksums of labels, ends at what that lacks.
fn clear_those(device: &dyn Device, which: impl Iterator<Item = usize>) -> Result<()> {
    let which = Vec::from_iter(which);
    let zeros = |at: usize, len: usize| {
        let part = |label: &usize| {
            let offset = offset_of(device, *label)? + at as u64;
            Ok(LabelPart { label: *label, offset, bytes: AlignedBuf::zeroed(len) })
        };
        which.iter().map(part).collect::<Result<Vec<_>>>()
    };
    put(device, &zeros(CONFIG_AT, device.sector_bytes().min(LABEL_BYTES - CONFIG_AT as u64) as usize)?)?;
    device.flush()?;
    put(device, &zeros(0, LABEL_BYTES as usize)?)
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

pub(crate) fn config_parts(device: &dyn Device, which: &[usize], packed: &[u8]) -> Result<Vec<LabelPart>> {
    let room = RING_AT - CONFIG_AT;
    if packed.len() > room - embedded::TAIL_LEN {
        let what = format!("the configuration's {} bytes do not fit into a label", packed.len());
        return Err(Error::new(ErrorKind::TooBig, what).at_vdev(device.path()));
    }
    let fill = |block: &mut [u8]| block[..packed.len()].copy_from_slice(packed);
    which.iter().map(|&label| sealed(device, label, CONFIG_AT, room, Endian::Little, fill)).collect()
}

pub(crate) fn uberblock_parts(device: &dyn Device, uberblock: &Uberblock, ashift: u32) -> Result<Vec<LabelPart>> {
    let size = slot_bytes(ashift);
    // the last one is kept for heartbeats
    let slots = slot_count(ashift) - usize::from(uberblock.is_guarded());
    let at = RING_AT + uberblock.txg.slot(slots) * size;
    (0..COUNT).map(|label| sealed(device, label, at, size, uberblock.endian, |slot| uberblock.write(slot))).collect()
}

fn heartbeat_part(device: &dyn Device, label: usize, uberblock: &Uberblock, ashift: u32) -> Result<LabelPart> {
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
) -> Result<LabelPart> {
    assert!(label < COUNT, "there is no label {label}");
    let offset = offset_of(device, label)? + at as u64;
    let mut bytes = AlignedBuf::zeroed(len);
    fill(&mut bytes);
    embedded::seal(Checksum::Label, endian, &[offset, 0, 0, 0], &mut bytes)?;
    Ok(LabelPart { label, offset, bytes })
}

/// Writes all `parts`; the first error, if there is one.
fn put(device: &dyn Device, parts: &[LabelPart]) -> Result<()> {
    let mut writes: Vec<Write<'_>> = parts.iter().map(|part| Write::new(device, part.offset, &part.bytes)).collect();
    write_batch(&mut writes);
    writes.into_iter().zip(parts).try_for_each(|(write, part)| write.result.map_err(|e| naming(e, part)))
}

/// Tells which label the error is about.
pub(crate) fn naming(error: Error, part: &LabelPart) -> Error {
    let vdev = error.place().vdev.clone().unwrap_or_default();
    let what = format!("label {} could not be written", part.label);
    Error::new(error.kind(), what).at_vdev(vdev).at_offset(part.offset).with_source(error)
}
