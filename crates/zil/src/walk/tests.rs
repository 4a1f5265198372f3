//! Chains made by hand, on a device in memory.

use std::sync::Arc;

use base::Env;
use codec::checksum::embedded;
use device::MemDevice;
use format::ids::{DatasetId, Guid, Txg, VdevNumber};
use vdev::{Tree, VdevSpec};
use zio::SetKeys;

use super::*;

const BLOCK: usize = 4096;
const GUID: Guid = Guid::new(5);

/// A log of `kind` whose block `i` lies at sector `8 * i`; the records of each are given.
struct Log {
    kind: Checksum,
    endian: Endian,
    disk: Vec<u8>,
}

impl Log {
    fn new(kind: Checksum, endian: Endian) -> Log {
        Log { kind, endian, disk: vec![0; (4 << 20) + (1 << 20)] }
    }

    fn words(&self, words: &[u64]) -> Vec<u8> {
        let bytes = |word: &u64| match self.endian {
            Endian::Little => word.to_le_bytes(),
            Endian::Big => word.to_be_bytes(),
        };
        words.iter().flat_map(bytes).collect()
    }

    fn pointer_words(&self, i: u64) -> [u64; 16] {
        let dva = Dva::new(VdevNumber::new(0), i * BLOCK as u64, BLOCK as u64, false).words();
        let sectors = BLOCK as u64 / 512 - 1;
        let prop = 1 << 63 | 9 << 48 | (self.kind as u64) << 40 | 2 << 32 | sectors << 16 | sectors;
        [dva[0], dva[1], 0, 0, 0, 0, prop, 0, 0, 0, 7, 0, 111, 222, 54, i + 1]
    }

    fn pointer(&self, i: u64) -> BlkPtr {
        let bytes: Vec<u8> = self.pointer_words(i).iter().flat_map(|w| w.to_le_bytes()).collect();
        BlkPtr::parse(&bytes).unwrap()
    }

    /// A record of 48 bytes.
    fn record(&self, seq: u64) -> Vec<u8> {
        self.words(&[1, 48, 7, seq, 0, 0])
    }

    /// Writes block `i`, which leads to block `next`.
    fn write(&mut self, i: u64, next: u64, records: &[Vec<u8>]) {
        let records = records.concat();
        let is_new = self.kind == Checksum::Zilog2;
        let used = records.len() + if is_new { LINK_SIZE } else { 0 };
        let mut link = self.words(&[0]);
        link.extend(self.words(&self.pointer_words(next)));
        link.extend(self.words(&[used as u64]));
        link.resize(LINK_SIZE, 0);
        let mut block = vec![0; BLOCK];
        let at = if is_new { 0 } else { BLOCK - LINK_SIZE };
        block[at..at + LINK_SIZE].copy_from_slice(&link);
        let at = if is_new { LINK_SIZE } else { 0 };
        block[at..at + records.len()].copy_from_slice(&records);
        embedded::seal(self.kind, self.endian, &self.pointer(i).checksum(), &mut block).unwrap();
        let at = (4 << 20) + i as usize * BLOCK;
        self.disk[at..at + BLOCK].copy_from_slice(&block);
    }

    /// Sequence numbers of the blocks and of the records that a walk visits.
    fn walk(&self, header: &ZilHeader) -> (Vec<u64>, Vec<u64>, WalkEnd) {
        let device: Arc<dyn device::Device> = Arc::new(MemDevice::new("log", self.disk.clone()));
        let tree = Tree::open(VdevSpec::of_file(GUID, 1 << 20, 18), &[(GUID, device)].into()).unwrap();
        let leaf = tree.leaf(GUID).unwrap().guid();
        tree.leaf(leaf).unwrap().state().set_health(vdev::Health::HEALTHY);
        let zio = Zio::new(Arc::new(tree), Env::fixed(0));
        let mut seen = Seen::default();
        let end = walk(&zio, &SetKeys::Plain, DatasetId::new(54), header, &mut seen);
        let errors = zio.tree().leaf(GUID).unwrap().stats().errors();
        assert_eq!(errors, [0, 0, 0], "the end of a log is nobody's fault");
        (seen.blocks, seen.records, end)
    }
}

#[derive(Default)]
struct Seen {
    blocks: Vec<u64>,
    records: Vec<u64>,
}

impl LogVisitor for Seen {
    fn block(&mut self, bp: &BlkPtr, bookmark: Bookmark) -> ControlFlow<()> {
        assert_eq!((bookmark.objset, bookmark.level, bookmark.blkid), (54, LEVEL, bp.checksum()[SEQ_WORD]));
        self.blocks.push(bookmark.blkid);
        ControlFlow::Continue(())
    }

    fn record(&mut self, record: &Record<'_>) -> ControlFlow<()> {
        self.records.push(record.seq);
        ControlFlow::Continue(())
    }
}

fn header(first: BlkPtr) -> ZilHeader {
    ZilHeader { claim_txg: Txg::ZERO, replay_seq: 0, first, claim_block_seq: 0, flags: 0, claim_record_seq: 0 }
}

#[test]
fn both_kinds_and_both_byte_orders() {
    for kind in [Checksum::Zilog, Checksum::Zilog2] {
        for endian in [Endian::Little, Endian::Big] {
            let mut log = Log::new(kind, endian);
            log.write(0, 1, &[log.record(10), log.record(11)]);
            log.write(1, 2, &[log.record(12)]);
            let (blocks, records, end) = log.walk(&header(log.pointer(0)));
            assert_eq!((blocks, records), (vec![1, 2, 3], vec![10, 11, 12]), "{kind:?} {endian:?}");
            assert!(matches!(end, WalkEnd::Unreadable(_)), "{end:?}");
        }
    }
}

#[test]
fn a_claimed_log_ends_where_it_was_claimed() {
    let mut log = Log::new(Checksum::Zilog2, Endian::Little);
    log.write(0, 1, &[log.record(10), log.record(11)]);
    log.write(1, 2, &[log.record(12), log.record(13)]);
    log.write(2, 3, &[]);
    let flags = ZilHeader::FLAG_CLAIM_RECORD_SEQ_VALID;
    let claimed =
        ZilHeader { claim_txg: Txg::new(8), claim_block_seq: 2, claim_record_seq: 12, flags, ..header(log.pointer(0)) };
    let (blocks, records, end) = log.walk(&claimed);
    assert_eq!((blocks, records), (vec![1, 2], vec![10, 11, 12]));
    assert!(matches!(end, WalkEnd::Complete));
    let (blocks, records, _) = log.walk(&ZilHeader { flags: 0, ..claimed });
    assert_eq!((blocks, records), (vec![1, 2], vec![10, 11, 12, 13]));
}

#[test]
fn damaged_blocks_end_the_walk() {
    let mut log = Log::new(Checksum::Zilog, Endian::Little);
    log.write(0, 1, &[log.record(10)]);
    log.write(1, 0, &[log.record(11)]);
    let (blocks, records, end) = log.walk(&header(log.pointer(0)));
    assert_eq!((blocks, records), (vec![1, 2], vec![10]), "block 1 leads back to block 0");
    assert!(matches!(end, WalkEnd::Unreadable(_)));
    let bad_record = log.words(&[1, 480, 7, 12, 0, 0]);
    log.write(1, 2, &[log.record(11), bad_record]);
    let (_, records, end) = log.walk(&header(log.pointer(0)));
    assert_eq!(records, [10, 11]);
    assert!(matches!(end, WalkEnd::Unreadable(_)));
    assert!(log.walk(&header(BlkPtr::HOLE)).0.is_empty());
}
