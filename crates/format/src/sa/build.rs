//! Making buffers: attributes in their order become a bonus buffer and, if they are too many, a spill block.
//!
//! ```text
//!  bonus buffer, all fit        | header | a | b | c |
//!
//!  bonus buffer, some do not    | header | a | b | 0 |  block pointer (128) |
//!  spill block                  | header | c | d | 0 .. to a multiple of 512 |
//! ```
//!
//! Attributes stay in the order they come in: what does not fit before the pointer of the spill block goes
//! there, and all that follows with it. A list of attribute numbers that no buffer had yet becomes a new
//! layout, which the caller adds to the layout table and to the [`Registry`].

use base::{Error, Kind, Result};

use super::MAGIC;
use super::layout::header_size;
use super::registry::{LAYOUTS_END, Registry};

/// Most bytes of a spill block.
const SPILL_MAX: usize = 128 << 10;

/// What [`build`] made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// The bonus buffer.
    pub bonus: Vec<u8>,
    /// The spill block: a multiple of 512 bytes.
    pub spill: Option<Vec<u8>>,
    /// Layouts that the buffers need and the registry lacks: number and attribute numbers.
    pub new_layouts: Vec<(u16, Vec<u16>)>,
}

/// Makes the buffers of a file of these attributes, given as number and little-endian bytes.
///
/// `bonus_max` is the size that a bonus buffer can have, `bonus_max_with_spill` what is left of it next to the
/// pointer of a spill block. Errors: `TooBig` if not even a spill block holds them, `Corrupt` if a number is
/// not registered, `NoSpace` if there can be no more layouts. Panics on a value that has not the length of its
/// attribute.
pub fn build(
    registry: &Registry,
    attrs: &[(u16, &[u8])],
    bonus_max: usize,
    bonus_max_with_spill: usize,
) -> Result<Built> {
    let mut new_layouts = Vec::new();
    let mut buffer = |attrs: &[(u16, &[u8])]| encode(registry, attrs, &mut new_layouts);
    let (bonus, spill) = if count_fitting(registry, attrs, bonus_max)? == attrs.len() {
        (buffer(attrs)?, None)
    } else {
        let (first, rest) = attrs.split_at(count_fitting(registry, attrs, bonus_max_with_spill)?);
        if count_fitting(registry, rest, SPILL_MAX)? < rest.len() {
            let bytes: usize = rest.iter().map(|(_, value)| value.len()).sum();
            return Err(Error::new(Kind::TooBig, format!("{bytes} bytes of attributes for a spill block")));
        }
        let (mut bonus, mut spill) = (buffer(first)?, buffer(rest)?);
        bonus.resize(bonus_max_with_spill, 0);
        spill.resize(spill.len().next_multiple_of(512), 0);
        (bonus, Some(spill))
    };
    Ok(Built { bonus, spill, new_layouts })
}

/// How many of the first attributes fit in a buffer of that size.
fn count_fitting(registry: &Registry, attrs: &[(u16, &[u8])], size: usize) -> Result<usize> {
    let (mut variable, mut values) = (0, 0usize);
    for (count, (number, value)) in attrs.iter().enumerate() {
        let len = usize::from(registry.registered(*number)?.len);
        if len != 0 && len != value.len() {
            let what = format!("SA attribute {number} is registered with {len} bytes, and has {}", value.len());
            return Err(Error::corrupt(what));
        }
        variable += usize::from(len == 0);
        values = values.next_multiple_of(8) + value.len();
        if header_size(variable) + values > size || value.len() > usize::from(u16::MAX) {
            return Ok(count);
        }
    }
    Ok(attrs.len())
}

fn encode(registry: &Registry, attrs: &[(u16, &[u8])], new: &mut Vec<(u16, Vec<u16>)>) -> Result<Vec<u8>> {
    let numbers: Vec<u16> = attrs.iter().map(|(number, _)| *number).collect();
    let layout = match registry.find_layout(&numbers) {
        Some(number) => number,
        None => {
            let number = registry.next_layout() + new.len() as u16;
            if number >= LAYOUTS_END {
                return Err(Error::new(Kind::NoSpace, "the file system has as many SA layouts as there can be"));
            }
            new.push((number, numbers));
            number
        }
    };
    let mut lengths = Vec::new();
    for (number, value) in attrs {
        if registry.registered(*number)?.len == 0 {
            lengths.extend_from_slice(&(value.len() as u16).to_le_bytes());
        }
    }
    let header = header_size(lengths.len() / 2);
    let mut bytes = MAGIC.to_le_bytes().to_vec();
    bytes.extend_from_slice(&((header as u16 / 8) << 10 | layout).to_le_bytes());
    bytes.extend_from_slice(&lengths);
    bytes.resize(header, 0);
    for (_, value) in attrs {
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.extend_from_slice(value);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::registry::FIRST_LAYOUT;
    use super::super::{Attr, Attrs};
    use super::*;

    fn fresh() -> Registry {
        let mut registry = Registry::new([], []).unwrap();
        registry.register_all();
        registry
    }

    fn number(attr: Attr) -> u16 {
        fresh().number(attr).unwrap()
    }

    #[test]
    fn numbers_end() {
        let last = [("X".to_owned(), 8 << 24 | 0xffff)];
        let mut registry = Registry::new(last, [(1 << 10, vec![1]), (u16::MAX, vec![2])]).unwrap();
        assert_eq!((registry.next_layout(), registry.find_layout(&[1])), (FIRST_LAYOUT, None));
        let new = registry.register_all();
        assert!(new.len() < 22 && new.iter().all(|(name, _)| *name != "ZPL_PROJID"));
        assert_eq!(registry.name(0), Some("ZPL_ATIME"));
    }

    #[test]
    fn a_new_file_system_registers_everything_once() {
        let mut registry = Registry::new([], []).unwrap();
        assert_eq!(registry.number(Attr::Projid), None);
        let new = registry.register_all();
        assert_eq!((new.len(), new[0], new[17]), (22, ("ZPL_ATIME", 16 << 24), ("ZPL_SYMLINK", 3 << 16 | 17)));
        assert!(registry.register_all().is_empty());
        assert_eq!((registry.number(Attr::Projid), registry.number(Attr::DaclAces)), (Some(21), Some(19)));
        // one of an older version has numbers of its own, and lacks the project
        let old = new[..21]
            .iter()
            .map(|&(name, value)| (name.to_owned(), if value as u16 == 20 { value + 5 } else { value }));
        let mut registry = Registry::new(old, []).unwrap();
        assert_eq!(registry.number(Attr::Dxattr), Some(25));
        assert_eq!(registry.register_all(), [("ZPL_PROJID", 8 << 24 | 26)]);
    }

    #[test]
    fn what_fits_needs_no_spill_block() {
        let mut registry = fresh();
        let (mode, link, aces) = (number(Attr::Mode), number(Attr::Symlink), number(Attr::DaclAces));
        let attrs = [(mode, &[1; 8][..]), (link, b"target"), (aces, &[2; 24]), (number(Attr::Atime), &[3; 16])];
        let built = build(&registry, &attrs, 320, 192).unwrap();
        assert_eq!(built.new_layouts, [(2, vec![mode, link, aces, number(Attr::Atime)])]);
        assert_eq!((built.spill, built.bonus.len()), (None, 16 + 8 + 8 + 24 + 16));
        for (number, attrs) in built.new_layouts {
            registry.add_layout(number, attrs);
        }
        let parsed = Attrs::parse(&built.bonus, &registry).unwrap();
        assert_eq!(parsed.iter().collect::<Vec<_>>(), attrs);
        let again = build(&registry, &attrs, 320, 192).unwrap();
        assert_eq!((again.bonus, again.new_layouts), (built.bonus, vec![]));
    }

    #[test]
    fn what_does_not_fit_spills() {
        let dxattr = number(Attr::Dxattr);
        let (mode, size) = (number(Attr::Mode), number(Attr::Size));
        for len in [0, 1, 100, 168, 169, 175, 176, 177, 295, 296, 297, 304, 305, 5000, 65535] {
            let mut registry = fresh();
            registry.add_layout(7, vec![mode]);
            let value = vec![5; len];
            let attrs = [(mode, &[1; 8][..]), (dxattr, &value), (size, &[9; 8])];
            let built = build(&registry, &attrs, 320, 192).unwrap();
            assert_eq!(built.spill.is_some(), 16 + len.next_multiple_of(8) + 8 > 320, "{len}");
            built.new_layouts.iter().for_each(|(number, attrs)| registry.add_layout(*number, attrs.clone()));
            let bonus = Attrs::parse(&built.bonus, &registry).unwrap();
            let spill = built.spill.as_ref().map(|bytes| Attrs::parse(bytes, &registry).unwrap());
            let both: Vec<_> = bonus.iter().chain(spill.iter().flat_map(|spill| spill.iter())).collect();
            assert_eq!(both, attrs, "{len}");
            if let (Some(spill), Some(bytes)) = (spill, &built.spill) {
                assert_eq!((built.bonus.len(), bonus.layout(), spill.layout()), (192, 7, 8));
                assert!(bytes.len().is_multiple_of(512));
            }
        }
    }

    #[test]
    fn limits() {
        let registry = fresh();
        let long = vec![0; 65536];
        let too_big = build(&registry, &[(number(Attr::Dxattr), &long)], 320, 192).unwrap_err();
        assert_eq!(too_big.kind(), Kind::TooBig);
        assert!(build(&registry, &[(99, &[])], 320, 192).is_err());
        let mut full = fresh();
        full.add_layout(LAYOUTS_END - 1, vec![1]);
        let error = build(&full, &[(number(Attr::Mode), &[0; 8])], 320, 192).unwrap_err();
        assert_eq!(error.kind(), Kind::NoSpace);
        let empty = build(&full, &[], 320, 192).unwrap();
        assert_eq!(Attrs::parse(&empty.bonus, &full).unwrap().iter().count(), 0);
    }
}
