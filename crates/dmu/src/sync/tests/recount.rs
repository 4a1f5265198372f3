//! Accounts of sets that are older than these.

use std::collections::BTreeMap;
use std::sync::Arc;

use format::dnode::Dnode;
use format::ids::{DatasetId, ObjectId};
use format::object_type::ObjectType;
use format::objset::ObjsetType;
use proptest::prelude::*;

use super::{Step, World, step};
use crate::owners::{AccountKinds, BYTES_COUNTED, OBJECTS_COUNTED, Owners};
use crate::zap::Zap;
use crate::{Object, Objset, ObjsetPolicy};

const ALL: AccountKinds = AccountKinds { objects: true, projects: true };

/// Bytes and objects, by table and owner.
type Sums = BTreeMap<(usize, String), u64>;

fn owners_of(dnode: &Dnode) -> Option<Owners> {
    let byte = u64::from(dnode.bonus.first().copied().unwrap_or(0));
    let owners = Owners { user: byte % 3, group: byte % 2, project: byte % 5 };
    Some(owners).filter(|_| dnode.object_type == ObjectType::PLAIN_FILE_CONTENTS)
}

impl World {
    /// With a head that has these flags.
    fn counting(flags: u64) -> World {
        let world = World::new();
        let mut root = world.set.root();
        Arc::make_mut(&mut root.phys).flags = flags;
        world.set.set_root(root);
        world.set.set_owners_of(Arc::new(owners_of)).unwrap();
        world
    }

    /// Forgets what is in memory.
    fn reopen(&mut self) {
        self.sync();
        let (cache, policy) = (self.cache.clone(), ObjsetPolicy::default());
        let (id, bp) = (DatasetId::new(9), self.set.rootbp());
        self.set = Objset::open_live(cache, id, bp, ObjsetType::Zfs, "t/fs", policy).unwrap();
        self.set.set_owners_of(Arc::new(owners_of)).unwrap();
    }

    fn sync_until_counted(&mut self) -> usize {
        let groups = (0..100).take_while(|_| {
            let goes_on = self.set.is_recounting(None);
            self.sync();
            goes_on
        });
        groups.count()
    }

    /// What the dnodes on disk come to.
    fn expected(&self) -> Sums {
        let mut sums = Sums::new();
        let mut last = ObjectId::NONE;
        while let Some(id) = self.set.next_object(last).unwrap() {
            last = id;
            let dnode = self.set.dnode_on_disk(id).unwrap();
            let Some(owners) = owners_of(&dnode) else { continue };
            for (table, owner) in [owners.user, owners.group, owners.project].into_iter().enumerate() {
                *sums.entry((table, format!("{owner:x}"))).or_default() += dnode.used_bytes + 512;
                *sums.entry((table, format!("obj-{owner:x}"))).or_default() += 1;
            }
        }
        sums
    }

    fn counted(&self) -> Sums {
        let mut sums = Sums::new();
        for (table, dnode) in self.set.phys().accounting.iter().enumerate() {
            let Some(dnode) = dnode.clone() else { continue };
            let object = Object::outside(self.set.clone(), super::super::accounting::table_id(table), dnode);
            for entry in Zap::open(object).unwrap().entries().unwrap() {
                sums.insert((table, entry.name.to_string()), entry.value.first_u64().unwrap());
            }
        }
        sums.retain(|_, number| *number != 0);
        sums
    }
}

#[test]
fn a_set_that_counts_all_is_left_alone() {
    let mut world = World::counting(7);
    world.take(&Step::Create(512));
    world.sync();
    assert!(!world.set.begin_recount(ALL).unwrap());
    assert!(!world.set.is_recounting(None) && world.set.recounted_percent().is_none());
}

#[test]
fn a_walk_takes_some_blocks_a_group_and_tells_how_far_it_is() {
    let mut world = World::counting(BYTES_COUNTED);
    (0..200).for_each(|n| {
        world.take(&Step::Create(512));
        world.take(&Step::Bonus(n, n as u8));
    });
    world.sync();
    assert!(world.set.begin_recount(ALL).unwrap());
    let mut told = Vec::new();
    while let Some(percent) = world.set.recounted_percent() {
        assert_eq!(world.set.phys().flags, BYTES_COUNTED, "at {percent} %");
        told.push(percent);
        world.sync();
    }
    assert!(told.len() > 6 && told.is_sorted() && told[told.len() - 1] <= 100, "{told:?}");
    assert_eq!(world.set.phys().flags, 7);
    assert_eq!(world.counted(), world.expected());
}

/// A head of an old pool has no room for the table of projects.
#[test]
fn a_walk_without_projects_makes_no_table_of_them() {
    let mut world = World::counting(0);
    (0..40).for_each(|n| {
        world.take(&Step::Create(512));
        world.take(&Step::Bonus(n, n as u8));
    });
    world.sync();
    for counts in [AccountKinds { objects: false, projects: false }, AccountKinds { projects: false, ..ALL }] {
        world.set.begin_recount(counts).unwrap();
        world.sync_until_counted();
        assert!(world.set.phys().accounting[2].is_none());
    }
    let mut expected = world.expected();
    expected.retain(|(table, _), _| *table < 2);
    assert_eq!(world.counted(), expected);
}

#[test]
fn a_walk_that_cannot_read_stands_still_until_it_is_woken() {
    let mut world = World::counting(BYTES_COUNTED);
    (0..70).for_each(|_| world.take(&Step::Create(512)));
    world.sync();
    // nothing is in memory
    let fresh = Arc::new(crate::Cache::new(world.cache.zio().clone(), 1 << 20));
    let (id, bp, policy) = (DatasetId::new(9), world.set.rootbp(), ObjsetPolicy::default());
    world.set = Objset::open_live(fresh, id, bp, ObjsetType::Zfs, "t/fs", policy).unwrap();
    world.set.set_owners_of(Arc::new(owners_of)).unwrap();
    world.set.begin_recount(ALL).unwrap();
    world.disk.vanish(true);
    let step = |world: &World| world.set.recount_step(&world.txgs.in_sync(world.txgs.open_txg()));
    assert!(step(&world).is_some(), "the first step reads nothing");
    world
        .set
        .live()
        .unwrap()
        .change_recount(|recount| recount.iter_mut().for_each(crate::recount::Recount::skip_first));
    assert!(step(&world).is_none());
    assert!(!world.set.is_recounting(None));
    assert!(world.set.take_recount_failure().is_some());
    world.disk.heal();
    world.cache.zio().tree().leaves().next().unwrap().state().reopen(None);
    world.set.stall_recount(false);
    assert!(world.sync_until_counted() > 1);
    assert_eq!(world.counted(), world.expected());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn accounts_that_are_made_late_are_those_of_the_objects(
        flags in prop_oneof![Just(0), Just(BYTES_COUNTED), Just(BYTES_COUNTED | OBJECTS_COUNTED)],
        before in prop::collection::vec(step(), 1..30),
        turns in prop::collection::vec((prop::collection::vec(step(), 0..6), any::<u8>()), 1..8),
    ) {
        let mut world = World::counting(flags);
        (0..110).for_each(|n| {
            world.take(&Step::Create(512));
            world.take(&Step::Bonus(n, n as u8));
        });
        before.iter().for_each(|step| world.take(step));
        world.sync();
        for (steps, chance) in &turns {
            // begun again, or for the first time; now and then after a crash, or for less
            if chance % 4 == 0 {
                world.reopen();
            }
            let counts = if chance % 3 == 0 { AccountKinds { projects: false, ..ALL } } else { ALL };
            world.set.begin_recount(counts).unwrap();
            steps.iter().for_each(|step| world.take(step));
            world.sync();
        }
        world.set.begin_recount(ALL).unwrap();
        world.sync_until_counted();
        prop_assert_eq!(world.set.phys().flags, 7);
        prop_assert_eq!(world.counted(), world.expected());
        // and they stay so
        for (steps, _) in &turns {
            steps.iter().for_each(|step| world.take(step));
            world.sync();
            prop_assert_eq!(world.counted(), world.expected());
        }
        world.reopen();
        (0..20).for_each(|n| world.take(&Step::Free(n)));
        world.sync();
        prop_assert_eq!(world.counted(), world.expected());
    }
}
