//! Names of the files of a trace, which some have: a bounded table.

use std::collections::BTreeMap;

use crate::error::TraceError;
use crate::layout::{CENOTE_BYTES, CENOTE_MAGIC, at32, at64};

/// Names that are kept, bytes of one, and bytes of all.
pub(crate) const NAMES_MAX: usize = 1 << 16;
pub(crate) const NAME_BYTES_MAX: usize = 4096;
const ALL_BYTES_MAX: usize = 16 << 20;
/// In the place of an operation: the record is about a name.
const NAME_OP: u8 = 4;

/// The names of files, by dataset and object, as far as a trace has told them. Bytes that are no UTF-8 are shown as such.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceNames {
    names: BTreeMap<(u64, u64), String>,
    bytes: usize,
}

/// The head of a record with a name.
pub(crate) struct NameHead {
    stream: u64,
    object: u64,
    /// Bytes of the name, which follows.
    pub(crate) len: usize,
}

/// A name as a record of this program, which has another size than others.
///
/// ```text
///   "CT1" | 4 u8 | bytes u32 | 0 u64 | dataset u64 | object u64 | 0 u64 | so many bytes        little-endian
/// ```
pub(crate) fn record(stream: u64, object: u64, name: &str) -> Vec<u8> {
    let mut record = vec![0; CENOTE_BYTES];
    let most = name.len().min(NAME_BYTES_MAX);
    let len = (0..=most).rev().find(|len| name.is_char_boundary(*len)).unwrap_or(0);
    record[..3].copy_from_slice(&CENOTE_MAGIC);
    record[3] = NAME_OP;
    record[4..8].copy_from_slice(&(len as u32).to_le_bytes());
    record[16..24].copy_from_slice(&stream.to_le_bytes());
    record[24..32].copy_from_slice(&object.to_le_bytes());
    record.extend(&name.as_bytes()[..len]);
    record
}

impl NameHead {
    /// That of a record, if it is about a name. Errors: one that is too long.
    pub(crate) fn parse(record: &[u8]) -> Result<Option<NameHead>, TraceError> {
        if record.len() < CENOTE_BYTES || record[..3] != CENOTE_MAGIC || record[3] != NAME_OP {
            return Ok(None);
        }
        let len = at32(record, 4) as usize;
        if len > NAME_BYTES_MAX {
            return Err(TraceError::new(format!("a name of {len} bytes")));
        }
        Ok(Some(NameHead { stream: at64(record, 16), object: at64(record, 24), len }))
    }
}

impl TraceNames {
    /// The name of a file.
    pub fn get(&self, stream: u64, object: u64) -> Option<&str> {
        self.names.get(&(stream, object)).map(String::as_str)
    }

    /// All names, in the order of datasets and objects.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, &str)> {
        self.names.iter().map(|(&(stream, object), name)| (stream, object, name.as_str()))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// Keeps a name, in the place of an older one of that file. Those beyond the bounds are left out.
    pub(crate) fn add(&mut self, head: &NameHead, name: &[u8]) {
        let name = String::from_utf8_lossy(name).into_owned();
        let key = (head.stream, head.object);
        let before = self.names.get(&key).map_or(0, String::len);
        let is_room = before > 0 || self.names.contains_key(&key) || self.names.len() < NAMES_MAX;
        let bytes = self.bytes - before + name.len();
        if is_room && bytes <= ALL_BYTES_MAX {
            self.bytes = bytes;
            self.names.insert(key, name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded() {
        let mut names = TraceNames::default();
        let head = |object: u64| NameHead { stream: 1, object, len: 0 };
        (0..NAMES_MAX as u64 + 10).for_each(|object| names.add(&head(object), b"/a"));
        assert_eq!((names.count(), names.bytes), (NAMES_MAX, 2 * NAMES_MAX));
        names.add(&head(5), b"/\xff");
        assert_eq!((names.get(1, 5), names.get(1, 6), names.get(2, 6)), (Some("/\u{fffd}"), Some("/a"), None));
        let long = vec![b'x'; NAME_BYTES_MAX];
        (0..NAMES_MAX as u64).for_each(|object| names.add(&head(object), &long));
        assert!(names.bytes <= ALL_BYTES_MAX && names.bytes > ALL_BYTES_MAX - 2 * NAME_BYTES_MAX);
        assert_eq!(names.bytes, names.iter().map(|(.., name)| name.len()).sum::<usize>());
    }

    #[test]
    fn a_name_that_is_too_long_is_cut_off_or_refused() {
        let long = "ä".repeat(NAME_BYTES_MAX);
        let mut record = record(7, u64::MAX, &long);
        assert_eq!(record.len(), CENOTE_BYTES + NAME_BYTES_MAX);
        let head = NameHead::parse(&record).unwrap().unwrap();
        assert_eq!((head.stream, head.object, head.len), (7, u64::MAX, NAME_BYTES_MAX));
        record[4..8].copy_from_slice(&(NAME_BYTES_MAX as u32 + 1).to_le_bytes());
        assert!(NameHead::parse(&record).is_err());
        record[3] = 3;
        assert!(NameHead::parse(&record).unwrap().is_none());
    }
}
