use device::{FaultyDevice, MemDevice};
use format::ids::{Guid, Txg};
use format::sealing::StoredBytes;

use super::*;

const MIB: u64 = 1 << 20;
const POOL: Guid = Guid::new(77);
const GUID: Guid = Guid::new(78);

/// Devices of any size have logs, and there are no threads.
fn env() -> Env {
    env_with(0)
}

fn env_with(dwpd_limit: u64) -> Env {
    Env::fixed(0).with_tunables(move |name| match name {
        "l2arc_rebuild_blocks_min_l2size" => Some(1),
        "l2arc_dwpd_limit" => Some(dwpd_limit),
        _ => None,
    })
}

fn device(bytes: u64) -> Arc<FaultyDevice> {
    Arc::new(FaultyDevice::new(Arc::new(MemDevice::new("cache", vec![0; bytes as usize])), 1))
}

fn l2arc(env: &Env, device: &Arc<FaultyDevice>) -> Arc<L2arc> {
    let l2arc = Arc::new(L2arc::new(env));
    l2arc.add(POOL, GUID, device.clone()).unwrap();
    l2arc
}

fn key(n: u64) -> L2Key {
    L2Key { dva: [16, n * 64], birth: Txg::new(5) }
}

fn contents(n: u64) -> Vec<u8> {
    (0..LEN).map(|i| (n * 31 + i as u64) as u8).collect()
}

const LEN: usize = 32768;

fn record(n: u64) -> FedBlock {
    FedBlock {
        key: key(n),
        physical: StoredBytes::of_device(AlignedBuf::from(&contents(n)[..])),
        is_protected: false,
        lsize: 65536,
        compress: 15,
        is_metadata: n.is_multiple_of(4),
        is_frequent: n.is_multiple_of(2),
        is_prefetched: false,
    }
}

fn wanted(n: u64) -> CacheLookup {
    CacheLookup { key: key(n), psize: LEN, lsize: 65536, is_metadata: n.is_multiple_of(4) }
}

fn feed(l2arc: &L2arc, which: std::ops::Range<u64>) -> u64 {
    let records: Vec<FedBlock> = which.map(record).collect();
    l2arc.turn(&Tunables::of(&l2arc.env), false).map_or(0, |turn| l2arc.feed(&turn, &records))
}

/// Which of these blocks are there; what is there is right.
fn there(l2arc: &L2arc, which: std::ops::Range<u64>) -> Vec<u64> {
    let wanted: Vec<CacheLookup> = which.clone().map(wanted).collect();
    let found = which.zip(l2arc.read(&wanted)).filter_map(|(n, found)| Some((n, found?)));
    found.map(|(n, found)| (n, assert_eq!(found.bytes[..], contents(n)[..])).0).collect()
}

fn named(l2arc: &L2arc, name: &str) -> u64 {
    l2arc.table().iter().find(|(other, _)| *other == name).unwrap_or_else(|| panic!("no {name}")).1
}

#[test]
fn what_was_fed_is_there() {
    let (env, device) = (env(), device(72 * MIB));
    let l2arc = l2arc(&env, &device);
    assert!(feed(&l2arc, 0..100) > 100 * LEN as u64);
    assert_eq!(there(&l2arc, 0..120), (0..100).collect::<Vec<u64>>());
    assert_eq!((named(&l2arc, "l2_size"), named(&l2arc, "l2_mfu_asize")), (100 * 65536, 50 * LEN as u64));
    assert_eq!(named(&l2arc, "l2_bufc_metadata_asize"), 25 * LEN as u64);
    assert!(l2arc.remove(GUID) && !l2arc.remove(GUID));
    assert_eq!(there(&l2arc, 0..100), []);
    assert_eq!(named(&l2arc, "l2_size"), 0);
}

/// What is on the device: bytes of contents, bytes, of those metadata, frequent, prefetched.
fn sizes(l2arc: &L2arc) -> [u64; 5] {
    let names = ["l2_size", "l2_asize", "l2_bufc_metadata_asize", "l2_mfu_asize", "l2_prefetch_asize"];
    let mut sizes = names.map(|name| named(l2arc, name));
    sizes[1] -= named(l2arc, "l2_log_blk_asize");
    sizes
}

#[test]
fn what_is_freed_takes_nothing() {
    let (env, device) = (env(), device(64 * MIB));
    let first = l2arc(&env, &device);
    let of = |records: [u64; 4]| {
        let [all, metadata, frequent, prefetched] = records.map(|count| count * LEN as u64);
        [2 * all, all, metadata, frequent, prefetched]
    };
    let prefetched: Vec<FedBlock> = (100..110).map(|n| FedBlock { is_prefetched: true, ..record(n) }).collect();
    feed(&first, 0..100);
    first.feed(&first.turn(&Tunables::of(&env), false).unwrap(), &prefetched);
    assert_eq!(sizes(&first), of([110, 28, 50, 10]));
    (0..10).chain(100..105).for_each(|n| first.forget(&wanted(n)));
    (0..10).for_each(|n| first.forget(&wanted(n)));
    assert_eq!(sizes(&first), of([95, 23, 45, 5]));
    assert_eq!(there(&first, 0..15), (10..15).collect::<Vec<u64>>());
    device.broken(0..64 * MIB);
    assert!(first.read(&[wanted(50)])[0].is_none());
    device.heal();
    assert_eq!(sizes(&first), of([94, 23, 44, 5]));
    first.close();
    // the logs know of nothing that was freed
    let second = l2arc(&env, &device);
    assert_eq!(sizes(&second), of([110, 28, 50, 10]));
    for i in 0..60 {
        (1000 + i * 50..1020 + i * 50).for_each(|n| {
            feed(&second, n..n + 1);
        });
        (1000 + i * 50..1020 + i * 50).for_each(|n| second.forget(&wanted(n)));
        feed(&second, 1020 + i * 50..1050 + i * 50);
    }
    let left = there(&second, 1000..4000);
    let count = |is_it: fn(u64) -> bool| left.iter().filter(|n| is_it(**n)).count() as u64;
    assert!(left.iter().all(|n| n % 50 >= 20) && left.len() > 600);
    assert_eq!(
        sizes(&second),
        of([left.len() as u64, count(|n| n.is_multiple_of(4)), count(|n| n.is_multiple_of(2)), 0])
    );
}

#[test]
fn the_oldest_make_room() {
    let (env, device) = (env(), device(64 * MIB));
    let l2arc = l2arc(&env, &device);
    for i in 0..100 {
        feed(&l2arc, i * 50..i * 50 + 50);
        let all = there(&l2arc, 0..i * 50 + 50);
        assert_eq!(all.last(), Some(&(i * 50 + 49)));
        assert_eq!(all.len() as u64, all.last().unwrap() - all[0] + 1, "none is missing between");
        if i > 40 {
            assert!(all.len() as u64 * LEN as u64 > 40 * MIB, "{} blocks", all.len());
        }
        let [capacity, taken] = l2arc.reports()[0].bytes;
        assert!(taken <= capacity);
    }
}

#[test]
fn is_warm_again() {
    for (size, rounds) in [(72, 10), (64, 100), (64, 40)] {
        let (env, device) = (env(), device(size * MIB));
        let first = l2arc(&env, &device);
        (0..rounds).for_each(|i| {
            feed(&first, i * 50..i * 50 + 50);
        });
        let before = there(&first, 0..rounds * 50);
        first.close();
        assert_eq!(there(&first, 0..rounds * 50), []);
        let second = l2arc(&env, &device);
        let after = there(&second, 0..rounds * 50);
        assert!(after.len() * 10 >= before.len() * 9, "{} of {}", after.len(), before.len());
        assert_eq!(after.last(), before.last());
        assert_eq!(named(&second, "l2_rebuild_success"), 1);
        assert!(named(&second, "l2_size") > 0 && named(&second, "l2_log_blk_count") > 0);
        // and goes on where it was
        (0..rounds * 2).for_each(|i| {
            feed(&second, 9000 + i * 50..9000 + i * 50 + 50);
        });
        assert!(there(&second, 9000..9000 + rounds * 100).len() as u64 * LEN as u64 > 30 * MIB);
        second.close();
        let third = l2arc(&env, &device);
        assert!(!there(&third, 9000..9000 + rounds * 100).is_empty());
    }
}

#[test]
fn a_device_of_another_pool_is_begun_anew() {
    let (env, device) = (env(), device(72 * MIB));
    let first = l2arc(&env, &device);
    feed(&first, 0..100);
    first.close();
    for (pool, guid) in [(Guid::new(1), GUID), (POOL, GUID), (POOL, Guid::new(1))] {
        let other = Arc::new(L2arc::new(&env));
        other.add(pool, guid, device.clone()).unwrap();
        assert_eq!((there(&other, 0..100).len(), named(&other, "l2_rebuild_unsupported")), (0, 1));
    }
}

#[test]
fn a_power_cut_leaves_what_was_logged() {
    let (env, device) = (env(), device(72 * MIB));
    let first = l2arc(&env, &device);
    feed(&first, 0..101);
    drop(first);
    let second = l2arc(&env, &device);
    // 72 MiB make logs of 4 blocks
    assert_eq!(there(&second, 0..101), (0..100).collect::<Vec<u64>>());
    // a log in the middle is damaged
    drop(second);
    device.noise(6 * MIB..6 * MIB + 100_000);
    let third = l2arc(&env, &device);
    let left = third.read(&[wanted(99)]);
    assert!(left[0].is_some() && !third.contains(&key(3)));
    assert_eq!(named(&third, "l2_rebuild_cksum_lb_errors"), 1);
}

#[test]
fn a_bad_device_costs_nothing_but_its_blocks() {
    let (env, device) = (env(), device(72 * MIB));
    let l2arc = l2arc(&env, &device);
    feed(&l2arc, 0..100);
    device.broken(0..8 * MIB);
    assert!(l2arc.read(&[wanted(3)])[0].is_none() && !l2arc.contains(&key(3)));
    assert_eq!((named(&l2arc, "l2_io_error"), l2arc.reports()[0].errors), (1, [1, 0, 0]));
    device.heal();
    device.noise(0..8 * MIB);
    let found = l2arc.read(&[wanted(4)]).remove(0).unwrap();
    l2arc.is_bad(&wanted(4), &found.split().1);
    assert!(!l2arc.contains(&key(4)));
    assert_eq!((named(&l2arc, "l2_cksum_bad"), l2arc.reports()[0].errors), (1, [1, 0, 1]));
    device.heal();
    device.unwritable(0..72 * MIB);
    feed(&l2arc, 200..210);
    assert_eq!((there(&l2arc, 200..210), named(&l2arc, "l2_writes_error")), (vec![], 1));
    device.heal();
    feed(&l2arc, 300..310);
    assert_eq!(there(&l2arc, 300..310).len(), 10);
    device.vanish(true);
    assert!(l2arc.read(&[wanted(300)])[0].is_none());
    assert!(!l2arc.reports()[0].is_usable && l2arc.turn(&Tunables::of(&env), false).is_none());
    device.heal();
    assert!(l2arc.clear(GUID));
    assert_eq!(there(&l2arc, 301..310).len(), 9);
}

#[test]
fn devices_take_turns() {
    let env = env();
    let l2arc = Arc::new(L2arc::new(&env));
    let devices = [device(72 * MIB), device(72 * MIB)];
    (0..).zip(&devices).for_each(|(i, device)| l2arc.add(POOL, Guid::new(i), device.clone()).unwrap());
    assert!(l2arc.add(POOL, Guid::new(1), devices[0].clone()).is_err());
    (0..10).for_each(|i| {
        feed(&l2arc, i * 10..i * 10 + 10);
    });
    assert_eq!(there(&l2arc, 0..100).len(), 100);
    let taken: Vec<u64> = l2arc.reports().iter().map(|report| report.bytes[1]).collect();
    assert!(taken[0] == taken[1] && taken[0] > 50 * LEN as u64);
    l2arc.remove(Guid::NONE);
    assert_eq!(there(&l2arc, 0..100).len(), 50);
}

#[test]
fn endurance() {
    let env = env_with(50);
    let device = device(64 * MIB);
    let l2arc = l2arc(&env, &device);
    let mut bytes = 0;
    for i in 0..200 {
        bytes += feed(&l2arc, i * 50..i * 50 + 50);
    }
    assert!((80 * MIB..100 * MIB).contains(&bytes), "the first sweep and half of another: {bytes}");
}
