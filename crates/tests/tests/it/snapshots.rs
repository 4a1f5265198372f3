//! Snapshots, and what grows from them, at random beside a model: each holds what its head held, whatever becomes of
//! that, and no block is lost or freed too early. zdb judges, if it is there.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use base::{Bookmark, Env};
use device::Device;
use dmu::dsize;
use dmu::traverse::{Descend, Range, Visit, Visitor, traverse};
use format::dsl::DatasetPhys;
use format::ids::{DatasetId, Txg};
use pool::Pool;
use testkit::rng::Rng;
use testkit::snapshots;
use testkit::sparse::SparseDevice;
use testkit::workload::{PoolLayout, Workload};

use crate::crash::{blank, check, judge_by_zdb};

/// Changes of datasets in one history.
const ROUNDS: usize = 40;

/// A pointer of a dataset: where it is, and its birth. With deduplication, several have one address, and each counts.
type Pointer = (Bookmark, Txg);

/// The blocks of a dataset that were born after a group, and what each counts for.
struct Blocks<'a> {
    pool: &'a Pool,
    sizes: HashMap<Pointer, u64>,
}

impl Visitor for Blocks<'_> {
    fn block(&mut self, visit: &Visit<'_>) -> ControlFlow<(), Descend> {
        if !visit.bp.is_embedded() {
            self.sizes.insert((visit.bookmark, visit.bp.birth()), dsize(self.pool.cache(), visit.bp));
        }
        ControlFlow::Continue(Descend::Below)
    }

    fn lost(&mut self, error: base::Error) {
        panic!("{error}");
    }
}

fn blocks(pool: &Pool, phys: &DatasetPhys, since_txg: Txg) -> HashMap<Pointer, u64> {
    let mut blocks = Blocks { pool, sizes: HashMap::new() };
    let range = Range { since_txg, from: None };
    assert!(traverse(pool.cache(), DatasetId::new(1), &phys.bp, range, &mut blocks).is_continue());
    blocks.sizes
}

/// All that the records say of space is what is there.
fn check_books(pool: &Pool, at: &str) {
    let dsl = pool.dsl();
    for dir in dsl.walk().unwrap() {
        let head = dsl.head(&dir).unwrap();
        let mut all = dsl.snapshots(&head).unwrap();
        all.push(head);
        let mut own = 0;
        for one in &all {
            let (name, phys) = (&one.name, &one.phys);
            let young = blocks(pool, phys, phys.prev_snap_txg);
            own += young.values().sum::<u64>();
            let referenced: u64 = blocks(pool, phys, Txg::ZERO).values().sum();
            assert_eq!(phys.referenced_bytes, referenced, "{at}: referenced of {name}");
            let unique: u64 = match phys.next_snap {
                DatasetId::NONE => young.values().sum(),
                next => {
                    let next = blocks(pool, &dsl.dataset(next, "next").unwrap().phys, Txg::ZERO);
                    young.iter().filter(|(pointer, _)| !next.contains_key(*pointer)).map(|(_, size)| size).sum()
                }
            };
            assert_eq!(phys.unique_bytes, unique, "{at}: unique of {name}");
        }
        let [of_head, of_snapshots, below, below_reserved, reserved] = dir.phys.used_breakdown;
        assert_eq!(of_head + of_snapshots, own, "{at}: used by {} itself", dir.name);
        let used = of_head + of_snapshots + below + below_reserved + reserved;
        assert_eq!(dir.phys.used_bytes, used, "{at}: {}", dir.name);
    }
}

fn history(layout: PoolLayout, seed: u64) {
    let disks: Vec<Arc<SparseDevice>> = blank(layout).into_iter().map(Arc::new).collect();
    let devices: Vec<Arc<dyn Device>> = disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect();
    let mut rng = Rng::new(seed);
    let mut load = Workload::create(&Env::fixed(1000), layout, &devices, rng.number()).unwrap();
    load.create_dataset("live/objects", &[("compression", "off")]).unwrap();
    load.create_fs("live/files", &[]).unwrap();
    for round in 0..ROUNDS {
        let steps = *rng.pick(&[0, 1, 5, 20, 60]);
        (0..steps).for_each(|_| load.step().unwrap());
        match rng.below(4) {
            0 => load.step_datasets(),
            1 => load.sync(),
            _ => snapshots::step(&mut load, &mut rng),
        }
        .unwrap();
        let at = format!("{layout:?}, seed {seed}, round {round}");
        load.sync().unwrap();
        assert_eq!(load.model.difference(&load.pool.view()), None, "{at}");
        check_books(&load.pool.view(), &at);
        check(&load.pool.view(), false).unwrap_or_else(|e| panic!("{at}: {e}"));
    }
    let model = load.model.clone();
    load.pool.close(pool::PoolState::Exported).unwrap();
    drop(load);
    let left: Vec<SparseDevice> = disks.iter().map(|disk| disk.copy()).collect();
    judge_by_zdb(&left).unwrap_or_else(|e| panic!("{layout:?}, seed {seed}: {e}"));
    let again = Workload::import(&Env::fixed(1000), &devices, &model, 1).unwrap();
    assert_eq!(model.difference(&again.pool.view()), None);
}

#[test]
fn snapshots_keep_what_their_heads_held() {
    for seed in 0..5 {
        history(PoolLayout::ALL[seed % PoolLayout::ALL.len()], seed as u64);
    }
}
