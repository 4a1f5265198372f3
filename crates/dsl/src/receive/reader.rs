//! The records of a stream in their order, with what follows each; every sum is verified.

use std::io::Read;

use base::{AlignedBuf, Endian, Error, Kind, Result};
use codec::checksum::fletcher::fletcher4;
use format::ids::Guid;
use format::stream::{RECORD_SIZE, RecordFields, SUM_OFFSET, StreamBegin, StreamRecord, endian_of};

/// Bytes that are read at once of what is long.
const CHUNK_BYTES: usize = 1 << 20;

/// A record, and the bytes that follow it.
pub struct StreamPart {
    /// The record.
    pub record: StreamRecord,
    /// What follows it, as it is in the stream.
    pub payload: AlignedBuf,
}

/// Reads streams, one after the other.
pub struct StreamReader<'a> {
    from: &'a mut dyn Read,
    endian: Endian,
    sum: [u64; 4],
    bytes: u64,
}

impl<'a> StreamReader<'a> {
    /// Reads from `from`.
    pub fn new(from: &'a mut dyn Read) -> StreamReader<'a> {
        StreamReader { from, endian: Endian::Little, sum: [0; 4], bytes: 0 }
    }

    /// The byte order of the stream that was begun.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Bytes of it that were read.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads the BEGIN of a stream or package, and its packed list. `None` at the end of what there is, or at the END of
    /// a package. Errors: `Invalid` if it is none.
    pub fn begin(&mut self) -> Result<Option<(StreamBegin, Guid, Vec<u8>)>> {
        let mut head = [0; RECORD_SIZE];
        if !self.fill_or_end(&mut head)? {
            return Ok(None);
        }
        (self.sum, self.bytes) = ([0; 4], RECORD_SIZE as u64);
        // END of a package, in either byte order
        if head[..4] == 5u32.to_le_bytes() || head[..4] == 5u32.to_be_bytes() {
            return Ok(None);
        }
        self.endian = endian_of(&head)?;
        let record = StreamRecord::parse(&head, self.endian)?;
        let to_guid = record.to_guid;
        self.sum = fletcher4(self.sum, self.endian, &head);
        let list = self.payload(record.payload_len())?.to_vec();
        match record.fields {
            RecordFields::Begin(begin) => Ok(Some((begin, to_guid, list))),
            _ => Err(invalid("a stream that does not begin with BEGIN")),
        }
    }

    /// Reads the END behind the list of a package. Errors: `Checksum`.
    pub fn end_of_list(&mut self) -> Result<()> {
        let before = self.sum;
        let mut head = [0; RECORD_SIZE];
        self.fill(&mut head)?;
        match StreamRecord::parse(&head, self.endian)?.fields {
            RecordFields::End { sum } if sum == before => Ok(()),
            RecordFields::End { .. } => Err(wrong_sum()),
            _ => Err(invalid("no END behind the list of a package")),
        }
    }

    /// The next record; after END there is no more. Errors: `Checksum`; `Corrupt`; `Io`, also at an early end.
    pub fn record(&mut self) -> Result<StreamPart> {
        let before = self.sum;
        let mut head = [0; RECORD_SIZE];
        self.fill(&mut head)?;
        self.sum = fletcher4(self.sum, self.endian, &head[..SUM_OFFSET]);
        let record = StreamRecord::parse(&head, self.endian)?;
        // streams of long ago have no sums in records
        if record.sum != [0; 4] && record.sum != self.sum {
            return Err(wrong_sum());
        }
        if let RecordFields::End { sum } = record.fields
            && sum != before
        {
            return Err(wrong_sum());
        }
        if matches!(record.fields, RecordFields::Begin(_)) {
            return Err(invalid("BEGIN within a stream"));
        }
        self.sum = fletcher4(self.sum, self.endian, &head[SUM_OFFSET..]);
        let payload = self.payload(record.payload_len())?;
        Ok(StreamPart { record, payload })
    }

    /// What follows a record. It takes memory only for what really comes.
    fn payload(&mut self, len: usize) -> Result<AlignedBuf> {
        let mut buf = AlignedBuf::for_overwrite(len.min(CHUNK_BYTES));
        self.fill(&mut buf)?;
        while buf.len() < len {
            let mut more = AlignedBuf::for_overwrite((buf.len() * 2).min(len));
            let (old, new) = more.split_at_mut(buf.len());
            old.copy_from_slice(&buf);
            self.fill(new)?;
            buf = more;
        }
        self.sum = fletcher4(self.sum, self.endian, &buf);
        Ok(buf)
    }

    fn fill(&mut self, buf: &mut [u8]) -> Result<()> {
        match self.fill_or_end(buf)? || buf.is_empty() {
            true => Ok(()),
            false => Err(Error::new(Kind::Io, "incomplete stream")),
        }
    }

    /// False if there is nothing left at all.
    fn fill_or_end(&mut self, buf: &mut [u8]) -> Result<bool> {
        let mut at = 0;
        while at < buf.len() {
            match self.from.read(&mut buf[at..]) {
                Ok(0) if at == 0 => return Ok(false),
                Ok(0) => return Err(Error::new(Kind::Io, "incomplete stream")),
                Ok(n) => at += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        self.bytes = self.bytes.saturating_add(buf.len() as u64);
        Ok(true)
    }
}

fn wrong_sum() -> Error {
    Error::new(Kind::Checksum, "invalid stream (checksum mismatch)")
}

fn invalid(what: &'static str) -> Error {
    Error::new(Kind::Corrupt, format!("invalid stream: {what}"))
}
