//! A command: which there are, what each may say, and what it conflicts with.
//!
//! A bit that a command does not know makes it fail: what is accepted has its effect.

use std::sync::Arc;

use base::Result;
use export::ClientCounters;

use crate::outgoing::CommandAnswer;
use crate::pdu::{Pdu, PduHead};
use crate::scsi::command::{CDB_BYTES, Done, ScsiCommand, ScsiOutcome};
use crate::scsi::reservations::Touch;
use crate::scsi::sense::{CHECK_CONDITION, RESERVATION_CONFLICT, ScsiFailure, Sense};
use crate::scsi::unit::{LogicalUnit, Nexus};
use crate::scsi::{blocks, pages, persist, provision, reports};

/// A kind of command.
struct CommandRow {
    opcode: u8,
    /// For those that share an opcode.
    action: Option<u8>,
    /// The bits that each byte may have.
    usage: &'static [u8],
    touch: Touch,
    run: fn(&ScsiCommand<'_>) -> ScsiOutcome,
}

const fn row(usage: &'static [u8], touch: Touch, run: fn(&ScsiCommand<'_>) -> ScsiOutcome) -> CommandRow {
    CommandRow { opcode: usage[0], action: None, usage, touch, run }
}

const fn act(usage: &'static [u8], touch: Touch, run: fn(&ScsiCommand<'_>) -> ScsiOutcome) -> CommandRow {
    CommandRow { opcode: usage[0], action: Some(usage[1] & 0x1f), usage, touch, run }
}

const F: u8 = 0xff;

/// All commands that there are, with the bits that they know.
static COMMANDS: &[CommandRow] = &[
    row(&[0x00, 0, 0, 0, 0, 0], Touch::Nothing, |_| Ok(Done::default())),
    row(&[0x03, 0, 0, 0, F, 0], Touch::Nothing, reports::request_sense),
    row(&[0x08, 0x1f, F, F, F, 0], Touch::Reads, blocks::read),
    row(&[0x0a, 0x1f, F, F, F, 0], Touch::Writes, blocks::write),
    row(&[0x12, 0x01, F, F, F, 0], Touch::Nothing, pages::inquiry),
    row(&[0x1a, 0x08, F, F, F, 0], Touch::Reads, pages::mode_sense),
    row(&[0x1b, 0x01, 0, 0, 0x05, 0], Touch::Nothing, reports::start_stop),
    row(&[0x25, 0, F, F, F, F, 0, 0, 0x01, 0], Touch::Nothing, reports::capacity_10),
    row(&[0x28, 0x18, F, F, F, F, 0x1f, F, F, 0], Touch::Reads, blocks::read),
    row(&[0x2a, 0x18, F, F, F, F, 0x1f, F, F, 0], Touch::Writes, blocks::write),
    row(&[0x2e, 0x12, F, F, F, F, 0x1f, F, F, 0], Touch::Writes, blocks::write_and_verify),
    row(&[0x2f, 0x12, F, F, F, F, 0x1f, F, F, 0], Touch::Reads, blocks::verify),
    row(&[0x34, 0x02, F, F, F, F, 0x1f, F, F, 0], Touch::Reads, blocks::prefetch),
    row(&[0x35, 0x06, F, F, F, F, 0x1f, F, F, 0], Touch::Writes, blocks::synchronize),
    row(&[0x41, 0x08, F, F, F, F, 0x1f, F, F, 0], Touch::Writes, provision::write_same),
    row(&[0x42, 0, 0, 0, 0, 0, 0x1f, F, F, 0], Touch::Writes, provision::unmap),
    row(&[0x5a, 0x18, F, F, 0, 0, 0, F, F, 0], Touch::Reads, pages::mode_sense),
    act(&[0x5e, 0x00, 0, 0, 0, 0, 0, F, F, 0], Touch::Nothing, persist::read_keys),
    act(&[0x5e, 0x01, 0, 0, 0, 0, 0, F, F, 0], Touch::Nothing, persist::read_reservation),
    act(&[0x5e, 0x02, 0, 0, 0, 0, 0, F, F, 0], Touch::Nothing, persist::report_capabilities),
    act(&[0x5e, 0x03, 0, 0, 0, 0, 0, F, F, 0], Touch::Nothing, persist::read_full_status),
    act(&[0x5f, 0x00, F, 0, 0, F, F, F, F, 0], Touch::Nothing, persist::register),
    act(&[0x5f, 0x01, F, 0, 0, F, F, F, F, 0], Touch::Nothing, persist::reserve),
    act(&[0x5f, 0x02, F, 0, 0, F, F, F, F, 0], Touch::Nothing, persist::release),
    act(&[0x5f, 0x03, F, 0, 0, F, F, F, F, 0], Touch::Nothing, persist::clear),
    act(&[0x5f, 0x04, F, 0, 0, F, F, F, F, 0], Touch::Nothing, persist::preempt),
    act(&[0x5f, 0x05, F, 0, 0, F, F, F, F, 0], Touch::Nothing, persist::preempt),
    act(&[0x5f, 0x06, F, 0, 0, F, F, F, F, 0], Touch::Nothing, persist::register),
    row(&[0x88, 0x18, F, F, F, F, F, F, F, F, F, F, F, F, 0x1f, 0], Touch::Reads, blocks::read),
    row(&[0x89, 0x18, F, F, F, F, F, F, F, F, 0, 0, 0, F, 0x1f, 0], Touch::Writes, blocks::compare_and_write),
    row(&[0x8a, 0x18, F, F, F, F, F, F, F, F, F, F, F, F, 0x1f, 0], Touch::Writes, blocks::write),
    row(&[0x8b, 0x18, F, F, F, F, F, F, F, F, F, F, F, F, 0x1f, 0], Touch::Writes, blocks::or_write),
    row(&[0x8e, 0x12, F, F, F, F, F, F, F, F, F, F, F, F, 0x1f, 0], Touch::Writes, blocks::write_and_verify),
    row(&[0x8f, 0x12, F, F, F, F, F, F, F, F, F, F, F, F, 0x1f, 0], Touch::Reads, blocks::verify),
    row(&[0x90, 0x02, F, F, F, F, F, F, F, F, F, F, F, F, 0x1f, 0], Touch::Reads, blocks::prefetch),
    row(&[0x91, 0x06, F, F, F, F, F, F, F, F, F, F, F, F, 0x1f, 0], Touch::Writes, blocks::synchronize),
    row(&[0x93, 0x09, F, F, F, F, F, F, F, F, F, F, F, F, 0x1f, 0], Touch::Writes, provision::write_same),
    act(&[0x9e, 0x10, F, F, F, F, F, F, F, F, F, F, F, F, 0x01, 0], Touch::Nothing, reports::capacity_16),
    act(&[0x9e, 0x12, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0], Touch::Reads, provision::lba_status),
    row(&[0xa0, 0, F, 0, 0, 0, F, F, F, F, 0, 0], Touch::Nothing, reports::report_luns),
    act(&[0xa3, 0x0a, 0, 0, 0, 0, F, F, F, F, 0, 0], Touch::Nothing, reports::target_port_groups),
    act(&[0xa3, 0x0c, 0x87, F, F, F, F, F, F, F, 0, 0], Touch::Nothing, supported_opcodes),
    act(&[0xa3, 0x0d, 0x80, 0, 0, 0, F, F, F, F, 0, 0], Touch::Nothing, reports::supported_management),
    row(&[0xa8, 0x18, F, F, F, F, F, F, F, F, 0x1f, 0], Touch::Reads, blocks::read),
    row(&[0xaa, 0x18, F, F, F, F, F, F, F, F, 0x1f, 0], Touch::Writes, blocks::write),
    row(&[0xae, 0x12, F, F, F, F, F, F, F, F, 0x1f, 0], Touch::Writes, blocks::write_and_verify),
    row(&[0xaf, 0x12, F, F, F, F, F, F, F, F, 0x1f, 0], Touch::Reads, blocks::verify),
];

/// The kind of a command. Errors: there is none, or it has bits that are not known.
fn find(cdb: &[u8; CDB_BYTES]) -> std::result::Result<&'static CommandRow, Sense> {
    let mut of_opcode = COMMANDS.iter().filter(|row| row.opcode == cdb[0]).peekable();
    of_opcode.peek().ok_or(Sense::INVALID_OPCODE)?;
    let row = of_opcode.find(|row| row.action.is_none_or(|action| action == cdb[1] & 0x1f));
    let row = row.ok_or(Sense::INVALID_FIELD)?;
    let knows = |at: usize| match (at, row.action) {
        (0, _) => F,
        (1, Some(_)) => 0x1f,
        _ => row.usage.get(at).copied().unwrap_or(F),
    };
    match (0..CDB_BYTES).all(|at| cdb[at] & !knows(at) == 0) {
        true => Ok(row),
        false => Err(Sense::INVALID_FIELD),
    }
}

/// Counts a command that has come.
pub(crate) fn count(counters: &ClientCounters, pdu: &Pdu) {
    match pdu.head.0[32] {
        // reads, of what the initiator has room for
        0x08 | 0x28 | 0x88 | 0xa8 => counters.read(pdu.head.u32(20).into()),
        // writes, with and without a look at what is there
        0x0a | 0x2a | 0x2e | 0x89 | 0x8a | 0x8b | 0x8e | 0xaa | 0xae => counters.write(pdu.data.len() as u64),
        _ => counters.other(),
    }
}

/// Does a command. Errors: of the kind `Suspended` alone: it is to be done again.
pub(crate) fn perform(unit: &LogicalUnit, nexus: &Arc<Nexus>, pdu: &Pdu) -> Result<CommandAnswer> {
    let mut cdb = [0; CDB_BYTES];
    cdb.copy_from_slice(&pdu.head.0[32..48]);
    let command = ScsiCommand { unit, nexus, cdb, data: &pdu.data };
    match run(&command, &pdu.head) {
        Ok(done) => {
            Ok(CommandAnswer { data: done.data, wants: done.takes, aborts: done.aborts, ..CommandAnswer::default() })
        }
        Err(ScsiFailure::Suspended(error)) => Err(error),
        Err(ScsiFailure::Conflict) => Ok(CommandAnswer { status: RESERVATION_CONFLICT, ..CommandAnswer::default() }),
        Err(ScsiFailure::Sense(sense)) => Ok(refused(sense)),
    }
}

/// The answer to a command that fails.
pub(crate) fn refused(sense: Sense) -> CommandAnswer {
    CommandAnswer { status: CHECK_CONDITION, sense: sense.bytes(), ..CommandAnswer::default() }
}

fn run(command: &ScsiCommand<'_>, head: &PduHead) -> ScsiOutcome {
    let opcode = command.cdb[0];
    // INQUIRY, REPORT LUNS and REQUEST SENSE are answered at any unit, and whatever has happened
    let is_any = matches!(opcode, 0x12 | 0xa0 | 0x03);
    if head.lun() != Some(0) {
        return match opcode {
            0x12 if head.lun().is_some() => pages::inquiry_of_none(command),
            0xa0 => reports::report_luns(command),
            0x03 => Done::bytes(&Sense::NO_UNIT.bytes(), command.cdb[4].into()),
            _ => Err(Sense::NO_UNIT.into()),
        };
    }
    if let Some(attention) = if is_any { None } else { command.nexus.attention(command.unit)? } {
        return Err(attention.into());
    }
    // simple tasks, and those that are to be first, which they are
    if !matches!(head.flags() & 0x07, 0 | 1 | 3) {
        return Err(Sense::INVALID_MESSAGE.into());
    }
    let row = find(&command.cdb)?;
    // a unit that starts takes nothing from anybody
    let touch = if opcode == 0x1b && !command.has(4, 0x01) { Touch::Writes } else { row.touch };
    if command.unit.reservations()?.conflicts(&command.nexus.port, touch) {
        return Err(ScsiFailure::Conflict);
    }
    (row.run)(command)
}

/// Bytes that a command may read into memory.
pub(crate) fn memory_of(pdu: &Pdu) -> u64 {
    const LEAST: u64 = 64 << 10;
    let mut cdb = [0; CDB_BYTES];
    cdb.copy_from_slice(&pdu.head.0[32..48]);
    let reads = matches!(cdb[0], 0x08 | 0x28 | 0x2e | 0x2f | 0x88 | 0x89 | 0x8b | 0x8e | 0x8f | 0xa8 | 0xae | 0xaf);
    let range = blocks::BlockRange::parse(&cdb);
    if reads { range.blocks.min(blocks::BLOCKS_MAX).saturating_mul(512).max(LEAST) } else { LEAST }
}

/// Parses any command.
pub(crate) fn fuzz(pdu: &Pdu) {
    let mut cdb = [0; CDB_BYTES];
    cdb.copy_from_slice(&pdu.head.0[32..48]);
    if let Ok(row) = find(&cdb) {
        assert_eq!(row.opcode, cdb[0]);
    }
    let _ =
        (blocks::BlockRange::parse(&cdb), provision::parse_unmap(&pdu.data), persist::parse_parameters(&pdu.data, 0));
}

/// Tells of all of them, or of one.
fn supported_opcodes(command: &ScsiCommand<'_>) -> ScsiOutcome {
    let (has_times, most) = (command.has(2, 0x80), command.u32(6) as usize);
    let (opcode, action) = (command.cdb[3], command.u16(4));
    let mut of_opcode = COMMANDS.iter().filter(|row| row.opcode == opcode).peekable();
    let has_actions = of_opcode.peek().is_some_and(|row| row.action.is_some());
    let of_action = |row: &&CommandRow| row.action.is_some_and(|one| u16::from(one) == action);
    let bytes = match command.cdb[2] & 0x07 {
        0 => {
            let all: Vec<u8> = COMMANDS.iter().flat_map(|row| described(row, has_times)).collect();
            [&(all.len() as u32).to_be_bytes()[..], &all].concat()
        }
        1 if has_actions => return Err(Sense::INVALID_FIELD.into()),
        1 => one(of_opcode.next(), has_times),
        2 if !has_actions => return Err(Sense::INVALID_FIELD.into()),
        2 => one(of_opcode.find(of_action), has_times),
        3 if has_actions => one(of_opcode.find(of_action), has_times),
        3 => one(of_opcode.next().filter(|_| action == 0), has_times),
        _ => return Err(Sense::INVALID_FIELD.into()),
    };
    Done::bytes(&bytes, most)
}

fn described(row: &CommandRow, has_times: bool) -> Vec<u8> {
    let mut bytes = vec![row.opcode, 0, 0, row.action.unwrap_or(0), 0, 0, 0, row.usage.len() as u8];
    bytes[5] = if has_times { 0x02 } else { 0 } | u8::from(row.action.is_some());
    if has_times {
        bytes.extend([0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
    bytes
}

fn one(row: Option<&CommandRow>, has_times: bool) -> Vec<u8> {
    let Some(row) = row else { return vec![0, 1, 0, 0] };
    let mut bytes = vec![0, 3 | if has_times { 0x80 } else { 0 }];
    bytes.extend((row.usage.len() as u16).to_be_bytes());
    bytes.extend(row.usage);
    if has_times {
        bytes.extend([0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
    bytes
}
