//! A list in memory.

use base::{Error, Result};

use crate::ids::Guid;

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

impl Value {
    /// An array of guids.
    pub fn of_guids(guids: &[Guid]) -> Value {
        Value::U64s(guids.iter().map(|guid| guid.get()).collect())
    }
}

impl NvList {
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

    /// A guid, or an error that names what is missing.
    pub fn guid(&self, name: &str) -> Result<Guid> {
        self.u64(name).map(Guid::new)
    }

    /// A guid, if there is a number of that name.
    pub fn opt_guid(&self, name: &str) -> Option<Guid> {
        self.opt_u64(name).map(Guid::new)
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

    /// An array of guids, if there is one of numbers of that name.
    pub fn opt_guids(&self, name: &str) -> Option<Vec<Guid>> {
        self.opt_u64s(name).map(|guids| guids.iter().copied().map(Guid::new).collect())
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
