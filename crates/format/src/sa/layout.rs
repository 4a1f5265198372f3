//! Where the attributes of a buffer are, by its layout.

use std::ops::Range;

use base::{Endian, Error, Result};

pub(super) const LENGTHS_AT: usize = 6;

/// The attributes of one layout, in their order.
#[derive(Debug)]
pub(super) struct Layout {
    numbers: Vec<u16>,
    slots: Vec<AttrSlot>,
    /// How many have no fixed length.
    variable: usize,
    /// One that is not registered; then there are no slots.
    unregistered: Option<u16>,
}

/// The place of one attribute, by what is before it.
#[derive(Clone, Copy, Debug)]
struct AttrSlot {
    number: u16,
    /// Bytes; 0 if each buffer says how many.
    len: u16,
    /// Bytes of the values of fixed length before it, each padded to 8.
    fixed: usize,
    /// How many of no fixed length are before it.
    variable: usize,
}

impl Layout {
    /// `len_of` says how many bytes attributes have, 0 for those of no fixed length; `None` if they are not registered.
    pub(super) fn new(numbers: Vec<u16>, len_of: impl Fn(u16) -> Option<u16>) -> Layout {
        let (mut fixed, mut variable) = (0, 0);
        let place = |number: u16| {
            let len = len_of(number).ok_or(number)?;
            let slot = AttrSlot { number, len, fixed, variable };
            fixed += usize::from(len).next_multiple_of(8);
            variable += usize::from(len == 0);
            Ok(slot)
        };
        match numbers.iter().copied().map(place).collect::<Result<Vec<AttrSlot>, u16>>() {
            Ok(slots) => Layout { numbers, slots, variable, unregistered: None },
            Err(number) => Layout { numbers, slots: Vec::new(), variable: 0, unregistered: Some(number) },
        }
    }

    pub(super) fn numbers(&self) -> &[u16] {
        &self.numbers
    }

    /// How many attributes have no fixed length.
    pub(super) fn variable(&self) -> usize {
        self.variable
    }

    /// Errors: `Corrupt` if an attribute is not registered.
    pub(super) fn check(&self) -> Result<()> {
        self.unregistered.map_or(Ok(()), |number| Err(unregistered(number)))
    }

    /// Where the last value of a buffer ends, be that within it or not.
    pub(super) fn end(&self, bytes: &[u8], endian: Endian) -> usize {
        self.slots.last().map_or(0, |slot| self.range(slot, bytes, endian).end)
    }

    /// Where an attribute of a little-endian buffer lies.
    pub(super) fn find(&self, number: u16, bytes: &[u8]) -> Option<Range<usize>> {
        let at = self.numbers.iter().position(|other| *other == number)?;
        self.slots.get(at).map(|slot| self.range(slot, bytes, Endian::Little))
    }

    /// Where each attribute lies.
    pub(super) fn places(&self, bytes: &[u8], endian: Endian) -> impl Iterator<Item = (u16, Range<usize>)> {
        self.slots.iter().map(move |slot| (slot.number, self.range(slot, bytes, endian)))
    }

    fn range(&self, slot: &AttrSlot, bytes: &[u8], endian: Endian) -> Range<usize> {
        let len_at = |at: usize| {
            let raw = bytes.get(LENGTHS_AT + 2 * at..).and_then(|rest| rest.first_chunk());
            raw.map_or(0, |raw| usize::from(u16_of(endian, *raw)))
        };
        let variable: usize = (0..slot.variable).map(|at| len_at(at).next_multiple_of(8)).sum();
        let start = header_size(self.variable) + slot.fixed + variable;
        let len = if slot.len == 0 { len_at(slot.variable) } else { slot.len.into() };
        start..start + len
    }
}

/// Bytes before the first value.
pub(super) fn header_size(variable: usize) -> usize {
    (LENGTHS_AT + 2 * variable).next_multiple_of(8)
}

pub(super) fn u16_of(endian: Endian, raw: [u8; 2]) -> u16 {
    match endian {
        Endian::Little => u16::from_le_bytes(raw),
        Endian::Big => u16::from_be_bytes(raw),
    }
}

#[cold]
pub(super) fn unregistered(number: u16) -> Error {
    Error::corrupt(format!("SA attribute {number} is not registered"))
}
