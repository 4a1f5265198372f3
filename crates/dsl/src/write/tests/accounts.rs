//! Random work on datasets with snapshots and reservations: the sums in all records hold at any time.

use std::collections::BTreeMap;

use dmu::Ledger;
use dmu::bpobj::{self, Totals};
use dmu::zap::{Zap, ZapKey};
use format::blkptr::{BlkPtrBuilder, BlockShape, Dva};
use format::ids::{DatasetId, ObjectId, Txg, VdevNumber};
use proptest::prelude::*;

use super::super::space::{Delta, UsedColumn};
use format::nvlist;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Create(usize),
    Write(usize, Vec<(usize, u64)>),
    Snapshot(usize),
    Reserve(usize, u64),
    Refreserve(usize, u64),
    Rename(usize, usize),
    Destroy(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![Just(0), 1..40_000u64];
    prop_oneof![
        3 => (0..9usize).prop_map(Step::Create),
        8 => (0..9usize, prop::collection::vec((0..12usize, 1..9u64), 1..6)).prop_map(|(d, w)| Step::Write(d, w)),
        3 => (0..9usize).prop_map(Step::Snapshot),
        3 => (0..9usize, bytes.clone()).prop_map(|(d, b)| Step::Reserve(d, b)),
        3 => (0..9usize, bytes).prop_map(|(d, b)| Step::Refreserve(d, b)),
        2 => (0..9usize, 0..9usize).prop_map(|(d, to)| Step::Rename(d, to)),
        1 => (0..9usize).prop_map(Step::Destroy),
    ]
}

/// A block of `sectors` somewhere.
pub(super) fn block(at: u64, sectors: u64, txg: Txg) -> BlkPtr {
    let shape = BlockShape {
        lsize: 2 * sectors * 512,
        psize: sectors * 512,
        compress: Compress::Lz4 as u8,
        checksum: Checksum::Fletcher4 as u8,
        object_type: ObjectType::PLAIN_FILE_CONTENTS,
        level: 0,
    };
    BlkPtrBuilder::new(shape, txg)
        .at(&[Dva::new(VdevNumber::new(0), at * 512, sectors * 512, false)])
        .checksum([1; 4])
        .build()
}

/// The blocks of each head, by place.
type Heads = BTreeMap<DatasetId, BTreeMap<usize, BlkPtr>>;

fn write(world: &World, dataset: DatasetId, writes: &[(usize, u64)], heads: &mut Heads, next: &mut u64) {
    let blocks = heads.entry(dataset).or_default();
    let mut ledger = DatasetLedger::open(&world.mos, dataset, &size_of).unwrap();
    for &(place, sectors) in writes {
        *next += sectors;
        // every fourth write only frees
        let new = (sectors % 4 != 0).then(|| block(*next, sectors, world.txg));
        if let Some(old) = blocks.remove(&place) {
            ledger.killed(&old).unwrap();
        }
        if let Some(new) = new {
            ledger.born(&new);
            blocks.insert(place, new);
        }
    }
    let freed = world.change(|change| {
        let prev = change.dataset(dataset).unwrap().prev_snap_txg;
        let freed = ledger.finish(change, BlkPtr::HOLE).unwrap();
        (freed, prev)
    });
    assert!(freed.0.iter().all(|bp| bp.birth() > freed.1));
}

/// Totals of a dead list, summed from its parts, and of those in it born after `txg` the used bytes.
fn dead(world: &World, list: ObjectId, txg: Txg) -> (Totals, u64) {
    let (mut sum, mut young) = (Totals::default(), 0);
    let entries = Zap::open(world.mos.object(list).unwrap()).unwrap().entries().unwrap();
    let key = |name: &ZapKey| Txg::new(u64::from_str_radix(&name.to_string(), 16).unwrap());
    let mut keys: Vec<Txg> = entries.iter().map(|entry| key(&entry.name)).collect();
    keys.sort_unstable();
    for entry in entries {
        let key = key(&entry.name);
        let end = keys.iter().find(|other| **other > key).copied().unwrap_or(Txg::MAX);
        bpobj::for_each(&world.mos, entry.value.first_object().unwrap(), &mut |listed| {
            let birth = listed.bp.birth();
            assert!(key < birth && birth <= end, "born in {birth}, listed as after {key}, up to {end}");
            sum = sum.plus(Totals::of(&listed.bp, size_of(&listed.bp)));
            young += if birth > txg { size_of(&listed.bp) } else { 0 };
            Ok(())
        })
        .unwrap();
    }
    let bonus = world.mos.object(list).unwrap().bonus().to_vec();
    let word = |i: usize| u64::from_le_bytes(bonus[i * 8..i * 8 + 8].try_into().unwrap());
    assert_eq!(sum, Totals { used: word(0), compressed: word(1), uncompressed: word(2) });
    (sum, young)
}

fn check(world: &World, heads: &Heads) {
    let dsl = world.dsl();
    for dir in dsl.walk().unwrap() {
        let phys = &dir.phys;
        let head = dsl.head(&dir).unwrap();
        let sum = |bps: &mut dyn Iterator<Item = &BlkPtr>| {
            bps.fold(Totals::default(), |sum, bp| sum.plus(Totals::of(bp, size_of(bp))))
        };
        let none = BTreeMap::new();
        let blocks = heads.get(&head.id).unwrap_or(&none);
        let referenced = sum(&mut blocks.values());
        let unique = sum(&mut blocks.values().filter(|bp| bp.birth() > head.phys.prev_snap_txg));
        let p = &head.phys;
        let told =
            Totals { used: p.referenced_bytes, compressed: p.compressed_bytes, uncompressed: p.uncompressed_bytes };
        assert_eq!((told, p.unique_bytes), (referenced, unique.used), "{}", dir.name);

        let mut in_snapshots = dead(world, p.deadlist, Txg::ZERO).0;
        for snapshot in dsl.snapshots(&head).unwrap() {
            in_snapshots = in_snapshots.plus(dead(world, snapshot.phys.deadlist, Txg::ZERO).0);
            if snapshot.phys.next_snap == head.id {
                let (_, young) = dead(world, p.deadlist, snapshot.phys.prev_snap_txg);
                assert_eq!(snapshot.phys.unique_bytes, young, "{}", snapshot.name);
            }
        }
        let refreservation = world.change(|change| room::refreservation_of(change, dir.id).unwrap());
        let below: Vec<_> = dsl.child_ids(&dir).unwrap();
        let below: Vec<DirPhys> = below.iter().map(|(name, id)| dsl.dir(*id, name).unwrap().phys).collect();
        let columns = [
            referenced.used,
            in_snapshots.used,
            below.iter().map(|dir| dir.used_bytes).sum(),
            below.iter().map(|dir| dir.reserved.saturating_sub(dir.used_bytes)).sum(),
            refreservation.saturating_sub(p.unique_bytes),
        ];
        assert_eq!(phys.used_breakdown, columns, "{}", dir.name);
        assert_eq!(phys.used_bytes, columns.iter().sum::<u64>(), "{}", dir.name);
        let compressed = referenced.compressed + in_snapshots.compressed;
        let compressed = compressed + below.iter().map(|dir| dir.compressed_bytes).sum::<u64>();
        assert_eq!(phys.compressed_bytes, compressed, "{}", dir.name);
    }
}

/// The empty list counts its users: parts of dead lists of all datasets there are.
fn check_empty_list(world: &World) {
    let dsl = world.dsl();
    let empty = world.change(|change| change.in_directory("empty_bpobj").unwrap());
    let mut dirs: Vec<DatasetId> = dsl.walk().unwrap().iter().map(|dir| dir.phys.head_dataset).collect();
    dirs.push(world.change(|change| change.dir(change.own_dir("$ORIGIN").unwrap()).unwrap().head_dataset));
    let mut count = 0;
    for id in dirs {
        let head = dsl.dataset(id, "head").unwrap();
        for dataset in dsl.snapshots(&head).unwrap().iter().chain([&head]) {
            let parts = world.change(|change| change.by_number(dataset.phys.deadlist).unwrap());
            count += parts.iter().filter(|(_, part)| *part == empty.get()).count() as u64;
        }
    }
    assert_eq!(world.change(|change| feature::uses(change, EMPTY_BPOBJ).unwrap()), Some(count));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn sums_hold(steps in prop::collection::vec(step(), 1..60)) {
        let (mut world, _) = World::new(&[EMPTY_BPOBJ]);
        let mut heads = Heads::new();
        let (mut named, mut next) = (0, 0);
        for step in steps {
            world.sync();
            let names = world.names();
            let name = |n: usize| names[n % names.len()].clone();
            // what is refused has changed nothing, and needs no look
            match step {
                Step::Create(n) => {
                    named += 1;
                    world.create(&format!("{}/{named}", name(n)), &[]).unwrap();
                }
                Step::Write(n, writes) => {
                    let id = world.dsl().find(&name(n)).unwrap().id;
                    write(&world, id, &writes, &mut heads, &mut next);
                }
                Step::Snapshot(n) => drop(world.snapshot(&format!("{}@{}", name(n), world.txg))),
                Step::Reserve(n, bytes) => drop(world.set(&name(n), "reservation", &bytes.to_string())),
                Step::Refreserve(n, bytes) => drop(world.set(&name(n), "refreservation", &bytes.to_string())),
                Step::Rename(n, to) => drop(world.rename(&name(n), &format!("{}/{named}x", name(to)))),
                Step::Destroy(n) => {
                    let id = world.dsl().find(&name(n)).unwrap().id;
                    if world.destroy(&name(n)).is_ok() {
                        heads.remove(&id);
                    }
                }
            }
            check(&world, &heads);
        }
        check_empty_list(&world);
    }
}

/// Numbers on disk may be anything.
#[test]
fn sums_of_what_makes_no_sense_wrap() {
    let (world, _) = World::new(&[]);
    world.change(|change| {
        let dir = change.own_dir("$MOS").unwrap();
        let before = change.dir(dir).unwrap();
        let worst = Delta { used: i64::MIN, compressed: i64::MIN, uncompressed: i64::MIN };
        for delta in [worst, worst.negative()] {
            space::charge(change, dir, UsedColumn::Head, delta).unwrap();
        }
        for (share, bytes) in [(i64::MIN, i64::MAX), (i64::MAX, i64::MIN)] {
            space::charge_and_move(change, dir, Delta::used(bytes), share, UsedColumn::Head, UsedColumn::Snapshots)
                .unwrap();
            space::charge_and_move(
                change,
                dir,
                Delta::used(bytes).negative(),
                share.wrapping_neg(),
                UsedColumn::Head,
                UsedColumn::Snapshots,
            )
            .unwrap();
        }
        for (from, to) in [(UsedColumn::Head, UsedColumn::Snapshots), (UsedColumn::Snapshots, UsedColumn::Head)] {
            space::move_space(change, dir, i64::MIN, from, to).unwrap();
        }
        assert_eq!(change.dir(dir).unwrap(), before);
    });
}

#[test]
fn a_received_refreservation_is_charged_once_and_given_back() {
    let (world, _) = World::new(&[]);
    world.create("tank/a", &[]).unwrap();
    let receive = |bytes: u64| {
        let values = [("refreservation".to_owned(), nvlist::Value::U64(bytes))];
        world.change(|change| set_received(change, &world.dsl(), "tank/a", &values, USABLE)).unwrap()
    };
    let used = || world.dsl().find_dir("tank/a").unwrap().phys.used_bytes;
    let before = used();
    assert_eq!(receive(16 << 20).len(), 0);
    assert_eq!(used(), before + (16 << 20));
    assert_eq!(receive(16 << 20).len(), 0, "the same stream again");
    assert_eq!(used(), before + (16 << 20));
    let refused = receive(USABLE * 2);
    assert_eq!((refused[0].0.as_str(), refused[0].1.kind()), ("refreservation", Kind::NoSpace));
    assert_eq!(used(), before, "what was refused is not in force, and what was before is not any more");
    receive(8 << 20);
    world.change(|change| set_received(change, &world.dsl(), "tank/a", &[], USABLE)).unwrap();
    assert_eq!(used(), before);
}
