//! Name-value lists: the self-describing trees that hold pool configurations, labels and history.
//!
//! Two encodings are on disk. XDR (RFC 4506, big-endian) is used in labels and the packed config
//! object; the native one is a memory image in the writer's byte order. Both start with
//!
//! ```text
//!  0         1         2   3   4          8
//! +---------+---------+-------+----------+--------+-------
//! | encoding| endian  |   0   | version  | nvflag | pairs ...
//! +---------+---------+-------+----------+--------+-------
//!   0 native  1 little          0          1 or 2
//!   1 XDR     0 big
//! ```
//!
//! and end with an empty pair. Lists nest; the decoder bounds the depth, and allocates no more than
//! a small multiple of the bytes it was given.
//!
//! Source: the published ZFS on-disk specification, chapter 1, and the behaviour of libnvpair.

mod native;
#[cfg(test)]
mod tests;
mod xdr;

use base::{Error, Result};

/// How deep lists may nest; real configurations need less than ten.
const DEPTH_MAX: usize = 32;

/// A list of named, typed values. Names are unique in lists that ZFS writes; of several, the last counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NvList {
    pairs: Vec<(String, Value)>,
}

/// A value with its on-disk type.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names are the documentation
pub enum Value {
    /// Present, with no value of its own.
    Flag,
    Bool(bool),
    Byte(u8),
    I8(i8),
    U8(u8),
    I16(i16),
    U16(u16),
    I32(i32),
    U32(u32),
    I64(i64),
    U64(u64),
    /// Nanoseconds.
    Hrtime(i64),
    Double(f64),
    Str(String),
    List(NvList),
    Bytes(Vec<u8>),
    Bools(Vec<bool>),
    I8s(Vec<i8>),
    U8s(Vec<u8>),
    I16s(Vec<i16>),
    U16s(Vec<u16>),
    I32s(Vec<i32>),
    U32s(Vec<u32>),
    I64s(Vec<i64>),
    U64s(Vec<u64>),
    Strs(Vec<String>),
    Lists(Vec<NvList>),
}

/// The type numbers on disk.
#[allow(missing_docs)]
mod code {
    pub const FLAG: u32 = 1;
    pub const BYTE: u32 = 2;
    pub const I16: u32 = 3;
    pub const U16: u32 = 4;
    pub const I32: u32 = 5;
    pub const U32: u32 = 6;
    pub const I64: u32 = 7;
    pub const U64: u32 = 8;
    pub const STR: u32 = 9;
    pub const BYTES: u32 = 10;
    pub const I16S: u32 = 11;
    pub const U16S: u32 = 12;
    pub const I32S: u32 = 13;
    pub const U32S: u32 = 14;
    pub const I64S: u32 = 15;
    pub const U64S: u32 = 16;
    pub const STRS: u32 = 17;
    pub const HRTIME: u32 = 18;
    pub const LIST: u32 = 19;
    pub const LISTS: u32 = 20;
    pub const BOOL: u32 = 21;
    pub const I8: u32 = 22;
    pub const U8: u32 = 23;
    pub const BOOLS: u32 = 24;
    pub const I8S: u32 = 25;
    pub const U8S: u32 = 26;
    pub const DOUBLE: u32 = 27;
}

impl NvList {
    /// Decodes a packed list of either encoding from the start of `bytes`; what follows its end is ignored.
    pub fn unpack(bytes: &[u8]) -> Result<NvList> {
        let (&[encoding, endian, _, _], rest) =
            bytes.split_first_chunk().ok_or_else(|| Error::corrupt("nvlist shorter than its header"))?;
        match (encoding, endian) {
            (1, _) => xdr::decode(rest),
            (0, 1) => native::decode(rest, base::Endian::Little),
            (0, 0) => native::decode(rest, base::Endian::Big),
            _ => Err(Error::corrupt(format!("nvlist of unknown encoding {encoding}, byte order {endian}"))),
        }
    }

    /// Encodes as XDR, header included.
    pub fn pack(&self) -> Vec<u8> {
        let mut out = vec![1, 1, 0, 0];
        xdr::encode(self, &mut out);
        out
    }

    /// An empty list.
    pub fn new() -> NvList {
        NvList::default()
    }

    /// Name and value of each pair, in the order on disk.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.pairs.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Whether there is no pair.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The value of that name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.pairs.iter().rev().find(|(n, _)| n == name).map(|(_, value)| value)
    }

    /// Whether there is a pair of that name.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Adds a pair, or replaces the value of that name.
    pub fn set(&mut self, name: &str, value: Value) {
        match self.pairs.iter_mut().find(|(n, _)| n == name) {
            Some((_, old)) => *old = value,
            None => self.pairs.push((name.to_owned(), value)),
        }
    }

    /// Removes the pair of that name.
    pub fn remove(&mut self, name: &str) {
        self.pairs.retain(|(n, _)| n != name);
    }

    /// An unsigned number, or an error that names what is missing.
    pub fn u64(&self, name: &str) -> Result<u64> {
        self.opt_u64(name).ok_or_else(|| self.lacks(name, "a number"))
    }

    /// An unsigned number, if there is one of that name.
    pub fn opt_u64(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Value::U64(n) => Some(*n),
            Value::U32(n) => Some((*n).into()),
            Value::U16(n) => Some((*n).into()),
            Value::U8(n) | Value::Byte(n) => Some((*n).into()),
            Value::Bool(b) => Some((*b).into()),
            _ => None,
        }
    }

    /// A string, or an error that names what is missing.
    pub fn str(&self, name: &str) -> Result<&str> {
        self.opt_str(name).ok_or_else(|| self.lacks(name, "a string"))
    }

    /// A string, if there is one of that name.
    pub fn opt_str(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::Str(s) => Some(s),
            _ => None,
        }
    }

    /// A nested list, or an error that names what is missing.
    pub fn list(&self, name: &str) -> Result<&NvList> {
        self.opt_list(name).ok_or_else(|| self.lacks(name, "a list"))
    }

    /// A nested list, if there is one of that name.
    pub fn opt_list(&self, name: &str) -> Option<&NvList> {
        match self.get(name)? {
            Value::List(list) => Some(list),
            _ => None,
        }
    }

    /// An array of lists, or an error that names what is missing.
    pub fn lists(&self, name: &str) -> Result<&[NvList]> {
        self.opt_lists(name).ok_or_else(|| self.lacks(name, "an array of lists"))
    }

    /// An array of lists, if there is one of that name.
    pub fn opt_lists(&self, name: &str) -> Option<&[NvList]> {
        match self.get(name)? {
            Value::Lists(lists) => Some(lists),
            _ => None,
        }
    }

    /// An array of unsigned numbers, if there is one of that name.
    pub fn opt_u64s(&self, name: &str) -> Option<&[u64]> {
        match self.get(name)? {
            Value::U64s(numbers) => Some(numbers),
            _ => None,
        }
    }

    fn lacks(&self, name: &str, what: &str) -> Error {
        let how = if self.has(name) { "is not" } else { "is missing, which should be" };
        Error::corrupt(format!("nvlist: '{name}' {how} {what}"))
    }
}

impl FromIterator<(String, Value)> for NvList {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(pairs: I) -> NvList {
        NvList { pairs: pairs.into_iter().collect() }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn too_deep() -> Error {
    Error::corrupt(format!("nvlist nested deeper than {DEPTH_MAX} levels"))
}

fn unknown_type(name: &str, kind: u32) -> Error {
    Error::corrupt(format!("nvlist: '{name}' is of unknown type {kind}"))
}
