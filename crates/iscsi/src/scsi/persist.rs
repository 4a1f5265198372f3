//! PERSISTENT RESERVE IN and OUT.

use base::Result;

use crate::scsi::command::{Done, ScsiCommand, ScsiOutcome};
use crate::scsi::reservations::{Registration, Reservations, kind};
use crate::scsi::sense::{ScsiFailure, Sense};
use crate::scsi::unit::ReservationsGuard;

/// Bytes of the parameters.
const PARAMETER_BYTES: usize = 24;
/// The types that there are, as bits.
const TYPES: [u8; 2] = [0xea, 0x01];
/// What can be said with a registration: for all ports of the target, and kept.
const ALL_PORTS: u8 = 0x04;
const KEPT: u8 = 0x01;

/// What PERSISTENT RESERVE OUT says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parameters {
    /// The key by which the port is registered, and another.
    key: u64,
    other_key: u64,
    flags: u8,
}

/// Keys u64 twice, 4 bytes, flags, 3 bytes.
pub(super) fn parse_parameters(data: &[u8], len: usize) -> Result<Parameters, Sense> {
    let bytes = data.get(..PARAMETER_BYTES).filter(|_| len == PARAMETER_BYTES).ok_or(Sense::PARAMETER_LENGTH)?;
    let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    Ok(Parameters { key: number(&bytes[..8]), other_key: number(&bytes[8..16]), flags: bytes[20] })
}

pub(super) fn read_keys(command: &ScsiCommand<'_>) -> ScsiOutcome {
    let now = command.unit.reservations()?;
    let keys: Vec<u8> = now.registrations.iter().flat_map(|one| one.key.to_be_bytes()).collect();
    listed(command, &now, &keys)
}

pub(super) fn read_reservation(command: &ScsiCommand<'_>) -> ScsiOutcome {
    let now = command.unit.reservations()?;
    let mut bytes = Vec::new();
    if now.kind != 0 {
        let holder = now.registrations.iter().find(|one| one.holds && !now.is_of_all());
        bytes.extend(holder.map_or(0, |one| one.key).to_be_bytes());
        bytes.extend([0, 0, 0, 0, 0, now.kind, 0, 0]);
    }
    listed(command, &now, &bytes)
}

pub(super) fn read_full_status(command: &ScsiCommand<'_>) -> ScsiOutcome {
    let now = command.unit.reservations()?;
    let mut bytes = Vec::new();
    for one in &now.registrations {
        let mut port = one.port.clone().into_bytes();
        port.resize((port.len() + 1).next_multiple_of(4), 0);
        let holds = now.holds(&one.port);
        bytes.extend(one.key.to_be_bytes());
        bytes.extend([0, 0, 0, 0, u8::from(holds), if holds { now.kind } else { 0 }, 0, 0, 0, 0, 0, 1]);
        bytes.extend((port.len() as u32 + 4).to_be_bytes());
        // of iSCSI, with the number of the session
        bytes.extend([0x45, 0]);
        bytes.extend((port.len() as u16).to_be_bytes());
        bytes.extend(port);
    }
    listed(command, &now, &bytes)
}

pub(super) fn report_capabilities(command: &ScsiCommand<'_>) -> ScsiOutcome {
    let now = command.unit.reservations()?;
    // they can be kept; the types are told; whether they are kept now
    let bytes = [0, 8, 0x01, 0x80 | u8::from(now.is_kept), TYPES[0], TYPES[1], 0, 0];
    Done::bytes(&bytes, command.u16(7).into())
}

fn listed(command: &ScsiCommand<'_>, now: &Reservations, list: &[u8]) -> ScsiOutcome {
    let head = [now.generation.to_be_bytes(), (list.len() as u32).to_be_bytes()].concat();
    Done::bytes(&[&head[..], list].concat(), command.u16(7).into())
}

/// Registers a port, gives it another key, or takes it off with key 0.
pub(super) fn register(command: &ScsiCommand<'_>) -> ScsiOutcome {
    let said = parse_parameters(command.data, command.u32(5) as usize)?;
    let (mut guard, port) = (command.unit.reservations()?, &command.nexus.port);
    if said.flags & !(ALL_PORTS | KEPT) != 0 || said.flags & ALL_PORTS != 0 {
        return Err(Sense::INVALID_PARAMETER.into());
    }
    let now = guard.of(port).map(|one| one.key);
    // REGISTER AND IGNORE EXISTING KEY
    let ignores = command.cdb[1] & 0x1f == 6;
    if !ignores && said.key != now.unwrap_or(0) {
        return Err(ScsiFailure::Conflict);
    }
    let mut new = guard.clone();
    new.generation = new.generation.wrapping_add(1);
    new.is_kept = said.flags & KEPT != 0;
    match said.other_key {
        0 if now.is_none() => return Done::took(PARAMETER_BYTES as u64),
        0 => {
            let had_others = new.kind;
            let has_ended = new.remove(|one| one.port == *port);
            store(command, &mut guard, new)?;
            // the others were let by it
            if has_ended && matches!(had_others, kind::WRITE_EXCLUSIVE_REGISTRANTS | kind::EXCLUSIVE_ACCESS_REGISTRANTS)
            {
                tell_registered(command, &guard, Sense::RESERVATIONS_RELEASED);
            }
        }
        key => {
            if !new.register(port, key) {
                return Err(Sense::TOO_MANY_REGISTRATIONS.into());
            }
            store(command, &mut guard, new)?;
        }
    }
    Done::took(PARAMETER_BYTES as u64)
}

pub(super) fn reserve(command: &ScsiCommand<'_>) -> ScsiOutcome {
    let (mut guard, _) = registered(command)?;
    let (port, kind) = (&command.nexus.port, kind_of(command)?);
    if guard.kind != 0 {
        return match guard.holds(port) && guard.kind == kind {
            true => Done::took(PARAMETER_BYTES as u64),
            false => Err(ScsiFailure::Conflict),
        };
    }
    let mut new = guard.clone();
    new.reserve(port, kind);
    store(command, &mut guard, new)?;
    Done::took(PARAMETER_BYTES as u64)
}

pub(super) fn release(command: &ScsiCommand<'_>) -> ScsiOutcome {
    let (mut guard, _) = registered(command)?;
    if !guard.holds(&command.nexus.port) {
        return Done::took(PARAMETER_BYTES as u64);
    }
    if command.cdb[2] != guard.kind {
        return Err(Sense::INVALID_RELEASE.into());
    }
    let (mut new, kind) = (guard.clone(), guard.kind);
    new.release();
    store(command, &mut guard, new)?;
    if !matches!(kind, kind::WRITE_EXCLUSIVE | kind::EXCLUSIVE_ACCESS) {
        tell_registered(command, &guard, Sense::RESERVATIONS_RELEASED);
    }
    Done::took(PARAMETER_BYTES as u64)
}

pub(super) fn clear(command: &ScsiCommand<'_>) -> ScsiOutcome {
    let (mut guard, _) = registered(command)?;
    let before = guard.clone();
    let new =
        Reservations { generation: before.generation.wrapping_add(1), is_kept: before.is_kept, ..Reservations::NONE };
    store(command, &mut guard, new)?;
    tell_registered(command, &before, Sense::RESERVATIONS_PREEMPTED);
    Done::took(PARAMETER_BYTES as u64)
}

/// Takes the reservation from others, and their registrations.
pub(super) fn preempt(command: &ScsiCommand<'_>) -> ScsiOutcome {
    let (mut guard, said) = registered(command)?;
    let (port, kind) = (&command.nexus.port, kind_of(command)?);
    let (before, key) = (guard.clone(), said.other_key);
    let is_holder = before.kind != 0
        && match before.is_of_all() {
            true => key == 0,
            false => before.registrations.iter().any(|one| one.holds && one.key == key),
        };
    let is_meant = |one: &Registration| match is_holder && before.is_of_all() {
        true => one.port != *port,
        false => one.key == key && (one.port != *port || !is_holder),
    };
    if !is_holder && key == 0 {
        return Err(Sense::INVALID_PARAMETER.into());
    }
    if !before.registrations.iter().any(|one| one.key == key) && !is_holder {
        return Err(ScsiFailure::Conflict);
    }
    let mut new = before.clone();
    new.generation = new.generation.wrapping_add(1);
    new.remove(is_meant);
    if is_holder {
        new.reserve(port, kind);
    }
    store(command, &mut guard, new)?;
    let gone: Vec<&str> =
        before.registrations.iter().filter(|one| is_meant(one) && one.port != *port).map(|one| &one.port[..]).collect();
    command.unit.tell(Sense::REGISTRATIONS_PREEMPTED, |one| gone.contains(&one));
    if is_holder && before.kind != kind {
        tell_registered(command, &guard, Sense::RESERVATIONS_RELEASED);
    }
    // PREEMPT AND ABORT
    let is_abort = command.cdb[1] & 0x1f == 5;
    let aborts = gone.into_iter().filter(|_| is_abort).map(str::to_owned).collect();
    Ok(Done { takes: PARAMETER_BYTES as u64, aborts, ..Done::default() })
}

/// The reservations, and what a registered port says. Errors: it is not registered, or not by that key.
fn registered<'a>(command: &ScsiCommand<'a>) -> Result<(ReservationsGuard<'a>, Parameters), ScsiFailure> {
    let said = parse_parameters(command.data, command.u32(5) as usize)?;
    let guard = command.unit.reservations()?;
    if guard.of(&command.nexus.port).is_none_or(|one| one.key != said.key) {
        return Err(ScsiFailure::Conflict);
    }
    Ok((guard, said))
}

/// The type of a reservation. Errors: there is no such type, or it is not for the whole unit.
fn kind_of(command: &ScsiCommand<'_>) -> Result<u8, ScsiFailure> {
    match command.cdb[2] {
        kind @ (1 | 3 | 5..=8) => Ok(kind),
        _ => Err(Sense::INVALID_FIELD.into()),
    }
}

/// They are so from now on; on disk first, if they are kept, or were.
fn store(command: &ScsiCommand<'_>, guard: &mut ReservationsGuard<'_>, new: Reservations) -> Result<(), ScsiFailure> {
    if new.is_kept {
        command.unit.lun.keep_reservations(&new.text())?;
    } else if guard.is_kept {
        command
            .unit
            .lun
            .keep_reservations(&Reservations { generation: new.generation, ..Reservations::NONE }.text())?;
    }
    guard.set(new);
    Ok(())
}

/// Tells all registered ports but that of the command.
fn tell_registered(command: &ScsiCommand<'_>, of: &Reservations, attention: (u8, u8)) {
    command.unit.tell(attention, |port| port != command.nexus.port && of.of(port).is_some());
}
