//! The bytes of a stream: records with their sums; frees, and redactions, that follow each other are joined.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Endian, Result};
use codec::checksum::fletcher::fletcher4;
use format::ids::Guid;
use format::stream::{RECORD_SIZE, RecordFields, SUM_OFFSET, StreamRecord};

/// Writes the records of one stream, or of the head of a package.
pub struct StreamWriter<'a> {
    /// `None` if only their bytes are counted.
    out: Option<&'a mut dyn Write>,
    sent: &'a AtomicU64,
    sum: [u64; 4],
    /// A free, or a redaction, that may grow.
    pending: Option<StreamRecord>,
}

impl<'a> StreamWriter<'a> {
    /// A writer to `out`; `sent` grows with what was written.
    pub fn new(out: &'a mut dyn Write, sent: &'a AtomicU64) -> StreamWriter<'a> {
        StreamWriter { out: Some(out), sent, sum: [0; 4], pending: None }
    }

    /// A writer that only counts, in `sent`.
    pub fn counting(sent: &'a AtomicU64) -> StreamWriter<'a> {
        StreamWriter { out: None, sent, sum: [0; 4], pending: None }
    }

    /// Whether what follows records is only counted.
    pub fn only_counts(&self) -> bool {
        self.out.is_none()
    }

    /// Counts a record of which only the length is known.
    pub fn count(&mut self, payload_len: u64) -> Result<()> {
        self.flush()?;
        self.sent.fetch_add(RECORD_SIZE as u64 + payload_len, Ordering::Relaxed);
        Ok(())
    }

    /// Writes a record, whose sum is computed here, and what follows it.
    pub fn record(&mut self, record: StreamRecord, payload: &[u8]) -> Result<()> {
        if self.joins(&record) {
            return Ok(());
        }
        self.flush()?;
        match record.fields {
            // one up to the end of its object cannot grow
            RecordFields::Free { len, .. } | RecordFields::Redact { len, .. } if len != u64::MAX => {
                self.pending = Some(record);
            }
            RecordFields::FreeObjects { .. } => self.pending = Some(record),
            _ => self.write(record, payload)?,
        }
        Ok(())
    }

    /// The sum of all that was written.
    pub fn sum(&self) -> [u64; 4] {
        self.sum
    }

    /// Writes the end.
    pub fn finish(&mut self, to_guid: Guid) -> Result<()> {
        self.flush()?;
        let sum = self.sum;
        self.write(StreamRecord { fields: RecordFields::End { sum }, to_guid, sum: [0; 4] }, &[])
    }

    /// Writes what was held back.
    pub fn flush(&mut self) -> Result<()> {
        match self.pending.take() {
            Some(record) => self.write(record, &[]),
            None => Ok(()),
        }
    }

    /// Takes a record that continues the pending one.
    fn joins(&mut self, record: &StreamRecord) -> bool {
        let Some(pending) = &mut self.pending else { return false };
        match (&mut pending.fields, &record.fields) {
            (
                RecordFields::Free { object, offset, len },
                RecordFields::Free { object: same, offset: next, len: more },
            )
            | (
                RecordFields::Redact { object, offset, len },
                RecordFields::Redact { object: same, offset: next, len: more },
            ) if *object == *same && offset.checked_add(*len) == Some(*next) => {
                *len = if *more == u64::MAX { u64::MAX } else { len.saturating_add(*more) };
                true
            }
            (RecordFields::FreeObjects { first, count }, RecordFields::FreeObjects { first: next, count: more })
                if first.plus(*count) == *next =>
            {
                *count = count.saturating_add(*more);
                true
            }
            _ => false,
        }
    }

    fn write(&mut self, mut record: StreamRecord, payload: &[u8]) -> Result<()> {
        self.sent.fetch_add((RECORD_SIZE + payload.len()) as u64, Ordering::Relaxed);
        let Some(out) = &mut self.out else { return Ok(()) };
        let head = record.to_bytes();
        self.sum = fletcher4(self.sum, Endian::Little, &head[..SUM_OFFSET]);
        record.sum = self.sum;
        let bytes = record.to_bytes();
        self.sum = fletcher4(self.sum, Endian::Little, &bytes[SUM_OFFSET..]);
        self.sum = fletcher4(self.sum, Endian::Little, payload);
        out.write_all(&bytes)?;
        Ok(out.write_all(payload)?)
    }
}
