//! What is changed in a pool: fields of known structures take values that somebody hostile would give them.

mod scan_entry;

use format::blkptr::{BlkPtr, Dva};
use format::dnode::{Dnode, SLOT_SIZE};
use format::ids::{DatasetId, ObjectId, Txg, VdevNumber};
use format::nvlist::{NvList, Value};
use format::object_type::{ObjectType, SwapClass};
use format::scan::ScanPhys;
use format::zap::{LeafMut, Micro, MicroEntry, MicroMut, NewLeafEntry, ZapHeader, ZapLeaf, ZapPosition, hash_name};
use testkit::rng::Rng;
use testkit::seal::{AtlasPlace, Forge, MOS, Role};

use super::base_pools::BasePool;
use super::finding::Reach;
use super::work;

/// Names that a directory or a dataset must not have, and some that it may.
const NAMES: [&[u8]; 14] = [
    b"..",
    b".",
    b"a/b",
    b"../../x",
    b"/",
    b"kid",
    b"deep",
    b"n1",
    b"n2",
    b"\x1b[2J",
    b"\xff\xfe",
    b"@",
    b"a@b",
    b"%recv",
];
/// What `mountpoint` may say.
const MOUNTPOINTS: [&str; 9] =
    ["/../../../../victim", "/..", "/a/../../b", "..", "/", "/srv/./x", "legacy", "/kid/../../../x", "/\u{1b}[2J"];

/// Changes some fields. Tells how far that may reach, and what it was.
pub(super) fn alter(base: &BasePool, forge: &mut Forge<'_>, rng: &mut Rng) -> (Reach, Vec<String>) {
    let mut reach = Reach::Nothing;
    let mut told = Vec::new();
    let count = [0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 5][rng.below(12) as usize];
    for _ in 0..count {
        if let Some((further, what)) = one(base, forge, rng) {
            reach = reach.max(further);
            told.push(what);
        }
    }
    (reach, told)
}

fn one(base: &BasePool, forge: &mut Forge<'_>, rng: &mut Rng) -> Option<(Reach, String)> {
    match rng.below(21) {
        20 => scan(base, forge, rng),
        0 => uberblock(base, forge, rng),
        1 => label(base, forge, rng),
        2 => dataset_text(base, forge, rng),
        3 | 4 => crowd(base, forge, rng),
        5 => directory(base, forge, rng),
        6..9 => dnode(base, forge, rng),
        9..11 => bonus(base, forge, rng),
        _ => {
            let group = rng.pick(&base.groups);
            let block = *rng.pick(group);
            in_block(base, forge, block, rng)
        }
    }
}

/// How far a change of the contents of a block reaches.
fn reach_of(base: &BasePool, block: usize) -> Reach {
    let block = &base.atlas.blocks()[block];
    let is_plain = block.objset != MOS && Some(block.objset) != base.witness && block.object.is_some();
    // the table knows a deduplicated block by its checksum, and with other contents no more
    let is_contents = matches!(block.role, Role::Data | Role::Spill)
        && block.object < ObjectId::new(u64::MAX - 2)
        && !block.bp.is_dedup();
    if is_plain && is_contents { Reach::Contents } else { Reach::Anything }
}

/// A value that is at a border of something, or nearly what was there.
fn odd(base: &BasePool, rng: &mut Rng, old: u64) -> u64 {
    let power = 1u64 << rng.below(64);
    match rng.below(16) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => i64::MAX as u64,
        4..6 => power,
        6 => power - 1,
        7 => power.wrapping_neg(),
        8 => old.wrapping_add(1),
        9 => old.wrapping_sub(1),
        10 => old ^ power,
        11 => old.wrapping_mul(2),
        12 => rng.pick(&base.objects).1.get(),
        13 => rng.pick(&base.objects).0.get(),
        14 => rng.below(300),
        _ => rng.number(),
    }
}

fn uberblock(base: &BasePool, forge: &mut Forge<'_>, rng: &mut Rng) -> Option<(Reach, String)> {
    let value = odd(base, rng, forge.uberblock_mut().txg.get());
    let uberblock = forge.uberblock_mut();
    let field = rng.below(7);
    match field {
        0 => uberblock.version = *rng.pick(&[1, 6, 15, 28, 5000]),
        1 => uberblock.txg = Txg::new(value),
        2 => uberblock.guid_sum = value,
        3 => uberblock.timestamp_s = value,
        4 => uberblock.checkpoint_txg = Txg::new(value),
        5 => uberblock.raidz_reflow = value,
        _ => {
            let mut raw = uberblock.rootbp.raw().to_vec();
            let what = pointer(base, &mut raw, rng);
            uberblock.rootbp = BlkPtr::parse(&raw)?;
            return Some((Reach::Anything, format!("root pointer: {what}")));
        }
    }
    Some((Reach::Anything, format!("uberblock field {field} = {value:#x}")))
}

fn label(base: &BasePool, forge: &mut Forge<'_>, rng: &mut Rng) -> Option<(Reach, String)> {
    let devices: Vec<usize> = base.atlas.labels().map(|(number, _)| number).collect();
    let device = *rng.pick(&devices);
    let mut told = String::new();
    forge.change_label(device, |list| told = in_list(base, list, rng, 0));
    Some((Reach::Anything, format!("label {device}: {told}")))
}

/// Changes a value somewhere in a list.
fn in_list(base: &BasePool, list: &mut NvList, rng: &mut Rng, depth: usize) -> String {
    let names: Vec<(String, Value)> = list.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect();
    if names.is_empty() {
        return "nothing".into();
    }
    let (name, value) = rng.pick(&names).clone();
    let (changed, told) = match value {
        Value::List(mut below) if depth < 8 => {
            let told = in_list(base, &mut below, rng, depth + 1);
            (Value::List(below), told)
        }
        Value::Lists(mut below) if depth < 8 && !below.is_empty() => match rng.below(6) {
            0 => {
                let again = rng.pick(&below).clone();
                below.push(again);
                (Value::Lists(below), "one more".into())
            }
            1 => {
                below.pop();
                (Value::Lists(below), "one less".into())
            }
            _ => {
                let number = rng.below(below.len() as u64) as usize;
                let told = in_list(base, &mut below[number], rng, depth + 1);
                (Value::Lists(below), told)
            }
        },
        Value::U64(old) => {
            let value = odd(base, rng, old);
            (Value::U64(value), format!("{value:#x}"))
        }
        Value::Str(_) => {
            let text = String::from_utf8_lossy(rng.pick::<&[u8]>(&NAMES)).into_owned();
            (Value::Str(text.clone()), text)
        }
        Value::U64s(mut words) if !words.is_empty() => {
            let number = rng.below(words.len() as u64) as usize;
            words[number] = odd(base, rng, words[number]);
            (Value::U64s(words), "an item".into())
        }
        _ => (Value::U64(rng.number()), "another type".into()),
    };
    list.set(&name, changed);
    format!("{name} {told}")
}

/// A name or a mountpoint of a dataset.
fn dataset_text(base: &BasePool, forge: &mut Forge<'_>, rng: &mut Rng) -> Option<(Reach, String)> {
    let atlas = &base.atlas;
    let dirs: Vec<ObjectId> = base.objects.iter().filter(|(set, _)| *set == MOS).map(|(_, object)| *object).collect();
    let dir = |object: &ObjectId| {
        let dnode = atlas.dnode(MOS, *object)?;
        (dnode.bonus_type == ObjectType::DSL_DIR).then(|| format::dsl::DirPhys::parse(&dnode.bonus).ok())?
    };
    let dirs: Vec<format::dsl::DirPhys> = dirs.iter().filter_map(dir).collect();
    let picked = (0..8).map(|_| rng.pick(&dirs).clone()).collect::<Vec<_>>();
    if rng.below(2) == 0 {
        let text = *rng.pick(&MOUNTPOINTS);
        let value = [text.as_bytes(), &[0]].concat();
        picked.iter().find(|dir| {
            dir.props_zap.is_some() && forge.set_entry(MOS, dir.props_zap, b"mountpoint", 1, &value).is_ok()
        })?;
        return Some((Reach::Anything, format!("mountpoint {text:?}")));
    }
    let new = *rng.pick(&NAMES);
    for dir in &picked {
        let names = names_in(base, forge, MOS, dir.child_zap);
        let names: Vec<_> = names.iter().filter(|name| !name.starts_with(b"$") && **name != *b"witness").collect();
        if names.is_empty() {
            continue;
        }
        let old = rng.pick(&names).to_vec();
        forge.rename_entry(MOS, dir.child_zap, &old, new).ok()?;
        return Some((Reach::Anything, format!("dataset {} is {}", old.escape_ascii(), new.escape_ascii())));
    }
    None
}

/// The names in a ZAP.
fn names_in(base: &BasePool, forge: &Forge<'_>, objset: DatasetId, object: ObjectId) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    for block in base.atlas.data(objset, object) {
        let contents = forge.contents(block);
        if let Ok(micro) = Micro::parse(contents) {
            names.extend(micro.entries().map(|entry| entry.name.to_vec()));
        } else if let Ok(leaf) = ZapLeaf::parse(contents) {
            let entries = leaf.entries().unwrap_or_default();
            names.extend(entries.iter().filter_map(|entry| leaf.name(entry).ok()));
        }
    }
    names
}

/// The objects of a kind that are worked on: not those of the witness.
fn objects_of(base: &BasePool, is_wanted: &dyn Fn(&Dnode) -> bool) -> Vec<(DatasetId, ObjectId)> {
    let others = base.objects.iter().filter(|(set, _)| Some(*set) != base.witness);
    others
        .filter(|(set, object)| base.atlas.dnode(*set, *object).is_some_and(|dnode| is_wanted(&dnode)))
        .copied()
        .collect()
}

/// An entry of a directory.
fn directory(base: &BasePool, forge: &mut Forge<'_>, rng: &mut Rng) -> Option<(Reach, String)> {
    let dirs = objects_of(base, &|dnode| dnode.object_type == ObjectType::DIRECTORY_CONTENTS);
    if dirs.is_empty() {
        return None;
    }
    let (set, dir) = *rng.pick(&dirs);
    let names = names_in(base, forge, set, dir);
    if names.is_empty() {
        return None;
    }
    let old = rng.pick(&names).clone();
    let told = match rng.below(3) {
        0 => {
            let new = rng.pick(&NAMES).to_vec();
            forge.rename_entry(set, dir, &old, &new).ok()?;
            format!("is called {}", new.escape_ascii())
        }
        1 => {
            let new = rng.pick(&names).clone();
            forge.rename_entry(set, dir, &old, &new).ok()?;
            format!("is called {}, too", new.escape_ascii())
        }
        _ => {
            let inos: Vec<ObjectId> =
                base.objects.iter().filter(|(other, _)| *other == set).map(|(_, ino)| *ino).collect();
            let ino = if rng.below(4) == 0 { odd(base, rng, dir.get()) } else { rng.pick(&inos).get() };
            let value = *rng.pick(&[4u64, 8, 10, 6, 0, 15]) << 60 | ino & (1 << 60) - 1;
            forge.set_entry(set, dir, &old, 8, &value.to_be_bytes()).ok()?;
            format!("leads to {value:#x}")
        }
    };
    Some((Reach::Contents, format!("set {set} directory {dir}: {} {told}", old.escape_ascii())))
}

/// Fills a leaf of a directory with nothing but entries whose hash is that of a name that will be made, so that no split parts
/// them, and lets the header say that such a table may be large.
fn crowd(base: &BasePool, forge: &mut Forge<'_>, rng: &mut Rng) -> Option<(Reach, String)> {
    let dirs = objects_of(base, &|dnode| dnode.object_type == ObjectType::DIRECTORY_CONTENTS);
    let is_fat = |place: &&(DatasetId, ObjectId)| {
        let first = base.atlas.block(place.0, place.1, 0, 0);
        first.is_some_and(|block| ZapHeader::parse(&base.atlas.blocks()[block].contents).is_ok())
    };
    let fat: Vec<_> = dirs.iter().filter(is_fat).copied().collect();
    if fat.is_empty() {
        return None;
    }
    let (set, dir) = *rng.pick(&fat);
    let head = base.atlas.block(set, dir, 0, 0)?;
    let header = ZapHeader::parse(forge.contents(head)).ok()?;
    let name = work::long_name(rng);
    let hash = hash_name(header.salt, header.flags, &name);
    let leaves = *rng.pick(&[header.leaves, 1 << 62, 1 << 20, u64::MAX, 0]);
    forge.put_u64(AtlasPlace { block: head, at: 64 }, leaves);
    if rng.below(2) == 0 {
        // 48 bits of hashes count from now on
        forge.put_u64(AtlasPlace { block: head, at: 96 }, header.flags | ZapHeader::FLAG_HASH64);
    }
    for block in base.atlas.data(set, dir) {
        let Ok(leaf) = LeafMut::parse(forge.contents_mut(block)) else { continue };
        if !leaf.as_leaf().covers(hash) {
            continue;
        }
        // others would make room when the leaf is split
        let (prefix, bits) = (leaf.as_leaf().prefix(), leaf.as_leaf().prefix_bits());
        let mut leaf = LeafMut::init(forge.contents_mut(block), prefix, bits, false);
        let key = [&b"c".repeat(120)[..], &[0]].concat();
        for cd in 1000.. {
            let position = ZapPosition { hash, cd };
            let record =
                NewLeafEntry { position, key: &key, key_len: key.len() as u16, width: 8, value: &7u64.to_be_bytes() };
            if cd == 5000 || !leaf.insert(&record).ok()? {
                break;
            }
        }
    }
    Some((Reach::Contents, format!("set {set} directory {dir}: a crowd at {hash:#x}, {leaves:#x} leaves")))
}

/// A scan is under way, and is where it cannot be.
fn scan(base: &BasePool, forge: &mut Forge<'_>, rng: &mut Rng) -> Option<(Reach, String)> {
    let txg = base.atlas.uberblock().txg.get();
    let mut words = [0; ScanPhys::WORDS];
    (words[0], words[1], words[4], words[6]) = (1 + rng.below(2), 1, txg, txg);
    // its queue, and the dataset that it is in
    for at in [2, 19] {
        words[at] = if rng.below(2) == 0 { rng.pick(&base.objects).1.get() } else { 0 };
    }
    for _ in 0..rng.below(4) {
        let at = rng.below(words.len() as u64) as usize;
        words[at] = odd(base, rng, words[at]);
    }
    scan_entry::put(base, forge, &words).then(|| (Reach::Anything, format!("a scan: {words:x?}")))
}

/// A field of a dnode.
fn dnode(base: &BasePool, forge: &mut Forge<'_>, rng: &mut Rng) -> Option<(Reach, String)> {
    let (set, object) = *rng.pick(&base.objects);
    let place = base.atlas.dnode_place(set, object)?;
    let dnode = base.atlas.dnode(set, object)?;
    let field = rng.below(14);
    let put = |forge: &mut Forge<'_>, at: usize, bytes: &[u8]| {
        forge.put(AtlasPlace { block: place.block, at: place.at + at }, bytes);
        format!("{bytes:?} at {at}")
    };
    let byte = *rng.pick(&[0, 1, 2, 3, 4, 5, 8, 9, 10, 19, 20, 24, 31, 44, 63, 64, 127, 128, 196, 255]);
    let told = match field {
        0..8 => put(forge, field as usize, &[byte]),
        8 | 9 => {
            let word = odd(base, rng, dnode.block_size >> 9) as u16;
            put(forge, field as usize * 2 - 8, &word.to_le_bytes())
        }
        10 => put(forge, 12, &[byte]),
        11 => put(forge, 16, &odd(base, rng, dnode.block_max).to_le_bytes()),
        12 => put(forge, 24, &odd(base, rng, dnode.used_bytes).to_le_bytes()),
        _ => {
            // another object takes its place
            let other = *rng.pick(&base.objects);
            let from = base.atlas.dnode_place(other.0, other.1)?;
            let bytes = base.atlas.blocks()[from.block].contents.get(from.at..from.at + SLOT_SIZE)?.to_vec();
            put(forge, 0, &bytes);
            format!("is set {} object {}", other.0, other.1)
        }
    };
    Some((Reach::Anything, format!("dnode of set {set} object {object} {}: {told}", dnode.object_type)))
}

/// A word of a bonus buffer.
fn bonus(base: &BasePool, forge: &mut Forge<'_>, rng: &mut Rng) -> Option<(Reach, String)> {
    let with = base.with_bonus.iter().nth(rng.below(base.with_bonus.len() as u64) as usize)?.1;
    let (set, object) = *rng.pick(with);
    let place = base.atlas.bonus_place(set, object)?;
    let dnode = base.atlas.dnode(set, object)?;
    let at = place.at + rng.below(dnode.bonus.len() as u64) as usize / 8 * 8;
    let old = word_at(forge.contents(place.block), at);
    let value = odd(base, rng, old);
    let len = *rng.pick(&[1, 2, 4, 8, 8, 8]);
    let len = len.min(place.at + dnode.bonus.len() - at);
    forge.put(AtlasPlace { block: place.block, at }, &value.to_le_bytes()[..len]);
    let is_contents = set != MOS && Some(set) != base.witness && dnode.bonus_type == ObjectType::SA;
    let reach = if is_contents { Reach::Contents } else { Reach::Anything };
    Some((reach, format!("bonus of set {set} object {object} {}: {value:#x} at {}", dnode.bonus_type, at - place.at)))
}

fn word_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("8 bytes")))
}

/// Something in a block, by what it is.
fn in_block(base: &BasePool, forge: &mut Forge<'_>, number: usize, rng: &mut Rng) -> Option<(Reach, String)> {
    let block = &base.atlas.blocks()[number];
    let reach = reach_of(base, number);
    let is_zap = block.role == Role::Data && block.object_type().swap_class() == Some(SwapClass::Zap);
    let contents = forge.contents_mut(number);
    let told = match block.role {
        Role::Indirect if rng.below(4) == 0 => braid(contents),
        Role::Indirect => {
            let at = rng.below((contents.len() / BlkPtr::SIZE) as u64) as usize;
            // most are holes: those at the start are not
            let at = if rng.below(2) == 0 { at % 4 } else { at };
            pointer(base, &mut contents[at * BlkPtr::SIZE..][..BlkPtr::SIZE], rng)
        }
        Role::Dnodes if rng.below(2) == 0 => {
            let slot = rng.below((contents.len() / SLOT_SIZE) as u64) as usize * SLOT_SIZE;
            pointer(base, &mut contents[slot + 64..][..BlkPtr::SIZE], rng)
        }
        Role::Objset if rng.below(2) == 0 => pointer(base, &mut contents[512 + 16..][..BlkPtr::SIZE], rng),
        Role::Log if rng.below(3) == 0 => pointer(base, &mut contents[8..][..BlkPtr::SIZE], rng),
        _ if is_zap && rng.below(2) == 0 => zap(base, contents, rng)?,
        _ if block.object_type() == ObjectType::PACKED_NVLIST && rng.below(4) > 0 => {
            let mut list = NvList::unpack(contents).ok()?;
            let told = in_list(base, &mut list, rng, 0);
            let packed = list.pack();
            contents.get_mut(..packed.len())?.copy_from_slice(&packed);
            told
        }
        _ => words(base, contents, rng),
    };
    let (role, kind) = (block.role, block.object_type());
    let place = format!("set {} object {} level {} block {}", block.objset, block.object, block.level, block.blkid);
    Some((reach, format!("{role:?} {kind} ({place}): {told}")))
}

/// One or a few words of which nothing is known, rather those that are not zero.
fn words(base: &BasePool, bytes: &mut [u8], rng: &mut Rng) -> String {
    let used: Vec<usize> = (0..bytes.len() / 8).filter(|&at| word_at(bytes, at * 8) != 0).collect();
    let mut told = Vec::new();
    for _ in 0..*rng.pick(&[1, 1, 1, 2, 8]) {
        let any = rng.below((bytes.len() / 8).max(1) as u64) as usize;
        let at = if used.is_empty() || rng.below(4) == 0 { any } else { *rng.pick(&used) } * 8;
        let len = *rng.pick(&[1, 2, 4, 8, 8, 8]);
        let skip = if len < 8 { rng.below(8 / len) * len } else { 0 } as usize;
        let value = odd(base, rng, word_at(bytes, at));
        let range = at + skip..at + skip + len as usize;
        if let Some(place) = bytes.get_mut(range.clone()) {
            place.copy_from_slice(&value.to_le_bytes()[..len as usize]);
            told.push(format!("{value:#x} at {range:?}"));
        }
    }
    told.join(", ")
}

/// All pointers of a block lead to where its first one does: more ways than blocks.
fn braid(contents: &mut [u8]) -> String {
    let first = BlkPtr::slice(contents).iter().position(|bp| !bp.is_hole()).unwrap_or(0) * BlkPtr::SIZE;
    let first = contents[first..first + BlkPtr::SIZE].to_vec();
    contents.chunks_exact_mut(BlkPtr::SIZE).for_each(|place| place.copy_from_slice(&first));
    "all pointers lead to one block".into()
}

/// A block pointer, in its 128 bytes.
fn pointer(base: &BasePool, raw: &mut [u8], rng: &mut Rng) -> String {
    let blocks = base.atlas.blocks();
    let other = blocks[rng.below(blocks.len() as u64) as usize].bp;
    let old = BlkPtr::parse(raw).expect("128 bytes");
    let mut put = |word: usize, value: u64| raw[word * 8..][..8].copy_from_slice(&value.to_le_bytes());
    match rng.below(10) {
        0..3 => {
            // a block of the same kind is more likely to be believed
            let alike: Vec<&BlkPtr> = blocks
                .iter()
                .map(|block| &block.bp)
                .filter(|bp| (bp.object_type(), bp.level()) == (old.object_type(), old.level()))
                .collect();
            let chosen = if alike.is_empty() || rng.below(3) == 0 { other } else { **rng.pick(&alike) };
            raw.copy_from_slice(chosen.raw());
            format!("leads to {chosen:?}")
        }
        3 => {
            raw.fill(0);
            "is a hole".into()
        }
        4 => {
            let dva = old.dvas()[0];
            let value = odd(base, rng, dva.offset());
            let field = rng.below(4);
            let dva = match field {
                0 => Dva::new(VdevNumber::new(value), dva.offset(), dva.asize(), false),
                1 => Dva::new(dva.vdev(), value, dva.asize(), false),
                2 => Dva::new(dva.vdev(), dva.offset(), value, false),
                _ => Dva::new(dva.vdev(), dva.offset(), dva.asize(), true),
            };
            let [first, second] = dva.words();
            put(0, first);
            put(1, second);
            format!("lies at {dva:?}")
        }
        5 => {
            let value = old.prop() ^ 1 << rng.below(64);
            put(6, value);
            format!("property word {value:#x}")
        }
        6 => {
            let value = odd(base, rng, old.prop() & 0xffff_ffff) & 0xffff_ffff | old.prop() & !0xffff_ffff;
            put(6, value);
            format!("property word {value:#x}")
        }
        7 => {
            let value = odd(base, rng, old.birth().get());
            put(*rng.pick(&[9, 10]), value);
            format!("born in {value:#x}")
        }
        8 => {
            let value = odd(base, rng, old.fill());
            put(11, value);
            format!("fill {value:#x}")
        }
        _ => {
            let (word, value) = (rng.below(16) as usize, rng.number());
            put(word, value);
            format!("word {word} = {value:#x}")
        }
    }
}

/// A field of a ZAP's block.
fn zap(base: &BasePool, contents: &mut [u8], rng: &mut Rng) -> Option<String> {
    if ZapHeader::parse(contents).is_ok() {
        let half = contents.len() / 2;
        let at = if rng.below(3) == 0 {
            half + rng.below((half / 8) as u64) as usize * 8
        } else {
            rng.below(13) as usize * 8
        };
        let value = odd(base, rng, word_at(contents, at));
        contents[at..at + 8].copy_from_slice(&value.to_le_bytes());
        return Some(format!("header word {} = {value:#x}", at / 8));
    }
    if ZapLeaf::parse(contents).is_ok() {
        let chunks = 48 + contents.len() / 16;
        let at = match rng.below(3) {
            0 => rng.below(48),
            1 => 48 + rng.below((contents.len() / 16) as u64),
            _ => (chunks + rng.below(60) as usize * 24) as u64 + rng.below(24),
        } as usize;
        let value = odd(base, rng, contents[at].into()) as u8;
        contents[at] = value;
        return Some(format!("leaf byte {at} = {value}"));
    }
    let micro = Micro::parse(contents).ok()?;
    let used: Vec<usize> = (0..micro.slots()).filter(|&slot| micro.entry(slot).is_some()).collect();
    if used.is_empty() {
        return None;
    }
    let slot = *rng.pick(&used);
    let entry = micro.entry(slot)?;
    let (name, value) = (entry.name.to_vec(), entry.value);
    let other = micro.entry(*rng.pick(&used))?.name.to_vec();
    let (new, value, cd) = match rng.below(4) {
        0 => (rng.pick(&NAMES).to_vec(), value, entry.cd),
        1 => (other, value, entry.cd),
        2 => (name.clone(), value, odd(base, rng, entry.cd.into()) as u32),
        _ => (name.clone(), odd(base, rng, value), entry.cd),
    };
    let told = format!("{} is {}, {value:#x}, {cd}", name.escape_ascii(), new.escape_ascii());
    MicroMut::parse(contents).ok()?.put(slot, &MicroEntry { name: &new, value, cd });
    Some(told)
}
