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

use super::block::{MICRO, ZapBlockKind, turn, word};
use super::text::TextPrep;

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
        if ZapBlockKind::of(block) != ZapBlockKind::Micro || block.len() < SLOT_SIZE {
            return Err(Error::corrupt(format!("not a micro ZAP block: type {:#x}", word(block, 0))));
        }
        Ok(Micro { block })
    }

    /// What the hash starts from.
    pub fn salt(&self) -> u64 {
        word(self.block, 8)
    }

    /// The bits that say how names are compared.
    pub fn normflags(&self) -> u64 {
        word(self.block, 16)
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

    /// The slot of exactly that name.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        let is_named = |slot: &[u8]| {
            let rest = slot[NAME_AT..].strip_prefix(name);
            rest.is_some_and(|rest| rest.first().is_none_or(|&byte| byte == 0))
        };
        let slots = self.block.chunks_exact(SLOT_SIZE).skip(1);
        if name.is_empty() { None } else { slots.into_iter().position(is_named) }
    }

    /// All entries, in the order of their slots.
    pub fn entries(&self) -> impl Iterator<Item = MicroEntry<'a>> {
        let this = *self;
        (0..self.slots()).filter_map(move |slot| this.entry(slot))
    }
}

/// A micro ZAP that is changed; slots are those of [`Micro`].
#[derive(Debug)]
pub struct MicroMut<'a> {
    block: &'a mut [u8],
}

impl<'a> MicroMut<'a> {
    /// Most bytes of a name.
    pub const NAME_MAX: usize = SLOT_SIZE - NAME_AT - 1;

    /// Makes `block` an empty micro ZAP.
    pub fn init(block: &'a mut [u8], salt: u64, normflags: u64) -> MicroMut<'a> {
        block.fill(0);
        for (out, word) in block.chunks_exact_mut(8).zip([MICRO, salt, normflags]) {
            out.copy_from_slice(&word.to_le_bytes());
        }
        MicroMut { block }
    }

    /// Takes `block` as a micro ZAP.
    pub fn parse(block: &'a mut [u8]) -> Result<MicroMut<'a>> {
        Micro::parse(block)?;
        Ok(MicroMut { block })
    }

    /// Fills a slot, which has to be there.
    pub fn put(&mut self, slot: usize, entry: &MicroEntry<'_>) {
        assert!((1..=MicroMut::NAME_MAX).contains(&entry.name.len()), "a micro ZAP name of {} bytes", entry.name.len());
        let bytes = self.slot(slot);
        bytes.fill(0);
        bytes[..8].copy_from_slice(&entry.value.to_le_bytes());
        bytes[8..12].copy_from_slice(&entry.cd.to_le_bytes());
        bytes[NAME_AT..NAME_AT + entry.name.len()].copy_from_slice(entry.name);
    }

    /// Changes the value in a slot.
    pub fn set_value(&mut self, slot: usize, value: u64) {
        self.slot(slot)[..8].copy_from_slice(&value.to_le_bytes());
    }

    /// Frees a slot.
    pub fn clear(&mut self, slot: usize) {
        self.slot(slot).fill(0);
    }

    fn slot(&mut self, slot: usize) -> &mut [u8] {
        &mut self.block[SLOT_SIZE * (slot + 1)..][..SLOT_SIZE]
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
