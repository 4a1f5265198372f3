//! Property `multihost`: two hosts and one pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::{Env, Kind};
use device::{ALWAYS, Device};
use dsl::PropertyValue;
use format::uberblock::Uberblock;
use pool::inject::{InjectedEffect, InjectedRequests, Injection, InjectionTarget};
use pool::{Candidate, HeartbeatRecord, LivePool, NewVdevShape, PoolState, discover};
use testkit::workload::{self, PoolLayout, Workload};

use super::live::{judge, make_fs, new_pool};

/// A clock, and tunables: a heartbeat every tenth of a second, suspended after so many intervals, so many looks.
fn host(fail_intervals: u64, import_intervals: u64) -> Env {
    Env::real().with_tunables(move |name| match name {
        "zfs_multihost_interval" => Some(100),
        "zfs_multihost_fail_intervals" => Some(fail_intervals),
        "zfs_multihost_import_intervals" => Some(import_intervals),
        _ => None,
    })
}

fn guard(pool: &LivePool, is_on: bool) {
    pool.set_pool_properties(vec![("multihost".into(), PropertyValue::Number(is_on.into()))]).unwrap();
}

fn newest(devices: &[Arc<dyn Device>]) -> Uberblock {
    workload::candidate(devices).unwrap().uberblocks().remove(0)
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A guarded pool in use, in memory.
fn guarded(env: &Env, layout: PoolLayout) -> (Vec<Arc<dyn Device>>, Arc<LivePool>) {
    let blank = super::crash::blank(layout).into_iter();
    let devices: Vec<Arc<dyn Device>> = blank.map(|device| Arc::new(device) as Arc<dyn Device>).collect();
    let pool = Workload::create(env, layout, &devices, 1).unwrap().pool;
    pool.start();
    guard(&pool, true);
    (devices, pool)
}

#[test]
fn what_another_host_uses_is_not_imported() {
    let env = host(0, 25);
    let dir = tempfile::tempdir().unwrap();
    let (new, devices) = new_pool(dir.path(), NewVdevShape::Mirror, 2);
    let pool = LivePool::create(&env, &new, &devices, |set, tx, _| make_fs(set, tx, 7)).unwrap();
    pool.start();
    let look = || {
        let found = discover(&env, &[dir.path().to_path_buf()]).unwrap();
        Candidate::pick(&Candidate::all(&found), "live").unwrap()
    };
    assert!(!look().is_guarded_from(9), "nobody is told to guard it");
    guard(&pool, true);
    // whoever asks, as it was not exported
    for hostid in [9, 7, 0] {
        let refused = look().watch(&env, hostid).unwrap_err();
        assert_eq!(refused.kind(), Kind::Elsewhere, "host {hostid}: {refused}");
    }
    let refused = LivePool::import(&env, &look(), &workload::options(), (9, "there".into())).err().unwrap();
    assert_eq!(refused.kind(), Kind::Elsewhere, "{refused}");
    guard(&pool, false);
    assert!(!look().is_guarded_from(9) && look().watch(&env, 9).unwrap().is_none());
    guard(&pool, true);
    // its host dies
    pool.abandon();
    drop(pool);
    let of_dead = look().uberblocks().remove(0);
    let mmp = of_dead.mmp.unwrap();
    assert_eq!((mmp.interval_ms, mmp.fail_intervals), (Some(100), Some(0)));
    assert!(mmp.delay_ns > 0 && mmp.seq.is_some());
    assert_eq!(look().watch(&env, 9).unwrap(), Some(of_dead));
    let mut writable = look();
    for found in &mut writable.devices {
        found.device = devices[std::path::Path::new(&found.path)].clone();
    }
    let pool = LivePool::import(&env, &writable, &workload::options(), (9, "there".into())).unwrap();
    pool.start();
    let first = look().uberblocks().remove(0);
    wait_until("heartbeats", || look().uberblocks().remove(0).rank() > first.rank());
    pool.close(PoolState::Exported).unwrap();
    let exported = look();
    assert!(!exported.is_guarded_from(9) && exported.is_guarded_from(7), "it was this host that exported it");
    judge(dir.path());
}

#[test]
fn two_hosts_import_at_the_same_time() {
    let env = host(0, 10);
    let (devices, pool) = guarded(&env, PoolLayout::Raidz1);
    pool.abandon();
    drop(pool);
    let import = |id: u64| {
        let candidate = workload::candidate(&devices).unwrap();
        let imported = LivePool::import(&env, &candidate, &workload::options(), (id, format!("host {id}")));
        imported.map_err(|e| assert_eq!(e.kind(), Kind::Elsewhere, "{e}"))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = [8, 9].map(|id| scope.spawn(move || import(id))).into();
        // who has it keeps it until both are done
        let imported: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(imported.iter().filter(|outcome| outcome.is_ok()).count() < 2, "two have it");
    });
}

/// Two hosts that each see one side of a mirror: what one claims the other cannot see.
#[test]
fn a_side_of_a_mirror_is_not_claimed_without_the_other() {
    let env = host(0, 10);
    let (devices, pool) = guarded(&env, PoolLayout::Mirror);
    pool.abandon();
    drop(pool);
    let import = |env: &Env, devices: &[Arc<dyn Device>]| {
        let candidate = workload::candidate(devices).unwrap();
        LivePool::import(env, &candidate, &workload::options(), (9, "there".into()))
    };
    for side in devices.chunks(1) {
        let refused = import(&env, side).err().expect("the other side may be another host's");
        assert_eq!((refused.kind(), refused.what()), (Kind::Missing, pool::CLAIM_MISSING));
    }
    // an administrator says that the other side is gone
    let relaxed = Env::real().with_tunables(|name| match name {
        "zfs_multihost_interval" => Some(100),
        "zfs_multihost_fail_intervals" => Some(0),
        "zfs_multihost_import_intervals" => Some(10),
        "mmp_claim_relaxed" => Some(1),
        _ => None,
    });
    let pool = import(&relaxed, &devices[..1]).unwrap();
    pool.start();
    guard(&pool, true);
    pool.close(PoolState::Active).unwrap();
    drop(pool);
    // a side that is marked as absent is expected by nobody
    let pool = import(&env, &devices).unwrap();
    pool.start();
    guard(&pool, true);
    let second = pool.tree().leaves().last().unwrap().guid();
    pool.take_off(second, pool::OfflineReason::Offline, false).unwrap();
    pool.sync().unwrap();
    pool.abandon();
    drop(pool);
    let refused = import(&env, &devices[1..]).err().expect("its label does not know that it is offline");
    assert_eq!(refused.what(), pool::CLAIM_MISSING);
    import(&env, &devices[..1]).unwrap().close(PoolState::Exported).unwrap();
}

#[test]
fn who_sees_another_hosts_heartbeat_stops() {
    let env = host(0, 2);
    let (devices, pool) = guarded(&env, PoolLayout::Mirror);
    let theirs = Uberblock { timestamp_s: env.now_s() + 100, ..newest(&devices) };
    let theirs = Uberblock { txg: theirs.txg.plus(50), guid_sum: 1, ..theirs };
    wait_until("suspended", || {
        for device in &devices {
            (0..4).for_each(|label| vdev::label::write_heartbeat(&**device, label, &theirs, 12).unwrap());
        }
        pool.is_lost()
    });
    assert_eq!(pool.txgs().begin().err().map(|e| e.kind()), Some(Kind::Suspended));
    let resumed = pool.clear(None, &|_| Err(base::Error::new(Kind::NotFound, "no other device is there")));
    assert_eq!(resumed.unwrap_err().kind(), Kind::Elsewhere, "the other one has it");
    assert!(pool.is_lost());
    assert_eq!(newest(&devices), theirs, "nothing was written over it");
    pool.abandon();
}

/// A process that was stopped for an hour: others may have taken the pool, so it writes no uberblock when it goes on,
/// until an administrator says so and nobody has.
#[test]
fn who_was_away_for_too_long_stops() {
    let late_ns = Arc::new(AtomicU64::new(0));
    let (began, late) = (Instant::now(), late_ns.clone());
    let env = host(20, 2).with_ticks(move || began.elapsed().as_nanos() as u64 + late.load(Ordering::Relaxed));
    let (devices, pool) = guarded(&env, PoolLayout::Single);
    late_ns.store(3_600_000_000_000, Ordering::Relaxed);
    let (setting, comment) = (pool.clone(), PropertyValue::Text("late".into()));
    let waiter = std::thread::spawn(move || setting.set_pool_properties(vec![("comment".into(), comment)]));
    wait_until("suspended", || pool.is_lost());
    let txg = newest(&devices).txg;
    assert_eq!(pool.view().uberblock().txg, txg);
    pool.clear(None, &|_| Err(base::Error::new(Kind::NotFound, "no other device is there"))).unwrap();
    // the change was refused, or made when the pool went on
    let outcome = waiter.join().unwrap().map_err(|e| e.kind());
    assert!(matches!(outcome, Ok(()) | Err(Kind::Suspended)), "{outcome:?}");
    assert!(!pool.is_lost());
    guard(&pool, false);
    assert!(newest(&devices).txg > txg);
    pool.close(PoolState::Exported).unwrap();
}

/// A side that hangs does not keep the others' heartbeats from them.
#[test]
fn one_side_hangs() {
    const FAIL_INTERVALS: u64 = 20;
    let env = Env::real().with_tunables(|name| match name {
        "zfs_multihost_interval" => Some(100),
        "zfs_multihost_fail_intervals" => Some(FAIL_INTERVALS),
        "zfs_multihost_history" => Some(1000),
        _ => None,
    });
    let (_, pool) = guarded(&env, PoolLayout::Mirror);
    let [sound, hung] = [0, 1].map(|side| pool.tree().leaves().nth(side).unwrap().guid());
    let target = InjectionTarget::Leaf { guid: hung, label: None };
    let effect = InjectedEffect::Slow { ms: 50 * FAIL_INTERVALS * 5, lanes: 1 };
    let requests = InjectedRequests::Writes;
    let slow = pool.inject(Injection { target, effect, requests, per_million: ALWAYS }).unwrap();
    let of = |leaf| {
        let is_its = |record: &HeartbeatRecord| record.place.as_ref().is_some_and(|place| place.leaf == leaf);
        pool.heartbeats().into_iter().filter(is_its).collect::<Vec<_>>()
    };
    // its number, and whether it is over
    let last = |leaf| of(leaf).last().map_or((0, true), |record| (record.id, record.duration_ns > 0));
    wait_until("a heartbeat that hangs", || !last(hung).1 && last(hung).0 + 5 < last(sound).0);
    let before = of(sound).len();
    wait_until("heartbeats of the other side", || of(sound).len() > before + 3 * FAIL_INTERVALS as usize / 2);
    assert!(!last(hung).1, "it is still under way");
    assert!(of(sound).iter().rev().skip(1).all(|record| record.error == 0 && record.duration_ns > 0));
    assert_eq!(pool.suspended(), None);
    slow.end(pool.tree());
    pool.close(PoolState::Exported).unwrap();
}
