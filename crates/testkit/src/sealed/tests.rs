use std::ops::ControlFlow;

use base::{AlignedBuf, Env, Kind};
use codec::checksum::{Checksum, compute};
use codec::compress::{Compress, compress};
use codec::seal::SecretBytes;
use device::Device;
use dmu::Cache;
use format::ids::Guid;
use format::object_type::ObjectType;
use format::sealing::{SealVersion, spans_of_dnodes};
use zio::{Keys, OnFailure, SetKeys};

use super::*;
use crate::seal::{Atlas, Forge, MOS};
use crate::{corpus, survey};

/// Bytes in front of what addresses count from.
const LABELS: u64 = 4 << 20;

/// A pool of the corpus, its device, and its encrypted sets.
struct World {
    case: Case,
    device: Arc<dyn Device>,
    pool: Pool,
}

impl World {
    fn of(case: &str) -> World {
        let case = corpus::case(case);
        let device = corpus::as_devices(&case.load()).remove(0);
        let pool = survey::open(std::slice::from_ref(&device), &Env::fixed(0)).unwrap();
        World { case, device, pool }
    }

    fn objset(&self, name: &str) -> (Arc<Objset>, Arc<SetOfKeys>) {
        let dataset = self.pool.dsl().find(name).unwrap();
        let keys = keys(&self.case, &self.pool, &dataset).unwrap();
        (self.pool.dsl().sealed_objset(&dataset, keys.clone()).unwrap(), keys)
    }

    /// The bytes of a block on disk.
    fn stored(&self, bp: &BlkPtr) -> AlignedBuf {
        let mut bytes = AlignedBuf::zeroed(bp.psize() as usize);
        self.device.read_at(LABELS + bp.dvas()[0].offset(), &mut bytes).unwrap();
        bytes
    }

    fn store(&self, bp: &BlkPtr, bytes: &[u8]) {
        bp.copies().for_each(|dva| self.device.write_at(LABELS + dva.offset(), bytes).unwrap());
    }
}

fn cases() -> impl Iterator<Item = World> {
    ["encrypted", "zilcrypt", "send"].into_iter().map(World::of)
}

/// The same pointer, for these bytes: with their checksum, and the MAC that it had.
fn leading_to(bp: &BlkPtr, bytes: &[u8]) -> BlkPtr {
    let kind = Checksum::from_u8(bp.checksum_kind()).unwrap();
    let sum = compute(kind, bp.endian(), &[0; 32], bytes);
    let mut raw = bp.raw().to_vec();
    let words = match bp.object_type() {
        ObjectType::OBJSET => sum.to_vec(),
        _ => kind.cut_for_mac(sum).to_vec(),
    };
    words.iter().zip(raw[96..].chunks_exact_mut(8)).for_each(|(word, raw)| raw.copy_from_slice(&word.to_le_bytes()));
    BlkPtr::parse(&raw).unwrap()
}

fn flipped(bp: &BlkPtr, bit: usize) -> BlkPtr {
    let mut raw = bp.raw().to_vec();
    raw[bit / 8] ^= 1 << (bit % 8);
    BlkPtr::parse(&raw).unwrap()
}

/// Past the cache: sums of bytes with and without a change may be the same, as they are cut for MACs.
fn read(cache: &Cache, block: &SealedBlock) -> Result<Vec<u8>> {
    let read = cache.zio().read_whole(&[block.request()], cache.keys(), OnFailure::Fail).remove(0);
    read.map(|contents| contents.data.to_vec())
}

fn get(cache: &Cache, block: &SealedBlock, keep: Keep) -> Result<Vec<u8>> {
    cache.get(block.request(), keep).map(|block| block.to_vec())
}

/// What is refused is refused with its place, and as what it is.
#[track_caller]
fn refused(what: Result<Vec<u8>>, block: &SealedBlock, kinds: &[Kind], how: &str) {
    let error = what.map(|bytes| bytes.len()).expect_err(&format!("{how}: {block:?}"));
    assert!(kinds.contains(&error.kind()), "{how}: {error}: {block:?}");
    assert_eq!(error.place().bookmark, Some(block.bookmark), "{how}: {error}");
}

/// Which bytes of a block no change of may go unnoticed: a few of each that are sealed or authenticated. Pointers
/// to blocks below are authenticated without addresses and births.
fn watched(block: &SealedBlock, stored: &[u8]) -> Vec<usize> {
    match block.bp.object_type() {
        _ if block.bp.level() > 0 => Vec::new(),
        // levels, last block, MAC of the first pointer; kind; the portable MAC
        ObjectType::OBJSET => vec![2, 16, 64 + 113, 704, 720, 751],
        ObjectType::DNODE => {
            let mut at = vec![0, 2, 12, 16, 64 + 112, 64 + 127];
            // bonus buffers, with what is behind them; at the ends of others, MACs of spill blocks
            let spans = spans_of_dnodes(stored, block.bp.endian(), SealVersion::One).unwrap();
            at.extend(spans.sealed.iter().flat_map(|span| [span.start, span.end - 1]));
            at.extend((0..stored.len() / SLOT_SIZE).map(|slot| slot * SLOT_SIZE + 500));
            at
        }
        _ => vec![0, 1, stored.len() / 2, stored.len() - 1],
    }
}

/// All blocks of all encrypted sets are read; a bit changed anywhere in what is sealed or authenticated is an error with
/// its place, though the checksum is right.
#[test]
fn changed_bytes_are_found_at_every_level() {
    let (mut sets, mut blocks, mut levels) = (0, [0usize; 4], 0);
    for world in cases() {
        for dataset in datasets(&world.pool).unwrap() {
            let (objset, _) = world.objset(&dataset.name);
            sets += 1;
            for block in super::blocks(&objset).unwrap() {
                let kind = match block.bp.object_type() {
                    _ if block.bp.level() > 0 => 0,
                    ObjectType::OBJSET => 1,
                    _ if block.bp.is_encrypted() => 2,
                    _ => 3,
                };
                blocks[kind] += 1;
                levels = levels.max(block.bp.level());
                let stored = world.stored(&block.bp);
                for at in watched(&block, &stored) {
                    let mut bytes = stored.to_vec();
                    bytes[at] ^= 0x10;
                    world.store(&block.bp, &bytes);
                    let changed = SealedBlock { bp: leading_to(&block.bp, &bytes), ..block };
                    let what = read(objset.cache(), &changed);
                    refused(what, &changed, &[Kind::Checksum, Kind::Corrupt], &format!("byte {at}"));
                }
                world.store(&block.bp, &stored);
                // MAC; salt and vector
                let sealed = [256, 319, 320, 383, 11 * 64 + 32, 11 * 64 + 63];
                let mac = if kind == 1 { &[][..] } else { &[14 * 64, 15 * 64 + 63] };
                let bits = mac.iter().chain(sealed.iter().filter(|_| kind == 2));
                for &bit in bits {
                    let changed = SealedBlock { bp: flipped(&block.bp, bit), ..block };
                    let what = read(objset.cache(), &changed);
                    refused(what, &changed, &[Kind::Checksum], &format!("bit {bit} of the pointer"));
                }
            }
        }
    }
    println!("{sets} sets; blocks: indirect, heads, sealed, authenticated: {blocks:?}; {levels} levels");
    assert!(sets >= 15 && blocks.iter().all(|&count| count >= 15) && levels > 0, "{sets} {blocks:?}");
}

/// In an indirect block: the MAC, size, type and place of each pointer; not its address.
#[test]
fn sums_of_macs_need_no_key() {
    let world = World::of("encrypted");
    let mut checked = 0;
    for dataset in datasets(&world.pool).unwrap() {
        let (objset, _) = world.objset(&dataset.name);
        let locked = world.pool.dsl().objset(&dataset, Mode::Raw).unwrap();
        for block in super::blocks(&objset).unwrap().iter().filter(|block| block.bp.level() > 0) {
            let contents = read(objset.cache(), block).unwrap();
            let shape = Compressed::of(&block.bp);
            let some = contents.chunks_exact(128).position(|bp| bp.iter().any(|&byte| byte != 0)).unwrap() * 128;
            for (at, counts) in [(112, true), (127, true), (48, true), (54, true), (8, false), (80, false), (96, false)]
            {
                let mut changed = contents.clone();
                changed[some + at] ^= 1;
                let Some(bytes) = shape.packed(&changed) else { continue };
                let stored = world.stored(&block.bp);
                world.store(&block.bp, &bytes);
                let changed = SealedBlock { bp: leading_to(&block.bp, &bytes), ..*block };
                for set in [&objset, &locked] {
                    let what = read(set.cache(), &changed);
                    match counts {
                        true => refused(what, &changed, &[Kind::Checksum], &format!("byte {at}")),
                        false => assert!(what.is_ok(), "byte {at}: {:?}", what.err()),
                    }
                }
                world.store(&block.bp, &stored);
                checked += 1;
            }
        }
    }
    assert!(checked > 20, "{checked}");
}

/// How contents become bytes on disk again.
struct Compressed {
    psize: usize,
    kind: Compress,
}

impl Compressed {
    fn of(bp: &BlkPtr) -> Compressed {
        let kind = Compress::from_u8(bp.compress()).unwrap();
        Compressed { psize: bp.psize() as usize, kind }
    }

    /// `None` if they do not fit any more.
    fn packed(&self, contents: &[u8]) -> Option<Vec<u8>> {
        if self.kind == Compress::Off {
            return Some(contents.to_vec());
        }
        let mut bytes = vec![0; self.psize];
        compress(self.kind, 0, contents, &mut bytes)?;
        Some(bytes)
    }
}

/// Contents are for readers with the keys, through pointers that say that they are of the set: also out of the cache.
#[test]
fn contents_are_for_their_set_only() {
    let world = World::of("encrypted");
    let plain = world.pool.cache();
    let (objset, _) = world.objset("t_encrypted/aes-256-gcm");
    let (_, other) = world.objset("t_encrypted/aes-128-ccm");
    let strange = objset.cache().of_set(SetKeys::Open(other));
    let locked = objset.cache().of_set(SetKeys::Locked);
    for block in super::blocks(&objset).unwrap() {
        let contents = get(objset.cache(), &block, Keep::ALL).unwrap();
        assert_eq!(get(objset.cache(), &block, Keep::ALL).unwrap(), contents);
        let unmarked = SealedBlock { bp: flipped(&block.bp, 6 * 64 + 61), ..block };
        refused(get(objset.cache(), &unmarked, Keep::ALL), &unmarked, &[Kind::Corrupt], "not marked");
        assert!(!get(plain, &unmarked, Keep::ALL).is_ok_and(|bytes| block.bp.is_encrypted() && bytes == contents));
        refused(get(plain, &block, Keep::ALL), &block, &[Kind::Encrypted, Kind::Corrupt], "in a plain set");
        if block.bp.level() > 0 {
            continue;
        }
        refused(get(&strange, &block, Keep::ALL), &block, &[Kind::Checksum], "other keys");
        if block.bp.is_encrypted() {
            refused(get(&locked, &block, Keep::ALL), &block, &[Kind::Encrypted], "without keys");
        }
        if block.bp.object_type() != ObjectType::OBJSET {
            let forged = SealedBlock { bp: flipped(&block.bp, 15 * 64), ..block };
            refused(get(objset.cache(), &forged, Keep::ALL), &forged, &[Kind::Checksum], "another MAC");
        }
    }
}

/// The same keys have the same name, others have others.
#[test]
fn names_of_keys() {
    let world = World::of("encrypted");
    let name = |dataset: &str| world.objset(dataset).1.name();
    let of_family = name("t_encrypted/aes-256-gcm");
    assert_eq!((name("t_encrypted/aes-256-gcm@s"), name("t_encrypted/aes-256-gcm/clone")), (of_family, of_family));
    assert_ne!(name("t_encrypted/aes-256-gcm/child"), of_family);
}

#[test]
fn wrong_keys_are_refused() {
    for world in cases() {
        for dataset in datasets(&world.pool).unwrap() {
            let dir = world.pool.dsl().find_dir(dataset.name.split('@').next().unwrap()).unwrap();
            let root = world.pool.dsl().encryption_root(&dir).unwrap().unwrap();
            let mut key = [0x11; 32];
            let wrong = world.pool.dsl().unwrap_keys(&dir, &SecretBytes::take(&mut key).unwrap()).err().unwrap();
            assert_eq!((wrong.kind(), wrong.errno()), (Kind::Permission, 13));
            let mut text = key_text(&world.case, &root.name, root.format == dsl::KeyFormat::Raw).unwrap();
            text[3] ^= 1;
            let opened = root.wrapping_key(&mut text).and_then(|key| world.pool.dsl().unwrap_keys(&dir, &key));
            assert!(matches!(opened.err().unwrap().kind(), Kind::Permission | Kind::Invalid));
            assert!(text.iter().all(|&byte| byte == 0));
            for len in [0, 31, 33, 63, 65] {
                let opened =
                    root.wrapping_key(&mut vec![b'g'; len]).and_then(|key| world.pool.dsl().unwrap_keys(&dir, &key));
                assert!(matches!(opened.err().unwrap().kind(), Kind::Permission | Kind::Invalid), "{len}");
            }
        }
    }
}

/// Key objects that say what cannot be: an error, never a panic.
#[test]
fn key_objects_that_lie() {
    let entry = |name: &'static str, number: u64| (name, 8, number.to_be_bytes().to_vec());
    let lies = [
        (entry("DSL_CRYPTO_SUITE", 0), Kind::Unsupported),
        (entry("DSL_CRYPTO_SUITE", 2), Kind::Unsupported),
        (entry("DSL_CRYPTO_SUITE", 9), Kind::Unsupported),
        (entry("DSL_CRYPTO_SUITE", u64::MAX), Kind::Unsupported),
        // of another mode, or another length
        (entry("DSL_CRYPTO_SUITE", 5), Kind::Permission),
        (entry("DSL_CRYPTO_SUITE", 6), Kind::Permission),
        (entry("DSL_CRYPTO_GUID", 7), Kind::Permission),
        (entry("DSL_CRYPTO_VERSION", 2), Kind::Unsupported),
        (entry("DSL_CRYPTO_VERSION", 0), Kind::Permission),
        (entry("DSL_CRYPTO_ROOT_DDOBJ", 0), Kind::Corrupt),
        (entry("DSL_CRYPTO_ROOT_DDOBJ", 1), Kind::Corrupt),
        (entry("DSL_CRYPTO_ROOT_DDOBJ", u64::MAX), Kind::Corrupt),
        (entry("keyformat", 0), Kind::Unsupported),
        (entry("keyformat", 4), Kind::Unsupported),
        (entry("pbkdf2iters", 0), Kind::Corrupt),
        (entry("pbkdf2iters", (1 << 31) + 1), Kind::Unsupported),
        (entry("pbkdf2iters", 1 << 63), Kind::Unsupported),
        (entry("pbkdf2iters", 100), Kind::Permission),
        (entry("pbkdf2salt", 100), Kind::Permission),
        (("DSL_CRYPTO_IV", 1, vec![1; 11]), Kind::Corrupt),
        (("DSL_CRYPTO_IV", 1, vec![1; 12]), Kind::Permission),
        (("DSL_CRYPTO_MAC", 1, vec![]), Kind::Corrupt),
        (("DSL_CRYPTO_MASTER_KEY_1", 1, vec![0; 31]), Kind::Corrupt),
        (("DSL_CRYPTO_HMAC_KEY_1", 1, vec![0; 64]), Kind::Permission),
        (("DSL_CRYPTO_HMAC_KEY_1", 8, vec![0; 64]), Kind::Corrupt),
    ];
    let name = "t_encrypted/aes-256-gcm";
    for ((entry, width, value), kind) in lies {
        let world = World::of("encrypted");
        let dir = world.pool.dsl().find_dir(name).unwrap();
        let key = world.pool.dsl().key_object(&dir).unwrap().unwrap();
        let devices = [world.device.clone()];
        let atlas = Atlas::of(&devices).unwrap();
        let mut forge = Forge::new(&atlas);
        forge.set_entry(MOS, key, entry.as_bytes(), width, &value).unwrap();
        forge.seal(&devices).unwrap();
        let world = World { pool: survey::open(&devices, &Env::fixed(0)).unwrap(), ..world };
        let dataset = world.pool.dsl().find(name).unwrap();
        let error = keys(&world.case, &world.pool, &dataset).err().unwrap();
        assert!(
            error.kind() == kind || kind == Kind::Corrupt && error.kind() == Kind::NotFound,
            "{entry} {value:?}: {error}"
        );
        // those beside it are as they were
        let (objset, _) = world.objset("t_encrypted/aes-192-ccm");
        super::blocks(&objset).unwrap();
    }
}

/// What a walk shows of a log.
#[derive(Default)]
struct SeenLog {
    blocks: Vec<SealedBlock>,
    told: Vec<Result<String>>,
}

impl zil::LogVisitor for SeenLog {
    fn block(&mut self, bp: &BlkPtr, bookmark: Bookmark) -> ControlFlow<()> {
        self.blocks.push(SealedBlock { bp: *bp, bookmark });
        ControlFlow::Continue(())
    }

    fn record(&mut self, record: &zil::Record<'_>) -> ControlFlow<()> {
        self.told.push(record.intent().map(|intent| intent.to_string()));
        ControlFlow::Continue(())
    }
}

/// Logs are opened with the key; what was changed of their blocks is found, whatever it is.
#[test]
fn logs_are_opened() {
    let world = World::of("zilcrypt");
    let zio = world.pool.cache().zio();
    let (mut blocks, mut records) = (0, 0);
    for dataset in datasets(&world.pool).unwrap() {
        let (objset, keys) = world.objset(&dataset.name);
        let header = zil::ZilHeader::parse(&objset.phys().log_header).unwrap();
        let mut seen = SeenLog::default();
        zil::walk(zio, objset.cache().keys(), objset.id(), &header, &mut seen);
        seen.told.iter().for_each(|told| assert!(told.is_ok(), "{told:?}"));
        records += seen.told.len();
        for block in &seen.blocks {
            // the log goes on in blocks that were never written
            let Ok((stored, endian)) = zio.read_log_block(&block.bp, block.bookmark) else { continue };
            let used = u64::from_le_bytes(*stored[136..].first_chunk().unwrap()) as usize;
            blocks += 1;
            assert!(keys.open_log(&block.bp, endian, &mut stored.to_vec()).is_ok());
            // the pointer to the next, the MAC; heads, and what is sealed
            let watched = [8, 8 + 127, 168, 183].into_iter().chain((184..used).step_by(61));
            for at in watched {
                let mut bytes = stored.to_vec();
                bytes[at] ^= 4;
                let error = keys.open_log(&block.bp, endian, &mut bytes).expect_err(&format!("byte {at}"));
                assert!(matches!(error.kind(), Kind::Checksum | Kind::Corrupt), "{error}");
            }
            for bit in [256, 383, 11 * 64 + 40] {
                let other = flipped(&block.bp, bit);
                assert!(keys.open_log(&other, endian, &mut stored.to_vec()).is_err(), "bit {bit}");
            }
        }
        // without the key it is known that there are records
        let mut locked = SeenLog::default();
        zil::walk(zio, &SetKeys::Locked, objset.id(), &header, &mut locked);
        assert_eq!((locked.blocks.len(), locked.told.len()), (seen.blocks.len(), seen.told.len()));
    }
    assert!(blocks > 40 && records > 100, "{blocks} {records}");
}

/// Cache devices get blocks as they are on disk, and give them back to readers with the keys only; so does what is
/// packed in memory.
#[test]
fn cache_devices_have_sealed_bytes() {
    let world = World::of("encrypted");
    let (objset, keys) = world.objset("t_encrypted/aes-256-gcm");
    let blocks = super::blocks(&objset).unwrap();
    let ssd = Arc::new(device::MemDevice::new("cache", vec![0; 72 << 20]));
    // so small that it packs what it can
    for bytes in [512 << 10, 64 << 20] {
        let cache = Cache::new(world.pool.cache().zio().clone(), bytes).of_set(SetKeys::Open(keys.clone()));
        cache.add_device(Guid::new(1), Guid::new(2), ssd.clone()).unwrap();
        let count = |name: &str| cache.arcstats().into_iter().find(|(of, _)| *of == name).unwrap().1;
        let mut feeder = cache.feeder();
        for _ in 0..3 {
            for block in &blocks {
                assert_eq!(get(&cache, block, Keep::ALL).unwrap(), read(objset.cache(), block).unwrap(), "{block:?}");
                feeder.step().unwrap();
            }
        }
        let mut on_ssd = ssd.bytes().to_vec();
        on_ssd.truncate(on_ssd.iter().rposition(|&byte| byte != 0).unwrap() + 1);
        let (mut sealed, mut searched) = (0, 0);
        for block in blocks.iter().filter(|block| block.bp.is_encrypted()) {
            let stored = world.stored(&block.bp);
            let mut plain = vec![0; stored.len()];
            keys.open(&block.bp, &stored, &mut plain).unwrap();
            let changed = plain.iter().zip(&stored[..]).position(|(plain, stored)| plain != stored).unwrap_or(0);
            let marker = plain[changed..].get(..32).filter(|marker| marker.iter().any(|&byte| byte != marker[0]));
            let Some(marker) = marker.filter(|marker| **marker != stored[changed..changed + 32]) else { continue };
            searched += 1;
            assert!(!on_ssd.windows(32).any(|bytes| bytes == marker), "plain bytes of {block:?}");
            sealed += usize::from(
                on_ssd.windows(64).any(|bytes| bytes == &stored[changed..][..64.min(stored.len() - changed)]),
            );
        }
        assert!(searched > 20 && sealed > 10, "{searched} {sealed} {}", count("l2_size"));
        // what is read from there is opened again, and for nobody else
        cache.empty();
        let before = count("l2_hits");
        for block in &blocks {
            assert_eq!(get(&cache, block, Keep::NOTHING).unwrap(), read(objset.cache(), block).unwrap());
        }
        assert!(count("l2_hits") > before + 10, "{}", count("l2_hits"));
        let strange = cache.of_set(SetKeys::Open(world.objset("t_encrypted/aes-128-ccm").1));
        for block in blocks.iter().filter(|block| block.bp.is_encrypted()) {
            refused(get(&strange, block, Keep::NOTHING), block, &[Kind::Checksum], "other keys");
        }
    }
}
