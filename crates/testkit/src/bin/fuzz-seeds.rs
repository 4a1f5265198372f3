//! Writes seeds for the fuzz targets, taken from the pools of the corpus: `fuzz-seeds FOLDER`.
//!
//! A seed is what a target is meant to parse, as a real pool has it: labels' configurations, uberblocks,
//! blocks of dnodes, ZAPs, bonus buffers, space maps, compressed blocks, block pointers, log blocks.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Env, Result};
use device::Device;
use dmu::{Mode, Objset};
use format::blkptr::BlkPtr;
use format::ids::ObjectId;
use format::object_type::{ObjectType, SwapClass};
use testkit::{corpus, survey};
use zerocopy::IntoBytes;

/// Seeds of one kind from one pool: more would slow the fuzzer down, not help it.
const SEEDS_MAX: usize = 12;
/// Longest seed.
const SEED_SIZE_MAX: usize = 32 << 10;

#[derive(Default)]
struct Seeds(BTreeMap<(&'static str, &'static str), Vec<Vec<u8>>>);

impl Seeds {
    fn add(&mut self, target: &'static str, kind: &'static str, bytes: &[u8]) {
        let seeds = self.0.entry((target, kind)).or_default();
        if seeds.len() < SEEDS_MAX && bytes.len() <= SEED_SIZE_MAX && !seeds.iter().any(|seed| seed == bytes) {
            seeds.push(bytes.to_vec());
        }
    }

    fn write(self, case: &str, to: &Path) -> std::io::Result<()> {
        for ((target, kind), seeds) in self.0 {
            let folder = to.join(target);
            fs::create_dir_all(&folder)?;
            for (i, seed) in seeds.iter().enumerate() {
                fs::write(folder.join(format!("{case}-{kind}-{i}")), seed)?;
            }
        }
        Ok(())
    }
}

/// What people, programs and the kernel send.
const TEXTS: [&[u8]; 12] = [
    b"GET /metrics HTTP/1.1\r\nHost: localhost:9134\r\n\r\n",
    b"\x08\0\0\0\"Report\"",
    b"\x21\0\0\0{\"MountAll\":{\"dataset\":\"p/fs\"}}\n",
    b"# features\nasync_destroy, lz4_compress\nzstd_compress # new\n",
    b"13 1 0x01 2 96 4000 5000\nname type data\nhits 4 17\ndataset_name 7 p/fs\n",
    b"mountpoint=/srv/a",
    b"quota=1.5T",
    b"org.cenote:colour=blue",
    b"compression=zstd-fast-10",
    b"p/fs/kid",
    // POSIX ACL: owner, a user, group, mask, others
    b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x04\0\xe8\x03\0\0\x04\0\x04\0\xff\xff\xff\xff\
      \x10\0\x06\0\xff\xff\xff\xff\x20\0\x04\0\xff\xff\xff\xff",
    // LOOKUP of `name`
    b"\x2d\0\0\0\x01\0\0\0\x09\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\xe8\x03\0\0\xe8\x03\0\0\x07\0\0\0\0\0\0\0name\0",
];

/// Seeds that no pool has: texts, shapes of vdevs with data, and changes of blocks.
fn made_up(seeds: &mut Seeds) {
    TEXTS.iter().for_each(|text| seeds.add("texts", "text", text));
    for (children, ndata, nparity, nspares, ngroups) in [(5, 2, 1, 1, 1), (11, 3, 2, 0, 2), (14, 8, 3, 2, 6)] {
        let mut shape = vec![3, 40, children, ndata, nparity, nspares, 0, 4, 0, 0, 1, 0, 0, 0, 0, 0, ngroups];
        shape.resize(32, 0);
        shape[24] = 5;
        shape.extend((0..96).map(|n: u8| n.wrapping_mul(37)));
        seeds.add("geometry", "shape", &shape);
    }
    for base in 0..SEEDS_MAX as u8 {
        // a word of a block of that base, and another
        let change = [&[base, base, base * 11, 0, base * 2, 0, 8][..], &[0xff; 8], &[base, 1, 4, 0, 1, 0]].concat();
        seeds.add("mos", "change", &change);
        seeds.add("sets", "change", &change);
    }
}

fn main() {
    let to = PathBuf::from(std::env::args_os().nth(1).expect("usage: fuzz-seeds FOLDER"));
    let mut own = Seeds::default();
    made_up(&mut own);
    own.write("made-up", &to).expect("the seeds can be written");
    for case in corpus::cases() {
        let devices = corpus::as_devices(&case.load());
        let mut seeds = Seeds::default();
        labels(&devices, &mut seeds);
        let pool = survey::open(&devices, &Env::fixed(0)).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        objects(pool.mos(), &mut seeds).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        for dir in pool.dsl().walk().expect("the corpus is whole") {
            let head = pool.dsl().head(&dir).expect("the corpus is whole");
            if let Ok(objset) = pool.dsl().objset(&head, Mode::Plain) {
                objects(&objset, &mut seeds).unwrap_or_else(|e| panic!("{}: {e}", dir.name));
            }
        }
        seeds.write(&case.name, &to).expect("the seeds can be written");
    }
}

fn labels(devices: &[Arc<dyn Device>], seeds: &mut Seeds) {
    for device in devices {
        let mut head = vec![0; 20 << 10];
        device.read_at(0, &mut head).expect("the image is that long");
        seeds.add("partitions", "disk", &head);
        let Ok(label) = vdev::label::read_label(&**device, 0) else { continue };
        if let Ok(config) = label.config() {
            // the list is padded with zeros to 112 KiB
            let len = config.iter().rposition(|&byte| byte != 0).map_or(0, |at| (at + 16).min(config.len()));
            seeds.add("nvlist", "label", &config[..len]);
            seeds.add("config", "label", &config[..len]);
        }
        for slot in label.uberblocks(9) {
            seeds.add("uberblock", "slot", slot.bytes.as_deref().unwrap_or_default());
        }
    }
}

fn objects(objset: &Arc<Objset>, seeds: &mut Seeds) -> Result<()> {
    pointer(&objset.rootbp(), objset, seeds);
    seeds.add("log", "header", &objset.phys().log_header);
    if let Ok(head) = objset.cache().zio().read_physical(&objset.rootbp(), base::Bookmark::default()) {
        seeds.add("dnode", "head", &head);
    }
    seeds.add("dnode", "block", &objset.meta().block(0)?);
    let mut last = ObjectId::NONE;
    while let Some(id) = objset.next_object(last)? {
        last = id;
        let object = objset.object(id)?;
        let dnode = object.dnode();
        match dnode.bonus_type {
            ObjectType::SA => seeds.add("attributes", "sa", object.bonus()),
            ObjectType::ZNODE => seeds.add("attributes", "znode", object.bonus()),
            ObjectType::DSL_DIR | ObjectType::DSL_DATASET => seeds.add("dsl", "bonus", object.bonus()),
            _ => {}
        }
        if let Some(spill) = object.spill()? {
            seeds.add("attributes", "spill", &spill);
        }
        for blkid in (0..=dnode.block_max.min(2)).filter(|_| dnode.block_size > 0) {
            pointer(&object.data_pointer(blkid)?, objset, seeds);
            let block = object.block(blkid)?;
            match (dnode.object_type, dnode.object_type.swap_class()) {
                (_, Some(SwapClass::Zap)) => seeds.add("zap", "block", &block),
                (_, Some(SwapClass::Acl | SwapClass::OldAcl)) => seeds.add("attributes", "acl", &block),
                (ObjectType::SPACE_MAP, _) => seeds.add("space_map", "block", &block),
                (ObjectType::PACKED_NVLIST, _) => seeds.add("nvlist", "object", &block),
                _ => {}
            }
        }
    }
    Ok(())
}

/// The pointer itself, and what it leads to as it is on disk.
fn pointer(bp: &BlkPtr, objset: &Arc<Objset>, seeds: &mut Seeds) {
    if bp.is_hole() {
        return;
    }
    seeds.add("block", "pointer", bp.as_bytes());
    if let Ok(physical) = objset.cache().zio().read_physical(bp, base::Bookmark::default()) {
        let len = u16::try_from(bp.lsize() / 16 - 1).unwrap_or(u16::MAX).to_le_bytes();
        seeds.add("decompress", "block", &[&[bp.compress(), len[0], len[1]][..], &physical].concat());
    }
}
