//! A small object set written by hand:
//!
//! ```text
//!   head ─ meta dnode ─ L1 ─ dnode block 0: objects 1 and 3
//!                          └ dnode block 1: object 5
//!   object 1: one data block; object 3: L1 with data blocks 0 and 2, and a spill block;
//!   object 5: one data block, born late
//! ```

use std::sync::Arc;

use base::Env;
use device::MemDevice;
use format::ids::{DatasetId, Guid};
use vdev::{Health, Tree, VdevSpec};
use zio::Zio;

use super::*;

const GUID: Guid = Guid::new(5);
const OLD: Txg = Txg::new(10);
const NEW: Txg = Txg::new(20);
const DNODE: u8 = ObjectType::DNODE.0;
const FILE: u8 = ObjectType::PLAIN_FILE_CONTENTS.0;

struct Disk {
    bytes: Vec<u8>,
    next: usize,
}

impl Disk {
    /// Writes a block, and returns a pointer to it.
    fn put(&mut self, bytes: &[u8], kind: u8, level: u64, birth: Txg) -> [u64; 16] {
        let at = self.next;
        self.next += bytes.len();
        self.bytes[(4 << 20) + at..][..bytes.len()].copy_from_slice(bytes);
        let sectors = bytes.len() as u64 / 512;
        let mut words = [0; 16];
        (words[0], words[1]) = (sectors, at as u64 / 512);
        words[6] =
            1 << 63 | level << 56 | u64::from(kind) << 48 | 2 << 40 | 2 << 32 | (sectors - 1) << 16 | (sectors - 1);
        words[10] = birth.get();
        words
    }

    fn read(self, root: &BlkPtr, range: Range, past: Option<Bookmark>) -> Seen {
        self.seen_by(root, range, Seen { past, ..Seen::default() })
    }

    fn seen_by(self, root: &BlkPtr, range: Range, mut seen: Seen) -> Seen {
        let device: Arc<dyn device::Device> = Arc::new(MemDevice::new("disk", self.bytes));
        let tree = Tree::open(VdevSpec::of_file(GUID, 1 << 20, 18), &[(GUID, device)].into()).unwrap();
        tree.leaf(GUID).unwrap().state().set_health(Health::HEALTHY);
        let cache = Arc::new(Cache::new(Arc::new(Zio::new(Arc::new(tree), Env::fixed(0))), 1 << 20));
        assert!(traverse(&cache, DatasetId::new(7), root, range, &mut seen).is_continue());
        seen
    }
}

#[derive(Default)]
struct Seen {
    blocks: Vec<(u64, i64, u64)>,
    lost: Vec<Error>,
    past: Option<Bookmark>,
    /// Below which nothing is wanted.
    unwanted: Option<Bookmark>,
}

impl Visitor for Seen {
    fn block(&mut self, visit: &Visit<'_>) -> ControlFlow<(), Descend> {
        let Bookmark { objset, object, level, blkid } = visit.bookmark;
        assert_eq!(objset, 7);
        assert_eq!(visit.dnode.is_none(), level == -1);
        self.blocks.push((object, level, blkid));
        ControlFlow::Continue(if self.past == Some(visit.bookmark) { Descend::Past } else { Descend::Below })
    }

    fn enters(&self, visit: &Visit<'_>) -> bool {
        self.unwanted != Some(visit.bookmark)
    }

    fn lost(&mut self, error: Error) {
        self.lost.push(error);
    }
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// A dnode with data blocks of 512 bytes, or of 2048 if it is the meta dnode.
fn dnode(kind: u8, levels: u8, block_max: u64, pointer: [u64; 16], spill: Option<[u64; 16]>) -> Vec<u8> {
    let sectors = if kind == DNODE { 4 } else { 1 };
    let mut out = vec![0; SLOT_SIZE];
    out[..12].copy_from_slice(&[
        kind,
        10,
        levels,
        1,
        0,
        2,
        2,
        1 | if spill.is_some() { 4 } else { 0 },
        sectors,
        0,
        0,
        0,
    ]);
    out[16..24].copy_from_slice(&block_max.to_le_bytes());
    out[64..192].copy_from_slice(&bytes(&pointer));
    if let Some(spill) = spill {
        out[384..].copy_from_slice(&bytes(&spill));
    }
    out
}

/// The set of the drawing; `change` may spoil object 3's L1 and the first dnode block.
fn sample(change: impl Fn(&mut Vec<u8>, &mut Vec<u8>)) -> (Disk, BlkPtr) {
    let mut disk = Disk { bytes: vec![0; 6 << 20], next: 0 };
    let data: Vec<[u64; 16]> = [OLD, OLD, NEW, NEW].iter().map(|&birth| disk.put(&[1; 512], FILE, 0, birth)).collect();
    let spill = disk.put(&[2; 512], FILE, 0, NEW);
    let mut l1 = vec![0; 1024];
    l1[..128].copy_from_slice(&bytes(&data[1]));
    l1[256..384].copy_from_slice(&bytes(&data[2]));
    let mut block0 = vec![0; 2048];
    block0[512..1024].copy_from_slice(&dnode(FILE, 1, 0, data[0], None));
    change(&mut l1, &mut Vec::new());
    let l1 = disk.put(&l1, FILE, 1, NEW);
    block0[1536..].copy_from_slice(&dnode(FILE, 2, 2, l1, Some(spill)));
    change(&mut Vec::new(), &mut block0);
    let mut block1 = vec![0; 2048];
    block1[512..1024].copy_from_slice(&dnode(FILE, 1, 0, data[3], None));
    let dnodes = [disk.put(&block0, DNODE, 0, NEW), disk.put(&block1, DNODE, 0, NEW)];
    let mut meta = vec![0; 1024];
    meta[..128].copy_from_slice(&bytes(&dnodes[0]));
    meta[128..256].copy_from_slice(&bytes(&dnodes[1]));
    let meta = disk.put(&meta, DNODE, 1, NEW);
    let mut head = vec![0; 1024];
    head[..512].copy_from_slice(&dnode(DNODE, 2, 1, meta, None));
    head[704] = 2;
    let root = disk.put(&head, ObjectType::OBJSET.0, 0, NEW);
    (disk, BlkPtr::parse(&bytes(&root)).unwrap())
}

const HEAD: (u64, i64, u64) = (0, -1, 0);

#[test]
fn all_in_order() {
    let (disk, root) = sample(|_, _| {});
    let seen = disk.read(&root, Range::default(), None);
    let expect = [
        HEAD,
        (0, 1, 0),
        (0, 0, 0),
        (1, 0, 0),
        (3, 1, 0),
        (3, 0, 0),
        (3, 0, 2),
        (3, 0, SPILL_BLKID),
        (0, 0, 1),
        (5, 0, 0),
    ];
    assert_eq!(seen.blocks, expect);
    assert!(seen.lost.is_empty());
}

#[test]
fn only_what_is_younger() {
    let (disk, root) = sample(|_, _| {});
    let seen = disk.read(&root, Range { since_txg: OLD, from: None }, None);
    assert_eq!(
        seen.blocks,
        [HEAD, (0, 1, 0), (0, 0, 0), (3, 1, 0), (3, 0, 2), (3, 0, SPILL_BLKID), (0, 0, 1), (5, 0, 0)]
    );
    let (disk, root) = sample(|_, _| {});
    assert!(disk.read(&root, Range { since_txg: NEW, from: None }, None).blocks.is_empty());
}

#[test]
fn from_a_place_on() {
    let from = |object, blkid| {
        let (disk, root) = sample(|_, _| {});
        let from = Some(VisitPosition { object: ObjectId::new(object), blkid });
        disk.read(&root, Range { since_txg: Txg::ZERO, from }, None).blocks
    };
    let tail = [(0, 0, 1), (5, 0, 0)];
    let with = |middle: &[_]| [&[HEAD, (0, 1, 0)], middle, &tail].concat();
    assert_eq!(from(3, 1), with(&[(0, 0, 0), (3, 1, 0), (3, 0, 2), (3, 0, SPILL_BLKID)]));
    assert_eq!(from(4, 0), with(&[]), "object 3 is the last in its block");
    assert_eq!(from(0, 0), with(&[(0, 0, 0)]), "what the block of dnodes leads to has been visited");
    assert_eq!(from(0, 1), [HEAD, (0, 1, 0), (0, 0, 1)]);
    assert_eq!(from(6, 0), [HEAD, (0, 1, 0), (0, 0, 1)]);
}

#[test]
fn past_what_the_visitor_knows() {
    let (disk, root) = sample(|_, _| {});
    let past = Bookmark { objset: 7, object: 3, level: 1, blkid: 0 };
    let seen = disk.read(&root, Range::default(), Some(past));
    assert!(!seen.blocks.contains(&(3, 0, 0)) && seen.blocks.contains(&(3, 0, SPILL_BLKID)));
}

#[test]
fn what_is_not_wanted_is_not_read() {
    // nothing of what this leads to can be read
    let (disk, root) = sample(|l1, _| l1.iter_mut().for_each(|byte| *byte ^= 0x55));
    let unwanted = Some(Bookmark { objset: 7, object: 3, level: 1, blkid: 0 });
    let seen = disk.seen_by(&root, Range::default(), Seen { unwanted, ..Seen::default() });
    assert!(seen.lost.is_empty(), "{:?}", seen.lost);
    let expect = [HEAD, (0, 1, 0), (0, 0, 0), (1, 0, 0), (3, 1, 0), (3, 0, SPILL_BLKID), (0, 0, 1), (5, 0, 0)];
    assert_eq!(seen.blocks, expect);
}

#[test]
fn many_ways_through_a_few_blocks() {
    let mut disk = Disk { bytes: vec![0; 6 << 20], next: 0 };
    // 8 pointers in each block, all to the one below: 2^30 ways, with those through the blocks of dnodes
    let mut tree = disk.put(&[1; 512], FILE, 0, NEW);
    for level in 1..=7 {
        tree = disk.put(&bytes(&tree).repeat(8), FILE, level, NEW);
    }
    let mut dnodes = vec![0; 2048];
    dnodes[512..1024].copy_from_slice(&dnode(FILE, 8, (1 << 21) - 1, tree, None));
    let mut meta = disk.put(&dnodes, DNODE, 0, NEW);
    for level in 1..=3 {
        meta = disk.put(&bytes(&meta).repeat(8), DNODE, level, NEW);
    }
    let mut head = vec![0; 1024];
    head[..512].copy_from_slice(&dnode(DNODE, 4, 511, meta, None));
    head[704] = 2;
    let root = disk.put(&head, ObjectType::OBJSET.0, 0, NEW);
    let seen = disk.read(&BlkPtr::parse(&bytes(&root)).unwrap(), Range::default(), None);
    // below each block it went once, and of the other seven of each level it is told
    assert_eq!((seen.blocks.len(), seen.lost.len()), (1 + 1 + 3 * 8 + 1 + 7 * 8, (3 + 6) * 7));
    assert_eq!(seen.lost[0].kind(), Kind::Corrupt);
}

#[test]
fn damage_is_reported_and_left_out() {
    // a pointer in an L1 that says it is an L1 itself
    let (disk, root) = sample(|l1, _| {
        if let Some(byte) = l1.get_mut(55) {
            *byte |= 1;
        }
    });
    let seen = disk.read(&root, Range::default(), None);
    assert_eq!((seen.blocks.len(), seen.lost.len()), (10, 1));
    assert_eq!(seen.lost[0].place().bookmark.unwrap(), Bookmark { objset: 7, object: 3, level: 0, blkid: 0 });
    // a dnode with no pointers ends its block
    let (disk, root) = sample(|_, block| {
        if let Some(byte) = block.get_mut(512 + 3) {
            *byte = 0;
        }
    });
    let seen = disk.read(&root, Range::default(), None);
    assert_eq!(seen.blocks, [HEAD, (0, 1, 0), (0, 0, 0), (0, 0, 1), (5, 0, 0)]);
    assert_eq!(seen.lost.len(), 1);
    // a block of dnodes whose address is beyond the disk
    let (mut disk, root) = sample(|_, _| {});
    let at = disk.next - 2048;
    disk.bytes[(4 << 20) + at + 8..][..8].copy_from_slice(&u64::MAX.to_le_bytes()[..8]);
    let seen = disk.read(&root, Range::default(), None);
    assert_eq!(seen.blocks, [HEAD, (0, 1, 0), (0, 0, 0), (0, 0, 1), (5, 0, 0)]);
    assert_eq!(seen.lost.len(), 1);
}
