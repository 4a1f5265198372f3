//! Whole trees on devices in memory: blocks written by a naive encoder, read back through every
//! kind of damage.

mod copies;
mod corpus;
mod distributed;
mod labels;
mod parity;
mod reflow;
mod removed;
mod write;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::Result;
use device::{Device, FaultyDevice, MemDevice};
use format::ids::{Guid, ObjectId, Txg, VdevNumber};

use crate::geometry::{DEVICE_BYTES_MIN, FRONT_BYTES};
use crate::spec::{IndirectSpec, LeafSpec, TopSpec};
use crate::{Extent, Lacking, LeafVdev, Tree, VdevKind, VdevSpec};

/// A pool under construction: images of leaves by guid. Pools that are opened share them.
#[derive(Default)]
struct Images(HashMap<u64, Arc<MemDevice>>);

/// A pool that is open.
struct Pool {
    tree: Tree,
    devices: HashMap<u64, Arc<FaultyDevice>>,
}

/// Groups by their numbers.
pub(crate) fn groups(numbers: Range<u64>) -> Range<Txg> {
    Txg::new(numbers.start)..Txg::new(numbers.end)
}

impl Images {
    /// Writes at an offset that is counted from behind the labels.
    fn write(&mut self, guid: u64, offset: u64, bytes: &[u8]) {
        let empty = || Arc::new(MemDevice::new(format!("leaf {guid}"), vec![0; DEVICE_BYTES_MIN as usize]));
        let image = Arc::get_mut(self.0.entry(guid).or_insert_with(empty)).expect("no pool is open yet");
        image.bytes_mut()[(FRONT_BYTES + offset) as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Opens the pool, without the leaves in `absent`.
    fn open(&self, tops: Vec<VdevSpec>, absent: &[u64]) -> Pool {
        let root = VdevSpec { children: tops, ..vdev(VdevKind::Root, 0, 1, vec![]) };
        let mut devices = HashMap::new();
        let mut given: HashMap<Guid, Arc<dyn Device>> = HashMap::new();
        for (&guid, image) in &self.0 {
            let device = Arc::new(FaultyDevice::new(image.clone(), guid));
            if !absent.contains(&guid) {
                given.insert(Guid::new(guid), device.clone());
            }
            devices.insert(guid, device);
        }
        Pool { tree: Tree::open(root, &given).unwrap(), devices }
    }
}

impl Pool {
    /// All that `guid` returns is noise.
    fn noise(&self, guid: u64) {
        self.devices[&guid].noise(0..DEVICE_BYTES_MIN);
    }

    fn read_fast(&self, extent: Extent) -> Result<Vec<u8>> {
        let mut buf = vec![0xaa; extent.size as usize];
        self.tree.read_batch(&[extent], &mut [&mut buf]).remove(0).map(|_| buf)
    }

    fn read_slow(&self, extent: Extent, right: &[u8]) -> Result<Vec<u8>> {
        let mut buf = vec![0xaa; extent.size as usize];
        self.tree.read_verified(extent, &mut buf, &mut |bytes| bytes == right).map(|_| buf)
    }

    fn leaf(&self, guid: u64) -> LeafVdev<'_> {
        self.tree.leaf(Guid::new(guid)).unwrap()
    }

    /// Read and checksum errors of a leaf.
    fn errors(&self, guid: u64) -> (u64, u64) {
        let [read, _, checksum] = self.leaf(guid).stats().errors();
        (read, checksum)
    }
}

/// Scrubs `blocks` of two pools that `open` makes, one by one and read ahead together, while leaves err in every way: what
/// comes of it, and what leaves are charged with, is the same.
fn scrub_alone_and_together(open: impl Fn() -> Pool, blocks: &[(Extent, Vec<u8>)]) {
    type Fault = fn(&FaultyDevice);
    let faults: [Fault; 5] = [
        |_| {},
        |device| device.noise(0..DEVICE_BYTES_MIN),
        |device| device.broken(0..DEVICE_BYTES_MIN),
        |device| device.vanish(true),
        |device| device.zero(FRONT_BYTES + 4096..FRONT_BYTES + 16_384),
    ];
    let guids: Vec<u64> = open().tree.leaves().map(|leaf| leaf.guid().get()).collect();
    let outcome = |first: Fault, second: Fault, together: bool| {
        let pool = open();
        let faulty = |guid: &u64| pool.devices.get(guid);
        faulty(&guids[0]).into_iter().for_each(|device| first(device));
        guids.last().and_then(faulty).into_iter().for_each(|device| second(device));
        // of other leaves, something rots
        faulty(&guids[1 % guids.len()]).into_iter().for_each(|device| device.noise(FRONT_BYTES..FRONT_BYTES + 100));
        let scrub = |extent: Extent, good: &mut dyn FnMut(&[u8]) -> bool| pool.tree.scrub(extent, Lacking::Leave, good);
        let results: Vec<_> = match together {
            false => blocks.iter().map(|(extent, block)| scrub(*extent, &mut |bytes| bytes == block)).collect(),
            true => {
                let ahead = pool.tree.read_ahead(blocks.iter().map(|(extent, _)| *extent), Lacking::Leave);
                let good = |copies, block| pool.tree.scrub_ahead(copies, Lacking::Leave, &mut |bytes| bytes == block);
                ahead.into_iter().zip(blocks).map(|(copies, (_, block))| good(copies, block)).collect()
            }
        };
        let results: Vec<_> = results.into_iter().map(|result| result.map_err(|error| error.to_string())).collect();
        let charged: Vec<_> = pool
            .tree
            .leaves()
            .map(|leaf| (leaf.stats().errors(), leaf.stats().healed_bytes.load(Ordering::Relaxed)))
            .collect();
        (results, charged)
    };
    for first in faults {
        for second in faults {
            let alone = outcome(first, second, false);
            assert_eq!(outcome(first, second, true), alone);
        }
    }
}

fn vdev(kind: VdevKind, id: u64, guid: u64, children: Vec<VdevSpec>) -> VdevSpec {
    let leaf = kind.is_leaf().then(LeafSpec::default);
    VdevSpec { kind, id, guid: Guid::new(guid), create_txg: Txg::ZERO, top: None, leaf, children }
}

fn disk(id: u64, guid: u64) -> VdevSpec {
    vdev(VdevKind::Disk, id, guid, vec![])
}

fn disks(guids: std::ops::Range<u64>) -> Vec<VdevSpec> {
    (0..).zip(guids).map(|(id, guid)| disk(id, guid)).collect()
}

/// Makes a top-level vdev of it.
fn top(mut spec: VdevSpec, ashift: u32) -> VdevSpec {
    spec.top = Some(TopSpec {
        ashift,
        asize: 0,
        metaslab_array: ObjectId::NONE,
        metaslab_shift: 0,
        is_log: false,
        bias: None,
        removing: false,
        zap: ObjectId::NONE,
        indirect: (spec.kind == VdevKind::Indirect).then_some(IndirectSpec {
            mapping_object: ObjectId::NONE,
            births_object: ObjectId::NONE,
            previous: None,
        }),
        expansion: None,
    });
    spec
}

fn extent(top: u64, offset: u64, size: usize) -> Extent {
    Extent { top: VdevNumber::new(top), offset, size: size as u64, birth_txg: Txg::new(10) }
}

/// Bytes that differ from place to place and from block to block.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// All subsets of 0..n with `count` elements.
fn subsets(n: usize, count: usize) -> Vec<Vec<usize>> {
    (0usize..1 << n)
        .filter(|set| set.count_ones() as usize == count)
        .map(|set| (0..n).filter(|i| set >> i & 1 == 1).collect())
        .collect()
}
