//! Requests from lines.

use std::collections::HashMap;

use crate::error::TraceError;
use crate::format::TraceFormat;
use crate::request::{RawRequest, TraceOp};

/// Bytes of a block where a trace does not tell.
const BLOCK_BYTES: u64 = 4096;
/// Bytes of a sector.
pub(crate) const SECTOR_BYTES: u64 = 512;
/// Disks that a trace can name.
const NAMES_MAX: usize = 1 << 16;
/// Bytes of their names at most.
const NAME_BYTES_MAX: usize = 256;

/// Disks that a trace has named, by their numbers.
pub(crate) type DiskNames = HashMap<String, u64>;

/// A line; `None` if it is empty, or has the names of columns.
pub(crate) fn parse(
    format: TraceFormat,
    line: &[u8],
    is_first: bool,
    disks: &mut DiskNames,
) -> Result<Option<RawRequest>, TraceError> {
    let text = std::str::from_utf8(line).map_err(|_| TraceError::new("not text"))?.trim();
    if text.is_empty() || (is_first && is_header(text)) {
        return Ok(None);
    }
    let words: Vec<&str> = match text.contains(',') {
        true => text.split(',').map(str::trim).collect(),
        false => text.split_ascii_whitespace().collect(),
    };
    let fields = LineFields(&words);
    let request = match format {
        TraceFormat::Arc => {
            let (offset, bytes) = (fields.times(0, "block", BLOCK_BYTES)?, fields.times(1, "blocks", BLOCK_BYTES)?);
            RawRequest { time_ns: None, op: TraceOp::Read, stream: 0, object: 0, offset, bytes }
        }
        TraceFormat::Lines => {
            let bytes = if words.len() > 1 { fields.number(1, "bytes")? } else { BLOCK_BYTES };
            RawRequest {
                time_ns: None,
                op: TraceOp::Read,
                stream: 0,
                object: 0,
                offset: fields.number(0, "key")?,
                bytes,
            }
        }
        TraceFormat::Msr => RawRequest {
            time_ns: Some(fields.times(0, "timestamp", 100)?),
            op: fields.op(3, [["read", "r"], ["write", "w"]])?,
            stream: disk(disks, &words)?,
            object: 0,
            offset: fields.number(4, "offset")?,
            bytes: fields.number(5, "size")?,
        },
        TraceFormat::VscsiCsv => RawRequest {
            time_ns: Some(fields.times(1, "time", 1000)?),
            op: scsi_op(fields.number(2, "operation")?),
            stream: 0,
            object: 0,
            offset: fields.times(4, "block", SECTOR_BYTES)?,
            bytes: fields.number(3, "bytes")?,
        },
        TraceFormat::Alibaba => RawRequest {
            time_ns: Some(fields.times(4, "timestamp", 1000)?),
            op: fields.op(1, [["r", "read"], ["w", "write"]])?,
            stream: fields.number(0, "device")?,
            object: 0,
            offset: fields.number(2, "offset")?,
            bytes: fields.number(3, "length")?,
        },
        TraceFormat::Tencent => RawRequest {
            time_ns: Some(fields.times(0, "timestamp", 1_000_000_000)?),
            op: fields.op(3, [["0", "read"], ["1", "write"]])?,
            stream: fields.number(4, "volume")?,
            object: 0,
            offset: fields.times(1, "offset", SECTOR_BYTES)?,
            bytes: fields.times(2, "size", SECTOR_BYTES)?,
        },
        _ => return Err(TraceError::new("a format of records, not of lines")),
    };
    Ok(Some(request))
}

fn is_header(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '#' || first == '"')
}

/// What a SCSI command does.
pub(crate) fn scsi_op(code: u64) -> TraceOp {
    match code {
        0x08 | 0x28 | 0x88 | 0xa8 => TraceOp::Read,
        0x0a | 0x2a | 0x8a | 0xaa => TraceOp::Write,
        _ => TraceOp::Other,
    }
}

/// The number of a disk, which a host and a number name.
fn disk(disks: &mut DiskNames, words: &[&str]) -> Result<u64, TraceError> {
    let [Some(host), Some(disk)] = [words.get(1), words.get(2)] else { return Err(missing("disk")) };
    if host.len() + disk.len() > NAME_BYTES_MAX {
        return Err(TraceError::new("the name of the disk is too long"));
    }
    let name = format!("{host}.{disk}");
    if let Some(number) = disks.get(&name) {
        return Ok(*number);
    }
    let number = disks.len() as u64;
    if disks.len() >= NAMES_MAX {
        return Err(TraceError::new(format!("more than {NAMES_MAX} disks")));
    }
    disks.insert(name, number);
    Ok(number)
}

fn missing(what: &str) -> TraceError {
    TraceError::new(format!("there is no field for the {what}"))
}

/// The fields of a line.
struct LineFields<'a>(&'a [&'a str]);

impl LineFields<'_> {
    fn word(&self, at: usize, what: &str) -> Result<&str, TraceError> {
        self.0.get(at).copied().ok_or_else(|| missing(what))
    }

    fn number(&self, at: usize, what: &str) -> Result<u64, TraceError> {
        let word = self.word(at, what)?;
        word.parse().map_err(|_| {
            let shown: String = word.chars().take(32).map(|c| if c.is_control() { '?' } else { c }).collect();
            TraceError::new(format!("the {what} is no number below 2^64: {shown}"))
        })
    }

    fn times(&self, at: usize, what: &str, unit: u64) -> Result<u64, TraceError> {
        let number = self.number(at, what)?;
        number.checked_mul(unit).ok_or_else(|| TraceError::new(format!("the {what} is too large: {number}")))
    }

    fn op(&self, at: usize, names: [[&str; 2]; 2]) -> Result<TraceOp, TraceError> {
        let word = self.word(at, "operation")?;
        let is = |names: [&str; 2]| names.iter().any(|name| word.eq_ignore_ascii_case(name));
        match names.map(is) {
            [true, _] => Ok(TraceOp::Read),
            [_, true] => Ok(TraceOp::Write),
            _ => Err(TraceError::new("the operation is neither a read nor a write")),
        }
    }
}
