//! Commands that read and write blocks.

use base::Piece;

use crate::incoming::COMMAND_BYTES_MAX;
use crate::scsi::command::{CDB_BYTES, Done, ScsiCommand, ScsiOutcome};
use crate::scsi::sense::{ScsiFailure, Sense};
use crate::scsi::unit::BLOCK_BYTES;

/// Blocks of one command.
pub(crate) const BLOCKS_MAX: u64 = COMMAND_BYTES_MAX as u64 / BLOCK_BYTES;
/// Blocks that are compared and written as one.
pub(crate) const COMPARED_BLOCKS_MAX: u64 = 255;
/// Bytes that are verified at a time.
const VERIFIED_BYTES: u64 = 1 << 20;
/// The bits for writes that last, and for comparing with what was sent.
const FUA: u8 = 0x08;
const COMPARES: u8 = 0x02;

/// Blocks that a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRange {
    pub(crate) first: u64,
    pub(crate) blocks: u64,
}

impl BlockRange {
    /// As the lengths of commands have it.
    pub(crate) fn parse(cdb: &[u8; CDB_BYTES]) -> BlockRange {
        let number =
            |at: usize, len: usize| cdb[at..at + len].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let (first, blocks) = match cdb[0] >> 5 {
            0 => (number(1, 3) & 0x1f_ffff, if cdb[4] == 0 { 256 } else { number(4, 1) }),
            1 | 2 => (number(2, 4), number(7, 2)),
            5 => (number(2, 4), number(6, 4)),
            _ if cdb[0] == 0x89 => (number(2, 8), number(13, 1)),
            _ => (number(2, 8), number(10, 4)),
        };
        BlockRange { first, blocks }
    }

    /// That of a command, which may be about so many blocks.
    pub(crate) fn of(command: &ScsiCommand<'_>, most: u64) -> Result<BlockRange, ScsiFailure> {
        let range = BlockRange::parse(&command.cdb);
        range.check(command)?;
        if range.blocks > most {
            return Err(Sense::INVALID_FIELD.into());
        }
        Ok(range)
    }

    /// Errors: it is not all in the unit.
    pub(crate) fn check(&self, command: &ScsiCommand<'_>) -> Result<(), ScsiFailure> {
        let end = self.first.checked_add(self.blocks);
        match end.is_some_and(|end| end <= command.unit.blocks().unwrap_or(0)) {
            true => Ok(()),
            false => Err(Sense::OUT_OF_RANGE.into()),
        }
    }

    pub(crate) fn offset(&self) -> u64 {
        self.first * BLOCK_BYTES
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.blocks * BLOCK_BYTES
    }
}

pub(super) fn read(command: &ScsiCommand<'_>) -> ScsiOutcome {
    let range = BlockRange::of(command, BLOCKS_MAX)?;
    // what is in the cache is on disk as soon as it has to be
    if command.cdb[0] != 0x08 && command.has(1, FUA) {
        command.unit.lun.flush()?;
    }
    Ok(Done { data: command.unit.lun.read(range.offset(), range.bytes() as usize)?, ..Done::default() })
}

pub(super) fn write(command: &ScsiCommand<'_>) -> ScsiOutcome {
    let range = BlockRange::of(command, BLOCKS_MAX)?;
    let lasts = command.cdb[0] != 0x0a && command.has(1, FUA);
    let data = sent(command, range);
    let _changing = command.unit.changing.read();
    command.unit.lun.write(range.offset(), data.into(), lasts)?;
    Done::took(range.bytes())
}

pub(super) fn write_and_verify(command: &ScsiCommand<'_>) -> ScsiOutcome {
    let range = BlockRange::of(command, BLOCKS_MAX)?;
    let data = sent(command, range);
    let _changing = command.unit.changing.read();
    command.unit.lun.write(range.offset(), data.into(), true)?;
    let read = command.unit.lun.read(range.offset(), data.len())?;
    if command.has(1, COMPARES) {
        compare(&read, data)?;
    }
    Done::took(range.bytes())
}

pub(super) fn verify(command: &ScsiCommand<'_>) -> ScsiOutcome {
    if command.has(1, COMPARES) {
        let range = BlockRange::of(command, BLOCKS_MAX)?;
        let data = exact(command, range.bytes())?;
        compare(&command.unit.lun.read(range.offset(), data.len())?, data)?;
        return Done::took(range.bytes());
    }
    let range = BlockRange::of(command, u64::MAX)?;
    let (mut at, end) = (range.offset(), range.offset() + range.bytes());
    while at < end {
        let len = VERIFIED_BYTES.min(end - at);
        command.unit.lun.read(at, len as usize)?;
        at += len;
    }
    Done::took(0)
}

pub(super) fn prefetch(command: &ScsiCommand<'_>) -> ScsiOutcome {
    let mut range = BlockRange::of(command, u64::MAX)?;
    if range.blocks == 0 {
        range.blocks = command.unit.blocks()? - range.first;
    }
    // more than one command could read would only push others out of the cache
    range.blocks = range.blocks.min(BLOCKS_MAX);
    command.unit.lun.prefetch(range.offset(), range.bytes())?;
    Done::took(0)
}

pub(super) fn synchronize(command: &ScsiCommand<'_>) -> ScsiOutcome {
    BlockRange::of(command, u64::MAX)?;
    command.unit.lun.flush()?;
    Done::took(0)
}

/// The first half of what was sent has to be there; then the second is written.
pub(super) fn compare_and_write(command: &ScsiCommand<'_>) -> ScsiOutcome {
    let range = BlockRange::of(command, COMPARED_BLOCKS_MAX)?;
    let data = exact(command, 2 * range.bytes())?;
    let (expected, new) = data.split_at(data.len() / 2);
    let _changing = command.unit.changing.write();
    compare(&command.unit.lun.read(range.offset(), expected.len())?, expected)?;
    command.unit.lun.write(range.offset(), new.into(), command.has(1, FUA))?;
    Done::took(2 * range.bytes())
}

pub(super) fn or_write(command: &ScsiCommand<'_>) -> ScsiOutcome {
    let range = BlockRange::of(command, BLOCKS_MAX)?;
    let data = exact(command, range.bytes())?;
    let _changing = command.unit.changing.write();
    let mut new: Vec<u8> = command.unit.lun.read(range.offset(), data.len())?.iter().flat_map(|p| p.to_vec()).collect();
    new.iter_mut().zip(data).for_each(|(new, old)| *new |= old);
    command.unit.lun.write(range.offset(), new[..].into(), command.has(1, FUA))?;
    Done::took(range.bytes())
}

/// What was sent, as far as the command is about it.
fn sent<'a>(command: &ScsiCommand<'a>, range: BlockRange) -> &'a [u8] {
    let len = (command.data.len() as u64).min(range.bytes());
    &command.data[..len as usize]
}

/// What was sent, which has to be so many bytes.
pub(super) fn exact<'a>(command: &ScsiCommand<'a>, len: u64) -> Result<&'a [u8], ScsiFailure> {
    match command.data.len() as u64 == len {
        true => Ok(command.data),
        false => Err(Sense::INVALID_FIELD.into()),
    }
}

/// Errors: the place of the first byte that differs.
fn compare(read: &[Piece], with: &[u8]) -> Result<(), ScsiFailure> {
    let mut at = 0;
    for piece in read {
        let part = &with[at..at + piece.len()];
        if **piece != *part {
            let differs = piece.iter().zip(part).position(|(a, b)| a != b).unwrap_or(0);
            return Err(Sense::miscompare(at + differs).into());
        }
        at += piece.len();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_all_lengths() {
        let of = |bytes: &[u8]| {
            let mut cdb = [0; CDB_BYTES];
            cdb[..bytes.len()].copy_from_slice(bytes);
            let range = BlockRange::parse(&cdb);
            (range.first, range.blocks)
        };
        assert_eq!(of(&[0x08, 0xe1, 2, 3, 0, 0]), (0x1_0203, 256));
        assert_eq!(of(&[0x28, 0, 1, 2, 3, 4, 9, 5, 6, 0]), (0x0102_0304, 0x0506));
        assert_eq!(of(&[0xa8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0]), (0x0102_0304, 0x0506_0708));
        assert_eq!(of(&[0x88, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 9, 0, 0]), (0x0102_0304_0506_0708, 9));
        assert_eq!(of(&[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 8, 7, 7, 7, 9, 0, 0]), (8, 9));
    }
}
