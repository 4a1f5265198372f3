//! Log devices under load that are full, stall, lie, or come back with noise. What was tried is counted.

use device::FaultyDevice;
use vdev::spec::Bias;

use super::devices::{copies, same};
use super::*;

/// Bytes of the smallest log device.
const SMALL: u64 = 64 << 20;

fn disks(log_bytes: u64) -> Vec<Arc<SparseDevice>> {
    let bytes = [256 << 20, log_bytes, log_bytes];
    let disk = |(number, bytes): (usize, u64)| Arc::new(SparseDevice::new(format!("disk{number}"), bytes));
    bytes.into_iter().enumerate().map(disk).collect()
}

/// A pool with a log device, or a mirror of two, the first of which may be told to fail.
fn bed(env: &Env, disks: &[Arc<SparseDevice>], is_mirror: bool) -> (Bed, Arc<FaultyDevice>) {
    let faulty = Arc::new(FaultyDevice::new(disks[1].clone(), 3));
    let mut devices = same(disks);
    devices[1] = faulty.clone();
    let bed = Bed::create(env, Layout::Single, &devices);
    bed.add(Some(Bias::Log), if is_mirror { &devices[1..] } else { &devices[1..2] });
    (bed, faulty)
}

/// More is committed in one group than the log device holds: the rest of the log is in the pool.
#[test]
fn a_log_device_that_is_full_is_no_limit() {
    let disks = disks(SMALL);
    let (bed, _) = bed(&Env::fixed(1000), &disks, false);
    bed.commit_all(0..1);
    let bytes: Vec<u8> = (0..1 << 20).map(|at: u32| (at >> 3) as u8 | 1).collect();
    for n in 0..90u64 {
        let tx = bed.pool.txgs().begin().unwrap();
        // the same bytes of the file, so that little waits for the group
        bed.set.object(OBJECT).unwrap().write(&tx, 0, &bytes).unwrap();
        let body = ItxBody::Write { object: OBJECT, generation: 7, offset: 0, len: bytes.len() as u64, data: None };
        bed.log.push(&tx, Itx { scope: Scope::Object(OBJECT), body });
        drop(tx);
        bed.log.commit(OBJECT).unwrap();
        if n == 80 {
            bed.write(10).unwrap();
            bed.log.commit(ObjectId::NONE).unwrap();
        }
    }
    let (on_log, in_pool) = bed.blocks();
    assert!(on_log > 200 && in_pool > 5, "{on_log} log blocks on the log device, {in_pool} elsewhere");
    let left = shared(copies(&disks));
    check(&left);
    let after = Bed::import(&Env::fixed(2000), &left).unwrap();
    after.replay().unwrap();
    assert!(after.has(10));
    bed.pool.sync().unwrap();
    bed.pool.sync().unwrap();
    let before = bed.blocks().0;
    bed.log.retire();
    bed.commit_all(11..15);
    assert!(bed.blocks().0 > before, "it is used again when there is room");
    println!("full: {on_log} log blocks on a device of 64 MiB, {in_pool} more in the pool");
}

/// Nothing moves while a log device does not answer, and everything when it does.
#[test]
fn a_log_device_that_stalls_loses_nothing() {
    for is_mirror in [false, true] {
        let disks = disks(SMALL);
        let (bed, faulty) = bed(&Env::real(), &disks, is_mirror);
        bed.pool.start();
        bed.commit_all(0..4);
        let promised = Mutex::new(vec![false; WRITES as usize]);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (bed, promised) = (&bed, &promised);
                scope.spawn(move || {
                    for n in (4 + thread..WRITES).step_by(4) {
                        bed.write(n).unwrap();
                        bed.log.commit(if n % 2 == 0 { ObjectId::NONE } else { OBJECT }).unwrap();
                        promised.lock()[n as usize] = true;
                    }
                });
            }
            for _ in 0..5 {
                faulty.stall(true);
                std::thread::sleep(std::time::Duration::from_millis(40));
                // what is promised by now is there whatever comes
                let known = promised.lock().clone();
                let left = shared(copies(&disks));
                let after = Bed::import(&Env::fixed(2000), &left).unwrap();
                after.replay().unwrap();
                assert!((0..WRITES).all(|n| after.has(n) || !known[n as usize]), "mirror: {is_mirror}");
                faulty.stall(false);
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        });
        bed.pool.close(PoolState::Exported).unwrap();
        check(&shared(copies(&disks)));
    }
}

/// A device that says it has written, and has not: what was promised is lost with it, but no more, and the pool is
/// whole. In a mirror nothing is lost.
#[test]
fn a_log_device_that_lies_harms_no_group() {
    for is_mirror in [false, true] {
        let disks = disks(SMALL);
        let (bed, faulty) = bed(&Env::fixed(1000), &disks, is_mirror);
        bed.commit_all(0..10);
        // its labels are as they should be
        faulty.lose_writes(4 << 20..SMALL);
        bed.commit_all(10..20);
        bed.pool.sync().unwrap();
        bed.commit_all(20..30);
        let left = shared(copies(&disks));
        check(&left);
        let after = Bed::import(&Env::fixed(2000), &left).unwrap();
        after.replay().unwrap();
        let found = after.writes();
        assert!(if is_mirror { found == 30 } else { (20..30).contains(&found) }, "{found}, mirror: {is_mirror}");
        after.commit_all(found..found + 3);
        after.pool.close(PoolState::Exported).unwrap();
        drop(after);
        check(&left);
    }
}

/// The same for one that returns noise after the crash, wherever that begins.
#[test]
fn noise_on_a_log_device_ends_the_log() {
    let disks = disks(SMALL);
    let (bed, _) = bed(&Env::fixed(1000), &disks, false);
    bed.commit_all(0..5);
    bed.pool.sync().unwrap();
    bed.commit_all(5..30);
    let (mut rng, mut lost) = (Rng::new(8), 0);
    for round in 0..30 {
        let mut left = shared(copies(&disks));
        let noisy = FaultyDevice::new(left[1].clone(), round);
        let from = (4 << 20) + rng.below(8 << 20);
        noisy.noise(from..from + (1 << rng.below(22)));
        left[1] = Arc::new(noisy);
        let after = Bed::import(&Env::fixed(2000), &left).unwrap();
        after.replay().unwrap();
        let found = after.writes();
        assert!((5..=30).contains(&found), "{found} writes");
        lost += u64::from(found < 30);
        after.commit_all(found..found + 2);
        after.pool.close(PoolState::Exported).unwrap();
        drop(after);
        check(&left);
    }
    println!("noise: 30 times, {lost} of them within what was logged");
    assert!(lost > 3, "the noise met nothing that was logged");
}
