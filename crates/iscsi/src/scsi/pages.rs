//! What a unit says of itself: INQUIRY, its pages, and the pages of MODE SENSE.

use crate::scsi::blocks::{BLOCKS_MAX, COMPARED_BLOCKS_MAX};
use crate::scsi::command::{Done, ScsiCommand, ScsiOutcome};
use crate::scsi::provision::{SAME_BLOCKS_MAX, UNMAP_RANGES_MAX};
use crate::scsi::sense::{ScsiFailure, Sense};
use crate::scsi::unit::BLOCK_BYTES;

/// Names, padded with spaces.
const VENDOR: &[u8; 8] = b"CENOTE  ";
const PRODUCT: &[u8; 16] = b"VOLUME          ";
const REVISION: &[u8; 4] = b"0001";
/// SAM-5, SPC-4, SBC-3 and iSCSI, without a version.
const STANDARDS: [u16; 4] = [0x00a0, 0x0460, 0x04c0, 0x0960];
/// The pages of INQUIRY.
const PAGES: [u8; 7] = [0x00, 0x80, 0x83, 0x86, 0xb0, 0xb1, 0xb2];

pub(super) fn inquiry(command: &ScsiCommand<'_>) -> ScsiOutcome {
    let (page, most) = (command.cdb[2], usize::from(command.u16(3)));
    if !command.has(1, 0x01) {
        return match page {
            0 => Done::bytes(&standard(0x00), most),
            _ => Err(Sense::INVALID_FIELD.into()),
        };
    }
    let body = match page {
        0x00 => PAGES.to_vec(),
        0x80 => format!("{:016x}", command.unit.lun.guid()).into_bytes(),
        0x83 => identification(command),
        0x86 => extended(),
        0xb0 => limits(command)?,
        // not a turning disk
        0xb1 => [&[0, 1][..], &[0; 58]].concat(),
        // it unmaps by all three commands, what it unmaps reads as zeros, and it is thin
        0xb2 => vec![0, 0xe4, 2, 0],
        _ => return Err(Sense::INVALID_FIELD.into()),
    };
    let bytes = [&[0x00, page][..], &(body.len() as u16).to_be_bytes(), &body].concat();
    Done::bytes(&bytes, most)
}

/// Of a number that no unit has.
pub(super) fn inquiry_of_none(command: &ScsiCommand<'_>) -> ScsiOutcome {
    match command.has(1, 0x01) {
        true => Err(Sense::NO_UNIT.into()),
        false => Done::bytes(&standard(0x7f), command.u16(3).into()),
    }
}

fn standard(kind: u8) -> Vec<u8> {
    let mut bytes = vec![0; 96];
    // SPC-4; the form of these data
    (bytes[0], bytes[2], bytes[3], bytes[4]) = (kind, 0x06, 0x12, 91);
    // it reports groups of ports; commands are queued
    (bytes[5], bytes[7]) = (0x10, 0x02);
    bytes[8..16].copy_from_slice(VENDOR);
    bytes[16..32].copy_from_slice(PRODUCT);
    bytes[32..36].copy_from_slice(REVISION);
    for (at, standard) in STANDARDS.iter().enumerate() {
        bytes[58 + 2 * at..60 + 2 * at].copy_from_slice(&standard.to_be_bytes());
    }
    bytes
}

/// Names of the unit and of its port.
fn identification(command: &ScsiCommand<'_>) -> Vec<u8> {
    let (guid, target) = (command.unit.lun.guid(), command.unit.lun.target_name());
    let mut bytes = Vec::new();
    let mut add = |set: u8, kind: u8, name: &[u8]| {
        bytes.extend([set, kind, 0, name.len() as u8]);
        bytes.extend(name);
    };
    // a number that this machine made up
    add(0x01, 0x03, &(3 << 60 | guid >> 4).to_be_bytes());
    add(0x02, 0x01, &[&VENDOR[..], format!("{guid:016x}").as_bytes()].concat());
    // of iSCSI: the port, its group, and the name of the target
    add(0x51, 0x94, &[0, 0, 0, 1]);
    add(0x51, 0x95, &[0, 0, 0, 1]);
    let mut name = format!("{target},t,0x0001").into_bytes();
    // the length of a name has 8 bits
    name.truncate(251);
    name.resize((name.len() + 1).next_multiple_of(4), 0);
    add(0x53, 0x98, &name);
    bytes
}

/// Simple tasks, and those that are to be first.
fn extended() -> Vec<u8> {
    let mut bytes = vec![0; 60];
    bytes[1] = 0x03;
    bytes
}

fn limits(command: &ScsiCommand<'_>) -> Result<Vec<u8>, ScsiFailure> {
    let grain = (command.unit.lun.sizes()?.1 / BLOCK_BYTES).max(1) as u32;
    let mut bytes = vec![0; 60];
    // WRITE SAME of no blocks is refused
    (bytes[0], bytes[1]) = (1, COMPARED_BLOCKS_MAX as u8);
    bytes[2..4].copy_from_slice(&u16::try_from(grain).unwrap_or(u16::MAX).to_be_bytes());
    let mut put = |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    put(4, BLOCKS_MAX as u32);
    put(8, grain.max(2048).min(BLOCKS_MAX as u32));
    put(12, BLOCKS_MAX as u32);
    // blocks without a limit
    put(16, u32::MAX);
    put(20, UNMAP_RANGES_MAX as u32);
    put(24, grain);
    // aligned to the beginning
    put(28, 1 << 31);
    bytes[32..40].copy_from_slice(&SAME_BLOCKS_MAX.to_be_bytes());
    Ok(bytes)
}

pub(super) fn mode_sense(command: &ScsiCommand<'_>) -> ScsiOutcome {
    let is_long = command.cdb[0] == 0x5a;
    let (page, control, subpage) = (command.cdb[2] & 0x3f, command.cdb[2] >> 6, command.cdb[3]);
    let most = if is_long { command.u16(7).into() } else { command.cdb[4].into() };
    // nothing is saved
    if control == 3 {
        return Err(ScsiFailure::Sense(Sense::INVALID_FIELD));
    }
    let mut pages = Vec::new();
    for (number, current) in [(0x01, error_recovery()), (0x08, caching()), (0x0a, control_page()), (0x1c, exceptions())]
    {
        if matches!(page, 0x3f) && matches!(subpage, 0 | 0xff) || page == number && subpage == 0 {
            pages.extend([number, current.len() as u8]);
            // nothing can be changed
            pages.extend(if control == 1 { vec![0; current.len()] } else { current });
        }
    }
    if pages.is_empty() {
        return Err(Sense::INVALID_FIELD.into());
    }
    let (has_long_block, blocks) = (is_long && command.has(1, 0x10), command.unit.blocks()?);
    let block = match (command.has(1, 0x08), has_long_block) {
        (true, _) => Vec::new(),
        (_, true) => [&blocks.to_be_bytes()[..], &[0; 4], &(BLOCK_BYTES as u32).to_be_bytes()].concat(),
        (_, false) => {
            let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
            [blocks.to_be_bytes(), (BLOCK_BYTES as u32).to_be_bytes()].concat()
        }
    };
    // writes that last are known; whether it may be changed
    let about = 0x10 | if command.unit.lun.is_read_only()? { 0x80 } else { 0 };
    let len = block.len() + pages.len();
    let head = match is_long {
        true => {
            let mut head = Vec::from((len as u16 + 6).to_be_bytes());
            head.extend([0, about, u8::from(has_long_block && !block.is_empty()), 0]);
            head.extend((block.len() as u16).to_be_bytes());
            head
        }
        false => vec![len as u8 + 3, 0, about, block.len() as u8],
    };
    Done::bytes(&[head, block, pages].concat(), most)
}

fn error_recovery() -> Vec<u8> {
    vec![0; 10]
}

/// What is written is kept in memory until it is flushed.
fn caching() -> Vec<u8> {
    let mut page = vec![0; 18];
    page[0] = 0x04;
    page
}

/// Commands may be done in any order; what is aborted is not told.
fn control_page() -> Vec<u8> {
    let mut page = vec![0; 10];
    page[1] = 0x10;
    page
}

fn exceptions() -> Vec<u8> {
    vec![0; 10]
}
