//! Sets that are changed, synced and opened again, against bytes in memory.

mod recount;

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use arc::Cache;
use base::{Block, Bookmark, Env};
use codec::compress::Compress;
use device::{Device, FaultyDevice, MemDevice};
use format::blkptr::BlkPtr;
use format::dnode::Dnode;
use format::ids::{DatasetId, Guid, ObjectId, Txg, VdevNumber};
use format::object_type::ObjectType;
use format::objset::ObjsetType;
use format::space_map::Run;
use proptest::prelude::*;
use vdev::{Tree, VdevSpec};
use zio::alloc::{Allocator, Class, SpaceMapSource, TopShape};
use zio::{BlockWrite, Mode, OnFailure, Zio};

use super::Owners;
use super::tree::ObjectJob;
use super::writer::BlockWriter;
use crate::node::{Layer, SPILL_BLKID};
use crate::traverse::{Descend, Visit, Visitor, traverse};
use crate::{Ledger, Object, Objset, ObjsetPolicy, Throttle, Txgs};

const GUID: Guid = Guid::new(5);
const SIZE: u64 = 64 << 20;

/// Every block of data is one on disk.
fn unpacked() -> ObjsetPolicy {
    ObjsetPolicy { embed: false, compress: Compress::Off, ..ObjsetPolicy::default() }
}

struct Nothing;

impl SpaceMapSource for Nothing {
    fn runs(&self, _top: VdevNumber, _metaslab: u64) -> base::Result<Vec<Run>> {
        Ok(Vec::new())
    }
}

/// Counts what lives, and frees what dies.
struct Count<'a> {
    zio: &'a Zio,
    txg: Txg,
    alive: &'a mut HashMap<[u64; 2], Txg>,
}

impl Ledger for Count<'_> {
    fn born(&mut self, bp: &BlkPtr) {
        if !bp.is_embedded() {
            let before = self.alive.insert(bp.dvas()[0].words(), bp.birth());
            assert_eq!(before, None, "{bp:?} is born where another one lives");
        }
    }

    fn killed(&mut self, bp: &BlkPtr) -> base::Result<()> {
        if !bp.is_embedded() {
            let before = self.alive.remove(&bp.dvas()[0].words());
            assert_eq!(before, Some(bp.birth()), "{bp:?} dies and does not live");
        }
        self.zio.free(self.txg, bp, OnFailure::Fail).map(drop)
    }
}

fn pool() -> (Arc<Cache>, Arc<FaultyDevice>) {
    let disk = Arc::new(FaultyDevice::new(Arc::new(MemDevice::new("disk", vec![0; SIZE as usize])), 0));
    let device: Arc<dyn Device> = disk.clone();
    let tree = Arc::new(Tree::open(VdevSpec::of_file(GUID, SIZE - (5 << 20), 24), &[(GUID, device)].into()).unwrap());
    let zio = Arc::new(Zio::new(tree.clone(), Env::fixed(0)));
    let allocator = Arc::new(Allocator::new(tree, Box::new(Nothing)));
    let metaslabs = (0..3).map(|i| (i << 24..(i + 1) << 24, 0)).collect();
    allocator
        .add_top(TopShape { top: VdevNumber::new(0), class: Class::Normal, metaslab_shift: 24, metaslabs })
        .unwrap();
    zio.set_allocator(allocator);
    (Arc::new(Cache::new(zio, 1 << 20)), disk)
}

#[derive(Clone, Debug)]
enum Step {
    Create(u64),
    Free(usize),
    Write(usize, u64, u16, u8),
    Punch(usize, u64, u64),
    Spill(usize, Option<u8>),
    Bonus(usize, u8),
    Sync,
}

fn step() -> impl Strategy<Value = Step> {
    let offset = prop_oneof![0..3000u64, 0..300_000u64, 0..4_000_000u64];
    let len = prop_oneof![0..2000u64, 0..100_000u64, 0..5_000_000u64];
    prop_oneof![
        2 => prop_oneof![Just(512), Just(1024), Just(8192)].prop_map(Step::Create),
        1 => (0..9usize).prop_map(Step::Free),
        12 => (0..9usize, offset.clone(), 1..20_000u16, any::<u8>()).prop_map(|(o, at, len, seed)| Step::Write(o, at, len, seed)),
        4 => (0..9usize, offset, len).prop_map(|(o, at, len)| Step::Punch(o, at, len)),
        // system attributes are never all zeros, which would be a hole
        1 => (0..9usize, proptest::option::of(1u8..)).prop_map(|(o, byte)| Step::Spill(o, byte)),
        2 => (0..9usize, any::<u8>()).prop_map(|(o, byte)| Step::Bonus(o, byte)),
        4 => Just(Step::Sync),
    ]
}

#[derive(Clone, Default)]
struct Model {
    /// Bytes that are not zero.
    bytes: BTreeMap<u64, u8>,
    end: u64,
    spill: Option<u8>,
    bonus: u8,
}

struct World {
    disk: Arc<FaultyDevice>,
    cache: Arc<Cache>,
    txgs: Txgs,
    set: Arc<Objset>,
    alive: HashMap<[u64; 2], Txg>,
    model: BTreeMap<ObjectId, Model>,
    /// Blocks that failed to be written, and went elsewhere.
    moved: Vec<Bookmark>,
}

impl World {
    fn new() -> World {
        let (cache, disk) = pool();
        let set = Objset::open_live(
            cache.clone(),
            DatasetId::new(9),
            BlkPtr::HOLE,
            ObjsetType::Zfs,
            "t/fs",
            ObjsetPolicy::default(),
        )
        .unwrap();
        World {
            disk,
            cache,
            txgs: Txgs::new(Txg::new(3), Throttle::of(&Env::fixed(0), 8 << 30)),
            set,
            alive: HashMap::new(),
            model: BTreeMap::new(),
            moved: Vec::new(),
        }
    }

    fn id(&self, n: usize) -> Option<ObjectId> {
        self.model.keys().nth(n % self.model.len().max(1)).copied()
    }

    fn take(&mut self, step: &Step) {
        let tx = self.txgs.begin().unwrap();
        match *step {
            Step::Create(block_size) => {
                let mut dnode = Dnode::new(ObjectType::PLAIN_FILE_CONTENTS, block_size, 12, 1, 1);
                dnode.bonus_type = ObjectType::SA;
                let object = self.set.allocate(&tx, dnode).unwrap();
                assert!(self.model.insert(object.id(), Model::default()).is_none());
            }
            Step::Sync => {
                drop(tx);
                self.sync();
            }
            Step::Free(n) => {
                let Some(id) = self.id(n) else { return };
                self.set.free_object(&tx, id).unwrap();
                self.model.remove(&id);
            }
            Step::Write(n, at, len, seed) => {
                let Some(id) = self.id(n) else { return };
                let data: Vec<u8> = (0..len).map(|i| seed.wrapping_add((i / 7) as u8)).collect();
                self.set.object(id).unwrap().write(&tx, at, &data).unwrap();
                let model = self.model.get_mut(&id).unwrap();
                for (at, byte) in (at..).zip(data) {
                    model.bytes.insert(at, byte);
                }
                model.end = model.end.max(at + u64::from(len));
            }
            Step::Punch(n, at, len) => {
                let Some(id) = self.id(n) else { return };
                self.set.object(id).unwrap().free_range(&tx, at, len).unwrap();
                let model = self.model.get_mut(&id).unwrap();
                model.bytes.retain(|byte, _| !(at..at + len).contains(byte));
            }
            Step::Spill(n, byte) => {
                let Some(id) = self.id(n) else { return };
                let contents = byte.map(|byte| vec![byte; 700]);
                self.set.object(id).unwrap().set_spill(&tx, contents.as_deref()).unwrap();
                self.model.get_mut(&id).unwrap().spill = byte;
            }
            Step::Bonus(n, byte) => {
                let Some(id) = self.id(n) else { return };
                self.set.object(id).unwrap().update(&tx, |dnode| dnode.bonus = vec![byte; 20]).unwrap();
                self.model.get_mut(&id).unwrap().bonus = byte;
            }
        }
    }

    /// Syncs while the next group is open already.
    fn sync(&mut self) {
        let txg = self.txgs.close();
        let zio = self.cache.zio().clone();
        let mut ledger = Count { zio: &zio, txg, alive: &mut self.alive };
        let tx = self.txgs.in_sync(txg);
        let mut synced = self.set.sync(&tx, &mut ledger).unwrap();
        while zio.finish_writes().is_err() {
            assert!(zio.retry_failed().is_err());
            let mut relocate = |failed: &[Bookmark]| {
                synced = Some(self.set.relocate(&tx, synced.as_ref().unwrap(), failed, &mut ledger)?.unwrap());
                self.moved.extend(failed);
                Ok(true)
            };
            assert!(zio.replace_failed(&mut relocate).unwrap());
        }
        if let Some(synced) = synced {
            self.check(&self.set.clone(), "before the commit");
            self.set.commit(synced);
        }
        let allocator = zio.allocator().unwrap();
        allocator.take_changes(txg);
        allocator.synced(txg);
        self.txgs.synced(txg);
        self.check(&self.set.clone(), "after the commit");
        if self.set.rootbp().is_hole() {
            return;
        }
        let fresh = Arc::new(Cache::new(zio, 1 << 20));
        let reopened = Objset::open(fresh, DatasetId::new(9), self.set.rootbp(), Mode::Plain, "t/fs").unwrap();
        self.check(&reopened, "from disk");
        self.check_blocks(&reopened);
    }

    fn check(&self, set: &Arc<Objset>, when: &str) {
        for (&id, model) in &self.model {
            let object = set.object(id).unwrap_or_else(|e| panic!("{when}: {e}"));
            let mut bytes = vec![0xee; (model.end + 1000) as usize];
            object.read(0, &mut bytes).unwrap_or_else(|e| panic!("{when}: {e}"));
            let mut expect = vec![0; bytes.len()];
            model.bytes.iter().for_each(|(&at, &byte)| expect[at as usize] = byte);
            let wrong = bytes.iter().zip(&expect).position(|(a, b)| a != b);
            assert_eq!(wrong, None, "{when}: object {id}");
            let spill = object.spill().unwrap().map(|block| (block[0], block.len()));
            assert_eq!(spill, model.spill.map(|byte| (byte, 1024)), "{when}: spill of object {id}");
            let bonus = object.bonus().first().copied().unwrap_or(0);
            assert_eq!(bonus, model.bonus, "{when}: bonus of object {id}");
            check_search(&object, model.end);
        }
    }

    /// What the tree refers to is what lives, and the dnodes' sums are right.
    fn check_blocks(&self, set: &Arc<Objset>) {
        struct All(HashMap<[u64; 2], Txg>);
        impl Visitor for All {
            fn block(&mut self, visit: &Visit<'_>) -> ControlFlow<(), Descend> {
                if !visit.bp.is_hole() && !visit.bp.is_embedded() {
                    self.0.insert(visit.bp.dvas()[0].words(), visit.bp.birth());
                }
                ControlFlow::Continue(Descend::Below)
            }
            fn lost(&mut self, error: base::Error) {
                panic!("{error}");
            }
        }
        let mut all = All(HashMap::new());
        let _ = traverse(set.cache(), DatasetId::new(9), &set.rootbp(), Default::default(), &mut all);
        assert_eq!(all.0, self.alive);
        let (mut last, mut ids) = (ObjectId::NONE, Vec::new());
        while let Some(id) = set.next_object(last).unwrap() {
            ids.push(id);
            last = id;
        }
        assert_eq!(ids, self.model.keys().copied().collect::<Vec<_>>());
        assert_eq!(set.rootbp().fill(), ids.len() as u64);
        let used: u64 = set.cache().zio().allocator().unwrap().class_space(Class::Normal).allocated;
        let phys = set.phys();
        let sum: u64 = ids.iter().map(|&id| set.object(id).unwrap().dnode().used_bytes).sum();
        let accounts: u64 = phys.accounting.iter().flatten().map(|dnode| dnode.used_bytes).sum();
        assert_eq!(sum + accounts + phys.meta_dnode.used_bytes + set.rootbp().asize(), used);
    }
}

#[test]
fn new_objects_do_not_stay_in_memory() {
    let mut world = World::new();
    let nodes = world.cache.nodes().clone();
    let kept = || nodes.bytes() / arc::NODE_BYTES;
    let create = |world: &mut World, count: usize| {
        let tx = world.txgs.begin().unwrap();
        let dnode = || Dnode::new(ObjectType::PLAIN_FILE_CONTENTS, 512, 12, 1, 1);
        let first: Vec<Object> = (0..count).map(|_| world.set.allocate(&tx, dnode()).unwrap()).collect();
        drop(tx);
        world.model.extend(first.iter().map(|object| (object.id(), Model::default())));
        first
    };
    // a cache of 1 MiB has room for 102 of them; 16 shards do not look for fewer than 16 each
    let most = 102 + 16 * 16;
    for round in 1..=4 {
        drop(create(&mut world, 2000));
        assert!(kept() >= 2000, "all have changes");
        world.sync();
        assert!(kept() <= most, "{} of {} objects are in memory", kept(), round * 2000);
    }
    let held = create(&mut world, 2000);
    world.sync();
    assert!((2000..2000 + most).contains(&kept()), "what somebody holds stays: {}", kept());
    drop((held, world));
    assert_eq!(kept(), 0);
}

/// What is found far away is what one block after the other says.
fn check_search(object: &Object, end: u64) {
    let size = object.dnode().block_size;
    let blocks = end.div_ceil(size) + 2;
    let is_data = |blkid: u64| object.next_allocated(blkid * size..(blkid + 1) * size).unwrap().is_some();
    for from in (0..blocks).step_by((blocks / 20).max(1) as usize) {
        let first = is_data(from);
        let other = (from..from + 100).find(|&blkid| is_data(blkid) != first).map(|blkid| blkid * size);
        let (start, end) = (from * size, (from + 100) * size);
        let found = |end: u64| match first {
            true => object.next_hole(start..end).unwrap(),
            false => object.next_allocated(start..end).unwrap().unwrap_or(end),
        };
        assert_eq!(found(end), other.unwrap_or(end));
        let far = found(u64::MAX);
        assert!(far == other.unwrap_or(far) && far >= other.unwrap_or(end), "{far} from {start} on");
    }
}

#[test]
fn a_search_goes_no_further_than_it_has_to() {
    let mut world = World::new();
    world.take(&Step::Create(512));
    world.take(&Step::Write(0, 0, 60_000, 1));
    (1..40).for_each(|at| world.take(&Step::Write(0, at * 60_000, 60_000, 1)));
    world.sync();
    let cache = Arc::new(Cache::new(world.cache.zio().clone(), 1 << 20));
    let set = Objset::open(cache.clone(), DatasetId::new(9), world.set.rootbp(), Mode::Plain, "t/fs").unwrap();
    let object = set.object(world.id(0).unwrap()).unwrap();
    let reads = |bytes: std::ops::Range<u64>| {
        let all = || cache.stats().hits + cache.stats().misses;
        let before = all();
        assert_eq!(object.next_hole(bytes.clone()).unwrap(), bytes.end);
        all() - before
    };
    let of_one = reads(0..512);
    assert_eq!(reads(1_000_000..1_000_100), of_one);
    // 32 blocks of 512 bytes are told by one indirect block
    assert!(reads(0..40 * 60_000) <= (40 * 60_000 / (32 * 512) + 1) * of_one);
}

#[test]
fn what_a_set_reads_waits_as_its_handle_says() {
    let mut world = World::new();
    world.take(&Step::Create(512));
    world.take(&Step::Write(0, 0, 20_000, 1));
    world.sync();
    let (zio, disk) = (world.cache.zio().clone(), world.disk.clone());
    let tree = zio.tree().clone();
    zio.set_device_wait(Arc::new(move |_| {
        disk.heal();
        tree.leaves().next().unwrap().state().reopen(None)
    }));
    let read = |set: &Arc<Objset>, offset: u64| {
        world.disk.vanish(true);
        let object = set.object(world.id(0).unwrap())?;
        world.disk.vanish(true);
        object.read(offset, &mut [0; 512])
    };
    // nothing is in memory
    let cache = Arc::new(Cache::new(zio.clone(), 1 << 20));
    let bp = world.set.rootbp();
    let (id, name) = (DatasetId::new(9), "t/fs");
    world.disk.vanish(true);
    assert!(Objset::open(cache.clone(), id, bp, Mode::Plain, name).is_err());
    let waits = Objset::open(Arc::new(cache.reading(OnFailure::Wait)), id, bp, Mode::Plain, name).unwrap();
    let fails = waits.reading(OnFailure::Fail);
    assert!(read(&fails, 0).is_err());
    read(&waits, 0).unwrap();
    assert!(read(&fails, 10_000).is_err());
    read(&waits, 10_000).unwrap();
    read(&fails, 10_000).unwrap();
}

#[test]
fn accounts_are_no_objects_that_files_can_name() {
    let mut world = World::new();
    world.set.count_objects(true);
    world.set.set_owners_of(Arc::new(|_| Some(Owners { user: 1, group: 2, project: 3 }))).unwrap();
    world.take(&Step::Create(512));
    let (zio, txg) = (world.cache.zio().clone(), world.txgs.close());
    let mut ledger = Count { zio: &zio, txg, alive: &mut world.alive };
    let synced = world.set.sync(&world.txgs.in_sync(txg), &mut ledger).unwrap().unwrap();
    zio.finish_writes().unwrap();
    world.set.commit(synced);
    assert!(world.set.phys().accounting.iter().all(Option::is_some));
    for id in [u64::MAX, u64::MAX - 1, u64::MAX - 2, 1 << 48].map(ObjectId::new) {
        assert_eq!(world.set.object(id).err().map(|e| e.kind()), Some(base::Kind::NotFound), "{id:#x}");
    }
}

#[test]
fn a_tree_that_is_wider_than_its_blocks_is_not_searched_or_freed_for_ever() {
    struct Number(u64);
    impl Ledger for Number {
        fn born(&mut self, _: &BlkPtr) {}
        fn killed(&mut self, _: &BlkPtr) -> base::Result<()> {
            self.0 += 1;
            Ok(())
        }
    }
    let World { cache, txgs, set, .. } = World::new();
    let txg = txgs.close();
    let mut number = Number(0);
    let mut writer = BlockWriter::new(&set, txg, ObjsetPolicy::default(), &mut number);
    let mut write = |bytes: Vec<u8>, level: u8| {
        let bookmark = base::Bookmark { objset: 9, object: 1, level: level.into(), blkid: 0 };
        let (object_type, previous) = (ObjectType::PLAIN_FILE_CONTENTS, BlkPtr::HOLE);
        let mut contents = Block::zeroed(bytes.len());
        contents.make_mut().copy_from_slice(&bytes);
        let policy = writer.policy_of(level, object_type, (0, 0));
        let new = BlockWrite::new(contents, (object_type, level), bookmark, policy);
        let write = BlockWrite { previous, ..new };
        writer.write(vec![write]).unwrap()[0]
    };
    let mut top = write((0..=255).cycle().take(512).collect(), 0);
    // 32 pointers in each block, all to the one below
    for level in 1..=10 {
        top = write(top.raw().repeat(32), level);
    }
    cache.zio().finish_writes().unwrap();
    let mut dnode = Dnode::new(ObjectType::PLAIN_FILE_CONTENTS, 512, 12, 1, 1);
    (dnode.levels, dnode.block_max, dnode.blkptrs[0]) = (11, (1 << 50) - 1, top);
    let dnode = Arc::new(dnode);
    let found = Object::new(set.clone(), ObjectId::new(1), dnode.clone()).next_hole(0..u64::MAX).unwrap_err();
    assert_eq!(found.kind(), base::Kind::Corrupt);
    let portion = Object::new(set.clone(), ObjectId::new(1), dnode.clone()).last_portion(0..u64::MAX, 1000).unwrap();
    assert!(portion.from > 0 && portion.blocks <= 1000, "{portion:?}");
    let mut job = ObjectJob::new(&set, ObjectId::new(1), dnode, Arc::new(Layer::default()));
    let error = job.free_first(&mut writer).unwrap_err();
    assert_eq!(error.kind(), base::Kind::Corrupt);
    assert_eq!(number.0, 32 + 1, "it ends at the second pointer to what is freed");
}

#[test]
fn a_block_is_written_below_more_levels_than_there_are_bits_in_its_number() {
    struct Nothing;
    impl Ledger for Nothing {
        fn born(&mut self, _: &BlkPtr) {}
        fn killed(&mut self, _: &BlkPtr) -> base::Result<()> {
            Ok(())
        }
    }
    let World { cache, txgs, set, .. } = World::new();
    let mut nothing = Nothing;
    let mut writer = BlockWriter::new(&set, txgs.close(), ObjsetPolicy::default(), &mut nothing);
    // ten bits of the number a level
    let mut dnode = Dnode::new(ObjectType::PLAIN_FILE_CONTENTS, 512, 17, 1, 1);
    dnode.levels = 10;
    let mut block = Block::zeroed(512);
    block.make_mut().fill(7);
    let mut job =
        ObjectJob::of_blocks(Object::new(set.clone(), ObjectId::new(1), Arc::new(dnode)), [(0, block.clone())].into());
    job.free_first(&mut writer).unwrap();
    let write = job.data_write(0, block, &writer).unwrap();
    let bp = writer.write(vec![write]).unwrap()[0];
    job.put(0, 0, &BlkPtr::HOLE, bp, &mut writer).unwrap();
    let dnode = job.finish(&mut writer).unwrap().unwrap();
    cache.zio().finish_writes().unwrap();
    assert_eq!(dnode.levels, 10);
    let mut read = [0; 512];
    Object::new(set.clone(), ObjectId::new(1), Arc::new(dnode)).read(0, &mut read).unwrap();
    assert_eq!(read, [7; 512]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn what_is_changed_is_what_is_read(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
        }
        world.sync();
        world.sync();
    }

    #[test]
    fn what_cannot_be_written_goes_elsewhere(
        steps in prop::collection::vec(step(), 1..60),
        bad in prop::collection::vec((0..47u64 << 20, 1..64u64 << 10), 30),
    ) {
        let mut world = World::new();
        world.set.set_policy(unpacked()).unwrap();
        for (at, len) in bad {
            world.disk.unwritable((4 << 20) + at..(4 << 20) + at + len);
        }
        for step in &steps {
            world.take(step);
        }
        world.sync();
        world.sync();
    }
}

/// The same, with every kind of block among those that fail.
#[test]
fn every_block_can_go_elsewhere() {
    let mut world = World::new();
    world.set.set_policy(unpacked()).unwrap();
    (0..900).map(|n| (4 << 20) + n * (48 << 10)).for_each(|at| world.disk.unwritable(at..at + 4096));
    (0..6).for_each(|_| world.take(&Step::Create(512)));
    let has_all = |moved: &[Bookmark]| {
        let has = |is_one: &dyn Fn(&Bookmark) -> bool| moved.iter().any(is_one);
        has(&|at| at.object > 0 && at.level == 0 && at.blkid < SPILL_BLKID)
            && has(&|at| at.blkid == SPILL_BLKID)
            && has(&|at| at.object > 0 && at.level > 0)
            && has(&|at| at.object == 0 && at.level == 0)
            && has(&|at| at.object == 0 && at.level > 0)
            && has(&|at| at.level < 0)
    };
    for n in 0..200 {
        world.take(&Step::Write(n, 2_000_000, 600, n as u8));
        world.take(&Step::Spill(n, Some(n as u8 + 1)));
        world.sync();
        if has_all(&world.moved) {
            break;
        }
    }
    assert!(has_all(&world.moved), "{:?}", world.moved);
    world.sync();
}
