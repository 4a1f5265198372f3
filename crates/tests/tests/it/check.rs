//! The full check of a pool: real pools are whole, and what is spoiled is found where it is.

use std::sync::Arc;

use base::{Bookmark, Env, Kind};
use device::MemDevice;
use dmu::traverse::Visit;
use format::blkptr::BlkPtr;
use pool::check::{BlockKind, CheckOptions, CheckReport, Damaged, Observer, Verify};
use testkit::{corpus, survey};

const EVERYTHING: CheckOptions = CheckOptions { verify: Verify::All, space: true };
/// Bytes of a device in front of what addresses count from.
const FRONT: u64 = 4 << 20;

/// What a check tells while it runs.
#[derive(Default)]
struct Seen {
    blocks: Vec<(Bookmark, BlkPtr)>,
    damaged: Vec<(Bookmark, Vec<bool>)>,
    lost: usize,
}

impl Observer for Seen {
    fn block(&mut self, visit: &Visit<'_>, _kind: BlockKind) {
        self.blocks.push((visit.bookmark, *visit.bp));
    }

    fn damaged(&mut self, damaged: &Damaged) {
        self.damaged.push((damaged.bookmark, damaged.copies.iter().map(Result::is_ok).collect()));
    }

    fn lost(&mut self, _error: &base::Error) {
        self.lost += 1;
    }
}

fn check(devices: &[Arc<MemDevice>], options: CheckOptions) -> (CheckReport, Seen) {
    let mut seen = Seen::default();
    let pool = survey::open(&corpus::as_devices(devices), &Env::real()).unwrap();
    let report = pool.check(options, &mut seen).unwrap();
    (report, seen)
}

#[test]
fn pools_of_the_corpus_are_whole() {
    for case in corpus::cases() {
        let name = case.name.clone();
        let (report, seen) = check(&case.load(), EVERYTHING);
        assert!(report.tally.total().count > 0, "{name}");
        assert!(seen.damaged.is_empty() && report.lost_parts == 0, "{name}: {:?}", seen.damaged);
        assert_eq!(report.unallocated_blocks, 0, "{name}: blocks in free space");
        assert_eq!(report.leaks, [], "{name}");
        assert_eq!(report.found_bytes, report.allocated_bytes, "{name}");
    }
}

/// Inverts a byte in the middle of one copy of a block.
fn spoil(devices: &mut [Arc<MemDevice>], bp: &BlkPtr, copy: usize) {
    let dva = bp.copies().nth(copy).unwrap();
    let at = FRONT + dva.offset() + bp.psize() / 2;
    let bytes = Arc::get_mut(&mut devices[0]).expect("no pool is open").bytes_mut();
    bytes[usize::try_from(at).unwrap()] ^= 0xff;
}

#[test]
fn spoiled_blocks_are_found() {
    let case = corpus::case("single");
    let (whole, seen) = check(&case.load(), EVERYTHING);
    let find = |copies: usize, level: i64| {
        let fits = |(mark, bp): &&(Bookmark, BlkPtr)| {
            bp.copies().count() == copies && mark.level == level && mark.objset == 54 && mark.object != 0
        };
        *seen.blocks.iter().find(fits).unwrap()
    };
    let (data, indirect) = (find(1, 0), find(2, 1));

    let mut devices = case.load();
    spoil(&mut devices, &data.1, 0);
    spoil(&mut devices, &indirect.1, 1);
    let (report, mut seen) = check(&devices, EVERYTHING);
    seen.damaged.sort_by_key(|(mark, _)| mark.level);
    assert_eq!(seen.damaged, [(data.0, vec![false]), (indirect.0, vec![true, false])]);
    assert_eq!((report.lost_blocks, report.damaged_blocks), (vec![(Kind::Checksum, 1)], 1));
    assert_eq!(report.tally.total(), whole.tally.total(), "both can be walked past");
    assert_eq!((report.found_bytes, report.lost_parts), (whole.found_bytes, 0));

    // metadata are looked at alone, too
    let metadata = CheckOptions { verify: Verify::Metadata, space: false };
    assert_eq!(check(&devices, metadata).1.damaged, [(indirect.0, vec![true, false])]);
    assert!(check(&devices, CheckOptions { verify: Verify::Nothing, space: false }).1.damaged.is_empty());
}

#[test]
fn what_hides_blocks_leaks_them() {
    let case = corpus::case("single");
    let (whole, seen) = check(&case.load(), EVERYTHING);
    let (mark, indirect) = *seen.blocks.iter().find(|(mark, _)| mark.level == 1 && mark.object > 1).unwrap();
    let mut devices = case.load();
    (0..indirect.copies().count()).for_each(|copy| spoil(&mut devices, &indirect, copy));
    let (report, seen) = check(&devices, EVERYTHING);
    assert_eq!((seen.damaged.len(), seen.lost, report.lost_parts), (1, 1, 1));
    assert_eq!((seen.damaged[0].0, report.unallocated_blocks), (mark, 0));
    assert!(report.tally.total().count < whole.tally.total().count);
    let leaked: u64 = report.leaks.iter().map(|leak| leak.range.end - leak.range.start).sum();
    assert_eq!(leaked, report.allocated_bytes - report.found_bytes);
    assert!(leaked > 0, "what was below it is allocated, and found no more");
}
