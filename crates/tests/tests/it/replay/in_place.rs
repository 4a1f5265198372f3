//! Large writes, whose blocks the log leads to: written once, whatever becomes of them before their group is on
//! disk, and neither lost nor used twice.

use std::sync::atomic::Ordering;

use format::ids::ObjectId;
use testkit::sparse::SparseDevice;

use super::*;
use crate::crash::{check, judge_by_zdb};

/// Bytes of a block of the file.
const RECORD: u64 = 128 << 10;

fn noise(seed: u64, len: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len).step_by(8).flat_map(|_| rng.number().to_le_bytes()).take(len as usize).collect()
}

/// Of a file.
type Change = fn(&Zpl, ObjectId);

fn write(zpl: &Zpl, ino: ObjectId, offset: u64, bytes: &[u8]) {
    assert_eq!(zpl.open_file(ino).unwrap().write(offset, bytes).unwrap(), bytes.len());
}

impl Logged {
    fn indirect(&self) -> (u64, u64) {
        let id = self.load.pool.view().dsl().find(FILE_SYSTEM).unwrap().id;
        let stats = self.load.pool.log(id).unwrap();
        let stats = stats.stats();
        (stats.zil_itx_indirect_count.load(Ordering::Relaxed), stats.zil_itx_indirect_bytes.load(Ordering::Relaxed))
    }

    /// A new file with those bytes, committed.
    fn large(&self, name: &[u8], bytes: &[u8]) -> ObjectId {
        let ino = self.zpl.create(self.zpl.root(), name, &new(NewKind::File)).unwrap().ino;
        self.zpl.open_file(ino).unwrap().write(0, bytes).unwrap();
        self.zpl.sync_object(ino).unwrap();
        ino
    }

    fn set(&self, property: &str, value: &str) {
        self.load.pool.set_property(FILE_SYSTEM, property, value).unwrap();
    }

    /// After a power cut the files are as they are now, in a pool without fault, also in zdb's eyes.
    fn judge(&self, what: &str, by_zdb: bool) -> u64 {
        let mut player = self.recording.play();
        player.advance(self.recording.len());
        let left = player.cut(&mut Rng::new(1), Loss::Everything);
        let copies = |left: &[SparseDevice]| -> Vec<Arc<dyn Device>> {
            left.iter().map(|disk| Arc::new(disk.copy()) as Arc<dyn Device>).collect()
        };
        if by_zdb {
            judge_by_zdb(&left).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
        }
        let devices = copies(&left);
        let host = || (7, "here".to_owned());
        let import = || LivePool::import(&Env::fixed(5000), &candidate(&devices).unwrap(), &options(), host()).unwrap();
        check(&import().view(), false).unwrap_or_else(|wrong| panic!("{what}, claimed: {wrong}"));
        let pool = import();
        let zpl = open(&pool, 5000);
        let replayed = zpl.replay_log().unwrap().unwrap();
        assert!(replayed.damage.is_none(), "{what}: {:?}", replayed.damage);
        zpl.clean_unlinked().unwrap();
        let wrong = Files::read(&self.zpl).unwrap().compare(&zpl).unwrap();
        assert_eq!(wrong, None, "{what}");
        pool.close(PoolState::Exported).unwrap();
        check(&pool.view(), false).unwrap_or_else(|wrong| panic!("{what}, replayed: {wrong}"));
        replayed.records
    }
}

#[test]
fn large_writes_are_written_once() {
    let logged = Logged::new();
    let before = logged.recording.bytes();
    logged.large(b"file", &noise(1, 1 << 20));
    assert_eq!(logged.indirect(), (8, 1 << 20));
    let committed = logged.recording.bytes() - before;
    assert!(((1 << 20)..(1 << 20) + (64 << 10)).contains(&committed), "a commit of 1 MiB wrote {committed} bytes");
    assert!(logged.judge("committed", true) >= 9);
    logged.load.pool.sync().unwrap();
    let all = logged.recording.bytes() - before;
    assert!(all < (1 << 20) + (512 << 10), "with their group 1 MiB took {all} bytes");
    assert_eq!(logged.judge("on disk", true), 0);
}

/// Files that change again after their blocks were written, in all ways.
#[test]
fn what_was_written_for_the_log_is_freed_if_it_changes_again() {
    let changes: [(&str, Change); 8] = [
        ("overwritten", |zpl, ino| write(zpl, ino, RECORD, &noise(2, 3 * RECORD))),
        ("changed a little", |zpl, ino| write(zpl, ino, RECORD + 5, b"here")),
        ("longer", |zpl, ino| write(zpl, ino, 7 * RECORD + 30_000, &noise(3, 100_000))),
        ("truncated", |zpl, ino| {
            zpl.set_attr(ino, &SetAttr { size: Some(RECORD * 2 + 77), ..SetAttr::default() }).unwrap();
        }),
        ("empty", |zpl, ino| {
            zpl.set_attr(ino, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
        }),
        ("with a hole", |zpl, ino| {
            zpl.open_file(ino).unwrap().allocate(Allocate::PunchHole, 1000, 5 * RECORD).unwrap();
        }),
        ("removed", |zpl, _| {
            let gone = zpl.unlink(zpl.root(), b"file").unwrap();
            zpl.reclaim(gone.unwrap()).unwrap();
        }),
        ("replaced", |zpl, _| {
            let ino = zpl.create(zpl.root(), b"new", &new(NewKind::File)).unwrap().ino;
            zpl.open_file(ino).unwrap().write(0, &noise(4, 2 * RECORD)).unwrap();
            let gone = zpl.rename((zpl.root(), b"new"), (zpl.root(), b"file"), RenameMode::Replace).unwrap();
            zpl.reclaim(gone.unwrap()).unwrap();
        }),
    ];
    for (what, change) in changes {
        let logged = Logged::new();
        let ino = logged.large(b"file", &noise(1, 7 * RECORD + 30_000));
        assert!(logged.indirect().0 >= 7, "{what}");
        change(&logged.zpl, ino);
        logged.zpl.sync().unwrap();
        logged.judge(what, true);
        logged.load.pool.sync().unwrap();
        check(&logged.load.pool.view(), false).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
        assert_eq!(logged.judge(&format!("{what}, on disk"), false), 0);
        // the next group has no more to do with it
        let again = if logged.zpl.lookup(logged.zpl.root(), b"file").is_ok() { &b"other"[..] } else { b"file" };
        change(&logged.zpl, logged.large(again, &noise(5, 300_000)));
        logged.zpl.sync().unwrap();
        logged.judge(&format!("{what}, again"), false);
    }
}

/// Zeros, what shrinks, what is smaller than a record, several copies, sums that could spare a write.
#[test]
fn blocks_of_all_kinds_are_led_to() {
    let text = b"it shrinks, ".repeat(100_000);
    for (property, value) in [
        ("compression", "zstd"),
        ("copies", "3"),
        ("checksum", "sha256"),
        ("logbias", "throughput"),
        ("recordsize", "1M"),
    ] {
        let logged = Logged::new();
        logged.set(property, value);
        let record = if property == "recordsize" { 8 * RECORD } else { RECORD };
        logged.zpl.set_options(zpl::ZplOptions { record_bytes: record, ..zpl::ZplOptions::default() }).unwrap();
        logged.large(b"zeros", &vec![0; 1_200_000]);
        let again = logged.large(b"text", &text);
        logged.large(b"one block", &noise(1, 50 << 10));
        logged.large(b"small", &noise(2, 3 << 10));
        let least = if value == "throughput" { 53 << 10 } else { 50 << 10 };
        let whole = 1_200_000 / record * record + text.len() as u64 / record * record;
        assert_eq!(logged.indirect().1, whole + least, "{value}");
        logged.judge(value, true);
        logged.load.pool.sync().unwrap();
        // the same contents once more
        logged.zpl.open_file(again).unwrap().write(0, &text).unwrap();
        logged.zpl.sync_object(again).unwrap();
        logged.judge(value, false);
        logged.load.pool.sync().unwrap();
        check(&logged.load.pool.view(), false).unwrap_or_else(|wrong| panic!("{value}: {wrong}"));
    }
}

/// OpenZFS would take a pointer for a write of its whole block, and the file would become as long as that.
#[test]
fn the_end_of_a_file_is_told_with_its_bytes() {
    let logged = Logged::new();
    logged.set("logbias", "throughput");
    let ino = logged.large(b"file", &noise(1, RECORD + 70_000));
    assert_eq!(logged.indirect(), (1, RECORD));
    write(&logged.zpl, ino, RECORD, &noise(2, 70_000));
    write(&logged.zpl, ino, RECORD / 2, &noise(3, RECORD));
    logged.zpl.sync_object(ino).unwrap();
    assert_eq!(logged.indirect(), (1, RECORD));
    logged.judge("the end was written again", false);
}

#[test]
fn a_log_that_is_full_of_pointers_is_destroyed_whole() {
    let logged = Logged::new();
    logged.large(b"file", &noise(1, 1 << 20));
    let pool = logged.cut();
    let before = pool.view().dsl().find("live").unwrap().phys.referenced_bytes;
    pool.destroy_dataset(FILE_SYSTEM).unwrap();
    pool.sync().unwrap();
    pool.sync().unwrap();
    check(&pool.view(), false).unwrap();
    assert_eq!(pool.view().dsl().find("live").unwrap().phys.referenced_bytes, before);
}
