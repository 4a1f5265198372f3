//! What requests do to a volume.

use std::sync::Arc;

use base::{Kind, Result};
use zvol::Zvol;

use crate::handshake::{ALLOCATION_ID, Agreed};
use crate::reply::{NbdAnswer, ReadPart};
use crate::wire::{DATA_BYTES_MAX, NbdCommand, NbdRequest, STATE_DATA, STATE_HOLE_AND_ZERO, errno, flag};

/// Reads of fewer bytes are not looked through for holes.
const HOLES_BYTES_MIN: u64 = 64 << 10;
/// Parts of one answer.
const PARTS_MAX: usize = 1024;

/// Does a request. Errors of the kind `Suspended` alone are errors here: it is to be done again.
pub(crate) fn run(agreed: &Agreed, request: &NbdRequest, data: &[u8]) -> Result<NbdAnswer> {
    let request = &match request.command {
        NbdCommand::BlockStatus => match request.range_in(data, ALLOCATION_ID) {
            Ok((request, true)) => request,
            _ => return Ok(NbdAnswer::Done(Err(errno::EINVAL))),
        },
        _ => *request,
    };
    let done = agreed.disk.volume().and_then(|volume| match check(&volume, request, agreed.has_states) {
        Err(error) => Ok(NbdAnswer::Done(Err(error))),
        Ok(()) => one(&volume, request, data, agreed.framing.has_chunks()),
    });
    match done {
        Err(error) if error.kind() == Kind::Suspended => Err(error),
        Err(error) => {
            tracing::warn!(command = ?request.command, offset = request.offset, "a request of NBD failed: {error}");
            Ok(NbdAnswer::Done(Err(number_of(error.kind()))))
        }
        done => done,
    }
}

/// Whether it can be done. Errors: those of the protocol.
fn check(volume: &Arc<Zvol>, request: &NbdRequest, has_states: bool) -> Result<(), u32> {
    use NbdCommand::{BlockStatus, Cache, Disconnect, Flush, Other, Read, Trim, Write, WriteZeroes};
    let allowed = match request.command {
        Read => flag::DF,
        // that it has data is said where all else may have some, too
        Write => flag::FUA | flag::PAYLOAD,
        Trim => flag::FUA,
        WriteZeroes => flag::FUA | flag::NO_HOLE | flag::FAST_ZERO,
        BlockStatus if request.data_len > 0 => flag::REQ_ONE | flag::PAYLOAD,
        BlockStatus => flag::REQ_ONE,
        Flush => 0,
        Cache | Disconnect => 0,
        Other(_) => return Err(errno::EINVAL),
    };
    // some clients set it for all that changes nothing, too
    if request.flags & !(allowed | flag::FUA) != 0 {
        return Err(errno::EINVAL);
    }
    let changes = matches!(request.command, Write | Trim | WriteZeroes);
    if changes && volume.is_read_only() {
        return Err(errno::EPERM);
    }
    if request.command == BlockStatus && (!has_states || request.len == 0) {
        return Err(errno::EINVAL);
    }
    if matches!(request.command, Read | Cache) && request.len > DATA_BYTES_MAX.into() {
        return Err(errno::EOVERFLOW);
    }
    let is_within = request.offset.checked_add(request.len).is_some_and(|end| end <= volume.size());
    match is_within || request.command == Flush {
        true => Ok(()),
        false if changes => Err(errno::ENOSPC),
        false => Err(errno::EINVAL),
    }
}

fn one(volume: &Arc<Zvol>, request: &NbdRequest, data: &[u8], has_chunks: bool) -> Result<NbdAnswer> {
    let (offset, len, lasts) = (request.offset, request.len, request.has(flag::FUA));
    match request.command {
        NbdCommand::Read => read(volume, request, has_chunks).map(NbdAnswer::Read),
        NbdCommand::Write => volume.write(offset, data.into(), lasts).map(|()| NbdAnswer::Done(Ok(()))),
        NbdCommand::Trim => volume.discard(offset, len, lasts).map(|()| NbdAnswer::Done(Ok(()))),
        NbdCommand::WriteZeroes => volume.zero(offset, len, lasts).map(|()| NbdAnswer::Done(Ok(()))),
        NbdCommand::Flush => volume.flush().map(|()| NbdAnswer::Done(Ok(()))),
        NbdCommand::Cache => volume.prefetch(offset, len).map(|()| NbdAnswer::Done(Ok(()))),
        NbdCommand::BlockStatus => states(volume, request).map(NbdAnswer::States),
        NbdCommand::Disconnect | NbdCommand::Other(_) => Ok(NbdAnswer::Done(Err(errno::EINVAL))),
    }
}

/// Bytes, with holes apart if the client can be told of them.
fn read(volume: &Zvol, request: &NbdRequest, has_chunks: bool) -> Result<Vec<ReadPart>> {
    let end = request.offset + request.len;
    if !has_chunks || request.has(flag::DF) || request.len < HOLES_BYTES_MIN {
        return Ok(vec![ReadPart::Data(request.offset, volume.read(request.offset, request.len as usize, false)?)]);
    }
    let (mut parts, mut at) = (Vec::new(), request.offset);
    while at < end {
        let data = volume.next_data(at..end)?.unwrap_or(end);
        if data > at && parts.len() < PARTS_MAX {
            parts.push(ReadPart::Hole(at, (data - at) as u32));
            at = data;
            continue;
        }
        let hole = if parts.len() < PARTS_MAX { volume.next_hole(at..end)? } else { end };
        // nothing if it has changed since it was looked for
        if hole > at {
            parts.push(ReadPart::Data(at, volume.read(at, (hole - at) as usize, false)?));
        }
        at = hole.max(at);
    }
    Ok(parts)
}

/// What `base:allocation` says of a range, from its beginning on.
fn states(volume: &Zvol, request: &NbdRequest) -> Result<Vec<(u64, u32)>> {
    let end = request.offset + request.len;
    let (mut states, mut at) = (Vec::new(), request.offset);
    while at < end && states.len() < PARTS_MAX {
        let data = volume.next_data(at..end)?.unwrap_or(end);
        let (until, state) = match data > at {
            true => (data, STATE_HOLE_AND_ZERO),
            false => (volume.next_hole(at..end)?, STATE_DATA),
        };
        // it has changed since it was looked for
        if until <= at {
            continue;
        }
        states.push((until - at, state));
        at = until;
        if request.has(flag::REQ_ONE) {
            break;
        }
    }
    Ok(states)
}

/// The error of the protocol.
pub(crate) fn number_of(kind: Kind) -> u32 {
    match kind {
        Kind::NoSpace | Kind::Quota => errno::ENOSPC,
        Kind::ReadOnly | Kind::Permission => errno::EPERM,
        Kind::Invalid | Kind::TooBig => errno::EINVAL,
        Kind::Unsupported => errno::ENOTSUP,
        Kind::Suspended | Kind::NotFound => errno::ESHUTDOWN,
        _ => errno::EIO,
    }
}
