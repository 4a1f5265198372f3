//! Commands that let go of blocks, and tell which there are.

use crate::scsi::blocks::{BlockRange, exact};
use crate::scsi::command::{Done, ScsiCommand, ScsiOutcome};
use crate::scsi::sense::{ScsiFailure, Sense};
use crate::scsi::unit::BLOCK_BYTES;

/// Blocks that one WRITE SAME is about.
pub(super) const SAME_BLOCKS_MAX: u64 = 1 << 18;
/// Ranges that one UNMAP is about.
pub(super) const UNMAP_RANGES_MAX: usize = 256;
/// Ranges that one GET LBA STATUS tells of.
const STATES_MAX: usize = 256;
/// Bytes that one command has looked through for holes: of more it has to be asked again.
const SEARCH_BYTES: u64 = 16 << 30;
/// Bytes of a pattern that are written at a time.
const PATTERN_BYTES: u64 = 1 << 20;
/// The bits for letting go, and for zeros without data.
const UNMAPS: u8 = 0x08;
const NO_DATA: u8 = 0x01;

/// Writes one block over and over; zeros are holes as far as they can be.
pub(super) fn write_same(command: &ScsiCommand<'_>) -> ScsiOutcome {
    let range = BlockRange::of(command, SAME_BLOCKS_MAX)?;
    // as page B0 says
    if range.blocks == 0 {
        return Err(Sense::INVALID_FIELD.into());
    }
    let is_without = command.cdb[0] == 0x93 && command.has(1, NO_DATA);
    let data = exact(command, if is_without { 0 } else { BLOCK_BYTES })?;
    let lun = &command.unit.lun;
    let _changing = command.unit.changing.read();
    if data.iter().all(|byte| *byte == 0) {
        lun.zero(range.offset(), range.bytes())?;
        return Done::took(data.len() as u64);
    }
    // what reads as this pattern cannot be a hole, whatever the bit says
    let _ = command.has(1, UNMAPS);
    let many = data.repeat((range.bytes().min(PATTERN_BYTES) / BLOCK_BYTES) as usize);
    let (mut at, end) = (range.offset(), range.offset() + range.bytes());
    while at < end {
        let len = (end - at).min(many.len() as u64);
        lun.write(at, many[..len as usize].into(), false)?;
        at += len;
    }
    Done::took(data.len() as u64)
}

pub(super) fn unmap(command: &ScsiCommand<'_>) -> ScsiOutcome {
    let len = command.u16(7).into();
    let list = command.data.get(..len).ok_or(Sense::PARAMETER_LENGTH)?;
    if len == 0 {
        return Done::took(0);
    }
    let ranges = parse_unmap(list)?;
    for range in &ranges {
        range.check(command)?;
    }
    let _changing = command.unit.changing.read();
    for range in ranges.iter().filter(|range| range.blocks > 0) {
        command.unit.lun.zero(range.offset(), range.bytes())?;
    }
    Done::took(len as u64)
}

/// The ranges of a list: lengths of all and of the ranges u16, 4 bytes, then a first block u64, blocks u32, 4 bytes each.
pub(super) fn parse_unmap(list: &[u8]) -> Result<Vec<BlockRange>, ScsiFailure> {
    let (head, rest) = list.split_at_checked(8).ok_or(Sense::PARAMETER_LENGTH)?;
    let len = usize::from(u16::from_be_bytes([head[2], head[3]]));
    let ranges = rest[..len.min(rest.len())].chunks_exact(16);
    if ranges.len() > UNMAP_RANGES_MAX {
        return Err(Sense::INVALID_PARAMETER.into());
    }
    let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    Ok(ranges.map(|range| BlockRange { first: number(&range[..8]), blocks: number(&range[8..12]) }).collect())
}

/// Which blocks from one on are there, as far as is looked at once.
pub(super) fn lba_status(command: &ScsiCommand<'_>) -> ScsiOutcome {
    let (first, most) = (command.u64(2), command.u32(10) as usize);
    let (lun, blocks) = (&command.unit.lun, command.unit.blocks()?);
    if first >= blocks {
        return Err(Sense::OUT_OF_RANGE.into());
    }
    let (mut states, mut at) = (vec![0; 8], first);
    let fits = |states: &Vec<u8>| states.len() < 8 + 16 * STATES_MAX && states.len() + 16 <= most.max(24);
    let end = blocks.min(first.saturating_add(SEARCH_BYTES / BLOCK_BYTES));
    while at < end && fits(&states) {
        let rest = at * BLOCK_BYTES..end * BLOCK_BYTES;
        let data = lun.next_data(rest.clone())?.map_or(end, |data| data / BLOCK_BYTES);
        let (until, state) = match data > at {
            true => (data, 1),
            false => (lun.next_hole(rest)?.div_ceil(BLOCK_BYTES), 0),
        };
        // it has changed since it was looked for
        if until <= at {
            continue;
        }
        let len = (until.min(end) - at).min(u32::MAX.into()) as u32;
        states.extend(at.to_be_bytes());
        states.extend(len.to_be_bytes());
        states.extend([state, 0, 0, 0]);
        at += u64::from(len);
    }
    let len = states.len() as u32 - 4;
    states[..4].copy_from_slice(&len.to_be_bytes());
    Done::bytes(&states, most)
}
