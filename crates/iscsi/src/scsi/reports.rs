//! Commands that tell of a unit.

use crate::scsi::command::{Done, ScsiCommand, ScsiOutcome};
use crate::scsi::sense::Sense;
use crate::scsi::unit::BLOCK_BYTES;

/// Nothing is left to be told: it is told with the command that failed.
pub(super) fn request_sense(command: &ScsiCommand<'_>) -> ScsiOutcome {
    let attention = command.nexus.attention(command.unit)?;
    Done::bytes(&attention.unwrap_or(Sense::NONE).bytes(), command.cdb[4].into())
}

/// It runs, whatever is asked; when it is to stop, all is brought to disk.
pub(super) fn start_stop(command: &ScsiCommand<'_>) -> ScsiOutcome {
    if !command.has(4, 0x01) && !command.has(4, 0x04) {
        command.unit.lun.flush()?;
    }
    Done::took(0)
}

pub(super) fn capacity_10(command: &ScsiCommand<'_>) -> ScsiOutcome {
    // what it asks about is the whole, or it asks nothing
    if !command.has(8, 0x01) && command.u32(2) != 0 {
        return Err(Sense::INVALID_FIELD.into());
    }
    let last = u32::try_from(command.unit.blocks()?.saturating_sub(1)).unwrap_or(u32::MAX);
    Done::bytes(&[last.to_be_bytes(), (BLOCK_BYTES as u32).to_be_bytes()].concat(), 8)
}

pub(super) fn capacity_16(command: &ScsiCommand<'_>) -> ScsiOutcome {
    let (size, grain) = command.unit.lun.sizes()?;
    let mut bytes = Vec::from((size / BLOCK_BYTES).saturating_sub(1).to_be_bytes());
    bytes.extend((BLOCK_BYTES as u32).to_be_bytes());
    let blocks_of_grain = (grain / BLOCK_BYTES).max(1).ilog2().min(15) as u8;
    // it is thin, and what is unmapped reads as zeros
    bytes.extend([0, blocks_of_grain, 0xc0, 0]);
    bytes.resize(32, 0);
    Done::bytes(&bytes, command.u32(10) as usize)
}

/// One unit, of number 0.
pub(super) fn report_luns(command: &ScsiCommand<'_>) -> ScsiOutcome {
    let most = command.u32(6) as usize;
    if most < 16 {
        return Err(Sense::INVALID_FIELD.into());
    }
    match command.cdb[2] {
        0 | 2 => Done::bytes(&[&[0, 0, 0, 8][..], &[0; 12]].concat(), most),
        // well-known units: there are none
        1 => Done::bytes(&[0; 8], most),
        _ => Err(Sense::INVALID_FIELD.into()),
    }
}

/// One group with one port, which is the way to take.
pub(super) fn target_port_groups(command: &ScsiCommand<'_>) -> ScsiOutcome {
    // at its best, as it always is
    let group = [0x00, 0x01, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1];
    Done::bytes(&[&(group.len() as u32).to_be_bytes()[..], &group].concat(), command.u32(6) as usize)
}

/// Aborting a task and its set, clearing it, and resetting the unit and the target.
pub(super) fn supported_management(command: &ScsiCommand<'_>) -> ScsiOutcome {
    let is_long = command.has(2, 0x80);
    let bytes: &[u8] = if is_long { &[0xda, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] } else { &[0xda, 0, 0, 0] };
    match command.u32(6) {
        0..4 => Err(Sense::INVALID_FIELD.into()),
        most => Done::bytes(bytes, most as usize),
    }
}
