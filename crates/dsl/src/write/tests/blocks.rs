//! Heads with real blocks: written, charged, destroyed, freed.

use std::collections::HashMap;
use std::ops::ControlFlow;

use dmu::Mode;
use dmu::bpobj::{self, Bpobj, Totals};
use dmu::traverse::{Descend, Range, Visit, Visitor, traverse};
use format::dnode::Dnode;
use format::ids::{DatasetId, ObjectId};

use super::bptree::has_destroyed;
use super::*;

/// Sizes of all blocks below a root, and the blocks with addresses.
#[derive(Default)]
struct All {
    totals: Totals,
    blocks: HashMap<[u64; 2], Txg>,
}

impl Visitor for All {
    fn block(&mut self, visit: &Visit<'_>) -> ControlFlow<(), Descend> {
        self.totals = self.totals.plus(Totals::of(visit.bp, size_of(visit.bp)));
        if !visit.bp.is_embedded() {
            assert_eq!(self.blocks.insert(visit.bp.dvas()[0].words(), visit.bp.birth()), None);
        }
        ControlFlow::Continue(Descend::Below)
    }

    fn lost(&mut self, error: base::Error) {
        panic!("{error}");
    }
}

fn all(world: &World, root: &BlkPtr) -> All {
    let mut all = All::default();
    assert!(traverse(&world.cache, DatasetId::new(99), root, Range::default(), &mut all).is_continue());
    all
}

impl World {
    /// Changes a head by `f`, and writes it.
    fn write(&mut self, dataset: DatasetId, f: impl FnOnce(&Arc<Objset>, &Tx<'_>)) {
        let bp = self.change(|change| change.dataset(dataset).unwrap().bp);
        let set =
            Objset::open_live(self.cache.clone(), dataset, bp, ObjsetType::Zfs, "fs", ObjsetPolicy::default()).unwrap();
        let tx = self.txgs.in_sync(self.txg);
        f(&set, &tx);
        let mut ledger = DatasetLedger::open(&self.mos, dataset, &size_of).unwrap();
        let synced = set.sync(&tx, &mut ledger).unwrap().unwrap();
        self.cache.zio().finish_writes().unwrap();
        let freed = self.change(|change| ledger.finish(change, synced.rootbp()).unwrap());
        for bp in &freed {
            self.cache.zio().free(self.txg, bp, dmu::OnFailure::Fail).unwrap();
        }
        set.commit(synced);
    }
}

impl World {
    /// Allocates a block, and puts it on the list of what destroyed snapshots leave.
    fn block_of_snapshot(&self, list: ObjectId, n: u64) -> BlkPtr {
        let bp = super::accounts::block((40 << 11) + n * 8, 8, Txg::new(2));
        self.change(|change| {
            Bpobj::open(&self.mos, list).unwrap().append(change.tx, &[bp], &size_of).unwrap();
            let delta = space::Delta::between(Totals::default(), Totals::of(&bp, size_of(&bp)));
            space::charge(change, change.own_dir("$FREE").unwrap(), space::UsedColumn::Head, delta).unwrap();
        });
        bp
    }
}

/// Files of many blocks, of few and of none, with holes.
fn fill(set: &Arc<Objset>, tx: &Tx<'_>) {
    for i in 0..300u64 {
        let dnode = Dnode::new(ObjectType::PLAIN_FILE_CONTENTS, 512 << (i % 3), 12, 1, 1);
        let object = set.allocate(tx, dnode).unwrap();
        for part in 0..i % 7 {
            let bytes: Vec<u8> = (0..5000u64).map(|n| (n * n * (i + 3) >> 5) as u8).collect();
            object.write(tx, part * 40_000 + i * 13, &bytes).unwrap();
        }
    }
}

fn change_some(set: &Arc<Objset>, tx: &Tx<'_>) {
    let mut id = ObjectId::NONE;
    while let Some(next) = set.next_object(id).unwrap() {
        id = next;
        match id.get() % 5 {
            0 => set.free_object(tx, id).unwrap(),
            1 => set.object(id).unwrap().write(tx, 700, &[id.get() as u8; 900]).unwrap(),
            _ => {}
        }
    }
}

#[test]
fn the_books_tell_what_is_on_disk() {
    let (mut world, _) = World::new(&[ASYNC_DESTROY]);
    let id = world.create("tank/a", &[]).unwrap().dataset;
    world.write(id, fill);
    world.sync();
    world.write(id, change_some);
    world.sync();
    let mos = Objset::open(world.cache.clone(), DatasetId::MOS, world.mos.rootbp(), Mode::Plain, "tank").unwrap();
    let dsl = Dsl::open(mos, "tank").unwrap();
    let head = dsl.find("tank/a").unwrap().phys;
    let found = all(&world, &head.bp).totals;
    let told = Totals {
        used: head.referenced_bytes,
        compressed: head.compressed_bytes,
        uncompressed: head.uncompressed_bytes,
    };
    assert_eq!(told, found);
    assert_eq!(head.unique_bytes, found.used);
    let root = dsl.root().unwrap().phys;
    assert_eq!((root.used_bytes, root.compressed_bytes), (found.used, found.compressed));
}

#[test]
fn destroyed_heads_are_freed_bit_by_bit_each_block_once() {
    for budget in [1, 7, 100, 1_000_000] {
        let (mut world, pool) = World::new(&[ASYNC_DESTROY]);
        let ids = [world.create("tank/a", &[]).unwrap().dataset, world.create("tank/b", &[]).unwrap().dataset];
        for id in ids {
            world.write(id, fill);
        }
        world.sync();
        let mut left = HashMap::new();
        for id in ids {
            let bp = world.change(|change| change.dataset(id).unwrap().bp);
            left.extend(all(&world, &bp).blocks);
        }
        let used = world.dsl().root().unwrap().phys.used_bytes;
        assert_eq!(world.destroy("tank/a").unwrap(), Destroyed::Queued);
        assert_eq!(world.destroy("tank/b").unwrap(), Destroyed::Queued);
        // and some that a snapshot left
        let listed: Vec<BlkPtr> = (0..10).map(|n| world.block_of_snapshot(pool.free_list, n)).collect();
        left.extend(listed.iter().map(|bp| (bp.dvas()[0].words(), bp.birth())));
        let used = used + listed.iter().map(size_of).sum::<u64>();
        assert_eq!(world.dsl().root().unwrap().phys.used_bytes, used);
        assert_eq!(world.change(|change| feature::uses(change, ASYNC_DESTROY).unwrap()), Some(1));
        let (mut rounds, mut go_on) = (0, true);
        while go_on {
            let mut freed = Vec::new();
            go_on = world.change(|change| free_destroyed(change, budget, &mut |bp| freed.push(*bp)).unwrap());
            for bp in &freed {
                assert_eq!(left.remove(&bp.dvas()[0].words()), Some(bp.birth()), "{bp:?} is freed twice");
                if bp.birth() > Txg::new(2) {
                    world.cache.zio().free(world.txg, bp, dmu::OnFailure::Fail).unwrap();
                }
            }
            rounds += 1;
            if rounds % 50 == 1 {
                world.sync();
            }
        }
        assert!(left.is_empty() && (rounds > 1) == (budget < 1_000_000), "{} left", left.len());
        world.change(|change| {
            assert!(!has_destroyed(change).unwrap());
            assert_eq!(feature::uses(change, ASYNC_DESTROY).unwrap(), Some(0));
            let free = change.dir(change.own_dir("$FREE").unwrap()).unwrap();
            assert_eq!((free.used_bytes, free.compressed_bytes, free.uncompressed_bytes), (0, 0, 0));
        });
        assert_eq!(world.dsl().root().unwrap().phys.used_bytes, 0);
    }
}

#[test]
fn without_the_feature_blocks_are_freed_at_once() {
    let (mut world, _) = World::new(&[]);
    let id = world.create("tank/a", &[]).unwrap().dataset;
    world.write(id, fill);
    world.sync();
    let bp = world.change(|change| change.dataset(id).unwrap().bp);
    let mut left = all(&world, &bp).blocks;
    let Destroyed::Blocks { root, since_txg } = world.destroy("tank/a").unwrap() else { panic!("blocks are lost") };
    world.change(|change| {
        let free = &mut |bp: &BlkPtr| assert!(left.remove(&bp.dvas()[0].words()).is_some());
        free_tree(change, &root, since_txg, free).unwrap();
    });
    assert!(left.is_empty());
    assert_eq!(world.dsl().root().unwrap().phys.used_bytes, 0);
}

#[test]
fn lists_are_filled_and_drained() {
    let (mut world, pool) = World::new(&[]);
    let id = world.create("tank/a", &[]).unwrap().dataset;
    world.write(id, fill);
    world.sync();
    let mut bps: Vec<BlkPtr> = Vec::new();
    struct Take<'a>(&'a mut Vec<BlkPtr>);
    impl Visitor for Take<'_> {
        fn block(&mut self, visit: &Visit<'_>) -> ControlFlow<(), Descend> {
            self.0.push(*visit.bp);
            ControlFlow::Continue(Descend::Below)
        }
        fn lost(&mut self, error: base::Error) {
            panic!("{error}");
        }
    }
    let bp = world.change(|change| change.dataset(id).unwrap().bp);
    assert!(traverse(&world.cache, DatasetId::new(99), &bp, Range::default(), &mut Take(&mut bps)).is_continue());
    let (first, rest) = bps.split_at(bps.len() / 3);
    let list = |world: &World| Bpobj::open(&world.mos, pool.deferred_list).unwrap();
    world.change(|change| list(&world).append(change.tx, first, &size_of).unwrap());
    world.sync();
    world.change(|change| list(&world).append(change.tx, rest, &size_of).unwrap());
    world.sync();
    let sum = bps.iter().fold(Totals::default(), |sum, bp| sum.plus(Totals::of(bp, size_of(bp))));
    assert_eq!(list(&world).totals().unwrap(), sum);

    let mos = Objset::open(world.cache.clone(), DatasetId::MOS, world.mos.rootbp(), Mode::Plain, "tank").unwrap();
    let mut at = bps.iter();
    bpobj::for_each(&mos, pool.deferred_list, &mut |listed| {
        let expect = at.next().unwrap();
        assert_eq!((listed.bp.birth(), listed.bp.lsize()), (expect.birth(), expect.lsize()));
        assert!(expect.is_embedded() || listed.bp.dvas() == expect.dvas());
        assert!(!listed.is_free && listed.bp.checksum() == [0; 4]);
        Ok(())
    })
    .unwrap();
    assert!(at.next().is_none());

    let mut drained = 0;
    while drained < bps.len() {
        let n = world.change(|change| {
            let f = &mut |bp: &BlkPtr| {
                drained += 1;
                assert_eq!(bp.birth(), bps[bps.len() - drained].birth());
                Ok(())
            };
            list(&world).drain(change.tx, 700, &size_of, f).unwrap()
        });
        assert!(n == 700 || drained == bps.len());
        world.sync();
    }
    assert!(list(&world).is_empty().unwrap());
    assert_eq!(list(&world).totals().unwrap(), Totals::default());
}

#[test]
fn sublists_are_drained_and_freed_with_their_list() {
    let (mut world, _) = World::new(&[]);
    let id = world.create("tank/a", &[]).unwrap().dataset;
    world.write(id, fill);
    world.sync();
    let root = world.change(|change| change.dataset(id).unwrap().bp);
    let objects = |world: &World| {
        let (mut count, mut id) = (0, ObjectId::NONE);
        while let Some(next) = world.mos.next_object(id).unwrap() {
            (count, id) = (count + 1, next);
        }
        count
    };
    let before = objects(&world);
    // 5 pointers of its own, and two sublists of 7 each
    let make = |world: &World| {
        world.change(|change| {
            let list = |n: usize| {
                let id = Bpobj::create(change.mos, change.tx, bpobj::BLOCK_SIZE, true).unwrap();
                Bpobj::open(change.mos, id).unwrap().append(change.tx, &vec![root; n], &size_of).unwrap();
                id
            };
            let (parent, parts) = (list(5), [list(7), list(7)]);
            let names = change.create_object(ObjectType::BPOBJ_SUBLISTS, (ObjectType::NONE, Vec::new())).unwrap();
            names.write(change.tx, 0, &parts.map(|part| part.get().to_le_bytes()).concat()).unwrap();
            let object = change.mos.object(parent).unwrap();
            let size = Totals::of(&root, size_of(&root));
            let sizes = [19 * size.used, 19 * size.compressed, 19 * size.uncompressed, names.id().get(), 2];
            let words: Vec<u8> = sizes.iter().flat_map(|word| word.to_le_bytes()).collect();
            object.update(change.tx, |dnode| dnode.bonus[8..].copy_from_slice(&words)).unwrap();
            parent
        })
    };
    let parent = make(&world);
    world.sync();
    let mut seen = 0;
    for expect in [4, 4, 4, 4, 3, 0] {
        let n = world.change(|change| {
            let list = Bpobj::open(&world.mos, parent).unwrap();
            let f = &mut |bp: &BlkPtr| {
                seen += 1;
                assert_eq!(bp.birth(), root.birth());
                Ok(())
            };
            list.drain(change.tx, 4, &size_of, f).unwrap()
        });
        assert_eq!(n, expect);
        world.sync();
    }
    let list = Bpobj::open(&world.mos, parent).unwrap();
    assert!(list.is_empty().unwrap() && list.totals().unwrap() == Totals::default() && seen == 19);
    assert_eq!(objects(&world), before + 1);
    let other = make(&world);
    world.sync();
    world.change(|change| {
        for list in [parent, other] {
            Bpobj::free(change.mos, change.tx, list).unwrap();
        }
    });
    world.sync();
    assert_eq!(objects(&world), before);
}

/// Counts in the head of a list that it cannot have: draining it or adding to it is an error, soon.
#[test]
fn a_list_that_lies_about_its_length_is_damage() {
    let (mut world, _) = World::new(&[]);
    let id = world.create("tank/a", &[]).unwrap().dataset;
    world.write(id, fill);
    world.sync();
    let root = world.change(|change| change.dataset(id).unwrap().bp);
    // pointers, sublists
    for (pointers, sublists) in [(1 << 57, 0), ((1 << 57) + 1, 0), (1 << 43, 0), (7, 0), (0, 1 << 61 | 1)] {
        let outcomes = world.change(|change| {
            let id = Bpobj::create(change.mos, change.tx, bpobj::BLOCK_SIZE, true).unwrap();
            let put = |bonus: &mut [u8]| {
                bonus[..8].copy_from_slice(&u64::to_le_bytes(pointers));
                bonus[40..48].copy_from_slice(&u64::to_le_bytes(sublists));
            };
            change.mos.object(id).unwrap().update(change.tx, |dnode| put(&mut dnode.bonus)).unwrap();
            let list = || Bpobj::open(change.mos, id);
            let drain = |list: Bpobj| list.drain(change.tx, u64::MAX, &size_of, &mut |_| Ok(()));
            let drained = list().and_then(drain).map(drop);
            let added = list().and_then(|list| list.append(change.tx, &[root], &size_of));
            [drained, added].map(|outcome| outcome.err().map(|error| error.kind()))
        });
        let only_holes = pointers == 7;
        assert_eq!(outcomes, [Some(Kind::Corrupt), (!only_holes).then_some(Kind::Corrupt)], "{pointers} {sublists}");
    }
}
