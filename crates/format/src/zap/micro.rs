//! Micro ZAP: one block, one 64-bit value a name.
//!
//! ```text
//!  0       8      16         24      64                                      128
//! +-------+------+----------+-------+---------------------------------------+----
//! | type  | salt | normflags|   0   | value u64 | cd u32 | 0 u16 | name [50] | ...
//! +-------+------+----------+-------+---------------------------------------+----
//! ```
//!
//! A slot whose name is empty is free. Blocks are any multiple of 512 bytes up to 1 MiB.

use base::{Error, Result};

use super::text::TextPrep;
use super::{BlockKind, turn, word};

const SLOT_SIZE: usize = 64;
const NAME_AT: usize = 14;

/// A checked micro ZAP block.
#[derive(Clone, Copy, Debug)]
pub struct Micro<'a> {
    block: &'a [u8],
}

/// One entry of a micro ZAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MicroEntry<'a> {
    /// Name without its terminating NUL.
    pub name: &'a [u8],
    /// Value.
    pub value: u64,
    /// Tells entries of the same hash apart.
    pub cd: u32,
}

impl<'a> Micro<'a> {
    /// Takes `block` as a micro ZAP.
    pub fn parse(block: &'a [u8]) -> Result<Micro<'a>> {
        if BlockKind::of(block) != BlockKind::Micro || block.len() < SLOT_SIZE {
            return Err(Error::corrupt(format!("not a micro ZAP block: type {:#x}", word(block, 0))));
        }
        Ok(Micro { block })
    }

    /// What the hash starts from.
    pub fn salt(&self) -> u64 {
        word(self.block, 8)
    }

    /// How names are compared.
    pub fn prep(&self) -> TextPrep {
        TextPrep::from_flags(word(self.block, 16))
    }

    /// Slots in the block, used and free.
    pub fn slots(&self) -> usize {
        self.block.len() / SLOT_SIZE - 1
    }

    /// The entry in a slot, unless it is free or beyond the end.
    pub fn entry(&self, slot: usize) -> Option<MicroEntry<'a>> {
        let bytes = self.block.chunks_exact(SLOT_SIZE).nth(slot.checked_add(1)?)?;
        let (_, name) = bytes.split_at(NAME_AT);
        let len = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        // The upper half of the word at 8 is the start of the name, so this cuts off the rest.
        (len > 0).then(|| MicroEntry { name: &name[..len], value: word(bytes, 0), cd: word(bytes, 8) as u32 })
    }

    /// All entries, in the order of their slots.
    pub fn entries(&self) -> impl Iterator<Item = MicroEntry<'a>> {
        let this = *self;
        (0..self.slots()).filter_map(move |slot| this.entry(slot))
    }
}

pub(super) fn swap(block: &mut [u8]) {
    let mut slots = block.chunks_exact_mut(SLOT_SIZE);
    if let Some(head) = slots.next() {
        head.chunks_exact_mut(8).for_each(<[u8]>::reverse);
    }
    for slot in slots {
        turn::<8>(slot, 0);
        turn::<4>(slot, 8);
    }
}
