//! Users, groups and projects of file systems that are older than the features by which these are counted.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::Env;
use device::{Device, FileDevice, OpenMode};
use dsl::accounting::{Accounts, Counted, Owner};
use format::ids::{DatasetId, ObjectId};
use pool::{LivePool, NewPool, NewVdevShape, PoolState};
use testkit::workload::{candidate, options};
use zpl::{New, NewKind, SetFlags, Zpl};

use crate::live::{judge, make_fs, new_pool, reopen};

/// The features.
pub(super) const FEATURES: [&str; 2] = ["org.zfsonlinux:userobj_accounting", "org.zfsonlinux:project_quota"];
/// So many files are counted in several groups.
const FILES: u64 = 40_000;

type Sums = BTreeMap<u64, (u64, u64)>;

/// Brings groups to disk until a head is counted; how many.
pub(super) fn count(pool: &LivePool, id: DatasetId) -> usize {
    let head = pool.head(id).unwrap();
    (0..1000).take_while(|_| head.is_recounting(None) && pool.sync().is_ok()).count()
}

/// What accounts say is what the files of that name have, one by one.
pub(super) fn check_accounts(pool: &pool::Pool, name: &str) {
    let dataset = pool.dsl().find(name).unwrap();
    let objset = pool.dsl().objset(&dataset, dmu::Mode::Plain).unwrap();
    let zpl = Zpl::open(objset.clone()).unwrap();
    let mut expected = [(); 3].map(|()| Sums::new());
    let mut last = ObjectId::NONE;
    while let Some(id) = objset.next_object(last).unwrap() {
        last = id;
        let Ok(stat) = zpl.stat(id) else { continue };
        let bytes = objset.object(id).unwrap().dnode().used_bytes + 512;
        for (sums, owner) in expected.iter_mut().zip([stat.uid.into(), stat.gid.into(), stat.projid]) {
            let sum = sums.entry(owner).or_default();
            *sum = (sum.0 + bytes, sum.1 + 1);
        }
    }
    let accounts = Accounts::open(objset).unwrap();
    for (owner, expected) in [Owner::User, Owner::Group, Owner::Project].into_iter().zip(expected) {
        assert!(accounts.has(owner, Counted::Objects), "{name}: {owner:?}");
        let all = accounts.all(owner).unwrap().into_iter();
        let used = all.map(|((_, id), usage)| (id, (usage.used_bytes.unwrap_or(0), usage.objects_used.unwrap_or(0))));
        assert_eq!(used.filter(|(_, used)| *used != (0, 0)).collect::<Sums>(), expected, "{name}: {owner:?}");
    }
}

/// Whether each of the features is active.
fn uses(pool: &LivePool) -> Vec<bool> {
    let view = pool.view();
    let states = FEATURES.map(|guid| view.features().uses(guid) > 0);
    states.to_vec()
}

fn import(dir: &Path) -> Arc<LivePool> {
    let device = FileDevice::open(dir.join("disk0").to_str().unwrap(), OpenMode::ReadWrite).unwrap();
    LivePool::import(&Env::real(), &candidate(&[Arc::new(device)]).unwrap(), &options(), (7, "here".into())).unwrap()
}

fn files_of(pool: &LivePool) -> (DatasetId, Zpl) {
    let id = pool.view().dsl().find("live").unwrap().id;
    let zpl = Zpl::open_writable(pool.head(id).unwrap(), pool.txgs().clone(), Env::real(), Default::default(), None);
    (id, zpl.unwrap())
}

/// A pool without these features, with many files of many users.
fn older(new: NewPool, devices: &HashMap<PathBuf, Arc<dyn Device>>) -> Arc<LivePool> {
    let features = new.features.iter().filter(|guid| !FEATURES.contains(&guid.as_str())).cloned().collect();
    let new = NewPool { features, ..new };
    let pool = LivePool::create(&Env::real(), &new, devices, |set, tx, _| make_fs(set, tx, 7)).unwrap();
    let (_, zpl) = files_of(&pool);
    for n in 0..FILES {
        let owner = n as u32 % 7;
        let file = New { kind: NewKind::File, mode: 0o644, umask: 0, uid: 1000 + owner, gid: 100 + owner % 2 };
        let ino = zpl.create(zpl.root(), format!("{n}").as_bytes(), &file).unwrap().ino;
        if n % 100 == 0 {
            zpl.open_file(ino).unwrap().write(0, &vec![n as u8 | 1; 3000 + n as usize]).unwrap();
        }
    }
    pool.sync().unwrap();
    drop(zpl);
    pool
}

/// The power goes in the middle, twice; files change meanwhile, and a snapshot is taken and gone back to.
#[test]
fn accounts_of_older_files_are_made_in_spite_of_power_cuts() {
    let dir = tempfile::tempdir().unwrap();
    let (new, devices) = new_pool(dir.path(), NewVdevShape::Single, 1);
    let pool = older(new, &devices);
    pool.enable_features(FEATURES.map(str::to_owned).into()).unwrap();
    assert_eq!(uses(&pool), [false, false]);
    let (id, zpl) = files_of(&pool);
    assert!(pool.count_anew(id).unwrap());
    pool.sync().unwrap();
    pool.sync().unwrap();
    assert_eq!(uses(&pool), [true, true]);
    assert!(zpl.objset().recounted_percent().is_some_and(|percent| percent > 10 && percent < 100));
    let refused = pool.set_owner_limit("live", Owner::User, Counted::Objects, &(String::new(), 1000), 5).unwrap_err();
    assert!(refused.to_string().contains("% of its objects"), "{refused}");
    pool.snapshot(&["live@middle".to_owned()], &[]).unwrap();
    assert!(zpl.objset().recounted_percent().is_some(), "it is not at its end");
    pool.abandon();
    drop((zpl, pool, devices));
    for turn in 0..2u64 {
        let pool = import(dir.path());
        let (id, zpl) = files_of(&pool);
        assert!(pool.count_anew(id).unwrap(), "it begins again");
        for step in 0..300 {
            let n = (turn * 300 + step) * 137 % FILES;
            let name = format!("{n}");
            let Ok(ino) = zpl.lookup(zpl.root(), name.as_bytes()) else { continue };
            match n % 3 {
                0 => drop(zpl.unlink(zpl.root(), name.as_bytes()).unwrap().map(|gone| zpl.reclaim(gone).unwrap())),
                1 => drop(zpl.open_file(ino).unwrap().write(0, &[n as u8 | 1; 5000]).unwrap()),
                _ => zpl
                    .create(
                        zpl.root(),
                        format!("new-{n}").as_bytes(),
                        &New { kind: NewKind::File, mode: 0o644, umask: 0, uid: 5, gid: 6 },
                    )
                    .map(drop)
                    .unwrap(),
            }
            if step % 100 == 0 {
                pool.sync().unwrap();
            }
        }
        if turn == 0 {
            pool.abandon();
            continue;
        }
        assert!(count(&pool, id) > 0 || !zpl.objset().is_recounting(None));
        check_accounts(&pool.view(), "live");
        assert!(!pool.count_anew(id).unwrap(), "once is enough");
        let ino = zpl.lookup(zpl.root(), b"1").unwrap();
        zpl.set_flags(ino, &SetFlags { flags: 0, project: Some(55) }).unwrap();
        pool.set_owner_limit("live", Owner::User, Counted::Objects, &(String::new(), 1000), 5).unwrap();
        pool.sync().unwrap();
        check_accounts(&pool.view(), "live");
        drop(zpl);
        // the snapshot was taken when part of it was counted
        pool.rollback("live@middle").unwrap();
        let (id, zpl) = files_of(&pool);
        assert!(pool.count_anew(id).unwrap());
        assert!(count(&pool, id) > 0);
        check_accounts(&pool.view(), "live");
        drop(zpl);
        pool.close(PoolState::Exported).unwrap();
    }
    check_accounts(&reopen(dir.path()), "live");
    judge(dir.path());
}
