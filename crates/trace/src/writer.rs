//! Traces in another format, and those that this program records.

use std::io::Write;

use crate::binary::own;
use crate::error::TraceError;
use crate::format::TraceFormat;
use crate::request::{TraceOp, TraceRequest};

/// Bytes of a sector, and of a block of the ARC paper's traces.
const SECTOR_BYTES: u64 = 512;
const BLOCK_BYTES: u64 = 4096;

/// Writes requests, one line or record each.
pub struct TraceWriter<W> {
    format: TraceFormat,
    out: W,
    /// Requests that the format cannot say.
    left_out: u64,
}

impl<W: Write> TraceWriter<W> {
    /// Formats that can be written.
    pub const FORMATS: [TraceFormat; 7] = [
        TraceFormat::Alibaba,
        TraceFormat::Tencent,
        TraceFormat::Msr,
        TraceFormat::VscsiCsv,
        TraceFormat::Arc,
        TraceFormat::Lines,
        TraceFormat::Cenote,
    ];

    /// Writes in that format what a trace of format `from` has. Errors: that format cannot be written, or cannot say it.
    pub fn new(from: TraceFormat, format: TraceFormat, out: W) -> Result<TraceWriter<W>, TraceError> {
        if !Self::FORMATS.contains(&format) {
            return Err(TraceError::new(format!("traces of format {} are not written", format.name())));
        }
        if from.has_keys() != format.has_keys() {
            let (from, to) = (from.name(), format.name());
            return Err(TraceError::new(format!("one of {from} and {to} has keys, and the other one places")));
        }
        Ok(TraceWriter { format, out, left_out: 0 })
    }

    /// Writes a request. Errors: it cannot be written.
    pub fn write(&mut self, request: &TraceRequest) -> Result<(), TraceError> {
        if self.format == TraceFormat::Cenote {
            return Ok(self.out.write_all(&own(request))?);
        }
        let &TraceRequest { time_ns, op, stream, offset, bytes, .. } = request;
        let time_ns = time_ns.unwrap_or(0);
        let is_write = match op {
            TraceOp::Read => false,
            TraceOp::Write => true,
            TraceOp::Sync | TraceOp::Other => {
                self.left_out += 1;
                return Ok(());
            }
        };
        // whole units, all that it touches
        let units = |unit: u64| {
            let first = offset / unit;
            (first, offset.saturating_add(bytes).div_ceil(unit) - first)
        };
        let out = &mut self.out;
        match self.format {
            TraceFormat::Alibaba => {
                let op = if is_write { 'W' } else { 'R' };
                writeln!(out, "{stream},{op},{offset},{bytes},{}", time_ns / 1000)?;
            }
            TraceFormat::Tencent => {
                let (sector, sectors) = units(SECTOR_BYTES);
                let seconds = time_ns / 1_000_000_000;
                writeln!(out, "{seconds},{sector},{sectors},{},{stream}", u8::from(is_write))?;
            }
            TraceFormat::Msr => {
                let op = if is_write { "Write" } else { "Read" };
                writeln!(out, "{},volume,{stream},{op},{offset},{bytes},0", time_ns / 100)?;
            }
            TraceFormat::VscsiCsv => {
                let code = if is_write { 0x2a } else { 0x28 };
                writeln!(out, "1,{},{code},{bytes},{}", time_ns / 1000, offset / SECTOR_BYTES)?;
            }
            TraceFormat::Lines => writeln!(out, "{offset} {bytes}")?,
            _ => {
                let (block, blocks) = units(BLOCK_BYTES);
                writeln!(out, "{block} {blocks} 0 0")?;
            }
        }
        Ok(())
    }

    /// Ends the writing; how many requests were left out, as they neither read nor write. Errors: it cannot be written.
    pub fn finish(mut self) -> Result<u64, TraceError> {
        self.out.flush()?;
        Ok(self.left_out)
    }
}
