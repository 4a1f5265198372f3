//! Tables changed at random against a plain map, read by the reader, and checked block by block.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use base::Mutex;
use format::zap::{ZapHeader, ZapLeaf, check_leaf};

use super::super::{Zap, ZapKey};
use super::*;

const SALT: u64 = 0x1234_5678_9abc_def1;
const UPPER: u64 = 0x02;
const UPPER_C: u64 = 0x52;
const KEYED: u64 = ZapHeader::FLAG_HASH64 | ZapHeader::FLAG_UINT64_KEY;

/// Blocks in memory.
#[derive(Clone, Default)]
struct Ram(Arc<Inner>);

#[derive(Default)]
struct Inner {
    blocks: Mutex<Vec<Block>>,
    size: AtomicUsize,
    modified: AtomicU64,
    /// Whether changes that fail are compared with what was before.
    compares: AtomicBool,
}

impl Ram {
    fn new(size: usize) -> Ram {
        let ram = Ram::default();
        ram.0.size.store(size, Ordering::Relaxed);
        ram
    }

    fn blocks(&self) -> Vec<Block> {
        self.0.blocks.lock().clone()
    }

    fn zap(&self) -> Zap {
        Zap::of_store(Box::new(self.clone())).unwrap()
    }
}

impl ZapStore for Ram {
    fn block_size(&self) -> usize {
        self.0.size.load(Ordering::Relaxed)
    }

    fn block(&self, blkid: u64) -> Result<Block> {
        let blocks = self.0.blocks.lock();
        Ok(blocks.get(blkid as usize).cloned().unwrap_or_else(|| Block::zeroed(self.block_size())))
    }

    fn modify(&self, blkid: u64, f: &mut dyn FnMut(&mut [u8]) -> Result<()>) -> Result<()> {
        if blkid > 1 << 20 {
            return Err(Error::new(Kind::TooBig, "the table of a test"));
        }
        let mut blocks = self.0.blocks.lock();
        self.0.modified.fetch_add(1, Ordering::Relaxed);
        let len = blocks.len().max(blkid as usize + 1);
        blocks.resize_with(len, || Block::zeroed(self.block_size()));
        let block = &mut blocks[blkid as usize];
        if !self.0.compares.load(Ordering::Relaxed) {
            return f(block.make_mut());
        }
        let before = block.clone();
        f(block.make_mut()).inspect_err(|_| assert_eq!(before[..], block[..], "a change that failed"))
    }

    fn set_block_size(&self, bytes: usize) -> Result<()> {
        let mut blocks = self.0.blocks.lock();
        assert!(blocks.len() <= 1, "a table of one block");
        self.0.size.store(bytes, Ordering::Relaxed);
        for block in blocks.iter_mut() {
            let mut contents = block.to_vec();
            contents.resize(bytes, 0);
            *block = base::AlignedBuf::from(&contents[..]).into();
        }
        Ok(())
    }

    fn discard(&self, first: u64, count: u64) -> Result<()> {
        for block in &mut self.0.blocks.lock()[first as usize..(first + count) as usize] {
            block.make_mut().fill(0);
        }
        Ok(())
    }

    fn bookmark(&self, blkid: u64) -> Bookmark {
        Bookmark { objset: 5, object: 7, level: 0, blkid }
    }
}

/// A generator of numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Checks every block of a large table, and the counts in its header.
fn check(ram: &Ram) {
    let blocks = ram.blocks();
    if ZapBlockKind::of(&blocks[0]) == ZapBlockKind::Micro {
        return;
    }
    let header = ZapHeader::parse(&blocks[0]).unwrap();
    let pointer = |index: u64| match header.table.blocks {
        0 => header.embedded(&blocks[0], index),
        _ => ZapHeader::pointer(&blocks[header.external(index).0 as usize], header.external(index).1),
    };
    let (mut entries, mut leaves, mut at) = (0, 0, 0);
    while at < 1 << header.table.shift {
        let blkid = pointer(at);
        assert!(blkid < header.free_block && header.free_block <= blocks.len() as u64);
        let block = &blocks[blkid as usize];
        let leaf = ZapLeaf::parse(block).unwrap();
        check_leaf(&leaf, block, header.has_u64_keys()).unwrap();
        let pointers = 1 << (header.table.shift - leaf.prefix_bits());
        assert_eq!(at, leaf.prefix() * pointers, "leaf {blkid}");
        assert!((at..at + pointers).all(|index| pointer(index) == blkid), "leaf {blkid}");
        entries += u64::from(leaf.entry_count());
        leaves += 1;
        at += pointers;
    }
    assert_eq!((entries, leaves), (header.entries, header.leaves));
    assert_eq!((header.table.next_block, header.table.blocks_copied), (0, 0));
}

fn listed(ram: &Ram) -> BTreeMap<Vec<u8>, ZapValue> {
    let entries = ram.zap().entries().unwrap();
    let count = entries.len();
    let map: BTreeMap<_, _> = entries.into_iter().map(|entry| (entry.name.bytes().to_vec(), entry.value)).collect();
    assert_eq!(map.len(), count, "no name twice");
    map
}

/// `steps` random changes among `names` names; `wide` values are not only single numbers.
fn model(normflags: u64, names: u64, steps: usize, wide: bool, name: impl Fn(u64) -> String) -> Ram {
    let ram = Ram::new(512);
    let editor = Editor::create(&ram, 0, normflags, SALT).unwrap();
    let mut random = Random(names);
    let mut map: BTreeMap<Vec<u8>, ZapValue> = BTreeMap::new();
    for step in 0..steps {
        let name = name(random.below(names)).into_bytes();
        let value = match random.below(if wide { 6 } else { 1 }) {
            0 => ZapValue::one(step as u64),
            1 => ZapValue::of_text(&"text ".repeat(random.below(50) as usize)),
            2 => ZapValue::new(2, &[1, 2, 3, step as u64 & 0xffff]),
            3 => ZapValue::new(4, &vec![step as u64; random.below(40) as usize]),
            4 => ZapValue::new(8, &vec![step as u64; random.below(60) as usize]),
            _ => ZapValue::of_bytes(&[]),
        };
        match random.below(8) {
            0..4 => match editor.add(&name, &value) {
                Ok(()) => assert_eq!(map.insert(name, value), None),
                Err(e) => assert!(e.kind() == Kind::Exists && map.contains_key(&name), "{e}"),
            },
            4..6 => {
                editor.set(&name, &value).unwrap();
                map.insert(name, value);
            }
            6 => match editor.remove(&name) {
                Ok(()) => assert!(map.remove(&name).is_some()),
                Err(e) => assert!(e.kind() == Kind::NotFound && !map.contains_key(&name), "{e}"),
            },
            _ => assert_eq!(editor.lookup(&name).unwrap().as_ref(), map.get(&name)),
        }
        if step.is_multiple_of(steps / 20) {
            check(&ram);
            assert_eq!(listed(&ram), map);
            assert_eq!(editor.len().unwrap(), map.len() as u64);
        }
    }
    check(&ram);
    assert_eq!(listed(&ram), map);
    for (name, value) in map.iter().take(2000) {
        assert_eq!(ram.zap().lookup(name).unwrap().as_ref(), Some(value));
    }
    ram
}

#[test]
fn small_tables() {
    for normflags in [0, UPPER, UPPER_C] {
        let ram = model(normflags, 300, 3000, false, |n| format!("name {n}"));
        assert_eq!(ram.blocks().len(), 1);
        assert!((10_000..=20_000).contains(&ram.block_size()) && ram.block_size().is_multiple_of(512));
    }
}

#[test]
fn tables_that_become_large() {
    for normflags in [0, UPPER, 0x10, 0x20, 0x50, UPPER_C, 0x60] {
        let ram = model(normflags, 5000, 9000, false, |n| format!("Näme {n}"));
        assert_eq!(ram.block_size(), FAT_BLOCK_SIZE);
        let ram = model(normflags, 900, 6000, true, |n| format!("{} {n}", "l".repeat(n as usize % 200)));
        assert_eq!(ram.blocks()[0][88..96], normflags.to_le_bytes());
    }
}

#[test]
fn a_small_table_grows_to_its_end() {
    let ram = Ram::new(512);
    let editor = Editor::create(&ram, 0, 0, 6).unwrap();
    for n in 0..(MICRO_SIZE_MAX / 64 - 1) as u64 {
        editor.add(n.to_string().as_bytes(), &ZapValue::one(n)).unwrap();
    }
    assert_eq!((ram.block_size(), ram.blocks().len()), (MICRO_SIZE_MAX, 1));
    assert_eq!(ram.zap().info().salt, 7);
    let before = listed(&ram);
    let order = |ram: &Ram| ram.zap().entries().unwrap();
    let small = order(&ram);
    editor.set(b"5", &ZapValue::one(5)).unwrap();
    assert_eq!(ram.blocks().len(), 1);
    editor.add(b"one more", &ZapValue::one(0)).unwrap();
    assert_eq!((ram.block_size(), ram.zap().info().salt), (FAT_BLOCK_SIZE, 7));
    editor.remove(b"one more").unwrap();
    assert_eq!((order(&ram), listed(&ram)), (small, before), "the order and all cookies stay");
    check(&ram);
}

#[test]
fn what_a_small_table_cannot_hold() {
    let long = "n".repeat(50);
    for (name, value) in
        [(&long[..], ZapValue::one(1)), ("a", ZapValue::new(4, &[1])), ("a", ZapValue::new(8, &[1, 2]))]
    {
        let ram = Ram::new(512);
        let editor = Editor::create(&ram, 0, 0, SALT).unwrap();
        editor.add(&long.as_bytes()[1..], &ZapValue::one(7)).unwrap();
        assert_eq!(ram.blocks().len(), 1);
        editor.set(name.as_bytes(), &value).unwrap();
        assert_eq!(ram.blocks().len(), 2);
        assert_eq!(ram.zap().lookup(name.as_bytes()).unwrap(), Some(value));
        assert_eq!(editor.len().unwrap(), 2);
        check(&ram);
    }
}

#[test]
fn what_no_table_can_hold() {
    let ram = Ram::new(512);
    let editor = Editor::create(&ram, 0, 0, SALT).unwrap();
    let kind = |name: &[u8], value: &ZapValue| editor.set(name, value).unwrap_err().kind();
    let one = ZapValue::one(1);
    assert_eq!((kind(b"", &one), kind(b"a\0", &one)), (Kind::Invalid, Kind::Invalid));
    assert_eq!(kind(&[b'x'; 1024], &one), Kind::TooLong);
    assert_eq!(kind(b"a", &ZapValue::of_bytes(&[0; 8193])), Kind::TooBig);
    editor.set(&[b'x'; 1023], &ZapValue::of_bytes(&[0; 8192])).unwrap();
    assert_eq!(editor.add_u64_key(&[1], &one).unwrap_err().kind(), Kind::Invalid);
    check(&ram);
}

#[test]
fn numbers_that_are_counted() {
    let ram = Ram::new(512);
    let editor = Editor::create(&ram, 0, 0, SALT).unwrap();
    assert_eq!(editor.increment(b"a", 0).unwrap(), 0);
    assert_eq!(editor.increment(b"a", 5).unwrap(), 5);
    assert_eq!((editor.increment(b"a", -3).unwrap(), ram.zap().u64("a").unwrap()), (2, Some(2)));
    assert_eq!((editor.increment(b"a", -2).unwrap(), editor.is_empty().unwrap()), (0, true));
}

#[test]
fn a_hundred_thousand_names() {
    let ram = Ram::new(512);
    let editor = Editor::create(&ram, 0, 0, SALT).unwrap();
    let name = |n: u64| format!("{}-{n:06}", "long-name".repeat(9));
    for n in 0..100_000 {
        editor.add(name(n).as_bytes(), &ZapValue::one(n)).unwrap();
    }
    check(&ram);
    let touched = ram.0.modified.load(Ordering::Relaxed);
    assert!(touched < 230_000, "{touched} blocks for 100000 names");
    let header = ram.zap().info().fat.unwrap();
    assert!(header.table.blocks > 0 && header.leaves > 1000, "{header:?}");
    let zap = ram.zap();
    assert!((0..100_000).all(|n| zap.u64(&name(n)).unwrap() == Some(n)));
    assert_eq!(zap.entries().unwrap().len(), 100_000);
    (0..100_000).for_each(|n| editor.remove(name(n).as_bytes()).unwrap());
    check(&ram);
    assert!(ram.zap().is_empty() && ram.zap().entries().unwrap().is_empty());
    // and has given back all its leaves but one
    assert_eq!(ram.zap().info().fat.unwrap().leaves, 1);
    (0..100_000).for_each(|n| editor.add(name(n).as_bytes(), &ZapValue::one(n)).unwrap());
    check(&ram);
    let zap = ram.zap();
    assert!((0..100_000).all(|n| zap.u64(&name(n)).unwrap() == Some(n)));
}

#[test]
fn integer_keys() {
    for flags in [KEYED, KEYED | ZapHeader::FLAG_PRE_HASHED_KEY] {
        let ram = Ram::new(4096);
        let editor = Editor::create(&ram, flags, 0, SALT).unwrap();
        let mut random = Random(flags);
        let mut map = BTreeMap::new();
        for step in 0..20_000u64 {
            let n = random.below(6000);
            // two keys of each hash, if the first integer is that
            let key = vec![(n / 2).wrapping_mul(0x9e37_79b9_7f4a_7c15), n, 3];
            match random.below(3) {
                0 => assert_eq!(editor.remove_u64_key(&key).is_ok(), map.remove(&key).is_some()),
                1 => assert_eq!(editor.add_u64_key(&key, &ZapValue::one(step)).is_ok(), !map.contains_key(&key)),
                _ => editor.set_u64_key(&key, &ZapValue::one(step)).unwrap(),
            }
            match editor.lookup_u64_key(&key).unwrap() {
                Some(value) => drop(map.insert(key, value)),
                None => assert!(!map.contains_key(&key)),
            }
        }
        check(&ram);
        let entries = ram.zap().entries().unwrap();
        let listed: BTreeMap<_, _> = entries
            .into_iter()
            .map(|entry| match entry.name {
                ZapKey::U64s(key) => (key, entry.value),
                ZapKey::Bytes(_) => panic!("a name"),
            })
            .collect();
        assert_eq!(listed, map);
        assert_eq!(editor.add(b"name", &ZapValue::one(1)).unwrap_err().kind(), Kind::Invalid);
    }
}

#[test]
fn names_that_differ_in_case_only() {
    for fill in [10, 3000] {
        let ram = Ram::new(512);
        let editor = Editor::create(&ram, 0, UPPER_C, SALT).unwrap();
        for n in 0..fill {
            editor.add(format!("other {n}").as_bytes(), &ZapValue::one(0)).unwrap();
        }
        for (n, name) in ["README", "readme", "ReadMe", "e\u{301}tage", "\u{e9}tage"].iter().enumerate() {
            editor.add(name.as_bytes(), &ZapValue::one(n as u64)).unwrap();
            assert_eq!(editor.add(name.as_bytes(), &ZapValue::one(9)).unwrap_err().kind(), Kind::Exists);
        }
        let find =
            |name: &str| ram.zap().lookup_match(name.as_bytes(), Match::Normalized).unwrap().map(|(name, _)| name);
        assert_eq!(find("readme").unwrap(), b"README");
        assert_eq!(editor.remove_match(b"rEADME", Match::Normalized).unwrap(), b"README");
        assert_eq!(find("readme").unwrap(), b"readme");
        // the first place is free again, and taken first
        editor.add(b"README", &ZapValue::one(5)).unwrap();
        assert_eq!(find("readme").unwrap(), b"README");
        editor.remove(b"readme").unwrap();
        assert_eq!(editor.remove_match(b"readme", Match::NormalizedCase).unwrap_err().kind(), Kind::NotFound);
        assert_eq!(editor.remove_match("\u{e9}TAGE".as_bytes(), Match::Normalized).unwrap(), "e\u{301}tage".as_bytes());
        assert_eq!(editor.len().unwrap(), fill + 3);
        check(&ram);
    }
}

#[test]
fn names_of_doubtful_form() {
    for fill in [1, 3000] {
        let ram = Ram::new(512);
        let editor = Editor::create(&ram, 0, 0x10, SALT).unwrap();
        for n in 0..fill {
            editor.add(format!("other {n}").as_bytes(), &ZapValue::one(0)).unwrap();
        }
        let name = "Vie\u{323}\u{302}t".as_bytes();
        assert_eq!(editor.add(name, &ZapValue::one(1)).unwrap_err().kind(), Kind::Unsupported);
        assert_eq!(editor.remove(name).unwrap_err().kind(), Kind::NotFound);
        assert_eq!(editor.len().unwrap(), fill);
    }
}

#[test]
fn a_doubtful_name_is_changed_where_it_is() {
    // Entered by a table that knows of no forms, so under another hash than its own.
    let ram = Ram::new(512);
    let editor = Editor::create(&ram, 0, 0, SALT).unwrap();
    let name = "Vie\u{323}\u{302}t".as_bytes();
    editor.add(name, &ZapValue::new(1, &[1])).unwrap();
    ram.modify(0, &mut |block| {
        block[88] = 0x50; // normflags
        Ok(())
    })
    .unwrap();
    editor.set(name, &ZapValue::new(1, &[2])).unwrap();
    assert_eq!(editor.add(name, &ZapValue::one(1)).unwrap_err().kind(), Kind::Exists);
    assert_eq!((editor.lookup(name).unwrap(), editor.len().unwrap()), (Some(ZapValue::new(1, &[2])), 1));
    editor.remove(name).unwrap();
    assert!(editor.is_empty().unwrap());
}

#[test]
fn hashes_that_cannot_be_told_apart() {
    let ram = Ram::new(4096);
    let flags = KEYED | ZapHeader::FLAG_PRE_HASHED_KEY;
    let editor = Editor::create(&ram, flags, 0, SALT).unwrap();
    let mut added = 0;
    let error = loop {
        match editor.add_u64_key(&[0xabcd << 48, added], &ZapValue::one(added)) {
            Ok(()) => added += 1,
            Err(e) => break e,
        }
    };
    assert_eq!((error.kind(), added > 30, ram.blocks().len() < 600), (Kind::NoSpace, true, true));
    check(&ram);
    assert_eq!(ram.zap().entries().unwrap().len() as u64, added);
    editor.add_u64_key(&[0x1234 << 48], &ZapValue::one(1)).unwrap();
}

#[test]
fn growth_that_another_writer_began() {
    let ram = Ram::new(512);
    let flags = KEYED;
    let editor = Editor::create(&ram, flags, 0, SALT).unwrap();
    let mut n = 0;
    let mut add = || {
        editor.add_u64_key(&[n], &ZapValue::one(n)).unwrap();
        n += 1;
    };
    let header = || ram.zap().info().fat.unwrap();
    while header().table.blocks < 2 {
        add();
    }
    // the first of the table's blocks has been copied, badly
    let mut begun = header();
    (begun.table.next_block, begun.table.blocks_copied) = (begun.free_block, 1);
    begun.free_block += begun.table.blocks * 2;
    ram.modify(0, &mut |block| {
        begun.store(block);
        Ok(())
    })
    .unwrap();
    while header().table.next_block != 0 {
        add();
    }
    let now = header();
    assert_eq!((now.table.block, now.table.blocks), (begun.table.next_block, begun.table.blocks * 2));
    check(&ram);
    (0..500).for_each(|_| add());
    check(&ram);
    assert_eq!(ram.zap().entries().unwrap().len() as u64, n);
}

#[test]
fn damage_is_an_error() {
    let sound = Ram::new(512);
    let editor = Editor::create(&sound, ZapHeader::FLAG_HASH64, 0, SALT).unwrap();
    (0..300u64).for_each(|n| editor.add(n.to_string().as_bytes(), &ZapValue::one(n)).unwrap());
    let mut random = Random(1);
    let mut failed = 0;
    for _ in 0..1500 {
        let ram = Ram::new(512);
        let blocks = sound.blocks();
        let used = blocks.len().min(12) as u64;
        *ram.0.blocks.lock() = blocks;
        ram.0.compares.store(true, Ordering::Relaxed);
        let (at, byte) = (random.below(512) as usize, random.below(256) as u8);
        let at = if random.below(2) == 0 { at % 104 } else { at };
        ram.modify(random.below(used), &mut |block| {
            block[at] = byte;
            Ok(())
        })
        .unwrap();
        let editor = Editor::new(&ram);
        for n in 0..40u64 {
            let (old, new) = (random.below(300).to_string(), (1000 + n).to_string());
            let results = [
                editor.add(new.as_bytes(), &ZapValue::one(n)),
                editor.set(old.as_bytes(), &ZapValue::new(8, &vec![n; n as usize % 20])),
                editor.remove(old.as_bytes()),
            ];
            failed += results.iter().filter(|result| result.is_err()).count();
        }
    }
    assert!(failed > 1000, "{failed}");
}
