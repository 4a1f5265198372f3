//! Lists of dead blocks that take in others, and dead lists whose parts move.

use dmu::bpobj::{self, Bpobj, Totals};
use format::ids::ObjectId;

use super::accounts::block;
use super::deadlist::Deadlist;
use super::*;

fn list(world: &World, from: u64, count: u64) -> ObjectId {
    world.change(|change| {
        let id = Bpobj::create(&world.mos, change.tx, bpobj::BLOCK_SIZE, true).unwrap();
        let bps: Vec<BlkPtr> = (from..from + count).map(|n| block(n * 8, 8, Txg::new(2))).collect();
        Bpobj::open(&world.mos, id).unwrap().append(change.tx, &bps, &size_of).unwrap();
        id
    })
}

/// What drains from a list, some in each group.
fn drain(world: &mut World, id: ObjectId, budget: u64) -> Vec<u64> {
    let mut found = Vec::new();
    loop {
        let done = world.change(|change| {
            let list = Bpobj::open(&world.mos, id).unwrap();
            let mut f = |bp: &BlkPtr| {
                found.push(bp.dvas()[0].words()[1]);
                Ok(())
            };
            list.drain(change.tx, budget, &size_of, &mut f).unwrap()
        });
        world.sync();
        if done < budget {
            break;
        }
    }
    found.sort_unstable();
    found
}

#[test]
fn a_list_takes_others_in_and_has_each_block_once() {
    for budget in [7, 1_000, 100_000] {
        let (mut world, _) = World::new(&[]);
        let top = list(&world, 0, 3);
        let long = list(&world, 10_000, 3_000);
        for (from, count) in [(20_000, 5), (21_000, 0), (22_000, 2_500)] {
            let short = list(&world, from, count);
            world.change(|change| Bpobj::open(&world.mos, long).unwrap().append_list(change.tx, short).unwrap());
            world.sync();
        }
        world.change(|change| {
            let list = Bpobj::open(&world.mos, top).unwrap();
            list.append_list(change.tx, long).unwrap();
            assert!(list.append_list(change.tx, top).is_err(), "a list cannot be in itself");
        });
        world.sync();
        let of = |n: u64| Totals::of(&block(n * 8, 8, Txg::new(2)), size_of(&block(n * 8, 8, Txg::new(2)))).used;
        let all = (0..3).chain(10_000..13_000).chain(20_000..20_005).chain(22_000..24_500);
        assert_eq!(Bpobj::open(&world.mos, top).unwrap().totals().unwrap().used, all.clone().map(of).sum::<u64>());
        let mut expect: Vec<u64> = all.map(|n| block(n * 8, 8, Txg::new(2)).dvas()[0].words()[1]).collect();
        expect.sort_unstable();
        assert_eq!(drain(&mut world, top, budget), expect);
        assert!(Bpobj::open(&world.mos, top).unwrap().is_empty().unwrap());
    }
}

#[test]
fn parts_of_dead_lists_move_as_they_are() {
    let (mut world, _) = World::new(&[EMPTY_BPOBJ]);
    let users = |world: &World| world.change(|change| feature::uses(change, EMPTY_BPOBJ).unwrap().unwrap());
    let before = users(&world);
    let (older, newer, free) = world.change(|change| {
        let older = Deadlist::create(change).unwrap();
        [0, 10].iter().for_each(|key| older.add_key(Txg::new(*key)).unwrap());
        let newer = Deadlist::create(change).unwrap();
        [0, 10, 20].iter().for_each(|key| newer.add_key(Txg::new(*key)).unwrap());
        older.insert(&[block(8, 8, Txg::new(5))]).unwrap();
        newer.insert(&[block(16, 8, Txg::new(5)), block(24, 8, Txg::new(12)), block(32, 8, Txg::new(25))]).unwrap();
        (older.id(), newer.id(), Bpobj::create(&world.mos, change.tx, bpobj::BLOCK_SIZE, true).unwrap())
    });
    world.sync();
    world.change(|change| {
        let (older, newer) = (Deadlist::open(change, older).unwrap(), Deadlist::open(change, newer).unwrap());
        let one = size_of(&block(8, 8, Txg::new(5)));
        assert_eq!(newer.totals_born(Txg::new(10), Txg::MAX).unwrap().used, 2 * one);
        newer.move_since(Txg::new(20), &Bpobj::open(&world.mos, free).unwrap()).unwrap();
        assert_eq!(
            (newer.totals().unwrap().used, newer.totals_born(Txg::new(10), Txg::MAX).unwrap().used),
            (2 * one, one)
        );
        newer.merge(older).unwrap();
        assert_eq!(newer.totals().unwrap().used, 3 * one);
        newer.remove_key(Txg::new(10)).unwrap();
        assert_eq!(newer.totals_born(Txg::ZERO, Txg::MAX).unwrap().used, 3 * one);
        newer.free().unwrap();
        assert_eq!(Bpobj::open(&world.mos, free).unwrap().totals().unwrap().used, one);
    });
    assert_eq!(users(&world), before, "nobody has the empty list more often than before");
}
