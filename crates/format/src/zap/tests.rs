//! Blocks built by hand, in both byte orders, and damaged in every way that a byte can be.

use super::block::HEADER;
use super::*;

/// Writes numbers of either byte order.
struct Builder {
    bytes: Vec<u8>,
    big: bool,
}

impl Builder {
    fn new(len: usize, big: bool) -> Builder {
        Builder { bytes: vec![0; len], big }
    }

    fn put(&mut self, at: usize, width: usize, value: u64) {
        let mut raw = value.to_le_bytes()[..width].to_vec();
        if self.big {
            raw.reverse();
        }
        self.bytes[at..at + width].copy_from_slice(&raw);
    }
}

fn micro(entries: &[(&str, u64, u32)], big: bool) -> Vec<u8> {
    let mut b = Builder::new(512, big);
    b.put(0, 8, MICRO);
    b.put(8, 8, 0x1111);
    b.put(16, 8, 2);
    for (slot, (name, value, cd)) in entries.iter().enumerate() {
        let at = 64 * (slot + 2); // the first slot stays free
        b.put(at, 8, *value);
        b.put(at + 8, 4, (*cd).into());
        b.bytes[at + 14..at + 14 + name.len()].copy_from_slice(name.as_bytes());
    }
    b.bytes
}

/// Name or key as stored, hash, cd, width of the numbers in the value, value.
type LeafEntry<'a> = (&'a [u8], u64, u32, u8, &'a [u8]);

/// A leaf of 1 KiB: prefix 0b10 of 2 bits, heads at 48..112, 38 chunks.
fn leaf(entries: &[LeafEntry<'_>], big: bool) -> Vec<u8> {
    let (heads_at, chunks_at) = (48, 48 + 64);
    let mut b = Builder::new(1024, big);
    b.put(0, 8, LEAF);
    b.put(16, 8, 0b10);
    b.put(24, 4, 0x02ab_1eaf);
    b.put(28, 2, 5);
    b.put(30, 2, entries.len() as u64);
    b.put(32, 2, 2);
    (0..32).for_each(|i| b.put(heads_at + 2 * i, 2, 0xffff));
    for i in 0..38 {
        b.bytes[chunks_at + 24 * i] = 253;
        b.put(chunks_at + 24 * i + 22, 2, i as u64 + 1);
    }
    let mut free = 0;
    let mut array = |b: &mut Builder, bytes: &[u8]| {
        let first = free;
        for part in bytes.chunks(21) {
            let at = chunks_at + 24 * free;
            free += 1;
            b.bytes[at..at + 22].fill(0);
            b.bytes[at] = 251;
            b.bytes[at + 1..at + 1 + part.len()].copy_from_slice(part);
            b.put(at + 22, 2, free as u64);
        }
        b.put(chunks_at + 24 * (free - 1) + 22, 2, 0xffff);
        first as u64
    };
    let mut heads = [0xffff; 32];
    for (n, &(name, hash, cd, width, value)) in entries.iter().enumerate() {
        let (name_chunk, value_chunk) = (array(&mut b, name), array(&mut b, value));
        let chunk = 37 - n;
        let at = chunks_at + 24 * chunk;
        let head = (hash << 2 >> 59) as usize;
        b.bytes[at..at + 2].copy_from_slice(&[252, width]);
        b.put(at + 2, 2, heads[head]);
        b.put(at + 4, 2, name_chunk);
        b.put(at + 6, 2, name.len() as u64);
        b.put(at + 8, 2, value_chunk);
        b.put(at + 10, 2, value.len() as u64 / u64::from(width));
        b.put(at + 12, 4, cd.into());
        b.put(at + 16, 8, hash);
        heads[head] = chunk as u64;
        b.put(heads_at + 2 * head, 2, chunk as u64);
    }
    b.bytes
}

const LONG: &[u8] = b"a name of more than forty-two bytes, in three chunks\0";

fn sample_leaf(big: bool) -> Vec<u8> {
    leaf(
        &[
            (b"second\0", 0xb000_0010_0000_0000, 1, 8, &[1, 2, 3, 4, 5, 6, 7, 8]),
            (b"first\0", 0xb000_0010_0000_0000, 0, 2, &[0, 9, 1, 0]),
            (LONG, 0x8000_0010_0000_0000, 0, 1, &[7; 30]),
        ],
        big,
    )
}

fn header(big: bool) -> Vec<u8> {
    let mut b = Builder::new(1024, big);
    let fields = [HEADER, 0x2_f52a_b2ab, 0, 0, 6, 0, 0, 3, 2, 4, 0xabcd, 0x10, 1];
    fields.iter().enumerate().for_each(|(i, &field)| b.put(8 * i, 8, field));
    (0..64).for_each(|i| b.put(512 + 8 * i, 8, 1 + i as u64 / 32));
    b.bytes
}

#[test]
fn micro_entries() {
    let block = micro(&[("alpha", 7, 0), ("beta", u64::MAX, 3)], false);
    let zap = Micro::parse(&block).unwrap();
    assert_eq!((zap.salt(), zap.slots()), (0x1111, 7));
    assert_eq!(zap.prep(), TextPrep { upper: true, form: None });
    let entries: Vec<_> = zap.entries().collect();
    assert_eq!(entries[0], MicroEntry { name: b"alpha", value: 7, cd: 0 });
    assert_eq!(entries[1], MicroEntry { name: b"beta", value: u64::MAX, cd: 3 });
    assert_eq!(zap.entry(2), Some(entries[1]));
    let find = |name: &str| zap.find(name.as_bytes());
    assert_eq!(
        (find("alpha"), find("beta"), find("bet"), find("beta2"), find("")),
        (Some(1), Some(2), None, None, None)
    );
    assert_eq!((zap.entry(0), zap.entry(7), zap.entry(usize::MAX)), (None, None, None));
    assert!(ZapLeaf::parse(&block).is_err() && ZapHeader::parse(&block).is_err());
}

#[test]
fn a_micro_name_may_fill_its_slot() {
    let name = "x".repeat(50);
    assert_eq!(Micro::parse(&micro(&[(&name, 1, 0)], false)).unwrap().entry(1).unwrap().name, name.as_bytes());
}

#[test]
fn leaf_entries() {
    let block = sample_leaf(false);
    let leaf = ZapLeaf::parse(&block).unwrap();
    assert_eq!((leaf.prefix(), leaf.prefix_bits(), leaf.chunk_count(), leaf.free_chunks()), (2, 2, 38, 5));
    assert!(leaf.covers(0xbfff << 48) && !leaf.covers(0xc000 << 48));
    assert_eq!(leaf.next_hash(), Some(0xc000 << 48));
    let entries = leaf.entries().unwrap();
    let names: Vec<_> = entries.iter().map(|entry| leaf.name(entry).unwrap()).collect();
    assert_eq!(names, [&LONG[..LONG.len() - 1], b"first", b"second"]);
    assert_eq!(leaf.value(&entries[1]).unwrap(), [0, 9, 1, 0]);
    assert_eq!(leaf.value(&entries[0]).unwrap(), [7; 30]);
    let found = leaf.find(0xb000_0010_0000_0000, |entry| leaf.is_named(entry, b"second")).unwrap().unwrap();
    assert_eq!(found.position.cd, 1);
    assert!(leaf.key(&found).is_err(), "7 integers need more than the one chunk that the name has");
    assert!(leaf.find(0xb000_0020_0000_0000, |_| Ok(true)).unwrap().is_none());
}

#[test]
fn the_last_leaf_has_no_next() {
    let mut block = sample_leaf(false);
    block[16] = 3;
    assert_eq!(ZapLeaf::parse(&block).unwrap().next_hash(), None);
    block[16] = 0;
    block[32] = 0;
    assert_eq!(ZapLeaf::parse(&block).unwrap().next_hash(), None);
}

#[test]
fn header_fields() {
    let block = header(false);
    let header = ZapHeader::parse(&block).unwrap();
    assert_eq!((header.entries, header.leaves, header.salt, header.block_shift), (4, 2, 0xabcd, 10));
    assert_eq!(header.prep.form, Some(NormalizationForm::D));
    assert_eq!((header.leaf_index(u64::MAX), header.embedded(&block, 63), header.embedded(&block, 31)), (63, 2, 1));
}

#[test]
fn an_external_table() {
    let mut block = header(false);
    (block[16], block[24], block[32]) = (9, 2, 8); // two blocks from block 9, 256 entries
    let header = ZapHeader::parse(&block).unwrap();
    assert_eq!(header.external(255), (10, 127));
    block[32] = 9;
    assert!(ZapHeader::parse(&block).is_err());
}

#[test]
fn foreign_blocks_turn_into_ours() {
    let entries = [("alpha", 7, 0), ("beta", 0x0102_0304, 3)];
    let pointers = |big| {
        let mut b = Builder::new(64, big);
        (0..8).for_each(|i| b.put(8 * i, 8, 100 + i as u64));
        b.bytes
    };
    for (mut foreign, ours) in [
        (micro(&entries, true), micro(&entries, false)),
        (sample_leaf(true), sample_leaf(false)),
        (header(true), header(false)),
        (pointers(true), pointers(false)),
    ] {
        assert_ne!(foreign, ours);
        swap(&mut foreign);
        assert_eq!(foreign, ours);
    }
}

#[test]
fn a_chain_that_loops_is_an_error() {
    let mut block = sample_leaf(false);
    // "second" (chunk 37) follows "first" (chunk 36); let it lead back.
    block[112 + 24 * 37 + 2..][..2].copy_from_slice(&36u16.to_le_bytes());
    let leaf = ZapLeaf::parse(&block).unwrap();
    assert!(leaf.entries().is_err());
    assert!(leaf.find(0xb000_0010_0000_0000, |_| Ok(false)).is_err());
}

/// A generator of numbers that look random.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn check_block(block: &[u8], u64_keys: bool) {
    check_leaf(&ZapLeaf::parse(block).unwrap(), block, u64_keys).unwrap();
}

#[test]
fn micro_slots_are_changed_in_place() {
    let mut block = vec![0xee; 512];
    let mut zap = MicroMut::init(&mut block, 0x1111, 2);
    let entry = |name, value, cd| MicroEntry { name, value, cd };
    zap.put(1, &entry(b"alpha", 7, 0));
    zap.put(2, &entry(b"beta", u64::MAX, 3));
    assert_eq!(block, micro(&[("alpha", 7, 0), ("beta", u64::MAX, 3)], false));
    let mut zap = MicroMut::parse(&mut block).unwrap();
    zap.set_value(1, 9);
    zap.clear(2);
    assert_eq!(block, micro(&[("alpha", 9, 0)], false));
    assert!(MicroMut::parse(&mut [0; 512]).is_err());
}

#[test]
fn headers_are_changed_in_place() {
    let mut block = vec![0xee; 1024];
    let made = ZapHeader::init(&mut block, 0xabcd, 0x10, 1);
    assert_eq!((made.table.shift, made.free_block, made.leaves, made.entries), (6, 2, 1, 0));
    assert!((0..64).all(|index| made.embedded(&block, index) == 1));
    let changed = ZapHeader { free_block: 3, leaves: 2, entries: 4, ..made };
    changed.store(&mut block);
    (32..64).for_each(|index| ZapHeader::set_embedded(&mut block, index, 2));
    assert_eq!(block, header(false));
    let table = PointerTable { block: 9, blocks: 2, shift: 8, next_block: 11, blocks_copied: 1 };
    let external = ZapHeader { table, ..changed };
    external.store(&mut block);
    assert_eq!(ZapHeader::parse(&block).unwrap(), external);
}

#[test]
fn a_leaf_keeps_its_chunks() {
    let mut block = vec![0; 1024];
    LeafMut::init(&mut block, 0b10, 2, false);
    let hash = |n: u64| 0b10 << 62 | n << 36;
    let mut entries: std::collections::BTreeMap<u64, Vec<u8>> = std::collections::BTreeMap::new();
    let mut state = 7;
    let mut full = 0;
    for _ in 0..20_000 {
        let (n, len) = (random(&mut state) % 9, random(&mut state) as usize % 90);
        let (name, value) = (format!("name {n} {}\0", "x".repeat(n as usize * 6)), vec![n as u8; len]);
        let found = ZapLeaf::parse(&block).unwrap().find(hash(n / 2), |_| Ok(true)).unwrap();
        let named =
            |leaf: &ZapLeaf<'_>| leaf.find(hash(n / 2), |e| leaf.is_named(e, &name.as_bytes()[..name.len() - 1]));
        let mut leaf = LeafMut::parse(&mut block).unwrap();
        let old = named(&leaf.as_leaf()).unwrap();
        assert_eq!(old.is_some(), entries.contains_key(&n));
        match old {
            Some(entry) if len % 2 == 0 => {
                leaf.remove(&entry, false).unwrap();
                entries.remove(&n);
            }
            Some(entry) => match leaf.set_value(&entry, 1, &value).unwrap() {
                true => drop(entries.insert(n, value)),
                false => full += 1,
            },
            None => {
                let cd = leaf.as_leaf().unused_cd(hash(n / 2)).unwrap();
                assert!(cd <= u32::from(found.is_some()));
                let position = ZapPosition { hash: hash(n / 2), cd };
                let (key, key_len) = (name.as_bytes(), name.len() as u16);
                match leaf.insert(&NewLeafEntry { position, key, key_len, width: 1, value: &value }).unwrap() {
                    true => drop(entries.insert(n, value)),
                    false => full += 1,
                }
            }
        }
        check_block(&block, false);
    }
    assert!(full > 100, "{full}");
    let leaf = ZapLeaf::parse(&block).unwrap();
    let values: Vec<_> = leaf.entries().unwrap().iter().map(|entry| leaf.value(entry).unwrap()).collect();
    assert_eq!(values.len(), entries.len());
    assert!(values.iter().all(|value| entries.values().any(|other| other == value)));
}

#[test]
fn a_leaf_splits_by_the_next_bit() {
    for u64_keys in [false, true] {
        let mut block = vec![0; 1024];
        let mut leaf = LeafMut::init(&mut block, 0b10, 2, true);
        for n in 0..5u64 {
            let position = ZapPosition { hash: 0b10 << 62 | n << 60, cd: 1 };
            let (key, key_len) = if u64_keys { ([n as u8; 16], 2) } else { (*b"sixteen bytes ..", 16) };
            let position = if n == 4 { ZapPosition { cd: 0, hash: 0b10 << 62 } } else { position };
            let record = NewLeafEntry { position, key: &key, key_len, width: 2, value: &[n as u8; 30] };
            assert!(leaf.insert(&record).unwrap());
        }
        let leaf = ZapLeaf::parse(&block).unwrap();
        let halves = leaf.split(true, u64_keys).unwrap();
        halves.iter().for_each(|half| check_block(half, u64_keys));
        let [low, high] = halves.each_ref().map(|half| ZapLeaf::parse(half).unwrap());
        assert_eq!((low.prefix(), high.prefix(), low.prefix_bits()), (0b100, 0b101, 3));
        let listed =
            |leaf: &ZapLeaf<'_>| leaf.entries().unwrap().iter().map(|e| leaf.value(e).unwrap()[0]).collect::<Vec<_>>();
        assert_eq!((listed(&low), listed(&high)), (vec![4, 0, 1], vec![2, 3]));
        assert_eq!(halves[0][36], 1, "sorted by cd");
    }
}

#[test]
fn a_damaged_leaf_is_not_changed() {
    let mut state = 3;
    let (position, key) = (ZapPosition { hash: 0b10 << 62, cd: 0 }, b"new\0");
    let record = NewLeafEntry { position, key, key_len: 4, width: 1, value: &[1; 60] };
    let mut sound = vec![0; 1024];
    let mut leaf = LeafMut::init(&mut sound, 0b10, 2, false);
    assert!(leaf.insert(&record).unwrap());
    for at in (0..sound.len()).chain(0..sound.len()) {
        let mut block = sound.clone();
        block[at] = random(&mut state) as u8;
        let before = block.clone();
        let Ok(mut leaf) = LeafMut::parse(&mut block) else { continue };
        if leaf.as_leaf().covers(position.hash) && leaf.insert(&record).is_err() {
            assert_eq!(block, before, "byte {at}");
        }
        block.copy_from_slice(&before);
        let mut leaf = LeafMut::parse(&mut block).unwrap();
        let found = leaf.as_leaf().find(position.hash, |_| Ok(true));
        let Ok(Some(entry)) = found else { continue };
        if leaf.set_value(&entry, 1, &[2; 300]).is_err() {
            assert_eq!(block, before, "byte {at}");
        }
        block.copy_from_slice(&before);
        if LeafMut::parse(&mut block).unwrap().remove(&entry, false).is_err() {
            assert_eq!(block, before, "byte {at}");
        }
        let _ = ZapLeaf::parse(&before).unwrap().split(false, at % 2 == 0);
    }
}

#[test]
fn any_byte_damaged() {
    for sample in [micro(&[("alpha", 7, 0)], false), sample_leaf(false), header(false)] {
        for at in 0..sample.len() {
            for value in [0, 1, 0x7f, 0xff, sample[at] ^ 1, sample[at] ^ 0x80] {
                let mut block = sample.clone();
                block[at] = value;
                fuzz(&block);
            }
        }
        (0..sample.len()).for_each(|len| fuzz(&sample[..len]));
    }
}
