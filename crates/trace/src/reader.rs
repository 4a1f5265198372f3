//! The requests of a trace, one after the other.

use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use crate::binary;
use crate::error::{TraceError, TracePlace};
use crate::format::TraceFormat;
use crate::layout::BLKTRACE_BYTES;
use crate::names::{NameHead, TraceNames};
use crate::request::{RawRequest, TraceRequest};
use crate::text::{self, DiskNames};

/// Bytes that a line may have.
const LINE_BYTES_MAX: usize = 4096;
/// Bytes by which a format is found.
const HEAD_BYTES: usize = 64 << 10;
/// Bytes that one request may read or write.
const REQUEST_BYTES_MAX: u64 = 1 << 30;
/// Bytes at the beginning of a trace that is compressed.
pub const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The binary logarithm of the memory that decompression may take.
const ZSTD_WINDOW_LOG: u32 = 27;

/// Where a trace goes backwards in time: these requests are given the time of the latest one before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backwards {
    /// How many do.
    pub count: u64,
    /// Where the first is.
    pub first: TracePlace,
    /// The farthest step back, in nanoseconds.
    pub most_ns: u64,
}

/// Reads a trace. It ends with the first error.
pub struct TraceReader {
    input: Box<dyn BufRead + Send>,
    format: TraceFormat,
    buffer: Vec<u8>,
    /// Lines or records before the next one, and their bytes.
    passed: u64,
    at: u64,
    disks: DiskNames,
    names: TraceNames,
    first_ns: Option<u64>,
    /// Since the first one.
    latest_ns: u64,
    backwards: Option<Backwards>,
    has_ended: bool,
}

impl TraceReader {
    /// Reads a file, or standard input if it is `-`, of this format, or of that which it looks like.
    /// Errors: it cannot be read, is empty, or looks like nothing that is known.
    pub fn open(path: &Path, format: Option<TraceFormat>) -> Result<TraceReader, TraceError> {
        match path.as_os_str() == "-" {
            true => TraceReader::new(Box::new(io::stdin()), format),
            false => TraceReader::new(Box::new(std::fs::File::open(path)?), format),
        }
    }

    /// Reads these bytes, which may be compressed by zstd. Errors: as of [`TraceReader::open`].
    pub fn new(mut input: Box<dyn Read + Send>, format: Option<TraceFormat>) -> Result<TraceReader, TraceError> {
        let (head, _) = read_head(&mut input, ZSTD_MAGIC.len())?;
        let is_packed = head == ZSTD_MAGIC;
        let mut input: Box<dyn Read + Send> = Box::new(Cursor::new(head).chain(input));
        if is_packed {
            let mut decoder = zstd::stream::read::Decoder::new(input)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG)?;
            input = Box::new(decoder);
        }
        let (head, failure) = read_head(&mut input, HEAD_BYTES)?;
        if let Some(failure) = failure {
            input = Box::new(FailedInput(failure));
        }
        if head.is_empty() {
            return Err(TraceError::new("the trace is empty"));
        }
        let found = format.or_else(|| TraceFormat::detect(&head));
        let format = found.ok_or_else(|| TraceError::new("looks like no format that is known; --format says which"))?;
        let input = Box::new(BufReader::with_capacity(HEAD_BYTES, Cursor::new(head).chain(input)));
        Ok(TraceReader {
            input,
            format,
            buffer: Vec::new(),
            passed: 0,
            at: 0,
            disks: DiskNames::new(),
            names: TraceNames::default(),
            first_ns: None,
            latest_ns: 0,
            backwards: None,
            has_ended: false,
        })
    }

    /// What it reads.
    pub fn format(&self) -> TraceFormat {
        self.format
    }

    /// The names of files that were told so far.
    pub fn names(&self) -> &TraceNames {
        &self.names
    }

    /// Whether time has gone backwards so far, and where.
    pub fn backwards(&self) -> Option<Backwards> {
        self.backwards
    }

    /// The line or record that was read last.
    pub fn place(&self) -> TracePlace {
        match self.is_binary() {
            true => TracePlace::Record(self.passed, self.at),
            false => TracePlace::Line(self.passed),
        }
    }

    fn is_binary(&self) -> bool {
        self.format.record_bytes().is_some() || self.format == TraceFormat::Blktrace
    }

    /// The next request as the trace has it; `Ok(None)` at the end.
    fn next_raw(&mut self) -> Result<Option<RawRequest>, TraceError> {
        loop {
            let found = match self.format.record_bytes() {
                Some(bytes) => match self.next_record(bytes)? {
                    true if self.take_name()? => None,
                    true => Some(binary::parse(self.format, &self.buffer)?),
                    false => return Ok(None),
                },
                None if self.is_binary() => match self.next_record(BLKTRACE_BYTES)? {
                    true => self.blktrace()?,
                    false => return Ok(None),
                },
                None => match self.next_line()? {
                    true => text::parse(self.format, &self.buffer, self.passed == 1, &mut self.disks)?,
                    false => return Ok(None),
                },
            };
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// Reads a line into the buffer; false at the end.
    fn next_line(&mut self) -> Result<bool, TraceError> {
        self.buffer.clear();
        self.passed += 1;
        let most = LINE_BYTES_MAX as u64 + 1;
        let read = self.input.by_ref().take(most).read_until(b'\n', &mut self.buffer)?;
        if read > LINE_BYTES_MAX {
            return Err(TraceError::new(format!("the line has more than {LINE_BYTES_MAX} bytes")));
        }
        Ok(read > 0)
    }

    /// Reads a record into the buffer; false at the end.
    fn next_record(&mut self, bytes: usize) -> Result<bool, TraceError> {
        self.at += self.buffer.len() as u64;
        self.passed += 1;
        self.buffer.clear();
        let read = self.input.by_ref().take(bytes as u64).read_to_end(&mut self.buffer)?;
        match read {
            0 => Ok(false),
            _ if read < bytes => {
                Err(TraceError::new(format!("the trace is cut off: {read} bytes of a record of {bytes}")))
            }
            _ => Ok(true),
        }
    }

    /// Whether the record in the buffer is about a name, which is kept.
    fn take_name(&mut self) -> Result<bool, TraceError> {
        let head = if self.format == TraceFormat::Cenote { NameHead::parse(&self.buffer)? } else { None };
        let Some(head) = head else { return Ok(false) };
        let mut name = Vec::new();
        self.input.by_ref().take(head.len as u64).read_to_end(&mut name)?;
        if name.len() < head.len {
            return Err(TraceError::new("the trace is cut off in a name"));
        }
        self.at += name.len() as u64;
        self.names.add(&head, &name);
        Ok(true)
    }

    /// The record of blktrace in the buffer; what follows it is passed.
    fn blktrace(&mut self) -> Result<Option<RawRequest>, TraceError> {
        let (more, found) = binary::parse_blktrace(&self.buffer)?;
        let passed = io::copy(&mut self.input.by_ref().take(more.into()), &mut io::sink())?;
        if passed < more.into() {
            return Err(TraceError::new("the trace is cut off behind a record"));
        }
        self.at += passed;
        Ok(found)
    }

    /// A request as it is told to others: its time since the first one, its end checked.
    fn finish(&mut self, raw: RawRequest) -> Result<TraceRequest, TraceError> {
        let RawRequest { time_ns, op, stream, object, offset, bytes } = raw;
        if !self.format.has_keys() && offset.checked_add(bytes).is_none() {
            return Err(TraceError::new("the request ends beyond 2^64 bytes"));
        }
        if op.has_bytes() && bytes > REQUEST_BYTES_MAX {
            return Err(TraceError::new(format!("a request of {bytes} bytes")));
        }
        let time_ns = time_ns.map(|now_ns| self.since_first(now_ns));
        Ok(TraceRequest { time_ns, op, stream, object, offset, bytes })
    }

    fn since_first(&mut self, now_ns: u64) -> u64 {
        let first_ns = *self.first_ns.get_or_insert(now_ns);
        let back_ns = (first_ns.saturating_add(self.latest_ns)).saturating_sub(now_ns);
        if back_ns > 0 {
            let fresh = Backwards { count: 0, first: self.place(), most_ns: 0 };
            let backwards = self.backwards.get_or_insert(fresh);
            backwards.count += 1;
            backwards.most_ns = backwards.most_ns.max(back_ns);
        } else {
            self.latest_ns = now_ns.saturating_sub(first_ns);
        }
        self.latest_ns
    }
}

impl Iterator for TraceReader {
    type Item = Result<TraceRequest, TraceError>;

    fn next(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        if self.has_ended {
            return None;
        }
        let next = self.next_raw().and_then(|raw| raw.map(|raw| self.finish(raw)).transpose());
        self.has_ended = !matches!(next, Ok(Some(_)));
        next.map_err(|error| error.at(self.place())).transpose()
    }
}

/// Up to so many bytes; if fewer could be read, also why. Errors: none could.
fn read_head(input: &mut dyn Read, bytes: usize) -> Result<(Vec<u8>, Option<io::Error>), TraceError> {
    let mut head = Vec::with_capacity(bytes);
    match input.take(bytes as u64).read_to_end(&mut head) {
        Err(error) if head.is_empty() => Err(error.into()),
        Err(error) => Ok((head, Some(error))),
        Ok(_) => Ok((head, None)),
    }
}

/// What could not be read before cannot be read again.
struct FailedInput(io::Error);

impl Read for FailedInput {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::new(self.0.kind(), self.0.to_string()))
    }
}
