use crate::blkptr::{BlkPtrBuilder, BlockShape, Dva, Seal};
use crate::ids::{Txg, VdevNumber};
use crate::objset::{ObjsetPhys, ObjsetType};

use super::*;

const ONE: SealVersion = SealVersion::One;

fn pointer(object_type: ObjectType, level: u8) -> BlkPtr {
    let shape = BlockShape { lsize: 16 << 10, psize: 4096, compress: 15, checksum: 7, object_type, level };
    let seal = Seal { salt: 0x0102_0304_0506_0708, iv1: 0x1112, iv2: 0x2122_2324, mac: [0x31, 0x41] };
    let dva = Dva::new(VdevNumber::new(0), 1 << 20, 4096, false);
    BlkPtrBuilder::new(shape, Txg::new(9)).at(&[dva]).sealed(seal).fill(1).build()
}

fn dnode(object_type: ObjectType, bonus_type: ObjectType, slots: usize) -> Dnode {
    let mut dnode = Dnode::new(object_type, 16 << 10, 17, 1, slots);
    (dnode.bonus_type, dnode.bonus, dnode.block_max) = (bonus_type, vec![0xb0; 64], 3);
    dnode.blkptrs = vec![pointer(object_type, 0)];
    dnode.flags |= Dnode::FLAG_USERUSED_ACCOUNTED;
    dnode.used_bytes = 0x1234;
    dnode
}

fn turned(object_type: ObjectType, bytes: &[u8]) -> Vec<u8> {
    let mut turned = bytes.to_vec();
    turned_dnodes(object_type, &mut turned);
    turned
}

/// The other way round than `swap::block`: numbers of dnodes are turned after they were used.
fn turned_dnodes(object_type: ObjectType, bytes: &mut [u8]) {
    let slots = match object_type {
        ObjectType::DNODE => 0..bytes.len() / SLOT_SIZE,
        _ => 0..1,
    };
    let mut at = slots.start;
    while at < slots.end {
        let raw = &mut bytes[at * SLOT_SIZE..];
        let (slots, pointers) = (usize::from(raw[12]) + 1, usize::from(raw[3]));
        [8..10, 10..12].into_iter().for_each(|number| raw[number].reverse());
        swap::words(&mut raw[16..64 + pointers * 128]);
        at += slots;
    }
    if object_type == ObjectType::OBJSET {
        swap::words(&mut bytes[512..720]);
        for slot in bytes[1024..].chunks_exact_mut(SLOT_SIZE) {
            turned_dnodes(ObjectType::DNODE, slot);
        }
    }
}

#[test]
fn what_is_sealed_of_dnodes() {
    let mut block = vec![0; 4 * SLOT_SIZE];
    dnode(ObjectType::PLAIN_FILE_CONTENTS, ObjectType::SA, 1).write(&mut block[..512]);
    dnode(ObjectType::MASTER_NODE, ObjectType::NONE, 1).write(&mut block[512..1024]);
    dnode(ObjectType::PLAIN_FILE_CONTENTS, ObjectType::SA, 2).write(&mut block[1024..]);
    let spans = spans_of_dnodes(&block, Endian::Little, ONE).unwrap();
    assert_eq!(spans.sealed, [64 + 128..512, 1024 + 64 + 128..2048]);
    // core, record; all of the second
    assert_eq!(spans.additional.len(), 2 * (64 + 32) + 64 + 32 + 320);
    // what changes without a key counts for nothing
    let mut other = block.clone();
    (other[7], other[24], other[64 + 8], other[64 + 80]) = (0, 9, 9, 9);
    assert_eq!(spans_of_dnodes(&other, Endian::Little, ONE).unwrap(), spans);
    for at in [0, 4, 8, 16, 33, 64 + 55, 64 + 112] {
        let mut other = block.clone();
        other[at] ^= 1;
        assert_ne!(spans_of_dnodes(&other, Endian::Little, ONE).ok(), Some(spans.clone()), "byte {at}");
    }
    let message = spans.gather(&block);
    assert_eq!(message.len(), 320 + 832);
    let mut out = block.clone();
    out[192..512].fill(0);
    spans.scatter(&message, &mut out);
    assert_eq!(out, block);
    // the same block of the other order: numbers of the core are as they are there, records are not
    let big = spans_of_dnodes(&turned(ObjectType::DNODE, &block), Endian::Big, ONE).unwrap();
    assert_eq!((&big.sealed, &big.additional[64..96]), (&spans.sealed, &spans.additional[64..96]));
    assert_ne!(big.additional, spans.additional);
}

#[test]
fn a_spill_pointer_ends_what_is_sealed() {
    let mut block = vec![0; SLOT_SIZE];
    let mut with_spill = dnode(ObjectType::PLAIN_FILE_CONTENTS, ObjectType::SA, 1);
    with_spill.spill = Some(pointer(ObjectType::SA, 0));
    with_spill.write(&mut block);
    let spans = spans_of_dnodes(&block, Endian::Little, ONE).unwrap();
    assert_eq!((spans.sealed[0].clone(), spans.additional.len()), (192..384, 64 + 2 * 32));
}

#[test]
fn records_of_pointers() {
    let record = |bp: &BlkPtr, version| {
        let mut record = Vec::new();
        push_record(bp, version, &mut record);
        record
    };
    let (data, indirect) = (pointer(ObjectType::SA, 0), pointer(ObjectType::SA, 2));
    assert_eq!(record(&data, ONE)[..8], (data.prop() & !(0xff << 40)).to_le_bytes());
    assert_eq!(record(&data, ONE)[8..], [&data.mac_bytes()[..], &[0; 8]].concat());
    let kept = 1 << 61 | 2 << 56 | u64::from(ObjectType::SA.0) << 48 | 31;
    assert_eq!(record(&indirect, ONE)[..8], u64::to_le_bytes(kept));
    assert_eq!(record(&BlkPtr::HOLE, ONE), [0; 32]);
    assert_eq!(record(&pointer(ObjectType::OBJSET, 0), ONE)[8..], [0; 24]);
    let old = record(&indirect, SealVersion::Zero);
    assert_eq!((old.len(), &old[..8]), (24, &(kept | 1 << 63 | 15 << 32).to_le_bytes()[..]));
    let mut block = [data.raw(), BlkPtr::HOLE.raw()].concat();
    let little = records_of_indirect(&block, Endian::Little, ONE);
    swap::words(&mut block);
    assert_eq!(records_of_indirect(&block, Endian::Big, ONE), little);
}

/// A machine of the other order stores byte strings as they are, too: readers of the pointer turn their words.
#[test]
fn byte_strings_of_pointers() {
    let bp = pointer(ObjectType::SA, 0);
    assert_eq!(bp.salt_bytes(), [8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(bp.iv_bytes(), [0x12, 0x11, 0, 0, 0, 0, 0, 0, 0x24, 0x23, 0x22, 0x21]);
    assert_eq!((bp.mac_bytes()[0], bp.mac_bytes()[8]), (0x31, 0x41));
    let mut raw = bp.raw().to_vec();
    raw[55] &= 0x7f;
    let big = BlkPtr::parse(&raw).unwrap();
    assert_eq!(big.salt_bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(big.iv_bytes(), [0, 0, 0, 0, 0, 0, 0x11, 0x12, 0x21, 0x22, 0x23, 0x24]);
    assert_eq!((big.mac_bytes()[7], big.mac_bytes()[15]), (0x31, 0x41));
}

fn head(size: usize, flags: u64) -> Vec<u8> {
    let mut meta = dnode(ObjectType::DNODE, ObjectType::NONE, 1);
    meta.bonus.clear();
    let user = dnode(ObjectType(39), ObjectType::NONE, 1);
    let macs = std::array::from_fn(|at| at as u8);
    let accounting = [Some(user), None, None];
    let phys = ObjsetPhys { meta_dnode: meta, log_header: [7; 192], kind: ObjsetType::Zfs, macs, flags, accounting };
    let mut head = vec![0; size];
    phys.write(&mut head);
    head
}

#[test]
fn what_heads_are_authenticated_by() {
    let whole = head(4096, 5);
    let portable = portable_data(&whole, Endian::Little, ONE).unwrap();
    assert_eq!((portable.len(), &portable[..9]), (16 + 64 + 32, &[0, 0, 0, 0, 0, 0, 0, 2, 0][..]));
    let local = local_data(&whole, Endian::Little, ONE).unwrap().unwrap();
    assert_eq!((local.len(), local[0]), (8 + 64 + 32, 5));
    assert_eq!(macs_of_head(&whole).unwrap().map(|mac| mac[0]), [0, 32]);
    // the same in the other order
    let big = turned(ObjectType::OBJSET, &whole);
    assert_eq!(portable_data(&big, Endian::Big, ONE).unwrap(), portable);
    assert_eq!(local_data(&big, Endian::Big, ONE).unwrap().unwrap(), local);
    // nothing is counted, or not counted to the end
    for other in [head(1024, 5), head(4096, 4)] {
        assert_eq!(local_data(&other, Endian::Little, ONE).unwrap(), None);
    }
    assert!(macs_of_head(&whole[..783]).is_err() && portable_data(&whole[..700], Endian::Little, ONE).is_err());
}

/// A log block with records of those types and lengths.
fn log_block(records: &[(u64, usize)]) -> Vec<u8> {
    let mut block = vec![0; LINK_SIZE];
    for (kind, len) in records {
        let at = block.len();
        block.resize(at + len, *kind as u8);
        block[at..at + 8].copy_from_slice(&kind.to_le_bytes());
        block[at + 8..at + 16].copy_from_slice(&(*len as u64).to_le_bytes());
    }
    let used = block.len() as u64;
    block[USED_AT..USED_AT + 8].copy_from_slice(&used.to_le_bytes());
    block.resize(4096, 0);
    block
}

#[test]
fn what_is_sealed_of_logs() {
    let spans = |block: &[u8]| spans_of_log(block, Endian::Little);
    let empty = spans(&log_block(&[])).unwrap();
    assert_eq!((empty.additional.len(), empty.sealed.len()), (144, 0));
    let block = log_block(&[(1 << 63 | 1, 100), (9, 200), (9, 192), (20, 72 + 256), (12, 32)]);
    let found = spans(&block).unwrap();
    let (a, b, c, d) = (184, 284, 484, 676);
    assert_eq!(found.sealed, [a + 32..a + 100, b + 32..b + 64, b + 192..b + 200, c + 32..c + 64, d + 32..d + 72]);
    assert_eq!(found.additional.len(), 144 + 5 * 32 + 2 * 128 + 256);
    for wrong in [(9, 191), (20, 71), (1, 31), (1, 0), (1, 4000)] {
        let mut block = log_block(&[(wrong.0, wrong.1.max(16))]);
        block[184 + 8..184 + 16].copy_from_slice(&(wrong.1 as u64).to_le_bytes());
        assert!(spans(&block).is_err(), "{wrong:?}");
    }
    for used in [0, 183, 4097, u64::MAX] {
        let mut block = log_block(&[]);
        block[USED_AT..USED_AT + 8].copy_from_slice(&used.to_le_bytes());
        assert!(spans(&block).is_err(), "{used}");
    }
    assert!(spans(&block[..100]).is_err());
}

/// Whatever stands in a block, it is spans within it, or an error.
#[test]
fn nonsense_is_no_panic() {
    let mut state = 1u64;
    for round in 0..4000 {
        let mut bytes = vec![0u8; [512, 1024, 4096, 700][round % 4]];
        for byte in &mut bytes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = if state >> 62 == 0 { (state >> 40) as u8 } else { 0 };
        }
        for endian in [Endian::Little, Endian::Big] {
            for spans in [spans_of_dnodes(&bytes, endian, ONE), spans_of_log(&bytes, endian)].into_iter().flatten() {
                let message = spans.gather(&bytes);
                spans.scatter(&message, &mut bytes);
            }
            let _ = (portable_data(&bytes, endian, ONE), local_data(&bytes, endian, ONE), macs_of_head(&bytes));
            let _ = records_of_indirect(&bytes, endian, SealVersion::Zero);
        }
    }
}
