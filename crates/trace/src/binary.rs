//! Requests from records of bytes.

use crate::error::TraceError;
use crate::format::TraceFormat;
use crate::layout::{BLKTRACE_MAGIC, CENOTE_BYTES, CENOTE_MAGIC, at32, at64};
use crate::request::{RawRequest, TraceOp, TraceRequest};
use crate::text::{SECTOR_BYTES, scsi_op};

/// The version of blktrace's records that is known.
const BLKTRACE_VERSION: u32 = 7;
/// A request was queued, in the lower half of an action.
const BLKTRACE_QUEUED: u32 = 1;
/// Kinds of requests, in the upper half of an action: writes, messages, discards.
const BLKTRACE_WRITE: u32 = 1 << 17;
const BLKTRACE_NOTIFY: u32 = 1 << 26;
const BLKTRACE_DISCARD: u32 = 1 << 29;
/// Bytes of a block where a trace does not tell.
const BLOCK_BYTES: u64 = 4096;

fn times(number: u64, what: &str, unit: u64) -> Result<u64, TraceError> {
    number.checked_mul(unit).ok_or_else(|| TraceError::new(format!("the {what} is too large: {number}")))
}

/// A record of a fixed size.
pub(crate) fn parse(format: TraceFormat, record: &[u8]) -> Result<RawRequest, TraceError> {
    let vscsi = |code: u32, bytes: usize| -> Result<RawRequest, TraceError> {
        Ok(RawRequest {
            time_ns: Some(times(at64(record, 24), "time", 1000)?),
            op: scsi_op((code & 0xffff).into()),
            stream: 0,
            object: 0,
            offset: times(at64(record, 16), "block", SECTOR_BYTES)?,
            bytes: at32(record, bytes).into(),
        })
    };
    match format {
        TraceFormat::Vscsi1 => vscsi(at32(record, 12), 4),
        TraceFormat::Vscsi2 => vscsi(at32(record, 0), 8),
        TraceFormat::OracleGeneral => Ok(RawRequest {
            time_ns: Some(u64::from(at32(record, 0)) * 1_000_000_000),
            op: TraceOp::Read,
            stream: 0,
            object: 0,
            offset: at64(record, 4),
            bytes: at32(record, 12).into(),
        }),
        TraceFormat::Cenote => parse_own(record),
        _ => Ok(RawRequest {
            time_ns: None,
            op: TraceOp::Read,
            stream: 0,
            object: 0,
            offset: at32(record, 0).into(),
            bytes: BLOCK_BYTES,
        }),
    }
}

/// A record of this program: see [`own`].
fn parse_own(record: &[u8]) -> Result<RawRequest, TraceError> {
    let [first, second, third, op, ..] = *record else { return Err(TraceError::new("half a record")) };
    if [first, second, third] != CENOTE_MAGIC {
        return Err(TraceError::new("not a record of cenote trace record"));
    }
    let op = match op {
        0 => TraceOp::Read,
        1 => TraceOp::Write,
        2 => TraceOp::Sync,
        3 => TraceOp::Other,
        _ => return Err(TraceError::new(format!("an unknown operation: {op}"))),
    };
    let [time_ns, stream, object, offset] = [8, 16, 24, 32].map(|at| at64(record, at));
    Ok(RawRequest { time_ns: Some(time_ns), op, stream, object, offset, bytes: at32(record, 4).into() })
}

/// A request as a record of this program.
///
/// ```text
///   "CT1" | op u8 | bytes u32 | time u64, ns | dataset u64 | object u64 | offset u64        little-endian
/// ```
pub(crate) fn own(request: &TraceRequest) -> [u8; CENOTE_BYTES] {
    let mut record = [0; CENOTE_BYTES];
    record[..3].copy_from_slice(&CENOTE_MAGIC);
    record[3] = match request.op {
        TraceOp::Read => 0,
        TraceOp::Write => 1,
        TraceOp::Sync => 2,
        TraceOp::Other => 3,
    };
    let bytes = u32::try_from(request.bytes).unwrap_or(u32::MAX);
    record[4..8].copy_from_slice(&bytes.to_le_bytes());
    let words = [request.time_ns.unwrap_or(0), request.stream, request.object, request.offset];
    for (at, word) in (8..).step_by(8).zip(words) {
        record[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    record
}

/// A record of blktrace: how many bytes follow it, and the request that it tells of, if it does.
pub(crate) fn parse_blktrace(record: &[u8]) -> Result<(u16, Option<RawRequest>), TraceError> {
    let is_little = at32(record, 0) >> 8 == BLKTRACE_MAGIC;
    let number32 = |at: usize| if is_little { at32(record, at) } else { at32(record, at).swap_bytes() };
    let number64 = |at: usize| if is_little { at64(record, at) } else { at64(record, at).swap_bytes() };
    let magic = number32(0);
    if magic >> 8 != BLKTRACE_MAGIC {
        return Err(TraceError::new("not a record of blktrace"));
    }
    if magic & 0xff != BLKTRACE_VERSION {
        return Err(TraceError::new(format!("version {} of blktrace's records", magic & 0xff)));
    }
    let action = number32(28);
    let half = [record[46], record[47]];
    let more = if is_little { u16::from_le_bytes(half) } else { u16::from_be_bytes(half) };
    let bytes = number32(24);
    if action & 0xffff != BLKTRACE_QUEUED || action & BLKTRACE_NOTIFY != 0 || bytes == 0 {
        return Ok((more, None));
    }
    let op = match action {
        _ if action & BLKTRACE_DISCARD != 0 => TraceOp::Other,
        _ if action & BLKTRACE_WRITE != 0 => TraceOp::Write,
        _ => TraceOp::Read,
    };
    let offset = times(number64(16), "sector", SECTOR_BYTES)?;
    let (time_ns, stream) = (Some(number64(8)), number32(36).into());
    Ok((more, Some(RawRequest { time_ns, op, stream, object: 0, offset, bytes: bytes.into() })))
}
