//! Pools without contents: allocation against a plain model.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};

use format::ids::{Guid, VdevNumber};
use format::nvlist::{NvList, Value};
use vdev::VdevSpec;

use super::*;

/// Runs by vdev and metaslab.
type RunsOf = HashMap<(VdevNumber, u64), Vec<Run>>;

/// Space maps in memory, as the layer above would keep them.
#[derive(Clone, Default)]
struct Maps {
    runs: Arc<Mutex<RunsOf>>,
    loads: Arc<AtomicUsize>,
}

impl SpaceMapSource for Maps {
    fn runs(&self, top: VdevNumber, metaslab: u64) -> Result<Vec<Run>> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        Ok(self.runs.lock().get(&(top, metaslab)).cloned().unwrap_or_default())
    }
}

impl Maps {
    fn append(&self, changes: &[MetaslabChange]) {
        let mut maps = self.runs.lock();
        for MetaslabChange { top, metaslab, allocated, freed, .. } in changes {
            let run = |r: &Range<u64>, allocated| Run { allocated, offset: r.start, len: r.end - r.start, vdev: None };
            let map = maps.entry((*top, *metaslab)).or_default();
            map.extend(allocated.iter().map(|r| run(r, true)));
            map.extend(freed.iter().map(|r| run(r, false)));
        }
    }
}

const SHIFT: u32 = 20;
const FIRST: VdevNumber = VdevNumber::new(0);
const SECOND: VdevNumber = VdevNumber::new(1);
const THIRD: VdevNumber = VdevNumber::new(2);

/// A tree of files without devices: a raidz for a width above 1. `(width, ashift)` of each.
fn tree(tops: &[(u64, u64)]) -> Arc<Tree> {
    let leaf = |id: u64, guid: Guid| {
        let mut leaf = NvList::new();
        leaf.set("type", Value::Str("file".to_owned()));
        leaf.set("path", Value::Str(format!("/{guid}")));
        leaf.set("id", Value::U64(id));
        leaf.set("guid", Value::U64(guid.get()));
        leaf
    };
    let top = |(id, &(width, ashift)): (usize, &(u64, u64))| {
        let id = id as u64;
        let mut top = leaf(id, Guid::new(100 + id));
        if width > 1 {
            top = NvList::new();
            top.set("type", Value::Str("raidz".to_owned()));
            top.set("nparity", Value::U64(1));
            top.set("id", Value::U64(id));
            top.set("guid", Value::U64(100 + id));
            top.set("children", Value::Lists((0..width).map(|i| leaf(i, Guid::new(1000 + id * 100 + i))).collect()));
        }
        top.set("ashift", Value::U64(ashift));
        top.set("asize", Value::U64(1 << 30));
        top
    };
    let mut root = NvList::new();
    root.set("type", Value::Str("root".to_owned()));
    root.set("id", Value::U64(0));
    root.set("guid", Value::U64(1));
    root.set("children", Value::Lists(tops.iter().enumerate().map(top).collect()));
    Arc::new(Tree::open(VdevSpec::parse_root(&root).unwrap(), &HashMap::new()).unwrap())
}

fn metaslabs(count: u64, allocated: impl Fn(u64) -> u64) -> Vec<(Range<u64>, u64)> {
    (0..count).map(|i| (i << SHIFT..(i + 1) << SHIFT, allocated(i))).collect()
}

fn add(allocator: &Allocator, top: VdevNumber, class: Class, count: u64) {
    allocator.add_top(TopShape { top, class, metaslab_shift: SHIFT, metaslabs: metaslabs(count, |_| 0) }).unwrap();
}

fn noise(mut x: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) % below
    }
}

/// Every run that is in use or deferred, by vdev and offset: the model.
#[derive(Default)]
struct Model {
    runs: BTreeMap<(VdevNumber, u64), u64>,
}

impl Model {
    fn put(&mut self, dva: &Dva) {
        let key = (dva.vdev(), dva.offset());
        let end = dva.offset() + dva.asize();
        let before = self.runs.range(..key).next_back().filter(|((top, _), _)| *top == dva.vdev());
        assert!(before.is_none_or(|((_, at), len)| at + len <= dva.offset()), "{dva:?} overlaps with one before");
        let behind = self.runs.range(key..).next().filter(|((top, _), _)| *top == dva.vdev());
        assert!(behind.is_none_or(|((_, at), _)| *at >= end), "{dva:?} overlaps with one behind");
        self.runs.insert(key, dva.asize());
    }

    fn remove(&mut self, dva: &Dva) {
        assert_eq!(self.runs.remove(&(dva.vdev(), dva.offset())), Some(dva.asize()));
    }
}

/// The runs that a fresh allocator over the same maps has in use.
fn reloaded(tree: &Arc<Tree>, maps: &Maps, tops: &[(VdevNumber, u64)]) -> Vec<(VdevNumber, Range<u64>)> {
    let again = Allocator::new(tree.clone(), Box::new(maps.clone()));
    let mut out = Vec::new();
    for &(top, count) in tops {
        add(&again, top, Class::Normal, count);
        for metaslab in 0..count {
            out.extend(again.condensed(top, metaslab, Txg::ZERO).unwrap().iter().map(|range| (top, range)));
        }
    }
    out
}

#[test]
fn random_work_against_a_model() {
    let tree = tree(&[(1, 9), (4, 12)]);
    let maps = Maps::default();
    let allocator = Allocator::new(tree.clone(), Box::new(maps.clone()));
    add(&allocator, FIRST, Class::Normal, 6);
    add(&allocator, SECOND, Class::Normal, 9);
    let mut random = noise(7);
    let mut model = Model::default();
    let mut live: Vec<(Txg, Dva)> = Vec::new();
    let mut deferred: Vec<(Txg, Dva)> = Vec::new();
    let (mut full, mut unallocated) = (0, 0);
    for txg in Txg::new(10).until(Txg::new(150)) {
        for _pass in 0..3 {
            for _ in 0..40 {
                if random(100) < 56 {
                    let most = if random(4) == 0 { 256 } else { 24 };
                    let size = 512 * (1 + random(most));
                    match allocator.allocate(Class::Normal, size, 1 + random(3) as u8, txg) {
                        Ok(dvas) => {
                            dvas.iter().for_each(|dva| model.put(dva));
                            live.extend(dvas.into_iter().map(|dva| (txg, dva)));
                        }
                        Err(e) => full += usize::from(e.kind() == Kind::NoSpace),
                    }
                } else if !live.is_empty() {
                    // the newest now and then, so that some were born in this group
                    let back = if random(3) == 0 { 30 } else { u64::MAX };
                    let at = live.len() - 1 - random(back.min(live.len() as u64)) as usize;
                    let (born, dva) = live.swap_remove(at);
                    if born == txg && random(2) == 0 {
                        allocator.unallocate(txg, &dva).unwrap();
                        model.remove(&dva);
                        unallocated += 1;
                    } else {
                        allocator.free(txg, &dva).unwrap();
                        assert_eq!(allocator.free(txg, &dva).unwrap_err().kind(), Kind::Corrupt);
                        assert_eq!(allocator.unallocate(txg, &dva).unwrap_err().kind(), Kind::Corrupt);
                        deferred.push((txg, dva));
                    }
                }
            }
            maps.append(&allocator.take_changes(txg));
        }
        assert!(allocator.take_changes(txg).is_empty());
        allocator.synced(txg);
        for (_, dva) in deferred.extract_if(.., |(freed, _)| freed.plus(TXG_DEFER) <= txg) {
            model.remove(&dva);
        }
        let sum = |list: &[(Txg, Dva)]| list.iter().map(|(_, dva)| dva.asize()).sum::<u64>();
        let space = allocator.class_space(Class::Normal);
        assert_eq!((space.allocated, space.deferred), (sum(&live), sum(&deferred)));
        assert_eq!(space.free, space.size - space.allocated - space.deferred);
        if txg.slot(20) == 0 {
            let on_disk = reloaded(&tree, &maps, &[(FIRST, 6), (SECOND, 9)]);
            let in_memory = (0..6).map(|m| (FIRST, m)).chain((0..9).map(|m| (SECOND, m)));
            let in_memory: Vec<(VdevNumber, Range<u64>)> = in_memory
                .flat_map(|(t, m)| {
                    allocator.condensed(t, m, txg).unwrap().iter().map(move |r| (t, r)).collect::<Vec<_>>()
                })
                .collect();
            assert_eq!(on_disk, in_memory);
            assert_eq!(on_disk.iter().map(|(_, r)| r.end - r.start).sum::<u64>(), sum(&live));
        }
    }
    assert!(full > 20 && unallocated > 20, "{full} times full, {unallocated} taken back");
}

#[test]
fn a_free_waits_for_two_more_groups() {
    let allocator = Allocator::new(tree(&[(1, 9)]), Box::new(Maps::default()));
    add(&allocator, FIRST, Class::Normal, 1);
    let dva = allocator.allocate(Class::Normal, 1 << SHIFT, 1, Txg::new(5)).unwrap()[0];
    let sync = |txg| {
        allocator.take_changes(txg);
        allocator.synced(txg);
    };
    sync(Txg::new(5));
    allocator.free(Txg::new(6), &dva).unwrap();
    for txg in (6..9).map(Txg::new) {
        assert_eq!(allocator.allocate(Class::Normal, 512, 1, txg).unwrap_err().kind(), Kind::NoSpace, "txg {txg}");
        sync(txg);
    }
    assert_eq!(allocator.allocate(Class::Normal, 1 << SHIFT, 1, Txg::new(9)).unwrap(), [dva]);
}

#[test]
fn what_cancels_out_is_not_told() {
    let allocator = Allocator::new(tree(&[(1, 9)]), Box::new(Maps::default()));
    add(&allocator, FIRST, Class::Normal, 1);
    let dva = allocator.allocate(Class::Normal, 4096, 1, Txg::new(5)).unwrap()[0];
    allocator.unallocate(Txg::new(5), &dva).unwrap();
    assert!(allocator.take_changes(Txg::new(5)).is_empty());
    let dva = allocator.allocate(Class::Normal, 4096, 1, Txg::new(5)).unwrap()[0];
    let told = allocator.take_changes(Txg::new(5));
    let range = dva.offset()..dva.offset() + 4096;
    assert_eq!(told[0].allocated, std::slice::from_ref(&range));
    allocator.unallocate(Txg::new(5), &dva).unwrap();
    let told = allocator.take_changes(Txg::new(5));
    assert_eq!((told[0].allocated.len(), &told[0].freed[..]), (0, std::slice::from_ref(&range)));
    allocator.synced(Txg::new(5));
    assert_eq!(allocator.unallocate(Txg::new(6), &dva).unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn copies_are_apart() {
    let tree = tree(&[(1, 9), (1, 9), (1, 9)]);
    tree.leaf(Guid::new(102)).unwrap().state().set_health(vdev::Health::HEALTHY);
    let allocator = Allocator::new(tree, Box::new(Maps::default()));
    [FIRST, SECOND].into_iter().for_each(|top| add(&allocator, top, Class::Normal, 4));
    for _ in 0..50 {
        let dvas = allocator.allocate(Class::Normal, 4096, 3, Txg::new(5)).unwrap();
        assert_ne!(dvas[0].vdev(), dvas[1].vdev());
        let twin = dvas[..2].iter().find(|dva| dva.vdev() == dvas[2].vdev()).unwrap();
        assert_ne!(twin.offset() >> SHIFT, dvas[2].offset() >> SHIFT, "in another metaslab");
    }
    add(&allocator, THIRD, Class::Log, 1);
    assert_eq!(allocator.allocate(Class::Log, 1 << SHIFT, 1, Txg::new(5)).unwrap()[0].vdev(), THIRD);
    assert_ne!(
        allocator.allocate(Class::Log, 4096, 1, Txg::new(5)).unwrap()[0].vdev(),
        THIRD,
        "full, so the others serve"
    );
    assert_ne!(allocator.allocate(Class::Special, 4096, 1, Txg::new(5)).unwrap()[0].vdev(), THIRD);
}

/// A vdev for logs serves while it works, is not shunned, and is open; otherwise the normal ones do.
#[test]
fn vdevs_for_logs_that_fail_are_left_alone() {
    let tree = tree(&[(1, 9), (1, 9)]);
    let allocator = Allocator::new(tree.clone(), Box::new(Maps::default()));
    add(&allocator, FIRST, Class::Normal, 4);
    add(&allocator, SECOND, Class::Log, 4);
    let goes_to = |txg| allocator.allocate(Class::Log, 4096, 1, txg).unwrap()[0].vdev();
    assert_eq!(goes_to(Txg::new(5)), FIRST, "it has no device");
    tree.leaf(Guid::new(101)).unwrap().state().set_health(vdev::Health::HEALTHY);
    assert_eq!(goes_to(Txg::new(5)), SECOND);
    allocator.shun(SECOND, Txg::new(9));
    assert_eq!((goes_to(Txg::new(8)), goes_to(Txg::new(9))), (FIRST, SECOND));
    allocator.set_serving(SECOND, Serving::Closed);
    assert_eq!(goes_to(Txg::new(10)), FIRST);
    assert!(allocator.class_space(Class::Log).allocated > 0, "what is there is still there");
    allocator.set_serving(SECOND, Serving::Gone);
    assert_eq!((goes_to(Txg::new(11)), allocator.class_space(Class::Log).size), (FIRST, 0));
}

#[test]
fn emptier_vdevs_get_more() {
    let maps = Maps::default();
    let half = Run { allocated: true, offset: 0, len: 1 << (SHIFT - 1), vdev: None };
    for metaslab in 0..64 {
        let run = Run { offset: metaslab << SHIFT, ..half };
        maps.runs.lock().insert((FIRST, metaslab), vec![run]);
    }
    let allocator = Allocator::new(tree(&[(1, 9), (1, 9)]), Box::new(maps.clone()));
    let shape =
        |top, used| TopShape { top, class: Class::Normal, metaslab_shift: SHIFT, metaslabs: metaslabs(64, |_| used) };
    allocator.add_top(shape(FIRST, half.len)).unwrap();
    allocator.add_top(shape(SECOND, 0)).unwrap();
    let mut counts = [0, 0];
    for _ in 0..300 {
        counts[allocator.allocate(Class::Normal, 64 << 10, 1, Txg::new(5)).unwrap()[0].vdev().index()] += 1;
    }
    assert!(counts[0] > 60 && counts[1] > counts[0] * 3 / 2, "{counts:?}");
    assert!(maps.loads.load(Ordering::Relaxed) <= 40, "metaslabs load when they are needed");
}

#[test]
fn a_vdev_that_has_grown_has_room_again() {
    let tree = tree(&[(1, 9)]);
    let allocator = Allocator::new(tree, Box::new(Maps::default()));
    add(&allocator, FIRST, Class::Normal, 1);
    let fill = |txg| std::iter::from_fn(|| allocator.allocate(Class::Normal, 128 << 10, 1, txg).ok()).count() as u64;
    assert_eq!(fill(Txg::new(1)), (1 << SHIFT) / (128 << 10));
    let behind: Vec<Range<u64>> = metaslabs(3, |_| 0).into_iter().map(|(range, _)| range).skip(1).collect();
    let gap = allocator.grow_top(FIRST, behind[1..].to_vec()).unwrap_err();
    assert_eq!(gap.kind(), Kind::Corrupt, "metaslabs are side by side");
    assert_eq!(allocator.grow_top(SECOND, behind.clone()).unwrap_err().kind(), Kind::NotFound);
    allocator.grow_top(FIRST, behind).unwrap();
    let Space { size, free, .. } = allocator.class_space(Class::Normal);
    assert_eq!((size, free), (3 << SHIFT, 2 << SHIFT));
    assert_eq!(fill(Txg::new(2)), (2 << SHIFT) / (128 << 10));
}

#[test]
fn a_bad_space_map_is_set_aside() {
    let maps = Maps::default();
    let twice = Run { allocated: true, offset: 0, len: 4096, vdev: None };
    maps.runs.lock().insert((FIRST, 0), vec![twice, twice]);
    let allocator = Allocator::new(tree(&[(1, 9)]), Box::new(maps));
    add(&allocator, FIRST, Class::Normal, 2);
    assert!(allocator.allocate(Class::Normal, 4096, 1, Txg::new(5)).unwrap()[0].offset() >= 1 << SHIFT);
    assert_eq!(allocator.condensed(FIRST, 0, Txg::new(5)).unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(allocator.top_space(FIRST).unwrap().free, (1 << SHIFT) - 4096);
    // a free is noted all the same
    allocator.free(Txg::new(5), &Dva::new(FIRST, 8192, 4096, false)).unwrap();
    assert_eq!(allocator.take_changes(Txg::new(5)).len(), 2);
}

#[test]
fn what_is_nowhere_cannot_be_freed() {
    let allocator = Allocator::new(tree(&[(1, 9)]), Box::new(Maps::default()));
    add(&allocator, FIRST, Class::Normal, 1);
    for dva in [
        Dva::new(FIRST, 1 << 30, 512, false),
        Dva::new(VdevNumber::new(7), 0, 512, false),
        Dva::new(FIRST, (1 << SHIFT) - 512, 1024, false),
    ] {
        assert_eq!(allocator.free(Txg::new(5), &dva).unwrap_err().kind(), Kind::Corrupt);
    }
}

#[test]
fn a_condensed_map_knows_nothing_of_later_groups() {
    let allocator = Allocator::new(tree(&[(1, 9)]), Box::new(Maps::default()));
    add(&allocator, FIRST, Class::Normal, 1);
    let range = |dva: &Dva| dva.offset()..dva.offset() + dva.asize();
    let [old, kept] = [0, 0].map(|_| allocator.allocate(Class::Normal, 4096, 1, Txg::new(5)).unwrap()[0]);
    allocator.take_changes(Txg::new(5));
    let [later, gone] = [0, 0].map(|_| allocator.allocate(Class::Normal, 4096, 1, Txg::new(6)).unwrap()[0]);
    allocator.free(Txg::new(6), &old).unwrap();
    allocator.free(Txg::new(6), &gone).unwrap();
    let used = |txg| allocator.condensed(FIRST, 0, txg).unwrap();
    assert_eq!(
        (used(Txg::new(5)).total(), used(Txg::new(5)).contains(range(&old).start..range(&kept).end)),
        (8192, true)
    );
    assert_eq!(
        (used(Txg::new(6)).total(), used(Txg::new(6)).contains(range(&kept).start..range(&later).end)),
        (8192, true)
    );
}

/// Frees in a metaslab that is not loaded, whose map may or may not tell of them by the time it is.
#[test]
fn loading_does_not_bring_back_what_is_deferred() {
    for is_told in [false, true] {
        let maps = Maps::default();
        let full = Run { allocated: true, offset: 0, len: 1 << SHIFT, vdev: None };
        maps.runs.lock().insert((FIRST, 0), vec![full]);
        let allocator = Allocator::new(tree(&[(1, 9)]), Box::new(maps.clone()));
        let shape = metaslabs(1, |_| 1 << SHIFT);
        allocator
            .add_top(TopShape { top: FIRST, class: Class::Normal, metaslab_shift: SHIFT, metaslabs: shape })
            .unwrap();
        let dva = Dva::new(FIRST, 4096, 4096, false);
        allocator.free(Txg::new(5), &dva).unwrap();
        assert_eq!(maps.loads.load(Ordering::Relaxed), 0, "freeing needs no space map");
        let changes = allocator.take_changes(Txg::new(5));
        if is_told {
            maps.append(&changes);
        }
        assert_eq!(allocator.condensed(FIRST, 0, Txg::new(5)).unwrap().total(), (1 << SHIFT) - 4096);
        assert_eq!(maps.loads.load(Ordering::Relaxed), 1);
        for txg in (5..8).map(Txg::new) {
            assert_eq!(allocator.allocate(Class::Normal, 512, 1, txg).unwrap_err().kind(), Kind::NoSpace);
            allocator.synced(txg);
        }
        assert_eq!(allocator.class_space(Class::Normal).free, 4096);
        assert_eq!(allocator.allocate(Class::Normal, 4096, 1, Txg::new(8)).unwrap(), [dva]);
    }
}

#[test]
fn loading_does_not_bring_back_what_is_kept() {
    let mut metaslab = metaslab::Metaslab::new(0..1 << SHIFT, 9, 0);
    // a hostile pool: its space map says that it is free
    metaslab.keep(Txg::new(5), 0..4096).unwrap();
    assert!(metaslab.load(0, &[]).unwrap());
    let at = metaslab.allocate(512, Txg::new(5)).unwrap();
    assert_eq!(at, 4096);
    metaslab.unallocate(Txg::new(5), at..at + 512).unwrap();
}
