//! System attributes (SA): typed values packed into bonus buffers and spill blocks.
//!
//! A buffer does not say what is in it; it names a layout, which is a list of attribute numbers kept
//! once for the whole file system, next to a registry of each attribute's name and length.
//!
//! ```text
//!  0          4                    6                           8 (or next multiple of 8)
//! +----------+--------------------+---------------------------+---------------------+-----
//! | magic u32| hdr size | layout  | lengths of the attributes | first value, padded | ...
//! |          |  6 bits  | 10 bits | of no fixed length, u16   | to 8 bytes          |
//! +----------+--------------------+---------------------------+---------------------+-----
//! ```
//!
//! Which bytes form a number depends on the attribute, so buffers of foreign byte order cannot be
//! turned when they are read like other blocks; [`Attrs::parse`] does it.
//!
//! Invariant: every value lies inside the buffer it was found in.
//!
//! Source: the behaviour of OpenZFS (the published specification predates system attributes).

mod build;
mod layout;
mod registry;
mod table;

use std::borrow::Cow;
use std::sync::Arc;

use base::{Endian, Error, Result};

use crate::object_type::ObjectType;
use crate::swap;
use layout::{LENGTHS_AT, Layout};

pub use build::{Built, build};
pub use registry::Registry;
pub use table::{Attr, Definition, Swap, ZPL_ATTRS};

const MAGIC: u32 = 0x2f_505a;

/// The attributes in one buffer, in little-endian order.
#[derive(Clone, Debug)]
pub struct Attrs<'a> {
    bytes: Cow<'a, [u8]>,
    number: u16,
    /// `None` of a buffer without attributes.
    layout: Option<Arc<Layout>>,
}

impl<'a> Attrs<'a> {
    /// Looks whether a bonus buffer or spill block of either byte order has all that its layout says.
    pub fn parse(bytes: &'a [u8], registry: &Registry) -> Result<Attrs<'a>> {
        let Some((head, _)) = bytes.split_first_chunk::<LENGTHS_AT>() else {
            return Err(Error::corrupt(format!("SA buffer of {} bytes", bytes.len())));
        };
        let [magic @ .., info_0, info_1] = *head;
        if magic == [0; 4] {
            // A dnode that was given no attributes yet.
            return Ok(Attrs { bytes: Cow::Borrowed(bytes), number: 0, layout: None });
        }
        let endian = match (u32::from_le_bytes(magic), u32::from_be_bytes(magic)) {
            (MAGIC, _) => Endian::Little,
            (_, MAGIC) => Endian::Big,
            (other, _) => return Err(Error::corrupt(format!("SA buffer with magic {other:#x}"))),
        };
        let number = layout::u16_of(endian, [info_0, info_1]) & 0x3ff;
        let layout = registry.layout(number)?;
        if layout.as_ref().is_some_and(|layout| layout.end(bytes, endian) > bytes.len()) {
            return Err(Error::corrupt(format!("SA attributes end beyond the {} bytes of their buffer", bytes.len())));
        }
        let bytes = match endian {
            Endian::Little => Cow::Borrowed(bytes),
            Endian::Big => Cow::Owned(layout.as_ref().map_or_else(Vec::new, |layout| turned(bytes, registry, layout))),
        };
        Ok(Attrs { bytes, number, layout })
    }

    /// Number of the layout.
    pub fn layout(&self) -> u16 {
        self.number
    }

    /// The bytes of an attribute, if it is in this buffer.
    pub fn get(&self, registry: &Registry, attr: Attr) -> Option<&[u8]> {
        let place = self.layout.as_ref()?.find(registry.number(attr)?, &self.bytes)?;
        self.bytes.get(place)
    }

    /// Number and bytes of each attribute, in the order of the layout.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &[u8])> {
        let places = self.layout.iter().flat_map(|layout| layout.places(&self.bytes, Endian::Little));
        places.filter_map(|(number, range)| Some((number, self.bytes.get(range)?)))
    }
}

fn turned(bytes: &[u8], registry: &Registry, layout: &Layout) -> Vec<u8> {
    let mut turned = bytes.to_vec();
    for (number, range) in layout.places(bytes, Endian::Big) {
        let Some(value) = turned.get_mut(range) else { continue };
        match registry.find(number).map_or(Swap::Bytes, |attr| attr.swap) {
            Swap::Words => swap::words(value),
            Swap::U32 => value.chunks_exact_mut(4).for_each(<[u8]>::reverse),
            Swap::U16 => value.chunks_exact_mut(2).for_each(<[u8]>::reverse),
            Swap::Bytes => {}
            Swap::Acl => swap::block(ObjectType::ACL, value),
        }
    }
    turned[LENGTHS_AT..].chunks_exact_mut(2).take(layout.variable()).for_each(<[u8]>::reverse);
    turned
}

/// Reads `bytes` as a buffer whose layout is made of what follows its first 64 bytes; for tests with
/// hostile bytes.
pub fn fuzz(bytes: &[u8]) {
    let (buffer, tables) = bytes.split_at(bytes.len().min(64));
    let entries = tables.chunks_exact(8).map(|raw| raw.iter().fold(0, |n, &byte| n << 8 | u64::from(byte)));
    let layout = entries.clone().map(|value| value as u16).collect();
    let named =
        entries.enumerate().map(|(i, value)| (ZPL_ATTRS[i % ZPL_ATTRS.len()].name.to_owned(), value & !0xf8_0000));
    let Ok(registry) = Registry::new(named, [(2, layout)]) else { return };
    if let Ok(attrs) = Attrs::parse(buffer, &registry) {
        assert!(attrs.iter().all(|(_, value)| value.len() <= buffer.len()));
        let _ = attrs.get(&registry, Attr::Dxattr);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mode, Size and Links are fixed; Symlink (20) and DaclAces (17) have no fixed length.
    fn registry() -> Registry {
        let entry = |number: u64, swap: u64, len: u64| len << 24 | swap << 16 | number;
        let registry = [
            ("ZPL_SYMLINK".to_owned(), entry(20, 3, 0)),
            ("ZPL_DACL_ACES".to_owned(), entry(17, 4, 0)),
            ("ZPL_DACL_COUNT".to_owned(), entry(16, 0, 8)),
        ];
        Registry::new(registry, [(2, vec![5, 20, 6, 17, 8]), (3, vec![99])]).unwrap()
    }

    fn buffer(big: bool) -> Vec<u8> {
        let put = |n: u64, width: usize| {
            let mut raw = n.to_le_bytes()[..width].to_vec();
            if big {
                raw.reverse();
            }
            raw
        };
        let ace = [put(1, 2), put(0, 2), put(7, 4), put(501, 8)].concat();
        let head = [put(MAGIC.into(), 4), put(2 << 10 | 2, 2), put(5, 2), put(16, 2), vec![0; 6]].concat();
        let values = [put(0o100644, 8), b"a/b/c\0\0\0".to_vec(), put(1 << 40, 8), ace, put(3, 8)].concat();
        [head, values].concat()
    }

    #[test]
    fn both_byte_orders() {
        let registry = registry();
        for big in [false, true] {
            let bytes = buffer(big);
            let attrs = Attrs::parse(&bytes, &registry).unwrap();
            assert_eq!(attrs.get(&registry, Attr::Symlink).unwrap(), b"a/b/c");
            assert_eq!(attrs.get(&registry, Attr::Size).unwrap(), (1u64 << 40).to_le_bytes());
            assert_eq!(attrs.get(&registry, Attr::Links).unwrap(), 3u64.to_le_bytes());
            assert_eq!(attrs.get(&registry, Attr::DaclAces).unwrap()[8..], 501u64.to_le_bytes());
            assert_eq!(attrs.get(&registry, Attr::Mtime), None);
            assert_eq!(attrs.get(&registry, Attr::Projid), None);
            assert_eq!((attrs.layout(), attrs.iter().count()), (2, 5));
            assert_eq!(registry.name(20), Some("ZPL_SYMLINK"));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let registry = registry();
        for (at, byte) in [(0, 1), (4, 7), (4, 3), (6, 200), (8, 200), (7, 0xff)] {
            let mut bytes = buffer(false);
            bytes[at] = byte;
            assert!(Attrs::parse(&bytes, &registry).is_err(), "byte {at} = {byte}");
        }
        let whole = buffer(false);
        assert!((0..whole.len()).all(|len| Attrs::parse(&whole[..len], &registry).is_err()));
        assert_eq!(Attrs::parse(&[0; 8], &registry).unwrap().iter().count(), 0);
        assert!(Registry::new([("X".to_owned(), 9 << 16)], []).is_err());
    }

    #[test]
    fn any_bytes_at_all() {
        let mut bytes = buffer(false);
        bytes.truncate(64);
        bytes.extend((0..64u8).flat_map(|i| [0, 0, 0, 0, i % 3, i % 4, 0, i]));
        for at in 0..bytes.len() {
            for value in [0, 1, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] = value;
                fuzz(&bytes);
            }
        }
    }
}
