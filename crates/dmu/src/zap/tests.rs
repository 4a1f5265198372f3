//! Tables built by hand: both kinds, listings that are cut and resumed, collisions, text forms, damage.

use std::collections::BTreeMap;

use base::AlignedBuf;
use format::zap::hash_u64s;

use super::*;

const BLOCK: usize = 4096;
const UPPER_C: u64 = 0x52;

struct Blocks(Vec<Vec<u8>>);

impl ZapSource for Blocks {
    fn block(&self, blkid: u64) -> Result<Block> {
        let zeros = vec![0; self.0[0].len()];
        Ok(AlignedBuf::from(&self.0.get(blkid as usize).unwrap_or(&zeros)[..]).into())
    }

    fn bookmark(&self, blkid: u64) -> Bookmark {
        Bookmark { objset: 5, object: 7, level: 0, blkid }
    }

    fn prefetch(&self, blkids: Vec<u64>) {
        assert!(blkids.iter().all(|&blkid| blkid > 0 && blkid < self.0.len() as u64));
    }
}

fn open(blocks: Vec<Vec<u8>>) -> Result<Zap> {
    Zap::over(Box::new(Blocks(blocks)))
}

fn put(block: &mut [u8], at: usize, value: u64) {
    block[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn put16(block: &mut [u8], at: usize, value: usize) {
    block[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
}

fn micro(norm: u64, entries: &[(String, u64)]) -> Vec<u8> {
    let mut block = vec![0; (entries.len() + 1) * 64];
    block.resize(block.len().next_multiple_of(512), 0);
    put(&mut block, 0, (1 << 63) + 3);
    put(&mut block, 8, 0x9e37_79b9);
    put(&mut block, 16, norm);
    for (i, (name, value)) in entries.iter().enumerate() {
        let at = 64 * (i + 1);
        put(&mut block, at, *value);
        block[at + 14..at + 14 + name.len()].copy_from_slice(name.as_bytes());
    }
    block
}

/// An entry of a fat table: hash, cd, key (with the NUL of a name, or big-endian integers), number of
/// its bytes or integers, width and bytes of the value.
struct Fat {
    hash: u64,
    cd: u32,
    key: Vec<u8>,
    key_len: usize,
    width: u8,
    value: Vec<u8>,
}

impl Fat {
    fn named(flags: u64, norm: u64, name: &str, width: u8, value: &[u8]) -> Fat {
        let hash = hash_name(SALT, flags, &TextPrep::from_flags(norm).apply(name.as_bytes()));
        let key = [name.as_bytes(), b"\0"].concat();
        Fat { hash, cd: 0, key_len: key.len(), key, width, value: value.to_vec() }
    }

    fn keyed(flags: u64, key: &[u64], cd: u32, value: &[u8]) -> Fat {
        let hash = hash_u64s(SALT, flags, key);
        let raw = key.iter().flat_map(|word| word.to_be_bytes()).collect();
        Fat { hash, cd, key: raw, key_len: key.len(), width: 1, value: value.to_vec() }
    }
}

const SALT: u64 = 0x1234_5678_9abc_def1;

/// A table whose leaves have `bits` bits of prefix, with the pointer table in the header or outside.
fn fat(flags: u64, norm: u64, bits: u32, external: bool, entries: &[Fat]) -> Vec<Vec<u8>> {
    let leaves = 1usize << bits;
    let mut head = vec![0; BLOCK];
    let shift = if external { 9 } else { 8 };
    let table_blkid = leaves as u64 + 1;
    let fields = [(1 << 63) + 1, 0x2_f52a_b2ab, u64::from(external) * table_blkid, external.into(), shift, 0, 0];
    let rest = [leaves as u64 + 2, leaves as u64, entries.len() as u64, SALT, norm, flags];
    fields.iter().chain(&rest).enumerate().for_each(|(i, &field)| put(&mut head, 8 * i, field));
    let pointers: Vec<u64> = (0..1u64 << shift).map(|i| 1 + (i >> (shift - u64::from(bits)))).collect();
    let mut table = vec![0; BLOCK];
    let (target, at) = if external { (&mut table, 0) } else { (&mut head, BLOCK / 2) };
    pointers.iter().enumerate().for_each(|(i, &blkid)| put(target, at + 8 * i, blkid));
    let mut blocks = vec![head];
    for prefix in 0..leaves as u64 {
        let covers = |hash: u64| bits == 0 || hash >> (64 - bits) == prefix;
        blocks.push(leaf(prefix, bits, entries.iter().filter(|entry| covers(entry.hash))));
    }
    blocks.push(table);
    blocks
}

fn leaf<'a>(prefix: u64, bits: u32, entries: impl Iterator<Item = &'a Fat>) -> Vec<u8> {
    const CHUNKS_AT: usize = 48 + BLOCK / 16;
    let mut block = vec![0; BLOCK];
    put(&mut block, 0, 1 << 63);
    put(&mut block, 16, prefix);
    put(&mut block, 24, 0x02ab_1eaf);
    put16(&mut block, 32, bits as usize);
    block[48..CHUNKS_AT].fill(0xff);
    let mut chunk = 0;
    let mut array = |block: &mut Vec<u8>, bytes: &[u8]| {
        let first = chunk;
        for part in bytes.chunks(21) {
            let at = CHUNKS_AT + 24 * chunk;
            chunk += 1;
            block[at] = 251;
            block[at + 1..at + 1 + part.len()].copy_from_slice(part);
            put16(block, at + 22, chunk);
        }
        first
    };
    for entry in entries {
        let (key, value) = (array(&mut block, &entry.key), array(&mut block, &entry.value));
        let own = array(&mut block, &[0]);
        let at = CHUNKS_AT + 24 * own;
        let head = 48 + 2 * (entry.hash << bits >> 57) as usize;
        let next = usize::from(u16::from_le_bytes([block[head], block[head + 1]]));
        block[at..at + 2].copy_from_slice(&[252, entry.width]);
        let fields = [next, key, entry.key_len, value, entry.value.len() / usize::from(entry.width)];
        fields.iter().enumerate().for_each(|(i, &field)| put16(&mut block, at + 2 + 2 * i, field));
        put(&mut block, at + 12, entry.cd.into());
        put(&mut block, at + 16, entry.hash);
        put16(&mut block, head, own);
    }
    block
}

fn numbered(count: u64) -> Vec<(String, u64)> {
    (0..count).map(|i| (format!("name-{i}"), i * 3)).collect()
}

fn as_fat(flags: u64, norm: u64, entries: &[(String, u64)]) -> Vec<Fat> {
    entries.iter().map(|(name, value)| Fat::named(flags, norm, name, 8, &value.to_be_bytes())).collect()
}

/// Lists in portions of `step` entries, resuming by cookie.
fn list(zap: &Zap, step: usize) -> Vec<ZapEntry> {
    let mut all: Vec<ZapEntry> = Vec::new();
    loop {
        let before = all.len();
        let cookie = all.last().map_or(0, |entry| entry.cookie);
        zap.for_each_from(cookie, &mut |entry| {
            all.push(entry);
            if all.len() == before + step { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
        if all.len() == before {
            return all;
        }
    }
}

#[test]
fn every_kind_finds_and_lists_the_same() {
    let entries = numbered(100);
    let expect: BTreeMap<Vec<u8>, u64> = entries.iter().map(|(name, v)| (name.clone().into_bytes(), *v)).collect();
    let tables = [
        vec![micro(0, &entries)],
        vec![micro(UPPER_C, &entries)],
        fat(0, 0, 3, false, &as_fat(0, 0, &entries)),
        fat(ZapHeader::FLAG_HASH64, 0, 4, true, &as_fat(ZapHeader::FLAG_HASH64, 0, &entries)),
        fat(0, UPPER_C, 2, true, &as_fat(0, UPPER_C, &entries)),
    ];
    for (i, table) in tables.into_iter().enumerate() {
        let zap = open(table).unwrap();
        assert_eq!(zap.len(), 100);
        for (name, value) in &entries {
            assert_eq!(zap.u64(name).unwrap(), Some(*value), "table {i}, {name}");
        }
        assert_eq!(zap.u64("name-100").unwrap(), None);
        assert_eq!(zap.require_u64("absent").unwrap_err().kind(), Kind::NotFound);
        let whole = zap.entries().unwrap();
        for step in [1, 7, 1000] {
            assert_eq!(list(&zap, step), whole, "table {i} in steps of {step}");
        }
        let listed = whole.iter().map(|e| (e.name.bytes().to_vec(), e.value.first_u64().unwrap())).collect();
        assert_eq!(expect, listed);
        assert_eq!(whole.len(), 100);
    }
}

#[test]
fn micro_and_fat_list_in_the_same_order() {
    let entries = numbered(40);
    let mut micro = micro(0, &entries);
    put(&mut micro, 8, SALT);
    let fat = open(fat(0, 0, 2, false, &as_fat(0, 0, &entries))).unwrap().entries().unwrap();
    assert_eq!(open(vec![micro]).unwrap().entries().unwrap(), fat);
}

#[test]
fn integer_keys_that_collide() {
    let flags = ZapHeader::FLAG_HASH64 | ZapHeader::FLAG_UINT64_KEY | ZapHeader::FLAG_PRE_HASHED_KEY;
    let keys = [[0xabcd_0000_0000_1111, 1], [0xabcd_0000_0000_2222, 2], [0xabcd_0000_0000_1111, 3]];
    let entries: Vec<Fat> =
        keys.iter().enumerate().map(|(i, key)| Fat::keyed(flags, key, i as u32, &[i as u8; 50])).collect();
    let zap = open(fat(flags, 0, 1, false, &entries)).unwrap();
    for (i, key) in keys.iter().enumerate() {
        assert_eq!(zap.lookup_u64_key(key).unwrap().unwrap().bytes(), [i as u8; 50]);
    }
    assert_eq!(zap.lookup_u64_key(&[0xabcd_0000_0000_1111]).unwrap(), None);
    assert_eq!(zap.lookup(b"abcd").unwrap_err().kind(), Kind::Invalid);
    let listed: Vec<ZapKey> = list(&zap, 1).into_iter().map(|entry| entry.name).collect();
    assert_eq!(listed, keys.map(|key| ZapKey::U64s(key.to_vec())));
    assert_eq!(listed[0].to_string(), "abcd000000001111:1");
}

#[test]
fn text_forms() {
    let names = ["README", "Über", "e\u{301}tage"];
    let entries: Vec<_> = names.iter().map(|name| (name.to_string(), 1)).collect();
    for table in [vec![micro(UPPER_C, &entries)], fat(0, UPPER_C, 1, false, &as_fat(0, UPPER_C, &entries))] {
        let zap = open(table).unwrap();
        let find = |name: &str, how| {
            let found = zap.lookup_match(name.as_bytes(), how).unwrap();
            found.map(|(name, _)| String::from_utf8(name).unwrap())
        };
        assert_eq!(find("readme", Match::Exact), None);
        assert_eq!(find("readme", Match::Normalized).as_deref(), Some("README"));
        assert_eq!(find("readme", Match::NormalizedCase), None);
        assert_eq!(find("README", Match::NormalizedCase).as_deref(), Some("README"));
        assert_eq!(find("u\u{308}BER", Match::Normalized).as_deref(), Some("Über"));
        assert_eq!(find("\u{e9}tage", Match::Exact), None);
        assert_eq!(find("\u{e9}tage", Match::NormalizedCase).as_deref(), Some("e\u{301}tage"));
    }
}

#[test]
fn a_name_under_another_hash_is_still_found() {
    // As if the form of the name had come out differently when it was entered.
    let mut entry = Fat::named(0, UPPER_C, "e\u{327}\u{301}tage", 8, &[0, 0, 0, 0, 0, 0, 0, 9]);
    entry.hash = !entry.hash & 0xffff_fff0_0000_0000;
    let zap = open(fat(0, UPPER_C, 2, false, &[entry])).unwrap();
    assert_eq!(zap.u64("e\u{327}\u{301}tage").unwrap(), Some(9));
    assert!(zap.lookup_match("\u{228}\u{301}TAGE".as_bytes(), Match::Normalized).unwrap().is_some());
}

#[test]
fn values_of_every_width() {
    let entries = [
        Fat::named(0, 0, "text", 1, b"value\0"),
        Fat::named(0, 0, "short", 2, &[1, 2, 3, 4]),
        Fat::named(0, 0, "int", 4, &[0, 0, 1, 0]),
        Fat::named(0, 0, "none", 8, &[]),
    ];
    let zap = open(fat(0, 0, 0, false, &entries)).unwrap();
    assert_eq!(zap.lookup(b"text").unwrap().unwrap().text(), "value");
    let short = zap.lookup(b"short").unwrap().unwrap();
    assert_eq!((short.u64s(), short.width(), short.len()), (vec![0x102, 0x304], 2, 2));
    assert_eq!(zap.u64("int").unwrap(), Some(256));
    assert!(zap.lookup(b"none").unwrap().unwrap().is_empty());
    assert_eq!(zap.u64("none").unwrap(), None);
}

#[test]
fn damage_is_an_error_that_names_the_block() {
    let intact = || fat(0, 0, 1, false, &as_fat(0, 0, &numbered(20)));
    let check = |damage: fn(&mut Vec<Vec<u8>>), blkid| {
        let mut blocks = intact();
        damage(&mut blocks);
        let error = open(blocks).and_then(|zap| zap.entries()).unwrap_err();
        assert_eq!((error.kind(), error.place().bookmark.unwrap().blkid), (Kind::Corrupt, blkid), "{error}");
    };
    check(|blocks| blocks[0].fill(0), 0);
    check(|blocks| blocks[1].fill(0), 1);
    check(|blocks| blocks.swap(1, 2), 1);
    check(|blocks| put(&mut blocks[0], BLOCK / 2, 0), 0);
    check(|blocks| put(&mut blocks[0], BLOCK / 2, u64::MAX), u64::MAX);
    check(|blocks| blocks[2] = blocks[1].clone(), 2);
    // an entry that belongs to the other leaf would lead a resumed listing back
    check(
        |blocks| {
            blocks[2] = {
                let mut leaf = blocks[1].clone();
                leaf[16] = 1;
                leaf
            }
        },
        2,
    );
}
