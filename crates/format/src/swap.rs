//! Turning a block of foreign byte order, in place, right after it was read.
//!
//! Which bytes form a number depends on the object type of the block. Where a structure says itself
//! how it continues (dnodes, ACLs), what is out of bounds is left alone: the parser refuses it later.

use crate::blkptr::BlkPtr;
use crate::dnode::SLOT_SIZE;
use crate::object_type::{ObjectType, SwapClass};
use crate::zap;

/// Turns a whole data block of that type. Blocks of a level above 0 hold block pointers: see [`words`].
pub fn block(object_type: ObjectType, bytes: &mut [u8]) {
    if let Some(class) = object_type.swap_class() {
        by_class(class, bytes);
    }
}

/// Turns an array of 64-bit numbers, such as block pointers.
pub fn words(bytes: &mut [u8]) {
    bytes.chunks_exact_mut(8).for_each(<[u8]>::reverse);
}

fn by_class(class: SwapClass, bytes: &mut [u8]) {
    match class {
        SwapClass::U8 => {}
        SwapClass::U16 => bytes.chunks_exact_mut(2).for_each(<[u8]>::reverse),
        SwapClass::U32 => bytes.chunks_exact_mut(4).for_each(<[u8]>::reverse),
        SwapClass::U64 => words(bytes),
        SwapClass::Zap => zap::swap(bytes),
        SwapClass::Dnode => dnodes(bytes),
        SwapClass::Objset => objset(bytes),
        SwapClass::Znode => znode(bytes),
        SwapClass::OldAcl => bytes.chunks_exact_mut(12).for_each(old_ace),
        SwapClass::Acl => acl(bytes),
    }
}

/// Turns the number of `N` bytes at `at`, if it is there.
fn number<const N: usize>(bytes: &mut [u8], at: usize) {
    if let Some(raw) = bytes.get_mut(at..at + N) {
        raw.reverse();
    }
}

fn dnodes(bytes: &mut [u8]) {
    let mut at = 0;
    while at < bytes.len() {
        at += dnode(&mut bytes[at..]) * SLOT_SIZE;
    }
}

/// Turns one dnode and returns how many slots it takes.
fn dnode(bytes: &mut [u8]) -> usize {
    const CORE_SIZE: usize = 64;
    let Some(core) = bytes.get_mut(..CORE_SIZE) else { return 1 };
    let object_type = ObjectType(core[0]);
    if object_type == ObjectType::NONE {
        return 1;
    }
    number::<2>(core, 8);
    number::<2>(core, 10);
    words(&mut core[16..]);
    let bonus_type = ObjectType(core[4]);
    let bonus_size = usize::from(u16::from_le_bytes([core[10], core[11]]));
    let (pointers, slots, has_spill) = (usize::from(core[3]), usize::from(core[12]) + 1, core[7] & 4 != 0);
    let size = (slots * SLOT_SIZE).min(bytes.len());
    let bonus_at = CORE_SIZE + pointers * BlkPtr::SIZE;
    if let Some(raw) = bytes.get_mut(CORE_SIZE..bonus_at) {
        words(raw);
    }
    if has_spill && size >= SLOT_SIZE {
        words(&mut bytes[size - BlkPtr::SIZE..size]);
    }
    if let (Some(bonus), Some(class)) = (bytes.get_mut(bonus_at..bonus_at + bonus_size), bonus_type.swap_class()) {
        by_class(class, bonus);
    }
    slots
}

fn objset(bytes: &mut [u8]) {
    let Some((head, accounting)) = bytes.split_at_mut_checked(1024) else { return };
    dnode(&mut head[..SLOT_SIZE]);
    words(&mut head[512..720]); // log header, kind and flags; the MACs behind them are bytes
    for dnode_bytes in accounting.chunks_exact_mut(SLOT_SIZE) {
        dnode(dnode_bytes);
    }
}

/// 22 words, then the ACL's head and the room for six short entries.
fn znode(bytes: &mut [u8]) {
    const ACL_AT: usize = 176;
    const ACES_AT: usize = ACL_AT + 16;
    let Some((fields, _)) = bytes.split_at_mut_checked(ACES_AT) else { return };
    words(&mut fields[..ACL_AT + 8]);
    number::<4>(fields, ACL_AT + 8);
    number::<2>(fields, ACL_AT + 12);
    number::<2>(fields, ACL_AT + 14);
    let version = u16::from_le_bytes([fields[ACL_AT + 12], fields[ACL_AT + 13]]);
    let aces_end = bytes.len().min(ACES_AT + 72);
    let aces = &mut bytes[ACES_AT..aces_end];
    if version == 0 { aces.chunks_exact_mut(12).for_each(old_ace) } else { acl(aces) }
}

/// a_who u32 | mask u32 | flags u16 | type u16
fn old_ace(bytes: &mut [u8]) {
    number::<4>(bytes, 0);
    number::<4>(bytes, 4);
    number::<2>(bytes, 8);
    number::<2>(bytes, 10);
}

/// type u16 | flags u16 | mask u32 | a_who u64 unless the flags say owner, group or everyone | 32 bytes
/// more for the object types.
fn acl(mut bytes: &mut [u8]) {
    const OWNER: u16 = 0x1000;
    const OWNING_GROUP: u16 = 0x2000 | 0x0040;
    const EVERYONE: u16 = 0x4000;
    while bytes.len() >= 8 {
        number::<2>(bytes, 0);
        number::<2>(bytes, 2);
        number::<4>(bytes, 4);
        let kind = u16::from_le_bytes([bytes[0], bytes[1]]);
        let flags = u16::from_le_bytes([bytes[2], bytes[3]]);
        let size = match flags & 0x7040 {
            OWNER | OWNING_GROUP | EVERYONE => 8,
            _ => {
                number::<8>(bytes, 8);
                if (5..=8).contains(&kind) { 48 } else { 16 }
            }
        };
        let end = size.min(bytes.len());
        bytes = &mut bytes[end..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dnode::Dnode;

    /// A dnode with a DSL bonus, turned by hand and turned back.
    #[test]
    fn a_foreign_dnode_reads_like_ours() {
        let mut le = vec![0u8; 1024];
        le[..8].copy_from_slice(&[12, 14, 1, 1, 12, 7, 2, 1]);
        le[8..12].copy_from_slice(&[1, 0, 0, 1]); // 512-byte blocks, 256 bytes of bonus
        le[16..24].copy_from_slice(&3u64.to_le_bytes());
        le[64..72].copy_from_slice(&77u64.to_le_bytes());
        le[192..200].copy_from_slice(&99u64.to_le_bytes());
        let mut be = le.clone();
        be[8..10].reverse();
        be[10..12].reverse();
        words(&mut be[16..512]);
        block(ObjectType::DNODE, &mut be);
        assert_eq!(be, le);
        assert_eq!(Dnode::parse(&be).unwrap().unwrap().block_max, 3);
    }

    #[test]
    fn an_acl_of_mixed_entries() {
        let entry = |kind: u16, flags: u16, mask: u32, who: Option<u64>, big: bool| {
            let mut out = Vec::new();
            if big {
                out.extend([&kind.to_be_bytes()[..], &flags.to_be_bytes(), &mask.to_be_bytes()].concat());
                out.extend(who.iter().flat_map(|w| w.to_be_bytes()));
            } else {
                out.extend([&kind.to_le_bytes()[..], &flags.to_le_bytes(), &mask.to_le_bytes()].concat());
                out.extend(who.iter().flat_map(|w| w.to_le_bytes()));
            }
            out
        };
        let list = |big| {
            [entry(0, 0x1000, 7, None, big), entry(1, 0, 1, Some(501), big), entry(0, 0x4000, 3, None, big)].concat()
        };
        let mut be = list(true);
        block(ObjectType::ACL, &mut be);
        assert_eq!(be, list(false));
    }

    #[test]
    fn any_bytes_at_all() {
        let noise: Vec<u8> = (0..4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for kind in 0..=255 {
            for len in [0, 1, 7, 100, 511, 512, 1000, 4096] {
                block(ObjectType(kind), &mut noise[..len].to_vec());
            }
        }
    }
}
