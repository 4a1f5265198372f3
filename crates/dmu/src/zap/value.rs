//! Names and values as they come out of a table.

use std::fmt;

use base::Result;
use format::ids::{Guid, ObjectId};
use format::zap::{self, ZapLeaf};

/// An array of numbers of one width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZapValue {
    width: u8,
    /// The numbers, big-endian.
    raw: Vec<u8>,
}

/// The key of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZapKey {
    /// A name; any bytes but NUL.
    Bytes(Vec<u8>),
    /// An integer key.
    U64s(Vec<u64>),
}

/// An entry of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZapEntry {
    /// Its key.
    pub name: ZapKey,
    /// Its value.
    pub value: ZapValue,
    /// Stands for the place behind it in the listing.
    pub cookie: u64,
}

impl ZapValue {
    /// Numbers of `width` bytes each, which is 1, 2, 4 or 8; what does not fit in that is cut off.
    pub fn new(width: u8, numbers: &[u64]) -> ZapValue {
        assert!(matches!(width, 1 | 2 | 4 | 8), "numbers of {width} bytes");
        let raw = numbers.iter().flat_map(|number| number.to_be_bytes().into_iter().skip(8 - usize::from(width)));
        ZapValue { width, raw: raw.collect() }
    }

    /// Bytes.
    pub fn of_bytes(bytes: &[u8]) -> ZapValue {
        ZapValue { width: 1, raw: bytes.to_vec() }
    }

    /// A text, with a NUL at its end.
    pub fn of_text(text: &str) -> ZapValue {
        ZapValue { width: 1, raw: [text.as_bytes(), b"\0"].concat() }
    }

    /// The number, if that is all, and one of 64 bits.
    pub(super) fn single(&self) -> Option<u64> {
        if (self.width, self.len()) == (8, 1) { self.first_u64() } else { None }
    }

    /// A single 64-bit number.
    pub fn one(number: u64) -> ZapValue {
        ZapValue { width: 8, raw: number.to_be_bytes().to_vec() }
    }

    /// Guids, each a 64-bit number.
    pub fn of_guids(guids: &[Guid]) -> ZapValue {
        ZapValue { width: 8, raw: guids.iter().flat_map(|guid| guid.get().to_be_bytes()).collect() }
    }

    /// Its numbers as guids.
    pub fn guids(&self) -> Vec<Guid> {
        self.u64s().into_iter().map(Guid::new).collect()
    }

    pub(super) fn of_leaf(leaf: &ZapLeaf<'_>, entry: &zap::LeafEntry) -> Result<ZapValue> {
        Ok(ZapValue { width: entry.value_width, raw: leaf.value(entry)? })
    }

    /// Bytes of each number: 1, 2, 4 or 8.
    pub fn width(&self) -> u8 {
        self.width
    }

    /// Number of numbers.
    pub fn len(&self) -> usize {
        self.raw.len() / usize::from(self.width)
    }

    /// Whether there is no number.
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// The numbers.
    pub fn u64s(&self) -> Vec<u64> {
        self.iter().collect()
    }

    /// The first of its numbers, as that of an object.
    pub fn first_object(&self) -> Option<ObjectId> {
        self.first_u64().map(ObjectId::new)
    }

    /// The first number.
    pub fn first_u64(&self) -> Option<u64> {
        self.iter().next()
    }

    /// The bytes of a value of width 1; of wider ones the numbers in big-endian order.
    pub fn bytes(&self) -> &[u8] {
        &self.raw
    }

    /// A value of width 1 as text: up to its NUL, and with � for what is no UTF-8.
    pub fn text(&self) -> String {
        let len = self.raw.iter().position(|&byte| byte == 0).unwrap_or(self.raw.len());
        String::from_utf8_lossy(&self.raw[..len]).into_owned()
    }

    fn iter(&self) -> impl Iterator<Item = u64> {
        let whole = self.raw.chunks_exact(self.width.into());
        whole.map(|raw| raw.iter().fold(0, |number, &byte| (number << 8) | u64::from(byte)))
    }
}

impl ZapKey {
    /// The bytes of a name; none of an integer key.
    pub fn bytes(&self) -> &[u8] {
        match self {
            ZapKey::Bytes(bytes) => bytes,
            ZapKey::U64s(_) => &[],
        }
    }
}

impl fmt::Display for ZapKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ZapKey::Bytes(bytes) => f.write_str(&String::from_utf8_lossy(bytes)),
            ZapKey::U64s(numbers) => {
                let digits: Vec<String> = numbers.iter().map(|n| format!("{n:x}")).collect();
                f.write_str(&digits.join(":"))
            }
        }
    }
}
